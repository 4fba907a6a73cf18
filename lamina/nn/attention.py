"""Attention with projections of its operands."""

import math
from functools import partial

from lamina import random
from lamina.core.dtypes import DType, bool_, default_float
from lamina.errors import ShapeError
from lamina.frontend.functions import attention, neural, reduction
from lamina.frontend.functions.creation import zeros
from lamina.frontend.functions.elementwise import where
from lamina.frontend.functions.movement import broadcast_to, concat
from lamina.frontend.functions.padding import pad
from lamina.frontend.functions.projection import linear
from lamina.frontend.tensor import Tensor
from lamina.nn.initial import Maybe
from lamina.nn.linear import Linear
from lamina.nn.state import filled, parameter

__all__ = ["MultiheadAttention"]


class MultiheadAttention:
    """Attention of several heads with projections of queries, keys, values and the result.

    in_proj_weight: (3 embed_dim, embed_dim), of queries, keys and values in this order; with
    `kdim` or `vdim` three separate weights. out_proj: a Linear. add_bias_kv: a learned key and
    value, bias_k and bias_v, (1, 1, embed_dim), follow the others. add_zero_attn: so do a key and
    a value of zeros.
    Source: Vaswani et al. 2017, "Attention is all you need", section 3.2.2."""

    def __init__(
        self, embed_dim: int, num_heads: int, dropout: float = 0.0, bias: bool = True,
        add_bias_kv: bool = False, add_zero_attn: bool = False, kdim: int | None = None,
        vdim: int | None = None, batch_first: bool = False, dtype: DType = default_float,
        device: str | None = None,
    ) -> None:  # fmt: skip
        if num_heads < 1 or embed_dim % num_heads:
            raise ShapeError(
                f"{embed_dim} features in {num_heads} heads", operation="MultiheadAttention"
            )
        self.embed_dim, self.num_heads = embed_dim, num_heads
        self.dropout, self.batch_first, self.training = dropout, batch_first, True
        widths = (embed_dim, kdim or embed_dim, vdim or embed_dim)
        draw = partial(random.glorot_uniform, dtype=dtype, device=device)
        self.in_proj_weight: Maybe = None
        if widths == (embed_dim,) * 3:
            self.in_proj_weight = parameter(draw((3 * embed_dim, embed_dim)))
        else:
            self.q_proj_weight, self.k_proj_weight, self.v_proj_weight = (
                parameter(draw((embed_dim, width))) for width in widths
            )
        self.in_proj_bias = filled((3 * embed_dim,), 0.0, dtype, device, True) if bias else None
        self.bias_k: Maybe = None
        self.bias_v: Maybe = None
        if add_bias_kv:
            # As PyTorch draws them: normal, of variance 1 / embed_dim, the axis that varies.
            normal = partial(random.normal, std=embed_dim**-0.5, dtype=dtype, device=device)
            self.bias_k, self.bias_v = (parameter(normal((1, 1, embed_dim))) for _ in range(2))
        self.add_zero_attn = add_zero_attn
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
        `need_weights`, which is faster, the second result is None."""
        if is_causal and attn_mask is None:
            raise ShapeError(
                "is_causal is a hint; give attn_mask as well", operation="MultiheadAttention"
            )
        inputs, batched = [query, key, value], query.ndim == 3
        if not batched:
            inputs = [x.unsqueeze(0) for x in inputs]
        elif not self.batch_first:
            inputs = [x.transpose(0, 1) for x in inputs]
        self._check_padding_mask(key_padding_mask, inputs[1], batched)
        queries, keys, values = self._project(inputs)
        mask = self._mask(queries, keys, attn_mask, key_padding_mask)
        rate = self.dropout if self.training else 0.0
        weights = None
        if need_weights:
            scores = queries @ keys.mT * (1.0 / math.sqrt(queries.shape[-1]))
            weights = reduction.softmax(scores if mask is None else scores + mask)
            weights = neural.dropout(weights, rate)
            mixed = weights @ values
            weights = weights.mean(axis=1) if average_attn_weights else weights
        else:
            mixed = attention.scaled_dot_product_attention(queries, keys, values, mask, rate)
        result = self.out_proj(mixed.transpose(1, 2).flatten(2))
        if not batched:
            return result.squeeze(0), None if weights is None else weights.squeeze(0)
        return (result if self.batch_first else result.transpose(0, 1)), weights

    def _check_padding_mask(self, mask: Tensor | None, keys: Tensor, batched: bool) -> None:
        """Raises ShapeError unless the mask fits keys (N, S, E), with N = 1 for an absent axis."""
        if mask is None or mask.shape == keys.shape[:2]:
            return
        if not batched and mask.shape == keys.shape[1:2]:
            return
        needed = f"(N, S) = {keys.shape[:2]}" if batched else f"(S,) = {keys.shape[1:2]}"
        raise ShapeError(
            f"key_padding_mask has shape {mask.shape}; {needed} is needed, as "
            f"batch_first is {self.batch_first}",
            operation="MultiheadAttention",
        )

    def _project(self, inputs: list[Tensor]) -> list[Tensor]:
        """Queries, keys and values as (N, heads, length, features of a head)."""
        weights, biases = self.in_proj_weight, self.in_proj_bias
        if weights is None:
            rows = [self.q_proj_weight, self.k_proj_weight, self.v_proj_weight]
        else:
            rows = list(weights.split(self.embed_dim))
        columns = (None,) * 3 if biases is None else biases.split(self.embed_dim)
        query, key, value = (
            linear(x, weight, bias) for x, weight, bias in zip(inputs, rows, columns, strict=True)
        )
        key = concat([key, *self._extras(key, self.bias_k)], axis=1)
        value = concat([value, *self._extras(value, self.bias_v)], axis=1)
        return [
            y.reshape(*y.shape[:2], self.num_heads, -1).transpose(1, 2) for y in (query, key, value)
        ]

    def _extras(self, projected: Tensor, bias: Maybe) -> list[Tensor]:
        """Rows of (N, 1, embed_dim) that follow the projected keys or values."""
        shape = (projected.shape[0], 1, self.embed_dim)
        extras = [] if bias is None else [broadcast_to(bias.cast(projected.dtype), shape)]
        if self.add_zero_attn:
            extras.append(zeros(shape, dtype=projected.dtype, device=projected.device))
        return extras

    def _mask(
        self, queries: Tensor, keys: Tensor, attn_mask: Tensor | None,
        key_padding_mask: Tensor | None,
    ) -> Tensor | None:  # fmt: skip
        """Both masks as one that is added to the scores; extra keys are always allowed."""
        if attn_mask is not None and attn_mask.ndim == 3:
            attn_mask = attn_mask.reshape(*queries.shape[:2], *attn_mask.shape[1:])
        mask = None if attn_mask is None else _additive(attn_mask, queries)
        if key_padding_mask is not None:
            columns = _additive(key_padding_mask.expand_dims((-3, -2)), queries)
            mask = columns if mask is None else mask + columns
        extra = 0 if mask is None else keys.shape[-2] - mask.shape[-1]
        if mask is None or extra <= 0:
            return mask
        return pad(mask, [(0, extra)])


def _additive(mask: Tensor, like: Tensor) -> Tensor:
    if mask.dtype is bool_:
        return where(mask, -math.inf, Tensor(0.0, like.dtype, like.device))
    return mask.cast(like.dtype)
