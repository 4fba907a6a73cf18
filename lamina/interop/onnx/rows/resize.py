"""Rows that resize images.

Each axis is resized alone: a result is a weighted sum of a few elements of its line. Which elements
and with which weights the host computes, from the sizes or scales, in float64.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import lamina as lm
from lamina.frontend.tensor import Tensor
from lamina.interop.onnx.errors import OnnxError
from lamina.interop.onnx.rows import Context, row
from lamina.interop.onnx.values import check_table, tensor

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Options:
    """Attributes of Resize, by ONNX's names."""

    mode: str = "nearest"
    coordinates: str = "half_pixel"
    nearest: str = "round_prefer_floor"
    slope: float = -0.75  # of the cubic kernel at 1
    antialias: bool = False
    exclude_outside: bool = False
    extrapolation_value: float = 0.0


@dataclass(frozen=True)
class Line:
    """What an axis of `size` becomes: `count` results, `scale` times as many. `roi`: its part that
    is resized, from 0 to 1, for tf_crop_and_resize."""

    axis: int
    size: int
    count: int
    scale: float
    roi: tuple[float, float]


def _coordinates(line: Line, mode: str) -> Array:
    """Where in the input the results lie, in elements: 0 is the first element's centre."""
    check_table(line.count)
    at = np.arange(line.count, dtype=np.float64)
    last, length = line.size - 1, line.scale * line.size
    begin, end = line.roi
    if mode == "align_corners":
        return at * (last / (length - 1)) if length != 1 else np.zeros(line.count)
    if mode == "asymmetric":
        return at / line.scale
    if mode == "tf_crop_and_resize":
        if length == 1:
            return np.full(line.count, (begin + end) * last / 2)
        return begin * last + at * ((end - begin) * last / (length - 1))
    if mode == "tf_half_pixel_for_nn":
        return (at + 0.5) / line.scale
    if mode == "pytorch_half_pixel" and length == 1:
        return np.full(line.count, -0.5)
    centres = (at + 0.5) / line.scale - 0.5
    if mode == "half_pixel_symmetric":
        # Keeps the centre where `count` is a rounded length: of 7 elements by 0.5, 3.5 and 3.
        return centres + line.size / 2 * (1 - line.count / length)
    if mode in ("half_pixel", "pytorch_half_pixel"):
        return centres
    raise OnnxError(f"coordinate_transformation_mode {mode!r}")


_ROUNDED: dict[str, Callable[[Array], Array]] = {
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
    "floor": np.floor, "ceil": np.ceil,
}  # fmt: skip


def _cubic(distance: Array, slope: float) -> Array:
    """The cubic convolution kernel (Keys 1981) at distances of 0 or more."""
    near = ((slope + 2) * distance - (slope + 3)) * distance * distance + 1
    far = ((distance - 5) * distance + 8) * distance - 4
    return np.where(distance <= 1, near, np.where(distance < 2, slope * far, 0.0))


def _taps(line: Line, options: Options) -> tuple[Array, Array]:
    """The elements that results are sums of, which may lie outside of the line, and their weights;
    both (count, taps)."""
    centre = _coordinates(line, options.coordinates)
    if options.mode == "nearest":
        if options.nearest not in _ROUNDED:
            raise OnnxError(f"nearest_mode {options.nearest!r}")
        index = _ROUNDED[options.nearest](centre)[:, None]
        return index, np.ones_like(index)
    if options.mode not in ("linear", "cubic"):
        raise OnnxError(f"mode {options.mode!r}")
    cubic = options.mode == "cubic"
    # Against aliasing the kernel reaches as far as the distance between results.
    narrowing = min(line.scale, 1.0) if options.antialias else 1.0
    reach = math.floor((2 if cubic else 1) / narrowing)
    check_table(line.count, 2 * reach + 2)
    index = np.floor(centre)[:, None] + np.arange(-reach, reach + 2)
    distance = np.abs(index - centre[:, None]) * narrowing
    weight = _cubic(distance, options.slope) if cubic else np.maximum(1 - distance, 0)
    if options.exclude_outside:
        weight = np.where((index >= 0) & (index < line.size), weight, 0)
    if options.exclude_outside or options.antialias:
        weight = weight / np.sum(weight, axis=1, keepdims=True)
    is_used = np.any(weight != 0, axis=0)
    return index[:, is_used], weight[:, is_used]


