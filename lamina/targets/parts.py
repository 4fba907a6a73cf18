"""The parts of a nest's iteration space, each of which is printed as loops of its own.

An axis that was split into blocks runs full blocks in a *main part*, and the iterations that are
left over in a *tail part*: 70 iterations in blocks of 32 are a main part of 2 blocks of 32, and a
tail of 6. The sizes inside a part are constants, so that vectors and unrolled tiles stay exact.

Two axes with a tail each have four parts: main and main, main and tail, tail and main, tail and
tail. Each `NestPart` says for every one of its axes how that runs, as a `LoopPart`.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Literal

from lamina.core.integers import power_of_two_from
from lamina.ir.kernel import points
from lamina.ir.node import Node
from lamina.loops.nest import IN_ONE_THREAD, Nest
from lamina.targets.names import axis_names


@dataclass(frozen=True, slots=True)
class Condition:
    """That a variable of the launch is below `bound`, ``row_outer < 3``, or equals it,
    ``row_outer == 3``."""

    variable: str
    sign: Literal["<", "=="]
    bound: int

    @property
    def text(self) -> str:
        """The condition in C."""
        return f"{self.variable} {self.sign} {self.bound}"


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop over the indices from `first` on that are below `end`. There are so many `iterations`,
    or fewer where `end` is a text: the last block of a launch may be shorter than the others.

    Texts are C, of variables that are known where the loop begins: ``row_outer``.
    """

    first: int | str
    end: int | str
    iterations: int


@dataclass(frozen=True, slots=True)
class Vector:
    """The lanes of vectors, one for each index from `first` on."""

    first: int
    lanes: int


@dataclass(frozen=True, slots=True)
class Unrolled:
    """Copies of the text, one for each index from `first` on."""

    first: int
    copies: int


@dataclass(frozen=True, slots=True)
class Fixed:
    """One index, a number or a text, and no loop. If there is a `condition`, the part runs only
    where it holds."""

    index: int | str
    condition: Condition | None = None


@dataclass(frozen=True, slots=True)
class Word:
    """Four bytes that one instruction multiplies, of an axis bound to ``dot``: as many of them are
    within the array as `bytes_there`, and zeros stand for the others."""

    bytes_there: int


# How one axis runs in one part of the iteration space.
LoopPart = Loop | Vector | Unrolled | Fixed | Word
InRegisters = Vector | Unrolled
NestPart = dict[Node, LoopPart]


