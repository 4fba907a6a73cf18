"""Derivatives: one rule an operation, from the adjoint of the result to a contribution for each
operand, and the reverse sweep: adjoints from a result down to what it is differentiated by.

A rule takes g, the adjoint of the node, of its shape and dtype, z, the node, and its operands
x, y, ... It gives each operand a contribution of that operand's shape and dtype, or None for a
symbolic zero. Elementwise operations have their rules in their records (`lamina.ir.ops`). Every
operation is either in `VJP` or, with the reason, in `NOT_DIFFERENTIABLE`; for other monoids than
ADD there is `VJP_OF`. In the formulas of reductions x_i runs over the reduced elements, z is the
result and g its adjoint, both repeated along the reduced axes. A mask (dtype bool) is added up as
an adjoint is, with OR in place of the sum.

The sweep keeps NaN out of the branches of WHERE that were not taken. The adjoint of a branch is 0
wherever the other branch was chosen, but further down that 0 may meet a factor of infinity:
``where(x > 0, sqrt(x), 0)`` at x = 0 multiplies 0 by 1 / (2 sqrt(0)). So beside each adjoint that
comes from a WHERE goes a mask of the places where it is alive, and what passes an operation whose
factor may be infinite or NaN is selected by it: ``where(mask, adjoint * factor, 0)``.

Why a mask, and not a test for ``adjoint == 0``: an adjoint may also be 0 by its value (at the
minimum of a square, say), and to cut that one makes the second derivative wrong.

Why only beneath a WHERE: a selection costs little, but it would stand in every kernel. The masks
end at contractions (matrix products and convolutions), whose fast inner loop it would cost.
"""

import functools
import math
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from lamina.core.dtypes import accumulator, bool_, int64
from lamina.core.shape import Shape, prod, squeezed
from lamina.errors import GradientError
from lamina.graph.exponents import shares_of
from lamina.graph.moved_products import product_of_moved
from lamina.graph.places import is_true
from lamina.graph.recompute import Recomputed
from lamina.ir import build
from lamina.ir.build import broadcast_over, cast, flip, permute, reshape, select
from lamina.ir.monoids import (
    ADD,
    LINEAR_RECURRENCE,
    LOG_SUM_EXP,
    MAX,
    MIN,
    MUL,
    RECURRENCE,
    RUNNING_PRODUCT,
    SCALE,
    Monoid,
)
from lamina.ir.node import Node, const, constant_of, peel, toposort, type_text
from lamina.ir.ops import Combine, Group, Op, Ranks, Reduce, Scatter
from lamina.ir.products import READ_THROUGH, product_of
from lamina.ir.substitute import substitute

Contributions = Sequence[Node | None]
Rule = Callable[..., Contributions]
Mask = Node | None  # None is everywhere
Contribution = tuple[Node, Mask]  # what a consumer adds to a node's adjoint, and where it is alive


def _adding(x: Node) -> Monoid:
    return MAX if x.dtype is bool_ else ADD


def sum_over(x: Node, axes: Sequence[int]) -> Node:
    """The sum over `axes`, which vanish."""
    return cast(build.reduce(_adding(x), axes, cast(x, accumulator(x.dtype))), x.dtype)


def sum_from_each(x: Node, axis: int) -> Node:
    """At i the sum of the elements from i to the end of `axis`."""
    backwards = cast(flip(x, (axis,)), accumulator(x.dtype))
    total = Node(Op.SCAN, (backwards,), Reduce(_adding(x), (axis,)))
    return flip(cast(total, x.dtype), (axis,))


def inverse(order: Sequence[int]) -> list[int]:
    """The permutation that undoes `order`."""
    return sorted(range(len(order)), key=order.__getitem__)


def put(x: Node, index: Node, shape: Shape, axis: int) -> Node:
    """Zeros of `shape` with each element of `x` added at `index` along `axis`."""
    source = cast(x, accumulator(x.dtype))
    zeros = build.full(shape, 0, source.dtype)
    return cast(Node(Op.SCATTER, (zeros, index, source), Scatter(axis, _adding(x))), x.dtype)


