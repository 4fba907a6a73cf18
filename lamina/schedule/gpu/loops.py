"""A good schedule for a GPU at once, from the shape of the memory accesses alone.

1. Axes that every index walks together become one.
2. Rows with long reductions or columns inside get a block each, whose threads share these loops;
   all other rows get a thread each. Neighbouring threads take neighbours in memory. A row that is
   needed again stays in registers, if they hold it.
3. A thread takes as many neighbours as fill one access, where they are aligned and enough threads
   are left to hide the latency of memory; and two rows where data say which to read.
4. A reduction whose operands are used again gets a register tile; a transpose small blocks, whole
   lines of memory in both directions.
"""

from collections.abc import Iterable, Iterator
from math import inf, prod
from operator import itemgetter

from lamina.core.rates import GPUS, RATED_GPU
from lamina.core.target import Target
from lamina.graph import index as ix
from lamina.ir.kernel import Kernel, free_axes, points
from lamina.ir.node import Node
from lamina.ir.ops import Op
from lamina.loops.moves import Schedule, apply
from lamina.loops.nest import Nest, has_atomics, scatter_places, serial_axes
from lamina.loops.scatters import Atomic, Partition
from lamina.schedule.cost.predict import predict_time
from lamina.schedule.gpu.blocks import schedule_block_per_row, shared_axes
from lamina.schedule.gpu.decoded import tiles_of_blocks
from lamina.schedule.gpu.flat_rows import flat_rows
from lamina.schedule.gpu.narrow import tiles_of_columns
from lamina.schedule.gpu.pipelining import ORDERS, pipelining_of_knobs
from lamina.schedule.gpu.planner import GpuPlanner
from lamina.schedule.gpu.private_scatters import private_scatters
from lamina.schedule.gpu.products import Choice, best_product
from lamina.schedule.gpu.row_tiles import tiles_of_rows
from lamina.schedule.gpu.rows_apart import rows_apart
from lamina.schedule.gpu.sent_scatters import sent_scatters
from lamina.schedule.gpu.shifted import tiles_of_shifted
from lamina.schedule.gpu.short_axes import tiles_of_short_axes
from lamina.schedule.gpu.tensorize import Tensorize
from lamina.schedule.gpu.threads import schedule_thread_per_row
from lamina.schedule.gpu.windows import MAX_SIDE, tiles_of_windows
from lamina.schedule.knobs import GpuKnobs
from lamina.schedule.planner import (
    distance,
    is_contiguous,
    is_moved_by_data,
    score,
    store_score,
)

# Threads that hide the latency of a scatter, as a multiple of those that keep a GPU busy: each
# waits for memory at every update. Chosen: no measurement of it is kept.
SCATTER_THREADS = 4

# Seconds in which a thread waits for what it loads in an iteration of a product's register tile: of
# (576, 1888) by the transpose of (64, 1888) 472 iterations took an H200 265 us.
ARRIVAL = 5e-7

# A ratio of times: what the predicted time of tiles of rows is multiplied by before it is compared
# with that of single rows. They hold more in registers, which no prediction counts. Chosen: no
# measurement of it is kept.
ROW_TILE_PENALTY = 1.03

# How many times as long one block at a time is to take before blocks side by side are chosen: a
# margin, as each is predicted within a fifth or so.
SIDE_BY_SIDE_GAIN = 1.05

# How many times as many elements what is stored has as a small array: an estimate.
SMALL_ARRAY = 8
SECTOR = 8  # elements of 4 bytes that memory moves at least
# Elements of a row that a thread holds by itself: one access of 16 bits, two of float32.
REGISTER_ROW = 8
# Most steps of a scan that a thread does in a loop. (6400000, 5) took an H200 65 us so;
# (4571428, 7), as many bytes, took 197. Rows of 15 that threads share with 5 steps each took 63.
MAX_LOOPED_SCAN = 5


