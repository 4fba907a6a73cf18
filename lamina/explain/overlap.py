"""What a program on several GPUs waits for: its two streams, event by event.

Kernels run on one stream, collectives on another, in the order of the program; from the seconds of
each, predicted or measured alone, follows when each begins and ends:

- A collective begins when the kernels before it are done, and the collective before it.
- A kernel begins when the kernel before it is done, and the collectives that it has to wait for.
- A product in tiles has about a block for each multiprocessor, with an equal part of the work. One
  that begins while a collective holds some of them ends later, by the time that those are held. So
  does a collective that would begin within a product: its blocks have no room until that ends.
- Any other kernel does without the multiprocessors of a collective, and gets slower by their share.

What is left out: memory and caches that both use, and one process that waits for another.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lamina.loops.nest import Nest

if TYPE_CHECKING:
    from lamina.compiled import Planned
    from lamina.runtime.buffer import Launch

# Multiprocessors of an H200 that a collective of NCCL holds, of 132: an estimate.
HELD = 20 / 132


@dataclass(frozen=True)
class Part:
    """A kernel or a collective by itself.

    seconds: alone. exchange: its number, of a collective; else -1. after: the last collective that
    a kernel has to wait for; -1 for none. fills: whether it needs all multiprocessors at once."""

    name: str
    seconds: float
    exchange: int = -1
    after: int = -1
    fills: bool = False


@dataclass
class Exchanged:
    """A collective of a run, in seconds from its beginning.

    ready: when its operand is there. held: how much later kernels end as it holds multiprocessors.
    awaited: for how long kernels wait for what it brings."""

    part: Part
    ready: float
    begin: float
    end: float
    held: float = 0.0
    awaited: float = 0.0


@dataclass(frozen=True)
class Timeline:
    """A run of a program. seconds: of all of it. of_kernels: of its kernels alone."""

    seconds: float
    of_kernels: float
    exchanged: tuple[Exchanged, ...]

    def __str__(self) -> str:
        awaited = sum(exchange.awaited for exchange in self.exchanged)
        held = sum(exchange.held for exchange in self.exchanged)
        lines = [
            f"two streams: {_ms(self.seconds)}, {_ms(self.of_kernels)} of kernels alone, "
            f"{_ms(awaited)} in which they wait for results of collectives, {_ms(held)} for "
            f"multiprocessors"
        ]
        lines += [
            f"  {exchange.part.name:<28} ready {_ms(exchange.ready)}, "
            f"begins {_ms(exchange.begin)}, takes {_ms(exchange.end - exchange.begin)}, "
            f"held up kernels {_ms(exchange.held)}, awaited {_ms(exchange.awaited)}"
            for exchange in self.exchanged
        ]
        return "\n".join(lines)


def timeline(parts: Sequence[Part]) -> Timeline:
    """The run of a program of these parts, in order."""
    run = _Run()
    for part in parts:
        if part.exchange >= 0:
            run.exchange(part)
        else:
            run.kernel(part)
    return run.result()


class _Run:
    """Follows both streams, one part after the other."""

    def __init__(self) -> None:
        self.time = 0.0  # when the last kernel ends
        self.of_kernels = 0.0
        self.begun: list[Exchanged] = []
        self.waiting: deque[Exchanged] = deque()

    def exchange(self, part: Part) -> None:
        """A collective that is ready now."""
        self.waiting.append(Exchanged(part, self.time, self.time, self.time))
        self._begin_until(self.time)

    def kernel(self, part: Part) -> None:
        """A kernel after those before it."""
        self.of_kernels += part.seconds
        self._wait_for(part.after)
        begin, end = self.time, self.time + part.seconds
        self._begin_until(begin if part.fills else end)
        if part.fills:
            self._fill(begin, part.seconds)
        else:
            self._share(begin, end)

    def result(self) -> Timeline:
        """The run, which ends when all collectives have ended."""
        self._wait_for(len(self.begun) + len(self.waiting) - 1)
        return Timeline(self.time, self.of_kernels, tuple(self.begun))

    def _fill(self, begin: float, seconds: float) -> None:
        """A kernel whose last blocks begin once the collective has ended that runs before it."""
        delay = 0.0
        if self.begun and self.begun[-1].end > begin:
            delay = self.begun[-1].end - begin
            self.begun[-1].held += delay
        self.time = begin + seconds + delay

    def _share(self, begin: float, end: float) -> None:
        """A kernel that does with the multiprocessors that collectives leave."""
        self.time = end
        for exchange in self.begun:
            beside = max(0.0, min(exchange.end, end) - max(exchange.begin, begin))
            exchange.held += HELD * beside
            self.time += HELD * beside

    def _begin_until(self, time: float) -> None:
        """Begin the collectives that can begin up to `time`, while a kernel lets them."""
        while self.waiting:
            exchange = self.waiting[0]
            begin = max(exchange.ready, self._free(), self.time)
            if begin > time:
                return
            exchange.begin, exchange.end = begin, begin + exchange.part.seconds
            self.begun.append(self.waiting.popleft())

    def _wait_for(self, number: int) -> None:
        """Let kernels wait until the collective of a number has ended, and so all before it."""
        while len(self.begun) <= number:
            self._begin_until(max(self.time, self._free()))
        if number >= 0 and self.begun[number].end > self.time:
            self.begun[number].awaited += self.begun[number].end - self.time
            self.time = self.begun[number].end

    def _free(self) -> float:
        """When the last collective that has begun ends."""
        return self.begun[-1].end if self.begun else 0.0


def parts_of(planned: Planned, seconds: Sequence[float]) -> Iterator[Part]:
    """The parts of a program of a GPU, whose steps take `seconds` alone."""
    for step, launch, taken in zip(planned.program.steps, planned.launches, seconds, strict=True):
        plan = planned.plans[step[0].kernel]
        fills = isinstance(plan.nest, Nest) and bool(plan.nest.atom)
        yield Part(plan.name, taken, launch.exchange, launch.after, fills)


def has_collectives(launches: Sequence[Launch]) -> bool:
    """Whether some of the launches of a program are collectives."""
    return any(launch.exchange >= 0 for launch in launches)


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.3f} ms"
