"""The memory of keys, or of values: floats, or integers of 8 bits with a scale for each vector.

A vector belongs to one head at one position. Its scale, a float32, is its greatest magnitude / 127,
and the integers are its numbers divided by the scale, rounded. A vector (0.5, -2.54) has the scale
0.02 and the integers (25, -127). A vector of 64 numbers takes 64 + 4 = 68 bytes; in bfloat16 it
takes 128.

Attention multiplies with the integers, which float32 and bfloat16 represent exactly. It applies a
scale s where there is one number for each position, to a score or to a weight w:

    score of a query q and a key s k         q . (s k) = s (q . k)
    weighted values, each s v                w (s v) = (w s) v

So no kernel writes the keys and values as floats.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from lamina.core.dtypes import DType, float32, int8
from lamina.core.shape import Shape
from lamina.errors import OutOfMemoryError
from lamina.frontend.functions.elementwise import abs as absolute
from lamina.frontend.functions.elementwise import round as rounded_to_integers
from lamina.frontend.functions.elementwise import where
from lamina.frontend.functions.scatter import index_copy
from lamina.frontend.tensor import Tensor

__all__ = ["VectorCache", "Vectors"]

_GREATEST = 127.0  # the largest int8 whose negative is an int8, too


@dataclass(frozen=True, eq=False)
class Vectors:
    """Keys or values of heads, as attention reads them.

    numbers: (batch, heads, length, size)
    scales: (batch, heads, length, 1), a factor for each vector of `numbers`; None for factors of 1
    """

    numbers: Tensor
    scales: Tensor | None = None

    def selected(self, select: Callable[[Tensor], Tensor]) -> Vectors:
        """Some of the vectors: `select` is applied to the numbers and to the scales, and must not
        change the last axis."""
        return Vectors(select(self.numbers), None if self.scales is None else select(self.scales))


class VectorCache:
    """Memory for vectors (..., size), zeros at first: floats of `dtype`, or int8 with scales.
    Raises OutOfMemoryError if the memory cannot be allocated."""

    def __init__(self, shape: Shape, dtype: DType, device: str | None) -> None:
        # Zeros from NumPy, not `zeros`: an expression would have no memory yet when a program that
        # writes to it is traced.
        self.numbers = Tensor(_zeros(shape, dtype), device=device)
        self.scales: Tensor | None = None
        if dtype is int8:
            self.scales = Tensor(_zeros((*shape[:-1], 1), float32), device=device)

    @property
    def vectors(self) -> Vectors:
        return Vectors(self.numbers, self.scales)

    def put(self, axis: int, places: Tensor, new: Tensor) -> None:
        """Store the vectors `new`, floats, at the indices `places` along `axis`. Vectors with an
        index beyond the end are dropped."""
        if self.scales is not None:
            greatest = absolute(new.cast(float32)).max(axis=-1, keepdims=True)
            scales = greatest / _GREATEST
            self.scales.assign(index_copy(self.scales, axis, places, scales))
            divisors = where(scales > 0.0, scales, 1.0)  # a vector of zeros stays zeros
            new = rounded_to_integers(new.cast(float32) / divisors).cast(int8)
        self.numbers.assign(index_copy(self.numbers, axis, places, new))


def _zeros(shape: Shape, dtype: DType) -> np.ndarray:
    try:
        return np.zeros(shape, dtype.numpy)
    except (MemoryError, ValueError):  # ValueError: more bytes than a machine can address
        raise OutOfMemoryError(
            f"no room for the keys or values of a layer, {math.prod(shape) * dtype.itemsize} bytes",
            operation="caches", remedy="keep fewer positions",
        ) from None  # fmt: skip
