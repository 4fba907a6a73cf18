"""Reading and writing tensors in the safetensors format.

A file is eight bytes with the length of a header, the header as JSON, and the tensors' bytes:

    {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, "__metadata__": {...}}

The format's own specification asks readers to be strict, because files come from strangers: the
header is at most 100 MB, every tensor has exactly the bytes its shape needs, and together they
fill the rest of the file without gaps or overlaps. Nothing in a file is ever executed.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from lamina import dtypes
from lamina.dtypes import DType
from lamina.errors import DTypeError, FormatError
from lamina.ir.node import Node
from lamina.ir.ops import BufferRef, Op
from lamina.runtime.buffer import HOST_DEVICES, Buffer
from lamina.shape import Shape, prod
from lamina.tensor.core import Tensor, check_device, default_device
from lamina.tensor.realize import download, realize

__all__ = ["load", "metadata", "save"]

MAX_HEADER = 100_000_000
_LENGTH_BYTES = 8
_ALIGNMENT = 8  # of the header's end, as other writers do it
_METADATA = "__metadata__"
_NAMES: dict[DType, str] = {
    dtypes.bool_: "BOOL",
    dtypes.int8: "I8", dtypes.int16: "I16", dtypes.int32: "I32", dtypes.int64: "I64",
    dtypes.uint8: "U8", dtypes.uint16: "U16", dtypes.uint32: "U32", dtypes.uint64: "U64",
    dtypes.float8_e4m3fn: "F8_E4M3", dtypes.float8_e5m2: "F8_E5M2",
    dtypes.float16: "F16", dtypes.bfloat16: "BF16",
    dtypes.float32: "F32", dtypes.float64: "F64", dtypes.complex64: "C64",
}  # fmt: skip
_DTYPES = {name: dtype for dtype, name in _NAMES.items()}


class Entry(NamedTuple):
    """What a header says of one tensor; `start` and `stop` count from the header's end."""

    name: str
    dtype: DType
    shape: Shape
    start: int
    stop: int


# Writing.


