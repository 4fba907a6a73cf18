"""Statistics beyond the array API standard: order statistics, moments, counts of values, running
sums, and integrals, as in PyTorch and NumPy.

Order statistics sort; NaN sorts behind every number.
"""

import math
from typing import Any, NamedTuple

from lamina.core.dtypes import accumulator, int64, real_of
from lamina.core.shape import prod
from lamina.errors import ArgumentError, DTypeError, ShapeError
from lamina.frontend.arguments import Axis, integer, is_integer, normalize_axes, normalize_axis
from lamina.frontend.functions import reduction as over
from lamina.frontend.functions.creation import ones
from lamina.frontend.functions.elementwise import (
    FLOATS,
    SAME,
    WIDE,
    clip,
    conj,
    divide,
    floor,
    isnan,
    logical_not,
    where,
)  # fmt: skip
from lamina.frontend.functions.indexing import known_elements, take_along_axis
from lamina.frontend.functions.linalg import matmul
from lamina.frontend.functions.movement import expand_dims, flatten, moveaxis, reshape, squeeze
from lamina.frontend.functions.reduction import TopK
from lamina.frontend.functions.scatter import counts
from lamina.frontend.functions.sets import searchsorted
from lamina.frontend.tensor import Data, Tensor, as_tensor, common_device
from lamina.ir import build
from lamina.ir.monoids import ADD, LOG_SUM_EXP, SCALE, SCALED_SUM
from lamina.ir.node import Node
from lamina.ir.ops import Op, Reduce, Scatter

__all__ = [
    "aminmax", "bincount", "corrcoef", "cov", "cumprod", "cumsum", "cumulative_trapezoid", "histc",
    "histogram", "kthvalue", "logcumsumexp", "median", "mode", "nanmean", "nanmedian",
    "nanquantile", "nansum", "quantile", "std_mean", "trapezoid", "var_mean",
]  # fmt: skip


class Histogram(NamedTuple):
    hist: Tensor
    bin_edges: Tensor


class Range(NamedTuple):
    min: Tensor
    max: Tensor


# Order statistics.


def _rows(what: str, x: Tensor, axis: Axis) -> tuple[Tensor, tuple[int, ...]]:
    """x with the axes `axis` as one, the last; and those axes. A number is a row of one element,
    without an axis of its own."""
    axes = normalize_axes(what, axis, max(x.ndim, 1))
    if not x.ndim:
        return reshape(x, (1,)), ()
    first = x.ndim - len(axes)
    moved = moveaxis(x, axes, range(first, x.ndim))
    rows = reshape(moved, (*moved.shape[:first], prod(moved.shape[first:])))
    if not rows.shape[-1]:
        raise ShapeError(f"{x.shape} has no elements along {axes}", operation=what)
    return rows, axes


def _with_axes(x: Tensor, axes: tuple[int, ...], keepdims: bool) -> Tensor:
    return Tensor.of(build.insert_axes(x.node, axes), x.device) if keepdims else x


def _missing(rows: Tensor) -> Tensor:
    """How many elements of each row (..., n) are NaN: (..., 1)."""
    return over.count_nonzero(isnan(rows), axis=-1, keepdims=True)


def kthvalue(x: Data, k: int, axis: int = -1, keepdims: bool = False) -> TopK:
    """The element of rank `k`, from 1, along `axis`, and its place."""
    rows, axes = _rows("kthvalue", x, axis)
    size = rows.shape[-1]
    if not 1 <= integer("kthvalue", k) <= size:
        raise ArgumentError(
            f"k={k} of {size} elements along axis {axis} of {x.shape}", operation="kthvalue"
        )
    place = Tensor.of(build.argsort(rows.node, first=k - 1, last=k), rows.device)
    return _elements_at(rows, place, axes, keepdims)


