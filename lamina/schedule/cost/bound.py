"""A bound on time that needs no schedule: a roofline with perfect reuse.

Each byte of an input is read once, each of a result written once, each value computed once on full
vectors by all workers, and everything overlaps. Where arrays are small enough to be in a cache when
they are used again, their bytes come from there.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

from lamina.core.rates import Rates
from lamina.core.target import Target
from lamina.ir.kernel import points
from lamina.ir.node import Node
from lamina.ir.ops import Op
from lamina.loops.nest import Nest
from lamina.schedule.cost.operations import Demand, irreducible
from lamina.schedule.cost.traffic import Lines

# How much faster a CPU writes past its caches: a line that is written through them is read first.
STREAMED = 2


@dataclass(frozen=True)
class Need:
    """What has to be done: bytes read and written of each array, and operations.

    read, written: bytes by array; what names an array is up to the caller
    operations: of all workers
    """

    read: Mapping[object, float]
    written: Mapping[object, float]
    operations: Demand

    def seconds(self, rates: Rates, target: Target) -> float:
        """The largest of the times of memory and of each unit: all workers share all work evenly,
        and everything overlaps."""
        workers = target.multiprocessors
        units = (seconds / workers for seconds in self.operations.seconds(rates).values())
        return max(self.memory(rates, target), *units)

    def memory(self, rates: Rates, target: Target) -> float:
        """The seconds that all workers take to move all bytes, each once.

        Kernels run again and again, so that each level keeps as many of them as it holds until the
        next run, the nearest level first; only what it does not hold comes from beyond. Of 40 MB
        with shared caches of 10 and 30 MB, each of which also holds what the smaller one does, a
        quarter comes from the first, half from the second, and a quarter from memory:
        `from_here_on` is 1, 0.75, 0.25, 0, and a level gives the difference of two neighbours.
        """
        workers = target.multiprocessors
        writes_faster = STREAMED if target.warp == 1 else 1  # a GPU never reads what it overwrites
        read, written = sum(self.read.values()), sum(self.written.values())
        from_here_on = [1.0]  # of all bytes, the share that each level and those beyond it give
        for level in rates.levels[:-1]:
            nbytes = read + written
            if not level.shared:
                nbytes /= workers  # of which each worker has its part
            held = level.size / max(nbytes, 1.0)
            from_here_on.append(min(max(1.0 - held, 0.0), from_here_on[-1]))
        from_here_on.append(0.0)
        seconds = 0.0
        for level, (share, beyond) in zip(rates.levels, pairwise(from_here_on), strict=True):
            reading = min(level.all_read, level.read * workers)
            writing = writes_faster * min(level.all_write, level.write * workers)
            seconds += (share - beyond) * (read / reading + written / writing)
        return seconds


def need_of(nest: Nest, lines: Iterable[Lines], target: Target, rates: Rates) -> Need:
    """What a nest's kernel has to do with the arrays of the program, by parameter: not with those
    of its own that a schedule or row blocks add. lines: its traffic, of which only the bytes that
    are used count, so that a line is not read for one element of it. Of references to one array
    the largest counts, as the others may touch the same elements. Of an array that the kernel
    writes, reads are not counted: they may be of what it wrote.
    """
    read, written = dict[object, float](), dict[object, float]()
    for part in lines:
        number = part.reference.parameter
        array = nest.kernel.parameters[number]
        if array.memory == "device":
            bytes_of = written if array.written else read
            if part.reference.is_store or not array.written:
                bytes_of[number] = max(bytes_of.get(number, 0.0), part.used)
    return Need(read, written, operations_of(nest, target, rates))


def operations_of(nest: Nest, target: Target, rates: Rates) -> Demand:
    """What a nest's kernel computes, however it is scheduled. On a GPU with tensor cores these
    multiply: numbers of 16 bits, where all loaded floats have so many, at full rate, and tf32,
    where the schedule chose that, at half of it. Other float32 takes instructions. All loads count,
    not the factors alone: with a float32 bias, products of 16 bits are counted too dear."""
    each_product = 0.0
    if rates.tensor:
        factors = [load.dtype for load in nest.kernel.of(Op.LOAD) if load.dtype.is_float]
        if nest.product.startswith("mma_tf32"):
            each_product = 2.0
        elif factors and all(dtype.itemsize <= 2 for dtype in factors):
            each_product = 1.0
    iterations = partial(extent_of, nest)
    return irreducible(nest.kernel, iterations, instruction_bytes(target), rates, each_product)


def instruction_bytes(target: Target) -> int:
    """The bytes that an instruction computes at most: a vector register of a CPU, or 4 bytes for
    each thread of a GPU's warp."""
    return target.vector_bytes if target.warp == 1 else 4 * target.warp


def extent_of(nest: Nest, axes: Iterable[Node]) -> float:
    """How many iterations loops over `axes` have together. Of an axis of 10 that was split into 3
    and 4 all sub-loops have 10, not 12; the outer one alone has 3, the inner one 4."""
    walking, count = set(axes), 1
    for split in nest.splits:
        sub_loops = walking.intersection(split.axes)
        count *= min(points(sub_loops), split.extent)
        walking -= sub_loops
    return float(count * points(walking))
