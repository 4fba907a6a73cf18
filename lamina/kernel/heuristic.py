"""A good schedule at once, from the shape of the memory accesses alone.

1. Axes that every index walks together become one.
2. The vector axis is the one along which most loads and stores touch neighbours: a row axis, or
   the innermost axis of each reduction and column loop.
3. A contraction gets a register tile: an outer product of the atom's size where a row axis is
   vectorised, a block of dot products where the reduction is.
4. Row axes from the outside in run in parallel, in chunks that are worth a thread's while.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from lamina.ir.kernel import Kernel, Store, contraction, free_axes, points, roots_of
from lamina.ir.node import Node, toposort
from lamina.ir.ops import Op
from lamina.kernel.atoms import ATOMS, Atom
from lamina.kernel.schedule import (
    Bind,
    Fuse,
    Move,
    Nest,
    Reorder,
    Schedule,
    Split,
    Stage,
    Tensorize,
    apply,
    apply_move,
    can_fuse,
    serial_axes,
)  # fmt: skip
from lamina.simplify import index as ix

CHUNK = 1 << 15  # operations that are worth handing to a thread
MAX_CHUNKS = 256
DOT_TILES = {32: (6, 4), 16: (3, 3)}  # by registers: dot products kept in them at once
CACHED = 1 << 17  # elements that stay in the second-level cache
NARROW_ROWS = 8  # rows kept in registers when a row is shorter than a vector
FOLD_UNROLL = 4  # independent accumulators hide the latency of an addition


@dataclass(frozen=True)
class Target:
    """What the heuristic knows of a machine."""

    name: str
    vector_bytes: int
    registers: int


class Planner:
    """Builds a schedule move by move on the nest it has made so far."""

    def __init__(self, kernel: Kernel, target: Target) -> None:
        self.target = target
        self.moves: list[Move] = []
        self.nest: Nest = apply(kernel, ())
        self.next_axis = 1 + max((axis.arg.number for axis in self.nest.order), default=0)

    @property
    def kernel(self) -> Kernel:
        return self.nest.kernel

    def do(self, move: Move) -> None:
        self.moves.append(move)
        self.nest = apply_move(self.nest, move)

    def rows(self) -> tuple[Node, ...]:
        return self.kernel.stores[0].axes[: self.kernel.rows]

    def columns(self) -> list[tuple[Node, ...]]:
        """The axes of each store beyond the rows, each set once."""
        rows = self.kernel.rows
        return list(dict.fromkeys(s.axes[rows:] for s in self.kernel.stores if s.axes[rows:]))

    def folds(self) -> list[Node]:
        nodes = toposort(root for store in self.kernel.stores for root in roots_of(store))
        return [node for node in nodes if node.op is Op.FOLD]

    def fold_axes(self) -> list[tuple[Node, ...]]:
        return list(dict.fromkeys(fold.src[fold.arg.monoid.arity :] for fold in self.folds()))

    def contraction(self) -> Node | None:
        """The reduction that a register tile is for, if there is one."""
        return contraction((store.value for store in self.kernel.stores), self.rows())

    def split(self, axis: Node, factor: int) -> tuple[Node, Node]:
        """Split and return the two new axes."""
        outer, inner = self.next_axis, self.next_axis + 1
        self.next_axis += 2
        self.do(Split(axis.arg.number, factor, outer, inner))
        found = {one.arg.number: one for one in self.nest.order}
        return found[outer], found[inner]

    def bind(self, axis: Node, to: str) -> None:
        self.do(Bind(axis.arg.number, to))

    def fuse_all(self) -> None:
        """Fuse neighbours until nothing changes."""
        while pair := self._fusable_pair():
            first, second = pair
            self.do(Fuse(first.arg.number, second.arg.number, self.next_axis))
            self.next_axis += 1

    def _fusable_pair(self) -> tuple[Node, Node] | None:
        for axes in (self.rows(), *self.columns(), *self.fold_axes()):
            for first, second in pairwise(axes):
                if can_fuse(self.kernel, first, second):
                    return first, second
        return None

    def lanes(self) -> int:
        """Elements of the widest operand that fill a vector register."""
        widths = [4, *(one.dtype.itemsize for one in self.kernel.parameters)]
        return self.target.vector_bytes // max(widths)


def _access_score(index: Node, condition: Node | None, axis: Node) -> int:
    """How well lanes along `axis` suit one access: 1 neighbours, 0 one element, -1 scattered."""
    terms, _ = ix.terms_of(index)
    stride = terms.get(axis, 0)
    data = [one for one in terms if one is not axis and axis in free_axes(one)]
    if data or (condition is not None and axis in free_axes(condition)):
        return -2
    return {0: 0, 1: 1}.get(stride, -1)


def score(kernel: Kernel, axis: Node) -> int:
    """The sum over the loads and stores that vary along `axis`."""
    loads, divisions = _accesses(kernel.stores)
    total = -sum(axis in free_axes(node) for node in divisions)
    for load in loads:
        total += _access_score(load.src[0], load.src[1] if len(load.src) > 1 else None, axis)
    return total + _store_score(kernel, axis)


@lru_cache(maxsize=256)
def _accesses(stores: tuple[Store, ...]) -> tuple[tuple[Node, ...], tuple[Node, ...]]:
    """The loads of each store, and the divisions, which do not vectorise."""
    loads: list[Node] = []
    divisions: list[Node] = []
    for store in stores:
        for node in toposort(roots_of(store)):
            if node.op is Op.LOAD:
                loads.append(node)
            elif node.op in (Op.IDIV, Op.MOD):
                divisions.append(node)
    return tuple(loads), tuple(divisions)


def _work(kernel: Kernel) -> int:
    """Operations of the whole kernel, roughly."""

    def of_store(store: Store) -> int:
        inner = 1
        for node in toposort([store.value]):
            if node.op is Op.FOLD:
                inner += points(node.src[node.arg.monoid.arity :])
        return points(store.axes) * inner

    return sum(map(of_store, kernel.stores))


def schedule_kernel(kernel: Kernel, target: Target) -> Schedule:
    """The heuristic's schedule."""
    plan = Planner(kernel, target)
    plan.fuse_all()
    work = _work(plan.kernel)
    serial = serial_axes(plan.kernel)
    inner = [axes for axes in (*plan.columns(), *plan.fold_axes()) if axes]
    row = max(plan.rows(), key=lambda axis: _benefit(plan, axis), default=None)
    row_score = -1 if row is None else _benefit(plan, row)
    inner_score = sum(
        max((_benefit(plan, axis) for axis in axes if axis not in serial), default=-1)
        for axes in inner
    )
    fold = plan.contraction()
    if fold is not None and _is_short(plan, fold):
        row = max(plan.rows(), key=lambda axis: _store_score(plan.kernel, axis))
        inner_score = row_score = _store_score(plan.kernel, row)
    use_rows = row is not None and row_score > 0 and (not inner or row_score >= inner_score)
    if row is not None and use_rows:
        if fold is None:
            _vector_rows(plan, row)
        else:
            _outer_product(plan, fold, row)
    else:
        if fold is not None:
            _dot_tile(plan, fold)
        _vector_inner(plan, inner, serial)
    _parallel(plan, work)
    return tuple(plan.moves)


