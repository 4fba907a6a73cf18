"""The table of architectures, and the page that counts their outcomes."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="the models are PyTorch's: pip install torch==2.13.0")

from tests.interop.zoo.__main__ import page
from tests.interop.zoo.check import Outcome
from tests.interop.zoo.table import LARGE, MODELS, REMARKS, SMALL, Scale


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


def test_a_scale_keeps_heads_and_stages_in_proportion() -> None:
    small = {
        "hidden_size": 32, "num_attention_heads": 4, "head_dim": 8, "image_size": 64,
        "hidden_sizes": [8, 16], "depths": (1, 1),
    }  # fmt: skip
    assert SMALL.sized(small) == small
    assert LARGE.sized(small) == {
        "hidden_size": 1024, "num_attention_heads": 16, "head_dim": 64, "image_size": 256,
        "hidden_sizes": [64, 128], "depths": (1, 1),
    }  # fmt: skip


def test_inputs_have_the_scale() -> None:
    by_name = {model.name: model for model in MODELS}
    assert by_name["t5"].inputs()["input_ids"].shape == (2, 16)
    assert by_name["t5"].inputs(LARGE)["input_ids"].shape == (64, 256)
    assert by_name["resnet18"].inputs(Scale(batch=2, side=3))["x"].shape == (4, 3, 192, 192)
