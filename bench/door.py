"""PyTorch programs through ``torch.compile(f, backend="lamina")`` beside Inductor.

``python -m bench.door [--draw 12] [--seed 7] [--only bert,vit] [--threads 1] [--rounds 5]
[--output FOLDER]``: models of `tests.interop.zoo`, drawn by the seed or named, and trivial modules,
of which a call is the host's work alone.
"""

from __future__ import annotations

import argparse
import functools
import math
import random
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from bench import cpu
from bench.cases.modules import CATALOGUE, COMPILED, DRAWN, EAGER, FORWARD, KINDS, TRIVIAL
from bench.kernels import TURN_SECONDS, Fleet, milliseconds
from bench.process import Bench, take_turns
from bench.report import LAMINA, Row, Section, Target, digits
from bench.worker import Worker

_EMPTY, _KEPT = "first result, empty cache", "first result, cache kept"
_PROCESSORS = "processors' time of that"
_SUMMARY = "All models"
_LIMIT_SECONDS = 1200  # until a first result, on a busy machine
_LEAST_MEAN, _LEAST = 1.1, 0.8  # of Inductor's times to lamina's

INTRODUCTION = (
    "Modules with random weights through `torch.compile`, with lamina as its backend and with "
    "Inductor (`torch.compile`), and eager (`torch`). A forward call is without derivatives, in "
    "evaluation mode; a training step is a loss and the derivatives of all parameters, in "
    "training mode. Each column is a process of its own; all take turns, for several rounds in a "
    "random order, and are stopped in the turns of the others. 1T is one thread, in processor "
    "time, 2T two, in wall-clock time; a turn counts its fastest call. The first result of the "
    "forward call is counted from the start of its process, without the making of the model, and "
    "that of the training step from there on; the processors' time is of all threads and "
    "compilers. Results on new data are compared with eager PyTorch's in the same run, as "
    "`tests/interop/zoo/check.py` says; in training only lamina's are where random numbers are "
    "drawn, as only these are eager PyTorch's. Ratios are of another's time to lamina's: **above "
    "1 lamina is faster**. Written by `python -m bench.door`."
)


Facts = dict[str, Any]


def measure(name: str, bench: Bench, fleet: Fleet) -> Section:
    """The section of a model. The processes of `fleet` have no part in it."""
    section = Section(name, (EAGER, COMPILED))
    caches = {column: bench.new_cache() for column in bench.installed(LAMINA, EAGER, COMPILED)}
    with ExitStack() as stack:
        _start(bench, section, stack, _EMPTY, caches)
    with ExitStack() as stack:
        workers = _start(bench, section, stack, _KEPT, caches)
        section.rows[:0] = [_calls(bench, section, workers, kind) for kind in KINDS]
    return section


def _start(
    bench: Bench, section: Section, stack: ExitStack, figure: str, caches: Mapping[str, Path]
) -> dict[str, Worker]:
    """The process of each column, with its first results, of which `section` has rows then."""
    workers: dict[str, Worker] = {}

    def start(column: str) -> dict[str, Facts]:
        worker = _worker(bench, column, section.title, caches[column])
        workers[column] = stack.enter_context(worker)
        return _first_results(worker)

    turns = {column: functools.partial(start, column) for column in caches}
    runs = take_turns(bench, f"{section.title}, {figure}", turns, 1)
    section.rows += _rows_of_first_results(figure, runs)
    return {column: workers[column] for column in runs}


def _worker(bench: Bench, column: str, name: str, cache: Path) -> Worker:
    threads = bench.threads[0]
    arguments = (column, str(bench.seed), str(threads), name)
    environment = bench.environment(cache, threads)
    return Worker(
        "bench.programs.door", *arguments, environment=environment, limit=_LIMIT_SECONDS
    )


def _first_results(worker: Worker) -> dict[str, Facts]:
    """Of each kind: the seconds until its first result, and those of the processors."""
    found: dict[str, Facts] = {}
    began, spent = worker.started, 0.0
    for kind in KINDS:
        facts = worker.read() if kind == FORWARD else worker.tell(["call", kind])
        not_counted = facts["loading"] if kind == FORWARD else 0.0
        seconds = facts["ended"] - began - not_counted
        found[kind] = {"seconds": seconds, "processors": facts["processors"] - spent}
        began, spent = time.time(), facts["processors"]
    return found


