"""A move for sums of products whose factors lie, tile by tile, in memory that a block shares."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count

from lamina.core.shape import Shape
from lamina.graph import index as ix
from lamina.ir.kernel import Store, points
from lamina.ir.node import Node
from lamina.loops.moves import Move
from lamina.loops.nest import Axes, Nest
from lamina.schedule.gpu.atoms import ATOMS, MAX_PRODUCT_ROWS, Atom, product_atoms
from lamina.schedule.gpu.attention import MAX_ROW_ELEMENTS, BackToBack, Factor, back_to_back
from lamina.schedule.gpu.products import is_transposed, product_factors

# Rows of tiles that blocks compute side by side, so that they find each other's operands in the
# second-level cache: 132 blocks in 8 rows read 8 + 17 tiles a step, in one row 1 + 132. 11 rows
# would read the fewest, 11 + 12; but a band is one only where it divides the number of tiles.
BAND = 8


@dataclass(frozen=True)
class _Side:
    """Axes that tiles walk as one, and how: in tiles of `tile` indices, each of which is split into
    sub-loops of the extents `split`. `band` rows of tiles run side by side if that divides their
    number."""

    axes: Axes
    tile: int
    split: Shape
    band: int = 1


@dataclass(frozen=True)
class _TiledSide:
    """A side after it was tiled.

    blocks  axes that number the tiles: of reduced axes one, of others the bands and the tiles of a
            band
    within  the sub-loops of a tile
    index   over all of these, the index along the axes as one
    """

    blocks: Axes
    within: Axes
    index: Node


@dataclass(frozen=True)
class Tensorize(Move):
    """Compute a kernel's only reduction, a sum of products, or products back to back with an atom
    of the table, in blocks of rows and columns beyond whose ends nothing is read or stored. The
    steps of products back to back pass by in tiles. Only `fuse` comes before."""

    atom: str
    text = "tensorize({atom})"

    def apply(self, nest: Nest) -> Nest:
        self.require(self.atom in ATOMS, f"an atom is one of {', '.join(ATOMS)}")
        self.require(not (nest.splits or nest.binding), "an axis is split or bound already")
        atom, both = ATOMS[self.atom], back_to_back(nest.kernel)
        factors = both.factors if both else product_factors(nest.kernel, atom.kind)
        self._require_fit(atom, factors, both)
        # Tensor cores read tf32 along the steps; only the left factor goes through registers.
        transposed = [
            is_transposed(factor.value, factor.row_axes, factor.step_axes)
            and (atom.kind != "tf32" or factor is factors[0])
            for factor in factors
        ]
        numbers = count(1 + max(axis.arg.number for axis in nest.order))
        of_tiles: dict[Node, Node] = {}  # axes that tiles have in place of those of results
        if both:
            nest = replace(nest, kernel=both.with_masked_ends(nest.kernel))
            sides = _back_to_back_sides(atom, both, transposed[0])
            # Tiles of v have the columns of the results, and tiles of k the steps, as axes that
            # nothing else numbers: a tile is read as a whole.
            for axes, reduce in ((both.column_axes, True), (both.step_axes, False)):
                size = axes[0].arg.size
                of_tiles[axes[0]] = ix.axis(next(numbers), size, reduce=reduce)
        else:
            sides = _product_sides(atom, factors, transposed)
        tiled: dict[Axes, _TiledSide] = {}
        for side in sides:
            nest, tiled[side.axes] = self._tile(nest, side, numbers)
        tiles = tuple(
            _tile_of(factor, is_turned, tiled[factor.row_axes].index, of_tiles)
            for factor, is_turned in zip(factors, transposed, strict=True)
        )
        return self._bound(replace(nest, tiles=tiles), atom, list(tiled.values()))

    def _require_fit(self, atom: Atom, factors: Sequence[Factor], both: BackToBack | None) -> None:
        """The atom multiplies factors of their dtype, and its rows and columns are as many as the
        kernel allows."""
        are_products = {factor.value.dtype for factor in factors} == {atom.dtype}
        self.require(are_products, f"that is no sum of products of {atom.dtype.name}")
        if both:
            fits = both.max_rows >= atom.m >= MAX_PRODUCT_ROWS
            fits &= MAX_ROW_ELEMENTS >= atom.n >= points(both.column_axes)
            self.require(
                fits,
                f"products back to back need {MAX_PRODUCT_ROWS} to {both.max_rows} rows and "
                f"{points(both.column_axes)} to {MAX_ROW_ELEMENTS} columns",
            )
            return
        allowed = ", ".join(other.name for other in product_atoms(atom.kind))
        self.require(
            atom.m <= MAX_PRODUCT_ROWS,
            f"{atom.m} rows are for products back to back; for one product there are {allowed}",
        )

    def _tile(self, nest: Nest, side: _Side, numbers: Iterator[int]) -> tuple[Nest, _TiledSide]:
        """`nest` with the axes of a side as one, tiled: 300 rows in tiles of 128 are 3 tiles, and
        nothing is read or stored in rows from 300 on."""
        extent, reduce = points(side.axes), side.axes[0].arg.reduce
        tiles = -(-extent // side.tile)
        blocks: Shape = (tiles,)
        if not reduce:
            band = side.band if tiles % side.band == 0 else 1
            blocks = (tiles // band, band)
        loops = tuple(
            ix.axis(next(numbers), size, reduce=reduce) for size in (*blocks, *side.split)
        )
        as_one = rest = ix.axis(next(numbers), extent, reduce=reduce)
        index_of = dict.fromkeys(side.axes, rest)
        for axis in reversed(side.axes):
            rest, index_of[axis] = ix.divided(rest, axis.arg.size)
        nest = self.reindexed(nest, index_of, (as_one,))
        index = ix.row_major(loops)
        nest = self.reindexed(nest, {as_one: index}, loops, ix.inside(index, extent))
        return nest, _TiledSide(loops[: len(blocks)], loops[len(blocks) :], index)

    def _bound(self, nest: Nest, atom: Atom, tiled: Sequence[_TiledSide]) -> Nest:
        """`nest` with its sub-loops in order and bound to the grid, to threads and to registers.

        tiled: the rows, the columns and, of products back to back, the steps

        For mma_bf16_128x256 the sub-loops 0 to 6 are, of rows, groups of four warps (2), warps (4),
        rows i and i + 8 (2), i (8), and of columns groups of 8 (32), j (4), neighbours (2). Numbers
        0, 1, 3 and 5 are 2 * 4 * 8 * 4 = 256 threads; 4, 2 and 6 are 32 * 2 * 2 = 128 sums of each
        thread.
        """
        rows, columns, *steps = tiled
        sub_loops = {axis for side in tiled for axis in (*side.blocks, *side.within)}
        others = [axis for axis in nest.kernel.row_axes if axis not in sub_loops]
        band, row_tile = rows.blocks
        grid = (*others, band, *columns.blocks, row_tile)  # the tiles of a band run side by side
        pieces = (*rows.within, *columns.within)
        threads = [pieces[number] for number in atom.thread_loops]
        registers = [pieces[number] for number in atom.register_loops]
        for side in steps:  # scores lie in registers as columns do
            group, _, neighbour = side.within
            registers += [group, neighbour]
        binding = (
            dict.fromkeys(grid, "grid")
            | dict.fromkeys(threads, "thread")
            | dict.fromkeys(registers, "unroll")
        )
        serial = [axis for axis in nest.order if axis not in binding]
        order = (*grid, *serial, *threads, *registers)
        return replace(nest, order=order, product=self.atom, binding=binding)


def _tile_of(factor: Factor, is_turned: bool, row: Node, of_tiles: Mapping[Node, Node]) -> Store:
    """The fill of a tile, the fastest axis last, whose rows begin at the index `row`."""
    order = (*factor.row_axes, *factor.step_axes)
    if is_turned:
        order = (*factor.step_axes, *factor.row_axes)
    axes = tuple(of_tiles.get(axis, axis) for axis in order)
    return Store(-1, row, ix.replaced(factor.value, of_tiles), axes)


def _product_sides(
    atom: Atom, factors: Sequence[Factor], transposed: Sequence[bool]
) -> tuple[_Side, ...]:
    """The rows and the columns of a product, each split as its tile lies."""
    left, right = factors
    row_split = atom.row_splits[transposed[0]]
    column_split = atom.column_splits[transposed[1]]
    return (
        _Side(left.row_axes, atom.m, row_split, BAND),
        _Side(right.row_axes, atom.n, column_split),
    )


def _back_to_back_sides(
    atom: Atom, both: BackToBack, is_left_transposed: bool
) -> tuple[_Side, ...]:
    """The rows, columns and steps of products back to back. The steps are the columns of inner
    products, and split as these are."""
    _, *in_a_group = columns = atom.column_splits[0]
    row_split = atom.row_splits[is_left_transposed]
    step_split = (both.step_tile // 8, *in_a_group)
    return (
        _Side(both.factors[0].row_axes, atom.m, row_split, BAND),
        _Side(both.column_axes, atom.n, columns),
        _Side(both.step_axes, both.step_tile, step_split),
    )
