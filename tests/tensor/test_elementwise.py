"""Elementwise functions against NumPy, special values and promotion included."""

from __future__ import annotations

import math
import operator
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import lamina as lm
from lamina.errors import DTypeError, LaminaError, ShapeError

SPECIAL = np.array(
    [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 1e-6, -1e-6, 3e-39, 7.0, -7.0, 40.0, -40.0,
     100.0, 1e10, -1e10, 3e38, math.inf, -math.inf, math.nan],
)  # fmt: skip
UNARY = {
    "abs": np.abs, "acos": np.arccos, "acosh": np.arccosh, "asin": np.arcsin,
    "asinh": np.arcsinh, "atan": np.arctan, "atanh": np.arctanh, "ceil": np.ceil, "cos": np.cos,
    "cosh": np.cosh, "exp": np.exp, "exp2": np.exp2, "expm1": np.expm1, "floor": np.floor,
    "isfinite": np.isfinite, "isinf": np.isinf, "isnan": np.isnan, "log": np.log,
    "log10": np.log10, "log1p": np.log1p, "log2": np.log2, "negative": np.negative,
    "reciprocal": np.reciprocal, "round": np.round, "sign": np.sign, "signbit": np.signbit,
    "sin": np.sin, "sinh": np.sinh, "sqrt": np.sqrt, "square": np.square, "tan": np.tan,
    "tanh": np.tanh, "trunc": np.trunc,
}  # fmt: skip
BINARY = {
    "add": np.add, "atan2": np.arctan2, "copysign": np.copysign, "divide": np.divide,
    "hypot": np.hypot, "logaddexp": np.logaddexp, "maximum": np.maximum, "minimum": np.minimum,
    "multiply": np.multiply, "nextafter": np.nextafter, "remainder": np.remainder,
    "subtract": np.subtract, "less": np.less, "less_equal": np.less_equal, "equal": np.equal,
    "greater": np.greater, "greater_equal": np.greater_equal, "not_equal": np.not_equal,
}  # fmt: skip


