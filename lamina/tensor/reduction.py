"""Reductions, prefix sums, sorting, searching sorted data, and sets (array API, "statistical",
"searching", "sorting", "set" and "utility" functions).

A stable ARGSORT gives the order; values are gathered by it, so sorting has a derivative. NaN sorts
behind every number.
"""

import builtins
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from lamina import dtypes
from lamina.dtypes import DType, accumulator, bool_, default_int, int64
from lamina.errors import ArgumentError, AxisError, DTypeError, ShapeError
from lamina.ir import build
from lamina.ir.monoids import ADD, ARGMAX, ARGMIN, MAX, MIN, MUL, Monoid
from lamina.ir.node import Node
from lamina.ir.ops import Op, Reduce
from lamina.shape import prod as product
from lamina.tensor import complex_math, real_math
from lamina.tensor import realize as memory
from lamina.tensor.arguments import Axis, as_dtype, integer, normalize_axes, normalize_axis, promote
from lamina.tensor.core import Data, Tensor, as_tensor, common_device
from lamina.tensor.elementwise import REALS, SAME, WIDE, Family, float_dtype, named
from lamina.tensor.movement import concat, transpose
from lamina.tensor.spatial import resized

__all__ = [
    "all", "any", "argmax", "argmin", "argsort", "count_nonzero", "cummax", "cummin",
    "cumulative_prod", "cumulative_sum", "diff", "log_softmax", "logsumexp", "max", "mean", "min",
    "norm", "prod", "searchsorted", "softmax", "sort", "std", "sum", "topk", "unique_all",
    "unique_counts", "unique_inverse", "unique_values", "var",
]  # fmt: skip

Axes = Sequence[int]
Way = tuple[Family, Callable[..., Node]]  # a rule of axes and a node, which the family prepares

_MEANS = Family(float_dtype, of_complex=True, wide=True)


def _reduced(
    what: str, way: Way, x: Data, /, axis: Axis = None, *, keepdims: bool = False
) -> Tensor:
    """A rule applied to the node of x and the axes, all of them by default."""
    axes = normalize_axes(what, axis, x.ndim)
    family, rule = way
    result = family(what, partial(rule, axes), x)
    return Tensor.of(build.insert_axes(result.node, axes), result.device) if keepdims else result


def _total_dtype(wanted: Any, dtype: DType) -> DType:
    """The dtype of a sum or product: the widest integer of the kind; floats stay."""
    if wanted is not None:
        return as_dtype(wanted)
    if dtype.kind in ("float", "complex"):
        return dtype
    return dtypes.uint64 if dtype.kind == "uint" else default_int


def _total(
    what: str, monoid: Monoid, x: Data, /, axis: Axis = None, *, dtype: Any = None,
    keepdims: bool = False,
) -> Tensor:  # fmt: skip
    family = Family(partial(_total_dtype, dtype), of_complex=True, wide=True)
    return _reduced(what, (family, partial(build.reduce, monoid)), x, axis, keepdims=keepdims)


def _extreme(monoid: Monoid, axes: Axes, node: Node) -> Node:
    """The extreme element, or the place of it, which is counted along one axis or over all."""
    what = monoid.name.lower()
    if not _count(axes, node):
        raise ShapeError(f"{what}: {node.shape} has no elements along {axes}")
    if monoid in (MAX, MIN):
        return build.reduce(monoid, axes, node)
    if len(axes) != 1:
        if len(axes) != len(node.shape):
            raise AxisError(f"{what}: axes {axes} of {node.shape}; give one axis, or none for all")
        node, axes = build.reshape(node, (product(node.shape),)), (0,)
    return build.reduce(monoid, axes, node, build.places(node.shape, axes[0]), part=1)


def _count(axes: Axes, node: Node) -> int:
    """How many elements one result comes from."""
    return product(node.shape[axis] for axis in axes)


def _truth(monoid: Monoid, axes: Axes, node: Node) -> Node:
    return build.reduce(monoid, axes, node if node.dtype is bool_ else ~node.eq(0))


def _mean(axes: Axes, node: Node) -> Node:
    return build.reduce(ADD, axes, node) / float(_count(axes, node))


