"""A good schedule at once, from the shape of the memory accesses alone.

1. Axes that every index walks together become one.
2. The vector axis is the one along which most loads and stores touch neighbours: a row axis, or
   the innermost axis of each reduction and column loop.
3. A contraction gets a register tile: an outer product where a row axis is vectorised, a block of
   dot products where the reduction is.
4. An operand that loops would read across the lines of memory, or at distances at which lines
   compete for one place in a cache, is packed in panels, or read in squares that registers turn.
5. Row axes from the outside in run in parallel, in chunks that are worth a thread's while.
"""

import contextlib
import random
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import pairwise, permutations
from typing import NamedTuple, TypeVar

from lamina.core.dtypes import float32, float64
from lamina.errors import CompileError, FormatError
from lamina.graph import index as ix
from lamina.ir.kernel import Kernel, bound_axes, contraction, free_axes, needed_again, points
from lamina.ir.node import Node, toposort
from lamina.ir.ops import Group, Op
from lamina.loops import moves
from lamina.loops.nest import UNCACHED, can_accumulate, dot_axes, serial_axes

# Register tiles of products, by bytes of a vector: a column of scalars times a row of vectors, and
# dot products along two axes. m * n accumulators stay in registers, m + n loads feed m * n fused
# multiply-adds. Of 32 registers of 64 bytes 14 x 2 leaves two for the row and two for broadcasts;
# of 16 of 32 bytes 6 x 2 does.
OUTER_TILES = {64: (14, 2), 32: (6, 2)}
DOT_TILES = {64: (6, 4), 32: (3, 3), 16: (3, 3)}
FEW = 64  # accesses that are so many times rarer than the most frequent ones do not matter
T = TypeVar("T")
FASTER, SURE = 0.97, 3  # the share of the best time, in so many runs on end: not by noise alone


class Knobs(NamedTuple):
    """Numbers whose best values depend on the machine; `search` tries others."""

    chunk: int = 1 << 15  # operations that are worth handing to a thread
    chunks: int = 256  # that run in parallel, at most
    height: int = 0  # of a register tile at most; 0: what the table says
    cached: int = 1 << 17  # elements that stay in the second-level cache
    rows: int = 8  # that are reduced at once, or kept in registers; the height of a GPU's tile
    unroll: int = 4  # accumulators that hide the latency of additions; a GPU's columns and steps
    strip: int = 8  # vectors, or a GPU's threads, side by side where the next row is read next
    lines: int = 64  # steps at a time of a reduction each of whose steps reads a distant line
    carried: int = 512  # columns of a panel, or half as many, whose sums memory carries
    panel: int = 128  # columns of a panel of a packed operand
    deep: int = 1024  # steps of a panel, down to 1/8; reductions that are no longer stay whole
    packed: int = 512  # rows that are enough to share a packed panel
    ragged: int = 48  # elements of a row that is too short for vectors unless they divide it
    tall: int = 128  # rows from which on packing an operand pays
    far: int = 1024  # elements between neighbours whose lines compete for one place in a cache
    turn: int = 16  # rows and columns from which on turning squares in registers pays
    enough: int = 1 << 15  # threads that keep a GPU busy
    registers: int = 64  # of a GPU's thread, for what several passes over a row need
    atom: int = 0  # for a product: 0 the fastest, 1 the next one


