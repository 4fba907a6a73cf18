"""Threads that store whole accesses of what they load from places that begin anywhere.

``y[i] = x[i + 1] - x[i]`` in bfloat16 has no accesses of several elements that are aligned for all:
x[i + 1] begins within one. A thread with a single element asks for four bytes at a time; one with 8
reads 9 elements one by one, and stores 16 bytes.
"""

from collections.abc import Iterator

from lamina.graph import index as ix
from lamina.ir.node import Node
from lamina.ir.ops import Op
from lamina.loops.nest import has_atomics
from lamina.schedule.gpu.planner import GpuPlanner


def tiles_of_shifted(plan: GpuPlanner, best: Node) -> Iterator[GpuPlanner]:
    """A planner that goes on from `plan` with threads that have neighbours along the row axis
    `best` for an access that stores, where loads begin within an access; none for kernels with
    loops, and where neighbours of a row do not load neighbours."""
    loads = plan.kernel.of(Op.LOAD)
    are_near = all(
        ix.suits(best, load.src[0]) in (ix.NEIGHBOURS, ix.SAME_ELEMENT) for load in loads
    )
    if plan.inner() or has_atomics(plan.kernel) or not are_near:
        return
    lanes = plan.lanes_of_thread(best, of_loads=False)
    if lanes == plan.lanes_of_thread(best):
        return
    tiled = plan.branch()
    accesses, element = tiled.split(best, lanes)
    tiled.bind(element, "unroll")
    tiled.register_tile = frozenset({element})
    tiled.reorder([accesses, element])
    yield tiled
