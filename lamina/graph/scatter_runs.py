"""Scatters as sums of runs: of updates that are sorted by their places, so that those of a place
are neighbours.

    index          3 0 3 1 3 0 3 3         updates  a b c d e f g h
    order          1 5 3 0 2 4 6 7         a stable sort: equal places keep their order
    places of it   0 0 1 3 3 3 3 3
    runs begin at  0 2 3 3 (8)             by binary search

A result is the reduction of its run, whose updates are read where they lie. Where the longest run
ends is known from data alone, so that work is divided twice:

    heads          of each run the first `part` updates, one reduction for each place
    rests          the others, by parts of the order: one reduction for each part, whose updates
                   all belong to the run that was there when the part began

The rests are in the order of their places too, and are added up as the updates were, by parts of
parts. With `part` 2 above, the heads are b + f, d, 0, a + c, and the rests of the four parts of the
order, 1 5, 3 0, 2 4 and 6 7, are 0, 0, e, g + h.

Sorting takes an index array once, however many scatters and columns use that: no update waits for
another, and a result is the same in each run.
"""

from dataclasses import dataclass, replace

from lamina.core.dtypes import DType, float32, float64, int32, int64, uint8, uint16
from lamina.core.shape import Shape
from lamina.graph.scatter_sums import scatter_of_sums, with_gains
from lamina.graph.search import places_in_sorted
from lamina.ir import build
from lamina.ir.monoids import ADD, Monoid
from lamina.ir.node import Node
from lamina.ir.ops import Op, Scatter

# Updates of a part: of a sum of float32 no more than 32, whose rounding errors are 2**-20 of the
# sum of absolute values at most. What follows is added up in float64.
MIN_PART, MAX_PART = 8, 32
# Updates that are compared with each place, and need no parts: 256 of 256 places and 128 columns
# are 8 million pairs, which take an H200 3 us.
FEW = 256


@dataclass(frozen=True)
class Updates:
    """Updates in the order of their places.

    values: the updates. order: which of them comes at which place of the order; None where they lie
        in that order. keys: the place of each in that order, ascending along `axis`, int32; from
        `places` on of those that have none. It is 1 along axes where all updates have one key.
    """

    values: Node
    order: Node | None
    keys: Node
    places: int
    axis: int
    monoid: Monoid

    @property
    def count(self) -> int:
        """Updates along the axis."""
        return self.keys.shape[self.axis]

    @property
    def identity(self) -> Node:
        """The identity of the monoid, as a result that has no update."""
        (identity,) = self.monoid.identity((self.values.dtype,))
        return build.full(self.along(self.values, self.places), identity, self.values.dtype)

    def along(self, of: Node, *sizes: int) -> Shape:
        """The shape of a node with these sizes in the place of its axis."""
        return (*of.shape[: self.axis], *sizes, *of.shape[self.axis + 1 :])


def part_of(updates: int, places: int) -> int:
    """How many updates of a place are added up at once: a power of two, about twice as many as a
    place has. 1,000,000 updates of 100,000 places have 32, 16,384 of 50,304 have 8."""
    wanted = 2 * updates // max(places, 1)
    return min(max(1 << wanted.bit_length(), MIN_PART), MAX_PART)


def scatter_of_runs(node: Node) -> Node | None:
    """A scatter as reductions of runs; None for any other node, and for a scatter that replaces or
    has few updates."""
    if node.op is not Op.SCATTER or node.arg.monoid is None:
        return None
    base, index, updates = node.src
    axis, monoid = node.arg
    once = own_index(index)
    count, places = updates.shape[axis], base.shape[axis]
    is_countable = max(count, places) < int32.max - MAX_PART
    if once.shape[axis] != count or count <= FEW or not is_countable:
        return None
    keys = keys_of(once, places)
    order = build.cast(build.argsort(keys, axis), int32)
    in_order = build.cast(Node(Op.GATHER, (keys, order), axis), int32)
    return with_gains(node, _gained(Updates(updates, order, in_order, places, axis, monoid)))


def own_index(index: Node) -> Node:
    """An index array without the axes along which it is the same throughout; they have size 1. An
    array of one number, as `build.full` makes it, stays whole: the number has no axes."""
    is_repeated = index.op is Op.EXPAND and len(index.src[0].shape) == len(index.shape)
    return index.src[0] if is_repeated else index


def key_type(places: int) -> DType:
    """The dtype of keys: a sort takes time for each of their bytes."""
    return next((narrow for narrow in (uint8, uint16) if places < 1 << narrow.bits), int32)


def keys_of(index: Node, places: int) -> Node:
    """The place of each update; `places` where there is none. Places and -1 have to be numbers of
    the dtype of the index, which they need not be of 8 or 16 bits or without a sign."""
    if index.dtype not in (int32, int64):
        index = build.cast(index, int64)
    is_inside = (index > -1) & (index < places)
    return build.cast(is_inside.select(index, index.lift(places)), key_type(places))


