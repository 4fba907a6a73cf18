"""The table of architectures, and the page that counts their outcomes."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="the models are PyTorch's: pip install torch==2.13.0")

from tests.interop.zoo.__main__ import page
from tests.interop.zoo.check import Outcome
from tests.interop.zoo.table import MODELS, REMARKS


def test_a_model_has_one_row() -> None:
    names = [model.name for model in MODELS]
    assert len(names) == len(set(names))
    assert {*REMARKS} <= {*names}


def test_the_page_counts_what_is_equal_and_whole() -> None:
    outcomes = [
        Outcome("bert", True, True, 3, 3, 9),
        Outcome("gpt2", True, True, 3, 4, 9, ("aten.sort.default: it has no row",)),
        Outcome("vit", True, False, 3, 3, 9),
        Outcome("t5", error="not done in 300 s"),
    ]
    text = page(outcomes)
    assert "4 models with random weights: 2 equal" in text
    assert "1 of these with no operation left" in text
    assert "| gpt2 | transformers | equal | equal | 3 | 4 | 9 | aten.sort" in text
    assert "| t5 | transformers | no | no | 0 | 0 | 0 | not done in 300 s |" in text
