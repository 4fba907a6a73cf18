"""CUDA C++ of what becomes of the sums of a tile.

Where the epilogue overlaps, threads keep 16 bits of each result, and store them beside the first
steps of the next tile, in slices. Right after the last step of its own tile that would leave the
tensor cores without products: the buffers have tiles for a few steps alone. A slice is a function;
of 128 sums of a thread in slices of 16:

    const auto store_slice0 = [&](u32 tile) INLINED { ... };
    ...
    if (kept_tile != ~0u) {             beside the first steps of a tile
        next_step();
        store_slice0(kept_tile);
        next_step();
        store_slice1(kept_tile);
        ...
    }
    while (step < 64) next_step();
    ...
    kept.put(0, cast_1);                after the last one
    ...
    kept_tile = tile;
"""

from collections.abc import Sequence

from lamina.core.dtypes import float32
from lamina.ir.kernel import free_axes
from lamina.ir.node import Node
from lamina.targets.cuda.tile_fills import TileFillPrinter
from lamina.targets.language import Value
from lamina.tiles.decisions import ProductDecisions, result_sides
from lamina.tiles.program import Epilogue

NO_TILE = "~0u"


class EpiloguePrinter(TileFillPrinter):
    """One kernel; prints results from the sums of tiles."""

    def name_sums(self, reduction: Node) -> None:
        """Name ``sums[0]``, ``sums[1]``, ... as the values of `reduction` at the points that a
        thread has. The order is that of the unrolled axes, which the schedule puts as the atom's
        instruction numbers its accumulators."""
        for number, point in enumerate(self.points(free_axes(reduction))):
            self.keep(reduction, point, (Value(self.sum_text(number), float32),))

    def sum_text(self, number: int | str) -> str:
        """What reads a sum of a thread. Sums of fused multiply-adds pass an optimisation barrier:
        they are added to -0, which compilers do not know. Without it, ptxas would put the sums of a
        chunk that is stored in neighbouring registers, whose banks multiplications then share."""
        text = f"sums[{number}]"
        return f"({text} + nothing)" if self.atom.instruction == "fma" else text

    def print_epilogue(self, epilogue: Epilogue, decisions: ProductDecisions) -> None:
        """Print what follows the steps of a tile: all results, or what is kept of them."""
        if not epilogue.kept:
            self._begin_row_stores(decisions)
            self.stores(self.nest.kernel.stores)
            return
        assert decisions.kept is not None
        for number, point in enumerate(self.points(free_axes(decisions.reduction))):
            value = self.value_of_root(decisions.kept, point)
            self.line(f"kept.put({number}, {value.text});")
        self.line("kept_tile = tile;")

    def _begin_row_stores(self, decisions: ProductDecisions) -> None:
        self.begin_row_stores(self.row_lines(decisions.row_stores), *result_sides(self.nest))

    # Slices.

    def print_slices(self, epilogue: Epilogue, decisions: ProductDecisions, sums: int) -> None:
        """Print what is kept, and a function that stores it for each slice of so many `sums` of a
        thread."""
        self.line("KeptSums kept;")
        self.line(f"u32 kept_tile = {NO_TILE};  // whose results are kept, if any")
        size = sums // epilogue.slices
        for number in range(epilogue.slices):
            head = f"const auto store_slice{number} = [&](u32 tile) INLINED {{"
            with self.block(head, [*self.grid, *self.rows_inside], "};", self.registers):
                for line in self.indices(self.grid, "tile"):
                    self.line(line)
                self._print_slice(decisions, range(size * number, size * (number + 1)))

    def _print_slice(self, decisions: ProductDecisions, numbers: range) -> None:
        """Print the results of the sums of these numbers, from what is kept of them."""
        kept = decisions.kept
        assert kept is not None
        self.first_result = numbers.start
        self._begin_row_stores(decisions)
        sum_points = list(self.points(free_axes(decisions.reduction)))
        cache = self.scopes[-1].cache
        for number in numbers:
            cache[self.key(kept, sum_points[number])] = Value(f"kept[{number}]", kept.dtype)
        filled = self.filled
        self.filled |= {kept}  # what is computed from it does not enter the sums again
        self.stores_at(self.nest.kernel.stores, sum_points[numbers.start : numbers.stop])
        self.filled = filled

    def print_beside_steps(self, epilogue: Epilogue) -> None:
        """Print the first steps of a tile, each beside a slice of the tile before."""
        self._print_calls(epilogue, ("next_step();",))

    def print_last_slices(self, epilogue: Epilogue) -> None:
        """Print the slices of a block's last tile, which has none after it."""
        self._print_calls(epilogue, ())

    def _print_calls(self, epilogue: Epilogue, before: Sequence[str]) -> None:
        calls: list[str] = []
        for number in range(epilogue.slices):
            calls += [*before, f"store_slice{number}(kept_tile);"]
        self.braced(f"if (kept_tile != {NO_TILE}) {{", calls)
