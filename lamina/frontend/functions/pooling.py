"""Pooling over windows of one to three spatial axes, with PyTorch's names and meanings.

Pools take (N, C, spatial...) or (C, spatial...). `stride` is the kernel's size by default.
`ceil_mode` keeps a last window that starts inside the input or its padding but does not fit.
An index of a maximum counts the elements of a channel of the input row by row, int64; it is the
first one of equal elements, which gets the derivative too. Of windows with a NaN the first element
gets it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd
from typing import Any, NamedTuple

from lamina.core.dtypes import DType, int32, int64
from lamina.core.shape import Shape, prod
from lamina.errors import ArgumentError, ShapeError
from lamina.frontend.arguments import integer, sizes_of
from lamina.frontend.functions.elementwise import variant
from lamina.frontend.functions.indexing import as_index
from lamina.frontend.functions.spatial import (
    PhasedWindows,
    Sizes,
    batched,
    exact,
    for_ranks,
    pad_spatial,
    per_axis,
    phased_views,
    resized,
    unbatched,
    views,
)
from lamina.frontend.tensor import Tensor, common_device, once
from lamina.ir import build
from lamina.ir.build import broadcast_over, cast, expand, full, iota, reduce, reshape, select
from lamina.ir.monoids import ADD, ARGMAX, EXTREME, MAX, MIN, PLACE
from lamina.ir.node import Node
from lamina.ir.ops import Op, Scatter

__all__ = [
    "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "adaptive_max_pool1d",
    "adaptive_max_pool2d", "adaptive_max_pool3d", "avg_pool1d", "avg_pool2d", "avg_pool3d",
    "max_pool1d", "max_pool2d", "max_pool3d", "max_unpool1d", "max_unpool2d", "max_unpool3d",
]  # fmt: skip

# Windows of an element, up to which the derivative of a mean is written as a sum of so many terms.
# As a sum over an axis CPUs have no vectors for it: 2 and 3 windows of (8, 64, 37, 60) took one
# thread of a Zen 4 2.2 ms, and as terms 1.2.
MAX_TERMS = 4

AdaptiveSizes = int | None | Sequence[int | None]


class MaxPool(NamedTuple):
    """What max pools return with `return_indices`."""

    values: Tensor
    indices: Tensor


@dataclass(frozen=True)
class _Axis:
    """The windows along a spatial axis of `size` elements."""

    size: int
    kernel: int
    stride: int
    padding: int
    dilation: int
    ceil_mode: bool

    @property
    def overhang(self) -> int:
        """Elements after the padding that only the last windows of ceil_mode reach."""
        whole = self.size + 2 * self.padding
        reach = (self.kernel - 1) * self.dilation + 1
        last = min(-((reach - whole) // self.stride), (whole - self.padding - 1) // self.stride)
        return max(0, last * self.stride + reach - whole) if self.ceil_mode else 0

    def first_inside(self, number: int) -> Node:
        """The first element of each of `number` windows that is not padding, int32: 1 and 0 with
        padding 1 and stride 2."""
        missing = -iota(number, int32) * self.stride + self.padding
        if self.dilation > 1:
            missing = (missing + (self.dilation - 1)) // self.dilation
        return Node(Op.MAX, (missing, missing.lift(0)))

    def counts(self, number: int, include_padding: bool) -> Node:
        """How many elements each of `number` windows has, int64; an overhang never counts."""
        margin = self.padding if include_padding else 0
        start = iota(number, int64) * self.stride + -self.padding
        stop = start + self.kernel
        start = Node(Op.MAX, (start, start.lift(-margin)))
        return Node(Op.MIN, (stop, stop.lift(self.size + margin))) - start


@dataclass(frozen=True)
class _Windows:
    """The windows of a pool over inputs of some spatial sizes."""

    what: str
    axes: list[_Axis]

    @classmethod
    def of(
        cls, what: str, sizes: Shape, kernel: Sizes, stride: Sizes | None, padding: Sizes,
        dilation: Sizes, ceil_mode: bool,
    ) -> "_Windows":  # fmt: skip
        """Raises ShapeError where an argument does not fit to the sizes."""
        rank = len(sizes)
        kernels = per_axis(what, "kernel_size", kernel, rank)
        steps = per_axis(what, "stride", kernel if stride is None else stride, rank)
        margins = per_axis(what, "padding", padding, rank, minimum=0)
        gaps = per_axis(what, "dilation", dilation, rank)
        rows = zip(sizes, kernels, steps, margins, gaps, strict=True)
        axes = [
            _Axis(size, length, step, margin, gap, ceil_mode)
            for size, length, step, margin, gap in rows
        ]
        if any(2 * axis.padding > axis.kernel for axis in axes):
            raise ShapeError(
                f"padding {margins} is over half of the kernel {kernels}", operation=what
            )
        return cls(what, axes)

    @property
    def _sizes(self) -> tuple[Shape, Shape, Shape]:
        """The kernels, strides and dilations."""
        kernels, strides, gaps = (
            tuple(getattr(axis, name) for axis in self.axes)
            for name in ("kernel", "stride", "dilation")
        )
        return kernels, strides, gaps

    def _padded(self, images: Node, outside: Any) -> Node:
        """(N, C, S...) as (N, C, 1..., S...) with the padding, which is `outside`."""
        before = [axis.padding for axis in self.axes]
        after = [axis.padding + axis.overhang for axis in self.axes]
        padded = pad_spatial(images, before, after, outside)
        return reshape(padded, (*padded.shape[:2], *(1,) * len(self.axes), *padded.shape[2:]))

    def view(self, images: Node, outside: Any) -> Node:
        """(N, C, S...) as (N, C, K..., O...); around the input is `outside`."""
        return views(self.what, self._padded(images, outside), *self._sizes)

    def sums(self, images: Node) -> Node:
        """(N, C, S...) to the sums of all windows, (N, C, O...)."""
        return reduce(ADD, range(2, 2 + len(self.axes)), self.view(images, 0))

    def maxima(self, images: Node) -> Node:
        """(N, C, S...) to the maxima of all windows, (N, C, O...), whose derivative goes to the
        first of equal elements."""
        values = self.view(images, *MAX.identity((images.dtype,)))
        top = reduce(MAX, range(2, 2 + len(self.axes)), values)
        if not images.dtype.is_float:
            return top
        windows = phased_views(self.what, self._padded(images, 0), *self._sizes)
        return Node(Op.CUSTOM_DERIVATIVE, (top, self._chosen(windows, values, top)))

    def _chosen(self, windows: PhasedWindows, values: Node, top: Node) -> Node:
        """The first element of each window that equals `top`, (N, C, O...): a sum of `windows`, all
        but one of them times 0. values: (N, C, K..., O...)."""
        # Elements are numbered row by row; what is after the last one of a row counts as well.
        kernels, lengths = self._sizes[0], windows.lengths
        numbers = build.sliced(
            reshape(iota(prod(lengths), int32), lengths), [range(size) for size in kernels]
        )
        axes = range(2, 2 + len(kernels))
        first = _first(axes, values, top, _along(numbers, axes, values.shape))
        if any(axis.padding for axis in self.axes):
            # Padding is as large as the elements where all of these are -inf.
            first = Node(Op.MAX, (first, self._first_inside(lengths, first.shape)))
        axes = range(2, 2 + len(windows.numbers.shape))
        number = _along(windows.numbers, axes, windows.view.shape)
        return _sum_of_chosen(axes, windows.view, first, number)

    def _first_inside(self, lengths: Shape, shape: Shape) -> Node:
        """The number of the first element of each window that is not padding, of `shape`."""
        total = full(shape, 0, int32)
        for at, axis in enumerate(self.axes):
            first = axis.first_inside(shape[2 + at]) * prod(lengths[at + 1 :])
            total = total + build.broadcast_in_dim(first, 2 + at, shape)
        return total

    def places_of_maxima(self, images: Node) -> Node:
        """(N, C, S...) to the flat places of the maxima of all windows, (N, C, O...), int64."""
        lowest, far = ARGMAX.identity((images.dtype, int64))
        values = self.view(images, lowest)
        places = expand(self.view(_places(images.shape[2:]), far), values.shape)
        return reduce(ARGMAX, range(2, 2 + len(self.axes)), values, places, component=PLACE)


def max_pool(
    what: str, rank: int, x: Tensor, kernel_size: Sizes, stride: Sizes | None = None,
    padding: Sizes = 0, dilation: Sizes = 1, ceil_mode: bool = False, return_indices: bool = False,
) -> Any:  # fmt: skip
    """The largest element of each window; padding, at most half a kernel, never wins. With
    `return_indices` a tuple of the largest elements, `values`, and their `indices` in each channel,
    for `max_unpool2d` and the like."""
    values = _max_values(what, rank, x, kernel_size, stride, padding, dilation, ceil_mode)
    if not return_indices:
        return values
    images = batched(what, x.node, rank)
    sizes = images.shape[2:]
    windows = _Windows.of(what, sizes, kernel_size, stride, padding, dilation, ceil_mode)
    return MaxPool(values, unbatched(windows.places_of_maxima(images), x))


@once
def _max_values(
    what: str, rank: int, x: Tensor, kernel_size: Sizes, stride: Sizes | None, padding: Sizes,
    dilation: Sizes, ceil_mode: bool,
) -> Tensor:  # fmt: skip
    images = batched(what, x.node, rank)
    sizes = images.shape[2:]
    windows = _Windows.of(what, sizes, kernel_size, stride, padding, dilation, ceil_mode)
    return unbatched(windows.maxima(images), x)


def avg_pool(
    what: str, rank: int, x: Tensor, kernel_size: Sizes, stride: Sizes | None = None,
    padding: Sizes = 0, ceil_mode: bool = False, count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:  # fmt: skip
    """The mean of each window. `count_include_pad` counts the zeros of the padding as elements;
    `divisor_override` divides every sum by one number instead. Raises ArgumentError where that is
    0."""
    if divisor_override == 0:
        raise ArgumentError("divisor_override is 0", operation=what)
    images = batched(what, exact(what, x).node, rank)
    windows = _Windows.of(what, images.shape[2:], kernel_size, stride, padding, 1, ceil_mode)
    result, axes = windows.sums(images), windows.axes
    whole = all(not axis.overhang and (count_include_pad or not axis.padding) for axis in axes)
    if divisor_override is not None:
        result = result / float(divisor_override)
    elif whole:
        result = result / float(prod(axis.kernel for axis in axes))
    else:
        for at, axis in enumerate(axes, 2):
            counts = cast(axis.counts(result.shape[at], count_include_pad), result.dtype)
            result = result / build.broadcast_in_dim(counts, at, result.shape)
    return unbatched(cast(result, x.dtype), x)


def max_unpool(
    what: str, rank: int, x: Tensor, indices: Tensor, kernel_size: Sizes,
    stride: Sizes | None = None, padding: Sizes = 0, output_size: Sequence[int] | None = None,
) -> Tensor:  # fmt: skip
    """The elements of `x` at `indices` of an array of zeros: what a max pool with the same
    arguments took them from, without the rest. Of several elements for one place the last wins.

    x, indices: (N, C, spatial...) or (C, spatial...), as `max_pool2d` and the like return them
    with `return_indices`. output_size: the spatial sizes of the pool's input, or its shape; by
    default ``(size - 1) stride - 2 padding + kernel_size``."""
    places = as_index(what, indices, x)
    if places.shape != x.shape:
        raise ShapeError(f"x {x.shape} and indices {places.shape} differ in shape", operation=what)
    device = common_device(what, x, places)
    images = batched(what, x.node, rank)
    batch, channels, *sizes = images.shape
    kernels = per_axis(what, "kernel_size", kernel_size, rank)
    steps = per_axis(what, "stride", kernel_size if stride is None else stride, rank)
    margins = per_axis(what, "padding", padding, rank, minimum=0)
    rows = zip(sizes, steps, margins, kernels, strict=True)
    wanted = tuple((n - 1) * s - 2 * p + k for n, s, p, k in rows)
    if output_size is not None:
        wanted = sizes_of(what, output_size)[-rank:]
    if len(wanted) != rank or min(wanted) < 1:
        raise ShapeError(f"the result would have spatial sizes {wanted}", operation=what)
    flat = (batch, channels, prod(sizes))
    zeros = full((batch, channels, prod(wanted)), 0, x.dtype)
    operands = (zeros, cast(reshape(places.node, flat), int64), reshape(images, flat))
    spread = Node(Op.SCATTER, operands, Scatter(2, None))
    return Tensor.of(reshape(spread, (*x.shape[:-rank], *wanted)), device)


def adaptive_avg_pool(what: str, rank: int, x: Tensor, output_size: AdaptiveSizes) -> Tensor:
    """Means over a grid of `output_size` windows; None keeps the size of an axis. Window i of n
    along an axis of size s is ``floor(i s / n) : ceil((i + 1) s / n)``."""
    result = batched(what, exact(what, x).node, rank)
    stretches: dict[int, _Stretches] = {}
    # What is between is smallest if the axis that shrinks most comes first: (215, 7) becomes
    # (256, 1) by way of (215, 1), not of (256, 7).
    for grid in sorted(_grids(what, rank, x, output_size), key=lambda grid: grid.growth):
        result = grid.sums(result)
        stretches |= grid.stretches
    return unbatched(cast(_divided(result, stretches), x.dtype), x)


def _divided(total: Node, stretches: dict[int, "_Stretches"]) -> Node:
    """`total`, the sums of windows along some axes, by the numbers of their elements."""
    even = prod(each.size // each.count for each in stretches.values() if each.even)
    uneven = {axis: each for axis, each in stretches.items() if not each.even and each.longest > 1}
    if not uneven:
        return total if even == 1 else total / float(even)
    shape = (1, 1, *total.shape[2:])
    elements = full(shape, float(even), total.dtype)
    for axis, each in uneven.items():
        elements = elements * build.broadcast_in_dim(each.lengths(total.dtype), axis, shape)
    return total / expand(elements, total.shape)


def adaptive_max_pool(
    what: str, rank: int, x: Tensor, output_size: AdaptiveSizes, return_indices: bool = False
) -> Any:
    """Maxima over a grid of `output_size` windows, those of `adaptive_avg_pool2d`; with
    `return_indices` a tuple of `values` and their `indices`, as `max_pool2d` returns it."""
    values = _adaptive_max_values(what, rank, x, output_size)
    if not return_indices:
        return values
    extremes = batched(what, x.node, rank)
    places = expand(_places(extremes.shape[2:]), extremes.shape)
    lowest, beyond = ARGMAX.identity((x.dtype, int64))
    for grid in _grids(what, rank, x, output_size):
        windows = grid.of(extremes, lowest), grid.of(places, beyond)
        extremes = reduce(ARGMAX, grid.axes, *windows, component=EXTREME)
        places = reduce(ARGMAX, grid.axes, *windows, component=PLACE)
    return MaxPool(values, unbatched(places, x))


@once
def _adaptive_max_values(what: str, rank: int, x: Tensor, output_size: AdaptiveSizes) -> Tensor:
    result = batched(what, x.node, rank)
    # From the last axis to the first: among equal elements the first one, row by row, is that of
    # the first row that has one.
    for grid in reversed(_grids(what, rank, x, output_size)):
        inside, axes = grid.of(result, *MAX.identity((x.dtype,))), grid.axes
        top = reduce(MAX, axes, inside)
        if not x.dtype.is_float:
            result = top
            continue
        elements = prod(inside.shape[axis] for axis in axes)  # of a window
        number = _along(iota(elements, int32), axes, inside.shape)
        first = _first(axes, inside, top, number)
        # What is outside is never the first: the derivative need not ask again.
        chosen = _sum_of_chosen(axes, grid.reached(result), first, number)
        result = Node(Op.CUSTOM_DERIVATIVE, (top, chosen))
    return unbatched(result, x)


def _along(numbers: Node, axes: Sequence[int], shape: Shape) -> Node:
    """`numbers`, an array of the sizes of `axes`, repeated along all other axes of `shape`."""
    ones = [size if axis in axes else 1 for axis, size in enumerate(shape)]
    return expand(reshape(numbers, tuple(ones)), shape)


def _first(axes: Sequence[int], x: Node, top: Node, number: Node) -> Node:
    """The lowest `number` over `axes` of an element of `x` that equals its maximum `top`, or is
    beside a NaN, as that is the maximum."""
    loses = x < broadcast_over(top, axes, x.shape)
    return reduce(MIN, axes, select(loses, number.lift(number.dtype.max), number))


def _sum_of_chosen(axes: Sequence[int], x: Node, first: Node, number: Node) -> Node:
    """The element of `x` over `axes` whose `number` is `first`: a sum, so that the derivative is
    where that element is. By a factor that was a bool a derivative is selected: an infinite one
    makes no NaN elsewhere."""
    is_first = number.eq(broadcast_over(first, axes, x.shape))
    return reduce(ADD, axes, x * cast(is_first, x.dtype))


def _places(sizes: Shape) -> Node:
    """The number of each element of a channel, row by row: (1, 1, *sizes), int64."""
    return reshape(iota(prod(sizes), int64), (1, 1, *sizes))


def _grids(what: str, rank: int, x: Tensor, output_size: AdaptiveSizes) -> list["_Grid"]:
    """The grids of an adaptive pool of `x`: one of all axes that change if all windows along each
    are as long, so that a window is reduced at once; else one for each of these axes."""
    sizes = (0, 0, *x.shape[-rank:])
    stretches = {
        axis: _Stretches(sizes[axis], count)
        for axis, count in _adaptive_sizes(what, rank, x, output_size)
    }
    if stretches and all(along.even for along in stretches.values()):
        return [_Grid(stretches)]
    return [_Grid({axis: along}) for axis, along in stretches.items()]


def _adaptive_sizes(
    what: str, rank: int, x: Tensor, output_size: AdaptiveSizes
) -> list[tuple[int, int]]:
    """The axes of a batch of `x` that change, and the size that each gets."""
    listed: Any = output_size if hasattr(output_size, "__iter__") else (output_size,) * rank
    if len(listed) != rank or any(size is not None and size < 1 for size in listed):
        raise ShapeError(
            f"output_size {output_size}; one or {rank} sizes are needed", operation=what
        )
    pairs = zip(range(2, 2 + rank), x.shape[-rank:], listed, strict=True)
    return [(axis, integer(what, new)) for axis, old, new in pairs if new not in (None, old)]


@dataclass(frozen=True)
class _Stretches:
    """The `count` windows of an adaptive pool along an axis of `size` elements."""

    size: int
    count: int

    @property
    def even(self) -> bool:
        return self.size % self.count == 0

    @property
    def longest(self) -> int:
        """The elements of the longest window. Window i begins ``i size % count / count`` after a
        whole element, which is ``(count - gcd) / count`` at most: of 7 elements in 3 windows each
        has ceil(7/3 + 2/3) = 3, of 2 in 6 windows ceil(2/6 + 4/6) = 1."""
        return -(-(self.size + self.count - gcd(self.size, self.count)) // self.count)

    def _ends(self) -> tuple[Node, Node]:
        """Where each window begins, and where it ends: two int64 vectors."""
        number = iota(self.count, int64)
        first = number * self.size // self.count
        return first, -(-(number + 1) * self.size // self.count)

    def reached(self, x: Node, axis: int) -> Node:
        """`x` with the windows along `axis` and their elements along a new axis after it, of all as
        many as the longest has."""
        shape = resized(x.shape, axis, self.count, self.longest)
        if self.even:
            return reshape(x, shape)
        if self.longest == 1:  # as many windows are there for each element
            repeated = resized(x.shape, axis, self.size, self.count // self.size)
            return reshape(build.broadcast_over(x, (axis + 1,), repeated), shape)
        taken = _index_of_elements(self._index(), axis, x.shape)
        return reshape(Node(Op.GATHER, (x, taken), axis), shape)

    def _index(self) -> Node:
        """The place of each element of each window, (count, longest), int64: behind the end of the
        window for some, and of the last one beyond the array."""
        first, _ = self._ends()
        box = (self.count, self.longest)
        return build.broadcast_in_dim(first, 0, box) + build.broadcasted_iota(box, 1)

    def _inside(self) -> Node:
        """Which elements of `_index` belong to their windows."""
        _, last = self._ends()
        return self._index() < build.broadcast_in_dim(last, 0, (self.count, self.longest))

    def of(self, x: Node, axis: int, outside: Any) -> Node:
        """As `reached`, with `outside` in place of elements beyond a window's end."""
        elements = self.reached(x, axis)
        if self.even or self.longest == 1:
            return elements
        shape = elements.shape
        inside = _along(self._inside(), (axis, axis + 1), shape)
        return select(inside, elements, full(shape, outside, x.dtype))

    def sums(self, x: Node, axis: int) -> Node:
        """The sum of each window along `axis`."""
        totals = reduce(ADD, (axis + 1,), self.of(x, axis, 0.0))
        if self.even or self.longest == 1:
            return totals
        return Node(Op.CUSTOM_DERIVATIVE, (totals, self._sums_of_owned(x, axis)))

    def _sums_of_owned(self, x: Node, axis: int) -> Node:
        """The sums of windows as a scatter: each element is added to every window that has it, its
        owners. Only its derivative is used: a gather of the gradients of these windows, which needs
        no scatter."""
        index = self._index_of_owners()
        sums = full(resized(x.shape, axis, self.count), 0.0, x.dtype)
        owners = index.shape[1]
        scattered = _scattered_at_once if owners > MAX_TERMS else _scattered_by_owner
        return scattered(sums, index, x, axis)

    def _index_of_owners(self) -> Node:
        """The windows that have each element, (size, most); -1 is none. Element j of s is in the
        windows ``floor(j n / s) : ceil((j + 1) n / s)``, as if s windows divided n elements."""
        owners = _Stretches(self.count, self.size)
        index = owners._index()
        index = select(owners._inside(), index, index.lift(-1))  # no window
        if self.count.bit_length() < int32.bits:
            index = cast(index, int32)  # of half as many bytes
        return index

    def lengths(self, dtype: DType) -> Node:
        """How many elements each window has: a vector."""
        first, last = self._ends()
        return cast(last - first, dtype)


