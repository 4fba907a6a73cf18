"""Gemma 1 to 3. Gemma 2 and 3 have layers with and without a sliding window, and normalizations
before and after each part of a layer. Gemma 2 bounds scores and logits by a hyperbolic tangent;
Gemma 3 normalizes queries and keys instead, and its layers with a window have a rotation of their
own.

Sources: Gemma Team 2024, "Gemma: open models based on Gemini research and technology"; Gemma Team
2024, "Gemma 2: improving open language models at a practical size"; Gemma Team
2025, "Gemma 3 technical report". Attributes are named as in the files of the Hugging Face hub.
Normalizations multiply vectors by 1 plus their weight.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from lamina.frontend.functions.elementwise import gelu, tanh
from lamina.frontend.tensor import Tensor
from lamina.models.fields import (
    MAX_LAYERS,
    Fields,
    bound_of,
    check_activation,
    check_flags,
    head_counts,
    head_size_of,
    layer_kinds,
    rope_of,
    scaling_of,
    theta_of,
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

__all__ = ["Gemma", "GemmaConfig", "read_gemma", "read_gemma2", "read_gemma3"]


@dataclass(frozen=True)
class GemmaConfig:
    """What tells the models of the family apart.

    windows: of each layer, how many tokens before it, itself included, a token sees; None for all.
    rope: of layers without a window; local_rope: of those with one. scores: the scale and the bound
    of attention. logit_bound: of the result, if it has one."""

    vocabulary: int
    size: int  # of the vector of a token
    inner: int  # of the gated layers
    windows: tuple[int | None, ...]
    heads: int
    key_heads: int
    head_size: int
    rope: Rope
    local_rope: Rope
    scores: Scores
    logit_bound: float | None
    eps: float
    context: int  # tokens that the model was trained for
    normalizes_heads: bool = False
    norm_offset: float = 1.0  # added to weights of normalizations; 0 where a file has done it
    has_result_norms: bool = True  # of what comes out of the parts of a layer


class Gemma(LanguageModel):
    """The last projection has the weight of the lookup."""

    def __init__(self, config: GemmaConfig, source: Source) -> None:
        self.config = config
        self.vocabulary = config.vocabulary
        key_heads = divided(config.key_heads, source.over, "heads of keys")
        layers, size = len(config.windows), config.head_size
        self.keys = KeyShape(layers, key_heads, size, source.activations)
        self.model = _Decoder(config, source)
        source.ignore("lm_head.weight")

    def vectors(
        self, ids: Tensor, caches: Sequence[KeyValues | None], first: Tensor | None
    ) -> Tensor:
        config, places = self.config, Places(ids.shape[1], first, ids.device)
        positions = places.positions()
        rotation, local_rotation = config.rope.at(positions), config.local_rope.at(positions)
        x = self.model.embed_tokens(ids) * math.sqrt(config.size)
        for layer, window, cache in zip(self.model.layers, config.windows, caches, strict=True):
            turned = rotation if window is None else local_rotation
            x = layer(x, turned, replace(places, window=window), cache)
        return x

    def logits(self, x: Tensor) -> Tensor:
        logits = self.model.embed_tokens.project(self.model.norm(x))
        bound = self.config.logit_bound
        if bound is not None:
            logits = tanh(logits / bound) * bound
        return logits


class _Decoder:
    def __init__(self, config: GemmaConfig, source: Source) -> None:
        self.embed_tokens = Lookup(
            source, "model.embed_tokens", config.vocabulary, config.size, projects=True
        )
        self.layers = [
            _Layer(config, source, f"model.layers.{number}")
            for number in range(len(config.windows))
        ]
        self.norm = RMSNorm(
            source, "model.norm", config.size, config.eps, offset=config.norm_offset
        )


class _Layer:
    """In files without normalizations of results, that before the inner layer has the name which
    in others that after attention has."""

    def __init__(self, config: GemmaConfig, source: Source, name: str) -> None:
        size = config.size
        has_results = config.has_result_norms

        def norm(part: str) -> RMSNorm:
            return RMSNorm(
                source, f"{name}.{part}_layernorm", size, config.eps, offset=config.norm_offset
            )

        self.input_layernorm = norm("input")
        self.self_attn = SelfAttention(
            source, f"{name}.self_attn", size, config.heads, config.key_heads, config.head_size,
            norm_eps=config.eps if config.normalizes_heads else None,
            norm_offset=config.norm_offset, scores=config.scores,
        )  # fmt: skip
        self.post_attention_layernorm = norm("post_attention")
        self.pre_feedforward_layernorm = norm("pre_feedforward") if has_results else None
        activation = partial(gelu, approximate="tanh")
        self.mlp = Gated(source, f"{name}.mlp", size, config.inner, activation=activation)
        self.post_feedforward_layernorm = norm("post_feedforward") if has_results else None

    def __call__(
        self, x: Tensor, rotation: Rotation, places: Places, cache: KeyValues | None
    ) -> Tensor:
        mixed = self.self_attn(self.input_layernorm(x), rotation, places, cache)
        if self.pre_feedforward_layernorm is None or self.post_feedforward_layernorm is None:
            x = x + mixed
            return x + self.mlp(self.post_attention_layernorm(x))
        x = x + self.post_attention_layernorm(mixed)
        inner = self.mlp(self.pre_feedforward_layernorm(x))
        return x + self.post_feedforward_layernorm(inner)


# Configurations.


def read_gemma(fields: Fields) -> GemmaConfig:
    """Of Gemma 1. Raises FormatError, which names the field, for what is not supported."""
    check_activation(fields, "hidden_act", "gelu_pytorch_tanh", "gelu")  # all mean the first
    head_size = head_size_of(fields, "head_dim", 256)
    context = fields.size("max_position_embeddings", 8192)
    rope = rope_of(fields, head_size, context)
    layers = fields.size("num_hidden_layers", largest=MAX_LAYERS)
    return GemmaConfig(
        **_sizes(fields, head_size),
        windows=(None,) * layers,
        rope=rope,
        local_rope=rope,
        scores=Scores(head_size**-0.5),
        logit_bound=None,
        context=context,
        has_result_norms=False,
    )


def read_gemma2(fields: Fields) -> GemmaConfig:
    """Of Gemma 2. Raises FormatError, which names the field, for what is not supported."""
    head_size = head_size_of(fields, "head_dim", 256)
    context = fields.size("max_position_embeddings", 8192)
    rope = rope_of(fields, head_size, context)
    return GemmaConfig(
        **_sizes(fields, head_size),
        windows=_windows(fields, every=2),
        rope=rope,
        local_rope=rope,
        scores=_scores(fields, bound_of(fields, "attn_logit_softcapping", 50.0)),
        logit_bound=bound_of(fields, "final_logit_softcapping", 30.0),
        context=context,
    )


def read_gemma3(fields: Fields) -> GemmaConfig:
    """Of Gemma 3, its text part alone: files with a part for images have another ``model_type``.
    Raises FormatError, which names the field, for what is not supported."""
    head_size = head_size_of(fields, "head_dim", 256)
    context = fields.size("max_position_embeddings", 131072)
    for name in ("attn_logit_softcapping", "final_logit_softcapping"):
        if fields.get(name) is not None:
            raise fields.fail(name, f"{fields.get(name)!r}; models of this family have none")
    local_theta = theta_of(fields, "rope_local_base_freq", 1e4)
    every = fields.size("sliding_window_pattern", fields.size("_sliding_window_pattern", 6))
    return GemmaConfig(
        **_sizes(fields, head_size),
        windows=_windows(fields, every),
        rope=_rope(fields, _FULL, theta_of(fields, "rope_theta", 1e6), head_size, context),
        local_rope=_rope(fields, _SLIDING, local_theta, head_size, context),
        scores=_scores(fields, None),
        logit_bound=None,
        context=context,
        normalizes_heads=True,
    )


def _sizes(fields: Fields, head_size: int) -> dict[str, Any]:
    """The fields of a configuration that all families have, by their names in it."""
    check_activation(fields, "hidden_activation", "gelu_pytorch_tanh")
    check_flags(fields, "tie_word_embeddings")
    check_flags(fields, "attention_bias", "use_bidirectional_attention", value=False)
    heads = head_counts(fields)
    return {
        "vocabulary": fields.size("vocab_size"),
        "size": fields.size("hidden_size"),
        "inner": fields.size("intermediate_size"),
        "heads": heads.queries,
        "key_heads": heads.keys,
        "head_size": head_size,
        "eps": fields.number("rms_norm_eps", 1e-6),
    }


def _scores(fields: Fields, score_bound: float | None) -> Scores:
    return Scores(fields.number("query_pre_attn_scalar", 256) ** -0.5, score_bound)


_FULL, _SLIDING = "full_attention", "sliding_attention"


def _windows(fields: Fields, every: int) -> tuple[int | None, ...]:
    """Of each layer: all have one but each `every`-th, unless ``layer_types`` says otherwise."""
    layers = fields.size("num_hidden_layers", largest=MAX_LAYERS)
    usual = [_SLIDING if number % every else _FULL for number in range(1, layers + 1)]
    window = fields.size("sliding_window", 4096)
    return tuple(window if kind == _SLIDING else None for kind in layer_kinds(fields, usual))


def _rope(fields: Fields, kind: str, theta: float, head_size: int, context: int) -> Rope:
    """Of layers of one kind: ``rope_parameters``; in older files ``rope_scaling``, which is of the
    layers without a window. theta: where ``rope_parameters`` do not say it."""
    of_kinds = fields.part("rope_parameters")
    if of_kinds.values and kind not in of_kinds.values:
        raise of_kinds.fail(kind, "missing")
    parameters = of_kinds.part(kind)
    theta = theta_of(parameters, "rope_theta", theta)
    if kind == _FULL and not parameters.values:
        parameters = fields.part("rope_scaling")
    return Rope(head_size, theta, scaling_of(parameters, context))
