"""Products that are lowered to tile programs: the interpreter makes of each what NumPy does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

import lamina as lm
from lamina import Tensor, backends, pipeline
from lamina.core.dtypes import DType
from lamina.core.target import CUDA, Target, cuda_target
from lamina.explain.check import run_kernel
from lamina.frontend.lowered import Lowered
from lamina.ir.kernel import Kernel
from lamina.schedule.gpu.atoms import ATOMS
from lamina.tiles import decisions
from lamina.tiles.interpreter import Report, interpret
from lamina.tiles.program import Fill, Mma, TileLoop, TileProgram, Transpose, statements
from lamina.tiles.text import parse, to_text
from lamina.tiles.verify import verify_tiles

# So few that blocks of small products have several tiles, or share the steps of one.
FEW = replace(CUDA["sm_90a"], multiprocessors=3)


@dataclass(frozen=True)
class Family:
    """A kind of product: its dtype, and which factors are transposed in memory."""

    dtype: DType
    is_left_transposed: bool
    is_right_transposed: bool

    def __str__(self) -> str:
        marks = "nt"
        return (
            f"{self.dtype.name}-{marks[self.is_left_transposed]}{marks[self.is_right_transposed]}"
        )

    def product(self, left: Tensor, right: Tensor) -> Tensor:
        """Of the factors as they lie in memory."""
        rows = left.T if self.is_left_transposed else left
        return rows @ (right.T if self.is_right_transposed else right)

    def shapes(self, rows: int, columns: int, steps: int) -> list[tuple[int, int]]:
        """Of the factors as they lie in memory."""
        left = (steps, rows) if self.is_left_transposed else (rows, steps)
        return [left, (columns, steps) if self.is_right_transposed else (steps, columns)]


FAMILIES = [
    Family(dtype, is_left_transposed, is_right_transposed)
    for dtype in (lm.bfloat16, lm.float16, lm.float32)
    for is_left_transposed in (False, True)
    for is_right_transposed in (False, True)
]


def lowered(
    function: Callable[..., Tensor],
    shapes: list[tuple[int, ...]],
    dtypes: DType | Sequence[DType],
    monkeypatch: pytest.MonkeyPatch,
    atom: str = "",
    tf32: bool = True,
    then: str = "",
    target: Target = FEW,
) -> Lowered:
    """`function` of arrays of one dtype, or of one each, at every stage, for a GPU, by default one
    of few multiprocessors; with an atom in place of the heuristic's, if the arrays need no copies
    in other orders, and `then` other moves."""
    for module in (pipeline, backends):
        monkeypatch.setattr(module, "target_of", lambda options: target)
    schedule = f"tensorize({atom}); {then}" if atom else ""
    with lm.using(tf32=tf32, schedule=schedule, check=True, search=0):
        each = [dtypes] * len(shapes) if isinstance(dtypes, DType) else dtypes
        specs = [lm.TensorSpec(*spec) for spec in zip(shapes, each, strict=True)]
        return lm.jit(function).lower(*specs, device="cuda:0", arch=target.arch)


def program_of(of: Lowered) -> TileProgram:
    """The only tile program of a function; it is valid, and reads back from the stage's text."""
    (program,) = of.planned.tiles.values()
    assert isinstance(program, TileProgram), program
    verify_tiles(program)
    assert parse(to_text(program)) == program
    assert to_text(program) in of.stages["tiles"]
    return program


def run(of: Lowered, inputs: list[Any], seed: int = 0) -> tuple[Any, Report]:
    """The output of a program whose products run in the interpreter, and all other kernels in the
    reference of kernels."""
    planned = of.planned
    arrays: dict[Any, Any] = {}
    report = Report()
    for launch in planned.program.launches:
        for view in launch.arguments:
            if view in arrays:
                continue
            if view.kind == "input":
                arrays[view] = inputs[view.number].reshape(-1).copy()
            else:
                arrays[view] = np.zeros(view.size, view.dtype.numpy)
        flat = [arrays[view] for view in launch.arguments]
        program = planned.tiles.get(launch.kernel)
        if isinstance(program, TileProgram):
            named = {f"p{number}": array for number, array in enumerate(flat)}
            report = interpret(program, named, seed)
        else:
            assert isinstance(launch.kernel, Kernel)
            run_kernel(launch.kernel, flat)
    (output,) = planned.program.outputs
    return arrays[output], report


