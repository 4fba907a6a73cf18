"""Reductions, prefix sums and sorting (array API, "statistical", "searching", "sorting" and
"utility" functions).

Reductions take NumPy's `where`, a mask: ``mean(x, where=mask)`` leaves out the elements at False.

A stable ARGSORT gives the order; values are gathered by it, so sorting has a derivative. NaN sorts
behind every number.
"""

import builtins
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from lamina.core import dtypes
from lamina.core.dtypes import DType, Scalar, accumulator, bool_, default_int, int64
from lamina.core.shape import prod as product
from lamina.errors import ArgumentError, AxisError, DTypeError, ShapeError
from lamina.frontend.arguments import (
    Axis,
    as_dtype,
    broadcast_shapes,
    integer,
    line_axis,
    normalize_axes,
    normalize_axis,
)
from lamina.frontend.functions import complex_math, real_math
from lamina.frontend.functions.elementwise import REALS, SAME, WIDE, Family, float_dtype, named
from lamina.frontend.functions.elementwise import where as choose
from lamina.frontend.functions.movement import concat, transpose
from lamina.frontend.functions.spatial import resized
from lamina.frontend.tensor import Data, Tensor, as_tensor
from lamina.ir import build
from lamina.ir.monoids import ADD, ARGMAX, ARGMIN, MAX, MIN, MUL, PLACE, Monoid
from lamina.ir.node import Node
from lamina.ir.ops import Op, Reduce

__all__ = [
    "all", "any", "argmax", "argmin", "argsort", "count_nonzero", "cummax", "cummin",
    "cumulative_prod", "cumulative_sum", "diff", "log_softmax", "logsumexp", "max", "mean", "min",
    "norm", "prod", "softmax", "sort", "std", "sum", "topk", "var",
]  # fmt: skip

Axes = Sequence[int]

# Elements of a line from which on, and the multiple of k from which on, the k largest are looked
# for in blocks: sorting takes about ten times as long as taking the maxima.
LONG_LINE = 4096
MIN_LINE_SHARE = 256


class Way(NamedTuple):
    """A rule of axes and a node, which the family prepares; and what stands for elements that a
    mask leaves out, for each dtype, where such a value exists."""

    family: Family
    rule: Callable[..., Node]
    neutral: Callable[[DType], Scalar] | None = None


_MEANS = Family(float_dtype, of_complex=True, wide=True)


def _identity(monoid: Monoid, dtype: DType) -> Scalar:
    return monoid.identity((dtype,))[0]


def _reduced(
    what: str, way: Way, x: Data, /, axis: Axis = None, keepdims: bool = False, *,
    where: Any = None,
) -> Tensor:  # fmt: skip
    """A rule applied to the node of x and the axes, all of them by default. With `where`, a mask
    that broadcasts to the shape of x, elements at False are left out."""
    axes = _axes(what, axis, x.ndim)
    operands = [x]
    if where is not None:
        mask = as_tensor(where, x)
        if mask.dtype is not bool_:
            raise DTypeError(f"where={mask.dtype.name}; compare to get a bool", operation=what)
        if broadcast_shapes(what, x.shape, mask.shape) != x.shape:
            raise ShapeError(f"where={mask.shape} does not broadcast to {x.shape}", operation=what)
        if way.neutral is None:
            operands.append(mask)
        else:
            operands = [choose(mask, x, way.neutral(x.dtype))]
    result = way.family(what, partial(way.rule, axes), *operands)
    return Tensor.of(build.insert_axes(result.node, axes), result.device) if keepdims else result


def _axes(what: str, axis: Axis, rank: int) -> Axes:
    """`axis` as axes counted from the front; 0 and -1 of an array of rank 0 are none, as its only
    element is all there is to reduce."""
    listed = (axis,) if isinstance(axis, int) else axis
    if rank == 0 and listed is not None and len(listed) == 1 and listed[0] in (0, -1):
        return ()
    return normalize_axes(what, axis, rank)


def _total_dtype(wanted: Any, dtype: DType) -> DType:
    """The dtype of a sum or product: the widest integer of the kind; floats stay."""
    if wanted is not None:
        return as_dtype(wanted)
    if dtype.kind in ("float", "complex"):
        return dtype
    return dtypes.uint64 if dtype.kind == "uint" else default_int


def _total(
    what: str, monoid: Monoid, x: Data, /, axis: Axis = None, keepdims: bool = False, *,
    dtype: Any = None, where: Any = None,
) -> Tensor:  # fmt: skip
    family = Family(partial(_total_dtype, dtype), of_complex=True, wide=True)
    way = Way(family, partial(build.reduce, monoid), partial(_identity, monoid))
    return _reduced(what, way, x, axis, keepdims=keepdims, where=where)


