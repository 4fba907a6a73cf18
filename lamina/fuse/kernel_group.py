"""The values of one kernel: which may join it, and how it runs in blocks of rows.

A kernel begins with one value, whose axes are its row axes. Take the softmax of (64, 100) numbers:
the kernel of the row maxima has 64 rows. The exponentials may join it, as each needs the maximum of
its own row alone; they have full shape, with 100 columns a row. So may their sums, which are again
one number a row. A value that needs another row, such as a sum down a column, has to wait until the
kernel has stored all of its rows.
"""

from collections.abc import Container, Iterable, Mapping, Set
from dataclasses import dataclass, replace
from functools import cached_property
from operator import attrgetter

from lamina.core.shape import Shape, prod, squeezed
from lamina.fuse.accumulation import Accumulation, is_only_sum, sum_and_rest, summed_axis
from lamina.fuse.axes import AxisPlan, AxisSplit, Index, Loops
from lamina.fuse.members import (
    NO_ROW_BLOCK,
    KernelShape,
    LoweredMembers,
    RowBlock,
    SumInBlocks,
    columns_of,
)
from lamina.graph import index as ix
from lamina.ir.build import component
from lamina.ir.kernel import Store, points
from lamina.ir.node import Node, full, toposort
from lamina.ir.ops import Group, Op
from lamina.ir.products import contraction, contractions

# A scan, scatter or sort runs in order along an axis, and a collective is no kernel: no other value
# joins one, but for another component of a scan.
SERIAL = Group.COLLECTIVE | {Op.SCAN, Op.SCATTER, Op.ARGSORT, Op.BIN_SUM}

# When may a kernel pass over the columns of a row more than once? Threads share the rows, so with
# fewer rows than MIN_ROWS some would be idle: then one pass over all elements, in parallel, comes
# first. Kernels of up to SMALL_KERNEL elements are over before that matters. Both are estimates.
MIN_ROWS = 16
SMALL_KERNEL = 1 << 16
# The same for rows whose elements lie apart: each block has several that are neighbours.
MIN_ROWS_APART = 1 << 10


@dataclass(frozen=True)
class RowLoop:
    """The index along one axis, of a kernel's rows or of a value that it makes or reads, and the
    size of that axis."""

    index: Node
    size: int


@dataclass(frozen=True)
class _State:
    """How a kernel is lowered. `KernelGroup.try_add` goes from one state to another, and back if
    the value does not fit.

    `shape` and `plan` are those of `LoweredMembers`; `contraction` is that of the kernel.
    """

    shape: KernelShape
    plan: AxisPlan
    contraction: Node | None


