"""Products that have too few rows or columns for tiles, on GPUs: whose threads share what."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import lamina as lm
from lamina import Tensor
from lamina.core.dtypes import DType
from lamina.core.recent import forget
from lamina.core.target import DEFAULT_CUDA
from lamina.frontend.lowered import Lowered, LoweredKernel
from lamina.ir import build
from lamina.ir.interpreter import evaluate
from lamina.ir.kernel import points
from lamina.ir.monoids import ADD
from lamina.runtime.nvrtc import compile_source
from lamina.schedule.gpu import loops
from lamina.schedule.gpu.parts import untiled_products_in_parts
from lamina.schedule.gpu.planner import GpuPlanner
from tests.cuda.on_host import run_on_host
from tests.generators import leaf

ROWS, STEPS = (849, 112), 251


def lowered(columns: int, which: str) -> Lowered:
    """The product of (849 * 112, 251) by a weight of so many columns, or its derivative by the
    weight."""

    def function(x: Tensor, weight: Tensor, slope: Tensor) -> Tensor:
        y = x @ weight
        if which == "forward":
            return y
        (result,) = lm.gradient(y, [weight], slope)
        return result

    shapes = (*ROWS, STEPS), (STEPS, columns), (*ROWS, columns)
    return lm.jit(function).lower(*map(lm.TensorSpec, shapes), device="cuda:0", arch="sm_90a")


@pytest.mark.parametrize("columns", [2, 4])
def test_threads_share_the_steps_of_all_columns_of_a_row(columns: int) -> None:
    """Those with rows by themselves would read 251 elements apart, each a line of its own."""
    (kernel,) = lowered(columns, "forward").kernels
    loads = [line for line in kernel.source.splitlines() if "= p0[" in line]
    assert "thread" in kernel.schedule
    assert all("thread_in_row" in load for load in loads)
    assert len(loads) * columns == len([*filter(_is_load_of_weight, kernel.source.splitlines())])


def _is_load_of_weight(line: str) -> bool:
    return "= p1[" in line


@pytest.mark.parametrize(("columns", "is_cut"), [(2, True), (4, True), (64, False)])
def test_the_derivative_by_a_narrow_weight_is_taken_in_parts(columns: int, is_cut: bool) -> None:
    """Of 2 columns 502 results have 95,088 terms each; with 64 there are tiles."""
    names = [kernel.name for kernel in lowered(columns, "weight").kernels]
    assert any("849x" in name and name.startswith("reduce") for name in names) is is_cut


def test_a_part_has_enough_terms_that_its_sum_is_worth_storing() -> None:
    def derivative(x: Tensor, slope: Tensor) -> Tensor:
        return x.T @ slope

    specs = lm.TensorSpec((65536, 8)), lm.TensorSpec((65536, 8))
    first, *_ = lm.jit(derivative).lower(*specs, device="cuda:0", arch="sm_90a").kernels
    assert first.name == "reduce0_1024x8x8"


@pytest.mark.parametrize(
    ("rows", "steps", "columns", "parts"),
    [
        (7, 7680, 3842, 32),
        (7, 3842, 15360, 9),  # no number of parts divides the steps: the last part has one fewer
        (64, 3842, 15360, None),  # tiles
        (7, 96, 3842, None),  # a part would be too short
    ],
)
def test_few_rows_by_a_large_weight_are_added_up_in_parts(
    rows: int, steps: int, columns: int, parts: int | None
) -> None:
    specs = lm.TensorSpec((rows, steps)), lm.TensorSpec((steps, columns))
    lowered = lm.jit(lambda x, weight: x @ weight).lower(*specs, device="cuda:0", arch="sm_90a")
    names = [kernel.name for kernel in lowered.kernels if kernel.name.startswith("reduce")]
    if parts is None:
        assert len(names) == 1
    else:
        assert [name.partition("_")[2] for name in names] == [
            f"{parts}x{rows}x{columns}", f"{rows}x{columns}"
        ]  # fmt: skip


def test_parts_that_are_not_even_come_to_the_product() -> None:
    rng = np.random.default_rng(0)
    left, right = leaf(0, (3, 1538), lm.float32), leaf(1, (1538, 1000), lm.float32)
    factors = (
        build.expand(build.reshape(left, (3, 1538, 1)), (3, 1538, 1000)),
        build.expand(build.reshape(right, (1, 1538, 1000)), (3, 1538, 1000)),
    )
    total = build.reduce(ADD, [1], factors[0] * factors[1])
    parts = untiled_products_in_parts.apply(total)
    assert parts is not None
    assert parts.src[0].shape[0] > 1
    values = {one: rng.integers(-3, 4, one.shape).astype(np.float32) for one in (left, right)}
    assert np.array_equal(*evaluate([total, parts], values))


@pytest.mark.parametrize(
    ("count", "steps", "columns", "has_tiles"), [(8, 1280, 128, False), (1, 8192, 8192, True)]
)
def test_few_rows_have_tiles_where_these_are_predicted_to_be_faster(
    count: int, steps: int, columns: int, *, has_tiles: bool
) -> None:
    """Of 4 rows of 128 columns 8 tiles would go through 1280 steps on 8 multiprocessors."""
    specs = [
        lm.TensorSpec(shape, lm.bfloat16) for shape in ((count, 4, steps), (count, steps, columns))
    ]
    (kernel,) = lm.jit(lambda x, y: x @ y).lower(*specs, device="cuda:0", arch="sm_90a").kernels
    assert ("tensorize" in kernel.schedule) is has_tiles


def products_of_batches(rows: int, columns: int, batches: int, steps: int) -> Lowered:
    def function(x: Tensor, y: Tensor) -> Tensor:
        return lm.einsum("bik,bjk->bij", x, y)

    specs = lm.TensorSpec((batches, rows, steps)), lm.TensorSpec((batches, columns, steps))
    return lm.jit(function).lower(*specs, device="cuda:0", arch="sm_90a")


def accesses(kernel: LoweredKernel, pattern: str) -> int:
    """How many accesses the text of a kernel has."""
    return len(re.findall(pattern, kernel.source))


@pytest.mark.parametrize("columns", [3, 11])
def test_a_thread_has_several_results_of_small_products(columns: int) -> None:
    """So that it reads less than a step of both factors for each product, four steps at a time."""
    (kernel,) = products_of_batches(76, columns, 4608, 60).kernels
    results = accesses(kernel, r"p2\[.*\] = sum_\d")
    assert results > 1
    assert accesses(kernel, r"= p[01]\[") / 4 < 1.5 * results


@pytest.mark.parametrize(
    ("rows", "columns", "steps", "tile"),
    [(76, 11, 60, 22), (76, 11, 60, 4), (64, 4, 33, 16), (50, 2, 20, 4)],
)
def test_small_products_in_register_tiles_are_those_of_numpy(
    rows: int,
    columns: int,
    steps: int,
    tile: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever is predicted of so many results of a thread."""

    def far_from_tile(plan: GpuPlanner) -> float:
        return 1.0 + abs(points(plan.register_tile) - tile)

    monkeypatch.setattr(loops, "_with_shared_products", lambda plan: [])
    monkeypatch.setattr(loops, "_predicted", far_from_tile)
    rng = np.random.default_rng(3)
    batches = 132_000 // rows
    shapes = (batches, rows, steps), (batches, columns, steps)
    x, y = (rng.integers(-4, 5, shape).astype(np.float32) for shape in shapes)
    forget()  # the schedules so far
    lowered = products_of_batches(rows, columns, batches, steps)
    forget()
    (kernel,) = lowered.kernels
    assert accesses(kernel, r"p2\[.*\] = sum_\d") == tile
    (got,) = run_on_host(lowered.planned, [x, y], tmp_path)
    np.testing.assert_array_equal(got, (x @ y.transpose(0, 2, 1)).reshape(-1))