def _median(what: str, x: Tensor, axis: int | None, keepdims: bool, skip: bool) -> Any:
    rows, axes = _rows(what, x, axis)
    size = rows.shape[-1]
    if skip:
        rank = clip(size - 1 - _missing(rows), 0, None) // 2
        order = Tensor.of(build.argsort(rows.node), rows.device)
        place = take_along_axis(order, rank, axis=-1)
    else:
        middle = (size - 1) // 2
        place = Tensor.of(build.argsort(rows.node, first=middle, last=middle + 1), rows.device)
        if rows.dtype.is_float:  # NaN is greater than every number
            greatest = over.argmax(rows, axis=-1, keepdims=True)
            has_nan = isnan(take_along_axis(rows, greatest, axis=-1))
            place = where(has_nan, greatest, place)
    result = _elements_at(rows, place, axes, keepdims)
    return result.values if axis is None else result


def _elements_at(rows: Tensor, place: Tensor, axes: tuple[int, ...], keepdims: bool) -> TopK:
    """The element of each row (..., n) at a place (..., 1), and the place."""
    value = take_along_axis(rows, place, axis=-1)
    return TopK(
        _with_axes(squeeze(value, -1), axes, keepdims),
        _with_axes(squeeze(place, -1), axes, keepdims),
    )


def median(x: Data, axis: int | None = None, keepdims: bool = False) -> Any:
    """The element in the middle of the order along `axis`, the lower one of two, and its place;
    without an axis the middle of all elements alone. NaN if there is one. The mean of the two is
    ``quantile(x, 0.5)``."""
    return _median("median", x, axis, keepdims, skip=False)


def nanmedian(x: Data, axis: int | None = None, keepdims: bool = False) -> Any:
    """As `median`, of what is not NaN."""
    return _median("nanmedian", x, axis, keepdims, skip=True)


def mode(x: Data, axis: int = -1, keepdims: bool = False) -> TopK:
    """The most frequent value along `axis`, the smallest of several, and its last place. All pairs
    of elements are compared."""
    rows, axes = _rows("mode", x, axis)
    ordered = over.sort(rows)
    size = rows.shape[-1]
    same = (expand_dims(ordered, -1) == expand_dims(ordered, -2)).cast(int64)
    first = over.argmax(over.sum(same, axis=-1), axis=-1, keepdims=True)
    value = take_along_axis(ordered, first, axis=-1)
    place = size - 1 - over.argmax((rows == value)[..., ::-1].cast(int64), axis=-1)
    return TopK(
        _with_axes(squeeze(value, -1), axes, keepdims), _with_axes(place, axes, keepdims)
    )


_INTERPOLATIONS = ("linear", "lower", "higher", "midpoint", "nearest")


def _quantile(
    what: str, x: Tensor, q: Any, axis: Axis, keepdims: bool, interpolation: str, skip: bool
) -> Tensor:
    """The probability q of each of the first n sorted elements of a row is its rank over n - 1."""
    if interpolation not in _INTERPOLATIONS:
        choices = ", ".join(_INTERPOLATIONS)
        raise ArgumentError(
            f"interpolation={interpolation!r}; it is one of {choices}", operation=what
        )
    rows, axes = _rows(what, FLOATS(what, lambda a: a, x), axis)
    exact = accumulator(rows.dtype)  # halves cannot count far
    fraction = q.cast(exact) if isinstance(q, Tensor) else Tensor(q, exact, rows.device)
    if fraction.ndim > 1:
        raise ShapeError(
            f"q of shape {fraction.shape}; a number or one axis is needed", operation=what
        )
    shares = known_elements(q)
    if shares is not None and not ((shares >= 0.0) & (shares <= 1.0)).all():
        raise ArgumentError(f"q={q}; a share lies between 0 and 1", operation=what)
    ordered = over.sort(rows)
    size, missing = rows.shape[-1], _missing(rows)
    last = clip(size - 1 - missing, 0, None) if skip else where(missing > 0, 0, size - 1)
    rank = last.cast(exact) * reshape(fraction, (-1,))
    quantiles = _at_rank(ordered, rank, interpolation).cast(rows.dtype)
    if not skip:
        quantiles = where(missing > 0, math.nan, quantiles)
    if not fraction.ndim:
        return _with_axes(squeeze(quantiles, -1), axes, keepdims)
    quantiles_first = moveaxis(quantiles, -1, 0)
    return _with_axes(quantiles_first, tuple(axis + 1 for axis in axes), keepdims)


