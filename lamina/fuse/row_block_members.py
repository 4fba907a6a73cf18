"""Which kernels run in row blocks together, and how their loops correspond.

Row blocks grow from the kernel that runs last. Take x of (3, 24, 8), w of (8, 17), v of (17, 4):

    rows = x @ w                        (3, 24, 17)    kernel 0
    weights = softmax(rows)             (3, 24, 17)    kernel 1
    result = weights @ v                (3, 24, 4)     kernel 2, the last one
    total = rows.sum(axis=1) + bias     (3, 17)        kernel 3

A *shared row* is a loop that all members have; shared rows are numbered as the row axes of the last
kernel, here 0 for the axis of 3 and 1 for that of 24. Row 2, the axis of 4, is not shared: it is no
axis of the weights that kernel 2 reads. The members join in this order:

1. Kernel 2 reads `weights` at its own indices along rows 0 and 1: a block of its rows needs only
   the same rows of `weights`. So kernel 1, which makes `weights`, joins.
2. Kernel 1 reads `rows` at its own rows, too. Kernel 0, which makes `rows`, joins, and so does
   kernel 3, which also reads `rows`: otherwise `rows` would have to be in memory whole. Kernel 3
   sums along the axis of 24, so that memory adds up `total` from block to block.

Every kernel lists the loops that blocks may run along, its `KernelGroup.block_candidates`. A member
has the position in its own list for each shared row:

    kernel 2    loops 3, 24, 4, and 17 of the sum    {0: 0, 1: 1}
    kernel 1    loops 3, 24                          {0: 0, 1: 1}
    kernel 0    loops 3, 24, 17, and 8 of the sum    {0: 0, 1: 1}
    kernel 3    loops 3, 17, and 24 of the sum       {0: 0, 1: 2}

Only blocks of `weights` and `rows` exist then: they are the *block values*.
"""

from collections.abc import Mapping, Set
from copy import copy
from dataclasses import dataclass

from lamina.fuse import row_block_limits as limits
from lamina.fuse.groups import Readers
from lamina.fuse.kernel_group import KernelGroup, RowLoop
from lamina.ir.node import Node, toposort

# By shared row, the position of a member's loop in its `block_candidates`.
LoopOfRow = dict[int, int]
# By shared row, the axis of an array that the row runs along: {0: 1} if row 0 runs along axis 1.
AxisOfRow = dict[int, int]


@dataclass
class Dataflow:
    """Which kernel group makes and reads each value of the program."""

    maker_of: Mapping[Node, KernelGroup]
    readers: Readers  # of each value in memory; block values have no readers
    results: Set[Node]  # values that have to be in memory at the end

    def is_used_outside(self, value: Node) -> bool:
        """Whether another group than its maker reads `value`, or it is a result."""
        return value in self.readers or value in self.results


