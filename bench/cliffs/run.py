"""Draws programs, compares their results and measures them beside the peers, in turns."""

from __future__ import annotations

import contextlib
import itertools
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

from bench.cases import REFERENCE, REFERENCE_ON_CPU, Array, module_of
from bench.cliffs.draw import draw, limits_of
from bench.cliffs.outcome import Failure, KernelTime, Outcome, distance, is_right, only
from bench.cliffs.program import MissingOperationError, Program
from bench.kernels import AGAIN, Fleet, hopeless
from bench.process import Bench, take_turns
from bench.report import LAMINA
from bench.worker import ProgramError, ProgramTimeoutError, Worker

PEERS = ("torch", "torch.compile", "jax")
ROUNDS = 5
_TURN_SECONDS = 0.04
_IDLE_SECONDS = 60.0  # until a GPU has done what stopped processes had asked for
SEARCHED = "lamina.search"  # lamina, which measures CANDIDATES schedules of each kernel
CANDIDATES = 8
_MORE_DATA = (1, 2)  # other values, on which a wrong result is wrong as well
_BEHIND = 0.9  # lamina's kernels are listed where the best peer takes less of its time
MISSING = MissingOperationError.__name__


class Crew(Fleet):
    """The programs that run drawn programs, one for each column."""

    def __init__(self, bench: Bench, device: str, limit: float) -> None:
        super().__init__(bench, limit)
        self.device = device
        self.threads = bench.threads[0]

    def command(self, name: str, threads: int) -> list[str]:
        folder = str(self.folder(threads))
        return ["bench.programs.drawn", name, str(self.bench.seed), str(threads), folder,
                self.device]  # fmt: skip

    def started(self, words: Sequence[str], environment: Mapping[str, str]) -> Worker:
        """A new worker."""
        return super().started(words, self.environment_of(words, environment))

    def environment_of(
        self, words: Sequence[str], environment: Mapping[str, str]
    ) -> dict[str, str]:
        """The variables of a worker; that of SEARCHED searches."""
        more = {"LAMINA_SEARCH": str(CANDIDATES)} if SEARCHED in words else {}
        return {**environment, **more}

    def tell(self, column: str, *message: object) -> dict[str, Any]:
        """The answer of a column's program. Raises ProgramError."""
        return self.worker(column, self.threads).tell(message)

    def alone(self) -> contextlib.AbstractContextManager[None]:
        """Within, nothing else is measured."""
        return contextlib.nullcontext()

    def end(self, column: str) -> None:
        """End the program of a column; a new one starts when it is needed."""
        worker = self.workers.pop((column, self.threads), None)
        if worker is not None:
            worker.kill()

    def results(self, column: str) -> list[Array]:
        """What a column's program has written last."""
        with np.load(self.folder(self.threads) / f"{column}.npz") as arrays:
            return [arrays[name] for name in arrays.files]


