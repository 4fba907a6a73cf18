"""A coroutine of an interpreted tile program: what an agent does, statement by statement."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from lamina.core.dtypes import float32
from lamina.tiles.agents import Agent
from lamina.tiles.arithmetic import (
    TileBody,
    digits,
    elements_of_group,
    elements_of_source,
    head_through,
    squares_of_group,
    through_lines,
)
from lamina.tiles.events import GO_ON, Events, StepEnd, Waiting
from lamina.tiles.layouts import conflicts_of_columns, conflicts_of_pairs, elements_of
from lamina.tiles.machine import ThreadBlock
from lamina.tiles.memory import (
    Clock,
    PhaseError,
    Slot,
    join,
    rounded_to_tf32,
)
from lamina.tiles.orders import Part, StepRanges, given_parts, parts_of, tile_of_ticket
from lamina.tiles.program import (
    WARPGROUP_ROWS,
    WARPGROUP_WARPS,
    Advance,
    Alloc,
    Arrive,
    Compute,
    Drain,
    Epilogue,
    Fence,
    Fill,
    Join,
    Mma,
    NextStep,
    Pause,
    Previous,
    Release,
    Rescale,
    Resume,
    Role,
    Set,
    Statement,
    StepLoop,
    StepMask,
    Sync,
    Tickets,
    TileError,
    TileLoop,
    TileStore,
    Transpose,
    Wait,
    statements_of,
)
from lamina.tiles.values import (
    Computed,
)

Array = Any  # numpy.ndarray


class Worker(Agent):
    """A coroutine. A role that runs inside its role is another one, which it advances."""

    def __init__(self, block: ThreadBlock, role: Role, group: int, agent: str) -> None:
        super().__init__(block, role, group, agent)
        self.inside = {
            other.name: self._inside(other)
            for other in self.program.roles
            if other.inside == role.name
        }

    def _inside(self, role: Role) -> Events:
        """The coroutine of a role that runs on the threads of this one."""
        worker = Worker(self.block, role, self.group, self.agent)
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
                case TileLoop(tickets=Tickets()):
                    yield from self._tickets(statement, variables)
                case TileLoop():
                    yield from self._tiles(statement, variables)
                case StepLoop():
                    yield from self._steps_in_range(statement, variables)
                case Previous(body=previous):
                    self.number -= 1
                    yield from self._body(previous, variables)
                    self.number += 1
                case Arrive(barrier):
                    self._arrive(self._barrier(barrier, self.number), WARPGROUP_WARPS)
                case Compute(body=body):
                    waits = tuple(part for part in body if isinstance(part, (Drain, Arrive)))
                    yield from self._body(waits, variables)
                    self._compute(statement, variables)
                case Set() | Rescale():
                    self._registers().run(statement)
                case StepMask():
                    pass
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
                case NextStep():
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
        self.part = part
        for number in range(part.first, part.first + part.count):
            self.steps_left = part.first + part.count - number
            yield from self._body(loop.body, {**variables, **digits(loop.over, number)})
            if self.slices:
                self.slices.pop(0)()
            self.step += 1
            self.number = self.step
            if self.role.inside:
                yield StepEnd()

    def _tickets(self, loop: TileLoop, variables: Mapping[str, int]) -> Events:
        """The tiles that the block takes by tickets."""
        assert loop.tickets is not None
        masks = statements_of(loop.body, StepMask)
        while True:
            self.number = self.taken
            yield from self._take_ticket(loop, loop.tickets)
            slot = self._slot_of_ticket(loop.tickets)
            number, ticket = self.block.tickets[slot]
            if number != self.taken:
                raise PhaseError(f"{self.agent} has ticket {number} of its block, not {self.taken}")
            if ticket >= loop.tiles:
                return
            tile = tile_of_ticket(loop.tickets, loop.tiles, ticket)
            inside = {**variables, **digits(loop.over, tile)}
            self.ranges = StepRanges.of(masks, loop.steps, inside, self.group, self.group_count)
            yield from self._body(loop.body, inside)
            self.done += len(self.ranges.brought)
            self.taken += 1

    def _slot_of_ticket(self, tickets: Tickets) -> int:
        if not tickets.barrier:
            return 0
        return self.taken % self.program.barrier(tickets.barrier).stages

    def _take_ticket(self, loop: TileLoop, tickets: Tickets) -> Events:
        """Draw the next ticket in the role that fills, and tell it to the others."""
        if not tickets.barrier:
            if self.group == 0:
                self._draw_ticket(loop, tickets)
            yield from self._sync()
        elif statements_of(self.role.body, Fill):
            self._draw_ticket(loop, tickets)
            self._arrive(self._barrier(tickets.barrier, self.taken), 1)
        else:
            wait = Wait(tickets.barrier)
            yield self._wait(wait)
            self._pass(wait)

    def _draw_ticket(self, loop: TileLoop, tickets: Tickets) -> None:
        ticket = self.block.number
        if self.taken:
            ticket = loop.blocks + self.machine.drawn
            self.machine.drawn += 1
        self.block.tickets[self._slot_of_ticket(tickets)] = self.taken, ticket

    def _steps_in_range(self, loop: StepLoop, variables: Mapping[str, int]) -> Events:
        for step in self.ranges.steps_of(loop.which):
            self.number = self.done + step - self.ranges.brought.start
            yield from self._body(loop.body, {**variables, **digits(loop.over, step)})
        self.number = self.taken

    # Fills.

    def _fill(self, fill: Fill, variables: Mapping[str, int]) -> None:
        alloc = self.program.alloc(fill.buffer)
        slot = self._slot_of(fill.buffer)
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
        slot.begin_fill(self.clock, self.number, self.agent, self.clock[self.agent])
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
        clock = self.clock | {engine: self.number + 1}
        slot.check_copy()
        slot.begin_fill(self.clock, self.number, engine, self.number + 1)
        slot.landing += 1
        slot.elements[:] = np.nan
        nbytes = slot.elements.nbytes
        barrier = self._barrier(fill.barrier, self.number)
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
        alloc, slot = self.program.alloc(transpose.buffer), self._slot_of(transpose.buffer)
        slot.begin_change(self.clock, self.agent, self.clock[self.agent])
        squares = squares_of_group(alloc, transpose.apart, self.group, self.group_count)
        slot.elements[squares] = slot.elements[squares.transpose(0, 2, 1)]

    # Roles and groups that wait for each other.

    def _release(self, release: Release) -> Events:
        while self.unreleased > release.but:
            if release.to in self.inside:
                yield from self._sync()
                yield from self._advance(release.to, 1)
            else:
                barrier = self._barrier(release.to, self.used - self.unreleased)
                self._arrive(barrier, WARPGROUP_WARPS)
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

    def _ahead(self, ahead: NextStep, variables: Mapping[str, int]) -> Events:
        """The body for the next step of a tile, if there is one."""
        if self.steps_left > 1:
            self.number += 1
            yield from self._body(ahead.body, variables)
            self.number -= 1

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

    def _epilogue(self, epilogue: Epilogue, variables: Mapping[str, int]) -> None:
        """Compute and store at once; or compute what is kept, and leave slices of the rest."""
        sums = self.program.sums
        self._check_drained(f"reads {sums.name}")
        columns = sums.shape[1]
        values = dict(self.values)
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
        part: tuple[Computed | TileStore, ...],
        values: dict[str, Array],
        columns: range,
        variables: Mapping[str, int],
    ) -> None:
        """Run a part of an epilogue for some columns of the group's rows. `values` are those
        columns of what is known, to which this adds."""
        rows = range(self.group * WARPGROUP_ROWS, (self.group + 1) * WARPGROUP_ROWS)
        body = TileBody(self.machine.arrays, self.clock, variables, (rows, columns))
        body.number(epilogue.sides)
        body.values |= values
        for statement in part:
            if not isinstance(statement, TileStore):
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
