"""Printing a loop nest, shared by every target: where each value is computed, and in what order.

A value is printed in the outermost loop that binds every axis it depends on, so invariants leave
loops by themselves. An unrolled axis has no loop: values that depend on it are printed once for
each of its points. A reduction opens its loops where its value is first needed; reductions over
the same axes that are ready at that place share them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import product
from typing import NamedTuple

from lamina.codegen.segments import Extent, Run, Segment, combinations
from lamina.dtypes import DType
from lamina.ir.kernel import Store, free_axes, roots_of
from lamina.ir.monoids import Monoid
from lamina.ir.node import Node, const, toposort
from lamina.ir.ops import Group, Hole, Op
from lamina.kernel.schedule import Nest
from lamina.simplify import index as ix

Point = dict[Node, int]
Key = tuple[Node, tuple[tuple[Node, int], ...]]


class Value(NamedTuple):
    """Text for a value. `lanes` > 1 is a vector; a vector of bool is a mask of `mask` bits."""

    text: str
    dtype: DType
    lanes: int = 1
    mask: int = 0


class Scope:
    """The body of one loop: its lines, and the values already computed in it."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.cache: dict[Key, Value] = {}


class NestPrinter:
    """Prints one nest; a target fills in the spelling of types, operations, loads and stores."""

    def __init__(self, nest: Nest) -> None:
        self.nest = nest
        self.scopes = [Scope()]
        self.depth_of: dict[Node, int] = {}  # axis -> number of the scope that binds it
        self.text_of: dict[Node, str] = {}  # looped axes
        self.unrolled: dict[Node, int] = {}  # axis -> its extent
        self.vectors: dict[Node, int] = {}  # axis -> lanes
        self._names = 0
        nodes = toposort(root for store in nest.kernel.stores for root in roots_of(store))
        self.folds = [node for node in nodes if node.op is Op.FOLD]
        self.rank = {axis: place for place, axis in enumerate(nest.order)}

    # What a target spells.

    def operation(self, node: Node, operands: list[Value], lanes: int) -> Value:
        """The expression of one elementwise operation."""
        raise NotImplementedError

    def load(self, node: Node, point: Point) -> Value:
        """The expression of a LOAD."""
        raise NotImplementedError

    def store(self, store: Store, value: Value, point: Point) -> None:
        """Print one store."""
        raise NotImplementedError

    def literal(self, node: Node) -> Value:
        """A constant."""
        raise NotImplementedError

    def lane_numbers(self, lanes: int) -> Value:
        """The vector 0, 1, ..., lanes - 1 of int64."""
        raise NotImplementedError

    def declare(self, value: Value, mutable: bool = False) -> Value:
        """Print a definition of a fresh name for `value`."""
        raise NotImplementedError

    def horizontal(self, values: tuple[Value, ...], lane: int) -> tuple[Value, ...]:
        """One lane of each vector."""
        raise NotImplementedError

    # Lines and scopes.

    def line(self, text: str) -> None:
        """Add a line to the innermost open scope."""
        self.scopes[-1].lines.append(text)

    def name(self, prefix: str = "t") -> str:
        """A fresh name."""
        self._names += 1
        return f"{prefix}{self._names}"

    def loop(self, axis: Node, run: Run, body: Callable[[], None]) -> None:
        """Bind a looped, fixed or given axis around `body`."""
        if run.how != "loop":
            self.depth_of[axis], self.text_of[axis] = len(self.scopes) - 1, str(run.extent)
            body()
            del self.depth_of[axis]
            return
        if run.extent == 0:
            return
        name = f"a{axis.arg.number}"
        scope = Scope()
        self.scopes.append(scope)
        self.depth_of[axis], self.text_of[axis] = len(self.scopes) - 1, name
        body()
        del self.depth_of[axis]
        self.scopes.pop()
        if scope.lines:
            self.line(self.loop_header(name, run.extent))
            self.scopes[-1].lines += ["    " + text for text in scope.lines]
            self.line("}")

    def loop_header(self, name: str, extent: Extent) -> str:
        return f"for (i64 {name} = 0; {name} < {extent}; {name}++) {{"

    def run_nest(self, segment: Segment, body: Callable[[], None]) -> None:
        """Open the loops of `segment` in the nest's order, then its tile, around `body`."""
        ordered = sorted(segment, key=self.rank.__getitem__)
        looped = [axis for axis in ordered if segment[axis].how not in ("unroll", "vector")]
        tile = [axis for axis in ordered if axis not in looped]

        def descend(place: int) -> None:
            if place < len(looped):
                axis = looped[place]
                self.loop(axis, segment[axis], lambda: descend(place + 1))
            else:
                self._with_tile({axis: segment[axis] for axis in tile}, body)

        descend(0)

    def _with_tile(self, tile: Segment, body: Callable[[], None]) -> None:
        for axis, run in tile.items():
            self.depth_of[axis] = len(self.scopes) - 1
            if run.how == "vector":
                self.vectors[axis] = axis.arg.size
            else:
                assert isinstance(run.extent, int)
                self.unrolled[axis] = run.extent
        body()
        for axis in tile:
            del self.depth_of[axis]
            self.vectors.pop(axis, None)
            self.unrolled.pop(axis, None)

    def points(self, axes: Sequence[Node]) -> Iterator[Point]:
        """Every point of the unrolled ones among `axes`."""
        tile = [axis for axis in axes if axis in self.unrolled]
        for values in product(*(range(self.unrolled[axis]) for axis in tile)):
            yield dict(zip(tile, values, strict=True))

    # Values.

    def lanes_of(self, node: Node) -> int:
        """1, or the lanes of the vector axis that `node` depends on."""
        if not self.vectors:
            return 1
        return max((self.vectors.get(axis, 1) for axis in free_axes(node)), default=1)

    def home(self, node: Node) -> int:
        """The number of the outermost scope where `node` can be computed."""
        return max((self.depth_of[axis] for axis in free_axes(node)), default=0)

    def key(self, node: Node, point: Point) -> Key:
        if not self.unrolled:
            return node, ()
        free = free_axes(node)
        return node, tuple((axis, point[axis]) for axis in self.unrolled if axis in free)

    def value(self, node: Node, point: Point) -> Value:
        """`node` at `point`, printed in its home scope the first time it is needed."""
        if node.op is Op.CONST:
            return self.literal(node)
        depth = self.home(node)
        key = self.key(node, point)
        found = self.scopes[depth].cache.get(key)
        if found is not None:
            return found
        if node.op is Op.FOLD:
            self._fold(node, depth)
            return self.scopes[depth].cache[key]
        saved = self.scopes
        self.scopes = saved[: depth + 1]
        result = self._compute(node, point)
        self.scopes[-1].cache[key] = result
        self.scopes = saved
        return result

    def result(self, root: Node, point: Point) -> Value:
        """`value` of a root; operands come first, so that long chains need no deep recursion."""
        for node in _region(root):
            self.value(node, point)
        return self.value(root, point)

    def _compute(self, node: Node, point: Point) -> Value:
        if node.op in (Op.AXIS, Op.AFFINE):
            return self._index_value(node, point)
        if node.op is Op.LOAD:
            return self.declare(self.load(node, point))
        if node.op is Op.PREFIX:
            return self._prefix(node, point)
        operands = [self.value(operand, point) for operand in node.src]
        return self.declare(self.operation(node, operands, max(one.lanes for one in operands)))

    def index_text(self, index: Node, point: Point) -> str:
        """C text of a scalar index; vector axes count as 0."""
        terms, constant = ix.terms_of(index)
        parts = []
        for term, factor in terms.items():
            if term in self.vectors and term not in point:
                continue
            if term.op is Op.AXIS and term in point:
                constant += factor * point[term]
                continue
            text = self.text_of[term] if term.op is Op.AXIS else self.value(term, point).text
            parts.append(text if factor == 1 else f"{factor} * {text}")
        if constant or not parts:
            parts.append(str(constant))
        return " + ".join(parts)

    def _index_value(self, node: Node, point: Point) -> Value:
        terms, _ = ix.terms_of(node)
        lanes = self.lanes_of(node)
        if lanes > 1 and any(
            term.op is not Op.AXIS and self.lanes_of(term) > 1 for term in terms
        ):
            return self.declare(self._vector_sum(node, point, lanes))
        text = self.index_text(node, point)
        scalar = Value(f"({text})", node.dtype)
        if lanes == 1:
            return scalar
        factor = sum(terms[axis] for axis in terms if axis in self.vectors and axis not in point)
        step = Node(Op.MUL, (_hole("lane", node.dtype), const(factor, node.dtype)))
        total = Node(Op.ADD, (step, _hole("base", node.dtype)))
        holes = {
            _hole("lane", node.dtype): self.lane_numbers(lanes), _hole("base", node.dtype): scalar,
        }  # fmt: skip
        self.template((total,), holes)
        return holes[total]

    def _vector_sum(self, node: Node, point: Point, lanes: int) -> Value:
        """An affine form with vector operands that are not axes: spell it out."""
        terms, constant = ix.terms_of(node)
        total: Node = const(constant, node.dtype)
        for term, factor in terms.items():
            total = Node(Op.ADD, (total, Node(Op.MUL, (term, const(factor, node.dtype)))))
        return self.value(total, point)

    def template(self, nodes: Sequence[Node], memo: dict[Node, Value]) -> None:
        """Print scalar expressions over holes in the innermost scope; `memo`, which has the
        values of the holes, gets those of every node beneath."""
        for one in toposort(nodes):
            if one in memo:
                continue
            if one.op is Op.CONST:
                memo[one] = self.literal(one)
                continue
            operands = [memo[operand] for operand in one.src]
            lanes = max(operand.lanes for operand in operands)
            memo[one] = self.declare(self.operation(one, operands, lanes))

    # Reductions.

    def _fold(self, node: Node, depth: int) -> None:
        """Print the loops of `node` and of every reduction that can share them."""
        saved = self.scopes
        self.scopes = saved[: depth + 1]
        mates = self._mates(node, depth)
        axes = node.src[node.arg.monoid.arity :]
        sums: dict[tuple[Monoid, tuple[Node, ...]], list[Node]] = {}
        for mate in mates:
            parts = mate.src[: mate.arg.monoid.arity]
            sums[mate.arg.monoid, parts] = [*sums.get((mate.arg.monoid, parts), []), mate]
        printers = [
            Accumulation(self, monoid, parts, axes, point)
            for monoid, parts in sums
            for point in self.points(_ordered_free(self, parts, axes))
        ]
        for vector in (True, False):
            for segment in combinations(self.nest, axes):
                if any(run.how == "vector" for run in segment.values()) is vector:
                    self.run_nest(segment, lambda: _step(self, printers, axes))
            for printer in printers:
                printer.narrow()
        for (monoid, parts), found in sums.items():
            for printer in printers:
                if printer.monoid is monoid and printer.parts == parts:
                    for mate in found:
                        key = self.key(mate, printer.point)
                        self.scopes[depth].cache[key] = printer.result(mate.arg.part)
        self.scopes = saved

    def _mates(self, node: Node, depth: int) -> list[Node]:
        axes = node.src[node.arg.monoid.arity :]
        for inner in self._inner_folds(node, depth):
            for point in self.points(tuple(free_axes(inner))):
                self.value(inner, point)
        return [
            fold
            for fold in self.folds
            if fold is node
            or (
                fold.src[fold.arg.monoid.arity :] == axes
                and free_axes(fold) <= self.depth_of.keys()
                and self.home(fold) == depth
                and not any(self._missing(one) for one in self._inner_folds(fold, depth))
                and self._missing(fold)
            )
        ]

    def _inner_folds(self, node: Node, depth: int) -> list[Node]:
        """Reductions inside `node` that do not run in its loops."""
        axes = frozenset(node.src[node.arg.monoid.arity :])
        inside = toposort(node.src[: node.arg.monoid.arity])
        return [one for one in inside if one.op is Op.FOLD and not free_axes(one) & axes]

    def _missing(self, fold: Node) -> bool:
        free = free_axes(fold)
        if not free <= self.depth_of.keys():
            return True
        cache = self.scopes[self.home(fold)].cache if self.home(fold) < len(self.scopes) else {}
        return any(self.key(fold, point) not in cache for point in self.points(tuple(free)))

    def _prefix(self, node: Node, point: Point) -> Value:
        """A running value, declared outside the loops of its axes and updated inside."""
        monoid = node.arg.monoid
        parts, axes = node.src[: monoid.arity], node.src[monoid.arity :]
        outside = min(self.depth_of[axis] for axis in axes) - 1
        operands = tuple(self.value(one, point) for one in parts)
        lanes = max(operand.lanes for operand in operands)
        inner, self.scopes = self.scopes, self.scopes[: outside + 1]
        running = self.start(monoid, parts, lanes)
        self.scopes = inner
        self.update(monoid, running, operands)
        for number, one in enumerate(running):
            same = Node(Op.PREFIX, node.src, node.arg._replace(part=number))
            self.scopes[-1].cache[self.key(same, point)] = self.declare(one)
        return self.scopes[-1].cache[self.key(node, point)]

    def start(self, monoid: Monoid, parts: tuple[Node, ...], lanes: int) -> tuple[Value, ...]:
        """Declare accumulators that hold the identity."""
        dtypes = tuple(part.dtype for part in parts)
        return tuple(
            self.accumulator(self.literal(const(identity, dtype)), lanes)
            for identity, dtype in zip(monoid.identity(dtypes), dtypes, strict=True)
        )

    def accumulator(self, identity: Value, lanes: int) -> Value:
        """Declare a mutable value that holds `identity` in every lane."""
        raise NotImplementedError

    def update(
        self, monoid: Monoid, running: tuple[Value, ...], operands: tuple[Value, ...]
    ) -> None:
        """``running = combine(running, operands)``."""
        for target, value in zip(running, self.combined(monoid, running, operands), strict=True):
            self.assign(target, value)

    def assign(self, target: Value, value: Value) -> None:
        """Print an assignment, converting masks."""
        raise NotImplementedError

    def combined(
        self, monoid: Monoid, left: tuple[Value, ...], right: tuple[Value, ...]
    ) -> tuple[Value, ...]:
        """The monoid's combine of two tuples of values."""
        first = tuple(_hole(f"a{i}", value.dtype) for i, value in enumerate(left))
        second = tuple(_hole(f"b{i}", value.dtype) for i, value in enumerate(right))
        holes = dict(zip(first + second, left + right, strict=True))
        results = monoid.combine(first, second)
        if monoid.op is not None:  # one expression, so that the compiler sees a multiply-add
            lanes = max(left[0].lanes, right[0].lanes)
            return (self.operation(results[0], [left[0], right[0]], lanes),)
        self.template(results, holes)
        return tuple(holes[result] for result in results)

    # Stores.

    def stores(self, stores: Sequence[Store]) -> None:
        """Every value first, then every store, at every point of the open tile."""
        axes = stores[0].axes
        ready = [
            (store, self.result(store.value, point), point)
            for point in self.points(axes)
            for store in stores
        ]
        for store, value, point in ready:
            self.store(store, value, point)

    def rows(self, segment: Segment) -> None:
        """Everything the kernel does for the rows of one segment."""

        def body() -> None:
            groups: dict[tuple[Node, ...], list[Store]] = {}
            for store in self.nest.kernel.stores:
                groups.setdefault(store.axes, []).append(store)
            for axes, stores in groups.items():
                inner = functools.partial(self.stores, stores)
                for columns in combinations(self.nest, axes[self.nest.kernel.rows :]):
                    self.run_nest(columns, inner)

        self.run_nest(segment, body)


