"""Tensors of quantised weights, which stay packed in memory.

A row of weights is a sequence of blocks of 32 or 256, each some bytes: small integers, and the
scales that they are multiplied by. `Packed.decode` is an expression of tensors over these bytes, so
decoding becomes part of the kernel that reads the weights, and no float ever lies in memory.
Layouts: https://github.com/ggml-org/llama.cpp/blob/master/ggml/src/ggml-common.h
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from lamina.core.dtypes import float16, float32, int8, int32, uint8, uint16, uint32
from lamina.core.shape import Shape
from lamina.errors import DTypeError, ShapeError
from lamina.frontend.functions.creation import arange, full_like
from lamina.frontend.functions.elementwise import where
from lamina.frontend.functions.lookup import embedding
from lamina.frontend.functions.movement import concat
from lamina.frontend.tensor import Tensor, once

__all__ = ["BLOCK_TYPES", "BlockType", "Packed"]


@dataclass(frozen=True)
class BlockType:
    """A layout of `weights` weights in `nbytes` bytes. `decode` takes bytes (..., nbytes) to
    float32 (..., weights)."""

    name: str
    weights: int
    nbytes: int
    decode: Callable[[Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class Packed:
    """Weights in blocks along the last axis. data: uint8 (..., blocks, bytes of a block).

    Raises DTypeError and ShapeError for other data."""

    kind: BlockType
    data: Tensor

    def __post_init__(self) -> None:
        if self.data.dtype is not uint8:
            raise DTypeError(
                f"{self.kind.name} needs uint8, not {self.data.dtype.name}", operation="Packed"
            )
        if self.data.ndim < 2 or self.data.shape[-1] != self.kind.nbytes:
            raise ShapeError(
                f"{self.kind.name} needs (..., blocks, {self.kind.nbytes}), not {self.data.shape}",
                operation="Packed",
            )

    @property
    def shape(self) -> Shape:
        """Of the weights."""
        *rows, blocks, _ = self.data.shape
        return (*rows, blocks * self.kind.weights)

    def decode(self) -> Tensor:
        """The weights as float32."""
        return self.kind.decode(self.data).reshape(self.shape)

    def rows(self, index: Tensor) -> Tensor:
        """The weights of the rows that `index`, integers of any shape, names, as float32:
        (*index.shape, last axis). Only their bytes are read.

        Raises ShapeError unless there are two axes."""
        if len(self.shape) != 2:
            raise ShapeError(f"{self.shape} has no two axes", operation="rows")
        chosen = embedding(index, self.data.flatten(1))
        blocks = chosen.reshape((*index.shape, *self.data.shape[1:]))
        return self.kind.decode(blocks).reshape((*index.shape, self.shape[1]))


def _half(block: Tensor, at: int) -> Tensor:
    """The float16 at the bytes `at` and `at` + 1, least byte first: (..., 1), as float32."""
    low, high = (block[..., place : place + 1].cast(uint16) for place in (at, at + 1))
    return (low | (high << 8)).bitcast(float16).cast(float32)


def _parts(numbers: Tensor, bits: int) -> Tensor:
    """Bytes (..., n) as their parts of `bits` bits: (..., 8 / bits, n), the lowest parts first."""
    shifts = arange(0, 8, bits, dtype=uint8, device=numbers.device)
    return (numbers.unsqueeze(-2) >> shifts.unsqueeze(-1)) & ((1 << bits) - 1)


def _joined(x: Tensor, axes: int) -> Tensor:
    """The last `axes` axes as one."""
    return x.flatten(-axes)


def _fives(block: Tensor, high_at: int, low_at: int) -> Tensor:
    """32 numbers of 5 bits: the high bit of number i is bit i of the 4 bytes at `high_at`, the low
    four are as in Q4_0."""
    high = _parts(block[..., high_at : high_at + 4], 1).mT  # (..., 4 bytes, 8 bits)
    low = _parts(block[..., low_at : low_at + 16], 4)
    return _joined(low, 2) | (_joined(high, 2) << 4)


@once
def _q4_0(block: Tensor) -> Tensor:
    numbers = _joined(_parts(block[..., 2:18], 4), 2).cast(float32)
    return _half(block, 0) * (numbers - 8.0)


@once
def _q4_1(block: Tensor) -> Tensor:
    numbers = _joined(_parts(block[..., 4:20], 4), 2).cast(float32)
    return _half(block, 0) * numbers + _half(block, 2)


@once
def _q5_0(block: Tensor) -> Tensor:
    return _half(block, 0) * (_fives(block, 2, 6).cast(float32) - 16.0)


@once
def _q5_1(block: Tensor) -> Tensor:
    return _half(block, 0) * _fives(block, 4, 8).cast(float32) + _half(block, 2)


@once
def _q8_0(block: Tensor) -> Tensor:
    return _half(block, 0) * block[..., 2:34].bitcast(int8).cast(float32)


def _groups(block: Tensor, numbers: Tensor, count: int) -> Tensor:
    """The 256 numbers of each block as float32 in `count` groups: (..., count, 256 / count)."""
    return numbers.cast(float32).reshape((*block.shape[:-1], count, 256 // count))


def _column(scales: Tensor) -> Tensor:
    """Numbers (..., groups), one of each group, beside the numbers of the groups, as float32."""
    return scales.cast(float32).unsqueeze(-1)


@once
def _q2_k(block: Tensor) -> Tensor:
    """A scale of 4 bits and a minimum of 4 bits in a byte, for each 16 numbers of 2 bits."""
    scales, numbers = block[..., 0:16], _pairs(block[..., 16:80])
    values = _half(block, 80) * (scales & 15).cast(float32)
    least = _half(block, 82) * (scales >> 4).cast(float32)
    return _joined(_column(values) * _groups(block, numbers, 16) - _column(least), 2)


def _pairs(numbers: Tensor) -> Tensor:
    """Numbers of 2 bits: 128 of them are in 32 bytes, number i in bits 2 * (i // 32) of byte
    i % 32. (..., 32 n) to (..., n, 4, 32)."""
    return _parts(numbers.reshape((*numbers.shape[:-1], -1, 32)), 2)


@once
def _q3_k(block: Tensor) -> Tensor:
    """2 bits of a number in `low`, a third in `high`, whose absence subtracts 4; a scale of 6 bits
    for each 16 numbers: 4 bits in 8 bytes, 2 bits in the next 4 bytes."""
    high, low = block[..., 0:32], block[..., 32:96]
    bits = _groups(block, _parts(high, 1), 16)
    numbers = _groups(block, _pairs(low), 16) + 4.0 * bits - 4.0
    low_scales = _joined(_parts(block[..., 96:104], 4), 2)
    scales = low_scales | (_joined(_parts(block[..., 104:108], 2), 2) << 4)
    values = _half(block, 108) * (scales.cast(float32) - 32.0)
    return _joined(_column(values) * numbers, 2)


def _six_bits(scales: Tensor) -> tuple[Tensor, Tensor]:
    """The 8 scales and 8 minima of 6 bits in the 12 bytes of Q4_K and Q5_K: the first four are low
    bits of bytes 0 to 7; four bits of the others are in bytes 8 to 11, two in bytes 0 to 7."""
    first, second, third = scales[..., 0:4], scales[..., 4:8], scales[..., 8:12]
    values = concat([first & 63, (third & 15) | ((first >> 6) << 4)], axis=-1)
    least = concat([second & 63, (third >> 4) | ((second >> 6) << 4)], axis=-1)
    return values, least


def _scaled_groups(block: Tensor, numbers: Tensor) -> Tensor:
    """The weights of Q4_K and Q5_K: a scale and a minimum for each 32 numbers."""
    scales, minima = _six_bits(block[..., 4:16])
    values = _half(block, 0) * scales.cast(float32)
    least = _half(block, 2) * minima.cast(float32)
    return _joined(_column(values) * _groups(block, numbers, 8) - _column(least), 2)


def _nibbles(numbers: Tensor) -> Tensor:
    """Numbers of 4 bits: 64 of them are in 32 bytes, the low halves first: (..., n, 2, 32)."""
    return _parts(numbers.reshape((*numbers.shape[:-1], -1, 32)), 4)


@once
def _q4_k(block: Tensor) -> Tensor:
    return _scaled_groups(block, _nibbles(block[..., 16:144]))


@once
def _q5_k(block: Tensor) -> Tensor:
    """As Q4_K; the fifth bit of number i is bit i // 32 of byte i % 32 of 32 bytes."""
    high = _joined(_parts(block[..., 16:48], 1), 2)
    return _scaled_groups(block, _joined(_nibbles(block[..., 48:176]), 3) | (high << 4))


@once
def _q6_k(block: Tensor) -> Tensor:
    """Four bits of 64 bytes for 128 numbers, the low halves first, two more bits in 32 bytes; a
    scale of int8 for each 16 numbers."""
    low = _parts(block[..., 0:128].reshape((*block.shape[:-1], 2, 64)), 4)
    numbers = _joined(low, 3) | (_joined(_pairs(block[..., 128:192]), 3) << 4)
    values = _half(block, 208) * block[..., 192:208].bitcast(int8).cast(float32)
    return _joined(_column(values) * (_groups(block, numbers, 16) - 32.0), 2)


_IQ4_NL_VALUES = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)


