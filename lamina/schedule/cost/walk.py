"""What a nest does, loop by loop: the loads, stores and operations in the body of each.

The walk follows the printer (`lamina/targets/printer.py`): a value is computed in the innermost
loop that it depends on, once for each unrolled point, and what is already computed in an open loop
is not computed again. Reductions over the same axes that are ready at one place share their loops,
and stores that wait for nothing else are done there too.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from lamina.core.dtypes import DType
from lamina.graph import index as ix
from lamina.ir.kernel import Store, bound_axes, free_axes, points
from lamina.ir.monoids import Monoid
from lamina.ir.node import Node, toposort
from lamina.ir.ops import Group, Load, Op
from lamina.loops.nest import Axes, Nest, operands_of

SIMULTANEOUS = ("vector", "unroll", "dot")  # bindings of axes that are no loops


@dataclass(frozen=True)
class Access:
    """A load or a store in the body of a loop.

    parameter: of the kernel. index, condition: of the element. is_store: does it write?
    axes: those that vary in one execution of the body: lanes and unrolled points
    times: how often the body runs in which it stands. instructions: how many one body has of it
    """

    parameter: int
    index: Node
    is_store: bool
    axes: frozenset[Node]
    times: float
    lanes: int
    copies: int


@dataclass(frozen=True)
class Work:
    """An operation, or the step of a reduction or scan, in the body of a loop.

    op: what it does; that of a monoid of several components is None
    times, lanes, copies: as of an access. fused: is it an addition that one instruction does
    together with a product? chained: how many steps of one iteration wait for each other, and the
    first for the iteration before. by_constant: is its second operand a constant?
    """

    op: Op | None
    dtype: DType
    times: float
    lanes: int
    copies: int
    fused: bool = False
    chained: int = 0
    by_constant: bool = False


@dataclass
class Loop:
    """A loop, or outside of all the kernel's chunk: `trips` iterations of a body, in which stand
    accesses, operations and other loops."""

    axis: Node | None
    trips: float
    around: "Loop | None" = None
    loops: list["Loop"] = field(default_factory=list)
    accesses: list[Access] = field(default_factory=list)
    work: list[Work] = field(default_factory=list)
    done: set[Node] = field(default_factory=set)  # values that the body has computed
    filled: set[Node] = field(default_factory=set)  # values that it has put into scratch memory

    @cached_property
    def times(self) -> float:
        """How often the body runs."""
        return self.trips * (self.around.times if self.around else 1.0)

    @cached_property
    def axes(self) -> frozenset[Node]:
        """The axes of this loop and of those around it."""
        outside = self.around.axes if self.around else frozenset[Node]()
        return outside | {self.axis} if self.axis is not None else outside

    def every(self) -> Iterator["Loop"]:
        """This loop and all inside."""
        yield self
        for loop in self.loops:
            yield from loop.every()


class Walker:
    """Walks one nest; `root` then holds what it does. Loops that threads of a CPU, or blocks of a
    GPU, share are the outermost. each_lane: does a lane that lies apart take an access of its own,
    as on a CPU?"""

    def __init__(self, nest: Nest, each_lane: bool = True) -> None:
        self.nest, self.kernel, self.each_lane = nest, nest.kernel, each_lane
        self.root = Loop(None, 1.0)
        self.registers = frozenset(axis for axis in nest.order if nest.bound(axis) in SIMULTANEOUS)
        self.vectors = {axis for axis in nest.order if nest.bound(axis) == "vector"}
        self.staged = {fill.value: fill for fill in nest.fills}
        self.first_loop: dict[Node, Loop] = {}  # of values that a pass stores for later ones
        self.filling: Store | None = None  # that is being done
        self.read = {load.arg.parameter for load in self.kernel.of(Op.LOAD)}
        self.waiting = list(self.kernel.stores)
        rows = self.kernel.row_axes
        parallel = [axis for axis in self.nest.order if axis in rows and self._is_launched(axis)]
        others = [axis for axis in self.nest.order if axis in rows and axis not in parallel]
        self.rows = self._opened(self.root, [*parallel, *others])
        while self.waiting:
            axes = self.waiting[0].axes
            batch = [store for store in self.waiting if store.axes == axes]
            for store in batch:
                self._reductions(store.value, self.rows)
            batch = [store for store in batch if store in self.waiting]
            self._store_all(batch, self._opened(self.rows, axes[self.kernel.rows :]))

    def _is_launched(self, axis: Node) -> bool:
        return self.nest.bound(axis) in ("parallel", "grid")

    def _opened(self, loop: Loop, axes: Iterable[Node]) -> Loop:
        """The innermost of new loops over `axes` in the body of `loop`."""
        inside = set(axes) - self.registers
        launched = [axis for axis in axes if axis in inside and self._is_launched(axis)]
        ordered = [axis for axis in self.nest.order if axis in inside and axis not in launched]
        for axis in [*launched, *ordered]:
            loop.loops.append(Loop(axis, self._trips(axis), loop))
            loop = loop.loops[-1]
        return loop

    def _trips(self, axis: Node) -> float:
        """How often the loop over `axis` runs, in blocks; of 70 in blocks of 32, 70 / 32 times."""
        split = self.nest.sub_loops(axis)
        if split.axes[0] is axis:
            return split.extent / points(split.axes[1:])
        return float(axis.arg.size)

    def _copies(self, axes: Iterable[Node]) -> int:
        """Unrolled points of `axes`."""
        return points(axis for axis in axes if axis in self.registers - self.vectors)

    def _lanes(self, axes: Iterable[Node]) -> int:
        return points(self.vectors.intersection(axes))

    def _home(self, free: frozenset[Node], loop: Loop) -> Loop:
        """The outermost loop around `loop`, or itself, in which everything of `free` is known."""
        while loop.around is not None and loop.axis not in free:
            loop = loop.around
        return loop

    # Stores.

    def _store_all(self, stores: Sequence[Store], loop: Loop) -> None:
        self.waiting = [store for store in self.waiting if store not in stores]
        for store in stores:
            self._visit(store.value, loop)
            self._visit(store.condition, loop)
            axes = frozenset(store.axes)
            if store.monoid is not None:
                self._access(store.parameter, store.index, loop, axes, is_store=False)
                self._combine(store.monoid, store.value.dtype, loop, axes)
            self._access(store.parameter, store.index, loop, axes, is_store=True)

    def _access(
        self, parameter: int, index: Node, loop: Loop, axes: frozenset[Node], *, is_store: bool
    ) -> None:
        """Note an access in the body of `loop` at each point of `axes`."""
        for term in ix.terms_of(index)[0]:
            self._visit(term, loop)
        inside = axes & self.registers
        lanes = self._lanes(inside)
        copies = self._copies(inside)
        is_apart = self.each_lane and lanes > 1
        if is_apart and not is_store and self._is_transposed(index, lanes):
            # Blocks of n x n numbers are read by rows and transposed in registers, which takes each
            # vector log2(n) shuffles: 4 for 16 lanes. A shuffle costs as much as a BITCAST.
            shuffles = copies * (lanes.bit_length() - 1)
            dtype = self.kernel.parameters[parameter].dtype
            loop.work.append(Work(Op.BITCAST, dtype, loop.times, lanes, shuffles))
        elif is_apart and not self._is_vector(index):  # lane by lane
            copies, lanes = copies * lanes, 1
        access = Access(parameter, index, is_store, inside, loop.times, lanes, copies)
        loop.accesses.append(access)

    def _is_vector(self, index: Node) -> bool:
        """Do lanes lie next to each other?"""
        vector = [axis for axis in self.vectors if axis in free_axes(index)]
        return all(ix.suits(axis, index) == 1 for axis in vector)

    def _is_transposed(self, index: Node, lanes: int) -> bool:
        """Are lanes a stride apart, and as many unrolled points neighbours?"""
        axes = [axis for axis in self.registers - self.vectors if axis.arg.size == lanes]
        is_square = any(ix.suits(axis, index) == 1 for axis in axes)
        strided = all(ix.suits(axis, index) == -1 for axis in self.vectors & free_axes(index))
        return is_square and strided

    def _combine(
        self, monoid: Monoid, dtype: DType, loop: Loop, axes: frozenset[Node],
        fused: bool = False, chained: int = 0,
    ) -> None:  # fmt: skip
        """Note one step of a monoid at each point of `axes`."""
        inside = axes & self.registers
        copies, lanes = self._copies(inside), self._lanes(inside)
        loop.work.append(Work(monoid.op, dtype, loop.times, lanes, copies, fused, chained))

    # Values.

    def _visit(self, node: Node, loop: Loop) -> None:
        """Note what computes `node` in `loop`, or in a loop around it, unless that is done."""
        if node.op in (Op.CONST, Op.AXIS):
            return
        home = self._home(free_axes(node), loop)
        fill = self.staged.get(node)
        if fill is not None and fill is not self.filling and self._is_in_scratch(fill, loop):
            node, fill = Node(Op.LOAD, (fill.index,), Load(fill.parameter, node.dtype)), None
        if node in home.done:
            return
        if node.op is Op.LOOP_REDUCE:
            self._reduce(node, home)
        home.done.add(node)
        if node.op is Op.LOAD:
            for condition in node.src[1:]:
                self._visit(condition, home)
            self._access(node.arg.parameter, node.src[0], home, free_axes(node), is_store=False)
        elif node.op is not Op.LOOP_REDUCE:
            for operand in operands_of(node):
                self._visit(operand, home)
            self._compute(node, home)
        if fill is not None:
            self._access(fill.parameter, fill.index, home, free_axes(fill.index), is_store=True)

    def _compute(self, node: Node, loop: Loop) -> None:
        """Note an elementwise operation, or the step of a scan."""
        free = free_axes(node)
        if node.op is Op.LOOP_SCAN:
            self._combine(node.arg.monoid, node.dtype, loop, free, chained=1)
        elif node.op in Group.ELEMENTWISE:
            inside = free & self.registers
            copies, lanes = self._copies(inside), self._lanes(inside)
            loop.work.append(
                Work(
                    node.op, node.dtype, loop.times, lanes, copies, is_fused(node),
                    by_constant=node.src[-1].op is Op.CONST,
                )
            )  # fmt: skip

    def _is_in_scratch(self, fill: Store, loop: Loop) -> bool:
        """Does scratch memory hold what `fill` stores? What is filled apart, in the body of a loop
        around `loop`, is filled first."""
        if fill.at is None:
            home = self._home(free_axes(fill.value), loop)
            return self.first_loop.setdefault(fill.value, home) is not home
        place = loop
        while place.axis is not fill.at:
            if place.around is None:
                return False
            place = place.around
        if fill.value not in place.filled:
            place.filled.add(fill.value)
            self.filling, outside = fill, self.filling
            closed = [axis for axis in fill.axes if axis not in place.axes]
            self._visit(fill.value, self._opened(place, closed))
            self.filling = outside
        return True

    # Reductions.

    def _reductions(self, root: Node, loop: Loop) -> None:
        """The reductions beneath `root` that `loop` can hold."""
        inside = loop.axes | self.registers
        for node in toposort([root]):
            if node.op is Op.LOOP_REDUCE and free_axes(node) <= inside:
                self._visit(node, loop)

    def _reduce(self, node: Node, home: Loop) -> None:
        """The loops of a reduction, with all that can share them."""
        axes = bound_axes(node)
        for operand in operands_of(node):
            self._reductions(operand, home)
        mates = list(self._mates(axes, home))
        riding = [store for store in self.waiting if self._can_ride(store, axes, home)]
        inner = self._opened(home, axes)
        steps = {mate.src: mate for mate in mates}  # components of one reduction are one step
        for mate in steps.values():
            self._step(mate, inner, home)
        home.done.update(mates)
        self._store_all(riding, inner)

    def _mates(self, axes: Axes, home: Loop) -> Iterator[Node]:
        """The reductions over `axes` at one place that wait for nothing."""
        for other in self.kernel.of(Op.LOOP_REDUCE):
            if bound_axes(other) != axes or other in home.done:
                continue
            free = free_axes(other)
            here = free <= home.axes | self.registers and self._home(free, home) is home
            if here and self._is_ready(operands_of(other), home):
                yield other

    def _is_ready(self, nodes: Iterable[Node], loop: Loop) -> bool:
        """Are all reductions beneath `nodes` computed?"""
        beneath = (node for node in toposort(nodes) if node.op is Op.LOOP_REDUCE)
        return all(self._home(free_axes(node), loop) is not loop or node in loop.done
                   for node in beneath)  # fmt: skip

    def _can_ride(self, store: Store, axes: Axes, home: Loop) -> bool:
        """Can `store` be done in the loops of a reduction over `axes`?"""
        same = store.axes == (*self.kernel.row_axes, *axes)
        is_here = home is self.rows and store.parameter not in self.read
        return same and is_here and self._is_ready([store.value], home)

    def _step(self, node: Node, inner: Loop, home: Loop) -> None:
        """What one reduction adds in the body of its innermost loop."""
        for operand in operands_of(node):
            self._visit(operand, inner)
        operand_axes = free_axes(node) | frozenset(bound_axes(node))
        inside = operand_axes & self.registers
        copies, lanes = self._copies(inside), self._lanes(inside)
        results = self._copies(free_axes(node))
        chained = max(copies // results, 1) if results >= MANY_SUMS else 1
        op, fused = node.arg.monoid.op, sums_products(node)
        inner.work.append(Work(op, node.dtype, inner.times, lanes, copies, fused, chained))
        if not self.vectors.isdisjoint(bound_axes(node)):  # the lanes are halved until one is left
            halvings = 2 * (lanes.bit_length() - 1) * results
            home.work.append(Work(op, node.dtype, home.times, 1, halvings))


MANY_SUMS = 16  # so many hide the latency of an addition, with one accumulator each


def is_fused(node: Node) -> bool:
    """Is this an addition of a product, which one instruction does?"""
    products = any(operand.op is Op.MUL for operand in node.src)
    return node.op is Op.ADD and products and node.dtype.is_float


def sums_products(node: Node) -> bool:
    """Is this a sum whose steps are multiply-adds?"""
    is_sum = node.arg.monoid.op is Op.ADD and node.dtype.is_float
    return is_sum and node.src[0].op is Op.MUL
