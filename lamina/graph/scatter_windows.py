"""Scatters by an index that is known when a program is compiled, as windows of updates.

The index of a gradient of resizing is made of indices and numbers alone, and ascends:

    index      0 0 1 3 3 3      of 6 updates and 4 places
    start      0 2 3 3          how many updates belong to the places before
    end        2 3 3 6
    longest    3                updates of a place, known at compile time
    result[j]  reduces updates[start[j] + k] for k < 3, up to end[j]

Each result reads its own updates, in their order, and waits for no other. What is computed from a
result, or added to it, shares its kernel. With one update a place at most, there is no loop.

An index that does not ascend, as that of windows that overlap, is sorted first, by kernels that
read no argument of the program:

    index      0 1 2 2 3 4      of windows of 3 elements, a step of 2
    index      0 2 1 0          of a reflection
    order      0 3 2 1          a stable sort of that: equal places keep their order
    result[j]  reduces updates[order[start[j] + k]]
"""

from dataclasses import dataclass

import numpy as np

from lamina.core.dtypes import float32, float64, int32, int64
from lamina.core.recent import memoized
from lamina.core.shape import prod
from lamina.graph.scatter_runs import Updates, own_index, reduced
from lamina.graph.scatter_sums import with_gains
from lamina.graph.search import places_by_counting, places_in_sorted
from lamina.ir import build
from lamina.ir.interpreter import evaluate
from lamina.ir.node import Node, toposort
from lamina.ir.ops import Group, Op
from lamina.ir.substitute import rebuilt_in_order

MAX_UPDATES = 1 << 20  # of an index that is computed at compile time, in 0.2 s
# Seconds of an H200 for an update and a place that are compared to find where the windows of all
# places begin and end: 44,758 updates and 22,379 places took 608 us.
PAIR_SECONDS = 6e-13
# Seconds of a step of a binary search, which waits for the one before: 250 clocks of a read from
# the second-level cache. 2048 updates have 12 steps, 1.8 us.
STEP_SECONDS = 1.5e-7
# What gives the same numbers on every device.
EXACT = (Group.ELEMENTWISE - Group.TRANSCENDENTAL - {Op.POW}) | Group.MOVEMENT | {Op.IOTA, Op.CONST}


@dataclass(frozen=True)
class Windows:
    """How the updates of a scatter lie.

    index: the place of each, of one axis, int32, ascending
    order: which update comes at which place of that; None where they lie in that order
    longest: the most updates of a place
    """

    index: Node
    order: Node | None
    longest: int


def windows_of(scatter: Node) -> Windows | None:
    """The windows of a scatter that reduces; None of any other, or if its index is not known."""
    if scatter.op is not Op.SCATTER or scatter.arg.monoid is None:
        return None
    base, index, updates = scatter.src
    axis = scatter.arg.axis
    count, once = updates.shape[axis], own_index(index)
    is_vector = once.shape[axis] == prod(once.shape) == count
    if not is_vector or not 0 < count <= MAX_UPDATES:
        return None
    index = build.cast(build.reshape(once, (count,)), int64)
    known = _known_places(index, base.shape[axis])
    if known is None:
        return None
    index = build.cast(index, int32)
    if known.ascend:
        return Windows(index, None, known.longest)
    order = build.cast(build.argsort(index), int32)
    in_order = build.cast(Node(Op.GATHER, (index, order), 0), int32)
    return Windows(in_order, order, known.longest)


@dataclass(frozen=True)
class _KnownPlaces:
    """Of the places of an index: whether they ascend, and the most updates of one, 1 at least."""

    ascend: bool
    longest: int


@memoized(256)
def _known_places(index: Node, size: int) -> _KnownPlaces | None:
    """The places of an index, of `size` there are; None if the index is not known, or has an
    element beyond int32. Of a million elements these two numbers are kept."""
    places = _known(index)
    if places is None or places.min() < int32.min or places.max() > int32.max:
        return None
    inside = places[(places >= 0) & (places < size)]
    longest = int(np.bincount(inside).max(initial=0))
    return _KnownPlaces(not np.any(np.diff(places) < 0), max(longest, 1))


def _known(index: Node) -> np.ndarray | None:
    """The elements of an index that is made of indices and numbers alone; None of any other, and of
    one that depends on how a compiler rounds."""
    parts = toposort([index])
    if any(node.op not in EXACT or _may_be_contracted_otherwise(node) for node in parts):
        return None
    contracted = rebuilt_in_order(parts, {}, _rounded_once)[index]
    places, other_places = evaluate([index, contracted])
    return places if np.array_equal(places, other_places) else None


def _may_be_contracted_otherwise(node: Node) -> bool:
    """Is it a sum that compilers may contract, but not to what `_rounded_once` makes of it? No
    dtype holds all bits of a product of float64, and of two products compilers round one."""
    if node.op is not Op.ADD or not node.dtype.is_float:
        return False
    products = sum(_is_product(term) for term in node.src)
    return products == 2 or (products == 1 and node.dtype is float64)


def _is_product(term: Node) -> bool:
    """Is it a product, or the negation of one?"""
    return term.op is Op.MUL or (term.op is Op.NEG and _is_product(term.src[0]))


def _rounded_once(node: Node, src: tuple[Node, ...]) -> Node:
    """A sum of float32 with a product as a fused multiply-add has it, which rounds once: compilers
    for GPUs contract ``i * ratio + offset`` to that."""
    if node.op is not Op.ADD or node.dtype is not float32:
        return Node(node.op, src, node.arg)
    left, right = map(_not_rounded, src)
    return build.cast(left + right, float32)


def _not_rounded(term: Node) -> Node:
    """A product of float32, or its negation, in float64, which holds all of its bits."""
    if term.op is Op.NEG:
        return -_not_rounded(term.src[0])
    if term.op is Op.MUL:
        left, right = (build.cast(factor, float64) for factor in term.src)
        return left * right
    return build.cast(term, float64)


def scatter_of_windows(scatter: Node) -> Node | None:
    """A scatter as reductions of windows; None if it has none."""
    windows = windows_of(scatter)
    if windows is None:
        return None
    base, index, values = scatter.src
    axis, monoid = scatter.arg
    keys = build.cast(own_index(index), int32)
    order = None if windows.order is None else build.reshape(windows.order, keys.shape)
    updates = Updates(values, order, keys, base.shape[axis], axis, monoid)
    return with_gains(scatter, reduced(updates, _update_numbers(updates, windows)))


def _update_numbers(updates: Updates, windows: Windows) -> Node:
    """Which updates each place reduces, along the axis and the next one, int32; -1 is none.

    Where windows begin and end is found by a small kernel for all scatters by one index.
    """
    places, longest = updates.places, windows.longest
    start, end = _updates_before(windows.index, places)
    box = (places, longest)
    step = build.cast(build.broadcasted_iota(box, 1), int32)
    number = build.broadcast_in_dim(start, 0, box) + step
    is_inside = number < build.broadcast_in_dim(end, 0, box)
    number = is_inside.select(number, number.lift(-1))
    return build.reshape(number, updates.along(updates.keys, places, longest))


def _updates_before(index: Node, places: int) -> tuple[Node, Node]:
    """How many updates come before those of each place, and before those of the next one, int32."""
    (count,) = index.shape
    place = build.iota(places, int32)
    if count * places * PAIR_SECONDS < count.bit_length() * STEP_SECONDS:
        start = places_by_counting(index, place)
        return start, places_by_counting(index, place, from_right=True)
    start = places_in_sorted(index, place, 0)
    end = places_in_sorted(index, place, 0, from_right=True)
    return build.cast(start, int32), build.cast(end, int32)
