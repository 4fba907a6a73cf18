"""Printing a loop nest, shared by every target: where each value is computed, and in what order.

A value is printed in the outermost loop that binds every axis it depends on, so invariants leave
loops by themselves. An unrolled axis has no loop: values that depend on it are printed once for
each of its points. Reductions and scans are in `reductions.py`.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import product
from typing import Any, Literal, NamedTuple, Protocol

from lamina.core.dtypes import DType
from lamina.graph import index as ix
from lamina.ir.kernel import Store, free_axes, points
from lamina.ir.node import Node, toposort
from lamina.ir.ops import Group, Load, Op
from lamina.loops.nest import IN_ONE_THREAD, IN_REGISTERS, Nest
from lamina.schedule.gpu.products import is_minor
from lamina.targets.names import axis_names

LONGEST_COPY = 16  # iterations of a loop that fills scratch memory, up to which it is unrolled
LOOKUP_LANES = 16  # a value of four bits is an index into a register of so many lanes

Point = dict[Node, int]  # unrolled axis -> index
Key = tuple[Node, tuple[tuple[Node, int, int], ...]]  # value; axis, index, and lanes of each axis


class Value(NamedTuple):
    """Text for a value. `lanes` > 1 is a vector; a vector of bool is a mask, whose elements have
    `mask` bits. All other values have 0 there."""

    text: str
    dtype: DType
    lanes: int = 1
    mask: int = 0


Values = tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class LoopPart:
    """How one axis runs in one part of the iteration space, such as the main or the tail part.

    how      the axis becomes
    loop     a loop of `extent` iterations from `start` on; where both are texts, `extent` is the
             index at which the loop stops
    vector   the lanes of vectors: `extent` of them, the first at index `start`
    unroll   copies of the text, one for each of `extent` indices from `start` on
    fixed    no loop: its index is `index`, a number or text; of the bytes of a dot product, the
             first `extent` are there

    `condition` is a text that decides whether this part runs; "" if it always does.
    """

    how: Literal["loop", "vector", "unroll", "fixed"]
    extent: int | str = 1
    start: int | str = 0
    index: int | str = 0
    condition: str = ""


NestPart = dict[Node, LoopPart]


@dataclass
class Scope:
    """The body of one loop: its lines, and the values already computed in it."""

    lines: list[str] = field(default_factory=list)
    cache: dict[Key, Value] = field(default_factory=dict)
    # Per unrolled row, the running value of a scan at the end of the step before.
    scan_ends: dict[tuple[int, ...], Values] = field(default_factory=dict)


class Target(Protocol):
    """What a target spells: types, expressions, and printed stores."""

    def type(self, value: Value) -> str: ...
    def literal(self, node: Node) -> Value: ...
    def operation(self, node: Node, operands: list[Value]) -> Value: ...
    def widened(self, value: Value, to: Value) -> str:
        """The text of `value` with the lanes and the mask of `to`."""
        ...

    def lane(self, value: Value, number: int) -> Value: ...
    def half(self, vectors: Sequence[Value], side: int, run: int) -> Value:
        """Half of the numbers of one or two vectors: side 0 is the first half, 1 the second. Of two
        vectors a and b, the halves are in one vector, in which `run` lanes of each take turns: of 4
        lanes each, side 0 and run 1 are a[0], b[0], a[1], b[1]; run 2 is a[0], a[1], b[0], b[1]."""
        ...

    def lane_numbers(self, lanes: int) -> Value:
        """The int64 vector 0, 1, ..., lanes - 1."""
        ...

    def load(self, node: Node, point: Point) -> Value: ...
    def store(self, store: Store, value: Value, point: Point) -> None: ...


class ValuePrinter(Target):
    """Prints loops and the values in them. A subclass spells operations, another one prints what
    opens loops of its own: reductions and scans."""

    index = "i64"  # the type of an index
    # Points of a tile whose values are computed before any is stored: all, as no tile has more.
    batch_points = 1 << 16
    # Those points, while they are computed; () outside of stores. GPUs read it in `value`, where
    # they print the loads of all of its points at once.
    batch: Sequence[Point] = ()

    def __init__(self, nest: Nest) -> None:
        self.nest = nest
        self.scopes = [Scope()]
        self.depth_of: dict[Node, int] = {}  # axis -> number of the scope that binds it
        # Each open axis is in one of the next three tables, by how it runs.
        self.text_of: dict[Node, int | str] = {}  # axis with a loop, or with a fixed index -> index
        self.unrolled: dict[Node, int] = {}  # axis -> its extent
        self.vectors: dict[Node, int] = {}  # axis -> lanes
        self.starts: dict[Node, int] = {}  # axis -> its first index in this part
        self.staged = {fill.value: fill for fill in nest.fills}
        self.filled = frozenset[Node]()  # staged values that scratch memory holds in the open loops
        self.stored_late = set[Node]()  # staged values that depend on reductions, already stored
        self.read = {load.arg.parameter for load in nest.kernel.of(Op.LOAD)}
        rows = nest.kernel.row_axes
        # The axes whose index the launch gives: of a CPU's chunks, a GPU's blocks and threads.
        self.launch_axes = {axis for axis in rows if nest.bound(axis) not in IN_ONE_THREAD}
        self.guard = ""  # an ``if`` before whatever the open loops add up and store
        self.names = {} if nest.product else axis_names(nest)
        self._variables = 0

    # Lines, scopes and axes.

    def line(self, text: str) -> None:
        self.scopes[-1].lines.append(text)

    def axis_name(self, axis: Node) -> str:
        """The variable that holds the index of `axis`; of an axis of tiles, ``a`` and its number,
        because their helper functions have variables named as rows and columns."""
        return self.names.get(axis) or f"a{axis.arg.number}"

    def fresh_name(self, what: str) -> str:
        self._variables += 1
        return f"{what}_{self._variables}"

    def declare(self, value: Value, what: str, mutable: bool = False) -> Value:
        """Print a definition of `value`, whose name says `what` it is."""
        name = self.fresh_name(what)
        qualifier = "" if mutable else "const "
        self.line(f"{qualifier}{self.type(value)} {name} = {value.text};")
        return value._replace(text=name)

    @contextmanager
    def at_depth(self, depth: int) -> Iterator[None]:
        """Print into the open scope of number `depth`, not into the innermost one."""
        every = self.scopes
        self.scopes = every[: depth + 1]
        yield
        self.scopes = every

    def declared_at(self, depth: int, value: Value, what: str) -> Value:
        """Declare a variable that begins at `value` in the open scope of number `depth`."""
        with self.at_depth(depth):
            return self.declare(value, what, mutable=True)

    @contextmanager
    def opened(
        self, nest_part: NestPart, order: Sequence[Node] = (), inside: NestPart | None = None
    ) -> Iterator[None]:
        """Open the loops of `nest_part` in the nest's order, vectors and unrolled axes innermost.

        A value staged in the body of a loop is computed as soon as that loop is open. `order`: of
        the loops that themselves fill scratch memory, in which nothing is staged again. `inside`:
        how axes run that are opened later, as far as what is staged varies along them.
        """
        axes = [axis for axis in order or self.nest.order if axis in nest_part]
        axes.sort(key=lambda axis: nest_part[axis].how in IN_REGISTERS)
        guard_outside, heads = self.guard, list[str]()
        for axis in axes:
            loop_part = nest_part[axis]
            if loop_part.condition and axis not in self.launch_axes:
                # Conditions on launch axes stand around the whole part instead.
                self.guard = f"if ({loop_part.condition}) "
            if loop_part.how == "loop":
                heads.append(self._loop_head(axis, loop_part))
                self.scopes.append(Scope())
            self._bind(axis, loop_part)
            if not order:
                self._fill_at(axis, (inside or {}) | nest_part)
        yield
        self.guard = guard_outside
        for axis in axes:
            del self.depth_of[axis], self._table(nest_part[axis])[axis]
        for head in reversed(heads):
            self._close_loop(head)

    def _loop_head(self, axis: Node, loop_part: LoopPart) -> str:
        start, stop = loop_part.start, loop_part.extent
        if isinstance(start, int) and isinstance(stop, int):
            stop = start + stop
        return self.loop(axis, self.axis_name(axis), start, stop)

    def _close_loop(self, head: str) -> None:
        """Close the innermost scope, and print it as the body of a loop unless it is empty."""
        lines = self.scopes.pop().lines
        if lines:
            self.scopes[-1].lines += [head, *("    " + text for text in lines), "}"]

    def _table(self, loop_part: LoopPart) -> dict[Node, Any]:
        """The table of open axes that run as `loop_part` does."""
        tables: dict[str, dict[Node, Any]] = {"vector": self.vectors, "unroll": self.unrolled}
        return tables.get(loop_part.how, self.text_of)

    def _bind(self, axis: Node, loop_part: LoopPart) -> None:
        """Make `axis` known in the innermost scope."""
        if isinstance(loop_part.start, int):
            self.starts[axis] = loop_part.start
        known: int | str = loop_part.extent
        if loop_part.how == "loop":
            known = self.axis_name(axis)
        elif loop_part.how == "fixed":
            known = loop_part.index
        self._table(loop_part)[axis] = known
        self.depth_of[axis] = len(self.scopes) - 1

    def _fill_at(self, axis: Node, nest_part: NestPart) -> None:
        """Compute the values that are staged in the body of the loop over `axis`, which is open, as
        soon as all else that they depend on is open too."""
        for fill in self.nest.fills:
            if fill.at is axis and free_axes(fill.value) - {*fill.axes} <= self.depth_of.keys():
                self._fill(fill, nest_part)

    def _fill(self, fill: Store, nest_part: NestPart) -> None:
        """Print the loops that fill scratch memory, inside those of `nest_part` that are open.

        Axes of `nest_part` that open only later, such as its vectors, run here as they do there;
        others are divided into main and tail parts. Loops are in the order of scratch memory; where
        the elements of the array that is read are neighbours along one of them, in that array's.
        """
        self.filled -= {fill.value}  # until it is filled anew, the value is computed
        others = [axis for axis in fill.axes if axis not in nest_part]
        contiguous = self.contiguous_axis(fill)
        for rest in self.nest_parts(others):
            known = nest_part | rest
            order = [axis for axis in fill.axes if axis not in self.depth_of]
            loops = {axis: known[axis] for axis in order}
            if contiguous in loops and loops[contiguous].how == "loop":
                order.sort(key=lambda axis: axis is contiguous)  # it becomes the innermost one
                loops = _in_order_of_memory(loops, contiguous)
            with self.opened(loops, order):
                self.stores([fill])
        self.filled |= {fill.value}

    def contiguous_axis(self, fill: Store) -> Node | None:
        """The axis of `fill` along which what it reads is contiguous in memory, if any."""
        return next((axis for axis in fill.axes if is_minor(fill.value, axis)), None)

    def partition(self, sub_loops: Sequence[Node], extent: int) -> list[NestPart]:
        """The parts, main and tail, that together run the first `extent` iterations of an axis that
        was split into `sub_loops`, outermost first.

        Full blocks get constant inner sizes, and what is left over gets a nest of its own, so that
        vectors and unrolled tiles stay exact: 70 iterations in blocks of 32 are a main part of 2
        blocks of 32, and a tail of 6 at block number 2.
        """
        if not sub_loops:
            return [{}]
        axis, rest = sub_loops[0], sub_loops[1:]
        block = points(rest)
        count, tail = divmod(extent, block)
        how = self.nest.bound(axis)
        if axis in self.launch_axes:
            return self._partition_launched(axis, rest, count, tail)
        if how == "dot":  # one instruction runs all of it, `extent` of four
            return [{axis: LoopPart("fixed", extent)}]
        # A reduction whose count is no power of two has no tail of shorter vectors, each of which
        # would need accumulators of its own: it is a loop.
        if how == "vector" and (not axis.arg.reduce or count.bit_count() == 1):
            vectors = [
                part | inside for part in _vectors(axis, count)
                for inside in self.partition(rest, block)
            ]  # fmt: skip
            # A loop, as values of a scope are told apart by lanes, not by an index that is fixed.
            last = LoopPart("loop", 1, start=count)
            return vectors + self._joined_parts(axis, rest, (last, tail))
        main = LoopPart("unroll" if how == "unroll" else "loop", count)
        last = LoopPart("fixed", index=count)
        if how == "thread":  # one thread runs the tail
            last = LoopPart("loop", 1, start=count)
        return self._joined_parts(axis, rest, (main, block if count else 0), (last, tail))

    def _partition_launched(
        self, axis: Node, rest: Sequence[Node], count: int, tail: int
    ) -> list[NestPart]:
        """`partition` where the launch gives the index of the outermost axis, `axis`: `count` full
        blocks, and `tail` iterations that are left for one more."""
        name, block = self.axis_name(axis), points(rest)
        # Has the launch just one index more than full blocks? It may have several, of which the
        # last ones do nothing, where `axis` is within the tail of another axis of the launch.
        is_ragged = count + 1 == axis.arg.size
        if is_ragged and [*map(self.nest.bound, rest)] == ["serial"]:  # one loop serves both
            inner = LoopPart("loop", f"({name} < {count} ? {block} : {tail})")
            return [{axis: LoopPart("fixed", index=name), rest[0]: inner}]
        is_full = f"{name} < {count}" if count < axis.arg.size else ""
        main = LoopPart("fixed", index=name, condition=is_full)
        last = LoopPart("fixed", index=name, condition=f"{name} == {count}")
        return self._joined_parts(axis, rest, (main, block if count else 0), (last, tail))

    def _joined_parts(
        self, axis: Node, rest: Sequence[Node], *cases: tuple[LoopPart, int]
    ) -> list[NestPart]:
        """The parts of each case: how `axis` runs, and how many iterations `rest` then has; no part
        for a case of 0 iterations."""
        return [
            {axis: loop_part} | inner
            for loop_part, inside in cases
            if inside
            for inner in self.partition(rest, inside)
        ]

    def nest_parts(self, axes: Iterable[Node]) -> Iterator[NestPart]:
        """Every combination of the main and tail parts of the axes whose sub-loops are `axes`.

        An axis counts by its outermost sub-loop, and then with all of its sub-loops: inner ones
        among `axes` add nothing, and are left out where the outermost one is not among `axes`.
        Two axes with a tail each have four combinations; no axes have one, which is empty.
        """
        splits = [self.nest.sub_loops(axis) for axis in axes if self.nest.is_head(axis)]
        for combination in product(*(self.partition(*split) for split in splits)):
            yield {axis: loop_part for part in combination for axis, loop_part in part.items()}

    def sharing_fills(self, parts: Iterable[NestPart]) -> list[list[NestPart]]:
        """Groups of `parts` that need the same values in scratch memory: parts that are alike in
        the outermost loop that fills it, in the loops around that, and in the axes of these values.
        Where none fills, each part is a group.

        Main and tail tiles of rows share a packed panel of columns, which is filled once for both.
        `split_at_fills` separates the loops that a group has in common.
        """
        groups: dict[tuple[LoopPart, ...], list[NestPart]] = {}
        for part in parts:
            common = self._axes_of_fills(part) or part.keys()  # no two parts are alike in all axes
            key = tuple(part[axis] for axis in part if axis in common)
            groups.setdefault(key, []).append(part)
        return list(groups.values())

    def split_at_fills(self, part: NestPart) -> tuple[NestPart, NestPart]:
        """`part` in two: the loops down to the outermost one that fills scratch memory, with those
        over blocks and threads; and the others, which run inside. Of a0, of a1 that fills, and of
        a2: (a0, a1) and (a2). Nothing and all of them if none fills."""
        outer = self._loops_to_fill(part)
        inner = {axis: loop_part for axis, loop_part in part.items() if axis not in outer}
        return {axis: part[axis] for axis in outer}, inner

    def _loops_to_fill(self, part: NestPart) -> list[Node]:
        """The loops of `part` down to the outermost one that fills scratch memory, and those over
        blocks and threads wherever they are, as they print no loop; [] if none fills."""
        loops = [axis for axis in self.nest.order if axis in part]
        loops = [axis for axis in loops if part[axis].how not in IN_REGISTERS]
        filling = [axis for axis in loops if any(fill.at is axis for fill in self.nest.fills)]
        if not filling:
            return []
        inside = loops[loops.index(filling[0]) + 1 :]
        return [axis for axis in loops if axis not in inside or axis in self.launch_axes]

    def _axes_of_fills(self, part: NestPart) -> set[Node]:
        """The loops of `_loops_to_fill`, and the axes of `part` that scratch memory filled in them
        has. None if no loop fills."""
        outer = self._loops_to_fill(part)
        fills = [fill for fill in self.nest.fills if fill.at in outer]
        return {*outer, *(axis for fill in fills for axis in fill.axes if axis in part)}

    def points(self, axes: Collection[Node]) -> Iterator[Point]:
        """Every point of the unrolled ones among `axes`, the last the fastest; {} if none is."""
        tile = [axis for axis in self.unrolled if axis in axes]
        indices = [
            range(self.starts[axis], self.starts[axis] + self.unrolled[axis]) for axis in tile
        ]
        for values in product(*indices):
            yield dict(zip(tile, values, strict=True))

    def loop(self, axis: Node, name: str, start: int | str, stop: int | str) -> str:
        """The head of the loop over `axis`, whose index is `name`."""
        return f"for ({self.index} {name} = {start}; {name} < {stop}; {name}++) {{"

    def stride(self, axis: Node) -> int:
        """By how much the index of the loop over `axis` grows from one iteration to the next."""
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
        """What tells values of one scope apart: the node, the point, and which lanes. Axes that the
        node does not depend on are left out, so that all of their points share its value."""
        free = free_axes(node)
        at = [(axis, point[axis], 1) for axis in self.unrolled if axis in free]
        at += [(axis, self.starts[axis], n) for axis, n in self.vectors.items() if axis in free]
        return node, tuple(at)

    def value(self, node: Node, point: Point) -> Value:
        """`node` at `point`, printed in its home scope when it is first needed, or read from
        scratch memory once that holds it."""
        if node.op is Op.CONST:
            return self.literal(node)
        depth, key = self.home(node), self.key(node, point)
        cache = self.scopes[depth].cache
        if key not in cache:
            every, self.scopes = self.scopes, self.scopes[: depth + 1]  # `at_depth`, but faster
            self._compute(node, point, key)
            self.scopes = every
        return cache[key]

    def _compute(self, node: Node, point: Point, key: Key) -> None:
        """Print `node` in the innermost scope, and remember it there as `key`."""
        cache = self.scopes[-1].cache
        fill = self.staged.get(node)
        if fill and node in self.filled:  # from here on `node` is a load of scratch memory
            node = Node(Op.LOAD, (fill.index,), Load(fill.parameter, node.dtype))
        if node.op is Op.LOOP_REDUCE:
            self.loop_reduce(node)
        elif node.op is Op.LOOP_SCAN:
            self.scan(node, point)
        elif node.op in (Op.AXIS, Op.AFFINE):
            cache[key] = self._index_value(node, point)
        elif node.op is Op.LOAD:
            cache[key] = self.declare(self.load(node, point), "load")
        else:
            cache[key] = self.declare(self.elementwise(node, point), node.op.name.lower())
        if fill and fill.at is None and node is fill.value:  # and no load of scratch memory
            # It depends on reductions, and was computed here for the first time.
            self.store(fill, cache[key], point)
            self.stored_late.add(node)

    def elementwise(self, node: Node, point: Point) -> Value:
        return self.operation(node, [self.value(operand, point) for operand in node.src])

    def result(self, root: Node, point: Point) -> Value:
        """`value` of a root; operands come first, so that long chains need no deep recursion."""
        for node in _region(root, self.filled):
            self.value(node, point)
        return self.value(root, point)

    def index_text(self, index: Node, point: Point) -> str:
        """Text of a scalar index: that of the first lane, where terms that are vectors of data
        count as 0."""
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
            lanes = self.lanes_of(term)
            if lanes > 1:
                vector = self.lane_numbers(lanes) if term.op is Op.AXIS else self.value(term, point)
                vector = vector._replace(text=f"({vector.text} * (i64){factor})")
                vector = self.declare(vector, "step")
                total = vector._replace(text=f"({vector.text} + {total.text})")
                total = self.declare(total, "index")
        return total

    def formula(self, results: Sequence[Node], known: dict[Node, Value]) -> Values:
        """The values of formulas over HOLEs, which are `known`; what is computed on the way is
        added to `known`."""
        for node in toposort(results):
            if node not in known:
                operands = [known[operand] for operand in node.src]
                known[node] = self.declare(self.operation(node, operands), node.op.name.lower())
        return tuple(known[result] for result in results)

    # What a subclass prints.

    def loop_reduce(self, node: Node) -> None:
        """Print the loops of a reduction."""
        raise NotImplementedError

    def scan(self, node: Node, point: Point) -> None:
        """Print the next step of a scan."""
        raise NotImplementedError

    # Stores.

    def stores(self, stores: Sequence[Store]) -> None:
        """Print `stores`, which all run over the same axes, at the points of the open tile: for a
        batch of points every value first, then every store.

        A value may open a reduction whose body fills scratch memory or stores too. `batch` is that
        of the innermost call, and afterwards that of the outer one again.
        """
        if not stores:
            return
        outer_batch = self.batch
        every = list(self.points(stores[0].axes))
        for first in range(0, len(every), self.batch_points):
            self.batch = every[first : first + self.batch_points]
            ready = [
                (store, self.result(store.value, point), point)
                for point in self.batch
                for store in stores
            ]
            for store, value, point in ready:
                self.store(store, value, point)
        self.batch = outer_batch


@lru_cache(maxsize=4096)
def _region(root: Node, filled: frozenset[Node]) -> list[Node]:
    """The elementwise nodes beneath `root`, operands first, down to loads, reductions, what is
    `filled`, and what may be looked up."""
    return toposort(
        [root], lambda node: node.op in Group.ELEMENTWISE and not (node in filled or digit_of(node))
    )


def digit_of(node: Node) -> Node | None:
    """The ``x & 15`` that is all that `node` depends on, beside constants as right operands, as in
    ``cast(x & 15) * 0.5 + 1``; None if there is none."""
    while node.op in Group.ELEMENTWISE and all(arg.op is Op.CONST for arg in node.src[1:]):
        if node.op is Op.AND and node.src[1].arg.value == LOOKUP_LANES - 1:
            return node
        node = node.src[0]
    return None


def _vectors(axis: Node, count: int) -> list[NestPart]:
    """`count` iterations as vectors, one for each power of two in `count`: 22 are vectors of 16, 4
    and 2 lanes that start at 0, 16 and 20; of 23, the last one is a scalar."""
    nest_parts: list[NestPart] = []
    start = 0
    for bit in reversed(range(1, count.bit_length())):
        lanes = 1 << bit
        if count & lanes:
            nest_parts.append({axis: LoopPart("vector", lanes, start=start)})
            start += lanes
    if count % 2:
        nest_parts.append({axis: LoopPart("fixed", index=count - 1)})
    return nest_parts


def _in_order_of_memory(loops: NestPart, contiguous: Node) -> NestPart:
    """The loops that fill scratch memory so that the array they read is read in its order.

    Its elements are neighbours along `contiguous`, which becomes unrolled if it is short. Vectors
    and unrolled axes become loops around it, but for a vector of as many lanes as `contiguous` is
    long: that is a square block, which is transposed in registers.
    """
    extent = loops[contiguous].extent
    reordered = dict(loops)
    for axis, loop_part in loops.items():
        if loop_part.how in IN_REGISTERS and loop_part != LoopPart("vector", extent):
            reordered[axis] = replace(loop_part, how="loop")
    if isinstance(extent, int) and extent <= LONGEST_COPY:
        reordered[contiguous] = replace(reordered[contiguous], how="unroll")
    return reordered
