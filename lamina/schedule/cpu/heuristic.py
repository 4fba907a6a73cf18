"""A good schedule for a CPU without measuring, from the shape of the memory accesses alone.

1. Axes that every index walks together become one.
2. The vector axis is the one along which most loads and stores are contiguous: a row axis, or the
   innermost axis of each reduction and column loop. If that is short, lanes may be elements that
   lie apart, along another row axis, if that takes fewer instructions.
3. A reduction whose operands are used again gets a register tile: an outer product if vectors run
   along a row axis, a block of dot products if they run along the reduced axis.
4. An operand that loops would read across cache lines, or at distances at which lines compete for
   one place in a cache, is packed in panels, or read in blocks that registers transpose.
5. Row axes from the outside in run in parallel, in chunks that are worth a thread's while.
"""

from dataclasses import dataclass, replace
from itertools import permutations
from math import ceil

from lamina.core.rates import COMMON_CPU
from lamina.core.target import Target
from lamina.graph import index as ix
from lamina.ir.kernel import Kernel, bound_axes, free_axes_of, needed_again, points
from lamina.ir.node import Node
from lamina.ir.ops import Group, Op
from lamina.loops.moves import Schedule, Stage, apply
from lamina.loops.nest import dot_axes
from lamina.schedule.cost.predict import predict_time
from lamina.schedule.cpu.decoded import decoded_row, schedule_decoded
from lamina.schedule.cpu.lanes import (
    cheapest_inner,
    cheapest_row,
    distance_factor,
    instructions,
    share,
)
from lamina.schedule.cpu.maps import schedule_map, schedule_transpose
from lamina.schedule.cpu.packing import Packed, computed_from, kept_values, of_constants_along
from lamina.schedule.cpu.panels import cheapest_of, packed_axis
from lamina.schedule.cpu.planner import CpuPlanner
from lamina.schedule.cpu.products import schedule_product
from lamina.schedule.cpu.reductions import (
    has_short_passes,
    inner_vectors,
    schedule_row_vectors,
    tile_dot_products,
    tile_row_reductions,
    tile_windows,
    vectorize_inner,
)
from lamina.schedule.cpu.repacked import pack_lanes_apart
from lamina.schedule.cpu.squares import Squares, cheapest_squares, schedule_squares
from lamina.schedule.knobs import CpuKnobs
from lamina.schedule.planner import store_score, transposed_axis

# Vectors of a row, divided by as many as its elements fill, from which on a product may have those
# along another axis. An estimate: convolutions of images with 56, 50 and 100 columns (1.12 to 1.28)
# gain 5 to 35 % by vectors along their channels, and products with 72 to 100 columns keep theirs.
RAGGED = 1.05

# How many times as long a sum with a packed factor is predicted to take before it is left unpacked:
# a margin, as each is predicted within a third or so.
MIN_GAIN_WITHOUT_PACKING = 1.3

# Steps of a reduction, in vectors, from which on adding up the lanes at its end is worth while. An
# estimate: 16 lanes are added up in 4 halvings, each a shuffle and an addition.
MIN_VECTORS = 4


def schedule_for_cpu(kernel: Kernel, target: Target, knobs: CpuKnobs) -> Schedule:
    """The heuristic's schedule; of a sum over several axes that packs a factor, the one without, if
    that is predicted to take MIN_GAIN_WITHOUT_PACKING times less.

    The gradient of a filter of (24, 3, 3, 3) by 7 images of 32 x 32 packs the images' gradient for
    tiles of 3 x 2 vectors, for which 111 us are predicted, and 60 for dot products of 6 x 3 along
    the images' rows. A small network with it took 604 us and takes 370 (two threads of a Zen 4).
    """
    schedule = _schedule(kernel, target, knobs)
    packs = any(isinstance(move, Stage) for move in schedule)
    if not packs or kernel.blocks:
        return schedule
    reduction = CpuPlanner(kernel, target, knobs).contraction()
    if reduction is None or len(bound_axes(reduction)) == 1:
        return schedule
    without = _schedule(kernel, target, replace(knobs, min_packed_rows=points(kernel.row_axes) * 4))
    first, other = (
        predict_time(apply(kernel, moves), target, COMMON_CPU, 0.0).seconds
        for moves in (schedule, without)
    )
    return without if MIN_GAIN_WITHOUT_PACKING * other < first else schedule