def _extreme(monoid: Monoid, axes: Axes, node: Node) -> Node:
    """The extreme element, or the place of it, which is counted along one axis or over all."""
    what = monoid.name.lower()
    if not _count(axes, node):
        raise ShapeError(f"{node.shape} has no elements along {axes}", operation=what)
    if monoid in (MAX, MIN):
        return build.reduce(monoid, axes, node)
    if len(axes) != 1:
        if len(axes) != len(node.shape):
            raise AxisError(
                f"axes {axes} of {node.shape}; give one axis, or none for all", operation=what
            )
        node, axes = build.reshape(node, (product(node.shape),)), (0,)
    places = build.broadcasted_iota(node.shape, axes[0])
    return build.reduce(monoid, axes, node, places, component=PLACE)


def _count(axes: Axes, node: Node) -> int:
    """How many elements one result comes from."""
    return product(node.shape[axis] for axis in axes)


def _truth(monoid: Monoid, axes: Axes, node: Node) -> Node:
    return build.reduce(monoid, axes, node if node.dtype is bool_ else ~node.eq(0))


def _inside(weight: Node | None, node: Node) -> Node:
    """`node` with 0 where its weight is 0."""
    return node if weight is None else build.select(weight.eq(0), node.lift(0), node)


def _number(axes: Axes, node: Node, weight: Node | None) -> Node | float:
    """How many elements each result comes from."""
    return float(_count(axes, node)) if weight is None else build.reduce(ADD, axes, weight)


def _mean(axes: Axes, node: Node, weight: Node | None = None) -> Node:
    """The weights are 1 where a mask is true and 0 elsewhere."""
    total = build.reduce(ADD, axes, _inside(weight, node))
    return total / _number(axes, node, weight)


def _deviation(
    what: str, root: bool, x: Data, /, axis: Axis = None, *, correction: float = 0.0,
    keepdims: bool = False, where: Any = None,
) -> Tensor:  # fmt: skip
    def rule(axes: Axes, node: Node, weight: Node | None = None) -> Node:
        distance = node - build.broadcast_over(_mean(axes, node, weight), axes, node.shape)
        total = build.reduce(ADD, axes, _inside(weight, distance * distance))
        freedom = _number(axes, node, weight) - correction
        if isinstance(freedom, Node):
            divisor = build.select(freedom < 0.0, freedom.lift(0.0), freedom)
            value = total / divisor
        else:
            value = total / builtins.max(freedom, 0.0)
        return real_math.root(value) if root else value

    return _reduced(what, Way(WIDE, rule), x, axis, keepdims=keepdims, where=where)


def _greatest(axes: Axes, node: Node) -> Node:
    """The maximum that exponents are shifted by; the shift cancels, so it needs no derivative."""
    return Node(Op.DETACH, (build.insert_axes(build.reduce(MAX, axes, node), axes),))


def _softmax(axes: Axes, node: Node, log: bool) -> Node:
    if 0 in node.shape:
        return node
    shifted = node - build.expand(_greatest(axes, node), node.shape)
    powers = Node(Op.EXP, (shifted,))
    total = build.reduce(ADD, axes, powers)
    normalizer = Node(Op.LOG, (total,)) if log else total.lift(1.0) / total
    repeated = build.broadcast_over(normalizer, axes, node.shape)
    return shifted - repeated if log else powers * repeated


def _shares(
    what: str, log: bool, x: Data, axis: Axis = -1, *, dtype: Any = None, where: Any = None
) -> Tensor:
    wanted = x if dtype is None else x.cast(dtype)
    way = Way(WIDE, partial(_softmax, log=log), lambda dtype: -math.inf)
    return _reduced(what, way, wanted, axis, where=where)


def _logsumexp(axes: Axes, node: Node) -> Node:
    top = _greatest(axes, node)
    base = build.select(real_math.is_finite(top), top, top.lift(0))
    powers = Node(Op.EXP, (node - build.expand(base, node.shape),))
    total = Node(Op.LOG, (build.reduce(ADD, axes, powers),))
    return total + build.reshape(base, total.shape)


