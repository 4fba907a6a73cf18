"""A block of threads for each row, or for a few: threads share the loops inside the rows."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil, gcd

from lamina.core.integers import first_divisor, power_of_two_from, power_of_two_up_to
from lamina.ir.kernel import bound_axes, free_axes, kept_between_passes, needed_again, points
from lamina.ir.node import Node
from lamina.ir.ops import Op
from lamina.loops.nest import SCANNING_THREADS, Axes, serial_axes
from lamina.schedule.gpu.planner import RESIDENT, SHORT_BLOCK, GpuPlanner
from lamina.schedule.planner import score

# The numbers below were chosen for an H200; of the single ones no measurement is kept.
# Blocks that keep a GPU busy though they end at different times: 8 for each of 132 multiprocessors.
BUSY_BLOCKS = 1024
LONG_BLOCK = SCANNING_THREADS  # threads that share a long row: 512
LARGEST_BLOCK = 2 * LONG_BLOCK  # threads of the largest block that GPUs have: 1024
# Elements in the registers of a block, at most: of 4 bytes an eighth of a multiprocessor's 256 KiB,
# so that several blocks fit on one.
MAX_ELEMENTS = 8192
# Accesses that a thread has for each reduction over its row: two are under way at once, and a
# reduction ends with exchanges between threads, while rows of other blocks come in.
ACCESSES = 2
# The accesses of a reduction to several components, such as an argmax, are so many times as many.
# Its step is a dozen instructions, and so is each of the exchanges at its end: of (128, 20, 5696)
# elements of float16 an argmax by 512 threads a row, 20 million instructions of warps, took an H200
# 35 us, and by 256 threads, 13 million, 24 us.
COMPOUND = 4
# Steps of a scan that a thread has side by side: at least where the length of the row allows, and
# at most where they are not one access. Exchanges are of threads, whatever each of them has: 64
# threads with a step each combine 8 times for each element, and with 5 steps less than 4 times.
MIN_NEIGHBOURS = 4
MAX_NEIGHBOURS = 8
# Registers that count for each element of a thread, at least: one is loaded, and one computed.
MIN_HELD = 2
# Elements of a thread for each row whose threads are neighbours in a warp, where rows are many, and
# two accesses at least. What each thread of a row does, such as a division, takes time: softmax of
# (969696, 33) in bfloat16 took an H200 128 us with 2 elements each, and of (666666, 48), with 16,
# 38 us, where a copy takes 30. With 6 a softmax of any length from 9 to 63 is predicted best.
ELEMENTS_IN_WARP = 6
# Bytes of neighbouring columns that a block scans down, two sectors, and blocks of a multiprocessor
# from which on there are enough. By both (4096, 8192) elements of float32 are predicted to take 81
# us, and 95 with blocks of one sector.
COLUMN_BYTES = 64
SCANS_AT_ONCE = 2
# Rows of an axis from which on a block has a number of them that does not divide it, as a multiple
# of that number: an eighth of the threads at most do nothing.
MIN_UNEVEN_BLOCKS = 8


@dataclass(frozen=True)
class BlockRows:
    """The rows of one block: `side` threads side by side along the row axis `axis`, each of which
    has `lanes` neighbouring rows. One row a block has `side` and `lanes` 1.

    axis: None if the block has one row
    registers: of a thread, for what it holds of one of its rows: 64 // 4 = 16 with 4 lanes
    threads: of each row, where these are neighbours in a warp; 0 elsewhere
    """

    axis: Node | None
    side: int
    lanes: int
    registers: int
    threads: int = 0


@dataclass(frozen=True)
class Sharing:
    """How the threads of a block share the loops inside its rows.

    rows: those of the block
    is_across: neighbours in memory lie along the rows, not along the loops
    min_threads_of_row: threads that a loop keeps where a thread takes several neighbours along it:
        32 leave a loop of 64 elements 2 neighbours a thread, not 4
    min_threads: of a block
    is_scan: is a loop a scan, whose threads exchange sums at each step?
    tile_rows: of a register tile of rows, which a thread sums side by side; 1 without such a tile
    accesses: that a thread makes, if registers hold them before it computes
    at_once: elements that it reads before it computes at least, whatever an access has
    held: the loads whose elements registers hold: those that several passes over a row need; if
        there are none all loads, so that a thread has its reads under way at once
    is_read_again: are `held` those of several passes?
    kept: the values that a row in registers keeps from a pass to the next
    """

    rows: BlockRows
    is_across: bool
    min_threads_of_row: int
    min_threads: int
    is_scan: bool
    tile_rows: int
    accesses: int
    at_once: int
    held: list[Node]
    is_read_again: bool
    kept: list[Node]


@dataclass(frozen=True)
class _Division:
    """How many threads a block has, for all of its rows, and how many elements of a row each of
    them can hold in registers."""

    threads: int
    max_elements: int

    def threads_of_row(self, rows: BlockRows) -> int:
        """The threads that share one row, or the `lanes` neighbouring ones of each thread."""
        return self.threads // rows.side

    def holds(self, size: int, rows: BlockRows) -> bool:
        """Do registers hold a whole row of `size` elements?"""
        return size <= self.threads_of_row(rows) * self.max_elements


def shared_axes(plan: GpuPlanner, shortest: int) -> list[Node]:
    """For each loop inside the rows, which has all axes of a reduction or of the columns, the axis
    that threads share, each axis once. Empty if a loop must run in order (but for a lone scan),
    which would leave it to one thread, or if no loop has `shortest` steps along all of its axes
    together, as a thread for each row is then better.

    For a softmax over (64, 4096) it is the axis of 4096, which its three loops have in common.
    """
    if not _may_share(plan):
        return []
    loops = _loops_of_rows(plan)
    warp = plan.target.warp
    if max(map(points, loops), default=0) < shortest:
        return []

    def worth(axis: Node) -> tuple[int, int, int]:
        """The threads of a warp that it fills come first, then how well accesses suit it, then
        its size."""
        return min(axis.arg.size, warp), score(plan.kernel, axis), axis.arg.size

    best = [max(axes, key=worth) for axes in loops]
    return list(dict.fromkeys(best))


def _may_share(plan: GpuPlanner) -> bool:
    """Can threads share the loops inside the rows? Not if one must run in order. Of such loops they
    can share a scan over one axis, if it is the only loop."""
    loops = plan.inner()
    is_one_axis = len(loops) == 1 and len(loops[0]) == 1
    if is_one_axis and plan.kernel.of(Op.LOOP_SCAN):
        return True
    in_order = serial_axes(plan.kernel)
    return all(in_order.isdisjoint(axes) for axes in loops)


def _loops_of_rows(plan: GpuPlanner) -> list[Axes]:
    """The axes of each loop that stands in the body of the rows, and not in another loop there.

    Threads cannot share a reduction inside a loop of columns, as each of them has other iterations
    of that loop: of ``y[i, j] = max(x[i, j] - sum_k(a[i, j, k]), 0)`` with rows i they share j, and
    each of them runs through all k. A loop over k in the body of the rows, beside that, is left out
    too: a binding is one of the axis, so that threads would share both.
    """
    rows = set(plan.kernel.row_axes)
    reductions = plan.kernel.of(Op.LOOP_REDUCE)
    inside_another = {
        plan.outside_tile(bound_axes(node)) for node in reductions if not free_axes(node) <= rows
    }
    return [axes for axes in plan.inner() if axes not in inside_another]


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


def _rows_of_block(plan: GpuPlanner, shared: list[Node], across: Node | None) -> BlockRows:
    """The rows of one block; see `schedule_block_per_row` for `shared` and `across`."""
    if across is not None:
        return _rows_across(plan, across)
    if plan.rows:
        longest = max(shared, key=lambda axis: int(axis.arg.size))
        return _rows_in_warps(plan, longest) or _short_rows(plan, longest.arg.size)
    return _one_row(plan)


def _one_row(plan: GpuPlanner) -> BlockRows:
    """The row of a block that has no other."""
    return BlockRows(None, side=1, lanes=1, registers=plan.for_each_point(plan.knobs.row_registers))


def _rows_across(plan: GpuPlanner, across: Node) -> BlockRows:
    """Rows of one block that are neighbours in memory along `across`: 8 threads side by side
    (`knobs.strip_threads`) with an access of neighbours each, 32 rows of float32; one row if there
    are too few for that.

    Fewer rows in a block are more blocks. Threads side by side are halved, down to 2, while twice
    as many blocks are no more than there are multiprocessors: of 1024 rows, 32 each are 32 blocks,
    so that on 132 multiprocessors a block has 8 rows, in 2 threads, and there are 128 blocks. Of a
    scan each thread has one row (`_columns_of_scan`).
    """
    row_count = points(plan.rows)
    if serial_axes(plan.kernel):
        side, lanes = _columns_of_scan(plan, across), 1
    else:
        side = plan.knobs.strip_threads
        lanes = plan.aligned_lanes(across, side)
    if across.arg.size < side * lanes:
        return _one_row(plan)
    while side > 2 and 2 * row_count / (side * lanes) <= plan.target.multiprocessors:
        side //= 2
    registers = plan.for_each_point(plan.knobs.row_registers // lanes)
    return BlockRows(across, side, lanes, registers)


def _rows_in_warps(plan: GpuPlanner, longest: Node) -> BlockRows | None:
    """Rows of one block, each of which a few neighbouring threads of a warp share along `longest`:
    they hold its elements, and a reduction is exchanges within the warp, without a barrier. None
    where rows are too long for that.

    Rows of 64 elements of float32, whose accesses have 4: 16 threads, or 8 where that leaves enough
    of them, and then 32 rows in a block of 256. Of (578536, 15) elements, an access each, a row has
    4 threads, of which the last one has 3.
    """
    if plan.register_tile and not plan.has_row_tile:
        return None
    size, registers = longest.arg.size, plan.for_each_point(plan.knobs.row_registers)
    lanes = plan.aligned_lanes(longest, 1)
    held = needed_again(plan.kernel, {Op.LOAD}) or plan.kernel.of(Op.LOAD)
    max_elements = max(registers // max(_registers_of_element(held, longest), MIN_HELD), 1)
    if not serial_axes(plan.kernel).isdisjoint([longest]):
        lanes, accesses = _neighbours_of_scan(size, lanes, max_elements), 1
    else:
        accesses = max(min(max(ACCESSES, ELEMENTS_IN_WARP // lanes), max_elements // lanes), 1)
    threads = _threads_of_short_row(plan, ceil(size / lanes), accesses)
    warp = plan.target.warp
    if threads > warp:
        return None
    side = min(SHORT_BLOCK // threads, points(plan.rows) // BUSY_BLOCKS)
    side = min(max(side, warp // threads), warp)
    row, side = _row_of_block(plan, side, uneven=True)
    return BlockRows(row, side, lanes=1, registers=registers, threads=threads)


def _threads_of_short_row(plan: GpuPlanner, accesses_of_row: int, accesses: int) -> int:
    """The threads that share a row: a power of two. One for each access of the row, or fewer with
    up to so many `accesses` each, as long as all multiprocessors have all threads that they can."""
    threads = power_of_two_from(accesses_of_row)
    fewest = power_of_two_from(ceil(accesses_of_row / accesses))
    enough = plan.target.multiprocessors * RESIDENT
    while threads > fewest and points(plan.rows) * threads >= 2 * enough:
        threads //= 2
    return threads


def _columns_of_scan(plan: GpuPlanner, across: Node) -> int:
    """The columns of one block that scans down them, a thread side by side for each: as many as
    COLUMN_BYTES hold, half of that where blocks would be too few, and `knobs.strip_threads` where
    there are no more.

    With neighbouring columns of one thread, each of these would be a scan with exchanges and
    barriers of its own, one after the other. Sums down 4134 rows of 896 columns of bfloat16 took 6
    steps of 768 rows so, each with 8 scans, which is predicted to take 48 us; by 16 threads side by
    side they are 17 steps of 256 rows, and 15 us.
    """
    side = COLUMN_BYTES // plan.itemsize
    blocks = points(plan.rows) / side
    if blocks < SCANS_AT_ONCE * plan.target.multiprocessors:
        side //= 2
    if across.arg.size < side:
        side = min(side, plan.knobs.strip_threads)
    return side


def _row_of_block(plan: GpuPlanner, side: int, *, uneven: bool = False) -> tuple[Node, int]:
    """The row axis along which a block has several rows, and how many: the largest power of two
    that is not above `side` and that divides an axis, the last one that allows as many.

    uneven: may it cut a long axis that it does not divide? Of 189,619 rows 32 are in a block then
    """
    power_of_two = power_of_two_up_to(side)

    def rows_along(axis: Node) -> int:
        is_long = axis.arg.size >= MIN_UNEVEN_BLOCKS * power_of_two
        return power_of_two if uneven and is_long else gcd(power_of_two, axis.arg.size)

    row = max(reversed(plan.rows), key=rows_along)  # the first of equal ones
    return row, rows_along(row)


def _short_rows(plan: GpuPlanner, longest: int) -> BlockRows:
    """Rows of one block whose loops, of `longest` elements at most, walk neighbours in memory: as
    many as a block reads at once, but 16 at most (twice `knobs.strip_threads`), and no more than
    leave BUSY_BLOCKS blocks.

    Rows of 64 elements of float32, whose accesses have 4: 256 threads read 256 * 4 // 64 = 16 rows
    at once. Rows of 4096 elements have a block each. Of (64, 68, 99) rows of 58 elements of
    bfloat16 16 along the first axis are in a block: 430,848 blocks of one, 32 threads each, took an
    H200 263 us.
    """
    read_at_once = SHORT_BLOCK * plan.width // longest
    if plan.register_tile and not plan.has_row_tile:
        # Threads have one neighbour each, and a warp is best along the loop.
        read_at_once = plan.target.warp // longest
    leave_enough_blocks = points(plan.rows) // BUSY_BLOCKS
    side = max(min(read_at_once, leave_enough_blocks, 2 * plan.knobs.strip_threads), 1)
    row, side = _row_of_block(plan, side)
    return BlockRows(row, side, lanes=1, registers=plan.for_each_point(plan.knobs.row_registers))


def _sharing(plan: GpuPlanner, shared: list[Node], across: Node | None, rows: BlockRows) -> Sharing:
    """How the threads of a block with these rows share the loops; see `schedule_block_per_row`."""
    warp = plan.target.warp
    is_few = points(plan.rows) < BUSY_BLOCKS
    is_scan = not serial_axes(plan.kernel).isdisjoint(shared)
    # A scan's exchanges take long, so that its threads take as many elements as registers allow: 2
    # accesses for each of 32 reductions are more than these hold.
    monoids = [node.arg.monoid for node in plan.kernel.of(Op.LOOP_REDUCE)]
    exchanges = sum(COMPOUND if monoid.op is None else 1 for monoid in monoids)
    tile_rows = points(plan.register_tile) if plan.has_row_tile else 1
    exchanges *= tile_rows
    read_again = needed_again(plan.kernel, {Op.LOAD})
    return Sharing(
        rows,
        is_across=across is not None,
        # Several short rows fill a warp together, so that a thread may take whole accesses of one.
        min_threads_of_row=1 if rows.threads or (across is None and rows.side > 1) else warp,
        # Few blocks have many threads each, so that enough reads are under way.
        min_threads=SHORT_BLOCK if rows.side > 1 or is_few else 2 * warp,
        is_scan=is_scan,
        tile_rows=tile_rows,
        accesses=ACCESSES * (warp if is_scan else exchanges),
        at_once=1 if across is not None or is_few else ACCESSES * plan.width,
        held=read_again or plan.kernel.of(Op.LOAD),
        is_read_again=bool(read_again),
        kept=kept_between_passes(plan.kernel),
    )


def _share(plan: GpuPlanner, axis: Node, sharing: Sharing) -> None:
    """Bind `axis`, a loop inside the rows, to threads, each with `lanes` neighbours at a time.

    256 threads with 8 lanes take 2048 elements in a step. A row of 2048 is one step. A row of 8192
    that several passes read is 4 unrolled steps if a thread can hold its 32 elements in registers.
    If it cannot, the loop is not split: the printer's goes in steps of the threads, and every pass
    reads the row again. A scan has a loop of whole steps then, as it needs all threads of the block
    in each: they exchange what they have.
    """
    size, rows = axis.arg.size, sharing.rows
    lanes = plan.aligned_lanes(axis, sharing.min_threads_of_row)
    held = _registers_of_element(sharing.held, axis)
    if sharing.is_scan:
        lanes = _neighbours_of_scan(size, lanes, _max_elements(held, rows))
    kept = _registers_of_element(sharing.kept, axis)
    division = _division(size, lanes, held, kept, sharing)
    if division is None:
        # Every pass reads the row again. Neighbours across the rows are one access already, and a
        # thread has two of these, one below the other, so that enough reads are under way.
        if sharing.is_across:
            lanes = gcd(size, 2)
    elif (held or sharing.is_scan) and division.threads_of_row(rows) * lanes < size:
        steps, axis = plan.split(axis, division.threads_of_row(rows) * lanes)
        if division.holds(size, rows):
            plan.bind(steps, "unroll")
    plan.bind(plan.tile(axis, lanes, "unroll"), "thread")


def _registers_of_element(values: list[Node], axis: Node) -> int:
    """The registers that hold `values` for each element along `axis`. A register has 4 bytes, so
    that an element of 8 takes two."""
    along = [value for value in values if axis in free_axes(value)]
    return sum(max(value.dtype.itemsize // 4, 1) for value in along)


def _neighbours_of_scan(size: int, lanes: int, max_elements: int) -> int:
    """Neighbours of each thread along a scan of `size` steps, which they divide (see
    `loops/verify.py`): the `lanes` of an access, or more where these are few, whole accesses where
    they divide the row. Of 835 float32, which begin within an access, a thread has 5."""
    of_access = gcd(lanes, size)
    if of_access >= MIN_NEIGHBOURS:
        return of_access
    max_count = max(min(MAX_NEIGHBOURS, max_elements), of_access)
    whole_accesses = gcd(size, power_of_two_up_to(max_count))
    if whole_accesses >= MIN_NEIGHBOURS:
        return whole_accesses
    return first_divisor(size, range(max_count, 0, -1), 1)


def _division(
    size: int, lanes: int, held: int, kept: int, sharing: Sharing
) -> _Division | None:
    """How a block divides its rows of `size` elements among its threads. None where no block holds
    the row in registers: the printer then chooses the threads (`_block_threads` of
    targets/threads.py), and each pass reads the row again.

    held: registers for each element of a row that the schedule has a use for; 0 if there is none
    kept: those for what is kept of an element from a pass to the next; one for ``v / rms(v)`` with
        v = x[i] + y[i], where `held` is two

    Rows that are too long for a block of a few elements a thread are tried again in the largest
    blocks, with as many elements a thread as registers hold.
    """
    few_elements = _division_of_accesses(size, lanes, held, sharing)
    if few_elements is not None:
        return few_elements
    if sharing.tile_rows > 1 and not (sharing.is_read_again or sharing.is_across):
        return _division_in_steps(size, lanes, sharing)
    fewest = min(held, kept) or held
    for block in _largest_blocks(fewest, sharing):
        # The loop over the steps of a scan needs no whole row in registers.
        if sharing.is_scan or block.holds(size, sharing.rows):
            return block
    return None


def _division_in_steps(size: int, lanes: int, sharing: Sharing) -> _Division:
    """The block for rows of a register tile whose sums leave no room for elements: its threads have
    `sharing.accesses` accesses each, one after the other, so that few exchange each of many sums.

    25 sums over 2160 elements, 8 in an access, are 2 * 25 accesses a thread: 8 threads, or the 64
    that a block has at least.
    """
    wanted = ceil(size / (sharing.accesses * lanes)) * sharing.rows.side
    threads = max(power_of_two_from(wanted), sharing.min_threads)
    return _Division(min(threads, LONG_BLOCK), max_elements=0)


def _max_elements(held: int, rows: BlockRows) -> int:
    """The elements of a row that a thread can hold: with 64 registers and up to 2 of them for each
    element 32, with 3 of them 21."""
    return max(rows.registers // max(held, MIN_HELD), 1)


def _division_of_accesses(size: int, lanes: int, held: int, sharing: Sharing) -> _Division | None:
    """The block whose threads have `sharing.accesses` accesses each, or fewer if registers hold
    less; threads are a power of two. None if it would have too many threads, or too many elements
    for several blocks to share a multiprocessor.

    4096 elements of bfloat16, 8 lanes, one reduction over them: a thread takes 2 * 8 = 16 elements,
    and 256 threads the row.
    """
    side = sharing.rows.side
    max_elements = _max_elements(held, sharing.rows)
    if sharing.rows.threads:
        return _Division(sharing.rows.threads * side, max_elements)
    elements = min(max(sharing.accesses * lanes, sharing.at_once), max_elements)
    wanted = ceil(size / elements) * side
    threads = max(power_of_two_from(wanted), sharing.min_threads)
    max_threads = LARGEST_BLOCK if side == 1 else LONG_BLOCK
    if threads > max_threads or threads * elements > MAX_ELEMENTS:
        return None
    return _Division(threads, max_elements)


def _largest_blocks(held: int, sharing: Sharing) -> Iterator[_Division]:
    """The blocks for rows that are too long for `_division_of_accesses`, those of fewer threads
    first.

    A row that is read again and has its block to itself may have all registers of the threads, 64
    words a thread of LONG_BLOCK (`knobs.row_registers`): such a block may be alone on a
    multiprocessor. A thread of LARGEST_BLOCK has 65,536 / 1024 = 64 registers in all, and an eighth
    of these is left for everything else: 56 words, 57,344 in the block.
    """
    rows = sharing.rows
    if sharing.is_scan or not (sharing.is_read_again and held and rows.side == 1):
        yield _Division(LONG_BLOCK, _max_elements(held, rows))
        return
    yield _Division(LONG_BLOCK, rows.registers // held)
    yield _Division(LARGEST_BLOCK, 7 * rows.registers // (8 * held))
