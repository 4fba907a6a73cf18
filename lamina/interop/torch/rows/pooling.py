"""Rows of pooling, of resizing images and of taking them apart into windows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import Any

import lamina as lm
from lamina.core.options import HOST_DEVICES
from lamina.errors import ArgumentError
from lamina.frontend.tensor import Tensor
from lamina.interop.torch.rows.vjp import vjp

Row = Callable[..., Any]
# Elements of windows whose maxima a GPU finds again for their derivative. It takes longer to add at
# places that data say: of 16.8 million windows of 3 x 3, 1.8 ms are predicted for an H200, and 0.5
# where they are found again. A CPU takes 1.2 to 3 times as long to find them again (measured).
_LARGEST_WINDOW = 32
Sizes = Sequence[int]


def _sizes(values: Sizes, rank: int) -> tuple[int, ...]:
    return tuple(values) * (rank // len(values)) if len(values) else ()


def _max_pool(rank: int, function: Callable[..., Any]) -> Row:
    def row(
        x: Tensor, kernel: Sizes, stride: Sizes = (), padding: Sizes = (0,), dilation: Sizes = (1,),
        ceil_mode: bool = False,
    ) -> Any:  # fmt: skip
        return function(
            x, _sizes(kernel, rank), _sizes(stride, rank) or None, _sizes(padding, rank),
            _sizes(dilation, rank), ceil_mode, True,
        )  # fmt: skip

    return row


def _max_pool_backward(rank: int) -> Row:
    forward = _max_pool(rank, lm.max_pool2d if rank == 2 else lm.max_pool3d)

    def row(
        upstream: Tensor, x: Tensor, kernel: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes,
        ceil_mode: bool, indices: Tensor,
    ) -> Tensor:  # fmt: skip
        if x.device in HOST_DEVICES or prod(_sizes(kernel, rank)) > _LARGEST_WINDOW:
            return _at_maxima(rank, upstream, x, indices)
        options = kernel, stride, padding, dilation, ceil_mode
        (slope,) = vjp(lambda image: forward(image, *options)[0], [x], upstream)
        assert slope is not None
        return slope

    return row


def _at_maxima(rank: int, upstream: Tensor, x: Tensor, indices: Tensor) -> Tensor:
    """The derivative goes where the maximum was; windows that overlap add up."""
    outer, area = x.shape[:-rank], x.shape[-rank:]
    zeros = lm.zeros((*outer, prod(area)), dtype=upstream.dtype)
    flat = (*outer, prod(indices.shape[-rank:]))
    result = lm.scatter_add(zeros, -1, lm.reshape(indices, flat), lm.reshape(upstream, flat))
    return lm.reshape(result, x.shape)


def _fractional_max_pool(
    x: Tensor, kernel: Sizes, sizes: Sizes, samples: Tensor
) -> tuple[Tensor, Tensor]:
    """Maxima of windows whose distances are random (Graham 2014, "Fractional max-pooling").

    x: ([N,] C, spatial...). samples: (N, C, rank), numbers in [0, 1) for the spatial axes of each
    channel, the last axis first. Results: the maxima, and their places in the spatial axes."""
    rank = len(sizes)
    outer, area = x.shape[:-rank], x.shape[-rank:]
    count, window = prod(sizes), prod(kernel)
    places = _places_in_windows(samples, x.shape, kernel, sizes)
    places = lm.reshape(places, (*outer, count, window))
    flat_image = lm.reshape(x, (*outer, prod(area)))
    flat_places = lm.reshape(places, (*outer, count * window))
    windows = lm.reshape(lm.take_along_axis(flat_image, flat_places, axis=-1), places.shape)
    largest = lm.expand_dims(lm.argmax(windows, axis=-1), axis=-1)
    maxima = lm.max(windows, axis=-1)
    indices = lm.take_along_axis(places, largest, axis=-1)
    result = (*outer, *sizes)
    return lm.reshape(maxima, result), lm.reshape(indices, result)


def _places_in_windows(samples: Tensor, shape: Sizes, kernel: Sizes, sizes: Sizes) -> Tensor:
    """The places of the elements of all windows in an image of this shape whose spatial axes are
    one: (N, C, *sizes, *kernel)."""
    rank = len(sizes)
    outer, area = shape[:-rank], shape[-rank:]
    places = lm.zeros((1,) * (len(outer) + 2 * rank), dtype=lm.int64)
    for axis, (length, window, count) in enumerate(zip(area, kernel, sizes, strict=True)):
        sample = lm.reshape(samples[..., _drawn(axis, rank)], (*outer, 1))
        starts = _window_starts(sample, length, window, count)
        starts = lm.reshape(starts, (*outer, *_along(axis, count, 2 * rank)))
        inside = lm.arange(window, dtype=lm.int64)
        inside_shape = (*(1,) * len(outer), *_along(rank + axis, window, 2 * rank))
        places = places * length + starts + lm.reshape(inside, inside_shape)
    return places


def _along(axis: int, size: int, rank: int) -> list[int]:
    """The shape of a vector along one axis: [1, 5, 1] of 5 elements along axis 1 of 3."""
    shape = [1] * rank
    shape[axis] = size
    return shape


def _drawn(axis: int, rank: int) -> int:
    """Which sample is for a spatial axis. In volumes they are for depth, height and width; in
    images for width and height."""
    return axis if rank == 3 else rank - 1 - axis


def _window_starts(sample: Tensor, length: int, window: int, count: int) -> Tensor:
    """Where `count` windows begin, (..., count), of samples (..., 1): PyTorch's float32 sums,
    rounded down; the last window ends where the axis does."""
    if count == 1:
        return lm.full(sample.shape, length - window, dtype=lm.int64)
    step = lm.divide(lm.full((), length - window, dtype=sample.dtype), count - 1)
    numbers = lm.arange(count, dtype=lm.int64)
    moved = ((numbers.cast(sample.dtype) + sample) * step).cast(lm.int64)
    starts = moved - (sample * step).cast(lm.int64)
    return lm.where(numbers == count - 1, length - window, starts)


def _fractional_backward(
    upstream: Tensor, x: Tensor, kernel: Sizes, sizes: Sizes, indices: Tensor
) -> Tensor:
    return _at_maxima(len(sizes), upstream, x, indices)


def _avg_pool(rank: int, function: Callable[..., Tensor]) -> Row:
    def row(
        x: Tensor, kernel: Sizes, stride: Sizes = (), padding: Sizes = (0,),
        ceil_mode: bool = False, count_include_pad: bool = True, divisor: int | None = None,
    ) -> Tensor:  # fmt: skip
        values = x.cast(lm.float64) if x.dtype.is_int else x
        means = function(
            values, _sizes(kernel, rank), _sizes(stride, rank) or None, _sizes(padding, rank),
            ceil_mode, count_include_pad, divisor,
        )  # fmt: skip
        # The mean of integers is cut off: that of 3, 3, 3 is 3, and not 2 for 2.9999999999999996.
        return lm.trunc(means * (1 + 2**-40)) if x.dtype.is_int else means

    return row


def _slope_at_x(forward: Row) -> Row:
    """The row of a backward operation: the upstream derivative, x, then the forward's options."""
    return lambda upstream, x, *options: vjp(lambda x: forward(x, *options), [x], upstream)[0]


