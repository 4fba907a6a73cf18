"""Printing a loop nest, shared by every target: where each value is computed, and in what order.

A value is printed in the outermost loop that binds every axis it depends on, so invariants leave
loops by themselves. An unrolled axis has no loop: values that depend on it are printed once for
each of its points. Reductions are in `reductions.py`.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import product
from typing import Any, NamedTuple, Protocol

from lamina.core.dtypes import DType
from lamina.graph import index as ix
from lamina.ir.kernel import Store, free_axes, points
from lamina.ir.node import Node, toposort
from lamina.ir.ops import Group, Load, Op
from lamina.loops.nest import IN_ONE_THREAD, IN_REGISTERS, Nest
from lamina.schedule.gpu.products import is_minor

LONGEST_COPY = 16  # neighbours that are copied without a loop

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
    "unroll" over `extent`, "fixed" at `extent`, a number or text; and the condition, if any. A
    loop over a block starts and stops at a text."""

    how: str
    extent: int | str
    condition: str = ""
    start: int | str = 0


Values = tuple[Value, ...]
Segment = dict[Node, Run]


@dataclass
class Scope:
    """The body of one loop: its lines, and the values already computed in it."""

    lines: list[str] = field(default_factory=list)
    cache: dict[Key, Value] = field(default_factory=dict)
    begun: dict[tuple[int, ...], Values] = field(default_factory=dict)  # before a step of threads


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


class ValuePrinter(Target):
    """Prints loops and the values in them, in what a subclass spells; another one prints what runs
    over loops of its own."""

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
        self.read = {one.arg.parameter for one in nest.kernel.of(Op.LOAD)}
        rows = nest.kernel.row_axes  # those whose index is given where the nest runs
        self.given = {axis for axis in rows if nest.bound(axis) not in IN_ONE_THREAD}
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

    def declared_at(self, depth: int, value: Value) -> Value:
        """Declare a variable that begins at `value` in the open scope of number `depth`."""
        inner, self.scopes = self.scopes, self.scopes[: depth + 1]
        variable = self.declare(value, mutable=True)
        self.scopes = inner
        return variable

    @contextmanager
    def opened(self, segment: Segment, order: Sequence[Node] = ()) -> Iterator[None]:
        """Open the loops of `segment` in the nest's order, then its tile; what is staged in the
        body of a loop is filled there. With another `order`, nothing is."""
        ordered = [axis for axis in order or self.nest.order if axis in segment]
        ordered.sort(key=lambda axis: segment[axis].how in IN_REGISTERS)
        tables: dict[str, dict[Node, Any]] = {"vector": self.vectors, "unroll": self.unrolled}
        headers, guard = list[str](), self.guard
        for axis in ordered:
            how, extent, condition, start = segment[axis]
            if condition and axis not in self.given:
                self.guard = f"if ({condition}) "
            if isinstance(start, int):
                self.starts[axis] = start
            if how == "loop":
                name = f"a{axis.arg.number}"
                stop = extent
                if isinstance(start, int) and isinstance(extent, int):
                    stop = start + extent
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
                for axis, run in runs.items():
                    if run.how in IN_REGISTERS and run != rows:
                        runs[axis] = run._replace(how="loop")
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
        splits = [self.nest.sub_loops(axis) for axis in axes if self.nest.is_head(axis)]
        for chosen in product(*(self.segments(*pieces) for pieces in splits)):
            yield {axis: run for segment in chosen for axis, run in segment.items()}

    def points(self, axes: Collection[Node]) -> Iterator[Point]:
        """Every point of the unrolled ones among `axes`."""
        tile = {axis: self.starts[axis] for axis in self.unrolled if axis in axes}
        for values in product(*(range(at, at + self.unrolled[one]) for one, at in tile.items())):
            yield dict(zip(tile, values, strict=True))

    def loop(self, axis: Node, name: str, start: int | str, stop: int | str) -> str:
        """The head of the loop over `axis`, whose index is `name`."""
        return f"for ({self.index} {name} = {start}; {name} < {stop}; {name}++) {{"

    def stride(self, axis: Node) -> int:
        """How far an iteration of the loop over `axis` is from the next one of the same thread."""
        return 1

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
            if node.op is Op.LOOP_REDUCE:
                self.loop_reduce(node)
            elif node.op is Op.LOOP_SCAN:
                self.prefix(node, point)
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

    def formula(self, results: Sequence[Node], known: dict[Node, Value]) -> Values:
        """The values of formulas over HOLEs, which are `known`."""
        for node in toposort(results):
            if node not in known:
                operands = [known[operand] for operand in node.src]
                known[node] = self.declare(self.operation(node, operands))
        return tuple(known[result] for result in results)

    # What a subclass prints.

    def loop_reduce(self, node: Node) -> None:
        """Print the loops of a reduction."""
        raise NotImplementedError

    def prefix(self, node: Node, point: Point) -> None:
        """Print the next step of a running value."""
        raise NotImplementedError

    # Stores.

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


def _vectors(axis: Node, count: int) -> list[Segment]:
    """An axis of vectors, or what is left of it: one for each power of two in its length."""
    bits = (bit for bit in reversed(range(1, count.bit_length())) if count >> bit & 1)
    wide = [{axis: Run("vector", 1 << bit, start=count & (-2 << bit))} for bit in bits]
    return [*wide, {axis: Run("fixed", count - 1)}] if count % 2 else wide
