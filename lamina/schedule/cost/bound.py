"""A bound on time that needs no schedule: a roofline with perfect reuse.

Each byte of an input is read once, each of a result written once, each value computed once on full
vectors by all workers, and everything overlaps. Where arrays are small enough to be in a cache when
they are used again, their bytes come from there.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from lamina.core.rates import Rates
from lamina.core.target import Target
from lamina.ir.kernel import points
from lamina.ir.node import Node
from lamina.loops.nest import Axes, Nest
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
        return max(self._memory(rates, workers), *units)

    def _memory(self, rates: Rates, workers: int) -> float:
        read, written = sum(self.read.values()), sum(self.written.values())
        shares = [1.0]  # of all bytes, what each level and those beyond it give
        for level in rates.levels[:-1]:
            share = 1.0 if level.shared else 1.0 / workers
            kept = level.size / max((read + written) * share, 1.0)  # at best
            shares.append(min(max(1.0 - kept, 0.0), shares[-1]))
        seconds = 0.0
        for level, share, beyond in zip(rates.levels, shares, [*shares[1:], 0.0], strict=True):
            reading = max(level.all_read, level.read * workers)
            writing = STREAMED * max(level.all_write, level.write * workers)
            seconds += (share - beyond) * (read / reading + written / writing)
        return seconds


def need_of(nest: Nest, lines: Sequence[Lines], target: Target) -> Need:
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

    def iterations(axes: Axes) -> float:
        return extent_of(nest, axes)

    operations = irreducible(nest.kernel, iterations, target.vector_bytes)
    return Need(read, written, operations)


def extent_of(nest: Nest, axes: Iterable[Node]) -> float:
    """How often loops over `axes` run, without the ends of uneven splits."""
    walking, count = set(axes), 1
    for split in nest.splits:
        sub_loops = walking.intersection(split.axes)
        count *= min(points(sub_loops), split.extent)
        walking -= sub_loops
    return float(count * points(walking))
