"""The language of rules and the engine."""

from __future__ import annotations

import traceback

import pytest

from lamina.dtypes import bool_, float32, int32
from lamina.errors import RuleError
from lamina.ir.node import Node, const, full
from lamina.ir.ops import Op
from lamina.rewrite.engine import Applied, rewrite
from lamina.rewrite.patterns import AnyValue, Bool, Const, Float, Int, IntConst, guard, where
from lamina.rewrite.rules import Equation, RuleSet, on, rule
from lamina.simplify.algebra import DROP_DETACH, SIMPLIFY
from tests.generators import leaf

X, Y = leaf(0, (3,), int32), leaf(1, (3,), int32)
F = leaf(2, (3,), float32)
B = leaf(3, (3,), bool_)


def simplified(node: Node) -> Node:
    return rewrite([node], SIMPLIFY)[0]


@rule
def add_zero(x: Int) -> Equation:
    return x + 0, x


@rule
def add_same(x: Int) -> Equation:
    return x + x, x * 2


@rule
def swap(x: Int, y: Int) -> Equation:
    return x // y, y // x


@rule
def grow(x: Float) -> Equation:
    return x / 2, (x + 1) / 2


@rule
def times_to_shift(x: Int) -> Equation:
    return x * 8, x << 3


@rule
def shift_to_times(x: Int) -> Equation:
    return x << 3, x * 8


@rule
def add_constants(x: Int, a: IntConst, b: IntConst) -> Equation:
    return (x + a) + b, x + a * b


@guard
def fails(a: int) -> bool:
    raise ZeroDivisionError("on purpose")


@rule
def guarded(x: Int, a: Const) -> Equation:
    return x % a, x, fails(a)


def test_unchanged_nodes_keep_identity() -> None:
    root = (X * Y) % (X ^ Y)
    assert rewrite([root], SIMPLIFY)[0] is root


def test_literals_and_commuted_forms() -> None:
    rules = RuleSet("test", [add_zero])
    zero = full((3,), 0, int32)
    assert rewrite([X + zero, zero + X, X + 1], rules) == [X, X, X + 1]


def test_a_repeated_hole_matches_one_node() -> None:
    rules = RuleSet("test", [add_same])
    assert rewrite([X + X, X + Y], rules) == [X * 2, X + Y]


def test_right_side_folds_constants() -> None:
    rules = RuleSet("test", [add_constants])
    assert rewrite([(3 + X) + 5], rules) == [X + 15]


def test_negative_zero_is_another_literal() -> None:
    assert simplified(F + 0.0) is F + 0.0
    assert simplified(F + -0.0) is F


def test_nested_rewrites_reach_a_fixed_point() -> None:
    assert simplified(((X + 3) + 4) + -7) is X
    assert simplified(Node(Op.WHERE, (~~B, X * 1, X))) is X


def test_scalar_and_expanded_constants_match() -> None:
    scalar = leaf(5, (), int32)
    assert simplified(scalar * const(1, int32)) is scalar


def test_trace_lists_and_calls() -> None:
    applied: list[Applied] = []
    names: list[str] = []
    rewrite([X + 0], RuleSet("test", [add_zero]), applied)
    rewrite([X + 0], RuleSet("test", [add_zero]), lambda name, before, after: names.append(name))
    assert applied == [("add_zero", X + 0, X)]
    assert names == ["add_zero"]


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
    rules = RuleSet("endless", [swap, grow, times_to_shift, shift_to_times])
    with pytest.raises(RuleError) as caught:
        rewrite([node], rules)
    assert all(name in str(caught.value) for name in names)
    assert "add_zero" not in str(caught.value)


def test_a_function_that_wraps_its_node_never_ends() -> None:
    @on(Op.NOT)
    def wrap(node: Node) -> Node | None:
        return ~~node

    with pytest.raises(RuleError, match="wrap"):
        rewrite([~X], RuleSet("endless", [wrap]))


def test_a_rule_must_keep_shape_and_dtype() -> None:
    @on(Op.NEG)
    def to_scalar(node: Node) -> Node | None:
        return const(0, int32)

    with pytest.raises(RuleError, match="to_scalar"):
        rewrite([-X], RuleSet("wrong", [to_scalar]))


def test_traceback_shows_generated_source() -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        rewrite([X % 5], RuleSet("test", [guarded]))
    shown = "".join(traceback.format_exception(caught.value))
    assert "if guard_fails(n_1_value):" in shown
    assert "test_mod" in shown


def test_functions_follow_equations() -> None:
    @on(Op.ADD)
    def to_product(node: Node) -> Node | None:
        return node.src[0] * node.src[1]

    rules = RuleSet("test", [to_product, add_zero])
    assert rewrite([X + 0, X + Y], rules) == [X, X * Y]


def test_malformed_rules_are_refused() -> None:
    def leaves_out(x: Int, y: Int) -> Equation:
        return x + 0, y

    def not_an_operation(x: Int) -> Equation:
        return x, x

    def untyped(x: Bool, y: AnyValue) -> Equation:
        return where(x, y, y), where(x, y, where(x, 1, 0))

    with pytest.raises(RuleError, match="lacks y"):
        rule(leaves_out)
    with pytest.raises(RuleError, match="not an operation"):
        rule(not_an_operation)
    with pytest.raises(RuleError, match="dtype of its literals"):
        rewrite([Node(Op.WHERE, (B, X, X))], RuleSet("test", [rule(untyped)]))
    with pytest.raises(RuleError, match="add_zero"):
        RuleSet("twice", [add_zero, add_zero])


def test_detach_is_kept_until_it_is_dropped() -> None:
    detached = Node(Op.DETACH, (X,))
    assert simplified(detached) is detached
    assert rewrite([detached + Y], DROP_DETACH) == [X + Y]


def test_rules_print_as_equations() -> None:
    assert repr(add_zero) == "add_zero: add(x, 0) = x"
    assert repr(guarded) == "guarded: mod(x, a) = x, fails(a)"
