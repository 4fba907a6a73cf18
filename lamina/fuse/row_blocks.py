"""Placement between a kernel and device memory: chains of kernels that run in blocks of rows.

Where a kernel reads no rows but its own of what another wrote, both can run for one block of rows
after the other. What passes between them then needs memory for a block alone, which stays in the
cache, and the whole array never exists. A sum over these rows is added up in memory, from block to
block; other rows then run in parallel.
"""

from collections.abc import Iterable, Sequence
from copy import copy
from math import prod

from lamina.fuse.groups import Readers, readers_of
from lamina.fuse.kernel_group import KernelGroup
from lamina.fuse.members import Block
from lamina.ir.kernel import free_axes, points, terms_of
from lamina.ir.node import Node, toposort

LARGE = 1 << 20  # bytes of arrays that are worth keeping out of memory
CACHED = 1 << 19  # bytes of a block, which the cache holds
LEAST_ROWS = 16  # of a block, even if they take more than that
MOST = 3 << 20  # bytes of a block, even if they hold fewer rows
PRODUCTS = 2  # kernels with a contraction that make a chain worth its while
CHUNKS = 4  # the fewest that can run in parallel where sums go from block to block
READ_AGAIN = 16  # how many times its own bytes a block may read of what every block reads

Rows = dict[int, int]  # a row axis of the last kernel -> the same axis of something else


def chained(groups: Sequence[KernelGroup], wanted: Iterable[Node], blocks: bool) -> list["Chain"]:
    """`groups` as chains; `wanted` are the values that have to be in memory at the end."""
    chain_of: dict[KernelGroup, Chain] = {}
    homes = {value: group for group in groups for value in group.members}
    readers = readers_of(groups)
    kept = set(wanted)

    def grown(last: KernelGroup) -> Chain:
        early = set[KernelGroup]()
        while True:
            chain = Chain(last, homes, readers, kept, chain_of)
            chain.grow(early)
            late = chain.before() & chain.rows_of.keys()
            if not late or last in late:
                return chain
            early |= late

    large = (one for one in groups if blocks and not one.is_serial
             and any(_nbytes(value) >= LARGE for value in one.operands))  # fmt: skip
    found = sorted(map(grown, large), key=lambda one: -one.nbytes)
    for last in [chain.last for chain in found] * 2:  # values lose readers to chains with copies
        if last not in chain_of and (chain := grown(last)).settle():
            own = (chain.copies.get(one, one) for one in groups)
            chain.groups = [one for one in own if one in chain.rows_of]
            chain_of |= dict.fromkeys(chain.groups, chain)
            needs = {one for group in chain.groups for one in group.src} - chain.rows_of.keys()
            for group in chain.groups:  # none runs before what another one needs
                group.src = tuple(sorted(needs, key=lambda one: one.number))
            readers = readers_of(dict.fromkeys([*groups, *chain_of]))
    for group in groups:
        chain_of.setdefault(group, Chain(group, homes, readers, kept, chain_of))
    return list(dict.fromkeys(chain_of[one] for one in groups))


