"""Runs tile programs on NumPy arrays, without a GPU.

Each role of each block is a coroutine; one of eight warps is two, a group of four warps each. A
seeded generator of random numbers decides who goes on next, statement by statement. Copies of the
copy engine land at a random later time, and products read their factors at a random time before
their group waits for them. What was not written yet is NaN. `interpret` raises, with the reason,
where

- a slot is read before its fill has landed, or in no order with it (`UnfilledError`,
  `UnorderedError`)
- a slot is filled before its readers have released it, or two stores of one element are in no order
  (`UnorderedError`)
- a barrier lets a waiter pass in another phase than it asked for, or a group lets another one go on
  twice in one pause (`PhaseError`)
- what threads wrote is read, or what they changed is filled, by the asynchronous proxy without a
  fence (`ProxyError`)
- sums are read, or a role ends, while its products still run (`TileError`)
- nobody can go on (`DeadlockError`)
- an element is read or stored beyond an array (`TileError`)

and counts bank conflicts, but for those of threads that read or transpose tiles of fused
multiply-adds. It does not model registers, caches or time.
"""

import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from lamina.core.dtypes import float32
from lamina.tiles.arithmetic import (
    TileBody,
    digits,
    elements_of_group,
    elements_of_source,
    factor,
    head_through,
    squares_of_group,
    through_lines,
)
from lamina.tiles.events import GO_ON, Events, StepEnd, Waiting
from lamina.tiles.layouts import (
    conflicts_of_columns,
    conflicts_of_pairs,
    elements_of,
)
from lamina.tiles.memory import (
    BarrierState,
    Clock,
    DeadlockError,
    GlobalArray,
    PhaseError,
    Slot,
    join,
    rounded_to_tf32,
)
from lamina.tiles.orders import Part, given_parts, parts_of
from lamina.tiles.program import (
    GROUP_ROWS,
    GROUP_WARPS,
    UNITS,
    Advance,
    Ahead,
    Alloc,
    Barrier,
    Computed,
    Drain,
    Epilogue,
    Fence,
    Fill,
    Join,
    Mma,
    Pause,
    Release,
    Resume,
    Role,
    Statement,
    StepLoop,
    Store,
    Sync,
    TileError,
    TileLoop,
    TileProgram,
    Transpose,
    Wait,
    statements_of,
)

Array = Any  # numpy.ndarray


@dataclass
class Report:
    """conflicts: accesses of shared memory more than without bank conflicts, by kind of statement
    and buffer: ``{"mma left": 0}``."""

    conflicts: Counter[str] = field(default_factory=Counter)


def interpret(program: TileProgram, arrays: Mapping[str, Array], seed: int = 0) -> Report:
    """Run a program with its barriers on `arrays`, flat ones by the names of parameters; those that
    it writes are changed in place. Raises TileError as the module says, and for a program whose
    barriers are not derived yet."""
    fills = [fill for role in program.roles for fill in statements_of(role.body, Fill)]
    if any(fill.agent == "tma" and not fill.barrier for fill in fills):
        raise TileError(f"tiles {program.name}: a copy reports to no barrier; call synchronised")
    machine = _Machine(program, arrays, seed)
    machine.run()
    return machine.report