def norm(x: Data, ord: float | str = 2, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """The vector norm over `axis`: the root of order `ord` of the sum of powers; inf and -inf are
    the extremes, 0 counts what is not 0, and 'fro' is 2. See `matrix_norm` for other norms."""
    if ord == "fro":
        ord = 2
    if isinstance(ord, str):
        raise ArgumentError(f"ord={ord!r} is neither a number nor 'fro'", operation="norm")

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

    return _reduced("norm", Way(_MEANS, rule), x, axis, keepdims=keepdims)


def _cumulative(
    what: str, monoid: Monoid, x: Data, axis: int | None = None, *, dtype: Any = None,
    include_initial: bool = False,
) -> Tensor:  # fmt: skip
    """Results for the first 1, 2, ... elements; the monoid's identity before them if asked. Of an
    array of shape () the result has it too, unless there is an element before."""
    if axis is None and x.ndim > 1:
        raise AxisError(f"an array of shape {x.shape} needs an axis", operation=what)
    along = line_axis(what, axis or 0, x.ndim)
    if not x.ndim:
        line = Tensor.of(build.reshape(x.node, (1,)), x.device)
        result = _cumulative(what, monoid, line, dtype=dtype, include_initial=include_initial)
        shape = result.shape if include_initial else ()
        return Tensor.of(build.reshape(result.node, shape), x.device)
    x = REALS(what, lambda a: a, x) if monoid in (MAX, MIN) else x  # complex ones have no order
    kind = x.dtype if dtype is None and monoid in (MAX, MIN) else _total_dtype(dtype, x.dtype)
    scan = Node(Op.SCAN, (build.cast(x.node, accumulator(kind)),), Reduce(monoid, (along,)))
    (identity,), none = monoid.identity((kind,)), (0,) * x.ndim
    before = resized(none, along, int(include_initial))
    return Tensor.of(build.pad(build.cast(scan, kind), before, none, identity), x.device)


def diff(
    x: Data, /, *, axis: int = -1, n: int = 1, prepend: Any = None, append: Any = None
) -> Tensor:
    """The differences of neighbours along `axis`, `n` times over; x itself when n is 0."""
    along, times = normalize_axis("diff", axis, x.ndim), integer("diff", n, 0)
    if not times:
        return Tensor.of(x.node, x.device)
    whole = concat([part for part in (prepend, x, append) if part is not None], axis=along)
    node = whole.node
    for _ in range(times):
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
            _reduced, Way(REALS, partial(_extreme, MAX), partial(_identity, MAX)))  # fmt: skip
min = named("min", "The smallest element over `axis`; NaN wins.",
            _reduced, Way(REALS, partial(_extreme, MIN), partial(_identity, MIN)))  # fmt: skip
all = named("all", "Whether every element over `axis` is true.",
            _reduced, Way(SAME, partial(_truth, MIN), lambda dtype: True))  # fmt: skip
any = named("any", "Whether some element over `axis` is true.",
            _reduced, Way(SAME, partial(_truth, MAX), lambda dtype: False))  # fmt: skip
count_nonzero = named(
    "count_nonzero", "How many elements over `axis` are not 0.", _reduced,
    Way(SAME, lambda axes, x: build.reduce(ADD, axes, build.cast(~x.eq(0), default_int)),
        lambda dtype: False),
)  # fmt: skip
mean = named("mean", "The arithmetic mean over `axis`; NaN of nothing.",
             _reduced, Way(_MEANS, _mean))  # fmt: skip
var = named(
    "var", "The variance over `axis`: squared distances from the mean over count - correction.",
    _deviation, False,
)  # fmt: skip
std = named("std", "The square root of the variance over `axis`.", _deviation, True)
softmax = named("softmax", "exp(x) over its sum along `axis`.", _shares, False)
log_softmax = named("log_softmax", "The logarithm of the softmax along `axis`.", _shares, True)
logsumexp = named(
    "logsumexp", "log(sum(exp(x))) over `axis` without overflow; -inf of nothing but -inf.",
    _reduced, Way(WIDE, _logsumexp, lambda dtype: -math.inf),
)  # fmt: skip
argmax = named(
    "argmax", "The place of the greatest element over `axis`, the first of several.",
    _reduced, Way(REALS, partial(_extreme, ARGMAX), partial(_identity, MAX)),
)  # fmt: skip
argmin = named(
    "argmin", "The place of the smallest element over `axis`, the first of several.",
    _reduced, Way(REALS, partial(_extreme, ARGMIN), partial(_identity, MIN)),
)  # fmt: skip
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


class TopK(NamedTuple):
    """Elements along an axis and their places there (int64)."""

    values: Tensor
    indices: Tensor


def _latest_extremes(what: str, monoid: Monoid, x: Tensor, axis: int | None) -> Tensor:
    """The place of the last of the extremes of the first 1, 2, ... elements."""
    if not x.ndim:
        return Tensor.of(build.const(0, int64), x.device)
    along = normalize_axis(what, axis or 0, x.ndim)
    extremes = Node(Op.SCAN, (x.node,), Reduce(monoid, (along,)))
    return Tensor.of(build.latest_extremes(x.node, extremes, along), x.device)


def cummax(
    x: Data, axis: int | None = None, *, dtype: Any = None, include_initial: bool = False,
    return_indices: bool = False,
) -> Any:  # fmt: skip
    """The greatest of the first 1, 2, ... elements along `axis`; NaN wins. With `return_indices`
    a pair, of which the second says where each came last, as PyTorch does."""
    values = _cumulative("cummax", MAX, x, axis, dtype=dtype, include_initial=include_initial)
    return TopK(values, _latest_extremes("cummax", MAX, x, axis)) if return_indices else values