def agree(got: lm.Tensor, want: np.ndarray, units: float) -> None:
    """Equal within `units` in the last place, NaN where NaN is."""
    found = got.numpy()
    assert found.dtype == want.dtype
    if want.dtype.kind != "f":
        assert np.array_equal(found, want)
        return
    precision = np.finfo(want.dtype)
    np.testing.assert_allclose(
        found, want, rtol=units * precision.eps, atol=precision.tiny, equal_nan=True
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", UNARY)
def test_unary_special_values(name: str, dtype: type) -> None:
    generator = np.random.default_rng(0)
    with np.errstate(all="ignore"):
        x = np.concatenate([SPECIAL, generator.normal(size=200), generator.normal(size=200) * 20])
        x = x.astype(dtype)
        agree(getattr(lm, name)(lm.asarray(x)), UNARY[name](x), units=6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", BINARY)
def test_binary_special_values(name: str, dtype: type) -> None:
    with np.errstate(all="ignore"):
        x, y = SPECIAL.astype(dtype)[:, None], SPECIAL.astype(dtype)
        agree(getattr(lm, name)(lm.asarray(x), lm.asarray(y)), BINARY[name](x, y), units=6)


@pytest.mark.parametrize("name", ["expm1", "log1p", "sinh", "tanh", "asinh", "atanh", "asin"])
def test_small_arguments_stay_accurate(name: str) -> None:
    x = np.geomspace(1e-12, 0.9, 300)
    x = np.concatenate([x, -x])
    agree(getattr(lm, name)(lm.asarray(x)), UNARY[name](x), units=6)


@pytest.mark.parametrize(("name", "calls"), [
    ("acos", ["atan", "sqrt"]), ("asin", ["atan", "sqrt"]), ("atanh", ["log"]),
])  # fmt: skip
def test_inverse_functions_call_few_others(name: str, calls: list[str]) -> None:
    """A root, an arctangent or a logarithm is most of the time that such a function takes."""
    lowered = lm.jit(getattr(lm, name)).lower(lm.TensorSpec((64,)), device="cpu")
    (kernel,) = lowered.kernels
    formula = kernel.source.partition("KERNEL")[0]
    assert sorted(re.findall(r"\b(atan|log|sqrt)\(", formula)) == calls


@pytest.mark.parametrize("name", [
    "acos", "acosh", "asin", "asinh", "atan", "atanh", "cos", "cosh", "exp", "expm1", "log",
    "log10", "log1p", "log2", "sin", "sinh", "sqrt", "square", "tan", "tanh", "sign", "reciprocal",
])  # fmt: skip
def test_complex_functions(name: str) -> None:
    generator = np.random.default_rng(1)
    z = generator.normal(size=100) * 2 + 1j * generator.normal(size=100)
    got = getattr(lm, name)(lm.asarray(z))
    assert got.dtype is lm.complex128
    np.testing.assert_allclose(got.numpy(), UNARY[name](z), rtol=1e-13)


@pytest.mark.parametrize("left", [lm.bool, lm.int8, lm.uint8, lm.int64, lm.float16, lm.float32,
                                  lm.float64, lm.complex64])  # fmt: skip
def test_promotion_of_arrays_is_numpys_or_pytorchs(left: lm.DType) -> None:
    torch = pytest.importorskip("torch")
    for right in (lm.bool, lm.int8, lm.uint8, lm.int32, lm.bfloat16, lm.float32, lm.complex64):
        want = torch.promote_types(getattr(torch, left.name), getattr(torch, right.name))
        got = lm.result_type(lm.ones(1, dtype=left), lm.ones(1, dtype=right))
        assert f"torch.{got.name}" == str(want)


def test_python_scalars_are_weak() -> None:
    x = lm.ones(2, dtype=lm.float16)
    assert (x * 2.5).dtype is lm.float16
    assert (lm.ones(2, dtype=lm.int8) + 1).dtype is lm.int8
    assert (lm.ones(2, dtype=lm.int8) * 1.0).dtype is lm.float32
    assert (1 / lm.ones(2, dtype=lm.int32)).dtype is lm.float32
    assert (x + 1j).dtype is lm.complex64
    assert (2 - lm.asarray([1, 2])).tolist() == [1, 0]
    assert (2 ** lm.asarray([1.0, 2.0])).tolist() == [2, 4]


def test_lists_and_tuples_are_arrays_beside_tensors() -> None:
    values = [1, 2, 4]
    for kind in (np.int64, np.float32, np.float64):
        a = np.array([3, 1, 2], kind)
        x = lm.asarray(a)
        for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "lt", "eq", "ne"):
            function = getattr(operator, name)
            for other in (values, tuple(values)):
                np.testing.assert_allclose(function(x, other).numpy(), function(a, other))
            expected = function(np.array(values), a)
            np.testing.assert_allclose(function(values, x).numpy(), expected)
        assert (x @ values).item() == (values @ x).item() == 13
        assert ([[1], [2]] * x).shape == (2, 3)
    # They have a dtype of their own, as in NumPy: that of `asarray`, which is not weak.
    assert (lm.ones(3, dtype=lm.int8) + values).dtype is lm.int64
    halves, floats = lm.ones(3, dtype=lm.float16), [0.5, 1.0, 2.0]
    assert (halves + values).dtype is lm.float16
    assert (halves + floats).dtype is lm.float32
    assert lm.add(values, lm.ones(3, dtype=lm.float64)).dtype is lm.float64
    assert lm.maximum([1, 5], [4, 2]).tolist() == [4, 5]
    x = lm.ones(2)
    (slope,) = lm.gradient((x * [x[1], 3.0]).sum(), [x])  # tensors in lists have derivatives
    assert slope.tolist() == [1.0, 4.0]
    with pytest.raises(LaminaError, match="do not broadcast"):
        x + values
    with pytest.raises(TypeError):
        x + {1: 2}


def test_softplus_has_a_threshold() -> None:
    torch = pytest.importorskip("torch")
    x = np.linspace(-30.0, 30.0, 61)
    for beta, threshold in ((1.0, 20.0), (2.0, 3.0), (0.5, -1.0)):
        got = lm.softplus(lm.asarray(x), beta, threshold).numpy()
        want = torch.nn.functional.softplus(torch.tensor(x), beta, threshold).numpy()
        np.testing.assert_allclose(got, want, 1e-12)


@pytest.mark.parametrize("decimals", [-2, -1, 0, 1, 3])
def test_rounding_to_decimals(decimals: int) -> None:
    x = np.random.default_rng(0).normal(0, 1000, 50)
    x[:4] = [0.25, -0.75, 50.0, 2.5]
    np.testing.assert_array_equal(
        lm.round(lm.asarray(x), decimals).numpy(), np.round(x, decimals)
    )
    t = lm.asarray(x)
    (slope,) = lm.gradient(t.round(decimals).sum(), [t])
    assert not slope.numpy().any()


integers = hnp.arrays(np.int32, 5, elements=st.integers(-20, 20))


@given(integers, integers)
def test_integers(x: np.ndarray, y: np.ndarray) -> None:
    a, b = lm.asarray(x), lm.asarray(y)
    safe, divisor = lm.where(b == 0, 3, b), np.where(y == 0, 3, y)
    assert np.array_equal((a // safe).numpy(), x // divisor)
    assert np.array_equal((a % safe).numpy(), x % divisor)
    assert np.array_equal((a & b).numpy(), x & y)
    assert np.array_equal((a ^ ~b).numpy(), x ^ ~y)
    assert np.array_equal((a << abs(b)).numpy(), x << np.abs(y))
    assert np.array_equal((a >> abs(b)).numpy(), x >> np.abs(y))
    assert np.array_equal(a.clip(-3, 5).numpy(), x.clip(-3, 5))
    assert np.array_equal(lm.where(a < b, a, 0).numpy(), np.where(x < y, x, 0))


finite = st.floats(-1e6, 1e6, width=32)


@given(hnp.arrays(np.float32, 4, elements=finite), hnp.arrays(np.float32, 4, elements=finite))
def test_division_with_remainder(x: np.ndarray, y: np.ndarray) -> None:
    with np.errstate(all="ignore"):
        a, b = lm.asarray(x), lm.asarray(y)
        # Near 2**22 a rounded x - x % y can cost one, NumPy's and ours alike: divide in float64,
        # and ask for equality below.
        exact = np.floor(x.astype(np.float64) / y).astype(np.float32)
        quotient = np.where(y == 0, x // y, exact)
        np.testing.assert_allclose((a // b).numpy(), quotient, rtol=3e-7)
        np.testing.assert_array_equal((a % b).numpy(), x % y)


@pytest.mark.parametrize("name", [
    "elu", "gelu", "hardsigmoid", "hardswish", "leaky_relu", "logsigmoid", "mish", "relu",
    "relu6", "sigmoid", "silu", "softplus", "softsign",
])  # fmt: skip
def test_activations_are_pytorchs(name: str) -> None:
    torch = pytest.importorskip("torch")
    x = np.array([-200, -30, -5, -3, -1, -1e-3, 0, 1e-3, 0.5, 3, 5, 30, 200, math.inf, math.nan])
    want = getattr(torch.nn.functional, name)(torch.tensor(x)).numpy()
    np.testing.assert_allclose(getattr(lm, name)(lm.asarray(x)).numpy(), want, 1e-9, 1e-12)
    if name == "gelu":
        want = torch.nn.functional.gelu(torch.tensor(x[:-2]), approximate="tanh").numpy()
        got = lm.gelu(lm.asarray(x[:-2]), approximate="tanh").numpy()
        np.testing.assert_allclose(got, want, 1e-9, 1e-12)


def test_large_halves_pass_hard_activations() -> None:
    assert lm.hardswish(lm.asarray([3e4, -6e4], dtype=lm.float16)).tolist() == [3e4, 0.0]


@pytest.mark.parametrize("name", ["abs", "tanh", "sinh", "asinh", "expm1", "log1p", "sigmoid",
                                  "softplus", "gelu", "silu", "elu", "mish"])  # fmt: skip
def test_derivatives_stay_finite_and_right(name: str) -> None:
    torch = pytest.importorskip("torch")
    x = np.array([-80.0, -3.0, -0.3, 0.0, 1e-9, 0.3, 0.4, 2.0, 25.0, 80.0])
    if name == "log1p":
        x = x[x > -1]
    t = torch.tensor(x, requires_grad=True)
    function = getattr(torch, name, None) or getattr(torch.nn.functional, name)
    function(t).sum().backward()
    got = lm.grad(lambda a: getattr(lm, name)(a).sum())(lm.asarray(x)).numpy()
    np.testing.assert_allclose(got, t.grad.numpy(), rtol=1e-9, atol=1e-12)


def test_masks_and_replacements() -> None:
    x = lm.asarray([math.nan, math.inf, -math.inf, 2.0])
    most = float(np.finfo(np.float32).max)
    assert lm.nan_to_num(x).tolist() == [0, most, -most, 2]
    assert lm.nan_to_num(x, 1, 2, 3).tolist() == [1, 2, 3, 2]
    filled = x.masked_fill(x.isnan(), -1)
    assert (filled[0].item(), filled.dtype) == (-1, lm.float32)
    whole = lm.asarray([4, 2**53 + 1]).masked_fill(lm.asarray([True, False]), 2.7)
    assert whole.tolist() == [2, 2**53 + 1]


def test_a_float_that_is_written_among_integers_keeps_its_digits() -> None:
    exact = 2**24 + 1
    x = lm.asarray([1, 2])
    assert x.masked_fill(lm.asarray([True, False]), float(exact)).tolist() == [exact, 2]
    assert lm.scatter(x, 0, [1], float(exact)).tolist() == [1, exact]
    x[1] = float(exact)
    assert x.tolist() == [1, exact]
    assert x.assign(exact + 2.5).tolist() == [exact + 2] * 2
    with pytest.raises(DTypeError, match="assign: inf is beyond int64"):
        x.assign(math.inf)
    with pytest.raises(DTypeError, match="no imaginary part"):
        x.assign(1j)


def test_complex_zeros_and_imaginary_numbers() -> None:
    x = np.array([0, 1j, 2, 1 - 1j, -1j], np.complex64)
    assert np.array_equal(lm.asarray(x).astype(lm.bool).numpy(), x.astype(bool))
    zeros = (lm.asarray(x[:1]) ** lm.asarray(np.array([-1, 1j, 0, 2, 1 + 1j], x.dtype))).numpy()
    np.testing.assert_array_equal(zeros, [math.nan, math.nan, 1, 0, 0])


def test_errors_name_the_operation_and_both_sides() -> None:
    with pytest.raises(ShapeError, match=r"add: \(2,\) and \(3,\)"):
        lm.ones(2) + lm.ones(3)
    with pytest.raises(DTypeError, match="and: float32"):
        lm.ones(2) & lm.ones(2)
    with pytest.raises(DTypeError, match="less: complex"):
        lm.less(lm.asarray(1j), lm.asarray(1j))
    with pytest.raises(DTypeError, match="uint64 and int8"):
        lm.ones(1, dtype=lm.uint64) + lm.ones(1, dtype=lm.int8)
    with pytest.raises(TypeError):
        lm.ones(2) + "text"
