"""CUDA C++ of tiles: what all kernels with products share."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from lamina.core.target import Target
from lamina.ir.kernel import Store, free_axes, points
from lamina.ir.node import Node
from lamina.ir.ops import Op
from lamina.loops.nest import Nest
from lamina.schedule.gpu.atoms import ATOMS, Atom
from lamina.targets.c.operations import ELEMENTS, CLanguage
from lamina.targets.cuda.results import RowLines, RowStore
from lamina.targets.gpu import FEW, GpuPrinter
from lamina.targets.language import Point, Value
from lamina.targets.parts import Fixed, NestPart, Unrolled
from lamina.targets.scopes import Scope
from lamina.tiles.decisions import ResultSide, RowLayout, name_of_lines


class TilePrinter(GpuPrinter):
    """One kernel, if it has products in tiles; a subclass prints what these add up to."""

    def __init__(self, nest: Nest, name: str, target: Target, language: CLanguage) -> None:
        super().__init__(nest, name, target, language)
        # The number of the sum with which what `results` collects begins: 16 in the second slice.
        self.first_result = 0
        self.row_stores: dict[Store, RowStore] = {}
        self.offset_of: dict[str, int] = {}  # in shared memory, of what lies there

    @property
    def atom(self) -> Atom:
        """The atom of the kernel's products."""
        return ATOMS[self.nest.atom]

    @property
    def registers(self) -> list[Node]:
        """The unrolled sub-loops, which number the sums of a thread."""
        return [axis for axis in self.nest.order if self.nest.bound(axis) == "unroll"]

    def corner(self, *more: Node) -> Point:
        """The point at which rows and columns of a block begin: sub-loops of tiles, and `more`
        axes, at 0."""
        return dict.fromkeys((*self.rows_inside, *self.registers, *more), 0)

    def print_early_loads(self, reduction: Node) -> None:
        """Print, before the steps, the loads of the epilogue that are worth registers meanwhile.

        These are values of 16 bits that do not depend on the row of a thread, such as a bias of the
        columns in bfloat16: a thread has two rows, and reads one value for both. Their latency
        passes while products run. A residual, a value for each result, takes as many registers as
        the sums themselves, and is read in the epilogue.
        """
        row_half = self.registers[1]  # by the order of `Atom.register_loops`
        shared = free_axes(reduction) - {row_half}
        for node in self.nest.kernel.nodes:
            if node.op is Op.LOAD and node.dtype.itemsize == 2 and free_axes(node) <= shared:
                self.value(node, dict.fromkeys(self.registers, 0))

    def _walk(self, axes: Sequence[Node], start: str = "", kind: str = "i64") -> str:
        """Print the index that walks `axes` as one, if it has a `start`, and the index of each
        axis. The result is the name of the former.

        For k0 of 3 and k1 of 5, from "64" on: ``const i64 k0_k1 = 64;``, then k1 as ``k0_k1 % 5``
        and k0 as ``(k0_k1 / 5) % 3``. One axis has its name alone: ``const i64 k = 64;``. kind: the
        type of the former index.
        """
        name = "_".join(map(self.axis_name, axes))
        if start:
            self.line(f"const {kind} {name} = {start};")
        if len(axes) > 1:
            self.scopes[-1].lines += self.indices(axes, name)
        return name

    @contextmanager
    def block(
        self,
        head: str,
        axes: Sequence[Node] = (),
        tail: str = "}",
        unrolled: Sequence[Node] = (),
    ) -> Iterator[None]:
        """Print a block, such as a loop or a function, around what the body of the ``with`` prints:
        `head`, these lines, which are indented, and `tail`. In it `axes` have the names of their
        indices, and `unrolled` axes are printed once for each index. What it computes is not known
        after it.
        """
        self.scopes.append(Scope())
        text_outside, depth_outside = dict(self.text_of), dict(self.depth_of)
        parts: NestPart = {axis: Fixed(self.axis_name(axis)) for axis in axes}
        parts |= {axis: Unrolled(0, axis.arg.size) for axis in unrolled}
        with self.opened_in_order(parts, (*axes, *unrolled)):
            yield
        self.text_of, self.depth_of = text_outside, depth_outside
        lines = self.scopes.pop().lines
        self.scopes[-1].lines += [head, *("    " + text for text in lines), tail]

    # Results.

    def row_lines(self, layouts: Mapping[Store, RowLayout]) -> dict[Store, RowLines]:
        """The lines of stores by whole rows, where `offset_of` says that they lie."""
        lines_of: dict[Store, RowLines] = {}
        for store, layout in layouts.items():
            number = self.nest.kernel.stores.index(store)
            offset = self.offset_of[name_of_lines(self.nest.kernel, store)]
            dtype = store.value.dtype
            lines_of[store] = RowLines(number, offset, dtype, layout.chunk_bytes, layout.pitch)
        return lines_of

    def print_row_functions(self, lines_of: Mapping[Store, RowLines]) -> None:
        """Print the functions that write results by whole rows."""
        for lines in lines_of.values():
            self.scopes[-1].lines += lines.function()

    def begin_row_stores(
        self, lines_of: Mapping[Store, RowLines], rows: ResultSide, columns: ResultSide
    ) -> None:
        """From here on, the values of stores by whole rows fill their lines."""
        corner = self.corner()
        rows_left, columns_left = (
            f"{side.extent} - ({self.index_text(side.index, corner)})" for side in (rows, columns)
        )
        for store, lines in lines_of.items():
            self.results[store] = []
            place = f"p{store.parameter} + {self.index_text(store.index, corner)}"
            self.row_stores[store] = RowStore(lines, place, rows_left, columns_left)

    def store(self, store: Store, value: Value, point: Point) -> None:
        """Print a store of one element, or, for a store by whole rows, collect its value: each FEW
        of them are put into its lines, and full lines are written."""
        ready = self.results.get(store)
        if ready is None:
            super().store(store, value, point)
            return
        ready.append(f"({ELEMENTS[value.dtype]}){value.text}")
        if len(ready) % FEW:
            return
        by_rows = self.row_stores[store]
        first = self.first_result + len(ready) - FEW
        has_matrices = "tma" in self.target.engines
        self.scopes[-1].lines += by_rows.lines.fill(first, ready[-FEW:], has_matrices)
        sums = by_rows.lines.sums
        if (first + FEW) % sums == 0:
            self.line(by_rows.write(first + FEW - sums))


def end_of(axes: Sequence[Node], tile_size: int) -> int:
    """The row or the k from which on there are no elements; 0 where no tile goes beyond, so that no
    element needs a test: a k of 300 does not fill tiles of 64, 4096 rows fill those of 128."""
    extent = points(axes)
    return extent if extent % tile_size else 0


def call(name: str, *arguments: object) -> str:
    """The text of a call of a function: "max_of_row(x);" of "max_of_row" and "x"."""
    return f"{name}({', '.join(map(str, arguments))});"
