"""GGUF files with their matrices in another type of blocks."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from lamina.core.dtypes import float32
from lamina.core.shape import prod
from lamina.errors import ArgumentError
from lamina.frontend.tensor import Tensor
from lamina.io import gguf
from lamina.io.blocks import BLOCK_TYPES, BlockType, Packed
from lamina.io.encoding import ENCODERS, encode
from lamina.io.gguf_writing import Part, save

__all__ = ["convert"]

# Matrices that more depends on than on others, and that are read row by row: at least 8 bits.
_FINE = ("token_embd.weight", "output.weight")
_FILE_TYPES = {"Q4_0": 2, "Q8_0": 7}  # ggml's numbers of what most of a file is
_ROWS = 1024  # that are encoded at once
_CODE_OF_DTYPE = {dtype: code for code, dtype in gguf.DENSE.items()}


def convert(source: str | os.PathLike[str], target: str | os.PathLike[str], kind: str) -> None:
    """Write the model of a GGUF file with its matrices in blocks of `kind`, "Q8_0" or "Q4_0"; those
    of the lookup and of the output in "Q8_0". What has one axis, and rows of no whole blocks, stay
    as they are.

    Raises ArgumentError for another kind, and where both are one file; FormatError for a source
    that is no GGUF file, and OSError."""
    if kind not in ENCODERS:
        raise ArgumentError(f"{kind!r} is none of {', '.join(ENCODERS)}", operation="convert")
    if os.path.exists(target) and os.path.samefile(source, target):
        raise ArgumentError(
            f"{os.fspath(target)} is the source; give another file", operation="convert"
        )
    content = gguf.load(source, "cpu")
    metadata = content.metadata | {"general.file_type": _FILE_TYPES[kind]}
    metadata["general.quantization_version"] = 2
    parts = [
        _part(name, weight, "Q8_0" if name in _FINE else kind)
        for name, weight in content.tensors.items()
    ]
    save(target, metadata, parts)


def _part(name: str, weight: Tensor | Packed, kind: str) -> Part:
    blocks = _type_of(kind)
    shape = weight.shape
    if len(shape) == 2 and shape[1] % blocks.weights == 0 and name.endswith(".weight"):
        nbytes = prod(shape) // blocks.weights * blocks.nbytes
        return Part(name, shape, _code_of(blocks), nbytes, partial(_encoded, weight, kind))
    data = weight.data if isinstance(weight, Packed) else weight
    code = _code_of(weight.kind) if isinstance(weight, Packed) else _CODE_OF_DTYPE[weight.dtype]
    nbytes = prod(data.shape) * data.dtype.itemsize
    return Part(name, shape, code, nbytes, partial(_as_it_is, data))


def _encoded(weight: Tensor | Packed, kind: str) -> Iterator[Any]:
    """The blocks of some rows at a time."""
    for first in range(0, weight.shape[0], _ROWS):
        yield np.ascontiguousarray(encode(kind, _rows(weight, first))).data


def _rows(weight: Tensor | Packed, first: int) -> Any:
    """Rows from `first` on, as float32."""
    part = slice(first, first + _ROWS)
    if isinstance(weight, Packed):
        return Packed(weight.kind, weight.data[part]).decode().numpy()
    return weight[part].cast(float32).numpy()


def _as_it_is(data: Tensor) -> Iterator[Any]:
    yield np.ascontiguousarray(data.numpy()).reshape(-1).view(np.uint8).data


def _type_of(kind: str) -> BlockType:
    return next(one for one in BLOCK_TYPES.values() if one.name == kind)


def _code_of(kind: BlockType) -> int:
    return next(code for code, one in BLOCK_TYPES.items() if one.name == kind.name)
