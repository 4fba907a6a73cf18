"""The time of a scheduled kernel, and a bound that no schedule of it goes below.

Demands over rates: bytes of each level of memory, instructions by unit, chains of dependent steps.
What a worker does takes as long as the largest of them, and a tenth of the others, as not all of
these overlap. The bound counts each byte once and lets all overlap, on all workers.
"""

from math import ceil

from lamina.core.rates import Memory, Rates
from lamina.core.target import Target
from lamina.graph import index as ix
from lamina.ir.kernel import bound_axes, free_axes, points
from lamina.ir.node import Node
from lamina.loops.hits import find_hit_loop, owners_of
from lamina.loops.nest import Nest, bypasses_caches, scatter_places, sends_updates
from lamina.loops.verify import WARP
from lamina.schedule.cost.blocks import in_blocks
from lamina.schedule.cost.body import Access, Loop
from lamina.schedule.cost.bound import STREAMED, instruction_bytes, need_of
from lamina.schedule.cost.operations import latency_of, registers_of, total
from lamina.schedule.cost.products import product_cost
from lamina.schedule.cost.report import KernelCost, KernelTime, overlapped
from lamina.schedule.cost.traffic import Lines, Traffic
from lamina.schedule.cost.walk import walk
from lamina.schedule.gpu.planner import RESIDENT
from lamina.schedule.gpu.private_scatters import BlocksOfScatter

LINE_BYTES = 128  # of a line of a GPU's first level, which gives as many bytes in a clock
# Of its lines it finds 3 in a clock: (63, 279629) elements of float16 that warps read along the
# first axis, 32 lines each time, took an H200 43.5 us (measured; 46 are predicted).
LINES_A_CLOCK = 3
SHORT_SUM = 8  # terms, up to which a thread asks for all of them at once
# Bytes of the second level that a sector takes in which a thread stores less than a word: it is
# merged with the rest. (131968, 27, 7) elements of bfloat16 took 99 us where threads 14 bytes apart
# stored 2 bytes each, 11 million sectors (measured; 110 are predicted). A sector in which threads
# store words takes its own 32 bytes at each store: (69, 869143) elements of float32 took 211 us
# where threads 16 bytes apart stored a word, four times each, 34 million sectors in all (measured;
# 187 are predicted).
PARTIAL_SECTOR = 48
WORD = 4  # bytes that a thread reads in the time of one instruction
# Instructions that count an iteration and end the loop, and that find the place of an access and
# ask for it: estimates. Places are computed in 64 bits.
OF_ITERATION, OF_ACCESS = 3, 2
BLOCKS = 32  # that a multiprocessor runs at a time, at most
# Instructions that a core of a CPU has under way at a time (a reorder buffer of 300 to 500 since
# 2019): where one run of a loop has fewer, its chain and that of the next run overlap.
WINDOW = 400
# Of the instructions of a body without copies, the share that waits for one another, as the steps
# of an exponential do; and the largest share of these that no other run overlaps. Both are fitted
# to chains of functions on a Zen 3: of 93 instructions they took 1.45 times as long as their number
# alone says, of 240 2.4 times.
WAITING = 0.5
ALONE = 0.5
# How much longer a fork in a program takes than those that are measured one after the other: what
# the threads tell each other, the table of buffers and the text of the kernel have left the nearest
# caches meanwhile. Fitted to drawn programs on two threads: 265 of a Sapphire Rapids, which took
# twice as much, and 362 of a Zen 4, which took 4 to 6 times as much.
FORK_IN_PROGRAM = 4.0


def predict(nest: Nest, target: Target, rates: Rates, around: float = 0.0) -> KernelCost:
    """The cost of one run of a nest on a device of those facts and rates.

    around: bytes that the program of the kernel touches from one run of it to the next; where the
        kernel touches more itself, that counts
    """
    if nest.atom:
        return product_cost(nest, target, rates)
    return _nest_cost(nest, target, rates, around).cost()


