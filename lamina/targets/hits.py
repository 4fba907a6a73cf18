"""The loop that EACH_HIT in `gpu.c` goes through: its lanes vote on the iterations."""

from lamina.ir.kernel import free_axes
from lamina.ir.node import Node
from lamina.loops.hits import lanes_vote
from lamina.loops.nest import Axes, Nest


def find_hit_loop(nest: Nest, axes: Axes, warp: int) -> Node | None:
    """The loop over `axes` whose iterations lanes vote on, or None. Of several loops that decide
    the condition, the longest one gains most."""
    if not lanes_vote(nest, warp):
        return None
    deciding = free_axes(nest.kernel.stores[0].condition)
    loops = [axis for axis in axes if axis in deciding]
    return max(loops, key=lambda axis: axis.arg.size, default=None)
