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
        self.nest, self.root, self.rates = nest, root, rates
        self.workers, self.parallel, self.around = workers, parallel, around
        self.caches = rates.levels[:-1]  # the last level holds everything
        # Of each reference, the constants of its accesses: 0 and 1 for x[i] and x[i+1].
        self.constants: dict[Reference, set[int]] = {}
        for loop in root.every():
            for access in loop.accesses:
                constant = ix.terms_of(access.index)[1]
                self.constants.setdefault(self.reference(access), set()).add(constant)

    @cached_property
    def lines(self) -> list[Lines]:
        """The traffic of each reference in a run of the kernel. The whole kernel counts as the body
        of a loop around it: programs run again and again, and find what the run before has left in
        the caches."""
        body = self._body(self.root)
        missing = self._missing(body, self.root, self.around)
        runs = self._runs()
        every: list[Lines] = []
        for reference, part in body.items():
            moved = [share * lines for share, lines in zip(missing, part.moved, strict=True)]
            # A larger cache holds what a smaller one does, so it moves no more.
            moved = list(accumulate(moved, min))
            array = self.nest.kernel.parameters[reference.parameter]
            elements = min(self.region(reference, part.axes).elements(), array.size)
            used = elements * array.dtype.itemsize
            every.append(Lines(reference, part.distinct, used, tuple(moved), runs[reference]))
        return every

    def _runs(self) -> dict[Reference, float]:
        """For each reference, the bytes of the longest piece that an access touches from end to
        end."""
        runs: dict[Reference, float] = {}
        for loop in self.root.every():
            for access in loop.accesses:
                reference = self.reference(access)
                run = self._run(reference, access.axes, loop)
                runs[reference] = max(run, runs.get(reference, 0.0))
        return runs

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

    def _body(self, loop: Loop) -> Parts:
        """What one iteration of a loop moves: its own accesses, and all iterations of the loops
        inside it. If x[i] is read by two loops of the body, the second one finds what the caches
        still hold of the first: it moves the share that is missing."""
        parts_of: dict[Reference, list[Part]] = {}
        for access in loop.accesses:
            reference = self.reference(access)
            distinct = self._distinct(reference, access.axes)
            part = Part(access.axes, distinct, (distinct,) * len(self.caches))
            parts_of.setdefault(reference, []).append(part)
        for inner in loop.loops:
            for reference, part in self._all_iterations(inner).items():
                parts_of.setdefault(reference, []).append(part)
        body = {reference: self._joined(reference, parts) for reference, parts in parts_of.items()}
        missing = self._missing(body, loop)
        for reference, parts in parts_of.items():
            if len(parts) > 1:
                moved = _moved_with_reuse(body[reference], missing)
                body[reference] = replace(body[reference], moved=moved)
        return body

    def _joined(self, reference: Reference, parts: Sequence[Part]) -> Part:
        """Several parts of one reference together, as if none found what another has touched."""
        axes = frozenset[Node]().union(*(part.axes for part in parts))
        moved_by_cache = zip(*(part.moved for part in parts), strict=True)
        return Part(axes, self._distinct(reference, axes), tuple(map(sum, moved_by_cache)))

    def _all_iterations(self, loop: Loop) -> Parts:
        """What all iterations of a loop move: `loop.trips` times what one does, less the lines
        that an iteration finds in a cache because the one before it touched them. In a cache that
        each worker has for itself, every worker that reads a line moves it at least once."""
        assert loop.axis is not None
        assert loop.around is not None
        body = self._body(loop)
        missing = self._missing(body, loop)
        parallel = self.parallel - loop.around.axes  # of this loop, and of those inside it
        parts: Parts = {}
        for reference, part in body.items():
            axes = part.axes | {loop.axis}
            every_time = tuple(loop.trips * lines for lines in part.moved)
            repeated = Part(axes, self._distinct(reference, axes), every_time)
            # Iterations that a line is used in, by different workers as far as there are enough:
            # of 2 x 4 chunks on 8 workers, a line that only the 4 vary along is used by 2.
            readers = min(self.workers, points(parallel - reference.axes))
            by_all_readers = readers * repeated.distinct
            moved: list[float] = []
            for level, lines in zip(self.caches, _moved_with_reuse(repeated, missing), strict=True):
                moved.append(lines if level.shared else max(lines, by_all_readers))
            parts[reference] = replace(repeated, moved=tuple(moved))
        return parts

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
        that share the body touch different lines where parallel axes inside it are in the index."""
        inside = self.parallel - loop.axes
        sharing = self._workers_of_body(loop)
        lines = 0.0
        for reference, part in body.items():
            lines += part.distinct / min(sharing, points(reference.axes & inside))
        return lines * self.rates.line

    def _bytes_of_all(self, body: Parts, loop: Loop) -> float:
        """The bytes of lines that all workers touch in the bodies of `loop` that run at a time.
        These bodies touch different lines where parallel axes outside of them are in the index."""
        outside = self.parallel & loop.axes
        bodies = self.workers // self._workers_of_body(loop)
        lines = 0.0
        for reference, part in body.items():
            lines += part.distinct * min(bodies, points(reference.axes & outside))
        return lines * self.rates.line


def missing_share(nbytes: float, level: Memory) -> float:
    """The share of `nbytes` that a level does not keep until they are used again: 0 up to half of
    its size, 1 from one and a half on, and evenly more in between, as lines of other arrays and
    the few places that each line may take fill it sooner or later. This form was chosen, not
    measured."""
    return min(max(nbytes / level.size - 0.5, 0.0), 1.0)


def _moved_with_reuse(part: Part, missing: Sequence[float]) -> tuple[float, ...]:
    """For each cache, the lines that it moves for a part whose `moved` counts a line each time that
    it is touched. The first touch always moves it; each later one only if it is `missing` by then.

    10 lines that are touched 100 times together, of which a quarter is missing each time, move
    10 + 0.25 * (100 - 10) = 32.5.
    """
    pairs = zip(missing, part.moved, strict=True)
    return tuple(part.distinct + share * max(lines - part.distinct, 0.0) for share, lines in pairs)
