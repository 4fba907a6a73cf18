"""Processes from their start to the first result, and the memory that they take."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.cases import Case, attention, models
from bench.cases.mlp import MLP
from bench.process import Bench, take_turns
from bench.report import LAMINA, VALUE, Row, Section, Target
from bench.worker import Worker

MEGA = 1 << 20
_ALLOWED = 8 << 30  # bytes, for what may need far too many
_PEERS = ("torch", "torch.compile", "jax", "tinygrad")
_QUICK_PEERS = ("torch",)
Facts = dict[str, Any]


def cold(bench: Bench) -> Section:
    """The first result of GPT-2-small and of a training step, with empty caches and kept ones."""
    section = Section("From the start of a process to its first result", _PEERS)
    gpt2 = models.GROUP.cases[0]
    compiling = _first(bench, section, "models", gpt2, Target(1.5, VALUE))
    _first(bench, section, "mlp", MLP, Target(1.0, "torch"))
    for facts in compiling[:1]:
        passes = ", ".join(f"{name} {spent:.2g} s" for name, spent in facts["passes"].items())
        section.notes.append(
            f"{gpt2.name}, empty cache: the C compiler took {facts['compiler']:.2g} s, the passes: "
            f"{passes}; {facts['kernels']} kernels ran."
        )
    section.notes.append("The time in which the data are made is left out.")
    return section


def _first(bench: Bench, section: Section, group: str, case: Case, target: Target) -> list[Facts]:
    """Adds the rows of a case; returns lamina's facts of the runs with an empty cache."""
    kept: dict[str, Path] = {}

    def start(column: str, empty: bool) -> Facts:
        if empty or column not in kept:
            kept[column] = bench.new_cache()
        return first_result(bench, column, group, case, kept[column])

    def turns(columns: Any, empty: bool) -> dict[str, Callable[[], Facts]]:
        return {column: functools.partial(start, column, empty) for column in columns}

    columns = bench.installed(LAMINA, *(_QUICK_PEERS if bench.quick else _PEERS))
    runs = take_turns(bench, f"{case.name}, empty cache", turns(columns, True), bench.rounds(2, 1))
    section.rows.append(Row(f"{case.name}, empty cache", seconds_of(runs), "s"))
    again = take_turns(bench, f"{case.name}, cache kept", turns(runs, False), bench.rounds(3, 1))
    section.rows.append(Row(f"{case.name}, cache kept", seconds_of(again), "s", (target,)))
    section.rows.append(Row(f"{case.name}, peak memory", column_of(again, "peak", MEGA), "MiB"))
    return runs.get(LAMINA, [])


def memory(bench: Bench) -> Section:
    """What the forward pass of attention takes beside its inputs, as they become longer."""
    section = Section("Memory of attention beside its inputs (8 heads, D=64)", ("torch",))
    columns = bench.installed(LAMINA, "torch")
    taken: dict[str, list[float]] = {}
    cases = attention.LONG[: 2 if bench.quick else None]
    for case in cases:
        turns = {
            column: functools.partial(
                first_result, bench, column, "attention", case, bench.new_cache(), _ALLOWED
            )
            for column in columns
        }
        runs = take_turns(bench, case.name, turns, 1)
        samples = {
            column: [(one["peak"] - one["before"]) / MEGA for one in values if "peak" in one]
            for column, values in runs.items()
        }
        section.rows.append(Row(case.name, samples, "MiB"))
        for column, values in samples.items():
            taken.setdefault(column, []).extend(values)
    growth = {
        column: [v[-1] / max(v[-2], 1.0)] for column, v in taken.items() if len(v) == len(cases)
    }
    figure = "the longest in multiples of the one half as long"
    section.rows.append(Row(figure, growth, "", (Target(2.2, VALUE),)))
    section.notes.append(f"No process may take more than {_ALLOWED >> 30} GiB.")
    return section


def first_result(
    bench: Bench, column: str, group: str, case: Case, cache: Path, limit: int = 0
) -> Facts:
    """Facts of one process; "first" is the time to its result, making the data left out."""
    arguments = (column, str(bench.seed), group, case.name, str(limit))
    environment = bench.environment(cache)
    with Worker("bench.programs.first", *arguments, environment=environment) as worker:
        facts = worker.read()
        return facts | {"first": facts["ended"] - worker.started - facts["loading"]}


def seconds_of(runs: dict[str, list[Facts]]) -> dict[str, list[float]]:
    """The times to the first result, by column."""
    return column_of(runs, "first", 1.0)


def column_of(runs: dict[str, list[Facts]], key: str, unit: float) -> dict[str, list[float]]:
    """A fact of the runs in so many of its units, by column, where all of them tell it."""
    return {
        column: [one[key] / unit for one in values]
        for column, values in runs.items()
        if all(key in one for one in values)
    }
