"""Loops of few hits, whose iterations the lanes of a warp vote on: EACH_HIT in `targets/gpu.c`."""

from lamina.ir.kernel import Kernel, free_axes, points
from lamina.ir.node import Node
from lamina.loops.nest import Axes, Nest, scatter_places


def find_hit_loop(nest: Nest, axes: Axes, warp: int) -> Node | None:
    """The loop over `axes` whose iterations lanes vote on, or None.

    The kernel's only store is a scatter whose condition data decide: for each update, ``if
    (p0[column] == row)``. Few updates hit, so that nearly all iterations only read the
    condition. With EACH_HIT, each lane of a warp reads that of another iteration, and then all
    lanes run the iterations in which it holds. That takes one condition for all lanes, and lanes
    that run all loops together: a lane that is missing casts no vote. Of several loops that decide
    the condition, the longest one gains most.
    """
    if not scatter_places(nest.kernel):
        return None
    store = nest.kernel.stores[0]
    if store.atomic:  # its rows are the updates
        return None
    if "thread" in nest.binding.values():  # a thread has to have a row of its own
        return None
    if any(nest.bound(axis) == "unroll" for axis in store.axes[nest.kernel.rows :]):
        return None  # each thread reads several of these iterations at once already
    grid = [axis for axis in nest.order if nest.bound(axis) == "grid"]
    if not grid:
        return None
    lane_axis = grid[-1]  # neighbouring lanes are neighbours along it
    deciding = free_axes(store.condition)
    if lane_axis in deciding or not _fills_warps(nest, lane_axis, warp):
        return None
    loops = [axis for axis in axes if axis in deciding]
    return max(loops, key=lambda axis: axis.arg.size, default=None)


def owners_of(kernel: Kernel) -> int:
    """Among how many rows the updates of a scatter are shared out, as by `Partition`: its condition
    compares the place of an update with their axes, and they are not what the place is read by."""
    read_by = set[Node]()
    for place in scatter_places(kernel):
        read_by |= free_axes(place.index)
    deciding = free_axes(kernel.stores[0].condition) - read_by
    return points([axis for axis in kernel.row_axes if axis in deciding])


def _fills_warps(nest: Nest, axis: Node, warp: int) -> bool:
    """Do all lanes of every warp have an iteration of `axis`, the last of the grid?

    Warps then begin and end within it: 64 iterations are two whole warps. If it is a sub-loop
    of a split axis, that has to be split evenly: where 50 are split into 2 blocks of 32, the
    last 14 lanes are beyond the end.
    """
    split = nest.sub_loops(axis)
    is_even = split.extent == points(split.axes)
    return is_even and axis.arg.size % warp == 0
