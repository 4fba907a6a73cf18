"""Stores of squares: lanes of vectors lie apart in memory, and unrolled points beside each other.

An image with its channels last becomes one with its channels first, with 16 channels as lanes and
16 places unrolled. Each lane is stored to a row of its own, and each row gets 16 neighbours, one of
each vector. As many vectors as each has lanes are transposed in registers, and stored as
neighbours:

    TURNED(f32x16, columns_17, 16, add_1, add_2, ..., add_16)
    *(f32x16u *)(p1 + 3136 * c + 16 * i) = columns_17[0];
    *(f32x16u *)(p1 + 3136 * c + 16 * i + 196) = columns_17[1];
    ...

More points than lanes are several squares, of which the last one overlaps: 28 points are squares of
16 from 0 and from 12 on. Fewer points are rows whose last lanes are not stored: 14 places of a tile
with 16 channels are ``store_first_f32x16(p1 + 3136 * c + 14 * i, 14, columns_17[0]);`` and so on.
"""

from collections.abc import Mapping, Sequence
from math import prod

from lamina.graph import index as ix
from lamina.ir.node import Node
from lamina.targets.language import Point
from lamina.targets.values import Ready


def squares(
    ready: Sequence[Ready], copies: Mapping[Node, int], lanes: int, least: int
) -> list[list[Ready]]:
    """The squares that one store makes, of each run of points that are neighbours in memory. Each
    square has `lanes` vectors in memory order. With fewer points there is one square of all of
    them; with fewer than `least`, none.

    copies: the unrolled axes, and how many points each has
    """
    store, _, _ = ready[0]
    run = ix.run_of(store.index, copies)
    length = prod(copies[axis] for axis in run)
    if length < least:
        return []
    firsts = [*range(0, length - lanes, lanes), max(length - lanes, 0)]
    found = list[list[Ready]]()
    for neighbours in _runs(ready, run):
        found += [neighbours[first : first + lanes] for first in firsts]
    return found


def _runs(ready: Sequence[Ready], run: Sequence[Node]) -> list[list[Ready]]:
    """The stores in runs of neighbours, each in order: one for each point of all other axes."""
    runs: dict[tuple[int, ...], list[Ready]] = {}
    for each in ready:
        _, _, point = each
        others = tuple(place for axis, place in point.items() if axis not in run)
        runs.setdefault(others, []).append(each)
    slowest_first = list(reversed(run))
    return [sorted(each, key=lambda one: _place(one[2], slowest_first)) for each in runs.values()]


def _place(point: Point, axes: Sequence[Node]) -> tuple[int, ...]:
    return tuple(point[axis] for axis in axes)
