"""Whole programs on the CPU: their calls, and the time from nothing to the first result."""

from __future__ import annotations

import functools
import math
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from bench.cases import Case, load, module_of
from bench.cold import MEGA, Facts, column_of, first_result, seconds_of
from bench.cpu import INTRODUCTION, Page
from bench.kernels import Fleet, kernels
from bench.process import Bench, take_turns
from bench.report import LAMINA, Row, Section, Target, digits

COMPILED = "torch.compile"
FIRST = "first result, empty cache"
MEMORY = "peak memory of that"
SUMMARY = "All programs"
NETWORKS = ("lenet", "vit", "minilm", "characters", "gpt2", "mobilenet", "unet", "resnet18")
LEAST_MEAN = 1.2  # of the best peers' times to lamina's
LEAST_FIRST_MEAN = 2.0  # of the times of torch.compile to lamina's


def whole(name: str, bench: Bench, fleet: Fleet) -> Section:
    """The section of the network of ``bench.cases.whole.<name>``."""
    group = f"whole.{name}"
    cases = [case for case in load(group).cases if case.quick]
    rows = [row for case in cases for row in _first_results(bench, fleet, group, case)]
    section = kernels(group, bench, fleet)
    section.rows += rows
    return section


def _first_results(bench: Bench, fleet: Fleet, group: str, case: Case) -> list[Row]:
    """Rows of the time that a process takes to its first result, and of its memory until then."""
    caches: dict[str, Path] = {}

    def start(column: str) -> Facts:
        caches[column] = bench.new_cache()
        return first_result(bench, column, group, case, caches[column])

    columns = bench.installed(LAMINA, "torch", COMPILED)
    turns = {column: functools.partial(start, column) for column in columns}
    runs = take_turns(bench, f"{case.name}, {FIRST}", turns, 1)
    for column, cache in caches.items():  # nothing is compiled a second time
        own = fleet.caches.setdefault(module_of(column), bench.new_cache())
        shutil.copytree(cache, own, copy_function=put_in_place, dirs_exist_ok=True)
    target = Target(1.0, COMPILED)
    return [
        Row(f"{case.name}, {FIRST}", seconds_of(runs), "s", (target,)),
        Row(f"{case.name}, {MEMORY}", column_of(runs, "peak", MEGA), "MiB"),
    ]


def put_in_place(source: str, target: str) -> None:
    """Copy the file `source` to the path `target`. What was there stays for who has it open: a
    program that has loaded a library crashes if that is written over."""
    copy = f"{target}.copy"
    shutil.copy2(source, copy)
    os.replace(copy, target)


def summary(sections: Sequence[Section]) -> Section:
    """The geometric means over the programs of all sections."""
    rows = [row for section in sections for row in section.rows if section.title != SUMMARY]
    calls = [min(row.ratios().values()) for row in rows if row.unit == "ms" and row.ratios()]
    firsts = [row.ratios()[COMPILED] for row in rows
              if row.figure.endswith(FIRST) and COMPILED in row.ratios()]  # fmt: skip
    return Section(SUMMARY, (), notes=[
        _mean("Ratio of the best peer", calls, LEAST_MEAN),
        _mean(f"Ratio of {COMPILED}'s time to the first result", firsts, LEAST_FIRST_MEAN),
    ])  # fmt: skip


def _mean(what: str, ratios: Sequence[float], least: float) -> str:
    """A sentence about the geometric mean of `ratios`."""
    if not ratios:
        return f"{what}: not measured."
    mean = math.exp(math.fsum(map(math.log, ratios)) / len(ratios))
    return (
        f"{what}: geometric mean {digits(mean)} of {len(ratios)}, target {least:g}; "
        f"least {digits(min(ratios))}."
    )


PAGE = Page(
    "cpu_whole", "Whole programs on the CPU", INTRODUCTION,
    {name: functools.partial(whole, name) for name in NETWORKS}, summary,
)  # fmt: skip
