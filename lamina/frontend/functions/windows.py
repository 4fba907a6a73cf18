"""Windows of images as columns, and what is made of windows beside convolution and pooling.

Names and meanings are PyTorch's.
"""

from lamina.core.shape import Shape, prod
from lamina.errors import ShapeError
from lamina.frontend.arguments import integer
from lamina.frontend.functions import movement
from lamina.frontend.functions.elementwise import pow
from lamina.frontend.functions.pooling import avg_pool
from lamina.frontend.functions.spatial import (
    Sizes,
    batched,
    exact,
    for_ranks,
    pad_spatial,
    per_axis,
    views,
)  # fmt: skip
from lamina.frontend.tensor import Tensor
from lamina.graph.autodiff import transposed
from lamina.ir.build import cast, full, reshape
from lamina.ir.node import Node

__all__ = ["fold", "local_response_norm", "lp_pool1d", "lp_pool2d", "lp_pool3d", "unfold"]


def unfold(
    x: Tensor, kernel_size: Sizes, dilation: Sizes = 1, padding: Sizes = 0, stride: Sizes = 1
) -> Tensor:
    """The windows of an image as columns: (N, C, H, W) to (N, C KH KW, number of windows), or the
    same without N. Padding is zeros on both sides."""
    images = batched("unfold", x.node, 2)
    kernel = per_axis("unfold", "kernel_size", kernel_size, 2)
    columns = _columns("unfold", images, kernel, dilation, padding, stride)
    shape = columns.shape if x.ndim == 4 else columns.shape[1:]
    return Tensor.of(reshape(columns, shape), x.device)


def fold(
    x: Tensor, output_size: Sizes, kernel_size: Sizes, dilation: Sizes = 1, padding: Sizes = 0,
    stride: Sizes = 1,
) -> Tensor:  # fmt: skip
    """The adjoint of `unfold`: columns of windows are added up where they lie in the image.

    x: (N, C KH KW, number of windows) or the same without N. output_size: (H, W).
    Result: (N, C, H, W) or (C, H, W)."""
    size = per_axis("fold", "output_size", output_size, 2)
    kernel = per_axis("fold", "kernel_size", kernel_size, 2)
    if x.ndim not in (2, 3) or x.shape[-2] % prod(kernel):
        raise ShapeError(
            f"{x.shape} is not ([N,] C times {prod(kernel)}, windows)", operation="fold"
        )
    batch, channels = (x.shape[0] if x.ndim == 3 else 1), x.shape[-2] // prod(kernel)
    like = full((batch, channels, *size), 0, x.dtype)
    columns = _columns("fold", like, kernel, dilation, padding, stride)
    if columns.shape[2] != x.shape[-1]:
        raise ShapeError(f"{x.shape[-1]} columns of {x.shape}; windows {kernel} of an image "
                         f"{size} are {columns.shape[2]}", operation="fold")  # fmt: skip
    values = reshape(exact("fold", x).node, columns.shape)
    wide = full(like.shape, 0, values.dtype)
    image = transposed(_columns("fold", wide, kernel, dilation, padding, stride), wide, values)
    shape = image.shape if x.ndim == 3 else image.shape[1:]
    return Tensor.of(cast(reshape(image, shape), x.dtype), x.device)


def _columns(
    what: str, images: Node, kernel: Shape, dilation: Sizes, padding: Sizes, stride: Sizes
) -> Node:
    """(N, C, H, W) to (N, C KH KW, windows)."""
    gaps = per_axis(what, "dilation", dilation, 2)
    margins = per_axis(what, "padding", padding, 2, minimum=0)
    steps = per_axis(what, "stride", stride, 2)
    padded = pad_spatial(images, margins, margins)
    batch, channels, *sizes = padded.shape
    apart = reshape(padded, (batch, channels, 1, 1, *sizes))
    windows = views(what, apart, kernel, steps, gaps)
    places = windows.shape[4:]
    return reshape(windows, (batch, channels * prod(kernel), prod(places)))


def lp_pool(
    what: str, rank: int, x: Tensor, norm_type: float, kernel_size: Sizes,
    stride: Sizes | None = None, ceil_mode: bool = False,
) -> Tensor:  # fmt: skip
    """The root of order `norm_type` of the sum of the powers of this order of each window; NaN
    where a negative sum has no such root."""
    kernel = per_axis(what, "kernel_size", kernel_size, rank)
    powers = pow(exact(what, x), norm_type)
    means = avg_pool(what, rank, powers, kernel, stride, 0, ceil_mode)
    return pow(means * float(prod(kernel)), 1.0 / norm_type).cast(x.dtype)


lp_pool1d, lp_pool2d, lp_pool3d = for_ranks(lp_pool)


def local_response_norm(
    x: Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0
) -> Tensor:
    """``x / (k + alpha * mean of squares) ** beta``, the mean over `size` neighbouring channels of
    `x`, (N, C, ...), where channels that do not exist count as 0 (Krizhevsky, Sutskever and Hinton
    2012, "ImageNet classification", section 3.3)."""
    size = integer("local_response_norm", size, 1, "size")
    if x.ndim < 3:
        raise ShapeError(
            f"{x.shape} is not (N, C, ...) with other axes", operation="local_response_norm"
        )
    values = exact("local_response_norm", x)
    batch, channels, *rest = x.shape
    squares = movement.reshape(values * values, (batch, 1, channels, prod(rest)))
    before = size // 2
    padded = pad_spatial(squares.node, (before, 0), (size - 1 - before, 0))
    means = avg_pool("local_response_norm", 2, Tensor.of(padded, x.device), (size, 1), 1)
    scale = pow(movement.reshape(means, x.shape) * alpha + k, beta)
    return (values / scale).cast(x.dtype)
