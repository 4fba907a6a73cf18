"""Losses and similarities; names and meanings as in PyTorch, `axis` in place of `dim`.

`reduction` is 'mean', 'sum' or 'none'. Halves are computed in float32 and rounded at the end.
"""

from __future__ import annotations

from collections.abc import Callable

from lamina.errors import ArgumentError, ShapeError
from lamina.ir.build import insert_axes
from lamina.ir.node import Node
from lamina.ir.ops import Op
from lamina.tensor import reduction as over
from lamina.tensor.core import Tensor, common_device, common_dtype
from lamina.tensor.elementwise import abs as absolute
from lamina.tensor.elementwise import exp, isfinite, log, maximum, softplus, sqrt, where
from lamina.tensor.movement import squeeze
from lamina.tensor.windows import accumulator, along, exact, resized

__all__ = [
    "binary_cross_entropy", "binary_cross_entropy_with_logits", "cosine_similarity",
    "cross_entropy", "huber_loss", "kl_div", "l1_loss", "mse_loss", "nll_loss", "smooth_l1_loss",
]  # fmt: skip

_LOWEST_LOG = -100.0  # stands for the logarithm of 0 in binary_cross_entropy


def cross_entropy(
    x: Tensor, target: Tensor, weight: Tensor | None = None, ignore_index: int = -100,
    reduction: str = "mean", label_smoothing: float = 0.0,
) -> Tensor:  # fmt: skip
    """The negative logarithm of the softmax of `x` at the target class.

    x: logits (C,), (N, C) or (N, C, ...). target: integer classes () or (N, ...), or probabilities
    of x's shape. weight: (C,), one factor a class; the mean over classes is a weighted one.
    ignore_index: this class contributes nothing. label_smoothing: the share of probability that is
    spread evenly over the classes."""
    what = "cross_entropy"
    if not 0.0 <= label_smoothing <= 1.0:
        raise ArgumentError(f"{what}: label_smoothing={label_smoothing} is not in [0, 1]")
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
        return _reduced(what, losses, reduction, x)
    chosen = _at(what, values, target, axis) - squeeze(top, axis=axis)
    share = None if factors is None else _at(what, factors, target, axis)
    losses = _times(squeeze(total, axis=axis) - chosen, share)
    if label_smoothing:
        even = over.sum(_times(total - (values - top), factors), axis=axis)
        losses = losses * (1.0 - label_smoothing) + even * each
    return _class_reduced(what, losses, target != ignore_index, share, reduction, x)


