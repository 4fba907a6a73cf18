"""Which steps a block has: the same as `StreamK` of `products.cu` says, compiled for the CPU."""

from __future__ import annotations

import random
import shutil
import subprocess
from itertools import product
from pathlib import Path

import pytest

from lamina.schedule.gpu.atoms import ATOMS
from lamina.schedule.gpu.stream_k import stream_k
from lamina.targets.cuda import printer
from lamina.tiles.orders import READING_STEPS, WRITING_STEPS, Part, given_parts, parts_of
from lamina.tiles.program import Extent, TileLoop
from tests.cuda.test_shares import PROGRAM, UNITS

SIZES = [(72, 256), (18, 256), (8, 129), (131, 191), (1, 1), (300, 7)]


def tile_loop(tiles: int, steps: int, blocks: int, share: int) -> TileLoop:
    """A loop over so many tiles."""
    order = "shared" if share < steps else "whole"
    return TileLoop(order, tiles, steps, blocks, share, (Extent("a", tiles),), ())


def loops() -> list[TileLoop]:
    """Of the sizes above and of some drawn ones, as the schedule divides them."""
    draw = random.Random(1)
    sizes = [*SIZES, *((draw.randint(1, 40), draw.randint(1, 60)) for _ in range(6))]
    atom = ATOMS["mma_bf16_64x64"]
    divisions = {
        (tiles, steps, division.blocks, division.steps)
        for tiles, steps in sizes
        for division in [stream_k(atom, tiles, steps, UNITS)]
    }
    return [tile_loop(*division) for division in sorted(divisions)]


def test_blocks_have_the_steps_that_the_text_gives_them(tmp_path: Path) -> None:
    compiler = shutil.which("c++") or pytest.skip("no compiler of C++")
    text = Path(printer.__file__).with_name("products.cu").read_text(encoding="utf-8")
    assert f"threads, {WRITING_STEPS}, {READING_STEPS}, __VA_ARGS__" in text
    end = text.index("/* Barriers of the multistage buffer.")
    walk = text[text.index("constexpr i32 smaller(") : end]
    every = loops()
    assert {loop.order for loop in every} == {"whole", "shared"}
    calls = "".join(
        f"walk<{WRITING_STEPS}, {READING_STEPS}, {loop.tiles}, {loop.steps}, {loop.share}, "
        f"{loop.blocks}>();"
        for loop in every
    )
    source, program = tmp_path / "walk.cpp", tmp_path / "walk"
    source.write_text(PROGRAM % (walk, calls))
    subprocess.run([compiler, "-std=c++17", "-o", program, source], check=True)
    output = subprocess.run([program], capture_output=True, text=True, check=True).stdout
    pages = output.split("end\n")[:-1]
    assert len(pages) == len(every)
    for loop, page in zip(every, pages, strict=True):
        rows = [list(map(int, line.split())) for line in page.splitlines()[1:]]
        ours = [
            (block, part.tile, part.first, part.count)
            for block in range(loop.blocks)
            for part in parts_of(loop, block)
        ]
        assert ours == [tuple(row[:4]) for row in rows]
        if loop.order == "shared":
            _same_order_of_sums(loop, rows)


def _same_order_of_sums(loop: TileLoop, rows: list[list[int]]) -> None:
    """The block with the first step of a tile adds the sums of others by the number of the slot
    that the text gives them."""
    for tile in range(0, loop.tiles, 7):
        by_slot = {
            slot: Part(tile, first, count)
            for _, other, first, count, slot, _ in rows
            if other == tile and first
        }
        assert given_parts(loop, tile) == [by_slot[slot] for slot in sorted(by_slot)]


@pytest.mark.parametrize("loop", loops(), ids=lambda loop: f"{loop.tiles}x{loop.steps}")
def test_every_step_has_one_block(loop: TileLoop) -> None:
    steps = [
        (part.tile, part.first + number)
        for block in range(loop.blocks)
        for part in parts_of(loop, block)
        for number in range(part.count)
    ]
    assert sorted(steps) == list(product(range(loop.tiles), range(loop.steps)))
