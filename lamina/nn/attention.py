"""Multi-head attention as a layer."""

from __future__ import annotations

import math

from lamina.dtypes import DType, bool_
from lamina.errors import ShapeError
from lamina.nn.linear import Linear, linear
from lamina.nn.state import default_dtype, filled, settle, uniform_parameter
from lamina.tensor import attention, normalization, reduction
from lamina.tensor.core import Tensor
from lamina.tensor.elementwise import where


class MultiheadAttention:
    """Attention of several heads with projections of queries, keys, values and the result.

    in_proj_weight: (3 embed_dim, embed_dim), of queries, keys and values in this order; with
    `kdim` or `vdim` three separate weights. out_proj: a Linear.
    Source: Vaswani et al. 2017, "Attention is all you need", section 3.2.2.
    """

    def __init__(
        self, embed_dim: int, num_heads: int, dropout: float = 0.0, bias: bool = True,
        kdim: int | None = None, vdim: int | None = None, batch_first: bool = False,
        dtype: DType = default_dtype, device: str | None = None,
    ) -> None:  # fmt: skip
        if num_heads < 1 or embed_dim % num_heads:
            raise ShapeError(f"MultiheadAttention: {embed_dim} features in {num_heads} heads")
        self.embed_dim, self.num_heads = embed_dim, num_heads
        self.dropout, self.batch_first = dropout, batch_first
        self.training = True
        widths = (embed_dim, kdim or embed_dim, vdim or embed_dim)
        self.in_proj_weight: Tensor | None = None
        if widths == (embed_dim,) * 3:
            bound = math.sqrt(6.0 / (4 * embed_dim))  # Glorot, of the three weights as one
            shape = (3 * embed_dim, embed_dim)
            self.in_proj_weight = uniform_parameter(shape, bound, dtype, device)
        else:
            self.q_proj_weight, self.k_proj_weight, self.v_proj_weight = (
                uniform_parameter((embed_dim, width), math.sqrt(6.0 / (embed_dim + width)), dtype,
                                  device)
                for width in widths
            )  # fmt: skip
        self.in_proj_bias = filled((3 * embed_dim,), 0.0, dtype, device, True) if bias else None
        self.out_proj = Linear(embed_dim, embed_dim, bias, dtype, device)
        if bias:
            self.out_proj.bias = filled((embed_dim,), 0.0, dtype, device, True)

    def __call__(
        self, query: Tensor, key: Tensor, value: Tensor, key_padding_mask: Tensor | None = None,
        need_weights: bool = True, attn_mask: Tensor | None = None,
        average_attn_weights: bool = True, is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:  # fmt: skip
        """The attended values (L, N, E) and the weights (N, L, S), or (N, heads, L, S).

        query: (L, N, E), key and value: (S, N, ...); with `batch_first` (N, L, E) and so on; the
        axis N may be absent. Masks are True where attention is not allowed, or are added to the
        scores: key_padding_mask (N, S), attn_mask (L, S) or (N * heads, L, S). Without
        `need_weights`, which is faster, the second result is None.
        """
        settle()
        batched = query.ndim == 3
        inputs = [query, key, value]
        if not batched:
            inputs = [one.unsqueeze(0) for one in inputs]
            key_padding_mask = None if key_padding_mask is None else key_padding_mask.unsqueeze(0)
        elif not self.batch_first:
            inputs = [one.transpose(0, 1) for one in inputs]
        heads = self._project(inputs)
        if is_causal and attn_mask is None:
            raise ShapeError("MultiheadAttention: is_causal is a hint; give attn_mask as well")
        mask = self._mask(attn_mask, key_padding_mask, heads[0])
        rate = self.dropout if self.training else 0.0
        weights = None
        if need_weights:
            scores = heads[0] @ heads[1].mT * (1.0 / math.sqrt(heads[0].shape[-1]))
            weights = normalization.dropout(
                reduction.softmax(scores if mask is None else scores + mask), rate
            )
            mixed = weights @ heads[2]
            weights = weights.mean(axis=1) if average_attn_weights else weights
        else:
            queries, keys, values = heads
            mixed = attention.scaled_dot_product_attention(queries, keys, values, mask, rate)
        batch, _, length, _ = mixed.shape
        result = self.out_proj(mixed.transpose(1, 2).reshape(batch, length, self.embed_dim))
        if not batched:
            return result.squeeze(0), None if weights is None else weights.squeeze(0)
        return (result if self.batch_first else result.transpose(0, 1)), weights

    def _project(self, inputs: list[Tensor]) -> list[Tensor]:
        """Queries, keys and values as (N, heads, length, features of a head)."""
        if self.in_proj_weight is not None:
            weights = self.in_proj_weight.split(self.embed_dim)
        else:
            weights = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
        biases = (None,) * 3 if self.in_proj_bias is None else self.in_proj_bias.split(
            self.embed_dim)  # fmt: skip
        heads = []
        for x, weight, bias in zip(inputs, weights, biases, strict=True):
            y = linear(x, weight, bias)
            heads.append(y.reshape(*y.shape[:2], self.num_heads, -1).transpose(1, 2))
        return heads

    def _mask(
        self, attn_mask: Tensor | None, padding: Tensor | None, query: Tensor
    ) -> Tensor | None:
        """What is added to the scores (N, heads, L, S), or None."""
        total = None
        if attn_mask is not None:
            if attn_mask.ndim == 3:
                attn_mask = attn_mask.reshape(query.shape[0], self.num_heads, *attn_mask.shape[1:])
            total = _additive(attn_mask, query)
        if padding is not None:
            columns = _additive(padding.reshape(padding.shape[0], 1, 1, padding.shape[1]), query)
            total = columns if total is None else total + columns
        return total


def _additive(mask: Tensor, like: Tensor) -> Tensor:
    if mask.dtype is bool_:
        return where(mask, -math.inf, Tensor(0.0, like.dtype, like.device))
    return mask.cast(like.dtype)
