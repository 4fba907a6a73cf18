"""Building graph nodes without noise: each function leaves out a step that does nothing."""

from collections.abc import Callable, Iterable, Sequence

from lamina.core.dtypes import DType, Scalar, int64
from lamina.core.shape import Shape
from lamina.ir.monoids import Monoid
from lamina.ir.node import Node
from lamina.ir.node import const as const
from lamina.ir.node import full as full
from lamina.ir.ops import Iota, Op, Pad, Reduce, Shear


def unary(op: Op, x: Node) -> Node:
    """`op` of one operand, such as ``unary(Op.EXP, x)``."""
    return Node(op, (x,))


def cast(x: Node, dtype: DType) -> Node:
    return x if x.dtype is dtype else Node(Op.CAST, (x,), dtype)


def bitcast(x: Node, dtype: DType) -> Node:
    """Reinterpret the bits of `x` as another dtype of the same size."""
    return x if x.dtype is dtype else Node(Op.BITCAST, (x,), dtype)


def select(condition: Node, yes: Node, no: Node) -> Node:
    return Node(Op.WHERE, (condition, yes, no))


def iota(size: int, dtype: DType) -> Node:
    """0, 1, ..., size - 1."""
    return Node(Op.IOTA, (), Iota(size, dtype))


def reshape(x: Node, shape: Shape) -> Node:
    """The elements of `x`, row-major, in another shape."""
    return x if x.shape == shape else Node(Op.RESHAPE, (x,), shape)


def expand(x: Node, shape: Shape) -> Node:
    """NumPy's broadcast_to."""
    return x if x.shape == shape else Node(Op.EXPAND, (x,), shape)


def permute(x: Node, axes: Sequence[int]) -> Node:
    """Axis i of the result is axis ``axes[i]`` of `x`."""
    axes = tuple(axes)
    return x if axes == tuple(range(len(axes))) else Node(Op.PERMUTE, (x,), axes)


def pad(x: Node, before: Sequence[int], after: Sequence[int], value: Scalar = 0) -> Node:
    """Add elements of `value` at the ends of each axis."""
    if not any(before) and not any(after):
        return x
    return Node(Op.PAD, (x,), Pad(tuple(before), tuple(after), const(value, x.dtype).arg.value))


def flip(x: Node, axes: Sequence[int]) -> Node:
    """`x` backwards along `axes`."""
    whole = enumerate(map(range, x.shape))
    return sliced(x, [one[::-1] if one and axis in axes else one for axis, one in whole])


def sliced(x: Node, ranges: Iterable[range]) -> Node:
    """The elements of `x` at a range of each axis, such as ``map(range, start, stop)``."""
    chosen, whole = tuple(ranges), tuple(map(range, x.shape))
    return x if chosen == whole else Node(Op.SHRINK, (x,), chosen)


def slice_axis(x: Node, axis: int, start: int, stop: int, step: int = 1) -> Node:
    """``start:stop:step`` along `axis`."""
    ranges = [*map(range, x.shape)]
    ranges[axis] = range(start, stop, step)
    return sliced(x, ranges)


def placed(x: Node, ranges: Sequence[range], shape: Shape, grow: Callable[..., Node] = pad) -> Node:
    """Zeros of `shape`, and `x` at a range of each axis: the adjoint of `sliced`."""
    upwards = [one if one.step > 0 else one[::-1] for one in ranges]
    turned = flip(x, [axis for axis, one in enumerate(ranges) if one.step < 0])
    apart = spread_apart(turned, [one.step for one in upwards])
    start = [one.start for one in upwards]
    ends = zip(shape, start, apart.shape, strict=True)
    after = [max(0, whole - first - size) for whole, first, size in ends]
    return sliced(grow(apart, start, after), map(range, shape))


def shear(x: Node, axis: int, by: int, step: int) -> Node:
    """Shift `axis` by `step` times the index along `by`; see `lamina.ir.ops.Shear`."""
    return Node(Op.SHEAR, (x,), Shear(axis, by, step)) if step else x


def shifted(x: Node, axis: int, first: Scalar) -> Node:
    """`x` one place further along `axis`, where it begins with `first`."""
    ahead = [int(one == axis) for one in range(len(x.shape))]
    return slice_axis(pad(x, ahead, [0] * len(ahead), first), axis, 0, x.shape[axis])


def reduce(monoid: Monoid, axes: Sequence[int], *parts: Node, part: int = 0) -> Node:
    """Component `part` of the reduction of `parts` over `axes`, which vanish."""
    reduced = Reduce(monoid, tuple(sorted(axes)), part)
    return Node(Op.REDUCE, parts, reduced) if axes else parts[part]


def insert_axes(x: Node, axes: Sequence[int]) -> Node:
    """`x` with axes of size 1 put at the positions `axes` of the result."""
    shape = list(x.shape)
    for axis in sorted(axes):
        shape.insert(axis, 1)
    return reshape(x, tuple(shape))


def spread(x: Node, axes: Sequence[int], shape: Shape) -> Node:
    """Undo the shape of a reduction over `axes` of `shape`: each element is repeated."""
    return expand(insert_axes(x, axes), shape)


def along(vector: Node, axis: int, shape: Shape) -> Node:
    """A vector repeated over the other axes of `shape`; an array is one, row-major."""
    alone = tuple(size if one == axis else 1 for one, size in enumerate(shape))
    return expand(reshape(vector, alone), shape)


def places(shape: Shape, axis: int) -> Node:
    """The index along `axis` of each element: int64 of `shape`."""
    return along(iota(shape[axis], int64), axis, shape)


def spread_apart(x: Node, step: Sequence[int]) -> Node:
    """`x` with ``step - 1`` zeros after each element: [n] as [n, 1], padded to [n, step]."""
    if all(one == 1 for one in step):
        return x
    pairs = reshape(x, tuple(size for n in x.shape for size in (n, 1)))
    after = [count for one in step for count in (0, one - 1)]
    spaced = pad(pairs, (0,) * len(after), after)
    return reshape(spaced, tuple(n * one for n, one in zip(x.shape, step, strict=True)))