def _deviation(
    what: str, root: bool, x: Data, /, axis: Axis = None, *, correction: float = 0.0,
    keepdims: bool = False,
) -> Tensor:  # fmt: skip
    def rule(axes: Axes, node: Node) -> Node:
        distance = node - build.spread(_mean(axes, node), axes, node.shape)
        total = build.reduce(ADD, axes, distance * distance)
        value = total / builtins.max(float(_count(axes, node) - correction), 0.0)
        return real_math.root(value) if root else value

    return _reduced(what, (WIDE, rule), x, axis, keepdims=keepdims)


def _greatest(axes: Axes, node: Node) -> Node:
    """The maximum that exponents are shifted by; the shift cancels, so it needs no derivative."""
    return Node(Op.DETACH, (build.insert_axes(build.reduce(MAX, axes, node), axes),))


def _softmax(axes: Axes, node: Node, log: bool) -> Node:
    if 0 in node.shape:
        return node
    shifted = node - build.expand(_greatest(axes, node), node.shape)
    powers = Node(Op.EXP, (shifted,))
    total = build.reduce(ADD, axes, powers)
    one = Node(Op.LOG, (total,)) if log else total.lift(1.0) / total
    wide = build.spread(one, axes, node.shape)
    return shifted - wide if log else powers * wide


def _shares(what: str, log: bool, x: Data, axis: Axis = -1, *, dtype: Any = None) -> Tensor:
    wanted = x if dtype is None else x.cast(dtype)
    return _reduced(what, (WIDE, partial(_softmax, log=log)), wanted, axis)


def _logsumexp(axes: Axes, node: Node) -> Node:
    top = _greatest(axes, node)
    base = build.select(real_math.is_finite(top), top, top.lift(0))
    powers = Node(Op.EXP, (node - build.expand(base, node.shape),))
    total = Node(Op.LOG, (build.reduce(ADD, axes, powers),))
    return total + build.reshape(base, total.shape)


