"""OLMo 1 and 2. OLMo 1 is Llama with normalizations that have no weights, and queries, keys and
values that are bounded. OLMo 2 normalizes what comes out of the parts of a layer in place of what
goes into them, and all queries and all keys of a token.

Sources: Groeneveld et al. 2024, "OLMo: accelerating the science of language models"; OLMo Team
2024, "2 OLMo 2 Furious". Attributes are named as in the files of the Hugging Face hub.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from lamina.core.dtypes import float32
from lamina.distributed.layout import Layout
from lamina.distributed.tensor_parallel import enter_parallel, leave_parallel
from lamina.frontend.functions.elementwise import clip, sqrt
from lamina.frontend.functions.neural import layer_norm
from lamina.frontend.tensor import Tensor
from lamina.models.fields import Fields, check_flags
from lamina.models.llama import Llama, LlamaConfig, Variant
from lamina.models.llama import read as read_llama
from lamina.models.parts import Gated, KeyValues, Places, RMSNorm, SelfAttention, heads_of
from lamina.models.rope import Rotation
from lamina.models.sharing import Cut, layouts
from lamina.models.weights import Source

__all__ = ["Olmo", "Olmo2", "OlmoConfig", "read_olmo", "read_olmo2"]


@dataclass(frozen=True)
class OlmoConfig(LlamaConfig):
    """largest: bound of the absolute values in queries, keys and values; None where there is none.
    """

    largest: float | None = None


class Olmo(Llama):
    """OLMo 1."""

    config: OlmoConfig

    def new_layer(self, source: Source, number: int) -> Callable[..., Tensor]:
        return _OlmoLayer(self.config, source, f"model.layers.{number}")

    def new_norm(self, source: Source, name: str) -> Callable[[Tensor], Tensor]:
        return _normalized


def _normalized(x: Tensor) -> Tensor:
    """Vectors of mean 0 and variance 1."""
    return layer_norm(x, x.shape[-1], eps=1e-5)


class _OlmoLayer:
    def __init__(self, config: OlmoConfig, source: Source, name: str) -> None:
        self.self_attn = _BoundedAttention(config, source, f"{name}.self_attn")
        self.mlp = Gated(source, f"{name}.mlp", config.size, config.inner)

    def __call__(
        self, x: Tensor, rotation: Rotation, places: Places, cache: KeyValues | None
    ) -> Tensor:
        x = x + self.self_attn(_normalized(x), rotation, places, cache)
        return x + self.mlp(_normalized(x))


class _BoundedAttention(SelfAttention):
    """Elements of queries, keys and values are between -largest and largest."""

    def __init__(self, config: OlmoConfig, source: Source, name: str) -> None:
        super().__init__(
            source, name, config.size, config.heads, config.key_heads, config.head_size,
            config.qkv_biases, config.output_bias,
        )  # fmt: skip
        self.largest = config.largest

    def heads(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        query, key, value = super().heads(x)
        largest = self.largest
        if largest is None:
            return query, key, value
        return (
            clip(query, -largest, largest),
            clip(key, -largest, largest),
            clip(value, -largest, largest),
        )


class Olmo2(Llama):
    """OLMo 2."""

    def new_layer(self, source: Source, number: int) -> Callable[..., Tensor]:
        return _Olmo2Layer(self.config, source, f"model.layers.{number}")


class _Olmo2Layer:
    def __init__(self, config: LlamaConfig, source: Source, name: str) -> None:
        size, eps = config.size, config.eps
        self.self_attn = _NormalizedAttention(config, source, f"{name}.self_attn")
        self.post_attention_layernorm = RMSNorm(
            source, f"{name}.post_attention_layernorm", size, eps
        )
        self.mlp = Gated(source, f"{name}.mlp", size, config.inner)
        self.post_feedforward_layernorm = RMSNorm(
            source, f"{name}.post_feedforward_layernorm", size, eps
        )

    def __call__(
        self, x: Tensor, rotation: Rotation, places: Places, cache: KeyValues | None
    ) -> Tensor:
        mixed = self.self_attn(x, rotation, places, cache)
        x = x + self.post_attention_layernorm(mixed)
        return x + self.post_feedforward_layernorm(self.mlp(x))


class _NormalizedAttention(SelfAttention):
    """All queries of a token are one vector that is normalized; so are all keys."""

    q_norm: _SharedNorm
    k_norm: _SharedNorm

    def __init__(self, config: LlamaConfig, source: Source, name: str) -> None:
        super().__init__(
            source, name, config.size, config.heads, config.key_heads, config.head_size,
            config.qkv_biases, config.output_bias,
        )  # fmt: skip
        width, key_width = (heads * config.head_size for heads in (config.heads, config.key_heads))
        self.q_norm = _SharedNorm(source, f"{name}.q_norm", width, config.eps)
        self.k_norm = _SharedNorm(source, f"{name}.k_norm", key_width, config.eps)

    def heads(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        query, key = self.q_norm(self.q_proj(x)), self.k_norm(self.k_proj(x))
        return (
            heads_of(query, self.head_size),
            heads_of(key, self.head_size),
            heads_of(self.v_proj(x), self.head_size),
        )


class _SharedNorm:
    """Vectors divided by their root mean square, times a weight (size,). Processes that share the
    model have a part of each vector."""

    def __init__(self, source: Source, name: str, size: int, eps: float) -> None:
        self._size, self._eps, self._over = size, eps, source.over
        self.weight = source.vector(f"{name}.weight", size, Cut(0))

    def __call__(self, x: Tensor) -> Tensor:
        total = (x * x).sum(axis=-1, keepdims=True)
        if self._over is not None:
            total = enter_parallel(leave_parallel(total, self._over), self._over)
        return x / sqrt(total / self._size + self._eps) * self.weight.cast(float32)

    def layouts(self) -> dict[str, Layout]:
        """As `lamina.distributed.layout.HasLayouts`."""
        return layouts(self.weight, Cut(0), None, None, self._over, self._size)


# Configurations.


def read_olmo(fields: Fields) -> OlmoConfig:
    """Of OLMo 1. Raises FormatError, which names the field, for what is not supported."""
    check_flags(fields, "mlp_bias", value=False)
    largest = None if fields.get("clip_qkv") is None else fields.number("clip_qkv")
    plain = read_llama(fields, Variant())
    return OlmoConfig(**vars(plain), largest=largest)


def read_olmo2(fields: Fields) -> LlamaConfig:
    """Of OLMo 2. Raises FormatError, which names the field, for what is not supported."""
    check_flags(fields, "mlp_bias", value=False)
    if fields.get("clip_qkv") is not None:
        raise fields.fail("clip_qkv", "models of this family have no bounds")
    return read_llama(fields, Variant(eps=1e-5))
