"""Kernels side by side in one launch: their text, and what a GPU makes of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import lamina as lm
from lamina import Tensor, TensorSpec
from lamina.core import options
from lamina.frontend.lowered import Lowered
from lamina.runtime import cuda
from lamina.runtime.nvrtc import compile_source
from lamina.targets.horizontal import BETWEEN_NAMES
from tests.cuda.on_host import run_on_host

SIZES = (96, 160, 96)


def products(rows: list[Tensor], weights: list[Tensor]) -> list[Tensor]:
    """Products of rows by weights, none of which needs another one."""
    return [row @ weight for row, weight in zip(rows, weights, strict=True)]


def lowered(arch: str = "sm_90a") -> Lowered:
    rows = [TensorSpec((1, 256), lm.float32) for _ in SIZES]
    weights = [TensorSpec((256, size), lm.float32) for size in SIZES]
    return lm.jit(products).lower(rows, weights, device="cuda:0", arch=arch)


def test_one_launch_has_the_blocks_of_all() -> None:
    planned = lowered().planned
    (launch,) = planned.launches
    (step,) = planned.program.steps
    assert len(step) == len(SIZES)
    assert launch.name.count(BETWEEN_NAMES) == len(SIZES) - 1
    assert len(launch.arguments) == 3 * len(SIZES)


def test_equal_kernels_are_printed_once() -> None:
    source = lowered().planned.source
    assert source is not None
    (text,) = source.kernels.values()
    assert text.count("INLINE void") == len(set(SIZES))
    assert text.count("BLOCK - ") == len(SIZES)


def test_each_kernel_has_the_text_that_it_is_a_part_of() -> None:
    kernels = lowered().kernels
    assert len(kernels) == len(set(SIZES))
    assert all(f"INLINE void {kernel.name}(" in kernel.source for kernel in kernels)


@pytest.mark.parametrize("size", [1 << 10, 1 << 12])
def test_products_in_tiles_have_launches_of_their_own(size: int) -> None:
    matrices = [TensorSpec((size, 1024), lm.bfloat16) for _ in range(2)]
    weights = [TensorSpec((1024, 1024), lm.bfloat16) for _ in range(2)]
    planned = lm.jit(products).lower(matrices, weights, device="cuda:0", arch="sm_90a").planned
    assert [len(step) for step in planned.program.steps] == [1, 1]
    assert len(planned.launches) == 2


def test_a_part_of_several_launches_stands_in_one_text() -> None:
    arrays = [TensorSpec((64,), lm.float32) for _ in range(10)]
    twice = lm.jit(lambda xs: [x * 2.0 + 1.0 for x in xs])
    planned = twice.lower(arrays, device="cuda:0", arch="sm_90a").planned
    assert len(planned.launches) == 2
    assert compile_source(planned.text, "sm_90a")


def sums_of_columns(arrays: list[Tensor]) -> list[Tensor]:
    """Reductions whose threads exchange through shared memory."""
    functions = (lm.sum, lm.max, lm.min, lm.argmax, lm.argmin)
    results = [function(x, axis=0) for x in arrays for function in functions]
    return [*results, *((x * x).sum(axis=0) for x in arrays)]


@pytest.mark.usefixtures("nvrtc")
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_exchanges_of_all_parts_fit(arch: str) -> None:
    arrays = [TensorSpec((128 + 16 * number, 2048), lm.float64) for number in range(8)]
    planned = lm.jit(sums_of_columns).lower(arrays, device="cuda:0", arch=arch).planned
    assert compile_source(planned.text, arch)
    assert 1 < len(planned.launches) < len(planned.program.launches)


@pytest.mark.usefixtures("nvrtc")
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_100"])
def test_nvrtc_accepts_the_text(arch: str) -> None:
    assert compile_source(lowered(arch).planned.text, arch)


def test_parts_compute_their_own_arrays(tmp_path: Path) -> None:
    def halves(arrays: list[Tensor]) -> list[Tensor]:
        return [x * 0.5 + float(number) for number, x in enumerate(arrays)]

    arrays = [np.full((20 + 7 * number, 5), number, np.float32) for number in range(12)]
    specs = [TensorSpec(array.shape, lm.float32) for array in arrays]
    planned = lm.jit(halves).lower(specs, device="cuda:0", arch="sm_90a").planned
    assert len(planned.launches) == 2
    results = run_on_host(planned, arrays, tmp_path)
    for result, array, number in zip(results, arrays, range(12), strict=True):
        np.testing.assert_array_equal(result, array.reshape(-1) * 0.5 + number)


@pytest.mark.parametrize("dtype", [lm.float32, lm.bfloat16])
def test_results_on_a_gpu(device: cuda.Device, dtype: lm.DType) -> None:
    rng = np.random.default_rng(3)
    rows, weights = (
        [rng.integers(-3, 4, shape).astype(np.float32) for shape in shapes]
        for shapes in ([(1, 256)] * len(SIZES), [(256, size) for size in SIZES])
    )
    with options.using(device=device.name):
        arguments = [[Tensor(array).cast(dtype) for array in arrays] for arrays in (rows, weights)]
        results = lm.jit(products)(*arguments)
    for result, row, weight in zip(results, rows, weights, strict=True):
        want = row @ weight
        np.testing.assert_allclose(result.cast(lm.float32).numpy(), want, 0.01, 0.5)


def test_updates_of_many_parameters_on_a_gpu(device: cuda.Device) -> None:
    with options.using(device=device.name):
        parameters = [Tensor(np.full((number + 1, 7), float(number))) for number in range(20)]

        @lm.jit
        def update() -> None:
            for parameter in parameters:
                parameter.assign(parameter * 0.5 + 1.0)

        update()
        update()
    for number, parameter in enumerate(parameters):
        want = (number * 0.5 + 1.0) * 0.5 + 1.0
        np.testing.assert_allclose(parameter.numpy(), np.full((number + 1, 7), want))
