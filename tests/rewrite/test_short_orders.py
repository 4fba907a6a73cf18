"""The order of few keys by counting, beside NumPy's stable order."""

from __future__ import annotations

import numpy as np
import pytest

from lamina.core.dtypes import DType, bfloat16, float32, int8, uint8
from lamina.graph.short_orders import MAX_KEYS, MIN_ROWS, short_orders
from lamina.ir.interpreter import evaluate
from lamina.ir.node import Node
from lamina.ir.ops import Op
from tests.generators import leaf


def _order(count: int, dtype: DType, rows: int = MIN_ROWS) -> Node:
    return Node(Op.ARGSORT, (leaf(0, (rows, count), dtype),))


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
