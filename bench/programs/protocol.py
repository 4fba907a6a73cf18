"""How a measured program talks to the one that measures it: JSON lines on a pipe."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any


def clock(threads: int) -> Callable[[], float]:
    """What tells the seconds of a program with so many threads.

    One thread is measured by the processor's time, which other work on the machine disturbs less.
    """
    return time.process_time if threads == 1 else time.perf_counter


def emit(**facts: Any) -> None:
    """Print one JSON object."""
    print(json.dumps(facts), flush=True)


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
