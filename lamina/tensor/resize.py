"""Changing the sizes of images by interpolation; names and meanings as in PyTorch."""

from __future__ import annotations

import math
from collections.abc import Sequence

from lamina.dtypes import float32, float64, int64
from lamina.errors import ShapeError
from lamina.ir.build import cast, expand, insert_axes, iota, reshape, unary
from lamina.ir.node import Node
from lamina.ir.ops import Op
from lamina.tensor.axes import along, resized
from lamina.tensor.core import Tensor
from lamina.tensor.windows import Sizes, exact, per_axis

__all__ = ["interpolate"]

_LINEAR = {"linear": 1, "bilinear": 2, "trilinear": 3}
_NEAREST = ("nearest", "nearest-exact")


def interpolate(
    x: Tensor, size: Sizes | None = None, scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest", align_corners: bool = False,
) -> Tensor:  # fmt: skip
    """Resize the spatial axes of `x`, (N, C, 1 to 3 sizes), to `size` or by `scale_factor`.

    mode: 'nearest' takes the element at ``floor(i * ratio)``, 'nearest-exact' the one at
    ``floor((i + 1/2) * ratio)``; 'linear', 'bilinear' and 'trilinear' blend neighbours.
    align_corners: the outermost elements of input and output coincide, instead of the borders.
    Raises ShapeError for a mode that does not fit the rank.
    """
    linear = mode in _LINEAR
    if not 1 <= x.ndim - 2 <= 3 or _LINEAR.get(mode, x.ndim - 2) != x.ndim - 2:
        raise ShapeError(f"interpolate: mode {mode!r} does not fit an input of shape {x.shape}")
    if not linear and (mode not in _NEAREST or align_corners):
        raise ShapeError(
            f"interpolate: mode {mode!r} with align_corners={align_corners}; the modes are "
            f"{', '.join([*_NEAREST, *_LINEAR])}, and align_corners is for the linear ones"
        )
    result = exact("interpolate", x).node if linear else x.node
    for axis, (count, ratio) in enumerate(_targets(x, size, scale_factor), 2):
        if linear:
            result = _linear_axis(result, axis, count, ratio, align_corners)
        else:
            result = _nearest_axis(result, axis, count, ratio, mode)
    return Tensor.of(cast(result, x.dtype), x.device)


def _targets(
    x: Tensor, size: Sizes | None, scale_factor: float | Sequence[float] | None
) -> list[tuple[int, float]]:
    """For each axis its new size and the distance between samples, in input elements."""
    sizes = x.shape[2:]
    if size is not None and scale_factor is None:
        wanted = per_axis("interpolate", "size", size, len(sizes))
        return [(new, old / new) for new, old in zip(wanted, sizes, strict=True)]
    if scale_factor is None or size is not None:
        raise ShapeError("interpolate: exactly one of size and scale_factor is needed")
    if isinstance(scale_factor, int | float):
        scale_factor = [scale_factor] * len(sizes)
    if len(scale_factor) == len(sizes):
        counts = [math.floor(n * scale) for n, scale in zip(sizes, scale_factor, strict=True)]
        if min(counts) >= 1:
            return [(new, 1 / scale) for new, scale in zip(counts, scale_factor, strict=True)]
    raise ShapeError(f"interpolate: scale_factor {scale_factor} does not fit {x.shape}")


def _nearest_axis(x: Node, axis: int, count: int, ratio: float, mode: str) -> Node:
    size = x.shape[axis]
    if count % size == 0 and ratio * (count // size) == 1:
        # Whole repetitions need no index: each element is expanded.
        shape = resized(x.shape, axis, size, count // size)
        repeated = expand(insert_axes(x, (axis + 1,)), shape)
        return reshape(repeated, resized(x.shape, axis, count))
    wide = float64 if x.dtype is float64 else float32
    place = cast(iota(count, int64), wide) + (0.5 if mode == "nearest-exact" else 0.0)
    return _take(x, cast(unary(Op.TRUNC, place * ratio), int64), axis)


def _linear_axis(x: Node, axis: int, count: int, ratio: float, align_corners: bool) -> Node:
    place = cast(iota(count, int64), x.dtype)
    if align_corners:
        source = place * ((x.shape[axis] - 1) / (count - 1) if count > 1 else 0.0)
    else:
        source = (place + 0.5) * ratio - 0.5
        source = Node(Op.MAX, (source, source.lift(0.0)))
    below = unary(Op.TRUNC, source)
    first = cast(below, int64)
    left, right = _take(x, first, axis), _take(x, first + 1, axis)
    share = along(source - below, axis, left.shape)
    return left * (1.0 - share) + right * share


def _take(x: Node, index: Node, axis: int) -> Node:
    """The elements of `x` at `index`, a vector, or the last one, along `axis`."""
    bounded = Node(Op.MIN, (index, index.lift(x.shape[axis] - 1)))
    shape = resized(x.shape, axis, *index.shape)
    return Node(Op.GATHER, (x, along(bounded, axis, shape)), axis)
