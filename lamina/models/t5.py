"""T5: an encoder and a decoder, whose scores of attention are moved by a learned number for each
distance of two tokens. Flan-T5 and T5 1.1 have gated layers and a last projection of their own.

Source: Raffel et al. 2019, "Exploring the limits of transfer learning with a unified text-to-text
transformer". Attributes are named as in the files of the Hugging Face hub.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lamina.frontend.functions.creation import arange
from lamina.frontend.functions.elementwise import abs as absolute
from lamina.frontend.functions.elementwise import minimum, where
from lamina.frontend.tensor import Tensor
from lamina.models.activations import ACTIVATIONS
from lamina.models.distances import Distances
from lamina.models.encoder_decoder import EncoderDecoder
from lamina.models.fields import MAX_LAYERS, Fields, token_of, tokens_of
from lamina.models.language_model import KeyShape
from lamina.models.multi_head import Memory, attend, memory_of
from lamina.models.parts import Cache, Lookup, Places, Projection, RMSNorm
from lamina.models.weights import Source, Weight

__all__ = ["T5", "T5Config", "read", "with_last_projection"]


@dataclass(frozen=True)
class T5Config:
    """What tells the models of the family apart.

    inner: of the inner layers. head_size: heads need not add up to `size`. is_scaled: the last
    vectors are divided by the root of their size. start: the token before a text. stops: those that
    end one."""

    vocabulary: int
    size: int  # of the vector of a token
    inner: int
    encoder_layers: int
    decoder_layers: int
    heads: int
    head_size: int
    distances: Distances
    start: int
    stops: tuple[int, ...]
    activation: str = "relu"
    is_gated: bool = False
    is_scaled: bool = True
    eps: float = 1e-6  # of the normalizations


class T5(EncoderDecoder):
    """Reads tokens, (batch, length), of any length: no token has a position of its own."""

    def __init__(self, config: T5Config, source: Source) -> None:
        self.config = config
        layers, activations = config.decoder_layers, source.activations
        self.keys = KeyShape(layers, config.heads, config.head_size, activations)
        self.shared = Lookup(source, "shared", config.vocabulary, config.size)
        self.encoder = _Stack(config, source, "encoder", config.encoder_layers, is_causal=False)
        self.decoder = _Stack(config, source, "decoder", config.decoder_layers, is_causal=True)
        self.lm_head = Projection(source, "lm_head", config.size, config.vocabulary)
        for name in _UNUSED:
            source.ignore(name)

    def encoded(self, inputs: Tensor, mask: Tensor | None = None) -> Tensor:
        x, seen = self.shared(inputs), _mask_of_scores(mask)
        bias = self.encoder.bias(Places(inputs.shape[1], None, inputs.device), inputs.shape[1])
        if seen is not None:
            bias = where(seen, bias, -math.inf)
        bias = bias.contiguous()  # in memory: each layer would compute it again
        for block in self.encoder.block:
            x = block.encoded(x, bias)
        return self.encoder.final_layer_norm(x)

    def memories(self, vectors: Tensor) -> list[Memory]:
        return [block.memory(vectors) for block in self.decoder.block]

    def vectors(
        self, ids: Tensor, memories: Sequence[Memory], mask: Tensor | None,
        caches: Sequence[Cache | None], first: Tensor | None,
    ) -> Tensor:  # fmt: skip
        places, seen = Places(ids.shape[1], first, ids.device), _mask_of_scores(mask)
        count = places.length if caches[0] is None else caches[0].capacity
        bias = where(places.sees(count), self.decoder.bias(places, count), -math.inf).contiguous()
        x = self.shared(ids)
        for block, memory, cache in zip(self.decoder.block, memories, caches, strict=True):
            x = block.decoded(x, bias, places, cache, memory, seen)
        return self.decoder.final_layer_norm(x)

    def logits(self, x: Tensor) -> Tensor:
        return self.lm_head(x * self.config.size**-0.5 if self.config.is_scaled else x)


def _mask_of_scores(mask: Tensor | None) -> Tensor | None:
    """A mask of keys, (batch, length), for scores, (batch, heads, queries, length)."""
    return None if mask is None else mask.unsqueeze(1).unsqueeze(1)


class _Stack:
    def __init__(
        self, config: T5Config, source: Source, name: str, layers: int, is_causal: bool
    ) -> None:
        self._distances, self._is_causal = config.distances, is_causal
        self.block = [
            _Block(config, source, f"{name}.block.{number}", is_causal, is_first=number == 0)
            for number in range(layers)
        ]
        self.final_layer_norm = RMSNorm(source, f"{name}.final_layer_norm", config.size, config.eps)

    def bias(self, places: Places, count: int) -> Tensor:
        """What is added to the scores of tokens at `places` and the first `count` tokens: (heads,
        length, count). All layers have the numbers of the first one."""
        table = Tensor(self._distances.table(self._is_causal), device=places.device)
        ahead = arange(count, device=places.device) - places.positions().unsqueeze(-1)
        bucket = table[minimum(absolute(ahead), self._distances.farthest)]
        if not self._is_causal:
            bucket = bucket + where(ahead > 0, self._distances.buckets // 2, 0)
        return self.block[0].bias_of(bucket).permute_dims((2, 0, 1))


class _Block:
    """Self-attention, in a decoder also attention to what is read, and an inner layer. Each is
    added to its input, which is normalized before."""

    def __init__(
        self, config: T5Config, source: Source, name: str, is_causal: bool, is_first: bool
    ) -> None:
        self._self_attention = _SelfAttentionLayer(config, source, f"{name}.layer.0", is_first)
        self._cross_attention: _CrossAttentionLayer | None = None
        if is_causal:
            self._cross_attention = _CrossAttentionLayer(config, source, f"{name}.layer.1")
        self._inner = _Inner(config, source, f"{name}.layer.{2 if is_causal else 1}")
        layers = (self._self_attention, self._cross_attention, self._inner)
        self.layer = [layer for layer in layers if layer is not None]

    def bias_of(self, buckets: Tensor) -> Tensor:
        """The learned numbers of buckets, integers (...), for each head: (..., heads)."""
        lookup = self._self_attention.SelfAttention.relative_attention_bias
        assert lookup is not None  # only asked of a first block
        return lookup(buckets)

    def memory(self, vectors: Tensor) -> Memory:
        assert self._cross_attention is not None
        return self._cross_attention.EncDecAttention.memory(vectors)

    def encoded(self, x: Tensor, bias: Tensor) -> Tensor:
        return self._inner(self._self_attention(x, bias))

    def decoded(
        self, x: Tensor, bias: Tensor, places: Places, cache: Cache | None, memory: Memory,
        seen: Tensor | None,
    ) -> Tensor:  # fmt: skip
        assert self._cross_attention is not None
        x = self._self_attention(x, bias, places, cache)
        return self._inner(self._cross_attention(x, memory, seen))


class _SelfAttentionLayer:
    def __init__(self, config: T5Config, source: Source, name: str, has_bias: bool) -> None:
        self.SelfAttention = _Attention(config, source, f"{name}.SelfAttention", has_bias)
        self.layer_norm = RMSNorm(source, f"{name}.layer_norm", config.size, config.eps)

    def __call__(
        self, x: Tensor, bias: Tensor, places: Places | None = None, cache: Cache | None = None
    ) -> Tensor:
        inner = self.layer_norm(x)
        memory = self.SelfAttention.memory(inner)
        if cache is not None and places is not None:
            keys, values = cache.extended(*memory, places)
            memory = keys.numbers, values.numbers
        return x + self.SelfAttention(inner, memory, bias)


class _CrossAttentionLayer:
    def __init__(self, config: T5Config, source: Source, name: str) -> None:
        self.EncDecAttention = _Attention(config, source, f"{name}.EncDecAttention")
        self.layer_norm = RMSNorm(source, f"{name}.layer_norm", config.size, config.eps)

    def __call__(self, x: Tensor, memory: Memory, seen: Tensor | None) -> Tensor:
        return x + self.EncDecAttention(self.layer_norm(x), memory, seen)


class _Attention:
    """Scores are not divided by the root of their size: the weights are drawn small enough."""

    def __init__(
        self, config: T5Config, source: Source, name: str, has_bias: bool = False
    ) -> None:
        size, width = config.size, config.heads * config.head_size
        self._keys = KeyShape(1, config.heads, config.head_size, source.activations)
        self.q = Projection(source, f"{name}.q", size, width)
        self.k = Projection(source, f"{name}.k", size, width)
        self.v = Projection(source, f"{name}.v", size, width)
        self.o = Projection(source, f"{name}.o", width, size)
        self.relative_attention_bias: Lookup | None = None
        if has_bias:
            self.relative_attention_bias = Lookup(
                source, f"{name}.relative_attention_bias", config.distances.buckets, config.heads,
                is_shared=False,
            )  # fmt: skip

    def memory(self, vectors: Tensor) -> Memory:
        return memory_of(vectors, self.k, self.v, self._keys)

    def __call__(self, x: Tensor, memory: Memory, mask: Tensor | None) -> Tensor:
        """mask: what is added to the scores, or which keys are seen."""
        return self.o(attend(self.q(x), memory, mask, scale=1.0))


class _Inner:
    def __init__(self, config: T5Config, source: Source, name: str) -> None:
        kind = _Gated if config.is_gated else _Plain
        self.DenseReluDense = kind(config, source, f"{name}.DenseReluDense")
        self.layer_norm = RMSNorm(source, f"{name}.layer_norm", config.size, config.eps)

    def __call__(self, x: Tensor) -> Tensor:
        return x + self.DenseReluDense(self.layer_norm(x))


class _Plain:
    def __init__(self, config: T5Config, source: Source, name: str) -> None:
        self._activation = ACTIVATIONS[config.activation]
        self.wi = Projection(source, f"{name}.wi", config.size, config.inner)
        self.wo = Projection(source, f"{name}.wo", config.inner, config.size)

    def __call__(self, x: Tensor) -> Tensor:
        return self.wo(self._activation(self.wi(x)))


class _Gated:
    def __init__(self, config: T5Config, source: Source, name: str) -> None:
        self._activation = ACTIVATIONS[config.activation]
        self.wi_0 = Projection(source, f"{name}.wi_0", config.size, config.inner)
        self.wi_1 = Projection(source, f"{name}.wi_1", config.size, config.inner)
        self.wo = Projection(source, f"{name}.wo", config.inner, config.size)

    def __call__(self, x: Tensor) -> Tensor:
        return self.wo(self._activation(self.wi_0(x)) * self.wi_1(x))


# Configurations and weights of a folder.

# Weights in older files that are copies of others, or that T5 never used.
_UNUSED = (
    "encoder.embed_tokens.weight", "decoder.embed_tokens.weight",
    "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight",
)  # fmt: skip


def read(fields: Fields) -> T5Config:
    """Of ``config.json``. Raises FormatError, which names the field, for what is not supported."""
    vocabulary, layers = fields.size("vocab_size"), fields.size("num_layers", 6, MAX_LAYERS)
    is_tied = fields.flag("tie_word_embeddings", True)
    return T5Config(
        vocabulary=vocabulary,
        size=fields.size("d_model"),
        inner=fields.size("d_ff"),
        encoder_layers=layers,
        decoder_layers=fields.size("num_decoder_layers", layers, MAX_LAYERS),
        heads=fields.size("num_heads"),
        head_size=fields.size("d_kv"),
        distances=_distances(fields),
        start=token_of(fields, "decoder_start_token_id", fields.get("pad_token_id", 0), vocabulary),
        stops=tokens_of(fields, "eos_token_id", 1, vocabulary),
        activation=_activation(fields),
        is_gated=fields.text("feed_forward_proj", "relu").startswith("gated-"),
        is_scaled=fields.flag("scale_decoder_outputs", is_tied),
        eps=fields.number("layer_norm_epsilon", 1e-6),
    )


def _activation(fields: Fields) -> str:
    """The function of the inner layers: a key of `ACTIVATIONS`, in files with or without "gated-".
    """
    text = fields.text("feed_forward_proj", "relu")
    kind = text.removeprefix("gated-")
    if kind not in ACTIVATIONS:
        known = f"{', '.join(ACTIVATIONS)}, each with or without 'gated-'"
        raise fields.fail("feed_forward_proj", f"{text!r}; known are {known}")
    return "gelu_new" if text == "gated-gelu" else kind


def _distances(fields: Fields) -> Distances:
    buckets = fields.size("relative_attention_num_buckets", 32, largest=1 << 16)
    farthest = fields.size("relative_attention_max_distance", 128, largest=1 << 20)
    if buckets < 4 or buckets % 2:
        reason = f"{buckets} buckets; an even number from 4 on is needed"
        raise fields.fail("relative_attention_num_buckets", reason)
    if farthest <= buckets // 2:
        reason = f"{farthest}; more than half of {buckets} buckets is needed"
        raise fields.fail("relative_attention_max_distance", reason)
    return Distances(buckets, farthest)


def with_last_projection(weights: Mapping[str, Weight], config: T5Config) -> dict[str, Weight]:
    """The weights, with the lookup as the last projection where a file has no other."""
    with_projection = dict(weights)
    if "shared.weight" in weights:
        with_projection.setdefault("lm_head.weight", weights["shared.weight"])
    return with_projection
