"""CUDA C++ of results that are stored by whole rows.

A row has a line of 128 bytes in shared memory. Its 16-byte chunks are permuted by the number of the
row, so that neither threads that write two neighbours nor threads that read a chunk meet in one
bank. A warp fills its lines, of 16 rows, with the results of its sums, 8 of a thread at a time;
then it writes these lines to memory, in chunks of as many bytes as all rows are aligned to, and
goes on with the next 128 bytes of each row. Of bfloat16, in chunks of 16 bytes:

    u8 *const lines0 = shared + 0 + THREAD / 32 * 2048;
    const auto write_rows0 = [&](u16 *to, i64 rows_left, i64 columns_left, int first) INLINED {
        WARP_BARRIER;
        ...
        UNROLLED for (int i = 0; i < 4; i++)
            if (... < rows && first + ... < columns) store_chunk(start + ..., chunks[i]);
        WARP_BARRIER;
    };
    ...
    store_matrices(lines0 + ..., cast_1, ..., cast_8);
    ...
    write_rows0(p2 + ..., 4096 - ..., 4096 - ..., 64);
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from lamina.core.dtypes import DType
from lamina.schedule.gpu.atoms import LINE_BYTES
from lamina.targets.c.operations import ELEMENTS
from lamina.targets.gpu_printer import BATCH_RESULTS
from lamina.tiles.layouts import layout_of_lines

# The types of so many bytes, which a thread stores at once.
CHUNKS = {2: "u16", 4: "u32", 8: "u64", 16: "uint4"}
WARP, WARP_ROWS = 32, 16
LOADS = 4  # chunks of a thread that are read before they are written
# Rows and columns that are left fit into an int: no tile has more of them.
MAX_LEFT = 1024


@dataclass(frozen=True)
class RowLines:
    """The lines of one store.

    number       of the store
    offset       in bytes of its lines, in the shared memory of a block
    dtype        of the results
    chunk_bytes  that a thread writes at once
    pitch        elements from row to row
    """

    number: int
    offset: int
    dtype: DType
    chunk_bytes: int
    pitch: int

    @property
    def width(self) -> int:
        """Results of a line: 64 of bfloat16."""
        return LINE_BYTES // self.dtype.itemsize

    @property
    def sums(self) -> int:
        """Sums of a thread whose results fill the lines of its warp."""
        return self.width // 2

    def place(self, row: str, byte: str) -> str:
        """The text of where a byte of a row is, from the lines of a warp on."""
        layout = layout_of_lines(self.dtype)
        return f"({row}) * {LINE_BYTES} + ({byte} ^ ({row}) % {1 << layout.bits} << {layout.base})"

    def fill(self, first: int, values: Sequence[str], has_matrices: bool) -> Iterator[str]:
        """Lines that fill lines with the results of the sums from number `first` on: 8, whose
        texts are `values`. has_matrices: whether one instruction stores four matrices of 8 rows by
        16 bytes from the registers of a warp (stmatrix)."""
        # Four sums of a thread are of 8 columns.
        first_byte = first // 4 * 8 % self.width * self.dtype.itemsize
        if has_matrices and self.dtype.itemsize == 2:
            yield self._fill_by_matrices(first_byte, values)
        else:
            yield from self._fill_by_pairs(first_byte, values)

    def _fill_by_matrices(self, first_byte: int, values: Sequence[str]) -> str:
        """Each thread says where a row of 16 bytes of one of the matrices goes."""
        byte = f"{first_byte} + THREAD % {WARP} / 16 * 16"
        place = self.place(f"THREAD % {WARP_ROWS}", byte)
        return f"store_matrices(lines{self.number} + {place}, {', '.join(values)});"

    def _fill_by_pairs(self, first_byte: int, values: Sequence[str]) -> Iterator[str]:
        """Values 0 and 1 of a thread are neighbours in its row, 2 and 3 lie 8 rows below these, and
        4 to 7 are the same of the next 8 columns."""
        size = self.dtype.itemsize
        for i in range(0, BATCH_RESULTS, 2):
            row = f"{i // 2 % 2 * 8} + THREAD % {WARP} / 4"
            byte = f"{first_byte + i // 4 * 8 * size} + THREAD % 4 * {2 * size}"
            place = self.place(row, byte)
            pair = f"{{{values[i]}, {values[i + 1]}}}"
            yield f"*(Pair<{self._element}> *)(lines{self.number} + {place}) = {pair};"

    def function(self) -> list[str]:
        """The lines of a warp, and a function that writes them: to the results of a block, which
        has so many rows and columns left, from its column `first` on."""
        warp_bytes = WARP_ROWS * LINE_BYTES
        arguments = f"{self._element} *to, i64 rows_left, i64 columns_left, int first"
        place = f"shared + {self.offset} + THREAD / {WARP} * {warp_bytes}"
        return [
            f"u8 *const lines{self.number} = {place};",
            f"const auto write_rows{self.number} = [&]({arguments}) INLINED {{",
            "    WARP_BARRIER;",
            *(f"    {line}" for line in self._first_chunk()),
            *(f"    {line}" for line in self._copy_loop()),
            "    WARP_BARRIER;",
            "};",
        ]

    @property
    def _element(self) -> str:
        return ELEMENTS[self.dtype]

    @property
    def _row_chunks(self) -> int:
        """Chunks of a line, which neighbouring threads write: 8 of 16 bytes."""
        return LINE_BYTES // self.chunk_bytes

    @property
    def _chunk_elements(self) -> int:
        return self.chunk_bytes // self.dtype.itemsize

    def _first_chunk(self) -> Iterator[str]:
        """The row and the column of a thread's first chunk in the lines of its warp, how many rows
        and columns there are from there on, and where it goes."""
        row = f"THREAD % {WARP} / {self._row_chunks}"
        column = f"THREAD % {min(self._row_chunks, WARP)} * {self._chunk_elements}"
        warp_row = f"THREAD / {WARP} * {WARP_ROWS}"
        start = f"to + (i64)({warp_row} + row) * {self.pitch} + column"
        yield f"const int row = {row}, column = {column};"
        yield f"const int rows = min(rows_left, (i64){MAX_LEFT}) - {warp_row} - row;"
        yield f"const int columns = min(columns_left, (i64){MAX_LEFT}) - column;"
        yield f"{self._element} *const start = {start};"

    def _copy_loop(self) -> Iterator[str]:
        """A loop over the chunks of a thread, LOADS of which are read before they are written. The
        chunk ``some + 32 * i`` lies so many rows and columns behind the thread's first one."""
        count, chunk = f"(some + {WARP} * i)", CHUNKS[self.chunk_bytes]
        row = f"{count} / {self._row_chunks}"
        column = f"{count} % {self._row_chunks} * {self._chunk_elements}"
        place = self.place(f"row + {row}", f"(column + {column}) * {self.dtype.itemsize}")
        within = f"{row} < rows && first + {column} < columns"
        to = f"start + (i64)({row}) * {self.pitch} + first + {column}"
        end, stride = WARP_ROWS * self._row_chunks, WARP * LOADS
        yield f"UNROLLED for (int some = 0; some < {end}; some += {stride}) {{"
        yield f"    {chunk} chunks[{LOADS}];"
        yield f"    UNROLLED for (int i = 0; i < {LOADS}; i++)"
        yield f"        chunks[i] = *(const {chunk} *)(lines{self.number} + {place});"
        yield f"    UNROLLED for (int i = 0; i < {LOADS}; i++)"
        yield f"        if ({within}) store_chunk({to}, chunks[i]);"
        yield "}"


