"""Sums of very many numbers, and their exact values: constants need no memory, and by rounding the
same way each time they are the worst numbers to add up one after the other."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import lamina as lm
from lamina import Tensor
from lamina.targets import blocks

BOUND = 1e-6  # the relative error that docs/design/9-accuracy.md promises
CONSTANTS = (1.0, 0.1, 1 / 3, 0.7, 1.9)

Sum = tuple[Tensor, float]  # a tensor, and what each of its elements is


def whole(value: float, count: int) -> Sum:
    return lm.full((count,), value).sum(), count * rounded(value)


def mean(value: float, count: int) -> Sum:
    return lm.full((count,), value).mean(), rounded(value)


def last_axis(value: float, count: int) -> Sum:
    return lm.full((4, count // 4), value).sum(axis=1), count // 4 * rounded(value)


def first_axis(value: float, count: int) -> Sum:
    return lm.full((count // 4, 4), value).sum(axis=0), count // 4 * rounded(value)


def wide_first_axis(value: float, count: int) -> Sum:
    return lm.full((count // 64, 64), value).sum(axis=0), count // 64 * rounded(value)


def norm(value: float, count: int) -> Sum:
    return lm.norm(lm.full((count,), value)), count**0.5 * rounded(value)


def logsumexp(value: float, count: int) -> Sum:
    return lm.logsumexp(lm.full((count,), value)), float(np.log(count)) + rounded(value)


def variance(value: float, count: int) -> Sum:
    """Of as many numbers 0 as twice `value`."""
    sign = lm.arange(count, dtype=lm.int32) & 1
    return lm.var(sign.cast(lm.float32) * (2 * value)), rounded(value) ** 2


def deviation(value: float, count: int) -> Sum:
    found, exact = variance(value, count)
    return lm.sqrt(found), exact**0.5


def dot(value: float, count: int) -> Sum:
    x, y = lm.full((count,), value), lm.full((count,), 0.7)
    return (x * y).sum(), count * float(np.float32(value) * np.float32(0.7))


def gradient_of_a_broadcast(value: float, count: int) -> Sum:
    x = lm.zeros((1,), requires_grad=True)
    (found,) = lm.gradient((lm.expand(x, (count,)) * value).sum(), [x])
    return found, count * rounded(value)


def gradient_of_a_bias(value: float, count: int) -> Sum:
    x = lm.zeros((64,), requires_grad=True)
    (found,) = lm.gradient((lm.expand(x, (count // 64, 64)) * value).sum(), [x])
    return found, count // 64 * rounded(value)


SUMS: tuple[Callable[[float, int], Sum], ...] = (
    whole, mean, last_axis, first_axis, wide_first_axis, norm, logsumexp, variance, deviation, dot,
    gradient_of_a_broadcast, gradient_of_a_bias,
)  # fmt: skip


def rounded(value: float) -> float:
    return float(np.float32(value))


def error(found: Tensor, exact: np.ndarray | float) -> float:
    """The largest relative error."""
    wrong = abs(found.numpy().astype(np.float64) - exact)
    return float(np.max(wrong / abs(np.asarray(exact))))


def shorten_blocks(monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    """Let short sums, products and running sums run in blocks."""
    limits = blocks.Limits(plain_up_to=block, block=block, short_beyond=block)
    monkeypatch.setattr(blocks, "SHORT_BLOCK", block)
    for name in ("READING", "SHARING", "COMPUTING", "SCANNING"):
        monkeypatch.setattr(blocks, name, limits)
