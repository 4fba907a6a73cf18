"""Whisper: an encoder of sound, and a decoder that writes what is said.

Source: Radford et al. 2022, "Robust speech recognition via large-scale weak supervision".
Attributes are named as in the files of the Hugging Face hub.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lamina.errors import ShapeError
from lamina.frontend.functions.elementwise import gelu
from lamina.frontend.tensor import Tensor
from lamina.models.activations import ACTIVATIONS, activation_of
from lamina.models.encoder_decoder import EncoderDecoder
from lamina.models.fields import (
    MAX_LAYERS,
    Fields,
    check_flags,
    head_count,
    token_of,
    tokens_of,
)
from lamina.models.image_network import Convolution
from lamina.models.language_model import KeyShape
from lamina.models.multi_head import Memory, MultiHead
from lamina.models.parts import Cache, LayerNorm, Lookup, Places, Projection, floats
from lamina.models.weights import Source

__all__ = ["Side", "Whisper", "WhisperConfig", "read"]

_EPS = 1e-5  # of the normalizations


@dataclass(frozen=True)
class Side:
    """The encoder or the decoder. positions: vectors of the encoder, and of the decoder the most
    tokens of a text."""

    layers: int
    heads: int
    inner: int
    positions: int


@dataclass(frozen=True)
class WhisperConfig:
    """What tells the models of the family apart. mels: numbers that a frame of sound has. start:
    the token before a text. stops: those that end one."""

    vocabulary: int
    mels: int
    size: int  # of the vector of a token
    encoder: Side
    decoder: Side
    start: int
    stops: tuple[int, ...]
    activation: str = "gelu"


class Whisper(EncoderDecoder):
    """Reads features of sound, (batch, mels, frames), twice as many frames as the encoder has
    positions. The last projection has the weight of the lookup."""

    def __init__(self, config: WhisperConfig, source: Source) -> None:
        self.config, side = config, config.decoder
        self.keys = KeyShape(side.layers, side.heads, config.size // side.heads, source.activations)
        self.model = _Model(config, source)
        source.ignore("proj_out.weight")

    def encoded(self, inputs: Tensor, mask: Tensor | None = None) -> Tensor:
        """Raises ShapeError for features of another shape, and for a mask: a part that the sound
        does not fill is silence, which is read as sound is."""
        frames = 2 * self.config.encoder.positions
        if inputs.ndim != 3 or inputs.shape[1:] != (self.config.mels, frames):
            wanted = f"(batch, {self.config.mels}, {frames})"
            raise ShapeError(
                f"features of shape {inputs.shape}; {wanted} is needed", operation="Whisper"
            )
        if mask is not None:
            raise ShapeError("a mask; Whisper reads silence as well", operation="Whisper")
        return self.model.encoder(inputs)

    def memories(self, vectors: Tensor) -> list[Memory]:
        return [layer.encoder_attn.memory(vectors) for layer in self.model.decoder.layers]

    def vectors(
        self, ids: Tensor, memories: Sequence[Memory], mask: Tensor | None,
        caches: Sequence[Cache | None], first: Tensor | None,
    ) -> Tensor:  # fmt: skip
        decoder, places = self.model.decoder, Places(ids.shape[1], first, ids.device)
        x = decoder.embed_tokens(ids) + decoder.embed_positions(places.positions())
        for layer, memory, cache in zip(decoder.layers, memories, caches, strict=True):
            x = layer(x, places, memory, cache)
        return decoder.layer_norm(x)

    def logits(self, x: Tensor) -> Tensor:
        return self.model.decoder.embed_tokens.project(x)


class _Model:
    def __init__(self, config: WhisperConfig, source: Source) -> None:
        self.encoder = _Encoder(config, source)
        self.decoder = _Decoder(config, source)


class _Encoder:
    """Two convolutions make a vector of each two frames. Positions are sines, which files have."""

    def __init__(self, config: WhisperConfig, source: Source) -> None:
        name, size, side = "model.encoder", config.size, config.encoder
        self.conv1 = Convolution(source, f"{name}.conv1", config.mels, size, (3,), padding=1)
        self.conv2 = Convolution(source, f"{name}.conv2", size, size, (3,), stride=2, padding=1)
        self.embed_positions = Lookup(
            source, f"{name}.embed_positions", side.positions, size, is_shared=False
        )
        self.layers = [
            _EncoderLayer(config, source, f"{name}.layers.{number}")
            for number in range(side.layers)
        ]
        self.layer_norm = LayerNorm(source, f"{name}.layer_norm", size, _EPS)

    def __call__(self, features: Tensor) -> Tensor:
        """(batch, positions, size)."""
        x = gelu(self.conv2(gelu(self.conv1(features)))).transpose(1, 2)
        x = x + floats(self.embed_positions.weight)
        for layer in self.layers:
            x = layer(x)
        return self.layer_norm(x)


class _Decoder:
    def __init__(self, config: WhisperConfig, source: Source) -> None:
        name, size, side = "model.decoder", config.size, config.decoder
        self.embed_tokens = Lookup(
            source, f"{name}.embed_tokens", config.vocabulary, size, projects=True
        )
        self.embed_positions = Lookup(
            source, f"{name}.embed_positions", side.positions, size, is_shared=False
        )
        self.layers = [
            _DecoderLayer(config, source, f"{name}.layers.{number}")
            for number in range(side.layers)
        ]
        self.layer_norm = LayerNorm(source, f"{name}.layer_norm", size, _EPS)


class _Layer:
    """What layers of both sides have: self-attention, and an inner layer at the end."""

    def __init__(self, config: WhisperConfig, source: Source, name: str, side: Side) -> None:
        size, inner = config.size, side.inner
        self.self_attn = MultiHead(
            source, f"{name}.self_attn", size, side.heads, key_bias=False
        )
        self.self_attn_layer_norm = LayerNorm(source, f"{name}.self_attn_layer_norm", size, _EPS)
        self.fc1 = Projection(source, f"{name}.fc1", size, inner, bias=True)
        self.fc2 = Projection(source, f"{name}.fc2", inner, size, bias=True)
        self.final_layer_norm = LayerNorm(source, f"{name}.final_layer_norm", size, _EPS)
        self._activation = ACTIVATIONS[config.activation]

    def _inner(self, x: Tensor) -> Tensor:
        return x + self.fc2(self._activation(self.fc1(self.final_layer_norm(x))))


class _EncoderLayer(_Layer):
    def __init__(self, config: WhisperConfig, source: Source, name: str) -> None:
        super().__init__(config, source, name, config.encoder)

    def __call__(self, x: Tensor) -> Tensor:
        normalized = self.self_attn_layer_norm(x)
        memory = self.self_attn.memory(normalized)
        return self._inner(x + self.self_attn(normalized, memory))


class _DecoderLayer(_Layer):
    def __init__(self, config: WhisperConfig, source: Source, name: str) -> None:
        super().__init__(config, source, name, config.decoder)
        size, heads = config.size, config.decoder.heads
        self.encoder_attn = MultiHead(
            source, f"{name}.encoder_attn", size, heads, key_bias=False
        )
        self.encoder_attn_layer_norm = LayerNorm(
            source, f"{name}.encoder_attn_layer_norm", size, _EPS
        )

    def __call__(self, x: Tensor, places: Places, memory: Memory, cache: Cache | None) -> Tensor:
        """memory: of the sound. cache: of the text."""
        normalized = self.self_attn_layer_norm(x)
        text_memory = self.self_attn.memory(normalized)
        if cache is None:
            x = x + self.self_attn(normalized, text_memory, is_causal=True)
        else:
            keys, values = cache.extended(*text_memory, places)
            text_memory = keys.numbers, values.numbers
            x = x + self.self_attn(normalized, text_memory, places.sees(cache.capacity))
        x = x + self.encoder_attn(self.encoder_attn_layer_norm(x), memory)
        return self._inner(x)


# Configurations.


def read(fields: Fields) -> WhisperConfig:
    """Of ``config.json``. Raises FormatError, which names the field, for what is not supported."""
    check_flags(fields, "tie_word_embeddings")
    check_flags(fields, "scale_embedding", value=False)
    vocabulary, size = fields.size("vocab_size"), fields.size("d_model")
    return WhisperConfig(
        vocabulary=vocabulary,
        mels=fields.size("num_mel_bins", 80),
        size=size,
        encoder=_side(fields, "encoder", "max_source_positions", 1500),
        decoder=_side(fields, "decoder", "max_target_positions", 448),
        start=token_of(fields, "decoder_start_token_id", None, vocabulary),
        stops=tokens_of(fields, "eos_token_id", None, vocabulary),
        activation=activation_of(fields, "activation_function", "gelu"),
    )


def _side(fields: Fields, name: str, positions: str, usual: int) -> Side:
    heads = head_count(fields, f"{name}_attention_heads", fields.size("d_model"))
    return Side(
        layers=fields.size(f"{name}_layers", largest=MAX_LAYERS),
        heads=heads,
        inner=fields.size(f"{name}_ffn_dim"),
        positions=fields.size(positions, usual),
    )
