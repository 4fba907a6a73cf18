"""How blocks of a GPU share the steps of all tiles of a product (stream-K), and about how long that
takes.
"""

from dataclasses import dataclass
from math import ceil, isqrt

from lamina.loops.nest import Pipelining
from lamina.schedule.gpu.atoms import WIDE_RATES, Atom, product_atoms

# The time to write, or to read, the partial sums of a tile, in steps of that tile at full rate. An
# estimate: the mean of 5 to write and 3 to read, by which parts are shortened
# (`lamina/tiles/orders.py`). No measurement of these is kept.
PARTIAL_SUMS_STEPS = 4
# How long it takes to wait for another block and to find its sums, in the unit of `StreamK.time`:
# as long as 4 steps of a tile of 128 rows and 256 columns. An estimate as well. It keeps products
# of few steps whole: 60 such tiles are divided among 120 blocks from 16 steps on, not from 8.
JOIN_COST = 1 << 17
# Seconds that a block of fused multiply-adds waits at each step, at barriers and for what it
# transposes, and beside that for each tile, for its first step and its stores, and for the partial
# sums of each other block that it adds to its own. Fitted to 103 times of an H200, of one block and
# of blocks side by side: 61 of whole tiles of all atoms, of 11 products of 16 to 512 k, and 42 of
# tiles that blocks share, of 7 products of 1024 to 7723 k, with 1 to 43 partial sums.
STEP_WAIT, TILE_WAIT, SUMS_WAIT = 6.5e-7, 1.2e-6, 6.5e-7
# How many times as long as fewer blocks all multiprocessors are to take before fewer are chosen: a
# margin, as both costs above are estimates, and threads that fill tiles are left out.
FEWER_BLOCKS = 4 / 3
# How many times as long whole tiles are to take before the last ones of many, fewer than there are
# multiprocessors, are shared: a margin, as the costs of sharing are estimates, and results
# of shared tiles are stored without the steps of a next tile beside them.
SHARED_END = 9 / 8


@dataclass(frozen=True)
class Products:
    """Products of one size, such as those of a batch, by what tiles count of them.

    rows, columns: of each product
    steps: of each, which pass by in tiles; a step is LINE_BYTES of a row of a factor, 64 elements
        of 16 bits or 32 of float32
    count: how many products these are
    """

    rows: int
    columns: int
    steps: int
    count: int

    def tiles(self, atom: Atom) -> int:
        """How many tiles of the atom have all results: of one product of 300 rows and 512 columns
        3 x 2 tiles of 128 x 256."""
        return ceil(self.rows / atom.m) * ceil(self.columns / atom.n) * self.count


@dataclass(frozen=True, order=True)
class StreamK:
    """How blocks divide the steps of tiles among them. The fastest division comes first in order.

    time    of the block that ends last: an estimate, in results of a tile times steps, which is a
            line of products each, as the largest tile on tensor cores computes them
    steps   of a block, at most
    blocks  each has tiles as a whole, a part of the steps of one, or first the one and then the
            other
    partial_sums    written or read one after the other before the last block has its results
    """

    time: float
    steps: int
    blocks: int
    partial_sums: int = 0

    def is_whole(self, steps: int) -> bool:
        """Has each block whole tiles alone, of so many steps each?"""
        return self.steps % steps == 0


def stream_k(atom: Atom, tiles: int, steps: int, multiprocessors: int) -> StreamK:
    """The fastest of `divisions`."""
    return divisions(atom, tiles, steps, multiprocessors)[0]


def division_of(
    pipelining: Pipelining, atom: Atom, tiles: int, steps: int, multiprocessors: int
) -> StreamK:
    """The division that a schedule says, or else the fastest one."""
    if pipelining.blocks is None:
        return stream_k(atom, tiles, steps, multiprocessors)
    if pipelining.order == "stream_k":
        return _shared(atom, tiles, steps, pipelining.blocks)
    return _in_whole_tiles(atom, tiles, steps, pipelining.blocks)


