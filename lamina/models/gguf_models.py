"""What GGUF files say of models in words of their own: configurations, and the names of weights.

The networks are those of Hugging Face's folders, and so are the names that weights get here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from lamina.core.shape import Shape
from lamina.errors import FormatError
from lamina.frontend.session import SESSION
from lamina.frontend.tensor import Tensor
from lamina.io.blocks import Packed
from lamina.models.bert import BertConfig
from lamina.models.experts import Mixture, chosen_of
from lamina.models.fields import (
    MAX_LAYERS,
    Fields,
    check_flags,
    head_count,
    head_size_of,
    theta_of,
)
from lamina.models.gemma import GemmaConfig
from lamina.models.llama import VARIANTS, LlamaConfig, Variant
from lamina.models.olmo import OlmoConfig
from lamina.models.parts import Scores
from lamina.models.phi import PhiConfig
from lamina.models.rope import LinearScaling, LongScaling, Rope, Scaling, YarnScaling
from lamina.models.sentences import Pooling, SentenceSettings
from lamina.models.weights import Weight

__all__ = [
    "Architecture", "architecture_of", "as_network_weights", "from_gguf", "hugging_face_name",
    "sentence_settings",
]  # fmt: skip

_LAYER_PARTS = {
    "attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj", "ffn_gate_inp": "mlp.gate",
    "ffn_gate_inp_shexp": "mlp.shared_expert_gate", "ffn_gate_shexp": "mlp.shared_expert.gate_proj",
    "ffn_up_shexp": "mlp.shared_expert.up_proj", "ffn_down_shexp": "mlp.shared_expert.down_proj",
}  # fmt: skip
_PHI2_PARTS = {
    "attn_qkv": "self_attn.qkv_proj", "attn_output": "self_attn.dense", "ffn_up": "mlp.fc1",
    "ffn_down": "mlp.fc2", "output_norm": "model.final_layernorm",
}  # fmt: skip
_PHI3_PARTS = {"attn_qkv": "self_attn.qkv_proj", "ffn_up": "mlp.gate_up_proj"}
_RESULT_NORMS = {  # of what comes out of the parts of a layer
    "post_attention_norm": "post_attention_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}  # fmt: skip
_BERT_PARTS = {
    "token_embd": "embeddings.word_embeddings", "token_types": "embeddings.token_type_embeddings",
    "position_embd": "embeddings.position_embeddings", "token_embd_norm": "embeddings.LayerNorm",
    "attn_q": "attention.self.query", "attn_k": "attention.self.key",
    "attn_v": "attention.self.value", "attn_output": "attention.output.dense",
    "attn_output_norm": "attention.output.LayerNorm", "ffn_up": "intermediate.dense",
    "ffn_down": "output.dense", "layer_output_norm": "output.LayerNorm",
}  # fmt: skip
_GEMMA_PARTS = {**_RESULT_NORMS, "ffn_norm": "pre_feedforward_layernorm"}
_STACKED_PARTS = {  # the matrices of all experts of a layer, in one tensor
    "ffn_gate_exps": "gate_proj", "ffn_up_exps": "up_proj", "ffn_down_exps": "down_proj",
}  # fmt: skip
_OUTER_NAMES = {
    "token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head",
}  # fmt: skip
# Tensors with divisors of frequencies: of Llama 3.1, and of short and of long texts of Phi 3.
_DIVISORS = "rope_freqs.weight"
_SHORT_DIVISORS, _LONG_DIVISORS = "rope_factors_short.weight", "rope_factors_long.weight"


@dataclass(frozen=True)
class Architecture:
    """The models of one ``general.architecture``.

    family: their ``model_type`` in Hugging Face's folders. parts: names that other architectures
    do not have, or that mean something else in these. pairs_neighbours: the rotary embedding pairs
    neighbouring rows of a head of queries or keys, where the networks here pair row i with row
    i + size / 2. layers: how names of weights of layers begin."""

    family: str
    parts: Mapping[str, str] = field(default_factory=dict)
    pairs_neighbours: bool = False
    layers: str = "model.layers"


_ARCHITECTURES = {
    "llama": Architecture("llama", pairs_neighbours=True),  # and Mixtral
    "qwen2": Architecture("qwen2"),
    "qwen3": Architecture("qwen3"),
    "qwen2moe": Architecture("qwen2_moe"),
    "qwen3moe": Architecture("qwen3_moe"),
    "phi2": Architecture("phi", _PHI2_PARTS),
    "phi3": Architecture("phi3", _PHI3_PARTS),
    "gemma": Architecture("gemma"),
    "gemma2": Architecture("gemma2", _GEMMA_PARTS),
    "gemma3": Architecture("gemma3_text", _GEMMA_PARTS),
    "olmo": Architecture("olmo", pairs_neighbours=True),
    "olmo2": Architecture("olmo2", _RESULT_NORMS),
    "bert": Architecture("bert", _BERT_PARTS, layers="encoder.layer"),
}


def architecture_of(metadata: Mapping[str, Any], origin: str) -> Architecture:
    """The architecture of a file. Raises FormatError for one that lamina does not know."""
    return _ARCHITECTURES[_kind_of(metadata, origin)]


def _kind_of(metadata: Mapping[str, Any], origin: str) -> str:
    fields = Fields(metadata, origin)
    kind = fields.text("general.architecture")
    if kind not in _ARCHITECTURES:
        known = ", ".join(_ARCHITECTURES)
        reason = f"{kind!r} is no model that lamina knows: {known}"
        raise fields.fail("general.architecture", reason)
    return kind


# Names and forms of weights.


def hugging_face_name(name: str, architecture: Architecture) -> str:
    """The name of a tensor in Hugging Face's files: blk.0.attn_q.weight is
    model.layers.0.self_attn.q_proj.weight. Names that are not known stay."""
    stem, _, kind = name.rpartition(".")
    if not stem.startswith("blk."):
        outer = {**_OUTER_NAMES, **architecture.parts}
        return f"{outer[stem]}.{kind}" if stem in outer else name
    layer, _, part = stem.removeprefix("blk.").partition(".")
    parts = {**_LAYER_PARTS, **architecture.parts}
    if part in parts:
        return f"{architecture.layers}.{layer}.{parts[part]}.{kind}"
    if part in _STACKED_PARTS and kind == "weight":
        return f"model.layers.{layer}.mlp.experts.{_STACKED_PARTS[part]}"
    return name


_TURNED = tuple(f"{part}_proj.{kind}" for part in "qk" for kind in ("weight", "bias"))


def as_network_weights(
    tensors: Mapping[str, Weight], architecture: Architecture, config: Any
) -> dict[str, Weight]:
    """The weights, which have Hugging Face's names already, in the forms that the networks of
    Hugging Face's folders ask for; divisors of frequencies are in `config`, and left out."""
    weights = dict[str, Weight]()
    for name, weight in tensors.items():
        if name in (_DIVISORS, _SHORT_DIVISORS, _LONG_DIVISORS):
            continue
        if architecture.pairs_neighbours and name.endswith(_TURNED):
            weight = _with_halves_paired(weight, config.head_size)
        if name.endswith("shared_expert_gate.weight"):
            weight = _as_matrix(weight)
        weights[name] = weight
    return weights