def schedule_for_gpu(kernel: Kernel, target: Target, factor_kind: str, knobs: GpuKnobs) -> Schedule:
    """The heuristic's schedule: an atom for products that are worth tiles, or else loops for
    threads and blocks, with all rows that are left bound to the grid.

    factor_kind: how tiles that a block shares hold factors of float32, "f32" or "tf32"; "" for a
        target whose blocks share no tiles
    """
    plan = GpuPlanner(kernel, target, knobs)
    plan.fuse_all()
    of_scatter: list[GpuPlanner] = []
    if target.adds_atomically and scatter_places(kernel):
        of_scatter += private_scatters(plan)
        of_scatter += sent_scatters(plan)
    if target.adds_atomically and has_atomics(kernel):
        _scatter_in_any_order(plan)
    else:
        _partition_scatter(plan)
    in_tiles: Schedule = ()
    choice = None
    if factor_kind:
        choice = best_product(plan.kernel, factor_kind, knobs.atom_rank, target)
        if choice:
            in_tiles = _in_tiles(plan, choice)
            in_tiles = (*in_tiles, *pipelining_of_knobs(kernel, in_tiles, target, knobs))
            if choice.is_sure:
                return in_tiles
    tiled_rows = _register_tiles(plan) if choice is None else ()  # tiles read for several rows too
    loops = _best_loops(plan, tiled_rows, shares_products=bool(factor_kind))
    loops = min([loops, *of_scatter], key=_predicted)
    longer = choice.loops if choice and not loops.register_tile else 1.0
    if choice and _are_faster(apply(kernel, in_tiles), loops.nest, target, longer):
        return in_tiles
    return tuple(loops.moves)


def _in_tiles(plan: GpuPlanner, choice: Choice) -> Schedule:
    """The moves that put a product in tiles of the chosen atom, or of one whose blocks run side by
    side, if that is predicted to take SIDE_BY_SIDE_GAIN times less; and so much less again if they
    share tiles."""
    fastest: Schedule = (Tensorize(choice.atom),)
    if not choice.side_by_side:
        return (*plan.moves, *fastest)
    atoms = dict.fromkeys(atom for atom, _ in choice.side_by_side)
    tiled = {atom: Tensorize(atom).apply(plan.nest) for atom in atoms}

    def seconds(nest: Nest) -> float:
        return predict_time(nest, plan.target, GPUS[RATED_GPU], 0.0).seconds

    least = seconds(Tensorize(choice.atom).apply(plan.nest))
    for name in ORDERS:
        beside = [
            (seconds(order.apply(tiled[atom])), (Tensorize(atom), order))
            for atom, order in choice.side_by_side
            if order.order == name
        ]
        time, moves = min(beside, key=itemgetter(0), default=(inf, fastest))
        if SIDE_BY_SIDE_GAIN * time < least:
            least, fastest = time, moves
    return (*plan.moves, *fastest)


def _register_tiles(plan: GpuPlanner) -> Iterator[GpuPlanner]:
    """Planners that go on from `plan` with register tiles of rows, of blocks of bytes, and of both.
    """
    yield from tiles_of_rows(plan)
    for tiled in tiles_of_blocks(plan):
        yield from list(tiles_of_rows(tiled)) or [tiled]


def _best_loops(
    plan: GpuPlanner, tiled_rows: Iterable[GpuPlanner], *, shares_products: bool
) -> GpuPlanner:
    """Of loops without a register tile, and with each that there is of windows and of rows, of
    short axes (`tiles_of_short_axes`), of accesses that store where loads begin within one
    (`tiles_of_shifted`), of rows that registers hold though their elements lie apart
    (`rows_apart`), and of rows of short lines as one loop (`flat_rows`), with threads along each of
    the best rows, and, if threads may share a product, of those that share its steps, or that have
    a few of its rows where it has few columns (`tiles_of_columns`): those that are predicted to
    take the least time."""
    candidates = [*tiles_of_short_axes(plan)]
    for best in _best_rows(plan)[:1]:
        candidates += tiles_of_shifted(plan, best)
        candidates += rows_apart(plan, best)
    if shares_products:
        candidates += [*_with_shared_products(plan), *tiles_of_columns(plan)]
    # All tiles go on from what `plan` is so far.
    for tiled in [*tiles_of_windows(plan), *tiled_rows, *flat_rows(plan), plan]:
        best_rows: list[Node | None] = [*_best_rows(tiled)] or [None]
        planners = [tiled, *(tiled.branch() for _ in best_rows[1:])]
        for each, row in zip(planners, best_rows, strict=True):
            _schedule_loops(each, row)
        candidates += planners
    for each in candidates:
        for axis in each.kernel.row_axes:
            if each.nest.bound(axis) == "serial":
                each.bind(axis, "grid")
    if len(candidates) == 1:
        return plan

    def seconds(candidate: GpuPlanner) -> float:
        return _predicted(candidate) * (ROW_TILE_PENALTY if candidate.has_row_tile else 1.0)

    return min(candidates, key=seconds)


