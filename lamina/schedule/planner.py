"""What the heuristics of all devices share: building a schedule move by move, and scores of axes
by the memory accesses that vary along them."""

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from lamina.core.integers import power_of_two_up_to
from lamina.errors import FormatError
from lamina.graph import index as ix
from lamina.ir.kernel import Kernel, bound_axes, free_axes, free_axes_of, loads_beneath, points
from lamina.ir.node import Node
from lamina.ir.ops import Op
from lamina.ir.products import contraction
from lamina.loops import moves
from lamina.loops.nest import Axes

# Accesses that are more than this many times rarer than the most frequent ones do not count in
# scores: ``b[i]``, loaded once a row, does not count beside ``x[i, j]`` in rows of 128 elements; in
# rows of 64 it does. An estimate.
RARE = 64


class Planner:
    """Builds a schedule move by move on the nest it has made so far.

    width: elements that fill a vector register, or one access of a GPU's thread
    """

    def __init__(self, kernel: Kernel, width: int) -> None:
        self.width = width
        self.moves: list[moves.Move] = []
        self.nest = moves.apply(kernel, ())

    @property
    def kernel(self) -> Kernel:
        """The kernel as the moves so far have left it."""
        return self.nest.kernel

    @property
    def rows(self) -> Axes:
        """The row axes that the schedule may choose for; row blocks come before."""
        return self.kernel.row_axes[self.kernel.blocks :]

    def inner(self) -> list[Axes]:
        """The axes of each column loop, then of each reduction; equal lists of axes once."""
        columns = [store.axes[self.kernel.rows :] for store in self.kernel.stores]
        bound = [bound_axes(node) for node in self.kernel.nodes]
        return [axes for axes in dict.fromkeys(columns + bound) if axes]

    def contraction(self) -> Node | None:
        """The reduction that gets a register tile, if any: `contraction` of `lamina/ir/products.py`
        over the rows that the schedule may choose for."""
        return contraction((store.value for store in self.kernel.stores), self.rows)

    def lanes(self, size: int) -> int:
        """The widest vector that fits `size`, as a power of two: 8 for 13 if 8 fill a register."""
        return max(1, min(self.width, power_of_two_up_to(size)))

    def benefit(self, axis: Node) -> int:
        """The score of vectors along `axis` times the lanes that it fills: with 16 in a register,
        an axis of 8 that scores 3 has 24, and one of 100 that scores 2 has 32. Zero or
        less: no gain."""
        return score(self.kernel, axis) * self.lanes(axis.arg.size)

    def next_axis(self) -> int:
        """A number that no axis has."""
        return max(int(axis.arg.number) for axis in self.nest.order) + 1

    def do(self, move: moves.Move) -> None:
        """Make a move. Raises FormatError if it does not fit."""
        self.nest = move.apply(self.nest)
        self.moves.append(move)

    def reorder(self, axes: Sequence[Node]) -> None:
        """Rows that are not among `axes` outermost, then those, each where it is named first."""
        other_rows = [row for row in self.kernel.row_axes if row not in axes]
        numbers = dict.fromkeys(axis.arg.number for axis in (*other_rows, *axes))
        self.do(moves.Reorder(tuple(numbers)))

    def bind(self, axis: Node, to: str) -> None:
        """Let `to`, one of `nest.BINDINGS`, run the iterations of `axis`."""
        self.do(moves.Bind(axis.arg.number, to))

    def split(self, axis: Node, factor: int) -> tuple[Node, Node]:
        """Split `axis` into blocks of `factor`; the axis of blocks and that within one."""
        outer = self.next_axis()
        self.do(moves.Split(axis.arg.number, factor, outer, outer + 1))
        return self.nest.axis(outer), self.nest.axis(outer + 1)

    def tile(self, axis: Node, size: int, to: str) -> Node:
        """Bind the iterations within each block of `size` of `axis`; gives the axis of blocks, or
        `axis` itself where a block has one iteration."""
        if size == 1:
            return axis
        outer, inner = self.split(axis, size)
        self.bind(inner, to)
        return outer

    def vectorize(self, axis: Node) -> None:
        """Bind as many neighbours along `axis` as a vector holds to its lanes."""
        lanes = self.lanes(axis.arg.size)
        if lanes == 1:
            return
        vector = axis if lanes == axis.arg.size else self.split(axis, lanes)[1]
        self.bind(vector, "vector")

    def stage(self, values: Iterable[Node], loop: Node) -> None:
        """Stage each of `values` that fits in `loop`; one that is staged with another, or is too
        large, stays where it is."""
        for value in values:
            with contextlib.suppress(FormatError):
                self.do(moves.Stage(self.kernel.values.index(value), loop.arg.number))

    def keep(self, values: Iterable[Node]) -> None:
        """Keep each of `values` of constants from call to call, in the order of the loops."""
        for value in values:
            self.do(moves.Keep(self.kernel.values.index(value)))

    def fuse_all(self) -> None:
        """Fuse neighbouring axes until no pair of them fits: rows of 3 and 8 that every index
        walks as ``8 * a0 + a1`` become one of 24."""
        while self._fuse_pair():
            pass

    def _fuse_pair(self) -> bool:
        """Fuse the first two neighbours that fit; False if no two do. Rows come before the loops
        inside them."""
        for axes in (self.rows, *self.inner()):
            for first, second in pairwise(axes):
                with contextlib.suppress(FormatError):
                    self.do(moves.Fuse(first.arg.number, second.arg.number, self.next_axis()))
                    return True
        return False


