"""An agent of an interpreted tile program: a warpgroup of a role, or a role of fewer warps; what it
knows, the barriers that it waits for, and the products that it begins."""

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
from lamina.tiles.machine import ThreadBlock
from lamina.tiles.memory import (
    BarrierState,
    Clock,
    PhaseError,
    Slot,
    join,
)
from lamina.tiles.orders import Part, StepRanges
from lamina.tiles.program import (
    UNITS,
    WARPGROUP_ROWS,
    Alloc,
    Compute,
    Mma,
    Product,
    Role,
    TileError,
    Unit,
    Wait,
)
from lamina.tiles.registers import Registers

Array = Any  # numpy.ndarray


class Agent:
    """A warpgroup of a role of a block, or a role of fewer warps.

    clock: its own, in which its own interval begins at 1. A role that runs inside this one shares
        it
    step: how many steps of all its tiles it has begun
    number: by which slots and phases go: that of the step; where tiles go by tickets, outside of
        steps that of the tile
    taken: tiles that it took by tickets. done: steps of these. passing: buffers filled in each step
    ranges: the steps of a tile that masks leave
    begun: numbers of `Mma` statements that it has not waited for, and their sums
    part: what it has of a tile. steps_left: of that, with the one that it is in
    used: `Mma` statements that it has begun. unreleased: how many of these still have
        their slots
    products: of the statements that have not read their factors, oldest first. ended: how many
        statements it has waited for
    """

    def __init__(self, block: ThreadBlock, role: Role, group: int, agent: str) -> None:
        self.block, self.machine, self.role = block, block.machine, role
        self.program = block.machine.program
        self.group, self.agent = group, agent
        self.group_count = max(role.warpgroups, 1)
        self.clock: Clock = {agent: 1}
        self.step = self.used = self.unreleased = self.ended = self.synced = 0
        self.number = self.taken = self.done = 0
        self.passing = self.program.passing
        self.ranges = StepRanges(range(0), range(0))
        self.begun: list[tuple[int, tuple[str, ...]]] = []
        self.part = Part(0, 0, 0)
        self.steps_left = 0
        self.products: list[Callable[[], None]] = []
        self.slices: list[Callable[[], None]] = []  # of the tile before, not stored yet
        self.values: dict[str, Array] = {}  # registers

    # Memory.

    def _slot_of(self, buffer: str) -> Slot:
        """The current slot: by the tile, of tiles that stay while steps pass by."""
        slots = self.block.slots[buffer]
        number = self.number if buffer in self.passing else self.taken
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
        when = "the phase before use" if wait.acquires else "use"
        return Waiting(
            lambda: barrier.completed % 2 == parity,
            f"{when} {self.number} of barrier {wait.barrier}",
        )

    def _phase(self, wait: Wait) -> tuple[BarrierState, int]:
        """The barrier of the current slot, and how many of its phases have ended once the wait is
        over. Hardware compares the last bit of the number alone."""
        barrier = self._barrier(wait.barrier, self.number)
        use_of_slot = self.number // barrier.declared.stages
        return barrier, use_of_slot if wait.acquires else use_of_slot + 1

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
        """Begin products."""
        unit = UNITS[mma.unit]
        self.used += 1
        self.unreleased += 1
        runs = [self._product(product, unit, mma.adds) for product in mma.products]

        def run() -> None:
            for each in runs:
                each()
            self.products.remove(run)

        def run_in_order() -> None:
            if run in self.products:  # a drain may have been before
                self._run_through(run)

        self.begun.append((self.used, mma.sums))
        self.products.append(run)
        if not unit.runs_by_itself:
            self._drain(0)
            return
        self.machine.under_way.append(run_in_order)

    def _product(self, product: Product, unit: Unit, adds: bool) -> Callable[[], None]:
        """What one of them does when it runs. Factors that the unit reads itself are read then, and
        those in registers too; the left one that threads read into registers is read at once. Sums
        are NaN until then if they begin anew."""
        left, right = self.program.alloc(product.left), self.program.alloc(product.right)
        left_names = {axis.name for axis in left.axes}
        (columns,) = (axis for axis in right.axes if axis.name not in left_names)
        if not adds:
            shape = WARPGROUP_ROWS, columns.size
            self.values[product.sums] = np.full(shape, np.nan, np.float32)
        if product.sums not in self.values:
            raise TileError(f"tiles {self.program.name}: {product.sums} are added to before set")
        sums = self.values[product.sums]
        left_values = self._left_reader(left, unit)
        self._begin_read(right, unit.right, unit)
        right_slot = self._slot_of(right.name)
        in_registers = left_values() if unit.left == "generic" else None

        def run() -> None:
            first = left_values() if in_registers is None else in_registers
            second = factor(right, unit, right_slot, columns.name).T
            before = sums if adds else 0
            sums[...] = before + first.astype(np.float32) @ second.astype(np.float32)

        return run

    def _left_reader(self, left: Alloc, unit: Unit) -> Callable[[], Array]:
        """What reads the group's rows of a left factor."""
        if left.memory == "registers":
            return lambda: self.values[left.name]
        self._begin_read(left, unit.left, unit)
        slot = self._slot_of(left.name)
        rows = slice(self.group * WARPGROUP_ROWS, (self.group + 1) * WARPGROUP_ROWS)
        return lambda: factor(left, unit, slot, "row")[rows]

    def _begin_read(self, alloc: Alloc, proxy: str, unit: Unit) -> None:
        """Note that a product reads the current slot of a factor, and count its conflicts. A unit
        with rows `apart` reads tiles that are transposed for it, without any."""
        slot = self._slot_of(alloc.name)
        slot.check_read(self.clock, proxy)
        if proxy == "async":
            slot.reads[f"products of {self.agent}"] = self.used
        else:
            slot.reads[self.agent] = self.clock[self.agent]
        if unit.apart is None:
            conflicts = conflicts_of_columns(alloc.layout, alloc.shape, alloc.dtype.itemsize)
            self._count(f"mma {alloc.name}", conflicts)

    def _run_through(self, last: Callable[[], None]) -> None:
        """Run the oldest products, up to one of them."""
        while last in self.products:
            self.products[0]()

    def _drain(self, running: int) -> None:
        """Wait for all products but those of the last `running` statements."""
        while len(self.products) > running:
            self.products[0]()
        self.ended = max(self.ended, self.used - running)
        self.begun = [(number, sums) for number, sums in self.begun if number > self.ended]
        self.clock[f"products of {self.agent}"] = self.ended

    # Registers.

    def _registers(self) -> Registers:
        """The registers that no product changes."""
        busy = {name for _, sums in self.begun for name in sums}
        return Registers(self.program, self.values, busy, self.agent)

    def _compute(self, compute: Compute, variables: Mapping[str, int]) -> None:
        rows = range(self.group * WARPGROUP_ROWS, (self.group + 1) * WARPGROUP_ROWS)
        _, along = compute.sides
        extents = (extent.size for extent in along.over if extent.name not in variables)
        columns = range(prod(extents))
        body = TileBody(self.machine.arrays, self.clock, variables, (rows, columns))
        body.number(compute.sides)
        self._registers().compute(compute, body)
