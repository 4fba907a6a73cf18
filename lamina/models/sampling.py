"""Which token follows: the most probable one, or one that is drawn."""

from __future__ import annotations

from dataclasses import dataclass

from lamina import random
from lamina.core.dtypes import int64
from lamina.errors import ArgumentError
from lamina.frontend.functions.elementwise import exp, where
from lamina.frontend.tensor import Tensor

__all__ = ["Sampling"]

_HALVINGS = 20
# The nucleus is looked for among tokens at least exp(-24) = 4e-11 times as probable as the best.
_LEAST_EXPONENT = -24.0


@dataclass(frozen=True)
class Sampling:
    """How tokens are drawn.

    temperature: the logits are divided by it; 0 takes the most probable token always. top_p: only
    the most probable tokens, which make up this share together, are drawn (Holtzman et al. 2020).
    min_p: only tokens at least this many times as probable as the best one are. seed: of the
    draws; two texts with one seed are equal.

    Raises ArgumentError for values that make no sense."""

    temperature: float = 0.0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0.0 <= self.temperature < float("inf"):
            raise ArgumentError(
                f"{self.temperature}; a number from 0 on is needed", operation="temperature"
            )
        if not 0.0 < self.top_p <= 1.0:
            raise ArgumentError(f"{self.top_p}; above 0 and at most 1 is needed", operation="top_p")
        if not 0.0 <= self.min_p <= 1.0:
            raise ArgumentError(f"{self.min_p}; 0 to 1 is needed", operation="min_p")
        if not 0 <= self.seed < 1 << 32:
            raise ArgumentError(f"{self.seed}; 0 to {(1 << 32) - 1} is needed", operation="seed")

    @property
    def is_greedy(self) -> bool:
        return self.temperature == 0.0

    def numbers(self) -> list[float]:
        """What `drawn` reads of it."""
        return [self.temperature, self.top_p, self.min_p]

    def key(self, step: int) -> list[int]:
        """The words of the random key of the token number `step`."""
        return [self.seed, step]


def best(logits: Tensor) -> Tensor:
    """The most probable tokens of logits (..., vocabulary): int64 (...)."""
    return logits.argmax(axis=-1).cast(int64)


def drawn(logits: Tensor, numbers: Tensor, keys: Tensor) -> Tensor:
    """Tokens drawn from logits (batch, vocabulary), each row as the `Sampling` says whose numbers,
    float32 (3,), and key, uint32 (2,), are in that row: int64 (batch,).

    The maximum of logits with noise of Gumbel's distribution is a draw from their softmax."""
    temperature, top_p, min_p = (numbers[:, at : at + 1] for at in range(3))
    is_drawn = temperature > 0.0
    scaled = logits - logits.max(axis=-1, keepdims=True)
    scaled = scaled / where(is_drawn, temperature, 1.0)
    weights = exp(scaled).contiguous()  # beside the best one's, which is 1
    is_kept = (weights >= _nucleus(weights, top_p)) & (weights >= min_p)
    noisy = scaled + random.gumbel(logits.shape, key=keys)
    chosen = best(where(is_kept, noisy, -float("inf")))
    return where(is_drawn[:, 0], chosen, best(logits))


def _nucleus(weights: Tensor, share: Tensor) -> Tensor:
    """Of each row the greatest weight such that all weights that are no less make up `share` of
    the sum, found by halving an interval of its logarithm: there is nothing to sort. share: (batch,
    1); so is the result."""
    goal = share * weights.sum(axis=-1, keepdims=True)
    low, high = goal * 0.0 + _LEAST_EXPONENT, goal * 0.0
    for _ in range(_HALVINGS):
        middle = (low + high) * 0.5
        heavy = where(weights >= exp(middle), weights, 0.0)
        is_enough = heavy.sum(axis=-1, keepdims=True) >= goal
        low, high = where(is_enough, middle, low), where(is_enough, high, middle)
    return where(share < 1.0, exp(low), 0.0)
