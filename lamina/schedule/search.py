"""Search: measure schedules that other knobs give, and keep the fastest.

It is a random walk. From the best knobs so far it draws a neighbour, makes its schedule, and if no
draw before gave the same one, measures it beside the best schedule. Where the new one is faster,
the walk goes on from there.
"""

import random
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any, TypeVar

from lamina.errors import CompileError, FormatError
from lamina.schedule.knobs import CpuKnobs, GpuKnobs

Knobs = TypeVar("Knobs", bound=CpuKnobs | GpuKnobs)
Schedule = TypeVar("Schedule")  # hashable: equal schedules are measured once

# A schedule is faster if it takes less than this share of the best one's time, COMPARISONS times in
# a row, each time beside a new measurement of the best one. Smaller differences may be noise.
MAX_TIME = 0.97
COMPARISONS = 3
# Neighbours that are drawn, for each schedule to measure, before the search ends: many of them give
# a schedule that was measured before, or none.
DRAWS = 20
# Knobs that are changed in one draw: 1, 2, 3, 4, then 1 again.
MAX_CHANGES = 4
# A knob that would become 0, such as a half of 1, or twice 0, is drawn from 1 to this.
MAX_SMALL_VALUE = 16


def search(
    knobs: Knobs, schedule: Callable[[Knobs], Schedule], count: int,
    seconds: Callable[[Schedule], float],
) -> Schedule:  # fmt: skip
    """The fastest of up to `count` schedules, of which the one that `knobs` give is the first.

    schedule: makes the schedule of knobs; raises FormatError or CompileError if they do not fit
    seconds: measures a schedule; raises the same if it does not compile

    The draws are the same each time.
    """
    rng = random.Random(0)
    fastest = schedule(knobs)
    tried = {fastest}
    for number in range(DRAWS * count):
        if len(tried) >= count:
            break
        candidate = _neighbour(knobs, 1 + number % MAX_CHANGES, rng)
        try:
            other = schedule(candidate)
            if other in tried:
                continue
            tried.add(other)
            is_faster = _is_faster(other, fastest, seconds)
        except (FormatError, CompileError):
            continue
        if is_faster:
            knobs, fastest = candidate, other
    return fastest


def _is_faster(schedule: Schedule, fastest: Schedule, seconds: Callable[[Schedule], float]) -> bool:
    """Is `schedule` faster than the `fastest` so far, each time that both are measured?"""
    return all(seconds(schedule) < MAX_TIME * seconds(fastest) for _ in range(COMPARISONS))


def _neighbour(knobs: Knobs, changes: int, rng: random.Random) -> Knobs:
    """`knobs` with `changes` numbers drawn and changed one after the other, each to a quarter, a
    half, twice or four times its value, rounded down. A number that is drawn twice is changed
    twice, and one that would become 0 is drawn from 1 to MAX_SMALL_VALUE."""
    values: dict[str, Any] = {}
    names = [field.name for field in fields(knobs)]
    for name in rng.choices(names, k=changes):
        value = values.get(name, getattr(knobs, name))
        changed = rng.choice((value // 4, value // 2, 2 * value, 4 * value))
        if changed == 0:
            changed = rng.randint(1, MAX_SMALL_VALUE)
        values[name] = changed
    return replace(knobs, **values)
