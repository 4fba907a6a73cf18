"""CUDA C++ of the loop over the tiles that a block has, or has a part of the steps of, and of the
sums that blocks add up for each other: what `lamina/tiles/orders.py` says, for one loop.

In the order "whole" a block has every `blocks`th tile, from its number on:

    for (u32 tile = 127 - BLOCK; tile < 512; tile += 128) {
        for (u32 step = 0; step < 64; step++) { ... }
    }

In the order "stream_k" a tile is cut into parts. Of 18 tiles of 256 steps, 126 blocks have a part
each, 7 of a tile, and nothing is left:

    const u32 number = 125 - BLOCK, part = number / 18, tile = number % 18;
    const auto start_of = [](i32 part) { return part * 38 + max(part - 1, 0) * (...) / 2; };
    const u32 first = start_of(part), end = part < 6 ? start_of(part + 1) : 256;

With 132 blocks, the last six share what is left of all tiles, the rests: `tile`, `first` and
`steps`, those of the block, move on from tile to tile. Of 284 tiles of 27 steps, 132 blocks have
two each, and up to 132 blocks share the last 20:

    for (u32 tile = number, first = 0, end, steps_left = 54 + steps; steps_left > 0; ...) {

`TileLoopText` has these lines.
"""

from collections.abc import Callable
from dataclasses import dataclass

from lamina.tiles.orders import Division
from lamina.tiles.program import TileLoop

SUMS_AT_ONCE = 4  # that a thread hands over: 16 bytes


@dataclass(frozen=True)
class ProducerText:
    """Texts of where a producer is that runs inside the consumers, some steps ahead of them.

    declaration: of its variables, where the consumers begin
    tile, step: where it is
    has_step: the condition that there is a step left
    advance: lines that go on to the next step
    """

    declaration: str
    tile: str
    step: str
    has_step: str
    advance: tuple[str, ...]


@dataclass(frozen=True)
class TileLoopText:
    """Texts of a loop over tiles.

    opening: lines before all roles
    head: of the loop
    start: lines with which its body begins
    first, end: the block's steps of a tile are those from `first` on, below `end`
    leave: what ends a tile before its end
    producer: of one that runs inside the consumers, which have the loop
    steps: of every tile of a block, where it has all of them; None where it has parts
    """

    opening: tuple[str, ...]
    head: str
    start: tuple[str, ...]
    first: str
    end: str
    leave: str
    producer: ProducerText
    steps: int | None = None

    def has_left(self, steps: int) -> str:
        """The condition that so many steps of a tile are left, with the current one."""
        if self.steps is None:
            return f"step + {steps} == {self.end}"
        return f"step == {self.steps - steps}"

    def has_steps(self, steps: int) -> str:
        """The condition that a block has so many steps of a tile, behind another one: "" where it
        has all of them."""
        return f" && {self.end} - {self.first} >= {steps}" if self.steps is None else ""


def text_of_loop(loop: TileLoop) -> TileLoopText:
    """The texts of a loop."""
    if loop.order == "whole":
        return _whole(loop)
    division = Division.of(loop)
    if division.whole:
        return _after_whole_tiles(loop, division)
    if division.rest_blocks:
        return _with_rests(loop, division)
    return _in_parts(loop, division)


def _whole(loop: TileLoop) -> TileLoopText:
    """Each block has whole tiles."""
    number = f"{loop.blocks - 1} - BLOCK"
    producer = ProducerText(
        declaration=f"u32 fill_tile = {number}, fill_step = 0;",
        tile="fill_tile",
        step="fill_step",
        has_step=f"fill_tile < {loop.tiles}",
        advance=(
            f"if (++fill_step == {loop.steps}) {{",
            "    fill_step = 0;",
            f"    fill_tile += {loop.blocks};",
            "}",
        ),
    )
    return TileLoopText(
        opening=(),
        head=f"for (u32 tile = {number}; tile < {loop.tiles}; tile += {loop.blocks}) {{",
        start=(),
        first="0",
        end=str(loop.steps),
        leave="continue;",
        producer=producer,
        steps=loop.steps,
    )


def _numbers(loop: TileLoop, division: Division) -> tuple[str, ...]:
    """The number of a block, of its part, and where parts start: `Division.start`."""
    sooner, take = 2 * division.sooner, division.take
    start = f"part * {division.first_steps}"
    if sooner or take:
        start += f" + max(part - 1, 0) * ({sooner} + (part - 2) * {take}) / 2"
    return (
        f"const u32 number = {loop.blocks - 1} - BLOCK, part = number / {division.tiles};",
        f"const auto start_of = [](i32 part) {{ return {start}; }};",
    )


