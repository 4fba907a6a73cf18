"""Sections of single computations: every framework in turn, with all threads and with one."""

from __future__ import annotations

import contextlib
import functools
import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np

from bench.cases import REFERENCE, Array, Case, load, module_of
from bench.process import Bench, take_turns
from bench.report import LAMINA, Row, Section
from bench.worker import LIMIT_SECONDS, ProgramError, Worker

TURN_SECONDS = 0.05  # what one turn is meant to take
_FAR_BEHIND = 8.0  # times slower than the best of the others: takes part in the trials only
_TRIALS = 3  # rounds before those that count, whose best turns tell who is far behind
LIMIT, AGAIN = "limit", "again"  # turns of the machine's limit, and of the best peer once more


class Fleet:
    """The programs of all frameworks, started when they are first needed. Each runs only while it
    is asked; see `bench.worker`. limit: seconds until an answer."""

    def __init__(self, bench: Bench, limit: float = LIMIT_SECONDS) -> None:
        self.bench = bench
        self.limit = limit
        self.workers: dict[tuple[str, int], Worker] = {}
        self.caches: dict[str, Path] = {}

    def folder(self, threads: int) -> Path:
        """Where results of programs with so many threads are written."""
        folder = self.bench.folder / f"results-{threads}"
        folder.mkdir(exist_ok=True)
        return folder

    def worker(self, name: str, threads: int) -> Worker:
        """The program of a framework, a new one where the last has ended. Raises ProgramError when
        it does not start."""
        worker = self.workers.get((name, threads))
        if worker is not None:
            if worker.process.poll() is None:
                return worker
            worker.close()
        cache = self.caches.setdefault(name, self.bench.new_cache())
        environment = self.bench.environment(cache, threads)
        worker = self.started(self.command(name, threads), environment)
        self.workers[name, threads] = worker
        if name == "jax":  # which takes a thread for every core that it may use
            worker.pin(threads)
        worker.read()
        return worker

    def started(self, words: Sequence[str], environment: Mapping[str, str]) -> Worker:
        """A new worker of the module ``words[0]``, with the other words as arguments."""
        return Worker(*words, environment=environment, limit=self.limit)

    def command(self, name: str, threads: int) -> list[str]:
        """The module that runs a framework, and its arguments."""
        folder = str(self.folder(threads))
        if name == LIMIT:
            return ["bench.programs.limits", str(threads), folder]
        return ["bench.programs.cases", name, str(self.bench.seed), str(threads), folder]

    def drop(self) -> None:
        """Let the programs forget their arrays."""
        for (name, _), worker in self.workers.items():
            if name != LIMIT:
                with contextlib.suppress(ProgramError):  # the next user starts it anew
                    worker.tell(["drop"])

    def close(self) -> None:
        """Let all programs end; whatever interrupts that, none is left behind."""
        with contextlib.ExitStack() as stack:
            for worker in self.workers.values():
                stack.callback(worker.kill)
            for worker in self.workers.values():
                worker.close()
        self.workers.clear()

    def kill(self) -> None:
        """End all programs at once."""
        for worker in self.workers.values():
            worker.kill()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        if kind is None:
            self.close()
        else:
            self.kill()


def kernels(name: str, bench: Bench, fleet: Fleet) -> Section:
    """The section of the cases of ``bench.cases.<name>``."""
    group = load(name)
    section = Section(group.title, group.columns(), notes=list(group.notes))
    cases = [case for case in group.cases if case.quick or not bench.quick]
    worst: dict[str, float] = {}
    counts: list[str] = []
    compared = 0
    for threads in bench.threads if group.single else bench.threads[:1]:
        for case in cases:
            # Processor time is disturbed less.
            rounds = min(group.rounds, 5) if threads == 1 else group.rounds
            row, errors, count = _measure(bench, fleet, name, case, threads, rounds)
            section.rows.append(row)
            if count and threads == bench.threads[0]:
                counts.append(f"{case.name} {count}")
            compared += bool(errors)
            for column, error in errors.items():
                worst[column] = max(worst.get(column, 0.0), error)
                if not error <= case.tolerance:
                    section.notes.append(
                        f"{row.figure}: {column}'s result is **wrong** by {error:.1g}."
                    )
            print(f"  {' | '.join(row.cells(group.columns()))}", file=sys.stderr)
        fleet.drop()
    if counts:
        section.notes.append(f"Kernels of lamina's programs: {', '.join(counts)}.")
    section.notes.append(_agreement(worst, compared, len(section.rows)))
    return section


