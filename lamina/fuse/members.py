"""The members of one kernel as scalars over its loops: where each is computed, what it reads and
where it is stored.

A kernel has *row axes*, which its members share. For a softmax over the rows of an array of
(64, 100) there is one, of 64. A member of *row shape*, as the maximum of a row, has an element for
each row; a member of *full shape*, as the exponentials, has a whole row of elements, and a loop
over the other axes, its *columns*, runs over them. Axes of size 1 count nowhere.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from lamina.core.dtypes import int64
from lamina.core.shape import Shape, squeezed
from lamina.fuse.axes import AxisPlan, Index, LoopAxes, Loops
from lamina.fuse.lower import InMemory, Lowering, Obstacle, Source
from lamina.graph import index as ix
from lamina.ir.build import cast
from lamina.ir.kernel import Store, bound_axes, free_axes
from lamina.ir.monoids import ADD
from lamina.ir.node import Node, toposort
from lamina.ir.ops import Op


@dataclass(frozen=True)
class Block:
    """The rows that kernels in row blocks run at once; see `lamina.fuse.row_blocks`.

    Blocks are numbered along the row axes `rows` of a kernel, by position. The last of them, which
    may be the axis of a reduction after all rows, is in pieces of `size`. `values` are those of
    which memory holds one block only, each with the axes of it that the rows are.

    Blocks of 16 rows of (8, 1024, 64), along the first two axes: rows (0, 1), size 16. A value of
    (8, 1024, 100) with the axes (0, 1) then takes 100 x 16 elements of a block.
    """

    rows: tuple[int, ...]
    size: int
    values: Mapping[Node, tuple[int, ...]]

    def shape(self, node: Node) -> Shape | None:
        """How a block holds `node`: the axes that are no rows, then the rows of the block side by
        side, along which vectors run. None for what memory holds whole."""
        if node not in self.values:
            return None
        rows = self.values[node]
        others = [size for axis, size in enumerate(node.shape) if axis not in rows]
        return (*others, self.size)


NO_BLOCK = Block((), 0, {})


@dataclass(frozen=True)
class KernelShape:
    """The row axes of a kernel, and which shapes its members may have, without axes of size 1.

    `columns` has the shapes that members may have, and which of their axes are columns: for a
    softmax over the rows of (64, 100), ``{(64,): {}, (64, 100): {1}}`` with the `rows` (64,).
    `shared` has the shapes of members of which several rows share an element, and where a row finds
    it: the maximum of a row of scores, where the kernel's rows are the elements of a row.
    """

    rows: Shape
    columns: Mapping[Shape, frozenset[int]]
    shared: Mapping[Shape, Loops] = field(default_factory=dict)

    @classmethod
    def starting_with(cls, node: Node) -> "KernelShape":
        """The rows of `node` by itself: all of its axes. Those of a scatter are the axes of its
        updates but for that of their places, along which updates run in order."""
        if node.op is not Op.SCATTER:
            rows = squeezed(node.shape)
            return cls(rows, {rows: frozenset()})
        updates = node.src[-1].shape
        serial = node.arg.axis
        rows = squeezed(updates[:serial] + updates[serial + 1 :])
        return cls(rows, {squeezed(updates): columns_of(updates, (serial,))})

    def with_columns(self, shape: Shape, axes: Sequence[int]) -> "KernelShape":
        """The same rows; members may have the squeezed `shape` too, with columns along `axes`. If
        they may already, its columns stay: members so far are computed along these."""
        columns = {squeezed(shape): columns_of(shape, axes)}
        return replace(self, columns=columns | dict(self.columns))


def columns_of(shape: Shape, axes: Sequence[int]) -> frozenset[int]:
    """Which axes of the squeezed `shape` are among `axes` of `shape` itself: {1} for the axes
    (1, 2) of (64, 1, 100)."""
    long_axes = [axis for axis, size in enumerate(shape) if size != 1]
    return frozenset(position for position, axis in enumerate(long_axes) if axis in axes)


@dataclass(frozen=True)
class ReadArray:
    """An array that a kernel reads: number of the parameter, and the first node that reads it."""

    parameter: int
    node: Node


def array_of(node: Node) -> object:
    """What tells apart the arrays that kernels use; views of one storage are one array."""
    return (node.arg.storage, node.dtype) if node.op is Op.BUFFER else node


class LoweredMembers:
    """The members of one kernel, lowered one after the other with axes split as `plan` says.

    `values` are all values of the program, with the shapes that they have in memory. `block` says
    which rows run at once. `accumulated`, if any, is the sum that is added up in memory, block by
    block, in place of the only member.
    """

    def __init__(
        self,
        values: Mapping[Node, Shape],
        shape: KernelShape,
        plan: AxisPlan,
        block: Block = NO_BLOCK,
        accumulated: Node | None = None,
    ) -> None:
        self.values = values
        self.shape = shape
        self.block = block
        self.accumulated = accumulated
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
        """The loops whose indices together number a block: every loop of the first rows, and the
        outer loop of the last, which is split into (blocks, size).

        If a sum is accumulated, the last is the axis that it reduces, which is opened right after
        the rows: that outer loop is hoisted out of the reduction.
        """
        if not self.block.rows:
            return ()
        *whole_positions, split_position = self.block.rows
        axes = [axis for row in whole_positions for axis in ix.terms_of(self.row_index[row])[0]]
        if self.accumulated:
            # Rows are opened first, so a position among them, or right after them, is also the
            # number of a logical axis, by which the plan is indexed.
            split_axis = split_position
            block_count = self.axes.plan[split_axis][0]
            axes.append(self.axes.hoist_next(block_count))
        else:
            coefficients, _ = ix.terms_of(self.row_index[split_position])
            # The index is size * outer + inner: the outer piece is multiplied by the block's size.
            size = self.block.size
            axes.append(next(axis for axis, factor in coefficients.items() if factor == size))
        return tuple(axes)

    def _source(self, node: Node, index: Index) -> InMemory | Source:
        """Where ``node[index]`` comes from.

        Inputs and values of other kernels are in memory. What is no value is computed at any index.
        A member is computed where it is stored, and at other columns of the same row: the maximum
        of a row takes all exponentials of that row. At another row it would be computed twice,
        which is an obstacle.
        """
        if node.op is Op.BUFFER or (node in self.values and node not in self.index_of):
            self.reads.setdefault(node, set()).add(index)
            array = array_of(node)
            read = self.parameters.get(array)
            if read is None:
                read = self.parameters[array] = ReadArray(len(self.parameters), node)
            return InMemory(read.parameter, self._memory_index(node, index))
        member_index = self.index_of.get(node)
        if member_index is None or member_index == index or self._is_at_own_row(node, index):
            return Source.COMPUTED
        return Source.OTHER_INDEX

    def _is_at_own_row(self, node: Node, index: Index) -> bool:
        """Whether `index`, but for the columns of the member `node` and its axes of size 1, is that
        of the kernel's row: with the rows (i,), (i, k) is for a member of (64, 100), and (k, i) is
        not."""
        positions = [part for part, size in zip(index, node.shape, strict=True) if size != 1]
        columns = self.shape.columns.get(squeezed(node.shape))
        if columns is None:
            return False  # a member of which several rows share an element
        row = tuple(part for axis, part in enumerate(positions) if axis not in columns)
        return row == self.row_index

    def _memory_index(self, node: Node, index: Index) -> Node:
        """Where ``node[index]`` lies in its array in memory, or in what a block holds of it: there
        only the last of the rows counts, as all of a block are at one index of the others."""
        shape = self.block.shape(node)
        if shape is None:
            return ix.row_major(index, self.values.get(node, node.shape))
        rows = self.block.values[node]
        others = [part for axis, part in enumerate(index) if axis not in rows]
        # In blocks of 16 rows, row 16 * block + i of the array is row i of the block.
        minus_first_row = ix.scale(self.block_axes[-1], -self.block.size)
        row_in_block = ix.add(index[rows[-1]], minus_first_row)
        return ix.row_major((*others, row_in_block), shape)

    def _member_loops(self, shape: Shape) -> Loops:
        """The index at which a member of `shape` is computed, and all loops around it: the rows,
        then those over its columns, which are the loops of reductions over a row, so that both can
        be one pass. For (64, 1, 100) with 64 rows: (i, 0, j), and the loops i and j."""
        long_shape = squeezed(shape)
        loops = self.shape.shared.get(long_shape)
        if loops is None:
            columns = self.shape.columns[long_shape]
            loops = self.axes.reduce_loops(self.row_index, long_shape, columns)
        parts = iter(loops.index)
        index = [ix.ZERO if size == 1 else next(parts) for size in shape]
        return Loops(tuple(index), (*self.row_axes, *loops.axes))

    def _stored(self, node: Node) -> Store:
        """The store of a member, or of the sums that are added up in its place."""
        computed = self.accumulated or node
        loops = self._member_loops(node.shape)
        self.index_of[node] = loops.index
        self.index_of[computed] = loops.index  # computed here, even if it is a value of its own
        value = self._lowering.value(computed, loops.index)
        axes = self._scan_axes_last(value, loops.axes)
        return Store(
            parameter=0,
            index=self._memory_index(node, loops.index),
            value=value,
            axes=axes,
            condition=self._first_of_sharing_rows(loops.index, axes),
            monoid=ADD if self.accumulated else None,
        )

    def _scan_axes_last(self, value: Node, axes: tuple[Node, ...]) -> tuple[Node, ...]:
        """`axes`, but that those along which `value` has a scan come after the others. From then on
        these others alone are rows, as a scan runs in order. All scans of a value run along the
        same axes: an epilogue takes in one SCAN, which may have several parts."""
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
        used = set[Node]().union(*map(free_axes, index))
        unused = [axis for axis in axes if axis in self.row_axes and axis not in used]
        return ix.both(*(ix.inside(axis, 1) for axis in unused))

    def _scattered(self, node: Node) -> Store:
        """The updates of a SCATTER, combined with what lies at their places; those with a place
        out of range are left out."""
        _, places, updates = node.src
        axis, monoid = node.arg
        loops = self._member_loops(updates.shape)
        index = loops.index
        self.index_of[node] = index
        place = cast(self._lowering.value(places, index), int64)
        memory_index = ix.row_major((*index[:axis], place, *index[axis + 1 :]), node.shape)
        is_inside = ix.inside(place, node.shape[axis])
        value = self._lowering.value(updates, index, is_inside)
        return Store(
            parameter=0,
            index=memory_index,
            value=value,
            axes=loops.axes,
            condition=is_inside,
            monoid=monoid,
        )