class RowBlocks:
    """Kernel groups that may come to run in row blocks: `last`, and those that have joined it."""

    def __init__(self, last: KernelGroup, dataflow: Dataflow) -> None:
        self.last = last
        self.dataflow = dataflow
        # The members, and the loops of each. `last` begins with all of its rows, and loses those
        # that the first kernel to join lacks.
        self.loop_of_row: dict[KernelGroup, LoopOfRow] = {
            last: {row: row for row in range(len(last.rows))}
        }
        # The values of which only blocks exist, with the axes of them that are shared rows.
        self.block_values: dict[Node, AxisOfRow] = {}
        # By original, the copies of groups that are members in their place: a copy computes values
        # for the row blocks again, which the original computes for other kernels.
        self.copy_of: dict[KernelGroup, KernelGroup] = {}

    @property
    def members(self) -> Set[KernelGroup]:
        """The groups, and the copies of groups, that run in the row blocks."""
        return self.loop_of_row.keys()

    @property
    def shared_rows(self) -> set[int]:
        """The rows that all members have."""
        return set.intersection(*map(set, self.loop_of_row.values()))

    @property
    def saved_bytes(self) -> int:
        """The bytes of all block values as whole arrays, which need not exist."""
        return sum(value.nbytes for value in self.block_values)

    def loop(self, member: KernelGroup, row: int) -> RowLoop:
        """The loop of `member` that runs along the row `row`, one of those that it has."""
        return member.block_candidates[self.loop_of_row[member][row]]

    def sums_along(self, member: KernelGroup, row: int) -> bool:
        """Whether `member` sums along the row `row`: `block_candidates` has the loops of its own
        rows first, and then the loop of its sum. Kernel 3 of the example does along row 1, as 2 is
        not among the positions 0 and 1 of its own rows."""
        return self.loop_of_row[member][row] >= len(member.rows)

    def needed_before(self) -> set[KernelGroup]:
        """The groups that run before the row blocks: those that members need, other than members,
        and all that must run before these. A member among them contradicts itself: it would run
        before the row blocks and in them."""
        needed = {before for member in self.members for before in member.src}
        return set(toposort(needed - self.members))

    def is_closed(self) -> bool:
        """Whether the members can run block by block as they are.

        No group outside may run between two members. And no member may read other rows of another
        member's values than its own, not even of a value that is in memory whole: those rows may
        belong to a block that runs later, or at the same time in another thread.
        """
        if not self.needed_before().isdisjoint(self.members):
            return False
        for reader in self.members:
            for value in reader.operands:
                maker = self._maker(value)
                if maker not in self.members:
                    continue
                common = self._loops_along(maker, value, self._axes_read(reader, value))
                if not common.keys() >= self.shared_rows:
                    return False
        return True

    # How members join.

    def grow(self, early: Set[KernelGroup]) -> None:
        """Let groups join that make what a member reads, as long as there are any.

        Groups in `early` have to run before the row blocks. A value that one of them makes or reads
        has to be in memory before; the row blocks do not read it there, but compute it again.
        """
        queue = [self.last]
        for reader in queue:  # which grows as groups join
            for value in reader.operands:
                if value in self.block_values:
                    continue
                joining = self._joining(reader, value, early)
                if joining:
                    queue += [group for group in joining if group not in self.members]
                    self.loop_of_row |= joining
                    self.block_values[value] = self._axes_read(reader, value)

    def _joining(
        self, reader: KernelGroup, value: Node, early: Set[KernelGroup]
    ) -> dict[KernelGroup, LoopOfRow]:
        """The groups that have to be members so that only blocks of `value` exist, and the loops of
        each; `reader` is a member that reads `value`. Some may be members already.

        They are the group that makes `value`, or a copy of it, and all groups that read `value` and
        are not in `early`. Empty if one of them cannot run block by block, or if nothing is gained.
        """
        original = self.dataflow.maker_of[value]
        # A group with a copy reads whole arrays; its copy is a member and reads blocks.
        readers = set(self.dataflow.readers.get(value, ())) - self.copy_of.keys()
        is_recomputed = not early.isdisjoint({self._maker(value), *readers})
        if not self._draws_others(value, readers, is_recomputed=is_recomputed):
            return {}
        maker = self._maker(value)
        if is_recomputed and maker is original:
            # The copy shares the lowered members until `run_in_blocks` lowers its own.
            maker = copy(original)
        axes = self._axes_read(reader, value)
        rows_of_maker = self._loops_along(maker, value, axes)
        if not self._has_enough_rows(rows_of_maker):
            return {}
        joining = {maker: rows_of_maker}
        for group in sorted(readers - early, key=lambda group: group.number):
            joining[group] = self._loops_along(group, value, axes)
            if not joining[group].keys() >= rows_of_maker.keys():
                return {}
        if is_recomputed:
            self.copy_of[original] = maker
        elif self._is_written_whole(maker, value, joining.keys()):
            return {}
        return joining

    def _draws_others(self, value: Node, readers: Set[KernelGroup], *, is_recomputed: bool) -> bool:
        """Whether blocks of `value` are worth it that other groups become members. A small value
        may be a block value, but draws in no reader, and is not computed again for that."""
        if value.nbytes >= limits.MIN_BYTES:
            return True
        return not is_recomputed and readers <= self.members

    def _has_enough_rows(self, rows_of_maker: LoopOfRow) -> bool:
        """Whether a group with the loops `rows_of_maker` may join as the maker of a value.

        The first one may have fewer rows than `last`: ``weights @ v`` has the rows 3, 24 and 4, and
        the maker of `weights` has 3 and 24. From then on the shared rows stay: with fewer, the
        block values so far would be held in larger blocks.
        """
        if not self.block_values:
            return bool(rows_of_maker)
        return bool(rows_of_maker) and rows_of_maker.keys() >= self.shared_rows

    def _is_written_whole(self, maker: KernelGroup, value: Node, joining: Set[KernelGroup]) -> bool:
        """Whether `maker` has to write `value`, or another large value, as a whole array: because
        it is a result, or because a group reads it that is neither a member nor `joining`. Then
        blocks save little. Small values of `maker`, as the maximum of each row, do not count."""
        large = [
            node for node in maker.members if node is value or node.nbytes >= limits.MIN_BYTES
        ]
        if not self.dataflow.results.isdisjoint(large):
            return True
        readers = {group for node in large for group in self.dataflow.readers.get(node, ())}
        return not readers <= self.members | joining

    def _maker(self, value: Node) -> KernelGroup:
        """The group that makes `value` for the row blocks: a copy of its maker, if there is one."""
        original = self.dataflow.maker_of[value]
        return self.copy_of.get(original, original)

    # How the loops of members correspond to axes of values.

    def _axes_read(self, member: KernelGroup, value: Node) -> AxisOfRow:
        """The axis of `value` along which each row of `member`, which reads it, runs. Without the
        rows that run along none.

        For ``y[i, j] = x[j, i]`` with i as row 0 and j as row 1, that is {0: 1, 1: 0} for x. For
        the weights at [i, j, k] of the example, row 2 of kernel 2 runs along none.
        """
        loops = member.loops_along(value)
        axes: AxisOfRow = {}
        for row in self.loop_of_row[member]:
            loop = self.loop(member, row)
            if loop in loops:
                axes[row] = loops.index(loop)
        return axes

    def _loops_along(self, group: KernelGroup, value: Node, axes: AxisOfRow) -> LoopOfRow:
        """The loop of `group`, which makes or reads `value`, along the axis that `axes` has for
        each row. Without the rows along which no loop of `group` can number blocks.

        For ``y[i, j] = x[j, i]`` and {0: 1} for x, row 0 runs along axis 1 of x. There y has the
        loop i, its first one: {0: 0}.

        A group that is a member already, by another value, keeps its loops: a row is left out if
        its loop along this value is another one.
        """
        if group.is_serial or group.block_axes:
            return {}  # it runs in order along an axis, or in other row blocks already
        candidates = group.block_candidates
        if any(map(self.dataflow.is_used_outside, group.members[:-1])):
            # Others read a sum to which the last member adds something. They need it in memory, but
            # memory would add up the last member alone: the loop of the sum is no candidate.
            candidates = candidates[: len(group.rows)]
        loops = group.loops_along(value)
        known = self.loop_of_row.get(group)
        positions: LoopOfRow = {}
        for row, axis in axes.items():
            loop = loops[axis]
            if loop is None or loop not in candidates:
                continue
            position = candidates.index(loop)
            if known is None or known.get(row) == position:
                positions[row] = position
        return positions
