"""Sums by bins: what their kernels compute, run in fibers, and which scatters are such sums."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lamina.core import dtypes
from lamina.core.dtypes import DType
from lamina.core.shape import prod
from lamina.graph.binned_scatters import scatter_by_bins
from lamina.ir.interpreter import evaluate
from lamina.ir.kernel import BinKernel
from lamina.ir.monoids import ADD
from lamina.ir.node import Node
from lamina.ir.ops import Op, Scatter
from lamina.runtime.nvrtc import compile_source
from tests.cuda.fibers import run_in_fibers
from tests.cuda.test_compile import ARCHITECTURES, compiled
from tests.generators import leaf

Array = np.ndarray[Any, Any]


def bin_sum(places: int, updates: int, bins: int) -> Node:
    operands = (
        leaf(0, (places,), dtypes.float32),
        leaf(1, (updates,), dtypes.int32),
        leaf(2, (updates,), dtypes.float32),
    )
    return Node(Op.BIN_SUM, operands, bins)


def scatter(shape: tuple[int, ...], index: DType = dtypes.int64, axis: int = 0) -> Node:
    base, updates = (leaf(at, shape, dtypes.float32) for at in (0, 2))
    return Node(Op.SCATTER, (base, leaf(1, shape, index), updates), Scatter(axis, ADD))


def in_float64(base: Array, at: Array, updates: Array) -> Array:
    """The sums by NumPy; an update at -1 goes nowhere."""
    wanted = base.astype(np.float64)
    is_one = at >= 0
    with np.errstate(invalid="ignore"):
        np.add.at(wanted, at[is_one], updates[is_one].astype(np.float64))
    return wanted


@pytest.mark.parametrize(
    ("places", "updates", "bins", "hub"),
    [
        (1, 40, 1, 0.0),
        (100, 60, 3, 0.0),
        (1000, 20_000, 7, 0.0),  # 4 chunks
        (70_001, 9000, 132, 0.0),  # the last row of sectors is not whole
        (3000, 9000, 5, 0.7),  # most updates have one place
        (3000, 7000, 132, 1.0),
    ],
)
def test_sums_are_rounded_once(
    places: int, updates: int, bins: int, hub: float, tmp_path: Path
) -> None:
    rng = np.random.default_rng(places)
    base = rng.standard_normal(places).astype(np.float32)
    exponents = rng.integers(-4, 5, updates)
    added = (rng.standard_normal(updates) * 10.0**exponents).astype(np.float32)
    at = rng.integers(-1, places, updates).astype(np.int32)
    at[rng.random(updates) < hub] = places // 2
    (got,) = run_in_fibers(compiled(bin_sum(places, updates, bins)), [base, at, added], tmp_path)
    wanted = in_float64(base, at, added)
    sizes = in_float64(np.abs(base), at, np.abs(added))
    assert np.all(np.abs(got - wanted) <= 2.0**-24 * np.abs(wanted) + 2.0**-40 * sizes)
    is_untouched = ~np.isin(np.arange(places), at)
    np.testing.assert_array_equal(got[is_untouched], base[is_untouched])


def test_what_is_not_finite_stays_at_its_place(tmp_path: Path) -> None:
    base = np.zeros(50, np.float32)
    base[7] = -0.0  # it has no update
    at = np.array([1, 2, 3, 3, 4, 5, 5], np.int32)
    added = np.array([np.inf, -np.inf, np.inf, -np.inf, np.nan, 3e38, 3e38], np.float32)
    (got,) = run_in_fibers(compiled(bin_sum(50, 7, 4)), [base, at, added], tmp_path)
    np.testing.assert_array_equal(got[:7], [0, np.inf, -np.inf, np.nan, np.nan, np.inf, 0])
    assert np.signbit(got[7])
    assert not np.any(got[8:])


def test_an_array_may_be_the_base_and_the_updates(tmp_path: Path) -> None:
    x, at = leaf(0, (900,), dtypes.float32), leaf(1, (900,), dtypes.int32)
    values = np.arange(900, dtype=np.float32)
    backwards = np.arange(900, dtype=np.int32)[::-1]
    planned = compiled(Node(Op.BIN_SUM, (x, at, x), 3))
    (got,) = run_in_fibers(planned, [values, backwards], tmp_path)
    np.testing.assert_array_equal(got, np.full(900, 899, np.float32))


@pytest.mark.parametrize("index", [dtypes.int8, dtypes.uint8, dtypes.int32, dtypes.int64])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_scatters_of_every_axis(axis: int, index: DType, tmp_path: Path) -> None:
    """By the interpreter; places outside of the axis get nothing."""
    node = scatter((9, 20, 6), index, axis)
    rng = np.random.default_rng(axis)
    base, added = (rng.integers(-9, 10, node.shape).astype(np.float32) for _ in range(2))
    low = -3 if index is not dtypes.uint8 else 0
    at = rng.integers(low, node.shape[axis] + 3, node.shape).astype(index.numpy)
    (got,) = run_in_fibers(compiled(scatter_by_bins(node, 5)), [base, at, added], tmp_path)
    (wanted,) = evaluate([node], dict(zip(node.src, (base, at, added), strict=True)))
    np.testing.assert_array_equal(got, wanted.reshape(-1))


@pytest.mark.parametrize(
    ("shape", "axis", "is_binned"),
    [
        ((743_777, 2), 0, True),
        ((1_000_000,), 0, True),
        ((100_003,), 0, False),  # few updates: 12 us as integers, and 19.5 by bins
        ((128, 8192), 1, False),  # a block holds all places of a row
        ((2, 4_108_120), 1, True),  # 528 bins, as 132 have too many places
        ((14_847, 433), 0, False),  # blocks hold the places of a column
        ((17, 1_000_000), 1, False),  # more bins than a block has threads
        ((300, 2), 0, False),
    ],
)
def test_which_scatters_are_sums_by_bins(
    shape: tuple[int, ...], axis: int, is_binned: bool
) -> None:
    planned = compiled(scatter(shape, axis=axis))
    kernels = [plan.nest for plan in planned.plans.values() if isinstance(plan.nest, BinKernel)]
    assert [kernel.left for kernel in kernels] == ([1, 0] if is_binned else [])
    assert all(kernel.bins * kernel.size >= prod(shape) for kernel in kernels)


@pytest.mark.usefixtures("nvrtc")
def test_nvrtc_takes_the_kernels() -> None:
    text = compiled(bin_sum(1_487_554, 1_487_554, 132)).text
    for arch in ARCHITECTURES:
        assert compile_source(text, arch)
