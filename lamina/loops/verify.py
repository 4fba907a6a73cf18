"""The verifiers of loop nests.

`verify_nest` checks what no single move decides:

1. A parallel axis is a row axis and the outermost of its sub-loops; an axis of the grid is a row
   axis; rows of threads are 1, 2, 4, 8, 16 or 32, but for products in tiles; a vector axis is the
   innermost of its sub-loops but for a dot axis, with 2, 4, 8, ... lanes; a dot axis adds up four
   products of 8-bit integers. In row blocks exactly the axes that number blocks are parallel, so
   that all its kernels have the same chunks.
2. No value depends on two vector axes, or on one and reduces another.
3. Axes whose iterations run one after another, those of a LOOP_SCAN and the columns of a store at
   indices from data or with a monoid, are whole, serial, and in the order of the store. Those of
   a store may have unrolled neighbours, inside all others. Those of a LOOP_SCAN may be steps of
   threads, of which each has unrolled neighbours, without a remainder. A single one may have lanes
   that are its neighbours.
4. No loop over a thread axis is inside another one: the columns of a store or a reduction have
   one at most, and a reduction that has one depends on rows alone.

`check_nest` checks what every move keeps, whatever their order:

1. The order holds every axis of the kernel once, and nothing else.
2. No axis is in two splits. The sub-loops inside the outermost one, together a block, fill the
   extent as the outermost counts it, and a store's index walks them as one.
3. Wherever a sub-loop is an axis of a store or a reduction, all of them stand there, in order.
4. What is staged is filled outside all loops that it is laid out along: in the body of the loop
   that it is staged in, or, if reductions come before it, in that of the last one over rows.
"""

from collections.abc import Iterator
from itertools import pairwise

from lamina.errors import FormatError
from lamina.graph.index import terms_of
from lamina.ir.invariants import names_of, require
from lamina.ir.kernel import Store, all_axes, bound_axes, free_axes, points
from lamina.ir.node import Node, toposort
from lamina.ir.ops import Op
from lamina.loops.nest import (
    SCANNING_THREADS,
    WORDS_OF_TILE,
    Nest,
    SubLoops,
    axis_lists,
    dot_axes,
    scans_along,
    serial_axes,
)

# A schedule names no device: its rows are to divide the warps of every kind, which are of 32.
WARP = 32

Checks = Iterator[tuple[bool, str]]  # does an invariant hold, and what is wrong if not


def verify_nest(nest: Nest) -> None:
    """Raise FormatError, naming the axis, if an invariant fails: the schedule is at fault."""
    checks = (_bindings, _vectors, _serial_loops, _serial_order, _thread_rows, _thread_loops)
    for check in checks:
        for holds, problem in check(nest):
            if not holds:
                raise FormatError(f"schedule: {problem}")


def _bindings(nest: Nest) -> Checks:
    """1. Which axes may be parallel, of the grid, vectors, or of a dot product."""
    blocks = nest.kernel.block_axes
    if blocks:  # a kernel of row blocks
        parallel = {axis for axis, to in nest.binding.items() if to == "parallel"}
        only_blocks = parallel == set(blocks)
        yield only_blocks, f"only {names_of(blocks)}, the row blocks, are parallel there"
    for axis, to in nest.binding.items():
        name = names_of([axis])
        if to in ("parallel", "grid"):
            yield axis in nest.kernel.row_axes, f"the {to} axis {name} is no row axis"
        if to == "parallel":
            yield nest.is_head(axis), f"the {to} axis {name} is not the outermost of its sub-loops"
        if to == "vector":
            yield from _vector(nest, axis)
        if to == "dot":
            yield axis in dot_axes(nest.kernel), f"{name} adds up no four products of 8 bits"
        if to == "tile":
            yield from _tile(nest, axis)


def _vector(nest: Nest, axis: Node) -> Checks:
    """1. Neighbouring lanes of the vector `axis` are neighbouring iterations, and there are 2, 4,
    8, ... of them."""
    name = names_of([axis])
    sub_loops = nest.sub_loops(axis).axes
    inside = sub_loops[sub_loops.index(axis) + 1 :]
    is_innermost = all(nest.bound(other) == "dot" for other in inside)
    yield is_innermost, f"the vector axis {name} is not the innermost of its sub-loops"
    lanes = axis.arg.size
    fits = lanes > 1 and lanes.bit_count() == 1
    yield fits, f"the vector axis {name} has {lanes} lanes, not 2, 4, 8, ..."


