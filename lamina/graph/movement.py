"""Rules of movement operations and reductions: functions, as they calculate with shapes. Kernels
have indices in place of movement: here is only what changes how kernels are made."""

from math import gcd

from lamina.core.dtypes import float32, int64
from lamina.core.shape import prod
from lamina.graph.rewrite import on
from lamina.ir import build
from lamina.ir.monoids import ADD, COMPLEX_MUL
from lamina.ir.node import Node, peel, toposort
from lamina.ir.ops import Group, Op, Reduce

LONG, PARTS = 1 << 17, 64  # elements worth reducing in parts, and the fewest parts
LONGEST, MOST = 1 << 20, 512  # elements of one result from which on there may be more parts
COLUMNS, LARGE = 1 << 13, 1 << 22  # columns that keep a GPU busy; elements worth parts there
FEW, LONGEST_PART = 4, 1 << 10  # rows that running values count as at least; elements of a part
DEEP, HELD = 1 << 13, 1 << 10  # products of a sum over several axes, and the fewest of a part
# Rows of a part of a column sum, and products of a part of a sum of products, if there are at least
# four parts: of 2**9 rows, 8 at a time, a CPU adds up 2**6 blocks in memory.
COLUMN_PART, PRODUCT_PART = 1 << 9, 1 << 16
WIDE, UNEVEN = 512, 8  # the least columns that memory adds up; times as many parts as needed


@on(Op.RESHAPE)
def reshape(node: Node) -> Node:
    """No reshape to the own shape, one instead of two."""
    x = node.src[0]
    return build.reshape(x.src[0] if x.op is Op.RESHAPE else x, node.shape)


@on(Op.PAD)
def pad(node: Node) -> Node | None:
    """What is repeated along other axes is padded once, before that."""
    (x,), (before, after, value) = node.src, node.arg
    if x.op is not Op.EXPAND:
        return None
    new = len(x.shape) - len(x.src[0].shape)
    rows = zip((-1,) * new + x.src[0].shape, x.shape, map(max, before, after), strict=True)
    if any(margin and old != size for old, size, margin in rows):
        return None
    return build.expand(build.pad(x.src[0], before[new:], after[new:], value), node.shape)


@on(Op.PERMUTE)
def permute(node: Node) -> Node | None:
    """No identity, one instead of two, a reshape where only axes of size 1 change places."""
    x, axes = node.src[0], node.arg
    if x.op is Op.PERMUTE:
        return build.permute(x.src[0], [x.arg[axis] for axis in axes])
    large = [axis for axis in axes if x.shape[axis] != 1]
    return build.reshape(x, node.shape) if large == sorted(large) else None


@on(Op.REDUCE)
def reduce_single(node: Node) -> Node | None:
    """Axes of size 1 need no reduction; they are reshaped away."""
    (monoid, axes, part), shape = node.arg, node.src[0].shape
    kept = [axis for axis, size in enumerate(shape) if size != 1 or axis not in axes]
    rest = [place for place, axis in enumerate(kept) if axis in axes]
    if len(rest) == len(axes) or (monoid is COMPLEX_MUL and not rest):
        return None  # 1 is no identity of complex products where inf or NaN is
    parts = [build.reshape(x, tuple(shape[axis] for axis in kept)) for x in node.src]
    if monoid is ADD and not rest:
        return parts[0] + 0  # a sum starts at 0.0, which turns -0.0 into 0.0
    return build.reduce(monoid, rest, *parts, part=part)


@on(Op.SCATTER)
def scatter_one(node: Node) -> Node | None:
    """With one update a row, every element compares its place with that update's."""
    base, places, update = node.src
    axis, monoid = node.arg
    if places.shape[axis] != 1:
        return None
    place = build.expand(build.cast(places, int64), base.shape)
    hit = build.broadcasted_iota(base.shape, axis).eq(place)
    new = build.expand(update, base.shape)
    return build.select(hit, new if monoid is None else monoid.combine((base,), (new,))[0], base)


@on(Op.SCATTER)
def scatter_into_float32(node: Node) -> Node | None:
    """A scatter combines with what is stored: in float32, rounded once."""
    base, places, updates = node.src
    if node.arg.monoid is None or not node.dtype.is_small:
        return None
    operands = build.cast(base, float32), places, build.cast(updates, float32)
    return build.cast(Node(Op.SCATTER, operands, node.arg), node.dtype)


@on(Op.REDUCE)
def reduce_in_parts(node: Node) -> Node | None:
    """Much reduced to little is reduced in parts, which can run in parallel, and then those; long
    products over several axes too, each part of which a cache holds."""
    (_, axes, _), shape, src = node.arg, node.src[0].shape, node.src[0]
    first, rest = axes[0], prod([shape[axis] for axis in axes[1:]])
    deep = src.op is Op.MUL and len(axes) > 2 and rest >= HELD and rest * shape[first] >= DEEP
    if prod(shape) < LONG or (prod(node.shape) >= PARTS and not deep):
        return None
    if deep or min(shape[first], rest) >= PARTS:
        return _in_parts(node, shape[first])
    many = prod(shape) >= LONGEST * prod(node.shape)
    parts = gcd(shape[first], MOST if many else PARTS)
    return _in_parts(node, parts) if parts >= PARTS else None


