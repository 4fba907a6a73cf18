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

from lamina.ir.kernel import points
from lamina.ir.node import Node
from lamina.loops.nest import IN_ONE_THREAD, IN_REGISTERS, Nest
from lamina.targets.names import axis_names


@dataclass(frozen=True, slots=True)
class LoopPart:
    """How one axis runs in one part of the iteration space.

    how      the axis becomes
    loop     a loop of `extent` iterations from `start` on. It ends before the index `stop` if that
             is a text, as where the last block has fewer iterations; `extent` is then the most
    vector   the lanes of vectors: `extent` of them, the first at index `start`
    unroll   copies of the text, one for each of `extent` indices from `start` on
    fixed    no loop: its index is `index`, a number or text

    A text is C: a variable of the launch such as ``row_outer``, or an expression of such variables.

    `condition` is a text that decides whether this part runs; "" if it always does.
    `bytes_in_word`: of an axis of four bytes bound to ``dot``, the first so many are within the
    array, and zeros stand for the others; 0 for any other axis.
    """

    how: Literal["loop", "vector", "unroll", "fixed"]
    extent: int = 1
    start: int | str = 0
    stop: str = ""
    index: int | str = 0
    condition: str = ""
    bytes_in_word: int = 0


NestPart = dict[Node, LoopPart]


