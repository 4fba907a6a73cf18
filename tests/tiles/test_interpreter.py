"""Tile programs run in the interpreter: results are NumPy's in any order of events, and each
defect that is planted is found."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from lamina.errors import LaminaError
from lamina.tiles.barriers import synchronised
from lamina.tiles.interpreter import Report, interpret
from lamina.tiles.layouts import LINEAR, SWIZZLE_128, SWIZZLE_PAIRS, conflicts_of_pairs
from lamina.tiles.memory import (
    DeadlockError,
    PhaseError,
    ProxyError,
    UnfilledError,
    UnorderedError,
    rounded_to_tf32,
)
from lamina.tiles.program import TileError
from lamina.tiles.text import parse, to_text
from tests.tiles.programs import BY_ENGINE, BY_FMA, BY_THREADS, COMPUTED

ROWS, COLUMNS, STEPS = 200, 80, 100
SEEDS = range(5)


def arrays(dtype: Any = ml_dtypes.bfloat16) -> dict[str, Any]:
    """The arrays of the programs: small integers, whose sums of products are exact."""
    draw = np.random.default_rng(7)
    left = draw.integers(-4, 5, (ROWS, STEPS))
    right = draw.integers(-4, 5, (STEPS, COLUMNS))
    return {
        "p0": left.astype(dtype).reshape(-1),
        "p1": right.astype(dtype).reshape(-1),
        "p2": np.full(20000, np.nan, dtype),
    }


def run(text: str, seed: int) -> tuple[Any, Any, Report]:
    """What a program with its barriers makes of `arrays`, what NumPy does, and the report."""
    program = parse(text)
    given = arrays(program.parameter("p0").dtype.numpy)
    report = interpret(program, given, seed)
    want = given["p0"].reshape(ROWS, STEPS).astype(int) @ given["p1"].reshape(STEPS, -1).astype(int)
    got = given["p2"][: ROWS * COLUMNS].reshape(ROWS, COLUMNS)
    assert np.isnan(given["p2"][ROWS * COLUMNS :].astype(np.float32)).all()
    return got, want.astype(got.dtype), report


def with_barriers(text: str, old: str = "", new: str = "") -> str:
    """The text of a program with its barriers, and with one change in it."""
    full = to_text(synchronised(parse(text)))
    assert old in full
    return full.replace(old, new)


SLICED = BY_ENGINE.replace("epilogue", "epilogue keeping v0 in 4 slices")
# 4 tiles of 2 steps for 6 blocks: 4 have first parts, 2 share rests.
STREAM_K = BY_ENGINE.replace("in whole", "in stream_k")
STREAM_K = STREAM_K.replace("blocks=3 share=4", "blocks=8 share=1")
STREAM_K = STREAM_K.replace("    epilogue", "    join sums\n    epilogue")


# The same in equal parts, and with one stage.
EQUAL = BY_FMA.replace("in whole", "in equal").replace("blocks=3 share=8", "blocks=7 share=3")
EQUAL = EQUAL.replace("    epilogue", "    join sums\n    epilogue")
ONE_STAGE = BY_FMA.replace("shared f32[2]", "shared f32[1]")


@pytest.mark.parametrize(
    "text", [BY_ENGINE, BY_THREADS, SLICED, STREAM_K, BY_FMA, EQUAL, ONE_STAGE]
)
def test_results_are_those_of_numpy_in_any_order(text: str) -> None:
    for seed in SEEDS:
        got, want, report = run(with_barriers(text), seed)
        np.testing.assert_array_equal(got, want)
        assert not any(report.conflicts.values())


def caught(text: str) -> set[type[LaminaError]]:
    """The errors that a program raises in some orders of events; results are wrong in no order
    without one."""
    errors: set[type[LaminaError]] = set()
    for seed in SEEDS:
        try:
            got, want, _ = run(text, seed)
        except TileError as error:
            errors.add(type(error))
        else:
            np.testing.assert_array_equal(got, want)
    return errors


def test_a_missing_wait_for_a_fill_is_found() -> None:
    text = with_barriers(BY_ENGINE, "      wait full\n", "")
    assert caught(text) <= {UnfilledError, UnorderedError}
    with pytest.raises((UnfilledError, UnorderedError)):
        run(text, 0)


def test_a_missing_wait_for_a_release_is_found() -> None:
    assert UnorderedError in caught(with_barriers(BY_ENGINE, "      acquire empty\n", ""))


def test_a_wrong_parity_is_found() -> None:
    early = with_barriers(BY_ENGINE, "wait full", "acquire full")
    assert caught(early) & {UnfilledError, PhaseError}
    late = with_barriers(BY_ENGINE, "acquire empty", "wait empty")
    assert caught(late) == {DeadlockError}


def test_a_phase_that_a_waiter_missed_is_found() -> None:
    """A barrier of fewer slots than its buffer, and a producer that waits for nobody: the phase of
    a use is over when another one with the same last bit ends."""
    text = with_barriers(BY_ENGINE, "      acquire empty\n", "")
    text = text.replace("shared bf16[2]", "shared bf16[8]")
    text = text.replace("blocks=3 share=4", "blocks=1 share=8")
    messages: list[str] = []
    for seed in SEEDS:
        with pytest.raises(TileError) as raised:
            run(text, seed)
        messages.append(str(raised.value))
    assert any("passes in phase" in message for message in messages)


def test_a_slot_too_few_is_found() -> None:
    """The barriers have as many stages as before, and the buffers one less."""
    fewer = with_barriers(BY_ENGINE).replace("shared bf16[2]", "shared bf16[1]")
    assert UnorderedError in caught(fewer)


def test_a_slot_too_few_for_products_that_run_is_found() -> None:
    """One product may run, and its slot is the only one: nobody releases it."""
    fewer = with_barriers(BY_ENGINE).replace("bf16[2]", "bf16[1]").replace("stages=2", "stages=1")
    assert caught(fewer) == {DeadlockError}


def test_a_slot_that_is_released_while_a_product_reads_it_is_found() -> None:
    text = with_barriers(BY_ENGINE, "release empty but 1", "release empty but 0")
    assert UnorderedError in caught(text)
    without_drain = with_barriers(BY_ENGINE, "      drain 1\n", "")
    assert UnorderedError in caught(without_drain)


def test_sums_that_are_read_while_products_run_are_found() -> None:
    text = with_barriers(BY_ENGINE, "    drain 0\n    release empty but 0\n", "")
    with pytest.raises(TileError, match="reads sums while products run"):
        run(text, 0)


def test_a_missing_fence_is_found() -> None:
    assert caught(with_barriers(BY_THREADS, "      fence\n", "")) == {ProxyError}


def test_a_fence_behind_the_sync_is_found() -> None:
    text = with_barriers(BY_THREADS, "      fence\n      sync\n", "      sync\n      fence\n")
    assert ProxyError in caught(text)


def test_a_missing_sync_is_found() -> None:
    text = with_barriers(BY_THREADS, "      fence\n      sync\n", "      fence\n")
    assert caught(text) & {UnorderedError, ProxyError, UnfilledError}


@pytest.mark.parametrize(
    ("old", "new", "errors"),
    [
        # Nobody waits for the fill, or for what others transpose, or for those who still read.
        ("        wait full\n", "", {UnfilledError, UnorderedError}),
        ("        sync\n", "", {UnorderedError}),
        ("    fence\n    sync\n", "    fence\n", {UnorderedError}),
        ("        fence\n", "", {ProxyError}),
    ],
)
def test_what_changes_tiles_ahead_is_in_an_order(
    old: str, new: str, errors: set[type[LaminaError]]
) -> None:
    by_engine = BY_FMA.replace("by threads", "by tma")
    for text in (BY_FMA, by_engine):
        if old in with_barriers(text):
            found = caught(with_barriers(text, old, new))
            assert found
            assert found <= errors


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("      transpose left by 8\n", ""),
        ("transpose right by 16", "transpose right by 8"),
        ("swizzle(3, 4, 3)\nalloc right", "linear\nalloc right"),
    ],
)
def test_tiles_that_are_not_as_fused_multiply_adds_read_them_give_other_sums(
    old: str, new: str
) -> None:
    assert old in BY_FMA
    got, want, _ = run(with_barriers(BY_FMA.replace(old, new)), 0)
    assert (got != want).any()


def test_a_slot_that_was_read_is_not_changed() -> None:
    """The tiles of a step are transposed once more, after its product."""
    product = "      mma sums += left * right by fma\n"
    text = with_barriers(BY_FMA, product, product + "      transpose left by 8\n")
    assert caught(text) == {UnorderedError}


def test_an_unordered_pair_of_stores_is_found() -> None:
    """Blocks that store the sums of their part of a tile, and none adds them up."""
    assert UnorderedError in caught(with_barriers(STREAM_K, "    join sums\n", ""))
    same_rows = with_barriers(BY_ENGINE, "p2[0 | 80: 128*a < 200", "p2[0 | 80: 0*a < 200")
    assert UnorderedError in caught(same_rows)


@pytest.mark.parametrize("buffer", ["left", "right"])
def test_a_swizzle_on_one_side_only_makes_wrong_results(buffer: str) -> None:
    """Fills write lines as they are, and the unit reads them swizzled."""
    lines = with_barriers(BY_ENGINE).splitlines()
    changed = [
        line.replace("swizzle(3, 4, 3)", "linear") if line.startswith(f"alloc {buffer}") else line
        for line in lines
    ]
    assert changed != lines
    got, want, report = run("\n".join(changed), 0)
    assert (got != want).any()
    assert report.conflicts[f"mma {buffer}"] > 0


def test_a_program_without_its_barriers_is_refused() -> None:
    with pytest.raises(TileError, match="call synchronised"):
        run(BY_ENGINE, 0)


def test_a_statement_in_a_place_without_meaning_is_refused() -> None:
    misplaced = "      map v9: f32 = cast sums\n"
    text = with_barriers(BY_ENGINE, "      drain 1\n", f"{misplaced}      drain 1\n")
    with pytest.raises(TileError, match="Map in a place without meaning"):
        run(text, 0)


def test_more_arrivals_than_a_barrier_expects_are_found() -> None:
    assert PhaseError in caught(with_barriers(BY_ENGINE, "arrivals=8", "arrivals=6"))


def test_fewer_arrivals_than_a_barrier_expects_are_a_deadlock() -> None:
    assert caught(with_barriers(BY_ENGINE, "arrivals=8", "arrivals=9")) == {DeadlockError}
    with pytest.raises(DeadlockError, match="nobody can go on"):
        run(with_barriers(BY_ENGINE, "full: stages=2 arrivals=2", "full: stages=2 arrivals=3"), 0)


def test_a_pause_that_nobody_ends_is_a_deadlock() -> None:
    text = with_barriers(BY_ENGINE, "      resume after last of at least 2\n", "")
    assert caught(text) == {DeadlockError}


def test_a_pause_before_more_steps_than_the_buffers_hold_is_a_deadlock() -> None:
    """The first group needs a slot that the second one has not used."""
    text = with_barriers(BY_ENGINE).replace("bf16[2]", "bf16[1]").replace("stages=2", "stages=1")
    text = text.replace("drain 1", "drain 0").replace("empty but 1", "empty but 0")
    assert caught(text) == {DeadlockError}
    at_once = text.replace("pause before last 2", "pause before last 1")
    assert caught(at_once) == set()


def test_a_group_that_is_resumed_twice_in_one_pause_is_found() -> None:
    text = with_barriers(BY_ENGINE)
    begin = text.index("      pause before")
    end = text.index("      mma", begin)
    assert PhaseError in caught(text[:begin] + text[end:])


def test_computed_tiles_are_those_of_views() -> None:
    for seed in SEEDS:
        got, want, _ = run(with_barriers(COMPUTED), seed)
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("1000*i + 100*m + 1*k]", "1001*i + 200*m + 1*k]", "p0 has 20000 elements; a place is"),
        ("1*k]", "1*k + -5]", "p0 has 20000 elements; a place is -5"),
        ("80*r + 1*v1", "101*r + 1*v1", "p2 has 20000 elements; a place is"),
    ],
)
def test_a_place_beyond_an_array_is_found(old: str, new: str, says: str) -> None:
    with pytest.raises(TileError, match=says):
        run(with_barriers(COMPUTED, old, new), 0)


def test_defects_of_computed_tiles_are_found() -> None:
    """The fills that compute are ordered as others: a fence that is missing, and two stores of one
    element."""
    assert caught(with_barriers(COMPUTED, "      fence\n", "")) == {ProxyError}
    assert UnorderedError in caught(with_barriers(COMPUTED, "p2[80*r + 1*v1]", "p2[1*v1]"))


def test_conflicts_of_lines_are_counted() -> None:
    """Eight rows of a column of chunks: one bank each with the swizzle, all one without."""
    _, _, report = run(
        with_barriers(BY_ENGINE, "lines: shared bf16[1][row 128, column 64] swizzle(3, 4, 3)",
                      "lines: shared bf16[1][row 128, column 64] linear"), 0)  # fmt: skip
    # 128 rows in eights, by 8 columns of chunks, each 8 accesses in place of 1; 2 groups, 4 tiles.
    assert report.conflicts["store lines"] == 16 * 8 * 7 * 2 * 4
    assert report.conflicts["mma left"] == 0


def test_conflicts_of_pairs_are_those_of_the_banks() -> None:
    """16 threads write 8 bytes each of four rows at once: by hand, over all words and banks."""
    for swizzle in (LINEAR, SWIZZLE_128, SWIZZLE_PAIRS):
        more = 0
        for row in range(0, 8, 4):
            for column in range(0, 128, 32):
                uses = np.zeros(32, int)
                for byte in range(0, 32, 4):
                    for line in range(4):
                        place = (row + line) * 128 + column + byte
                        uses[int(swizzle.apply(np.array(place))) // 4 % 32] += 1
                more += uses.max() - 1
        assert conflicts_of_pairs(swizzle, (8, 32), 4) == more
    assert conflicts_of_pairs(SWIZZLE_PAIRS, (8, 32), 4) == 0


def test_tf32_has_ten_bits_of_fraction() -> None:
    values = np.array([1 + 2**-11, 1 + 2**-12, -1 - 2**-11, 3.0], np.float32)
    want = np.array([1 + 2**-10, 1.0, -1 - 2**-10, 3.0], np.float32)
    np.testing.assert_array_equal(rounded_to_tf32(values), want)
