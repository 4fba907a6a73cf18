"""Rows of normalisations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import lamina as lm
from lamina.frontend.tensor import Tensor
from lamina.interop.onnx.rows import Context, row
from lamina.interop.onnx.rows.conv import beside_channels
from lamina.interop.onnx.values import maybe_tensor, tensor


def _exact(x: Tensor) -> Tensor:
    """In the dtype that sums are taken in: float32 for small floats."""
    return x.cast(lm.float32) if x.dtype in (lm.float16, lm.bfloat16) else x


def _centred(x: Tensor, axes: Sequence[int], eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """Along axes: the mean, the reciprocal deviation, and `x` with mean 0 and deviation 1."""
    mean = lm.mean(x, axis=tuple(axes), keepdims=True)
    centred = x - mean
    variance = lm.mean(centred * centred, axis=tuple(axes), keepdims=True)
    reciprocal = lm.rsqrt(variance + eps)
    return mean, reciprocal, centred * reciprocal


@row("BatchNormalization")
def batch_normalization(
    context: Context, x: Any, scale: Any, b: Any, mean: Any, var: Any, *, epsilon: float = 1e-5,
    momentum: float = 0.9, training_mode: int = 0, **_: Any,
) -> Any:  # fmt: skip
    """Normalises with statistics that are given; in training with those of the batch, and returns
    running statistics too: `momentum` of the old ones and the rest of the batch's."""
    values = tensor(x)
    old_mean, old_var = tensor(mean), tensor(var)
    if not training_mode:
        return _normalised(values, old_mean, old_var, tensor(scale), tensor(b), epsilon)
    axes = (0, *range(2, values.ndim))
    exact = _exact(values)
    new_mean, new_var = lm.mean(exact, axis=axes), lm.var(exact, axis=axes)
    result = _normalised(values, new_mean, new_var, tensor(scale), tensor(b), epsilon)
    running = []
    for old, new in ((old_mean, new_mean), (old_var, new_var)):
        running.append((_exact(old) * momentum + new * (1 - momentum)).cast(old.dtype))
    return result, *running


def _normalised(
    x: Tensor, mean: Tensor, var: Tensor, scale: Tensor, bias: Tensor, eps: float
) -> Tensor:
    factor = _exact(scale) * lm.rsqrt(_exact(var) + eps)
    columns = [beside_channels(_exact(v), x.ndim) for v in (mean, factor, bias)]
    return ((_exact(x) - columns[0]) * columns[1] + columns[2]).cast(x.dtype)


@row("InstanceNormalization")
def instance_normalization(
    context: Context, x: Any, scale: Any, b: Any, *, epsilon: float = 1e-5, **_: Any
) -> Any:
    values = tensor(x)
    normal = _centred(_exact(values), range(2, values.ndim), epsilon)[2]
    factor, shift = (beside_channels(_exact(tensor(v)), values.ndim) for v in (scale, b))
    return (normal * factor + shift).cast(values.dtype)


@row("LayerNormalization")
def layer_normalization(
    context: Context, x: Any, scale: Any, b: Any = None, *, axis: int = -1, epsilon: float = 1e-5,
    stash_type: int = 1,
) -> Any:  # fmt: skip
    """The result, the means and the reciprocal deviations."""
    values, bias = tensor(x), maybe_tensor(b)
    axes = range(axis % values.ndim, values.ndim)
    mean, reciprocal, normal = _centred(_exact(values), axes, epsilon)
    result = normal.cast(values.dtype) * tensor(scale)
    if bias is not None:
        result = result + bias
    return (result, mean, reciprocal)[: max(context.outputs, 1)]


@row("RMSNormalization")
def rms_normalization(
    context: Context, x: Any, scale: Any, *, axis: int = -1, epsilon: float = 1e-5,
    stash_type: int = 1,
) -> Any:  # fmt: skip
    values, factor = tensor(x), tensor(scale)
    exact = _exact(values)
    axes = tuple(range(axis % values.ndim, values.ndim))
    square = lm.mean(exact * exact, axis=axes, keepdims=True)
    return (exact * lm.rsqrt(square + epsilon)).cast(factor.dtype) * factor


@row("GroupNormalization", since=21)
def group_normalization(
    context: Context, x: Any, scale: Any, bias: Any, *, num_groups: int, epsilon: float = 1e-5,
    stash_type: int = 1,
) -> Any:  # fmt: skip
    values = tensor(x)
    rows = lm.reshape(_exact(values), (values.shape[0], num_groups, -1))
    _, _, normal = _centred(rows, (2,), epsilon)
    apart = lm.reshape(normal, values.shape).cast(values.dtype)
    factor, shift = (beside_channels(tensor(v), values.ndim) for v in (scale, bias))
    return apart * factor + shift


@row("GroupNormalization", since=18)
def group_normalization_by_groups(
    context: Context, x: Any, scale: Any, bias: Any, *, num_groups: int, epsilon: float = 1e-5
) -> Any:
    """Versions 18 to 20 have a factor and a bias for each group, not for each channel."""
    values = tensor(x)
    each = values.shape[1] // num_groups
    factor, shift = (lm.repeat(tensor(v), each) for v in (scale, bias))
    return group_normalization(
        context, values, factor, shift, num_groups=num_groups, epsilon=epsilon
    )


@row("MeanVarianceNormalization")
def mean_variance_normalization(
    context: Context, x: Any, *, axes: Sequence[int] = (0, 2, 3)
) -> Any:
    values = tensor(x)
    centred = values - lm.mean(values, axis=tuple(axes), keepdims=True)
    deviation = lm.sqrt(lm.mean(centred * centred, axis=tuple(axes), keepdims=True))
    return centred / (deviation + 1e-9)


@row("LRN")
def local_response_normalization(
    context: Context, x: Any, *, size: int, alpha: float = 1e-4, beta: float = 0.75,
    bias: float = 1.0,
) -> Any:  # fmt: skip
    """Over `size` neighbouring channels (Krizhevsky et al. 2012, section 3.3): those before a
    channel are ``(size - 1) // 2``."""
    values = tensor(x)
    margin = ((size - 1) // 2, size - 1 - (size - 1) // 2)
    padding = [(0, 0)] * values.ndim
    padding[1] = margin
    squares = lm.pad(values * values, padding)
    channels = values.shape[1]
    context.spend(size)
    total = squares[:, :channels]
    for shift in range(1, size):
        total = total + squares[:, shift : shift + channels]
    return values / lm.pow(total * (alpha / size) + bias, beta)


@row("LpNormalization")
def lp_normalization(context: Context, x: Any, *, axis: int = -1, p: int = 2) -> Any:
    """Rows of norm 0 stay 0."""
    values = tensor(x)
    if p == 1:
        norm = lm.sum(lm.abs(values), axis=axis, keepdims=True)
    else:
        norm = lm.sqrt(lm.sum(values * values, axis=axis, keepdims=True))
    return lm.where(norm == 0, 0, values / lm.where(norm == 0, 1, norm))
