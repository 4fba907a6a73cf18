"""Programs that are made up: nothing is run, and each turn takes what the test says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

Seconds = Callable[[str, int, int], float]  # of a column, its turn, the number of programs running


class Program:
    """Answers as `bench.programs.cases` and `bench.programs.limits` do."""

    def __init__(self, programs: Programs) -> None:
        self.programs = programs
        self.turns = 0

    def tell(self, message: Sequence[Any]) -> dict[str, Any]:
        if message[0] == "case":
            self.turns = 0
            return {"errors": {}, "kernels": 1}
        if message[0] == "fma":
            return {"seconds": [1.0]}
        _, column, _, turns = message
        return {"seconds": [self._turn(column) for _ in range(turns)]}

    def _turn(self, column: str) -> float:
        self.turns += 1
        return self.programs.seconds(column, self.turns, len(self.programs.running))


class Programs:
    """In the place of a `bench.kernels.Fleet`."""

    def __init__(self, seconds: Seconds) -> None:
        self.seconds = seconds
        self.running: dict[str, Program] = {}

    def worker(self, name: str, threads: int) -> Program:
        return self.running.setdefault(name, Program(self))

    def folder(self, threads: int) -> Path:
        return Path("no results are written")

    def drop(self) -> None:
        pass

    def close(self) -> None:
        self.running.clear()


def rising(seconds: float) -> dict[str, Any]:
    """What a program says about one of lamina's kernels that takes so many seconds."""
    return {"name": f"map{seconds:.0f}", "seconds": float(seconds), "bytes": 8, "flops": 4}
