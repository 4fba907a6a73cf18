"""Rows of pools."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from math import prod
from typing import Any

import numpy as np

import lamina as lm
from lamina.frontend.tensor import Tensor
from lamina.interop.onnx.rows import Context, row
from lamina.interop.onnx.rows.windows import Windows
from lamina.interop.onnx.values import tensor

Sizes = Sequence[int]


def _in_window(windows: Windows) -> tuple[int, ...]:
    """The axes of a kernel in (N, C, K..., O...)."""
    return tuple(range(2, 2 + len(windows.kernel)))


def _flat_places(windows: Windows, column_major: int) -> Any:
    """The index in its channel of each element of each window, (K..., O...)."""
    rank = len(windows.sizes)
    steps = [prod(windows.sizes[axis + 1 :]) for axis in range(rank)]
    if column_major:
        steps = [prod(windows.sizes[:axis]) for axis in range(rank)]
    total: Any = 0
    for axis in range(rank):
        shape = [1] * (2 * rank)
        shape[axis], shape[rank + axis] = windows.kernel[axis], windows.counts[axis]
        total = total + windows.places(axis).reshape(shape) * steps[axis]
    return total


def _places_of_maxima(view: Tensor, windows: Windows, column_major: int) -> Tensor:
    """Of each window, where in the whole input (N * C * S... elements) its first largest is."""
    rank = len(windows.kernel)
    batch, channels = view.shape[:2]
    area = prod(windows.kernel)
    rows = lm.reshape(view, (batch, channels, area, *windows.counts))
    best = lm.argmax(rows, axis=2, keepdims=True)
    places = _flat_places(windows, column_major).reshape(area, *windows.counts)
    table = lm.broadcast_to(lm.asarray(places), rows.shape)
    in_channel = lm.squeeze(lm.take_along_axis(table, best, axis=2), axis=2)
    channel = lm.reshape(lm.arange(batch * channels), (batch, channels, *(1,) * rank))
    return in_channel + channel * prod(windows.sizes)


@row("MaxPool")
def max_pool(
    context: Context, x: Any, *, kernel_shape: Sizes, auto_pad: str = "NOTSET", ceil_mode: int = 0,
    dilations: Sizes | None = None, pads: Sizes | None = None, storage_order: int = 0,
    strides: Sizes | None = None,
) -> Any:  # fmt: skip
    """The largest of each window, and where it is."""
    images = tensor(x)
    windows = Windows.of(
        images.shape[2:], kernel_shape, strides, dilations, pads, auto_pad, ceil_mode
    )
    view = windows.of_input(images, images.dtype.min)
    values = lm.max(view, axis=_in_window(windows))
    if context.outputs < 2:
        return values
    return values, _places_of_maxima(view, windows, storage_order)


def _sizes_of_windows(windows: Windows, with_padding: int) -> Any:
    """How many elements of each window count, (O...) float64; those of an overhang do not."""
    counts = []
    for axis, size in enumerate(windows.sizes):
        places = windows.places(axis)
        low, high = 0, size
        if with_padding:
            low, high = -windows.begins[axis], size + windows.ends[axis]
        counts.append(np.sum((places >= low) & (places < high), axis=0).astype(np.float64))
    return reduce(np.multiply.outer, counts)


@row("AveragePool")
def average_pool(
    context: Context, x: Any, *, kernel_shape: Sizes, auto_pad: str = "NOTSET", ceil_mode: int = 0,
    count_include_pad: int = 0, dilations: Sizes | None = None, pads: Sizes | None = None,
    strides: Sizes | None = None,
) -> Any:  # fmt: skip
    images = tensor(x)
    windows = Windows.of(
        images.shape[2:], kernel_shape, strides, dilations, pads, auto_pad, ceil_mode
    )
    total = lm.sum(windows.of_input(images, 0), axis=_in_window(windows))
    shares = 1 / _sizes_of_windows(windows, count_include_pad)
    return total * lm.asarray(shares, dtype=images.dtype)


@row("LpPool")
def lp_pool(
    context: Context, x: Any, *, kernel_shape: Sizes, auto_pad: str = "NOTSET", ceil_mode: int = 0,
    dilations: Sizes | None = None, p: float = 2, pads: Sizes | None = None,
    strides: Sizes | None = None,
) -> Any:  # fmt: skip
    images = tensor(x)
    windows = Windows.of(
        images.shape[2:], kernel_shape, strides, dilations, pads, auto_pad, ceil_mode
    )
    powers = lm.pow(lm.abs(windows.of_input(images, 0)), p)
    return lm.pow(lm.sum(powers, axis=_in_window(windows)), 1 / p)


def _spatial_axes(x: Tensor) -> tuple[int, ...]:
    return tuple(range(2, x.ndim))


@row("GlobalAveragePool")
def global_average_pool(context: Context, x: Any) -> Any:
    images = tensor(x)
    return lm.mean(images, axis=_spatial_axes(images), keepdims=True)


@row("GlobalMaxPool")
def global_max_pool(context: Context, x: Any) -> Any:
    images = tensor(x)
    return lm.max(images, axis=_spatial_axes(images), keepdims=True)


@row("GlobalLpPool")
def global_lp_pool(context: Context, x: Any, *, p: float = 2) -> Any:
    images = tensor(x)
    total = lm.sum(lm.pow(lm.abs(images), p), axis=_spatial_axes(images), keepdims=True)
    return lm.pow(total, 1 / p)


@row("MaxUnpool")
def max_unpool(
    context: Context, x: Any, indices: Any, output_shape: Any = None, *, kernel_shape: Sizes,
    pads: Sizes | None = None, strides: Sizes | None = None,
) -> Any:  # fmt: skip
    """Each maximum at the place it came from, zeros elsewhere. The places are those of the shape
    that the attributes imply; a larger `output_shape` has zeros behind it."""
    values = tensor(x)
    rank = values.ndim - 2
    steps, margins = strides or (1,) * rank, pads or (0,) * (2 * rank)
    sizes = []
    for axis, size in enumerate(values.shape[2:]):
        padding = margins[axis] + margins[axis + rank]
        sizes.append((size - 1) * steps[axis] + kernel_shape[axis] - padding)
    shape = (*values.shape[:2], *sizes)
    flat = lm.zeros((prod(shape),), dtype=values.dtype)
    flat = lm.put(flat, lm.reshape(tensor(indices), (-1,)), lm.reshape(values, (-1,)))
    result = lm.reshape(flat, shape)
    if output_shape is None:
        return result
    wanted = [int(size) for size in context.host(output_shape)]
    return lm.pad(result, [(0, more - size) for size, more in zip(shape, wanted, strict=True)])
