"""The members of one kernel as scalars over its loops: where each is computed, what it reads and
where it is stored.

A kernel has *row axes*, which its members share. For a softmax over the rows of an array of
(64, 100) there is one, of 64. A member of *row shape*, such as the maximum of each row, has one
element for each row. A member of *full shape*, such as the exponentials, has many elements for each
row: its other axes are *columns*, and loops run over them. Axes of size 1 do not count.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from lamina.core.dtypes import int64
from lamina.core.shape import Shape, squeezed
from lamina.fuse.axes import AxisPlan, Index, LoopAxes, Loops
from lamina.fuse.lower import InMemory, Lowering, Obstacle, Source
from lamina.graph import index as ix
from lamina.ir.build import cast
from lamina.ir.kernel import Store, bound_axes, free_axes_of, loads_beneath
from lamina.ir.monoids import ADD
from lamina.ir.node import Node, toposort
from lamina.ir.ops import Op


@dataclass(frozen=True)
class RowBlock:
    """The rows that kernels in row blocks run at once; see `lamina.fuse.row_blocks`.

    `rows` are positions in `KernelGroup.block_candidates` of one kernel: a block is at one index of
    each of these loops but the last, along which it has `size` indices. `values` are the values of
    which memory holds one block only, with the axes of each that the loops run along.

    For blocks of 16 rows of a kernel with the rows (8, 1024, 64), along the first two: rows (0, 1),
    size 16. Blocks are numbered by 8 x 64 indices. Of a value of (8, 1024, 100) with the axes
    (0, 1), a block holds 100 x 16 elements.
    """

    rows: tuple[int, ...]
    size: int
    values: Mapping[Node, tuple[int, ...]]

    def shape(self, node: Node) -> Shape | None:
        """The shape of the part of `node` in a block: (100, 16) in the example. The rows of a block
        come last, so that they are neighbours in memory: vectors run along them. None if memory
        holds `node` as a whole."""
        if node not in self.values:
            return None
        rows = self.values[node]
        others = [size for axis, size in enumerate(node.shape) if axis not in rows]
        return (*others, self.size)


NO_ROW_BLOCK = RowBlock((), 0, {})


@dataclass(frozen=True)
class KernelShape:
    """The row axes of a kernel, and which shapes its members may have, without axes of size 1.

    rows: the sizes of the row axes; (64,) for a softmax over the rows of (64, 100)
    columns: the shapes that members may have, and which of their axes are columns:
        ``{(64,): {}, (64, 100): {1}}`` for that softmax
    shared: the shapes of members of which several rows share an element, and the index of that
        element. In ``softmax(q @ k.T) @ v`` with the rows (i, j) of (64, 32), the 32 rows of one i
        share the maximum of the scores: ``{(64,): the index (i,)}``
    """

    rows: Shape
    columns: Mapping[Shape, frozenset[int]]
    shared: Mapping[Shape, Loops] = field(default_factory=dict)

    @classmethod
    def starting_with(cls, node: Node) -> "KernelShape":
        """The shape of a kernel with the member `node` alone: all of its axes are rows.

        A scatter loops over its updates. Several of them may go to one place, so the axis along
        which they are placed is no row, but a column, which runs in order. For updates of (90, 64)
        that are placed along axis 0: the rows (64,), and ``{(90, 64): {0}}``.
        """
        if node.op is not Op.SCATTER:
            rows = squeezed(node.shape)
            return cls(rows, {rows: frozenset()})
        updates = node.src[-1].shape
        serial = node.arg.axis
        rows = squeezed(updates[:serial] + updates[serial + 1 :])
        return cls(rows, {squeezed(updates): columns_of(updates, (serial,))})

    def with_columns(self, shape: Shape, axes: Sequence[int]) -> "KernelShape":
        """The same rows; members may have `shape` too, without axes of size 1, with columns along
        `axes`. If they may already, its columns stay: members so far are computed along these."""
        added = {squeezed(shape): columns_of(shape, axes)}
        return replace(self, columns=added | dict(self.columns))  # the right side of | wins


def columns_of(shape: Shape, axes: Sequence[int]) -> frozenset[int]:
    """Which axes of the squeezed `shape` are among `axes` of `shape` itself: {1} for the axes
    (1, 2) of (64, 1, 100)."""
    long_axes = [axis for axis, size in enumerate(shape) if size != 1]
    return frozenset(position for position, axis in enumerate(long_axes) if axis in axes)


@dataclass(frozen=True)
class ReadArray:
    """An array that a kernel reads: the number of its parameter, and the node that stands for the
    array. Of several BUFFERs of one storage it is the first that the kernel read."""

    parameter: int
    node: Node


def array_of(node: Node) -> object:
    """A key that is equal for nodes that are one array. BUFFERs of one storage are one array,
    whatever their shapes; but one with other elements, as int32 in place of float32, is another."""
    return (node.arg.storage, node.dtype) if node.op is Op.BUFFER else node


@dataclass(frozen=True)
class SumInBlocks:
    """The sum `total` of a kernel with one member, which is that sum plus a rest. Blocks are parts
    of the axis that it reduces. Each adds its part to memory, where the rest is, or 0; or, if it is
    not `is_added`, the only block stores the whole sum, which has no rest."""

    total: Node
    is_added: bool


class LoweredMembers:
    """The members of one kernel, lowered one after the other with axes split as `plan` says.

    `values` are all values of the program, with the shapes that they have in memory. `block` says
    which rows run at once. With `summed`, only that sum of the one member is lowered.
    """

    def __init__(
        self,
        values: Mapping[Node, Shape],
        shape: KernelShape,
        plan: AxisPlan,
        block: RowBlock = NO_ROW_BLOCK,
        summed: SumInBlocks | None = None,
    ) -> None:
        self.values = values
        self.shape = shape
        self.block = block
        self.summed = summed
        self.parameters: dict[object, ReadArray] = {}  # by `array_of`, in order
        self.index_of: dict[Node, Index] = {}  # where each member is computed
        self.reads: dict[Node, set[Index]] = {}  # where each array in memory is read
        self.stores: dict[Node, Store] = {}  # of each member; the parameter is not known yet
        self.has_scan = False
        self.axes = LoopAxes(plan)
        self._lowering = Lowering(self._source, self.axes)
        rows = self.axes.open(shape.rows)
        self.row_index = rows.index
        self.block_axes = self._block_axes()
        others = [axis for axis in rows.axes if axis not in self.block_axes]
        self.row_axes: tuple[Node, ...] = (*self.block_axes, *others)
        self._all_rows = self.row_axes  # with the axes of a scan, which are no rows

    def lower(self, members: Iterable[Node]) -> Obstacle | None:
        """Lower `members`, up to an obstacle (see `lamina.fuse.lower`), after which the whole
        object is of no use. None if there is none."""
        for member in members:
            store = self._scattered if member.op is Op.SCATTER else self._stored
            self.stores[member] = store(member)
            if self._lowering.obstacle:
                break
        return self._lowering.obstacle

    def value(self, node: Node, index: Index) -> Node:
        """The scalar ``node[index]``, in the kernel's loops."""
        return self._lowering.value(node, index)

    def _block_axes(self) -> tuple[Node, ...]:
        """The loops whose indices together number a block: every loop of the rows `block.rows` but
        the last, and the outer loop of the last, which is split into (blocks, size).

        For the rows (8, 1024, 64) and blocks of 16 along the first two: the loop over 8, and the
        loop over the 64 blocks of 16 rows.
        """
        if not self.block.rows:
            return ()
        *whole, last = self.block.rows
        axes = [axis for row in whole for axis in ix.terms_of(self.row_index[row])[0]]
        axes.append(self._outer_loop_of_sum(last) if self.summed else self._outer_loop(last))
        return tuple(axes)

    def _outer_loop(self, row: int) -> Node:
        """The outer loop of a row that is split. Its index is ``size * outer + inner``, so that is
        the loop with the block's size as its factor."""
        factor_of, _ = ix.terms_of(self.row_index[row])
        return next(axis for axis, factor in factor_of.items() if factor == self.block.size)

    def _outer_loop_of_sum(self, position: int) -> Node:
        """The outer loop of the axis that the sum in blocks reduces. It is taken out of the
        reduction, which then runs over the rows of one block.

        That axis is opened right after the rows: its `position` after them is also the number of a
        logical axis, by which the plan has it.
        """
        block_count, _ = self.axes.plan[position]
        return self.axes.hoist_next(block_count)

    def _source(self, node: Node, index: Index) -> InMemory | Source:
        """Where ``node[index]`` comes from.

        - Inputs, and values of other kernels, are in memory.
        - A node that is no value is computed where it is used, at any index.
        - A member is computed at the index at which it is stored, and at other columns of the same
          row: the sum of a row takes all exponentials of that row.
        - At another row the kernel does not have a member: an obstacle.
        """
        is_member = node in self.index_of
        if node.op is Op.BUFFER or (node in self.values and not is_member):
            return self._in_memory(node, index)
        if not is_member or index == self.index_of[node] or self._is_at_own_row(node, index):
            return Source.COMPUTED
        return Source.OTHER_INDEX

    def _in_memory(self, node: Node, index: Index) -> InMemory:
        """The element ``node[index]`` of a parameter, which is made if this is the first read."""
        self.reads.setdefault(node, set()).add(index)
        array = array_of(node)
        if array not in self.parameters:
            self.parameters[array] = ReadArray(len(self.parameters), node)
        return InMemory(self.parameters[array].parameter, self._memory_index(node, index))

    def _is_at_own_row(self, node: Node, index: Index) -> bool:
        """Whether `index` of the member `node` is in the row that the kernel computes, whatever
        the columns are. With the rows (i,), a member of (64, 100) is at its own row at (i, k), for
        any k, and not at (k, i)."""
        columns = self.shape.columns.get(squeezed(node.shape))
        if columns is None:
            return False  # several rows share an element of this member: it has no row of its own
        long_parts = [part for part, size in zip(index, node.shape, strict=True) if size != 1]
        row = tuple(part for axis, part in enumerate(long_parts) if axis not in columns)
        return row == self.row_index

    def _memory_index(self, node: Node, index: Index) -> Node:
        """Where ``node[index]`` lies in memory, in elements from the start of its array, or of the
        block of it.

        Take a value of (8, 1024, 100) in blocks of 16 along the axes (0, 1), at the index
        (h, 16 * b + i, k). A block, of shape (100, 16), has the element at 16 * k + i: all of the
        block is at one h, and row 16 * b + i of the array is row i of block b.
        """
        shape = self.block.shape(node)
        if shape is None:
            return ix.row_major(index, self.values.get(node, node.shape))
        rows = self.block.values[node]
        others = [part for axis, part in enumerate(index) if axis not in rows]
        first_row_of_block = ix.scale(self.block_axes[-1], self.block.size)
        row_in_block = ix.add(index[rows[-1]], ix.scale(first_row_of_block, -1))
        return ix.row_major((*others, row_in_block), shape)

    def _member_loops(self, shape: Shape) -> Loops:
        """The index at which a member of `shape` is computed, and all loops around it: the rows,
        then the loops over its columns. For (64, 1, 100) with 64 rows: (i, 0, j), and the loops i
        and j.

        The loops over columns are those of reductions over a row, so that a member and a reduction
        can be computed in one pass over the row.
        """
        long_shape = squeezed(shape)
        loops = self.shape.shared.get(long_shape)
        if loops is None:
            columns = self.shape.columns[long_shape]
            loops = self.axes.reduce_loops(self.row_index, long_shape, columns)
        parts = iter(loops.index)
        index = [ix.ZERO if size == 1 else next(parts) for size in shape]
        return Loops(tuple(index), (*self._all_rows, *loops.axes))

    def _stored(self, node: Node) -> Store:
        """The store of the member `node`, or of each block's part of the sum in it."""
        computed = self.summed.total if self.summed else node
        loops = self._member_loops(node.shape)
        self.index_of[node] = loops.index
        # The sum may be a value by itself. As a member it is computed here, and not read.
        self.index_of[computed] = loops.index
        value = self._lowering.value(computed, loops.index)
        axes = self._scan_axes_last(value, loops.axes)
        return Store(
            parameter=0,
            index=self._memory_index(node, loops.index),
            value=value,
            axes=axes,
            condition=self._first_of_sharing_rows(loops.index, axes),
            monoid=ADD if self.summed and self.summed.is_added else None,
        )

    def _scan_axes_last(self, value: Node, axes: tuple[Node, ...]) -> tuple[Node, ...]:
        """The loops `axes` of the store of `value`, with the axes of a scan in it at the end.

        A scan runs in order, so its axes are no rows from here on: for a running sum along axis 0
        of (64, 100), stored over (i, j), the row is j, and the store runs over (j, i). All scans of
        a value run along the same axes: an epilogue takes in one SCAN, which may have several
        parts.
        """
        scans = [node for node in toposort([value]) if node.op is Op.LOOP_SCAN]
        if not scans:
            return axes
        serial = bound_axes(scans[0])
        self.has_scan = True
        self.row_axes = tuple(axis for axis in axes if axis not in serial)
        return (*self.row_axes, *sorted(serial, key=axes.index))

    def _first_of_sharing_rows(self, index: Index, axes: Iterable[Node]) -> Node:
        """The condition that a row is the first of those that share the element at `index`, and
        so the one that stores it. TRUE in a kernel where no rows share any.

        Of the rows (i, j), the maximum at the index (i,) is stored where j < 1, which is j = 0: the
        first step along each row axis that the index does not depend on. `axes` are the loops
        around the store, in the order in which the condition is to name them.
        """
        if not self.shape.shared:
            return ix.TRUE
        used = free_axes_of(index)
        unused = [axis for axis in axes if axis in self.row_axes and axis not in used]
        return ix.both(*(ix.inside(axis, 1) for axis in unused))

    def _scattered(self, node: Node) -> Store:
        """The store of the updates of a SCATTER. Its monoid combines each update with the element
        at its place, or replaces that element if there is no monoid. An update with a place out of
        range is left out.

        For updates of (90, 64) along axis 0 of a result of (1000, 64): update (u, j) goes to the
        element 64 * place[u, j] + j, if 0 <= place[u, j] < 1000.
        """
        _, places, updates = node.src
        axis, monoid = node.arg
        loops = self._member_loops(updates.shape)
        index = loops.index
        self.index_of[node] = index
        place = ix.of_value(cast(self._lowering.value(places, index), int64))
        memory_index = ix.row_major((*index[:axis], place, *index[axis + 1 :]), node.shape)
        is_inside = ix.inside(place, node.shape[axis])
        # Data may leave out most updates, of which nothing is read then. Indices leave out few, and
        # what is read without a condition is read once for all loops that do not move it.
        is_by_data = bool(loads_beneath([is_inside]))
        value = self._lowering.value(updates, index, is_inside if is_by_data else ix.TRUE)
        return Store(
            parameter=0,
            index=memory_index,
            value=value,
            axes=loops.axes,
            condition=is_inside,
            monoid=monoid,
        )
