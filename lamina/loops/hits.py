"""Loops of few hits, whose iterations the lanes of a warp vote on: EACH_HIT in `targets/gpu.c`."""

from lamina.ir.kernel import free_axes, points
from lamina.ir.node import Node
from lamina.loops.nest import Nest, scatter_indices


def lanes_vote(nest: Nest, warp: int) -> bool:
    """Whether the lanes of a warp vote on the updates of a scatter.

    The kernel's only store is a scatter whose condition data decide: for each update, ``if
    (p0[column] == row)``. Few updates hit, so that nearly all iterations only read the
    condition. With EACH_HIT, each lane of a warp reads that of another iteration, and then all
    lanes run the iterations in which it holds. That takes one condition for all lanes, and lanes
    that run all loops together: a lane that is missing casts no vote.
    """
    if not scatter_indices(nest.kernel):
        return False
    store = nest.kernel.stores[0]
    if store.atomic:  # its rows are the updates
        return False
    if "thread" in nest.binding.values():  # a thread has to have a row of its own
        return False
    grid = [axis for axis in nest.order if nest.bound(axis) == "grid"]
    if not grid:
        return False
    lane_axis = grid[-1]  # neighbouring lanes are neighbours along it
    return lane_axis not in free_axes(store.condition) and _fills_warps(nest, lane_axis, warp)


def _fills_warps(nest: Nest, axis: Node, warp: int) -> bool:
    """Do all lanes of every warp have an iteration of `axis`, the last of the grid?

    Warps then begin and end within it: 64 iterations are two whole warps. If it is a sub-loop
    of a split axis, that has to be split evenly: where 50 are split into 2 blocks of 32, the
    last 14 lanes are beyond the end.
    """
    split = nest.sub_loops(axis)
    is_even = split.extent == points(split.axes)
    return is_even and axis.arg.size % warp == 0