def _product(g: Node, z: Node, x: Node) -> Contributions:
    """dx_i = g * (product of the others): those before i times those after i, so that zeros need
    no division."""
    last = len(z.shape)
    order = [axis for axis in range(len(x.shape)) if axis not in z.arg.axes] + [*z.arg.axes]
    moved = permute(x, order)
    row = reshape(moved, (*z.shape, prod(moved.shape[last:])))
    after = flip(_product_before(flip(row, (last,)), last), (last,))
    others = reshape(_product_before(row, last) * after, moved.shape)
    return (broadcast_over(g, z.arg.axes, x.shape) * permute(others, inverse(order)),)


def _product_before(x: Node, axis: int) -> Node:
    """At i the product of x_j for j < i along `axis`; 1 at the start."""
    return Node(Op.SCAN, (build.shifted(x, axis, 1.0),), Reduce(MUL, (axis,)))


def _running_product(g: Node, z: Node, x: Node) -> Contributions:
    """dx_i = (product of x_j, j < i) * sum over k >= i of g_k * (product of x_j, i < j <= k). No
    division, so it is exact where x has zeros."""
    (axis,) = z.arg.axes
    return (_product_before(x, axis) * _recurrence_from_end(x, g, axis),)


def _recurrence_from_end(a: Node, g: Node, axis: int) -> Node:
    """u_i = g_i + a_{i + 1} u_{i + 1} along `axis`, from the last element, where u_i = g_i, to the
    first."""
    exact = accumulator(g.dtype)
    factors = build.shifted(flip(cast(a, exact), (axis,)), axis, 1.0)
    backwards = flip(cast(g, exact), (axis,))
    recurrence = Node(Op.SCAN, (factors, backwards), Reduce(LINEAR_RECURRENCE, (axis,), RECURRENCE))
    return flip(cast(recurrence, g.dtype), (axis,))


def _linear_recurrence(g: Node, z: Node, a: Node, b: Node) -> Contributions:
    """For h_i = a_i h_{i - 1} + b_i: db_i = g_i + a_{i + 1} db_{i + 1}, and da_i = h_{i - 1} db_i.
    The other component is the running product of a."""
    (axis,) = z.arg.axes
    if z.arg.component == RUNNING_PRODUCT:
        return (*_running_product(g, z, a), None)
    db = _recurrence_from_end(a, g, axis)
    return build.shifted(z, axis, 0.0) * db, db


def _log_sum_exp(g: Node, z: Node, x: Node, t: Node) -> Contributions:
    """For s_k, the sum of t_i e^(x_i - m_k): dt_i = the sum over k >= i of g_k e^(x_i - m_k), and
    dx_i = t_i dt_i. The scale m, the other component, counts as a constant: what both stand for,
    s e^m, is the same for any m."""
    if z.arg.component == SCALE:
        return None, None
    (axis,) = z.arg.axes
    scale = Node(Op.DETACH, (Node(Op.SCAN, z.src, Reduce(LOG_SUM_EXP, (axis,), SCALE)),))
    shares = shares_of(x, scale, axis)
    dt = shares.added * _recurrence_from_end(shares.before, g, axis)
    return t * dt, dt


def _extreme(g: Node, z: Node, x: Node) -> Contributions:
    """`g` split evenly among the elements of `x` that equal `z` (all, when that is NaN)."""
    top = broadcast_over(z, z.arg.axes, x.shape)
    loses = (x < top) if z.arg.monoid is MAX else (top < x)
    exact = accumulator(g.dtype)
    ties = sum_over(cast(~loses, exact), z.arg.axes)
    share = cast(cast(g, exact) / ties, g.dtype)
    return (select(loses, x.lift(0.0), broadcast_over(share, z.arg.axes, x.shape)),)


def _running_extreme(g: Node, z: Node, x: Node) -> Contributions:
    """dx_i = sum of g_k over the prefixes k whose extreme is x_i: of equal ones the last, as in
    PyTorch."""
    (axis,) = z.arg.axes
    return (put(g, build.latest_extremes(x, z, axis), x.shape, axis),)


