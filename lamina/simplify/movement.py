"""Rules of movement operations and reductions: functions, as they calculate with shapes.

Constants are kept as CONST or EXPAND of CONST, whatever moves them.
"""

from __future__ import annotations

from lamina.dtypes import int64
from lamina.ir import build
from lamina.ir.monoids import ADD, ARGMAX, ARGMIN, MAX, MIN, MUL
from lamina.ir.node import Node, const, full
from lamina.ir.ops import Op, Pad, Reduce, Shrink
from lamina.rewrite.fold import constant_of
from lamina.rewrite.rules import RuleSet, collect, on


@on(Op.RESHAPE, Op.EXPAND, Op.PERMUTE, Op.FLIP, Op.SHRINK)
def move_constant(node: Node) -> Node | None:
    """A constant moved is the same constant in another shape."""
    x = node.src[0]
    # EXPAND of CONST is how constants are written.
    if constant_of(x) is None or (x.op is Op.CONST and node.op is Op.EXPAND and node.shape):
        return None
    return build.expand(x.src[0] if x.op is Op.EXPAND else x, node.shape)


@on(Op.RESHAPE)
def reshape(node: Node) -> Node | None:
    """No reshape to the own shape, one instead of two."""
    x = node.src[0]
    if x.op is Op.RESHAPE:
        x = x.src[0]
    elif x.shape != node.shape:
        return None
    return build.reshape(x, node.shape)


@on(Op.EXPAND)
def expand(node: Node) -> Node | None:
    """No expand to the own shape, one instead of two, and no reshape that only puts axes of
    size 1 in front, unless that is all there is to do."""
    x = node.src[0]
    if x.op is Op.EXPAND or (x.op is Op.RESHAPE and _adds_front_axes(x)):
        x = x.src[0]
    elif x.op is not Op.CONST and _adds_front_axes(node):
        return build.reshape(x, node.shape)
    elif x.shape != node.shape:
        return None
    return build.expand(x, node.shape)


def _adds_front_axes(node: Node) -> bool:
    shape = node.src[0].shape
    added = len(node.shape) - len(shape)
    return added > 0 and node.shape == (1,) * added + shape


@on(Op.PERMUTE)
def permute(node: Node) -> Node | None:
    """No identity, one instead of two, a reshape where only axes of size 1 change places."""
    x, axes = node.src[0], node.arg
    if x.op is Op.PERMUTE:
        return build.permute(x.src[0], [x.arg[axis] for axis in axes])
    large = [axis for axis in axes if x.shape[axis] != 1]
    return build.reshape(x, node.shape) if large == sorted(large) else None


@on(Op.FLIP)
def flip(node: Node) -> Node | None:
    """No flip of axes of size 1 or of expanded axes, one instead of two."""
    x = node.src[0]
    kept = [axis for axis in node.arg if x.shape[axis] > 1 and not _is_expanded(x, axis)]
    if x.op is Op.FLIP:
        return build.flip(x.src[0], sorted(set(kept) ^ set(x.arg)))
    return build.flip(x, kept) if len(kept) < len(node.arg) else None


def _is_expanded(node: Node, axis: int) -> bool:
    """Whether all elements along `axis` are one element of EXPAND's operand."""
    if node.op is not Op.EXPAND:
        return False
    shape = node.src[0].shape
    own = axis - len(node.shape) + len(shape)
    return own < 0 or shape[own] == 1


@on(Op.PAD)
def pad(node: Node) -> Node | None:
    """No empty padding, one instead of two of one value, a constant where all is one value."""
    x, (before, after, value) = node.src[0], node.arg
    if not any(before) and not any(after):
        return x
    padding = const(value, x.dtype).arg.value
    inside = constant_of(x)
    if 0 in x.shape or (inside is not None and repr(inside) == repr(padding)):
        return full(node.shape, padding, x.dtype)
    if x.op is not Op.PAD or const(x.arg.value, x.dtype) is not const(value, x.dtype):
        return None
    first = x.arg
    return Node(Op.PAD, x.src, Pad(
        tuple(map(sum, zip(first.before, before, strict=True))),
        tuple(map(sum, zip(first.after, after, strict=True))),
        padding,
    ))  # fmt: skip


@on(Op.SHRINK)
def shrink(node: Node) -> Node | None:
    """One form for each box, no box that is the whole, one box instead of two."""
    x = node.src[0]
    start, size, step = list(node.arg.start), node.shape, list(node.arg.step)
    if x.op is Op.SHRINK:
        inner = x.arg
        start = [a + b * c for a, b, c in zip(inner.start, start, inner.step, strict=True)]
        step = [a * b for a, b in zip(inner.step, step, strict=True)]
        x = x.src[0]
    box = _box(start, size, step)
    if x.shape == size and not any(box.start):
        return x
    return Node(Op.SHRINK, (x,), box)


def _box(start: list[int], size: tuple[int, ...], step: list[int]) -> Shrink:
    """The box of `size` elements: it ends after its last one, and steps only if it has two."""
    starts, stops, steps = [], [], []
    for first, count, by in zip(start, size, step, strict=True):
        first, by = first if count else 0, by if count > 1 else 1
        starts.append(first)
        stops.append(first + (count - 1) * by + 1 if count else 0)
        steps.append(by)
    return Shrink(tuple(starts), tuple(stops), tuple(steps))