def _in_parts(loop: TileLoop, division: Division) -> TileLoopText:
    """Each block has one part of a tile, so that there is no loop."""
    last = division.parts - 1
    end = f"part < {last} ? start_of(part + 1) : {loop.steps}"
    producer = ProducerText(
        declaration="u32 fill_step = first;",
        tile="tile",
        step="fill_step",
        has_step="fill_step < end",
        advance=("fill_step++;",),
    )
    return TileLoopText(
        opening=(
            *_numbers(loop, division),
            f"const u32 tile = number % {loop.tiles}, first = start_of(part), end = {end};",
        ),
        head="{",
        start=(),
        first="first",
        end="end",
        leave="return;",
        producer=producer,
    )


def _with_rests(loop: TileLoop, division: Division) -> TileLoopText:
    """The last blocks share the rests of all tiles."""
    begin = division.begin
    producer = ProducerText(
        declaration="u32 fill_tile = tile, fill_step = first, fill_steps = steps;",
        tile="fill_tile",
        step="fill_step",
        has_step="fill_steps > 0",
        advance=(
            "fill_steps--;",
            f"if (++fill_step == {loop.steps}) {{",
            f"    fill_step = {begin};",
            "    fill_tile++;",
            "}",
        ),
    )
    return TileLoopText(
        opening=_share_of_block(loop, division, "tile", "first"),
        head=f"for (u32 end; steps > 0; steps -= end - first, first = {begin}, tile++) {{",
        start=(f"end = min(first + steps, {loop.steps}u);",),
        first="first",
        end="end",
        leave="continue;",
        producer=producer,
    )


def _share_of_block(
    loop: TileLoop, division: Division, tile_name: str, first_name: str
) -> tuple[str, ...]:
    """Where a block's share of the tiles that blocks share begins, and how many steps it has."""
    begin, rest, each = division.begin, loop.steps - division.begin, division.each
    all_rests = division.tiles * rest
    blocks_of_parts = division.tiles * division.parts
    end = f"part < {division.parts - 1} ? start_of(part + 1) : {begin}"
    before_shared = f"{division.whole} + " if division.whole else ""
    tile = f"{before_shared}number % {division.tiles}"
    return (
        *_numbers(loop, division),
        f"u32 {tile_name} = {tile}, {first_name} = start_of(part), steps = ({end}) - {first_name};",
        f"if (number >= {blocks_of_parts}) {{  // a share of the rests of all tiles",
        f"    const u32 before = min((number - {blocks_of_parts}) * {each}, {all_rests}u);",
        f"    {tile_name} = {before_shared}before / {max(rest, 1)};",
        f"    {first_name} = {begin} + before % {max(rest, 1)};",
        f"    steps = min({all_rests} - before, {each}u);",
        "}",
    )


def _after_whole_tiles(loop: TileLoop, division: Division) -> TileLoopText:
    """Each block has equally many whole tiles, and then a share of the last ones, or none."""
    whole_steps = loop.share // loop.steps * loop.steps  # of a block, before its share
    all_steps = f"{whole_steps} + steps"
    # From a whole tile a block goes on to its next one, or from the last of these to its share.
    opening = (
        *_share_of_block(loop, division, "shared_tile", "shared_first"),
        "const auto next_tile = [&](u32 &tile, u32 &first) {",
        f"    const bool was_whole = tile < {division.whole};",
        f"    tile += was_whole ? {loop.blocks} : 1;",
        f"    first = was_whole ? 0 : {division.begin};",
        f"    if (was_whole && tile >= {division.whole}) {{",
        "        tile = shared_tile;",
        "        first = shared_first;",
        "    }",
        "};",
    )
    producer = ProducerText(
        declaration=f"u32 fill_tile = number, fill_step = 0, fill_steps = {all_steps};",
        tile="fill_tile",
        step="fill_step",
        has_step="fill_steps > 0",
        advance=(
            "fill_steps--;",
            f"if (++fill_step == {loop.steps}) next_tile(fill_tile, fill_step);",
        ),
    )
    variables = f"u32 tile = number, first = 0, end, steps_left = {all_steps}"
    next_tile = "steps_left -= end - first, next_tile(tile, first)"
    return TileLoopText(
        opening=opening,
        head=f"for ({variables}; steps_left > 0; {next_tile}) {{",
        start=(f"end = min(first + steps_left, {loop.steps}u);",),
        first="first",
        end="end",
        leave="continue;",
        producer=producer,
    )


