"""Placement, second half: values join into kernels, greedily and in topological order.

A kernel has row axes that its members share. A member is of row shape (a reduction over the rest
of a row, or arithmetic on such) or of full shape (arithmetic on whole rows). A value joins the
kernel of one of its operands when everything it needs from that kernel is at its own row, so
that the kernel's other members are at hand, and when no other kernel stands between the two.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import NamedTuple

from lamina.dtypes import int64
from lamina.fuse import place
from lamina.fuse.lower import AxisPlan, Index, Lowering, NotFusableError, SplitAxisError, flat_index
from lamina.ir.build import cast
from lamina.ir.kernel import Store, contraction
from lamina.ir.node import Node, toposort
from lamina.ir.ops import Group, Op
from lamina.shape import Shape, prod, squeezed
from lamina.simplify import index as ix

MIN_ROWS = 16  # fewer rows than this leave threads idle, unless
SMALL = 1 << 16  # the whole kernel touches no more elements than this
ALONE = frozenset({Op.SCAN, Op.SCATTER, Op.ARGSORT})


class Block(NamedTuple):
    """The rows that a chain of kernels runs at once; see `lamina.fuse.chain`."""

    rows: tuple[int, ...]  # row axes that blocks are numbered along; the last is in pieces of
    size: int
    inside: Mapping[Node, tuple[int, ...]]  # values kept for a block: which of their axes these are


def array_of(node: Node) -> object:
    """What tells apart the arrays that kernels use; views of one storage are one array."""
    return (node.arg.storage, node.dtype) if node.op is Op.BUFFER else node


class KernelGroup:
    """The values of one kernel, and how each is computed at the kernel's axes. It begins with
    `first`; a scan or scatter is serial along its axis."""

    def __init__(self, first: Node, values: frozenset[Node], number: int = 0) -> None:
        serial: tuple[int, ...] = ()
        if first.op is Op.SCAN or first.op is Op.SCATTER:
            serial = first.arg.axes if first.op is Op.SCAN else (first.arg.axis,)
        shape = first.src[-1].shape if serial else first.shape
        self.number = number
        self.rows = squeezed(tuple(size for axis, size in enumerate(shape) if axis not in serial))
        # Squeezed shapes of members, and which of their axes are rows.
        self.layouts = {squeezed(shape): _kept_axes(shape, serial)}
        self.values = values
        self.members: list[Node] = []
        self.reads: set[object] = set()  # values of other kernels, and the storage of inputs
        self.written: frozenset[Node] = frozenset()  # the operations of all members
        # What must run before: kernels are a graph like nodes, which `toposort` puts in order.
        self.src: tuple[KernelGroup, ...] = ()
        self.contracts = False  # begins with a reduction whose operands are reused across rows
        self.plan: AxisPlan = {}
        self.block: Block | None = None
        self._begin()
        if first.op is Op.REDUCE:
            self.admit_reduction(first)
        if first.op is Op.ARGSORT:  # a kernel of its own kind
            self.members.append(first)
        else:
            self.add(first)
            self.contracts = contraction([self.stores[first].value], self.row_axes) is not None

    def _begin(self) -> None:
        self.parameters: dict[object, tuple[int, Node]] = {}
        self.index_of: dict[Node, Index] = {}
        self.read_at: dict[Node, set[Index]] = {}
        self.stores: dict[Node, Store] = {}
        self.lowering = Lowering(self._parameter, self._place, self.plan)
        self.row_index, axes = self.lowering.new_axes(self.rows)
        self.blocks = self._block_axes()
        self.row_axes = (*self.blocks, *(axis for axis in axes if axis not in self.blocks))
        self._loops = {self.rows: (self.row_index, self.row_axes)}

    def run_in_blocks(self, block: Block) -> None:
        """Number the blocks by the first row axes."""
        self.block = block
        self.plan = {block.rows[-1]: (self.rows[block.rows[-1]] // block.size, block.size)}
        self._begin()
        self._lower_all(self.members)

    def _block_axes(self) -> Index:
        if self.block is None:
            return ()
        *whole, split = (ix.terms_of(self.row_index[row])[0] for row in self.block.rows)
        number = next(axis for axis, stride in split.items() if stride == self.block.size)
        return (*(axis for terms in whole for axis in terms), number)

    def _place(self, node: Node, index: Index) -> Node:
        """Where ``node[index]`` lies in memory; in that of a block, its rows lie side by side."""
        if self.block is None or node not in self.block.inside:
            return flat_index(node.shape, index)
        at = self.block.inside[node]
        inner = ix.add(index[at[-1]], ix.scale(self.blocks[-1], -self.block.size))
        rest = [axis for axis in range(len(index)) if axis not in at]
        shape = (*(node.shape[axis] for axis in rest), self.block.size)
        return flat_index(shape, (*(index[axis] for axis in rest), inner))

    def _parameter(self, node: Node, index: Index) -> int | None:
        if node.op is Op.BUFFER or (node in self.values and node not in self.index_of):
            self.read_at.setdefault(node, set()).add(index)
            return self.parameters.setdefault(array_of(node), (len(self.parameters), node))[0]
        if index != self.index_of.get(node, index) and not self._same_row(node, index):
            raise NotFusableError(node)
        return None

    def _same_row(self, node: Node, index: Index) -> bool:
        """May a full member be recomputed at other columns of the same row?"""
        layout = self.layouts.get(squeezed(node.shape))
        if layout is None or squeezed(node.shape) == self.rows:
            return False
        at = [one for one, size in zip(index, node.shape, strict=True) if size != 1]
        return tuple(at[axis] for axis in sorted(layout)) == self.row_index

    def _index(self, shape: Shape) -> tuple[Index, Index]:
        """Where an array of `shape` is computed: its index, and the axes of its loops."""
        full = squeezed(shape)
        if full not in self._loops:
            layout = self.layouts[full]
            sizes = tuple(size for axis, size in enumerate(full) if axis not in layout)
            columns, opened = self.lowering.loops_in(self.row_index, sizes)
            rows, rest = iter(self.row_index), iter(columns)
            index = tuple(next(rows if axis in layout else rest) for axis in range(len(full)))
            self._loops[full] = index, (*self.row_axes, *opened)
        index, axes = self._loops[full]
        rest = iter(index)
        return tuple(ix.ZERO if size == 1 else next(rest) for size in shape), axes

    def _lower(self, node: Node) -> None:
        index, axes = self._index(node.src[-1].shape if node.op is Op.SCATTER else node.shape)
        self.index_of[node] = index
        if node.op is Op.SCATTER:
            self.stores[node] = self._scattered(node, index, axes)
        else:
            value = self.lowering.value(node, index)
            self.stores[node] = Store(0, self._place(node, index), value, axes)

    def _scattered(self, node: Node, index: Index, axes: Index) -> Store:
        """The updates at `index`, combined with what lies at their places."""
        _, places, updates = node.src
        axis, monoid = node.arg
        place = cast(self.lowering.value(places, index), int64)
        flat = flat_index(node.shape, (*index[:axis], place, *index[axis + 1 :]))
        holds = ix.inside(place, node.shape[axis])
        value = self.lowering.value(updates, index, holds)
        return Store(0, flat, value, axes, None if holds is ix.TRUE else holds, monoid)

    def add(self, node: Node) -> None:
        self.members.append(node)
        self._lower_all([node])

    def _lower_all(self, nodes: Sequence[Node]) -> None:
        """Lower `nodes`; starts over with every member as often as an axis must be split."""
        while True:
            try:
                for node in nodes:
                    self._lower(node)
                return
            except SplitAxisError as request:
                self.plan = self.lowering.split(request)
                self._begin()
                nodes = self.members

    def try_add(self, node: Node) -> bool:
        """Add `node` if it fits; otherwise leave the group as it was."""
        saved = self.rows, self.layouts, self.plan
        if not self._admit(node):
            return False
        try:
            self.add(node)
            if self.contracts or contraction([self.stores[node].value], self.row_axes) is None:
                return True
        except NotFusableError:
            pass
        self.members.pop()
        self.rows, self.layouts, self.plan = saved
        self._begin()
        self._lower_all(self.members)
        return False

    def _admit(self, node: Node) -> bool:
        """The cheap conditions, on shapes alone; may turn the group's rows into full members."""
        if node.op in ALONE or self.members[0].op in ALONE:
            return False
        if node.op is Op.REDUCE:
            return not self.contracts and self.admit_reduction(node)
        full = squeezed(node.shape)
        return full == self.rows or (full in self.layouts and not self.contracts)

    def admit_reduction(self, node: Node) -> bool:
        """Does a reduction fit the rows? Its operands may become full members, or the rows its."""
        shape, axes = node.src[0].shape, node.arg.axes
        full, kept = squeezed(shape), _kept_axes(shape, axes)
        # Do rows lie together in memory, so that passing over one twice finds it in the cache?
        together = max((axis for axis, size in enumerate(shape) if size != 1), default=-1) in axes
        repeats = together and (prod(node.shape) >= MIN_ROWS or prod(shape) <= SMALL)
        if squeezed(node.shape) == self.rows:
            if repeats:
                self.layouts = {full: kept} | self.layouts
            return True
        pointwise = all(
            one.op in Group.ELEMENTWISE and squeezed(one.shape) == full for one in self.members
        )
        values = toposort(store.value for store in self.stores.values())
        if not (repeats and pointwise) or any(one.op is Op.FOLD for one in values):
            return False
        self.rows = squeezed(node.shape)
        self.layouts = {full: kept}
        self._begin()
        self._lower_all(self.members)
        return True


