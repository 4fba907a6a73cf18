"""Functions of neural networks: losses, normalisation and dropout.

Names and meanings are PyTorch's, with `axis` in place of `dim`; a loss's `reduction` is 'mean',
'sum' or 'none'. Halves are computed in float32, and results have the input's dtype.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from lamina.core.dtypes import accumulator, int64
from lamina.core.options import current
from lamina.errors import ArgumentError, ShapeError
from lamina.frontend import realize as memory
from lamina.frontend.arguments import sizes_of
from lamina.frontend.functions import movement
from lamina.frontend.functions import reduction as over
from lamina.frontend.functions.dropouts import zeroed
from lamina.frontend.functions.elementwise import (
    exp,
    isfinite,
    log,
    maximum,
    named,
    rsqrt,
    sqrt,
    where,
)
from lamina.frontend.functions.indexing import check_range, known_elements
from lamina.frontend.functions.inspection import finfo
from lamina.frontend.functions.spatial import check_shapes, exact, resized
from lamina.frontend.session import tracers
from lamina.frontend.tensor import Tensor, common_device, common_dtype, once
from lamina.ir.build import broadcast_in_dim, insert_axes
from lamina.ir.node import Node
from lamina.ir.ops import Op

__all__ = [
    "batch_norm", "binary_cross_entropy", "binary_cross_entropy_with_logits", "cosine_similarity",
    "cross_entropy", "dropout", "group_norm", "huber_loss", "instance_norm", "kl_div",
    "l1_loss", "layer_norm", "mse_loss", "nll_loss", "rms_norm", "smooth_l1_loss",
]  # fmt: skip

_LOWEST_LOG = -100.0  # stands for the logarithm of 0 in binary_cross_entropy


def cross_entropy(
    x: Tensor, target: Any, weight: Tensor | None = None, ignore_index: int = -100,
    reduction: str = "mean", label_smoothing: float = 0.0,
) -> Tensor:  # fmt: skip
    """The negative logarithm of the softmax of `x` at the target class.

    x: logits (C,), (N, C) or (N, C, ...). target: integer classes () or (N, ...), or probabilities
    of x's shape. weight: (C,), one factor a class; the mean over classes is a weighted one.
    ignore_index: this class contributes nothing. label_smoothing: the share of probability that is
    spread evenly over the classes. Raises AxisError for classes that do not exist, unless they are
    a tensor: these count as logits of 0 but under the option `check`."""
    goal = _checked_target("cross_entropy", x, target, ignore_index)
    return _cross_entropy(x, goal, weight, ignore_index, reduction, label_smoothing)


@once
def _cross_entropy(
    x: Tensor, target: Tensor, weight: Tensor | None, ignore_index: int, reduction: str,
    label_smoothing: float,
) -> Tensor:  # fmt: skip
    what = "cross_entropy"
    if not 0.0 <= label_smoothing <= 1.0:
        raise ArgumentError(f"label_smoothing={label_smoothing} is not in [0, 1]", operation=what)
    axis, factors = _classes(what, x, weight)
    values, each = exact(what, x), label_smoothing / x.shape[axis]
    # The maximum keeps exp from overflowing; it cancels, so that no derivative flows through it.
    top = over.max(values, axis=axis, keepdims=True).detach()
    top = where(isfinite(top), top, 0.0)
    total = log(over.sum(exp(values - top), axis=axis, keepdims=True))
    if not target.dtype.is_int:
        _, chances = _pair(what, x, target)
        if label_smoothing:
            chances = chances * (1.0 - label_smoothing) + each
        losses = -over.sum((values - top - total) * _times(chances, factors), axis=axis)
        return reduced(what, losses, reduction, x)
    chosen = _at(what, values, target, axis) - movement.squeeze(top, axis=axis)
    share = None if factors is None else _at(what, factors, target, axis)
    losses = _times(movement.squeeze(total, axis=axis) - chosen, share)
    if label_smoothing:
        even = over.sum(_times(total - (values - top), factors), axis=axis)
        losses = losses * (1.0 - label_smoothing) + even * each
    return _class_reduced(what, losses, target.cast(int64) != ignore_index, share, reduction, x)


def nll_loss(
    x: Tensor, target: Any, weight: Tensor | None = None, ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """Minus the element of `x` (log-probabilities) at the target class; see `cross_entropy`."""
    what = "nll_loss"
    target = _checked_target(what, x, target, ignore_index)
    axis, factors = _classes(what, x, weight)
    share = None if factors is None else _at(what, factors, target, axis)
    losses = _times(-_at(what, exact(what, x), target, axis), share)
    return _class_reduced(what, losses, target.cast(int64) != ignore_index, share, reduction, x)


def _regression(
    what: str, rule: Callable[[Tensor], Tensor], x: Tensor, target: Tensor, reduction: str = "mean",
    weight: Tensor | None = None,
) -> Tensor:  # fmt: skip
    losses = rule(exact(what, x) - exact(what, target))
    if weight is None:
        return reduced(what, losses, reduction, x, target)
    factors = movement.broadcast_to(weight.cast(losses.dtype), losses.shape)
    losses = losses * factors
    if reduction == "mean":
        return (over.sum(losses) / over.sum(factors)).cast(common_dtype(what, x, target))
    return reduced(what, losses, reduction, x, target)


def _huber(difference: Tensor, bound: float) -> Tensor:
    away = abs(difference)
    return where(away < bound, difference * difference * 0.5, (away - 0.5 * bound) * bound)


mse_loss = named(
    "mse_loss", "``(x - target) ** 2``, times the `weight` of each element; the mean is a weighted "
    "one.", _regression, lambda d: d * d,
)  # fmt: skip
l1_loss = named(
    "l1_loss", "``abs(x - target)``, times the `weight` of each element; the mean is a weighted "
    "one.", _regression, abs,
)  # fmt: skip


def huber_loss(
    x: Tensor, target: Tensor, reduction: str = "mean", delta: float = 1.0,
    weight: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """``d * d / 2`` for ``d = abs(x - target) <= delta``, else ``delta * (d - delta / 2)``
    (Huber 1964, "Robust estimation of a location parameter"). weight: a factor of each element; as
    in PyTorch the mean divides by their number, not by the sum of the factors."""
    what = "huber_loss"
    if delta <= 0.0:
        raise ArgumentError(f"delta={delta} must be positive", operation=what)
    losses = _huber(exact(what, x) - exact(what, target), delta)
    return reduced(what, _times(losses, weight), reduction, x, target)


def smooth_l1_loss(x: Tensor, target: Tensor, reduction: str = "mean", beta: float = 1.0) -> Tensor:
    """``d * d / (2 beta)`` for ``d = abs(x - target) < beta``, else ``d - beta / 2``."""
    if beta < 0.0:
        raise ArgumentError(f"beta={beta} must not be negative", operation="smooth_l1_loss")
    rule = (lambda d: _huber(d, beta) * (1.0 / beta)) if beta else abs
    return _regression("smooth_l1_loss", rule, x, target, reduction)


def binary_cross_entropy(
    x: Tensor, target: Tensor, weight: Tensor | None = None, reduction: str = "mean"
) -> Tensor:
    """``-target log(x) - (1 - target) log(1 - x)`` for probabilities `x`; logarithms are at least
    -100, so that certain answers that are wrong have a finite loss."""
    values, goal = _pair("binary_cross_entropy", x, target)
    losses = -(goal * _bounded_log(values) + (1.0 - goal) * _bounded_log(1.0 - values))
    return reduced("binary_cross_entropy", _times(losses, weight), reduction, x, target)


def binary_cross_entropy_with_logits(
    x: Tensor, target: Tensor, weight: Tensor | None = None, reduction: str = "mean",
    pos_weight: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """`binary_cross_entropy` of ``sigmoid(x)``, without overflow. weight: a factor of each element.
    pos_weight: a factor of the positive part; both broadcast."""
    what = "binary_cross_entropy_with_logits"
    values, goal = _pair(what, x, target)
    # -log sigmoid(x) is softplus(-x), and -log(1 - sigmoid(x)) is that plus x.
    positive: Tensor = (-values).softplus()
    if pos_weight is not None:
        positive = positive * ((pos_weight.cast(values.dtype) - 1.0) * goal + 1.0)
    losses = (1.0 - goal) * values + positive
    return reduced(what, _times(losses, weight), reduction, x, target)


def kl_div(x: Tensor, target: Tensor, reduction: str = "mean", log_target: bool = False) -> Tensor:
    """``target * (log(target) - x)``: the divergence of log-probabilities `x` from `target`, or
    from exp(target) with `log_target`. reduction 'batchmean' divides the sum by the first size."""
    values, goal = exact("kl_div", x), exact("kl_div", target)
    logs = goal if log_target else log(where(goal > 0.0, goal, 1.0))
    losses = (exp(goal) if log_target else goal) * (logs - values)
    if reduction == "batchmean":
        return (over.sum(losses) / float(losses.shape[0] if losses.ndim else 1)).cast(x.dtype)
    return reduced("kl_div", losses, reduction, x, target)


def cosine_similarity(x1: Tensor, x2: Tensor, axis: int = 1, eps: float = 1e-8) -> Tensor:
    """``sum(x1 * x2) / (norm(x1) * norm(x2))`` along `axis`, each norm at least `eps`."""
    dtype = common_dtype("cosine_similarity", x1, x2)
    a, b = (exact("cosine_similarity", x.cast(dtype)) for x in movement.broadcast_arrays(x1, x2))
    product = over.sum(a * b, axis=axis)
    # The bound lies inside the root, whose derivative at 0 is infinite.
    norms = [sqrt(maximum(over.sum(x * x, axis=axis), eps * eps)) for x in (a, b)]
    return (product / norms[0] / norms[1]).cast(dtype)


def _pair(what: str, x: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Both in the dtype to compute in."""
    if x.shape != target.shape:
        raise ShapeError(
            f"input {x.shape} and target {target.shape} differ in shape", operation=what
        )
    values = exact(what, x)
    return values, target.cast(values.dtype)


