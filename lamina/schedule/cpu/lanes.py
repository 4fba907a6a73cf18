"""Which row axis of a map gets the vectors: the one along which it takes the fewest instructions.

Rows of 3 elements are vectors of 2 lanes and of 1: each operation is issued twice for 3 elements.
With 16 rows as lanes it is issued once for 16 elements, but elements that lie apart are loaded and
stored lane by lane. So the longer a chain of operations is, the more lanes along rows gain.

``y[i, j] = tanh(sin(x[i, j]) + z[i])`` of (1000, 3), with operations of 153 instructions, takes for
each element

    along j    2 / 3 * (153 + 2) and 1 / 3 to load z    = 104 instructions
    along i    1 / 16 * 153 + 2 * 2                     = 14
"""

from lamina.graph import index as ix
from lamina.ir.kernel import Kernel, divisor_of, free_axes, points
from lamina.ir.node import Node
from lamina.ir.ops import Group, Op
from lamina.schedule.cost.operations import DIVIDING, INSTRUCTIONS
from lamina.schedule.cpu.planner import CpuPlanner

# Instructions for each lane of an access whose lanes lie apart: a load and an insertion into the
# vector, or an extraction and a store. Where a condition differs by lane, each lane tests it too.
LANE_BY_LANE = 2
GUARDED_LANE = 4
DIVISION = 8  # instructions that others could issue while a vector is divided


def cheapest_row(plan: CpuPlanner, neighbours: Node) -> Node:
    """The row axis for vectors of a map, whose results are neighbours along `neighbours`. It is
    another one where that takes fewer instructions, and no lines compete for a place in a cache."""
    best, fewest = neighbours, instructions(plan.kernel, neighbours, plan.width)
    for row in reversed(plan.rows):  # the loops inside use the lines of all lanes up
        count = instructions(plan.kernel, row, plan.width)
        if count < fewest and not _is_distant(plan, row):
            best, fewest = row, count
    return best


def instructions(kernel: Kernel, axis: Node, width: int) -> float:
    """The instructions of a kernel without reductions whose vectors of up to `width` lanes run
    along `axis`. What does not vary along it is computed once for all lanes."""
    size = axis.arg.size
    each_element = _vectors(size, width) / size
    total = 0.0
    for node in kernel.nodes:
        times = points(free_axes(node))
        varies = axis in free_axes(node)
        if node.op is Op.LOAD:
            total += times * _access(axis, node.src, each_element)
        elif node.op in Group.ELEMENTWISE and not divisor_of(node):
            total += times * _operation(node) * (each_element if varies else 1)
    for store in kernel.stores:
        accessed = (store.index, store.condition)
        total += points(store.axes) * _access(axis, accessed, each_element)
    return total


def _vectors(size: int, width: int) -> int:
    """The vectors of `size` elements: 22 are one of 16 lanes, one of 4 and one of 2."""
    return size // width + (size % width).bit_count()


def _operation(node: Node) -> float:
    """The instructions of an elementwise operation on a vector."""
    return INSTRUCTIONS.get(node.op, 1.0) + (DIVISION if node.op in DIVIDING else 0)


def _access(axis: Node, accessed: tuple[Node, ...], each_element: float) -> float:
    """The instructions for each element of a load or store at an index, with its condition."""
    suits = ix.suits(axis, *accessed)
    if suits == 1:
        return each_element
    if suits == 0:
        return 1.0
    return LANE_BY_LANE if suits == -1 else GUARDED_LANE


def _is_distant(plan: CpuPlanner, row: Node) -> bool:
    """Do neighbours along `row` lie so far apart somewhere that lines compete for one place?"""
    indices = [load.src[0] for load in plan.kernel.of(Op.LOAD)]
    indices += [store.index for store in plan.kernel.stores]
    strides = [abs(ix.terms_of(index)[0].get(row, 0)) for index in indices]
    return max(strides) >= plan.knobs.far
