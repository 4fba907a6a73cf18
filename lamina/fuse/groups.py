"""Placement: which values are worth a buffer, which are recomputed where they are used, and which
join into one kernel.

`choose_values` names the first; they join greedily and in topological order, and one whose users
all sit in its own kernel then needs no buffer after all. A kernel has row axes that its members
share. A member is of row shape (a reduction over the rest of a row, or arithmetic on such) or of
full shape (arithmetic on whole rows). A value joins the kernel of one of its operands when
everything it needs from that kernel is at its own row, so that the kernel's other members are at
hand, and when no other kernel stands between the two.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from functools import cached_property
from operator import attrgetter
from typing import Any, NamedTuple

from lamina.core.dtypes import int64
from lamina.core.shape import Shape, prod, squeezed, strides_of
from lamina.fuse.axes import AxisPlan, AxisSplit, Index, LoopAxes, Loops
from lamina.fuse.lower import InMemory, Lowering, Source
from lamina.graph import index as ix
from lamina.ir.build import cast
from lamina.ir.kernel import Store, bound_axes, contraction, free_axes, points
from lamina.ir.monoids import ADD
from lamina.ir.node import Node, full, toposort
from lamina.ir.ops import Group, Op

# The cost of evaluating an operation once, in units of an addition.
WEIGHT: dict[Op, int] = (
    dict.fromkeys(Group.ELEMENTWISE, 1)
    | dict.fromkeys(Group.TRANSCENDENTAL | {Op.POW}, 10)
    | dict.fromkeys((Op.DIV, Op.IDIV, Op.MOD, Op.SQRT), 3)
    | {Op.CAST: 0, Op.BITCAST: 0, Op.GATHER: 1}
)
REPEATED_COST = 3  # the same for a value that an EXPAND has computed many times
MAX_WRITTEN = 256  # operations in one kernel: C compilers need quadratic time for long blocks
MAX_TILED = 64  # their cost where a kernel repeats them for each element of a tile of products
FEW_PADS = 16  # copies of an element up to which its padding is tested wherever it is read
FEW_STEPS = 256  # products in a sum up to which it is worth computing again
LONG = 4096  # steps of a sum from which on its results are stored before they are used

ALWAYS = frozenset({Op.REDUCE, Op.SCATTER, Op.ARGSORT, Op.CONTIGUOUS, Op.COPY})
POINTWISE = Group.ELEMENTWISE | {Op.RESHAPE, Op.PERMUTE, Op.EXPAND}
INLINE = frozenset({Op.BUFFER, Op.CONST, Op.IOTA}) | Group.MOVEMENT
BIJECTIVE = (Op.RESHAPE, Op.PERMUTE)  # movement that gives every element a place of its own
UNWRITTEN = INLINE - {Op.PAD}  # operations that leave no statement in a kernel
Users = dict[Node, list[Node]]
Regions = dict[Node, frozenset[Node]]
MIN_ROWS = 16  # fewer rows than this leave threads idle, which matters
SMALL = 1 << 16  # in kernels that touch more elements than this
WORD = 16  # bytes that a GPU reads at once
ALONE = frozenset({Op.SCAN, Op.SCATTER, Op.ARGSORT})
Readers = dict[object, list["KernelGroup"]]


class FusionTarget(NamedTuple):
    """What placement depends on of a device."""

    in_blocks: bool = True  # chains of kernels run in blocks of rows
    tiles: bool = False  # products read neighbours, and know what pads them
    cost: int = 12  # of what a second user reads rather than computes again
    fill: int = 0  # results of long products that fill all blocks; what updates fewer runs later
    run: int = 0  # keys that a block sorts; more are sorted byte by byte; 0: all of a row
    pitch: int = 0  # bytes; the rows of large scratch are multiples apart, see `_in_memory`
    nested: Callable[[Any], object] | None = None  # does a kernel gain by products inside sums?


class Block(NamedTuple):
    """The rows that a chain of kernels runs at once; see `lamina.fuse.row_blocks`."""

    rows: tuple[int, ...]  # row axes that blocks are numbered along; the last, which may be that
    # of a reduction after all rows, is in pieces of
    size: int
    inside: Mapping[Node, tuple[int, ...]]  # values kept for a block: which of their axes these are

    def shape(self, node: Node) -> Shape | None:
        """How a block holds `node`, its rows side by side; None for what memory holds whole."""
        if node not in self.inside:
            return None
        rest = (size for axis, size in enumerate(node.shape) if axis not in self.inside[node])
        return (*rest, self.size)


def array_of(node: Node) -> object:
    """What tells apart the arrays that kernels use; views of one storage are one array."""
    return (node.arg.storage, node.dtype) if node.op is Op.BUFFER else node


class KernelGroup:
    """The values of one kernel, and how each is computed at the kernel's axes. It begins with
    `first`; a scan or scatter is serial along its axis, and `alone`."""

    def __init__(self, first: Node, values: Mapping[Node, Shape], number: int = 0) -> None:
        serial = (first.arg.axis,) if first.op is Op.SCATTER else ()
        shape = first.src[-1].shape if serial else first.shape
        self.first, self.number, self.alone = first, number, first.op in ALONE
        self.rows = squeezed(tuple(size for axis, size in enumerate(shape) if axis not in serial))
        # Squeezed shapes of members, and which of their axes are columns.
        self.layouts = {squeezed(shape): _columns(shape, serial)}
        self.values = values
        self.members = [first]
        self.written: frozenset[Node] = frozenset()  # the operations of all members
        # What must run before: kernels are a graph like nodes, which `toposort` puts in order.
        self.src: tuple[KernelGroup, ...] = ()
        self.contracts: Node | None = None  # the reduction whose operands are reused across rows
        self.inner = frozenset[Node]()  # sums of products that it computes again inside its sums
        # The shapes of members of which several rows share an element, with index and loops.
        self.shared: dict[Shape, Loops] = {}
        self.block = Block((), 0, {})  # none, unless a chain says so
        self.sums: Node | None = None  # what is added up block by block in place of the member
        self.base: KernelGroup | None = None  # stores what a scatter, or each block, changes
        if first.op is Op.SCATTER:
            self.base = KernelGroup(Node(Op.CONTIGUOUS, first.src[:1]), values)
        self._admit(first)
        self._restart({})
        self.contracts = contraction([self.stores[first].value], self.row_axes)

    @property
    def reads(self) -> set[object]:
        """Values of other kernels, and the storage of inputs, that it reads in memory."""
        own = {one.arg.storage if one.op is Op.BUFFER else one for one in self.read_at}
        return own - self.block.inside.keys() | (self.base.reads if self.base else set())

    @property
    def operands(self) -> list[Node]:
        """The values of other kernels that this one reads."""
        return [one for one in self.read_at if one.op is not Op.BUFFER]

    def _restart(self, plan: AxisPlan) -> bool:
        """Lower every member anew, with axes split as `plan` says, and further where a reshape asks
        for it; False if a member is needed at an index that the kernel does not compute."""
        self.plan = plan
        self.parameters: dict[object, tuple[int, Node]] = {}
        self.index_of: dict[Node, Index] = {}
        self.read_at: dict[Node, set[Index]] = {}
        self.stores: dict[Node, Store] = {}
        self.lowering = Lowering(self._source, LoopAxes(plan))
        rows = self.lowering.axes.open(self.rows)
        self.row_index = rows.index
        self.blocks = self._block_axes()
        self.row_axes = (*self.blocks, *(axis for axis in rows.axes if axis not in self.blocks))
        return self._lower(self.members)

    @cached_property
    def along(self) -> list[tuple[Node, int]]:
        """The index and the extent of each row; after them, of the axis that a kernel of one sum
        adds up along, as memory can hold what was added up so far. To be asked when all members
        are known."""
        node = self.members[-1]
        plain = all(one.op is Op.REDUCE for one in self.members[:-1])
        parts = self._addends(node) if plain else None
        reduction = self.lowering.value(parts[0], self.index_of[node]) if parts else node
        axes = bound_axes(reduction)
        summed = [(axes[0], axes[0].arg.size)] if len(axes) == 1 else []
        return [*zip(self.row_index, self.rows, strict=True), *summed]

    def at(self, value: Node) -> list[tuple[Node, int] | None]:
        """The index along each axis of a value where the kernel makes or reads it, with the size;
        None for an axis at which it reads by several indices."""
        indices = self.read_at.get(value) or {self.index_of[value]}
        several = (dict.fromkeys(one) for one in zip(*indices, strict=True))
        return [(*one, size) if len(one) == 1 else None
                for one, size in zip(several, value.shape, strict=True)]  # fmt: skip

    def _addends(self, node: Node) -> tuple[Node, Node | None] | None:
        """The one sum over an axis that a member adds to other things, and these, if any."""
        if node in self.values and node not in self.members:
            return None
        if node.op is Op.REDUCE and node.arg.monoid is ADD:
            return node, None
        if node.op in BIJECTIVE and (parts := self._addends(node.src[0])):
            total, rest = parts
            return Node(node.op, (total,), node.arg), rest and Node(node.op, (rest,), node.arg)
        for one, other in (node.src, node.src[::-1]) if node.op is Op.ADD else ():
            if parts := self._addends(one):
                return parts[0], Node(Op.ADD, (parts[1], other)) if parts[1] else other
        return None

    def run_in_blocks(self, block: Block) -> None:
        """Number the blocks by the first row axes; a sum over them is added up in memory, one
        block after the other, to what else is added."""
        last = block.rows[-1]
        _, size = self.along[last]
        self.block = block
        parts = self._addends(self.members[-1]) if last == len(self.rows) else None
        if parts:
            self.first, (self.sums, rest) = self.members[-1], parts
            self.members = [self.first]
            start = rest or full(self.first.shape, 0, self.first.dtype)
            operands = {one: self.values[one] for one in self.operands}
            self.base = KernelGroup(Node(Op.CONTIGUOUS, (start,)), operands)
        self._restart({last: (size // block.size, block.size)})

    def _block_axes(self) -> Index:
        if not self.block.rows:
            return ()
        *whole, last = self.block.rows
        ahead = [axis for row in whole for axis in ix.terms_of(self.row_index[row])[0]]
        if self.sums:
            return (*ahead, self.lowering.axes.hoist_next(self.plan[last][0]))
        split, _ = ix.terms_of(self.row_index[last])
        return (*ahead, next(axis for axis, by in split.items() if by == self.block.size))

    def _place(self, node: Node, index: Index) -> Node:
        """Where ``node[index]`` lies in memory, or in that of a block."""
        shape = self.block.shape(node)
        if shape is None:
            return ix.row_major(index, self.values.get(node, node.shape))
        rows = self.block.inside[node]
        rest = (one for axis, one in enumerate(index) if axis not in rows)
        inner = ix.add(index[rows[-1]], ix.scale(self.blocks[-1], -self.block.size))
        return ix.row_major((*rest, inner), shape)

    def _source(self, node: Node, index: Index) -> InMemory | Source:
        """Where ``node[index]`` comes from: inputs and values of other kernels are in memory; a
        member is computed at its own index, or at other columns of the same row."""
        if node.op is Op.BUFFER or (node in self.values and node not in self.index_of):
            self.read_at.setdefault(node, set()).add(index)
            number, _ = self.parameters.setdefault(array_of(node), (len(self.parameters), node))
            return InMemory(number, self._place(node, index))
        if index != self.index_of.get(node, index):
            at = [one for one, size in zip(index, node.shape, strict=True) if size != 1]
            columns = self.layouts.get(squeezed(node.shape), range(len(at)))
            if self.row_index != tuple(one for axis, one in enumerate(at) if axis not in columns):
                return Source.OTHER_INDEX
        return Source.COMPUTED

    def _index(self, shape: Shape) -> tuple[Index, Index]:
        """Where an array of `shape` is computed: its index, and the axes of its loops."""
        full = squeezed(shape)
        loops = self.shared.get(full)
        if loops is None:
            columns = self.layouts[full]
            loops = self.lowering.axes.reduce_loops(self.row_index, full, columns)
        rest = iter(loops.index)
        placed = tuple(ix.ZERO if size == 1 else next(rest) for size in shape)
        return placed, (*self.row_axes, *loops.axes)

    def _lower(self, nodes: Sequence[Node]) -> bool:
        """Lower `nodes`; starts over with every member as often as an axis must be split."""
        for node in nodes:
            lower = self._scattered if node.op is Op.SCATTER else self._stored
            self.stores[node] = lower(node)
            obstacle = self.lowering.obstacle
            if isinstance(obstacle, AxisSplit):
                return self._restart(self.lowering.axes.split(obstacle))
            if obstacle is not None:
                return False
        return True

    def _stored(self, node: Node) -> Store:
        """A member, or the sums that are added up in its place; what several rows share is stored
        by the first of them."""
        index, axes = self._index(node.shape)
        what = self.sums or node
        self.index_of |= {node: index, what: index}
        value = self.lowering.value(what, index)
        if running := [one for one in toposort([value]) if one.op is Op.LOOP_SCAN]:
            serial = bound_axes(running[0])
            self.row_axes, self.alone = tuple(one for one in axes if one not in serial), True
            axes = (*self.row_axes, *sorted(serial, key=axes.index))
        still = set(self.row_axes).difference(*map(free_axes, index)) if self.shared else ()
        first = ix.both(*(ix.inside(one, 1) for one in axes if one in still))
        return Store(0, self._place(node, index), value, axes, first, ADD if self.sums else None)

    def _scattered(self, node: Node) -> Store:
        """The updates, combined with what lies at their places."""
        _, places, updates = node.src
        axis, monoid = node.arg
        index, axes = self._index(updates.shape)
        self.index_of[node] = index
        place = cast(self.lowering.value(places, index), int64)
        flat = ix.row_major((*index[:axis], place, *index[axis + 1 :]), node.shape)
        holds = ix.inside(place, node.shape[axis])
        return Store(0, flat, self.lowering.value(updates, index, holds), axes, holds, monoid)

    def try_add(self, node: Node, inner: Set[Node] = frozenset()) -> bool:
        """Add `node`, whose sums have products `inner` inside, if it fits; else change nothing."""
        before = self.rows, self.layouts, self.shared, self.contracts, self.plan
        again = self.inner & inner
        if self.alone or not (self._admit(node) or (again and self._widen(node))):
            return False
        self.members.append(node)
        if self._lower([node]):
            store, *others = (self.stores[one] for one in reversed(self.members))
            found = contraction([store.value], store.axes)
            same = again and {*toposort([store.value])}.intersection(
                toposort(one.value for one in others))  # fmt: skip
            if found in (None, self.contracts) or any(one.op is Op.LOOP_REDUCE for one in same):
                self.contracts = self.contracts or found
                return True
        self.members.remove(node)
        self.rows, self.layouts, self.shared, self.contracts, plan = before
        self._restart(plan)
        return False

    def _widen(self, node: Node) -> bool:
        """Give this kernel the rows of `node`, if each of its own serves several of these; or does
        it have them already?"""
        if self.shared or squeezed(node.shape) == self.rows:
            return squeezed(node.shape) in (self.rows, *self.shared)
        wide = KernelGroup(node, self.values)
        found = {tuple(one for one in index if one is not ix.ZERO)
                 for member in self.members for index in wide.read_at.get(member, ())}  # fmt: skip
        axes = {axis for index in found for one in index for axis in ix.terms_of(one)[0]}
        whole = not self.plan.keys() & range(len(self.rows))  # or they might be split again
        plain = whole and {squeezed(one.shape) for one in self.members} == {self.rows}
        if not (found and plain and axes < {*wide.row_axes} and points(axes) == prod(self.rows)):
            return False
        self.shared = {self.rows: Loops(found.pop(), ())}
        self.rows, self.layouts, self.contracts = wide.rows, wide.layouts, None
        self._restart({row: wide.plan[row] for row in wide.plan.keys() & range(len(self.rows))})
        return True

    def _admit(self, node: Node) -> bool:
        """The cheap conditions, on shapes alone. The operands of a reduction may become full
        members, or the rows its own."""
        rows = squeezed(node.shape)
        if node.op is not Op.REDUCE:
            return rows == self.rows or rows in (self.shared if self.contracts else self.layouts)
        shape, axes = node.src[0].shape, node.arg.axes
        full, columns = squeezed(shape), _columns(shape, axes)
        # Do rows lie together in memory, so that passing over one twice finds it in the cache?
        together = max((axis for axis, size in enumerate(shape) if size != 1), default=-1) in axes
        repeats = together and (prod(node.shape) >= MIN_ROWS or prod(shape) <= SMALL)
        if self.contracts:
            return False
        if rows == self.rows:
            self.layouts = {full: columns} | self.layouts if repeats else self.layouts
            return True
        values = toposort(store.value for store in self.stores.values())
        pointwise = all(squeezed(one.shape) == full for one in self.members)
        if not (repeats and pointwise) or any(one.op is Op.LOOP_REDUCE for one in values):
            return False
        self.rows = rows
        self.layouts = {full: columns, rows: frozenset()}
        self._restart({})  # what is split by number would be other axes
        return True


def _columns(shape: Shape, axes: Sequence[int]) -> frozenset[int]:
    """Which axes of the squeezed `shape` are among `axes` of `shape` itself."""
    sizes = [axis for axis, size in enumerate(shape) if size != 1]
    return frozenset(place for place, axis in enumerate(sizes) if axis in axes)


def _in_memory(node: Node, pitch: int) -> Shape:
    """The shape of a value in memory: long rows that do not fill whole words, which GPUs would read
    slowly, are padded to a multiple of `pitch` bytes."""
    *outer, row = node.shape or (1,)
    size, ragged = node.dtype.itemsize, row * node.dtype.itemsize % WORD
    if pitch and ragged and row * size >= pitch and prod(outer) > 1:
        return (*outer, -(-row * size // pitch) * pitch // size)
    return node.shape


def readers_of(groups: Iterable[KernelGroup]) -> Readers:
    """The kernels that read each value of another, or the storage of each input, in memory."""
    readers: Readers = {}
    for group in groups:
        for array in group.reads:
            readers.setdefault(array, []).append(group)
    return readers


def group_values(sinks: Sequence[Node], memory: FusionTarget, kept: Set[Node]) -> list[KernelGroup]:
    """Kernels for everything that `sinks` need, in an order in which they can run; the products
    `kept` are inside of none."""
    users = users_of(sinks)
    inside = _inside(set(sinks), users, kept) if memory.nested else set()
    first = _updating(users, memory.fill)
    chosen = choose_values(sinks, users, memory, inside, first)
    alone = (one for node in users if node.op in ALONE for one in (node, *node.src))
    whole = {*sinks, *alone}
    values = {one: one.shape if one in whole else _in_memory(one, memory.pitch) for one in chosen}
    homes: dict[Node, KernelGroup] = {}
    groups: list[KernelGroup] = []
    # Those with a value of an extent that reads the same parts of an array or serves a user.
    related: defaultdict[object, set[KernelGroup]] = defaultdict(set)
    by_number = attrgetter("number")
    for node, region in chosen.items():
        written, operands = written_of(region), {one for inner in region for one in inner.src}
        arrays = {one for one in operands if one in values or one.op is Op.BUFFER}
        needed = {homes[one] for one in arrays & values.keys()}
        extent = (node.src[0].shape, node.arg.axes) if node.op is Op.REDUCE else node.shape
        parts = frozenset(inner.arg for inner in region if inner.op is Op.SHRINK)
        products = {one for one in inside & region if one.op is Op.REDUCE}
        kin = [*products, *((extent, parts, one) for one in arrays.union(users[node]))]
        serial = any(one.op in ALONE for one in region)
        candidates = set() if serial else needed.union(*(related[one] for one in kin))
        if len(candidates) > 1:  # nothing may stand between
            candidates -= set(toposort(one for group in needed for one in group.src))
        for group in sorted(candidates, key=by_number, reverse=True):
            apart = not (first.isdisjoint(group.written) or arrays <= {*group.members})
            both = group.written | written
            work = sum(WEIGHT.get(one.op, 0) for one in both) if group.contracts else 0
            few = len(both) <= MAX_WRITTEN and work <= MAX_TILED
            if few and not apart and group.try_add(node, products):
                break
        else:
            group = KernelGroup(node, values, len(groups))
            groups.append(group)
        homes[node] = group
        group.written |= written
        group.inner |= products
        group.src = tuple(sorted({*group.src, *needed} - {group}, key=by_number))
        for one in kin:
            related[one].add(group)
    return toposort(groups)


# Which values.


def choose_values(
    sinks: Sequence[Node], users: Users, on: FusionTarget, inside: Set[Node], first: Set[Node]
) -> Regions:
    """The nodes that get a buffer if anything outside their kernel reads them, in order, each with
    the nodes that computing it takes; none of those `inside` kernels. Sums that come `first` are
    stored before they are used."""
    values = {node for node in users if node.op in ALWAYS}.union(sinks)
    values.update(node.src[0] for node in users if node.op in (Op.ARGSORT, Op.COPY))
    ends, absorbed = _epilogues(users, values, first, on.in_blocks)
    values = (values | ends) - (absorbed - set(sinks))
    values |= _repeated(users, values, on.tiles)
    values = (values | _shared(users, values, on.cost)) - inside
    chosen, regions = Regions(), Regions()
    for node in users:
        parts = (regions[one] for one in node.src if one not in values)
        region = regions[node] = frozenset((node,)).union(*parts)
        long = len(region) > MAX_WRITTEN and len(written_of(region)) > MAX_WRITTEN
        if long and node.op not in INLINE:
            values.add(node)
        if node in values and node.op is not Op.BUFFER:
            chosen[node] = region
    return chosen


def _inside(sinks: Set[Node], users: Users, kept: Set[Node]) -> set[Node]:
    """What kernels compute again inside their sums and never read: arrays larger than their factors
    of sums of few products each, and arithmetic on such, that reductions alone need. Not `kept`."""
    needed, found = set[Node](), set[Node]()
    for node in reversed(users):
        ends = (one.op is Op.REDUCE or (one in needed and one.op in POINTWISE)
                for one in users[node])  # fmt: skip
        if users[node] and node not in sinks and all(ends):
            needed.add(node)
    for node in (one for one in users if one in needed):
        if node.op is Op.REDUCE and node.arg.monoid is ADD and node.src[0].op is Op.MUL:
            (product,), size = node.src, prod(node.shape)
            sizes = [prod(one.src[0].shape) for one in product.src if one.op is Op.EXPAND]
            few = len(sizes) == 2 and prod(product.shape) <= FEW_STEPS * size
            if few and max(sizes) < size and node not in kept:
                found.add(node)
        elif node.op in POINTWISE and not found.isdisjoint(node.src):
            found.add(node)
    return found


def _updating(users: Users, fill: int) -> set[Node]:
    """Long sums of products that update several arrays of their size, with fewer results than
    `fill`: to be stored first, as blocks without a tile of results have nothing to update."""
    found = set[Node]()
    for node in (one for one in users if one.op is Op.REDUCE and one.src[0].op is Op.MUL):
        size, after = prod(node.shape), [node]
        if size < fill and prod(node.src[0].shape) >= LONG * size:
            for one in after:
                after += (user for user in users[one]
                          if user.op in POINTWISE - {Op.EXPAND} and user not in after)  # fmt: skip
            others = {one for user in after for one in user.src}.difference(after)
            arrays = (one for one in others if one.op not in (Op.CONST, Op.EXPAND))
            if sum(prod(one.shape) == size for one in arrays) > 1:
                found.add(node)
    return found


def users_of(sinks: Iterable[Node]) -> Users:
    """The nodes that have each node as an operand, for all that `sinks` need, operands first."""
    users: dict[Node, list[Node]] = {node: [] for node in toposort(sinks)}
    for node in users:
        for operand in dict.fromkeys(node.src):
            users[operand].append(node)
    return users


def _epilogues(
    users: Users, values: set[Node], first: Set[Node], plain: bool
) -> tuple[set[Node], set[Node]]:
    """Where the kernel of each reduction or scan stores: at the end of the region that alone uses
    it, of those that come `first` at the end of their movement and casts. If `plain`, only
    arithmetic with one element a row follows a scan, whose loop has no vectors. And the reductions
    with a movement before that end, which need no buffer: they are computed where the end is, at
    its axes."""
    position = {node: place for place, node in enumerate(users)}
    ends, absorbed = set(), set()
    for node in (one for one in values if one.op is Op.REDUCE):
        end, moved, last = node, False, _following(node, users, position)
        while last is not None and (node not in first or last.op in {*BIJECTIVE, Op.CAST}):
            moved |= last.op is Op.PERMUTE or squeezed(last.src[0].shape) != squeezed(last.shape)
            narrow = last.dtype is end.dtype if last.op in Group.MOVEMENT else resizes(last) <= 0
            if (last.op is not Op.RESHAPE or moved) and narrow:
                end = last
            last = None if last in values else _following(last, users, position)
        ends.add(end)
        if moved:
            absorbed.add(node)
    joins = {Op.RESHAPE}.union(Group.COMMUTATIVE if plain else Group.ELEMENTWISE)
    scans = {one for one in users if one.op is Op.SCAN}  # then the last of what follows each
    for node, after in users.items():
        if node in scans and node not in values and len(after) == 1 and scans.isdisjoint(after):
            (last,) = after
            whole = {*strides_of(last.shape)} <= {*strides_of(node.shape)}  # is the axis
            few = not plain or {one.op for one in last.src} <= {node.op, Op.EXPAND}
            if whole and few and last.op in joins and resizes(last) <= 0:
                scans.symmetric_difference_update((node, last))
    return ends | scans, absorbed


def _following(node: Node, users: Users, position: Mapping[Node, int]) -> Node | None:
    """The one-to-one movement that alone uses `node`, if arithmetic or nothing follows it; or the
    elementwise node through which every use passes."""
    frontier = set(users[node])
    if len(frontier) == 1 and users[node][0].op in BIJECTIVE:
        after, ends = users[users[node][0]], {*Group.ELEMENTWISE, *BIJECTIVE, Op.CONTIGUOUS}
        return users[node][0] if any(one.op in ends for one in after) or not after else None
    while frontier and all(one.op in Group.ELEMENTWISE for one in frontier):
        if len(frontier) == 1:
            return frontier.pop()
        first = min(frontier, key=position.__getitem__)
        if not users[first]:
            return None
        frontier.remove(first)
        frontier.update(users[first])
    return None


def costs(order: Iterable[Node], values: set[Node]) -> dict[Node, int]:
    """What one element costs to compute inline: each operation, and each value read, counts once. A
    region too large for a kernel counts as the largest of its parts."""
    regions: dict[Node, frozenset[Node]] = {}
    for node in order:
        parts = [frozenset((one,)) if one in values else regions[one] for one in node.src]
        whole = frozenset((node,)).union(*parts)
        regions[node] = whole if len(whole) <= MAX_WRITTEN else max(parts, key=len)
    weights = {node: 1 if node in values else WEIGHT.get(node.op, 0) for node in regions}
    return {node: sum(map(weights.__getitem__, region - {node})) + WEIGHT.get(node.op, 0)
            for node, region in regions.items()}  # fmt: skip


def _repeated(users: Users, values: set[Node], tiles: bool) -> set[Node]:
    """Values that an EXPAND would have computed once for each copy."""
    cost, found = costs(users, values), set()
    for copies, source in ((prod(one.shape), one.src[0]) for one in users if one.op is Op.EXPAND):
        if prod(source.shape) > 1:
            while source not in values and (resizes(source) > 0 or source.op in Group.MOVEMENT):
                few = copies <= FEW_PADS * prod(source.shape)
                if source.op is Op.PAD and not (tiles or (few and not source.arg.value)):
                    break
                source = source.src[0]
            # Testing the bounds of a PAD often costs more than the copy, as does choosing what it
            # fills in, unless that is zero; so does reading twice as many bytes.
            dear = source.op in Group.ELEMENTWISE and cost[source] >= REPEATED_COST
            if dear or source.op is Op.PAD or resizes(source) < 0:
                found.add(source)
    return found


def resizes(node: Node) -> int:
    """By how many bits an element of a float cast to another one is wider."""
    if node.op is not Op.CAST or not (node.dtype.is_float and node.src[0].dtype.is_float):
        return 0
    return node.dtype.bits - node.src[0].dtype.bits


def _shared(users: Users, values: set[Node], most: int) -> set[Node]:
    """Expensive values with users in more than one other value, nearest to the users first."""
    cost, ends = costs(users, values), set(values)
    owners: dict[Node, frozenset[Node]] = {}
    for node in reversed(users):
        parts = ({user} if user in ends else owners[user] for user in users[node])
        owners[node] = frozenset[Node]().union(*parts)
        dear = node.op in Group.ELEMENTWISE and cost[node] >= most
        if len(owners[node]) > 1 and dear and resizes(node) <= 0:
            ends.add(node)
    return ends - values


def written_of(region: Iterable[Node]) -> frozenset[Node]:
    """The nodes of a region that leave a statement in a kernel."""
    return frozenset(node for node in region if node.op not in UNWRITTEN)
