"""CUDA C++ of what fills the tiles of a step, as a tile program says: the copy engine, or threads.

The left tile of 128 rows and 64 steps in bfloat16, by the copy engine (TMA), which one thread asks:

    const i64 k = 64 * (step % 8);
    const i64 row = 128 * (8 * row_band + row_tile) + 0;
    expect_bytes(full + slot, 16384);
    copy_box(left + 16384 * slot, &left_map, full + slot, (int)(k), (int)(row));

The same of 4096 rows of 300 elements by 256 threads, in chunks of 16 bytes. Neighbouring threads
fill neighbouring chunks of a line, which lie in the order of the swizzle:

    const i32 first_k = 64 * (fill_step % 5);
    const i32 first_row = 128 * (8 * row_band + row_tile) + 0;
    UNROLLED for (int i = THREAD; i < 1024; i += 256) {
        const int line = i / 8, chunk = i % 8;
        union { u16 elements[8]; uint4 all; } filled;
        UNROLLED for (int at = 0; at < 8; at++) {
            const i32 row = first_row + line;
            const i32 k = min(first_k + 8 * chunk + at, (i32)299);
            const u16 load_1 = p0[300 * row + k];
            filled.elements[at] = first_k + 8 * chunk + at < 300 ? (u16)load_1 : 0;
        }
        *(uint4 *)(shared + 16384 + 16384 * fill_slot + ...) = filled.all;
    }

Of rows of 304 elements, all of whose chunks are such of an array, a thread copies one at once:

    const i32 k = min(first_k + 8 * chunk, (i32)296);
    const uint4 filled = first_k + 8 * chunk < 304 ? *(const uint4 *)&p0[304 * row + k] : ...;
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from lamina.graph import index as ix
from lamina.ir.kernel import points
from lamina.ir.node import Node
from lamina.ir.ops import Op
from lamina.loops.nest import TileFill
from lamina.runtime.buffer import TensorMap
from lamina.schedule.gpu.atoms import CHUNK_BYTES, LINE_BYTES
from lamina.schedule.gpu.products import is_transposed
from lamina.targets.cuda.multiplications import tile_bytes
from lamina.targets.cuda.printer import CudaPrinter
from lamina.targets.language import Point
from lamina.tiles.copies import EngineCopy
from lamina.tiles.decisions import ProductDecisions, element_axes, is_tile_transposed, row_axes
from lamina.tiles.program import Alloc, Fill

LINE_CHUNKS = LINE_BYTES // CHUNK_BYTES
# The types of elements in tiles, by their kind.
WORDS = {"bf16": "u16", "f16": "u16", "tf32": "u32", "f32": "f32"}


@dataclass(frozen=True)
class _Chunks:
    """The chunks of 16 bytes of a tile.

    lines: of the tile. in_line: chunks of a line. elements: of a chunk
    """

    lines: int
    in_line: int
    elements: int

    @staticmethod
    def of(alloc: Alloc) -> "_Chunks":
        """128 lines of 64 elements of 2 bytes are 8 chunks of 8 elements each."""
        lines, length = alloc.shape
        elements = CHUNK_BYTES // alloc.dtype.itemsize
        return _Chunks(lines, length // elements, elements)

    def place(self) -> str:
        """The text of where a chunk is in its tile, by its `line` and its number `chunk` in that.
        A line has panels of 8 chunks, in the order of the swizzle."""
        panel = ""
        if self.in_line > LINE_CHUNKS:
            panel = f" + chunk / {LINE_CHUNKS} * {self.lines * LINE_BYTES}"
        in_panel = f"(chunk % {LINE_CHUNKS} ^ line % {LINE_CHUNKS}) * {CHUNK_BYTES}"
        return f"{panel} + line * {LINE_BYTES} + {in_panel}"


@dataclass(frozen=True)
class _Element:
    """Texts of the row and of the index k of an element, from those with which its tile begins."""

    row: str
    k: str


@dataclass(frozen=True)
class _FilledTile:
    """A tile that threads fill.

    fill            its elements
    rows, inner     the axes of its rows, and of the elements of each along k
    row_end, k_end  the first row, and the first k, that there is not; 0 where no tile goes beyond
    is_transposed   whether its lines lie along rows
    chunks          that it has
    """

    fill: TileFill
    rows: Sequence[Node]
    inner: Sequence[Node]
    row_end: int
    k_end: int
    is_transposed: bool
    chunks: _Chunks

    @staticmethod
    def of(alloc: Alloc, tile: TileFill) -> "_FilledTile":
        """The tile of a buffer."""
        rows, inner, transposed = row_axes(tile), element_axes(tile), is_tile_transposed(tile)
        tile_rows, tile_k = reversed(alloc.shape) if transposed else alloc.shape
        row_end, k_end = _end_of(rows, tile_rows), _end_of(inner, tile_k)
        return _FilledTile(tile, rows, inner, row_end, k_end, transposed, _Chunks.of(alloc))

    def element_at(self, along: str) -> _Element:
        """The element at a place along the current line."""
        return _Element(along, "line") if self.is_transposed else _Element("line", along)


class TileFills:
    """Prints what fills the tiles of a step.

    offset_of  of each buffer in shared memory, in bytes
    maps       by name, what the copy engine reads
    """

    def __init__(self, printer: CudaPrinter, offset_of: Mapping[str, int]) -> None:
        self.printer = printer
        self.line, self.block = printer.line, printer.block
        self.offset_of = offset_of
        self.maps: dict[str, TensorMap] = {}

    @property
    def line_elements(self) -> int:
        """Elements in a line of a tile: 64 of bfloat16."""
        return LINE_BYTES // self.printer.atom.dtype.itemsize

    def print_step_indices(
        self, decisions: ProductDecisions, step: str, agents: Collection[str]
    ) -> None:
        """Print the first index along the inner axes of a step, such as ``const i64 k = 64 *
        (step % 8);``: threads have others of their own, and call it ``first_k``."""
        steps = decisions.steps
        first = f"{self.line_elements} * ({step} % {steps.lines_of_inner})"
        if "tma" in agents:
            self.printer.walk(steps.inner, first)
        if "threads" in agents:
            self.print_first(steps.inner, first)

    def print_first(self, axes: Sequence[Node], first: str) -> None:
        """Print the index along axes with which a tile begins, whose elements have their own."""
        self.line(f"const {self.printer.language.index_type} {self._first_name(axes)} = {first};")

    def _first_name(self, axes: Sequence[Node]) -> str:
        """``first_k0_k1``, of axes that are walked as one."""
        return f"first_{'_'.join(map(self.printer.axis_name, axes))}"

    def _first_row(self, tile: TileFill, corner: Point | None) -> str:
        """The index of the first row of a tile, at a `corner`, or at that of results."""
        return self.printer.index_text(tile.row_index, corner or self.printer.corner())

    # By the copy engine.

    def print_copy(
        self,
        fill: Fill,
        alloc: Alloc,
        tile: TileFill,
        copy: EngineCopy,
        slot: str,
        corner: Point | None = None,
    ) -> None:
        """Print what asks the copy engine for a tile: the bytes that will come, and a box for each
        panel of the tile, whose rows begin at a `corner`, or at that of results."""
        map_name, barrier = f"{fill.buffer}_map", f"{fill.barrier} + {slot}"
        self.maps[map_name] = copy.array
        self.printer.walk(row_axes(tile), self._first_row(tile, corner))
        self.printer.index_texts.update((axis, self.printer.axis_name(axis)) for axis in tile.axes)
        self.line(f"expect_bytes({barrier}, {tile_bytes(alloc)});")
        function = "copy_im2col" if copy.is_im2col else "copy_box"
        for panel in range(alloc.shape[1] // self._panel_elements(alloc)):
            to = self._panel_text(alloc, slot, panel)
            places = self._coordinates_text(copy, panel * self._panel_elements(alloc))
            self.line(f"{function}({to}, &{map_name}, {barrier}, {places});")

    @staticmethod
    def _panel_elements(alloc: Alloc) -> int:
        return LINE_BYTES // alloc.dtype.itemsize

    @staticmethod
    def _panel_text(alloc: Alloc, slot: str, panel: int) -> str:
        """The text of where a panel of a slot is: ``right + 32768 * slot + 8192``."""
        text = f"{alloc.name} + {tile_bytes(alloc)} * {slot}"
        lines, _ = alloc.shape
        return f"{text} + {panel * lines * LINE_BYTES}" if panel else text

    def _coordinates_text(self, copy: EngineCopy, along_line: int) -> str:
        """The coordinates from which the engine copies, so many elements further along lines."""
        texts = [self.printer.index_text(index, {}) for index in copy.coordinates]
        first, *others = (f"(int)({text})" for text in texts)
        if along_line:
            first += f" + {along_line}"
        return ", ".join((first, *others))

    # By threads.

    def print_by_threads(
        self, alloc: Alloc, tile: TileFill, slot: str, threads: int, corner: Point | None = None
    ) -> None:
        """Print how so many threads fill a tile, a chunk of 16 bytes at a time, whose elements
        they compute from loads. Its rows begin at a `corner`, or at that of results."""
        filled = _FilledTile.of(alloc, tile)
        chunks = filled.chunks
        self.print_first(filled.rows, self._first_row(tile, corner))
        count = chunks.lines * chunks.in_line
        head = f"UNROLLED for (int i = THREAD; i < {count}; i += {threads}) {{"
        with self.block(head, tile.axes):
            if _is_filled_across_lines(tile):
                self.line(f"const int line = i % {chunks.lines}, chunk = i / {chunks.lines};")
            else:
                self.line(f"const int line = i / {chunks.in_line}, chunk = i % {chunks.in_line};")
            if self.printer.atom.kind != "tf32" and _has_whole_chunks(tile, chunks.elements):
                chunk = self._print_copied_chunk(filled)
            else:
                chunk = self._print_computed_chunk(filled)
            to = f"{self.offset_of[alloc.name]} + {tile_bytes(alloc)} * {slot}{chunks.place()}"
            self.line(f"*(uint4 *)(shared + {to}) = {chunk};")

    def _print_copied_chunk(self, tile: _FilledTile) -> str:
        """Print how a thread copies a chunk at once; the result is its text."""
        elements, load = tile.chunks.elements, tile.fill.value
        first = tile.element_at(f"{elements} * chunk")
        row_step, k_step = (elements, 1) if tile.is_transposed else (1, elements)
        self._walk_within(tile.rows, first.row, tile.row_end, row_step)
        self._walk_within(tile.inner, first.k, tile.k_end, k_step)
        index = self.printer.index_text(load.src[0], {})
        text = f"*(const uint4 *)&p{load.arg.parameter}[{index}]"
        if tile.k_end:
            is_inside = f"{self._first_name(tile.inner)} + {first.k} < {tile.k_end}"
            text = f"{is_inside} ? {text} : make_uint4(0, 0, 0, 0)"
        self.line(f"const uint4 filled = {text};")
        return "filled"

    def _print_computed_chunk(self, tile: _FilledTile) -> str:
        """Print how a thread computes the elements of a chunk; the result is the text of that."""
        word, elements = WORDS[self.printer.atom.kind], tile.chunks.elements
        self.line(f"union {{ {word} elements[{elements}]; uint4 all; }} filled;")
        head = f"UNROLLED for (int at = 0; at < {elements}; at++) {{"
        with self.block(head, tile.fill.axes):
            self._print_element(tile, tile.element_at(f"{elements} * chunk + at"))
        return "filled.all"

    def _print_element(self, tile: _FilledTile, element: _Element) -> None:
        """Print one element of a chunk. Beyond the last row that of the last row is read, and
        beyond the last k there are zeros."""
        self._walk_within(tile.rows, element.row, tile.row_end)
        self._walk_within(tile.inner, element.k, tile.k_end)
        value = self.printer.value_of_root(tile.fill.value, {})
        kind = self.printer.atom.kind
        text = f"({WORDS[kind]}){value.text}"
        if kind == "tf32":
            text = f"rounded_to_tf32({value.text})"
        if tile.k_end:
            is_inside = f"{self._first_name(tile.inner)} + {element.k} < {tile.k_end}"
            text = f"{is_inside} ? {text} : 0"
        self.line(f"filled.elements[at] = {text};")

    def _walk_within(self, axes: Sequence[Node], place: str, end: int, step: int = 1) -> None:
        """Print the indices along axes at a place of a tile, or, from the `end` on, if there is
        one, at the last place before it, of those that are a `step` apart."""
        index_type = self.printer.language.index_type
        index = f"{self._first_name(axes)} + {place}"
        within = f"min({index}, ({index_type}){end - step})" if end else index
        self.printer.walk(axes, within, index_type)


def _end_of(axes: Sequence[Node], tile_size: int) -> int:
    """The row or the k from which on there are no elements; 0 where no tile goes beyond, so that no
    element needs a test: a k of 300 does not fill tiles of 64, 4096 rows fill those of 128."""
    extent = points(axes)
    return extent if extent % tile_size else 0


def _has_whole_chunks(tile: TileFill, elements: int) -> bool:
    """Are all chunks, of so many elements, such of an array? Its elements lie side by side along
    lines, a whole number of chunks, and at whole chunks along all other axes."""
    load = tile.value
    if load.op is not Op.LOAD or len(load.src) > 1:
        return False
    axes = row_axes(tile) if is_tile_transposed(tile) else element_axes(tile)
    terms, constant = ix.terms_of(load.src[0])
    is_side_by_side = terms.pop(axes[-1], 0) == 1 and axes[-1].arg.size % elements == 0
    are_apart = all(apart % elements == 0 for apart in (constant, *terms.values()))
    return is_side_by_side and are_apart and all(term.op is Op.AXIS for term in terms)


def _is_filled_across_lines(tile: TileFill) -> bool:
    """Do neighbouring threads fill chunks of neighbouring lines, and not of one line? They do where
    rows are neighbours in memory though lines of the tile are along k."""
    if is_tile_transposed(tile):
        return False
    return is_transposed(tile.value, row_axes(tile), element_axes(tile))
