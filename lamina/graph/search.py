"""Binary search in sorted arrays."""

from lamina.core.dtypes import int64
from lamina.ir import build
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


def _precedes(a: Node, b: Node) -> Node:
    """The order of sorting: NaN behind everything."""
    return (a < b) | (a.eq(a) & ~b.eq(b)) if a.dtype.is_float else a < b
