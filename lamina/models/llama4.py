"""Llama 4, the part that writes text: layers that see the tokens of their chunk alone, between them
layers without a rotation that see all tokens, and experts, one of which sees every token.

Source: Meta 2025, "The Llama 4 herd". Attributes are named as in the files of the Hugging Face hub.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from lamina.core.dtypes import float32
from lamina.frontend.functions.elementwise import floor, log1p, sigmoid
from lamina.frontend.functions.neural import rms_norm
from lamina.frontend.functions.reduction import topk
from lamina.frontend.tensor import Tensor
from lamina.models.experts import Choice, Experts, Mixture, chosen_of
from lamina.models.fields import Fields, check_flags, layer_kinds
from lamina.models.llama import Llama, LlamaConfig, Variant
from lamina.models.llama import read as read_llama
from lamina.models.parts import Gated, KeyValues, Places, Projection, RMSNorm, SelfAttention
from lamina.models.rope import Rotation
from lamina.models.weights import Source, Weight

__all__ = ["Llama4", "Llama4Config", "Temperature", "read", "renamed"]


@dataclass(frozen=True)
class Temperature:
    """Queries are multiplied by 1 + scale * log(1 + n), where n is how many whole stretches of
    `length` tokens end at a token or before it: 0 at the places 0 to length - 2, then 1."""

    length: int
    scale: float

    def at(self, positions: Tensor) -> Tensor:
        """Of tokens at `positions`, (..., length): (..., length, 1)."""
        times = floor((positions.cast(float32) + 1.0) / self.length)
        return (log1p(times) * self.scale + 1.0).unsqueeze(-1)


@dataclass(frozen=True)
class Llama4Config(LlamaConfig):
    """chunks: of each layer, how many tokens a chunk has; None for layers that see all. rotated: of
    each layer, whether queries and keys are. inner: of layers without experts. temperature: of
    queries that are not rotated. normalizes_heads: those that are rotated, without weights."""

    chunks: tuple[int | None, ...] = ()
    rotated: tuple[bool, ...] = ()
    temperature: Temperature | None = None


class Llama4(Llama):
    """As `Llama`, with other layers."""

    config: Llama4Config

    def new_layer(self, source: Source, number: int) -> Callable[..., Tensor]:
        return _Layer(self.config, source, number)


class _Layer:
    def __init__(self, config: Llama4Config, source: Source, number: int) -> None:
        size, name = config.size, f"model.layers.{number}"
        self.chunk = config.chunks[number]
        self.input_layernorm = RMSNorm(source, f"{name}.input_layernorm", size, config.eps)
        self.self_attn = _Attention(config, source, f"{name}.self_attn", config.rotated[number])
        self.post_attention_layernorm = RMSNorm(
            source, f"{name}.post_attention_layernorm", size, config.eps
        )
        self.feed_forward: _Mixture | Gated
        mixture = config.mixture
        if mixture is not None and number in mixture.layers:
            self.feed_forward = _Mixture(source, f"{name}.feed_forward", size, mixture)
        else:
            self.feed_forward = Gated(source, f"{name}.feed_forward", size, config.inner)

    def __call__(
        self, x: Tensor, rotation: Rotation, places: Places, cache: KeyValues | None
    ) -> Tensor:
        places = replace(places, chunk=self.chunk)
        x = x + self.self_attn(self.input_layernorm(x), rotation, places, cache)
        return x + self.feed_forward(self.post_attention_layernorm(x))


class _Attention(SelfAttention):
    def __init__(
        self, config: Llama4Config, source: Source, name: str, is_rotated: bool
    ) -> None:
        super().__init__(
            source, name, config.size, config.heads, config.key_heads, config.head_size,
            config.qkv_biases, config.output_bias,
        )  # fmt: skip
        self.is_rotated = is_rotated
        self.eps = config.eps if config.normalizes_heads else None
        self.temperature = config.temperature

    def turned(
        self, query: Tensor, key: Tensor, rotation: Rotation, places: Places
    ) -> tuple[Tensor, Tensor]:
        if self.is_rotated:
            query, key = rotation(query), rotation(key)
            if self.eps is not None:
                query = rms_norm(query, self.head_size, eps=self.eps)
                key = rms_norm(key, self.head_size, eps=self.eps)
        elif self.temperature is not None:
            query = query * self.temperature.at(places.positions())
        return query, key


class _Mixture:
    """Experts see a token times their share, the sigmoid of what the router says."""

    def __init__(self, source: Source, name: str, size: int, mixture: Mixture) -> None:
        self.chosen = mixture.chosen
        self.router = Projection(source, f"{name}.router", size, mixture.count)
        self.experts = Experts(
            source, f"{name}.experts", mixture.count, size, mixture.inner, weighs_inputs=True
        )
        self.shared_expert = Gated(source, f"{name}.shared_expert", size, mixture.inner)

    def __call__(self, x: Tensor) -> Tensor:
        tokens = x.flatten(0, 1)
        best = topk(self.router(tokens), self.chosen)
        mixed = self.experts(tokens, Choice(best.indices, sigmoid(best.values)))
        return (mixed + self.shared_expert(tokens)).reshape(x.shape)


# Configurations and weights of a folder.


def read(fields: Fields) -> Llama4Config:
    """Of ``config.json``. Raises FormatError, which names the field, for what is not supported."""
    check_flags(fields, "mlp_bias", value=False)
    plain = read_llama(fields, Variant(theta=5e5, eps=1e-5, mixture=_experts))
    values = vars(plain) | {
        "inner": fields.size("intermediate_size_mlp"),
        "rope": replace(plain.rope, pairs_neighbours=True),
        "normalizes_heads": fields.flag("use_qk_norm", True),
    }
    rotated = _rotated(fields, plain.layers)
    return Llama4Config(
        **values,
        chunks=_chunks(fields, rotated),
        rotated=rotated,
        temperature=_temperature(fields),
    )


def _experts(fields: Fields, layers: int) -> Mixture:
    step = fields.size("interleave_moe_layer_step", 1)
    numbers = fields.get("moe_layers", list(range(step - 1, layers, step)))
    if not isinstance(numbers, list) or not all(number in range(layers) for number in numbers):
        raise fields.fail("moe_layers", f"{numbers!r}; numbers of {layers} layers are needed")
    count = fields.size("num_local_experts")
    return Mixture(
        count=count,
        chosen=chosen_of(fields, "num_experts_per_tok", count),
        inner=fields.size("intermediate_size"),
        normalizes=False,
        layers=tuple(numbers),
    )


def _rotated(fields: Fields, layers: int) -> tuple[bool, ...]:
    """Of each layer: all but each fourth, unless ``no_rope_layers`` says otherwise. It has a 1 for
    the layers that are rotated, whatever its name says."""
    every = fields.size("no_rope_layer_interval", 4)
    usual = [int(number % every != 0) for number in range(1, layers + 1)]
    flags = fields.get("no_rope_layers") or usual
    is_list = isinstance(flags, list) and len(flags) == layers
    if not is_list or not all(flag in (0, 1) for flag in flags):
        raise fields.fail("no_rope_layers", f"0 or 1 for each of {layers} layers is needed")
    return tuple(flag == 1 for flag in flags)


def _chunks(fields: Fields, rotated: tuple[bool, ...]) -> tuple[int | None, ...]:
    """Of each layer: those that are rotated have chunks, unless ``layer_types`` says otherwise."""
    if fields.get("attention_chunk_size") is None:
        return (None,) * len(rotated)
    chunk = fields.size("attention_chunk_size")
    local = "chunked_attention"
    usual = [local if is_rotated else "full_attention" for is_rotated in rotated]
    kinds = layer_kinds(fields, usual, local)
    return tuple(chunk if kind == local else None for kind in kinds)


def _temperature(fields: Fields) -> Temperature | None:
    """Older files have a number in place of true."""
    is_tuned: Any = fields.get("attn_temperature_tuning", True)
    if not isinstance(is_tuned, int):
        raise fields.fail("attn_temperature_tuning", f"{is_tuned!r}; true or false is needed")
    if not is_tuned:
        return None
    return Temperature(fields.size("floor_scale", 8192), fields.number("attn_scale", 0.1))


def renamed(weights: Mapping[str, Weight], config: Llama4Config) -> dict[str, Weight]:
    """The weights, with matrices of experts (outputs, inputs), and those of gates and ups apart. In
    files they are (inputs, outputs), and gates and ups are one. Those that do not fit stay, and are
    reported with all others."""
    result = dict[str, Weight]()
    for name, weight in weights.items():
        if not isinstance(weight, Tensor) or weight.ndim != 3:
            result[name] = weight
        elif name.endswith("experts.gate_up_proj"):
            stem, inner = name.removesuffix("gate_up_proj"), weight.shape[2] // 2
            result[f"{stem}gate_proj"] = weight[:, :, :inner].mT
            result[f"{stem}up_proj"] = weight[:, :, inner:].mT
        else:
            result[name] = weight.mT
    return result