def score(kernel: Kernel, axis: Node, worst: int = ix.BY_LANE) -> int:
    """How well accesses suit lanes along `axis`: the sum of `index.suits` over loads and stores,
    each counted once, without RARE ones. ``y[i] = x[i] + z[j, i]`` scores 3 along i, which is
    contiguous for all, and ``y[i] = x[i] + z[i, j]`` scores 1 + 1 - 1. No access scores less than
    `worst`."""
    accesses = [
        (times, max(ix.suits(axis, index, condition), worst))
        for times, index, condition in _accesses(kernel)
    ]
    most_frequent = max(times for times, _ in accesses)
    return sum(suits for times, suits in accesses if times * RARE >= most_frequent)


def distance(kernel: Kernel, axis: Node) -> int:
    """How far apart neighbours along `axis` are at least in any array, in elements, without RARE
    accesses: the shortest stride of an index; 0 where none is a sum of it."""
    strides = (abs(ix.terms_of(index)[0].get(axis, 0)) for index in _frequent_indices(kernel))
    return min(filter(None, strides), default=0)


def is_moved_by_data(kernel: Kernel, axis: Node) -> bool:
    """Do data say where neighbours along `axis` lie, in an access that is not RARE?"""
    return any(
        axis in free_axes(term)
        for index in _frequent_indices(kernel)
        for term in ix.terms_of(index)[0]
        if term.op is not Op.AXIS
    )


def _frequent_indices(kernel: Kernel) -> list[Node]:
    """The indices of all loads and stores without RARE ones."""
    accesses = [(times, index) for times, index, _ in _accesses(kernel)]
    most_frequent = max(times for times, _ in accesses)
    return [index for times, index in accesses if times * RARE >= most_frequent]


def _accesses(kernel: Kernel) -> Iterator[tuple[int, Node, Node]]:
    """Of each load and store how often it runs, its index and its condition."""
    for load in kernel.of(Op.LOAD):
        index, *conditions = load.src
        yield points(free_axes(load)), index, conditions[0] if conditions else ix.TRUE
    for store in kernel.stores:
        yield points(store.axes), store.index, store.condition


def store_score(kernel: Kernel, axis: Node) -> int:
    """How well stores suit lanes along `axis`: the sum of `index.suits` over all stores."""
    return sum(ix.suits(axis, store.index, store.condition) for store in kernel.stores)


def is_strided(load: Node, axis: Node) -> bool:
    """Do neighbours along `axis` lie apart in the array that `load` reads?"""
    return ix.suits(axis, *load.src) == ix.STRIDED


def is_contiguous(load: Node, axis: Node) -> bool:
    """Do neighbours along `axis` lie next to each other in the array that `load` reads?"""
    return ix.suits(axis, *load.src) == ix.NEIGHBOURS


def transposed_axis(
    plan: Planner, loads: Iterable[Node], row: Node, min_size: int
) -> Node | None:
    """The row axis along which one of `loads` is contiguous that is strided along `row`, if both
    have `min_size` elements: ``y[i, j] = x[j, i]`` gives i for the row j."""
    if row.arg.size < min_size:
        return None
    long_rows = [axis for axis in plan.rows if axis.arg.size >= min_size]
    for load in loads:
        if is_strided(load, row):
            for axis in long_rows:
                if is_contiguous(load, axis):
                    return axis
    return None


def loads_along(reduction: Node, axis: Node) -> list[Node]:
    """The loads beneath `reduction` that vary along `axis`: of ``sum_k a[i, k] * b[k, j]`` that of
    a along i, that of b along j, and both along k."""
    return [load for load in loads_beneath(reduction.src) if axis in free_axes(load)]


def reused_rows(plan: Planner, reduction: Node, vector: Node, height: int) -> list[Node]:
    """The row axes along which the loads that vary along `vector` are used again, while another
    operand of `reduction` varies. In ``y[i, j] = sum_k a[i, k] * b[k, j]`` that is i for vectors
    along j: b is used again for each i.

    The axis that suits a register tile of `height` rows best comes last: the longest. Axes of
    `height` - 1 rows or more count as equally long, as they fill the tile, or nearly so; of these
    the innermost comes last.
    """
    varying = {vector} | free_axes_of(loads_along(reduction, vector))
    rows = [row for row in plan.rows if row not in varying and row in free_axes(reduction)]
    # Rows come outermost first, and equal keys stay in that order.
    return sorted(rows, key=lambda row: min(row.arg.size, height - 1))
