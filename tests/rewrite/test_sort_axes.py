"""Sorts along any axis as sorts of rows, beside the interpreter's."""

from __future__ import annotations

import numpy as np
import pytest

from lamina.core.dtypes import float32
from lamina.graph.rewrite import rewrite
from lamina.graph.sort_axes import MAX_STRIDED, sorts_of_rows, whole_sorts
from lamina.ir import build
from lamina.ir.interpreter import evaluate
from lamina.ir.node import toposort
from lamina.ir.ops import Op, Order
from tests.generators import leaf


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("ranks", [(0, 7), (0, 2), (3, 4), (5, 7), (2, 2)])
def test_whole_sorts_are_equal(axis: int, descending: bool, ranks: tuple[int, int]) -> None:
    keys = leaf(0, (7, 7, 7), float32)
    random = np.random.default_rng(axis)
    array = random.choice([1.0, 2.0, np.nan, np.inf, 0.0, -0.0], keys.shape).astype(np.float32)
    node = build.argsort(keys, axis, descending, *ranks)
    (replaced,) = rewrite([node], [whole_sorts])
    for one in toposort([replaced]):
        assert one.op is not Op.ARGSORT or one.arg == Order(2, False, 0, 7)
    wanted, got = evaluate([node, replaced], {keys: array})
    np.testing.assert_array_equal(got, wanted)


def test_long_columns_are_transposed() -> None:
    keys = leaf(0, (3, MAX_STRIDED // 2, 3), float32)
    replaced = sorts_of_rows.apply(build.argsort(keys, 1, True, 0, 5))
    assert replaced is not None
    (order,) = (node for node in toposort([replaced]) if node.op is Op.ARGSORT)
    assert order.arg == Order(2, True, 0, 5)
    assert replaced.shape == (3, 5, 3)


@pytest.mark.parametrize("shape", [(4, 2 * MAX_STRIDED, 1), (4, MAX_STRIDED // 4, 4)])
def test_rows_and_short_columns_stay(shape: tuple[int, ...]) -> None:
    assert sorts_of_rows.apply(build.argsort(leaf(0, shape, float32), axis=1)) is None