def _benefit(plan: Planner, axis: Node) -> int:
    """The score of vectors along `axis`, by how many lanes it fills."""
    lanes = _lanes_for(plan, axis.arg.size)
    return score(plan.kernel, axis) * lanes if lanes > 1 else -1


def _is_short(plan: Planner, fold: Node) -> bool:
    """Is a contraction too short for adding up lanes at its end to pay?"""
    return points(fold.src[fold.arg.monoid.arity :]) < 4 * plan.lanes()


def _store_score(kernel: Kernel, axis: Node) -> int:
    return sum(
        _access_score(store.index, store.condition, axis)
        for store in kernel.stores
        if axis in store.axes
    )


def _lanes_for(plan: Planner, size: int) -> int:
    """The widest vector that fits `size`, as a power of two."""
    lanes = plan.lanes()
    while lanes > size:
        lanes //= 2
    return max(lanes, 1)


def _vector_rows(plan: Planner, axis: Node) -> None:
    lanes = _lanes_for(plan, axis.arg.size)
    if lanes > 1:
        _, inner = plan.split(axis, lanes)
        plan.bind(inner, "vector")


def _atom_for(plan: Planner, fold: Node) -> Atom | None:
    suffix = f"{plan.target.registers}r"
    for atom in ATOMS.values():
        width = atom.lanes * atom.operand.itemsize
        here = atom.target == plan.target.name and width == plan.target.vector_bytes
        if here and atom.operand is fold.dtype and atom.name.endswith(suffix):
            return atom
    return None


