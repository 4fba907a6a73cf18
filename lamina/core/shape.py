"""Shapes as tuples of ints."""

from collections.abc import Sequence
from math import prod as prod

Shape = tuple[int, ...]


def squeezed(shape: Shape) -> Shape:
    """`shape` without its axes of size 1."""
    return tuple(size for size in shape if size != 1)


def strides_of(shape: Sequence[int]) -> Shape:
    """Row-major strides of `shape`, in elements."""
    return tuple(prod(shape[axis + 1 :]) for axis in range(len(shape)))
