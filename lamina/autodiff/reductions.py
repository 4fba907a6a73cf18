"""Adjoints of REDUCE and SCAN: one formula a monoid, chosen by the part of the result.

Below, x_i runs over the reduced elements, z is the result and g its adjoint, both repeated along
the reduced axes.
"""

from __future__ import annotations

from collections.abc import Callable

from lamina.autodiff.movement import (
    Contributions,
    inverse,
    positions,
    put,
    running_total,
    spread,
    sum_over,
    wide,
)
from lamina.errors import GradientError
from lamina.ir.build import cast, flip, full, pad, permute, reshape, select, shrink
from lamina.ir.monoids import ADD, ARGMAX, ARGMIN, MAX, MIN, MUL, SOFTMAX_SUM, WELFORD, Monoid
from lamina.ir.node import Node
from lamina.ir.ops import Op, Reduce
from lamina.shape import Shape, prod

Rule = Callable[[Node, Node], Contributions]


def reduce_rule(node: Node, g: Node) -> Contributions:
    """The formula of the node's monoid, from `REDUCE_RULES`."""
    return _choose(REDUCE_RULES, node)(node, g)


def scan_rule(node: Node, g: Node) -> Contributions:
    """The formula of the node's monoid, from `SCAN_RULES`."""
    return _choose(SCAN_RULES, node)(node, g)


def _choose(rules: dict[Monoid, Rule], node: Node) -> Rule:
    rule = rules.get(node.arg.monoid)
    if rule is None:
        raise GradientError(
            f"gradient: {node.op.name.lower()} with {node.arg.monoid} over {node.src[0].shape} "
            "has no derivative; detach it"
        )
    return rule


def _spread(node: Node, x: Node) -> Node:
    """`x`, of the shape of the reduction `node`, repeated along the reduced axes."""
    return spread(x, node.arg.axes, node.src[0].shape)


def _part(node: Node, part: int) -> Node:
    """Another component of the same reduction."""
    return Node(node.op, node.src, node.arg._replace(part=part))


def _sum(node: Node, g: Node) -> Contributions:
    """dx_i = g."""
    return (_spread(node, g),)


def _product(node: Node, g: Node) -> Contributions:
    """dx_i = g * (product of the others): those before i times those after i, so that zeros need
    no division."""
    (x,) = node.src
    order = [axis for axis in range(len(x.shape)) if axis not in node.arg.axes] + [*node.arg.axes]
    moved = permute(x, order)
    last = len(node.shape)
    row = reshape(moved, (*node.shape, prod(moved.shape[last:])))
    after = flip(_product_before(flip(row, (last,)), last), (last,))
    others = reshape(_product_before(row, last) * after, moved.shape)
    return (_spread(node, g) * permute(others, inverse(order)),)


def _product_before(x: Node, axis: int) -> Node:
    """At i the product of x_j for j < i along `axis`; 1 at the start."""
    ahead = [int(one == axis) for one in range(len(x.shape))]
    shifted = shrink(pad(x, ahead, [0] * len(ahead), 1.0), [0] * len(ahead), x.shape)
    return Node(Op.SCAN, (shifted,), Reduce(MUL, (axis,)))


def _extreme(node: Node, g: Node) -> Contributions:
    """dx_i = g / (number of ties) where x_i is the extreme, else 0."""
    return (_share_among_ties(node, node.src[0], node, g),)


def _share_among_ties(node: Node, x: Node, extreme: Node, g: Node) -> Node:
    """`g` split evenly among the elements of `x` that equal `extreme` (all, when that is NaN)."""
    top = _spread(node, extreme)
    loses = (x < top) if node.arg.monoid in (MAX, SOFTMAX_SUM) else (top < x)
    exact = wide(g.dtype)
    ties = sum_over(cast(~loses, exact), node.arg.axes)
    share = cast(cast(g, exact) / ties, g.dtype)
    return select(loses, x.lift(0.0), _spread(node, share))


def _extreme_at(node: Node, g: Node) -> Contributions:
    """d value_i = g where i is the index that won, else 0."""
    value, index = node.src
    won = index.eq(_spread(node, _part(node, 1)))
    return select(won, _spread(node, g), value.lift(0.0)), None