def _times(losses: Tensor, factors: Tensor | None) -> Tensor:
    return losses if factors is None else losses * factors.cast(losses.dtype)


def reduced(what: str, losses: Tensor, reduction: str, *like: Tensor) -> Tensor:
    """The reduced losses in the dtype that the arguments, `like`, promote to."""
    if reduction not in ("mean", "sum", "none"):
        raise ArgumentError(
            f"reduction {reduction!r} is not 'mean', 'sum' or 'none'", operation=what
        )
    if reduction != "none":
        losses = over.mean(losses) if reduction == "mean" else over.sum(losses)
    return losses.cast(common_dtype(what, *like))


def _bounded_log(x: Tensor) -> Tensor:
    none = x < 2.0**x.dtype.least  # the slope there would be infinite
    return where(none, _LOWEST_LOG, maximum(log(where(none, 1.0, x)), _LOWEST_LOG))


def _classes(what: str, x: Tensor, weight: Tensor | None) -> tuple[int, Tensor | None]:
    """The axis of classes, and one factor a class, broadcast to x's shape."""
    if not x.ndim:
        raise ShapeError("an input of shape () has no classes", operation=what)
    axis = min(1, x.ndim - 1)
    check_shapes(what, x.shape[axis : axis + 1], weight)
    if weight is None:
        return axis, None
    factors = weight.cast(accumulator(x.dtype))
    return axis, Tensor.of(broadcast_in_dim(factors.node, axis, x.shape), weight.device)


