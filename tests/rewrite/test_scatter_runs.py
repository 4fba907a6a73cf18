"""Scatters as sums of runs, beside NumPy's `ufunc.at`, and when a GPU prefers them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lamina.core.dtypes import DType, bfloat16, float32, float64, int8, int32, int64, uint8, uint16
from lamina.core.target import DEFAULT_CUDA
from lamina.graph.scatter_runs import FEW, MAX_PART, MIN_PART, keys_of, part_of, scatter_of_runs
from lamina.ir import build
from lamina.ir.interpreter import evaluate
from lamina.ir.monoids import ADD, MAX, MIN, MUL, Monoid
from lamina.ir.node import Node, toposort
from lamina.ir.ops import Op, Scatter
from lamina.schedule.gpu.scatters import scatters
from tests.generators import leaf

IN_OTHER_WAYS = scatters(DEFAULT_CUDA)

COMBINED = {ADD: np.add, MAX: np.maximum, MIN: np.minimum, MUL: np.multiply}


def _scatter(
    updates: int, places: int, columns: int, dtype: DType, monoid: Monoid = ADD, axis: int = 0
) -> Node:
    """Of an index that all columns share."""
    own, shape, results = (updates, 1), (updates, columns), (places, columns)
    if axis == 1:
        own, shape, results = own[::-1], shape[::-1], results[::-1]
    index = build.expand(leaf(1, own, int64), shape)
    operands = leaf(0, results, dtype), index, leaf(2, shape, dtype)
    return Node(Op.SCATTER, operands, Scatter(axis, monoid))


def _run(scatter: Node, base: Any, index: Any, updates: Any) -> Any:
    """What the sums of runs come to."""
    node = scatter_of_runs(scatter)
    assert node is not None
    assert Op.SCATTER not in {one.op for one in toposort([node])}
    target, where, source = scatter.src
    own = where.src[0] if where.op is Op.EXPAND else where
    leaves = {target: base, own: index, source: updates}
    (result,) = evaluate([node], leaves)
    return np.asarray(result)


def _indices(random: np.random.Generator, updates: int, places: int, share: float) -> Any:
    """Places, some of them out of range, and a share of the updates at one of them."""
    index = random.integers(-1, places + 1, updates)
    index[random.random(updates) < share] = random.integers(places)
    return index


@settings(max_examples=60, deadline=None)
@given(
    updates=st.integers(FEW + 1, 5 * FEW), places=st.integers(1, 700), columns=st.integers(1, 3),
    share=st.sampled_from([0.0, 0.3, 1.0]), axis=st.integers(0, 1),
    dtype=st.sampled_from([float32, float64, int32]), monoid=st.sampled_from([ADD, MAX, MIN]),
    seed=st.integers(0, 99),
)  # fmt: skip
def test_reductions_of_runs_are_the_scatter(
    updates: int, places: int, columns: int, share: float, axis: int, dtype: DType,
    monoid: Monoid, seed: int,
) -> None:  # fmt: skip
    random = np.random.default_rng(seed)
    index = _indices(random, updates, places, share)
    base = (10 * random.standard_normal((places, columns))).astype(dtype.numpy)
    new = (10 * random.standard_normal((updates, columns))).astype(dtype.numpy)
    inside = (index >= 0) & (index < places)
    wanted = base.astype(np.float64)
    COMBINED[monoid].at(wanted, index[inside], new[inside].astype(np.float64))
    arrays = base, index[:, None], new
    got = _run(
        _scatter(updates, places, columns, dtype, monoid, axis),
        *(one.T if axis else one for one in arrays),
    )
    np.testing.assert_allclose(got.T if axis else got, wanted, rtol=1e-6, atol=5e-4)


@pytest.mark.parametrize("updates", [300, 5_000, 100_000])
def test_sums_of_one_sign_are_as_exact_as_other_sums(updates: int) -> None:
    """Of numbers that all round the same way as they are added up one after the other: those of
    the first place are 2**-20 of a part's sum too small by half a unit each."""
    new = np.full((updates, 1), 1 + 2.0**-23, np.float32)
    new[::7] = np.float32(1 / 3)
    index = np.zeros((updates, 1), np.int64)
    index[1::5] = 1
    got = _run(_scatter(updates, 2, 1, float32), np.zeros((2, 1), np.float32), index, new)
    for place in (0, 1):
        exact = math.fsum(new[index == place].tolist())
        assert abs(got[place, 0] - exact) <= 1e-6 * exact


