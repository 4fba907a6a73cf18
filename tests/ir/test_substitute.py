"""Substitution: against building the same formula with the other node from the start."""

from __future__ import annotations

from lamina.core.dtypes import float32
from lamina.ir.build import unary
from lamina.ir.node import Node
from lamina.ir.ops import BufferRef, Op
from lamina.ir.substitute import substitute, with_operands


def leaf(number: int) -> Node:
    return Node(Op.BUFFER, (), BufferRef(number, (4,), float32, ""))


X, Y, Z = leaf(0), leaf(1), leaf(2)


def test_every_use_is_replaced() -> None:
    assert substitute([(X + Y) * X, X, Y], {X: Z}) == [(Z + Y) * Z, Z, Y]


def test_an_inner_node_is_replaced_with_all_beneath_it() -> None:
    total = X + Y
    assert substitute([unary(Op.EXP, total) * X], {total: Z}) == [unary(Op.EXP, Z) * X]


def test_a_replacement_may_hold_what_it_replaces() -> None:
    assert substitute([X * Y], {X: X + Y}) == [(X + Y) * Y]


def test_what_holds_no_replaced_node_is_the_same_object() -> None:
    total = X + Y
    (result,) = substitute([total], {Z: X})
    assert result is total


def test_rebuild_makes_every_other_node() -> None:
    def without_negation(node: Node, src: tuple[Node, ...]) -> Node:
        return src[0] if node.op is Op.NEG else with_operands(node, src)

    assert substitute([-(-X + Y)], {X: Z}, without_negation) == [Z + Y]