def _adaptive_backward(function: Callable[..., Tensor], rank: int) -> Row:
    return lambda upstream, x: vjp(lambda x: function(x, upstream.shape[-rank:]), [x], upstream)[0]


def _resize(mode: str, antialias: bool = False) -> Row:
    """x, the size, whether corners are aligned where the mode has that, and scales."""
    has_corners = mode not in ("nearest", "nearest-exact")

    def row(x: Tensor, size: Sizes, *options: Any) -> Tensor:
        align_corners = bool(options[0]) if has_corners else None
        scales = options[1:] if has_corners else options
        sizes = x.shape[2:]
        for old, new, scale in zip(sizes, size, scales, strict=False):
            if scale is not None and int(old * scale) != new:
                raise ArgumentError(f"resize: {old} to {new} by a scale of {scale}")
            if scale is not None and scale * old != new and not align_corners:
                raise ArgumentError(f"resize: a scale of {scale} that is not {new} / {old}")
        return lm.interpolate(
            x, tuple(size), mode=mode, align_corners=align_corners, antialias=antialias
        )

    return row


def _resize_backward(mode: str, antialias: bool = False) -> Row:
    forward = _resize(mode, antialias)

    def row(upstream: Tensor, size: Sizes, x_shape: Sizes, *options: Any) -> Any:
        x = lm.zeros(x_shape, dtype=upstream.dtype)
        return vjp(lambda x: forward(x, size, *options), [x], upstream)[0]

    return row


_GRID_MODES = ("bilinear", "nearest", "bicubic")
_GRID_PADDINGS = ("zeros", "border", "reflection")


def _grid_sample(x: Tensor, grid: Tensor, mode: int, padding: int, align_corners: bool) -> Tensor:
    return lm.grid_sample(x, grid, _GRID_MODES[mode], _GRID_PADDINGS[padding], align_corners)


