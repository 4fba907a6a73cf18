"""Which axes get the vectors: those along which the kernel takes the fewest instructions.

Rows of 3 elements are vectors of 2 lanes and of 1: each operation is issued twice for 3 elements.
With 16 rows as lanes it is issued once for 16 elements, but elements that lie apart are loaded and
stored lane by lane. So the longer a chain of operations is, the more lanes along rows gain.

``y[i, j] = tanh(sin(x[i, j]) + z[i])`` of (1000, 3), with operations of 153 instructions, takes for
each element

    along j    2 / 3 * (153 + 2) and 1 / 3 to load z    = 104 instructions
    along i    1 / 16 * 153 + 2 + 4                     = 16

A softmax over rows of 10 gains as much: a vector of 8 and one of 2 become 10 of 16, and no lanes
are left to be added up.
"""

from collections.abc import Collection, Iterable

from lamina.graph import index as ix
from lamina.ir.kernel import Kernel, bound_axes, divisor_of, free_axes, passes, points
from lamina.ir.node import Node
from lamina.ir.ops import Group, Op
from lamina.loops.nest import dot_axes
from lamina.schedule.cost.operations import INSTRUCTIONS
from lamina.schedule.cpu.planner import CpuPlanner
from lamina.schedule.cpu.reductions import inner_vectors

# For each lane that lies apart: a load and an insertion into the vector; a store and an extraction,
# which is two instructions for most lanes.
LOADED_APART, STORED_APART = 2, 4
BY_DATA = 2  # more, where data or a condition decide by lane: an index or a test of its own
EXCHANGE = 2  # to add up half of the lanes to the others, besides the addition


def cheapest_row(plan: CpuPlanner, row: Node | None) -> Node | None:
    """`row`, or None for vectors along reductions and columns, unless vectors along another row
    axis take fewer instructions, with no cache lines that compete for one place."""
    kernel, width = plan.kernel, plan.width
    if dot_axes(kernel) or any(store.monoid for store in kernel.stores):
        # Other rows gain nothing as lanes: a dot product reads four neighbours for each lane, and
        # lanes of a scatter take turns.
        return row
    vectors = inner_vectors(plan) if row is None else [row]
    best, fewest = row, instructions(kernel, vectors, width)
    # Of rows that take equally many the innermost, which comes first here: the fewest other cache
    # lines come in between two uses of a line that its lanes touch.
    for other in reversed(plan.rows):
        count = instructions(kernel, [other], width)
        if count < fewest and not _is_distant(plan, other):
            best, fewest = other, count
    return best


def instructions(kernel: Kernel, vectors: Collection[Node], width: int) -> float:
    """The instructions of a kernel with vectors of up to `width` lanes along the axes `vectors`, of
    which a value depends on one at most. What does not vary along it is computed for all lanes at
    once."""
    total = 0.0
    needed = passes(kernel, Group.TRANSCENDENTAL)
    for node in kernel.nodes:
        axes = free_axes(node).union(bound_axes(node))
        vector = next((axis for axis in vectors if axis in axes), None)
        times = points(axes) * _share(vector, width)
        if node.op is Op.LOAD:
            total += points(axes) * needed[node] * _access(vector, node.src, width, LOADED_APART)
        elif bound_axes(node):
            combine = INSTRUCTIONS.get(node.arg.monoid.op, 1.0) / node.arg.monoid.arity
            total += times * combine
            if vector in bound_axes(node):
                halvings = min(width, vector.arg.size).bit_length() - 1
                total += points(free_axes(node)) * halvings * (combine + EXCHANGE)
        elif node.op in Group.ELEMENTWISE and not divisor_of(node):
            total += times * INSTRUCTIONS.get(node.op, 1.0)
    for store in kernel.stores:
        vector = next((axis for axis in vectors if axis in store.axes), None)
        accessed = (store.index, store.condition)
        total += points(store.axes) * _access(vector, accessed, width, STORED_APART)
    return total


def _share(vector: Node | None, width: int) -> float:
    """The vectors of an axis, for each of its elements: 3 / 22 for 22, which are vectors of 16, 4
    and 2 lanes. What is left of a reduction is one vector or single elements."""
    if vector is None:
        return 1.0
    size: int = vector.arg.size
    lanes = min(width, 1 << size.bit_length() >> 1)
    full, rest = divmod(size, lanes)
    parts = rest.bit_count()
    if vector.arg.reduce and parts > 1:
        parts = rest
    return (full + parts) / size


def _access(vector: Node | None, accessed: Iterable[Node], width: int, apart: int) -> float:
    """The instructions for each element of a load or store at an index, with its condition; `apart`
    if lanes lie apart."""
    suits = 0 if vector is None else ix.suits(vector, *accessed)
    if suits == 1:
        return _share(vector, width)
    if suits == 0:
        return 1.0
    return apart if suits == -1 else apart + BY_DATA


def _is_distant(plan: CpuPlanner, row: Node) -> bool:
    """Do neighbours along `row` lie so far apart somewhere that lines compete for one place?"""
    indices = [load.src[0] for load in plan.kernel.of(Op.LOAD)]
    indices += [store.index for store in plan.kernel.stores]
    strides = [abs(ix.terms_of(index)[0].get(row, 0)) for index in indices]
    return max(strides) >= plan.knobs.far
