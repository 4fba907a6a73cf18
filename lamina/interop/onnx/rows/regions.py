"""Rows that look between the pixels of images: deformed kernels, and regions of interest."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from functools import reduce
from itertools import product
from math import prod
from typing import Any

import numpy as np

import lamina as lm
from lamina.frontend.functions.vision import sample_pixels
from lamina.frontend.tensor import Tensor
from lamina.interop.onnx.errors import OnnxError
from lamina.interop.onnx.rows import Context, row
from lamina.interop.onnx.rows.conv import beside_channels
from lamina.interop.onnx.rows.windows import Windows
from lamina.interop.onnx.values import maybe_tensor, tensor

Sizes = Sequence[int]


def _places(windows: Windows, offset: Tensor, axis: int) -> Tensor:
    """Where along `axis` the kernel's elements look, in pixels: (N, elements, OH, OW), by how far
    away they look."""
    regular = windows.places(axis).astype(np.float32)  # (kernel's, result's size) of this axis
    shape = [1, 1, 1, 1]
    shape[axis], shape[2 + axis] = regular.shape
    every = np.broadcast_to(regular.reshape(shape), (*windows.kernel, *windows.counts))
    return offset + lm.asarray(every.reshape(offset.shape[1:]).copy())


@row("DeformConv")
def deformed_conv(
    context: Context, x: Any, w: Any, offset: Any, b: Any = None, mask: Any = None, *,
    dilations: Sizes | None = None, group: int = 1, kernel_shape: Sizes | None = None,
    offset_group: int = 1, pads: Sizes | None = None, strides: Sizes | None = None,
) -> Any:  # fmt: skip
    """A convolution whose kernel's elements look `offset` (y, x) pixels away, between the pixels,
    weighed by `mask` (Dai et al. 2017, Zhu et al. 2019, "Deformable convolutional networks")."""
    images, weights = tensor(x), tensor(w)
    if images.ndim != 4:
        raise OnnxError(f"DeformConv of {images.ndim - 2} spatial axes; lamina has it for 2")
    windows = Windows.of(images.shape[2:], weights.shape[2:], strides, dilations, pads)
    batch, channels = images.shape[:2]
    results = weights.shape[0]
    factors = channels // group * prod(windows.kernel)  # of a result
    pixels = _deformed_windows(images, tensor(offset), maybe_tensor(mask), windows, offset_group)
    columns = lm.reshape(pixels, (batch, group, factors, prod(windows.counts)))
    rows = lm.reshape(weights, (group, results // group, factors))
    result = lm.reshape(lm.matmul(rows, columns), (batch, results, *windows.counts))
    bias = maybe_tensor(b)
    return result if bias is None else result + beside_channels(bias, result.ndim)


def _deformed_windows(
    images: Any, offset: Any, mask: Any, windows: Windows, groups: int
) -> Any:
    """The pixels of all windows, (batch * groups, channels / groups, elements of the windows), each
    as far away as its `offset` says, and weighed by the `mask`, if there is one."""
    batch, channels, *area = images.shape
    parts = batch * groups
    away = lm.reshape(offset, (parts, prod(windows.kernel), 2, *windows.counts))
    places = [
        lm.reshape(_places(windows, away[:, :, axis], axis), (parts, 1, -1)) for axis in (0, 1)
    ]
    in_groups = lm.reshape(images, (parts, channels // groups, *area))
    pixels = sample_pixels(in_groups, places)
    return pixels if mask is None else pixels * lm.reshape(mask, (parts, 1, -1))


def _taps(begin: Tensor, extent: Tensor, bins: int, counts: Any, size: int) -> Any:
    """Where the samples of regions lie along an axis of `size` pixels: `counts` (R,) in each of
    `bins` bins of an extent (R,). Results: for the pixels before and behind the samples pairs of
    index and share, and which samples exist, (R, bins * largest count) each."""
    most = int(counts.max(initial=1))
    number = lm.asarray(np.arange(most, dtype=np.float32))
    per_bin = lm.reshape(lm.asarray(counts.astype(np.float32)), (-1, 1, 1))
    bin_size = lm.reshape(extent / bins, (-1, 1, 1))
    inner = lm.reshape(lm.arange(bins).cast(lm.float32), (-1, 1)) + (number + 0.5) / per_bin
    place = lm.reshape(lm.reshape(begin, (-1, 1, 1)) + inner * bin_size, (-1, bins * most))
    inside = (place >= -1) & (place <= size)
    bounded = lm.clip(place, 0, size - 1)
    below = lm.floor(bounded).detach()
    share = bounded - below
    shares = [lm.where(inside, weight, 0) for weight in (1 - share, share)]
    indices = [below.cast(lm.int64), lm.minimum(below + 1, size - 1).cast(lm.int64)]
    exists = np.broadcast_to(np.arange(most) < counts[:, None, None], (len(counts), bins, most))
    return list(zip(indices, shares, strict=True)), exists.reshape(-1, bins * most)


def _samples(pixels: Tensor, width: int, taps: Any, combine: Any) -> Tensor:
    """(R, C, rows, columns) samples of pixels (R, C, H * width): the shares of the four around each
    one, added or the largest of them."""
    terms = []
    for (row_index, row_share), (column, column_share) in product(*taps):
        index = row_index[:, :, None] * width + column[:, None, :]
        places = lm.reshape(index, (index.shape[0], 1, -1))
        values = lm.reshape(lm.take_along_axis(pixels, places, axis=2),
                            (index.shape[0], -1, *index.shape[1:]))  # fmt: skip
        terms.append(values * (row_share[:, :, None] * column_share[:, None, :])[:, None])
    total: Tensor = reduce(combine, terms)
    return total


def _pooled(samples: Tensor, exist: Any, bins: Sizes, mode: str) -> Tensor:
    """The means, or the largest, of the samples that exist in each bin: (R, C, bins...)."""
    counted = exist[0][:, None, :, None] & exist[1][:, None, None, :]
    per_bin = [count // number for count, number in zip(samples.shape[2:], bins, strict=True)]
    sizes = (bins[0], per_bin[0], bins[1], per_bin[1])
    exists = lm.reshape(lm.asarray(counted), (-1, 1, *sizes))
    apart = lm.reshape(samples, (*samples.shape[:2], *sizes))
    if mode == "max":
        return lm.max(lm.where(exists, apart, samples.dtype.min), axis=(3, 5))
    total = lm.sum(lm.where(exists, apart, 0), axis=(3, 5))
    return total / lm.sum(exists.cast(samples.dtype), axis=(3, 5))


@row("RoiAlign", since=10)
def roi_align(context: Context, x: Any, rois: Any, batches: Any, **options: Any) -> Any:
    return roi_align_from_centres(
        context, x, rois, batches, coordinate_transformation_mode="output_half_pixel", **options
    )


@row("RoiAlign", since=16)
def roi_align_from_centres(
    context: Context, x: Any, rois: Any, batches: Any, *,
    coordinate_transformation_mode: str = "half_pixel", mode: str = "avg", output_height: int = 1,
    output_width: int = 1, sampling_ratio: int = 0, spatial_scale: float = 1.0,
) -> Any:  # fmt: skip
    """(N, C, H, W) and regions (R, 4) of corners (x, y, x, y) to (R, C, output_height,
    output_width): means of samples between the pixels, `sampling_ratio` along each side of a bin
    (He et al. 2017, "Mask R-CNN", section 3), or one a pixel for 0. Mode "max" is the largest of
    the shares of all pixels in the samples, as onnx's reference has it."""
    images, corners = tensor(x), tensor(rois)
    channels, *sizes = images.shape[1:]
    centred = coordinate_transformation_mode == "half_pixel"
    scaled = corners * spatial_scale - (0.5 if centred else 0.0)
    outputs = (output_height, output_width)
    taps, exist = [], []
    for axis, (size, bins) in enumerate(zip(sizes, outputs, strict=True)):
        begin, end = scaled[:, 1 - axis], scaled[:, 3 - axis]
        extent = end - begin if centred else lm.maximum(end - begin, 1)
        counts = np.full(corners.shape[0], sampling_ratio)
        if sampling_ratio <= 0:
            counts = np.maximum(np.ceil(context.host(extent) / bins), 1).astype(int)
        of_axis, exists = _taps(begin, extent, bins, counts, size)
        taps.append(of_axis)
        exist.append(exists)
    of_regions = lm.take(images, tensor(batches), axis=0)
    pixels = lm.reshape(of_regions, (-1, channels, prod(sizes)))
    samples = _samples(pixels, sizes[1], taps, lm.maximum if mode == "max" else operator.add)
    return _pooled(samples, exist, outputs, mode)