def divisions(atom: Atom, tiles: int, steps: int, multiprocessors: int) -> list[StreamK]:
    """The divisions of `tiles`, each of so many `steps`, the fastest first, of three: whole tiles
    for each block, and, where there are fewer tiles than multiprocessors, equal parts of each tile,
    or equal shares of all steps, one step or more each. 18 tiles of 256 steps on 132
    multiprocessors are taken by 18 blocks of 256, by 126 blocks, 7 a tile, of 37 steps, or by 132
    blocks of 35.

    Of more tiles, the last ones may be shared: 284 tiles of 27 steps are taken by 95 blocks of 81,
    or, in tiles without tensor cores, by 132 blocks of up to 59, which have two tiles each, and up
    to 132 blocks share the last 20.

    Where the sums of so many blocks take longer than their steps there is a fourth one, of fewer
    parts: one tile of 512 steps at the rate 1 is taken by 11 blocks of 47."""
    tiles_each = ceil(tiles / multiprocessors)
    whole_tiles = _in_whole_tiles(atom, tiles, steps, ceil(tiles / tiles_each))
    if tiles >= multiprocessors:
        return _divisions_of_many(atom, tiles, steps, multiprocessors, whole_tiles)
    blocks_of_tile = min(multiprocessors // tiles, steps)
    equal_parts = _divided(atom, tiles, steps, blocks_of_tile * tiles)
    equal_shares = _divided(atom, tiles, steps, min(multiprocessors, tiles * steps))
    on_all = sorted({whole_tiles, equal_parts, equal_shares})
    fewer_parts = min(_fastest_parts(atom, steps), blocks_of_tile)
    on_fewer = _divided(atom, tiles, steps, fewer_parts * tiles)
    is_faster = FEWER_BLOCKS * on_fewer.time < on_all[0].time
    return [on_fewer, *on_all] if is_faster else on_all


def _divisions_of_many(
    atom: Atom, tiles: int, steps: int, multiprocessors: int, whole_tiles: StreamK
) -> list[StreamK]:
    """The divisions of no fewer tiles than multiprocessors, the fastest first: whole tiles alone,
    and with the last ones shared, where that leaves each block fewer steps."""
    others = tiles % multiprocessors
    if others == 0 or ceil(others * steps / multiprocessors) == steps:
        return [whole_tiles]
    shared = _shared(atom, tiles, steps, multiprocessors)
    is_faster = _compared_time(shared, tiles, steps, multiprocessors) < whole_tiles.time
    return [shared, whole_tiles] if is_faster else [whole_tiles, shared]


def has_shares(tiles: int, steps: int, blocks: int) -> bool:
    """Have blocks a share of the steps of some tiles, beside as many whole ones as each can have?
    264 blocks have none of 300 tiles of 2 steps: a share of 36 tiles would be a whole one."""
    others = tiles % blocks
    return 0 < ceil(others * steps / blocks) < steps and blocks <= tiles * steps


def blocks_at_once(atom: Atom, division: StreamK, steps: int, multiprocessors: int) -> int:
    """How many of the blocks that divide tiles of so many steps a multiprocessor runs side by side.
    """
    at_most = atom.side_by_side(are_shared=not division.is_whole(steps))
    return min(ceil(division.blocks / multiprocessors), at_most)


def _compared_time(division: StreamK, tiles: int, steps: int, multiprocessors: int) -> float:
    """The time of a division of `tiles`, with the margin of one that shares the last of many."""
    is_end_shared = tiles >= multiprocessors and not division.is_whole(steps)
    return division.time * (SHARED_END if is_end_shared else 1)


def _fastest_parts(atom: Atom, steps: int) -> int:
    """In how many equal parts a tile of so many steps takes the least time, with multiprocessors
    for all of them, 2 at least: ``p`` of ``steps / p / rate + PARTIAL_SUMS_STEPS * p``. 512 steps
    at the rate 1 have 11."""
    return max(isqrt(int(steps / atom.rate / PARTIAL_SUMS_STEPS)), 2)


def _in_whole_tiles(atom: Atom, tiles: int, steps: int, blocks: int) -> StreamK:
    """The division by which each of `blocks` has the same number of whole tiles, but for some that
    have one less: 200 tiles on 100 blocks are 2 each."""
    steps_each = ceil(tiles / blocks) * steps
    return StreamK(_computing(atom, steps_each), steps_each, blocks)


def _shared(atom: Atom, tiles: int, steps: int, blocks: int) -> StreamK:
    """The division by which each of `blocks` has the same number of whole tiles, if there are so
    many, and up to all of them a share of the steps of the others, of which there are fewer than
    blocks. 284 tiles of 27 steps on 132 blocks are 2 each, and up to 132 blocks share the last 20:
    in tiles without tensor cores 108 blocks have 5 steps each, and in those of 128 by 256 on tensor
    cores 40 blocks about 14. More would take longer to add up sums than they save in steps."""
    tiles_each, others = divmod(tiles, blocks)
    whole_steps, sharing = tiles_each * steps, blocks
    if tiles_each > 0:
        sharing = min(blocks, others * min(_fastest_parts(atom, steps), steps))
    shares = _divided(atom, others, steps, sharing)
    time = _computing(atom, whole_steps) + shares.time
    return StreamK(time, whole_steps + shares.steps, blocks, shares.partial_sums)


def _divided(atom: Atom, tiles: int, steps: int, blocks: int) -> StreamK:
    """The division of `tiles`, each of so many `steps`, among more blocks than tiles, which add up
    their partial sums."""
    steps_each = ceil(tiles * steps / blocks)
    partial_sums = _partial_sums(tiles, steps, blocks, steps_each)
    joining = JOIN_COST + PARTIAL_SUMS_STEPS * atom.m * atom.n * partial_sums
    return StreamK(_computing(atom, steps_each) + joining, steps_each, blocks, partial_sums)


def _computing(atom: Atom, steps: int) -> float:
    """How long so many steps of a tile take, in the unit of `StreamK.time`: 256 steps of 64 x 128
    results at the rate 0.7 as long as 256 * 64 * 128 / 0.7."""
    return steps * (atom.m * atom.n) / atom.rate


def _partial_sums(tiles: int, steps: int, blocks: int, steps_each: int) -> int:
    """How often partial sums of a tile are written or read, at most, before the block that ends
    last has its results: one after the other.

    Two ways to divide `tiles`, each of so many `steps`, among `blocks` (`stream_k`):

    - With 7 blocks a tile, the first block of a tile reads the sums of the 6 others.
    - With equal shares, 132 blocks of 35 steps for 18 tiles of 256, a tile is 7 whole shares, and a
      rest of 11 steps. Blocks that are left take the rests, up to 35 steps, so that each writes the
      sums of up to 3 whole rests. Then the first block of a tile reads those of the other shares,
      and of the rest, which may lie in two blocks. That counts as 3 + 7 + 2, with the first share
      itself as one of the 7: it is an estimate. `lamina/tiles/orders.py` divides in this way.
      Where tiles are whole shares, there are no rests, and blocks that are left have nothing: 52
      tiles of 240 steps are 260 shares of 48, for 264 blocks.
    """
    whole_shares, rest = divmod(steps, steps_each)
    if blocks % tiles == 0 or rest == 0:
        blocks_of_tile = blocks // tiles
        return blocks_of_tile - 1
    written = steps_each // rest
    blocks_of_rest = 2
    return written + whole_shares + blocks_of_rest


@dataclass(frozen=True, order=True)
class AtomTime:
    """About how long products take in tiles of an atom (see `StreamK`), with margins, and how many
    tiles. The fastest comes first in order."""

    time: float
    tiles: int
    atom: str


def times_of(kind: str, products: Products, multiprocessors: int) -> list[AtomTime]:
    """For each atom of a kind of factors, such as "bf16", the time of `products`, the fastest
    first."""
    times = []
    for atom in product_atoms(kind):
        if (atom.m, atom.n) in WIDE_RATES:
            continue  # of blocks side by side alone, which are no division here
        tiles = products.tiles(atom)
        division = stream_k(atom, tiles, products.steps, multiprocessors)
        time = _compared_time(division, tiles, products.steps, multiprocessors)
        times.append(AtomTime(time, tiles, atom.name))
    return sorted(times)
