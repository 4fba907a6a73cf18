"""The C, CUDA C++ and Metal text of fixed programs for a fixed machine, so that a change shows
what it does to them.

Refresh them with ``pytest --refresh-golden tests/golden``, and read the difference.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from lamina import pipeline
from lamina.core.options import current
from lamina.core.target import cpu_target
from lamina.schedule.cpu.heuristic import schedule_for_cpu
from tests.conftest import Golden
from tests.fuse.graphs import PROGRAMS

TARGET = cpu_target(vector_bytes=64, cores=2)
FOLDER = Path(__file__).parent


@pytest.mark.parametrize(("device", "suffix"), [("cpu", "c"), ("cuda:0", "cu"), ("metal", "metal")])
@pytest.mark.parametrize("name", PROGRAMS)
def test_generated_code(
    name: str, device: str, suffix: str, golden: Golden, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        pipeline,
        "schedule_for_cpu",
        lambda kernel, _, knobs: schedule_for_cpu(kernel, TARGET, knobs),
    )
    settings = replace(current(), device=device)
    source = pipeline.compile_source([PROGRAMS[name]()], settings)
    plans = [source.plans[one.kernel] for one in source.program.launches]
    notes = [f"{plan.name}:\n{plan}" for plan in plans]
    notes += [f"{one.name}<<<{one.blocks}, {one.threads}>>>" for one in source.launches]
    assert source.source is not None
    own = "\n" + source.listing
    golden(FOLDER / f"{name}.{suffix}", "/*\n" + "\n\n".join(notes) + "\n*/\n" + own)
