"""Rows of the domain com.microsoft that files made by onnxruntime's optimiser have.

They follow its page of contributed operators (ContribOperators.md). SimplifiedLayerNormalization
stands in ONNX's own domain there.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import lamina as lm
from lamina.frontend.tensor import Tensor
from lamina.interop.onnx.errors import OnnxError
from lamina.interop.onnx.rows import Context, row
from lamina.interop.onnx.rows.norms import layer_normalization
from lamina.interop.onnx.rows.quantized import dequantize, quantize
from lamina.interop.onnx.values import maybe_tensor, tensor

_row = partial(row, domain="com.microsoft")


@_row("FusedMatMul")
def fused_matmul(
    context: Context, a: Any, b: Any, *, alpha: float = 1.0,
    transA: int = 0, transB: int = 0,  # noqa: N803 (names of attributes)
    transBatchA: int = 0, transBatchB: int = 0,  # noqa: N803
) -> Any:  # fmt: skip
    """``alpha`` times a product of matrices, each of which may be transposed first."""
    if transBatchA or transBatchB:
        raise OnnxError("a FusedMatMul that transposes axes of batches: transpose them before")
    left, right = tensor(a), tensor(b)
    left = left.mT if transA else left
    right = right.mT if transB else right
    product = lm.matmul(left, right)
    return (product * alpha).cast(product.dtype)


@_row("Gelu")
def gelu(context: Context, x: Any) -> Any:
    return lm.gelu(tensor(x))


@_row("BiasGelu")
def bias_gelu(context: Context, x: Any, bias: Any) -> Any:
    return lm.gelu(tensor(x) + tensor(bias))


@_row("FastGelu")
def fast_gelu(context: Context, x: Any, bias: Any = None) -> Any:
    """The approximation by a hyperbolic tangent."""
    shift = maybe_tensor(bias)
    values = tensor(x)
    return lm.gelu(values if shift is None else values + shift, "tanh")


@_row("QuickGelu")
def quick_gelu(context: Context, x: Any, *, alpha: float = 1.702) -> Any:
    values = tensor(x)
    return (values * lm.sigmoid(values * alpha)).cast(values.dtype)


@row("SimplifiedLayerNormalization")
def simplified_layer_normalization(
    context: Context, x: Any, scale: Any, *, axis: int = -1, epsilon: float = 1e-5,
    stash_type: int = 1,
) -> Any:  # fmt: skip
    """The result, and the reciprocals of root mean squares."""
    values = tensor(x)
    axes = tuple(range(axis % values.ndim, values.ndim))
    exact = values.cast(lm.float32)
    mean_square = lm.mean(exact * exact, axis=axes, keepdims=True)
    reciprocal = lm.rsqrt(mean_square + epsilon)
    result = (exact * reciprocal).cast(values.dtype) * tensor(scale)
    return (result, reciprocal)[: max(context.outputs, 1)]


def _with_skip(x: Any, skip: Any, bias: Any) -> Tensor:
    """What is normalised, the last output of both operators with a skip connection."""
    shift = maybe_tensor(bias)
    total = tensor(x) + tensor(skip)
    return total if shift is None else total + shift


@_row("SkipLayerNormalization")
def skip_layer_normalization(
    context: Context, x: Any, skip: Any, gamma: Any, beta: Any = None, bias: Any = None, *,
    epsilon: float = 1e-12,
) -> Any:  # fmt: skip
    """The normalised sum, means, reciprocal deviations, and the sum itself."""
    total = _with_skip(x, skip, bias)
    inner = Context(context.opset, context.op_type, context.name, outputs=3)
    results = layer_normalization(inner, total, gamma, beta, epsilon=epsilon)
    return (*results, total)[: max(context.outputs, 1)]


@_row("SkipSimplifiedLayerNormalization")
def skip_simplified_layer_normalization(
    context: Context, x: Any, skip: Any, gamma: Any, bias: Any = None, *, epsilon: float = 1e-12
) -> Any:
    """The normalised sum, nothing in the place of means, reciprocals, and the sum itself."""
    total = _with_skip(x, skip, bias)
    inner = Context(context.opset, context.op_type, context.name, outputs=2)
    result, reciprocal = simplified_layer_normalization(inner, total, gamma, epsilon=epsilon)
    return (result, None, reciprocal, total)[: max(context.outputs, 1)]


def _of_two(name: str, function: Any) -> None:
    """The row of an operator on two quantised arrays, whose result is quantised again."""

    @_row(name)
    def combined(
        context: Context, a: Any, a_scale: Any, a_zero_point: Any, b: Any, b_scale: Any,
        b_zero_point: Any, y_scale: Any, y_zero_point: Any = None,
    ) -> Any:  # fmt: skip
        left = dequantize(context, a, a_scale, a_zero_point)
        right = dequantize(context, b, b_scale, b_zero_point)
        return quantize(context, function(tensor(left), tensor(right)), y_scale, y_zero_point)


_of_two("QLinearAdd", lambda a, b: a + b)
_of_two("QLinearMul", lambda a, b: a * b)


@_row("QLinearSigmoid")
def quantized_sigmoid(
    context: Context, x: Any, x_scale: Any, x_zero_point: Any, y_scale: Any,
    y_zero_point: Any = None,
) -> Any:  # fmt: skip
    values = tensor(dequantize(context, x, x_scale, x_zero_point))
    return quantize(context, lm.sigmoid(values), y_scale, y_zero_point)


@_row("QLinearLeakyRelu")
def quantized_leaky_relu(
    context: Context, x: Any, x_scale: Any, x_zero_point: Any, y_scale: Any,
    y_zero_point: Any = None, *, alpha: float = 0.01,
) -> Any:  # fmt: skip
    values = tensor(dequantize(context, x, x_scale, x_zero_point))
    return quantize(context, lm.leaky_relu(values, alpha), y_scale, y_zero_point)
