"""Convolutions with one, two and three spatial axes; names and meanings as in PyTorch.

A convolution is one product of window views and weights, summed over channels and kernel axes at
once: the compiler sees a matrix product with affine indices. Halves are summed in float32.
"""

from __future__ import annotations

from lamina.dtypes import promote
from lamina.errors import ShapeError
from lamina.ir.build import cast, expand, flip, permute, reduce, reshape
from lamina.ir.monoids import ADD
from lamina.ir.node import Node
from lamina.shape import Shape
from lamina.tensor.core import Tensor, common_device
from lamina.tensor.windows import (
    Sizes,
    accumulator,
    batched,
    pad_spatial,
    per_axis,
    spread_apart,
    unbatched,
    windows,
)

__all__ = [
    "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d",
]  # fmt: skip


def conv1d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Sizes = 1,
    padding: Sizes | str = 0,
    dilation: Sizes = 1,
    groups: int = 1,
) -> Tensor:
    """Cross-correlation along one axis; see `conv2d`."""
    return _convolution("conv1d", 1, x, weight, bias, stride, padding, dilation, groups)


def conv2d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Sizes = 1,
    padding: Sizes | str = 0,
    dilation: Sizes = 1,
    groups: int = 1,
) -> Tensor:
    """Cross-correlation of images with kernels.

    x: (N, C, H, W) or (C, H, W). weight: (O, C / groups, KH, KW). bias: (O,). padding: zeros on
    both sides, or 'valid' (none), or 'same' (the result has x's sizes; stride 1 only).
    Result: (N, O, OH, OW) with ``OH = (H + 2 padding - dilation (KH - 1) - 1) // stride + 1``.
    Raises ShapeError for sizes that do not fit.
    """
    return _convolution("conv2d", 2, x, weight, bias, stride, padding, dilation, groups)


def conv3d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Sizes = 1,
    padding: Sizes | str = 0,
    dilation: Sizes = 1,
    groups: int = 1,
) -> Tensor:
    """Cross-correlation along three axes; see `conv2d`."""
    return _convolution("conv3d", 3, x, weight, bias, stride, padding, dilation, groups)


def conv_transpose1d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Sizes = 1,
    padding: Sizes = 0,
    output_padding: Sizes = 0,
    groups: int = 1,
    dilation: Sizes = 1,
) -> Tensor:
    """The adjoint of `conv1d`; see `conv_transpose2d`."""
    return _transposed(
        "conv_transpose1d", 1, x, weight, bias, stride, padding, output_padding, groups, dilation
    )


def conv_transpose2d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Sizes = 1,
    padding: Sizes = 0,
    output_padding: Sizes = 0,
    groups: int = 1,
    dilation: Sizes = 1,
) -> Tensor:
    """The adjoint of `conv2d` with respect to its input.

    x: (N, C, H, W) or (C, H, W). weight: (C, O / groups, KH, KW). bias: (O,). output_padding:
    rows added at the end, fewer than the stride or the dilation. Result: (N, O, OH, OW) with
    ``OH = (H - 1) stride - 2 padding + dilation (KH - 1) + output_padding + 1``.
    Raises ShapeError for sizes that do not fit.
    """
    return _transposed(
        "conv_transpose2d", 2, x, weight, bias, stride, padding, output_padding, groups, dilation
    )


def conv_transpose3d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Sizes = 1,
    padding: Sizes = 0,
    output_padding: Sizes = 0,
    groups: int = 1,
    dilation: Sizes = 1,
) -> Tensor:
    """The adjoint of `conv3d`; see `conv_transpose2d`."""
    return _transposed(
        "conv_transpose3d", 3, x, weight, bias, stride, padding, output_padding, groups, dilation
    )


def _convolution(
    what: str,
    rank: int,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sizes,
    padding: Sizes | str,
    dilation: Sizes,
    groups: int,
) -> Tensor:
    device = _device(what, x, weight, bias)
    steps = per_axis(what, "stride", stride, rank)
    gaps = per_axis(what, "dilation", dilation, rank)
    images = batched(what, x.node, rank)
    _check_weight(what, images.shape, weight.shape, rank, groups, channel_axis=1)
    kernel = weight.shape[2:]
    before, after = _margins(what, padding, kernel, steps, gaps)
    padded = pad_spatial(images, before, after)
    result = _correlate(what, padded, weight.node, steps, gaps, groups)
    return Tensor.of(unbatched(_add_bias(what, result, bias), x.node), device)