def _welford(node: Node, g: Node) -> Contributions:
    """With N = sum n_i, M = sum n_i mean_i / N and z = sum m2_i + sum n_i (mean_i - M)^2:

    dN / dn_i = 1;
    dM / d mean_i = n_i / N and dM / dn_i = (mean_i - M) / N;
    dz / d mean_i = 2 n_i (mean_i - M), dz / dn_i = (mean_i - M)^2 and dz / d m2_i = 1
    (what M contributes vanishes, as sum n_i (mean_i - M) = 0).
    """
    count, mean, _ = node.src
    g = _spread(node, g)
    if node.arg.part == 0:
        return g, None, None
    total = _spread(node, _part(node, 0))
    away = mean - _spread(node, _part(node, 1))
    if node.arg.part == 2:
        return g * away * away, g * count * away * 2.0, g
    share = g / select(total.eq(0.0), total.lift(1.0), total)
    return share * away, share * count, None


def _softmax_sum(node: Node, g: Node) -> Contributions:
    """With M = max m_i (ties share) and S = sum s_i e_i, where e_i = exp(m_i - M):

    dS / ds_i = e_i and dS / dm_i = s_i e_i - S dM / dm_i.
    """
    m, s = node.src
    if node.arg.part == 0:
        return _share_among_ties(node, m, node, g), None
    top = _part(node, 0)
    # Rows of -inf keep a finite reference, as in the monoid itself.
    low = top.eq(float("-inf"))
    e = Node(Op.EXP, (m - _spread(node, select(low, top.lift(0.0), top)),))
    through_max = _share_among_ties(node, m, top, g * node)
    g = _spread(node, g)
    return g * s * e - through_max, g * e


def _running_sum(node: Node, g: Node) -> Contributions:
    """z_k = sum of x_i for i <= k, so dx_i = sum of g_k for k >= i."""
    return (running_total(g, node.arg.axes[0], backwards=True),)


def _running_product(node: Node, g: Node) -> Contributions:
    """dx_i = (product of x_j, j < i) * sum over k >= i of g_k * (product of x_j, i < j <= k).

    The inner products are prefixes of the rows of a matrix, x_j above the diagonal and 1
    elsewhere: of quadratic size, but exact where x has zeros.
    """
    (x,) = node.src
    (axis,) = node.arg.axes
    order = [one for one in range(len(x.shape)) if one != axis] + [axis]
    row, g_row = permute(x, order), permute(g, order)
    last = len(order) - 1
    square = (*row.shape, row.shape[last])
    i, k = positions(square, last), positions(square, last + 1)
    factors = select(i < k, _repeat(row, square), full(square, 1.0, x.dtype))
    inner = Node(Op.SCAN, (factors,), Reduce(MUL, (last + 1,)))
    terms = select(k < i, inner.lift(0.0), _repeat(g_row, square) * inner)
    result = _product_before(row, last) * sum_over(terms, (last + 1,))
    return (permute(result, inverse(order)),)


def _repeat(row: Node, square: Shape) -> Node:
    """The last axis of `row` as each row of a square."""
    return spread(row, (len(square) - 2,), square)


def _running_extreme(node: Node, g: Node) -> Contributions:
    """dx_i = sum of g_k over the prefixes k whose extreme is x_i (the first, among equals)."""
    x = node.src[0]
    (axis,) = node.arg.axes
    monoid = ARGMAX if node.arg.monoid in (MAX, ARGMAX) else ARGMIN
    winner = Node(Op.SCAN, (x, positions(x.shape, axis)), Reduce(monoid, (axis,), 1))
    return put(g, winner, x.shape, axis), *(None for _ in node.src[1:])


REDUCE_RULES: dict[Monoid, Rule] = {
    ADD: _sum,
    MUL: _product,
    MAX: _extreme,
    MIN: _extreme,
    ARGMAX: _extreme_at,
    ARGMIN: _extreme_at,
    WELFORD: _welford,
    SOFTMAX_SUM: _softmax_sum,
}

SCAN_RULES: dict[Monoid, Rule] = {
    ADD: _running_sum,
    MUL: _running_product,
    MAX: _running_extreme,
    MIN: _running_extreme,
    ARGMAX: _running_extreme,
    ARGMIN: _running_extreme,
}
