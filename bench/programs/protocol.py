"""How a measured program talks to the one that measures it: JSON lines on a pipe."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

_BLOCK_SECONDS = 2e-4  # shorter calls are measured several at a time
_WARM = 0.15  # of a turn goes before its measurement


def clock(threads: int) -> Callable[[], float]:
    """What tells the seconds of a program with so many threads.

    One thread is measured by the processor's time, which other work on the machine disturbs less.
    """
    return time.process_time if threads == 1 else time.perf_counter


def emit(**facts: Any) -> None:
    """Print one JSON object."""
    print(json.dumps(facts), flush=True)


def fastest(
    run: Callable[[int], object], now: Callable[[], float], seconds: float,
    block_seconds: float = _BLOCK_SECONDS,
) -> float:  # fmt: skip
    """The time of the fastest call in about `seconds`, or of a single longer one.

    run: makes so many calls and waits for their end. now: the clock. block_seconds: of calls that
    are measured together.
    """
    calls, started = 0, now()
    while not calls or now() - started < _WARM * seconds:
        run(1)
        calls += 1
    once = (now() - started) / calls
    if once > seconds:
        return once
    block = max(1, int(block_seconds / once))
    samples: list[float] = []
    ends = now() + seconds
    while not samples or now() < ends:
        started = now()
        run(block)
        samples.append((now() - started) / block)
    return min(samples)


def repeated(program: Callable[[], Any]) -> Callable[[int], None]:
    """What makes so many calls of `program`."""

    def run(calls: int) -> None:
        for _ in range(calls):
            program()

    return run


def serve(steps: dict[str, Callable[[], Any]]) -> None:
    """Answer every line ``name count`` with the seconds of `count` calls of ``steps[name]``.

    The answer also holds what the last call returned, as "value".
    """
    for line in sys.stdin:
        name, count = line.split()
        step, seconds, value = steps[name], [], None
        for _ in range(int(count)):
            started = time.perf_counter()
            value = step()
            seconds.append(time.perf_counter() - started)
        emit(seconds=seconds, value=value)