def _transposed(
    what: str,
    rank: int,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sizes,
    padding: Sizes,
    output_padding: Sizes,
    groups: int,
    dilation: Sizes,
) -> Tensor:
    """A correlation, with flipped kernels, of the input with zeros between its elements."""
    device = _device(what, x, weight, bias)
    steps = per_axis(what, "stride", stride, rank)
    gaps = per_axis(what, "dilation", dilation, rank)
    margins = per_axis(what, "padding", padding, rank, least=0)
    extra = per_axis(what, "output_padding", output_padding, rank, least=0)
    if any(more >= max(s, d) for more, s, d in zip(extra, steps, gaps, strict=True)):
        raise ShapeError(
            f"{what}: output_padding {extra} must be less than stride {steps} or dilation {gaps}"
        )
    images = batched(what, x.node, rank)
    _check_weight(what, images.shape, weight.shape, rank, groups, channel_axis=0)
    reach = [d * (k - 1) for d, k in zip(gaps, weight.shape[2:], strict=True)]
    before = [r - p for r, p in zip(reach, margins, strict=True)]
    # `spread_apart` leaves stride - 1 zeros behind the last element.
    after = [b + e - (s - 1) for b, e, s in zip(before, extra, steps, strict=True)]
    apart = spread_apart(images, steps)
    if any(n + b + a < 1 for n, b, a in zip(apart.shape[2:], before, after, strict=True)):
        raise ShapeError(f"{what}: padding {margins} leaves nothing of an input of {x.shape}")
    padded = pad_spatial(apart, before, after)
    kernels = _turned(weight.node, groups)
    result = _correlate(what, padded, kernels, (1,) * rank, gaps, groups)
    return Tensor.of(unbatched(_add_bias(what, result, bias), x.node), device)


def _turned(weight: Node, groups: int) -> Node:
    """Kernels (C, O / groups, K...) of an adjoint as those of a correlation, (O, C / groups,
    K...), flipped."""
    inputs, outputs, *kernel = weight.shape
    rank = len(kernel)
    split = reshape(weight, (groups, inputs // groups, outputs, *kernel))
    swapped = permute(split, (0, 2, 1, *range(3, 3 + rank)))
    joined = reshape(swapped, (groups * outputs, inputs // groups, *kernel))
    return flip(joined, range(2, 2 + rank))


def _correlate(
    what: str, x: Node, weight: Node, stride: Shape, dilation: Shape, groups: int
) -> Node:
    """(N, C, S...) and (O, C / groups, K...) to (N, O, S'...), without padding."""
    rank = len(stride)
    dtype = promote(what, x.dtype, weight.dtype)
    exact = accumulator(dtype)
    outputs, inputs, *kernel = weight.shape
    view = windows(what, cast(x, exact), tuple(kernel), stride, dilation)
    batch, places = x.shape[0], view.shape[2 : 2 + rank]
    per_group = outputs // groups
    shape = (batch, groups, per_group, inputs, *places, *kernel)
    left = reshape(view, (batch, groups, 1, inputs, *places, *kernel))
    right = reshape(
        cast(weight, exact), (1, groups, per_group, inputs, *(1,) * rank, *kernel)
    )
    product = expand(left, shape) * expand(right, shape)
    total = reduce(ADD, (3, *range(4 + rank, 4 + 2 * rank)), product)
    return cast(reshape(total, (batch, outputs, *places)), dtype)


def _device(what: str, x: Tensor, weight: Tensor, bias: Tensor | None) -> str:
    return common_device(what, x, weight, *(() if bias is None else (bias,)))


def _margins(
    what: str, padding: Sizes | str, kernel: Shape, stride: Shape, dilation: Shape
) -> tuple[Shape, Shape]:
    """Zeros before and after each spatial axis."""
    if not isinstance(padding, str):
        both = per_axis(what, "padding", padding, len(kernel), least=0)
        return both, both
    if padding == "valid":
        return (0,) * len(kernel), (0,) * len(kernel)
    if padding != "same":
        raise ShapeError(f"{what}: padding {padding!r} is neither 'same' nor 'valid'")
    if any(step != 1 for step in stride):
        raise ShapeError(f"{what}: padding 'same' needs stride 1, not {stride}")
    total = [d * (k - 1) for d, k in zip(dilation, kernel, strict=True)]
    return tuple(n // 2 for n in total), tuple(n - n // 2 for n in total)


def _check_weight(
    what: str, x: Shape, weight: Shape, rank: int, groups: int, channel_axis: int
) -> None:
    if len(weight) != rank + 2:
        raise ShapeError(f"{what}: the weight has shape {weight}; {rank + 2} axes are needed")
    channels = weight[channel_axis] * (groups if channel_axis == 1 else 1)
    if x[1] != channels:
        raise ShapeError(
            f"{what}: input {x} and weight {weight} in {groups} groups: the input has {x[1]} "
            f"channels, the weight is for {channels}"
        )
    if groups < 1 or weight[0] % groups:
        raise ShapeError(f"{what}: {weight[0]} rows of weight {weight} in {groups} groups")


def _add_bias(what: str, result: Node, bias: Tensor | None) -> Node:
    if bias is None:
        return result
    if bias.shape != (result.shape[1],):
        raise ShapeError(f"{what}: the bias has shape {bias.shape}, not ({result.shape[1]},)")
    dtype = promote(what, result.dtype, bias.dtype)
    column = reshape(cast(bias.node, dtype), (*bias.shape, *(1,) * (len(result.shape) - 2)))
    result = cast(result, dtype)
    return result + expand(column, result.shape)
