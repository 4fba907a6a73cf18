"""What a nest does, loop by loop: the loads, stores and operations in the body of each.

The walk follows the printer (`lamina/targets/values.py`). A value is computed in its *home*, the
body of the innermost loop that it depends on, once for each unrolled point, and what is already
computed there is not computed again. Reductions over the same axes that are ready at one place
share their loops, and stores that wait for nothing else are done there too. For
``y[i] = c[i] * sum_k a[i, k] * b[k]``, all loops serial::

    a0 < 64             load c, mul, store y
      r1 < 256          load a, load b, mul, add
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import product

from lamina.core.dtypes import DType, bool_
from lamina.core.integers import power_of_two_from
from lamina.graph import index as ix
from lamina.ir.kernel import TRUE, Store, all_axes, bound_axes, free_axes, indices_of, points
from lamina.ir.monoids import Monoid
from lamina.ir.node import Node, toposort
from lamina.ir.ops import Group, Load, Op
from lamina.loops.nest import (
    MANY_SUMS,
    MANY_SUMS_OF_WARP,
    SCANNING_THREADS,
    Axes,
    Nest,
    computes_same,
    monoid_in_order,
    operands_of,
)
from lamina.loops.verify import WARP
from lamina.schedule.cost.body import SPEED_OF_TILES, Access, Loop, Work, has_fused_steps, is_fused
from lamina.schedule.cost.conditions import MASK, MASK_OF_ALL, is_masked, share_inside
from lamina.schedule.cost.operations import latency_of
from lamina.schedule.cost.vectors import BodyAxes

# Steps of a chain of additions of floats that an exchange between threads takes: some 80 clocks,
# with a barrier between warps. Fitted to a scan of (14336, 1104) float16 along its first axis, in
# which 8 rows of each thread wait for one another: 146 us on an H200.
EXCHANGE = 20
# Instructions in whose time a warp of a GPU exchanges: a multiprocessor has units for 32 lanes, and
# adds 128 (CUDA C++ Programming Guide, throughput of native arithmetic instructions).
SHUFFLE = 4
# Instructions in whose time lanes go to any others of a vector: processors have one unit for that,
# and two or more for most else. Of a scan of (64, 1000) elements on a Zen 4, a vector of 16 takes 3
# ns (2.8 are predicted).
ACROSS_REGISTER = 2


def walk(nest: Nest, *, each_lane: bool = True, adds_dots: bool = False) -> Loop:
    """The whole kernel of a nest, as a loop without an axis, with all loops inside it. Loops that
    the threads of a CPU or the blocks of a GPU share come first, so they are the outermost.

    each_lane: does every lane of an access whose lanes lie apart take an instruction, as on a CPU?
        On a GPU, where lanes are threads, one instruction serves all of them.
    adds_dots: does the instruction that multiplies and adds up four bytes add them to a sum too?
    """
    walker = _Walker(nest, each_lane, adds_dots)
    walker.walk_stores()
    return walker.root


def trips_of(nest: Nest, axis: Node, *, each_lane: bool) -> float:
    """The iterations of the loop over `axis`. The outermost loop of a split has a fraction of one
    where the split is uneven: 70 iterations in blocks of 32 are 70 / 32 blocks.

    each_lane: as of `walk`. On a CPU what is left over of vectors takes whole instructions: 20
        elements are a vector of 16 lanes and one of 4, as long as 32 elements, and 23 are 2 vectors
        if they may overlap, and else 4.
    """
    split = nest.sub_loops(axis)
    if split.axes[0] is not axis:
        return float(axis.arg.size)
    extent = split.extent
    vectors = [inner for inner in split.axes if nest.bound(inner) == "vector"]
    lanes = points(vectors)
    if each_lane and lanes > 1:
        full, rest = divmod(extent, lanes)
        last = rest.bit_count()  # shorter vectors: of 6 elements, 4 and 2
        if nest.overlapping.issuperset(vectors):
            may_begin_before = full > 0 and nest.overlapping_blocks.issuperset(vectors)
            last = min(last, 1 if may_begin_before else 2)
        extent = lanes * (full + last)
    return extent / points(split.axes[1:])


def _weighted(factors: Sequence[int], at: Sequence[int]) -> int:
    """The sum of the products of both."""
    return sum(factor * place for factor, place in zip(factors, at, strict=True))


class _Walker:
    """Walks the stores of one nest into `root`, the whole kernel.

    Names of what most methods are given: `loop`, in whose body something is needed; `home`, in
    whose body it is computed, which is `loop` or a loop around it; `axes`, those that a value or
    an access depends on.
    """

    def __init__(self, nest: Nest, each_lane: bool, adds_dots: bool) -> None:
        self.nest, self.kernel, self.each_lane = nest, nest.kernel, each_lane
        self.adds_dots = adds_dots
        self.many_sums = MANY_SUMS if each_lane else MANY_SUMS_OF_WARP
        # Axes that are no loops: all of their points stand in one body.
        self.vectors = self._bound_to("vector")
        self.unrolled = self._bound_to("unroll")
        # Axes of four bytes, which a dot product reads as one vector with the lanes around them.
        self.dots = self._bound_to("dot")
        self.in_body = self.vectors | self.unrolled | self.dots
        self.tiles = self._bound_to("tile")  # axes of words, which are loops here
        self.blocks = frozenset() if each_lane else self._bound_to("grid")  # of a GPU
        self.body_axes = BodyAxes(
            self.kernel, self.vectors, self.unrolled, self.dots, self.tiles, each_lane
        )
        self.fill_of = {fill.value: fill for fill in nest.fills}  # by staged value
        # Of staged values that depend on reductions, the home that computes and stores them.
        self.stored_in: dict[Node, Loop] = {}
        self.read = {load.arg.parameter for load in self.kernel.of(Op.LOAD)}  # numbers of arrays
        self.waiting = list(self.kernel.stores)  # those that were not walked yet
        self.root = Loop(None, trips=1.0)
        self.rows = self._opened(self.root, self.kernel.row_axes)  # the innermost of their loops

    def _bound_to(self, binding: str) -> frozenset[Node]:
        """The axes with this binding."""
        return frozenset(axis for axis in self.nest.order if self.nest.bound(axis) == binding)

    def _opened(self, loop: Loop, axes: Iterable[Node]) -> Loop:
        """New loops over `axes` in the body of `loop`, each in the one before: those that threads
        of a CPU or blocks of a GPU share first, and else in the nest's order. Gives the innermost,
        or `loop` itself if no axis is a loop."""
        to_open = set(axes) - self.in_body
        ordered = [axis for axis in self.nest.order if axis in to_open]
        launched = [axis for axis in ordered if self.nest.bound(axis) in ("parallel", "grid")]
        others = [axis for axis in ordered if axis not in launched]
        for axis in (*launched, *others):
            trips = trips_of(self.nest, axis, each_lane=self.each_lane)
            loop.loops.append(Loop(axis, trips, loop))
            loop = loop.loops[-1]
        return loop

    def _copies(self, axes: Iterable[Node]) -> int:
        """How many unrolled points `axes` have together; 1 without an unrolled one."""
        return points(self.unrolled.intersection(axes))

    def _copies_of(self, values: Iterable[Node], axes: frozenset[Node]) -> int:
        """At how many unrolled points of `axes` any of `values` differs from all others. On a GPU
        what windows share is computed once: with 8 points i and 7 points k, the loads of
        ``x[i + k]`` are 14. On a CPU they are printed apart, and the compiler decides."""
        unrolled = [axis for axis in self.nest.order if axis in axes and axis in self.unrolled]
        walked = [
            [terms.get(axis, 0) for axis in unrolled]
            for value in values
            for index in indices_of(value)
            for terms in (ix.terms_of(index)[0],)
        ]
        may_slide = any(len(factors) - factors.count(0) > 1 for factors in walked)
        if self.each_lane or not may_slide:
            return points(unrolled)
        every = product(*(range(axis.arg.size) for axis in unrolled))
        return len({tuple(_weighted(factors, at) for factors in walked) for at in every})

    def _lanes(self, axes: Iterable[Node]) -> int:
        """How many lanes `axes` have together; 1 without a vector."""
        return points((self.vectors | self.dots).intersection(axes))

    def _home(self, node: Node, loop: Loop) -> Loop:
        """Where `node`, which the body of `loop` needs, is computed: in the body of the innermost
        loop over one of its axes, of `loop` and those around it; of the whole kernel if it depends
        on none of them. On a GPU each block computes all that it needs."""
        free = free_axes(node)
        for place in loop.outwards():
            if place.axis in free or place.axis in self.blocks:
                return place
        return self.root

    # Stores.

    def walk_stores(self) -> None:
        """Walk every store in the loops over rows. Stores over the same columns share their loops,
        but for those that share the loops of a reduction."""
        while self.waiting:
            axes = self.waiting[0].axes
            # The reductions that these stores need come before their loops. The loops of a
            # reduction may take stores along, which are then no longer waiting.
            for store in self._waiting_over(axes):
                self._reductions(store.value, self.rows)
            columns = axes[self.kernel.rows :]
            for reduction in self._ready_reductions(self.rows):
                over_columns = bound_axes(reduction) == columns
                if over_columns and computes_same(reduction, self._waiting_over(axes)):
                    self._visit(reduction, self.rows)
            self._store_all(self._waiting_over(axes), self._opened(self.rows, columns))

    def _waiting_over(self, axes: Axes) -> list[Store]:
        """The stores over these axes that were not walked yet."""
        return [store for store in self.waiting if store.axes == axes]

    def _store_all(self, stores: Sequence[Store], loop: Loop) -> None:
        """Walk `stores` in the body of `loop`, with all that they need. One with a monoid adds to
        what it reads, at each point of its axes."""
        self.waiting = [store for store in self.waiting if store not in stores]
        for store in stores:
            self._visit(store.value, loop)
            self._visit(store.condition, loop)
            axes = frozenset(store.axes)
            number, index = store.parameter, store.index
            if self.nest.private is not None:  # it is in memory of the block
                self._visit_terms(index, loop)
                continue
            if store.monoid is not None and not store.atomic:  # memory combines by itself there
                self._access(number, index, TRUE, loop, axes, is_store=False)
                self._combine(store.monoid, store.value.dtype, loop, axes)
            self._access(number, index, store.condition, loop, axes, is_store=True)

    # Accesses.

    def _access(
        self, parameter: int, index: Node, condition: Node, loop: Loop, axes: frozenset[Node],
        *, is_store: bool,
    ) -> None:  # fmt: skip
        """Note an access in the body of `loop` at each point of `axes`, where `condition` holds,
        and what its index needs."""
        inside = axes & self.in_body
        lanes, copies = self._lanes(inside), self._copies_of((index, condition), inside)
        # The rates of GPUs are fitted to loads and stores that all count in full.
        share = share_inside(condition) if self.each_lane else 1.0
        access = Access(parameter, index, is_store, inside, loop.times, lanes, copies, share)
        in_vectors = self.body_axes.in_vectors(access, condition, loop.axes)
        if in_vectors is not None:
            self._visit_terms(index, loop)
            vectors, shuffles = in_vectors
            loop.work += shuffles
            loop.accesses.append(vectors)
            return
        for term in ix.terms_of(index)[0]:
            self._visit_by_lane(term, loop)
        # Each lane is put into the vector, or taken out of it. That counts as a BITCAST: one
        # instruction.
        dtype = self.kernel.parameters[parameter].dtype
        times = loop.times * share  # where a condition does not hold for all lanes, none is read
        loop.work.append(Work(Op.BITCAST, dtype, times, 1, copies * lanes))
        loop.accesses.append(replace(access, lanes=1, copies=copies * lanes))

    def _visit_terms(self, index: Node, loop: Loop) -> None:
        """Note what the terms of an index need."""
        for term in ix.terms_of(index)[0]:
            self._visit(term, loop)

    def _visit_by_lane(self, node: Node, loop: Loop) -> None:
        """Note what gives `node`, a term of an index, to the body of `loop` for each lane by
        itself: loads and operations that depend on the lanes are scalars, one for each."""
        home = self._home(node, loop)
        lanes = self._lanes(free_axes(node))
        if lanes == 1:
            self._visit(node, loop)
        elif node.op in (Op.LOAD, *Group.ELEMENTWISE) and node not in home.done_by_lane:
            home.done_by_lane.add(node)
            copies = lanes * self._copies(free_axes(node))
            if node.op is Op.LOAD:
                index, number = node.src[0], node.arg.parameter
                axes = free_axes(node) & self.in_body
                home.accesses.append(Access(number, index, False, axes, home.times, 1, copies))
            else:
                is_by_constant = node.src[-1].op is Op.CONST
                work = Work(node.op, node.dtype, home.times, 1, copies)
                home.work.append(replace(work, by_constant=is_by_constant))
            for operand in node.src:
                self._visit_by_lane(operand, home)

    # Values.

    def _visit(self, node: Node, loop: Loop) -> None:
        """Note what gives `node` to the body of `loop`: its computation, or if it is staged a load
        of scratch memory, which is filled before. Nothing if its home has it already."""
        fill = self.fill_of.get(node)
        if fill is None:
            self._compute(node, loop)
        elif fill.at is None:
            self._visit_stored_late(fill, loop)
        else:
            self._visit_staged(fill, fill.at, loop)

    def _visit_staged(self, fill: Store, at: Node, loop: Loop) -> None:
        """A value that is staged in the loop over `at`: the body of that loop fills scratch memory
        in loops of its own, where it first asks. Outside of that loop there is no scratch memory,
        and the value is computed."""
        place = next((outer for outer in loop.outwards() if outer.axis is at), None)
        if place is None:
            self._compute(fill.value, loop)
            return
        if fill.value not in place.filled:
            place.filled.add(fill.value)
            to_open = [axis for axis in fill.axes if axis not in place.axes]
            self._fill(fill, self._opened(place, to_open))
        self._load_staged(fill, loop)

    def _visit_stored_late(self, fill: Store, loop: Loop) -> None:
        """A staged value that depends on reductions: its first home computes and stores it, and all
        others, which are in the loops of later passes over the row, load it."""
        home = self._home(fill.value, loop)
        first_home = self.stored_in.setdefault(fill.value, home)  # this one if none was before
        if home is first_home:
            self._fill(fill, loop)
        else:
            self._load_staged(fill, loop)

    def _fill(self, fill: Store, loop: Loop) -> None:
        """Compute a staged value for the body of `loop` and store it, unless that is done."""
        home = self._home(fill.value, loop)
        if fill.value in home.done:
            return
        self._compute(fill.value, loop)
        axes = free_axes(fill.index)
        self._access(fill.parameter, fill.index, fill.condition, home, axes, is_store=True)

    def _load_staged(self, fill: Store, loop: Loop) -> None:
        """Load a staged value from scratch memory for the body of `loop`, unless that is done."""
        home = self._home(fill.value, loop)
        # A node of its own in `done`, as the value itself is there where it was computed.
        load = Node(Op.LOAD, (fill.index,), Load(fill.parameter, fill.value.dtype))
        if load not in home.done:
            home.done.add(load)
            axes = free_axes(fill.index)
            self._access(fill.parameter, fill.index, TRUE, home, axes, is_store=False)

    def _compute(self, node: Node, loop: Loop) -> None:
        """Note what computes `node` for the body of `loop`, unless that is done."""
        home = self._home(node, loop)
        if node.op in (Op.CONST, Op.AXIS) or node in home.done:
            return
        if node.op is Op.LOOP_REDUCE:
            self._reduce(node, home)  # which adds it to `done`, with all that shares its loops
            return
        home.done.add(node)
        if node.op is Op.LOAD:
            self._load(node, home)
        else:
            for operand in operands_of(node):
                self._visit(operand, home)
            self._operation(node, home)

    def _load(self, node: Node, home: Loop) -> None:
        """Note a LOAD, which may have a condition after its index, and what it needs."""
        index, *conditions = node.src
        condition = conditions[0] if conditions else TRUE
        if self.each_lane and is_masked(index, condition, self.vectors):
            self._mask(condition, home)
        else:
            self._visit(condition, home)
        self._access(node.arg.parameter, index, condition, home, free_axes(node), is_store=False)

    def _mask(self, condition: Node, loop: Loop) -> None:
        """Note what finds the mask of lanes for which `condition` holds: the bits of each index
        that it has inside of a size, in the body of the innermost loop that the index depends on,
        unless that is done for another load."""
        for index, size in (ix.extents(condition) or {}).items():
            home = self._home(index, loop)
            if (index, size) in home.masks:
                continue
            home.masks.add((index, size))
            self._visit_terms(index, home)
            axes = free_axes(index)
            each = MASK_OF_ALL if self.vectors.isdisjoint(axes) else MASK
            home.work.append(Work(Op.AND, bool_, home.times, 1, self._copies(axes) * each))

    def _operation(self, node: Node, loop: Loop) -> None:
        """Note an elementwise operation, or the step of a scan. Nothing for the sum of terms that
        an index is: it is part of the address of an access."""
        axes = free_axes(node)
        if node.op is Op.LOOP_SCAN:
            self._combine(node.arg.monoid, node.dtype, loop, axes, chained=1)
            self._exchange(node, loop)
            scans = self.kernel.of(Op.LOOP_SCAN)  # one step gives all components
            loop.done.update(
                part
                for part in scans
                if part.src == node.src and part.arg.monoid is node.arg.monoid
            )
        elif node.op in Group.ELEMENTWISE:
            copies = self._copies_of((node,), axes)
            work = Work(node.op, node.dtype, loop.times, self._lanes(axes), copies)
            is_by_constant = node.src[-1].op is Op.CONST
            loop.work.append(replace(work, fused=is_fused(node), by_constant=is_by_constant))

    def _combine(
        self, monoid: Monoid, dtype: DType, loop: Loop, axes: frozenset[Node], chained: int = 0
    ) -> None:
        """Note one step of a monoid at each point of `axes`. chained: as of `Work`"""
        lanes, copies = self._lanes(axes), self._copies(axes)
        op = monoid.op or monoid
        loop.work.append(Work(op, dtype, loop.times, lanes, copies, chained=chained))

    def _exchange(self, node: Node, loop: Loop) -> None:
        """What the lanes of a scan along them take to hear what came before them: from lanes at 1,
        2, 4, 8 and so on. Each time is an exchange and a step of the monoid. Those of a CPU are
        shuffles of each component. Lanes of a GPU, the threads of a block, hear so in a warp, and
        then from each warp, which counts as steps; the steps that a thread has side by side need it
        once."""
        if self.vectors.isdisjoint(bound_axes(node)):
            return
        monoid, dtype, lanes = node.arg.monoid, node.dtype, self._lanes(free_axes(node))
        rows = self._copies(free_axes(node).difference(bound_axes(node)))
        op = monoid.op or monoid
        if self.each_lane:
            # The next vector waits for the total of this one, and not for its exchanges.
            hearings = lanes.bit_length() * rows
            loop.work.append(Work(op, dtype, loop.times, lanes, hearings))
            shuffles = hearings * ACROSS_REGISTER * monoid.arity
            loop.work.append(Work(Op.BITCAST, dtype, loop.times, lanes, shuffles))
            return
        hearings = (min(lanes, WARP) - 1).bit_length() + lanes // WARP
        # A shuffle takes as long whatever is combined.
        waiting = EXCHANGE * hearings * rows / latency_of(op, dtype)
        work = Work(op, dtype, loop.times, lanes, 2 * hearings * rows, chained=waiting)
        loop.work.append(work)

    # Reductions.

    def _reductions(self, root: Node, loop: Loop) -> None:
        """Walk the reductions at and beneath `root` that depend on no loop inside of `loop`. Those
        inside open their loops where the body that needs them is walked."""
        open_axes = loop.axes | self.in_body
        for node in toposort([root]):
            if node.op is Op.LOOP_REDUCE and free_axes(node) <= open_axes:
                self._visit(node, loop)

    def _reduce(self, node: Node, home: Loop) -> None:
        """The loops of a reduction in the body of `home`, and in them the steps of all reductions,
        and all stores, that can share these loops."""
        axes = bound_axes(node)
        for operand in operands_of(node):
            self._reductions(operand, home)
        sharing = [other for other in self._ready_reductions(home) if bound_axes(other) == axes]
        assert node in sharing  # it is ready: the reductions that it needs were walked above
        stores = [store for store in self.waiting if self._can_share(store, axes, home)]
        inner = self._opened(home, axes)
        # The components of one reduction, such as the place and the value of an argmax, have one
        # step. The sum and the maximum of a row have the same operands, and two steps.
        steps = {(each.arg.monoid, each.src): each for each in sharing}.values()
        # One for each unrolled row: in a register tile of 6 rows by 4 columns 24.
        sums = sum(self._copies(free_axes(step)) for step in steps)
        for step in steps:
            self._step(step, inner, has_accumulator_each=sums < self.many_sums)
            self._join_lanes(step, home)
        home.done.update(sharing)
        self._store_all(stores, inner)

    def _ready_reductions(self, home: Loop) -> list[Node]:
        """The reductions that `home` is to compute and has not yet, and whose needed reductions
        are all computed. Of the mean and the variance of a row first the mean; then the variance,
        which needs it."""
        return [
            node
            for node in self.kernel.of(Op.LOOP_REDUCE)
            if node not in home.done
            and self._is_computed_in(node, home)
            and self._has_reductions(operands_of(node), home)
        ]

    def _has_reductions(self, nodes: Iterable[Node], loop: Loop) -> bool:
        """Are all reductions at and beneath `nodes` computed that the body of `loop` computes?
        Those that are at home further outside were computed before that body; those that depend on
        a loop inside of it, as the maxima in ``sum over r1 of (max over r2 of x[a0, r1, r2])``, are
        computed in the body of that loop."""
        reductions = [node for node in toposort(nodes) if node.op is Op.LOOP_REDUCE]
        here = [node for node in reductions if self._is_computed_in(node, loop)]
        return loop.done.issuperset(here)

    def _is_computed_in(self, reduction: Node, loop: Loop) -> bool:
        """Does the body of `loop` compute `reduction`? It is at home there, and depends on no loop
        inside of `loop`."""
        depends_inside = not free_axes(reduction) <= loop.axes | self.in_body
        return not depends_inside and self._home(reduction, loop) is loop

    def _can_share(self, store: Store, axes: Axes, home: Loop) -> bool:
        """Can `store` be done in the loops of a reduction over `axes`? ``y[i, j] = exp(x[i, j])``
        can in those of a sum of these exponentials over j, which needs them too."""
        if store.axes != (*self.kernel.row_axes, *axes) or home is not self.rows:
            return False  # it has other columns, or the reduction is outside of the rows
        if store.parameter in self.read:
            return False  # later loops need what it would overwrite
        return self._has_reductions([store.value], home)  # it waits for no reduction

    def _step(self, node: Node, inner: Loop, *, has_accumulator_each: bool) -> None:
        """What a reduction adds in the body of its innermost loop, `inner`.

        has_accumulator_each: do the unrolled steps of an iteration add to accumulators of their
            own? Else they wait for one another: 4 unrolled steps are a chain of 4.
        """
        bound = frozenset(bound_axes(node))
        dots = self.dots & bound
        axes = (free_axes(node) | bound) - dots
        copies, lanes = self._copies(axes), self._lanes(axes)
        if dots:
            self._multiply_dots(node, inner, lanes, copies)
        else:
            for operand in operands_of(node):
                self._visit(operand, inner)
        chained = 1 if has_accumulator_each else self._copies(bound)
        monoid = monoid_in_order(self.nest, node) or node.arg.monoid
        op = monoid.op or monoid
        work = Work(op, node.dtype, inner.times, lanes, copies, chained=chained)
        is_fused_dot = bool(dots) and self.adds_dots
        inner.work.append(replace(work, fused=has_fused_steps(node) or is_fused_dot))

    def _multiply_dots(self, node: Node, inner: Loop, lanes: int, copies: int) -> None:
        """The bytes that a sum of products of bytes reads, beneath the casts of the product's
        factors, and an instruction that multiplies and adds up the four bytes of each lane. `_step`
        counts the addition to the sum as another one, unless the processor has one instruction for
        both; without, it takes more than two (`lamina/targets/c/dots.c`)."""
        product = node.src[0]
        for cast in product.src:
            self._visit(cast.src[0], inner)
        in_tiles = not self.tiles.isdisjoint(bound_axes(node))
        times = inner.times / SPEED_OF_TILES if in_tiles else inner.times
        inner.work.append(Work(Op.MUL, node.dtype, times, lanes, copies))

    def _join_lanes(self, node: Node, home: Loop) -> None:
        """What joins the lanes of each sum of a reduction after its loops, in the body of `home`:
        they are halved until one is left. 16 lanes take 4 halvings, each of which is a shuffle and
        a step of the monoid: both count as steps, 8 for each sum. On a GPU all threads take them,
        and a shuffle is SHUFFLE instructions of each component."""
        axes = all_axes(node)
        if self.vectors.isdisjoint(bound_axes(node)):
            return  # each lane is a sum of its own
        lanes, sums = self._lanes(axes - self.dots), self._copies(free_axes(node))
        monoid, dtype = node.arg.monoid, node.dtype
        op = monoid.op or monoid
        if self.each_lane:
            halvings = lanes.bit_length() - 1
            home.work.append(Work(op, dtype, home.times, lanes=1, copies=2 * halvings * sums))
            return
        # The printer rounds threads up, and a loop of more iterations goes in steps.
        threads = min(power_of_two_from(lanes), SCANNING_THREADS)
        of_row = max(threads * self._lanes(bound_axes(node)) // lanes, 1)
        halvings = (of_row - 1).bit_length()
        shuffles = SHUFFLE * halvings * sums * monoid.arity
        home.work.append(Work(op, dtype, home.times, threads, halvings * sums))
        home.work.append(Work(Op.BITCAST, dtype, home.times, threads, shuffles))
