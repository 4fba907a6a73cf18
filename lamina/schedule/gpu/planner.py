"""What the heuristics for GPUs share: their planner, and how many neighbours a thread takes."""

from copy import copy
from math import gcd

from lamina.core.target import Target
from lamina.graph import index as ix
from lamina.ir.kernel import Kernel, free_axes, points
from lamina.ir.node import Node
from lamina.loops.nest import Axes
from lamina.schedule.knobs import GpuKnobs
from lamina.schedule.planner import RARE, Planner, score

MIN_ELEMENT_BYTES = 2  # an access of 16 bytes has at most 8 elements, also of 1 byte
SHORT_BLOCK = 256  # threads that share short rows, or have a row each
RESIDENT = 2048  # threads that a multiprocessor has under way, at most
TILE = 64  # points of a register tile of windows
# Sums of a thread that has one, with the neighbours that it takes: 8 results of two channels each.
# Chosen, so that half of 255 registers hold these, what they add up, and indices.
TILE_SUMS = 16


class GpuPlanner(Planner):
    """A planner with the facts of a GPU and the knobs of its heuristics. Its `width` is how many
    elements an access of 16 bytes has: 4 of float32, 8 of bfloat16."""

    def __init__(self, kernel: Kernel, target: Target, knobs: GpuKnobs) -> None:
        super().__init__(kernel, width=target.vector_bytes // _widest_element(kernel))
        self.target, self.knobs = target, knobs
        self.itemsize = target.vector_bytes // self.width  # of the widest element
        # Axes that are unrolled before anything else is decided: a register tile.
        self.register_tile: frozenset[Node] = frozenset()
        self.has_row_tile = False  # is it of rows that read elements in common?

    @property
    def rows(self) -> Axes:
        return self.outside_tile(super().rows)

    def inner(self) -> list[Axes]:
        loops = dict.fromkeys(map(self.outside_tile, super().inner()))
        return [axes for axes in loops if axes]

    def outside_tile(self, axes: Axes) -> Axes:
        """`axes` without those of the register tile."""
        return tuple(axis for axis in axes if axis not in self.register_tile)

    def for_each_point(self, registers: int) -> int:
        """How many of so many `registers` there are for each point of the register tile, one at
        least."""
        return max(registers // points(self.register_tile), 1)

    def branch(self) -> "GpuPlanner":
        """A planner that goes on from here by itself."""
        other = copy(self)
        other.moves = list(self.moves)
        return other

    def lanes_of_thread(self, axis: Node, *, of_loads: bool = True) -> int:
        """Neighbours along a row axis that a thread takes: as many as one access has, where they
        are aligned and enough threads are left. With 2**15 threads enough: of 64 rows of 4096
        elements of float32 a thread takes 4, as that leaves 2**16 threads; of 4 such rows 1, as
        even that leaves 2**14. of_loads: as of `aligned_lanes`"""
        other_rows = max(points(self.rows) // axis.arg.size, 1)
        threads_along_axis = max(self.knobs.enough_threads // other_rows, 1)
        return self.aligned_lanes(axis, threads_along_axis, of_loads=of_loads)

    def aligned_lanes(self, axis: Node, threads: int, *, of_loads: bool = True) -> int:
        """Neighbours along `axis` that one thread takes, if `threads` are left: a power of two that
        keeps every access along it aligned. 4 of float32 fill an access of 16 bytes; of rows of
        1022 elements only 2 do, as every second row begins between two accesses.

        of_loads: do accesses that load count too?"""
        if score(self.kernel, axis) <= 0:
            return 1
        sums = points(self.register_tile.intersection(self.kernel.row_axes))
        is_of_others = self.register_tile and not self.has_row_tile
        max_lanes = max(TILE_SUMS // sums, 1) if is_of_others else self.width
        lanes = self.lanes(min(axis.arg.size // threads, max_lanes))
        stored = {store.index for store in self.kernel.stores}
        for index in self.kernel.indices:
            if axis in free_axes(index) and (of_loads or index in stored):
                # An access is aligned if the number of its first element is a multiple of `lanes`,
                # so whatever is added to the index along `axis` has to be one.
                terms, constant = ix.terms_of(index)
                strides = [stride for term, stride in terms.items() if term is not axis]
                lanes = gcd(lanes, constant, *strides)
        return lanes


def _widest_element(kernel: Kernel) -> int:
    """Bytes of the widest element of the arrays that count, MIN_ELEMENT_BYTES at least.

    Arrays that are small beside the largest are read rarely and do not count: of a bfloat16 array
    of 1024 rows by 1024 columns and one float32 number a row, elements have 2 bytes.
    """
    largest = max(array.size for array in kernel.parameters)
    sizes = [array.dtype.itemsize for array in kernel.parameters if array.size >= largest // RARE]
    return max(MIN_ELEMENT_BYTES, *sizes)
