"""The figures of the CPU device."""

from __future__ import annotations

import compileall
import functools
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.cold import cold, memory
from bench.fairness import fairness
from bench.kernels import Fleet, kernels
from bench.latency import imports, nodes
from bench.machine import BUSY, ROOT, facts, peer_compiler
from bench.process import Bench, default_threads
from bench.report import Report, Section, sections_of

INTRODUCTION = (
    "Every figure is the median of several rounds in which the frameworks took turns, in a new "
    "random order each round; the fastest round is in brackets. All but the one whose turn it is "
    "are stopped, with all of their threads. A turn warms up first, and where it has many calls, "
    "its fastest one counts. 1T is one thread, measured in processor time, "
    "2T is two, measured in wall-clock time. A ratio is the median over the rounds of a peer's "
    "time divided by lamina's: **above 1 lamina is faster**. Who is 8 times slower than another "
    "in the best of three turns has only these. The noise is how far from 1 the "
    "ratio of the best peer to itself was, or may well be, in the same rounds; a ratio within "
    "it, and within 5 %, counts as 1. The share is of what the machine did at most, measured in "
    "the same rounds with plain loops in C. The data are random, with the seed below, which draws "
    "the order of the turns as well, and the results are compared in the same run. Written by "
    "`python -m bench cpu`; the samples are in the JSON file beside this page."
)
WARNING = (
    " **The machine was busy with other work**: absolute times are too long, and a peer "
    "whose threads wait for each other suffers most; measure again on a quiet one."
)
TOO_BUSY = 10  # per cent of the processors' time, above which the page warns
GROUPS = ("gemm", "skinny", "rows", "stream", "conv", "attention", "mlp", "models")
Measurement = Callable[[Bench, Fleet], Section]


def _alone(section: Callable[[Bench], Section]) -> Measurement:
    """A section that starts its own programs."""
    return lambda bench, fleet: section(bench)


SECTIONS: dict[str, Measurement] = {
    "fairness": fairness,
    **{name: functools.partial(kernels, name) for name in GROUPS},
    "memory": _alone(memory),
    "cold": _alone(cold),
    "imports": _alone(imports),
    "nodes": _alone(nodes),
}


@dataclass(frozen=True)
class Page:
    """A page of measurements on the CPU.

    summary: the section over all others, written anew after each of them."""

    name: str
    title: str
    introduction: str
    sections: Mapping[str, Measurement]
    summary: Callable[[Sequence[Section]], Section] | None = None


PAGE = Page("cpu", "lamina on the CPU", INTRODUCTION, SECTIONS)


def run(
    page: Page,
    output: Path | None,
    quick: bool,
    only: Sequence[str] = (),
    threads: Sequence[int] = (),
    most_rounds: int | None = None,
    seed: int | None = None,
) -> str:
    """Measure everything, or the sections named in `only`; returns the page.

    threads: for the sections of single computations; targets are for the first number.
    most_rounds: no figure has more. seed: of the data and of the order of the turns. The page is
    written to `output`, unless that is None, with the raw numbers beside it after each section;
    with `only` the other sections of a page that is there are kept.
    """
    seed = time.time_ns() % 2**32 if seed is None else seed
    print(f"seed {seed}", file=sys.stderr)
    for package in ("lamina", "bench"):  # nobody's first import is to pay for parsing
        compileall.compile_dir(ROOT / package, quiet=2)
    report = Report(page.title, page.introduction)
    if only and output is not None:
        report.sections = sections_of(output, page.name)
    with tempfile.TemporaryDirectory(prefix="lamina-bench-") as folder:
        clang = peer_compiler(Path(folder))
        counts = list(threads) or default_threads(quick)
        bench = Bench(Path(folder), seed, quick, clang, counts, most_rounds)
        machine = facts(seed, clang)
        with Fleet(bench) as fleet:
            for name in only or page.sections:
                started = time.monotonic()
                report.put(_measured(page.sections[name], bench, fleet, machine))
                print(f"{name}: {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)
                if page.summary is not None:
                    report.put(page.summary(report.sections))
                report.introduction = page.introduction + (WARNING if _busy(report) else "")
                if output is not None:
                    report.write(output, page.name)
    return report.markdown()


def _measured(
    measurement: Measurement, bench: Bench, fleet: Fleet, machine: dict[str, str]
) -> Section:
    """A section that says on what it was measured, and who failed."""
    bench.failures.clear()
    section = measurement(bench, fleet)
    section.facts = machine
    failures = dict.fromkeys(bench.failures)
    section.notes += [f"Not measured: {failure}" for failure in failures]
    return section


def _busy(report: Report) -> bool:
    """Whether other programs ran when a section of the page was begun."""
    shares = [section.facts[BUSY] for section in report.sections if BUSY in section.facts]
    return any(float(share.rstrip("%")) > TOO_BUSY for share in shares)
