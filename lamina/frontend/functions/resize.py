"""Changing the sizes of one to three spatial axes by interpolation, with PyTorch's meanings.

The axes are resized one after the other, first the one that shrinks most. Each result is a weighted
sum of a few elements of its line: of one (nearest), of two (linear), of four (cubic), or, to avoid
aliasing, of all elements under a kernel that is as wide as the distance between results.
"""

import functools
import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from lamina.core.dtypes import DType, float32, float64, int32, int64
from lamina.core.shape import Shape, prod
from lamina.errors import ArgumentError, ShapeError
from lamina.frontend.functions import real_math
from lamina.frontend.functions.pooling import adaptive_avg_pool
from lamina.frontend.functions.spatial import Sizes, exact, per_axis, resized
from lamina.frontend.tensor import Tensor
from lamina.ir import build
from lamina.ir.build import cast, expand, insert_axes, iota, reduce, reshape, select
from lamina.ir.monoids import ADD
from lamina.ir.node import Node
from lamina.ir.ops import Op

__all__ = ["interpolate"]

_NEAREST = ("nearest", "nearest-exact")
_ANTIALIASED = ("bilinear", "bicubic")
_MODES = {  # of inputs with so many spatial axes
    1: (*_NEAREST, "linear", "area"),
    2: (*_NEAREST, "bilinear", "bicubic", "area"),
    3: (*_NEAREST, "trilinear", "area"),
}


X = TypeVar("X", Node, Tensor)


@dataclass(frozen=True)
class _Target:
    """What an axis becomes."""

    count: int  # the new size
    ratio: float  # the distance between results, in elements of the input


def interpolate(
    x: Tensor, size: Sizes | None = None, scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest", align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None, antialias: bool = False,
) -> Tensor:  # fmt: skip
    """Resize the spatial axes of `x`, (N, C, 1 to 3 sizes), to `size` or by `scale_factor`.

    mode: 'nearest' takes the element at ``floor(i * ratio)``, 'nearest-exact' the one at
    ``floor((i + 1/2) * ratio)``; 'linear', 'bilinear' and 'trilinear' blend two neighbours an axis;
    'bicubic' blends four by a cubic kernel with slope -3/4 at 1 (Keys 1981, "Cubic convolution
    interpolation for digital image processing"); 'area' is `adaptive_avg_pool2d` and the like.
    align_corners: the outermost elements of input and output coincide, instead of the borders; for
    linear and cubic modes. recompute_scale_factor: the ratio follows from the sizes before and
    after, as with `size`, and not from `scale_factor`, whose results have rounded sizes.
    antialias: where 'bilinear' or 'bicubic' make an axis smaller, their kernels become as wide as
    the distance between results, and the cubic one has slope -1/2, as in Pillow."""
    rank = x.ndim - 2
    if mode not in _MODES.get(rank, ()):
        offered = ", ".join(_MODES.get(rank, ("no mode",)))
        raise ShapeError(
            f"mode {mode!r} of {x.shape}, which has {offered}", operation="interpolate"
        )
    if align_corners and mode in (*_NEAREST, "area"):
        raise ShapeError(
            f"align_corners is for linear and cubic modes, not {mode!r}", operation="interpolate"
        )
    if antialias and mode not in _ANTIALIASED:
        raise ArgumentError(
            f"antialias is for {_ANTIALIASED}, not for {mode!r}", operation="interpolate"
        )
    targets = _targets(x, size, scale_factor, bool(recompute_scale_factor))
    if mode == "area":
        return adaptive_avg_pool("interpolate", rank, x, [target.count for target in targets])
    if mode in _NEAREST:
        result, offset = x.node, 0.5 if mode == "nearest-exact" else 0.0
        for axis, target in _smallest_first(x.shape, targets):
            result = _nearest(result, axis, target, offset)
        return Tensor.of(result, x.device)
    result = exact("interpolate", x).node
    for axis, target in _smallest_first(x.shape, targets):
        if align_corners:
            ends = (x.shape[axis] - 1) / (target.count - 1) if target.count > 1 else 0.0
            target = _Target(target.count, ends)
        if antialias:
            result = _filtered(result, axis, target, mode == "bicubic")
        else:
            result = _blended(result, axis, target, bool(align_corners), mode == "bicubic")
    return Tensor.of(cast(result, x.dtype), x.device)


