"""Rows on GPUs that several passes read, whose elements lie apart: one kernel, in registers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lamina as lm
from lamina import Tensor
from lamina.core.dtypes import DType
from lamina.frontend.lowered import Lowered
from lamina.fuse.kernel_group import MIN_ROWS_APART
from tests.cuda.on_host import Array, run_on_host

Shape = tuple[int, ...]
Function = Callable[..., Tensor]
AXIS = 1  # of the elements of a row


def softmax(x: Tensor) -> Tensor:
    return lm.softmax(x, axis=AXIS)


def with_unit_norm(x: Tensor) -> Tensor:
    return x / lm.sqrt(lm.sum(x * x, axis=AXIS, keepdims=True))


def standardized(x: Tensor) -> Tensor:
    """In three passes over a row."""
    centred = x - lm.mean(x, axis=AXIS, keepdims=True)
    return centred / lm.sqrt(lm.mean(centred * centred, axis=AXIS, keepdims=True) + 1e-5)


def unit_norm_of_numpy(x: Array) -> Array:
    return x / np.linalg.norm(x, axis=AXIS, keepdims=True)


def standardized_of_numpy(x: Array) -> Array:
    centred = x - x.mean(axis=AXIS, keepdims=True)
    return centred / np.sqrt(x.var(axis=AXIS, keepdims=True) + 1e-5)


OF_NUMPY: dict[Function, Callable[[Array], Array]] = {
    with_unit_norm: unit_norm_of_numpy,
    standardized: standardized_of_numpy,
}


def lowered(function: Function, *shapes: Shape, dtype: DType = lm.float32) -> Lowered:
    specs = [lm.TensorSpec(shape, dtype) for shape in shapes]
    return lm.jit(function).lower(*specs, device="cuda:0", arch="sm_90a")


@pytest.mark.parametrize("function", [with_unit_norm, standardized])
@pytest.mark.parametrize("shape", [(8, 5, 8192), (6, 21, 8200), (7, 8, 5001), (40, 3, 33, 27)])
def test_results_are_those_of_numpy(function: Function, shape: Shape, tmp_path: Path) -> None:
    x: Array = np.random.default_rng(7).standard_normal(shape, dtype=np.float32)
    program = lowered(function, shape)
    assert len(program.kernels) == 1
    (got,) = run_on_host(program.planned, [x], tmp_path)
    expected = OF_NUMPY[function](x.astype(np.float64))
    np.testing.assert_allclose(got, expected.reshape(-1), rtol=1e-4, atol=1e-5)


def test_gradients_are_those_of_numpy(tmp_path: Path) -> None:
    """They pass over a second array."""
    shape = (8, 6, 8192)
    x, dy = np.random.default_rng(8).standard_normal((2, *shape), dtype=np.float32)

    def gradient(x: Tensor, dy: Tensor) -> Any:
        return lm.grad(lambda x: lm.sum(with_unit_norm(x) * dy))(x)

    program = lowered(gradient, shape, shape)
    assert len(program.kernels) == 1
    (got,) = run_on_host(program.planned, [dy, x], tmp_path)  # dy is read first
    y = unit_norm_of_numpy(x.astype(np.float64))
    norm = np.linalg.norm(x, axis=AXIS, keepdims=True)
    expected = (dy - y * (dy * y).sum(axis=AXIS, keepdims=True)) / norm
    np.testing.assert_allclose(got, expected.reshape(-1), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("shape", "dtype", "neighbours"),
    [
        ((128, 8, 22896), lm.bfloat16, 8),
        ((128, 8, 22898), lm.bfloat16, 2),  # as aligned as rows are
        ((128, 21, 22896), lm.bfloat16, 2),  # as registers hold
        ((128, 8, 22896), lm.float32, 4),
    ],
)
def test_a_thread_has_whole_rows_that_are_neighbours(
    shape: Shape, dtype: DType, neighbours: int
) -> None:
    (kernel,) = lowered(softmax, shape, dtype=dtype).kernels
    assert f"split(a1, {neighbours})" in kernel.schedule
    assert "thread" not in kernel.schedule
    stores = [line for line in kernel.source.splitlines() if line.startswith("        p1[")]
    assert len(stores) == neighbours * shape[AXIS]


def test_threads_of_a_block_share_rows_that_are_too_long_for_one() -> None:
    (kernel,) = lowered(softmax, (1, 1000, 8192)).kernels
    assert kernel.schedule.count("thread") == 2  # neighbouring rows, and elements of a row


@pytest.mark.parametrize(
    ("shape", "count"),
    [
        ((1, 1024, MIN_ROWS_APART), 1),
        ((1, 1025, MIN_ROWS_APART), 2),
        ((1, 1024, MIN_ROWS_APART - 1), 2),
        ((1, 64, 1000), 1),  # of few elements
    ],
)
def test_passes_are_kernels_where_rows_are_long_or_few(shape: Shape, count: int) -> None:
    assert len(lowered(softmax, shape).kernels) == count
