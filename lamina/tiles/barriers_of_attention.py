"""Barriers, waits and arrivals of products back to back, derived from fills and uses of buffers.

The rules are those of `barriers.py`, with a pair of barriers for each buffer:

1. Tiles that stay are filled and used together, once for each tile of rows: the barriers
   `full_rows` and `empty_rows` have a phase for each. Tiles that pass by have barriers each:
   inner products use k while v has not come yet.
2. A wait stands before the first product that reads a slot, and an arrival behind the wait for the
   last one. Steps that a group leaves out, but its block brings, it gives back unread.
3. Products are drained before their sums are used: inner ones where computation begins, while
   outer ones may run on; outer ones before their sums are rescaled.
4. A loop that is `overlapped` is taken apart: the inner products of its first step; steps that
   begin inner products and the outer products of the step before; the outer products of the last
   step. Between these, tensor cores multiply while threads compute. A wait for the tiles of the
   current step's outer products stands before the one for the products of the step before: it is a
   branch, above which ptxas moves no wait for products.
5. A ticket is drawn by the producer; the barrier `drawn` tells the others. It has four slots, more
   than the tiles of rows that a producer is ahead of the consumers.

A program of one role, whose threads fill what they multiply, has no barriers:

6. A `sync` stands between the fills of a step and its products, and if tensor cores read by the
   asynchronous proxy a fence before it. With two stages there is no other one: warps that are done
   fill the tiles of the next step, while others still multiply those of this one. With one stage
   another sync ends the step.
7. Tiles that stay are filled behind the sync that tells the ticket, which all threads reach after
   the last products of the rows before.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from lamina.tiles.barriers import require_no_barriers
from lamina.tiles.program import (
    UNITS,
    Arrive,
    Barrier,
    Compute,
    Drain,
    Fence,
    Fill,
    Mma,
    Previous,
    Statement,
    StepLoop,
    StepMask,
    StepsOf,
    Sync,
    TileLoop,
    TileProgram,
    Wait,
    statements_of,
)

FULL_ROWS, EMPTY_ROWS, DRAWN = "full_rows", "empty_rows", "drawn"
TICKETS = 4


def synchronised_attention(program: TileProgram) -> TileProgram:
    """`program` with all statements that order its fills and uses. Raises TileError if it has such
    already."""
    require_no_barriers(program)
    if len(program.roles) == 1:
        return _in_order(program)
    producer, consumers = program.roles
    (filling,) = statements_of(producer.body, TileLoop)
    (using,) = statements_of(consumers.body, TileLoop)
    (steps,) = (loop for loop in filling.body if isinstance(loop, StepLoop))
    passing = [fill.buffer for fill in statements_of(steps.body, Fill)]
    staying = [fill.buffer for fill in statements_of(filling.body, Fill)]
    staying = [name for name in staying if name not in passing]
    stages = {alloc.name: alloc.stages for alloc in program.allocs}
    barriers = [Barrier(DRAWN, TICKETS, 1)]
    barriers.append(Barrier(FULL_ROWS, stages[staying[0]], len(staying)))
    barriers.append(Barrier(EMPTY_ROWS, stages[staying[0]], consumers.warps))
    for name in passing:
        barriers.append(Barrier(full_of(name), stages[name], 1))
        barriers.append(Barrier(empty_of(name), stages[name], consumers.warps))
    filling = _with_waits_of_producer(filling)
    using = _with_waits_of_consumers(using, passing)
    roles = replace(producer, body=(filling,)), replace(consumers, body=(using,))
    return replace(program, barriers=tuple(barriers), roles=roles)


def _in_order(program: TileProgram) -> TileProgram:
    """`program`, of one role, with a sync for each step: see 6."""
    (role,) = program.roles
    (loop,) = statements_of(role.body, TileLoop)
    stages = {program.alloc(name).stages for name in program.passing}
    body: list[Statement] = []
    for statement in loop.body:
        if not isinstance(statement, StepLoop):
            body.append(statement)
            continue
        fills = statements_of(statement.body, Fill)
        products = replace(statement, body=statement.body[len(fills) :])
        step = _Step.of(products, passing=())
        fence = (Fence(),) if step.runs_by_itself else ()
        end = (Sync(),) if stages == {1} else ()
        in_order = (*fills, *fence, Sync(), *step.one_by_one, *end)
        body.append(replace(statement, body=in_order))
    roles = (replace(role, body=(replace(loop, body=tuple(body)),)),)
    return replace(program, roles=roles)


def full_of(buffer: str) -> str:
    """The barrier that tells that a slot of a buffer is full."""
    return f"full_{buffer}"


def empty_of(buffer: str) -> str:
    """The barrier that tells that a slot of a buffer is empty."""
    return f"empty_{buffer}"


def _with_ticket(loop: TileLoop, body: Sequence[Statement]) -> TileLoop:
    assert loop.tickets is not None
    return replace(loop, body=tuple(body), tickets=replace(loop.tickets, barrier=DRAWN))


def _with_waits_of_producer(loop: TileLoop) -> TileLoop:
    """The producer waits before it fills: once for tiles that stay, and for each that passes by."""
    body: list[Statement] = []
    is_empty = False
    for statement in loop.body:
        match statement:
            case Fill():
                if not is_empty:
                    body.append(Wait(EMPTY_ROWS, acquires=True))
                    is_empty = True
                body.append(replace(statement, barrier=FULL_ROWS))
            case StepLoop():
                filled: list[Statement] = []
                for fill in statements_of(statement.body, Fill):
                    filled.append(Wait(empty_of(fill.buffer), acquires=True))
                    filled.append(replace(fill, barrier=full_of(fill.buffer)))
                body.append(replace(statement, body=tuple(filled)))
            case _:
                body.append(statement)
    return _with_ticket(loop, body)


@dataclass(frozen=True)
class _Step:
    """The statements of a step of the consumers: what begins products, and what follows."""

    inner: Mma
    compute: Compute
    take: tuple[Statement, ...]
    outer: Mma
    passing: tuple[str, ...]

    @staticmethod
    def of(loop: StepLoop, passing: Sequence[str]) -> "_Step":
        inner, compute, *take, outer = loop.body
        assert isinstance(inner, Mma)
        assert isinstance(compute, Compute)
        assert isinstance(outer, Mma)
        return _Step(inner, compute, tuple(take), outer, tuple(passing))

    @property
    def runs_by_itself(self) -> bool:
        """Do products run while threads do other things, until these wait?"""
        return UNITS[self.inner.unit].runs_by_itself

    @property
    def one_by_one(self) -> tuple[Statement, ...]:
        """Everything in order, each waited for before the next begins."""
        if not self.runs_by_itself:
            return (self.inner, self.compute, *self.take, self.outer)
        return (
            *self.begin_inner, self.computed(running=0), *self.take,
            *self.begin_outer, *self.end_outer,
        )  # fmt: skip

    def _read(self, mma: Mma) -> list[str]:
        """The buffers of passing tiles that products read."""
        factors = {name for product in mma.products for name in (product.left, product.right)}
        return [name for name in self.passing if name in factors]

    @property
    def begin_inner(self) -> tuple[Statement, ...]:
        """Begin inner products, whose tiles have come."""
        return (*_waits(self._read(self.inner)), self.inner)

    @property
    def wait_for_outer(self) -> tuple[Statement, ...]:
        """Wait for what outer products alone read: inner ones have waited for what both read."""
        read_by_inner = self._read(self.inner)
        return (*_waits([name for name in self._read(self.outer) if name not in read_by_inner]),)

    @property
    def begin_outer(self) -> tuple[Statement, ...]:
        """Begin outer products, whose tiles have come."""
        return (*self.wait_for_outer, self.outer)

    def computed(self, running: int) -> Compute:
        """The arithmetic, which first waits for inner products, while so many others run on, and
        gives their tiles back."""
        read_later = self._read(self.outer)
        given_back = [name for name in self._read(self.inner) if name not in read_later]
        ready = (Drain(running), *_arrivals(given_back))
        return replace(self.compute, body=(*ready, *self.compute.body))

    @property
    def end_outer(self) -> tuple[Statement, ...]:
        """Wait for outer products, and give their tiles back."""
        return (Drain(0), *_arrivals(self._read(self.outer)))

    @property
    def skipped(self) -> tuple[Statement, ...]:
        """What a group does that leaves the step out."""
        return (*_waits(self.passing), *_arrivals(self.passing))


def _with_waits_of_consumers(loop: TileLoop, passing: Sequence[str]) -> TileLoop:
    body: list[Statement] = []
    has_masks = bool(statements_of(loop.body, StepMask))
    for statement in loop.body:
        if not isinstance(statement, StepLoop):
            body.append(statement)
            continue
        step = _Step.of(statement, passing)

        def steps(
            which: StepsOf, inside: tuple[Statement, ...], of: StepLoop = statement
        ) -> StepLoop:
            return replace(of, body=inside, which=which)

        body.append(Wait(FULL_ROWS))
        if has_masks:
            body.append(steps(StepsOf.SKIPPED_BEFORE, step.skipped))
        if statement.which == StepsOf.OVERLAPPED:
            first = (*step.begin_inner, step.computed(running=0), *step.take)
            others = (
                *step.begin_inner, Previous(step.begin_outer), step.computed(running=1),
                *step.wait_for_outer, Previous(step.end_outer), *step.take,
            )  # fmt: skip
            last = (*step.begin_outer, *step.end_outer)
            body += [steps(StepsOf.FIRST, first), steps(StepsOf.OTHERS, others)]
            body += [Arrive(EMPTY_ROWS), steps(StepsOf.LAST, last)]
        else:
            body += [steps(StepsOf.COMPUTED, step.one_by_one), Arrive(EMPTY_ROWS)]
        if has_masks:
            body.append(steps(StepsOf.SKIPPED_BEHIND, step.skipped))
    return _with_ticket(loop, body)


def _waits(buffers: Sequence[str]) -> list[Statement]:
    return [Wait(full_of(name)) for name in buffers]


def _arrivals(buffers: Sequence[str]) -> list[Statement]:
    return [Arrive(empty_of(name)) for name in buffers]
