"""Keeping NaN out of the branches of WHERE that were not taken.

The adjoint of a branch is 0 wherever the other branch was chosen, but further down that 0 may
meet a factor of infinity: ``where(x > 0, sqrt(x), 0)`` at x = 0 multiplies 0 by 1 / (2 sqrt(0)).
So the sweep carries, beside each adjoint that comes from a WHERE, a mask of the places where it
is alive, and what passes an operation whose factor may be infinite or NaN is selected by it:
``where(mask, adjoint * factor, 0)``.

Why a mask, and not a test for ``adjoint == 0``: an adjoint may also be 0 by its value (at the
minimum of a square, say). Cutting that one leaves the first derivative right and makes the second
wrong. The mask is zero by structure only, so every order of derivative is right.

Why only beneath a WHERE: a selection costs little, but it would stand in every kernel. For the
same reason the masks end at contractions (matrix products and convolutions): a selection inside
their sums would cost them the fast inner loop.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from lamina.autodiff.movement import running_total, spread
from lamina.autodiff.rules import VJP
from lamina.ir import monoids
from lamina.ir.build import select
from lamina.ir.node import Node
from lamina.ir.ops import Group, Op

_NONLINEAR = Group.TRANSCENDENTAL | {Op.MUL, Op.DIV, Op.POW, Op.MOD}
_VIEWS = Group.MOVEMENT | {Op.CAST, Op.CONTIGUOUS}


def beneath(node: Node, number: int, live: Node | None) -> Node | None:
    """The mask of operand `number` of `node`, given that of `node`; None is everywhere.

    A mask moves as an adjoint does, with OR in place of the sum.
    """
    if node.op is Op.WHERE:
        taken = node.src[0] if number == 1 else ~node.src[0]
        return taken if live is None else live & taken
    if live is None:
        return None
    if node.op in Group.MOVEMENT or node.op is Op.GATHER:
        return VJP[node.op](node, live)[0]
    if node.op is Op.SCATTER and number == 2:
        return Node(Op.GATHER, (live, node.src[1]), node.arg.axis)
    if node.op is Op.SCAN:
        return running_total(live, node.arg.axes[0], backwards=True)
    if node.op is Op.REDUCE:
        return None if _is_contraction(node) else spread(live, node.arg.axes, node.src[0].shape)
    return live


def guarded(node: Node, number: int, piece: Node, mask: Node | None) -> Node:
    """`piece`, the contribution of `node` to operand `number`, with exact zeros off the mask."""
    if mask is None or not _factor_may_be_infinite(node, number):
        return piece
    return select(mask, piece, piece.lift(0.0))


def union(masks: Sequence[Node | None]) -> Node | None:
    """Where at least one of the masks is true; None is everywhere."""
    total: Node | None = masks[0]
    for mask in dict.fromkeys(masks[1:]):
        if total is None or mask is None:
            return None
        total = total if mask is total else total | mask
    return total


def _factor_may_be_infinite(node: Node, number: int) -> bool:
    if node.op in Group.REDUCTION:
        return node.arg.monoid in (monoids.MUL, monoids.WELFORD, monoids.SOFTMAX_SUM)
    if node.op is Op.MUL:
        return not _is_finite_constant(node.src[1 - number])
    if node.op is Op.DIV and number == 0:
        return not _is_nonzero_constant(node.src[1])
    return node.op in _NONLINEAR


def _is_contraction(node: Node) -> bool:
    """Whether `node` sums products of two broadcast operands."""
    product = node.src[0]
    while product.op is Op.CAST:
        product = product.src[0]
    if node.arg.monoid is not monoids.ADD or product.op is not Op.MUL:
        return False
    return all(_is_broadcast(factor) for factor in product.src)


def _is_broadcast(node: Node) -> bool:
    while node.op in _VIEWS:
        if node.op is Op.EXPAND:
            return True
        node = node.src[0]
    return False


def _is_finite_constant(node: Node) -> bool:
    while node.op in _VIEWS - {Op.PAD}:
        node = node.src[0]
    return node.op is Op.CONST and math.isfinite(node.arg.value)


def _is_nonzero_constant(node: Node) -> bool:
    while node.op in _VIEWS - {Op.PAD, Op.SHEAR}:
        node = node.src[0]
    return node.op is Op.CONST and not (math.isnan(node.arg.value) or node.arg.value == 0)
