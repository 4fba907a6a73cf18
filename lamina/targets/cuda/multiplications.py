"""CUDA C++ of the products of one step, as `mma` of a tile program says, for each unit.

A step is a line of 128 bytes of each row and column. Tensor cores multiply 32 bytes of each line at
once. Those that run by themselves (wgmma) read both tiles from shared memory:

    const u32 rows = (left + 16384 * slot) / 16, columns = (right + 32768 * slot) / 16;
    wgmma_fence();
    wgmma_bf16<0, 1>(sums, descriptor(rows + 0), descriptor(columns + 0), step > 0);
    ...                                                     three more, then they run on
    wgmma_commit();

Others (mma.sync) multiply 16 rows by 8 columns of what a warp has in registers:

    UNROLLED for (int part = 0; part < 4; part++) {
        u32 x[4];
        load_matrices(x, rows + ...);                       16 rows
        UNROLLED for (int j = 0; j < 32; j += 2) {
            u32 y[4];
            load_matrices_transposed(y, columns + ...);     16 columns
            mma_bf16(sums + 4 * j, x, y[0], y[1]);
            mma_bf16(sums + 4 * j + 4, x, y[2], y[3]);
        }
    }

Fused multiply-adds have 8 rows and, of 256 columns, 16 of each thread, in chunks of four. The next
factors are loaded while these are multiplied. The last line of a row may have fewer than 4 `eight`:

    f32 x[2][8], y[2][16];
    load_factors(0, 0, 0);
    NOT_UNROLLED for (int eight = 0; eight < 4; eight++) {
        UNROLLED for (int k = 0; k < 8; k++) {
            const int now = k % 2;
            load_factors(1 - now, k == 7 ? (eight + 1) % 4 : eight, (k + 1) % 8);
            ...                                             sums[...] += x[now][i] * y[now][j];
        }
    }
"""

from collections.abc import Iterator
from dataclasses import dataclass

from lamina.schedule.gpu.atoms import (
    CHUNK_BYTES,
    FMA_COLUMNS_APART,
    FMA_ROWS_APART,
    FMA_UNROLLED,
    LINE_BYTES,
)
from lamina.tiles.layouts import SQUARE
from lamina.tiles.program import WARPGROUP_ROWS, Alloc

SUBSTEPS = 4  # products of a step: a line of 128 bytes is four times 32
SUBSTEP_BYTES = LINE_BYTES // SUBSTEPS
GROUP_BYTES = WARPGROUP_ROWS * LINE_BYTES  # of a tile, from one group's rows to the next one's
FMA_ROWS = 64 // FMA_ROWS_APART  # of a thread
LINE_CHUNKS = LINE_BYTES // CHUNK_BYTES
EIGHTS = LINE_BYTES // 4 // FMA_UNROLLED  # of the 32 float32 of a line
# Bytes from a chunk of four rows of a thread to its next one: 32 lines, or a panel of 32 rows.
NEXT_ROWS, NEXT_COLUMNS = 4 * FMA_ROWS_APART * LINE_BYTES, 4 * FMA_COLUMNS_APART * LINE_BYTES


