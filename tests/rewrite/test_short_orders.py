"""The order of few keys by counting, beside NumPy's stable order."""

from __future__ import annotations

import numpy as np
import pytest

from lamina.core.dtypes import DType, bfloat16, float32, int8, uint8
from lamina.graph.short_orders import MAX_KEYS, MIN_ROWS, short_orders, shortest_orders
from lamina.ir import build
from lamina.ir.interpreter import evaluate
from lamina.ir.node import Node
from tests.generators import leaf


def _order(count: int, dtype: DType, rows: int = MIN_ROWS) -> Node:
    return build.argsort(leaf(0, (rows, count), dtype))


@pytest.mark.parametrize("count", [2, 3, 7, MAX_KEYS])
@pytest.mark.parametrize("dtype", [float32, bfloat16, int8, uint8])
def test_orders_are_those_of_a_stable_sort(count: int, dtype: DType) -> None:
    random = np.random.default_rng(count)
    numbers = random.integers(0, 5, (MIN_ROWS, count))  # many are equal
    keys = numbers.astype(dtype.numpy)
    if dtype.is_float:
        special = np.array([np.nan, np.inf, -np.inf, -0.0], dtype.numpy)
        chosen = random.integers(0, 8, keys.shape)
        keys = np.where(chosen < 4, special[chosen % 4], keys)
    node = _order(count, dtype)
    replaced = short_orders.apply(node)
    assert replaced is not None
    (got,) = evaluate([replaced], {node.src[0]: keys})
    wanted = np.argsort(keys.astype(np.float32), axis=-1, stable=True)
    np.testing.assert_array_equal(got, wanted)
    assert got.dtype == np.int64


def test_long_or_few_rows_are_sorted() -> None:
    assert short_orders.apply(_order(MAX_KEYS + 1, float32)) is None
    assert short_orders.apply(_order(MAX_KEYS, float32, MIN_ROWS - 1)) is None


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("ranks", [(0, 4), (0, 2), (1, 2)])
def test_ranks_along_any_axis(axis: int, descending: bool, ranks: tuple[int, int]) -> None:
    shape = (4, MIN_ROWS) if axis == 0 else (MIN_ROWS, 4)
    random = np.random.default_rng(axis)
    keys = random.choice([1, 2, np.nan, np.inf, -0.0, 0.0], shape).astype(np.float32)
    node = build.argsort(leaf(0, shape, float32), axis, descending, *ranks)
    replaced = shortest_orders.apply(node)
    assert replaced is not None
    wanted, got = evaluate([node, replaced], {node.src[0]: keys})
    np.testing.assert_array_equal(got, wanted)