def _gained(updates: Updates) -> Node:
    """What each place gains. Sums of sums of float32 are float64."""
    dtype = updates.values.dtype
    exact = float64 if updates.monoid is ADD and dtype is float32 else dtype
    if updates.count <= FEW:
        index = build.expand(updates.keys, updates.values.shape)
        operands = updates.identity, index, updates.values
        scatter = Node(Op.SCATTER, operands, Scatter(updates.axis, updates.monoid))
        reduced = scatter_of_sums(scatter)
        assert reduced is not None
        return reduced
    part = MAX_PART if updates.order is None else part_of(updates.count, updates.places)
    starts = _starts(updates)
    heads = _heads(updates, starts, part)
    rests = _rests(updates, starts, part)
    rests = replace(rests, values=build.cast(rests.values, exact))
    rest = build.cast(_gained(rests), dtype)
    last_parts = _last_parts(updates, starts, part)
    (gained,) = updates.monoid.combine((heads,), (_of_places(updates, rest, last_parts),))
    return gained


def _starts(updates: Updates) -> Node:
    """Where the run of each place begins, and behind them that of the updates which have no place,
    and the end: int32."""
    count, axis, keys = updates.places + 2, updates.axis, updates.keys
    shape = updates.along(keys, count)
    wanted = build.broadcast_in_dim(build.iota(count, int32), axis, shape)
    return build.cast(places_in_sorted(keys, wanted, axis), int32)


def _heads(updates: Updates, starts: Node, part: int) -> Node:
    """Of each place, the first `part` updates of its run."""
    axis, places = updates.axis, updates.places
    box = updates.along(updates.keys, places, part)
    first, end = (
        build.broadcast_over(build.slice_axis(starts, axis, at, at + places), (axis + 1,), box)
        for at in (0, 1)
    )
    place = first + _iota(box, axis + 1)
    return reduced(updates, (place < end).select(place, place.lift(-1)))


def _rests(updates: Updates, starts: Node, part: int) -> Updates:
    """For each part of the order the updates that belong to no head, all of the run that was there
    when the part began, and which is the last part of that run."""
    axis, places = updates.axis, updates.places
    parts = -(-updates.count // part)
    keys = _in_parts(updates, updates.keys, part, parts)
    last = build.slice_axis(keys, axis + 1, part - 1, part)
    before = build.shifted(build.reshape(last, updates.along(updates.keys, parts)), axis, -1)
    begins = Node(Op.GATHER, (starts, before), axis)
    run, begin = (build.broadcast_over(each, (axis + 1,), keys.shape) for each in (before, begins))
    place = _iota(updates.along(updates.keys, parts * part), axis)
    place = build.reshape(place, keys.shape)
    is_rest = keys.eq(run) & (run < places) & (begin + (part - 1) < place)
    values = reduced(updates, is_rest.select(place, place.lift(-1)))
    ends = Node(Op.GATHER, (starts, before + 1), axis)
    return Updates(values, None, _part_before(ends, part), parts, axis, updates.monoid)


def _in_parts(updates: Updates, keys: Node, part: int, parts: int) -> Node:
    """Keys along two axes, parts and what is in them; -2 behind the last."""
    behind = [0] * len(keys.shape)
    behind[updates.axis] = parts * part - updates.count
    padded = build.pad(keys, [0] * len(behind), behind, -2)
    return build.reshape(padded, updates.along(keys, parts, part))


def _part_before(ends: Node, part: int) -> Node:
    """The part of the last update before each of `ends`."""
    last = ends + -1
    return Node(Op.MAX, (last, last.lift(0))) >> (part.bit_length() - 1)


def _last_parts(updates: Updates, starts: Node, part: int) -> Node:
    """The last part of each run that is longer than its head; -1 of others."""
    axis, places = updates.axis, updates.places
    first, end = (build.slice_axis(starts, axis, at, at + places) for at in (0, 1))
    is_longer = first + part < end
    last = _part_before(end, part)
    return is_longer.select(last, last.lift(-1))


def reduced(updates: Updates, places: Node) -> Node:
    """The reductions along the last but one axis of an array of places in the order, (.., results,
    part, ..); -1 is none."""
    axis = updates.axis
    results, part = places.shape[axis], places.shape[axis + 1]
    flat = build.reshape(places, updates.along(updates.keys, results * part))
    if updates.order is not None:
        ordered = Node(Op.GATHER, (updates.order, flat), axis)
        flat = (flat < 0).select(flat, ordered)
    picked = _of_places(updates, updates.values, flat)
    box = build.reshape(picked, updates.along(updates.values, results, part))
    return build.reduce(updates.monoid, (axis + 1,), box)


def _of_places(updates: Updates, values: Node, places: Node) -> Node:
    """The values at these places along the axis; the identity at -1."""
    index = build.expand(places, updates.along(values, places.shape[updates.axis]))
    picked = Node(Op.GATHER, (values, index), updates.axis)
    if updates.monoid is ADD:
        return picked  # 0 where there is none
    (identity,) = updates.monoid.identity((values.dtype,))
    return (index < 0).select(picked.lift(identity), picked)


def _iota(shape: Shape, axis: int) -> Node:
    """The index along an axis, int32."""
    return build.broadcast_in_dim(build.iota(shape[axis], int32), axis, shape)