class _Machine:
    """All blocks of a program, and who goes on next."""

    def __init__(self, program: TileProgram, arrays: Mapping[str, Array], seed: int) -> None:
        self.program = program
        self.report = Report()
        self.random = random.Random(seed)
        self.arrays = {
            parameter.name: GlobalArray(parameter, arrays[parameter.name])
            for parameter in program.parameters
        }
        self.partial_sums: dict[tuple[Part, int], tuple[Array, Clock]] = {}  # by part and group
        products = [mma for role in program.roles for mma in statements_of(role.body, Mma)]
        rounding = [mma for mma in products if UNITS[mma.unit].rounds]
        self.rounded_buffers = {name for mma in rounding for name in (mma.left, mma.right)}
        # What runs by itself: copies and products that have begun.
        self.under_way: list[Callable[[], None]] = []
        loops = (loop for role in program.roles for loop in statements_of(role.body, TileLoop))
        (blocks,) = {loop.blocks for loop in loops}
        self.workers = [worker for block in range(blocks) for worker in _Block(self, block).workers]

    def run(self) -> None:
        """Run all coroutines to their end, and whatever is under way then."""
        waiting = dict.fromkeys(range(len(self.workers)), GO_ON)
        running = {number: worker.run() for number, worker in enumerate(self.workers)}
        while waiting or self.under_way:
            ready = [number for number, event in waiting.items() if event.is_over()]
            choices = len(ready) + len(self.under_way)
            if not choices:
                stuck = "; ".join(
                    f"{self.workers[number].agent} waits for {event.text}"
                    for number, event in waiting.items()
                )
                raise DeadlockError(f"tiles {self.program.name}: nobody can go on: {stuck}")
            choice = self.random.randrange(choices)
            if choice >= len(ready):
                self.under_way.pop(choice - len(ready))()
                continue
            number = ready[choice]
            event = next(running[number], None)
            if event is None:
                del waiting[number]
            elif isinstance(event, Waiting):
                waiting[number] = event


class _Block:
    """One block: its shared memory, its barriers, and its coroutines."""

    def __init__(self, machine: _Machine, number: int) -> None:
        self.machine, self.number = machine, number
        program = machine.program
        self.slots = {
            alloc.name: [Slot.of(alloc, stage) for stage in range(alloc.stages)]
            for alloc in program.allocs
            if alloc.memory == "shared"
        }
        self.barriers = {
            barrier.name: [BarrierState(barrier) for _ in range(barrier.stages)]
            for barrier in program.barriers
        }
        self.syncs: dict[str, BarrierState] = {}  # of all groups of a role
        self.pauses: Counter[str] = Counter()  # of the second group of a role, so far
        self.resumes: Counter[str] = Counter()  # by the first one
        self.workers: list[_Worker] = []
        for role in program.roles:
            if role.inside:
                continue
            groups = max(role.groups, 1)
            self.syncs[role.name] = BarrierState(Barrier("sync", 1, groups))
            for group in range(groups):
                agent = f"block {number} {role.name} {group}"
                self.workers.append(_Worker(self, role, group, agent))


