"""The figures of the CPU device."""

from __future__ import annotations

import compileall
import functools
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from bench.cold import cold, memory
from bench.kernels import Fleet, kernels
from bench.latency import imports, nodes
from bench.machine import ROOT, facts, peer_compiler
from bench.process import PEERS, Bench, default_threads
from bench.report import Report, Section

INTRODUCTION = (
    "Every figure is the median of several rounds in which the frameworks took turns; where a "
    "turn has many calls, its fastest one counts. 1T is one thread, measured in processor time, "
    "2T is two, measured in wall-clock time. A ratio is the median over the rounds of a peer's "
    "time divided by lamina's: **above 1 lamina is faster**. The noise is how far from 1 the "
    "ratio of the best peer to itself was, or may well be, in the same rounds; a ratio within "
    "it, and within 5 %, counts as 1. The share is of what the machine did at most, measured in "
    "the same rounds with plain loops in C. The data are random, with the seed below, and the "
    "results are compared in the same run. Written by `python -m bench cpu`; the samples are in "
    "the JSON file beside this page."
)
BUSY = 0.5  # load above which the page warns
GROUPS = ("gemm", "skinny", "rows", "stream", "conv", "attention", "mlp", "models")
Measurement = Callable[[Bench, Fleet], Section]


def _alone(section: Callable[[Bench], Section]) -> Measurement:
    """A section that starts its own programs."""
    return lambda bench, fleet: section(bench)


SECTIONS: dict[str, Measurement] = {
    **{name: functools.partial(kernels, name) for name in GROUPS},
    "memory": _alone(memory),
    "cold": _alone(cold),
    "imports": _alone(imports),
    "nodes": _alone(nodes),
}


def run(
    output: Path | None, quick: bool, only: Sequence[str] = (), threads: Sequence[int] = ()
) -> str:
    """Measure everything, or the sections named in `only`; returns the page.

    threads: for the sections of single computations; targets are for the first number. The page
    is written to `output`, unless that is None, with the raw numbers beside it.
    """
    seed = time.time_ns() % 2**32
    print(f"seed {seed}", file=sys.stderr)
    for package in ("lamina", "bench"):  # nobody's first import is to pay for parsing
        compileall.compile_dir(ROOT / package, quiet=2)
    with tempfile.TemporaryDirectory(prefix="lamina-bench-") as folder:
        clang = peer_compiler(Path(folder))
        bench = Bench(Path(folder), seed, quick, clang, list(threads) or default_threads(quick))
        report = Report("lamina on the CPU", facts(seed, clang), INTRODUCTION)
        with Fleet(bench) as fleet:
            for name in only or SECTIONS:
                started = time.monotonic()
                report.sections.append(SECTIONS[name](bench, fleet))
                print(f"{name}: {time.monotonic() - started:.0f} s", file=sys.stderr)
    missing = [peer for peer in PEERS if peer not in bench.frameworks(*PEERS)]
    notes = [f"{peer}: not installed." for peer in missing] + bench.failures
    if float(report.facts["load at the start"]) > BUSY:
        report.introduction += (
            " **The machine was busy with other work**: absolute times are too long, and a peer "
            "whose threads wait for each other suffers most; measure again on a quiet one."
        )
    if notes:
        report.sections.append(Section("Not measured", (), notes=notes))
    if output is not None:
        report.write(output, "cpu")
    return report.markdown()
