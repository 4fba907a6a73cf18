"""Register tiles of products: how large they are, and which reductions have one."""

from dataclasses import dataclass
from math import ceil

from lamina.core.dtypes import float32, float64
from lamina.ir.node import Node
from lamina.schedule.cpu.planner import CpuPlanner
from lamina.schedule.cpu.reductions import sums_long_bytes


@dataclass(frozen=True)
class TileSize:
    """Rows of a register tile, and vectors of each row: 14 x 2 sums in 28 registers."""

    rows: int
    vectors: int

    def mean_sums(self, rows: int) -> float:
        """The vectors of sums in a tile, on average over those that all `rows` take: of 28 rows,
        14 x 2 sums have 28 in each of 2 tiles, and 6 x 4 have 22.4, as the fifth tile has 4 rows.
        """
        tiles = ceil(rows / self.rows)
        return rows / tiles * self.vectors


# The largest register tile, by bytes of a vector. Of 32 registers of 64 bytes, 14 x 2 sums leave
# two for the vectors of a step and two for scalars that are broadcast; of 16 registers of 32 bytes,
# 6 x 2 sums leave as many.
REGISTER_TILES = {64: TileSize(14, 2), 32: TileSize(6, 2)}

# The same for a packed panel that consists of whole tiles. At each step 6 x 4 sums read 4 vectors
# and 6 scalars for 24 multiply-adds, and 14 x 2 sums 2 vectors and 14 scalars for 28. Scalars of
# only 6 rows, which may lie far apart, leave the panel more places in the cache. Where rows share
# lines, a product has the tiles that have more sums on average (`TileSize.mean_sums`): images of
# (8, 64, 56, 56), convolved to 128 channels by windows of (3, 3) that move by 2, took one core of
# a Zen 4 11.9 ms with tiles of 6 of their 28 rows, and 10.0 with tiles of 14.
PANEL_TILES = {64: TileSize(6, 4)}

# The same for a computed panel, whose number of columns is chosen to suit a tile. 8 x 3 sums read 3
# vectors and 8 scalars for 24 multiply-adds; 32 rows are 4 tiles of 8, with no rows left over.
COMPUTED_TILES = {64: (TileSize(6, 4), TileSize(8, 3))}

# Rows and vectors of the sums of a tile by instructions on tiles of bytes, each of which adds to 16
# rows of a vector. Arithmetic on the sums is printed once for each row of each vector, so that
# there are few of them.
BYTE_TILES = TileSize(16, 2)

# Cycles in which the second-level cache gives a vector of 64 bytes. An estimate: the 48 bytes a
# cycle that are often measured are 1.33 cycles, taken as 1.5. No measurement of others is kept.
VECTOR_CYCLES = 1.5

# The fewest words of four bytes in a vector: one instruction multiplies all bytes of 4 words, as
# many products as 16 lanes of float32 have.
MIN_WORDS = 4


def fills_tile(plan: CpuPlanner, reduction: Node, vector: Node) -> bool:
    """Does `reduction` suit a register tile with vectors along `vector`? Its sums have to be floats
    of 32 or 64 bits, or sums of words of bytes, and `vector` has to fill at least half a vector of
    them: 8 of 16 lanes, as 13 elements do with two vectors of 8 lanes that overlap."""
    sums_words = sums_long_bytes(plan.kernel, reduction)
    has_sums = reduction.dtype in (float32, float64) or sums_words
    lanes = plan.target.vector_bytes // reduction.dtype.itemsize
    min_size = MIN_WORDS if sums_words else lanes // 2
    has_tile = plan.target.vector_bytes in REGISTER_TILES
    return has_sums and has_tile and vector.arg.size >= min_size


def cycles_of(tile: TileSize, rows: int) -> float:
    """The cycles in which the tiles of all `rows` use one vector of a panel, at one step. Two
    multiply-adds take a cycle. Each tile reads the vector again: VECTOR_CYCLES at least.
    32 rows are 5 tiles of 6 rows and one of 2, which take 5 * 3 + 1.5 cycles, or 4 tiles of 8 rows,
    which take 4 * 4."""
    tiles = ceil(rows / tile.rows)
    height = ceil(rows / tiles)
    whole, left = divmod(rows, height)
    last = max(left / 2, VECTOR_CYCLES) if left else 0.0
    return whole * max(height / 2, VECTOR_CYCLES) + last
