"""A block of threads for each row, or for a few: threads share the loops inside the rows."""

from dataclasses import dataclass
from math import ceil, gcd

from lamina.ir.kernel import bound_axes, free_axes, needed_again, points
from lamina.ir.node import Node
from lamina.ir.ops import Op
from lamina.loops.nest import SCANNING_THREADS, serial_axes
from lamina.schedule.gpu.planner import SHORT_BLOCK, GpuPlanner
from lamina.schedule.planner import score

# The numbers below were chosen for an H200; of the single ones no measurement is kept.
# Blocks that keep a GPU busy though they end at different times: 8 for each of 132 multiprocessors.
BUSY_BLOCKS = 1024
LONG_BLOCK = SCANNING_THREADS  # threads that share a long row
# Elements in the registers of a block, at most: of 4 bytes an eighth of a multiprocessor's 256 KiB,
# so that several blocks fit on one.
MAX_ELEMENTS = 8192
# Accesses that a thread has for each reduction over its row: two are under way at once, and a
# reduction ends with exchanges between threads, while rows of other blocks come in.
ACCESSES = 2
# Registers that count for each element of a thread, at least: one is loaded, and one computed.
MIN_KEPT = 2


@dataclass(frozen=True)
class Rows:
    """The rows of one block: `side` of them side by side along `axis`, times `lanes` neighbours of
    each thread. A thread has `registers` for what it keeps of each."""

    axis: Node | None
    side: int
    lanes: int
    registers: int


@dataclass(frozen=True)
class Sharing:
    """How the threads of a block share the loops inside its rows.

    rows: those of the block
    is_across: neighbours in memory lie along the rows, not along the loops
    threads_left: threads that a loop must still fill when each takes several neighbours
    min_threads: the smallest block
    is_scan: is a loop a scan, whose threads exchange sums at each step
    accesses: reads under way of a thread, in accesses
    kept: the loads that are kept in registers: those that several passes over a row need, or all
    is_read_again: does any pass over a row read what another one has read
    """

    rows: Rows
    is_across: bool
    threads_left: int
    min_threads: int
    is_scan: bool
    accesses: int
    kept: list[Node]
    is_read_again: bool


@dataclass(frozen=True)
class _Division:
    """The threads of a block, for all of its rows, and the elements of a row that each of them can
    keep in registers."""

    threads: int
    max_elements: int


def shared_axes(plan: GpuPlanner) -> list[Node]:
    """For each loop inside the rows that threads may share, its best axis, each once; nothing if a
    loop must run in order, which would leave it to one thread, or if no loop is as long as a warp,
    as a thread for each row is then better.

    Threads cannot share a reduction inside another loop of the row, as each of them has other
    iterations of that loop: of ``y[i, j] = max(x[i, j] - sum_k(a[i, j, k]), 0)`` with rows i they
    share j, and each of them runs through all k. They can share a scan if it is the only loop.
    """
    kernel, warp = plan.kernel, plan.target.warp
    loops = plan.inner()
    is_only_loop = len(loops) == 1 and len(loops[0]) == 1
    if not (is_only_loop and kernel.of(Op.LOOP_SCAN)):
        in_order = serial_axes(kernel)
        if any(not in_order.isdisjoint(axes) for axes in loops):
            return []
    rows = set(kernel.row_axes)
    reductions = kernel.of(Op.LOOP_REDUCE)
    inside_another = {bound_axes(node) for node in reductions if not free_axes(node) <= rows}
    loops = [axes for axes in loops if axes not in inside_another]
    if max(map(points, loops), default=0) < warp:
        return []

    def worth(axis: Node) -> tuple[int, int, int]:
        """Whether it fills a warp comes first, then how well accesses suit it."""
        return min(axis.arg.size, warp), score(kernel, axis), axis.arg.size

    best = [max(axes, key=worth) for axes in loops]
    return list(dict.fromkeys(best))


