"""The families of models that lamina knows, and their configurations: from ``config.json`` of a
Hugging Face folder, or the metadata of a GGUF file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from lamina.core.shape import Shape
from lamina.errors import FormatError
from lamina.frontend.tensor import Tensor
from lamina.models import (
    bert,
    clip,
    convnext,
    gemma,
    gpt2,
    llama,
    llama4,
    modernbert,
    olmo,
    phi,
    resnet,
    t5,
    vit,
    whisper,
)
from lamina.models.experts import Mixture, chosen_of
from lamina.models.fields import MOST_LAYERS, Fields, head_size_of, theta_of
from lamina.models.gemma import GemmaConfig
from lamina.models.llama import VARIANTS, LlamaConfig
from lamina.models.network import Network
from lamina.models.parts import Scores
from lamina.models.rope import LinearScaling, LongScaling, Rope, Scaling, YarnScaling
from lamina.models.weights import Source, Weight

__all__ = [
    "FAMILIES", "GGUF_FAMILIES", "ROPE_TENSORS", "Family", "family_of", "from_gguf",
    "from_hugging_face",
]  # fmt: skip

_Weights = Mapping[str, Weight]


def _as_they_are(weights: _Weights, config: Any) -> dict[str, Weight]:
    return dict(weights)


# Hugging Face.


@dataclass(frozen=True)
class Family:
    """The models of one ``model_type``. read: the configuration in ``config.json``. network: the
    model of a configuration, with weights. renamed: the weights of a folder by the names and in the
    parts that the network asks for."""

    read: Callable[[Fields], Any]
    network: Callable[[Any, Source], Network]
    renamed: Callable[[_Weights, Any], dict[str, Weight]] = _as_they_are


def _llamas() -> dict[str, Family]:
    """Llama and its variants."""
    families = {}
    for kind, variant in VARIANTS.items():
        renamed = llama.unfused if variant.is_fused else _as_they_are
        renamed = llama.with_joined_experts if variant.mixture is not None else renamed
        families[kind] = Family(partial(llama.read, variant=variant), llama.Llama, renamed)
    return families


FAMILIES: Mapping[str, Family] = {
    **_llamas(),
    "gpt2": Family(gpt2.read, gpt2.GPT2, gpt2.with_prefix),
    "gemma2": Family(gemma.read_gemma2, gemma.Gemma),
    "gemma3_text": Family(gemma.read_gemma3, gemma.Gemma),
    "llama4_text": Family(llama4.read, llama4.Llama4, llama4.renamed),
    "olmo": Family(olmo.read_olmo, olmo.Olmo),
    "olmo2": Family(olmo.read_olmo2, olmo.Olmo2),
    "phi": Family(phi.read, phi.Phi),
    "bert": Family(bert.read_bert, bert.Bert, partial(bert.renamed, prefix="bert.")),
    "roberta": Family(bert.read_roberta, bert.Bert, partial(bert.renamed, prefix="roberta.")),
    "modernbert": Family(modernbert.read, modernbert.ModernBert, modernbert.renamed),
    "t5": Family(t5.read, t5.T5, t5.with_last_projection),
    "whisper": Family(whisper.read, whisper.Whisper),
    "clip": Family(clip.read, clip.Clip),
    "vit": Family(vit.read, vit.ViT),
    "resnet": Family(resnet.read, resnet.ResNet),
    "convnext": Family(convnext.read, convnext.ConvNext),
}  # fmt: skip


def family_of(values: Mapping[str, Any], origin: str) -> Family:
    """The family of the model with the configuration `values`. Raises FormatError, which names the
    field, for models that lamina does not know."""
    fields = Fields(values, origin)
    kind = fields.text("model_type")
    if kind not in FAMILIES:
        known = ", ".join(FAMILIES)
        raise fields.fail("model_type", f"{kind!r} is no model that lamina knows: {known}")
    return FAMILIES[kind]


def from_hugging_face(values: Mapping[str, Any], origin: str) -> Any:
    """The configuration of a model: a dataclass of its family. Raises FormatError, which names the
    field, for models that lamina does not know, and for values that are missing or make no sense.
    """
    return family_of(values, origin).read(Fields(values, origin))


# GGUF.

# The families of architectures. Mixtral is one of "llama".
GGUF_FAMILIES = {
    "llama": "llama", "qwen2": "qwen2", "qwen3": "qwen3", "qwen2moe": "qwen2_moe",
    "qwen3moe": "qwen3_moe", "phi3": "phi3", "gemma3": "gemma3_text",
}  # fmt: skip


def from_gguf(metadata: Mapping[str, Any], names: Mapping[str, Any], origin: str) -> Any:
    """The configuration of a model: a dataclass of its family. names: of the tensors, as in Hugging
    Face's files, where some of the configuration is only seen by them. Raises FormatError as
    `from_hugging_face` does."""
    general = Fields(metadata, origin)
    kind = general.text("general.architecture")
    if kind not in GGUF_FAMILIES:
        known = ", ".join(GGUF_FAMILIES)
        what = f"{kind!r} is no model that lamina knows: {known}"
        raise general.fail("general.architecture", what)
    fields = Fields(metadata, origin, f"{kind}.")
    return _gguf_gemma3(fields, names) if kind == "gemma3" else _gguf_llama(fields, kind, names)


def _gguf_sizes(fields: Fields, names: Mapping[str, Any]) -> dict[str, Any]:
    """What all families read in the same way."""
    size, queries = fields.size("embedding_length"), fields.size("attention.head_count")
    keys = fields.size("attention.head_count_kv", queries)
    if queries % keys:
        raise fields.fail("attention.head_count_kv", f"{keys} do not divide {queries} heads")
    embedding: Shape = getattr(names.get("model.embed_tokens.weight"), "shape", ())
    return {
        "vocabulary": embedding[0] if len(embedding) == 2 else fields.size("vocab_size"),
        "size": size,
        "inner": fields.size("feed_forward_length"),
        "heads": queries,
        "key_heads": keys,
        "head_size": head_size_of(fields, "attention.key_length", size // queries),
        "eps": fields.number("attention.layer_norm_rms_epsilon"),
        "context": fields.size("context_length"),
    }


def _gguf_llama(fields: Fields, kind: str, names: Mapping[str, Any]) -> LlamaConfig:
    variant, sizes = VARIANTS[GGUF_FAMILIES[kind]], _gguf_sizes(fields, names)
    head_size = sizes["head_size"]
    turned = fields.size("rope.dimension_count", head_size)
    if turned != head_size and variant.turned_share is None:
        raise fields.fail("rope.dimension_count", f"{turned}; all {head_size} of a head are needed")
    if turned % 2 or turned > head_size:
        raise fields.fail("rope.dimension_count", f"{turned} of {head_size} elements of a head")
    layers = fields.size("block_count", largest=MOST_LAYERS)
    has_window = variant.has_window and fields.get("attention.sliding_window") is not None
    window = fields.size("attention.sliding_window") if has_window else None
    return LlamaConfig(
        **sizes,
        layers=layers,
        rope=_gguf_rope(fields, names, turned, sizes["context"]),
        tied="lm_head.weight" not in names,
        windows=(window,) * layers,
        qkv_biases=variant.qkv_biases,
        normalizes_heads=variant.normalizes_heads,
        mixture=_gguf_mixture(fields, kind, layers),
    )


def _gguf_gemma3(fields: Fields, names: Mapping[str, Any]) -> GemmaConfig:
    """Weights of normalizations have their 1 in these files."""
    sizes = _gguf_sizes(fields, names)
    head_size, context = sizes["head_size"], sizes["context"]
    layers = fields.size("block_count", largest=MOST_LAYERS)
    window = fields.size("attention.sliding_window")
    scaled = sizes["size"] // sizes["heads"] if layers == _LAYERS_OF_27B else head_size
    return GemmaConfig(
        **sizes,
        windows=tuple(window if number % 6 else None for number in range(1, layers + 1)),
        rope=_gguf_rope(fields, names, head_size, context),
        local_rope=Rope(head_size, theta_of(fields, "rope.freq_base_swa", 10000.0)),
        scores=Scores(scaled**-0.5),
        logit_bound=None,
        normalizes_heads=True,
        norm_offset=0.0,
    )


_LAYERS_OF_27B = 62  # the one model whose scores have another scale, which its file does not say


def _gguf_mixture(fields: Fields, kind: str, layers: int) -> Mixture | None:
    count = fields.get("expert_count", 0)
    has_experts = not isinstance(count, int) or count != 0  # what is no integer is refused below
    if not has_experts and not kind.endswith("moe"):
        return None
    if fields.size("expert_gating_func", _SOFTMAX) != _SOFTMAX:
        raise fields.fail("expert_gating_func", f"only {_SOFTMAX}, softmax, is known")
    if fields.number("expert_weights_scale", 1.0) != 1.0:
        raise fields.fail("expert_weights_scale", "shares of experts have no factor here")
    inner, shared = "feed_forward_length", "expert_shared_feed_forward_length"
    return Mixture(
        count=fields.size("expert_count"),
        chosen=chosen_of(fields, "expert_used_count", fields.size("expert_count")),
        inner=fields.size(inner if kind == "llama" else f"expert_{inner}"),
        normalizes=fields.flag("expert_weights_norm", kind != "qwen2moe"),
        layers=tuple(range(layers)),
        shared=fields.size(shared) if kind == "qwen2moe" else None,
    )


_SOFTMAX = 1  # of the functions that make shares of what a router says


def _gguf_rope(fields: Fields, names: Mapping[str, Any], head_size: int, context: int) -> Rope:
    kind = fields.text("rope.scaling.type", "none")
    scaling: Scaling | None = None
    if kind == "linear":
        scaling = LinearScaling(fields.number("rope.scaling.factor"))
    elif kind == "yarn":
        original = fields.size("rope.scaling.original_context_length", context)
        scaling = YarnScaling(fields.number("rope.scaling.factor"), original)
    elif kind != "none":
        raise fields.fail("rope.scaling.type", f"{kind!r}; known are none, linear and yarn")
    theta = theta_of(fields, "rope.freq_base", 10000.0)
    divisors, short, long = (_divisors(names, name, head_size, fields) for name in ROPE_TENSORS)
    if short is not None and long is not None:
        original = fields.size("rope.scaling.original_context_length", context)
        length = fields.number("rope.scaling.attn_factor", 1.0)
        scaling = LongScaling(tuple(short), tuple(long), original, length)
    return Rope(head_size, theta, scaling, divisors)


# Divisors of frequencies: of Llama 3.1, and of short and of long texts of Phi 3.
ROPE_TENSORS = ("rope_freqs.weight", "rope_factors_short.weight", "rope_factors_long.weight")


def _divisors(
    names: Mapping[str, Any], name: str, head_size: int, fields: Fields
) -> list[float] | None:
    weight, origin = names.get(name), fields.origin
    if weight is None:
        return None
    if not isinstance(weight, Tensor) or weight.shape != (head_size // 2,):
        reason = f"shape {weight.shape}; {(head_size // 2,)} not quantised is needed"
        raise FormatError(f"{origin}: {name}: {reason}")
    divisors = [float(one) for one in weight.numpy()]
    if not all(0 < one < float("inf") for one in divisors):
        raise FormatError(f"{origin}: {name}: positive numbers are needed")
    return divisors