def _with_shared_products(plan: GpuPlanner) -> list[GpuPlanner]:
    """Planners that go on from `plan` with threads that share the steps of each sum of products,
    where they can, for a result or for all columns of a row that has few; none for other kernels.
    Of (95088, 251) by (251, 2) threads with rows by themselves would read 251 elements apart."""
    product = plan.contraction()
    if product is None:
        return []
    planners = []
    for columns in dict.fromkeys((frozenset[Node](), _few_columns(plan.kernel))):
        sharing = plan.branch()
        for axis in columns:
            sharing.bind(axis, "unroll")
        sharing.register_tile = columns
        shared = shared_axes(sharing, plan.target.warp)
        if shared:
            schedule_block_per_row(sharing, shared, None)
            planners.append(sharing)
    return planners


def _few_columns(kernel: Kernel) -> frozenset[Node]:
    """The shortest row axis along which elements are used again, if that has few points."""
    loads = kernel.of(Op.LOAD)
    reused = [
        axis for axis in kernel.row_axes if any(axis not in free_axes(load) for load in loads)
    ]
    shortest = min(reused, key=lambda axis: axis.arg.size, default=None)
    return frozenset({shortest}) if shortest and shortest.arg.size <= MAX_SIDE else frozenset()


def _predicted(plan: GpuPlanner) -> float:
    """The seconds that the nest of a planner is predicted to take."""
    return predict_time(plan.nest, plan.target, GPUS[RATED_GPU], 0.0).seconds


def _are_faster(tiles: Nest, loops: Nest, target: Target, longer: float) -> bool:
    """Whether tiles are predicted to take less time than loops of threads, which at least wait for
    memory in each iteration, and take so many times `longer` than predicted."""
    in_tiles = predict_time(tiles, target, GPUS[RATED_GPU], 0.0).seconds
    in_order = [axis.arg.size for axis in loops.order if loops.bound(axis) == "serial"]
    computing = longer * predict_time(loops, target, GPUS[RATED_GPU], 0.0).seconds
    in_loops = max(computing, float(prod(in_order)) * ARRIVAL)
    return in_tiles < in_loops


def _scatter_in_any_order(plan: GpuPlanner) -> None:
    """Let every update be a row, which a thread adds by an atomic operation."""
    for column in plan.kernel.stores[0].axes[plan.kernel.rows :]:
        plan.do(Atomic(column.arg.number))
    plan.fuse_all()


def _partition_scatter(plan: GpuPlanner) -> None:
    """Give a scatter by one index to more threads where its rows are too few to hide the latency of
    memory; do nothing to any other kernel.

    Each row gets several threads, which go through all of its updates. Each of them owns the
    results whose index ends in its number, and adds to these alone, so that no addition is atomic.
    64 rows get 4096 owners each: 4 * 2**15 threads for 64 rows are 2048, and the power of two above
    is taken, as owners are told by last bits.
    """
    owners = SCATTER_THREADS * plan.knobs.enough_threads // max(points(plan.rows), 1)
    if owners > 1 and len(scatter_places(plan.kernel)) == 1:
        power_of_two = 1 << owners.bit_length()
        plan.do(Partition(power_of_two, plan.next_axis()))


def _schedule_loops(plan: GpuPlanner, best: Node | None) -> None:
    """Schedule a block or a thread for each row, with neighbouring threads along the row axis
    `best`; nothing where there is neither a row nor a loop that threads can share.

    It is a block where threads can share the loops inside a row. It is a thread all the same if
    there are rows enough to keep all threads busy, and they are neighbours in memory or the kernel
    is a product, whose register tiles are better. Softmax of (64, 4096) takes 64 blocks, a sum over
    the rows of (4096, 2**20) a thread a column."""
    kernel, rows = plan.kernel, plan.rows
    shared = shared_axes(plan, plan.target.warp)
    across = best if best is not None and _are_neighbours(kernel, best, shared) else None
    product = None  # a tile of windows is all that registers hold
    if not plan.register_tile:
        product = plan.contraction()
    has_enough_rows = points(rows) >= plan.knobs.enough_threads
    suits_threads = has_enough_rows and (across is not None or product is not None)
    if shared and not suits_threads:
        schedule_block_per_row(plan, shared, across)
    elif best is not None and across is None and product is None:
        _schedule_short_rows(plan, best)
    elif best is not None:
        schedule_thread_per_row(plan, best, product)


