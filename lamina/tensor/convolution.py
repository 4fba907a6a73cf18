"""Convolutions with one, two and three spatial axes; names and meanings as in PyTorch.

A convolution is one product of window views and weights, summed over channels and kernel axes at
once: the compiler sees a matrix product with affine indices. Halves are summed in float32.
"""

from __future__ import annotations

from collections.abc import Sequence

from lamina.dtypes import promote
from lamina.errors import ShapeError
from lamina.ir.build import cast, expand, flip, permute, reduce, reshape
from lamina.ir.monoids import ADD
from lamina.ir.node import Node
from lamina.shape import Shape
from lamina.tensor import windows
from lamina.tensor.core import Tensor, common_device
from lamina.tensor.windows import Sizes, accumulator, along, for_ranks, per_axis

__all__ = [
    "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d",
]  # fmt: skip


def conv(
    what: str, rank: int, x: Tensor, weight: Tensor, bias: Tensor | None = None,
    stride: Sizes = 1, padding: Sizes | str = 0, dilation: Sizes = 1, groups: int = 1,
) -> Tensor:  # fmt: skip
    """Cross-correlation of inputs with kernels, such as images for two spatial axes.

    x: (N, C, H, W) or (C, H, W). weight: (O, C / groups, KH, KW). bias: (O,). padding: zeros on
    both sides, or 'valid' (none), or 'same' (the result has x's sizes; stride 1 only).
    Result: (N, O, OH, OW) with ``OH = (H + 2 padding - dilation (KH - 1) - 1) // stride + 1``."""
    images = _images(what, rank, x, weight, bias, groups, transposed=False)
    steps = per_axis(what, "stride", stride, rank)
    gaps = per_axis(what, "dilation", dilation, rank)
    reach = [d * (k - 1) for d, k in zip(gaps, weight.shape[2:], strict=True)]
    padded = windows.pad_spatial(images, *_margins(what, padding, reach, steps))
    return _correlated(what, x, padded, weight.node, bias, steps, gaps, groups)


def conv_transpose(
    what: str, rank: int, x: Tensor, weight: Tensor, bias: Tensor | None = None,
    stride: Sizes = 1, padding: Sizes = 0, output_padding: Sizes = 0, groups: int = 1,
    dilation: Sizes = 1,
) -> Tensor:  # fmt: skip
    """The adjoint, with respect to its input, of a convolution with as many spatial axes.

    x: (N, C, H, W) or (C, H, W). weight: (C, O / groups, KH, KW). bias: (O,). output_padding:
    rows added at the end, fewer than the stride or the dilation. Result: (N, O, OH, OW) with
    ``OH = (H - 1) stride - 2 padding + dilation (KH - 1) + output_padding + 1``."""
    # A correlation, with flipped kernels, of the input with zeros between its elements.
    images = _images(what, rank, x, weight, bias, groups, transposed=True)
    steps = per_axis(what, "stride", stride, rank)
    gaps = per_axis(what, "dilation", dilation, rank)
    margins = per_axis(what, "padding", padding, rank, least=0)
    extra = per_axis(what, "output_padding", output_padding, rank, least=0)
    if any(more >= max(s, d) for more, s, d in zip(extra, steps, gaps, strict=True)):
        raise ShapeError(f"{what}: output_padding {extra} must be less than stride {steps} or "
                         f"dilation {gaps}")  # fmt: skip
    before = [d * (k - 1) - p for d, k, p in zip(gaps, weight.shape[2:], margins, strict=True)]
    # `spread_apart` leaves stride - 1 zeros behind the last element.
    after = [b + e - (s - 1) for b, e, s in zip(before, extra, steps, strict=True)]
    apart = windows.spread_apart(images, steps)
    if any(n + b + a < 1 for n, b, a in zip(apart.shape[2:], before, after, strict=True)):
        raise ShapeError(f"{what}: padding {margins} leaves nothing of an input of {x.shape}")
    padded, kernels = windows.pad_spatial(apart, before, after), _turned(weight.node, groups)
    return _correlated(what, x, padded, kernels, bias, (1,) * rank, gaps, groups)


