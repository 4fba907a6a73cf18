"""The loop axes of one kernel: made on demand, numbered in order, split where a reshape needs it.

Two numbers identify a loop. A *logical axis* is one axis of an array that a loop runs along; its
number counts the logical axes made so far. A plan may say that a logical axis is in several
*pieces*: an axis of 12 elements with the pieces (3, 4) becomes the two loops i < 3 and j < 4, and
its index is 4 * i + j. Each piece is an AXIS node, whose number counts the AXIS nodes made so far.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from lamina.core.shape import Shape
from lamina.graph import index as ix
from lamina.ir.kernel import free_axes
from lamina.ir.node import Node

Index = tuple[Node, ...]  # a scalar int64 index for each axis of an array
# For each logical axis that is split, the sizes of its pieces, outermost first.
AxisPlan = Mapping[int, tuple[int, ...]]


@dataclass(frozen=True)
class AxisSplit:
    """A request: no division is needed if `axis` is in two pieces, the inner of `factor` steps.

    A reshape from (12,) to (3, 4) reads the index i as (i // 4, i % 4). With i = 4 * j + k for
    j < 3 and k < 4 that is (j, k).
    """

    axis: Node
    factor: int


@dataclass(frozen=True)
class _Origin:
    """Which piece of which logical axis an AXIS node is."""

    logical: int
    piece: int


@dataclass(frozen=True)
class Loops:
    """Loops over an array, and the index that they give.

    `index` has an entry for each axis of the array. `axes` holds the loops, outermost first: none
    for an axis of size 1, several for one that is in pieces.
    """

    index: Index
    axes: tuple[Node, ...]


class LoopAxes:
    """Makes the loop axes of one kernel. `plan` says which logical axes are in pieces."""

    def __init__(self, plan: AxisPlan) -> None:
        self.plan = plan
        self._origins: dict[Node, _Origin] = {}  # of every AXIS node made so far, in order
        self._logical_count = 0
        self._hoisted: int | None = None  # number of the AXIS node that runs around the kernel
        self._shared: dict[tuple[Shape, Index], Loops] = {}  # the loops of `reduce_loops`

    def open(self, shape: Sequence[int], *, reduce: bool = False) -> Loops:
        """New loops over an array of `shape`; `reduce` marks those of a reduction."""
        index: list[Node] = []
        opened: list[Node] = []
        for size in shape:
            position, pieces = self._open_axis(size, reduce)
            index.append(position)
            opened += pieces
        return Loops(tuple(index), tuple(opened))

    def _open_axis(self, size: int, reduce: bool) -> tuple[Node, list[Node]]:
        """The index along one new logical axis, and its loops, the outermost first.

        For an axis of 12 in the pieces (3, 4) that is ``4 * i + j``, and the loops i and j. An axis
        of size 1 has the index 0 and no loop, but takes a number of the plan like any other.

        A piece that `hoist_next` has numbered is part of the index, but not among the loops: a loop
        around the kernel runs it, so that no reduction runs over it either.
        """
        logical = self._logical_count
        self._logical_count += 1
        opened: list[Node] = []
        position = ix.ZERO
        if size == 1:
            return position, opened
        pieces = self.plan.get(logical, (size,))  # without a plan, one piece of all steps
        for piece, piece_size in enumerate(pieces):
            number = len(self._origins)
            is_hoisted = number == self._hoisted
            axis = ix.axis(number, piece_size, reduce=reduce and not is_hoisted)
            self._origins[axis] = _Origin(logical, piece)
            if not is_hoisted:
                opened.append(axis)
            position = ix.add(ix.scale(position, piece_size), axis)  # i, then 4 * i + j
        return position, opened

    def hoist_next(self, size: int) -> Node:
        """The AXIS node, of `size` steps, that the next call of `open` makes first.

        A loop around the kernel runs it: `open` uses it in indices, but does not open it. This is
        how a sum over all rows becomes a sum over the rows of one block at a time. `size` is the
        first piece that the plan has of that axis: for 64 rows in the pieces (4, 16), the node is
        b < 4, and the sum runs over i < 16 alone, at the rows ``16 * b + i``.
        """
        self._hoisted = len(self._origins)
        return ix.axis(self._hoisted, size)

    def reduce_loops(self, index: Index, shape: Shape, axes: Collection[int]) -> Loops:
        """Loops along `axes` of an array of `shape`, whose other axes are at `index`.

        `index` has an entry for each of the other axes, in order; the index that comes back has one
        for every axis. For axis 1 of (8, 100, 5) at (i, j) it is (i, k, j), with the loop k < 100.

        Reductions and columns of the same sizes share their loops, so that a value which two passes
        over a row compute is one node: for max(x[i, j]) and sum(exp(x[i, j])) over j < 100 it is
        one loop over j. A reduction inside another one, whose `index` depends on the loop of the
        outer one, shares no loop with that: both run at once.
        """
        sizes = tuple(size for axis, size in enumerate(shape) if axis in axes)
        # The parts of `index` along the loops of an outer reduction; () if there is none.
        in_outer_loops = tuple(position for position in index if _is_reduced(position))
        key = sizes, in_outer_loops
        loops = self._shared.get(key)
        if loops is None:
            loops = self._shared[key] = self.open(sizes, reduce=True)
        reduced = iter(loops.index)
        others = iter(index)
        whole = [next(reduced if axis in axes else others) for axis in range(len(shape))]
        return Loops(tuple(whole), loops.axes)

    def split(self, request: AxisSplit) -> AxisPlan:
        """The plan with the piece that is `request.axis` in two.

        The pieces (3, 8) of a logical axis become (3, 2, 4) for the axis of 8 and factor 4.
        """
        origin = self._origins[request.axis]
        size = request.axis.arg.size
        # Without a plan the one loop is the whole logical axis.
        pieces = list(self.plan.get(origin.logical, (size,)))
        pieces[origin.piece : origin.piece + 1] = [size // request.factor, request.factor]
        return {**self.plan, origin.logical: tuple(pieces)}


def _is_reduced(position: Node) -> bool:
    """Whether an index depends on the axis of a reduction."""
    return any(axis.arg.reduce for axis in free_axes(position))
