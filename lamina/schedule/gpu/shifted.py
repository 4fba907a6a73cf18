"""Threads that store whole accesses of what they load from places that begin anywhere.

``y[i] = x[i + 1] - x[i]`` in bfloat16 has no accesses of several elements that are aligned for all:
x[i + 1] begins within one. A thread with a single element asks for four bytes at a time; one with 8
reads 9 elements one by one, and stores 16 bytes.
"""

from collections.abc import Iterator

from lamina.graph import index as ix
from lamina.ir.kernel import points
from lamina.ir.node import Node
from lamina.ir.ops import Op
from lamina.loops.nest import has_atomics
from lamina.schedule.gpu.planner import GpuPlanner


def tiles_of_shifted(plan: GpuPlanner, best: Node) -> Iterator[GpuPlanner]:
    """A planner that goes on from `plan` with threads that have neighbours along the row axis
    `best`, an access of each array that is stored, where arrays are loaded from within accesses;
    none for kernels with loops, and where what is loaded are no neighbours."""
    loads = plan.kernel.of(Op.LOAD)
    are_near = all(
        ix.suits(best, load.src[0]) in (ix.NEIGHBOURS, ix.SAME_ELEMENT) for load in loads
    )
    if plan.inner() or has_atomics(plan.kernel) or not are_near:
        return
    other_rows = max(points(plan.rows) // best.arg.size, 1)
    threads = max(plan.knobs.enough_threads // other_rows, 1)
    lanes = plan.aligned_lanes(best, threads, of_loads=False)
    if lanes == plan.aligned_lanes(best, threads):
        return
    tiled = plan.branch()
    accesses, element = tiled.split(best, lanes)
    tiled.bind(element, "unroll")
    tiled.register_tile = frozenset({element})
    tiled.reorder([accesses, element])
    yield tiled
