"""Losses and similarities; names and meanings as in PyTorch, `axis` in place of `dim`.

`reduction` is 'mean', 'sum' or 'none'. Halves are computed in float32 and rounded at the end.
"""

from __future__ import annotations

from lamina.errors import DTypeError, ShapeError
from lamina.ir.build import insert_axes
from lamina.ir.node import Node
from lamina.ir.ops import Op
from lamina.shape import normalize_axis
from lamina.tensor import movement
from lamina.tensor import reduction as over
from lamina.tensor.activation import softplus
from lamina.tensor.core import Tensor, common_device, common_dtype
from lamina.tensor.elementwise import abs as absolute
from lamina.tensor.elementwise import exp, isfinite, log, maximum, sqrt, where
from lamina.tensor.windows import accumulator

__all__ = [
    "binary_cross_entropy", "binary_cross_entropy_with_logits", "cosine_similarity",
    "cross_entropy", "huber_loss", "kl_div", "l1_loss", "mse_loss", "nll_loss", "smooth_l1_loss",
]  # fmt: skip

_LOWEST_LOG = -100.0  # stands for the logarithm of 0 in binary_cross_entropy


def cross_entropy(
    x: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """The negative logarithm of the softmax of `x` at the target class.

    x: logits (C,), (N, C) or (N, C, ...). target: integer classes () or (N, ...), or
    probabilities of x's shape. weight: (C,), one factor a class; the mean over classes is a
    weighted one. ignore_index: this class contributes nothing. label_smoothing: the share of
    probability that is spread evenly over the classes.
    """
    what = "cross_entropy"
    axis = _class_axis(what, x)
    if not 0.0 <= label_smoothing <= 1.0:
        raise ShapeError(f"{what}: label_smoothing={label_smoothing} is not in [0, 1]")
    exact = _float(what, x)
    factors = None if weight is None else _class_factors(what, weight, x, axis)
    top, total = _softmax_parts(exact, axis)
    if not target.dtype.is_int:
        _check_same(what, x, target)
        chances = target.cast(exact.dtype)
        if label_smoothing:
            chances = chances * (1.0 - label_smoothing) + label_smoothing / x.shape[axis]
        weighted = chances if factors is None else chances * factors
        losses = -over.sum((exact - top - total) * weighted, axis=axis)
        return _reduced(what, losses, reduction).cast(x.dtype)
    valid = target != ignore_index
    chosen = _at(what, exact, target, axis) - movement.squeeze(top, axis=axis)
    losses = movement.squeeze(total, axis=axis) - chosen
    share = None if factors is None else _at(what, factors, target, axis)
    if share is not None:
        losses = losses * share
    if label_smoothing:
        every = total - (exact - top)
        even = over.sum(every if factors is None else every * factors, axis=axis)
        losses = losses * (1.0 - label_smoothing) + even * (label_smoothing / x.shape[axis])
    return _class_reduced(what, losses, valid, share, reduction).cast(x.dtype)


def nll_loss(
    x: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    """Minus the element of `x` (log-probabilities) at the target class; see `cross_entropy`."""
    what = "nll_loss"
    axis = _class_axis(what, x)
    exact = _float(what, x)
    losses = -_at(what, exact, target, axis)
    share = None
    if weight is not None:
        share = _at(what, _class_factors(what, weight, x, axis), target, axis)
        losses = losses * share
    valid = target != ignore_index
    return _class_reduced(what, losses, valid, share, reduction).cast(x.dtype)


def mse_loss(x: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    """``(x - target) ** 2``."""
    difference = _difference("mse_loss", x, target)
    return _finished("mse_loss", difference * difference, reduction, x, target)


def l1_loss(x: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    """``abs(x - target)``."""
    difference = _difference("l1_loss", x, target)
    return _finished("l1_loss", absolute(difference), reduction, x, target)


def huber_loss(
    x: Tensor, target: Tensor, reduction: str = "mean", delta: float = 1.0
) -> Tensor:
    """``d * d / 2`` for ``d = abs(x - target) <= delta``, else ``delta * (d - delta / 2)``.

    Source: Huber 1964, "Robust estimation of a location parameter".
    """
    if delta <= 0.0:
        raise ShapeError(f"huber_loss: delta={delta} must be positive")
    away = absolute(_difference("huber_loss", x, target))
    losses = where(away < delta, away * away * 0.5, (away - 0.5 * delta) * delta)
    return _finished("huber_loss", losses, reduction, x, target)


def smooth_l1_loss(
    x: Tensor, target: Tensor, reduction: str = "mean", beta: float = 1.0
) -> Tensor:
    """``d * d / (2 beta)`` for ``d = abs(x - target) < beta``, else ``d - beta / 2``."""
    if beta < 0.0:
        raise ShapeError(f"smooth_l1_loss: beta={beta} must not be negative")
    if beta == 0.0:
        return l1_loss(x, target, reduction)
    away = absolute(_difference("smooth_l1_loss", x, target))
    losses = where(away < beta, away * away * (0.5 / beta), away - 0.5 * beta)
    return _finished("smooth_l1_loss", losses, reduction, x, target)


def binary_cross_entropy(
    x: Tensor, target: Tensor, weight: Tensor | None = None, reduction: str = "mean"
) -> Tensor:
    """``-target log(x) - (1 - target) log(1 - x)`` for probabilities `x`.

    Logarithms are at least -100, so that certain answers that are wrong have a finite loss.
    """
    _check_same("binary_cross_entropy", x, target)
    exact = _float("binary_cross_entropy", x)
    goal = target.cast(exact.dtype)
    losses = -(goal * _bounded_log(exact) + (1.0 - goal) * _bounded_log(1.0 - exact))
    if weight is not None:
        losses = losses * weight.cast(exact.dtype)
    return _finished("binary_cross_entropy", losses, reduction, x, target)


def binary_cross_entropy_with_logits(
    x: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    reduction: str = "mean",
    pos_weight: Tensor | None = None,
) -> Tensor:
    """`binary_cross_entropy` of ``sigmoid(x)``, without overflow.

    weight: a factor of each element. pos_weight: a factor of the positive part; both broadcast.
    """
    what = "binary_cross_entropy_with_logits"
    _check_same(what, x, target)
    exact = _float(what, x)
    goal = target.cast(exact.dtype)
    # -log sigmoid(x) is softplus(-x), and -log(1 - sigmoid(x)) is that plus x.
    positive = softplus(-exact)
    if pos_weight is not None:
        positive = positive * ((pos_weight.cast(exact.dtype) - 1.0) * goal + 1.0)
    losses = (1.0 - goal) * exact + positive
    if weight is not None:
        losses = losses * weight.cast(exact.dtype)
    return _finished(what, losses, reduction, x, target)


def kl_div(
    x: Tensor, target: Tensor, reduction: str = "mean", log_target: bool = False
) -> Tensor:
    """``target * (log(target) - x)``: the divergence of log-probabilities `x` from `target`.

    log_target: the target is given as logarithms. reduction 'batchmean' divides the sum by the
    size of the first axis.
    """
    exact, goal = (_float("kl_div", one) for one in (x, target))
    if log_target:
        losses = exp(goal) * (goal - exact)
    else:
        some = goal > 0.0
        safe = where(some, goal, 1.0)
        losses = where(some, goal * (log(safe) - exact), -goal * exact)
    if reduction == "batchmean":
        total = over.sum(losses)
        return (total / float(losses.shape[0]) if losses.ndim else total).cast(x.dtype)
    return _finished("kl_div", losses, reduction, x, target)


def cosine_similarity(x1: Tensor, x2: Tensor, axis: int = 1, eps: float = 1e-8) -> Tensor:
    """``sum(x1 * x2) / (norm(x1) * norm(x2))`` along `axis`, each norm at least `eps`."""
    dtype = common_dtype("cosine_similarity", x1, x2)
    a, b = (_float("cosine_similarity", one.cast(dtype)) for one in (x1, x2))
    product = over.sum(a * b, axis=axis)
    # The bound lies inside the root, whose derivative at 0 is infinite.
    norms = [sqrt(maximum(over.sum(one * one, axis=axis), eps * eps)) for one in (a, b)]
    return (product / norms[0] / norms[1]).cast(dtype)


# What they share.


def _float(what: str, x: Tensor) -> Tensor:
    if not x.dtype.is_float:
        raise DTypeError(f"{what}: {x.dtype.name} is not a float dtype; cast it")
    return x.cast(accumulator(x.dtype))


def _check_same(what: str, x: Tensor, target: Tensor) -> None:
    if x.shape != target.shape:
        raise ShapeError(f"{what}: input {x.shape} and target {target.shape} differ in shape")


def _difference(what: str, x: Tensor, target: Tensor) -> Tensor:
    return _float(what, x) - _float(what, target)


def _reduced(what: str, losses: Tensor, reduction: str) -> Tensor:
    if reduction == "none":
        return losses
    if reduction == "sum":
        return over.sum(losses)
    if reduction == "mean":
        return over.mean(losses)
    raise ShapeError(f"{what}: reduction {reduction!r} is not 'mean', 'sum' or 'none'")


def _finished(
    what: str, losses: Tensor, reduction: str, x: Tensor, target: Tensor
) -> Tensor:
    """The reduced losses in the dtype that input and target promote to."""
    return _reduced(what, losses, reduction).cast(common_dtype(what, x, target))


def _bounded_log(x: Tensor) -> Tensor:
    some = x > 0.0
    return maximum(log(where(some, x, 1.0)), _LOWEST_LOG) + where(some, 0.0, _LOWEST_LOG)


def _softmax_parts(x: Tensor, axis: int) -> tuple[Tensor, Tensor]:
    """m and s, with axes of size 1, such that ``x - m - s`` is the logarithm of the softmax.

    m is the maximum, a constant for derivatives: it cancels.
    """
    top = over.max(x, axis=axis, keepdims=True).detach()
    top = where(isfinite(top), top, 0.0)
    return top, log(over.sum(exp(x - top), axis=axis, keepdims=True))


def _class_axis(what: str, x: Tensor) -> int:
    if not x.ndim:
        raise ShapeError(f"{what}: an input of shape () has no classes")
    return normalize_axis(what, 0 if x.ndim == 1 else 1, x.ndim)


def _class_factors(what: str, weight: Tensor, x: Tensor, axis: int) -> Tensor:
    """One factor a class, broadcast to x's shape."""
    if weight.shape != (x.shape[axis],):
        raise ShapeError(f"{what}: the weight has shape {weight.shape}, not ({x.shape[axis]},)")
    column = (x.shape[axis], *(1,) * (x.ndim - axis - 1))
    exact = weight.cast(accumulator(x.dtype))
    return movement.broadcast_to(movement.reshape(exact, column), x.shape)


def _at(what: str, x: Tensor, target: Tensor, axis: int) -> Tensor:
    """The elements of `x` at the classes `target` along `axis`, which vanishes; 0 for classes
    that do not exist."""
    rest = (*x.shape[:axis], *x.shape[axis + 1 :])
    if target.shape != rest or not target.dtype.is_int:
        raise ShapeError(
            f"{what}: input {x.shape} needs integer classes of shape {rest}, not "
            f"{target.dtype.name} of {target.shape}"
        )
    index = insert_axes(target.node, (axis,))
    picked = Tensor.of(
        Node(Op.GATHER, (x.node, index), axis), common_device(what, x, target)
    )
    return movement.squeeze(picked, axis=axis)


def _class_reduced(
    what: str, losses: Tensor, valid: Tensor, share: Tensor | None, reduction: str
) -> Tensor:
    """`losses` where `valid`; the mean divides by the sum of the targets' factors."""
    losses = where(valid, losses, 0.0)
    if reduction != "mean":
        return _reduced(what, losses, reduction)
    factors = valid.cast(losses.dtype) if share is None else where(valid, share, 0.0)
    return over.sum(losses) / over.sum(factors)
