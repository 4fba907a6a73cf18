"""Which tiles the copy engine of a GPU (TMA) can read, and how an array has to be described to it.

The engine copies a box of an array of up to five dimensions, and fills what lies beyond an extent
with zeros. In its im2col mode it copies lines of several images one after the other: for each
output pixel, one element of the window of the image at that pixel, along all channels.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lamina.graph import index as ix
from lamina.ir.kernel import Store, bounds, free_axes, points
from lamina.ir.node import Node
from lamina.ir.ops import Op
from lamina.runtime.buffer import TensorMap

# What the engine can do, by its documentation (PTX ISA, "tensor copies").
CHUNK_BYTES = 16  # offsets and strides are multiples of it
MAX_DIMENSIONS = 5
MAX_WINDOW_STRIDE = 8  # elements from a window to the next
# Bits of a corner of the windows, which is signed, and of a place in a window, which is not, for
# all axes of an image together: 16 for one axis, 8 for each of two, 5 for each of three.
CORNER_BITS = 16


@dataclass(frozen=True)
class EngineCopy:
    """How the engine copies a tile: from an array, and from which coordinates on, fastest first. In
    im2col mode the place in the window follows these."""

    array: TensorMap
    coordinates: tuple[Node, ...]


@dataclass(frozen=True)
class _Dimension:
    """A dimension of an array as the engine sees it.

    index   along it, a sum of axes: ``2 * a + k - 1``
    stride  elements from one index to the next
    size    of the dimension: from this index on, and below 0, there are zeros
    """

    index: Node
    stride: int
    size: int


@dataclass(frozen=True)
class _Window:
    """The windows along one axis of an image: ``stride * axis + place``.

    low   the first place of the first window, -1 with a padding of 1
    high  the first place of the last window, less the last element of the image
    """

    axis: Node
    stride: int
    place: Node
    low: int
    high: int


def engine_copy(tile: Store, lines: int, line_elements: int, is_tf32: bool) -> EngineCopy | None:
    """How the engine copies a tile of so many lines of so many elements; None if it cannot.

    It copies what one load reads, without any arithmetic. The last axis of the tile is the one
    along a line; the lines of a tile walk the other axes, as one if there are several. For these
    the engine needs its im2col mode: pixels, row by row, of one image after the other.
    """
    load = tile.value
    if load.op is not Op.LOAD:
        return None
    load_index, *conditions = load.src
    extents = ix.extents(*conditions)
    if extents is None:  # it is not only beyond the ends of an array that the load gives zeros
        return None
    axes = tile.axes[::-1]
    is_im2col = len(axes) > 2
    index_of = _indices_by_axis(load_index, axes, extents, is_im2col)
    dimensions = _dimensions(load_index, index_of, extents)
    offset = _offset(load_index, dimensions)
    if offset is None or not _is_readable(dimensions, axes, is_im2col):
        return None
    # An axis may have two extents, as rows that are padded, cut off and padded again: a dimension
    # has zeros beyond one of them alone.
    if not extents.keys() <= {dimension.index for dimension in dimensions}:
        return None
    itemsize = load.dtype.itemsize
    strides = [dimension.stride * itemsize for dimension in dimensions[1:]]  # but the fastest
    is_in_chunks = all(size % CHUNK_BYTES == 0 for size in (offset * itemsize, *strides))
    is_whole = points(axis for axis in axes if axis.arg.reduce) % line_elements == 0
    if not is_in_chunks or not (is_whole or _ends_in_zeros(dimensions, axes, is_im2col)):
        return None
    windows = _windows(dimensions, axes) if is_im2col else []
    if windows is None:
        return None
    array = TensorMap(
        parameter=load.arg.parameter,
        element_kind="TFLOAT32" if is_tf32 else f"UINT{8 * itemsize}",
        offset=offset * itemsize,
        sizes=tuple(dimension.size for dimension in dimensions),
        strides=tuple(strides),
        box=(line_elements, lines, *[1] * (len(dimensions) - 2)),
        corners=tuple((window.low, window.high, window.stride) for window in windows),
    )
    return EngineCopy(array, _coordinates(dimensions, windows))


def _coordinates(dimensions: Sequence[_Dimension], windows: Sequence[_Window]) -> tuple[Node, ...]:
    """Where the engine begins: along an axis of an image, where the first pixel's window does; and
    behind all dimensions the place in a window, from 0 on."""
    coordinates = [dimension.index for dimension in dimensions]
    for number, window in enumerate(windows, 1):
        coordinates[number] = ix.scale(window.axis, window.stride, window.low)
    return (*coordinates, *(ix.scale(window.place, 1, -window.low) for window in windows))


def _indices_by_axis(
    load_index: Node, axes: Sequence[Node], extents: Mapping[Node, int], is_im2col: bool
) -> dict[Node, Node]:
    """The index along each dimension of an array, by one of its axes; those of a tile come first.

    A dimension is an index with an extent of its own, such as ``2 * a + k - 1`` of an image with
    padding, where it belongs to the axis of the tile, `a`; or else it is an axis. An axis of a
    window without an extent, because an image has no padding, is part of the dimension of the
    pixels, which have the same stride: ``a + k``.

    A tile of a 3x3 convolution with padding 1 has the axes channel c, column x, row y and image n,
    and the load depends on the places k and l in the window too: {c: c, x: x + l - 1,
    y: y + k - 1, n: n}. Without padding these are x + l and y + k.
    """
    strides, _ = ix.terms_of(load_index)
    index_of = {axis: axis for axis in axes}
    for bounded in extents:
        terms, _ = ix.terms_of(bounded)
        owner = next((axis for axis in terms if axis in axes), next(iter(terms)))
        index_of[owner] = bounded
    known = frozenset[Node]().union(*map(free_axes, index_of.values()))
    pixel_of_stride = {strides[axis]: axis for axis in axes[1:] if axis in strides}
    for axis in strides:
        if axis in known:
            continue
        pixel = pixel_of_stride.get(strides[axis])
        if pixel is not None:
            index_of[pixel] = ix.add(index_of[pixel], axis)
        else:
            index_of[axis] = axis
    # The last dimension numbers the images. Where the last axis of the tile walks windows, it is
    # one along an image. The images are then the only other axis, or there is one image.
    last = axes[-1]
    if is_im2col and len(index_of) == len(axes) and index_of[last] is not last:
        index_of[ix.ZERO] = ix.ZERO
    return index_of


def _dimensions(
    load_index: Node, index_of: Mapping[Node, Node], extents: Mapping[Node, int]
) -> list[_Dimension]:
    """The dimensions with these indices. The stride of ``2 * a + k`` is that of `a` divided by 2.
    One without an extent has the size that its index needs."""
    strides, _ = ix.terms_of(load_index)
    dimensions = []
    for axis, index in index_of.items():
        coefficient = ix.terms_of(index)[0].get(axis, 1)
        # The only image has no stride: any that is in chunks.
        stride = strides.get(axis, CHUNK_BYTES) // coefficient
        size = extents.get(index, bounds(index)[1] + 1)
        dimensions.append(_Dimension(index, stride, size))
    return dimensions


def _offset(load_index: Node, dimensions: Sequence[_Dimension]) -> int | None:
    """The element at index 0 of all dimensions; None if they do not make up the index of the load,
    as where the load depends on an axis of the tile by its condition alone."""
    walked = [ix.scale(dimension.index, -dimension.stride) for dimension in dimensions]
    rest, offset = ix.terms_of(ix.add(load_index, *walked))
    return None if rest else offset


def _is_readable(dimensions: Sequence[_Dimension], axes: Sequence[Node], is_im2col: bool) -> bool:
    """Whether the engine can walk these dimensions as a tile's lines need it."""
    line, *others = dimensions
    # A line has neighbours in memory, an element for each index of its axis.
    is_line = line.index is axes[0] and line.stride == 1
    goes_forward = all(dimension.stride >= 1 for dimension in others)  # no flipped array
    terms = {term for dimension in dimensions for term in ix.terms_of(dimension.index)[0]}
    has_size = all(term.op is Op.AXIS for term in terms)  # unlike an index that data say
    # Besides those that lines walk, im2col mode has one more: `_indices_by_axis`.
    max_dimensions = min(len(axes) + 1, MAX_DIMENSIONS) if is_im2col else MAX_DIMENSIONS
    is_few = len(dimensions) <= max_dimensions
    # Without windows, a line is at each index of its dimension; `_windows` knows other steps.
    step_of_lines = ix.terms_of(others[0].index)[0][axes[1]]
    return is_line and goes_forward and has_size and is_few and (is_im2col or step_of_lines == 1)


