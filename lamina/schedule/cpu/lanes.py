"""Which axes get the vectors: those along which the kernel takes the fewest instructions.

Rows of 3 elements are vectors of 2 lanes and of 1: each operation is issued twice for 3 elements.
With 16 rows as lanes it is issued once for 16 elements, but elements that lie apart are loaded and
stored lane by lane. So the longer a chain of operations is, the more lanes along rows gain.

``y[i, j] = tanh(sin(x[i, j]) + z[i])`` of (1000, 3), with operations of 95 instructions, takes for
each element

    along j    2 / 3 * (95 + 2) and 1 / 3 to load z     = 65 instructions
    along i    1 / 16 * 95 + 2 + 4                      = 12

A softmax over rows of 10 gains as much: a vector of 8 and one of 2 become 10 of 16, and no lanes
are left to be added up.
"""

from collections.abc import Collection, Iterable
from math import gcd, inf

from lamina.core.integers import power_of_two_up_to
from lamina.graph import index as ix
from lamina.ir.kernel import (
    Kernel,
    Store,
    all_axes,
    bound_axes,
    divisor_of,
    free_axes,
    passes,
    points,
)
from lamina.ir.monoids import Monoid
from lamina.ir.node import Node
from lamina.ir.ops import Group, Op
from lamina.loops.nest import dot_axes, near_reads
from lamina.schedule.cost.operations import instructions_of
from lamina.schedule.cpu.planner import CpuPlanner
from lamina.schedule.cpu.reductions import inner_vectors

# Estimates, in instructions. For each lane that lies apart: a load and an insertion into the
# vector; a store and an extraction, which is two instructions for most lanes, rounded up.
LOADED_APART, STORED_APART = 2, 4
BY_DATA = 2  # more for each lane where data or a condition decide: an index or a test of its own
PAGES = 1.25  # as many where each lane lies in a page of its own
EXCHANGE = 2  # for each halving of a vector: moves half of its lanes beside the others


def cheapest_row(plan: CpuPlanner, row: Node | None) -> Node | None:
    """The row axis whose vectors take the fewest instructions; None for vectors along reductions
    and columns, inside the rows.

    row: the choice so far, with the same meaning of None. It stays unless vectors along another row
        axis take fewer instructions, of which those at a distance count more.

    For a softmax over the 10 columns of (1000, 10), `row` is None, and the result the axis of 1000.
    """
    kernel, width = plan.kernel, plan.width
    if dot_axes(kernel):  # other rows gain nothing as lanes: each reads four neighbours
        return row
    vectors = cheapest_inner(plan) if row is None else [row]
    best, fewest = row, instructions(kernel, vectors, width)
    # Of rows that take equally many the innermost, which comes first here: the fewest other cache
    # lines come in between two uses of a line that its lanes touch.
    for other in reversed(plan.rows):
        if any(store.monoid and not _stores_neighbours(store, other) for store in kernel.stores):
            continue  # lanes of a scatter that lie apart take turns
        count = instructions(kernel, [other], width) * distance_factor(plan, other)
        if count < fewest:
            best, fewest = other, count
    return best


def _stores_neighbours(store: Store, row: Node) -> bool:
    return ix.suits(row, store.index, store.condition) == ix.NEIGHBOURS


def cheapest_inner(plan: CpuPlanner) -> list[Node]:
    """The axes of reductions and columns for vectors: those of `inner_vectors`, but in a reduction
    over several axes the one along which the kernel takes the fewest instructions.

    The maximum of ``tanh(x[i, j])`` with 1000 i and 3 j has vectors along i, whose lanes are loaded
    one by one: along j they would be of 2 lanes and of one.
    """
    kernel, width = plan.kernel, plan.width
    vectors = inner_vectors(plan)
    if dot_axes(kernel) or kernel.of(Op.LOOP_SCAN):
        return vectors
    fewest = instructions(kernel, vectors, width)
    for axes in plan.inner():
        chosen = [axis for axis in axes if axis in vectors and axis.arg.reduce]
        for axis in axes:
            if not chosen or axis in vectors:
                continue
            others = [axis if vector is chosen[0] else vector for vector in vectors]
            count = instructions(kernel, others, width) * distance_factor(plan, axis)
            if count < fewest:
                vectors, chosen, fewest = others, [axis], count
    return vectors


def instructions(
    kernel: Kernel, vectors: Collection[Node], width: int, stored_apart: float | None = None
) -> float:
    """The instructions of one run of a kernel, each on one vector or single element.

    vectors: the axes that have lanes, up to `width` of them; a value depends on one at most. What
        does not vary along one of these is computed once for all lanes.
    stored_apart: the instructions that store an element where results lie apart along these;
        STORED_APART if None

    Loads count in each pass over a row, as that reads the row again. Elementwise operations count
    once: expensive ones are kept, and cheap ones that a pass repeats are left out. Divisions by
    constants in indices are left out, too: loops may count them.
    """
    total = 0.0
    passes_of = passes(kernel, Group.TRANSCENDENTAL)
    for node in kernel.nodes:
        axes = all_axes(node)
        vector = _vector_of(axes, vectors)
        if node.op is Op.LOAD:
            loads = points(axes) * passes_of[node]
            total += loads * _access(vector, node.src, width, _apart(node, vector, width))
        elif bound_axes(node):
            total += _steps(node, vector, width)
        elif node.op in Group.ELEMENTWISE and not divisor_of(node):
            total += points(axes) * share(vector, width) * instructions_of(node.op)
    for store in kernel.stores:
        accessed = (store.index, store.condition)
        vector = _vector_of(store.axes, vectors)
        apart = STORED_APART if stored_apart is None else stored_apart
        each = _access(vector, accessed, width, apart)
        total += points(store.axes) * each
    return total


