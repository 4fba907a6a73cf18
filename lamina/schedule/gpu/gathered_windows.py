"""Windows of images with few channels are stored as rows, for tensor cores.

A convolution reads, for each place of its result, a window: of an image of 3 channels and 7 x 7
places of a filter 147 numbers, which lie apart in memory, seven by seven. The engine that copies
tiles needs rows of 16 bytes; with 16 channels or more the image is stored with these last
(`lamina/fuse/layout.py`), and otherwise the threads of a product would gather its tiles, with few
threads on each multiprocessor. Stored as rows by a kernel of its own, windows are a matrix:

    sum over c, p, q of image[n, c, 2 h + p, 2 w + q] * filter[k, c, p, q]
    = windows[(n, h, w), (c, p, q)] @ filter[k, (c, p, q)].T

The gradient of the filter multiplies the same windows, which are stored once. Where windows do not
overlap they are patches of the image, as 4 x 4 places of 3 channels where a network begins. The 48
numbers of a patch lie four by four in memory, and are stored as rows likewise.
"""

from collections.abc import Sequence, Set
from dataclasses import dataclass
from math import ceil

from lamina.core.dtypes import DType
from lamina.core.shape import prod, squeezed
from lamina.fuse.axes import Index
from lamina.fuse.kernel_group import KernelGroup
from lamina.fuse.layout import MIN_CONTIGUOUS, RATES, TILE, copying_seconds, window_axes_of
from lamina.graph import index as ix
from lamina.graph.rewrite import on
from lamina.ir import build
from lamina.ir.kernel import free_axes, points
from lamina.ir.monoids import ADD
from lamina.ir.node import Node
from lamina.ir.ops import Group, Op
from lamina.ir.products import READ_THROUGH, array_read, has_windows, product_of, without_repeats
from lamina.schedule.gpu.atoms import CHUNK_BYTES

MIN_OTHERS = 16  # rows of the other factor from which on tensor cores multiply
# Of windows in memory: memory is a cost too. 128 images of 224 x 224 with 3 channels have 472 MB of
# windows of 7 x 7 places with a stride of 2.
MAX_BYTES = 1 << 30


@dataclass(frozen=True)
class _Windows:
    """A factor of a product.

    once: its windows, without axes along which all are the same
    inner: the axes of the numbers of a window, where others number windows
    others: how many rows of the other factor multiply each window
    """

    once: Node
    inner: Sequence[int]
    others: int


@on(Op.REDUCE)
def gathered_windows(node: Node) -> Node | None:
    """A sum of products of 16-bit floats, with the windows that one factor has in memory, where
    that takes less time than to gather them in tiles; None for other nodes."""
    product = product_of(node)
    if product is None:
        return None
    other, factor = sorted(product.src, key=_preference)
    windows = None if _has_windows(other) else _windows(node, factor, other)
    if windows is None or not _is_stored_sooner(windows):
        return None
    in_rows = _in_rows(windows.once, windows.inner, factor)
    narrow = _floats_of_16_bits(other)
    if narrow is not None and set(windows.inner).issubset(node.arg.axes):
        other = _in_rows(without_repeats(narrow), windows.inner, other)
    return build.reduce(ADD, node.arg.axes, other * in_rows)


def _has_windows(factor: Node) -> bool:
    return has_windows(factor, READ_THROUGH)


def _may_have_patches(factor: Node) -> bool:
    """Is an axis of its array divided in several? A reshape does that; no array of one number has
    an axis."""
    if not array_read(factor).shape:
        return False
    while factor.op in READ_THROUGH:
        if factor.op is Op.RESHAPE:
            before, after = squeezed(factor.src[0].shape), squeezed(factor.shape)
            if len(after) > len(before):
                return True
        factor = factor.src[0]
    return False


def _preference(factor: Node) -> tuple[bool, bool]:
    """The key by which a factor with windows is sorted last, and one that may have patches next to
    last."""
    return _has_windows(factor), _may_have_patches(factor)


def _windows(total: Node, factor: Node, other: Node) -> _Windows | None:
    """The windows of a factor of a product of matrices; None where it has none that threads would
    gather."""
    narrow = _floats_of_16_bits(factor)
    if narrow is None or not (_has_windows(factor) or _may_have_patches(factor)):
        return None
    once, other_once = without_repeats(narrow), without_repeats(other)
    axes = [axis for axis, size in enumerate(once.shape) if size > 1]
    kept = [axis for axis in axes if axis not in total.arg.axes]
    summed = [axis for axis in axes if axis in total.arg.axes]
    if any(other_once.shape[axis] > 1 for axis in kept):
        return None  # each row multiplies others, as a filter for each channel does
    walk = _Walk.of(total, factor)
    if walk is None or walk.channels >= MIN_CONTIGUOUS:
        return None
    others = prod(other_once.shape) // prod(once.shape[axis] for axis in summed)
    inner = summed if walk.is_summed else kept
    return _Windows(once, inner, others) if others >= MIN_OTHERS else None


