"""Operands whose lanes lie apart, and that rows read again, are packed for these rows.

A filter of each channel, in images with their channels last, has vectors along channels::

    y[i, c] = sum_k x[i, k, c] * w[9 * c + k]

Each vector of w is 16 elements of 16 cache lines, which all rows i read. In a block of channels, w
is put side by side before the rows are walked.
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
    """The operands to pack of a kernel with vectors along a row axis; the loop over blocks of that
    axis becomes the outermost. Empty if the axis has no such loop, or if packing gains nothing."""
    lane = next((axis for axis in plan.rows if plan.nest.bound(axis) == "vector"), None)
    if lane is None or plan.kernel.blocks:
        return []
    head = plan.nest.sub_loops(lane).axes[0]
    if plan.nest.bound(head) != "serial":
        return []
    others = [row for row in plan.nest.row_loops if row is not head and row in plan.rows]
    packed = [load for load in plan.kernel.of(Op.LOAD) if _gains(plan, load, lane, others)]
    if not packed:
        return []
    _move_out(plan, head, others)
    return [Packed(load.arg.parameter, lane, head) for load in packed]


def _gains(plan: CpuPlanner, load: Node, lane: Node, rows: list[Node]) -> bool:
    """Does it take fewer instructions to pack what `load` reads than to read it lane by lane in all
    `rows`? Packing reads each lane once, and stores a vector, which all rows then read."""
    varies_along_rows = not free_axes(load).isdisjoint(rows)
    if varies_along_rows or ix.suits(lane, *load.src) != ix.STRIDED:
        return False
    if near_reads(ix.terms_of(load.src[0])[0].get(lane), load.dtype, plan.width):
        return False
    uses = points(rows)
    vectors: float = (1 + uses) / lane.arg.size  # stored once, and read again
    return LOADED_APART + vectors < LOADED_APART * uses


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
