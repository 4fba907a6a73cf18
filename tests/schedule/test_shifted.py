"""Threads on GPUs that load neighbours from within accesses, and store whole accesses."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import lamina as lm
from lamina import Tensor
from lamina.frontend.lowered import Lowered
from tests.cuda.on_host import Array, run_on_host

Shape = tuple[int, ...]


def differences(x: Tensor) -> Tensor:
    return x[..., 1:] - x[..., :-1]


def rolled(x: Tensor) -> Tensor:
    return lm.roll(x, 3, axis=-1) * 2.0


def lowered(function: Callable[[Tensor], Tensor], shape: Shape) -> Lowered:
    spec = lm.TensorSpec(shape)
    return lm.jit(function).lower(spec, device="cuda:0", arch="sm_90a")


@pytest.mark.parametrize(("size", "neighbours"), [(23_181_016, 4), (65, 1)])
def test_a_thread_has_an_access_of_results(size: int, neighbours: int) -> None:
    """But a single one where threads would be few."""
    (kernel,) = lowered(differences, (size,)).kernels
    stores = [line for line in kernel.source.splitlines() if line.lstrip().startswith("p1[")]
    assert kernel.schedule.count("unroll") == (neighbours > 1)
    assert len(stores) >= neighbours


@pytest.mark.parametrize("shape", [(400_001,), (400_004,), (64, 8193)])
def test_differences_are_those_of_numpy(shape: Shape, tmp_path: Path) -> None:
    x: Array = np.random.default_rng(1).standard_normal(shape, dtype=np.float32)
    planned = lowered(differences, shape).planned
    assert any("unroll" in str(plan.moves) for plan in planned.plans.values())
    (got,) = run_on_host(planned, [x], tmp_path)
    np.testing.assert_array_equal(got, np.diff(x).reshape(-1))


@pytest.mark.parametrize("shape", [(400_004,), (64, 8192)])
def test_rolled_arrays_are_those_of_numpy(shape: Shape, tmp_path: Path) -> None:
    x: Array = np.random.default_rng(2).standard_normal(shape, dtype=np.float32)
    (got,) = run_on_host(lowered(rolled, shape).planned, [x], tmp_path)
    np.testing.assert_array_equal(got, 2 * np.roll(x, 3, axis=-1).reshape(-1))
