"""Attention over a sequence of which each process has a part, in order."""

from __future__ import annotations

import math

from lamina.core.dtypes import float32
from lamina.distributed.mesh import Axis
from lamina.distributed.operations import permute
from lamina.errors import ShapeError
from lamina.frontend.functions.creation import arange
from lamina.frontend.functions.elementwise import exp, maximum, where
from lamina.frontend.functions.reduction import max as maximum_of
from lamina.frontend.tensor import Tensor

__all__ = ["ring_attention"]

UNSEEN = -1e30  # a score; not -inf, from which the largest of its kind cannot be taken away


def ring_attention(
    query: Tensor, key: Tensor, value: Tensor, over: Axis, is_causal: bool = False
) -> Tensor:
    """Attention in which the keys and values go around the processes (arXiv 2310.01889): each
    computes its queries with those that it has, while it sends them on, and merges the results as
    if their softmax were one. No process has the scores of more than one pair of parts.

    query, key, value: (..., own tokens, width), the same shape everywhere; process i of the axis
    has the tokens from i * own tokens on. is_causal: no query sees a key behind it. Keys and values
    are sent as they are; products, scores and sums are float32; the result has query's shape and
    dtype. Raises ShapeError."""
    if not query.shape == key.shape == value.shape or query.ndim < 2:
        raise ShapeError(
            f"query {query.shape}, key {key.shape} and value {value.shape} are not "
            "of one shape (..., tokens, width)", operation="ring_attention"
        )
    ring = [(place, (place + 1) % over.ranks) for place in range(over.ranks)]
    running = _attend(query, key, value, _sees(query, over, 0) if is_causal else None)
    for step in range(1, over.ranks):  # what comes is computed with while it is sent on
        key, value = permute(key, ring, over), permute(value, ring, over)
        sees = _sees(query, over, step) if is_causal else None
        running = running.merged(_attend(query, key, value, sees))
    return (running.values / running.total).cast(query.dtype)


class _Softmax:
    """A softmax over some keys that is not divided yet.

    largest: score of each row, (..., tokens, 1). total: of exponentials of what scores are below
    it. values: weighted by these, (..., tokens, width)."""

    def __init__(self, largest: Tensor, total: Tensor, values: Tensor) -> None:
        self.largest, self.total, self.values = largest, total, values

    def merged(self, other: _Softmax) -> _Softmax:
        """That over the keys of both."""
        largest = maximum(self.largest, other.largest)
        ours, theirs = exp(self.largest - largest), exp(other.largest - largest)
        total = self.total * ours + other.total * theirs
        return _Softmax(largest, total, self.values * ours + other.values * theirs)


def _sees(query: Tensor, over: Axis, step: int) -> Tensor:
    """Which queries, (tokens, 1), see which keys, (1, tokens), that have made so many steps.

    Where a process is comes from memory, so that all have one program: in that of the first one the
    compiler would find that it sees no other keys, and leave out what others wait for."""
    tokens = query.shape[-2]
    of_keys = (over.place - step) % over.ranks
    token = arange(tokens, device=query.device)
    ahead = Tensor((over.place - of_keys) * tokens, device=query.device)
    return token[:, None] + ahead >= token


def _attend(query: Tensor, key: Tensor, value: Tensor, sees: Tensor | None) -> _Softmax:
    """The softmax over the keys of one process, computed in float32: products of halves may be
    larger than the largest float16, 65,504. Where a query sees none of them, the softmax has a
    `largest` so low that it counts for nothing beside another one."""
    query, key, value = (operand.cast(float32) for operand in (query, key, value))
    scores = query @ key.mT / math.sqrt(query.shape[-1])
    if sees is not None:
        scores = where(sees, scores, UNSEEN)
    # Any shift gives the same results: so derivatives leave it out.
    largest = maximum_of(scores.detach(), axis=-1, keepdims=True)
    weights = exp(scores - largest)
    return _Softmax(largest, weights.sum(axis=-1, keepdims=True), weights @ value)
