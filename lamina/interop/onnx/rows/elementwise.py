"""Rows of elementwise arithmetic, comparisons, logic and bits.

Where the host knows all inputs and they are small, a row computes with NumPy: exporters write the
arithmetic of shapes with these operators.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np

import lamina as lm
from lamina.interop.onnx.rows import Context, row
from lamina.interop.onnx.values import is_folded, tensor

Binary = Callable[[Any, Any], Any]


def _unary(name: str, function: Callable[[Any], Any], on_host: Callable[[Any], Any]) -> None:
    def unary(context: Context, x: Any, **_: Any) -> Any:
        return np.asarray(on_host(x)) if is_folded(x) else function(tensor(x))

    row(name)(unary)


def _aligned(x: Any, y: Any, broadcast: int, axis: int | None) -> Any:
    """The second operand before version 7: its axes stand at `axis` of the first's, such as
    sizes (3, 4) at axis 1 of (2, 3, 4, 5)."""
    if not broadcast or axis is None:
        return y
    behind = x.ndim - axis % x.ndim - y.ndim
    return y.reshape((*y.shape, *(1,) * behind))


def _binary(name: str, function: Binary, on_host: Binary) -> None:
    def binary(
        context: Context, x: Any, y: Any, *, broadcast: int = 0, axis: int | None = None, **_: Any
    ) -> Any:
        y = _aligned(x, y, broadcast, axis)
        return np.asarray(on_host(x, y)) if is_folded(x, y) else function(tensor(x), tensor(y))

    row(name)(binary)


def _variadic(name: str, function: Binary, on_host: Binary) -> None:
    def variadic(context: Context, *inputs: Any, **_: Any) -> Any:
        if is_folded(*inputs):
            return np.asarray(reduce(on_host, inputs))
        return reduce(function, map(tensor, inputs))

    row(name)(variadic)


def _divide(x: Any, y: Any) -> Any:
    """Quotients of integers are rounded towards zero."""
    if x.dtype.is_float:
        return x / y
    return _towards_zero(x, y, lm.floor_divide(x, y), lm.where)


def _divide_on_host(x: Any, y: Any) -> Any:
    if x.dtype.kind not in "iu":
        return np.divide(x, y)
    return _towards_zero(x, y, np.floor_divide(x, y), np.where).astype(x.dtype)


def _towards_zero(x: Any, y: Any, floor: Any, where: Callable[..., Any]) -> Any:
    """-7 by 2 is floor -4 with a rest, of which the quotient is -3."""
    inexact = (floor * y != x) & ((x < 0) != (y < 0)) & (y != 0)
    return where(inexact, floor + 1, floor)


def _power(x: Any, y: Any) -> Any:
    """The dtype is that of the base; an exponent of fractions makes the power one of floats."""
    if x.dtype is y.dtype:
        return lm.pow(x, y)
    if y.dtype.is_float and not x.dtype.is_float:
        return lm.pow(x.cast(y.dtype), y).cast(x.dtype)
    return lm.pow(x, y.cast(x.dtype))


def _power_on_host(x: Any, y: Any) -> Any:
    return np.power(x, y).astype(x.dtype)


_UNARY: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "Abs": (lm.abs, np.abs), "Acos": (lm.acos, np.arccos), "Acosh": (lm.acosh, np.arccosh),
    "Asin": (lm.asin, np.arcsin), "Asinh": (lm.asinh, np.arcsinh), "Atan": (lm.atan, np.arctan),
    "Atanh": (lm.atanh, np.arctanh), "Ceil": (lm.ceil, np.ceil), "Cos": (lm.cos, np.cos),
    "Cosh": (lm.cosh, np.cosh), "Exp": (lm.exp, np.exp), "Floor": (lm.floor, np.floor),
    "Log": (lm.log, np.log), "Neg": (lm.negative, np.negative),
    "Not": (lm.logical_not, np.logical_not),
    "Reciprocal": (lm.reciprocal, np.reciprocal), "Round": (lm.round, np.round),
    "Sign": (lm.sign, np.sign), "Sin": (lm.sin, np.sin), "Sinh": (lm.sinh, np.sinh),
    "Sqrt": (lm.sqrt, np.sqrt), "Tan": (lm.tan, np.tan), "Tanh": (lm.tanh, np.tanh),
    "BitwiseNot": (lm.bitwise_invert, np.bitwise_not), "IsNaN": (lm.isnan, np.isnan),
}  # fmt: skip
_BINARY: dict[str, tuple[Binary, Binary]] = {
    "Add": (lm.add, np.add), "Sub": (lm.subtract, np.subtract), "Mul": (lm.multiply, np.multiply),
    "Div": (_divide, _divide_on_host), "Pow": (_power, _power_on_host),
    "Equal": (lm.equal, np.equal), "Less": (lm.less, np.less), "Greater": (lm.greater, np.greater),
    "LessOrEqual": (lm.less_equal, np.less_equal),
    "GreaterOrEqual": (lm.greater_equal, np.greater_equal),
    "And": (lm.logical_and, np.logical_and), "Or": (lm.logical_or, np.logical_or),
    "Xor": (lm.logical_xor, np.logical_xor), "BitwiseAnd": (lm.bitwise_and, np.bitwise_and),
    "BitwiseOr": (lm.bitwise_or, np.bitwise_or), "BitwiseXor": (lm.bitwise_xor, np.bitwise_xor),
}  # fmt: skip
_VARIADIC: dict[str, tuple[Binary, Binary]] = {
    "Max": (lm.maximum, np.maximum), "Min": (lm.minimum, np.minimum), "Sum": (lm.add, np.add),
}  # fmt: skip

for _name, _pair in _UNARY.items():
    _unary(_name, *_pair)
for _name, _pair_of_two in _BINARY.items():
    _binary(_name, *_pair_of_two)
for _name, _pair_of_two in _VARIADIC.items():
    _variadic(_name, *_pair_of_two)


@row("Erf")
def erf(context: Context, x: Any) -> Any:
    return lm.erf(tensor(x))


@row("Mean")
def mean(context: Context, *inputs: Any, **_: Any) -> Any:
    total = reduce(lm.add, map(tensor, inputs))
    return total / len(inputs)


@row("Equal", since=19)
def equal(context: Context, x: Any, y: Any) -> Any:
    """Strings, which the host compares, too."""
    if x.dtype == object or is_folded(x, y):
        return np.asarray(x == y).astype(bool)
    return lm.equal(tensor(x), tensor(y))


@row("Mod")
def mod(context: Context, x: Any, y: Any, *, fmod: int = 0) -> Any:
    """The sign is the dividend's with `fmod`, else the divisor's."""
    if is_folded(x, y):
        return np.asarray(np.fmod(x, y) if fmod else np.mod(x, y))
    return (lm.fmod if fmod else lm.remainder)(tensor(x), tensor(y))


@row("BitShift")
def bit_shift(context: Context, x: Any, y: Any, *, direction: str) -> Any:
    shift = lm.bitwise_left_shift if direction == "LEFT" else lm.bitwise_right_shift
    return shift(tensor(x), tensor(y))


@row("IsInf")
def is_inf(context: Context, x: Any, *, detect_negative: int = 1, detect_positive: int = 1) -> Any:
    values = tensor(x)
    infinite = lm.isinf(values)
    if not detect_negative:
        infinite = infinite & (values > 0)
    if not detect_positive:
        infinite = infinite & (values < 0)
    return infinite


@row("Where")
def where(context: Context, condition: Any, x: Any, y: Any) -> Any:
    if x.dtype == object or is_folded(condition, x, y):
        return np.where(context.host(condition), x, y)
    return lm.where(tensor(condition), tensor(x), tensor(y))


@row("Clip")
def clip_by_attributes(
    context: Context, x: Any, *, min: float | None = None, max: float | None = None, **_: Any
) -> Any:
    return clip(context, x, min, max)


@row("Clip", since=11)
def clip(context: Context, x: Any, low: Any = None, high: Any = None) -> Any:
    """The upper bound wins over the lower."""
    if is_folded(x, *(bound for bound in (low, high) if bound is not None)):
        x = x if low is None else np.maximum(x, low)
        return np.asarray(x if high is None else np.minimum(x, high))
    values = tensor(x)
    if low is not None:
        values = lm.maximum(values, low)
    return values if high is None else lm.minimum(values, high)
