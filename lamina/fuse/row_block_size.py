"""Which of the shared rows number the blocks, and how many rows a block has.

Take the scores ``q @ k.T`` of attention in float32, for 8 heads of 2048 queries, 2048 keys and 64
columns. The members share row 0, the heads, and row 1, the queries. A row of scores has 8 KiB, so
with the weights of the softmax a block holds 16 KiB for each query. The cache of 512 KiB holds 32
queries: blocks are numbered by the head and by the 2048 / 32 = 64 parts of its queries. Each block
reads the 512 KiB of all keys of one head again, and 512 KiB of v.
"""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from math import prod

from lamina.core.integers import first_divisor
from lamina.fuse import row_block_limits as limits
from lamina.fuse.axes import Index
from lamina.fuse.kernel_group import KernelGroup
from lamina.fuse.row_block_members import RowBlocks
from lamina.ir.kernel import free_axes, free_axes_of, points, terms_of
from lamina.ir.node import Node


@dataclass(frozen=True)
class BlockSize:
    """How the rows of row blocks are cut: rows (0, 1) and size 32 for one block of 32 queries of
    each head.

    `rows` are the shared rows that number the blocks. A block is at one index of each of them but
    the last, along which it has `size` rows. `is_in_pieces`: are these rows neighbours in a large
    array that it reads, of which it gets short pieces?
    """

    rows: tuple[int, ...]
    size: int
    is_in_pieces: bool


def block_size_of(row_blocks: RowBlocks) -> BlockSize | None:
    """How to cut the rows of `row_blocks`; None if no way is possible or pays."""
    if not row_blocks.block_values or not row_blocks.shared_rows:
        return None
    sizing = _Sizing(row_blocks)
    rows = sizing.numbering_rows()
    if not rows:
        return None
    size = sizing.rows_of_a_block(rows)
    if not size or not sizing.can_split(rows[-1], size):
        return None
    held_bytes = sizing.row_bytes(rows) * size
    if sizing.reread_bytes(rows, rows[-1]) >= limits.REREAD_LIMIT * held_bytes:
        return None
    return BlockSize(tuple(rows), size, sizing.reads_pieces(rows[-1], size))