def _schedule(kernel: Kernel, target: Target, knobs: CpuKnobs) -> Schedule:
    """One schedule: axes are fused, loops are tiled around the vectors, rows go to threads, and
    what is packed or needed again is staged."""
    plan = CpuPlanner(kernel, target, knobs)
    # Row blocks are the parallel loops of the kernels that share them: no other rows are.
    for axis in kernel.block_axes:
        plan.bind(axis, "parallel")
    plan.fuse_all()
    reduction = plan.contraction()
    packed = _schedule_vectors(plan, reduction)
    loops = [loop for operand in packed for loop in (operand.staged_in, operand.computed_in)]
    packing_loops = [loop for loop in loops if loop is not None]
    if not kernel.blocks:
        _parallelize(plan, packing_loops)
    for axis in dot_axes(plan.kernel):
        plan.bind(axis, "dot")
    # Nothing else may follow what lays memory out along loops: see `moves.apply`.
    for operand in packed:
        if operand.staged_in is None:
            plan.keep(kept_values(plan.kernel, operand))
    for operand in packed:
        if operand.staged_in is not None:
            plan.stage(computed_from(plan.kernel, operand), operand.staged_in)
        if operand.computed_in is not None:
            plan.stage(of_constants_along(plan.kernel, operand.axis), operand.computed_in)
    if plan.nest.row_loops:
        # Exponentials and the like that several passes over a row need are computed once.
        values = needed_again(plan.kernel, Group.TRANSCENDENTAL)
        plan.stage(values, plan.nest.row_loops[-1])
    return tuple(plan.moves)


def _schedule_vectors(plan: CpuPlanner, reduction: Node | None) -> list[Packed]:
    """Choose the vector axis and tile the loops around it: everything but threads and scratch
    memory. Gives the operands to pack. `reduction` is the one, if any, whose operands are used
    again."""
    pair = _interleaved_pair(plan, reduction)
    if pair is not None:
        plan.bind(pair.short, "unroll")
        reduction = pair.tiled
    elif reduction is None:
        squares = cheapest_squares(plan)
        if squares is not None and _squares_gain(plan, squares):
            schedule_squares(plan, squares)
            return []
    row = pair.vector if pair is not None else _vector_row(plan, reduction)
    if reduction is not None:
        return _schedule_contraction(plan, reduction, row)
    decoded = decoded_row(plan)
    if decoded is not None:
        return schedule_decoded(plan, decoded)
    if row is not None:
        return _schedule_row(plan, row)
    rows = tile_windows(plan)
    # A few rows do not hide the latency of an addition: each has several sums, too.
    is_tiled = tile_row_reductions(plan) if rows == 1 else rows >= plan.knobs.unroll
    vectors = cheapest_inner(plan)
    if has_short_passes(plan, vectors):
        plan.tile(plan.rows[-1], plan.knobs.unroll, "unroll")
    vectorize_inner(plan, vectors, is_tiled=is_tiled)
    return []


def _schedule_contraction(plan: CpuPlanner, reduction: Node, row: Node | None) -> list[Packed]:
    """A register tile for `reduction`, whose operands are used again: an outer product with vectors
    along a row axis, or where none suits a block of dot products, with vectors along the steps.
    Gives the operands to pack.

    row: the row axis that suits vectors without packing, if any. If there is none, or it leaves
        lanes empty, there is another candidate: an axis along which an operand is packed, or else
        one along which neighbours are read. Of both, the product takes the axis with which it has
        fewer instructions. The weights of a window of 3 columns have vectors of 2 lanes along the
        columns, and of 16 lanes along 32 channels.
    """
    if row is None or _is_ragged(plan, row):
        other = packed_axis(plan, reduction) or _read_row(plan)
        candidates = [axis for axis in (row, other) if axis is not None]
        row = cheapest_of(plan, reduction, candidates)
    if row is not None:
        return schedule_product(plan, reduction, row)
    tile_dot_products(plan, reduction)
    vectorize_inner(plan, inner_vectors(plan), is_tiled=True)
    return []


def _schedule_row(plan: CpuPlanner, row: Node) -> list[Packed]:
    """Vectors along `row` in a kernel that is no product: a transpose that stores whole lines along
    it, reductions that read row after row, or a map. Gives the operands to pack."""
    across = _transposed_axis(plan, row)
    if across is not None and not plan.inner() and store_score(plan.kernel, row) > 0:
        schedule_transpose(plan, row, across)
        return []
    if not schedule_row_vectors(plan, row):
        schedule_map(plan, row)
    return pack_lanes_apart(plan)


