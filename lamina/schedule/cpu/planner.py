"""What the heuristics for CPUs share: their planner, and large arrays with distant cache lines."""

from dataclasses import dataclass

from lamina.core.dtypes import float32
from lamina.core.target import Target
from lamina.graph import index as ix
from lamina.ir.kernel import Kernel, bound_axes, free_axes, points
from lamina.ir.node import Node, toposort
from lamina.ir.ops import Op
from lamina.loops.nest import can_accumulate
from lamina.schedule.knobs import CpuKnobs
from lamina.schedule.planner import Planner, loads_along, reused_rows

MIN_ELEMENT_BYTES = 4  # smaller elements are computed as elements of 4 bytes


@dataclass(frozen=True)
class CacheBlock:
    """A block of a product or a sum, which is computed before the next block: the columns, along a
    row axis, and the steps of the reduction."""

    columns: int
    steps: int


class CpuPlanner(Planner):
    """A planner with the facts of a CPU and the knobs of its heuristics."""

    def __init__(self, kernel: Kernel, target: Target, knobs: CpuKnobs) -> None:
        super().__init__(kernel, width=target.vector_bytes // _widest_element(kernel))
        self.target, self.knobs = target, knobs
        # Elements of float32 that stay in the second-level cache.
        self.cached = target.l2_bytes // knobs.cache_parts // float32.itemsize

    def reused_rows(self, reduction: Node, vector: Node) -> list[Node]:
        """The row axes along which all that varies along `vector` is used again, the best one for a
        register tile of `knobs.rows_at_once` rows last: see `reused_rows` of
        `schedule/planner.py`."""
        return reused_rows(self, reduction, vector, self.knobs.rows_at_once)

    def distant(self, loads: list[Node], axis: Node) -> list[Node]:
        """The loads whose neighbours along `axis` lie so far apart that their cache lines compete
        for one place in a cache."""

        def stride(load: Node) -> int:
            """How far apart neighbours along `axis` are, in elements."""
            terms, _ = ix.terms_of(load.src[0])
            return abs(terms.get(axis, 0))

        return [load for load in loads if stride(load) >= self.knobs.far_elements]

    def reads_distant_lines(self, reduction: Node, axis: Node, steps: int) -> bool:
        """Does each step of a reduction go to a distant cache line of a large array that varies
        along `axis`, and can the result accumulate blocks of `steps` steps?"""
        reduced = bound_axes(reduction)[0]
        loads = loads_along(reduction, axis)
        large = [load for load in loads if points(free_axes(load)) > self.cached]
        is_even = reduced.arg.size % steps == 0
        return is_even and bool(self.distant(large, reduced)) and self.accumulates(reduction)

    def accumulates(self, reduction: Node) -> bool:
        """Can the memory of the result accumulate blocks of `reduction`? It is what the kernel
        stores, and not one beneath that, such as the maximum in a sum of maxima."""
        return can_accumulate(self.kernel) and self.kernel.stores[0].value is reduction


def _widest_element(kernel: Kernel) -> int:
    """Bytes of the widest element of a kernel, MIN_ELEMENT_BYTES at least: all its vectors have as
    many lanes as that allows, 8 in 64 bytes if one array is of float64.

    What memory holds counts whatever its dtype, but for arrays that only say where others are read
    or written, such as the int64 places of an interpolation: their elements are mostly read one by
    one. What is computed counts if it is a float: every kernel computes indices, and their int64
    would halve the lanes of all kernels. A cast that is stored counts as the narrower side, such as
    the int32 of a place that memory holds as int64.
    """
    values = toposort((store.value for store in kernel.stores), below=_operands_of_value)
    loaded = [node.dtype.itemsize for node in values if node.op is Op.LOAD]
    stored = [_stored_bytes(store.value) for store in kernel.stores]
    computed = [node.dtype.itemsize for node in kernel.nodes if node.dtype.is_float]
    return max([MIN_ELEMENT_BYTES, *loaded, *stored, *computed])


def _operands_of_value(node: Node) -> tuple[Node, ...]:
    """The operands of `node`, but for the place and the condition of a LOAD."""
    return () if node.op is Op.LOAD else node.src


def _stored_bytes(value: Node) -> int:
    """Bytes of a stored `value`; of a CAST those of the narrower side."""
    sides = (value, *value.src) if value.op is Op.CAST else (value,)
    return min(side.dtype.itemsize for side in sides)
