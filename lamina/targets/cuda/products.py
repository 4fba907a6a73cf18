"""CUDA C++ of a product of two factors: a pipeline over the steps of tiles.

The pipeline is a text, `products.cu`. It has all but what is special to a product: what fills the
tiles, and what becomes of the sums. A step is 128 bytes of each row of a tile. A kernel of
``a @ b + c`` in bfloat16, a (4096, 300), b (300, 4096), c (4096,), with the atom mma_bf16_128x256:

    MULTISTAGE_BUFFERS(bf16, 4, 128, 256, 16384);  the multistage buffers: `_print_buffers`
    FILL(tile, number, slot, full) { ... };     fills both tiles of a step: `_print_fill`
    BEGIN(16, 256, 1, mma_bf16, 0, 1);          the first steps, beside results of the tile before
    ROWS(store0, ...);                          a function that stores results by whole rows
    BEFORE_EPILOGUE {
    const u16 load_3 = p2[...];                 loads of c, which arrive while products run
    PIPELINE(16, 256, 1, mma_bf16, 0, 1);       all other steps; then `sums` has the results
    kept.put(0, cast_71);                       16 bits of each result stay in registers
    }
    EPILOGUE_SLICE(0) {                         results 0 to 7, beside steps of the next tile
    store0(0, (u16)kept[0], ...);
    }

The arguments of BEGIN and PIPELINE are the results of a slice (0 without an overlapped epilogue),
the threads that multiply, how many tiles the copy engine fills, the function that multiplies, and
whether the left and the right tile are transposed.
"""

from collections.abc import Sequence

from lamina.core.dtypes import float32
from lamina.ir.kernel import free_axes, points
from lamina.ir.node import Node
from lamina.ir.ops import Op
from lamina.schedule.gpu.atoms import LINE_BYTES
from lamina.targets.cuda.tiles import TilePrinter, call
from lamina.targets.gpu import WorkLoop
from lamina.targets.language import Point, Value
from lamina.tiles.decisions import (
    Overlap,
    ProductDecisions,
    Steps,
    decide,
    is_tile_transposed,
    result_sides,
)

PRODUCER_THREADS = 128  # a group of four warps (PTX), which ask the copy engine for tiles


