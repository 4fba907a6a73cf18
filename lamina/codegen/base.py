"""Printing a loop nest, shared by every target: where each value is computed, and in what order.

A value is printed in the outermost loop that binds every axis it depends on, so invariants leave
loops by themselves. An unrolled axis has no loop: values that depend on it are printed once for
each of its points. A reduction opens its loops where its value is first needed; reductions over
the same axes that are ready at that place share them.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import groupby, product
from typing import Any, NamedTuple, Protocol

from lamina.dtypes import DType, bool_
from lamina.ir.kernel import Store, bound_axes, free_axes, points
from lamina.ir.monoids import Monoid
from lamina.ir.node import Node, const, toposort
from lamina.ir.ops import Group, Load, Op
from lamina.kernel.schedule import LOCAL, TILES, Axes, Nest, operands_of
from lamina.kernel.tiles import is_minor
from lamina.simplify import index as ix

LONGEST_COPY = 16  # neighbours that are copied without a loop
MANY_SUMS = 16  # that hide the latency of an addition without more accumulators

Point = dict[Node, int]
Key = tuple[Node, tuple[tuple[Node, int, int], ...]]  # axis, index, lanes


class Value(NamedTuple):
    """Text for a value. `lanes` > 1 is a vector; a vector of bool is a mask of `mask` bits."""

    text: str
    dtype: DType
    lanes: int = 1
    mask: int = 0


class Run(NamedTuple):
    """How one axis runs: "loop" or "vector" over `extent` iterations or lanes from `start` on,
    "unroll" over `extent`, "fixed" at `extent`, a number or text; and the condition, if any."""

    how: str
    extent: int | str
    condition: str = ""
    start: int = 0


Values = tuple[Value, ...]
Segment = dict[Node, Run]


@dataclass
class Scope:
    """The body of one loop: its lines, and the values already computed in it."""

    lines: list[str] = field(default_factory=list)
    cache: dict[Key, Value] = field(default_factory=dict)
    begun: dict[tuple[int, ...], Values] = field(default_factory=dict)  # before a step of threads


@dataclass
class Accumulation:
    """The running value of a reduction at one point of the open tile: until they are joined, one
    for each point of the reduction's own tile."""

    fold: Node
    point: Point
    running: dict[tuple[int, ...], Values] = field(default_factory=dict)
    total: Values = ()


class Target(Protocol):
    """What a target spells: types, expressions, and printed stores."""

    def type(self, value: Value) -> str: ...
    def literal(self, node: Node) -> Value: ...
    def operation(self, node: Node, operands: list[Value]) -> Value: ...
    def widened(self, value: Value, to: Value) -> str: ...  # to the lanes and the mask of `to`
    def lane(self, value: Value, number: int) -> Value: ...
    def half(self, vectors: Sequence[Value], side: int, run: int) -> Value: ...
    # a half of one; of two the halves in one vector, `run` lanes of each in turn
    def lane_numbers(self, lanes: int) -> Value: ...  # 0, 1, ..., lanes - 1 as int64
    def load(self, node: Node, point: Point) -> Value: ...
    def store(self, store: Store, value: Value, point: Point) -> None: ...


