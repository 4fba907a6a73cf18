"""Phi 1, 1.5 and 2: attention and the inner layer see the same normalized vectors, so their results
are added at once; a part of each head is rotated, and all projections have biases.

Source: Gunasekar et al. 2023, "Textbooks are all you need". Attributes are named as in the files of
the Hugging Face hub.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lamina.frontend.functions.elementwise import gelu
from lamina.frontend.tensor import Tensor
from lamina.models.fields import (
    MAX_LAYERS,
    Fields,
    check_activation,
    check_flags,
    head_count,
    head_counts,
    rope_of,
)
from lamina.models.language_model import KeyShape, LanguageModel
from lamina.models.parts import (
    KeyValues,
    LayerNorm,
    Lookup,
    Places,
    Projection,
    attention,
    heads_of,
)
from lamina.models.rope import Rope, Rotation
from lamina.models.sharing import Sharing, divided
from lamina.models.weights import Source

__all__ = ["Phi", "PhiConfig", "read"]


@dataclass(frozen=True)
class PhiConfig:
    """What tells the models of the family apart."""

    vocabulary: int
    size: int  # of the vector of a token
    inner: int
    layers: int
    heads: int
    key_heads: int
    rope: Rope
    eps: float
    context: int  # tokens that the model was trained for

    @property
    def head_size(self) -> int:
        return self.size // self.heads


class Phi(LanguageModel):
    def __init__(self, config: PhiConfig, source: Source) -> None:
        self.config = config
        self.vocabulary = config.vocabulary
        key_heads = divided(config.key_heads, source.over, "heads of keys")
        self.keys = KeyShape(config.layers, key_heads, config.head_size, source.activations)
        self.model = _Decoder(config, source)
        self.lm_head = Projection(
            source, "lm_head", config.size, config.vocabulary, bias=True, sharing=Sharing.LOGITS
        )

    def vectors(
        self, ids: Tensor, caches: Sequence[KeyValues | None], first: Tensor | None
    ) -> Tensor:
        places = Places(ids.shape[1], first, ids.device)
        rotation = self.config.rope.at(places.positions())
        x = self.model.embed_tokens(ids)
        for layer, cache in zip(self.model.layers, caches, strict=True):
            x = layer(x, rotation, places, cache)
        return x

    def logits(self, x: Tensor) -> Tensor:
        return self.lm_head(self.model.final_layernorm(x))


class _Decoder:
    def __init__(self, config: PhiConfig, source: Source) -> None:
        self.embed_tokens = Lookup(source, "model.embed_tokens", config.vocabulary, config.size)
        self.layers = [
            _Layer(config, source, f"model.layers.{number}") for number in range(config.layers)
        ]
        self.final_layernorm = LayerNorm(source, "model.final_layernorm", config.size, config.eps)


class _Layer:
    def __init__(self, config: PhiConfig, source: Source, name: str) -> None:
        self.input_layernorm = LayerNorm(
            source, f"{name}.input_layernorm", config.size, config.eps
        )
        self.self_attn = _Attention(config, source, f"{name}.self_attn")
        self.mlp = _Inner(config, source, f"{name}.mlp")

    def __call__(
        self, x: Tensor, rotation: Rotation, places: Places, cache: KeyValues | None
    ) -> Tensor:
        normalized = self.input_layernorm(x)
        return x + self.self_attn(normalized, rotation, places, cache) + self.mlp(normalized)


class _Attention:
    def __init__(self, config: PhiConfig, source: Source, name: str) -> None:
        size, self.head_size = config.size, config.head_size
        self._activations = source.activations
        key_width = config.key_heads * config.head_size

        def heads(part: str, width: int) -> Projection:
            return Projection(
                source, f"{name}.{part}", size, width, bias=True, sharing=Sharing.OUTPUTS
            )

        self.q_proj = heads("q_proj", size)
        self.k_proj, self.v_proj = heads("k_proj", key_width), heads("v_proj", key_width)
        self.dense = Projection(
            source, f"{name}.dense", size, size, bias=True, sharing=Sharing.INPUTS
        )

    def __call__(
        self, x: Tensor, rotation: Rotation, places: Places, cache: KeyValues | None
    ) -> Tensor:
        query, key, value = (
            heads_of(project(x), self.head_size)
            for project in (self.q_proj, self.k_proj, self.v_proj)
        )
        query, key = rotation(query), rotation(key)
        mixed = attention(
            query, key, value, places, cache, activations=self._activations
        )
        return self.dense(mixed)


class _Inner:
    def __init__(self, config: PhiConfig, source: Source, name: str) -> None:
        size, inner = config.size, config.inner
        self.fc1 = Projection(
            source, f"{name}.fc1", size, inner, bias=True, sharing=Sharing.OUTPUTS
        )
        self.fc2 = Projection(source, f"{name}.fc2", inner, size, bias=True, sharing=Sharing.INPUTS)

    def __call__(self, x: Tensor) -> Tensor:
        return self.fc2(gelu(self.fc1(x), "tanh"))


# Configurations.


def read(fields: Fields) -> PhiConfig:
    """Of ``config.json``. Raises FormatError, which names the field, for what is not supported."""
    check_activation(fields, "hidden_act", "gelu_new", "gelu_pytorch_tanh")
    check_flags(fields, "tie_word_embeddings", "qk_layernorm", value=False)
    size, heads = fields.size("hidden_size"), head_counts(fields)
    head_size = size // head_count(fields, "num_attention_heads", size)
    context = fields.size("max_position_embeddings", 2048)
    return PhiConfig(
        vocabulary=fields.size("vocab_size"),
        size=size,
        inner=fields.size("intermediate_size"),
        layers=fields.size("num_hidden_layers", largest=MAX_LAYERS),
        heads=heads.queries,
        key_heads=heads.keys,
        rope=rope_of(fields, head_size, context, turned_share=0.5),
        eps=fields.number("layer_norm_eps", 1e-5),
        context=context,
    )
