"""Transformers, with PyTorch's names, arguments and defaults.

Inputs are (L, N, E), with `batch_first` (N, L, E); the axis N may be absent. Masks are True where
attention is not allowed, or are added to the scores: those named ``mask`` are (L, S) or
(N * heads, L, S), and those named ``key_padding_mask`` (N, S).

Source: Vaswani et al. 2017, "Attention is all you need", section 3; with `norm_first`, Xiong et al.
2020, "On layer normalization in the transformer architecture".
"""

import math
from collections.abc import Callable
from copy import deepcopy
from typing import Any, TypeVar

from lamina import random
from lamina.core.dtypes import DType, default_float
from lamina.errors import ArgumentError, ShapeError
from lamina.frontend.functions.creation import full, triu
from lamina.frontend.functions.elementwise import gelu, relu
from lamina.frontend.tensor import Tensor
from lamina.nn.attention import MultiheadAttention
from lamina.nn.dropout import Dropout
from lamina.nn.linear import Linear
from lamina.nn.norm import LayerNorm
from lamina.nn.state import parameter, parameters

__all__ = [
    "Transformer", "TransformerDecoder", "TransformerDecoderLayer", "TransformerEncoder",
    "TransformerEncoderLayer",
]  # fmt: skip

Layer = TypeVar("Layer")
Activation = str | Callable[[Tensor], Tensor]


def _activation(what: str, activation: Activation) -> Callable[[Tensor], Tensor]:
    if not isinstance(activation, str):
        return activation
    if activation not in ("relu", "gelu"):
        raise ArgumentError(
            f"activation {activation!r} is no function, 'relu' or 'gelu'", operation=what
        )
    return relu if activation == "relu" else gelu


def _copies(layer: Layer, count: int) -> list[Layer]:
    """`count` layers with parameters of their own, which begin as those of `layer` are."""
    copies = [deepcopy(layer) for _ in range(count)]
    for weight in parameters(copies):
        parameter(weight)  # computed once, with all others, and by no forward pass
    return copies


class _Layer:
    """What encoder and decoder layers share: two linear layers with a function between them."""

    def __init__(
        self, d_model: int, nhead: int, dim_feedforward: int, dropout: float,
        activation: Activation, layer_norm_eps: float, batch_first: bool, norm_first: bool,
        bias: bool, dtype: DType, device: str | None,
    ) -> None:  # fmt: skip
        self.self_attn = MultiheadAttention(
            d_model, nhead, dropout, bias, batch_first=batch_first, dtype=dtype, device=device
        )
        self.linear1 = Linear(d_model, dim_feedforward, bias, dtype, device)
        self.linear2 = Linear(dim_feedforward, d_model, bias, dtype, device)
        self.norm1 = LayerNorm(d_model, layer_norm_eps, bias=bias, dtype=dtype, device=device)
        self.norm2 = LayerNorm(d_model, layer_norm_eps, bias=bias, dtype=dtype, device=device)
        self.dropout = Dropout(dropout)
        self.dropout1 = Dropout(dropout)
        self.dropout2 = Dropout(dropout)
        self.activation = _activation(type(self).__name__, activation)
        self.norm_first = norm_first

    def _attend_self(
        self, x: Tensor, mask: Tensor | None, key_padding_mask: Tensor | None, is_causal: bool
    ) -> Tensor:
        mixed, _ = self.self_attn(
            x, x, x, key_padding_mask, need_weights=False, attn_mask=mask, is_causal=is_causal
        )
        return self.dropout1(mixed)

    def _feed_forward(self, x: Tensor, dropout: Dropout) -> Tensor:
        return dropout(self.linear2(self.dropout(self.activation(self.linear1(x)))))


class TransformerEncoderLayer(_Layer):
    """Attention of a sequence to itself, then two linear layers; each added to its input.

    norm_first: normalise what goes into both, and not the sums."""

    def __init__(
        self, d_model: int, nhead: int, dim_feedforward: int = 2048, dropout: float = 0.1,
        activation: Activation = "relu", layer_norm_eps: float = 1e-5, batch_first: bool = False,
        norm_first: bool = False, bias: bool = True, dtype: DType = default_float,
        device: str | None = None,
    ) -> None:  # fmt: skip
        super().__init__(d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps,
                         batch_first, norm_first, bias, dtype, device)  # fmt: skip

    def __call__(
        self, src: Tensor, src_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None, is_causal: bool = False,
    ) -> Tensor:  # fmt: skip
        x = src
        masks = src_mask, src_key_padding_mask, is_causal
        if self.norm_first:
            x = x + self._attend_self(self.norm1(x), *masks)
            return x + self._feed_forward(self.norm2(x), self.dropout2)
        x = self.norm1(x + self._attend_self(x, *masks))
        return self.norm2(x + self._feed_forward(x, self.dropout2))


