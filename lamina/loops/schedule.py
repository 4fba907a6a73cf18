"""The schedule primitives: a short list of moves that turns a kernel into a loop nest.

A schedule is data. It prints as text, one move a line, and parses back, so that any kernel can be
replayed with another one.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple, dataclass_transform

from lamina.core.dtypes import int8, int32, int64, uint8
from lamina.errors import FormatError
from lamina.graph import index as ix
from lamina.ir.kernel import Kernel, Parameter, SortKernel, Store, bound_axes, free_axes, points
from lamina.ir.monoids import ADD
from lamina.ir.node import Node, const, toposort
from lamina.ir.ops import Op

SCRATCH = 4 << 20  # bytes of a thread's stack that a kernel may fill
UNCACHED = 1 << 25  # bytes of an array of which caches keep nothing until it is read
# Who runs an axis: the nest itself, the threads of the CPU's pool, and on a GPU those of a block
# and the grid of blocks, or of threads where none is bound to those of a block.
TILES = ("vector", "unroll")
LOCAL = ("serial", *TILES, "dot")
BINDINGS = (*LOCAL, "parallel", "grid", "thread")
WARP = 32  # threads of a GPU that run in step
SCANNING_THREADS = 512  # largest block of threads that computes one scan together
Axes = tuple[Node, ...]


class Pieces(NamedTuple):
    """The axes that a split axis became, outermost first, and how many iterations they run, which
    the product of their sizes may exceed."""

    axes: Axes
    extent: int


@dataclass(frozen=True)
class Nest:
    """A kernel with its schedule applied: every axis, outermost first, the bindings of those that
    are not serial, the pieces of those that were split, and what is staged."""

    kernel: Kernel
    order: Axes
    binding: Mapping[Node, str]
    splits: tuple[Pieces, ...] = ()
    fills: tuple[Store, ...] = ()  # of scratch memory, the last parameters
    # The atom of a product of tiles that a block shares, and what these hold, rows and columns, as
    # stores along whole axes. Their index is the row, or the column.
    product: str = ""
    tiles: tuple[Store, ...] = ()

    def pieces(self, axis: Node) -> Pieces:
        """Those that `axis` is one of; an axis never split is the only one."""
        own = Pieces((axis,), axis.arg.size)
        return next((pieces for pieces in self.splits if axis in pieces.axes), own)

    def is_head(self, axis: Node) -> bool:
        """Is `axis` the outermost of its pieces, or never split?"""
        return self.pieces(axis).axes[0] is axis

    def bound(self, axis: Node) -> str:
        return self.binding.get(axis, "serial")

    @cached_property
    def row_loops(self) -> list[Node]:
        """The row axes that are neither vectors nor unrolled, outermost first; where sums are
        carried, what they are carried over is one of them."""
        sums = self.kernel.stores[-1]
        accumulates = sums.monoid is not None and sums.value.op is Op.LOOP_REDUCE
        rows = sums.axes if accumulates else self.kernel.row_axes
        return [axis for axis in self.order if axis in rows and self.bound(axis) not in TILES]

    def inside(self, row: Node) -> list[Node]:
        """The axes that open in the body of the loop over a row axis: later rows, and tiles,
        columns and reductions wherever they stand."""
        outside = self.order[: self.order.index(row) + 1]
        return [axis for axis in self.order if axis not in outside or axis not in self.row_loops]

    def axis(self, number: int) -> Node:
        """The axis of that number. Raises FormatError when there is none."""
        axes = {axis.arg.number: axis for axis in self.order}
        if number not in axes:
            known = ", ".join(map("a{}".format, axes))
            raise FormatError(f"the kernel has no axis a{number}; it has {known}")
        return axes[number]


@dataclass_transform(frozen_default=True)
class Move:
    """One step of a schedule: data, how it reads as text, and what it does to a nest."""

    text: ClassVar[str]

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True)(cls)

    def __str__(self) -> str:
        return self.text.format(**vars(self))

    def apply(self, nest: Nest) -> Nest:
        """`nest` after this move. Raises FormatError if it does not fit."""
        raise NotImplementedError

    def require(self, holds: bool, why: str) -> None:
        if not holds:
            raise FormatError(f"{self}: {why}")

    def rewalked(self, nest: Nest, index: dict[Node, Node], new: Axes, end: Node = ix.TRUE) -> Nest:
        """`nest` with the adjacent axes of `index` written as it says over the axes `new`, along
        which nothing is read or stored where `end` does not hold."""
        old, kernel = tuple(index), nest.kernel
        kept = {axis.arg.number for axis in nest.order if axis not in old}
        fresh = {axis.arg.number for axis in new} - kept
        self.require(len(fresh) == len(new), "the new axes are new")
        self.require(not set(old) & set(nest.binding), "the axis is bound; bind its pieces")
        memo = dict(index)
        for node in (one for one in kernel.nodes if one not in index):
            operands = tuple(memo[one] for one in operands_of(node))
            if node.op is Op.LOAD and end is not ix.TRUE and not free_axes(node).isdisjoint(old):
                operands = (operands[0], ix.both(*operands[1:], end))
            memo[node] = ix.rebuild(node, operands + _swapped(bound_axes(node), old, new))
        moved = (replace(one, axes=_swapped(one.axes, old, new)) for one in kernel.stores)
        stores = tuple(one.rebuilt(memo) for one in moved)
        is_row = old[0] in kernel.row_axes
        if is_row and end is not ix.TRUE:
            stores = tuple(replace(one, condition=ix.both(one.condition, end)) for one in stores)
        rows = kernel.rows + (len(new) - len(old) if is_row else 0)
        kernel = replace(kernel, stores=stores, rows=rows)
        return replace(nest, kernel=kernel, order=_swapped(nest.order, old, new))


class Split(Move):
    """Axis `axis` becomes ``outer * factor + inner``; a ragged end gets a nest of its own."""

    axis: int
    factor: int
    outer: int
    inner: int
    text = "split(a{axis}, {factor:d}) -> a{outer}, a{inner}"

    def apply(self, nest: Nest) -> Nest:
        axis, factor = nest.axis(self.axis), self.factor
        self.require(factor > 0, "the factor is positive")
        size, pieces = axis.arg.size, nest.pieces(axis)
        even = pieces.axes[0] is axis or size % factor == 0
        self.require(even, f"a piece of {size} is not split evenly")
        outer = ix.axis(self.outer, -(-size // factor), reduce=axis.arg.reduce)
        inner = ix.axis(self.inner, factor, reduce=axis.arg.reduce)
        index = {axis: ix.row_major((outer, inner))}
        more = pieces._replace(axes=_swapped(pieces.axes, (axis,), (outer, inner)))
        others = (one for one in nest.splits if one != pieces)
        return replace(self.rewalked(nest, index, (outer, inner)), splits=(*others, more))


class Fuse(Move):
    """Axes `first` and `second` become one, walked as ``first * size of second + second``."""

    first: int
    second: int
    into: int
    text = "fuse(a{first}, a{second}) -> a{into}"

    def apply(self, nest: Nest) -> Nest:
        first, second = pair = nest.axis(self.first), nest.axis(self.second)
        loops = [axes for axes in axis_lists(nest.kernel) if first in axes or second in axes]
        self.require(all(pair in pairwise(axes) for axes in loops), "they are not neighbours")
        whole = all(nest.pieces(one).axes == (one,) for one in pair)
        self.require(whole, "an axis is split already")
        into = ix.axis(self.into, points(pair), reduce=first.arg.reduce)
        size = max(second.arg.size, 1)  # of none, nothing is divided
        index = dict(zip(pair, ix.divided(into, size), strict=True))
        fused = self.rewalked(nest, index, (into,))
        parts = {one for one in index.values() if one.op in (Op.IDIV, Op.MOD)}
        as_one = parts.isdisjoint(fused.kernel.nodes)
        self.require(as_one, "some index does not walk the two as one")
        return fused


class Skew(Move):
    """Each iteration of `by` begins the loop over `axis`, and goes round its end, `steps` later;
    no index walks it and what it was split from as one again."""

    axis: int
    by: int
    steps: int
    text = "skew(a{axis}, a{by}, {steps:d})"

    def apply(self, nest: Nest) -> Nest:
        axis, by = nest.axis(self.axis), nest.axis(self.by)
        rows, pieces = {*nest.kernel.row_axes}, nest.pieces(axis)
        even = points(pieces.axes) == pieces.extent and axis is not by and {axis, by} <= rows
        self.require(even, "these are not two rows, split evenly")
        _, place = ix.divided(ix.add(axis, ix.scale(by, self.steps)), axis.arg.size)
        others = tuple(one for one in nest.splits if one != pieces)
        return replace(self.rewalked(nest, {axis: place}, (axis,)), splits=others)


class Reorder(Move):
    """The order of loops; axes left out keep their place after those named."""

    axes: tuple[int, ...]

    def __str__(self) -> str:
        return f"reorder({', '.join(f'a{axis}' for axis in self.axes)})"

    def apply(self, nest: Nest) -> Nest:
        named = [nest.axis(number) for number in self.axes]
        self.require(len(set(named)) == len(named), "an axis is named twice")
        return replace(nest, order=tuple(dict.fromkeys((*named, *nest.order))))


class Bind(Move):
    """Who runs `axis`; axes not bound are serial."""

    axis: int
    to: str
    text = "bind(a{axis}, {to})"

    def apply(self, nest: Nest) -> Nest:
        self.require(self.to in BINDINGS, f"a binding is one of {', '.join(BINDINGS)}")
        return replace(nest, binding={**nest.binding, nest.axis(self.axis): self.to})


class Stage(Move):
    """Keep a value in scratch memory of the thread, for all loops inside the one over `axis`, laid
    out in their order. What comes from reads alone is filled in the body of that loop; what
    depends on reductions over a row is stored in the first pass that needs it, for later ones."""

    value: int
    axis: int
    text = "stage(%{value}, a{axis})"

    def apply(self, nest: Nest) -> Nest:
        at, kernel = nest.axis(self.axis), nest.kernel
        self.require(at in nest.row_loops, f"a{self.axis} is no loop over rows")
        self.require(self.value < len(kernel.values), f"there is no value %{self.value}")
        value, inside = kernel.values[self.value], nest.inside(at)
        axes = tuple(axis for axis in inside if axis in free_axes(value))
        self.require(bool(axes), f"no loop inside a{self.axis} walks it")
        below = toposort([value])
        reduced = any(node.op is Op.LOOP_REDUCE for node in below)
        running = any(node.op is Op.LOOP_SCAN for node in below)
        again = any(fill.value in below for fill in nest.fills)
        self.require(not (again or running), "it is in scratch already, or a running value")
        late = reduced and at is not nest.row_loops[-1]
        self.require(not late, f"a{self.axis} is not the last loop over rows, as reductions need")
        outer = (one for one in kernel.nodes if free_axes(one).isdisjoint((at, *inside)))
        early = any(value in toposort(operands_of(one)) for one in outer if bound_axes(one))
        self.require(not early, f"what reduces it is computed outside a{self.axis}")
        room = Parameter(value.dtype, points(axes), memory="scratch")
        parameters = (*kernel.parameters, room)
        used = sum(one.nbytes for one in parameters if one.memory == "scratch")
        self.require(used <= SCRATCH, f"{used} bytes of scratch, and {SCRATCH} are there")
        where = None if reduced else at
        fill = Store(len(kernel.parameters), ix.row_major(axes), value, axes, at=where)
        kernel = replace(kernel, parameters=parameters)
        return replace(nest, kernel=kernel, fills=(*nest.fills, fill))


class Carry(Move):
    """Run the loop over `axis`, one of those of a reduction, outside of the rows that follow in the
    order: the memory of the result carries the sums from one iteration to the next."""

    axis: int
    text = "carry(a{axis})"

    def apply(self, nest: Nest) -> Nest:
        axis, reduction = nest.axis(self.axis), nest.kernel.stores[0].value
        fits = can_carry(nest.kernel) and {axis} < set(bound_axes(reduction))
        self.require(fits, "the kernel is no plain reduction over it and other axes")
        loop = ix.axis(self.axis, axis.arg.size)
        nest = self.rewalked(nest, {axis: loop}, (loop,))
        (store,) = nest.kernel.stores
        before = nest.order[: nest.order.index(loop)]
        rows = sorted(nest.kernel.row_axes, key=lambda row: row not in before)
        outer, monoid = sum(row in before for row in rows), reduction.arg.monoid
        (identity,) = monoid.identity((reduction.dtype,))
        first = replace(store, value=const(identity, reduction.dtype), axes=tuple(rows))
        parts = tuple(one for one in store.value.src if one is not loop)
        axes = (*rows[:outer], loop, *rows[outer:])
        partial = Node(Op.LOOP_REDUCE, parts, reduction.arg)
        sums = replace(store, value=partial, axes=axes, monoid=monoid)
        # The pieces of an axis that was split evenly are loops of their own.
        ragged = tuple(one for one in nest.splits if one.extent != points(one.axes))
        together = all(len({axis in before for axis in one.axes}) == 1 for one in ragged)
        whole = together and all(axis not in one.axes for one in ragged)
        self.require(whole, "it goes between the pieces of an uneven split, or is one of them")
        kernel = replace(nest.kernel, stores=(first, sums), rows=outer)
        return replace(nest, kernel=kernel, splits=ragged)


class Deal(Move):
    """Deal what is added at places that data say to workers, a power of two of them along a new
    row axis, by the place: each takes its own, in their order."""

    workers: int
    into: int
    text = "deal({workers:d}) -> a{into}"

    def apply(self, nest: Nest) -> Nest:
        store, worker = nest.kernel.stores[0], ix.axis(self.into, self.workers)
        places, value = places_of(nest.kernel), store.value
        self.require(len(places) == 1, "no store adds at one place that data say")
        own = Node(Op.EQ, (Node(Op.AND, (*places, const(self.workers - 1, int64))), worker))
        if value.op is Op.LOAD:  # by its worker alone
            value = Node(Op.LOAD, (value.src[0], ix.both(*value.src[1:], own)), value.arg)
        axes, own = (worker, *store.axes), ix.both(store.condition, own)
        dealt = replace(store, value=value, axes=axes, condition=own)
        kernel = replace(nest.kernel, stores=(dealt,), rows=nest.kernel.rows + 1)
        return replace(nest, kernel=kernel, order=(worker, *nest.order))


Schedule = tuple[Move, ...]


class Plan(NamedTuple):
    """How one kernel runs: its function's name, the moves of its schedule, and its nest."""

    name: str
    moves: Schedule
    nest: Nest | SortKernel

    def __str__(self) -> str:
        return to_text(self.moves) or "(no move)"


