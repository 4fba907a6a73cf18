"""Sums of products whose left factors are computed from other such sums: what they are on a GPU,
what compiles, and what remains where tiles are left out."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import lamina as lm
from lamina import Tensor, pipeline
from lamina.compiled import Planned
from lamina.core import options
from lamina.errors import FormatError
from lamina.explain.check import run_kernel
from lamina.frontend.realize import opened_as_computed
from lamina.frontend.session import SESSION
from lamina.ir.kernel import Kernel
from lamina.ir.node import Node
from lamina.ir.ops import BufferRef, Op
from lamina.loops.moves import apply
from lamina.loops.text import parse, to_text
from lamina.loops.verify import verify_nest
from lamina.runtime.nvrtc import compile_source
from lamina.schedule.gpu.atoms import ATOMS
from lamina.schedule.gpu.attention import back_to_back
from lamina.schedule.gpu.tensorize import Tensorize
from lamina.targets.cuda.tickets import tile_lines
from lamina.tiles import decisions
from lamina.tiles.orders import tile_of_ticket
from lamina.tiles.program import StepMask, Tickets, TileLoop, TileProgram, statements_of
from lamina.tiles.values import Extent
from tests.generators import leaf

GPU = "cuda:0"
TOLERANCE = {lm.bfloat16: 2e-2, lm.float16: 4e-3}
# Heads, rows, columns that are summed over, and the lengths of what is multiplied. The rows of the
# last one are enough for blocks of 256.
SIZES = [
    (2, 128, 256, 64, 64),
    (1, 200, 136, 128, 128),
    (3, 70, 300, 40, 72),
    (140, 260, 70, 64, 48),
]
Form = Callable[..., tuple[Any, ...]]


def attention(causal: bool) -> Form:
    """Products weighted by exponentials, and their gradients."""

    def form(q: Any, k: Any, v: Any, dy: Any) -> tuple[Any, ...]:
        y = lm.scaled_dot_product_attention(q, k, v, is_causal=causal)
        return y, *lm.gradient(y, [q, k, v], dy)

    return form


def shapes_of(size: tuple[int, ...]) -> list[tuple[int, ...]]:
    heads, m, n, e, d = size
    return [(heads, m, e), (heads, n, e), (heads, n, d), (heads, m, d)]


def wanted(arrays: list[Any], causal: bool) -> list[Any]:
    """The same in float64, by NumPy."""
    q, k, v, dy = (one.astype(np.float64) for one in arrays)
    s = q @ k.swapaxes(1, 2) * q.shape[-1] ** -0.5
    rows, columns = np.indices(s.shape[1:])
    s[:, causal & (rows < columns)] = -np.inf
    p = np.exp(s - s.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    y = p @ v
    ds = p * (dy @ v.swapaxes(1, 2) - (dy * y).sum(-1, keepdims=True)) * q.shape[-1] ** -0.5
    return [y, ds @ k, ds.swapaxes(1, 2) @ q, p.swapaxes(1, 2) @ dy]


def planned(
    size: tuple[int, ...], dtype: lm.DType, causal: bool, arch: str = ""
) -> Planned:
    """The program for a GPU."""
    given = [
        Tensor.of(Node(Op.BUFFER, (), BufferRef(number, shape, dtype, GPU)), GPU)
        for number, shape in enumerate(shapes_of(size))
    ]
    sinks = opened_as_computed([one.node for one in attention(causal)(*given)], {})
    return pipeline.compile_source(sinks, replace(options.current(), device=GPU, arch=arch))


def kernels(causal: bool, size: tuple[int, ...] = SIZES[0]) -> list[Kernel]:
    """Those of which all or some folds are nested."""
    plans = planned(size, lm.bfloat16, causal).plans
    return [one for one in plans if isinstance(one, Kernel) and back_to_back(one)]


def check(size: tuple[int, ...], dtype: lm.DType, causal: bool) -> None:
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(one).astype(dtype.numpy) for one in shapes_of(size)]
    with options.using(device=GPU):
        got = attention(causal)(*map(Tensor, arrays))
    lm.realize(*got)
    for one, want in zip(got, wanted(arrays, causal), strict=True):
        found, scale = one.numpy().astype(np.float64), np.abs(want).max()
        np.testing.assert_allclose(found, want, TOLERANCE[dtype], TOLERANCE[dtype] * scale)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.usefixtures("device")
def test_results(size: tuple[int, ...], dtype: lm.DType, causal: bool) -> None:
    check(size, dtype, causal)


@pytest.mark.usefixtures("device")
def test_threads_fill_what_the_engine_could(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decisions, "engine_copy", lambda *_, **__: None)
    SESSION.forget()
    check(SIZES[1], lm.bfloat16, True)
    SESSION.forget()


# A program with its gradients takes NVRTC 4 s: each kind of GPU compiles
# one or more, and sm_90a, whose instructions are its own, three of both dtypes.
@pytest.mark.parametrize(("size", "causal", "archs"), [
    (SIZES[0], False, ("sm_80", "sm_90a")), (SIZES[1], True, ("sm_86",)),
    (SIZES[2], True, ("sm_90a",)), (SIZES[3], True, ("sm_90a",)), (SIZES[3], False, ("sm_100",)),
], ids=str)  # fmt: skip
@pytest.mark.usefixtures("nvrtc")
def test_programs_compile(size: tuple[int, ...], causal: bool, archs: tuple[str, ...]) -> None:
    for arch in archs:
        text = planned(size, lm.float16 if causal else lm.bfloat16, causal, arch).text
        assert compile_source(text, arch)[:4] == b"\x7fELF"


@pytest.mark.parametrize("causal", [False, True])
def test_no_product_within_is_in_memory(causal: bool) -> None:
    plans = planned(SIZES[0], lm.bfloat16, causal).plans
    heads, m, n, *_ = SIZES[0]
    assert all(one.size < heads * m * n for kernel in plans for one in kernel.parameters)
    assert len(kernels(causal)) == 3
    moves = [
        move
        for kernel, plan in plans.items() if kernel in kernels(causal)
        for move in plan.moves if isinstance(move, Tensorize)
    ]  # fmt: skip
    assert len(moves) == 3
    assert parse(to_text(moves[:1])) == {"": tuple(moves[:1])}


def test_many_rows_go_256_at_a_time() -> None:
    """Where they leave no multiprocessor without work, and registers suffice for the sums."""
    for size, most in (SIZES[0], 128), (SIZES[3], 256):
        plans = planned(size, lm.bfloat16, True).plans.values()
        moves = [move for plan in plans for move in plan.moves]
        rows = {ATOMS[one.atom].m for one in moves if isinstance(one, Tensorize)}
        assert max(rows) == most


@pytest.mark.parametrize(("tiles", "rows", "together"), [(768, 4, 64), (7, 1, 2), (96, 8, 5)])
@pytest.mark.parametrize("down", [False, True])
def test_every_tile_has_one_ticket(tiles: int, rows: int, together: int, down: bool) -> None:
    """Of some arrays at a time, the tiles first that take longest; as the kernel prints it."""
    tickets = Tickets(rows, together, down)
    loop = TileLoop("tickets", tiles, 1, 1, tiles, (Extent("a0", tiles),), (), tickets)
    seen = [tile_of_ticket(tickets, tiles, ticket) for ticket in range(tiles)]
    assert sorted(seen) == list(range(tiles))
    first = seen[: min(together, tiles // rows)]
    assert {one % rows for one in first} == {rows - 1 if down else 0}
    lines = "\n".join(tile_lines(loop))
    known: dict[str, Any] = {"min": min}
    for ticket in range(tiles):
        known["ticket"] = ticket
        for name in "start", "rest", "arrays", "row", "tile":
            found = re.search(rf"(?:const u32|,) {name} = (.*?)(?:, \w+ = |;)", lines)
            assert found
            expression = re.sub(r"(\d)u\b", r"\1", found[1]).replace("/", "//")
            known[name] = eval(expression, known)
        assert known["tile"] == seen[ticket]


def arrays_of(kernel: Kernel) -> list[Any]:
    """Parameters of a kernel, random but for sums, which are positive."""
    rng = np.random.default_rng(1)
    made = [rng.standard_normal(one.size).astype(one.dtype.numpy) for one in kernel.parameters]
    return [abs(one) + 1 if one.dtype == np.float32 else one for one in made]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("number", range(3))
def test_a_nest_without_its_tiles_computes_the_same(number: int, causal: bool) -> None:
    """By the reference of kernels: what the move has made of one, beyond its ends too."""
    kernel = kernels(causal, (1, 20, 150, 16, 16))[number]
    found = back_to_back(kernel)
    assert found
    nest = apply(kernel, [Tensorize(f"mma_bf16_{found.max_rows}x64")])
    verify_nest(nest)
    want, got = arrays_of(kernel), arrays_of(kernel)
    run_kernel(kernel, want)
    run_kernel(nest.kernel, got)
    for one, other in zip(got, want, strict=True):
        np.testing.assert_allclose(one.astype(np.float64), other.astype(np.float64), 1e-2, 1e-2)


@pytest.mark.parametrize(("causal", "steps"), [(False, []), (True, [64, 128, -64])])
def test_tiles_that_are_masked_throughout_are_left_out(causal: bool, steps: list[int]) -> None:
    programs = planned(SIZES[0], lm.bfloat16, causal, "sm_90a").tiles.values()
    masks = [
        mask.slope
        for program in programs
        if isinstance(program, TileProgram)
        for mask in statements_of(program.roles[0].body, StepMask)
    ]
    assert masks == steps


@pytest.mark.parametrize("atom", ["mma_f16_128x64", "mma_bf16_64x64", "mma_bf16_128x256"])
def test_an_atom_that_does_not_fit_is_refused(atom: str) -> None:
    with pytest.raises(FormatError, match="tensorize"):
        apply(kernels(False)[0], [Tensorize(atom)])
    with pytest.raises(FormatError, match="tensorize"):
        apply(kernels(False, SIZES[1])[0], [Tensorize("mma_bf16_128x64")])


@pytest.mark.parametrize(("form", "shapes"), [
    (lambda a, b, c: (lm.relu(a @ b.mT) @ c,), [(64, 64), (128, 64), (128, 64)]),  # no exponential
    (attention(False), shapes_of((2, 128, 256, 64, 256))),  # columns that registers do not hold
    (lambda q, k, v: (lm.softmax(q @ k.mT, axis=-1) @ v,), [(8, 128, 64)] * 3),  # scaled by a sum
    (lambda q, k, *vs: tuple(lm.scaled_dot_product_attention(q, k, v) for v in vs),
     [(8, 256, 64)] * 6),  # more tiles that pass by than there are barriers for
])  # fmt: skip
def test_what_does_not_fit_goes_through_memory(form: Form, shapes: list[tuple[int, ...]]) -> None:
    given = [Tensor.of(leaf(at, one, lm.bfloat16), "cpu") for at, one in enumerate(shapes)]
    sinks = opened_as_computed([one.node for one in form(*given)], {})
    plans = pipeline.compile_source(sinks, replace(options.current(), device=GPU)).plans
    assert not any(back_to_back(one) for one in plans if isinstance(one, Kernel))


@pytest.mark.parametrize(("arch", "count"), [("sm_80", 1), ("sm_86", 0), ("sm_90a", 1)])
def test_tiles_without_room_on_a_gpu_go_through_memory(arch: str, count: int) -> None:
    """Scores that add up two products have tiles of 160 KiB, in blocks of 128 rows."""

    def form(*arrays: Tensor) -> tuple[Tensor, Tensor]:
        first, second, first_key, second_key, value, other = arrays
        scores = (first @ first_key.mT).cast(lm.float32) + (second @ second_key.mT).cast(lm.float32)
        weights = lm.exp(scores - lm.max(scores, axis=-1, keepdims=True)).cast(lm.bfloat16)
        return weights @ value, weights @ other

    specs = [lm.TensorSpec((4, 512, 128), lm.bfloat16)] * 6
    plans = lm.jit(form).lower(*specs, device=GPU, arch=arch).planned.plans
    nested = [one for one in plans if isinstance(one, Kernel) and back_to_back(one)]
    assert len(nested) == count


@pytest.mark.parametrize("dtype", [lm.float32, lm.float64])
def test_wider_numbers_go_through_memory(dtype: lm.DType) -> None:
    plans = planned(SIZES[0], dtype, causal=True).plans
    assert not any(isinstance(one, Kernel) and back_to_back(one) for one in plans)


def test_nothing_waits_for_warps_that_bring_tiles() -> None:
    """Where results are added to in place, by elements: a barrier would wait for ever."""
    q, k, v = (Tensor.of(leaf(number, (4, 256, 64), lm.bfloat16), "cpu") for number in (1, 2, 3))
    total = leaf(0, (4, 256, 64), lm.float64)
    result = Tensor.of(total, "cpu") + lm.scaled_dot_product_attention(q, k, v)
    sinks = [Node(Op.ASSIGN, (total, *opened_as_computed([result.node], {})))]
    chosen = replace(options.current(), device=GPU, arch="sm_90a")
    (text,) = pipeline.compile_source(sinks, chosen).source.kernels.values()  # type: ignore[union-attr]
    _, _, of_consumers = text.partition("take_registers<")
    assert of_consumers
    assert not re.search(r"\bBARRIER\b", of_consumers)


@pytest.mark.parametrize("dtype", [lm.float16, lm.bfloat16])
def test_only_a_sum_of_the_kernel_divides_by_its_reciprocal(dtype: lm.DType) -> None:
    """Of a divisor from memory, 3e-39 / 1e-39 is 3, though 1 / 1e-39 is infinite."""

    def form(q: Tensor, k: Tensor, v: Tensor, divisor: Tensor) -> Tensor:
        return lm.scaled_dot_product_attention(q, k, v).cast(lm.float32) / divisor

    specs = [lm.TensorSpec((2, 128, 64), dtype)] * 3
    for shape in ((2, 128, 1), (2, 128, 64)):
        lowered = lm.jit(form).lower(*specs, lm.TensorSpec(shape), device=GPU, arch="sm_90a")
        (text,) = [kernel.source for kernel in lowered.kernels if "1.0f / " in kernel.source]
        quotients = re.findall(r"\* \(1\.0f / (\w+)", text)
        assert quotients
        assert not any("load" in divisor for divisor in quotients)


@pytest.mark.parametrize("dtype", [lm.float32, lm.float64])
def test_reciprocals_are_those_of_float32(dtype: lm.DType) -> None:
    """A quotient of float64 would be as inexact as float32, so it stays a division."""

    def form(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        scores = (q @ k.transpose(-1, -2)).cast(lm.float32)
        exponentials = lm.exp(scores - lm.max(scores, axis=-1, keepdims=True))
        weighted = (exponentials.cast(lm.bfloat16) @ v).cast(dtype)
        return weighted / lm.sum(exponentials, axis=-1, keepdims=True).cast(dtype)

    specs = [lm.TensorSpec((2, 128, 64), lm.bfloat16)] * 3
    (kernel,) = lm.jit(form).lower(*specs, device=GPU, arch="sm_90a").kernels
    assert ("1.0f / " in kernel.source) == (dtype is lm.float32)
