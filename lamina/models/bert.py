"""BERT, and RoBERTa, which has other positions. MiniLM and most models of sentences are BERTs.

Each layer normalizes the sum of its input and its result, so that no normalization is at the end.
Source: Devlin et al. 2018, "BERT"; Liu et al. 2019, "RoBERTa". Attributes are named as in the files
of the Hugging Face hub.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lamina.frontend.functions.attention import scaled_dot_product_attention
from lamina.frontend.functions.creation import arange
from lamina.frontend.functions.elementwise import gelu
from lamina.frontend.functions.statistics import cumsum
from lamina.frontend.tensor import Tensor
from lamina.models.fields import (
    MAX_LAYERS,
    Fields,
    check_activation,
    check_flags,
    head_count,
)
from lamina.models.parts import LayerNorm, Lookup, Projection, heads_of
from lamina.models.sharing import Sharing, divided
from lamina.models.text_encoder import TextEncoder, without_heads
from lamina.models.weights import Source, Weight

__all__ = ["Bert", "BertConfig", "read_bert", "read_roberta", "renamed"]


@dataclass(frozen=True)
class BertConfig:
    """What tells the models of the family apart."""

    vocabulary: int
    size: int  # of the vector of a token
    inner: int
    layers: int
    heads: int
    positions: int
    types: int  # of tokens, such as those of a first and a second sentence
    eps: float = 1e-12  # of the normalizations
    # RoBERTa: tokens of this number have its position, and the others those after it: where it is
    # 1, the positions of 0, 5, 6, 1, 1 are 2, 3, 4, 1, 1.
    padding: int | None = None

    @property
    def context(self) -> int:
        """The most tokens of a text."""
        return self.positions if self.padding is None else self.positions - self.padding - 1


class Bert(TextEncoder):
    """All tokens are of type 0, as texts have one part."""

    def __init__(self, config: BertConfig, source: Source) -> None:
        self.config = config
        divided(config.heads, source.over, "heads")
        self.embeddings = _Embeddings(config, source)
        self.encoder = _Encoder(config, source)

    def vectors(self, ids: Tensor, seen: Tensor | None) -> Tensor:
        x = self.embeddings(ids)
        for layer in self.encoder.layer:
            x = layer(x, seen)
        return x


class _Embeddings:
    def __init__(self, config: BertConfig, source: Source) -> None:
        size, name = config.size, "embeddings"
        self._padding = config.padding
        self.word_embeddings = Lookup(source, f"{name}.word_embeddings", config.vocabulary, size)
        self.position_embeddings = Lookup(
            source, f"{name}.position_embeddings", config.positions, size, is_shared=False
        )
        self.token_type_embeddings = Lookup(
            source, f"{name}.token_type_embeddings", config.types, size, is_shared=False
        )
        self.LayerNorm = LayerNorm(source, f"{name}.LayerNorm", size, config.eps)

    def __call__(self, ids: Tensor) -> Tensor:
        positions = self.position_embeddings(self._positions(ids))
        first_type = ids[:1, :1] * 0  # one 0, of the dtype and the device of `ids`
        types = self.token_type_embeddings(first_type)
        return self.LayerNorm(self.word_embeddings(ids) + positions + types)

    def _positions(self, ids: Tensor) -> Tensor:
        """Integers (length,), or (batch, length) where they depend on the tokens."""
        if self._padding is None:
            return arange(ids.shape[1], device=ids.device)
        counted = (ids != self._padding).cast(ids.dtype)
        return cumsum(counted, 1) * counted + self._padding


class _Encoder:
    def __init__(self, config: BertConfig, source: Source) -> None:
        names = (f"encoder.layer.{number}" for number in range(config.layers))
        self.layer = [_Layer(config, source, name) for name in names]


class _Layer:
    def __init__(self, config: BertConfig, source: Source, name: str) -> None:
        size, inner = config.size, config.inner
        self.attention = _Attention(config, source, f"{name}.attention")
        self.intermediate = _Dense(source, f"{name}.intermediate", size, inner)
        self.output = _Output(config, source, f"{name}.output", inner)

    def __call__(self, x: Tensor, seen: Tensor | None) -> Tensor:
        x = self.attention(x, seen)
        return self.output(gelu(self.intermediate.dense(x)), x)


class _Attention:
    def __init__(self, config: BertConfig, source: Source, name: str) -> None:
        self.self = _Heads(config, source, f"{name}.self")
        self.output = _Output(config, source, f"{name}.output", config.size)

    def __call__(self, x: Tensor, seen: Tensor | None) -> Tensor:
        return self.output(self.self(x, seen), x)


class _Heads:
    def __init__(self, config: BertConfig, source: Source, name: str) -> None:
        size = config.size
        self._head_size = size // config.heads
        self.query, self.key, self.value = (
            Projection(source, f"{name}.{part}", size, size, bias=True, sharing=Sharing.OUTPUTS)
            for part in ("query", "key", "value")
        )

    def __call__(self, x: Tensor, seen: Tensor | None) -> Tensor:
        query, key, value = (
            heads_of(project(x), self._head_size)
            for project in (self.query, self.key, self.value)
        )
        return scaled_dot_product_attention(query, key, value, seen).transpose(1, 2).flatten(2)


class _Dense:
    def __init__(self, source: Source, name: str, size: int, inner: int) -> None:
        self.dense = Projection(
            source, f"{name}.dense", size, inner, bias=True, sharing=Sharing.OUTPUTS
        )


class _Output:
    """A projection of what a part of a layer computes; its sum with the part's input, normalized.
    """

    def __init__(self, config: BertConfig, source: Source, name: str, inputs: int) -> None:
        self.dense = Projection(
            source, f"{name}.dense", inputs, config.size, bias=True, sharing=Sharing.INPUTS
        )
        self.LayerNorm = LayerNorm(source, f"{name}.LayerNorm", config.size, config.eps)

    def __call__(self, x: Tensor, before: Tensor) -> Tensor:
        return self.LayerNorm(self.dense(x) + before)


# Configurations and weights of a folder.


def read_bert(fields: Fields) -> BertConfig:
    """Of BERT. Raises FormatError, which names the field, for what is not supported."""
    return _read(fields, None)


def read_roberta(fields: Fields) -> BertConfig:
    """Of RoBERTa. Raises FormatError, which names the field, for what is not supported."""
    padding = fields.get("pad_token_id", 1)
    if not isinstance(padding, int) or isinstance(padding, bool) or padding < 0:
        raise fields.fail("pad_token_id", f"{padding!r}; an integer from 0 on is needed")
    return _read(fields, padding)


def _read(fields: Fields, padding: int | None) -> BertConfig:
    check_activation(fields, "hidden_act", "gelu")
    check_flags(fields, "is_decoder", "add_cross_attention", value=False)
    kind = fields.text("position_embedding_type", "absolute")
    if kind != "absolute":
        raise fields.fail("position_embedding_type", f"{kind!r}; only 'absolute' is supported")
    size = fields.size("hidden_size")
    heads = head_count(fields, "num_attention_heads", size)
    config = BertConfig(
        vocabulary=fields.size("vocab_size"),
        size=size,
        inner=fields.size("intermediate_size"),
        layers=fields.size("num_hidden_layers", largest=MAX_LAYERS),
        heads=heads,
        positions=fields.size("max_position_embeddings", 512),
        types=fields.size("type_vocab_size", 2),
        eps=fields.number("layer_norm_eps", 1e-12),
        padding=padding,
    )
    if config.context < 1:
        reason = f"{config.positions}; more are needed behind position {padding} of padding"
        raise fields.fail("max_position_embeddings", reason)
    return config


# How names of weights begin that the encoder does not need: of layers above it, and the numbers 0,
# 1, 2, ... of the positions.
_NOT_NEEDED = ("cls.", "lm_head.", "pooler.", "embeddings.position_ids")
# How names of weights of normalizations end in files of the first implementation, and in others.
_OLD_ENDS = {".gamma": ".weight", ".beta": ".bias"}


def renamed(weights: Mapping[str, Weight], config: BertConfig, prefix: str) -> dict[str, Weight]:
    """The weights of a folder by the names of a plain encoder."""
    encoder = without_heads(weights, prefix, _NOT_NEEDED)
    return {_new_name(name): weight for name, weight in encoder.items()}


def _new_name(name: str) -> str:
    for old, new in _OLD_ENDS.items():
        if name.endswith(f"LayerNorm{old}"):
            return name.removesuffix(old) + new
    return name