def _vector_of(axes: Collection[Node], vectors: Iterable[Node]) -> Node | None:
    """The one of `vectors` that is among `axes`; None if none is, as then there are no lanes."""
    return next((vector for vector in vectors if vector in axes), None)


def _steps(node: Node, vector: Node | None, width: int) -> float:
    """The instructions of all steps of a reduction or scan, and of adding up the lanes of its sums
    if these lie along a reduced axis: 16 in 4 halvings, to 8, 4, 2 and 1.

    100 sums of 32 elements with 16 lanes along these: 100 * 32 / 16 additions of vectors, and for
    each sum 4 halvings of an exchange (2) and an addition (1), 100 * (2 + 4 * 3) = 1400.
    """
    # An argmax is two nodes, its value and its place: each counts half of their step.
    monoid: Monoid = node.arg.monoid
    step = instructions_of(monoid.op) / monoid.arity
    axes = all_axes(node)
    steps = points(axes) * share(vector, width) * step
    if vector is None or vector not in bound_axes(node):
        return steps
    size: int = vector.arg.size
    halvings = min(width, size).bit_length() - 1
    if node.op is Op.LOOP_SCAN:  # each vector of its steps is combined with itself, moved up
        return steps * (1 + halvings * (1 + EXCHANGE / step))
    return steps + points(free_axes(node)) * halvings * (step + EXCHANGE)


def share(vector: Node | None, width: int) -> float:
    """How many vectors an axis takes, divided by its elements; 1 if it is None, without lanes.

    A row axis of 22 is two vectors of 16 lanes that overlap: 2 / 22. What is left of a reduction is
    single elements unless it is a power of two: 22 as one vector and 6 elements, 7 / 22. Its short
    vectors wait for one another, and add up their lanes: softmax of rows of 31 elements takes 1.3
    times as long with vectors of 16, 8, 4 and 2 as with rows as lanes (measured).
    """
    if vector is None:
        return 1.0
    size: int = vector.arg.size
    lanes = min(width, power_of_two_up_to(size))
    full, rest = divmod(size, lanes)
    in_tail = min(rest, 1)
    if vector.arg.reduce and rest.bit_count() > 1:
        in_tail = rest
    return (full + in_tail) / size


def _access(vector: Node | None, accessed: Iterable[Node], width: int, apart: float) -> float:
    """The instructions for each element of a load or store.

    accessed: its index, and its condition if it has one
    apart: LOADED_APART or STORED_APART, for lanes that are a stride apart

    With 16 lanes and an axis i of 32: 1 / 16 for ``x[i]``, `apart` for ``x[3 * i]``, and `apart` +
    BY_DATA for ``x[y[i]]``. 1 for what does not vary along i: the caller counts it outside of i.
    """
    suits = ix.SAME_ELEMENT if vector is None else ix.suits(vector, *accessed)
    if suits == ix.NEIGHBOURS:
        return share(vector, width)
    if suits == ix.SAME_ELEMENT:
        return 1.0
    return apart if suits == ix.STRIDED else apart + BY_DATA


def _apart(load: Node, vector: Node | None, width: int) -> float:
    """The instructions for each element of a load whose lanes are a stride apart: of elements that
    are 3 apart 3 reads and 2 shuffles are 16 lanes."""
    if vector is None or load.src[1:]:
        return LOADED_APART
    lanes = min(width, vector.arg.size)
    reads = near_reads(ix.terms_of(load.src[0])[0].get(vector), load.dtype, width)
    return (reads + max(reads - 1, 1)) / lanes if reads else LOADED_APART


def distance_factor(plan: CpuPlanner, row: Node) -> float:
    """By how much lanes along `row` lengthen a kernel by their distance in memory: infinitely where
    lines of several lanes compete for one place of a cache, and by PAGES where each lane has a page
    of its own.

    A place is for lines that are a multiple of 4 KiB apart (`knobs.far_elements` of float32): of 16
    lanes 1024 elements apart all have one, and of lanes 1061 elements apart none shares any."""
    strides = [abs(ix.terms_of(index)[0].get(row, 0)) for index in plan.kernel.indices]
    far = plan.knobs.far_elements
    distant = [stride for stride in strides if stride >= far]
    if not distant:
        return 1.0
    # Lanes that are 1088 = 17 * 64 elements apart have 1024 / 64 = 16 places.
    places = min(far // gcd(stride, far) for stride in distant)
    return PAGES if places >= plan.lanes(row.arg.size) else inf
