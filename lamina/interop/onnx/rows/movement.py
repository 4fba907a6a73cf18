"""Rows of operators that move elements: shapes, slices, joins. They run on NumPy arrays as on
tensors, so that shape arithmetic stays on the host and strings move too."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import ceil, prod
from typing import Any

import numpy as np

import lamina as lm
from lamina.interop.onnx.errors import OnnxError
from lamina.interop.onnx.rows import Context, row
from lamina.interop.onnx.values import held, lamina_dtype, space, tensor


@row("Constant")
def constant(
    context: Context, *, value: Any = None, sparse_value: Any = None,
    value_float: float | None = None, value_floats: list[float] | None = None,
    value_int: int | None = None, value_ints: list[int] | None = None,
    value_string: str | None = None, value_strings: list[str] | None = None,
) -> Any:  # fmt: skip
    arrays = (
        (value, None), (sparse_value, None), (value_float, np.float32), (value_floats, np.float32),
        (value_int, np.int64), (value_ints, np.int64), (value_string, object),
        (value_strings, object),
    )  # fmt: skip
    present = [(content, dtype) for content, dtype in arrays if content is not None]
    if len(present) != 1:
        raise OnnxError(f"it has {len(present)} values, not 1")
    content, dtype = present[0]
    return np.asarray(content, dtype)


@row("Identity")
def identity(context: Context, x: Any) -> Any:
    return x


@row("Shape")
def shape(context: Context, x: Any, *, start: int = 0, end: int | None = None) -> Any:
    return np.array(x.shape[start:end], np.int64)


@row("Size")
def size(context: Context, x: Any) -> Any:
    return np.array(prod(x.shape), np.int64)


@row("Reshape", since=5)
def reshape(context: Context, x: Any, shape: Any, *, allowzero: int = 0) -> Any:
    return reshaped(x, context.integers(shape), bool(allowzero))


@row("Reshape")
def reshape_by_attribute(context: Context, x: Any, *, shape: list[int], **_: Any) -> Any:
    return reshaped(x, shape, False)


def reshaped(x: Any, sizes: Sequence[int], allow_zero: bool) -> Any:
    """0 is the size that the axis has; -1, once, what is left."""
    if not allow_zero:
        sizes = [x.shape[axis] if size == 0 else size for axis, size in enumerate(sizes)]
    if -1 in sizes and 0 in sizes:
        raise OnnxError(f"sizes {sizes} have -1 beside 0")
    return space(x).reshape(x, tuple(sizes))


@row("Flatten")
def flatten(context: Context, x: Any, *, axis: int = 1) -> Any:
    axis = axis + len(x.shape) if axis < 0 else axis
    return space(x).reshape(x, (prod(x.shape[:axis]), prod(x.shape[axis:])))


@row("Transpose")
def transpose(context: Context, x: Any, *, perm: list[int] | None = None) -> Any:
    order = list(range(len(x.shape)))[::-1] if perm is None else perm
    return space(x).permute_dims(x, tuple(order))


@row("Squeeze", since=13)
def squeeze(context: Context, x: Any, axes: Any = None) -> Any:
    return _squeezed(x, None if axes is None else context.integers(axes))


@row("Squeeze")
def squeeze_by_attribute(context: Context, x: Any, *, axes: list[int] | None = None) -> Any:
    return _squeezed(x, axes)


def _squeezed(x: Any, axes: Sequence[int] | None) -> Any:
    if axes is None:
        axes = [axis for axis, size in enumerate(x.shape) if size == 1]
    return space(x).squeeze(x, axis=tuple(axes))


@row("Unsqueeze", since=13)
def unsqueeze(context: Context, x: Any, axes: Any) -> Any:
    return _unsqueezed(x, context.integers(axes))


@row("Unsqueeze")
def unsqueeze_by_attribute(context: Context, x: Any, *, axes: list[int]) -> Any:
    return _unsqueezed(x, axes)


def _unsqueezed(x: Any, axes: Sequence[int]) -> Any:
    rank = len(x.shape) + len(axes)
    new = [axis + rank if axis < 0 else axis for axis in axes]
    if len(set(new)) < len(new) or not all(0 <= axis < rank for axis in new):
        raise OnnxError(f"axes {axes} are no {len(axes)} axes of {rank}")
    old = iter(x.shape)
    sizes = [1 if axis in new else next(old) for axis in range(rank)]
    return space(x).reshape(x, tuple(sizes))


@row("Concat")
def concat(context: Context, *parts: Any, axis: int = 1) -> Any:
    return joined(parts, axis)


def joined(parts: Sequence[Any], axis: int) -> Any:
    """Arrays end to end."""
    functions = space(*parts)
    if functions is lm:
        parts = [tensor(part) for part in parts]
    return functions.concat(list(parts), axis=axis)


@row("Split", since=13)
def split(
    context: Context, x: Any, split: Any = None, *, axis: int = 0, num_outputs: int | None = None
) -> Any:
    sizes = None if split is None else context.integers(split)
    if num_outputs is not None and num_outputs != context.outputs:
        raise OnnxError(f"num_outputs={num_outputs} of {context.outputs} outputs")
    return tuple(parted(x, axis, sizes, context.outputs))


@row("Split", since=2)
def split_by_attribute(
    context: Context, x: Any, *, axis: int = 0, split: list[int] | None = None
) -> Any:
    return tuple(parted(x, axis, split, context.outputs))


def parted(x: Any, axis: int, sizes: Sequence[int] | None, count: int) -> list[Any]:
    """Slices of `sizes` along an axis; without them, `count` equal ones of which the last may be
    smaller."""
    size = x.shape[axis]
    if sizes is None:
        step = ceil(size / count)
        sizes = [max(0, min(step, size - step * part)) for part in range(count)]
    if sum(sizes) != size or min(sizes, default=0) < 0:
        raise OnnxError(f"parts of {list(sizes)} are not the {size} elements of axis {axis}")
    stops = np.cumsum([0, *sizes]).tolist()
    return [
        sliced(x, axis, start, stop) for start, stop in pairwise(stops)
    ]


def sliced(x: Any, axis: int, start: int | None, stop: int | None, step: int = 1) -> Any:
    """A slice along one axis."""
    axis = axis + len(x.shape) if axis < 0 else axis
    return x[(*[slice(None)] * axis, slice(start, stop, step))]


@row("Slice", since=10)
def slice_(
    context: Context, x: Any, starts: Any, ends: Any, axes: Any = None, steps: Any = None
) -> Any:
    first, last = context.integers(starts), context.integers(ends)
    along = list(range(len(first))) if axes is None else context.integers(axes)
    strides = [1] * len(first) if steps is None else context.integers(steps)
    return _slices(x, first, last, along, strides)


@row("Slice")
def slice_by_attribute(
    context: Context, x: Any, *, starts: list[int], ends: list[int], axes: list[int] | None = None
) -> Any:
    along = list(range(len(starts))) if axes is None else axes
    return _slices(x, starts, ends, along, [1] * len(starts))


def _slices(
    x: Any, starts: Sequence[int], ends: Sequence[int], axes: Sequence[int], steps: Sequence[int]
) -> Any:
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        size = x.shape[axis]
        # ONNX counts negative ends from the back, and a reversed slice may end before element 0.
        stop = end + size if end < 0 else end
        if step < 0 and stop < 0:
            x = sliced(x, axis, start, None, step)
        else:
            x = sliced(x, axis, start, max(stop, 0), step)
    return x


@row("Expand")
def expand(context: Context, x: Any, shape: Any) -> Any:
    sizes = np.broadcast_shapes(tuple(x.shape), tuple(context.integers(shape)))
    return space(x).broadcast_to(x, sizes)


@row("Tile", since=6)
def tile(context: Context, x: Any, repeats: Any) -> Any:
    return space(x).tile(x, tuple(context.integers(repeats)))


@row("ConstantOfShape")
def constant_of_shape(context: Context, sizes: Any, *, value: Any = None) -> Any:
    fill = np.zeros(1, np.float32) if value is None else value
    shape = tuple(context.integers(sizes))
    if lamina_dtype(fill.dtype) is None:
        return np.broadcast_to(fill.reshape(()), shape)
    if prod(shape) <= 1024:
        return held(np.full(shape, fill.reshape(())))
    return lm.full(shape, fill.item(), dtype=lamina_dtype(fill.dtype))


@row("Range")
def range_(context: Context, start: Any, limit: Any, delta: Any) -> Any:
    first, last, step = (context.host(value).reshape(()) for value in (start, limit, delta))
    count = max(0, ceil((last.item() - first.item()) / step.item()))
    if first.dtype.kind == "i" and count <= 1024:
        return first + np.arange(count, dtype=first.dtype) * step
    dtype = lamina_dtype(first.dtype)
    return lm.arange(count, dtype=dtype) * tensor(step) + tensor(first)


@row("Gather")
def gather(context: Context, x: Any, indices: Any, *, axis: int = 0) -> Any:
    return taken(x, indices, axis)


def taken(x: Any, indices: Any, axis: int) -> Any:
    """Elements along an axis at the places of an array of any rank; negative ones count from the
    back."""
    axis = axis + len(x.shape) if axis < 0 else axis
    functions = space(x, indices)
    if functions is lm:
        x, indices = tensor(x), tensor(indices)
    flat = functions.reshape(indices, (-1,))
    if functions is np:
        picked = np.take(x, flat, axis=axis)
    else:
        picked = lm.take(x, lm.where(flat < 0, flat + x.shape[axis], flat), axis=axis)
    return functions.reshape(picked, (*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]))