def _tile(nest: Nest, axis: Node) -> Checks:
    """1. What is reduced along the axis of a tile are words, of four bytes that are multiplied, and
    no more of them than a row of a tile has."""
    name = names_of([axis])
    reducing = [node for node in nest.kernel.nodes if axis in bound_axes(node)]
    has_words = all(nest.bound(bound_axes(node)[-1]) == "dot" for node in reducing)
    yield bool(reducing) and has_words, f"{name} has no words of four bytes, bound to dot"
    words = axis.arg.size
    yield words <= WORDS_OF_TILE, f"{name} has {words} words, and a row of a tile {WORDS_OF_TILE}"


def _vectors(nest: Nest) -> Checks:
    """2. No store has lanes along two of its axes, and no value along two of those that it depends
    on or reduces: a register has lanes along one."""
    vectors = {axis for axis in nest.order if nest.bound(axis) == "vector"}
    of_stores = [frozenset(store.axes) for store in nest.kernel.stores]
    of_values = [all_axes(node) for node in nest.kernel.nodes]
    for axes in (*of_stores, *of_values):
        both = axes & vectors
        yield len(both) < 2, f"a value has lanes along {names_of(both)}"


def _serial_loops(nest: Nest) -> Checks:
    """3. An axis that runs in order is one serial loop, of which the innermost iterations may be
    unrolled, or lanes or threads share the steps of a scan."""
    for axis in serial_axes(nest.kernel):
        split = nest.sub_loops(axis)
        bindings = [nest.bound(sub_loop) for sub_loop in split.axes]
        is_shared = _is_scan_of_lanes(nest, split) or _is_shared_scan(nest, split)
        fits = bindings == ["serial"] or is_shared or _is_unrolled_inside(nest, split)
        bound_to = ", ".join(bindings)
        yield fits, f"{names_of(split.axes)} run in order, and are bound to {bound_to}"


def _is_unrolled_inside(nest: Nest, split: SubLoops) -> bool:
    """Whether iterations along `split`, of a store alone, are unrolled inside all other loops that
    run in order: 96 updates of a scatter may be (12, 8) sub-loops, serial and unrolled. A
    remainder, as of 100 updates, runs after everything else, so that no other axis may run in
    order beside it."""
    bindings = [nest.bound(sub_loop) for sub_loop in split.axes]
    if bindings not in (["unroll"], ["serial", "unroll"]) or nest.kernel.of(Op.LOOP_SCAN):
        return False
    in_order = [axis for axis in nest.order if axis in serial_axes(nest.kernel)]
    is_even = split.extent == points(split.axes)
    return in_order[-1] is split.axes[-1] and (is_even or set(in_order) == set(split.axes))


def _is_scan_of_lanes(nest: Nest, split: SubLoops) -> bool:
    """Whether the steps along `split` may be lanes: the innermost of its sub-loops has them, and
    the scans run along this axis alone. 258 steps may be (17, 16) sub-loops, serial and vector."""
    bindings = [nest.bound(sub_loop) for sub_loop in split.axes]
    has_lanes = bindings in (["vector"], ["serial", "vector"])
    return has_lanes and scans_along(nest.kernel) == set(split.axes)


def _is_shared_scan(nest: Nest, split: SubLoops) -> bool:
    """Whether threads may share the steps along `split` of a kernel with a scan: one block runs
    them, and every thread has equally many neighbouring steps, unrolled.

    256 steps may be (2, 32, 4) sub-loops, bound to serial, thread and unroll: 2 times, each of 32
    threads has 4 neighbours. 258 steps may not be (3, 32, 4), as a thread would have 2 of its 4.
    """
    bindings = [nest.bound(sub_loop) for sub_loop in split.axes]
    if not nest.kernel.of(Op.LOOP_SCAN) or "thread" not in bindings:
        return False
    threads = points(axis for axis in nest.order if nest.bound(axis) == "thread")
    after_threads = bindings.index("thread") + 1
    neighbours = points(split.axes[after_threads:])
    are_unrolled = all(to == "unroll" for to in bindings[after_threads:])
    are_equally_many = split.extent % neighbours == 0
    return threads <= SCANNING_THREADS and are_unrolled and are_equally_many


def _serial_order(nest: Nest) -> Checks:
    """3. Axes that run in order are loops in the order in which each store has them."""
    serial = serial_axes(nest.kernel)
    for store in nest.kernel.stores:
        of_store = [axis for axis in store.axes if axis in serial]
        of_loops = sorted(of_store, key=nest.order.index)
        yield of_store == of_loops, f"{names_of(of_store)} run in this order, and the loops do not"


