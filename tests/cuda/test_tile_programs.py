"""Kernels that are printed from tile programs: what is left of them in hand-written text, what they
compile to, and which parts of a program decide what is printed."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import lamina as lm
from lamina import Tensor
from lamina.core.dtypes import DType
from lamina.frontend.lowered import Lowered
from lamina.runtime.nvrtc import compile_source
from lamina.runtime.source import KERNELS as BEFORE_KERNELS
from lamina.targets.cuda import printer
from lamina.targets.cuda.program import print_kernel
from lamina.tiles import decisions
from lamina.tiles.program import Epilogue, Fill, Mma, TileError, TileProgram, statements
from lamina.tiles.text import parse, to_text
from tests.cuda.test_frames import frame_bytes
from tests.tiles import test_lower
from tests.tiles.test_pipelining import MOVES, SHAPES

MAX_INSTRUCTIONS = 400  # lines


def lowered(
    rows: int,
    columns: int,
    steps: int,
    dtype: DType,
    is_turned: str = "",
    tf32: bool = True,
    **form: Callable,
) -> Lowered:
    """A product for an H100, of which factors may be transposed in memory."""

    def product(left: Tensor, right: Tensor) -> Tensor:
        value = (left.T if "a" in is_turned else left) @ (right.T if "b" in is_turned else right)
        return form["after"](value) if form else value

    left = (steps, rows) if "a" in is_turned else (rows, steps)
    right = (columns, steps) if "b" in is_turned else (steps, columns)
    with lm.using(tf32=tf32, search=0, schedule=""):
        specs = lm.TensorSpec(left, dtype), lm.TensorSpec(right, dtype)
        return lm.jit(product).lower(*specs, device="cuda:0", arch="sm_90a")


def kernel_of(of: Lowered) -> str:
    """The text of the kernel that has a tile program."""
    (kernel,) = of.planned.tiles
    assert of.planned.source is not None
    return of.planned.source.kernels[of.planned.plans[kernel].name]


def program_of(of: Lowered) -> TileProgram:
    """The only tile program of a function."""
    (program,) = of.planned.tiles.values()
    assert isinstance(program, TileProgram)
    return program


def test_instructions_have_no_loops() -> None:
    """What is done several times is printed; what is written by hand are single instructions."""
    text = Path(printer.__file__).with_name("instructions.cu").read_text(encoding="utf-8")
    code = re.sub(r"/\*.*?\*/|//[^\n]*", "", text, flags=re.DOTALL)
    assert not re.search(r"\b(for|while|do|goto)\b", code)
    assert len(text.splitlines()) <= MAX_INSTRUCTIONS


# Of whole tiles whose epilogue overlaps, of ragged ones, of few steps, of shared steps, and of
# parts that leave no step to the last blocks.
SIZES = [
    (4096, 4096, 1024), (520, 264, 136), (256, 256, 64), (384, 640, 4096), (2304, 2048, 8192),
    (40, 128, 100_000),
]  # fmt: skip
DTYPES = (lm.bfloat16, lm.float16, lm.float32)


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.usefixtures("nvrtc")
def test_products_compile_without_a_stack(size: tuple[int, int, int], dtype: DType) -> None:
    """ptxas keeps all registers, and products do not wait for each other: it says so otherwise."""
    of = lowered(*size, dtype, "a" if dtype is lm.float32 else "")
    assert "wgmma_commit();" in kernel_of(of)
    assert frame_bytes(compile_source(of.source, "sm_90a")) == 0


@pytest.mark.parametrize("is_turned", ["", "a", "b", "ab"])
@pytest.mark.usefixtures("nvrtc")
def test_exact_products_compile_without_a_stack(is_turned: str) -> None:
    """Of whole tiles, and of shared steps: sums and factors are all in registers."""
    for size in (SIZES[0], SIZES[3]):
        of = lowered(*size, lm.float32, is_turned, tf32=False)
        assert "load_factors(" in kernel_of(of)
        assert frame_bytes(compile_source(of.source, "sm_90a")) == 0


@pytest.mark.usefixtures("nvrtc")
def test_products_whose_tiles_threads_fill_compile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decisions, "engine_copy", lambda *_, **__: None)
    for dtype in DTYPES:
        of = lowered(512, 512, 136, dtype)
        fills = [
            one for role in program_of(of).roles for one in statements(role.body)
            if isinstance(one, Fill)
        ]  # fmt: skip
        assert {fill.agent for fill in fills} == {"threads"}
        assert "copy_box(" not in of.source.partition(BEFORE_KERNELS)[2]
        assert frame_bytes(compile_source(of.source, "sm_90a")) == 0


@pytest.mark.parametrize("moves", MOVES[3::3])
@pytest.mark.usefixtures("nvrtc")
def test_other_moves_compile(moves: str, monkeypatch: pytest.MonkeyPatch) -> None:
    of = test_lower.lowered(
        lm.matmul, SHAPES, lm.bfloat16, monkeypatch, "mma_bf16_64x64", then=moves
    )
    assert frame_bytes(compile_source(of.source, "sm_90a")) == 0


def test_a_program_decides_what_is_printed() -> None:
    """Another number of stages, of products that run on, and of slices, are other texts."""
    of = lowered(4096, 4096, 4096, lm.bfloat16)
    (plan,) = of.planned.plans.values()
    program = program_of(of)
    every = [one for role in program.roles for one in statements(role.body)]
    assert any(isinstance(one, Epilogue) and one.slices == 8 for one in every)
    assert any(isinstance(one, Mma) and one.running == 1 for one in every)

    def printed(changed: TileProgram) -> str:
        target = lm.core.target.DEFAULT_CUDA
        return print_kernel(plan.nest, plan.name, target, changed).text

    text = to_text(program)
    assert printed(program) == kernel_of(of).strip()
    three = parse(text.replace("bf16[4]", "bf16[3]").replace("stages=4", "stages=3"))
    assert "__shared__ u64 full[3], empty[3];" in printed(three)
    in_step = parse(text.replace("drain 1", "drain 0").replace("empty but 1", "empty but 0"))
    assert "wgmma_wait<1>" not in printed(in_step)
    assert printed(replace(in_step, name="other")) == printed(in_step)
    four = printed(parse(text.replace("in 8 slices", "in 4 slices")))
    assert four.count("const auto store_slice") == 4
    threads = printed(parse(text.replace("registers=24", "registers=40")))
    assert "give_registers<40>();" in threads
    late = printed(parse(text.replace("acquire empty", "wait empty")))
    assert "u32 slot = 0, parity = 0;" in late


def test_lines_have_one_name_in_a_program_and_its_text() -> None:
    """Of two stores the first one, of bytes, is stored element by element."""
    of = lowered(1024, 1024, 1024, lm.bfloat16, after=lambda y: ((y > 0).cast(lm.int8), y * 2.0))
    allocs = [alloc.name for alloc in program_of(of).allocs if alloc.name.startswith("lines")]
    assert re.findall(r"u8 \*const (\w+) = shared", kernel_of(of)) == allocs == ["lines1"]


def test_a_program_that_has_no_text_is_refused() -> None:
    of = lowered(4096, 4096, 4096, lm.bfloat16)
    (plan,) = of.planned.plans.values()
    text = to_text(program_of(of))
    waits = "      wait full\n"
    for more, says in (
        ("      acquire empty\n", "no parity"),
        ("      map v9: f32 = cast sums\n", "no text for Map"),
    ):
        changed = parse(text.replace(waits, waits + more))
        with pytest.raises(TileError, match=says):
            print_kernel(plan.nest, plan.name, lm.core.target.DEFAULT_CUDA, changed)