@dataclass(frozen=True)
class _Walk:
    """How a sum of products walks windows.

    is_summed: are the numbers of a window summed up, and not the windows, which are more? Where a
        filter has more places than its result, it is the other way round: the places of the result
        are the numbers of one window for each place of the filter.
    channels: numbers of a window at each place, along the longest axis
    """

    is_summed: bool
    channels: int

    @classmethod
    def of(cls, total: Node, factor: Node) -> "_Walk | None":
        """That of a factor, which is movement of an array; None if both factors are of one, and
        where there are neither windows nor patches."""
        arrays = [array_read(each) for each in total.src[0].src]
        if arrays[0] is arrays[1]:
            return None
        kernel = KernelGroup(total, {array: array.shape for array in arrays})
        (index,) = kernel.reads[array_read(factor)]
        moving = window_axes_of([index])
        if not moving:
            return cls._of_patches(index)
        summed = {axis for axis in moving if axis.arg.reduce}
        is_summed = points(summed) <= points(moving - summed)
        return cls(is_summed, _channels(index, moving, is_summed))

    @classmethod
    def _of_patches(cls, index: Index) -> "_Walk | None":
        """Of patches neighbours in memory are numbers of one patch, and those of the next patch are
        behind them: ``4 * w + q`` for q < 4. None if the last axis of the array is not divided
        between patches and the places within them."""
        strides, _ = ix.terms_of(index[-1])
        nearest = next((axis for axis, stride in strides.items() if stride == 1), None)
        if nearest is None or nearest.op is not Op.AXIS:
            return None
        is_summed = bool(nearest.arg.reduce)
        of_last_axis = free_axes(index[-1])
        is_divided = any(axis.arg.reduce != is_summed for axis in of_last_axis)
        if not is_divided:
            return None
        channels = max(nearest.arg.size, _channels(index, of_last_axis, is_summed))
        return cls(is_summed, channels)


def _channels(index: Index, apart: Set[Node], is_summed: bool) -> int:
    """The most numbers of one window along an axis of the array, without the loops `apart`."""
    channels = 1
    for place in index:
        axes = free_axes(place) - apart
        if all(axis.arg.reduce == is_summed for axis in axes):
            channels = max(channels, points(axes))
    return channels


def _floats_of_16_bits(x: Node) -> Node | None:
    """The floats of 16 bits that `x` was cast from, moved as `x` is; None if it was not."""
    if x.op is Op.CAST:
        (source,) = x.src
        return source if source.dtype.is_float and source.dtype.bits == 16 else None
    if x.op not in Group.MOVEMENT or len(x.src) != 1:
        return None
    narrow = _floats_of_16_bits(x.src[0])
    return None if narrow is None else Node(x.op, (narrow,), x.arg)


def _is_stored_sooner(windows: _Windows) -> bool:
    """Does a kernel write all windows, and the copy engine read them, before threads would have
    gathered them? Each is gathered once for every tile of 128 rows of the other factor. Rows of 9
    numbers have 16 in memory."""
    once = windows.once
    row = prod(once.shape[axis] for axis in windows.inner)
    stored = (row + _zeros_behind(row, once.dtype)) / row
    gathering = prod(once.shape) * ceil(windows.others / TILE) * RATES.filling
    return stored * once.nbytes <= MAX_BYTES and stored * copying_seconds(once) < gathering


def _zeros_behind(row: int, dtype: DType) -> int:
    """How many zeros a row has behind it in memory, so that the next begins at a chunk."""
    return -row % (CHUNK_BYTES // dtype.itemsize)


def _in_rows(once: Node, inner: Sequence[int], factor: Node) -> Node:
    """`factor`, which repeats the floats of 16 bits `once`, with these in memory. There the axes
    `inner` are rows: the copy engine reads rows of 147 numbers that begin at chunks of 16 bytes,
    where a filter has 3 x 7 x 7 side by side."""
    outer = [axis for axis in range(len(once.shape)) if axis not in inner]
    order = [*outer, *inner]
    in_order = build.permute(once, order)
    row = prod(once.shape[axis] for axis in inner)
    outer_shape = [once.shape[axis] for axis in outer]
    stored = _stored_in_chunks(build.reshape(in_order, (*outer_shape, row)))
    in_place = build.permute(build.reshape(stored, in_order.shape), build.inverse(order))
    return build.expand(build.cast(in_place, factor.dtype), factor.shape)


def _stored_in_chunks(rows: Node) -> Node:
    """`rows` in memory, each beginning at a chunk of 16 bytes: the copy engine reads no others. Of
    bfloat16, rows of 3 x 3 x 3 numbers, 54 bytes, have 5 zeros behind them."""
    *outer, row = rows.shape
    zeros = _zeros_behind(row, rows.dtype)
    none = [0] * len(outer)
    stored = Node(Op.CONTIGUOUS, (build.pad(rows, [*none, 0], [*none, zeros]),))
    return build.sliced(stored, map(range, rows.shape))
