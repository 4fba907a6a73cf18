"""CUDA C++ of a product of two factors that no tile program says: of float32 without tensor cores,
and of GPUs whose tensor cores do not run by themselves.

The pipeline is a text, `products.cu`. It has all but what is special to a product: what fills the
tiles, and what becomes of the sums. A step is 128 bytes of each row of a tile. A kernel of
``a @ b + c`` in bfloat16 on sm_80, a (4096, 300), b (300, 4096), c (4096,), with the atom
mma_bf16_128x256:

    MULTISTAGE_BUFFERS(bf16, 4, 128, 256, 16384);  the multistage buffers: `_print_buffers`
    FILL(tile, number, slot, full) { ... };     fills both tiles of a step: `_print_fills_of_step`
    const auto write_rows0 = ...                a function that stores results by whole rows
    const u16 load_3 = p2[...];                 loads of c, which arrive while products run
    PIPELINE(256, 1, mma_bf16, 0, 1);           all steps; then `sums` has the results
    store_matrices(lines0 + ..., (u16)cast_71, ...);

The arguments of PIPELINE are the threads, how many tiles the copy engine fills, the function that
multiplies, and whether the left and the right tile are transposed.
"""

from lamina.ir.kernel import points
from lamina.ir.node import Node
from lamina.schedule.gpu.atoms import LINE_BYTES
from lamina.targets.cuda.programs import ProgramPrinter
from lamina.targets.cuda.tiles import call
from lamina.targets.gpu import WorkLoop
from lamina.targets.language import Point
from lamina.tiles.decisions import (
    ProductDecisions,
    Steps,
    is_tile_transposed,
    result_sides,
)


class ProductPrinter(ProgramPrinter):
    """One kernel, which may have a product of two factors."""

    def _print_product(self, reduction: Node) -> None:
        """Print the pipeline of a sum of products, as the module's example shows, and keep the
        texts of a thread's sums as the values of `reduction`."""
        decisions = self.decisions
        corner = self.corner()
        self._print_buffers(decisions)
        self._print_fills_of_step(decisions.steps, corner)
        # Without tensor cores `opaque` is a copy of the sums that has passed an optimisation
        # barrier: see `products.cu`.
        self.name_sums(reduction, "opaque" if self.atom.instruction == "fma" else "sums")
        self.place_lines(decisions.row_stores)
        lines = self.row_lines(decisions.row_stores)
        self.print_row_functions(lines)
        self.begin_row_stores(lines, *result_sides(self.nest))
        self.print_early_loads(reduction)
        transposed = [int(is_tile_transposed(tile)) for tile in self.nest.tiles]
        arguments = (self.threads, len(self.maps), self.atom.function, *transposed)
        self.line(call("PIPELINE", *arguments))
        self._set_launch(decisions)

    def _print_buffers(self, decisions: ProductDecisions) -> None:
        """Print the multistage buffers of both factors, beside lines for results, and set the
        memory that a block needs for them.

        The 4 stages of mma_bf16_128x256 are ``MULTISTAGE_BUFFERS(bf16, 4, 128, 256, 16384);``. A
        stage has a line of 128 bytes for each of 128 rows and 256 columns, 48 KiB. The last number
        is the bytes of results on their way to memory: a line for each of 128 rows, of one store,
        16 KiB.
        """
        atom = self.atom
        stage_bytes = (atom.m + atom.n) * LINE_BYTES
        result_bytes = decisions.result_bytes
        self.line(call("MULTISTAGE_BUFFERS", atom.kind, atom.stages, atom.m, atom.n, result_bytes))
        self.shared_bytes = atom.stages * stage_bytes + result_bytes
        # Without tensor cores a thread holds the factors of a step in registers too.
        self.has_all_registers = atom.instruction == "fma"

    def _print_fills_of_step(self, steps: Steps, corner: Point) -> None:
        """Print the function that fills both tiles of a step of a tile of results.

        Its arguments are numbers: `tile` of the tile of results, from which the indices of the grid
        follow; `number` of the step, of `steps.count`; `slot` of the stage; and the barrier `full`
        that the copies report to. With 5 lines along the inner axes, `number` 7 is the point 1 of
        the outer axes, and line 2, whose first element is 64 * 2.
        """
        left, right = self.nest.tiles
        atom, width = self.atom, self.line_elements
        head = "FILL(tile, number, slot, full) {"
        with self.block(head, [*self.grid, *steps.outer], "};"):
            self.scopes[-1].lines += self.indices(self.grid, "tile")
            self.scopes[-1].lines += self.indices(steps.outer, f"number / {steps.lines_of_inner}")
            line_of_inner = f"number % {steps.lines_of_inner}"
            first = self._walk(steps.inner, f"{width} * ({line_of_inner})")
            self._fill_tile("left", left, first, (atom.m, width), corner)
            self._fill_tile("right", right, first, (atom.n, width), corner)

    def _set_launch(self, decisions: ProductDecisions) -> None:
        """Set what is around the body: the loop over the tiles of a block, and its threads.

        The module's example has 512 tiles of 5 steps on 108 multiprocessors: 103 blocks with five
        tiles, which are 25 steps, each. It ends with ``mma_STREAM_K(256, 512, 5, 25, 103);``:
        threads, tiles, steps of a tile, steps of a block, blocks.
        """
        steps, division = decisions.steps, decisions.division
        tail = call(
            f"{self.atom.instruction}_STREAM_K", self.threads, points(self.grid), steps.count,
            division.steps, division.blocks,
        )  # fmt: skip
        self.work_loop = WorkLoop("PART", f"; {tail}", division.blocks)
        # No other thread has the results of one: all store that come to it.
        self.block_rows = self.threads
