"""One model: its first results, its calls, and whether its values are eager PyTorch's."""

from __future__ import annotations

import contextlib
import functools
import math
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.cases.modules import COMPILED, EAGER, FORWARD, KINDS
from bench.kernels import TURN_SECONDS, milliseconds
from bench.process import Bench, take_turns
from bench.report import LAMINA, Row, Target
from bench.worker import Worker

EMPTY, KEPT = "first result, empty cache", "first result, cache kept"
LEAST = 0.8  # target: Inductor's time of a call, divided by lamina's
_SECONDS, _PROCESSORS = "seconds", "processors"
_TURN_SECONDS_OF_GPU = 0.1
_LIMIT_SECONDS = 1200.0  # until a process answers, on a busy machine
_LEAST_LIMIT_SECONDS = 30.0  # the same when `Setting.ends` has passed
Facts = dict[str, Any]


@dataclass
class Setting:
    """Where and how models run. threads: of a process on the CPU; 0: all. ends: when no more is
    measured (`time.monotonic`). alone: to be held while calls are measured: models that are
    compiled side by side have cores of their own on a CPU, but share a GPU."""

    device: str = "cpu"
    dtype: str = "float32"
    threads: int = 1
    ends: float = math.inf
    alone: AbstractContextManager[object] = field(init=False)

    def __post_init__(self) -> None:
        is_shared = self.device != "cpu"
        self.alone = threading.Lock() if is_shared else contextlib.nullcontext()

    @property
    def label(self) -> str:
        """``2T``, or the dtype on a GPU."""
        return f"{self.threads}T" if self.device == "cpu" else self.dtype

    @property
    def turn_seconds(self) -> float:
        """Of a turn. A GPU that had nothing to do for a while is slow at first."""
        return TURN_SECONDS if self.device == "cpu" else _TURN_SECONDS_OF_GPU

    def limit(self) -> float:
        """Seconds until an answer of a process that starts now."""
        left = self.ends - time.monotonic()
        return max(min(left, _LIMIT_SECONDS), _LEAST_LIMIT_SECONDS)


@dataclass
class Measured:
    """rows: of the tables of the page, by their titles; each has a line of the model. notes: what
    was wrong or failed."""

    name: str
    rows: dict[str, Row] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def measure(name: str, bench: Bench, setting: Setting) -> Measured:
    """Everything about the model `name`: first with empty caches, then with what was kept."""
    measured = Measured(name)
    columns = bench.installed(LAMINA, EAGER, COMPILED)
    caches = {column: bench.new_cache() for column in columns}
    compilers = {column: cache for column, cache in caches.items() if column != EAGER}
    with ExitStack() as stack:
        _start(bench, setting, measured, stack, EMPTY, compilers)
    with ExitStack() as stack:
        workers = _start(bench, setting, measured, stack, KEPT, caches)
        with setting.alone:
            for kind in KINDS:
                _measure_calls(bench, setting, measured, workers, kind)
    measured.notes += [f"Not measured: {failure}" for failure in dict.fromkeys(bench.failures)]
    return measured


def _start(
    bench: Bench, setting: Setting, measured: Measured, stack: ExitStack, figure: str,
    caches: Mapping[str, Path],
) -> dict[str, Worker]:  # fmt: skip
    """Start a process for each column that has a cache, add the times of its first results to
    `measured` as a `figure`, and return the processes that answered, which `stack` ends."""
    workers: dict[str, Worker] = {}

    def start(column: str) -> dict[str, Facts]:
        worker = new_worker(bench, setting, column, measured.name, caches[column])
        workers[column] = stack.enter_context(worker)
        return _first_results(worker)

    turns = {column: functools.partial(start, column) for column in caches}
    runs = take_turns(bench, f"{measured.name}, {figure}", turns, 1)
    for kind in KINDS:
        targets = (Target(1.0, COMPILED),)
        samples = _samples(runs, kind, _SECONDS)
        measured.rows[f"{kind}, {figure}"] = Row(measured.name, samples, "s", targets)
        samples = _samples(runs, kind, _PROCESSORS)
        measured.rows[f"{kind}, {figure}, processors' time"] = Row(measured.name, samples, "s")
    return {column: workers[column] for column in runs}


def _samples(
    runs: Mapping[str, Sequence[dict[str, Facts]]], kind: str, fact: str
) -> dict[str, list[float]]:
    """One fact about one kind of call, of all runs of each column."""
    return {column: [run[kind][fact] for run in of_column] for column, of_column in runs.items()}


def new_worker(bench: Bench, setting: Setting, column: str, name: str, cache: Path) -> Worker:
    """The process of a column, with its compiled programs in `cache`."""
    words = column, str(bench.seed), str(setting.threads), name, setting.device, setting.dtype
    environment = bench.environment(cache, setting.threads, CUDA_CACHE_PATH=str(cache / "cuda"))
    limit = setting.limit()
    return Worker("bench.programs.door", *words, environment=environment, limit=limit)


def _first_results(worker: Worker) -> dict[str, Facts]:
    """Of each kind: the seconds until its first result, and those of the processors."""
    results: dict[str, Facts] = {}
    began, spent = worker.started, 0.0
    for kind in KINDS:
        facts = worker.read() if kind == FORWARD else worker.tell(["call", kind])
        not_counted = facts["loading"] if kind == FORWARD else 0.0
        seconds = facts["ended"] - began - not_counted
        results[kind] = {_SECONDS: seconds, _PROCESSORS: facts["processors"] - spent}
        began, spent = time.time(), facts["processors"]
    return results


def _measure_calls(
    bench: Bench, setting: Setting, measured: Measured, workers: dict[str, Worker], kind: str
) -> None:
    """Compare the results of calls of a kind with eager PyTorch's, and measure the calls: a note
    for each column that is wrong, and a row of milliseconds, are added to `measured`."""
    title = f"{kind}, {setting.label}"

    def check(column: str) -> bool | None:
        is_equal: bool | None = workers[column].tell(["check", kind])["equal"]
        return is_equal

    def turn(column: str) -> float:
        (seconds,) = workers[column].tell(["time", kind, setting.turn_seconds])["seconds"]
        return float(seconds)

    what = f"{measured.name}, {title}"
    checks = {column: functools.partial(check, column) for column in workers if column != EAGER}
    equal = take_turns(bench, what, checks, 1)
    wrong = [column for column, (is_equal,) in equal.items() if is_equal is False]
    measured.notes += [f"{what}: the result of {column} is **wrong**." for column in wrong]
    ready = [column for column in workers if column in (EAGER, *equal)]
    turns = {column: functools.partial(turn, column) for column in ready}
    times = take_turns(bench, what, turns, bench.rounds(5, 3))
    samples = {column: milliseconds(seconds) for column, seconds in times.items()}
    measured.rows[title] = Row(measured.name, samples, "ms", (Target(LEAST, COMPILED),))
