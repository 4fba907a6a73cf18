"""Small models of each family with random weights, as transformers makes and saves them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

SIZES = {
    "vocab_size": 96, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64,
    "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": None,
}  # fmt: skip
LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 500.0, "factor": 8.0, "low_freq_factor": 1.0,
    "high_freq_factor": 4.0, "original_max_position_embeddings": 32,
}  # fmt: skip
YARN = {
    "rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0,
    "original_max_position_embeddings": 16,
}  # fmt: skip
PARTIAL = {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5}
LONG = {
    "rope_parameters": {
        "rope_type": "longrope", "rope_theta": 1000.0, "partial_rotary_factor": 0.5,
        "short_factor": [1.0, 1.1, 1.3, 1.7], "long_factor": [1.0, 1.5, 3.0, 9.0],
    }
}  # fmt: skip
SLIDING = {"use_sliding_window": True, "sliding_window": 5}
LLAMA4 = {
    "head_dim": 16, "intermediate_size_mlp": 80, "num_hidden_layers": 4, "num_local_experts": 4,
    "interleave_moe_layer_step": 2, "no_rope_layer_interval": 3, "attention_chunk_size": 5,
    "floor_scale": 6, "attn_scale": 0.3,
}  # fmt: skip
GEMMA3_ROPES = {
    "full_attention": {"rope_type": "linear", "rope_theta": 5e4, "factor": 4.0},
    "sliding_attention": {"rope_type": "default", "rope_theta": 1e3},
}
EXPERTS = {"num_experts": 6, "num_experts_per_tok": 3, "moe_intermediate_size": 32}
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", {}),
    "smollm": ("Llama", {"tie_word_embeddings": True, "num_key_value_heads": 1}),
    "llama with biases": ("Llama", {"attention_bias": True, "mlp_bias": True}),
    "llama 3.1": ("Llama", {"rope_parameters": LLAMA3, "head_dim": 32}),
    "linear": ("Llama", {"rope_parameters": {"rope_type": "linear", "factor": 2.5}}),
    "yarn": ("Llama", {"rope_parameters": YARN}),
    "mistral": ("Mistral", {"sliding_window": 5, "head_dim": 16}),
    "qwen2": ("Qwen2", {"rms_norm_eps": 1e-5}),
    "qwen3": ("Qwen3", {"head_dim": 32, "tie_word_embeddings": True}),
    "qwen2 with windows": ("Qwen2", SLIDING | {"max_window_layers": 1}),
    "qwen3 with windows": ("Qwen3", SLIDING | {"max_window_layers": 0, "head_dim": 16}),
    "qwen2 with experts and windows": (
        "Qwen2Moe", SLIDING | EXPERTS | {"shared_expert_intermediate_size": 48}
    ),
    "qwen3 with experts and windows": ("Qwen3Moe", SLIDING | EXPERTS),
    "phi3": ("Phi3", {"sliding_window": 6}),
    "phi4": ("Phi3", {"rope_parameters": PARTIAL, "tie_word_embeddings": True}),
    "phi4 of short texts": ("Phi3", LONG | {"original_max_position_embeddings": 32}),
    "phi4 of long texts": ("Phi3", LONG | {"original_max_position_embeddings": 16}),
    "mixtral": ("Mixtral", {"num_local_experts": 4}),
    "mixtral, many experts": (
        "Mixtral", {"num_local_experts": 20, "num_experts_per_tok": 3, "sliding_window": 7}
    ),
    "qwen2 with experts": (
        "Qwen2Moe", EXPERTS | {"shared_expert_intermediate_size": 48, "decoder_sparse_step": 2}
    ),
    "qwen3 with experts": (
        "Qwen3Moe", EXPERTS | {"norm_topk_prob": True, "mlp_only_layers": [0], "head_dim": 32}
    ),
    "qwen2 with experts everywhere": (
        "Qwen2Moe", EXPERTS | {"shared_expert_intermediate_size": 64}
    ),
    "qwen3 with experts everywhere": ("Qwen3Moe", EXPERTS | {"norm_topk_prob": True}),
    "gpt2": ("GPT2", {"n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 64}),
    "gemma": ("Gemma", {"head_dim": 32}),
    "gemma2": ("Gemma2", {"head_dim": 16, "sliding_window": 5, "query_pre_attn_scalar": 24}),
    "gemma3": (
        "Gemma3", {"head_dim": 16, "sliding_window": 5, "sliding_window_pattern": 2,
                   "rope_parameters": GEMMA3_ROPES}
    ),
    "olmo": ("Olmo", {"clip_qkv": 0.7}),
    "olmo without bounds": ("Olmo", {"attention_bias": True, "tie_word_embeddings": True}),
    "olmo2": ("Olmo2", {}),
    "llama4": ("Llama4", LLAMA4),
    "llama4 that sees all": (
        "Llama4", LLAMA4 | {"attention_chunk_size": None, "use_qk_norm": False,
                            "attn_temperature_tuning": False, "num_experts_per_tok": 2}
    ),
    "phi": ("Phi", {"partial_rotary_factor": 0.25}),
    "gemma3 in files": (
        "Gemma3", {"head_dim": 16, "sliding_window": 5, "num_hidden_layers": 7,
                   "query_pre_attn_scalar": 16, "rope_parameters": GEMMA3_ROPES}
    ),
    "gemma2 in files": (
        "Gemma2", {"head_dim": 16, "sliding_window": 5, "num_hidden_layers": 3,
                   "query_pre_attn_scalar": 16, "attn_logit_softcapping": 2.0,
                   "final_logit_softcapping": 3.0}
    ),
    "gemma2 without bounds": (
        "Gemma2", {"head_dim": 32, "attn_logit_softcapping": None, "final_logit_softcapping": None}
    ),
}  # fmt: skip


def reference(name: str, **sizes: int) -> Any:
    """The model of transformers, float32. Normalizations and biases are drawn as well."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    kind, changes = FAMILIES[name]
    torch.manual_seed(0)
    kind_of_head = "LMHeadModel" if kind == "GPT2" else "ForCausalLM"
    kind_of_model = getattr(transformers, f"{kind}{kind_of_head}")
    model = kind_of_model(kind_of_model.config_class(**SIZES | changes | sizes)).eval()
    for weight in model.parameters():
        with torch.no_grad():
            weight.copy_(torch.randn_like(weight) * (0.3 if weight.ndim == 1 else 0.15))
    return model


def saved(name: str, folder: Path, **settings: Any) -> Any:
    """`reference`, which is in `folder` as well."""
    model = reference(name)
    model.save_pretrained(folder, **settings)
    return model
