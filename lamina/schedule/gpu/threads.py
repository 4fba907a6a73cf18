"""A thread for each row, or for a register tile of rows."""

from lamina.graph import index as ix
from lamina.ir.kernel import bound_axes, points
from lamina.ir.node import Node
from lamina.ir.ops import Op
from lamina.schedule.gpu.planner import SHORT_BLOCK, GpuPlanner
from lamina.schedule.planner import is_contiguous, reused_rows, transposed_axis

# Rows of a thread where data say which row to read, as in ``table[token[i], j]``. A read waits for
# that number first, so a thread has two rows, whose reads wait at the same time. Chosen: no
# measurement of it is kept.
GATHERED_ROWS = 2


def schedule_thread_per_row(plan: GpuPlanner, best: Node, reduction: Node | None) -> None:
    """Threads along `best`, each for a few neighbours, or for a register tile of rows along two
    axes that operands vary along in different ways."""
    if reduction is not None:
        order, unrolled = _product_tile(plan, best, reduction)
    else:
        order, unrolled = _map_tile(plan, best)
    for axis in unrolled:
        plan.bind(axis, "unroll")
    plan.reorder([*order, *unrolled])
    if reduction is None:
        return
    innermost = bound_axes(reduction)[-1]
    is_read_along = any(is_contiguous(load, innermost) for load in plan.kernel.of(Op.LOAD))
    if is_read_along and innermost.arg.size % plan.knobs.unroll == 0:
        plan.tile(innermost, plan.knobs.unroll, "unroll")  # several steps are read at once


Axes = list[Node]


def _lanes(plan: GpuPlanner, best: Node) -> int:
    """Neighbours along `best` of one thread, where enough threads are left."""
    other_rows = max(points(plan.kernel.row_axes) // best.arg.size, 1)
    threads_along_best = max(plan.knobs.enough // other_rows, 1)
    return plan.aligned_lanes(best, threads_along_best)


def _product_tile(plan: GpuPlanner, best: Node, reduction: Node) -> tuple[Axes, Axes]:
    """The order of rows and the unrolled axes of a tile whose operands are used again: 8 x 4
    elements, rows x columns, or lower where threads would be too few. A warp has a block of 4 x 8
    tiles, rows x columns."""
    knobs, warp, rows = plan.knobs, plan.target.warp, plan.kernel.row_axes
    lanes, height = max(_lanes(plan, best), knobs.unroll), knobs.rows
    while height > 1 and points(rows) < knobs.enough * height * lanes:
        height //= 2
    reused = reused_rows(plan, reduction, best, knobs.rows)
    if not reused or min(reused[-1].arg.size, best.arg.size) < warp:
        return [best], []  # no tile: too few rows or columns for the tiles of a warp
    tile_rows, upper = plan.split(reused[-1], height)
    tile_columns, lower = plan.split(best, lanes)
    order = _in_blocks(plan, tile_rows, tile_columns, [(warp // knobs.strip, knobs.strip)])
    return order, [upper, lower]


def _map_tile(plan: GpuPlanner, best: Node) -> tuple[Axes, Axes]:
    """The order of rows and the unrolled axes of a kernel in which nothing is used again."""
    warp = plan.target.warp
    lanes = _lanes(plan, best)
    across = None if plan.inner() else transposed_axis(plan, best, warp)
    if across is not None:
        return _transpose_tile(plan, best, across)
    if lanes == 1:
        return [best], []
    rows = plan.kernel.row_axes
    outer, inner = plan.split(best, lanes)
    gathered = _gathered_row(plan, rows, best)
    if gathered is not None and points(rows) >= GATHERED_ROWS * lanes * plan.knobs.enough:
        others, pair = plan.split(gathered, GATHERED_ROWS)
        return [others, outer], [pair, inner]
    # Where a thread has an access of 8 elements of 16 bits (float32 has 4 lanes at most), and at
    # least as many nodes to compute for each, it reads two accesses, a block apart, at once: the
    # second one is under way while it computes. Chosen: no measurement of it is kept.
    has_16_bits = lanes > plan.target.vector_bytes // 4
    computes_much = len(plan.kernel.values) >= lanes
    if has_16_bits and computes_much and outer.arg.size % (2 * SHORT_BLOCK) == 0:
        # Thread t of a block has the accesses t and t + 256 of the block's 512.
        blocks, threads = plan.split(outer, 2 * SHORT_BLOCK)
        pair, threads = plan.split(threads, SHORT_BLOCK)
        return [blocks, threads], [pair, inner]
    return [outer], [inner]


def _transpose_tile(plan: GpuPlanner, best: Node, across: Node) -> tuple[Axes, Axes]:
    """Square register tiles, of which a warp has 8 x 4, rows x columns.

    The side of a tile is one access of 16 bytes. Reads are contiguous along the rows (`across`):
    the 8 tiles below each other are a line of 128 bytes. Writes are contiguous along the columns
    (`best`): the 4 tiles side by side are half a line. Where both directions have
    `knobs.transposed` tiles or more, blocks of 16 x 16 tiles are neighbours in the grid, which are
    whole lines both ways.
    """
    knobs, warp = plan.knobs, plan.target.warp
    # With `strip` = 8 side by side a warp would write whole lines, but read half lines.
    side_by_side = max(1, knobs.strip // 2)
    tile_rows, upper = plan.split(across, plan.width)
    tile_columns, lower = plan.split(best, plan.width)
    sizes = [(warp // side_by_side, side_by_side)]
    if min(tile_rows.arg.size, tile_columns.arg.size) >= knobs.transposed:
        sizes = [(knobs.transposed, knobs.transposed), *sizes]
    return _in_blocks(plan, tile_rows, tile_columns, sizes), [upper, lower]


def _in_blocks(plan: GpuPlanner, rows: Node, columns: Node, sizes: list[tuple[int, int]]) -> Axes:
    """The order of `rows` x `columns` in blocks of the first of `sizes`, these in blocks of the
    next one, ... Each size is (rows, columns).

    For a size of (4, 8): row blocks, column blocks, 4 rows, 8 columns, outermost first.
    """
    order = list[Node]()
    for height, width in sizes:
        row_blocks, rows = plan.split(rows, height)
        column_blocks, columns = plan.split(columns, width)
        order += [row_blocks, column_blocks]
    return [*order, rows, columns]


def _gathered_row(plan: GpuPlanner, rows: tuple[Node, ...], best: Node) -> Node | None:
    """The first row axis but `best` by which data say what to read, if its size is even."""
    loads = plan.kernel.of(Op.LOAD)
    for row in rows:
        if row is not best and any(ix.suits(row, load.src[0]) == ix.BY_LANE for load in loads):
            return row if row.arg.size % GATHERED_ROWS == 0 else None
    return None
