"""Scatters of few updates, which each thread reads many at a time and sends to memory in order.

Where memory adds floats by itself (`sends_updates`), no update waits for the one before. What is
left is the time to read them: a thread that reads UPDATES_SENT at once waits for memory once in as
many. A sum of float32 with (96, 3140) updates at 2671 places took an H200 28 us so, with the copy
of what is added to, and 61 in memory of blocks, which combine all places with the array.

A second loop around the one of updates would run its last, shorter part after all others, and not
in order: such a scatter goes another way.
"""

from collections.abc import Iterator

from lamina.loops.nest import sends_updates
from lamina.loops.scatters import Speculate
from lamina.schedule.gpu.planner import GpuPlanner

UPDATES_SENT = 16  # that a thread reads at a time


def sent_scatters(plan: GpuPlanner) -> Iterator[GpuPlanner]:
    """A planner that goes on from `plan`, of a scatter whose updates a thread sends; none of any
    other kernel."""
    kernel = plan.kernel
    if not sends_updates(kernel):
        return
    columns = kernel.stores[0].axes[kernel.rows :]
    if len(columns) != 1:
        return
    planner = plan.branch()
    (updates,) = columns
    planner.do(Speculate(updates.arg.number))
    if updates.arg.size <= UPDATES_SENT:
        planner.bind(updates, "unroll")
    else:
        planner.tile(updates, UPDATES_SENT, "unroll")
    for axis in planner.rows:
        planner.bind(axis, "grid")
    yield planner
