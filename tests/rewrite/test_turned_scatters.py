"""Scatters along the last axis, beside what the interpreter makes of those along another one."""

from __future__ import annotations

import numpy as np
import pytest

from lamina.core.dtypes import DType, float16, float32, int32, int64
from lamina.graph.turned_scatters import scatter_along_last_axis
from lamina.ir import build
from lamina.ir.interpreter import evaluate
from lamina.ir.monoids import ADD, MAX, Monoid
from lamina.ir.node import Node, toposort
from lamina.ir.ops import Op, Scatter
from tests.generators import leaf

PLACES, UPDATES = 6, 40


def _scatter(axis: int, dtype: DType, monoid: Monoid | None, *, repeats: bool) -> Node:
    """Along an axis of three; with `repeats` the index is the same along the others."""
    shape, base, once = [3, 4, 5], [3, 4, 5], [1, 1, 1]
    shape[axis], base[axis], once[axis] = UPDATES, PLACES, UPDATES
    index = leaf(1, tuple(once if repeats else shape), int64)
    where = build.expand(index, tuple(shape))
    operands = leaf(0, tuple(base), dtype), where, leaf(2, tuple(shape), dtype)
    return Node(Op.SCATTER, operands, Scatter(axis, monoid))


def _values(node: Node, random: np.random.Generator) -> np.ndarray:
    """Places in and out of range, of which some have the last 32 bits of one that is."""
    if node.dtype is int64:
        index = random.integers(-2, PLACES + 2, node.shape)
        return index + (random.integers(0, 4, node.shape) == 0) * (1 << 32)
    return random.integers(-9, 9, node.shape).astype(node.dtype.numpy)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("repeats", [False, True])
@pytest.mark.parametrize(
    ("dtype", "monoid"), [(float32, ADD), (int32, MAX), (float32, None)], ids=str
)
def test_results_are_the_same(
    axis: int, repeats: bool, dtype: DType, monoid: Monoid | None
) -> None:
    node = _scatter(axis, dtype, monoid, repeats=repeats)
    turned = scatter_along_last_axis(node)
    assert turned is not None
    (scatter,) = [one for one in toposort([turned]) if one.op is Op.SCATTER]
    assert scatter.arg.axis == 2
    random = np.random.default_rng(0)
    leaves = {one: _values(one, random) for one in toposort([node]) if one.op is Op.BUFFER}
    got, want = evaluate([turned, node], leaves)
    np.testing.assert_array_equal(got, want)


def test_an_index_that_repeats_is_copied_once() -> None:
    turned = scatter_along_last_axis(_scatter(0, float32, ADD, repeats=True))
    assert turned is not None
    stored = [node for node in toposort([turned]) if node.op is Op.CONTIGUOUS]
    assert sorted(np.prod(node.shape) for node in stored) == [UPDATES, 4 * 5 * UPDATES]


def test_updates_of_16_bits_are_copied_before_they_are_cast() -> None:
    base, index, new = _scatter(0, float16, ADD, repeats=False).src
    operands = build.cast(base, float32), index, build.cast(new, float32)
    turned = scatter_along_last_axis(Node(Op.SCATTER, operands, Scatter(0, ADD)))
    assert turned is not None
    stored = [node for node in toposort([turned]) if node.op is Op.CONTIGUOUS]
    assert float32 not in {node.dtype for node in stored}
    assert float16 in {node.dtype for node in stored}


def test_a_scatter_along_the_last_axis_stays() -> None:
    assert scatter_along_last_axis(_scatter(2, float32, ADD, repeats=False)) is None
    assert scatter_along_last_axis(leaf(0, (3,), float32)) is None
