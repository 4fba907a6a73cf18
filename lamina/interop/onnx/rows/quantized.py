"""Rows of quantized values: integers, or narrow floats, times a scale, from a zero point on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import lamina as lm
from lamina.frontend.tensor import Tensor
from lamina.interop.onnx.rows import Context, row
from lamina.interop.onnx.rows.casts import converted
from lamina.interop.onnx.rows.conv import beside_channels, convolution
from lamina.interop.onnx.values import dtype_of, numpy_dtype, tensor

Sizes = Sequence[int]


def _spread(values: Tensor, shape: Sizes, axis: int, block: int) -> Tensor:
    """Scales or zero points beside an array of `shape`: one, one for each place of `axis`, or one
    for each `block` of that axis, of which the last may be incomplete."""
    if values.size == 1:
        return lm.reshape(values, ())
    if not block:
        return lm.reshape(values, (-1, *(1,) * (len(shape) - 1 - axis % len(shape))))
    repeated = lm.repeat(values, block, axis=axis)
    return lm.take(repeated, lm.arange(shape[axis]), axis=axis)


def _rounded(
    context: Context, values: Tensor, zero_point: Tensor | None, dtype: np.dtype[Any]
) -> Any:
    """`values`, in units of the scale, as integers of `dtype`, halves to even, within its range."""
    import ml_dtypes

    total = lm.round(values).cast(lm.float32)
    if zero_point is not None:
        total = total + zero_point.cast(lm.float32)
    bounds = ml_dtypes.iinfo(dtype)  # type: ignore[no-untyped-call]
    return converted(context, lm.clip(total, int(bounds.min), int(bounds.max)), dtype)


@row("QuantizeLinear")
def quantize(
    context: Context, x: Any, scale: Any, zero_point: Any = None, *, axis: int = 1,
    block_size: int = 0, output_dtype: int = 0, precision: int = 0, saturate: int = 1,
) -> Any:  # fmt: skip
    """The dtype is that of the zero point, or `output_dtype`, or uint8. precision: the dtype of
    the division."""
    dtype = np.dtype(np.uint8)
    if zero_point is not None:
        dtype = dtype_of(zero_point)
    elif output_dtype:
        dtype = numpy_dtype(output_dtype)
    values, unit = tensor(x), tensor(scale)
    if precision:
        division = numpy_dtype(precision)
        values = tensor(converted(context, values, division))
        unit = tensor(converted(context, unit, division))
    elif not values.dtype.is_float:
        values = values.cast(unit.dtype)
    quotient = values / _spread(unit, values.shape, axis, block_size)
    if dtype.kind == "f" or dtype.name.startswith("float"):
        return converted(context, quotient, dtype, bool(saturate))
    origin = None
    if zero_point is not None:
        whole = tensor(converted(context, zero_point, np.dtype(np.float32)))
        origin = _spread(whole, values.shape, axis, block_size)
    return _rounded(context, quotient, origin, dtype)


@row("DequantizeLinear")
def dequantize(
    context: Context, x: Any, scale: Any, zero_point: Any = None, *, axis: int = 1,
    block_size: int = 0, output_dtype: int = 0,
) -> Any:  # fmt: skip
    """In float32; the result has the scale's dtype, or `output_dtype`."""
    dtype = numpy_dtype(output_dtype) if output_dtype else dtype_of(scale)
    single = np.dtype(np.float32)
    values = tensor(converted(context, x, single))
    if zero_point is not None:
        origin = tensor(converted(context, zero_point, single))
        values = values - _spread(origin, values.shape, axis, block_size)
    unit = tensor(converted(context, scale, single))
    return converted(context, values * _spread(unit, values.shape, axis, block_size), dtype)


def _centred(x: Any, zero_point: Any, vector_axis: int) -> Tensor:
    """int32: `x` without its zero point, which may be a vector along `vector_axis`."""
    values = tensor(x).cast(lm.int32)
    if zero_point is None:
        return values
    origin = tensor(zero_point).cast(lm.int32)
    if origin.ndim == 1:
        origin = _spread(origin, values.shape, vector_axis, 0)
    return values - origin


@row("MatMulInteger")
def matmul_integer(
    context: Context, a: Any, b: Any, a_zero_point: Any = None, b_zero_point: Any = None
) -> Any:
    """Zero points for each row of `a` and each column of `b`, or for all."""
    return lm.matmul(_centred(a, a_zero_point, -2), _centred(b, b_zero_point, -1))


@row("QLinearMatMul")
def quantized_matmul(
    context: Context, a: Any, a_scale: Any, a_zero_point: Any, b: Any, b_scale: Any,
    b_zero_point: Any, y_scale: Any, y_zero_point: Any,
) -> Any:  # fmt: skip
    product = matmul_integer(context, a, b, a_zero_point, b_zero_point)
    of_rows = _spread(tensor(a_scale).cast(lm.float32), product.shape, -2, 0)
    of_columns = _spread(tensor(b_scale).cast(lm.float32), product.shape, -1, 0)
    of_result = _spread(tensor(y_scale).cast(lm.float32), product.shape, -2, 0)
    origin = _spread(tensor(y_zero_point), product.shape, -2, 0)
    values = product.cast(lm.float32) * (of_rows * of_columns / of_result)
    return _rounded(context, values, origin, dtype_of(y_zero_point))


@row("ConvInteger")
def conv_integer(
    context: Context, x: Any, w: Any, x_zero_point: Any = None, w_zero_point: Any = None, *,
    auto_pad: str = "NOTSET", dilations: Sizes | None = None, group: int = 1,
    kernel_shape: Sizes | None = None, pads: Sizes | None = None, strides: Sizes | None = None,
) -> Any:  # fmt: skip
    """In int32; the zero point of the weights may be one for each channel of the result."""
    images, weights = _centred(x, x_zero_point, 1), _centred(w, w_zero_point, 0)
    return convolution(images, weights, None, auto_pad, dilations, group, pads, strides)


@row("QLinearConv")
def quantized_conv(
    context: Context, x: Any, x_scale: Any, x_zero_point: Any, w: Any, w_scale: Any,
    w_zero_point: Any, y_scale: Any, y_zero_point: Any, b: Any = None, **attributes: Any,
) -> Any:  # fmt: skip
    """The scale of the weights may be one for each channel; biases have the product's scale."""
    total = conv_integer(context, x, w, x_zero_point, w_zero_point, **attributes)
    if b is not None:
        total = total + beside_channels(tensor(b), total.ndim)
    of_weights = beside_channels(lm.reshape(tensor(w_scale), (-1,)), total.ndim)
    values = total.cast(lm.float32) * (tensor(x_scale) * of_weights / tensor(y_scale))
    return _rounded(context, values, tensor(y_zero_point), dtype_of(y_zero_point))
