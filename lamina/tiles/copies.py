"""Which tiles the copy engine of a GPU (TMA) can read, and how an array has to be described to it.

The engine copies a box of an array of up to five dimensions, and fills what lies beyond an extent
with zeros. In its im2col mode it copies lines of several images one after the other: for each
output pixel, one element of the window of the image at that pixel, along all channels.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lamina.graph import index as ix
from lamina.ir.kernel import bounds, free_axes_of, points
from lamina.ir.node import Node
from lamina.ir.ops import Op
from lamina.loops.nest import Axes, TileFill
from lamina.runtime.buffer import TensorMap
from lamina.schedule.gpu.atoms import CHUNK_BYTES

# What the engine can do, by its documentation (PTX ISA, "tensor copies").
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

    @property
    def is_im2col(self) -> bool:
        """Whether the copy is of im2col mode, which has windows, each with a corner."""
        return bool(self.array.corners)


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
class _Source:
    """What a load reads, as the engine sees it.

    dimensions  the one along lines first, then those that lines of a tile walk, then all others
    offset      of the element at index 0 of all dimensions
    axes        of the tile, fastest first: along a line, then those that lines walk
    """

    dimensions: list[_Dimension]
    offset: int
    axes: Axes

    @property
    def needs_im2col(self) -> bool:
        """Whether lines walk several axes as one, which the engine does in im2col mode alone."""
        return len(self.axes) > 2


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


def engine_copy(tile: TileFill, lines: int, line_elements: int, is_tf32: bool) -> EngineCopy | None:
    """How the engine copies a tile of so many lines of so many elements; None if it cannot.

    It copies what one load reads, without any arithmetic. The last axis of the tile is the one
    along a line; the lines of a tile walk the other axes, as one if there are several. For these
    the engine needs its im2col mode: pixels, row by row, of one image after the other.
    """
    load = tile.value
    source = _source(load, tile.axes[::-1]) if load.op is Op.LOAD else None
    if source is None or not _is_readable(source):
        return None
    itemsize = load.dtype.itemsize
    if not _is_in_chunks(source, itemsize):
        return None
    # 300 steps in lines of 64: the last line has 20 elements that must be zeros.
    steps = points(axis for axis in source.axes if axis.arg.reduce)
    if steps % line_elements != 0 and not _ends_in_zeros(source):
        return None
    windows = _windows(source) if source.needs_im2col else []
    if windows is None:
        return None
    dimensions = source.dimensions
    array = TensorMap(
        parameter=load.arg.parameter,
        element_kind="TFLOAT32" if is_tf32 else f"UINT{8 * itemsize}",
        offset=source.offset * itemsize,
        sizes=tuple(dimension.size for dimension in dimensions),
        strides=tuple(dimension.stride * itemsize for dimension in dimensions[1:]),
        # One index of each dimension that lines do not walk.
        box=(line_elements, lines, *[1] * (len(dimensions) - 2)),
        corners=tuple((window.low, window.high, window.stride) for window in windows),
    )
    return EngineCopy(array, _coordinates(dimensions, windows))


def _is_in_chunks(source: _Source, itemsize: int) -> bool:
    """Does the array begin at a whole chunk, and each dimension go in steps of whole chunks, but
    the one along lines? Rows of 300 elements of 2 bytes, 600 bytes, are 37 chunks and a half."""
    strides = [dimension.stride for dimension in source.dimensions[1:]]
    return all(count * itemsize % CHUNK_BYTES == 0 for count in (source.offset, *strides))


def _coordinates(dimensions: Sequence[_Dimension], windows: Sequence[_Window]) -> tuple[Node, ...]:
    """Where the engine begins: along an axis of an image, where the first pixel's window does; and
    behind all dimensions the place in a window, from 0 on."""
    coordinates = [dimension.index for dimension in dimensions]
    for number, window in enumerate(windows, 1):
        coordinates[number] = ix.scale(window.axis, window.stride, window.low)
    return (*coordinates, *(ix.scale(window.place, 1, -window.low) for window in windows))


def _source(load: Node, axes: Axes) -> _Source | None:
    """The dimensions of the array that a load reads, for a tile with these axes, fastest first;
    None where it has none that explain the index, or zeros elsewhere than beyond its ends."""
    load_index, *conditions = load.src
    extents = ix.extents(*conditions)
    if extents is None:  # the condition has more than ends, as below a diagonal
        return None
    index_of = _indices_by_axis(load_index, axes, extents)
    dimensions = _dimensions(load_index, index_of, extents)
    # An axis may have two extents, as rows that are padded, cut off and padded again: a dimension
    # has zeros beyond one of them alone.
    if not extents.keys() <= {dimension.index for dimension in dimensions}:
        return None
    # The index, less what the dimensions contribute to it. Terms are left where the load depends on
    # an axis of the tile by its condition alone.
    contributions = [ix.scale(dimension.index, -dimension.stride) for dimension in dimensions]
    terms, offset = ix.terms_of(ix.add(load_index, *contributions))
    return None if terms else _Source(dimensions, offset, axes)


def _indices_by_axis(load_index: Node, axes: Axes, extents: Mapping[Node, int]) -> dict[Node, Node]:
    """The index along each dimension of an array, by one of its axes; those of a tile come first.

    A tile of a 3x3 convolution has the axes channel c, column x, row y and image n, and the load
    depends on the places k and l in the window too. There are three kinds of dimensions:

    - an index with an extent, by its axis of the tile. With padding 1 the result is {c: c,
      x: x + l - 1, y: y + k - 1, n: n}, of which x and y have one.
    - an axis and the places of a window that have its stride, as without padding no extent says
      what belongs together: {c: c, x: x + l, y: y + k, n: n}
    - any other axis by itself
    """
    index_of = {axis: axis for axis in axes}
    for bounded in extents:
        terms, _ = ix.terms_of(bounded)
        in_tile = [axis for axis in terms if axis in axes]
        index_of[in_tile[0] if in_tile else next(iter(terms))] = bounded
    _add_other_axes(index_of, load_index, axes)
    # In im2col mode the last dimension numbers the images. Where the last axis of the tile walks
    # windows, it is one along an image. The images are then the only other axis, or there is one
    # image, whose dimension has the index 0.
    slowest = axes[-1]
    walks_windows = len(axes) > 2 and index_of[slowest] is not slowest
    if walks_windows and len(index_of) == len(axes):
        index_of[ix.ZERO] = ix.ZERO
    return index_of


def _add_other_axes(index_of: dict[Node, Node], load_index: Node, axes: Axes) -> None:
    """Add to `index_of` the axes of `load_index` that are in none of its indices: a place in a
    window to the index of the pixels that have its stride, any other axis as a dimension.

    ``x[100 * y + 100 * k + c]`` in a tile with the axes c and y: k has the stride of y, whose index
    becomes ``y + k``.
    """
    known = free_axes_of(index_of.values())
    strides, _ = ix.terms_of(load_index)
    pixel_of_stride = {strides[axis]: axis for axis in axes[1:] if axis in strides}
    for axis, stride in strides.items():
        pixel = pixel_of_stride.get(stride)
        if axis in known:
            continue
        if pixel is None:
            index_of[axis] = axis
        else:
            index_of[pixel] = ix.add(index_of[pixel], axis)


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


def _is_readable(source: _Source) -> bool:
    """Whether the engine can walk the dimensions as the lines of a tile need it."""
    line, *others = source.dimensions
    # A line has neighbours in memory, an element for each index of its axis. It has no other axis:
    # the 64 steps of 8 x 8 pixels, along two, are no line of 64 elements.
    along, *walked = source.axes
    is_line = line.index is along and line.stride == 1
    has_one_axis = all(axis.arg.reduce != along.arg.reduce for axis in walked)
    goes_forward = all(dimension.stride >= 1 for dimension in others)  # no flipped array
    terms = {term for dimension in source.dimensions for term in ix.terms_of(dimension.index)[0]}
    has_size = all(term.op is Op.AXIS for term in terms)  # unlike an index that data say
    if not (is_line and has_one_axis and goes_forward and has_size):
        return False
    if len(source.dimensions) > MAX_DIMENSIONS:
        return False
    if source.needs_im2col:
        # Besides those that lines walk, im2col mode has one more: `_indices_by_axis`.
        return len(source.dimensions) <= len(source.axes) + 1
    # Without windows, a line is at each index of its dimension; `_windows` knows other steps.
    step_of_lines = ix.terms_of(others[0].index)[0][source.axes[1]]
    return step_of_lines == 1


def _ends_in_zeros(source: _Source) -> bool:
    """Whether zeros stand for the steps beyond the last one that fill up a tile: they do beyond the
    end of the dimension of the slowest step axis, and after the only image. Beyond the last row
    there may be anything: nothing of it is stored."""
    *_, slowest_step = (axis for axis in source.axes if axis.arg.reduce)
    if slowest_step is source.axes[0]:  # its dimension is that of lines
        return True
    walked_last = source.dimensions[-1 if source.needs_im2col else 1]
    return walked_last.index in (slowest_step, ix.ZERO)


def _windows(source: _Source) -> list[_Window] | None:
    """The windows along each axis of an image; None if the engine cannot walk them. An axis without
    windows has such of one element, without a stride: the pixels of a 1x1 convolution."""
    *along_image, _ = source.dimensions[1:]  # the last one numbers the images
    bits = CORNER_BITS // len(along_image)
    windows: list[_Window] = []
    # If the last axis of the tile numbers the images, it is left out here.
    for axis, dimension in zip(source.axes[1:], along_image, strict=False):
        window = _window(axis, dimension, bits)
        if window is None:
            return None
        windows.append(window)
    return windows


def _window(axis: Node, dimension: _Dimension, bits: int) -> _Window | None:
    """The windows along a dimension, one for each index of `axis`; None where the engine has no
    such stride, or too few `bits` for corners and places.

    Rows ``y + k - 1`` of an image of 32, y below 32, k below 3: places from -1 (`low`) to 1, and
    `high` -1, as the last window begins at 30 and the last element is 31. Of an image with two
    axes, corners have 8 bits: from -128 to 127.
    """
    stride = ix.terms_of(dimension.index)[0][axis]
    place = ix.add(dimension.index, ix.scale(axis, -stride))
    low, highest = bounds(place)
    begin_of_last = stride * bounds(axis)[1] + low
    high = begin_of_last - (dimension.size - 1)
    limit = 1 << (bits - 1)
    has_stride = 1 <= stride <= MAX_WINDOW_STRIDE
    are_corners = all(-limit <= corner < limit for corner in (low, high))
    are_places = highest - low < 1 << bits
    if not (has_stride and are_corners and are_places):
        return None
    return _Window(axis, stride, place, low, high)
