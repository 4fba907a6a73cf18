"""The benchmark of the backend of ``torch.compile``."""

from __future__ import annotations

import math
import os
import time
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the models are PyTorch's: pip install torch==2.13.0")

from bench.cases.modules import (  # noqa: E402
    COMPILED,
    DRAWN,
    EAGER,
    FORWARD,
    STEPWISE,
    TRAINING,
    TRIVIAL,
)
from bench.door import measure as module  # noqa: E402
from bench.door.__main__ import drawn, run  # noqa: E402
from bench.door.measure import Measured, Setting, measure  # noqa: E402
from bench.door.page import Page  # noqa: E402
from bench.lanes import side_by_side  # noqa: E402
from bench.process import Bench  # noqa: E402
from bench.report import LAMINA, Row  # noqa: E402


def test_models_follow_from_the_seed() -> None:
    names = drawn(12, 7, "cpu")
    assert names == drawn(12, 7, "cpu")
    assert names != drawn(12, 8, "cpu")
    assert names[: len(TRIVIAL)] == list(TRIVIAL)
    assert len(set(names) & set(DRAWN)) == 12


def test_models_of_a_gpu_fill_it() -> None:
    assert set(drawn(1000, 7, "cuda:0")) == DRAWN.keys() - STEPWISE


def _measured(name: str, ours: float | None, theirs: float) -> Measured:
    samples = {COMPILED: [theirs]} | ({} if ours is None else {LAMINA: [ours]})
    return Measured(name, {"forward, 1T": Row(name, samples, "ms")})


def test_a_page_has_the_mean_of_the_drawn_models(tmp_path: Path) -> None:
    page = Page("door", "cpu", {}, tmp_path)
    first, second, third = list(DRAWN)[:3]
    for measured in (
        _measured(first, 1.0, 2.0), _measured(second, 1.0, 0.1), _measured("trivial", 1.0, 9.0),
        _measured(third, None, 1.0), _measured(second, 1.0, 0.5),
    ):  # fmt: skip
        page.put(measured)
    again = Page("door", "cpu", {}, tmp_path)
    assert again.models() == {first, second, third, "trivial"}
    (section,) = [one for one in again.report.sections if one.title == "forward, 1T"]
    (note,) = section.notes
    assert "1 of 2 (target 1.1), least 0.5, most 2. Not measured of lamina: " + third in note


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
            return {"equal": kind == FORWARD if self.column == LAMINA else None}
        return {"seconds": [self.seconds]}

    def __enter__(self) -> MadeUp:
        return self

    def __exit__(self, *_: Any) -> None:
        pass


@pytest.fixture
def made_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        module, "new_worker", lambda bench, setting, column, name, cache: MadeUp(column)
    )
    monkeypatch.setattr(Bench, "installed", lambda self, *columns: [LAMINA, EAGER, COMPILED])


@pytest.mark.usefixtures("made_up")
@pytest.mark.parametrize(("device", "label"), [("cpu", "1T"), ("cuda:0", "bfloat16")])
def test_a_model_is_measured_and_compared(tmp_path: Path, device: str, label: str) -> None:
    bench = Bench(tmp_path, 7, True, None, (1,))
    measured = measure("trivial", bench, Setting(device, "bfloat16"))
    assert measured.notes == [
        f"trivial, {TRAINING}, {label}: the result of {LAMINA} is **wrong**."
    ]
    assert len(measured.rows) == 2 + 2 * 4
    assert measured.rows[f"forward, {label}"].ratios()[COMPILED] == 2.0
    first = measured.rows["forward, first result, empty cache"]
    assert EAGER not in first.samples
    assert first.samples[LAMINA] == pytest.approx([6.0], abs=0.5)
    assert first.samples[COMPILED] == pytest.approx([16.0], abs=0.5)
    spent = measured.rows["training step, first result, cache kept, processors' time"]
    assert spent.samples == {LAMINA: [1.0], EAGER: [2.0], COMPILED: [2.0]}


@pytest.mark.usefixtures("made_up")
def test_models_are_measured_side_by_side_until_the_time_is_over(tmp_path: Path) -> None:
    page = Page("door", "cpu", {}, tmp_path)
    run(["bert", "vit", "t5"], Setting(), 2, 3, page, 7)
    run(["gpt2"], Setting(ends=time.monotonic() - 1), 1, 3, page, 7)
    assert page.models() == {"bert", "vit", "t5"}


def test_lanes_share_the_cores() -> None:
    cores: dict[str, set[int]] = {}

    def note(name: str) -> None:
        cores[name] = os.sched_getaffinity(0)
        time.sleep(0.05)  # so that no lane takes two

    everyone = os.sched_getaffinity(0)
    lanes = len(everyone)
    side_by_side([str(lane) for lane in range(lanes)], lanes, math.inf, note)
    assert sorted(map(list, cores.values())) == [[core] for core in sorted(everyone)]
    assert os.sched_getaffinity(0) == everyone
