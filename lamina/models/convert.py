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
_FILE_TYPES = {"Q4_0": 2, "Q8_0": 7, "Q4_K": 14}  # ggml's numbers of what most of a file is
_ROWS = 1024  # that are encoded at once
_CODE_OF_DTYPE = {dtype: code for code, dtype in gguf.DENSE.items()}


def convert(source: str | os.PathLike[str], target: str | os.PathLike[str], kind: str) -> None:
    """Write the model of a GGUF file with its matrices in blocks of `kind`, one of `ENCODERS`;
    those of the lookup, of the output and with rows of no whole blocks of `kind` in "Q8_0". What
    has one axis, and rows of no whole blocks of "Q8_0", stay as they are.

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
    """Matrices, and those of experts, which have three axes."""
    shape = weight.shape
    if shape and shape[-1] % _type_of(kind).weights:
        kind = "Q8_0"
    blocks = _type_of(kind)
    if len(shape) in (2, 3) and shape[-1] % blocks.weights == 0 and name.endswith(".weight"):
        nbytes = prod(shape) // blocks.weights * blocks.nbytes
        return Part(name, shape, _code_of(blocks), nbytes, partial(_encoded, weight, kind))
    data = weight.data if isinstance(weight, Packed) else weight
    code = _code_of(weight.kind) if isinstance(weight, Packed) else _CODE_OF_DTYPE[weight.dtype]
    nbytes = prod(data.shape) * data.dtype.itemsize
    return Part(name, shape, code, nbytes, partial(_as_it_is, data))


def _encoded(weight: Tensor | Packed, kind: str) -> Iterator[Any]:
    """The blocks of some rows at a time."""
    count = max(1, _ROWS // prod(weight.shape[1:-1]))
    for first in range(0, weight.shape[0], count):
        rows = _rows(weight, slice(first, first + count))
        yield np.ascontiguousarray(encode(kind, rows)).data


def _rows(weight: Tensor | Packed, part: slice) -> Any:
    """A part of the first axis, as float32."""
    if isinstance(weight, Packed):
        return Packed(weight.kind, weight.data[part]).decode().numpy()
    return weight[part].cast(float32).numpy()


def _as_it_is(data: Tensor) -> Iterator[Any]:
    yield np.ascontiguousarray(data.numpy()).reshape(-1).view(np.uint8).data


def _type_of(kind: str) -> BlockType:
    return next(one for one in BLOCK_TYPES.values() if one.name == kind)


def _code_of(kind: BlockType) -> int:
    return next(code for code, one in BLOCK_TYPES.items() if one.name == kind.name)
