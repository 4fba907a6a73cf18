"""Normalisation layers as functions, dropout, and lookups; names as in PyTorch.

Statistics of halves are computed in float32, and results have the input's dtype.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from lamina import random
from lamina.dtypes import float32, int64
from lamina.errors import DTypeError, ShapeError
from lamina.ir.build import expand, reshape
from lamina.ir.node import Node
from lamina.ir.ops import Op
from lamina.shape import Shape, prod
from lamina.tensor import movement, reduction
from lamina.tensor.core import Tensor, common_device
from lamina.tensor.creation import arange, zeros_like
from lamina.tensor.elementwise import rsqrt, where
from lamina.tensor.windows import accumulator

__all__ = [
    "batch_norm", "dropout", "embedding", "group_norm", "instance_norm",
    "layer_norm", "one_hot", "rms_norm",
]  # fmt: skip

_EPSILON = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-23, "float64": 2.0**-52}


class BatchNorm(NamedTuple):
    """What `batch_norm` returns: the result, and the statistics for the next call."""

    output: Tensor
    running_mean: Tensor | None
    running_var: Tensor | None


def layer_norm(
    x: Tensor,
    normalized_shape: int | Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """``(x - mean) / sqrt(var + eps) * weight + bias`` over the last axes of `x`.

    normalized_shape: the sizes of those axes, which are the shape of `weight` and `bias`.
    Source: Ba, Kiros and Hinton 2016, "Layer normalization".
    """
    axes = _last_axes("layer_norm", x, normalized_shape, weight, bias)
    return _scaled(_standardized(_exact("layer_norm", x), axes, eps), weight, bias, x)


def rms_norm(
    x: Tensor,
    normalized_shape: int | Sequence[int],
    weight: Tensor | None = None,
    eps: float | None = None,
) -> Tensor:
    """``x / sqrt(mean(x * x) + eps) * weight`` over the last axes of `x`.

    eps: the spacing of x's dtype at 1 by default.
    Source: Zhang and Sennrich 2019, "Root mean square layer normalization".
    """
    axes = _last_axes("rms_norm", x, normalized_shape, weight)
    exact = _exact("rms_norm", x)
    square = reduction.mean(exact * exact, axis=axes, keepdims=True)
    least = _EPSILON[x.dtype.name] if eps is None else eps
    return _scaled(exact * rsqrt(square + least), weight, None, x)


def group_norm(
    x: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Normalise each of `num_groups` groups of channels of each sample of `x`, (N, C, ...).

    weight and bias: (C,). Source: Wu and He 2018, "Group normalization".
    """
    _check_channels("group_norm", x, weight, bias)
    batch, channels, *rest = x.shape
    if num_groups < 1 or channels % num_groups:
        raise ShapeError(f"group_norm: {channels} channels of {x.shape} in {num_groups} groups")
    split = (batch, num_groups, channels // num_groups, *rest)
    groups = movement.reshape(_exact("group_norm", x), split)
    result = _standardized(groups, tuple(range(2, len(split))), eps)
    return _scaled_channels(movement.reshape(result, x.shape), weight, bias, x)


def instance_norm(
    x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    """Normalise each channel of each sample of `x`, (N, C, spatial...); weight and bias: (C,).

    Source: Ulyanov, Vedaldi and Lempitsky 2016, "Instance normalization".
    """
    _check_channels("instance_norm", x, weight, bias)
    result = _standardized(_exact("instance_norm", x), tuple(range(2, x.ndim)), eps)
    return _scaled_channels(result, weight, bias, x)


def batch_norm(
    x: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> BatchNorm:
    """Normalise each channel of `x`, (N, C, ...), over all samples; vectors are (C,).

    training: use the statistics of `x`, and return running statistics moved towards them by the
    share `momentum` (the variance with Bessel's correction); the arguments are left alone.
    Otherwise use the running statistics. Without them, those of `x` are used in both cases.
    Source: Ioffe and Szegedy 2015, "Batch normalization".
    """
    _check_channels("batch_norm", x, running_mean, running_var, weight, bias)
    exact = _exact("batch_norm", x)
    if not training and running_mean is not None and running_var is not None:
        scale = rsqrt(_column(running_var, x) + eps)
        result = (exact - _column(running_mean, x)) * scale
        return BatchNorm(_scaled_channels(result, weight, bias, x), running_mean, running_var)
    axes = (0, *range(2, x.ndim))
    mean = reduction.mean(exact, axis=axes, keepdims=True)
    away = exact - mean
    variance = reduction.mean(away * away, axis=axes, keepdims=True)
    output = _scaled_channels(away * rsqrt(variance + eps), weight, bias, x)
    if not training:
        return BatchNorm(output, running_mean, running_var)
    count = prod(x.shape) // max(x.shape[1], 1)
    if count < 2:
        raise ShapeError(f"batch_norm: training needs two values a channel, not those of {x.shape}")
    unbiased = variance * (count / (count - 1))
    return BatchNorm(
        output,
        _moved(running_mean, mean, momentum),
        _moved(running_var, unbiased, momentum),
    )


def dropout(
    x: Tensor,
    p: float = 0.5,
    training: bool = True,
    *,
    seed: int | None = None,
    key: Tensor | None = None,
) -> Tensor:
    """Zero each element with probability `p` and scale the others by ``1 / (1 - p)``.

    Returns `x` itself when not training. `seed` and `key` are as in `lamina.random`.
    Source: Srivastava et al. 2014, "Dropout".
    """
    if not 0.0 <= p <= 1.0:
        raise ShapeError(f"dropout: p={p} is not a probability")
    if not training or p == 0.0:
        return x
    if p == 1.0:
        return x * 0.0
    kept = random.bernoulli(x.shape, 1.0 - p, seed=seed, key=key, device=x.device)
    return where(kept, x * (1.0 / (1.0 - p)), zeros_like(x))


def one_hot(indices: Tensor, num_classes: int) -> Tensor:
    """1 at each index and 0 elsewhere along a new last axis of size `num_classes`, int64."""
    if not indices.dtype.is_int:
        raise DTypeError(f"one_hot: the indices are {indices.dtype.name}, not integers")
    classes = arange(num_classes, dtype=indices.dtype, device=indices.device)
    return (movement.expand_dims(indices, axis=-1) == classes).cast(int64)


def embedding(indices: Tensor, weight: Tensor, padding_idx: int | None = None) -> Tensor:
    """The rows of `weight`, (n, d), at `indices`, (...): shape (..., d).

    Rows out of range are zeros. No derivative flows into the row `padding_idx`.
    """
    if weight.ndim != 2:
        raise ShapeError(f"embedding: the weight has shape {weight.shape}; (n, d) is needed")
    if not indices.dtype.is_int:
        raise DTypeError(f"embedding: the indices are {indices.dtype.name}, not integers")
    device = common_device("embedding", indices, weight)
    count, width = indices.size, weight.shape[1]
    places = expand(reshape(indices.node, (count, 1)), (count, width))
    flat = Tensor.of(Node(Op.GATHER, (weight.node, places), 0), device)
    rows = movement.reshape(flat, (*indices.shape, width))
    if padding_idx is None:
        return rows
    padding = movement.expand_dims(indices == padding_idx % weight.shape[0], axis=-1)
    return where(padding, rows.detach(), rows)


def _exact(what: str, x: Tensor) -> Tensor:
    if not x.dtype.is_float:
        raise DTypeError(f"{what}: {x.dtype.name} has no mean; cast it to a float dtype")
    return x.cast(accumulator(x.dtype))


def _standardized(x: Tensor, axes: Shape, eps: float) -> Tensor:
    away = x - reduction.mean(x, axis=axes, keepdims=True)
    variance = reduction.mean(away * away, axis=axes, keepdims=True)
    return away * rsqrt(variance + eps)


def _scaled(x: Tensor, weight: Tensor | None, bias: Tensor | None, like: Tensor) -> Tensor:
    if weight is not None:
        x = x * weight.cast(x.dtype)
    if bias is not None:
        x = x + bias.cast(x.dtype)
    return x.cast(like.dtype)


def _column(vector: Tensor, x: Tensor) -> Tensor:
    """A value for each channel in the shape (C, 1, ...), exact."""
    exact = vector.cast(float32) if vector.dtype.bits < 32 else vector
    return movement.reshape(exact, (x.shape[1], *(1,) * (x.ndim - 2)))


def _scaled_channels(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, like: Tensor
) -> Tensor:
    scale = None if weight is None else _column(weight, like)
    shift = None if bias is None else _column(bias, like)
    return _scaled(x, scale, shift, like)


def _moved(running: Tensor | None, new: Tensor, share: float) -> Tensor | None:
    """An average moved towards `new`, which has no derivative."""
    if running is None:
        return None
    vector = movement.reshape(new, running.shape).detach().cast(running.dtype)
    return running * (1.0 - share) + vector * share


def _last_axes(
    what: str, x: Tensor, normalized_shape: int | Sequence[int], *weights: Tensor | None
) -> Shape:
    sizes = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
    if not sizes or x.shape[-len(sizes) :] != sizes:
        raise ShapeError(f"{what}: {x.shape} does not end in {sizes}")
    for weight in weights:
        if weight is not None and weight.shape != sizes:
            raise ShapeError(f"{what}: a weight or bias has shape {weight.shape}, not {sizes}")
    return tuple(range(x.ndim - len(sizes), x.ndim))


def _check_channels(what: str, x: Tensor, *vectors: Tensor | None) -> None:
    if x.ndim < 2:
        raise ShapeError(f"{what}: {x.shape} has no channels; (N, C, ...) is needed")
    for vector in vectors:
        if vector is not None and vector.shape != (x.shape[1],):
            raise ShapeError(f"{what}: a vector has shape {vector.shape}, not ({x.shape[1]},)")
