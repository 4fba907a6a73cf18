"""The tile dialect as data: what the blocks of one kernel do with tiles.

    tiles reduce0_512x512
    parameter p0: bf16[262144]
    parameter p1: bf16[262144]
    parameter p2: bf16[262144] written
    alloc left: shared bf16[4][row 128, step 64] swizzle(3, 4, 3)
    alloc right: shared bf16[4][step 64, column 256] swizzle(3, 4, 3)
    alloc sums: registers f32[1][row 128, column 256] linear
    role producer: warps=1
      for tile in whole tiles=8 steps=8 blocks=4 share=16 over a4 4, a10 2
        for step over line 8
          fill left <- p0[0 | 512: 128*a4 < 512 | 1: 64*line < 512] by tma
          fill right <- p1[0 | 512: 64*line < 512 | 1: 256*a10 < 512] by tma
    role consumers: warps=8
      for tile in whole tiles=8 steps=8 blocks=4 share=16 over a4 4, a10 2
        for step over line 8
          mma sums += left * right by wgmma running=1
        epilogue
          map v0: bf16 = cast sums
          store p2[0 | 512: 128*a4 < 512 | 1: 256*a10 < 512] <- v0

A schedule says this much. `lamina/tiles/barriers.py` adds the statements that order fills and uses:
barriers, waits, arrivals, fences. `lamina/tiles/text.py` prints and parses programs,
`lamina/tiles/verify.py` lists their invariants, `lamina/tiles/interpreter.py` runs them.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import TypeVar

from lamina.core.dtypes import DType
from lamina.errors import VerifyError
from lamina.ir.ops import Op
from lamina.schedule.gpu.atoms import FMA_COLUMNS_APART, FMA_ROWS_APART
from lamina.tiles.layouts import LINEAR, SWIZZLE_128, Swizzle

GROUP_WARPS = 4  # warps that multiply 64 rows together
GROUP_ROWS = 64
FMA_APART = (FMA_ROWS_APART, FMA_COLUMNS_APART)


class TileError(VerifyError):
    """A tile program that breaks an invariant of its dialect, or that does what is undefined."""


@dataclass(frozen=True)
class Unit:
    """What multiplies tiles.

    left, right: the proxy by which a factor is read, "async" from shared memory by the unit itself,
        or "generic" by threads into registers, where the product is issued. What threads have
        written, by the generic one, is visible to the other one after a fence alone
    layout: of the tiles that it reads
    rounds: whether it reads factors of float32 as tf32, so that fills round them
    apart: of a unit that reads four rows, or columns, of one step in a chunk: how many rows of the
        left tile are from one to the next, and columns of the right tile. Tiles whose lines lie
        along steps are transposed in such squares before it reads them
    """

    left: str
    right: str
    layout: Swizzle = SWIZZLE_128
    rounds: bool = True
    apart: tuple[int, int] | None = None

    @property
    def runs_by_itself(self) -> bool:
        """Whether it multiplies while threads do other things, until these wait for it."""
        return "async" in (self.left, self.right)


# Tensor cores that run by themselves (wgmma); those of which threads wait for every product
# (mma.sync); and fused multiply-adds.
UNITS = {
    "wgmma": Unit(left="async", right="async"),
    "wgmma_left_in_registers": Unit(left="generic", right="async"),
    "mma": Unit(left="generic", right="generic"),
    "fma": Unit(left="generic", right="generic", rounds=False, apart=FMA_APART),
}
# Who fills tiles: the threads of a role, element by element, or the copy engine, which one thread
# asks to and which reports to a barrier.
AGENTS = ("threads", "tma")
# "whole": a block has every `blocks`th tile. "shared": blocks share the steps of all tiles
# (stream-K), and have fewer of them where they hand over sums or add them up. "equal": the same in
# equal parts, as a step takes longer than that.
ORDERS = ("whole", "shared", "equal")
MEMORIES = ("shared", "registers")


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
class Parameter:
    """An array of the kernel, `size` elements."""

    name: str
    dtype: DType
    size: int
    written: bool = False


@dataclass(frozen=True)
class Axis:
    """A side of a tile, "row", "column" or "step", and its size."""

    name: str
    size: int


@dataclass(frozen=True)
class Alloc:
    """Memory for tiles of one buffer: `stages` of them, neighbours along the last axis."""

    name: str
    memory: str
    dtype: DType
    stages: int
    axes: tuple[Axis, Axis]
    layout: Swizzle = LINEAR

    @property
    def shape(self) -> tuple[int, int]:
        """Of a tile."""
        first, last = self.axes
        return first.size, last.size


@dataclass(frozen=True)
class Barrier:
    """A barrier for each of `stages` slots of a buffer. A phase of it ends with so many `arrivals`,
    and once all bytes have come that the copy engine was asked for."""

    name: str
    stages: int
    arrivals: int


@dataclass(frozen=True)
class Fill:
    """Fill the next slot of a buffer with a tile of an array."""

    buffer: str
    source: "View | Elements"
    agent: str
    barrier: str = ""  # that the copy engine reports to


@dataclass(frozen=True)
class Transpose:
    """Transpose, in the current slot of a buffer of float32, each square of four elements of a line
    by four lines that are `apart` lines apart. With 8 of 128 lines, the lines 0, 8, 16 and 24 have
    the rows 0, 8, 16 and 24 of steps 0 to 3 in their first chunks, and then each one step of these
    rows."""

    buffer: str
    apart: int


@dataclass(frozen=True)
class Mma:
    """Add to `sums` the products of the tiles in the current slots, each group of four warps for
    its 64 rows. In the first step of a block's part of a tile sums begin at 0.

    running: how many products may still run when the next step begins
    """

    sums: str
    left: str
    right: str
    unit: str
    running: int


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
        gathers = statements_of(self.body, Gather)
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


@dataclass(frozen=True)
class Store:
    """Write a value to an array: through the lines of `through`, so that whole rows are written,
    or, without these, element by element."""

    to: View | Places
    value: Operand
    through: str = ""


@dataclass(frozen=True)
class Epilogue:
    """What becomes of the sums of a tile, once its block has all of them.

    kept: the value that threads keep of each result, where the epilogue overlaps with steps of the
        next tile; "" where it does not
    slices: how many slices of columns it has then, one beside each of the first steps
    sides: of the tile of results, where its body needs the variables along them
    """

    body: tuple["Computed | Store", ...]
    kept: str = ""
    slices: int = 0
    sides: tuple[Digits, ...] = ()


@dataclass(frozen=True)
class Join:
    """Where blocks share the steps of a tile: the block with its first step adds the sums of the
    others, which hand theirs over and leave the tile."""

    sums: str


@dataclass(frozen=True)
class Wait:
    """Wait until a phase of the barrier of the current slot has ended: the phase of this use of the
    slot, or, if `before`, the one before it, which for the first use counts as ended."""

    barrier: str
    before: bool = False


@dataclass(frozen=True)
class Release:
    """Give back the slots that are in use, the oldest first, until `but` of them are left.

    to: a barrier that is told, or a role that runs inside this one and fills the slot
    """

    to: str
    but: int


@dataclass(frozen=True)
class Pause:
    """In the step before the `last` ones of a tile, where a block has `least` steps of it: the
    second of two groups does what `body` says, and waits until the first one has begun its last
    product. So one group multiplies while the other one stores."""

    last: int
    least: int
    body: tuple["Statement", ...]


@dataclass(frozen=True)
class Resume:
    """Where the first of two groups lets the second one go on that waits in `Pause`: after its last
    product of a tile, where a block has `least` steps of it."""

    least: int


@dataclass(frozen=True)
class Ahead:
    """In a step, do `body` for the next step that the block has of a tile, if there is one, and
    thus with its slot."""

    body: tuple["Statement", ...]


@dataclass(frozen=True)
class Advance:
    """Run so many iterations of a role that runs inside this one, if it has as many left."""

    role: str
    count: int


@dataclass(frozen=True)
class Drain:
    """Wait until at most `running` products still run."""

    running: int


@dataclass(frozen=True)
class Fence:
    """Make what this thread has written visible to the asynchronous proxy."""


@dataclass(frozen=True)
class Sync:
    """Wait for all threads of the role."""


@dataclass(frozen=True)
class TileLoop:
    """A loop over the tiles of results that a block has, or has a part of the steps of.

    order: one of ORDERS
    tiles: of all blocks. steps: of a tile. blocks: how many. share: steps of a block
    over: the variables that the number of a tile stands for, the fastest last
    """

    order: str
    tiles: int
    steps: int
    blocks: int
    share: int
    over: tuple[Extent, ...]
    body: tuple["Statement", ...]


@dataclass(frozen=True)
class StepLoop:
    """A loop over the steps that a block has of a tile. over: the variables that the number of a
    step stands for, the fastest last."""

    over: tuple[Extent, ...]
    body: tuple["Statement", ...]


Statement = (
    TileLoop | StepLoop | Fill | Transpose | Mma | Map | Gather | Position | Store | Epilogue | Join
    | Wait | Release | Pause | Resume | Ahead | Advance | Drain | Fence | Sync
)  # fmt: skip


@dataclass(frozen=True)
class Role:
    """Warps with a body of their own.

    warps: a multiple of 4 for groups that multiply, or whose registers change hands; 0 for a role
        that runs inside another one, on the threads of that. Of a role that does no more than ask
        the copy engine, its first thread does it, and the dialect allows 1; `lower` takes 4, as
        registers change hands by groups of warps
    inside: the name of that one, or ""
    registers: of each thread, once a role gives some away or takes what others gave; 0 where all
        roles have the same
    """

    name: str
    warps: int
    body: tuple[Statement, ...]
    inside: str = ""
    registers: int = 0

    @property
    def groups(self) -> int:
        """Of four warps: 2 of 8 warps, 0 of 1."""
        return self.warps // GROUP_WARPS


@dataclass(frozen=True)
class TileProgram:
    """What the blocks of one kernel do."""

    name: str
    parameters: tuple[Parameter, ...]
    allocs: tuple[Alloc, ...]
    barriers: tuple[Barrier, ...]
    roles: tuple[Role, ...]

    def alloc(self, name: str) -> Alloc:
        """The memory of this name. Raises TileError if there is none."""
        return _named(self.allocs, name, "alloc")

    @property
    def sums(self) -> Alloc:
        """The sums of a tile, in registers."""
        (sums,) = (alloc for alloc in self.allocs if alloc.memory == "registers")
        return sums

    def barrier(self, name: str) -> Barrier:
        """The barrier of this name. Raises TileError if there is none."""
        return _named(self.barriers, name, "barrier")

    def role(self, name: str) -> Role:
        """The role of this name. Raises TileError if there is none."""
        return _named(self.roles, name, "role")

    def parameter(self, name: str) -> Parameter:
        """The array of this name. Raises TileError if there is none."""
        return _named(self.parameters, name, "parameter")


Named = TypeVar("Named", Alloc, Barrier, Role, Parameter)
Kind = TypeVar("Kind", bound=Statement)


def _named(declared: tuple[Named, ...], name: str, kind: str) -> Named:
    for declaration in declared:
        if declaration.name == name:
            return declaration
    known = ", ".join(declaration.name for declaration in declared) or "none"
    raise TileError(f"tiles: no {kind} {name!r}; there are {known}")


def statements(body: tuple[Statement, ...]) -> Iterator[Statement]:
    """All statements, each before those inside it."""
    for statement in body:
        yield statement
        if isinstance(statement, (TileLoop, StepLoop, Epilogue, Pause, Ahead)):
            yield from statements(statement.body)


def statements_of(body: tuple[Statement, ...], kind: type[Kind]) -> list[Kind]:
    """The statements of a kind, such as all fills, in their order."""
    return [statement for statement in statements(body) if isinstance(statement, kind)]
