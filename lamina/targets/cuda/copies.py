"""Which tiles the copy engine of a GPU (TMA) can read, and how an array has to be described to it.

The engine copies a box of an array of up to five dimensions, and fills what lies beyond an extent
with zeros. In its im2col mode it copies lines of several images one after the other: for each
output pixel, one element of the window of the image at that pixel, along all channels.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lamina.graph import index as ix
from lamina.ir.kernel import Kernel, Store, bounds, free_axes, points
from lamina.ir.node import Node
from lamina.ir.ops import Op
from lamina.runtime.buffer import TensorMap

# What the engine can do, by its documentation (PTX ISA, "tensor copies").
CHUNK_BYTES = 16  # offsets and strides are multiples of it
MAX_DIMENSIONS = 5
MAX_WINDOW_STRIDE = 8  # elements from a window to the next
# Bits of a corner of the windows, for all axes of an image together: 16 for one axis, 8 for each of
# two, 5 for each of three. A box has fewer elements along an axis than 2 to the power of these.
CORNER_BITS = 16


@dataclass(frozen=True)
class EngineCopy:
    """How the engine copies a tile: from an array, and from which coordinates on, fastest first. In
    im2col mode the place in the window follows these."""

    array: TensorMap
    coordinates: tuple[Node, ...]


@dataclass(frozen=True)
class _Dimensions:
    """An array as the engine sees it, dimension by dimension, fastest first.

    indices  along each dimension, over the axes of a tile and others
    strides  in elements
    offset   of the first element, in elements
    """

    indices: tuple[Node, ...]
    strides: tuple[int, ...]
    offset: int


def engine_copy(
    kernel: Kernel, tile: Store, lines: int, line_elements: int, is_tf32: bool
) -> EngineCopy | None:
    """How the engine copies a tile of so many lines of so many elements; None if it cannot: the
    tile is an array as it is, but for zeros beyond its ends. Several row axes that lines walk as
    one need the im2col mode."""
    load, axes = tile.value, tile.axes[::-1]
    extents = ix.extents(*load.src[1:]) if load.op is Op.LOAD else None
    if extents is None or kernel.parameters[load.arg.parameter].written:
        return None
    is_im2col = len(axes) > 2
    index_of = _indices_by_axis(load.src[0], axes, extents, is_im2col)
    dimensions = _dimensions(load.src[0], index_of)
    if dimensions is None:
        return None
    itemsize = load.dtype.itemsize
    is_described = _has_layout(dimensions, axes, is_im2col, itemsize)
    if not is_described or _misses_zeros(dimensions, axes, is_im2col, line_elements):
        return None
    sizes = tuple(extents.get(index, bounds(index)[1] + 1) for index in dimensions.indices)
    windows = _windows(dimensions, axes, sizes, is_im2col)
    if windows is None:
        return None
    coordinates, places = [*dimensions.indices], []
    if is_im2col:
        for number, window in enumerate(windows, 1):
            coordinates[number] = ix.scale(window.axis, window.stride, window.low)
            places.append(ix.scale(window.place, 1, -window.low))
    array = TensorMap(
        parameter=load.arg.parameter,
        element_kind="TFLOAT32" if is_tf32 else f"UINT{8 * itemsize}",
        offset=dimensions.offset * itemsize,
        sizes=sizes,
        strides=tuple(stride * itemsize for stride in dimensions.strides[1:]),
        box=(line_elements, lines, *[1] * (len(sizes) - 2)),
        corners=tuple((window.low, window.high, window.stride) for window in windows)
        if is_im2col
        else (),
    )
    return EngineCopy(array, (*coordinates, *places))


def _indices_by_axis(
    index: Node, axes: Sequence[Node], extents: Mapping[Node, int], is_im2col: bool
) -> dict[Node, Node]:
    """The index along each dimension of an array, by one of its axes; those of a tile come first.

    A dimension is an index with an extent of its own, such as ``2 * a + k - 1`` of an image with
    padding, where it belongs to the axis of the tile, `a`; or else it is an axis."""
    strides, _ = ix.terms_of(index)
    index_of = {axis: axis for axis in axes}
    for bounded in extents:
        terms, _ = ix.terms_of(bounded)
        index_of[max(terms, key=lambda axis: (axis in axes, strides.get(axis, 0)))] = bounded
    known = frozenset[Node]().union(*map(free_axes, index_of.values()))
    # Axes of a window that nothing bounds, because an image has no padding, go with the axis of the
    # tile that has the same stride.
    by_stride = {strides[axis]: axis for axis in axes[1:] if is_im2col and axis in strides}
    for axis in strides:
        if axis not in known:
            pixel_axis = by_stride.get(strides[axis], axis)
            index_of[pixel_axis] = ix.add(*{pixel_axis, axis})
    last = axes[-1]
    if is_im2col and len(index_of) == len(axes) and index_of[last] is not last:
        index_of[ix.ZERO] = ix.ZERO  # the number of the image: there is one
    return index_of


def _dimensions(index: Node, index_of: Mapping[Node, Node]) -> _Dimensions | None:
    """The dimensions whose indices and strides make up the index of a load; None if none do. The
    stride of ``2 * a + k`` is that of `a` divided by 2."""
    terms, _ = ix.terms_of(index)
    strides = []
    for axis, dimension in index_of.items():
        coefficient = ix.terms_of(dimension)[0].get(axis, 1)
        strides.append(terms.get(axis, CHUNK_BYTES) // coefficient)
    walked = [
        ix.scale(dimension, -stride)
        for dimension, stride in zip(index_of.values(), strides, strict=True)
    ]
    rest, offset = ix.terms_of(ix.add(index, *walked))
    return None if rest else _Dimensions(tuple(index_of.values()), tuple(strides), offset)


def _has_layout(
    dimensions: _Dimensions, axes: Sequence[Node], is_im2col: bool, itemsize: int
) -> bool:
    """Whether the engine knows the layout: lines along the fastest dimension, and strides in
    chunks."""
    indices, strides, offset = dimensions.indices, dimensions.strides, dimensions.offset
    limit = min(len(axes) + 1, MAX_DIMENSIONS) if is_im2col else MAX_DIMENSIONS
    terms = (term for index in indices for term in ix.terms_of(index)[0])
    return (
        indices[0] is axes[0]
        and strides[0] == 1
        and min(strides) >= 1
        and offset >= 0
        and all(term.op is Op.AXIS for term in terms)
        and not any(elements * itemsize % CHUNK_BYTES for elements in (offset, *strides[1:]))
        and len(indices) <= limit
    )


def _misses_zeros(
    dimensions: _Dimensions, axes: Sequence[Node], is_im2col: bool, line_elements: int
) -> bool:
    """Whether a line has elements beyond the last step that are not zeros. They are where the last
    of the step axes, or the one image, is a dimension with an extent. Beyond the last row anything
    may be: nothing of it is stored."""
    steps = [axis for axis in axes if axis.arg.reduce]
    ends = {dimensions.indices[0], dimensions.indices[-1 if is_im2col else 1]}
    return points(steps) % line_elements != 0 and ends.isdisjoint({steps[-1], ix.ZERO})


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


def _windows(
    dimensions: _Dimensions, axes: Sequence[Node], sizes: Sequence[int], is_im2col: bool
) -> list[_Window] | None:
    """The windows along each row axis of a tile; None if the engine cannot walk them. Rows that are
    one axis have windows of one element, without a stride."""
    corner_limit = 1 << (CORNER_BITS // max(len(sizes) - 2, 1))
    row_axes = axes[1 : len(sizes) - 1] if is_im2col else axes[1:]
    windows = []
    for number, axis in enumerate(row_axes, 1):
        index = dimensions.indices[number]
        stride = ix.terms_of(index)[0][axis]
        place = ix.add(index, ix.scale(axis, -stride))
        low, highest = bounds(place)
        high = stride * bounds(axis)[1] + low - sizes[number] + 1
        reach = max(highest - low, 2 * abs(low), 2 * abs(high))
        max_stride = MAX_WINDOW_STRIDE if is_im2col else 1
        if not 0 < stride <= max_stride or reach >= corner_limit:
            return None
        windows.append(_Window(axis, stride, place, low, high))
    return windows