class Partitioner:
    """Divides the iteration space of a nest into parts. GPUs change how the axes of a part run."""

    def __init__(self, nest: Nest) -> None:
        self.nest = nest
        self.launch_axes = launch_axes(nest)
        self.names = axis_names(nest)  # the variable that holds the index of an axis

    def nest_parts(self, axes: Iterable[Node]) -> Iterator[NestPart]:
        """Every combination of the main and tail parts of the axes whose sub-loops are `axes`.

        An axis counts by its outermost sub-loop, and then with all of its sub-loops: inner ones
        among `axes` add nothing, and are left out where the outermost one is not among `axes`.
        Two axes with a tail each have four combinations; of no axes there is one, which is empty.
        No two of the combinations are equal.
        """
        splits = [self.nest.sub_loops(axis) for axis in axes if self.nest.is_head(axis)]
        parts_of_each_split = [self.partition(split.axes, split.extent) for split in splits]
        for combination in product(*parts_of_each_split):
            nest_part: NestPart = {}
            for part_of_split in combination:
                nest_part |= part_of_split
            yield nest_part

    def partition(
        self, sub_loops: Sequence[Node], extent: int, *, is_after_blocks: bool = False
    ) -> list[NestPart]:
        """The parts, main and tail, that together run the first `extent` iterations of an axis that
        was split into `sub_loops`, outermost first.

        is_after_blocks: do full blocks of a sub-loop around these run before, in the same chunk?

        For 70 iterations and sub-loops a1 (3 blocks) and a2 (32 lanes of vectors): a loop over a1
        of 2 iterations with vectors of 32 lanes, and where a1 is fixed at 2, vectors of 4 lanes and
        of 2, which begin at 0 and 4 of the block; or where vectors may overlap
        (`Nest.overlapping_blocks`) one of 8 lanes that begins at -2, in the block before.
        """
        if not sub_loops:
            return [{}]
        axis, *inner = sub_loops
        if self.nest.bound(axis) == "dot":  # one instruction runs all of it
            return [{axis: Word(extent)}]
        block = points(inner)
        full_blocks, tail = divmod(extent, block)
        if axis in self.launch_axes:
            return self._partition_launched(axis, inner, full_blocks, tail)
        nest_parts = []
        for loop_part in self._full_blocks(axis, full_blocks, is_after_blocks):
            nest_parts += self._with_inner(axis, loop_part, inner, block, is_after_blocks)
        tail_part = self._tail_block(axis, full_blocks)
        is_after_blocks = is_after_blocks or full_blocks > 0
        return nest_parts + self._with_inner(axis, tail_part, inner, tail, is_after_blocks)

    def _full_blocks(self, axis: Node, count: int, is_after_blocks: bool) -> list[LoopPart]:
        """How `axis` runs its first `count` iterations, each of which is a full block."""
        if count == 0:
            return []
        if axis in self.nest.overlapping:
            may_begin_before = is_after_blocks and axis in self.nest.overlapping_blocks
            return _overlapping_vectors(count, may_begin_before=may_begin_before)
        if self.nest.bound(axis) == "vector":
            return _vectors(count, is_reduced=axis.arg.reduce)
        if self.nest.bound(axis) == "unroll":
            return [Unrolled(0, count)]
        return [counted_loop(0, count)]

    def _tail_block(self, axis: Node, number: int) -> LoopPart:
        """How `axis` runs its iteration `number`, the last one, whose block is not full.

        A loop of one iteration, rather than a fixed index, has two reasons. Of the threads that
        share the loop of an axis, one is to run the iteration. Of vectors, the last may be a scalar
        at a fixed index already (`_vectors`), and values at two fixed indices would share an entry
        of a scope (`ScopePrinter.key`): a loop has a scope of its own.
        """
        if self.nest.bound(axis) in ("thread", "vector"):
            return counted_loop(number, 1)
        return Fixed(number)

    def _partition_launched(
        self, axis: Node, inner: Sequence[Node], full_blocks: int, tail: int
    ) -> list[NestPart]:
        """`partition` where the launch gives the index of the outermost sub-loop, `axis`: as many
        full blocks, and `tail` iterations for one block more.

        For 26 iterations in blocks of 8, two parts run under the conditions ``row_outer < 3`` and
        ``row_outer == 3``. If the block is one serial loop, that serves both, without a condition:
        ``for (i64 row_inner = 0; row_inner < (row_outer < 3 ? 8 : 2); row_inner++) {``.
        """
        name, block = self.names[axis], points(inner)
        launched = axis.arg.size  # the launch gives the indices 0 to `launched` - 1
        # The launch may have more blocks than are needed here, where `axis` is inside the tail of
        # another axis of the launch. The last ones then run nothing.
        has_one_more = launched == full_blocks + 1
        if has_one_more and [self.nest.bound(other) for other in inner] == ["serial"]:
            end = f"({name} < {full_blocks} ? {block} : {tail})"
            return [{axis: Fixed(name), inner[0]: Loop(0, end, block)}]
        nest_parts: list[NestPart] = []
        if full_blocks:
            has_others = full_blocks < launched
            is_full = Condition(name, "<", full_blocks) if has_others else None
            nest_parts += self._with_inner(axis, Fixed(name, is_full), inner, block)
        last = Fixed(name, Condition(name, "==", full_blocks))
        return nest_parts + self._with_inner(axis, last, inner, tail)

    def _with_inner(
        self, axis: Node, loop_part: LoopPart, inner: Sequence[Node], extent: int,
        is_after_blocks: bool = False,
    ) -> list[NestPart]:  # fmt: skip
        """The parts in which `axis` runs as `loop_part`, and the sub-loops `inner` run `extent`
        iterations in each block; no parts if that is 0, as for a tail that does not exist."""
        if extent == 0:
            return []
        inner_parts = self.partition(inner, extent, is_after_blocks=is_after_blocks)
        return [{axis: loop_part} | inner_part for inner_part in inner_parts]


def launch_axes(nest: Nest) -> set[Node]:
    """The axes whose index the launch gives: of a CPU's chunks, of a GPU's blocks and threads."""
    return {axis for axis in nest.kernel.row_axes if nest.bound(axis) not in IN_ONE_THREAD}


def counted_loop(first: int, iterations: int) -> Loop:
    """A loop of exactly so many iterations: 8 from 2 on end before 10."""
    return Loop(first, first + iterations, iterations)


def _vectors(count: int, *, is_reduced: bool) -> list[LoopPart]:
    """`count` iterations as vectors, one for each power of two in `count`: 22 are vectors of 16, 4
    and 2 lanes that begin at 0, 16 and 20; of 23, the last one is a scalar.

    Reduced, that scalar is the body of a loop, as it is a tail of several reductions, with values
    of its own in each. The lanes of each vector are added up after its loop: softmax of rows of 77
    elements takes 0.55 of the time with a loop over the 13 that are left over (measured)."""
    loop_parts: list[LoopPart] = []
    first = 0
    for bit in reversed(range(1, count.bit_length())):
        lanes = 1 << bit
        if count & lanes:
            loop_parts.append(Vector(first, lanes))
            first += lanes
    if count % 2:
        loop_parts.append(counted_loop(count - 1, 1) if is_reduced else Fixed(count - 1))
    return loop_parts


def _overlapping_vectors(count: int, *, may_begin_before: bool) -> list[LoopPart]:
    """`count` iterations as vectors of which the last may compute again what those before it do:
    13 are two of 8 lanes that begin at 0 and at 5, or one of 16 lanes that begins at -3 if it
    `may_begin_before` its block. One element by itself is a scalar."""
    lanes = power_of_two_from(count)
    if lanes == count or may_begin_before:
        return [_last_vector(count, lanes)]
    widest = lanes // 2
    rest = count - widest
    return [Vector(0, widest), _last_vector(count, power_of_two_from(rest))]


def _last_vector(end: int, lanes: int) -> LoopPart:
    """The vector of so many lanes that ends before index `end`."""
    return Vector(end - lanes, lanes) if lanes > 1 else Fixed(end - 1)
