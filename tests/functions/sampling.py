"""Inputs for tables of functions: shapes, views and values that a seed decides."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from hypothesis import strategies as st

import lamina as lm
from lamina.core.dtypes import DType

Array = np.ndarray
Shape = tuple[int, ...]
Draw = np.random.Generator

# From 0-d to three axes, empty and of size 1 included.
SHAPES = st.lists(st.integers(0, 3), max_size=3).map(tuple)
SEEDS = st.integers(0, 10_000)

INTEGERS = (lm.int8, lm.int16, lm.int32, lm.int64, lm.uint8, lm.uint16, lm.uint32, lm.uint64)
FLOATS = (lm.float16, lm.bfloat16, lm.float32, lm.float64)
COMPLEX = (lm.complex64, lm.complex128)
REAL = (lm.bool, *INTEGERS, *FLOATS)
ALL = (*REAL, *COMPLEX)

EDGES = np.array([0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.0, np.inf, -np.inf, np.nan])


class View(NamedTuple):
    """A shape, and how tensors and arrays of it are looked at."""

    base: Shape
    of_tensor: Callable[[lm.Tensor], lm.Tensor]
    of_array: Callable[[Array], Array]


def view_of(shape: Shape, draw: Draw, repeats: bool = True) -> View:
    """A way to see something of `shape`: contiguous, transposed, strided, backwards, broadcast."""
    order = tuple(int(one) for one in draw.permutation(len(shape)))
    stepped = tuple(slice(1, 2 * size + 1, 2) for size in shape)
    backwards = (slice(None, None, -1),) * len(shape)
    views = [
        View(shape, lambda t: t, lambda a: a),
        View(
            tuple(shape[order.index(axis)] for axis in range(len(shape))),
            lambda t: lm.permute_dims(t, order),
            lambda a: np.transpose(a, order),
        ),
        View(tuple(2 * size + 1 for size in shape), lambda t: t[stepped], lambda a: a[stepped]),
        View(shape, lambda t: t[backwards], lambda a: a[backwards]),
        View(
            (*shape[:-1], 1) if shape else (),
            lambda t: lm.broadcast_to(t, shape),
            lambda a: np.broadcast_to(a, shape),
        ),
    ]
    return views[draw.integers(len(views) if repeats else len(views) - 1)]


def broadcasting(shape: Shape, draw: Draw) -> Shape:
    """A shape that broadcasts with `shape`: some axes of size 1, some leading ones missing."""
    sizes = [1 if draw.random() < 0.3 else size for size in shape]
    return tuple(sizes[draw.integers(len(sizes) + 1) :])


def values(shape: Shape, dtype: DType, draw: Draw) -> Array:
    """Numbers all over an integer dtype; floats of all kinds; finite complex numbers."""
    if dtype is lm.bool:
        return np.asarray(draw.random(shape) < 0.5)
    if dtype.is_int:
        near = draw.integers(0 if dtype.min == 0 else -4, 5, shape)
        info = np.iinfo(dtype.numpy)
        far = draw.integers(info.min, info.max, shape, dtype.numpy, endpoint=True)
        return np.where(draw.random(shape) < 0.5, near.astype(dtype.numpy), far)
    if dtype.is_complex:
        return np.asarray(draw.normal(size=shape) + 1j * draw.normal(size=shape), dtype.numpy)
    common = draw.random(shape) < 0.7
    numbers = np.where(common, draw.normal(0, 2, shape), draw.choice(EDGES, shape))
    return np.asarray(numbers).astype(dtype.numpy)


def apart(shapes: Sequence[Shape], low: float, high: float, draw: Draw) -> list[Array]:
    """Numbers apart from each other and from multiples of 1/2, where functions have kinks."""
    counts = [int(np.prod(shape)) for shape in shapes]
    total = sum(counts)
    grid = (np.arange(total) + 0.5 + 0.2 * draw.uniform(-1, 1, total)) / max(total, 1)
    numbers = low + (high - low) * draw.permutation(grid)
    numbers += np.where(np.abs(2 * numbers - np.round(2 * numbers)) < 0.04, 0.05, 0.0)
    parts = np.split(numbers, np.cumsum(counts)[:-1])
    return [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]


def joined(result: Any) -> lm.Tensor:
    """One tensor with all elements of a result, which may be a sequence of tensors."""
    if isinstance(result, lm.Tensor):
        return result
    return lm.concat([one.reshape(-1) for one in result])


def axis_of(x: Any, draw: Draw) -> int:
    """An axis of a tensor or an array, maybe counted from the end."""
    return int(draw.integers(-x.ndim, x.ndim))


def axes_of(x: Any, draw: Draw) -> int | Shape | None:
    """None, one axis or several."""
    if not x.ndim or draw.random() < 0.3:
        return None if draw.random() < 0.7 else ()
    some = draw.permutation(x.ndim)[: draw.integers(1, x.ndim + 1)]
    return int(some[0]) if len(some) == 1 else tuple(int(one) for one in some)