def _expand(g: Node, z: Node, x: Node) -> Contributions:
    """dx = g summed over the axes that were added or repeated."""
    padded = (None,) * (len(z.shape) - len(x.shape)) + x.shape
    repeated = [axis for axis, size in enumerate(z.shape) if padded[axis] != size]
    return (reshape(sum_over(g, repeated), x.shape),)


def _pad(g: Node, z: Node, x: Node) -> Contributions:
    """dx = g without the margins."""
    inside = zip(z.arg.before, x.shape, strict=True)
    return (_cut(g, [range(low, low + size) for low, size in inside]),)


def _cut(x: Node, ranges: Sequence[range]) -> Node:
    """``build.sliced(x, ranges)``, but of a sum what is cut off is not added up: the derivative of
    windows by a padded image of 13 x 13, of which 7 x 7 are the image."""
    if x.op is Op.CAST:
        return cast(_cut(x.src[0], ranges), x.dtype)
    if x.op is Op.RESHAPE and squeezed(x.shape) == squeezed(x.src[0].shape):
        of_long_axes = iter(part for part, size in zip(ranges, x.shape, strict=True) if size != 1)
        inner = [range(1) if size == 1 else next(of_long_axes) for size in x.src[0].shape]
        cut = _cut(x.src[0], inner)
        return reshape(cut, tuple(map(len, ranges)))
    if x.op is Op.REDUCE and len(x.src) == 1:
        of_results = iter(ranges)
        every = enumerate(x.src[0].shape)
        inner = [range(size) if axis in x.arg.axes else next(of_results) for axis, size in every]
        return Node(Op.REDUCE, (build.sliced(x.src[0], inner),), x.arg)
    return build.sliced(x, ranges)


def _shrink(g: Node, z: Node, x: Node) -> Contributions:
    """dx = g at the places that were read, and zeros elsewhere."""
    place = _windows_at if x.op is Op.SHEAR else build.pad_to_ranges
    return (place(g, z.arg, x.shape),)


def _windows_at(g: Node, ranges: Sequence[range], shape: Shape) -> Node:
    """`g`, the adjoint of windows, at a range of each axis of `shape`: each factor of a product, or
    each operand of a selection, by itself, so that the sum over the windows tests no bounds.

    Of a product with a factor that is repeated along the axes that grow, the other factor is placed
    among zeros. These meet what is repeated, as where a convolution pads its input: 0 * inf is NaN
    in both. Of a selection of values or zeros the values are placed among zeros, the condition
    among anything.
    """
    grown = _grown(ranges, g.shape, shape)
    product = product_of_moved(g)
    factors = () if product is None else product.src
    for number, factor in enumerate(factors):
        if _is_repeated(factor, grown):
            placed = _placed(factors[1 - number], ranges, shape)
            return placed * build.expand(factor.src[0], placed.shape)
    if g.op is Op.WHERE and constant_of(g.src[2]) == 0:
        values = _placed(g.src[1], ranges, shape)
        condition = _among_anything(g.src[0], ranges, shape)
        return select(condition, values, values.lift(0.0))
    return build.pad_to_ranges(g, ranges, shape)


def _grown(ranges: Sequence[range], sizes: Shape, shape: Shape) -> list[int]:
    """The axes along which `ranges` of `shape` are not all of it, in order."""
    every = enumerate(zip(ranges, sizes, shape, strict=True))
    return [axis for axis, (places, size, all_) in every if places != range(all_) or size != all_]


def _is_repeated(x: Node, axes: Sequence[int]) -> bool:
    """Is `x` one element that is repeated, along each of `axes`?"""
    if x.op is not Op.EXPAND:
        return False
    once = (1,) * (len(x.shape) - len(x.src[0].shape)) + x.src[0].shape
    return all(once[axis] == 1 for axis in axes)


