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

from lamina.errors import FormatError
from lamina.graph import index as ix
from lamina.ir.kernel import (
    BinKernel,
    Collective,
    Kernel,
    Parameter,
    SortKernel,
    Store,
    bound_axes,
    free_axes,
    points,
)
from lamina.ir.monoids import ADD
from lamina.ir.node import Node, const, toposort
from lamina.ir.ops import Load, Op
from lamina.ir.substitute import rebuilt_in_order
from lamina.loops.factors import factored
from lamina.loops.nest import (
    BINDINGS,
    Axes,
    Nest,
    SubLoops,
    axis_lists,
    can_accumulate,
    is_of_constants,
    operands_of,
)
from lamina.loops.reindex import Reindexing, substituted

# Bytes of a thread's stack that one kernel may fill: half of the 8 MiB that Linux gives a thread.
MAX_SCRATCH = 4 << 20
# A field of a move as it is parsed: the number of an axis or value, a count, or a name.
Word = int | str


class Move:
    """One step of a schedule: data, how it reads as text, and what it does to a nest."""

    text: ClassVar[str]  # the format of its fields: "split(a{axis}, {factor:d}) -> ..."
    follows_tensorize: ClassVar[bool] = False  # whether it says how tiles of a product are computed
    kinds: ClassVar[dict[str, type["Move"]]] = {}  # every move, by its name: "split" for `Split`

    def __init_subclass__(cls) -> None:
        """Enter each subclass in `kinds` when it is defined."""
        cls.kinds[cls.__name__.lower()] = cls

    def __str__(self) -> str:
        """The move as `lamina.loops.text.parse` reads it: ``split(a0, 4) -> a1, a2``."""
        return self.text.format(**vars(self))

    @classmethod
    def of_words(cls, words: Sequence[Any]) -> Self:
        """The move with the fields `words`, in order: (0, 4, 1, 2) for the split of a0 by 4 into a1
        and a2. Raises TypeError if there are too few or too many."""
        return cls(*words)

    def apply(self, nest: Nest) -> Nest:
        """`nest` after this move. Raises FormatError if it does not fit."""
        raise NotImplementedError

    def require(self, holds: bool, why: str) -> None:
        """Raise FormatError, naming the move, unless `holds`."""
        if not holds:
            raise FormatError(f"{self}: {why}")

    @staticmethod
    def lanes_last(nest: Nest, axes: Iterable[Node]) -> Axes:
        """`axes` in their order, but lanes of vectors after the others, and those of dot products
        after all."""
        places = {"vector": 1, "dot": 2}
        return tuple(sorted(axes, key=lambda axis: places.get(nest.bound(axis), 0)))

    def reindexed(
        self, nest: Nest, index_of: Mapping[Node, Node], new: Axes, guard: Node = ix.TRUE
    ) -> Nest:
        """`nest` with the axes `new` in place of those in `index_of`; see `Reindexing`. The splits
        stay as they are: the caller says which of them still hold.

        Raises FormatError if a number of `new` is that of another axis, or if an old axis is bound:
        a binding would name an axis that the nest no longer has.
        """
        reindexing = Reindexing(index_of, new, guard)
        kept_numbers = {axis.arg.number for axis in nest.order if axis not in index_of}
        new_numbers = {axis.arg.number for axis in new} - kept_numbers
        self.require(len(new_numbers) == len(new), "the new axes are new")
        is_bound = not nest.binding.keys().isdisjoint(index_of)
        self.require(not is_bound, "the axis is bound; bind its sub-loops")
        kernel = reindexing.kernel(nest.kernel)
        return replace(nest, kernel=kernel, order=reindexing.axes(nest.order))


Schedule = tuple[Move, ...]


