"""Which tiles, and which of their steps, each block has.

In the order "whole" a block has every `blocks`th tile: tiles that are neighbours are computed at
the same time. In the order "stream_k" blocks share the steps of tiles of which there are fewer than
blocks. Each tile is cut into as many parts as there are blocks for every tile, and what is left of
all tiles, their rests, is divided among the other blocks, one tile after the other. 72 tiles of 256
steps and 132 blocks: 72 blocks have the first part of a tile each, and 60 blocks share the 72
rests. Of more tiles than blocks, each block first has as many whole ones as each can have: of 284
tiles 132 blocks have 2 each, and up to 132 blocks share the last 20.

The block with the first step of a tile adds up what the others have written: first the rests, then
the later parts in order. A later part has more steps, for as long as it takes to add the parts
before it, and fewer for writing its own sums, so that all end at about the same time. In the order
"equal" parts have as many steps each: one takes longer than writing or adding sums.
`targets/cuda/tile_loops.py` prints it; a test compares the two.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from lamina.tiles.memory import value_of
from lamina.tiles.program import StepMask, StepsOf, Tickets, TileLoop

# How long it takes to write, and to read, the partial sums of a tile, in its steps.
WRITING_STEPS = 5
READING_STEPS = 3


@dataclass(frozen=True, order=True)
class Part:
    """The steps of a tile that a block has, from `first` on."""

    tile: int
    first: int
    count: int


def parts_of(loop: TileLoop, block: int) -> list[Part]:
    """What a block has, in its order. Blocks that hand over sums have lower numbers than the block
    that adds them up."""
    number = loop.blocks - 1 - block
    if loop.order == "whole":
        return [Part(tile, 0, loop.steps) for tile in range(number, loop.tiles, loop.blocks)]
    division = Division.of(loop)
    whole = [Part(tile, 0, loop.steps) for tile in range(number, division.whole, loop.blocks)]
    return [*whole, *_shares(loop, division, number)]


def _shares(loop: TileLoop, division: "Division", number: int) -> Iterator[Part]:
    """What block `number` has of the tiles that blocks share."""
    part, tile = divmod(number, division.tiles)
    if part >= division.parts:
        yield from _rests(loop, division, number - division.tiles * division.parts)
        return
    first = division.start(part)
    is_last = part + 1 == division.parts
    end = division.begin if is_last else division.start(part + 1)
    yield Part(division.whole + tile, first, end - first)


def given_parts(loop: TileLoop, tile: int) -> list[Part]:
    """The parts of a tile that other blocks have than the one with its first step, in the order in
    which that one adds up their sums."""
    every = (part for block in range(loop.blocks) for part in parts_of(loop, block))
    given = [part for part in every if part.tile == tile and part.first > 0]
    begin_of_rest = Division.of(loop).begin
    return sorted(given, key=lambda part: (part.first < begin_of_rest, part))


def _rests(loop: TileLoop, division: "Division", number: int) -> Iterator[Part]:
    """The parts of rests that block `number` of those that share them has."""
    rest = loop.steps - division.begin
    every = division.tiles * rest
    at = min(number * division.each, every)
    end = min(at + division.each, every)
    while at < end:
        tile, within = divmod(at, rest)
        count = min(rest - within, end - at)
        yield Part(division.whole + tile, division.begin + within, count)
        at += count


@dataclass(frozen=True)
class Division:
    """How the steps of each tile are divided that blocks share.

    whole: how many tiles come before these, of which each block has as many
    tiles: that blocks share
    parts: of a tile, without its rest
    rest_blocks: blocks that share the rests of all tiles
    first_steps: of the first part. sooner: how many more the second one has. take: how many more
        each later one has than the one before
    begin: the first step of the rest
    each: steps of rests that one block has
    """

    whole: int
    tiles: int
    parts: int
    rest_blocks: int
    first_steps: int
    sooner: int
    take: int
    begin: int
    each: int

    @staticmethod
    def of(loop: TileLoop) -> "Division":
        """The division of a loop whose blocks share steps."""
        steps, blocks = loop.steps, loop.blocks
        tiles_each, tiles = divmod(loop.tiles, blocks)
        share = loop.share - tiles_each * steps
        if tiles_each > 0:
            # No more blocks share than have `share` steps each: the sums of more would take longer
            # (`stream_k._shared`). 20 tiles of 27 steps are 108 shares of 5, for 132 blocks.
            blocks = min(blocks, -(-tiles * steps // share))
        parts = max(steps // share, 1)
        rest_blocks = max(blocks - tiles * parts, 0)
        is_free = loop.order == "equal"
        give = 0 if is_free else min(WRITING_STEPS, share // 4)
        take = 0 if is_free else min(READING_STEPS, share // (4 * parts))
        sooner = (take if rest_blocks else 0) - give
        # Steps for which the blocks of rests write sums.
        rest_give = give * (rest_blocks + tiles) if rest_blocks else 0
        more = _start(parts, 0, sooner, take)  # steps of all parts beyond those of the first one
        first_steps = -(-(tiles * (steps - more) + rest_give) // blocks)  # rounded up
        begin = min(_start(parts, first_steps, sooner, take), steps) if rest_blocks else steps
        rest = steps - begin
        each = max(-(-tiles * rest // max(rest_blocks, 1)), 1)
        whole = tiles_each * loop.blocks
        return Division(whole, tiles, parts, rest_blocks, first_steps, sooner, take, begin, each)

    def start(self, part: int) -> int:
        """The first step of a part."""
        return _start(part, self.first_steps, self.sooner, self.take)


def _start(part: int, first_steps: int, sooner: int, take: int) -> int:
    """The first step of part number `part`, if the first one has `first_steps`, the second one
    `sooner` more, and each later one `take` more than the one before: with 10, 2 and 3, parts begin
    at 0, 10, 22 and 37."""
    return part * first_steps + max(part - 1, 0) * (2 * sooner + (part - 2) * take) // 2


def tile_of_ticket(tickets: Tickets, tiles: int, ticket: int) -> int:
    """The tile of a ticket: of 6 arrays of 4 row tiles, of which 2 are read together, the last rows
    first, the tickets 0 to 3 are row 3 of array 0, row 3 of array 1, row 2 of array 0, row 2 of
    array 1, and the tiles 3, 7, 2 and 6."""
    row_tiles = tickets.row_tiles
    start, rest = divmod(ticket, tickets.together * row_tiles)
    start *= tickets.together
    arrays = min(tickets.together, tiles // row_tiles - start)
    row, array = divmod(rest, arrays)
    return (start + array) * row_tiles + (row_tiles - 1 - row if tickets.is_last_first else row)


@dataclass(frozen=True)
class StepRanges:
    """The steps of a tile that a block brings, and those of them that one of its groups computes:
    the others are masked as a whole. Of each there is one at least."""

    brought: range
    computed: range

    @staticmethod
    def of(
        masks: Sequence[StepMask], steps: int, values: Mapping[str, int], group: int, groups: int
    ) -> "StepRanges":
        """Of a tile of so many steps, where variables have these values."""
        first, stop, begin, end = 0, steps, 0, steps
        for mask in masks:
            lowest = int(value_of(mask.place, values)) + mask.low
            # `low` is the minimum over groups: group 0 if by_warpgroup >= 0, else the last group.
            others = group if mask.by_warpgroup >= 0 else group - groups + 1
            of_group = lowest + mask.by_warpgroup * others
            if mask.slope > 0:
                stop = min(stop, _steps_below(lowest, mask.slope))
                end = min(end, _steps_below(of_group, mask.slope))
            else:
                first = max(first, _steps_above(lowest, mask.slope))
                begin = max(begin, _steps_above(of_group, mask.slope))
        first = min(first, steps - 1)
        stop = max(first + 1, stop)
        begin = min(max(begin, first), stop - 1)
        end = max(begin + 1, min(end, stop))
        return StepRanges(range(first, stop), range(begin, end))

    def steps_of(self, which: StepsOf) -> range:
        """Those of a loop, by its `StepLoop.which`."""
        brought, computed = self.brought, self.computed
        return {
            StepsOf.BROUGHT: brought,
            StepsOf.COMPUTED: computed,
            StepsOf.FIRST: computed[:1],
            StepsOf.OTHERS: computed[1:],
            StepsOf.LAST: computed[-1:],
            StepsOf.SKIPPED_BEFORE: range(brought.start, computed.start),
            StepsOf.SKIPPED_BEHIND: range(computed.stop, brought.stop),
        }[which]


def _steps_below(lowest: int, slope: int) -> int:
    """How many steps, from the first one on, have ``lowest + slope * step <= 0``: with -127 and 64
    these are the steps 0 and 1, with -128 also step 2."""
    return max((slope - lowest) // slope, 0)


def _steps_above(lowest: int, slope: int) -> int:
    """The first step with ``lowest + slope * step <= 0``, where the slope is negative."""
    return max((lowest - slope - 1) // -slope, 0)
