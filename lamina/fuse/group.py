"""Placement, second half: values join into kernels, greedily and in topological order.

A kernel has row axes that its members share. A member is of row shape (a reduction over the rest
of a row, or arithmetic on such) or of full shape (arithmetic on whole rows). A value joins the
kernel of one of its operands when everything it needs from that kernel is at its own row, so
that the kernel's other members are at hand, and when no other kernel stands between the two.
"""

from __future__ import annotations

from collections.abc import Sequence

from lamina.fuse.lower import AxisPlan, Index, Lowering, NotFusableError, SplitAxisError, full_index
from lamina.fuse.place import MAX_WRITTEN, UNWRITTEN, choose_values, users_of
from lamina.ir.kernel import contraction
from lamina.ir.node import Node, toposort
from lamina.ir.ops import Group, Op
from lamina.shape import Shape, prod, squeezed
from lamina.simplify import index as ix

MIN_ROWS = 16  # fewer rows than this leave threads idle, unless
SMALL = 1 << 16  # the whole kernel touches no more elements than this
ALONE = frozenset({Op.SCAN, Op.SCATTER, Op.ARGSORT})


def kept_axes(shape: Shape, axes: tuple[int, ...]) -> frozenset[int]:
    """The axes of the squeezed `shape` that are not among `axes` of `shape` itself."""
    sizes = [axis for axis, size in enumerate(shape) if size != 1]
    return frozenset(place for place, axis in enumerate(sizes) if axis not in axes)


class KernelGroup:
    """The values of one kernel, and how each is computed at the kernel's axes."""

    def __init__(self, number: int, rows: Shape, values: frozenset[Node]) -> None:
        self.number = number
        self.rows = squeezed(rows)
        self.values = values
        self.members: list[Node] = []
        # Squeezed shapes of full members, and which of their axes are rows.
        self.layouts: dict[Shape, frozenset[int]] = {}
        self.loads: set[Node] = set()  # values of other kernels
        self.written: frozenset[Node] = frozenset()  # the operations of all members
        self.contracts = False  # holds a reduction whose operands are reused across rows
        self.alone = False
        self.plan: AxisPlan = {}
        self._joining: Node | None = None
        self._begin()

    def _begin(self) -> None:
        self.parameters: dict[Node, int] = {}
        self.scalars: dict[Node, Node] = {}
        self.axes_of: dict[Node, Index] = {}
        self.index_of: dict[Node, Index] = {}
        self._columns: dict[Shape, tuple[Index, Index]] = {}
        self.lowering = Lowering(self._parameter, self._check, self.plan)
        self.row_index, self.row_axes = full_index(self.lowering, self.rows)

    def holds(self, node: Node) -> bool:
        """Is `node` computed in this kernel?"""
        return node in self.scalars or node is self._joining

    def _parameter(self, node: Node) -> int | None:
        if node.op is not Op.BUFFER and (node not in self.values or self.holds(node)):
            return None
        return self.parameters.setdefault(node, len(self.parameters))

    def _check(self, node: Node, index: Index) -> None:
        if node in self.scalars and index != self.index_of[node] and not self._same_row(
            node, index
        ):
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
            layout, rows = self.layouts[shape], iter(self.row_index)
            index: list[Node] = []
            opened: list[Node] = []
            for axis, size in enumerate(shape):
                if axis in layout:
                    index.append(next(rows))
                else:
                    one, axes = self.lowering.new_axis(size)
                    index.append(one)
                    opened += axes
            self._columns[shape] = tuple(index), (*self.row_axes, *opened)
        return self._columns[shape]

    def _lower(self, node: Node) -> None:
        self._joining = node
        index, axes = self._index(node)
        scalar = self.lowering.value(node, index)
        self.scalars[node], self.index_of[node], self.axes_of[node] = scalar, index, axes
        self._joining = None

    def add(self, node: Node) -> None:
        """Lower `node` as a member; starts over as often as axes must be split."""
        while True:
            try:
                self._lower(node)
                break
            except SplitAxisError as request:
                self.lowering.split(request)
                self.rebuild()
        self.members.append(node)
        if not self.contracts:
            self.contracts = contraction([self.scalars[node]], self.row_axes) is not None

    def rebuild(self) -> None:
        """Lower every member again, after the rows or the plan changed."""
        while True:
            self._begin()
            try:
                for member in self.members:
                    self._lower(member)
                return
            except SplitAxisError as request:
                self.lowering.split(request)

    def try_add(self, node: Node) -> bool:
        """Add `node` if it fits; otherwise leave the group as it was."""
        saved = (self.rows, dict(self.layouts), {key: list(v) for key, v in self.plan.items()})
        if not self._admit(node):
            return False
        contracted = self.contracts
        try:
            self.add(node)
        except NotFusableError:
            fits = False
        else:
            fits = contracted or not self.contracts or len(self.members) == 1
            if not fits:
                self.members.pop()
                self.contracts = contracted
        if not fits:
            self._joining = None
            self.rows, self.layouts = saved[0], saved[1]
            self.plan.clear()
            self.plan.update(saved[2])
            self.rebuild()
        return fits

    def _admit(self, node: Node) -> bool:
        """The cheap conditions, on shapes alone; may turn the group's rows into full members."""
        if self.alone or node.op in ALONE:
            return False
        if node.op is Op.REDUCE:
            return not self.contracts and self.admit_reduction(node)
        full = squeezed(node.shape) in self.layouts and not self.contracts
        return full or self.is_row(node)

    def admit_reduction(self, node: Node) -> bool:
        """Does a reduction fit the rows? Its operands may become full members, or the rows its."""
        shape, axes = node.src[0].shape, node.arg.axes
        full, kept = squeezed(shape), kept_axes(shape, axes)
        wide_enough = prod(node.shape) >= MIN_ROWS or prod(shape) <= SMALL
        if self.is_row(node):
            if wide_enough and _last_is_reduced(shape, axes):
                self.layouts.setdefault(full, kept)
            return True
        pointwise = all(member.op in Group.ELEMENTWISE for member in self.members) and not any(
            one.op is Op.FOLD for one in toposort(self.scalars.values())
        )
        same = all(squeezed(member.shape) == full for member in self.members)
        if not (pointwise and same and wide_enough and _last_is_reduced(shape, axes)):
            return False
        self.rows = squeezed(node.shape)
        self.layouts = {full: kept}
        self.rebuild()
        return True


