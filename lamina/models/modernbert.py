"""ModernBERT: rotations in place of learned positions, gated layers, no biases, and windows.

In most layers a token sees its neighbours alone: those at most half a window before or behind it.
Source: Warner et al. 2024, "Smarter, Better, Faster, Longer". Attributes are named as in the files
of the Hugging Face hub.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lamina.frontend.functions.attention import scaled_dot_product_attention
from lamina.frontend.functions.creation import arange
from lamina.frontend.functions.elementwise import gelu
from lamina.frontend.tensor import Tensor
from lamina.models.fields import (
    MAX_LAYERS,
    Fields,
    check_activation,
    check_flags,
    head_count,
    head_size_of,
    layer_kinds,
    theta_of,
)
from lamina.models.parts import LayerNorm, Lookup, Projection, heads_of
from lamina.models.rope import Rope, Rotation
from lamina.models.sharing import Sharing, divided
from lamina.models.text_encoder import TextEncoder, without_heads
from lamina.models.weights import Source, Weight

__all__ = ["ModernBert", "ModernBertConfig", "read", "renamed"]


@dataclass(frozen=True)
class ModernBertConfig:
    """What tells the models of the family apart."""

    vocabulary: int
    size: int  # of the vector of a token
    inner: int  # of the gated layers
    are_local: tuple[bool, ...]  # of each layer, whether it has a window
    heads: int
    local_rope: Rope
    global_rope: Rope
    reach: int  # tokens before and behind its own that a token sees in a local layer
    eps: float = 1e-5  # of the normalizations
    context: int = 8192  # the most tokens of a text


class ModernBert(TextEncoder):
    def __init__(self, config: ModernBertConfig, source: Source) -> None:
        self.config = config
        divided(config.heads, source.over, "heads")
        self.embeddings = _Embeddings(config, source)
        names = (f"layers.{number}" for number in range(len(config.are_local)))
        self.layers = [_Layer(config, source, name) for name in names]
        self.final_norm = LayerNorm(source, "final_norm", config.size, config.eps, bias=False)

    def vectors(self, ids: Tensor, seen: Tensor | None) -> Tensor:
        positions = arange(ids.shape[1], device=ids.device)
        distances = abs(positions.unsqueeze(1) - positions)
        near = distances <= self.config.reach
        seen_near = near if seen is None else seen & near
        local_rotation = self.config.local_rope.at(positions)
        global_rotation = self.config.global_rope.at(positions)
        x = self.embeddings(ids)
        for layer, is_local in zip(self.layers, self.config.are_local, strict=True):
            rotation = local_rotation if is_local else global_rotation
            x = layer(x, rotation, seen_near if is_local else seen)
        return self.final_norm(x)


class _Embeddings:
    def __init__(self, config: ModernBertConfig, source: Source) -> None:
        self.tok_embeddings = Lookup(
            source, "embeddings.tok_embeddings", config.vocabulary, config.size
        )
        self.norm = LayerNorm(source, "embeddings.norm", config.size, config.eps, bias=False)

    def __call__(self, ids: Tensor) -> Tensor:
        return self.norm(self.tok_embeddings(ids))


class _Layer:
    """The first one has no normalization before its attention, as the embeddings end with one."""

    def __init__(self, config: ModernBertConfig, source: Source, name: str) -> None:
        self.attn_norm: LayerNorm | None = None
        if name != "layers.0":
            self.attn_norm = _norm(config, source, f"{name}.attn_norm")
        self.attn = _Attention(config, source, f"{name}.attn")
        self.mlp_norm = _norm(config, source, f"{name}.mlp_norm")
        self.mlp = _Gated(config, source, f"{name}.mlp")

    def __call__(self, x: Tensor, rotation: Rotation, seen: Tensor | None) -> Tensor:
        normalized = x if self.attn_norm is None else self.attn_norm(x)
        x = x + self.attn(normalized, rotation, seen)
        return x + self.mlp(self.mlp_norm(x))


def _norm(config: ModernBertConfig, source: Source, name: str) -> LayerNorm:
    return LayerNorm(source, name, config.size, config.eps, bias=False)


class _Attention:
    """Queries, keys and values are parts of one product."""

    def __init__(self, config: ModernBertConfig, source: Source, name: str) -> None:
        size = config.size
        self._head_size = size // config.heads
        self.Wqkv = Projection(
            source, f"{name}.Wqkv", size, 3 * size, sharing=Sharing.OUTPUTS, pieces=3
        )
        self.Wo = Projection(source, f"{name}.Wo", size, size, sharing=Sharing.INPUTS)

    def __call__(self, x: Tensor, rotation: Rotation, seen: Tensor | None) -> Tensor:
        parts = self.Wqkv(x)
        size = parts.shape[-1] // 3  # of the heads that this process has
        query, key, value = (
            heads_of(parts[..., at : at + size], self._head_size)
            for at in range(0, 3 * size, size)
        )
        mixed = scaled_dot_product_attention(rotation(query), rotation(key), value, seen)
        return self.Wo(mixed.transpose(1, 2).flatten(2))


class _Gated:
    """Both projections of `lamina.models.parts.Gated` are one product."""

    def __init__(self, config: ModernBertConfig, source: Source, name: str) -> None:
        size, inner = config.size, config.inner
        self.Wi = Projection(
            source, f"{name}.Wi", size, 2 * inner, sharing=Sharing.OUTPUTS, pieces=2
        )
        self.Wo = Projection(source, f"{name}.Wo", inner, size, sharing=Sharing.INPUTS)

    def __call__(self, x: Tensor) -> Tensor:
        parts = self.Wi(x)
        inner = parts.shape[-1] // 2
        return self.Wo(gelu(parts[..., :inner]) * parts[..., inner:])


# Configurations and weights of a folder.

_LOCAL, _GLOBAL = "sliding_attention", "full_attention"


def read(fields: Fields) -> ModernBertConfig:
    """Of ``config.json``. Raises FormatError, which names the field, for what is not supported."""
    check_activation(fields, "hidden_activation", "gelu")
    check_flags(fields, "norm_bias", "attention_bias", "mlp_bias", value=False)
    size = fields.size("hidden_size")
    heads = head_count(fields, "num_attention_heads", size)
    head_size = head_size_of(fields, "head_dim", size // heads)
    if head_size * heads != size:
        reason = f"{head_size}; {heads} heads of {size} elements are needed"
        raise fields.fail("head_dim", reason)
    if fields.get("rope_scaling") is not None:
        raise fields.fail("rope_scaling", "models of this family have no scaled rotations")
    return ModernBertConfig(
        vocabulary=fields.size("vocab_size"),
        size=size,
        inner=fields.size("intermediate_size"),
        are_local=_are_local(fields),
        heads=heads,
        local_rope=_rope(fields, _LOCAL, "local_rope_theta", 1e4, head_size),
        global_rope=_rope(fields, _GLOBAL, "global_rope_theta", 1.6e5, head_size),
        reach=fields.size("local_attention", 128) // 2,
        eps=fields.number("norm_eps", 1e-5),
        context=fields.size("max_position_embeddings", 8192),
    )


def _are_local(fields: Fields) -> tuple[bool, ...]:
    """The first layer, and each third after it, see whole texts, unless ``layer_types`` says
    otherwise."""
    layers = fields.size("num_hidden_layers", largest=MAX_LAYERS)
    period = fields.size("global_attn_every_n_layers", 3)
    usual = [_LOCAL if number % period else _GLOBAL for number in range(layers)]
    return tuple(kind == _LOCAL for kind in layer_kinds(fields, usual))


def _rope(fields: Fields, kind: str, old_name: str, theta: float, head_size: int) -> Rope:
    """Of layers of one kind: ``rope_parameters``, or the field `old_name` in older files. theta:
    where neither says it."""
    parameters = fields.part("rope_parameters").part(kind)
    name = parameters.text("rope_type", "default")
    if name != "default":
        raise parameters.fail("rope_type", f"{name!r}; models of this family have 'default'")
    theta = theta_of(parameters, "rope_theta", theta_of(fields, old_name, theta))
    return Rope(head_size, theta)


def renamed(weights: Mapping[str, Weight], config: ModernBertConfig) -> dict[str, Weight]:
    """The weights of a folder by the names of a plain encoder."""
    return without_heads(weights, "model.", ("head.", "decoder."))
