"""Scatters as sums by bins give what the interpreter gives of the scatter."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lamina.core.dtypes import DType, float32, int8, int16, int32, int64, uint8, uint16
from lamina.graph.binned_scatters import scatter_by_bins
from lamina.ir import build
from lamina.ir.interpreter import evaluate
from lamina.ir.monoids import ADD
from lamina.ir.node import Node, toposort
from lamina.ir.ops import Op, Scatter
from lamina.ir.verify import verify
from tests.generators import leaf


@given(
    st.lists(st.integers(1, 5), min_size=1, max_size=3),
    st.integers(1, 300),
    st.sampled_from([int8, uint8, int16, uint16, int32, int64]),
    st.booleans(),
    st.data(),
)
def test_a_scatter_as_a_sum_by_bins(
    sizes: list[int], places: int, dtype: DType, is_repeated: bool, data: st.DataObject
) -> None:
    """With any dtype of an index, also of one that has neither -1 nor the number of places."""
    axis = data.draw(st.integers(0, len(sizes) - 1))
    shape = tuple(sizes)
    base = leaf(0, (*shape[:axis], places, *shape[axis + 1 :]), float32)
    once = tuple(size if at == axis or not is_repeated else 1 for at, size in enumerate(shape))
    index, updates = leaf(1, once, dtype), leaf(2, shape, float32)
    operands = base, build.expand(index, shape), updates
    scatter = Node(Op.SCATTER, operands, Scatter(axis, ADD))
    new = scatter_by_bins(scatter, 7)
    verify([new])
    assert Op.BIN_SUM in {node.op for node in toposort([new])}
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    limits = np.iinfo(dtype.numpy)
    low, high = max(-5, limits.min), min(places + 5, limits.max)
    inputs = {
        base: rng.integers(-9, 10, base.shape).astype(np.float32),
        index: rng.integers(low, high + 1, once).astype(dtype.numpy),
        updates: rng.integers(-9, 10, shape).astype(np.float32),
    }
    wanted, got = evaluate([scatter, new], inputs)
    np.testing.assert_array_equal(got, wanted)
