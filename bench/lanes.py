"""Measurements side by side, each with cores of its own."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor


def side_by_side(
    names: Sequence[str], lanes: int, ends: float, measure: Callable[[str], None]
) -> None:
    """Call `measure` for each name, so many at a time; each lane has its share of the cores, and
    so have the processes that it starts. None is begun after `ends` (`time.monotonic`)."""
    cores = sorted(os.sched_getaffinity(0))
    share = max(1, len(cores) // lanes)
    shares = [cores[lane * share :][:share] or cores for lane in range(lanes)]

    def take_cores() -> None:
        os.sched_setaffinity(0, shares.pop())  # of this thread

    def work(name: str) -> None:
        started = time.monotonic()
        if started > ends:
            print(f"{name}: not begun, as the time is over", file=sys.stderr)
            return
        measure(name)
        print(f"{name}: {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)

    with ThreadPoolExecutor(lanes, initializer=take_cores) as pool:
        list(pool.map(work, names))
