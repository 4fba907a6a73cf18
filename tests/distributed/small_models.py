"""Small models of text with drawn weights, in files as on the Hugging Face hub."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import lamina as lm
from lamina import nn
from lamina.io import safetensors
from lamina.models.configuration import family_of
from lamina.models.fields import Fields
from lamina.models.weights import DrawnWeights

SIZES = {
    "vocab_size": 97, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64,
}  # fmt: skip
FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {**SIZES, "model_type": "llama", "attention_bias": True, "mlp_bias": True},
    "qwen3": {**SIZES, "model_type": "qwen3", "head_dim": 16, "tie_word_embeddings": True},
    "gpt2": {
        "model_type": "gpt2", "vocab_size": 97, "n_embd": 32, "n_layer": 2, "n_head": 4,
        "n_positions": 64,
    },
    "gemma2": {
        **SIZES, "model_type": "gemma2", "head_dim": 16, "sliding_window": 5,
        "query_pre_attn_scalar": 24,
    },
    "olmo2": {**SIZES, "model_type": "olmo2"},
    "phi": {**SIZES, "model_type": "phi"},
    "qwen2 with experts": {
        **SIZES, "model_type": "qwen2_moe", "num_experts": 5, "num_experts_per_tok": 2,
        "moe_intermediate_size": 24, "shared_expert_intermediate_size": 40,
    },
}  # fmt: skip
ENCODERS: dict[str, dict[str, Any]] = {
    "bert": {**SIZES, "model_type": "bert"},
    "modernbert": {**SIZES, "model_type": "modernbert", "local_attention": 4},
}


def saved(name: str, folder: Path) -> None:
    """Write a model of a family, with biases and scales that are drawn as well."""
    lm.random.manual_seed(3)
    values = {**FAMILIES, **ENCODERS}[name]
    family = family_of(values, name)
    network = family.network(family.read(Fields(values, name)), DrawnWeights(0.2))
    weights = {}
    for key, weight in nn.state_dict(network).items():
        offset = 0.1 * lm.random.normal(weight.shape) if weight.ndim == 1 else 0.0
        weights[key] = weight.detach() + offset
    folder.mkdir()
    safetensors.save(folder / "model.safetensors", weights)
    (folder / "config.json").write_text(json.dumps(values), encoding="utf-8")
