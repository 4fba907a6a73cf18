"""Elementwise functions where they have no slope, where they nearly overflow, and where operands
that are known make no sense."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lamina as lm
from lamina.errors import ArgumentError, DTypeError

FIRST = [1.0, 2.0, 0.0, -0.0, 3.0, -1.0, math.inf, math.inf, math.nan, 1.0]
SECOND = [2.0, 2.0, -1.0, 0.0, -3.0, 1.0, 1.0, math.inf, 1.0, math.nan]


def slopes(function: Callable[..., lm.Tensor], *operands: list[float]) -> list[list[float]]:
    tensors = [lm.Tensor(one, lm.float32) for one in operands]
    return [one.tolist() for one in lm.gradient(lm.sum(function(*tensors)), tensors)]


def slopes_in_torch(name: str, *operands: list[float]) -> list[list[float]]:
    torch = pytest.importorskip("torch")
    tensors = [torch.tensor(one, requires_grad=True) for one in operands]
    total = getattr(torch, name)(*tensors).sum()
    return [one.tolist() for one in torch.autograd.grad(total, tensors)]


def test_the_slope_of_nextafter() -> None:
    """PyTorch has one from 2.13 on: 1 for the first operand where the two differ, else 0."""
    of_first = np.not_equal(FIRST, SECOND).astype(float).tolist()
    assert slopes(lm.nextafter, FIRST, SECOND) == [of_first, [0.0] * len(SECOND)]
    assert of_first[:2] == [1.0, 0.0]


def test_the_slope_of_copysign_at_zero_is_torchs() -> None:
    x, sign = [0.0, -0.0, 0.0, -0.0, 1.0, -1.0], [1.0, 1.0, -1.0, -1.0, -1.0, 1.0]
    assert slopes(lm.copysign, x, sign) == slopes_in_torch("copysign", x, sign)
    values = lm.copysign(lm.Tensor(x), lm.Tensor(sign)).numpy()
    assert np.array_equal(np.signbit(values), np.signbit(sign))


def test_the_slope_of_a_remainder_of_zero_stays() -> None:
    assert slopes(lambda x: lm.remainder(x, 2.0), [0.0, 2.0, 3.0])[0] == [1.0] * 3


def test_the_slope_of_acosh_is_torchs_everywhere() -> None:
    x = [-math.inf, -3e38, -2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0, 5000.0, math.nan]
    (got,), (want,) = slopes(lm.acosh, x), slopes_in_torch("acosh", x)
    np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-30)


def test_the_slope_of_acosh_of_large_numbers() -> None:
    assert slopes(lm.acosh, [math.inf, 1e30])[0] == pytest.approx([0.0, 1e-30], rel=1e-6)


def test_hardswish_of_large_numbers_is_finite() -> None:
    x = np.float32([3e38, -3e38, 1.0])
    assert lm.hardswish(lm.asarray(x)).tolist() == pytest.approx([x[0], 0.0, 2 / 3])


def test_the_slope_of_mish_of_large_numbers_is_torchs() -> None:
    functional = pytest.importorskip("torch.nn.functional")
    torch = pytest.importorskip("torch")
    x = [3e38, -3e38, 1e30, -1e30, 1001.0, -1001.0, 999.0, -999.0, 30.0, -30.0, 0.0, 1.0]
    theirs = torch.tensor(x, requires_grad=True)
    (want,) = torch.autograd.grad(functional.mish(theirs).sum(), theirs)
    np.testing.assert_allclose(slopes(lm.mish, x)[0], want, rtol=1e-5, atol=1e-9)


def test_the_slope_of_elu_at_zero_and_of_nan() -> None:
    functional = pytest.importorskip("torch.nn.functional")
    torch = pytest.importorskip("torch")
    theirs = torch.tensor([0.0, -0.0, -1.0, 1.0], requires_grad=True)
    (want,) = torch.autograd.grad(functional.elu(theirs, alpha=2.0).sum(), theirs)
    got = slopes(lambda x: lm.elu(x, 2.0), [0.0, -0.0, -1.0, 1.0, math.nan])[0]
    np.testing.assert_allclose(got, [*want, math.nan], rtol=1e-6)


def test_no_difference_is_the_array_itself() -> None:
    x = lm.asarray([1, 2], dtype=lm.int8)
    same = lm.diff(x, n=0, prepend=[5, 6], append=[9])
    assert same.dtype is lm.int8
    assert same.tolist() == np.diff(x.numpy(), n=0, append=[9]).tolist() == [1, 2]


ZEROS: list[Any] = [0, False, [1, 0], np.array([0, 1]), np.int8(0)]


@pytest.mark.parametrize("function", [lm.floor_divide, lm.remainder], ids=["//", "%"])
@pytest.mark.parametrize("divisor", ZEROS, ids=map(repr, ZEROS))
def test_known_zeros_divide_no_integers(function: Any, divisor: Any) -> None:
    with pytest.raises(ArgumentError, match=f"^{function.__name__}: integers and x2=.*by 0"):
        function(lm.asarray([4, 5]), divisor)
    assert np.isnan(lm.remainder(lm.asarray([4.0, 5.0]), divisor).numpy()).any()
    assert function(lm.asarray([4, 5]), lm.asarray([0, 2])).tolist()[0] == 0


@pytest.mark.parametrize("power", [-2, [1, -1], np.array([-1, 2])], ids=repr)
def test_known_negative_powers_of_integers_are_refused(power: Any) -> None:
    with pytest.raises(ArgumentError, match=r"^pow: integers and x2=.*cast x1 to a float"):
        lm.pow(lm.asarray([2, 3]), power)
    want = np.float64([2.0, 3.0]) ** np.asarray(power)
    np.testing.assert_allclose(lm.pow(lm.asarray([2.0, 3.0]), power).numpy(), want)
    assert (lm.asarray([2, 3]) ** 2).tolist() == [4, 9]


def test_operators_refuse_what_functions_do() -> None:
    x = lm.asarray([2, 3])
    for mistake in (lambda: x // 0, lambda: x % 0, lambda: x**-2, lambda: 7 // x // 0):
        with pytest.raises(ArgumentError):
            mistake()


BOTH = [False, False, True, True], [False, True, False, True]


@pytest.mark.parametrize("name", ["add", "multiply"])
def test_sums_and_products_of_bools_are_numpys_and_torchs(name: str) -> None:
    torch = pytest.importorskip("torch")
    got = getattr(lm, name)(*map(lm.asarray, BOTH))
    assert got.dtype is lm.bool
    assert got.tolist() == getattr(np, name)(*BOTH).tolist()
    assert got.tolist() == getattr(torch, name)(*map(torch.tensor, BOTH)).tolist()
    assert getattr(lm, name)(lm.asarray(BOTH[0]), True).dtype is lm.bool
    assert getattr(lm, name)(lm.asarray(BOTH[0]), 1).dtype is lm.int64


def test_bools_have_no_difference_and_no_sign() -> None:
    a, b = map(lm.asarray, BOTH)
    for mistake, advice in ((lambda: a - b, "subtract: .*logical_xor"),
                            (lambda: -a, "negative: .*logical_not")):  # fmt: skip
        with pytest.raises(DTypeError, match=advice):
            mistake()
    assert (a - 1).tolist() == [-1, -1, 0, 0]


def test_quotients_powers_and_totals_of_bools_are_numbers() -> None:
    a, b = map(lm.asarray, BOTH)
    assert (a / b).dtype is lm.float32
    assert [one.dtype for one in (a // b, a % b, a**b, a.sum(), a.prod())] == [lm.int64] * 5
    assert a.prod().item() == 0
