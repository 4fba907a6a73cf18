"""What tile programs compute and where: indices, views of arrays, and values of elements."""

from dataclasses import dataclass
from math import prod

from lamina.core.dtypes import DType
from lamina.ir.ops import Op


@dataclass(frozen=True)
class Index:
    """A constant and a coefficient for each variable of a loop: ``128*a4 + 5``."""

    terms: tuple[tuple[str, int], ...] = ()
    constant: int = 0


@dataclass(frozen=True)
class Side:
    """One side of a tile in an array.

    stride: elements from one index to the next
    first: the index at which the tile begins
    end: from this index on the array has nothing; zeros are read, and nothing is written
    """

    stride: int
    first: Index
    end: int


@dataclass(frozen=True)
class View:
    """A tile of an array: its element (i, j) is at ``offset + s0 * (f0 + i) + s1 * (f1 + j)``, with
    the strides and first indices of both sides."""

    array: str
    offset: Index
    sides: tuple[Side, Side]

    @property
    def is_across(self) -> bool:
        """Are neighbours in memory along the first side of the tile, and not along its lines?"""
        first, last = self.sides
        return last.stride != 1 and first.stride == 1


@dataclass(frozen=True)
class Extent:
    """A variable of a loop, and how many values it has."""

    name: str
    size: int


Operand = str | View | float | int


@dataclass(frozen=True)
class Map:
    """``map v1: f32 = add v0 3.0``: an elementwise operation on values, each of which has a number
    for every element of a tile. An operand is the name of a value, a tile of an array, or a number.
    """

    target: str
    dtype: DType
    op: Op
    operands: tuple[Operand, ...]


@dataclass(frozen=True)
class Gather:
    """``gather v1: bf16 = p0[300*a3 + 1*v0] if v2``: an element of an array for every element of a
    tile; zero where the condition does not hold. Terms of the index are variables and values."""

    target: str
    dtype: DType
    array: str
    index: Index
    condition: str = ""


@dataclass(frozen=True)
class Position:
    """``position v0 = 64*a3 + 1*a4``: an index as a value, int64."""

    target: str
    index: Index


Computed = Map | Gather | Position


@dataclass(frozen=True)
class Digits:
    """One side of a tile: its index i is the number ``first + i``, of which the variables `over`
    are the digits, the fastest last. From as many points as these have on, there is nothing.

    In tiles of 128 rows the side ``128*a3: a8 30, a9 100`` has at i = 5, for a3 = 2, the row 261,
    which is a8 = 2 and a9 = 61.
    """

    first: Index
    over: tuple[Extent, ...]

    @property
    def end(self) -> int:
        """From this number on there is nothing."""
        return prod(extent.size for extent in self.over)


@dataclass(frozen=True)
class Elements:
    """A tile that no view says: each element is computed from its place along both sides. The last
    statement of the body gives it; beyond the ends there are zeros."""

    sides: tuple[Digits, Digits]
    body: tuple[Computed, ...]

    @property
    def is_across(self) -> bool:
        """As of a view: are neighbours in memory along the first side of the tile?"""
        first, last = self.sides
        gathers = [part for part in self.body if isinstance(part, Gather)]
        names = {name for gather in gathers for name in _neighbours_along(gather)}
        is_along_first = first.over[-1].name in names and last.over[-1].name not in names
        return is_along_first and len(first.over) == 1


def _neighbours_along(gather: Gather) -> list[str]:
    """The variables along which a gather reads neighbours in memory."""
    return [name for name, factor in gather.index.terms if factor == 1]


@dataclass(frozen=True)
class Places:
    """Where elements of a tile are stored that no view says: terms of the index, and the condition,
    are as in a gather."""

    array: str
    index: Index
    condition: str = ""
