"""Normalisation layers as functions, dropout, and lookups; names as in PyTorch.

Statistics of halves are computed in float32, and results have the input's dtype.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from lamina import random
from lamina.dtypes import int64
from lamina.errors import ArgumentError, DTypeError, ShapeError
from lamina.ir.node import Node
from lamina.ir.ops import Op
from lamina.shape import Shape
from lamina.tensor import movement, reduction
from lamina.tensor.core import Tensor, common_device
from lamina.tensor.creation import arange
from lamina.tensor.elementwise import rsqrt, where
from lamina.tensor.inspection import finfo
from lamina.tensor.windows import along, exact

__all__ = [
    "batch_norm", "dropout", "embedding", "group_norm", "instance_norm",
    "layer_norm", "one_hot", "rms_norm",
]  # fmt: skip


class BatchNorm(NamedTuple):
    """What `batch_norm` returns: the result, and the statistics for the next call."""

    output: Tensor
    running_mean: Tensor | None
    running_var: Tensor | None


def layer_norm(
    x: Tensor, normalized_shape: int | Sequence[int], weight: Tensor | None = None,
    bias: Tensor | None = None, eps: float = 1e-5,
) -> Tensor:  # fmt: skip
    """``(x - mean) / sqrt(var + eps) * weight + bias`` over the last axes of `x`, whose sizes are
    `normalized_shape`, and the shape of `weight` and `bias` (Ba, Kiros and Hinton 2016)."""
    axes = _last_axes("layer_norm", x, normalized_shape, weight, bias)
    away, variance, _ = _moments(exact("layer_norm", x), axes)
    return _scaled(away * rsqrt(variance + eps), weight, bias, x, 0)


def rms_norm(
    x: Tensor, normalized_shape: int | Sequence[int], weight: Tensor | None = None,
    eps: float | None = None,
) -> Tensor:  # fmt: skip
    """``x / sqrt(mean(x * x) + eps) * weight`` over the last axes of `x`. eps: the spacing of x's
    dtype at 1 by default (Zhang and Sennrich 2019)."""
    axes = _last_axes("rms_norm", x, normalized_shape, weight)
    values = exact("rms_norm", x)
    square = reduction.mean(values * values, axis=axes, keepdims=True)
    least = finfo(x.dtype).eps if eps is None else eps
    return _scaled(values * rsqrt(square + least), weight, None, x, 0)


def group_norm(
    x: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:  # fmt: skip
    """Normalise each of `num_groups` groups of channels of each sample of `x`, (N, C, ...); weight
    and bias: (C,) (Wu and He 2018)."""
    _check_channels("group_norm", x, weight, bias)
    batch, channels, *rest = x.shape
    if num_groups < 1 or channels % num_groups:
        raise ShapeError(f"group_norm: {channels} channels of {x.shape} in {num_groups} groups")
    split = (batch, num_groups, channels // num_groups, *rest)
    groups = movement.reshape(exact("group_norm", x), split)
    away, variance, _ = _moments(groups, range(2, len(split)))
    result = movement.reshape(away * rsqrt(variance + eps), x.shape)
    return _scaled(result, weight, bias, x, len(rest))


def instance_norm(
    x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    """Normalise each channel of each sample of `x`, (N, C, spatial...); weight and bias: (C,)
    (Ulyanov, Vedaldi and Lempitsky 2016)."""
    _check_channels("instance_norm", x, weight, bias)
    away, variance, _ = _moments(exact("instance_norm", x), range(2, x.ndim))
    return _scaled(away * rsqrt(variance + eps), weight, bias, x, x.ndim - 2)


def batch_norm(
    x: Tensor, running_mean: Tensor | None = None, running_var: Tensor | None = None,
    weight: Tensor | None = None, bias: Tensor | None = None, training: bool = False,
    momentum: float = 0.1, eps: float = 1e-5,
) -> BatchNorm:  # fmt: skip
    """Normalise each channel of `x`, (N, C, ...), over all samples; vectors are (C,). training:
    use the statistics of `x`, and return running statistics moved towards them by the share
    `momentum` (the variance with Bessel's correction); the arguments are left alone. Otherwise use
    the running statistics. Without them, those of `x` are used in both cases (Ioffe and Szegedy
    2015, "Batch normalization")."""
    _check_channels("batch_norm", x, running_mean, running_var, weight, bias)
    values, rest = exact("batch_norm", x), x.ndim - 2
    if training or running_mean is None or running_var is None:
        away, variance, mean = _moments(values, (0, *range(2, x.ndim)))
    else:
        away = values - _column(running_mean, values, rest)
        variance = _column(running_var, values, rest)
    output = _scaled(away * rsqrt(variance + eps), weight, bias, x, rest)
    if not training:
        return BatchNorm(output, running_mean, running_var)
    count = x.size // max(x.shape[1], 1)
    if count < 2:
        raise ShapeError(f"batch_norm: training needs two values a channel, not those of {x.shape}")
    unbiased = variance * (count / (count - 1))
    return BatchNorm(
        output, _moved(running_mean, mean, momentum), _moved(running_var, unbiased, momentum)
    )


def dropout(
    x: Tensor, p: float = 0.5, training: bool = True, *, seed: int | None = None,
    key: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Zero each element with probability `p` and scale the others by ``1 / (1 - p)`` (Srivastava
    et al. 2014); `x` itself when not training. `seed` and `key` are as in `lamina.random`."""
    if not 0.0 <= p <= 1.0:
        raise ArgumentError(f"dropout: p={p} is not a probability")
    if not training or p == 0.0:
        return x
    if p == 1.0:
        return x * 0.0
    kept = random.bernoulli(x.shape, 1.0 - p, seed=seed, key=key, device=x.device)
    return where(kept, x * (1.0 / (1.0 - p)), 0.0)


def one_hot(indices: Tensor, num_classes: int) -> Tensor:
    """1 at each index and 0 elsewhere along a new last axis of size `num_classes`, int64."""
    _check_indices("one_hot", indices)
    classes = arange(num_classes, dtype=indices.dtype, device=indices.device)
    return (movement.expand_dims(indices, axis=-1) == classes).cast(int64)


def embedding(indices: Tensor, weight: Tensor, padding_idx: int | None = None) -> Tensor:
    """The rows of `weight`, (n, d), at `indices`, (...): shape (..., d). Rows out of range are
    zeros. No derivative flows into the row `padding_idx`."""
    if weight.ndim != 2:
        raise ShapeError(f"embedding: the weight has shape {weight.shape}; (n, d) is needed")
    _check_indices("embedding", indices)
    device, width = common_device("embedding", indices, weight), weight.shape[1]
    flat = Node(Op.GATHER, (weight.node, along(indices.node, 0, (indices.size, width))), 0)
    rows = movement.reshape(Tensor.of(flat, device), (*indices.shape, width))
    if padding_idx is None:
        return rows
    padding = movement.expand_dims(indices == padding_idx % weight.shape[0], axis=-1)
    return where(padding, rows.detach(), rows)


def _check_indices(what: str, indices: Tensor) -> None:
    if not indices.dtype.is_int:
        raise DTypeError(f"{what}: the indices are {indices.dtype.name}, not integers")


def _check_shapes(what: str, shape: Shape, vectors: Sequence[Tensor | None]) -> None:
    for one in vectors:
        if one is not None and one.shape != shape:
            raise ShapeError(f"{what}: a weight or bias vector has shape {one.shape}, not {shape}")


def _check_channels(what: str, x: Tensor, *vectors: Tensor | None) -> None:
    if x.ndim < 2:
        raise ShapeError(f"{what}: {x.shape} has no channels; (N, C, ...) is needed")
    _check_shapes(what, x.shape[1:2], vectors)


def _last_axes(
    what: str, x: Tensor, normalized_shape: int | Sequence[int], *weights: Tensor | None
) -> Sequence[int]:
    sizes = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
    if not sizes or x.shape[-len(sizes) :] != sizes:
        raise ShapeError(f"{what}: {x.shape} does not end in {sizes}")
    _check_shapes(what, sizes, weights)
    return range(x.ndim - len(sizes), x.ndim)


def _moments(x: Tensor, axes: Sequence[int]) -> tuple[Tensor, Tensor, Tensor]:
    """What is left of `x` without its mean over `axes`, the variance, and the mean."""
    mean = reduction.mean(x, axis=axes, keepdims=True)
    away = x - mean
    return away, reduction.mean(away * away, axis=axes, keepdims=True), mean


def _column(vector: Tensor, like: Tensor, trailing: int) -> Tensor:
    """`vector` in the dtype of `like`, with `trailing` axes of size 1 after its own."""
    return movement.reshape(vector.cast(like.dtype), (*vector.shape, *(1,) * trailing))


def _scaled(
    values: Tensor, weight: Tensor | None, bias: Tensor | None, x: Tensor, trailing: int
) -> Tensor:
    """``values * weight + bias`` in the dtype of `x`, the input."""
    if weight is not None:
        values = values * _column(weight, values, trailing)
    if bias is not None:
        values = values + _column(bias, values, trailing)
    return values.cast(x.dtype)


def _moved(running: Tensor | None, new: Tensor, share: float) -> Tensor | None:
    """An average moved towards `new`, which has no derivative."""
    if running is None:
        return None
    vector = movement.reshape(new, running.shape).detach().cast(running.dtype)
    return running * (1.0 - share) + vector * share