def predict_time(nest: Nest, target: Target, rates: Rates, around: float) -> KernelTime:
    """The same without the bound, for decisions that do not need it."""
    if nest.atom:
        return product_cost(nest, target, rates)
    return _nest_cost(nest, target, rates, around).time()


def _nest_cost(nest: Nest, target: Target, rates: Rates, around: float) -> "_NestCost":
    """What predicts the cost of a nest that is no product of atoms."""
    if target.warp > 1:
        return _GpuCost(nest, target, rates, around)
    return _NestCost(nest, target, rates, around)


class _NestCost:
    """The cost of a nest on a CPU."""

    each_lane = True  # see `walk`
    streams_stores = True  # past the caches, where `bypasses_caches` says so

    def __init__(self, nest: Nest, target: Target, rates: Rates, around: float) -> None:
        self.nest, self.kernel, self.target, self.rates = nest, nest.kernel, target, rates
        self.vector_bytes = instruction_bytes(target)
        parallel = frozenset(
            axis for axis in nest.order if nest.bound(axis) in ("parallel", "grid")
        )
        # The chunks that workers take: 1 if no axis is parallel, 0 if one has no points.
        self.chunks = points(parallel)
        # Those that have a chunk: 2 of 8 cores if there are 2 chunks.
        self.workers = max(min(self.chunks, target.multiprocessors), 1)
        adds_dots = "unsigned_by_signed" in target.engines
        self.root = walk(nest, each_lane=self.each_lane, adds_dots=adds_dots)
        self.traffic = Traffic(nest, self.root, rates, self.workers, parallel, around)

    def cost(self) -> KernelCost:
        """The time, and the bound that no schedule goes below."""
        time = self.time()
        need = need_of(self.nest, self.traffic.lines, self.target, self.rates)
        bound = need.seconds(self.rates, self.target)
        return KernelCost(time.seconds, time.demands, bound, need, tuple(self.traffic.lines))

    def time(self) -> KernelTime:
        """The seconds of the busiest worker, whose demands overlap in part."""
        busiest = self._share_of_busiest()
        units = {name: seconds * busiest for name, seconds in self._units().items()}
        # Memory serves all workers at once. Its seconds are those of evenly shared work, and grow
        # by as much as the busiest worker has more than its share: 3 / 5 instead of 1 / 2 are 1.2.
        uneven = busiest * self.workers
        memory = {name: seconds * uneven for name, seconds in self._memory().items()}
        fork = FORK_IN_PROGRAM * self.rates.fork if self.workers > 1 else 0.0
        seconds = overlapped(memory, units, self.rates.hidden) + fork + self.rates.launch
        demands = {**memory, **units, "fork": fork, "launch": self.rates.launch}
        return KernelTime(seconds, demands)

    def _share_of_busiest(self) -> float:
        """The share of all work that the worker with the most chunks has: of 5 chunks on 2 workers
        3 / 5, and 0 where there is no chunk."""
        return ceil(self.chunks / self.workers) / max(self.chunks, 1)

    def _units(self) -> dict[str, float]:
        """The seconds of each unit of a worker, if one worker did all the work."""
        work = [work for loop in self.root.every() for work in loop.work]
        units = total(work, self.vector_bytes, self.rates).seconds(self.rates)
        units["instructions"] += sum(map(self._waiting, self.root.every()))
        return {**units, "L1": self._accesses(), "chain": self._chain()}

    def _waiting(self, loop: Loop) -> float:
        """The seconds in which one worker's instructions of the body of `loop` wait for one
        another, where few other runs of it are under way meanwhile.

        Of 93 instructions for a vector, 47 wait for a latency each. WINDOW holds 4.3 such bodies,
        which wait together: 47 / 4.3 = 11 latencies for each. Unrolled copies do not wait for one
        another, so that of 93 for 4 vectors, 12 wait.
        """
        copies = max((work.copies for work in loop.work), default=1) or 1  # 0 of no element
        all_runs = total(loop.work, self.vector_bytes, self.rates).instructions
        instructions = all_runs / max(loop.times, 1.0)
        waiting = WAITING * instructions / copies
        return loop.times * waiting * self.rates.latency * min(instructions / WINDOW, ALONE)

    def _accesses(self) -> float:
        """The seconds of one worker that did all loads and stores from the nearest level: each as
        long as its bytes take there, and at least as long as a simple instruction. With the rates
        of COMMON_CPU, a load of 16 lanes of float32 takes 64 bytes / 270 GB/s = 0.24 ns, and one of
        a single element 1 / 5.3 GHz = 0.19 ns."""
        nearest = self.rates.levels[0]
        seconds = 0.0
        for loop in self.root.every():
            for access in loop.accesses:
                dtype = self.kernel.parameters[access.parameter].dtype
                registers = registers_of(access.lanes, dtype, self.vector_bytes)
                bytes_of_register = access.lanes * dtype.itemsize / registers
                rate = nearest.write if access.is_store else nearest.read
                seconds_of_register = max(bytes_of_register / rate, 1 / self.rates.simple)
                runs = access.times * access.share * access.copies
                seconds += runs * registers * seconds_of_register
        return seconds

    def _memory(self) -> dict[str, float]:
        """The seconds of lines that each level but the nearest gives or takes, by level, if all
        workers share them evenly.

        Of 1000 lines that L1 moves, L2 moves 300 and L3 moves 100: 700 come from L2, 200 from L3
        and 100 from memory, which no further level moves."""
        line, levels = self.rates.line, self.rates.levels[1:]
        seconds = dict.fromkeys((level.name for level in levels), 0.0)
        for part in self.traffic.lines:
            moved = (*part.moved, 0.0)
            for number, level in enumerate(levels):
                nbytes = max(moved[number] - moved[number + 1], 0.0) * line
                seconds[level.name] += nbytes / self._rate(part, level)
        return seconds

    def _rate(self, part: Lines, level: Memory) -> float:
        """Bytes a second at which all workers move the lines of `part` from or to `level`. A store
        is not waited for, so only loads are slower where lines lie apart."""
        if part.reference.is_store:
            rate = min(level.write * self.workers, level.all_write)
            # The lines of such stores are counted at each level, as those of others are, and
            # no level reads them first.
            parameter = part.reference.parameter
            is_streamed = self.streams_stores and bypasses_caches(self.kernel, parameter)
            return rate * STREAMED if is_streamed else rate
        # The first line of each stretch is a jump, and the others follow it: of stretches of 4
        # lines every fourth one jumps. Seconds a byte are the mean of both.
        jumping = min(self.rates.line / part.stretch, 1.0)
        # Both rates are measured, each with an error: without jumps loads are never slower.
        scattered = min(level.scattered, level.read)
        seconds_per_byte = jumping / scattered + (1 - jumping) / level.read
        return min(self.workers / seconds_per_byte, level.all_read)

    def _chain(self) -> float:
        """The seconds of one worker in chains of dependent steps, if it did all the work: in each
        loop the longest chain counts, for all iterations.

        Runs of a reduction overlap as far as WINDOW holds their instructions: of sums of 5 x 5
        elements, each of which takes a load, an addition and 3 instructions of the loop, 125 for a
        sum, three are under way at a time.
        """
        seconds = 0.0
        for loop in self.root.every():
            # Of one iteration, in additions: its steps that wait for one another.
            latencies = [work.chained * latency_of(work.op, work.dtype) for work in loop.work]
            iteration = max(latencies, default=0.0) * self.rates.latency
            if not iteration:
                continue
            copies = sum(work.copies for work in loop.work)
            loads = sum(access.copies for access in loop.accesses)
            instructions_of_run = _steps_of_run(loop) * (copies + loads + OF_ITERATION)
            runs_at_a_time = max(WINDOW / max(instructions_of_run, 1.0), 1.0)
            seconds += loop.times * iteration / runs_at_a_time
        return seconds