@dataclass(frozen=True)
class Split(Move):
    """Axis `axis` becomes ``outer * factor + inner``; an uneven end gets a nest of its own.

    ``split(a0, 4) -> a1, a2``, where a0 has 10 iterations::

        for a0 in 10: f(a0)     ->    for a1 in 2: for a2 in 4: f(4 * a1 + a2)
                                      for a2 in 2: f(8 + a2)

    In the nest, a1 has 3 iterations, for all blocks of 4, and the extent 10 of the sub-loops
    (a1, a2) says that the last block ends after 2.
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
        # The new axes are among the sub-loops that `axis` belongs to, or its own where it leaves
        # an even split. Those of one split have one extent, so that only the outermost of them may
        # end within a block.
        split = nest.sub_loops_to_split(axis, factor)
        others = nest.splits_without(nest.sub_loops(axis))
        fits = split.axes[0] is axis or size % factor == 0
        self.require(fits, f"a sub-loop of {size} is not split evenly")
        blocks = -(-size // factor)  # rounded up
        outer = ix.axis(self.outer, blocks, reduce=axis.arg.reduce)
        inner = ix.axis(self.inner, factor, reduce=axis.arg.reduce)
        new = (outer, inner)
        sub_loops = SubLoops(substituted(split.axes, (axis,), new), split.extent)
        nest = self.reindexed(nest, {axis: ix.row_major(new)}, new)
        return replace(nest, splits=(*others, sub_loops))


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
        fused, of_first, of_second = self._fused(nest)
        # An index that walks the two as one is ``8 * (a2 // 8) + a2 % 8``, which is a2. Where a
        # division or a modulus is left, an index does not.
        divisions = {index for index in (of_first, of_second) if index.op in (Op.IDIV, Op.MOD)}
        walks_as_one = divisions.isdisjoint(fused.kernel.nodes)
        self.require(walks_as_one, "some index does not walk the two as one")
        return fused

    def _fused(self, nest: Nest) -> tuple[Nest, Node, Node]:
        """`nest` with one axis in place of the two, and the index of each of these over it."""
        first, second = nest.axis(self.first), nest.axis(self.second)
        for axes in axis_lists(nest.kernel):
            if first in axes or second in axes:
                are_neighbours = (first, second) in pairwise(axes)
                self.require(are_neighbours, "they are not neighbours")
        for axis in (first, second):
            is_whole = nest.sub_loops(axis).axes == (axis,)
            self.require(is_whole, "an axis is split already")
        into = ix.axis(self.into, points((first, second)), reduce=first.arg.reduce)
        size = max(second.arg.size, 1)  # sums over (3, 0) elements have an axis of size 0
        of_first, of_second = ix.divided(into, size)
        fused = self.reindexed(nest, {first: of_first, second: of_second}, (into,))
        return fused, of_first, of_second


@dataclass(frozen=True)
class Flatten(Fuse):
    """Like Fuse, but an index that loads need not walk the axes as one: a division and a remainder
    then find them.

    ``flatten(a0, a1) -> a2``, where a1 has 8 iterations::

        for a0 in 3: for a1 in 8: w[a0] * v[a1] * x[8 * a0 + a1]
        ->   for a2 in 24: w[a2 // 8] * v[a2 % 8] * x[a2]
    """

    text = "flatten(a{first}, a{second}) -> a{into}"

    def apply(self, nest: Nest) -> Nest:
        axes = {nest.axis(self.first), nest.axis(self.second)}
        self.require(axes.isdisjoint(nest.kernel.block_axes), "one of them numbers row blocks")
        fused, *divisions = self._fused(nest)
        stored = toposort(store.index for store in fused.kernel.stores)
        divided = {index for index in divisions if index.op in (Op.IDIV, Op.MOD)}
        self.require(divided.isdisjoint(stored), "a store does not walk the two as one")
        return fused


@dataclass(frozen=True)
class Rotate(Move):
    """Each iteration of `by` begins the loop over `axis` `steps` later, and goes round its end.

    ``rotate(a1, a0, 2)``, where a1 has 8 iterations::

        for a0 in 4: for a1 in 8: f(a1)   ->   for a0 in 4: for a1 in 8: f((a1 + 2 * a0) % 8)

    Both are row axes, as rows can run in any order. If `axis` is a sub-loop, all sub-loops of its
    split are independent axes from here on: no index walks them as one any longer.
    """

    axis: int
    by: int
    steps: int
    text = "rotate(a{axis}, a{by}, {steps:d})"

    def apply(self, nest: Nest) -> Nest:
        axis, by = nest.axis(self.axis), nest.axis(self.by)
        split = nest.sub_loops(axis)
        are_rows = axis is not by and {axis, by} <= set(nest.kernel.row_axes)
        # An uneven end would come in the middle of a loop that begins later.
        is_even = points(split.axes) == split.extent
        self.require(are_rows and is_even, "these are not two rows, split evenly")
        self.require(self.steps >= 0, f"loops begin {self.steps} steps later")
        later = ix.add(axis, ix.scale(by, self.steps))
        _, rotated = ix.divided(later, axis.arg.size)
        others = nest.splits_without(split)
        # The new axis has the number and the size of the old one, and so is the same node.
        nest = self.reindexed(nest, {axis: rotated}, (axis,))
        return replace(nest, splits=others)


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
class Factor(Move):
    """Multiply what is the same in all steps of the loop over `axis`, and of those inside it, with
    the sum over them: see `lamina/loops/factors.py`.

    ``factor(%5, a2)``, where %5 is a sum of floats over a1 and a2::

        for a1 in 18: for a2 in 32:           for a1 in 18:
            s += d[a1] * f(a1, a2)      ->        t = 0
                                                  for a2 in 32: t += f(a1, a2)
                                                  s += d[a1] * t
    """

    value: int
    axis: int
    text = "factor(%{value:d}, a{axis})"

    def apply(self, nest: Nest) -> Nest:
        kernel, axis = nest.kernel, nest.axis(self.axis)
        self.require(self.value < len(kernel.values), f"there is no value %{self.value}")
        reduction = kernel.values[self.value]
        axes = bound_axes(reduction)
        is_sum = reduction.op is Op.LOOP_REDUCE and reduction.arg.monoid is ADD
        self.require(is_sum and reduction.dtype.is_float, f"%{self.value} is no sum of floats")
        self.require(axis in axes[1:], f"no loop of %{self.value} is around that over a{self.axis}")
        inner = axes[axes.index(axis) :]
        self.require(not nest.splits, "factor comes before split")
        done = rebuilt_in_order(kernel.nodes, {reduction: factored(reduction, inner)}, ix.rebuild)
        stores = tuple(store.rebuilt(done) for store in kernel.stores)
        return replace(nest, kernel=replace(kernel, stores=stores))


@dataclass(frozen=True)
class Keep(Move):
    """Keep a value of constants alone from call to call, laid out as the loops read it: all axes
    that it depends on in the order of their loops, the lanes of vectors last.

    ``keep(%1)``, where %1 is the load of w, a constant, and a2 is a vector::

        for a1 in 4:                                  for a1 in 4:
            for r3 in 64:                       ->        for r3 in 64:
                f(w[64 * (16 * a1 + a2) + r3])                f(p[1024 * a1 + 16 * r3 + a2])

    A kernel of its own fills the array p before the first call of the program, and again when a
    constant has changed (`KeptArrays` of lamina/frontend/constants.py).
    """

    value: int
    text = "keep(%{value:d})"

    def apply(self, nest: Nest) -> Nest:
        kernel = nest.kernel
        self.require(not nest.fills, "stage comes after keep")
        self.require(self.value < len(kernel.values), f"there is no value %{self.value}")
        value = kernel.values[self.value]
        is_constant = is_of_constants(kernel, value)
        self.require(is_constant, f"%{self.value} is not of constants alone, element by element")
        walked = [axis for axis in nest.order if axis in free_axes(value)]
        axes = self.lanes_last(nest, walked)
        number = len(kernel.parameters)
        parameter = Parameter(value.dtype, points(axes), constant=True)
        index = ix.row_major(axes)
        load = Node(Op.LOAD, (index,), Load(number, value.dtype))
        done = rebuilt_in_order(kernel.nodes, {value: load}, ix.rebuild)
        new_kernel = replace(
            kernel,
            parameters=(*kernel.parameters, parameter),
            stores=tuple(store.rebuilt(done) for store in kernel.stores),
        )
        condition = _runs(nest, axes)
        fill = Store(number, index, value, axes, condition)
        return replace(nest, kernel=new_kernel, kept=(*nest.kept, fill))


def _runs(nest: Nest, axes: Axes) -> Node:
    """The condition under which the point `axes` is one that loops run: an axis of 10 that was
    split into 3 and 4, ``a3`` and ``a4``, has two of 12 points that never do, but for
    ``4 * a3 + a4 < 10``."""
    conditions: list[Node] = []
    for split in nest.splits:
        walked = [axis if axis in axes else ix.affine({}, 0) for axis in split.axes]
        sizes = [axis.arg.size for axis in split.axes]
        conditions.append(ix.inside(ix.row_major(walked, tuple(sizes)), split.extent))
    return ix.both(*conditions)


@dataclass(frozen=True)
class Stage(Move):
    """Keep a value in scratch memory of the thread, for all loops inside the row loop `axis`.

    ``stage(%0, a0)``, where %0 is the load of y, read once for each a1 before::

        for a0 in 4:                               for a0 in 4:
            for a1 in 8:                               for a2 in 16: scratch[a2] = y[16 * a0 + a2]
                for a2 in 16:                ->        for a1 in 8:
                    f(a1, y[16 * a0 + a2])                 for a2 in 16: f(a1, scratch[a2])

    A value made from reads alone is filled in the body of the loop over `axis`, as here. A value
    that depends on reductions over a row, as the exponentials of a softmax do on the maximum, is
    stored in the first pass that needs it, for later passes.
    """

    value: int
    axis: int
    text = "stage(%{value:d}, a{axis})"

    def apply(self, nest: Nest) -> Nest:
        loop = nest.axis(self.axis)
        kernel = nest.kernel
        self.require(loop in nest.row_loops, f"a{self.axis} is no loop over rows")
        self.require(self.value < len(kernel.values), f"there is no value %{self.value}")
        value = kernel.values[self.value]
        axes = self._scratch_axes(nest, value, loop)
        is_reduced = any(node.op is Op.LOOP_REDUCE for node in toposort([value]))
        self._require_stageable(nest, value, loop, is_reduced=is_reduced)
        scratch = Parameter(value.dtype, points(axes), memory="scratch")
        parameters = (*kernel.parameters, scratch)
        used = sum(array.nbytes for array in parameters if array.memory == "scratch")
        self.require(used <= MAX_SCRATCH, f"{used} bytes of scratch, and {MAX_SCRATCH} are there")
        fill = Store(
            parameter=len(kernel.parameters),
            index=ix.row_major(axes),
            value=value,
            axes=axes,
            at=None if is_reduced else loop,  # see `Store.at`
        )
        return replace(
            nest, kernel=replace(kernel, parameters=parameters), fills=(*nest.fills, fill)
        )

    def _scratch_axes(self, nest: Nest, value: Node, loop: Node) -> Axes:
        """The axes of the scratch memory, the fastest last: those inside of `loop` that `value`
        depends on, in the order of their loops, but with the lanes of vectors last.

        A vector axis may stand before others in that order, as each of its lanes may be a row that
        walks further loops. So that lanes are neighbours in memory, its place is behind them. After
        it there may only be a dot axis, whose four bytes belong to one lane.
        """
        walked = [axis for axis in nest.inside(loop) if axis in free_axes(value)]
        self.require(bool(walked), f"no loop inside a{self.axis} walks it")
        return self.lanes_last(nest, walked)

    def _require_stageable(self, nest: Nest, value: Node, loop: Node, *, is_reduced: bool) -> None:
        """Raise FormatError unless `value` can be staged in the body of the row loop `loop`.
        `is_reduced` says that it depends on reductions."""
        beneath = toposort([value])
        is_scanned = any(node.op is Op.LOOP_SCAN for node in beneath)
        is_staged = any(fill.value in beneath for fill in nest.fills)
        self.require(not (is_staged or is_scanned), "it is in scratch already, or of a scan")
        # The loops of a reduction give all unrolled points at once; one of them would be stored.
        self.require(value.op is not Op.LOOP_REDUCE, "it is a reduction, which is computed once")
        fits = not is_reduced or loop is nest.row_loops[-1]
        self.require(fits, f"a{self.axis} is not the last loop over rows, as reductions need")
        # A reduction that depends on no axis from `loop` on runs before that loop, and so before
        # the value is in scratch memory.
        inside = (loop, *nest.inside(loop))
        for node in nest.kernel.nodes:
            runs_before = bound_axes(node) and free_axes(node).isdisjoint(inside)
            if runs_before:
                needs_value = value in toposort(operands_of(node))
                self.require(not needs_value, f"what reduces it is computed outside a{self.axis}")


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
        outside = nest.order[: nest.order.index(loop)]  # the loops around that over `axis`
        outer_rows = tuple(row for row in nest.kernel.row_axes if row in outside)
        inner_rows = tuple(row for row in nest.kernel.row_axes if row not in outside)
        initial = self._initial_store(nest.kernel, (*outer_rows, *inner_rows))
        partial_sums = self._store_of_partial_sums(
            nest.kernel, loop, (*outer_rows, loop, *inner_rows)
        )
        # Both stores begin with the outer rows. The inner ones are columns from here on: `loop`
        # runs around them in one store, and not in the other.
        kernel = replace(nest.kernel, stores=(initial, partial_sums), rows=len(outer_rows))
        return replace(nest, kernel=kernel, splits=self._splits_kept(nest, axis, outside))

    def _initial_store(self, kernel: Kernel, axes: Axes) -> Store:
        """The store that sets every element to the identity of the monoid, as 0 for a sum:
        ``y[a0] = 0`` above, with the `axes` (a0,)."""
        (store,) = kernel.stores
        dtype = store.value.dtype
        (identity,) = store.value.arg.monoid.identity((dtype,))
        return replace(store, value=const(identity, dtype), axes=axes)

    def _store_of_partial_sums(self, kernel: Kernel, loop: Node, axes: Axes) -> Store:
        """The store that adds each partial sum, over all reduced axes but `loop`: ``y[a0] += s``
        above, with the `axes` (a2, a0)."""
        (store,) = kernel.stores
        reduction = store.value
        # An operand may be `loop` itself, as i in the sum of i over i and j: only the axes that are
        # summed over lose it.
        axes_inside = tuple(axis for axis in bound_axes(reduction) if axis is not loop)
        partial_sum = Node(Op.LOOP_REDUCE, (*operands_of(reduction), *axes_inside), reduction.arg)
        return replace(store, value=partial_sum, axes=axes, monoid=reduction.arg.monoid)

    def _splits_kept(self, nest: Nest, axis: Node, outside: Axes) -> tuple[SubLoops, ...]:
        """The splits with an uneven end, whose last points are still left out. The sub-loops of an
        even split are loops like all others from here on, with no split.

        Raises FormatError if the loop over `axis` is one of the sub-loops of an uneven split, or
        goes between them, inside of the loops `outside`: the uneven end is a nest of its own, of
        these sub-loops (see `Split`).
        """
        uneven = tuple(split for split in nest.splits if split.extent != points(split.axes))
        for split in uneven:
            are_outside = [sub_loop in outside for sub_loop in split.axes]
            is_between = any(are_outside) and not all(are_outside)
            why = "it goes between the sub-loops of an uneven split, or is one of them"
            self.require(not is_between and axis not in split.axes, why)
        return uneven


class Plan(NamedTuple):
    """How one kernel runs: its function's name, the moves of its schedule, and its nest."""

    name: str
    moves: Schedule
    nest: Nest | SortKernel | BinKernel | Collective

    def __str__(self) -> str:
        return "\n".join(map(str, self.moves)) or "(no move)"


def apply(kernel: Kernel, schedule: Iterable[Move]) -> Nest:
    """The loop nest of `kernel` under `schedule`. Raises FormatError if a move does not fit.

    What `Keep` and `Stage` fill is laid out along the loops of that time, so that no other move may
    follow.
    Nor may any after `Tensorize`, which sets `Nest.atom`, but for those that say how its tiles
    are computed.
    """
    # At first axes come as stores and then reductions list them, each once.
    order = dict.fromkeys(axis for axes in axis_lists(kernel) for axis in axes)
    nest = Nest(kernel, tuple(order), binding={})
    for move in schedule:
        is_tiled = bool(nest.atom)
        move.require(not is_tiled or move.follows_tensorize, "it comes before tensorize")
        move.require(is_tiled or not move.follows_tensorize, "it comes after tensorize")
        is_laid_out = bool(nest.fills or nest.kept)
        fits = not is_laid_out or isinstance(move, (Keep, Stage))
        move.require(fits, "keep and stage come last")
        nest = move.apply(nest)
    return nest
