"""Register tiles of short axes, whose elements threads read and store by whole accesses.

Of ``y[n, i, c] = x[n, c, i]`` with 7 c, neighbouring threads along i store elements 7 apart, a part
of a sector each, and those along c read elements far apart. A thread with 8 i and all c reads 8
neighbours at each of 7 places, and stores 56 neighbours: in float16 7 accesses of 16 bytes each
way. So does one with 8 rows of 7 elements, which begin within an access each: of the maxima of
windows of 3 it reads 56 neighbours and stores 40.
"""

from collections.abc import Iterator

from lamina.graph import index as ix
from lamina.ir.kernel import Kernel, points
from lamina.ir.node import Node
from lamina.ir.ops import Op
from lamina.loops.nest import has_atomics, serial_axes
from lamina.schedule.gpu.planner import GpuPlanner

MAX_SHORT = 16  # elements of a short axis
# Points of a tile, for each of which a thread has a register or two. Chosen, so that 255 hold them.
MAX_POINTS = 128
# Bytes from end to end that a thread reads one access after the other: what 2048 threads of a
# multiprocessor read so is to stay in the first level, 256 KiB, until the last access. (6400000, 5)
# elements of float32 took an H200 112 us with 80 bytes a thread, of which 256 MB are 65.
MAX_RUN_BYTES = 64


def tiles_of_short_axes(plan: GpuPlanner) -> Iterator[GpuPlanner]:
    """Planners that go on from `plan` with threads that have all points of the short axes, and a
    few neighbours along another row axis; none for kernels without short axes along which an array
    is contiguous, for products, and where loops are long or in order."""
    kernel = plan.kernel
    loops = [axis for axes in plan.inner() for axis in axes]
    short_rows = [axis for axis in plan.rows if 1 < axis.arg.size <= MAX_SHORT]
    short = list(dict.fromkeys([*short_rows, *loops]))
    is_short = 1 < points(short) <= MAX_POINTS // 2
    if not is_short or not _is_plain(plan) or not _has_run(kernel, short):
        return
    long_rows = [axis for axis in plan.rows if axis not in short]
    for along in long_rows:
        count = plan.width
        while count > 1:
            tile = count * points(short)
            threads = points(plan.rows) // (count * points(short_rows))
            has_enough = threads >= plan.knobs.enough_threads
            if tile <= MAX_POINTS and has_enough and along.arg.size % count == 0:
                tiled = _tiled(plan.branch(), along, count, short_rows, loops)
                if _longest_read(tiled) <= MAX_RUN_BYTES:
                    yield tiled
            count //= 2


def _is_plain(plan: GpuPlanner) -> bool:
    """Whether all loops of the kernel can be unrolled, and none of them adds up products of
    factors that are used again, or updates memory."""
    in_order = serial_axes(plan.kernel)
    is_product = plan.contraction() is not None
    return not in_order and not is_product and not has_atomics(plan.kernel)


def _has_run(kernel: Kernel, short: list[Node]) -> bool:
    """Whether an array is contiguous along one of the axes."""
    return any(ix.suits(axis, index) == ix.NEIGHBOURS for index in kernel.indices for axis in short)


def _tiled(
    plan: GpuPlanner, along: Node, count: int, short_rows: list[Node], loops: list[Node]
) -> GpuPlanner:
    """`plan` with threads that have `count` neighbours along a row axis, `along`, and all of the
    short rows and loops."""
    blocks, of_thread = plan.split(along, count)
    unrolled = [of_thread, *short_rows]
    for axis in (*unrolled, *loops):
        plan.bind(axis, "unroll")
    plan.register_tile = frozenset((*unrolled, *loops))
    plan.reorder([blocks, *unrolled])
    return plan


def _longest_read(plan: GpuPlanner) -> int:
    """The bytes of the longest run that a thread of a register tile reads by several accesses."""
    longest = 0
    for load in plan.kernel.of(Op.LOAD):
        run = ix.runs_of_points(load.src[0], plan.register_tile)
        nbytes = run.length * load.dtype.itemsize
        if nbytes > plan.target.vector_bytes:
            longest = max(longest, nbytes)
    return longest
