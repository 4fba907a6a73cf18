"""Printing scans: each step of a loop goes on with what the steps before came to.

    f32 sum_3 = 0.0f;
    for (i64 column = 0; column < 100; column++) {
        const f32 load_2 = p0[100 * row + column];
        sum_3 = (sum_3 + load_2);
        const f32 scan_4 = sum_3;
        p1[100 * row + column] = scan_4;
    }

Long running sums begin anew in each block of a loop: see `block_sums.py`.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from lamina.ir.build import component
from lamina.ir.kernel import bound_axes
from lamina.ir.node import Node
from lamina.loops.nest import operands_of
from lamina.targets import blocks
from lamina.targets.block_sums import Total, opened_in_blocks, trips
from lamina.targets.blocks import Cut
from lamina.targets.combiner import Combiner
from lamina.targets.fills import FillPrinter
from lamina.targets.language import Point, Value, Values
from lamina.targets.parts import NestPart


@dataclass(frozen=True)
class BlockedSum:
    """A running sum in blocks: the total of the blocks before, the sum so far in this one, and
    where what follows the blocks finds the sum of all; () where nothing does."""

    total: Total
    running: Value
    ends: Values = ()


@dataclass
class BlockedScans:
    """Scans in a loop that runs in blocks: each begins anew in a block, at scope number `depth`."""

    depth: int
    sums: list[BlockedSum] = field(default_factory=list)


class Scans:
    """Prints the scans of a nest.

    blocked: while a loop of scans is printed in blocks, where a block begins, and each sum that is
    to be added to its total at the end of the block
    """

    def __init__(self, printer: FillPrinter, combiner: Combiner) -> None:
        self.printer = printer
        self.combiner = combiner
        self.blocked: BlockedScans | None = None

    def cut(self, part: NestPart, scans: Sequence[Node]) -> Cut | None:
        """The loop of `part` that runs in blocks, if scans add up much."""
        sums = [node for node in scans if blocks.is_compensated(node)]
        along = {axis for node in sums for axis in bound_axes(node)}
        limits = {blocks.SCANNING} if sums else set[blocks.Limits]()
        return blocks.find_cut(limits, trips(self.printer, part, along), 1)

    @contextmanager
    def opened_in_blocks(self, cut: Cut, part: NestPart) -> Iterator[None]:
        """Open the loops of `part`, one of them in blocks. In each block the running sums begin at
        0; the total of the blocks before is added to them."""
        with opened_in_blocks(self.printer, cut, part) as inside:
            self.blocked = blocked = BlockedScans(len(self.printer.scopes) - 1)
            with self.printer.opened(inside):
                yield
            for each in blocked.sums:
                each.total.add(each.running)
            self.blocked = None
        for each in blocked.sums:
            if each.ends:
                self.combiner.assign(each.ends, (each.total.value(),))

    def print_step(self, node: Node, point: Point) -> None:
        """Print the next step of a scan, whose running value is declared outside the loops of its
        axes and updated inside: ``sum_3 = (sum_3 + load_2);`` and ``const f32 scan_4 = sum_3;``."""
        operands = tuple(self.printer.value(operand, point) for operand in operands_of(node))
        if any(self.printer.nest.bound(axis) == "vector" for axis in bound_axes(node)):
            self._print_lanes(node, point, operands)
            return
        # The scope around all loops of the scan.
        outside = min(self.printer.depth_of[axis] for axis in bound_axes(node)) - 1
        if self.blocked:
            # What goes on from block to block is declared outside of the loop over blocks, which
            # may be around the loops of all of its axes, or between them.
            outside = min(outside, self.blocked.depth - 1)
        lanes = max(operand.lanes for operand in operands)
        if self.blocked and blocks.is_compensated(node):
            values = self._running_sum(self.blocked, node, operands, lanes, outside)
        else:
            values = self.combiner.start(node, lanes, outside)
            self.combiner.update(node.arg.monoid, values, operands)
        self._remember(node, point, values)

    def _remember(self, node: Node, point: Point, values: Values) -> None:
        """Declare what a scan has come to at `point`."""
        declared = tuple(self.printer.declare(value, "scan") for value in values)
        self.printer.remember(node, point, declared)

    def _running_sum(
        self, blocked: BlockedScans, node: Node, operands: Values, lanes: int, outside: int
    ) -> Values:
        """Print the next step of a running sum in a block: the sum so far in the block, added to
        the total of the blocks before, which is declared `outside`."""
        running = self.combiner.start(node, lanes, blocked.depth)
        before = self._before_block(blocked, running, outside)
        self.combiner.update(node.arg.monoid, running, operands)
        return self.combiner.combined(node.arg.monoid, before, running)

    def _before_block(
        self, blocked: BlockedScans, running: Values, outside: int, ends: Values = ()
    ) -> Values:
        """Print the sum of all blocks before the one whose sum is `running`: see `BlockedSum`."""
        total = Total(self.combiner, running[0], outside)
        blocked.sums.append(BlockedSum(total, running[0], ends))
        with self.printer.at_depth(blocked.depth):
            return (total.value(),)

    def _print_lanes(self, node: Node, point: Point, operands: Values) -> None:
        """Print the next steps of a scan, as many as a vector has lanes. The lanes are
        combined with one another, then what came before is added to all. Only the last line, of one
        element, is in the chain from vector to vector. A running sum of 16 lanes, with what came
        before in `sum_2`:

            const f32x16 sum_10 = (before_9 + sum_8);      of these lanes: `running_lanes`
            const f32x16 scan_11 = (sum_2 + sum_10);
            sum_2 = (sum_2 + sum_10[15]);
        """
        monoid, lanes = node.arg.monoid, self.printer.lanes_of(node)
        vectors = [operand._replace(lanes=lanes) for operand in operands]
        steps = self.combiner.running_lanes(node, tuple(
            vector._replace(text=self.printer.language.widened(operand, vector))
            for operand, vector in zip(operands, vectors, strict=True)
        ))  # fmt: skip
        ends = self.ends(node, point)
        if self.blocked and blocks.is_compensated(node):
            so_far = self.combiner.start(node, 1, self.blocked.depth)
            before = self._before_block(self.blocked, so_far, self._depth_of_rows(), ends)
            in_block = self.combiner.combined(monoid, so_far, steps)
            values = self.combiner.combined(monoid, before, in_block)
        else:
            so_far = ends
            values = self.combiner.combined(monoid, so_far, steps)
        self._remember(node, point, values)
        last = tuple(self.printer.language.lane(step, lanes - 1) for step in steps)
        self.combiner.update(monoid, so_far, last)

    def ends(self, node: Node, point: Point) -> Values:
        """The variables for what all steps of a scan before came to: all lanes, or all threads of a
        row. They are declared inside all loops over rows and outside of all others when the row at
        `point` first needs them."""
        rows = self.printer.nest.kernel.row_axes
        unrolled_row = tuple(point[axis] for axis in rows if axis in point)
        depth = self._depth_of_rows()
        totals = self.printer.scopes[depth].scan_totals
        key = component(node, 0), unrolled_row
        if key not in totals:
            totals[key] = self.combiner.start(node, 1, depth)
        return totals[key]

    def _depth_of_rows(self) -> int:
        """The number of the innermost scope of a loop over rows, or that of the innermost open
        scope, if a scan is printed outside the rows, as of a vector that all rows share."""
        rows = self.printer.nest.kernel.row_axes
        of_rows = max(map(self.printer.depth_of.__getitem__, rows), default=0)
        return min(of_rows, len(self.printer.scopes) - 1)
