"""Which token follows: the most probable one, or one that is drawn."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lamina import random
from lamina.core.dtypes import float32, int32, int64
from lamina.errors import ArgumentError
from lamina.frontend.functions.creation import arange, zeros
from lamina.frontend.functions.elementwise import exp, log, where
from lamina.frontend.functions.indexing import take_along_axis
from lamina.frontend.functions.padding import pad
from lamina.frontend.functions.scatter import scatter_add
from lamina.frontend.tensor import Tensor

__all__ = ["RECENT", "Sampling"]

RECENT = 64  # the tokens at the end of a text that penalties count

_SMALLEST, _LARGEST = 1.2e-38, 3.4e38  # the positive numbers that float32 has in full
_QUARTERINGS = 10
# Tokens are looked at that are at least exp(-24) = 4e-11 times as probable as the best.
_LEAST_EXPONENT = -24.0
_BLOCK = 256  # tokens: about the square root of a vocabulary's size


@dataclass(frozen=True)
class Sampling:
    """How tokens are drawn.

    temperature: the logits are divided by it; 0 takes the most probable token always.
    top_k: only so many of the most probable tokens are drawn; 0 draws from all.
    top_p: only the most probable of these, which make up this share of them together, are drawn
    (Holtzman et al. 2020).
    min_p: only tokens at least this many times as probable as the best one are.
    repetition_penalty: logits of tokens among the last `RECENT` ones are divided by it where they
    are positive, multiplied where they are negative (Keskar et al. 2019, "CTRL").
    frequency_penalty, presence_penalty: subtracted from a logit for each time the token is among
    these, and once if it is, as in OpenAI's API.
    seed: of the draws; two texts with one seed are equal.

    Raises ArgumentError for values that make no sense, and for those that float32, in which logits
    are, would make 0 or infinite."""

    temperature: float = 0.0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int = 0
    top_k: int = 0
    repetition_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0

    def __post_init__(self) -> None:
        is_held = self.temperature == 0.0 or _SMALLEST <= self.temperature <= _LARGEST
        self._check("temperature", is_held, f"a number from 0 on, {_SMALLEST} to {_LARGEST} or 0,")
        self._check("top_k", 0 <= self.top_k < 1 << 31, f"0 to {(1 << 31) - 1}")
        self._check("top_p", 0.0 < self.top_p <= 1.0, "above 0 and at most 1")
        self._check("min_p", 0.0 <= self.min_p <= 1.0, "0 to 1")
        self._check("repetition_penalty", 0.01 <= self.repetition_penalty <= 100.0, "0.01 to 100")
        for name in ("frequency_penalty", "presence_penalty"):
            self._check(name, -2.0 <= getattr(self, name) <= 2.0, "-2 to 2")
        self._check("seed", 0 <= self.seed < 1 << 32, f"0 to {(1 << 32) - 1}")

    def _check(self, name: str, is_fine: bool, wanted: str) -> None:
        if not is_fine:
            raise ArgumentError(f"{getattr(self, name)}; {wanted} is needed", operation=name)

    @property
    def is_plain(self) -> bool:
        """Whether the best token by the logits is taken always."""
        return self.temperature == 0.0 and not self._has_penalties

    @property
    def is_limited(self) -> bool:
        """Whether penalties, `top_k` or `top_p` leave out tokens or change what is probable.
        `min_p` is not among these: it compares each token with the best one, as `drawn` can."""
        return self.top_k > 0 or self.top_p < 1.0 or self._has_penalties

    @property
    def _has_penalties(self) -> bool:
        return self._penalties != (1.0, 0.0, 0.0)

    @property
    def _penalties(self) -> tuple[float, float, float]:
        return self.repetition_penalty, self.frequency_penalty, self.presence_penalty

    def numbers(self) -> list[float]:
        """What `drawn` reads of it."""
        return [self.temperature, self.top_k, self.top_p, self.min_p, *self._penalties]

    def key(self, step: int) -> list[int]:
        """The words of the random key of the token number `step`."""
        return [self.seed, step]


def recent_of(tokens: Sequence[int]) -> list[int]:
    """The last `RECENT` tokens of a text, as `drawn` reads them; -1 is no token."""
    last = tokens[-RECENT:]
    return [*last, *[-1] * (RECENT - len(last))]


def all_allowed(rows: int, vocabulary: int) -> NDArray[np.int32]:
    """int32 (rows, ceil(vocabulary / 32)), as `drawn_with_limits` reads it: any token may come
    next."""
    return np.full((rows, -(-vocabulary // 32)), -1, np.int32)


def best(logits: Tensor) -> Tensor:
    """The most probable tokens of logits (..., vocabulary): int64 (...)."""
    return logits.argmax(axis=-1).cast(int64)


def drawn(logits: Tensor, numbers: Tensor, keys: Tensor) -> Tensor:
    """Tokens drawn from logits (batch, vocabulary) by temperature and min-p: int64 (batch,).

    numbers: float32 (batch, 7), `Sampling.numbers` of each row; no row may be limited
    keys: uint32 (batch, 2), `Sampling.key` of each row
    """
    logits = logits.contiguous()
    return _drawn(logits, _weights(logits, numbers), numbers, keys)


def drawn_with_limits(
    logits: Tensor, numbers: Tensor, keys: Tensor, recent: Tensor, allowed: Tensor
) -> Tensor:
    """Tokens drawn from logits (batch, vocabulary) by temperature, min-p, top-k, top-p and
    penalties, among those that are allowed: int64 (batch,).

    numbers: float32 (batch, 7), `Sampling.numbers` of each row, limited or not
    keys: uint32 (batch, 2), `Sampling.key` of each row
    recent: int64 (batch, RECENT), `recent_of` each text, padded with -1
    allowed: int32 (batch, ceil(vocabulary / 32)), as `Constraint.allowed` or `all_allowed` says
    """
    logits = _penalized(logits, numbers[:, 4:], recent)
    logits = where(_bits(allowed, logits.shape[1]), logits, -math.inf).contiguous()
    top_k, top_p = numbers[:, 1:2], numbers[:, 2:3]
    weights = _weights(logits, numbers)
    weights = where(weights >= _least_of(weights, top_k), weights, 0.0).contiguous()
    weights = where(weights >= _nucleus(weights, top_p), weights, 0.0)
    return _drawn(logits, weights, numbers, keys)


def _weights(logits: Tensor, numbers: Tensor) -> Tensor:
    """How probable tokens are beside the best one, whose weight is 1."""
    temperature = numbers[:, 0:1]
    scaled = logits - logits.max(axis=-1, keepdims=True)
    return exp(scaled / where(temperature > 0.0, temperature, 1.0))


def _drawn(logits: Tensor, weights: Tensor, numbers: Tensor, keys: Tensor) -> Tensor:
    """A token by its weight, where that is `min_p` at least; the best one at the temperature 0."""
    temperature, min_p = numbers[:, 0], numbers[:, 3:4]
    chosen = _drawn_place(where(weights >= min_p, weights, 0.0), keys)
    return where(temperature > 0.0, chosen, best(logits))


def _drawn_place(weights: Tensor, keys: Tensor) -> Tensor:
    """A place of each row, drawn by its weight: (batch, count) to int64 (batch,).

    The maximum of logarithms with noise of Gumbel's distribution is a draw by the weights. A block
    of places is drawn by the sum of its weights, then a place of that block: so 49,152 places need
    192 + 256 random numbers and not 49,152, which took longer than all else."""
    batch, count = weights.shape
    blocks = -(-count // _BLOCK)
    padded = pad(weights, ((0, 0), (0, blocks * _BLOCK - count)))
    noise = random.gumbel((batch, blocks + _BLOCK), key=keys)
    sums = padded.reshape((batch, blocks, _BLOCK)).sum(axis=-1)
    first = best(log(sums) + noise[:, :blocks]).unsqueeze(-1) * _BLOCK
    in_block = take_along_axis(padded, first + arange(_BLOCK, device=weights.device), axis=1)
    return first[:, 0] + best(log(in_block) + noise[:, blocks:])


def _penalized(logits: Tensor, penalties: Tensor, recent: Tensor) -> Tensor:
    """Logits after the penalties for tokens that the text has at its end."""
    repetition, frequency, presence = (penalties[:, at : at + 1] for at in range(3))
    nothing = zeros(logits.shape, dtype=float32, device=logits.device)
    # Tokens that are none are counted for none: their place is behind the last one.
    places = where(recent < 0, logits.shape[1], recent)
    counts = scatter_add(nothing, 1, places, recent * 0.0 + 1.0)
    is_repeated = counts > 0.0
    scale = where(logits > 0.0, 1.0 / repetition, repetition)
    scaled = where(is_repeated, logits * scale, logits)
    return scaled - counts * frequency - where(is_repeated, presence, 0.0)


def _bits(words: Tensor, count: int) -> Tensor:
    """The first `count` bits of each row of int32 words, the lowest of a word first: bool (batch,
    count)."""
    bits = words.unsqueeze(-1) >> arange(32, dtype=int32, device=words.device)
    return (bits & 1).reshape((words.shape[0], -1))[:, :count] != 0


def _least_of(weights: Tensor, count: Tensor) -> Tensor:
    """Of each row the least of the `count` greatest weights; 0 where `count` is."""

    def counts(least: Tensor) -> Tensor:
        # As float32, which counts to 2**24: sums of int64 take four times as long.
        return where(weights >= least, 1.0, 0.0).sum(axis=-1, keepdims=True)

    return where(count > 0.0, _greatest(counts, count), 0.0)


def _nucleus(weights: Tensor, share: Tensor) -> Tensor:
    """Of each row the greatest weight such that all weights that are no less make up `share` of
    the sum; 0 where the share is 1."""

    def sums(least: Tensor) -> Tensor:
        return where(weights >= least, weights, 0.0).sum(axis=-1, keepdims=True)

    least = _greatest(sums, share * weights.sum(axis=-1, keepdims=True))
    return where(share < 1.0, least, 0.0)


def _greatest(reached: Callable[[Tensor], Tensor], goal: Tensor) -> Tensor:
    """Of each row the greatest weight at which `reached` is `goal` or more, found by quartering an
    interval of its logarithm: there is nothing to sort, and weights are read once for the three
    places between quarters. goal: (batch, 1); so is the result."""
    low, high = goal * 0.0 + _LEAST_EXPONENT, goal * 0.0
    for _ in range(_QUARTERINGS):
        places = [low + (high - low) * share for share in (0.25, 0.5, 0.75)]
        are_enough = [reached(exp(place)) >= goal for place in places]
        # `reached` falls as weights grow: the interval begins at the last place with enough.
        for place, is_enough in zip(places, are_enough, strict=True):
            low = where(is_enough, place, low)
        for place, is_enough in zip(reversed(places), reversed(are_enough), strict=True):
            high = where(is_enough, high, place)
    return exp(low)
