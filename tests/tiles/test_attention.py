"""Products back to back that are lowered to tile programs: the interpreter makes of each what NumPy
does, with barriers that are derived."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pytest

import lamina as lm
from lamina import Tensor
from lamina.core.dtypes import DType
from lamina.core.target import CUDA, Target
from lamina.explain.check import run_kernel
from lamina.frontend.lowered import Lowered
from lamina.ir.kernel import Kernel
from lamina.tiles import attention as tiles_attention
from lamina.tiles.interpreter import interpret
from lamina.tiles.program import (
    BODIES,
    Arrive,
    Drain,
    Fence,
    Statement,
    Sync,
    TileError,
    TileLoop,
    TileProgram,
    Wait,
    statements,
    statements_of,
)
from lamina.tiles.text import parse, statement_text, to_text
from lamina.tiles.verify import verify_tiles
from tests.tiles.test_lower import FEW, lowered

Array = Any  # numpy.ndarray
TOLERANCE = {lm.bfloat16: 2e-2, lm.float16: 4e-3}


def attention(is_causal: bool = False) -> Callable[..., Tensor]:
    """Attention, whose rows see all keys, or those up to their own place."""

    def function(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return lm.scaled_dot_product_attention(query, key, value, is_causal=is_causal)

    return function


def with_window(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Attention to at most the last 70 keys."""
    rows, columns = lm.arange(query.shape[-2])[:, None], lm.arange(key.shape[-2])
    return lm.scaled_dot_product_attention(query, key, value, rows < columns + 70, is_causal=True)


def with_bias(query: Tensor, key: Tensor, value: Tensor, bias: Tensor) -> Tensor:
    """Attention whose scores have a bias."""
    return lm.scaled_dot_product_attention(query, key, value, bias)