class Partitioner:
    """Divides the iteration space of a nest into parts. GPUs change how the axes of a part run."""

    def __init__(self, nest: Nest) -> None:
        self.nest = nest
        rows = nest.kernel.row_axes
        # The axes whose index the launch gives: of a CPU's chunks, a GPU's blocks and threads.
        self.launch_axes = {axis for axis in rows if nest.bound(axis) not in IN_ONE_THREAD}
        self.names = {} if nest.product else axis_names(nest)

    def axis_name(self, axis: Node) -> str:
        """The variable that holds the index of `axis`; of an axis of tiles, ``a`` and its number,
        because their helper functions have variables named as rows and columns."""
        return self.names.get(axis) or f"a{axis.arg.number}"

    def nest_parts(self, axes: Iterable[Node]) -> Iterator[NestPart]:
        """Every combination of the main and tail parts of the axes whose sub-loops are `axes`.

        An axis counts by its outermost sub-loop, and then with all of its sub-loops: inner ones
        among `axes` add nothing, and are left out where the outermost one is not among `axes`.
        Two axes with a tail each have four combinations; no axes have one, which is empty. No two
        of the combinations are equal.
        """
        splits = [self.nest.sub_loops(axis) for axis in axes if self.nest.is_head(axis)]
        parts_of_each_split = [self.partition(split.axes, split.extent) for split in splits]
        for combination in product(*parts_of_each_split):
            nest_part: NestPart = {}
            for part_of_split in combination:
                nest_part |= part_of_split
            yield nest_part

    def partition(self, sub_loops: Sequence[Node], extent: int) -> list[NestPart]:
        """The parts, main and tail, that together run the first `extent` iterations of an axis that
        was split into `sub_loops`, outermost first.

        For 70 iterations and sub-loops a1 (3 blocks) and a2 (32 lanes of vectors): a loop over a1
        of 2 iterations with vectors of 32 lanes, and where a1 is fixed at 2, vectors of 4 lanes and
        of 2, which begin at 0 and 4 of the block.
        """
        if not sub_loops:
            return [{}]
        axis, *inner = sub_loops
        if self.nest.bound(axis) == "dot":  # one instruction runs all of it
            return [{axis: LoopPart("fixed", bytes_in_word=extent)}]
        block = points(inner)
        full_blocks, tail = divmod(extent, block)
        if axis in self.launch_axes:
            return self._partition_launched(axis, inner, full_blocks, tail)
        nest_parts = []
        for loop_part in self._full_blocks(axis, full_blocks):
            nest_parts += self._with_inner(axis, loop_part, inner, block)
        tail_part = self._tail_block(axis, full_blocks)
        return nest_parts + self._with_inner(axis, tail_part, inner, tail)

    def _full_blocks(self, axis: Node, count: int) -> list[LoopPart]:
        """How `axis` runs its first `count` iterations, each of which is a full block."""
        if count == 0:
            return []
        if self._is_in_vectors(axis, count):
            return _vectors(count)
        is_unrolled = self.nest.bound(axis) == "unroll"
        return [LoopPart("unroll" if is_unrolled else "loop", count)]

    def _tail_block(self, axis: Node, number: int) -> LoopPart:
        """How `axis` runs its iteration `number`, the last one, whose block is not full."""
        # Threads share the loop of an axis bound to them: one of them runs its only iteration. Of
        # vectors, the last one may be a scalar at a fixed index already, and values at two fixed
        # indices would share an entry of a scope (`ValuePrinter.key`). A loop has its own scope.
        if self.nest.bound(axis) == "thread" or self._is_in_vectors(axis, number):
            return LoopPart("loop", 1, start=number)
        return LoopPart("fixed", index=number)

    def _is_in_vectors(self, axis: Node, count: int) -> bool:
        """Do `count` iterations of `axis` run as lanes of vectors?

        Those of a reduction do if one vector takes them all. If 22 iterations were vectors of 16,
        4 and 2 lanes, each of these would need accumulators of its own: they are a loop.
        """
        if self.nest.bound(axis) != "vector":
            return False
        return not axis.arg.reduce or count.bit_count() == 1

    def _partition_launched(
        self, axis: Node, inner: Sequence[Node], full_blocks: int, tail: int
    ) -> list[NestPart]:
        """`partition` where the launch gives the index of the outermost sub-loop, `axis`: as many
        full blocks, and `tail` iterations for one block more.

        For 26 iterations in blocks of 8, two parts run under the conditions ``row_outer < 3`` and
        ``row_outer == 3``. If the block is one serial loop, that serves both, without a condition:
        ``for (i64 row_inner = 0; row_inner < (row_outer < 3 ? 8 : 2); row_inner++) {``.
        """
        name, block = self.axis_name(axis), points(inner)
        launched = axis.arg.size  # the launch gives the indices 0 to `launched` - 1
        # The launch may have more blocks than are needed here, where `axis` is inside the tail of
        # another axis of the launch. The last ones then run nothing.
        has_one_more = launched == full_blocks + 1
        if has_one_more and [self.nest.bound(other) for other in inner] == ["serial"]:
            stop = f"({name} < {full_blocks} ? {block} : {tail})"
            return [{
                axis: LoopPart("fixed", index=name),
                inner[0]: LoopPart("loop", block, stop=stop),
            }]  # fmt: skip
        nest_parts: list[NestPart] = []
        if full_blocks:
            is_full = f"{name} < {full_blocks}" if full_blocks < launched else ""
            main = LoopPart("fixed", index=name, condition=is_full)
            nest_parts += self._with_inner(axis, main, inner, block)
        last = LoopPart("fixed", index=name, condition=f"{name} == {full_blocks}")
        return nest_parts + self._with_inner(axis, last, inner, tail)

    def _with_inner(
        self, axis: Node, loop_part: LoopPart, inner: Sequence[Node], extent: int
    ) -> list[NestPart]:
        """The parts in which `axis` runs as `loop_part`, and the sub-loops `inner` run `extent`
        iterations in each block; no parts if that is 0, as for a tail that does not exist."""
        if extent == 0:
            return []
        return [{axis: loop_part} | inner_part for inner_part in self.partition(inner, extent)]

    # Parts that share scratch memory.

    def sharing_fills(self, nest_parts: Iterable[NestPart]) -> list[list[NestPart]]:
        """Groups of `nest_parts` that need the same values in scratch memory: parts that are alike
        in the outermost loop that fills it, in the loops around that, and in the axes of these
        values. Where no loop fills, each part is a group.

        Main and tail tiles of rows share a packed panel of columns, which is filled once for both.
        `split_at_fills` separates the loops that a group has in common.
        """
        groups: dict[frozenset[tuple[Node, LoopPart]], list[NestPart]] = {}
        for nest_part in nest_parts:
            compared = self._axes_of_fills(nest_part)
            if not compared:
                compared = set(nest_part)  # no two parts are alike in all axes
            shared = frozenset((axis, nest_part[axis]) for axis in compared)
            groups.setdefault(shared, []).append(nest_part)
        return list(groups.values())

    def split_at_fills(self, nest_part: NestPart) -> tuple[NestPart, NestPart]:
        """`nest_part` in two: the loops down to the outermost one that fills scratch memory, with
        those over blocks and threads; and the others, which run inside.

        Of a0, of a1 that fills, and of a2: (a0, a1) and (a2). The first is empty if no loop fills.
        """
        outer = self._loops_to_fill(nest_part)
        inner = [axis for axis in nest_part if axis not in outer]
        return {axis: nest_part[axis] for axis in outer}, {axis: nest_part[axis] for axis in inner}

    def _loops_to_fill(self, nest_part: NestPart) -> list[Node]:
        """The loops of `nest_part` down to the outermost one that fills scratch memory, and those
        over blocks and threads wherever they are, as they print no loop; [] if none fills."""
        loops = [
            axis for axis in self.nest.order
            if axis in nest_part and nest_part[axis].how not in IN_REGISTERS
        ]  # fmt: skip
        places_of_fills = {fill.at for fill in self.nest.fills}
        outer: list[Node] = []
        for axis in loops:
            outer.append(axis)
            if axis in places_of_fills:
                inside = loops[len(outer) :]
                return outer + [axis for axis in inside if axis in self.launch_axes]
        return []

    def _axes_of_fills(self, nest_part: NestPart) -> set[Node]:
        """The loops of `_loops_to_fill`, and the axes of `nest_part` that scratch memory filled in
        them has: a panel filled in the loop over a1 has an entry for each step along r3 and each
        column along a2. The empty set if no loop fills."""
        outer = self._loops_to_fill(nest_part)
        axes = set(outer)
        for fill in self.nest.fills:
            if fill.at in outer:
                axes.update(axis for axis in fill.axes if axis in nest_part)
        return axes


def _vectors(count: int) -> list[LoopPart]:
    """`count` iterations as vectors, one for each power of two in `count`: 22 are vectors of 16, 4
    and 2 lanes that start at 0, 16 and 20; of 23, the last one is a scalar."""
    loop_parts = []
    start = 0
    for bit in reversed(range(1, count.bit_length())):
        lanes = 1 << bit
        if count & lanes:
            loop_parts.append(LoopPart("vector", lanes, start=start))
            start += lanes
    if count % 2:
        loop_parts.append(LoopPart("fixed", index=count - 1))
    return loop_parts