# Sums that blocks add up for each other.


def join_lines(
    loop: TileLoop, count: int, threads: int, leave: str, sum_text: Callable[[str], str]
) -> list[str]:
    """A block with a later part of a tile hands over its sums, `count` of each of so many threads,
    and leaves the tile; the block with the first part adds up those of all others: first of the
    rests, then of the later parts in order. `partial_sums` has a place for each."""
    division = Division.of(loop)
    rest = loop.steps - division.begin
    places = division.parts + rest // division.each + 1  # of a tile
    place = _place_of_sums(division, rest)
    others = f"{'sharing + ' if rest else ''}{division.parts - 1}"
    tile = "tile"
    if division.whole:
        others = f"tile < {division.whole} ? 0 : {others}"
        tile = f"(tile - {division.whole})"
    handed_over = ", ".join(map(sum_text, ("i", "i + 1", "i + 2", "i + 3")))
    return [
        *(_sharer_lines(division, tile, rest) if rest else ()),
        f"auto &partial = partial_sums<{places * division.tiles}, {count}, {threads}>;",
        "if (first > 0) {  // another block has the first step, and adds up the sums",
        f"    const u32 place = {tile} * {places} + ({place});",
        f"    UNROLLED for (int i = 0; i < {count}; i += {SUMS_AT_ONCE})",
        f"        __stcg(&partial.sums[place][i / {SUMS_AT_ONCE}][THREAD],",
        f"               make_float4({handed_over}));",
        "    WARP_BARRIER;",
        "    if (THREAD % 32 == 0) set_ready(&partial.ready[place][THREAD / 32]);",
        f"    {leave}",
        "}",
        *_take_lines(others, f"{tile} * {places}", count),
    ]


def _sharer_lines(division: Division, tile: str, rest: int) -> list[str]:
    """The number of the first of the blocks that share the rest of a tile, and how many do."""
    each = division.each
    return [
        f"const u32 before = {tile} * {rest}, sharer = before / {each};",
        f"const u32 sharing = (before + {rest - 1}) / {each} - sharer + 1;",
    ]


def _place_of_sums(division: Division, rest: int) -> str:
    """Where a block puts its sums of a tile: the blocks that share its rest before those that have
    a later part."""
    if not rest:
        return "part - 1"
    of_rest = f"(before + first - {division.begin}) / {division.each} - sharer"
    return f"part < {division.parts} ? sharing + part - 1 : {of_rest}"


def _take_lines(others: str, first_place: str, count: int) -> list[str]:
    """Add the sums of so many `others`, whose places begin at the first one of the tile: a fourth
    at a time, while the next one is loaded."""
    few = count // 16  # loads of a fourth
    return [
        f"const u32 others = {others};",
        "const auto wait_for_sums = [&](u32 other) INLINED {",
        f"    u32 *const ready = &partial.ready[{first_place} + other][THREAD / 32];",
        "    while (!__all_sync(~0u, is_ready(ready))) {}",
        "    *(volatile u32 *)ready = 0;  // for the next launch",
        "};",
        f"float4 next[2][{few}];",
        "const auto load_fourth = [&](u32 other, int fourth, int to) INLINED {",
        f"    const u32 place = {first_place} + min(other, others - 1);",
        f"    UNROLLED for (int i = 0; i < {few}; i++)",
        f"        next[to][i] = __ldcg(&partial.sums[place][fourth * {few} + i][THREAD]);",
        "};",
        "if (others > 0) {",
        "    wait_for_sums(0);",
        "    load_fourth(0, 0, 0);",
        "}",
        "NOT_UNROLLED for (u32 other = 0; other < others; other++) {",
        "    UNROLLED for (int fourth = 0; fourth < 4; fourth++) {",
        "        if (fourth == 3 && other + 1 < others) wait_for_sums(other + 1);",
        "        load_fourth(other + fourth / 3, (fourth + 1) % 4, 1 - fourth % 2);",
        f"        UNROLLED for (int i = 0; i < {few}; i++) {{",
        "            const float4 added = next[fourth % 2][i];",
        f"            f32 *const to = sums + (fourth * {few} + i) * {SUMS_AT_ONCE};",
        "            to[0] += added.x;",
        "            to[1] += added.y;",
        "            to[2] += added.z;",
        "            to[3] += added.w;",
        "        }",
        "    }",
        "}",
    ]
