"""A move for sums of products whose factors lie, tile by tile, in memory that a block shares."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from math import ceil

from lamina.core.shape import Shape
from lamina.graph import index as ix
from lamina.ir.kernel import points
from lamina.ir.node import Node
from lamina.loops.moves import Move
from lamina.loops.nest import Axes, Nest, TileFill
from lamina.schedule.gpu.atoms import (
    ATOMS,
    MAX_PRODUCT_ROWS,
    MIN_BACK_TO_BACK_ROWS,
    Atom,
    product_atoms,
)
from lamina.schedule.gpu.attention import MAX_ROW_ELEMENTS, BackToBack, Factor, back_to_back
from lamina.schedule.gpu.products import is_transposed, product_factors

# Rows of tiles that blocks compute side by side, so that they find each other's operands in the
# second-level cache: 132 blocks in 8 rows read 8 + 17 tiles a step, in one row 1 + 132. 11 rows
# would read the fewest, 11 + 12; but a band is one only where it divides the number of tiles.
BAND = 8


@dataclass(frozen=True)
class _Side:
    """The rows or the columns of results, or the keys, and how they are tiled.

    axes       which tiles walk as one
    tile_size  rows, columns or keys of a tile
    split      extents of the sub-loops of a tile, outermost first; their product is `tile_size`
    band       rows of tiles that run side by side, if that divides their number
    """

    axes: Axes
    tile_size: int
    split: Shape
    band: int = 1


@dataclass(frozen=True)
class _TiledSide:
    """A side after it was tiled.

    tiles   axes that number the tiles: see `_tile_extents`
    within  the sub-loops of a tile
    index   over all of these, the index along the axes as one
    """

    tiles: Axes
    within: Axes
    index: Node


@dataclass(frozen=True)
class Tensorize(Move):
    """Compute a kernel's only reduction, a sum of products, or products back to back with an atom
    of the table, in blocks of rows and columns beyond whose ends nothing is read or stored. The
    keys of products back to back pass by in tiles. Only `fuse` comes before."""

    atom: str
    text = "tensorize({atom})"

    def apply(self, nest: Nest) -> Nest:
        self.require(self.atom in ATOMS, f"an atom is one of {', '.join(ATOMS)}")
        self.require(not (nest.splits or nest.binding), "an axis is split or bound already")
        both = back_to_back(nest.kernel)
        if both is not None:
            return self._tile_back_to_back(nest, both)
        return self._tile_product(nest)

    def _tile_product(self, nest: Nest) -> Nest:
        """`nest` with its sum of products of two factors in tiles.

        Of x of 4096 x 512 times w of 512 x 1024 in bfloat16, with mma_bf16_128x256, rows are 32
        tiles of 128, 8 of them a band, and columns 4 tiles of 256.
        """
        atom = ATOMS[self.atom]
        left, right = self._required_factors(nest, atom)
        is_left_transposed = _lies_across(left)
        # Tensor cores read tf32 along k alone. A left factor that lies otherwise passes
        # through registers; threads transpose a right one when they fill its tile.
        is_right_transposed = _lies_across(right) and atom.kind != "tf32"
        row_split = atom.row_splits.of(is_left_transposed)
        column_split = atom.column_splits.of(is_right_transposed)
        numbers = _new_numbers(nest)
        nest, rows = self._tile(nest, _Side(left.row_axes, atom.m, row_split, BAND), numbers)
        nest, columns = self._tile(nest, _Side(right.row_axes, atom.n, column_split), numbers)
        left_fill = _fill_of(left, is_left_transposed, rows.index, {})
        right_fill = _fill_of(right, is_right_transposed, columns.index, {})
        return self._bind(replace(nest, tiles=(left_fill, right_fill)), rows, columns)

    def _required_factors(self, nest: Nest, atom: Atom) -> tuple[Factor, Factor]:
        """The left and the right factor of the nest's product. Raises FormatError if it has none of
        the atom's dtype, or if the atom has too many rows for one product."""
        factors = product_factors(nest.kernel, atom.kind)
        self._require_dtype(atom, factors)
        allowed = ", ".join(other.name for other in product_atoms(atom.kind))
        self.require(
            atom.m <= MAX_PRODUCT_ROWS,
            f"{atom.m} rows are for products back to back; for one product there are {allowed}",
        )
        left, right = factors
        return left, right

    def _tile_back_to_back(self, nest: Nest, both: BackToBack) -> Nest:
        """`nest` with its products back to back in tiles.

        Of forward attention, rows are the queries, in tiles of `atom.m`; columns are the elements
        of a row of v, which one tile has all of; the keys pass by in tiles.
        """
        atom = ATOMS[self.atom]
        self._require_size(atom, both)
        numbers = _new_numbers(nest)
        tile_axes = _axes_of_tiles(both, numbers)
        # Atoms of 16 bits split rows and columns alike for both kinds of tiles.
        row_split = atom.row_splits.along_k
        column_split = atom.column_splits.along_k
        # Keys are the columns of inner products, and are split as columns are: 64 keys into 8
        # groups, 4 lanes and 2 neighbours.
        key_split = (both.key_tile // 8, *column_split[1:])
        row_axes = both.factors[0].row_axes  # of queries
        nest = replace(nest, kernel=both.with_masked_ends(nest.kernel))
        nest, rows = self._tile(nest, _Side(row_axes, atom.m, row_split, BAND), numbers)
        nest, columns = self._tile(nest, _Side((both.column,), atom.n, column_split), numbers)
        nest, keys = self._tile(nest, _Side((both.key,), both.key_tile, key_split), numbers)
        fills: list[TileFill] = []
        for factor in both.factors:
            has_queries = factor.row_axes == row_axes
            row_index = rows.index if has_queries else keys.index
            fills.append(_fill_of(factor, _lies_across(factor), row_index, tile_axes))
        return self._bind(replace(nest, tiles=tuple(fills)), rows, columns, keys)

    def _require_size(self, atom: Atom, both: BackToBack) -> None:
        """Raise FormatError unless the atom has the dtype, rows and columns of these products."""
        self._require_dtype(atom, both.factors)
        columns = both.column.arg.size
        has_rows = MIN_BACK_TO_BACK_ROWS <= atom.m <= both.max_rows
        has_columns = columns <= atom.n <= MAX_ROW_ELEMENTS
        self.require(
            has_rows and has_columns,
            f"products back to back need {MIN_BACK_TO_BACK_ROWS} to {both.max_rows} rows and "
            f"{columns} to {MAX_ROW_ELEMENTS} columns",
        )

    def _require_dtype(self, atom: Atom, factors: Sequence[Factor]) -> None:
        """Raise FormatError unless there are factors, of the dtype that the atom multiplies."""
        dtypes = {factor.value.dtype for factor in factors}
        self.require(dtypes == {atom.dtype}, f"that is no sum of products of {atom.dtype.name}")

    def _tile(self, nest: Nest, side: _Side, numbers: Iterator[int]) -> tuple[Nest, _TiledSide]:
        """`nest` with the axes of a side as one, tiled.

        Rows b of 8 and s of 100 are 800 rows. In tiles of 128 these are 7 tiles, and nothing is
        read or stored in rows from 800 on. The axes become one, ``row``, before that is tiled:
        ``100 * b + s`` in an index is then ``100 * (row // 100) + row % 100``, which is ``row``.
        Divisions of ``128 * tile + 64 * group + ...`` would not cancel in that way.
        """
        extent, reduce = points(side.axes), side.axes[0].arg.reduce
        tile_extents = _tile_extents(ceil(extent / side.tile_size), side.band, reduce=reduce)
        extents = (*tile_extents, *side.split)
        loops = tuple(ix.axis(next(numbers), size, reduce=reduce) for size in extents)
        as_one = ix.axis(next(numbers), extent, reduce=reduce)
        nest = self.reindexed(nest, _indices_along(side.axes, as_one), (as_one,))
        index = ix.row_major(loops)
        nest = self.reindexed(nest, {as_one: index}, loops, ix.inside(index, extent))
        count_of_tiles = len(tile_extents)
        return nest, _TiledSide(loops[:count_of_tiles], loops[count_of_tiles:], index)

    def _bind(
        self, nest: Nest, rows: _TiledSide, columns: _TiledSide, keys: _TiledSide | None = None
    ) -> Nest:
        """`nest` with its sub-loops in order and bound to the grid, to threads and to registers.
        Products back to back have `keys` besides rows and columns.

        For mma_bf16_128x256 the sub-loops 0 to 6 are, of rows, warpgroups (2), warps (4),
        rows i and i + 8 (2), i (8), and of columns groups of 8 (32), j (4), neighbours (2). Numbers
        0, 1, 3 and 5 are 2 * 4 * 8 * 4 = 256 threads; 4, 2 and 6 are 32 * 2 * 2 = 128 sums of each
        thread.
        """
        atom = ATOMS[self.atom]
        grid = _grid(nest, rows, columns)
        sub_loops = (*rows.within, *columns.within)
        threads = [sub_loops[number] for number in atom.thread_loops]
        registers = [sub_loops[number] for number in atom.register_loops]
        if keys is not None:
            # Scores lie in registers as columns do. The lane, which a thread has one index of, is
            # serial here: the printer takes it from the number of the thread.
            group, _lane, neighbour = keys.within
            registers += [group, neighbour]
        binding = (
            dict.fromkeys(grid, "grid")
            | dict.fromkeys(threads, "thread")
            | dict.fromkeys(registers, "unroll")
        )
        serial = [axis for axis in nest.order if axis not in binding]  # steps, above all
        order = (*grid, *serial, *threads, *registers)
        return replace(nest, order=order, atom=self.atom, binding=binding)


def _tile_extents(tiles: int, band: int, *, reduce: bool) -> Shape:
    """The extents of the axes that number tiles: of rows or columns bands, and the tiles of a band;
    of keys, which pass by one after the other, just the tiles. 16 tiles of rows in bands of 8 are
    (2, 8), and 7 tiles, which have no whole bands, (7, 1)."""
    if reduce:
        return (tiles,)
    tiles_of_band = band if tiles % band == 0 else 1
    return tiles // tiles_of_band, tiles_of_band


def _grid(nest: Nest, rows: _TiledSide, columns: _TiledSide) -> Axes:
    """The axes that number blocks, outermost first: rows that are not tiled, such as those of a
    batch, bands, tiles of columns, and innermost the rows of tiles of a band, so that these run
    side by side."""
    tiled = {*rows.tiles, *rows.within, *columns.tiles, *columns.within}
    not_tiled = [axis for axis in nest.kernel.row_axes if axis not in tiled]
    band, row_tile = rows.tiles
    return (*not_tiled, band, *columns.tiles, row_tile)


def _new_numbers(nest: Nest) -> Iterator[int]:
    """Numbers that no axis of `nest` has."""
    return count(1 + max(axis.arg.number for axis in nest.order))


def _axes_of_tiles(both: BackToBack, numbers: Iterator[int]) -> dict[Node, Node]:
    """For the column and the key of products back to back, the axes that tiles of factors have in
    their place. A tile of v is filled along keys and columns, one of k along keys, all of them at
    once: no loop of the nest is over these. As in all tiles, the axis along the elements of a row
    is a reduced one, and that along rows is not."""
    column, key = both.column, both.key
    return {
        column: ix.axis(next(numbers), column.arg.size, reduce=True),
        key: ix.axis(next(numbers), key.arg.size),
    }


def _indices_along(axes: Axes, as_one: Node) -> dict[Node, Node]:
    """Each of `axes` as an index over `as_one`, which walks them as one: for b of 8 and s of 100,
    ``{b: as_one // 100, s: as_one % 100}``."""
    indices: list[Node] = []
    quotient = as_one
    for axis in reversed(axes):
        quotient, remainder = ix.divided(quotient, axis.arg.size)
        indices.append(remainder)
    return dict(zip(axes, reversed(indices), strict=True))


def _lies_across(factor: Factor) -> bool:
    """Do neighbours in memory lie along the rows of a factor, and not along its k? Its tile is
    then transposed where it can be, as fills copy neighbours."""
    return is_transposed(factor.value, factor.row_axes, factor.element_axes)


def _fill_of(
    factor: Factor, has_transposed_tile: bool, row_index: Node, tile_axes: Mapping[Node, Node]
) -> TileFill:
    """The fill of a factor's tiles, of `Nest.tiles`.

    tile_axes: for axes of results, the axes that the tile has in their place

    Of ``a[i, k] * b[k, j]`` the tile of a has the axes (i, k), and that of b, if it is transposed,
    (k, j).
    """
    order = (*factor.row_axes, *factor.element_axes)
    if has_transposed_tile:
        order = (*factor.element_axes, *factor.row_axes)
    axes = tuple(tile_axes.get(axis, axis) for axis in order)
    element = ix.replaced(factor.value, tile_axes)
    return TileFill(element, axes, row_index)
