"""Attention that is printed from tile programs: what it compiles to, and which parts of a program
decide what is printed."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

import lamina as lm
from lamina.core.dtypes import DType
from lamina.core.target import CUDA
from lamina.frontend.lowered import Lowered
from lamina.runtime.nvrtc import compile_source
from lamina.targets.cuda.program import print_kernel
from lamina.tiles.program import TileError, TileProgram
from lamina.tiles.text import parse, to_text
from tests.cuda.test_frames import frame_bytes
from tests.tiles.test_attention import (
    attention,
    gradients,
    mutants,
    of,
    of_joined,
    programs_of,
)


def lowered(
    function: Callable[..., Any],
    shapes: list[tuple[int, ...]],
    dtype: DType = lm.bfloat16,
    schedule: str = "",
    arch: str = "sm_90a",
) -> Lowered:
    """Attention for an H100, or another GPU."""
    with lm.using(search=0, schedule=schedule):
        specs = [lm.TensorSpec(shape, dtype) for shape in shapes]
        return lm.jit(function).lower(*specs, device="cuda:0", arch=arch)


@pytest.mark.parametrize(
    ("function", "shapes", "dtype", "arch"),
    [
        (attention(is_causal=True), of(140, 260, 260, 64), lm.bfloat16, "sm_90a"),
        (attention(), of(16, 4096, 4096, 128), lm.float16, "sm_90a"),
        (
            partial(gradients, attention()), [*of(4, 300, 200, 64), (4, 300, 64)], lm.bfloat16,
            "sm_90a",
        ),
        (of_joined, of(4, 300, 200, 64), lm.float16, "sm_90a"),
        (attention(is_causal=True), of(4, 300, 300, 72), lm.bfloat16, "sm_80"),
        (attention(), of(4, 1024, 1024, 128), lm.float16, "sm_86"),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("nvrtc")
def test_programs_compile_and_keep_all_in_registers(
    function: Callable[..., Any], shapes: list[tuple[int, ...]], dtype: DType, arch: str
) -> None:
    lowered_function = lowered(function, shapes, dtype, arch=arch)
    assert programs_of(lowered_function)
    assert frame_bytes(compile_source(lowered_function.source, arch)) == 0


def printed(lowered_function: Lowered, program: TileProgram, arch: str = "sm_90a") -> str:
    """The text of the only kernel with products back to back, of a changed program."""
    (kernel,) = programs_of(lowered_function)
    plan = lowered_function.planned.plans[kernel]
    return print_kernel(plan.nest, plan.name, CUDA[arch], program).text


def test_a_program_decides_what_is_printed() -> None:
    """Every wait and arrival has its place in the text; so have stages and registers."""
    lowered_function = lowered(attention(is_causal=True), of(8, 256, 256, 64))
    (program,) = programs_of(lowered_function).values()
    printed_anew = partial(printed, lowered_function)
    text = printed_anew(program)
    assert text in lowered_function.source
    others = [printed_anew(mutant) for name, mutant in mutants(program) if name]
    assert len({text, *others}) == 1 + len(others)
    program_text = to_text(program)
    two = parse(program_text.replace("bf16[8]", "bf16[2]").replace("stages=8", "stages=2"))
    assert "full_tile1[2], empty_tile1[2]" in printed_anew(two)
    fewer = parse(program_text.replace("registers=240", "registers=200"))
    assert "take_registers<200>();" in printed_anew(fewer)
    for more, says in (("join totals0", "no text for Join"), ("sync", "no text for Sync")):
        changed = parse(program_text.replace("    set shift <- -inf\n", f"    {more}\n"))
        with pytest.raises(TileError, match=says):
            printed_anew(changed)
    for number in ("2.0", "inf", "7"):
        changed = parse(program_text.replace("set factor <- 1.0", f"set factor <- {number}"))
        with pytest.raises(TileError, match=f"no text for Set.*factor.*{number}"):
            printed_anew(changed)
    one = parse(program_text.replace("set factor <- 1.0", "set left0 <- 1.0"))
    with pytest.raises(TileError, match=r"no text for Set.*left0.*1\.0"):
        printed_anew(one)


@pytest.mark.parametrize(("arch", "elements"), [("sm_90a", 50), ("sm_80", 64)])
def test_a_program_of_one_role_decides_what_is_printed(arch: str, elements: int) -> None:
    lowered_function = lowered(attention(), of(8, 256, 256, elements), arch=arch)
    (program,) = programs_of(lowered_function).values()
    text = printed(lowered_function, program, arch)
    assert text in lowered_function.source
    others = [printed(lowered_function, mutant, arch) for _, mutant in mutants(program)]
    assert others
    assert len({text, *others}) == 1 + len(others)


def test_left_factors_are_in_float32_until_they_are_packed() -> None:
    """Their rounding would make them bits of 16, also beside values of two arrays, which are a
    choice and no cast."""
    source = lowered(of_joined, of(4, 300, 200, 64)).source
    values = re.findall(r" parts0\[\d+\] = (\w+);", source)
    assert values
    assert all(value.startswith("exp2_") for value in values)


def test_steps_that_are_not_ahead_wait_for_their_products() -> None:
    """One loop over steps, and no products beside others."""
    moves = "tensorize(mma_bf16_128x64); ahead({})"
    ahead, not_ahead = (
        lowered(attention(), of(8, 1024, 1024, 64), schedule=moves.format(steps)).source
        for steps in (1, 0)
    )
    assert ahead.count("wgmma_wait<1>();") == 1
    assert not_ahead.count("wgmma_wait<0>();") == 2
    assert "wgmma_wait<1>();" not in not_ahead
