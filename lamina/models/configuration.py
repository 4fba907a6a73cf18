"""Configurations of models: from ``config.json`` of a Hugging Face folder, or the metadata of a
GGUF file."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from lamina.core.shape import Shape
from lamina.errors import FormatError
from lamina.frontend.tensor import Tensor
from lamina.models.gemma import Gemma2Config
from lamina.models.gpt2 import GPT2Config
from lamina.models.llama import LlamaConfig
from lamina.models.parts import Scores
from lamina.models.rope import LinearScaling, Llama3Scaling, Rope, Scaling, YarnScaling

__all__ = ["Config", "Fields", "from_gguf", "from_hugging_face"]

Config = LlamaConfig | GPT2Config | Gemma2Config
_Number = int | float
_LARGEST = 1 << 24  # of a size: no model is near, and products of a few are no memory errors
_MOST_LAYERS = 1 << 12  # each becomes a dozen objects before its weights are found missing


@dataclass(frozen=True)
class Fields:
    """Values by name, from a file; each is checked as it is read.

    prefix: of the names in errors and in the file. origin: the name of the file."""

    values: Mapping[str, Any]
    origin: str
    prefix: str = ""

    def fail(self, name: str, reason: str) -> FormatError:
        return FormatError(f"{self.origin}: {self.prefix}{name}: {reason}")

    def get(self, name: str, fallback: Any = None) -> Any:
        """A value; the fallback for one that is missing or null."""
        value = self.values.get(self.prefix + name)
        return fallback if value is None else value

    def text(self, name: str, fallback: str | None = None) -> str:
        value = self.get(name, fallback)
        if value is None:
            raise self.fail(name, "missing")
        if not isinstance(value, str):
            raise self.fail(name, f"{value!r}; a text is needed")
        return value

    def size(self, name: str, fallback: int | None = None, largest: int = _LARGEST) -> int:
        """A whole number from 1 on."""
        value = self.get(name, fallback)
        if value is None:
            raise self.fail(name, "missing")
        if not isinstance(value, int) or isinstance(value, bool) or not 0 < value <= largest:
            raise self.fail(name, f"{value!r}; an integer from 1 to {largest} is needed")
        return value

    def number(self, name: str, fallback: float | None = None) -> float:
        """A positive number that a float can be."""
        value = self.get(name, fallback)
        if value is None:
            raise self.fail(name, "missing")
        is_number = isinstance(value, _Number) and not isinstance(value, bool)
        if not is_number or not 0 < value <= sys.float_info.max:
            raise self.fail(name, f"{value!r}; a positive number is needed")
        return float(value)

    def flag(self, name: str, fallback: bool = False) -> bool:
        value = self.get(name, fallback)
        if not isinstance(value, bool):
            raise self.fail(name, f"{value!r}; true or false is needed")
        return value

    def part(self, name: str) -> Fields:
        """The fields of an object in a field; none where it is missing."""
        value = self.get(name, {})
        if not isinstance(value, dict):
            raise self.fail(name, f"{value!r}; an object is needed")
        return Fields(value, f"{self.origin}: {name}")


# Hugging Face.


def from_hugging_face(values: Mapping[str, Any], origin: str) -> Config:
    """Raises FormatError, which names the field, for models that lamina does not know, and for
    values that are missing or make no sense."""
    fields = Fields(values, origin)
    kind = fields.text("model_type")
    if kind in _FAMILIES:
        return _llama(fields, _FAMILIES[kind])
    if kind in _OTHERS:
        return _OTHERS[kind](fields)
    known = ", ".join([*_FAMILIES, *_OTHERS])
    raise fields.fail("model_type", f"{kind!r} is no model that lamina knows: {known}")


def _llama(fields: Fields, family: _Family) -> LlamaConfig:
    _check_activation(fields, "hidden_act", "silu", "swish")
    size, heads = fields.size("hidden_size"), _heads(fields)
    head_size = _even(fields, "head_dim", size // heads.queries)
    context = fields.size("max_position_embeddings", 2048)
    return LlamaConfig(
        vocabulary=fields.size("vocab_size"),
        size=size,
        inner=fields.size("intermediate_size"),
        layers=fields.size("num_hidden_layers", largest=_MOST_LAYERS),
        heads=heads.queries,
        key_heads=heads.keys,
        head_size=head_size,
        rope=_rope(fields, head_size, context, turns_parts=family.turns_parts),
        eps=fields.number("rms_norm_eps", 1e-6),
        context=context,
        tied=fields.flag("tie_word_embeddings", False),
        window=_window(fields, family),
        qkv_biases=fields.flag("attention_bias", family.qkv_biases),
        output_bias=fields.flag("attention_bias") and not family.qkv_biases,
        inner_biases=fields.flag("mlp_bias"),
        normalizes_heads=family.normalizes_heads,
    )


def _gpt2(fields: Fields) -> GPT2Config:
    _check_activation(fields, "activation_function", "gelu_new", "gelu_pytorch_tanh")
    _check_flags(fields, "scale_attn_weights", "tie_word_embeddings")
    _check_flags(fields, "scale_attn_by_inverse_layer_idx", "add_cross_attention", value=False)
    size, heads = fields.size("n_embd"), fields.size("n_head")
    if size % heads:
        raise fields.fail("n_head", f"{heads} heads do not divide {size} elements")
    return GPT2Config(
        vocabulary=fields.size("vocab_size"),
        size=size,
        inner=fields.size("n_inner", 4 * size),
        layers=fields.size("n_layer", largest=_MOST_LAYERS),
        heads=heads,
        context=fields.size("n_positions", 1024),
        eps=fields.number("layer_norm_epsilon", 1e-5),
    )


def _gemma2(fields: Fields) -> Gemma2Config:
    _check_activation(fields, "hidden_activation", "gelu_pytorch_tanh")
    _check_flags(fields, "tie_word_embeddings")
    _check_flags(fields, "attention_bias", "use_bidirectional_attention", value=False)
    heads, head_size = _heads(fields), _even(fields, "head_dim", 256)
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
        rope=_rope(fields, head_size, context),
        scores=Scores(scale, _bound(fields, "attn_logit_softcapping", 50.0)),
        logit_bound=_bound(fields, "final_logit_softcapping", 30.0),
        eps=fields.number("rms_norm_eps", 1e-6),
        context=context,
    )


def _windows(fields: Fields) -> tuple[int | None, ...]:
    """Of each layer: those with an even number have one, unless ``layer_types`` says otherwise."""
    layers = fields.size("num_hidden_layers", largest=_MOST_LAYERS)
    sliding, full = "sliding_attention", "full_attention"
    kinds = fields.get("layer_types", [full if number % 2 else sliding for number in range(layers)])
    is_list = isinstance(kinds, list) and len(kinds) == layers
    if not is_list or not all(kind in (sliding, full) for kind in kinds):
        reason = f"{sliding} or {full} for each of {layers} layers is needed"
        raise fields.fail("layer_types", reason)
    window = fields.size("sliding_window", 4096)
    return tuple(window if kind == sliding else None for kind in kinds)


def _bound(fields: Fields, name: str, fallback: float) -> float | None:
    """A number; null says that there is no bound."""
    is_null = name in fields.values and fields.values[name] is None
    return None if is_null else fields.number(name, fallback)


_OTHERS: Mapping[str, Callable[[Fields], Config]] = {"gpt2": _gpt2, "gemma2": _gemma2}


def _check_flags(fields: Fields, *names: str, value: bool = True) -> None:
    """Raises FormatError for a flag that is there and has another value."""
    for name in names:
        if fields.flag(name, value) is not value:
            raise fields.fail(name, f"{not value}; models of this family have {value}")


def _check_activation(fields: Fields, name: str, *known: str) -> None:
    activation = fields.text(name, known[0])
    if activation not in known:
        raise fields.fail(name, f"{activation!r}; models of this family have {known[0]!r}")


@dataclass(frozen=True)
class _Family:
    """How the models of one `model_type` differ from Llama."""

    qkv_biases: bool = False  # and none of the attention's output
    normalizes_heads: bool = False
    has_window: bool = False
    turns_parts: bool = False  # of heads, as `partial_rotary_factor` says


_FAMILIES = {
    "llama": _Family(),
    "mistral": _Family(has_window=True),
    "qwen2": _Family(qkv_biases=True),
    "qwen3": _Family(normalizes_heads=True),
    "phi3": _Family(has_window=True, turns_parts=True),
}


@dataclass(frozen=True)
class _Heads:
    queries: int
    keys: int


def _heads(fields: Fields) -> _Heads:
    queries = fields.size("num_attention_heads")
    keys = fields.size("num_key_value_heads", queries)
    if queries % keys:
        raise fields.fail("num_key_value_heads", f"{keys} do not divide {queries} heads")
    return _Heads(queries, keys)


def _even(fields: Fields, name: str, fallback: int) -> int:
    """The size of a head, whose elements are turned in pairs."""
    size = fields.size(name, max(fallback, 1))
    if size % 2:
        raise fields.fail(name, f"{size} elements of a head; an even number is needed")
    return size


def _window(fields: Fields, family: _Family) -> int | None:
    if family.has_window and fields.get("sliding_window") is not None:
        return fields.size("sliding_window")
    if fields.flag("use_sliding_window"):
        raise fields.fail("use_sliding_window", "layers with and without windows are not supported")
    return None


def _rope(
    fields: Fields, head_size: int, context: int, *, turns_parts: bool = False
) -> Rope:
    """The rotary embedding: ``rope_parameters``, or ``rope_theta`` and ``rope_scaling`` in older
    files."""
    scaling = fields.part("rope_parameters")
    theta = _theta(scaling, "rope_theta", _theta(fields, "rope_theta", 10000.0))
    holder = scaling if "partial_rotary_factor" in scaling.values else fields
    share = holder.number("partial_rotary_factor", 1.0)
    if share != 1.0 and not turns_parts:
        reason = f"{share}; models of this family turn whole heads"
        raise holder.fail("partial_rotary_factor", reason)
    turned = int(head_size * min(share, 2.0))  # no more than a head, or it is refused
    if turned % 2 or not 0 < turned <= head_size:
        reason = f"{share} of {head_size} elements of a head; an even number is turned"
        raise holder.fail("partial_rotary_factor", reason)
    if not scaling.values:
        scaling = fields.part("rope_scaling")
    return Rope(turned, theta, _scaling(scaling, context))


def _theta(fields: Fields, name: str, fallback: float) -> float:
    """The base of the frequencies. At 1 all would be equal, and YaRN's formula divides by zero."""
    theta = fields.number(name, fallback)
    if theta <= 1.0:
        raise fields.fail(name, f"{theta}; a number above 1 is needed")
    return theta


