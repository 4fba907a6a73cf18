"""Small models as GGUF files, written by the `gguf` package."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.models.families import reference
from tests.text.tables import tables

NAMES = {
    "model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output",
    "input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}  # fmt: skip


def gguf_name(name: str) -> str:
    stem, _, kind = name.rpartition(".")
    if stem in NAMES:
        return f"{NAMES[stem]}.{kind}"
    number, _, part = stem.removeprefix("model.layers.").partition(".")
    return f"blk.{number}.{NAMES[part]}.{kind}"


def neighbours_paired(weight: np.ndarray, heads: int) -> np.ndarray:
    """Rows as llama.cpp's converter orders them: those that are turned together are neighbours."""
    halves = weight.reshape(heads, 2, -1, *weight.shape[1:])
    return np.ascontiguousarray(halves.swapaxes(1, 2)).reshape(weight.shape)


def written(name: str, path: Path, **changes: Any) -> Any:
    """The model of transformers `name` with a vocabulary of 600 tokens, whose matrices are those
    that the file at `path` has in Q8_0 and Q4_1; changes: of the metadata."""
    gguf, torch = pytest.importorskip("gguf"), pytest.importorskip("torch")
    model = reference(name, vocab_size=600)
    config, arch = model.config, model.config.model_type
    kinds = gguf.GGMLQuantizationType
    writer = gguf.GGUFWriter(path, arch)
    metadata = {
        f"{arch}.embedding_length": config.hidden_size,
        f"{arch}.feed_forward_length": config.intermediate_size,
        f"{arch}.block_count": config.num_hidden_layers,
        f"{arch}.attention.head_count": config.num_attention_heads,
        f"{arch}.attention.head_count_kv": config.num_key_value_heads,
        f"{arch}.attention.key_length": config.head_dim if arch == "qwen3" else 16,
        f"{arch}.attention.layer_norm_rms_epsilon": config.rms_norm_eps,
        f"{arch}.context_length": config.max_position_embeddings,
        f"{arch}.rope.freq_base": config.rope_parameters["rope_theta"],
        **tables("smollm"),
    } | changes  # fmt: skip
    for key, value in metadata.items():
        if isinstance(value, str):
            writer.add_string(key, value)
        elif isinstance(value, float):
            writer.add_float32(key, value)
        elif isinstance(value, int):
            writer.add_uint32(key, value)
        else:
            writer.add_array(key, list(map(int, value)) if key.endswith("type") else list(value))
    for key, parameter in model.named_parameters():
        weight = parameter.detach().numpy()
        if weight.ndim == 2:
            kind = kinds.Q8_0 if weight.shape[0] == 600 else kinds.Q4_1
            blocks = gguf.quants.quantize(weight, kind)
            with torch.no_grad():
                parameter.copy_(torch.tensor(gguf.quants.dequantize(blocks, kind)))
            if arch == "llama" and key.endswith(("q_proj.weight", "k_proj.weight")):
                blocks = neighbours_paired(blocks, weight.shape[0] // config.head_dim)
            writer.add_tensor(gguf_name(key), blocks, raw_dtype=kind)
        else:
            writer.add_tensor(gguf_name(key), weight)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return model
