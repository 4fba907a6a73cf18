"""Rows of elements that are read and written by index arrays, of masks and of padding."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

import lamina as lm
from lamina.errors import ArgumentError
from lamina.frontend.tensor import Tensor
from lamina.interop.onnx.errors import OnnxError
from lamina.interop.onnx.rows import Context, row
from lamina.interop.onnx.rows.movement import sliced
from lamina.interop.onnx.values import check_table, lamina_dtype, numpy_dtype, space, tensor

# ONNX's words for how elements for one place are combined, in `lm.scatter`'s words.
_REDUCTIONS = {"none": None, "add": "sum", "mul": "prod", "max": "amax", "min": "amin"}


@row("GatherElements")
def gather_elements(context: Context, x: Any, indices: Any, *, axis: int = 0) -> Any:
    return lm.gather(tensor(x), axis, tensor(indices))


@row("GatherND")
def gather_nd(context: Context, x: Any, indices: Any, *, batch_dims: int = 0) -> Any:
    data, places = tensor(x), tensor(indices)
    depth = places.shape[-1]
    rest = data.shape[batch_dims + depth :]
    batch = prod(data.shape[:batch_dims])
    axes = data.shape[batch_dims : batch_dims + depth]
    flat = _flat_places(places.reshape((batch, -1, depth)), axes)
    first = lm.arange(batch, dtype=lm.int64).reshape((batch, 1)) * prod(axes)
    lines = data.reshape((batch * prod(axes), *rest))
    picked = lm.take(lines, (flat + first).reshape((-1,)), axis=0)
    return picked.reshape((*places.shape[:-1], *rest))


def _flat_places(places: Tensor, sizes: Sequence[int]) -> Tensor:
    """The row-major numbers of places, whose last axis has a coordinate for each of `sizes`."""
    flat = lm.zeros(places.shape[:-1], dtype=lm.int64)
    for number, size in enumerate(sizes):
        coordinate = places[..., number].cast(lm.int64)
        flat = flat * size + lm.where(coordinate < 0, coordinate + size, coordinate)
    return flat


@row("ScatterElements")
def scatter_elements(
    context: Context, x: Any, indices: Any, updates: Any, *, axis: int = 0,
    reduction: str = "none",
) -> Any:  # fmt: skip
    how = _REDUCTIONS[reduction]
    return lm.scatter(tensor(x), axis, tensor(indices), tensor(updates), how)


@row("Scatter")
def scatter(context: Context, x: Any, indices: Any, updates: Any, *, axis: int = 0) -> Any:
    return lm.scatter(tensor(x), axis, tensor(indices), tensor(updates))


@row("ScatterND")
def scatter_nd(
    context: Context, x: Any, indices: Any, updates: Any, *, reduction: str = "none"
) -> Any:
    data, places, source = tensor(x), tensor(indices), tensor(updates)
    depth = places.shape[-1]
    axes, rest = data.shape[:depth], data.shape[depth:]
    lines = data.reshape((prod(axes), prod(rest)))
    flat = _flat_places(places.reshape((-1, depth)), axes)
    index = lm.broadcast_to(flat.reshape((-1, 1)), (flat.shape[0], prod(rest)))
    written = lm.scatter(lines, 0, index, source.reshape(index.shape), _REDUCTIONS[reduction])
    return written.reshape(data.shape)


@row("TensorScatter")
def tensor_scatter(
    context: Context, past: Any, update: Any, write_indices: Any = None, *, axis: int = -2,
    mode: str = "linear",
) -> Any:  # fmt: skip
    cache, new = tensor(past), tensor(update)
    along = axis + cache.ndim if axis < 0 else axis
    batch, count = cache.shape[0], new.shape[along]
    first = lm.zeros((batch,), dtype=lm.int64) if write_indices is None else tensor(write_indices)
    places = first.cast(lm.int64).reshape((batch, 1)) + lm.arange(count, dtype=lm.int64)
    if mode == "circular":
        places = places % cache.shape[along]
    sizes = [1] * cache.ndim
    sizes[0], sizes[along] = batch, count
    index = lm.broadcast_to(places.reshape(tuple(sizes)), new.shape)
    return lm.scatter(cache, along, index, new)


@row("OneHot")
def one_hot(context: Context, indices: Any, depth: Any, values: Any, *, axis: int = -1) -> Any:
    count = context.integers(depth)[0]
    pair = tensor(values)
    places = tensor(indices)
    places = lm.expand_dims(places.cast(lm.int64), axis=axis)
    along = axis + places.ndim if axis < 0 else axis
    sizes = [1] * places.ndim
    sizes[along] = count
    numbers = lm.arange(count, dtype=lm.int64).reshape(tuple(sizes))
    is_on = lm.where(places < 0, places + count, places) == numbers
    return lm.where(is_on, pair[1], pair[0])


@row("Trilu")
def trilu(context: Context, x: Any, k: Any = None, *, upper: int = 1) -> Any:
    diagonal = 0 if k is None else context.integers(k)[0]
    operand = tensor(x)
    return lm.triu(operand, diagonal) if upper else lm.tril(operand, diagonal)


@row("EyeLike")
def eye_like(context: Context, x: Any, *, dtype: int | None = None, k: int = 0) -> Any:
    kind = tensor(x).dtype if dtype is None else lamina_dtype(numpy_dtype(dtype))
    return lm.eye(*x.shape, k=k, dtype=kind)


@row("NonZero")
def nonzero(context: Context, x: Any) -> Any:
    return np.array(np.nonzero(np.atleast_1d(context.host(x))), np.int64)


@row("Compress")
def compress(context: Context, x: Any, condition: Any, *, axis: int | None = None) -> Any:
    kept = np.flatnonzero(context.host(condition))
    operand = tensor(x)
    if axis is None:
        operand, axis = operand.reshape((-1,)), 0
    return lm.take(operand, tensor(kept), axis=axis)


@row("Unique")
def unique(context: Context, x: Any, *, axis: int | None = None, sorted: int = 1) -> Any:
    values, first, inverse, counts = np.unique(
        context.host(x), return_index=True, return_inverse=True, return_counts=True, axis=axis
    )
    inverse = inverse.reshape(-1)
    if not sorted:
        order = np.argsort(first)
        values = np.take(values, order, axis=0 if axis is None else axis)
        first, counts = first[order], counts[order]
        inverse = np.argsort(order)[inverse]
    return values, *[part.astype(np.int64) for part in (first, inverse, counts)]


@row("Pad", since=11)
def pad(
    context: Context, x: Any, pads: Any, constant_value: Any = None, axes: Any = None, *,
    mode: str = "constant",
) -> Any:  # fmt: skip
    value = 0 if constant_value is None else context.host(constant_value).reshape(()).item()
    along = list(range(len(x.shape))) if axes is None else context.integers(axes)
    return padded(tensor(x), context.integers(pads), along, mode, value)


@row("Pad", since=2)
def pad_by_attribute(
    context: Context, x: Any, *, pads: list[int], mode: str = "constant", value: float = 0.0
) -> Any:
    return padded(tensor(x), pads, list(range(len(x.shape))), mode, value)


def padded(x: Tensor, pads: Sequence[int], axes: Sequence[int], mode: str, value: Any) -> Tensor:
    """pads: elements before each of `axes`, then those after; negative ones are cut off."""
    count = len(axes)
    if len(pads) != 2 * count:
        raise OnnxError(f"{len(pads)} pads for {count} axes")
    pairs = [(0, 0)] * x.ndim
    for number, axis in enumerate(axes):
        before, after = pads[number], pads[number + count]
        stop = x.shape[axis] + min(after, 0)
        x = sliced(x, axis, max(-before, 0), stop)
        pairs[axis] = (max(before, 0), max(after, 0))
    if mode == "constant":
        return lm.pad(x, pairs, value=value)
    numpy_modes = {"reflect": "reflect", "edge": "edge", "wrap": "wrap"}
    if mode not in numpy_modes:
        raise ArgumentError(f"pad: mode={mode!r}")
    for axis, pair in enumerate(pairs):
        if pair != (0, 0):  # as NumPy repeats the elements, however wide the padding
            check_table(x.shape[axis] + sum(pair))
            places = np.pad(np.arange(x.shape[axis]), pair, mode=mode)  # type: ignore[call-overload]
            x = lm.take(x, tensor(places), axis=axis)
    return x


@row("ReverseSequence")
def reverse_sequence(
    context: Context, x: Any, lengths: Any, *, batch_axis: int = 1, time_axis: int = 0
) -> Any:
    operand, counts = tensor(x), tensor(lengths).cast(lm.int64)
    length, batch = operand.shape[time_axis], operand.shape[batch_axis]
    times = lm.arange(length, dtype=lm.int64).reshape((length, 1))
    places = lm.where(times < counts, counts - 1 - times, times)
    if time_axis > batch_axis:
        places = lm.permute_dims(places, (1, 0))
    sizes = [1] * operand.ndim
    sizes[time_axis], sizes[batch_axis] = length, batch
    index = lm.broadcast_to(places.reshape(tuple(sizes)), operand.shape)
    return lm.gather(operand, time_axis, index)


@row("DepthToSpace")
def depth_to_space(context: Context, x: Any, *, blocksize: int, mode: str = "DCR") -> Any:
    batch, channels, height, width = x.shape
    rest = channels // blocksize**2
    if mode == "CRD":
        sizes: tuple[int, ...] = (batch, rest, blocksize, blocksize, height, width)
        order: tuple[int, ...] = (0, 1, 4, 2, 5, 3)
    else:
        sizes, order = (batch, blocksize, blocksize, rest, height, width), (0, 3, 4, 1, 5, 2)
    blocks = tensor(x).reshape(sizes)
    return lm.permute_dims(blocks, order).reshape(
        (batch, rest, height * blocksize, width * blocksize)
    )


@row("SpaceToDepth")
def space_to_depth(context: Context, x: Any, *, blocksize: int, mode: str = "DCR") -> Any:
    batch, channels, height, width = x.shape
    rows, columns = height // blocksize, width // blocksize
    blocks = tensor(x).reshape((batch, channels, rows, blocksize, columns, blocksize))
    order = (0, 1, 3, 5, 2, 4) if mode == "CRD" else (0, 3, 5, 1, 2, 4)
    moved = lm.permute_dims(blocks, order)
    return moved.reshape((batch, channels * blocksize**2, rows, columns))


@row("CenterCropPad")
def center_crop_pad(
    context: Context, x: Any, shape: Any, *, axes: list[int] | None = None
) -> Any:
    sizes = context.integers(shape)
    along = list(range(len(x.shape))) if axes is None else axes
    operand = x
    for axis, wanted in zip(along, sizes, strict=True):
        size = operand.shape[axis]
        if wanted < size:
            start = (size - wanted) // 2
            operand = sliced(operand, axis, start, start + wanted)
        elif wanted > size:
            before = (wanted - size) // 2
            pads = [before, wanted - size - before]
            operand = padded(tensor(operand), pads, [axis], "constant", 0)
    return operand


@row("Tile")
def tile_axis(context: Context, x: Any, tiles: Any, axis: Any) -> Any:
    repeats = [1] * len(x.shape)
    repeats[context.integers(axis)[0]] = context.integers(tiles)[0]
    return space(x).tile(x, tuple(repeats))