def _placed(x: Node, ranges: Sequence[range], shape: Shape) -> Node:
    """``build.pad_to_ranges(x, ranges, shape)``. What is repeated along axes that do not grow is
    placed once, before that, so that it can be stored once."""
    if x.op is not Op.EXPAND:
        return build.pad_to_ranges(x, ranges, shape)
    once = reshape(x.src[0], (1,) * (len(x.shape) - len(x.src[0].shape)) + x.src[0].shape)
    grown = _grown(ranges, x.shape, shape)
    if any(once.shape[axis] != x.shape[axis] for axis in grown):
        return build.pad_to_ranges(x, ranges, shape)
    sizes, places = list(once.shape), [*map(range, once.shape)]
    for axis in grown:
        sizes[axis], places[axis] = shape[axis], ranges[axis]
    return build.expand(build.pad_to_ranges(once, places, tuple(sizes)), shape)


def _among_anything(x: Node, ranges: Sequence[range], shape: Shape) -> Node:
    """`x` at ranges of `shape`, among what is the least to compute: arithmetic is computed of its
    operands that are placed so, and of an element that is repeated there are more."""
    grown = _grown(ranges, x.shape, shape)
    arithmetic = toposort([x], lambda node: node.op in Group.ELEMENTWISE)
    operands = {operand for node in arithmetic for operand in node.src} or {x}
    larger = {
        leaf: build.expand(leaf.src[0], shape)
        if _is_repeated(leaf, grown)
        else _placed(leaf, ranges, shape)
        for leaf in operands
        if leaf.op not in Group.ELEMENTWISE
    }
    return substitute([x], larger)[0]


def _shear(g: Node, z: Node, x: Node) -> Contributions:
    """dx[j, k] = g[j + k s, k]: sheared back by -s. That puts ``g[i - (K - 1 - k) s, k]`` at i, so
    x's elements start at (K - 1) s; by symmetry the same holds for negative s with abs(s)."""
    axis, by, step = z.arg
    back = build.shear(g, axis, by, -step)
    return (build.slice_axis(back, axis, z.shape[axis] - x.shape[axis], z.shape[axis]),)


def _overwrite(g: Node, z: Node, base: Node, index: Node, update: Node) -> Contributions:
    """d base = g, and 0 where it was overwritten; d update = g read at the index, and 0 where a
    later update took the place: scattering positions in the same way finds the last writer."""
    axis = z.arg.axis
    kept = Node(Op.SCATTER, (g, index, update.lift(0.0)), z.arg)
    order = build.broadcasted_iota(index.shape, axis)
    last = Node(Op.SCATTER, (build.full(z.shape, -1, int64), index, order), z.arg)
    won = Node(Op.GATHER, (last, index), axis).eq(order)
    return kept, None, select(won, Node(Op.GATHER, (g, index), axis), update.lift(0.0))


def _scatter_extreme(g: Node, z: Node, base: Node, index: Node, update: Node) -> Contributions:
    """g split evenly among the base and the updates that equal the result at that place."""
    axis, exact = z.arg.axis, accumulator(z.dtype)
    in_base, in_update = base.eq(z), update.eq(Node(Op.GATHER, (z, index), axis))
    counted = (cast(in_base, exact), index, cast(in_update, exact))
    share = cast(cast(g, exact) / Node(Op.SCATTER, counted, Scatter(axis, ADD)), g.dtype)
    shared = select(in_update, Node(Op.GATHER, (share, index), axis), update.lift(0.0))
    return select(in_base, share, base.lift(0.0)), None, shared


def _copy(g: Node, z: Node, x: Node) -> Contributions:
    """dx = g on x's device; constants live anywhere."""
    homes = [node.arg for node in toposort([x]) if node.op in (Op.COPY, Op.BUFFER)]
    return (Node(Op.COPY, (g,), getattr(homes[-1], "device", homes[-1])) if homes else g,)


# Collectives. Each rank differentiates a result of its own, and these rules what the results of all
# ranks add up to: g is its adjoint by the z of this rank, and dx by the x of this rank.


def _all_gather(g: Node, z: Node, x: Node) -> Contributions:
    """dx = the part of each rank's g that is about this x, added up."""
    return (Node(Op.REDUCE_SCATTER, (g,), Combine(ADD, *z.arg)),)


