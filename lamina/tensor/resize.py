"""Changing the sizes of images by interpolation; names and meanings as in PyTorch."""

from __future__ import annotations

import math
from collections.abc import Sequence

from lamina.dtypes import DType, float32, float64, int64
from lamina.errors import DTypeError, ShapeError
from lamina.ir.build import cast, expand, full, insert_axes, iota, reshape, unary
from lamina.ir.node import Node
from lamina.ir.ops import Op
from lamina.tensor.core import Tensor
from lamina.tensor.windows import Sizes, per_axis

__all__ = ["interpolate"]

_LINEAR = {"linear": 1, "bilinear": 2, "trilinear": 3}
_NEAREST = ("nearest", "nearest-exact")


def interpolate(
    x: Tensor,
    size: Sizes | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest",
    align_corners: bool = False,
) -> Tensor:
    """Resize the spatial axes of `x`, (N, C, 1 to 3 sizes), to `size` or by `scale_factor`.

    mode: 'nearest' takes the element at ``floor(i * ratio)``, 'nearest-exact' the one at
    ``floor((i + 1/2) * ratio)``; 'linear', 'bilinear' and 'trilinear' blend neighbours.
    align_corners: the outermost elements of input and output coincide, instead of the borders.
    Raises ShapeError for a mode that does not fit the rank.
    """
    rank = x.ndim - 2
    linear = mode in _LINEAR
    if not 1 <= rank <= 3 or (linear and _LINEAR[mode] != rank):
        raise ShapeError(f"interpolate: mode {mode!r} does not fit an input of shape {x.shape}")
    if not linear and (mode not in _NEAREST or align_corners):
        known = ", ".join([*_NEAREST, *_LINEAR])
        raise ShapeError(
            f"interpolate: mode {mode!r} with align_corners={align_corners}; the modes are "
            f"{known}, and align_corners is for the linear ones"
        )
    if linear and not x.dtype.is_float:
        raise DTypeError(f"interpolate: {x.dtype.name} has no means; cast it to a float dtype")
    exact = float64 if x.dtype is float64 else float32
    result = cast(x.node, exact) if linear else x.node
    for axis, (count, ratio) in enumerate(_targets(x, rank, size, scale_factor), 2):
        if linear:
            result = _linear_axis(result, axis, count, ratio, align_corners)
        else:
            result = _nearest_axis(result, axis, count, ratio, exact, mode)
    return Tensor.of(cast(result, x.dtype), x.device)


def _targets(
    x: Tensor, rank: int, size: Sizes | None, scale_factor: float | Sequence[float] | None
) -> list[tuple[int, float]]:
    """For each axis its new size and the distance between samples, in input elements."""
    sizes = x.shape[2:]
    if (size is None) == (scale_factor is None):
        raise ShapeError("interpolate: exactly one of size and scale_factor is needed")
    if size is not None:
        wanted = per_axis("interpolate", "size", size, rank)
        return [(new, old / new) for new, old in zip(wanted, sizes, strict=True)]
    assert scale_factor is not None
    scales = [scale_factor] * rank if isinstance(scale_factor, int | float) else [*scale_factor]
    if len(scales) == rank:
        counts = [math.floor(n * scale) for n, scale in zip(sizes, scales, strict=True)]
        if min(counts) >= 1:
            return [(new, 1 / scale) for new, scale in zip(counts, scales, strict=True)]
    raise ShapeError(f"interpolate: scale_factor {scale_factor} does not fit {x.shape}")


def _nearest_axis(
    x: Node, axis: int, count: int, ratio: float, dtype: DType, mode: str
) -> Node:
    size = x.shape[axis]
    if count == size and ratio == 1:
        return x
    if count % size == 0 and ratio * (count // size) == 1:
        # Whole repetitions need no index: each element is expanded.
        times = count // size
        repeated = expand(
            insert_axes(x, (axis + 1,)), (*x.shape[: axis + 1], times, *x.shape[axis + 1 :])
        )
        return reshape(repeated, (*x.shape[:axis], count, *x.shape[axis + 1 :]))
    place = iota(count, int64)
    shifted = cast(place, dtype) + (0.5 if mode == "nearest-exact" else 0.0)
    return _take(x, _clamped(cast(unary(Op.TRUNC, shifted * ratio), int64), size), axis)


def _linear_axis(x: Node, axis: int, count: int, ratio: float, align_corners: bool) -> Node:
    size = x.shape[axis]
    place = cast(iota(count, int64), x.dtype)
    if align_corners:
        source = place * ((size - 1) / (count - 1) if count > 1 else 0.0)
    else:
        source = (place + 0.5) * ratio - 0.5
        source = Node(Op.MAX, (source, source.lift(0.0)))
    below = unary(Op.TRUNC, source)
    first = _clamped(cast(below, int64), size)
    second = _clamped(first + 1, size)
    left, right = _take(x, first, axis), _take(x, second, axis)
    column = tuple(count if one == axis else 1 for one in range(len(x.shape)))
    share = expand(reshape(source - below, column), left.shape)
    return left * (1.0 - share) + right * share


def _clamped(index: Node, size: int) -> Node:
    return Node(Op.MIN, (index, full(index.shape, size - 1, index.dtype)))


def _take(x: Node, index: Node, axis: int) -> Node:
    """The elements of `x` at `index`, a vector, along `axis`."""
    count = index.shape[0]
    column = tuple(count if one == axis else 1 for one in range(len(x.shape)))
    shape = tuple(count if one == axis else size for one, size in enumerate(x.shape))
    return Node(Op.GATHER, (x, expand(reshape(index, column), shape)), axis)
