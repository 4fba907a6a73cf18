"""Rows of normalisations, losses and dropout."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import lamina as lm
from lamina.frontend.tensor import Tensor
from lamina.interop.torch.rows.vjp import vjp

Row = Callable[..., Any]
Gradients = list[Tensor | None]

_REDUCTIONS = ("none", "mean", "sum")


def _exact(x: Tensor) -> Tensor:
    """In the dtype that sums are taken in: float32 for small floats."""
    return x.cast(lm.float32) if x.dtype in (lm.float16, lm.bfloat16) else x


def _column(x: Tensor, rank: int) -> Tensor:
    """A value for each channel, beside images of `rank` axes: (C,) as (1, C, 1, ...)."""
    return lm.reshape(_exact(x), (1, -1, *(1,) * (rank - 2)))


def _affine(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    if weight is not None:
        x = x * weight
    return x if bias is None else x + bias


def _layer_norm(
    x: Tensor, sizes: Sequence[int], weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """The result, and the mean and reciprocal deviation of each row."""
    axes = tuple(range(x.ndim - len(sizes), x.ndim))
    values = _exact(x)
    mean = lm.mean(values, axis=axes, keepdims=True)
    centred = values - mean
    rstd = lm.rsqrt(lm.mean(centred * centred, axis=axes, keepdims=True) + eps)
    parts = (None if one is None else _exact(one) for one in (weight, bias))
    return _affine(centred * rstd, *parts), mean, rstd


def _layer_norm_backward(
    upstream: Tensor, x: Tensor, sizes: Sequence[int], mean: Tensor, rstd: Tensor,
    weight: Tensor | None, bias: Tensor | None, mask: Sequence[bool],
) -> Gradients:  # fmt: skip
    """Of each row, the part of the upstream derivative that changes neither mean nor deviation
    (Ba, Kiros and Hinton 2016, "Layer normalization")."""
    rows = tuple(range(x.ndim - len(sizes)))
    axes = tuple(range(x.ndim - len(sizes), x.ndim))
    upstream = _exact(upstream)
    normal = (_exact(x) - mean) * rstd
    slope = upstream if weight is None else upstream * _exact(weight)
    along = lm.mean(slope * normal, axis=axes, keepdims=True)
    of_x = rstd * (slope - lm.mean(slope, axis=axes, keepdims=True) - normal * along)
    return [
        of_x if mask[0] else None,
        lm.sum(upstream * normal, axis=rows) if mask[1] else None,
        lm.sum(upstream, axis=rows) if mask[2] else None,
    ]


def _group_norm(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, n: int, channels: int, area: int,
    groups: int, eps: float,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    rows = lm.reshape(_exact(x), (n, groups, -1))
    mean = lm.mean(rows, axis=-1, keepdims=True)
    centred = rows - mean
    rstd = lm.rsqrt(lm.mean(centred * centred, axis=-1, keepdims=True) + eps)
    normal = lm.reshape(centred * rstd, x.shape)
    parts = (None if one is None else _column(one, x.ndim) for one in (weight, bias))
    return _affine(normal, *parts), lm.reshape(mean, (n, groups)), lm.reshape(rstd, (n, groups))


def _group_norm_backward(
    upstream: Tensor, x: Tensor, mean: Tensor, rstd: Tensor, weight: Tensor | None, n: int,
    channels: int, area: int, groups: int, mask: Sequence[bool],
) -> Gradients:  # fmt: skip
    """As of layer norm, over the rows of a group's channels."""
    upstream = _exact(upstream)
    rows = (n, groups, -1)
    means, rstds = (lm.reshape(one, (n, groups, 1)) for one in (mean, rstd))
    normal_rows = (lm.reshape(_exact(x), rows) - means) * rstds
    normal = lm.reshape(normal_rows, x.shape)
    slope = upstream if weight is None else upstream * _column(weight, x.ndim)
    slopes = lm.reshape(slope, rows)
    along = lm.mean(slopes * normal_rows, axis=-1, keepdims=True)
    of_rows = rstds * (slopes - lm.mean(slopes, axis=-1, keepdims=True) - normal_rows * along)
    others = (0, *range(2, x.ndim))
    return [
        lm.reshape(of_rows, x.shape) if mask[0] else None,
        lm.sum(upstream * normal, axis=others) if mask[1] else None,
        lm.sum(upstream, axis=others) if mask[2] else None,
    ]


def _batch_norm(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor, rstd: Tensor
) -> Tensor:
    """Each channel normalised with the statistics (C,)."""
    normal = (_exact(x) - _column(mean, x.ndim)) * _column(rstd, x.ndim)
    parts = (None if one is None else _column(one, x.ndim) for one in (weight, bias))
    return _affine(normal, *parts)


