"""CUDA C++ of products back to back that have no tile program: of GPUs whose tensor cores do not
run by themselves, of tiles that threads fill or that leave no room for results, and of factors that
no view of the dialect says.

The loop is a text, `attention.cu`: macros such as BACK_TO_BACK_LOOP, which use functions that this
file prints for one kernel: what fills the tiles, and what is computed from the sums of inner
products (`attention_elements.py`).

Attention of 2 heads of 4096 queries and keys with 64 elements, without a mask, in bfloat16, on
sm_80:

    EACH_ROW_TILE {                            128 rows after the other: `_set_persistent_loop`
        TILE(0, 1, 0, bf16, 0, 128, 64);       q, then k and v: `_print_tiles`
        TILE(1, 2, 1, bf16, 0, 64, 64);
        TILE(2, 3, 1, bf16, 0, 64, 64);
        BACK_TO_BACK(3, 1, 1, 1, 64, 64);
        LIES(0); LIES(1); LIES(2);
        auto &inner0 = sums[0];                names of registers: `_print_registers`
        ...
        FILL_TILES(i32, k1_tile) { ... };      `_print_fill_tiles`; k1_tile numbers tiles of keys
        WITHIN(tile0, tile1);                  `_print_loop`
        BEYOND(tile2);
        const i32 first = 0, stop = 64;        which tiles pass by
        const auto elements = ...              what is computed
        BACK_TO_BACK_LOOP(1, 2, 1);            all tiles of keys
        ...                                    then the results: ``write_rows0(p3 + ..., ...);``
    }; PERSISTENT_LOOP(64, 32, 1048576, 0);
"""

from collections.abc import Sequence

from lamina.ir.kernel import points
from lamina.targets.cuda.attention_elements import AttentionElementPrinter
from lamina.targets.cuda.tiles import call, end_of
from lamina.targets.gpu import WorkLoop
from lamina.targets.language import Point
from lamina.tiles.attention import FactorTile, KeyLoops
from lamina.tiles.decisions import RESERVED_BYTES, element_axes, row_axes

EXTRA_FILL_THREADS = 128  # of a warpgroup that helps to fill tiles


