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
from lamina.ir.node import Node, full, toposort
from lamina.ir.ops import Op

# A scan, scatter or sort runs in order along an axis: no other value joins its kernel.
SERIAL = frozenset({Op.SCAN, Op.SCATTER, Op.ARGSORT})

# When may a kernel pass over the columns of a row more than once? With fewer rows than MIN_ROWS
# that would leave threads idle: then one pass over all elements, in parallel, comes first. Kernels
# of up to SMALL_KERNEL elements are over before that matters.
MIN_ROWS = 16
SMALL_KERNEL = 1 << 16


@dataclass(frozen=True)
class RowLoop:
    """A row of a kernel: its index, and how many steps that has."""

    index: Node
    size: int


@dataclass(frozen=True)
class _SumAndRest:
    """A value taken apart: the elements of the reduction `total`, plus those of `rest`, if any."""

    total: Node
    rest: Node | None


@dataclass(frozen=True)
class _State:
    """What `try_add` goes back to when a value does not fit."""

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
        arrays.difference_update(self.block.inside)
        return arrays | self.initial.arrays_read if self.initial else arrays

    @property
    def operands(self) -> list[Node]:
        """The values of other kernels that this one reads."""
        return [node for node in self.reads if node.op is not Op.BUFFER]

    # Joining.

    def try_add(self, node: Node, recomputed: Set[Node] = frozenset()) -> bool:
        """Add `node` if it fits; else change nothing. `recomputed` are the sums of products that
        its region computes again."""
        if self.is_serial:
            return False
        before = _State(self.shape, self.lowered.axes.plan, self.contraction)
        same_products = self.recomputed & recomputed
        if not self._make_room_for(node) and not (same_products and self._adopt_rows_of(node)):
            return False
        self.members.append(node)
        if self._lower_last() and self._keeps_one_contraction(node, bool(same_products)):
            return True
        self.members.remove(node)
        self.contraction = before.contraction
        self._lower_anew(before.shape, before.plan)
        return False

    def _make_room_for(self, node: Node) -> bool:
        """Let members have the shape of `node`, as far as shapes alone tell; False, with nothing
        changed, if they cannot."""
        if node.op is Op.REDUCE:
            return not self.contraction and self._make_room_for_reduction(node)
        # A product of matrices has one element for each row, or one that several rows share: no
        # member has columns.
        shapes = self.shape.shared if self.contraction else self.shape.columns
        node_shape = squeezed(node.shape)
        return node_shape == self.rows or node_shape in shapes

    def _make_room_for_reduction(self, node: Node) -> bool:
        """The same for a reduction, whose operands may become members with columns. Arithmetic on
        (64, 100) numbers, with 64 x 100 rows, gets the 64 rows of a sum over the 100."""
        operand = node.src[0]
        axes = node.arg.axes
        rows = squeezed(node.shape)
        if rows == self.rows:
            if _passes_over_rows_pay(node):
                self.lowered.shape = self.shape.with_columns(operand.shape, axes)
            return True
        if not _passes_over_rows_pay(node) or not self._is_arithmetic_on(squeezed(operand.shape)):
            return False
        columns = {squeezed(operand.shape): columns_of(operand.shape, axes), rows: frozenset[int]()}
        # The plan splits logical axes by number; with other rows, the numbers mean other axes.
        self._lower_anew(replace(self.shape, rows=rows, columns=columns), {})
        return True

    def _is_arithmetic_on(self, shape: Shape) -> bool:
        """Whether all members have `shape`, without axes of size 1, and none has a reduction."""
        if any(squeezed(member.shape) != shape for member in self.members):
            return False
        nodes = toposort(store.value for store in self.stores.values())
        return all(node.op is not Op.LOOP_REDUCE for node in nodes)

    def _adopt_rows_of(self, node: Node) -> bool:
        """Give this kernel the rows of `node`, if each of its own serves several of these; True if
        it has them already.

        The kernel of the row maxima of ``q @ k.T``, with 64 rows, becomes that of
        ``softmax(q @ k.T) @ v`` with 64 x 32 results, 32 of which share each maximum.
        """
        node_shape = squeezed(node.shape)
        if self.shape.shared or node_shape == self.rows:
            return node_shape == self.rows or node_shape in self.shape.shared
        finer = KernelGroup(node, self.values)
        indices = {
            tuple(part for part in index if part is not ix.ZERO)
            for member in self.members
            for index in finer.reads.get(member, ())
        }
        if not indices or not self._share_rows(indices, finer):
            return False
        shape = replace(finer.shape, shared={self.rows: Loops(indices.pop(), ())})
        self.contraction = None
        # Rows have the first numbers. What the plan says of later ones is about other axes.
        finer_plan = finer.lowered.axes.plan
        self._lower_anew(shape, {row: finer_plan[row] for row in _split_rows(finer)})
        return True

    def _share_rows(self, indices: Set[Index], finer: "KernelGroup") -> bool:
        """Whether `indices`, at which `finer` reads members, are all rows of this kernel, along
        some of the row axes of `finer`. Rows that are split already might be split again."""
        member_shapes = {squeezed(member.shape) for member in self.members}
        if _split_rows(self) or member_shapes != {self.rows}:
            return False
        axes = {axis for index in indices for part in index for axis in ix.terms_of(part)[0]}
        return axes < set(finer.row_axes) and points(axes) == prod(self.rows)

    def _keeps_one_contraction(self, node: Node, same_products: bool) -> bool:
        """Whether the kernel is still for one product of matrices, or none, with `node` in it.

        Another one may join only if it shares reductions with the members before, as sums do that
        compute the same products again.
        """
        store = self.stores[node]
        added = contraction([store.value], store.axes)
        is_another = added is not None and added is not self.contraction
        if is_another and not (same_products and self._shares_reduction(node)):
            return False
        self.contraction = self.contraction or added
        return True

    def _shares_reduction(self, node: Node) -> bool:
        """Whether `node` and another member need one and the same loop of a reduction."""
        others = [self.stores[member].value for member in self.members if member is not node]
        shared = set(toposort([self.stores[node].value])).intersection(toposort(others))
        return any(inner.op is Op.LOOP_REDUCE for inner in shared)

    # Lowering.

    def _lower_anew(self, shape: KernelShape, plan: AxisPlan) -> bool:
        """Lower every member, as often as another axis has to be split. False if a member is needed
        at an index at which the kernel does not compute it: `self.lowered` is of no use then, until
        the next call."""
        while True:
            self.lowered = LoweredMembers(self.values, shape, plan, self.block, self.accumulated)
            obstacle = self.lowered.lower(self.members)
            if not isinstance(obstacle, AxisSplit):
                return obstacle is None
            plan = self.lowered.axes.split(obstacle)

    def _lower_last(self) -> bool:
        """Lower the last member, and every other one anew if an axis has to be split for it. False
        where `_lower_anew` is."""
        obstacle = self.lowered.lower(self.members[-1:])
        if isinstance(obstacle, AxisSplit):
            return self._lower_anew(self.shape, self.lowered.axes.split(obstacle))
        return obstacle is None

    # Running in blocks of rows.

    @cached_property
    def block_candidates(self) -> list[RowLoop]:
        """The loops that blocks may be numbered along: each row; after them the axis, if it is one
        alone, that a kernel of one sum adds up along, as memory can hold the sum so far. To be
        asked when all members are known."""
        rows = [
            RowLoop(index, size)
            for index, size in zip(self.lowered.row_index, self.rows, strict=True)
        ]
        last = self.members[-1]
        parts = None
        if all(member.op is Op.REDUCE for member in self.members[:-1]):
            parts = self._sum_and_rest(last)
        if parts is None:
            return rows
        axes = bound_axes(self.lowered.value(parts.total, self.lowered.index_of[last]))
        if len(axes) == 1:
            rows.append(RowLoop(axes[0], axes[0].arg.size))
        return rows

    def loops_along(self, value: Node) -> list[RowLoop | None]:
        """Where the kernel makes or reads each axis of `value`: the index, and the axis's size.
        None for an axis at which it reads by several indices."""
        indices = self.reads.get(value) or {self.lowered.index_of[value]}
        loops: list[RowLoop | None] = []
        for axis, size in enumerate(value.shape):
            positions = {index[axis] for index in indices}
            loops.append(RowLoop(positions.pop(), size) if len(positions) == 1 else None)
        return loops

    def run_in_blocks(self, block: Block) -> None:
        """Number the blocks by the first row axes; a sum over them is added up in memory, one
        block after the other, to what else the member adds."""
        last = block.rows[-1]
        size = self.block_candidates[last].size
        self.block = block
        if last == len(self.rows):
            self._accumulate(self.members[-1])
        self._lower_anew(self.shape, {last: (size // block.size, block.size)})

    def _accumulate(self, member: Node) -> None:
        """Leave the sum of `member` to the blocks, and what it is added to to a kernel before."""
        parts = self._sum_and_rest(member)
        if parts is None:
            return
        self.first = member
        self.members = [member]
        self.accumulated = parts.total
        start = parts.rest or full(member.shape, 0, member.dtype)
        operands = {operand: self.values[operand] for operand in self.operands}
        self.initial = KernelGroup(Node(Op.CONTIGUOUS, (start,)), operands)

    def _sum_and_rest(self, node: Node) -> _SumAndRest | None:
        """A member as a sum over an axis, and what is added to it: for ``x @ w + b`` the product
        of matrices and b. None for anything else."""
        if node in self.values and node not in self.members:
            return None
        if node.op is Op.REDUCE and node.arg.monoid is ADD:
            return _SumAndRest(node, None)
        if node.op in BIJECTIVE:
            parts = self._sum_and_rest(node.src[0])
            return parts and _SumAndRest(
                Node(node.op, (parts.total,), node.arg),
                parts.rest and Node(node.op, (parts.rest,), node.arg),
            )
        if node.op is Op.ADD:
            left, right = node.src
            for addend, other in ((left, right), (right, left)):
                if parts := self._sum_and_rest(addend):
                    rest = Node(Op.ADD, (parts.rest, other)) if parts.rest else other
                    return _SumAndRest(parts.total, rest)
        return None


def _split_rows(group: KernelGroup) -> Set[int]:
    """The rows of a kernel whose axes are in pieces, by position."""
    return group.lowered.axes.plan.keys() & range(len(group.rows))


def _passes_over_rows_pay(reduction: Node) -> bool:
    """Whether a kernel may pass over the operand of `reduction` a row at a time, several times.

    The elements of a row must lie together in memory, so that the second pass finds them in the
    cache. See `MIN_ROWS`.
    """
    shape = reduction.src[0].shape
    long_axes = [axis for axis, size in enumerate(shape) if size != 1]
    innermost = max(long_axes, default=-1)
    if innermost not in reduction.arg.axes:
        return False
    return prod(reduction.shape) >= MIN_ROWS or prod(shape) <= SMALL_KERNEL