def _batch_norm_training(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, running_mean: Tensor | None,
    running_var: Tensor | None, training: bool, momentum: float, eps: float,
) -> list[Tensor]:  # fmt: skip
    """The result, mean and reciprocal deviation of each channel, and the new running statistics,
    of which the variance has Bessel's correction."""
    if not training:
        assert running_mean is not None
        assert running_var is not None
        rstd = lm.rsqrt(_exact(running_var) + eps)
        empty = lm.zeros((0,), dtype=x.dtype)
        result = _batch_norm(x, weight, bias, running_mean, rstd)
        return [result, empty, empty, running_mean, running_var]
    axes = (0, *range(2, x.ndim))
    values = _exact(x)
    mean = lm.mean(values, axis=axes)
    centred = values - _column(mean, x.ndim)
    variance = lm.mean(centred * centred, axis=axes)
    rstd = lm.rsqrt(variance + eps)
    results = [_batch_norm(x, weight, bias, mean, rstd), mean, rstd]
    if running_mean is not None and running_var is not None:
        count = x.size // x.shape[1]
        unbiased = variance * (count / max(count - 1, 1))
        results.append(_exact(running_mean) * (1 - momentum) + mean * momentum)
        results.append(_exact(running_var) * (1 - momentum) + unbiased * momentum)
    return results


def _batch_norm_inference(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, running_mean: Tensor,
    running_var: Tensor, momentum: float, eps: float,
) -> list[Tensor]:  # fmt: skip
    return _batch_norm_training(
        x, weight, bias, running_mean, running_var, False, momentum, eps
    )[:3]  # fmt: skip


def _batch_norm_without_statistics(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, training: bool, momentum: float,
    eps: float,
) -> list[Tensor]:  # fmt: skip
    return _batch_norm_training(x, weight, bias, None, None, True, momentum, eps)


def _batch_norm_with_update(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, running_mean: Tensor,
    running_var: Tensor, momentum: float, eps: float,
) -> list[Tensor]:  # fmt: skip
    """As in training, with an empty tensor in the fourth place: PyTorch's scratch memory."""
    results = _batch_norm_training(
        x, weight, bias, running_mean, running_var, True, momentum, eps
    )
    return [*results[:3], lm.zeros((0,), dtype=lm.uint8), *results[3:]]


def _batch_norm_backward(
    upstream: Tensor, x: Tensor, weight: Tensor | None, running_mean: Tensor | None,
    running_var: Tensor | None, save_mean: Tensor | None, save_rstd: Tensor | None, train: bool,
    eps: float, mask: Sequence[bool],
) -> Gradients:  # fmt: skip
    """As of layer norm, over all samples of a channel; running statistics are constants."""
    axes = (0, *range(2, x.ndim))
    count = x.size // x.shape[1]
    upstream = _exact(upstream)
    if train:
        assert save_mean is not None
        assert save_rstd is not None
        mean, rstd = save_mean, save_rstd
    else:
        assert running_mean is not None
        assert running_var is not None
        mean, rstd = running_mean, lm.rsqrt(_exact(running_var) + eps)
    normal = (_exact(x) - _column(mean, x.ndim)) * _column(rstd, x.ndim)
    total = lm.sum(upstream, axis=axes)
    along = lm.sum(upstream * normal, axis=axes)
    factor = rstd if weight is None else _exact(rstd) * _exact(weight)
    slope = upstream
    if train:
        mean_slope, mean_along = (_column(one / count, x.ndim) for one in (total, along))
        slope = upstream - mean_slope - normal * mean_along
    return [
        slope * _column(factor, x.ndim) if mask[0] else None,
        along if mask[1] else None,
        total if mask[2] else None,
    ]


def _fused_rms_norm(
    x: Tensor, sizes: Sequence[int], weight: Tensor | None, eps: float | None
) -> tuple[Tensor, Tensor]:
    axes = tuple(range(x.ndim - len(sizes), x.ndim))
    values = _exact(x)
    small = lm.finfo(values.dtype).eps if eps is None else eps
    rstd = lm.rsqrt(lm.mean(values * values, axis=axes, keepdims=True) + small)
    return _affine(values * rstd, None if weight is None else _exact(weight), None), rstd


def _fused_rms_norm_backward(
    upstream: Tensor, x: Tensor, sizes: Sequence[int], rstd: Tensor, weight: Tensor | None,
    mask: Sequence[bool],
) -> Gradients:  # fmt: skip
    rows = tuple(range(x.ndim - len(sizes)))
    axes = tuple(range(x.ndim - len(sizes), x.ndim))
    upstream = _exact(upstream)
    normal = _exact(x) * rstd
    slope = upstream if weight is None else upstream * _exact(weight)
    of_x = rstd * (slope - normal * lm.mean(slope * normal, axis=axes, keepdims=True))
    return [
        of_x if mask[0] else None,
        lm.sum(upstream * normal, axis=rows) if mask[1] else None,
    ]


