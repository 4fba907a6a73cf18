"""What is made of the turns of programs: who has how many, and whether neighbours changed them."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from bench.fairness import fairness
from bench.kernels import Fleet, kernels
from bench.process import Bench
from bench.report import Row
from tests.bench.made_up import Programs, Seconds

ALONE, BESIDE_OTHERS = 1.0, 3.0  # seconds of a product of a program that suffers from neighbours


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path, seed=1, quick=False, clang=None, threads=[2])


def _installed(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    monkeypatch.setattr("bench.process.version", lambda name: "1" if name in names else None)


def _fleet(seconds: Seconds) -> Fleet:
    return cast(Fleet, Programs(seconds))


def _products(bench: Bench, monkeypatch: pytest.MonkeyPatch, seconds: Seconds) -> list[Row]:
    """The rows of products of lamina and NumPy."""
    _installed(monkeypatch, "numpy")
    return kernels("gemm", bench, _fleet(seconds)).rows


def test_a_disturbed_first_turn_costs_nobody_a_row(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def seconds(column: str, turn: int, _: int) -> float:
        return 100.0 if column == "numpy" and turn == 1 else 2.0

    for row in _products(bench, monkeypatch, seconds):
        assert row.samples == {"lamina": [2000.0] * 7, "numpy": [2000.0] * 7}
        assert row.itself == ([2000.0] * 7, [2000.0] * 7)


def test_who_is_always_slow_has_trials_only(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def seconds(column: str, turn: int, _: int) -> float:
        return 100.0 if column == "numpy" else 2.0

    for row in _products(bench, monkeypatch, seconds):
        assert row.samples == {"lamina": [2000.0] * 7, "numpy": [100_000.0] * 3}
        assert row.itself is None


def test_rounds_can_be_limited(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.most_rounds = 2
    for row in _products(bench, monkeypatch, lambda column, turn, running: 1.0):
        assert row.samples == {"lamina": [1000.0] * 2, "numpy": [1000.0] * 2}


@pytest.fixture
def fair(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> list[Row]:
    """The rows of the section, where only PyTorch suffers from neighbours."""
    _installed(monkeypatch, "numpy", "torch", "jax")

    def seconds(column: str, turn: int, running: int) -> float:
        return BESIDE_OTHERS if column == "torch" and running > 1 else ALONE

    return fairness(bench, _fleet(seconds)).rows


def test_every_framework_is_measured_in_turns_and_alone(fair: list[Row]) -> None:
    products = [f"{size} A @ {b}, 2T" for b in ("B", "B.T") for size in (256, 1024)]
    peers = "lamina", "numpy", "torch", "jax"
    assert {row.figure for row in fair} == {
        f"{peer}, {name}" for peer in peers for name in products
    }
    for row in fair:
        counts = {way: len(times) for way, times in row.samples.items()}
        assert counts == {"in turns": 15, "alone": 30}
        assert set(row.samples["alone"]) == {1e3 * ALONE}


def test_a_time_that_neighbours_change_misses_its_target(fair: list[Row]) -> None:
    for row in fair:
        suffers = row.figure.startswith("torch")
        assert row.ratios() == {"alone": pytest.approx(ALONE / BESIDE_OTHERS if suffers else 1.0)}
        assert all(row.reached(target) for target in row.targets) is not suffers