def _as_matrix(weight: Weight) -> Weight:
    """A projection to one output, which files have as a vector, as a matrix of one row."""
    if isinstance(weight, Tensor) and weight.ndim == 1:
        return weight.unsqueeze(0)
    return weight


def _with_halves_paired(weight: Weight, head_size: int) -> Weight:
    """The rows of queries or keys in another order: of a head of 4 rows, whose pairs are 0 1 and
    2 3, rows 0 2 1 3, whose pairs are row i and row i + 2."""
    data = weight.data if isinstance(weight, Packed) else weight
    if not data.ndim or data.shape[0] % head_size or head_size % 2:
        return weight  # the wrong shape is reported with all others
    pairs = data.reshape((-1, head_size // 2, 2, *data.shape[1:]))
    moved = pairs.transpose(1, 2).reshape(data.shape).contiguous()
    SESSION.compute_first(moved)  # a function that reads it is traced again once it has memory
    return Packed(weight.kind, moved) if isinstance(weight, Packed) else moved


# Configurations.

_Reader = Callable[[Fields, str, Mapping[str, Any]], Any]
_FIRST_LAYER = "model.layers.0"
_SOFTMAX = 1  # ``expert_gating_func``: how shares of experts come from the router's scores


def from_gguf(metadata: Mapping[str, Any], tensors: Mapping[str, Any], origin: str) -> Any:
    """The configuration of a model: a dataclass of its family. tensors: by Hugging Face's names,
    as some of the configuration is only seen by them. Raises FormatError as
    `lamina.models.configuration.from_hugging_face` does."""
    kind = _kind_of(metadata, origin)
    fields = Fields(metadata, origin, f"{kind}.")
    read: _Reader = _READERS.get(kind, _llama)
    return read(fields, kind, tensors)


_RMS_EPS, _EPS = "attention.layer_norm_rms_epsilon", "attention.layer_norm_epsilon"


def _sizes(fields: Fields, tensors: Mapping[str, Any], eps: str = _RMS_EPS) -> dict[str, Any]:
    """The fields of a configuration that all architectures have, by their names in it. eps: the
    name of the field."""
    size, queries = fields.size("embedding_length"), fields.size("attention.head_count")
    keys = fields.size("attention.head_count_kv", queries)
    if queries % keys:
        raise fields.fail("attention.head_count_kv", f"{keys} do not divide {queries} heads")
    embedding: Shape = getattr(tensors.get("model.embed_tokens.weight"), "shape", ())
    return {
        "vocabulary": embedding[0] if len(embedding) == 2 else fields.size("vocab_size"),
        "size": size,
        "inner": fields.size("feed_forward_length"),
        "heads": queries,
        "key_heads": keys,
        "head_size": head_size_of(fields, "attention.key_length", size // queries),
        "eps": fields.number(eps),
        "context": fields.size("context_length"),
    }


def _turned(fields: Fields, head_size: int) -> int:
    """How many elements of a head are turned, in pairs."""
    turned = fields.size("rope.dimension_count", head_size)
    if turned % 2 or turned > head_size:
        raise fields.fail("rope.dimension_count", f"{turned} of {head_size} elements of a head")
    return turned


def _llama(
    fields: Fields, kind: str, tensors: Mapping[str, Any], eps: str = _RMS_EPS
) -> LlamaConfig:
    family = _ARCHITECTURES[kind].family
    variant, sizes = VARIANTS.get(family, Variant()), _sizes(fields, tensors, eps)
    head_size = sizes["head_size"]
    turned = _turned(fields, head_size)
    if turned != head_size and variant.turned_share is None:
        raise fields.fail("rope.dimension_count", f"{turned}; all {head_size} of a head are needed")
    layers = fields.size("block_count", largest=MAX_LAYERS)
    has_window = variant.has_window and fields.get("attention.sliding_window") is not None
    window = fields.size("attention.sliding_window") if has_window else None
    return LlamaConfig(
        **sizes,
        layers=layers,
        rope=_rope(fields, tensors, turned, sizes["context"]),
        tied="lm_head.weight" not in tensors,
        windows=(window,) * layers,
        qkv_biases=variant.qkv_biases or f"{_FIRST_LAYER}.self_attn.q_proj.bias" in tensors,
        output_bias=f"{_FIRST_LAYER}.self_attn.o_proj.bias" in tensors,
        inner_biases=f"{_FIRST_LAYER}.mlp.gate_proj.bias" in tensors,
        normalizes_heads=variant.normalizes_heads,
        mixture=_mixture(fields, kind, layers),
    )


def _olmo(fields: Fields, kind: str, tensors: Mapping[str, Any]) -> OlmoConfig:
    plain = _llama(fields, kind, tensors, _EPS)
    has_bound = bool(fields.get("attention.clamp_kqv", 0.0))
    largest = fields.number("attention.clamp_kqv") if has_bound else None
    return OlmoConfig(**vars(plain), largest=largest)


def _olmo2(fields: Fields, kind: str, tensors: Mapping[str, Any]) -> LlamaConfig:
    if fields.get("attention.sliding_window") is not None:  # of OLMo 3
        raise fields.fail("attention.sliding_window", "models of this family have no windows")
    return _llama(fields, kind, tensors)


def _phi2(fields: Fields, kind: str, tensors: Mapping[str, Any]) -> PhiConfig:
    sizes = _sizes(fields, tensors, _EPS)
    head_size = sizes.pop("head_size")
    if head_size * sizes["heads"] != sizes["size"]:
        raise fields.fail("attention.key_length", f"{head_size}; heads are parts of a vector")
    rope = _rope(fields, tensors, _turned(fields, head_size), sizes["context"])
    return PhiConfig(
        **sizes, layers=fields.size("block_count", largest=MAX_LAYERS), rope=rope
    )


# Layers of the largest models of Gemma 2 and 3, of 27 billion weights: their scores have another
# scale, which their files do not say.
_LAYERS_OF_27B = {"gemma2": 46, "gemma3": 62}
_EVERY = {"gemma": 1, "gemma2": 2, "gemma3": 6}  # of so many layers the last one has no window


def _gemma(fields: Fields, kind: str, tensors: Mapping[str, Any]) -> GemmaConfig:
    """Of Gemma 1 to 3. Weights of normalizations are the factors themselves; in folders they are
    added to 1."""
    sizes = _sizes(fields, tensors)
    head_size, context = sizes["head_size"], sizes["context"]
    layers, every = fields.size("block_count", largest=MAX_LAYERS), _EVERY[kind]
    window = None if kind == "gemma" else _gemma_window(fields, kind)
    is_27b = layers == _LAYERS_OF_27B.get(kind)
    scaled_size = sizes["size"] // sizes["heads"] if is_27b else head_size
    rope = _rope(fields, tensors, head_size, context)
    local_theta = theta_of(fields, "rope.freq_base_swa", 10000.0)
    has_bounds = kind == "gemma2"
    score_bound = fields.number("attn_logit_softcapping", 50.0) if has_bounds else None
    return GemmaConfig(
        **sizes,
        windows=tuple(window if number % every else None for number in range(1, layers + 1)),
        rope=rope,
        local_rope=Rope(head_size, local_theta) if kind == "gemma3" else rope,
        scores=Scores(scaled_size**-0.5, score_bound),
        logit_bound=fields.number("final_logit_softcapping", 30.0) if has_bounds else None,
        normalizes_heads=kind == "gemma3",
        norm_offset=0.0,
        has_result_norms=kind != "gemma",
    )


def _gemma_window(fields: Fields, kind: str) -> int:
    """In tokens. Old files of Gemma 2 do not say it."""
    return fields.size("attention.sliding_window", 4096 if kind == "gemma2" else None)


def _bert(fields: Fields, kind: str, tensors: Mapping[str, Any]) -> BertConfig:
    check_flags(fields, "attention.causal", value=False)
    size = fields.size("embedding_length")
    return BertConfig(
        vocabulary=_rows(tensors, "word_embeddings", 1),
        size=size,
        inner=fields.size("feed_forward_length"),
        layers=fields.size("block_count", largest=MAX_LAYERS),
        heads=head_count(fields, "attention.head_count", size),
        positions=_rows(tensors, "position_embeddings", fields.size("context_length")),
        types=_rows(tensors, "token_type_embeddings", 1),
        eps=fields.number(_EPS),
    )


def _rows(tensors: Mapping[str, Any], name: str, fallback: int) -> int:
    """Of a lookup; the fallback for one that is missing or no matrix, which is reported later."""
    shape: Shape = getattr(tensors.get(f"embeddings.{name}.weight"), "shape", ())
    return shape[0] if len(shape) == 2 else fallback


_POOLINGS = {1: Pooling.MEAN, 2: Pooling.FIRST}  # by the number in files


def sentence_settings(metadata: Mapping[str, Any], origin: str, context: int) -> SentenceSettings:
    """How texts become vectors: they have length 1, as llama.cpp makes them. Raises FormatError for
    a way that lamina does not know."""
    fields = Fields(metadata, origin, f"{_kind_of(metadata, origin)}.")
    kind = fields.get("pooling_type", 1)
    if not isinstance(kind, int) or kind not in _POOLINGS:
        raise fields.fail("pooling_type", f"{kind!r}; 1, the mean, or 2, the first one, is needed")
    return SentenceSettings(context, _POOLINGS[kind], normalizes=True)


_READERS: Mapping[str, _Reader] = {
    "bert": _bert,
    "phi2": _phi2, "olmo": _olmo, "olmo2": _olmo2,
    "gemma": _gemma, "gemma2": _gemma, "gemma3": _gemma,
}  # fmt: skip


def _mixture(fields: Fields, kind: str, layers: int) -> Mixture | None:
    count = fields.get("expert_count", 0)
    is_dense = isinstance(count, int) and count == 0  # what is no integer is refused below
    if is_dense and not kind.endswith("moe"):
        return None
    if fields.size("expert_gating_func", _SOFTMAX) != _SOFTMAX:
        raise fields.fail("expert_gating_func", f"only {_SOFTMAX}, softmax, is known")
    if fields.number("expert_weights_scale", 1.0) != 1.0:
        raise fields.fail("expert_weights_scale", "shares of experts have no factor here")
    has_shared_expert = kind == "qwen2moe"
    shared = fields.size("expert_shared_feed_forward_length") if has_shared_expert else None
    inner = "feed_forward_length" if kind == "llama" else "expert_feed_forward_length"
    return Mixture(
        count=fields.size("expert_count"),
        chosen=chosen_of(fields, "expert_used_count", fields.size("expert_count")),
        inner=fields.size(inner),
        normalizes=fields.flag("expert_weights_norm", kind != "qwen2moe"),
        layers=tuple(range(layers)),
        shared=shared,
    )


def _rope(fields: Fields, tensors: Mapping[str, Any], head_size: int, context: int) -> Rope:
    kind = fields.text("rope.scaling.type", "none")
    scaling: Scaling | None = None
    if kind == "linear":
        scaling = LinearScaling(fields.number("rope.scaling.factor"))
    elif kind == "yarn":
        original = fields.size("rope.scaling.original_context_length", context)
        scaling = YarnScaling(fields.number("rope.scaling.factor"), original)
    elif kind != "none":
        raise fields.fail("rope.scaling.type", f"{kind!r}; known are none, linear and yarn")
    short = _divisors(tensors, _SHORT_DIVISORS, head_size, fields)
    long = _divisors(tensors, _LONG_DIVISORS, head_size, fields)
    if short is not None and long is not None:
        original = fields.size("rope.scaling.original_context_length", context)
        length = fields.number("rope.scaling.attn_factor", 1.0)
        scaling = LongScaling(tuple(short), tuple(long), original, length)
    theta = theta_of(fields, "rope.freq_base", 10000.0)
    divisors = _divisors(tensors, _DIVISORS, head_size, fields)
    return Rope(head_size, theta, scaling, divisors)


def _divisors(
    tensors: Mapping[str, Any], name: str, head_size: int, fields: Fields
) -> list[float] | None:
    """Of each frequency, if the file has them: positive numbers, (head_size / 2,)."""
    weight, origin = tensors.get(name), fields.origin
    if weight is None:
        return None
    if not isinstance(weight, Tensor) or weight.shape != (head_size // 2,):
        reason = f"shape {weight.shape}; {(head_size // 2,)} not quantised is needed"
        raise FormatError(f"{origin}: {name}: {reason}")
    divisors = [float(one) for one in weight.numpy()]
    if not all(0 < one < float("inf") for one in divisors):
        raise FormatError(f"{origin}: {name}: positive numbers are needed")
    return divisors
