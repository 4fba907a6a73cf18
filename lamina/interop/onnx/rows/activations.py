"""Rows of activations, and of softmax and dropout."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

import lamina as lm
from lamina.frontend.tensor import Tensor
from lamina.interop.onnx.rows import Context, row
from lamina.interop.onnx.values import tensor


@row("Relu")
def relu(context: Context, x: Any, **_: Any) -> Any:
    return lm.maximum(tensor(x), 0)


@row("Sigmoid")
def sigmoid(context: Context, x: Any, **_: Any) -> Any:
    return lm.sigmoid(tensor(x))


@row("LeakyRelu")
def leaky_relu(context: Context, x: Any, *, alpha: float = 0.01, **_: Any) -> Any:
    return lm.leaky_relu(tensor(x), alpha)


@row("PRelu")
def parametric_relu(context: Context, x: Any, slope: Any, **_: Any) -> Any:
    """Before version 7 a vector of slopes has one for each channel, the second axis."""
    values, slopes = tensor(x), tensor(slope)
    if context.opset < 7 and slopes.ndim == 1 and values.ndim > 1:
        slopes = lm.reshape(slopes, (-1, *(1,) * (values.ndim - 2)))
    return lm.where(values < 0, values * slopes, values)


@row("Elu")
def elu(context: Context, x: Any, *, alpha: float = 1.0, **_: Any) -> Any:
    return lm.elu(tensor(x), alpha)


@row("Selu")
def selu(
    context: Context, x: Any, *, alpha: float | None = None, gamma: float | None = None, **_: Any
) -> Any:
    """Version 1 had constants of fewer digits."""
    if alpha is None:
        alpha = 1.6732 if context.opset < 6 else 1.6732631921768188
    if gamma is None:
        gamma = 1.0507 if context.opset < 6 else 1.0507010221481323
    values = tensor(x)
    return gamma * lm.where(values > 0, values, alpha * lm.expm1(lm.minimum(values, 0)))


@row("HardSigmoid")
def hard_sigmoid(
    context: Context, x: Any, *, alpha: float = 0.2, beta: float = 0.5, **_: Any
) -> Any:
    return lm.clip(tensor(x) * alpha + beta, 0, 1)


@row("Softplus")
def softplus(context: Context, x: Any) -> Any:
    values = tensor(x)
    return lm.maximum(values, 0) + lm.log1p(lm.exp(-lm.abs(values)))


@row("Softsign")
def softsign(context: Context, x: Any) -> Any:
    values = tensor(x)
    return values / (lm.abs(values) + 1)


@row("ThresholdedRelu")
def thresholded_relu(context: Context, x: Any, *, alpha: float = 1.0) -> Any:
    values = tensor(x)
    return lm.where(values > alpha, values, 0)


@row("Shrink")
def shrink(context: Context, x: Any, *, bias: float = 0.0, lambd: float = 0.5) -> Any:
    values = tensor(x)
    negative = lm.where(values < -lambd, values + bias, 0)
    return lm.where(values > lambd, values - bias, negative).cast(values.dtype)


@row("Gelu")
def gelu(context: Context, x: Any, *, approximate: str = "none") -> Any:
    return lm.gelu(tensor(x), approximate)


def _along_axis(function: Callable[..., Tensor]) -> Callable[..., Any]:
    def along_axis(context: Context, x: Any, *, axis: int = -1) -> Any:
        return function(tensor(x), axis=axis)

    return along_axis


def _along_rows(function: Callable[..., Tensor]) -> Callable[..., Any]:
    """Before version 13: along the rows of a matrix of all axes before `axis` by all others."""

    def along_rows(context: Context, x: Any, *, axis: int = 1) -> Any:
        values = tensor(x)
        axis = axis % max(values.ndim, 1)
        rows = lm.reshape(values, (prod(values.shape[:axis]), prod(values.shape[axis:])))
        return lm.reshape(function(rows, axis=1), values.shape)

    return along_rows


def _hardmax(x: Tensor, axis: int) -> Tensor:
    """1 where the first largest element of a row is, and 0 elsewhere."""
    first = lm.argmax(x, axis=axis, keepdims=True)
    shape = [1] * x.ndim
    shape[axis] = -1
    places = lm.reshape(lm.arange(x.shape[axis]), tuple(shape))
    return (places == first).cast(x.dtype)


for _name, _function in (
    ("Softmax", lm.softmax), ("LogSoftmax", lm.log_softmax), ("Hardmax", _hardmax)
):  # fmt: skip
    row(_name)(_along_rows(_function))
    row(_name, since=13)(_along_axis(_function))


def _keep_all(context: Context, x: Any) -> Any:
    """The input and, where it is wanted, a mask of ones."""
    if context.outputs < 2:
        return x
    dtype = lm.bool if context.opset >= 10 else tensor(x).dtype
    return x, lm.ones(tuple(x.shape), dtype=dtype)


@row("Dropout")
def dropout_of_inference(
    context: Context, x: Any, *, ratio: float = 0.5, is_test: int = 1, **_: Any
) -> Any:
    """Before version 12 models are those of inference."""
    return _keep_all(context, x)


@row("Dropout", since=12)
def dropout(
    context: Context, x: Any, ratio: Any = None, training: Any = None, *, seed: int | None = None
) -> Any:
    """Elements are dropped in training only; kept ones are divided by their share. A seed drops
    what onnx's reference evaluator drops, which draws from NumPy's generator MT19937."""
    if training is None or not np.any(context.host(training)):
        return _keep_all(context, x)
    share = 0.5 if ratio is None else float(context.host(ratio))
    if share == 0:
        return _keep_all(context, x)
    values = tensor(x)
    if seed is None:
        kept = lm.random.uniform(values.shape) >= share
    else:
        drawn = np.random.RandomState(seed).uniform(size=values.shape)
        kept = lm.asarray(drawn >= share)
    return lm.where(kept, values / (1 - share), 0), kept