def _index_of_elements(index: Node, axis: int, shape: Shape) -> Node:
    """An index (windows, elements of each) as one axis, repeated over the axes of `shape` but
    `axis`."""
    elements = prod(index.shape)
    flat = resized(shape, axis, elements)
    return build.broadcast_in_dim(reshape(index, (elements,)), axis, flat)


def _scattered_at_once(sums: Node, index: Node, x: Node, axis: int) -> Node:
    """`x` added to `sums` at all places that `index` has for each element: one scatter of copies,
    whose derivative is a sum over an axis."""
    copies = build.broadcast_over(x, (axis + 1,), resized(x.shape, axis, *index.shape))
    updates = reshape(copies, resized(x.shape, axis, prod(index.shape)))
    places = _index_of_elements(index, axis, x.shape)
    return Node(Op.SCATTER, (sums, places, updates), Scatter(axis, ADD))


def _scattered_by_owner(sums: Node, index: Node, x: Node, axis: int) -> Node:
    """The same as a scatter for each column of `index`, whose derivative is a sum of as many
    terms."""
    elements, owners = index.shape
    for owner in range(owners):
        column = reshape(build.slice_axis(index, 1, owner, owner + 1), (elements,))
        places = build.broadcast_in_dim(column, axis, x.shape)
        sums = Node(Op.SCATTER, (sums, places, x), Scatter(axis, ADD))
    return sums


