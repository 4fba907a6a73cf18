"""Places in sorted arrays, by binary search or by comparing all pairs."""

from lamina.core.dtypes import int32, int64
from lamina.ir import build
from lamina.ir.monoids import ADD
from lamina.ir.node import Node
from lamina.ir.ops import Op


def places_in_sorted(data: Node, wanted: Node, axis: int, *, from_right: bool = False) -> Node:
    """How many elements of `data`, which ascends along `axis`, come before each of `wanted` in the
    same line: int64 of the shape of `wanted`. `from_right`: equal elements come before too.

    ``[1, 3, 3, 8]`` and ``[3, 9]`` give ``[1, 4]``, from the right ``[3, 4]``. Each bit of a place
    takes a step, so that 1000 elements take 10 steps."""
    size = data.shape[axis]
    place = build.full(wanted.shape, 0, int64)
    for bit in reversed(range(size.bit_length())):
        tried = place + (1 << bit)
        element = Node(Op.GATHER, (data, tried + -1), axis)
        before = ~_precedes(wanted, element) if from_right else _precedes(element, wanted)
        place = build.select(before & (tried < size + 1), tried, place)
    return place


def places_by_counting(data: Node, wanted: Node, *, from_right: bool = False) -> Node:
    """What `places_in_sorted` gives of two vectors, as int32, by comparing each element with each
    of `wanted`: no step waits for the one before."""
    box = (*wanted.shape, *data.shape)
    element = build.broadcast_in_dim(data, 1, box)
    bound = build.broadcast_in_dim(wanted, 0, box)
    before = ~_precedes(bound, element) if from_right else _precedes(element, bound)
    return build.reduce(ADD, (1,), build.cast(before, int32))


def _precedes(a: Node, b: Node) -> Node:
    """The order of sorting: NaN behind everything."""
    return (a < b) | (a.eq(a) & ~b.eq(b)) if a.dtype.is_float else a < b
