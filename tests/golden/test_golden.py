"""The C of a fixed set of programs for a fixed machine, so that a change shows what it does to it.

Refresh it with ``pytest --refresh-golden tests/golden``, and read the difference.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from lamina import pipeline
from lamina.codegen.c import KERNELS
from lamina.fuse.program import Output
from lamina.kernel.heuristic import Target
from lamina.options import current
from tests.conftest import Golden
from tests.fuse.graphs import PROGRAMS

MACHINE = Target("c", vector_bytes=64, registers=32)
FOLDER = Path(__file__).parent


@pytest.mark.parametrize("name", PROGRAMS)
def test_generated_code(name: str, golden: Golden, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "cpu_target", lambda options: MACHINE)
    source = pipeline.compile_source([Output(PROGRAMS[name]())], current())
    plans = [source.plans[one.kernel] for one in source.program.launches]
    schedules = [f"{plan.name}:\n{plan}" for plan in plans]
    own = source.text.partition(KERNELS)[2]
    golden(FOLDER / f"{name}.c", "/*\n" + "\n\n".join(schedules) + "\n*/\n" + own)
