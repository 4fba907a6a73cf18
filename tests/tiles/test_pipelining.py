"""How tiles are computed is moves: printed, replayed, written by hand, drawn by a search."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest

import lamina as lm
from lamina import Tensor
from lamina.core.target import CUDA
from lamina.errors import FormatError
from lamina.frontend.lowered import Lowered
from lamina.ir.kernel import Kernel
from lamina.loops.moves import Schedule
from lamina.loops.text import parse, to_text
from lamina.schedule.gpu.loops import schedule_for_gpu
from lamina.schedule.gpu.pipelining import Depth, Order, Overlap, Roles
from lamina.schedule.gpu.tensorize import Tensorize
from lamina.schedule.knobs import GpuKnobs
from lamina.schedule.search import search
from lamina.tiles.program import Epilogue, statements
from tests.tiles.test_lower import (
    FAMILIES,
    integers,
    loop_of,
    lowered,
    program_of,
    run,
)


def gradients(function: Callable[..., Tensor], *inputs: Tensor) -> list[Tensor]:
    """The derivatives of the sum of squares by all inputs."""
    squares = function(*inputs).cast(lm.float32) ** 2
    return lm.gradient(squares.sum(), list(inputs))


attention = partial(lm.scaled_dot_product_attention, is_causal=True)
convolution = partial(lm.conv2d, padding=1)
PROGRAMS: dict[str, tuple[Callable[..., object], list[tuple[int, ...]]]] = {
    "product": (lm.matmul, [(520, 264), (264, 136)]),
    "whole tiles": (lambda a, b, c: lm.gelu(a @ b + c), [(4096, 4096), (4096, 4096), (4096,)]),
    "shared steps": (lm.matmul, [(128, 40_000), (40_000, 256)]),
    "filled by threads": (lambda a, b: (a * 0.5) @ b, [(512, 300), (300, 512)]),
    "backward": (partial(gradients, lm.matmul), [(512, 256), (256, 512)]),
    "convolution": (convolution, [(8, 64, 28, 28), (64, 64, 3, 3)]),
    "convolution backward": (partial(gradients, convolution), [(8, 64, 28, 28), (64, 64, 3, 3)]),
    "attention": (attention, [(2, 4, 256, 64)] * 3),
    "attention backward": (partial(gradients, attention), [(2, 4, 256, 64)] * 3),
}


@pytest.mark.parametrize("tf32", [False, True])
@pytest.mark.parametrize("dtype", [lm.bfloat16, lm.float32], ids=str)
@pytest.mark.parametrize("name", PROGRAMS)
def test_schedules_replay_to_the_same_text(name: str, dtype: lm.DType, tf32: bool) -> None:
    function, shapes = PROGRAMS[name]
    specs = [lm.TensorSpec(shape, dtype) for shape in shapes]

    def source_of(schedule: str) -> Lowered:
        with lm.using(tf32=tf32, search=0, schedule=schedule):
            return lm.jit(function).lower(*specs, device="cuda:0", arch="sm_90a")

    of = source_of("")
    plans = of.planned.plans.values()
    text = "\n".join(f"[{plan.name}]\n{to_text(plan.moves)}" for plan in plans)
    assert parse(text) == {plan.name: plan.moves for plan in plans}
    assert any(isinstance(move, Tensorize) for plan in plans for move in plan.moves)
    assert source_of(text).source == of.source


# 24 tiles of 64 rows and 64 columns, of 5 steps.
SHAPES = [(256, 320), (320, 384)]
MOVES = [
    "order(whole, 1)",
    "order(whole, 5)",
    "order(whole, 24)",
    "order(stream_k, 7)",
    "order(stream_k, 10)",
    "order(stream_k, 37)",
    "order(stream_k, 120)",
    "depth(1)",
    "depth(2); order(whole, 7)",
    "depth(3); order(stream_k, 40)",
    "roles(consumers)",
    "roles(consumers); depth(1); order(stream_k, 30)",
    "roles(consumers); depth(2); order(stream_k, 9)",
    "roles(consumers); depth(6)",
    "roles(producer); overlap(0)",
    "depth(1); overlap(4)",
    "depth(2); overlap(1)",
    "depth(3); overlap(2); order(whole, 2)",
]


@pytest.mark.parametrize("moves", MOVES)
def test_any_moves_compute_the_product(moves: str, monkeypatch: pytest.MonkeyPatch) -> None:
    of = lowered(lm.matmul, SHAPES, lm.bfloat16, monkeypatch, "mma_bf16_64x64", then=moves)
    (plan,) = of.planned.plans.values()
    assert set(parse(moves)[""]) <= set(plan.moves)
    inputs = integers(SHAPES, lm.bfloat16)
    left, right = (array.astype(np.float32) for array in inputs)
    want = (left @ right).astype(lm.bfloat16.numpy)
    for seed in range(2):
        got, report = run(of, inputs, seed)
        np.testing.assert_array_equal(got.reshape(want.shape), want)
        assert not any(report.conflicts.values()), report


def test_moves_are_what_the_program_has(monkeypatch: pytest.MonkeyPatch) -> None:
    moves = "order(whole, 2); depth(3); roles(producer); overlap(2)"
    of = lowered(lm.matmul, SHAPES, lm.bfloat16, monkeypatch, "mma_bf16_64x64", then=moves)
    program = program_of(of)
    loop = loop_of(program)
    assert (loop.order, loop.blocks) == ("whole", 2)
    every = [one for role in program.roles for one in statements(role.body)]
    assert [one.slices for one in every if isinstance(one, Epilogue)] == [2]
    (product,) = (product for mma in program.mmas for product in mma.products)
    assert program.alloc(product.left).stages == 3
    assert [role.inside for role in program.roles] == ["", ""]
    assert to_text(next(iter(of.planned.plans.values())).moves).endswith(moves.replace("; ", "\n"))


@pytest.mark.parametrize(
    ("moves", "says"),
    [
        ("order(some, 3)", "order(some, 3): an order is one of whole, stream_k"),
        ("order(whole, 25)", "1 to 24 blocks have whole tiles"),
        ("order(stream_k, 24)", "24 tiles of 5 steps have no part for each of 24 blocks"),
        ("order(stream_k, 121)", "24 tiles of 5 steps have no part for each of 121 blocks"),
        ("depth(0)", "buffers hold a step or more"),
        ("depth(13)", "shared memory has room for 12 steps"),
        ("roles(warps)", "those who fill are producer or consumers"),
        ("overlap(3)", "32 sums of a thread are no slices of 8"),
        ("depth(2); overlap(4)", "a tile has 5 steps, and needs 6"),
        ("order(stream_k, 40); overlap(1)", "the order is not whole"),
        ("roles(consumers); overlap(1)", "no producer fills the buffers"),
    ],
)
def test_moves_that_do_not_fit_are_refused(
    moves: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(FormatError, match="kernel reduce0_256x384: ") as raised:
        lowered(lm.matmul, SHAPES, lm.bfloat16, monkeypatch, "mma_bf16_64x64", then=moves)
    assert says in str(raised.value)


def test_a_producer_that_cannot_fill_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(FormatError, match="the copy engine cannot fill all tiles"):
        lowered(
            lambda left, right: (left * 0.5) @ right, SHAPES, lm.bfloat16, monkeypatch,
            "mma_bf16_64x64", then="roles(producer)",
        )  # fmt: skip


def test_they_come_after_tensorize() -> None:
    specs = [lm.TensorSpec(shape, lm.bfloat16) for shape in SHAPES]
    with (
        lm.using(schedule="depth(2); tensorize(mma_bf16_64x64)"),
        pytest.raises(FormatError, match=r"depth\(2\): it comes after tensorize"),
    ):
        lm.jit(lm.matmul).lower(*specs, device="cuda:0")


@pytest.mark.parametrize(
    ("moves", "says"),
    [
        ("depth(3)", r"depth\(3\): threads fill the tiles of the next step at most"),
        ("ahead(1)", r"ahead\(1\): no producer brings tiles of two steps"),
    ],
)
def test_threads_that_fill_tiles_are_one_step_ahead_at_most(moves: str, says: str) -> None:
    specs = [lm.TensorSpec((2, 4, 256, 64), lm.float16)] * 3
    with (
        lm.using(schedule=f"tensorize(mma_f16_128x64); {moves}"),
        pytest.raises(FormatError, match=says),
    ):
        lm.jit(attention).lower(*specs, device="cuda:0", arch="sm_80")


# Fused multiply-adds have no products that run by themselves.
@pytest.mark.parametrize("moves", [moves for moves in MOVES if "producer" not in moves])
def test_any_moves_compute_exact_products(moves: str, monkeypatch: pytest.MonkeyPatch) -> None:
    moves = moves.partition("overlap")[0].removesuffix("; ")
    atom = "fma_f32_64x64"
    of = lowered(lm.matmul, SHAPES, lm.float32, monkeypatch, atom, tf32=False, then=moves)
    inputs = integers(SHAPES, lm.float32)
    want = inputs[0] @ inputs[1]
    got, _ = run(of, inputs)
    np.testing.assert_array_equal(got.reshape(want.shape), want)


def test_a_producer_beside_threads_that_multiply_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(FormatError, match="products do not run while threads wait"):
        lowered(
            lm.matmul, SHAPES, lm.float32, monkeypatch, "fma_f32_64x64", tf32=False,
            then="roles(producer)",
        )  # fmt: skip


@pytest.mark.parametrize(
    ("moves", "says"),
    [
        ("depth(1); ahead(1)", r"ahead\(1\): no producer brings tiles of two steps"),
        ("depth(13)", r"depth\(13\): shared memory has room for 12 steps"),
        ("ahead(2)", r"ahead\(2\): inner products are 0 steps ahead, or 1"),
        ("overlap(8)", r"overlap\(8\): it says nothing of products back to back"),
    ],
)
def test_moves_of_attention_that_do_not_fit_are_refused(moves: str, says: str) -> None:
    specs = [lm.TensorSpec((2, 256, 64), lm.bfloat16)] * 3
    with (
        lm.using(schedule=f"tensorize(mma_bf16_128x64); {moves}"),
        pytest.raises(FormatError, match=says),
    ):
        lm.jit(attention).lower(*specs, device="cuda:0", arch="sm_90a")


def test_one_product_is_ahead_of_nothing() -> None:
    specs = [lm.TensorSpec(shape, lm.bfloat16) for shape in SHAPES]
    with (
        lm.using(schedule="tensorize(mma_bf16_64x64); ahead(1)"),
        pytest.raises(FormatError, match=r"ahead\(1\): there are no products back to back"),
    ):
        lm.jit(lm.matmul).lower(*specs, device="cuda:0", arch="sm_90a")


def test_a_search_draws_tile_depth_roles_order_and_overlap() -> None:
    """Each kind of move is one that a search comes to, and goes on from if it is faster."""
    of = FAMILIES[0]
    specs = [lm.TensorSpec(shape, of.dtype) for shape in of.shapes(512, 768, 4096)]
    with lm.using(search=0):
        (kernel,) = lm.jit(of.product).lower(*specs, device="cuda:0").planned.plans
    assert isinstance(kernel, Kernel)
    target = CUDA["sm_90a"]
    drawn: list[Schedule] = []

    def schedule(knobs: GpuKnobs) -> Schedule:
        moves = schedule_for_gpu(kernel, target, "f32", knobs)
        drawn.append(moves)
        return moves

    def seconds(moves: Schedule) -> float:
        return 0.9 ** len(moves)

    fastest = search(GpuKnobs(), schedule, 60, seconds)
    kinds = {type(move) for moves in drawn for move in moves}
    assert {Order, Depth, Roles, Overlap} <= kinds
    atoms = {move.atom for moves in drawn for move in moves if isinstance(move, Tensorize)}
    assert len(atoms) > 1
    assert len(fastest) > len(drawn[0])
