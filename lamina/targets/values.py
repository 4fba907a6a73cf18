"""Printing values: each in the outermost scope that binds every axis it depends on, once.

So invariants leave loops by themselves. For ``y[i, j] = exp(x[i]) * z[j]``, asked for in the loop
over j, the exponential is printed in the loop over i and the product in that over j. An unrolled
axis has no loop: values that depend on it are printed once for each of its points.

`fills.py` opens loops and fills scratch memory, `reductions.py` prints reductions and scans.
"""

from collections.abc import Sequence

from lamina.core.dtypes import SHORT, DType, int32, int64
from lamina.core.recent import memoized
from lamina.graph import index as ix
from lamina.ir.build import const
from lamina.ir.kernel import Store, bounds, free_axes
from lamina.ir.node import Node, toposort
from lamina.ir.ops import Group, Load, Op
from lamina.targets.language import Language, Point, Value
from lamina.targets.parts import Partitioner, Vector
from lamina.targets.scopes import Key, ScopePrinter, key_of

Ready = tuple[Store, Value, Point]  # a store with its value, which is computed, at a point
LOOKUP_LANES = 16  # a value of four bits is an index into a register of so many lanes


class ValuePrinter(ScopePrinter):
    """Prints the values in loops that are open.

    A value that the nest stages in scratch memory is in `staged`. It is read from there as long as
    it is in `filled` too; else it is computed. There are two kinds, told apart by the `at` of the
    store that fills:

    at an axis   computed in loops of its own as soon as the loop over that axis is open:
                 `FillPrinter`
    at None      depends on reductions. It is stored when it is first computed, in the loops of a
                 store or of another reduction, and is in `stored_late` until these loops are done
    """

    # Points of a tile whose values are computed before any is stored: all, as no tile has more.
    batch_points = 1 << 16
    # Those points, while they are computed; () outside of stores. GPUs read it in `value`, where
    # they print the loads of all of its points at once.
    batch: Sequence[Point] = ()

    def __init__(self, partitioner: Partitioner, language: Language) -> None:
        super().__init__(partitioner, language)
        self.staged = {fill.value: fill for fill in self.nest.fills}
        self.filled = frozenset[Node]()
        self.stored_late = set[Node]()
        # Vector axes whose lanes are printed one by one at the moment.
        self.taken_apart: dict[Node, Vector] = {}
        loads = self.nest.kernel.of(Op.LOAD)
        self.read_parameters = {load.arg.parameter for load in loads}

    def value(self, node: Node, point: Point) -> Value:
        """`node` at `point`, printed in its home scope when it is first needed, or read from
        scratch memory once that holds it."""
        if node.op is Op.CONST:
            return self.language.literal(node)
        depth = self.home(node)
        key = self.key(node, point)
        cache = self.scopes[depth].cache
        if node.op in (Op.LOOP_REDUCE, Op.LOOP_SCAN):
            lane = self._lane_of_vector(node, point)
            if lane is not None:
                return lane
        if key not in cache:
            all_scopes = self.scopes
            self.scopes = all_scopes[: depth + 1]  # `at_depth`, but faster
            self._compute(node, point, key)
            self.scopes = all_scopes
        return cache[key]

    def _lane_of_vector(self, node: Node, point: Point) -> Value | None:
        """What a reduction came to in one of the lanes of an axis that is `taken_apart`, such as an
        argmax that says which element a lane reads; None if there is no vector of them."""
        apart = [axis for axis in self.taken_apart if axis in free_axes(node)]
        if not apart:
            return None
        (axis,) = apart
        lanes = self.taken_apart[axis]
        unrolled = {other: copies for other, copies in self.unrolled.items() if other is not axis}
        key = key_of(node, point, unrolled, self.vectors | {axis: lanes})
        vector = self.scopes[self.home(node)].cache.get(key)
        return None if vector is None else self.language.lane(vector, point[axis] - lanes.first)

    def _compute(self, node: Node, point: Point, key: Key) -> None:
        """Print `node` in the innermost scope, its home, and remember it there as `key`."""
        cache = self.scopes[-1].cache
        fill = self.staged.get(node)
        if fill is not None and node in self.filled:
            cache[key] = self.declare(self.load(load_of(fill), point), "load")
            return
        match node.op:
            case Op.LOOP_REDUCE:  # remembers all of its components at all points of the tile
                self.print_reduction(node)
            case Op.LOOP_SCAN:  # remembers all of its components
                self.print_scan(node, point)
            case Op.AXIS | Op.AFFINE:
                cache[key] = self._index_value(node, point)
            case Op.LOAD:
                cache[key] = self.declare(self.load(node, point), "load")
            case Op.CAST if node.dtype is int32 and self._has_index_lanes(node.src[0]):
                cache[key] = self._index_value(node.src[0], point, int32)
            case _:
                cache[key] = self.declare(self.elementwise(node, point), node.op.name.lower())
        if fill is not None and fill.at is None:  # it is stored where it is first computed
            self.print_store(fill, cache[key], point)
            self.stored_late.add(node)

    def elementwise(self, node: Node, point: Point) -> Value:
        """An elementwise operation at `point`, as an expression that no variable holds yet."""
        operands = self._in_int32(node) if _takes_indices(node) else node.src
        return self.language.operation(node, [self.value(operand, point) for operand in operands])

    def _in_int32(self, node: Node) -> tuple[Node, ...]:
        """The operands of what `_takes_indices`, as int32 where they are vectors: of int64, the
        lanes of float32 fill two registers, which GCC 12 compares lane by lane."""
        if any(map(self._has_index_lanes, node.src)):
            return tuple(_as_int32(operand) for operand in node.src)
        return node.src

    def _has_index_lanes(self, node: Node) -> bool:
        """Is this an index that depends on lanes, as axes alone? Terms of data are vectors of
        int64."""
        if node.op not in (Op.AXIS, Op.AFFINE) or self.lanes_of(node) == 1:
            return False
        return all(term.op is Op.AXIS or self.lanes_of(term) == 1 for term in ix.terms_of(node)[0])

    def value_of_root(self, root: Node, point: Point) -> Value:
        """`value` of what is stored or reduced; operands come first, so that long chains need no
        deep recursion."""
        for node in _region(root, self.filled):
            self.value(node, point)
        return self.value(root, point)

    # Indices.

    def index_text(self, index: Node, point: Point) -> str:
        """Text of an index at `point`; along vectors that of the first lane. Terms of data that are
        vectors are left out: only the caller knows what to do for each lane.

        ``100 * i + 10 * j + k`` with a loop over i, at the point {j: 3}, and k in vectors of 16
        lanes from 32 on: ``100 * i + 62``.
        """
        terms, constant = ix.terms_of(index)
        parts = []
        for term, factor in terms.items():
            if term in point:
                constant += factor * point[term]
            elif term in self.vectors:
                constant += factor * self.vectors[term].first
            elif self.lanes_of(term) == 1:
                is_axis = term.op is Op.AXIS
                text = self.index_texts[term] if is_axis else self.value(term, point).text
                parts.append(str(text) if factor == 1 else f"{factor} * {text}")
        if constant or not parts:
            parts.append(str(constant))
        return " + ".join(parts)

    def _index_value(self, index: Node, point: Point, dtype: DType = int64) -> Value:
        """An index as data, an int64, or an int32 whose terms are axes: the text of its first lane,
        to which each term that is a vector is added.

        ``16 * i + 2 * j`` with 4 lanes along j from 0 on:

            const i64x4 step_1 = ((i64x4){0, 1, 2, 3} * (i64)2);
            const i64x4 index_2 = (step_1 + (i64)(16 * i));
        """
        kind = SHORT[dtype]
        total = Value(f"({kind})({self.index_text(index, point)})", dtype)
        for term, factor in ix.terms_of(index)[0].items():
            lanes = self.lanes_of(term)
            if lanes == 1:  # it is in the text already
                continue
            if term.op is Op.AXIS:
                vector = self.language.lane_numbers(lanes, dtype)
            else:
                vector = self.value(term, point)
            scaled = vector._replace(text=f"({vector.text} * ({kind}){factor})")
            step = self.declare(scaled, "step")
            total = self.declare(step._replace(text=f"({step.text} + {total.text})"), "index")
        return total

    def print_ready(self, ready: Sequence[Ready]) -> None:
        """Print stores whose values are computed."""
        for store, value, point in ready:
            self.print_store(store, value, point)

    # What a subclass prints.

    def print_reduction(self, node: Node) -> None:
        """Print the loops of a reduction."""
        raise NotImplementedError

    def print_scan(self, node: Node, point: Point) -> None:
        """Print a step of a scan: its running value at `point`."""
        raise NotImplementedError

    def load(self, node: Node, point: Point) -> Value:
        """What a LOAD reads at `point`, as an expression."""
        raise NotImplementedError

    def print_store(self, store: Store, value: Value, point: Point) -> None:
        """Print a store of `value` at `point`."""
        raise NotImplementedError

    # Stores.

    def print_stores(self, stores: Sequence[Store]) -> None:
        """Print `stores`, which all run over the same axes, at the points of the open tile: for a
        batch of points every value first, then every store, so that loads of the batch need not
        wait for its stores.

        A value may open a reduction whose body fills scratch memory or stores too. `batch` is that
        of the innermost call, and afterwards that of the outer one again.
        """
        if stores:
            self.print_stores_at(stores, list(self.points(stores[0].axes)))

    def print_stores_at(self, stores: Sequence[Store], tile: Sequence[Point]) -> None:
        """`stores` at some points of the open tile."""
        outer_batch = self.batch
        for first in range(0, len(tile), self.batch_points):
            self.batch = tile[first : first + self.batch_points]
            ready = [
                (store, self.value_of_root(store.value, point), point)
                for point in self.batch
                for store in stores
            ]
            self.print_ready(ready)
        self.batch = outer_batch