conv1d, conv2d, conv3d = for_ranks(conv)
conv_transpose1d, conv_transpose2d, conv_transpose3d = for_ranks(conv_transpose)


def _images(
    what: str, rank: int, x: Tensor, weight: Tensor, bias: Tensor | None, groups: int,
    transposed: bool,
) -> Node:  # fmt: skip
    """`x` as a batch, if everything fits to it."""
    images, shape = windows.batched(what, x.node, rank), weight.shape
    if len(shape) != rank + 2:
        raise ShapeError(f"{what}: the weight has shape {shape}; {rank + 2} axes are needed")
    if groups < 1 or shape[0] % groups:
        raise ShapeError(f"{what}: {shape[0]} rows of weight {shape} in {groups} groups")
    channels, outputs = shape[1] * groups, shape[0]
    if transposed:
        channels, outputs = outputs, channels
    if images.shape[1] != channels:
        raise ShapeError(f"{what}: input {x.shape} and weight {shape} in {groups} groups: the "
                         f"weight is for {channels} channels")  # fmt: skip
    if bias is not None and bias.shape != (outputs,):
        raise ShapeError(f"{what}: the bias has shape {bias.shape}, not ({outputs},)")
    common_device(what, x, weight, *(() if bias is None else (bias,)))
    return images


def _margins(
    what: str, padding: Sizes | str, reach: Sequence[int], stride: Shape
) -> tuple[Sequence[int], Sequence[int]]:
    """Zeros before and after each spatial axis."""
    if padding == "same" and set(stride) == {1}:
        return [size // 2 for size in reach], [size - size // 2 for size in reach]
    if isinstance(padding, str) and padding != "valid":
        raise ShapeError(f"{what}: padding {padding!r} with stride {stride}; it is 'valid', "
                         "'same' for stride 1, or integers")  # fmt: skip
    zeros = 0 if isinstance(padding, str) else padding
    both = per_axis(what, "padding", zeros, len(reach), least=0)
    return both, both


def _turned(weight: Node, groups: int) -> Node:
    """Kernels (C, O / groups, K...) of an adjoint as those of a correlation, (O, C / groups,
    K...), flipped."""
    inputs, outputs, *kernel = weight.shape
    last = range(2, len(weight.shape))
    split = reshape(weight, (groups, inputs // groups, outputs, *kernel))
    swapped = permute(split, (0, 2, 1, *(axis + 1 for axis in last)))
    return flip(reshape(swapped, (groups * outputs, inputs // groups, *kernel)), last)


def _correlated(
    what: str, x: Tensor, padded: Node, weight: Node, bias: Tensor | None, stride: Shape,
    dilation: Shape, groups: int,
) -> Tensor:  # fmt: skip
    """(N, C, S...) and (O, C / groups, K...) to (N, O, S'...), or without N like `x`."""
    rank = len(stride)
    dtype = promote(what, padded.dtype, weight.dtype)
    wide = accumulator(dtype)
    outputs, inputs, *kernel = weight.shape
    view = windows.views(what, cast(padded, wide), tuple(kernel), stride, dilation)
    batch, places, each = view.shape[0], view.shape[2 + rank :], outputs // groups
    shape = (batch, groups, each, inputs, *kernel, *places)
    left = reshape(view, (batch, groups, 1, inputs, *kernel, *places))
    right = reshape(cast(weight, wide), (1, groups, each, inputs, *kernel, *(1,) * rank))
    product = expand(left, shape) * expand(right, shape)
    total = reduce(ADD, range(3, 4 + rank), product)
    result = cast(reshape(total, (batch, outputs, *places)), dtype)
    if bias is not None:
        dtype = promote(what, dtype, bias.dtype)
        result = cast(result, dtype) + along(cast(bias.node, dtype), 1, result.shape)
    return windows.unbatched(result, x)
