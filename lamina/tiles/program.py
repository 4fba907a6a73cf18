"""The tile dialect as data: what the blocks of one kernel do with tiles.

    tiles reduce0_512x512
    parameter p0: bf16[262144]
    parameter p1: bf16[262144]
    parameter p2: bf16[262144] written
    alloc left: shared bf16[4][row 128, k 64] swizzle(3, 4, 3)
    alloc right: shared bf16[4][k 64, column 256] swizzle(3, 4, 3)
    alloc sums: registers f32[1][row 128, column 256] linear
    role producer: warps=4 registers=24
      for tile in whole tiles=8 steps=8 blocks=4 share=16 over a4 4, a10 2
        for step over line 8
          fill left <- p0[0 | 512: 128*a4 < 512 | 1: 64*line < 512] by tma
          fill right <- p1[0 | 512: 64*line < 512 | 1: 256*a10 < 512] by tma
    role consumers: warps=8 registers=240
      for tile in whole tiles=8 steps=8 blocks=4 share=16 over a4 4, a10 2
        set sums <- 0.0
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
from enum import StrEnum
from typing import TypeVar

from lamina.core.dtypes import DType
from lamina.errors import VerifyError
from lamina.ir.monoids import Monoid
from lamina.schedule.gpu.atoms import FMA_COLUMNS_APART, FMA_ROWS_APART
from lamina.tiles.layouts import LINEAR, SWIZZLE_128, Swizzle
from lamina.tiles.values import (
    Computed,
    Digits,
    Elements,
    Extent,
    Gather,
    Index,
    Map,
    Operand,
    Places,
    Position,
    View,
)

# Exponentials of up to exp(6) = 403 are as exact as others: a shift moves by more than this alone,
# and most steps rescale nothing.
SHIFT_THRESHOLD = 6.0
# Of a warpgroup, which CUDA texts call a group: its warps, and the rows that these multiply.
WARPGROUP_WARPS = 4
WARPGROUP_ROWS = 64
FMA_APART = (FMA_ROWS_APART, FMA_COLUMNS_APART)


class TileError(VerifyError):
    """A tile program that breaks an invariant of its dialect, or that does what is undefined."""


@dataclass(frozen=True)
class Unit:
    """What multiplies tiles.

    left, right: the proxy by which a factor is read, "async" from shared memory by the unit itself,
        or "generic" by threads into registers, where the product is issued; "registers" if it lies
        there. What threads have
        written, by the generic one, is visible to the other one after a fence alone
    layout: of the tiles that it reads
    rounds: whether it reads factors of float32 as tf32, so that fills round them
    apart: of a unit that reads one k of four rows, or columns, in a chunk: how many rows of the
        left tile are from one to the next, and columns of the right tile. Tiles whose lines lie
        along k are transposed in such squares before it reads them
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
    # A left factor that registers hold in any case.
    "wgmma_of_registers": Unit(left="registers", right="async"),
    "mma_of_registers": Unit(left="registers", right="generic"),
}
# Who fills tiles: the threads of a role, element by element, or the copy engine, which one thread
# asks to and which reports to a barrier.
AGENTS = ("threads", "tma")
# "whole": a block has every `blocks`th tile. "stream_k": blocks have as many whole tiles as each
# can have, and up to all of them share the steps of the others, and have fewer steps where they
# hand over sums or add them up. "equal": the same in equal parts, as one step of `fma` takes longer
# than to write and read partial sums. "tickets": a block takes the next tile whenever it has
# finished one.
ORDERS = ("whole", "stream_k", "equal", "tickets")
MEMORIES = ("shared", "registers")


@dataclass(frozen=True)
class TileParameter:
    """An array of the kernel, `size` elements."""

    name: str
    dtype: DType
    size: int
    written: bool = False


@dataclass(frozen=True)
class TileAxis:
    """A side of a tile and its size: "row", "column" or "k"; "key" or "element" of attention; and
    "one", of size 1, of what each row has one of."""

    name: str
    size: int


@dataclass(frozen=True)
class Alloc:
    """Memory for tiles of one buffer: `stages` of them, neighbours along the last axis."""

    name: str
    memory: str
    dtype: DType
    stages: int
    axes: tuple[TileAxis, TileAxis]
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
class Product:
    """``sums = left * right``, over the axis that both factors have. A left factor in shared memory
    has 64 rows for each warpgroup; in registers each group has its own."""

    sums: str
    left: str
    right: str