def _reduce_scatter(g: Node, z: Node, x: Node) -> Contributions:
    """dx_i = g of rank i."""
    return (Node(Op.ALL_GATHER, (g,), Ranks(z.arg.ranks, z.arg.stride)),)


def _broadcast(g: Node, z: Node, x: Node) -> Contributions:
    """dx = the g of all ranks added up for the root, and 0 for others: each rank sends the root its
    g, and others zeros."""
    root = range(z.arg.root, z.arg.root + 1)
    elements = [root, *map(range, x.shape)]
    one_for_each = build.pad_to_ranges(
        build.insert_axes(g, (0,)), elements, (z.arg.ranks, *x.shape)
    )
    combine = Combine(ADD, z.arg.ranks, z.arg.stride)
    return (Node(Op.REDUCE_SCATTER, (one_for_each,), combine),)


def _collective_permute(g: Node, z: Node, x: Node) -> Contributions:
    """dx = g of the rank that got x; 0 if none did. Targets (1, 2, -1) become (-1, 0, 1)."""
    targets = z.arg.targets
    places = range(z.arg.ranks)
    back = tuple(targets.index(place) if place in targets else -1 for place in places)
    return (Node(Op.COLLECTIVE_PERMUTE, (g,), z.arg._replace(targets=back)),)


def _all_reduce_of(g: Node, z: Node, x: Node) -> Contributions:
    """That of the reduction of what all ranks have, of which each rank keeps the part of its x."""
    ranks = Ranks(z.arg.ranks, z.arg.stride)
    of_all = _of_reduced_ranks(g, z.arg.monoid, Node(Op.ALL_GATHER, (x,), ranks))
    return (Node(Op.REDUCE_SCATTER, (of_all,), Combine(ADD, *ranks)),)


def _reduce_scatter_of(g: Node, z: Node, x: Node) -> Contributions:
    """That of the reduction of what all ranks have for this one, which they get back."""
    ranks = Ranks(z.arg.ranks, z.arg.stride)
    of_this = _of_reduced_ranks(g, z.arg.monoid, Node(Op.ALL_TO_ALL, (x,), ranks))
    return (Node(Op.ALL_TO_ALL, (of_this,), ranks),)


def _of_reduced_ranks(g: Node, monoid: Monoid, gathered: Node) -> Node:
    """The derivative of a reduction along the first axis of `gathered`, its ranks."""
    total = Node(Op.REDUCE, (gathered,), Reduce(monoid, (0,)))
    (derivative,) = VJP_OF[Op.REDUCE][monoid](g, total, gathered)
    assert derivative is not None
    return derivative


# Operations that only move and add elements: masks take the same ways as adjoints.
MOVES: dict[Op, Rule] = {
    Op.REDUCE: lambda g, z, *parts: (broadcast_over(g, z.arg.axes, parts[0].shape),),
    Op.SCAN: lambda g, z, *parts: (sum_from_each(g, z.arg.axes[0]),) * len(parts),
    Op.RESHAPE: lambda g, z, x: (reshape(g, x.shape),),
    Op.EXPAND: _expand,
    Op.PERMUTE: lambda g, z, x: (permute(g, inverse(z.arg)),),
    Op.PAD: _pad,
    Op.SHRINK: _shrink,
    Op.SHEAR: _shear,
    Op.GATHER: lambda g, z, x, index: (put(g, index, x.shape, z.arg), None),
    Op.SCATTER: lambda g, z, base, index, x: (g, None, Node(Op.GATHER, (g, index), z.arg.axis)),
}
_RECORDED: dict[Op, Any] = {op: op.value.derivative for op in Op if op.value.derivative}
VJP: dict[Op, Rule] = MOVES | {
    **{op: rule for op, rule in _RECORDED.items() if not isinstance(rule, str)},
    **dict.fromkeys((Op.ASSIGN, Op.CUSTOM_DERIVATIVE), lambda g, z, x, y: (None, g)),
    Op.COPY: _copy,
    Op.ALL_REDUCE: lambda g, z, x: (Node(Op.ALL_REDUCE, (g,), z.arg),),
    Op.ALL_GATHER: _all_gather,
    Op.REDUCE_SCATTER: _reduce_scatter,
    Op.BROADCAST: _broadcast,
    Op.ALL_TO_ALL: lambda g, z, x: (Node(Op.ALL_TO_ALL, (g,), z.arg),),
    Op.COLLECTIVE_PERMUTE: _collective_permute,
    **dict.fromkeys((Op.CONTIGUOUS, Op.AGAIN), lambda g, z, x: (g,)),
    Op.RECOMPUTED: lambda g, z, x, y: (g, None),
    Op.DETACH: lambda g, z, x: (None,),
}

