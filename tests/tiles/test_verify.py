"""The verifier of tile programs, and what refuses to derive barriers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lamina.tiles import program as dialect
from lamina.tiles.barriers import synchronised
from lamina.tiles.program import TileError
from lamina.tiles.text import parse, to_text
from lamina.tiles.verify import verify_tiles
from tests.tiles.programs import BY_ENGINE, BY_FMA, BY_THREADS, COMPUTED


def test_the_program_that_the_dialect_shows_is_valid() -> None:
    assert dialect.__doc__ is not None
    lines = dialect.__doc__.splitlines()
    shown = [line[4:] for line in lines if line.startswith("    ")]
    program = parse("\n".join(shown))
    assert to_text(program).splitlines() == shown
    verify_tiles(program)
    verify_tiles(synchronised(program))


@pytest.mark.parametrize("text", [BY_ENGINE, BY_THREADS, BY_FMA])
def test_a_program_is_valid_before_and_after_its_barriers(text: str) -> None:
    program = parse(text)
    verify_tiles(program)
    verify_tiles(synchronised(program))


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("alloc lines", "alloc left", "left is declared 2 times"),
        ("alloc left: shared", "alloc left: global", "memory is one of shared, registers"),
        ("alloc right: shared bf16[2]", "alloc right: shared bf16[0]", "right has no stage"),
        ("registers f32", "registers bf16", "sums are float32"),
        ("alloc sums: registers", "alloc sums: shared", "0 allocations of sums"),
        ("lines: shared bf16[1][row 128", "lines: shared bf16[1][row 100", "100 lines are no mult"),
        ("column 64] swizzle(3, 4, 3)\nalloc sums", "column 8] linear\nalloc sums", "16 bytes are"),
        ("tiles=4 steps=2 blocks=3 share=4 over a 2, b 2\n    set sums",
         "tiles=4 steps=2 blocks=4 share=4 over a 2, b 2\n    set sums",
         "2 sequences of tiles"),
        ("in whole", "in turn", "an order is one of whole, stream_k, equal, tickets, not turn"),
        ("over a 2, b 2", "over a 2, b 3", "variables do not number the tiles"),
        ("share=4", "share=1", "1 steps of a block are not in the order whole"),
        ("blocks=3", "blocks=1", "1 blocks of 4 steps do not compute 4 tiles of 2"),
        ("for step over line 2", "for step over line 3", "variables do not number the steps"),
        ("producer: warps=1", "producer: warps=0", "neither warps nor a role around it"),
        ("consumers: warps=8", "consumers: inside producer", "inside producer, which has no group"),
        ("left <- p0", "other <- p0", "no alloc 'other'; there are left, right, lines, sums"),
        ("left <- p0", "left <- p7", "no parameter 'p7'"),
        ("64*line < 100] by tma\n      fill right", "64*line < 100] by hand\n      fill right",
         "an agent is one of threads, tma, not hand"),
        ("fill left", "fill sums", "sums is not in shared memory"),
        ("128*a <", "128*c <", "c is no variable of a loop around it"),
        ("128*a < 200", "128*a + -5 < 200", "a tile of p0 begins at -5"),
        ("p0[0 | 100: 128*a < 200", "p0[0 | 100: 128*a < 256", "p0 has the elements 0 to 19999"),
        ("p2[0 | 80", "p2[-1 | 80", "a view -1 to 15998"),
        ("by wgmma", "by hand", "mma, fma, wgmma_of_registers, mma_of_registers, not hand"),
        ("running=1", "running=2", "2 products run in 2 stages"),
        ("left: shared bf16[2]", "left: shared bf16[3]", "left and right have different stages"),
        ("left: shared bf16[2][row 128", "left: shared bf16[2][row 64",
         "sums have different sides"),
        ("right: shared bf16[2][k 64, column 64", "right: shared bf16[2][k 64, column 128",
         "sums have different sides from left and right"),
        ("right: shared bf16[2][k 64", "right: shared bf16[2][k 128",
         "left and right have different sizes along k"),
        ("left: shared bf16[2][row 128, k 64]", "left: shared bf16[2][row 128, step 64]",
         "left and right share the axes "),
        ("consumers: warps=8", "consumers: warps=4", "128 rows for 1 groups of 64"),
        ("k 64] swizzle(3, 4, 3)", "k 64] linear", "and left has a different layout"),
        ("cast sums", "where sums sums v1", "v1 is not computed before"),
        ("map v0: bf16 = cast", "map v0: bf16 = load", "LOAD is not elementwise"),
        ("map v0", "map sums", "sums is computed twice"),
        ("<- v0 through", "<- v1 through", "v1 is not computed before"),
        ("epilogue", "epilogue keeping v5 in 2 slices", "keeps v5, which nothing computes"),
        ("<- v0 through lines", "<- v0 through sums", "sums is not in shared memory"),
        (" written", "", "a store into what is only read"),
        ("map v0: bf16", "map v0: f16", "a store of float16 into bfloat16"),
        ("parameter p1: bf16", "parameter p1: f16", "a fill of bfloat16 with float16"),
        ("alloc lines: shared bf16", "alloc lines: shared f16", "a store of bfloat16 through"),
        ("epilogue", "epilogue keeping v0 in 5 slices", "64 columns are not 5 equal slices"),
        ("epilogue", "epilogue keeping v0 in 0 slices", "64 columns are not 0 equal slices"),
        ("through lines", "through left", "a store goes through left, which has several stages"),
        ("    epilogue", "    join sums\n    join sums\n    epilogue", "are joined 2 times"),
        ("    epilogue\n      map v0: bf16 = cast sums\n",
         "    epilogue keeping v1 in 4 slices\n      map v0: bf16 = cast sums\n"
         "      map v1: bf16 = neg v0\n", "v0 is not computed before"),
        ("    epilogue", "    join left\n    epilogue", "left are no sums in registers"),
        ("consumers: warps=8", "consumers: warps=8 registers=257", "65792 registers; a block has"),
    ],
)  # fmt: skip
def test_a_broken_program_is_refused(old: str, new: str, says: str) -> None:
    assert old in BY_ENGINE
    with pytest.raises(TileError) as raised:
        verify_tiles(parse(BY_ENGINE.replace(old, new)))
    assert says in str(raised.value)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("      wait full\n", "      wait half\n", "no barrier 'half'"),
        ("release producer but 1", "release empty but 1", "no barrier 'empty'"),
        ("release producer but 1", "release consumers but 1", "consumers is not inside consumers"),
        ("advance producer 2", "advance producer 0", "advances by 0"),
        ("advance producer 2", "advance consumers 2", "consumers is not inside consumers"),
        (" to full", "", "the fill of right reports to no barrier"),
        ("full: stages=2", "full: stages=3", "full and right have different stages"),
        ("      sync\n", "      map v1: f32 = neg sums\n", "what computes or stores is outside"),
        ("      fill left", "      sync\n      fill left", "inside another one, and does more"),
    ],
)  # fmt: skip
def test_broken_barriers_are_refused(old: str, new: str, says: str) -> None:
    text = to_text(synchronised(parse(BY_THREADS)))
    assert old in text
    with pytest.raises(TileError) as raised:
        verify_tiles(parse(text.replace(old, new)))
    assert says in str(raised.value)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("transpose left by 8", "transpose sums by 8", "sums is not in shared memory"),
        ("transpose left by 8", "transpose left by 0", "128 lines of left are no squares"),
        ("transpose left by 8", "transpose left by 64", "128 lines of left are no squares"),
        ("        fence\n", "        release producer but 0\n", "a fill or use is ahead"),
    ],
)
def test_broken_transposes_are_refused(old: str, new: str, says: str) -> None:
    text = to_text(synchronised(parse(BY_FMA)))
    assert old in text
    with pytest.raises(TileError) as raised:
        verify_tiles(parse(text.replace(old, new)))
    assert says in str(raised.value)


def test_squares_of_16_bits_are_not_transposed() -> None:
    product = "      mma sums"
    text = BY_ENGINE.replace(product, f"      transpose left by 8\n{product}")
    with pytest.raises(TileError, match="squares of bfloat16 are transposed"):
        verify_tiles(parse(text))


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("resume after last of at least 2", "resume after last of at least 3",
         "a pause has no resume of the same steps"),
        ("before last 2", "before last 3", "a pause before the last 3 of at least 2 steps"),
        ("shared bf16[2]", "shared bf16[4]", "of which the buffers have 4"),
    ],
)  # fmt: skip
def test_broken_pauses_are_refused(old: str, new: str, says: str) -> None:
    text = to_text(synchronised(parse(BY_ENGINE)))
    assert old in text
    changed = text.replace(old, new).replace("stages=2", f"stages={4 if '4' in new else 2}")
    with pytest.raises(TileError) as raised:
        verify_tiles(parse(changed))
    assert says in str(raised.value)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("    epilogue", "    drain 0\n    epilogue", "it has barriers already"),
        ("fill right", "fill lines", "left, lines are filled, others are used"),
        ("mma sums += left * right by wgmma running=1", "join sums", "one role fills, and one"),
    ],
)
def test_barriers_are_derived_for_fills_and_their_uses_alone(old: str, new: str, says: str) -> None:
    assert old in BY_ENGINE
    with pytest.raises(TileError) as raised:
        synchronised(parse(BY_ENGINE.replace(old, new)))
    assert says in str(raised.value)


def test_a_role_without_a_loop_over_tiles_is_refused() -> None:
    producer, consumers = parse(BY_ENGINE).roles
    idle = replace(parse(BY_ENGINE), roles=(replace(producer, body=()), consumers))
    with pytest.raises(TileError, match="role producer has 0 loops over tiles, not one"):
        verify_tiles(idle)
    twice = replace(idle, roles=(producer, replace(consumers, body=consumers.body * 2)))
    with pytest.raises(TileError, match="role consumers has 2 loops over tiles, not one"):
        verify_tiles(twice)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("gather v0: bf16 = p0", "gather v0: bf16 = p7", "no parameter 'p7'"),
        ("gather v0: bf16", "gather v0: f16", "p0 has bfloat16, and not v0"),
        ("100*m", "100*n", "n is no variable, and not computed before"),
        ("1*k]", "1*k] if v9", "v9 is not computed before"),
        ("map v1: f32 = cast v0", "map v0: f32 = cast v0", "v0 is computed twice"),
        ("        map v3: bf16 = cast v2\n", "", "a fill of bfloat16 with float32"),
        ("80*r + 1*v1] if v2", "80*r + 1*v1] if v1", "v1 is a condition, and no bool"),
        ("position v1 = 1*c", "position v1 = 1*v0", "v0 is no integer"),
        ("80*r + 1*v1] if v2", "80*i + 1*v1] if v2", "i is no variable"),
        ("80*r + 1*v1] if v2", "80*r + 1*v1] if v8", "v8 is not computed before"),
        ("store p2", "store p1", "a store into what is only read"),
    ],
)
def test_a_broken_computed_program_is_refused(old: str, new: str, says: str) -> None:
    verify_tiles(parse(COMPUTED))
    assert old in COMPUTED
    with pytest.raises(TileError) as raised:
        verify_tiles(parse(COMPUTED.replace(old, new)))
    assert says in str(raised.value)
