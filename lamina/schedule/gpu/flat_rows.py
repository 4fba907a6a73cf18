"""Rows of short lines, as one loop: neighbouring threads then have neighbouring elements.

A group norm of images of (13120, 3, 5) in 4 groups has rows of 3280 channels of 15 places each, as
weights are of a channel. With threads along the channels, those of a warp would read 15 elements
apart; along the places a warp would have 15 of them. Threads along all 49,200 elements find the
channel by a division.
"""

import contextlib
from collections.abc import Iterator

from lamina.errors import FormatError
from lamina.loops.moves import Flatten
from lamina.loops.nest import Axes, has_atomics, serial_axes
from lamina.schedule.gpu.planner import SHORT_BLOCK, GpuPlanner


def flat_rows(plan: GpuPlanner) -> Iterator[GpuPlanner]:
    """A planner that goes on from `plan` with all loops flat that end with an axis of fewer steps
    than a block has threads, for which others are divided; none where there is no such loop, and
    for products and loops in order."""
    kernel = plan.kernel
    if plan.contraction() is not None or serial_axes(kernel) or has_atomics(kernel):
        return
    flat = plan.branch()
    while any(_flatten(flat, axes) for axes in flat.inner()):
        pass
    if len(flat.moves) > len(plan.moves):
        yield flat


def _flatten(plan: GpuPlanner, axes: Axes) -> bool:
    """Make the last two axes of a loop one, if the last one is short and indices allow that."""
    if len(axes) < 2 or axes[-1].arg.size >= SHORT_BLOCK:
        return False
    first, second = (axis.arg.number for axis in axes[-2:])
    with contextlib.suppress(FormatError):
        plan.do(Flatten(first, second, plan.next_axis()))
        return True
    return False