VJP_OF: dict[Op, dict[Monoid | None, Rule]] = {
    Op.REDUCE: {MUL: _product, MAX: _extreme, MIN: _extreme},
    Op.SCAN: {
        MUL: _running_product,
        MAX: _running_extreme,
        MIN: _running_extreme,
        LINEAR_RECURRENCE: _linear_recurrence,
        LOG_SUM_EXP: _log_sum_exp,
    },
    Op.ALL_REDUCE: dict.fromkeys((MUL, MAX, MIN), _all_reduce_of),
    Op.REDUCE_SCATTER: dict.fromkeys((MUL, MAX, MIN), _reduce_scatter_of),
    Op.SCATTER: {None: _overwrite, MAX: _scatter_extreme, MIN: _scatter_extreme},
}
NOT_DIFFERENTIABLE: dict[Op, str] = {
    **{op: reason for op, reason in _RECORDED.items() if isinstance(reason, str)},
    Op.ARGSORT: "bools and integers have no derivative",
    Op.BIN_SUM: "differentiation comes before devices",
    **dict.fromkeys(Group.LEAF, "a leaf has no operands"),
    **dict.fromkeys(Group.KERNEL, "differentiation comes before kernels are made"),
}

# The sweep.

_NONLINEAR = Group.TRANSCENDENTAL | {Op.MUL, Op.DIV, Op.POW, Op.MOD}
_VIEWS = Group.MOVEMENT | {Op.CAST, Op.CONTIGUOUS}


def gradient(y: Node, wrt: Sequence[Node], seed: Node | None = None) -> list[Node | None]:
    """The adjoints of `wrt`: the derivative of ``sum(seed * y)`` by each of them.

    y: float; of shape () unless a seed is given. wrt: float nodes, leaves or inner ones.
    seed: shape and dtype of `y`; 1 by default. Each result has the shape and dtype of its node,
    and can be differentiated again; None is a symbolic zero: no differentiable path leads from
    that node to `y`. Raises GradientError for dtypes without a derivative, for a seed that does
    not fit, and for operations on the way that have no derivative.

    Source: Griewank and Walther 2008, "Evaluating Derivatives", section 3.2.
    """
    for what, node in [("y", y), *((f"wrt[{i}]", leaf) for i, leaf in enumerate(wrt))]:
        if not node.dtype.is_float:
            advice = "take its real and imaginary parts" if node.dtype.is_complex else "cast it"
            raise GradientError(
                f"{what} is {node.dtype.name}, not a float: {advice}", operation="gradient"
            )
    seed = const(1.0, y.dtype) if seed is None else seed
    ours, theirs = (type_text(node.dtype, node.shape) for node in (seed, y))
    if ours != theirs:
        raise GradientError(
            f"the seed is {ours} but y is {theirs}: sum it to (), or pass a seed that fits",
            operation="gradient",
        )
    order = toposort([y])
    cone = depends_on(wrt, order)
    recomputed = Recomputed(order)
    adjoints: dict[Node, Node] = {}
    pending: dict[Node, list[Contribution]] = {y: [(seed, None)]}
    for node in reversed(order):
        if node not in cone or node not in pending:
            continue
        pieces, masks = zip(*pending.pop(node), strict=True)
        adjoints[node] = adjoint = functools.reduce(operator.add, pieces)
        if not cone.isdisjoint(node.src):
            live = None if None in masks else functools.reduce(operator.or_, dict.fromkeys(masks))
            for operand, contribution in _contributions(node, adjoint, live, cone, recomputed):
                pending.setdefault(operand, []).append(contribution)
    return [adjoints.get(node) for node in wrt]


