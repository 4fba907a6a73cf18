"""Search: measure schedules that other knobs give, and keep the fastest."""

import contextlib
import random
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any, TypeVar

from lamina.errors import CompileError, FormatError
from lamina.schedule.knobs import CpuKnobs, GpuKnobs

K = TypeVar("K", bound=CpuKnobs | GpuKnobs)
S = TypeVar("S")

FASTER = 0.97  # a schedule that takes more of the best one's time may be faster by noise alone
RUNS = 3  # in a row in which a schedule must be faster
DRAWS = 20  # neighbours that are drawn for each schedule to measure: many give a known schedule
MOST_CHANGES = 4  # knobs that differ from the best ones, at most


def search(knobs: K, schedule: Callable[[K], S], count: int, seconds: Callable[[S], float]) -> S:
    """The fastest of up to `count` schedules.

    knobs: the first ones; the schedule they give is one of those measured
    schedule: what knobs give; raises FormatError or CompileError where that does not fit
    seconds: measures a schedule

    A random walk: each candidate differs from the best knobs so far in one to four numbers, each a
    quarter, a half, twice or four times as large, and is measured beside the best schedule. The
    draws are the same each time.
    """
    draw = random.Random(0)
    best, fastest = knobs, schedule(knobs)
    tried = {fastest}
    for number in range(DRAWS * count):
        changes = 1 + number % MOST_CHANGES
        candidate = _neighbour(best, changes, draw)
        with contextlib.suppress(FormatError, CompileError):
            if len(tried) < count and (other := schedule(candidate)) not in tried:
                is_faster = all(seconds(other) < FASTER * seconds(fastest) for _ in range(RUNS))
                tried.add(other)
                if is_faster:
                    best, fastest = candidate, other
    return fastest


def _neighbour(knobs: K, changes: int, draw: random.Random) -> K:
    """Other knobs, which differ in up to `changes` numbers. One that would be 0 is 1 to 16."""
    changed: dict[str, Any] = {}
    for name in draw.choices([field.name for field in fields(knobs)], k=changes):
        value = changed.get(name, getattr(knobs, name))
        other = draw.choice((value // 4, value // 2, 2 * value, 4 * value))
        changed[name] = other or draw.randint(1, 16)
    return replace(knobs, **changed)
