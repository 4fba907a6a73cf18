"""Fixtures of the tests of printed code."""

from __future__ import annotations

import pytest

from lamina import backends
from lamina.core.target import cpu_target
from lamina.frontend.session import SESSION
from lamina.runtime.source import Source
from lamina.schedule.cpu.heuristic import schedule_for_cpu
from lamina.targets.c import program as c

TARGET = cpu_target(vector_bytes=64, cores=2)


@pytest.fixture
def texts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The source of each program that is compiled, for vectors of 64 bytes."""
    found: list[str] = []
    printed = c.print_program

    def noted(*arguments: object) -> Source:
        found.append("\n".join(printed(*arguments).kernels.values()))  # type: ignore[arg-type]
        return printed(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(c, "print_program", noted)
    monkeypatch.setattr(
        backends, "schedule_for_cpu",
        lambda kernel, _, knobs: schedule_for_cpu(kernel, TARGET, knobs),
    )  # fmt: skip
    SESSION.forget()
    return found