@dataclass(frozen=True)
class Mma:
    """Begin products of the tiles in the current slots, which are then waited for together; each
    warpgroup multiplies its 64 rows.

    adds: to the sums, which begin anew otherwise
    running: what `synchronised` reads: how many of these statements it lets run on into the next
        step, as `drain`s say afterwards. 0 in products back to back, whose order
        `barriers_of_attention.py` decides
    """

    products: tuple[Product, ...]
    unit: str
    adds: bool
    running: int = 0

    @property
    def sums(self) -> tuple[str, ...]:
        """Of all products."""
        return tuple(product.sums for product in self.products)


@dataclass(frozen=True)
class TileStore:
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

    body: tuple["Computed | TileStore", ...]
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
    slot, or, if it `acquires` the slot for this use, the one before it, which for the first use
    counts as ended."""

    barrier: str
    acquires: bool = False


@dataclass(frozen=True)
class Arrive:
    """Give back the current slot: each warp tells its barrier."""

    barrier: str


@dataclass(frozen=True)
class Release:
    """Give back the slots that are in use, the oldest first, until `but` of them are left: an
    `Arrive` for each of them, of steps before. How many are in use depends on the step, and on
    whether the group has paused.

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
class NextStep:
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
    """Wait until the products of at most `running` statements still run, the last ones begun."""

    running: int


@dataclass(frozen=True)
class Fence:
    """Make what this thread has written visible to the asynchronous proxy."""


@dataclass(frozen=True)
class Sync:
    """Wait for all threads of the role."""


# Registers: what is computed between products of which one has a factor from another one's sums.


@dataclass(frozen=True)
class Set:
    """Let registers have a value, rounded to their dtype."""

    registers: str
    value: Operand


@dataclass(frozen=True)
class RowReduce:
    """``reduce v1: f32 = max v0``: of the values of each row of a tile."""

    target: str
    dtype: DType
    monoid: Monoid
    value: str


@dataclass(frozen=True)
class Shift:
    """What is subtracted from the exponents of each row from now on, `target`: the `wanted` value,
    or that of before, in the registers `shift`, if it differs by SHIFT_THRESHOLD or less. `factor`
    is exp(before - now), by which sums so far are rescaled. A row whose `maximum` is -inf has no
    shift yet: 0 is subtracted, and nothing is rescaled."""

    target: str
    factor: str
    shift: str
    maximum: str
    wanted: str


@dataclass(frozen=True)
class Rescale:
    """Multiply sums by the factor of their row."""

    sums: str
    factor: str


@dataclass(frozen=True)
class Compute:
    """Elementwise arithmetic on the registers of a group, with the variables along both sides of a
    tile. What it waits for comes first."""

    sides: tuple[Digits, Digits]
    body: tuple["Statement", ...]


@dataclass(frozen=True)
class Previous:
    """What is done for the step before the current one."""

    body: tuple["Statement", ...]


@dataclass(frozen=True)
class StepMask:
    """Steps of a tile that are masked as a whole, and need not be computed. An element is masked
    where ``place + i + slope * step`` is positive: `i` goes from `low` to `high` among all rows of
    a block and all elements of a step, and by `by_warpgroup` from the 64 rows of a warpgroup to the
    next ones."""

    place: Index
    low: int
    high: int
    slope: int
    by_warpgroup: int


@dataclass(frozen=True)
class Tickets:
    """The order in which blocks take tiles: first those of as many arrays (heads) as are read
    `together`, and of these the first rows of each array, or the last ones.

    row_tiles: of an array. is_last_first: whether the last rows of an array come first
    barrier: which tells the roles of a block what ticket it has. Where one role fills and
        multiplies, it is "": the role's first thread draws, and a sync of all threads tells them
    """

    row_tiles: int
    together: int
    is_last_first: bool
    barrier: str = ""


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
    tickets: Tickets | None = None


