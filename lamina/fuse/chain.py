"""Placement between a kernel and device memory: chains of kernels that run in blocks of rows.

Where a kernel reads no rows but its own of what another wrote, both can run for one block of rows
after the other. What passes between them then needs memory for a block alone, which stays in the
cache, and the whole array never exists.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import prod

from lamina.fuse.group import ALONE, Block, KernelGroup
from lamina.ir.kernel import free_axes, points
from lamina.ir.node import Node, toposort

LARGE = 1 << 20  # bytes of arrays that are worth keeping out of memory
CACHED = 1 << 19  # bytes of a block
LEAST_ROWS = 16  # of a block, whatever they take, up to
MOST = 3 << 20  # bytes
PRODUCTS = 2  # of a chain at least: what is between others is cheaper to lay out as it comes
READ_AGAIN = 8  # times the bytes of a block that each block may read once more

Readers = Mapping[object, Sequence[KernelGroup]]
Rows = dict[int, int]  # a row axis of the last kernel -> the same axis of something else


def chained(
    groups: Sequence[KernelGroup], readers: Readers, wanted: Iterable[Node], in_blocks: bool
) -> list[Chain]:
    """`groups` as chains; `readers` are those of each array, `wanted` the values that have to be in
    memory at the end."""
    chain_of: dict[KernelGroup, Chain] = {}
    homes = {value: group for group in groups for value in group.members}
    kept = set(wanted)
    for last in reversed(groups):
        if last not in chain_of:
            chain = Chain(last, homes, chain_of)
            large = any(_nbytes(value) >= LARGE for value in last.operands)
            if large and in_blocks and last.first.op not in ALONE:
                chain.grow(readers, kept)
            if chain.settle():
                chain.groups = [one for one in groups if one in chain.rows_of]
            chain_of |= dict.fromkeys(chain.groups, chain)
    return list(dict.fromkeys(chain_of[one] for one in groups))


class Chain:
    """Kernels that run together, block by block: `last` and those before it that can share its
    blocks. Most chains are of one kernel."""

    def __init__(
        self, last: KernelGroup, homes: dict[Node, KernelGroup], chain_of: dict[KernelGroup, Chain]
    ) -> None:
        self.last, self.homes, self.chain_of, self.groups = last, homes, chain_of, [last]
        self.rows_of: dict[KernelGroup, Rows] = {last: {row: row for row in range(len(last.rows))}}
        self.inside: dict[Node, Rows] = {}  # values that stay inside, and which axes the rows are

    @property
    def src(self) -> tuple[Chain, ...]:
        """What must run before."""
        before = (self.chain_of[one] for group in self.groups for one in group.src)
        return tuple(one for one in dict.fromkeys(before) if one is not self)

    @property
    def rows(self) -> set[int]:
        """The row axes that all members share."""
        return set.intersection(*map(set, self.rows_of.values()))

    def grow(self, readers: Readers, kept: set[Node]) -> None:
        """Let kernels join whose values a member reads, each block its own rows alone."""
        for reader in (todo := [self.last]):
            for value in reader.operands:
                home = self.homes[value]
                rows = self._rows_of_home(home, value, axes := self._axes(reader, value))
                enough = rows and rows.keys() >= (self.rows if self.inside else rows.keys())
                # What others read as well lies in memory, in an order that blocks do not write.
                large = [one for one in home.members if one is value or _nbytes(one) >= LARGE]
                own = all(by in self.rows_of for one in large for by in readers.get(one, ()))
                if enough and own and kept.isdisjoint(large):
                    todo += [] if home in self.rows_of else [home]
                    self.rows_of[home], self.inside[value] = rows, axes

    def _axes(self, reader: KernelGroup, node: Node) -> Rows:
        """The axes of an array along which `reader` stays in its own row."""
        return {
            row: axis
            for row, at in self.rows_of[reader].items()
            for axis, size in enumerate(node.shape)
            if size == reader.rows[at]
            and all(index[axis] is reader.row_index[at] for index in reader.read_at[node])
        }

    def _rows_of_home(self, home: KernelGroup, value: Node, axes: Rows) -> Rows:
        if home.first.op in ALONE or home.block is not None:
            return {}
        index, known = home.index_of[value], self.rows_of.get(home)
        rows = {row: home.row_index.index(index[axis]) for row, axis in axes.items()
                if index[axis] in home.row_index}  # fmt: skip
        return {row: at for row, at in rows.items() if known is None or known.get(row) == at}

    def _is_closed(self) -> bool:
        """Does nothing stand between two members, nor one read other rows of another?"""
        members = self.rows_of.keys()
        around = {one for group in members for one in group.src} - members
        return members.isdisjoint(toposort(around)) and all(
            self._axes(group, value).keys() >= self.rows
            for group in members
            for value in group.operands
            if self.homes[value] in members
        )

    def settle(self) -> bool:
        """Put every member in blocks, if that pays."""
        if not self.inside or not self.rows or not self._is_closed():
            return False
        *_, split = rows = sorted(self.rows)
        if sum(group.contracts is not None for group in self.rows_of) < PRODUCTS:
            return False
        total, count = sum(map(_nbytes, self.inside)), self.last.rows[split]
        a_row = total // prod(self.last.rows[row] for row in rows)
        most = min(max(CACHED // a_row, LEAST_ROWS), count)
        size = max(one for one in range(1, most + 1) if count % one == 0)
        fits = size >= min(LEAST_ROWS, count) and size * a_row <= MOST
        if total < LARGE or not fits or self._read_again(split) > READ_AGAIN * size * a_row:
            return False
        inside = {value: tuple(axes[row] for row in rows) for value, axes in self.inside.items()}
        for group, at in self.rows_of.items():
            group.run_in_blocks(Block(tuple(at[row] for row in rows), size, inside))
        return True

    def _read_again(self, split: int) -> int:
        """Bytes that every block along `split` reads, the same ones each time."""
        total = 0
        for group, at in self.rows_of.items():
            rows = {group.row_index[at[row]] for row in self.rows}
            for node in group.read_at.keys() - self.inside.keys():
                for index in group.read_at[node]:
                    free = frozenset[Node]().union(*map(free_axes, index))
                    again = group.row_index[at[split]] not in free
                    total += points(free - rows) * node.dtype.itemsize * again
        return total


def _nbytes(node: Node) -> int:
    return prod(node.shape) * node.dtype.itemsize