@dataclass(frozen=True)
class Multiplication:
    """The products of a step, and what the text of them has.

    kind: of the factors, such as "bf16"
    unit: of UNITS
    left, right: the buffers
    sums: their name, and `count` how many of them a thread has
    first_step: the text of the first step of a block's part of a tile
    eights: the text of how many times eight k of a step fused multiply-adds multiply
    """

    kind: str
    unit: str
    left: Alloc
    right: Alloc
    sums: str
    count: int
    first_step: str
    eights: str = str(EIGHTS)

    def lines(self) -> Iterator[str]:
        """The lines that multiply the tiles in the slots of number ``slot``."""
        if self.unit == "fma":
            yield from self._fused()
        elif self.unit == "mma":
            yield from self._in_registers()
        else:
            yield from self._by_themselves()

    def _addresses(self) -> tuple[str, str]:
        """The texts of where the group's rows of the left tile begin, and the right tile."""
        left = f"{self.left.name} + {tile_bytes(self.left)} * slot"
        if tile_bytes(self.left) > GROUP_BYTES:
            left += f" + {GROUP_BYTES} * group"
        return left, f"{self.right.name} + {tile_bytes(self.right)} * slot"

    # Tensor cores that run by themselves.

    def _by_themselves(self) -> Iterator[str]:
        """A product of 32 bytes of each line. The first one of a block's part of a tile replaces
        the sums, all others add to them."""
        left, right = self._addresses()
        columns = f"({right}) / {CHUNK_BYTES}"
        if self._is_left_in_registers:
            yield f"const u32 rows = {left}, columns = {columns};"
            yield f"u32 factors[{SUBSTEPS}][4];"
            for substep in range(SUBSTEPS):
                yield f"load_transposed(factors[{substep}], rows, {substep});"
        else:
            yield f"const u32 rows = ({left}) / {CHUNK_BYTES}, columns = {columns};"
        yield "wgmma_fence();"
        for substep in range(SUBSTEPS):
            yield self._wgmma(substep)
        yield "wgmma_commit();"
        yield "held++;"

    @property
    def _is_left_in_registers(self) -> bool:
        return self.unit == "wgmma_left_in_registers"

    def _wgmma(self, substep: int) -> str:
        """The line with one instruction."""
        left = f"descriptor(rows + {substep * _substep_chunks(self.left)})"
        if self._is_left_in_registers:
            left = f"factors[{substep}]"
        right = f"descriptor(columns + {substep * _substep_chunks(self.right)})"
        sides = f"<{is_transposed(self.left):d}, {is_transposed(self.right):d}>"
        if self.kind == "tf32":  # tensor cores read it along k alone
            sides = ""
        adds = "true" if substep else f"step > {self.first_step}"
        return f"wgmma_{self.kind}{sides}({self.sums}, {left}, {right}, {adds});"

    # Tensor cores that multiply what is in registers.

    def _in_registers(self) -> Iterator[str]:
        rows, columns = self._addresses()
        yield f"const u32 rows = {rows}, columns = {columns};"
        yield from lines_in_registers(
            self.kind, self.left, self.right, "k", self.sums, self.count
        )

    # Fused multiply-adds.

    def _fused(self) -> Iterator[str]:
        """Products of what a thread has in registers, with the loads of the next step before them.
        These are volatile, and the launch bounds promise one block per multiprocessor. Without
        both, ptxas sinks each load to just before its use, which exposes its latency."""
        rows, columns = self._addresses()
        row_place = _place_of_thread(self.left, "row_block", FMA_ROWS_APART)
        column_place = _place_of_thread(self.right, "column_block", FMA_COLUMNS_APART)
        count = self.count // FMA_ROWS
        yield "const int row_block = THREAD / 64 % 2 * 4 + THREAD / 8 % 4;"
        yield "const int column_block = THREAD / 32 % 2 * 8 + THREAD % 8;"
        yield f"const u32 rows = {rows} + {row_place};"
        yield f"const u32 columns = {columns} + {column_place};"
        yield f"f32 x[2][{FMA_ROWS}], y[2][{count}];"
        yield "const auto load_factors = [&](int to, int eight, int k) INLINED {"
        yield f"    const u32 row = {_place_of_k(self.left, 'rows', FMA_ROWS_APART)};"
        yield f"    const u32 column = {_place_of_k(self.right, 'columns', FMA_COLUMNS_APART)};"
        yield f"    UNROLLED for (int i = 0; i < {FMA_ROWS // SQUARE}; i++)"
        yield f"        load_chunk(x[to] + {SQUARE} * i, row + {NEXT_ROWS} * i);"
        yield f"    UNROLLED for (int i = 0; i < {count // SQUARE}; i++)"
        yield f"        load_chunk(y[to] + {SQUARE} * i, column + {NEXT_COLUMNS} * i);"
        yield "};"
        yield "load_factors(0, 0, 0);"
        yield f"NOT_UNROLLED for (int eight = 0; eight < {self.eights}; eight++) {{"
        yield f"    UNROLLED for (int k = 0; k < {FMA_UNROLLED}; k++) {{"
        yield "        const int now = k % 2;"
        next_eight = f"k == {FMA_UNROLLED - 1} ? (eight + 1) % {EIGHTS} : eight"
        yield f"        load_factors(1 - now, {next_eight}, (k + 1) % {FMA_UNROLLED});"
        yield f"        UNROLLED for (int j = 0; j < {count}; j++)"
        yield f"            UNROLLED for (int at = 0; at < {FMA_ROWS}; at++) {{"
        back = f"{FMA_ROWS - 1} - at"
        yield f"                const int i = j % 2 ? {back} : at;  // one of two factors stays"
        yield f"                {self.sums}[{count} * i + j] += x[now][i] * y[now][j];"
        yield "            }"
        yield "    }"
        yield "}"