class StepsOf(StrEnum):
    """Which steps of a tile a loop has; the values are words of the text format.

    A lowering says what is part of the tile, brought, computed or overlapped. Of eight steps 0 to 7
    masks may leave 2 to 6 to a block, and of these 3 to 5 to one of its warpgroups.
    """

    PART = "part"  # those of the block's part of the tile; the only word where no masks are
    BROUGHT = "brought"  # those that the block fills, as one of its warpgroups needs them: 2 to 6
    COMPUTED = "computed"  # those that the warpgroup needs: 3 to 5
    OVERLAPPED = "overlapped"  # the same, where inner products are a step ahead of outer ones
    # `barriers_of_attention.py` alone makes the following. It takes a loop that is overlapped apart
    # into the first three; what a group leaves out it waits for, and gives back.
    FIRST = "first"  # the first one computed, for its inner products: 3
    OTHERS = "others"  # the rest, each with the outer products of the step before: 4 and 5
    LAST = "last"  # the last one computed, for its outer products: 5
    SKIPPED_BEFORE = "skipped_before"  # those brought before the first one computed: 2
    SKIPPED_BEHIND = "skipped_behind"  # those brought after the last one computed: 6


@dataclass(frozen=True)
class StepLoop:
    """A loop over steps of a tile.

    over: the variables that the number of a step stands for, the fastest last
    which: of the steps it has
    """

    over: tuple[Extent, ...]
    body: tuple["Statement", ...]
    which: StepsOf = StepsOf.PART


Statement = (
    TileLoop | StepLoop | Fill | Transpose | Mma | Map | Gather | Position | TileStore | Epilogue
    | Join | Wait | Arrive | Release | Pause | Resume | NextStep | Advance | Drain | Fence | Sync
    | Set | RowReduce | Shift | Rescale | Compute | Previous | StepMask
)  # fmt: skip

# Statements with a body.
BODIES = (TileLoop, StepLoop, Epilogue, Pause, NextStep, Compute, Previous)


@dataclass(frozen=True)
class Role:
    """Warps with a body of their own.

    warps: a multiple of 4 for groups that multiply, or whose registers change hands; 0 for a role
        that runs inside another one, on the threads of that. Of a role that does no more than ask
        the copy engine, its first thread does it, and the dialect allows 1; lowerings take 4, as
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
    def warpgroups(self) -> int:
        """How many it has: 2 of 8 warps, 0 of 1."""
        return self.warps // WARPGROUP_WARPS


@dataclass(frozen=True)
class TileProgram:
    """What the blocks of one kernel do."""

    name: str
    parameters: tuple[TileParameter, ...]
    allocs: tuple[Alloc, ...]
    barriers: tuple[Barrier, ...]
    roles: tuple[Role, ...]

    def alloc(self, name: str) -> Alloc:
        """The memory of this name. Raises TileError if there is none."""
        return _named(self.allocs, name, "alloc")

    @property
    def sums(self) -> Alloc:
        """The sums of a tile, in registers: those that all steps add to."""
        adding = [mma for mma in self.mmas if mma.adds]
        if not adding:
            raise TileError(f"tiles {self.name}: no product adds to sums")
        return self.alloc(adding[0].sums[0])

    @property
    def mmas(self) -> list[Mma]:
        """What multiplies, in all roles."""
        return [mma for role in self.roles for mma in statements_of(role.body, Mma)]

    @property
    def passing(self) -> frozenset[str]:
        """Buffers that are filled in each step of a tile. All others stay for its steps."""
        loops = [loop for role in self.roles for loop in statements_of(role.body, StepLoop)]
        return frozenset(fill.buffer for loop in loops for fill in statements_of(loop.body, Fill))

    def barrier(self, name: str) -> Barrier:
        """The barrier of this name. Raises TileError if there is none."""
        return _named(self.barriers, name, "barrier")

    def role(self, name: str) -> Role:
        """The role of this name. Raises TileError if there is none."""
        return _named(self.roles, name, "role")

    def parameter(self, name: str) -> TileParameter:
        """The array of this name. Raises TileError if there is none."""
        return _named(self.parameters, name, "parameter")


Named = TypeVar("Named", Alloc, Barrier, Role, TileParameter)
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
        if isinstance(statement, BODIES):
            yield from statements(statement.body)


def statements_of(body: tuple[Statement, ...], kind: type[Kind]) -> list[Kind]:
    """The statements of a kind, such as all fills, in their order."""
    return [statement for statement in statements(body) if isinstance(statement, kind)]
