"""Llama, and the models that differ from it by their configuration alone: SmolLM, Mistral (a
sliding window), Qwen 2 (biases of queries, keys and values) and Qwen 3 (normalized queries and
keys).

Source: Touvron et al. 2023, "LLaMA". Attributes are named as in the files of the Hugging Face hub.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lamina.errors import ShapeError
from lamina.frontend.tensor import Tensor
from lamina.models.paged import PagedCache
from lamina.models.parts import (
    Cache,
    Gated,
    KeyValues,
    Lookup,
    Places,
    Projection,
    RMSNorm,
    SelfAttention,
)
from lamina.models.rope import Rope, Rotation
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


class Llama:
    """Tokens (batch, length) to the logits of each next token, (batch, length, vocabulary)."""

    def __init__(self, config: LlamaConfig, source: Source) -> None:
        self.config = config
        self.model = _Decoder(config, source)
        self.lm_head: Projection | None = None
        if not config.tied:
            self.lm_head = Projection(source, "lm_head", config.size, config.vocabulary)
        else:
            source.ignore("lm_head.weight")

    def __call__(
        self, ids: Tensor, caches: Sequence[KeyValues] | None = None, first: Tensor | None = None,
        only: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        """caches: of each layer, which the tokens are added to; `first` is then the position of the
        first one, a scalar, or one for each text, (batch,); by default 0. only: the place among
        `ids`, a scalar, of the one token whose logits are wanted: (batch, 1, vocabulary).

        Raises ShapeError for ids that have no two axes, and for another number of caches."""
        if ids.ndim != 2:
            raise ShapeError(
                f"tokens of shape {ids.shape}; (batch, length) is needed", operation="Llama"
            )
        x = self.model(ids, caches, first)
        if only is not None:
            x = x.take(only.reshape((1,)), axis=1)
        x = self.model.norm(x)
        return self.model.embed_tokens.project(x) if self.lm_head is None else self.lm_head(x)

    def new_pages(self, pages: int, size: int, device: str | None = None) -> list[PagedCache]:
        """Empty ones for each layer: so many pages of `size` positions."""
        config = self.config
        return [
            PagedCache(config.key_heads, pages, size, config.head_size, device)
            for _ in range(config.layers)
        ]

    def new_caches(self, batch: int, capacity: int, device: str | None = None) -> list[Cache]:
        """Empty ones for each layer."""
        config = self.config
        return [
            Cache(batch, config.key_heads, capacity, config.head_size, device)
            for _ in range(config.layers)
        ]


class _Decoder:
    """The vectors of tokens after all layers, before the last normalization."""

    def __init__(self, config: LlamaConfig, source: Source) -> None:
        self._config = config
        self.embed_tokens = Lookup(
            source, "model.embed_tokens", config.vocabulary, config.size, projects=config.tied
        )
        self.layers = [
            _Layer(config, source, f"model.layers.{number}") for number in range(config.layers)
        ]
        self.norm = RMSNorm(source, "model.norm", config.size, config.eps)

    def __call__(
        self, ids: Tensor, caches: Sequence[KeyValues] | None, first: Tensor | None
    ) -> Tensor:
        if caches is not None and len(caches) != len(self.layers):
            raise ShapeError(
                f"{len(caches)} caches for {len(self.layers)} layers", operation="Llama"
            )
        places = Places(ids.shape[1], first, ids.device, self._config.window)
        rotation = self._config.rope.at(places.positions())
        x = self.embed_tokens(ids)
        for number, layer in enumerate(self.layers):
            x = layer(x, rotation, places, None if caches is None else caches[number])
        return x


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
