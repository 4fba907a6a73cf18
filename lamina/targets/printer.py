"""Printing a loop nest, shared by every target: where each value is computed, and in what order.

A value is printed in the outermost loop that binds every axis it depends on, so invariants leave
loops by themselves. An unrolled axis has no loop: values that depend on it are printed once for
each of its points. Reductions and scans are in `reductions.py`.
"""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import product
from typing import NamedTuple, Protocol

from lamina.core.dtypes import DType
from lamina.graph import index as ix
from lamina.ir.kernel import Store, free_axes
from lamina.ir.node import Node, toposort
from lamina.ir.ops import Group, Load, Op
from lamina.loops.nest import IN_REGISTERS, Nest
from lamina.schedule.gpu.products import is_minor
from lamina.targets.parts import LoopPart, NestPart, Partitioner

LONGEST_COPY = 16  # iterations of a loop that fills scratch memory, up to which it is unrolled
LOOKUP_LANES = 16  # a value of four bits is an index into a register of so many lanes

Point = dict[Node, int]  # unrolled axis -> index
# What tells values of one scope apart (`ValuePrinter.key`): the node, and for each axis in
# registers on which it depends: axis, first index, lanes from there on (1 if it is unrolled).
Key = tuple[Node, tuple[tuple[Node, int, int], ...]]


class Value(NamedTuple):
    """An expression of C for a value. `lanes` > 1 is a vector; a vector of bool is a mask, whose
    elements have `mask` bits. All other values have 0 there."""

    text: str
    dtype: DType
    lanes: int = 1
    mask: int = 0


Values = tuple[Value, ...]  # the components of one reduction: of an argmax, the value and the index


