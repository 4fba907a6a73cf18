"""The moves of the schedule language: each turns a loop nest into another one.

A schedule is data: a tuple of moves, which `lamina/loops/text.py` prints and parses, so that any
kernel can be replayed with another schedule. `apply` runs them, one after the other, on the nest
that a kernel has at first: all axes serial, in the order of its stores and reductions.

The numbers in a move are those of axes, a0 for AXIS number 0, whether it is reduced or not, and of
values, %3 for ``kernel.values[3]``. A move that makes axes says their numbers. The examples show
the loops before and after.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple, Self

from lamina.core.dtypes import int64
from lamina.errors import FormatError
from lamina.graph import index as ix
from lamina.ir.kernel import Kernel, Parameter, SortKernel, Store, bound_axes, free_axes, points
from lamina.ir.node import Node, const, toposort
from lamina.ir.ops import Op
from lamina.loops.nest import (
    BINDINGS,
    Axes,
    Nest,
    SubLoops,
    axis_lists,
    can_accumulate,
    operands_of,
    scatter_indices,
)

MAX_SCRATCH = 4 << 20  # bytes of a thread's stack that one kernel may fill: 4 MiB
# A field of a move as it is parsed: the number of an axis or value, a count, or a name.
Word = int | str


class Move:
    """One step of a schedule: data, how it reads as text, and what it does to a nest."""

    text: ClassVar[str]  # the format of its fields, which begins with the name of the move
    kinds: ClassVar[dict[str, type["Move"]]] = {}  # every move, by its name

    def __init_subclass__(cls) -> None:
        cls.kinds[cls.__name__.lower()] = cls

    def __str__(self) -> str:
        return self.text.format(**vars(self))

    @classmethod
    def of_words(cls, words: Sequence[Any]) -> Self:
        """The move with these fields. Raises TypeError if there are too few or too many."""
        return cls(*words)

    def apply(self, nest: Nest) -> Nest:
        """`nest` after this move. Raises FormatError if it does not fit."""
        raise NotImplementedError

    def require(self, holds: bool, why: str) -> None:
        """Raise FormatError, naming the move, unless `holds`."""
        if not holds:
            raise FormatError(f"{self}: {why}")

    def reindexed(
        self, nest: Nest, index_of: Mapping[Node, Node], new: Axes, guard: Node = ix.TRUE
    ) -> Nest:
        """`nest` with the axes `new` in place of those in `index_of`, which are neighbours.

        `index_of` has each old axis as an index over the new ones: {a0: 4 * a1 + a2} for a split
        of a0 by 4, with (a1, a2) as `new`. Expressions get these indices; the order of the nest and
        the axes of stores and reductions get the new axes. Where `guard`, a condition over the new
        axes, does not hold, no load that depended on an old axis happens, and no store if the first
        old axis is a row.
        """
        kernel = nest.kernel
        old = tuple(index_of)
        self._require_new(nest, old, new)
        rebuilt = dict(index_of)
        for node in kernel.nodes:
            if node in index_of:
                continue
            operands = tuple(rebuilt[operand] for operand in operands_of(node))
            if node.op is Op.LOAD and guard is not ix.TRUE and not free_axes(node).isdisjoint(old):
                index, *conditions = operands
                operands = (index, ix.both(*conditions, guard))
            bound = _substituted(bound_axes(node), old, new)
            rebuilt[node] = ix.rebuild(node, operands + bound)
        is_row = old[0] in kernel.row_axes
        stores = []
        for store in kernel.stores:
            moved = replace(store, axes=_substituted(store.axes, old, new)).rebuilt(rebuilt)
            if is_row and guard is not ix.TRUE:
                moved = replace(moved, condition=ix.both(moved.condition, guard))
            stores.append(moved)
        rows = kernel.rows
        if is_row:
            rows += len(new) - len(old)
        kernel = replace(kernel, stores=tuple(stores), rows=rows)
        return replace(nest, kernel=kernel, order=_substituted(nest.order, old, new))

    def _require_new(self, nest: Nest, old: Axes, new: Axes) -> None:
        """The axes `new` have numbers that no axis but the `old` ones has, and no old one is bound:
        a binding would name an axis that the nest no longer has."""
        kept_numbers = {axis.arg.number for axis in nest.order if axis not in old}
        new_numbers = {axis.arg.number for axis in new} - kept_numbers
        self.require(len(new_numbers) == len(new), "the new axes are new")
        is_bound = not nest.binding.keys().isdisjoint(old)
        self.require(not is_bound, "the axis is bound; bind its sub-loops")


Schedule = tuple[Move, ...]


@dataclass(frozen=True)
class Split(Move):
    """Axis `axis` becomes ``outer * factor + inner``; an uneven end gets a nest of its own.

    ``split(a0, 4) -> a1, a2``, where a0 has 10 iterations::

        for a0 in 10: f(a0)     ->    for a1 in 2: for a2 in 4: f(4 * a1 + a2)
                                      for a2 in 2: f(8 + a2)
    """

    axis: int
    factor: int
    outer: int
    inner: int
    text = "split(a{axis}, {factor:d}) -> a{outer}, a{inner}"

    def apply(self, nest: Nest) -> Nest:
        axis = nest.axis(self.axis)
        factor = self.factor
        self.require(factor > 0, "the factor is positive")
        size = axis.arg.size
        split = nest.sub_loops(axis)  # of which `axis` may itself be one
        # Only the outermost of several sub-loops may end before its last point: `SubLoops` has one
        # extent for all of them.
        fits = split.axes[0] is axis or size % factor == 0
        self.require(fits, f"a sub-loop of {size} is not split evenly")
        outer = ix.axis(self.outer, -(-size // factor), reduce=axis.arg.reduce)
        inner = ix.axis(self.inner, factor, reduce=axis.arg.reduce)
        new = (outer, inner)
        more = split._replace(axes=_substituted(split.axes, (axis,), new))
        others = tuple(other for other in nest.splits if other != split)
        nest = self.reindexed(nest, {axis: ix.row_major(new)}, new)
        return replace(nest, splits=(*others, more))


@dataclass(frozen=True)
class Fuse(Move):
    """Neighbouring axes become one, where every index walks them as one.

    ``fuse(a0, a1) -> a2``, where a1 has 8 iterations::

        for a0 in 3: for a1 in 8: x[8 * a0 + a1]    ->    for a2 in 24: x[a2]
    """

    first: int
    second: int
    into: int
    text = "fuse(a{first}, a{second}) -> a{into}"

    def apply(self, nest: Nest) -> Nest:
        first, second = pair = nest.axis(self.first), nest.axis(self.second)
        loops = [axes for axes in axis_lists(nest.kernel) if first in axes or second in axes]
        self.require(all(pair in pairwise(axes) for axes in loops), "they are not neighbours")
        whole = all(nest.sub_loops(axis).axes == (axis,) for axis in pair)
        self.require(whole, "an axis is split already")
        into = ix.axis(self.into, points(pair), reduce=first.arg.reduce)
        size = max(second.arg.size, 1)  # sums over (3, 0) elements have an axis of size 0
        index_of = dict(zip(pair, ix.divided(into, size), strict=True))
        fused = self.reindexed(nest, index_of, (into,))
        # An index that walks the two as one is ``8 * (a2 // 8) + a2 % 8``, which is a2.
        divisions = {index for index in index_of.values() if index.op in (Op.IDIV, Op.MOD)}
        as_one = divisions.isdisjoint(fused.kernel.nodes)
        self.require(as_one, "some index does not walk the two as one")
        return fused


@dataclass(frozen=True)
class Rotate(Move):
    """Each iteration of `by` begins the loop over `axis` `steps` later, and goes round its end.
    Both are row axes; no index walks `axis` and what it was split from as one any longer.

    ``rotate(a1, a0, 2)``, where a1 has 8 iterations::

        for a0 in 4: for a1 in 8: f(a1)   ->   for a0 in 4: for a1 in 8: f((a1 + 2 * a0) % 8)
    """

    axis: int
    by: int
    steps: int
    text = "rotate(a{axis}, a{by}, {steps:d})"

    def apply(self, nest: Nest) -> Nest:
        axis, by = nest.axis(self.axis), nest.axis(self.by)
        split = nest.sub_loops(axis)
        are_rows = axis is not by and {axis, by} <= set(nest.kernel.row_axes)
        is_even = points(split.axes) == split.extent
        self.require(are_rows and is_even, "these are not two rows, split evenly")
        later = ix.add(axis, ix.scale(by, self.steps))
        _, rotated = ix.divided(later, axis.arg.size)
        others = tuple(other for other in nest.splits if other != split)
        return replace(self.reindexed(nest, {axis: rotated}, (axis,)), splits=others)


@dataclass(frozen=True)
class Reorder(Move):
    """The order of loops, outermost first; axes left out keep their order after those named.

    ``reorder(a1)``::

        for a0 in 3: for a1 in 8: f(a0, a1)    ->    for a1 in 8: for a0 in 3: f(a0, a1)
    """

    axes: tuple[int, ...]

    def __str__(self) -> str:
        return f"reorder({', '.join(f'a{axis}' for axis in self.axes)})"

    @classmethod
    def of_words(cls, words: Sequence[Any]) -> Self:
        return cls(tuple(words))

    def apply(self, nest: Nest) -> Nest:
        named = [nest.axis(number) for number in self.axes]
        self.require(len(set(named)) == len(named), "an axis is named twice")
        return replace(nest, order=tuple(dict.fromkeys((*named, *nest.order))))


@dataclass(frozen=True)
class Bind(Move):
    """Who runs `axis`, one of BINDINGS; axes that are never bound are serial.

    ``bind(a0, vector)``, where a0 has 8 iterations::

        for a0 in 8: y[a0] = x[a0] + 1    ->    y[0:8] = x[0:8] + 1
    """

    axis: int
    to: str
    text = "bind(a{axis}, {to})"

    def apply(self, nest: Nest) -> Nest:
        self.require(self.to in BINDINGS, f"a binding is one of {', '.join(BINDINGS)}")
        return replace(nest, binding={**nest.binding, nest.axis(self.axis): self.to})


@dataclass(frozen=True)
class Stage(Move):
    """Keep a value in scratch memory of the thread, for all loops inside the row loop `axis`, laid
    out in their order, but with the lanes of vectors innermost. A value made from reads alone is
    filled in the body of that loop. One that depends on reductions over a row is stored in the
    first pass that needs it, for later passes.

    ``stage(%0, a0)``, where %0 is the load of y, read once for each a1 before::

        for a0 in 4:                               for a0 in 4:
            for a1 in 8:                               for a2 in 16: scratch[a2] = y[16 * a0 + a2]
                for a2 in 16:                ->        for a1 in 8:
                    f(a1, y[16 * a0 + a2])                 for a2 in 16: f(a1, scratch[a2])
    """

    value: int
    axis: int
    text = "stage(%{value}, a{axis})"

    def apply(self, nest: Nest) -> Nest:
        loop = nest.axis(self.axis)
        kernel = nest.kernel
        self.require(loop in nest.row_loops, f"a{self.axis} is no loop over rows")
        self.require(self.value < len(kernel.values), f"there is no value %{self.value}")
        value = kernel.values[self.value]
        walked = [axis for axis in nest.inside(loop) if axis in free_axes(value)]
        self.require(bool(walked), f"no loop inside a{self.axis} walks it")
        # Lanes may be rows of which each walks a loop further inside. Those of a dot product, the
        # four numbers of one lane, stay inside of the lanes.
        innermost = ("vector", "dot")
        axes = tuple(sorted(walked, key=lambda axis: _position(innermost, nest.bound(axis))))
        is_reduced = any(node.op is Op.LOOP_REDUCE for node in toposort([value]))
        self._require_stageable(nest, value, loop, is_reduced=is_reduced)
        scratch = Parameter(value.dtype, points(axes), memory="scratch")
        parameters = (*kernel.parameters, scratch)
        used = sum(array.nbytes for array in parameters if array.memory == "scratch")
        self.require(used <= MAX_SCRATCH, f"{used} bytes of scratch, and {MAX_SCRATCH} are there")
        at = None if is_reduced else loop  # see `Store.at`
        fill = Store(len(kernel.parameters), ix.row_major(axes), value, axes, at=at)
        kernel = replace(kernel, parameters=parameters)
        return replace(nest, kernel=kernel, fills=(*nest.fills, fill))

    def _require_stageable(self, nest: Nest, value: Node, loop: Node, *, is_reduced: bool) -> None:
        """Raise FormatError unless `value` can be staged in the body of the row loop `loop`.
        `is_reduced`: it depends on reductions."""
        beneath = toposort([value])
        is_scanned = any(node.op is Op.LOOP_SCAN for node in beneath)
        is_staged = any(fill.value in beneath for fill in nest.fills)
        self.require(not (is_staged or is_scanned), "it is in scratch already, or of a scan")
        fits = not is_reduced or loop is nest.row_loops[-1]
        self.require(fits, f"a{self.axis} is not the last loop over rows, as reductions need")
        # A reduction that depends on no axis from `loop` on runs before that loop, and so before
        # the value is in scratch memory.
        inside = (loop, *nest.inside(loop))
        for node in nest.kernel.nodes:
            if bound_axes(node) and free_axes(node).isdisjoint(inside):
                is_early = value in toposort(operands_of(node))
                self.require(not is_early, f"what reduces it is computed outside a{self.axis}")


def _position(names: tuple[str, ...], name: str) -> int:
    """1, 2, ... for a name among `names`, 0 for any other."""
    return names.index(name) + 1 if name in names else 0


@dataclass(frozen=True)
class Accumulate(Move):
    """Run the loop over `axis`, one of several of a reduction, outside of the rows that follow it
    in the order: the memory of the result accumulates the partial sums of its iterations.

    ``reorder(a2, a0); accumulate(a2)``::

        for a0 in 9:                          for a0 in 9: y[a0] = 0
            s = 0                             for a2 in 4:
            for a2 in 4: for a1 in 8:    ->       for a0 in 9:
                s += f(a0, a2, a1)                    s = 0
            y[a0] = s                                 for a1 in 8: s += f(a0, a2, a1)
                                                      y[a0] += s
    """

    axis: int
    text = "accumulate(a{axis})"

    def apply(self, nest: Nest) -> Nest:
        axis = nest.axis(self.axis)
        reduction = nest.kernel.stores[0].value
        # It runs over `axis` and at least one more, which the partial sums are over.
        fits = can_accumulate(nest.kernel) and {axis} < set(bound_axes(reduction))
        self.require(fits, "the kernel is no plain reduction over it and other axes")
        loop = ix.axis(self.axis, axis.arg.size)  # the same number, but no longer a reduced axis
        nest = self.reindexed(nest, {axis: loop}, (loop,))
        before = nest.order[: nest.order.index(loop)]
        outer = tuple(row for row in nest.kernel.row_axes if row in before)
        inner = tuple(row for row in nest.kernel.row_axes if row not in before)
        initial = self._initial_store(nest.kernel, (*outer, *inner))
        partial_sums = self._store_of_partial_sums(nest.kernel, loop, (*outer, loop, *inner))
        # Stores share the axes `outer` alone: rows inside of `loop` are columns from here on.
        kernel = replace(nest.kernel, stores=(initial, partial_sums), rows=len(outer))
        return replace(nest, kernel=kernel, splits=self._splits_kept(nest, axis, before))

    def _initial_store(self, kernel: Kernel, axes: Axes) -> Store:
        """The store that sets every element to what changes no sum: ``y[a0] = 0`` above, with the
        `axes` (a0,). It is 0 for ADD, and what `Monoid.identity` says for others."""
        (store,) = kernel.stores
        dtype = store.value.dtype
        (identity,) = store.value.arg.monoid.identity((dtype,))
        return replace(store, value=const(identity, dtype), axes=axes)

    def _store_of_partial_sums(self, kernel: Kernel, loop: Node, axes: Axes) -> Store:
        """The store that adds each partial sum, over all reduced axes but `loop`: ``y[a0] += s``
        above, with the `axes` (a2, a0)."""
        (store,) = kernel.stores
        reduction = store.value
        operands = tuple(operand for operand in reduction.src if operand is not loop)
        partial_sum = Node(Op.LOOP_REDUCE, operands, reduction.arg)
        return replace(store, value=partial_sum, axes=axes, monoid=reduction.arg.monoid)

    def _splits_kept(self, nest: Nest, axis: Node, before: Axes) -> tuple[SubLoops, ...]:
        """The splits that leave a remainder, which need their last iterations left out still.
        Raises FormatError if the loop over `axis`, which goes inside of the axes `before` it, is
        one of their sub-loops or goes between these. The sub-loops of an even split are loops like
        all others from here on, with no split."""
        uneven = tuple(split for split in nest.splits if split.extent != points(split.axes))
        for split in uneven:
            are_before = [sub_loop in before for sub_loop in split.axes]
            is_between = any(are_before) and not all(are_before)
            why = "it goes between the sub-loops of an uneven split, or is one of them"
            self.require(not is_between and axis not in split.axes, why)
        return uneven


@dataclass(frozen=True)
class Partition(Move):
    """Partition a scatter that adds by owner: `workers`, a power of two of them along the new row
    axis `into`, each own the indices with equal last bits, and add there in the order of updates.

    ``partition(4) -> a1``::

        for a0 in 90: y[i[a0]] += x[a0]    ->    for a1 in 4: for a0 in 90:
                                                     if (i[a0] & 3) == a1: y[i[a0]] += x[a0]
    """

    workers: int
    into: int
    text = "partition({workers:d}) -> a{into}"

    def apply(self, nest: Nest) -> Nest:
        store = nest.kernel.stores[0]
        value = store.value
        worker = ix.axis(self.into, self.workers)
        indices = scatter_indices(nest.kernel)
        self.require(len(indices) == 1, "no store adds at one index that data say")
        last_bits = Node(Op.AND, (indices[0], const(self.workers - 1, int64)))
        is_owner = Node(Op.EQ, (last_bits, worker))
        if value.op is Op.LOAD:  # only the owner reads it
            source, *conditions = value.src
            value = Node(Op.LOAD, (source, ix.both(*conditions, is_owner)), value.arg)
        condition = ix.both(store.condition, is_owner)
        owned = replace(store, value=value, axes=(worker, *store.axes), condition=condition)
        kernel = replace(nest.kernel, stores=(owned,), rows=nest.kernel.rows + 1)
        return replace(nest, kernel=kernel, order=(worker, *nest.order))


class Plan(NamedTuple):
    """How one kernel runs: its function's name, the moves of its schedule, and its nest."""

    name: str
    moves: Schedule
    nest: Nest | SortKernel

    def __str__(self) -> str:
        return "\n".join(map(str, self.moves)) or "(no move)"


def apply(kernel: Kernel, schedule: Iterable[Move]) -> Nest:
    """The loop nest of `kernel` under `schedule`; raises FormatError if a move does not fit."""
    # At first axes come as stores and then reductions list them, each once.
    order = dict.fromkeys(axis for axes in axis_lists(kernel) for axis in axes)
    nest = Nest(kernel, tuple(order), binding={})
    for move in schedule:
        move.require(not nest.product, "tensorize comes last")
        move.require(not nest.fills or isinstance(move, Stage), "stage comes last")
        nest = move.apply(nest)
    return nest


def _substituted(axes: Axes, old: Axes, new: Axes) -> Axes:
    """`axes` with `new` in place of the first of `old`, and without the others: a0, a3, a4, a2 for
    (a0, a1, a2) with (a3, a4) in place of (a1,)."""
    if set(old).isdisjoint(axes):
        return axes
    result: list[Node] = []
    for axis in axes:
        if axis is old[0]:
            result += new
        elif axis not in old:
            result.append(axis)
    return tuple(result)
