"""Reading tensors and metadata in the GGUF format.

A file is a magic number, a version, counts, the metadata (typed values by name), a description of
each tensor, and the tensors' bytes from an aligned place on. Files come from strangers: every
count, length, offset and name is checked before anything is made of it, and nothing in a file is
executed.
Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from lamina.core import dtypes
from lamina.core.dtypes import DType
from lamina.core.shape import Shape, prod
from lamina.errors import FormatError
from lamina.frontend.tensor import Tensor, check_device, checked
from lamina.io.blocks import BLOCK_TYPES, BlockType, Packed
from lamina.io.mapped import mapped_bytes, mapped_tensor

__all__ = ["GGUF", "load"]

MAGIC, _VERSIONS = b"GGUF", (2, 3)
ALIGNMENT = 32  # bytes, where the metadata do not say otherwise
_MAX_RANK = 4  # ggml's
_MAX_NAME = 65535  # bytes of a name in the metadata
_MAX_TENSOR_NAME = 63  # bytes; ggml's, less the zero at the end
_MAX_ENTRIES = 1 << 16  # of the metadata, and tensors
# Python objects are larger than what a file needs for them: a text of 2 bytes takes 10 bytes there
# and 60 here. The largest vocabularies have 260,000 tokens and 520,000 merges.
_MAX_OBJECTS = 1 << 20
_MAX_DEPTH = 4  # of arrays in arrays
# Of an empty tensor, were its sizes of zero one: NumPy keeps the strides, in bytes, in 63 bits.
_MAX_ELEMENTS = 1 << 59

_U32, _U64 = struct.Struct("<I"), struct.Struct("<Q")
# The numbers of the metadata by the code of their type; 7 is bool, 8 text and 9 an array.
NUMBERS = {
    0: dtypes.uint8, 1: dtypes.int8, 2: dtypes.uint16, 3: dtypes.int16, 4: dtypes.uint32,
    5: dtypes.int32, 6: dtypes.float32, 10: dtypes.uint64, 11: dtypes.int64, 12: dtypes.float64,
}  # fmt: skip
BOOL, TEXT, ARRAY = 7, 8, 9

DENSE = {
    0: dtypes.float32, 1: dtypes.float16, 24: dtypes.int8, 25: dtypes.int16, 26: dtypes.int32,
    27: dtypes.int64, 28: dtypes.float64, 30: dtypes.bfloat16,
}  # fmt: skip


@dataclass(frozen=True)
class GGUF:
    """What a file holds: `tensors` by name, with shapes outermost axis first, quantised ones as
    `Packed`; and `metadata` by name: bool, int, float, str, NumPy arrays of numbers, and lists of
    bools, texts and arrays."""

    metadata: dict[str, Any]
    tensors: dict[str, Tensor | Packed]


@checked
def load(path: str | os.PathLike[str], device: str | None = None) -> GGUF:
    """The content of a file, or of several that are parts of one, of which `path` is the first. On
    host devices tensors are private, copy-on-write views of the mapped file: nothing is read yet,
    and writing to one never changes the file.

    Raises FormatError, which names the field, when the file is not what the format asks for, when
    its numbers are big-endian, and for a type of tensors that lamina cannot decode; OSError for
    files that cannot be read, such as parts that are missing."""
    where = check_device(device)
    whole = _part(path, where)
    count = _place(whole, path, 0)
    for number, other in enumerate(_other_parts(path, count), 1):
        part = _part(other, where)
        _place(part, other, number)
        for name, tensor in part.tensors.items():
            if name in whole.tensors:
                raise FormatError(f"{other}: tensor {name!r}: given twice")
            whole.tensors[name] = tensor
    present = len(whole.tensors)
    total = whole.metadata.get(f"{_SPLIT}tensors.count", present)
    if not isinstance(total, int) or total != present:
        raise FormatError(f"{path}: {present} tensors in {count} parts, {total!r} are needed")
    metadata = {
        name: value for name, value in whole.metadata.items() if not name.startswith(_SPLIT)
    }
    return GGUF(metadata, whole.tensors)


_SPLIT = "split."  # of the names of metadata about the parts of a file


def _place(part: GGUF, path: str | os.PathLike[str], number: int) -> int:
    """How many parts a file has, of which this is to be the one of this number, from 0 on."""
    count, place = part.metadata.get(f"{_SPLIT}count", 1), part.metadata.get(f"{_SPLIT}no", 0)
    if not isinstance(count, int) or not isinstance(place, int) or not 0 <= place < count:
        raise FormatError(f"{path}: metadata 'split.no': part {place!r} of {count!r}")
    if place != number:
        needed = "the first" if number == 0 else f"part {number + 1}"
        raise FormatError(f"{path}: part {place + 1} of {count}, where {needed} is needed")
    return count


def _other_parts(path: str | os.PathLike[str], count: int) -> list[str]:
    """The paths of all parts but the first: NAME-00001-of-00003.gguf is the first of three."""
    name = os.fspath(path)
    end = f"-00001-of-{count:05}.gguf"
    if count > 1 and not name.endswith(end):
        raise FormatError(f"{name}: the first of {count} parts, whose name has to end with {end}")
    stem = name.removesuffix(end)
    return [f"{stem}-{number:05}-of-{count:05}.gguf" for number in range(2, count + 1)]


def _part(path: str | os.PathLike[str], where: str) -> GGUF:
    """The content of one file."""
    content = mapped_bytes(path)
    reader = _Reader(os.fspath(path), content)
    metadata, entries = reader.header()
    tensors: dict[str, Tensor | Packed] = {}
    for entry in entries:
        stored = mapped_tensor(content, entry.start, entry.stored_shape, entry.dtype, where)
        tensors[entry.name] = Packed(entry.kind, stored) if entry.kind else stored
    return GGUF(metadata, tensors)


@dataclass(frozen=True)
class _Entry:
    """The description of a tensor. `stored_shape` counts elements of `dtype`; for tensors of blocks
    of `kind`, its last two axes are the blocks of a row and the bytes of a block."""

    name: str
    stored_shape: Shape
    dtype: DType
    kind: BlockType | None
    start: int  # the first byte, from the begin of the file

    @property
    def stop(self) -> int:
        return self.start + prod(self.stored_shape) * self.dtype.itemsize


class _Reader:
    """The header of a file, from its first byte on."""

    def __init__(self, path: str, content: Any) -> None:
        self.path, self.at, self.size = path, 0, content.nbytes
        self.content = memoryview(content)
        self.objects_left = _MAX_OBJECTS

    def fail(self, field: str, reason: str) -> FormatError:
        return FormatError(f"{self.path}: {field}: {reason}")

    def take(self, nbytes: int, field: str) -> memoryview:
        """The next bytes."""
        if nbytes > self.size - self.at:
            raise self.fail(
                field, f"{nbytes} bytes from byte {self.at} on, but the file has {self.size}"
            )
        self.at += nbytes
        return self.content[self.at - nbytes : self.at]

    def u32(self, field: str) -> int:
        value: int = _U32.unpack(self.take(4, field))[0]
        return value

    def u64(self, field: str) -> int:
        value: int = _U64.unpack(self.take(8, field))[0]
        return value

    def text(self, field: str, limit: int | None = None) -> str:
        """A text: its length in bytes, then UTF-8."""
        nbytes = self.u64(f"{field}, length")
        if limit is not None and nbytes > limit:
            raise self.fail(field, f"{nbytes} bytes long; at most {limit} are allowed")
        try:
            return str(self.take(nbytes, field), "utf-8")
        except UnicodeDecodeError as error:
            raise self.fail(field, f"not UTF-8: {error.reason}") from None

    def header(self) -> tuple[dict[str, Any], list[_Entry]]:
        """The metadata, and the tensors in the order of the file."""
        magic = bytes(self.take(4, "magic"))
        if magic != MAGIC:
            raise self.fail("magic", f"{magic!r} where {MAGIC!r} is needed")
        version = self.u32("version")
        if version not in _VERSIONS:
            swapped = int.from_bytes(version.to_bytes(4, "little"), "big")
            if swapped in _VERSIONS:
                raise self.fail("version", f"the file is big-endian, of version {swapped}")
            raise self.fail("version", f"{version}; known are {' and '.join(map(str, _VERSIONS))}")
        tensor_count = self.count("tensor count", _MAX_ENTRIES)
        metadata_count = self.count("metadata count", _MAX_ENTRIES)
        metadata = self.metadata(metadata_count)
        alignment = self.alignment(metadata)
        described = [self.entry(number) for number in range(tensor_count)]
        begin = -(-self.at // alignment) * alignment  # of the tensors' bytes
        return metadata, self.placed(described, begin, alignment)

    def count(self, field: str, limit: int) -> int:
        value = self.u64(field)
        if value > limit:
            raise self.fail(field, f"{value}; at most {limit} are allowed")
        return value

    def metadata(self, count: int) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for number in range(count):
            name = self.text(f"name {number} of the metadata", _MAX_NAME)
            if name in values:
                raise self.fail(f"metadata {name!r}", "given twice")
            code = self.u32(f"metadata {name!r}, type")
            values[name] = self.value(code, f"metadata {name!r}")
        return values

    def value(self, code: int, field: str, depth: int = 0) -> Any:
        """A value of the type `code`."""
        if code in NUMBERS:
            return self.numbers(NUMBERS[code], 1, field)[0].item()
        if code == BOOL:
            return self.bools(1, field)[0]
        if code == TEXT:
            return self.text(field)
        if code == ARRAY:
            return self.array(field, depth + 1)
        raise self.fail(f"{field}, type", f"{code} is no type of the format")

    def array(self, field: str, depth: int) -> Any:
        if depth > _MAX_DEPTH:
            raise self.fail(field, f"arrays in arrays, more than {_MAX_DEPTH} deep")
        code = self.u32(f"{field}, type of the elements")
        count = self.u64(f"{field}, length")
        if code in NUMBERS:
            return self.numbers(NUMBERS[code], count, field)
        if count > self.objects_left:
            limit = f"arrays of this file have more than {_MAX_OBJECTS} bools, texts and arrays"
            raise self.fail(f"{field}, length", f"{count}; {limit}")
        self.objects_left -= count
        if code == BOOL:
            return self.bools(count, field)
        if code == TEXT:
            return self.texts(count, field)
        return [self.value(code, f"{field}[{number}]", depth) for number in range(count)]

    def texts(self, count: int, field: str) -> list[str]:
        """The next texts, in a short loop: a vocabulary has 100,000 of them."""
        content, at, strings = self.content, self.at, list[str]()
        try:
            while len(strings) < count:
                begin = at + 8
                end = begin + _U64.unpack_from(content, at)[0]
                if end > self.size:
                    break
                strings.append(str(content[begin:end], "utf-8"))
                at = end
        except (struct.error, UnicodeDecodeError):
            pass
        self.at = at
        if len(strings) < count:  # of the text that does not fit, say what is wrong
            self.text(f"{field}[{len(strings)}]")
        return strings

    def numbers(self, dtype: DType, count: int, field: str) -> Any:
        """NumPy's array of the next numbers, a copy."""
        import numpy as np

        taken = self.take(count * dtype.itemsize, field)
        return np.frombuffer(taken, dtype.numpy.newbyteorder("<")).astype(dtype.numpy)

    def bools(self, count: int, field: str) -> list[bool]:
        taken = self.take(count, field)
        if any(byte > 1 for byte in taken):
            raise self.fail(field, "a bool that is neither 0 nor 1")
        return [byte == 1 for byte in taken]

    def alignment(self, metadata: dict[str, Any]) -> int:
        value = metadata.get("general.alignment", ALIGNMENT)
        is_number = isinstance(value, int) and not isinstance(value, bool)
        if not is_number or value < 8 or value & (value - 1) or value > 1 << 20:
            raise self.fail(
                "metadata 'general.alignment'",
                f"{value!r}; a power of two from 8 to {1 << 20} is needed",
            )
        return int(value)

    def entry(self, number: int) -> _Entry:
        """The description of a tensor, with its place from the begin of the tensors' bytes."""
        name = self.text(f"name of tensor {number}", _MAX_TENSOR_NAME)
        field = f"tensor {name!r}"
        rank = self.u32(f"{field}, rank")
        if rank > _MAX_RANK:
            raise self.fail(f"{field}, rank", f"{rank}; at most {_MAX_RANK} is allowed")
        sizes = [self.u64(f"{field}, size of axis {axis}") for axis in range(rank)]
        if prod(size or 1 for size in sizes) > _MAX_ELEMENTS and 0 in sizes:
            raise self.fail(f"{field}, shape", f"{tuple(sizes)}: the sizes beside 0 are too large")
        code = self.u32(f"{field}, type")
        start = self.u64(f"{field}, offset")
        shape = tuple(reversed(sizes))  # the file has the innermost axis first
        kind = BLOCK_TYPES.get(code)
        if kind is not None:
            shape, dtype = self.blocks(kind, shape, field), dtypes.uint8
        elif code in DENSE:
            dtype = DENSE[code]
        else:
            names = [*(dtype.name for dtype in DENSE.values())]
            names += [kind.name for kind in BLOCK_TYPES.values()]
            raise self.fail(f"{field}, type", f"{code} is unknown; known are {', '.join(names)}")
        return _Entry(name, shape, dtype, kind, start)

    def blocks(self, kind: BlockType, shape: Shape, field: str) -> Shape:
        """The shape of the bytes of a tensor of `shape` weights."""
        if not shape or shape[-1] % kind.weights:
            raise self.fail(
                f"{field}, shape",
                f"{shape} in {kind.name}, whose blocks have {kind.weights} weights",
            )
        return (*shape[:-1], shape[-1] // kind.weights, kind.nbytes)

    def placed(self, described: list[_Entry], begin: int, alignment: int) -> list[_Entry]:
        """The tensors with their places in the file: aligned, inside the file, and apart."""
        entries: dict[str, _Entry] = {}
        for header in described:
            field = f"tensor {header.name!r}"
            if header.name in entries:
                raise self.fail(field, "given twice")
            if header.start % alignment:
                raise self.fail(f"{field}, offset", f"{header.start} is no multiple of {alignment}")
            start = begin + header.start
            entry = _Entry(header.name, header.stored_shape, header.dtype, header.kind, start)
            if entry.stop > self.size:
                raise self.fail(
                    field, f"bytes {entry.start} to {entry.stop}, but the file has {self.size}"
                )
            entries[header.name] = entry
        for before, after in _neighbours(entries.values()):
            if before.stop > after.start:
                raise self.fail(f"tensor {after.name!r}, offset", f"inside {before.name!r}")
        return list(entries.values())


def _neighbours(entries: Any) -> Iterator[tuple[_Entry, _Entry]]:
    """Pairs of tensors with bytes, in the order of these."""
    with_bytes = [entry for entry in entries if entry.stop > entry.start]
    with_bytes.sort(key=lambda entry: entry.start)
    return pairwise(with_bytes)
