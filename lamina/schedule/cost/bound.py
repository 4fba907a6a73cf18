"""A bound on time that needs no schedule: a roofline with perfect reuse.

Each byte of an input is read once, each of a result written once, each value computed once on full
vectors by all workers, and everything overlaps. Where arrays are small enough to be in a cache when
they are used again, their bytes come from there.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial

from lamina.core.rates import Rates
from lamina.core.target import Target
from lamina.ir.kernel import points
from lamina.ir.node import Node
from lamina.ir.ops import Op
from lamina.loops.nest import Nest
from lamina.schedule.cost.operations import Demand, irreducible
from lamina.schedule.cost.traffic import Lines

STREAMED = 2  # a line that is written past the caches is not read before: twice as fast


@dataclass(frozen=True)
class Need:
    """What has to be done: bytes read and written of each array, by any key, and operations."""

    read: Mapping[object, float]
    written: Mapping[object, float]
    operations: Demand

    def seconds(self, rates: Rates, target: Target) -> float:
        """The larger of the times of memory and of each unit."""
        workers = target.multiprocessors
        units = (seconds / workers for seconds in self.operations.seconds(rates).values())
        return max(self.memory(rates, target), *units)

    def memory(self, rates: Rates, target: Target) -> float:
        """The seconds of all bytes, by all workers."""
        workers = target.multiprocessors
        faster = STREAMED if target.warp == 1 else 1  # a GPU never reads what it overwrites
        read, written = sum(self.read.values()), sum(self.written.values())
        shares = [1.0]  # of all bytes, what each level and those beyond it give
        for level in rates.levels[:-1]:
            share = 1.0 if level.shared else 1.0 / workers
            kept = level.size / max((read + written) * share, 1.0)  # at best
            shares.append(min(max(1.0 - kept, 0.0), shares[-1]))
        seconds = 0.0
        for level, share, beyond in zip(rates.levels, shares, [*shares[1:], 0.0], strict=True):
            reading = min(level.all_read, level.read * workers)
            writing = faster * min(level.all_write, level.write * workers)
            seconds += (share - beyond) * (read / reading + written / writing)
        return seconds


def need_of(nest: Nest, lines: Iterable[Lines], target: Target, rates: Rates) -> Need:
    """What a nest's kernel has to do. Of an array that it writes, reads are not counted: they may
    be of what it wrote."""
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
    """What a nest's kernel computes, however it is scheduled."""
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
    """What an instruction computes at most: a vector, or 4 bytes for each thread of a warp."""
    return target.vector_bytes if target.warp == 1 else 4 * target.warp


def extent_of(nest: Nest, axes: Iterable[Node]) -> float:
    """How often loops over `axes` run, without the ends of uneven splits."""
    walking, count = set(axes), 1
    for split in nest.splits:
        sub_loops = walking.intersection(split.axes)
        count *= min(points(sub_loops), split.extent)
        walking -= sub_loops
    return float(count * points(walking))
