"""Register tiles of rows that read elements in common.

The rows of ``sum_k w[i, k] * x[k]`` all read x, and each reads its own row of w. A block that has 2
rows reads x once for both, and asks for twice as much of w at once. The rows of ``sum_k where(p[k]
== i, x[k], 0)``, which adds what goes to place i, all read the same elements, so that a block has
many of them.
"""

from collections.abc import Iterator
from math import ceil

from lamina.ir.kernel import free_axes, loads_beneath
from lamina.ir.node import Node, toposort
from lamina.ir.ops import Group, Op
from lamina.schedule.gpu.blocks import shared_axes
from lamina.schedule.gpu.planner import GpuPlanner
from lamina.schedule.planner import score

ROWS = (2, 4)  # of a block, where each reads elements of its own too
# Rows of a block at most that all read the same elements. Sums of 2160 updates of float16 at (1153,
# 25) places, a program of three kernels, took an H200 104 us with a block for each of the 25, 64
# with 512 threads for all of them, each warp of which exchanges each sum, and 27 with 64 threads.
MAX_ALIKE = 32
# Operations of all rows of a tile for each element: 8 of each of 32 rows. It bounds the text, and
# was chosen: only tiles of 25 rows with 2 operations each were measured.
MAX_STEPS = 256


def tiles_of_rows(plan: GpuPlanner) -> Iterator[GpuPlanner]:
    """Planners that go on from `plan` with a register tile of rows each, for each row axis along
    which a reduction reads some elements again."""
    if not shared_axes(plan, plan.target.warp):
        return
    for row in plan.rows:
        for rows in _rows_of_tiles(plan, row):
            tiled = plan.branch()
            inner = row if row.arg.size == rows else tiled.split(row, rows)[1]
            tiled.bind(inner, "unroll")
            tiled.register_tile = plan.register_tile | {inner}
            tiled.has_row_tile = not plan.register_tile
            yield tiled


def _rows_of_tiles(plan: GpuPlanner, row: Node) -> tuple[int, ...]:
    """How many rows along `row` a tile may have. Where these read elements of their own, rows that
    are neighbours in memory are those of neighbouring threads, which have no tile."""
    reductions = plan.kernel.of(Op.LOOP_REDUCE)
    loads = [load for load in loads_beneath(reductions) if free_axes(load)]
    varies = [row in free_axes(load) for load in loads]
    if all(varies):
        return ()
    if not any(varies):
        return _rows_alike(reductions, row)
    if score(plan.kernel, row) > 0:
        return ()
    return tuple(rows for rows in ROWS if row.arg.size % rows == 0)


def _rows_alike(reductions: list[Node], row: Node) -> tuple[int, ...]:
    """How many rows a tile may have that all read the same elements: about as many in each tile, 19
    of 37. None where they are no different, and nothing is computed for each."""
    computed = [node for node in toposort(reductions) if node.op in Group.ELEMENTWISE]
    steps = [node for node in computed if row in free_axes(node)]
    if not steps:
        return ()
    most = min(MAX_ALIKE, MAX_STEPS // len(steps))
    if most < 2:
        return ()
    tiles = ceil(row.arg.size / most)
    return (ceil(row.arg.size / tiles),)