class Planner:
    """Builds a schedule move by move on the nest it has made so far."""

    def __init__(self, kernel: Kernel, vector_bytes: int, knobs: Knobs) -> None:
        self.vector_bytes, self.knobs = vector_bytes, knobs
        self.moves: list[moves.Move] = []
        self.nest = moves.apply(kernel, ())
        floats = [one.dtype for one in kernel.nodes if one.dtype.is_float]
        held = (one.itemsize for one in (*floats, *(own.dtype for own in kernel.parameters)))
        self.staged: list[tuple[int, Node]] = []  # parameters, and the loops they are filled in
        self.width = vector_bytes // max([4, *held])  # elements that fill a vector register

    @property
    def kernel(self) -> Kernel:
        return self.nest.kernel

    @property
    def rows(self) -> tuple[Node, ...]:
        """The row axes that are free: row blocks are given."""
        return self.kernel.row_axes[self.kernel.blocks :]

    def inner(self) -> list[tuple[Node, ...]]:
        """The axes of each column loop, then of each reduction."""
        columns = [store.axes[self.kernel.rows :] for store in self.kernel.stores]
        return [*filter(None, dict.fromkeys([*columns, *map(bound_axes, self.kernel.nodes)]))]

    def lanes(self, size: int) -> int:
        """The widest vector that fits `size`, as a power of two."""
        return max(1, min(self.width, 1 << size.bit_length() >> 1))

    def benefit(self, axis: Node) -> int:
        """The score of vectors along `axis`, by how many lanes it fills."""
        return score(self.kernel, axis) * self.lanes(axis.arg.size)

    def next_axis(self) -> int:
        return max(int(axis.arg.number) for axis in self.nest.order) + 1

    def do(self, move: moves.Move) -> None:
        self.nest = move.apply(self.nest)
        self.moves.append(move)

    def reorder(self, axes: Sequence[Node]) -> None:
        """Rows that are not among `axes` outermost, then those, each where it is named first."""
        rows = (row for row in self.kernel.row_axes if row not in axes)
        self.do(moves.Reorder(tuple(dict.fromkeys(axis.arg.number for axis in (*rows, *axes)))))

    def bind(self, axis: Node, to: str) -> None:
        self.do(moves.Bind(axis.arg.number, to))

    def split(self, axis: Node, factor: int) -> tuple[Node, Node]:
        outer = self.next_axis()
        self.do(moves.Split(axis.arg.number, factor, outer, outer + 1))
        return self.nest.axis(outer), self.nest.axis(outer + 1)

    def tile(self, axis: Node, size: int, to: str) -> Node:
        """Bind `size` iterations of `axis`, if several, and return what is left outside them."""
        if size == 1:
            return axis
        outer, inner = self.split(axis, size)
        self.bind(inner, to)
        return outer

    def vectorize(self, axis: Node) -> None:
        if (lanes := self.lanes(axis.arg.size)) > 1:
            self.bind(axis if lanes == axis.arg.size else self.split(axis, lanes)[1], "vector")

    def stage(self, values: Iterable[Node], at: Node) -> None:
        for value in values:
            # One that is staged with another, or is too large, stays where it is.
            with contextlib.suppress(FormatError, ValueError):
                self.do(moves.Stage(self.kernel.values.index(value), at.arg.number))

    def fuse_all(self) -> None:
        """Fuse neighbours until nothing changes."""
        for axes in (self.rows, *self.inner()):
            for first, second in pairwise(axes):
                with contextlib.suppress(FormatError):
                    self.do(moves.Fuse(first.arg.number, second.arg.number, self.next_axis()))
                    self.fuse_all()
                    return


def score(kernel: Kernel, axis: Node) -> int:
    """The sum over the loads and stores that vary along `axis`, but for those that are few."""
    loads = [(one.src, points(free_axes(one))) for one in kernel.of(Op.LOAD)]
    stores = [((one.index, one.condition), points(one.axes)) for one in kernel.stores]
    most = max(count for _, count in loads + stores)
    each = [at for at, count in loads + stores if count * FEW >= most]
    return sum(ix.suits(axis, *at) for at in each)


def store_score(kernel: Kernel, axis: Node) -> int:
    return sum(ix.suits(axis, store.index, store.condition) for store in kernel.stores)


def turned(plan: Planner, row: Node, least: int) -> Node | None:
    """The row axis along which a load touches neighbours that are apart along `row`, if both have
    `least` elements."""
    found = (
        axis for load in plan.kernel.of(Op.LOAD) for axis in plan.rows
        if ix.suits(row, *load.src) == -1 and ix.suits(axis, *load.src) == 1
        and min(row.arg.size, axis.arg.size) >= least
    )  # fmt: skip
    return next(found, None)


def _work(kernel: Kernel) -> int:
    """Operations of the whole kernel, roughly."""
    work = 0
    for store in kernel.stores:
        reductions = (one for one in toposort([store.value]) if one.op is Op.LOOP_REDUCE)
        steps = sum(points(bound_axes(reduction)) for reduction in reductions)
        work += points(store.axes) * (1 + steps)
    return work


