"""Whole programs on a GPU: what is trained is the same in both frameworks, and the page."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bench.report import LAMINA
from bench.trained.catalogue import ALL
from bench.trained.page import Page
from bench.trained.run import Outcome
from bench.trained.trainers import COMPILED, lamina_trainer, torch_trainer


@pytest.mark.parametrize("name", ["tiny-graph", "tiny-mixtral"])
def test_both_frameworks_reach_the_same_losses(name: str) -> None:
    pytest.importorskip("torch")
    program, random = ALL[name](), np.random.default_rng(0)
    drawn = {key: weight.drawn(random) for key, weight in program.weights.items()}
    batches = [program.batch(random) for _ in range(2)]
    ours = lamina_trainer(program, drawn, batches, "cpu")
    theirs = torch_trainer(program, drawn, batches, "cpu", compiled=False)
    for _ in range(3):
        losses = [[float(one.item()) for one in subject.step()] for subject in (ours, theirs)]
        np.testing.assert_allclose(*losses, rtol=2e-3)


def _outcome(name: str, seconds: float) -> Outcome:
    """Of a program in which lamina takes so long, and each peer one second."""
    columns = {LAMINA: seconds, "torch": 1.0, COMPILED: 1.0}
    return Outcome(
        name,
        first=dict(columns),
        losses={column: [[2.0], [1.0]] for column in columns},
        step={column: [each] * 3 for column, each in columns.items()},
        host={column: [each] * 3 for column, each in columns.items()},
        peak=dict.fromkeys(columns, 1 << 30),
    )


def test_a_page_keeps_programs_and_has_their_mean(tmp_path: Path) -> None:
    Page({"seed": "1"}, tmp_path).put(_outcome("tiny-gpt2", 0.5))
    page = Page({"seed": "2"}, tmp_path)
    page.put(_outcome("tiny-llama", 2.0))
    text = (tmp_path / "whole.md").read_text()
    assert "tiny-gpt2: " in text
    assert "tiny-llama: " in text
    assert "Geometric mean of 2 ratios to best peer: 1, target 0.85: met; least 0.5." in text
    assert "Missed:" in text
    page.put(_outcome("tiny-llama", 0.5))
    assert "Geometric mean of 2 ratios to best peer: 2," in page.report.markdown()
