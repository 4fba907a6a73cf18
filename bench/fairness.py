"""Whether taking turns changes what is measured: products in turns, and in a process alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bench.cases import Case, load
from bench.kernels import TURN_SECONDS, Fleet, milliseconds, prepare, turns_of
from bench.process import Bench, take_turns
from bench.report import LAMINA, Row, Section, Target

_GROUP, _ROUNDS = "gemm", 15
_IN_TURNS, _ALONE = "in turns", "alone"
_CLOSE = 0.1  # by so much the times may differ
_TARGETS = (Target(1.0 - _CLOSE, _ALONE), Target(1.0 + _CLOSE, _ALONE, most=True))
Samples = dict[tuple[str, str], list[float]]  # milliseconds by column and case


@dataclass(frozen=True)
class _Products:
    """What is measured in both ways."""

    bench: Bench
    fleet: Fleet
    cases: Sequence[Case]
    columns: Sequence[str]
    rounds: int

    @property
    def threads(self) -> int:
        """As in the rows that have targets."""
        return self.bench.threads[0]

    def _prepared(self, case: Case, columns: Sequence[str], label: str) -> list[str]:
        """The columns whose programs are ready to measure a case."""
        ready, _ = prepare(self.bench, self.fleet, _GROUP, case, self.threads, list(columns), label)
        return ready

    def in_turns(self) -> Samples:
        """As the page measures them."""
        taken: Samples = {}
        for case in self.cases:
            label = f"{case.name}, {_IN_TURNS}"
            ready = self._prepared(case, self.columns, label)
            turns = turns_of(self.bench, self.fleet, ready, self.threads)
            for column, seconds in take_turns(self.bench, label, turns, self.rounds).items():
                taken[column, case.name] = milliseconds(seconds)
        return taken

    def alone(self) -> Samples:
        """Each framework in a new process while no other is there: turn after turn, not stopped."""
        taken: Samples = {}
        for column in self.columns:
            self.fleet.close()
            for case in self.cases:
                label = f"{case.name}, {_ALONE}"
                if self._prepared(case, [column], label):
                    with self.bench.noting(f"{label}, {column}"):
                        worker = self.fleet.worker(column, self.threads)
                        seconds = self.bench.scaled(TURN_SECONDS)
                        answer = worker.tell(["time", column, seconds, self.rounds])
                        taken[column, case.name] = milliseconds(answer["seconds"])
        self.fleet.close()
        return taken


def fairness(bench: Bench, fleet: Fleet) -> Section:
    """The quick products: as the page measures them, and alone before and after that."""
    group = load(_GROUP)
    cases = [case for case in group.cases if case.quick]
    peers = dict.fromkeys(column for case in cases for column in case.columns)
    columns = bench.installed(LAMINA, *peers)
    products = _Products(bench, fleet, cases, columns, bench.rounds(_ROUNDS, 3))
    before = products.alone()
    in_turns = products.in_turns()
    after = products.alone()
    section = Section("Fairness: products in turns, and in a process of their own", (_ALONE,))
    for (column, name), times in in_turns.items():
        alone = before.get((column, name), []) + after.get((column, name), [])
        samples = {_IN_TURNS: times, _ALONE: alone}
        figure = f"{column}, {name}, {products.threads}T"
        section.rows.append(Row(figure, samples, "ms", _TARGETS, subject=_IN_TURNS))
    section.notes.append(
        "Alone a new process, while no other is there, has turn after turn and is never stopped; "
        "half of them come before those that are taken in turns, half after."
    )
    return section
