"""What looks at windows of images: convolutions, pooling, other sizes."""

from __future__ import annotations

import math

from bench.cliffs.sketch import Sketch, Value


def after(size: int, window: int, stride: int, padding: int, dilation: int = 1) -> int:
    """How many windows an axis has."""
    return (size + 2 * padding - dilation * (window - 1) - 1) // stride + 1


def _images(draw: Sketch, batch: int, channels: int, *sizes: int) -> Value:
    """Images with channels as their second axis, or as the last one in memory."""
    if draw.chance(0.35):
        last = draw.input(batch, *sizes, channels)
        rank = len(sizes)
        return draw.permute(last, 0, rank + 1, *range(1, rank + 1))
    return draw.input(batch, channels, *sizes)


def _finished(draw: Sketch, y: Value) -> Value:
    """What comes after a convolution: an activation, the images before, a norm, the other
    layout."""
    kind = draw.choose("none", "activation", "activation", "residual", "norm", "turned")
    channels = y.shape[1]
    if kind == "activation":
        return draw.activation(y)
    if kind == "residual":
        return draw.put("relu", draw.put("add", y, draw.input(*y.shape)))
    if kind == "norm" and y.shape[0] * math.prod(y.shape[2:]) > 7:
        gain, bias = draw.input(channels, kind="positive"), draw.input(channels)
        return draw.put("batch_norm", y, gain, bias, shape=y.shape)
    if kind == "turned":
        return draw.permute(draw.activation(y), 0, *range(2, y.rank), 1)
    return y


def convolution(draw: Sketch) -> Value:
    """Dense, grouped or depthwise, along one to three axes, with strides, gaps and margins."""
    rank = draw.choose(1, 2, 2, 2, 2, 3)
    kind = draw.choose("dense", "dense", "dense", "grouped", "depthwise")
    groups = draw.choose(2, 4, 8) if kind == "grouped" else 1
    inputs, outputs = (groups * draw.size(1, 512 // groups) for _ in range(2))
    if kind == "depthwise":
        groups = inputs = draw.size(2, 512)
        outputs = inputs * draw.choose(1, 1, 1, 2)
    window = draw.choose(1, 3, 3, 3, 5, 7) if rank < 3 else draw.choose(1, 3)
    stride, dilation = draw.choose(1, 1, 1, 2, 4), draw.choose(1, 1, 1, 1, 2)
    padding = draw.choose(0, window // 2 * dilation, window // 2 * dilation, 1)
    reach = dilation * (window - 1) + 1
    batch = draw.size(1, max(1, draw.limits.longest // 128))
    sizes = [max(reach, draw.size(4, 2048 if rank == 1 else 128 // rank)) for _ in range(rank)]
    each = window**rank * inputs // groups * outputs / stride**rank
    while max(2 * each, inputs, outputs * 50) * batch * math.prod(sizes) > draw.limits.flops:
        if batch > 1:
            batch //= 2
        elif max(sizes) > reach:
            sizes = [max(reach, size // 2) for size in sizes]
        else:
            break
    x = _images(draw, batch, inputs, *sizes)
    summed = inputs // groups * window**rank
    w = draw.weight(outputs, inputs // groups, *(window for _ in sizes), summed=summed)
    counts = (after(size, window, stride, padding, dilation) for size in sizes)
    y = draw.put(
        f"conv{rank}d", x, w, draw.input(outputs), shape=(batch, outputs, *counts),
        stride=stride, padding=padding, dilation=dilation, groups=groups,
    )  # fmt: skip
    return _finished(draw, y)


def transposed_convolution(draw: Sketch) -> Value:
    """The adjoint of a convolution, as decoders have it."""
    inputs, outputs = draw.size(1, 256), draw.size(1, 256)
    window, stride = draw.choose(2, 3, 4), draw.choose(1, 2, 2)
    padding = draw.choose(0, 1)
    most = max(2, draw.limits.longest // 64)
    batch, height, width = draw.size(1, 8), draw.size(2, most), draw.size(2, most)
    flops = 2.0 * batch * height * width * inputs * outputs * window * window
    batch = max(1, int(batch / max(1.0, flops / draw.limits.flops)))
    x = _images(draw, batch, inputs, height, width)
    w = draw.weight(inputs, outputs, window, window, summed=inputs * window)
    counts = ((size - 1) * stride - 2 * padding + window for size in (height, width))
    y = draw.put("conv_transpose2d", x, w, draw.input(outputs), shape=(batch, outputs, *counts),
                 stride=stride, padding=padding)  # fmt: skip
    return _finished(draw, y)


def _drawn_images(draw: Sketch) -> Value:
    batch, channels, height, width = draw.shape(4, draw.limits.elements // 2)
    height, width = max(height, 7), max(width, 7)
    while batch * channels * height * width > draw.limits.elements and batch * channels > 1:
        batch, channels = -(-batch // 2), -(-channels // 2)
    return _images(draw, batch, channels, height, width)


def pooling(draw: Sketch) -> Value:
    """Maxima or averages of windows, or of as many parts as the result has elements."""
    kind = draw.choose("max", "avg")
    if draw.chance(0.25):
        x, size = _drawn_images(draw), draw.choose(1, 2, 3, 7)
        shape = (*x.shape[:2], size, size)
        return draw.put(f"adaptive_{kind}_pool2d", x, shape=shape, size=(size, size))
    window, stride = draw.choose(2, 3, 3, 5), draw.choose(1, 2, 2, 3)
    padding = draw.choose(0, window // 2)
    if draw.chance(0.3):
        batch, channels, length = draw.shape(3)
        x = _images(draw, batch, channels, max(length, 7))
    else:
        x = _drawn_images(draw)
    if draw.chance(0.4):
        x = draw.activation(x)
    counts = (after(size, window, stride, padding) for size in x.shape[2:])
    return draw.put(f"{kind}_pool{x.rank - 2}d", x, shape=(*x.shape[:2], *counts),
                    window=window, stride=stride, padding=padding)  # fmt: skip


def resize(draw: Sketch) -> Value:
    """Images of another size."""
    x = _drawn_images(draw)
    batch, channels, *sizes = x.shape
    if draw.chance(0.5):
        new = tuple(2 * size for size in sizes)
    else:
        new = tuple(draw.size(1, 2 * size) for size in sizes)
    if batch * channels * math.prod(new) > 2 * draw.limits.elements:
        new = tuple(-(-size // 2) for size in sizes)
    mode = draw.choose("nearest", "bilinear", "bilinear", "bicubic", "area")
    aligned = mode.startswith("bi") and draw.chance(0.3)
    operation = "interpolate_aligned" if aligned else "interpolate"
    return draw.put(operation, x, shape=(batch, channels, *new), size=new, mode=mode)
