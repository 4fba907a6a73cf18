"""An agent of an interpreted tile program: a group of four warps of a role, or a role of fewer
warps; what it knows, the barriers that it waits for, and the products that it begins."""

from collections.abc import Callable, Mapping
from math import prod
from typing import Any

import numpy as np

from lamina.tiles.arithmetic import (
    TileBody,
    factor,
)
from lamina.tiles.events import Waiting
from lamina.tiles.layouts import conflicts_of_columns
from lamina.tiles.machine import Block
from lamina.tiles.memory import (
    BarrierState,
    Clock,
    PhaseError,
    Slot,
    join,
)
from lamina.tiles.orders import Part, StepRanges
from lamina.tiles.program import (
    GROUP_ROWS,
    UNITS,
    Await,
    Compute,
    Fill,
    Mma,
    Multiply,
    Product,
    Role,
    StepLoop,
    TileError,
    TileProgram,
    Unit,
    Wait,
    statements_of,
)
from lamina.tiles.registers import Registers

Array = Any  # numpy.ndarray


class Agent:
    """A group of four warps of a role of a block, or a role of fewer warps.

    clock: its own, in which its own interval begins at 1. A role that runs inside this one shares
        it
    step: how many steps of all its tiles it has begun
    number: by which slots and phases go: that of the step; where tiles go by tickets, outside of
        steps that of the tile
    taken: tiles that it took by tickets. done: steps of these. staying: buffers filled once a tile
    ranges: the steps of a tile that masks leave
    begun: numbers of products back to back that it has not waited for, and their sums
    part: what it has of a tile. steps_left: of that, with the one that it is in
    used: products that it has begun. unreleased: how many of their slots it still has
    products: that have not read their factors, oldest first. ended: how many it has waited for
    """

    def __init__(self, block: Block, role: Role, group: int, agent: str) -> None:
        self.block, self.machine, self.role = block, block.machine, role
        self.program = block.machine.program
        self.group, self.agent = group, agent
        self.group_count = max(role.groups, 1)
        self.clock: Clock = {agent: 1}
        self.step = self.used = self.unreleased = self.ended = self.synced = 0
        self.number = self.taken = self.done = 0
        self.staying = _staying(self.program)
        self.ranges = StepRanges(range(0), range(0))
        self.begun: list[tuple[int, tuple[str, ...]]] = []
        self.is_first_step = True
        self.part = Part(0, 0, 0)
        self.steps_left = 0
        self.products: list[Callable[[], None]] = []
        self.slices: list[Callable[[], None]] = []  # of the tile before, not stored yet
        self.values: dict[str, Array] = {}  # registers

    # Memory.

    def _slot_of(self, buffer: str) -> Slot:
        """The current slot: by the tile, of tiles that stay while steps pass by."""
        slots = self.block.slots[buffer]
        number = self.taken if buffer in self.staying else self.number
        return slots[number % len(slots)]

    def _barrier(self, name: str, step: int) -> BarrierState:
        barriers = self.block.barriers[name]
        return barriers[step % len(barriers)]

    def _count(self, what: str, conflicts: int) -> None:
        self.machine.report.conflicts[what] += conflicts

    def _check_drained(self, what: str) -> None:
        """Raise TileError unless the group has waited for all products that it began."""
        if self.ended < self.used:
            raise TileError(f"tiles {self.program.name}: {self.agent} {what} while products run")

    # Barriers.

    def _wait(self, wait: Wait) -> Waiting:
        barrier, phase = self._phase(wait)
        parity = phase % 2
        when = "the phase before use" if wait.before else "use"
        return Waiting(
            lambda: barrier.completed % 2 == parity,
            f"{when} {self.number} of barrier {wait.barrier}",
        )

    def _phase(self, wait: Wait) -> tuple[BarrierState, int]:
        """The barrier of the current slot, and how many of its phases have ended once the wait is
        over. Hardware compares the last bit of the number alone."""
        barrier = self._barrier(wait.barrier, self.number)
        use_of_slot = self.number // barrier.declared.stages
        return barrier, use_of_slot if wait.before else use_of_slot + 1

    def _pass(self, wait: Wait) -> None:
        barrier, phase = self._phase(wait)
        if barrier.completed != phase:
            raise PhaseError(
                f"{self.agent} waits for phase {phase} of barrier {wait.barrier}, and passes in "
                f"phase {barrier.completed}"
            )
        join(self.clock, barrier.seen)

    def _arrive(self, barrier: BarrierState, count: int, expected_bytes: int = 0) -> None:
        barrier.arrive(self.clock, count, expected_bytes)
        self.clock[self.agent] += 1

    # Products.

    def _mma(self, mma: Mma) -> None:
        """Begin a product. Factors that the unit reads itself are read when it runs, the left one
        that threads read into registers at once."""
        unit = UNITS[mma.unit]
        left, right = self.program.alloc(mma.left), self.program.alloc(mma.right)
        left_slot, right_slot = self._slot_of(mma.left), self._slot_of(mma.right)
        self.used += 1
        self.unreleased += 1
        product_agent = f"products of {self.agent}"
        for slot, proxy in ((left_slot, unit.left), (right_slot, unit.right)):
            slot.check_read(self.clock, proxy)
            is_async = proxy == "async"
            slot.reads[product_agent if is_async else self.agent] = (
                self.used if is_async else self.clock[self.agent]
            )
        for alloc in (left, right) if unit.apart is None else ():
            conflicts = conflicts_of_columns(alloc.layout, alloc.shape, alloc.dtype.itemsize)
            self._count(f"mma {alloc.name}", conflicts)
        rows = slice(self.group * GROUP_ROWS, (self.group + 1) * GROUP_ROWS)

        def left_factor() -> Array:
            return factor(left, unit, left_slot, "row")[rows]

        in_registers = left_factor() if unit.left == "generic" else None
        if self.is_first_step:
            columns = self.program.alloc(mma.sums).shape[1]
            self.values[mma.sums] = np.zeros((GROUP_ROWS, columns), np.float32)
        sums = self.values[mma.sums]

        def run() -> None:
            first = left_factor() if in_registers is None else in_registers
            second = factor(right, unit, right_slot, "column").T
            sums[...] += first.astype(np.float32) @ second.astype(np.float32)
            self.products.remove(run)

        def run_in_order() -> None:
            if run in self.products:  # a drain may have been before
                self._run_through(run)

        self.products.append(run)
        if not unit.runs_by_itself:
            self._drain(0)
            return
        self.machine.under_way.append(run_in_order)

    def _run_through(self, last: Callable[[], None]) -> None:
        """Run the oldest products, up to one of them."""
        while last in self.products:
            self.products[0]()

    def _drain(self, running: int) -> None:
        """Wait for all products but the last `running`."""
        while len(self.products) > running:
            self.products[0]()
        self.ended = max(self.ended, self.used - running)
        self.clock[f"products of {self.agent}"] = self.ended

    # Products back to back.

    def _multiply(self, multiply: Multiply) -> None:
        """Begin products, which read their factors when they run: those in registers too."""
        unit = UNITS[multiply.unit]
        self.used += 1
        agent = f"products of {self.agent}"
        runs = [self._product(product, unit, multiply.adds) for product in multiply.products]
        for product in multiply.products:
            for name in (product.left, product.right):
                if self.program.alloc(name).memory == "shared":
                    slot = self._slot_of(name)
                    slot.check_read(self.clock, unit.right)
                    slot.reads[agent] = self.used

        def run() -> None:
            for each in runs:
                each()
            self.products.remove(run)

        def run_in_order() -> None:
            if run in self.products:  # a wait may have been before
                self._run_through(run)

        self.begun.append((self.used, tuple(product.sums for product in multiply.products)))
        self.products.append(run)
        self.machine.under_way.append(run_in_order)

    def _product(self, product: Product, unit: Unit, adds: bool) -> Callable[[], None]:
        """What one of them does when it runs. Sums are NaN until then if they begin anew."""
        left, right = self.program.alloc(product.left), self.program.alloc(product.right)
        left_names = {axis.name for axis in left.axes}
        (columns,) = (axis for axis in right.axes if axis.name not in left_names)
        if not adds:
            shape = GROUP_ROWS, columns.size
            self.values[product.sums] = np.full(shape, np.nan, np.float32)
        sums, right_slot = self.values[product.sums], self._slot_of(right.name)
        left_slot = self._slot_of(left.name) if left.memory == "shared" else None
        for alloc in (left, right):
            if alloc.memory == "shared":
                conflicts = conflicts_of_columns(alloc.layout, alloc.shape, alloc.dtype.itemsize)
                self._count(f"multiply {alloc.name}", conflicts)

        def run() -> None:
            if left_slot is None:
                first = self.values[left.name]
            else:
                rows = slice(self.group * GROUP_ROWS, (self.group + 1) * GROUP_ROWS)
                first = factor(left, unit, left_slot, "row")[rows]
            second = factor(right, unit, right_slot, columns.name).T
            before = sums if adds else 0
            sums[...] = before + first.astype(np.float32) @ second.astype(np.float32)

        return run

    def _await(self, wait: Await) -> None:
        """Wait for all products up to the last ones into these sums."""
        numbers = [number for number, sums in self.begun if sums == wait.sums]
        if not numbers:
            raise TileError(f"{self.agent} awaits {', '.join(wait.sums)}, which nothing adds up")
        later = self.used - numbers[-1]
        self.begun = [pair for pair in self.begun if pair[0] > numbers[-1]]
        self._drain(later)

    def _registers(self) -> Registers:
        """The registers that no product changes."""
        busy = {name for _, sums in self.begun for name in sums}
        return Registers(self.program, self.values, busy, self.agent)

    def _compute(self, compute: Compute, variables: Mapping[str, int]) -> None:
        rows = range(self.group * GROUP_ROWS, (self.group + 1) * GROUP_ROWS)
        _, along = compute.sides
        extents = (extent.size for extent in along.over if extent.name not in variables)
        columns = range(prod(extents))
        body = TileBody(self.machine.arrays, self.clock, variables, (rows, columns))
        body.number(compute.sides)
        self._registers().compute(compute, body)


def _staying(program: TileProgram) -> frozenset[str]:
    """Buffers that are filled once a tile of results, and not in each of its steps."""
    filled = {fill.buffer for role in program.roles for fill in statements_of(role.body, Fill)}
    for role in program.roles:
        for loop in statements_of(role.body, StepLoop):
            filled -= {fill.buffer for fill in statements_of(loop.body, Fill)}
    return frozenset(filled)
