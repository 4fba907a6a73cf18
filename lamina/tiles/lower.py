"""From the nest of a product to its tile program.

What is read and stored comes from the nest; everything else, such as stages, orders and who fills
tiles, from `ProductDecisions`. What no view says of what is read or stored is computed element by
element: `Elements`, and statements of the epilogue.
"""

from dataclasses import dataclass

from lamina.core.dtypes import float32
from lamina.core.target import Target
from lamina.ir.kernel import points
from lamina.loops.nest import Nest
from lamina.schedule.gpu.atoms import LINE_BYTES
from lamina.schedule.gpu.pipelining import CONSUMERS, PRODUCER, order_of
from lamina.tiles.barriers import synchronised
from lamina.tiles.decisions import (
    ProductDecisions,
    decide,
    is_tile_transposed,
    result_sides,
)
from lamina.tiles.layouts import SWIZZLE_128
from lamina.tiles.lower_common import (
    Results,
    extents,
    factor_source,
    first_of_tile,
    parameters_of,
    producer_and_consumers,
    row_line_allocs,
    tile_variables,
)
from lamina.tiles.program import (
    UNITS,
    WARPGROUP_ROWS,
    WARPGROUP_WARPS,
    Alloc,
    Epilogue,
    Fill,
    Join,
    Mma,
    Product,
    Role,
    Set,
    Statement,
    StepLoop,
    TileAxis,
    TileLoop,
    TileProgram,
    Transpose,
)
from lamina.tiles.values import Extent, Index

LEFT, RIGHT, SUMS, LINE = "left", "right", "sums", "line"


def lower(name: str, nest: Nest, target: Target) -> TileProgram:
    """The program of a nest with a product in tiles, with its barriers."""
    return synchronised(_Lowering(nest, decide(nest, target)).program(name))


@dataclass(frozen=True)
class _Lowering:
    """A nest on its way to a program."""

    nest: Nest
    decisions: ProductDecisions

    def program(self, name: str) -> TileProgram:
        """The program without its barriers."""
        fills = self._factor(0), self._factor(1)
        filling, multiplying = self._tiles((self._steps(fills),)), self._tiles(self._multiply())
        groups = self.decisions.atom.m // WARPGROUP_ROWS
        if self.decisions.has_producers:
            roles = producer_and_consumers(filling, multiplying, groups)
        else:
            roles = (
                Role(PRODUCER, 0, filling, inside=CONSUMERS),
                Role(CONSUMERS, groups * WARPGROUP_WARPS, multiplying),
            )
        parameters = parameters_of(self.nest.kernel)
        return TileProgram(name, parameters, self._allocs(), (), roles)

    def _allocs(self) -> tuple[Alloc, ...]:
        """The buffers of both factors, lines for each store by whole rows, and the sums."""
        atom, stages = self.decisions.atom, self.decisions.depth
        row, column = TileAxis("row", atom.m), TileAxis("column", atom.n)
        buffers: list[Alloc] = []
        for name, side, tile in zip((LEFT, RIGHT), (row, column), self.nest.tiles, strict=True):
            axes = (side, TileAxis("k", self._line_elements))
            if is_tile_transposed(tile):
                axes = axes[::-1]
            buffers.append(Alloc(name, "shared", atom.dtype, stages, axes, SWIZZLE_128))
        lines = row_line_allocs(self.nest, self.decisions.row_stores, atom.m)
        sums = Alloc(SUMS, "registers", float32, 1, (row, column))
        return (*buffers, *lines, sums)

    # Loops.

    def _tiles(self, body: tuple[Statement, ...]) -> tuple[Statement, ...]:
        decisions = self.decisions
        tiles, steps = points(decisions.grid), decisions.steps.count
        blocks, share = decisions.division.blocks, decisions.division.steps
        order = order_of(decisions.division, steps).order
        if order == "stream_k" and decisions.unit == "fma":
            order = "equal"
        over = tile_variables(decisions.grid)
        return (TileLoop(order, tiles, steps, blocks, share, over, body),)

    def _steps(self, body: tuple[Statement, ...]) -> StepLoop:
        steps = self.decisions.steps
        return StepLoop((*extents(steps.outer), Extent(LINE, steps.lines_of_inner)), body)

    def _multiply(self) -> tuple[Statement, ...]:
        """What consumers do for a tile: multiply and store."""
        decisions = self.decisions
        product = Product(SUMS, LEFT, RIGHT)
        mma = Mma((product,), decisions.unit, adds=True, running=decisions.running)
        steps = self._steps((*self._transposes(), mma))
        join = () if decisions.division.is_whole(decisions.steps.count) else (Join(SUMS),)
        return (Set(SUMS, 0.0), steps, *join, self._epilogue())

    def _transposes(self) -> tuple[Statement, ...]:
        """What changes tiles to how the unit reads them."""
        distances = UNITS[self.decisions.unit].apart
        if distances is None:
            return ()
        return tuple(
            Transpose(name, apart)
            for name, tile, apart in zip((LEFT, RIGHT), self.nest.tiles, distances, strict=True)
            if not is_tile_transposed(tile)
        )

    def _epilogue(self) -> Epilogue:
        decisions = self.decisions
        results = Results(self.nest, result_sides(self.nest), decisions.row_stores)
        return results.epilogue({decisions.reduction: SUMS}, decisions.kept, decisions.slices)

    # Fills.

    def _factor(self, number: int) -> Fill:
        """The fill of the left (0) or the right (1) tile."""
        tile = self.nest.tiles[number]
        first_k = Index(((LINE, self._line_elements),))
        source = factor_source(tile, first_of_tile(self.nest, tile.row_index), first_k)
        agent = "tma" if self.decisions.copies[number] else "threads"
        return Fill((LEFT, RIGHT)[number], source, agent)

    @property
    def _line_elements(self) -> int:
        return LINE_BYTES // self.decisions.atom.dtype.itemsize
