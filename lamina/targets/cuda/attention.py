"""CUDA C++ of products back to back, such as attention: a loop over tiles of steps.

The loop is a text, `nested.cu`. It has all but what is special to a kernel: what fills the tiles,
which tiles a mask leaves out, and what is computed from the sums of inner products.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import e, log2

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
from lamina.targets.cuda.products import PRODUCER_THREADS, ProductPrinter
from lamina.targets.cuda.tiles import ResultSide, call
from lamina.targets.gpu import WorkLoop
from lamina.targets.printer import Point, Value, Values

# Of a block: of the 227 KiB of an H100, 1 is left for barriers. The text uses what other GPUs have.
SHARED_BYTES = 226 << 10
PANEL = 64  # elements of 16 bits of a line of 128 bytes
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
        return 2 * rows * elements


@dataclass(frozen=True)
class _StepLoops:
    """The sub-loops of the steps: the tile, the group of 8 steps in it, and in a group the lane and
    one of two neighbours, as columns of inner products."""

    tile: Node
    group: Node
    lane: Node
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


class AttentionPrinter(ProductPrinter):
    """One kernel, which may have products back to back."""

    # Whether rows that come last take longest, as below a causal mask: blocks take these first.
    last_rows_first = False

    def _print_back_to_back(self, node: Node) -> None:
        """Print the loop over tiles of steps, and keep what these add up to. `_set_turns` comes
        after the fills and masks: it reads the `maps` and `last_rows_first` that they leave."""
        sums = self._sums(node)
        tiles = self._tiles(sums)
        # On GPUs whose threads have no roles these only help to fill tiles.
        self.threads += PRODUCER_THREADS
        self.shared_bytes, self.has_all_registers = SHARED_BYTES, True
        self._print_tiles(tiles, sums)
        steps = sums.steps
        corner = self.corner(steps.group, steps.lane, steps.neighbour)
        self.line(f"const {self.index} {self.axis_name(steps.lane)} = THREAD % 4;")
        self._print_fill_tiles(tiles, steps, corner)
        stores = [tile.store for tile in tiles]
        numbers = [stores.index(store) for store in self.nest.tiles]
        inner_tiles, outer_tiles = numbers[: 2 * len(sums.inner)], numbers[2 * len(sums.inner) :]
        self.line(call("WITHIN", *(f"tile{number}" for number in inner_tiles)))
        self.line(call("BEYOND", *(f"tile{number}" for number in outer_tiles)))
        self._print_elements(sums)
        staying = sum(not tile.passes_by for tile in tiles)
        inner_bits, outer_bits = (
            sum(1 << number - staying for number in {*used} if number >= staying)
            for used in (inner_tiles, outer_tiles)
        )
        has_maximum = int(sums.exp_factor.row_max is not None)
        passing = len(tiles) - staying
        self.line(call("NESTED_LOOP", staying, passing, inner_bits, outer_bits, has_maximum))
        self._set_turns(tiles, staying, steps)
        self._print_finish(sums)
        self._print_result_rows(corner)

    def _sums(self, node: Node) -> _Sums:
        """The reductions of the kernel, of which `node` is one over the steps."""
        reductions = [other for other in self.nest.kernel.nodes if other.op is Op.LOOP_REDUCE]
        over_steps = [other for other in reductions if bound_axes(other) == bound_axes(node)]
        inner = [other for other in reductions if other not in over_steps]
        outer = [other for other in over_steps if self.unrolled.keys() <= free_axes(other)]
        exp_factor = exp_factor_of(over_steps)
        assert exp_factor is not None
        of_rows = [other for other in over_steps if other not in (*outer, exp_factor.row_max)]
        return _Sums(inner, of_rows, outer, exp_factor, _StepLoops(*bound_axes(node)))

    def _tiles(self, sums: _Sums) -> list[_Tile]:
        """The tiles, each once: those of rows first, then those that pass by."""
        steps = sums.steps
        step_tile = 8 * steps.group.arg.size
        staying, passing = [], []
        for store in dict.fromkeys(self.nest.tiles):
            step_axis = next(axis for axis in store.axes if axis.arg.reduce)
            elements = -(-step_axis.arg.size // PANEL) * PANEL
            if steps.tile in free_axes(store.index):
                passing.append(_Tile(store, step_axis, (step_tile, elements), passes_by=True))
            else:
                staying.append(_Tile(store, step_axis, (self.atom.m, elements), passes_by=False))
        return staying + passing

    def _print_tiles(self, tiles: Sequence[_Tile], sums: _Sums) -> None:
        """Print the types of the tiles, what a thread holds, and where the tiles lie."""
        for number, tile in enumerate(tiles):
            transposed = tile.store.axes[0] is tile.step_axis
            layout = (int(tile.passes_by), self.atom.kind, int(transposed), *tile.shape)
            self.line(call("TILE", number, number + 1, *layout))
        stores = self.nest.kernel.stores
        counts = map(len, (tiles, stores, sums.inner, sums.outer, sums.of_rows))
        self.line(call("NESTED", *counts, 8 * sums.steps.group.arg.size, self.atom.n))
        for number in range(len(tiles)):
            self.line(call("LIES", number))

    def _print_fill_tiles(self, tiles: Sequence[_Tile], steps: _StepLoops, corner: Point) -> None:
        """Print the function that fills one of the tiles."""
        head = f"FILL_TILES({self.index}, {self.axis_name(steps.tile)}) {{"
        with self._function(head, (steps.tile,), "};"):
            for number, tile in enumerate(tiles):
                with self._function(f"if (tile == {number}) {{", (), "}"):
                    start = self._walk([tile.step_axis], "0")
                    self._fill_tile(f"tile{number}", tile.store, start, tile.shape, corner)

    def _set_turns(self, tiles: Sequence[_Tile], staying: int, steps: _StepLoops) -> None:
        """Set what is around the body: the loop over the tiles of rows that a block takes."""
        workers = points(self.grid)
        has_producers = len(self.maps) == len(tiles)
        # Heads and others; bands; the two axes of columns, of one tile; tiles of rows in a band.
        *_, bands, _, _, row_tiles_of_band = self.grid
        row_tiles = points([bands, row_tiles_of_band])
        passing_bytes = steps.tile.arg.size * sum(tile.nbytes for tile in tiles if tile.passes_by)
        row_groups = self.atom.m // 64  # of four warps
        tail = call(
            "TAKE_TURNS", int(has_producers), row_groups, staying, workers, row_tiles,
            passing_bytes, int(self.last_rows_first),
        )  # fmt: skip
        blocks = min(workers, self.target.multiprocessors)
        self.work_loop = WorkLoop("TURN", f"; {tail}", blocks)

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
        with self._function(f"ELEMENTS({self.index}, {self.axis_name(steps.tile)}) {{", (), "};"):
            if tests:
                with self._function(f"if ({' || '.join(tests)}) {{", indices, "}", unrolled):
                    self._print_tile_elements(sums, {})
            head = "else {" if tests else "{"
            with self._function(head, indices, "}", unrolled):
                self._print_tile_elements(sums, known)

    def _print_masks(self, sums: _Sums, known: Known) -> list[str]:
        """Print which tiles have exponents of more than -inf, and add to `known` what the masks are
        in tiles without any -inf. The result has a test for each mask: has a tile any?"""
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
        """Print for which tiles the index of a mask is positive, if that depends on the tile; False
        if not. `MASK` of nested.cu describes the parts of the index."""
        terms, constant = ix.terms_of(mask.index)
        step = terms.pop(tile, 0)
        if not step:
            return False
        # Where later tiles are masked, as those above a diagonal, later rows have more tiles. Of
        # several masks the last one decides: it is only the order in which blocks take rows.
        self.last_rows_first = step > 0
        known_axes = self.text_of.keys() - {*self.rows_inside}
        of_block = {axis: factor for axis, factor in terms.items() if axis in known_axes}
        of_tile = {axis: factor for axis, factor in terms.items() if axis not in known_axes}
        place = self.index_text(ix.affine(of_block, 0), {})
        low, high = bounds(ix.affine(of_tile, constant))
        row_group = self.rows_inside[0]  # 64 rows each, side by side in a block
        by_row_group = of_tile.get(row_group, 0)
        self.line(call("MASK", number, place, low, high, step, by_row_group))
        return True

    def _print_tile_elements(self, sums: _Sums, known: Known) -> None:
        """Print what is computed from the sums of inner products, for one tile."""
        steps = sums.steps
        _, row_half, _ = list(self.unrolled)[:3]
        elements = {
            4 * point[steps.group] + 2 * point[row_half] + point[steps.neighbour]: point
            for point in self.points((steps.group, row_half, steps.neighbour))
        }
        for number, reduction in enumerate(sums.inner):
            for element, point in elements.items():
                self._keep(reduction, point, (Value(f"sums[{number}][{element}]", float32),))
        self.line("ready();")
        factor, exponent = scaled(ix.replaced(sums.exp_factor.exponent, known))
        shift = sums.exp_factor.shift
        if sums.exp_factor.row_max is not None:
            shift = self._print_shift(sums, factor, exponent, row_half)
        # exp(x) is 2**(x * log2(e)): one multiplication for both factors.
        power = exponent * (factor * log2(e)) + -(shift * log2(e))
        known = {sums.exp_factor.exp: Node(Op.EXP2, (power,)), **known}
        self._print_terms(sums, known, row_half, elements)

    def _print_terms(
        self, sums: _Sums, known: Known, row_half: Node, elements: Mapping[int, Point]
    ) -> None:
        """Print what is added to sums of rows, and the left factors of outer products."""
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
                self.line(f"parts[{number}][{element}] = {self.result(left, point).text};")

    def _print_shift(self, sums: _Sums, factor: float, exponent: Node, row_half: Node) -> Node:
        """Print the maximum of each row so far, and what is subtracted from now on; a node that
        stands for the latter. `factor` is positive: the maximum is taken without it."""
        steps, row_max = sums.steps, sums.exp_factor.row_max
        assert row_max is not None
        so_far = Node(Op.LOOP_SCAN, (row_max, steps.tile), LoopReduce(MAX))
        shift = Node(Op.LOOP_SCAN, (sums.exp_factor.shift, steps.tile), LoopReduce(MAX))
        wanted = ix.replaced(sums.exp_factor.shift, {row_max: so_far})
        for half, row in enumerate(self.points((row_half,))):
            self.line(call("rise", f"top[{half}]", self._joined(MAX, exponent, row, steps)))
            self._keep(so_far, row, (self._scaled_maximum(half, factor),))
            text = self.result(wanted, row).text
            text = f"follow(less[{half}], factor[{half}], top[{half}], {text})"
            self._keep(shift, row, (self.declare(Value(text, float32), "shift"),))
        return shift

    def _scaled_maximum(self, half: int, factor: float) -> Value:
        """The maximum of one of the two rows of a thread, of exponents with their factor."""
        text = f"top[{half}] * {self.literal(const(factor, float32)).text}"
        return self.declare(Value(text, float32), "max")

    def _joined(self, monoid: Monoid, term: Node, row: Point, steps: _StepLoops) -> str:
        """What a thread's terms of one tile and row come to."""
        values: list[Values] = [
            (self.result(term, row | point),)
            for point in self.points((steps.group, steps.neighbour))
        ]
        return self._tree(monoid, values)[0].text

    # After the loop.

    def _print_finish(self, sums: _Sums) -> None:
        """Print the last rescaling, from the shift so far to the one of all steps, and keep the
        sums."""
        _, row_half, _ = self.unrolled
        exp_factor = sums.exp_factor
        if exp_factor.row_max is not None:
            factor, _ = scaled(exp_factor.exponent)
            for half, row in enumerate(self.points((row_half,))):
                self._keep(exp_factor.row_max, row, (self._scaled_maximum(half, factor),))
                self.line(call("finish", half, self.result(exp_factor.shift, row).text))
        self.line(call("FINISH", int(exp_factor.row_max is not None)))
        for array, reductions in (("row", sums.of_rows), ("totals", sums.outer)):
            for number, reduction in enumerate(reductions):
                for element, point in enumerate(self.points(free_axes(reduction))):
                    text = f"{array}[{number}][{element}]"
                    self._keep(reduction, point, (Value(text, float32),))

    def _print_result_rows(self, corner: Point) -> None:
        """Print the functions that store results by whole rows."""
        first, last = self.nest.tiles[0], self.nest.tiles[-1]
        column_group, _, neighbour = self.unrolled
        column = ix.row_major((column_group, self.rows_inside[-1], neighbour))
        rows = points(axis for axis in first.axes if not axis.arg.reduce)
        columns = points(axis for axis in last.axes if axis.arg.reduce)
        self._store_rows(ResultSide(first.index, rows), ResultSide(column, columns), corner)
