"""Placement between a kernel and device memory: chains of kernels that run in blocks of rows.

Where a kernel reads no rows but its own of what another wrote, both can run for one block of rows
after the other. What passes between them then needs memory for a block alone, which stays in the
cache, and the whole array never exists.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import prod

from lamina.fuse.group import ALONE, Block, KernelGroup
from lamina.ir.kernel import free_axes, points
from lamina.ir.node import Node, toposort
from lamina.ir.ops import Op

LARGE = 1 << 20  # bytes of an array that are worth keeping out of memory
CACHED = 1 << 19  # bytes of a block
LEAST_ROWS = 16  # of a block, whatever they take, up to
MOST = 1 << 21  # bytes
READ_AGAIN = 8  # times the bytes of a block that each block may read once more

Alignment = dict[int, int]  # a row axis of the last kernel -> the same one of another kernel


class Chain:
    """Kernels that run together, block by block; most chains are of one kernel."""

    def __init__(self, groups: list[KernelGroup], chain_of: dict[KernelGroup, Chain]) -> None:
        self.groups, self.chain_of = groups, chain_of
        chain_of |= dict.fromkeys(groups, self)

    @property
    def src(self) -> tuple[Chain, ...]:
        """What must run before."""
        before = (self.chain_of[one] for group in self.groups for one in group.src)
        return tuple(one for one in dict.fromkeys(before) if one is not self)


def chained(groups: Sequence[KernelGroup], wanted: Iterable[Node]) -> list[Chain]:
    """`groups` as chains; `wanted` are the values that have to be in memory at the end."""
    chain_of: dict[KernelGroup, Chain] = {}
    for last in reversed(groups):
        if last not in chain_of:
            found = _Candidate(last, groups, set(wanted))
            Chain(found.members if found.settle(chain_of) else [last], chain_of)
    return list(dict.fromkeys(chain_of[one] for one in groups))


class _Candidate:
    """The kernels before `last` that can share its blocks."""

    def __init__(self, last: KernelGroup, groups: Sequence[KernelGroup], wanted: set[Node]) -> None:
        self.homes = {value: group for group in groups for value in group.members}
        self.readers = {
            value: [one for one in groups if value in one.reads] for value in self.homes
        }
        self.wanted = wanted
        self.aligned = {last: {row: row for row in range(len(last.rows))}}
        self.inside: dict[Node, dict[int, int]] = {}  # a value -> which of its axes each row is
        for group in self._joined() if last.members[0].op not in ALONE else ():
            for value in [one for one in group.reads if one in self.homes]:
                self._pull(group, value)
        self.members = [one for one in groups if one in self.aligned]

    def _joined(self) -> Iterator[KernelGroup]:
        """Every group of the chain, those included that join on the way."""
        done: set[KernelGroup] = set()
        while todo := [one for one in self.aligned if one not in done]:
            done.update(todo)
            yield from todo

    def _pull(self, reader: KernelGroup, value: Node) -> None:
        """Let the kernel that computes `value` join, if each block needs its own rows of it."""
        home = self.homes[value]
        if home.members[0].op in ALONE or home.block is not None:
            return
        axes = dict(_same_axes(reader, value, self.aligned[reader]))
        at = {
            row: home.row_index.index(home.index_of[value][axis])
            for row, axis in axes.items()
            if home.index_of[value][axis] in home.row_index
        }
        before = self.aligned.get(home, at)
        both = {row: own for row, own in at.items() if before.get(row) == own}
        outside = [one for one in self.readers[value] if one not in self.aligned]
        rows = self.rows if self.inside else set(both)
        if both and both.keys() >= rows and not outside and value not in self.wanted:
            self.aligned[home] = both
            self.inside[value] = axes

    @property
    def rows(self) -> set[int]:
        """The row axes that all members share."""
        return set.intersection(*map(set, self.aligned.values()))

    def _is_closed(self) -> bool:
        """Does nothing stand between two members, nor one read other rows of another?"""
        members = set(self.members)
        around = set(toposort(one for group in members for one in group.src)) - members
        return members.isdisjoint(toposort(around)) and all(
            dict(_same_axes(group, value, self.aligned[group])).keys() >= self.rows
            for group in members
            for value in group.reads
            if isinstance(value, Node) and self.homes.get(value) in members
        )

    def settle(self, taken: Mapping[KernelGroup, Chain]) -> bool:
        """Put every member in blocks, if that pays; `taken` are in chains already."""
        rows, apart = self.rows, taken.keys().isdisjoint(self.members)
        if len(self.members) < 2 or not rows or not apart or not self._is_closed():
            return False
        *whole, split = sorted(rows)
        last = next(iter(self.aligned))
        count = last.rows[split]
        total = sum(prod(value.shape) * value.dtype.itemsize for value in self.inside)
        a_row = total // prod(last.rows[row] for row in rows)
        most = max(CACHED // a_row, LEAST_ROWS)
        size = max(one for one in range(1, min(most, count) + 1) if count % one == 0)
        if total < LARGE or size * a_row > MOST or size < min(LEAST_ROWS, count):
            return False
        if self._read_again(whole, split) > READ_AGAIN * size * a_row:
            return False
        for group in self.members:
            at = self.aligned[group]
            inside = {
                value: tuple(axes[row] for row in (*whole, split))
                for value, axes in self.inside.items()
            }
            group.run_in_blocks(Block(tuple(at[row] for row in (*whole, split)), size, inside))
        return True

    def _read_again(self, whole: list[int], split: int) -> int:
        """Bytes that every block along `split` reads, the same ones each time."""
        total = 0
        for group, at in self.aligned.items():
            rows = {group.row_index[at[row]] for row in whole}
            along = group.row_index[at[split]]
            local = {number for number, node in group.parameters.values() if node in self.inside}
            for load in toposort(store.value for store in group.stores.values()):
                if load.op is Op.LOAD and load.arg.parameter not in local:
                    free = free_axes(load)
                    total += 0 if along in free else points(free - rows) * load.dtype.itemsize
        return total


def _same_axes(reader: KernelGroup, value: Node, aligned: Alignment) -> Iterator[tuple[int, int]]:
    """The axes of `value` along which `reader` stays in its own row, with that row of the chain."""
    for row, at in aligned.items():
        for axis, size in enumerate(value.shape):
            if size == reader.rows[at] and all(
                index[axis] is reader.row_index[at] for index in reader.read_at[value]
            ):
                yield row, axis
