"""Writing files in the GGUF format, which `lamina.io.gguf` reads."""

from __future__ import annotations

import math
import os
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np

from lamina.core import dtypes
from lamina.core.shape import Shape
from lamina.errors import DTypeError
from lamina.io.files import replaced_file
from lamina.io.gguf import ALIGNMENT, ARRAY, BOOL, MAGIC, NUMBERS, TEXT

__all__ = ["Part", "save"]

_VERSION = 3
_CODES = {dtype: code for code, dtype in NUMBERS.items()}
_CODE_OF_NUMPY = {dtype.numpy: code for dtype, code in _CODES.items()}
_U32_MOST, _I64_LEAST = (1 << 32) - 1, -(1 << 63)


@dataclass(frozen=True)
class Part:
    """A tensor of a file: its type by number, and its bytes, which are made as they are written.

    shape: outermost axis first, of weights, whatever blocks they are in."""

    name: str
    shape: Shape
    code: int
    nbytes: int
    pieces: Callable[[], Iterable[Any]]


def save(path: str | os.PathLike[str], metadata: Mapping[str, Any], parts: Sequence[Part]) -> None:
    """Write a file as a whole or not at all. metadata: bool, int, float, str, NumPy's arrays of
    numbers, and lists of these, as `lamina.io.gguf.load` returns them; integers take 32 bits where
    that is enough. Raises DTypeError for other values."""
    header = _header(metadata, parts)
    with replaced_file(path) as file:
        file.write(header)
        for part in parts:
            _align(file, file.tell())
            begin = file.tell()
            for piece in part.pieces():
                file.write(piece)
            assert file.tell() == begin + part.nbytes
        _align(file, file.tell())


def _align(file: BinaryIO, at: int) -> None:
    file.write(bytes(-at % ALIGNMENT))


def _header(metadata: Mapping[str, Any], parts: Sequence[Part]) -> bytes:
    """All before the tensors, filled up to where these begin."""
    values = {name: value for name, value in metadata.items() if name != "general.alignment"}
    pieces = [MAGIC, struct.pack("<IQQ", _VERSION, len(parts), len(values))]
    for name, value in values.items():
        pieces += [_text(name), _value(name, value)]
    offset = 0  # from the first tensor on
    for part in parts:
        sizes = part.shape[::-1]
        pieces.append(_text(part.name) + struct.pack("<I", len(sizes)))
        pieces.append(struct.pack(f"<{len(sizes)}QIQ", *sizes, part.code, offset))
        offset += part.nbytes + -part.nbytes % ALIGNMENT
    header = b"".join(pieces)
    return header + bytes(-len(header) % ALIGNMENT)


def _text(value: str) -> bytes:
    raw = value.encode()
    return struct.pack("<Q", len(raw)) + raw


def _value(name: str, value: Any) -> bytes:
    """The code of a type, and the value."""
    if isinstance(value, np.ndarray | list):
        code, payload = _array(name, value)
        return struct.pack("<II", ARRAY, code) + struct.pack("<Q", len(value)) + payload
    code = _code(name, value)
    return struct.pack("<I", code) + _payload(code, value)


def _array(name: str, value: Any) -> tuple[int, bytes]:
    """The code of the elements, and their bytes."""
    if isinstance(value, np.ndarray):
        if value.dtype not in _CODE_OF_NUMPY or value.ndim != 1:
            raise DTypeError(
                f"metadata {name!r}: GGUF has no arrays of {value.dtype}", operation="save"
            )
        return _CODE_OF_NUMPY[value.dtype], value.astype(value.dtype.newbyteorder("<")).tobytes()
    is_nested = [isinstance(one, np.ndarray | list) for one in value]
    if any(is_nested) and not all(is_nested):
        raise DTypeError(f"metadata {name!r}: a list of several kinds", operation="save")
    if any(is_nested):
        return ARRAY, b"".join(_value(name, one)[4:] for one in value)  # each has this code
    codes = {_code(name, one) for one in value} or {TEXT}
    if len(codes) > 1:
        raise DTypeError(f"metadata {name!r}: a list of several kinds", operation="save")
    (code,) = codes
    return code, b"".join(_payload(code, one) for one in value)


def _code(name: str, value: Any) -> int:
    if isinstance(value, bool):
        return BOOL
    if isinstance(value, str):
        return TEXT
    if isinstance(value, float):
        is_short = not math.isfinite(value) or _is_float32(value)
        return _CODES[dtypes.float32 if is_short else dtypes.float64]
    if isinstance(value, int) and _I64_LEAST <= value < 1 << 64:
        if 0 <= value <= _U32_MOST:
            return _CODES[dtypes.uint32]
        return _CODES[dtypes.uint64 if value > 0 else dtypes.int64]
    raise DTypeError(f"metadata {name!r}: {value!r} is nothing that GGUF has", operation="save")


def _is_float32(value: float) -> bool:
    """Whether float32 has the number; most metadata was made of those."""
    if abs(value) > float(np.finfo(np.float32).max):
        return False
    return float(np.float32(value)) == value


def _payload(code: int, value: Any) -> bytes:
    if code == TEXT:
        return _text(value)
    if code == BOOL:
        return bytes([value])
    return np.asarray(value, NUMBERS[code].numpy.newbyteorder("<")).tobytes()