def _class_weights(
    x: Tensor, target: Tensor, weight: Tensor | None, ignore_index: int
) -> tuple[Tensor, Tensor]:
    """For each target a class that exists, and its weight: 0 for those to ignore."""
    is_kept = target != ignore_index
    places = lm.where(is_kept, target, 0).cast(lm.int64)
    if weight is None:
        return places, is_kept.cast(x.dtype)
    weights = lm.take(weight, lm.reshape(places, (-1,)), axis=0).reshape(places.shape)
    return places, lm.where(is_kept, weights, 0.0).cast(x.dtype)


def _nll_loss(
    x: Tensor, target: Tensor, weight: Tensor | None, reduction: int, ignore_index: int
) -> tuple[Tensor, Tensor]:
    """x: logarithms (C,), (N, C) or (N, C, ...). The losses, reduced, and the sum of weights."""
    axis = 0 if x.ndim == 1 else 1
    places, weights = _class_weights(x, target, weight, ignore_index)
    chosen = lm.squeeze(
        lm.take_along_axis(x, lm.expand_dims(places, axis), axis=axis), axis=axis
    )
    losses = -(chosen * weights)
    total_weight = lm.sum(weights)
    if _REDUCTIONS[reduction] == "none":
        return losses, lm.zeros((), dtype=x.dtype)
    total = lm.sum(losses)
    return (total / total_weight if _REDUCTIONS[reduction] == "mean" else total), total_weight


def _nll_loss_backward(
    upstream: Tensor, x: Tensor, target: Tensor, weight: Tensor | None, reduction: int,
    ignore_index: int, total_weight: Tensor,
) -> Tensor:  # fmt: skip
    axis = 0 if x.ndim == 1 else 1
    places, weights = _class_weights(x, target, weight, ignore_index)
    scaled = upstream * weights
    if _REDUCTIONS[reduction] == "mean":
        scaled = scaled / total_weight
    classes = lm.reshape(
        lm.arange(x.shape[axis], dtype=lm.int64), (-1, *(1,) * (x.ndim - axis - 1))
    )
    is_target = classes == lm.expand_dims(places, axis)
    return lm.where(is_target, -lm.expand_dims(scaled, axis), lm.zeros_like(x))


def _weight_norm(v: Tensor, g: Tensor, axis: int = 0) -> tuple[Tensor, Tensor]:
    others = tuple(one for one in range(v.ndim) if one != axis % v.ndim)
    norms = lm.norm(v, 2, others, True)
    return v * (g / norms), norms


def _weight_norm_backward(
    upstream: Tensor, v: Tensor, g: Tensor, norms: Tensor, axis: int
) -> Gradients:
    return vjp(lambda v, g: _weight_norm(v, g, axis)[0], [v, g], upstream)


def _glu_backward(upstream: Tensor, x: Tensor, axis: int) -> Any:
    return vjp(lambda x: lm.glu(x, axis), [x], upstream)[0]


def _loss(function: Callable[..., Tensor], *names: str) -> Row:
    """The row of a loss whose reduction is a number, followed by the arguments `names`."""

    def row(x: Tensor, target: Tensor, reduction: int = 1, *more: Any, **named: Any) -> Tensor:
        options = dict(zip(names, more, strict=False)) | named
        return function(x, target, reduction=_REDUCTIONS[reduction], **options)

    return row


ROWS: dict[str, Row] = {
    "aten.native_layer_norm.default": _layer_norm,
    "aten.native_layer_norm_backward.default": _layer_norm_backward,
    "aten.native_group_norm.default": _group_norm,
    "aten.native_group_norm_backward.default": _group_norm_backward,
    "aten._native_batch_norm_legit_functional.default": _batch_norm_training,
    "aten._native_batch_norm_legit_no_training.default": _batch_norm_inference,
    "aten._native_batch_norm_legit.no_stats": _batch_norm_without_statistics,
    "aten._batch_norm_with_update_functional.default": _batch_norm_with_update,
    "aten.native_batch_norm_backward.default": _batch_norm_backward,
    # The last argument is scratch memory.
    "aten.batch_norm_backward.default": lambda *arguments: _batch_norm_backward(*arguments[:-1]),
    "aten._fused_rms_norm.default": _fused_rms_norm,
    "aten._fused_rms_norm_backward.default": _fused_rms_norm_backward,
    "aten.nll_loss_forward.default": _nll_loss,
    "aten.nll_loss_backward.default": _nll_loss_backward,
    "aten.nll_loss2d_forward.default": _nll_loss,
    "aten.nll_loss2d_backward.default": _nll_loss_backward,
    "aten.native_dropout_backward.default": lambda upstream, mask, scale: (
        upstream * mask.cast(upstream.dtype) * scale
    ),
    "aten._weight_norm_interface.default": _weight_norm,
    "aten._weight_norm_interface_backward.default": _weight_norm_backward,
    "aten.glu.default": lm.glu,
    "aten.glu_backward.default": _glu_backward,
    "aten.mse_loss.default": _loss(lm.mse_loss),
    "aten.smooth_l1_loss.default": _loss(lm.smooth_l1_loss, "beta"),
    "aten.huber_loss.default": _loss(lm.huber_loss, "delta"),
}
