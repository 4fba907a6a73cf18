"""Results whose lanes lie apart, stored as squares that registers transpose.

Places of an image with its channels last, which another one has with its channels first, such as

    y[c, i] = f(x[i, c], x[i + 1, c])

have vectors along channels c, 16 neighbours of x. Along i neighbours of y would be read one by one,
and along c they would be stored one by one. With 16 places unrolled, 16 vectors are transposed, and
stored as vectors along i: see `lamina/targets/c/squares.py`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil, prod

from lamina.graph import index as ix
from lamina.ir.kernel import Store
from lamina.ir.node import Node
from lamina.ir.ops import Group, Op
from lamina.loops.nest import MIN_SQUARE
from lamina.schedule.cpu.lanes import instructions
from lamina.schedule.cpu.planner import CpuPlanner

# Loads and operations of all unrolled points up to which a body is worth its compile time: 16
# points of a blend of four elements have 400. An estimate.
MAX_BODY = 512


@dataclass(frozen=True)
class Squares:
    """Vectors of so many `lanes` along `lane`, and the rows along which results are one run, the
    fastest first: all of these are unrolled but the slowest, of which `block` iterations are.

    instructions: of the kernel so
    """

    lane: Node
    lanes: int
    run: tuple[Node, ...]
    block: int
    instructions: float


def cheapest_squares(plan: CpuPlanner) -> Squares | None:
    """The squares by which a kernel takes the fewest instructions; None if it has none, or loops
    inside its rows."""
    if plan.inner() or not all(map(_is_plain, plan.kernel.stores)):
        return None
    return min(_all_squares(plan), key=lambda each: each.instructions, default=None)


def _is_plain(store: Store) -> bool:
    return store.condition is ix.TRUE and store.monoid is None and not store.atomic


def _all_squares(plan: CpuPlanner) -> Iterator[Squares]:
    """Those along each row axis, with each number of lanes."""
    for lane in plan.rows:
        run = _run_beside(plan, lane)
        lanes = plan.lanes(lane.arg.size)
        while run and lanes >= MIN_SQUARE:
            squares = _squares_of(plan, lane, lanes, run)
            if squares is not None:
                yield squares
            lanes //= 2


def _run_beside(plan: CpuPlanner, lane: Node) -> list[Node]:
    """The rows along which the results of all stores are one run, the fastest first, if lanes along
    `lane` lie apart in all of them; empty otherwise."""
    others = {row: row.arg.size for row in plan.rows if row is not lane}
    stores = plan.kernel.stores
    if any(ix.suits(lane, store.index) != ix.STRIDED for store in stores):
        return []
    runs = {tuple(ix.run_of(store.index, others)) for store in stores}
    return list(*runs) if len(runs) == 1 else []


def _squares_of(plan: CpuPlanner, lane: Node, lanes: int, run: list[Node]) -> Squares | None:
    """Squares of so many lanes, of as many neighbours along `run` as they need; None if it is
    shorter, or if the body of all points is too large."""
    chosen = list[Node]()
    for row in run:
        if prod(axis.arg.size for axis in chosen) >= lanes:
            break
        chosen.append(row)
    *whole, slowest = chosen
    inside = prod(axis.arg.size for axis in whole)
    block = _block(slowest.arg.size, inside, lanes)
    if not block or _operations(plan) * block * inside > MAX_BODY:
        return None
    vectors = _vectors(slowest.arg.size, block, inside, lanes)
    # Each vector takes log2(lanes) shuffles, and a store.
    stored = vectors * lanes.bit_length() / (slowest.arg.size * inside * lanes)
    count = instructions(plan.kernel, [lane], lanes, stored)
    return Squares(lane, lanes, tuple(chosen), block, count)


def _block(size: int, inside: int, lanes: int) -> int:
    """How many of `size` iterations, each of `inside` neighbours, are unrolled so that the blocks,
    and what is left over, have as many neighbours as lanes; 0 if all are fewer. Of the blocks with
    the fewest vectors the shortest one.

    For 28 iterations of one neighbour each and 16 lanes all 28, and for 33 blocks of 17 and 16.
    """
    least = ceil(lanes / inside)
    counts = range(1, size // least + 1)
    blocks = {ceil(size / count) for count in counts}
    fitting = [block for block in blocks if (size % block or block) >= least]
    return min(fitting, key=lambda block: (_vectors(size, block, inside, lanes), block), default=0)


def _vectors(size: int, block: int, inside: int, lanes: int) -> int:
    """The vectors that squares of all blocks have: 48 of 33 points in blocks of 17 and 16."""
    full, rest = divmod(size, block)
    squares = full * ceil(block * inside / lanes) + ceil(rest * inside / lanes)
    return squares * lanes


def _operations(plan: CpuPlanner) -> int:
    """The loads and operations of one point."""
    nodes = plan.kernel.nodes
    return sum(node.op is Op.LOAD or node.op in Group.ELEMENTWISE for node in nodes)


def schedule_squares(plan: CpuPlanner, squares: Squares) -> None:
    """Unroll a run of neighbours in the result, with vectors along the lanes, which lie apart."""
    *whole, slowest = squares.run
    for row in whole:
        plan.bind(row, "unroll")
    if squares.block == slowest.arg.size:
        plan.bind(slowest, "unroll")
    else:
        plan.tile(slowest, squares.block, "unroll")
    if squares.lanes == squares.lane.arg.size:
        plan.bind(squares.lane, "vector")
    else:
        plan.tile(squares.lane, squares.lanes, "vector")
