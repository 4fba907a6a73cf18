"""Rules of reductions and scans: finite differences for every monoid and part."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamina.core import dtypes
from lamina.errors import GradientError
from lamina.graph.autodiff import gradient
from lamina.ir.build import broadcasted_iota, cast, full, reduce
from lamina.ir.interpreter import evaluate
from lamina.ir.monoids import (
    ADD,
    ARGMAX,
    COMPLEX_MUL,
    LINEAR_RECURRENCE,
    LOG_SUM_EXP,
    MAX,
    MIN,
    MUL,
    Monoid,
)
from lamina.ir.node import Node
from lamina.ir.ops import Op, Reduce
from tests.autodiff.finite_differences import SEEDS, SHAPES, apart, buffer, check, gradients

Shape = tuple[int, ...]
RANKED = st.lists(st.integers(0, 3), min_size=1, max_size=3).map(tuple)


def scan(monoid: Monoid, axis: int, *parts: Node, component: int = 0) -> Node:
    return Node(Op.SCAN, parts, Reduce(monoid, (axis,), component))


def some_axes(data: st.DataObject, shape: Shape) -> list[int]:
    return [axis for axis in range(len(shape)) if data.draw(st.booleans())]


@pytest.mark.parametrize("monoid", [ADD, MUL, MAX, MIN], ids=repr)
@given(SHAPES, SEEDS, st.data())
def test_reduce(monoid: Monoid, shape: Shape, seed: int, data: st.DataObject) -> None:
    if monoid in (MAX, MIN) and 0 in shape:
        shape = tuple(max(size, 1) for size in shape)
    axes = some_axes(data, shape)
    check(lambda x: reduce(monoid, axes, x), apart(seed, shape))


@pytest.mark.parametrize("monoid", [ADD, MUL, MAX], ids=repr)
@pytest.mark.parametrize("axes", [(0,), (1,), (0, 1)])
def test_reduce_twice(monoid: Monoid, axes: tuple[int, ...]) -> None:
    check(lambda x: reduce(monoid, axes, x * x), apart(3, (2, 3)), order=2, tolerance=1e-5)


@pytest.mark.parametrize("zeros", [1, 2, 3])
def test_product_with_zeros(zeros: int) -> None:
    x = np.array([1.5, -0.5, 2.0, 0.7])
    x[:zeros] = 0.0
    check(lambda x: reduce(MUL, (0,), x), x, order=2, tolerance=1e-5)
    check(lambda x: scan(MUL, 0, x), x, order=2, tolerance=1e-5)
    check(lambda x: scan(MUL, 0, x), x[::-1], order=2, tolerance=1e-5)


@pytest.mark.parametrize("monoid", [MAX, MIN], ids=repr)
def test_extremes_split_ties_evenly(monoid: Monoid) -> None:
    sign = 1.0 if monoid is MAX else -1.0
    x = sign * np.array([[1.0, 3.0, 3.0], [2.0, 2.0, 2.0], [5.0, 0.0, np.nan]])
    (dx,) = gradients(lambda x: reduce(monoid, (1,), x), x)
    third = 1 / 3
    np.testing.assert_allclose(dx, [[0, 0.5, 0.5], [third, third, third], [third, third, third]])


def test_ties_are_counted_beyond_the_range_of_a_half() -> None:
    x = full((70_000,), 1.0, dtypes.float16)
    (dx,) = gradient(reduce(MAX, (0,), x), [x], full((), 70.0, dtypes.float16))
    assert dx is not None
    assert dx.dtype is dtypes.float16
    np.testing.assert_allclose(evaluate([dx])[0][0], 70 / 70_000, rtol=1e-2)


def test_broadcasts_of_halves_are_undone_in_a_wider_dtype() -> None:
    x = cast(buffer("x", np.ones(())), dtypes.bfloat16)
    y = full((1000,), 1.0, dtypes.bfloat16) * Node(Op.EXPAND, (x,), (1000,))
    (dx,) = gradient(y, [x], full((1000,), 1.0, dtypes.bfloat16))
    assert dx is not None
    assert float(evaluate([dx], {x: np.ones(())})[0]) == 1000.0


@pytest.mark.parametrize("monoid", [ADD, MUL, MAX, MIN], ids=repr)
@given(RANKED, SEEDS, st.data())
def test_scan(monoid: Monoid, shape: Shape, seed: int, data: st.DataObject) -> None:
    axis = data.draw(st.integers(0, len(shape) - 1))
    check(lambda x: scan(monoid, axis, x), apart(seed, shape))


@pytest.mark.parametrize("monoid", [ADD, MUL, MAX], ids=repr)
def test_scan_twice(monoid: Monoid) -> None:
    check(lambda x: scan(monoid, 1, x * x), apart(4, (2, 3)), order=2, tolerance=1e-5)


@pytest.mark.parametrize("part", [0, 1])
@given(RANKED, SEEDS, st.data())
def test_scan_of_linear_recurrences(
    part: int, shape: Shape, seed: int, data: st.DataObject
) -> None:
    axis = data.draw(st.integers(0, len(shape) - 1))
    a, b = apart(seed, shape), apart(seed + 1, shape)
    if part == 0:  # no b is in it
        check(lambda a: scan(LINEAR_RECURRENCE, axis, a, a.lift(1.0)), a)
    else:
        check(lambda a, b: scan(LINEAR_RECURRENCE, axis, a, b, component=1), a, b)


def test_scan_of_linear_recurrences_twice() -> None:
    a, b = np.array([[1.5, 0.0, -0.7], [0.0, 2.0, 0.5]]), apart(5, (2, 3))
    check(
        lambda a, b: scan(LINEAR_RECURRENCE, 1, a * b, b, component=1), a, b,
        order=2, tolerance=1e-5,
    )  # fmt: skip


def _log_of_sums(x: Node, t: Node) -> Node:
    """What both parts stand for; the scale by itself is no function with a derivative."""
    scale, total = (scan(LOG_SUM_EXP, 1, x, t, component=number) for number in range(2))
    return scale + total.apply(Op.LOG)


@pytest.mark.parametrize("order", [1, 2])
def test_scan_of_sums_of_exponentials(order: int) -> None:
    x, t = apart(6, (2, 4)), np.abs(apart(7, (2, 4))) + 0.5
    check(_log_of_sums, x, t, order=order, tolerance=1e-5)


def test_monoids_without_a_rule_are_named() -> None:
    x = buffer("x", np.ones(3))
    with pytest.raises(GradientError, match="reduce with COMPLEX_MUL"):
        gradient(reduce(COMPLEX_MUL, (0,), x, x), [x])
    with pytest.raises(GradientError, match="reduce with ARGMAX"):
        gradient(reduce(ARGMAX, (0,), x, broadcasted_iota((3,), 0)), [x])
    with pytest.raises(GradientError, match="scan with COMPLEX_MUL"):
        gradient(scan(COMPLEX_MUL, 0, x, x), [x], x)