def _transposed_axis(plan: CpuPlanner, row: Node) -> Node | None:
    """`transposed_axis` of what registers transpose: not of loads of which a condition leaves out
    places along `row`, as padding does, for lanes would be missing from squares. Vectors are loaded
    along the other axis then, and stores are transposed."""
    loads = [load for load in plan.kernel.of(Op.LOAD) if row not in free_axes_of(load.src[1:])]
    return transposed_axis(plan, loads, row, plan.knobs.min_transposed)


def _is_ragged(plan: CpuPlanner, row: Node) -> bool:
    """Do vectors along a row leave many lanes empty? 56 elements are 3 vectors of 16 lanes and one
    of 8, for which 3.5 would do."""
    return share(row, plan.width) * plan.width > RAGGED


def _vector_row(plan: CpuPlanner, reduction: Node | None) -> Node | None:
    """The row axis to vectorise, or None where columns and reductions inside the rows gain more.

    reduction: the product, if any, whose operands are used again

    Products and transposes do not ask `cheapest_row`: they get tiles and square blocks, which its
    count of instructions does not know.
    """
    if reduction is not None:
        is_short = points(bound_axes(reduction)) < MIN_VECTORS * plan.width
        # Vectors along so few steps do not pay: see MIN_VECTORS.
        return _stored_row(plan) if is_short else _best_row(plan)
    best = _best_row(plan)
    if best is None and not plan.inner():
        best = _stored_row(plan)  # with no loops inside, nothing else can have vectors
    if best is not None and _transposed_axis(plan, best) is not None:
        return best
    return cheapest_row(plan, best)


def _squares_gain(plan: CpuPlanner, squares: Squares) -> bool:
    """Does the kernel take fewer instructions by `squares` than with other vectors? Transposes of
    one array, where registers have squares of what is read, stay as they are."""
    row = _vector_row(plan, None)
    if row is None or _transposed_axis(plan, row) is not None:
        return False
    return squares.instructions < instructions(plan.kernel, [row], plan.width)


def _stored_row(plan: CpuPlanner) -> Node | None:
    """The outermost row axis along which results are neighbours in memory."""
    return next((axis for axis in plan.rows if store_score(plan.kernel, axis) > 0), None)


def _best_row(plan: CpuPlanner) -> Node | None:
    """The row axis of the largest `benefit`; None if that is no gain, or less than the loops inside
    the rows gain together by vectors along the best axis of each."""
    best = max(plan.rows, key=plan.benefit, default=None)
    gain_of_inner = sum(max(map(plan.benefit, axes)) for axes in plan.inner())
    least_gain = max(gain_of_inner, 1)  # 0 is none
    return best if best is not None and plan.benefit(best) >= least_gain else None


def _read_row(plan: CpuPlanner) -> Node | None:
    """For a product that no row suits and that is not packed: the longest row axis along which it
    reads neighbours, though its results lie apart along it, and that has no other use yet. None
    where vectors along a reduction gain something."""
    if any(plan.benefit(axis) > 0 for axes in plan.inner() for axis in axes):
        return None
    loads = plan.kernel.of(Op.LOAD)
    unbound = [row for row in plan.rows if plan.nest.bound(row) == "serial"]
    contiguous = [row for row in unbound if sum(ix.suits(row, *load.src) for load in loads) > 0]
    return max(contiguous, key=lambda row: row.arg.size, default=None)


@dataclass(frozen=True)
class _InterleavedPair:
    """Two row axes of a result whose vectors along `vector` are stored with their lanes in turns,
    one vector for each element of `short`: i and j of ``y[2 * i + j]`` with 2 elements j.

    tiled: the product that gets a register tile, if any
    """

    vector: Node
    short: Node
    tiled: Node | None


def _interleaved_pair(plan: CpuPlanner, reduction: Node | None) -> _InterleavedPair | None:
    """The first pair of rows to interleave. None if no pair lies so in the result, is short enough
    to unroll, and gains by vectors along the outer axis.

    reduction: the product, if any, whose operands are used again
    """
    strides, _ = ix.terms_of(plan.kernel.stores[0].index)
    for short, vector in permutations(plan.rows, 2):
        size = short.arg.size
        is_pair = strides.get(short) == 1 and strides.get(vector) == size
        if not is_pair or size > plan.knobs.unroll:
            continue
        has_tile = reduction is not None and _leaves_tile_rows(plan, reduction, vector, short)
        tiled = reduction if has_tile else None
        # A product without a tile may be blocks of dot products, which read neighbours.
        if reduction is not tiled and _collects_lanes(plan, vector):
            continue
        if _interleaving_gains(plan, vector):
            return _InterleavedPair(vector, short, tiled)
    return None