@dataclass(frozen=True)
class _Grid:
    """Windows of an adaptive pool along some axes of a batch of images, in order."""

    stretches: dict[int, _Stretches]

    @property
    def axes(self) -> tuple[int, ...]:
        """The axes of a window's elements, each of which follows that of the windows: of windows
        along the axes 2 and 3 they are 3 and 5."""
        return tuple(axis + number for number, axis in enumerate(self.stretches, 1))

    @property
    def growth(self) -> float:
        """Windows for each element."""
        return prod(along.count / max(along.size, 1) for along in self.stretches.values())

    def reached(self, x: Node) -> Node:
        """`x` with the elements of windows along `axes`: see `_Stretches.reached`."""
        for axis, along in reversed(self.stretches.items()):
            x = along.reached(x, axis)
        return x

    def of(self, x: Node, outside: Any) -> Node:
        """As `reached`, with `outside` in place of elements beyond a window's end."""
        for axis, along in reversed(self.stretches.items()):
            x = along.of(x, axis, outside)
        return x

    def sums(self, x: Node) -> Node:
        """The sum of each window."""
        if len(self.stretches) > 1:  # all are even
            return reduce(ADD, self.axes, self.of(x, 0.0))
        ((axis, along),) = self.stretches.items()
        return along.sums(x, axis)


max_pool1d, max_pool2d, max_pool3d = for_ranks(max_pool, variant)
avg_pool1d, avg_pool2d, avg_pool3d = for_ranks(avg_pool)
max_unpool1d, max_unpool2d, max_unpool3d = for_ranks(max_unpool)
adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d = for_ranks(adaptive_avg_pool)
adaptive_max_pool1d, adaptive_max_pool2d, adaptive_max_pool3d = for_ranks(
    adaptive_max_pool, variant
)
