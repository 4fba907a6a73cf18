"""Reductions whose operands are used again along rows get a register tile: an outer product.

In ``y[i, j] = sum_k a[i, k] * b[k, j]``, i and j are both row axes of the kernel: all results are
independent. In this file a *column* is an index along the axis of the vectors, j, and a *row* is an
index along the axis of the scalars, i.

A tile of m rows and n vectors has m * n sums in registers. Each step of the reduction reads n
vectors and m scalars for m * n fused multiply-adds of a vector and a scalar. The loops, outermost
first::

    panel of columns, block of steps       where an operand is packed, or lines are far apart
      rows that share the panel
        tiles of columns, tiles of rows
          steps of the reduction
            m rows, n vectors, lanes       the register tile: unrolled, unrolled, vector
"""

from dataclasses import dataclass, replace
from math import ceil
from typing import NamedTuple

from lamina.graph import index as ix
from lamina.ir.kernel import bound_axes, free_axes, points
from lamina.ir.node import Node
from lamina.ir.ops import Op
from lamina.loops.moves import Accumulate
from lamina.loops.nest import WORDS_OF_TILE, dot_axes
from lamina.schedule.cpu.packing import Packed, computed_from, packed_in_word, reads_constants
from lamina.schedule.cpu.panels import PACKED_BY_SQUARES, ComputedPanel, Panel, panel_of
from lamina.schedule.cpu.planner import CpuPlanner
from lamina.schedule.cpu.reductions import accumulated_block, split_into_words
from lamina.schedule.cpu.register_tiles import (
    BYTE_TILES,
    PANEL_TILES,
    REGISTER_TILES,
    TileSize,
    fills_tile,
)
from lamina.schedule.planner import is_contiguous, loads_along

# Half of the rows are a multiple of this, of which tiles of 12, 8 and 6 rows leave none over.
ROWS_OF_HALF = 24
# Equal halves are a multiple of this: they have whole register tiles of as many rows, or of more.
ROWS_OF_EQUAL_HALF = 4
# Tiles of columns from which on scalars that are computed are stored for all of them: an estimate.
MIN_TILES_OF_COMPUTED = 4


@dataclass(frozen=True)
class Product:
    """A reduction, and the axes of its register tile. In the example of this file:

    vector: the axis of the tile's vectors, j. vector_loads: the loads that vary along it, b
    row: the axis of the tile's rows, i. row_loads: the loads that vary along it, a
    near_rows: other row axes, whose loops run inside the loops over tiles (`_near_rows`)
    steps: the reduced axes, k, without the axis of four bytes of a word
    in_word: elements in a step: 4 where one instruction multiplies words of four bytes, else 1
    panel: how `vector_loads` are packed; None if they are read where they are
    is_packed_once: are `vector_loads` constants, whose panel is kept from call to call?
    in_byte_tiles: do instructions multiply tiles of bytes (`_suits_byte_tiles`)?
    """

    reduction: Node
    vector: Node
    row: Node
    vector_loads: list[Node]
    row_loads: list[Node]
    near_rows: list[Node]
    steps: list[Node]
    in_word: int
    panel: Panel | None
    is_packed_once: bool
    in_byte_tiles: bool


@dataclass(frozen=True)
class Blocks:
    """The loops around all others, and what they leave of the vector axis.

    panels: the loop over panels of columns, the outermost; None if one has all columns
    steps: the loop over blocks of steps, whose sums are added to the result; None if one has all
    columns: the vector axis within a panel
    words: the steps of a tile of bytes; None if there are no such tiles
    halves: the loop over halves of the rows, outside of all; None if panels are enough for threads
    """

    panels: Node | None
    steps: Node | None
    columns: Node
    words: Node | None = None
    halves: Node | None = None

    @property
    def loops(self) -> list[Node]:
        """Those of the loops that there are, outermost first."""
        loops = (self.halves, self.panels, self.steps)
        return [loop for loop in loops if loop is not None]


@dataclass(frozen=True)
class Tile:
    """The axes of a register tile and around it, outermost first along each side: 132 rows in tiles
    of 12 are 11 `outer_rows` of 12 `inner_rows`, and 256 columns in tiles of 2 vectors of 16 lanes
    are 8 `outer_columns` of 2 `vectors` of 16 `lane`."""

    outer_rows: Node
    inner_rows: Node
    outer_columns: Node
    vectors: Node
    lane: Node


