"""Register tiles of products with few columns, whose threads have a few rows of one column or of
all.

Of ``sum_k a[b, i, k] * w[b, j, k]`` with 11 j a thread that has one result reads a step of both for
each product. One that has all 11 columns of 2 rows reads 13 for 22 products; one that has a column
of 4 rows reads 5 for 4, and neighbouring threads store neighbours.
"""

from collections.abc import Iterator

from lamina.ir.kernel import points
from lamina.ir.node import Node
from lamina.schedule.gpu.planner import GpuPlanner
from lamina.schedule.gpu.threads import unroll_steps
from lamina.schedule.planner import reused_rows

MAX_COLUMNS = 16
ROWS = (1, 2, 4)  # of a thread
# Sums of a thread, at most. Long sums have four registers each, of 255: chosen, so that half of
# these hold them.
MAX_SUMS = 32


def tiles_of_columns(plan: GpuPlanner) -> Iterator[GpuPlanner]:
    """Planners that go on from `plan` with threads that have a few rows of a product, and one
    column or all, for each row axis that is short enough to be the columns; none for other kernels.
    """
    reduction = plan.contraction()
    if reduction is None:
        return
    for columns in plan.rows:
        rows = reused_rows(plan, reduction, columns, plan.knobs.tile_rows)
        if not rows or columns.arg.size > MAX_COLUMNS:
            continue
        row = rows[-1]
        for count in ROWS:
            for width in dict.fromkeys((1, columns.arg.size)):
                sums = count * width
                threads = points(plan.rows) // sums
                has_room = 1 < sums <= MAX_SUMS and threads >= plan.knobs.enough_threads
                if has_room and row.arg.size % count == 0:
                    tiled = _tiled(plan.branch(), row, columns, count, width)
                    unroll_steps(tiled, reduction)  # whose own axes are still the same
                    yield tiled


def _tiled(plan: GpuPlanner, row: Node, columns: Node, count: int, width: int) -> GpuPlanner:
    """`plan` with threads that have so many rows, `count`, along `row`, and one of the columns or
    all of them, `width`: these are then unrolled, and otherwise those of neighbouring threads."""
    others, of_thread = plan.split(row, count) if count > 1 else (row, None)
    unrolled = [] if of_thread is None else [of_thread]
    threads = [others]
    if width == 1:
        threads.append(columns)
    else:
        unrolled.append(columns)
    for axis in unrolled:
        plan.bind(axis, "unroll")
    plan.register_tile = frozenset(unrolled)
    plan.has_row_tile = True
    plan.reorder([*threads, *unrolled])
    return plan
