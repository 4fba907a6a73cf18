"""The reverse sweep: adjoints from a result down to what it is differentiated by."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lamina.autodiff.guard import beneath, guarded, union
from lamina.autodiff.rules import NOT_DIFFERENTIABLE, VJP
from lamina.errors import GradientError
from lamina.ir.node import Node, const, toposort, type_text
from lamina.ir.ops import Op

# What a consumer adds to a node's adjoint, and the mask outside which it is zero because a WHERE
# chose otherwise; None is everywhere.
Contribution = tuple[Node, Node | None]


def gradient(y: Node, wrt: Sequence[Node], seed: Node | None = None) -> list[Node | None]:
    """The adjoints of `wrt`: the derivative of ``sum(seed * y)`` by each of them.

    y: float; of shape () unless a seed is given. wrt: float nodes, leaves or inner ones.
    seed: shape and dtype of `y`; ones by default. Each result has the shape and dtype of its
    node; None is a symbolic zero: no differentiable path leads from that node to `y`.

    The results are nodes of the same graph and can be differentiated again. Raises GradientError
    for dtypes without a derivative, for a seed that does not fit, and for operations on the way
    that have no derivative.

    Source: Griewank and Walther 2008, "Evaluating Derivatives", section 3.2.
    """
    for what, node in [("y", y), *((f"wrt[{i}]", one) for i, one in enumerate(wrt))]:
        _check_float(what, node)
    order = toposort([y])
    cone = _depends_on(wrt, order)
    found: dict[Node, Node] = {}
    pending: dict[Node, list[Contribution]] = {y: [(_checked_seed(y, seed), None)]}
    for node in reversed(order):
        if node not in cone or node not in pending:
            continue
        pieces, masks = zip(*pending.pop(node), strict=True)
        found[node] = adjoint = _total(pieces)
        if any(operand in cone for operand in node.src):
            for operand, contribution in _contributions(node, adjoint, union(masks), cone):
                pending.setdefault(operand, []).append(contribution)
    return [found.get(node) for node in wrt]


def _contributions(
    node: Node, adjoint: Node, live: Node | None, cone: set[Node]
) -> Iterable[tuple[Node, Contribution]]:
    """What `node` adds to the adjoint of each operand in the cone."""
    reason = NOT_DIFFERENTIABLE.get(Op.COMPLEX if node.dtype.is_complex else node.op)
    if reason is not None:
        raise GradientError(
            f"gradient: {node.op.name.lower()} of {type_text(node.dtype, node.shape)} has no "
            f"derivative: {reason}; detach it"
        )
    pieces = VJP[node.op](adjoint, node, *node.src)
    for number, (operand, piece) in enumerate(zip(node.src, pieces, strict=True)):
        if piece is not None and operand in cone:
            mask = beneath(node, number, live)
            yield operand, (guarded(node, number, piece, mask), mask)


def _total(pieces: Sequence[Node]) -> Node:
    total = pieces[0]
    for piece in pieces[1:]:
        total = total + piece
    return total


def _depends_on(wrt: Sequence[Node], order: list[Node]) -> set[Node]:
    """The nodes of `order` that a path of continuous values links to one of `wrt`."""
    cone = set(wrt)
    for node in order:
        continuous = node.dtype.is_float or node.dtype.is_complex
        if continuous and node.op is not Op.DETACH and any(one in cone for one in node.src):
            cone.add(node)
    return cone


def _check_float(what: str, node: Node) -> None:
    if not node.dtype.is_float:
        advice = "take its real and imaginary parts" if node.dtype.is_complex else "cast it"
        raise GradientError(
            f"gradient: {what} is {node.dtype.name}; only floats have derivatives: {advice}"
        )


def _checked_seed(y: Node, seed: Node | None) -> Node:
    if seed is None and y.shape:
        raise GradientError(
            f"gradient: y has shape {y.shape}, not (): reduce it to one number, or pass a seed"
        )
    if seed is None:
        return const(1.0, y.dtype)
    ours, theirs = type_text(seed.dtype, seed.shape), type_text(y.dtype, y.shape)
    if ours != theirs:
        raise GradientError(f"gradient: the seed is {ours} but y is {theirs}")
    return seed
