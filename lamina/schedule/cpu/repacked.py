"""Operands whose lanes lie apart, and that rows read again, are packed for these rows.

A filter of each channel, in images with their channels last, has vectors along channels::

    y[i, c] = sum_k x[i, k, c] * w[9 * c + k]

Each vector of w is 16 elements of 16 cache lines, which all rows i read. In a block of channels, w
is put side by side before the rows are walked.

Where outer rows move the operand, all of its lanes are put side by side in each of these. For each
i, the rows j of zeros with one sum read the same lanes::

    y[i, j, c] = x[7 * c + i] if j == place[0] else 0
"""

from math import ceil

from lamina.graph import index as ix
from lamina.ir.kernel import free_axes, points
from lamina.ir.node import Node
from lamina.ir.ops import Op
from lamina.loops.nest import near_reads
from lamina.schedule.cpu.lanes import LOADED_APART
from lamina.schedule.cpu.packing import Packed
from lamina.schedule.cpu.planner import CpuPlanner


def pack_lanes_apart(plan: CpuPlanner) -> list[Packed]:
    """The operands to pack of a kernel with vectors along a row axis; empty if packing gains
    nothing."""
    lane = next((axis for axis in plan.rows if plan.nest.bound(axis) == "vector"), None)
    if lane is None or plan.kernel.blocks:
        return []
    apart = [load for load in plan.kernel.of(Op.LOAD) if _lies_apart(plan, load, lane)]
    return _packed_for_all_rows(plan, apart, lane) or _packed_for_inner_rows(plan, apart, lane)


def _lies_apart(plan: CpuPlanner, load: Node, lane: Node) -> bool:
    """Are the lanes of `load` read one by one?"""
    if ix.suits(lane, *load.src) != ix.STRIDED:
        return False
    return not near_reads(ix.terms_of(load.src[0])[0].get(lane), load.dtype, plan.width)


def _gains(lane: Node, uses: int) -> bool:
    """Does it take fewer instructions to pack what so many rows read than to read it lane by lane
    in each? Packing reads each lane once, and stores a vector, which all rows then read."""
    vectors: float = (1 + uses) / lane.arg.size  # stored once, and read again
    return LOADED_APART + vectors < LOADED_APART * uses


def _packed_for_all_rows(plan: CpuPlanner, loads: list[Node], lane: Node) -> list[Packed]:
    """Those of `loads` that no other row moves; the loop over blocks of lanes becomes the
    outermost. Empty if there is no such loop."""
    head = plan.nest.sub_loops(lane).axes[0]
    if plan.nest.bound(head) != "serial":
        return []
    others = [row for row in plan.nest.row_loops if row is not head and row in plan.rows]
    packed = [load for load in loads if free_axes(load).isdisjoint(others)]
    if not packed or not _gains(lane, points(others)):
        return []
    _move_out(plan, head, others)
    return [Packed(load.arg.parameter, lane, head) for load in packed]


def _move_out(plan: CpuPlanner, head: Node, rows: list[Node]) -> None:
    """Make `head` the outermost loop, around all `rows`. Where threads outnumber its blocks, they
    share the longest of the rows, and each packs for itself."""
    threads = plan.target.multiprocessors
    longest = max(rows, key=lambda row: row.arg.size)
    if head.arg.size >= threads or longest.arg.size < threads:
        plan.reorder([head, *rows])
        return
    shared, rest = plan.split(longest, ceil(longest.arg.size / threads))
    inner = [rest if row is longest else row for row in rows]
    plan.reorder([shared, head, *inner])


def _packed_for_inner_rows(plan: CpuPlanner, loads: list[Node], lane: Node) -> list[Packed]:
    """Those of `loads` that loops over rows inside the last one which moves them read again, and
    that the cache keeps meanwhile. The order of loops stays."""
    packed = [
        Packed(load.arg.parameter, lane, loop)
        for load in loads
        for loop in _moving_loop(plan, load, lane)
        if _is_read_again_inside(plan, load, lane, loop)
    ]
    loops = {operand.staged_in for operand in packed}
    if len(loops) != 1:
        return packed
    (loop,) = loops
    assert loop is not None
    shared = _shared_by_threads(plan, lane, loop)
    return [Packed(operand.parameter, lane, shared) for operand in packed]


def _moving_loop(plan: CpuPlanner, load: Node, lane: Node) -> list[Node]:
    """The innermost loop over other rows than the lanes that moves `load`; empty if none does."""
    of_lanes = plan.nest.sub_loops(lane).axes
    moving = [row for row in plan.nest.row_loops if row in free_axes(load) and row not in of_lanes]
    return moving[-1:]


def _is_read_again_inside(plan: CpuPlanner, load: Node, lane: Node, loop: Node) -> bool:
    """Do rows inside `loop` read all lanes of `load` so often that packing gains, and does the
    cache keep them?"""
    inside, of_lanes = plan.nest.inside(loop), plan.nest.sub_loops(lane).axes
    panel = points([axis for axis in inside if axis in free_axes(load)])
    has_all_lanes = set(of_lanes) <= set(inside)
    rows = _rows_inside(plan, lane, loop)
    return has_all_lanes and panel <= plan.cached and _gains(lane, points(rows))


def _rows_inside(plan: CpuPlanner, lane: Node, loop: Node) -> list[Node]:
    """The loops over rows inside `loop`, but for those of the lanes, outermost first."""
    inside, of_lanes = plan.nest.inside(loop), plan.nest.sub_loops(lane).axes
    return [row for row in plan.nest.row_loops if row in inside and row not in of_lanes]


def _shared_by_threads(plan: CpuPlanner, lane: Node, loop: Node) -> Node:
    """The loop to pack in: `loop`, or where threads outnumber its iterations and those around it,
    blocks of the first rows inside, of which each thread has one and packs for itself, if that
    still gains.

    7 iterations and 1456 rows inside are 64 blocks of 23 rows for each of the 7 on 64 threads.
    """
    threads = plan.target.multiprocessors
    row_loops = plan.nest.row_loops
    chunks = points(row_loops[: row_loops.index(loop) + 1])
    first, *others = _rows_inside(plan, lane, loop)
    block = ceil(first.arg.size / threads)
    if chunks >= threads or not _gains(lane, block * points(others)):
        return loop
    shared, _ = plan.split(first, block)
    return shared
