"""Quantised weights laid out for products with one vector, whose activations are rounded to 8 bits.

Integers are multiplied many at a time: an instruction multiplies words of four bytes, one word in
each lane of a vector register. So the rows of as many outputs as a register has lanes lie in turns,
four neighbours along the inputs each. With the activations of a block of 32 as x_i = s * a_i, a_i
integers of 8 bits, and its weights d * n_i + m,

    sum_i x_i * (d * n_i + m)  =  s * (d * sum_i a_i * n_i  +  m * sum_i a_i)

Both sums are of integers and exact. The rounding of x is the one error: at most 1/254 of the
greatest activation of a block, in each of them. The second sum is of the rounded activations too:
the error of a product is then that of x times the weight, which is small beside d * n_i and m.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from lamina.core.dtypes import float16, float32, int8, int32, uint8, uint16
from lamina.core.shape import Shape
from lamina.errors import ShapeError
from lamina.frontend.functions.creation import arange
from lamina.frontend.functions.elementwise import round as rounded
from lamina.frontend.functions.elementwise import where
from lamina.frontend.functions.movement import permute_dims
from lamina.frontend.jit import jit
from lamina.frontend.tensor import Tensor
from lamina.io.blocks import Packed

__all__ = ["INTERLEAVED_TYPES", "Interleaved"]

_BLOCK, _WORD = 32, 4  # weights of a block, and bytes that are multiplied together
_MOST = 127.0  # the greatest activation of a block becomes this integer


@dataclass(frozen=True, eq=False)
class Interleaved:
    """A matrix (outputs, inputs) in `lanes` rows at a time.

    numbers: (outputs / lanes, blocks, words, lanes, 4), int8; or uint8 with two numbers of 4 bits
    in a byte: the low half is of word w, the high one of word w + 4.
    scales, minima: float16 (outputs / lanes, blocks, lanes), d and m above."""

    shape: Shape
    numbers: Tensor
    scales: Tensor
    minima: Tensor | None

    @classmethod
    def of(cls, packed: Packed, lanes: int) -> Interleaved | None:
        """The weights of `packed`, copied; None for a type of blocks or a number of rows that this
        is not for."""
        read = INTERLEAVED_TYPES.get(packed.kind.name)
        if read is None or len(packed.shape) != 2 or packed.shape[0] % lanes:
            return None
        numbers, scales, minima = read(packed.data, lanes)
        return cls(packed.shape, numbers, scales, minima)

    def product(self, x: Tensor) -> Tensor:
        """``x @ weight.T`` of one vector, (..., inputs) with axes of size 1 before the last, with
        its elements rounded: (..., outputs). Raises ShapeError for other shapes."""
        outputs, inputs = self.shape
        if x.shape[-1:] != (inputs,) or x.size != inputs:
            raise ShapeError(
                f"x {x.shape} and weight {self.shape}: one vector is needed", operation="product"
            )
        blocks = x.reshape((-1, _BLOCK))
        step = blocks.abs().max(axis=1, keepdims=True) / _MOST
        inverse = where(step > 0.0, 1.0 / step, 0.0)
        integers = rounded(blocks * inverse).cast(int8).contiguous()
        parts = self._integer_sums(integers).cast(float32) * self.scales.cast(float32)
        if self.minima is not None:
            sums = integers.cast(int32).sum(axis=1, keepdims=True, dtype=int32).cast(float32)
            parts = parts + self.minima.cast(float32) * sums.contiguous()
        return (parts * step).sum(axis=1).reshape((*x.shape[:-1], outputs))

    def _integer_sums(self, integers: Tensor) -> Tensor:
        """Of each block and row: (groups, blocks, lanes), int32. integers: int8 (blocks, 32)."""
        blocks, words = self.numbers.shape[1:3]
        numbers = self.numbers.unsqueeze(2)  # (groups, blocks, parts of a byte, words, lanes, 4)
        if self.numbers.dtype is uint8:
            shifts = arange(0, 8, 4, dtype=uint8, device=integers.device).reshape((2, 1, 1, 1))
            numbers = (numbers >> shifts) & 15
        factors = integers.reshape((blocks, -1, words, 1, _WORD))
        products = numbers.cast(int32) * factors.cast(int32)
        return products.sum(axis=(2, 3, 5), dtype=int32)


def _scales(data: Tensor, at: int, lanes: int) -> Tensor:
    """The float16 at byte `at` of each block, in turns. data: (outputs, blocks, bytes)."""
    outputs, blocks, _ = data.shape
    low, high = (data[..., place].cast(uint16) for place in (at, at + 1))
    values = (low | (high << 8)).bitcast(float16)
    return values.reshape((outputs // lanes, lanes, blocks)).transpose(1, 2)


def _words(data: Tensor, at: int, lanes: int) -> Tensor:
    """The bytes from `at` on of each block as words, in turns."""
    outputs, blocks, _ = data.shape
    words = data[..., at:].reshape((outputs // lanes, lanes, blocks, -1, _WORD))
    return permute_dims(words, (0, 2, 3, 1, 4))


Parts = tuple[Tensor, Tensor, Tensor | None]


@jit
def _q4_0(data: Tensor, lanes: int) -> Parts:
    scales = _scales(data, 0, lanes)
    return _words(data, 2, lanes), scales, -8.0 * scales


@jit
def _q4_1(data: Tensor, lanes: int) -> Parts:
    return _words(data, 4, lanes), _scales(data, 0, lanes), _scales(data, 2, lanes)


@jit
def _q8_0(data: Tensor, lanes: int) -> Parts:
    return _words(data, 2, lanes).bitcast(int8), _scales(data, 0, lanes), None


# From the bytes of blocks: numbers, scales, and minima if there are any.
INTERLEAVED_TYPES: dict[str, Callable[[Tensor, int], Parts]] = {
    "Q4_0": _q4_0,
    "Q4_1": _q4_1,
    "Q8_0": _q8_0,
}
