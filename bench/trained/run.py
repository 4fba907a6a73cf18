"""Measures programs: some are compiled at the same time, then one is measured at a time.

Each column of a program is a process of its own, so that one that fails loses its figures alone.
Between its answers a process is stopped, and while it compiles it has the cores of its lane to
itself, where columns follow each other.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.process import Bench, take_turns
from bench.report import LAMINA
from bench.trained.catalogue import ALL
from bench.worker import ProgramError, Worker

ROUNDS, QUICK_ROUNDS = 7, 3
LIMIT_SECONDS = 400  # until an answer
MODULE = "bench.trained.subject"
Answer = dict[str, Any]


@dataclass
class Outcome:
    """What was found of a program, by column.

    first: seconds from the start of the process to the first loss, without those in which data were
    made. losses: of each step and phase. step, host: seconds in each round. peak: bytes.
    failures: what a column said when it ended. notes: on lamina's program.
    """

    name: str
    first: dict[str, float] = field(default_factory=dict)
    losses: dict[str, list[list[float]]] = field(default_factory=dict)
    step: dict[str, list[float]] = field(default_factory=dict)
    host: dict[str, list[float]] = field(default_factory=dict)
    peak: dict[str, int] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


@dataclass
class Lane:
    """A program on its way: its processes that run, and the folders of their caches.

    cores: that its processes have while they compile.
    """

    bench: Bench
    device: str
    outcome: Outcome
    cores: Sequence[int]
    workers: dict[str, Worker] = field(default_factory=dict)
    caches: dict[str, Path] = field(default_factory=dict)

    def start(self, column: str) -> Answer | None:
        """What a new process says of its first steps; None where it failed."""
        words = column, self.outcome.name, self.device, str(self.bench.seed)
        cache = self.caches.setdefault(column, self.bench.new_cache())
        environment = self.bench.environment(
            cache,
            TORCHINDUCTOR_COMPILE_THREADS=str(len(self.cores)),
            CUDA_CACHE_PATH=str(cache / "cuda"),
        )
        worker = Worker(MODULE, *words, environment=environment, limit=LIMIT_SECONDS)
        os.sched_setaffinity(worker.process.pid, self.cores)
        self.workers[column] = worker
        with self.caught(column):
            return worker.read()
        return None

    def caught(self, column: str) -> _Caught:
        """Within, a failure ends the column's process and becomes a fact."""
        return _Caught(self, column)

    def compile(self, columns: Sequence[str]) -> None:
        """Start each column with empty caches, one after the other."""
        for column in columns:
            answer = self.start(column)
            if answer is None:
                continue
            seconds = answer["ended"] - self.workers[column].started - answer["loading"]
            self.outcome.first[column] = seconds
            self.outcome.losses[column] = answer["losses"]
            if passes := answer.get("passes"):
                spent = ", ".join(f"{name} {taken:.2g} s" for name, taken in passes.items())
                self.outcome.notes.append(f"passes: {spent}")
            print(f"  {self.outcome.name}, {column}: first result after {seconds:.1f} s",
                  file=sys.stderr, flush=True)  # fmt: skip

    def measure(self, rounds: int) -> None:
        """Turns of the columns that run, with the machine for themselves."""
        if ALL[self.outcome.name]().has_images:
            self._start_again([column for column in self.workers if column != LAMINA])
        asked = {column: self._asking(column, "turn") for column in self.workers}
        turns = take_turns(self.bench, self.outcome.name, asked, rounds)
        for column, answers in turns.items():
            done = [one["value"] for one in answers if one is not None]
            self.outcome.step[column] = [one["step"] for one in done]
            self.outcome.host[column] = [one["host"] for one in done]
        for column in list(turns):
            with self.caught(column):
                self.outcome.peak[column] = self.workers[column].ask("peak")["value"]
        if LAMINA in turns and LAMINA in self.workers:
            with self.caught(LAMINA):
                self.outcome.notes.append(self.workers[LAMINA].ask("slowest")["value"])

    def close(self) -> None:
        """End what runs."""
        for worker in self.workers.values():
            worker.kill()
        self.workers.clear()

    def _start_again(self, columns: Sequence[str]) -> None:
        """cuDNN measures its ways to convolve, which others on the GPU would disturb."""
        for column in columns:
            self.workers.pop(column).kill()
            self.start(column)

    def _asking(self, column: str, what: str) -> Callable[[], Answer]:
        def ask() -> Answer:
            try:
                return self.workers[column].ask(what)
            except ProgramError as error:
                self.outcome.failures[column] = str(error)
                raise

        return ask


@dataclass
class _Caught:
    lane: Lane
    column: str

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> bool:
        if not isinstance(error, ProgramError):
            return False
        self.lane.outcome.failures[self.column] = str(error)
        self.lane.workers.pop(self.column).kill()
        print(f"  {self.lane.outcome.name}, {self.column}: {error}", file=sys.stderr, flush=True)
        return True


def examine(
    bench: Bench, names: Sequence[str], columns: Sequence[str], device: str, lanes: int
) -> Iterator[Outcome]:
    """What is found of each program; `lanes` of them compile at the same time."""
    cores = sorted(os.sched_getaffinity(0))
    share = max(1, len(cores) // lanes)
    rounds = bench.rounds(ROUNDS, QUICK_ROUNDS)
    for begin in range(0, len(names), lanes):
        wave = [
            Lane(bench, device, Outcome(name), cores[at * share : (at + 1) * share] or cores)
            for at, name in enumerate(names[begin : begin + lanes])
        ]
        try:
            with ThreadPoolExecutor(lanes) as pool:
                list(pool.map(lambda lane: lane.compile(columns), wave))
            for lane in wave:
                lane.measure(rounds)
                lane.close()
                yield lane.outcome
        finally:
            for lane in wave:
                lane.close()
