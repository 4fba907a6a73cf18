"""What the heuristics for GPUs share: their planner, and how many neighbours a thread takes."""

from math import gcd

from lamina.core.target import Target
from lamina.graph import index as ix
from lamina.ir.kernel import Kernel, free_axes
from lamina.ir.node import Node
from lamina.ir.ops import Op
from lamina.schedule.knobs import GpuKnobs
from lamina.schedule.planner import RARE, Planner, score

MIN_ELEMENT_BYTES = 2  # an access of 16 bytes has at most 8 elements, also of 1 byte
SHORT_BLOCK = 256  # threads that share short rows, or have a row each


class GpuPlanner(Planner):
    """A planner with the facts of a GPU and the knobs of its heuristics. Its `width` is how many
    elements an access of 16 bytes has: 4 of float32, 8 of bfloat16."""

    def __init__(self, kernel: Kernel, target: Target, knobs: GpuKnobs) -> None:
        super().__init__(kernel, width=target.vector_bytes // _widest_element(kernel))
        self.target, self.knobs = target, knobs

    def aligned_lanes(self, axis: Node, threads: int) -> int:
        """Neighbours along `axis` that one thread takes, if `threads` are left: a power of two that
        keeps every access along it aligned. 4 of float32 fill an access of 16 bytes; of rows of
        1022 elements only 2 do, as every second row begins between two accesses."""
        if score(self.kernel, axis) <= 0:
            return 1
        lanes = self.lanes(axis.arg.size // threads)
        loads = [load.src[0] for load in self.kernel.of(Op.LOAD)]
        stores = [store.index for store in self.kernel.stores]
        for index in loads + stores:
            if axis in free_axes(index):
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
