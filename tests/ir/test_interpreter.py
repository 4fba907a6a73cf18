"""The reference interpreter against plain formulas and loops."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamina.core import dtypes
from lamina.core.dtypes import float32, float64, int8, int32, int64
from lamina.errors import VerifyError
from lamina.ir import build
from lamina.ir.interpreter import evaluate
from lamina.ir.monoids import ADD, MAX
from lamina.ir.node import Node
from lamina.ir.ops import Axis, Iota, Op, Order, Scatter
from tests.elementwise_cases import CASES
from tests.ir.test_monoids import leaves

INF, NAN = float("inf"), float("nan")
FLOATS = [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.0, 100.0, INF, -INF, NAN]


def value_of(op: Op, *arrays: Any, arg: Any = None) -> Any:
    """One operation on arrays."""
    given_ = leaves(*arrays)
    return evaluate([Node(op, tuple(given_), arg)], given_)[0]


UNARY = {op: case.formula for op, case in CASES.items()} | {
    Op.TRUNC: lambda x: float(math.trunc(x)) if math.isfinite(x) else x,
    Op.NEG: lambda x: -x,
}


@pytest.mark.parametrize("op", UNARY, ids=lambda op: op.name)
@pytest.mark.parametrize("dtype", [float32, float64, dtypes.bfloat16, dtypes.float16])
def test_functions_of_one_float(op: Op, dtype: dtypes.DType) -> None:
    x = np.array(FLOATS).astype(dtype.numpy)
    got = value_of(op, x)
    assert got.dtype == dtype.numpy
    want = np.array([UNARY[op](float(one)) for one in x])
    with np.errstate(over="ignore"):
        want = want.astype(dtype.numpy).astype(float)
    tolerance = {float64: 1e-14, float32: 1e-6}.get(dtype, 1e-2)
    np.testing.assert_allclose(got.astype(float), want, rtol=tolerance, atol=tolerance)


PAIRS = list(itertools.product([-128, -7, -1, 0, 1, 3, 127], repeat=2))


def _wrap(x: int) -> int:
    return (x + 128) % 256 - 128


@pytest.mark.parametrize(
    ("op", "formula"),
    [
        (Op.ADD, lambda a, b: a + b),
        (Op.MUL, lambda a, b: a * b),
        (Op.IDIV, lambda a, b: a // b if b else 0),
        (Op.MOD, lambda a, b: a % b if b else 0),
        (Op.MAX, max),
        (Op.MIN, min),
        (Op.LT, lambda a, b: a < b),
        (Op.EQ, lambda a, b: a == b),
        (Op.AND, lambda a, b: a & b),
        (Op.OR, lambda a, b: a | b),
        (Op.XOR, lambda a, b: a ^ b),
        (Op.SHL, lambda a, b: a << b if 0 <= b < 8 else 0),
        (Op.SHR, lambda a, b: a >> (b if 0 <= b < 8 else 8)),
    ],
    ids=lambda one: one.name if isinstance(one, Op) else "",
)
def test_integers_wrap_round_down_and_survive_zero(op: Op, formula: Any) -> None:
    a, b = np.array(PAIRS, np.int8).T
    want = [formula(x, y) for x, y in PAIRS]
    if op not in (Op.LT, Op.EQ):
        want = [_wrap(one) for one in want]
    got = value_of(op, a, b)
    assert got.dtype == (np.bool_ if op in (Op.LT, Op.EQ) else np.int8)
    np.testing.assert_array_equal(got, want)


def test_not_and_powers() -> None:
    np.testing.assert_array_equal(value_of(Op.NOT, np.array([True, False])), [False, True])
    np.testing.assert_array_equal(value_of(Op.NOT, np.array([5, -1], np.int8)), [-6, 0])
    np.testing.assert_array_equal(
        value_of(Op.POW, np.array([3, -2, 0]), np.array([4, 3, 0])), [81, -8, 1]
    )
    base, exponent = np.array([3, -2, 1, 1, -1, -1, 0], np.int8), np.array([-1, -3, -2, -3] * 2)[:7]
    np.testing.assert_array_equal(
        value_of(Op.POW, base, exponent.astype(np.int8)), [0, 0, 1, 1, -1, -1, 0]
    )
    np.testing.assert_array_equal(
        value_of(Op.POW, np.array([2.0, -8.0, 0.0, NAN]), np.array([-1.0, 1 / 3, 0.0, 0.0])),
        [0.5, NAN, 1.0, 1.0],
    )


def test_float_remainder_and_extrema() -> None:
    a, b = np.array([-7.5, 7.5, -0.5, 5.0]), np.array([2.0, -2.0, INF, NAN])
    np.testing.assert_array_equal(value_of(Op.MOD, a, b), [0.5, -0.5, INF, NAN])
    a, b = np.array([NAN, 1.0, -INF]), np.array([1.0, NAN, 3.0])
    np.testing.assert_array_equal(value_of(Op.MAX, a, b), [NAN, NAN, 3.0])
    np.testing.assert_array_equal(value_of(Op.MIN, a, b), [NAN, NAN, -INF])
    np.testing.assert_array_equal(
        value_of(Op.DIV, np.array([1.0, -1.0, 0.0]), np.zeros(3)), [INF, -INF, NAN]
    )


def test_conversions() -> None:
    x = np.array([1.9, -1.9, 0.0])
    np.testing.assert_array_equal(value_of(Op.CAST, x, arg=int8), [1, -1, 0])
    np.testing.assert_array_equal(value_of(Op.CAST, x, arg=dtypes.bool_), [True, True, False])
    np.testing.assert_array_equal(value_of(Op.CAST, x + 5j, arg=float64), x)
    wrapped = value_of(Op.CAST, np.array([300, -1]), arg=dtypes.uint8)
    np.testing.assert_array_equal(wrapped, [44, 255])
    bits = value_of(Op.BITCAST, np.array([1.0, -0.0], np.float32), arg=int32)
    np.testing.assert_array_equal(bits, np.array([0x3F800000, -(1 << 31)]))
    z = np.array([1 + 2j, complex(INF, NAN)])
    np.testing.assert_array_equal(value_of(Op.REAL, z), [1, INF])
    np.testing.assert_array_equal(value_of(Op.IMAG, z), [2, NAN])
    np.testing.assert_array_equal(value_of(Op.COMPLEX, z.real.copy(), z.imag.copy()), z)


def test_where_and_leaves() -> None:
    condition = np.array([True, False, True])
    got = value_of(Op.WHERE, condition, np.array([1.0, 2.0, NAN]), np.array([NAN, 5.0, 6.0]))
    np.testing.assert_array_equal(got, [1.0, 5.0, NAN])
    iota, scalar = Node(Op.IOTA, (), Iota(4, int32)), build.const(-0.0, float32)
    counts, zero = evaluate([iota, scalar])
    np.testing.assert_array_equal(counts, np.arange(4, dtype=np.int32), strict=True)
    assert np.signbit(zero)


def test_scalars_of_kernels_have_no_value() -> None:
    with pytest.raises(VerifyError, match="axis has no value of its own"):
        evaluate([Node(Op.AXIS, (), Axis(0, 4))])


# Movement, against the definition of each element.

GRID = np.arange(24.0).reshape(2, 3, 4)


def test_movement_matches_numpy() -> None:
    x = GRID
    expected = {
        "reshape": x.reshape(4, 6),
        "expand": np.broadcast_to(x, (5, 2, 3, 4)),
        "permute": x.transpose(2, 0, 1),
        "flip": x[::-1, :, ::-1],
        "pad": np.pad(x, ((1, 0), (0, 2), (0, 0)), constant_values=-7.0),
        "shrink": x[0:2:1, 1:3:2, 0:4:3],
    }
    given_ = leaves(x)
    (node,) = given_
    actual = evaluate(
        [
            build.reshape(node, (4, 6)),
            build.expand(node, (5, 2, 3, 4)),
            build.permute(node, (2, 0, 1)),
            build.flip(node, (0, 2)),
            build.pad(node, (1, 0, 0), (0, 2, 0), -7),
            build.sliced(node, map(range, (0, 1, 0), (2, 3, 4), (1, 2, 3))),
        ],
        given_,
    )
    for name, got in zip(expected, actual, strict=True):
        np.testing.assert_array_equal(got, expected[name], err_msg=name, strict=True)


@given(st.data())
def test_shrink_with_steps_keeps_the_elements_of_its_definition(data: st.DataObject) -> None:
    size = data.draw(st.integers(0, 9))
    start = data.draw(st.integers(0, size))
    stop = data.draw(st.integers(start, size))
    step = data.draw(st.integers(1, 4))
    given_ = leaves(np.arange(size))
    (node,) = given_
    (got,) = evaluate([build.sliced(node, [range(start, stop, step)])], given_)
    assert got.tolist() == list(range(start, stop, step))


@given(st.permutations(range(3)), st.integers(-3, 3).filter(bool))
def test_shear_shifts_one_axis_by_another(axes: list[int], step: int) -> None:
    axis, by, _ = axes
    given_ = leaves(GRID)
    (node,) = given_
    sheared = build.shear(node, axis, by, step)
    (got,) = evaluate([sheared], given_)
    assert got.shape == sheared.shape
    last = GRID.shape[by] - 1
    for place in np.ndindex(got.shape):
        k = place[by]
        shift = k * step if step > 0 else (last - k) * -step
        source = list(place)
        source[axis] -= shift
        inside = 0 <= source[axis] < GRID.shape[axis]
        assert got[place] == (GRID[tuple(source)] if inside else 0)


def test_shear_makes_sliding_windows_and_diagonals() -> None:
    row = np.arange(7.0)
    given_ = leaves(row)
    (node,) = given_
    copies = build.expand(build.reshape(node, (1, 7)), (3, 7))
    sheared = build.shear(copies, 1, 0, -1)
    windows = build.permute(build.sliced(sheared, [range(3), range(2, 7)]), (1, 0))
    want = np.lib.stride_tricks.sliding_window_view(row, 3)
    np.testing.assert_array_equal(evaluate([windows], given_)[0], want)


@pytest.mark.parametrize("axis", [0, 1])
def test_gather_reads_zero_outside(axis: int) -> None:
    x = np.arange(1.0, 13.0).reshape(3, 4)
    index = np.array([[0, 2, -1, 5], [1, 1, 0, 2]])
    index = index if axis == 0 else np.array([[0, 3, -1], [9, 1, 1], [2, 2, 0]])
    got = value_of(Op.GATHER, x, index, arg=axis)
    for place in np.ndindex(index.shape):
        source = list(place)
        source[axis] = index[place]
        inside = 0 <= source[axis] < x.shape[axis]
        assert got[place] == (x[tuple(source)] if inside else 0)


@pytest.mark.parametrize("monoid", [None, ADD, MAX], ids=repr)
@pytest.mark.parametrize("axis", [0, 1])
def test_scatter_in_order_and_only_inside(axis: int, monoid: Any) -> None:
    rng = np.random.default_rng(axis)
    base = rng.integers(0, 50, (4, 3)).astype(float)
    shape = (6, 3) if axis == 0 else (4, 5)
    index, update = rng.integers(-2, 6, shape), rng.integers(0, 50, shape).astype(float)
    want = base.copy()
    for place in sorted(np.ndindex(shape), key=lambda place: place[axis]):
        target = list(place)
        target[axis] = index[place]
        if 0 <= target[axis] < base.shape[axis]:
            at = tuple(target)
            old, new = want[at], update[place]
            want[at] = {None: new, ADD: old + new, MAX: max(old, new)}[monoid]
    got = value_of(Op.SCATTER, base, index, update, arg=Scatter(axis, monoid))
    np.testing.assert_array_equal(got, want)


def test_argsort_is_stable() -> None:
    x = np.array([[2.0, 1.0, 2.0, 1.0, NAN, -INF], [0.0, -0.0, 0.0, INF, 1.0, -0.0]])
    got = value_of(Op.ARGSORT, x, arg=Order(1, False, 0, 6))
    np.testing.assert_array_equal(got, [[5, 1, 3, 0, 2, 4], [0, 1, 2, 5, 4, 3]])
    assert got.dtype == int64.numpy
    descending = value_of(Op.ARGSORT, x.T, arg=Order(0, True, 0, 4))
    np.testing.assert_array_equal(descending.T, [[4, 0, 2, 1], [3, 4, 0, 1]])


def test_effects_are_their_values() -> None:
    x, y = np.arange(3.0), np.ones(3)
    np.testing.assert_array_equal(value_of(Op.ASSIGN, x, y), y)
    for op in (Op.CUSTOM_DERIVATIVE, Op.RECOMPUTED):
        np.testing.assert_array_equal(value_of(op, x, y), x)
    for op, arg in ((Op.COPY, "cpu"), (Op.CONTIGUOUS, None), (Op.DETACH, None), (Op.AGAIN, None)):
        np.testing.assert_array_equal(value_of(op, x, arg=arg), x)
