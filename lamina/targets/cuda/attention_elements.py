"""CUDA C++ of the arithmetic of products back to back, such as attention: what is computed from the
sums of inner products, and what follows the last tile.

A thread holds parts of two rows, `row_half` 0 and 1, which are 8 rows apart: the layout of results
of `wgmma` (PTX ISA, register fragments of wgmma.mma_async.m64nNk16). Of each group of 8 columns it
has two neighbours. Thread 5 of a warp, with rows 1 and 9:

    columns of a group    0 1    2 3    4 5    6 7
    row 1                 t 4    t 5    t 6    t 7     element 4 * group + neighbour
    row 9                 t 4    t 5    t 6    t 7     element 4 * group + 2 + neighbour

Four threads side by side, the lanes 0 to 3, have all columns of a row. Its registers:

    inner0      sums of an inner product, of one tile
    parts0      what is computed from them: the left factor of an outer product
    totals0     of an outer product, over all tiles so far
    row_max     the maximum of a row so far
    shift       what is subtracted from the exponents of a row
    factor      by what sums so far are rescaled when the shift moves
    row_sums0   other sums of a row
"""

from collections.abc import Mapping, Sequence
from math import e, log2

from lamina.core.dtypes import bool_, float32
from lamina.graph import index as ix
from lamina.ir.kernel import free_axes
from lamina.ir.monoids import ADD, MAX, Monoid
from lamina.ir.node import Node, const
from lamina.ir.ops import LoopReduce, Op
from lamina.ir.products import uncast_factors
from lamina.schedule.gpu.attention import before_rounding, scaled
from lamina.targets.cuda.printer import CudaPrinter
from lamina.targets.language import Point, Value, Values
from lamina.tiles.attention import BackToBackParts
from lamina.tiles.program import SHIFT_THRESHOLD

Known = dict[Node, Node]  # nodes, and what stands for them in a tile