def schedule_product(plan: CpuPlanner, reduction: Node, vector: Node) -> list[Packed]:
    """Register tiles with vectors along `vector`, and the reduction around them; the operands to
    pack once all loops are in place."""
    reused = plan.reused_rows(reduction, vector)
    if not reused or not fills_tile(plan, reduction, vector):
        _schedule_without_tile(plan, vector, reused)
        return []
    panel = panel_of(plan, reduction, vector)
    halves = _halve_rows(plan, reduction, vector, reused[-1], panel)
    product = _product_of(plan, halves.reduction, vector, halves.row, halves.panel)
    blocks = replace(_split_blocks(plan, product), halves=halves.loop)
    tile = _split_tile(plan, product, blocks.columns)
    _order_loops(plan, product, blocks, tile)
    plan.bind(tile.inner_rows, "unroll")
    plan.bind(tile.vectors, "unroll")
    plan.bind(tile.lane, "vector")
    if blocks.words is not None:
        plan.bind(blocks.words, "tile")
    if blocks.steps is not None:
        plan.do(Accumulate(blocks.steps.arg.number))
    return _packed_operands(plan, product, blocks, tile)


def _schedule_without_tile(plan: CpuPlanner, vector: Node, reused: list[Node]) -> None:
    """One vector at a time, for up to 8 rows at once (`knobs.rows_at_once`)."""
    plan.vectorize(vector)
    if reused and reused[-1].arg.size > 1:
        plan.tile(reused[-1], min(reused[-1].arg.size, plan.knobs.rows_at_once), "unroll")


def _product_of(
    plan: CpuPlanner, reduction: Node, vector: Node, row: Node, panel: Panel | None
) -> Product:
    """The contraction `reduction`, whose innermost axis is split into words if it is of bytes."""
    # Asked of the whole reduction, as for the panel: 9 bytes are 3 words, whose 12 would seem to
    # read some elements again.
    is_packed_once = reads_constants(plan.kernel, loads_along(reduction, vector))
    in_word = packed_in_word(plan.kernel, reduction)
    in_words = split_into_words(plan, reduction)
    word_axes = dot_axes(plan.kernel)
    steps = [axis for axis in bound_axes(in_words) if axis not in word_axes]
    row_loads = loads_along(in_words, row)
    suits_tiles = _suits_byte_tiles(plan, row_loads, steps, word_axes)
    return Product(
        reduction=in_words,
        vector=vector,
        row=row,
        vector_loads=loads_along(in_words, vector),
        row_loads=row_loads,
        near_rows=_near_rows(plan, vector, row),
        steps=steps,
        in_word=in_word,
        panel=panel,
        is_packed_once=is_packed_once,
        in_byte_tiles=panel is not None and suits_tiles,
    )


def _suits_byte_tiles(
    plan: CpuPlanner, row_loads: list[Node], steps: list[Node], words: list[Node]
) -> bool:
    """Has the processor instructions on tiles of bytes, and do they fit the operand of the rows?
    One of them reads up to 64 bytes of each row, so that these have to be neighbours in memory, and
    there must be as many: WORDS_OF_TILE words."""
    if "byte_tiles" not in plan.target.engines or len(words) != 1 or len(steps) != 1:
        return False
    are_neighbours = all(is_contiguous(load, words[0]) for load in row_loads)
    return len(row_loads) == 1 and are_neighbours and steps[0].arg.size >= WORDS_OF_TILE


class BlockSizes(NamedTuple):
    """The columns and steps of a product that are computed before the next ones; None for all."""

    columns: int | None
    steps: int | None


def _block_sizes(plan: CpuPlanner, product: Product) -> BlockSizes:
    """The block of a product: that of the panel, in words where a step is a word of four bytes."""
    if product.panel is None:
        return _unpacked_block(plan, product)
    # The only reduced axis of bytes has been split: a step of it is now a word.
    in_step = product.in_word if len(product.steps) == 1 else 1
    block_steps = product.panel.block_steps
    steps = None if block_steps is None else block_steps // in_step
    return BlockSizes(product.panel.columns, steps)