def schedule_kernel(kernel: Kernel, vector_bytes: int, knobs: Knobs) -> moves.Schedule:
    """The heuristic's schedule for a CPU with vectors of so many bytes."""
    plan = Planner(kernel, vector_bytes, knobs)
    for axis in kernel.block_axes:
        plan.bind(axis, "parallel")
    plan.fuse_all()
    reduction = contraction((store.value for store in plan.kernel.stores), plan.rows)
    row = _vector_row(plan, reduction)
    ragged = row is None or (row.arg.size < knobs.ragged and row.arg.size % plan.width)
    if reduction is not None and ragged:
        row = _packed_row(plan, reduction) or row
    if row is None:
        _vector_inner(plan, _dot_tile(plan, reduction))
    elif reduction is None:
        _vector_strip(plan, row)
    else:
        _outer_product(plan, reduction, row)
    if not kernel.blocks:
        _parallel(plan, _work(kernel))
    for parameter, at in plan.staged:
        plan.stage(_computed_from(plan.kernel, parameter), at)
    for last in plan.nest.row_loops[-1:]:
        plan.stage(needed_again(plan.kernel, Group.TRANSCENDENTAL), last)
    for axis in dot_axes(plan.kernel):
        plan.bind(axis, "dot")
    return tuple(plan.moves)


def _vector_row(plan: Planner, reduction: Node | None) -> Node | None:
    """The row axis to vectorise, or None where columns and reductions gain more."""
    rows, inner = plan.rows, plan.inner()
    stored = next((axis for axis in rows if store_score(plan.kernel, axis) > 0), None)
    steps = ix.terms_of(plan.kernel.stores[0].index)[0]
    simple = reduction is None or len(bound_axes(reduction)) == 1
    for short, axis in permutations(rows, 2) if simple else ():
        if steps.get(short) == 1 and steps.get(axis) == short.arg.size <= plan.knobs.unroll:
            apart = any(ix.suits(axis, *one.src) < 0 for one in plan.kernel.of(Op.LOAD))
            tall = reduction is None or reusing(plan, reduction, axis)[-1:] not in ([], [short])
            if tall and plan.benefit(axis) >= 0 and (inner or not apart):
                plan.bind(short, "unroll")  # lanes of its vectors are stored in turns
                return axis
    if reduction is not None and points(bound_axes(reduction)) < 4 * plan.width:
        return stored  # too short for adding up lanes at its end to pay
    best = max(rows, key=plan.benefit, default=None)
    gain = sum(max(map(plan.benefit, axes)) for axes in inner)
    if best is not None and plan.benefit(best) >= max(gain, 1):
        return best
    return stored if reduction is None and not inner else None


def _packed_row(plan: Planner, reduction: Node) -> Node | None:
    """The row axis that gains most by vectors, whose operand is then packed in panels. Where one
    axis is reduced, results must lie along it: dot products, the other way, need no packing."""
    several, stored = len(bound_axes(reduction)) > 1, partial(store_score, plan.kernel)
    rows = (axis for axis in plan.rows if several or stored(axis) > 0)
    fit = [axis for axis in rows if _panel(plan, reduction, axis)[0]]
    return max(
        fit, key=lambda axis: (points(reusing(plan, reduction, axis)), stored(axis)), default=None
    )


def reusing(plan: Planner, reduction: Node, vector: Node) -> list[Node]:
    """The row axes along which what varies along `vector` is reused, while something else varies;
    last the one that suits the height of a tile best."""
    wide = {vector}.union(*map(free_axes, _loads(reduction, vector)))
    rows = (axis for axis in plan.rows if axis not in wide and _loads(reduction, axis))
    return sorted(rows, key=lambda axis: min(axis.arg.size, plan.knobs.rows - 1))