@pytest.mark.parametrize(("batches", "is_bound"), [(180, True), (309, True), (3000, False)])
def test_few_blocks_with_loops_may_have_more_registers(batches: int, *, is_bound: bool) -> None:
    """The second bound of a launch says how many of its blocks a multiprocessor gets."""

    def function(x: Tensor, y: Tensor) -> Tensor:
        return lm.einsum("bij,bik->bjk", x, y)

    specs = lm.TensorSpec((batches, 320, 2)), lm.TensorSpec((batches, 320, 192))
    planned = lm.jit(function).lower(*specs, device="cuda:0", arch="sm_90a").planned
    product = planned.launches[-1]
    head = re.search(rf"KERNEL\(\d+, (\d+)\) {product.name}\(", planned.text)
    assert (head is not None) == is_bound
    if head is not None:
        blocks_of_each = int(head[1])
        units = DEFAULT_CUDA.multiprocessors
        assert (blocks_of_each - 1) * units < product.blocks <= blocks_of_each * units
    assert compile_source(planned.text, "sm_90a")


@pytest.mark.parametrize(
    ("columns", "dtype", "is_apart"),
    [
        (869_143, lm.float32, True),
        (869_144, lm.float32, False),
        (869_143, lm.float64, True),
        (869_144, lm.float64, False),
    ],
)
def test_columns_that_begin_within_accesses_are_apart(
    columns: int, dtype: DType, *, is_apart: bool
) -> None:
    """So that neighbouring threads store neighbours."""
    specs = lm.TensorSpec((69, 2), dtype), lm.TensorSpec((2, columns), dtype)
    (kernel,) = lm.jit(lambda x, y: x @ y).lower(*specs, device="cuda:0", arch="sm_90a").kernels
    assert ("split(a1, 128)" in kernel.schedule) is is_apart


def test_columns_that_are_read_from_rows_are_side_by_side() -> None:
    """A warp's 128 columns would be 128 rows of the factor, where 32 are enough."""
    specs = lm.TensorSpec((512, 512), lm.int32), lm.TensorSpec((512, 512), lm.int32)
    (kernel,) = lm.jit(lambda x, y: x @ y.T).lower(*specs, device="cuda:0", arch="sm_90a").kernels
    assert "split(a1, 128)" not in kernel.schedule


def test_products_of_columns_that_are_apart_are_those_of_numpy(tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    x, y = (rng.integers(-4, 5, shape).astype(np.float32) for shape in ((69, 3), (3, 20_001)))
    specs = lm.TensorSpec(x.shape), lm.TensorSpec(y.shape)
    lowered = lm.jit(lambda x, y: x @ y).lower(*specs, device="cuda:0", arch="sm_90a")
    assert "split(a1, 128)" in lowered.kernels[0].schedule
    (got,) = run_on_host(lowered.planned, [x, y], tmp_path)
    np.testing.assert_array_equal(got, (x @ y).reshape(-1))
