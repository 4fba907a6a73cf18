"""Which tiles of masked attention are left out, beside what its mask says of each score.

The bounds that a kernel prints are compiled for the CPU, and asked for every block of rows: no GPU
is needed. They are those that the interpreter of tile programs has.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import lamina as lm
from lamina import Tensor
from lamina.core import options
from lamina.frontend.lowered import TensorSpec
from lamina.runtime import cpu
from lamina.tiles.arithmetic import digits
from lamina.tiles.orders import StepRanges
from lamina.tiles.program import StepMask, TileLoop, TileProgram, statements_of

# Of the scores. Tiles of 64 or 128 rows are 5 or 3, and of as many columns 8 or 4: the number of a
# kernel's tiles tells what it adds up over. The last tile of each is ragged.
ROWS, COLUMNS = 300, 500
GROUP = 64  # rows of four warps
MaskFunction = Callable[[Any, Any], Any]

# Which column each row sees, and whether a causal mask is beside that.
MASKS: dict[str, tuple[MaskFunction | None, bool]] = {
    "causal": (None, True),
    "causal, counted from one": (lambda row, column: column < row + 1, False),
    "up to the row": (lambda row, column: column <= row, False),
    "from the row on": (lambda row, column: ~(row > column), False),
    "by a difference": (lambda row, column: column - row <= 70, False),
    "later": (lambda row, column: row < column + 1, False),
    "as far as a whole tile": (lambda row, column: column < row + 64, False),
    "as far as the first of a tile": (lambda row, column: column < row + 66, False),
    "window": (lambda row, column: row < column + 100, True),
}

HEAD = """
typedef int i32;
typedef unsigned u32;
typedef long long i64;
#define min(a, b) ((a) < (b) ? (a) : (b))
#define max(a, b) ((a) > (b) ? (a) : (b))
"""
# The first row of a block, the tiles that are brought to it, those of them that a group of four
# warps computes, and which tiles have scores of -inf for it.
FUNCTION = """
void tiles(int tile, int group, int *about, char *is_masked) {{
    {lines}
    const int values[] = {{ {row}, first, stop, from, to }};
    for (int i = 0; i < 5; i++) about[i] = values[i];
    for (int {number} = 0; {number} < {steps}; {number}++) is_masked[{number}] = {masked};
}}
"""


@dataclass(frozen=True)
class Tiles:
    """Of a group of rows: the first row of its block, numbers of tiles, and of each tile whether
    the group asks which of its scores are -inf."""

    row: int
    brought: range
    computed: range
    masked: list[bool]


class Bounds:
    """What a kernel says of its tiles, and what its tile program does."""

    def __init__(self, kernel: str, program: TileProgram) -> None:
        _, consumers = program.roles
        (self.loop,) = statements_of(consumers.body, TileLoop)
        self.groups = consumers.warpgroups
        self.workers, self.steps = self.loop.tiles, self.loop.steps
        self.size = program.alloc("inner0").shape[1]
        after_roles = kernel[kernel.index("take_registers<") :]
        of_tile = one(r"(?s)const u32 tile = .*?\n(.*?) *f32 inner0", after_roles)
        masked = re.search(r"auto ready\) INLINED \{\n +if \((.*)\) \{", kernel)
        without_asking = kernel[kernel.index("            else {\n") :]
        self.choices = re.findall(r"\(_Bool\)([01]) \? (\S+) : (\S+?)\)", without_asking)
        function = FUNCTION.format(
            lines=of_tile, row=one(r"const i64 row = (.*);", kernel), steps=self.steps,
            number=one(r"auto elements = \[&\]\(const i32 (\w+),", kernel),
            masked=masked[1] if masked else 0,
        )  # fmt: skip
        self._call = cpu.build(HEAD + function, options.current()).tiles

    def of(self, worker: int, group: int) -> Tiles:
        about, is_masked = (ctypes.c_int * 5)(), (ctypes.c_char * self.steps)()
        self._call(worker, group, about, is_masked)
        row, first, stop, begin, end = about
        masked = [each != b"\0" for each in is_masked]
        return Tiles(row, range(first, stop), range(begin, end), masked)

    def interpreted(self, worker: int, group: int) -> StepRanges:
        """What the interpreter takes the ranges to be."""
        masks = statements_of(self.loop.body, StepMask)
        values = digits(self.loop.over, worker)
        return StepRanges.of(masks, self.steps, values, group, self.groups)


def one(pattern: str, text: str) -> str:
    """The first match of the group of `pattern`."""
    match = re.search(pattern, text)
    assert match, pattern
    return match[1]


def bounds_of(mask: MaskFunction | None, is_causal: bool) -> list[Bounds]:
    """What each kernel of attention and its gradients that has tiles says of these."""

    def attention(query: Tensor, key: Tensor, value: Tensor, dy: Tensor) -> tuple[Tensor, ...]:
        allowed = mask and mask(lm.arange(ROWS)[:, None], lm.arange(COLUMNS))
        y = lm.scaled_dot_product_attention(query, key, value, allowed, is_causal=is_causal)
        return y, *lm.gradient(y, [query, key, value], dy)

    arrays = [TensorSpec((2, rows, 64), lm.bfloat16) for rows in (ROWS, COLUMNS, COLUMNS, ROWS)]
    planned = lm.jit(attention).lower(*arrays, device="cuda:0", arch="sm_90a").planned
    assert planned.source is not None
    return [
        Bounds(planned.source.kernels[program.name], program)
        for program in planned.tiles.values()
        if isinstance(program, TileProgram) and len(program.mmas) > 1
    ]


def seen(mask: MaskFunction | None, is_causal: bool, sides: tuple[int, int]) -> np.ndarray:
    """Of so many rows and columns, which column each row sees."""
    rows, columns = np.indices(sides)
    sees = columns <= rows if is_causal else np.full(sides, True)
    return sees & mask(rows, columns) if mask else sees


@pytest.mark.parametrize("name", MASKS)
def test_no_tile_that_has_a_score_is_left_out(name: str) -> None:
    """Of what is left out, all is masked; what is computed without asking, is not; and tiles at
    both ends that are masked throughout are left out."""
    bounds = bounds_of(*MASKS[name])
    over_columns = [each.steps == -(-COLUMNS // each.size) for each in bounds]
    assert over_columns == [True, True, False]  # the result, and the gradients of two factors
    scores = seen(*MASKS[name], (2 * ROWS, 2 * COLUMNS))  # blocks go beyond the ends
    for each, is_over_columns in zip(bounds, over_columns, strict=True):
        chosen = {yes if condition == "1" else no for condition, yes, no in each.choices}
        assert chosen  # where no score is masked
        assert "-inf_f32" not in chosen
        rows = scores if is_over_columns else scores.T
        rows = rows[:, : each.steps * each.size].copy()
        rows[:, COLUMNS if is_over_columns else ROWS :] = False
        for worker in range(each.workers):
            for group in range(each.groups):
                check(each, worker, group, rows)


def check(bounds: Bounds, worker: int, group: int, scores: np.ndarray) -> None:
    """Compare tiles with scores, (rows, steps), of which those that are True count."""
    tiles = bounds.of(worker, group)
    in_tiles = scores.reshape(len(scores), bounds.steps, bounds.size)
    of_block = in_tiles[tiles.row : tiles.row + GROUP * bounds.groups].any(axis=(0, 2))
    of_group = in_tiles[tiles.row + GROUP * group :][:GROUP]
    assert ends(of_block) in (None, (tiles.brought[0], tiles.brought[-1]))
    some = of_group.any(axis=(0, 2))
    assert ends(some) in (None, (tiles.computed[0], tiles.computed[-1]))
    assert {*tiles.computed} <= {*tiles.brought} <= {*range(bounds.steps)}
    assert bounds.interpreted(worker, group) == StepRanges(tiles.brought, tiles.computed)
    assert tiles.masked == [not tile.all() for tile in of_group.swapaxes(0, 1)]


def ends(flags: np.ndarray) -> tuple[int, int] | None:
    """The first and the last place of what is True; None if nothing is."""
    places = np.flatnonzero(flags)
    return (int(places[0]), int(places[-1])) if len(places) else None