class TransformerDecoderLayer(_Layer):
    """Attention of a sequence to itself and to `memory`, then two linear layers; each added to its
    input.

    norm_first: normalise what goes into each, and not the sums."""

    def __init__(
        self, d_model: int, nhead: int, dim_feedforward: int = 2048, dropout: float = 0.1,
        activation: Activation = "relu", layer_norm_eps: float = 1e-5, batch_first: bool = False,
        norm_first: bool = False, bias: bool = True, dtype: DType = default_float,
        device: str | None = None,
    ) -> None:  # fmt: skip
        super().__init__(d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps,
                         batch_first, norm_first, bias, dtype, device)  # fmt: skip
        self.multihead_attn = MultiheadAttention(
            d_model, nhead, dropout, bias, batch_first=batch_first, dtype=dtype, device=device
        )
        self.norm3 = LayerNorm(d_model, layer_norm_eps, bias=bias, dtype=dtype, device=device)
        self.dropout3 = Dropout(dropout)

    def __call__(
        self, tgt: Tensor, memory: Tensor, tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None, tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None, tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> Tensor:  # fmt: skip
        x = tgt
        target_masks = tgt_mask, tgt_key_padding_mask, tgt_is_causal
        other = memory, memory_mask, memory_key_padding_mask, memory_is_causal
        if self.norm_first:
            x = x + self._attend_self(self.norm1(x), *target_masks)
            x = x + self._attend_memory(self.norm2(x), *other)
            return x + self._feed_forward(self.norm3(x), self.dropout3)
        x = self.norm1(x + self._attend_self(x, *target_masks))
        x = self.norm2(x + self._attend_memory(x, *other))
        return self.norm3(x + self._feed_forward(x, self.dropout3))

    def _attend_memory(
        self, x: Tensor, memory: Tensor, mask: Tensor | None, key_padding_mask: Tensor | None,
        is_causal: bool,
    ) -> Tensor:  # fmt: skip
        mixed, _ = self.multihead_attn(
            x, memory, memory, key_padding_mask, need_weights=False, attn_mask=mask,
            is_causal=is_causal,
        )  # fmt: skip
        return self.dropout2(mixed)


class TransformerEncoder:
    """`num_layers` copies of `encoder_layer` one after another, and `norm` at the end if given."""

    def __init__(
        self, encoder_layer: TransformerEncoderLayer, num_layers: int, norm: Any = None
    ) -> None:
        self.layers = _copies(encoder_layer, num_layers)
        self.norm = norm

    def __call__(
        self, src: Tensor, mask: Tensor | None = None, src_key_padding_mask: Tensor | None = None,
        is_causal: bool | None = None,
    ) -> Tensor:  # fmt: skip
        x = src
        for layer in self.layers:
            x = layer(x, mask, src_key_padding_mask, bool(is_causal))
        return x if self.norm is None else self.norm(x)


class TransformerDecoder:
    """`num_layers` copies of `decoder_layer` one after another, and `norm` at the end if given."""

    def __init__(
        self, decoder_layer: TransformerDecoderLayer, num_layers: int, norm: Any = None
    ) -> None:
        self.layers = _copies(decoder_layer, num_layers)
        self.norm = norm

    def __call__(
        self, tgt: Tensor, memory: Tensor, tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None, tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None, tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:  # fmt: skip
        x = tgt
        for layer in self.layers:
            x = layer(x, memory, tgt_mask, memory_mask, tgt_key_padding_mask,
                      memory_key_padding_mask, bool(tgt_is_causal), memory_is_causal)  # fmt: skip
        return x if self.norm is None else self.norm(x)


class Transformer:
    """An encoder and a decoder that attends to its result. Matrices begin as Glorot and Bengio's
    uniform draws."""

    def __init__(
        self, d_model: int = 512, nhead: int = 8, num_encoder_layers: int = 6,
        num_decoder_layers: int = 6, dim_feedforward: int = 2048, dropout: float = 0.1,
        activation: Activation = "relu", custom_encoder: Any = None, custom_decoder: Any = None,
        layer_norm_eps: float = 1e-5, batch_first: bool = False, norm_first: bool = False,
        bias: bool = True, dtype: DType = default_float, device: str | None = None,
    ) -> None:  # fmt: skip
        sizes = d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps
        rest = batch_first, norm_first, bias, dtype, device

        def norm() -> LayerNorm:
            return LayerNorm(d_model, layer_norm_eps, bias=bias, dtype=dtype, device=device)

        self.encoder = custom_encoder or TransformerEncoder(
            TransformerEncoderLayer(*sizes, *rest), num_encoder_layers, norm()
        )
        self.decoder = custom_decoder or TransformerDecoder(
            TransformerDecoderLayer(*sizes, *rest), num_decoder_layers, norm()
        )
        self.d_model, self.nhead, self.batch_first = d_model, nhead, batch_first
        for weight in parameters(self):
            if weight.ndim > 1:
                drawn = random.glorot_uniform(
                    weight.shape, dtype=weight.dtype, device=weight.device
                )
                weight.rebind(drawn)
                parameter(weight)

    def __call__(
        self, src: Tensor, tgt: Tensor, src_mask: Tensor | None = None,
        tgt_mask: Tensor | None = None, memory_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None, tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None, src_is_causal: bool | None = None,
        tgt_is_causal: bool | None = None, memory_is_causal: bool = False,
    ) -> Tensor:  # fmt: skip
        if src.ndim != tgt.ndim or (src.shape[-1], tgt.shape[-1]) != (self.d_model,) * 2:
            raise ShapeError(
                f"src {src.shape} and tgt {tgt.shape}; as many axes, the "
                f"last of {self.d_model}, are needed",
                operation="Transformer",
            )
        memory = self.encoder(src, src_mask, src_key_padding_mask, src_is_causal)
        return self.decoder(
            tgt, memory, tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask,
            tgt_is_causal, memory_is_causal,
        )  # fmt: skip

    @staticmethod
    def generate_square_subsequent_mask(
        sz: int, dtype: DType = default_float, device: str | None = None
    ) -> Tensor:
        """A mask (sz, sz) that is added to the scores: -infinity where a later key would be
        seen."""
        return triu(full((sz, sz), -math.inf, dtype=dtype, device=device), k=1)
