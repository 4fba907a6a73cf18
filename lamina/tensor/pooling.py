"""Pooling with one, two and three spatial axes; names and meanings as in PyTorch.

Inputs are (N, C, spatial...) or (C, spatial...). `stride` is the kernel's size by default.
`ceil_mode` keeps a last window that starts inside the input or its padding but does not fit.
The gradient of a maximum is shared evenly among ties.
"""

from __future__ import annotations

from collections.abc import Sequence

from lamina.dtypes import bool_, int64
from lamina.errors import DTypeError, ShapeError
from lamina.ir.build import cast, expand, full, insert_axes, iota, reduce, reshape, select
from lamina.ir.monoids import ADD, MAX
from lamina.ir.node import Node
from lamina.ir.ops import Op
from lamina.shape import Shape, prod
from lamina.tensor.core import Tensor
from lamina.tensor.windows import (
    Sizes,
    accumulator,
    batched,
    pad_spatial,
    per_axis,
    unbatched,
    window_count,
    windows,
)

__all__ = [
    "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "adaptive_max_pool1d",
    "adaptive_max_pool2d", "adaptive_max_pool3d", "avg_pool1d", "avg_pool2d", "avg_pool3d",
    "max_pool1d", "max_pool2d", "max_pool3d",
]  # fmt: skip

AdaptiveSizes = int | None | Sequence[int | None]


def max_pool1d(
    x: Tensor,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    ceil_mode: bool = False,
) -> Tensor:
    """The largest element of each window along one axis; see `max_pool2d`."""
    return _max_pool("max_pool1d", 1, x, kernel_size, stride, padding, dilation, ceil_mode)


def max_pool2d(
    x: Tensor,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    ceil_mode: bool = False,
) -> Tensor:
    """The largest element of each window; padding, at most half a kernel, never wins."""
    return _max_pool("max_pool2d", 2, x, kernel_size, stride, padding, dilation, ceil_mode)


def max_pool3d(
    x: Tensor,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    ceil_mode: bool = False,
) -> Tensor:
    """The largest element of each window along three axes; see `max_pool2d`."""
    return _max_pool("max_pool3d", 3, x, kernel_size, stride, padding, dilation, ceil_mode)