def _last_is_reduced(shape: Shape, axes: tuple[int, ...]) -> bool:
    """Do rows lie together in memory, so that passing over one twice finds it in the cache?"""
    last = max((axis for axis, size in enumerate(shape) if size != 1), default=-1)
    return last in axes


def group_values(sinks: Sequence[Node]) -> list[KernelGroup]:
    """Kernels for everything that `sinks` need, in an order in which they can run."""
    chosen = choose_values(sinks)
    values = frozenset(chosen)
    homes: dict[Node, KernelGroup] = {}
    groups: list[KernelGroup] = []
    families: dict[tuple[Shape, tuple[int, ...]], list[tuple[KernelGroup, frozenset[Node]]]] = {}
    users = users_of(toposort(sinks))
    for node in chosen:
        family = families.setdefault(_extent(node), [])
        kin = _arrays(node, values).union(users[node])
        siblings = [group for group, others in family if kin & others]
        group = _join(node, values, homes, siblings)
        if group is None:
            group = KernelGroup(len(groups), _first_rows(node), values)
            _start(group, node)
            groups.append(group)
        homes[node] = group
        group.written |= _written(node, values)
        family.append((group, kin))
        group.loads |= {one for one in _read(node, values) if homes[one] is not group}
    return _in_order(groups, homes)


def _first_rows(node: Node) -> Shape:
    """Rows of a kernel that begins with `node`; a scan or scatter is serial along its axis."""
    if node.op is Op.SCAN:
        serial = node.arg.axes[0]
        return tuple(size for axis, size in enumerate(node.shape) if axis != serial)
    if node.op is Op.SCATTER:
        serial = node.arg.axis
        return tuple(size for axis, size in enumerate(node.shape) if axis != serial)
    return node.shape


def _start(group: KernelGroup, node: Node) -> None:
    group.alone = node.op in ALONE
    if node.op is Op.REDUCE:
        group.admit_reduction(node)
    if node.op is Op.SCAN:
        group.layouts[squeezed(node.shape)] = kept_axes(node.shape, node.arg.axes)
    if node.op in (Op.SCATTER, Op.ARGSORT):
        group.members.append(node)
    else:
        group.add(node)


def _arrays(node: Node, values: frozenset[Node]) -> frozenset[Node]:
    """The values and input buffers that computing `node` reads directly."""
    return frozenset(one for one in _cone(node, values) if one in values or one.op is Op.BUFFER)


def _written(node: Node, values: frozenset[Node]) -> frozenset[Node]:
    """The operations that computing `node` takes."""
    inline = (one for one in _cone(node, values) if one not in values)
    return frozenset(one for one in (node, *inline) if one.op not in UNWRITTEN)


def _cone(node: Node, values: frozenset[Node]) -> set[Node]:
    """What `node` is computed from, up to and with the nearest values."""
    stack, seen = list(node.src), set[Node]()
    while stack:
        one = stack.pop()
        if one not in seen:
            seen.add(one)
            stack.extend(() if one in values else one.src)
    return seen


def _read(node: Node, values: frozenset[Node]) -> frozenset[Node]:
    """The values that computing `node` reads directly."""
    return _arrays(node, values) & values


def _join(
    node: Node,
    values: frozenset[Node],
    homes: dict[Node, KernelGroup],
    siblings: Sequence[KernelGroup],
) -> KernelGroup | None:
    """The latest kernel of an operand, or of a sibling, that can take `node` in."""
    operands = {homes[one].number: homes[one] for one in _read(node, values)}
    kernels = operands | {group.number: group for group in siblings}
    written = _written(node, values)
    for number in sorted(kernels, reverse=True):
        group = kernels[number]
        if len(group.written | written) > MAX_WRITTEN:
            continue
        others = [one for one in operands.values() if one is not group]
        if not any(_depends(one, group, homes) for one in others) and group.try_add(node):
            return group
    return None


def _extent(node: Node) -> tuple[Shape, tuple[int, ...]]:
    """What `node` runs over; values of one extent are siblings if they read one array or serve
    one user."""
    return (node.src[0].shape, node.arg.axes) if node.op is Op.REDUCE else (node.shape, ())


def _depends(group: KernelGroup, on: KernelGroup, homes: dict[Node, KernelGroup]) -> bool:
    """Does `group` need, directly or not, what `on` computes?"""
    stack, seen = [group], {group.number}
    while stack:
        for value in stack.pop().loads:
            home = homes[value]
            if home is on:
                return True
            if home.number not in seen:
                seen.add(home.number)
                stack.append(home)
    return False


def _in_order(groups: list[KernelGroup], homes: dict[Node, KernelGroup]) -> list[KernelGroup]:
    order: list[KernelGroup] = []
    done: set[int] = set()
    for group in groups:
        stack = [(group, False)]
        while stack:
            one, ready = stack.pop()
            if ready:
                order.append(one)
            elif one.number not in done:
                done.add(one.number)
                stack.append((one, True))
                needed = {homes[value].number: homes[value] for value in one.loads}
                stack.extend((needed[key], False) for key in sorted(needed, reverse=True))
    return order
