"""Conditions under which a kernel reads: how often they hold, and which lanes they leave out."""

from collections.abc import Iterable

from lamina.graph import index as ix
from lamina.ir.kernel import bounds, free_axes, loads_beneath
from lamina.ir.node import Node

# Instructions on single integers that find which lanes of a vector are inside of a size, as bits:
# the first of them and the last, and the bits between.
MASK = 8
MASK_OF_ALL = 2  # the same where all lanes are inside, or none: a comparison, and a choice


def share_inside(condition: Node) -> float:
    """At which share of all points a condition holds, if each of its indices takes all of its
    values equally often; 1 where it says anything but that indices are inside of sizes. Indices
    from data are taken to be inside.

    The two reads of a roll of 144 elements by 36 happen at 3/4 and at 1/4 of the points.
    """
    share = 1.0
    for index, size in (ix.extents(condition) or {}).items():
        if loads_beneath([index]):
            continue
        low, high = bounds(index)
        inside = min(high, size - 1) - max(low, 0) + 1
        share *= max(inside, 0) / (high - low + 1)
    return share


def is_masked(index: Node, condition: Node, vectors: Iterable[Node]) -> bool:
    """Is a load on a CPU made under a mask of the lanes along `vectors`, as those of padding are?
    The lanes of `index`, and of what the condition has inside of sizes, are a constant distance
    apart."""
    axes = free_axes(condition).intersection(vectors)
    sizes = ix.extents(condition)
    if not axes or not sizes:
        return False
    limited = (index, *sizes)
    return all(ix.suits(axis, each) != ix.BY_LANE for axis in axes for each in limited)