def _grid_sample_backward(
    upstream: Tensor, x: Tensor, grid: Tensor, mode: int, padding: int, align_corners: bool,
    mask: Sequence[bool],
) -> list[Tensor | None]:  # fmt: skip
    def forward(x: Tensor, grid: Tensor) -> Tensor:
        return _grid_sample(x, grid, mode, padding, align_corners)

    return vjp(forward, [x, grid], upstream, mask)


def _pad(mode: str, rank: int) -> Row:
    return lambda x, padding: lm.pad(x, list(padding), mode=mode)


_MODES = {
    "upsample_linear1d": "linear", "upsample_bilinear2d": "bilinear",
    "upsample_trilinear3d": "trilinear", "upsample_bicubic2d": "bicubic",
    "upsample_nearest1d": "nearest", "upsample_nearest2d": "nearest",
    "upsample_nearest3d": "nearest", "_upsample_nearest_exact1d": "nearest-exact",
    "_upsample_nearest_exact2d": "nearest-exact", "_upsample_nearest_exact3d": "nearest-exact",
}  # fmt: skip
_RESIZES = {f"aten.{name}.default": _resize(mode) for name, mode in _MODES.items()} | {
    f"aten.{name}_backward.default": _resize_backward(mode) for name, mode in _MODES.items()
}
for _mode in ("bilinear", "bicubic"):
    _RESIZES[f"aten._upsample_{_mode}2d_aa.default"] = _resize(_mode, antialias=True)
    _RESIZES[f"aten._upsample_{_mode}2d_aa_backward.default"] = _resize_backward(
        _mode, antialias=True
    )
_PADS = {
    f"aten.{name}_pad{rank}d.default": _pad(mode, rank)
    for name, mode in (("reflection", "reflect"), ("replication", "replicate"))
    for rank in (1, 2, 3)
}
_AVERAGES = {
    "avg_pool1d": _avg_pool(1, lm.avg_pool1d), "avg_pool2d": _avg_pool(2, lm.avg_pool2d),
    "avg_pool3d": _avg_pool(3, lm.avg_pool3d),
}  # fmt: skip

ROWS: dict[str, Row] = {
    **_RESIZES,
    **_PADS,
    **{f"aten.{name}.default": row for name, row in _AVERAGES.items()},
    "aten.avg_pool2d_backward.default": _slope_at_x(_AVERAGES["avg_pool2d"]),
    "aten.avg_pool3d_backward.default": _slope_at_x(_AVERAGES["avg_pool3d"]),
    **{
        name.replace(".default", "_backward.default"): _slope_at_x(row)
        for name, row in _PADS.items()
    },
    "aten.max_pool2d_with_indices.default": _max_pool(2, lm.max_pool2d),
    "aten.max_pool3d_with_indices.default": _max_pool(3, lm.max_pool3d),
    "aten.max_pool2d_with_indices_backward.default": _max_pool_backward(2),
    "aten.max_pool3d_with_indices_backward.default": _max_pool_backward(3),
    "aten._adaptive_avg_pool2d.default": lambda x, size: lm.adaptive_avg_pool2d(x, tuple(size)),
    "aten._adaptive_avg_pool3d.default": lambda x, size: lm.adaptive_avg_pool3d(x, tuple(size)),
    "aten._adaptive_avg_pool2d_backward.default": _adaptive_backward(lm.adaptive_avg_pool2d, 2),
    "aten._adaptive_avg_pool3d_backward.default": _adaptive_backward(lm.adaptive_avg_pool3d, 3),
    "aten.adaptive_max_pool2d.default": lambda x, size: lm.adaptive_max_pool2d(
        x, tuple(size), True
    ),
    "aten.adaptive_max_pool3d.default": lambda x, size: lm.adaptive_max_pool3d(
        x, tuple(size), True
    ),
    "aten.adaptive_max_pool2d_backward.default": partial(_at_maxima, 2),
    "aten.adaptive_max_pool3d_backward.default": partial(_at_maxima, 3),
    "aten.fractional_max_pool2d.default": _fractional_max_pool,
    "aten.fractional_max_pool3d.default": _fractional_max_pool,
    "aten.fractional_max_pool2d_backward.default": _fractional_backward,
    "aten.fractional_max_pool3d_backward.default": _fractional_backward,
    "aten.grid_sampler_2d.default": _grid_sample,
    "aten.grid_sampler_3d.default": _grid_sample,
    "aten.grid_sampler_2d_backward.default": _grid_sample_backward,
    "aten.grid_sampler_3d_backward.default": _grid_sample_backward,
    "aten.pixel_shuffle.default": lm.pixel_shuffle,
    "aten.pixel_unshuffle.default": lm.pixel_unshuffle,
    "aten.channel_shuffle.default": lm.channel_shuffle,
}
