"""Configurations from files of strangers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lamina as lm
from lamina.errors import FormatError
from lamina.io.blocks import BLOCK_TYPES, Packed
from lamina.models.configuration import from_hugging_face
from lamina.models.gguf_models import from_gguf
from lamina.models.rope import LongScaling
from tests.models.families import SIZES

PLAIN = {**SIZES, "model_type": "llama"}


def _long(**changes: Any) -> dict[str, Any]:
    """Of Phi 3, whose heads have 8 pairs, half of which are turned."""
    divisors = {"short_factor": [1.0] * 4, "long_factor": [2.0] * 4}
    scaling = {"rope_type": "longrope", "partial_rotary_factor": 0.5, **divisors, **changes}
    return {"model_type": "phi3", "rope_parameters": scaling, "original_max_position_embeddings": 8}


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "kinds": ({"model_type": ["llama"]}, r"model_type: \['llama'\]; a text is needed"),
    "no kind": ({"model_type": None}, "model_type: missing"),
    "kind": ({"model_type": "mamba"}, "model_type: 'mamba' is no model that lamina knows: llama, "),
    "missing": ({"hidden_size": None}, "hidden_size: missing"),
    "text": ({"vocab_size": "many"}, "vocab_size: 'many'; an integer from 1 to"),
    "true": ({"num_hidden_layers": True}, "num_hidden_layers: True; an integer"),
    "huge": ({"intermediate_size": 1 << 60}, "intermediate_size: 1152921504606846976; an integer"),
    "heads": ({"num_key_value_heads": 3}, "num_key_value_heads: 3 do not divide 4 heads"),
    "epsilon": ({"rms_norm_eps": -1.0}, "rms_norm_eps: -1.0; a positive number"),
    "number beyond floats": ({"rms_norm_eps": 10**400}, "rms_norm_eps: 1000"),
    "layers": ({"num_hidden_layers": 1 << 20}, "num_hidden_layers: 1048576; an integer from 1 to"),
    "odd head": ({"head_dim": 15}, "head_dim: 15 elements of a head; an even number"),
    "base": ({"rope_theta": 1.0}, "rope_theta: 1.0; a number above 1"),
    "part of a head": (
        {"partial_rotary_factor": 0.5}, "partial_rotary_factor: 0.5; models of this family turn"
    ),
    "odd part of a head": (
        {"model_type": "phi3", "partial_rotary_factor": 0.2},
        "partial_rotary_factor: 0.2 of 16 elements of a head; an ev",
    ),
    "more than a head, newer": (
        {"model_type": "phi3", "rope_parameters": {"partial_rotary_factor": 1e300}},
        "rope_parameters: partial_rotary",
    ),
    "ramp": (
        {"rope_scaling": {"type": "llama3", "factor": 2, "low_freq_factor": 4.0,
                          "high_freq_factor": 4.0}}, "high_freq_factor: 4.0; more than 4.0"
    ),
    "activation": ({"hidden_act": "gelu"}, "hidden_act: 'gelu'; models of this family have 'silu'"),
    "flag": ({"tie_word_embeddings": 1}, "tie_word_embeddings: 1; true or false"),
    "rope": ({"rope_scaling": {"type": "odd"}}, "rope_scaling: rope_type: 'odd'; known are de"),
    "rope that is none": ({"rope_parameters": []}, r"rope_parameters: \[\]; an object is needed"),
    "divisors of no list": (_long(short_factor=1.0), "short_factor: a list of 4 numbers"),
    "too few divisors": (_long(long_factor=[1.0]), "long_factor: a list of 4 numbers is need"),
    "divisors of zero": (_long(long_factor=[1.0, 0, 1.0, 1.0]), "long_factor: 0; a positive"),
    "factor": ({"rope_scaling": {"type": "linear"}}, "rope_scaling: factor: missing"),
    "window": ({"use_sliding_window": True}, "use_sliding_window: True; models of this"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_configurations_that_make_no_sense_are_refused(name: str) -> None:
    changes, message = WRONG[name]
    with pytest.raises(FormatError, match=message):
        from_hugging_face({**PLAIN, **changes}, "config.json")


GPT2 = {"model_type": "gpt2", "vocab_size": 96, "n_embd": 64, "n_layer": 2, "n_head": 4}
GEMMA3 = {**SIZES, "model_type": "gemma3_text"}
LLAMA4 = {
    **SIZES, "model_type": "llama4_text", "intermediate_size_mlp": 80, "num_local_experts": 4,
    "attention_chunk_size": 8, "num_experts_per_tok": 1,
}  # fmt: skip
PHI = {**SIZES, "model_type": "phi"}
MIXTRAL = {
    **SIZES, "model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2
}  # fmt: skip
QWEN3_MOE = {
    **SIZES, "model_type": "qwen3_moe", "num_experts": 8, "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
}  # fmt: skip
GEMMA2 = {**SIZES, "model_type": "gemma2"}
WRONG_OTHERS: dict[str, tuple[dict[str, Any], str]] = {
    "heads": ({**GPT2, "n_head": 5}, "n_head: 5 heads do not divide 64 elements"),
    "scale": ({**GPT2, "scale_attn_weights": False}, "scale_attn_weights: False; models of this"),
    "gelu": ({**GPT2, "activation_function": "relu"}, "'relu'; models of this family have 'gelu_n"),
    "biases": ({**GEMMA2, "attention_bias": True}, "attention_bias: True; models of this family"),
    "untied": ({**GEMMA2, "tie_word_embeddings": False}, "tie_word_embeddings: False; models of"),
    "layers": ({**GEMMA2, "layer_types": ["odd"]}, "layer_types: full_attention or slid"),
    "gemma3 with bounds": (
        {**GEMMA3, "attn_logit_softcapping": 50.0}, "attn_logit_softcapping: 50.0; models of this"
    ),
    "half of the rotations": (
        {**GEMMA3, "rope_parameters": {"full_attention": {}}}, "parameters: sliding_attention: mis"
    ),
    "images": ({"model_type": "gemma3", "text_config": 3}, "text_config: 3; an object is needed"),
    "text beside images": (
        {"model_type": "gemma3", "text_config": {"hidden_size": 0}},
        "config.json: text_config: hidden_size: 0; an integer",
    ),
    "olmo2 with bounds": ({**SIZES, "model_type": "olmo2", "clip_qkv": 8.0}, "clip_qkv: models of"),
    "olmo with other bounds": ({**SIZES, "model_type": "olmo", "clip_qkv": -1}, "clip_qkv: -1; a"),
    "phi with normalized heads": ({**PHI, "qk_layernorm": True}, "qk_layernorm: True; models of"),
    "phi with 5 heads": ({**PHI, "num_attention_heads": 6}, "num_attention_heads: 6 heads do not"),
    "llama4 with images": (
        {"model_type": "llama4", "text_config": {**LLAMA4, "moe_layers": [2]}}, r"moe_layers: \[2\]"
    ),
    "layers of experts": ({**LLAMA4, "moe_layers": [2]}, r"moe_layers: \[2\]; numbers of 2 layers"),
    "rotations": ({**LLAMA4, "no_rope_layers": [1]}, "no_rope_layers: 0 or 1 for each of 2 layers"),
    "chunks": ({**LLAMA4, "attention_chunk_size": 0}, "attention_chunk_size: 0; an integer from 1"),
    "layers with a window": (
        {**LLAMA4, "layer_types": ["full_attention", "sliding_attention"]},
        "layer_types: full_attention or chunked_attention for each of 2",
    ),
    "temperature": (
        {**LLAMA4, "attn_temperature_tuning": "hot"}, "attn_temperature_tuning: 'hot'; true or"
    ),
    "length of temperatures": ({**LLAMA4, "floor_scale": -1}, "floor_scale: -1; an integer from 1"),
    "more experts than there are": (
        {**MIXTRAL, "num_experts_per_tok": 9}, "num_experts_per_tok: 9 of 8 experts"
    ),
    "no experts": ({**MIXTRAL, "num_local_experts": 0}, "num_local_experts: 0; an integer from 1"),
    "layers without experts": (
        {**QWEN3_MOE, "mlp_only_layers": 3}, "mlp_only_layers: 3; numbers of layers are needed"
    ),
    "step of experts": ({**QWEN3_MOE, "decoder_sparse_step": 0}, "decoder_sparse_step: 0; an int"),
    "bound": ({**GEMMA2, "attn_logit_softcapping": 0}, "attn_logit_softcapping: 0; a positive n"),
}


@pytest.mark.parametrize("name", WRONG_OTHERS)
def test_other_families_are_checked_as_well(name: str) -> None:
    values, message = WRONG_OTHERS[name]
    with pytest.raises(FormatError, match=message):
        from_hugging_face(values, "config.json")


def test_older_files_name_the_rotation_by_other_fields() -> None:
    new = {"rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 500.0}}
    old = {"rope_scaling": {"type": "linear", "factor": 2.0}, "rope_theta": 500.0}
    assert from_hugging_face({**PLAIN, **new}, "") == from_hugging_face({**PLAIN, **old}, "")


GGUF = {
    "general.architecture": "llama", "llama.embedding_length": 64, "llama.block_count": 2,
    "llama.feed_forward_length": 96, "llama.attention.head_count": 4, "llama.context_length": 64,
    "llama.attention.layer_norm_rms_epsilon": 1e-5, "llama.vocab_size": 96,
}  # fmt: skip
PHI3_GGUF, GEMMA3_GGUF, GEMMA2_GGUF, OLMO2_GGUF, PHI2_GGUF = (
    {key.replace("llama", kind): value for key, value in GGUF.items()}
    | {"general.architecture": kind}
    for kind in ("phi3", "gemma3", "gemma2", "olmo2", "phi2")
)
EXPERTS = {"llama.expert_count": 4, "llama.expert_used_count": 2}
WRONG_GGUF: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "architectures": ({"general.architecture": np.arange(3)}, {}, "general.architecture: array"),
    "scalings": ({"llama.rope.scaling.type": np.arange(3)}, {}, "rope.scaling.type: array"),
    "count of divisors": (
        {}, {"rope_freqs.weight": lm.ones((3,))}, r"rope_freqs.weight: shape \(3,\); \(8,\) not q"
    ),
    "packed divisors": (
        {}, {"rope_freqs.weight": Packed(BLOCK_TYPES[8], lm.zeros((1, 34), dtype=lm.uint8))},
        r"rope_freqs.weight: shape \(32,\); \(8,\) not quantised",
    ),
    "experts": (EXPERTS | {"llama.expert_used_count": 5}, {}, "expert_used_count: 5 of 4 experts"),
    "shares": (EXPERTS | {"llama.expert_gating_func": 2}, {}, "expert_gating_func: only 1, sof"),
    "factors": (EXPERTS | {"llama.expert_weights_scale": 2.5}, {}, "expert_weights_scale: shares"),
    "part of a head": ({"llama.rope.dimension_count": 8}, {}, "count: 8; all 16 of a head are"),
    "odd part": (PHI3_GGUF | {"phi3.rope.dimension_count": 7}, {}, "dimension_count: 7 of 16 elem"),
    "window": (PHI3_GGUF | {"phi3.attention.sliding_window": 0}, {}, "sliding_window: 0; an int"),
    "no window": (GEMMA3_GGUF, {}, "gemma3.attention.sliding_window: missing"),
    "window of olmo3": (
        OLMO2_GGUF | {"olmo2.attention.sliding_window": 8}, {}, "models of this family have no wi"
    ),
    "bound of scores": (
        GEMMA2_GGUF | {"gemma2.attn_logit_softcapping": -1.0}, {}, "logit_softcapping: -1.0; a pos"
    ),
    "epsilon": (PHI2_GGUF, {}, "phi2.attention.layer_norm_epsilon: missing"),
    "heads apart": (
        PHI2_GGUF | {"phi2.attention.layer_norm_epsilon": 1e-5, "phi2.attention.key_length": 8},
        {}, "phi2.attention.key_length: 8; heads are parts of a vector",
    ),
    "counts of experts": ({"llama.expert_count": np.arange(3)}, {}, "expert_count: array"),
    "functions of shares": (
        EXPERTS | {"llama.expert_gating_func": np.arange(3)}, {}, "expert_gating_func: array"
    ),
    "divisors of zero": ({}, {"rope_freqs.weight": lm.zeros((8,))}, "weight: positive numbers"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG_GGUF)
def test_gguf_files_that_make_no_sense_are_refused(name: str) -> None:
    metadata, weights, message = WRONG_GGUF[name]
    with pytest.raises(FormatError, match=message):
        from_gguf({**GGUF, **metadata}, weights, "model.gguf")


def test_a_lookup_without_axes_leaves_the_vocabulary_to_the_metadata() -> None:
    scalar = {"model.embed_tokens.weight": lm.ones(())}
    assert from_gguf(GGUF, scalar, "").vocabulary == 96
    matrix = {"model.embed_tokens.weight": lm.ones((7, 64))}
    assert from_gguf(GGUF, matrix, "").vocabulary == 7


def test_older_files_of_gemma3_name_its_rotations_by_other_fields() -> None:
    full = {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6}
    local = {"rope_type": "default", "rope_theta": 1e4}
    new = {"rope_parameters": {"full_attention": full, "sliding_attention": local}}
    scaling = {"rope_type": "linear", "factor": 8.0}
    old = {"rope_scaling": scaling, "rope_theta": 1e6, "rope_local_base_freq": 1e4}
    assert from_hugging_face({**GEMMA3, **new}, "") == from_hugging_face({**GEMMA3, **old}, "")


def test_each_sixth_layer_of_gemma3_sees_all() -> None:
    config = from_hugging_face({**GEMMA3, "num_hidden_layers": 7, "sliding_window": 5}, "")
    assert config.windows == (5, 5, 5, 5, 5, None, 5)


@pytest.mark.parametrize(("kind", "layers"), [("gemma2", 46), ("gemma3", 62)])
def test_scores_of_the_largest_gemma_have_the_scale_of_a_part_of_the_vector(
    kind: str, layers: int
) -> None:
    """As transformers' configurations of these models say: 1 / sqrt(size / heads)."""
    metadata = (GEMMA2_GGUF if kind == "gemma2" else GEMMA3_GGUF) | {
        f"{kind}.attention.sliding_window": 8, f"{kind}.attention.key_length": 32,
    }  # fmt: skip
    usual = from_gguf(metadata, {}, "")
    largest = from_gguf(metadata | {f"{kind}.block_count": layers}, {}, "")
    assert usual.scores.scale == 32**-0.5
    assert largest.scores.scale == (64 / 4) ** -0.5


def test_old_files_of_gemma2_have_usual_windows_and_bounds() -> None:
    config = from_gguf(GEMMA2_GGUF | {"gemma2.block_count": 3}, {}, "")
    assert config.windows == (4096, None, 4096)
    assert (config.scores.bound, config.logit_bound) == (50.0, 30.0)


def test_older_files_of_phi3_name_long_rotations_su() -> None:
    old = _long(rope_type=None, type="su")
    assert from_hugging_face({**PLAIN, **old}, "") == from_hugging_face({**PLAIN, **_long()}, "")


def test_gguf_files_have_divisors_of_long_texts_as_tensors() -> None:
    changes = {
        "phi3.rope.dimension_count": 8, "phi3.rope.scaling.original_context_length": 8,
        "phi3.rope.scaling.attn_factor": 1.25,
    }  # fmt: skip
    divisors = {
        "rope_factors_short.weight": lm.ones((4,)), "rope_factors_long.weight": 2 * lm.ones((4,))
    }
    config = from_gguf(PHI3_GGUF | changes, divisors, "")
    assert config.rope.size == 8
    assert config.rope.scaling == LongScaling((1.0,) * 4, (2.0,) * 4, 8, 1.25)
