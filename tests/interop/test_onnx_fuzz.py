"""A sample of mutated files; `python -m tests.interop.onnx_fuzz --count 10000` runs more."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("onnx")

from lamina.interop.onnx import model, rows
from tests.interop.onnx_fuzz.check import (
    FuzzError,
    outcome_of,
    prepare,
    small_limits,
)
from tests.interop.onnx_fuzz.models import Sample, samples

SEEDS = range(160)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    with small_limits():
        yield prepare(tmp_path)


def test_mutated_files_run_or_say_what_is_wrong(folder: Path) -> None:
    cases = samples()
    outcomes = Counter([outcome_of(cases, seed, folder).kind for seed in SEEDS])
    assert sum(outcomes.values()) == len(SEEDS)
    assert min(outcomes[kind] for kind in ("result", "load", "call")) >= 10


@pytest.mark.parametrize("number", range(len(samples())))
def test_the_files_run_before_they_are_mutated(
    number: int, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unchanged(proto: Any, generator: Any) -> bytes:
        return bytes(proto.SerializeToString())

    monkeypatch.setattr("tests.interop.onnx_fuzz.check.mutated", unchanged)
    assert outcome_of([samples()[number]], 0, folder).kind == "result"


def test_a_defect_is_found(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(context: Any, x: Any, **options: Any) -> Any:
        raise TypeError("what a row does not expect")

    rows.find_row("Flatten", 21, "")
    monkeypatch.setitem(rows._ENTRIES, ("", "Flatten"), [rows.Entry(1, broken)])
    with pytest.raises(FuzzError, match="defect of lamina"):
        _all_of_the_first(folder)


def test_a_file_out_of_bounds_is_found(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def anywhere(self: Any, location: str, what: str) -> Any:
        return model.mapped_bytes(folder.parent / "secret")

    monkeypatch.setattr(model.Storage, "_file", anywhere)
    with pytest.raises(FuzzError, match="outside of the model's folder"):
        _all_of_the_first(folder)


def _all_of_the_first(folder: Path) -> None:
    first: list[Sample] = samples()[:1]
    for seed in range(400):
        outcome_of(first, seed, folder)
