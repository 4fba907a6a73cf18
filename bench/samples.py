"""Medians, and ratios of measurements that took turns."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import TypeVar

T = TypeVar("T")
_NORMAL = 1.4826  # standard deviations of a normal distribution in a median absolute deviation
_MEDIAN = 1.2533  # standard errors of its mean in one of its median


def in_turns(
    functions: Mapping[str, Callable[[], T]], rounds: int, order: random.Random | None = None
) -> dict[str, list[T]]:
    """Call every function once a round, so that noise meets all of them.

    order: draws the order of each round, so that nobody always follows the same neighbour.
    Without it every round has the order of `functions`.
    """
    results: dict[str, list[T]] = {name: [] for name in functions}
    names = list(functions)
    for _ in range(rounds):
        if order is not None:
            order.shuffle(names)
        for name in names:
            results[name].append(functions[name]())
    return results


def ratio(theirs: Sequence[float], ours: Sequence[float]) -> float:
    """How many times faster ours is: the median of the ratios of each round, because what was
    measured side by side is compared. Without a partner for each, the ratio of the medians."""
    if len(theirs) != len(ours):
        return median(theirs) / median(ours)
    return median(a / b for a, b in zip(theirs, ours, strict=True))


def noise(first: Sequence[float], again: Sequence[float]) -> float:
    """How far from 1 the `ratio` of a program to itself may well be, from such a measurement.

    It is as far as that ratio was, or two standard errors of a median of such rounds, whichever
    is more; the spread is taken from the median absolute deviation.
    """
    ratios = [a / b for a, b in zip(first, again, strict=True)]
    middle = median(ratios)
    spread = _NORMAL * median(abs(one - middle) for one in ratios)
    return max(abs(middle - 1.0), 2.0 * _MEDIAN * spread / math.sqrt(len(ratios)))
