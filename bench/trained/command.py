"""Measures whole programs on a GPU."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from bench.machine import facts_of_gpu
from bench.process import Bench
from bench.trained.page import Page
from bench.trained.run import examine
from bench.trained.trainers import COLUMNS
from lamina.runtime.cpu import usable_cores

CORES_OF_A_LANE = 4


def run(
    device: str, names: Sequence[str], columns: Sequence[str], quick: bool, lanes: int,
    seed: int | None, output: Path | None,
) -> str:  # fmt: skip
    """Measure the programs of these names; returns the page.

    columns: of the table. lanes: programs that are compiled at one time; 0: one for each four
    cores. output: the folder of the page, which keeps what it has of other programs."""
    seed = time.time_ns() % 2**32 if seed is None else seed
    lanes = lanes or max(1, usable_cores() // CORES_OF_A_LANE)
    page = Page(facts_of_gpu(device, seed), output)
    with tempfile.TemporaryDirectory(prefix="lamina-whole-") as folder:
        bench = Bench(Path(folder), seed, quick, None)
        kept = [column for column in COLUMNS if column in columns]
        for outcome in examine(bench, names, kept, device, lanes):
            page.put(outcome)
    return page.report.markdown()
