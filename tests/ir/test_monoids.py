"""Monoids: identity, associativity, and reductions and scans against NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamina.core import dtypes
from lamina.core.dtypes import DType, float32, float64, int8, int64
from lamina.ir.interpreter import evaluate
from lamina.ir.monoids import (
    ADD,
    ARGMAX,
    ARGMIN,
    COMPLEX_MUL,
    LINEAR_RECURRENCE,
    LOG_SUM_EXP,
    MAX,
    MIN,
    MUL,
    Monoid,
)
from lamina.ir.node import Node
from lamina.ir.ops import BufferRef, Op, Reduce
from lamina.ir.parse import MONOIDS

INF, NAN = float("inf"), float("nan")
COMPONENTS: dict[str, tuple[DType, ...]] = {
    "ADD": (int64,), "MUL": (int64,), "MAX": (float64,), "MIN": (float64,),
    "ARGMAX": (float64, int64), "ARGMIN": (float64, int64), "COMPLEX_MUL": (float64, float64),
    "LINEAR_RECURRENCE": (float64, float64), "LOG_SUM_EXP": (float64, float64),
}  # fmt: skip


def leaves(*arrays: Any) -> dict[Node, Any]:
    """A BUFFER for each array."""
    return {
        Node(Op.BUFFER, (), BufferRef(i, x.shape, dtypes.BY_NAME[x.dtype.name], "cpu")): x
        for i, x in enumerate(arrays)
    }


def run(op: Op, monoid: Monoid, axes: tuple[int, ...], *arrays: Any) -> list[Any]:
    """Every part of a reduction or scan."""
    given_ = leaves(*arrays)
    parts = [Node(op, tuple(given_), Reduce(monoid, axes, part)) for part in range(monoid.arity)]
    return evaluate(parts, given_)


def elements(monoid: Monoid) -> st.SearchStrategy[tuple[Any, ...]]:
    """Single elements, as a user of the monoid makes them."""
    small = st.integers(-9, 9)
    value = small.map(float)
    if monoid in (ADD, MUL):
        return st.tuples(small)
    if monoid in (MAX, MIN):
        return st.tuples(st.one_of(value, st.sampled_from([NAN, INF, -INF])))
    if monoid in (ARGMAX, ARGMIN):
        return st.tuples(st.one_of(value, st.sampled_from([NAN, INF, -INF])), st.integers(0, 5))
    if monoid is LOG_SUM_EXP:  # exponentials of 0 and of -inf are exact
        return st.tuples(st.sampled_from([2.0, -INF]), value)
    return st.tuples(value, value)


def join(monoid: Monoid, *items: tuple[Any, ...]) -> tuple[Any, ...]:
    kinds = COMPONENTS[monoid.name]
    a, b, formula = monoid.formula(kinds)
    total, *rest = [
        [np.array(x, one.numpy) for x, one in zip(item, kinds, strict=True)] for item in items
    ]
    for item in rest:
        total = evaluate(formula, dict(zip(a + b, (*total, *item), strict=True)))
    return tuple(part.item() for part in total)


@pytest.mark.parametrize("name", MONOIDS)
@given(data=st.data())
def test_monoid_laws(name: str, data: st.DataObject) -> None:
    monoid = MONOIDS[name]
    a, b, c = (data.draw(elements(monoid)) for _ in range(3))
    identity = monoid.identity(COMPONENTS[name])
    np.testing.assert_allclose(join(monoid, identity, a), a)
    np.testing.assert_allclose(join(monoid, a, identity), a)
    left = join(monoid, join(monoid, a, b), c)
    right = join(monoid, a, join(monoid, b, c))
    np.testing.assert_allclose(left, right, rtol=1e-9, atol=1e-9)


X = np.array([[3.0, -1.0, 3.0, NAN], [-INF, 5.0, 2.0, 5.0], [INF, -0.0, 0.0, 1.0]])


@pytest.mark.parametrize(
    ("monoid", "reduce", "scan"),
    [
        (ADD, np.sum, np.cumsum),
        (MUL, np.prod, np.cumprod),
        (MAX, np.max, np.maximum.accumulate),
        (MIN, np.min, np.minimum.accumulate),
    ],
    ids=lambda one: getattr(one, "name", ""),
)
@pytest.mark.parametrize("dtype", [int8, int64, dtypes.uint8, float32, float64])
def test_plain_monoids_match_numpy(
    monoid: Monoid, reduce: Callable[..., Any], scan: Callable[..., Any], dtype: DType
) -> None:
    x = X if dtype.is_float else np.arange(12).reshape(3, 4) * 11
    x = x.astype(dtype.numpy)
    typed = {} if monoid in (MAX, MIN) else {"dtype": x.dtype}
    with np.errstate(all="ignore"):
        for axes in ((0,), (1,), (0, 1)):
            got = run(Op.REDUCE, monoid, axes, x)[0]
            np.testing.assert_array_equal(got, reduce(x, axis=axes, **typed), strict=True)
        for axis in (0, 1):
            got = run(Op.SCAN, monoid, (axis,), x)[0]
            np.testing.assert_array_equal(got, scan(x, axis=axis, **typed), strict=True)


def test_extrema_of_bool_are_any_and_all() -> None:
    flags = np.array([[True, False], [True, True], [False, False]])
    np.testing.assert_array_equal(run(Op.REDUCE, MAX, (1,), flags)[0], flags.any(1))
    np.testing.assert_array_equal(run(Op.REDUCE, MIN, (1,), flags)[0], flags.all(1))


@pytest.mark.parametrize("monoid", [ADD, MUL, MAX, MIN], ids=repr)
def test_an_empty_reduction_is_the_identity(monoid: Monoid) -> None:
    for dtype in (int8, float32):
        got = run(Op.REDUCE, monoid, (0,), np.zeros((0, 2), dtype.numpy))[0]
        want = np.full(2, monoid.identity((dtype,))[0], dtype.numpy)
        np.testing.assert_array_equal(got, want, strict=True)


@pytest.mark.parametrize(("monoid", "oracle"), [(ARGMAX, np.argmax), (ARGMIN, np.argmin)])
def test_the_first_extreme_wins_and_nan_before_all(monoid: Monoid, oracle: Any) -> None:
    for axis in (0, 1):
        shape = (3, 1) if axis == 0 else (1, 4)
        index = np.broadcast_to(np.arange(X.shape[axis]).reshape(shape), X.shape)
        value, place = run(Op.REDUCE, monoid, (axis,), X, index)
        want = oracle(X, axis=axis)
        np.testing.assert_array_equal(place, want)
        picked = np.take_along_axis(X, np.expand_dims(want, axis), axis).squeeze(axis)
        np.testing.assert_array_equal(value, picked)


@pytest.mark.parametrize("monoid", [ARGMAX, ARGMIN], ids=repr)
def test_a_scan_of_argmax_follows_the_prefixes(monoid: Monoid) -> None:
    row = np.array([2.0, 7.0, -3.0, 7.0, NAN, 9.0])
    oracle = np.argmax if monoid is ARGMAX else np.argmin
    _, places = run(Op.SCAN, monoid, (0,), row, np.arange(6))
    np.testing.assert_array_equal(places, [oracle(row[: i + 1]) for i in range(6)])


def test_complex_products() -> None:
    z = np.array([1 + 2j, -0.5j, 3 - 1j, 2 + 0j])
    re, im = run(Op.REDUCE, COMPLEX_MUL, (0,), z.real.copy(), z.imag.copy())
    np.testing.assert_allclose(re + 1j * im, np.prod(z))
    re, im = run(Op.SCAN, COMPLEX_MUL, (0,), z.real.copy(), z.imag.copy())
    np.testing.assert_allclose(re + 1j * im, np.cumprod(z))


@pytest.mark.parametrize("op", [Op.REDUCE, Op.SCAN])
def test_sums_of_exponentials_of_any_size(op: Op) -> None:
    x = np.array([[-INF, -INF, -745.0, 3.0, 900.0, 899.0], [-1e4, 5.0, -INF, 5.0, INF, 0.0]])
    scale, total = run(op, LOG_SUM_EXP, (1,), x, np.ones(x.shape))
    reduced = np.logaddexp.reduce if op is Op.REDUCE else np.logaddexp.accumulate
    with np.errstate(invalid="ignore"):
        np.testing.assert_allclose(scale + np.log(total), reduced(x, axis=1), rtol=1e-14)
    assert total.min() >= 1.0
    assert np.isnan(run(op, LOG_SUM_EXP, (0,), np.array([1.0, NAN, 2.0]), np.ones(3))[1].flat[-1])


def test_a_scan_of_linear_recurrences_goes_step_by_step() -> None:
    a, b = np.array([[2.0, -1.0, 0.0, 3.0], [0.5, 4.0, -2.0, 1.0]]), np.arange(8.0).reshape(2, 4)
    product, state = run(Op.SCAN, LINEAR_RECURRENCE, (1,), a, b)
    h, wanted = np.zeros(2), []
    for t in range(4):
        h = a[:, t] * h + b[:, t]
        wanted.append(h)
    np.testing.assert_allclose(state, np.stack(wanted, axis=1))
    np.testing.assert_allclose(product, np.cumprod(a, axis=1))
