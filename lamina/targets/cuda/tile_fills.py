"""CUDA C++ of what fills the tiles of a step, as a tile program says: the copy engine, or threads.

The left tile of 128 rows and 64 steps in bfloat16, by the copy engine (TMA), which one thread asks:

    const i64 k = 64 * (step % 8);
    const i64 row = 128 * (8 * row_band + row_tile) + 0;
    expect_bytes(full + slot, 16384);
    copy_box(left + 16384 * slot, &left_map, full + slot, (int)(k), (int)(row));

The same of 4096 rows of 300 elements by 256 threads, in chunks of 16 bytes. Neighbouring threads
fill neighbouring chunks of a line, which lie in the order of the swizzle:

    const i64 first_k = 64 * (fill_step % 5);
    const i64 first_row = 128 * (8 * row_band + row_tile) + 0;
    UNROLLED for (int i = THREAD; i < 1024; i += 256) {
        const int line = i / 8, chunk = i % 8;
        union { u16 elements[8]; uint4 all; } filled;
        UNROLLED for (int at = 0; at < 8; at++) {
            const i64 row = first_row + line;
            const i64 k = min(first_k + 8 * chunk + at, (i64)299);
            const u16 load_1 = p0[300 * row + k];
            filled.elements[at] = first_k + 8 * chunk + at < 300 ? (u16)load_1 : 0;
        }
        *(uint4 *)(shared + 16384 + 16384 * fill_slot + ...) = filled.all;
    }
"""

from collections.abc import Sequence

from lamina.core.target import Target
from lamina.ir.kernel import Store
from lamina.ir.node import Node
from lamina.loops.nest import Nest
from lamina.schedule.gpu.atoms import CHUNK_BYTES, LINE_BYTES
from lamina.targets.cuda.tiles import (
    FILL_ACROSS_LINES,
    FILL_TRANSPOSED,
    TilePrinter,
    end_of,
    fill_order,
)
from lamina.tiles.copies import EngineCopy
from lamina.tiles.decisions import ProductDecisions
from lamina.tiles.program import Alloc, Fill

LINE_CHUNKS = LINE_BYTES // CHUNK_BYTES


