"""Rows of matrix products, convolutions and attention."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import lamina as lm
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


def _scaled(function: Row) -> Row:
    """A row of a product and a summand. PyTorch takes factors of integers towards zero: of 0.6,
    nothing is left."""
    def row(x: Tensor, y: Tensor, z: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
        if x.dtype.is_int:
            beta, alpha = int(beta), int(alpha)
        result: Tensor = function(x, y, z, beta=beta, alpha=alpha)
        return result

    return row


def _cdist_backward(
    upstream: Tensor, x: Tensor, y: Tensor, p: float, distances: Tensor
) -> Tensor | None:
    """upstream: (batch..., m, n). x: (..., m, k), whose axes in front are broadcast to the batch's
    and stay so: the graph sums over them. Without elements the result is zeros like x."""
    if upstream.size == 0 or x.size == 0:
        return lm.zeros_like(x)
    spread = lm.broadcast_to(x, (*upstream.shape[:-2], *x.shape[-2:]))
    return vjp(lambda x: lm.cdist(x, y, p), [spread], upstream)[0]


def _dot(x: Tensor, y: Tensor) -> Tensor:
    return lm.sum(x * y)


ROWS: dict[str, Row] = {
    "aten.mm.default": lm.matmul,
    "aten.bmm.default": lm.matmul,
    "aten.mv.default": lm.matmul,
    "aten.matmul.default": lm.matmul,
    "aten.dot.default": _dot,
    "aten.addmm.default": _scaled(lm.addmm),
    "aten.addmv.default": _scaled(lm.addmv),
    "aten.addbmm.default": _scaled(lm.addbmm),
    "aten.baddbmm.default": _scaled(lm.baddbmm),
    "aten.addr.default": _scaled(lm.addr),
    "aten._trilinear.default": _trilinear,
    "aten._cdist_forward.default": lambda x, y, p, mode: lm.cdist(x, y, p),
    "aten._cdist_backward.default": _cdist_backward,
    "aten._pdist_forward.default": lambda x, p=2.0: lm.pdist(x, p),
    "aten._pdist_backward.default": lambda upstream, x, p, distances: vjp(
        lambda x: lm.pdist(x, p), [x], upstream
    )[0],
    "aten.convolution.default": convolution,
    "aten.convolution_backward.default": _convolution_backward,
}
