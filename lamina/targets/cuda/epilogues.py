"""CUDA C++ of what becomes of the sums of a tile.

Where the epilogue overlaps, threads keep 16 bits of each result, and store them beside the first
steps of the next tile, in slices. Right after the last step of its own tile that would leave the
tensor cores without products: the buffers have tiles for a few steps alone. A slice is a function;
of 128 sums of a thread in slices of 16:

    const auto store_slice0 = [&](u32 tile) INLINED { ... };
    ...
    if (kept_tile != ~0u) {             beside the first steps of a tile
        NOT_UNROLLED for (u32 slice = 0; slice < 8; slice++) {
            next_step();
            switch (slice) {
                case 0: {
                    store_slice0(kept_tile);
                    break;
                }
                ...
            }
        }
    }
    while (step < 64) next_step();
    ...
    kept.put(0, cast_1);                after the last one
    ...
    kept_tile = tile;

A step is printed once for all slices: NVRTC takes as long for each copy of its products as for all
that is around them. Slices with long arithmetic have a copy of a step before each instead: without
a branch between them, ptxas can mix the arithmetic with the step. With GELU, (16384, 2048) by
(2048, 8192) in bfloat16 took an H200 806 us by copies and 870 us by the loop; a bias alone, and no
arithmetic at all, took as long by both within 2 %.
"""

from collections.abc import Mapping

from lamina.core.dtypes import float32
from lamina.ir.kernel import Store, free_axes
from lamina.targets.cuda.printer import CudaPrinter
from lamina.targets.cuda.results import RowLines
from lamina.targets.language import Value
from lamina.tiles.decisions import ProductDecisions, has_long_results, result_sides
from lamina.tiles.program import Epilogue

NO_TILE = "~0u"


class EpiloguePrinter:
    """Prints results from the sums of tiles.

    lines_of: the lines of stores by whole rows
    """

    def __init__(
        self,
        printer: CudaPrinter,
        epilogue: Epilogue,
        decisions: ProductDecisions,
        lines_of: Mapping[Store, RowLines],
    ) -> None:
        self.printer = printer
        self.line, self.lines, self.block = printer.line, printer.lines, printer.block
        self.epilogue = epilogue
        self.decisions = decisions
        self.lines_of = lines_of

    def name_sums(self) -> None:
        """Name ``sums[0]``, ``sums[1]``, ... as the values of the reduction at the points that a
        thread has. The order is that of the unrolled axes, which the schedule puts as the atom's
        instruction numbers its accumulators."""
        reduction = self.decisions.reduction
        for number, point in enumerate(self.printer.points(free_axes(reduction))):
            self.printer.remember(reduction, point, (Value(self.sum_text(number), float32),))

    def sum_text(self, number: int | str) -> str:
        """What reads a sum of a thread. Sums of fused multiply-adds pass an optimisation barrier:
        they are added to -0, which compilers do not know. Without it, ptxas would put the sums of a
        chunk that is stored in neighbouring registers, whose banks multiplications then share."""
        text = f"sums[{number}]"
        return f"({text} + nothing)" if self.printer.atom.instruction == "fma" else text

    def print_epilogue(self) -> None:
        """Print what follows the steps of a tile: all results, or what is kept of them."""
        if not self.epilogue.kept:
            self._begin_row_stores()
            self.printer.print_stores(self.printer.nest.kernel.stores)
            return
        assert self.decisions.kept is not None
        for number, point in enumerate(self.printer.points(free_axes(self.decisions.reduction))):
            value = self.printer.value_of_root(self.decisions.kept, point)
            self.line(f"kept.put({number}, {value.text});")
        self.line("kept_tile = tile;")

    def _begin_row_stores(self, first: int = 0) -> None:
        rows, columns = result_sides(self.printer.nest)
        self.printer.begin_row_stores(self.lines_of, rows, columns, first)

    # Slices.

    def print_slices(self, sums: int) -> None:
        """Print what is kept, and a function that stores it for each slice of so many `sums` of a
        thread."""
        self.line("KeptSums kept;")
        self.line(f"u32 kept_tile = {NO_TILE};  // whose results are kept, if any")
        printer, size = self.printer, sums // self.epilogue.slices
        axes = [*printer.threads.grid, *printer.threads.rows]
        for number in range(self.epilogue.slices):
            head = f"const auto store_slice{number} = [&](u32 tile) INLINED {{"
            with printer.block(head, axes, "};", printer.registers):
                printer.lines(printer.indices(printer.threads.grid, "tile"))
                self._print_slice(range(size * number, size * (number + 1)))

    def _print_slice(self, numbers: range) -> None:
        """Print the results of the sums of these numbers, from what is kept of them."""
        printer, kept = self.printer, self.decisions.kept
        assert kept is not None
        self._begin_row_stores(numbers.start)
        sum_points = list(printer.points(free_axes(self.decisions.reduction)))
        cache = printer.scopes[-1].cache
        for number in numbers:
            key = printer.key(kept, sum_points[number])
            cache[key] = Value(f"kept[{number}]", kept.dtype)
        filled = printer.filled
        printer.filled |= {kept}  # what is computed from it does not enter the sums again
        slice_points = sum_points[numbers.start : numbers.stop]
        printer.print_stores_at(printer.nest.kernel.stores, slice_points)
        printer.filled = filled

    def print_beside_steps(self) -> None:
        """Print the first steps of a tile, each beside a slice of the tile before."""
        kernel, reduction = self.printer.nest.kernel, self.decisions.reduction
        with self.block(f"if (kept_tile != {NO_TILE}) {{"):
            if has_long_results(kernel, reduction):
                for number in range(self.epilogue.slices):
                    self.lines(["next_step();", _call(number)])
            else:
                self._print_loop_over_slices()

    def _print_loop_over_slices(self) -> None:
        """The loop takes one branch to its slice, while products of the step run."""
        slices, block = self.epilogue.slices, self.block
        with block(f"NOT_UNROLLED for (u32 slice = 0; slice < {slices}; slice++) {{"):
            self.line("next_step();")
            with block("switch (slice) {"):
                for number in range(slices):
                    self.printer.braced(f"case {number}: {{", [_call(number), "break;"])

    def print_last_slices(self) -> None:
        """Print the slices of a block's last tile, which has none after it."""
        calls = [_call(number) for number in range(self.epilogue.slices)]
        self.printer.braced(f"if (kept_tile != {NO_TILE}) {{", calls)


def _call(slice_: int) -> str:
    """The line that stores a slice of what is kept."""
    return f"store_slice{slice_}(kept_tile);"
