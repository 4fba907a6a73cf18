"""The values of one kernel: which may join it, and how it runs in blocks of rows.

A kernel begins with one value, whose axes are its row axes. Take the softmax of (64, 100) numbers:
the kernel of the row maxima has 64 rows. The exponentials may join it, as each needs the maximum of
its own row alone; they have full shape, with 100 columns a row. So may their sums, which are again
one number a row. A value that needs another row, such as a sum down a column, has to wait until the
kernel has stored all of its rows.
"""

from collections.abc import Mapping, Set
from dataclasses import dataclass, replace
from functools import cached_property

from lamina.core.shape import Shape, prod, squeezed
from lamina.fuse.axes import AxisPlan, AxisSplit, Index, Loops
from lamina.fuse.epilogues import BIJECTIVE
from lamina.fuse.members import NO_BLOCK, Block, KernelShape, LoweredMembers, columns_of
from lamina.graph import index as ix
from lamina.ir.kernel import Store, bound_axes, contraction, points
from lamina.ir.monoids import ADD
from lamina.ir.node import Node, full, peel, toposort
from lamina.ir.ops import Op

# A scan, scatter or sort runs in order along an axis: no other value joins its kernel.
SERIAL = frozenset({Op.SCAN, Op.SCATTER, Op.ARGSORT})

# When may a kernel pass over the columns of a row more than once? With fewer rows than MIN_ROWS
# that would leave threads idle: then one pass over all elements, in parallel, comes first. Kernels
# of up to SMALL_KERNEL elements are over before that matters. Both numbers are estimates.
MIN_ROWS = 16
SMALL_KERNEL = 1 << 16


@dataclass(frozen=True)
class RowLoop:
    """The index along one axis, of a kernel's rows or of a value that it makes or reads, and the
    size of that axis."""

    index: Node
    size: int


@dataclass(frozen=True)
class _SumAndRest:
    """A value taken apart: the elements of the reduction `total`, plus those of `rest`, if any."""

    total: Node
    rest: Node | None


@dataclass(frozen=True)
class _Accumulation(_SumAndRest):
    """A member as `total`, which a kernel adds up along the one loop `axis`, and `rest`."""

    axis: Node


@dataclass(frozen=True)
class _State:
    """How a kernel is lowered: what `try_add` goes to, and back from when a value does not fit.

    `shape` and `plan` are those of `LoweredMembers`, `contraction` that of the kernel.
    """

    shape: KernelShape
    plan: AxisPlan
    contraction: Node | None


