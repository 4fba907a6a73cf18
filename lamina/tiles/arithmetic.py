"""What the interpreter of tile programs computes: numbers of tiles, factors, epilogues."""

from typing import Any

import numpy as np

from lamina.core.dtypes import BY_NAME
from lamina.ir.interpreter import evaluate
from lamina.ir.node import Node
from lamina.ir.ops import Hole, Op
from lamina.schedule.gpu.atoms import CHUNK_BYTES
from lamina.tiles.layouts import Swizzle, elements_of
from lamina.tiles.memory import Slot
from lamina.tiles.program import GROUP_WARPS, Alloc, Extent, Map, Store, TileError

Array = Any  # numpy.ndarray
GROUP_THREADS = 32 * GROUP_WARPS


def digits(over: tuple[Extent, ...], number: int) -> dict[str, int]:
    """The variables that a number stands for, the fastest last: 5 over (a 2, b 3) is a 1, b 2."""
    values: dict[str, int] = {}
    for extent in reversed(over):
        number, values[extent.name] = divmod(number, extent.size)
    return values


def factor(alloc: Alloc, layout: Swizzle, slot: Slot, side: str) -> Array:
    """The elements of a tile by its `side` and its steps, where a unit expects them by `layout`."""
    elements = slot.elements[elements_of(layout, alloc.shape, alloc.dtype.itemsize)]
    return elements if alloc.axes[0].name == side else elements.T


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


def head_through(body: tuple[Map | Store, ...], name: str) -> tuple[Map | Store, ...]:
    """The statements up to the map that computes a value."""
    for number, statement in enumerate(body, 1):
        if isinstance(statement, Map) and statement.target == name:
            return body[:number]
    raise TileError(f"no map computes {name}")


def mapped(statement: Map, operands: list[Array | float]) -> Array:
    """The value of an elementwise operation, as the interpreter of graphs has it. A number has the
    dtype of the first operand that is neither a number nor a bool, or of the result."""
    dtypes = [BY_NAME[one.dtype.name] for one in operands if not isinstance(one, float)]
    of_numbers = next((dtype for dtype in dtypes if dtype.kind != "bool"), statement.dtype)
    arrays = [
        np.asarray(one, of_numbers.numpy) if isinstance(one, float) else one for one in operands
    ]
    holes = [
        Node(Op.HOLE, (), Hole(f"x{number}", BY_NAME[one.dtype.name]))
        for number, one in enumerate(arrays)
    ]
    arg = statement.dtype if statement.op in (Op.CAST, Op.BITCAST) else None
    result = Node(statement.op, tuple(holes), arg)
    (value,) = evaluate([result], dict(zip(holes, arrays, strict=True)))
    return value
