"""How many lines each level of memory gives and takes, from the loops of a nest.

An iteration of a loop finds what the one before it used in the smallest level that holds all that
an iteration touches. Where it only just fits, part of it is there: between half a level and one and
a half, the share that is missing grows evenly.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from lamina.core.rates import Memory, Rates
from lamina.graph import index as ix
from lamina.ir.kernel import free_axes
from lamina.ir.node import Node
from lamina.loops.nest import Nest
from lamina.schedule.cost.footprint import Region, Walk, region
from lamina.schedule.cost.walk import Access, Loop


class Reference(NamedTuple):
    """Accesses to one array whose indices differ in a constant at most, such as x[i] and x[i+1]."""

    parameter: int
    terms: frozenset[tuple[Node, int]]
    is_store: bool


@dataclass(frozen=True)
class Lines:
    """What one reference moves: `distinct` lines that the kernel touches and their bytes `used`;
    `moved` lines from each level but the nearest to the one before it; and the bytes of a `run`
    that is read from end to end."""

    reference: Reference
    distinct: float
    used: float
    moved: tuple[float, ...]
    run: float


class Traffic:
    """The traffic of a nest that `workers` run, who share the loops over the axes `parallel`.
    around: bytes that are touched from one run to the next, if more than the nest's own."""

    def __init__(
        self, nest: Nest, root: Loop, rates: Rates, workers: int, parallel: frozenset[Node],
        around: float = 0.0,
    ) -> None:  # fmt: skip
        self.nest, self.rates, self.workers, self.parallel = nest, rates, workers, parallel
        self.around = around
        self.constants: dict[Reference, set[int]] = {}
        self.runs: dict[Reference, float] = {}
        for loop in root.every():
            for access in loop.accesses:
                constant = ix.terms_of(access.index)[1]
                self.constants.setdefault(self.reference(access), set()).add(constant)
        self.lines = self._whole(root)

    def reference(self, access: Access) -> Reference:
        terms, _ = ix.terms_of(access.index)
        return Reference(access.parameter, frozenset(terms.items()), access.is_store)

    def region(self, reference: Reference, axes: frozenset[Node]) -> Region:
        """What a reference touches while `axes` walk."""
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
        """The traffic of the whole kernel, run again and again."""
        body = self._body(root)
        missing = self._missing(body, inside=False, whole=True)
        every: list[Lines] = []
        for reference, part in body.items():
            moved = [share * lines for share, lines in zip(missing, part.moved, strict=True)]
            for level in range(1, len(moved)):  # a larger level holds what a smaller one does
                moved[level] = min(moved[level], moved[level - 1])
            area = self.region(reference, part.axes)
            array = self.nest.kernel.parameters[reference.parameter]
            used = min(area.elements(), array.size) * array.dtype.itemsize
            run = self.runs[reference]
            every.append(Lines(reference, part.distinct, used, tuple(moved), run))
        return every

    def _body(self, loop: Loop) -> "Parts":
        """What one iteration of a loop moves."""
        parts = list[tuple[Reference, Part]]()
        for access in loop.accesses:
            reference = self.reference(access)
            distinct = self._distinct(reference, access.axes)
            run = self.region(reference, access.axes).run_bytes(self.rates.line)
            self.runs[reference] = self._longer_run(reference, access.axes, loop, run)
            parts.append((reference, Part(access.axes, distinct, [distinct] * self._caches)))
        for inner in loop.loops:
            parts += self._loop(inner).items()
        joined: Parts = {}
        for reference, part in parts:
            joined.setdefault(reference, Part(frozenset(), 0.0, [0.0] * self._caches))
            before = joined[reference]
            moved = [sum(pair) for pair in zip(before.moved, part.moved, strict=True)]
            joined[reference] = Part(before.axes | part.axes, before.distinct, moved)
        again = {reference for reference in joined if sum(r == reference for r, _ in parts) > 1}
        for reference, part in joined.items():
            part.distinct = self._distinct(reference, part.axes)
        if again:
            missing = self._missing(joined, inside=True)
            for reference in again:
                part = joined[reference]
                part.moved = _between(part.distinct, missing, part.moved)
        return joined

    @property
    def _caches(self) -> int:
        return len(self.rates.levels) - 1

    def _loop(self, loop: Loop) -> "Parts":
        """What all iterations of a loop move."""
        body = self._body(loop)
        missing = self._missing(body, inside=loop.axis not in self.parallel)
        parts: Parts = {}
        for reference, part in body.items():
            assert loop.axis is not None
            axes = part.axes | {loop.axis}
            distinct = self._distinct(reference, axes)
            moved = _between(distinct, missing, [loop.trips * lines for lines in part.moved])
            if loop.axis in self.parallel and not self._is_divided(reference):
                for number, level in enumerate(self.rates.levels[:-1]):
                    if not level.shared:  # each worker reads it for itself
                        copies = min(self.workers, loop.trips)
                        moved[number] = max(moved[number], copies * distinct)
            parts[reference] = Part(axes, distinct, moved)
        return parts

    def _distinct(self, reference: Reference, axes: frozenset[Node]) -> float:
        """The lines that a reference touches while `axes` walk, no more than its array has."""
        array = self.nest.kernel.parameters[reference.parameter]
        lines = self.region(reference, axes).lines(self.rates.line)
        return float(min(lines, -(-array.nbytes // self.rates.line)))

    def _longer_run(
        self, reference: Reference, axes: frozenset[Node], loop: Loop, run: float
    ) -> float:
        """The bytes that loops outwards from `loop` read one after the other."""
        place: Loop | None = loop
        walked = {node for term, _ in reference.terms for node in free_axes(term)}
        while place is not None and place.axis is not None:
            if place.axis in walked:
                axes = axes | {place.axis}
                longer = self.region(reference, axes).run_bytes(self.rates.line)
                if longer <= run:
                    break
                run = longer
            place = place.around
        return max(run, self.runs.get(reference, 0.0))

    def _is_divided(self, reference: Reference) -> bool:
        """Do the workers touch different parts of it?"""
        walked = {node for term, _ in reference.terms for node in free_axes(term)}
        return not walked.isdisjoint(self.parallel)

    def _missing(self, body: "Parts", *, inside: bool, whole: bool = False) -> list[float]:
        """For each cache, the share of what an iteration touches that it does not hold until the
        next. inside: of the loop of one worker, or what all touch?
        whole: of all the kernel?"""
        shares: list[float] = []
        for level in self.rates.levels[:-1]:
            nbytes = 0.0
            for reference, part in body.items():
                lines = part.distinct
                if self._is_divided(reference):
                    if inside and level.shared:
                        lines *= self.workers
                    elif not inside and not level.shared:
                        lines /= self.workers
                nbytes += lines * self.rates.line
            if whole:
                nbytes = max(nbytes, self.around / (1 if level.shared else self.workers))
            shares.append(missing_share(nbytes, level))
        return shares


@dataclass
class Part:
    """What a reference does in a part of the nest: the axes that walk, the distinct lines, and the
    lines moved into each cache."""

    axes: frozenset[Node]
    distinct: float
    moved: list[float]


Parts = dict[Reference, Part]


def missing_share(nbytes: float, level: Memory) -> float:
    """The share of `nbytes` that a level does not keep until they are used again."""
    return min(max(nbytes / level.size - 0.5, 0.0), 1.0)


def _between(distinct: float, missing: Sequence[float], repeated: Iterable[float]) -> list[float]:
    """Lines that are moved once where they stay, and each time where they do not."""
    pairs = zip(missing, repeated, strict=True)
    return [distinct + share * max(lines - distinct, 0.0) for share, lines in pairs]
