"""What the kernel of a product does beyond what its atom says: what its schedule says, and the rest
by the facts of the GPU, for its tile program (`lower.py`).
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, gcd

from lamina.core.dtypes import bfloat16, float16
from lamina.core.target import Target
from lamina.graph import index as ix
from lamina.ir.kernel import Kernel, Store, bound_axes, free_axes, points
from lamina.ir.node import Node, toposort
from lamina.ir.ops import Group
from lamina.loops.moves import Schedule
from lamina.loops.nest import Axes, Nest, Pipelining, TileFill
from lamina.schedule.gpu.atoms import ATOMS, CHUNK_BYTES, LINE_BYTES, RESERVED_BYTES, Atom
from lamina.schedule.gpu.pipelining import (
    CONSUMERS,
    PRODUCER,
    Depth,
    Overlap,
    Roles,
    order_of,
)
from lamina.schedule.gpu.stream_k import StreamK, blocks_at_once, division_of
from lamina.schedule.gpu.tensorize import Tensorize
from lamina.tiles.barriers import MAX_LEAD
from lamina.tiles.copies import EngineCopy, engine_copy
from lamina.tiles.program import UNITS

# Stores of a kernel whose results pass through lines of shared memory: it has lines for so many.
MAX_ROW_STORES = 2
# Sums of a thread that become results at a time in an overlapped epilogue. Long arithmetic takes
# half as many: the steps of the next tile beside it must last as long.
SLICE_SUMS = 16
LONG_SLICE_SUMS = 8
# Steps that the buffers of blocks side by side hold, as others multiply while one waits: what is
# left of the memory is first-level cache. With 3 instead an H200 took 1 to 20 % longer.
SIDE_BY_SIDE_DEPTH = 2
FEW_SUMS = 8  # whose results are put into lines of shared memory at once, so that a slice has them


@dataclass(frozen=True)
class Steps:
    """The steps of a product. A step is a line of a tile: 64 k in bfloat16.
    A convolution of 300 channels by windows of 3 x 3 has the inner axis of channels, which are 5
    lines, and the outer axes of 9 places: 45 steps.

    inner           reduced axes along which tiles lie
    outer           all other reduced axes
    lines_of_inner  lines for each point of the outer axes
    """

    inner: Axes
    outer: Axes
    lines_of_inner: int

    @property
    def count(self) -> int:
        """All steps of a tile of results."""
        return self.lines_of_inner * points(self.outer)


@dataclass(frozen=True)
class ResultSide:
    """The rows or the columns of results: their index, and how many there are."""

    index: Node
    extent: int


@dataclass(frozen=True)
class RowLayout:
    """How whole rows of results that a store writes lie in memory.

    pitch        elements from row to row
    chunk_bytes  that a thread writes at once, 16 at most: all rows are aligned to them. Rows of 89
                 elements of bfloat16 are written by 2 bytes, those of 300 by 8
    """

    pitch: int
    chunk_bytes: int


@dataclass(frozen=True)
class ProductDecisions:
    """How one product is computed.

    unit           what multiplies tiles, of UNITS
    reduction      the sum of products
    grid           the axes that number tiles of results, the fastest last
    division       how blocks divide the steps
    copies         how the copy engine fills the left and the right tile; None where threads do
    result_bytes   shared memory for results on their way to memory
    row_stores     the stores by whole rows, and how these lie
    has_producers  whether a thread of its own asks the copy engine for all tiles, beside those that
                   multiply; products have to run by themselves meanwhile
    depth          steps that the buffers hold
    kept           the value of 16 bits that threads keep of each result, where the epilogue of a
                   tile overlaps with steps of the next one; None where it does not
    slices         of columns that the epilogue has then, one beside each step; otherwise 0
    """

    atom: Atom
    unit: str
    reduction: Node
    grid: Axes
    steps: Steps
    division: StreamK
    copies: tuple[EngineCopy | None, EngineCopy | None]
    result_bytes: int
    row_stores: Mapping[Store, RowLayout]
    has_producers: bool = False
    depth: int = 0
    kept: Node | None = None
    slices: int = 0

    @property
    def running(self) -> int:
        """How many products may still run when the next step begins."""
        if not UNITS[self.unit].runs_by_itself:
            return 0
        has_many = self.depth > 4 and self.atom.kind != "tf32"
        return 2 if has_many else min(self.depth - 1, 1)

    def side_by_side(self, target: Target) -> int:
        """How many blocks a multiprocessor runs side by side."""
        steps = self.steps.count
        return blocks_at_once(self.atom, self.division, steps, target.multiprocessors)

    @property
    def moves(self) -> Schedule:
        """All that a schedule can say of them."""
        order = order_of(self.division, self.steps.count)
        filler = PRODUCER if self.has_producers else CONSUMERS
        return order, Depth(self.depth), Roles(filler), Overlap(self.slices)


def decide(nest: Nest, target: Target) -> ProductDecisions:
    """The decisions for a nest with a product in tiles. Raises FormatError, naming the move, where
    what its schedule says does not fit."""
    atom = ATOMS[nest.atom]
    (reduction,) = (node for node in nest.kernel.nodes if bound_axes(node))
    grid = tuple(axis for axis in nest.order if nest.bound(axis) == "grid")
    steps = _steps(nest, reduction, atom)
    left, right = nest.tiles
    width = LINE_BYTES // atom.dtype.itemsize  # elements of a line
    unit = _unit(nest, atom, target)
    # For each store, whether it goes by whole rows or not: the buffers leave room for them.
    result_lines = atom.m * min(len(nest.kernel.stores), MAX_ROW_STORES)
    copies: tuple[EngineCopy | None, EngineCopy | None] = None, None
    if "tma" in target.engines:
        copies = _copy(left, atom, (atom.m, width)), _copy(right, atom, (atom.n, width))
    inside = {axis for axis in nest.order if nest.bound(axis) in ("thread", "unroll")}
    decisions = ProductDecisions(
        atom=atom,
        unit=unit,
        reduction=reduction,
        grid=grid,
        steps=steps,
        division=division_of(
            nest.pipelining, atom, points(grid), steps.count, target.multiprocessors
        ),
        copies=copies,
        result_bytes=0 if unit == "fma" else result_lines * LINE_BYTES,
        row_stores=stores_by_rows(nest, *result_sides(nest), inside),
    )
    decisions = replace(
        decisions,
        has_producers=_has_producers(nest.pipelining, decisions),
        depth=_depth(nest.pipelining, decisions, target),
    )
    return _with_overlap(nest, decisions)


def _unit(nest: Nest, atom: Atom, target: Target) -> str:
    """What multiplies tiles of an atom on a GPU."""
    if atom.instruction == "fma":
        return "fma"
    has_tensor_cores = "tensor_cores" in target.engines
    Tensorize(atom.name).require(has_tensor_cores, f"{target.arch} has no tensor cores for it")
    if "wgmma" not in target.engines:
        return "mma"
    # Tensor cores read tf32 along k alone, and of the left factor in registers.
    is_left_read_by_threads = atom.kind == "tf32" and is_tile_transposed(nest.tiles[0])
    return "wgmma_left_in_registers" if is_left_read_by_threads else "wgmma"


def _has_producers(pipelining: Pipelining, decisions: ProductDecisions) -> bool:
    """Whether a role of its own fills the buffers, which the copy engine has to do alone. Where
    products do not run while threads do other work, threads that only ask the copy engine for tiles
    gain nothing, and take registers that sums need."""
    by_engine, runs_by_itself = all(decisions.copies), UNITS[decisions.unit].runs_by_itself
    if pipelining.filler is None:
        return by_engine and runs_by_itself
    move, is_producer = Roles(pipelining.filler), pipelining.filler == PRODUCER
    move.require(by_engine or not is_producer, "the copy engine cannot fill all tiles")
    move.require(runs_by_itself or not is_producer, "products do not run while threads wait")
    return is_producer


def _depth(pipelining: Pipelining, decisions: ProductDecisions, target: Target) -> int:
    """Steps that the buffers hold: as many as fit beside the results, of 128 rows and 256 columns
    (226 - 16) // 48 KiB = 4 on an H100, or fewer. SIDE_BY_SIDE_DEPTH of blocks
    side by side."""
    atom = decisions.atom
    stage_bytes = (atom.m + atom.n) * LINE_BYTES
    free_bytes = target.shared_bytes - RESERVED_BYTES - decisions.result_bytes
    max_depth = min(atom.stages, free_bytes // stage_bytes)
    if pipelining.depth is None:
        is_alone = decisions.side_by_side(target) == 1
        return max_depth if is_alone else min(max_depth, SIDE_BY_SIDE_DEPTH)
    move = Depth(pipelining.depth)
    move.require(move.depth <= max_depth, f"shared memory has room for {max_depth} steps")
    return move.depth


def _steps(nest: Nest, reduction: Node, atom: Atom) -> Steps:
    """The reduced axes by their roles: those along the rows of tiles, and all others."""
    inner = element_axes(nest.tiles[0])
    outer = tuple(axis for axis in bound_axes(reduction) if axis not in inner)
    return Steps(inner, outer, ceil(points(inner) * atom.dtype.itemsize / LINE_BYTES))


def row_axes(tile: TileFill) -> Axes:
    """The axes of a tile along rows of its factor."""
    return tuple(axis for axis in tile.axes if not axis.arg.reduce)


def element_axes(tile: TileFill) -> Axes:
    """The axes of a tile along the elements of a row of its factor, which are marked as reduced: k
    of one product; of products back to back also the columns of v, of which tiles have all."""
    return tuple(axis for axis in tile.axes if axis.arg.reduce)


def is_tile_transposed(tile: TileFill) -> bool:
    """Do the lines of a tile have its rows or columns, and not its k?"""
    return bool(tile.axes[0].arg.reduce)


def _copy(tile: TileFill, atom: Atom, shape: tuple[int, int]) -> EngineCopy | None:
    """How the copy engine fills a tile of so many rows or columns, and k; None if it cannot."""
    lines = shape[1] if is_tile_transposed(tile) else shape[0]
    return copy_of_tile(tile, atom, lines)


def copy_of_tile(tile: TileFill, atom: Atom, lines: int) -> EngineCopy | None:
    """How the copy engine fills a tile of so many lines; None if it cannot. It rounds float32 to
    tf32 on the way if the atom multiplies that."""
    line_elements = LINE_BYTES // tile.value.dtype.itemsize
    return engine_copy(tile, lines, line_elements, is_tf32=atom.kind == "tf32")


def result_sides(nest: Nest) -> tuple[ResultSide, ResultSide]:
    """The rows and the columns of results: of 4096 rows and columns in tiles of 128 x 256 the index
    ``128 * tile + ...``, of the left factor's tiles, and 4096; and the right one's."""
    left, right = (ResultSide(tile.row_index, points(row_axes(tile))) for tile in nest.tiles)
    return left, right


def in_range(sides: Iterable[ResultSide]) -> Node:
    """The condition of a store that writes every result there is."""
    return ix.both(*(ix.inside(side.index, side.extent) for side in sides))


def stores_by_rows(
    nest: Nest, rows: ResultSide, columns: ResultSide, inside: Collection[Node]
) -> dict[Store, RowLayout]:
    """The stores whose results tensor cores' threads can write by whole rows, as many as a block
    has lines for, and the layout of each. Without tensor cores there are none.

    inside: the axes inside a tile
    """
    layouts: dict[Store, RowLayout] = {}
    if ATOMS[nest.atom].instruction == "fma":
        return layouts
    condition = in_range((rows, columns))
    for store in nest.kernel.stores:
        layout = _row_layout(nest.kernel, store, rows.index, columns.index, inside)
        is_in_range = ix.both(store.condition) is condition
        if layout is not None and is_in_range and len(layouts) < MAX_ROW_STORES:
            layouts[store] = layout
    return layouts


def name_of_lines(kernel: Kernel, store: Store) -> str:
    """The name of the lines through which a store by whole rows passes: "lines1" of the second
    store of the kernel, though the first one may have none."""
    return f"lines{kernel.stores.index(store)}"


def stride_along(index: Node, row: Node) -> int:
    """How far one step of the row index `row` goes in `index`. The row is ``128 * tile + 64 * group
    + 16 * warp + 8 * row_half + i``: the coefficient of i, its fastest axis, is 1 here, and 4096 in
    the index ``4096 * row + column`` of a store."""
    *_, fastest = ix.terms_of(row)[0]  # sub-loops are in the order of their numbers
    return ix.terms_of(index)[0].get(fastest, 0)


def _row_layout(
    kernel: Kernel, store: Store, row: Node, column: Node, inside: Collection[Node]
) -> RowLayout | None:
    """How the rows that `store` writes lie; None if it does not write rows of elements of 2 or 4
    bytes, which `targets/cuda/results.py` stores. The last chunk of a row may have what pads it:
    nothing else begins within a chunk.

    Without 4096 rows and the column, nothing in a tile is left of the index ``4096 * row +
    column``: it is the same at all points of a tile.
    """
    pitch = stride_along(store.index, row)
    rest = ix.add(store.index, ix.scale(row, -pitch), ix.scale(column, -1))
    is_row_major = free_axes(rest).isdisjoint(inside)
    itemsize = store.value.dtype.itemsize
    if itemsize not in (2, 4) or not is_row_major:
        return None
    # Elements by which rows begin after one another, in a tile and from tile to tile, and those of
    # the whole array: its last chunk must not go beyond the end.
    strides, offset = ix.terms_of(rest)
    size = kernel.parameters[store.parameter].size
    elements = gcd(offset, pitch, size, *strides.values(), CHUNK_BYTES // itemsize)
    return RowLayout(pitch, elements * itemsize)


def _with_overlap(nest: Nest, decisions: ProductDecisions) -> ProductDecisions:
    """`decisions` with the value that is kept and the slices, where the epilogue overlaps. It does
    where a tile has a step for each slice, and those that the buffers hold when a group pauses
    before its last ones. Unless the schedule asks for slices, there are none where a block has one
    tile, and no steps of a next one: their text would be in vain. Without it, 1000 x 1000 x 1000
    took an H200 11.1 us in place of 13.3, when each slice had a text of a step beside it."""
    asked = nest.pipelining.slices
    has_next_tile = points(decisions.grid) > decisions.division.blocks
    if asked == 0 or (asked is None and not has_next_tile):
        return decisions
    kept = _kept_value(nest.kernel, decisions.reduction, decisions.row_stores)
    sums = decisions.atom.n // 2  # of a thread: 128 threads have 64 rows
    slices = asked
    if slices is None:
        is_long = has_long_results(nest.kernel, decisions.reduction)
        slices = sums // (LONG_SLICE_SUMS if is_long else SLICE_SUMS)
    steps = decisions.steps.count
    lead = min(decisions.depth, MAX_LEAD)
    runs_beside = decisions.has_producers and decisions.atom.kind != "tf32"
    is_whole = decisions.division.is_whole(steps)
    divides_sums = sums % (slices * FEW_SUMS) == 0
    requirements = (
        (kept is not None, "no value of 16 bits stands for the sums"),
        (is_whole, "the order is not whole"),
        (runs_beside, "no producer fills the buffers, with factors of 16 bits"),
        (steps >= slices + lead, f"a tile has {steps} steps, and needs {slices + lead}"),
        (divides_sums, f"{sums} sums of a thread are no slices of {FEW_SUMS}"),
    )
    problems = [problem for holds, problem in requirements if not holds]
    if asked is not None:
        Overlap(asked).require(not problems, "; ".join(problems))
    return decisions if problems else replace(decisions, kept=kept, slices=slices)


def _nodes_without(node: Node, roots: Sequence[Node]) -> list[Node]:
    """The nodes that `roots` reach by paths that do not enter `node`, operands first."""
    return toposort(roots, lambda other: other is not node)


def has_long_results(kernel: Kernel, reduction: Node) -> bool:
    """Do results take long arithmetic after the sums of `reduction`?"""
    return bool(_long_nodes(kernel, reduction))


def _long_nodes(kernel: Kernel, reduction: Node) -> set[Node]:
    """The long arithmetic of results: transcendental functions."""
    nodes = _nodes_without(reduction, [store.value for store in kernel.stores])
    return {node for node in nodes if node.op in Group.TRANSCENDENTAL}


def _kept_value(
    kernel: Kernel, reduction: Node, row_stores: Mapping[Store, RowLayout]
) -> Node | None:
    """The value that threads can keep of each result until the steps of the next tile, if any.

    Threads keep one value of each result, of 16 bits, and compute the rest later, a slice at a
    time. So all results must depend on the sums through this value alone, and all must be stored by
    whole rows. In ``gelu(cast(a @ b, bfloat16) + bias)`` there are two such values: the cast, and
    its sum with the bias. The last is taken, as it leaves least to do later, but none that comes
    after a transcendental function: long arithmetic is what should overlap.
    """
    if len(row_stores) < len(kernel.stores):
        return None
    values = [store.value for store in kernel.stores]
    long = _long_nodes(kernel, reduction)
    candidates: list[Node] = []
    for node in _nodes_without(reduction, values):
        has_16_bits = node.dtype in (bfloat16, float16)
        is_before_long = long.isdisjoint(_nodes_without(reduction, [node]))
        # Without it, results would not reach the sums: they need nothing else of these.
        stands_for_sums = reduction not in _nodes_without(node, values)
        if has_16_bits and is_before_long and stands_for_sums:
            candidates.append(node)
    return candidates[-1] if candidates else None
