"""What the lowering of one product (`lower.py`) and that of products back to back
(`lower_attention.py`) share: parameters, roles, views of factors, and epilogues.

A view says what a tile is of an array. What no view says of results is computed element by element:
`Places`, and statements of the epilogue.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from lamina.errors import LaminaError
from lamina.graph import index as ix
from lamina.ir.kernel import Kernel, Store, free_axes, loads_beneath, points
from lamina.ir.node import Node, toposort
from lamina.ir.ops import Op
from lamina.loops.nest import Axes, Nest, TileFill
from lamina.schedule.gpu.atoms import LINE_BYTES
from lamina.schedule.gpu.pipelining import CONSUMERS, PRODUCER
from lamina.tiles.computed import Body, axis_name
from lamina.tiles.decisions import (
    ResultSide,
    RowLayout,
    element_axes,
    in_range,
    is_tile_transposed,
    name_of_lines,
    row_axes,
    stride_along,
)
from lamina.tiles.layouts import layout_of_lines
from lamina.tiles.program import (
    WARPGROUP_WARPS,
    Alloc,
    Epilogue,
    Role,
    Statement,
    TileAxis,
    TileParameter,
    TileStore,
)
from lamina.tiles.values import Computed, Digits, Elements, Extent, Index, Places, Side, View

# Registers of a thread, where a warpgroup that only asks the copy engine for tiles gives registers
# to the warpgroups that multiply, by the number of these. A block has 65,536: two warpgroups of 128
# threads use 128 * 24 + 256 * 240 = 64,512 of them, four 128 * 24 + 512 * 112 = 60,416. One has
# enough registers as it is.
PRODUCER_REGISTERS = 24
CONSUMER_REGISTERS = {2: 240, 4: 112}


class NoViewError(LaminaError):
    """Elements that no view says."""


def require_view(holds: bool) -> None:
    """Raise NoViewError unless a condition of views holds."""
    if not holds:
        raise NoViewError("no view says these elements")


def parameters_of(kernel: Kernel) -> tuple[TileParameter, ...]:
    """The arrays of a kernel, by the names that views have: p0, p1 and so on."""
    return tuple(
        TileParameter(f"p{number}", parameter.dtype, parameter.size, parameter.written)
        for number, parameter in enumerate(kernel.parameters)
    )


def producer_and_consumers(
    filling: tuple[Statement, ...], multiplying: tuple[Statement, ...], groups: int
) -> tuple[Role, Role]:
    """A role of four warps that fills buffers, and one of so many groups that multiplies."""
    warps = groups * WARPGROUP_WARPS
    if groups not in CONSUMER_REGISTERS:
        return Role(PRODUCER, WARPGROUP_WARPS, filling), Role(CONSUMERS, warps, multiplying)
    registers = CONSUMER_REGISTERS[groups]
    return (
        Role(PRODUCER, WARPGROUP_WARPS, filling, registers=PRODUCER_REGISTERS),
        Role(CONSUMERS, warps, multiplying, registers=registers),
    )


def tile_variables(grid: Axes) -> tuple[Extent, ...]:
    """The variables that the number of a tile stands for. An axis of one point is always 0, and
    stands in no index."""
    return extents([axis for axis in grid if axis.arg.size > 1] or grid[-1:])


def row_line_allocs(
    nest: Nest, row_stores: Mapping[Store, RowLayout], rows: int
) -> list[Alloc]:
    """Lines of shared memory for each store by whole rows, of so many rows."""
    allocs: list[Alloc] = []
    for store in row_stores:
        name, dtype = name_of_lines(nest.kernel, store), store.value.dtype
        line = TileAxis("column", LINE_BYTES // dtype.itemsize)
        axes = (TileAxis("row", rows), line)
        allocs.append(Alloc(name, "shared", dtype, 1, axes, layout_of_lines(dtype)))
    return allocs


def factor_view(tile: TileFill, first_row: Index, first_k: Index) -> View:
    """The load of an array, of whose index the rows and k of a tile are one stride each. Raises
    NoViewError for any other factor.

    first_row, first_k: where the tile begins
    """
    load = tile.value
    require_view(load.op is Op.LOAD and len(load.src) == 1)
    (index,) = load.src
    rows, k = row_axes(tile), element_axes(tile)
    row_side = Side(stride_of(index, rows), first_row, points(rows))
    k_side = Side(stride_of(index, k), first_k, points(k))
    sides = (k_side, row_side) if is_tile_transposed(tile) else (row_side, k_side)
    return View(f"p{load.arg.parameter}", index_of(without(index, (*rows, *k))), sides)


def factor_source(tile: TileFill, first_row: Index, first_k: Index) -> View | Elements:
    """What fills a tile that begins at a row and a k: a view of an array if one says it, or else
    what computes its elements."""
    try:
        return factor_view(tile, first_row, first_k)
    except NoViewError:
        row_side = Digits(first_row, extents(row_axes(tile)))
        k_side = Digits(first_k, extents(element_axes(tile)))
        sides = (k_side, row_side) if is_tile_transposed(tile) else (row_side, k_side)
        return Elements(sides, _computed_elements(tile.value))


def _computed_elements(value: Node) -> tuple[Computed, ...]:
    """The statements that compute a factor by its places along all rows and all of k."""
    body = Body(view_of=lambda load: None)
    body.compute([value])
    return tuple(part for part in body.results if not isinstance(part, TileStore))


# Results.


@dataclass(frozen=True)
class Results:
    """The results of a nest, whose tiles have these `sides`, and the stores by whole rows."""

    nest: Nest
    sides: tuple[ResultSide, ResultSide]
    row_stores: Mapping[Store, RowLayout]

    def epilogue(
        self, names: Mapping[Node, str], kept: Node | None = None, slices: int = 0
    ) -> Epilogue:
        """The arithmetic between sums and stores, and the stores. An overlapped epilogue computes
        the value that threads keep first, and the rest from it: a cast of a bias that both need is
        computed twice.

        names: of the registers that have sums. kept, slices: as `ProductDecisions` has them
        """
        kernel = self.nest.kernel
        body = Body(view_of=self._view_of_load)
        body.names = dict(names)
        if kept is not None:
            body.compute([kept])
            body.names = {kept: body.names[kept]}
        body.compute([store.value for store in kernel.stores])
        for store in kernel.stores:
            to = self._target(store, body)
            value = body.operand(store.value)
            lines = name_of_lines(kernel, store) if store in self.row_stores else ""
            body.statements.append(TileStore(to, value, lines))
        name = "" if kept is None else body.names[kept]
        sides = self.digits if body.has_places else ()
        return Epilogue(body.results, name, slices, sides)

    @property
    def digits(self) -> tuple[Digits, Digits]:
        """The sub-loops of a tile of results: its rows, and its columns."""
        rows, columns = (sub_loops(self.nest, side.index) for side in self.sides)
        return Digits(Index(), rows), Digits(Index(), columns)

    def _target(self, store: Store, body: Body) -> View | Places:
        """Where a store writes: what no view says is computed in the body."""
        try:
            return self._view(store.parameter, store.index, (store.condition,))
        except NoViewError:
            return body.places(store.parameter, store.index, store.condition)

    def _view_of_load(self, load: Node) -> View | None:
        """The view of what a load reads for each result, if there is one. An index or a condition
        that is itself loaded is a value."""
        if load.op is not Op.LOAD or load in self._placing_loads:
            return None
        index, *conditions = load.src
        try:
            return self._view(load.arg.parameter, index, conditions)
        except NoViewError:
            return None

    @cached_property
    def _placing_loads(self) -> frozenset[Node]:
        """Loads that say where other loads read, or stores write, and whether they do."""
        stores = self.nest.kernel.stores
        placing = [node for store in stores for node in (store.index, store.condition)]
        for node in toposort(store.value for store in stores):
            if node.op is Op.LOAD:
                placing += node.src
        return frozenset(loads_beneath(placing))

    def _view(self, parameter: int, index: Node, conditions: Sequence[Node]) -> View:
        """The view of a tile of results in an array that is read or written at `index` for each of
        them. Raises NoViewError if there is none."""
        ends = {ix.TRUE, in_range(self.sides), *(in_range((side,)) for side in self.sides)}
        require_view(all(ix.both(condition) in ends for condition in conditions))
        rest = index
        view_sides: list[Side] = []
        for side in self.sides:
            stride = stride_along(index, side.index)
            rest = ix.add(rest, ix.scale(side.index, -stride))
            view_sides.append(Side(stride, first_of_tile(self.nest, side.index), side.extent))
        inside_tile = {axis for axis in self.nest.order if self.nest.bound(axis) != "grid"}
        require_view(free_axes(rest).isdisjoint(inside_tile))
        first, last = view_sides
        return View(f"p{parameter}", index_of(rest), (first, last))


# Indices.


def first_of_tile(nest: Nest, index: Node) -> Index:
    """The index of rows or columns of results at which a tile begins: without sub-loops."""
    inside_tile = [axis for axis in nest.order if nest.bound(axis) != "grid"]
    return index_of(without(index, inside_tile))


def sub_loops(nest: Nest, index: Node) -> tuple[Extent, ...]:
    """The loops inside a tile that number its rows or columns, whose index this is, the fastest
    last: of ``1024*a3 + 64*a5 + 16*a6 + a7``, where a3 numbers tiles, a5, a6 and a7."""
    strides, _ = ix.terms_of(index)
    inside_tile = [axis for axis in strides if nest.bound(axis) != "grid"]
    return extents(sorted(inside_tile, key=lambda axis: -strides[axis]))


def extents(axes: Sequence[Node]) -> tuple[Extent, ...]:
    """The variables of axes, and how many values each has."""
    return tuple(Extent(axis_name(axis), axis.arg.size) for axis in axes)


def without(index: Node, axes: Sequence[Node]) -> Node:
    """`index` without the terms of some axes."""
    terms, constant = ix.terms_of(index)
    kept = {term: factor for term, factor in terms.items() if term not in axes}
    return ix.affine(kept, constant)


def index_of(index: Node) -> Index:
    """An index of a program, of a sum of axes."""
    terms, constant = ix.terms_of(index)
    require_view(all(term.op is Op.AXIS for term in terms))  # no division, and nothing of data
    named = [(axis_name(axis), factor) for axis, factor in terms.items() if axis.arg.size > 1]
    return Index(tuple(named), constant)


def stride_of(index: Node, axes: Axes) -> int:
    """How far one step goes along axes that are walked as one: of b and s of 100 steps in
    ``30000 * b + 300 * s`` 300 elements, as a step of b goes as far as 100 of s."""
    terms, _ = ix.terms_of(index)
    innermost = axes[-1]
    stride = terms.get(innermost, 0)
    size = innermost.arg.size
    for axis in reversed(axes[:-1]):
        require_view(terms.get(axis, 0) == stride * size)
        size *= axis.arg.size
    return stride
