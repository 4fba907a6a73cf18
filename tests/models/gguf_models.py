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
    "model.final_layernorm": "output_norm",
    "input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "self_attn.qkv_proj": "attn_qkv", "mlp.gate_up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
    "mlp.gate": "ffn_gate_inp",
    "mlp.shared_expert_gate": "ffn_gate_inp_shexp", "mlp.shared_expert.gate_proj": "ffn_gate_shexp",
    "mlp.shared_expert.up_proj": "ffn_up_shexp", "mlp.shared_expert.down_proj": "ffn_down_shexp",
}  # fmt: skip


def gguf_name(name: str, arch: str) -> str:
    stem, _, kind = name.rpartition(".")
    if stem in NAMES:
        return f"{NAMES[stem]}.{kind}"
    number, _, part = stem.removeprefix("model.layers.").partition(".")
    if part == "mlp.experts":
        return f"blk.{number}.ffn_{kind.removesuffix('_proj')}_exps.weight"
    return f"blk.{number}.{(NAMES | OTHERS.get(arch, {}))[part]}.{kind}"


def fused(tensors: dict[str, Any]) -> dict[str, Any]:
    """As old files of Phi 2 have them: the rows of queries, keys and values in one tensor."""
    result = dict[str, Any]()
    for name, (rows, kind) in tensors.items():
        stem, is_query, end = name.rpartition("attn_q.")
        if is_query:
            parts = [tensors[f"{stem}attn_{part}.{end}"][0] for part in "qkv"]
            result[f"{stem}attn_qkv.{end}"] = np.concatenate(parts), kind
        elif "attn_k." not in name and "attn_v." not in name:
            result[name] = rows, kind
    return result


def in_parts(key: str, weight: np.ndarray) -> dict[str, np.ndarray]:
    """Matrices of gates and of ups apart, where they are one."""
    stem, is_joined, _ = key.rpartition("experts.gate_up_proj")
    if not is_joined:
        return {key: weight}
    gates, ups = np.split(weight, 2, axis=1)
    return {f"{stem}experts.gate_proj": gates, f"{stem}experts.up_proj": ups}


def neighbours_paired(weight: np.ndarray, heads: int) -> np.ndarray:
    """Rows as llama.cpp's converter orders them: those that are turned together are neighbours."""
    halves = weight.reshape(heads, 2, -1, *weight.shape[1:])
    return np.ascontiguousarray(halves.swapaxes(1, 2)).reshape(weight.shape)


