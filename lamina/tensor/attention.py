"""Scaled dot-product attention, written plainly: the compiler makes it one streaming kernel.

Source: Vaswani et al. 2017, "Attention is all you need", equation 1.
"""

from __future__ import annotations

import math

from lamina.dtypes import bool_, int64
from lamina.errors import DTypeError, ShapeError
from lamina.shape import Shape, broadcast_shapes
from lamina.tensor import movement, reduction
from lamina.tensor.core import Tensor, common_device, common_dtype
from lamina.tensor.creation import arange
from lamina.tensor.elementwise import exp, where
from lamina.tensor.normalization import dropout
from lamina.tensor.product import matmul
from lamina.tensor.windows import accumulator

__all__ = ["scaled_dot_product_attention"]


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """``softmax(scale * query @ key.T + mask) @ value``, shape (..., L, Ev).

    query: (..., L, E). key: (..., S, E). value: (..., S, Ev). attn_mask broadcasts to
    (..., L, S): bool, True where a key takes part, or a float that is added to the scores.
    is_causal: position i sees keys 0 to i. scale: 1 / sqrt(E) by default. enable_gqa: the axis
    before the last two of `query` has a multiple of the size of the others, and each of their
    heads serves a group of its heads. A row without any key is zeros, and so is its derivative.
    Scores and sums are float32 for halves. Raises ShapeError and DTypeError.
    """
    _check(query, key, value)
    shape = query.shape
    mask = attn_mask
    if enable_gqa:
        query, key, value, mask = _grouped(query, key, value, mask)
    dtype = common_dtype("scaled_dot_product_attention", query, key, value)
    exact = accumulator(dtype)
    factor = 1.0 / math.sqrt(shape[-1]) if scale is None else scale
    scores = matmul(query.cast(exact), movement.matrix_transpose(key.cast(exact))) * factor
    scores = _masked(scores, mask, is_causal)
    top = reduction.max(scores, axis=-1, keepdims=True).detach()
    # A finite reference keeps rows of -inf, which have no key, away from NaN.
    weights = exp(scores - where(top == -math.inf, 0.0, top))
    total = reduction.sum(weights, axis=-1, keepdims=True)
    weights = dropout(weights, dropout_p, training=dropout_p > 0.0)
    result = matmul(weights.cast(dtype).cast(exact), value.cast(exact))
    result = (result / where(total == 0.0, 1.0, total)).cast(dtype)
    return movement.reshape(result, (*shape[:-1], value.shape[-1])) if enable_gqa else result


def _check(query: Tensor, key: Tensor, value: Tensor) -> None:
    what = "scaled_dot_product_attention"
    common_device(what, query, key, value)
    for tensor in (query, key, value):
        if not tensor.dtype.is_float:
            raise DTypeError(f"{what}: {tensor.dtype.name} is not a float dtype")
    shapes = f"query {query.shape}, key {key.shape} and value {value.shape}"
    if min(query.ndim, key.ndim, value.ndim) < 2:
        raise ShapeError(f"{what}: {shapes}: two axes or more are needed")
    if query.shape[-1] != key.shape[-1] or key.shape[-2] != value.shape[-2]:
        raise ShapeError(
            f"{what}: {shapes}: query and key differ in their last size, or key and value in "
            "the one before"
        )


def _masked(scores: Tensor, mask: Tensor | None, is_causal: bool) -> Tensor:
    if is_causal:
        length, keys = scores.shape[-2:]
        rows = arange(length, dtype=int64, device=scores.device)
        columns = arange(keys, dtype=int64, device=scores.device)
        seen = columns <= movement.reshape(rows, (length, 1))
        scores = where(seen, scores, -math.inf)
    if mask is None:
        return scores
    if broadcast_shapes("scaled_dot_product_attention", mask.shape, scores.shape) != scores.shape:
        raise ShapeError(
            f"scaled_dot_product_attention: the mask {mask.shape} does not broadcast to the "
            f"scores {scores.shape}"
        )
    if mask.dtype is bool_:
        return where(mask, scores, -math.inf)
    return scores + mask.cast(scores.dtype)


def _grouped(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Query heads split into (heads of the key, group), so that the key's heads broadcast."""
    what = "scaled_dot_product_attention"
    if min(query.ndim, key.ndim, value.ndim) < 3:
        raise ShapeError(f"{what}: enable_gqa needs an axis of heads: {query.shape}, {key.shape}")
    heads, shared = query.shape[-3], key.shape[-3]
    if value.shape[-3] != shared or not shared or heads % shared:
        raise ShapeError(
            f"{what}: {heads} heads of query {query.shape} do not divide into groups for key "
            f"{key.shape} and value {value.shape}"
        )
    split = (shared, heads // shared)
    if mask is not None and mask.ndim >= 3:
        mask = _with_heads(mask, split if mask.shape[-3] == heads else (1, mask.shape[-3]))
    return (
        _with_heads(query, split),
        _with_heads(key, (shared, 1)),
        _with_heads(value, (shared, 1)),
        mask,
    )


def _with_heads(x: Tensor, heads: Shape) -> Tensor:
    return movement.reshape(x, (*x.shape[:-3], *heads, *x.shape[-2:]))