def apply(kernel: Kernel, schedule: Iterable[Move]) -> Nest:
    """The loop nest of `kernel` under `schedule`; raises FormatError if a move does not fit."""
    order = dict.fromkeys(axis for axes in axis_lists(kernel) for axis in axes)
    nest = Nest(kernel, tuple(order), {})
    for move in schedule:
        move.require(not nest.product, "tensorize comes last")
        move.require(not nest.fills or isinstance(move, Stage), "stage comes last")
        nest = move.apply(nest)
    return nest


def to_text(schedule: Iterable[Move]) -> str:
    """One move a line."""
    return "\n".join(map(str, schedule))


def parse(text: str) -> dict[str, Schedule]:
    """Read schedules by kernel: a line ``[reduce0_64x10]`` begins that kernel's moves, and moves
    before any such line, under "", are for every other kernel. A comment follows a #. Raises
    FormatError naming the line that is not a move."""
    sections, name = dict[str, Schedule](), ""
    for number, line in enumerate(re.split("[;\n]", re.sub("#.*", "", text)), 1):
        if heading := re.fullmatch(r"\s*\[(.*)\]\s*", line):
            name = heading[1]
            sections.setdefault(name, ())
        elif line.strip():
            sections[name] = (*sections.get(name, ()), _parse_move(number, line.strip()))
    return sections or {"": ()}


