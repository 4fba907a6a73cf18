"""The atoms of tiles of products: what the threads of a block multiply at once, a table.

A tile lies in lines of 128 bytes, along k or, where that is how its factor lies in memory,
transposed: along its rows or columns. The 16-byte chunks of a line are permuted by its number, so
that neither lines nor columns of chunks meet in one bank of shared memory. A tile that is longer
than a line consists of panels of such lines, one behind the other. Tensor cores and the copy
engine of a GPU (TMA) know this layout as the swizzle of 128 bytes.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil

from lamina.core.dtypes import DType, bfloat16, float16, float32
from lamina.core.shape import Shape

CHUNK_BYTES = 16  # which the hardware moves as one: the copy engine's offsets and strides
LINE_BYTES = 128  # of a tile: the width of a swizzle atom, and all banks of shared memory once
# Lines of all tiles of the multistage buffer, 192 KiB of the 227 KiB of a block of an H100; the
# other ones are for results on their way to memory. A block of a GPU with less has fewer stages.
BUFFER_LINES = 1536
# Shared memory that is left for barriers, and to align the buffers.
RESERVED_BYTES = 1 << 10
MAX_TILE_RESULTS = 128 * 256  # results of the largest tile
# Rows of the largest block of one product: a block of more has no threads that fill tiles, and its
# barriers would wait for these.
MAX_PRODUCT_ROWS = 128
# Rows of the smallest block of products back to back, two warpgroups with 64 rows each,
# which read one tile of keys. The largest has as many as registers allow: `BackToBack.max_rows`.
MIN_BACK_TO_BACK_ROWS = 128


@dataclass(frozen=True)
class Splits:
    """The extents of the sub-loops of the rows of a tile, or of its columns, outermost first.

    along_k     of a tile whose lines run along k
    transposed  of a tile whose lines run along its rows or columns
    """

    along_k: Shape
    transposed: Shape

    def of(self, is_transposed: bool) -> Shape:
        """The extents for a tile that is transposed or not."""
        return self.transposed if is_transposed else self.along_k


@dataclass(frozen=True)
class Atom:
    """What the threads of a block multiply at once: `m` rows by `n` columns over a line of k,
    64 rows by 128 threads, which hold the sums in float32.

    Rows and columns are each split into sub-loops, by whether the tile of the factor is transposed.
    All sub-loops, rows first, are numbered from 0.

    instruction     "mma" with tensor cores, "fma" without
    kind            of the factors: "bf16", "f16", "tf32" or "f32"
    dtype           of the factors
    stages          steps that the multistage buffer has tiles for, of both factors; a GPU with less
                    shared memory than an H100 has fewer
    rate            products that a block adds up in a time, of which the largest tile on tensor
                    cores adds up 1
    row_splits      sub-loops of rows; the product of their extents is `m`
    column_splits   sub-loops of columns; the product of their extents is `n`
    thread_loops    numbers of the sub-loops that number the threads, the fastest one last
    register_loops  numbers of the sub-loops that number the sums of a thread
    """

    instruction: str
    kind: str
    m: int
    n: int
    dtype: DType
    stages: int
    rate: float
    row_splits: Splits
    column_splits: Splits
    thread_loops: Shape
    register_loops: Shape

    @property
    def function(self) -> str:
        """What it multiplies, and how: ``mma_bf16``."""
        return f"{self.instruction}_{self.kind}"

    @property
    def name(self) -> str:
        """The name that `tensorize` takes, such as ``mma_bf16_128x256``."""
        return f"{self.function}_{self.m}x{self.n}"

    @property
    def fma_rate(self) -> float:
        """How near to the rate of fused multiply-adds its steps come."""
        return FMA_RATES.get(self.m * self.n // _fma_threads(self.m), 1.0)

    def side_by_side(self, *, are_shared: bool) -> int:
        """How many blocks of one product a multiprocessor runs side by side, at most, where blocks
        have whole tiles, or share them. One of fused multiply-adds waits at barriers for its tiles
        and stores, and others multiply meanwhile: as many as it has registers for, 4 of 64 x 128
        results, with 64 sums and two times 16 factors a thread. Of shared tiles a thread also loads
        two fourths of the sums of another block, so that there are 3. Of products that run by
        themselves a block has a role that fills: 1."""
        if self.instruction == "mma":
            return 1
        threads = _fma_threads(self.m)
        sums = self.m * self.n // threads
        factors = 2 * (FMA_ROWS + sums // FMA_ROWS)
        loaded_sums = sums // 2 if are_shared else 0
        registers = sums + factors + loaded_sums + OTHER_REGISTERS
        return max(REGISTERS // (threads * registers), 1)


# By rows and columns of a tile, the rate of its atom: a smaller tile reads more of memory for each
# multiplication. Estimates, which decide between atoms: a test predicts times of an H200 by them.
RATES = {(128, 256): 1.0, (128, 128): 0.9, (64, 128): 0.7, (128, 64): 0.6, (64, 64): 0.5}
# Tiles of float32 without tensor cores alone, of blocks side by side (`Atom.side_by_side`): one of
# 64 x 192 has all columns of (48, 99) by (99, 135).
WIDE_RATES = {(64, 192): 0.7, (64, 256): 0.7}
# How near to the rate of fused multiply-adds a step comes, beside what a block waits for, by the
# sums of a thread, which share loads of factors: 1 with more.
FMA_RATES = {32: 0.9, 64: 0.97}
# Tiles of products back to back alone. Their atom is chosen by rows and columns, so that the rate
# has no effect: any number will do.
ATTENTION_RATES = {(256, 64): 0.1}
# How much slower a step of float32 is without tensor cores than one of tf32 with them: about the
# quotient of the peaks of an H100, 495 and 67 TFLOP/s (NVIDIA's data sheet). All atoms without
# tensor cores share it, so it only weighs their steps against JOIN_COST, and is in `cost/`.
FMA_SLOWDOWN = 8
# Rows from one that a thread has to its next one, and columns, in tiles without tensor cores whose
# lines lie along k.
FMA_ROWS_APART, FMA_COLUMNS_APART = 8, 16
FMA_ROWS = 8  # of 64, that a thread has
# Registers of 32 bits of a multiprocessor, and those of a thread of fused multiply-adds beside its
# sums and two sets of factors: ptxas takes 79 to 112 in all for tiles of 64 x 64, 118 to 145 for
# those of 64 x 128 and 125 to 162 for those of 64 x 192. Where tiles are shared it takes 86 to 104,
# 121 to 155 and 168 to 215.
REGISTERS, OTHER_REGISTERS = 1 << 16, 32
FMA_CHUNK = 4  # neighbours that a thread has in a transposed tile
# k of a step that fused multiply-adds pass over where a row has none of them: of 48 k the second
# step of 32 takes half as long.
FMA_UNROLLED = 8


def multiplied_k(count: int) -> int:
    """How many k fused multiply-adds multiply of a row of `count`: 48 of 48, and 56 of 50. Lines
    are whole multiples of FMA_UNROLLED, so that only the last one of a row may have fewer."""
    return ceil(count / FMA_UNROLLED) * FMA_UNROLLED


def multiplied_results(extent: int, size: int, apart: int, *, is_transposed: bool) -> int:
    """How many of the rows of a thread, or of its columns, fused multiply-adds multiply, where
    there are `extent` of all in tiles of `size`: ptxas leaves out those whose results no store can
    need. Those of a thread are so many `apart`, and in a transposed tile chunks of four neighbours
    are: of 64 rows a thread has 8, 8 apart, of which 6 are below 48."""
    of_chunk = FMA_CHUNK if is_transposed else 1
    return ceil(min(extent, size) / (apart * of_chunk)) * of_chunk


def _tensor_core_atom(kind: str, dtype: DType, m: int, n: int, rate: float) -> Atom:
    """The atom of tensor cores with this tile. Each of four warps has 16 of 64 rows. Lane 4 * i + j
    of a warp has rows i and i + 8, and of every 8 columns the neighbours 2 * j and 2 * j + 1: the
    layout of results of `wgmma` (PTX ISA).

    Sub-loops by number: 0 warpgroups, 1 warps, 2 rows i and i + 8, 3 i; 4 groups of 8 columns, 5 j,
    6 neighbours.
    """
    rows, columns = (m // 64, 4, 2, 8), (n // 8, 4, 2)
    return Atom(
        "mma", kind, m, n, dtype, _stages(m, n), rate, Splits(rows, rows), Splits(columns, columns),
        thread_loops=(0, 1, 3, 5), register_loops=(4, 2, 6),
    )  # fmt: skip


def _fma_atom(m: int, n: int, rate: float) -> Atom:
    """The atom of float32 without tensor cores with this tile. A thread multiplies 8 of each 64
    rows by 1 of each 16 columns, and reads them in chunks of four rows, or four columns, of one k.

    In a transposed tile the four are neighbours: rows 0 to 3 and 32 to 35 of the first thread. In
    another one they are 8 lines apart, or 16 of columns: rows 0, 8, ..., 56. Threads first
    transpose squares of four such lines by four k.

    Sub-loops 0 to 4 are those of rows, 5 to 8 those of columns. Rows of a transposed tile are
    ``64 * l0 + 32 * l1 + 16 * l2 + 4 * l3 + l4``, where l0, l2 and l3 number threads.
    """
    rows = Splits(
        along_k=(m // 64, FMA_ROWS, 2, 4, 1), transposed=(m // 64, 2, 2, 4, 4)
    )
    columns = Splits(along_k=(n // FMA_COLUMNS_APART, 2, 8, 1), transposed=(n // 64, 2, 8, 4))
    return Atom(
        "fma", "f32", m, n, float32, _stages(m, n), rate / FMA_SLOWDOWN, rows, columns,
        thread_loops=(0, 2, 6, 3, 7), register_loops=(1, 4, 5, 8),
    )  # fmt: skip


def _fma_threads(m: int) -> int:
    """Threads of a block without tensor cores, 128 of each 64 rows."""
    return 2 * m


def _stages(m: int, n: int) -> int:
    """Steps of both tiles that the multistage buffer holds: 1536 // (128 + 256) = 4, as a tile of m
    rows has a line for each of them at a step."""
    return BUFFER_LINES // (m + n)


def _atoms() -> Iterator[Atom]:
    """All atoms: with tensor cores each tile for each kind of factors; without them each tile of
    one product, as products back to back need tensor cores."""
    for kind, dtype in (("bf16", bfloat16), ("f16", float16), ("tf32", float32)):
        for (m, n), rate in (RATES | ATTENTION_RATES).items():
            yield _tensor_core_atom(kind, dtype, m, n, rate)
    for (m, n), rate in (RATES | WIDE_RATES).items():
        yield _fma_atom(m, n, rate)


ATOMS = {atom.name: atom for atom in _atoms()}


def product_atoms(kind: str) -> list[Atom]:
    """The atoms of a kind of factors, such as "bf16", whose blocks can compute one product."""
    return [atom for atom in ATOMS.values() if atom.kind == kind and atom.m <= MAX_PRODUCT_ROWS]
