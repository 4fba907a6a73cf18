"""Reductions along a row of vectors, along the reduced axis itself, and blocks of dot products."""

from collections.abc import Collection, Iterable
from math import ceil

from lamina.core.integers import divisors, power_of_two_from, power_of_two_up_to
from lamina.graph import index as ix
from lamina.graph.split_reductions import MIN_PANEL
from lamina.ir.kernel import Kernel, bound_axes, free_axes, loads_beneath, needed_again, points
from lamina.ir.node import Node, toposort
from lamina.ir.ops import Group, Op
from lamina.loops.moves import Accumulate
from lamina.loops.nest import Axes, is_far, scans_along, serial_axes, sums_bytes
from lamina.schedule.cost.footprint import region
from lamina.schedule.cost.operations import registers_of
from lamina.schedule.cpu.planner import CacheBlock, CpuPlanner
from lamina.schedule.planner import loads_along, store_score

# Bytes of a row from which on their products are added up in words of four: two words. An estimate.
MIN_BYTES = 8

# Blocks of 8 rows (`knobs.rows_at_once`) from which on rows are reduced in blocks. An estimate: of
# fewer, threads have few to share, and the rows that no block has count for more.
MIN_ROW_BLOCKS = 8

# Dot products of a block along two axes, by bytes of a vector: 6 x 4 sums, 6 vectors of one operand
# and one of the other are 31 of 32 registers, and 3 x 3 sums with 3 and one vector 13 of 16.
DOT_TILES = {64: (6, 4), 32: (3, 3), 16: (3, 3)}

# Registers for vectors, by their bytes.
REGISTERS = {64: 32, 32: 16, 16: 16}

# How much more than one of its rows a window may read, for its rows to be reduced at once: 1.5
# times as much. An estimate: 3 rows that read nothing in common read 3 times as much.
MORE_OF_WINDOW = 1.5

# Sums of a window that are in registers at once: 12 of the 16 of AVX2, where two operands and a
# mask take three more. As many where there are 32, as more sums make a long text: windows of 3 x 3
# and rows of windows up to 12 fit. Not measured.
SUMS_OF_WINDOW = 12

# Columns that a processor reads from memory in the time in which it begins with the next row of a
# panel. Of rows of 16,384 elements one core of a Zen 4 read panels of 512 columns in 1.5 times the
# time of whole rows, of 1024 in 1.25, and of 2048 in 1.1. What the third-level cache has comes
# sooner: two cores read 1024 rows of 4096 columns in panels of 2048 and of 512 in 0.12 ms and 0.14.
START_IN_MEMORY = 256
START_IN_CACHE = 64

# Bytes of a page of memory: weights of 49,152 rows of 612 bytes were read at 9.0 GB/s by one core
# where two rows at a time lay in two pages, at 4.7 to 6.5 where they were neighbours (measured).
PAGE = 4096