class Accumulation:
    """The accumulators of one reduction at one point of the open tile."""

    def __init__(
        self,
        printer: NestPrinter,
        monoid: Monoid,
        parts: tuple[Node, ...],
        axes: Sequence[Node],
        point: Point,
    ) -> None:
        self.printer = printer
        self.axes = axes
        self.monoid = monoid
        self.parts = parts
        self.point = point
        self.running: dict[tuple[int, ...], tuple[Value, ...]] = {}
        self.total: tuple[Value, ...] | None = None
        self.scope = len(printer.scopes)

    def step(self, inner: Point) -> None:
        """Combine the parts at one point of the reduction's own tile."""
        point = self.point | inner
        operands = tuple(self.printer.result(part, point) for part in self.parts)
        # A part that is the same in every lane still counts once for each.
        varying = (*self.parts, *(axis for axis in self.axes if axis in self.printer.vectors))
        lanes = max(self.printer.lanes_of(one) for one in varying)
        self.printer.update(self.monoid, self._accumulators(inner, lanes), operands)

    def _accumulators(self, inner: Point, lanes: int) -> tuple[Value, ...]:
        if self.total is not None:
            return self.total
        key = tuple(inner.values())
        if key not in self.running:
            printer = self.printer
            saved, printer.scopes = printer.scopes, printer.scopes[: self.scope]
            self.running[key] = printer.start(self.monoid, self.parts, lanes)
            printer.scopes = saved
        return self.running[key]

    def narrow(self) -> None:
        """Join the accumulators into one; lanes of the reduction's own vector axis too."""
        if self.total is not None or not self.running:
            return
        values = list(self.running.values())
        joined = self._tree(values)
        own = max(self.printer.lanes_of(part) for part in self.parts)
        if joined[0].lanes > own:
            lanes = [
                self.printer.horizontal(joined, lane) for lane in range(joined[0].lanes)
            ]
            joined = self._tree(lanes)
        self.total = tuple(self.printer.declare(one, mutable=True) for one in joined)

    def _tree(self, values: list[tuple[Value, ...]]) -> tuple[Value, ...]:
        while len(values) > 1:
            pairs = [
                tuple(
                    map(
                        self.printer.declare,
                        self.printer.combined(self.monoid, values[i], values[i + 1]),
                    )
                )
                for i in range(0, len(values) - 1, 2)
            ]
            values = pairs + values[len(values) // 2 * 2 :]
        return values[0]

    def result(self, part: int) -> Value:
        """Component `part`; the identity where the reduction was empty."""
        if self.total is None:
            self.total = self.printer.start(self.monoid, self.parts, 1)
        return self.total[part]


@lru_cache(maxsize=4096)
def _region(root: Node) -> tuple[Node, ...]:
    """The elementwise nodes beneath `root`, operands first, down to loads and reductions."""
    order: list[Node] = []
    seen = {root}
    stack = [(root, False)]
    while stack:
        node, ready = stack.pop()
        if ready:
            order.append(node)
        elif node.op in Group.ELEMENTWISE:
            stack.append((node, True))
            fresh = [one for one in dict.fromkeys(node.src) if one not in seen]
            seen.update(fresh)
            stack.extend((one, False) for one in fresh)
    return tuple(order)


def _step(printer: NestPrinter, sums: list[Accumulation], axes: Sequence[Node]) -> None:
    for inner in printer.points(axes):
        for one in sums:
            one.step(inner)


def _ordered_free(
    printer: NestPrinter, parts: tuple[Node, ...], axes: Sequence[Node]
) -> list[Node]:
    free = frozenset[Node]().union(*map(free_axes, parts)) - frozenset(axes)
    return [axis for axis in printer.unrolled if axis in free]


def _hole(name: str, dtype: DType) -> Node:
    return Node(Op.HOLE, (), Hole(name, dtype))
