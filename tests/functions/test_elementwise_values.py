"""Every elementwise function against NumPy: every dtype, every kind of shape, views."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import example, given, settings

import lamina as lm
from lamina.core.dtypes import DType
from tests.compiled import EACH_TEST, Recorder
from tests.functions.sampling import (
    ALL,
    COMPLEX,
    FLOATS,
    INTEGERS,
    REAL,
    SEEDS,
    SHAPES,
    Draw,
    Shape,
    broadcasting,
    values,
    view_of,
)  # fmt: skip

Array = np.ndarray


class Elementwise(NamedTuple):
    """A function of NumPy's, the dtypes of its operands, and what becomes of them before."""

    theirs: Callable[..., Any]
    dtypes: tuple[DType, ...]
    of: str = "same"  # "float": integers become float32 first; "number": bools become int64


def each(name: Callable[[float], float]) -> Callable[[Array], Array]:
    return np.vectorize(name, otypes=[np.float64])


def power(x: Array, y: Array) -> Array:
    """NumPy refuses negative powers of integers; here the exponents are made small."""
    return np.power(x, y & 7 if x.dtype.kind in "iu" else y)


def floor_divide(x: Array, y: Array) -> Array:
    """The standard's special cases: NumPy has NaN, or -1, where an operand is infinite."""
    infinite = np.isinf(x) | np.isinf(y)
    return np.where(infinite, x / y, np.floor_divide(x, y)) if infinite.any() else x // y


UNARY: dict[str, Elementwise] = {
    **{name: Elementwise(getattr(np, numpys), REAL, "float") for name, numpys in {
        "acos": "arccos", "acosh": "arccosh", "asin": "arcsin", "asinh": "arcsinh",
        "atan": "arctan", "atanh": "arctanh", "cos": "cos", "cosh": "cosh", "exp": "exp",
        "exp2": "exp2", "expm1": "expm1", "log": "log", "log10": "log10", "log1p": "log1p",
        "log2": "log2", "sin": "sin", "sinh": "sinh", "sqrt": "sqrt", "tan": "tan", "tanh": "tanh",
        "signbit": "signbit",
    }.items()},
    "erf": Elementwise(each(math.erf), REAL, "float"),
    "rsqrt": Elementwise(lambda x: 1 / np.sqrt(x), REAL, "float"),
    "reciprocal": Elementwise(lambda x: 1 / x, ALL, "float"),
    "negative": Elementwise(np.negative, (*INTEGERS, *FLOATS, *COMPLEX)),
    "positive": Elementwise(np.positive, ALL, "number"),
    "square": Elementwise(np.square, ALL, "number"),
    "sign": Elementwise(np.sign, ALL, "number"),
    "abs": Elementwise(np.abs, ALL),
    "real": Elementwise(np.real, ALL),
    "imag": Elementwise(np.imag, ALL),
    "conj": Elementwise(lambda x: np.conj(x) if x.dtype.kind == "c" else x, ALL),
    **{name: Elementwise(getattr(np, name), (*INTEGERS, *FLOATS))
       for name in ("ceil", "floor", "trunc", "round")},
    **{name: Elementwise(getattr(np, name), ALL)
       for name in ("isfinite", "isinf", "isnan", "logical_not")},
    "bitwise_invert": Elementwise(np.bitwise_invert, (lm.bool, *INTEGERS)),
}  # fmt: skip
BINARY: dict[str, Elementwise] = {
    "add": Elementwise(np.add, ALL),
    "subtract": Elementwise(np.subtract, (*INTEGERS, *FLOATS, *COMPLEX)),
    "multiply": Elementwise(np.multiply, ALL),
    "divide": Elementwise(np.divide, ALL, "float"),
    "floor_divide": Elementwise(floor_divide, REAL, "number"),
    "remainder": Elementwise(np.remainder, REAL, "number"),
    "pow": Elementwise(power, ALL, "number"),
    "atan2": Elementwise(np.arctan2, REAL, "float"),
    **{name: Elementwise(getattr(np, name), REAL, "float")
       for name in ("copysign", "hypot", "logaddexp")},
    **{name: Elementwise(getattr(np, name), REAL)
       for name in ("maximum", "minimum", "less", "less_equal", "greater", "greater_equal")},
    **{name: Elementwise(getattr(np, name), ALL)
       for name in ("equal", "not_equal", "logical_and", "logical_or", "logical_xor")},
    **{name: Elementwise(getattr(np, name), (lm.bool, *INTEGERS))
       for name in ("bitwise_and", "bitwise_or", "bitwise_xor")},
    "bitwise_left_shift": Elementwise(np.left_shift, INTEGERS),
    "bitwise_right_shift": Elementwise(np.right_shift, INTEGERS),
    "nextafter": Elementwise(np.nextafter, (lm.float32, lm.float64)),
}  # fmt: skip


