"""The order of steps in which a program needs least memory.

Any order in which each step comes after those that it needs computes the same. In one that goes
from result to result, the gradient of the first weight comes first, which needs the whole backward
pass, and what the gradients of all other weights need is kept until then:

    dy2, dy1, dw1, dw2        dy2 waits for dw2 while dy1 and dw1 are made
    dy2, dw2, dy1, dw1        here it does not

So a step that frees as much as it makes comes as soon as what it needs is there. If several steps
have yet to read an array, each frees a part of it: of 24 MB that a product and a sum over rows
read, 12 MB each. All other steps stay in the order that is given.
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

Step = TypeVar("Step", bound=Hashable)
Array = TypeVar("Array", bound=Hashable)

# Steps that have yet to read an array, up to which each frees a part of it. The parts of more are
# small, and would have to be counted anew whenever one of the steps has run.
MAX_READERS = 4
# Bytes that a step makes, up to which they do not count: others may wait for the numbers of steps
# that an optimizer has taken, and free much.
FEW_BYTES = 1 << 14


@dataclass(frozen=True)
class Steps(Generic[Step, Array]):
    """Steps and what they do to memory.

    order: one in which they can run. before: the steps that each one needs. makes: the arrays that
    each one makes, in bytes. reads: those of other steps that it reads. kept: those that are read
    at the end. over: for arrays that a step may put in the place of others, as the last one that
    reads these, which they are.
    """

    order: Sequence[Step]
    before: Mapping[Step, Iterable[Step]]
    makes: Mapping[Step, Mapping[Array, int]]
    reads: Mapping[Step, Set[Array]]
    kept: Set[Array] = frozenset()
    over: Mapping[Array, Sequence[Array]] = field(default_factory=dict)

    def readers(self) -> dict[Array, list[Step]]:
        """The steps that read each array."""
        readers: dict[Array, list[Step]] = {}
        for step in self.order:
            for array in self.reads[step]:
                readers.setdefault(array, []).append(step)
        return readers

    def unread(self) -> dict[Array, int]:
        """How often each array is read."""
        left = {array: len(readers) for array, readers in self.readers().items()}
        return left | {array: left.get(array, 0) + 1 for array in self.kept}

    def peak(self, order: Sequence[Step]) -> int:
        """Bytes of all arrays that are there at one time, at most."""
        sizes = {array: size for made in self.makes.values() for array, size in made.items()}
        left = self.unread()
        live = peak = 0
        for step in order:
            last_read = _last_read(left, self.reads[step])
            taken = self.taken(step, last_read).values()
            live += sum(self.makes[step].values()) - sum(sizes[array] for array in taken)
            peak = max(peak, live)
            freed = {array for array in self.makes[step] if array not in left}
            freed |= last_read.difference(taken)
            live -= sum(sizes.get(array, 0) for array in freed)
        return peak

    def taken_in(self, order: Sequence[Step]) -> Iterator[tuple[Array, Array]]:
        """Each array that takes the place of another one in an order of the steps, and that one."""
        left = self.unread()
        for step in order:
            yield from self.taken(step, _last_read(left, self.reads[step])).items()

    def taken(self, step: Step, last_read: Set[Array]) -> dict[Array, Array]:
        """The arrays that a step puts in the place of others, and these, which are among those that
        nothing reads after it."""
        taken: dict[Array, Array] = {}
        for array in self.makes[step]:
            free = [other for other in self.over.get(array, ()) if other in last_read]
            place = next((other for other in free if other not in taken.values()), None)
            if place is not None:
                taken[array] = place
        return taken


def _last_read(left: dict[Array, int], read: Set[Array]) -> set[Array]:
    """Count in `left` that these arrays are read once more; those that nothing reads after that."""
    for array in read:
        left[array] -= 1
    return {array for array in read if left[array] == 0}


def in_least_memory(steps: Steps[Step, Array]) -> list[Step]:
    """The steps in the order that is given, or in another one that needs less memory."""
    orders = [list(steps.order), _Eager(steps).ordered()]
    return min(orders, key=steps.peak)  # the first of equal ones


@dataclass
class _Eager(Generic[Step, Array]):
    """Takes next the ready step that frees most, or else the first in the order that is given."""

    steps: Steps[Step, Array]
    ready: dict[Step, float] = field(default_factory=dict)  # with the bytes by which memory grows
    queue: list[tuple[float, int]] = field(default_factory=list)  # of these, some out of date

    def __post_init__(self) -> None:
        steps = self.steps
        self.number = {step: number for number, step in enumerate(steps.order)}
        self.readers = steps.readers()
        self.left = steps.unread()
        self.sizes = {
            array: nbytes for made in steps.makes.values() for array, nbytes in made.items()
        }

    def ordered(self) -> list[Step]:
        """The new order."""
        steps = self.steps
        after: dict[Step, list[Step]] = {step: [] for step in steps.order}
        missing = {step: set(steps.before[step]) for step in steps.order}
        for step, needed in missing.items():
            for before in needed:
                after[before].append(step)
        first = [self.number[step] for step in steps.order if not missing[step]]
        for number in first:
            self._weigh(steps.order[number])
        heapify(first)
        order: dict[Step, None] = {}
        while len(order) < len(steps.order):
            step = self._next(first, order)
            order[step] = None
            del self.ready[step]
            self._read(step)
            for user in after[step]:
                missing[user].discard(step)
                if not missing[user]:
                    heappush(first, self.number[user])
                    self._weigh(user)
        return list(order)

    def _next(self, first: list[int], done: Mapping[Step, None]) -> Step:
        """The ready step that frees most, if one lets memory not grow; else the first one."""
        order = self.steps.order
        while self.queue:
            growth, number = self.queue[0]
            if growth > 0:
                break
            heappop(self.queue)
            if self.ready.get(order[number]) == growth:
                return order[number]
        while order[first[0]] in done:
            heappop(first)
        return order[first[0]]

    def _weigh(self, step: Step) -> None:
        """Note by how many bytes memory grows with a ready step."""
        freed = sum(
            self.sizes.get(array, 0) / self.left[array]
            for array in self.steps.reads[step]
            if self.left[array] <= MAX_READERS
        )
        made = sum(self.steps.makes[step].values())
        growth = max(made - FEW_BYTES, 0) - freed
        self.ready[step] = growth
        heappush(self.queue, (growth, self.number[step]))

    def _read(self, step: Step) -> None:
        """Weigh the steps anew that share what a step has read."""
        sharing: dict[Step, None] = {}
        for array in self.steps.reads[step]:
            self.left[array] -= 1
            if 0 < self.left[array] <= MAX_READERS:
                sharing |= dict.fromkeys(self.readers[array])
        for other in sharing:
            if other in self.ready:
                self._weigh(other)
