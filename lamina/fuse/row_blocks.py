"""Row blocks: kernels that run together, for one block of rows after the other.

Where a kernel reads only its own rows of an array that another kernel makes, both can run for a
block of rows before either goes on to the next block:

    scores = q @ k.T        rows 0 to 15      rows 16 to 31      ...
    weights = exp(scores)   rows 0 to 15      rows 16 to 31
    result = weights @ v    rows 0 to 15      rows 16 to 31

Scores and weights then need memory for 16 rows, which stay in the cache, and never exist as whole
arrays. Different blocks run in parallel, with memory of their own in each thread. A sum over the
rows, such as the gradient of v, is added up in memory from block to block; then only blocks of
other rows, those of another head, run in parallel.

`steps_of` decides which kernels run so:

1. Row blocks may end with each kernel that reads a large array of another kernel. They grow from
   there (`lamina.fuse.row_block_members`).
2. Their rows are cut into blocks that fit into the cache (`lamina.fuse.row_block_size`).
3. They are formed unless their predicted time is longer than that of whole arrays.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass

from lamina.fuse import row_block_limits as limits
from lamina.fuse.groups import readers_of
from lamina.fuse.kernel_group import KernelGroup
from lamina.fuse.kernels import expected_kernel
from lamina.fuse.members import RowBlock, array_of
from lamina.fuse.row_block_members import Dataflow, RowBlocks
from lamina.fuse.row_block_size import BlockSize, block_size_of
from lamina.fuse.target import Cost, FusionTarget
from lamina.ir.kernel import Kernel
from lamina.ir.node import Node


@dataclass(eq=False)
class Step:
    """Kernel groups that run together in this order: a single one, or several in row blocks."""

    groups: list[KernelGroup]
    step_of: dict[KernelGroup, "Step"]  # of all groups of the program

    @property
    def src(self) -> tuple["Step", ...]:
        """The steps that must run before. `_Former._add_step` gives all groups of a step the same
        ones, so the first group speaks for all."""
        return tuple(dict.fromkeys(self.step_of[group] for group in self.groups[0].src))


def steps_of(
    groups: Sequence[KernelGroup], results: Iterable[Node], target: FusionTarget
) -> list[Step]:
    """Steps for all `groups`, in row blocks where that pays, if the device of `target` can run
    these. `results` are the values that have to be in memory at the end."""
    maker_of = {value: group for group in groups for value in group.members}
    dataflow = Dataflow(maker_of, readers_of(groups), set(results))
    former = _Former(groups, dataflow, target.cost)
    if target.forms_row_blocks:
        former.form()
    step_of = former.step_of
    for group in groups:
        if group not in step_of:
            step_of[group] = Step([group], step_of)
    return list(dict.fromkeys(step_of[group] for group in groups))


class _Former:
    """Puts kernel groups into row blocks. `cost` predicts times; without one, all row blocks that
    fit are formed."""

    def __init__(
        self, groups: Sequence[KernelGroup], dataflow: Dataflow, cost: Cost | None
    ) -> None:
        self.groups = groups
        self.dataflow = dataflow
        self.cost = cost
        self.step_of: dict[KernelGroup, Step] = {}  # of the groups that run in row blocks
        # For how many row blocks with each group a time was predicted; copies count as originals.
        self.predictions = Counter[KernelGroup]()

    def form(self) -> None:
        """Form row blocks, those first that save most memory.

        Each candidate has two chances, as row blocks that were formed since the first one compute
        values again, which then have fewer readers. Take ``p = exp(q @ k.T)``, read by the kernels
        ``a = p @ v`` and ``b = p @ (v + mean(a, axis=0))``. Row blocks that end with `a` need `b`
        as a member, which also reads p, and are refused: the mean stands between the two. Row
        blocks that end with `b` are formed, with p computed again. Then those that end with `a` are
        formed, as nothing else reads p any longer.
        """
        candidates = [self._grown(group) for group in self.groups if self._may_be_last(group)]
        candidates.sort(key=lambda candidate: -candidate.saved_bytes)
        # By the last group of refused row blocks, how many groups ran in row blocks then: as long
        # as that number stays, nothing has changed, and the same would be refused.
        refused: dict[KernelGroup, int] = {}
        for candidate in candidates * 2:
            last = candidate.last
            formed = len(self.step_of)
            if last in self.step_of or refused.get(last) == formed:
                continue
            # Grown anew, as groups that joined it may run in other row blocks by now.
            row_blocks = self._grown(last) if formed else candidate
            if self._settle(row_blocks):
                self._add_step(row_blocks)
            else:
                refused[last] = formed

    def _may_be_last(self, group: KernelGroup) -> bool:
        """Whether row blocks may end with `group`: it reads a large array of another kernel, which
        few kernels read, and has rows that can run in any order."""
        if group.is_serial:
            return False
        large = [value for value in group.operands if value.nbytes >= limits.MIN_BYTES]
        readers = self.dataflow.readers
        return any(len(readers[value]) <= limits.MAX_READERS for value in large)

    def _grown(self, last: KernelGroup) -> RowBlocks:
        """Row blocks of `last` and every group that can join it.

        Members may need a group outside, which needs a member in turn: that member has to run
        before the row blocks do; it is *early*. In the example of `form`, row blocks that end with
        `b` grow over the kernels of p and of `a`. But `b` needs the mean, which needs `a`, which
        needs p: both are early. Then growing starts anew. This time `a` stays out, and a copy of
        the kernel of p joins in its place.

        There are more early members every time, so this ends.
        """
        early: set[KernelGroup] = set()
        while True:
            row_blocks = RowBlocks(last, self.dataflow)
            row_blocks.grow(early)
            found_early = row_blocks.needed_before() & row_blocks.members
            # If `last` is early, no copy of another group helps: `is_closed` will say so.
            if not found_early or last in found_early:
                return row_blocks
            early |= found_early

    def _add_step(self, row_blocks: RowBlocks) -> None:
        """Make a step of `row_blocks` that are settled. It runs after all that any member needs."""
        members = row_blocks.members
        in_order = [row_blocks.copy_of.get(group, group) for group in self.groups]
        step = Step([group for group in in_order if group in members], self.step_of)
        needed = {before for group in step.groups for before in group.src} - members
        for group in step.groups:
            group.run_after(needed)
            self.step_of[group] = step
        # Members read block values no more, and copies read what their originals read.
        self.dataflow.readers = readers_of(dict.fromkeys([*self.groups, *self.step_of]))

    # Whether row blocks pay.

    def _settle(self, row_blocks: RowBlocks) -> bool:
        """Make every member run in blocks, if that is possible and pays; False, with nothing
        changed, if not."""
        products = [member for member in row_blocks.members if member.contraction is not None]
        if len(products) < limits.MIN_PRODUCTS or not row_blocks.is_closed():
            return False
        block_size = block_size_of(row_blocks)
        if block_size is None:
            return False
        if self.cost is None:
            _run_in_blocks(row_blocks, block_size)
            return True
        if not self._may_predict(row_blocks):
            return False
        whole = {member: copy(member) for member in row_blocks.members}
        _run_in_blocks(row_blocks, block_size)
        factor = limits.PIECES if block_size.is_in_pieces else 1.0
        if self._is_predicted_slower(row_blocks, whole, self.cost, factor):
            for member, before in whole.items():
                member.run_whole(before)
            return False
        return True

    def _may_predict(self, row_blocks: RowBlocks) -> bool:
        """Count a prediction for each member; False, with nothing counted, if one of them has had
        MAX_PREDICTIONS. The prediction of a copy counts for its original."""
        copies = set(row_blocks.copy_of.values())
        originals = row_blocks.copy_of.keys()
        counted = (row_blocks.members - copies) | originals
        if any(self.predictions[group] >= limits.MAX_PREDICTIONS for group in counted):
            return False
        self.predictions.update(counted)
        return True

    def _is_predicted_slower(
        self, row_blocks: RowBlocks, whole: Mapping[KernelGroup, KernelGroup], cost: Cost,
        factor: float,
    ) -> bool:  # fmt: skip
        """Whether `row_blocks`, whose members run in blocks by now, are predicted to take longer
        than a limit allows; `whole` has each member as it was before, and the prediction of row
        blocks counts `factor` times.

        The limit is a multiple of the time that the kernels take on whole arrays, one after the
        other: a larger one where much memory is saved (MUCH_MEMORY). Copies are no part of that
        time: their originals run in any case, for other kernels.
        """
        touched_bytes = self._touched_bytes(whole.values())
        bytes_beside = touched_bytes - row_blocks.saved_bytes  # without the values in blocks
        seconds_in_blocks = cost(
            [self._kernel(member) for member in row_blocks.members], bytes_beside
        )
        # Where memory adds up a sum from block to block, an initial kernel runs first, and stores
        # the value that the sum starts from.
        starts = [member.initial for member in row_blocks.members if member.initial]
        for start in starts:
            seconds_in_blocks += cost([expected_kernel(start, start.members)], bytes_beside)
        seconds_in_blocks *= factor
        saves_much = row_blocks.saved_bytes >= limits.MUCH_MEMORY * bytes_beside
        limit = limits.SLOWER_LIMIT_FOR_MEMORY if saves_much else limits.SLOWER_LIMIT
        copies = set(row_blocks.copy_of.values())
        seconds_whole = 0.0
        for member in row_blocks.members:
            if member in copies:
                continue
            seconds_whole += cost([self._kernel(whole[member])], touched_bytes)
            if seconds_in_blocks <= limit * seconds_whole:
                return False  # further kernels only raise `seconds_whole`
        return True

    def _kernel(self, group: KernelGroup) -> Kernel:
        """The kernel of `group`, a member or what it was before. It stores the values that are
        used outside of it; block values count as such."""
        stored = [node for node in group.members if self.dataflow.is_used_outside(node)]
        return expected_kernel(group, stored)

    def _touched_bytes(self, groups: Iterable[KernelGroup]) -> int:
        """The bytes of all arrays that `groups`, on whole arrays, read or store. Views of one
        buffer count once."""
        arrays: dict[object, Node] = {}
        for group in groups:
            stored = [node for node in group.members if self.dataflow.is_used_outside(node)]
            for node in (*group.reads, *stored):
                arrays[array_of(node)] = node
        return sum(value.nbytes for value in arrays.values())


def _run_in_blocks(row_blocks: RowBlocks, block_size: BlockSize) -> None:
    """Make every member run in blocks. The shared rows become loops of each member, and axes of
    each block value: row 1, of 24, is loop 2 of kernel 3 in `lamina.fuse.row_block_members`."""
    rows = block_size.rows
    block_values = {
        value: tuple(axis_of_row[row] for row in rows)
        for value, axis_of_row in row_blocks.block_values.items()
    }
    for member, loop_of_row in row_blocks.loop_of_row.items():
        loops = tuple(loop_of_row[row] for row in rows)
        member.run_in_blocks(RowBlock(loops, block_size.size, block_values))
    # A copy makes what the row blocks read, and its original what others read.
    for copied in row_blocks.copy_of.values():
        copied.keep_members(block_values)
