"""Rows of matrix products, convolutions and attention."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import lamina as lm
from lamina.errors import ArgumentError
from lamina.frontend.tensor import Tensor
from lamina.interop.torch.rows.vjp import vjp

Row = Callable[..., Any]

_CONVOLUTIONS = {1: lm.conv1d, 2: lm.conv2d, 3: lm.conv3d}
_TRANSPOSED = {1: lm.conv_transpose1d, 2: lm.conv_transpose2d, 3: lm.conv_transpose3d}


def _per_axis(values: Sequence[int], rank: int) -> tuple[int, ...]:
    """A size for each spatial axis, of one for all or of one each."""
    return tuple(values) * (rank // len(values))


def convolution(
    x: Tensor, weight: Tensor, bias: Tensor | None, stride: Sequence[int], padding: Sequence[int],
    dilation: Sequence[int], transposed: bool, output_padding: Sequence[int], groups: int,
) -> Tensor:  # fmt: skip
    rank = weight.ndim - 2
    strides, pads, dilations = (_per_axis(one, rank) for one in (stride, padding, dilation))
    if not transposed:
        return _CONVOLUTIONS[rank](x, weight, bias, strides, pads, dilations, groups)
    more = _per_axis(output_padding, rank)
    return _TRANSPOSED[rank](x, weight, bias, strides, pads, more, groups, dilations)


def _convolution_backward(
    upstream: Tensor, x: Tensor, weight: Tensor, bias_sizes: Sequence[int] | None,
    stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int], transposed: bool,
    output_padding: Sequence[int], groups: int, mask: Sequence[bool],
) -> list[Tensor | None]:  # fmt: skip
    def forward(x: Tensor, weight: Tensor) -> Tensor:
        return convolution(
            x, weight, None, stride, padding, dilation, transposed, output_padding, groups
        )

    of_bias = None
    if mask[2]:
        axes = (0, *range(2, upstream.ndim)) if upstream.ndim == weight.ndim else tuple(
            range(1, upstream.ndim)
        )  # fmt: skip
        of_bias = lm.sum(upstream, axis=axes)
    return [*vjp(forward, [x, weight], upstream, mask[:2]), of_bias]


def _attention(
    query: Tensor, key: Tensor, value: Tensor, dropout_p: float = 0.0, is_causal: bool = False,
    *, attn_mask: Tensor | None = None, scale: float | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The result, and zeros for the logarithms of the sums, which only the backward operation
    reads; ours computes them again."""
    if dropout_p:
        raise ArgumentError(f"attention: dropout_p={dropout_p} draws PyTorch's random numbers")
    result = lm.scaled_dot_product_attention(
        query, key, value, attn_mask, 0.0, is_causal, scale, query.shape[-3] != key.shape[-3]
    )
    return result, lm.zeros((*query.shape[:2], query.shape[2]), dtype=lm.float32)


def _attention_backward(
    upstream: Tensor, query: Tensor, key: Tensor, value: Tensor, result: Tensor, logsumexp: Tensor,
    dropout_p: float, is_causal: bool, *, attn_mask: Tensor | None = None,
    scale: float | None = None,
) -> list[Tensor | None]:  # fmt: skip
    def forward(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return _attention(
            query, key, value, dropout_p, is_causal, attn_mask=attn_mask, scale=scale
        )[0]

    return vjp(forward, [query, key, value], upstream)


def _trilinear(
    x: Tensor, y: Tensor, z: Tensor, new1: Sequence[int], new2: Sequence[int],
    new3: Sequence[int], summed: Sequence[int], unroll: int = 1,
) -> Tensor:  # fmt: skip
    """The product of three tensors, each with new axes of size 1, summed over axes."""
    spread = (
        lm.expand_dims(tensor, tuple(new)) if new else tensor
        for tensor, new in ((x, new1), (y, new2), (z, new3))
    )
    first, second, third = spread
    return lm.sum(first * second * third, axis=tuple(summed))


def _dot(x: Tensor, y: Tensor) -> Tensor:
    return lm.sum(x * y)


ROWS: dict[str, Row] = {
    "aten.mm.default": lm.matmul,
    "aten.bmm.default": lm.matmul,
    "aten.mv.default": lm.matmul,
    "aten.matmul.default": lm.matmul,
    "aten.dot.default": _dot,
    "aten.addmm.default": lm.addmm,
    "aten.addmv.default": lm.addmv,
    "aten.addbmm.default": lm.addbmm,
    "aten.baddbmm.default": lm.baddbmm,
    "aten.addr.default": lm.addr,
    "aten._trilinear.default": _trilinear,
    "aten._cdist_forward.default": lambda x, y, p, mode: lm.cdist(x, y, p),
    "aten._cdist_backward.default": lambda upstream, x, y, p, distances: vjp(
        lambda x: lm.cdist(x, y, p), [x], upstream
    )[0],
    "aten._pdist_forward.default": lambda x, p=2.0: lm.pdist(x, p),
    "aten._pdist_backward.default": lambda upstream, x, p, distances: vjp(
        lambda x: lm.pdist(x, p), [x], upstream
    )[0],
    "aten.convolution.default": convolution,
    "aten.convolution_backward.default": _convolution_backward,
    "aten._scaled_dot_product_flash_attention_for_cpu.default": _attention,
    "aten._scaled_dot_product_flash_attention_for_cpu_backward.default": _attention_backward,
}