def lines_in_registers(
    kind: str, left: Alloc, right: Alloc, k: str, sums: str, count: int
) -> Iterator[str]:
    """The lines with which a warp multiplies 16 rows of a left tile, at ``rows``, or in registers,
    by the columns of a right one, at ``columns``, along the axis `k`. Of a thread, the `count` sums
    of 16 rows and 8 columns are four neighbours."""
    (k_size,) = (axis.size for axis in right.axes if axis.name == k)
    substeps = k_size * right.dtype.itemsize // SUBSTEP_BYTES
    yield "const int line = THREAD % 8, low = THREAD / 8 % 2, high = THREAD / 16 % 2;"
    yield f"UNROLLED for (int part = 0; part < {substeps}; part++) {{"
    if left.memory == "registers":
        factors = ", ".join(f"{left.name}[4 * part + {number}]" for number in range(4))
        yield f"    const u32 x[4] = {{{factors}}};"
    else:
        yield "    u32 x[4];"
        if kind == "tf32" and lies_across(left, k):
            yield "    load_transposed(x, rows, part);"
        else:
            yield f"    {_load_of_matrices(left, k, 'x', 'rows', 'low', 'high')}"
    yield f"    UNROLLED for (int j = 0; j < {count // 4}; j += 2) {{"
    yield "        u32 y[4];"
    yield f"        {_load_of_matrices(right, k, 'y', 'columns', 'high', 'low')}"
    yield f"        mma_{kind}({sums} + 4 * j, x, y[0], y[1]);"
    yield f"        mma_{kind}({sums} + 4 * j + 4, x, y[2], y[3]);"
    yield "    }"
    yield "}"


def _load_of_matrices(
    alloc: Alloc, k: str, to: str, tile: str, row_half: str, k_half: str
) -> str:
    """The line with which a warp loads four matrices of 8 x 8 elements of 16 bits: of two groups of
    eight rows, or columns, and of two chunks of a line along k. Lane i has the address of line i %
    8 of one of them, whose halves are named here: where the row halves are ``low``, the first two
    matrices are of neighbouring rows. Elements of tf32 count as two."""
    row_eight = f"THREAD / 32 % 4 * 2 + {row_half}" if to == "x" else f"j + {row_half}"
    panel = tile_panel_bytes(alloc)
    if lies_across(alloc, k):
        start = f"j / {LINE_CHUNKS} * {panel} + " if to == "y" else ""
        in_panel = f"j % {LINE_CHUNKS} + {row_half}" if to == "y" else row_eight
        k_eight = f"2 * part + {k_half}"
        place = f"{start}({k_eight}) * {8 * LINE_BYTES} + line * {LINE_BYTES}"
        return f"load_matrices_transposed({to}, {tile} + {place} + ({in_panel} ^ line) * 16);"
    start, part = "", "part"
    if tile_bytes(alloc) > panel:  # lines are longer than a panel
        start, part = f"part / {SUBSTEPS} * {panel} + ", f"(part % {SUBSTEPS})"
    place = f"{start}({row_eight}) * {8 * LINE_BYTES} + line * {LINE_BYTES}"
    return f"load_matrices({to}, {tile} + {place} + (2 * {part} + {k_half} ^ line) * 16);"