class _Worker:
    """A group of four warps, or one warp, of a role of a block: a coroutine.

    clock: its own, in which its own interval begins at 1. A role that runs inside this one shares
        it
    step: how many steps of all its tiles it has begun, by which slots and phases are numbered
    part: what it has of a tile. steps_left: of that, with the one that it is in
    used: products that it has begun. unreleased: how many of their slots it still has
    products: that have not read their factors, oldest first. ended: how many it has waited for
    """

    def __init__(self, block: _Block, role: Role, group: int, agent: str) -> None:
        self.block, self.machine, self.role = block, block.machine, role
        self.program = block.machine.program
        self.group, self.agent = group, agent
        self.group_count = max(role.groups, 1)
        self.clock: Clock = {agent: 1}
        self.step = self.used = self.unreleased = self.ended = self.synced = 0
        self.is_first_step = True
        self.part = Part(0, 0, 0)
        self.steps_left = 0
        self.products: list[Callable[[], None]] = []
        self.slices: list[Callable[[], None]] = []  # of the tile before, not stored yet
        self.values: dict[str, Array] = {}  # registers
        self.inside = {
            other.name: self._inside(other)
            for other in self.program.roles
            if other.inside == role.name
        }

    def _inside(self, role: Role) -> Events:
        """The coroutine of a role that runs on the threads of this one."""
        worker = _Worker(self.block, role, self.group, self.agent)
        worker.clock = self.clock
        worker.group_count = self.group_count
        return worker.run()

    def run(self) -> Events:
        """The role's body."""
        yield from self._body(self.role.body, {})
        while self.slices:
            self.slices.pop(0)()
            yield GO_ON
        self._check_drained("ends")

    def _body(self, body: tuple[Statement, ...], variables: Mapping[str, int]) -> Events:
        for statement in body:
            match statement:
                case TileLoop():
                    yield from self._tiles(statement, variables)
                case Fill():
                    self._fill(statement, variables)
                case Transpose():
                    self._transpose(statement)
                case Mma():
                    self._mma(statement)
                case Wait():
                    yield self._wait(statement)
                    self._pass(statement)
                case Release():
                    yield from self._release(statement)
                case Pause():
                    yield from self._pause(statement, variables)
                case Resume(least):
                    self._resume(least)
                case Ahead():
                    yield from self._ahead(statement, variables)
                case Advance(role, count):
                    yield from self._advance(role, count)
                case Drain(running):
                    self._drain(running)
                case Fence():
                    for slots in self.block.slots.values():
                        for slot in slots:
                            slot.unfenced.discard(self.agent)
                case Sync():
                    yield from self._sync()
                case Epilogue():
                    self._epilogue(statement, variables)
                case _:
                    kind = type(statement).__name__
                    raise TileError(f"tiles {self.program.name}: {kind} in a place without meaning")
            yield GO_ON

    # Loops.

    def _tiles(self, loop: TileLoop, variables: Mapping[str, int]) -> Events:
        for part in parts_of(loop, self.block.number):
            inside = {**variables, **digits(loop.over, part.tile)}
            yield from self._part(loop, part, inside)

    def _part(self, loop: TileLoop, part: Part, variables: Mapping[str, int]) -> Events:
        """The body for a part of a tile; without an epilogue if others add up its sums."""
        for statement in loop.body:
            if isinstance(statement, StepLoop):
                yield from self._steps(statement, part, variables)
            elif isinstance(statement, Join):
                yield from self._join(statement, loop, part)
                if part.first > 0:
                    return
            else:
                yield from self._body((statement,), variables)

    def _steps(self, loop: StepLoop, part: Part, variables: Mapping[str, int]) -> Events:
        self.is_first_step = True
        self.part = part
        for number in range(part.first, part.first + part.count):
            self.steps_left = part.first + part.count - number
            yield from self._body(loop.body, {**variables, **digits(loop.over, number)})
            if self.slices:
                self.slices.pop(0)()
            self.step += 1
            self.is_first_step = False
            if self.role.inside:
                yield StepEnd()

    # Fills.

    def _fill(self, fill: Fill, variables: Mapping[str, int]) -> None:
        alloc = self.program.alloc(fill.buffer)
        slot = self._slot(fill.buffer, self.step)
        rows, length = alloc.shape
        ranges = range(rows), range(length)
        arrays = self.machine.arrays
        values = partial(elements_of_source, fill.source, ranges, dict(variables), arrays)
        if fill.agent == "threads":
            self._fill_by_threads(fill.source.is_across, alloc, slot, values(self.clock))
        elif self.group == 0:  # one thread of the block asks the copy engine
            self._copy(fill, alloc, slot, values)

    def _fill_by_threads(self, is_across: bool, alloc: Alloc, slot: Slot, values: Array) -> None:
        """Write this group's chunks."""
        slot.begin_fill(self.clock, self.step, self.agent, self.clock[self.agent])
        slot.unfenced.add(self.agent)
        if is_across:
            conflicts = conflicts_of_columns(alloc.layout, alloc.shape, alloc.dtype.itemsize)
            self._count(f"fill {alloc.name}", conflicts // self.group_count)
        elements = elements_of_group(alloc, is_across, self.group, self.group_count)
        places = elements_of(alloc.layout, alloc.shape, alloc.dtype.itemsize)
        slot.elements[places[elements]] = self._filled(values, alloc)[elements]

    def _copy(self, fill: Fill, alloc: Alloc, slot: Slot, values: Callable[[Clock], Array]) -> None:
        """Begin a copy of the copy engine, which lands at a random time."""
        engine = f"copy into {slot.name} of block {self.block.number}"
        clock = self.clock | {engine: self.step + 1}
        slot.check_copy()
        slot.begin_fill(self.clock, self.step, engine, self.step + 1)
        slot.landing += 1
        slot.elements[:] = np.nan
        nbytes = slot.elements.nbytes
        barrier = self._barrier(fill.barrier, self.step)
        self._arrive(barrier, 1, nbytes)

        def land() -> None:
            places = elements_of(alloc.layout, alloc.shape, alloc.dtype.itemsize)
            slot.elements[places] = self._filled(values(clock), alloc)
            slot.landing -= 1
            barrier.bring(clock, nbytes)

        self.machine.under_way.append(land)

    def _filled(self, values: Array, alloc: Alloc) -> Array:
        """Elements as a buffer has them."""
        if alloc.dtype is float32 and alloc.name in self.machine.rounded_buffers:
            return rounded_to_tf32(values)
        return values.astype(alloc.dtype.numpy)

    def _transpose(self, transpose: Transpose) -> None:
        """Transpose this group's squares: the threads of all groups take them in turns."""
        alloc, slot = self.program.alloc(transpose.buffer), self._slot(transpose.buffer, self.step)
        slot.begin_change(self.clock, self.agent, self.clock[self.agent])
        squares = squares_of_group(alloc, transpose.apart, self.group, self.group_count)
        slot.elements[squares] = slot.elements[squares.transpose(0, 2, 1)]

    # Products.

    def _mma(self, mma: Mma) -> None:
        """Begin a product. Factors that the unit reads itself are read when it runs, the left one
        that threads read into registers at once."""
        unit = UNITS[mma.unit]
        left, right = self.program.alloc(mma.left), self.program.alloc(mma.right)
        left_slot, right_slot = self._slot(mma.left, self.step), self._slot(mma.right, self.step)
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

    # Barriers.

    def _wait(self, wait: Wait) -> Waiting:
        barrier, phase = self._phase(wait)
        parity = phase % 2
        when = "the phase before use" if wait.before else "use"
        return Waiting(
            lambda: barrier.completed % 2 == parity,
            f"{when} {self.step} of barrier {wait.barrier}",
        )

    def _phase(self, wait: Wait) -> tuple[BarrierState, int]:
        """The barrier of the current slot, and how many of its phases have ended once the wait is
        over. Hardware compares the last bit of the number alone."""
        barrier = self._barrier(wait.barrier, self.step)
        use_of_slot = self.step // barrier.declared.stages
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

    def _release(self, release: Release) -> Events:
        while self.unreleased > release.but:
            if release.to in self.inside:
                yield from self._sync()
                yield from self._advance(release.to, 1)
            else:
                self._arrive(self._barrier(release.to, self.used - self.unreleased), GROUP_WARPS)
            self.unreleased -= 1

    def _pause(self, pause: Pause, variables: Mapping[str, int]) -> Events:
        """The second group, before its last steps, waits until the first one has resumed it."""
        pauses_here = self.group == 1 and self.part.count >= pause.least
        if not pauses_here or self.steps_left != pause.last:
            return
        yield from self._body(pause.body, variables)
        name = self.role.name
        self.block.pauses[name] += 1
        number = self.block.pauses[name]
        resumes = self.block.resumes
        yield Waiting(lambda: resumes[name] >= number, "the first group's last product")

    def _resume(self, least: int) -> None:
        """The first group, after its last product, lets the second one go on, which may pause
        later. Raises PhaseError if it has not even paused for the time before."""
        if self.group != 0 or self.part.count < least or self.steps_left != 1:
            return
        name = self.role.name
        if self.block.resumes[name] > self.block.pauses[name]:
            raise PhaseError(f"{self.agent} resumes the second group twice before it has paused")
        self.block.resumes[name] += 1

    def _ahead(self, ahead: Ahead, variables: Mapping[str, int]) -> Events:
        """The body for the next step of a tile, if there is one."""
        if self.steps_left > 1:
            self.step += 1
            yield from self._body(ahead.body, variables)
            self.step -= 1

    def _advance(self, role: str, count: int) -> Events:
        for _ in range(count):
            for event in self.inside[role]:
                if isinstance(event, StepEnd):
                    break
                yield event

    def _sync(self) -> Events:
        barrier = self.block.syncs[self.role.name]
        self.synced += 1
        phase = self.synced
        self._arrive(barrier, 1)
        yield Waiting(lambda: barrier.completed >= phase, "the other groups")
        join(self.clock, barrier.seen)

    # Results.

    def _join(self, join_: Join, loop: TileLoop, part: Part) -> Events:
        """Hand over the sums of a later part; or add up those that others have handed over."""
        self._check_drained(f"reads {join_.sums}")
        sums = self.values[join_.sums]
        handed_over = self.machine.partial_sums
        if part.first > 0:
            handed_over[part, self.group] = sums.copy(), dict(self.clock)
            self.clock[self.agent] += 1
            return
        for other in given_parts(loop, part.tile):
            key = other, self.group
            yield Waiting(partial(handed_over.__contains__, key), f"sums of {other}")
            others, clock = handed_over[key]
            sums += others
            join(self.clock, clock)

    def _check_drained(self, what: str) -> None:
        """Raise TileError unless the group has waited for all products that it began."""
        if self.ended < self.used:
            raise TileError(f"tiles {self.program.name}: {self.agent} {what} while products run")

    def _epilogue(self, epilogue: Epilogue, variables: Mapping[str, int]) -> None:
        """Compute and store at once; or compute what is kept, and leave slices of the rest."""
        sums = self.program.sums
        self._check_drained(f"reads {sums.name}")
        columns = sums.shape[1]
        values = {sums.name: self.values[sums.name]}
        if not epilogue.kept:
            self._run_slice(epilogue, epilogue.body, values, range(columns), variables)
            return
        while self.slices:  # of the tile before, if its steps were more than this one's
            self.slices.pop(0)()
        now = head_through(epilogue.body, epilogue.kept)
        self._run_slice(epilogue, now, values, range(columns), variables)
        kept = values[epilogue.kept]
        later = epilogue.body[len(now) :]
        width = columns // epilogue.slices
        for first in range(0, columns, width):
            numbers = range(first, first + width)
            values = {epilogue.kept: kept[:, first : first + width]}
            run = partial(self._run_slice, epilogue, later, values, numbers, variables)
            self.slices.append(run)

    def _run_slice(
        self,
        epilogue: Epilogue,
        part: tuple[Computed | Store, ...],
        values: dict[str, Array],
        columns: range,
        variables: Mapping[str, int],
    ) -> None:
        """Run a part of an epilogue for some columns of the group's rows. `values` are those
        columns of what is known, to which this adds."""
        rows = range(self.group * GROUP_ROWS, (self.group + 1) * GROUP_ROWS)
        body = TileBody(self.machine.arrays, self.clock, variables, (rows, columns))
        body.number(epilogue.sides)
        body.values |= values
        for statement in part:
            if not isinstance(statement, Store):
                values[statement.target] = body.run(statement)
                continue
            value = np.broadcast_to(body.operand(statement.value), body.shape)
            if statement.through:
                value = self._through_lines(statement.through, value, rows, columns)
            body.store(statement, value, self.agent)

    def _through_lines(self, name: str, value: Array, rows: range, columns: range) -> Array:
        """What comes out of the lines of results, which each warp writes and then reads."""
        lines = self.program.alloc(name)
        (slot,) = self.block.slots[name]
        # Matrices of eight rows by 16 bytes of 16-bit results, pairs of others: `RowLines.fill`.
        conflicts = conflicts_of_columns if lines.dtype.itemsize == 2 else conflicts_of_pairs
        self._count(f"store {name}", conflicts(lines.layout, lines.shape, lines.dtype.itemsize))
        return through_lines(lines, slot, value, rows, columns)

    # Memory.

    def _slot(self, buffer: str, step: int) -> Slot:
        slots = self.block.slots[buffer]
        return slots[step % len(slots)]

    def _barrier(self, name: str, step: int) -> BarrierState:
        barriers = self.block.barriers[name]
        return barriers[step % len(barriers)]

    def _count(self, what: str, conflicts: int) -> None:
        self.machine.report.conflicts[what] += conflicts
