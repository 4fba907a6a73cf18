"""Reductions of what is repeated, beside the same computed for each copy."""

from __future__ import annotations

import numpy as np
import pytest

from lamina.core.dtypes import float32, int64
from lamina.core.shape import prod
from lamina.graph.repeats import MAX_NODES, function_of_repeated, reduce_repeated
from lamina.ir import build
from lamina.ir.interpreter import evaluate
from lamina.ir.monoids import ADD, ARGMAX, MAX, Monoid
from lamina.ir.node import Node, toposort
from lamina.ir.ops import Op
from tests.generators import leaf

ROWS, COLUMNS, STEPS = 5, 3, 4


def _product() -> tuple[Node, list[Node]]:
    """The products of ``g @ w.T`` for rows of g that are all the same, and g and w."""
    g, w = leaf(0, (STEPS,), float32), leaf(1, (COLUMNS, STEPS), float32)
    rows = build.expand(build.reshape(g, (1, STEPS)), (ROWS, STEPS))
    box = (ROWS, COLUMNS, STEPS)
    left = build.expand(build.reshape(rows, (ROWS, 1, STEPS)), box)
    right = build.expand(build.reshape(w, (1, COLUMNS, STEPS)), box)
    return left * right, [g, w]


def _is_once(node: Node | None, shape: tuple[int, ...]) -> bool:
    """Is `node` a reduction to `shape` that is repeated?"""
    return node is not None and node.op is Op.EXPAND and node.src[0].shape == shape


def test_equal_rows_of_a_product_are_computed_once() -> None:
    product, leaves = _product()
    node = build.reduce(ADD, (2,), product)
    once = reduce_repeated.apply(node)
    assert once is not None
    assert _is_once(once, (1, COLUMNS))
    assert once.src[0].op is Op.REDUCE
    random = np.random.default_rng(0)
    values = {one: random.standard_normal(one.shape).astype(np.float32) for one in leaves}
    wanted, got = evaluate([node, once], values)
    np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("monoid", [ADD, MAX])
@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (1, 2, 0)])
def test_through_permutations_and_arithmetic(monoid: Monoid, order: tuple[int, ...]) -> None:
    product, leaves = _product()
    moved = build.permute(product, order)
    operand = moved * moved.lift(0.5) + moved
    node = build.reduce(monoid, (order.index(2),), operand)
    once = reduce_repeated.apply(node)
    kept = [axis for axis in order if axis != 2]
    assert _is_once(once, tuple(1 if axis == 0 else COLUMNS for axis in kept))
    assert once is not None
    random = np.random.default_rng(1)
    values = {one: random.standard_normal(one.shape).astype(np.float32) for one in leaves}
    wanted, got = evaluate([node, once], values)
    np.testing.assert_array_equal(got, wanted)


def test_both_parts_of_an_argmax_have_to_be_repeated() -> None:
    values = build.expand(leaf(0, (1, STEPS), float32), (ROWS, STEPS))
    places = build.broadcasted_iota((ROWS, STEPS), 1)
    once = reduce_repeated.apply(build.reduce(ARGMAX, (1,), values, places, component=1))
    assert _is_once(once, (1,))
    rows = leaf(1, (ROWS, STEPS), int64)
    assert reduce_repeated.apply(build.reduce(ARGMAX, (1,), values, rows, component=1)) is None


def test_what_differs_along_each_axis_stays() -> None:
    x, y = leaf(0, (ROWS, STEPS), float32), leaf(1, (1, STEPS), float32)
    total = build.reduce(ADD, (1,), x + build.expand(y, (ROWS, STEPS)))
    assert reduce_repeated.apply(total) is None
    # Repeated along the reduced axis alone.
    column = build.expand(leaf(2, (ROWS, 1), float32), (ROWS, STEPS))
    assert reduce_repeated.apply(build.reduce(ADD, (1,), column)) is None
    # A reshape that joins the repeated axis with another one.
    rows = build.expand(y, (ROWS, STEPS))
    joined = build.reshape(rows, (ROWS * STEPS // 2, 2))
    assert reduce_repeated.apply(build.reduce(ADD, (1,), joined)) is None


def test_the_search_ends_in_long_programs() -> None:
    x = build.expand(leaf(0, (1, STEPS), float32), (ROWS, STEPS))
    for _ in range(MAX_NODES):
        x = x + x  # 2 to the power of MAX_NODES paths
    assert reduce_repeated.apply(build.reduce(ADD, (1,), x)) is None


def _repeated(x: Node, times: int) -> Node:
    """The places of two axes, each so often: ``repeat`` along both."""
    rows, columns = x.shape
    spread = build.expand(build.reshape(x, (rows, 1, columns, 1)), (rows, times, columns, times))
    return build.reshape(spread, (rows * times, columns * times))


def _elements(node: Node | None, op: Op) -> list[int]:
    """The elements of each node of an operation beneath `node`."""
    assert node is not None
    return [prod(inner.shape) for inner in toposort([node]) if inner.op is op]


@pytest.mark.parametrize("op", [Op.EXP, Op.TANH, Op.LOGISTIC, Op.ERF, Op.SQRT])
def test_functions_of_repeated_places_are_computed_once(op: Op) -> None:
    x = leaf(0, (ROWS, COLUMNS), float32)
    scaled = _repeated(x, 2) * 0.5 + 1.0
    moved = build.permute(scaled, (1, 0))
    node = Node(op, (moved,))
    once = function_of_repeated.apply(node)
    assert _elements(once, op) == [ROWS * COLUMNS]
    values = {x: np.random.default_rng(2).random(x.shape).astype(np.float32)}
    wanted, got = evaluate([node, once], values)
    np.testing.assert_array_equal(got, wanted)


def test_constants_keep_their_side() -> None:
    x = leaf(0, (ROWS, COLUMNS), float32)
    repeated = _repeated(x, 3)
    node = Node(Op.EXP, (Node(Op.DIV, (repeated.lift(2.0), repeated + 3.0)),))
    once = function_of_repeated.apply(node)
    assert _elements(once, Op.DIV) == [ROWS * COLUMNS]
    values = {x: np.random.default_rng(3).random(x.shape).astype(np.float32)}
    wanted, got = evaluate([node, once], values)
    np.testing.assert_array_equal(got, wanted)


def test_functions_of_what_varies_stay() -> None:
    x, y = leaf(0, (ROWS, COLUMNS), float32), leaf(1, (2 * ROWS, 2 * COLUMNS), float32)
    assert function_of_repeated.apply(Node(Op.EXP, (_repeated(x, 2) + y,))) is None
    assert function_of_repeated.apply(Node(Op.EXP, (x,))) is None
    assert function_of_repeated.apply(Node(Op.EXP, (build.permute(x, (1, 0)),))) is None


def test_few_copies_are_computed() -> None:
    x = leaf(0, (8, 8), float32)
    part = build.sliced(_repeated(x, 2), [range(16), range(7)])  # 112 of 64 different elements
    assert function_of_repeated.apply(Node(Op.EXP, (part,))) is None
    more = build.sliced(_repeated(x, 2), [range(16), range(9)])
    assert _elements(function_of_repeated.apply(Node(Op.EXP, (more,))), Op.EXP) == [64]