@on(Op.SHRINK)
def shrink_of_expand(node: Node) -> Node | None:
    """Less expanded: the box is taken of the operand's own axes."""
    x = node.src[0]
    if x.op is not Op.EXPAND:
        return None
    inner = x.src[0]
    added = len(x.shape) - len(inner.shape)
    own = [axis for axis in range(added, len(x.shape)) if not _is_expanded(x, axis)]
    start, stop, step = [0] * len(inner.shape), list(inner.shape), [1] * len(inner.shape)
    for axis in own:
        start[axis - added] = node.arg.start[axis]
        stop[axis - added] = node.arg.stop[axis]
        step[axis - added] = node.arg.step[axis]
    return build.expand(build.shrink(inner, start, stop, step), node.shape)


@on(Op.SHRINK)
def shrink_of_pad(node: Node) -> Node | None:
    """Less padded: the box is taken of what was padded, as far as they overlap."""
    x, (start, stop, step) = node.src[0], node.arg
    if x.op is not Op.PAD or any(by != 1 for by in step):
        return None
    inner, (before, after, value) = x.src[0], x.arg
    sizes = list(zip(start, stop, before, inner.shape, strict=True))
    low = [min(max(a - p, 0), n) for a, _, p, n in sizes]
    high = [min(max(b - p, 0), n) for _, b, p, n in sizes]
    if any(a >= b for a, b in zip(low, high, strict=True)):
        return full(node.shape, value, x.dtype)
    before = tuple(max(p - a, 0) for a, _, p, _ in sizes)
    after = tuple(max(b - p - n, 0) for _, b, p, n in sizes)
    return build.pad(build.shrink(inner, low, high), before, after, value)


@on(Op.SHEAR)
def shear(node: Node) -> Node | None:
    """Nothing shifts along an axis of one index."""
    x = node.src[0]
    return x if x.shape[node.arg.by] <= 1 or node.arg.step == 0 else None


@on(Op.REDUCE)
def reduce_single(node: Node) -> Node | None:
    """Axes of size 1 need no reduction; they are reshaped away."""
    monoid, axes, part = node.arg
    shape = node.src[0].shape
    single = [axis for axis in axes if shape[axis] == 1]
    if not single:
        return None
    kept = [axis for axis in range(len(shape)) if axis not in single]
    parts = [build.reshape(x, tuple(shape[axis] for axis in kept)) for x in node.src]
    rest = tuple(kept.index(axis) for axis in axes if axis not in single)
    if rest:
        return Node(Op.REDUCE, tuple(parts), Reduce(monoid, rest, part))
    if monoid is ADD and node.dtype.kind in ("float", "complex"):
        return parts[0] + 0.0  # a sum starts at 0.0, which turns -0.0 into 0.0
    return parts[part] if monoid in (ADD, MUL, MAX, MIN, ARGMAX, ARGMIN) else None


@on(Op.REDUCE)
def reduce_twice(node: Node) -> Node | None:
    """One reduction over the axes of two; the order within a reduction is not promised."""
    inner = node.src[0]
    monoid, axes, _ = node.arg
    if monoid.arity != 1 or inner.op is not Op.REDUCE or inner.arg.monoid is not monoid:
        return None
    # The outer axes count what the inner reduction has left.
    left = [axis for axis in range(len(inner.src[0].shape)) if axis not in inner.arg.axes]
    both = sorted((*inner.arg.axes, *(left[axis] for axis in axes)))
    return Node(Op.REDUCE, inner.src, Reduce(monoid, tuple(both)))


@on(Op.REDUCE)
def extreme_of_expanded(node: Node) -> Node | None:
    """MAX and MIN along an expanded axis are the element itself."""
    x, (monoid, axes, _) = node.src[0], node.arg
    if monoid not in (MAX, MIN) or x.op is not Op.EXPAND:
        return None
    same = [axis for axis in axes if x.shape[axis] > 1 and _is_expanded(x, axis)]
    if not same:
        return None
    shape = tuple(1 if axis in same else size for axis, size in enumerate(x.shape))
    return build.reduce(monoid, axes, build.expand(x.src[0], shape))


@on(Op.SCATTER)
def scatter_one(node: Node) -> Node | None:
    """With one update a row, every element compares its place with that update's."""
    base, places, update = node.src
    axis, monoid = node.arg
    if places.shape[axis] != 1:
        return None
    shape = base.shape
    along = tuple(size if other == axis else 1 for other, size in enumerate(shape))
    here = build.expand(build.reshape(build.iota(shape[axis], int64), along), shape)
    hit = here.eq(build.expand(build.cast(places, int64), shape))
    new = build.expand(update, shape)
    return build.select(hit, new if monoid is None else monoid.combine((base,), (new,))[0], base)


@on(Op.CONTIGUOUS)
def contiguous_twice(node: Node) -> Node | None:
    """One buffer is enough."""
    return node.src[0] if node.src[0].op is Op.CONTIGUOUS else None


MOVEMENT = RuleSet("movement", collect(globals()))