class KernelGroup:
    """A kernel in the making; `first` is its first member.

    `values` are all values of the program, with the shapes that they have in memory. `number` is
    the kernel's place in the order in which kernels were begun. `max_apart` is that of
    `lamina.fuse.target`.
    """

    def __init__(
        self, first: Node, values: Mapping[Node, Shape], number: int = 0, max_apart: int = 0
    ) -> None:
        self.first = first
        self.values = values
        self.number = number
        self.max_apart = max_apart
        self.members = [first]
        # The kernels that must run before, which `run_after` sets. Like nodes, kernels are a graph
        # for `toposort`.
        self.src: tuple[KernelGroup, ...] = ()
        # `add_statements` adds to these: all operations that leave a statement in the kernel, and
        # the sums of products that it computes again inside its own sums.
        self.statements: frozenset[Node] = frozenset()
        self.recomputed: frozenset[Node] = frozenset()
        # Set by `run_in_blocks`: the rows that run at once, and the sum, if any, along whose axis
        # blocks are numbered.
        self.block = NO_ROW_BLOCK
        self.summed: SumInBlocks | None = None
        # A kernel that runs right before: it stores the array that this one updates or adds to.
        self.initial: KernelGroup | None = None
        if first.op is Op.SCATTER:
            base = first.src[0]
            self.initial = KernelGroup(Node(Op.CONTIGUOUS, (base,)), values)
        # This succeeds: a value by itself needs no other member, and so none at another index.
        self._lower_anew(_shape_of_first(first, max_apart), plan={})
        # The reduction, if any, whose operands are reused across rows: a product of matrices.
        self.contraction = contraction([self.stores[first].value], self.row_axes)

    @property
    def shape(self) -> KernelShape:
        return self.lowered.shape

    @property
    def rows(self) -> Shape:
        """The sizes of the row axes, none of them 1."""
        return self.lowered.shape.rows

    @property
    def row_axes(self) -> tuple[Node, ...]:
        """The loops over rows; those that number the blocks come first."""
        return self.lowered.row_axes

    @property
    def block_axes(self) -> tuple[Node, ...]:
        """The loops that number the blocks, if the kernel runs in any."""
        return self.lowered.block_axes

    @property
    def stores(self) -> Mapping[Node, Store]:
        """How each member is stored. The number of the parameter is 0 until memory is planned."""
        return self.lowered.stores

    @property
    def reads(self) -> Mapping[Node, Set[Index]]:
        """Inputs, and values of other kernels, with the indices at which the kernel reads each."""
        return self.lowered.reads

    @property
    def is_serial(self) -> bool:
        """Whether the kernel runs in order along an axis."""
        return self.first.op in SERIAL or self.lowered.has_scan

    def is_scan_of(self, node: Node) -> bool:
        """Whether the kernel is that of a scan of which `node` is another component."""
        are_scans = self.first.op is node.op is Op.SCAN
        return are_scans and component(self.first, 0) is component(node, 0)

    @property
    def operands(self) -> list[Node]:
        """The values of other kernels that this one reads."""
        return [node for node in self.reads if node.op is not Op.BUFFER]

    @property
    def arrays_read(self) -> set[object]:
        """The whole arrays in memory that the kernel, or its `initial` one, reads: values of other
        kernels, and the storage of inputs. Memory holds only blocks of `block.values`."""
        arrays = {node.arg.storage if node.op is Op.BUFFER else node for node in self.reads}
        arrays.difference_update(self.block.values)
        if self.initial:
            arrays |= self.initial.arrays_read
        return arrays

    # What others decide: `lamina.fuse.groups`, `lamina.fuse.row_blocks`, `lamina.fuse.in_place`.

    def add_statements(self, statements: Set[Node], recomputed: Set[Node]) -> None:
        """Note what a member has brought: operations that leave a statement in the kernel, and sums
        of products that it computes again."""
        self.statements |= statements
        self.recomputed |= recomputed

    def run_after(self, groups: Iterable["KernelGroup"]) -> None:
        """Have `groups`, and no other kernels, run before this one."""
        self.src = tuple(sorted(dict.fromkeys(groups), key=attrgetter("number")))

    def keep_members(self, values: Container[Node]) -> None:
        """Leave only those members that are among `values`, as something else makes the others."""
        self.members = [member for member in self.members if member in values]

    # Joining.

    def try_add(self, node: Node, recomputed: Set[Node] = frozenset()) -> bool:
        """Add `node` to the members if it fits, and say whether it did; if not, nothing changes.

        It fits if members may have its shape, in the state so far or in another one; if every
        member can be lowered in that state; and if it brings no further product of matrices.

        `recomputed` are the sums of products that the region of `node` computes again. If this
        kernel computes one of them again too, it may take on the rows of `node`, and a further
        product. Attention on a GPU is such a kernel: it computes the scores, and beside their
        product that of the weights by v.
        """
        if self.is_serial and not self.is_scan_of(node):
            return False
        before = _State(self.shape, self.lowered.axes.plan, self.contraction)
        recomputes_same = not self.recomputed.isdisjoint(recomputed)
        after = self._state_for(node, before)
        if after is None and recomputes_same:
            after = self._state_with_rows_of(node, before)
        if after is None:
            return False
        self.members.append(node)
        if self._lower_added(before, after):
            product = self._new_product(node)
            # A kernel's rows are tiled for one product. A second one joins only if both need the
            # same sums, as both products of attention need the scores.
            if product is None or (recomputes_same and self._shares_reduction(node)):
                self.contraction = after.contraction or product
                return True
        self.members.pop()
        self._lower_anew(before.shape, before.plan)
        return False

    def _new_product(self, node: Node) -> Node | None:
        """A contraction that computing the member `node` takes, and that no other member takes;
        None if there is none, and `node` only continues with results of the kernel. If ``x @ v`` is
        a member, ``(x @ v) * (x @ w)`` takes one more contraction, ``x @ w``."""
        store = self.stores[node]
        others = [self.stores[member].value for member in self.members if member is not node]
        computed = set(toposort(others))
        products = contractions([store.value], store.axes)  # over rows, and columns if it has any
        return next((product for product in products if product not in computed), None)

    def _state_for(self, node: Node, before: _State) -> _State | None:
        """The state in which members may have the shape of `node`, as far as shapes alone tell;
        None if there is none.

        No reduction joins the kernel of a product of matrices: its loop would run for each element
        of a tile. For (512, 512) matrices, ``max(abs((x @ w)[:, :, None] - u), axis=2)`` for u of 8
        numbers took 10 ms as one kernel on a CPU of two cores, and takes 3 ms as two.
        """
        if node.op is Op.REDUCE:
            return None if self.contraction else self._state_for_reduction(node, before)
        shape = squeezed(node.shape)
        if self.contraction:
            # The rows are elements of the product, and no member has columns: a member has an
            # element for each row, or one that several rows share.
            fits = shape == self.rows or shape in self.shape.shared
        else:
            fits = shape in self.shape.columns
        return before if fits else None

    def _state_for_reduction(self, node: Node, before: _State) -> _State | None:
        """The state in which the REDUCE `node` may be a member, of a kernel without products.

        1. It has the kernel's rows: it reduces something of each row. If passes over rows pay, what
           it reduces may be a member too, with columns. The kernel of the 64 row maxima of
           (64, 100) scores takes on the sum of the exponentials, and has the exponentials, of
           (64, 100), as members as well.
        2. It has other rows, and the kernel is arithmetic on the shape that it reduces, so far with
           every element as a row. The kernel of ``y = 2 * x``, with 6,400 rows for (64, 100)
           numbers, takes on the sum of y along axis 1: it has the 64 rows of the sum then, and y is
           a member with columns.
        """
        operand_shape = node.src[0].shape
        axes = node.arg.axes
        rows = squeezed(node.shape)
        passes_pay = _passes_over_rows_pay(node, self.max_apart)
        if rows == self.rows:
            if not passes_pay:
                return before
            return replace(before, shape=self.shape.with_columns(operand_shape, axes))
        if not passes_pay or not self._is_arithmetic_on(squeezed(operand_shape)):
            return None
        no_columns = frozenset[int]()
        columns = {squeezed(operand_shape): columns_of(operand_shape, axes), rows: no_columns}
        shape = replace(self.shape, rows=rows, columns=columns)
        # The plan has the pieces of axes by number. With other rows, the numbers mean other axes.
        return replace(before, shape=shape, plan={})

    def _is_arithmetic_on(self, shape: Shape) -> bool:
        """Whether all members have `shape`, without axes of size 1, and none has a reduction."""
        if any(squeezed(member.shape) != shape for member in self.members):
            return False
        nodes = toposort(store.value for store in self.stores.values())
        return all(node.op is not Op.LOOP_REDUCE for node in nodes)

    def _state_with_rows_of(self, node: Node, before: _State) -> _State | None:
        """The state in which the kernel has the rows of `node`, which are finer than its own rows:
        several of them share an element of each member so far. None if that is impossible.

        The kernel of the row maxima of ``q @ k.T`` has 64 rows. It becomes that of ``softmax(q @
        k.T) @ v`` with 64 x 32 results: the rows (i, j). The 32 rows of one i share the maximum at
        the index (i,).
        """
        node_shape = squeezed(node.shape)
        if node_shape == self.rows or node_shape in self.shape.shared:
            return before  # it has members of that shape already
        if self.shape.shared:
            return None  # a third kind of rows; `KernelShape` has places for two
        finer = KernelGroup(node, self.values, max_apart=self.max_apart)
        index = self._index_read_by(finer)
        if index is None or not self._can_be_shared_at(index, finer):
            return None
        shape = replace(finer.shape, shared={self.rows: Loops(index, ())})
        # The plan has the pieces of axes by number, and rows have the first numbers: those of
        # `finer` stay in their pieces. Later numbers are other axes here than in `finer`.
        plan = {row: finer.lowered.axes.plan[row] for row in _split_rows(finer)}
        return _State(shape, plan, contraction=None)

    def _index_read_by(self, finer: "KernelGroup") -> Index | None:
        """The index at which the kernel `finer` reads members of this one. None if it reads none,
        or at several indices: a kernel computes each member at one.

        Every 0 is left out, as that along an axis of size 1. With a 0 along a longer axis the index
        walks too few rows, which `_can_be_shared_at` finds.
        """
        indices = {
            tuple(part for part in index if part is not ix.ZERO)
            for member in self.members
            for index in finer.reads.get(member, ())
        }
        return indices.pop() if len(indices) == 1 else None

    def _can_be_shared_at(self, index: Index, finer: "KernelGroup") -> bool:
        """Whether the kernel can compute its members at `index`, over rows of `finer`, in place of
        at its own rows.

        Each member must have one element for every row, and no columns. No row may be in pieces:
        the plan is that of the rows of `finer`. And `index` must walk all rows along some row axes
        of `finer`, but not along all of them; rows along the others share an element. For 64 maxima
        and the rows (i, j) of (64, 32), the index (i,) does: i alone has 64 steps.
        """
        if _split_rows(self):
            return False
        if any(squeezed(member.shape) != self.rows for member in self.members):
            return False
        walked = frozenset[Node]().union(*(ix.terms_of(part)[0] for part in index))
        return walked < set(finer.row_axes) and points(walked) == prod(self.rows)

    def _shares_reduction(self, node: Node) -> bool:
        """Whether the member `node` and another one need the same LOOP_REDUCE, which the kernel
        then computes once for both."""
        others = [self.stores[member].value for member in self.members if member is not node]
        shared = set(toposort([self.stores[node].value])).intersection(toposort(others))
        return any(inner.op is Op.LOOP_REDUCE for inner in shared)

    # Lowering.

    def _lower_anew(self, shape: KernelShape, plan: AxisPlan) -> bool:
        """Lower every member. Where an axis has to be split, start again with a longer plan than
        `plan`, until there is nothing left to split.

        False if a member is needed at an index at which the kernel does not compute it: then
        `self.lowered` is of no use until the next call.
        """
        while True:
            self.lowered = LoweredMembers(self.values, shape, plan, self.block, self.summed)
            obstacle = self.lowered.lower(self.members)
            if not isinstance(obstacle, AxisSplit):
                return obstacle is None
            plan = self.lowered.axes.split(obstacle)

    def _lower_added(self, before: _State, after: _State) -> bool:
        """Lower the last member, which was just added, in the state `after`; every other one anew
        if the rows are others than `before`, or if an axis has to be split. False, as in
        `_lower_anew`, if a member is needed where the kernel does not compute it."""
        if after.shape.rows != before.shape.rows:
            return self._lower_anew(after.shape, after.plan)
        # With the same rows, `after` allows at most one more shape of members, which the members
        # so far do not have: they stay as they are lowered.
        self.lowered.shape = after.shape
        obstacle = self.lowered.lower(self.members[-1:])
        if isinstance(obstacle, AxisSplit):
            return self._lower_anew(self.shape, self.lowered.axes.split(obstacle))
        return obstacle is None

    # Running in blocks of rows.

    @cached_property
    def block_candidates(self) -> list[RowLoop]:
        """The loops that blocks may be numbered along: each row; after them the axis that the last
        member adds up along, if memory can hold the sum so far. To be asked when all members are
        known.

        For the gradient of v in attention, ``sum over i of weights[i, j] * g[i, k]``, these are the
        rows j and k, and then i.
        """
        candidates = [
            RowLoop(index, size)
            for index, size in zip(self.lowered.row_index, self.rows, strict=True)
        ]
        if self._accumulation:
            axis = self._accumulation.axis
            candidates.append(RowLoop(axis, axis.arg.size))
        return candidates

    @cached_property
    def _accumulation(self) -> Accumulation | None:
        """How memory can add up the last member, one part of an axis after the other; None if it
        cannot."""
        last = self.members[-1]
        parts = sum_and_rest(last, self._is_of_another_kernel)
        if parts is None or not is_only_sum(parts, last, self.members):
            return None
        # Lowered at the index of the member, it is the scalar in the member's store.
        total = self.lowered.value(parts.total, self.lowered.index_of[last])
        axis = summed_axis(total, self.stores[last].value)
        return Accumulation(parts.total, parts.rest, axis) if axis else None

    def _is_of_another_kernel(self, node: Node) -> bool:
        return node in self.values and node not in self.members

    def loops_along(self, value: Node) -> list[RowLoop | None]:
        """For each axis of `value`, which the kernel reads or makes, the index at which it does.

        An axis that the kernel reads at several indices has None: for
        ``y[i] = x[i, 0] + x[i, 1]`` and x of (64, 2) that is [(i, size 64), None].
        """
        indices = self.reads.get(value) or {self.lowered.index_of[value]}
        loops: list[RowLoop | None] = []
        for axis, size in enumerate(value.shape):
            positions = {index[axis] for index in indices}
            loops.append(RowLoop(positions.pop(), size) if len(positions) == 1 else None)
        return loops

    def run_in_blocks(self, block: RowBlock) -> None:
        """Lower the kernel anew, with blocks numbered along `block.rows`, positions in
        `block_candidates`. The last of these is cut into pieces: 2048 rows in blocks of 32 become
        (64, 32).

        If it is the axis of a sum, after the rows, memory adds up the sum, block by block. One
        block, which has the whole axis, stores it.
        """
        last = block.rows[-1]
        size = self.block_candidates[last].size
        accumulation = self._accumulation
        self.block = block
        if accumulation and last == len(self.rows):
            self._sum_in_blocks(accumulation, is_whole=block.size == size)
        # Rows are the first logical axes, and the axis of a sum is the next one: so `last`, a
        # position among them, is also the number by which the plan has it. Members are at the same
        # indices as before, so this succeeds; other axes that have to be in pieces are split again.
        self._lower_anew(self.shape, {last: (size // block.size, block.size)})

    def run_whole(self, before: "KernelGroup") -> None:
        """Take `run_in_blocks` and `keep_members` back. before: a copy of the kernel from before
        them. They give these attributes new values, and change none of the objects that they had.
        """
        self.first = before.first
        self.members = before.members
        self.block = before.block
        self.summed = before.summed
        self.initial = before.initial
        self.lowered = before.lowered

    def _sum_in_blocks(self, accumulation: Accumulation, *, is_whole: bool) -> None:
        """Make the kernel compute only the sum of its last member. Blocks add their parts to
        memory. An initial kernel stores what memory begins with; it may read the values that this
        one reads, and computes everything else. Where `is_whole`, one block has the whole sum: if
        nothing else is added, it stores that, and no kernel runs before."""
        member = self.members[-1]
        self.first = member  # whose view the initial kernel stores in
        self.members = [member]
        is_added = accumulation.rest is not None or not is_whole
        self.summed = SumInBlocks(accumulation.total, is_added)
        if is_added:
            start = accumulation.rest or full(member.shape, 0, member.dtype)
            operands = {operand: self.values[operand] for operand in self.operands}
            self.initial = KernelGroup(Node(Op.CONTIGUOUS, (start,)), operands)


def _shape_of_first(first: Node, max_apart: int) -> KernelShape:
    """The shape of a kernel with the one member `first`. If that is a reduction and passes over
    rows pay, what it reduces may become a member: the (64, 100) scores of 64 row maxima."""
    shape = KernelShape.starting_with(first)
    if first.op is Op.REDUCE and _passes_over_rows_pay(first, max_apart):
        shape = shape.with_columns(first.src[0].shape, first.arg.axes)
    return shape


def _split_rows(group: KernelGroup) -> Set[int]:
    """The rows of a kernel that are in pieces, by position: rows are opened first, so that is also
    the number of their logical axes, by which the plan has them."""
    return group.lowered.axes.plan.keys() & range(len(group.rows))


def _passes_over_rows_pay(reduction: Node, max_apart: int) -> bool:
    """Whether a kernel may pass over the operand of `reduction` a row at a time, several times.

    It must reduce the innermost axis: its neighbours in memory are in one cache line, which the
    second pass then finds in the cache. Other axes may be reduced with it, as (0, 2) of
    (8, 64, 100). And there must be rows for all threads, or so few elements that it does not
    matter: see `MIN_ROWS`. Otherwise it must reduce `max_apart` elements or fewer to a result,
    which registers hold meanwhile: rows that are neighbours are read side by side, as the 22,898
    rows of 8 elements of each of 128 arrays of (8, 22898).
    """
    shape = reduction.src[0].shape
    long_axes = [axis for axis, size in enumerate(shape) if size != 1]
    innermost = max(long_axes, default=-1)
    is_along_rows = innermost in reduction.arg.axes
    if not is_along_rows and prod(shape) > max_apart * prod(reduction.shape):
        return False
    min_rows = MIN_ROWS if is_along_rows else MIN_ROWS_APART
    has_rows_for_threads = prod(reduction.shape) >= min_rows
    is_small = prod(shape) <= SMALL_KERNEL
    return has_rows_for_threads or is_small
