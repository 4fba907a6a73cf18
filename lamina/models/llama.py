"""Llama, and the models that differ from it by their configuration alone: SmolLM, Mistral (a
sliding window), Qwen 2 (biases of queries, keys and values), Qwen 3 (normalized queries and keys)
and Phi 3 (some matrices of a layer are one in its files; a rotation of parts of heads).

Source: Touvron et al. 2023, "LLaMA". Attributes are named as in the files of the Hugging Face hub.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lamina.frontend.tensor import Tensor
from lamina.models.language_model import KeyShape, LanguageModel
from lamina.models.parts import (
    Gated,
    KeyValues,
    Lookup,
    Places,
    Projection,
    RMSNorm,
    SelfAttention,
)
from lamina.models.rope import Rope, Rotation
from lamina.models.sharing import Sharing, divided
from lamina.models.weights import Source

__all__ = ["Llama", "LlamaConfig"]


@dataclass(frozen=True)
class LlamaConfig:
    """What tells the models of the family apart."""

    vocabulary: int
    size: int  # of the vector of a token
    inner: int  # of the gated layers
    layers: int
    heads: int
    key_heads: int
    head_size: int
    rope: Rope
    eps: float = 1e-6  # of the normalizations
    context: int = 2048  # tokens that the model was trained for
    tied: bool = False  # the last projection has the weight of the lookup
    window: int | None = None
    qkv_biases: bool = False
    output_bias: bool = False
    inner_biases: bool = False
    normalizes_heads: bool = False


class Llama(LanguageModel):
    """Tokens (batch, length) to the logits of each next token, (batch, length, vocabulary)."""

    def __init__(self, config: LlamaConfig, source: Source) -> None:
        self.config = config
        key_heads = divided(config.key_heads, source.over, "heads of keys")
        self.keys = KeyShape(config.layers, key_heads, config.head_size)
        self.model = _Decoder(config, source)
        self.lm_head: Projection | None = None
        if not config.tied:
            self.lm_head = Projection(
                source, "lm_head", config.size, config.vocabulary, sharing=Sharing.LOGITS
            )
        else:
            source.ignore("lm_head.weight")

    def vectors(
        self, ids: Tensor, caches: Sequence[KeyValues | None], first: Tensor | None
    ) -> Tensor:
        places = Places(ids.shape[1], first, ids.device, self.config.window)
        rotation = self.config.rope.at(places.positions())
        x = self.model.embed_tokens(ids)
        for layer, cache in zip(self.model.layers, caches, strict=True):
            x = layer(x, rotation, places, cache)
        return x

    def logits(self, x: Tensor) -> Tensor:
        x = self.model.norm(x)
        return self.model.embed_tokens.project(x) if self.lm_head is None else self.lm_head(x)


class _Decoder:
    def __init__(self, config: LlamaConfig, source: Source) -> None:
        self.embed_tokens = Lookup(
            source, "model.embed_tokens", config.vocabulary, config.size, projects=config.tied
        )
        self.layers = [
            _Layer(config, source, f"model.layers.{number}") for number in range(config.layers)
        ]
        self.norm = RMSNorm(source, "model.norm", config.size, config.eps)


class _Layer:
    def __init__(self, config: LlamaConfig, source: Source, name: str) -> None:
        size = config.size
        self.input_layernorm = RMSNorm(source, f"{name}.input_layernorm", size, config.eps)
        self.self_attn = SelfAttention(
            source, f"{name}.self_attn", size, config.heads, config.key_heads, config.head_size,
            config.qkv_biases, config.output_bias, config.eps if config.normalizes_heads else None,
        )  # fmt: skip
        self.post_attention_layernorm = RMSNorm(
            source, f"{name}.post_attention_layernorm", size, config.eps
        )
        self.mlp = Gated(source, f"{name}.mlp", size, config.inner, config.inner_biases)

    def __call__(
        self, x: Tensor, rotation: Rotation, places: Places, cache: KeyValues | None
    ) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), rotation, places, cache)
        return x + self.mlp(self.post_attention_layernorm(x))