class AttentionPrinter(AttentionElementPrinter):
    """One kernel, which may have products back to back."""

    def _print_back_to_back(self) -> None:
        """Print the loop over tiles of keys, and keep what these add up to: all reductions over
        the keys."""
        self.threads += EXTRA_FILL_THREADS
        self.shared_bytes = self.target.shared_bytes - RESERVED_BYTES  # which the text divides up
        self.has_all_registers = True
        tiles, keys = self.parts.tiles, self.parts.reductions.keys
        self._print_tiles(tiles)
        self._print_registers()
        corner = self.corner(keys.column_group, keys.lane, keys.neighbour)
        self.line("const int group = warp_group();")
        self.line(f"const {self.index} {self.axis_name(keys.lane)} = THREAD % 4;")
        self._print_fill_tiles(tiles, keys, corner)
        self._print_loop()
        self._set_persistent_loop(tiles, keys)
        self.print_finish()
        self.place_lines(self.parts.row_stores)
        self.print_rows_of_results()

    def _print_loop(self) -> None:
        """Print which tiles each product multiplies, what is computed between inner and outer
        products, and the loop itself: ``BACK_TO_BACK_LOOP(1, 2, 1);`` has the number of tiles that
        stay, of those that pass by, and whether sums are rescaled when the maximum of a row
        rises."""
        parts = self.parts
        inner_tiles, outer_tiles = parts.factor_numbers
        factors = [number for pair in inner_tiles for number in pair]
        self.line(call("WITHIN", *(f"tile{number}" for number in factors)))
        self.line(call("BEYOND", *(f"tile{number}" for number in outer_tiles)))
        self.print_bounds(of_group=False)
        self.print_elements()
        has_maximum = int(parts.reductions.exp_factor.row_max is not None)
        passing = len(parts.tiles) - parts.staying
        self.line(call("BACK_TO_BACK_LOOP", parts.staying, passing, has_maximum))

    def _print_tiles(self, tiles: Sequence[FactorTile]) -> None:
        """Print the types of the tiles, what a thread holds, and where the tiles lie.

        ``TILE(1, 2, 1, bf16, 0, 64, 64);``  of k its number and the next one; 1 as it passes by;
        its type; 0 as it is not transposed; its rows, and elements of a row.
        ``BACK_TO_BACK(3, 1, 1, 1, 64, 64);``  how many tiles, inner products, outer products and
        sums of rows; the steps of a tile, and the columns of results.
        ``LIES(1);``  its place in shared memory.
        """
        for number, tile in enumerate(tiles):
            layout = (int(tile.passes_by), self.atom.kind, int(tile.is_transposed), *tile.shape)
            self.line(call("TILE", number, number + 1, *layout))
        reductions = self.parts.reductions
        counts = map(len, (tiles, reductions.inner, reductions.outer, reductions.of_rows))
        self.line(call("BACK_TO_BACK", *counts, reductions.keys.keys_of_tile, self.atom.n))
        for number in range(len(tiles)):
            self.line(call("LIES", number))

    def _print_registers(self) -> None:
        """Print the names of registers that the text has as arrays of arrays."""
        reductions = self.parts.reductions
        arrays = (
            ("inner", "sums", reductions.inner),
            ("parts", "parts", reductions.outer),
            ("totals", "totals", reductions.outer),
            ("row_sums", "row_sums", reductions.of_rows),
        )
        for name, array, nodes in arrays:
            for number in range(len(nodes)):
                self.line(f"auto &{name}{number} = {array}[{number}];")

    def _print_fill_tiles(
        self, tiles: Sequence[FactorTile], keys: KeyLoops, corner: Point
    ) -> None:
        """Print the function that fills one of the tiles: ``FILL_TILES(i32, k1_tile) { if (tile ==
        0) { ... } if (tile == 1) { ... } };``. Its arguments are `tile`, the number of the tile,
        and that of the tile of keys, here k1_tile."""
        head = f"FILL_TILES({self.index}, {self.axis_name(keys.tile)}) {{"
        with self.block(head, (keys.tile,), "};"):
            for number, tile in enumerate(tiles):
                with self.block(f"if (tile == {number}) {{"):
                    start = self._walk([tile.element_axis], "0")
                    self._print_fill_tile(f"tile{number}", tile, start, corner)

    def _print_fill_tile(self, name: str, tile: FactorTile, start: str, corner: Point) -> None:
        """Print how threads fill a tile, from the index `start` of the elements of its rows on.

        A tile of 128 rows of 50 elements, which are padded to 64, by 384 threads:

            const i64 row = 128 * (8 * row_band + row_tile) + 0;
            FILL_TILE(tile0, row, k0, 384, 0, 50) {
                const u16 load_1 = p0[50 * row + k0];
                return load_1;
            });

        After the threads come the ends of rows and of elements, 0 where no tile goes beyond; the
        braces are a function of one row and element.
        """
        store = tile.store
        rows, elements = row_axes(store), element_axes(store)
        row = self._walk(rows, self.index_text(store.index, corner))
        tile_rows, row_elements = tile.shape
        ends = end_of(rows, tile_rows), end_of(elements, row_elements)
        arguments = (name, row, start, self.threads, *ends)
        with self.block(f"FILL_TILE({', '.join(map(str, arguments))}) {{", store.axes, "});"):
            self._walk(rows)
            self._walk(elements)
            self.line(f"return {self.value_of_root(store.value, {}).text};")

    def _set_persistent_loop(self, tiles: Sequence[FactorTile], keys: KeyLoops) -> None:
        """Set the loop around the body, in which a block takes one tile of rows after another. At
        most as many blocks start as there are multiprocessors.

        Two causal heads of 4096 queries and keys, of 64 elements, end in ``PERSISTENT_LOOP(64,
        32, 1048576, 1);``: 64 tiles of rows, 32 a head; the bytes that pass by in a head, of k and
        v; and 1 as the last rows take longest, so that blocks begin with these.
        """
        workers = points(self.grid)
        passing_bytes = keys.tile.arg.size * sum(tile.nbytes for tile in tiles if tile.passes_by)
        tail = call(
            "PERSISTENT_LOOP", workers, self.parts.row_tiles, passing_bytes,
            int(self.parts.is_last_first),
        )  # fmt: skip
        blocks = min(workers, self.target.multiprocessors)
        self.work_loop = WorkLoop("EACH_ROW_TILE", f"; {tail}", blocks)
