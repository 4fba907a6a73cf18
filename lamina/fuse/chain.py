"""Placement between a kernel and device memory: chains of kernels that run in blocks of rows.

Where a kernel reads no rows but its own of what another wrote, both can run for one block of rows
after the other. What passes between them then needs memory for a block alone, which stays in the
cache, and the whole array never exists. A sum over these rows is added up in memory, from block to
block; other rows then run in parallel.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod

from lamina.fuse.group import ALONE, Block, KernelGroup
from lamina.ir.kernel import free_axes, points, terms_of
from lamina.ir.node import Node, toposort

LARGE = 1 << 20  # bytes of arrays that are worth keeping out of memory
CACHED = 1 << 19  # bytes of a block
LEAST_ROWS = 16  # of a block, or half of them where so many take more than
MOST = 3 << 20  # bytes
PRODUCTS = 2  # of a chain at least: what is between others is cheaper to lay out as it comes
CHUNKS = 4  # that run at once at least where sums go from block to block
READ_AGAIN = 16  # times the bytes of a block that each block may read once more

Readers = dict[object, list[KernelGroup]]
Rows = dict[int, int]  # a row axis of the last kernel -> the same axis of something else


def chained(
    groups: Sequence[KernelGroup], readers: Readers, wanted: Iterable[Node], in_blocks: bool
) -> list[Chain]:
    """`groups` as chains; `readers` are those of each array, `wanted` the values that have to be in
    memory at the end."""
    chain_of: dict[KernelGroup, Chain] = {}
    homes = {value: group for group in groups for value in group.members}
    kept = set(wanted)

    def grown(last: KernelGroup) -> Chain:
        early, chain = set[KernelGroup](), Chain(last, homes, readers, kept, chain_of)
        chain.grow(early)
        while last not in (late := chain.before() & chain.rows_of.keys()) and late:
            early |= late
            chain = Chain(last, homes, readers, kept, chain_of)
            chain.grow(early)
        return chain

    large = (one for one in groups if in_blocks and one.first.op not in ALONE
             and any(_nbytes(value) >= LARGE for value in one.operands))  # fmt: skip
    found = sorted(map(grown, large), key=lambda one: -one.nbytes)
    for chain in [*found, *found]:  # again, as values lose readers to chains that have copies
        if chain_of:
            chain = grown(chain.last)
        if chain_of.keys().isdisjoint(chain.rows_of) and chain.settle():
            own = (chain.copies.get(one, one) for one in groups)
            chain.groups = [one for one in own if one in chain.rows_of]
            chain_of |= dict.fromkeys(chain.groups, chain)
    for group in groups:
        chain_of.setdefault(group, Chain(group, homes, readers, kept, chain_of))
    return list(dict.fromkeys(chain_of[one] for one in groups))


class Chain:
    """Kernels that run together, block by block: `last` and those that can share its blocks. Most
    chains are of one kernel."""

    def __init__(
        self, last: KernelGroup, homes: dict[Node, KernelGroup], readers: Readers,
        kept: set[Node], chain_of: dict[KernelGroup, Chain],
    ) -> None:  # fmt: skip
        self.last, self.homes, self.readers, self.kept = last, homes, readers, kept
        self.chain_of, self.groups = chain_of, [last]
        self.rows_of: dict[KernelGroup, Rows] = {last: {row: row for row in range(len(last.rows))}}
        self.inside: dict[Node, Rows] = {}  # values that stay inside, and which axes the rows are
        self.copies: dict[KernelGroup, KernelGroup] = {}  # of kernels that others need elsewhere

    @property
    def src(self) -> tuple[Chain, ...]:
        """What must run before."""
        before = (self.chain_of[one] for group in self.groups for one in group.src)
        return tuple(one for one in dict.fromkeys(before) if one is not self)

    @property
    def rows(self) -> set[int]:
        """The row axes that all members share."""
        return set.intersection(*map(set, self.rows_of.values()))

    @property
    def nbytes(self) -> int:
        """Of the arrays that need not exist."""
        return sum(map(_nbytes, self.inside))

    def grow(self, early: set[KernelGroup]) -> None:
        """Let kernels join whose values a member reads, each block its own rows alone, with all
        that read them too. What some need `early`, before other things that members need, is
        computed again."""
        for reader in (todo := [self.last]):
            for value in reader.operands:
                home, axes = self._home(value), self._axes(reader, value)
                readers = set(self.readers.get(value, ())) - self.copies.keys()
                again = home in early or not early.isdisjoint(readers)
                if value in self.inside or (again and _nbytes(value) < LARGE):
                    continue
                if again:
                    home = home.copy()
                joining = {by: self._rows_of_reader(by, value, axes) for by in readers - early
                           if _nbytes(value) >= LARGE or by in self.rows_of}  # fmt: skip
                rows = self._rows_of_home(home, value, axes)
                enough = rows and rows.keys() >= (self.rows if self.inside else rows.keys())
                own = all(found.keys() >= rows.keys() for found in joining.values())
                own &= joining.keys() >= readers - early  # small ones draw nobody in
                # What others read as well lies in memory, in an order that blocks do not write.
                large = [one for one in home.members if one is value or _nbytes(one) >= LARGE]
                others = {by for one in large for by in self.readers.get(one, ())}
                if not again:
                    own &= others <= self.rows_of.keys() | joining and self.kept.isdisjoint(large)
                if enough and own:
                    self.copies |= {self.homes[value]: home} if again else {}
                    todo += [one for one in (home, *joining) if one not in self.rows_of]
                    self.rows_of |= joining
                    self.rows_of[home], self.inside[value] = rows, axes

    def _home(self, value: Node) -> KernelGroup:
        """The kernel that makes `value`; its copy, if the chain has one."""
        return self.copies.get(self.homes[value], self.homes[value])

    def before(self) -> set[KernelGroup]:
        """What has to run before some member, but for the members."""
        members = self.rows_of.keys()
        return set(toposort({one for group in members for one in group.src} - members))

    def _axes(self, reader: KernelGroup, node: Node) -> Rows:
        """The axes of an array along which `reader` stays in its own row."""
        return {
            row: axis
            for row, at in self.rows_of[reader].items()
            for axis, size in enumerate(node.shape)
            if size == reader.extents[at]
            and all(index[axis] is reader.along[at] for index in reader.read_at[node])
        }

    def _rows_of_home(self, home: KernelGroup, value: Node, axes: Rows) -> Rows:
        if home.first.op in ALONE or home.block is not None:
            return {}
        index, known = home.index_of[value], self.rows_of.get(home)
        rows = {row: home.row_index.index(index[axis]) for row, axis in axes.items()
                if index[axis] in home.row_index}  # fmt: skip
        return {row: at for row, at in rows.items() if known is None or known.get(row) == at}

    def _rows_of_reader(self, reader: KernelGroup, value: Node, axes: Rows) -> Rows:
        """Which axis of another reader goes with each row; the one it sums along is the last."""
        if reader in self.rows_of or reader.first.op in ALONE or reader.block is not None:
            return self.rows_of.get(reader, {})
        index, *others = reader.read_at[value]
        own = list(zip(reader.along, reader.extents, strict=True))
        found = {row: (index[axis], value.shape[axis]) for row, axis in axes.items()}
        if not (self.readers.keys() | self.kept).isdisjoint(reader.members[:-1]):
            own.pop()  # others need the sum before something is added to it
        return {} if others else {row: own.index(one) for row, one in found.items() if one in own}

    def _is_closed(self) -> bool:
        """Does nothing stand between two members, nor one read other rows of another?"""
        members = self.rows_of.keys()
        return members.isdisjoint(self.before()) and all(
            self._rows_of_home(home, value, self._axes(group, value)).keys() >= self.rows
            for group in members
            for value in group.operands
            if (home := self._home(value)) in members
        )

    def settle(self) -> bool:
        """Put every member in blocks, if that pays."""
        if not self.inside or not self.rows or not self._is_closed():
            return False
        if sum(group.contracts is not None for group in self.rows_of) < PRODUCTS:
            return False
        sums = {row for group, at in self.rows_of.items() for row in self.rows
                if at[row] == len(group.rows)}  # fmt: skip
        *whole, split = rows = sorted(self.rows, key=lambda row: (row in sums, row))
        chunks = prod(self.last.rows[row] for row in whole)
        if sums and (sums != {split} or chunks < CHUNKS):
            return False
        total, count = self.nbytes, self.last.rows[split]
        a_row = total // (chunks * count)
        most = min(max(CACHED // a_row, LEAST_ROWS), MOST // a_row, count)
        size = max((one for one in range(1, most + 1) if count % one == 0), default=0)
        few = size < min(LEAST_ROWS // 2, count)
        # Of a row in other pieces, no one axis numbers the blocks.
        along = [group.along[at[split]] for group, at in self.rows_of.items()]
        strides = {by for row in along if row is not None for by in terms_of(row)[0].values()}
        if few or not strides <= {1, size}:
            return False
        if total < LARGE or self._read_again(split) > READ_AGAIN * size * a_row:
            return False
        for first, copy in self.copies.items():  # what only members read is not made elsewhere
            for value in self.inside.keys() & first.members:
                left = [by for by in self.readers.pop(value, []) if by not in self.rows_of]
                self.readers |= {value: left} if left else {}
            for value in copy.operands:
                self.readers.setdefault(value, []).append(copy)
        inside = {value: tuple(axes[row] for row in rows) for value, axes in self.inside.items()}
        for group, at in self.rows_of.items():
            group.run_in_blocks(Block(tuple(at[row] for row in rows), size, inside))
        for copy in self.copies.values():
            copy.members = [one for one in copy.members if one in inside]
        return True

    def _read_again(self, split: int) -> int:
        """Bytes that every block along `split` reads or adds to, the same ones each time."""
        total = 0
        for group, at in self.rows_of.items():
            rows = {group.along[at[row]] for row in self.rows}
            touched = group.read_at
            if at[split] == len(group.rows):  # a sum in memory
                touched = {one: {group.index_of[one]} for one in group.members[-1:]}
            for node, indices in touched.items():
                for index in indices if node not in self.inside else ():
                    free = frozenset[Node]().union(*map(free_axes, index))
                    again = group.along[at[split]] not in free
                    total += points(free - rows) * node.dtype.itemsize * again
        return total


def _nbytes(node: Node) -> int:
    return prod(node.shape) * node.dtype.itemsize
