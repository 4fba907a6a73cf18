"""Sums of products with constants that memory holds as bytes and that are decoded to floats, such
as quantised weights, where nothing but one sum uses each of them: products with one vector.

To decode a byte takes more instructions than to read it. So the lanes of vectors are rows, along
which the scales of blocks are vectors as well, and the constants are kept from call to call in the
order in which the loops read them. Scales that a whole block shares multiply the sum of the block,
once. With 16 lanes, for blocks b of 32 weights of 4 bits, two in a byte,
``y[i] = sum_b,h,j x[b, h, j] * (d[i, b] * float(w[i, b, j] >> 4 * h & 15) + m[i, b])``::

    tiles of 4 vectors of 16 rows i
      b                                    reads d and m, 16 rows at once
        j                                  reads bytes of w, 16 rows at once
          4 vectors, halves h of a byte    unrolled: each has a sum of its own
"""

from lamina.graph import index as ix
from lamina.ir.kernel import bound_axes, free_axes, free_axes_of, points
from lamina.ir.node import Node, toposort
from lamina.ir.ops import Op
from lamina.loops.factors import terms_of
from lamina.loops.moves import Factor
from lamina.loops.nest import Axes
from lamina.schedule.cpu.packing import Packed, reads_constants
from lamina.schedule.cpu.planner import CpuPlanner
from lamina.schedule.cpu.reductions import has_reductions_alone

# Independent sums that hide the latency of a multiply-add: 4 cycles, two a cycle.
SUMS = 8
# Numbers that one byte has at most: one for each bit.
MAX_PARTS = 8


def decoded_row(plan: CpuPlanner) -> Node | None:
    """The longest row axis along which sums of floats read constants of bytes that lie apart along
    every row, and all else that they read along it is constant too; None where there is none.

    Wider constants stay as they are: they are read no faster than one multiplies them."""
    reductions = plan.kernel.of(Op.LOOP_REDUCE)
    are_floats = all(reduction.dtype.is_float for reduction in reductions)
    if not are_floats or not has_reductions_alone(plan):
        return None
    if any(_lies_well(load, row) for row in plan.rows for load in _bytes_along(plan, row)):
        return None
    rows = [row for row in plan.rows if row.arg.size >= plan.width and _is_decoded_along(plan, row)]
    return max(rows, key=lambda row: row.arg.size, default=None)


def _is_decoded_along(plan: CpuPlanner, row: Node) -> bool:
    loads = _loads_along(plan, row)
    return bool(_bytes_along(plan, row)) and reads_constants(plan.kernel, loads)


def _loads_along(plan: CpuPlanner, row: Node) -> list[Node]:
    """What the reductions read that varies along `row`, each load once."""
    reductions = plan.kernel.of(Op.LOOP_REDUCE)
    beneath = toposort([operand for reduction in reductions for operand in reduction.src])
    return [node for node in beneath if node.op is Op.LOAD and row in free_axes(node)]


def _bytes_along(plan: CpuPlanner, row: Node) -> list[Node]:
    return [load for load in _loads_along(plan, row) if load.dtype.itemsize == 1]


def _lies_well(load: Node, row: Node) -> bool:
    return ix.suits(row, *load.src) == ix.NEIGHBOURS


def schedule_decoded(plan: CpuPlanner, row: Node) -> list[Packed]:
    """Vectors along `row`, several of them at a time; gives the arrays of constants to keep."""
    parts, reduced = _parts(plan, row), _reduced(plan)
    sums = len(plan.kernel.of(Op.LOOP_REDUCE)) * points(parts)
    _factor(plan, row, parts)
    outer, block = plan.split(row, max(1, SUMS // sums) * plan.width)
    tile, lane = plan.split(block, plan.width)
    steps = [axis for axis in reduced if axis not in parts]
    plan.reorder([outer, *steps, tile, *parts, lane])
    for axis in (tile, *parts):
        plan.bind(axis, "unroll")
    plan.bind(lane, "vector")
    arrays = dict.fromkeys(load.arg.parameter for load in _loads_along(plan, lane))
    return [Packed(number, lane, staged_in=None) for number in arrays]


def _factor(plan: CpuPlanner, row: Node, parts: list[Node]) -> None:
    """Take the scales of blocks out of the sums over their elements, where one term of these alone
    is then left that varies along `row`: the steps of others are the same for all lanes."""
    reduced = _reduced(plan)
    for reduction in plan.kernel.of(Op.LOOP_REDUCE):
        for place in range(1, len(reduced)):
            inner = reduced[place:]
            terms = terms_of(reduction.src[0], {*inner})
            varying = [term.varying for term in terms if _varies(term.varying, row)]
            has_scales = any(_varies(term.factor, row) for term in terms)
            if has_scales and len(varying) == 1 and {*parts} <= {*inner}:
                plan.do(Factor(plan.kernel.values.index(reduction), inner[0].arg.number))
                break


def _varies(node: Node | None, row: Node) -> bool:
    return node is not None and row in free_axes(node)


def _parts(plan: CpuPlanner, row: Node) -> list[Node]:
    """The short reduced axes along which one byte has several numbers."""
    varied = free_axes_of(_bytes_along(plan, row))
    axes = [axis for axis in _reduced(plan) if axis not in varied]
    return [axis for axis in axes if axis.arg.size <= MAX_PARTS]


def _reduced(plan: CpuPlanner) -> Axes:
    """The axes of the reductions, all of which have the same."""
    return bound_axes(plan.kernel.of(Op.LOOP_REDUCE)[0])
