"""Llama, and the models that differ from it by their configuration alone: SmolLM, Mistral (a
sliding window), Qwen 2 (biases of queries, keys and values), Qwen 3 (normalized queries and keys)
and Phi 3 (some matrices of a layer are one in its files; a rotation of parts of heads). Mixtral and
the mixtures of Qwen 2 and 3 have experts in place of gated layers.

Source: Touvron et al. 2023, "LLaMA". Attributes are named as in the files of the Hugging Face hub.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from lamina.frontend.tensor import Tensor
from lamina.io.blocks import Packed
from lamina.models import experts
from lamina.models.experts import Mixture, MixtureOfExperts
from lamina.models.fields import (
    MAX_LAYERS,
    Fields,
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
    Projection,
    RMSNorm,
    SelfAttention,
)
from lamina.models.rope import Rope, Rotation
from lamina.models.sharing import Sharing, divided
from lamina.models.weights import Source, Weight

__all__ = ["VARIANTS", "Llama", "LlamaConfig", "Variant", "read", "unfused", "with_joined_experts"]


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
    windows: tuple[int | None, ...] = ()  # of each layer, in tokens; by default none has one
    qkv_biases: bool = False
    output_bias: bool = False
    inner_biases: bool = False
    normalizes_heads: bool = False
    mixture: Mixture | None = None


class Llama(LanguageModel):
    """Tokens (batch, length) to the logits of each next token, (batch, length, vocabulary)."""

    def __init__(self, config: LlamaConfig, source: Source) -> None:
        self.config = config
        self.vocabulary = config.vocabulary
        key_heads = divided(config.key_heads, source.over, "heads of keys")
        self.keys = KeyShape(config.layers, key_heads, config.head_size, source.activations)
        self.model = _Decoder(config, source, self.new_layer, self.new_norm)
        self.lm_head: Projection | None = None
        if not config.tied:
            self.lm_head = Projection(
                source, "lm_head", config.size, config.vocabulary, sharing=Sharing.LOGITS
            )
        else:
            source.ignore("lm_head.weight")

    def new_layer(self, source: Source, number: int) -> Callable[..., Tensor]:
        """The layer `number`: (x, rotation, places, cache) to the next x."""
        return _Layer(self.config, source, number)

    def new_norm(self, source: Source, name: str) -> Callable[[Tensor], Tensor]:
        """What normalizes the vectors after all layers."""
        return RMSNorm(source, name, self.config.size, self.config.eps)

    def vectors(
        self, ids: Tensor, caches: Sequence[KeyValues | None], first: Tensor | None
    ) -> Tensor:
        places = Places(ids.shape[1], first, ids.device)
        windows = self.config.windows or (None,) * self.config.layers
        rotation = self.config.rope.at(places.positions())
        x = self.model.embed_tokens(ids)
        for layer, window, cache in zip(self.model.layers, windows, caches, strict=True):
            x = layer(x, rotation, replace(places, window=window), cache)
        return x

    def logits(self, x: Tensor) -> Tensor:
        x = self.model.norm(x)
        return self.model.embed_tokens.project(x) if self.lm_head is None else self.lm_head(x)


class _Decoder:
    def __init__(
        self, config: LlamaConfig, source: Source,
        new_layer: Callable[[Source, int], Callable[..., Tensor]],
        new_norm: Callable[[Source, str], Callable[[Tensor], Tensor]],
    ) -> None:  # fmt: skip
        self.embed_tokens = Lookup(
            source, "model.embed_tokens", config.vocabulary, config.size, projects=config.tied
        )
        self.layers = [new_layer(source, number) for number in range(config.layers)]
        self.norm = new_norm(source, "model.norm")


class _Layer:
    def __init__(self, config: LlamaConfig, source: Source, number: int) -> None:
        size, name = config.size, f"model.layers.{number}"
        self.input_layernorm = RMSNorm(source, f"{name}.input_layernorm", size, config.eps)
        self.self_attn = SelfAttention(
            source, f"{name}.self_attn", size, config.heads, config.key_heads, config.head_size,
            config.qkv_biases, config.output_bias, config.eps if config.normalizes_heads else None,
        )  # fmt: skip
        self.post_attention_layernorm = RMSNorm(
            source, f"{name}.post_attention_layernorm", size, config.eps
        )
        self.mlp: Gated | MixtureOfExperts
        if config.mixture is not None and number in config.mixture.layers:
            self.mlp = MixtureOfExperts(source, f"{name}.mlp", size, config.mixture)
        else:
            self.mlp = Gated(source, f"{name}.mlp", size, config.inner, config.inner_biases)

    def __call__(
        self, x: Tensor, rotation: Rotation, places: Places, cache: KeyValues | None
    ) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), rotation, places, cache)
        return x + self.mlp(self.post_attention_layernorm(x))


# Configurations and weights of a folder.


@dataclass(frozen=True)
class Variant:
    """How the models of one `model_type` differ from Llama."""

    qkv_biases: bool = False  # and none of the attention's output
    normalizes_heads: bool = False
    # Whether a layer has a window where a file has no `layer_types`, by the layer's number and the
    # field `max_window_layers`; None for models without windows.
    slides: Callable[[int, int], bool] | None = None
    has_window: bool = False  # where a file gives its size; others ask for `use_sliding_window`
    turned_share: float | None = None  # of a head; None for whole heads alone
    is_fused: bool = False  # the rows of several matrices are one matrix in files
    mixture: Callable[[Fields, int], Mixture] | None = None
    theta: float = 10000.0  # of the rotation, where a file does not say it
    eps: float = 1e-6  # of the normalizations, where a file does not say it


def _mixtral_experts(fields: Fields, layers: int) -> Mixture:
    count = fields.size("num_local_experts")
    return Mixture(
        count=count,
        chosen=experts.chosen_of(fields, "num_experts_per_tok", count),
        inner=fields.size("intermediate_size"),
        normalizes=True,
        layers=tuple(range(layers)),
    )


def _qwen_experts(fields: Fields, layers: int) -> Mixture:
    has_count = "num_local_experts" in fields.values
    count = fields.size("num_local_experts" if has_count else "num_experts")
    return Mixture(
        count=count,
        chosen=experts.chosen_of(fields, "num_experts_per_tok", count),
        inner=fields.size("moe_intermediate_size"),
        normalizes=fields.flag("norm_topk_prob"),
        layers=experts.layers_of(fields, layers),
    )


def _qwen2_experts(fields: Fields, layers: int) -> Mixture:
    shared = fields.size("shared_expert_intermediate_size")
    return replace(_qwen_experts(fields, layers), shared=shared)


def _all_layers(number: int, bound: int) -> bool:
    return True


def _last_layers(number: int, bound: int) -> bool:
    return number >= bound


def _first_even_layers(number: int, bound: int) -> bool:
    return number % 2 == 0 and number < bound


VARIANTS = {
    "llama": Variant(),
    "mistral": Variant(slides=_all_layers, has_window=True),
    "qwen2": Variant(qkv_biases=True, slides=_last_layers),
    "qwen3": Variant(normalizes_heads=True, slides=_last_layers),
    "phi3": Variant(slides=_all_layers, has_window=True, turned_share=1.0, is_fused=True),
    "mixtral": Variant(
        slides=_all_layers, has_window=True, mixture=_mixtral_experts, theta=1e6, eps=1e-5
    ),
    "qwen2_moe": Variant(qkv_biases=True, slides=_first_even_layers, mixture=_qwen2_experts),
    "qwen3_moe": Variant(normalizes_heads=True, slides=_all_layers, mixture=_qwen_experts),
}


def read(fields: Fields, variant: Variant) -> LlamaConfig:
    """Of ``config.json`` of a variant. Raises FormatError, which names the field, for what is not
    supported."""
    check_activation(fields, "hidden_act", "silu", "swish")
    size, heads = fields.size("hidden_size"), head_counts(fields)
    head_size = head_size_of(fields, "head_dim", size // heads.queries)
    context = fields.size("max_position_embeddings", 2048)
    layers = fields.size("num_hidden_layers", largest=MAX_LAYERS)
    mixture = None if variant.mixture is None else variant.mixture(fields, layers)
    biases = "qkv_bias" if "qkv_bias" in fields.values else "attention_bias"
    return LlamaConfig(
        vocabulary=fields.size("vocab_size"),
        size=size,
        inner=fields.size("intermediate_size"),
        layers=layers,
        heads=heads.queries,
        key_heads=heads.keys,
        head_size=head_size,
        rope=rope_of(
            fields, head_size, context, turned_share=variant.turned_share, theta=variant.theta
        ),
        eps=fields.number("rms_norm_eps", variant.eps),
        context=context,
        tied=fields.flag("tie_word_embeddings", False),
        windows=_windows(fields, variant, layers),
        qkv_biases=fields.flag(biases, variant.qkv_biases),
        output_bias=fields.flag("attention_bias") and not variant.qkv_biases,
        inner_biases=fields.flag("mlp_bias"),
        normalizes_heads=variant.normalizes_heads,
        mixture=mixture,
    )


def _windows(fields: Fields, variant: Variant, layers: int) -> tuple[int | None, ...]:
    """Of each layer, how many tokens before it, itself included, a token sees; None for all."""
    if variant.slides is None:
        check_flags(fields, "use_sliding_window", value=False)
        return (None,) * layers
    is_used = variant.has_window or fields.flag("use_sliding_window")
    has_window = is_used and fields.get("sliding_window") is not None
    bound = fields.get("max_window_layers", 28)
    sliding, full = "sliding_attention", "full_attention"
    if not isinstance(bound, int):
        raise fields.fail("max_window_layers", f"{bound!r}; an integer is needed")
    usual = [
        sliding if has_window and variant.slides(number, bound) else full
        for number in range(layers)
    ]
    kinds = layer_kinds(fields, usual)
    return tuple(fields.size("sliding_window") if kind == sliding else None for kind in kinds)


def with_joined_experts(weights: Mapping[str, Weight], config: LlamaConfig) -> dict[str, Weight]:
    """The weights of a mixture, as `lamina.models.experts.joined` makes them."""
    assert config.mixture is not None
    return experts.joined(weights, config.mixture)


def unfused(weights: Mapping[str, Weight], config: LlamaConfig) -> dict[str, Weight]:
    """The weights of Phi, with a matrix for each projection. In files some have the rows of
    several; those that do not fit stay, and are reported with all others."""
    result = dict[str, Weight]()
    for name, weight in weights.items():
        if name.endswith(tuple(_FUSED)):
            result |= _parts(name, weight, config)
        else:
            result[name] = weight
    return result


# The ends of names of matrices that have the rows of several, and of these.
_FUSED = {
    "qkv_proj.weight": ("q_proj.weight", "k_proj.weight", "v_proj.weight"),
    "qkv_proj.bias": ("q_proj.bias", "k_proj.bias", "v_proj.bias"),
    "gate_up_proj.weight": ("gate_proj.weight", "up_proj.weight"),
}


def _parts(name: str, weight: Weight, config: LlamaConfig) -> dict[str, Weight]:
    """The matrices whose rows a file has in one."""
    end = next(end for end in _FUSED if name.endswith(end))
    queries, keys = (count * config.head_size for count in (config.heads, config.key_heads))
    sizes = [config.inner] * 2 if end.startswith("gate") else [queries, keys, keys]
    if weight.shape[:1] != (sum(sizes),):
        return {name: weight}  # it is reported with all others that do not fit
    parts, first = dict[str, Weight](), 0
    for part, size in zip(_FUSED[end], sizes, strict=True):
        parts[name.removesuffix(end) + part] = _rows(weight, slice(first, first + size))
        first += size
    return parts


def _rows(weight: Weight, part: slice) -> Weight:
    if isinstance(weight, Packed):
        return Packed(weight.kind, weight.data[part])
    return weight[part]