def _schedule_short_rows(plan: GpuPlanner, best: Node) -> None:
    """Schedule rows that are shorter than a warp and whose elements are neighbours in memory: a
    few threads share each, as in longer rows, or a thread has a whole row of one or two accesses,
    which are unrolled. Threads with a row each that go through it would read 32 rows at once, an
    element of each: of softmax of (96000, 29) that takes 145 us on an H200, of which 11 MB twice
    are 10.

    29 elements of float32 are shared by threads; 8 of bfloat16 are one access of a thread. Rows of
    which only a sum or a maximum is stored are read once, whole lines of them by each warp.
    """
    in_order = serial_axes(plan.kernel)
    longest = MAX_LOOPED_SCAN if in_order else REGISTER_ROW
    shared = shared_axes(plan, longest + 1)
    is_stored = any(len(store.axes) > plan.kernel.rows for store in plan.kernel.stores)
    if shared and is_stored and all(_walks_neighbours(plan, axis, longest) for axis in shared):
        schedule_block_per_row(plan, shared, None)
        return
    schedule_thread_per_row(plan, best, None)
    for axes in plan.inner():
        if len(axes) > 1 or axes[0] in in_order:
            continue
        (axis,) = axes
        if axis.arg.size <= REGISTER_ROW and score(plan.kernel, axis) > 0:
            plan.bind(axis, "unroll")


def _walks_neighbours(plan: GpuPlanner, axis: Node, longest: int) -> bool:
    """Whether a loop inside rows, longer than a thread holds, walks neighbours in memory; that over
    a window of 3 x 3 is not as long."""
    return bool(axis.arg.size > longest and score(plan.kernel, axis) > 0)


def _best_rows(plan: GpuPlanner) -> list[Node]:
    """The axes of rows along which most accesses are neighbours in memory, as many in each: that of
    most stores first, and no other one if rows have no loops; and then one that more stores suit
    (`_row_of_more_stores`). Empty if the kernel has no row. Of axes that suit as well those of
    SECTOR elements or more are chosen.

    An access at a place that data say is no worse than one of elements a stride apart: each thread
    has a sector of its own in both cases. Of ``y[n, i] = x[n, p[i]] + x[n, q[i]]`` threads lie
    along i, by the store, and not along n. Of axes that are all strides apart the nearest is
    chosen: of ``sum_k x[n, i, k]`` with 5 k threads that lie along i read a line together, and of
    ``sum_k x[p[n], i, k]`` as well, where neighbours along n lie anywhere. Of
    ``y[c, i] = sum_k x[3 * i + k, c]`` threads along i store neighbours, and those along c load
    them, which are more.
    """
    kernel = plan.kernel

    def worth(axis: Node) -> tuple[int, float, int]:
        apart: float = distance(kernel, axis)
        if not apart and is_moved_by_data(kernel, axis):
            apart = inf
        near, fills_sector = -apart if apart > 1 else 0, min(axis.arg.size, SECTOR)
        return score(kernel, axis, worst=ix.STRIDED), near, fills_sector

    best = max(map(worth, plan.rows), default=None)
    axes = [axis for axis in plan.rows if worth(axis) == best]
    axes.sort(key=lambda axis: store_score(kernel, axis), reverse=True)
    if not plan.inner():
        axes = axes[:1]
    return [*axes, *_row_of_more_stores(plan, axes)]


def _row_of_more_stores(plan: GpuPlanner, axes: list[Node]) -> list[Node]:
    """The row axis along which more stores are neighbours than along each of `axes`, if there is
    one, and if what loads neighbours along these are small arrays, which caches hold: of
    ``y[i, j] = x[p[i], q[j]] * w[i]`` with 625,690 i and 14 j two load neighbours along i, and one
    stores neighbours along j. With threads along i it takes 99 us, and 28 along j (predicted)."""
    kernel = plan.kernel
    largest = max(kernel.parameters[store.parameter].size for store in kernel.stores)
    for load in kernel.of(Op.LOAD):
        is_small = kernel.parameters[load.arg.parameter].size * SMALL_ARRAY <= largest
        if not is_small and any(is_contiguous(load, axis) for axis in axes):
            return []
    most = max((store_score(kernel, axis) for axis in axes), default=0)
    others = [axis for axis in plan.rows if store_score(kernel, axis) > most]
    return sorted(others, key=lambda axis: -store_score(kernel, axis))[:1]


def _are_neighbours(kernel: Kernel, row: Node, shared: list[Node]) -> bool:
    """Are more accesses neighbours along `row` than lie apart, and as many as along each of the
    axes `shared`, inside the rows? In a sum over the rows of (4096, 64) the row axis of 64 scores
    1, by its load (the store is too rare to count), and the summed axis -1."""
    inner_score = max((score(kernel, axis) for axis in shared), default=0)
    return score(kernel, row) >= max(inner_score, 1)