def test_places_of_several_rows_are_sorted_row_by_row() -> None:
    """An index that differs along a second axis, and is the same along a third."""
    random = np.random.default_rng(8)
    rows, count, places, columns = 3, 2 * FEW, 9, 2
    own = leaf(1, (rows, count, 1), int64)
    index = build.expand(own, (rows, count, columns))
    zeros = build.full((rows, places, columns), 0.0, float64)
    update = leaf(2, (rows, count, columns), float64)
    node = scatter_of_runs(Node(Op.SCATTER, (zeros, index, update), Scatter(1, ADD)))
    assert node is not None
    where = random.integers(0, places, (rows, count, 1))
    new = random.standard_normal((rows, count, columns))
    (got,) = evaluate([node], {own: where, update: new})
    wanted = np.zeros((rows, places, columns))
    for row in range(rows):
        np.add.at(wanted[row], where[row, :, 0], new[row])
    np.testing.assert_allclose(np.asarray(got), wanted, rtol=1e-9, atol=1e-9)


def test_products_of_runs_are_those_of_the_updates() -> None:
    new = np.full((2000, 1), 2.0)
    index = np.arange(2000).reshape(2000, 1) % 40
    got = _run(_scatter(2000, 41, 1, float64, MUL), np.full((41, 1), 3.0), index, new)
    np.testing.assert_array_equal(got[:, 0], [3.0 * 2.0**50] * 40 + [3.0])


def test_what_is_not_finite_is_as_in_a_sum() -> None:
    inf, nan = np.inf, np.nan
    new = np.ones((FEW + 50, 1), np.float32)
    index = np.arange(len(new)).reshape(-1, 1) % 5
    new[0], new[1], new[6], new[2], new[8] = inf, inf, -inf, nan, -inf
    got = _run(_scatter(len(new), 5, 1, float32), np.zeros((5, 1), np.float32), index, new)
    np.testing.assert_array_equal(got[:, 0], [inf, nan, nan, -inf, got[4, 0]])
    assert np.isfinite(got[4, 0])


def test_places_without_updates_keep_their_bits() -> None:
    base = np.full((7, 1), -0.0, np.float32)
    index = np.full((2 * FEW, 1), 3)
    got = _run(_scatter(2 * FEW, 7, 1, float32), base, index, np.ones((2 * FEW, 1), np.float32))
    np.testing.assert_array_equal(np.signbit(got[:, 0]), np.arange(7) != 3)


def test_parts_are_powers_of_two_about_twice_as_long_as_runs() -> None:
    assert part_of(1_000_000, 100_000) == 32
    assert part_of(16_384, 50_304) == MIN_PART
    assert part_of(6 * 100, 100) == 16
    assert part_of(1 << 30, 1) == MAX_PART


def test_scatters_that_replace_or_have_few_updates_stay() -> None:
    operands = _scatter(2 * FEW, 7, 3, float32).src
    assert scatter_of_runs(Node(Op.SCATTER, operands, Scatter(0, None))) is None
    assert scatter_of_runs(_scatter(FEW, 7, 3, float32)) is None


def _sorts(updates: int, places: int, columns: int) -> bool:
    """Whether a GPU takes a scatter as sums of runs."""
    new = IN_OTHER_WAYS.apply(_scatter(updates, places, columns, float32))
    return new is not None and Op.ARGSORT in {one.op for one in toposort([new])}


def test_updates_of_many_columns_are_sorted_by_their_places() -> None:
    """The messages of a graph network are, weights of a histogram are not, and neither are updates
    so few that the kernels of a sort take longer."""
    assert _sorts(1_000_000, 100_000, 128)
    assert not _sorts(1_000_000, 100_000, 1)
    assert not _sorts(2_000, 1_000, 64)


def test_scatters_of_one_index_share_its_order() -> None:
    """Of updates of bfloat16, which are read as they lie, and of others."""
    shape = (1_000_000, 128)
    index = build.expand(leaf(1, (shape[0], 1), int64), shape)
    zeros = build.full((100_000, shape[1]), 0.0, float32)
    sums = []
    for number, dtype in enumerate((float32, bfloat16)):
        update = build.cast(leaf(2 + number, shape, dtype), float32)
        sums.append(
            IN_OTHER_WAYS.apply(Node(Op.SCATTER, (zeros, index, update), Scatter(0, ADD)))
        )
    assert None not in sums
    nodes = toposort([one for one in sums if one is not None])
    assert sum(node.op is Op.ARGSORT for node in nodes) == 1


@pytest.mark.parametrize("dtype", [uint8, int8, uint16, int64])
def test_keys_of_any_index(dtype: DType) -> None:
    """300 places are more than a byte can number, and -1 is no number without a sign."""
    index = leaf(0, (4,), dtype)
    places = np.array([0, 3, 44, 127], dtype.numpy)
    (keys,) = evaluate([keys_of(index, 300)], {index: places})
    np.testing.assert_array_equal(keys, places)
