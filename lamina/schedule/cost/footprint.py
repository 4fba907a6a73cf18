"""Which elements and which lines of memory an access touches, counted from its index.

An index that walks axes is a sum of *walks*: one of stride 100 and 8 steps for a row axis, one of
stride 1 and 32 steps for the lanes of a vector. A set of walks becomes runs of neighbours that lie
apart, and lines are counted per run. All is exact but for indices that data decide, and for walks
that overlap over more than MAX_MARKED elements: of these it is an upper bound.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, exp, gcd, prod
from typing import NamedTuple

from lamina.graph import index as ix
from lamina.ir.kernel import bounds, divisor_of, free_axes, loads_beneath, points
from lamina.ir.node import Node
from lamina.ir.ops import Op
from lamina.loops.nest import Axes, Nest, SubLoops

MAX_MARKED = 1 << 18  # elements of the longest bit mask that overlapping walks are counted with


class Walk(NamedTuple):
    """``stride * i`` for every i below `size`, in elements. Those of a region have a positive
    stride and a size of 2 or more; those of an index may have a stride of 0 or below, or size 1."""

    stride: int
    size: int

    @property
    def span(self) -> int:
        """How far the last element is from the first: 21 for 8 steps of 3, -21 for 8 of -3."""
        return self.stride * (self.size - 1)


@dataclass(frozen=True)
class Region:
    """The elements ``offset + i0 * stride0 + i1 * stride1 + ...``, with a step of each of `walks`
    in every combination, of an array whose elements have `itemsize` bytes. The array begins at a
    line: `offset` says where in one the region does."""

    offset: int
    walks: tuple[Walk, ...]
    itemsize: int

    def elements(self) -> int:
        """How many distinct elements these are."""
        walks = _merged(self.walks)
        count = prod(walk.size for walk in walks)
        if _are_apart(walks):
            return count
        places = sum(walk.span for walk in walks) + 1  # from the first element to the last
        return _mask(walks).bit_count() if places <= MAX_MARKED else min(count, places)

    def with_runs(self, elements: int) -> "Region":
        """The region with so many neighbours in place of each element."""
        if elements == 1:
            return self
        return Region(self.offset, tuple(sorted((*self.walks, Walk(1, elements)))), self.itemsize)

    def lines(self, line: int) -> int:
        """How many lines of so many bytes hold these elements. Walks that overlap are marked one by
        one, up to MAX_MARKED; else lines are counted for each stretch, by where in a line it
        begins."""
        walks = _merged(self.walks)
        if not _are_apart(walks) and sum(walk.span for walk in walks) < MAX_MARKED:
            return self._marked_lines(walks, line)
        stretch, between = self._stretches(line)
        # Where in a line the first byte of a stretch is, and of how many stretches.
        stretches_at = {self.offset * self.itemsize % line: 1}
        for walk in between:
            stretches_at = _offsets_after(stretches_at, walk, line)
        # A stretch of 32 bytes from byte 48 of a line on ends in the next one: 79 // 64 + 1 lines.
        return sum(
            count * ((first + stretch - 1) // line + 1) for first, count in stretches_at.items()
        )

    def _marked_lines(self, walks: list[Walk], line: int) -> int:
        """The lines with elements, found one by one: "1" marks an element, the first one first.

        With lines of 4 elements, elements 0, 1 and 3 of a region that begins at offset 6 are marked
        "00" + "1101": in "0011" and in "01", the places of two lines.
        """
        per_line = line // self.itemsize
        marks = "0" * (self.offset % per_line) + format(_mask(walks), "b")[::-1]
        lines = range(0, len(marks), per_line)
        return sum("1" in marks[first : first + per_line] for first in lines)

    def stretch_bytes(self, line: int) -> int:
        """The length of a stretch in bytes, from its first element to its last: gaps between its
        elements are shorter than a line, so that all of its lines are touched."""
        return self._stretches(line)[0]

    def _stretches(self, line: int) -> tuple[int, list[Walk]]:
        """The bytes of a stretch, and the walks in bytes from one stretch to the next. A walk
        lengthens the stretch while its gaps, from the end of what it repeats to the next, are
        shorter than a line, so that no line between is left out. From the first larger gap on
        stretches share no line.

        Of float32, with lines of 64 bytes: 8 steps of 1 are 32 bytes; 3 steps of 20 repeat these
        every 80 bytes, with gaps of 48, and make a stretch of 192; 4 steps of 1000 are 4 such
        stretches.
        """
        stretch, between = self.itemsize, list[Walk]()
        for stride, size in _merged(self.walks):
            walk = Walk(stride * self.itemsize, size)
            if not between and walk.stride - stretch < line:
                stretch += walk.span
            else:
                between.append(walk)
        return stretch, between


def region(nest: Nest, index: Node, itemsize: int, axes: frozenset[Node], limit: int) -> Region:
    """What an access at `index` touches while `axes` walk and all others stand at 0.

    limit: the elements of the array, which values from data are drawn from

    ``100 * i - j + 7`` with 8 i and 4 j is a region at 4, of walks (1, 4) and (100, 8): j walks
    backwards from 7, which touches the elements of a walk forwards from 4.
    """
    terms, offset = ix.terms_of(index)
    walks: list[Walk] = []
    for walk in _walks_of(nest, terms, axes, limit):
        if walk.stride == 0 or walk.size < 2:
            continue  # it touches one element again and again, or just once
        if walk.stride < 0:
            offset += walk.span
        walks.append(Walk(abs(walk.stride), walk.size))
    return Region(offset, tuple(sorted(walks)), itemsize)


def _walks_of(
    nest: Nest, terms: Mapping[Node, int], axes: frozenset[Node], limit: int
) -> Iterator[Walk]:
    """The walks of an index, whose `terms` are those of its sum with their coefficients.

    A term that is an axis is a walk; sub-loops of an uneven split that the index takes as one are a
    walk together, without the points that never run. Any other term, a division, modulus or number
    from data, is a walk of as many values as it has, a step of its coefficient apart.
    """
    joined = set[Node]()
    for split in nest.splits:
        inner = _walked_as_one(split, terms, axes)
        if inner:
            joined.update(inner)
            yield Walk(terms.get(inner[-1], 0), min(split.extent, points(inner)))
    for term, coefficient in terms.items():
        if term in joined or axes.isdisjoint(free_axes(term)):
            continue
        if term.op is Op.AXIS:
            yield Walk(coefficient, _extent(nest, term))
        else:
            # An axis that is a term itself walks already, so that it does not decide the values of
            # another one: in ``i + 8 * ((i + j) % 4)``, the index of a rotated axis, j alone does.
            deciding = axes.difference(terms)
            # Values from data that are multiplied by 8 reach 10 places of an array of 80.
            places = max(limit // abs(coefficient), 1)
            yield Walk(coefficient, _values_of(nest, term, deciding, places))


def _walked_as_one(split: SubLoops, terms: Mapping[Node, int], axes: frozenset[Node]) -> Axes:
    """The innermost of the sub-loops, outermost of them first, as far as all are in `axes` and the
    index takes them as one axis: each has the coefficient of the next, times its size. Of an axis
    split into a1, a2 and a3 of 8 and 4, ``64 * a1 + 4 * a2 + a3`` gives (a2, a3)."""
    inner: list[Node] = []
    for axis in reversed(split.axes):
        as_one = not inner or terms.get(axis, 0) == terms.get(inner[0], 0) * inner[0].arg.size
        if axis not in axes or not as_one:
            break
        inner.insert(0, axis)
    return tuple(inner)


def _extent(nest: Nest, axis: Node) -> int:
    """How many iterations of a loop run where all others stand at 0: of sub-loops of 3 and 4 with
    an extent of 2, the outer one runs once."""
    split = nest.sub_loops(axis)
    inside = split.axes[split.axes.index(axis) + 1 :]  # points(()) is 1 for the innermost one
    size: int = axis.arg.size
    return min(size, ceil(split.extent / points(inside)))


def _values_of(nest: Nest, term: Node, axes: frozenset[Node], limit: int) -> int:
    """About how many values a term that is no axis has while `axes` walk: no more than these have
    points. Of data, the expected number of distinct values of so many draws from `limit`, which is
    ``limit * (1 - exp(-draws / limit))``: 50 draws of 50 give 32. Of indices, as many as fit into
    its bounds, and of a quotient as many as the dividend steps over: 32 lanes of ``i // 465`` have
    one."""
    draws = points(free_axes(term) & axes)
    if loads_beneath([term]):
        return max(round(limit * (1 - exp(-draws / limit))), 1)
    low, high = bounds(term)
    values = min(draws, (high - low) // _step_of(term) + 1)
    divisor = divisor_of(term)
    if term.op is Op.IDIV and divisor:
        dividend, _ = ix.terms_of(term.src[0])
        span = sum(abs(walk.span) for walk in _walks_of(nest, dividend, axes, limit))
        values = min(values, span // divisor + 1)
    return max(values, 1)


def _step_of(term: Node) -> int:
    """What all values of a term of an index are multiples of: 4 for ``4*i % 8``, whose bounds are 0
    and 7 and whose values are 0 and 4. 1 for anything but a modulus by a constant."""
    divisor = divisor_of(term)
    if term.op is not Op.MOD or not divisor:
        return 1
    factors, constant = ix.terms_of(term.src[0])
    return gcd(divisor, constant, *factors.values())


def _merged(walks: Iterable[Walk]) -> list[Walk]:
    """The same elements as walks of growing strides, of two steps or more each: two become one
    where together they leave out nothing, as 3 steps of 1 and 5 of 2 do, which are 11 of 1."""
    merged = list[Walk]()
    for walk in sorted(walks):
        if walk.size < 2:
            continue
        joined = _joined(merged[-1], walk) if merged else None
        if joined is None:
            merged.append(walk)
        else:
            merged[-1] = joined
    return merged


def _joined(inner: Walk, outer: Walk) -> Walk | None:
    """One walk over the elements of two, of which `outer` has the larger stride; None if no walk
    has just these. Each step of `outer` must be a whole number of steps of `inner`, and not leap
    over any: 3 steps of 1 and 5 of 2 are at 0, 1, ..., 10; 3 of 1 and 5 of 4 leave out 3."""
    ratio, rest = divmod(outer.stride, inner.stride)
    if rest or ratio > inner.size:
        return None
    return Walk(inner.stride, inner.size + ratio * (outer.size - 1))


def _are_apart(walks: Sequence[Walk]) -> bool:
    """Does each sum of steps give another element? It does if each stride is larger than what all
    walks before it span: strides come in growing order."""
    span = 0
    for walk in walks:
        if walk.stride <= span:
            return False
        span += walk.span
    return True


def _mask(walks: Iterable[Walk]) -> int:
    """An integer whose bits are the elements: 0b1110111 for 3 of stride 1 and 2 of stride 4, which
    are the elements 0, 1, 2, 4, 5 and 6.

    The steps of a walk are marked by doubling: 5 steps as 1, 2, 4 and then the one that is left.
    """
    mask = 1
    for stride, size in walks:
        marked = 1  # steps of this walk
        while marked < size:
            added = min(marked, size - marked)
            mask |= mask << (stride * added)
            marked += added
    return mask


def _offsets_after(offsets: dict[int, int], walk: Walk, line: int) -> dict[int, int]:
    """Where in a line runs begin after a walk in bytes, and how many of them do.

    offsets: the same before the walk: offset in a line, in bytes -> how many runs begin there

    One run at 0, walked by 5 steps of 96 bytes with lines of 64, becomes runs at 0, 96, 192, 288
    and 384: three begin at 0 of a line, two at 32.
    """
    times_of = _offsets_of_steps(walk, line)
    after = dict[int, int]()
    for offset, count in offsets.items():
        for distance, times in times_of.items():
            place = (offset + distance) % line
            after[place] = after.get(place, 0) + count * times
    return after


def _offsets_of_steps(walk: Walk, line: int) -> dict[int, int]:
    """Where in a line the steps of a walk from 0 are, and how many of them are there: after
    `period` steps they are where they were. 5 steps of 96 bytes with lines of 64 have the period
    2: steps 0, 2 and 4 are at 0, steps 1 and 3 at 32."""
    period = line // gcd(walk.stride, line)
    whole_periods, rest = divmod(walk.size, period)
    times_of = dict[int, int]()
    for step in range(min(period, walk.size)):
        times = whole_periods + 1 if step < rest else whole_periods
        times_of[walk.stride * step % line] = times
    return times_of
