"""No NaN comes through the branch of a WHERE that was not taken."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamina.core.dtypes import bool_, int64
from lamina.graph.autodiff import gradient
from lamina.ir.build import (
    broadcasted_iota,
    expand,
    flip,
    iota,
    pad,
    permute,
    reduce,
    reshape,
    select,
    shear,
    sliced,
    unary,
)
from lamina.ir.interpreter import evaluate
from lamina.ir.monoids import ADD, MUL
from lamina.ir.node import Node, toposort
from lamina.ir.ops import Op, Reduce, Scatter
from tests.autodiff.finite_differences import buffer, check, gradients, total

POLES: dict[str, Callable[[Node], Node]] = {
    "sqrt": lambda x: unary(Op.SQRT, x),
    "log": lambda x: unary(Op.LOG, x),
    "log2": lambda x: unary(Op.LOG2, x),
    "reciprocal": lambda x: x.lift(1.0) / x,
    "power": lambda x: Node(Op.POW, (x, x.lift(-1.5))),
    "self power": lambda x: Node(Op.POW, (x, x)),
    "mod": lambda x: x.lift(1.0) % x,
    "x log x": lambda x: x * unary(Op.LOG, x),
    "sin of 1/x": lambda x: unary(Op.SIN, x.lift(1.0) / x),
    "atan of log": lambda x: unary(Op.ATAN, unary(Op.LOG, x)),
    "norm": lambda x: unary(Op.SQRT, x * x),
}
X = np.array([0.0, -1.0, 0.0, 2.0])


@pytest.mark.parametrize("name", POLES)
def test_elementwise(name: str) -> None:
    pole = POLES[name]
    (dx,) = gradients(lambda x: select(x.lift(0.0) < x, pole(x), x * 3.0), X)
    np.testing.assert_array_equal(dx[:3], 3.0)
    assert np.isfinite(dx[3])
    (dx,) = gradients(lambda x: select(x < 1e-3, x.lift(0.0), pole(x)), X)
    np.testing.assert_array_equal(dx[:3], 0.0)


@pytest.mark.parametrize("name", POLES)
def test_second_derivatives(name: str) -> None:
    x = buffer("x", X)
    y = select(x.lift(0.0) < x, POLES[name](x), x * x * x)
    (dx,) = gradient(total(y), [x])
    assert dx is not None
    (ddx,) = gradient(total(dx), [x])
    assert ddx is not None
    value = evaluate([ddx], {x: X})[0]
    np.testing.assert_array_equal(value[:3], 6 * X[:3])
    assert np.isfinite(value[3])


def test_overflow() -> None:
    x = np.array([1000.0, -1.0])
    (dx,) = gradients(lambda x: select(x.lift(0.0) < x, x, unary(Op.EXP, x) - 1.0), x)
    np.testing.assert_allclose(dx, [1.0, np.exp(-1.0)])


def test_missing_data() -> None:
    data = np.array([np.nan, 2.0, np.inf])

    def loss(data: Node, w: Node) -> Node:
        away = data - w
        known = data.eq(data) & (data < 100.0)
        return select(known, away * away, data.lift(0.0))

    _, dw = gradients(loss, data, np.ones(3))
    np.testing.assert_array_equal(dw, [0.0, -2.0, 0.0])


MOVES: dict[str, Callable[[Node], Node]] = {
    "reshape": lambda x: reshape(x, (2, 2)),
    "expand": lambda x: expand(x, (3, 4)),
    "permute": lambda x: permute(reshape(x, (2, 2)), (1, 0)),
    "pad": lambda x: pad(x, (1,), (2,)),
    "shrink": lambda x: sliced(x, [range(0, 4, 3)]),
    "flip": lambda x: flip(x, (0,)),
    "shear": lambda x: shear(reshape(x, (2, 2)), 0, 1, -2),
    "gather": lambda x: Node(Op.GATHER, (x, iota(4, int64)), 0),
    "scatter": lambda x: Node(Op.SCATTER, (x.lift(0.0), iota(4, int64), x), Scatter(0, None)),
    "contiguous": lambda x: unary(Op.CONTIGUOUS, x),
}


@pytest.mark.parametrize("name", MOVES)
def test_the_mask_moves_as_the_adjoint_does(name: str) -> None:
    move = MOVES[name]

    def build(x: Node) -> Node:
        roots = move(unary(Op.SQRT, x))
        return select(move(x.lift(0.0) < x), roots, roots.lift(0.0))

    (dx,) = gradients(build, np.array([-2.0, -1.0, 0.0, 4.0]))
    np.testing.assert_array_equal(dx[:3], 0.0)
    assert np.isfinite(dx[3])
    assert dx[3] > 0


@pytest.mark.parametrize("reduction", ["sum", "product", "rows"])
def test_through_a_reduction(reduction: str) -> None:
    def build(x: Node) -> Node:
        logs = unary(Op.LOG, x)
        if reduction == "rows":  # a layer norm of rows some of which are constant
            mean = reduce(ADD, (1,), x) * 0.5
            away = x - expand(reshape(mean, (2, 1)), (2, 2))
            deviation = unary(Op.SQRT, reduce(ADD, (1,), away * away))
            value = reduce(ADD, (1,), away / expand(reshape(deviation, (2, 1)), (2, 2)) * x)
        else:
            value = reduce(ADD if reduction == "sum" else MUL, (1,), logs)
        row_is_good = reduce(ADD, (1,), x.lift(0.0) + x * x)
        return select(row_is_good.lift(0.0) < row_is_good, value, value.lift(0.0))

    (dx,) = gradients(build, np.array([[0.0, 0.0], [2.0, 3.0]]))
    np.testing.assert_array_equal(dx[0], 0.0)
    assert np.isfinite(dx).all()
    assert (dx[1] != 0).all()


def test_missing_data_in_a_reduction() -> None:
    def build(x: Node) -> Node:
        value = reduce(MUL, (1,), x)
        return select(broadcasted_iota((2,), 0) < 1, value, value.lift(0.0))

    (dx,) = gradients(build, np.array([[2.0, 3.0], [np.nan, np.inf]]))
    np.testing.assert_array_equal(dx[1], 0.0)
    assert (dx[0] != 0).all()


def test_one_operand_in_both_branches_is_alive_everywhere() -> None:
    check(
        lambda x: select(x < 1.0, unary(Op.SQRT, x) * x, unary(Op.LOG, x)) + unary(Op.SQRT, x),
        [0.5, 2.0], order=2, tolerance=1e-5,
    )  # fmt: skip


def test_an_adjoint_that_is_zero_by_value_keeps_its_second_derivative() -> None:
    def square_at_its_minimum(x: Node) -> Node:
        y = select(x.lift(0.0) < x, unary(Op.LOG, x), x)
        return y * y

    check(square_at_its_minimum, [1.0], order=2, tolerance=1e-5)


@pytest.mark.parametrize("moved", [False, True])
def test_contractions_beneath_a_where_are_not_selected(*, moved: bool) -> None:
    """Products that are moved before they are added up are those of a transposed convolution."""
    a, b = buffer("a", np.ones((2, 3))), buffer("b", np.ones((3, 4)))
    wide = (2, 3, 4)
    product = expand(reshape(a, (2, 3, 1)), wide) * expand(reshape(b, (1, 3, 4)), wide)
    if moved:
        product = pad(product, (0, 0, 1), (0, 1, 0))
    y = reduce(ADD, (1,), product)
    found = gradient(total(select(y.lift(0.0) < y, y, y.lift(0.0))), [a, b])
    nodes = toposort([one for one in found if one is not None])
    assert {node.shape for node in nodes if node.op is Op.WHERE} == {y.shape}


@given(st.integers(0, 3))
def test_no_selection_without_a_where(rank: int) -> None:
    x = buffer("x", np.ones((2,) * rank))
    y = unary(Op.LOG, unary(Op.SQRT, x) / (x * x))
    (dx,) = gradient(total(y), [x])
    assert dx is not None
    assert all(node.op is not Op.WHERE for node in toposort([dx]))


def test_a_scan_of_logs_beneath_a_where() -> None:
    def build(x: Node) -> Node:
        sums = Node(Op.SCAN, (unary(Op.LOG, x),), Reduce(ADD, (0,)))
        return select(broadcasted_iota((3,), 0) < 2, sums, sums.lift(0.0))

    (dx,) = gradients(build, np.array([2.0, 4.0, 0.0]))
    np.testing.assert_allclose(dx, [1.0, 0.25, 0.0])


def test_parts_of_a_concatenation_have_no_masks() -> None:
    """A gather of a part would have to scatter its mask."""

    def build(x: Node) -> Node:
        picked = Node(Op.GATHER, (unary(Op.SQRT, x), iota(2, int64)), 0)
        is_first = iota(4, int64) < iota(4, int64).lift(2)
        first, second = pad(picked, (0,), (2,)), pad(picked, (2,), (0,))
        return select(is_first, first, second)

    x = buffer("x", np.zeros(3))
    (dx,) = gradient(reduce(ADD, (0,), build(x)), [x])
    assert dx is not None
    assert all(node.dtype is not bool_ for node in toposort([dx]) if node.op is Op.SCATTER)
    (values,) = gradients(build, np.array([1.0, 4.0, 9.0]))
    np.testing.assert_allclose(values, [1.0, 0.5, 0.0])