def avg_pool1d(
    x: Tensor,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Tensor:
    """The mean of each window along one axis; see `avg_pool2d`."""
    return _avg_pool("avg_pool1d", 1, x, kernel_size, stride, padding, ceil_mode,
                     count_include_pad, None)  # fmt: skip


def avg_pool2d(
    x: Tensor,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """The mean of each window. `count_include_pad` counts the zeros of the padding as elements;
    `divisor_override` divides every sum by one number instead."""
    return _avg_pool("avg_pool2d", 2, x, kernel_size, stride, padding, ceil_mode,
                     count_include_pad, divisor_override)  # fmt: skip


def avg_pool3d(
    x: Tensor,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """The mean of each window along three axes; see `avg_pool2d`."""
    return _avg_pool("avg_pool3d", 3, x, kernel_size, stride, padding, ceil_mode,
                     count_include_pad, divisor_override)  # fmt: skip


def adaptive_avg_pool1d(x: Tensor, output_size: AdaptiveSizes) -> Tensor:
    """The means of `output_size` stretches of the axis; see `adaptive_avg_pool2d`."""
    return _adaptive("adaptive_avg_pool1d", 1, x, output_size, mean=True)


def adaptive_avg_pool2d(x: Tensor, output_size: AdaptiveSizes) -> Tensor:
    """Means over a grid of `output_size` windows that cover the input evenly.

    Window i of n along an axis of size s is ``floor(i s / n) : ceil((i + 1) s / n)``. None keeps
    the size of an axis.
    """
    return _adaptive("adaptive_avg_pool2d", 2, x, output_size, mean=True)


def adaptive_avg_pool3d(x: Tensor, output_size: AdaptiveSizes) -> Tensor:
    """Means over a grid of windows along three axes; see `adaptive_avg_pool2d`."""
    return _adaptive("adaptive_avg_pool3d", 3, x, output_size, mean=True)


def adaptive_max_pool1d(x: Tensor, output_size: AdaptiveSizes) -> Tensor:
    """The maxima of `output_size` stretches of the axis; see `adaptive_avg_pool2d`."""
    return _adaptive("adaptive_max_pool1d", 1, x, output_size, mean=False)


def adaptive_max_pool2d(x: Tensor, output_size: AdaptiveSizes) -> Tensor:
    """Maxima over a grid of windows; see `adaptive_avg_pool2d`."""
    return _adaptive("adaptive_max_pool2d", 2, x, output_size, mean=False)


def adaptive_max_pool3d(x: Tensor, output_size: AdaptiveSizes) -> Tensor:
    """Maxima over a grid of windows along three axes; see `adaptive_avg_pool2d`."""
    return _adaptive("adaptive_max_pool3d", 3, x, output_size, mean=False)


class _Grid:
    """The windows of one pooling call, its arguments spelled out for each axis."""

    def __init__(
        self,
        what: str,
        rank: int,
        sizes: Shape,
        kernel: Sizes,
        stride: Sizes | None,
        padding: Sizes,
        dilation: Sizes,
        ceil_mode: bool,
    ) -> None:
        self.what = what
        self.sizes = sizes
        self.kernel = per_axis(what, "kernel_size", kernel, rank)
        self.stride = per_axis(what, "stride", kernel if stride is None else stride, rank)
        self.padding = per_axis(what, "padding", padding, rank, least=0)
        self.dilation = per_axis(what, "dilation", dilation, rank)
        if any(2 * p > k for p, k in zip(self.padding, self.kernel, strict=True)):
            raise ShapeError(
                f"{what}: padding {self.padding} is over half of the kernel {self.kernel}"
            )
        # Elements after the padding that only the last windows of ceil_mode reach.
        self.overhang = tuple(
            self._overhang(axis) if ceil_mode else 0 for axis in range(rank)
        )

    def _overhang(self, axis: int) -> int:
        size, step, margin = self.sizes[axis], self.stride[axis], self.padding[axis]
        whole = size + 2 * margin
        reach = (self.kernel[axis] - 1) * self.dilation[axis] + 1
        count = -(-(whole - reach) // step) + 1
        if (count - 1) * step >= size + margin:
            count -= 1
        return max(0, (count - 1) * step + reach - whole)

    def view(self, x: Node, value: float) -> Node:
        """(..., S...) as (..., O..., K...), with `value` around it."""
        after = [p + o for p, o in zip(self.padding, self.overhang, strict=True)]
        padded = pad_spatial(x, self.padding, after, value)
        return windows(self.what, padded, self.kernel, self.stride, self.dilation)

    def counts(self, axis: int, include_padding: bool) -> Node:
        """How many elements each window along `axis` has, int64; an overhang never counts."""
        size, step, margin = self.sizes[axis], self.stride[axis], self.padding[axis]
        whole = size + 2 * margin + self.overhang[axis]
        places = iota(window_count(whole, self.kernel[axis], step, 1), int64)
        start = places * step + -margin
        stop = start + self.kernel[axis]
        last = size + margin if include_padding else size
        if not include_padding:
            start = Node(Op.MAX, (start, start.lift(0)))
        return Node(Op.MIN, (stop, stop.lift(last))) - start


def _lowest(what: str, x: Node) -> float:
    if x.dtype.is_complex or x.dtype is bool_:
        raise DTypeError(f"{what}: {x.dtype.name} has no order; floats and integers have")
    return x.dtype.min  # type: ignore[return-value]


def _max_pool(
    what: str,
    rank: int,
    x: Tensor,
    kernel: Sizes,
    stride: Sizes | None,
    padding: Sizes,
    dilation: Sizes,
    ceil_mode: bool,
) -> Tensor:
    images = batched(what, x.node, rank)
    grid = _Grid(what, rank, images.shape[2:], kernel, stride, padding, dilation, ceil_mode)
    view = grid.view(images, _lowest(what, images))
    result = reduce(MAX, tuple(range(2 + rank, 2 + 2 * rank)), view)
    return Tensor.of(unbatched(result, x.node), x.device)


def _avg_pool(
    what: str,
    rank: int,
    x: Tensor,
    kernel: Sizes,
    stride: Sizes | None,
    padding: Sizes,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor: int | None,
) -> Tensor:
    images = batched(what, _float(what, x), rank)
    grid = _Grid(what, rank, images.shape[2:], kernel, stride, padding, 1, ceil_mode)
    view = grid.view(cast(images, accumulator(images.dtype)), 0)
    result = reduce(ADD, tuple(range(2 + rank, 2 + 2 * rank)), view)
    padded = any(grid.overhang) or (any(grid.padding) and not count_include_pad)
    if divisor is not None or not padded:
        result = result / float(divisor or prod(grid.kernel))
    else:
        for axis in range(rank):
            counts = cast(grid.counts(axis, count_include_pad), result.dtype)
            result = result / _along(counts, 2 + axis, result.shape)
    return Tensor.of(unbatched(cast(result, images.dtype), x.node), x.device)


def _adaptive(what: str, rank: int, x: Tensor, output_size: AdaptiveSizes, mean: bool) -> Tensor:
    images = batched(what, _float(what, x) if mean else x.node, rank)
    given = (output_size,) * rank if isinstance(output_size, int | None) else tuple(output_size)
    if len(given) != rank or any(size is not None and size < 1 for size in given):
        raise ShapeError(f"{what}: output_size {output_size}; one or {rank} sizes are needed")
    result = cast(images, accumulator(images.dtype)) if mean else images
    lowest = 0 if mean else _lowest(what, images)
    for axis, size in enumerate(given, 2):
        if size is not None and size != images.shape[axis]:
            result = _adapt_axis(result, axis, size, mean, lowest)
    return Tensor.of(unbatched(cast(result, images.dtype), x.node), x.device)


def _adapt_axis(x: Node, axis: int, count: int, mean: bool, lowest: float) -> Node:
    """Reduce stretches of `axis`, which gets size `count`."""
    size = x.shape[axis]
    monoid = ADD if mean else MAX
    if not size % count:
        split = reshape(x, (*x.shape[:axis], count, size // count, *x.shape[axis + 1 :]))
        result = reduce(monoid, (axis + 1,), split)
        return result / float(size // count) if mean else result
    first = iota(count, int64) * size // full((count,), count, int64)
    last = -((-(iota(count, int64) + 1) * size) // full((count,), count, int64))
    shape = (*x.shape[:axis], count, *x.shape[axis:])
    place = _along(iota(size, int64), axis + 1, shape)
    inside = ~(place < _along(first, axis, shape)) & (place < _along(last, axis, shape))
    chosen = select(inside, expand(insert_axes(x, (axis,)), shape), full(shape, lowest, x.dtype))
    result = reduce(monoid, (axis + 1,), chosen)
    return result / _along(cast(last - first, x.dtype), axis, result.shape) if mean else result


def _along(x: Node, axis: int, shape: Shape) -> Node:
    """A vector repeated over the other axes of `shape`."""
    column = tuple(size if one == axis else 1 for one, size in enumerate(shape))
    return expand(reshape(x, column), shape)


def _float(what: str, x: Tensor) -> Node:
    if not x.dtype.is_float:
        raise DTypeError(f"{what}: {x.dtype.name} has no means; cast it to a float dtype")
    return x.node