@dataclass
class Examination:
    """One program in the hands of a crew."""

    bench: Bench
    crew: Crew
    outcome: Outcome

    @property
    def program(self) -> Program:
        return self.outcome.program

    def prepare(self, column: str, data: int = 0) -> bool:
        """Compile and run the program for a column; where that fails it is noted. After an error
        on a GPU nothing that its process computes can be trusted, so that it ends."""
        try:
            answer = self.crew.tell(column, "case", self.program.index, data)
        except ProgramTimeoutError as error:
            self.outcome.failures[column] = Failure("timeout", str(error))
        except ProgramError as error:
            self.outcome.failures[column] = Failure("crash", str(error))
        else:
            if "error" not in answer:
                self.outcome.first.setdefault(column, answer["first"])
                self.outcome.kernels = max(self.outcome.kernels, answer["kernels"])
                return True
            failure = self.outcome.failures[column] = Failure(**answer["error"])
            if self.crew.device == "cpu" or failure.kind == MISSING:
                return False
        self.crew.end(column)
        return False

    def is_wrong(self, columns: Sequence[str], data: int) -> bool:
        """Whether lamina's result for the values `data` is wrong; distances are noted of the first
        ones. PyTorch's own result is the reference where it cannot compute in float64."""
        want = self._reference(REFERENCE, data)
        if want is None and "torch" in columns:
            want = self.crew.results("torch")
        if want is None or not all(np.isfinite(one).all() for one in want):
            return False
        self.outcome.compared = True
        if not self._differs(columns, data, want):
            return False
        if self.crew.device == "cpu":
            return True
        # A kernel of PyTorch for GPUs may be wrong in float64 too: the last word has the CPU.
        want = self._reference(REFERENCE_ON_CPU, data)
        if want is None or self._differs(columns, data, want):
            return True
        self._leave_out_wrong_peers()
        return False

    def _leave_out_wrong_peers(self) -> None:
        """Peers that are as wrong as the reference on the GPU, whose time says nothing."""
        for column, share in self.outcome.distances.items():
            if column != LAMINA and not is_right(self.program, share, 0.0):
                self.outcome.failures[column] = Failure("wrong", f"by {share:.1g}")

    def _reference(self, column: str, data: int) -> list[Array] | None:
        """PyTorch's results in float64 for the values `data`; None where it has none."""
        is_ready = self.prepare(column, data)
        self.outcome.first.pop(column, None)
        self.outcome.failures.pop(column, None)
        return self.crew.results(column) if is_ready else None

    def _differs(self, columns: Sequence[str], data: int, want: Sequence[Array]) -> bool:
        """Whether lamina's results are not `want`; distances are noted of the first data. Elements
        that are infinite or NaN in eager PyTorch are left out: a value on the way to them is beyond
        the range of the dtype, such as a sum of 100,000 that is cast to float16."""
        results = {column: self.crew.results(column) for column in columns}
        if "torch" in results:
            in_range = [np.isfinite(one) for one in results["torch"]]
            want = only(want, in_range)
            results = {column: only(arrays, in_range) for column, arrays in results.items()}
        found = {column: distance(arrays, want) for column, arrays in results.items()}
        if not data:
            self.outcome.distances = found
        return not is_right(self.program, found[LAMINA], found.get("torch", 0.0))

    def is_always_wrong(self, columns: Sequence[str]) -> bool:
        """Whether lamina is wrong on all data. A rounding that decides which way a step function
        goes is no mistake; it is on few of them."""
        if not self.is_wrong(columns, 0):
            return False
        for data in _MORE_DATA:
            ready = [column for column in columns if self.prepare(column, data)]
            if LAMINA in ready and not self.is_wrong(ready, data):
                return False
        return True

    def has_idle_device(self) -> bool:
        """Wait until a GPU has no other work, which is noted where it does not end. A CPU has none,
        as the processes of all other crews are stopped."""
        if self.crew.device == "cpu":
            return True
        self.outcome.busy = True
        with self.bench.noting(f"{self.program.name}, other work of the GPU"):
            self.outcome.busy = not self.crew.tell(LAMINA, "idle", _IDLE_SECONDS)["idle"]
        return not self.outcome.busy

    def calibrate(self) -> None:
        """Let lamina measure how fast the CPU is, unless it has: its cost model asks for that."""
        if self.crew.device == "cpu":
            with self.bench.noting("rates of the CPU"):
                self.crew.tell(LAMINA, "rates")

    def measure(self, columns: Sequence[str]) -> None:
        """Turns of all who have the program ready."""
        turns = {column: self._turns(column) for column in columns}
        name = self.program.name
        trials = take_turns(self.bench, name, turns, 1)
        left_out = hopeless(trials)
        peers = [one for one in trials if one != LAMINA and one not in left_out]
        best = min(peers, key=lambda column: trials[column][0], default=None)
        turns = {column: self._turns(column) for column in trials if column not in left_out}
        if best:
            turns[AGAIN] = self._turns(best)
        samples = take_turns(self.bench, name, turns, self.bench.rounds(ROUNDS, 2))
        again = samples.pop(AGAIN, None)
        if best in samples and again:
            self.outcome.itself = samples[best], again
        self.outcome.samples = {one: samples.get(one, trials[one]) for one in trials}
        for column in columns:
            if column not in self.outcome.samples:
                text = f"it ended in its turns: {self.bench.failures[-1]}"
                self.outcome.failures[column] = Failure("crash", text)

    def compare_with_search(self) -> None:
        """What is lost by the first choice of schedules: its time over that of the best ones that a
        search finds."""
        turns = {column: self._turns(column) for column in (LAMINA, SEARCHED)}
        name = f"{self.program.name}, search"
        samples = take_turns(self.bench, name, turns, self.bench.rounds(ROUNDS, 2))
        if len(samples) == len(turns):
            pairs = zip(samples[LAMINA], samples[SEARCHED], strict=True)
            self.outcome.regret = median(first / best for first, best in pairs)

    def _turns(self, column: str) -> Callable[[], float]:
        """What measures a column, once a round. Beside NVIDIA's GPUs all columns of a round run on
        one core, the next one in the next round: cores of a shared machine are 1.5 times slower for
        seconds, each at times of its own, and a call is often as long as the host needs for it."""
        cores = itertools.count(self.program.index)

        def turn() -> float:
            answer = self.crew.tell(column, "time", _TURN_SECONDS, next(cores))
            seconds: float = answer["seconds"]
            return seconds

        return turn

    def predict(self) -> None:
        """Ask lamina's cost model."""
        with self.bench.noting(f"{self.program.name}, cost"):
            answer = self.crew.tell(LAMINA, "cost")
            if "error" in answer:
                self.outcome.cost_failure = Failure(**answer["error"])
            else:
                self.outcome.bound, self.outcome.predicted = answer["bound"], answer["predicted"]

    def look(self) -> None:
        """List lamina's kernels where it is behind, the slowest first."""
        ratio = self.outcome.ratio
        if ratio is None or ratio >= _BEHIND:
            return
        with self.bench.noting(f"{self.program.name}, kernels"):
            kernels = [KernelTime(**one) for one in self.crew.tell(LAMINA, "kernels")["kernels"]]
            self.outcome.slow = sorted(kernels, key=lambda one: -one.seconds)