def _unpacked_block(plan: CpuPlanner, product: Product) -> BlockSizes:
    """The block of a product where no operand is packed.

    Where each step goes to a distant cache line of an operand, a block has few enough steps for the
    lines to stay in the cache until the next columns or rows use the rest of them: for the vectors'
    operand those of `accumulated_block`, for the scalars' operand `knobs.block_lines`. Columns of
    large results are those of `_columns_of_long_rows`.
    """
    rows = product.row.arg.size
    block = accumulated_block(plan, product.reduction, product.vector, rows)
    if block is not None:
        has_panels = block.columns < product.vector.arg.size
        return BlockSizes(block.columns if has_panels else None, block.steps)
    lines = plan.knobs.block_lines
    is_distant = plan.reads_distant_lines(product.reduction, product.row, lines)
    return BlockSizes(_columns_of_long_rows(plan, product), lines if is_distant else None)


def _columns_of_long_rows(plan: CpuPlanner, product: Product) -> int | None:
    """The columns of a block that all rows compute before the next block begins, if
    `_has_long_rows`; None for all columns. The second-level cache holds the vectors' operand of
    such a block."""
    if not _has_long_rows(plan, product):
        return None
    tile_columns = REGISTER_TILES[plan.target.vector_bytes].vectors * plan.width
    columns = max(plan.cached // points(product.steps) // tile_columns, 1) * tile_columns
    return columns if columns < product.vector.arg.size else None


def _has_long_rows(plan: CpuPlanner, product: Product) -> bool:
    """Are the results of a matrix product too many for the second-level cache, in more rows than a
    register tile has? Then tiles go along the rows. A store first reads its line, and a processor
    reads ahead along few rows at a time: (64, 8) times (8, 26959) takes a Sapphire Rapids 2.8 ms if
    each 32 columns are written in all rows before the next 32, and 0.6 ms row by row."""
    rows: int = product.row.arg.size
    nbytes = points((product.row, product.vector)) * product.reduction.dtype.itemsize
    has_many_rows = rows > REGISTER_TILES[plan.target.vector_bytes].rows
    return len(product.steps) == 1 and has_many_rows and nbytes > plan.target.l2_bytes


@dataclass(frozen=True)
class Halves:
    """The loop over halves of the rows, None if there is none. The other fields are those of the
    kernel after that split: the reduction, the axis of the tile's rows, and the panel."""

    loop: Node | None
    reduction: Node
    row: Node
    panel: Panel | None


def _halve_rows(
    plan: CpuPlanner, reduction: Node, vector: Node, row: Node, panel: Panel | None
) -> Halves:
    """Split the rows into halves, if there are too few panels for the threads. The axis that is
    split is the first one of an even size in the loop over panels, or else `row`.

    Threads share the loop over panels, and pack a panel in it. Two threads share 3 panels as 2 and
    1, so that one thread waits; a single panel, as of 1321 rows by 24 columns, has one thread do
    everything. With halves there are twice as many iterations to share. Each half packs its panels
    anew, so that it must have `knobs.min_packed_rows` rows. 8 x 197 rows by 192 columns become
    halves of 4 x 197 rows, with 3 panels of 64 columns in each: 6 iterations."""
    whole = Halves(None, reduction, row, panel)
    if panel is None or not _gains_by_halves(plan, reduction, vector, row, panel):
        return whole
    axis = next((axis for axis in panel.rows_inside if axis.arg.size % 2 == 0), row)
    rows: int = axis.arg.size
    half = _rows_of_half(rows, panel) if axis is row else rows // 2
    is_part = 0 < half < rows  # 24 rows are no half of 15
    if not is_part or points([*panel.rows_inside, row]) < 2 * plan.knobs.min_packed_rows:
        return whole
    loop, rows_of_half = plan.split(axis, half)
    split = plan.contraction()
    assert split is not None
    if axis is row:
        return Halves(loop, split, rows_of_half, panel)
    inside = [rows_of_half if other is axis else other for other in panel.rows_inside]
    return Halves(loop, split, row, replace(panel, rows_inside=inside))


def _gains_by_halves(
    plan: CpuPlanner, reduction: Node, vector: Node, row: Node, panel: Panel
) -> bool:
    """Do threads share the loop over panels alone, and has the busiest thread less to do with
    halves? Not for constants: their panels are packed before the first call, so that threads need
    not share the loop over panels.

    Of 9 panels of 1024 rows, two threads have 5 and 4; of 18 panels of halves, 9 each, which is a
    tenth less for the busiest. To pack a panel takes 0.35 instructions for each element, and to
    multiply it with 1024 rows 64 of 16 lanes: packing twice takes 0.5 % longer."""
    inside = {vector, row, *panel.rows_inside}
    is_packed_once = reads_constants(plan.kernel, loads_along(reduction, vector))
    if is_packed_once or plan.kernel.blocks or not inside >= set(plan.rows):
        return False
    columns: int = vector.arg.size
    panels = 1 if panel.columns is None else ceil(columns / panel.columns)
    threads = plan.target.multiprocessors
    busiest = ceil(panels / threads)
    busiest_of_halves = ceil(2 * panels / threads) / 2
    packing = PACKED_BY_SQUARES * plan.width / points([row, *panel.rows_inside])
    return busiest * (1 + packing) > busiest_of_halves * (1 + 2 * packing)


def _rows_of_half(rows: int, panel: Panel) -> int:
    """How many of `rows` the first half has: 264 of 512. 0 if there are no halves.

    Where memory accumulates blocks of steps, both halves have as many rows: 256 of 512. The loops
    over these blocks run between that over halves and those over tiles, and the last rows of an
    uneven split would be a nest of its own, which the blocks cannot run around."""
    if panel.block_steps is None:
        return ceil(rows / 2 / ROWS_OF_HALF) * ROWS_OF_HALF
    has_equal_halves = rows % (2 * ROWS_OF_EQUAL_HALF) == 0
    return rows // 2 if has_equal_halves else 0


def _split_blocks(plan: CpuPlanner, product: Product) -> Blocks:
    """Split the reduction and the vector axis into blocks: 2304 steps and 320 columns into 3 blocks
    of 768 steps and 2 panels of 160 columns."""
    block = _block_sizes(plan, product)
    blocks_of_steps: Node | None = None
    panels: Node | None = None
    first, *others = product.steps
    columns = product.vector
    if block.steps is not None:
        blocks_of_steps, first = plan.split(first, block.steps)
    innermost = others[-1] if others else first
    words: Node | None = None
    is_packed = product.panel is not None and not product.is_packed_once
    if product.in_byte_tiles:
        _, words = plan.split(innermost, WORDS_OF_TILE)
    elif is_packed and innermost.arg.size >= plan.width:
        # What is contiguous along the reduction is packed by transposes of square blocks.
        plan.split(innermost, plan.width)
    if block.columns is not None:
        panels, columns = plan.split(columns, block.columns)
    return Blocks(panels, blocks_of_steps, columns, words)


def _split_tile(plan: CpuPlanner, product: Product, columns: Node) -> Tile:
    """Split rows and `columns`, the vector axis within a panel, into register tiles.

    256 columns with 16 lanes and a tile of 14 x 2 are 8 `outer_columns` of 2 `vectors` of 16.
    """
    lanes = plan.target.vector_bytes // product.reduction.dtype.itemsize
    largest = _max_tile(plan, product, columns, lanes)
    # Of words of bytes there may be fewer than lanes: a strip of which there is just the tail.
    vectors = max(1, min(largest.vectors, columns.arg.size // lanes))
    outer_columns, strip = plan.split(columns, vectors * lanes)
    vectors_of_tile, lane = plan.split(strip, lanes)
    height = _height(plan, product, plan.knobs.tile_rows or largest.rows)
    outer_rows, inner_rows = plan.split(product.row, height)
    return Tile(outer_rows, inner_rows, outer_columns, vectors_of_tile, lane)


def _max_tile(plan: CpuPlanner, product: Product, columns: Node, lanes: int) -> TileSize:
    """The largest register tile: that of a computed panel, or of PANEL_TILES where whole ones fit a
    packed panel of `columns`. A panel for rows that share cache lines may have that of all others,
    which is higher.

    Where results lie in turns, each of them has sums of its own in the registers of 14 x 2: for two
    results, that is 14 rows x 1 vector of pairs, for four 7 rows x 1. Where a step adds several
    products, the vectors of each further one take the registers of a row of sums: 12 x 2 are left
    beside three products.
    """
    vector_bytes = plan.target.vector_bytes
    tile = REGISTER_TILES[vector_bytes]
    in_turns = points(_interleaved_rows(plan))  # results that lie in turns; 1 if none do
    if in_turns > 1:
        rows = min(tile.rows, tile.rows * tile.vectors // in_turns)
        return TileSize(rows, max(tile.vectors // in_turns, 1))
    further_products = _terms(product.reduction.src[0]) - 1
    if further_products > 0:
        return replace(tile, rows=max(tile.rows - further_products, 1))
    if product.in_byte_tiles:
        return BYTE_TILES
    if isinstance(product.panel, ComputedPanel):
        return product.panel.tile
    panel_tile = PANEL_TILES.get(vector_bytes, tile)
    has_whole_tiles = columns.arg.size % (panel_tile.vectors * lanes) == 0
    if product.panel is None or not has_whole_tiles:
        return tile
    rows = product.row.arg.size
    has_more_sums = tile.mean_sums(rows) > panel_tile.mean_sums(rows)
    return tile if has_more_sums and _shares_lines_of_rows(plan, product) else panel_tile


def _shares_lines_of_rows(plan: CpuPlanner, product: Product) -> bool:
    """Do several rows of the scalars' operand lie on one cache line, as those of a window that
    moves by 2 elements do? Then a step of a high tile reads as few lines as one of a low tile."""
    strides = [ix.terms_of(load.src[0])[0].get(product.row, 0) for load in product.row_loads]
    return bool(strides) and all(0 < stride <= plan.width // 2 for stride in strides)


def _terms(node: Node) -> int:
    """How many terms a sum has: 3 of ``a * b + c * d + e * f``, 1 of anything but a sum."""
    return sum(map(_terms, node.src)) if node.op is Op.ADD else 1


def _interleaved_rows(plan: CpuPlanner) -> list[Node]:
    """The short axis, if any, whose results lie in turns with those of neighbouring lanes: before
    there are tiles it alone is unrolled, by the heuristic that has chosen the vector axis."""
    return [axis for axis in plan.rows if plan.nest.bound(axis) == "unroll"]


def _height(plan: CpuPlanner, product: Product, max_height: int) -> int:
    """Rows of a register tile: the largest number that divides all rows, of those from 8
    (`knobs.rows_at_once`) to `max_height`, or else the number that makes the last tile as high as
    possible. 132 rows are 11 tiles of 12, not 9 of 14 and one of 6; 37 rows are 2 tiles of 13 and
    one of 11.

    A lower tile reloads operands more often. With several reduced axes that costs more than a last
    tile of another height, so that just `max_height` is tried as a divisor. Rows whose cache lines
    compete for the same places are few at a time: 8, with one reduced axis. A tile of bytes reads
    whole lines of each row.
    """
    has_one_axis = len(product.steps) == 1
    min_height = plan.knobs.rows_at_once if has_one_axis else max_height
    is_distant = bool(plan.distant(product.row_loads, product.row)) and not product.in_byte_tiles
    highest = min(max_height, min_height) if is_distant else max_height
    size: int = product.row.arg.size
    if not plan.nest.is_head(product.row):  # a part of an axis has no last tile of its own
        min_height = 1
    for height in range(highest, min_height - 1, -1):
        if size % height == 0:
            return height
    tiles = ceil(size / highest)
    return ceil(size / tiles)


def _order_loops(plan: CpuPlanner, product: Product, blocks: Blocks, tile: Tile) -> None:
    """Put all loops in the order that the head of this file shows."""
    reduced = [axis for axes in plan.inner() if axes[0].arg.reduce for axis in axes]
    words = dot_axes(plan.kernel)
    steps = _in_order_of_memory([axis for axis in reduced if axis not in words], product.row_loads)
    inside = product.panel.rows_inside if product.panel is not None else ()
    shared = [row for row in inside if row not in product.near_rows]
    tiles = _tile_loops(plan, product, blocks, tile)
    outer = [*blocks.loops, *shared, *tiles, *product.near_rows]
    inner = [tile.inner_rows, tile.vectors, *_interleaved_rows(plan), tile.lane, *words]
    plan.reorder([*outer, *steps, *inner])


def _in_order_of_memory(steps: list[Node], loads: list[Node]) -> list[Node]:
    """The loops over `steps` with the longest strides of `loads` outermost, so that neighbours in
    memory are read one after another. Without `loads`, as for a one-hot factor, their order stays.
    """
    strides_of_loads = [ix.terms_of(load.src[0])[0] for load in loads]

    def longest_stride(step: Node) -> int:
        return max((abs(strides.get(step, 0)) for strides in strides_of_loads), default=0)

    return sorted(steps, key=lambda step: -longest_stride(step))


def _near_rows(plan: CpuPlanner, vector: Node, row: Node) -> list[Node]:
    """The rows beside that of the tile whose results are in the cache lines of the tile's results,
    where these lie apart along the vectors: the places (p, q) of a filter of (512, 512, 3, 3)
    elements with vectors along the first axis. Walked after one another for each tile, they write
    each line while a near cache holds it. Outside of all tiles they would fetch it nine times."""
    strides, _ = ix.terms_of(plan.kernel.stores[0].index)
    if strides.get(vector, 0) < plan.width:
        return []
    others = [other for other in plan.rows if other not in (vector, row)]
    return [other for other in others if 0 < strides.get(other, 0) < plan.width]


def _tile_loops(plan: CpuPlanner, product: Product, blocks: Blocks, tile: Tile) -> list[Node]:
    """The loops over tiles, outermost first. Tiles of columns are the outer loop where the
    second-level cache keeps the scalars' operand meanwhile. Where there are panels, or rows are
    long, each tile of rows walks a whole panel, or all columns."""
    sizes = [points(free_axes(load)) for load in product.row_loads]  # in elements
    largest = max(sizes, default=0)
    # The cache holds four times as many bytes as float32, which the knob counts.
    is_cached = largest <= plan.cached * product.in_word
    has_all_columns = blocks.panels is None and product.panel is None
    if has_all_columns and _has_long_rows(plan, product):
        return [tile.outer_rows, tile.outer_columns]
    if _computes_rows_once(plan, product, tile):
        return [tile.outer_rows, tile.outer_columns]
    if is_cached and blocks.panels is None:
        return [tile.outer_columns, tile.outer_rows]
    return [tile.outer_rows, tile.outer_columns]


def _computes_rows_once(plan: CpuPlanner, product: Product, tile: Tile) -> bool:
    """Is the scalars' operand computed, as ``x[k, i] * s[i]`` is, and do tiles of columns enough
    multiply it, for it to be computed once for all of them? A step of each tile would compute 14
    elements beside 28 multiply-adds. The other operand is read again for each tile of rows, so the
    second-level cache holds it."""
    if product.panel is not None or tile.outer_columns.arg.size < MIN_TILES_OF_COMPUTED:
        return False
    is_cached = all(points(free_axes(load)) <= plan.cached for load in product.vector_loads)
    return is_cached and bool(_computed_rows(plan, product, tile))


def _computed_rows(plan: CpuPlanner, product: Product, tile: Tile) -> list[Packed]:
    """The arrays of the scalars' operand from which something is computed that can be packed for
    each tile of rows; none if the operand is only read."""
    arrays = dict.fromkeys(load.arg.parameter for load in product.row_loads)
    every = [Packed(array, tile.inner_rows, tile.outer_rows) for array in arrays]
    return [
        packed
        for packed in every
        if any(value.op is not Op.LOAD for value in computed_from(plan.kernel, packed))
    ]


def _packed_operands(
    plan: CpuPlanner, product: Product, blocks: Blocks, tile: Tile
) -> list[Packed]:
    """What to pack once all loops are in place.

    The operand of the vectors is packed in the innermost loop over blocks, or kept from call to
    call if it is of constants. Of the scalars' operand constants that lie far apart
    (`knobs.far_elements`) are kept too: with near ones a convolution of 64 channels took a tenth
    longer (measured). Where there is a panel, what is computed, as a cast from bfloat16 is, and
    lies far apart is packed for each tile of rows: it is computed, and its lines are read, once for
    all tiles of columns in the panel. That near elements do not repay the copy is an estimate. Far
    ones that are only read
    stay: tiles of few rows leave the caches room for their lines (`_height`).
    """
    packed: list[Packed] = []
    if product.panel is not None:
        staged_in = None if product.is_packed_once else blocks.loops[-1]
        computed_in = blocks.panels if isinstance(product.panel, ComputedPanel) else None
        packed += [
            Packed(load.arg.parameter, tile.lane, staged_in, computed_in)
            for load in product.vector_loads
        ]
    for load in plan.distant(product.row_loads, product.row):
        kept = Packed(load.arg.parameter, tile.inner_rows, staged_in=None)
        values = computed_from(plan.kernel, kept)
        if reads_constants(plan.kernel, [load]):
            packed.append(kept)
        elif product.panel is not None and any(value.op is not Op.LOAD for value in values):
            packed.append(replace(kept, staged_in=tile.outer_rows))
    if not packed and _computes_rows_once(plan, product, tile):
        packed += _computed_rows(plan, product, tile)
    return packed