class ProductPrinter(TilePrinter):
    """One kernel, which may have a product of two factors."""

    def _print_product(self, reduction: Node) -> None:
        """Print the pipeline of a sum of products, as the module's example shows, and keep the
        texts of a thread's sums as the values of `reduction`."""
        decisions = decide(self.nest, self.target)
        corner = self.corner()
        self._print_buffers(decisions)
        self._print_fill(decisions.steps, corner)
        sum_points = self._keep_sums(reduction)
        # Slices begin with what is known now: of the rest of the text they have ROWS alone.
        self.known_before_slices = dict(self.scopes[-1].cache)
        row_stores = self.row_stores(*result_sides(self.nest), corner)
        overlap, slice_sums = decisions.overlap, decisions.slice_sums
        transposed = [int(is_tile_transposed(tile)) for tile in self.nest.tiles]
        arguments = (slice_sums, self.threads, len(self.maps), self.atom.function, *transposed)
        self.line(call("BEGIN", *arguments))
        self.print_row_stores(row_stores)
        if overlap:
            self.line("BEFORE_EPILOGUE {")
        self._print_early_loads(reduction)
        self.line(call("PIPELINE", *arguments))
        self._set_launch(decisions)
        if overlap:
            self._print_kept(overlap, sum_points)

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

    def _keep_sums(self, reduction: Node) -> list[Point]:
        """Keep ``sums[0]``, ``sums[1]``, ... as the values of `reduction` at the points that a
        thread has; the result is these points, in order. The order is that of the unrolled axes,
        which the schedule puts as the atom's instruction numbers its accumulators. Without tensor
        cores the array is `opaque`, a copy that has passed an optimisation barrier: see
        `products.cu`."""
        array = "opaque" if self.atom.instruction == "fma" else "sums"
        sum_points = list(self.points(free_axes(reduction)))
        for number, point in enumerate(sum_points):
            self.keep(reduction, point, (Value(f"{array}[{number}]", float32),))
        return sum_points

    @property
    def _line_elements(self) -> int:
        """The steps in a line of a tile."""
        return LINE_BYTES // self.atom.dtype.itemsize

    def _print_fill(self, steps: Steps, corner: Point) -> None:
        """Print the function that fills both tiles of a step of a tile of results.

        Its arguments are numbers: `tile` of the tile of results, from which the indices of the grid
        follow; `number` of the step, of `steps.count`; `slot` of the stage; and the barrier `full`
        that the copies report to. With 5 lines along the inner axes, `number` 7 is the point 1 of
        the outer axes, and line 2, whose first element is 64 * 2.
        """
        left, right = self.nest.tiles
        atom, width = self.atom, self._line_elements
        head = "FILL(tile, number, slot, full) {"
        with self._function(head, [*self.grid, *steps.outer], "};"):
            self.scopes[-1].lines += self.indices(self.grid, "tile")
            self.scopes[-1].lines += self.indices(steps.outer, f"number / {steps.lines_of_inner}")
            line_of_inner = f"number % {steps.lines_of_inner}"
            first = self._walk(steps.inner, f"{width} * ({line_of_inner})")
            self._fill_tile("left", left, first, (atom.m, width), corner)
            self._fill_tile("right", right, first, (atom.n, width), corner)

    def _print_early_loads(self, reduction: Node) -> None:
        """Print, before the pipeline, the loads of the epilogue that are worth registers meanwhile.

        These are values of 16 bits that do not depend on the row of a thread, such as a bias of the
        columns in bfloat16: a thread has two rows, and reads one value for both. Their latency
        passes while products run. A residual, a value for each result, takes as many registers as
        the sums themselves, and is read in the epilogue.
        """
        row_half = list(self.unrolled)[1]  # by the order of `Atom.register_loops`
        shared = free_axes(reduction) - {row_half}
        for node in self.nest.kernel.nodes:
            if node.op is Op.LOAD and node.dtype.itemsize == 2 and free_axes(node) <= shared:
                self.value(node, dict.fromkeys(self.unrolled, 0))

    def _set_launch(self, decisions: ProductDecisions) -> None:
        """Set what is around the body: the loop over the tiles of a block, and its threads.

        The module's example has 512 tiles of 5 steps on 132 multiprocessors: 128 blocks with four
        tiles, which are 20 steps, each. It ends with ``mma_STREAM_K(0, 16, 256, 512, 5, 20,
        128);``: no producers, results of a slice, threads, tiles, steps of a tile, steps of a
        block, blocks. It has no producers as rows of 300 elements, 600 bytes, are not whole chunks
        of 16 bytes: threads fill the left tiles.
        """
        steps, division = decisions.steps, decisions.division
        has_producers, slice_sums = decisions.has_producers, decisions.slice_sums
        tail = call(
            f"{self.atom.instruction}_STREAM_K", int(has_producers), slice_sums, self.threads,
            points(self.grid), steps.count, division.steps, division.blocks,
        )  # fmt: skip
        self.work_loop = WorkLoop("PART", f"; {tail}", division.blocks)
        if has_producers:
            self.threads += PRODUCER_THREADS
        # No other thread has the results of one: all store that come to it.
        self.block_rows = self.threads

    def _print_kept(self, overlap: Overlap, sum_points: Sequence[Point]) -> None:
        """Print the value of 16 bits that a thread keeps for each of its sums: lines such as
        ``kept.put(3, <value>);``. After the closing brace the value is read as ``kept[3]``, and no
        other name from inside the braces is known: slices are printed in another place."""
        for number, point in enumerate(sum_points):
            value = self.value_of_root(overlap.value, point)
            self.line(call("kept.put", number, value.text))
            kept = Value(f"kept[{number}]", overlap.value.dtype)
            self.known_before_slices[self.key(overlap.value, point)] = kept
        self.line("}")
        self.filled |= {overlap.value}  # what is computed from it does not enter the sums again
        scope = self.scopes[-1]
        scope.cache = dict(self.known_before_slices)
        self.slice_start = len(scope.lines)
