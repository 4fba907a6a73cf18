"""Rows of elementwise operations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

import lamina as lm
from lamina.frontend.tensor import Tensor
from lamina.interop.torch.rows.vjp import vjp

Row = Callable[..., Any]


def _scaled(x: Any, alpha: Any) -> Any:
    return x if alpha == 1 else x * alpha


def _add(x: Any, y: Any, alpha: Any = 1) -> Any:
    return lm.add(x, _scaled(y, alpha))


def _sub(x: Any, y: Any, alpha: Any = 1) -> Any:
    return lm.subtract(x, _scaled(y, alpha))


def _rsub(x: Any, y: Any, alpha: Any = 1) -> Any:
    return lm.subtract(y, _scaled(x, alpha))


def _div(x: Any, y: Any, *, rounding_mode: str | None = None) -> Any:
    if rounding_mode == "floor":
        return lm.floor_divide(x, y)
    if rounding_mode is None:
        return lm.divide(x, y)
    if x.dtype.is_int and (isinstance(y, int) or y.dtype.is_int):
        return lm.floor_divide(x - lm.fmod(x, y), y)  # a float has not all digits of an int64
    return lm.trunc(lm.divide(x, y))


def _clamp(x: Tensor, low: Any = None, high: Any = None) -> Tensor:
    """NaN bounds win, as in PyTorch; the upper bound wins over the lower."""
    if low is not None:
        x = lm.maximum(x, low)
    return x if high is None else lm.minimum(x, high)


def _sign(x: Tensor) -> Tensor:
    """That of NaN is 0, as in PyTorch; but that of a complex NaN, which is NaN."""
    return lm.sign(x) if x.dtype.is_complex else lm.where(lm.isnan(x), lm.zeros_like(x), lm.sign(x))


def _gelu_backward(upstream: Tensor, x: Tensor, *, approximate: str = "none") -> Any:
    return vjp(lambda x: lm.gelu(x, approximate), [x], upstream)[0]


def _slope_of(function: Callable[..., Tensor]) -> Row:
    """The row of a backward operation that has the upstream derivative, then the arguments."""
    return lambda upstream, x, *more: vjp(lambda x: function(x, *more), [x], upstream)[0]


def _threshold_backward(upstream: Tensor, x: Tensor, threshold: Any) -> Tensor:
    """NaN passes the derivative on, as in PyTorch."""
    return lm.where(x <= threshold, lm.zeros_like(upstream), upstream)


def _leaky_relu_backward(upstream: Tensor, x: Tensor, slope: Any, of_result: bool) -> Tensor:
    return lm.where(x > 0, upstream, upstream * slope)


def _hardtanh_backward(upstream: Tensor, x: Tensor, low: Any, high: Any) -> Tensor:
    outside = lm.logical_or(x <= low, x >= high)
    return lm.where(outside, lm.zeros_like(upstream), upstream)


def _rrelu_backward(
    upstream: Tensor, x: Tensor, noise: Tensor, lower: float, upper: float, training: bool,
    of_result: bool,
) -> Tensor:  # fmt: skip
    """The noise is the slope of each element; without it all have the one in the middle."""
    if training and upper - lower > 1e-6:
        return upstream * noise
    return _leaky_relu_backward(upstream, x, (lower + upper) / 2, of_result)


_UNARY: dict[str, Row] = {
    "abs": lm.abs, "acos": lm.acos, "acosh": lm.acosh, "angle": lm.angle, "asin": lm.asin,
    "asinh": lm.asinh, "atan": lm.atan, "atanh": lm.atanh, "bitwise_not": lm.bitwise_invert,
    "ceil": lm.ceil, "conj_physical": lm.conj, "_conj": lm.conj, "cos": lm.cos, "cosh": lm.cosh,
    "digamma": lm.digamma, "erf": lm.erf, "erfc": lm.erfc, "erfinv": lm.erfinv, "exp": lm.exp,
    "exp2": lm.exp2, "expm1": lm.expm1, "floor": lm.floor, "hardsigmoid": lm.hardsigmoid,
    "hardswish": lm.hardswish, "i0": lm.i0, "isinf": lm.isinf, "isnan": lm.isnan,
    "lgamma": lm.lgamma, "log": lm.log, "log10": lm.log10, "log1p": lm.log1p, "log2": lm.log2,
    "logical_not": lm.logical_not, "mish": lm.mish, "neg": lm.negative,
    "reciprocal": lm.reciprocal, "relu": lm.relu, "round": lm.round, "rsqrt": lm.rsqrt,
    "sgn": _sign, "sigmoid": lm.sigmoid, "sign": _sign, "signbit": lm.signbit,
    "silu": lm.silu, "sin": lm.sin, "sinc": lm.sinc, "sinh": lm.sinh, "special_entr": lm.entr,
    "special_erfcx": lm.erfcx, "special_i0e": lm.i0e, "special_i1": lm.i1, "special_i1e": lm.i1e,
    "special_log_ndtr": lm.log_ndtr, "special_ndtri": lm.ndtri, "sqrt": lm.sqrt, "tan": lm.tan,
    "tanh": lm.tanh, "trunc": lm.trunc, "alias": lm.positive, "detach": lm.positive,
    "relu6": lm.relu6, "square": lm.square, "frac": lm.frac, "log_sigmoid": lm.logsigmoid,
}  # fmt: skip
_BINARY: dict[str, Row] = {
    "add": _add, "sub": _sub, "rsub": _rsub, "mul": lm.multiply, "div": _div,
    "floor_divide": lm.floor_divide, "remainder": lm.remainder, "fmod": lm.fmod, "pow": lm.pow,
    "eq": lm.equal, "ne": lm.not_equal, "lt": lm.less, "le": lm.less_equal, "gt": lm.greater,
    "ge": lm.greater_equal, "bitwise_and": lm.bitwise_and, "bitwise_or": lm.bitwise_or,
    "bitwise_xor": lm.bitwise_xor, "bitwise_left_shift": lm.bitwise_left_shift,
    "bitwise_right_shift": lm.bitwise_right_shift, "copysign": lm.copysign, "xlogy": lm.xlogy,
    "special_xlog1py": lm.xlog1py, "special_zeta": lm.zeta,
}  # fmt: skip
_BINARY_TENSORS: dict[str, Row] = {
    "atan2": lm.atan2, "fmax": lm.fmax, "fmin": lm.fmin, "hypot": lm.hypot,
    "logaddexp": lm.logaddexp, "logaddexp2": lm.logaddexp2, "logical_and": lm.logical_and,
    "logical_or": lm.logical_or, "logical_xor": lm.logical_xor, "maximum": lm.maximum,
    "minimum": lm.minimum, "nextafter": lm.nextafter, "heaviside": lm.heaviside,
    "complex": lm.complex, "polar": lm.polar,
    "sigmoid_backward": lambda upstream, y: upstream * (y * (1 - y)),
    "tanh_backward": lambda upstream, y: upstream * (1 - y * y),
    "silu_backward": _slope_of(lm.silu), "mish_backward": _slope_of(lm.mish),
    "hardswish_backward": _slope_of(lm.hardswish),
    "hardsigmoid_backward": _slope_of(lm.hardsigmoid),
}  # fmt: skip

ROWS: dict[str, Row] = {
    **{f"aten.{name}.default": row for name, row in _UNARY.items()},
    **{f"aten.{name}.default": row for name, row in _BINARY_TENSORS.items()},
    **{
        f"aten.{name}.{overload}": row
        for name, row in _BINARY.items()
        for overload in getattr(torch.ops.aten, name).overloads()
        if "out" not in overload.lower()
    },
    "aten.addcmul.default": lm.addcmul,
    "aten.addcdiv.default": lm.addcdiv,
    "aten.lerp.Scalar": lm.lerp,
    "aten.lerp.Tensor": lm.lerp,
    "aten.round.decimals": lambda x, *, decimals: lm.round(x, decimals),
    "aten.clamp.default": _clamp,
    "aten.clamp.Tensor": _clamp,
    "aten.clamp_min.default": lambda x, low: lm.maximum(x, low),
    "aten.clamp_min.Tensor": lambda x, low: lm.maximum(x, low),
    "aten.clamp_max.default": lambda x, high: lm.minimum(x, high),
    "aten.clamp_max.Tensor": lambda x, high: lm.minimum(x, high),
    "aten.gelu.default": lambda x, *, approximate="none": lm.gelu(x, approximate),
    "aten.gelu_backward.default": _gelu_backward,
    "aten.elu.default": lambda x, alpha=1, scale=1, input_scale=1: (
        lm.elu(x * input_scale, alpha) * scale
    ),
    "aten.celu.default": lm.celu,
    "aten.leaky_relu.default": lm.leaky_relu,
    "aten.leaky_relu_backward.default": _leaky_relu_backward,
    "aten.rrelu_with_noise_backward.default": _rrelu_backward,
    "aten.hardtanh.default": lambda x, low=-1, high=1: _clamp(x, low, high),
    "aten.hardtanh_backward.default": _hardtanh_backward,
    "aten.softplus.default": lambda x, beta=1, threshold=20: lm.softplus(x, beta, threshold),
    "aten.softplus_backward.default": _slope_of(lm.softplus),
    "aten.threshold.default": lm.threshold,
    "aten.threshold_backward.default": _threshold_backward,
    "prims.fma.default": lambda x, y, z: x * y + z,
}

UNPROMOTED: dict[str, Row] = {
    "aten.where.self": lm.where,
    "aten.where.ScalarOther": lm.where,
    "aten.where.ScalarSelf": lm.where,
    "aten.where.Scalar": lm.where,
    "aten.ldexp.Tensor": lm.ldexp,
    "aten.masked_fill.Scalar": lm.masked_fill,
    "aten.masked_fill.Tensor": lm.masked_fill,
    "aten.nan_to_num.default": lambda x, nan=None, posinf=None, neginf=None: lm.nan_to_num(
        x, 0.0 if nan is None else nan, posinf, neginf
    ),
    "aten.frexp.Tensor": lm.frexp,
    "aten.polygamma.default": lambda n, x: lm.polygamma(n, x),
    "aten.view_as_real.default": lm.view_as_real,
    "aten.view_as_complex.default": lm.view_as_complex,
    "aten.real.default": lm.real,
    "aten.imag.default": lm.imag,
    # The result's dtype is what these are about.
    "aten._to_copy.default": lambda x, **options: x,
    "prims.convert_element_type.default": lambda x, dtype: x,
}
