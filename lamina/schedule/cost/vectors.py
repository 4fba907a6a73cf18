"""Which accesses are instructions on whole vectors: how the lanes of one lie in its array."""

from collections.abc import Set
from dataclasses import dataclass, replace
from math import ceil

from lamina.core.dtypes import DType, bool_, int32
from lamina.graph import index as ix
from lamina.ir.kernel import Kernel, free_axes, points
from lamina.ir.node import Node
from lamina.ir.ops import Op
from lamina.loops.nest import MIN_SQUARE, least_run, near_reads
from lamina.schedule.cost.body import Access, Work
from lamina.schedule.cost.conditions import is_masked

# Instructions that put four rows of bytes together to words: each row is widened, all but the first
# are shifted, and joined.
ROWS_OF_WORDS = 10


@dataclass(frozen=True)
class BodyAxes:
    """The axes of a kernel's nest whose points stand in one body: those of lanes (`vectors`), of
    copies (`unrolled`), and of the four bytes that a dot product reads as one vector with the lanes
    around them (`dots`).

    tiles: axes of words, which are loops. each_lane: as of `walk`
    """

    kernel: Kernel
    vectors: frozenset[Node]
    unrolled: frozenset[Node]
    dots: frozenset[Node]
    tiles: frozenset[Node]
    each_lane: bool

    def in_vectors(
        self, access: Access, condition: Node, around: Set[Node]
    ) -> tuple[Access, list[Work]] | None:
        """The accesses of whole vectors that make `access`, and the shuffles that put lanes in
        their places, if any. None if each lane takes an access of its own, as on a CPU those do
        that are no neighbours, and neither near ones nor a block that registers transpose.

        around: the axes of the loops around the access
        """
        index, lanes, is_store = access.index, access.lanes, access.is_store
        if lanes == 1 or not self.each_lane or self._are_neighbours(index, condition, is_store):
            return self._in_tile(access, around), []
        if is_store:
            return self._in_squares(access, condition)
        if self._is_transposed(index, condition, lanes):
            return access, [self._transpose_of(access)]
        if self._has_rows_of_bytes(index, condition):
            return self._words_of_rows(access)
        dtype = self.kernel.parameters[access.parameter].dtype
        reads = self._near_reads(index, condition, dtype, lanes)
        if not reads:
            return None
        shuffles = access.copies * max(reads - 1, 1)  # a BITCAST each, as of `_transpose_of`
        work = Work(Op.BITCAST, dtype, access.times, lanes, shuffles)
        return replace(access, copies=access.copies * reads), [work]

    def _in_tile(self, access: Access, around: Set[Node]) -> Access:
        """The access of all words of a row in place of that of one, where instructions on tiles
        read these: of 16, 64 bytes. Any other access as it is."""
        words = points(self.tiles.intersection(around))
        if words == 1 or access.lanes != points(self.dots):
            return access
        return replace(access, times=access.times / words, lanes=access.lanes * words)

    def _are_neighbours(self, index: Node, condition: Node, is_store: bool) -> bool:
        """Do the lanes of an access lie next to each other, for one instruction to serve them?

        With a dot axis of 4 bytes q and lanes along i: ``x[4 * i + q]`` is one vector, and so is
        ``x[q]``.
        """
        strides, _ = ix.terms_of(index)
        varying = free_axes(index) | free_axes(condition)
        dots = self.dots & varying
        if any(strides.get(dot) != 1 for dot in dots):
            return False
        lane_stride = points(dots)  # 4, or 1 without a dot axis
        for axis in self.vectors & varying:
            # `suits` tells ``x[i]`` from ``x[i + y[i]]``, where data decide as well.
            is_by_data = ix.suits(axis, index) == ix.BY_LANE
            if is_by_data or strides.get(axis) != lane_stride:
                return False
            # A load that a condition leaves lanes out of, as padding does, reads under a mask; a
            # store then writes lane by lane.
            has_mask = not is_store and ix.suits(axis, index, condition) == ix.NEIGHBOURS
            if axis in free_axes(condition) and not has_mask:
                return False
        return True

    def _is_transposed(self, index: Node, condition: Node, lanes: int) -> bool:
        """Are lanes a stride apart, and as many unrolled points neighbours, so that both together
        are a square block of the array? The whole block is read, or under a condition nothing: one
        that leaves out some of the lanes has each lane read by itself."""
        is_square = any(
            axis.arg.size == lanes
            and ix.suits(axis, index) == ix.NEIGHBOURS
            and axis not in free_axes(condition)
            for axis in self.unrolled
        )
        vectors = self.vectors & (free_axes(index) | free_axes(condition))
        is_strided = all(ix.suits(axis, index, condition) == ix.STRIDED for axis in vectors)
        is_for_all_lanes = self.vectors.isdisjoint(free_axes(condition))
        return is_square and is_strided and is_for_all_lanes

    def _in_squares(self, access: Access, condition: Node) -> tuple[Access, list[Work]] | None:
        """The stores of `access` and the shuffles before them where registers transpose squares of
        unrolled points: see `lamina/targets/c/squares.py`. 28 points of 16 lanes are two squares,
        32 vectors, and 14 points are one square. None where lanes are stored one by one."""
        vectors = self.vectors & free_axes(access.index)
        is_strided = all(ix.suits(axis, access.index) == ix.STRIDED for axis in vectors)
        dtype = self.kernel.parameters[access.parameter].dtype
        is_of_bytes = dtype is bool_ or self.dots & free_axes(access.index)
        is_plain = condition is ix.TRUE and not is_of_bytes
        if not (is_strided and is_plain) or access.lanes < MIN_SQUARE:
            return None
        copies = {axis: axis.arg.size for axis in self.unrolled}
        length = points(ix.run_of(access.index, copies))
        if length < least_run(access.lanes, dtype):
            return None
        of_run = ceil(length / access.lanes) * access.lanes
        stored = replace(access, copies=access.copies // length * of_run)
        return stored, [self._transpose_of(stored)]

    def _transpose_of(self, access: Access) -> Work:
        """The shuffles that transpose the blocks that `access` loads or stores: n x n elements are
        read by rows, a vector each, and each vector takes log2(n) shuffles, 4 for 16 lanes. A
        shuffle counts as a BITCAST: one instruction."""
        shuffles = access.copies * (access.lanes.bit_length() - 1)
        dtype = self.kernel.parameters[access.parameter].dtype
        return Work(Op.BITCAST, dtype, access.times, access.lanes, shuffles)

    def _near_reads(self, index: Node, condition: Node, dtype: DType, lanes: int) -> int:
        """`near_reads` of a load, whose lanes are along one axis."""
        vectors = [axis for axis in self.vectors if axis in free_axes(index)]
        if self.dots & free_axes(index) or len(vectors) != 1:
            return 0
        if condition is not ix.TRUE and not is_masked(index, condition, self.vectors):
            return 0
        if ix.suits(vectors[0], index) != ix.STRIDED:
            return 0
        return near_reads(ix.terms_of(index)[0][vectors[0]], dtype, lanes)

    def _has_rows_of_bytes(self, index: Node, condition: Node) -> bool:
        """Are the words of bytes that are multiplied columns of a matrix, whose four bytes are in
        four rows: neighbours from lane to lane, and far apart from byte to byte?"""
        strides, _ = ix.terms_of(index)
        dots, vectors = self.dots & free_axes(index), self.vectors & free_axes(index)
        are_apart = bool(dots) and all(strides.get(axis, 0) > 1 for axis in dots)
        has_neighbours = all(strides.get(axis) == 1 for axis in vectors)
        return are_apart and condition is ix.TRUE and has_neighbours

    def _words_of_rows(self, access: Access) -> tuple[Access, list[Work]]:
        """How rows of bytes are read, and put together to words."""
        rows = points(self.dots & free_axes(access.index))
        words, copies = access.lanes // rows, access.copies
        work = Work(Op.BITCAST, int32, access.times, words, copies * ROWS_OF_WORDS)
        return replace(access, lanes=words, copies=copies * rows), [work]
