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


# The largest register tile, by bytes of a vector. Of 32 registers of 64 bytes 14 x 2 sums leave two
# for the row of vectors and two for scalars that are broadcast; of 16 of 32 bytes 6 x 2 sums do.
REGISTER_TILES = {64: TileSize(14, 2), 32: TileSize(6, 2)}

# The same for a packed panel of whole tiles: 6 x 4 sums read 4 vectors and 6 scalars for 24
# multiply-adds of vectors, 14 x 2 sums 2 and 14 for 28. In 6 rows, cache lines that are far apart
# leave places for those of the panel.
PANEL_TILES = {64: TileSize(6, 4)}

# The same for a panel that has as many columns as suit its tile. 8 x 3 sums read 3 vectors and 8
# scalars for 24 multiply-adds, and leave none of 32 rows over.
COMPUTED_TILES = {64: (TileSize(6, 4), TileSize(8, 3))}

# Rows and vectors of sums that instructions on tiles of bytes add to. Each vector is a tile of 16
# rows. Of what follows, each row of each vector is a text of its own, so that they are few.
BYTE_TILES = TileSize(16, 2)

# Cycles in which the second-level cache gives a vector of 64 bytes. An estimate: the 48 bytes a
# cycle that are often measured are 1.33 cycles, taken as 1.5. No measurement of others is kept.
VECTOR_CYCLES = 1.5

# Words of bytes in a vector, at least: an instruction that multiplies the four bytes of each does
# as much for 4 words as 16 lanes of float32.
MIN_WORDS = 4


def fills_tile(plan: CpuPlanner, reduction: Node, vector: Node) -> bool:
    """Does `vector` fill half a vector of sums, as 13 elements do that are two vectors of 8 lanes,
    and is there a register tile for these: of floats of 32 or 64 bits, or of words of bytes?"""
    sums_words = sums_long_bytes(plan.kernel, reduction)
    has_sums = reduction.dtype in (float32, float64) or sums_words
    lanes = plan.target.vector_bytes // reduction.dtype.itemsize
    min_size = MIN_WORDS if sums_words else lanes // 2
    has_tile = plan.target.vector_bytes in REGISTER_TILES
    return has_sums and has_tile and vector.arg.size >= min_size


def cycles_of(tile: TileSize, rows: int) -> float:
    """The cycles that tiles of all `rows` take for one vector of a panel, at one step. A cycle has
    two multiply-adds, and each tile reads the vector anew. 32 rows are 5 tiles of 6 and one of 2,
    which take 5 * 3 + 1.5, or 4 tiles of 8, which take 4 * 4."""
    tiles = ceil(rows / tile.rows)
    height = ceil(rows / tiles)
    whole, left = divmod(rows, height)
    last = max(left / 2, VECTOR_CYCLES) if left else 0.0
    return whole * max(height / 2, VECTOR_CYCLES) + last
