"""What the coroutines of an interpreted tile program share: memory, barriers, and what runs by
itself."""

import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from lamina.tiles.memory import BarrierState, Clock, GlobalArray, Slot
from lamina.tiles.orders import Part
from lamina.tiles.program import UNITS, Barrier, TileProgram

Array = Any  # numpy.ndarray


@dataclass
class Report:
    """conflicts: accesses of shared memory more than without bank conflicts, by kind of statement
    and buffer: ``{"mma left": 0}``."""

    conflicts: Counter[str] = field(default_factory=Counter)


class Machine:
    """All blocks of a program."""

    def __init__(self, program: TileProgram, arrays: Mapping[str, Array], seed: int) -> None:
        self.program = program
        self.report = Report()
        self.random = random.Random(seed)
        self.arrays = {
            parameter.name: GlobalArray(parameter, arrays[parameter.name])
            for parameter in program.parameters
        }
        self.partial_sums: dict[tuple[Part, int], tuple[Array, Clock]] = {}  # by part and group
        rounding = [mma for mma in program.mmas if UNITS[mma.unit].rounds]
        rounded = [product for mma in rounding for product in mma.products]
        self.rounded_buffers = {name for each in rounded for name in (each.left, each.right)}
        # What runs by itself: copies and products that have begun.
        self.under_way: list[Callable[[], None]] = []
        self.drawn = 0  # tickets that blocks have drawn, beyond the first one of each


class ThreadBlock:
    """One block: its shared memory and its barriers."""

    def __init__(self, machine: Machine, number: int) -> None:
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
        self.syncs = {  # of all groups of a role
            role.name: BarrierState(Barrier("sync", 1, max(role.warpgroups, 1)))
            for role in program.roles
        }
        self.pauses: Counter[str] = Counter()  # of the second group of a role, so far
        self.resumes: Counter[str] = Counter()  # by the first one
        # The ticket in each slot of its barrier, and which one of the block it is.
        self.tickets: dict[int, tuple[int, int]] = {}
