"""A thread for each row, or for a register tile of rows."""

from collections.abc import Collection
from dataclasses import dataclass
from math import gcd

from lamina.core.integers import power_of_two_up_to
from lamina.graph import index as ix
from lamina.ir.kernel import bound_axes, free_axes, points
from lamina.ir.node import Node
from lamina.ir.ops import Op
from lamina.loops.nest import serial_axes
from lamina.schedule.gpu.planner import RESIDENT, SHORT_BLOCK, GpuPlanner
from lamina.schedule.planner import (
    distance,
    is_contiguous,
    reused_rows,
    score,
    store_score,
    transposed_axis,
)

# Rows of a thread where data say which row to read, as in ``table[token[i], j]``. A read waits for
# that number first, so a thread has two rows, whose reads wait at the same time. Chosen: no
# measurement of it is kept.
GATHERED_ROWS = 2

# Bytes of each array that a thread asks for at once where it has a single row. A multiprocessor has
# up to RESIDENT threads under way, and on an H200 an access takes 0.75 us to its end, so that 4
# bytes of each thread are 1.4 TB/s: ``x[:, :155] * 2`` of (30720, 157) in float32 took 14.1 us with
# an element a thread, and 10.0 with one of each of 4 rows. In bfloat16, whose narrow stores take
# the time, both took 13 us. 16 bytes are 5.8 TB/s, more than memory gives.
BYTES_AT_ONCE = 16
# Bytes along which a thread of a transpose reads what it stores apart: a sector.
SECTOR_BYTES = 32
# Reads of a load for each result, up to which a window is transposed in strips. Chosen, so that the
# first level still has a strip's sectors when its last read comes.
MAX_READS_OF_STRIP = 8
MIN_STRIP = 4  # elements
# Values of a thread that differ by its rows, up to which it takes more of them for that. Chosen, so
# that registers hold them.
MAX_VALUES = 96
# Elements from which on an axis is cut by a number of rows that does not divide it; those left over
# are a branch of their own.
MIN_UNEVEN = 64


@dataclass(frozen=True)
class _Loops:
    """The loops over the rows: those in `order`, outermost first, whose points are the threads of
    the grid, and `unrolled` ones inside them, whose points are the elements of a thread. Row axes
    that are in neither are outside of all, and of the grid too."""

    order: list[Node]
    unrolled: list[Node]


def schedule_thread_per_row(plan: GpuPlanner, best: Node, reduction: Node | None) -> None:
    """Schedule threads along the row axis `best`, each for a few neighbours; for a register tile of
    rows and columns where `reduction` is a product, and for a square one in a transpose."""
    loops = _map_tile(plan, best) if reduction is None else _product_tile(plan, best, reduction)
    for axis in loops.unrolled:
        plan.bind(axis, "unroll")
    plan.reorder([*loops.order, *loops.unrolled])
    if reduction is not None:
        unroll_steps(plan, reduction)


def unroll_steps(plan: GpuPlanner, reduction: Node) -> None:
    """Unroll the innermost axis of a product by 4 steps (`knobs.unroll`) where a factor has these
    side by side in memory, so that a thread reads them by one access. Where the steps are no
    multiple of 4 nothing is unrolled, as the last ones would need a loop of their own."""
    innermost = bound_axes(reduction)[-1]
    is_read_along = any(is_contiguous(load, innermost) for load in plan.kernel.of(Op.LOAD))
    if is_read_along and innermost.arg.size % plan.knobs.unroll == 0:
        plan.tile(innermost, plan.knobs.unroll, "unroll")


