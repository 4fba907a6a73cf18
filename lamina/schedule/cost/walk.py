"""What a nest does, loop by loop: the loads, stores and operations in the body of each.

The walk follows the printer (`lamina/targets/printer.py`): a value is computed in the innermost
loop that it depends on, once for each unrolled point, and what is already computed in an open loop
is not computed again. Reductions over the same axes that are ready at one place share their loops,
and stores that wait for nothing else are done there too.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from lamina.core.dtypes import DType
from lamina.graph import index as ix
from lamina.ir.kernel import TRUE, Store, bound_axes, free_axes, points
from lamina.ir.monoids import Monoid
from lamina.ir.node import Node, toposort
from lamina.ir.ops import Group, Load, Op
from lamina.loops.nest import IN_REGISTERS, Axes, Nest, operands_of

IN_ONE_BODY = (*IN_REGISTERS, "dot")  # bindings of axes that are no loops
# So many sums hide the latency of an addition with one accumulator each; of fewer, each unrolled
# step of the reduction has accumulators for itself. The printer's number, which a test compares.
MANY_SUMS = 16


@dataclass(frozen=True)
class Access:
    """A load or a store in the body of a loop.

    parameter: number of the kernel's array. index: of the element. is_store: does it write?
    axes: those that vary in one run of the body: of lanes, and of unrolled points
    times: how often the body runs in which it stands, all iterations of all loops around it
    lanes: elements of one instruction; copies: instructions in one run of the body
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

    op: what it does; None for the step of a monoid of several components, such as an argmax
    dtype: of the result
    times, lanes, copies: as of an access
    fused: is it an addition that one instruction does together with a product?
    chained: of a reduction or scan, how many steps of one iteration wait for one another, the first
        of them for the iteration before; 0 for anything else
    by_constant: is its last operand a constant?
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
    """A loop over `axis`: `trips` iterations of a body, in which stand accesses, operations and the
    loops inside it. The whole kernel is the one iteration of a loop around all, without an axis.

    trips: of an uneven split with a fraction, see `Walker._trips`
    around: the next loop outside; None for the whole kernel
    done: values that the walk has computed in this body
    filled: values that the walk has put into scratch memory in this body
    """

    axis: Node | None
    trips: float
    around: "Loop | None" = None
    loops: list["Loop"] = field(default_factory=list)
    accesses: list[Access] = field(default_factory=list)
    work: list[Work] = field(default_factory=list)
    done: set[Node] = field(default_factory=set)
    filled: set[Node] = field(default_factory=set)

    @cached_property
    def times(self) -> float:
        """How often the body runs in all, in every iteration of the loops around it."""
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
    """Walks one nest; `root` is then the whole kernel, with all its loops. Loops that the threads
    of a CPU or the blocks of a GPU share come first, so they are the outermost.

    each_lane: does every lane of an access whose lanes lie apart take an instruction, as on a CPU?
        On a GPU, where lanes are threads, one instruction serves all of them.
    """

    def __init__(self, nest: Nest, each_lane: bool = True) -> None:
        self.nest, self.kernel, self.each_lane = nest, nest.kernel, each_lane
        # The state of the walk; the walk itself follows below.
        self.root = Loop(None, 1.0)
        self.in_body = frozenset(axis for axis in nest.order if nest.bound(axis) in IN_ONE_BODY)
        self.vectors = frozenset(axis for axis in nest.order if nest.bound(axis) == "vector")
        # Axes of four bytes, which a dot product reads as one vector with the lanes around them.
        self.quads = frozenset(axis for axis in nest.order if nest.bound(axis) == "dot")
        self.staged = {fill.value: fill for fill in nest.fills}
        # Of staged values that depend on reductions, the loop in whose body they are computed.
        self.first_loop: dict[Node, Loop] = {}
        self.filling: Store | None = None  # the fill whose value is being walked
        self.read = {load.arg.parameter for load in self.kernel.of(Op.LOAD)}
        self.waiting = list(self.kernel.stores)  # those that were not walked yet
        rows = self.kernel.row_axes
        parallel = [axis for axis in self.nest.order if axis in rows and self._is_launched(axis)]
        others = [axis for axis in self.nest.order if axis in rows and axis not in parallel]
        # The walk: the loops over rows, and in the innermost of these every store.
        self.rows = self._opened(self.root, [*parallel, *others])
        while self.waiting:
            # Stores over the same columns share their loops, but for those that ride along in the
            # loops of a reduction.
            axes = self.waiting[0].axes
            for store in [store for store in self.waiting if store.axes == axes]:
                self._reductions(store.value, self.rows)
            batch = [store for store in self.waiting if store.axes == axes]
            self._store_all(batch, self._opened(self.rows, axes[self.kernel.rows :]))

    def _is_launched(self, axis: Node) -> bool:
        """Do threads of a CPU, or blocks of a GPU, share the loop over `axis`?"""
        return self.nest.bound(axis) in ("parallel", "grid")

    def _opened(self, loop: Loop, axes: Iterable[Node]) -> Loop:
        """New loops over `axes` in the body of `loop`, each in the one before, and gives the
        innermost; `loop` itself if no axis is a loop."""
        inside = set(axes) - self.in_body
        launched = [axis for axis in axes if axis in inside and self._is_launched(axis)]
        ordered = [axis for axis in self.nest.order if axis in inside and axis not in launched]
        for axis in [*launched, *ordered]:
            loop.loops.append(Loop(axis, self._trips(axis), loop))
            loop = loop.loops[-1]
        return loop

    def _trips(self, axis: Node) -> float:
        """The iterations of the loop over `axis`. The outermost loop of a split has a fraction of
        one where the split is uneven: 70 iterations in blocks of 32 are 70 / 32 blocks."""
        split = self.nest.sub_loops(axis)
        if split.axes[0] is axis:
            return split.extent / points(split.axes[1:])
        return float(axis.arg.size)

    def _copies(self, axes: Iterable[Node]) -> int:
        """How many unrolled points `axes` have together; 1 without an unrolled one."""
        return points((self.in_body - self.vectors - self.quads).intersection(axes))

    def _lanes(self, axes: Iterable[Node]) -> int:
        """How many lanes `axes` have together; 1 without a vector."""
        return points((self.vectors | self.quads).intersection(axes))

    def _home(self, free: frozenset[Node], loop: Loop) -> Loop:
        """Where a value that depends on the axes `free` is computed: in the body of the innermost
        loop over one of these, of `loop` and those around it; of the whole kernel without any."""
        while loop.around is not None and loop.axis not in free:
            loop = loop.around
        return loop

    # Stores.

    def _store_all(self, stores: Sequence[Store], loop: Loop) -> None:
        """Walk `stores` in the body of `loop`, with all that they need. One with a monoid adds to
        what it reads, at each point of its axes."""
        self.waiting = [store for store in self.waiting if store not in stores]
        for store in stores:
            self._visit(store.value, loop)
            self._visit(store.condition, loop)
            axes = frozenset(store.axes)
            if store.monoid is not None:
                self._access(store.parameter, store.index, TRUE, loop, axes, is_store=False)
                self._combine(store.monoid, store.value.dtype, loop, axes)
            condition = store.condition
            self._access(store.parameter, store.index, condition, loop, axes, is_store=True)

    def _access(
        self, parameter: int, index: Node, condition: Node, loop: Loop, axes: frozenset[Node],
        *, is_store: bool,
    ) -> None:  # fmt: skip
        """Note an access in the body of `loop` at each point of `axes`, where `condition` holds,
        and what its index needs. On a CPU, lanes that are no neighbours take an access each, unless
        a block of them is transposed in registers."""
        for term in ix.terms_of(index)[0]:
            self._visit(term, loop)
        inside = axes & self.in_body
        lanes, copies = self._lanes(inside), self._copies(inside)
        if self.each_lane and lanes > 1 and not self._are_neighbours(index, condition, is_store):
            if not is_store and self._is_transposed(index, condition, lanes):
                # Blocks of n x n elements are read by rows, a vector each, and transposed, which
                # takes each vector log2(n) shuffles: 4 for 16 lanes. A shuffle costs as much as a
                # BITCAST: one instruction.
                shuffles = copies * (lanes.bit_length() - 1)
                dtype = self.kernel.parameters[parameter].dtype
                loop.work.append(Work(Op.BITCAST, dtype, loop.times, lanes, shuffles))
            else:
                copies, lanes = copies * lanes, 1
        access = Access(parameter, index, is_store, inside, loop.times, lanes, copies)
        loop.accesses.append(access)

    def _are_neighbours(self, index: Node, condition: Node, is_store: bool) -> bool:
        """Do the lanes of an access lie next to each other, for one instruction to serve them? The
        condition may leave lanes out of a load, as padding does: that reads under a mask. A store
        then writes lane by lane.

        With a quad of 4 bytes q and lanes along i: ``x[4 * i + q]`` is one vector, and so is
        ``x[q]``.
        """
        varying = free_axes(index) | free_axes(condition)
        width = 1  # of what is between neighbouring lanes
        for quad in self.quads & varying:
            if ix.terms_of(index)[0].get(quad) != 1:
                return False
            width = quad.arg.size
        for axis in self.vectors & varying:
            is_masked = axis in free_axes(condition)
            if is_masked and (is_store or ix.suits(axis, index, condition) != 1):
                return False
            if ix.suits(axis, index) == -2 or ix.terms_of(index)[0].get(axis) != width:
                return False
        return True

    def _is_transposed(self, index: Node, condition: Node, lanes: int) -> bool:
        """Are lanes a stride apart, and as many unrolled points neighbours, so that both together
        are a square block of the array? The whole block is read, or under a condition nothing."""
        unrolled = self.in_body - self.vectors - self.quads
        is_square = any(
            axis.arg.size == lanes
            and ix.suits(axis, index) == 1
            and axis not in free_axes(condition)
            for axis in unrolled
        )
        vectors = self.vectors & (free_axes(index) | free_axes(condition))
        is_strided = all(ix.suits(axis, index, condition) == -1 for axis in vectors)
        return is_square and is_strided

    def _combine(
        self, monoid: Monoid, dtype: DType, loop: Loop, axes: frozenset[Node], chained: int = 0
    ) -> None:
        """Note one step of a monoid at each point of `axes`. chained: as of `Work`"""
        work = Work(monoid.op, dtype, loop.times, self._lanes(axes), self._copies(axes))
        loop.work.append(replace(work, chained=chained))

    # Values.

    def _visit(self, node: Node, loop: Loop) -> None:
        """Note what computes `node` in `loop`, or in the loop around it where it is at home, unless
        that is done there. What is staged is loaded from scratch memory, if that has it; where it
        is computed, it is stored there."""
        if node.op in (Op.CONST, Op.AXIS):
            return
        home = self._home(free_axes(node), loop)
        fill = self.staged.get(node)
        if fill is not None and fill is not self.filling and self._is_in_scratch(fill, loop):
            # It is read like any array, and not stored once more: `fill` is done with.
            node, fill = Node(Op.LOAD, (fill.index,), Load(fill.parameter, node.dtype)), None
        if node in home.done:
            return
        if node.op is Op.LOOP_REDUCE:
            self._reduce(node, home)  # which adds it to `done`, with all that shares its loops
        elif node.op is Op.LOAD:
            home.done.add(node)
            index, *guard = node.src
            condition = guard[0] if guard else TRUE
            self._visit(condition, home)
            parameter, axes = node.arg.parameter, free_axes(node)
            self._access(parameter, index, condition, home, axes, is_store=False)
        else:
            home.done.add(node)
            for operand in operands_of(node):
                self._visit(operand, home)
            self._compute(node, home)
        if fill is not None:
            axes = free_axes(fill.index)
            self._access(fill.parameter, fill.index, fill.condition, home, axes, is_store=True)

    def _compute(self, node: Node, loop: Loop) -> None:
        """Note an elementwise operation, or the step of a scan. Nothing for the sum of terms that
        an index is: it is part of the address of an access."""
        axes = free_axes(node)
        if node.op is Op.LOOP_SCAN:
            self._combine(node.arg.monoid, node.dtype, loop, axes, chained=1)
        elif node.op in Group.ELEMENTWISE:
            work = Work(node.op, node.dtype, loop.times, self._lanes(axes), self._copies(axes))
            is_by_constant = node.src[-1].op is Op.CONST
            loop.work.append(replace(work, fused=is_fused(node), by_constant=is_by_constant))

    def _is_in_scratch(self, fill: Store, loop: Loop) -> bool:
        """Does scratch memory hold what `fill` stores when the body of `loop` needs it?

        A fill in a loop (`fill.at`) is walked here, with loops for itself, when the body of that
        loop first asks; outside of that loop there is no scratch. One without a loop, of a value
        that depends on reductions, is stored where the value is computed first, and held in all
        other loops, which are those of later passes.
        """
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
            outer_fill, self.filling = self.filling, fill
            to_open = [axis for axis in fill.axes if axis not in place.axes]
            self._visit(fill.value, self._opened(place, to_open))
            self.filling = outer_fill
        return True

    # Reductions.

    def _reductions(self, root: Node, loop: Loop) -> None:
        """Walk the reductions at and beneath `root` that depend on no loop inside of `loop`."""
        inside = loop.axes | self.in_body
        for node in toposort([root]):
            if node.op is Op.LOOP_REDUCE and free_axes(node) <= inside:
                self._visit(node, loop)

    def _reduce(self, node: Node, home: Loop) -> None:
        """The loops of a reduction in the body of `home`, and in them the steps of all reductions,
        and all stores, that can share these loops."""
        axes = bound_axes(node)
        for operand in operands_of(node):
            self._reductions(operand, home)
        mates = list(self._mates(axes, home))
        assert node in mates  # it is ready: what it needs was walked above
        riding = [store for store in self.waiting if self._can_ride(store, axes, home)]
        inner = self._opened(home, axes)
        steps = {mate.src: mate for mate in mates}  # components of one reduction are one step
        sums = sum(self._copies(free_axes(mate)) for mate in steps.values())
        for mate in steps.values():
            self._step(mate, inner, home, is_one_of_many=sums >= MANY_SUMS)
        home.done.update(mates)
        self._store_all(riding, inner)

    def _mates(self, axes: Axes, home: Loop) -> Iterator[Node]:
        """The reductions over `axes` that are at home in `home`, not done yet, and ready."""
        for other in self.kernel.of(Op.LOOP_REDUCE):
            free = free_axes(other)
            is_open = free <= home.axes | self.in_body  # no other loop is needed around it
            is_here = is_open and self._home(free, home) is home
            is_like = bound_axes(other) == axes and other not in home.done
            if is_like and is_here and self._is_ready(operands_of(other), home):
                yield other

    def _is_ready(self, nodes: Iterable[Node], loop: Loop) -> bool:
        """Are all reductions at and beneath `nodes` computed that are at home in `loop`? Those that
        are at home further outside were computed before the body of `loop`."""
        reductions = [node for node in toposort(nodes) if node.op is Op.LOOP_REDUCE]
        here = [node for node in reductions if self._home(free_axes(node), loop) is loop]
        return loop.done.issuperset(here)

    def _can_ride(self, store: Store, axes: Axes, home: Loop) -> bool:
        """Can `store` be done in the loops of a reduction over `axes`? It must have just these
        columns, overwrite nothing that the kernel reads, and wait for no reduction. Columns are
        directly inside the loops over rows, so the reduction must be, too."""
        same = store.axes == (*self.kernel.row_axes, *axes)
        is_here = home is self.rows and store.parameter not in self.read
        return same and is_here and self._is_ready([store.value], home)

    def _step(self, node: Node, inner: Loop, home: Loop, *, is_one_of_many: bool) -> None:
        """What one reduction adds in the body of its innermost loop, `inner`, and what joins the
        lanes of its sums after the loops, in the body of `home`.

        is_one_of_many: do the reductions of these loops have MANY_SUMS together? Then all unrolled
            steps of an iteration add to one accumulator, one after the other.
        """
        bound = frozenset(bound_axes(node))
        axes = free_axes(node) | bound
        quads = self.quads & bound
        for operand in operands_of(node):
            if quads:  # of bytes: one instruction casts, multiplies and adds up each lane's four
                for cast in operand.src:
                    self._visit(cast.src[0], inner)
            else:
                self._visit(operand, inner)
        copies, lanes = self._copies(axes), self._lanes(axes - quads)
        if quads:
            inner.work.append(Work(Op.MUL, node.dtype, inner.times, lanes, copies))
        chained = self._copies(bound) if is_one_of_many else 1
        op, fused = node.arg.monoid.op, sums_products(node)
        inner.work.append(Work(op, node.dtype, inner.times, lanes, copies, fused, chained))
        if not self.vectors.isdisjoint(bound):
            # Lanes are halved until one is left, each time with a shuffle and an operation: 16
            # lanes take 4 of each, for each sum.
            halvings = 2 * (lanes.bit_length() - 1) * self._copies(free_axes(node))
            home.work.append(Work(op, node.dtype, home.times, 1, halvings))


def is_fused(node: Node) -> bool:
    """Is this an addition of floats, one of them a product, which one instruction does?"""
    products = any(operand.op is Op.MUL for operand in node.src)
    return node.op is Op.ADD and products and node.dtype.is_float


def sums_products(node: Node) -> bool:
    """Is this reduction a sum of floats whose steps are multiply-adds?"""
    is_sum = node.arg.monoid.op is Op.ADD and node.dtype.is_float
    return is_sum and node.src[0].op is Op.MUL
