"""Where the elements of a tile lie in shared memory, and what an access to it costs.

A tile of I rows by J elements consists of panels, one behind the other; a panel has a line of 128
bytes of each row. A swizzle permutes the 16-byte chunks of the lines of a panel. Shared memory has
32 banks of 4 bytes: the words of one bank that several threads ask for at once come one after the
other.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lamina.core.dtypes import DType
from lamina.core.recent import memoized
from lamina.schedule.gpu.atoms import CHUNK_BYTES, LINE_BYTES

Places = NDArray[np.int64]

BANKS = LINE_BYTES // CHUNK_BYTES  # of whole chunks, which eight threads access at once


@dataclass(frozen=True)
class Swizzle:
    """`bits` bits of an address, from bit `base` on, change by as many bits, `shift` bits above.

    ``Swizzle(3, 4, 3)`` is the swizzle of 128 bytes that tensor cores and the copy engine know: the
    number of a chunk in its line, bits 4 to 6, is changed by the number of the line, bits 7 to 9.
    """

    bits: int
    base: int
    shift: int

    def apply(self, places: Places) -> Places:
        """The addresses that these addresses become, in bytes."""
        mask = ((1 << self.bits) - 1) << self.base
        return places ^ (places >> self.shift & mask)


LINEAR = Swizzle(0, 0, 0)
SWIZZLE_128 = Swizzle(3, 4, 3)
# Of results of 4 bytes in lines: the pairs that threads store at once have 8 bytes of each of four
# rows, so that chunks 0 and 1 of rows 0 to 3 are all banks.
SWIZZLE_PAIRS = Swizzle(2, 5, 2)


def layout_of_lines(dtype: DType) -> Swizzle:
    """How lines of results lie, on their way from the registers of tensor cores to memory."""
    return SWIZZLE_128 if dtype.itemsize == 2 else SWIZZLE_PAIRS


def places_of(swizzle: Swizzle, shape: tuple[int, int], itemsize: int) -> Places:
    """The first byte of each element of a tile, an array of its shape.

    Element (row 1, element 8) of 128 rows of 64 elements of 2 bytes is the chunk 1 of line 1, at
    byte 144. The swizzle of 128 bytes moves it to chunk 0 of that line, byte 128."""
    rows, length = shape
    row, byte = np.indices((rows, length)) * np.array([1, itemsize]).reshape(2, 1, 1)
    panel, within = byte // LINE_BYTES, byte % LINE_BYTES
    places: Places = (panel * rows + row) * LINE_BYTES + within
    return swizzle.apply(places)


@memoized(1024)
def elements_of(swizzle: Swizzle, shape: tuple[int, int], itemsize: int) -> Places:
    """The number of each element of a tile in its memory, counted in elements; do not write."""
    return places_of(swizzle, shape, itemsize) // itemsize


SQUARE = 4  # elements of 4 bytes in a chunk, and lines, which are transposed together


@memoized(1024)
def squares_of(swizzle: Swizzle, shape: tuple[int, int], apart: int) -> Places:
    """The numbers, in their memory, of the elements of each square of a tile of float32: an array
    (squares, lines, elements). The lines of a square are `apart` lines apart. In a tile of 128
    lines of 32 elements, with 8, square 9 has the second chunks of lines 1, 9, 17 and 25."""
    return _split(swizzle, shape, apart).transpose(0, 2, 3, 1, 4).reshape(-1, SQUARE, SQUARE)


@memoized(1024)
def elements_across(swizzle: Swizzle, shape: tuple[int, int], apart: int) -> Places:
    """As `elements_of`, of a tile of float32 whose squares have been transposed."""
    return _split(swizzle, shape, apart).swapaxes(1, 4).reshape(shape)


def _split(swizzle: Swizzle, shape: tuple[int, int], apart: int) -> Places:
    """The numbers of elements by band of lines, line of a square, square, chunk, element."""
    lines, length = shape
    elements = elements_of(swizzle, shape, CHUNK_BYTES // SQUARE)
    bands = lines // (SQUARE * apart)
    return elements.reshape(bands, SQUARE, apart, length // SQUARE, SQUARE)


@memoized(1024)
def conflicts_of_columns(swizzle: Swizzle, shape: tuple[int, int], itemsize: int) -> int:
    """How many accesses more than without bank conflicts it takes to read a tile column of chunks
    by column of chunks, eight rows at once: as tensor cores read it, and as threads that fill
    neighbouring lines write it.

    Without a swizzle the eight chunks of such a column are in one bank: 8 accesses in place of 1,
    which are 7 more.
    """
    chunk_elements = CHUNK_BYTES // itemsize
    chunks = places_of(swizzle, shape, itemsize)[:, ::chunk_elements] // CHUNK_BYTES
    banks = chunks.reshape(-1, BANKS, chunks.shape[1]) % BANKS
    uses = (banks[..., None] == np.arange(BANKS)).sum(axis=1)  # of each bank, by all eight
    return int((uses.max(axis=-1) - 1).sum())


@memoized(1024)
def conflicts_of_pairs(swizzle: Swizzle, shape: tuple[int, int], itemsize: int) -> int:
    """The same, where the threads of a warp write two neighbours each, four threads a row: so sums
    lie in registers.

    In float32, 16 threads write 8 bytes of four rows at once. Without a swizzle, these are the same
    8 banks in each row: 4 accesses in place of 1.
    """
    pair_bytes = 2 * itemsize
    threads = LINE_BYTES // pair_bytes  # at once
    pairs = places_of(swizzle, shape, itemsize)[:, ::2] // pair_bytes
    rows, columns = threads // 4, 4  # of pairs
    together = pairs.reshape(-1, rows, pairs.shape[1] // columns, columns)
    banks = together % threads
    uses = (banks[..., None] == np.arange(threads)).sum(axis=(1, 3))
    return int((uses.max(axis=-1) - 1).sum())
