"""Printing the reductions, running values and stores of a loop nest, shared by every target.

A reduction opens its loops where its value is first needed; reductions over the same axes that are
ready at that place share them. Long sums run in blocks: see `blocks.py`.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
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
from lamina.targets.printer import Point, Run, Scope, Segment, Value, ValuePrinter, Values

MANY_SUMS = 16  # that hide the latency of an addition without more accumulators


@dataclass
class Accumulation:
    """The running value of a reduction at one point of the open tile: until they are joined, one
    for each point of the reduction's own tile, declared in the scope of number `depth`."""

    reduction: Node
    point: Point
    depth: int
    running: dict[tuple[int, ...], Values] = field(default_factory=dict)
    total: Values = ()


class NestPrinter(ValuePrinter):
    """Prints one nest in what a subclass spells."""

    def __init__(self, nest: Nest) -> None:
        super().__init__(nest)
        self.waiting: list[Store] = []  # those not yet printed for the open rows
        self.scan_block = 0  # the number of the scope in which running sums begin, if in blocks
        self.scans: list[tuple[Values, Value]] = []  # those: totals, and what a block adds to them

    # Reductions.

    def loop_reduce(self, node: Node) -> None:
        """Print the loops of `node` and of every reduction that can share them: those over its
        axes that are missing here, and whose own operands are there."""
        axes, depth = bound_axes(node), len(self.scopes) - 1
        self._folds_of(node.src)
        mates = (
            one for one in self._missing(self.nest.kernel.nodes)
            if bound_axes(one) == axes and self.home(one) == depth
            and not self._missing(toposort(one.src))
        )  # fmt: skip
        whole = dict.fromkeys(_component(mate, 0) for mate in mates)
        rows = self.nest.kernel.row_axes
        riders = [
            store for store in self.waiting if all(self.depth_of[row] <= depth for row in rows)
            and store.axes == (*rows, *axes) and store.parameter not in self.read
            and not self._missing(toposort([store.value]))
        ]  # fmt: skip
        sums = [Accumulation(one, at, depth)
                for one in whole for at in self.points(free_axes(one))]  # fmt: skip
        self._pass(axes, sums, riders)
        for one in sums:  # the identity where the reduction was empty
            self._keep(one.reduction, one.point, one.total or self.start(one.reduction, 1, depth))

    def _pass(self, axes: Axes, sums: Sequence[Accumulation], stores: Sequence[Store]) -> None:
        """Print loops over `axes` that add to `sums` and do `stores`, which wait no longer."""
        self.waiting = [one for one in self.waiting if one not in stores]
        stored = toposort(store.value for store in stores)
        scans = [node for node in stored if node.op is Op.LOOP_SCAN]
        for _, segments in groupby(sorted(self.segments_of(axes), key=_lanes), key=_lanes):
            for segment in segments:
                if not scans and (cut := self._cut_of(segment, sums)):
                    self._sum_in_blocks(cut, axes, segment, sums, stores)
                elif not sums and (cut := self._scan_cut_of(segment, scans)):
                    self._scan_in_blocks(cut, axes, segment, stores)
                else:
                    with self.opened(segment):
                        self._body(axes, sums, stores)
            self._join([one for one in sums if one.running])
        # What was stored in all of the loops over its axes is in scratch memory.
        inside = self.depth_of.keys() - set(self.nest.kernel.row_axes)
        self.filled |= {one for one in self.stored if inside.isdisjoint(free_axes(one))}

    def _body(self, axes: Axes, sums: Sequence[Accumulation], stores: Sequence[Store]) -> None:
        """Print what the innermost loop over `axes` does."""
        for inner in self.points(axes):
            for one in sums:
                self._step(one, inner, len(sums) < MANY_SUMS)
        self.stores(stores)

    def _turns(self, segment: Segment, among: Collection[Node]) -> dict[Node, int]:
        """How often each loop of `segment` over an axis `among` those runs, outermost first."""
        turns = {}
        for axis in self.nest.order:
            if axis in segment and axis in among and segment[axis].how == "loop":
                extent = segment[axis].extent
                assert isinstance(extent, int)
                turns[axis] = -(-extent // self.stride(axis))
        return turns

    def _cut_of(self, segment: Segment, sums: Sequence[Accumulation]) -> Cut | None:
        """The loop of `segment` that runs in blocks, if sums are long."""
        tile = [int(run.extent) for run in segment.values() if run.how == "unroll"]
        each = 1 if len(sums) < MANY_SUMS else prod(tile)
        reductions = {one.reduction for one in sums if blocks.is_compensated(one.reduction)}
        limits = {blocks.limits_of(reduction, self.nest) for reduction in reductions}
        return blocks.cut_of(limits, self._turns(segment, segment), each)

    def _scan_cut_of(self, segment: Segment, scans: Sequence[Node]) -> Cut | None:
        """The loop of `segment` that runs in blocks, if running sums are long."""
        sums = [node for node in scans if blocks.is_compensated(node)]
        along = {axis for node in sums for axis in bound_axes(node)}
        limits = {blocks.SCANNING} if sums else set[blocks.Limits]()
        return blocks.cut_of(limits, self._turns(segment, along), 1)

    def _scan_in_blocks(
        self, cut: Cut, axes: Axes, segment: Segment, stores: Sequence[Store]
    ) -> None:
        """Print the loops of `segment`, one of them in blocks, in each of which running sums begin
        at 0 and are added to the total of the blocks before."""
        outside, inside = self._around(cut, segment)
        with self.opened(outside), self._block(cut, segment[cut.axis]) as run:
            self.scan_block, self.scans = len(self.scopes) - 1, []
            with self.opened(inside | {cut.axis: run}):
                self._body(axes, (), stores)
            for total, value in self.scans:
                self._add_to(total, value)
            self.scan_block = 0

    def _sum_in_blocks(
        self, cut: Cut, axes: Axes, segment: Segment, sums: Sequence[Accumulation],
        stores: Sequence[Store],
    ) -> None:  # fmt: skip
        """Print the loops of `segment`, one of them in blocks, whose sums are added up with their
        errors; accumulators of other reductions go on from block to block."""
        outside, inside = self._around(cut, segment)
        with self.opened(outside), self._block(cut, segment[cut.axis]) as run:
            depth = len(self.scopes) - 1
            others = [each for each in sums if not blocks.is_compensated(each.reduction)]
            whole = [each for each in sums if blocks.is_compensated(each.reduction)]
            parts = [Accumulation(each.reduction, each.point, depth) for each in whole]
            with self.opened(inside | {cut.axis: run}):
                self._body(axes, [*parts, *others], stores)
            totals = []
            for each, part in zip(whole, parts, strict=True):
                (value,) = self._tree(each.reduction.arg.monoid, [*part.running.values()])
                total = self._total(value, each.depth)
                self._add_to(total, value)
                totals.append(total)
        for each, total in zip(whole, totals, strict=True):
            value = self.declare(self._result(total), mutable=True)
            each.running[(-1, len(each.running))] = (value,)  # no point of the reduction's tile

    def _around(self, cut: Cut, segment: Segment) -> tuple[Segment, Segment]:
        """The loops of `segment` around the one that is cut, and all the rest."""
        before = self.nest.order[: self.nest.order.index(cut.axis)]
        outside = {axis: segment[axis] for axis in before
                   if axis in segment and segment[axis].how == "loop"}  # fmt: skip
        return outside, {axis: run for axis, run in segment.items() if axis not in outside}

    def _total(self, like: Value, depth: int) -> Values:
        """Declare the state of a total of blocks, in an open scope."""
        zero = like._replace(text=self.widened(self.literal(const(0.0, like.dtype)), like))
        return tuple(self.declared_at(depth, zero) for _ in blocks.STATE)

    def _add_to(self, total: Values, value: Value) -> None:
        """Print what adds the sum of a block to a total."""
        known = {**dict(zip(blocks.STATE, total, strict=True)), blocks.ADDEND: value}
        for variable, new in zip(total, self.formula(blocks.ADDED, known), strict=True):
            self.line(f"{variable.text} = {new.text};")

    def _result(self, total: Values) -> Value:
        """A total of blocks as one number."""
        (value,) = self.formula([blocks.RESULT], dict(zip(blocks.STATE, total, strict=True)))
        return value

    @contextmanager
    def _block(self, cut: Cut, run: Run) -> Iterator[Run]:
        """Open a loop over blocks of another loop, and say how that one runs within a block."""
        assert isinstance(run.extent, int)
        assert isinstance(run.start, int)
        name, stop = f"b{cut.axis.arg.number}", run.start + run.extent
        size = cut.iterations * self.stride(cut.axis)
        end = f"{name} + {size}"
        if run.extent % size:
            end = f"({end} < {stop} ? {end} : {stop})"
        self.scopes.append(Scope())
        yield run._replace(start=name, extent=end)
        lines = self.scopes.pop().lines
        head = f"for ({self.index} {name} = {run.start}; {name} < {stop}; {name} += {size}) {{"
        self.scopes[-1].lines += [head, *("    " + text for text in lines), "}"]

    def _folds_of(self, nodes: Iterable[Node]) -> None:
        """Print the missing reductions beneath `nodes` that the open scopes can hold."""
        for reduction in self._missing(toposort(nodes)):
            self.value(reduction, next(self.points(free_axes(reduction))))

    def _missing(self, nodes: Iterable[Node]) -> list[Node]:
        """The reductions among `nodes` that the open scopes could hold, and do not. Those of all
        points of a tile are there at once."""
        bound = {axis for axis, depth in self.depth_of.items() if depth < len(self.scopes)}
        reductions = (
            node for node in nodes if node.op is Op.LOOP_REDUCE and free_axes(node) <= bound
        )
        return [reduction for reduction in reductions
                if self.key(reduction, next(self.points(free_axes(reduction))))
                not in self.scopes[self.home(reduction)].cache]  # fmt: skip

    def _step(self, one: Accumulation, inner: Point, apart: bool) -> None:
        """Add what one point of the reduction's own tile contributes to an accumulator: one of
        this point alone, if `apart`, or one of all."""
        key = tuple(inner.values()) if apart else ()
        point = one.point | inner
        operands = tuple(self.result(part, point) for part in operands_of(one.reduction))
        total = () if self.vectors.keys() & set(bound_axes(one.reduction)) else one.total
        if not total and key not in one.running:
            # A part that is the same in every lane still counts once for each.
            lanes = max(map(self.lanes_of, one.reduction.src))
            one.running[key] = self.start(one.reduction, lanes, one.depth)
        self.update(one.reduction.arg.monoid, total or one.running[key], operands)

    def _join(self, sums: Iterable[Accumulation]) -> None:
        """Combine the accumulators of each sum to one, and the lanes of the reduction's own vector
        axis."""
        for reduction, group in groupby(sums, key=lambda one: one.reduction):
            monoid, ready = reduction.arg.monoid, list(group)
            totals = [self._tree(monoid, list(one.running.values())) for one in ready]
            if totals[0][0].lanes > max(map(self.lanes_of, operands_of(reduction))):
                totals = self._across(monoid, totals)
            for one, total in zip(ready, totals, strict=True):
                total = self._tree(monoid, [one.total, total]) if one.total else total
                one.total = tuple(self.declare(value, mutable=True) for value in total)
                one.running = {}

    def _across(self, monoid: Monoid, values: list[Values]) -> list[Values]:
        """Combine the lanes of each of `values`, as many at once as lanes go: halves of two make
        one vector, where they alternate, until each has one lane of the last vector."""
        count = min(values[0][0].lanes, 1 << len(values).bit_length() >> 1)
        rest, values = values[count:], values[:count]
        while (number := len(values)) > 1 or values[0][0].lanes > count:
            pairs = [zip(*values[at : at + 2], strict=True) for at in range(0, number, 2)]
            values = [
                self._tree(monoid, [
                    tuple(self.declare(self.half(one, side, count // number)) for one in parts)
                    for side in (0, 1)
                ])
                for parts in map(list, pairs)
            ]  # fmt: skip
        (last,) = values
        lanes = [tuple(self.lane(one, i) for one in last) for i in range(count)]
        return lanes + (self._across(monoid, rest) if rest else [])

    def _tree(self, monoid: Monoid, values: list[Values]) -> Values:
        while len(values) > 1:
            odd = values[len(values) // 2 * 2 :]
            values = [
                tuple(map(self.declare, self.combined(monoid, a, b)))
                for a, b in zip(values[::2], values[1::2], strict=False)
            ] + odd
        return values[0]

    def prefix(self, node: Node, point: Point) -> None:
        """A running value, declared outside the loops of its axes and updated inside."""
        operands = tuple(self.value(one, point) for one in operands_of(node))
        outside = min(self.depth_of[axis] for axis in bound_axes(node)) - 1
        if self.scan_block:  # which opens between the loops of its axes, or around them
            outside = min(outside, self.scan_block - 1)
        lanes = max(operand.lanes for operand in operands)
        if self.scan_block and blocks.is_compensated(node):
            values = self._running_sum(node, operands, lanes, outside)
        else:
            values = self.start(node, lanes, outside)
            self.update(node.arg.monoid, values, operands)
        self._keep(node, point, tuple(map(self.declare, values)))

    def _running_sum(self, node: Node, operands: Values, lanes: int, outside: int) -> Values:
        """Print the next step of a running sum in a block: the sum so far in the block, added to
        the total of the blocks before, which is declared `outside`."""
        running = self.start(node, lanes, self.scan_block)
        total = self._total(running[0], outside)
        self.scans.append((total, running[0]))
        inner, self.scopes = self.scopes, self.scopes[: self.scan_block + 1]
        before = self._result(total)
        self.scopes = inner
        self.update(node.arg.monoid, running, operands)
        return self.combined(node.arg.monoid, (before,), running)

    def _keep(self, node: Node, point: Point, values: Values) -> None:
        """Remember every component of a reduction."""
        for part, value in enumerate(values):
            self.scopes[-1].cache[self.key(_component(node, part), point)] = value

    def start(self, node: Node, lanes: int, depth: int) -> Values:
        """Declare accumulators of a reduction that hold the identity, in an open scope."""
        dtypes = tuple(part.dtype for part in operands_of(node))
        started = []
        for identity, dtype in zip(node.arg.monoid.identity(dtypes), dtypes, strict=True):
            wide = Value("", dtype, lanes, 8 if dtype is bool_ and lanes > 1 else 0)
            text = self.widened(self.literal(const(identity, dtype)), wide)
            started.append(self.declared_at(depth, wide._replace(text=text)))
        return tuple(started)

    def update(self, monoid: Monoid, running: Values, operands: Values) -> None:
        """``running = combine(running, operands)``."""
        for target, value in zip(running, self.combined(monoid, running, operands), strict=True):
            self.line(f"{self.guard}{target.text} = {self.widened(value, target)};")

    def combined(self, monoid: Monoid, left: Values, right: Values) -> Values:
        """The monoid's combine of two tuples of values."""
        first, second, results = monoid.formula(tuple(one.dtype for one in left))
        if monoid.op is not None:  # one expression, so that the compiler sees a multiply-add
            return (self.operation(results[0], [*left, *right]),)
        known = dict(zip(first + second, left + right, strict=True))
        return self.formula(results, known)

    # Rows.

    def rows(self, segment: Segment) -> None:
        """Everything the kernel does for the rows of one segment."""
        kernel = self.nest.kernel
        self.filled, self.stored, self.waiting = frozenset(), set(), list(kernel.stores)
        with self.opened(segment):
            while self.waiting:
                axes = self.waiting[0].axes
                batch = [one for one in self.waiting if one.axes == axes]
                # Columns may share the axes of reductions, which come before what is overwritten.
                again = any(one.parameter in self.read for one in batch)
                self._folds_of(kernel.nodes if again else [one.value for one in batch])
                stores = [one for one in batch if one in self.waiting]
                self._pass(axes[kernel.rows :], (), stores)


def _lanes(segment: Segment) -> int:
    """Minus the lanes of a segment: the widest vectors of a reduction come first."""
    return -max((int(run.extent) for run in segment.values() if run.how == "vector"), default=1)


def _component(reduction: Node, part: int) -> Node:
    return Node(reduction.op, reduction.src, reduction.arg._replace(part=part))