def examine(
    bench: Bench, crew: Crew, index: int, peers: Sequence[str], *, searches: bool = False
) -> Outcome:
    """Everything about the program with that index. searches: also what a search for schedules
    finds."""
    outcome = Outcome(draw(bench.seed, index, limits_of(crew.device)))
    examination = Examination(bench, crew, outcome)
    ready = [column for column in (LAMINA, *peers) if examination.prepare(column)]
    if LAMINA in ready:
        outcome.wrong = examination.is_always_wrong(ready)
    ready = [column for column in ready if column not in outcome.failures]
    searched = searches and LAMINA in ready and examination.prepare(SEARCHED)
    if LAMINA in ready and not outcome.wrong:
        with crew.alone():
            if examination.has_idle_device():
                examination.calibrate()
                examination.measure(ready)
                if LAMINA not in outcome.failures:
                    examination.look()
                    if searched:
                        examination.compare_with_search()
        if LAMINA not in outcome.failures:
            examination.predict()
    return outcome


def examine_all(
    bench: Bench, crew: Crew, indices: Iterable[int], peers: Sequence[str],
    seconds: float, done: Callable[[Outcome], None], *, searches: bool = False,
) -> None:  # fmt: skip
    """Examine programs one after the other for so long; `done` gets each outcome at once."""
    ends = time.monotonic() + seconds
    for index in indices:
        if time.monotonic() > ends:
            print(f"stopped before {index}: the time is over", file=sys.stderr)
            return
        started = time.monotonic()
        outcome = examine(bench, crew, index, peers, searches=searches)
        print(f"{_told(outcome)} ({time.monotonic() - started:.1f} s)", file=sys.stderr, flush=True)
        done(outcome)


def _told(outcome: Outcome) -> str:
    """One line while programs are drawn."""
    name, ratio = outcome.program.name, outcome.ratio
    if outcome.wrong:
        return f"{name}: WRONG by {outcome.distances[LAMINA]:.1g}"
    if LAMINA in outcome.failures:
        failure = outcome.failures[LAMINA]
        return f"{name}: FAILED: {failure.kind}: {failure.text}"
    if outcome.busy:
        return f"{name}: not measured, as the GPU had other work"
    return f"{name}: no peer" if ratio is None else f"{name}: {ratio:.2f} of {outcome.peer}"


def installed_peers(bench: Bench, device: str, wanted: Sequence[str]) -> list[str]:
    """Those of the peers that are here and run on the device."""
    columns = bench.installed(*(wanted or PEERS))
    return [one for one in columns if device == "cpu" or module_of(one) != "jax"]