def _leaves_tile_rows(plan: CpuPlanner, reduction: Node, vector: Node, short: Node) -> bool:
    """Are there rows for the height of a product's register tile beside `short`, which is unrolled?
    In the adjoint of windows that move by two elements, with a filter for each channel, there are
    none: places and phases use all operands."""
    reused = plan.reused_rows(reduction, vector)
    return bool(reused) and reused[-1] is not short  # the tile's rows are along the last one


def _collects_lanes(plan: CpuPlanner, vector: Node) -> bool:
    """Do lanes along `vector` lie apart in what is read, or do data say where they lie?"""
    return any(ix.suits(vector, *load.src) < 0 for load in plan.kernel.of(Op.LOAD))


def _interleaving_gains(plan: CpuPlanner, vector: Node) -> bool:
    """Do vectors along `vector`, stored with their lanes in turns, take fewer instructions than
    those along any other axis?

    ``y[2 * i + j] = f(sum_k x[k, i] * w[k, j])`` has 2 lanes along j, and 16 along 32 i, which
    compute f in an eighth of the instructions."""
    # A load whose lanes lie apart, or that data decide, has to be made up for by arithmetic: by
    # loops inside the rows. Without any, collecting its lanes costs as much as vectors save.
    if _collects_lanes(plan, vector) and not plan.inner():
        return False
    kernel, width = plan.kernel, plan.width
    rows = [[row] for row in plan.rows if row is not vector]
    fewest = min(instructions(kernel, others, width) for others in (*rows, cheapest_inner(plan)))
    stored_in_turns = 2 * share(vector, width)  # each vector by a shuffle and a store
    in_turns = instructions(kernel, [vector], width, stored_in_turns)
    return in_turns * distance_factor(plan, vector) < fewest


def _parallelize(plan: CpuPlanner, packed_loops: list[Node]) -> None:
    """Bind row axes to threads from the outside in until there are chunks enough. A loop in which
    an operand is packed is the last one, and whole: what is inside shares the panel.

    64 chunks are wanted of rows of 16 and 100: the 16 rows become parallel, and the 100 are split
    into 4 parallel blocks of 25, as 64 // 16 = 4.
    """
    wanted, threads = _chunks(plan), plan.target.multiprocessors
    chunks, nest = 1, plan.nest
    # Only the outermost part of a split axis: its parts inside are tiles of fixed size.
    heads = [axis for axis in nest.row_loops if axis in plan.rows and nest.is_head(axis)]
    for axis in heads:
        loop = axis
        # 8 chunks are wanted of 5 rows for 8 threads: 2 parts of a row, so that none is idle.
        parts = ceil(wanted / chunks) if chunks < threads else wanted // chunks
        if parts > 1:
            iterations = ceil(axis.arg.size / parts)  # of one chunk
            if iterations > 1 and axis not in packed_loops:
                loop, _ = plan.split(axis, iterations)
            plan.bind(loop, "parallel")
            chunks *= loop.arg.size
        if loop in packed_loops:
            break


def _chunks(plan: CpuPlanner) -> int:
    """The chunks of a kernel that threads should take: one for each thread where that is worth
    handing over, and more of them where each would be long, so that a thread that is late has
    fewer. Each thread has equally many: of 3 chunks on 2 threads one would have 2.

    With 2 threads a kernel of 2**13 instructions has 2 chunks (2**13 // `shared_instructions`), one
    of 2**16 has 2 as well, one of 3 * 2**15 has 4 and one of 2**20 has 32 (2**20 //
    `chunk_instructions`).
    """
    knobs, threads = plan.knobs, plan.target.multiprocessors
    vectors = [axis for axis in plan.nest.order if plan.nest.bound(axis) == "vector"]
    count = int(instructions(plan.kernel, vectors, plan.width))
    shares = min(count // knobs.shared_instructions, threads)
    of_each_thread = ceil(count // knobs.chunk_instructions / threads)
    return min(max(of_each_thread * threads, shares), knobs.max_chunks)
