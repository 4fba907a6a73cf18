"""Sums of products with numbers that memory holds as bytes in blocks, such as quantised weights.

Of ``sum_b,h,j x[b, h, j] * d[i, b] * float(w[i, b, j] >> 4 * h & 15)`` a byte has two numbers, h,
and a block b is 16 bytes j behind a scale d. A thread that goes through h and j in loops reads each
byte twice, alone, and multiplies each number by the scale. Here it has a whole block: it reads all
bytes at once, each once, and multiplies their sum by the scale.
"""

from collections.abc import Iterator

from lamina.ir.kernel import bound_axes, free_axes, loads_beneath, points
from lamina.ir.node import Node
from lamina.ir.ops import Op
from lamina.loops.factors import terms_of
from lamina.loops.moves import Factor
from lamina.loops.nest import Axes
from lamina.schedule.gpu.planner import GpuPlanner

# Numbers of a block that a thread unrolls at most: each is some five instructions, for each of up
# to four rows. Blocks of GGUF files have 32 numbers, or parts of 64 and fewer.
MAX_NUMBERS = 64


def tiles_of_blocks(plan: GpuPlanner) -> Iterator[GpuPlanner]:
    """A planner that goes on from `plan` with a register tile of the numbers of a block, or of a
    part of it; none where no sum reads bytes along several axes."""
    reductions = plan.kernel.of(Op.LOOP_REDUCE)
    all_axes = dict.fromkeys(bound_axes(node) for node in reductions)
    if len(all_axes) != 1 or not _reads_bytes(reductions):
        return
    (axes,) = all_axes
    numbers = _innermost(axes)
    if not numbers or len(numbers) == len(axes):
        return
    tiled = plan.branch()
    _factor(tiled, numbers)
    for axis in numbers:
        tiled.bind(axis, "unroll")
    tiled.register_tile = frozenset(numbers)
    yield tiled


def _innermost(axes: Axes) -> Axes:
    """The innermost of `axes` that have MAX_NUMBERS points at most together."""
    count = len(axes)
    while count and points(axes[count - 1 :]) <= MAX_NUMBERS:
        count -= 1
    return axes[count:]


def _reads_bytes(reductions: list[Node]) -> bool:
    loads = loads_beneath(reductions)
    return any(load.dtype.itemsize == 1 and free_axes(load) for load in loads)


def _factor(plan: GpuPlanner, inner: Axes) -> None:
    """Take scales of whole blocks out of the sums over their numbers."""
    for reduction in plan.kernel.of(Op.LOOP_REDUCE):
        terms = terms_of(reduction.src[0], {*inner})
        if len(terms) == 1 and terms[0].factor is not None:
            plan.do(Factor(plan.kernel.values.index(reduction), inner[0].arg.number))
