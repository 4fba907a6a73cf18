"""Shapes as tuples of ints: broadcasting, axes, strides."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from math import prod as prod
from typing import SupportsIndex

from lamina.errors import AxisError, DTypeError, ShapeError

Shape = tuple[int, ...]


def integer(what: str, value: SupportsIndex) -> int:
    """`value` as an int; raises DTypeError, naming the operation `what`, when it is none."""
    try:
        return operator.index(value)
    except TypeError:
        raise DTypeError(f"{what}: {value!r} is no integer") from None


def sizes_of(what: str, shape: SupportsIndex | Iterable[SupportsIndex]) -> Shape:
    """One size, or several, as a shape; raises DTypeError and ShapeError (a negative size)."""
    given = shape if isinstance(shape, Iterable) else (shape,)
    sizes = tuple(integer(what, size) for size in given)
    if any(size < 0 for size in sizes):
        raise ShapeError(f"{what}: {sizes} has a negative size")
    return sizes


def broadcast_shapes(what: str, *shapes: Shape) -> Shape:
    """The common shape of `shapes` under NumPy's rule; raises ShapeError when there is none."""
    if shapes and shapes.count(shapes[0]) == len(shapes):
        return shapes[0]
    rank = max(map(len, shapes), default=0)
    result = [1] * rank
    for shape in shapes:
        for axis, size in enumerate(shape, rank - len(shape)):
            if result[axis] == 1:
                result[axis] = size
            elif size not in (1, result[axis]):
                listed = " and ".join(map(str, shapes))
                differ = f"sizes {result[axis]} and {size} differ at axis {axis - rank}"
                raise ShapeError(f"{what}: {listed} do not broadcast: {differ}")
    return tuple(result)


def normalize_axis(what: str, axis: int, rank: int) -> int:
    """`axis` counted from the front; raises AxisError when there is no such axis."""
    axis = integer(what, axis)
    if not -rank <= axis < rank:
        raise AxisError(f"{what}: axis {axis} is out of range for an array of rank {rank}")
    return axis % rank


def normalize_axes(what: str, axis: int | Iterable[int] | None, rank: int) -> tuple[int, ...]:
    """`axis` (an int, several, or None for all) as sorted axes counted from the front."""
    if axis is None:
        return tuple(range(rank))
    given = tuple(axis) if isinstance(axis, Iterable) else (axis,)
    axes = tuple(normalize_axis(what, one, rank) for one in given)
    if len(set(axes)) != len(axes):
        raise AxisError(f"{what}: axes {given} name one axis twice")
    return tuple(sorted(axes))


def squeezed(shape: Shape) -> Shape:
    """`shape` without its axes of size 1."""
    return tuple(size for size in shape if size != 1)


def strides_of(shape: Sequence[int]) -> Shape:
    """Row-major strides of `shape`, in elements."""
    return tuple(prod(shape[axis + 1 :]) for axis in range(len(shape)))
