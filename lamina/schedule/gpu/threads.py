"""A thread for each row, or for a register tile of rows."""

from dataclasses import dataclass

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


@dataclass(frozen=True)
class _Loops:
    """The loops over the rows: those in `order`, outermost first, which number the threads, and
    `unrolled` ones inside them, of the rows of a thread."""

    order: list[Node]
    unrolled: list[Node]


def schedule_thread_per_row(plan: GpuPlanner, best: Node, reduction: Node | None) -> None:
    """Schedule threads along the row axis `best`, each for a few neighbours; for a register tile of
    rows and columns where `reduction` is a product, and for a square one in a transpose."""
    loops = _map_tile(plan, best) if reduction is None else _product_tile(plan, best, reduction)
    for axis in loops.unrolled:
        plan.bind(axis, "unroll")
    plan.reorder([*loops.order, *loops.unrolled])
    if reduction is None:
        return
    # Steps of the product that lie side by side are read at once.
    innermost = bound_axes(reduction)[-1]
    is_read_along = any(is_contiguous(load, innermost) for load in plan.kernel.of(Op.LOAD))
    if is_read_along and innermost.arg.size % plan.knobs.unroll == 0:
        plan.tile(innermost, plan.knobs.unroll, "unroll")


def _lanes(plan: GpuPlanner, best: Node) -> int:
    """Neighbours along `best` of one thread, where enough threads are left."""
    other_rows = max(points(plan.kernel.row_axes) // best.arg.size, 1)
    threads_along_best = max(plan.knobs.enough // other_rows, 1)
    return plan.aligned_lanes(best, threads_along_best)


def _product_tile(plan: GpuPlanner, best: Node, reduction: Node) -> _Loops:
    """The loops of a product, whose threads have a register tile each: 8 rows by 4 columns, or
    fewer rows where threads would be too few. A warp has 4 by 8 of these tiles."""
    knobs, warp, rows = plan.knobs, plan.target.warp, plan.kernel.row_axes
    lanes = max(_lanes(plan, best), knobs.unroll)  # columns of a thread
    height = knobs.rows
    while height > 1 and points(rows) < knobs.enough * height * lanes:
        height //= 2
    reused = reused_rows(plan, reduction, best, knobs.rows)
    if not reused or min(reused[-1].arg.size, best.arg.size) < warp:
        return _Loops([best], [])  # no tile: too few rows or columns for the tiles of a warp
    tile_rows, upper = plan.split(reused[-1], height)
    tile_columns, lower = plan.split(best, lanes)
    order = _in_blocks(plan, tile_rows, tile_columns, [(warp // knobs.strip, knobs.strip)])
    return _Loops(order, [upper, lower])


def _map_tile(plan: GpuPlanner, best: Node) -> _Loops:
    """The loops of a kernel in which nothing is used again. A transpose has square tiles. In others
    a thread has an access of neighbours along `best`, or a single element where accesses would not
    be aligned or threads too few; and two such accesses where data say which row to read, or where
    it has much to compute."""
    warp = plan.target.warp
    lanes = _lanes(plan, best)
    across = None if plan.inner() else transposed_axis(plan, best, warp)
    if across is not None:
        return _transpose_tile(plan, best, across)
    if lanes == 1:
        return _Loops([best], [])
    rows = plan.kernel.row_axes
    outer, inner = plan.split(best, lanes)
    gathered = _gathered_row(plan, rows, best)
    if gathered is not None and points(rows) >= GATHERED_ROWS * lanes * plan.knobs.enough:
        others, pair = plan.split(gathered, GATHERED_ROWS)
        return _Loops([others, outer], [pair, inner])
    # Where a thread has an access of 8 elements of 16 bits (float32 has 4 lanes at most), and at
    # least as many nodes to compute for each, it reads two accesses, a block apart, at once: the
    # second one is under way while it computes. Chosen: no measurement of it is kept.
    has_16_bits = lanes > plan.target.vector_bytes // 4
    computes_much = len(plan.kernel.values) >= lanes
    if has_16_bits and computes_much and outer.arg.size % (2 * SHORT_BLOCK) == 0:
        # Thread t of a block has the accesses t and t + 256 of the block's 512.
        blocks, threads = plan.split(outer, 2 * SHORT_BLOCK)
        pair, threads = plan.split(threads, SHORT_BLOCK)
        return _Loops([blocks, threads], [pair, inner])
    return _Loops([outer], [inner])


def _transpose_tile(plan: GpuPlanner, best: Node, across: Node) -> _Loops:
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
    order = _in_blocks(plan, tile_rows, tile_columns, sizes)
    return _Loops(order, [upper, lower])


def _in_blocks(
    plan: GpuPlanner, rows: Node, columns: Node, sizes: list[tuple[int, int]]
) -> list[Node]:
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