def _ends_in_zeros(dimensions: Sequence[_Dimension], axes: Sequence[Node], is_im2col: bool) -> bool:
    """Whether zeros stand for the steps beyond the last one that fill up a tile: they do beyond the
    end of the dimension of the slowest step axis, and after the only image. Beyond the last row
    there may be anything: nothing of it is stored."""
    *_, slowest_step = (axis for axis in axes if axis.arg.reduce)
    if slowest_step is axes[0]:  # its dimension is that of lines
        return True
    walked_last = dimensions[-1 if is_im2col else 1]
    return walked_last.index in (slowest_step, ix.ZERO)


def _windows(dimensions: Sequence[_Dimension], axes: Sequence[Node]) -> list[_Window] | None:
    """The windows along each axis of an image; None if the engine cannot walk them. An axis without
    windows has such of one element, without a stride: the pixels of a 1x1 convolution.

    Rows ``y + k - 1`` of an image of 32, y below 32, k below 3: places from -1 (`low`) to 1, and
    `high` -1, as the last window begins at 30 and the last element is 31. Of an image with two
    axes, corners have 8 bits: from -128 to 127.
    """
    *along_image, _ = dimensions[1:]  # the last one numbers the images
    limit = 1 << (CORNER_BITS // len(along_image))
    windows = []
    # If the last axis of the tile numbers the images, it is left out here.
    for axis, dimension in zip(axes[1:], along_image, strict=False):
        stride = ix.terms_of(dimension.index)[0][axis]
        place = ix.add(dimension.index, ix.scale(axis, -stride))
        low, highest = bounds(place)
        high = stride * bounds(axis)[1] + low - dimension.size + 1
        is_stride = 1 <= stride <= MAX_WINDOW_STRIDE
        are_corners = -limit <= 2 * min(low, high) and 2 * max(low, high) < limit
        are_places = highest - low < limit
        if not (is_stride and are_corners and are_places):
            return None
        windows.append(_Window(axis, stride, place, low, high))
    return windows
