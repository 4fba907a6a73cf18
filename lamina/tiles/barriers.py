"""Barriers, waits, arrivals and fences, derived from the fills and the uses of buffers.

A program as a schedule says it has fills in one role, the producer, and an mma that uses the
buffers in another one, the consumers.
`synchronised` adds what orders them. For a buffer of 4 stages, filled by the copy engine for a
role of its own, and used by two warpgroups that leave one product running:

    the producer, in a step                  the consumers, in a step
      acquire empty                            wait full
      fill left <- ... by tma to full          mma sums += left * right
      fill right <- ... by tma to full         drain 1
                                               release empty but 1
                                             and after the last step
                                               drain 0
                                               release empty but 0

The rules:

1. The barrier `full` has an arrival for each fill by the copy engine, and `empty` one for each warp
   that uses the buffer. Both have a phase for each use of a slot; a slot is that of the step's
   number, counted over all tiles of the block, modulo the stages.
2. A slot is filled once all its readers of the use before have ended: asynchronous ones, by which
   products run on, end with the drain that says so, and not where they are issued. So a release
   comes after a drain, and leaves as many slots as products may still run. Products that do not run
   by themselves have ended where they are issued, and need no drain.
3. Where the producer runs inside the consumers, their threads advance it: first by as many steps as
   there are stages, then by one for each slot that is released, behind a sync, as all
   threads have to be done with the slot. What threads fill themselves is there after a sync; if the
   unit reads by the asynchronous proxy, each thread makes its own part visible before that.
4. What changes tiles in their slots, such as transposes, is done a step ahead, while other threads
   still multiply: first before the steps of a tile, then behind each product. Another sync is
   between it and the next product: that of the release, or, with one stage, which is released
   before the next step can begin, one of its own. A fence makes it come before the next copy by the
   copy engine into the slot.
5. Two groups that wait for the copy engine alone do not wait for each other. Before its last steps
   of a tile, for which the buffers have the tiles, the second one gives its slots back and pauses
   until the first one has begun its last product: one multiplies while the other one stores. Tiles
   with fewer steps than stages have no pause. Without this limit group 0 can finish a whole further
   tile and signal a second time before group 1 has paused once.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod

from lamina.tiles.program import (
    UNITS,
    Advance,
    Arrive,
    Barrier,
    Drain,
    Fence,
    Fill,
    Mma,
    NextStep,
    Pause,
    Previous,
    Product,
    Release,
    Resume,
    Role,
    Statement,
    StepLoop,
    Sync,
    TileError,
    TileLoop,
    TileProgram,
    Transpose,
    Unit,
    Wait,
    statements,
    statements_of,
)

FULL, EMPTY = "full", "empty"
# Last steps of a tile before which a group pauses, at most: they last as long as stores.
MAX_LEAD = 4
# The statements that order fills and uses, and say whose step they belong to.
DERIVED = (
    Wait, Arrive, Release, Pause, Resume, NextStep, Previous, Advance, Drain, Fence, Sync
)  # fmt: skip
# What becomes of a loop over steps, and what stands before and after it.
_InStep = Callable[[StepLoop], tuple[Statement, ...]]


def require_no_barriers(program: TileProgram) -> None:
    """Raise TileError if a program has statements already that order its fills and uses."""
    every = [statement for role in program.roles for statement in statements(role.body)]
    if program.barriers or any(isinstance(statement, DERIVED) for statement in every):
        raise TileError(f"tiles {program.name}: it has barriers already")


def synchronised(program: TileProgram) -> TileProgram:
    """`program` with all statements that order its fills and uses. Raises TileError if it has such
    already, or if no two roles fill and use the same buffers."""
    require_no_barriers(program)
    pair = _pair(program)
    barriers: list[Barrier] = []
    if pair.engine_fills:
        barriers.append(Barrier(FULL, pair.stages, len(pair.engine_fills)))
    if not pair.producer.inside:
        barriers.append(Barrier(EMPTY, pair.stages, pair.consumers.warps))
    changed = {
        pair.producer.name: _synchronised_producer(pair),
        pair.consumers.name: _synchronised_consumers(pair),
    }
    roles = tuple(changed[role.name] for role in program.roles)
    return replace(program, barriers=tuple(barriers), roles=roles)


@dataclass(frozen=True)
class _Pair:
    """The role that fills buffers, the one that uses them in its mma, and how many stages these
    have."""

    producer: Role
    consumers: Role
    fills: tuple[Fill, ...]
    mma: Mma
    product: Product
    stages: int

    @property
    def unit(self) -> Unit:
        """What multiplies."""
        return UNITS[self.mma.unit]

    @property
    def engine_fills(self) -> list[Fill]:
        """Those by the copy engine."""
        return [fill for fill in self.fills if fill.agent == "tma"]

    @property
    def needs_fence(self) -> bool:
        """Do threads fill a buffer that the unit reads by the asynchronous proxy?"""
        proxies = {self.product.left: self.unit.left, self.product.right: self.unit.right}
        by_threads = [fill for fill in self.fills if fill.agent == "threads"]
        return any(proxies[fill.buffer] == "async" for fill in by_threads)


def _pair(program: TileProgram) -> _Pair:
    """The two roles of a program; raises TileError if there are others."""
    filling = [role for role in program.roles if statements_of(role.body, Fill)]
    using = [role for role in program.roles if statements_of(role.body, Mma)]
    if len(filling) != 1 or len(using) != 1 or {*filling, *using} != {*program.roles}:
        raise TileError(f"tiles {program.name}: one role fills, and one other uses the buffers")
    (producer,), (consumers,) = filling, using
    fills = tuple(statements_of(producer.body, Fill))
    (mma,) = statements_of(consumers.body, Mma)
    (product,) = mma.products
    filled = sorted(fill.buffer for fill in fills)
    if filled != sorted((product.left, product.right)):
        raise TileError(f"tiles {program.name}: {', '.join(filled)} are filled, others are used")
    return _Pair(producer, consumers, fills, mma, product, program.alloc(product.left).stages)


def _synchronised_producer(pair: _Pair) -> Role:
    """The producer, with a wait before each step, unless it runs inside the consumers; the copy
    engine reports to the barrier."""
    waits = () if pair.producer.inside else (Wait(EMPTY, acquires=True),)

    def in_step(loop: StepLoop) -> tuple[Statement, ...]:
        return (replace(loop, body=(*waits, *map(_reporting, loop.body))),)

    return replace(pair.producer, body=_in_step_loops(pair.producer.body, in_step))


def _reporting(statement: Statement) -> Statement:
    """The same statement; a fill by the copy engine with the barrier that it reports to."""
    if isinstance(statement, Fill) and statement.agent == "tma":
        return replace(statement, barrier=FULL)
    return statement


def _synchronised_consumers(pair: _Pair) -> Role:
    """The consumers, with what comes before and after each mma, and after the steps of a tile."""
    is_inside = bool(pair.producer.inside)
    to = pair.producer.name if is_inside else EMPTY
    before: list[Statement] = []
    if pair.engine_fills:
        before.append(Wait(FULL))
    if pair.needs_fence:
        before.append(Fence())
    if len(pair.engine_fills) < len(pair.fills):
        before.append(Sync())
    transposes = statements_of(pair.consumers.body, Transpose)
    if transposes:
        in_step = _changing_ahead(pair, (*before, *transposes), to)
    elif pair.unit.runs_by_itself:
        in_step = _running_on(pair, before, to)
    else:
        in_step = _one_by_one(before, to)
    body = _in_step_loops(pair.consumers.body, in_step)
    first = (Advance(pair.producer.name, pair.stages),) if is_inside else ()
    return replace(pair.consumers, body=(*first, *body))


def _running_on(pair: _Pair, before: Sequence[Statement], to: str) -> _InStep:
    """Steps of products that run by themselves: see 2. and 5."""
    is_inside, running = bool(pair.producer.inside), pair.mma.running

    def in_step(loop: StepLoop) -> tuple[Statement, ...]:
        steps = prod(extent.size for extent in loop.over)
        products = loop.body
        if pair.consumers.warpgroups == 2 and not is_inside and steps >= pair.stages:
            pause = Pause(min(pair.stages, MAX_LEAD), pair.stages, (Drain(0), Release(to, 0)))
            products = (pause, *products, Resume(pair.stages))
        body = (*before, *products, Drain(running), Release(to, running))
        return replace(loop, body=body), Drain(0), Release(to, 0)

    return in_step


def _one_by_one(before: Sequence[Statement], to: str) -> _InStep:
    """Steps of products that have ended where they are issued."""

    def in_step(loop: StepLoop) -> tuple[Statement, ...]:
        return (replace(loop, body=(*before, *loop.body, Release(to, 0))),)

    return in_step


def _changing_ahead(pair: _Pair, changes: Sequence[Statement], to: str) -> _InStep:
    """Steps whose tiles are changed before products read them: see 4."""
    if pair.engine_fills:
        changes = (*changes, Fence())

    def in_step(loop: StepLoop) -> tuple[Statement, ...]:
        products = tuple(part for part in loop.body if not isinstance(part, Transpose))
        release, ahead = Release(to, 0), NextStep(tuple(changes))
        after = (release, ahead, Sync()) if pair.stages == 1 else (ahead, release)
        return *changes, Sync(), replace(loop, body=(*products, *after))

    return in_step


def _in_step_loops(body: tuple[Statement, ...], in_step: _InStep) -> tuple[Statement, ...]:
    """`body` with what `in_step` makes of each loop over steps."""
    changed: list[Statement] = []
    for statement in body:
        if isinstance(statement, StepLoop):
            changed += in_step(statement)
        elif isinstance(statement, TileLoop):
            changed.append(replace(statement, body=_in_step_loops(statement.body, in_step)))
        else:
            changed.append(statement)
    return tuple(changed)