def _rows_of_first_results(figure: str, runs: dict[str, list[dict[str, Facts]]]) -> list[Row]:
    rows = []
    for kind in KINDS:
        for what, fact in ((figure, "seconds"), (f"{figure}, {_PROCESSORS}", "processors")):
            samples = {
                column: [one[kind][fact] for one in found] for column, found in runs.items()
            }
            targets = (Target(1.0, COMPILED),) if fact == "seconds" else ()
            rows.append(Row(f"{kind}, {what}", samples, "s", targets))
    return rows


def _calls(bench: Bench, section: Section, workers: dict[str, Worker], kind: str) -> Row:
    """Compares the results, which `section` has a note of where they differ, and measures."""
    label = f"{kind}, {bench.threads[0]}T"

    def check(column: str) -> bool | None:
        is_equal: bool | None = workers[column].tell(["check", kind])["equal"]
        return is_equal

    def turn(column: str) -> float:
        (seconds,) = workers[column].tell(["time", kind, bench.scaled(TURN_SECONDS)])["seconds"]
        return float(seconds)

    what = f"{section.title}, {label}"
    checks = {column: functools.partial(check, column) for column in workers}
    equal = take_turns(bench, what, checks, 1)
    wrong = [column for column, (is_equal,) in equal.items() if is_equal is False]
    section.notes += [f"{label}: the result of {column} is **wrong**." for column in wrong]
    turns = {column: functools.partial(turn, column) for column in equal}
    samples = take_turns(bench, what, turns, bench.rounds(5, 3))
    row = {column: milliseconds(times) for column, times in samples.items()}
    return Row(label, row, "ms", (Target(_LEAST, COMPILED),))


def summary(sections: Sequence[Section]) -> Section:
    """The geometric means of the ratios to Inductor over the drawn models of all sections."""
    rows = [row for section in sections if section.title in DRAWN for row in section.rows]
    notes = []
    for kind in KINDS:
        calls = [row for row in rows if row.unit == "ms" and row.figure.startswith(kind)]
        notes.append(_mean(f"{kind}, a call (target {_LEAST_MEAN:g}, least {_LEAST:g})", calls))
        for figure in (_EMPTY, _KEPT):
            for what in (figure, f"{figure}, {_PROCESSORS}"):
                firsts = [row for row in rows if row.figure == f"{kind}, {what}"]
                notes.append(_mean(f"{kind}, {what} (target 1)", firsts))
    return Section(_SUMMARY, (), notes=notes)


def _mean(what: str, rows: Sequence[Row]) -> str:
    """A sentence about the ratios of Inductor's figures to lamina's."""
    ratios = [row.ratios()[COMPILED] for row in rows if COMPILED in row.ratios()]
    if not ratios:
        return f"{what}: not measured."
    mean = math.exp(math.fsum(map(math.log, ratios)) / len(ratios))
    return (
        f"{what}: geometric mean {digits(mean)} of {len(ratios)}, least {digits(min(ratios))}, "
        f"most {digits(max(ratios))}."
    )


PAGE = cpu.Page(
    "door", "PyTorch programs through `torch.compile`", INTRODUCTION,
    {name: functools.partial(measure, name) for name in CATALOGUE}, summary,
)  # fmt: skip


def drawn(count: int, seed: int) -> list[str]:
    """The trivial modules, and `count` of the others."""
    return [*TRIVIAL, *random.Random(seed).sample(sorted(DRAWN), min(count, len(DRAWN)))]


def main() -> None:
    """Parse the command line and measure."""
    parser = argparse.ArgumentParser(prog="python -m bench.door", description=__doc__)
    parser.add_argument("--draw", type=int, default=12, help="how many models")
    parser.add_argument("--seed", type=int, help="of the models, the data, the order of turns; "
                        "default: a new one")  # fmt: skip
    parser.add_argument("--only", default="", help="these models, with commas between; --output "
                        "keeps the others of a page that is there")  # fmt: skip
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, help="no figure has more")
    parser.add_argument("--output", type=Path, help="folder of the page; else it is printed")
    options = parser.parse_args()
    seed = time.time_ns() % 2**32 if options.seed is None else options.seed
    only = [name for name in options.only.split(",") if name]
    if unknown := [name for name in only if name not in CATALOGUE]:
        parser.error(f"--only: {', '.join(unknown)}: not in tests/interop/zoo/table.py")
    names = only or drawn(options.draw, seed)
    threads = [options.threads]
    print(cpu.run(PAGE, options.output, False, names, threads, options.rounds, seed))


if __name__ == "__main__":
    main()
