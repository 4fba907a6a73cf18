"""Rows of convolutions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import lamina as lm
from lamina.frontend.functions import spatial
from lamina.frontend.tensor import Tensor
from lamina.interop.onnx.rows import Context, row
from lamina.interop.onnx.rows.windows import Windows
from lamina.interop.onnx.values import check_padded, maybe_tensor, tensor

Sizes = Sequence[int]


def beside_channels(vector: Tensor, rank: int) -> Tensor:
    """A value for each channel, beside images of `rank` axes: (C,) as (1, C, 1, ...)."""
    return lm.reshape(vector, (1, -1, *(1,) * (rank - 2)))


def convolution(
    x: Tensor, w: Tensor, b: Tensor | None, auto_pad: str, dilations: Sizes | None, group: int,
    pads: Sizes | None, strides: Sizes | None,
) -> Tensor:  # fmt: skip
    """(N, C, S...) with weights (O, C / group, K...) to (N, O, S'...)."""
    windows = Windows.of(x.shape[2:], w.shape[2:], strides, dilations, pads, auto_pad)
    padding: Any = windows.begins
    if windows.begins != windows.ends:
        x = lm.pad(x, [(0, 0), (0, 0), *windows.padding()])
        padding = 0
    rank = len(windows.sizes)
    return spatial.conv(
        "Conv", rank, x, w, b, windows.strides, padding, windows.dilations, group
    )  # fmt: skip


@row("Conv")
def conv(
    context: Context, x: Any, w: Any, b: Any = None, *, auto_pad: str = "NOTSET",
    dilations: Sizes | None = None, group: int = 1, kernel_shape: Sizes | None = None,
    pads: Sizes | None = None, strides: Sizes | None = None,
) -> Any:  # fmt: skip
    return convolution(
        tensor(x), tensor(w), maybe_tensor(b), auto_pad, dilations, group, pads, strides
    )  # fmt: skip


def _totals_to_sides(totals: Sizes, auto_pad: str) -> list[tuple[int, int]]:
    """The padding of each axis, split as `auto_pad` says."""
    halves = [(total // 2, total - total // 2) for total in totals]
    return halves if auto_pad == "SAME_UPPER" else [(more, less) for less, more in halves]


def _cropped(whole: Tensor, sides: Sequence[tuple[int, int]]) -> Tensor:
    """Without the margins `sides` of the spatial axes; a negative margin is added, as zeros."""
    padding = [(max(-begin, 0), max(-end, 0)) for begin, end in sides]
    padded = lm.pad(whole, [(0, 0), (0, 0), *padding])
    kept = []
    for size, (begin, end) in zip(padded.shape[2:], sides, strict=True):
        kept.append(slice(max(begin, 0), size - max(end, 0)))
    return padded[(slice(None), slice(None), *kept)]


def _margins(
    full: Sizes, output_shape: Sizes | None, pads: Sizes | None, auto_pad: str
) -> list[tuple[int, int]]:
    """What a result of the sizes `full` has before and behind `output_shape`, whose last axes are
    spatial; without that shape the padding `pads`, all begins and then all ends."""
    rank = len(full)
    if output_shape is None:
        margins = tuple(pads or (0,) * (2 * rank))
        return list(zip(margins[:rank], margins[rank:], strict=True))
    totals = [size - out for size, out in zip(full, output_shape[-rank:], strict=True)]
    return _totals_to_sides(totals, auto_pad)


@row("ConvTranspose")
def conv_transpose(
    context: Context, x: Any, w: Any, b: Any = None, *, auto_pad: str = "NOTSET",
    dilations: Sizes | None = None, group: int = 1, kernel_shape: Sizes | None = None,
    output_padding: Sizes | None = None, output_shape: Sizes | None = None,
    pads: Sizes | None = None, strides: Sizes | None = None,
) -> Any:  # fmt: skip
    """The whole result, of which the padding is cropped away. Where a shape is asked for, the
    padding is what that shape leaves over."""
    images, weight = tensor(x), tensor(w)
    rank = images.ndim - 2
    steps, gaps = tuple(strides or (1,) * rank), tuple(dilations or (1,) * rank)
    extra = tuple(output_padding or (0,) * rank)
    parts = zip(images.shape[2:], weight.shape[2:], steps, gaps, extra, strict=True)
    check_padded(images.shape[2:], [(n - 1) * s + (k - 1) * d + 1 + e for n, k, s, d, e in parts])
    whole = spatial.conv_transpose(
        "ConvTranspose", rank, images, weight, stride=steps, groups=group, dilation=gaps
    )
    full = [size + more for size, more in zip(whole.shape[2:], extra, strict=True)]
    if output_shape is None and auto_pad.startswith("SAME"):
        output_shape = [n * s for n, s in zip(images.shape[2:], steps, strict=True)]
    sides = _margins(full, output_shape, pads, auto_pad)
    ends = [(begin, end - more) for (begin, end), more in zip(sides, extra, strict=True)]
    result = _cropped(whole, ends)
    return result if b is None else result + beside_channels(tensor(b), result.ndim)


@row("Col2Im")
def columns_to_image(
    context: Context, x: Any, image_shape: Any, block_shape: Any, *,
    dilations: Sizes | None = None, pads: Sizes | None = None, strides: Sizes | None = None,
) -> Any:  # fmt: skip
    """(N, C * prod(K), L) to (N, C, S...): the adjoint of taking windows, which is a transposed
    convolution with a kernel of ones for each place of the block."""
    columns = tensor(x)
    block = [int(size) for size in context.host(block_shape)]
    image = [int(size) for size in context.host(image_shape)]
    windows = Windows.of(image, block, strides, dilations, pads)
    area = int(np.prod(block))
    batch, channels = columns.shape[0], columns.shape[1] // area
    apart = lm.reshape(columns, (batch * channels, area, *windows.counts))
    places = lm.reshape(lm.eye(area, dtype=columns.dtype), (area, 1, *block))
    whole = spatial.conv_transpose(
        "Col2Im", len(block), apart, places, stride=windows.strides, dilation=windows.dilations
    )
    sides = []
    for size, begin, result in zip(image, windows.begins, whole.shape[2:], strict=True):
        sides.append((begin, result - begin - size))
    return lm.reshape(_cropped(whole, sides), (batch, channels, *image))
