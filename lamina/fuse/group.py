"""Placement, second half: values join into kernels, greedily and in topological order.

A kernel has row axes that its members share. A member is of row shape (a reduction over the rest
of a row, or arithmetic on such) or of full shape (arithmetic on whole rows). A value joins the
kernel of one of its operands when everything it needs from that kernel is at its own row, so
that the kernel's other members are at hand, and when no other kernel stands between the two.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter

from lamina.dtypes import int64
from lamina.fuse.lower import (
    AxisPlan,
    Index,
    Lowering,
    NotFusableError,
    SplitAxisError,
    flat_index,
)
from lamina.fuse.place import MAX_WRITTEN, UNWRITTEN, choose_values, users_of
from lamina.ir.build import cast
from lamina.ir.kernel import Store, contraction
from lamina.ir.node import Node, toposort
from lamina.ir.ops import Group, Op
from lamina.shape import Shape, prod, squeezed
from lamina.simplify import index as ix

MIN_ROWS = 16  # fewer rows than this leave threads idle, unless
SMALL = 1 << 16  # the whole kernel touches no more elements than this
ALONE = frozenset({Op.SCAN, Op.SCATTER, Op.ARGSORT})


def array_of(node: Node) -> object:
    """What tells apart the arrays that kernels use; views of one storage are one array."""
    return (node.arg.storage, node.dtype) if node.op is Op.BUFFER else node


class KernelGroup:
    """The values of one kernel, and how each is computed at the kernel's axes."""

    def __init__(self, rows: Shape, values: frozenset[Node], number: int = 0) -> None:
        self.number = number
        self.rows = squeezed(rows)
        self.values = values
        self.members: list[Node] = []
        # Squeezed shapes of full members, and which of their axes are rows.
        self.layouts: dict[Shape, frozenset[int]] = {}
        self.arrays: set[Node] = set()  # values and input buffers that the members read
        self.written: frozenset[Node] = frozenset()  # the operations of all members
        # What must run before: kernels are a graph like nodes, which `toposort` puts in order.
        self.src: tuple[KernelGroup, ...] = ()
        self.contracts = False  # holds a reduction whose operands are reused across rows
        self.plan: AxisPlan = {}
        self._begin()

    def _begin(self) -> None:
        self.parameters: dict[object, tuple[int, Node]] = {}
        self.index_of: dict[Node, Index] = {}
        self.stores: dict[Node, Store] = {}
        self._columns: dict[Shape, tuple[Index, Index]] = {}
        self.lowering = Lowering(self._parameter, self._check, self.plan)
        self.row_index, self.row_axes = self.lowering.new_axes(self.rows)

    def _parameter(self, node: Node) -> int | None:
        if node.op is not Op.BUFFER and (node not in self.values or node in self.index_of):
            return None
        return self.parameters.setdefault(array_of(node), (len(self.parameters), node))[0]

    def _check(self, node: Node, index: Index) -> None:
        if index != self.index_of.get(node, index) and not self._same_row(node, index):
            raise NotFusableError(node)

    def _same_row(self, node: Node, index: Index) -> bool:
        """May a full member be recomputed at other columns of the same row?"""
        layout = self.layouts.get(squeezed(node.shape))
        if layout is None or self.is_row(node):
            return False
        at = [one for one, size in zip(index, node.shape, strict=True) if size != 1]
        return tuple(at[axis] for axis in sorted(layout)) == self.row_index

    def is_row(self, node: Node) -> bool:
        """Has `node` one element a row?"""
        return squeezed(node.shape) == self.rows

    def _index(self, node: Node) -> tuple[Index, Index]:
        """Where `node` is computed: its index, and the axes of its loops."""
        at, axes = self.row_index, self.row_axes
        if not self.is_row(node):
            at, axes = self._full(squeezed(node.shape))
        rest = iter(at)
        return tuple(ix.ZERO if size == 1 else next(rest) for size in node.shape), axes

    def _full(self, shape: Shape) -> tuple[Index, Index]:
        """The index and the axes of members of a full, squeezed shape."""
        if shape not in self._columns:
            layout = self.layouts[shape]
            sizes = [size for axis, size in enumerate(shape) if axis not in layout]
            index, opened = self.lowering.new_axes(sizes)
            rows, columns = iter(self.row_index), iter(index)
            full = tuple(next(rows if axis in layout else columns) for axis in range(len(shape)))
            self._columns[shape] = full, (*self.row_axes, *opened)
        return self._columns[shape]

    def _lower(self, node: Node) -> None:
        index, axes = self._index(node.src[-1] if node.op is Op.SCATTER else node)
        self.index_of[node] = index
        if node.op is Op.SCATTER:
            self.stores[node] = self._scattered(node, index, axes)
        else:
            value = self.lowering.value(node, index)
            self.stores[node] = Store(0, flat_index(node, index), value, axes)

    def _scattered(self, node: Node, index: Index, axes: Index) -> Store:
        """The updates at `index`, combined with what lies at their places."""
        _, places, updates = node.src
        axis, monoid = node.arg
        place = cast(self.lowering.value(places, index), int64)
        flat = flat_index(node, (*index[:axis], place, *index[axis + 1 :]))
        holds = ix.inside(place, node.shape[axis])
        value = self.lowering.value(updates, index, holds)
        return Store(0, flat, value, axes, None if holds is ix.TRUE else holds, monoid)

    def start(self, node: Node) -> None:
        """Add the first member."""
        if node.op is Op.REDUCE:
            self._admit_reduction(node)
        if node.op is Op.ARGSORT:  # a kernel of its own kind
            self.members.append(node)
        else:
            self.add(node)
            self.contracts = self._contracts(node)

    def add(self, node: Node) -> None:
        """Lower `node` as a member."""
        self.members.append(node)
        self._lower_all([node])

    def rebuild(self) -> None:
        """Lower every member again, after the rows or the plan changed."""
        self._begin()
        self._lower_all(self.members)

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
            if self.contracts or not self._contracts(node):
                return True
        except NotFusableError:
            pass
        self.members.pop()
        self.rows, self.layouts, self.plan = saved
        self.rebuild()
        return False

    def _contracts(self, node: Node) -> bool:
        return contraction([self.stores[node].value], self.row_axes) is not None

    def _admit(self, node: Node) -> bool:
        """The cheap conditions, on shapes alone; may turn the group's rows into full members."""
        if node.op in ALONE or self.members[0].op in ALONE:
            return False
        if node.op is Op.REDUCE:
            return not self.contracts and self._admit_reduction(node)
        full = squeezed(node.shape) in self.layouts and not self.contracts
        return full or self.is_row(node)

    def _admit_reduction(self, node: Node) -> bool:
        """Does a reduction fit the rows? Its operands may become full members, or the rows its."""
        shape, axes = node.src[0].shape, node.arg.axes
        full, kept = squeezed(shape), _kept_axes(shape, axes)
        # Do rows lie together in memory, so that passing over one twice finds it in the cache?
        together = max((axis for axis, size in enumerate(shape) if size != 1), default=-1) in axes
        repeats = together and (prod(node.shape) >= MIN_ROWS or prod(shape) <= SMALL)
        if self.is_row(node):
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
        self.rebuild()
        return True


