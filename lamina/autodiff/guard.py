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
from collections.abc import Set as AbstractSet

from lamina.autodiff.movement import spread, sum_from_each, take
from lamina.autodiff.rules import VJP
from lamina.ir.build import select
from lamina.ir.monoids import ADD, MUL, SOFTMAX_SUM, WELFORD
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
        return VJP[node.op](live, node, *node.src)[0]
    if node.op is Op.SCATTER and number == 2:
        return take(live, node.src[1], node.arg.axis)
    if node.op is Op.SCAN:
        return sum_from_each(live, node.arg.axes[0])
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
    total, *others = dict.fromkeys(masks)
    for mask in others:
        if total is None or mask is None:
            return None
        total = total | mask
    return total


def _factor_may_be_infinite(node: Node, number: int) -> bool:
    if node.op in Group.REDUCTION:
        return node.arg.monoid in (MUL, WELFORD, SOFTMAX_SUM)
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
    node = _behind(node, _VIEWS - {Op.PAD, Op.SHEAR})
    return float(node.arg.value) if node.op is Op.CONST else math.nan


def _behind(node: Node, views: AbstractSet[Op]) -> Node:
    while node.op in views:
        node = node.src[0]
    return node
