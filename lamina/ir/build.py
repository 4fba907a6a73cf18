"""Building graph nodes without noise: each function leaves out a step that does nothing.

Shapes are tuples of sizes, axes count from 0. Node checks dtypes and shapes as it is made: any of
these functions raises ShapeError, DTypeError or AxisError for operands that do not fit.
"""

import operator
from collections.abc import Iterable, Sequence

from lamina.core.dtypes import DType, Scalar, int64
from lamina.core.shape import Shape
from lamina.ir.monoids import MAX, Monoid
from lamina.ir.node import Node
from lamina.ir.node import const as const
from lamina.ir.node import full as full
from lamina.ir.ops import Iota, Op, Order, Pad, Reduce, Shear


def unary(op: Op, x: Node) -> Node:
    """`op` of one operand, such as ``unary(Op.EXP, x)``."""
    return x.apply(op)


def cast(x: Node, dtype: DType) -> Node:
    return x.cast(dtype)


def bitcast(x: Node, dtype: DType) -> Node:
    """Reinterpret the bits of `x` as another dtype of the same size."""
    return x if x.dtype is dtype else Node(Op.BITCAST, (x,), dtype)


def select(condition: Node, yes: Node, no: Node) -> Node:
    return condition.select(yes, no)


def iota(size: int, dtype: DType) -> Node:
    """0, 1, ..., size - 1."""
    return Node(Op.IOTA, (), Iota(size, dtype))


def reshape(x: Node, shape: Shape) -> Node:
    """The elements of `x`, row-major, in another shape."""
    return x if x.shape == shape else Node(Op.RESHAPE, (x,), shape)


def expand(x: Node, shape: Shape) -> Node:
    """NumPy's broadcast_to: (3, 1) as (2, 3, 4)."""
    return x if x.shape == shape else Node(Op.EXPAND, (x,), shape)


def permute(x: Node, axes: Sequence[int]) -> Node:
    """Axis i of the result is axis ``axes[i]`` of `x`."""
    axes = tuple(axes)
    return x if axes == tuple(range(len(axes))) else Node(Op.PERMUTE, (x,), axes)


def stored_in_order(x: Node, order: Sequence[int]) -> Node:
    """The same values in a buffer of their own, in which axis i is axis ``order[i]`` of `x`."""
    stored = Node(Op.CONTIGUOUS, (permute(x, order),))
    return permute(stored, inverse(order))


def inverse(order: Sequence[int]) -> list[int]:
    """The permutation that undoes `order`: [0, 3, 1, 2] for [0, 2, 3, 1]."""
    return [order.index(axis) for axis in range(len(order))]


def moved_last(axis: int, rank: int) -> list[int]:
    """The order of axes with `axis` at the end: [0, 2, 3, 1] for axis 1 of 4."""
    return [*(other for other in range(rank) if other != axis), axis]


def pad(x: Node, before: Sequence[int], after: Sequence[int], value: Scalar = 0) -> Node:
    """Add elements of `value` at the ends of each axis."""
    if not any(before) and not any(after):
        return x
    return Node(Op.PAD, (x,), Pad(tuple(before), tuple(after), const(value, x.dtype).arg.value))


def flip(x: Node, axes: Sequence[int]) -> Node:
    """`x` backwards along `axes`."""
    ranges = [*map(range, x.shape)]
    for axis in axes:
        if ranges[axis]:
            ranges[axis] = ranges[axis][::-1]
    return sliced(x, ranges)


def sliced(x: Node, ranges: Iterable[range]) -> Node:
    """The elements of `x` at a range of each axis, such as ``map(range, start, stop)``."""
    chosen, whole = tuple(ranges), tuple(map(range, x.shape))
    return x if chosen == whole else Node(Op.SHRINK, (x,), chosen)


def slice_axis(x: Node, axis: int, start: int, stop: int, step: int = 1) -> Node:
    """``start:stop:step`` along `axis`."""
    ranges = [*map(range, x.shape)]
    ranges[axis] = range(start, stop, step)
    return sliced(x, ranges)


def argsort(
    x: Node, axis: int = -1, descending: bool = False, first: int = 0, last: int | None = None
) -> Node:
    """The places along `axis` of the elements with the ranks from `first` on that are below `last`,
    of all by default."""
    along = axis % len(x.shape)
    end = x.shape[along] if last is None else last
    return Node(Op.ARGSORT, (x,), Order(along, descending, first, end))