class NestPrinter(Target):
    """Prints one nest in what a subclass spells."""

    index = "i64"  # the type of an index
    together = 1 << 16  # points of a tile that are computed before they are stored
    batch: Sequence[Point] = ()  # those

    def __init__(self, nest: Nest) -> None:
        self.nest = nest
        self.scopes = [Scope()]
        self.depth_of: dict[Node, int] = {}  # axis -> number of the scope that binds it
        self.text_of: dict[Node, int | str] = {}  # axis with a loop or a place -> its index
        self.unrolled: dict[Node, int] = {}  # axis -> its extent
        self.vectors: dict[Node, int] = {}  # axis -> lanes
        self.starts: dict[Node, int] = {}  # axis -> index of the first lane
        self.staged = {fill.value: fill for fill in nest.fills}
        self.filled = frozenset[Node]()  # what can be read from scratch memory in the open loops
        self.stored: set[Node] = set()  # after reductions, and was computed for the open rows
        self.waiting: list[Store] = []  # those not yet printed for the open rows
        self.read = {one.arg.parameter for one in nest.kernel.of(Op.LOAD)}
        rows = nest.kernel.row_axes  # those whose index is given where the nest runs
        self.given = {axis for axis in rows if nest.bound(axis) not in LOCAL}
        self.guard = ""  # before what the open loops add up and store
        self._names = 0

    # Lines, scopes and axes.

    def line(self, text: str) -> None:
        self.scopes[-1].lines.append(text)

    def declare(self, value: Value, mutable: bool = False) -> Value:
        """Print a definition of a fresh name for `value`."""
        self._names += 1
        name = f"t{self._names}"
        self.line(f"{'' if mutable else 'const '}{self.type(value)} {name} = {value.text};")
        return value._replace(text=name)

    @contextmanager
    def opened(self, segment: Segment, order: Sequence[Node] = ()) -> Iterator[None]:
        """Open the loops of `segment` in the nest's order, then its tile; what is staged in the
        body of a loop is filled there. With another `order`, nothing is."""
        ordered = [axis for axis in order or self.nest.order if axis in segment]
        ordered.sort(key=lambda axis: segment[axis].how in TILES)
        tables: dict[str, dict[Node, Any]] = {"vector": self.vectors, "unroll": self.unrolled}
        headers, guard = list[str](), self.guard
        for axis in ordered:
            how, extent, condition, start = segment[axis]
            if condition and axis not in self.given:
                self.guard = f"if ({condition}) "
            self.starts[axis] = start
            if how == "loop":
                name = f"a{axis.arg.number}"
                stop = start + extent if isinstance(extent, int) else extent
                headers.append(self.loop(axis, name, start, stop))
                self.scopes.append(Scope())
                extent = name
            tables.get(how, self.text_of)[axis] = extent
            self.depth_of[axis] = len(self.scopes) - 1
            for fill in () if order else self.nest.fills:
                if fill.at is axis and free_axes(fill.value) - {*fill.axes} <= self.depth_of.keys():
                    self._fill(fill, segment)
        yield
        self.guard = guard
        for axis in ordered:
            del self.depth_of[axis], tables.get(segment[axis].how, self.text_of)[axis]
        for header in reversed(headers):
            if lines := self.scopes.pop().lines:
                self.scopes[-1].lines += [header, *("    " + text for text in lines), "}"]

    def _fill(self, store: Store, segment: Segment) -> None:
        """Print the loops that fill what is staged, inside those of `segment` that are open."""
        self.filled -= {store.value}
        for rest in self.segments_of([axis for axis in store.axes if axis not in segment]):
            order = [axis for axis in store.axes if axis not in self.depth_of]
            runs = {axis: (segment | rest)[axis] for axis in order}
            source = next((axis for axis in store.axes if is_minor(store.value, axis)), None)
            if source in runs and runs[source].how == "loop":
                # Memory is read in its order: the fastest axis is the innermost loop, and others
                # are loops outside, but for vectors as long as that axis.
                order.sort(key=lambda axis: axis is source)
                rows = Run("vector", runs[source].extent)
                runs = {axis: run._replace(how="loop") if run.how in TILES and run != rows else run
                        for axis, run in runs.items()}  # fmt: skip
                if runs[source].extent in range(LONGEST_COPY + 1):
                    runs[source] = runs[source]._replace(how="unroll")
            with self.opened(runs, order):
                self.stores([store])
        self.filled |= {store.value}

    def segments(self, pieces: Sequence[Node], extent: int) -> list[Segment]:
        """The nests that together cover `extent` iterations of the `pieces` of an axis.

        Full blocks get constant inner sizes, and what is left over gets a nest of its own, so that
        vectors and unrolled tiles stay exact. A parallel axis is given where the nest runs.
        """
        if not pieces:
            return [{}]
        axis, rest, how = pieces[0], pieces[1:], self.nest.bound(pieces[0])
        block, name = points(rest), f"a{axis.arg.number}"
        count, tail = divmod(extent, block)
        if axis in self.given:
            if count + 1 == axis.arg.size and [*map(self.nest.bound, rest)] == ["serial"]:
                inner = Run("loop", f"({name} < {count} ? {block} : {tail})")
                return [{axis: Run("fixed", name), rest[0]: inner}]
            full = Run("fixed", name, f"{name} < {count}" if count < axis.arg.size else "")
            last = Run("fixed", name, f"{name} == {count}")
        else:
            if how == "dot":  # all of it at once
                return [{axis: Run("fixed", 0)}]
            if how == "vector" and (not axis.arg.reduce or count.bit_count() == 1):
                return _vectors(axis, count)
            full, last = Run("unroll" if how == "unroll" else "loop", count), Run("fixed", count)
            if how == "thread":  # one of them does what is left
                last = Run("loop", 1, start=count)
        return [
            {axis: run} | segment
            for run, inside in ((full, block if count else 0), (last, tail))
            if inside
            for segment in self.segments(rest, inside)
        ]

    def segments_of(self, axes: Iterable[Node]) -> Iterator[Segment]:
        """Every combination of the segments of the pieces that `axes` are."""
        splits = [self.nest.pieces(axis) for axis in axes if self.nest.is_head(axis)]
        for chosen in product(*(self.segments(*pieces) for pieces in splits)):
            yield {axis: run for segment in chosen for axis, run in segment.items()}

    def points(self, axes: Collection[Node]) -> Iterator[Point]:
        """Every point of the unrolled ones among `axes`."""
        tile = {axis: self.starts[axis] for axis in self.unrolled if axis in axes}
        for values in product(*(range(at, at + self.unrolled[one]) for one, at in tile.items())):
            yield dict(zip(tile, values, strict=True))

    def loop(self, axis: Node, name: str, start: int, stop: int | str) -> str:
        """The head of the loop over `axis`, whose index is `name`."""
        return f"for ({self.index} {name} = {start}; {name} < {stop}; {name}++) {{"

    # Values.

    def lanes_of(self, node: Node) -> int:
        """1, or the lanes of the vector axis that `node` depends on."""
        free = free_axes(node)
        return next((lanes for axis, lanes in self.vectors.items() if axis in free), 1)

    def home(self, node: Node) -> int:
        """The number of the outermost scope where `node` can be computed."""
        return max(map(self.depth_of.__getitem__, free_axes(node)), default=0)

    def key(self, node: Node, point: Point) -> Key:
        """What tells values of one scope apart: the point, and which lanes."""
        free = free_axes(node)
        at = [(axis, point[axis], 1) for axis in self.unrolled if axis in free]
        at += [(axis, self.starts[axis], n) for axis, n in self.vectors.items() if axis in free]
        return node, tuple(at)

    def value(self, node: Node, point: Point) -> Value:
        """`node` at `point`, printed in its home scope the first time it is needed; from scratch
        memory once it is there."""
        if node.op is Op.CONST:
            return self.literal(node)
        depth, key = self.home(node), self.key(node, point)
        cache = self.scopes[depth].cache
        if key not in cache:
            inner, self.scopes = self.scopes, self.scopes[: depth + 1]
            fill = self.staged.get(node)
            if fill and node in self.filled:
                node = Node(Op.LOAD, (fill.index,), Load(fill.parameter, node.dtype))
            if node.op is Op.FOLD:
                self._fold(node)
            elif node.op is Op.PREFIX:
                self._prefix(node, point)
            elif node.op in (Op.AXIS, Op.AFFINE):
                cache[key] = self._index_value(node, point)
            else:
                spelled = self.load if node.op is Op.LOAD else self.elementwise
                cache[key] = self.declare(spelled(node, point))
            if fill and fill.at is None and fill.value is node:
                self.store(fill, cache[key], point)
                self.stored.add(node)
            self.scopes = inner
        return cache[key]

    def elementwise(self, node: Node, point: Point) -> Value:
        return self.operation(node, [self.value(one, point) for one in node.src])

    def result(self, root: Node, point: Point) -> Value:
        """`value` of a root; operands come first, so that long chains need no deep recursion."""
        for node in _region(root, self.filled):
            self.value(node, point)
        return self.value(root, point)

    def index_text(self, index: Node, point: Point) -> str:
        """Text of a scalar index: that of the first lane; data in vectors count as 0."""
        terms, constant = ix.terms_of(index)
        parts = []
        for term, factor in terms.items():
            if term in point:
                constant += factor * point[term]
            elif term in self.vectors:
                constant += factor * self.starts[term]
            elif self.lanes_of(term) == 1:
                text = self.text_of[term] if term.op is Op.AXIS else self.value(term, point).text
                parts.append(f"{text}" if factor == 1 else f"{factor} * {text}")
        if constant or not parts:
            parts.append(str(constant))
        return " + ".join(parts)

    def _index_value(self, node: Node, point: Point) -> Value:
        """An index as data: its scalar terms as one text, to which each vector is added."""
        total = Value(f"(i64)({self.index_text(node, point)})", node.dtype)
        for term, factor in ix.terms_of(node)[0].items():
            if (lanes := self.lanes_of(term)) > 1:
                vector = self.lane_numbers(lanes) if term.op is Op.AXIS else self.value(term, point)
                vector = self.declare(vector._replace(text=f"({vector.text} * (i64){factor})"))
                total = self.declare(vector._replace(text=f"({vector.text} + {total.text})"))
        return total

    # Reductions.

    def _fold(self, node: Node) -> None:
        """Print the loops of `node` and of every reduction that can share them: those over its
        axes that are missing here, and whose own operands are there."""
        axes, depth = bound_axes(node), len(self.scopes) - 1
        self._folds_of(node.src)
        mates = (
            one for one in self._missing(self.nest.kernel.nodes)
            if bound_axes(one) == axes and self.home(one) == depth
            and not self._missing(toposort(one.src))
        )  # fmt: skip
        whole = dict.fromkeys(_component(mate, 0) for mate in mates)
        rows = self.nest.kernel.row_axes
        riders = [
            store for store in self.waiting if all(self.depth_of[row] <= depth for row in rows)
            and store.axes == (*rows, *axes) and store.parameter not in self.read
            and not self._missing(toposort([store.value]))
        ]  # fmt: skip
        sums = [Accumulation(one, at) for one in whole for at in self.points(free_axes(one))]
        self._pass(axes, sums, riders)
        for one in sums:  # the identity where the reduction was empty
            self._keep(one.fold, one.point, one.total or self.start(one.fold, 1, depth))

    def _pass(self, axes: Axes, sums: Sequence[Accumulation], stores: Sequence[Store]) -> None:
        """Print loops over `axes` that add to `sums` and do `stores`, which wait no longer."""
        self.waiting = [one for one in self.waiting if one not in stores]
        for _, segments in groupby(sorted(self.segments_of(axes), key=_lanes), key=_lanes):
            for segment in segments:
                with self.opened(segment):
                    for inner in self.points(axes):
                        for one in sums:
                            self._step(one, inner, len(sums) < MANY_SUMS)
                    self.stores(stores)
            self._join([one for one in sums if one.running])
        # What was stored in all of the loops over its axes is in scratch memory.
        inside = self.depth_of.keys() - set(self.nest.kernel.row_axes)
        self.filled |= {one for one in self.stored if inside.isdisjoint(free_axes(one))}

    def _folds_of(self, nodes: Iterable[Node]) -> None:
        """Print the missing reductions beneath `nodes` that the open scopes can hold."""
        for fold in self._missing(toposort(nodes)):
            self.value(fold, next(self.points(free_axes(fold))))

    def _missing(self, nodes: Iterable[Node]) -> list[Node]:
        """The reductions among `nodes` that the open scopes could hold, and do not. Those of all
        points of a tile are there at once."""
        bound = {axis for axis, depth in self.depth_of.items() if depth < len(self.scopes)}
        folds = (node for node in nodes if node.op is Op.FOLD and free_axes(node) <= bound)
        return [fold for fold in folds
                if self.key(fold, next(self.points(free_axes(fold))))
                not in self.scopes[self.home(fold)].cache]  # fmt: skip

    def _step(self, one: Accumulation, inner: Point, apart: bool) -> None:
        """Add what one point of the reduction's own tile contributes to an accumulator: one of
        this point alone, if `apart`, or one of all."""
        key = tuple(inner.values()) if apart else ()
        operands = tuple(self.result(part, one.point | inner) for part in operands_of(one.fold))
        total = () if self.vectors.keys() & set(bound_axes(one.fold)) else one.total
        if not total and key not in one.running:
            # A part that is the same in every lane still counts once for each.
            lanes = max(map(self.lanes_of, one.fold.src))
            one.running[key] = self.start(one.fold, lanes, self.home(one.fold))
        self.update(one.fold.arg.monoid, total or one.running[key], operands)

    def _join(self, sums: Iterable[Accumulation]) -> None:
        """Combine the accumulators of each sum to one, and the lanes of the reduction's own vector
        axis."""
        for fold, group in groupby(sums, key=lambda one: one.fold):
            monoid, ready = fold.arg.monoid, list(group)
            totals = [self._tree(monoid, list(one.running.values())) for one in ready]
            if totals[0][0].lanes > max(map(self.lanes_of, operands_of(fold))):
                totals = self._across(monoid, totals)
            for one, total in zip(ready, totals, strict=True):
                total = self._tree(monoid, [one.total, total]) if one.total else total
                one.total = tuple(self.declare(value, mutable=True) for value in total)
                one.running = {}

    def _across(self, monoid: Monoid, values: list[Values]) -> list[Values]:
        """Combine the lanes of each of `values`, as many at once as lanes go: halves of two make
        one vector, where they alternate, until each has one lane of the last vector."""
        count = min(values[0][0].lanes, 1 << len(values).bit_length() >> 1)
        rest, values = values[count:], values[:count]
        while (number := len(values)) > 1 or values[0][0].lanes > count:
            pairs = [zip(*values[at : at + 2], strict=True) for at in range(0, number, 2)]
            values = [
                self._tree(monoid, [
                    tuple(self.declare(self.half(one, side, count // number)) for one in parts)
                    for side in (0, 1)
                ])
                for parts in map(list, pairs)
            ]  # fmt: skip
        (last,) = values
        lanes = [tuple(self.lane(one, i) for one in last) for i in range(count)]
        return lanes + (self._across(monoid, rest) if rest else [])

    def _tree(self, monoid: Monoid, values: list[Values]) -> Values:
        while len(values) > 1:
            odd = values[len(values) // 2 * 2 :]
            values = [
                tuple(map(self.declare, self.combined(monoid, a, b)))
                for a, b in zip(values[::2], values[1::2], strict=False)
            ] + odd
        return values[0]

    def _prefix(self, node: Node, point: Point) -> None:
        """A running value, declared outside the loops of its axes and updated inside."""
        operands = tuple(self.value(one, point) for one in operands_of(node))
        outside = min(self.depth_of[axis] for axis in bound_axes(node)) - 1
        running = self.start(node, max(one.lanes for one in operands), outside)
        self.update(node.arg.monoid, running, operands)
        self._keep(node, point, tuple(map(self.declare, running)))

    def _keep(self, node: Node, point: Point, values: Values) -> None:
        """Remember every component of a reduction."""
        for part, value in enumerate(values):
            self.scopes[-1].cache[self.key(_component(node, part), point)] = value

    def start(self, node: Node, lanes: int, depth: int) -> Values:
        """Declare accumulators of a reduction that hold the identity, in an open scope."""
        inner, self.scopes = self.scopes, self.scopes[: depth + 1]
        dtypes = tuple(part.dtype for part in operands_of(node))
        started = []
        for identity, dtype in zip(node.arg.monoid.identity(dtypes), dtypes, strict=True):
            wide = Value("", dtype, lanes, 8 if dtype is bool_ and lanes > 1 else 0)
            text = self.widened(self.literal(const(identity, dtype)), wide)
            started.append(self.declare(wide._replace(text=text), mutable=True))
        self.scopes = inner
        return tuple(started)

    def update(self, monoid: Monoid, running: Values, operands: Values) -> None:
        """``running = combine(running, operands)``."""
        for target, value in zip(running, self.combined(monoid, running, operands), strict=True):
            self.line(f"{self.guard}{target.text} = {self.widened(value, target)};")

    def combined(self, monoid: Monoid, left: Values, right: Values) -> Values:
        """The monoid's combine of two tuples of values."""
        first, second, results = monoid.formula(tuple(one.dtype for one in left))
        if monoid.op is not None:  # one expression, so that the compiler sees a multiply-add
            return (self.operation(results[0], [*left, *right]),)
        known = dict(zip(first + second, left + right, strict=True))
        for node in toposort(results):
            if node not in known:
                operands = [known[operand] for operand in node.src]
                known[node] = self.declare(self.operation(node, operands))
        return tuple(known[result] for result in results)

    # Stores.

    def rows(self, segment: Segment) -> None:
        """Everything the kernel does for the rows of one segment."""
        kernel = self.nest.kernel
        self.filled, self.stored, self.waiting = frozenset(), set(), list(kernel.stores)
        with self.opened(segment):
            while self.waiting:
                axes = self.waiting[0].axes
                batch = [one for one in self.waiting if one.axes == axes]
                # Columns may share the axes of reductions, which come before what is overwritten.
                again = any(one.parameter in self.read for one in batch)
                self._folds_of(kernel.nodes if again else [one.value for one in batch])
                stores = [one for one in batch if one in self.waiting]
                self._pass(axes[kernel.rows :], (), stores)

    def stores(self, stores: Sequence[Store]) -> None:
        """At the points of the open tile, some at once, every value first, then every store."""
        every = list(self.points(stores[0].axes if stores else ()))
        for at in range(0, len(every), self.together):
            self.batch = every[at : at + self.together]
            ready = [(store, self.result(store.value, point), point)
                     for point in self.batch for store in stores]  # fmt: skip
            for store, value, point in ready:
                self.store(store, value, point)
        self.batch = ()


@lru_cache(maxsize=4096)
def _region(root: Node, filled: frozenset[Node]) -> list[Node]:
    """The elementwise nodes beneath `root`, operands first, down to loads, reductions, what is
    `filled`, and what may be looked up."""
    return toposort(
        [root], lambda one: one.op in Group.ELEMENTWISE and not (one in filled or digit_of(one))
    )


def digit_of(node: Node) -> Node | None:
    """The ``x & 15`` of which, and of constants, `node` is made, if it is."""
    while node.op in Group.ELEMENTWISE and all(one.op is Op.CONST for one in node.src[1:]):
        if node.op is Op.AND and node.src[1].arg.value == 15:
            return node
        node = node.src[0]
    return None


def _lanes(segment: Segment) -> int:
    """Minus the lanes of a segment: the widest vectors of a reduction come first."""
    return -max((int(run.extent) for run in segment.values() if run.how == "vector"), default=1)


def _vectors(axis: Node, count: int) -> list[Segment]:
    """An axis of vectors, or what is left of it: one for each power of two in its length."""
    bits = (bit for bit in reversed(range(1, count.bit_length())) if count >> bit & 1)
    wide = [{axis: Run("vector", 1 << bit, start=count & (-2 << bit))} for bit in bits]
    return [*wide, {axis: Run("fixed", count - 1)}] if count % 2 else wide


def _component(fold: Node, part: int) -> Node:
    return Node(fold.op, fold.src, fold.arg._replace(part=part))
