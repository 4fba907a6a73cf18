"""Register tiles of short axes, whose elements threads read and store by accesses of several.

Of ``y[n, i, c] = x[n, c, i]`` with 7 c, neighbouring threads along i store elements 7 apart, a part
of a sector each, and those along c read elements far apart. In float16 a thread with 2 i and all c
reads a word at each of 7 places, and stores 7 words that are neighbours. A thread with 2 rows of 7
elements has whole words as well: of the maxima of windows of 3 it reads 7 and stores 5. And of
``y[i, n] = sum_k where(p[k, n] == i, x[k, n], 0)`` with 8 i and 8 k a thread with all of both reads
each element once, not 8 times.
"""

from collections.abc import Iterator

from lamina.graph import index as ix
from lamina.ir.kernel import Kernel, free_axes, points
from lamina.ir.node import Node
from lamina.ir.ops import Op
from lamina.loops.nest import has_atomics, serial_axes
from lamina.schedule.gpu.planner import GpuPlanner
from lamina.schedule.planner import distance

MAX_SHORT = 16  # elements of a short axis
ROWS = (8, 4, 2, 1)  # points that a thread has along the long row axis, the most first
# Points of a tile, for each of which a thread has a register or two. Chosen, so that 255 hold them.
MAX_POINTS = 128
# Bytes of a run that a thread reads or stores by several accesses, at most: a sector, so that the
# first level still has it at the last access. Of (199, 7, 16384) elements of float16 with channels
# last a thread stored 14 bytes, by 2 at a time, or 28, 56 or 112, by 4, 8 or 16: 89, 47, 67 and 67
# us on an H200; the maxima of windows of 3 in rows of 7 took 46, 28, 44 and 47.
MAX_RUN_BYTES = 32
MIN_ACCESS_BYTES = 4  # of an access to a run


def tiles_of_short_axes(plan: GpuPlanner) -> Iterator[GpuPlanner]:
    """A planner that goes on from `plan` with threads that have all points of the short axes, and a
    few neighbours along the row axis that is nearest in memory; none for kernels without short axes
    along which an array is contiguous or loops read elements again, for products, and where loops
    are long or in order."""
    kernel = plan.kernel
    loops = [axis for axes in plan.inner() for axis in axes]
    short_rows = [axis for axis in plan.rows if 1 < axis.arg.size <= MAX_SHORT]
    short = list(dict.fromkeys([*short_rows, *loops]))
    is_short = 1 < points(short) <= MAX_POINTS // 2
    if not is_short or not _is_plain(plan):
        return
    if not _has_run(kernel, short) and not _reads_again(kernel, short_rows, loops):
        return
    long_rows = [axis for axis in plan.rows if axis not in short and distance(kernel, axis)]
    if not long_rows:
        return
    along = min(long_rows, key=lambda axis: distance(kernel, axis))
    for count in ROWS:
        threads = points(plan.rows) // (count * points(short_rows))
        has_room = count * points(short) <= MAX_POINTS
        is_even = along.arg.size % count == 0
        if has_room and is_even and threads >= plan.knobs.enough_threads:
            tiled = _tiled(plan.branch(), along, count, short_rows, loops)
            if _suits_memory(tiled):
                yield tiled
                return  # fewer have shorter accesses


def _is_plain(plan: GpuPlanner) -> bool:
    """Whether all loops of the kernel can be unrolled, and none of them adds up products of
    factors that are used again, or updates memory."""
    in_order = serial_axes(plan.kernel)
    is_product = plan.contraction() is not None
    return not in_order and not is_product and not has_atomics(plan.kernel)


def _has_run(kernel: Kernel, short: list[Node]) -> bool:
    """Whether an array is contiguous along one of the axes."""
    return any(ix.suits(axis, index) == ix.NEIGHBOURS for index in kernel.indices for axis in short)


def _reads_again(kernel: Kernel, rows: list[Node], loops: list[Node]) -> bool:
    """Whether a loop reads elements that are the same along one of the short `rows`."""
    of_loops = [load for load in kernel.of(Op.LOAD) if not free_axes(load).isdisjoint(loops)]
    return any(row not in free_axes(load) for load in of_loops for row in rows)


def _tiled(
    plan: GpuPlanner, along: Node, count: int, short_rows: list[Node], loops: list[Node]
) -> GpuPlanner:
    """`plan` with threads that have `count` neighbours along a row axis, `along`, and all of the
    short rows and loops."""
    blocks, unrolled = along, [*short_rows]
    if count > 1:
        blocks, of_thread = plan.split(along, count)
        unrolled.insert(0, of_thread)
    for axis in (*unrolled, *loops):
        plan.bind(axis, "unroll")
    plan.register_tile = frozenset((*unrolled, *loops))
    plan.reorder([blocks, *unrolled])
    return plan


def _suits_memory(plan: GpuPlanner) -> bool:
    """Whether the accesses of a register tile have MIN_ACCESS_BYTES or more each, and those of a
    run together no more than MAX_RUN_BYTES."""
    loads = [(load.arg.parameter, load.src[0]) for load in plan.kernel.of(Op.LOAD)]
    stores = [(store.parameter, store.index) for store in plan.kernel.stores]
    for parameter, index in (*loads, *stores):
        itemsize = plan.kernel.parameters[parameter].dtype.itemsize
        longest = plan.target.vector_bytes // itemsize
        run = ix.runs_of_points(index, plan.register_tile)
        neighbours = ix.neighbours_of_access(index, plan.register_tile, longest)
        is_longer = neighbours < run.length
        if is_longer and run.length * itemsize > MAX_RUN_BYTES:
            return False
        if run.length > 1 and neighbours * itemsize < MIN_ACCESS_BYTES:
            return False
    return True
