"""Kinds of dropout: of whole channels, and such that keep the mean and the variance.

Names and meanings are PyTorch's; `seed` and `key` are as in `lamina.random`.
"""

import math

from lamina import random
from lamina.core.shape import Shape
from lamina.errors import ArgumentError, ShapeError
from lamina.frontend.functions.activations import SELU_ALPHA, SELU_SCALE
from lamina.frontend.functions.elementwise import where
from lamina.frontend.functions.spatial import for_ranks
from lamina.frontend.tensor import Tensor

__all__ = ["alpha_dropout", "dropout1d", "dropout2d", "dropout3d", "feature_alpha_dropout"]


def dropout(
    what: str, rank: int, x: Tensor, p: float = 0.5, training: bool = True, *,
    seed: int | None = None, key: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Zero each channel of each sample with probability `p` and scale the others by
    ``1 / (1 - p)``; what `x` has when not training.

    x: (N, C, spatial...) or (C, spatial...) (Tompson et al. 2015, "Efficient object localization
    using convolutional networks", section 3.2)."""
    if x.ndim not in (rank + 1, rank + 2):
        raise ShapeError(
            f"the input has shape {x.shape}, not ([N,] C, {rank} sizes)", operation=what
        )
    shape = (*x.shape[: x.ndim - rank], *(1,) * rank)
    return zeroed(what, x, shape, p, training, seed, key)


dropout1d, dropout2d, dropout3d = for_ranks(dropout)


def alpha_dropout(
    x: Tensor, p: float = 0.5, training: bool = False, *, seed: int | None = None,
    key: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Set each element with probability `p` to what `selu` is far below 0, then scale and shift
    everything, so that a mean of 0 and a variance of 1 stay (Klambauer et al. 2017,
    "Self-normalizing neural networks"); what `x` has when not training."""
    return _alpha("alpha_dropout", x, x.shape, p, training, seed, key)


def feature_alpha_dropout(
    x: Tensor, p: float = 0.5, training: bool = False, *, seed: int | None = None,
    key: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """`alpha_dropout` of whole channels of `x`, (N, C, ...); of any shape when not training."""
    if training and x.ndim < 2:
        raise ShapeError(
            f"{x.shape} has no channels; (N, C, ...) is needed", operation="feature_alpha_dropout"
        )
    shape = (*x.shape[:2], *(1,) * (x.ndim - 2))
    return _alpha("feature_alpha_dropout", x, shape, p, training, seed, key)


def _alpha(
    what: str, x: Tensor, shape: Shape, p: float, training: bool, seed: int | None,
    key: Tensor | None,
) -> Tensor:  # fmt: skip
    _check(what, p)
    if not training or p == 0.0:
        return x
    if p == 1.0:
        return x * 0.0
    low = -SELU_ALPHA * SELU_SCALE
    # The variance of the mixture is (1 - p) (1 + p low^2), and its mean p low.
    scale = 1.0 / math.sqrt((1.0 - p) * (1.0 + p * low * low))
    kept = _kept(shape, x, p, seed, key)
    return where(kept, x, low) * scale + (-scale * p * low)


def zeroed(
    what: str, x: Tensor, shape: Shape, p: float, training: bool, seed: int | None,
    key: Tensor | None,
) -> Tensor:  # fmt: skip
    """`x` with zeros at places drawn with probability `p`, in a `shape` that broadcasts to x's,
    and ``1 / (1 - p)`` times the rest, which keeps the mean; what `x` has when not training."""
    _check(what, p)
    if not training or p == 0.0:
        return Tensor.of(x.node, x.device)
    kept = _kept(shape, x, p, seed, key)
    scale = 1.0 / (1.0 - p) if p < 1.0 else 1.0  # of p = 1 nothing is left to scale
    return where(kept, x * scale, 0.0)


def _check(what: str, p: float) -> None:
    if not 0.0 <= p <= 1.0:
        raise ArgumentError(f"p={p} is not a probability", operation=what)


def _kept(shape: Shape, x: Tensor, p: float, seed: int | None, key: Tensor | None) -> Tensor:
    return random.bernoulli(shape, 1.0 - p, seed=seed, key=key, device=x.device)
