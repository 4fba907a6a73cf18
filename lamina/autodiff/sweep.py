"""The reverse sweep: adjoints from a result down to what it is differentiated by.

It keeps NaN out of the branches of WHERE that were not taken. The adjoint of a branch is 0
wherever the other branch was chosen, but further down that 0 may meet a factor of infinity:
``where(x > 0, sqrt(x), 0)`` at x = 0 multiplies 0 by 1 / (2 sqrt(0)). So beside each adjoint that
comes from a WHERE goes a mask of the places where it is alive, and what passes an operation whose
factor may be infinite or NaN is selected by it: ``where(mask, adjoint * factor, 0)``.

Why a mask, and not a test for ``adjoint == 0``: an adjoint may also be 0 by its value (at the
minimum of a square, say), and to cut that one makes the second derivative wrong.

Why only beneath a WHERE: a selection costs little, but it would stand in every kernel. The masks
end at contractions (matrix products and convolutions), whose fast inner loop it would cost.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from functools import reduce

from lamina.autodiff.rules import MOVES, NOT_DIFFERENTIABLE, VJP, VJP_OF
from lamina.errors import GradientError
from lamina.ir.build import select
from lamina.ir.monoids import ADD, MUL
from lamina.ir.node import Node, const, constant_of, toposort, type_text
from lamina.ir.ops import Group, Op

Mask = Node | None  # None is everywhere
Contribution = tuple[Node, Mask]  # what a consumer adds to a node's adjoint, and where it is alive

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
    _check_floats(y, wrt)
    order = toposort([y])
    cone = _depends_on(wrt, order)
    found: dict[Node, Node] = {}
    pending: dict[Node, list[Contribution]] = {y: [(_checked_seed(y, seed), None)]}
    for node in reversed(order):
        if node not in cone or node not in pending:
            continue
        pieces, masks = zip(*pending.pop(node), strict=True)
        found[node] = adjoint = reduce(operator.add, pieces)
        if not cone.isdisjoint(node.src):
            live = None if None in masks else reduce(operator.or_, dict.fromkeys(masks))
            for operand, contribution in _contributions(node, adjoint, live, cone):
                pending.setdefault(operand, []).append(contribution)
    return [found.get(node) for node in wrt]


def _check_floats(y: Node, wrt: Sequence[Node]) -> None:
    for what, node in [("y", y), *((f"wrt[{i}]", one) for i, one in enumerate(wrt))]:
        if not node.dtype.is_float:
            advice = "take its real and imaginary parts" if node.dtype.is_complex else "cast it"
            raise GradientError(f"gradient: {what} is {node.dtype.name}, not a float: {advice}")


def _checked_seed(y: Node, seed: Node | None) -> Node:
    if seed is None and y.shape:
        raise GradientError(f"gradient: y has shape {y.shape}: sum it to (), or pass a seed")
    seed = const(1.0, y.dtype) if seed is None else seed
    ours, theirs = type_text(seed.dtype, seed.shape), type_text(y.dtype, y.shape)
    if ours != theirs:
        raise GradientError(f"gradient: the seed is {ours} but y is {theirs}")
    return seed


def _depends_on(wrt: Sequence[Node], order: list[Node]) -> set[Node]:
    """The nodes of `order` that a path of continuous values links to one of `wrt`."""
    cone = set(wrt)
    for node in order:
        continuous = node.dtype.is_float or node.dtype.is_complex
        if continuous and node.op is not Op.DETACH and not cone.isdisjoint(node.src):
            cone.add(node)
    return cone


def _contributions(
    node: Node, adjoint: Node, live: Mask, cone: set[Node]
) -> Iterable[tuple[Node, Contribution]]:
    """What `node` adds to the adjoint of each operand in the cone."""
    kind, monoid = node.op, getattr(node.arg, "monoid", ADD)
    if node.dtype.is_complex:
        kind = Op.COMPLEX
    rule = VJP.get(kind) if monoid is ADD else VJP_OF.get(kind, {}).get(monoid)
    if rule is None:
        name, of = node.op.name.lower(), type_text(node.dtype, node.shape)
        reason = NOT_DIFFERENTIABLE.get(kind) or f"{name} with {monoid} has no rule"
        raise GradientError(f"gradient: {name} of {of} has no derivative: {reason}; detach it")
    pieces = rule(adjoint, node, *node.src)
    for number, (operand, piece) in enumerate(zip(node.src, pieces, strict=True)):
        if piece is not None and operand in cone:
            mask = _beneath(node, number, live)
            if mask is not None and _factor_may_be_infinite(node, number):
                piece = select(mask, piece, piece.lift(0.0))
            yield operand, (piece, mask)


def _beneath(node: Node, number: int, live: Mask) -> Mask:
    """The mask of operand `number` of `node`, given that of `node`: it moves as an adjoint does."""
    if node.op is Op.WHERE:
        taken = node.src[0] if number == 1 else ~node.src[0]
        return taken if live is None else live & taken
    if live is None or (node.op is Op.REDUCE and _is_contraction(node)):
        return None
    return MOVES[node.op](live, node, *node.src)[number] if node.op in MOVES else live


def _factor_may_be_infinite(node: Node, number: int) -> bool:
    if node.op in Group.REDUCTION:
        return node.arg.monoid is MUL
    if node.op is Op.MUL:
        return not math.isfinite(_constant(node.src[1 - number]))
    if node.op is Op.DIV and number == 0:
        return not abs(_constant(node.src[1])) > 0.0
    return node.op in _NONLINEAR


def _is_contraction(node: Node) -> bool:
    """Whether `node` sums products of two broadcast operands."""
    product = _behind(node.src[0], {Op.CAST})
    return node.arg.monoid is ADD and product.op is Op.MUL and all(
        _behind(factor, _VIEWS - {Op.EXPAND}).op is Op.EXPAND for factor in product.src
    )  # fmt: skip


def _constant(node: Node) -> float:
    """The one value of every element of `node`; NaN if there is none."""
    value = constant_of(node)
    return math.nan if value is None else float(value.real)


def _behind(node: Node, views: AbstractSet[Op]) -> Node:
    while node.op in views:
        node = node.src[0]
    return node
