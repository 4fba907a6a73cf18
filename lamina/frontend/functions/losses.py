"""Losses of margins, rankings and distributions; the basic ones are in `neural`.

Names and meanings are PyTorch's; `reduction` is 'mean', 'sum' or 'none'. Halves are computed in
float32, and results have the dtype that the inputs promote to.
"""

import math
from collections.abc import Callable

from lamina.errors import ArgumentError, ShapeError
from lamina.frontend.functions import movement
from lamina.frontend.functions import reduction as over
from lamina.frontend.functions.creation import arange
from lamina.frontend.functions.elementwise import (
    exp,
    log,
    maximum,
    minimum,
    relu,
    softplus,
    sqrt,
    where,
)
from lamina.frontend.functions.indexing import as_index
from lamina.frontend.functions.neural import reduced
from lamina.frontend.functions.reduction import norm
from lamina.frontend.functions.spatial import check_shapes, exact
from lamina.frontend.tensor import Tensor

__all__ = [
    "cosine_embedding_loss", "gaussian_nll_loss", "hinge_embedding_loss", "margin_ranking_loss",
    "multi_margin_loss", "multilabel_margin_loss", "multilabel_soft_margin_loss",
    "poisson_nll_loss", "soft_margin_loss", "triplet_margin_loss",
    "triplet_margin_with_distance_loss",
]  # fmt: skip

Distance = Callable[[Tensor, Tensor], Tensor]


def hinge_embedding_loss(
    x: Tensor, target: Tensor, margin: float = 1.0, reduction: str = "mean"
) -> Tensor:
    """`x`, a distance, where `target` is 1, and ``max(0, margin - x)`` where it is -1."""
    what = "hinge_embedding_loss"
    values = exact(what, x)
    alike = where(target != -1, values, 0.0)
    different = where(target != 1, relu(margin - values), 0.0)
    return reduced(what, alike + different, reduction, x)


def cosine_embedding_loss(
    x1: Tensor, x2: Tensor, target: Tensor, margin: float = 0.0, reduction: str = "mean"
) -> Tensor:
    """``1 - cos`` of the angle between `x1` and `x2` where `target` is 1, and
    ``max(0, cos - margin)`` where it is -1.

    x1, x2: (N, D) or (D,). target: (N,) or ()."""
    what = "cosine_embedding_loss"
    if x1.shape != x2.shape or x1.ndim not in (1, 2) or target.shape != x1.shape[:-1]:
        raise ShapeError(f"x1 {x1.shape}, x2 {x2.shape} and target {target.shape}; "
                         "([N,] D) twice and ([N]) are needed", operation=what)  # fmt: skip
    a, b = exact(what, x1), exact(what, x2)
    tiny = 1e-12  # added to squares of lengths, as PyTorch does: two vectors of 0 have the angle 0
    lengths = (over.sum(a * a, axis=-1) + tiny) * (over.sum(b * b, axis=-1) + tiny)
    cosine = over.sum(a * b, axis=-1) / sqrt(lengths)
    alike = where(target == 1, 1.0 - cosine, 0.0)
    different = where(target == -1, relu(cosine - margin), 0.0)
    return reduced(what, alike + different, reduction, x1, x2)


def margin_ranking_loss(
    x1: Tensor, x2: Tensor, target: Tensor, margin: float = 0.0, reduction: str = "mean"
) -> Tensor:
    """``max(0, margin - target * (x1 - x2))``: `target` is 1 where `x1` is to be the greater."""
    what = "margin_ranking_loss"
    difference = exact(what, x1) - exact(what, x2)
    losses = relu(margin - target.cast(difference.dtype) * difference)
    return reduced(what, losses, reduction, x1, x2)