def norm(x: Data, ord: float = 2, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """The vector norm over `axis`: the root of order `ord` of the sum of powers."""

    def rule(axes: Axes, node: Node) -> Node:
        if node.dtype.is_complex:
            node = real_math.hypot(*complex_math.parts(node))
        if ord == 2:
            return real_math.root(build.reduce(ADD, axes, node * node))
        size = real_math.absolute(node)
        if ord in (math.inf, -math.inf):
            return _extreme(MAX if ord > 0 else MIN, axes, size)
        if ord == 0:
            return build.reduce(ADD, axes, build.cast(~node.eq(0), node.dtype))
        total = build.reduce(ADD, axes, size if ord == 1 else size ** float(ord))
        return total if ord == 1 else real_math.root(total, ord)

    return _reduced("norm", (_MEANS, rule), x, axis, keepdims=keepdims)


def _cumulative(
    what: str, monoid: Monoid, x: Data, axis: int | None = None, *, dtype: Any = None,
    include_initial: bool = False,
) -> Tensor:  # fmt: skip
    """Results for the first 1, 2, ... elements; the monoid's identity before them if asked."""
    if axis is None and x.ndim != 1:
        raise AxisError(f"{what}: an array of shape {x.shape} needs an axis")
    along = normalize_axis(what, axis or 0, x.ndim)
    x = REALS(what, lambda a: a, x) if monoid in (MAX, MIN) else x  # complex ones have no order
    kind = x.dtype if dtype is None and monoid in (MAX, MIN) else _total_dtype(dtype, x.dtype)
    scan = Node(Op.SCAN, (build.cast(x.node, accumulator(kind)),), Reduce(monoid, (along,)))
    (identity,), none = monoid.identity((kind,)), (0,) * x.ndim
    before = resized(none, along, int(include_initial))
    return Tensor.of(build.pad(build.cast(scan, kind), before, none, identity), x.device)


def diff(
    x: Data, /, *, axis: int = -1, n: int = 1, prepend: Any = None, append: Any = None
) -> Tensor:
    """The differences of neighbours along `axis`, `n` times over."""
    along = normalize_axis("diff", axis, x.ndim)
    whole = concat([one for one in (prepend, x, append) if one is not None], axis=along)
    node = whole.node
    for _ in range(integer("diff", n, 0)):
        size = node.shape[along]
        later = build.slice_axis(node, along, builtins.min(1, size), size)
        earlier = build.slice_axis(node, along, 0, builtins.max(0, size - 1))
        node = later ^ earlier if node.dtype is bool_ else later - earlier
    return Tensor.of(node, whole.device)


sum = named("sum", "The sum over `axis`, over everything by default; integers add up in 64 bits.",
            _total, ADD)  # fmt: skip
prod = named(
    "prod", "The product over `axis`, over everything by default; integers multiply in 64 bits.",
    _total, MUL,
)  # fmt: skip
max = named("max", "The greatest element over `axis`; NaN wins.",
            _reduced, (REALS, partial(_extreme, MAX)))  # fmt: skip
min = named("min", "The smallest element over `axis`; NaN wins.",
            _reduced, (REALS, partial(_extreme, MIN)))  # fmt: skip
all = named("all", "Whether every element over `axis` is true.",
            _reduced, (SAME, partial(_truth, MIN)))  # fmt: skip
any = named("any", "Whether some element over `axis` is true.",
            _reduced, (SAME, partial(_truth, MAX)))  # fmt: skip
count_nonzero = named(
    "count_nonzero", "How many elements over `axis` are not 0.",
    _reduced, (SAME, lambda axes, x: build.reduce(ADD, axes, build.cast(~x.eq(0), default_int))),
)  # fmt: skip
mean = named("mean", "The arithmetic mean over `axis`; NaN of nothing.", _reduced, (_MEANS, _mean))
var = named(
    "var", "The variance over `axis`: squared distances from the mean over count - correction.",
    _deviation, False,
)  # fmt: skip
std = named("std", "The square root of the variance over `axis`.", _deviation, True)
softmax = named("softmax", "exp(x) over its sum along `axis`.", _shares, False)
log_softmax = named("log_softmax", "The logarithm of the softmax along `axis`.", _shares, True)
logsumexp = named(
    "logsumexp", "log(sum(exp(x))) over `axis` without overflow; -inf of nothing but -inf.",
    _reduced, (WIDE, _logsumexp),
)  # fmt: skip
argmax = named("argmax", "The place of the greatest element over `axis`, the first of several.",
               _reduced, (REALS, partial(_extreme, ARGMAX)))  # fmt: skip
argmin = named("argmin", "The place of the smallest element over `axis`, the first of several.",
               _reduced, (REALS, partial(_extreme, ARGMIN)))  # fmt: skip
cumulative_sum = named(
    "cumulative_sum",
    "The sums of the first 1, 2, ... elements along `axis`; from 0 with `include_initial`.",
    _cumulative, ADD,
)  # fmt: skip
cumulative_prod = named(
    "cumulative_prod",
    "The products of the first 1, 2, ... elements; from 1 with `include_initial`.",
    _cumulative, MUL,
)  # fmt: skip
cummax = named("cummax", "The greatest of the first 1, 2, ... elements along `axis`; NaN wins.",
               _cumulative, MAX)  # fmt: skip
cummin = named("cummin", "The smallest of the first 1, 2, ... elements along `axis`; NaN wins.",
               _cumulative, MIN)  # fmt: skip

# Sorting and sets.


class TopK(NamedTuple):
    values: Tensor
    indices: Tensor


def argsort(x: Data, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """The indices (int64) that sort `x` along `axis`; equal elements always keep their order."""
    return _sorted("argsort", x, axis, descending).indices


def sort(x: Tensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """`x` sorted along `axis`; equal elements always keep their order."""
    return _sorted("sort", x, axis, descending).values


def topk(x: Tensor, k: int, axis: int = -1, largest: bool = True, sorted: bool = True) -> TopK:
    """The `k` largest (or smallest) elements along `axis` and their indices (int64), in order."""
    return _sorted("topk", x, axis, largest, k)


def _sorted(what: str, x: Tensor, axis: int, descending: bool, count: int | None = None) -> TopK:
    """The first `count` elements of `x` in order along `axis`, all by default, and their places."""
    if x.dtype.is_complex:
        raise DTypeError(f"{what}: {x.dtype.name} has no order; sort its real() or abs()")
    axis = normalize_axis(what, axis, x.ndim)
    size = x.shape[axis]
    k = size if count is None else count
    if not 0 <= k <= size:
        raise ShapeError(f"{what}: k={k} of {size} elements along axis {axis} of {x.shape}")
    # Backwards twice: the second flip puts equal elements into their own order again.
    turned = (x.ndim - 1,) if descending else ()
    lines = build.flip(transpose(x, axis, -1).node, turned)
    order = build.flip(build.unary(Op.ARGSORT, lines), turned)
    order = -order + (size - 1) if descending else order
    places = transpose(Tensor.of(order, x.device), axis, -1)
    first = build.slice_axis(places.node, axis, 0, k)
    values = Node(Op.GATHER, (x.node, first), axis)
    return TopK(Tensor.of(values, x.device), Tensor.of(first, x.device))


def searchsorted(
    x1: Tensor, x2: Tensor, /, *, side: str = "left", sorter: Tensor | None = None
) -> Tensor:
    """Where each element v of `x2` belongs in `x1`, (n,), ascending, or ascending in the order
    `sorter`: int64 of x2's shape. With side 'left' the index i has ``x1[i - 1] < v <= x1[i]``, with
    'right' ``x1[i - 1] <= v < x1[i]``."""
    if side not in ("left", "right"):
        raise ArgumentError(f"searchsorted: side {side!r} is neither 'left' nor 'right'")
    if x1.ndim != 1:
        raise ShapeError(f"searchsorted: the sorted data has shape {x1.shape}; one axis is needed")
    values = as_tensor(x2, x1)
    device = common_device("searchsorted", x1, values, x1 if sorter is None else sorter)
    dtype = promote("searchsorted", x1.dtype, values.dtype)
    if dtype.is_complex:
        raise DTypeError(f"searchsorted: {dtype.name} has no order")
    data = build.cast(x1.node, dtype)
    if sorter is not None:
        data = Node(Op.GATHER, (data, sorter.node), 0)
    wanted = build.reshape(build.cast(values.node, dtype), (values.size,))
    (n,) = data.shape
    found = build.full(wanted.shape, 0, int64)  # how many lie before, a bit of the answer at a time
    for bit in reversed(range(n.bit_length())):
        tried = found + (1 << bit)
        element = Node(Op.GATHER, (data, tried + -1), 0)
        before = _precedes(element, wanted) if side == "left" else ~_precedes(wanted, element)
        found = build.select(before & (tried < n + 1), tried, found)
    return Tensor.of(build.reshape(found, values.shape), device)


def _precedes(a: Node, b: Node) -> Node:
    """The order of sorting: NaN behind everything."""
    return (a < b) | (a.eq(a) & ~b.eq(b)) if a.dtype.is_float else a < b


# Sets. Their shapes depend on the values, so these functions run at once, in NumPy: what they find
# has the names of the standard. All but the values is int64.


def _unique(what: str, x: Tensor) -> Any:
    import numpy as np

    values, *places = found = getattr(np, what)(memory.native(x))
    tensors = (Tensor(one, int64, x.device) for one in places)
    return type(found)(Tensor(values, x.dtype, x.device), *tensors)


def unique_all(x: Tensor, /) -> Any:
    """The `values` of `x` without repetitions, ascending, each NaN for itself; `indices`, in the
    flat array, of the first of each; for each element of `x` the index of its value,
    `inverse_indices`; and how often each occurs, `counts`."""
    return _unique("unique_all", x)


def unique_counts(x: Tensor, /) -> Any:
    """The `values` of `x` and how often each occurs, `counts`."""
    return _unique("unique_counts", x)


def unique_inverse(x: Tensor, /) -> Any:
    """The `values` of `x` and for each element the index of its value, `inverse_indices`."""
    return _unique("unique_inverse", x)


def unique_values(x: Tensor, /) -> Tensor:
    """The values of `x` without repetitions, ascending; each NaN counts as different."""
    values: Tensor = unique_all(x).values
    return values