class ElementPrinter:
    """Prints what is computed from the elements of products back to back. parts: of their nest"""

    def __init__(self, printer: CudaPrinter, parts: BackToBackParts) -> None:
        self.printer = printer
        self.line, self.block = printer.line, printer.block
        self.parts = parts

    # What is computed from the sums of inner products.

    def print_elements(self, masked: Sequence[str]) -> None:
        """Print the function that computes, for a tile of keys, the left factors of outer products
        and what else is summed up, once `ready` has waited for inner products. In tiles without
        masked elements the conditions of masks are known: none of the tests `masked` is true."""
        reductions, keys = self.parts.reductions, self.parts.reductions.keys
        # Inner products stand for themselves, so that conditions beneath them stay as they are.
        known = {node: node for node in reductions.inner}
        for mask in self.parts.masks:
            known[mask.condition] = const(not mask.masks_where, bool_)
        indices, unrolled = (keys.tile, keys.lane), (keys.column_group, keys.neighbour)
        tile = self.printer.axis_name(keys.tile)
        arguments = f"const {self.printer.language.index_type} {tile}, auto ready"
        head = f"const auto elements = [&]({arguments}) INLINED {{"
        with self.block(head, (), "};"):
            if masked:
                with self.block(f"if ({' || '.join(masked)}) {{", indices, "}", unrolled):
                    self._print_tile_elements({})
            head = "else {" if masked else "{"
            with self.block(head, indices, "}", unrolled):
                self._print_tile_elements(known)

    def _print_tile_elements(self, known: Known) -> None:
        """Print what a thread computes from its inner products of one tile of keys.

        In order: the maximum of each row so far and its shift, terms of sums of rows, and the left
        factors of outer products, such as ``exp(scores - shift)``. `known` replaces nodes by what
        they are in this tile: conditions by constants where no element is masked.
        """
        reductions = self.parts.reductions
        keys, row_half = reductions.keys, self.parts.registers.row_half
        elements = {
            4 * point[keys.column_group] + 2 * point[row_half] + point[keys.neighbour]: point
            for point in self.printer.points((keys.column_group, row_half, keys.neighbour))
        }
        for number, reduction in enumerate(reductions.inner):
            for element, point in elements.items():
                value = Value(f"inner{number}[{element}]", float32)
                self.printer.remember(reduction, point, (value,))
        self.line("ready();")
        factor, exponent = scaled(ix.replaced(reductions.exp_factor.exponent, known))
        shift = reductions.exp_factor.shift
        if reductions.exp_factor.row_max is not None:
            shift = self._print_shift(factor, exponent)
        # exp(factor * x - shift) is 2**(x * (factor * log2(e)) - shift * log2(e)): one fused
        # multiplication and addition an element, and the instruction for 2**x.
        power = exponent * (factor * log2(e)) + -(shift * log2(e))
        known = {reductions.exp_factor.exp: Node(Op.EXP2, (power,)), **known}
        self._print_terms(known, elements)

    def _print_terms(self, known: Known, elements: Mapping[int, Point]) -> None:
        """Print what a tile adds to sums of rows, and the left factors of its outer products.

        For each sum and row: ``row_sums0[0] = row_sums0[0] * factor[0] + <sum of the thread's
        elements of row 0>;``. For each outer product and element: ``parts0[5] = <left factor>;``,
        in float32. It is rounded to 16 bits when it is packed, so the CAST that rounds it in the
        graph is left out here.
        """
        reductions, row_half = self.parts.reductions, self.parts.registers.row_half
        for number, reduction in enumerate(reductions.of_rows):
            term = ix.replaced(reduction.src[0], known)
            for half, row in enumerate(self.printer.points((row_half,))):
                sum_so_far = f"row_sums{number}[{half}]"
                added = self._joined(ADD, term, row)
                if reductions.exp_factor.row_max is None:
                    self.line(f"{sum_so_far} += {added};")
                else:
                    self.line(f"{sum_so_far} = {sum_so_far} * factor[{half}] + {added};")
        for number, reduction in enumerate(reductions.outer):
            factors = uncast_factors(reduction.src[0])
            (left,) = (node for node in factors if row_half in free_axes(node))
            value = ix.replaced(before_rounding(left), known)
            for element, point in elements.items():
                text = self.printer.value_of_root(value, point).text
                self.line(f"parts{number}[{element}] = {text};")

    def _print_shift(self, factor: float, exponent: Node) -> Node:
        """Print the maximum of each row so far and the shift from this tile on; return a node that
        stands for the shift, such as the maximum itself in a softmax.

        The exponents are ``factor * exponent``. `factor` is positive, as 1 / 8 for heads of 64, so
        the maximum is of `exponent` alone, and one multiplication a row brings the factor back.
        ``factor[half]`` is what earlier sums are multiplied by. Printed for row 0:

            row_max[0] = max_f32(row_max[0], max_of_row(<maximum of the thread's exponents>));
            const auto max_53 = row_max[0] * 0.125f;

        The method is FlashAttention-2 (Dao, 2023), without most of its rescaling.
        """
        exp_factor, keys = self.parts.reductions.exp_factor, self.parts.reductions.keys
        row_max = exp_factor.row_max
        assert row_max is not None
        # What the maximum and the shift are up to this tile: running maxima along the tiles. Their
        # texts are kept below, so that these nodes are never printed as scans.
        so_far = Node(Op.LOOP_SCAN, (row_max, keys.tile), LoopReduce(MAX))
        shift = Node(Op.LOOP_SCAN, (exp_factor.shift, keys.tile), LoopReduce(MAX))
        wanted = ix.replaced(exp_factor.shift, {row_max: so_far})
        for half, row in enumerate(self.printer.points((self.parts.registers.row_half,))):
            of_row = self._joined(MAX, exponent, row)
            self.line(f"row_max[{half}] = max_f32(row_max[{half}], max_of_row({of_row}));")
            self.printer.remember(so_far, row, (self._scaled_maximum(half, factor),))
            moved = self._print_moved_shift(half, self.printer.value_of_root(wanted, row).text)
            self.printer.remember(shift, row, (moved,))
        return shift

    def _print_moved_shift(self, half: int, wanted: str) -> Value:
        """Print how the shift of a row goes to what is `wanted`, if that is further away than
        SHIFT_THRESHOLD, and by what sums so far are rescaled; return what is subtracted from now
        on. A row with nothing but -inf so far has no shift: 0 is subtracted."""
        shift, factor = f"shift[{half}]", f"factor[{half}]"
        is_none, stays = self.printer.fresh_name("none"), self.printer.fresh_name("stays")
        rise, fall = f"{wanted} - {shift}", f"{shift} - {wanted}"
        near = f"{rise} <= {SHIFT_THRESHOLD}f && {fall} <= {SHIFT_THRESHOLD}f"
        self.line(f"const bool {is_none} = row_max[{half}] == -inff();")
        self.line(f"const bool {stays} = {near} || {is_none};")
        self.line(f"{factor} = {stays} ? 1 : short_exp({shift} - {wanted});")
        self.line(f"{shift} = {stays} ? {shift} : {wanted};")
        return self.printer.declare(Value(f"({is_none} ? 0.0f : {shift})", float32), "shift")

    def _scaled_maximum(self, half: int, factor: float) -> Value:
        """The maximum of one of the two rows of a thread, of exponents with their factor."""
        text = f"row_max[{half}] * {self.printer.language.literal(const(factor, float32)).text}"
        return self.printer.declare(Value(text, float32), "max")

    def _joined(self, monoid: Monoid, term: Node, row: Point) -> str:
        """The expression that combines, in a balanced tree, `term` at all elements that a thread
        has of one row and tile: of 8 groups and two neighbours, 16 values."""
        keys = self.parts.reductions.keys
        values: list[Values] = [
            (self.printer.value_of_root(term, row | point),)
            for point in self.printer.points((keys.column_group, keys.neighbour))
        ]
        return self.printer.combiner.joined(monoid, values)[0].text

    # After the loop.

    def print_finish(self) -> None:
        """Print what follows the last tile, and keep the texts of all sums for the results.

        Sums are relative to the shift so far, which may differ from the final one by up to
        SHIFT_THRESHOLD: they are rescaled by ``exp(shift so far - final shift)``. Sums of rows are
        added up over the four threads of a row.
        """
        rows = list(self.printer.points((self.parts.registers.row_half,)))
        self._print_final_rescale(rows)
        self._print_sums_of_rows(rows)
        reductions = self.parts.reductions
        for array, nodes in (("row_sums", reductions.of_rows), ("totals", reductions.outer)):
            for number, reduction in enumerate(nodes):
                for element, point in enumerate(self.printer.points(free_axes(reduction))):
                    value = Value(f"{array}{number}[{element}]", float32)
                    self.printer.remember(reduction, point, (value,))

    def _print_final_rescale(self, rows: Sequence[Point]) -> None:
        """Print how sums are rescaled from the shift so far of each of the two rows to the final
        one; nothing if a kernel subtracts no maximum."""
        exp_factor = self.parts.reductions.exp_factor
        if exp_factor.row_max is None:
            return
        factor, _ = scaled(exp_factor.exponent)
        for half, row in enumerate(rows):
            maximum = self._scaled_maximum(half, factor)
            self.printer.remember(exp_factor.row_max, row, (maximum,))
            final = self.printer.value_of_root(exp_factor.shift, row).text
            self.line(f"factor[{half}] = short_exp(shift[{half}] - {final});")
        for number in range(len(self.parts.reductions.outer)):
            self.print_rescale(f"totals{number}")

    def _print_sums_of_rows(self, rows: Sequence[Point]) -> None:
        """Print how the threads of a row add up what each has of other sums of that."""
        has_maximum = self.parts.reductions.exp_factor.row_max is not None
        for number in range(len(self.parts.reductions.of_rows)):
            for half in range(len(rows)):
                name = f"row_sums{number}[{half}]"
                rescaled = f"{name} * factor[{half}]" if has_maximum else name
                self.line(f"{name} = sum_of_row({rescaled});")

    def print_rescale(self, totals: str) -> None:
        """Print how sums are multiplied by the factor of their row: of each four, two are of a
        row."""
        count = self.printer.atom.n // 2
        self.line(f"UNROLLED for (int i = 0; i < {count}; i++) {totals}[i] *= factor[i / 2 % 2];")
