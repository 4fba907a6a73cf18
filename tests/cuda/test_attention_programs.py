"""Attention that is printed from tile programs: what it compiles to, and which parts of a program
decide what is printed."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

import lamina as lm
from lamina.core.dtypes import DType
from lamina.frontend.lowered import Lowered
from lamina.runtime.cuda import compile_source
from lamina.targets.cuda.printer import CudaPrinter
from lamina.tiles.program import TileError, TileProgram
from lamina.tiles.text import parse, to_text
from tests.cuda.test_frames import frame_bytes
from tests.tiles.test_attention import attention, gradients, mutants, of, programs_of


def lowered(
    function: Callable[..., Any],
    shapes: list[tuple[int, ...]],
    dtype: DType = lm.bfloat16,
    schedule: str = "",
) -> Lowered:
    """Attention for an H100."""
    with lm.using(search=0, schedule=schedule):
        specs = [lm.TensorSpec(shape, dtype) for shape in shapes]
        return lm.jit(function).lower(*specs, device="cuda:0", arch="sm_90a")


@pytest.mark.parametrize(
    ("function", "shapes", "dtype"),
    [
        (attention(is_causal=True), of(140, 260, 260, 64), lm.bfloat16),
        (attention(), of(16, 4096, 4096, 128), lm.float16),
        (partial(gradients, attention()), [*of(4, 300, 200, 64), (4, 300, 64)], lm.bfloat16),
    ],
)
@pytest.mark.usefixtures("nvrtc")
def test_programs_compile_and_keep_all_in_registers(
    function: Callable[..., Any], shapes: list[tuple[int, ...]], dtype: DType
) -> None:
    lowered_function = lowered(function, shapes, dtype)
    assert programs_of(lowered_function)
    assert "BACK_TO_BACK_LOOP" not in lowered_function.source
    assert frame_bytes(compile_source(lowered_function.source, "sm_90a")) == 0


def test_a_program_decides_what_is_printed() -> None:
    """Every wait and arrival has its place in the text; so have stages and registers."""
    lowered_function = lowered(attention(is_causal=True), of(8, 256, 256, 64))
    ((kernel, program),) = programs_of(lowered_function).items()
    plan = lowered_function.planned.plans[kernel]
    assert lowered_function.planned.source is not None

    def printed(changed: TileProgram) -> str:
        kernel_printer = CudaPrinter(plan.nest, plan.name, lm.core.target.DEFAULT_CUDA)
        kernel_printer.program = changed
        text, _ = kernel_printer.print_kernel()
        return text

    text = printed(program)
    assert text == lowered_function.planned.source.kernels[plan.name].strip()
    others = [printed(mutant) for name, mutant in mutants(program) if name]
    assert len({text, *others}) == 1 + len(others)
    program_text = to_text(program)
    two = parse(program_text.replace("bf16[8]", "bf16[2]").replace("stages=8", "stages=2"))
    assert "full_tile1[2], empty_tile1[2]" in printed(two)
    fewer = parse(program_text.replace("registers=240", "registers=200"))
    assert "take_registers<200>();" in printed(fewer)
    for more, says in (("      join totals0\n", "no text for Join"), ("      fence\n", "Fence")):
        changed = parse(program_text.replace("    set shift <- -inf\n", f"    {more.strip()}\n"))
        with pytest.raises(TileError, match=says):
            printed(changed)
    for number in ("2.0", "inf", "7"):
        changed = parse(program_text.replace("set factor <- 1.0", f"set factor <- {number}"))
        with pytest.raises(TileError, match=f"no text for Set.*factor.*{number}"):
            printed(changed)
    one = parse(program_text.replace("set factor <- 1.0", "set left0 <- 1.0"))
    with pytest.raises(TileError, match=r"no text for Set.*left0.*1\.0"):
        printed(one)


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