def _in_table(numbers: Tensor) -> Tensor:
    """The values of a table at places of 4 bits, as float32."""
    values = full_like(numbers, _IQ4_NL_VALUES[0], dtype=int32)
    for number, value in enumerate(_IQ4_NL_VALUES[1:], 1):
        values = where(numbers == number, value, values)
    return values.cast(float32)


@once
def _iq4_nl(block: Tensor) -> Tensor:
    """A number is the place of a value in a table."""
    return _half(block, 0) * _in_table(_joined(_parts(block[..., 2:18], 4), 2))


@once
def _iq4_xs(block: Tensor) -> Tensor:
    """As IQ4_NL; for each 32 numbers, which are in 16 bytes, a scale of 6 bits: two bits in 2
    bytes, four in the next 4 bytes."""
    high = _joined(_parts(block[..., 2:4], 2).mT, 2)
    low = _joined(_parts(block[..., 4:8], 4).mT, 2)
    scales = (low | (high << 4)).cast(float32) - 32.0
    numbers = _parts(block[..., 8:136].reshape((*block.shape[:-1], 8, 16)), 4)
    values = _groups(block, _in_table(_joined(numbers, 3)), 8)
    return _joined(_column(_half(block, 0) * scales) * values, 2)


@once
def _mxfp4(block: Tensor) -> Tensor:
    """Floats of a sign, two bits of exponent and one of significand, times a power of two.
    Twice the float is an integer: 0, 1, 2, 3, 4, 6, 8 or 12."""
    numbers = _joined(_parts(block[..., 1:17], 4), 2).cast(int32)
    exponent, last = (numbers >> 1) & 3, numbers & 1
    size = where(exponent == 0, last, (last | 2) << (exponent - 1).maximum(0))
    value = where(numbers >= 8, -size, size).cast(float32)
    # 2 ** (e - 128) as bits of float32: exponents below -126 are subnormal numbers.
    e = block[..., 0:1].cast(uint32)
    subnormal = where(e == 0, 1 << 21, 1 << 22).cast(uint32)
    scale = where(e < 2, subnormal, (e - 1) << 23).bitcast(float32)
    return scale * value


# By the number that stands for the type in a file.
BLOCK_TYPES: dict[int, BlockType] = {
    2: BlockType("Q4_0", 32, 18, _q4_0),
    3: BlockType("Q4_1", 32, 20, _q4_1),
    6: BlockType("Q5_0", 32, 22, _q5_0),
    7: BlockType("Q5_1", 32, 24, _q5_1),
    8: BlockType("Q8_0", 32, 34, _q8_0),
    10: BlockType("Q2_K", 256, 84, _q2_k),
    11: BlockType("Q3_K", 256, 110, _q3_k),
    12: BlockType("Q4_K", 256, 144, _q4_k),
    13: BlockType("Q5_K", 256, 176, _q5_k),
    14: BlockType("Q6_K", 256, 210, _q6_k),
    20: BlockType("IQ4_NL", 32, 18, _iq4_nl),
    23: BlockType("IQ4_XS", 256, 136, _iq4_xs),
    39: BlockType("MXFP4", 32, 17, _mxfp4),
}
