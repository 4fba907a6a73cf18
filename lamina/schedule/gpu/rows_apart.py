"""Rows that several passes read, and whose elements lie apart: registers hold them.

A softmax over the first axis of (8, 22898) has 22,898 rows of 8 elements, and neighbouring rows are
neighbours in memory. A thread with 2 rows reads 8 accesses of 2 elements, and computes maximum, sum
and results of registers. Rows of 1000 elements are too long for a thread: those of a block share
them.
"""

from collections.abc import Iterator

from lamina.core.integers import power_of_two_up_to
from lamina.ir.kernel import free_axes, kept_between_passes, needed_again, points
from lamina.ir.node import Node
from lamina.ir.ops import Op
from lamina.loops.nest import has_atomics, serial_axes
from lamina.schedule.gpu.blocks import schedule_block_per_row, shared_axes
from lamina.schedule.gpu.planner import GpuPlanner
from lamina.schedule.planner import score

# Values that a thread computes, unrolled, at most: 1664 took NVRTC 0.4 s of one core. Chosen.
MAX_UNROLLED = 1 << 12


def rows_apart(plan: GpuPlanner, best: Node) -> Iterator[GpuPlanner]:
    """Planners that go on from `plan` with whole rows in the registers of a thread, and of a block,
    where neighbours along the row axis `best` are neighbours in memory; none for kernels with a
    single pass over their rows, and for products."""
    kernel, loops = plan.kernel, plan.inner()
    read_again = needed_again(kernel, {Op.LOAD})
    is_plain = not serial_axes(kernel) and not has_atomics(kernel) and plan.contraction() is None
    if not read_again or not is_plain or score(kernel, best) <= 0:
        return
    columns = list(dict.fromkeys(axis for axes in loops for axis in axes))
    of_thread = _of_threads(plan, best, columns)
    if of_thread:
        yield of_thread
    shared = shared_axes(plan, plan.target.warp)
    if shared:
        of_block = plan.branch()
        schedule_block_per_row(of_block, shared, best)
        yield of_block


def _of_threads(plan: GpuPlanner, best: Node, columns: list[Node]) -> GpuPlanner | None:
    """`plan` with threads that have all `columns` of a few neighbours along `best`, as many as one
    access has, or fewer that their registers hold; None where not even one fits.

    Of 8 columns of bfloat16 a thread has 8 rows: 64 words, as each element is a float32 from the
    first pass on."""
    words, values = _words_of_row(plan, columns), len(plan.kernel.values) * points(columns)
    max_lanes = min(plan.knobs.row_registers // max(words, 1), MAX_UNROLLED // values)
    if max_lanes == 0:
        return None
    lanes = min(plan.lanes_of_thread(best), power_of_two_up_to(max_lanes))
    tiled = plan.branch()
    order = [*tiled.split(best, lanes)] if lanes > 1 else [best]
    for axis in (*order[1:], *columns):
        tiled.bind(axis, "unroll")
    tiled.reorder(order)
    return tiled


def _words_of_row(plan: GpuPlanner, columns: list[Node]) -> int:
    """The words of 4 bytes in which a thread keeps a row from a pass to the next."""
    kept = kept_between_passes(plan.kernel)
    along = [value for value in kept if not free_axes(value).isdisjoint(columns)]
    return sum(max(value.dtype.itemsize // 4, 1) for value in along) * points(columns)
