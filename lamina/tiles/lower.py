"""From the nest of a product to its tile program.

What is read and stored comes from the nest; everything else, such as stages, orders and who fills
tiles, from `ProductDecisions`. What no view says of what is read or stored is computed element by
element: `Elements`, and statements of the epilogue. `lower` raises UnloweredError for kernels that
the dialect cannot say yet.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from lamina.core.dtypes import float32
from lamina.core.target import Target
from lamina.errors import LaminaError
from lamina.graph import index as ix
from lamina.ir.kernel import Kernel, free_axes, points
from lamina.ir.node import Node, toposort
from lamina.ir.ops import Op
from lamina.loops.nest import Axes, Nest
from lamina.schedule.gpu.atoms import LINE_BYTES
from lamina.schedule.gpu.pipelining import CONSUMERS, PRODUCER, order_of, why_not_pipelined
from lamina.tiles.barriers import synchronised
from lamina.tiles.computed import Body, axis_name
from lamina.tiles.decisions import (
    ProductDecisions,
    ResultSide,
    decide,
    in_range,
    is_tile_transposed,
    name_of_lines,
    result_sides,
    stride_along,
)
from lamina.tiles.layouts import SWIZZLE_128, layout_of_lines
from lamina.tiles.program import (
    GROUP_ROWS,
    GROUP_WARPS,
    UNITS,
    Alloc,
    Axis,
    Epilogue,
    Fill,
    Join,
    Mma,
    Parameter,
    Role,
    Statement,
    StepLoop,
    Store,
    TileLoop,
    TileProgram,
    Transpose,
)
from lamina.tiles.values import (
    Digits,
    Elements,
    Extent,
    Index,
    Places,
    Side,
    View,
)

LEFT, RIGHT, SUMS, LINE = "left", "right", "sums", "line"
# Registers of a thread where a group of producers gives away what two groups of consumers take:
# 128 * 24 + 256 * 240 = 64,512 of 65,536.
PRODUCER_REGISTERS, CONSUMER_REGISTERS = 24, 240


class UnloweredError(LaminaError):
    """A kernel that the tile dialect cannot say yet, and what of it."""


class NoViewError(LaminaError):
    """Elements that no view says."""


def lower(name: str, nest: Nest, target: Target) -> TileProgram:
    """The program of a nest with a product in tiles, with its barriers. Raises UnloweredError,
    naming what the dialect cannot say yet."""
    reason = why_not_pipelined(nest, target)
    if reason:
        raise UnloweredError(f"tiles: not in the dialect yet: {reason}")
    return synchronised(_Lowering(nest, decide(nest, target)).program(name))


def require_view(holds: bool) -> None:
    if not holds:
        raise NoViewError("no view says these elements")


@dataclass(frozen=True)
class _Lowering:
    """A nest on its way to a program."""

    nest: Nest
    decisions: ProductDecisions

    def program(self, name: str) -> TileProgram:
        """The program without its barriers."""
        parameters = tuple(
            Parameter(f"p{number}", parameter.dtype, parameter.size, parameter.written)
            for number, parameter in enumerate(self.nest.kernel.parameters)
        )
        fills = self._factor(0), self._factor(1)
        filling, multiplying = self._tiles((self._steps(fills),)), self._tiles(self._multiply())
        groups = self.decisions.atom.m // GROUP_ROWS
        consumer_warps = groups * GROUP_WARPS
        if not self.decisions.has_producers:
            roles = (
                Role(PRODUCER, 0, filling, inside=CONSUMERS),
                Role(CONSUMERS, consumer_warps, multiplying),
            )
        elif groups == 1:  # whose threads have enough registers
            roles = (
                Role(PRODUCER, GROUP_WARPS, filling),
                Role(CONSUMERS, consumer_warps, multiplying),
            )
        else:
            roles = (
                Role(PRODUCER, GROUP_WARPS, filling, registers=PRODUCER_REGISTERS),
                Role(CONSUMERS, consumer_warps, multiplying, registers=CONSUMER_REGISTERS),
            )
        return TileProgram(name, parameters, self._allocs(), (), roles)

    def _allocs(self) -> tuple[Alloc, ...]:
        """The buffers of both factors, lines for each store by whole rows, and the sums."""
        atom = self.decisions.atom
        width = LINE_BYTES // atom.dtype.itemsize
        row, column = Axis("row", atom.m), Axis("column", atom.n)
        allocs: list[Alloc] = []
        for name, side, tile in zip((LEFT, RIGHT), (row, column), self.nest.tiles, strict=True):
            axes = (side, Axis("step", width))
            if is_tile_transposed(tile):
                axes = axes[::-1]
            stages = self.decisions.depth
            allocs.append(Alloc(name, "shared", atom.dtype, stages, axes, SWIZZLE_128))
        for store in self.decisions.row_stores:
            name, dtype = name_of_lines(self.nest.kernel, store), store.value.dtype
            layout = layout_of_lines(dtype)
            line = Axis("column", LINE_BYTES // dtype.itemsize)
            allocs.append(Alloc(name, "shared", dtype, 1, (row, line), layout))
        sums = Alloc(SUMS, "registers", float32, 1, (row, column))
        return (*allocs, sums)

    # Loops.

    def _tiles(self, body: tuple[Statement, ...]) -> tuple[Statement, ...]:
        decisions = self.decisions
        tiles, steps = points(decisions.grid), decisions.steps.count
        blocks, share = decisions.division.blocks, decisions.division.steps
        order = order_of(decisions.division, steps).order
        if order == "shared" and decisions.unit == "fma":
            order = "equal"
        # An axis of one step is always 0, and stands in no index.
        axes = [axis for axis in decisions.grid if axis.arg.size > 1] or decisions.grid[-1:]
        over = extents(axes)
        return (TileLoop(order, tiles, steps, blocks, share, over, body),)

    def _steps(self, body: tuple[Statement, ...]) -> StepLoop:
        steps = self.decisions.steps
        return StepLoop((*extents(steps.outer), Extent(LINE, steps.lines_of_inner)), body)

    def _multiply(self) -> tuple[Statement, ...]:
        """What consumers do for a tile: multiply and store."""
        decisions = self.decisions
        mma = Mma(SUMS, LEFT, RIGHT, decisions.unit, decisions.running)
        join = (Join(SUMS),) if decisions.division.steps < decisions.steps.count else ()
        return (self._steps((*self._transposes(), mma)), *join, self._epilogue())

    def _transposes(self) -> tuple[Statement, ...]:
        """What changes tiles to how the unit reads them."""
        distances = UNITS[self.decisions.unit].apart
        if distances is None:
            return ()
        return tuple(
            Transpose(name, apart)
            for name, tile, apart in zip((LEFT, RIGHT), self.nest.tiles, distances, strict=True)
            if not is_tile_transposed(tile)
        )

    # Fills.

    def _factor(self, number: int) -> Fill:
        """The fill of the left (0) or the right (1) tile."""
        try:
            source: View | Elements = self._factor_view(number)
        except NoViewError:
            source = self._factor_elements(number)
        agent = "tma" if self.decisions.copies[number] else "threads"
        return Fill((LEFT, RIGHT)[number], source, agent)

    def _factor_elements(self, number: int) -> Elements:
        """What computes a factor by its places along all rows and all of k."""
        tile = self.nest.tiles[number]
        rows = tuple(axis for axis in tile.axes if not axis.arg.reduce)
        inner = tuple(axis for axis in tile.axes if axis.arg.reduce)
        row_side = Digits(self._first(tile.index), extents(rows))
        k_side = Digits(Index(((LINE, self._line_elements),)), extents(inner))
        body = Body(view_of=lambda load: None)
        body.compute([tile.value])
        computed = tuple(part for part in body.results if not isinstance(part, Store))
        is_transposed = is_tile_transposed(tile)
        sides = (k_side, row_side) if is_transposed else (row_side, k_side)
        return Elements(sides, computed)

    @property
    def _line_elements(self) -> int:
        return LINE_BYTES // self.decisions.atom.dtype.itemsize

    def _factor_view(self, number: int) -> View:
        """A load of an array, of whose index the rows and k of the tile are one stride each.
        Raises NoViewError for any other factor."""
        tile = self.nest.tiles[number]
        load = tile.value
        require_view(load.op is Op.LOAD and len(load.src) == 1)
        (index,) = load.src
        rows = tuple(axis for axis in tile.axes if not axis.arg.reduce)
        inner = tuple(axis for axis in tile.axes if axis.arg.reduce)
        row_stride, k_stride = stride_of(index, rows), stride_of(index, inner)
        offset = index_of(without(index, (*rows, *inner)))
        row_side = Side(row_stride, self._first(tile.index), points(rows))
        k_side = Side(k_stride, Index(((LINE, self._line_elements),)), points(inner))
        sides = (k_side, row_side) if is_tile_transposed(tile) else (row_side, k_side)
        return View(f"p{load.arg.parameter}", offset, sides)

    def _first(self, index: Node) -> Index:
        return first_of_tile(self.nest, index)

    # Results.

    def _epilogue(self) -> Epilogue:
        """The arithmetic between sums and stores, and the stores. An overlapped epilogue computes
        the value that threads keep first, and the rest from it: a cast of a bias that both need is
        computed twice."""
        decisions, kernel = self.decisions, self.nest.kernel
        body = Body(view_of=self._view_of_load)
        body.names = {decisions.reduction: SUMS}
        kept = decisions.kept
        if kept is not None:
            body.compute([kept])
            body.names = {kept: body.names[kept]}
        body.compute([store.value for store in kernel.stores])
        lines = {store: name_of_lines(kernel, store) for store in decisions.row_stores}
        for store in kernel.stores:
            to: View | Places
            try:
                to = self._result_view(store.parameter, store.index, (store.condition,))
            except NoViewError:
                to = body.places(store.parameter, store.index, store.condition)
            value = body.operand(store.value)
            body.statements.append(Store(to, value, lines.get(store, "")))
        name = "" if kept is None else body.names[kept]
        sides = self._result_sides() if body.has_places else ()
        return Epilogue(body.results, name, decisions.slices, sides)

    def _result_sides(self) -> tuple[Digits, Digits]:
        """The sub-loops of a tile of results: its rows, and its columns."""
        rows, columns = (self._sub_loops(tile.index) for tile in self.nest.tiles)
        return Digits(Index(), extents(rows)), Digits(Index(), extents(columns))

    def _sub_loops(self, index: Node) -> Axes:
        """Those that number the rows or the columns of a tile, whose index this is, the fastest
        last: of ``1024*a3 + 64*a5 + 16*a6 + a7``, where a3 numbers tiles, a5, a6 and a7."""
        strides, _ = ix.terms_of(index)
        within = [axis for axis in strides if self.nest.bound(axis) != "grid"]
        return tuple(sorted(within, key=lambda axis: -strides[axis]))

    def _view_of_load(self, load: Node) -> View | None:
        """The view of what a load reads for each result, if there is one. An index or a condition
        that is itself loaded is a value."""
        if load.op is not Op.LOAD or load in self._placing_loads:
            return None
        index, *conditions = load.src
        try:
            return self._result_view(load.arg.parameter, index, conditions)
        except NoViewError:
            return None

    @cached_property
    def _placing_loads(self) -> frozenset[Node]:
        return placing_loads(self.nest.kernel)

    def _result_view(self, parameter: int, index: Node, conditions: Sequence[Node]) -> View:
        return result_view(self.nest, result_sides(self.nest), parameter, index, conditions)


def first_of_tile(nest: Nest, index: Node) -> Index:
    """The index of rows or columns of results at which a tile begins: without sub-loops."""
    sub_loops = [axis for axis in nest.order if nest.bound(axis) != "grid"]
    return index_of(without(index, sub_loops))


def result_view(
    nest: Nest, sides: Sequence[ResultSide], parameter: int, index: Node,
    conditions: Sequence[Node],
) -> View:  # fmt: skip
    """The view of a tile of results, whose rows and columns are `sides`, in an array that is read
    or written at `index` for each of them. Raises NoViewError if there is none."""
    ends = {ix.TRUE, in_range(sides), *(in_range((side,)) for side in sides)}
    require_view(all(ix.both(condition) in ends for condition in conditions))
    rest = index
    view_sides: list[Side] = []
    for side in sides:
        stride = stride_along(index, side.index)
        rest = ix.add(rest, ix.scale(side.index, -stride))
        view_sides.append(Side(stride, first_of_tile(nest, side.index), side.extent))
    tiled = {axis for axis in nest.order if nest.bound(axis) != "grid"}
    require_view(free_axes(rest).isdisjoint(tiled))
    first, last = view_sides
    return View(f"p{parameter}", index_of(rest), (first, last))


def placing_loads(kernel: Kernel) -> frozenset[Node]:
    """Loads that say where other loads read, or stores write, and whether they do."""
    placing = [node for store in kernel.stores for node in (store.index, store.condition)]
    for node in toposort(store.value for store in kernel.stores):
        if node.op is Op.LOAD:
            placing += node.src
    return frozenset(node for node in toposort(placing) if node.op is Op.LOAD)


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