class _Sizing:
    """Weighs what blocks of `row_blocks` would hold against what they would read again."""

    def __init__(self, row_blocks: RowBlocks) -> None:
        self.row_blocks = row_blocks

    def reads_pieces(self, row: int, size: int) -> bool:
        """Does a block of `size` rows read pieces of less than MIN_PIECE bytes of a large array?

        16 channels of images with their channels last, (8, 28, 28, 192), are pieces of 64 bytes.
        """
        for member, loop_of_row in self.row_blocks.loop_of_row.items():
            walked = free_axes(member.block_candidates[loop_of_row[row]].index)
            for array, indices in member.reads.items():
                is_block = array in self.row_blocks.block_values
                long_axes = [axis for axis, length in enumerate(array.shape) if length > 1]
                if is_block or not long_axes or array.nbytes < limits.MIN_BYTES:
                    continue
                innermost = long_axes[-1]
                piece = size * array.dtype.itemsize
                is_cut = array.shape[innermost] > size and piece < limits.MIN_PIECE
                if is_cut and any(walked & free_axes(index[innermost]) for index in indices):
                    return True
        return False

    # Which rows number the blocks.

    def numbering_rows(self) -> list[int]:
        """The rows that number the blocks, the one that is cut into blocks last; none if row blocks
        are impossible.

        They are all shared rows, unless blocks would read too much again: then the last one is
        dropped, and blocks are whole along it. Two products x @ a and x @ b, multiplied by each
        other, with x of (512, 512), a and b of (512, 2048), share 512 rows and 2048 columns.
        Numbered by both, a block would be a part of one row of the results; numbered by the rows
        alone, it is 64 whole rows. `_rereads_much` has the numbers.
        """
        rows = self._in_order()
        while len(rows) > 1 and self._rereads_much(rows):
            dropped = rows.pop()
            if self._is_summed(dropped):
                # Blocks of the other rows would hold every row of that sum at once: not tried.
                return []
        return rows

    def _in_order(self) -> list[int]:
        """The shared rows in the order of the axes of the last kernel, but with the row along which
        members sum at the end. Memory adds up the parts of such a sum: blocks along the last row
        then run one after the other, and others in parallel. Empty if members sum along several
        rows, or if too few blocks would run in parallel."""
        shared = self.row_blocks.shared_rows
        summed = {row for row in shared if self._is_summed(row)}
        rows = sorted(shared, key=lambda row: (row in summed, row))
        if summed:
            parallel = prod(self._extent(row) for row in rows[:-1])
            if summed != {rows[-1]} or parallel < limits.MIN_PARALLEL:
                return []
        return rows

    def _is_summed(self, row: int) -> bool:
        """Whether a member sums along the shared `row`."""
        return any(self.row_blocks.sums_along(member, row) for member in self.row_blocks.members)

    def _rereads_much(self, rows: Sequence[int]) -> bool:
        """Whether all blocks along the last of `rows` together read much that is read again at each
        index of another one.

        In the example of `numbering_rows` all blocks at one of the 512 rows hold 2048 numbers of
        x @ a, 8 KiB. They read a and b, 8 MiB, and so do the blocks at each other row: 1024 times
        as much as they hold.
        """
        held_bytes = self.row_bytes(rows) * self._extent(rows[-1])
        limit = limits.REREAD_LIMIT * held_bytes
        return any(self.reread_bytes(rows, row) >= limit for row in rows[:-1])

    # How many rows a block has.

    def rows_of_a_block(self, rows: Sequence[int]) -> int:
        """How many indices of the last of `rows` a block has, a divisor of its extent; 0 if blocks
        do not pay: if they save little memory, or have fewer rows than MIN_BLOCK_ROWS.

        With rows of 16 KiB the cache of 512 KiB holds 32: of 1000 rows a block has 25, the largest
        divisor up to 32. With rows of 64 KiB the cache holds 8, but ENOUGH_ROWS is 16: a block has
        10, the largest divisor up to 16, and takes 640 KiB.
        """
        if self.row_blocks.saved_bytes < limits.MIN_BYTES:
            return 0
        extent = self._extent(rows[-1])
        row_bytes = self.row_bytes(rows)
        wanted = max(limits.CACHE_BYTES // row_bytes, limits.ENOUGH_ROWS)
        largest = min(wanted, limits.MAX_BLOCK_BYTES // row_bytes, extent)
        # 0 if one row takes more than MAX_BLOCK_BYTES
        size = first_divisor(extent, range(largest, 0, -1), 0)
        has_enough_rows = size >= min(limits.MIN_BLOCK_ROWS, extent)
        return size if has_enough_rows else 0

    def can_split(self, row: int, size: int) -> bool:
        """Whether each member can have the pieces (extent / size, size) along `row`, the outer one
        of which numbers the blocks.

        Not if it needs that row in other pieces already. A whole row has the index i, with the
        factor 1; one in the pieces (n, size) has ``size * outer + inner``, with the factors size
        and 1. For pieces (n, 6) and blocks of 4 rows the factor 6 is in the way.
        """
        for member in self.row_blocks.members:
            factor_of, _ = terms_of(self.row_blocks.loop(member, row).index)
            if any(factor not in (1, size) for factor in factor_of.values()):
                return False
        return True

    def row_bytes(self, rows: Sequence[int]) -> int:
        """The bytes of all block values at one index of each of `rows`: what a block of one row
        holds. 268,435,456 bytes of scores and weights, by 8 heads and 2048 queries: 16,384."""
        return self.row_blocks.saved_bytes // prod(map(self._extent, rows))

    def _extent(self, row: int) -> int:
        """How many indices a row has."""
        return self.row_blocks.last.rows[row]

    # What is read again.

    def reread_bytes(self, rows: Sequence[int], along: int) -> int:
        """The bytes that members read, or add to, anew at each index of the row `along`, one of
        `rows`, while the other rows but the last stay at one index.

        If `along` is the last row, each block reads so many bytes that other blocks along that row
        read too. If it is another one, all blocks along the last row together do.

        Along the queries of the scores each block reads all keys of its head again: 2048 * 64 * 4
        bytes. Its rows of q do not count, as each block reads others. Along the heads nothing
        counts, as each head has its own keys.
        """
        return sum(self._reread_by(member, rows, along) for member in self.row_blocks.members)

    def _reread_by(self, member: KernelGroup, rows: Sequence[int], along: int) -> int:
        """The same for one member. An element counts once for each iteration that touches it:
        ``x[i + j]`` for i < 8 and j < 3 counts as 24 elements, though x has 10."""
        walked = free_axes(self.row_blocks.loop(member, along).index)
        fixed = free_axes_of(self.row_blocks.loop(member, row).index for row in rows[:-1])
        total = 0
        for node, indices in self._touched(member, along).items():
            for index in indices:
                axes = free_axes_of(index)
                is_touched_again = axes.isdisjoint(walked)  # whatever the index of `along` is
                if is_touched_again:
                    iterations = points(axes - fixed)
                    total += iterations * node.dtype.itemsize
        return total

    def _touched(self, member: KernelGroup, along: int) -> Mapping[Node, Set[Index]]:
        """The whole arrays that `member` may touch again at each index of the row `along`, with
        the indices at which it does: all arrays in memory that it reads, no block values.

        If the member sums along that row, it is the sum alone, to each element of which every block
        adds. What it reads is taken to be other elements for each step of the sum.
        """
        if self.row_blocks.sums_along(member, along):
            total = member.members[-1]
            return {total: {member.lowered.index_of[total]}}
        block_values = self.row_blocks.block_values
        return {node: indices for node, indices in member.reads.items() if node not in block_values}