def _kept_axes(shape: Shape, axes: Sequence[int]) -> frozenset[int]:
    """The axes of the squeezed `shape` that are not among `axes` of `shape` itself."""
    sizes = [axis for axis, size in enumerate(shape) if size != 1]
    return frozenset(place for place, axis in enumerate(sizes) if axis not in axes)


def group_values(sinks: Sequence[Node]) -> list[KernelGroup]:
    """Kernels for everything that `sinks` need, in an order in which they can run."""
    order = toposort(sinks)
    users = place.users_of(order)
    chosen = place.choose_values(sinks, order, users)
    values = frozenset(chosen)
    homes: dict[Node, KernelGroup] = {}
    groups: list[KernelGroup] = []
    families: dict[object, list[tuple[KernelGroup, set[Node]]]] = {}
    by_number = attrgetter("number")
    for node, region in chosen.items():
        written, operands = place.written(region), {one for inner in region for one in inner.src}
        arrays = {one for one in operands if one in values or one.op is Op.BUFFER}
        needed = {homes[one] for one in arrays & values}
        # Values of one extent are siblings if they read one array or serve one user.
        extent = (node.src[0].shape, node.arg.axes) if node.op is Op.REDUCE else node.shape
        family, kin = families.setdefault(extent, []), arrays.union(users[node])
        siblings = {group for group, others in family if kin & others}
        candidates = needed | siblings
        if len(candidates) > 1:  # nothing may stand between
            candidates -= set(toposort(one for group in needed for one in group.src))
        for group in sorted(candidates, key=by_number, reverse=True):
            if len(group.written | written) <= place.MAX_WRITTEN and group.try_add(node):
                break
        else:
            group = KernelGroup(node, values, len(groups))
            groups.append(group)
        homes[node] = group
        group.reads |= {one for one in arrays & values if homes[one] is not group}
        group.reads |= {one.arg.storage for one in arrays - values}
        group.written |= written
        group.src = tuple(sorted({*group.src, *needed} - {group}, key=by_number))
        family.append((group, kin))
    return toposort(groups)
