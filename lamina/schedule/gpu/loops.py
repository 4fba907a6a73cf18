"""A good schedule for a GPU at once, from the shape of the memory accesses alone.

1. Axes that every index walks together become one.
2. Rows with long reductions or columns inside get a block each, whose threads share those; all
   other rows get a thread each. Neighbouring threads take neighbours in memory. A row that is
   needed again stays in registers, if they hold it.
3. A thread takes as many neighbours as fill one access, where they are aligned and enough threads
   are left to hide the latency of memory; and of two rows where data say which to read.
4. A contraction gets a register tile; a transpose small blocks, whole in both directions.
"""

from math import gcd

from lamina.graph import index as ix
from lamina.ir.kernel import Kernel, bound_axes, contraction, free_axes, needed_again, points
from lamina.ir.node import Node
from lamina.ir.ops import Op
from lamina.loops import moves
from lamina.loops.nest import WARP, scatter_indices, serial_axes
from lamina.schedule import cpu as heuristic
from lamina.schedule.cpu import FEW, Planner, reusing, score, store_score, turned
from lamina.schedule.gpu.products import UNITS, Tensorize, best_product

ACCESS = 16  # bytes that a thread reads or writes at once
BLOCKS = 1024  # that keep a GPU busy, though they end at different times
SHORT, LONGEST = 256, 512  # threads that share short rows, and long ones
HELD = 8192  # elements in the registers of a block, so that several fit on a multiprocessor
ACCESSES = 2  # of a thread, for each reduction over its row: meanwhile other blocks' rows come in


def schedule_for_gpu(kernel: Kernel, wide: str, knobs: heuristic.Knobs) -> moves.Schedule:
    """The heuristic's schedule; with `wide`, the kind for float32, blocks share tiles."""
    plan = Planner(kernel, ACCESS, knobs)
    many = max(one.size for one in kernel.parameters) // FEW  # smaller arrays do not count
    held = (one for one in kernel.parameters if one.size >= many)
    plan.width = ACCESS // max(2, *(one.dtype.itemsize for one in held))
    plan.fuse_all()
    few = 4 * knobs.enough // max(points(plan.rows), 1)  # each waits for memory, step by step
    if few > 1 and len(scatter_indices(plan.kernel)) == 1:
        plan.do(moves.Partition(1 << few.bit_length(), plan.next_axis()))
    if wide and (atom := best_product(plan.kernel, wide, knobs.atom)):
        return (*plan.moves, Tensorize(atom))
    kernel, rows, shared = plan.kernel, plan.kernel.row_axes, _shared(plan)
    reduction = contraction((store.value for store in kernel.stores), rows)
    scores = {axis: (score(kernel, axis), store_score(kernel, axis)) for axis in rows}
    best = max(rows, key=lambda axis: scores[axis], default=None)
    gain = max((score(kernel, axis) for axis in shared), default=-1)
    across = best if best is not None and scores[best][0] >= max(gain, 1) else None
    if shared and not (points(rows) >= knobs.enough and (across or reduction)):
        _block_per_row(plan, shared, across)
    elif best is not None:
        _thread_per_row(plan, best, reduction)
    for axis in plan.kernel.row_axes:
        if plan.nest.bound(axis) == "serial":
            plan.bind(axis, "grid")
    return tuple(plan.moves)


def _shared(plan: Planner) -> list[Node]:
    """For each loop inside the rows that threads may share, its best axis; nothing if that would
    leave other loops to one thread."""
    kernel, every, rows = plan.kernel, plan.inner(), set(plan.kernel.row_axes)
    runs = kernel.of(Op.LOOP_SCAN) and [*map(len, every)] == [1]
    serial = frozenset() if runs else serial_axes(kernel)
    inside = {bound_axes(one): free_axes(one) for one in kernel.of(Op.LOOP_REDUCE)}
    loops = [axes for axes in every if inside.get(axes, frozenset()) <= rows]
    if max(map(points, loops), default=0) < WARP or any(serial & set(axes) for axes in every):
        return []
    worth = {axis: (min(axis.arg.size, WARP), score(kernel, axis), axis.arg.size)
             for axes in loops for axis in axes}  # fmt: skip
    return list(dict.fromkeys(max(axes, key=worth.__getitem__) for axes in loops))