def _checked_target(what: str, x: Tensor, target: Any, ignore_index: int) -> Tensor:
    """`target` as a tensor; raises AxisError for a class that does not exist. Those of a list or a
    NumPy array are known; under the option `check` those of a tensor are computed, unless it is
    being traced."""
    goal = target if isinstance(target, Tensor) else Tensor(target, device=x.device)
    classes = known_elements(target)
    if classes is None and current().check and tracers.get() is None:
        classes = memory.download(goal)
    if classes is not None and x.ndim and goal.dtype.is_int:
        counted = classes[classes != ignore_index]
        axis = min(1, x.ndim - 1)
        check_range(what, counted, axis, x.shape[axis], minimum=0)
    return goal


def _at(what: str, x: Tensor, target: Tensor, axis: int) -> Tensor:
    """The elements of `x` at the classes `target` along `axis`, which vanishes; 0 for classes
    that do not exist."""
    rest = resized(x.shape, axis)
    if target.shape != rest or not target.dtype.is_int:
        raise ShapeError(f"input {x.shape} needs integer classes of shape {rest}, not "
                         f"{target.dtype.name} of {target.shape}", operation=what)  # fmt: skip
    picked = Node(Op.GATHER, (x.node, insert_axes(target.node, (axis,))), axis)
    return movement.squeeze(Tensor.of(picked, common_device(what, x, target)), axis=axis)


