"""Loops of few hits, whose iterations the lanes of a warp vote on: EACH_HIT in `gpu.c`."""

from collections.abc import Sequence

from lamina.ir.kernel import free_axes, points
from lamina.ir.node import Node
from lamina.loops.nest import Axes, Nest, scatter_indices
from lamina.targets.threads import Threads


def find_hit_loop(nest: Nest, threads: Threads, axes: Axes, warp: int) -> Node | None:
    """The loop over `axes` whose iterations lanes vote on, or None.

    The kernel's only store is a scatter whose condition data decide: for each update, ``if
    (p0[column] == row)``. Few updates hit, so that nearly all iterations only read the
    condition. With EACH_HIT, each lane of a warp reads that of another iteration, and then all
    lanes run those in which it holds. That takes one condition for all lanes, and lanes that
    run all loops together: a lane that is missing casts no vote. Of several loops that decide,
    the longest one gains most.
    """
    kernel = nest.kernel
    # A thread has to have a row of its own.
    if threads.cooperates or not scatter_indices(kernel):
        return None
    if kernel.stores[0].atomic:  # its rows are the updates
        return None
    deciding = free_axes(kernel.stores[0].condition)
    lane_axes = threads.grid[-1:]  # neighbouring lanes are neighbours along it
    is_same_for_all_lanes = deciding.isdisjoint(lane_axes)
    if not (is_same_for_all_lanes and _fills_warps(nest, lane_axes, warp)):
        return None
    loops = [axis for axis in axes if axis in deciding]
    return max(loops, key=lambda axis: axis.arg.size, default=None)


def _fills_warps(nest: Nest, axes: Sequence[Node], warp: int) -> bool:
    """Do all lanes of every warp have an iteration of `axes`, the grid's last axis or none?

    Warps then begin and end within it: 64 iterations are two whole warps. If it is a sub-loop
    of a split axis, that has to be split evenly: where 50 are split into 2 blocks of 32, the
    last 14 lanes are beyond the end.
    """
    splits = [nest.sub_loops(axis) for axis in axes]
    is_even = all(split.extent == points(split.axes) for split in splits)
    return is_even and points(axes) % warp == 0