def nll_loss(
    x: Tensor, target: Tensor, weight: Tensor | None = None, ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """Minus the element of `x` (log-probabilities) at the target class; see `cross_entropy`."""
    what = "nll_loss"
    axis, factors = _classes(what, x, weight)
    share = None if factors is None else _at(what, factors, target, axis)
    losses = _times(-_at(what, exact(what, x), target, axis), share)
    return _class_reduced(what, losses, target != ignore_index, share, reduction, x)


def mse_loss(x: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    """``(x - target) ** 2``."""
    return _regression("mse_loss", lambda d: d * d, x, target, reduction)


def l1_loss(x: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    """``abs(x - target)``."""
    return _regression("l1_loss", absolute, x, target, reduction)


def huber_loss(x: Tensor, target: Tensor, reduction: str = "mean", delta: float = 1.0) -> Tensor:
    """``d * d / 2`` for ``d = abs(x - target) <= delta``, else ``delta * (d - delta / 2)``
    (Huber 1964, "Robust estimation of a location parameter")."""
    if delta <= 0.0:
        raise ArgumentError(f"huber_loss: delta={delta} must be positive")
    return _regression("huber_loss", lambda d: _huber(d, delta), x, target, reduction)


def smooth_l1_loss(x: Tensor, target: Tensor, reduction: str = "mean", beta: float = 1.0) -> Tensor:
    """``d * d / (2 beta)`` for ``d = abs(x - target) < beta``, else ``d - beta / 2``."""
    if beta < 0.0:
        raise ArgumentError(f"smooth_l1_loss: beta={beta} must not be negative")
    rule = (lambda d: _huber(d, beta) * (1.0 / beta)) if beta else absolute
    return _regression("smooth_l1_loss", rule, x, target, reduction)


def binary_cross_entropy(
    x: Tensor, target: Tensor, weight: Tensor | None = None, reduction: str = "mean"
) -> Tensor:
    """``-target log(x) - (1 - target) log(1 - x)`` for probabilities `x`; logarithms are at least
    -100, so that certain answers that are wrong have a finite loss."""
    values, goal = _pair("binary_cross_entropy", x, target)
    losses = -(goal * _bounded_log(values) + (1.0 - goal) * _bounded_log(1.0 - values))
    return _reduced("binary_cross_entropy", _times(losses, weight), reduction, x, target)


def binary_cross_entropy_with_logits(
    x: Tensor, target: Tensor, weight: Tensor | None = None, reduction: str = "mean",
    pos_weight: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """`binary_cross_entropy` of ``sigmoid(x)``, without overflow. weight: a factor of each element.
    pos_weight: a factor of the positive part; both broadcast."""
    what = "binary_cross_entropy_with_logits"
    values, goal = _pair(what, x, target)
    # -log sigmoid(x) is softplus(-x), and -log(1 - sigmoid(x)) is that plus x.
    positive = softplus(-values)
    if pos_weight is not None:
        positive = positive * ((pos_weight.cast(values.dtype) - 1.0) * goal + 1.0)
    losses = (1.0 - goal) * values + positive
    return _reduced(what, _times(losses, weight), reduction, x, target)


def kl_div(x: Tensor, target: Tensor, reduction: str = "mean", log_target: bool = False) -> Tensor:
    """``target * (log(target) - x)``: the divergence of log-probabilities `x` from `target`, or
    from exp(target) with `log_target`. reduction 'batchmean' divides the sum by the first size."""
    values, goal = exact("kl_div", x), exact("kl_div", target)
    if log_target:
        losses = exp(goal) * (goal - values)
    else:
        some = goal > 0.0
        losses = where(some, goal * (log(where(some, goal, 1.0)) - values), -goal * values)
    if reduction == "batchmean":
        return (over.sum(losses) / float(losses.shape[0] if losses.ndim else 1)).cast(x.dtype)
    return _reduced("kl_div", losses, reduction, x, target)


def cosine_similarity(x1: Tensor, x2: Tensor, axis: int = 1, eps: float = 1e-8) -> Tensor:
    """``sum(x1 * x2) / (norm(x1) * norm(x2))`` along `axis`, each norm at least `eps`."""
    dtype = common_dtype("cosine_similarity", x1, x2)
    a, b = (exact("cosine_similarity", one.cast(dtype)) for one in (x1, x2))
    product = over.sum(a * b, axis=axis)
    # The bound lies inside the root, whose derivative at 0 is infinite.
    norms = [sqrt(maximum(over.sum(one * one, axis=axis), eps * eps)) for one in (a, b)]
    return (product / norms[0] / norms[1]).cast(dtype)


def _regression(
    what: str, rule: Callable[[Tensor], Tensor], x: Tensor, target: Tensor, reduction: str
) -> Tensor:
    return _reduced(what, rule(exact(what, x) - exact(what, target)), reduction, x, target)


def _huber(difference: Tensor, bound: float) -> Tensor:
    away = absolute(difference)
    return where(away < bound, away * away * 0.5, (away - 0.5 * bound) * bound)


def _pair(what: str, x: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Both in the dtype to compute in."""
    if x.shape != target.shape:
        raise ShapeError(f"{what}: input {x.shape} and target {target.shape} differ in shape")
    values = exact(what, x)
    return values, target.cast(values.dtype)


def _times(losses: Tensor, factors: Tensor | None) -> Tensor:
    return losses if factors is None else losses * factors.cast(losses.dtype)


def _reduced(what: str, losses: Tensor, reduction: str, *like: Tensor) -> Tensor:
    """The reduced losses in the dtype that the arguments, `like`, promote to."""
    if reduction not in ("mean", "sum", "none"):
        raise ArgumentError(f"{what}: reduction {reduction!r} is not 'mean', 'sum' or 'none'")
    if reduction != "none":
        losses = over.mean(losses) if reduction == "mean" else over.sum(losses)
    return losses.cast(common_dtype(what, *like))


def _bounded_log(x: Tensor) -> Tensor:
    some = x > 0.0
    return maximum(log(where(some, x, 1.0)), _LOWEST_LOG) + where(some, 0.0, _LOWEST_LOG)


def _classes(what: str, x: Tensor, weight: Tensor | None) -> tuple[int, Tensor | None]:
    """The axis of classes, and one factor a class, broadcast to x's shape."""
    if not x.ndim:
        raise ShapeError(f"{what}: an input of shape () has no classes")
    axis = min(1, x.ndim - 1)
    if weight is None:
        return axis, None
    if weight.shape != (x.shape[axis],):
        raise ShapeError(f"{what}: the weight has shape {weight.shape}, not ({x.shape[axis]},)")
    factors = weight.cast(accumulator(x.dtype))
    return axis, Tensor.of(along(factors.node, axis, x.shape), weight.device)


def _at(what: str, x: Tensor, target: Tensor, axis: int) -> Tensor:
    """The elements of `x` at the classes `target` along `axis`, which vanishes; 0 for classes
    that do not exist."""
    rest = resized(x.shape, axis)
    if target.shape != rest or not target.dtype.is_int:
        raise ShapeError(f"{what}: input {x.shape} needs integer classes of shape {rest}, not "
                         f"{target.dtype.name} of {target.shape}")  # fmt: skip
    picked = Node(Op.GATHER, (x.node, insert_axes(target.node, (axis,))), axis)
    return squeeze(Tensor.of(picked, common_device(what, x, target)), axis=axis)


def _class_reduced(
    what: str, losses: Tensor, valid: Tensor, share: Tensor | None, reduction: str, x: Tensor
) -> Tensor:
    """`losses` where `valid`; the mean divides by the sum of the targets' factors."""
    losses = where(valid, losses, 0.0)
    if reduction != "mean":
        return _reduced(what, losses, reduction, x)
    factors = valid.cast(losses.dtype) if share is None else where(valid, share, 0.0)
    return (over.sum(losses) / over.sum(factors)).cast(x.dtype)