def _parse_move(number: int, line: str) -> Any:
    """The move that prints as `line`, up to spaces."""
    name, *words = re.findall(r"\w+", line) or [""]
    given = [int(word.lstrip("a")) if re.fullmatch(r"a?\d+", word) else word for word in words]
    kinds: dict[str, Any] = {kind.__name__.lower(): kind for kind in Move.__subclasses__()}
    try:
        move = Reorder(tuple(given)) if name == "reorder" else kinds[name](*given)
        if given and "".join(str(move).split()) == "".join(line.split()):
            return move
    except (KeyError, TypeError, ValueError):
        pass
    raise FormatError(f"schedule, line {number}: {line!r} is not a move")


def axis_lists(kernel: Kernel) -> list[Axes]:
    """The axes of every store, LOOP_REDUCE and LOOP_SCAN."""
    return [*(store.axes for store in kernel.stores), *filter(None, map(bound_axes, kernel.nodes))]


def serial_axes(kernel: Kernel) -> frozenset[Node]:
    """Axes whose iterations must run one after another: those of a LOOP_SCAN, and the columns of a
    store that may write an element twice."""
    found = {axis for node in kernel.of(Op.LOOP_SCAN) for axis in bound_axes(node)}
    for store in kernel.stores:
        scattered = any(term.op is not Op.AXIS for term in ix.terms_of(store.index)[0])
        apart = frozenset() if scattered else free_axes(store.index)
        found.update(set(store.axes[kernel.rows :]) - apart)
    return frozenset(found)