def pad_to_ranges(x: Node, ranges: Sequence[range], shape: Shape) -> Node:
    """Zeros of `shape`, and `x` at a range of each axis: the adjoint of `sliced`. [1, 2] at
    ``range(1, 5, 2)`` of 5 elements is [0, 1, 0, 2, 0]."""
    ascending = flip(x, [axis for axis, places in enumerate(ranges) if places.step < 0])
    upwards = [places if places.step > 0 else places[::-1] for places in ranges]
    dilated = dilate(ascending, [places.step for places in upwards])
    before = [places.start for places in upwards]
    ends = map(operator.add, before, dilated.shape)
    # Zeros after the last element may already go beyond the end: they are cut off.
    after = [max(0, size - end) for size, end in zip(shape, ends, strict=True)]
    return sliced(pad(dilated, before, after), map(range, shape))


def shear(x: Node, axis: int, by: int, step: int) -> Node:
    """Shift `axis` by `step` times the index along `by`; see `lamina.ir.ops.Shear`."""
    return Node(Op.SHEAR, (x,), Shear(axis, by, step)) if step else x


def shifted(x: Node, axis: int, first: Scalar) -> Node:
    """`x` one place further along `axis`, where it begins with `first`: [1, 2, 3] and 0 give
    [0, 1, 2]."""
    before = [0] * len(x.shape)
    before[axis] = 1
    longer = pad(x, before, [0] * len(x.shape), first)
    return slice_axis(longer, axis, 0, x.shape[axis])


def component(node: Node, number: int) -> Node:
    """The component of this number of the reduction or scan that `node` is one of: the place of an
    argmax beside the value."""
    return Node(node.op, node.src, node.arg._replace(component=number))


def reduce(monoid: Monoid, axes: Sequence[int], *operands: Node, component: int = 0) -> Node:
    """A component of the reduction of `operands` over `axes`, which vanish."""
    reduced = Reduce(monoid, tuple(sorted(axes)), component)
    return Node(Op.REDUCE, operands, reduced) if axes else operands[component]


def insert_axes(x: Node, axes: Sequence[int]) -> Node:
    """`x` with axes of size 1 put at the positions `axes` of the result."""
    shape = list(x.shape)
    for axis in sorted(axes):
        shape.insert(axis, 1)
    return reshape(x, tuple(shape))


def broadcast_over(x: Node, axes: Sequence[int], shape: Shape) -> Node:
    """Undo the shape of a reduction over `axes` of `shape`: each element is repeated along these
    axes. (2, 4) over axis 1 of (2, 3, 4) becomes (2, 3, 4)."""
    return expand(insert_axes(x, axes), shape)


def broadcast_in_dim(x: Node, axis: int, shape: Shape) -> Node:
    """A vector of ``shape[axis]`` elements, repeated over the other axes of `shape`; the elements
    of any other array count row-major."""
    sizes = [1] * len(shape)
    sizes[axis] = shape[axis]
    return expand(reshape(x, tuple(sizes)), shape)


def broadcasted_iota(shape: Shape, axis: int) -> Node:
    """The index along `axis` of each element: int64 of `shape`. (2, 3) and axis 1 give
    [[0, 1, 2], [0, 1, 2]]."""
    return broadcast_in_dim(iota(shape[axis], int64), axis, shape)


def latest_extremes(x: Node, extremes: Node, axis: int) -> Node:
    """Where along `axis` each of the running `extremes` of `x` came last, int64: of the maxima
    [1, 2, 2, 2] of [1, 2, 0, 2], [0, 1, 1, 3]. A NaN is the extreme of all that come after it."""
    is_extreme = x.eq(extremes) | ~x.eq(x)
    places = broadcasted_iota(x.shape, axis)
    of_extremes = select(is_extreme, places, places.lift(0))
    return Node(Op.SCAN, (of_extremes,), Reduce(MAX, (axis,)))


def dilate(x: Node, steps: Sequence[int]) -> Node:
    """`x` with ``step - 1`` zeros after each element, one step an axis: [1, 2] with step 3 is
    [1, 0, 0, 2, 0, 0]. An axis of n elements is reshaped to (n, 1), padded to (n, step), and
    reshaped back."""
    if all(step == 1 for step in steps):
        return x
    columns = reshape(x, tuple(size for n in x.shape for size in (n, 1)))
    after = [zeros for step in steps for zeros in (0, step - 1)]
    padded = pad(columns, [0] * len(after), after)
    return reshape(padded, tuple(map(operator.mul, x.shape, steps)))