def _measure(
    bench: Bench, fleet: Fleet, group: str, case: Case, threads: int, rounds: int
) -> tuple[Row, dict[str, float], int]:
    """A row, by how much each framework's result differs from the reference, and the number of
    lamina's kernels."""
    label = f"{case.name}, {threads}T"
    columns = bench.installed(LAMINA, *case.columns)
    ready, count = prepare(bench, fleet, group, case, threads, columns, label)
    turns = turns_of(bench, fleet, ready, threads)
    trials = take_turns(bench, label, turns, bench.rounds(_TRIALS, 2))
    left_out = hopeless(trials)
    turns = {column: turns[column] for column in trials if column not in left_out}
    peers = [column for column in turns if not column.startswith(LAMINA)]
    itself = min(peers, key=lambda column: min(trials[column]), default=None)
    if itself:
        turns[AGAIN] = turns[itself]
    if case.bound:
        worker = fleet.worker(LIMIT, threads)
        turns[LIMIT] = functools.partial(_ask, worker, list(case.bound))
    samples = take_turns(bench, label, turns, bench.rounds(rounds, 3))
    again, bound = samples.pop(AGAIN, None), samples.pop(LIMIT, ())
    pair = None
    if itself in samples and again:
        pair = milliseconds(samples[itself]), milliseconds(again)
    row = Row(
        label,
        {column: milliseconds(samples.get(column, first)) for column, first in trials.items()},
        "ms",
        case.targets if threads == bench.threads[0] else (),
        pair,
        milliseconds(bound),
    )
    reference = _reference(bench, fleet, group, case)
    errors = _errors(reference, fleet.folder(threads), ready) if reference else {}
    return row, errors, count


def turns_of(
    bench: Bench, fleet: Fleet, columns: Iterable[str], threads: int
) -> dict[str, Callable[[], float]]:
    """What takes a turn of each column with the case that is prepared: the seconds of a call."""

    def turn(column: str) -> float:
        worker = fleet.worker(module_of(column), threads)
        return _ask(worker, ["time", column, bench.scaled(TURN_SECONDS), 1])

    return {column: functools.partial(turn, column) for column in columns}


def prepare(
    bench: Bench, fleet: Fleet, group: str, case: Case, threads: int, columns: list[str], label: str
) -> tuple[list[str], int]:
    """Compile the case everywhere; returns the columns where that went well, and the number of
    lamina's kernels."""
    ready, count = [], 0
    modules: dict[str, list[str]] = {}
    for column in columns:
        modules.setdefault(module_of(column), []).append(column)
    for module, own in modules.items():
        with bench.noting(f"{label}, {module}"):
            answer = fleet.worker(module, threads).tell(["case", group, case.name, own])
            errors, count = answer["errors"], max(count, answer["kernels"] or 0)
            bench.failures += [f"{label}, {column}: {text}" for column, text in errors.items()]
            ready += [column for column in own if column not in errors]
    return ready, count


def _reference(bench: Bench, fleet: Fleet, group: str, case: Case) -> Path | None:
    """The file of the case's results in float64, which are computed once."""
    path = fleet.folder(0) / f"{group}-{case.name.replace('/', ' ')}.npz"
    if not path.exists() and bench.installed(REFERENCE):
        with bench.noting(f"{case.name}, reference"):
            worker = fleet.worker(REFERENCE, 0)
            worker.tell(["case", group, case.name, [REFERENCE]])
            worker.tell(["drop"])
            (path.parent / f"{REFERENCE}.npz").rename(path)
    return path if path.exists() else None


def _ask(worker: Worker, message: list[object]) -> float:
    """What one turn measured."""
    (seconds,) = worker.tell(message)["seconds"]
    return float(seconds)


def hopeless(trials: Mapping[str, Sequence[float]]) -> set[str]:
    """Who is so slow in its best turn that more of them would only take time; never lamina
    itself."""
    fastest = {name: min(samples) for name, samples in trials.items()}
    best = min(fastest.values(), default=0.0)
    return {
        name for name, seconds in fastest.items() if name != LAMINA and seconds > _FAR_BEHIND * best
    }


def milliseconds(seconds: Iterable[float]) -> list[float]:
    """The same times in the unit of the tables."""
    return [1e3 * time for time in seconds]


def _errors(reference: Path, folder: Path, columns: list[str]) -> dict[str, float]:
    """The largest difference of each column's result from the reference."""
    right = np.load(reference)
    found = {}
    for column in columns:
        own = np.load(folder / f"{column}.npz")
        pairs = [(own[part], right[part]) for part in right.files if part in own.files]
        complete = len(pairs) == len(right.files) == len(own.files)
        found[column] = max(compare(*pair) for pair in pairs) if complete else math.inf
    return found


def compare(ours: Array, theirs: Array) -> float:
    """The largest difference as a share of the largest value; infinite for NaN or other shapes."""
    if ours.shape != theirs.shape:
        return math.inf
    error = float(np.abs(ours - theirs).max() / np.abs(theirs).max())
    return math.inf if math.isnan(error) else error


def _agreement(worst: dict[str, float], compared: int, rows: int) -> str:
    if not compared:
        return "The results were **not compared**: PyTorch, the reference in float64, is missing."
    shown = ", ".join(f"{error:.1g} {column}" for column, error in worst.items())
    return (
        f"Results of {compared} of {rows} rows were compared with PyTorch's in float64; the "
        f"largest difference, as a share of the largest value: {shown}."
    )