def can_carry(kernel: Kernel) -> bool:
    """Is the kernel one reduction, to memory where more can be added to what is there so far?"""
    store, reduction = kernel.stores[0], kernel.stores[0].value
    read = {one.arg.parameter for one in kernel.of(Op.LOAD)}
    plain = store.condition is ix.TRUE and store.monoid is None and len(kernel.stores) == 1
    plain &= store.parameter not in read
    plain &= not reduction.dtype.is_small  # which are bits in memory
    return plain and reduction.op is Op.LOOP_REDUCE and reduction.arg.monoid.op is not None


def places_of(kernel: Kernel) -> list[Node]:
    """Where data say that the kernel adds, if it has one store, and that does."""
    (store, *others), is_data = kernel.stores, lambda term: term.op is not Op.AXIS
    return [*filter(is_data, ix.terms_of(store.index)[0])] if store.monoid and not others else []


def operands_of(node: Node) -> Axes:
    """The operands of `node` but for the axes that it binds."""
    return node.src[: len(node.src) - len(bound_axes(node))]


def dot_axes(kernel: Kernel) -> list[Node]:
    """The axes over which all that runs adds up int32 products of four integers of 8 bits."""
    runs = [(axis, node) for node in kernel.nodes for axis in bound_axes(node)]
    others = {axis for axis, node in runs if axis is not node.src[-1] or not _is_dot(node)}
    return list(dict.fromkeys(axis for axis, _ in runs if axis not in others))


def _is_dot(node: Node) -> bool:
    part, quad = node.src[0], node.src[-1]
    adds = node.op is Op.LOOP_REDUCE and node.arg.monoid is ADD and part.op is Op.MUL
    casts = [one for one in part.src if one.op is Op.CAST and quad in free_axes(one)]
    narrow = [one.dtype is int32 and one.src[0].dtype in (int8, uint8) for one in casts]
    return adds and quad.arg.size == 4 and narrow == [True, True]


def _swapped(axes: Axes, old: Axes, new: Axes) -> Axes:
    """`axes` with `new` in place of the first of `old`, and without the others."""
    found: dict[Node, Axes] = {**dict.fromkeys(old, ()), old[0]: new}
    return tuple(one for axis in axes for one in found.get(axis, (axis,)))