class TileFillPrinter(TilePrinter):
    """One kernel; prints what fills the tiles of a step."""

    def __init__(self, nest: Nest, name: str, target: Target) -> None:
        super().__init__(nest, name, target)
        self.offset_of: dict[str, int] = {}  # in shared memory, of what lies there

    def print_step_indices(self, decisions: ProductDecisions, step: str, agents: set[str]) -> None:
        """Print the first index along the inner axes of a step, such as ``const i64 k = 64 *
        (step % 8);``: threads have others of their own, and call it ``first_k``."""
        steps, width = decisions.steps, LINE_BYTES // self.atom.dtype.itemsize
        first = f"{width} * ({step} % {steps.lines_of_inner})"
        if "tma" in agents:
            self._walk(steps.inner, first)
        if "threads" in agents:
            self.line(f"const {self.index} first_{self._name_of(steps.inner)} = {first};")

    def _name_of(self, axes: Sequence[Node]) -> str:
        """The variable that walks axes as one: ``k0_k1``."""
        return "_".join(map(self.axis_name, axes))

    def print_copy(
        self, fill: Fill, alloc: Alloc, tile: Store, copy: EngineCopy, slot: str
    ) -> None:
        """Print what asks the copy engine for a tile: the bytes that will come, and a box for each
        panel of the tile."""
        rows = [axis for axis in tile.axes if not axis.arg.reduce]
        name = f"{fill.buffer}_map"
        self.maps[name] = copy.array
        self._walk(rows, self.index_text(tile.index, self.corner()))
        self.text_of.update((axis, self.axis_name(axis)) for axis in tile.axes)
        first, *others = (f"(int)({self.index_text(index, {})})" for index in copy.coordinates)
        lines, length = alloc.shape
        nbytes = tile_bytes(alloc)
        barrier = f"{fill.barrier} + {slot}"
        self.line(f"expect_bytes({barrier}, {nbytes});")
        function = "copy_im2col" if copy.is_im2col else "copy_box"
        panel_elements = LINE_BYTES // alloc.dtype.itemsize
        for panel in range(length // panel_elements):
            to = f"{alloc.name} + {nbytes} * {slot}"
            along = first
            if panel:
                to += f" + {panel * lines * LINE_BYTES}"
                along += f" + {panel * panel_elements}"
            places = ", ".join((along, *others))
            self.line(f"{function}({to}, &{name}, {barrier}, {places});")

    def print_fill_by_threads(self, alloc: Alloc, tile: Store, slot: str) -> None:
        """Print how threads fill a tile, a chunk of 16 bytes at a time, whose elements they compute
        from loads."""
        order = fill_order(tile)
        lines, length = alloc.shape
        lanes = CHUNK_BYTES // alloc.dtype.itemsize
        chunks = length // lanes
        rows = [axis for axis in tile.axes if not axis.arg.reduce]
        first_row = self.index_text(tile.index, self.corner())
        self.line(f"const {self.index} first_{self._name_of(rows)} = {first_row};")
        kind = "u16" if alloc.dtype.itemsize == 2 else "u32"
        every = f"int i = THREAD; i < {lines * chunks}; i += {self.threads}"
        with self._function(f"UNROLLED for ({every}) {{", (), "}"):
            line, chunk = f"i / {chunks}", f"i % {chunks}"
            if order == FILL_ACROSS_LINES:
                line, chunk = f"i % {lines}", f"i / {lines}"
            self.line(f"const int line = {line}, chunk = {chunk};")
            self.line(f"union {{ {kind} elements[{lanes}]; uint4 all; }} filled;")
            head = f"UNROLLED for (int at = 0; at < {lanes}; at++) {{"
            with self._function(head, tile.axes, "}"):
                along = f"{lanes} * chunk + at"
                is_across = order == FILL_TRANSPOSED
                self._print_element(tile, *((along, "line") if is_across else ("line", along)))
            place = f"{self.offset_of[alloc.name]} + {tile_bytes(alloc)} * {slot}"
            if chunks > LINE_CHUNKS:
                place += f" + chunk / {LINE_CHUNKS} * {lines * LINE_BYTES}"
            in_line = f"(chunk % {LINE_CHUNKS} ^ line % {LINE_CHUNKS}) * {CHUNK_BYTES}"
            place += f" + line * {LINE_BYTES} + {in_line}"
            self.line(f"*(uint4 *)(shared + {place}) = filled.all;")

    def _print_element(self, tile: Store, row: str, step: str) -> None:
        """Print one element of a chunk, by its row and its step in the tile. Beyond the last row
        that of the last row is read, and beyond the last step there are zeros."""
        rows = [axis for axis in tile.axes if not axis.arg.reduce]
        steps = [axis for axis in tile.axes if axis.arg.reduce]
        tile_rows = self.atom.m if tile is self.nest.tiles[0] else self.atom.n
        step_end = end_of(steps, LINE_BYTES // self.atom.dtype.itemsize)
        for axes, part, end in ((rows, row, end_of(rows, tile_rows)), (steps, step, step_end)):
            name = self._name_of(axes)
            index = f"first_{name} + {part}"
            bounded = f"min({index}, ({self.index}){end - 1})" if end else index
            self._walk(axes, bounded)
        value = self.value_of_root(tile.value, {})
        text = f"(u16){value.text}"
        if self.atom.kind == "tf32":
            text = f"rounded_to_tf32({value.text})"
        if step_end:
            text = f"first_{self._name_of(steps)} + {step} < {step_end} ? {text} : 0"
        self.line(f"filled.elements[at] = {text};")


def tile_bytes(alloc: Alloc) -> int:
    """Bytes of one stage: 16,384 of 128 rows of 64 elements of bfloat16."""
    lines, length = alloc.shape
    return lines * length * alloc.dtype.itemsize