def transposed(result: Node, like: Node, seed: Node) -> Node:
    """What the transpose of a linear function makes of `seed`, in the shape of `like`: that of the
    function which leads from `like`, by way of first operands, to `result`. Integers have it too,
    which have no derivative."""
    while result is not like:
        adjoint: Any = VJP[result.op](seed, result, *result.src)[0]
        seed, result = adjoint, result.src[0]
    return cast(seed, like.dtype)


def depends_on(wrt: Sequence[Node], order: list[Node]) -> set[Node]:
    """The nodes of `order` that a path of continuous values links to one of `wrt`."""
    cone = set(wrt)
    for node in order:
        continuous = node.dtype.is_float or node.dtype.is_complex
        if continuous and node.op is not Op.DETACH and not cone.isdisjoint(node.src):
            cone.add(node)
    return cone


def _contributions(
    node: Node, adjoint: Node, live: Mask, cone: set[Node], recomputed: Recomputed
) -> Iterable[tuple[Node, Contribution]]:
    """What `node` adds to the adjoint of each operand in the cone."""
    kind = Op.COMPLEX if node.dtype.is_complex else node.op
    monoid = node.arg.monoid if kind in VJP_OF else ADD
    rule = VJP.get(kind) if monoid is ADD else VJP_OF[kind].get(monoid)
    if rule is None:
        name, of = node.op.name.lower(), type_text(node.dtype, node.shape)
        reason = NOT_DIFFERENTIABLE.get(kind) or f"{name} with {monoid} has no rule"
        raise GradientError(
            f"{name} of {of} has no derivative: {reason}; detach it", operation="gradient"
        )
    pieces = rule(adjoint, recomputed(node), *map(recomputed, node.src))
    for number, (operand, piece) in enumerate(zip(node.src, pieces, strict=True)):
        if piece is not None and operand in cone:
            mask = _beneath(node, number, live)
            if mask is not None and _factor_may_be_infinite(node, number):
                piece = select(mask, piece, piece.lift(0.0))
            yield operand, (piece, mask)


def _beneath(node: Node, number: int, live: Mask) -> Mask:
    """The mask of operand `number` of `node`, given that of `node`: it moves as an adjoint does.
    That of a collective is everywhere: on which ranks its result is alive is not known here."""
    if node.op is Op.WHERE:
        taken = node.src[0] if number == 1 else ~node.src[0]
        return taken if live is None else live & taken
    is_contraction = node.op is Op.REDUCE and _multiplies_repeated(node)
    if live is None or is_contraction or node.op in Group.COLLECTIVE:
        return None
    mask = MOVES[node.op](live, node, *node.src)[number] if node.op in MOVES else live
    # A part of a concatenation is alive in all of its places, and a gather beneath it is spared the
    # scatter of a mask.
    return None if node.op is Op.PAD and mask is not None and is_true(mask) else mask


def _factor_may_be_infinite(node: Node, number: int) -> bool:
    if node.op in Group.REDUCTION:
        return node.arg.monoid in (MUL, LINEAR_RECURRENCE, LOG_SUM_EXP)
    if node.op is Op.MUL or (node.op is Op.DIV and number == 0):
        factor = constant_of(node.src[1 - number])
        return not factor or not math.isfinite(factor.real)
    return node.op in _NONLINEAR


def _multiplies_repeated(node: Node) -> bool:
    """Whether `node` sums products of two broadcast operands. Those of a transposed convolution are
    moved to where they are added up."""
    product = product_of(node, READ_THROUGH)
    return product is not None and all(
        peel(factor, _VIEWS - {Op.EXPAND}).op is Op.EXPAND for factor in product.src
    )