def _at_rank(ordered: Tensor, rank: Tensor, interpolation: str) -> Tensor:
    """The elements of sorted rows at a rank that may lie between two."""
    low = floor(rank)
    share = rank - low
    if interpolation == "lower":
        share = share * 0.0
    elif interpolation == "higher":
        share = (share > 0).cast(share.dtype)
    elif interpolation == "midpoint":
        share = where(share > 0, 0.5, share)
    elif interpolation == "nearest":
        share = rank.round() - low  # halves to the even rank
    place = low.cast(int64)
    following = clip(place + 1, None, ordered.shape[-1] - 1)
    below = take_along_axis(ordered, place, axis=-1)
    above = take_along_axis(ordered, following, axis=-1)
    between = below + (above - below) * share
    return where(share == 0, below, where(share == 1, above, between))


def quantile(
    x: Data, q: Any, axis: Axis = None, keepdims: bool = False, *, interpolation: str = "linear"
) -> Tensor:
    """The value below which lies the share `q` of the elements along `axis`, over all by default.
    A vector of shares gives an axis in front. Between two elements: "linear", the "lower", the
    "higher", their "midpoint" or the "nearest". NaN if there is one."""
    return _quantile("quantile", x, q, axis, keepdims, interpolation, skip=False)


def nanquantile(
    x: Data, q: Any, axis: Axis = None, keepdims: bool = False, *, interpolation: str = "linear"
) -> Tensor:
    """As `quantile`, of what is not NaN."""
    return _quantile("nanquantile", x, q, axis, keepdims, interpolation, skip=True)


# Sums and moments.


def nansum(x: Data, axis: Axis = None, keepdims: bool = False, *, dtype: Any = None) -> Tensor:
    """The sum over `axis` of what is not NaN."""
    return over.sum(x, axis=axis, dtype=dtype, keepdims=keepdims, where=logical_not(isnan(x)))


