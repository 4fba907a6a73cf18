"""Quantised weights laid out for products with one vector, whose activations are rounded to 8 bits.

Integers are multiplied many at a time: an instruction multiplies words of four bytes, one word in
each lane of a vector register. So the rows of as many outputs as a register has lanes lie in turns,
four neighbours along the inputs each. With the activations of a block of 32 as x_i = s * a_i, a_i
integers of 8 bits, and its weights d * n_i + m,

    sum_i x_i * (d * n_i + m)  =  s * d * sum_i a_i * n_i  +  m * sum_i x_i

The first sum is of integers and exact. The rounding of x is the one error: at most 1/254 of
the greatest activation of a block, in each of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from lamina.core.dtypes import float32, int8, int32, uint8
from lamina.core.shape import Shape
from lamina.errors import ShapeError
from lamina.frontend.functions.creation import arange
from lamina.frontend.functions.elementwise import round as rounded
from lamina.frontend.functions.elementwise import where
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
        data = packed.data.numpy()
        scales, minima, numbers = read(data)
        outputs, blocks, _ = data.shape
        words = numbers.view("uint32").reshape(outputs // lanes, lanes, blocks, -1)
        turns = words.transpose(0, 2, 3, 1)  # copied by `Tensor`, as all below
        kind = uint8 if numbers.dtype == "uint8" else int8
        stored = turns.copy().view(numbers.dtype).reshape((*turns.shape, _WORD))
        return cls(
            packed.shape,
            Tensor(stored, kind),
            Tensor(_in_turns(scales, lanes)),
            None if minima is None else Tensor(_in_turns(minima, lanes)),
        )

    def product(self, x: Tensor) -> Tensor:
        """``x @ weight.T`` of one vector, (..., inputs) with axes of size 1 before the last, with
        its elements rounded: (..., outputs). Raises ShapeError for other shapes."""
        outputs, inputs = self.shape
        if x.shape[-1:] != (inputs,) or x.size != inputs:
            raise ShapeError(f"product: x {x.shape} and weight {self.shape}: one vector is needed")
        blocks = x.reshape((-1, _BLOCK))
        step = blocks.abs().max(axis=1, keepdims=True) / _MOST
        inverse = where(step > 0.0, 1.0 / step, 0.0)
        integers = rounded(blocks * inverse).cast(int8).contiguous()
        sums = self._integer_sums(integers).cast(float32)
        parts = sums * self.scales.cast(float32) * step
        if self.minima is not None:
            parts = parts + self.minima.cast(float32) * blocks.sum(axis=1, keepdims=True)
        return parts.sum(axis=1).reshape((*x.shape[:-1], outputs))

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


def _in_turns(values: Any, lanes: int) -> Any:
    """NumPy's (outputs, blocks) as (outputs / lanes, blocks, lanes)."""
    return values.reshape(-1, lanes, values.shape[1]).transpose(0, 2, 1).copy()


def _halves(data: Any, at: int) -> Any:
    """The float16 at byte `at` of each block."""
    return data[..., at : at + 2].copy().view("float16")[..., 0]


def _numbers(data: Any, at: int, kind: str) -> Any:
    return data[..., at:].copy().view(kind)


def _q4_0(data: Any) -> tuple[Any, Any, Any]:
    scales = _halves(data, 0)
    return scales, -8 * scales, _numbers(data, 2, "uint8")


def _q4_1(data: Any) -> tuple[Any, Any, Any]:
    return _halves(data, 0), _halves(data, 2), _numbers(data, 4, "uint8")


def _q8_0(data: Any) -> tuple[Any, Any, Any]:
    return _halves(data, 0), None, _numbers(data, 2, "int8")


# From the bytes of blocks: scales, minima if there are any, and numbers.
INTERLEAVED_TYPES: dict[str, Callable[[Any], tuple[Any, Any, Any]]] = {
    "Q4_0": _q4_0,
    "Q4_1": _q4_1,
    "Q8_0": _q8_0,
}