def _vector_strip(plan: Planner, row: Node) -> None:
    """Vectors along a row: several side by side where a reduction reads row after row, squares
    where an operand lies across, and loops in the order of an operand that is large and alone."""
    across = turned(plan, row, plan.knobs.turn)
    reductions = plan.kernel.of(Op.LOOP_REDUCE)
    columns, steps = _carried(plan, reductions[0], row, 1) if reductions else (0, 0)
    if across is not None and not plan.inner():
        _turn(plan, row, across)
    elif steps:
        panel, row = plan.split(row, columns)
        loop, step = plan.split(bound_axes(reductions[0])[0], steps)
        plan.reorder([panel, loop, row])
        plan.vectorize(row)
        plan.bind(step, "unroll")
        plan.do(moves.Accumulate(loop.arg.number))
    elif reductions and row.arg.size >= 2 * plan.knobs.strip * plan.width:
        _, strip = plan.split(row, max(1, plan.knobs.strip // len(reductions)) * plan.width)
        plan.bind(plan.tile(strip, plan.width, "vector"), "unroll")
    else:
        plan.vectorize(row)
        terms = [ix.terms_of(one.src[0])[0] for one in plan.kernel.of(Op.LOAD)]
        large = plan.kernel.parameters[plan.kernel.stores[0].parameter].nbytes >= UNCACHED
        if large and len(terms) == 1 and {*plan.rows} <= {*terms[0]}:  # reads wait, writes do not
            plan.reorder(sorted(plan.rows, key=lambda axis: -abs(terms[0][axis])))


def _carried(plan: Planner, reduction: Node, row: Node, reused: int) -> tuple[int, int]:
    """Columns of `row` in a panel and steps in a block of the reduction, where each of its steps
    goes to a distant line of a large operand: longer pieces of some lines are read at once, and
    more lines where each element is `reused` often. Zeros where no such panels fit."""
    rows, most = plan.knobs.rows, plan.knobs.carried
    steps = max(rows, min(4 * rows, 1 << reused.bit_length() >> 1))
    columns = next((one for one in (most, most // 2 or 1) if row.arg.size % (2 * one) == 0), 0)
    return (columns, steps) if columns and _is_distant(plan, reduction, row, steps) else (0, 0)


def _turn(plan: Planner, row: Node, across: Node) -> None:
    """Read squares along `across`, where an operand's neighbours lie, and write lines along `row`;
    registers turn squares where there is little to compute. Strips of squares go along together,
    each ahead of the one before: lines a power of two apart are few places to caches and memory."""
    line = plan.vector_bytes // plan.kernel.stores[0].value.dtype.itemsize
    even = not (row.arg.size % (plan.knobs.strip * line) or across.arg.size % plan.width)
    outer_row, inner_row = plan.split(row, line)
    outer, inner = plan.split(across, plan.width)
    strip = outer
    if even:
        outer_row, strip = plan.split(outer_row, plan.knobs.strip)
        plan.do(moves.Rotate(outer.arg.number, strip.arg.number, plan.knobs.unroll))
    plan.reorder([outer_row, outer, strip, inner, inner_row])
    plan.vectorize(inner_row)
    if sum(node.op in Group.ELEMENTWISE for node in plan.kernel.nodes) <= plan.knobs.unroll:
        plan.bind(inner, "unroll")


def _outer_product(plan: Planner, reduction: Node, vector: Node) -> None:
    """Rows x vectors in registers, the reduction outside the tile; operands that lie badly for
    it in panels."""
    *_, column = None, *reusing(plan, reduction, vector)
    lanes = plan.vector_bytes // reduction.dtype.itemsize
    tile = OUTER_TILES.get(plan.vector_bytes) if reduction.dtype in (float32, float64) else None
    if column is None or tile is None or vector.arg.size < lanes:
        plan.vectorize(vector)
        if column is not None and column.arg.size >= plan.knobs.rows:
            plan.tile(column, plan.knobs.rows, "unroll")
        return
    wide, tall = (_loads(reduction, axis) for axis in (vector, column))
    cached = max(points(free_axes(one)) for one in tall) <= plan.knobs.cached
    columns, steps, inside = _panel(plan, reduction, vector)
    packed, summed, outside = columns > 0, [*bound_axes(reduction)], list[Node]()
    if not packed:
        columns, steps = _carried(plan, reduction, vector, column.arg.size)
        if not steps and _is_distant(plan, reduction, column, plan.knobs.lines):
            steps = plan.knobs.lines
    if steps:
        loop, summed[0] = plan.split(summed[0], steps)
        outside = [loop]
    if packed and summed[-1].arg.size >= plan.width:
        plan.split(summed[-1], plan.width)  # what lies along it is read a piece at a time
    if columns:
        panel, vector = plan.split(vector, columns)
        outside = [panel, *outside]
    turns = [axis for axis in plan.rows if plan.nest.bound(axis) == "unroll"]
    held, across = tile[0] * tile[1] // points(turns), tile[1] // points(turns) or 1
    outer_n, block = plan.split(vector, min(across, vector.arg.size // lanes) * lanes)
    repeat, lane = plan.split(block, lanes)
    size, most = column.arg.size, plan.knobs.height or min(tile[0], held)
    # Lower tiles read more, which costs several reduced axes more than a last one of other height.
    least = plan.knobs.rows if len(bound_axes(reduction)) == 1 else most
    if _far(plan, tall, column):  # whose lines compete for the same places
        most = min(most, least)
    even = (one for one in range(most, least - 1, -1) if size % one == 0)
    outer_m, height = plan.split(column, next(even, -(-size // -(-size // most))))
    if packed:
        plan.staged += [(one.arg.parameter, outside[-1]) for one in wide]
        far = (one.arg.parameter for one in _far(plan, tall, column))
        made = (p for p in far if {v.op for v in _computed_from(plan.kernel, p)} - {Op.LOAD})
        plan.staged += [(one, outer_m) for one in made]  # what is only read stays where it is
    around = [outer_n, outer_m] if cached and not columns else [outer_m, outer_n]
    reduced = [axis for axes in plan.inner() if axes[0].arg.reduce for axis in axes]
    plan.reorder([*outside, *inside, *around, *reduced, height, repeat, *turns, lane])
    for axis, to in ((height, "unroll"), (repeat, "unroll"), (lane, "vector")):
        plan.bind(axis, to)
    if steps:
        plan.do(moves.Accumulate(loop.arg.number))


def _is_distant(plan: Planner, reduction: Node, axis: Node, steps: int) -> bool:
    """Does a reduction, which blocks of so many steps can cut, go from line to distant line of a
    large array that varies along `axis`?"""
    reduced = bound_axes(reduction)[0]
    large = [one for one in _loads(reduction, axis) if points(free_axes(one)) > plan.knobs.cached]
    even = reduced.arg.size % steps == 0
    return even and bool(_far(plan, large, reduced)) and can_accumulate(plan.kernel)


def _loads(reduction: Node, axis: Node) -> list[Node]:
    """What is read beneath `reduction` that varies along `axis`."""
    return [one for one in toposort(reduction.src) if one.op is Op.LOAD and axis in free_axes(one)]


def _far(plan: Planner, loads: list[Node], axis: Node) -> list[Node]:
    return [one for one in loads if abs(ix.terms_of(one.src[0])[0].get(axis, 0)) >= plan.knobs.far]


def _panel(plan: Planner, reduction: Node, vector: Node) -> tuple[int, int, list[Node]]:
    """Columns of `vector` in a panel, or 0 where no operand needs to be staged; steps of a long
    reduction that go with it; and which rows beside the tile's column run inside the loop that
    fills it."""
    rows, none = reusing(plan, reduction, vector), (0, 0, list[Node]())
    if not rows:
        return none
    wide, tall = _loads(reduction, vector), _loads(reduction, rows[-1])
    if {one.arg.parameter for one in wide} & {one.arg.parameter for one in tall}:
        return none  # it would be staged as a whole
    while points(rows[1:]) >= plan.knobs.packed:
        rows = rows[1:]
    across = any(ix.suits(vector, *one.src) < 1 for one in wide)
    # Half of the scratch memory is for the other operand.
    length = max(points(bound_axes(reduction)), 1)
    room = moves.MAX_SCRATCH // (2 * reduction.dtype.itemsize * length)
    columns, least = plan.knobs.panel, 2 * plan.width
    while columns > room or (columns > least and 2 * columns > vector.arg.size):
        columns //= 2
    steps, fewer = _cut(plan, reduction, vector)
    columns = fewer or columns
    fits = columns >= least and vector.arg.size >= plan.width
    pays = points(rows) >= plan.knobs.tall and (across or bool(_far(plan, tall, rows[-1])))
    return (columns, steps, rows[:-1]) if fits and pays else none


def _cut(plan: Planner, reduction: Node, vector: Node) -> tuple[int, int]:
    """Steps of a long reduction that go with one panel, and the columns of that: what the cache has
    room for. Zeros where sums cannot be carried over even pieces, or lie far apart."""
    first, *others = bound_axes(reduction)
    deep, depth, each = plan.knobs.deep, first.arg.size, points(others)
    sizes = range(plan.knobs.rows, 0, -1) if others else range(deep, 0, -(deep // 8 or 1))
    even = (one for one in sizes if depth % one == 0 and deep <= 8 * one * each <= 8 * deep)
    size, least, steps = vector.arg.size, 2 * plan.width, next(even, 0)
    most = min(4 * plan.knobs.panel, plan.knobs.cached // (steps * each or 1))
    widths = (one for one in range(most // least * least, least, -least) if size % one == 0)
    columns = next((one for one in widths if one < size), 0)
    near = abs(ix.terms_of(plan.kernel.stores[0].index)[0].get(vector, 0)) < plan.knobs.far
    fits = steps and columns and near and depth * each > (2 if others else 1) * deep
    return (steps, columns) if fits and can_accumulate(plan.kernel) else (0, 0)


def _dot_tile(plan: Planner, reduction: Node | None) -> bool:
    """A block of dot products whose vectors run along the reduction, or of rows where nothing is
    reused; the larger operand is read once, in the outer loop. False where rows do not fit."""
    rows = sorted(plan.rows, key=lambda axis: -axis.arg.size)[:2]
    height, *heights = DOT_TILES[plan.vector_bytes]
    heights = [plan.knobs.height or height, *heights]
    if reduction is None:
        reductions = plan.kernel.of(Op.LOOP_REDUCE)
        again = any(len(one.axes) > plan.kernel.rows for one in plan.kernel.stores)
        if len(plan.inner()) != 1 or again or not rows or rows[0].arg.size < plan.knobs.rows**2:
            return False
        rows, heights = rows[:1], [max(1, plan.knobs.rows // len(reductions))]
    plan.reorder([plan.tile(*one, "unroll") for one in zip(rows, heights, strict=False)])
    return True


def _vector_inner(plan: Planner, tiled: bool) -> None:
    """Vectors along the innermost axis of each reduction and column loop; several rows of running
    values, each step of which waits for the one before."""
    if plan.kernel.of(Op.LOOP_SCAN) and plan.rows:
        plan.tile(plan.rows[-1], plan.knobs.unroll, "unroll")
    serial = serial_axes(plan.kernel)
    for axes in plan.inner():
        # A reduction may stand inside another loop: no value has lanes along both.
        vectors = {axis for axis, to in plan.nest.binding.items() if to == "vector"}
        taken = serial.union(*(one for one in map(free_axes, plan.kernel.nodes) if one & vectors))
        axis = max((one for one in axes if one not in taken), key=plan.benefit, default=None)
        if axis is None or plan.benefit(axis) <= 0:
            continue
        if axis.arg.reduce and not tiled and axis.arg.size >= plan.knobs.unroll * plan.width:
            _, axis = plan.split(axis, plan.knobs.unroll * plan.width)
            plan.bind(plan.tile(axis, plan.width, "vector"), "unroll")
        else:
            plan.vectorize(axis)


def _parallel(plan: Planner, work: int) -> None:
    """Bind row axes from the outside in until there are chunks for every thread."""
    wanted, have, nest = min(work // plan.knobs.chunk, plan.knobs.chunks), 1, plan.nest
    filled = [axis for _, axis in plan.staged]  # its loops share what is staged in it
    for axis in [one for one in nest.row_loops if one in plan.rows and nest.is_head(one)]:
        if have < wanted:
            share = axis.arg.size // (wanted // have)
            if share > 1 and axis not in filled:
                axis, _ = plan.split(axis, share)
            plan.bind(axis, "parallel")
            have *= axis.arg.size
        if axis in filled:
            break


def _computed_from(kernel: Kernel, parameter: int) -> list[Node]:
    """The largest expressions that vary just as a load of `parameter` beneath them does, so that
    what is decoded or scaled is decoded or scaled once."""
    found: dict[Node, frozenset[Node]] = {}
    for node in kernel.nodes:
        loads = node.op is Op.LOAD and node.arg.parameter == parameter
        varies = node.op in Group.ELEMENTWISE and free_axes(node) in map(found.get, node.src)
        if loads or varies:
            found[node] = free_axes(node)
    used = {one for node in kernel.nodes if node not in found for one in node.src}
    return [node for node in found if node in used]


def search(scheduled: Callable[[Knobs], T], count: int, seconds: Callable[[T], float]) -> T:
    """The fastest of up to `count` schedules, each measured beside the best so far, of which it has
    a few numbers doubled or halved, once or twice. The order is the same each time."""
    best, order = Knobs(), random.Random(0)
    tried = {fastest := scheduled(best)}
    for few in range(20 * count):
        knobs = best
        for name in order.choices(Knobs._fields, k=1 + few % 4):
            value = getattr(knobs, name)
            other = order.choice((value // 4, value // 2, 2 * value, 4 * value))
            knobs = knobs._replace(**{name: other or order.randint(1, 16)})
        with contextlib.suppress(FormatError, CompileError):  # it does not fit
            if len(tried) < count and (schedule := scheduled(knobs)) not in tried:
                faster = all(seconds(schedule) < FASTER * seconds(fastest) for _ in range(SURE))
                tried.add(schedule)
                best, fastest = (knobs, schedule) if faster else (best, fastest)
    return fastest
