"""The generated text of every recorded program, as digests, for a machine that is fixed.

A change that should keep every kernel shows here that it did. Where a text was meant to change,
``python -m tests.replay record`` before it and ``compare`` after it show the lines; then refresh
the digests with ``pytest -n 0 --refresh-golden tests/replay``.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lamina import backends, pipeline
from lamina.core.target import cpu_target
from lamina.runtime.devices import target_of
from lamina.schedule.cpu.heuristic import schedule_for_cpu
from tests.conftest import Golden
from tests.replay.programs import (
    Program,
    benchmark_cases,
    drawn_programs,
    gpu_cases,
    networks,
    programs,
    random_programs,
)
from tests.replay.text import record

TARGET = cpu_target(vector_bytes=64, cores=2)
FOLDER = Path(__file__).parent / "digests"
FAMILIES: tuple[Callable[[], Iterator[tuple[str, Program]]], ...] = (
    random_programs, benchmark_cases, gpu_cases, drawn_programs, networks,
)  # fmt: skip


def digest(program: Program) -> str:
    """Of a program's kernels and entry function; helper texts have tests of their own."""
    parts = record(program())
    del parts["helpers"]
    return hashlib.blake2b(json.dumps(parts).encode(), digest_size=6).hexdigest()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("family", FAMILIES)
def test_texts_are_the_recorded_ones(
    family: Callable[[], Iterator[tuple[str, Program]]],
    golden: Golden,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        backends,
        "schedule_for_cpu",
        lambda kernel, _, knobs: schedule_for_cpu(kernel, TARGET, knobs),
    )
    for module in (pipeline, backends):
        monkeypatch.setattr(
            module,
            "target_of",
            lambda options: TARGET if options.device == "cpu" else target_of(options),
        )
    lines = [f"{digest(program)} {name}\n" for name, program in family()]
    golden(FOLDER / f"{family.__name__}.txt", "".join(lines))


def test_there_are_many_programs() -> None:
    assert sum(1 for _ in programs()) > 500