def _steps_of_run(loop: Loop) -> float:
    """The iterations of the innermost `loop` of a reduction, or of a scan, in all of its loops: 25
    of the inner one of sums of 5 x 5."""
    steps, place = loop.trips, loop.around
    while place is not None and place.axis is not None and place.axis.arg.reduce:
        steps *= place.trips
        place = place.around
    return steps


class _GpuCost(_NestCost):
    """The cost of a nest on a GPU, which `in_blocks` gives lanes: its blocks are the chunks, and
    its multiprocessors the workers."""

    each_lane = False
    streams_stores = False  # no store of a GPU reads its line first, so none has to avoid that

    def __init__(self, nest: Nest, target: Target, rates: Rates, around: float) -> None:
        super().__init__(in_blocks(nest), target, rates, around)
        # Whether each lane of a warp looks at another update of a scatter.
        columns = nest.kernel.stores[0].axes[nest.kernel.rows :]
        self.lanes_vote = find_hit_loop(nest, columns, target.warp) is not None

    def _accesses(self) -> float:
        """The seconds of one multiprocessor that did all accesses of all blocks: each instruction
        takes as long as to find the lines that the threads of a block touch with it together, and
        at least as long as a word for each thread of its warps. Threads with long sums have few
        accesses under way, so that one line is found in a clock instead of LINES_A_CLOCK."""
        nearest = self.rates.levels[0]
        longest = max((points(bound_axes(node)) for node in self.kernel.with_loops), default=1)
        lines_a_clock = LINES_A_CLOCK if longest <= SHORT_SUM else 1
        nbytes = 0.0
        for loop in self.root.every():
            for access in loop.accesses:
                words = ceil(access.lanes / WARP) * WARP
                finding = self._lines_touched(access, LINE_BYTES) * LINE_BYTES / lines_a_clock
                nbytes += self._instructions(access) * max(finding, words * WORD)
        return nbytes / nearest.read

    def _memory(self) -> dict[str, float]:
        """Stores go past the first level: the second one gets the sectors of each instruction by
        themselves, more than the lines that all of them touch together where they store parts."""
        seconds = super()._memory()
        sector, second = self.rates.line, self.rates.levels[1]
        stored = 0.0
        for loop in self.root.every():
            for access in loop.accesses:
                if access.is_store:
                    stored += self._instructions(access) * self._stored_bytes(access, sector)
        lines = sum(part.moved[0] for part in self.traffic.lines if part.reference.is_store)
        more_bytes = max(stored - lines * sector, 0.0)
        seconds_of_parts = more_bytes / min(second.write * self.workers, second.all_write)
        return {**seconds, second.name: seconds[second.name] + seconds_of_parts}

    def _stored_bytes(self, access: Access, sector: int) -> float:
        """The bytes of the second level that a block's store takes. Where each thread stores a word
        or more, each sector that the block touches counts once. Where it stores less, as many
        sectors as the bytes would fill count as whole, and the others as PARTIAL_SECTOR: 32
        elements of 16 bits far apart are 2 * 32 + 30 * 48."""
        itemsize = self.kernel.parameters[access.parameter].dtype.itemsize
        of_thread = self._joined(access) * itemsize
        touched = self._lines_touched(access, sector)
        if of_thread >= WORD:
            return touched * sector
        whole = min(access.lanes * of_thread / sector, touched)
        return whole * sector + (touched - whole) * PARTIAL_SECTOR

    def _instructions(self, access: Access) -> float:
        """How often a block makes an access, in all blocks together."""
        runs = access.times * access.share * access.copies
        return runs / self._joined(access)

    def _lines_touched(self, access: Access, line: int) -> float:
        """The lines of so many bytes that the threads of a block touch with an instruction, those
        of each warp counted by themselves.

        Of 23 x 11 threads whose rows are 11 columns of one array and 23 of another, each a line,
        8 warps touch 11 lines of the first each, and 23 of the second together."""
        footprint = self.traffic.footprints[self.traffic.reference(access)]
        lanes = {axis for axis in access.axes if self.nest.bound(axis) == "vector"}
        fastest = self._axes_of_warp()
        together = lanes.intersection(fastest) if fastest else lanes
        elements = self._joined(access)
        lines = footprint.region(frozenset(together)).with_runs(elements).lines(line)
        if len(fastest) > 1:
            of_warp = footprint.region(frozenset(lanes.intersection(fastest[:-1])))
            warps = ceil(points(fastest) / WARP)
            lines = max(lines, of_warp.with_runs(elements).lines(line) * warps)
        return lines * points(lanes - together)

    def _axes_of_warp(self) -> list[Node]:
        """Of the lanes of a nest whose threads have rows by themselves the axes that neighbouring
        threads lie along, as many as a warp needs, the fastest first; none where threads share
        rows.

        Of a grid of 53,165 by 37 rows, the last the fastest, a block has 6 of the first along all
        37, and a warp 32 of these.
        """
        lanes = [axis for axis in reversed(self.nest.order) if self.nest.bound(axis) == "vector"]
        if not set(lanes) <= set(self.kernel.row_axes):
            return []
        fastest: list[Node] = []
        while lanes and points(fastest) < WARP:
            fastest.append(lanes.pop(0))
        return fastest

    def _joined(self, access: Access) -> int:
        """How many neighbours one instruction of a thread reads or writes, of the elements at its
        unrolled points: up to 16 bytes, and 1 of windows that begin within a word."""
        itemsize = self.kernel.parameters[access.parameter].dtype.itemsize
        unrolled = frozenset(axis for axis in access.axes if self.nest.bound(axis) == "unroll")
        longest = self.target.vector_bytes // itemsize
        return ix.neighbours_of_access(access.index, unrolled, longest)

    def _units(self) -> dict[str, float]:
        units = {**super()._units(), "rounds": self._rounds()}
        units["instructions"] += self._counting() / self.rates.simple
        return units

    def _counting(self) -> float:
        """The instructions of warps that say where to read and write, and that count iterations."""
        count = 0.0
        for loop in self.root.every():
            lanes = [access.lanes for access in loop.accesses] + [work.lanes for work in loop.work]
            if loop.axis is not None and self.nest.bound(loop.axis) == "serial":
                count += OF_ITERATION * loop.times * ceil(max(lanes, default=1) / WARP)
            for access in loop.accesses:
                count += OF_ACCESS * self._instructions(access) * ceil(access.lanes / WARP)
        return count

    def _rounds(self) -> float:
        """The seconds of one multiprocessor that ran all blocks, round after round: so many at a
        time as their threads fit, each round as long as an access of memory.

        A copy of (30720, 157) elements, one of each thread, has 18,840 blocks of 256 threads, of
        which a multiprocessor runs 8 at a time: 2355 rounds, and 18 for each of 132.
        """
        return self._rounds_of_each() * self.workers * self.rates.access

    def _rounds_of_each(self) -> int:
        """The rounds of a multiprocessor."""
        accesses = [access for loop in self.root.every() for access in loop.accesses]
        threads = max((access.lanes for access in accesses), default=1)
        blocks_at_once = max(min(RESIDENT // max(threads, self.target.warp), BLOCKS), 1)
        return ceil(self.chunks / self.workers / blocks_at_once)

    def time(self) -> KernelTime:
        """A scatter takes as long as its updates wait for one another, at least."""
        time = super().time()
        if self.nest.private is not None:
            return self._private_time(time)
        scattering = self._scattering()
        if not scattering:
            return time
        launch = self.rates.launch
        share = self._share_of_iterations(1 / owners_of(self.kernel))
        demands = {name: each * share for name, each in time.demands.items()}
        seconds = launch + max((time.seconds - launch) * share, scattering)
        return KernelTime(seconds, {**demands, "scatter": scattering})

    def _private_time(self, time: KernelTime) -> KernelTime:
        """A scatter with results in memory of blocks, which go through the updates, those of
        float32 with exponents to be found twice."""
        private = self.nest.private
        assert private is not None
        kernel, launch = self.kernel, self.rates.launch
        store = kernel.stores[0]
        array = kernel.parameters[store.parameter]
        width = points([axis for axis in kernel.row_axes if self.nest.bound(axis) == "vector"])
        results = private.places * width
        stride = scatter_places(kernel)[0].stride
        of_row = self.nest.axis(private.block).arg.size
        passes = private.scale.passes if private.scale else 1
        blocks = BlocksOfScatter(
            rows=int(self.chunks) // of_row,
            blocks=of_row,
            results=results,
            nbytes=private.nbytes(results, array.dtype),
            updates=points(store.axes[kernel.rows :]) * width,
            passes=passes,
            array=array.nbytes,
            run=array.dtype.itemsize * (width if stride > width else results),
        )
        parts = blocks.demands(self.target, self.rates)
        demands = {name: passes * each for name, each in time.demands.items()}
        seconds = passes * (time.seconds - launch) + launch + sum(parts.values())
        return KernelTime(seconds, {**demands, **parts})

    def _scattering(self) -> float:
        """The seconds of the updates of a scatter; 0 for any other kernel. Atomic ones are so many
        at a time, and those of a place one after the other, if all places are as likely. In order,
        each thread goes through all updates of its rows, or all threads of a warp do so together:
        they look at 32 at a time, and add those that are theirs. These are at least one in 32, as
        data have some places more often than others, such as words. Of 8192 updates a thread then
        looks at 256 and adds 256, which takes as long as 512 of a thread by itself. A thread that
        reads several at once waits for memory once for all of them."""
        kernel, rates = self.kernel, self.rates
        if not scatter_places(kernel):
            return 0.0
        store = kernel.stores[0]
        updates = points(store.axes)
        of_place = updates / max(kernel.parameters[store.parameter].size, 1)
        if store.atomic:
            return max(updates * rates.atomic, of_place * rates.same_place)
        columns = store.axes[kernel.rows :]
        iterations = points(columns)
        at_once = points([axis for axis in columns if self.nest.bound(axis) == "unroll"])
        sends = sends_updates(kernel) and self.target.adds_atomically
        sent = updates / owners_of(kernel)  # each by the owner of its place
        sending = sent * rates.apart if sends and self._has_places_apart() else 0.0
        if sends and at_once > 1:
            return max(ceil(iterations / at_once) * rates.access, sending)
        own = max(1 / owners_of(kernel), 1 / WARP)
        return max(iterations * rates.update * self._share_of_iterations(own), sending)

    def _has_places_apart(self) -> bool:
        """Whether neighbouring threads of a scatter add in different sectors of memory: where rows
        of results have no neighbours beside them, or where neighbours have indices of their own."""
        store = self.kernel.stores[0]
        strides, _ = ix.terms_of(store.index)
        of_rows = {axis: strides[axis] for axis in self.kernel.row_axes if axis in strides}
        nearest = min(of_rows, key=lambda axis: of_rows[axis], default=None)
        if nearest is None:
            return False
        places = scatter_places(self.kernel)
        has_own_index = any(nearest in free_axes(place.index) for place in places)
        is_far = of_rows[nearest] * store.value.dtype.itemsize > self.rates.line
        return has_own_index or is_far

    def _share_of_iterations(self, own: float) -> float:
        """The share of the loop over updates that a thread of a scatter runs: all of it, or, where
        lanes vote, the iterations that it looks at and those of updates of its `own`, a share too:
        1/32 + 1/8 of 8 owners for each row."""
        return min(1 / WARP + own, 1.0) if self.lanes_vote else 1.0

    def _chain(self) -> float:
        """The chains of a block, in each round."""
        seconds = 0.0
        for loop in self.root.every():
            latencies = [work.chained * latency_of(work.op, work.dtype) for work in loop.work]
            seconds += loop.times * max(latencies, default=0.0) * self.rates.latency
        of_block = seconds / max(self.chunks, 1)
        return self._rounds_of_each() * self.workers * of_block

    def _waiting(self, loop: Loop) -> float:
        return 0.0  # other warps issue their instructions meanwhile
