"""The parts of products back to back, such as attention, and how their blocks compute them.

In ``softmax(q @ k.T) @ v`` rows are queries, the inner product is ``q @ k.T``, and the outer one
adds up ``p @ v`` over keys. A step is a tile of, say, 64 keys. A tile of queries stays in shared
memory while those of keys and values pass by. Other products back to back have the same names.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import ceil

from lamina.core.shape import Shape
from lamina.core.target import Target
from lamina.graph import index as ix
from lamina.ir.kernel import Store, bound_axes, bounds, free_axes, points
from lamina.ir.node import Node
from lamina.ir.ops import Op
from lamina.loops.moves import Schedule
from lamina.loops.nest import Axes, Nest, TileFill
from lamina.schedule.gpu.atoms import ATOMS, LINE_BYTES, RESERVED_BYTES, Atom
from lamina.schedule.gpu.attention import ExpFactor, exp_factor_of, masks_of
from lamina.schedule.gpu.pipelining import Ahead, Depth
from lamina.tiles.copies import EngineCopy
from lamina.tiles.decisions import (
    MAX_ROW_STORES,
    ResultSide,
    RowLayout,
    copy_of_tile,
    element_axes,
    is_tile_transposed,
    row_axes,
    stores_by_rows,
)
from lamina.tiles.program import WARPGROUP_ROWS

ELEMENT_BYTES = 2  # of factors, which have 16 bits
PANEL = 64  # elements of a line of 128 bytes
# Stages of the buffers of tiles that pass by, unless a schedule says how many: DEEP where shared
# memory has room for them, or else SHALLOW, or else as many as fit. Powers of two, as texts divide
# the numbers of steps by them. Chosen: no measurement of others is kept.
SHALLOW, DEEP = 4, 8
MAX_IN_ORDER = 2  # stages of them where the threads that multiply fill them
# Bytes of tiles that pass by, such as keys and values, of all arrays (heads) whose rows blocks
# compute at a time: a third of the second-level cache of an H100, 50 MiB, so that they stay in it
# beside rows and results. Chosen: no measurement of other shares is kept.
CACHED_BYTES = 16 << 20
# Registers of a thread for sums and packed factors, at most, where the inner products of a step run
# beside the outer products of the step before: forward attention of 128 keys in a tile and 128
# elements in a row has 64 + 64 + 32. Threads of two groups have 240: 80 are left for addresses and
# arithmetic. Chosen: no measurement of more is kept.
AHEAD_REGISTERS = 160


@dataclass(frozen=True)
class FactorTile:
    """A tile of a factor.

    element_axis  along its rows, which are read as a whole
    shape         its rows, and the elements of a row, padded to whole lines
    passes_by     whether it has keys as rows, which pass by; tiles of rows stay
    """

    fill: TileFill
    element_axis: Node
    shape: Shape
    passes_by: bool

    @property
    def nbytes(self) -> int:
        """Of one stage: 16 KiB of 128 rows of 64 elements."""
        rows, elements = self.shape
        return ELEMENT_BYTES * rows * elements

    @property
    def is_transposed(self) -> bool:
        """Do its lines have rows or keys, and not the elements of a row?"""
        return is_tile_transposed(self.fill)


@dataclass(frozen=True)
class KeyLoops:
    """The sub-loops of keys: the tile, the group of 8 keys in it, and in a group the lane and
    one of two neighbours, as columns of inner products."""

    tile: Node
    column_group: Node
    lane: Node
    neighbour: Node

    @property
    def keys_of_tile(self) -> int:
        """Keys of one tile: 64 in 8 groups."""
        return points([self.column_group, self.lane, self.neighbour])


@dataclass(frozen=True)
class RegisterLoops:
    """The sub-loops of results that number the elements of a thread: groups of 8 columns, its two
    rows, and two neighbours in a group."""

    column_group: Node
    row_half: Node
    neighbour: Node


@dataclass(frozen=True)
class Reductions:
    """The reductions of products back to back: inner products; sums of rows, and outer products,
    both over all keys; and the exponential that all terms over the keys have as a factor."""

    inner: list[Node]
    of_rows: list[Node]
    outer: list[Node]
    exp_factor: ExpFactor
    keys: KeyLoops


@dataclass(frozen=True)
class MaskBound:
    """A mask whose index depends on the tile of keys: it leaves tiles out.

    The index is positive where an element is masked, as ``key - query`` of a causal mask. With
    tiles of 64 keys and 128 queries to a block, in two groups of 64,

        key - query = (64 * tile + key_in_tile) - (128 * block + 64 * row_group + row)

    condition     of the kernel, which holds where elements are masked if `masks_where`
    place         what the block knows: ``-128 * block``
    low, high     within a tile and a block, from ``0 - 64 - 63`` to ``63 - 0 - 0``
    slope         for each tile, 64
    by_warpgroup  -64, so that a warpgroup can narrow the range to its rows
    """

    condition: Node
    masks_where: bool
    place: Node
    low: int
    high: int
    slope: int
    by_warpgroup: int


@dataclass(frozen=True)
class BackToBackParts:
    """What a nest with products back to back consists of."""

    nest: Nest

    @property
    def atom(self) -> Atom:
        """The atom of its products."""
        return ATOMS[self.nest.atom]

    @property
    def warpgroups(self) -> int:
        """How many warpgroups a block has, one for each 64 rows."""
        return self.atom.m // WARPGROUP_ROWS

    @cached_property
    def grid(self) -> Axes:
        """The axes that number tiles of rows: batch and heads; bands of tiles of rows; two axes of
        columns, which are one tile here; tiles of rows in a band."""
        return self._bound_to("grid")

    @cached_property
    def rows_inside(self) -> Axes:
        """The sub-loops of a tile that number threads, the groups of rows first."""
        return self._bound_to("thread")

    def _bound_to(self, binding: str) -> Axes:
        return tuple(axis for axis in self.nest.order if self.nest.bound(axis) == binding)

    @cached_property
    def registers(self) -> RegisterLoops:
        """The unrolled sub-loops of results, in the order of `Atom.register_loops`."""
        return RegisterLoops(*(axis for axis in self._bound_to("unroll") if not axis.arg.reduce))

    @cached_property
    def reductions(self) -> Reductions:
        """The reductions of the kernel.

        Outer products are those of them whose values vary along all unrolled axes of results: the
        groups of columns, the two rows and the two neighbours of a thread. Sums of rows and the
        maximum vary along `row_half` alone.
        """
        reductions = [node for node in self.nest.kernel.nodes if node.op is Op.LOOP_REDUCE]
        # The order of the sub-loops that `Tensorize` splits the keys into.
        (key_axes,) = {bound_axes(node) for node in reductions if len(bound_axes(node)) > 1}
        over_keys = [node for node in reductions if bound_axes(node) == key_axes]
        inner = [node for node in reductions if node not in over_keys]
        unrolled = set(vars(self.registers).values())
        outer = [node for node in over_keys if unrolled <= free_axes(node)]
        exp_factor = exp_factor_of(over_keys)
        assert exp_factor is not None
        of_rows = [node for node in over_keys if node not in (*outer, exp_factor.row_max)]
        return Reductions(inner, of_rows, outer, exp_factor, KeyLoops(*key_axes))

    @cached_property
    def tiles(self) -> list[FactorTile]:
        """The tiles, each once, those of rows first, then those that pass by.

        For heads of 80 and tiles of 128 keys: q (128, 128), which stays, then k and v, (128, 128)
        each. Rows of 80 elements are padded to two lines of PANEL = 64.
        """
        keys = self.reductions.keys
        tiles = []
        for fill in dict.fromkeys(self.nest.tiles):
            (element_axis,) = element_axes(fill)
            elements = ceil(element_axis.arg.size / PANEL) * PANEL
            # A tile of keys has its rows by the number of the tile of keys.
            passes_by = keys.tile in free_axes(fill.row_index)
            rows = keys.keys_of_tile if passes_by else self.atom.m
            tiles.append(FactorTile(fill, element_axis, (rows, elements), passes_by))
        return sorted(tiles, key=lambda tile: tile.passes_by)

    @cached_property
    def buffers(self) -> list[str]:
        """The names of the buffers of `tiles`."""
        return [f"tile{number}" for number in range(len(self.tiles))]

    def tile_in(self, buffer: str) -> tuple[FactorTile, EngineCopy | None]:
        """The tile that a buffer holds, and how the engine copies it."""
        number = self.buffers.index(buffer)
        return self.tiles[number], self.copies[number]

    @property
    def staying(self) -> int:
        """How many tiles stay."""
        return sum(not tile.passes_by for tile in self.tiles)

    @cached_property
    def factor_numbers(self) -> tuple[list[tuple[int, int]], list[int]]:
        """By the numbers of `tiles`, both factors of each inner product, and the right one of each
        outer product."""
        fills = [tile.fill for tile in self.tiles]
        numbers = [fills.index(fill) for fill in self.nest.tiles]
        end = 2 * len(self.reductions.inner)
        return list(zip(numbers[:end:2], numbers[1:end:2], strict=True)), numbers[end:]

    @cached_property
    def result_sides(self) -> tuple[ResultSide, ResultSide]:
        """The rows of results are those of the first factor, such as queries, and the columns those
        of the last one, such as values, whose tile has them as elements of a row: `Tensorize`
        reads rows as a whole."""
        first, last = self.nest.tiles[0], self.nest.tiles[-1]
        registers, lane = self.registers, self.rows_inside[-1]
        column = ix.row_major((registers.column_group, lane, registers.neighbour))
        rows, columns = points(row_axes(first)), points(element_axes(last))
        return ResultSide(first.row_index, rows), ResultSide(column, columns)

    @cached_property
    def row_stores(self) -> Mapping[Store, RowLayout]:
        """The stores by whole rows, and how these lie."""
        inside = {*self._bound_to("thread"), *self._bound_to("unroll")}
        return stores_by_rows(self.nest, *self.result_sides, inside)

    @property
    def line_bytes(self) -> int:
        """Shared memory for results on their way to memory."""
        stores = min(len(self.nest.kernel.stores), MAX_ROW_STORES)
        return stores * self.atom.m * LINE_BYTES

    @cached_property
    def masks(self) -> list[MaskBound]:
        """The masks that leave out tiles of keys."""
        masks: list[MaskBound] = []
        tile = self.reductions.keys.tile
        for condition, mask in masks_of(self.reductions.exp_factor.exponent).items():
            terms, constant = ix.terms_of(mask.index)
            slope = terms.pop(tile, 0)
            if not slope:
                continue
            of_block = {axis: factor for axis, factor in terms.items() if axis in self.grid}
            of_tile = {axis: factor for axis, factor in terms.items() if axis not in self.grid}
            low, high = bounds(ix.affine(of_tile, constant))
            by_warpgroup = of_tile.get(self.rows_inside[0], 0)
            place = ix.affine(of_block, 0)
            bound = MaskBound(
                condition, mask.masks_where, place, low, high, slope, by_warpgroup
            )
            masks.append(bound)
        return masks

    @property
    def is_last_first(self) -> bool:
        """Whether rows that come last take longest, so that blocks take these first: where later
        tiles of keys are masked, as those above a diagonal, later rows have more of them. Of
        several masks the last one decides: it is only an order."""
        return bool(self.masks) and self.masks[-1].slope > 0

    @cached_property
    def copies(self) -> list[EngineCopy | None]:
        """How the copy engine fills each of `tiles`; None where it cannot."""
        return [_copy(tile, self.atom) for tile in self.tiles]

    @property
    def row_tiles(self) -> int:
        """Tiles of rows of an array, such as a head."""
        *_, bands, _, _, row_tiles_of_band = self.grid
        return points([bands, row_tiles_of_band])

    @property
    def arrays_together(self) -> int:
        """How many arrays' passing tiles the cache has room for, one at least."""
        steps = self.reductions.keys.tile.arg.size
        passing_bytes: int = steps * sum(tile.nbytes for tile in self.tiles if tile.passes_by)
        return max(CACHED_BYTES // passing_bytes, 1)

    def is_ahead(self, has_room: bool) -> bool:
        """Whether inner products of a step run beside the outer products of the step before: unless
        the schedule says so, where registers hold a whole tile of sums beside all others. Raises
        FormatError, naming the move, if they cannot.

        has_room: whether a producer brings tiles of two steps at a time
        """
        reductions = self.reductions
        keys = reductions.keys.keys_of_tile
        sums_of_outer = self.atom.n // 2 + keys // 4  # its sums, and its packed left factor
        registers = len(reductions.inner) * keys // 2 + len(reductions.outer) * sums_of_outer
        fits = registers <= AHEAD_REGISTERS
        asked = self.nest.pipelining.ahead
        if asked is None:
            return fits and has_room
        says = f"{registers} registers of a thread hold sums and factors; {AHEAD_REGISTERS} may"
        Ahead(asked).require(fits or not asked, says)
        Ahead(asked).require(has_room or not asked, "no producer brings tiles of two steps")
        return bool(asked)


def _copy(tile: FactorTile, atom: Atom) -> EngineCopy | None:
    rows, elements = tile.shape
    return copy_of_tile(tile.fill, atom, elements if tile.is_transposed else rows)


@dataclass(frozen=True)
class BackToBackDecisions:
    """How products back to back are computed on a GPU.

    unit          what multiplies two tiles, of UNITS
    has_producer  whether a role of its own has the copy engine bring all tiles; otherwise the
                  threads that multiply fill them, step by step
    staying       stages of the buffers of tiles that stay
    passing       stages of those that pass by
    is_ahead      whether inner products of a step run beside the outer products of the step before
    row_stores    the stores by whole rows, through lines of shared memory, and how these lie
    """

    unit: str
    has_producer: bool
    staying: int
    passing: int
    is_ahead: bool
    row_stores: Mapping[Store, RowLayout]

    @property
    def moves(self) -> Schedule:
        """All that a schedule can say of them."""
        return Depth(self.passing), Ahead(int(self.is_ahead))


def decide_back_to_back(parts: BackToBackParts, target: Target) -> BackToBackDecisions:
    """The decisions for a nest with products back to back. Raises FormatError, naming the move, if
    what the schedule says does not fit.

    Results go through lines of shared memory behind one stage of all tiles, if these have room for
    both. On an sm_86 with 98 KiB, tiles of 128 queries, keys and values of 128 elements each have
    96 KiB: its threads store results as they have them, element by element.
    """
    has_wgmma = "wgmma" in target.engines
    has_producer = has_wgmma and all(parts.copies)
    staying_bytes = sum(tile.nbytes for tile in parts.tiles if not tile.passes_by)
    passing_bytes = sum(tile.nbytes for tile in parts.tiles if tile.passes_by)
    free_bytes = target.shared_bytes - RESERVED_BYTES
    _require_depth(1, (free_bytes - staying_bytes) // passing_bytes)
    has_lines = staying_bytes + passing_bytes + parts.line_bytes <= free_bytes
    if has_lines:
        free_bytes -= parts.line_bytes
    if has_producer:
        stages = _stages_of_producer(parts, free_bytes, staying_bytes, passing_bytes)
    else:
        fitting = (free_bytes - staying_bytes) // passing_bytes
        stages = _Stages(staying=1, passing=_stages_in_order(parts, fitting))
    return BackToBackDecisions(
        unit="wgmma" if has_wgmma else "mma",
        has_producer=has_producer,
        staying=stages.staying,
        passing=stages.passing,
        is_ahead=parts.is_ahead(has_producer and stages.passing > 1),
        row_stores=parts.row_stores if has_lines else {},
    )


@dataclass(frozen=True)
class _Stages:
    """How many stages the buffers of tiles that stay have, and those of tiles that pass by."""

    staying: int
    passing: int


def _stages_of_producer(
    parts: BackToBackParts, free_bytes: int, staying_bytes: int, passing_bytes: int
) -> _Stages:
    """Stages where a producer fills the buffers. Raises FormatError, naming the move, if so many as
    the schedule says do not fit. staying_bytes, passing_bytes: of one stage of all such tiles.

    Tiles that stay have two stages if the others can then be as deep, or four deep: a block brings
    those of its next rows before it has stored its results.
    """
    fitting_beside_one = (free_bytes - staying_bytes) // passing_bytes
    fitting_beside_two = (free_bytes - 2 * staying_bytes) // passing_bytes
    asked = parts.nest.pipelining.depth
    has_two = fitting_beside_two >= min(fitting_beside_one, asked or SHALLOW)
    fitting = fitting_beside_two if has_two else fitting_beside_one
    if asked is not None:
        _require_depth(asked, fitting)
        fitting = asked
    elif fitting >= SHALLOW:
        fitting = DEEP if fitting >= DEEP else SHALLOW
    return _Stages(staying=2 if has_two else 1, passing=fitting)


def _stages_in_order(parts: BackToBackParts, fitting: int) -> int:
    """Stages of buffers of tiles that pass by, where the threads that multiply fill them: two, so
    that some warps fill the next tiles while others still multiply; one if there is no room."""
    asked = parts.nest.pipelining.depth
    if asked is None:
        return min(fitting, MAX_IN_ORDER)
    _require_depth(asked, fitting)
    Depth(asked).require(asked <= MAX_IN_ORDER, "threads fill the tiles of the next step at most")
    return asked


def _require_depth(asked: int, fitting: int) -> None:
    Depth(asked).require(asked <= fitting, f"shared memory has room for {fitting} steps")
