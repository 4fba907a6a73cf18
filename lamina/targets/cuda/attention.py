"""CUDA C++ of products back to back, such as attention: a loop over tiles of steps.

The loop is a text, `attention.cu`: macros such as BACK_TO_BACK_LOOP, which use functions that this
file prints for one kernel: what fills the tiles, which tiles a mask leaves out, and what is
computed from the sums of inner products. In ``softmax(q @ k.T) @ v`` rows are queries, steps are
keys, the inner product is ``q @ k.T``, and the outer one adds up ``p @ v`` over tiles of, say, 64
keys.

Attention of 2 heads of 4096 queries and keys with 64 elements, without a mask, in bfloat16:

    EACH_ROW_TILE {                            128 rows after the other: `_set_persistent_loop`
        TILE(0, 1, 0, bf16, 0, 128, 64);       q, then k and v: `_print_tiles`
        TILE(1, 2, 1, bf16, 0, 64, 64);
        TILE(2, 3, 1, bf16, 0, 64, 64);
        BACK_TO_BACK(3, 1, 1, 1, 1, 64, 64);
        LIES(0); LIES(1); LIES(2);
        FILL_TILES(i32, k1_tile) { ... };      `_print_fill_tiles`; k1_tile numbers tiles of keys
        WITHIN(tile0, tile1);                  `_print_loop`
        BEYOND(tile2);
        BOUNDS(i32, 64);                       `_print_masks`; a MASK for each mask, here none
        COUNT;
        ELEMENTS(i32, k1_tile) { ... };        `_print_elements`
        BACK_TO_BACK_LOOP(1, 2, 1, 2, 1);      all tiles of keys
        finish(0, where_174);                  `_print_finish`, for the rows 0 and 1 of a thread
        finish(1, where_177);
        FINISH(1);
        const auto write_rows0 = ...           then the results: ``write_rows0(p3 + ..., ...);``
        ...
    }; PERSISTENT_LOOP(1, 2, 1, 64, 32, 1048576, 0);

A thread holds parts of two rows, `row_half` 0 and 1, which are 8 rows apart: the layout of results
of `wgmma` (PTX ISA, register fragments of wgmma.mma_async.m64nNk16). Of each group of 8 columns it
has two neighbours. Thread 5 of a warp, with rows 1 and 9:

    columns of a group    0 1    2 3    4 5    6 7
    row 1                 t 4    t 5    t 6    t 7     element 4 * group + neighbour
    row 9                 t 4    t 5    t 6    t 7     element 4 * group + 2 + neighbour

Four threads side by side, the lanes 0 to 3, have all columns of a row.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, e, log2

from lamina.core.dtypes import bool_, float32
from lamina.core.shape import Shape
from lamina.graph import index as ix
from lamina.ir.kernel import Store, bound_axes, bounds, free_axes, points
from lamina.ir.monoids import ADD, MAX, Monoid
from lamina.ir.node import Node, const
from lamina.ir.ops import LoopReduce, Op
from lamina.schedule.gpu.attention import (
    ExpFactor,
    Mask,
    exp_factor_of,
    factors_of,
    masks_of,
    scaled,
)
from lamina.targets.cuda.programs import ProgramPrinter
from lamina.targets.cuda.tiles import call
from lamina.targets.gpu import WorkLoop
from lamina.targets.language import Point, Value, Values
from lamina.tiles.decisions import RESERVED_BYTES, ResultSide, stores_by_rows
from lamina.tiles.program import GROUP_ROWS

ELEMENT_BYTES = 2  # of factors, which have 16 bits
PANEL = 64  # elements of a line of 128 bytes
PRODUCER_THREADS = 128  # a group of four warps (PTX), which ask the copy engine for tiles
Known = dict[Node, Node]  # nodes, and what stands for them in a tile


@dataclass(frozen=True)
class _Tile:
    """A tile of a factor.

    step_axis  along its rows, which are read as a whole
    shape      its rows, and the elements of a row, padded to whole lines
    passes_by  whether it has steps as rows, which pass by; tiles of rows stay
    """

    store: Store
    step_axis: Node
    shape: Shape
    passes_by: bool

    @property
    def nbytes(self) -> int:
        rows, elements = self.shape
        return ELEMENT_BYTES * rows * elements


@dataclass(frozen=True)
class _StepLoops:
    """The sub-loops of the steps: the tile, the group of 8 steps in it, and in a group the lane and
    one of two neighbours, as columns of inner products."""

    tile: Node
    group: Node
    lane: Node
    neighbour: Node

    @property
    def steps_of_tile(self) -> int:
        """Steps of one tile: 64 in 8 groups."""
        return points([self.group, self.lane, self.neighbour])


@dataclass(frozen=True)
class _RegisterLoops:
    """The sub-loops of results that number the elements of a thread: groups of 8 columns, its two
    rows, and two neighbours in a group."""

    column_group: Node
    row_half: Node
    neighbour: Node


@dataclass(frozen=True)
class _Sums:
    """The reductions of products back to back: inner products; sums of rows, and outer products,
    both over all steps; and the exponential that all terms over the steps have as a factor."""

    inner: list[Node]
    of_rows: list[Node]
    outer: list[Node]
    exp_factor: ExpFactor
    steps: _StepLoops


class AttentionPrinter(ProgramPrinter):
    """One kernel, which may have products back to back."""

    # Whether rows that come last take longest, as below a causal mask: blocks take these first.
    last_rows_first = False

    def _print_back_to_back(self, node: Node) -> None:
        """Print the loop over tiles of steps, and keep what these add up to; `node` is one of the
        reductions over the steps, and all of them are done here. `_set_persistent_loop` comes after
        the fills and masks: it reads the `maps` and `last_rows_first` that they leave."""
        sums = self._sums(node)
        tiles = self._tiles(sums)
        # On GPUs whose threads have no roles these only help to fill tiles.
        self.threads += PRODUCER_THREADS
        self.shared_bytes = self.target.shared_bytes - RESERVED_BYTES  # which the text divides up
        self.has_all_registers = True
        self._print_tiles(tiles, sums)
        steps = sums.steps
        corner = self.corner(steps.group, steps.lane, steps.neighbour)
        self.line(f"const {self.index} {self.axis_name(steps.lane)} = THREAD % 4;")
        self._print_fill_tiles(tiles, steps, corner)
        self._print_loop(tiles, sums)
        self._set_persistent_loop(tiles, steps)
        self._print_finish(sums)
        self._print_result_rows()

    @property
    def _registers(self) -> _RegisterLoops:
        """The unrolled sub-loops of results, in the order of `Atom.register_loops`; those of steps,
        inside the functions that have them, come after these."""
        column_group, row_half, neighbour = list(self.unrolled)[:3]
        return _RegisterLoops(column_group, row_half, neighbour)

    def _print_loop(self, tiles: Sequence[_Tile], sums: _Sums) -> None:
        """Print which tiles each product multiplies, what is computed between inner and outer
        products, and the loop itself. For forward attention, with the tiles 0 of q, 1 of k and 2 of
        v, these are

            WITHIN(tile0, tile1);            inner products, of two tiles each
            BEYOND(tile2);                   outer products: their right factors
            ELEMENTS(i32, k1_tile) { ... };  `_print_elements`
            BACK_TO_BACK_LOOP(1, 2, 1, 2, 1);

        The last line has the number of tiles that stay, 1; of those that pass by, 2; which of the
        latter inner products wait for, a bit for each: 1 is k, bit 0; which of them outer products
        do: 2 is v, bit 1; and whether sums are rescaled when the maximum of a row rises.
        """
        stores = [tile.store for tile in tiles]
        numbers = [stores.index(store) for store in self.nest.tiles]
        factors_of_inner = 2 * len(sums.inner)
        inner_tiles, outer_tiles = numbers[:factors_of_inner], numbers[factors_of_inner:]
        self.line(call("WITHIN", *(f"tile{number}" for number in inner_tiles)))
        self.line(call("BEYOND", *(f"tile{number}" for number in outer_tiles)))
        self._print_elements(sums)
        staying = _count_staying(tiles)
        passing = len(tiles) - staying
        inner_bits = _passing_bits(inner_tiles, staying)
        outer_bits = _passing_bits(outer_tiles, staying)
        has_maximum = int(sums.exp_factor.row_max is not None)
        self.line(call("BACK_TO_BACK_LOOP", staying, passing, inner_bits, outer_bits, has_maximum))

    def _sums(self, node: Node) -> _Sums:
        """The reductions of the kernel, of which `node` is one over the steps.

        Outer products are those of them whose values vary along all unrolled axes of results: the
        groups of columns, the two rows and the two neighbours of a thread. Sums of rows and the
        maximum vary along `row_half` alone.
        """
        reductions = [other for other in self.nest.kernel.nodes if other.op is Op.LOOP_REDUCE]
        over_steps = [other for other in reductions if bound_axes(other) == bound_axes(node)]
        inner = [other for other in reductions if other not in over_steps]
        outer = [other for other in over_steps if self.unrolled.keys() <= free_axes(other)]
        exp_factor = exp_factor_of(over_steps)
        assert exp_factor is not None
        of_rows = [other for other in over_steps if other not in (*outer, exp_factor.row_max)]
        # The order of the sub-loops that `Tensorize` splits the steps into.
        tile, group, lane, neighbour = bound_axes(node)
        return _Sums(inner, of_rows, outer, exp_factor, _StepLoops(tile, group, lane, neighbour))

    def _tiles(self, sums: _Sums) -> list[_Tile]:
        """The tiles, each once, in the order of their numbers in the text: those of rows first,
        then those that pass by.

        For heads of 80 and tiles of 128 keys: q (128, 128), which stays, then k and v, (128, 128)
        each. Rows of 80 elements are padded to two lines of PANEL = 64.
        """
        steps = sums.steps
        tiles = []
        for store in dict.fromkeys(self.nest.tiles):
            step_axis = next(axis for axis in store.axes if axis.arg.reduce)
            elements = ceil(step_axis.arg.size / PANEL) * PANEL
            # A tile of keys has its rows by the number of the tile of steps.
            passes_by = steps.tile in free_axes(store.index)
            rows = steps.steps_of_tile if passes_by else self.atom.m
            tiles.append(_Tile(store, step_axis, (rows, elements), passes_by))
        return sorted(tiles, key=lambda tile: tile.passes_by)

    def _print_tiles(self, tiles: Sequence[_Tile], sums: _Sums) -> None:
        """Print the types of the tiles, what a thread holds, and where the tiles lie.

        ``TILE(1, 2, 1, bf16, 0, 64, 64);``  of k its number and the next one; 1 as it passes by;
        its type; 0 as it is not transposed; its rows, and elements of a row.
        ``BACK_TO_BACK(3, 1, 1, 1, 1, 64, 64);``  how many tiles, stores, inner products, outer
        products and sums of rows; the steps of a tile, and the columns of results.
        ``LIES(1);``  its place in shared memory.
        """
        for number, tile in enumerate(tiles):
            transposed = tile.store.axes[0] is tile.step_axis
            layout = (int(tile.passes_by), self.atom.kind, int(transposed), *tile.shape)
            self.line(call("TILE", number, number + 1, *layout))
        stores = self.nest.kernel.stores
        counts = map(len, (tiles, stores, sums.inner, sums.outer, sums.of_rows))
        self.line(call("BACK_TO_BACK", *counts, sums.steps.steps_of_tile, self.atom.n))
        for number in range(len(tiles)):
            self.line(call("LIES", number))

    def _print_fill_tiles(self, tiles: Sequence[_Tile], steps: _StepLoops, corner: Point) -> None:
        """Print the function that fills one of the tiles: ``FILL_TILES(i32, k1_tile) { if (tile ==
        0) { ... } if (tile == 1) { ... } };``. Its arguments are `tile`, the number of the tile,
        that of the tile of steps, here k1_tile, the stage and its barrier."""
        head = f"FILL_TILES({self.index}, {self.axis_name(steps.tile)}) {{"
        with self.block(head, (steps.tile,), "};"):
            for number, tile in enumerate(tiles):
                with self.block(f"if (tile == {number}) {{"):
                    start = self._walk([tile.step_axis], "0")
                    self._fill_tile(f"tile{number}", tile.store, start, tile.shape, corner)

    def _set_persistent_loop(self, tiles: Sequence[_Tile], steps: _StepLoops) -> None:
        """Set the loop around the body, in which a block takes one tile of rows after another. At
        most as many blocks start as there are multiprocessors.

        Two causal heads of 4096 queries and keys, of 64 elements, end in ``PERSISTENT_LOOP(1, 2, 1,
        64, 32, 1048576, 1);``: 1 as warps of their own copy every tile, which they do if all have a
        map of the copy engine; 2 groups of 64 rows in a block; 1 tile that stays; 64 tiles of rows,
        32 a head; the bytes that pass by in a head, of k and v; and 1 as the last rows take
        longest, so that blocks begin with these.
        """
        workers = points(self.grid)
        has_producers = len(self.maps) == len(tiles)
        # The grid, outermost first: batch and heads; bands of tiles of rows; two axes of columns,
        # which are one tile here; tiles of rows in a band.
        *_, bands, _, _, row_tiles_of_band = self.grid
        row_tiles = points([bands, row_tiles_of_band])
        passing_bytes = steps.tile.arg.size * sum(tile.nbytes for tile in tiles if tile.passes_by)
        row_groups = self.atom.m // GROUP_ROWS
        tail = call(
            "PERSISTENT_LOOP", int(has_producers), row_groups, _count_staying(tiles), workers,
            row_tiles, passing_bytes, int(self.last_rows_first),
        )  # fmt: skip
        blocks = min(workers, self.target.multiprocessors)
        self.work_loop = WorkLoop("EACH_ROW_TILE", f"; {tail}", blocks)

    # What is computed from the sums of inner products.

    def _print_elements(self, sums: _Sums) -> None:
        """Print the function that computes, for a tile of steps, the left factors of outer products
        and what else is summed up. In tiles without masked elements the conditions are known."""
        steps = sums.steps
        # Inner products stand for themselves, so that conditions beneath them stay as they are.
        known = {node: node for node in sums.inner}
        tests = self._print_masks(sums, known)
        indices = (steps.tile, steps.lane)
        unrolled = (steps.group, steps.neighbour)
        with self.block(f"ELEMENTS({self.index}, {self.axis_name(steps.tile)}) {{", (), "};"):
            if tests:
                with self.block(f"if ({' || '.join(tests)}) {{", indices, "}", unrolled):
                    self._print_tile_elements(sums, {})
            head = "else {" if tests else "{"
            with self.block(head, indices, "}", unrolled):
                self._print_tile_elements(sums, known)

    def _print_masks(self, sums: _Sums, known: Known) -> list[str]:
        """Print which tiles of steps are not masked as a whole: the loop skips all others.

        The result has, for each mask, a test in CUDA C++ that is true if the tile may have masked
        elements. For tiles where no test is true, each condition of a mask is added to `known` as
        the constant that masks nothing.
        """
        tile = sums.steps.tile
        self.line(call("BOUNDS", self.index, tile.arg.size))
        tests: list[str] = []
        for condition, mask in masks_of(sums.exp_factor.exponent).items():
            if self._print_mask(len(tests), mask, tile):
                tests.append(f"MASKED({len(tests)}, {self.axis_name(tile)})")
                known[condition] = const(not mask.masks_where, bool_)
        self.line("COUNT;")
        return tests

    def _print_mask(self, number: int, mask: Mask, tile: Node) -> bool:
        """Print the macro MASK for the mask of this number; print nothing, and return False, if its
        index does not depend on `tile`: such a mask leaves out no tile.

        The index is positive where an element is masked, as ``key - query`` of a causal mask. With
        tiles of 64 keys and 128 queries to a block, in two groups of 64,

            key - query = (64 * tile + key_in_tile) - (128 * block + 64 * row_group + row)

        has the parts that MASK takes: `place` ``-128 * block``, known to the whole block; from
        `low` ``0 - 64 - 63`` to `high` ``63 - 0 - 0`` within a tile and block; `step` 64 for each
        tile; and `by_row_group` -64, so that a group of rows can narrow the range to its own. If
        the axes row_band and row_tile of the grid number blocks, it is
        ``MASK(0, 128 * (-1 * row_band + -1 * row_tile) + 0, -127, 63, 64, -64);``.
        """
        terms, constant = ix.terms_of(mask.index)
        step = terms.pop(tile, 0)
        if not step:
            return False
        # Where later tiles are masked, as those above a diagonal, later rows have more tiles. Of
        # several masks the last one decides: it is only the order in which blocks take rows.
        self.last_rows_first = step > 0
        # Axes whose index a block knows before the loop; all others are within a tile or a block.
        known_axes = self.text_of.keys() - {*self.rows_inside}
        of_block = {axis: factor for axis, factor in terms.items() if axis in known_axes}
        of_tile = {axis: factor for axis, factor in terms.items() if axis not in known_axes}
        place = self.index_text(ix.affine(of_block, 0), {})
        low, high = bounds(ix.affine(of_tile, constant))
        row_group = self.rows_inside[0]  # GROUP_ROWS each, side by side in a block
        by_row_group = of_tile.get(row_group, 0)
        self.line(call("MASK", number, place, low, high, step, by_row_group))
        return True

    def _print_tile_elements(self, sums: _Sums, known: Known) -> None:
        """Print what a thread computes from its inner products of one tile of steps.

        These are ``sums[number][element]`` for each inner product; the module's picture has the
        elements. In order: the maximum of each row so far and its shift, terms of sums of rows, and
        the left factors of outer products, such as ``exp(scores - shift)``. `known` replaces nodes
        by what they are in this tile: conditions by constants where no element is masked.
        """
        steps, row_half = sums.steps, self._registers.row_half
        elements = {
            4 * point[steps.group] + 2 * point[row_half] + point[steps.neighbour]: point
            for point in self.points((steps.group, row_half, steps.neighbour))
        }
        for number, reduction in enumerate(sums.inner):
            for element, point in elements.items():
                self.keep(reduction, point, (Value(f"sums[{number}][{element}]", float32),))
        self.line("ready();")
        factor, exponent = scaled(ix.replaced(sums.exp_factor.exponent, known))
        shift = sums.exp_factor.shift
        if sums.exp_factor.row_max is not None:
            shift = self._print_shift(sums, factor, exponent, row_half)
        # exp(factor * x - shift) is 2**(x * (factor * log2(e)) - shift * log2(e)): one fused
        # multiplication and addition an element, and the instruction for 2**x.
        power = exponent * (factor * log2(e)) + -(shift * log2(e))
        known = {sums.exp_factor.exp: Node(Op.EXP2, (power,)), **known}
        self._print_terms(sums, known, row_half, elements)

    def _print_terms(
        self, sums: _Sums, known: Known, row_half: Node, elements: Mapping[int, Point]
    ) -> None:
        """Print what a tile adds to sums of rows, and the left factors of its outer products.

        For each sum and row: ``add(0, 0, <sum of the thread's elements of row 0>);``. For each
        outer product and element: ``parts[0][5] = <left factor>;``, in float32. It is rounded to
        16 bits when the loop packs it, so the CAST that rounds it in the graph is left out here.
        """
        steps = sums.steps
        for number, reduction in enumerate(sums.of_rows):
            term = ix.replaced(reduction.src[0], known)
            for half, row in enumerate(self.points((row_half,))):
                self.line(call("add", number, half, self._joined(ADD, term, row, steps)))
        for number, reduction in enumerate(sums.outer):
            factors = factors_of(reduction.src[0])
            (rounded,) = (node for node in factors if row_half in free_axes(node))
            left = ix.replaced(rounded.src[0], known)
            for element, point in elements.items():
                self.line(f"parts[{number}][{element}] = {self.value_of_root(left, point).text};")

    def _print_shift(self, sums: _Sums, factor: float, exponent: Node, row_half: Node) -> Node:
        """Print the maximum of each row so far and the shift from this tile on; return a node that
        stands for the shift, such as the maximum itself in a softmax.

        The exponents are ``factor * exponent``. `factor` is positive, as 1 / 8 for heads of 64, so
        the maximum is of `exponent` alone, and one multiplication a row brings the factor back.
        `update_maximum` and `update_shift` are in attention.cu: the shift changes only where the
        maximum rises by more than 6, and ``factor[half]`` is what earlier sums are multiplied by
        then. Printed for row 0:

            update_maximum(row_max[0], <maximum of the thread's exponents>);
            const auto max_53 = row_max[0] * 0.125f;
            const auto shift_54 = update_shift(shift[0], factor[0], row_max[0], max_53);

        The method is FlashAttention-2 (Dao, 2023), without most of its rescaling.
        """
        steps, row_max = sums.steps, sums.exp_factor.row_max
        assert row_max is not None
        # What the maximum and the shift are up to this tile: running maxima along the tiles. Their
        # texts are kept below, so that these nodes are never printed as scans.
        so_far = Node(Op.LOOP_SCAN, (row_max, steps.tile), LoopReduce(MAX))
        shift = Node(Op.LOOP_SCAN, (sums.exp_factor.shift, steps.tile), LoopReduce(MAX))
        wanted = ix.replaced(sums.exp_factor.shift, {row_max: so_far})
        for half, row in enumerate(self.points((row_half,))):
            of_thread = self._joined(MAX, exponent, row, steps)
            self.line(call("update_maximum", f"row_max[{half}]", of_thread))
            self.keep(so_far, row, (self._scaled_maximum(half, factor),))
            text = self.value_of_root(wanted, row).text
            text = f"update_shift(shift[{half}], factor[{half}], row_max[{half}], {text})"
            self.keep(shift, row, (self.declare(Value(text, float32), "shift"),))
        return shift

    def _scaled_maximum(self, half: int, factor: float) -> Value:
        """The maximum of one of the two rows of a thread, of exponents with their factor."""
        text = f"row_max[{half}] * {self.literal(const(factor, float32)).text}"
        return self.declare(Value(text, float32), "max")

    def _joined(self, monoid: Monoid, term: Node, row: Point, steps: _StepLoops) -> str:
        """The expression that combines, in a balanced tree, `term` at all elements that a thread
        has of one row and tile: of 8 groups and two neighbours, 16 values."""
        values: list[Values] = [
            (self.value_of_root(term, row | point),)
            for point in self.points((steps.group, steps.neighbour))
        ]
        return self.tree(monoid, values)[0].text

    # After the loop.

    def _print_finish(self, sums: _Sums) -> None:
        """Print what follows the last tile, and keep the texts of all sums for the results.

        Sums are relative to the shift so far, which may differ from the final one by up to 6:
        `finish` rescales them by ``exp(shift so far - final shift)``. FINISH also adds up sums of
        rows over the four threads of a row.
        """
        exp_factor = sums.exp_factor
        if exp_factor.row_max is not None:
            factor, _ = scaled(exp_factor.exponent)
            for half, row in enumerate(self.points((self._registers.row_half,))):
                self.keep(exp_factor.row_max, row, (self._scaled_maximum(half, factor),))
                self.line(call("finish", half, self.value_of_root(exp_factor.shift, row).text))
        self.line(call("FINISH", int(exp_factor.row_max is not None)))
        for array, reductions in (("row_sums", sums.of_rows), ("totals", sums.outer)):
            for number, reduction in enumerate(reductions):
                for element, point in enumerate(self.points(free_axes(reduction))):
                    text = f"{array}[{number}][{element}]"
                    self.keep(reduction, point, (Value(text, float32),))

    def _print_result_rows(self) -> None:
        """Print the functions that store results by whole rows.

        The rows are those of the first factor, such as queries, and the columns those of the last
        one, such as values, whose tile has them as steps: `Tensorize` reads them as a whole."""
        first, last = self.nest.tiles[0], self.nest.tiles[-1]
        registers, lane = self._registers, self.rows_inside[-1]
        column = ix.row_major((registers.column_group, lane, registers.neighbour))
        rows = points(axis for axis in first.axes if not axis.arg.reduce)
        columns = points(axis for axis in last.axes if axis.arg.reduce)
        sides = ResultSide(first.index, rows), ResultSide(column, columns)
        row_stores = stores_by_rows(self.nest, *sides, self.corner())
        self.place_lines(row_stores)
        lines = self.row_lines(row_stores)
        self.print_row_functions(lines)
        self.begin_row_stores(lines, *sides)


def _count_staying(tiles: Sequence[_Tile]) -> int:
    """How many of the tiles stay; these come before those that pass by."""
    return len([tile for tile in tiles if not tile.passes_by])


def _passing_bits(numbers: Sequence[int], staying: int) -> int:
    """A bit for each tile that passes by among those of these `numbers`: bit 0 for the first tile
    after the `staying` ones. Of 0, 2 and 3 with 2 that stay, 2 and 3 are bits 0 and 1: the result
    is 3."""
    bits = 0
    for number in numbers:
        if number >= staying:
            bits |= 1 << number - staying
    return bits