def schedule_row_vectors(plan: CpuPlanner, vector: Node) -> bool:
    """Vectors along `vector` for reductions that read row after row, several vectors at a time.
    False, and nothing is done, where lanes lie apart, or there is one vector for each thread.

    For ``y[j] = sum_k x[k, j]`` with j in `vector` and 16 lanes, 8 vectors side by side read 512
    bytes of each row k::

        strips of 128 columns
          k
            8 vectors of 16 columns     unrolled, each with a sum in a register

    Of x with 4096 x 4096 elements, whose rows are far apart, blocks of 8 rows and 2048 columns are
    added to the result one after the other: `accumulated_block`.
    """
    reductions = plan.kernel.of(Op.LOOP_REDUCE)
    if not reductions:
        return False
    # The first one has such a block only if it is the one that is stored: see `accumulates`.
    block = accumulated_block(plan, reductions[0], vector, reuse=1)
    if block is not None:
        _accumulate_blocks(plan, reductions[0], vector, block)
        return True
    sums = tile_windows(plan, vector)
    vectors = max(_vectors_of_strip(plan, vector) // sums, 1)
    if vectors == 1 or plan.benefit(vector) < 0:
        return False
    _, strip = plan.split(vector, vectors * plan.width)
    plan.bind(plan.tile(strip, plan.width, "vector"), "unroll")
    return True


def _vectors_of_strip(plan: CpuPlanner, vector: Node) -> int:
    """The vectors side by side along `vector`: up to 8 (`knobs.strip_vectors`), whose sums do not
    wait for one another. Each reduction has sums in registers, and an argmax a maximum and a place
    of 8 bytes in three: 2 vectors. Each thread has as many strips, and strips are about as long as
    one another: 18 vectors are 3 strips of 6 for one thread, and for two 4 strips of 5, the last of
    3."""
    reductions = plan.kernel.of(Op.LOOP_REDUCE)
    steps = sum(points(bound_axes(reduction)) for reduction in reductions)
    rows = points(plan.rows)
    in_vectors = 2 * rows * steps // plan.width  # a load and an addition for each vector
    threads = min(plan.target.multiprocessors, in_vectors // plan.knobs.shared_instructions)
    columns: int = vector.arg.size
    sharing = max(threads * columns // rows, 1)  # threads, which share other rows first
    vectors = columns // plan.width
    longest = max(plan.knobs.strip_vectors // _registers_of_sums(plan, reductions), 1)
    strips = sharing * ceil(vectors / (sharing * longest))
    return ceil(vectors / strips) if vectors else 1


def _registers_of_sums(plan: CpuPlanner, reductions: Iterable[Node]) -> int:
    """The registers in which all reductions keep a vector of sums, those of an argmax its maximum
    and its place together: 16 lanes of int64 are two registers of 64 bytes."""
    loops = {(node.arg.monoid, node.src) for node in reductions}
    sums = [operand for monoid, operands in loops for operand in operands[: monoid.arity]]
    return sum(registers_of(plan.width, each.dtype, plan.target.vector_bytes) for each in sums)


def _accumulate_blocks(plan: CpuPlanner, reduction: Node, vector: Node, block: CacheBlock) -> None:
    """Add up the steps of a reduction block by block in the result, along panels of the axis
    `vector`, which has the columns.

    The loops, outermost first, for 4096 columns and 2 threads::

        panels of 2048 columns
          blocks of 8 steps               the result accumulates their sums
            128 vectors of 16 columns
              8 steps                     unrolled
    """
    loops: list[Node] = []
    columns = vector
    if block.columns < vector.arg.size:
        panels, columns = plan.split(vector, block.columns)
        loops.append(panels)
    outer_steps, step = plan.split(bound_axes(reduction)[0], block.steps)
    plan.reorder([*loops, outer_steps, columns])
    plan.vectorize(columns)
    plan.bind(step, "unroll")
    plan.do(Accumulate(outer_steps.arg.number))


def accumulated_block(
    plan: CpuPlanner, reduction: Node, vector: Node, reuse: int
) -> CacheBlock | None:
    """The block, columns of `vector` and steps of `reduction`, after which partial sums go to the
    result: for reductions whose next step is a distant cache line of a large operand, of which a
    block reads a longer piece. None if these are not distant, or no block divides both axes.

    reuse: how often a loaded element is used

    For the sums down the columns of an array of 512 x 4096, with `reuse` 1 and two threads: 2048
    columns and 8 steps.
    """
    steps = _accumulated_steps(plan, bound_axes(reduction)[0].arg.size, reuse)
    if steps is None or not plan.reads_distant_lines(reduction, vector, steps):
        return None
    columns = _accumulated_columns(plan, reduction, vector, reuse)
    return None if columns is None else CacheBlock(columns, steps)


def _accumulated_columns(
    plan: CpuPlanner, reduction: Node, vector: Node, reuse: int
) -> int | None:
    """Columns of a panel, of those that divide all columns: those with which the busiest thread is
    done first. None if none divide them, or if strips of a few vectors, of which there are more for
    threads to share, are done before.

    A processor reads along a row ahead of the program, and begins anew with each row of a panel.
    One thread has all of 4096 columns, and reads memory from end to end; two have 2048 each.
    """
    size: int = vector.arg.size
    threads = plan.target.multiprocessors
    reused = plan.reused_rows(reduction, vector)
    outside = points([row for row in plan.rows if row is not vector and row not in reused])
    loads = loads_along(reduction, vector)
    in_memory = any(is_far(plan.kernel.parameters[load.arg.parameter]) for load in loads)
    start = START_IN_MEMORY if in_memory else START_IN_CACHE
    widest = plan.knobs.accumulated_columns if in_memory else plan.knobs.accumulated_columns // 4
    widest = max(widest // reuse, MIN_PANEL)
    strip = plan.knobs.strip_vectors * plan.width

    def time_of_busiest(columns: int) -> float:
        """In the time of one thread that reads everything from end to end."""
        chunks = outside * ceil(size / columns)
        starts = 1 + (columns % plan.width).bit_count()  # one for each shorter vector
        return ceil(chunks / threads) / chunks * (1 + starts * start / columns)

    narrowest = min(MIN_PANEL, size)
    widest_first = reversed(divisors(size))
    fitting = [columns for columns in widest_first if narrowest <= columns <= widest]
    columns = min((*fitting, strip), key=time_of_busiest)
    return columns if columns in fitting else None


def _accumulated_steps(plan: CpuPlanner, size: int, reuse: int) -> int | None:
    """Steps of a block, of those that divide a reduction of `size` steps: the more, the more often
    a loaded element is used, from a power of two between 8 and 32 (1/8 and 1/2 of
    `knobs.block_lines`) up to twice that. With 20 uses there are 16 of 4096 steps, and 18 of 3006.
    None if none divide it."""
    min_steps, max_steps = max(plan.knobs.block_lines // 8, 1), max(plan.knobs.block_lines // 2, 1)
    fewest = min(max(power_of_two_up_to(reuse), min_steps), max_steps)
    return next((steps for steps in range(fewest, 2 * fewest + 1) if size % steps == 0), None)


def tile_dot_products(plan: CpuPlanner, reduction: Node) -> None:
    """Unroll a block of rows around the dot products of `reduction`, whose vectors run along its
    steps. For ``y[i, j] = sum_k a[i, k] * b[j, k]`` with more i than j these are 6 rows i and 4
    rows j, whose 24 sums are vectors in registers: 6 + 4 vectors are read for 24 multiply-adds.

    The longest axis is the outer loop, so that the larger operand is read once.
    """
    longest_first = sorted(plan.rows, key=lambda axis: -axis.arg.size)
    rows = _longest_by_factor(reduction, longest_first)
    height, width = DOT_TILES[plan.target.vector_bytes]
    # Two axes are tiled, or one where the other factor has no axis for itself alone.
    pairs = zip(rows, (plan.knobs.tile_rows or height, width), strict=False)
    plan.reorder([plan.tile(row, size, "unroll") for row, size in pairs])


def tile_row_reductions(plan: CpuPlanner) -> bool:
    """Unroll a block of rows around reductions along each row, which share no operands: for
    ``y[i] = sum_k x[i, k]`` 8 rows at a time, whose sums do not wait for one another. False, and
    nothing is done, where other loops are inside the rows, or where rows are few.

    They are rows whose results are neighbours, where these are enough: of ``y[b, h, j] = sum_d q[b,
    h, d] * k[b, j, h, d]`` with 72 b and 64 j blocks of j took 88 us, and of b, whose k lie 98 KB
    apart, 234 (two threads of a Zen 4).

    The processor reads ahead of one place in each page of memory. Of short rows those of a block
    lie a page apart: of rows of 612 bytes, rows i, i + 8, i + 16 and i + 24 of 32."""
    if not has_reductions_alone(plan):
        return False
    long_rows = [
        axis for axis in plan.rows if axis.arg.size >= MIN_ROW_BLOCKS * plan.knobs.rows_at_once
    ]
    if not long_rows:
        return False
    row = max(long_rows, key=lambda axis: (store_score(plan.kernel, axis), axis.arg.size))
    height = _rows_in_registers(plan, row)
    apart = _rows_of_page(plan, row)
    if apart == 1 or row.arg.size % (height * apart):
        plan.reorder([plan.tile(row, height, "unroll")])
        return True
    _, block = plan.split(row, height * apart)
    places, rows = plan.split(block, apart)
    plan.bind(places, "unroll")
    plan.reorder([rows, places])
    return True


def tile_windows(plan: CpuPlanner, vector: Node | None = None) -> int:
    """Unroll the rows around reductions that read nearly the same elements, such as those of the
    gradient of a depthwise filter of 3 x 3::

        w[c, i, j] = sum_{y, x} g[c, y, x] * image[c, y + i, x + j]

    All 9 sums of a channel are in registers, g is read once for these, and the image stays in a
    near cache: one sum after another reads both arrays 9 times. Gives how many rows are unrolled
    together: 1 where none read the same, or other loops are inside the rows.

    vector: the row axis that is to have the vectors, c here where that is last in memory; None if
        they run along the reduction
    """
    if not has_reductions_alone(plan):
        return 1
    windows = [row for row in plan.rows if row is not vector and _reads_again(plan, row)]
    if not windows:
        return 1
    reductions = plan.kernel.of(Op.LOOP_REDUCE)
    rows, loops = 1, list[Node]()
    for row in reversed(windows):  # the innermost first: its neighbours share cache lines
        room = max(SUMS_OF_WINDOW // len(reductions) // rows, 1)
        blocks = ceil(row.arg.size / room)
        height = ceil(row.arg.size / blocks)
        loops.insert(0, _unrolled(plan, row, height))
        rows *= height
    plan.reorder(loops)
    return rows


def _reads_again(plan: CpuPlanner, row: Node) -> bool:
    """Do all elements of `row` together read hardly more than one of them, up to MORE_OF_WINDOW
    times as much? Of 56 x 56 elements that meet a window of 3 rows the other array has 58 rows."""
    elements_of_one, elements_of_all = 0, 0
    for reduction in plan.kernel.of(Op.LOOP_REDUCE):
        steps = frozenset(bound_axes(reduction))
        for load in toposort(reduction.src):
            if load.op is Op.LOAD:
                elements_of_one += _elements(plan, load, steps)
                elements_of_all += _elements(plan, load, steps | {row})
    return elements_of_all <= MORE_OF_WINDOW * elements_of_one


def _elements(plan: CpuPlanner, load: Node, axes: frozenset[Node]) -> int:
    """How many elements `load` reads while `axes` walk."""
    size = plan.kernel.parameters[load.arg.parameter].size
    return region(plan.nest, load.src[0], load.dtype.itemsize, axes, size).elements()


def _unrolled(plan: CpuPlanner, row: Node, height: int) -> Node:
    """The loop over blocks of `height` of `row`, each of which is unrolled; `row` where this is
    unrolled as a whole."""
    if height == row.arg.size:
        plan.bind(row, "unroll")
        return row
    return plan.tile(row, height, "unroll")


def _rows_in_registers(plan: CpuPlanner, row: Node) -> int:
    """How many elements of `row` are reduced at once: a power of two, and at most 8
    (`knobs.rows_at_once`).

    Half of the registers are for the sums, and for what the innermost loop reads and only loops
    around it change, such as the scales of blocks of weights: one sum and one scale of 4 rows are 8
    of 16 registers."""
    reductions = plan.kernel.of(Op.LOOP_REDUCE)
    innermost = {bound_axes(reduction)[-1] for reduction in reductions}
    scales: set[Node] = set()
    for node in plan.kernel.nodes:
        if not innermost.isdisjoint(free_axes(node)):
            outside = (operand for operand in node.src if innermost.isdisjoint(free_axes(operand)))
            along_row = (operand for operand in outside if row in free_axes(operand))
            scales.update(filter(_is_number, along_row))
    max_rows = REGISTERS[plan.target.vector_bytes] // 2 // (len(reductions) + len(scales))
    max_rows = min(max_rows, max(1, plan.knobs.rows_at_once // len(reductions)))
    return power_of_two_up_to(max(max_rows, 1))


def _is_number(node: Node) -> bool:
    """Is `node` a value, and no part of an index?"""
    return node.dtype.is_float


def _rows_of_page(plan: CpuPlanner, row: Node) -> int:
    """The neighbours along `row` of which the largest array has a page: a power of two; 1 where a
    row fills one, and where neighbours do not follow one another there."""
    loads = [load for load in plan.kernel.of(Op.LOAD) if row in free_axes(load)]
    largest = max(loads, key=lambda load: points(free_axes(load)), default=None)
    if largest is None:
        return 1
    terms, _ = ix.terms_of(largest.src[0])
    row_bytes = abs(terms.get(row, 0)) * largest.dtype.itemsize
    if row_bytes == 0 or row_bytes >= PAGE:
        return 1
    return power_of_two_from(ceil(PAGE / row_bytes))


def has_reductions_alone(plan: CpuPlanner) -> bool:
    """Are reductions over the same axes all that runs inside the rows? A softmax and a scan have
    loops over columns, too: they have results along the axis that they reduce or scan."""
    has_columns = any(len(store.axes) > plan.kernel.rows for store in plan.kernel.stores)
    return len(plan.inner()) == 1 and not has_columns


def has_short_passes(plan: CpuPlanner, vectors: Collection[Node]) -> bool:
    """Is this a softmax, say, of many short rows: several passes over at most `knobs.unroll`
    vectors, of which later ones need exponentials again? Each pass waits until lanes are combined
    at the end of the one before, and other rows fill that time: of 4096 rows of 32 elements a
    softmax took a Zen 4 144 us row by row, and 108 with 4 rows at a time."""
    if plan.kernel.blocks or plan.kernel.of(Op.LOOP_SCAN) or not vectors or not plan.rows:
        return False
    is_short = all(axis.arg.size <= plan.knobs.unroll * plan.width for axis in vectors)
    has_one_axis = all(len(axes) == 1 for axes in plan.inner())
    has_many_rows = plan.rows[-1].arg.size >= MIN_ROW_BLOCKS * plan.knobs.rows_at_once
    is_needed_again = bool(needed_again(plan.kernel, Group.TRANSCENDENTAL))
    return is_short and has_one_axis and has_many_rows and is_needed_again


def _longest_by_factor(reduction: Node, rows: Iterable[Node]) -> list[Node]:
    """Of each factor the first of `rows` along which it varies and others are reused, where rows
    come in the order of their length: of 64 products of 32 rows and 48 columns each the columns,
    then the rows. The 64 are left out, as both factors vary along them."""
    loads = loads_beneath(reduction.src)
    longest: dict[frozenset[Node], Node] = {}  # by the loads of a factor
    for axis in rows:
        varying = frozenset(load for load in loads if axis in free_axes(load))
        if 0 < len(varying) < len(loads):
            longest.setdefault(varying, axis)
    return list(longest.values())


def vectorize_inner(plan: CpuPlanner, vectors: Collection[Node], *, is_tiled: bool) -> None:
    """Vectors along the axes `vectors` of reductions and column loops, with independent sums unless
    a tile of rows (`is_tiled`) has some. Each step of a scan without lanes waits for the one
    before, so several rows of such scans are computed together.

    A sum of 1000 elements with vectors of 16 lanes: 15 steps of 4 vectors, each vector with sums
    of its own, and a tail of 40.
    """
    scanned = {axis for scan in plan.kernel.of(Op.LOOP_SCAN) for axis in bound_axes(scan)}
    if scanned and scanned.isdisjoint(vectors) and plan.rows:
        plan.tile(plan.rows[-1], plan.knobs.unroll, "unroll")
    sums = plan.knobs.unroll * plan.width  # independent ones: 4 vectors of 16
    for best in vectors:
        axis = _words_of(plan, best)
        if axis.arg.reduce and not is_tiled and axis.arg.size >= sums:
            _, step = plan.split(axis, sums)
            vectors_of_step = plan.tile(step, plan.width, "vector")
            plan.bind(vectors_of_step, "unroll")
        else:
            plan.vectorize(axis)


def inner_vectors(plan: CpuPlanner) -> list[Node]:
    """The best axis of each reduction, scan and column loop for vectors, if one gains anything."""
    serial = serial_axes(plan.kernel)
    along = scans_along(plan.kernel)
    if len(along) == 1:
        serial -= along
    vectors: list[Node] = []
    for axes in plan.inner():
        axis = _best_axis(plan, axes, serial, vectors)
        if axis is not None and plan.benefit(axis) > 0:
            vectors.append(axis)
    return vectors


def _best_axis(
    plan: CpuPlanner, axes: Axes, serial: frozenset[Node], vectors: Collection[Node]
) -> Node | None:
    """The axis of `axes` that gains most by vectors, if any may have them: not a serial one, and
    none that some value depends on together with one of `vectors`, as a reduction inside another
    loop may. The lanes of a value lie along one axis."""
    excluded = set(serial)
    for free in map(free_axes, plan.kernel.nodes):
        if not free.isdisjoint(vectors):
            excluded |= free
    candidates = (axis for axis in axes if axis not in excluded)
    return max(candidates, key=plan.benefit, default=None)


def sums_long_bytes(kernel: Kernel, reduction: Node) -> bool:
    """Is `reduction` a sum of products of bytes over an axis that is worth splitting into words of
    four?"""
    is_long = bound_axes(reduction)[-1].arg.size >= MIN_BYTES
    return is_long and sums_bytes(kernel, reduction)


def split_into_words(plan: CpuPlanner, reduction: Node) -> Node:
    """The contraction `reduction` with its innermost axis split into words of four bytes, which one
    instruction multiplies and adds up; as it is if it adds up no such bytes. The last word may have
    fewer."""
    if not sums_long_bytes(plan.kernel, reduction):
        return reduction
    plan.split(bound_axes(reduction)[-1], 4)
    split = plan.contraction()
    assert split is not None
    return split


def _words_of(plan: CpuPlanner, axis: Node) -> Node:
    """The axis of the words of four bytes of `axis`; `axis` itself where not every reduction over
    it adds up products of such bytes."""
    over_axis = [node for node in plan.kernel.nodes if axis in bound_axes(node)]
    is_of_bytes = all(
        node.op is Op.LOOP_REDUCE
        and bound_axes(node)[-1] is axis
        and sums_long_bytes(plan.kernel, node)
        for node in over_axis
    )
    if not over_axis or not is_of_bytes:
        return axis
    words, _ = plan.split(axis, 4)
    return words
