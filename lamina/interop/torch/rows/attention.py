"""Attention. PyTorch has an operation, and one for its derivatives, of each kernel that it may use:
one for CPUs and three for GPUs. All compute the same, of queries (batch, heads, length, width).

PyTorch's forward operations also return what their backward ones read: logarithms of sums, and the
state of the random numbers of dropout. Ours compute the sums again, and refuse dropout both ways.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import lamina as lm
from lamina.errors import ArgumentError
from lamina.frontend.tensor import Tensor
from lamina.interop.torch.rows.unread import Unread
from lamina.interop.torch.rows.vjp import vjp

Row = Callable[..., Any]


def _attend(
    query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None, dropout_p: float,
    is_causal: bool, scale: float | None, shares_keys: bool | None = None,
) -> Tensor:  # fmt: skip
    """shares_keys: whether several heads of queries have one of keys; None asks the shapes, as the
    kernels of PyTorch do."""
    if dropout_p:
        raise ArgumentError(f"attention: dropout_p={dropout_p} draws PyTorch's random numbers")
    if shares_keys is None:
        shares_keys = query.shape[-3] != key.shape[-3]
    return lm.scaled_dot_product_attention(
        query, key, value, bias, 0.0, is_causal, scale, shares_keys
    )


def _slopes(
    upstream: Tensor, tensors: Sequence[Tensor], bias: Tensor | None, dropout_p: float,
    is_causal: bool, scale: float | None,
) -> list[Tensor | None]:  # fmt: skip
    """The derivatives for queries, keys and values."""
    return vjp(
        lambda q, k, v: _attend(q, k, v, bias, dropout_p, is_causal, scale), tensors, upstream
    )


# On CPUs.


def _on_cpu(
    query: Tensor, key: Tensor, value: Tensor, dropout_p: float = 0.0, is_causal: bool = False,
    *, attn_mask: Tensor | None = None, scale: float | None = None,
) -> tuple[Tensor, Unread]:  # fmt: skip
    return _attend(query, key, value, attn_mask, dropout_p, is_causal, scale), Unread.RESULT


def _on_cpu_backward(
    upstream: Tensor, query: Tensor, key: Tensor, value: Tensor, result: Tensor, logsumexp: Tensor,
    dropout_p: float, is_causal: bool, *, attn_mask: Tensor | None = None,
    scale: float | None = None,
) -> list[Tensor | None]:  # fmt: skip
    return _slopes(upstream, [query, key, value], attn_mask, dropout_p, is_causal, scale)


# On GPUs: of 16 bits without a mask, of any with one, and cuDNN's.


def _flash(
    query: Tensor, key: Tensor, value: Tensor, dropout_p: float = 0.0, is_causal: bool = False,
    return_debug_mask: bool = False, *, scale: float | None = None,
) -> tuple[Any, ...]:  # fmt: skip
    result = _attend(query, key, value, None, dropout_p, is_causal, scale)
    return result, *[Unread.RESULT] * 8


def _flash_backward(
    upstream: Tensor, query: Tensor, key: Tensor, value: Tensor, result: Tensor, logsumexp: Tensor,
    cum_seq_q: Any, cum_seq_k: Any, max_q: int, max_k: int, dropout_p: float, is_causal: bool,
    philox_seed: Tensor, philox_offset: Tensor, *, scale: float | None = None,
) -> list[Tensor | None]:  # fmt: skip
    return _slopes(upstream, [query, key, value], None, dropout_p, is_causal, scale)


def _efficient(
    query: Tensor, key: Tensor, value: Tensor, attn_bias: Tensor | None, compute_log_sumexp: bool,
    dropout_p: float = 0.0, is_causal: bool = False, *, scale: float | None = None,
) -> tuple[Any, ...]:  # fmt: skip
    result = _attend(query, key, value, attn_bias, dropout_p, is_causal, scale)
    return result, *[Unread.RESULT] * 3


def _efficient_backward(
    upstream: Tensor, query: Tensor, key: Tensor, value: Tensor, attn_bias: Tensor | None,
    result: Tensor, logsumexp: Tensor, philox_seed: Tensor, philox_offset: Tensor,
    dropout_p: float, grad_input_mask: Sequence[bool], is_causal: bool = False,
    *, scale: float | None = None,
) -> list[Tensor | None]:  # fmt: skip
    def forward(query: Tensor, key: Tensor, value: Tensor, *bias: Tensor) -> Tensor:
        mask = bias[0] if bias else None
        return _attend(query, key, value, mask, dropout_p, is_causal, scale)

    tensors = [query, key, value] if attn_bias is None else [query, key, value, attn_bias]
    slopes = vjp(forward, tensors, upstream, grad_input_mask[: len(tensors)])
    return slopes if attn_bias is not None else [*slopes, None]


def _cudnn(
    query: Tensor, key: Tensor, value: Tensor, attn_bias: Tensor | None, compute_log_sumexp: bool,
    dropout_p: float = 0.0, is_causal: bool = False, return_debug_mask: bool = False,
    *, scale: float | None = None,
) -> tuple[Any, ...]:  # fmt: skip
    result = _attend(query, key, value, attn_bias, dropout_p, is_causal, scale)
    return result, *[Unread.RESULT] * 8


def _cudnn_backward(
    upstream: Tensor, query: Tensor, key: Tensor, value: Tensor, result: Tensor, logsumexp: Tensor,
    philox_seed: Tensor, philox_offset: Tensor, attn_bias: Tensor | None, cum_seq_q: Any,
    cum_seq_k: Any, max_q: int, max_k: int, dropout_p: float, is_causal: bool,
    *, scale: float | None = None,
) -> list[Tensor | None]:  # fmt: skip
    return _slopes(upstream, [query, key, value], attn_bias, dropout_p, is_causal, scale)


def _attention(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None,
    dropout_p: float = 0.0, is_causal: bool = False, *, scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:  # fmt: skip
    """The operation itself, as exported programs have it: of two axes or more."""
    return _attend(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)


_NAME = "aten._scaled_dot_product"
ROWS: dict[str, Row] = {
    "aten.scaled_dot_product_attention.default": _attention,
    f"{_NAME}_flash_attention_for_cpu.default": _on_cpu,
    f"{_NAME}_flash_attention_for_cpu_backward.default": _on_cpu_backward,
    f"{_NAME}_flash_attention.default": _flash,
    f"{_NAME}_flash_attention_backward.default": _flash_backward,
    f"{_NAME}_efficient_attention.default": _efficient,
    f"{_NAME}_efficient_attention_backward.default": _efficient_backward,
    f"{_NAME}_cudnn_attention.default": _cudnn,
    f"{_NAME}_cudnn_attention_backward.default": _cudnn_backward,
}