def _block_per_row(plan: Planner, shared: list[Node], across: Node | None) -> None:
    """A block for each row, or for a few: neighbours in memory along `across`, or short ones."""
    lanes = _lanes(plan, across, plan.knobs.strip) if across is not None else 1
    side, room, *beside = 1, plan.knobs.registers, *plan.kernel.row_axes[-1:]
    if across is not None and across.arg.size >= plan.knobs.strip * lanes:
        beside, side, room = [across], plan.knobs.strip, room // lanes
        while side > 2 and 2 * points(plan.kernel.row_axes) <= UNITS * side * lanes:
            side //= 2  # more blocks run at once
    elif across is None and beside:
        longest, rows = max(axis.arg.size for axis in shared), points(plan.kernel.row_axes)
        most = min(2 * plan.knobs.strip, SHORT * plan.width // longest, rows // BLOCKS)
        side = gcd(1 << max(most, 1).bit_length() >> 1, beside[0].arg.size)
    if side > 1:
        _, inner = plan.split(beside[0], side * lanes)
        plan.bind(plan.tile(inner, lanes, "unroll"), "thread")
    least = WARP if across is not None or side == 1 else 1
    twice = needed_again(plan.kernel, {Op.LOAD})
    again = twice or plan.kernel.of(Op.LOAD)
    wide = SHORT if side > 1 or points(plan.kernel.row_axes) < BLOCKS else 2 * WARP
    runs = not serial_axes(plan.kernel).isdisjoint(shared)  # whose exchanges take long
    reductions = WARP if runs else len(plan.kernel.of(Op.LOOP_REDUCE))
    for axis in shared:
        size = axis.arg.size
        lanes = gcd(_lanes(plan, axis, least), size if runs else 0)
        kept = sum(max(one.dtype.itemsize // 4, 1) for one in again if axis in free_axes(one))
        most = max(room // max(kept, 2), 1)  # elements of a thread
        each = min(ACCESSES * reductions * lanes, most)
        threads = max(1 << (-(-size // each) * side - 1).bit_length(), wide)
        if threads > min(HELD // each, 2 * LONGEST // min(side, 2)):
            fits = [(LONGEST, most)]
            if twice and kept and side == 1 and not runs:  # a block alone has more registers
                fits = [(LONGEST, room // kept), (2 * LONGEST, 7 * room // (8 * kept))]
            enough = (one for one in fits if runs or size <= one[0] // side * one[1])
            threads, most = next(enough, (0, most))
        threads //= side
        if kept and 0 < threads * lanes < size:
            steps, axis = plan.split(axis, threads * lanes)
            if size <= threads * most:  # else it takes one step after the other
                plan.bind(steps, "unroll")
        elif across is not None and not threads:
            lanes = gcd(size, 2)  # rows at once, so that enough is under way
        plan.bind(plan.tile(axis, lanes, "unroll"), "thread")


def _thread_per_row(plan: Planner, best: Node, reduction: Node | None) -> None:
    """A thread for each row, or for a tile of rows along two axes that operands vary along in
    different ways; a warp then has a block of tiles."""
    rows, knobs = plan.kernel.row_axes, plan.knobs
    around = max(points(rows) // best.arg.size, 1)
    lanes, tall = _lanes(plan, best, max(knobs.enough // around, 1)), plan.width
    across = None if plan.inner() else turned(plan, best, WARP)
    if reduction is not None:
        *_, across = None, *reusing(plan, reduction, best)
        lanes, tall = max(lanes, knobs.unroll), knobs.rows
        while tall > 1 and points(rows) < knobs.enough * tall * lanes:
            tall //= 2
    last, tile = [best], list[Node]()
    if across is not None and min(across.arg.size, best.arg.size) >= WARP:
        side = knobs.strip if reduction is not None else max(1, knobs.strip // 2)
        blocks, upper = plan.split(across, tall)
        outer, lower = plan.split(best, lanes if reduction is not None else tall)
        last, tile = [], [upper, lower]
        square = reduction is None and min(blocks.arg.size, outer.arg.size) >= knobs.turn
        for high, wide in [(knobs.turn, knobs.turn)] * square + [(WARP // side, side)]:
            (far, blocks), (wide_far, outer) = plan.split(blocks, high), plan.split(outer, wide)
            last += [far, wide_far]
        last += [blocks, outer]
    elif lanes > 1 and reduction is None:
        outer, inner = plan.split(best, lanes)
        last, tile = [outer], [inner]
        both, places = 2 * SHORT, [load.src[0] for load in plan.kernel.of(Op.LOAD)]
        told = [row for row in rows for at in places if row is not best and ix.suits(row, at) < -1]
        if told and told[0].arg.size % 2 == 0 and points(rows) >= 2 * lanes * knobs.enough:
            far, steps = plan.split(told[0], 2)
            last, tile = [far, outer], [steps, inner]  # it reads twice when it knows where
        elif len(plan.kernel.values) >= lanes > ACCESS // 4 and outer.arg.size % both == 0:
            far, near = plan.split(outer, both)
            steps, near = plan.split(near, SHORT)
            last, tile = [far, near], [steps, inner]  # it reads more while it computes
    for axis in tile:
        plan.bind(axis, "unroll")
    plan.reorder([*last, *tile])
    for axis in bound_axes(reduction)[-1:] if reduction is not None else ():
        beside = any(ix.suits(axis, *load.src) == 1 for load in plan.kernel.of(Op.LOAD))
        if beside and axis.arg.size % knobs.unroll == 0:
            plan.tile(axis, knobs.unroll, "unroll")  # several steps are read at once


def _lanes(plan: Planner, axis: Node, threads: int) -> int:
    """Neighbours along `axis` that one thread takes, if `threads` are left: a power of two that
    keeps every access along it aligned."""
    if score(plan.kernel, axis) <= 0:
        return 1
    lanes = plan.lanes(axis.arg.size // threads)
    for index in [*(load.src[0] for load in plan.kernel.of(Op.LOAD)),
                  *(store.index for store in plan.kernel.stores)]:  # fmt: skip
        if axis in free_axes(index):
            terms, constant = ix.terms_of(index)
            lanes = gcd(lanes, constant, *(by for term, by in terms.items() if term is not axis))
    return lanes