def schedule_block_per_row(plan: GpuPlanner, shared: list[Node], across: Node | None) -> None:
    """Schedule a block for each row, or for a few: neighbours in memory along `across`, or short
    ones.

    shared: the axis of each loop inside the rows that threads share, by `shared_axes`
    across: the row axis along which accesses are neighbours in memory; None if the loops inside
        the rows walk neighbours

    Softmax of (64, 4096) has one row a block, and `shared` is its columns. A sum over the rows of
    (4096, 64) has few columns, so a block takes several of them (`across`), and its threads share
    the 4096 elements of each.
    """
    rows = _rows_of_block(plan, shared, across)
    if rows.axis is not None and rows.side > 1:
        # 32 rows of a block become 8 threads side by side, with 4 unrolled neighbours each.
        _, inner = plan.split(rows.axis, rows.side * rows.lanes)
        plan.bind(plan.tile(inner, rows.lanes, "unroll"), "thread")
    sharing = _sharing(plan, shared, across, rows)
    for axis in shared:
        _share(plan, axis, sharing)


def _sharing(plan: GpuPlanner, shared: list[Node], across: Node | None, rows: Rows) -> Sharing:
    """How the threads of a block share these loops; see `schedule_block_per_row`."""
    read_again = needed_again(plan.kernel, {Op.LOAD})
    is_few = points(plan.kernel.row_axes) < BUSY_BLOCKS
    is_scan = not serial_axes(plan.kernel).isdisjoint(shared)
    warp = plan.target.warp
    # A scan's exchanges take long, so that its threads take as many elements as registers allow: 2
    # accesses for each of 32 reductions are more than these hold.
    reductions = warp if is_scan else len(plan.kernel.of(Op.LOOP_REDUCE))
    return Sharing(
        rows,
        is_across=across is not None,
        # Several short rows fill a warp together, so that a thread may take whole accesses of one.
        threads_left=warp if across is not None or rows.side == 1 else 1,
        # Few blocks have many threads each, so that enough reads are under way.
        min_threads=SHORT_BLOCK if rows.side > 1 or is_few else 2 * warp,
        is_scan=is_scan,
        accesses=ACCESSES * reductions,
        kept=read_again or plan.kernel.of(Op.LOAD),
        is_read_again=bool(read_again),
    )


def _rows_of_block(plan: GpuPlanner, shared: list[Node], across: Node | None) -> Rows:
    """The rows of one block; see `schedule_block_per_row` for `shared` and `across`."""
    if across is not None:
        return _rows_across(plan, across)
    if plan.kernel.row_axes:
        longest = max(axis.arg.size for axis in shared)
        return _short_rows(plan, longest)
    return Rows(None, 1, 1, plan.knobs.registers)