def _place_of_thread(alloc: Alloc, block: str, apart: int) -> str:
    """The text of where a thread begins to read, from a tile, or the group's rows of it, on. The
    chunk is changed by the number of its line, which is that of k in a transposed tile."""
    if not is_transposed(alloc):
        return f"{block} * {LINE_BYTES} + {block} % {LINE_CHUNKS} * {CHUNK_BYTES}"
    panel = f"{block} / {LINE_CHUNKS} * {tile_panel_bytes(alloc)} + " if apart > LINE_CHUNKS else ""
    return f"{panel}{block} % {LINE_CHUNKS} * {CHUNK_BYTES}"


def _place_of_k(alloc: Alloc, start: str, apart: int) -> str:
    """The text of where a thread's rows, or columns, at k of the `eight`th eight are. In a tile
    along k, chunk k / 4 of a square's line k % 4 has them once the square is transposed."""
    if is_transposed(alloc):
        return f"({start} + eight * {8 * LINE_BYTES} ^ k * {CHUNK_BYTES}) + k * {LINE_BYTES}"
    chunk = f"{start} ^ eight * {2 * CHUNK_BYTES} ^ k / {SQUARE} * {CHUNK_BYTES}"
    return f"({chunk}) + k % {SQUARE} * {apart * LINE_BYTES}"


def transpose_lines(alloc: Alloc, apart: int, offset: int, threads: int) -> list[str]:
    """The lines with which so many threads transpose the squares of a tile in the current slot,
    whose buffer is at `offset` in shared memory."""
    squares = tile_bytes(alloc) // (SQUARE * CHUNK_BYTES)
    line = f"i / 8 / {apart} * {SQUARE * apart} + i / 8 % {apart}"
    next_line = apart * LINE_BYTES // CHUNK_BYTES
    tile = f"shared + {offset} + {tile_bytes(alloc)} * slot"
    return [
        f"UNROLLED for (int i = THREAD; i < {squares}; i += {threads}) {{",
        f"    const int line = {line}, chunk = i % 8 ^ line % 8;",
        f"    float4 *const at = (float4 *)({tile} + line * {LINE_BYTES}) + chunk;",
        f"    const float4 a = at[0], b = at[{next_line}];",
        f"    const float4 c = at[{2 * next_line}], d = at[{3 * next_line}];",
        "    at[0] = make_float4(a.x, b.x, c.x, d.x);",
        f"    at[{next_line}] = make_float4(a.y, b.y, c.y, d.y);",
        f"    at[{2 * next_line}] = make_float4(a.z, b.z, c.z, d.z);",
        f"    at[{3 * next_line}] = make_float4(a.w, b.w, c.w, d.w);",
        "}",
    ]


def tile_bytes(alloc: Alloc) -> int:
    """Bytes of one stage: 16,384 of 128 rows of 64 elements of bfloat16."""
    lines, length = alloc.shape
    return lines * length * alloc.dtype.itemsize


def tile_panel_bytes(alloc: Alloc) -> int:
    """Bytes of a panel, which has 128 bytes of each line: 8192 of 64 lines."""
    return alloc.shape[0] * LINE_BYTES


def lies_across(alloc: Alloc, k: str) -> bool:
    """Do the lines of a tile have its rows or columns, and not its `k`?"""
    return alloc.axes[0].name == k


def is_transposed(alloc: Alloc) -> bool:
    """The same of a factor of one product, whose axis is k."""
    return lies_across(alloc, "k")


def _substep_chunks(alloc: Alloc) -> int:
    """Chunks of 16 bytes from the 32 bytes of lines that are multiplied to the next ones: 2. In a
    transposed tile these are 16 lines of 8 chunks."""
    return 128 if is_transposed(alloc) else 2