def load_of(fill: Store) -> Node:
    """The load of scratch memory that stands for the value of `fill` once that is filled."""
    return Node(Op.LOAD, (fill.index,), Load(fill.parameter, fill.value.dtype))


@memoized(4096)
def _region(root: Node, filled: frozenset[Node]) -> list[Node]:
    """The elementwise nodes beneath `root`, operands first, down to loads, reductions, what
    `_takes_indices`, what is `filled`, and what may be looked up."""

    def has_operands_inside(node: Node) -> bool:
        is_leaf = node in filled or _takes_indices(node) or digit_of(node)
        return node.op in Group.ELEMENTWISE and not is_leaf

    return toposort([root], has_operands_inside)


def _as_int32(index: Node) -> Node:
    """An index, or a constant, of int64 as int32."""
    return const(index.arg.value, int32) if index.op is Op.CONST else index.cast(int32)


def _takes_indices(node: Node) -> bool:
    """Does this compare or cast indices and constants, all of which int32 holds?"""
    if node.op not in (Op.LT, Op.EQ, Op.CAST):
        return False
    are_indices = all(operand.op in (Op.AXIS, Op.AFFINE, Op.CONST) for operand in node.src)
    if not are_indices or node.src[0].dtype is not int64:
        return False
    limits = [limit for operand in node.src for limit in bounds(operand)]
    return min(limits) >= -(1 << 31) and max(limits) < 1 << 31


def digit_of(node: Node) -> Node | None:
    """The ``x & 15`` that is all that `node` depends on, beside constants as right operands, as in
    ``cast(x & 15) * 0.5 + 1``; None if there is none."""
    while node.op in Group.ELEMENTWISE and all(arg.op is Op.CONST for arg in node.src[1:]):
        if node.op is Op.AND and node.src[1].arg.value == LOOKUP_LANES - 1:
            return node
        node = node.src[0]
    return None
