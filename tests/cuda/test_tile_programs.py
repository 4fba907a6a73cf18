"""Tile programs and the text of products agree: NVRTC checks, for the same kernel, that the text
computes as many stages, running products and slices as the program has."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

import lamina as lm
from lamina.core.dtypes import DType
from lamina.errors import CompileError
from lamina.frontend.lowered import Lowered
from lamina.runtime.cuda import compile_source
from lamina.runtime.source import KERNELS as BEFORE_KERNELS
from lamina.tiles import decisions
from lamina.tiles.program import Epilogue, Mma, TileProgram, statements


@dataclass(frozen=True)
class Numbers:
    """What the text computes: tiles of the buffers, products that may run beside the next step, and
    whether the epilogue overlaps."""

    stages: int
    running: int
    overlaps: bool


def lowered(rows: int, columns: int, steps: int, dtype: DType) -> Lowered:
    """A product for an H100."""
    with lm.using(tf32=True, search=0, schedule=""):
        specs = lm.TensorSpec((rows, steps), dtype), lm.TensorSpec((steps, columns), dtype)
        return lm.jit(lambda left, right: left @ right).lower(
            *specs, device="cuda:0", arch="sm_90a"
        )


def numbers_of(of: Lowered) -> Numbers:
    """What the only tile program of a function says."""
    (program,) = of.planned.tiles.values()
    assert isinstance(program, TileProgram)
    every = [one for role in program.roles for one in statements(role.body)]
    (mma,) = (one for one in every if isinstance(one, Mma))
    (epilogue,) = (one for one in every if isinstance(one, Epilogue))
    return Numbers(program.alloc(mma.left).stages, mma.running, bool(epilogue.kept))


def with_assertions(of: Lowered, numbers: Numbers) -> str:
    """The text of a function, which says these numbers to its compiler."""
    lines: list[str] = []
    for line in of.source.splitlines():
        lines.append(line)
        text = line.strip()
        if text.startswith("MULTISTAGE_BUFFERS("):
            lines.append(f"static_assert(depth == {numbers.stages});")
        elif text.startswith("BEGIN("):
            expected = str(numbers.overlaps).lower()
            lines.append(f"static_assert(overlaps == (Work::role == COMPUTES && {expected}));")
        elif text.startswith("static_assert(depth <= 16)"):
            lines.append(f"static_assert(lag == {numbers.running});")
    assert sum("static_assert(lag ==" in line for line in lines) == 1
    assert sum("static_assert(depth ==" in line for line in lines) == 1
    assert sum("static_assert(overlaps ==" in line for line in lines) == 1
    return "\n".join(lines)


# Sizes and dtypes, and what a reader of `products.cu` would say.
KERNELS = {
    (4096, 4096, 4096, lm.bfloat16): Numbers(stages=4, running=1, overlaps=True),
    (512, 512, 128, lm.float16): Numbers(stages=12, running=2, overlaps=False),
    (256, 256, 256, lm.float32): Numbers(stages=12, running=1, overlaps=False),
}


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: f"{kernel[0]}-{kernel[3].name}")
@pytest.mark.usefixtures("nvrtc")
def test_the_text_computes_what_the_program_says(kernel: tuple[int, int, int, DType]) -> None:
    of = lowered(*kernel)
    assert numbers_of(of) == KERNELS[kernel]
    assert compile_source(with_assertions(of, numbers_of(of)), "sm_90a")


@pytest.mark.usefixtures("nvrtc")
def test_the_text_agrees_where_threads_fill_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decisions, "engine_copy", lambda *_, **__: None)
    of = lowered(512, 512, 136, lm.bfloat16)
    numbers = numbers_of(of)
    assert not numbers.overlaps
    assert "COPY_TILE(" not in of.source.partition(BEFORE_KERNELS)[2]  # the engine fills none
    assert compile_source(with_assertions(of, numbers), "sm_90a")


@pytest.mark.usefixtures("nvrtc")
def test_another_number_is_refused() -> None:
    of = lowered(512, 512, 128, lm.float16)
    for wrong in (Numbers(11, 2, False), Numbers(12, 1, False), Numbers(12, 2, True)):
        with pytest.raises(CompileError, match="assert"):
            compile_source(with_assertions(of, wrong), "sm_90a")