def _rows_across(plan: GpuPlanner, across: Node) -> Rows:
    """Rows of one block that are neighbours in memory along `across`: 8 threads side by side
    (`knobs.strip`) with an access of neighbours each, 32 rows of float32; one row if there are too
    few for that.

    Fewer rows in a block are more blocks. Threads side by side are halved, down to 2, while twice
    as many blocks are no more than there are multiprocessors: of 1024 rows, 32 each are 32 blocks,
    so that on 132 multiprocessors a block has 8 rows, in 2 threads, and there are 128 blocks.
    """
    knobs, row_count = plan.knobs, points(plan.kernel.row_axes)
    lanes = plan.aligned_lanes(across, knobs.strip)
    if across.arg.size < knobs.strip * lanes:
        return Rows(None, 1, 1, knobs.registers)
    side = knobs.strip
    while side > 2 and 2 * row_count <= plan.target.multiprocessors * side * lanes:
        side //= 2
    return Rows(across, side, lanes, knobs.registers // lanes)


def _short_rows(plan: GpuPlanner, longest: int) -> Rows:
    """Rows of one block whose loops, of `longest` elements at most, walk neighbours in memory: as
    many as a block reads at once, or as leave enough blocks, and a power of two that divides the
    last row axis.

    Rows of 64 elements of float32, whose accesses have 4: 256 threads read 256 * 4 // 64 = 16 rows
    at once. Rows of 4096 elements have a block each.
    """
    row = plan.kernel.row_axes[-1]
    one_access = SHORT_BLOCK * plan.width // longest
    leave_enough_blocks = points(plan.kernel.row_axes) // BUSY_BLOCKS
    side = max(min(one_access, leave_enough_blocks, 2 * plan.knobs.strip), 1)
    power_of_two = 1 << side.bit_length() >> 1  # the largest that is not above `side`
    return Rows(row, gcd(power_of_two, row.arg.size), 1, plan.knobs.registers)


def _share(plan: GpuPlanner, axis: Node, sharing: Sharing) -> None:
    """Bind `axis`, a loop inside the rows, to threads, each with `lanes` neighbours at a time.

    256 threads with 8 lanes take 2048 elements in a step. A row of 2048 is one step. A row of 8192
    that several passes read is 4 unrolled steps if a thread can keep its 32 elements in registers,
    and a loop of steps, which every pass reads again, if not.
    """
    size, side = axis.arg.size, sharing.rows.side
    lanes = plan.aligned_lanes(axis, sharing.threads_left)
    if sharing.is_scan:
        lanes = gcd(lanes, size)  # a thread's neighbours are not divided between two steps
    # Registers for each element: an element of 8 bytes takes two.
    kept_loads = [load for load in sharing.kept if axis in free_axes(load)]
    kept = sum(max(load.dtype.itemsize // 4, 1) for load in kept_loads)
    division = _division(size, lanes, kept, sharing)
    if division is None:
        # Every pass reads the row again. Neighbours across the rows are one access already, and a
        # thread has two of these, one below the other, so that enough reads are under way.
        if sharing.is_across:
            lanes = gcd(size, 2)
    else:
        threads_of_row = division.threads // side
        step_elements = threads_of_row * lanes
        if kept and step_elements < size:
            # Steps are unrolled where registers hold the whole row, and are a loop where not.
            steps, axis = plan.split(axis, step_elements)
            if size <= threads_of_row * division.max_elements:
                plan.bind(steps, "unroll")
    plan.bind(plan.tile(axis, lanes, "unroll"), "thread")


def _division(size: int, lanes: int, kept: int, sharing: Sharing) -> _Division | None:
    """How a block divides its rows of `size` elements among its threads. None where no block holds
    the row in registers: the printer then chooses the threads (`_block_threads` of targets/gpu.py),
    and each pass reads the row again.

    kept: registers for each element that are kept for a later pass; 0 if none is

    4096 elements of bfloat16, 8 lanes, one reduction over them, one register each: a thread takes
    2 * 8 = 16 elements, and 256 threads the row. Rows that are too long for so few elements each
    are tried again with as many elements a thread as its registers hold, in the largest blocks.
    """
    side, registers = sharing.rows.side, sharing.rows.registers
    max_elements = max(registers // max(kept, MIN_KEPT), 1)
    elements = min(sharing.accesses * lanes, max_elements)
    threads_of_row = ceil(size / elements)
    wanted = 1 << (threads_of_row * side - 1).bit_length()  # the next power of two
    threads = max(wanted, sharing.min_threads)
    # A row that has a block alone may have the largest one that GPUs have, 1024 threads.
    largest = 2 * LONG_BLOCK if side == 1 else LONG_BLOCK
    if threads <= largest and threads * elements <= MAX_ELEMENTS:
        return _Division(threads, max_elements)
    if sharing.is_scan:  # the loop over steps needs no whole row in registers
        return _Division(LONG_BLOCK, max_elements)
    blocks = [_Division(LONG_BLOCK, max_elements)]
    if sharing.is_read_again and kept and side == 1:
        # All registers of a thread may hold the row, as a block may be alone on its multiprocessor.
        # A thread of the largest block can have 64 (65,536 / 1024); an eighth is for all else.
        blocks = [
            _Division(LONG_BLOCK, registers // kept),
            _Division(2 * LONG_BLOCK, 7 * registers // (8 * kept)),
        ]
    for block in blocks:
        if size <= block.threads // side * block.max_elements:
            return block
    return None