def save(
    path: str | os.PathLike[str],
    tensors: Mapping[str, Tensor],
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Write `tensors` to `path`, all or nothing.

    The file is written beside its destination and renamed, so an error or a kill on the way
    leaves what was there before. Raises DTypeError for a dtype that the format lacks.
    """
    realize(*tensors.values())
    # Wide elements first, so that every tensor is aligned to its own element.
    names = sorted(tensors, key=lambda name: (-tensors[name].dtype.itemsize, name))
    header = _header(names, tensors, metadata)
    with _replacing(Path(path)) as file:
        file.write(len(header).to_bytes(_LENGTH_BYTES, "little"))
        file.write(header)
        for name in names:
            file.write(download(tensors[name].to("cpu")).tobytes())


def _header(
    names: list[str], tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None
) -> bytes:
    fields: dict[str, Any] = {}
    if metadata:
        fields[_METADATA] = {str(key): str(value) for key, value in metadata.items()}
    at = 0
    for name in names:
        tensor = tensors[name]
        if name == _METADATA:
            raise FormatError(f"save: {name!r} is reserved by the format; rename the tensor")
        if tensor.dtype not in _NAMES:
            raise DTypeError(f"save: {name}: safetensors has no {tensor.dtype.name}; cast it first")
        stop = at + tensor.nbytes
        fields[name] = {"dtype": _NAMES[tensor.dtype], "shape": list(tensor.shape),
                        "data_offsets": [at, stop]}  # fmt: skip
        at = stop
    text = json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode()
    return text + b" " * (-(len(text) + _LENGTH_BYTES) % _ALIGNMENT)


@contextlib.contextmanager
def _replacing(path: Path) -> Iterator[BinaryIO]:
    """A file that takes the place of `path` when the block ends, and vanishes if it fails."""
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(name, 0o666 & ~umask)  # mkstemp's 0600 is for secrets
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise


# Reading.


def load(path: str | os.PathLike[str], device: str | None = None) -> dict[str, Tensor]:
    """The tensors of a file by name, in the order of their bytes.

    On host devices nothing is read yet: the tensors are private, copy-on-write views of the
    mapped file, so loading takes no time and writing to a tensor never changes the file. Raises
    FormatError, naming what is wrong, when the file is not what the format asks for.
    """
    import numpy as np

    where = check_device(default_device() if device is None else device)
    entries, begin, _ = _read(Path(path))
    if begin == os.path.getsize(path):
        return {one.name: Tensor(_empty(one), one.dtype, where) for one in entries}
    content = np.memmap(path, np.uint8, "c")
    return {one.name: _tensor(content, begin, one, where) for one in entries}


def metadata(path: str | os.PathLike[str]) -> dict[str, str]:
    """The free text that a file carries beside its tensors."""
    return _read(Path(path))[2]


def _empty(entry: Entry) -> Any:
    import numpy as np

    return np.zeros(entry.shape, entry.dtype.numpy)


def _tensor(content: Any, begin: int, entry: Entry, device: str) -> Tensor:
    if entry.start == entry.stop:
        return Tensor(_empty(entry), entry.dtype, device)
    bytes_ = content[begin + entry.start : begin + entry.stop]
    pointer = int(bytes_.ctypes.data)
    if device not in HOST_DEVICES or pointer % entry.dtype.itemsize:
        return Tensor(bytes_.copy().view(entry.dtype.numpy).reshape(entry.shape),
                      entry.dtype, device)  # fmt: skip
    buffer = Buffer.wrap(pointer, entry.stop - entry.start, device, owner=content)
    place = BufferRef(buffer, entry.shape, entry.dtype, device)
    return Tensor.of(Node(Op.BUFFER, (), place), device)


def _read(path: Path) -> tuple[list[Entry], int, dict[str, str]]:
    """The checked entries of a file, where their bytes begin, and its metadata."""
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        length = int.from_bytes(file.read(_LENGTH_BYTES), "little")
        if size < _LENGTH_BYTES:
            raise _wrong(path, f"{size} bytes are too few for the header's length")
        if length > MAX_HEADER:
            raise _wrong(path, f"a header of {length:,} bytes; {MAX_HEADER:,} is the limit")
        begin = _LENGTH_BYTES + length
        if begin > size:
            raise _wrong(path, f"a header of {length:,} bytes in a file of {size:,}")
        text = file.read(length)
    fields = _parse(path, text)
    notes = fields.pop(_METADATA, {})
    if not _is_text_map(notes):
        raise _wrong(path, f"{_METADATA} is not a map from text to text")
    entries = [_entry(path, name, value) for name, value in fields.items()]
    entries.sort(key=lambda one: (one.start, one.stop))
    _check_layout(path, entries, size - begin)
    return entries, begin, notes


def _is_text_map(value: object) -> bool:
    return isinstance(value, dict) and all(isinstance(one, str) for one in value.values())


def _wrong(path: Path, what: str) -> FormatError:
    return FormatError(f"{path}: not a safetensors file: {what}")


def _parse(path: Path, text: bytes) -> dict[str, Any]:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        names = dict(pairs)
        if len(names) != len(pairs):
            twice = next(name for name, _ in pairs if sum(name == one for one, _ in pairs) > 1)
            raise _wrong(path, f"the header names {twice!r} twice")
        return names

    try:
        fields = json.loads(text.decode(), object_pairs_hook=unique)
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise _wrong(path, f"the header is not JSON ({error})") from None
    except FormatError:
        raise
    except ValueError as error:  # an integer with thousands of digits
        raise _wrong(path, f"the header has a number out of range ({error})") from None
    if not isinstance(fields, dict):
        raise _wrong(path, f"the header is a {type(fields).__name__}, not an object")
    return fields


def _entry(path: Path, name: str, value: object) -> Entry:
    """One tensor's description, each part checked on its own."""
    if not isinstance(value, dict) or set(value) != {"dtype", "shape", "data_offsets"}:
        raise _wrong(path, f"{name!r} needs exactly dtype, shape and data_offsets")
    kind, shape, offsets = value["dtype"], value["shape"], value["data_offsets"]
    if not isinstance(kind, str) or kind not in _DTYPES:
        raise _wrong(path, f"{name!r} has dtype {kind!r}; known are {', '.join(_DTYPES)}")
    if not _are_sizes(shape):
        raise _wrong(path, f"{name!r} has shape {shape!r}")
    if not _are_sizes(offsets) or len(offsets) != 2:
        raise _wrong(path, f"{name!r} has data_offsets {offsets!r}; two positions are needed")
    dtype, (start, stop) = _DTYPES[kind], offsets
    if stop - start != prod(shape) * dtype.itemsize:
        raise _wrong(
            path,
            f"{name!r}: {kind} of shape {tuple(shape)} takes {prod(shape) * dtype.itemsize:,} "
            f"bytes, not {stop - start:,}",
        )
    return Entry(name, dtype, tuple(shape), start, stop)


def _are_sizes(value: object) -> bool:
    return isinstance(value, list) and all(type(one) is int and 0 <= one < 1 << 63 for one in value)


def _check_layout(path: Path, entries: list[Entry], size: int) -> None:
    """The tensors lie one after another and fill the `size` bytes after the header."""
    at = 0
    for before, one in zip([None, *entries], entries, strict=False):
        if one.stop > size:
            raise _wrong(path, f"{one.name!r} ends at byte {one.stop:,} of {size:,}: a file cut "
                               "short, or a wrong offset")  # fmt: skip
        if one.start < at:
            assert before is not None
            raise _wrong(path, f"{one.name!r} and {before.name!r} overlap")
        if one.start > at:
            raise _wrong(path, f"{one.start - at:,} bytes before {one.name!r} belong to no tensor")
        at = one.stop
    if at != size:
        raise _wrong(path, f"{size - at:,} bytes at the end belong to no tensor")
