"""Scatters as reductions, beside NumPy's `add.at` and `maximum.at`, and when a GPU prefers them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lamina as lm
from lamina.core.dtypes import DType, float32, int32, int64
from lamina.core.target import DEFAULT_CUDA
from lamina.graph.scatter_sums import scatter_of_sums
from lamina.ir import build
from lamina.ir.interpreter import evaluate
from lamina.ir.monoids import ADD, MAX, Monoid
from lamina.ir.node import Node, toposort
from lamina.ir.ops import Op, Scatter
from lamina.schedule.gpu.scatters import scatters
from tests.generators import leaf

IN_OTHER_WAYS = scatters(DEFAULT_CUDA)

ROWS, PLACES, UPDATES = 5, 7, 12


def _scatter(dtype: DType, monoid: Monoid, axis: int = 1) -> Node:
    """At places of (ROWS, UPDATES) or (UPDATES, ROWS)."""
    shape, results = (ROWS, UPDATES), (ROWS, PLACES)
    if axis == 0:
        shape, results = shape[::-1], results[::-1]
    operands = leaf(0, results, dtype), leaf(1, shape, int64), leaf(2, shape, dtype)
    return Node(Op.SCATTER, operands, Scatter(axis, monoid))


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize(("dtype", "monoid"), [(float32, ADD), (int32, ADD), (float32, MAX)])
def test_a_reduction_of_what_each_place_gets_is_the_scatter(
    dtype: DType, monoid: Monoid, axis: int
) -> None:
    """Places out of range get nothing, and an infinity stays at its place."""
    random = np.random.default_rng(axis)
    scatter = _scatter(dtype, monoid, axis)
    base = (10 * random.standard_normal(scatter.shape)).astype(dtype.numpy)
    index = random.integers(-1, PLACES + 1, scatter.src[1].shape)
    updates = (10 * random.standard_normal(index.shape)).astype(dtype.numpy)
    if dtype is float32:
        updates[0, 0] = np.inf
    node = scatter_of_sums(scatter)
    assert node is not None
    (got,) = evaluate([node], dict(zip(scatter.src, (base, index, updates), strict=True)))
    wanted = base.copy()
    combine = np.add if monoid is ADD else np.maximum
    for at in np.ndindex(*index.shape):
        if 0 <= index[at] < PLACES:
            place = (at[0], index[at]) if axis == 1 else (index[at], at[1])
            wanted[place] = combine(wanted[place], updates[at])
    np.testing.assert_allclose(np.asarray(got), wanted, rtol=1e-6, atol=1e-5)


def test_a_negative_zero_that_nothing_is_added_to_stays_one() -> None:
    scatter = _scatter(float32, ADD)
    base = np.full(scatter.shape, -0.0, np.float32)
    index = np.full((ROWS, UPDATES), PLACES)
    node = scatter_of_sums(scatter)
    assert node is not None
    arrays = base, index, np.ones(index.shape, np.float32)
    (got,) = evaluate([node], dict(zip(scatter.src, arrays, strict=True)))
    assert np.signbit(np.asarray(got)).all()


def test_a_scatter_that_replaces_stays_one() -> None:
    assert scatter_of_sums(Node(Op.SCATTER, _scatter(float32, ADD).src, Scatter(1, None))) is None


def _into_zeros(rows: int, places: int, updates: int) -> Node:
    zeros = build.full((rows, places), 0.0, float32)
    index, update = leaf(1, (rows, updates), int64), leaf(2, (rows, updates), float32)
    return Node(Op.SCATTER, (zeros, index, update), Scatter(1, ADD))


def test_rows_of_few_results_are_reductions_and_those_of_many_are_not() -> None:
    few, many = _into_zeros(1 << 20, 7, 14), _into_zeros(1 << 20, 500, 14)
    reduced = IN_OTHER_WAYS.apply(few)
    assert reduced is not None
    assert Op.REDUCE in {node.op for node in toposort([reduced])}
    assert IN_OTHER_WAYS.apply(many) is None


@pytest.mark.parametrize(("mode", "lengths"), [("bilinear", 1), ("bicubic", 2)])
def test_the_derivative_of_an_interpolation_reads_its_updates_once(mode: str, lengths: int) -> None:
    """All taps along an axis whose windows have one length are one kernel of reductions, which has
    no scatter. Of a bicubic one the outer taps are cut off at the ends, which get more of them."""
    small = lm.TensorSpec((1, 1 << 16, 7, 7), lm.bfloat16)
    large = lm.TensorSpec((1, 1 << 16, 14, 14), lm.bfloat16)

    def derivative(x: lm.Tensor, dy: lm.Tensor) -> Any:
        return lm.gradient(lm.interpolate(x, (14, 14), mode=mode), [x], dy)

    lowered = lm.jit(derivative).lower(small, large, device="cuda:0", arch="sm_90a")
    names = [kernel.name for kernel in lowered.kernels]
    assert not [name for name in names if name.startswith("scatter")]
    assert sum(name.endswith("x14x7") for name in names) == lengths
