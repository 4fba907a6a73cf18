"""Gemma 2: layers with and without a sliding window in turns, scores and logits that are bounded by
a hyperbolic tangent, and normalizations before and after each part of a layer.

Source: Gemma Team 2024, "Gemma 2: improving open language models at a practical size". Attributes
are named as in the files of the Hugging Face hub. Weights of normalizations are what is added to 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from lamina.frontend.functions.elementwise import gelu, tanh
from lamina.frontend.tensor import Tensor
from lamina.models.fields import (
    MOST_LAYERS,
    Fields,
    bound,
    check_activation,
    check_flags,
    head_counts,
    head_size_of,
    layer_kinds,
    rope_of,
)
from lamina.models.language_model import KeyShape, LanguageModel
from lamina.models.parts import (
    Gated,
    KeyValues,
    Lookup,
    Places,
    RMSNorm,
    Scores,
    SelfAttention,
)
from lamina.models.rope import Rope, Rotation
from lamina.models.sharing import divided
from lamina.models.weights import Source

__all__ = ["Gemma2", "Gemma2Config", "read"]


@dataclass(frozen=True)
class Gemma2Config:
    """What tells the models of the family apart.

    windows: of each layer, how many tokens before it, itself included, a token sees; None for all.
    scores: the scale and the bound of attention. logit_bound: of the result, if it has one."""

    vocabulary: int
    size: int  # of the vector of a token
    inner: int  # of the gated layers
    windows: tuple[int | None, ...]
    heads: int
    key_heads: int
    head_size: int
    rope: Rope
    scores: Scores
    logit_bound: float | None
    eps: float
    context: int  # tokens that the model was trained for


class Gemma2(LanguageModel):
    """The last projection has the weight of the lookup."""

    def __init__(self, config: Gemma2Config, source: Source) -> None:
        self.config = config
        key_heads = divided(config.key_heads, source.over, "heads of keys")
        layers, size = len(config.windows), config.head_size
        self.keys = KeyShape(layers, key_heads, size, source.activations)
        self.model = _Decoder(config, source)
        source.ignore("lm_head.weight")

    def vectors(
        self, ids: Tensor, caches: Sequence[KeyValues | None], first: Tensor | None
    ) -> Tensor:
        config, places = self.config, Places(ids.shape[1], first, ids.device)
        rotation = config.rope.at(places.positions())
        x = self.model.embed_tokens(ids) * math.sqrt(config.size)
        for layer, window, cache in zip(self.model.layers, config.windows, caches, strict=True):
            x = layer(x, rotation, replace(places, window=window), cache)
        return x

    def logits(self, x: Tensor) -> Tensor:
        logits = self.model.embed_tokens.project(self.model.norm(x))
        bound = self.config.logit_bound
        if bound is not None:
            logits = tanh(logits / bound) * bound
        return logits


class _Decoder:
    def __init__(self, config: Gemma2Config, source: Source) -> None:
        self.embed_tokens = Lookup(
            source, "model.embed_tokens", config.vocabulary, config.size, projects=True
        )
        self.layers = [
            _Layer(config, source, f"model.layers.{number}")
            for number in range(len(config.windows))
        ]
        self.norm = RMSNorm(source, "model.norm", config.size, config.eps, offset=1.0)


class _Layer:
    def __init__(self, config: Gemma2Config, source: Source, name: str) -> None:
        size = config.size

        def norm(part: str) -> RMSNorm:
            return RMSNorm(source, f"{name}.{part}_layernorm", size, config.eps, offset=1.0)

        self.input_layernorm = norm("input")
        self.self_attn = SelfAttention(
            source, f"{name}.self_attn", size, config.heads, config.key_heads, config.head_size,
            scores=config.scores,
        )  # fmt: skip
        self.post_attention_layernorm = norm("post_attention")
        self.pre_feedforward_layernorm = norm("pre_feedforward")
        activation = partial(gelu, approximate="tanh")
        self.mlp = Gated(source, f"{name}.mlp", size, config.inner, activation=activation)
        self.post_feedforward_layernorm = norm("post_feedforward")

    def __call__(
        self, x: Tensor, rotation: Rotation, places: Places, cache: KeyValues | None
    ) -> Tensor:
        mixed = self.self_attn(self.input_layernorm(x), rotation, places, cache)
        x = x + self.post_attention_layernorm(mixed)
        inner = self.mlp(self.pre_feedforward_layernorm(x))
        return x + self.post_feedforward_layernorm(inner)


# Configurations.


def read(fields: Fields) -> Gemma2Config:
    check_activation(fields, "hidden_activation", "gelu_pytorch_tanh")
    check_flags(fields, "tie_word_embeddings")
    check_flags(fields, "attention_bias", "use_bidirectional_attention", value=False)
    heads, head_size = head_counts(fields), head_size_of(fields, "head_dim", 256)
    context = fields.size("max_position_embeddings", 8192)
    scale = fields.number("query_pre_attn_scalar", 256) ** -0.5
    return Gemma2Config(
        vocabulary=fields.size("vocab_size"),
        size=fields.size("hidden_size"),
        inner=fields.size("intermediate_size"),
        windows=_windows(fields),
        heads=heads.queries,
        key_heads=heads.keys,
        head_size=head_size,
        rope=rope_of(fields, head_size, context),
        scores=Scores(scale, bound(fields, "attn_logit_softcapping", 50.0)),
        logit_bound=bound(fields, "final_logit_softcapping", 30.0),
        eps=fields.number("rms_norm_eps", 1e-6),
        context=context,
    )


def _windows(fields: Fields) -> tuple[int | None, ...]:
    """Of each layer: those with an even number have one, unless ``layer_types`` says otherwise."""
    layers = fields.size("num_hidden_layers", largest=MOST_LAYERS)
    sliding, full = "sliding_attention", "full_attention"
    usual = [full if number % 2 else sliding for number in range(layers)]
    window = fields.size("sliding_window", 4096)
    return tuple(window if kind == sliding else None for kind in layer_kinds(fields, usual))
