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
NO_PARAMETER = -1  # of the kernel: tiles lie in memory that a block shares


@dataclass(frozen=True)
class _Side:
    """The rows, the columns or the steps of results, and how they are tiled.

    axes       which tiles walk as one
    tile_size  rows, columns or steps of a tile
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

    tiles   axes that number the tiles: of steps one, of rows and columns two, which are the bands
            and the tiles of a band
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
    steps of products back to back pass by in tiles. Only `fuse` comes before."""

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
        """`nest` with its sum of products of two factors in tiles."""
        atom = ATOMS[self.atom]
        factors = product_factors(nest.kernel, atom.kind)
        self._require_dtype(atom, factors)
        allowed = ", ".join(other.name for other in product_atoms(atom.kind))
        self.require(
            atom.m <= MAX_PRODUCT_ROWS,
            f"{atom.m} rows are for products back to back; for one product there are {allowed}",
        )
        left, right = factors
        are_transposed = _are_transposed(atom, factors)
        is_left_transposed, is_right_transposed = are_transposed
        row_split = atom.row_splits[is_left_transposed]
        column_split = atom.column_splits[is_right_transposed]
        numbers = _new_numbers(nest)
        nest, rows = self._tile(nest, _Side(left.row_axes, atom.m, row_split, BAND), numbers)
        nest, columns = self._tile(nest, _Side(right.row_axes, atom.n, column_split), numbers)
        tiles = _tiles_of(factors, are_transposed, [rows.index, columns.index], {})
        return self._bind(replace(nest, tiles=tiles), rows, columns)

    def _tile_back_to_back(self, nest: Nest, both: BackToBack) -> Nest:
        """`nest` with its products back to back in tiles."""
        atom = ATOMS[self.atom]
        column, step = both.column, both.step
        self._require_dtype(atom, both.factors)
        self.require(
            MIN_BACK_TO_BACK_ROWS <= atom.m <= both.max_rows
            and column.arg.size <= atom.n <= MAX_ROW_ELEMENTS,
            f"products back to back need {MIN_BACK_TO_BACK_ROWS} to {both.max_rows} rows and "
            f"{column.arg.size} to {MAX_ROW_ELEMENTS} columns",
        )
        are_transposed = _are_transposed(atom, both.factors)
        row_axes = both.factors[0].row_axes
        row_split = atom.row_splits[are_transposed[0]]
        column_split = atom.column_splits[False]
        # The steps are the columns of inner products, and in a group they are split as these are.
        step_split = (both.step_tile // 8, *column_split[1:])
        numbers = _new_numbers(nest)
        # Tiles of v have the columns of the results, and tiles of k the steps, as axes that nothing
        # else numbers: a tile is read as a whole.
        of_tiles = {
            column: ix.axis(next(numbers), column.arg.size, reduce=True),
            step: ix.axis(next(numbers), step.arg.size),
        }
        nest = replace(nest, kernel=both.with_masked_ends(nest.kernel))
        nest, rows = self._tile(nest, _Side(row_axes, atom.m, row_split, BAND), numbers)
        nest, columns = self._tile(nest, _Side((column,), atom.n, column_split), numbers)
        nest, steps = self._tile(nest, _Side((step,), both.step_tile, step_split), numbers)
        row_indices = [
            rows.index if factor.row_axes == row_axes else steps.index for factor in both.factors
        ]
        tiles = _tiles_of(both.factors, are_transposed, row_indices, of_tiles)
        return self._bind(replace(nest, tiles=tiles), rows, columns, steps)

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
        tiles = -(-extent // side.tile_size)
        tile_extents: Shape = (tiles,)
        if not reduce:
            band = side.band if tiles % side.band == 0 else 1
            tile_extents = (tiles // band, band)
        extents = (*tile_extents, *side.split)
        loops = tuple(ix.axis(next(numbers), size, reduce=reduce) for size in extents)
        as_one = ix.axis(next(numbers), extent, reduce=reduce)
        nest = self.reindexed(nest, _indices_along(side.axes, as_one), (as_one,))
        index = ix.row_major(loops)
        nest = self.reindexed(nest, {as_one: index}, loops, ix.inside(index, extent))
        count_of_tiles = len(tile_extents)
        return nest, _TiledSide(loops[:count_of_tiles], loops[count_of_tiles:], index)

    def _bind(
        self, nest: Nest, rows: _TiledSide, columns: _TiledSide, steps: _TiledSide | None = None
    ) -> Nest:
        """`nest` with its sub-loops in order and bound to the grid, to threads and to registers.
        Products back to back have `steps` besides rows and columns.

        For mma_bf16_128x256 the sub-loops 0 to 6 are, of rows, groups of four warps (2), warps (4),
        rows i and i + 8 (2), i (8), and of columns groups of 8 (32), j (4), neighbours (2). Numbers
        0, 1, 3 and 5 are 2 * 4 * 8 * 4 = 256 threads; 4, 2 and 6 are 32 * 2 * 2 = 128 sums of each
        thread.
        """
        atom = ATOMS[self.atom]
        tiled_rows = {*rows.tiles, *rows.within, *columns.tiles, *columns.within}
        others = [axis for axis in nest.kernel.row_axes if axis not in tiled_rows]
        band, row_tile = rows.tiles
        grid = (*others, band, *columns.tiles, row_tile)  # the tiles of a band run side by side
        sub_loops = (*rows.within, *columns.within)
        threads = [sub_loops[number] for number in atom.thread_loops]
        registers = [sub_loops[number] for number in atom.register_loops]
        if steps is not None:
            # Scores lie in registers as columns do. The lane, which a thread has one index of, is
            # serial here: the printer takes it from the number of the thread.
            group, _lane, neighbour = steps.within
            registers += [group, neighbour]
        binding = (
            dict.fromkeys(grid, "grid")
            | dict.fromkeys(threads, "thread")
            | dict.fromkeys(registers, "unroll")
        )
        serial = [axis for axis in nest.order if axis not in binding]
        order = (*grid, *serial, *threads, *registers)
        return replace(nest, order=order, product=self.atom, binding=binding)


def _new_numbers(nest: Nest) -> Iterator[int]:
    """Numbers that no axis of `nest` has."""
    return count(1 + max(axis.arg.number for axis in nest.order))


def _indices_along(axes: Axes, as_one: Node) -> dict[Node, Node]:
    """Each of `axes` as an index over `as_one`, which walks them as one: for b of 8 and s of 100,
    ``{b: as_one // 100, s: as_one % 100}``."""
    indices: list[Node] = []
    quotient = as_one
    for axis in reversed(axes):
        quotient, remainder = ix.divided(quotient, axis.arg.size)
        indices.append(remainder)
    return dict(zip(axes, reversed(indices), strict=True))


def _are_transposed(atom: Atom, factors: Sequence[Factor]) -> list[bool]:
    """Whether the tile of each factor is transposed: as its factor lies in memory.

    Tensor cores read tf32 along the steps alone. A left factor that lies otherwise passes through
    registers; threads transpose a right one when they fill its tile, which then lies along steps.
    """
    result: list[bool] = []
    for number, factor in enumerate(factors):
        lies_across = is_transposed(factor.value, factor.row_axes, factor.step_axes)
        can_be_read = atom.kind != "tf32" or number == 0
        result.append(lies_across and can_be_read)
    return result


def _tiles_of(
    factors: Sequence[Factor],
    are_transposed: Sequence[bool],
    row_indices: Sequence[Node],
    of_tiles: Mapping[Node, Node],
) -> tuple[Store, ...]:
    """`Nest.tiles`: the fill of a tile of each factor, the fastest axis last.

    row_indices: for each factor, the row of the results that its tile has at an index of the tile's
        sub-loops; of right factors the column, and of those with steps as rows the step
    of_tiles: axes that tiles have in place of those of results

    Of ``a[i, k] * b[k, j]`` the tiles have the axes (i, k) and, b being transposed, (k, j).
    """
    tiles: list[Store] = []
    for factor, is_turned, row in zip(factors, are_transposed, row_indices, strict=True):
        order = (*factor.row_axes, *factor.step_axes)
        if is_turned:
            order = (*factor.step_axes, *factor.row_axes)
        axes = tuple(of_tiles.get(axis, axis) for axis in order)
        element = ix.replaced(factor.value, of_tiles)
        tiles.append(Store(NO_PARAMETER, row, element, axes))
    return tuple(tiles)
