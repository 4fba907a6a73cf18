"""How blocks of a GPU divide the tiles of a product among them, and about how long that takes."""

from dataclasses import dataclass

from lamina.schedule.gpu.atoms import Atom, product_atoms

# How long it takes to write, or to read, the partial sums of a tile: as long as so many of its
# steps at full rate. An estimate: the mean of 5 to write and 3 to read, by which `products.cu`
# shortens parts (`share_tiles` of tensor cores). No measurement of these is kept.
PARTIAL_SUMS_STEPS = 4
# How long it takes to wait for another block and to find its sums, in the unit of `StreamK.time`:
# as long as 4 steps of a tile of 128 rows and 256 columns. An estimate as well. It keeps products
# of few steps whole: 60 such tiles are divided among 120 blocks from 16 steps on, not from 8.
JOIN_COST = 1 << 17


@dataclass(frozen=True, order=True)
class StreamK:
    """How blocks divide the steps of tiles among them.

    time    of the block that ends last: an estimate, in results of a tile times steps, which is a
            line of products each, as the largest tile on tensor cores computes them
    steps   of a block
    blocks  each has tiles as a whole or, where there are fewer tiles than multiprocessors, a part
            of the steps of one
    """

    time: float
    steps: int
    blocks: int


def stream_k(atom: Atom, tiles: int, steps: int, multiprocessors: int) -> StreamK:
    """The fastest division of `tiles`, each of so many `steps`, of three: whole tiles for each
    block, and, where there are fewer tiles than multiprocessors, equal parts of each tile, or equal
    shares of all steps. 18 tiles of 256 steps on 132 multiprocessors are taken by 18 blocks of 256,
    by 126 blocks, 7 a tile, of 37 steps, or by 132 blocks of 35."""
    results = atom.m * atom.n
    tiles_each = -(-tiles // multiprocessors)
    steps_each = tiles_each * steps
    divisions = [StreamK(steps_each * results / atom.rate, steps_each, -(-tiles // tiles_each))]
    if tiles < multiprocessors:
        blocks_of_equal_parts = multiprocessors // tiles * tiles
        for blocks in {blocks_of_equal_parts, multiprocessors}:
            steps_each = -(-tiles * steps // blocks)
            partial_sums = _partial_sums(tiles, steps, blocks, steps_each)
            time = steps_each * results / atom.rate
            time += JOIN_COST + PARTIAL_SUMS_STEPS * results * partial_sums
            divisions.append(StreamK(time, steps_each, blocks))
    return min(divisions)


def _partial_sums(tiles: int, steps: int, blocks: int, steps_each: int) -> int:
    """The tiles of partial sums that are written or read one after the other, at most, by the block
    that ends last. With as many blocks for each tile, its first block reads those of all others.

    With equal shares (`StreamK` of `products.cu`), a tile has `whole_parts` blocks of its own, and
    the other blocks divide the rests of all tiles among them, one after the other. Such a block
    writes the sums of as many rests as fit into a share; then a first block reads those of the
    parts, and of one rest, which two blocks may have: 18 tiles of 256 steps and 132 blocks of 35
    have 7 parts a tile and rests of 11 steps, so that these are 7 + 2 + 3 tiles of sums.
    """
    if blocks % tiles == 0:
        return blocks // tiles - 1
    whole_parts, rest = divmod(steps, steps_each)
    parts_of_rests = steps_each // max(rest, 1)
    return whole_parts + 2 + parts_of_rests


@dataclass(frozen=True, order=True)
class AtomTime:
    """About how long a product takes in tiles of an atom (see `StreamK`), and how many tiles."""

    time: float
    tiles: int
    atom: str


def times_of(
    kind: str, rows: int, columns: int, others: int, steps: int, multiprocessors: int
) -> list[AtomTime]:
    """For each atom of a kind, the fastest first, the time of `others` products of so many rows
    and columns, each of so many steps. A step is LINE_BYTES of a row of a factor: 64 elements of 16
    bits, 32 of float32."""
    times = []
    for atom in product_atoms(kind):
        tiles = -(-rows // atom.m) * -(-columns // atom.n) * others
        division = stream_k(atom, tiles, steps, multiprocessors)
        times.append(AtomTime(division.time, tiles, atom.name))
    return sorted(times)