def _resized(x: Tensor, line: Line, options: Options) -> Tensor:
    """`x` with one axis resized; beyond the ends the outermost elements go on."""
    index, weight = _taps(line, options)
    bounded = np.clip(index, 0, line.size - 1).astype(np.int64)
    taken = _taken(x, bounded.reshape(-1), line)
    if options.mode == "nearest":
        result = taken
    else:
        before, behind = x.shape[: line.axis], x.shape[line.axis + 1 :]
        apart = lm.reshape(taken, (*before, *bounded.shape, *behind))
        weights = weight.reshape(*weight.shape, *(1,) * len(behind))
        result = lm.sum(apart * lm.asarray(weights, dtype=x.dtype), axis=line.axis + 1)
    if options.coordinates != "tf_crop_and_resize":
        return result
    centre = _coordinates(line, options.coordinates)
    is_inside = ((centre >= 0) & (centre <= line.size - 1)).reshape(
        -1, *(1,) * (x.ndim - line.axis - 1)
    )
    return lm.where(lm.asarray(is_inside), result, options.extrapolation_value)


def _taken(x: Tensor, index: Array, line: Line) -> Tensor:
    """The elements of `x` at `index` along the axis of `line`. Whole repetitions of each, as of
    images of twice the size, move elements in patterns that the compiler knows: it reads no index,
    and its vectors take neighbours."""
    times = index.size // max(line.size, 1)
    if np.array_equal(index, np.repeat(np.arange(line.size), times)):
        return lm.repeat(x, times, axis=line.axis)
    return lm.take(x, lm.asarray(index), axis=line.axis)


def _resize(x: Tensor, lines: Sequence[Line], options: Options) -> Tensor:
    result = x
    if options.mode != "nearest" and x.dtype is not lm.float64:
        result = x.cast(lm.float32)
    for line in lines:
        if line.scale != 1 or line.count != line.size or line.roi != (0.0, 1.0):
            result = _resized(result, line, options)
    if result.dtype.is_float and not x.dtype.is_float:  # cubic kernels overshoot
        result = lm.clip(result, x.dtype.min, x.dtype.max)
    return result.cast(x.dtype)


def _lines(
    shape: Sequence[int], axes: Sequence[int], scales: Sequence[float],
    counts: Sequence[int] | None = None, roi: Sequence[float] = (),
) -> list[Line]:  # fmt: skip
    if counts is None:
        counts = [math.floor(shape[a] * scale) for a, scale in zip(axes, scales, strict=True)]
    begins, ends = roi[: len(axes)] or (0.0,) * len(axes), roi[len(axes) :] or (1.0,) * len(axes)
    parts = zip(axes, counts, scales, begins, ends, strict=True)
    return [Line(axis, shape[axis], count, scale, (begin, end))
            for axis, count, scale, begin, end in parts]  # fmt: skip


@row("Upsample", since=7)
def upsample(context: Context, x: Any, *, scales: Sequence[float], mode: str = "nearest") -> Any:
    images = tensor(x)
    options = Options(mode, "asymmetric", "floor")
    return _resize(images, _lines(images.shape, range(images.ndim), scales), options)


@row("Upsample", since=9)
@row("Resize", since=10)
def resize_by_scales(context: Context, x: Any, scales: Any, *, mode: str = "nearest") -> Any:
    return upsample(context, x, scales=context.host(scales).reshape(-1).tolist(), mode=mode)


@row("Resize", since=11)
def resize(
    context: Context, x: Any, roi: Any = None, scales: Any = None, sizes: Any = None, *,
    antialias: int = 0, axes: Sequence[int] | None = None,
    coordinate_transformation_mode: str = "half_pixel", cubic_coeff_a: float = -0.75,
    exclude_outside: int = 0, extrapolation_value: float = 0.0,
    keep_aspect_ratio_policy: str = "stretch", mode: str = "nearest",
    nearest_mode: str = "round_prefer_floor",
) -> Any:  # fmt: skip
    """To `sizes` or by `scales` of the axes; sizes that keep the aspect ratio bound the result."""
    images = tensor(x)
    which = [axis % images.ndim for axis in (range(images.ndim) if axes is None else axes)]
    counts = None
    if sizes is not None and context.host(sizes).size:
        counts = context.integers(sizes)
        factors = [count / images.shape[axis] for axis, count in zip(which, counts, strict=True)]
        if keep_aspect_ratio_policy != "stretch":
            scale = (min if keep_aspect_ratio_policy == "not_larger" else max)(factors)
            factors = [scale] * len(which)
            counts = [math.floor(images.shape[axis] * scale + 0.5) for axis in which]
    elif scales is not None:
        factors = context.host(scales).reshape(-1).tolist()
    else:
        raise OnnxError("neither scales nor sizes")
    options = Options(
        mode, coordinate_transformation_mode, nearest_mode, cubic_coeff_a, bool(antialias),
        bool(exclude_outside), extrapolation_value,
    )  # fmt: skip
    part: Sequence[float] = ()
    if coordinate_transformation_mode == "tf_crop_and_resize" and roi is not None:
        part = context.host(roi).reshape(-1).tolist()
    return _resize(images, _lines(images.shape, which, factors, counts, part), options)
