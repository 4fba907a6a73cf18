"""Configurations from files of strangers."""

from __future__ import annotations

from typing import Any

import pytest

from lamina.errors import FormatError
from lamina.models.configuration import from_hugging_face
from tests.models.families import SIZES

PLAIN = {**SIZES, "model_type": "llama"}
WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "kind": ({"model_type": "gpt2"}, "model_type: 'gpt2' is no model that lamina knows: llama, mi"),
    "missing": ({"hidden_size": None}, "hidden_size: missing"),
    "text": ({"vocab_size": "many"}, "vocab_size: 'many'; an integer from 1 to"),
    "true": ({"num_hidden_layers": True}, "num_hidden_layers: True; an integer"),
    "huge": ({"intermediate_size": 1 << 60}, "intermediate_size: 1152921504606846976; an integer"),
    "heads": ({"num_key_value_heads": 3}, "num_key_value_heads: 3 do not divide 4 heads"),
    "epsilon": ({"rms_norm_eps": -1.0}, "rms_norm_eps: -1.0; a positive number"),
    "activation": ({"hidden_act": "gelu"}, "hidden_act: 'gelu'; models of this family have 'silu'"),
    "flag": ({"tie_word_embeddings": 1}, "tie_word_embeddings: 1; true or false"),
    "rope": ({"rope_scaling": {"type": "odd"}}, "rope_scaling: rope_type: 'odd'; known are de"),
    "rope that is none": ({"rope_parameters": []}, r"rope_parameters: \[\]; an object is needed"),
    "factor": ({"rope_scaling": {"type": "linear"}}, "rope_scaling: factor: missing"),
    "window": ({"use_sliding_window": True}, "use_sliding_window: layers with and without"),
}


@pytest.mark.parametrize("name", WRONG)
def test_configurations_that_make_no_sense_are_refused(name: str) -> None:
    changes, message = WRONG[name]
    with pytest.raises(FormatError, match=message):
        from_hugging_face({**PLAIN, **changes}, "config.json")


def test_older_files_name_the_rotation_by_other_fields() -> None:
    new = {"rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 500.0}}
    old = {"rope_scaling": {"type": "linear", "factor": 2.0}, "rope_theta": 500.0}
    assert from_hugging_face({**PLAIN, **new}, "") == from_hugging_face({**PLAIN, **old}, "")
