"""The benchmark of the backend of ``torch.compile``."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the models are PyTorch's: pip install torch==2.13.0")

from bench import door  # noqa: E402
from bench.cases.modules import COMPILED, DRAWN, FORWARD, TRAINING, TRIVIAL  # noqa: E402
from bench.kernels import Fleet  # noqa: E402
from bench.process import Bench  # noqa: E402
from bench.report import LAMINA, Row, Section  # noqa: E402


def test_models_follow_from_the_seed() -> None:
    names = door.drawn(12, 7)
    assert names == door.drawn(12, 7)
    assert names != door.drawn(12, 8)
    assert names[: len(TRIVIAL)] == list(TRIVIAL)
    assert len(set(names) & set(DRAWN)) == 12


def test_the_summary_is_of_the_drawn_models() -> None:
    def section(title: str, ours: float, theirs: float) -> Section:
        samples = {LAMINA: [ours], COMPILED: [theirs]}
        return Section(title, (COMPILED,), [Row("forward, 1T", samples, "ms")])

    first, second = list(DRAWN)[:2]
    sections = [section(first, 1.0, 2.0), section(second, 1.0, 0.5), section("trivial", 1.0, 9.0)]
    (note,) = [one for one in door.summary(sections).notes if one.startswith("forward, a call")]
    assert "geometric mean 1 of 2, least 0.5, most 2." in note


class MadeUp:
    """A process that answers as `bench.programs.door` does: lamina is twice as fast, and the result
    of its training step is wrong."""

    def __init__(self, column: str) -> None:
        self.column = column
        self.seconds = 1.0 if column == LAMINA else 2.0
        self.started = time.time() - 10 * self.seconds
        self.answers = 0

    def read(self) -> dict[str, Any]:
        self.answers += 1
        return {"ended": time.time(), "loading": 4.0, "processors": self.answers * self.seconds}

    def tell(self, message: list[Any]) -> dict[str, Any]:
        command, kind, *_ = message
        if command == "call":
            return self.read()
        if command == "check":
            return {"equal": None if self.column == COMPILED else kind == FORWARD}
        return {"seconds": [self.seconds]}

    def __enter__(self) -> MadeUp:
        return self

    def __exit__(self, *_: Any) -> None:
        pass


def test_a_model_is_measured_and_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(door, "_worker", lambda bench, column, name, cache: MadeUp(column))
    monkeypatch.setattr(Bench, "installed", lambda self, *columns: [LAMINA, COMPILED])
    bench = Bench(tmp_path, 7, True, None, (1,))
    with Fleet(bench) as fleet:
        section = door.measure("trivial", bench, fleet)
    assert section.notes == [f"{TRAINING}, 1T: the result of {LAMINA} is **wrong**."]
    figures = {row.figure: row for row in section.rows}
    assert len(figures) == 2 + 2 * 4
    assert figures["forward, 1T"].ratios() == {COMPILED: 2.0}
    first = figures["forward, first result, empty cache"]
    assert first.samples[LAMINA] == pytest.approx([6.0], abs=0.5)
    assert first.samples[COMPILED] == pytest.approx([16.0], abs=0.5)
    spent = figures["training step, first result, cache kept, processors' time of that"]
    assert spent.samples == {LAMINA: [1.0], COMPILED: [2.0]}