class KernelGroup:
    """A kernel in the making; `first` is its first member.

    `values` are all values of the program, with the shapes that they have in memory; `number` puts
    kernels in order.
    """

    def __init__(self, first: Node, values: Mapping[Node, Shape], number: int = 0) -> None:
        self.first = first
        self.values = values
        self.number = number
        self.members = [first]
        # The kernels that must run before. Like nodes, kernels are a graph for `toposort`.
        self.src: tuple[KernelGroup, ...] = ()
        # Set by `lamina.fuse.groups`: all operations that leave a statement in the kernel, and the
        # sums of products that it computes again inside its own sums.
        self.statements: frozenset[Node] = frozenset()
        self.recomputed: frozenset[Node] = frozenset()
        self.block = NO_BLOCK
        # In a kernel that runs in blocks: the sum that is added up in memory, block by block.
        self.accumulated: Node | None = None
        # Stores what a scatter changes, or what the sum of all blocks is added to.
        self.initial: KernelGroup | None = None
        if first.op is Op.SCATTER:
            self.initial = KernelGroup(Node(Op.CONTIGUOUS, first.src[:1]), values)
        shape = KernelShape.starting_with(first)
        if first.op is Op.REDUCE and _passes_over_rows_pay(first):
            shape = shape.with_columns(first.src[0].shape, first.arg.axes)
        # This succeeds: a value by itself needs no other member, and so none at another index.
        self._lower_anew(shape, {})
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
        """How each member is stored, but for the number of its parameter."""
        return self.lowered.stores

    @property
    def reads(self) -> Mapping[Node, Set[Index]]:
        """Inputs, and values of other kernels, with the indices at which the kernel reads each."""
        return self.lowered.reads

    @property
    def is_serial(self) -> bool:
        """Whether the kernel runs in order along an axis."""
        return self.first.op in SERIAL or self.lowered.has_scan

    @property
    def arrays_read(self) -> set[object]:
        """Values of other kernels, and the storage of inputs, that it reads in memory."""
        arrays = {node.arg.storage if node.op is Op.BUFFER else node for node in self.reads}
        arrays.difference_update(self.block.values)
        if self.initial:
            arrays |= self.initial.arrays_read
        return arrays

    @property
    def operands(self) -> list[Node]:
        """The values of other kernels that this one reads."""
        return [node for node in self.reads if node.op is not Op.BUFFER]

    # Joining.

    def try_add(self, node: Node, recomputed: Set[Node] = frozenset()) -> bool:
        """Add `node` to the members if it fits, and say whether it did; if not, nothing changes.

        It fits if there is a state in which members may have its shape, if every member can be
        lowered in that state, and if it brings no further product of matrices. `recomputed` are the
        sums of products that the region of `node` computes again: a kernel that computes one of
        them again too may take on the rows of `node`, and a further product: for attention, that
        of the weights by v beside that of the scores.
        """
        if self.is_serial:
            return False
        before = _State(self.shape, self.lowered.axes.plan, self.contraction)
        recomputes_same = not self.recomputed.isdisjoint(recomputed)
        after = self._state_for(node, before)
        if after is None and recomputes_same:
            after = self._state_with_rows_of(node, before)
        if after is None:
            return False
        self.members.append(node)
        if not self._lower_added(before, after):
            self._remove_last(before)
            return False
        store = self.stores[node]
        product = contraction([store.value], store.axes)
        # A kernel's rows are tiled for one product of matrices, that of its first member.
        is_new_product = product is not None and product is not after.contraction
        if is_new_product and not (recomputes_same and self._shares_reduction(node)):
            self._remove_last(before)
            return False
        self.contraction = after.contraction or product
        return True

    def _remove_last(self, before: _State) -> None:
        """Take back the last member, and what lowering it has changed since the state `before`."""
        self.members.pop()
        self._lower_anew(before.shape, before.plan)

    def _state_for(self, node: Node, before: _State) -> _State | None:
        """The state in which members may have the shape of `node`, as far as shapes alone tell;
        None if there is none.

        No reduction joins the kernel of a product of matrices: its loop would run for each element
        of a tile. For (512, 512) matrices, ``max(abs((x @ w)[:, :, None] - u), axis=2)`` for u of 8
        numbers took 10 ms as one kernel on a CPU of two cores, and takes 3 ms as two.
        """
        if node.op is Op.REDUCE:
            return None if self.contraction else self._state_for_reduction(node, before)
        # Nor has such a kernel members with columns, as its rows are elements of the product: each
        # member has an element for each row, or one that several rows share.
        shapes = self.shape.shared if self.contraction else self.shape.columns
        node_shape = squeezed(node.shape)
        return before if node_shape == self.rows or node_shape in shapes else None

    def _state_for_reduction(self, node: Node, before: _State) -> _State | None:
        """The same for a reduction, whose operands may become members with columns if passes over
        rows pay. Arithmetic on (64, 100) numbers, with 64 x 100 rows, gets the 64 rows of a sum
        over the 100."""
        operand = node.src[0]
        axes = node.arg.axes
        rows = squeezed(node.shape)
        if rows == self.rows:
            if not _passes_over_rows_pay(node):
                return before  # one more reduction over each row, whose operands are no members
            return replace(before, shape=self.shape.with_columns(operand.shape, axes))
        if not _passes_over_rows_pay(node) or not self._is_arithmetic_on(squeezed(operand.shape)):
            return None
        columns = {squeezed(operand.shape): columns_of(operand.shape, axes), rows: frozenset[int]()}
        # The plan splits logical axes by number; with other rows, the numbers mean other axes.
        return replace(before, shape=replace(self.shape, rows=rows, columns=columns), plan={})

    def _is_arithmetic_on(self, shape: Shape) -> bool:
        """Whether all members have `shape`, without axes of size 1, and none has a reduction."""
        if any(squeezed(member.shape) != shape for member in self.members):
            return False
        nodes = toposort(store.value for store in self.stores.values())
        return all(node.op is not Op.LOOP_REDUCE for node in nodes)

    def _state_with_rows_of(self, node: Node, before: _State) -> _State | None:
        """The state in which the kernel has the rows of `node`, several of which share an element
        of each member so far; None if they cannot.

        The kernel of the row maxima of ``q @ k.T`` has 64 rows. It becomes that of ``softmax(q @
        k.T) @ v`` with 64 x 32 results: the rows (i, j). The 32 rows of one i share the maximum at
        the index (i,).
        """
        node_shape = squeezed(node.shape)
        if node_shape == self.rows or node_shape in self.shape.shared:
            return before  # it has such members already
        if self.shape.shared:
            return None  # a third kind of rows; `KernelShape` has places for two
        finer = KernelGroup(node, self.values)
        index = self._index_read_by(finer)
        if index is None or not self._is_shared_at(index, finer):
            return None
        shape = replace(finer.shape, shared={self.rows: Loops(index, ())})
        # The plan knows logical axes by number, and rows have the first numbers: those of `finer`
        # stay in their pieces. Later numbers are other axes here than in `finer`.
        plan = {row: finer.lowered.axes.plan[row] for row in _split_rows(finer)}
        return _State(shape, plan, contraction=None)

    def _index_read_by(self, finer: "KernelGroup") -> Index | None:
        """The only index at which the kernel `finer` reads members of this one; None if it reads
        none, or at several indices, as a kernel computes each member at one. Axes of size 1, where
        the index is 0, are left out."""
        indices = {
            tuple(part for part in index if part is not ix.ZERO)
            for member in self.members
            for index in finer.reads.get(member, ())
        }
        return indices.pop() if len(indices) == 1 else None

    def _is_shared_at(self, index: Index, finer: "KernelGroup") -> bool:
        """Whether the kernel can compute its members at `index`, which the rows of `finer` share,
        in place of at its own rows.

        Each member must have one element for every row, so no columns, and no row be in pieces. The
        index must walk all rows along some row axes of `finer`, but not along all of them: rows
        along the others share an element. For 64 maxima and the rows (i, j) of (64, 32), (i,) does.
        """
        member_shapes = {squeezed(member.shape) for member in self.members}
        if _split_rows(self) or member_shapes != {self.rows}:
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
        """Lower every member, as often as another axis has to be split, for which `plan` is the
        start. False if a member is needed at an index at which the kernel does not compute it:
        `self.lowered` is of no use then, until the next call."""
        while True:
            self.lowered = LoweredMembers(self.values, shape, plan, self.block, self.accumulated)
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
        member adds up along, if memory can hold the sum so far (`_accumulation`). To be asked when
        all members are known.

        For the gradient of v in attention, ``sum over i of weights[i, j] * g[i, k]``, these are the
        rows j and k, and then i.
        """
        rows = [
            RowLoop(index, size)
            for index, size in zip(self.lowered.row_index, self.rows, strict=True)
        ]
        if self._accumulation:
            axis = self._accumulation.axis
            rows.append(RowLoop(axis, axis.arg.size))
        return rows

    @cached_property
    def _accumulation(self) -> _Accumulation | None:
        """How memory can add up the last member, one part of an axis after the other; None if it
        cannot.

        It must be a sum along one axis, which then numbers the blocks, or that sum plus the rest.
        There may be no members but it and the sum, as the kernel stores nothing but the parts then;
        and no other reduction along the axis: ``sum(exp(x - max(x)))`` needs the maximum of all
        parts before it can add up the first.
        """
        last = self.members[-1]
        parts = self._sum_and_rest(last)
        if parts is None:
            return None
        reduction = peel(parts.total, BIJECTIVE)  # which `last` may reshape and permute
        if any(member not in (last, reduction) for member in self.members):
            return None
        total = self.lowered.value(parts.total, self.lowered.index_of[last])
        axes = bound_axes(total)
        if len(axes) != 1:
            return None
        (axis,) = axes
        others = [node for node in toposort([self.stores[last].value]) if node is not total]
        if any(axis in bound_axes(node) for node in others):
            return None
        return _Accumulation(parts.total, parts.rest, axis)

    def loops_along(self, value: Node) -> list[RowLoop | None]:
        """Where the kernel reads `value`, or makes it if it does not read it: an entry for each
        axis, with the index and the size of that axis; None for an axis at which it reads by
        several indices. For ``y[i] = x[i, 0] + x[i, 1]`` and x of (64, 2): (i, 64), and None."""
        indices = self.reads.get(value) or {self.lowered.index_of[value]}
        loops: list[RowLoop | None] = []
        for axis, size in enumerate(value.shape):
            positions = {index[axis] for index in indices}
            loops.append(RowLoop(positions.pop(), size) if len(positions) == 1 else None)
        return loops

    def run_in_blocks(self, block: Block) -> None:
        """Lower the kernel anew, with blocks numbered along `block.rows`, positions in
        `block_candidates`. If the last of these is the axis after the rows, the sum along it is
        added up in memory, one block after the other, to what else the member adds."""
        last = block.rows[-1]
        size = self.block_candidates[last].size
        accumulation = self._accumulation
        self.block = block
        if accumulation and last == len(self.rows):
            self._accumulate(accumulation)
        # The logical axes of rows have the first numbers, and the axis of a sum has the next one:
        # `last` is also the number by which the plan has it. Members are at the same indices as
        # before, so this succeeds; it splits again what else has to be in pieces.
        self._lower_anew(self.shape, {last: (size // block.size, block.size)})

    def run_whole(self, before: "KernelGroup") -> None:
        """Take `run_in_blocks` back: the kernel is as its copy `before` again."""
        vars(self).update(vars(before))

    def _accumulate(self, accumulation: _Accumulation) -> None:
        """Leave the sum of the last member to the blocks, and what it is added to to a kernel
        before, which may read from memory just what this one reads there."""
        member = self.members[-1]
        self.first = member
        self.members = [member]
        self.accumulated = accumulation.total
        start = accumulation.rest or full(member.shape, 0, member.dtype)
        operands = {operand: self.values[operand] for operand in self.operands}
        self.initial = KernelGroup(Node(Op.CONTIGUOUS, (start,)), operands)

    def _sum_and_rest(self, node: Node) -> _SumAndRest | None:
        """A member as a sum, and what is added to it: for ``x @ w + b`` the product of matrices
        and b. None for anything else, and for what memory holds: the values of other kernels."""
        if node in self.values and node not in self.members:
            return None
        if node.op is Op.REDUCE and node.arg.monoid is ADD:
            return _SumAndRest(node, None)
        if node.op in BIJECTIVE:
            parts = self._sum_and_rest(node.src[0])
            if parts is None:
                return None
            total = Node(node.op, (parts.total,), node.arg)
            rest = Node(node.op, (parts.rest,), node.arg) if parts.rest else None
            return _SumAndRest(total, rest)
        if node.op is Op.ADD:
            left, right = node.src
            for addend, other in ((left, right), (right, left)):
                if parts := self._sum_and_rest(addend):
                    rest = Node(Op.ADD, (parts.rest, other)) if parts.rest else other
                    return _SumAndRest(parts.total, rest)
        return None


def _split_rows(group: KernelGroup) -> Set[int]:
    """The rows of a kernel that are in pieces, by position: rows are opened first, so that is also
    the number of their logical axes, by which the plan has them."""
    return group.lowered.axes.plan.keys() & range(len(group.rows))


def _passes_over_rows_pay(reduction: Node) -> bool:
    """Whether a kernel may pass over the operand of `reduction` a row at a time, several times.

    It must reduce the innermost axis: its neighbours in memory are in one cache line, which the
    second pass then finds in the cache. Other axes may be reduced with it, as (0, 2) of
    (8, 64, 100). See `MIN_ROWS` for the rest.
    """
    shape = reduction.src[0].shape
    long_axes = [axis for axis, size in enumerate(shape) if size != 1]
    innermost = max(long_axes, default=-1)
    if innermost not in reduction.arg.axes:
        return False
    return prod(reduction.shape) >= MIN_ROWS or prod(shape) <= SMALL_KERNEL
