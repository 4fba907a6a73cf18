"""GPT-2: learned positions in place of rotations, normalizations with biases, and layers that are
not gated.

Source: Radford et al. 2019, "Language models are unsupervised multitask learners". Attributes are
named as in the files of the Hugging Face hub, whose matrices are (inputs, outputs) here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lamina.frontend.functions.elementwise import gelu
from lamina.frontend.tensor import Tensor
from lamina.models.fields import (
    MAX_LAYERS,
    Fields,
    check_activation,
    check_flags,
    head_count,
)
from lamina.models.language_model import KeyShape, LanguageModel
from lamina.models.parts import (
    KeyValues,
    LayerNorm,
    Lookup,
    Places,
    TransposedProjection,
    attention,
    heads_of,
)
from lamina.models.sharing import Sharing, divided
from lamina.models.weights import Source, Weight

__all__ = ["GPT2", "GPT2Config", "read", "with_prefix"]


@dataclass(frozen=True)
class GPT2Config:
    """What tells the models of the family apart."""

    vocabulary: int
    size: int  # of the vector of a token
    inner: int
    layers: int
    heads: int
    context: int  # tokens that there are positions for
    eps: float = 1e-5  # of the normalizations


class GPT2(LanguageModel):
    """The last projection has the weight of the lookup."""

    def __init__(self, config: GPT2Config, source: Source) -> None:
        self.config = config
        self.vocabulary = config.vocabulary
        heads = divided(config.heads, source.over, "heads")
        size = config.size // config.heads
        self.keys = KeyShape(config.layers, heads, size, source.activations)
        self.transformer = _Decoder(config, source)
        source.ignore("lm_head.weight")

    def vectors(
        self, ids: Tensor, caches: Sequence[KeyValues | None], first: Tensor | None
    ) -> Tensor:
        places = Places(ids.shape[1], first, ids.device)
        positions = places.positions()
        if positions.ndim > 1:
            positions = positions[:, 0]  # (batch, 1, length): there are no heads here
        x = self.transformer.wte(ids) + self.transformer.wpe(positions)
        for layer, cache in zip(self.transformer.h, caches, strict=True):
            x = layer(x, places, cache)
        return x

    def logits(self, x: Tensor) -> Tensor:
        return self.transformer.wte.project(self.transformer.ln_f(x))


class _Decoder:
    def __init__(self, config: GPT2Config, source: Source) -> None:
        size = config.size
        self.wte = Lookup(source, "transformer.wte", config.vocabulary, size, projects=True)
        self.wpe = Lookup(source, "transformer.wpe", config.context, size, is_shared=False)
        self.h = [
            _Layer(config, source, f"transformer.h.{number}") for number in range(config.layers)
        ]
        self.ln_f = LayerNorm(source, "transformer.ln_f", size, config.eps)


class _Layer:
    def __init__(self, config: GPT2Config, source: Source, name: str) -> None:
        self.ln_1 = LayerNorm(source, f"{name}.ln_1", config.size, config.eps)
        self.attn = _Attention(config, source, f"{name}.attn")
        self.ln_2 = LayerNorm(source, f"{name}.ln_2", config.size, config.eps)
        self.mlp = _Inner(config, source, f"{name}.mlp")

    def __call__(self, x: Tensor, places: Places, cache: KeyValues | None) -> Tensor:
        x = x + self.attn(self.ln_1(x), places, cache)
        return x + self.mlp(self.ln_2(x))


class _Attention:
    """Queries, keys and values are parts of one product."""

    def __init__(self, config: GPT2Config, source: Source, name: str) -> None:
        size = config.size
        self.head_size, self._activations = size // config.heads, source.activations
        self.c_attn = TransposedProjection(
            source, f"{name}.c_attn", size, 3 * size, Sharing.OUTPUTS, pieces=3
        )
        self.c_proj = TransposedProjection(source, f"{name}.c_proj", size, size, Sharing.INPUTS)

    def __call__(self, x: Tensor, places: Places, cache: KeyValues | None) -> Tensor:
        parts = self.c_attn(x)
        size = parts.shape[-1] // 3  # of the heads that this process has
        query, key, value = (
            heads_of(parts[..., at : at + size], self.head_size) for at in range(0, 3 * size, size)
        )
        activations = self._activations
        return self.c_proj(attention(query, key, value, places, cache, activations=activations))


class _Inner:
    def __init__(self, config: GPT2Config, source: Source, name: str) -> None:
        size, inner = config.size, config.inner
        self.c_fc = TransposedProjection(source, f"{name}.c_fc", size, inner, Sharing.OUTPUTS)
        self.c_proj = TransposedProjection(source, f"{name}.c_proj", inner, size, Sharing.INPUTS)

    def __call__(self, x: Tensor) -> Tensor:
        return self.c_proj(gelu(self.c_fc(x), "tanh"))


# Configurations and weights of a folder.


def read(fields: Fields) -> GPT2Config:
    """Of ``config.json``. Raises FormatError, which names the field, for what is not supported."""
    check_activation(fields, "activation_function", "gelu_new", "gelu_pytorch_tanh")
    check_flags(fields, "scale_attn_weights", "tie_word_embeddings")
    check_flags(fields, "scale_attn_by_inverse_layer_idx", "add_cross_attention", value=False)
    size = fields.size("n_embd")
    heads = head_count(fields, "n_head", size)
    return GPT2Config(
        vocabulary=fields.size("vocab_size"),
        size=size,
        inner=fields.size("n_inner", 4 * size),
        layers=fields.size("n_layer", largest=MAX_LAYERS),
        heads=heads,
        context=fields.size("n_positions", 1024),
        eps=fields.number("layer_norm_epsilon", 1e-5),
    )


def with_prefix(weights: Mapping[str, Weight], config: GPT2Config) -> dict[str, Weight]:
    """The weights of old files by the names of new ones, which have a prefix."""
    return {
        f"transformer.{name}" if name.startswith(("wte.", "wpe.", "h.", "ln_f.")) else name: weight
        for name, weight in weights.items()
    }
