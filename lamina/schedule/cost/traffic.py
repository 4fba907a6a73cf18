"""How many lines each level of memory gives and takes, from the loops of a nest.

An iteration of a loop finds what the one before it used in the smallest level that holds all that
an iteration touches. Where it only just fits, part of it is there: between half a level and one and
a half, the share that is missing grows evenly.

All lines are those of the whole device, summed over its workers: what each of 4 workers reads into
a cache of its own counts 4 times there.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from math import ceil
from typing import NamedTuple

from lamina.core.rates import Memory, Rates
from lamina.graph import index as ix
from lamina.ir.kernel import free_axes_of, points
from lamina.ir.node import Node
from lamina.loops.nest import Nest
from lamina.schedule.cost.body import Access, Loop
from lamina.schedule.cost.footprint import Region, Walk, region


class Reference(NamedTuple):
    """Accesses to one array whose indices differ in a constant at most, such as x[i] and x[i+1].

    parameter: of the kernel
    terms: of the index, each with its coefficient; loads and stores are two references
    """

    parameter: int
    terms: frozenset[tuple[Node, int]]
    is_store: bool


@dataclass(frozen=True)
class Lines:
    """What one reference moves in a run of the kernel, by all workers together.

    distinct: lines that it touches
    used: bytes of its elements, each counted once
    moved: for each cache, the nearest first, the lines that it gets from the level beyond it, or
        gives to that: those of L2 are what L3 moves
    stretch: bytes of the longest stretch that is touched from end to end
    """

    reference: Reference
    distinct: float
    used: float
    moved: tuple[float, ...]
    stretch: float


@dataclass(frozen=True)
class Part:
    """What one reference does in a part of the nest, by all workers that run it.

    axes: those that walk in it: of its loops, lanes and unrolled points
    distinct: lines that it touches
    moved: for each cache, the lines that move between it and the level beyond it
    """

    axes: frozenset[Node]
    distinct: float
    moved: tuple[float, ...]


Parts = dict[Reference, Part]


class Footprint:
    """What the accesses of one reference touch together, by the axes that walk.

    axes: those that the index depends on
    array: the kernel's parameter
    shares: of each index, by its constant, the share of its elements that is touched, as a
        condition holds there. A roll by 36 of 144 elements reads x[i - 36] at 3/4 of all i, and
        x[i + 108] at 1/4: half of what both indices are, and all elements once
    """

    def __init__(
        self, nest: Nest, reference: Reference, accesses: Sequence[Access], line: int
    ) -> None:
        self.nest, self.line = nest, line
        self.array = nest.kernel.parameters[reference.parameter]
        self.axes = free_axes_of(term for term, _ in reference.terms)
        # By its constant, each index: of x[i] and x[i+1] they are 0 and 1.
        self._index_of = {ix.terms_of(access.index)[1]: access.index for access in accesses}
        self.shares = {ix.terms_of(access.index)[1]: access.share for access in accesses}
        # What was asked for before, by those of `axes` that walk: loops inside one another, and
        # parts of a body, ask for the same again and again.
        self._regions: dict[frozenset[Node], Region] = {}
        self._lines: dict[frozenset[Node], float] = {}

    def region(self, axes: frozenset[Node]) -> Region:
        """The elements that are touched while `axes` walk."""
        walking = axes & self.axes
        area = self._regions.get(walking)
        if area is None:
            area = self._regions[walking] = self._region(walking)
        return area

    def _region(self, axes: frozenset[Node]) -> Region:
        """The region of the index with the smallest constant, and a walk over the constants of all
        indices: these are taken to be evenly spaced, 0, 1 and 5 of x[i], x[i+1] and x[i+5] as 0, 3
        and 6."""
        constants = sorted(self._index_of)
        first = self._index_of[constants[0]]
        area = region(self.nest, first, self.array.dtype.itemsize, axes, self.array.size)
        if len(constants) == 1:
            return area
        gaps = len(constants) - 1
        between = ceil((constants[-1] - constants[0]) / gaps)  # ceil(5 / 2) = 3
        shifted = Walk(between, len(constants))
        return Region(area.offset, tuple(sorted((*area.walks, shifted))), area.itemsize)

    def lines(self, axes: frozenset[Node]) -> float:
        """How many lines are touched while `axes` walk, no more than the array has."""
        walking = axes & self.axes
        count = self._lines.get(walking)
        if count is None:
            lines_of_array = ceil(self.array.nbytes / self.line)
            touched = sum(self.shares.values()) / len(self.shares)
            count = min(touched * self.region(walking).lines(self.line), float(lines_of_array))
            self._lines[walking] = count
        return count

    def used_bytes(self, axes: frozenset[Node]) -> int:
        """The bytes of the elements that are touched while `axes` walk, each counted once."""
        touched = min(sum(self.shares.values()), 1.0)
        elements = int(touched * min(self.region(axes).elements(), self.array.size))
        return elements * self.array.dtype.itemsize


class Traffic:
    """The traffic of a nest that `workers` run, who share the loops over the axes `parallel`, which
    are the outermost.

    around: bytes that the program touches between two runs of the nest; where the nest touches
        more itself, that counts instead
    """

    def __init__(
        self, nest: Nest, root: Loop, rates: Rates, workers: int, parallel: frozenset[Node],
        around: float = 0.0,
    ) -> None:  # fmt: skip
        self.root, self.rates = root, rates
        self.workers, self.parallel, self.around = workers, parallel, around
        self.caches = rates.levels[:-1]  # the last level holds everything
        accesses_of: dict[Reference, list[Access]] = {}
        for loop in root.every():
            for access in loop.accesses:
                accesses_of.setdefault(self.reference(access), []).append(access)
        self.footprints: dict[Reference, Footprint] = {}
        for reference, accesses in accesses_of.items():
            self.footprints[reference] = Footprint(nest, reference, accesses, rates.line)

    @cached_property
    def lines(self) -> list[Lines]:
        """The traffic of each reference in a run of the kernel. The whole kernel counts as the body
        of a loop around it: programs run again and again, and find what the run before has left in
        the caches."""
        body = self._body(self.root)
        missing = self._missing(body, self.root, self.around)
        stretches = self._stretches()
        every: list[Lines] = []
        for reference, part in body.items():
            moved = [share * lines for share, lines in zip(missing, part.moved, strict=True)]
            # A larger cache holds what a smaller one does, so it moves no more.
            moved = list(accumulate(moved, min))
            used = self.footprints[reference].used_bytes(part.axes)
            stretch = stretches[reference]
            every.append(Lines(reference, part.distinct, used, tuple(moved), stretch))
        return every

    def _stretches(self) -> dict[Reference, float]:
        """For each reference, the bytes of the longest stretch of memory that an access touches
        from end to end."""
        stretches: dict[Reference, float] = {}
        for loop in self.root.every():
            for access in loop.accesses:
                reference = self.reference(access)
                stretch = self._stretch(reference, access.axes, loop)
                stretches[reference] = max(stretch, stretches.get(reference, 0.0))
        return stretches

    def reference(self, access: Access) -> Reference:
        """The reference that an access is one of."""
        terms, _ = ix.terms_of(access.index)
        return Reference(access.parameter, frozenset(terms.items()), access.is_store)

    def _body(self, loop: Loop) -> Parts:
        """What one iteration of a loop moves: its own accesses, and all iterations of the loops
        inside it. If x[i] is read by two loops of the body, the second one finds what the caches
        still hold of the first: it moves the share that is missing."""
        parts_of = self._parts_of_body(loop)
        body = {reference: self._joined(reference, parts) for reference, parts in parts_of.items()}
        repeated = [reference for reference, parts in parts_of.items() if len(parts) > 1]
        missing = self._missing(body, loop) if repeated else []
        for reference in repeated:
            part = body[reference]
            moved = _moved_with_reuse(part.distinct, part.moved, missing)
            body[reference] = replace(part, moved=moved)
        return body

    def _parts_of_body(self, loop: Loop) -> dict[Reference, list[Part]]:
        """What each reference does in a body: a part for each of its accesses, which moves every
        line that it touches, and one for each loop inside that has some."""
        parts_of: dict[Reference, list[Part]] = {}
        for access in loop.accesses:
            reference = self.reference(access)
            distinct = self.footprints[reference].lines(access.axes)
            part = Part(access.axes, distinct, moved=(distinct,) * len(self.caches))
            parts_of.setdefault(reference, []).append(part)
        for inner in loop.loops:
            for reference, part in self._all_iterations(inner).items():
                parts_of.setdefault(reference, []).append(part)
        return parts_of

    def _joined(self, reference: Reference, parts: Sequence[Part]) -> Part:
        """Several parts of one reference together, as if none found what another has touched."""
        if len(parts) == 1:
            return parts[0]
        axes = frozenset[Node]().union(*(part.axes for part in parts))
        moved_by_cache = zip(*(part.moved for part in parts), strict=True)
        distinct = self.footprints[reference].lines(axes)
        return Part(axes, distinct, tuple(map(sum, moved_by_cache)))

    def _all_iterations(self, loop: Loop) -> Parts:
        """What all iterations of a loop move: `loop.trips` times what one does, less the lines
        that an iteration finds in a cache because the one before it touched them."""
        assert loop.axis is not None
        body = self._body(loop)
        missing = self._missing(body, loop)
        parts: Parts = {}
        for reference, part in body.items():
            axes = part.axes | {loop.axis}
            distinct = self.footprints[reference].lines(axes)
            every_time = tuple(loop.trips * lines for lines in part.moved)
            moved = _moved_with_reuse(distinct, every_time, missing)
            of_readers = self._readers(reference, loop) * distinct
            parts[reference] = Part(axes, distinct, self._at_least(of_readers, moved))
        return parts

    def _readers(self, reference: Reference, loop: Loop) -> int:
        """How many workers touch each line of a reference in `loop`: as many as parallel loops, of
        it and those inside it, have iterations that the index does not depend on. Of 2 x 4 chunks
        on 8 workers, a line that only the 4 vary along is touched by 2."""
        assert loop.around is not None
        parallel = self.parallel - loop.around.axes
        return min(self.workers, points(parallel - self.footprints[reference].axes))

    def _at_least(self, lines: float, moved: Sequence[float]) -> tuple[float, ...]:
        """`moved`, but `lines` at least in a cache that each worker has for itself: every worker
        that touches a line moves it once there, whatever others have moved into theirs."""
        pairs = zip(self.caches, moved, strict=True)
        return tuple(count if cache.shared else max(count, lines) for cache, count in pairs)

    def _stretch(self, reference: Reference, axes: frozenset[Node], loop: Loop) -> float:
        """The bytes of the stretch of memory that an access in the body of `loop` touches from end
        to end: along `axes`, its lanes and unrolled points, and then along the loops around it.

        A loop of one iteration, or one that the index does not depend on, changes nothing. The
        first other loop that does not lengthen the stretch ends it.

        For ``x[1000 * i + 16 * k + l]`` of float32 with 16 lanes l: 64 bytes; with 32 steps k
        around these 2048, as their lines follow each other; rows i lie further apart and end it.
        """
        footprint = self.footprints[reference]
        stretch = footprint.region(axes).stretch_bytes(self.rates.line)
        place: Loop | None = loop
        while place is not None and place.axis is not None:
            if place.axis in footprint.axes and place.axis.arg.size > 1:
                axes = axes | {place.axis}
                longer = footprint.region(axes).stretch_bytes(self.rates.line)
                if longer <= stretch:
                    break
                stretch = longer
            place = place.around
        return stretch

    def _missing(self, body: Parts, loop: Loop, around: float = 0.0) -> list[float]:
        """For each cache, the share of what an iteration of `loop`, whose body is `body`, touches
        that it does not hold until the next iteration.

        around: bytes that all workers touch from the beginning of one iteration to that of the
            next, where that is more than the body touches

        Of 4 MB around, which 4 workers share, a cache of 2 MB that each has for itself holds its 1
        MB, and none is missing; a shared one of 4 MB lacks half.
        """
        shares: list[float] = []
        for level in self.caches:
            if level.shared:
                nbytes = max(self._bytes_of_all(body, loop), around)
            else:
                nbytes = max(self._bytes_of_worker(body, loop), around / self.workers)
            shares.append(missing_share(nbytes, level))
        return shares

    def _workers_of_body(self, loop: Loop) -> int:
        """How many workers share the body of `loop`, by the parallel loops inside it. With 8
        workers and 2 x 4 chunks, 4 share an iteration of the outer loop, and 2 iterations run at a
        time."""
        return min(self.workers, points(self.parallel - loop.axes))

    def _bytes_of_worker(self, body: Parts, loop: Loop) -> float:
        """The bytes of lines that one worker touches in its part of the body of `loop`. Workers
        that share the body touch different lines where parallel axes inside it are in the index:
        of ``a[i, k] * b[k]`` with 8 parallel i and 8 workers, one touches an eighth of a and all
        of b."""
        inside = self.parallel - loop.axes
        sharing = self._workers_of_body(loop)
        lines = 0.0
        for reference, part in body.items():
            apart = min(sharing, points(self.footprints[reference].axes & inside))
            lines += part.distinct / apart
        return lines * self.rates.line

    def _bytes_of_all(self, body: Parts, loop: Loop) -> float:
        """The bytes of lines that all workers touch in the bodies of `loop` that run at a time.
        These bodies touch different lines where parallel axes outside of them are in the index: in
        the body of one i above, 8 workers touch 8 rows of a, and b once."""
        outside = self.parallel & loop.axes
        bodies = self.workers // self._workers_of_body(loop)
        lines = 0.0
        for reference, part in body.items():
            apart = min(bodies, points(self.footprints[reference].axes & outside))
            lines += part.distinct * apart
        return lines * self.rates.line


def missing_share(nbytes: float, level: Memory) -> float:
    """The share of `nbytes` that a level does not keep until they are used again: 0 up to half of
    its size, 1 from one and a half on, and evenly more in between, as lines of other arrays and
    the few places that each line may take fill it sooner or later. This form was chosen, not
    measured."""
    return min(max(nbytes / level.size - 0.5, 0.0), 1.0)


def size_of(nbytes: float, missing: float) -> float:
    """The size of a level that lacks that share of `nbytes`, above 0 and below 1: what
    `missing_share` tells, the other way round."""
    return nbytes / (missing + 0.5)


def _moved_with_reuse(
    distinct: float, touched: Sequence[float], missing: Sequence[float]
) -> tuple[float, ...]:
    """For each cache, the lines that it moves of `distinct` ones that are touched `touched` times
    in all. The first touch of each always moves it; a later one only if it is `missing` by then.

    10 lines that are touched 100 times together, of which a quarter is missing each time, move
    10 + 0.25 * (100 - 10) = 32.5.
    """
    pairs = zip(missing, touched, strict=True)
    return tuple(distinct + share * max(times - distinct, 0.0) for share, times in pairs)