@on(Op.REDUCE)
def columns_in_parts(node: Node) -> Node | None:
    """Long columns, or rows, fewer than keep a GPU busy, are reduced in parts, even ones if there
    are; but of products that reuse both factors, as blocks share the steps of these."""
    axes, shape, few = node.arg.axes, node.src[0].shape, prod(node.shape)
    if prod(shape) < max(few * COLUMNS, LARGE):
        return None
    rows = max(one for one, size in enumerate(shape) if size > 1) in axes
    size, most = shape[axes[0]], MOST if rows else 1 << (COLUMNS // few).bit_length()
    parts = even if (even := gcd(size, most)) >= 4 else most
    fits = 4 <= parts <= size and not (_is_reused(node) or (rows and few >= PARTS))
    return _in_parts(node, parts) if fits else None


@on(Op.REDUCE)
def long_columns_in_parts(node: Node) -> Node | None:
    """Long wide columns are added up in parts on a CPU: its kernels read a few whole rows at a time
    and add these in memory, a chain whose rounding errors grow with its length."""
    shape = node.src[0].shape
    columns = prod(shape[node.arg.axes[-1] + 1 :])
    if columns < WIDE or prod(shape) < LARGE or _is_reused(node):
        return None
    return _in_parts_of(node, COLUMN_PART)


@on(Op.REDUCE)
def long_products_in_parts(node: Node) -> Node | None:
    """Very long sums of products that share factors are taken in parts on a GPU: registers of its
    tiles add up every step, a chain whose rounding errors grow with its length."""
    return _in_parts_of(node, PRODUCT_PART) if _is_reused(node) else None


def _in_parts_of(node: Node, size: int) -> Node | None:
    """A float32 sum in equal parts of up to `size` elements, if there are at least four. What other
    reductions are beneath stays whole, as kernels may never hold more than a block of it."""
    if node.arg.monoid is not ADD or node.dtype is not float32:
        return None
    node = _over_one_axis(node)
    axes, shape = node.arg.axes, node.src[0].shape
    least = prod([shape[axis] for axis in axes]) // size
    if least < 4 or any(one.op in Group.REDUCTION for one in toposort(node.src)):
        return None
    extent = shape[axes[0]]
    even = (parts for parts in range(least, UNEVEN * least) if extent % parts == 0)
    parts = next(even, extent)
    return _in_parts(node, parts) if parts < extent else None


def _over_one_axis(node: Node) -> Node:
    """A reduction over neighbouring axes as one over a single axis: of (4, 4096, 1024) over the
    axes 0 and 1 as of (16384, 1024) over axis 0."""
    axes, shape = node.arg.axes, node.src[0].shape
    first, last = axes[0], axes[-1]
    if len(axes) == 1 or last - first != len(axes) - 1:
        return node
    merged = (*shape[:first], prod(shape[first : last + 1]), *shape[last + 1 :])
    return build.reduce(node.arg.monoid, (first,), build.reshape(node.src[0], merged))


def _is_reused(node: Node) -> bool:
    """Is it a reduction of products, each factor of which is smaller than the products are many?"""
    src = node.src[0]
    factors = src.src if src.op is Op.MUL else ()
    read = [prod(peel(one, Group.MOVEMENT | {Op.CAST}).shape) for one in factors]
    return bool(read) and max(read) < prod(src.shape)


def _in_parts(node: Node, parts: int) -> Node:
    """Reduce parts along the first of the axes of `node`, of which the identity fills up the last,
    then those."""
    (monoid, axes, part), shape, first = node.arg, node.src[0].shape, node.arg.axes[0]
    split = (*shape[:first], parts, -(-shape[first] // parts), *shape[first + 1 :])
    ends = [-size % parts if axis == first else 0 for axis, size in enumerate(shape)]
    start, none = monoid.identity(tuple(x.dtype for x in node.src)), [0] * len(shape)
    whole = (build.pad(x, none, ends, one) for x, one in zip(node.src, start, strict=True))
    src, rest = tuple(build.reshape(x, split) for x in whole), tuple(one + 1 for one in axes)
    inner = (Node(Op.REDUCE, src, Reduce(monoid, rest, i)) for i in range(monoid.arity))
    return Node(Op.REDUCE, tuple(inner), Reduce(monoid, (first,), part))


@on(Op.SCAN)
def scan_in_parts(node: Node) -> Node | None:
    """Long running values are taken in parts, which can run in parallel, after those of what the
    parts come to."""
    (monoid, (axis,), _), shape = node.arg, node.shape
    around, length, after = shape[:axis], shape[axis], shape[axis + 1 :]
    rows = prod(around + after)
    if length <= LONGEST_PART * max(rows, FEW) or monoid.op is None or node.dtype.is_small:
        return None
    sizes = range(LONGEST_PART, LONGEST_PART // 4, -1)
    size = next((one for one in sizes if length % one == 0), LONGEST_PART)
    split, (first,) = (*around, -(-length // size), size, *after), monoid.identity((node.dtype,))
    margin = [split[axis] * size - length if one == axis else 0 for one in range(len(shape))]
    padded = build.pad(node.src[0], [0] * len(shape), margin, first)
    x = build.reshape(padded, split)
    ends = build.shifted(build.reduce(monoid, [axis + 1], x), axis, first)
    before = Node(Op.SCAN, (ends,), Reduce(monoid, (axis,)))
    inner = Node(Op.SCAN, (x,), Reduce(monoid, (axis + 1,)))
    whole = Node(monoid.op, (build.broadcast_over(before, (axis + 1,), split), inner))
    return build.slice_axis(build.reshape(whole, padded.shape), axis, 0, length)


MOVEMENT = (reshape, pad, permute, reduce_single, scatter_one, scatter_into_float32,
            reduce_in_parts, scan_in_parts)  # fmt: skip