def grouped(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Attention in which several heads of queries share keys and values."""
    return lm.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)


def gradients(function: Callable[..., Tensor], *arrays: Tensor) -> tuple[Tensor, ...]:
    """The result of attention, and its derivatives."""
    *inputs, up = arrays
    result = function(*inputs)
    return result, *lm.gradient(result, inputs, up)


@dataclass(frozen=True)
class Case:
    """Attention of these shapes: queries, keys and values, and what else it has."""

    function: Callable[..., Any]
    shapes: list[tuple[int, ...]]
    dtype: DType = lm.bfloat16
    programs: int = 1
    moves: str = ""  # of the schedule
    target: Target = FEW


def of(heads: int, rows: int, keys: int, elements: int) -> list[tuple[int, ...]]:
    """The shapes of queries, keys and values."""
    return [(heads, rows, elements), (heads, keys, elements), (heads, keys, elements)]


CASES: dict[str, Case] = {
    "whole tiles": Case(attention(), of(2, 256, 256, 64)),
    "ragged": Case(attention(), of(3, 200, 300, 64), lm.float16),
    "causal": Case(attention(is_causal=True), of(2, 384, 384, 64)),
    "causal and ragged": Case(attention(is_causal=True), of(2, 300, 300, 128)),
    "two panels": Case(attention(), of(2, 130, 260, 128)),
    "rows of 80": Case(attention(), of(1, 130, 150, 80), lm.float16),
    "sliding window": Case(with_window, of(2, 400, 400, 64)),
    "bias": Case(with_bias, [*of(2, 200, 136, 64), (2, 200, 136)]),
    "not ahead": Case(attention(is_causal=True), of(2, 300, 300, 64), moves="ahead(0)"),
    "two stages": Case(with_window, of(2, 400, 400, 64), moves="depth(2)"),
    "one stage": Case(attention(), of(2, 130, 200, 64), moves="ahead(0); depth(1)"),
    "grouped queries": Case(grouped, [(1, 4, 130, 64), (1, 2, 130, 64), (1, 2, 130, 64)]),
}


for name, rows, keys, elements, is_causal in (
    ("gradients", 200, 136, 64, False),
    ("gradients of rows of 128", 130, 200, 128, False),
    ("causal gradients", 150, 150, 64, True),
):
    shapes = [*of(2, rows, keys, elements), (2, rows, elements)]
    CASES[name] = Case(partial(gradients, attention(is_causal)), shapes, programs=3)


def of_scaled(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Attention to keys that are computed as their tiles are filled."""
    return lm.scaled_dot_product_attention(query, key * 0.5, value, is_causal=True)


def of_joined(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Attention to keys and values of two arrays each."""
    keys, values = lm.concat([key, key * 2], axis=-2), lm.concat([value, value], axis=-2)
    return lm.scaled_dot_product_attention(query, keys, values)


def of_gathered(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Attention to keys and values at places that data say."""
    places = lm.arange(key.shape[-2]) // 2
    return lm.scaled_dot_product_attention(query, key[:, places], value[:, places])


def of_flipped(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Attention to keys and values that lie backwards."""
    return lm.scaled_dot_product_attention(query, lm.flip(key, -2), lm.flip(value, -2))


# Tensor cores for which threads wait; the latter has room for tiles of rows of 128 alone.
SM_80, SM_86 = (replace(CUDA[arch], multiprocessors=3) for arch in ("sm_80", "sm_86"))
SMALL = replace(FEW, shared_bytes=98 << 10)  # has room for these alone, beside a producer

CASES |= {
    "rows of 50": Case(with_window, of(2, 300, 300, 50), lm.float16),
    "scaled": Case(of_scaled, of(2, 200, 200, 64)),
    "joined": Case(of_joined, of(2, 130, 70, 64)),
    "gathered": Case(of_gathered, of(2, 130, 100, 64), lm.float16),
    "flipped": Case(of_flipped, of(2, 130, 128, 64)),
    "no room beside a producer": Case(attention(), of(2, 130, 260, 128), target=SMALL),
    "sm_80": Case(attention(is_causal=True), of(2, 300, 300, 64), target=SM_80),
    "sm_80, one stage": Case(with_window, of(2, 300, 300, 64), moves="depth(1)", target=SM_80),
    "sm_80, joined": Case(of_joined, of(1, 200, 70, 72), lm.float16, target=SM_80),
    "sm_86, no room": Case(attention(is_causal=True), of(2, 200, 200, 128), target=SM_86),
}
for name, target, elements, dtype in (
    ("sm_80, gradients", SM_80, 72, lm.float16),
    ("sm_86, gradients of rows of 128", SM_86, 128, lm.bfloat16),
):
    shapes = [*of(1, 150, 150, elements), (1, 150, elements)]
    CASES[name] = Case(partial(gradients, attention(True)), shapes, dtype, 3, target=target)


def programs_of(of: Lowered) -> dict[Kernel, TileProgram]:
    """The tile programs of all products back to back."""
    return {
        kernel: program
        for kernel, program in of.planned.tiles.items()
        if isinstance(kernel, Kernel)
        and isinstance(program, TileProgram)
        and any(
            loop.tickets for role in program.roles for loop in statements_of(role.body, TileLoop)
        )
    }


def check(kernel: Kernel, program: TileProgram, dtype: DType, seed: int) -> None:
    """Compare what a program computes with the reference of its kernel."""
    rng = np.random.default_rng(seed)
    arrays = [
        np.abs(rng.standard_normal(parameter.size)).astype(parameter.dtype.numpy)
        if parameter.dtype is lm.float32
        else rng.standard_normal(parameter.size).astype(parameter.dtype.numpy)
        for parameter in kernel.parameters
    ]
    wanted = [array.copy() for array in arrays]
    run_kernel(kernel, wanted)
    interpret(program, {f"p{number}": array for number, array in enumerate(arrays)}, seed)
    for parameter, got, want in zip(kernel.parameters, arrays, wanted, strict=True):
        if parameter.written:
            scale = np.abs(want.astype(np.float64)).max()
            tolerance = TOLERANCE[dtype]
            np.testing.assert_allclose(
                got.astype(np.float64), want.astype(np.float64), tolerance, tolerance * scale
            )


@pytest.mark.parametrize("name", CASES)
def test_attention_is_what_its_kernel_says(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case = CASES[name]
    atom = "mma_bf16_128x64" if case.moves else ""
    of = lowered(
        case.function, case.shapes, case.dtype, monkeypatch, atom, then=case.moves,
        target=case.target,
    )  # fmt: skip
    programs = programs_of(of)
    assert len(programs) == case.programs
    for seed, (kernel, program) in enumerate(programs.items()):
        verify_tiles(program)
        assert parse(to_text(program)) == program
        check(kernel, program, case.dtype, seed)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("for first step", "for others step",
         "skipped_before, others, others, last, skipped_behind are not"),
        ("inner0 = tile0 * tile1", "inner0 = tile1 * tile1", "share the axes element, key"),
        ("inner0 = tile0 * tile1", "totals0 = tile0 * tile1", "totals0 have different sides from"),
        ("by wgmma_of_registers", "by wgmma", "wgmma reads left0 in registers"),
        ("alloc left0: registers bf16", "alloc left0: registers f32", "have different dtypes"),
        ("arrive empty_rows", "arrive rows", "no barrier 'rows'"),
        ("set shift <- -inf", "set shifts <- -inf", "shifts are no registers"),
        ("max v4", "max v9", "v9 is not computed before"),
        ("by factor below row_max", "by factor below maximum", "maximum are no registers"),
        ("rescale totals0 by factor", "rescale totals0 by v1", "totals0 or v1 are no registers"),
        ("set left0 <- parts0", "set parts0 <- left0", "parts0 of float32 is set to bfloat16"),
        ("slope 64", "slope 0", "a mask leaves out no step, or all"),
        ("mask -128*a7", "mask -128*r3", "a mask by r3, which number no tile"),
        ("by 2 row tiles", "by 3 row tiles", "4 tiles are no arrays of 3"),
    ],
)  # fmt: skip
def test_each_invariant_is_checked(
    old: str, new: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_case = lowered(attention(is_causal=True), of(2, 256, 256, 64), lm.bfloat16, monkeypatch)
    (program,) = programs_of(of_case).values()
    text = to_text(program)
    assert old in text
    with pytest.raises(TileError, match=re.escape(says)):
        verify_tiles(parse(text.replace(old, new)))


# What orders fills and uses, and how a test says which one it leaves out.
ORDERING = (Wait, Arrive, Drain, Fence, Sync)


def without(body: tuple[Statement, ...], number: int, count: list[int]) -> tuple[Statement, ...]:
    """A body without its ordering statement of this number; `count` has how many came before."""
    kept: list[Statement] = []
    for statement in body:
        if isinstance(statement, ORDERING):
            count[0] += 1
            if count[0] - 1 == number:
                continue
        if isinstance(statement, BODIES):
            inside = without(statement.body, number, count)
            kept.append(replace(statement, body=inside))  # type: ignore[arg-type]
        else:
            kept.append(statement)
    return tuple(kept)


def mutants(program: TileProgram) -> Iterator[tuple[str, TileProgram]]:
    """A program without one of its waits, arrivals, drains, fences or syncs, and which one it is.
    """
    for role in program.roles:
        ordering = [part for part in statements(role.body) if isinstance(part, ORDERING)]
        for number, statement in enumerate(ordering):
            body = without(role.body, number, [0])
            roles = tuple(
                replace(other, body=body) if other is role else other for other in program.roles
            )
            yield f"{role.name} {number} {statement_text(statement)}", replace(program, roles=roles)


def fails(kernel: Kernel, program: TileProgram, dtype: DType) -> bool:
    """Does one of some runs end in an error, or in another result?"""
    for seed in range(4):
        try:
            check(kernel, program, dtype, seed)
        except (TileError, AssertionError):
            return True
    return False


def survivors(case: Case, count: int, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The ordering statements, of so many, without which a program of one block still runs."""
    one_block = replace(case.target, multiprocessors=1)
    atom = "mma_bf16_128x64" if case.moves else ""
    of = lowered(
        case.function, case.shapes, case.dtype, monkeypatch, atom, then=case.moves,
        target=one_block,
    )  # fmt: skip
    ((kernel, program),) = programs_of(of).items()
    assert not fails(kernel, program, case.dtype)
    every = dict(mutants(program))
    assert len(every) == count
    return {text for text, mutant in every.items() if not fails(kernel, mutant, case.dtype)}


def test_no_wait_and_no_arrival_can_be_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """But the wait for tiles of the current step's outer products, which stands where a branch
    keeps arithmetic before the wait for the products of the step before; and of a step that is left
    out the first wait, as the producer fills the second tile after the first one. Tiles that stay
    are filled too early only where all steps of the next rows are in the buffers."""
    few_steps = survivors(Case(with_window, of(4, 128, 128, 64)), 26, monkeypatch)
    for name in ("SHALLOW", "DEEP"):  # stages: slots are filled again soon
        monkeypatch.setattr(tiles_attention, name, 2)
    few_stages = survivors(Case(with_window, of(1, 400, 400, 64)), 26, monkeypatch)
    assert few_stages & few_steps == {
        "consumers 1 wait full_tile1",
        "consumers 12 wait full_tile2",
        "consumers 19 wait full_tile1",
    }


@pytest.mark.parametrize(
    ("target", "moves", "count"),
    [(FEW, "depth(2)", 4), (FEW, "depth(1)", 5), (SM_80, "depth(2)", 1), (SM_80, "depth(1)", 2)],
)
def test_no_sync_and_no_fence_of_threads_that_fill_can_be_left_out(
    target: Target, moves: str, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = Case(with_window, of(2, 250, 250, 50), moves=moves, target=target)
    assert not survivors(case, count, monkeypatch)


def test_a_sync_tells_the_ticket(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is a part of the loop, so that the verifier wants no barrier of it, and one of others."""
    of_case = lowered(attention(), of(2, 256, 256, 50), lm.bfloat16, monkeypatch)
    (program,) = programs_of(of_case).values()
    text = to_text(program)
    told = re.sub(r"(by \d+ row tiles of \d+ arrays)", r"\1 to drawn", text)
    assert told != text
    with pytest.raises(TileError, match="one role has a barrier for its tickets"):
        verify_tiles(parse(told))
