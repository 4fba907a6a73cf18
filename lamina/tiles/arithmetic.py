"""What the interpreter of tile programs computes: numbers of tiles, factors, epilogues."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from lamina.core.dtypes import BY_NAME, DType
from lamina.ir.interpreter import evaluate
from lamina.ir.node import Node
from lamina.ir.ops import Hole, Op
from lamina.schedule.gpu.atoms import CHUNK_BYTES
from lamina.tiles.layouts import elements_across, elements_of, squares_of
from lamina.tiles.memory import GlobalArray, Slot, Tile, value_of
from lamina.tiles.program import (
    WARPGROUP_WARPS,
    Alloc,
    TileError,
    TileStore,
    Unit,
)
from lamina.tiles.values import (
    Computed,
    Digits,
    Elements,
    Extent,
    Gather,
    Index,
    Map,
    Operand,
    Position,
    View,
)

Array = Any  # numpy.ndarray
GROUP_THREADS = 32 * WARPGROUP_WARPS


def digits(over: tuple[Extent, ...], number: Array) -> dict[str, Array]:
    """The variables that a number, or each of an array, stands for, the fastest last: 5 over (a 2,
    b 3) is a 1, b 2."""
    values: dict[str, Array] = {}
    for extent in reversed(over):
        number, values[extent.name] = divmod(number, extent.size)
    return values


def factor(alloc: Alloc, unit: Unit, slot: Slot, side: str) -> Array:
    """The elements of a tile by its `side`, "row" or "column", and its k, where a unit expects
    them."""
    is_along_k = alloc.axes[0].name == side
    if unit.apart is not None and is_along_k:
        apart = unit.apart[side == "column"]
        return slot.elements[elements_across(unit.layout, alloc.shape, apart)]
    elements = slot.elements[elements_of(unit.layout, alloc.shape, alloc.dtype.itemsize)]
    return elements if is_along_k else elements.T


def elements_of_group(alloc: Alloc, is_across: bool, group: int, groups: int) -> Array:
    """Which elements of a tile one of several groups of threads fills, as an array of bools: the
    threads of all groups take chunks of 16 bytes in turns, those of a line first, or `is_across`
    those of neighbouring lines."""
    rows, length = alloc.shape
    chunk_elements = CHUNK_BYTES // alloc.dtype.itemsize
    chunks = length // chunk_elements
    numbers = np.arange(rows * chunks).reshape(rows, chunks)
    if is_across:
        numbers = np.arange(rows * chunks).reshape(chunks, rows).T
    mine = numbers // GROUP_THREADS % groups == group
    return np.repeat(mine, chunk_elements, axis=1)


def squares_of_group(alloc: Alloc, apart: int, group: int, groups: int) -> Array:
    """The squares of a tile that one of several groups of threads transposes: the threads of all
    groups take them in turns."""
    squares = squares_of(alloc.layout, alloc.shape, apart)
    mine: Array = np.arange(len(squares)) // GROUP_THREADS % groups == group
    return squares[mine]


def elements_of_source(
    source: View | Elements,
    ranges: tuple[range, range],
    variables: Mapping[str, int],
    arrays: Mapping[str, GlobalArray],
    clock: Mapping[str, int],
) -> Array:
    """The elements that fill a tile, read by an agent of this clock."""
    body = TileBody(arrays, clock, variables, ranges)
    if isinstance(source, View):
        return body.operand(source)
    body.number(source.sides)
    for statement in source.body:
        value = body.run(statement)
    return np.where(body.inside, value, np.zeros((), value.dtype))


def through_lines(lines: Alloc, slot: Slot, value: Array, rows: range, columns: range) -> Array:
    """What comes out of the lines of results, into which these rows and columns of a tile are
    written: the same, if both agree where elements lie."""
    places = elements_of(lines.layout, lines.shape, lines.dtype.itemsize)
    width = lines.shape[1]
    result = np.empty_like(value)
    for first in range(columns.start, columns.stop, width):
        last = min(first + width, columns.stop)
        where = places[rows.start : rows.stop, first % width : (last - 1) % width + 1]
        part = slice(first - columns.start, last - columns.start)
        slot.elements[where] = value[:, part]
        result[:, part] = slot.elements[where]
    return result


def head_through(
    body: tuple[Computed | TileStore, ...], name: str
) -> tuple[Computed | TileStore, ...]:
    """The statements up to the one that computes a value."""
    for number, statement in enumerate(body, 1):
        if not isinstance(statement, TileStore) and statement.target == name:
            return body[:number]
    raise TileError(f"no statement computes {name}")


class TileBody:
    """Runs a body for a part of a tile: the elements at `ranges` of indices along both sides.

    values: numbers of variables, and arrays of what is computed, by name
    inside: which elements lie before the ends of both sides
    """

    def __init__(
        self,
        arrays: Mapping[str, GlobalArray],
        clock: Mapping[str, int],
        variables: Mapping[str, int],
        ranges: tuple[range, range],
    ) -> None:
        self.arrays, self.clock, self.variables, self.ranges = arrays, clock, variables, ranges
        self.shape = len(ranges[0]), len(ranges[1])
        self.values: dict[str, Array] = dict(variables)
        self.inside: Array = np.ones(self.shape, bool)

    def number(self, sides: tuple[Digits, ...]) -> None:
        """Let the variables along the sides of the tile have their values."""
        for number, (side, indices) in enumerate(zip(sides, self.ranges, strict=False)):
            numbers = value_of(side.first, self.variables) + np.array(indices)
            along = numbers.reshape((-1, 1) if number == 0 else (1, -1))
            self.inside = self.inside & (along < side.end)
            self.values |= digits(side.over, np.broadcast_to(along, self.shape))

    def run(self, statement: Computed) -> Array:
        """Compute a statement; the result is its value."""
        match statement:
            case Map():
                value = mapped(statement, [*map(self.operand, statement.operands)])
            case Gather(index=index, condition=condition):
                array = self.arrays[statement.array]
                inside = self.inside & self.values[condition] if condition else self.inside
                places = np.where(inside, self.places(index), 0)
                array.require_inside(places)
                array.check(places[inside], self.clock, "read")
                elements = array.elements[places]
                value = np.where(inside, elements, np.zeros((), elements.dtype))
            case Position(index=index):
                value = self.places(index)
        self.values[statement.target] = value
        return value

    def places(self, index: Index) -> Array:
        """An index, for each element."""
        return np.broadcast_to(np.int64(value_of(index, self.values)), self.shape)

    def operand(self, operand: Operand) -> Array | float:
        """The value of an operand: an array, or a number."""
        if isinstance(operand, View):
            tile = Tile.of(operand, self.variables, self.ranges)
            return tile.read(self.arrays[operand.array], self.clock)
        if isinstance(operand, str):
            return np.broadcast_to(self.values[operand], self.shape)
        return operand

    def store(self, store: TileStore, value: Array, agent: str) -> None:
        """Write a value of each element to an array."""
        array = self.arrays[store.to.array]
        if isinstance(store.to, View):
            tile = Tile.of(store.to, self.variables, self.ranges)
        else:
            condition = store.to.condition
            inside = self.inside & self.values[condition] if condition else self.inside
            tile = Tile(np.where(inside, self.places(store.to.index), 0), inside)
            array.require_inside(tile.places)
        tile.write(array, value, agent, self.clock)


def mapped(statement: Map, operands: list[Array | float]) -> Array:
    """The value of an elementwise operation, as the interpreter of graphs has it. A number has the
    dtype of the first operand that is neither a number nor a bool, or of the result."""
    dtypes = [_dtype_of(value) for value in operands if not isinstance(value, (float, int))]
    of_numbers = next((dtype for dtype in dtypes if dtype.kind != "bool"), statement.dtype)
    arrays = [
        np.asarray(value, of_numbers.numpy) if isinstance(value, (float, int)) else value
        for value in operands
    ]
    holes = [
        Node(Op.HOLE, (), Hole(f"x{number}", _dtype_of(array)))
        for number, array in enumerate(arrays)
    ]
    arg = statement.dtype if statement.op in (Op.CAST, Op.BITCAST) else None
    result = Node(statement.op, tuple(holes), arg)
    (value,) = evaluate([result], dict(zip(holes, arrays, strict=True)))
    return value


def _dtype_of(array: Array) -> DType:
    return BY_NAME[array.dtype.name]
