"""Medians, and ratios of measurements that took turns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import TypeVar

T = TypeVar("T")


def in_turns(functions: Mapping[str, Callable[[], T]], rounds: int) -> dict[str, list[T]]:
    """Call every function once a round (A B C A B C ...), so that noise meets all of them."""
    results: dict[str, list[T]] = {name: [] for name in functions}
    for _ in range(rounds):
        for name, function in functions.items():
            results[name].append(function())
    return results


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """The median of the ratios of each round; what was measured side by side is compared."""
    return median(a / b for a, b in zip(ours, theirs, strict=True))