def _targets(
    x: Tensor, size: Sizes | None, scale_factor: float | Sequence[float] | None, recompute: bool
) -> list[_Target]:
    sizes = x.shape[2:]
    if (size is None) == (scale_factor is None):
        raise ShapeError("exactly one of size and scale_factor is needed", operation="interpolate")
    if size is not None:
        if recompute:
            raise ArgumentError(
                "recompute_scale_factor is for a scale_factor", operation="interpolate"
            )
        wanted = per_axis("interpolate", "size", size, len(sizes))
        return [_Target(new, old / new) for new, old in zip(wanted, sizes, strict=True)]
    scales: Any = scale_factor if hasattr(scale_factor, "__iter__") else [scale_factor] * len(sizes)
    counts = [math.floor(n * scale) for n, scale in zip(sizes, scales, strict=False)]
    if len(scales) != len(sizes) or min(counts) < 1:
        raise ShapeError(
            f"scale_factor {scale_factor} does not fit {x.shape}", operation="interpolate"
        )
    if recompute:
        return [_Target(new, old / new) for new, old in zip(counts, sizes, strict=True)]
    return [_Target(new, 1 / scale) for new, scale in zip(counts, scales, strict=True)]


def _smallest_first(shape: Shape, targets: Sequence[_Target]) -> list[tuple[int, _Target]]:
    """The spatial axes and what they become, in the order in which what is between is smallest.

    (7, 9000) becomes (6, 1) by way of (7, 1), not of (6, 9000), and its gradient comes back by way
    of (7, 1) as well: few elements are computed twice, and one array of zeros is as large as x.
    """
    axes = enumerate(targets, 2)
    return sorted(axes, key=lambda each: each[1].count / shape[each[0]])