def integers(shapes: list[tuple[int, ...]], dtype: DType) -> list[Any]:
    """Small integers, whose sums of products are exact in float32."""
    draw = np.random.default_rng(3)
    return [draw.integers(-3, 4, shape).astype(dtype.numpy) for shape in shapes]


def expected(family: Family, inputs: list[Any]) -> Any:
    """The product in NumPy, in float32."""
    left, right = (array.astype(np.float32) for array in inputs)
    rows = left.T if family.is_left_transposed else left
    return rows @ (right.T if family.is_right_transposed else right)


# Whole tiles; ragged in each direction; of odd sizes, which need copies in other orders.
SIZES = [(128, 64, 128), (72, 200, 136), (65, 33, 99)]


@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("family", FAMILIES, ids=str)
def test_a_family_is_numpys_product(
    family: Family, sizes: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    shapes = family.shapes(*sizes)
    of = lowered(family.product, shapes, family.dtype, monkeypatch)
    program_of(of)
    inputs = integers(shapes, family.dtype)
    got, report = run(of, inputs)
    want = expected(family, inputs).astype(family.dtype.numpy)
    np.testing.assert_array_equal(got.reshape(want.shape), want)
    assert not any(report.conflicts.values()), report


EXACT = [family for family in FAMILIES if family.dtype is lm.float32]


@pytest.mark.parametrize("sizes", [*SIZES, (40, 264, 600)], ids=str)
@pytest.mark.parametrize("family", EXACT, ids=str)
def test_fused_multiply_adds_are_numpys_product(
    family: Family, sizes: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    shapes = family.shapes(*sizes)
    atom = "fma_f32_64x64"
    of = lowered(family.product, shapes, family.dtype, monkeypatch, atom, tf32=False)
    program = program_of(of)
    every = [one for role in program.roles for one in statements(role.body)]
    assert {one.unit for one in every if isinstance(one, Mma)} == {"fma"}
    along_steps = [not family.is_left_transposed, family.is_right_transposed]
    before_steps = [one for one in loop_of(program).body if isinstance(one, Transpose)]
    assert len(before_steps) == along_steps.count(True)
    # Rounded to the 11 bits of tf32, 1 + 2**-12 would be 1; its sums are exact in float32.
    left, right = integers(shapes, family.dtype)
    inputs = [left * np.float32(1 + 2**-12), right]
    want = expected(family, inputs)
    for seed in range(2):
        got, report = run(of, inputs, seed)
        np.testing.assert_array_equal(got.reshape(want.shape), want)
        assert not any(report.conflicts.values()), report


@pytest.mark.parametrize("atom", ["64x64", "64x128", "64x192"])
@pytest.mark.parametrize("family", EXACT, ids=str)
def test_blocks_side_by_side_that_share_tiles_are_numpys_product(
    family: Family, atom: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that a multiprocessor runs at once of the atom, more than there are tiles."""
    shapes = family.shapes(72, 264, 20 * 32 + 8)
    at_once = ATOMS[f"fma_f32_{atom}"].side_by_side(are_shared=True)
    blocks = at_once * FEW.multiprocessors + 8
    of = lowered(
        family.product, shapes, family.dtype, monkeypatch, f"fma_f32_{atom}", tf32=False,
        then=f"order(stream_k, {blocks})",
    )  # fmt: skip
    loop = loop_of(program_of(of))
    assert (loop.order, loop.blocks) == ("equal", blocks)
    inputs = integers(shapes, family.dtype)
    want = expected(family, inputs)
    for seed in range(2):
        got, report = run(of, inputs, seed)
        np.testing.assert_array_equal(got.reshape(want.shape), want)
        assert not any(report.conflicts.values()), report


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_100"])
@pytest.mark.parametrize("family", FAMILIES, ids=str)
def test_tensor_cores_for_which_threads_wait_are_numpys_product(
    family: Family, arch: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = replace(cuda_target(arch), multiprocessors=3)
    shapes = family.shapes(72, 200, 136)
    of = lowered(family.product, shapes, family.dtype, monkeypatch, target=target)
    program = program_of(of)
    every = [one for role in program.roles for one in statements(role.body)]
    assert {one.unit for one in every if isinstance(one, Mma)} == {"mma"}
    agents = {one.agent for one in every if isinstance(one, Fill)}
    assert ("tma" in agents) is (arch != "sm_80")
    inputs = integers(shapes, family.dtype)
    for seed in range(2):
        got, report = run(of, inputs, seed)
        want = expected(family, inputs).astype(family.dtype.numpy)
        np.testing.assert_array_equal(got.reshape(want.shape), want)
        assert not any(report.conflicts.values()), report


@pytest.mark.parametrize("family", [FAMILIES[0], FAMILIES[3], FAMILIES[10]], ids=str)
def test_threads_fill_tiles_where_the_engine_does_not(
    family: Family, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decisions, "engine_copy", lambda *_, **__: None)
    shapes = family.shapes(72, 136, 200)
    of = lowered(family.product, shapes, family.dtype, monkeypatch)
    program = program_of(of)
    fills = [
        one for role in program.roles for one in statements(role.body) if isinstance(one, Fill)
    ]
    assert {fill.agent for fill in fills} == {"threads"}
    assert program.roles[0].inside == program.roles[1].name
    inputs = integers(shapes, family.dtype)
    for seed in range(2):
        got, _ = run(of, inputs, seed)
        want = expected(family, inputs).astype(family.dtype.numpy)
        np.testing.assert_array_equal(got.reshape(want.shape), want)


@pytest.mark.parametrize("atom", ["64x64", "64x128", "128x64", "128x128", "128x256"])
def test_every_atom_is_numpys_product(atom: str, monkeypatch: pytest.MonkeyPatch) -> None:
    family = FAMILIES[0]
    shapes = family.shapes(264, 320, 192)
    of = lowered(family.product, shapes, family.dtype, monkeypatch, f"mma_bf16_{atom}")
    program_of(of)
    inputs = integers(shapes, family.dtype)
    got, _ = run(of, inputs)
    want = expected(family, inputs).astype(family.dtype.numpy)
    np.testing.assert_array_equal(got.reshape(want.shape), want)


def loop_of(program: TileProgram) -> TileLoop:
    """The loop over tiles of the role that multiplies."""
    (loop,) = (one for one in program.roles[1].body if isinstance(one, TileLoop))
    return loop


def test_blocks_that_share_steps_add_up_their_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    family = FAMILIES[0]
    shapes = family.shapes(64, 128, 64 * 120)
    of = lowered(family.product, shapes, family.dtype, monkeypatch, "mma_bf16_64x64")
    program = program_of(of)
    loop = loop_of(program)
    assert (loop.order, loop.tiles, loop.blocks) == ("stream_k", 2, 3)
    inputs = integers(shapes, family.dtype)
    for seed in range(3):
        got, _ = run(of, inputs, seed)
        want = expected(family, inputs).astype(family.dtype.numpy)
        np.testing.assert_array_equal(got.reshape(want.shape), want)


def test_an_epilogue_is_stored_beside_the_next_tile(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bias and a ReLU after a product of whole tiles of many steps."""

    def biased(left: Tensor, right: Tensor, bias: Tensor) -> Tensor:
        return lm.relu(left @ right + bias)

    shapes = [(256, 512), (512, 128), (128,)]
    of = lowered(biased, shapes, lm.bfloat16, monkeypatch, "mma_bf16_64x64")
    program = program_of(of)
    text = to_text(program)
    assert "epilogue keeping v" in text
    assert " in 2 slices" in text
    inputs = integers(shapes, lm.bfloat16)
    left, right, bias = (array.astype(np.float32) for array in inputs)
    product = (left @ right).astype(lm.bfloat16.numpy).astype(np.float32)
    want = np.maximum(product + bias, 0).astype(lm.bfloat16.numpy)
    for seed in range(2):
        got, _ = run(of, inputs, seed)
        np.testing.assert_array_equal(got.reshape(want.shape), want)


def test_a_batch_of_products_and_a_scale(monkeypatch: pytest.MonkeyPatch) -> None:
    shapes = [(3, 64, 72), (3, 72, 80)]
    of = lowered(lambda left, right: (left @ right) * 0.5, shapes, lm.float16, monkeypatch)
    program_of(of)
    inputs = integers(shapes, lm.float16)
    got, _ = run(of, inputs)
    left, right = (array.astype(np.float32) for array in inputs)
    want = ((left @ right).astype(np.float16) * np.float16(0.5)).astype(np.float16)
    np.testing.assert_array_equal(got.reshape(want.shape), want)


def test_left_tiles_of_tf32_that_lie_across_pass_through_registers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    family = FAMILIES[10]  # float32, the left factor transposed
    of = lowered(family.product, family.shapes(64, 64, 64), family.dtype, monkeypatch)
    program = program_of(of)
    units = [
        one.unit for role in program.roles for one in statements(role.body) if isinstance(one, Mma)
    ]
    assert units == ["wgmma_left_in_registers"]
