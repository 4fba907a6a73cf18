"""Scatters whose results blocks have in memory of their own, while threads go through the updates.

An update in memory that a block shares is rated at a twentieth of the time of one in the memory of
the device. But a block holds few results, and goes through all updates of its rows: where the
places of a row are in several blocks, each update is read several times.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil

from lamina.core.rates import Rates
from lamina.core.target import Target
from lamina.graph import index as ix
from lamina.ir.node import Node
from lamina.loops.nest import has_atomics
from lamina.loops.scatters import Privatize, places_of, scale_of_updates
from lamina.loops.verify import WARP
from lamina.schedule.gpu.atoms import RESERVED_BYTES
from lamina.schedule.gpu.planner import RESIDENT, GpuPlanner

WIDTHS = (1, 2, 4, 8, 16, 32)  # columns side by side of a block
# Of a row, each of which reads all of its updates: the fewest may be so many, and twice as many are
# tried as well.
MAX_BLOCKS = 16
MAX_THREADS = 1024  # of a block
UNROLLED = 4  # updates of a thread that it reads at a time
MANY_UPDATES = UNROLLED * MAX_THREADS  # of a block: from so many on each thread has UNROLLED
RESULTS_AT_ONCE = 8  # that a thread combines with the array


@dataclass(frozen=True)
class BlocksOfScatter:
    """The blocks that have a scatter's results.

    rows: of places, each with so many `blocks`. results: of a block. nbytes: of these in its
    memory. updates: of a row, of all the columns that a block has side by side. passes: how often a
    block goes through them. array: the bytes of all results in memory of the device. run: those of
    neighbours among the results of a block
    """

    rows: int
    blocks: int
    results: int
    nbytes: int
    updates: int
    passes: int
    array: int
    run: int

    def demands(self, target: Target, rates: Rates) -> dict[str, float]:
        """The seconds of what blocks do beside reading the updates, none of which overlaps: blocks
        are few, and wait for their threads in between. They combine their results with the array,
        wait for memory, and add in their own, where blocks of a row share the updates."""
        last = rates.levels[-1]
        sectors = max(rates.line / self.run, 1.0)
        combining = sectors * (self.array / last.all_read + self.array / last.all_write)
        idle = max(target.multiprocessors / max(self.rows * self.blocks, 1), 1.0)
        adding = self.rows * self.updates * rates.private * self.passes * idle
        waiting = self.waits(target) * rates.access
        return {"combining": combining, "waiting": waiting, "adding": adding}

    def waits(self, target: Target) -> int:
        """How often a multiprocessor waits for memory: in each round of blocks for what begins it,
        in each iteration over updates and in each over results.

        3904 updates and places of 4 columns, float32: 4 iterations twice, 2 and 1. Of 537 blocks
        each of 132 multiprocessors has 5, one at a time, so that it waits 55 times.
        """
        is_unrolled = self.updates >= MANY_UPDATES
        threads = min(ceil(self.updates / WARP) * WARP, MAX_THREADS)
        room = min(target.shared_bytes // max(self.nbytes, 1), RESIDENT // threads)
        rounds = ceil(self.rows * self.blocks / (target.multiprocessors * max(room, 1)))
        at_a_time = threads * (UNROLLED if is_unrolled else 1)
        over_updates = self.passes * ceil(self.updates / at_a_time)
        over_results = ceil(self.results / (RESULTS_AT_ONCE * threads))
        return rounds * (over_updates + over_results + 1)


def blocks_of_row(places: int, width: int, itemsize: float, target: Target) -> int:
    """The fewest blocks that hold `places` of `width` columns, as many in each; 0 if these are more
    than MAX_BLOCKS."""
    room = int((target.shared_bytes - RESERVED_BYTES) / (itemsize * width))  # places of a block
    if room == 0 or places == 0:
        return 0
    blocks = ceil(places / room)
    return blocks if blocks <= MAX_BLOCKS else 0


def private_scatters(plan: GpuPlanner) -> Iterator[GpuPlanner]:
    """Planners that go on from `plan`, of a scatter, with the results in the memory of
    blocks: for each number of columns that these may have side by side, with as many places as fit,
    and with half of that."""
    kernel = plan.kernel
    store = kernel.stores[0]
    places = places_of(kernel)
    scale = scale_of_updates(kernel)
    is_combined = has_atomics(kernel) or scale is not None
    has_updates = len(store.axes) > kernel.rows
    if not (places and is_combined and has_updates):
        return
    itemsize = scale.itemsize if scale else store.value.dtype.itemsize
    side = _side(plan)
    for width in WIDTHS:
        fewest = blocks_of_row(places, width, itemsize, plan.target)
        if not fewest or (width > 1 and (side is None or side.arg.size < width)):
            continue
        for blocks in dict.fromkeys((fewest, min(2 * fewest, places))):
            yield _with_results_in_blocks(plan, ceil(places / blocks), side, width)


def _side(plan: GpuPlanner) -> Node | None:
    """The row axis along which results of one place are neighbours, if there is one."""
    strides, _ = ix.terms_of(plan.kernel.stores[0].index)
    return next((axis for axis in plan.rows if strides.get(axis) == 1), None)


def _with_results_in_blocks(
    plan: GpuPlanner, places: int, side: Node | None, width: int
) -> GpuPlanner:
    """A planner that goes on from `plan` with so many places of so many columns in a block."""
    planner = plan.branch()
    updates = planner.kernel.stores[0].axes[-1]
    number = planner.next_axis()
    planner.do(Privatize(places, number))
    in_threads: list[Node] = []
    if side is not None and width > 1:
        inner = planner.split(side, width)[1] if side.arg.size > width else side
        planner.bind(inner, "thread")
        in_threads.append(inner)
    unrolled = UNROLLED if updates.arg.size * width >= MANY_UPDATES else 1
    planner.bind(planner.tile(updates, unrolled, "unroll"), "thread")
    block = planner.nest.axis(number)
    # Blocks of the same updates run side by side.
    others = [axis for axis in planner.rows if axis is not block and axis not in in_threads]
    planner.reorder([*others, block, *in_threads])
    for axis in (*others, block):
        planner.bind(axis, "grid")
    return planner