def _outer_product(plan: Planner, fold: Node, vector: Node) -> None:
    """Rows x vectors in registers, the reduction outside the tile."""
    atom = _atom_for(plan, fold)
    others = [axis for axis in plan.rows() if axis is not vector]
    loads = [one for one in toposort(fold.src) if one.op is Op.LOAD]
    wide = [one for one in loads if vector in free_axes(one)]
    tall = [axis for axis in others if not any(axis in free_axes(one) for one in wide)]
    if not tall:
        _vector_rows(plan, vector)
        return
    column = max(tall, key=lambda axis: axis.arg.size)
    if atom is None or vector.arg.size < atom.lanes:
        _narrow_product(plan, column, vector)
        return
    count = 2 if vector.arg.size >= 2 * atom.lanes else 1
    blocks = -(-column.arg.size // atom.m)
    height = -(-column.arg.size // blocks)
    outer_n, block = plan.split(vector, count * atom.lanes)
    repeat, lane = plan.split(block, atom.lanes)
    outer_m, tall_inner = plan.split(column, height)
    tile = (outer_m, tall_inner, outer_n, repeat, lane)
    first = [axis for axis in plan.rows() if axis not in tile]
    reduced = plan.fold_axes()
    blocks_in_order = (outer_n, outer_m) if _footprint(fold, column) <= CACHED else (
        outer_m, outer_n)  # fmt: skip
    axes = [*first, *blocks_in_order, *(one for group in reduced for one in group)]
    order = dict.fromkeys([*axes, tall_inner, repeat, lane])
    plan.do(Reorder(tuple(axis.arg.number for axis in order)))
    innermost = next(one for one in reduced if one)[-1]
    plan.do(Stage(innermost.arg.number, "register"))
    plan.do(Tensorize(innermost.arg.number, atom.name))


def _footprint(fold: Node, axis: Node) -> int:
    """Elements of the operand of `fold` that varies along `axis`."""
    loads = [one for one in toposort(fold.src) if one.op is Op.LOAD and axis in free_axes(one)]
    return max((points(free_axes(load)) for load in loads), default=0)


def _narrow_product(plan: Planner, column: Node, vector: Node) -> None:
    """Fewer columns than a vector has lanes: several rows of one shorter vector each."""
    lanes = _lanes_for(plan, vector.arg.size)
    if lanes > 1:
        _, lane = plan.split(vector, lanes)
        plan.bind(lane, "vector")
    if column.arg.size >= NARROW_ROWS:
        _, inner = plan.split(column, NARROW_ROWS)
        plan.bind(inner, "unroll")


def _dot_tile(plan: Planner, fold: Node) -> None:
    """A block of dot products whose vectors run along the reduction; the larger operand is read
    once, in the outer loop."""
    rows = sorted(plan.rows(), key=lambda axis: -axis.arg.size)[:2]
    heights = DOT_TILES[plan.target.registers]
    outer = []
    for axis, height in zip(rows, heights, strict=False):
        if axis.arg.size >= height:
            axis, inner = plan.split(axis, height)
            plan.bind(inner, "unroll")
        outer.append(axis)
    others = [axis for axis in plan.rows() if axis not in outer and axis.arg.size > 1
              and plan.nest.bound(axis) == "serial"]  # fmt: skip
    plan.do(Reorder(tuple(axis.arg.number for axis in (*others, *outer))))
    innermost = fold.src[fold.arg.monoid.arity :][-1]
    plan.do(Stage(innermost.arg.number, "register"))


def _vector_inner(
    plan: Planner, inner: list[tuple[Node, ...]], serial: frozenset[Node]
) -> None:
    """Vectors along the innermost axis of each reduction and column loop."""
    tiled = plan.contraction() is not None
    done: set[Node] = set()
    for axes in inner:
        free = [axis for axis in axes if axis not in serial and axis not in done]
        if not free:
            continue
        axis = max(free, key=lambda axis: (score(plan.kernel, axis), axes.index(axis)))
        lanes = _lanes_for(plan, axis.arg.size)
        if score(plan.kernel, axis) <= 0 or lanes == 1:
            continue
        done.add(axis)
        unroll = 1 if tiled or not axis.arg.reduce else FOLD_UNROLL
        if axis.arg.size >= unroll * lanes and unroll > 1:
            _, block = plan.split(axis, unroll * lanes)
            repeat, lane = plan.split(block, lanes)
            plan.bind(repeat, "unroll")
        else:
            _, lane = plan.split(axis, lanes)
        plan.bind(lane, "vector")


def _parallel(plan: Planner, work: int) -> None:
    """Bind row axes from the outside in until there are chunks for every thread."""
    rows = [axis for axis in plan.nest.order if axis in plan.rows()]
    free = [axis for axis in rows if plan.nest.bound(axis) == "serial"]
    heads = [axis for axis in free if plan.nest.is_head(axis)]
    if work < 2 * CHUNK or not heads:
        return
    wanted = min(work // CHUNK, MAX_CHUNKS)
    have = 1
    for axis in heads:
        if have >= wanted:
            break
        size = axis.arg.size
        share = max(1, min(size // max(wanted // have, 1), size))
        if share > 1:
            axis, _ = plan.split(axis, share)
        plan.bind(axis, "parallel")
        have *= axis.arg.size