def soft_margin_loss(x: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    """``log(1 + exp(-target * x))`` for targets 1 and -1."""
    values = exact("soft_margin_loss", x)
    losses = softplus(-target.cast(values.dtype) * values)
    return reduced("soft_margin_loss", losses, reduction, x)


def triplet_margin_loss(
    anchor: Tensor, positive: Tensor, negative: Tensor, margin: float = 1.0, p: float = 2.0,
    eps: float = 1e-6, swap: bool = False, reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """`triplet_margin_with_distance_loss` with the norm of order `p` of ``a - b + eps`` along the
    last axis (Balntas et al. 2016, "Learning local feature descriptors with triplets")."""
    what = "triplet_margin_loss"

    def distance(a: Tensor, b: Tensor) -> Tensor:
        return norm(exact(what, a) - exact(what, b) + eps, p, axis=-1)

    return _triplet(what, anchor, positive, negative, distance, margin, swap, reduction)


def triplet_margin_with_distance_loss(
    anchor: Tensor, positive: Tensor, negative: Tensor,
    distance_function: Distance | None = None, margin: float = 1.0, swap: bool = False,
    reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """``max(0, d(anchor, positive) - d(anchor, negative) + margin)``.

    distance_function: the Euclidean distance along the last axis by default. swap: the nearer of
    ``d(anchor, negative)`` and ``d(positive, negative)`` counts as the distance of the negative."""
    what = "triplet_margin_with_distance_loss"

    def euclidean(a: Tensor, b: Tensor) -> Tensor:
        eps = 1e-6  # keeps the derivative of a distance of 0 finite
        return norm(exact(what, a) - exact(what, b) + eps, axis=-1)

    distance = distance_function or euclidean
    return _triplet(what, anchor, positive, negative, distance, margin, swap, reduction)


def _triplet(
    what: str, anchor: Tensor, positive: Tensor, negative: Tensor, distance: Distance,
    margin: float, swap: bool, reduction: str,
) -> Tensor:  # fmt: skip
    if margin < 0.0:
        raise ArgumentError(f"margin={margin} must not be negative", operation=what)
    near, far = distance(anchor, positive), distance(anchor, negative)
    if swap:
        far = minimum(far, distance(positive, negative))
    return reduced(what, relu(near - far + margin), reduction, anchor, positive, negative)


def multi_margin_loss(
    x: Tensor, target: Tensor, p: int = 1, margin: float = 1.0, weight: Tensor | None = None,
    reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """``sum(max(0, margin - x[target] + x[i]) ** p) / C`` over the classes i but the target.

    x: scores (N, C), or those of one sample, (C,) or () with one class. target: integer classes
    (N,), or () or (1,) for one sample. weight: (C,), a factor of each target class. p: 1 or 2."""
    what = "multi_margin_loss"
    if p not in (1, 2):
        raise ArgumentError(f"p={p} is not 1 or 2", operation=what)
    scores, index = _scores(what, x), as_index(what, target, x)
    shape_of_losses = index.shape
    if scores.ndim == 1 and index.shape == (1,):
        index = movement.reshape(index, ())
    if index.shape != scores.shape[:-1]:
        raise ShapeError(f"input {x.shape} needs classes of shape {scores.shape[:-1]}, not "
                         f"{index.shape}", operation=what)  # fmt: skip
    classes = scores.shape[-1]
    check_shapes(what, (classes,), weight)
    is_target = movement.expand_dims(index, axis=-1) == arange(classes, device=x.device)
    right = over.sum(where(is_target, scores, 0.0), axis=-1, keepdims=True)
    excess = where(is_target, 0.0, relu(margin - right + scores))
    if p == 2:
        excess = excess * excess
    losses = over.sum(excess, axis=-1) / float(classes)
    if weight is not None:
        factors = where(is_target, weight.cast(scores.dtype), 0.0)
        losses = losses * over.sum(factors, axis=-1)
    return reduced(what, movement.reshape(losses, shape_of_losses), reduction, x)


def multilabel_margin_loss(x: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    """``sum(max(0, 1 - (x[j] - x[i]))) / C`` over the target classes j and all other classes i.

    x: scores (N, C), or those of one sample, (C,) or () with one class. target: of the same shape,
    integer classes; those from the first -1 on count for nothing."""
    what = "multilabel_margin_loss"
    scores, index = _scores(what, x), as_index(what, target, x)
    if index.shape != x.shape:
        raise ShapeError(
            f"input {x.shape} and target {index.shape} differ in shape", operation=what
        )
    index = movement.reshape(index, scores.shape)
    classes = scores.shape[-1]
    counts = over.cumulative_sum((index < 0).cast(index.dtype), axis=-1) == 0  # before the first -1
    places = arange(classes, device=x.device)
    matches = movement.expand_dims(index, axis=-1) == places
    chosen = matches & movement.expand_dims(counts, axis=-1)  # (..., slot of the target, class)
    others = ~over.any(chosen, axis=-2)
    columns = movement.expand_dims(scores, axis=-2)
    right = over.sum(where(chosen, columns, 0.0), axis=-1, keepdims=True)
    pairs = movement.expand_dims(counts, axis=-1) & movement.expand_dims(others, axis=-2)
    excess = where(pairs, relu(1.0 - (right - columns)), 0.0)
    losses = over.sum(excess, axis=(-2, -1)) / float(classes)
    return reduced(what, losses, reduction, x)


def _scores(what: str, x: Tensor) -> Tensor:
    """The scores as (N, C) or (C,): a single number is that of one class."""
    if x.ndim == 0:
        return exact(what, movement.reshape(x, (1,)))
    if x.ndim not in (1, 2) or not x.shape[-1]:
        raise ShapeError(
            f"the input has shape {x.shape}, not ([N,] C) with classes", operation=what
        )
    return exact(what, x)


def multilabel_soft_margin_loss(
    x: Tensor, target: Tensor, weight: Tensor | None = None, reduction: str = "mean"
) -> Tensor:
    """The mean over the last axis of the binary cross-entropy of ``sigmoid(x)``; weight: (C,)."""
    what = "multilabel_soft_margin_loss"
    if x.shape != target.shape or not x.ndim:
        raise ShapeError(
            f"input {x.shape} and target {target.shape}; ([N,] C) is needed", operation=what
        )
    values = exact(what, x)
    losses = softplus(-values) + (1.0 - target.cast(values.dtype)) * values
    if weight is not None:
        losses = losses * weight.cast(values.dtype)
    return reduced(what, over.mean(losses, axis=-1), reduction, x)


def poisson_nll_loss(
    x: Tensor, target: Tensor, log_input: bool = True, full: bool = False, eps: float = 1e-8,
    reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """``exp(x) - target * x``, or without `log_input` ``x - target * log(x + eps)``: minus the
    logarithm of the Poisson distribution. full: adds Stirling's formula of ``log(target!)``, which
    depends on the target alone, where it is above 1."""
    what = "poisson_nll_loss"
    values = exact(what, x)
    goal = target.cast(values.dtype)
    losses = exp(values) - goal * values if log_input else values - goal * log(values + eps)
    if full:
        large = where(goal > 1.0, goal, 1.0)
        stirling = large * log(large) - large + 0.5 * log(2.0 * math.pi * large)
        losses = losses + where(goal > 1.0, stirling, 0.0)
    return reduced(what, losses, reduction, x)


def gaussian_nll_loss(
    x: Tensor, target: Tensor, var: Tensor, full: bool = False, eps: float = 1e-6,
    reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """``(log(var) + (x - target) ** 2 / var) / 2``: minus the logarithm of the normal distribution.

    var: variances, of x's shape, or with a last axis that is missing or 1; they count as at least
    `eps`, which no derivative sees. full: adds ``log(2 pi) / 2``. (Nix and Weigend 1994,
    "Estimating the mean and variance of the target probability distribution".)"""
    what = "gaussian_nll_loss"
    if eps <= 0.0:
        raise ArgumentError(f"eps={eps} must be positive", operation=what)
    values, spread = exact(what, x), exact(what, var)
    if spread.shape == x.shape[:-1] and spread.shape != x.shape:
        spread = movement.expand_dims(spread, axis=-1)
    if spread.shape not in (x.shape, (*x.shape[:-1], 1), ()):
        raise ShapeError(f"input {x.shape} and variances {var.shape} do not fit", operation=what)
    # The value is bounded and the slope is not, so that variances may grow again.
    spread = spread + (maximum(spread, eps) - spread).detach()
    difference = values - target.cast(values.dtype)
    losses = 0.5 * (log(spread) + difference * difference / spread)
    if full:
        losses = losses + 0.5 * math.log(2.0 * math.pi)
    return reduced(what, losses, reduction, x, target)
