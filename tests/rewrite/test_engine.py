"""The language of rules and the engine."""

from __future__ import annotations

import pytest

from lamina.core.dtypes import bool_, float32, int32
from lamina.errors import VerifyError
from lamina.graph.algebra import SIMPLIFY, fold_constants
from lamina.graph.rewrite import equation, hole, on, rewrite
from lamina.ir.node import Node, const, full
from lamina.ir.ops import Kinds, Op
from tests.generators import leaf

X, Y = leaf(0, (3,), int32), leaf(1, (3,), int32)
F = leaf(2, (3,), float32)
B = leaf(3, (3,), bool_)


def simplified(node: Node) -> Node:
    return rewrite([node], SIMPLIFY)[0]


x, y = hole("x", Kinds.INTEGER), hole("y", Kinds.INTEGER)
f = hole("f", Kinds.FLOAT)
a, b = hole("a", Kinds.INTEGER, constant=True), hole("b", Kinds.INTEGER, constant=True)


ADD_ZERO = equation("add_zero", x + 0, x)
ADD_SAME = equation("add_same", x + x, x * 2)
SWAP = equation("swap", x // y, y // x)
GROW = equation("grow", f / 2, (f + 1) / 2)
TIMES_TO_SHIFT = equation("times_to_shift", x * 8, x << 3)
SHIFT_TO_TIMES = equation("shift_to_times", x << 3, x * 8)
ADD_CONSTANTS = equation("add_constants", (x + a) + b, x + a * b)


def test_unchanged_nodes_keep_identity() -> None:
    root = (X * Y) % (X ^ Y)
    assert rewrite([root], SIMPLIFY)[0] is root


def test_literals_and_commuted_forms() -> None:
    rules = [ADD_ZERO]
    zero = full((3,), 0, int32)
    assert rewrite([X + zero, zero + X, X + 1], rules) == [X, X, X + 1]


def test_a_repeated_hole_matches_one_node() -> None:
    rules = [ADD_SAME]
    assert rewrite([X + X, X + Y], rules) == [X * 2, X + Y]


def test_right_side_is_simplified() -> None:
    rules = [fold_constants, ADD_CONSTANTS]
    assert rewrite([(3 + X) + 5], rules) == [X + 15]


def test_negative_zero_is_another_literal() -> None:
    rules = [equation("add_negative_zero", f + -0.0, f)]
    assert rewrite([F + 0.0, F + -0.0], rules) == [F + 0.0, F]


def test_nested_rewrites_reach_a_fixed_point() -> None:
    assert simplified(-(-(X * 1) + 0)) is X
    assert simplified(Node(Op.WHERE, (~~B, X * 1, X))) is X


def test_scalar_and_expanded_constants_match() -> None:
    scalar = leaf(5, (), int32)
    assert simplified(scalar * const(1, int32)) is scalar


def test_deep_chains_do_not_recurse() -> None:
    node = F
    for i in range(50_000):
        node = node * F if i % 2 else (node + F) * 1.0
    result = rewrite([node], SIMPLIFY)[0]
    assert result is not node
    assert rewrite([result], SIMPLIFY)[0] is result


@pytest.mark.parametrize(
    ("node", "names"),
    [
        (X // Y, ["swap"]),
        (F / 2, ["grow"]),
        (X * 8, ["times_to_shift", "shift_to_times"]),
    ],
)
def test_rules_that_never_end_are_named(node: Node, names: list[str]) -> None:
    rules = [SWAP, GROW, TIMES_TO_SHIFT, SHIFT_TO_TIMES]
    with pytest.raises(VerifyError) as caught:
        rewrite([node], rules)
    assert all(name in str(caught.value) for name in names)
    assert "add_zero" not in str(caught.value)


def test_a_function_that_wraps_its_node_never_ends() -> None:
    @on(Op.NOT)
    def wrap(node: Node) -> Node | None:
        return ~~node

    with pytest.raises(VerifyError, match="wrap"):
        rewrite([~X], [wrap])


def test_a_rule_must_keep_shape_and_dtype() -> None:
    @on(Op.NEG)
    def to_scalar(node: Node) -> Node | None:
        return const(0, int32)

    with pytest.raises(VerifyError, match="to_scalar"):
        rewrite([-X], [to_scalar])


def test_rules_apply_in_their_order() -> None:
    @on(Op.ADD)
    def to_product(node: Node) -> Node | None:
        return node.src[0] * node.src[1]

    assert rewrite([X + 0, X + Y], [ADD_ZERO, to_product]) == [X, X * Y]
    assert rewrite([X + 0], [to_product, ADD_ZERO]) == [X * 0]


def test_every_rule_has_a_name_of_its_own() -> None:
    names = [one.name for one in SIMPLIFY]
    assert len(set(names)) == len(names)


def test_graft_is_its_value() -> None:
    assert simplified(Node(Op.CUSTOM_DERIVATIVE, (X, Y * Y))) is X


def test_detach_is_dropped() -> None:
    detached = Node(Op.DETACH, (X,))
    assert simplified(detached) is X
    assert rewrite([detached + Y], SIMPLIFY) == [X + Y]
