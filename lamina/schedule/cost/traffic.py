"""How many lines each level of memory gives and takes, from the loops of a nest.

An iteration of a loop finds what the one before it used in the smallest level that holds all that
an iteration touches. Where it only just fits, part of it is there: between half a level and one and
a half, the share that is missing grows evenly.

All lines are those of the whole device, summed over its workers: what each of 4 workers reads into
a cache of its own counts 4 times there.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from lamina.core.rates import Memory, Rates
from lamina.graph import index as ix
from lamina.ir.kernel import free_axes, points
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

    @property
    def axes(self) -> frozenset[Node]:
        """The axes that the index depends on."""
        return frozenset[Node]().union(*(free_axes(term) for term, _ in self.terms))


@dataclass(frozen=True)
class Lines:
    """What one reference moves in a run of the kernel, by all workers together.

    distinct: lines that it touches
    used: bytes of its elements, each counted once
    moved: for each cache, the nearest first, the lines that it gets from the level beyond it, or
        gives to that: those of L2 are what L3 moves
    run: bytes of the longest piece that is touched from end to end
    """

    reference: Reference
    distinct: float
    used: float
    moved: tuple[float, ...]
    run: float


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
        self.nest, self.rates, self.workers, self.parallel = nest, rates, workers, parallel
        self.around = around
        self.caches = rates.levels[:-1]  # the last level holds everything
        # Of each reference, the constants of its accesses: 0 and 1 for x[i] and x[i+1].
        self.constants: dict[Reference, set[int]] = {}
        self.runs: dict[Reference, float] = {}
        accesses = [(loop, access) for loop in root.every() for access in loop.accesses]
        for _, access in accesses:
            constant = ix.terms_of(access.index)[1]
            self.constants.setdefault(self.reference(access), set()).add(constant)
        for loop, access in accesses:
            reference = self.reference(access)
            run = self._run(reference, access.axes, loop)
            self.runs[reference] = max(run, self.runs.get(reference, 0.0))
        self.lines = self._whole(root)

    def reference(self, access: Access) -> Reference:
        """The reference that an access is one of."""
        terms, _ = ix.terms_of(access.index)
        return Reference(access.parameter, frozenset(terms.items()), access.is_store)

    def region(self, reference: Reference, axes: frozenset[Node]) -> Region:
        """What a reference touches while `axes` walk. Its constants are taken to be evenly spaced:
        the rows 0, 1 and 5 of a stencil as 0, 3 and 6."""
        array = self.nest.kernel.parameters[reference.parameter]
        constants = self.constants[reference]
        index = ix.affine(dict(reference.terms), min(constants))
        area = region(self.nest, index, array.dtype.itemsize, axes, array.size)
        if len(constants) == 1:
            return area
        between = -(-(max(constants) - min(constants)) // (len(constants) - 1))
        shifted = Walk(between, len(constants))
        return Region(area.offset, tuple(sorted((*area.walks, shifted))), area.itemsize)

    def _whole(self, root: Loop) -> list[Lines]:
        """The traffic of the whole kernel, which counts as the body of a loop around it: programs
        run again and again, and find what the run before has left in the caches."""
        body = self._body(root)
        missing = self._missing(body, root, self.around)
        every: list[Lines] = []
        for reference, part in body.items():
            moved = [share * lines for share, lines in zip(missing, part.moved, strict=True)]
            for number in range(1, len(moved)):  # a larger cache holds what a smaller one does
                moved[number] = min(moved[number], moved[number - 1])
            area = self.region(reference, part.axes)
            array = self.nest.kernel.parameters[reference.parameter]
            used = min(area.elements(), array.size) * array.dtype.itemsize
            run = self.runs[reference]
            every.append(Lines(reference, part.distinct, used, tuple(moved), run))
        return every

    def _body(self, loop: Loop) -> Parts:
        """What one iteration of a loop moves: its own accesses, and all iterations of the loops
        inside it, added up by reference. If x[i] is read by two loops of the body, the second one
        finds what the caches still hold of the first: it moves the share that is missing."""
        parts = list[tuple[Reference, Part]]()
        for access in loop.accesses:
            reference = self.reference(access)
            distinct = self._distinct(reference, access.axes)
            parts.append((reference, Part(access.axes, distinct, (distinct,) * len(self.caches))))
        for inner in loop.loops:
            parts += self._all_iterations(inner).items()
        joined: Parts = {}
        for reference, part in parts:
            before = joined.get(reference, Part(frozenset(), 0.0, (0.0,) * len(self.caches)))
            axes = before.axes | part.axes
            moved = tuple(sum(pair) for pair in zip(before.moved, part.moved, strict=True))
            joined[reference] = Part(axes, self._distinct(reference, axes), moved)
        # Where several parts of the body are one reference, the later ones may find its lines.
        missing = self._missing(joined, loop)
        for reference, count in Counter(reference for reference, _ in parts).items():
            if count > 1:
                part = joined[reference]
                joined[reference] = replace(part, moved=_between(part, missing))
        return joined

    def _all_iterations(self, loop: Loop) -> Parts:
        """What all iterations of a loop move: `loop.trips` times what one does, less the lines
        that an iteration finds in a cache because the one before it touched them. In a cache that
        each worker has for itself, every worker that reads a line moves it at least once."""
        assert loop.axis is not None
        body = self._body(loop)
        missing = self._missing(body, loop)
        shared_axes = self._parallel_inside(loop)
        if loop.axis in self.parallel:
            shared_axes |= {loop.axis}
        parts: Parts = {}
        for reference, part in body.items():
            axes = part.axes | {loop.axis}
            every_time = tuple(loop.trips * lines for lines in part.moved)
            repeated = Part(axes, self._distinct(reference, axes), every_time)
            moved = list(_between(repeated, missing))
            # Iterations that a line is used in, by different workers as far as there are enough:
            # of 2 x 4 chunks on 8 workers, a line that only the 4 vary along is used by 2.
            readers = min(self.workers, points(shared_axes - reference.axes))
            for number, level in enumerate(self.caches):
                if not level.shared:  # each worker reads it for itself
                    moved[number] = max(moved[number], readers * repeated.distinct)
            parts[reference] = replace(repeated, moved=tuple(moved))
        return parts

    def _parallel_inside(self, loop: Loop) -> frozenset[Node]:
        """The parallel axes whose loops are inside the body of `loop`."""
        return self.parallel - loop.axes

    def _distinct(self, reference: Reference, axes: frozenset[Node]) -> float:
        """The lines that a reference touches while `axes` walk, no more than its array has."""
        array = self.nest.kernel.parameters[reference.parameter]
        lines = self.region(reference, axes).lines(self.rates.line)
        return float(min(lines, -(-array.nbytes // self.rates.line)))

    def _run(self, reference: Reference, axes: frozenset[Node], loop: Loop) -> float:
        """The bytes of a piece that an access in the body of `loop` touches from end to end, its
        lanes and unrolled points `axes` first, then the loops around it. Loops that the index does
        not depend on repeat the piece; the first other one that does not continue it ends it."""
        run = self.region(reference, axes).run_bytes(self.rates.line)
        place: Loop | None = loop
        while place is not None and place.axis is not None:
            if place.axis in reference.axes:
                axes = axes | {place.axis}
                longer = self.region(reference, axes).run_bytes(self.rates.line)
                if longer <= run:
                    break
                run = longer
            place = place.around
        return run

    def _missing(self, body: Parts, loop: Loop, around: float = 0.0) -> list[float]:
        """For each cache, the share of what an iteration of `loop`, whose body is `body`, touches
        that it does not hold until the next iteration. around: bytes that are touched in between.

        A body with parallel loops inside is shared by `sharing` workers, and as many bodies run at
        a time as there are groups of these. A cache that all workers share holds the parts of all
        bodies that run; the cache of one worker its part of one body. So of 8 workers and 2 x 4
        chunks, 4 share an iteration of the outer loop, and 2 iterations run at a time.
        """
        inside = self._parallel_inside(loop)
        sharing = min(self.workers, points(inside))
        bodies = self.workers // sharing
        shares: list[float] = []
        for level in self.caches:
            nbytes = 0.0
            for reference, part in body.items():
                lines = part.distinct
                if level.shared:
                    # Bodies that run at a time touch the same lines, but where the index depends on
                    # parallel axes that are not inside the body: one part for each of their points.
                    lines *= min(bodies, points(reference.axes & self.parallel - inside))
                else:
                    lines /= min(sharing, points(reference.axes & inside))
                nbytes += lines * self.rates.line
            nbytes = max(nbytes, around if level.shared else around / self.workers)
            shares.append(missing_share(nbytes, level))
        return shares


def missing_share(nbytes: float, level: Memory) -> float:
    """The share of `nbytes` that a level does not keep until they are used again: 0 up to half of
    its size, 1 from one and a half on, and evenly more in between, as lines of other arrays and
    the few places that each line may take fill it sooner or later. This form was chosen, not
    measured."""
    return min(max(nbytes / level.size - 0.5, 0.0), 1.0)


def _between(part: Part, missing: Sequence[float]) -> tuple[float, ...]:
    """The lines that each cache moves, where repeated touches of a line find it in part.

    part: its `moved` counts a line each time that it is touched
    missing: for each cache, the share of lines that are gone until they are touched again

    The first touch of a line always moves it. 10 lines that are touched 100 times together, of
    which a quarter is missing, move 10 + 0.25 * (100 - 10) = 32.5.
    """
    pairs = zip(missing, part.moved, strict=True)
    return tuple(part.distinct + share * max(lines - part.distinct, 0.0) for share, lines in pairs)