def _class_reduced(
    what: str, losses: Tensor, valid: Tensor, share: Tensor | None, reduction: str, x: Tensor
) -> Tensor:
    """`losses` where `valid`; the mean divides by the sum of the targets' factors."""
    losses = where(valid, losses, 0.0)
    if reduction != "mean":
        return reduced(what, losses, reduction, x)
    factors = valid.cast(losses.dtype) if share is None else where(valid, share, 0.0)
    return (over.sum(losses) / over.sum(factors)).cast(x.dtype)


# Normalisation and dropout.


class BatchNorm(NamedTuple):
    """What `batch_norm` returns: the result, and the statistics for the next call."""

    output: Tensor
    running_mean: Tensor | None
    running_var: Tensor | None


@once
def layer_norm(
    x: Tensor, normalized_shape: int | Sequence[int], weight: Tensor | None = None,
    bias: Tensor | None = None, eps: float = 1e-5,
) -> Tensor:  # fmt: skip
    """``(x - mean) / sqrt(var + eps) * weight + bias`` over the last axes of `x`, whose sizes are
    `normalized_shape`, and the shape of `weight` and `bias` (Ba, Kiros and Hinton 2016)."""
    axes = _last_axes("layer_norm", x, normalized_shape, weight, bias)
    return _scaled(_standard(exact("layer_norm", x), axes, eps), weight, bias, x, 0)


@once
def rms_norm(
    x: Tensor, normalized_shape: int | Sequence[int], weight: Tensor | None = None,
    eps: float | None = None,
) -> Tensor:  # fmt: skip
    """``x / sqrt(mean(x * x) + eps) * weight`` over the last axes of `x`. eps: by default the
    spacing at 1 of the dtype that means are computed in, float32 for halves, as in PyTorch (Zhang
    and Sennrich 2019)."""
    axes = _last_axes("rms_norm", x, normalized_shape, weight)
    values = exact("rms_norm", x)
    square = over.mean(values * values, axis=axes, keepdims=True)
    epsilon = finfo(values.dtype).eps if eps is None else eps
    return _scaled(values * rsqrt(square + epsilon), weight, None, x, 0)