class Chain:
    """Kernels that run together, block by block: `last` and those that can share its blocks. Most
    chains are of one kernel."""

    def __init__(
        self, last: KernelGroup, homes: dict[Node, KernelGroup], readers: Readers,
        kept: set[Node], chain_of: dict[KernelGroup, "Chain"],
    ) -> None:  # fmt: skip
        self.last, self.homes, self.readers, self.kept = last, homes, readers, kept
        self.chain_of, self.groups = chain_of, [last]
        self.rows_of: dict[KernelGroup, Rows] = {last: {row: row for row in range(len(last.rows))}}
        self.inside: dict[Node, Rows] = {}  # values that stay inside, and which axes the rows are
        self.copies: dict[KernelGroup, KernelGroup] = {}  # of kernels that others need elsewhere

    @property
    def src(self) -> tuple["Chain", ...]:
        """What must run before."""
        return tuple(dict.fromkeys(self.chain_of[one] for one in self.groups[0].src))

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
                axes = self._axes(reader, value)
                joining = {} if value in self.inside else self._joining(value, axes, early)
                if joining:
                    todo += [one for one in joining if one not in self.rows_of]
                    self.rows_of |= joining
                    self.inside[value] = axes

    def _joining(self, value: Node, axes: Rows, early: set[KernelGroup]) -> dict[KernelGroup, Rows]:
        """What has to be in the chain so that only a block of `value` exists; nothing if that
        cannot be. Where others need it early, this makes a copy of its kernel."""
        first, readers = self.homes[value], set(self.readers.get(value, ())) - self.copies.keys()
        again = not early.isdisjoint({self._home(value), *readers})
        if _nbytes(value) < LARGE and (again or not readers <= self.rows_of.keys()):
            return {}  # it draws nobody in
        home = copy(first) if again else self._home(value)
        later = sorted(readers - early, key=lambda one: one.number)  # in one order in every process
        joining = {by: self._rows_at(by, value, axes) for by in (home, *later)}
        rows = joining[home].keys()
        aligned = all(found.keys() >= rows for found in joining.values())
        if not (rows and aligned and rows >= (self.rows if self.inside else rows)):
            return {}
        if again:
            self.copies[first] = home
            return joining
        # What others read as well lies in memory, in an order that blocks do not write.
        large = [one for one in home.members if one is value or _nbytes(one) >= LARGE]
        others = {by for one in large for by in self.readers.get(one, ())}
        own = others <= self.rows_of.keys() | joining and self.kept.isdisjoint(large)
        return joining if own else {}

    def _home(self, value: Node) -> KernelGroup:
        """The kernel that makes `value`; its copy, if the chain has one."""
        return self.copies.get(self.homes[value], self.homes[value])

    def before(self) -> set[KernelGroup]:
        """What has to run before some member, but for the members."""
        members = self.rows_of.keys()
        return set(toposort({one for group in members for one in group.src} - members))

    def _axes(self, group: KernelGroup, value: Node) -> Rows:
        """The axes of an array along which a member stays in its own row."""
        loops = group.loops_along(value)
        axes: Rows = {}
        for row, candidate in self.rows_of[group].items():
            loop = group.block_candidates[candidate]
            if loop in loops:
                axes[row] = loops.index(loop)
        return axes

    def _rows_at(self, group: KernelGroup, value: Node, axes: Rows) -> Rows:
        """The inverse: which axes of a kernel that makes or reads `value` are the rows that lie
        along `axes` of it. The one that a kernel sums along comes after its own rows."""
        if group.is_serial or group.block_axes:
            return {}
        own, at = group.block_candidates, group.loops_along(value)
        known = self.rows_of.get(group)
        if not (self.readers.keys() | self.kept).isdisjoint(group.members[:-1]):
            own = own[: len(group.rows)]  # others need the sum before something is added to it
        rows = {row: own.index(one) for row, axis in axes.items() if (one := at[axis]) in own}
        return {row: one for row, one in rows.items() if known is None or known.get(row) == one}

    def _is_closed(self) -> bool:
        """Does nothing stand between two members, nor one read other rows of another?"""
        members = self.rows_of.keys()
        return members.isdisjoint(self.before()) and all(
            self._rows_at(home, value, self._axes(group, value)).keys() >= self.rows
            for group in members
            for value in group.operands
            if (home := self._home(value)) in members
        )

    def settle(self) -> bool:
        """Put every member in blocks, if that pays."""
        products = sum(group.contraction is not None for group in self.rows_of)
        if products < PRODUCTS or not (self.inside and self.rows and self._is_closed()):
            return False
        sums = {row for group, at in self.rows_of.items() for row in self.rows
                if at[row] == len(group.rows)}  # fmt: skip
        *whole, split = rows = sorted(self.rows, key=lambda row: (row in sums, row))
        chunks, count = prod(self.last.rows[row] for row in whole), self.last.rows[split]
        if sums and (sums != {split} or chunks < CHUNKS):
            return False
        a_row = self.nbytes // (chunks * count)
        most = min(max(CACHED // a_row, LEAST_ROWS), MOST // a_row, count)
        size = max((one for one in range(1, most + 1) if count % one == 0), default=0)
        if self.nbytes < LARGE or size < min(LEAST_ROWS // 2, count):
            return False
        # Of a row in other pieces, no one axis numbers the blocks.
        along = (group.block_candidates[at[split]].index for group, at in self.rows_of.items())
        cut = any(by not in (1, size) for row in along for by in terms_of(row)[0].values())
        if cut or self._read_again(split) > READ_AGAIN * size * a_row:
            return False
        inside = {value: tuple(axes[row] for row in rows) for value, axes in self.inside.items()}
        for group, at in self.rows_of.items():
            group.run_in_blocks(Block(tuple(at[row] for row in rows), size, inside))
        for group in self.copies.values():
            group.members = [one for one in group.members if one in inside]
        return True

    def _read_again(self, split: int) -> int:
        """Bytes that every block along `split` reads or adds to, the same ones each time."""
        total = 0
        for group, at in self.rows_of.items():
            rows = {group.block_candidates[at[row]].index for row in self.rows}
            touched = group.reads
            if at[split] == len(group.rows):  # a sum in memory
                touched = {one: {group.lowered.index_of[one]} for one in group.members[-1:]}
            for node in touched.keys() - self.inside.keys():
                for index in touched[node]:
                    free = frozenset[Node]().union(*map(free_axes, index))
                    again = group.block_candidates[at[split]].index not in free
                    total += points(free - rows) * node.dtype.itemsize * again
        return total


def _nbytes(node: Node) -> int:
    return prod(node.shape) * node.dtype.itemsize