def nanmean(x: Data, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """The mean over `axis` of what is not NaN; NaN of nothing."""
    return over.mean(x, axis=axis, keepdims=keepdims, where=logical_not(isnan(x)))


def aminmax(x: Data, axis: Axis = None, keepdims: bool = False) -> Range:
    """The smallest and the greatest element over `axis`."""
    return Range(*(f(x, axis=axis, keepdims=keepdims) for f in (over.min, over.max)))


def var_mean(
    x: Data, axis: Axis = None, *, correction: float = 0.0, keepdims: bool = False
) -> tuple[Tensor, Tensor]:
    """The variance over `axis`, as `var` has it, and the mean."""
    variance = over.var(x, axis=axis, correction=correction, keepdims=keepdims)
    return variance, over.mean(x, axis=axis, keepdims=keepdims)


def std_mean(
    x: Data, axis: Axis = None, *, correction: float = 0.0, keepdims: bool = False
) -> tuple[Tensor, Tensor]:
    """The standard deviation over `axis`, as `std` has it, and the mean."""
    deviation = over.std(x, axis=axis, correction=correction, keepdims=keepdims)
    return deviation, over.mean(x, axis=axis, keepdims=keepdims)


def cov(
    x: Data, *, correction: int = 1, fweights: Tensor | None = None,
    aweights: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """The covariances of variables in rows, (n, observations) to (n, n); of one, the variance, of
    shape (). `fweights`: how often each observation occurred; `aweights`: its weight."""
    if x.ndim > 2:
        raise ShapeError(f"{x.shape} has more than two axes", operation="cov")
    rows = reshape(SAME("cov", lambda a: a, x), (-1, x.shape[-1] if x.ndim else 1))
    if not rows.dtype.is_float and not rows.dtype.is_complex:
        rows = FLOATS("cov", lambda a: a, rows)
    weight = ones(rows.shape[-1], dtype=real_of(rows.dtype), device=rows.device)
    for factor in (fweights, aweights):
        if factor is not None:
            weight = weight * factor.cast(weight.dtype)
    total = over.sum(weight)
    distance = rows - over.sum(rows * weight, axis=-1, keepdims=True) / total
    lost: Any = correction
    if aweights is not None:
        lost = over.sum(weight * aweights) / total * correction
    product = divide(matmul(distance * weight, conj(distance).mT), clip(total - lost, 0.0, None))
    return product if rows.shape[0] > 1 else reshape(product, ())


def corrcoef(x: Data) -> Tensor:
    """The correlation coefficients of variables in rows: covariances over deviations."""
    covariance = cov(x)
    if not covariance.ndim:
        return covariance / covariance
    deviation = covariance.diagonal().real.sqrt()
    scaled = covariance / expand_dims(deviation, -1) / deviation
    return scaled if scaled.dtype.is_complex else clip(scaled, -1, 1)


# Counts of values.


def bincount(x: Data, weights: Tensor | None = None, minlength: int = 0) -> Tensor:
    """How often each of 0, 1, ... occurs in x, (n,), or the sums of its `weights`. The length is
    one more than the greatest value, which is computed now, or `minlength` if that is more."""
    if x.ndim != 1 or not x.dtype.is_int:
        raise DTypeError(f"{x.dtype.name} of shape {x.shape}; a vector of integers is "
                         "needed", operation="bincount")  # fmt: skip
    length = integer("bincount", minlength, 0)
    if x.size:
        smallest, largest = map(int, aminmax(x))
        if smallest < 0:
            raise ArgumentError(f"{smallest} is negative", operation="bincount")
        length = max(length, largest + 1)
    counted = _counts("bincount", x, length, weights)
    return counted if weights is None else counted.cast(weights.dtype)


def _counts(what: str, places: Tensor, length: int, weights: Tensor | None) -> Tensor:
    """How often each place below `length` occurs, int64, or the sums of the `weights` there, added
    in float32 for halves; other places are left out."""
    if weights is None:
        return Tensor.of(counts((length,), 0, places.node), places.device)
    device = common_device(what, places, weights)
    amount = weights.cast(accumulator(weights.dtype))
    empty = build.full((length,), 0, amount.dtype)
    return Tensor.of(Node(Op.SCATTER, (empty, places.node, amount.node), Scatter(0, ADD)), device)


def histogram(
    x: Data, bins: Any = 10, *, range: tuple[float, float] | None = None,
    weight: Tensor | None = None, density: bool = False,
) -> Histogram:  # fmt: skip
    """How many elements lie in each of `bins` equal parts of `range`, by default from the smallest
    to the greatest element; or between edges, ascending, that `bins` lists. A part includes its
    lower edge, the last one both. `weight` counts each element so often; `density` divides by the
    total and the widths. Counts have the dtype of x."""
    flat = flatten(FLOATS("histogram", lambda a: a, x))
    if is_integer(bins):
        edges = _edges(flat, integer("histogram", bins, 1), range)
    else:
        edges = Tensor(bins, flat.dtype, None if isinstance(bins, Tensor) else flat.device)
    length = edges.shape[0] - 1
    place = searchsorted(edges, flat, side="right") - 1
    place = where(flat == edges[-1], length - 1, place)
    outside = (place < 0) | isnan(flat)
    weights = None if weight is None else flatten(weight)
    counted = _counts("histogram", where(outside, length, place), length, weights)
    if density:
        wide = counted.cast(accumulator(flat.dtype))
        counted = wide / over.sum(wide) / over.diff(edges)
    return Histogram(counted.cast(flat.dtype), edges)


def _edges(x: Tensor, bins: int, limits: tuple[float, float] | None) -> Tensor:
    """Edges of equal parts; a range without width becomes one of width 1."""
    ends = None if limits is None else known_elements(limits)
    if ends is not None and not -math.inf < ends[0] <= ends[1] < math.inf:
        raise ArgumentError(f"range={limits}; two finite numbers are needed, the "
                            "smaller one first", operation="histogram")  # fmt: skip
    edges = aminmax(x) if limits is None and x.size else (limits or (0.0, 1.0))
    low, high = (as_tensor(edge, x).cast(x.dtype) for edge in edges)
    flat = low == high
    low, high = where(flat, low - 0.5, low), where(flat, high + 0.5, high)
    place = Tensor.of(build.cast(build.iota(bins + 1, int64), x.dtype), x.device)
    inner = low + (high - low) * (place / bins)
    return where(place == bins, high, inner)


def histc(x: Data, bins: int = 100, min: float = 0, max: float = 0) -> Tensor:
    """How many elements lie in each of `bins` equal parts of min..max, by default from the smallest
    to the greatest element."""
    return histogram(x, bins, range=None if min == max == 0 else (min, max)).hist


# Running sums and integrals.


def _flat_or_along(x: Tensor, axis: int | None) -> tuple[Tensor, int]:
    return (flatten(x), 0) if axis is None else (x, axis)


def cumsum(x: Data, axis: int | None = None, *, dtype: Any = None) -> Tensor:
    """`cumulative_sum`, of the flattened array without an axis."""
    line, along = _flat_or_along(x, axis)
    return over.cumulative_sum(line, axis=along, dtype=dtype)


def cumprod(x: Data, axis: int | None = None, *, dtype: Any = None) -> Tensor:
    """`cumulative_prod`, of the flattened array without an axis."""
    line, along = _flat_or_along(x, axis)
    return over.cumulative_prod(line, axis=along, dtype=dtype)


def logcumsumexp(x: Data, axis: int = -1) -> Tensor:
    """log(exp(x[0]) + exp(x[1]) + ...) of the first 1, 2, ... elements along `axis`."""
    along = normalize_axis("logcumsumexp", axis, max(x.ndim, 1))
    return WIDE("logcumsumexp", lambda node: _log_of_running_sum(node, along), x)


def _log_of_running_sum(x: Node, axis: int) -> Node:
    """``m + log(s)`` for the running maximum m and the running sum s of ``exp(x - m)``. The result
    does not depend on m, so no derivative goes through it."""
    if not x.shape:
        return x
    terms = x, build.full(x.shape, 1.0, x.dtype)
    top = Node(Op.SCAN, terms, Reduce(LOG_SUM_EXP, (axis,), SCALE))
    total = Node(Op.SCAN, terms, Reduce(LOG_SUM_EXP, (axis,), SCALED_SUM))
    at_least = Node(Op.MAX, (total, total.lift(0.5)))  # 0 before any finite x, and then 1 or more
    return top + build.unary(Op.LOG, at_least)


def trapezoid(y: Data, x: Any = None, dx: float = 1.0, axis: int = -1) -> Tensor:
    """The integral of y along `axis` by the trapezoidal rule, at points x, or `dx` apart."""
    return over.sum(_trapezoids("trapezoid", y, x, dx, axis), axis=axis)


def cumulative_trapezoid(y: Data, x: Any = None, dx: float = 1.0, axis: int = -1) -> Tensor:
    """The integrals of y from the first point to the second, third, ... along `axis`."""
    return over.cumulative_sum(_trapezoids("cumulative_trapezoid", y, x, dx, axis), axis=axis)


def _trapezoids(what: str, y: Tensor, x: Any, dx: float, axis: int) -> Tensor:
    along = normalize_axis(what, axis, y.ndim)
    moved = moveaxis(y, along, -1)
    width: Any = dx
    if x is not None:
        points = as_tensor(x, y)
        at = points if points.ndim == 1 else moveaxis(points, along - y.ndim, -1)
        width = over.diff(at)
    return moveaxis((moved[..., 1:] + moved[..., :-1]) * width * 0.5, -1, along)