def cummin(
    x: Data, axis: int | None = None, *, dtype: Any = None, include_initial: bool = False,
    return_indices: bool = False,
) -> Any:  # fmt: skip
    """The smallest of the first 1, 2, ... elements along `axis`; NaN wins. With `return_indices`
    a pair, of which the second says where each came last, as PyTorch does."""
    values = _cumulative("cummin", MIN, x, axis, dtype=dtype, include_initial=include_initial)
    return TopK(values, _latest_extremes("cummin", MIN, x, axis)) if return_indices else values


# Sorting.


def argsort(x: Data, /, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """The indices (int64) that sort `x` along `axis`; equal elements always keep their order."""
    return _sorted("argsort", x, axis, descending).indices


def sort(x: Tensor, /, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """`x` sorted along `axis`; equal elements always keep their order."""
    return _sorted("sort", x, axis, descending).values


def topk(x: Tensor, k: int, axis: int = -1, largest: bool = True, sorted: bool = True) -> TopK:
    """The `k` largest (or smallest) elements along `axis` and their indices (int64), in order."""
    if largest and x.ndim and not x.dtype.is_complex:
        length = x.shape[line_axis("topk", axis, x.ndim)]
        if length >= LONG_LINE and 0 < k <= length // MIN_LINE_SHARE:
            return _top_of_blocks(x, k, line_axis("topk", axis, x.ndim))
    return _sorted("topk", x, axis, largest, k)


def _top_of_blocks(x: Tensor, k: int, axis: int) -> TopK:
    """The `k` largest elements of lines so long that most of their blocks have none of them.

    They lie in the k blocks with the largest maxima, of equal ones the first. Outside of these, an
    element comes after the maxima of all k: each is larger, or as large and before it. With blocks
    of ``sqrt(n / k)`` elements there are as many maxima to sort as elements of the k blocks: of
    469,056 elements and k = 45, 4,645 of blocks of 101, and then 4,545."""
    line = transpose(x, axis, -1)
    *outer, length = line.shape
    size = math.isqrt(length // k)
    blocks = -(-length // size)
    (lowest,) = MAX.identity((x.dtype,))
    after = [0] * len(outer) + [blocks * size - length]  # these come after all others
    padded = build.pad(line.node, [0] * line.ndim, after, lowest)
    tops = build.reduce(MAX, [line.ndim], build.reshape(padded, (*outer, blocks, size)))
    chosen = _sorted("topk", Tensor.of(tops, x.device), -1, True, k).indices
    in_order = _sorted("topk", chosen, -1, False).values.node  # equal elements keep their order
    box = (*outer, k, size)
    starts = build.broadcast_over(in_order * size, (line.ndim,), box)
    places = build.reshape(starts + build.broadcasted_iota(box, line.ndim), (*outer, k * size))
    candidates = Tensor.of(Node(Op.GATHER, (padded, places), line.ndim - 1), x.device)
    best = _sorted("topk", candidates, -1, True, k).indices.node
    first = Tensor.of(Node(Op.GATHER, (places, best), line.ndim - 1), x.device)
    indices = transpose(first, axis, -1)
    return TopK(Tensor.of(Node(Op.GATHER, (x.node, indices.node), axis), x.device), indices)


def _sorted(what: str, x: Tensor, axis: int, descending: bool, count: int | None = None) -> TopK:
    """The first `count` elements of `x` in order along `axis`, all by default, and their places."""
    if x.dtype.is_complex:
        raise DTypeError(f"{x.dtype.name} has no order; sort its real() or abs()", operation=what)
    axis = line_axis(what, axis, x.ndim)
    if not x.ndim:
        line = Tensor.of(build.reshape(x.node, (1,)), x.device)
        both = _sorted(what, line, 0, descending, count)
        shape = () if both.values.size else (0,)
        return TopK(*(Tensor.of(build.reshape(part.node, shape), x.device) for part in both))
    size = x.shape[axis]
    k = size if count is None else count
    if not 0 <= k <= size:
        raise ShapeError(f"k={k} of {size} elements along axis {axis} of {x.shape}", operation=what)
    if descending and k == 1 and x.dtype is not bool_:
        # NaN comes first, and the first of equal elements, in both: no line is sorted.
        places = build.broadcasted_iota(x.shape, axis)
        largest = build.reduce(ARGMAX, (axis,), x.node, places, component=PLACE)
        first = build.insert_axes(largest, (axis,))
    else:
        first = build.argsort(x.node, axis, descending, 0, k)
    values = Node(Op.GATHER, (x.node, first), axis)
    return TopK(Tensor.of(values, x.device), Tensor.of(first, x.device))
