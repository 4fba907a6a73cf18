"""Register tiles of rows that read elements in common.

The rows of ``sum_k w[i, k] * x[k]`` all read x, and each reads its own row of w. A block that has 2
rows reads x once for both, and asks for twice as much of w at once.
"""

from collections.abc import Iterator

from lamina.ir.kernel import free_axes, loads_beneath
from lamina.ir.node import Node
from lamina.ir.ops import Op
from lamina.schedule.gpu.blocks import shared_axes
from lamina.schedule.gpu.planner import GpuPlanner
from lamina.schedule.planner import score

ROWS = (2, 4)  # of a block


def tiles_of_rows(plan: GpuPlanner) -> Iterator[GpuPlanner]:
    """Planners that go on from `plan` with a register tile of rows each, for each row axis along
    which a reduction reads some elements again. Rows that are neighbours in memory are those of
    neighbouring threads."""
    if not shared_axes(plan, plan.target.warp):
        return
    for row in plan.rows:
        are_neighbours = score(plan.kernel, row) > 0
        for rows in ROWS:
            if not are_neighbours and _reads_again(plan, row) and row.arg.size % rows == 0:
                tiled = plan.branch()
                inner = row if row.arg.size == rows else tiled.split(row, rows)[1]
                tiled.bind(inner, "unroll")
                tiled.register_tile = plan.register_tile | {inner}
                tiled.has_row_tile = not plan.register_tile
                yield tiled


def _reads_again(plan: GpuPlanner, row: Node) -> bool:
    """Does a reduction of each row along `row` read elements that others read, and some that no
    other reads?"""
    reductions = plan.kernel.of(Op.LOOP_REDUCE)
    loads = [load for load in loads_beneath(reductions) if free_axes(load)]
    varies = [row in free_axes(load) for load in loads]
    return any(varies) and not all(varies)
