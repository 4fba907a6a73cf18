"""Runs tile programs on NumPy arrays, without a GPU.

Each role of each block is a coroutine; one of eight warps is two, a warpgroup each. A seeded
generator of random numbers decides who goes on next, statement by statement. Copies of the copy
engine land at a random later time, and products read their factors at a random time before
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

from collections.abc import Mapping
from typing import Any

from lamina.tiles.events import GO_ON, Waiting
from lamina.tiles.machine import Machine, Report, ThreadBlock
from lamina.tiles.memory import DeadlockError
from lamina.tiles.program import Fill, TileError, TileLoop, TileProgram, statements_of
from lamina.tiles.worker import Worker

Array = Any  # numpy.ndarray


def interpret(program: TileProgram, arrays: Mapping[str, Array], seed: int = 0) -> Report:
    """Run a program with its barriers on `arrays`, flat ones by the names of parameters; those that
    it writes are changed in place. Raises TileError as the module says, and for a program whose
    barriers are not derived yet."""
    fills = [fill for role in program.roles for fill in statements_of(role.body, Fill)]
    if any(fill.agent == "tma" and not fill.barrier for fill in fills):
        raise TileError(f"tiles {program.name}: a copy reports to no barrier; call synchronised")
    machine = Machine(program, arrays, seed)
    _run(machine, _workers(machine))
    return machine.report


def _workers(machine: Machine) -> list[Worker]:
    """A coroutine for each group of each role of each block."""
    program = machine.program
    loops = (loop for role in program.roles for loop in statements_of(role.body, TileLoop))
    (blocks,) = {loop.blocks for loop in loops}
    workers: list[Worker] = []
    for number in range(blocks):
        block = ThreadBlock(machine, number)
        for role in program.roles:
            if role.inside:
                continue
            for group in range(max(role.warpgroups, 1)):
                agent = f"block {number} {role.name} {group}"
                workers.append(Worker(block, role, group, agent))
    return workers


def _run(machine: Machine, workers: list[Worker]) -> None:
    """Run all coroutines to their end, and whatever is under way then."""
    waiting = dict.fromkeys(range(len(workers)), GO_ON)
    running = {number: worker.run() for number, worker in enumerate(workers)}
    while waiting or machine.under_way:
        ready = [number for number, event in waiting.items() if event.is_over()]
        choices = len(ready) + len(machine.under_way)
        if not choices:
            stuck = "; ".join(
                f"{workers[number].agent} waits for {event.text}"
                for number, event in waiting.items()
            )
            raise DeadlockError(f"tiles {machine.program.name}: nobody can go on: {stuck}")
        choice = machine.random.randrange(choices)
        if choice >= len(ready):
            machine.under_way.pop(choice - len(ready))()
            continue
        number = ready[choice]
        event = next(running[number], None)
        if event is None:
            del waiting[number]
        elif isinstance(event, Waiting):
            waiting[number] = event
