"""The order of few keys by counting: how many keys come before each one is its place.

A kernel that sorts gives 32 threads of a GPU to each row, and a call to each on a CPU. Rows of few
keys, of which there are many, are two sums: of the keys before each key, and of the numbers of the
keys at each place.

    place[i] = sum over j of (key[j] comes before key[i])
    order[k] = sum over i of (i where place[i] == k)

For the keys 5, 3, 5 the places are 1, 0, 2, and the order is 1, 0, 2.
"""

from math import prod

from lamina.core.dtypes import int32, int64
from lamina.graph.rewrite import on
from lamina.ir import build
from lamina.ir.monoids import ADD
from lamina.ir.node import Node
from lamina.ir.ops import Op

# Keys of a row. 16 keys take 256 comparisons; a sort of 437,568 rows of 2 keys takes 308 us on an
# H200, 0.7 ns each, whatever their length up to 32.
MAX_KEYS = 16
# A CPU sorts a row of 16 keys in 50 ns. The two largest of 349,525 columns of 3 keys took 34 ms by
# sorting, and 3 ms by counting; 8192 rows of 5 took 0.2 ms, and 0.5 ms (one thread, measured).
MAX_KEYS_ON_CPU = 4
MIN_ROWS = 1 << 12  # of which a sort takes 3 us, as long as another launch


@on(Op.ARGSORT)
def short_orders(node: Node) -> Node | None:
    """The order of many short rows without a sort; None for any other node."""
    return _counted(node) if _is_short(node, MAX_KEYS) else None


@on(Op.ARGSORT)
def shortest_orders(node: Node) -> Node | None:
    """The same for a CPU, of a few keys a row."""
    return _counted(node) if _is_short(node, MAX_KEYS_ON_CPU) else None


def _is_short(node: Node, max_keys: int) -> bool:
    """Does `node` sort many rows, of 2 to `max_keys` keys each?"""
    shape = node.src[0].shape
    count: int = shape[node.arg.axis]
    return 1 < count <= max_keys and prod(shape) >= MIN_ROWS * count


def _counted(node: Node) -> Node:
    """The order that `node` is, by two sums."""
    axis, descending, first, last = node.arg
    places = _places_of(node.src[0], axis, descending)
    # Ranks along the axis, of the keys that the axis after it numbers.
    box = (*places.shape[:axis], last - first, *places.shape[axis:])
    rank = build.broadcasted_iota(box, axis)
    number = build.broadcasted_iota(box, axis + 1)
    rank = rank + first if first else rank
    has_rank = build.cast(_across(places, axis, box), int64).eq(rank)
    return build.reduce(ADD, (axis + 1,), has_rank.select(number, number.lift(0)))


def _places_of(keys: Node, axis: int, descending: bool) -> Node:
    """How many keys of a row come before each key, int32; equal keys keep their order."""
    # Each key along the axis, and beside it all keys of its row along the axis after it.
    square = (*keys.shape[: axis + 1], *keys.shape[axis:])
    key, other = _down(keys, axis, square), _across(keys, axis, square)
    number = build.broadcasted_iota(square, axis)
    other_number = build.broadcasted_iota(square, axis + 1)
    comes_before = _less(key, other) if descending else _less(other, key)
    comes_after = _less(other, key) if descending else _less(key, other)
    is_before = comes_before | (~comes_after & (other_number < number))
    return build.reduce(ADD, (axis + 1,), build.cast(is_before, int32))


def _less(x: Node, y: Node) -> Node:
    """Whether `x` comes before `y`, another key: what is no number comes after all others."""
    is_less = x < y
    return is_less | (x.eq(x) & ~y.eq(y)) if x.dtype.is_float else is_less


def _down(x: Node, axis: int, square: tuple[int, ...]) -> Node:
    """`x` with its `axis` where `square` has it, the same along the one after that."""
    return build.expand(build.insert_axes(x, (axis + 1,)), square)


def _across(x: Node, axis: int, square: tuple[int, ...]) -> Node:
    """`x` with its `axis` along the one after that in `square`, the same along `axis`."""
    return build.expand(build.insert_axes(x, (axis,)), square)