def computed_in(dtype: DType, of: str) -> DType:
    """The dtype of a result that is a number."""
    if of == "float" and dtype.kind in ("bool", "int", "uint"):
        return lm.float32
    return lm.int64 if of == "number" and dtype is lm.bool else dtype


def expected(entry: Elementwise, dtype: DType, *arrays: Array) -> Array:
    """NumPy's answer: low precision is computed in float64 and rounded once."""
    target = computed_in(dtype, entry.of)
    wide: Any = target.numpy
    if target.is_float and entry.theirs is not np.nextafter:
        wide = np.float64
    if target.is_complex:
        wide = np.complex128
    with np.errstate(all="ignore"):
        given = [one.astype(target.numpy).astype(wide) for one in arrays]
        result = np.asarray(entry.theirs(*given))
        if result.dtype == bool:
            return result
        if target.is_complex and result.dtype.kind == "f":
            return result.astype(np.dtype(target.numpy).type(0).real.dtype)
        return result.astype(target.numpy)


def agree(got: lm.Tensor, want: Array, what: object, units: float = 6) -> None:
    """Equal, or within `units` in the last place where rounding is allowed."""
    found = got.numpy()
    assert (found.shape, found.dtype) == (want.shape, want.dtype), what
    if want.dtype.kind in "biu":
        np.testing.assert_array_equal(found, want, err_msg=str(what))
        return
    limits = lm.finfo(want.dtype)
    wide: Any = np.complex128 if want.dtype.kind == "c" else np.float64
    np.testing.assert_allclose(
        found.astype(wide), want.astype(wide), rtol=units * limits.eps,
        atol=(limits.eps * units if want.dtype.kind == "c" else limits.smallest_normal),
        err_msg=str(what),
    )  # fmt: skip


@pytest.fixture(autouse=True)
def one_program_each(recorder: Recorder, also_compiled: None) -> None:
    """A table is long: one program of each row is compiled as well."""
    recorder.kept = EACH_TEST - 1


def operand(name: str, place: int, shape: Shape, dtype: DType, draw: Draw) -> tuple[Any, Array]:
    """A view of random values as a tensor and as an array, in the domain of the function."""
    view = view_of(shape, draw)
    base = values(view.base, dtype, draw)
    if place and "shift" in name:
        base = np.abs(base.astype(np.int64) % 70).astype(dtype.numpy)
    if place and name == "pow" and dtype.is_int:
        base = base & 7
    return view.of_tensor(lm.asarray(base)), view.of_array(base)


@pytest.mark.parametrize("name", [*UNARY, *BINARY])
@settings(max_examples=25)
@given(shape=SHAPES, seed=SEEDS)
@example(shape=(3, 3), seed=0)
def test_values(name: str, shape: Shape, seed: int) -> None:
    draw = np.random.default_rng([seed, len(shape)])
    entry = UNARY.get(name) or BINARY[name]
    dtype = entry.dtypes[draw.integers(len(entry.dtypes))]
    shapes = [shape] if name in UNARY else [shape, broadcasting(shape, draw)]
    if draw.random() < 0.5:
        shapes.reverse()
    pairs = [operand(name, place, one, dtype, draw) for place, one in enumerate(shapes)]
    got = getattr(lm, name)(*(tensor for tensor, _ in pairs))
    want = expected(entry, dtype, *(array for _, array in pairs))
    agree(got, want, (name, dtype, [array for _, array in pairs]))


