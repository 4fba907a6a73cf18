"""Rules of elementwise operations against finite differences, to second order."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

from lamina.core import dtypes
from lamina.graph.autodiff import NOT_DIFFERENTIABLE, VJP, gradient
from lamina.ir.build import cast, select, unary
from lamina.ir.interpreter import evaluate
from lamina.ir.node import Node
from lamina.ir.ops import Op
from tests.autodiff.finite_differences import SEEDS, SHAPES, apart, buffer, check, gradients
from tests.elementwise_cases import CASES

SMOOTH = {op: case.smooth for op, case in CASES.items()} | {Op.NEG: (-2, 2)}
BINARY = {
    Op.ADD: (-2, 2), Op.MUL: (-2, 2), Op.DIV: (0.4, 2), Op.POW: (0.4, 2), Op.MAX: (-2, 2),
    Op.MIN: (-2, 2),
}  # fmt: skip


def test_every_operation_has_a_rule_or_a_reason() -> None:
    assert set(VJP) | set(NOT_DIFFERENTIABLE) == set(Op)
    assert not set(VJP) & set(NOT_DIFFERENTIABLE)
    assert all(NOT_DIFFERENTIABLE.values())


@pytest.mark.parametrize("op", SMOOTH, ids=lambda op: op.name)
@given(shape=SHAPES, seed=SEEDS)
def test_unary(op: Op, shape: tuple[int, ...], seed: int) -> None:
    check(lambda x: unary(op, x), apart(seed, shape, *SMOOTH[op]))
    once_more = apart(seed, shape[:1], *SMOOTH[op])
    check(lambda x: unary(op, x) * x, once_more, order=2, tolerance=1e-5)


@pytest.mark.parametrize("op", BINARY, ids=lambda op: op.name)
@given(shape=SHAPES, seed=SEEDS)
def test_binary(op: Op, shape: tuple[int, ...], seed: int) -> None:
    both = apart(seed, (2, *shape), *BINARY[op])
    check(lambda x, y: Node(op, (x, y)), both[0], both[1])
    short = apart(seed, (2, *shape[:1]), *BINARY[op])
    check(lambda x, y: Node(op, (x, y)) * x * y, *short, order=2, tolerance=1e-5)


@pytest.mark.parametrize("y", [0.7, -0.7])
def test_mod(y: float) -> None:
    x = np.array([0.3, 1.1, -0.4, 2.5, -2.3])
    check(lambda x, y: x % y, x, np.full(5, y))
    check(lambda x, y: (x % y) * x, x, np.full(5, y), order=2, tolerance=1e-5)


def test_pow_where_a_factor_of_the_formula_is_infinite() -> None:
    x, y = np.array([0.0, 0.0, 0.0, 3.0, -2.0]), np.array([2.0, 1.0, 0.0, 0.0, 3.0])
    dx, dy = gradients(lambda x, y: Node(Op.POW, (x, y)), x, y)
    np.testing.assert_array_equal(dx, [0.0, 1.0, 0.0, 0.0, 12.0])
    np.testing.assert_allclose(dy[:4], [0.0, 0.0, 0.0, np.log(3.0)])
    check(lambda x: Node(Op.POW, (x, x.lift(3.0))), np.array([0.0, -1.5]), order=2)


def test_pow_mixed_second_derivative_at_exponent_zero() -> None:
    check(lambda x, y: Node(Op.POW, (x, y)), [0.5, 2.0], [0.0, 0.0], order=2, tolerance=1e-5)


@pytest.mark.parametrize("op", [Op.MAX, Op.MIN], ids=lambda op: op.name)
def test_ties_split_evenly(op: Op) -> None:
    x, y = np.array([1.0, 2.0, 3.0, np.nan]), np.array([1.0, 3.0, 2.0, 1.0])
    dx, dy = gradients(lambda x, y: Node(op, (x, y)), x, y)
    higher = [0.5, 0.0, 1.0, 0.5] if op is Op.MAX else [0.5, 1.0, 0.0, 0.5]
    np.testing.assert_array_equal(dx, higher)
    np.testing.assert_array_equal(dx + dy, 1.0)


@given(shape=SHAPES, seed=SEEDS)
def test_where(shape: tuple[int, ...], seed: int) -> None:
    x, y = apart(seed, (2, *shape))
    check(lambda x, y: select(x < y, x * y, x * x * y), x, y, order=2, tolerance=1e-5)


def test_steps_and_detach_are_symbolic_zeros() -> None:
    x = buffer("x", np.ones(()))
    for y in (unary(Op.TRUNC, x), unary(Op.DETACH, x * x), cast(x < 1.0, x.dtype)):
        assert gradient(y, [x]) == [None]


def test_graft_has_the_value_of_one_and_the_derivative_of_the_other() -> None:
    x, y = buffer("x", np.ones(2)), buffer("y", np.ones(2))
    grafted = Node(Op.CUSTOM_DERIVATIVE, (x * x, y * y * y)) * x
    seed = buffer("seed", np.ones(2))
    found = [grafted, *(one for one in gradient(grafted, [x, y], seed) if one is not None)]
    held = {x: np.array([2.0, 3.0]), y: np.array([4.0, 5.0]), seed: np.ones(2)}
    for got, want in zip(evaluate(found, held), ([8, 27], [4, 9], [96, 225]), strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.bfloat16, dtypes.float32])
def test_cast_returns_to_the_dtype_of_the_operand(dtype: dtypes.DType) -> None:
    x = cast(buffer("x", np.zeros(3)), dtype)
    (dx,) = gradient(cast(x, dtypes.float64) * 3.0, [x], buffer("g", np.ones(3)))
    assert dx is not None
    assert dx.dtype is dtype
    check(lambda x: cast(cast(x, dtypes.float32), dtypes.float64) * x.lift(2.0), [0.0, 0.0],
          tolerance=1e-4)  # fmt: skip