def _thread_rows(nest: Nest) -> Checks:
    """1. The number of rows that threads run divides a warp, as 2 rows along a0 and 4 along a1, 8
    in all, divide 32 threads: all threads of a warp then run equally many. One row divides it too.
    In a product of tiles the atom says which thread has which row."""
    if nest.atom:
        return
    thread_rows = {axis for axis in nest.kernel.row_axes if nest.bound(axis) == "thread"}
    fits = WARP % points(thread_rows) == 0  # points of no axes are 1
    yield fits, f"the rows of {names_of(thread_rows)} divide no warp"


def _thread_loops(nest: Nest) -> Checks:
    """4. Of the loops of threads over columns or reductions, none is inside another one: each list
    of axes has one thread axis at most, and a reduction with one depends on no axes but rows."""
    rows = set(nest.kernel.row_axes)
    threads = {axis for axis in nest.order if nest.bound(axis) == "thread"}
    for axes in axis_lists(nest.kernel):
        both = (threads - rows).intersection(axes)
        yield len(both) < 2, f"{names_of(both)} are thread axes, one inside the other"
    for node in nest.kernel.nodes:
        shared = threads.intersection(bound_axes(node))
        if shared:
            # Axes of columns, or of a reduction around this one: its loop is inside of theirs.
            outside = free_axes(node).difference(rows, bound_axes(node))
            problem = f"depends on {names_of(outside)}, no rows"
            yield not outside, f"the reduction over {names_of(shared)} {problem}"


def check_nest(nest: Nest) -> None:
    """Raise VerifyError, naming the axis, if a move broke what all of them keep."""
    for check in (_order, _splits, _places, _fills):
        check(nest)


def _order(nest: Nest) -> None:
    """1. The order holds every axis once."""
    order = set(nest.order)
    axes = {axis for loop in axis_lists(nest.kernel) for axis in loop}
    require(len(order) == len(nest.order), "an axis is twice in the order")
    require(axes <= order, f"{names_of(axes - order)} is not in the order")
    require(order <= axes, f"{names_of(order - axes)} is in the order, and in no loop")


def _splits(nest: Nest) -> None:
    """2. No axis is in two splits; each split fills its extent and is walked as one."""
    sub_loops = [axis for split in nest.splits for axis in split.axes]
    once = len(set(sub_loops)) == len(sub_loops) and set(sub_loops) <= set(nest.order)
    require(once, "a sub-loop is in two splits, or in no loop")
    for split in nest.splits:
        _fills_extent(split)
        for store in nest.kernel.stores:
            _is_walked_as_one(split, store)


def _fills_extent(split: SubLoops) -> None:
    """2. The outermost sub-loop counts the blocks that the extent takes: 3 blocks of 4 for 10."""
    head, *inner = split.axes
    blocks, block = head.arg.size, points(inner)
    needed = -(-split.extent // block)  # rounded up
    text = f"{names_of([head])} has {blocks} blocks of {block} for an extent of {split.extent}"
    require(blocks == needed, text)


def _is_walked_as_one(split: SubLoops, store: Store) -> None:
    """2. In the index of a store, the stride of a sub-loop is that of the next one inside of it
    times the size of that one, as in ``4 * a1 + a2`` with 4 iterations of a2. Both are 0 if the
    index does not depend on the split axis."""
    stride_of, _ = terms_of(store.index)
    for outer, inner in pairwise(split.axes):
        stride = stride_of.get(inner, 0) * inner.arg.size
        as_one = stride_of.get(outer, 0) == stride
        require(as_one, f"a store's index does not walk {names_of((outer, inner))} as one")


def _places(nest: Nest) -> None:
    """3. The sub-loops of a split stand together, in order, in each list of axes that has any."""
    for axes in axis_lists(nest.kernel):
        for split in nest.splits:
            if set(split.axes).isdisjoint(axes):
                continue
            head = split.axes[0]
            start = axes.index(head) if head in axes else 0  # without it they differ in any case
            are_together = axes[start : start + len(split.axes)] == split.axes
            require(are_together, f"the sub-loops of {names_of([head])} do not stand together")


def _fills(nest: Nest) -> None:
    """4. Scratch memory is filled outside all loops that it is laid out along: in the body of the
    loop `fill.at`, or, with reductions before it, in that of the last loop over rows."""
    for fill in nest.fills:
        is_reduced = any(node.op is Op.LOOP_REDUCE for node in toposort([fill.value]))
        has_no_loop = fill.at is None
        require(is_reduced is has_no_loop, f"parameter {fill.parameter} is filled elsewhere")
        loop = fill.at or nest.row_loops[-1]
        outside = set(fill.axes).difference(nest.inside(loop))
        require(not outside, f"parameter {fill.parameter} is filled inside {names_of(outside)}")
