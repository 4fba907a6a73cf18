"""Printing the reductions, scans and stores of a loop nest, shared by every target.

A reduction opens its loops where its value is first needed. Reductions over the same axes that are
ready at that place share these loops, and so do stores that wait for nothing else. The passes of a
softmax over a row are three loops, as each needs the result of the one before: the maximum, the sum
of exponentials, and the store of quotients. The sum and the maximum of a row share one loop.

Long sums run in blocks: see `blocks.py` and `block_sums.py`.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby
from math import prod
from typing import ClassVar

from lamina.ir.build import component
from lamina.ir.kernel import Store, bound_axes, free_axes
from lamina.ir.monoids import Monoid
from lamina.ir.node import Node, toposort
from lamina.ir.ops import Op
from lamina.loops.nest import MANY_SUMS, Axes, computes_same, monoid_in_order, operands_of
from lamina.targets import blocks
from lamina.targets.block_sums import Total, opened_in_blocks, trips
from lamina.targets.blocks import Cut
from lamina.targets.combiner import Combiner
from lamina.targets.fills import FillPrinter
from lamina.targets.language import Language, Point, Values
from lamina.targets.names import monoid_name
from lamina.targets.parts import Loop, NestPart, Partitioner, Unrolled, Vector
from lamina.targets.scans import Scans


@dataclass
class Accumulation:
    """What a reduction comes to at one point of the tile.

    Each part of its loops adds to accumulators, variables in the scope of number `depth`. The
    accumulators of parts with as many lanes are joined to the `total`; then there are none. The sum
    of a row of 40 numbers runs 32 as four unrolled vectors of 8 lanes, and 8 as one vector:

        f32x8 sum_2 = splat_f32x8(0.0f);     `accumulators`: sum_2, sum_4, sum_6, sum_8
        ...                                  `of_point`: {(0,): sum_2, ..., (3,): sum_8}
        sum_2 = (sum_2 + load_1);            the other three likewise
        ...
        sum_2 = (sum_2 + load_9);            of the tail, whose only point is (0,)
        ...
        f32 sum_22 = sum_21;                 `total`
    """

    reduction: Node
    point: Point
    depth: int
    accumulators: list[Values] = field(default_factory=list)  # in the order of their declaration
    # Those of `accumulators` that one point of the unrolled reduced axes adds to, by its indices,
    # or by a number that several points share; by () if all points add to one.
    of_point: dict[tuple[int, ...], Values] = field(default_factory=dict)
    total: Values = ()


@dataclass(frozen=True)
class Work:
    """The work of loops over `axes`: in each iteration they add a term to each of `sums`, and then
    do `stores`.

    begins: is it the work of the first part of the loops, which starts new accumulators?
    repeats: does a loop repeat it, so that each accumulator takes in a term an iteration?
    """

    axes: Axes
    sums: Sequence[Accumulation] = ()
    stores: Sequence[Store] = ()
    begins: bool = False
    repeats: bool = True

    @property
    def scans(self) -> list[Node]:
        """The scans whose steps the stores need."""
        values = toposort(store.value for store in self.stores)
        return [node for node in values if node.op is Op.LOOP_SCAN]


class NestPrinter(FillPrinter):
    """Prints one nest; a subclass prints loads and stores."""

    many_sums = MANY_SUMS
    # Accumulators of a sum whose terms no loop repeats; None for one for each unrolled point.
    max_accumulators: ClassVar[int | None] = None

    def __init__(self, partitioner: Partitioner, language: Language) -> None:
        super().__init__(partitioner, language)
        self.waiting: list[Store] = []  # those not yet printed for the open rows
        self.combiner = Combiner(self)
        self.scans = Scans(self, self.combiner)

    # Rows.

    def print_rows(self, group: Sequence[NestPart]) -> None:
        """Print everything that the kernel does for the rows of one part, or of a group of parts
        that share loops."""
        self.filled = frozenset()
        self.print_sharing(group, self._open_rows)

    def _open_rows(self) -> None:
        """Print everything that the kernel does for the rows that are open: its stores, those over
        the same axes together, each with the reductions that it needs before it."""
        kernel = self.nest.kernel
        self.stored_late = set()
        self.waiting = list(kernel.stores)
        while self.waiting:
            axes = self.waiting[0].axes
            batch = [store for store in self.waiting if store.axes == axes]
            # Before a store overwrites an array that the kernel reads, every reduction is done.
            overwrites = any(store.parameter in self.read_parameters for store in batch)
            needed = kernel.nodes if overwrites else [store.value for store in batch]
            self._print_reductions(needed)
            self._print_reductions(self._computing_same(batch, axes[kernel.rows :]))
            # Loops of reductions may have done some of the stores: see `print_reduction`.
            stores = [store for store in batch if store in self.waiting]
            self.print_loops(Work(axes[kernel.rows :], (), stores))

    def _computing_same(self, stores: Sequence[Store], columns: Axes) -> list[Node]:
        """The reductions over `columns` that are ready and compute values that `stores` need. The
        stores go into the loops of these, as they would compute the values again in later loops."""
        ready = self._sharing_loops(columns, len(self.scopes) - 1)
        return [reduction for reduction in ready if computes_same(reduction, stores)]

    # Reductions.

    def print_reduction(self, node: Node) -> None:
        """Print the loops of `node`, of every reduction that can share them, and of every waiting
        store that can."""
        axes = bound_axes(node)
        depth = len(self.scopes) - 1
        self._print_reductions(node.src)
        # Components of one reduction, such as the value and the index of an argmax, are one.
        shared = dict.fromkeys(component(mate, 0) for mate in self._sharing_loops(axes, depth))
        stores = [store for store in self.waiting if self._can_share_loops(store, axes, depth)]
        sums = [
            Accumulation(reduction, point, depth)
            for reduction in shared
            for point in self.points(free_axes(reduction))
        ]
        self.print_loops(Work(axes, sums, stores))
        for each in sums:
            total = each.total
            if not total:  # there was nothing to add up: the identity
                total = self.combiner.start(each.reduction, 1, depth)
            self.remember(each.reduction, each.point, total)

    def _sharing_loops(self, axes: Axes, depth: int) -> Iterator[Node]:
        """The reductions over `axes` that belong to scope number `depth`, are missing there, and
        whose operands need no other reduction that is missing."""
        for reduction in self._missing(self.nest.kernel.nodes):
            is_here = bound_axes(reduction) == axes and self.home(reduction) == depth
            if is_here and not self._missing(toposort(reduction.src)):
                yield reduction

    def _can_share_loops(self, store: Store, axes: Axes, depth: int) -> bool:
        """Can `store` be done in the loops over `axes` of a reduction in scope number `depth`?"""
        rows = self.nest.kernel.row_axes
        # A reduction that does not depend on all rows is computed outside of their loops.
        is_inside_rows = all(self.depth_of[row] <= depth for row in rows)
        has_same_columns = store.axes == (*rows, *axes)
        # Later iterations, and later loops, read what was there before.
        overwrites = store.parameter in self.read_parameters
        if overwrites or not (is_inside_rows and has_same_columns):
            return False
        return not self._missing(toposort([store.value]))

    def _print_reductions(self, nodes: Iterable[Node]) -> None:
        """Print the missing reductions beneath `nodes` that the open scopes can hold: asking for
        the value at one point prints a reduction at all points of the tile."""
        for reduction in self._missing(toposort(nodes)):
            first_point = next(self.points(free_axes(reduction)))
            self.value(reduction, first_point)

    def _missing(self, nodes: Iterable[Node]) -> list[Node]:
        """The reductions among `nodes` that the open scopes could hold, and do not. Those of all
        points of a tile are there at once, so that the first point tells."""
        bound = {axis for axis, depth in self.depth_of.items() if depth < len(self.scopes)}
        missing = []
        for node in nodes:
            if node.op is Op.LOOP_REDUCE and free_axes(node) <= bound:
                first_point = next(self.points(free_axes(node)))
                if self.key(node, first_point) not in self.scopes[self.home(node)].cache:
                    missing.append(node)
        return missing

    # Loops of reductions and stores.

    def print_loops(self, work: Work) -> None:
        """Print the loops of `work`, whose stores wait no longer.

        The main and tail parts whose vectors have as many lanes share accumulators, which are
        joined when those parts are done. The widest vectors come first: of a sum of 24 elements,
        split by 16, the main part is a vector of 16 lanes and the tail one of 8.

        Parts share what fills scratch memory only where there are no sums and no scans: loops with
        these may run in blocks, which `print_part` opens around the loops that fill.
        """
        self.waiting = [store for store in self.waiting if store not in work.stores]
        parts = sorted(self.partitioner.nest_parts(work.axes), key=_lanes, reverse=True)
        if work.sums or work.scans:
            groups = [[part] for part in parts]
        else:
            groups = self.sharing_loops(parts)
        for _, alike in groupby(groups, key=lambda group: _lanes(group[0])):
            for group in alike:
                if len(group) == 1:
                    self.print_part(group[0], replace(work, begins=group[0] is parts[0]))
                else:
                    self.print_sharing(group, partial(self._print_body, work))
            self.join_accumulators([each for each in work.sums if each.accumulators])
        # `_compute` stores a staged value that depends on reductions point by point, inside of the
        # loops over its columns. Once these have been closed, scratch memory has every point, and
        # later passes read it.
        open_columns = self.depth_of.keys() - set(self.nest.kernel.row_axes)
        for value in self.stored_late:
            if open_columns.isdisjoint(free_axes(value)):
                self.filled |= {value}

    def print_part(self, part: NestPart, work: Work) -> None:
        """Print one part of the loops of `work`, in blocks or not.

        A loop runs in blocks for its sums or for its scans. One that has both has no blocks: in
        blocks of a sum, a scan would begin anew with each block.
        """
        cut_of_sums = None if work.scans else self._cut_of_sums(part, work.sums)
        cut_of_scans = None if work.sums else self.cut_of_scans(part, work.scans)
        if cut_of_sums:
            self._sum_in_blocks(cut_of_sums, part, work)
        elif cut_of_scans:
            with self.scans.opened_in_blocks(cut_of_scans, part):
                self._print_body(work)
        else:
            loops = [loop_part for loop_part in part.values() if isinstance(loop_part, Loop)]
            repeats = any(loop.iterations > 1 for loop in loops)
            with self.opened(part):
                self._print_body(replace(work, repeats=repeats))

    def _print_body(self, work: Work) -> None:
        """Print the body of the innermost loop of `work`: at each unrolled point the term of every
        sum, and then the stores. If there are fewer than `many_sums` sums, each has an accumulator
        for each unrolled point, so that additions do not wait for one another; without a loop,
        `max_accumulators` at most, in turns."""
        has_several = len(work.sums) < self.many_sums
        self.begin_step(work)
        for number, term_point in enumerate(self.points(work.axes)):
            key: tuple[int, ...] = ()
            if has_several and not work.repeats and self.max_accumulators is not None:
                key = (number % self.max_accumulators,)
            elif has_several:
                key = tuple(term_point.values())
            for each in work.sums:
                in_order = monoid_in_order(self.nest, each.reduction) if work.begins else None
                self._add_term(each, term_point, key, in_order)
        self.print_stores(work.stores)

    def begin_step(self, work: Work) -> None:
        """Print what a target needs at the beginning of the body of the innermost loop of `work`:
        nothing for most."""

    def _add_term(
        self,
        each: Accumulation,
        term_point: Point,
        key: tuple[int, ...],
        in_order: Monoid | None,
    ) -> None:
        """Add the term of a reduction at one point of the unrolled reduced axes, `term_point`, to
        the accumulator that has `key` in `Accumulation.of_point`.

        Vectors along the reduced axes have accumulators for each number of lanes. A part without
        such vectors adds to the total of those before, if there are any. in_order: see
        `monoid_in_order`
        """
        reduction = each.reduction
        operands = self.term(reduction, each.point | term_point)
        # The total has one lane: vectors along the reduced axes need accumulators of their own.
        adds_lanes = not self.vectors.keys().isdisjoint(bound_axes(reduction))
        if each.total and not adds_lanes:
            running = each.total
        else:
            if key not in each.of_point:
                # A part that is the same in every lane still counts once for each.
                lanes = max(map(self.lanes_of, reduction.src))
                each.of_point[key] = self.combiner.start(reduction, lanes, each.depth, in_order)
                each.accumulators.append(each.of_point[key])
            running = each.of_point[key]
        if in_order is not None:
            self.combiner.update(in_order, running, operands)
        else:
            self.print_addition(reduction, running, operands)

    def term(self, reduction: Node, point: Point) -> Values:
        """What `reduction` adds up at `point`."""
        return tuple(self.value_of_root(operand, point) for operand in operands_of(reduction))

    def print_addition(self, reduction: Node, running: Values, term: Values) -> None:
        """Print what adds a `term` to the accumulators `running`."""
        self.combiner.update(reduction.arg.monoid, running, term)

    def join_accumulators(self, sums: Iterable[Accumulation]) -> None:
        """Combine the accumulators of each sum to one, and the lanes of vectors along the reduced
        axes: these have been closed, so the result has the lanes of other axes alone."""
        for reduction, group in groupby(sums, key=lambda each: each.reduction):
            monoid, ready = reduction.arg.monoid, list(group)
            totals = [self.combiner.joined(monoid, each.accumulators) for each in ready]
            result_lanes = max(map(self.lanes_of, operands_of(reduction)))
            if totals[0][0].lanes > result_lanes:
                totals = self.combiner.joined_lanes(monoid, totals)
            for each, joined in zip(ready, totals, strict=True):
                total = self.combiner.joined(monoid, [each.total, joined]) if each.total else joined
                name = monoid_name(monoid)
                each.total = tuple(self.declare(value, name, mutable=True) for value in total)
                each.accumulators, each.of_point = [], {}

    # Long sums and scans in blocks.

    def _cut_of_sums(self, part: NestPart, sums: Sequence[Accumulation]) -> Cut | None:
        """The loop of `part` that runs in blocks, where a float32 sum is long: see `blocks.py`."""
        unrolled = [loop_part for loop_part in part.values() if isinstance(loop_part, Unrolled)]
        # Each accumulator adds one number in an iteration, if each unrolled point has one of its
        # own, or else the numbers of all points: see `_print_body`.
        has_accumulator_each_point = len(sums) < self.many_sums
        additions = 1 if has_accumulator_each_point else prod(each.copies for each in unrolled)
        reductions = {each.reduction for each in sums if blocks.is_compensated(each.reduction)}
        limits = {blocks.limits_of(reduction, self.nest) for reduction in reductions}
        return blocks.find_cut(limits, trips(self, part, part), additions)

    def cut_of_scans(self, part: NestPart, scans: Sequence[Node]) -> Cut | None:
        """The loop of `part` that runs in blocks, where a running sum is long."""
        return self.scans.cut(part, scans)

    def _sum_in_blocks(self, cut: Cut, part: NestPart, work: Work) -> None:
        """Print one part of the loops of `work`, one loop of it in blocks. Sums begin anew in each
        block, and the sum of a block is added to a total that is kept with its rounding error: the
        example of `block_sums.py`. Accumulators of other reductions go on from block to block."""
        compensated = [each for each in work.sums if blocks.is_compensated(each.reduction)]
        others = [each for each in work.sums if not blocks.is_compensated(each.reduction)]
        totals: list[Total] = []
        with opened_in_blocks(self, cut, part) as inside:
            depth = len(self.scopes) - 1
            of_block = [Accumulation(each.reduction, each.point, depth) for each in compensated]
            with self.opened(inside):
                self._print_body(Work(work.axes, [*of_block, *others], work.stores))
            for each, block in zip(compensated, of_block, strict=True):
                monoid = each.reduction.arg.monoid  # ADD, which has one component
                (value,) = self.combiner.joined(monoid, block.accumulators)
                total = Total(self.combiner, value, each.depth)
                total.add(value)
                totals.append(total)
        for each, total in zip(compensated, totals, strict=True):
            value = self.declare(total.value(), "sum", mutable=True)
            each.accumulators.append((value,))

    def print_scan(self, node: Node, point: Point) -> None:
        """Print the next step of a scan."""
        self.scans.print_step(node, point)


def _lanes(part: NestPart) -> int:
    """The lanes of the widest vector of `part`; 1 if it has none."""
    lanes = [loop_part.lanes for loop_part in part.values() if isinstance(loop_part, Vector)]
    return max(lanes, default=1)
