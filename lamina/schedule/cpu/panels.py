"""Panels: whether to copy an operand of a product that lies badly for it, and how much at a time.

A panel has the columns of the vector axis side by side for all steps of the reduction, or for a
block of them, so that the register tile reads it from end to end. It pays where many rows read it.

In ``y[i, j] = sum_k a[i, k] * b[j, k]`` with vectors along j, neighbours of a vector lie a row of b
apart. A panel of 32 columns holds ``b[j, k]`` at ``32 * k + j``, and every i reads it.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from math import ceil

from lamina.core.dtypes import float32
from lamina.graph import index as ix
from lamina.ir.kernel import bound_axes, free_axes, loads_beneath, points
from lamina.ir.node import Node
from lamina.ir.ops import Group, Op
from lamina.loops.moves import MAX_SCRATCH
from lamina.loops.nest import sums_bytes
from lamina.schedule.cost.footprint import region
from lamina.schedule.cost.operations import instructions_of
from lamina.schedule.cpu.lanes import LOADED_APART, STORED_APART, share
from lamina.schedule.cpu.packing import of_constants_along, packed_in_word, reads_constants
from lamina.schedule.cpu.planner import CacheBlock, CpuPlanner
from lamina.schedule.cpu.reductions import PAGE
from lamina.schedule.cpu.register_tiles import (
    COMPUTED_TILES,
    PANEL_TILES,
    REGISTER_TILES,
    TileSize,
    cycles_of,
    fills_tile,
)
from lamina.schedule.planner import is_contiguous, loads_along, store_score

# Instructions to pack an element whose neighbours lie along the steps: 16 x 16 are loaded,
# transposed in registers and stored, 16 vectors each. Measured beside dot products: 512 x 512.
PACKED_BY_SQUARES = 0.35
# The same of bytes in four rows, of which words are made: 11 instructions for a vector of 64 bytes.
BYTES_TO_WORDS = 11 / 64
# Instructions for each sum of a dot product whose steps are no multiple of its lanes: of 13 steps
# that are left over vectors of 8, 4 and 1, which are added up. Measured: packing is as fast for 4
# rows of 75 steps, at 7 instructions, and for 8 of 333, at 15.
LEFT_OVER = 12.0

# Rows that read each packed element, in units of `knobs.min_packed_rows`, from which on packing
# pays for lines that are read twice or compete: 4 * 64 are 256. Measured with one thread, vectors
# of 64 bytes: by packing 400 x 300 times 300 x 500 gained 10 %, 500 x 500 times 500 x 500 9 %, and
# 64 x 400 times 400 x 400 lost 13 %. Between 64 and 300 rows it is chosen.
ROWS_FOR_BAD_LINES = 4

# Steps of a reduction from which on packing pays for such lines. With fewer a product mostly
# writes its results: with 20 packing lost a third, with 64 it took as long (measured).
MIN_STEPS_OF_BAD_LINES = 64

# Elements of constants up to which they stay in the first-level cache, which has 32 KiB or more.
# Larger ones come from a distant cache in each call, as those of other kernels have come after
# them, and a packed panel from end to end. With 24 MB of constants in all, products of 8 rows with
# (256, 512) constants did 40 GFLOP/s in place, and 57 packed, on one core of a Zen 4, of 64 rows 90
# and 105; a single product, whose constants a near cache holds, is as fast in both ways.
NEAR_CONSTANTS = 8192

# Steps of the outermost of several reduced axes that one panel holds, at most; each has all steps
# of the axes beneath. An estimate.
MAX_OUTER_STEPS = 8


@dataclass(frozen=True)
class Panel:
    """A packed panel.

    columns: its indices along the vector axis; None for all
    block_steps: its indices along the outermost reduced axis, each with all steps of the other
        reduced axes; None for all, the whole reduction
    rows_inside: the row axes whose loops run inside the loop that fills the panel, besides the axis
        of the register tile's rows: these rows share the panel
    """

    columns: int | None = None
    block_steps: int | None = None
    rows_inside: Sequence[Node] = ()


@dataclass(frozen=True)
class ComputedPanel(Panel):
    """A panel of floats that are computed from bytes: weights of few bits are kept as bytes from
    call to call, and many rows multiply them.

    tile: the size of the register tiles, which the panel's columns suit
    """

    tile: TileSize = field(kw_only=True)


def packed_axis(plan: CpuPlanner, reduction: Node) -> Node | None:
    """The axis of the kernel for vectors whose operands, the loads that vary along it, are packed:
    the one for which a product takes the fewest instructions. None where packing pays for no axis.

    Where all that is multiplied is contiguous along a single reduced axis, results must be so along
    the vectors: otherwise vectors run along the reduced axis, as dot products, which need no
    packing. Of several reduced axes the innermost alone would have the vectors, and may be as short
    as a window.
    """
    has_dot_products = len(bound_axes(reduction)) == 1 and _are_neighbours(
        bound_axes(reduction)[0], loads_beneath(reduction.src)
    )
    candidates = []
    for axis in plan.rows:
        is_stored_along = store_score(plan.kernel, axis) > 0
        # Constants are packed once: that their results lie apart is all that it costs.
        is_packed_once = reads_constants(plan.kernel, loads_along(reduction, axis))
        may_have_vectors = is_stored_along or not has_dot_products or is_packed_once
        if may_have_vectors and panel_of(plan, reduction, axis) is not None:
            candidates.append(axis)
    return cheapest_of(plan, reduction, candidates)


def cheapest_of(plan: CpuPlanner, reduction: Node, axes: Collection[Node]) -> Node | None:
    """The axis among `axes` along which vectors take the fewest instructions; None of no axes."""
    return min(axes, key=lambda axis: _instructions_of_product(plan, reduction, axis), default=None)


def _instructions_of_product(plan: CpuPlanner, reduction: Node, vector: Node) -> float:
    """The instructions for each product of `reduction` with vectors along `vector`: a multiply-add,
    and its part of loading and storing a packed element and of storing a result.

    Images of (10, 10) are convolved to 128 channels, from 128 by windows of (3, 3), with 8 lanes.
    Rows of 10 are vectors of 8 and of 2 lanes, and 128 channels read a packed element::

        along a row      2 / 10 + (2 + 1) / 128 + 2 / 10 / 1152     = 0.22
        along channels   1 / 8  + (2 + 1) / 100 + 4 / 1152          = 0.16

    Of bytes an instruction multiplies four, and words are packed a vector at once.
    """
    in_word = packed_in_word(plan.kernel, reduction)  # products of one instruction
    loads = loads_along(reduction, vector)
    is_stored_along = store_score(plan.kernel, vector) > 0
    stored = share(vector, plan.width) if is_stored_along else STORED_APART
    instructions = share(vector, plan.width) / in_word + stored / points(bound_axes(reduction))
    if not reads_constants(plan.kernel, loads) and panel_of(plan, reduction, vector) is not None:
        uses = points(plan.reused_rows(reduction, vector))  # of a packed element
        instructions += (BYTES_TO_WORDS if in_word > 1 else LOADED_APART + 1) / uses
    scalars = [load for load in loads_beneath(reduction.src) if load not in loads]
    if in_word > 1 and not _are_neighbours(bound_axes(reduction)[-1], scalars):
        instructions += LOADED_APART / (2 * plan.width)  # byte by byte, for 2 vectors of a tile
    return instructions


def panel_of(plan: CpuPlanner, reduction: Node, vector: Node) -> Panel | None:
    """The panel of what varies along `vector`; None where packing it would not pay.

    512 x 2304 times 2304 x 320 has panels of 160 columns by 768 steps, each of which the 512 rows
    read."""
    reused = plan.reused_rows(reduction, vector)
    if not reused or not fills_tile(plan, reduction, vector):
        return None
    if reads_constants(plan.kernel, loads_along(reduction, vector)):
        return _panel_of_constants(plan, reduction, vector, reused)
    sharing = _sharing_rows(plan, reused)
    *rows_inside, _ = sharing  # the axis of the register tile's rows comes last
    if not _has_uses_enough(plan, reduction, vector, points(sharing)):
        return None  # too few rows read each packed element
    if not _gains_by_packing(plan, reduction, vector, sharing):
        return None
    if _has_better_dot_products(plan, reduction, vector):
        return None
    block = _block_of_long(plan, reduction, vector)
    columns = _whole_columns(plan, reduction, vector) if block is None else block.columns
    if columns < 2 * plan.width:
        return None  # narrower than a register tile
    return Panel(columns, None if block is None else block.steps, rows_inside)


def _panel_of_constants(
    plan: CpuPlanner, reduction: Node, vector: Node, reused: list[Node]
) -> Panel | None:
    """The panel of constants along `vector`, which is packed once, before the first call. None if
    there is nothing to gain: if lanes are neighbours already in an array that the nearest cache
    holds, and no words have to be made of bytes.

    Constants that are bytes, from which floats are computed, are kept as bytes. Each tile of rows
    would compute the floats again. So for more than one tile of rows, a panel of floats is computed
    first: of weights of 4 bits, 4 vectors of 16 take some 20 instructions to compute, and 24 to
    multiply with 6 rows."""
    if _computes_panel(plan, reduction, vector, reused):
        return _computed_panel(plan, reduction, vector, reused)
    loads = loads_along(reduction, vector)
    lies_well = _are_neighbours(vector, loads)
    are_near = all(points(free_axes(load)) <= NEAR_CONSTANTS for load in loads)
    if lies_well and are_near and not sums_bytes(plan.kernel, reduction):
        return None
    return _blocks_of_constants(plan, reduction, vector, reused)


def _computes_panel(plan: CpuPlanner, reduction: Node, vector: Node, reused: list[Node]) -> bool:
    """Are floats computed from the constants along `vector`, and do more rows than a register tile
    of a panel has multiply them?"""
    if points(reused) <= _panel_tile(plan).rows or sums_bytes(plan.kernel, reduction):
        return False
    return any(value.op is not Op.LOAD for value in of_constants_along(plan.kernel, vector))


def _computed_panel(
    plan: CpuPlanner, reduction: Node, vector: Node, reused: list[Node]
) -> ComputedPanel:
    """The panel of computed floats with which the busiest thread takes the least time; of equally
    fast panels the widest, for which the rows' operand is read least often.

    For 576 columns and two threads these are 6 panels of 96 columns in tiles of 3 vectors, 3 panels
    for each thread. Of 9 panels of 64 columns in tiles of 4 vectors, one thread would have 5."""
    *rows_inside, row = _sharing_rows(plan, reused)
    rows: int = row.arg.size
    columns_of_thread: float = vector.arg.size / plan.target.multiprocessors

    def cycles(tile: TileSize, panel_columns: int) -> float:
        columns: int = ceil(columns_of_thread / panel_columns) * panel_columns
        return columns * cycles_of(tile, rows)

    tiles = COMPUTED_TILES.get(plan.target.vector_bytes, (_panel_tile(plan),))
    sizes = [
        (tile, columns)
        for tile in tiles
        for columns in _computed_columns(plan, reduction, vector, tile)
    ]
    # The second-level cache, of 2**17 elements, may not even hold the columns of one tile with all
    # steps, such as 48 columns of 4096 steps. Then a panel has the fewest columns: two vectors.
    if not sizes:
        smallest = REGISTER_TILES[plan.target.vector_bytes]
        return ComputedPanel(2 * plan.width, rows_inside=rows_inside, tile=smallest)
    # A last panel of fewer columns would have loops of its own, which take as long to compile as
    # those of all other panels.
    even = [(tile, columns) for tile, columns in sizes if vector.arg.size % columns == 0]
    tile, columns = min(even or sizes, key=lambda size: (cycles(*size), -size[1]))
    return ComputedPanel(columns, rows_inside=rows_inside, tile=tile)


def _computed_columns(
    plan: CpuPlanner, reduction: Node, vector: Node, tile: TileSize
) -> list[int]:
    """The columns that a panel of whole tiles may have: those of one tile, twice as many and so on,
    as `_whole_columns` and the second-level cache allow: 64 of 1536 steps with 2**17 elements."""
    in_cache = plan.cached // _words_of_column(plan, reduction)
    widest = min(_whole_columns(plan, reduction, vector), in_cache)
    tile_columns = tile.vectors * plan.width
    columns = [tile_columns << doublings for doublings in range(widest.bit_length())]
    return [count for count in columns if count <= widest]


def _panel_tile(plan: CpuPlanner) -> TileSize:
    """The register tile of a panel of whole tiles."""
    vector_bytes = plan.target.vector_bytes
    return PANEL_TILES.get(vector_bytes, REGISTER_TILES[vector_bytes])


def _blocks_of_constants(
    plan: CpuPlanner, reduction: Node, vector: Node, reused: list[Node]
) -> Panel:
    """The blocks of columns of a kept panel that the second-level cache holds, and the rows that
    walk each before the next one: those with which the fewest elements are read from beyond that
    cache. All columns are one block where the cache holds them, or where that is read as little.

    Images of (8, 256, 14, 14) are convolved to 256 channels, by windows of (3, 3), with a cache for
    2**16 elements: a block has 16 columns of 2304 steps. An image has 2**16 elements with its
    margins, which stay in the cache while 16 blocks of 16 channels are computed::

        all channels for each tile of pixels     8 * 14 * 2 * 590,000 + 524,000 = 133 million
        all pixels for each block                590,000 + 16 * 524,000         = 9 million
        all pixels of an image for each block    8 * (590,000 + 66,000)         = 5 million
    """
    steps = _words_of_column(plan, reduction)
    elements = steps * vector.arg.size
    all_columns = Panel()
    if elements <= plan.cached:
        return all_columns
    tile_columns = 2 * plan.width
    widest = max(plan.cached // steps // tile_columns, 1) * tile_columns
    blocks = ceil(vector.arg.size / widest)
    columns = ceil(vector.arg.size / blocks / tile_columns) * tile_columns
    *rows, tile_row = reused
    tiles_of_rows = points(rows) * ceil(tile_row.arg.size / plan.knobs.rows_at_once)
    fewest = tiles_of_rows * elements + _scalars_read(plan, reduction, vector, reused)
    best = all_columns
    for place in range(len(rows) + 1):
        outside, inside = rows[:place], rows[place:]
        scalars = _scalars_read(plan, reduction, vector, [*inside, tile_row])
        times = blocks if scalars > plan.cached else 1
        read = points(outside) * (elements + times * scalars)
        if read < fewest:
            fewest, best = read, Panel(columns, rows_inside=inside)
    return best


def _scalars_read(plan: CpuPlanner, reduction: Node, vector: Node, rows: list[Node]) -> int:
    """The distinct elements that a reduction reads of its scalars' operands, those that do not vary
    along `vector`, in the loops over all `rows` and one iteration of each other row loop."""
    axes = frozenset((*bound_axes(reduction), *rows))
    loads = [load for row in rows for load in loads_along(reduction, row)]
    count = 0
    for load in dict.fromkeys(loads):
        array = plan.kernel.parameters[load.arg.parameter]
        if vector not in free_axes(load):
            area = region(plan.nest, load.src[0], array.dtype.itemsize, axes, array.size)
            count += min(area.elements(), array.size)
    return count


def _words_of_column(plan: CpuPlanner, reduction: Node) -> int:
    """The size of one column of a panel with all steps of a reduction, in words of 4 bytes."""
    words_of_step = reduction.dtype.itemsize // float32.itemsize
    words = points(bound_axes(reduction)) * words_of_step
    return max(words // packed_in_word(plan.kernel, reduction), 1)


def _has_uses_enough(plan: CpuPlanner, reduction: Node, vector: Node, uses: int) -> bool:
    """Do `uses` of each packed element along `vector` pay for packing it?

    64 uses do (`knobs.min_packed_rows`), and 16 where several axes are reduced, as windows leave no
    long vectors but along rows: images of (7, 7) read each packed weight 49 times. Of bytes in
    several rows that words are made of, two tiles of rows are enough: 24 x 3584 times 3584 x 40.

    Where the one reduced axis is contiguous, packing saves the dot products with lanes along it. So
    24 uses are enough (`knobs.min_packed_rows_of_dots`), and fewer where dot products cost more
    than their steps: each sum is a single element, with which all that follows is computed, and
    each ends with what is left over of its steps. 22 x 341 times 341 x 128 takes 341 * 0.35 / 22 =
    5 instructions for each result to pack, and saves 12.
    """
    axes = bound_axes(reduction)
    if len(axes) > 1:
        return uses >= plan.knobs.min_packed_rows // 4
    if not _are_steps_neighbours(reduction, vector):
        if sums_bytes(plan.kernel, reduction):  # each tile of rows would make words of them anew
            return uses > REGISTER_TILES[plan.target.vector_bytes].rows
        return uses >= plan.knobs.min_packed_rows
    if uses >= plan.knobs.min_packed_rows_of_dots:
        return True
    packing = points(axes) * PACKED_BY_SQUARES / uses
    return packing < _spent_on_single_sums(plan, reduction)


def _has_better_dot_products(plan: CpuPlanner, reduction: Node, vector: Node) -> bool:
    """Do dot products along the steps fill their vectors, and those along `vector` not as well? 13
    channels are two vectors of 8 lanes, and better than windows of 3 columns."""
    if vector.arg.size >= plan.width or not _are_steps_neighbours(reduction, vector):
        return False
    steps = bound_axes(reduction)[-1]
    return share(vector, plan.width) > share(steps, plan.width)


def _are_steps_neighbours(reduction: Node, vector: Node) -> bool:
    """Is what varies along `vector` contiguous along the last axis of the reduction?"""
    return _are_neighbours(bound_axes(reduction)[-1], loads_along(reduction, vector))


def _are_neighbours(axis: Node, loads: list[Node]) -> bool:
    """Do all `loads` read neighbours along `axis`?"""
    return all(is_contiguous(load, axis) for load in loads)


def _spent_on_single_sums(plan: CpuPlanner, reduction: Node) -> float:
    """The instructions for each result that a dot product takes beside its whole vectors: those of
    what is computed from the sum, on a single element in place of a vector, and of the steps that
    are left over."""
    from_sum = {reduction}
    instructions = 0.0
    for node in plan.kernel.nodes:
        if node.op in Group.ELEMENTWISE and not from_sum.isdisjoint(node.src):
            from_sum.add(node)
            instructions += instructions_of(node.op) * (1 - 1 / plan.width)
    steps: int = bound_axes(reduction)[0].arg.size
    return instructions + (LEFT_OVER if steps % plan.width else 0.0)


def _sharing_rows(plan: CpuPlanner, reused: list[Node]) -> list[Node]:
    """The last of the axes `reused` that share a panel: as few as have `knobs.panel_rows` points.
    Of 8 images of 1024 rows the rows alone, as 1024 are 512 or more; of 8 images of 100 rows
    both."""
    sharing = reused
    while len(sharing) > 1 and points(sharing[1:]) >= plan.knobs.panel_rows:
        sharing = sharing[1:]
    return sharing


def _gains_by_packing(
    plan: CpuPlanner, reduction: Node, vector: Node, sharing: list[Node]
) -> bool:
    """Do products gain by packing what varies along `vector`, which the rows `sharing` read, beside
    what varies along the last of these, that of the register tile?"""
    tile_row = sharing[-1]
    packed, others = loads_along(reduction, vector), loads_along(reduction, tile_row)
    if plan.distant(others, tile_row):
        # With far rows in the other operand, 512 x 1024 times 1024 x 512 took 4.0 ms with panels,
        # and 7.9 ms without (measured), though vectors read neighbours.
        return True
    if sums_bytes(plan.kernel, reduction):
        return True  # words of bytes of several rows must be made of them
    if any(ix.suits(vector, *load.src) < ix.NEIGHBOURS for load in packed):
        return True  # lanes do not lie next to each other
    # Each tile of rows would read a large operand from the third-level cache: 512 x 768 times
    # 768 x 2304 took 13 ms with panels, and 34 ms without, with one thread (measured).
    if any(points(free_axes(load)) > plan.cached for load in packed):
        return True
    is_read_often = points(sharing) >= ROWS_FOR_BAD_LINES * plan.knobs.min_packed_rows
    return is_read_often and any(_reads_lines_badly(plan, reduction, load) for load in packed)


def _reads_lines_badly(plan: CpuPlanner, reduction: Node, load: Node) -> bool:
    """Do vectors of `load` begin at any place of a line, so that many lie in two, or do the steps
    of a reduction read lines half a page apart, of which the nearest cache holds few? Rows of 500
    float32 are 31.25 vectors of 64 bytes long, and rows of 512 half a page. Not asked of windows,
    whose vectors begin at any place though rows do not, nor of few steps."""
    first, *others = bound_axes(reduction)
    if others or first.arg.size < MIN_STEPS_OF_BAD_LINES:
        return False
    strides, _ = ix.terms_of(load.src[0])
    step_bytes = abs(strides.get(first, 0)) * load.dtype.itemsize
    is_misaligned = step_bytes % (plan.width * load.dtype.itemsize) != 0
    is_half_page = step_bytes > 0 and step_bytes % (PAGE // 2) == 0
    return is_misaligned or is_half_page


def _whole_columns(plan: CpuPlanner, reduction: Node, vector: Node) -> int:
    """Columns of a panel with all steps of a reduction: `knobs.panel_columns`, halved until they
    fit in half of the scratch memory, which the other operand may need too, and until a row has two
    panels at least, which threads share: 64 for 200 columns. A register tile's columns stay whole.
    May be too few for a panel: `panel_of` tests that."""
    max_columns = MAX_SCRATCH // (2 * float32.itemsize * _words_of_column(plan, reduction))
    tile_columns = 2 * plan.width  # two vectors side by side: see REGISTER_TILES
    columns = plan.knobs.panel_columns
    while columns > max_columns or (columns > tile_columns and 2 * columns > vector.arg.size):
        columns //= 2
    return columns


def _block_of_long(plan: CpuPlanner, reduction: Node, vector: Node) -> CacheBlock | None:
    """The block of a long reduction that one panel holds: steps that divide the reduction, and as
    many columns as stay in the second-level cache with them.

    None where a panel has all steps: for a reduction that is not long, whose sums cannot be
    accumulated, or lie far apart, or for which no even block is found.

    For 2304 steps and 320 columns of float32: the largest divisor of 2304 among 1024, 896, 768, ...
    is 768; 2**17 // 768 = 170 columns fit, and the largest multiple of 32 among these that divides
    320 is 160.
    """
    first, *others = bound_axes(reduction)
    steps_beneath = points(others)  # of one step of the outermost reduced axis
    in_word = packed_in_word(plan.kernel, reduction)
    is_long = first.arg.size * steps_beneath > plan.knobs.panel_steps * in_word
    if not is_long or not plan.accumulates(reduction):
        return None
    strides_of_result, _ = ix.terms_of(plan.kernel.stores[0].index)
    if abs(strides_of_result.get(vector, 0)) >= plan.knobs.far_elements:
        return None  # each block would add to cache lines that compete for one place
    # Elements of a byte fill a panel of as many bytes by four times as many steps.
    panel_steps = plan.knobs.panel_steps * in_word
    steps = _block_steps(panel_steps, first.arg.size, steps_beneath, several=bool(others))
    if steps is None:
        return None
    words = steps * steps_beneath // in_word  # of a column of the panel, of 4 bytes
    columns = _block_columns(plan, words, vector.arg.size)
    tile_columns = 2 * plan.width
    fits_all_steps = _whole_columns(plan, reduction, vector) >= tile_columns
    are_whole_tiles = vector.arg.size % tile_columns == 0
    if columns is None and not fits_all_steps and are_whole_tiles:
        # Even one tile's columns with all steps do not fit in scratch memory: blocks of steps of
        # one tile's columns. 32 columns of 18,432 steps of float32 are 2.25 MiB, more than half of
        # the 4 MiB.
        columns = tile_columns
    return None if columns is None else CacheBlock(columns, steps)


def _block_columns(plan: CpuPlanner, steps: int, size: int) -> int | None:
    """The most columns of a panel that divide an axis of `size`, and are whole register tiles; None
    if there are none.

    steps: of the panel, each of one element or of one word of bytes

    Steps times columns fill the second-level cache at most: 2**17 elements are 128 columns of 1024
    steps. Few steps leave space for many columns, but threads share few wide panels less evenly
    than many: 4 times `knobs.panel_columns`, 512 columns, are the limit.

    There are two panels at least, as threads share the loop over panels: the loop over blocks of
    steps inside it adds to memory, and no other loop is outside. Blocks of a single tile's columns
    were as fast as panels of all steps, which need no sums in memory, so they are left out here:
    `_block_of_long` takes them where all steps of a tile's columns do not fit in scratch memory.
    """
    tile_columns = 2 * plan.width
    max_columns = min(4 * plan.knobs.panel_columns, plan.cached // steps)
    widest = max_columns // tile_columns * tile_columns
    for columns in range(widest, tile_columns, -tile_columns):
        if columns < size and size % columns == 0:
            return columns
    return None


def _block_steps(
    panel_steps: int, size: int, steps_beneath: int, *, several: bool
) -> int | None:
    """How many steps of the outermost reduced axis, of `size`, one block has: the largest divisor
    of `size` for which a block has `panel_steps` steps at most, and no fewer than an eighth of
    that. Each step of the outermost axis counts as the `steps_beneath` of the axes inside it. None
    if there is no such divisor.

    One axis of 2304 steps is cut into blocks of 768: 1024 and 896 do not divide it. Of `several`
    axes, such as 8 images of 28 x 28 elements, a block has 1 image, which has 784 steps.
    """
    max_steps = MAX_OUTER_STEPS if several else panel_steps
    decrement = 1 if several else max(panel_steps // 8, 1)
    for steps in range(max_steps, 0, -decrement):
        block_steps = steps * steps_beneath
        if size % steps == 0 and panel_steps / 8 <= block_steps <= panel_steps:
            return steps
    return None