def _kept_axes(shape: Shape, axes: tuple[int, ...]) -> frozenset[int]:
    """The axes of the squeezed `shape` that are not among `axes` of `shape` itself."""
    sizes = [axis for axis, size in enumerate(shape) if size != 1]
    return frozenset(place for place, axis in enumerate(sizes) if axis not in axes)


def group_values(sinks: Sequence[Node]) -> list[KernelGroup]:
    """Kernels for everything that `sinks` need, in an order in which they can run."""
    chosen = choose_values(sinks)
    values = frozenset(chosen)
    homes: dict[Node, KernelGroup] = {}
    groups: list[KernelGroup] = []
    families: dict[object, list[tuple[KernelGroup, set[Node]]]] = {}
    users = users_of(toposort(sinks))
    by_number = attrgetter("number")
    for node in chosen:
        cone = _cone(node, values)
        arrays = {one for one in cone if one in values or one.op is Op.BUFFER}
        written = {one for one in {node} | (cone - values) if one.op not in UNWRITTEN}
        needed = {homes[one] for one in arrays & values}
        family, kin = families.setdefault(_extent(node), []), arrays.union(users[node])
        siblings = {group for group, others in family if kin & others}
        candidates = needed | siblings
        if len(candidates) > 1:  # nothing may stand between
            candidates -= set(toposort(one for group in needed for one in group.src))
        for group in sorted(candidates, key=by_number, reverse=True):
            if len(group.written | written) <= MAX_WRITTEN and group.try_add(node):
                break
        else:
            group = _started(len(groups), node, values)
            groups.append(group)
        homes[node] = group
        group.arrays |= arrays
        group.written |= written
        group.src = tuple(sorted({*group.src, *needed} - {group}, key=by_number))
        family.append((group, kin))
    return toposort(groups)


def _started(number: int, node: Node, values: frozenset[Node]) -> KernelGroup:
    """A kernel that begins with `node`; a scan or scatter is serial along its axis."""
    serial: tuple[int, ...] = ()
    if node.op is Op.SCAN or node.op is Op.SCATTER:
        serial = node.arg.axes if node.op is Op.SCAN else (node.arg.axis,)
    shape = node.src[-1].shape if serial else node.shape
    rows = tuple(size for axis, size in enumerate(shape) if axis not in serial)
    group = KernelGroup(rows, values, number)
    if serial:
        group.layouts = {squeezed(shape): _kept_axes(shape, serial)}
    group.start(node)
    return group


def _cone(node: Node, values: frozenset[Node]) -> set[Node]:
    """What `node` is computed from, up to and with the nearest values."""
    stack, seen = list(node.src), set[Node]()
    while stack:
        one = stack.pop()
        if one not in seen:
            seen.add(one)
            stack.extend(() if one in values else one.src)
    return seen


def _extent(node: Node) -> tuple[Shape, tuple[int, ...]]:
    """What `node` runs over; values of one extent are siblings if they read one array or serve
    one user."""
    return (node.src[0].shape, node.arg.axes) if node.op is Op.REDUCE else (node.shape, ())
