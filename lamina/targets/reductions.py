"""Printing the reductions, scans and stores of a loop nest, shared by every target.

A reduction opens its loops where its value is first needed; reductions over the same axes that are
ready at that place share them, and so do stores that wait for nothing else. Long sums run in
blocks: see `blocks.py`.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby
from math import prod

from lamina.core.dtypes import bool_
from lamina.ir.kernel import Store, bound_axes, free_axes
from lamina.ir.monoids import Monoid
from lamina.ir.node import Node, const, toposort
from lamina.ir.ops import Op
from lamina.loops.nest import Axes, Nest, operands_of
from lamina.targets import blocks
from lamina.targets.blocks import Cut
from lamina.targets.names import monoid_name
from lamina.targets.parts import LoopPart, NestPart
from lamina.targets.printer import Point, Scope, Value, ValuePrinter, Values

MANY_SUMS = 16  # so many hide the latency of an addition, with one accumulator each


@dataclass
class Accumulation:
    """What a reduction has come to at one point of the open tile.

    It adds to several accumulators, so that one addition need not wait for the one before; they
    are declared in the scope of number `depth`, and joined at the end of the loops.
    """

    reduction: Node
    point: Point
    depth: int
    # Not joined yet, in the order of their declaration.
    accumulators: list[Values] = field(default_factory=list)
    # Those of `accumulators` that one point of the unrolled reduced axes adds to, by its indices;
    # by () if all points add to one.
    of_point: dict[tuple[int, ...], Values] = field(default_factory=dict)
    total: Values = ()  # of what was joined


@dataclass
class BlockedScans:
    """Scans in a loop that runs in blocks: each begins anew in a block, at scope number `depth`."""

    depth: int
    # For each scan the state of the total of the blocks before, and its running sum in this block.
    sums: list[tuple[Values, Value]] = field(default_factory=list)


class NestPrinter(ValuePrinter):
    """Prints one nest; a subclass spells operations."""

    def __init__(self, nest: Nest) -> None:
        super().__init__(nest)
        self.waiting: list[Store] = []  # those not yet printed for the open rows
        self.blocked_scans: BlockedScans | None = None

    # Reductions.

    def loop_reduce(self, node: Node) -> None:
        """Print the loops of `node`, of every reduction that can share them, and of every waiting
        store that can."""
        axes, depth = bound_axes(node), len(self.scopes) - 1
        self._print_reductions(node.src)
        # Components of one reduction, such as the value and the index of an argmax, are one.
        shared = dict.fromkeys(_component(mate, 0) for mate in self._mates(axes, depth))
        stores = [store for store in self.waiting if self._can_ride(store, axes, depth)]
        sums = [
            Accumulation(reduction, point, depth)
            for reduction in shared
            for point in self.points(free_axes(reduction))
        ]
        self._loops(axes, sums, stores)
        for each in sums:
            total = each.total
            if not total:  # there was nothing to add up: the identity
                total = self.start(each.reduction, 1, depth)
            self._keep(each.reduction, each.point, total)

    def _mates(self, axes: Axes, depth: int) -> Iterator[Node]:
        """The reductions over `axes` that belong to scope number `depth`, are missing there, and
        whose operands need no other reduction that is missing."""
        for reduction in self._missing(self.nest.kernel.nodes):
            is_here = bound_axes(reduction) == axes and self.home(reduction) == depth
            if is_here and not self._missing(toposort(reduction.src)):
                yield reduction

    def _can_ride(self, store: Store, axes: Axes, depth: int) -> bool:
        """Can `store` be done in the loops over `axes` of a reduction in scope number `depth`?"""
        rows = self.nest.kernel.row_axes
        # A reduction that does not depend on all rows is computed outside of their loops.
        is_inside_rows = all(self.depth_of[row] <= depth for row in rows)
        has_same_columns = store.axes == (*rows, *axes)
        # Later iterations, and later loops, read what was there before.
        overwrites = store.parameter in self.read
        if overwrites or not (is_inside_rows and has_same_columns):
            return False
        return not self._missing(toposort([store.value]))

    def _loops(self, axes: Axes, sums: Sequence[Accumulation], stores: Sequence[Store]) -> None:
        """Print loops over `axes` that add to `sums` and do `stores`, which wait no longer.

        The main and tail parts whose vectors have as many lanes share accumulators, which are
        joined when those parts are done. The widest vectors come first: of a sum of 24 elements one
        part is a vector of 16 lanes, and the other one of 8.

        Parts share what fills scratch memory only where there are no sums and no scans: loops with
        these may run in blocks, which `_part` opens around the loops that fill.
        """
        self.waiting = [store for store in self.waiting if store not in stores]
        below = toposort(store.value for store in stores)
        scans = [node for node in below if node.op is Op.LOOP_SCAN]
        parts = sorted(self.nest_parts(axes), key=_lanes)
        groups = [[part] for part in parts] if sums or scans else self.sharing_fills(parts)
        for _, alike in groupby(groups, key=lambda group: _lanes(group[0])):
            for group in alike:
                if len(group) == 1:
                    self._part(axes, group[0], sums, stores, scans)
                else:
                    self._sharing_parts(group, partial(self._body, axes, sums, stores))
            self._join([each for each in sums if each.accumulators])
        # `_compute` stores a staged value that depends on reductions point by point, inside of the
        # loops over its columns. Once these have been closed, scratch memory has every point, and
        # later passes read it.
        open_columns = self.depth_of.keys() - set(self.nest.kernel.row_axes)
        for value in self.stored_late:
            if open_columns.isdisjoint(free_axes(value)):
                self.filled |= {value}

    def _part(
        self, axes: Axes, part: NestPart, sums: Sequence[Accumulation], stores: Sequence[Store],
        scans: Sequence[Node],
    ) -> None:  # fmt: skip
        """Print one part of the loops over `axes`, in blocks or not.

        A loop runs in blocks for its sums or for its scans. One that has both has no blocks: in
        those of a sum, a scan would begin anew with each block.
        """
        if not scans and (cut := self._cut_of_sums(part, sums)):
            self._sum_in_blocks(cut, axes, part, sums, stores)
        elif not sums and (cut := self._cut_of_scans(part, scans)):
            self._scan_in_blocks(cut, axes, part, stores)
        else:
            with self.opened(part):
                self._body(axes, sums, stores)

    def _sharing_parts(self, group: Sequence[NestPart], body: Callable[[], None]) -> None:
        """Print `body` in each of the parts of a `group` that shares what fills scratch memory."""
        outer, _ = self.split_at_fills(group[0])
        with self.opened(outer, inside=group[0]):
            filled = self.filled
            for part in group:
                _, inner = self.split_at_fills(part)
                self.scopes.append(Scope("{"))
                with self.opened(inner):
                    body()
                self.close_loop()
                self.filled = filled

    def _body(self, axes: Axes, sums: Sequence[Accumulation], stores: Sequence[Store]) -> None:
        """Print the body of the innermost loop over `axes`. Each of few sums has an accumulator for
        each unrolled point, so that additions do not wait for one another."""
        has_accumulator_each = len(sums) < MANY_SUMS
        for term_point in self.points(axes):
            for each in sums:
                self._add_term(each, term_point, has_accumulator_each)
        self.stores(stores)

    def _add_term(self, each: Accumulation, term_point: Point, has_accumulator_each: bool) -> None:
        """Add what a reduction has at one point of the reduced axes that are unrolled, at
        `term_point`, to the accumulator of this point or, unless each has one, to that of all.

        Vectors along the reduced axes have accumulators for each number of lanes. A part without
        such vectors adds to the total of those before, if there are any.
        """
        reduction, point = each.reduction, each.point | term_point
        key = tuple(term_point.values()) if has_accumulator_each else ()
        operands = self.contribution(reduction, point)
        # The total has one lane: vectors along the reduced axes need accumulators of their own.
        adds_lanes = not self.vectors.keys().isdisjoint(bound_axes(reduction))
        target = () if adds_lanes else each.total
        if not target and key not in each.of_point:
            # A part that is the same in every lane still counts once for each.
            lanes = max(map(self.lanes_of, reduction.src))
            each.of_point[key] = self.start(reduction, lanes, each.depth)
            each.accumulators.append(each.of_point[key])
        self.add(reduction, target or each.of_point[key], operands)

    def contribution(self, reduction: Node, point: Point) -> Values:
        """What `reduction` adds up at `point`."""
        return tuple(self.value_of_root(part, point) for part in operands_of(reduction))

    def add(self, reduction: Node, running: Values, contribution: Values) -> None:
        """Print what adds a `contribution` to the accumulators `running`."""
        self.update(reduction.arg.monoid, running, contribution)

    def _join(self, sums: Iterable[Accumulation]) -> None:
        """Combine the accumulators of each sum to one, and the lanes of vectors along the reduced
        axes: these have been closed, so the result has the lanes of other axes alone."""
        for reduction, group in groupby(sums, key=lambda each: each.reduction):
            monoid, ready = reduction.arg.monoid, list(group)
            totals = [self._tree(monoid, each.accumulators) for each in ready]
            result_lanes = max(map(self.lanes_of, operands_of(reduction)))
            if totals[0][0].lanes > result_lanes:
                totals = self._across(monoid, totals)
            for each, joined in zip(ready, totals, strict=True):
                total = self._tree(monoid, [each.total, joined]) if each.total else joined
                name = monoid_name(monoid)
                each.total = tuple(self.declare(value, name, mutable=True) for value in total)
                each.accumulators, each.of_point = [], {}

    def _across(self, monoid: Monoid, values: list[Values]) -> list[Values]:
        """Combine the lanes of each of `values`, as many values at once as fill a vector.

        Four vectors a, b, c, d of 16 lanes become two, the sums of halves, with lanes in turns:
        a b a b ... and c d c d ... Those become one, a b c d a b c d ..., which is halved until
        four lanes are left: one each for a, b, c and d.
        """
        power = 1 << len(values).bit_length() >> 1  # the largest that is not above their number
        count = min(values[0][0].lanes, power)
        rest, values = values[count:], values[:count]
        while len(values) > 1 or values[0][0].lanes > count:
            values = self._halved(monoid, values, count // len(values))
        (last,) = values
        lanes = [tuple(self.lane(one, number) for one in last) for number in range(count)]
        return lanes + (self._across(monoid, rest) if rest else [])

    def _halved(self, monoid: Monoid, values: list[Values], run: int) -> list[Values]:
        """Each two of `values`, or the only one, as one vector: the combination of its halves, in
        which `run` lanes of each of the two take turns: 1 for a and b, then 2 for ab and cd."""
        halved = []
        for first in range(0, len(values), 2):
            components = [list(pair) for pair in zip(*values[first : first + 2], strict=True)]
            sides = [
                tuple(self.declare(self.half(pair, side, run), "half") for pair in components)
                for side in (0, 1)
            ]
            halved.append(self._tree(monoid, sides))
        return halved

    def _tree(self, monoid: Monoid, values: list[Values]) -> Values:
        """Combine neighbours until one is left: of five, 1 + 2, 3 + 4 and 5, then their sums. The
        longest chain has three operations then, in place of four."""
        name = monoid_name(monoid)
        while len(values) > 1:
            joined = [
                tuple(self.declare(value, name) for value in self.combined(monoid, left, right))
                for left, right in zip(values[::2], values[1::2], strict=False)
            ]
            odd = values[-1:] if len(values) % 2 else []
            values = joined + odd
        return values[0]

    def _print_reductions(self, nodes: Iterable[Node]) -> None:
        """Print the missing reductions beneath `nodes` that the open scopes can hold: asking for
        the value at one point prints a reduction at all points of the tile."""
        for reduction in self._missing(toposort(nodes)):
            self.value(reduction, next(self.points(free_axes(reduction))))

    def _missing(self, nodes: Iterable[Node]) -> list[Node]:
        """The reductions among `nodes` that the open scopes could hold, and do not. Those of all
        points of a tile are there at once, so that the first point tells."""
        bound = {axis for axis, depth in self.depth_of.items() if depth < len(self.scopes)}
        missing = []
        for node in nodes:
            if node.op is Op.LOOP_REDUCE and free_axes(node) <= bound:
                key = self.key(node, next(self.points(free_axes(node))))
                if key not in self.scopes[self.home(node)].cache:
                    missing.append(node)
        return missing

    # Long sums and scans in blocks.

    def _trips(self, part: NestPart, among: Collection[Node]) -> dict[Node, int]:
        """How often each loop of `part` over an axis `among` those runs in one thread, outermost
        first. A loop of 1000 iterations that 256 threads share runs 4 times."""
        trips = {}
        for axis in self.nest.order:
            if axis in part and axis in among and part[axis].how == "loop":
                trips[axis] = -(-part[axis].extent // self.stride(axis))
        return trips

    def _cut_of_sums(self, part: NestPart, sums: Sequence[Accumulation]) -> Cut | None:
        """The loop of `part` that runs in blocks, if sums are long."""
        tile = [loop_part.extent for loop_part in part.values() if loop_part.how == "unroll"]
        # Numbers that one accumulator adds in an iteration: see `_body`.
        has_accumulator_each = len(sums) < MANY_SUMS
        points = 1 if has_accumulator_each else prod(tile)
        reductions = {each.reduction for each in sums if blocks.is_compensated(each.reduction)}
        limits = {blocks.limits_of(reduction, self.nest) for reduction in reductions}
        return blocks.find_cut(limits, self._trips(part, part), points)

    def _cut_of_scans(self, part: NestPart, scans: Sequence[Node]) -> Cut | None:
        """The loop of `part` that runs in blocks, if scans add up much."""
        sums = [node for node in scans if blocks.is_compensated(node)]
        along = {axis for node in sums for axis in bound_axes(node)}
        limits = {blocks.SCANNING} if sums else set[blocks.Limits]()
        return blocks.find_cut(limits, self._trips(part, along), 1)

    def _scan_in_blocks(
        self, cut: Cut, axes: Axes, part: NestPart, stores: Sequence[Store]
    ) -> None:
        """Print the loops of `part`, one of them in blocks. In each block the running sums begin
        at 0; the total of the blocks before is added to them."""
        outside, inside = self._around(cut, part)
        with self.opened(outside), self._block(cut, part[cut.axis]) as within:
            # `scan` finds the block's scope here, and leaves what is to be added up at its end.
            self.blocked_scans = scans = BlockedScans(len(self.scopes) - 1)
            with self.opened(inside | {cut.axis: within}):
                self._body(axes, (), stores)
            for total, running in scans.sums:
                self._add_to(total, running)
            self.blocked_scans = None

    def _sum_in_blocks(
        self, cut: Cut, axes: Axes, part: NestPart, sums: Sequence[Accumulation],
        stores: Sequence[Store],
    ) -> None:  # fmt: skip
        """Print the loops of `part`, one of them in blocks, whose sums are added up with their
        errors; accumulators of other reductions go on from block to block."""
        outside, inside = self._around(cut, part)
        with self.opened(outside), self._block(cut, part[cut.axis]) as within:
            depth = len(self.scopes) - 1
            others = [each for each in sums if not blocks.is_compensated(each.reduction)]
            compensated = [each for each in sums if blocks.is_compensated(each.reduction)]
            of_block = [Accumulation(each.reduction, each.point, depth) for each in compensated]
            with self.opened(inside | {cut.axis: within}):
                self._body(axes, [*of_block, *others], stores)
            totals = []
            for each, block in zip(compensated, of_block, strict=True):
                (value,) = self._tree(each.reduction.arg.monoid, block.accumulators)
                total = self._total(value, each.depth)
                self._add_to(total, value)
                totals.append(total)
        for each, total in zip(compensated, totals, strict=True):
            value = self.declare(self._result(total), "sum", mutable=True)
            each.accumulators.append((value,))

    def _around(self, cut: Cut, part: NestPart) -> tuple[NestPart, NestPart]:
        """The loops of `part` around the one that is cut, and all the rest."""
        before = self.nest.order[: self.nest.order.index(cut.axis)]
        outside = {
            axis: part[axis] for axis in before if axis in part and part[axis].how == "loop"
        }
        inside = {axis: loop_part for axis, loop_part in part.items() if axis not in outside}
        return outside, inside

    def _total(self, like: Value, depth: int) -> Values:
        """Declare the state of a total of blocks, in an open scope."""
        zero = like._replace(text=self.widened(self.literal(const(0.0, like.dtype)), like))
        return tuple(self.declared_at(depth, zero, part.arg.name) for part in blocks.STATE)

    def _add_to(self, total: Values, value: Value) -> None:
        """Print what adds the sum of a block to a total."""
        known = {**dict(zip(blocks.STATE, total, strict=True)), blocks.ADDEND: value}
        for variable, new in zip(total, self.formula(blocks.NEXT_STATE, known), strict=True):
            self.line(f"{variable.text} = {new.text};")

    def _result(self, total: Values) -> Value:
        """A total of blocks as one number."""
        (value,) = self.formula([blocks.RESULT], dict(zip(blocks.STATE, total, strict=True)))
        return value

    @contextmanager
    def _block(self, cut: Cut, loop_part: LoopPart) -> Iterator[LoopPart]:
        """Open a loop over blocks of `loop_part`, and say how that one runs within a block."""
        assert isinstance(loop_part.start, int)
        name, stop = self.block_name(cut.axis), loop_part.start + loop_part.extent
        size = cut.iterations * self.stride(cut.axis)  # in indices
        end = f"{name} + {size}"
        if loop_part.extent % size:
            end = f"({end} < {stop} ? {end} : {stop})"
        self.scopes.append(Scope())
        yield replace(loop_part, start=name, stop=end)
        lines = self.scopes.pop().lines
        start, step = loop_part.start, f"{name} += {size}"
        head = f"for ({self.index} {name} = {start}; {name} < {stop}; {step}) {{"
        self.scopes[-1].lines += [head, *("    " + text for text in lines), "}"]

    def block_name(self, axis: Node) -> str:
        """The variable that holds where a block of the loop over `axis` begins."""
        return f"{self.axis_name(axis)}_block"

    # Scans.

    def scan(self, node: Node, point: Point) -> None:
        """Print the next step of a scan, whose running value is declared outside the loops of its
        axes and updated inside."""
        operands = tuple(self.value(operand, point) for operand in operands_of(node))
        outside = min(self.depth_of[axis] for axis in bound_axes(node)) - 1  # the scope around all
        if self.blocked_scans:  # the loop over blocks opens between those of its axes, or around
            outside = min(outside, self.blocked_scans.depth - 1)
        lanes = max(operand.lanes for operand in operands)
        if self.blocked_scans and blocks.is_compensated(node):
            values = self._running_sum(self.blocked_scans, node, operands, lanes, outside)
        else:
            values = self.start(node, lanes, outside)
            self.update(node.arg.monoid, values, operands)
        self._keep(node, point, tuple(self.declare(value, "scan") for value in values))

    def _running_sum(
        self, scans: BlockedScans, node: Node, operands: Values, lanes: int, outside: int
    ) -> Values:
        """Print the next step of a running sum in a block: the sum so far in the block, added to
        the total of the blocks before, which is declared `outside`."""
        running = self.start(node, lanes, scans.depth)
        total = self._total(running[0], outside)
        scans.sums.append((total, running[0]))
        with self.at_depth(scans.depth):
            before = self._result(total)
        self.update(node.arg.monoid, running, operands)
        return self.combined(node.arg.monoid, (before,), running)

    # What both are made of.

    def _keep(self, node: Node, point: Point, values: Values) -> None:
        """Remember every component of a reduction or scan."""
        for part, value in enumerate(values):
            self.scopes[-1].cache[self.key(_component(node, part), point)] = value

    def start(self, node: Node, lanes: int, depth: int) -> Values:
        """Declare accumulators of `node` that hold the identity, in an open scope."""
        dtypes = tuple(part.dtype for part in operands_of(node))
        started, name = [], monoid_name(node.arg.monoid)
        for identity, dtype in zip(node.arg.monoid.identity(dtypes), dtypes, strict=True):
            mask = 8 if dtype is bool_ and lanes > 1 else 0  # of as many bits as a bool in memory
            vector = Value("", dtype, lanes, mask)
            text = self.widened(self.literal(const(identity, dtype)), vector)
            started.append(self.declared_at(depth, vector._replace(text=text), name))
        return tuple(started)

    def update(self, monoid: Monoid, running: Values, operands: Values) -> None:
        """``running = combine(running, operands)``."""
        self.assign(running, self.combined(monoid, running, operands))

    def assign(self, targets: Values, values: Values) -> None:
        """Print assignments of `values` to variables."""
        for target, value in zip(targets, values, strict=True):
            self.line(f"{self.guard}{target.text} = {self.widened(value, target)};")

    def combined(self, monoid: Monoid, left: Values, right: Values) -> Values:
        """The monoid's combine of two tuples of values."""
        first, second, results = monoid.formula(tuple(value.dtype for value in left))
        if monoid.op is not None:  # one expression, so that the compiler sees a multiply-add
            return (self.operation(results[0], [*left, *right]),)
        known = dict(zip(first + second, left + right, strict=True))
        return self.formula(results, known)

    # Rows.

    def rows(self, group: Sequence[NestPart]) -> None:
        """Print everything that the kernel does for the rows of one part, or of a group of parts
        that share what fills scratch memory."""
        self.filled = frozenset()
        if len(group) > 1:
            self._sharing_parts(group, self._open_rows)
        else:
            with self.opened(group[0]):
                self._open_rows()

    def _open_rows(self) -> None:
        """Print everything that the kernel does for the rows that are open: its stores, those over
        the same axes together, each with the reductions that it needs before it."""
        kernel = self.nest.kernel
        self.stored_late, self.waiting = set(), list(kernel.stores)
        while self.waiting:
            axes = self.waiting[0].axes
            batch = [store for store in self.waiting if store.axes == axes]
            # Where something is overwritten that is read, every reduction comes before.
            overwrites = any(store.parameter in self.read for store in batch)
            self._print_reductions(
                kernel.nodes if overwrites else [store.value for store in batch]
            )
            # Reductions have taken some of them along in their loops: see `loop_reduce`.
            stores = [store for store in batch if store in self.waiting]
            self._loops(axes[kernel.rows :], (), stores)


def _lanes(part: NestPart) -> int:
    """A key that sorts the parts with the widest vectors first: minus their lanes, -1 for none."""
    lanes = [loop_part.extent for loop_part in part.values() if loop_part.how == "vector"]
    return -max(lanes, default=1)


def _component(reduction: Node, part: int) -> Node:
    """The component number `part` of a reduction or scan, of which a node is one: the index of an
    argmax beside the value."""
    return Node(reduction.op, reduction.src, reduction.arg._replace(part=part))
