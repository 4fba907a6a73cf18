"""What caches keep of keys, or of values: floats, or integers of 8 bits with a scale a vector.

The greatest number of a vector of one head at one position becomes 127, and its scale is kept in
float32: 64 numbers take 68 bytes, in bfloat16 128. Attention multiplies integers, which float32 and
bfloat16 have exactly, and takes each scale where it has one number for a position:

    scores of a query q      q . (s k) = s (q . k)
    sums with weights w      w (s v) = (w s) v

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

__all__ = ["Kept", "Vectors"]

_GREATEST = 127.0  # of an integer of 8 bits and its negative


@dataclass(frozen=True, eq=False)
class Vectors:
    """Keys or values of heads: `numbers` (batch, heads, length, size), each of whose vectors is
    multiplied by one of `scales` (batch, heads, length, 1), where there are any."""

    numbers: Tensor
    scales: Tensor | None = None

    def selected(self, select: Callable[[Tensor], Tensor]) -> Vectors:
        """Vectors with numbers and scales as `select` gives them: it leaves the last axis."""
        return Vectors(select(self.numbers), None if self.scales is None else select(self.scales))


class Kept:
    """The memory of vectors (..., size), zeros at first: floats of `dtype`, or int8 with scales.
    Raises OutOfMemoryError where there is no room for them."""

    def __init__(self, shape: Shape, dtype: DType, device: str | None) -> None:
        # Data, and no expression: it is in memory before a program that writes to it is traced.
        self.numbers = Tensor(_zeros(shape, dtype), device=device)
        self.scales: Tensor | None = None
        if dtype is int8:
            self.scales = Tensor(_zeros((*shape[:-1], 1), float32), device=device)

    @property
    def vectors(self) -> Vectors:
        return Vectors(self.numbers, self.scales)

    def put(self, axis: int, places: Tensor, new: Tensor) -> None:
        """Store new vectors, floats, at integer places along an axis. What is beyond the end is
        dropped."""
        if self.scales is not None:
            greatest = absolute(new.cast(float32)).max(axis=-1, keepdims=True)
            scales = greatest / _GREATEST
            self.scales.assign(index_copy(self.scales, axis, places, scales))
            divisors = where(scales > 0.0, scales, 1.0)
            new = rounded_to_integers(new.cast(float32) / divisors).cast(int8)
        self.numbers.assign(index_copy(self.numbers, axis, places, new))


def _zeros(shape: Shape, dtype: DType) -> np.ndarray:
    try:
        return np.zeros(shape, dtype.numpy)
    except (MemoryError, ValueError):  # the second: for more than any machine can address
        raise OutOfMemoryError(
            f"no room for the keys or values of a layer, {math.prod(shape) * dtype.itemsize} bytes",
            operation="caches", remedy="keep fewer positions",
        ) from None  # fmt: skip
