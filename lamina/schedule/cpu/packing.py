"""Packing: operands of a product that lie badly for it are copied into panels in scratch memory.

A panel has the columns of the vector axis side by side for all steps of the reduction, or for a
block of them, so that the register tile reads it from end to end. It pays where many rows read it.
"""

from dataclasses import dataclass

from lamina.graph import index as ix
from lamina.ir.kernel import Kernel, bound_axes, free_axes, points
from lamina.ir.node import Node
from lamina.ir.ops import Group, Op
from lamina.loops.moves import MAX_SCRATCH
from lamina.loops.nest import can_accumulate
from lamina.schedule.cpu.planner import Block, CpuPlanner
from lamina.schedule.planner import loads_along, store_score

# Steps of the outermost of several reduced axes that one panel holds, at most; each has all steps
# of the axes beneath.
MAX_OUTER_STEPS = 8


@dataclass(frozen=True)
class Panel:
    """A packed panel: its columns, the steps of the reduction in it, 0 for all of them, and the row
    axes beside the register tile's that run inside the loop that fills it."""

    columns: int
    steps: int
    rows_inside: list[Node]


@dataclass(frozen=True)
class Packed:
    """All that is computed from `parameter` alone is staged in the loop over rows `loop`."""

    parameter: int
    loop: Node


def packed_row(plan: CpuPlanner, reduction: Node) -> Node | None:
    """The row axis for vectors whose operands, the loads that vary along it, are packed: the axis
    for which a packed element is read most often, and of these the one along which results are
    contiguous. None where packing pays for no axis.

    Where a single axis is reduced, results must be contiguous along the row: otherwise vectors run
    along the reduced axis, as dot products, which need no packing. Of several reduced axes the
    innermost alone would have the vectors, and may be as short as a window.
    """
    has_one_axis = len(bound_axes(reduction)) == 1
    rows = []
    for axis in plan.rows:
        is_stored_along = store_score(plan.kernel, axis) > 0
        if (is_stored_along or not has_one_axis) and panel_of(plan, reduction, axis):
            rows.append(axis)

    def reads_and_stores(axis: Node) -> tuple[int, int]:
        reads_of_element = points(plan.reused_rows(reduction, axis))
        return reads_of_element, store_score(plan.kernel, axis)

    return max(rows, key=reads_and_stores, default=None)


def panel_of(plan: CpuPlanner, reduction: Node, vector: Node) -> Panel | None:
    """The panel of what varies along `vector`; None where packing it would not pay."""
    rows, knobs = plan.reused_rows(reduction, vector), plan.knobs
    if not rows:
        return None
    packed, others = loads_along(reduction, vector), loads_along(reduction, rows[-1])
    arrays = {load.arg.parameter for load in packed}
    if not arrays.isdisjoint(load.arg.parameter for load in others):
        return None  # the array would be staged as a whole
    while points(rows[1:]) >= knobs.packed:
        rows = rows[1:]
    block = _block_of(plan, reduction, vector)
    columns = block.columns if block else _whole_columns(plan, reduction, vector)
    if columns < 2 * plan.width or vector.arg.size < plan.width:
        return None
    lies_badly = any(ix.suits(vector, *load.src) < 1 for load in packed)
    lies_badly = lies_badly or bool(plan.distant(others, rows[-1]))
    if points(rows) < knobs.tall or not lies_badly:
        return None
    return Panel(columns, block.steps if block else 0, rows[:-1])


def _whole_columns(plan: CpuPlanner, reduction: Node, vector: Node) -> int:
    """Columns of a panel with all steps of a reduction: as many as the knobs say, halved until they
    fit in half of the scratch memory, which the other operand may need too, and a row has two
    panels. May be too few for a panel."""
    column_bytes = reduction.dtype.itemsize * max(points(bound_axes(reduction)), 1)
    max_columns = MAX_SCRATCH // (2 * column_bytes)
    columns, min_columns = plan.knobs.panel, 2 * plan.width
    while columns > max_columns or (columns > min_columns and 2 * columns > vector.arg.size):
        columns //= 2
    return columns


def _block_of(plan: CpuPlanner, reduction: Node, vector: Node) -> Block | None:
    """The block of a long reduction that one panel holds; None for a reduction that is not long, or
    whose sums cannot be accumulated over even blocks, or lie far apart.

    For 2304 steps and 320 columns of float32: the largest divisor of 2304 among 1024, 896, 768, ...
    is 768; 2**17 // 768 = 170 columns fit, and the largest multiple of 32 among these that divides
    320 is 160.
    """
    first, *others = bound_axes(reduction)
    steps_beneath = points(others)  # of one step of the outermost reduced axis
    length = first.arg.size * steps_beneath
    shortest = 2 * plan.knobs.deep if others else plan.knobs.deep
    if length <= shortest or not can_accumulate(plan.kernel):
        return None
    strides, _ = ix.terms_of(plan.kernel.stores[0].index)
    if abs(strides.get(vector, 0)) >= plan.knobs.far:
        return None
    steps = _block_steps(plan, first.arg.size, steps_beneath, several=bool(others))
    if not steps:
        return None
    unit = 2 * plan.width
    max_columns = min(4 * plan.knobs.panel, plan.knobs.cached // (steps * steps_beneath or 1))
    for columns in range(max_columns // unit * unit, unit, -unit):
        if vector.arg.size % columns == 0 and columns < vector.arg.size:
            return Block(columns, steps)
    return None


def _block_steps(plan: CpuPlanner, size: int, steps_beneath: int, *, several: bool) -> int:
    """The largest divisor of `size`, the outermost reduced axis, whose steps with those beneath are
    1/8 to all of a k-block; 0 if there is none. Of `several` reduced axes, up to MAX_OUTER_STEPS
    steps."""
    deep = plan.knobs.deep
    step = 1 if several else deep // 8 or 1
    for steps in range(MAX_OUTER_STEPS if several else deep, 0, -step):
        is_fitting = deep <= 8 * steps * steps_beneath <= 8 * deep
        if size % steps == 0 and is_fitting:
            return steps
    return 0


def computed_from(kernel: Kernel, parameter: int) -> list[Node]:
    """The largest expressions that vary just as a load of `parameter` beneath them does, so that
    what is decoded or scaled is decoded or scaled once."""
    free_of: dict[Node, frozenset[Node]] = {}
    for node in kernel.nodes:
        is_load = node.op is Op.LOAD and node.arg.parameter == parameter
        if is_load or (node.op in Group.ELEMENTWISE and _varies_alike(node, free_of)):
            free_of[node] = free_axes(node)
    used = {operand for node in kernel.nodes if node not in free_of for operand in node.src}
    return [node for node in free_of if node in used]


def _varies_alike(node: Node, free_of: dict[Node, frozenset[Node]]) -> bool:
    """Does `node` depend on the same axes as one of its operands in `free_of`?"""
    free = free_axes(node)
    return any(free_of.get(operand) == free for operand in node.src)