def _product_tile(plan: GpuPlanner, best: Node, reduction: Node) -> _Loops:
    """The loops of a product, whose threads have a register tile each: 8 rows by 4 columns, or
    fewer rows where threads would be too few. A warp has 4 by 8 of these tiles: 32 rows by 32
    columns. Of fewer rows or columns a thread has a single result.

    Where columns begin within accesses, a thread has every 32nd of 128, and a warp all of them:
    neighbouring threads then store neighbours. Products of (69, 2) by (2, 869143) took an H200 211
    us with threads that have 4 neighbours each, and 91 so."""
    knobs, warp = plan.knobs, plan.target.warp
    reused = reused_rows(plan, reduction, best, knobs.tile_rows)
    if not reused or min(reused[-1].arg.size, best.arg.size) < warp:
        return _Loops([best], [])
    lanes = max(plan.lanes_of_thread(best), knobs.unroll)  # columns of a thread
    results, height = points(plan.rows), knobs.tile_rows
    while height > 1 and results / (height * lanes) < knobs.enough_threads:  # threads
        height //= 2
    tile_rows, row_in_tile = plan.split(reused[-1], height)
    of_access = min(plan.width, knobs.unroll)
    is_read_along = score(plan.kernel, best) > 0
    begins_within = is_read_along and plan.aligned_lanes(best, threads=1) < of_access
    if begins_within and best.arg.size >= lanes * warp:
        blocks, of_block = plan.split(best, lanes * warp)
        column_of_thread, thread = plan.split(of_block, warp)
        return _Loops([tile_rows, blocks, thread], [row_in_tile, column_of_thread])
    tile_columns, column_in_tile = plan.split(best, lanes)
    tiles_of_warp = (warp // knobs.strip_threads, knobs.strip_threads)
    order = _in_blocks(plan, tile_rows, tile_columns, [tiles_of_warp])
    return _Loops(order, [row_in_tile, column_in_tile])


def _map_tile(plan: GpuPlanner, best: Node) -> _Loops:
    """The loops of a kernel in which nothing is used again. A transpose has square tiles, or strips
    where its stores would not be aligned. In others a thread has an access of neighbours along
    `best`, or a single element where accesses would not be aligned or threads too few; and two
    accesses where data say which row to read, or where it has much to compute.

    Threads that go through a scan have a single element: running sums along the axis of 40 of
    (131072, 40, 6) elements of bfloat16 took an H200 115 us so, and 220 with 2 neighbours; of
    (8192, 40, 96) 39, and 50 with 8."""
    across = None
    if not plan.register_tile:
        loads = plan.kernel.of(Op.LOAD)
        across = transposed_axis(plan, loads, best, plan.target.warp)
    if across is not None and not plan.inner() and _stores_are_aligned(plan, best):
        return _transpose_tile(plan, best, across)
    if across is not None and _suits_strips(plan, best):
        return _transpose_strip(plan, best, across)
    lanes = 1 if _goes_through_scan(plan) else plan.lanes_of_thread(best)
    rows = _rows_at_once(plan, best, lanes)
    if lanes == 1:
        side_by_side = 1 if rows else _rows_of_access(plan, best)
        if side_by_side > 1:
            others, of_thread = plan.split(best, side_by_side)
            return _Loops([others], [of_thread])
        return _Loops([best], rows)
    gathered = _gathered_row(plan, best)
    threads = points(plan.rows) / (GATHERED_ROWS * lanes)  # of GATHERED_ROWS rows each
    accesses, element = plan.split(best, lanes)
    if rows:
        return _Loops([accesses], [*rows, element])
    if gathered is not None and threads >= plan.knobs.enough_threads:
        others, pair = plan.split(gathered, GATHERED_ROWS)
        return _Loops([others, accesses], [pair, element])
    if _reads_while_computing(plan, lanes) and accesses.arg.size % (2 * SHORT_BLOCK) == 0:
        # Thread t of a block has the accesses t and t + 256 of the block's 512.
        blocks, of_block = plan.split(accesses, 2 * SHORT_BLOCK)
        pair, thread = plan.split(of_block, SHORT_BLOCK)
        return _Loops([blocks, thread], [pair, element])
    return _Loops([accesses], [element])


def _goes_through_scan(plan: GpuPlanner) -> bool:
    """Whether a loop inside the rows runs in order, as that of a scan does."""
    in_order = serial_axes(plan.kernel)
    return any(not in_order.isdisjoint(axes) for axes in plan.inner())


def _rows_at_once(plan: GpuPlanner, best: Node, lanes: int) -> list[Node]:
    """Axes of the rows that a thread has at once where its `lanes` neighbours along `best` are few
    bytes; none where they are enough, or where all threads are under way together.

    Of (30720, 157) elements of bfloat16 a thread has one of each of 8 rows.
    """
    at_once = lanes * plan.target.multiprocessors * RESIDENT  # elements of all threads
    rounds = points(plan.rows) // at_once
    count = min(BYTES_AT_ONCE // (lanes * plan.itemsize), rounds)
    if count < 2 or plan.inner() or plan.register_tile:
        return []
    left = power_of_two_up_to(count)
    # Neighbours in results first, then those that share most values, then the innermost axes.
    others = [axis for axis in reversed(plan.rows) if axis is not best]
    others.sort(key=lambda axis: (-store_score(plan.kernel, axis), _varying(plan, [axis])))
    taken: list[Node] = []
    copies = lanes  # registers for each value that differs along the axes taken
    for axis in others:
        room = MAX_VALUES // (copies * max(_varying(plan, [*taken, axis]), 1))
        most = min(left, power_of_two_up_to(max(room, 1)))
        rows = gcd(axis.arg.size, most)
        if rows == 1 and axis.arg.size >= MIN_UNEVEN:
            rows = most
        if rows > 1:
            taken.insert(0, plan.split(axis, rows)[1])
            left //= rows
            copies *= rows
    return taken


def _varying(plan: GpuPlanner, axes: Collection[Node]) -> int:
    """The values of a kernel that differ along one of `axes`; a thread has the others once. Of
    ``y[n, i, j] = w[j] * x[n, p[i], j]`` those along n are the element and the product, and not
    ``p[i]``, which tells rows i apart."""
    return sum(not free_axes(value).isdisjoint(axes) for value in plan.kernel.values)


def _rows_of_access(plan: GpuPlanner, best: Node) -> int:
    """Rows side by side along `best` that a thread has, where they are an access together: 2 rows
    of 2 elements of float32. 1 for longer rows, for those that begin within an access whatever
    their number, or where threads would be too few.

    Rows of 5 elements have a thread each: softmax of (37, 53165, 5) by an array, 118 MB, took an
    H200 30 us so; with 4 rows a thread, which are 5 accesses, (6400000, 5), 256 MB, took 112 us.
    """
    kernel, apart = plan.kernel, distance(plan.kernel, best)
    loops, in_order = plan.inner(), serial_axes(plan.kernel)
    if not loops or any(points(axes) != apart or len(axes) > 1 for axes in loops):
        return 1
    count, rest = divmod(plan.width, apart)
    enough = points(plan.rows) >= count * plan.knobs.enough_threads
    columns = {axis for axes in loops for axis in axes}
    if rest or not enough or not in_order.isdisjoint(columns):  # these are not unrolled
        return 1
    for index in kernel.indices:
        strides, constant = ix.terms_of(index)
        if best in strides:
            others = [stride for axis, stride in strides.items() if axis not in {best, *columns}]
            count = min(count, gcd(plan.width, constant, *others) // apart)
    return max(count, 1)


def _reads_while_computing(plan: GpuPlanner, lanes: int) -> bool:
    """Should a thread read two accesses at once, so that the second one is under way while it
    computes with the first?

    Yes if an access has 8 elements, of 16 bits (of float32 it has 4 at most), and the kernel 8
    nodes or more for each, loads among them. Chosen: no measurement of it is kept.
    """
    lanes_of_float32 = plan.target.vector_bytes // 4
    return lanes > lanes_of_float32 and len(plan.kernel.values) >= lanes


def _transpose_tile(plan: GpuPlanner, best: Node, across: Node) -> _Loops:
    """Square register tiles, of which a warp has 8 x 4, rows x columns.

    The side of a tile is one access of 16 bytes. Reads are contiguous along the rows (`across`):
    the 8 tiles below each other are a line of 128 bytes. Writes are contiguous along the columns
    (`best`): the 4 tiles side by side are half a line. Where both directions have
    `knobs.transposed_tiles` tiles or more, blocks of 16 x 16 tiles are neighbours in the grid,
    which are whole lines both ways.
    """
    knobs, warp = plan.knobs, plan.target.warp
    # With `strip` = 8 side by side a warp would write whole lines, but read half lines.
    side_by_side = max(1, knobs.strip_threads // 2)
    tile_rows, row_in_tile = plan.split(across, plan.width)
    tile_columns, column_in_tile = plan.split(best, plan.width)
    sizes = [(warp // side_by_side, side_by_side)]
    if min(tile_rows.arg.size, tile_columns.arg.size) >= knobs.transposed_tiles:
        sizes = [(knobs.transposed_tiles, knobs.transposed_tiles), *sizes]
    order = _in_blocks(plan, tile_rows, tile_columns, sizes)
    return _Loops(order, [row_in_tile, column_in_tile])


def _stores_are_aligned(plan: GpuPlanner, best: Node) -> bool:
    """Does a thread store whole accesses of neighbours along `best`, whatever row it has?"""
    for store in plan.kernel.stores:
        terms, constant = ix.terms_of(store.index)
        strides = [stride for axis, stride in terms.items() if axis is not best]
        if gcd(plan.width, constant, *strides) < plan.width:
            return False
    return True


def _reads_of_result(plan: GpuPlanner) -> int:
    """The points of all loops inside a row, as many as a load may be read at for a result; 1
    without a loop."""
    return sum(map(points, plan.inner())) or 1


def _suits_strips(plan: GpuPlanner, best: Node) -> bool:
    """Whether threads along `best` store neighbours, and have few reads for each result, all of
    which can be unrolled: not so the steps of a scan, which are in order."""
    has_few_reads = _reads_of_result(plan) <= MAX_READS_OF_STRIP
    return has_few_reads and not _goes_through_scan(plan) and store_score(plan.kernel, best) > 0


def _transpose_strip(plan: GpuPlanner, best: Node, across: Node) -> _Loops:
    """Threads along the rows of results, `best`, each with a strip of SECTOR_BYTES along `across`,
    or a shorter one where it has several reads for each result.

    What a thread reads one after the other is a sector, which the first level keeps meanwhile; and
    a warp stores whole lines. In a square tile of rows that are not aligned, a warp would store two
    bytes here and there: (63, 279629) elements of float16, transposed, took an H200 87 us so, and
    42 in strips; windows of 2 x 2 of images of (32, 112, 112, 64), stored with channels first, 46,
    and 99 with threads along channels."""
    reads = _reads_of_result(plan)
    for axes in plan.inner():
        for axis in axes:
            plan.bind(axis, "unroll")
    length = max(SECTOR_BYTES // (plan.itemsize * reads), MIN_STRIP)
    rows, row_of_strip = plan.split(across, length)
    return _Loops([rows, best], [row_of_strip])


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


def _gathered_row(plan: GpuPlanner, best: Node) -> Node | None:
    """The first row axis but `best` by which data say what to read: i of ``table[token[i], j]``,
    where `best` is j. None if there is none, or if threads cannot have GATHERED_ROWS rows each, as
    these do not divide it."""
    loads = plan.kernel.of(Op.LOAD)
    for row in plan.rows:
        if row is not best and any(ix.suits(row, load.src[0]) == ix.BY_LANE for load in loads):
            return row if row.arg.size % GATHERED_ROWS == 0 else None
    return None
