"""Rules of movement operations, and of reductions and scatters over a single element: functions, as
they calculate with shapes. Kernels have indices in place of movement: here is only what changes how
kernels are made."""

from lamina.core.dtypes import float32, int32, int64
from lamina.graph.repeats import function_of_repeated, reduce_repeated
from lamina.graph.rewrite import on
from lamina.ir import build
from lamina.ir.monoids import ADD, ARGMAX, ARGMIN, COMPLEX_MUL
from lamina.ir.node import Node, peel, toposort
from lamina.ir.ops import Op
from lamina.ir.substitute import rebuilt_in_order

# Movement that repeats no element and adds none.
MOVES_ONCE = frozenset({Op.RESHAPE, Op.PERMUTE, Op.SHRINK})
# Movement that adds no element of another value.
REPEATS = MOVES_ONCE | {Op.EXPAND}


@on(Op.RESHAPE)
def reshape(node: Node) -> Node:
    """A reshape to the shape that an operand has is none; one reshape instead of two."""
    x = node.src[0]
    return build.reshape(x.src[0] if x.op is Op.RESHAPE else x, node.shape)


@on(Op.PAD)
def pad(node: Node) -> Node | None:
    """What is repeated along other axes is padded once, before that: (8, 1) expanded to (8, 5),
    then padded to (10, 5), becomes (8, 1) padded to (10, 1) and expanded."""
    x = node.src[0]
    before, after, value = node.arg
    if x.op is not Op.EXPAND:
        return None
    once = x.src[0]
    new = len(x.shape) - len(once.shape)  # axes that the EXPAND adds, in front
    old_sizes = (*(-1,) * new, *once.shape)
    for axis, (old, size) in enumerate(zip(old_sizes, x.shape, strict=True)):
        if old != size and (before[axis] or after[axis]):
            return None
    return build.expand(build.pad(once, before[new:], after[new:], value), node.shape)


@on(Op.PERMUTE)
def permute(node: Node) -> Node | None:
    """One permutation instead of two, none for an identity, and a reshape where only axes of size 1
    change places."""
    x, axes = node.src[0], node.arg
    if x.op is Op.PERMUTE:
        return build.permute(x.src[0], [x.arg[axis] for axis in axes])
    large = [axis for axis in axes if x.shape[axis] != 1]
    return build.reshape(x, node.shape) if large == sorted(large) else None


@on(Op.REDUCE)
def reduce_single(node: Node) -> Node | None:
    """Axes of size 1 need no reduction; they are reshaped away."""
    monoid, axes, component = node.arg
    shape = node.src[0].shape
    remaining = [axis for axis, size in enumerate(shape) if size != 1 or axis not in axes]
    reduced = [place for place, axis in enumerate(remaining) if axis in axes]
    if len(reduced) == len(axes):
        return None
    if monoid is COMPLEX_MUL and not reduced:
        return None  # 1 is no identity of complex products where inf or NaN is
    squeezed = tuple(shape[axis] for axis in remaining)
    parts = [build.reshape(operand, squeezed) for operand in node.src]
    if monoid is ADD and not reduced:
        return parts[0] + 0  # a sum starts at 0.0, which turns -0.0 into 0.0
    return build.reduce(monoid, reduced, *parts, component=component)


@on(Op.REDUCE)
def places_of_32_bits(node: Node) -> Node | None:
    """The place of an extreme is found as int32 where an axis has no more elements, and the values
    are no wider: in half of the registers, and in as many lanes of a vector as float32 has."""
    monoid, axes, component = node.arg
    if monoid not in (ARGMAX, ARGMIN) or node.src[0].dtype.itemsize > int32.itemsize:
        return None
    values, places = node.src
    numbers = peel(places, REPEATS)
    if numbers.op is not Op.IOTA or numbers.dtype is not int64 or numbers.arg.size > int32.max:
        return None
    steps = toposort([places], lambda step: step is not numbers)
    narrow = rebuilt_in_order(steps, {numbers: build.iota(numbers.arg.size, int32)})[places]
    return build.cast(build.reduce(monoid, axes, values, narrow, component=component), node.dtype)


@on(Op.ARGSORT)
def argsort_single(node: Node) -> Node | None:
    """The order of a row of one element is [0]."""
    return node.lift(0) if node.src[0].shape[node.arg.axis] == 1 else None


@on(Op.SCATTER)
def scatter_one(node: Node) -> Node | None:
    """With one update a row, every element compares its own index with that of the update."""
    base, index, update = node.src
    axis, monoid = node.arg
    if index.shape[axis] != 1:
        return None
    places = base.shape[axis]
    is_narrow = max(index.dtype.max, places) <= int32.max
    dtype = int32 if is_narrow else int64  # a vector has as many lanes of int32 as of float32
    own = build.broadcast_in_dim(build.iota(places, dtype), axis, base.shape)
    target = build.expand(build.cast(index, dtype), base.shape)
    is_target = own.eq(target)
    new = build.expand(update, base.shape)
    if monoid is not None:
        (new,) = monoid.combine((base,), (new,))
    return build.select(is_target, new, base)


@on(Op.SCATTER)
def scatter_into_float32(node: Node) -> Node | None:
    """A scatter combines with what is stored: in float32, rounded once."""
    base, index, updates = node.src
    if node.arg.monoid is None or not node.dtype.is_small:
        return None
    operands = build.cast(base, float32), index, build.cast(updates, float32)
    return build.cast(Node(Op.SCATTER, operands, node.arg), node.dtype)


@on(Op.CAST)
def narrow_sum(node: Node) -> Node | None:
    """A sum that is cut out is rounded first, so that what is stored of it is as narrow as what is
    read: (4, 64, 240, 128) of float32, cut to (4, 64, 238, 126) of bfloat16, is cast and then cut.
    """
    is_narrowed = node.dtype.is_float and node.src[0].dtype.is_float
    is_narrowed = is_narrowed and node.dtype.bits < node.src[0].dtype.bits
    total = peel(node.src[0], MOVES_ONCE)
    steps = toposort([node.src[0]], lambda step: step is not total)
    is_cut = any(step.op is Op.SHRINK for step in steps)
    if not (is_narrowed and is_cut and total.op is Op.REDUCE):
        return None
    return rebuilt_in_order(steps, {total: build.cast(total, node.dtype)})[node.src[0]]


MOVEMENT = (
    reshape, pad, permute, narrow_sum, reduce_single, reduce_repeated, function_of_repeated,
    places_of_32_bits, argsort_single, scatter_one, scatter_into_float32,
)  # fmt: skip
