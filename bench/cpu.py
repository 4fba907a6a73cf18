"""The figures of the CPU device."""

from __future__ import annotations

import compileall
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from bench.gpt2 import gpt2
from bench.kernels import kernels
from bench.latency import imports, mlp, nodes
from bench.machine import ROOT, facts, peer_compiler
from bench.process import PEERS, Bench
from bench.report import Report, Section

INTRODUCTION = (
    "Every figure is the median of several runs in which the frameworks took turns; a ratio is "
    "the median of the ratios of those turns, lamina's time divided by the peer's, so smaller is "
    "better. The data are random, with the seed below, and the results are compared in the same "
    "run. Written by `python -m bench cpu`; every sample is in the JSON file beside this page."
)
BUSY = 0.5  # load above which the page warns
SECTIONS: tuple[Callable[[Bench], Section], ...] = (imports, nodes, mlp, gpt2, kernels)


def run(output: Path, quick: bool) -> Path:
    """Measure everything and write the page; returns its path."""
    seed = time.time_ns() % 2**32
    print(f"seed {seed}", file=sys.stderr)
    for package in ("lamina", "bench"):  # nobody's first import is to pay for parsing
        compileall.compile_dir(ROOT / package, quiet=2)
    with tempfile.TemporaryDirectory(prefix="lamina-bench-") as folder:
        clang = peer_compiler(Path(folder))
        bench = Bench(Path(folder), seed, quick, clang)
        report = Report("lamina on the CPU", facts(seed, clang), INTRODUCTION)
        for section in SECTIONS:
            started = time.monotonic()
            report.sections.append(section(bench))
            seconds = time.monotonic() - started
            print(f"{section.__name__}: {seconds:.0f} s", file=sys.stderr)
    missing = [peer for peer in PEERS if peer not in bench.frameworks(*PEERS)]
    notes = [f"{peer}: not installed." for peer in missing] + bench.failures
    if float(report.facts["load at the start"]) > BUSY:
        report.introduction += (
            " **The machine was busy with other work**: absolute times are too long, and a peer "
            "whose threads wait for each other suffers most; measure again on a quiet one."
        )
    if notes:
        report.sections.append(Section("Not measured", (), notes=notes))
    return report.write(output, "cpu")
