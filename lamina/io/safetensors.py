"""Reading and writing tensors in the safetensors format.

A file is eight bytes with the length of a header, the header as JSON, and the tensors' bytes.
They are written one tensor after the other, so that memory holds one at a time.
Files come from strangers: the format's own package checks that the tensors fill the file without
gaps or overlaps, each with exactly the bytes its shape needs. Nothing in a file is ever executed.
"""

import json
import os
from collections.abc import Mapping
from typing import Any, BinaryIO

from lamina.core import dtypes
from lamina.errors import ArgumentError, DTypeError, FormatError
from lamina.frontend import realize as memory
from lamina.frontend.tensor import Tensor, as_tensor, check_device, checked
from lamina.io.files import replaced_file
from lamina.io.mapped import mapped_bytes, mapped_tensor

__all__ = ["load", "metadata", "save"]

_DTYPES = {
    dtypes.SHORT[dtype].upper().removesuffix("FN"): dtype
    for dtype in dtypes.ALL if dtype is not dtypes.complex128
}  # fmt: skip
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}
_ALIGNMENT = 8  # bytes: the header ends at a multiple, and the widest elements come first


@checked
def save(
    path: str | os.PathLike[str], tensors: Mapping[str, Tensor],
    metadata: Mapping[str, str] | None = None,
) -> None:  # fmt: skip
    """Write `tensors` to `path`, and the texts `metadata` beside them. An error, a kill or a crash
    of the machine leaves what was there before; the mode of a file that is replaced stays, and a
    symbolic link is followed. Raises DTypeError for a dtype that the format lacks, ArgumentError
    for names or metadata that are no texts, and OSError where the file cannot be written."""
    tensors = {name: as_tensor(one) for name, one in tensors.items()}
    texts = dict(metadata or {})
    for text in (*tensors, *texts, *texts.values()):
        if not isinstance(text, str):
            raise ArgumentError(
                f"{text!r} is no text; names and metadata are str", operation="save"
            )
    for name, tensor in tensors.items():
        if name == "__metadata__":
            raise FormatError(f"save: {name!r} is reserved by the format; rename the tensor")
        if tensor.dtype not in _NAMES:
            raise DTypeError(
                f"{name}: safetensors has no {tensor.dtype.name}; cast it first", operation="save"
            )
    ordered = dict(sorted(tensors.items(), key=lambda item: -item[1].dtype.itemsize))
    header = _header(ordered, texts)
    memory.realize(*ordered.values())
    with replaced_file(path) as file:
        file.write(header)
        for tensor in ordered.values():
            _write_values(file, tensor)


def _header(tensors: Mapping[str, Tensor], metadata: dict[str, str]) -> bytes:
    """The first bytes of a file: all before the values."""
    entries: dict[str, Any] = {"__metadata__": metadata} if metadata else {}
    start = 0  # of a tensor, from the end of the header
    for name, tensor in tensors.items():
        stop = start + tensor.nbytes
        entries[name] = {
            "dtype": _NAMES[tensor.dtype],
            "shape": tensor.shape,
            "data_offsets": (start, stop),
        }
        start = stop
    text = json.dumps(entries, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    return len(text).to_bytes(8, "little") + text


def _write_values(file: BinaryIO, tensor: Tensor) -> None:
    """The elements in row-major order."""
    values = memory.download(tensor)
    file.write(values.reshape(-1).view("uint8"))


@checked
def load(path: str | os.PathLike[str], device: str | None = None) -> dict[str, Tensor]:
    """The tensors of a file by name, in the order of their bytes. On host devices they are private,
    copy-on-write views of the mapped file: nothing is read yet, and writing to one never changes
    the file. Raises FormatError when the file is not what the format asks for."""
    file, where, tensors = _opened(path), check_device(device), dict[str, Tensor]()
    content = mapped_bytes(path)
    at = 8 + int.from_bytes(content[:8].tobytes(), "little")
    for name in file.offset_keys():
        part = file.get_slice(name)
        kind, shape = part.get_dtype(), tuple(part.get_shape())
        if kind not in _DTYPES:
            raise FormatError(f"{path}: {name!r} has dtype {kind}; known are {', '.join(_DTYPES)}")
        tensors[name] = mapped_tensor(content, at, shape, _DTYPES[kind], where)
        at += tensors[name].nbytes
    return tensors


def metadata(path: str | os.PathLike[str]) -> dict[str, str]:
    """The free text that a file carries beside its tensors."""
    return _opened(path).metadata() or {}


def _opened(path: str | os.PathLike[str]) -> Any:
    from safetensors import SafetensorError, safe_open

    if os.path.isdir(path):
        raise FormatError(f"{path} is a folder; name a file in it, such as model.safetensors")
    try:
        return safe_open(path, framework="numpy")
    except SafetensorError as error:
        raise FormatError(f"{path}: not a whole safetensors file: {error}") from None
