"""What the interpreter of tile programs knows of memory: who wrote and read what, and whether the
next access comes after it.

Order is told by vector clocks. Each agent, such as a warpgroup, numbers the intervals
between its synchronisations. Its clock says up to which interval it has seen the others; it joins
theirs where it waits for a barrier at which they have arrived. An access comes after another one if
the clock of its agent has the interval of the other one.

What runs by itself, a copy of the copy engine or a product, is an agent of its own. It has seen
what the thread that began it had seen, and who waits for it sees what it does.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lamina.tiles.program import (
    Alloc,
    Barrier,
    TileError,
    TileParameter,
)
from lamina.tiles.values import (
    Index,
    View,
)

Clock = dict[str, int]
Array = Any  # numpy.ndarray
NOT_WRITTEN = float("nan")


class UnorderedError(TileError):
    """Two accesses of one place, of which at least one writes, without an order."""


class UnfilledError(TileError):
    """A slot that is read before its fill has landed."""


class ProxyError(TileError):
    """What threads have written is read by the asynchronous proxy without a fence."""


class PhaseError(TileError):
    """A barrier that lets a waiter pass in another phase than that of its use."""


class DeadlockError(TileError):
    """Nobody can go on."""


def join(clock: Clock, other: Mapping[str, int]) -> None:
    """Let `clock` have seen what `other` has."""
    for agent, interval in other.items():
        clock[agent] = max(clock.get(agent, 0), interval)


def first_unseen(clock: Mapping[str, int], accesses: Mapping[str, int]) -> str | None:
    """An agent of some accesses that `clock` has not seen; None if they all come before."""
    for agent, interval in accesses.items():
        if clock.get(agent, 0) < interval:
            return agent
    return None


@dataclass
class BarrierState:
    """A barrier of one slot. completed: phases that have ended. pending: arrivals that the phase
    waits for. bytes: that the copy engine still brings in it."""

    declared: Barrier
    completed: int = 0
    pending: int = 0
    bytes: int = 0
    arriving: Clock = field(default_factory=dict)  # what those who arrived in this phase have seen
    seen: Clock = field(default_factory=dict)  # the same, of all phases that have ended

    def __post_init__(self) -> None:
        self.pending = self.declared.arrivals

    def arrive(self, clock: Mapping[str, int], count: int, expected_bytes: int = 0) -> None:
        """`count` arrivals by one agent, which may say how many bytes the copy engine brings."""
        if count > self.pending:
            name, arrivals = self.declared.name, self.declared.arrivals
            raise PhaseError(f"barrier {name}: more than {arrivals} arrivals in a phase")
        self.pending -= count
        self.bytes += expected_bytes
        self._update(clock)

    def bring(self, clock: Mapping[str, int], count: int) -> None:
        """The copy engine has brought bytes."""
        self.bytes -= count
        self._update(clock)

    def _update(self, clock: Mapping[str, int]) -> None:
        join(self.arriving, clock)
        if self.pending == 0 and self.bytes == 0:
            self.completed += 1
            self.pending = self.declared.arrivals
            join(self.seen, self.arriving)
            self.arriving = {}


@dataclass
class Slot:
    """The memory of one stage of a buffer.

    elements: in the order of memory, NaN before they are written
    writes: the interval of each agent in which it wrote, in the last fill
    changes: the same of those that have changed what was filled
    reads: the same of those that have read since
    fill: the number of the fill that wrote last
    landing: copies that have not landed
    unfenced: agents whose writes are not visible to the asynchronous proxy yet
    """

    name: str
    elements: Array
    writes: Clock = field(default_factory=dict)
    changes: Clock = field(default_factory=dict)
    reads: Clock = field(default_factory=dict)
    fill: int = -1
    landing: int = 0
    unfenced: set[str] = field(default_factory=set)

    @staticmethod
    def of(alloc: Alloc, stage: int) -> "Slot":
        """A slot that nobody has written."""
        rows, length = alloc.shape
        elements = np.full(rows * length, NOT_WRITTEN, alloc.dtype.numpy)
        return Slot(f"{alloc.name}[{stage}]", elements)

    def begin_fill(self, clock: Mapping[str, int], number: int, agent: str, interval: int) -> None:
        """An agent begins to write its part of fill `number`. Others may write theirs at the same
        time. Raises UnorderedError if it may come before reads or writes of the fill before."""
        if number != self.fill:
            if self.landing:
                raise UnorderedError(f"{self.name} is filled while an earlier fill is under way")
            accesses_by_kind = {
                "read": self.reads, "written": self.writes, "changed": self.changes,
            }  # fmt: skip
            for what, accesses in accesses_by_kind.items():
                other = first_unseen(clock, accesses)
                if other is not None:
                    raise UnorderedError(f"{self.name} is filled while it is {what} by {other}")
            self.writes, self.changes, self.reads, self.unfenced = {}, {}, {}, set()
            self.fill = number
        self.writes[agent] = interval

    def begin_change(self, clock: Mapping[str, int], agent: str, interval: int) -> None:
        """An agent begins to change its part of what was filled; others may change theirs at the
        same time. Raises TileError unless it comes after the fill, and before all reads."""
        self._check_filled(clock)
        other = next(iter(self.reads), None)
        if other is not None:
            raise UnorderedError(f"{self.name} is changed after {other} has read it")
        self.changes[agent] = interval
        self.unfenced.add(agent)

    def check_copy(self) -> None:
        """Raise ProxyError if the copy engine cannot come after what threads have changed."""
        if self.unfenced:
            writers = ", ".join(sorted(self.unfenced))
            raise ProxyError(f"{self.name} is filled by the async proxy; no fence by {writers}")

    def _check_filled(self, clock: Mapping[str, int]) -> None:
        if self.landing or self.fill < 0:
            raise UnfilledError(f"{self.name} is read before its fill has landed")
        other = first_unseen(clock, self.writes)
        if other is not None:
            raise UnorderedError(f"{self.name} is read while {other} writes it")

    def check_read(self, clock: Mapping[str, int], proxy: str) -> None:
        """Raise TileError unless an agent of this clock can read all that was written."""
        self._check_filled(clock)
        other = first_unseen(clock, self.changes)
        if other is not None:
            raise UnorderedError(f"{self.name} is read while {other} changes it")
        if proxy == "async" and self.unfenced:
            writers = ", ".join(sorted(self.unfenced))
            raise ProxyError(f"{self.name} is read by the async proxy; no fence by {writers}")


class GlobalArray:
    """An array of the kernel, and who wrote each element of it in which interval."""

    def __init__(self, parameter: TileParameter, elements: Array) -> None:
        self.parameter, self.elements = parameter, elements
        self._agents: list[str] = []
        self._writer = np.full(elements.size, -1, np.int32)
        self._interval = np.zeros(elements.size, np.int64)

    def check(self, places: Array, clock: Mapping[str, int], what: str) -> None:
        """Raise UnorderedError if an agent of this clock may access places before their last
        write."""
        if not self._agents:
            return
        for number in np.unique(self._writer[places]):
            if number < 0:
                continue
            agent = self._agents[number]
            last = int(self._interval[places][self._writer[places] == number].max())
            if clock.get(agent, 0) < last:
                name = self.parameter.name
                raise UnorderedError(f"{name} is {what} and written by {agent} in no order")

    def require_inside(self, places: Array) -> None:
        """Raise TileError unless the array has all places."""
        low, high = int(places.min()), int(places.max())
        if low < 0 or high >= self.elements.size:
            name, size = self.parameter.name, self.elements.size
            raise TileError(f"{name} has {size} elements; a place is {low if low < 0 else high}")

    def write(self, places: Array, values: Array, agent: str, clock: Mapping[str, int]) -> None:
        """Write elements, and remember who did."""
        self.check(places, clock, "written")
        if agent not in self._agents:
            self._agents.append(agent)
        self.elements[places] = values
        self._writer[places] = self._agents.index(agent)
        self._interval[places] = clock[agent]


def value_of(index: Index, values: Mapping[str, Array]) -> Array:
    """An index where its terms have these values, numbers or arrays."""
    return index.constant + sum(factor * values[name] for name, factor in index.terms)


@dataclass(frozen=True)
class Tile:
    """The places of a tile in an array, and which of its elements there are."""

    places: Array
    inside: Array

    @staticmethod
    def of(view: View, variables: Mapping[str, int], ranges: tuple[range, range]) -> "Tile":
        """Of a view, where the variables of loops have these values, the part in `ranges` of the
        rows and columns of the tile."""
        places: Array = np.int64(value_of(view.offset, variables))
        inside: Array = np.True_
        for number, (side, numbers) in enumerate(zip(view.sides, ranges, strict=True)):
            shape = (-1, 1) if number == 0 else (1, -1)
            index = value_of(side.first, variables) + np.array(numbers)
            places = places + side.stride * index.reshape(shape)
            inside = inside & (index < side.end).reshape(shape)
        return Tile(*np.broadcast_arrays(places, inside))

    def read(self, array: GlobalArray, clock: Mapping[str, int]) -> Array:
        """Its elements, zeros beyond the ends."""
        places = np.where(self.inside, self.places, 0)
        array.check(places[self.inside], clock, "read")
        values = array.elements[places]
        return np.where(self.inside, values, np.zeros((), values.dtype))

    def write(
        self, array: GlobalArray, values: Array, agent: str, clock: Mapping[str, int]
    ) -> None:
        """Write those that there are."""
        array.write(self.places[self.inside], values[self.inside], agent, clock)


def rounded_to_tf32(values: Array) -> Array:
    """Float32 rounded to the 11 bits of tf32, ties away from zero. 1 + 2**-11 lies between 1 and
    1 + 2**-10, and becomes the latter."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    return ((bits + np.uint32(1 << 12)) & np.uint32(0xFFFFE000)).view(np.float32)