def group_norm(
    x: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:  # fmt: skip
    """Normalise each of `num_groups` groups of channels of each sample of `x`, (N, C, ...); weight
    and bias: (C,) (Wu and He 2018)."""
    _check_channels("group_norm", x, weight, bias)
    batch, channels, *rest = x.shape
    if num_groups < 1 or channels % num_groups:
        raise ShapeError(
            f"{channels} channels of {x.shape} in {num_groups} groups", operation="group_norm"
        )
    groups = (batch, num_groups, channels // num_groups, *rest)
    values = movement.reshape(exact("group_norm", x), groups)
    values = movement.reshape(_standard(values, range(2, len(groups)), eps), x.shape)
    return _scaled(values, weight, bias, x, len(rest))


def instance_norm(
    x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5, *,
    running_mean: Tensor | None = None, running_var: Tensor | None = None,
    use_input_stats: bool = True, momentum: float = 0.1,
) -> Any:  # fmt: skip
    """Normalise each channel of each sample of `x`, (N, C, spatial...); vectors are (C,)
    (Ulyanov, Vedaldi and Lempitsky 2016).

    Returns the result; or, with running statistics, what `batch_norm` returns. use_input_stats:
    use the statistics of `x`, and return running statistics moved towards their averages over the
    samples by the share `momentum` (variances with Bessel's correction). Otherwise use the running
    statistics, for all samples alike. The arguments are left alone."""
    what = "instance_norm"
    _check_channels(what, x, weight, bias, running_mean, running_var)
    values, trailing = exact(what, x), x.ndim - 2
    mean, variance = _moments(values, range(2, x.ndim))
    if running_mean is None or running_var is None:
        if running_mean is not running_var or not use_input_stats:
            raise ArgumentError(
                "without use_input_stats, or with one of them, both "
                "running_mean and running_var are needed",
                operation=what,
            )
        return _scaled((values - mean) * rsqrt(variance + eps), weight, bias, x, trailing)
    if not use_input_stats:
        known = _column(running_mean, values, trailing)
        spread = _column(running_var, values, trailing)
        output = _scaled((values - known) * rsqrt(spread + eps), weight, bias, x, trailing)
        return BatchNorm(output, running_mean, running_var)
    output = _scaled((values - mean) * rsqrt(variance + eps), weight, bias, x, trailing)
    count = math.prod(x.shape[2:])
    if count < 2:
        raise ShapeError(f"running statistics need two values a channel of a sample, not "
                         f"those of {x.shape}", operation=what)  # fmt: skip
    unbiased = variance * (count / (count - 1))
    average, deviation = (over.mean(statistic, axis=0) for statistic in (mean, unbiased))
    return BatchNorm(
        output, _moved(running_mean, average, momentum), _moved(running_var, deviation, momentum)
    )


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
        mean, variance = _moments(values, (0, *range(2, x.ndim)))
    else:
        mean = _column(running_mean, values, rest)
        variance = _column(running_var, values, rest)
    output = _scaled((values - mean) * rsqrt(variance + eps), weight, bias, x, rest)
    if not training:
        return BatchNorm(output, running_mean, running_var)
    count = x.size // max(x.shape[1], 1)
    if count < 2:
        raise ShapeError(
            f"training needs two values a channel, not those of {x.shape}", operation="batch_norm"
        )
    unbiased = variance * (count / (count - 1))
    return BatchNorm(
        output, _moved(running_mean, mean, momentum), _moved(running_var, unbiased, momentum)
    )


def dropout(
    x: Tensor, p: float = 0.5, training: bool = True, *, seed: int | None = None,
    key: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Zero each element with probability `p` and scale the others by ``1 / (1 - p)`` (Srivastava
    et al. 2014); what `x` has when not training. `seed` and `key` are as in `lamina.random`."""
    return zeroed("dropout", x, x.shape, p, training, seed, key)


def _check_channels(what: str, x: Tensor, *vectors: Tensor | None) -> None:
    if x.ndim < 2:
        raise ShapeError(f"{x.shape} has no channels; (N, C, ...) is needed", operation=what)
    for vector in vectors:
        if vector is not None and vector.shape != x.shape[1:2]:
            raise ShapeError(
                f"the input has shape {x.shape}, of {x.shape[1]} channels; its weight, "
                f"bias or statistics have shape {vector.shape}",
                operation=what,
            )


def _last_axes(
    what: str, x: Tensor, normalized_shape: int | Sequence[int], *weights: Tensor | None
) -> Sequence[int]:
    sizes = sizes_of(what, normalized_shape)
    if not sizes or x.shape[-len(sizes) :] != sizes:
        raise ShapeError(f"{x.shape} does not end in {sizes}", operation=what)
    check_shapes(what, sizes, *weights)
    return range(x.ndim - len(sizes), x.ndim)


def _moments(x: Tensor, axes: Sequence[int]) -> list[Tensor]:
    """The mean and the variance over `axes`, which stay."""
    return [moment(x, axis=axes, keepdims=True) for moment in (over.mean, over.var)]


def _standard(x: Tensor, axes: Sequence[int], eps: float) -> Tensor:
    """`x` without its mean over `axes`, in units of its deviation."""
    mean, variance = _moments(x, axes)
    return (x - mean) * rsqrt(variance + eps)


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
