"""Scaled dot-product attention, written plainly: the compiler makes it one streaming kernel.

Source: Vaswani et al. 2017, "Attention is all you need", equation 1.
"""

from __future__ import annotations

import math

from lamina.dtypes import bool_
from lamina.errors import ShapeError
from lamina.shape import broadcast_shapes
from lamina.tensor import movement, reduction
from lamina.tensor.core import Tensor, common_device, common_dtype
from lamina.tensor.elementwise import exp, where
from lamina.tensor.linalg import matmul
from lamina.tensor.normalization import dropout
from lamina.tensor.windows import accumulator, exact, places

__all__ = ["scaled_dot_product_attention"]

_WHAT = "scaled_dot_product_attention"


def scaled_dot_product_attention(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None,
    dropout_p: float = 0.0, is_causal: bool = False, scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:  # fmt: skip
    """``softmax(scale * query @ key.T + mask) @ value``, shape (..., L, Ev).

    query: (..., L, E). key: (..., S, E). value: (..., S, Ev). attn_mask broadcasts to
    (..., L, S): bool, True where a key takes part, or a float that is added to the scores.
    is_causal: position i sees keys 0 to i. scale: 1 / sqrt(E) by default. enable_gqa: each head
    (the axis before the last two) of key and value serves a group of the query's. A row without
    any key is zeros, and so is its derivative. Scores and sums are float32 for halves."""
    dtype = common_dtype(_WHAT, query, key, value)
    wide = accumulator(dtype)
    query, key, value = (exact(_WHAT, one).cast(wide) for one in (query, key, value))
    _check(query, key, value)
    if enable_gqa:
        key, value = _for_heads(query, key), _for_heads(query, value)
    factor = 1.0 / math.sqrt(query.shape[-1]) if scale is None else scale
    scores = matmul(query, movement.matrix_transpose(key)) * factor
    scores = _masked(scores, attn_mask, is_causal)
    top = reduction.max(scores, axis=-1, keepdims=True).detach()
    # A finite reference keeps rows of -inf, which have no key, away from NaN.
    weights = exp(scores - where(top == -math.inf, 0.0, top))
    total = reduction.sum(weights, axis=-1, keepdims=True)
    weights = dropout(weights, dropout_p, training=dropout_p > 0.0)
    result = matmul(weights.cast(dtype).cast(wide), value)
    return (result / where(total == 0.0, 1.0, total)).cast(dtype)


def _check(*tensors: Tensor) -> None:
    common_device(_WHAT, *tensors)
    query, key, value = (tensor.shape for tensor in tensors)
    shapes = f"{_WHAT}: query {query}, key {key} and value {value}"
    if min(map(len, (query, key, value))) < 2:
        raise ShapeError(f"{shapes}: two axes or more are needed")
    if query[-1] != key[-1] or key[-2] != value[-2]:
        raise ShapeError(f"{shapes}: query and key need one last size, key and value one before")


def _masked(scores: Tensor, mask: Tensor | None, is_causal: bool) -> Tensor:
    if is_causal:
        box = scores.shape[-2:]
        rows, columns = (Tensor.of(places(box, axis), scores.device) for axis in (0, 1))
        scores = where(columns <= rows, scores, -math.inf)
    if mask is None:
        return scores
    if broadcast_shapes(_WHAT, mask.shape, scores.shape) != scores.shape:
        raise ShapeError(f"{_WHAT}: mask {mask.shape} does not broadcast to scores {scores.shape}")
    if mask.dtype is bool_:
        return where(mask, scores, -math.inf)
    return scores + mask.cast(scores.dtype)


def _for_heads(query: Tensor, x: Tensor) -> Tensor:
    """The heads of `x`, each once for every head of the query that it serves."""
    heads, shared = query.shape[-3:-2], x.shape[-3:-2]
    if not heads or not shared or not shared[0] or heads[0] % shared[0]:
        raise ShapeError(f"{_WHAT}: heads of {query.shape} do not divide by those of {x.shape}")
    return movement.repeat(x, heads[0] // shared[0], axis=-3)
