"""Which steps a block has: the same as the printed loop over tiles, compiled for the CPU."""

from __future__ import annotations

import random
import re
import shutil
import subprocess
from itertools import product
from pathlib import Path

import pytest

from lamina.schedule.gpu.atoms import ATOMS
from lamina.schedule.gpu.stream_k import divisions
from lamina.targets.cuda.tile_loops import join_lines, text_of_loop
from lamina.tiles.orders import Part, given_parts, parts_of
from lamina.tiles.program import (
    TileLoop,
)
from lamina.tiles.values import (
    Extent,
)
from tests.cuda.test_shares import UNITS

SIZES = [(72, 256), (18, 256), (8, 129), (131, 191), (1, 1), (300, 7), (284, 27), (198, 64)]


def tile_loop(tiles: int, steps: int, blocks: int, share: int, parted: str) -> TileLoop:
    """A loop over so many tiles, whose steps blocks share in the order `parted`."""
    order = parted if share % steps else "whole"
    return TileLoop(order, tiles, steps, blocks, share, (Extent("a", tiles),), ())


def loops() -> list[TileLoop]:
    """Of the sizes above and of some drawn ones, in each way that a schedule may divide them."""
    draw = random.Random(1)
    sizes = [*SIZES, *((draw.randint(1, 40), draw.randint(1, 60)) for _ in range(6))]
    sizes += [(draw.randint(UNITS, 5 * UNITS), draw.randint(1, 60)) for _ in range(6)]
    atom = ATOMS["mma_bf16_64x64"]
    divided = {
        (tiles, steps, division.blocks, division.steps)
        for tiles, steps in sizes
        for division in divisions(atom, tiles, steps, UNITS)
    }
    # Several blocks of a multiprocessor.
    divided |= {
        (tiles, steps, blocks, -(-tiles * steps // blocks))
        for tiles, steps, blocks in ((52, 240, 264), (84, 164, 396), (256, 32, 528), (18, 94, 396))
    }
    orders = ("stream_k", "equal")
    return [tile_loop(*one, order) for one in sorted(divided) for order in orders]


# What CUDA has; each block walks alone, and says of each of its parts of a tile: which, from which
# step on, how many steps, the place of its sums among those of others, or how many others there
# are. A role that runs inside another one, ahead of it, goes through the same steps.
PROGRAM = """
#include <cstdio>
typedef int i32; typedef unsigned u32; typedef unsigned long long u64;
u32 BLOCK;
template <class T> T min(T a, T b) { return b < a ? b : a; }
template <class T> T max(T a, T b) { return a < b ? b : a; }
int main() {
%s
}
"""


# The number of a tile, or that among the tiles that blocks share.
TILE = r"(?:tile|\(tile - \d+\))"


def walk_text(loop: TileLoop) -> str:
    """The walk of all blocks through a loop."""
    text = text_of_loop(loop)
    producer = text.producer
    own = [f"const u32 first_step = {text.first}, end_step = {text.end};", "u32 sums = 0;"]
    if loop.order != "whole":
        # Of the lines that join sums those that say where these are.
        lines = [line.strip() for line in join_lines(loop, 32, 128, text.leave, str)]
        own += [line for line in lines if re.match(r"const u32 (before|sharing|others) =", line)]
        (place_of,) = (
            found[1]
            for line in lines
            if (found := re.match(rf"const u32 place = {TILE} \* \d+ \+ \((.*)\);", line))
        )
        own.append(f"sums = first > 0 ? {place_of} : others;")
    return "\n".join([
        f"for (BLOCK = 0; BLOCK < {loop.blocks}; BLOCK++) {{",
        *text.opening,
        producer.declaration,
        text.head,
        *text.start,
        *own,
        'std::printf("%u %u %u %u %u\\n", BLOCK, tile, first_step, end_step - first_step, sums);',
        "for (u32 step = first_step; step < end_step; step++) {",
        f"    if (!({producer.has_step}) || {producer.tile} != tile || {producer.step} != step)",
        '        std::printf("other\\n");',
        *producer.advance,
        "}",
        "}",
        f'if ({producer.has_step}) std::printf("more\\n");',
        "}",
        'std::printf("end\\n");',
    ])  # fmt: skip


def test_the_printed_loop_gives_blocks_the_same_steps(tmp_path: Path) -> None:
    compiler = shutil.which("c++") or pytest.skip("no compiler of C++")
    every = loops()
    assert {loop.order for loop in every} == {"whole", "stream_k", "equal"}
    source, program = tmp_path / "walk.cpp", tmp_path / "walk"
    source.write_text(PROGRAM % "\n".join(map(walk_text, every)))
    subprocess.run([compiler, "-std=c++17", "-o", program, source], check=True)
    output = subprocess.run([program], capture_output=True, text=True, check=True).stdout
    pages = output.split("end\n")[:-1]
    assert len(pages) == len(every)
    for loop, page in zip(every, pages, strict=True):
        rows = [list(map(int, line.split())) for line in page.splitlines()]
        ours = [
            (block, part.tile, part.first, part.count)
            for block in range(loop.blocks)
            for part in parts_of(loop, block)
        ]
        assert ours == [tuple(row[:4]) for row in rows]
        if loop.order != "whole":
            _same_order_of_sums(loop, rows)


def _same_order_of_sums(loop: TileLoop, rows: list[list[int]]) -> None:
    """The block with the first step of a tile adds the sums of others by the number of the place
    that the text gives them, and of as many others as there are."""
    for tile in range(0, loop.tiles, 7):
        by_place = {
            place: Part(tile, first, count)
            for _, other, first, count, place in rows
            if other == tile and first
        }
        given = given_parts(loop, tile)
        assert given == [by_place[place] for place in range(len(given))]
        assert [len(given)] == [row[4] for row in rows if row[1] == tile and row[2] == 0]


@pytest.mark.parametrize(
    "loop", loops(), ids=lambda loop: f"{loop.tiles}x{loop.steps} {loop.order}"
)
def test_every_step_has_one_block(loop: TileLoop) -> None:
    steps = [
        (part.tile, part.first + number)
        for block in range(loop.blocks)
        for part in parts_of(loop, block)
        for number in range(part.count)
    ]
    assert sorted(steps) == list(product(range(loop.tiles), range(loop.steps)))
