"""Adjoints of REDUCE and SCAN, and the sums and spreads that they and other rules are made of.

A mask (dtype bool) is added up as an adjoint is, with OR in place of the sum. In the formulas x_i
runs over the reduced elements, z is the result and g its adjoint, both repeated along the reduced
axes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lamina.dtypes import accumulator, bool_
from lamina.ir import build
from lamina.ir.build import cast, flip, permute, places, reshape, select, spread
from lamina.ir.monoids import ADD, ARGMAX, ARGMIN, MAX, MIN, MUL, Monoid
from lamina.ir.node import Node
from lamina.ir.ops import Op, Reduce, Scatter
from lamina.shape import Shape, prod

Contributions = Sequence[Node | None]
Rule = Callable[..., Contributions]  # see `lamina.autodiff.rules`


def _adding(x: Node) -> Monoid:
    return MAX if x.dtype is bool_ else ADD


def sum_over(x: Node, axes: Sequence[int]) -> Node:
    """The sum over `axes`, which vanish."""
    total = build.reduce(_adding(x), axes, cast(x, accumulator(x.dtype)))
    return cast(total, x.dtype) if axes else x


def sum_from_each(x: Node, axis: int) -> Node:
    """At i the sum of the elements from i to the end of `axis`."""
    backwards = cast(flip(x, (axis,)), accumulator(x.dtype))
    total = Node(Op.SCAN, (backwards,), Reduce(_adding(x), (axis,)))
    return flip(cast(total, x.dtype), (axis,))


def inverse(order: Sequence[int]) -> list[int]:
    """The permutation that undoes `order`."""
    return sorted(range(len(order)), key=order.__getitem__)


def take(x: Node, index: Node, axis: int) -> Node:
    """The elements of `x` at `index` along `axis`."""
    return Node(Op.GATHER, (x, index), axis)


def put(x: Node, index: Node, shape: Shape, axis: int) -> Node:
    """Zeros of `shape` with each element of `x` added at `index` along `axis`."""
    source = cast(x, accumulator(x.dtype))
    zeros = build.full(shape, 0, source.dtype)
    return cast(Node(Op.SCATTER, (zeros, index, source), Scatter(axis, _adding(x))), x.dtype)


def reduction_rule(g: Node, z: Node, *parts: Node) -> Contributions:
    """The formula of the node's operation and monoid; nothing if there is none."""
    rule = _RULES.get(z.arg.monoid, (None, None))[z.op is Op.SCAN]
    return () if rule is None else rule(g, z, *parts)


def _spread(z: Node, x: Node) -> Node:
    """`x`, of the shape of the reduction `z`, repeated along the reduced axes."""
    return spread(x, z.arg.axes, z.src[0].shape)


def _part(z: Node, part: int) -> Node:
    """Another component of the same reduction, repeated along the reduced axes."""
    return _spread(z, Node(z.op, z.src, z.arg._replace(part=part)))


def _product(g: Node, z: Node, x: Node) -> Contributions:
    """dx_i = g * (product of the others): those before i times those after i, so that zeros need
    no division."""
    last = len(z.shape)
    order = [axis for axis in range(len(x.shape)) if axis not in z.arg.axes] + [*z.arg.axes]
    moved = permute(x, order)
    row = reshape(moved, (*z.shape, prod(moved.shape[last:])))
    after = flip(_product_before(flip(row, (last,)), last), (last,))
    others = reshape(_product_before(row, last) * after, moved.shape)
    return (_spread(z, g) * permute(others, inverse(order)),)


def _product_before(x: Node, axis: int) -> Node:
    """At i the product of x_j for j < i along `axis`; 1 at the start."""
    start = [0] * len(x.shape)
    ahead = [int(one == axis) for one in range(len(x.shape))]
    shifted = build.shrink(build.pad(x, ahead, start, 1.0), start, x.shape)
    return Node(Op.SCAN, (shifted,), Reduce(MUL, (axis,)))


def _running_product(g: Node, z: Node, x: Node) -> Contributions:
    """dx_i = (product of x_j, j < i) * sum over k >= i of g_k * (product of x_j, i < j <= k). The
    inner products are prefixes of the rows of a matrix, x_j above the diagonal and 1 elsewhere: of
    quadratic size, but exact where x has zeros."""
    (axis,) = z.arg.axes
    square = (*x.shape[:axis], x.shape[axis], *x.shape[axis:])
    i, k = places(square, axis), places(square, axis + 1)
    rows, g_rows = spread(x, (axis,), square), spread(g, (axis,), square)
    factors = select(i < k, rows, rows.lift(1.0))
    inner = Node(Op.SCAN, (factors,), Reduce(MUL, (axis + 1,)))
    terms = select(k < i, inner.lift(0.0), g_rows * inner)
    return (_product_before(x, axis) * sum_over(terms, (axis + 1,)),)


def _extreme(g: Node, z: Node, x: Node) -> Contributions:
    """`g` split evenly among the elements of `x` that equal `z` (all, when that is NaN)."""
    top = _spread(z, z)
    loses = (x < top) if z.arg.monoid is MAX else (top < x)
    exact = accumulator(g.dtype)
    ties = sum_over(cast(~loses, exact), z.arg.axes)
    share = cast(cast(g, exact) / ties, g.dtype)
    return (select(loses, x.lift(0.0), _spread(z, share)),)


def _extreme_at(g: Node, z: Node, value: Node, index: Node) -> Contributions:
    """d value_i = g where i is the index that won, else 0."""
    return select(index.eq(_part(z, 1)), _spread(z, g), value.lift(0.0)), None


def _running_extreme(g: Node, z: Node, x: Node, *index: Node) -> Contributions:
    """dx_i = sum of g_k over the prefixes k whose extreme is x_i (the first, among equals)."""
    (axis,) = z.arg.axes
    monoid = ARGMAX if z.arg.monoid in (MAX, ARGMAX) else ARGMIN
    winner = Node(Op.SCAN, (x, places(x.shape, axis)), Reduce(monoid, (axis,), 1))
    return put(g, winner, x.shape, axis), *(None for _ in index)


# Of REDUCE, and of SCAN.
_RULES: dict[Monoid, tuple[Rule, Rule | None]] = {
    ADD: (lambda g, z, x: (_spread(z, g),), lambda g, z, x: (sum_from_each(g, z.arg.axes[0]),)),
    MUL: (_product, _running_product),
    **dict.fromkeys((MAX, MIN), (_extreme, _running_extreme)),
    **dict.fromkeys((ARGMAX, ARGMIN), (_extreme_at, _running_extreme)),
}