@dataclass
class Scope:
    """The body of one loop: the loop's first line, such as ``for (...) {``, the lines of the body,
    and the values already computed in it."""

    head: str = ""  # of the outermost scope and of functions, which are printed elsewhere, ""
    lines: list[str] = field(default_factory=list)
    cache: dict[Key, Value] = field(default_factory=dict)
    # What all threads of a row came to in a scan, at the end of the step before; for each point of
    # the unrolled rows, which is given by its indices.
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
        lanes each, side 0 and run 1 are a[0], b[0], a[1], b[1]; run 2 is a[0], a[1], b[0], b[1].
        Of a alone, side 0 is a[0], a[1], whatever `run` is."""
        ...

    def lane_numbers(self, lanes: int) -> Value:
        """The int64 vector 0, 1, ..., lanes - 1."""
        ...

    def load(self, node: Node, point: Point) -> Value: ...
    def store(self, store: Store, value: Value, point: Point) -> None: ...


class ValuePrinter(Partitioner, Target):
    """Prints loops and the values in them. A subclass spells operations, another one prints what
    opens loops of its own: reductions and scans.

    A value that the nest stages in scratch memory is in `staged`, and is read from there as long as
    it is in `filled` too. There are two kinds, told apart by the `at` of the store that fills:

    at an axis   computed in loops of their own as soon as the loop over that axis is open: `_fill`
    at None      depends on reductions. It is stored when it is first computed, in the loops of a
                 store or of another reduction, and is in `stored_late` until these loops are done
    """

    index = "i64"  # the type of an index
    # Points of a tile whose values are computed before any is stored: all, as no tile has more.
    batch_points = 1 << 16
    # Those points, while they are computed; () outside of stores. GPUs read it in `value`, where
    # they print the loads of all of its points at once.
    batch: Sequence[Point] = ()

    def __init__(self, nest: Nest) -> None:
        super().__init__(nest)
        self.scopes = [Scope()]
        self.depth_of: dict[Node, int] = {}  # axis -> number of the scope that binds it
        # Each open axis is in one of the next three tables, by how it runs.
        self.text_of: dict[Node, int | str] = {}  # axis with a loop or a fixed index -> its index
        self.unrolled: dict[Node, int] = {}  # axis -> its extent
        self.vectors: dict[Node, int] = {}  # axis -> lanes
        self.starts: dict[Node, int] = {}  # axis -> its first index in this part
        self.staged = {fill.value: fill for fill in nest.fills}
        self.filled = frozenset[Node]()  # staged values that scratch memory holds in the open loops
        self.stored_late = set[Node]()
        self.read = {load.arg.parameter for load in nest.kernel.of(Op.LOAD)}
        self.guard = ""  # an ``if`` before whatever the open loops add up and store
        self._variables = 0

    # Lines, scopes and axes.

    def line(self, text: str) -> None:
        """Print a line into the innermost scope."""
        self.scopes[-1].lines.append(text)

    def fresh_name(self, what: str) -> str:
        """A variable that is new in the kernel: ``load_1``, ``sum_2``, numbered all alike."""
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
        all_scopes = self.scopes
        self.scopes = all_scopes[: depth + 1]
        yield
        self.scopes = all_scopes

    def declared_at(self, depth: int, value: Value, what: str) -> Value:
        """Declare a variable that begins at `value` in the open scope of number `depth`."""
        with self.at_depth(depth):
            return self.declare(value, what, mutable=True)

    @contextmanager
    def opened(self, nest_part: NestPart, inside: NestPart | None = None) -> Iterator[None]:
        """Open the loops of `nest_part` in the nest's order, vectors and unrolled axes innermost;
        what the ``with`` prints is in their bodies.

        A value staged in the body of a loop is computed as soon as that loop is open. `inside`: how
        axes run that are opened later, as far as what is staged varies along them.

        Of {i: a loop of 8, j: a vector of 16 lanes} only i has a line of its own,
        ``for (i64 i = 0; i < 8; i++) {``; j makes the values inside into vectors.
        """
        axes = _registers_last(nest_part, self.nest.order)
        guard_outside = self.guard
        for axis in axes:
            self._open_axis(axis, nest_part[axis])
            self._fill_at(axis, (inside or {}) | nest_part)
        yield
        self.guard = guard_outside
        self._close_axes(axes, nest_part)

    @contextmanager
    def opened_in_order(self, nest_part: NestPart, order: Sequence[Node]) -> Iterator[None]:
        """`opened` in another order than the nest's, for loops that fill memory themselves: no
        values are staged in their bodies."""
        axes = _registers_last(nest_part, order)
        guard_outside = self.guard
        for axis in axes:
            self._open_axis(axis, nest_part[axis])
        yield
        self.guard = guard_outside
        self._close_axes(axes, nest_part)

    def _open_axis(self, axis: Node, loop_part: LoopPart) -> None:
        """Begin the loop over `axis`, if it has one, and make its index known from here on."""
        if loop_part.condition and axis not in self.launch_axes:
            # Conditions on launch axes stand around the whole part instead: `CPrinter.body`.
            self.guard = f"if ({loop_part.condition}) "
        if loop_part.how == "loop":
            self.scopes.append(Scope(self._loop_head(axis, loop_part)))
        self._bind(axis, loop_part)

    def _close_axes(self, axes: Sequence[Node], nest_part: NestPart) -> None:
        """End the loops over `axes`, which are in the order in which they were opened."""
        for axis in reversed(axes):
            loop_part = nest_part[axis]
            del self.depth_of[axis], self._table(loop_part)[axis]
            if loop_part.how == "loop":
                self.close_loop()

    def _loop_head(self, axis: Node, loop_part: LoopPart) -> str:
        """The first line of a loop: 8 iterations from 2 on end before index 10."""
        start = loop_part.start
        stop: int | str = loop_part.stop
        if isinstance(start, int) and not stop:
            stop = start + loop_part.extent
        return self.loop(axis, self.axis_name(axis), start, stop)

    def close_loop(self) -> None:
        """Close the innermost scope, and print it as the body of a loop unless it is empty."""
        scope = self.scopes.pop()
        if scope.lines:
            indented = ["    " + text for text in scope.lines]
            self.scopes[-1].lines += [scope.head, *indented, "}"]

    def _table(self, loop_part: LoopPart) -> dict[Node, int] | dict[Node, int | str]:
        """The table of open axes that run as `loop_part` does."""
        if loop_part.how == "vector":
            return self.vectors
        if loop_part.how == "unroll":
            return self.unrolled
        return self.text_of

    def _bind(self, axis: Node, loop_part: LoopPart) -> None:
        """Make `axis` known in the innermost scope."""
        self.depth_of[axis] = len(self.scopes) - 1
        if isinstance(loop_part.start, int):
            self.starts[axis] = loop_part.start
        if loop_part.how == "vector":
            self.vectors[axis] = loop_part.extent
        elif loop_part.how == "unroll":
            self.unrolled[axis] = loop_part.extent
        elif loop_part.how == "loop":
            self.text_of[axis] = self.axis_name(axis)
        else:
            self.text_of[axis] = loop_part.index

    def _fill_at(self, axis: Node, nest_part: NestPart) -> None:
        """Compute the values that are staged in the body of the loop over `axis`, which was just
        opened.

        Only those of which all other axes are open too, so that they can be computed here: a value
        that also depends on a row cannot be in a loop outside of the rows.
        """
        for fill in self.nest.fills:
            fixed_axes = free_axes(fill.value).difference(fill.axes)
            if fill.at is axis and fixed_axes <= self.depth_of.keys():
                self._fill(fill, nest_part)

    def _fill(self, fill: Store, nest_part: NestPart) -> None:
        """Print the loops that fill scratch memory, inside those of `nest_part` that are open.

        Axes of `nest_part` that open only later, such as its vectors, run here as they do there;
        others are divided into main and tail parts. Loops are in the order of scratch memory; where
        the elements of the array that is read are neighbours along one of them, in that array's.

        A panel of 600 steps and 64 columns, 4 vectors of 16, is packed into p3 from a matrix p1 of
        1000 columns, 16 steps in each iteration of ``k_outer``:

            for (i64 k_inner = 0; k_inner < 16; k_inner++) {
                const f32x16 load_1 = *(f32x16r *)(p1 + 16000 * k_outer + 1000 * k_inner + ...);
                ...                                                    load_2 to load_4
                *(f32x16u *)(p3 + 1024 * k_outer + 64 * k_inner + ...) = load_1;
                ...
            }
        """
        self.filled -= {fill.value}  # until it is filled anew, the value is computed
        others = [axis for axis in fill.axes if axis not in nest_part]
        contiguous = self.contiguous_axis(fill)
        for other_parts in self.nest_parts(others):
            how_axes_run = nest_part | other_parts
            order = [axis for axis in fill.axes if axis not in self.depth_of]
            loops = {axis: how_axes_run[axis] for axis in order}
            # If `contiguous` is in vectors or unrolled, each row of memory is read at once already.
            if contiguous in loops and loops[contiguous].how == "loop":
                order.remove(contiguous)
                order.append(contiguous)  # as the innermost loop
                loops = _in_order_of_memory(loops, contiguous)
            with self.opened_in_order(loops, order):
                self.stores([fill])
        self.filled |= {fill.value}

    def contiguous_axis(self, fill: Store) -> Node | None:
        """The axis of `fill` along which neighbours are neighbours in the array that it reads, as k
        in ``x[600 * row + k]``; None if there is no such axis."""
        return next((axis for axis in fill.axes if is_minor(fill.value, axis)), None)

    def points(self, axes: Collection[Node]) -> Iterator[Point]:
        """Every point of the unrolled ones among `axes`, the last the fastest. If none is unrolled,
        that is the one point {}. Of i with 2 indices from 0 on and j with 2 from 8 on, it is
        {i: 0, j: 8}, {i: 0, j: 9}, {i: 1, j: 8} and {i: 1, j: 9}.
        """
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
        """1, or the lanes of the vector axis that `node` depends on: nests have no value
        that depends on two (`lamina/loops/verify.py`)."""
        free = free_axes(node)
        return next((lanes for axis, lanes in self.vectors.items() if axis in free), 1)

    def home(self, node: Node) -> int:
        """The number of the outermost scope where `node` can be computed: of the scopes that bind
        its axes, the innermost; 0 if it has none."""
        return max(map(self.depth_of.__getitem__, free_axes(node)), default=0)

    def key(self, node: Node, point: Point) -> Key:
        """What tells values of one scope apart: the node, the point, and which lanes. Axes that the
        node does not depend on are left out, so that all of their points share its value.

        With i unrolled, at the point {i: 3}, and j in a vector of 16 lanes from 32 on, the key of
        ``x[i]`` has (i, 3, 1) alone, and that of ``x[i] + y[j]`` has (j, 32, 16) too.
        """
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
            all_scopes = self.scopes
            self.scopes = all_scopes[: depth + 1]  # `at_depth`, but faster
            self._compute(node, point, key)
            self.scopes = all_scopes
        return cache[key]

    def _compute(self, node: Node, point: Point, key: Key) -> None:
        """Print `node` in the innermost scope, and remember it there as `key`."""
        cache = self.scopes[-1].cache
        fill = self.staged.get(node)
        if fill is not None and node in self.filled:
            cache[key] = self.declare(self.load(load_of(fill), point), "load")
            return
        if node.op is Op.LOOP_REDUCE:
            self.loop_reduce(node)  # these two write to the cache themselves
        elif node.op is Op.LOOP_SCAN:
            self.scan(node, point)
        elif node.op in (Op.AXIS, Op.AFFINE):
            cache[key] = self._index_value(node, point)
        elif node.op is Op.LOAD:
            cache[key] = self.declare(self.load(node, point), "load")
        else:
            cache[key] = self.declare(self.elementwise(node, point), node.op.name.lower())
        if fill is not None and fill.at is None:  # it is stored where it is first computed
            self.store(fill, cache[key], point)
            self.stored_late.add(node)

    def elementwise(self, node: Node, point: Point) -> Value:
        """An elementwise operation at `point`, as an expression that no variable holds yet."""
        return self.operation(node, [self.value(operand, point) for operand in node.src])

    def value_of_root(self, root: Node, point: Point) -> Value:
        """`value` of what is stored or reduced; operands come first, so that long chains need no
        deep recursion."""
        for node in _region(root, self.filled):
            self.value(node, point)
        return self.value(root, point)

    def index_text(self, index: Node, point: Point) -> str:
        """Text of a scalar index: that of the first lane, where terms that are vectors of data
        count as 0.

        ``100 * i + 10 * j + k`` with a loop over i, at the point {j: 3}, and k in vectors of 16
        lanes from 32 on: ``100 * i + 62``.
        """
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
        """An index as data, an int64: its scalar terms as one text, to which each vector is added.

        ``16 * i + 2 * j`` with 4 lanes along j:

            const i64x4 step_1 = ((i64x4){0, 1, 2, 3} * (i64)2);
            const i64x4 index_2 = (step_1 + (i64)(16 * i));
        """
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
        """Print formulas over HOLEs, and give the values of `results`. `known` has the value of
        each HOLE; what is computed on the way is added to it."""
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
        """Print a step of a scan: its running value at `point`."""
        raise NotImplementedError

    # Stores.

    def stores(self, stores: Sequence[Store]) -> None:
        """Print `stores`, which all run over the same axes, at the points of the open tile: for a
        batch of points every value first, then every store, so that loads of
        the batch need not wait for its stores.

        A value may open a reduction whose body fills scratch memory or stores too. `batch` is that
        of the innermost call, and afterwards that of the outer one again.
        """
        if not stores:
            return
        outer_batch = self.batch
        tile = list(self.points(stores[0].axes))
        for first in range(0, len(tile), self.batch_points):
            self.batch = tile[first : first + self.batch_points]
            ready = [
                (store, self.value_of_root(store.value, point), point)
                for point in self.batch
                for store in stores
            ]
            for store, value, point in ready:
                self.store(store, value, point)
        self.batch = outer_batch


def load_of(fill: Store) -> Node:
    """The load of scratch memory that stands for the value of `fill` once that has filled it."""
    return Node(Op.LOAD, (fill.index,), Load(fill.parameter, fill.value.dtype))


def _registers_last(nest_part: NestPart, order: Sequence[Node]) -> list[Node]:
    """The axes of `nest_part` in this order, first its loops and fixed axes, then those in
    registers."""
    axes = [axis for axis in order if axis in nest_part]
    loops = [axis for axis in axes if nest_part[axis].how not in IN_REGISTERS]
    return loops + [axis for axis in axes if axis not in loops]


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


def _in_order_of_memory(loops: NestPart, contiguous: Node) -> NestPart:
    """The loops that fill scratch memory so that the array they read is read in its order.

    Its elements are neighbours along `contiguous`, which becomes unrolled if it is short. Vectors
    and unrolled axes become loops around it, but for a vector of as many lanes as `contiguous` is
    long: that is a square block, which is transposed in registers.

    Of 16 steps, `contiguous`, and 64 columns, 4 vectors of 16 lanes that are unrolled: the steps
    are unrolled, the vectors stay, and the 4 become a loop, each iteration of which transposes
    a block of 16 x 16. All keep the index at which they start.
    """
    extent = loops[contiguous].extent
    square_side = LoopPart("vector", extent)
    reordered = dict(loops)
    for axis, loop_part in loops.items():
        if loop_part.how in IN_REGISTERS and loop_part != square_side:
            reordered[axis] = replace(loop_part, how="loop")
    if extent <= LONGEST_COPY:
        reordered[contiguous] = replace(loops[contiguous], how="unroll")
    return reordered