@dataclass
class RowStore:
    """A store by whole rows, whose values come in the order of the sums of a thread.

    lines         that values are put into
    place         where the results of the block begin
    rows_left     rows that there are from there on, and `columns_left` columns
    has_matrices  see `RowLines.fill`
    first         the number of the first sum whose value is not in the lines: 16 where the second
                  slice of 16 begins
    waiting       values from that on, fewer than BATCH_RESULTS
    """

    lines: RowLines
    place: str
    rows_left: str
    columns_left: str
    has_matrices: bool
    first: int
    waiting: list[str] = field(default_factory=list)

    def put(self, value: str) -> list[str]:
        """The text for the next value, if there is any: each BATCH_RESULTS values are put into the
        lines, which are written to memory when they are full."""
        self.waiting.append(value)
        if len(self.waiting) < BATCH_RESULTS:
            return []
        printed = [*self.lines.fill(self.first, self.waiting, self.has_matrices)]
        self.first += BATCH_RESULTS
        self.waiting = []
        if self.first % self.lines.sums == 0:
            printed.append(self._write(self.first - self.lines.sums))
        return printed

    def _write(self, first: int) -> str:
        """The line that writes lines filled with the sums from number `first` on."""
        arguments = ", ".join((self.place, self.rows_left, self.columns_left, str(2 * first)))
        return f"write_rows{self.lines.number}({arguments});"
