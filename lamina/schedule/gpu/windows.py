"""Register tiles of windows that slide along an array.

A convolution reads ``x[i + k]`` for each place i and each of 7 places k of a window. A thread that
computes 8 neighbouring results, with all of the window, reads 14 elements in place of 56. The
derivative by the filter adds up over i for each k: the tile is of the same axes, with the same
elements.
"""

from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

from lamina.core.integers import first_divisor
from lamina.graph import index as ix
from lamina.ir.kernel import Kernel, bound_axes
from lamina.ir.node import Node
from lamina.ir.ops import Op
from lamina.schedule.gpu.planner import TILE, GpuPlanner

MAX_SIDE = 8  # points of a register tile along each axis
SIDES = (8, 4)  # along the longer axis, where it can be cut so
MIN_SIDE = 4  # from which on a side that divides the axis is better than an uneven one


class Slide(NamedTuple):
    """A row axis and a reduced one along which an array is read as by a window: some steps along
    both lead to the same element."""

    row: Node
    step: Node


def slides(kernel: Kernel) -> list[Slide]:
    """The pairs of axes along which windows slide, each once. Of ``sum_k x[i + k]`` the pair (i,
    k), if k has more than one step."""
    steps = dict.fromkeys(axis for node in kernel.of(Op.LOOP_REDUCE) for axis in bound_axes(node))
    pairs: dict[Slide, None] = {}
    for load in kernel.of(Op.LOAD):
        terms, _ = ix.terms_of(load.src[0])
        for row, step in product(kernel.row_axes, steps):
            if _overlap((row, abs(terms.get(row, 0))), (step, abs(terms.get(step, 0)))):
                pairs[Slide(row, step)] = None
    return list(pairs)


def _overlap(first: tuple[Node, int], other: tuple[Node, int]) -> bool:
    """Do steps along two axes, each with its distance in memory, lead to the same elements? Steps
    of 2 and 3 steps of 1 do, as 0, 1, 2 and 2, 3, 4; steps of 2 and 2 steps of 1 do not."""
    (inner, short), (_, long) = sorted((first, other), key=lambda axis: axis[1])
    return short > 0 and long % short == 0 and long // short < inner.arg.size


def tiles_of_windows(plan: GpuPlanner) -> Iterator[GpuPlanner]:
    """Planners that go on from `plan` with a register tile each, for each pair of axes along which
    windows slide and each of SIDES."""
    for slide in slides(plan.kernel):
        shorter, longer = sorted(slide, key=lambda axis: axis.arg.size)
        window = _side(shorter, MAX_SIDE)
        sides = dict.fromkeys(_side(longer, min(side, TILE // window)) for side in SIDES)
        for side in sides:
            tiled = plan.branch()
            inner = [_unrolled(tiled, shorter, window), _unrolled(tiled, longer, side)]
            tiled.register_tile = frozenset(inner)
            yield tiled


def _side(axis: Node, max_points: int) -> int:
    """Points of a tile along `axis`: all of a short one; else the largest divisor from MIN_SIDE to
    `max_points`, so that no part is left over, or that where there is none. 56 has 8, 14 has 7."""
    size: int = axis.arg.size
    if size <= max_points:
        return size
    return first_divisor(size, range(max_points, MIN_SIDE - 1, -1), max_points)


def _unrolled(plan: GpuPlanner, axis: Node, side: int) -> Node:
    """Unroll `side` points of `axis`, and give their axis."""
    inner = axis if side == axis.arg.size else plan.split(axis, side)[1]
    plan.bind(inner, "unroll")
    return inner