OPERATORS: dict[str, str] = {
    "__add__": "add", "__sub__": "subtract", "__mul__": "multiply", "__truediv__": "divide",
    "__floordiv__": "floor_divide", "__mod__": "remainder", "__pow__": "pow",
    "__and__": "bitwise_and", "__or__": "bitwise_or", "__xor__": "bitwise_xor",
    "__lshift__": "bitwise_left_shift", "__rshift__": "bitwise_right_shift",
    "__matmul__": "matmul", "__eq__": "equal", "__ne__": "not_equal", "__lt__": "less",
    "__le__": "less_equal", "__gt__": "greater", "__ge__": "greater_equal",
    "__neg__": "negative", "__pos__": "positive", "__abs__": "abs", "__invert__": "bitwise_invert",
}  # fmt: skip


@pytest.mark.parametrize("name", OPERATORS)
def test_operators(name: str) -> None:
    x, y = np.array([[7, -3], [4, 9]]), np.array([[2, 3], [1, 5]])
    function = getattr(lm, OPERATORS[name])
    if name in ("__neg__", "__pos__", "__abs__", "__invert__"):
        got, want = getattr(lm.asarray(x), name)(), getattr(x, name)()
        assert np.array_equal(got.numpy(), want)
        assert np.array_equal(function(lm.asarray(x)).numpy(), want)
        return
    want = getattr(x, name)(y)
    found = [getattr(lm.asarray(x), name)(lm.asarray(y)), function(lm.asarray(x), lm.asarray(y))]
    if hasattr(x, reflected := f"__r{name[2:]}"):
        found.append(getattr(lm.asarray(y), reflected)(lm.asarray(x)))
    for got in found:
        np.testing.assert_allclose(got.numpy(), want, rtol=1e-6)
    assert getattr(lm.asarray(x), name)("text") is NotImplemented


@pytest.mark.parametrize("scalar", [3, -2, 2.5, True])
@pytest.mark.parametrize("name", BINARY)
def test_a_python_number_is_a_tensor_of_the_others_dtype(name: str, scalar: Any) -> None:
    entry = BINARY[name]
    for dtype in entry.dtypes:
        if lm.result_type(dtype, scalar) is not dtype or (dtype.kind == "uint" and scalar < 0):
            continue
        if scalar < 0 and ("shift" in name or name == "pow"):
            continue
        x = lm.asarray(np.array([1, 2, 3]).astype(dtype.numpy))
        got = getattr(lm, name)(x, scalar)
        want = getattr(lm, name)(x, lm.asarray(scalar, dtype=dtype))
        assert got.dtype is want.dtype
        np.testing.assert_array_equal(got.numpy(), want.numpy())


CHOICES = ("where", "masked_fill", "clip", "nan_to_num")


@pytest.mark.parametrize("name", CHOICES)
@settings(max_examples=25)
@given(shape=SHAPES, seed=SEEDS)
@example(shape=(3, 3), seed=0)
def test_choices(name: str, shape: Shape, seed: int) -> None:
    draw = np.random.default_rng([seed, len(shape)])
    dtypes = {"where": ALL, "masked_fill": ALL, "clip": REAL[1:], "nan_to_num": FLOATS}[name]
    dtype = dtypes[draw.integers(len(dtypes))]
    x, a = operand(name, 0, shape, dtype, draw)
    y, b = operand(name, 0, broadcasting(shape, draw), dtype, draw)
    mask, m = operand(name, 0, shape, lm.bool, draw)
    if name == "where":
        got, want = lm.where(mask, x, y), np.where(m, a, b)
    elif name == "masked_fill":
        got, want = lm.masked_fill(x, mask, 1), np.where(m, np.ones((), a.dtype), a)
    elif name == "clip":
        got, want = lm.clip(x, y, 3), np.minimum(np.maximum(a, b), np.array(3, a.dtype))
    else:
        most = float(lm.finfo(dtype).max)
        wide = np.nan_to_num(a.astype(np.float64), nan=0.5, posinf=most, neginf=-2.0)
        got, want = lm.nan_to_num(x, 0.5, neginf=-2.0), wide.astype(a.dtype)
    agree(got, np.asarray(want), (name, dtype, a, b, m), units=0)


def test_complex_pairs() -> None:
    for dtype in COMPLEX:
        z = np.array([1 + 2j, -3j, 0.5], dtype.numpy)
        assert np.array_equal(lm.asarray(z).real.numpy(), z.real)
        assert np.array_equal(lm.asarray(z).imag.numpy(), z.imag)