def _scaling(fields: Fields, context: int) -> Scaling | None:
    kind = fields.text("rope_type", fields.text("type", "default"))
    original = fields.size("original_max_position_embeddings", context)
    if kind == "default":
        return None
    if kind == "linear":
        return LinearScaling(fields.number("factor"))
    if kind == "llama3":
        low, high = fields.number("low_freq_factor"), fields.number("high_freq_factor")
        if high <= low:
            raise fields.fail("high_freq_factor", f"{high}; more than {low}, low_freq_factor")
        return Llama3Scaling(fields.number("factor"), low, high, original)
    if kind == "yarn":
        longer = fields.get("attention_factor")
        return YarnScaling(
            fields.number("factor"),
            original,
            fields.number("beta_fast", 32.0),
            fields.number("beta_slow", 1.0),
            None if longer is None else fields.number("attention_factor"),
        )
    raise fields.fail("rope_type", f"{kind!r}; known are default, linear, llama3 and yarn")


# GGUF.


def from_gguf(metadata: Mapping[str, Any], names: Mapping[str, Any], origin: str) -> LlamaConfig:
    """names: of the tensors, as in Hugging Face's files, where some of the configuration is only
    seen by them. Raises FormatError as `from_hugging_face` does."""
    general = Fields(metadata, origin)
    kind = general.text("general.architecture")
    if kind not in _GGUF_KINDS:
        known = ", ".join(_GGUF_KINDS)
        what = f"{kind!r} is no model that lamina knows: {known}"
        raise general.fail("general.architecture", what)
    fields, family = Fields(metadata, origin, f"{kind}."), _FAMILIES[kind]
    size, queries = fields.size("embedding_length"), fields.size("attention.head_count")
    keys = fields.size("attention.head_count_kv", queries)
    if queries % keys:
        raise fields.fail("attention.head_count_kv", f"{keys} do not divide {queries} heads")
    head_size = _even(fields, "attention.key_length", size // queries)
    turned = fields.size("rope.dimension_count", head_size)
    if turned != head_size:
        raise fields.fail("rope.dimension_count", f"{turned}; all {head_size} of a head are needed")
    context = fields.size("context_length")
    embedding: Shape = getattr(names.get("model.embed_tokens.weight"), "shape", ())
    return LlamaConfig(
        vocabulary=embedding[0] if len(embedding) == 2 else fields.size("vocab_size"),
        size=size,
        inner=fields.size("feed_forward_length"),
        layers=fields.size("block_count", largest=_MOST_LAYERS),
        heads=queries,
        key_heads=keys,
        head_size=head_size,
        rope=_gguf_rope(fields, names, head_size, context),
        eps=fields.number("attention.layer_norm_rms_epsilon"),
        context=context,
        tied="lm_head.weight" not in names,
        qkv_biases=family.qkv_biases,
        normalizes_heads=family.normalizes_heads,
    )


_GGUF_KINDS = ("llama", "qwen2", "qwen3")


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
    theta = _theta(fields, "rope.freq_base", 10000.0)
    return Rope(head_size, theta, scaling, _divisors(names, head_size, fields.origin))


def _divisors(names: Mapping[str, Any], head_size: int, origin: str) -> list[float] | None:
    """Of the frequencies, which Llama 3.1 keeps as a tensor of the file."""
    weight, name = names.get("rope_freqs.weight"), "rope_freqs.weight"
    if weight is None:
        return None
    if not isinstance(weight, Tensor) or weight.shape != (head_size // 2,):
        reason = f"shape {weight.shape}; {(head_size // 2,)} not quantised is needed"
        raise FormatError(f"{origin}: {name}: {reason}")
    divisors = [float(one) for one in weight.numpy()]
    if not all(0 < one < float("inf") for one in divisors):
        raise FormatError(f"{origin}: {name}: positive numbers are needed")
    return divisors
