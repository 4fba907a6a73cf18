"""Row blocks: kernels that run together, for one block of rows after the other.

Where a kernel reads of another kernel's array just the rows that it computes itself, both can run
for a block of rows before either goes on to the next block:

    scores = q @ k.T        rows 0 to 15      rows 16 to 31      ...
    weights = exp(scores)   rows 0 to 15      rows 16 to 31
    result = weights @ v    rows 0 to 15      rows 16 to 31

Scores and weights then need memory for 16 rows, which stay in the cache, and never exist as whole
arrays. Different blocks run in parallel, with memory of their own in each thread. A sum over the
rows, such as the gradient of v, is added up in memory from block to block; then only blocks of
other rows, those of another head, run in parallel.

`steps_of` decides which kernels run so. It starts at a kernel that reads a large array, lets the
kernels join that make what it reads, with all other readers of that, and keeps the result if its
blocks fit into the cache and read little again, and if they are not predicted to be slower than
whole arrays.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from copy import copy
from dataclasses import dataclass
from math import prod

from lamina.fuse.axes import Index
from lamina.fuse.groups import Readers, readers_of
from lamina.fuse.kernel_group import KernelGroup, RowLoop
from lamina.fuse.kernels import expected_kernel
from lamina.fuse.members import Block, array_of
from lamina.fuse.target import Cost, FusionTarget
from lamina.ir.kernel import Kernel, free_axes, points, terms_of
from lamina.ir.node import Node, toposort

# Numbers without a measurement beside them are estimates.
MIN_BYTES = 1 << 20  # of arrays that are worth keeping out of memory
CACHE_BYTES = 1 << 19  # of a block: what the cache holds
ENOUGH_ROWS = 16  # of a block, even if they take more than CACHE_BYTES
MAX_BLOCK_BYTES = 3 << 20  # of a block, even if it has fewer rows than that
MIN_BLOCK_ROWS = 8  # of a block; with fewer, row blocks do not pay, unless there are no more rows
MIN_PRODUCTS = 2  # kernels with a contraction, without which row blocks gain nothing
MIN_PARALLEL = 4  # independent rows of blocks, where sums are added up from block to block

# Kernels that read the large array with which row blocks begin. Each step in time of a recurrent
# network reads a part of one array, and needs the step before, so that none can run with others.
# But row blocks that begin at one of them would grow over all of them to see that: for 256 steps of
# an LSTM, that was 1.5 of 5.5 seconds of lowering. In the gradients of attention it is 3 kernels.
MAX_READERS = 32

# Bytes that every block reads again, in multiples of the bytes that it holds: from so many on, row
# blocks do not pay. Gradients of attention with heads of 128 columns read 15.4 times as much again:
# they take as long in blocks as without, and no memory for scores, 64 MiB for 4 heads of 2048 rows.
# Two products of (512, 512) by (512, 2048), multiplied by each other, would read 16 times as much,
# and take 34 ms in place of 15 on one thread.
REREAD_LIMIT = 16

# Row blocks are formed up to so many times the seconds predicted without them: predictions are 10
# to 20 % wrong as a rule, and whole arrays take memory. Where these have at least MUCH_MEMORY times
# the bytes of all others, as scores of attention grow with the square of its length, it is the
# second number. Of 60 drawn programs, on one thread, the choice took 4 % longer than the faster of
# both on average, and at most 42 %; all row blocks took 8 %, and at most 75 %; none 9 %, and twice
# as long at most.
SLOWER_LIMIT = 1.1
SLOWER_LIMIT_FOR_MEMORY = 2.0
MUCH_MEMORY = 4
# How often each kernel is part of row blocks that are predicted: those of a shorter chain may be
# faster where those of a longer one are not. A limit keeps the work linear in the kernels.
MAX_PREDICTIONS = 4

# Rows are numbered as the row axes of the kernel that comes last. This says which row axis of
# another kernel, or which axis of an array, each of them is: {0: 1} for row 0 of the last kernel
# that is axis 1 of the array.
Rows = dict[int, int]


@dataclass(eq=False)
class Step:
    """Kernel groups that run together in this order: a single one, or several in row blocks."""

    groups: list[KernelGroup]
    step_of: dict[KernelGroup, "Step"]  # of all groups

    @property
    def src(self) -> tuple["Step", ...]:
        """The steps that must run before. What one group of several needs, all of them need: see
        `_add_step`."""
        return tuple(dict.fromkeys(self.step_of[group] for group in self.groups[0].src))


@dataclass
class _Groups:
    """What forming row blocks needs to know of all kernel groups."""

    home_of: dict[Node, KernelGroup]  # the group that makes each value
    readers: Readers  # the groups that read each value
    results: Set[Node]  # values that have to be in memory at the end
    step_of: dict[KernelGroup, Step]  # of the groups that run in row blocks
    cost: Cost | None
    predictions: Counter[KernelGroup]  # the row blocks with each group that `cost` was asked for


def steps_of(
    groups: Sequence[KernelGroup], results: Iterable[Node], target: FusionTarget
) -> list[Step]:
    """Steps for all `groups`, in row blocks where that pays, if the device of `target` can run
    these. `results` are the values that have to be in memory at the end."""
    home_of = {value: group for group in groups for value in group.members}
    context = _Groups(home_of, readers_of(groups), set(results), {}, target.cost, Counter())
    if target.row_blocks:
        _form_row_blocks(groups, context)
    step_of = context.step_of
    for group in groups:
        if group not in step_of:
            step_of[group] = Step([group], step_of)
    return list(dict.fromkeys(step_of[group] for group in groups))


def _form_row_blocks(groups: Sequence[KernelGroup], context: _Groups) -> None:
    """Put groups into row blocks, those first that keep most bytes out of memory."""
    candidates = [_grown(group, context) for group in groups if _may_be_last(group, context)]
    candidates.sort(key=lambda candidate: -candidate.nbytes)
    # Twice, as values lose readers to row blocks that compute them again: what was refused may fit.
    # By the last group of what was refused, how many groups ran in row blocks then: while that
    # number stays, nothing has changed, and the same would be refused.
    refused: dict[KernelGroup, int] = {}
    for candidate in candidates * 2:
        last = candidate.last
        settled = len(context.step_of)
        if last in context.step_of or refused.get(last) == settled:
            continue
        # Grown anew: since it was a candidate, others may have come to run in row blocks.
        row_blocks = _grown(last, context) if settled else candidate
        if row_blocks.settle():
            _add_step(row_blocks, groups, context)
        else:
            refused[last] = settled


def _may_be_last(group: KernelGroup, context: _Groups) -> bool:
    """Whether row blocks may end with `group`: it reads a large array of another kernel, which few
    kernels read, and has rows that can run in any order."""
    if group.is_serial:
        return False
    large = [value for value in group.operands if _nbytes(value) >= MIN_BYTES]
    return any(len(context.readers[value]) <= MAX_READERS for value in large)


def _grown(last: KernelGroup, context: _Groups) -> "_RowBlocks":
    """Row blocks of `last` and every group that can join it.

    If a group outside, which members need, needs a member in turn, that member has to run before
    the row blocks do: it is early. Growing starts anew then, and what early groups make or read is
    computed again by copies. Each time more groups are early, so this ends.
    """
    early: set[KernelGroup] = set()
    while True:
        row_blocks = _RowBlocks(last, context)
        row_blocks.grow(early)
        needed_outside = row_blocks.needed_before() & row_blocks.rows_of.keys()
        # With `last` among these no copy of another group helps: `settle` will refuse.
        if not needed_outside or last in needed_outside:
            return row_blocks
        early |= needed_outside


def _add_step(row_blocks: "_RowBlocks", groups: Sequence[KernelGroup], context: _Groups) -> None:
    """Make a step of settled `row_blocks`, which runs after all that any of its members needs."""
    members = row_blocks.rows_of.keys()
    in_order = (row_blocks.copy_of.get(group, group) for group in groups)
    step = Step([group for group in in_order if group in members], context.step_of)
    needed = {before for group in step.groups for before in group.src} - members
    for group in step.groups:
        group.src = tuple(sorted(needed, key=lambda before: before.number))
        context.step_of[group] = step
    context.readers = readers_of(dict.fromkeys([*groups, *context.step_of]))


class _RowBlocks:
    """Groups that may come to run in row blocks: `last`, and those that have joined it."""

    def __init__(self, last: KernelGroup, context: _Groups) -> None:
        self.last, self.context = last, context
        self.rows_of: dict[KernelGroup, Rows] = {last: {row: row for row in range(len(last.rows))}}
        # The values of which only blocks exist, and which axes of them the rows are.
        self.block_values: dict[Node, Rows] = {}
        # By original, the copies of groups that are members in their place: they compute values for
        # the row blocks again, which the originals compute for others, elsewhere or earlier.
        self.copy_of: dict[KernelGroup, KernelGroup] = {}

    @property
    def rows(self) -> set[int]:
        """The row axes that all members share."""
        return set.intersection(*map(set, self.rows_of.values()))

    @property
    def nbytes(self) -> int:
        """The bytes of all arrays that need not exist."""
        return sum(map(_nbytes, self.block_values))

    def needed_before(self) -> set[KernelGroup]:
        """The other groups that members need, and all that must run before these. A member among
        them would have to run before the row blocks do."""
        members = self.rows_of.keys()
        needed = {before for group in members for before in group.src}
        return set(toposort(needed - members))

    # Which groups join.

    def grow(self, early: Set[KernelGroup]) -> None:
        """Let groups join that make what a member reads, if each block of it reads just its own
        rows, with all that read it too. A value that a group in `early` makes or reads is computed
        again: what members need runs after that group, and before the row blocks."""
        queue = [self.last]
        for reader in queue:  # which grows as groups join
            for value in reader.operands:
                if value in self.block_values:
                    continue
                joining = self._joining(reader, value, early)
                if joining:
                    queue += [group for group in joining if group not in self.rows_of]
                    self.rows_of |= joining
                    self.block_values[value] = self._axes(reader, value)

    def _joining(
        self, reader: KernelGroup, value: Node, early: Set[KernelGroup]
    ) -> dict[KernelGroup, Rows]:
        """The groups that have to be members so that only blocks of `value`, which the member
        `reader` reads, exist, each with its rows: the group that makes it, or a copy of that, and
        all that read it and are not in `early`. Some may be members already. Empty if one of them
        cannot run for a block of rows, or if it would gain nothing."""
        original = self.context.home_of[value]
        # A copy among the members stands for its original.
        readers = set(self.context.readers.get(value, ())) - self.copy_of.keys()
        is_computed_again = not early.isdisjoint({self._home(value), *readers})
        is_small = _nbytes(value) < MIN_BYTES
        if is_small and (is_computed_again or not readers <= self.rows_of.keys()):
            return {}  # a small value draws nobody in
        # A copy shares the lowered members until `run_in_blocks` lowers its own.
        home = copy(original) if is_computed_again else self._home(value)
        axes = self._axes(reader, value)
        rows = self._rows_at(home, value, axes)
        # The first value may have fewer rows than `last`, whose others are then no rows of blocks:
        # ``weights @ v`` has the axes of queries and of columns, weights those of queries alone.
        if not rows or (self.block_values and not rows.keys() >= self.rows):
            return {}  # it has no rows, or not all that the members share
        joining = {home: rows}
        for group in sorted(readers - early, key=lambda group: group.number):
            joining[group] = self._rows_at(group, value, axes)
            if not joining[group].keys() >= rows.keys():
                return {}
        if is_computed_again:
            self.copy_of[original] = home
        elif self._is_read_elsewhere(home, value, joining.keys()):
            return {}
        return joining

    def _is_read_elsewhere(self, home: KernelGroup, value: Node, joining: Set[KernelGroup]) -> bool:
        """Whether `value`, or another large value of its maker `home`, has to be in memory whole:
        because it is a result, or because a group reads it that is neither a member nor `joining`.
        To let `home` join gains little then, as it writes all of that array in any case. Small
        values of `home`, as the maximum of each row beside the exponentials, do not count."""
        large = [node for node in home.members if node is value or _nbytes(node) >= MIN_BYTES]
        if not self.context.results.isdisjoint(large):
            return True
        readers = {group for node in large for group in self.context.readers.get(node, ())}
        return not readers <= self.rows_of.keys() | joining

    def _home(self, value: Node) -> KernelGroup:
        """The group that makes `value`; its copy, if the row blocks have one."""
        original = self.context.home_of[value]
        return self.copy_of.get(original, original)

    def _axes(self, group: KernelGroup, value: Node) -> Rows:
        """The axes of `value` along which `group`, a member that reads it, stays in its own
        rows: for ``y[i, j] = x[j, i]`` and rows i, j they are 1 and 0."""
        loops = group.loops_along(value)
        axes: Rows = {}
        for row in self.rows_of[group]:
            loop = self._loop(group, row)
            if loop in loops:
                axes[row] = loops.index(loop)
        return axes

    def _rows_at(self, group: KernelGroup, value: Node, axes: Rows) -> Rows:
        """The inverse of `_axes`: which loop of `group`, by position in its `block_candidates`,
        runs along the axis of `value` that `axes` has for each row.

        For ``y[i, j] = x[j, i]`` and {0: 1} for x, row 0 is along axis 1 of x, and so the loop i,
        {0: 0}. A row is left out if no candidate runs along that axis, or if `group` is a member
        already and has another loop for that row. The candidates are the rows of `group`, and after
        these the axis that it sums along, unless others need that sum by itself.
        """
        if group.is_serial or group.block_axes:
            return {}  # it runs in order along an axis, or in other row blocks already
        candidates, loops = group.block_candidates, group.loops_along(value)
        if any(map(self._is_needed, group.members[:-1])):
            # Others need the sum before something is added to it: it has to exist in memory.
            candidates = candidates[: len(group.rows)]
        known = self.rows_of.get(group)  # as a member, which it may be by way of another value
        rows: Rows = {}
        for row, axis in axes.items():
            loop = loops[axis]
            if loop is not None and loop in candidates:
                group_axis = candidates.index(loop)
                if known is None or known.get(row) == group_axis:
                    rows[row] = group_axis
        return rows

    def _is_needed(self, value: Node) -> bool:
        """Whether another group reads `value`, or it is a result."""
        return value in self.context.readers or value in self.context.results

    # Whether row blocks pay, and of how many rows.

    def settle(self) -> bool:
        """Make every member run in row blocks, if that is possible and pays; False, with nothing
        changed, if not.

        It is possible if members share rows and are closed, and if each can number the blocks with
        one axis. It pays with enough products, blocks of a good size, and little that is read
        again.
        """
        products = sum(group.contraction is not None for group in self.rows_of)
        if products < MIN_PRODUCTS or not (self.block_values and self.rows and self._is_closed()):
            return False
        rows = self._block_rows()
        size = self._block_size(rows) if rows else 0
        if not size or not self._can_split(rows[-1], size):
            return False
        block_bytes = self._row_bytes(rows) * size
        if self._reread_bytes(rows, rows[-1]) >= REREAD_LIMIT * block_bytes:
            return False
        if self.context.cost is None:
            self._run_in_blocks(rows, size)
            return True
        if not self._may_predict():
            return False
        whole = {group: copy(group) for group in self.rows_of}
        self._run_in_blocks(rows, size)
        if self._predicts_slower(self.context.cost, whole):
            for group, before in whole.items():
                group.run_whole(before)
            return False
        return True

    def _may_predict(self) -> bool:
        """Count one more prediction for each member, or the original that it copies; False if one
        of them has had MAX_PREDICTIONS."""
        predictions = self.context.predictions
        originals = self.rows_of.keys() - set(self.copy_of.values()) | self.copy_of.keys()
        if any(predictions[group] >= MAX_PREDICTIONS for group in originals):
            return False
        predictions.update(originals)
        return True

    def _run_in_blocks(self, rows: Sequence[int], size: int) -> None:
        """Make every member run in blocks of `size` numbered by `rows`."""
        block_values = {
            value: tuple(axes[row] for row in rows) for value, axes in self.block_values.items()
        }
        for group, group_rows in self.rows_of.items():
            group.run_in_blocks(Block(tuple(group_rows[row] for row in rows), size, block_values))
        # A copy stores what the row blocks read; the original stores all that others read.
        for group in self.copy_of.values():
            group.members = [value for value in group.members if value in block_values]

    def _predicts_slower(self, cost: Cost, whole: Mapping[KernelGroup, KernelGroup]) -> bool:
        """Whether the members, which run in blocks by now, are predicted to take longer so than as
        `whole` has them, one kernel after the other on whole arrays. Originals run in both cases,
        so that only row blocks have the cost of copies."""
        copies = set(self.copy_of.values())
        originals = [group for group in self.rows_of if group not in copies]
        around_whole = self._bytes_around(whole.values())
        around_blocks = around_whole - self.nbytes
        # What adds up block after block begins with a kernel that stores where it starts.
        starts = [group.initial for group in originals if group.initial]
        in_blocks = [self._kernel(group) for group in self.rows_of]
        seconds = cost(in_blocks, around_blocks)
        for start in starts:
            seconds += cost([expected_kernel(start, start.members)], around_blocks)
        saves_much = self.nbytes >= MUCH_MEMORY * around_blocks
        limit = SLOWER_LIMIT_FOR_MEMORY if saves_much else SLOWER_LIMIT
        apart = 0.0
        for group in originals:
            apart += cost([self._kernel(whole[group])], around_whole)
            if seconds <= limit * apart:
                return False  # the other kernels, which take their time too, need no prediction
        return True

    def _kernel(self, group: KernelGroup) -> Kernel:
        """The kernel of `group`, a member or what it was before."""
        return expected_kernel(group, [node for node in group.members if self._is_needed(node)])

    def _bytes_around(self, groups: Iterable[KernelGroup]) -> int:
        """The bytes of all arrays that `groups` read or store, as whole arrays."""
        arrays: dict[object, Node] = {}
        for group in groups:
            for node in (*group.reads, *filter(self._is_needed, group.members)):
                arrays[array_of(node)] = node
        return sum(map(_nbytes, arrays.values()))

    def _is_closed(self) -> bool:
        """Whether no other group must run between two members, and no member reads other rows of
        another one than its own, not even of a value that memory holds whole: those may be rows of
        a block that runs later, or at the same time."""
        if not self.needed_before().isdisjoint(self.rows_of.keys()):
            return False
        for group in self.rows_of:
            for value in group.operands:
                home = self._home(value)
                if home in self.rows_of:
                    common = self._rows_at(home, value, self._axes(group, value))
                    if not common.keys() >= self.rows:
                        return False
        return True

    def _block_rows(self) -> list[int]:
        """The rows that number the blocks: all that members share, unless blocks along another one
        than the last would read too much again; then the others without the last.

        Two products of (512, 512) by (512, 2048), multiplied by each other, share 512 rows and 2048
        columns. With all of these, a block would be one row of 2048 numbers, and read both whole
        factors of 4 MiB for 8 KiB that it holds. Rows alone make blocks of 64 x 2048."""
        rows = self._ordered_rows()
        while len(rows) > 1 and self._is_read_again(rows):
            dropped = rows.pop()
            if any(rows_of[dropped] == len(group.rows) for group, rows_of in self.rows_of.items()):
                return []  # a member sums along it
        return rows

    def _is_read_again(self, rows: Sequence[int]) -> bool:
        """Whether all blocks at one index of a row but the last read much that those at other
        indices read as well."""
        held = self._row_bytes(rows) * self.last.rows[rows[-1]]
        return any(self._reread_bytes(rows, row) >= REREAD_LIMIT * held for row in rows[:-1])

    def _ordered_rows(self) -> list[int]:
        """The shared rows, last the one that is split into blocks: blocks of it run one after the
        other if a member sums along it, so that all others must be parallel enough. Empty if
        members sum along others, or if these are too few."""
        shared = self.rows
        summed: set[int] = set()
        for group, group_rows in self.rows_of.items():
            # The axis that a group sums along has the number after those of its rows.
            summed |= {row for row in shared if group_rows[row] == len(group.rows)}
        rows = sorted(shared, key=lambda row: (row in summed, row))
        parallel = prod(self.last.rows[row] for row in rows[:-1])
        if summed and (summed != {rows[-1]} or parallel < MIN_PARALLEL):
            return []
        return rows

    def _row_bytes(self, rows: Sequence[int]) -> int:
        """Bytes of one row of all `block_values` together: what a block of one row holds."""
        return self.nbytes // prod(self.last.rows[row] for row in rows)

    def _block_size(self, rows: Sequence[int]) -> int:
        """Rows of a block, which divide the extent of the last of `rows`; 0 if blocks do not pay:
        if they keep little out of memory, or have fewer rows than MIN_BLOCK_ROWS.

        For 1000 rows of 16 KiB: 25, the largest divisor up to the 32 that fill the cache. For 1000
        of 64 KiB: 10, up to 16, though they take more than the cache.
        """
        if self.nbytes < MIN_BYTES:
            return 0
        extent = self.last.rows[rows[-1]]
        row_bytes = self._row_bytes(rows)
        wanted = max(CACHE_BYTES // row_bytes, ENOUGH_ROWS)
        limit = min(wanted, MAX_BLOCK_BYTES // row_bytes, extent)
        divisors = (size for size in range(limit, 0, -1) if extent % size == 0)
        size = next(divisors, 0)  # 0 if one row takes more than MAX_BLOCK_BYTES
        has_enough_rows = size >= min(MIN_BLOCK_ROWS, extent)
        return size if has_enough_rows else 0

    def _can_split(self, row: int, size: int) -> bool:
        """Whether blocks of `size` along `row` can be numbered by one axis in each group: not if
        the row is split in pieces of another size already. The index of a whole row is one axis,
        with the factor 1; in the pieces (n, size) it is ``size * outer + inner``."""
        for group in self.rows_of:
            terms, _ = terms_of(self._loop(group, row).index)
            if any(factor not in (1, size) for factor in terms.values()):
                return False
        return True

    def _reread_bytes(self, rows: Sequence[int], along: int) -> int:
        """Bytes that members read, or add to, again at each index of the row `along`, one of the
        `rows` that number the blocks. They are counted for one index of each row but the last: if
        `along` is the last row, each block reads so many again; if not, all blocks along the last
        row together do.

        For ``q @ k.T`` in float32, with 8 heads of 2048 rows in q and in k and 64 columns, in
        blocks of rows of q: along these, each block reads all of one head's k, 2048 * 64 * 4 bytes.
        Its rows of q do not count, and along the heads nothing does, as each head has its own k.
        """
        return sum(self._reread_bytes_of(group, rows, along) for group in self.rows_of)

    def _reread_bytes_of(self, group: KernelGroup, rows: Sequence[int], along: int) -> int:
        """The same of one member. It counts an element once for each iteration that touches it:
        ``x[i + j]`` for i < 8 and j < 3 counts as 24 elements, though x has 10."""
        along_axes = free_axes(self._loop(group, along).index)
        fixed_axes = _axes_of(self._loop(group, row).index for row in rows[:-1])
        total = 0
        for node, indices in self._touched(group, along).items():
            for index in indices:
                axes = _axes_of(index)
                if axes.isdisjoint(along_axes):  # the same elements at each index of `along`
                    iterations = points(axes - fixed_axes)
                    total += iterations * node.dtype.itemsize
        return total

    def _touched(self, group: KernelGroup, along: int) -> Mapping[Node, Set[Index]]:
        """The arrays in memory, none that only blocks of exist, that the member `group` may touch
        again at each index of the row `along`, each with the indices at which it does.

        They are what it reads; but if it sums along that row, the sum, to all of which every block
        adds. What it reads is taken to vary along the summed axis, so that each block reads other
        elements.
        """
        if self.rows_of[group][along] == len(group.rows):  # the axis of a sum, after all rows
            last = group.members[-1]
            return {last: {group.lowered.index_of[last]}}
        return {
            node: indices for node, indices in group.reads.items() if node not in self.block_values
        }

    def _loop(self, group: KernelGroup, row: int) -> RowLoop:
        """The loop of the member `group` that runs along the row `row`, one of those it has."""
        return group.block_candidates[self.rows_of[group][row]]


def _axes_of(indices: Iterable[Node]) -> frozenset[Node]:
    """All axes that `indices` depend on."""
    return frozenset[Node]().union(*map(free_axes, indices))


def _nbytes(node: Node) -> int:
    """The bytes of a whole array."""
    return prod(node.shape) * node.dtype.itemsize