RESULTS = {
    "post_attention_layernorm": "post_attention_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}
GEMMA = RESULTS | {"pre_feedforward_layernorm": "ffn_norm"}
PHI2 = {"self_attn.dense": "attn_output", "mlp.fc1": "ffn_up", "mlp.fc2": "ffn_down"}
OTHERS = {"gemma2": GEMMA, "gemma3": GEMMA, "olmo2": RESULTS, "phi2": PHI2}
ARCHITECTURES = {
    "gemma3_text": "gemma3", "mixtral": "llama", "qwen2_moe": "qwen2moe", "qwen3_moe": "qwen3moe",
    "phi": "phi2",
}  # fmt: skip


def rotations_of(config: Any, arch: str) -> dict[str, Any]:
    """The metadata of rotations and windows."""
    window = getattr(config, "sliding_window", None)
    found = {f"{arch}.attention.sliding_window": window} if window else {}
    if arch == "gemma2":
        found |= {
            f"{arch}.attn_logit_softcapping": config.attn_logit_softcapping,
            f"{arch}.final_logit_softcapping": config.final_logit_softcapping,
        }
    if getattr(config, "clip_qkv", None):
        found |= {f"{arch}.attention.clamp_kqv": config.clip_qkv}
    if arch != "gemma3":
        ropes = config.rope_parameters
        turned = ropes.get("partial_rotary_factor", 1.0) * (getattr(config, "head_dim", None) or 16)
        found |= {f"{arch}.rope.dimension_count": int(turned)}
        return found | {f"{arch}.rope.freq_base": ropes["rope_theta"]}
    full, local = (config.rope_parameters[f"{kind}_attention"] for kind in ("full", "sliding"))
    return found | {
        f"{arch}.rope.freq_base": full["rope_theta"],
        f"{arch}.rope.freq_base_swa": local["rope_theta"],
        f"{arch}.rope.scaling.type": "linear",
        f"{arch}.rope.scaling.factor": full["factor"],
    }


def eps_of(config: Any, arch: str) -> dict[str, Any]:
    """The metadata of normalizations."""
    if hasattr(config, "rms_norm_eps"):
        return {f"{arch}.attention.layer_norm_rms_epsilon": config.rms_norm_eps}
    return {f"{arch}.attention.layer_norm_epsilon": getattr(config, "layer_norm_eps", 1e-5)}


def experts_of(config: Any, arch: str) -> dict[str, Any]:
    """The metadata of mixtures, all of whose layers have experts."""
    if not hasattr(config, "num_experts_per_tok"):
        return {}
    return {
        f"{arch}.expert_count": config.num_experts,
        f"{arch}.expert_used_count": config.num_experts_per_tok,
        f"{arch}.expert_feed_forward_length": getattr(config, "moe_intermediate_size", 96),
        f"{arch}.expert_shared_feed_forward_length":
            getattr(config, "shared_expert_intermediate_size", 1),
    }  # fmt: skip


def written(name: str, path: Path, is_fused: bool = False, **changes: Any) -> Any:
    """The model of transformers `name` with a vocabulary of 600 tokens, whose matrices are those
    that the file at `path` has in Q8_0 and Q4_1. is_fused: as `fused`. changes: of the metadata."""
    gguf = pytest.importorskip("gguf")
    model = reference(name, vocab_size=600)
    config = model.config
    arch = ARCHITECTURES.get(config.model_type, config.model_type)
    kinds = gguf.GGMLQuantizationType
    writer = gguf.GGUFWriter(path, arch)
    metadata = {
        f"{arch}.embedding_length": config.hidden_size,
        f"{arch}.feed_forward_length": config.intermediate_size,
        f"{arch}.block_count": config.num_hidden_layers,
        f"{arch}.attention.head_count": config.num_attention_heads,
        f"{arch}.attention.head_count_kv": config.num_key_value_heads,
        f"{arch}.attention.key_length": getattr(config, "head_dim", None) or 16,
        **eps_of(config, arch),
        f"{arch}.context_length": config.max_position_embeddings,
        **rotations_of(config, arch), **experts_of(config, arch), **tables("smollm"),
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
    tensors = dict[str, Any]()
    for key, parameter in model.named_parameters():
        for part, weight in in_parts(key, parameter.detach().numpy()).items():
            is_turned = arch in ("llama", "olmo") and key.rpartition(".")[0].endswith(
                ("q_proj", "k_proj")
            )
            if weight.ndim == 1 or weight.shape[0] == 1:
                offset = arch.startswith("gemma")  # of the weights of normalizations
                vector = weight.squeeze() + np.float32(offset)
                if is_turned:
                    vector = neighbours_paired(vector, vector.size // 16)
                tensors[gguf_name(part, arch)] = vector, None
                continue
            kind = kinds.Q8_0 if weight.shape[0] == 600 else kinds.Q4_1
            blocks = gguf.quants.quantize(np.ascontiguousarray(weight), kind)
            weight[...] = gguf.quants.dequantize(blocks, kind)  # of the model as well
            if is_turned:
                blocks = neighbours_paired(blocks, weight.shape[0] // 16)
            tensors[gguf_name(part, arch)] = blocks, kind
    for part, (values, kind) in (fused(tensors) if is_fused else tensors).items():
        writer.add_tensor(part, values, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return model