def _nearest(x: Node, axis: int, target: _Target, offset: float) -> Node:
    """The elements at ``floor((i + offset) * ratio)`` along `axis`."""
    size, count, ratio = x.shape[axis], target.count, target.ratio
    if count % size == 0 and ratio * (count // size) == 1:
        # Whole repetitions need no index: each element is expanded.
        shape = resized(x.shape, axis, size, count // size)
        return reshape(expand(insert_axes(x, (axis + 1,)), shape), resized(x.shape, axis, count))
    place = cast(iota(count, int64), x.dtype if x.dtype is float64 else float32)
    return _take(x, cast((place + offset) * ratio, _index_dtype(size, count)), axis)


def _blended(x: Node, axis: int, target: _Target, align_corners: bool, cubic: bool) -> Node:
    """Sums of two or four neighbours along `axis`; beyond the ends the outermost ones go on."""
    place = cast(iota(target.count, int64), x.dtype)
    source = place * target.ratio if align_corners else (place + 0.5) * target.ratio - 0.5
    index_dtype = _index_dtype(x.shape[axis], target.count)
    if cubic:
        first = cast(real_math.floor(source), index_dtype)
        share = source - cast(first, x.dtype)  # of the way from the first element to the next
        weights = cubic_shares(share)
        indices = [first + step for step in (-1, 0, 1, 2)]
        taps = list(zip(indices, weights, strict=True))
    else:
        source = Node(Op.MAX, (source, source.lift(0.0)))
        first = cast(source, index_dtype)
        share = source - cast(first, x.dtype)
        taps = [(first, 1.0 - share), (first + 1, share)]
    shape = resized(x.shape, axis, target.count)
    terms = [
        _take(x, index, axis) * build.broadcast_in_dim(weight, axis, shape)
        for index, weight in taps
    ]
    return functools.reduce(operator.add, terms)


def _filtered(x: Node, axis: int, target: _Target, cubic: bool) -> Node:
    """Sums of all elements under a kernel around ``(i + 1/2) * ratio``, which is stretched by the
    ratio where that is above 1; its weights add up to 1 for each result."""
    size, count, ratio = x.shape[axis], target.count, target.ratio
    stretch = max(ratio, 1.0)
    reach = (2.0 if cubic else 1.0) * stretch  # elements on each side of the centre
    taps = min(2 * math.ceil(reach) + 1, size)
    box = (count, taps)
    centre = (cast(iota(count, int64), x.dtype) + 0.5) * ratio
    start = centre - reach + 0.5
    first = cast(Node(Op.MAX, (start, start.lift(0.0))), int64)
    stop = cast(centre + reach + 0.5, int64)
    index = build.broadcast_in_dim(first, 0, box) + build.broadcasted_iota(box, 1)
    inside = (index < build.broadcast_in_dim(stop, 0, box)) & (index < size)
    distance = (cast(index, x.dtype) - build.broadcast_in_dim(centre, 0, box) + 0.5) / stretch
    kernel = _cubic(real_math.absolute(distance), -0.5) if cubic else _triangle(distance)
    weight = select(inside, kernel, kernel.lift(0.0))
    weight = weight / build.broadcast_over(reduce(ADD, (1,), weight), (1,), box)
    elements = _take(x, reshape(index, (prod(box),)), axis)
    shape = resized(x.shape, axis, *box)
    # What lies outside may be NaN or infinite, and must not count.
    terms = select(
        _of_box(inside, axis, shape),
        reshape(elements, shape) * _of_box(weight, axis, shape),
        build.full(shape, 0.0, x.dtype),
    )
    return reduce(ADD, (axis + 1,), terms)


def cubic_shares(share: X) -> list[X]:
    """The weights of the elements at -1, 0, 1 and 2 of a point at `share`, from 0 to 1, by the
    cubic kernel whose slope at 1 is -3/4 (Keys 1981, equation 15)."""
    slope = -0.75
    return [
        _far(share + 1.0, slope), _near(share, slope), _near(1.0 - share, slope),
        _far(2.0 - share, slope),
    ]  # fmt: skip


def _cubic(distance: Node, slope: float) -> Node:
    """The cubic convolution kernel at a distance from 0 on, which has `slope` at 1."""
    beyond = select(distance < 2, _far(distance, slope), distance.lift(0.0))
    return select(distance < 1, _near(distance, slope), beyond)


def _near(distance: X, slope: float) -> X:
    """The cubic kernel at a distance of 0 to 1."""
    return ((slope + 2) * distance - (slope + 3)) * distance * distance + 1


def _far(distance: X, slope: float) -> X:
    """The cubic kernel at a distance of 1 to 2."""
    return (((distance - 5) * distance + 8) * distance - 4) * slope


def _triangle(distance: Node) -> Node:
    height = 1.0 - real_math.absolute(distance)
    return Node(Op.MAX, (height, height.lift(0.0)))


def _of_box(values: Node, axis: int, shape: Shape) -> Node:
    """A matrix as the axes `axis` and the next one of `shape`, repeated over the others."""
    alone = [size if at in (axis, axis + 1) else 1 for at, size in enumerate(shape)]
    return expand(reshape(values, tuple(alone)), shape)


def _index_dtype(size: int, count: int) -> DType:
    """The dtype of indices into `size` elements for `count` results: int32 has as many lanes as
    float32, int64 half of them."""
    farthest = max(size, count) + 2  # the last of four neighbours, beyond the end
    return int32 if farthest.bit_length() < int32.bits else int64


def _take(x: Node, index: Node, axis: int) -> Node:
    """The elements of `x` at `index`, a vector, along `axis`; beyond the ends the outermost."""
    from_first = Node(Op.MAX, (index, index.lift(0)))
    bounded = Node(Op.MIN, (from_first, index.lift(x.shape[axis] - 1)))
    shape = resized(x.shape, axis, *index.shape)
    return Node(Op.GATHER, (x, build.broadcast_in_dim(bounded, axis, shape)), axis)
