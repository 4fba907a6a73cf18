"""Sums over ranks of scattered rows, sent as rows: the same values on every rank, and less sent."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lamina.core import dtypes
from lamina.graph.rewrite import rewrite
from lamina.graph.sent_rows import sums_as_rows
from lamina.ir import build
from lamina.ir.monoids import ADD
from lamina.ir.node import Node, full, toposort
from lamina.ir.ops import Combine, Group, Op, Scatter
from tests.distributed.lockstep import evaluate_ranks, hole

WIDTH = 3


def indices(count: int, rows: int, axis: int, *, is_vector: bool = False) -> np.ndarray:
    shape = (count, 1) if axis == 0 else (count,) if is_vector else (1, count)
    return np.random.default_rng(rows).integers(0, rows, shape)


def scattered(base: Node, index: Node, updates: Node, axis: int) -> Node:
    return Node(Op.SCATTER, (base, build.expand(index, updates.shape), updates), Scatter(axis, ADD))


def sum_of(node: Node, ranks: int) -> Node:
    return Node(Op.ALL_REDUCE, (node,), Combine(ADD, ranks, 1))


def collectives(node: Node) -> Counter[Op]:
    """How many there are of each kind."""
    return Counter(one.op for one in toposort([node]) if one.op in Group.COLLECTIVE)


def have_one_value(node: Node, replaced: Node, leaves: list[dict[Node, np.ndarray]]) -> None:
    wanted, found = evaluate_ranks(node, leaves), evaluate_ranks(replaced, leaves)
    for want, got in zip(wanted, found, strict=True):
        np.testing.assert_allclose(got, want, 1e-5, 1e-5)
        np.testing.assert_array_equal(got, found[0])  # ranks that differ would drift apart


@settings(deadline=None, max_examples=40)
@given(
    ranks=st.integers(2, 5), rows=st.integers(1, 60), count=st.integers(1, 9),
    axis=st.integers(0, 1), is_short=st.booleans(), is_scaled=st.booleans(),
    is_vector=st.booleans(),
)
def test_rows_are_sent_where_they_are_fewer(
    ranks: int, rows: int, count: int, axis: int, is_short: bool, is_scaled: bool, is_vector: bool
) -> None:
    drawn = np.random.default_rng(count)
    shape = (count, WIDTH) if axis == 0 else (WIDTH, count)
    dtype = dtypes.bfloat16 if is_short else dtypes.float32
    updates_of = [drawn.standard_normal(shape).astype(dtype.numpy) for _ in range(ranks)]
    shares_of = [drawn.random(()).astype(np.float32) for _ in range(ranks)]
    index_of = [indices(count, rows, axis, is_vector=is_vector) for _ in range(ranks)]
    index, updates, share = hole(0, index_of[0]), hole(1, updates_of[0]), hole(2, shares_of[0])
    table = (rows, WIDTH) if axis == 0 else (WIDTH, rows)
    zeros = full(table, 0.0, dtypes.float32)
    operand = scattered(zeros, index, build.cast(updates, dtypes.float32), axis)
    if is_scaled:
        operand = operand * build.expand(build.reshape(share, (1, 1)), table)
    node = sum_of(operand, ranks)
    (replaced,) = rewrite([node], (sums_as_rows,))
    bytes_of_rows = count * (8 + WIDTH * (2 if is_short and not is_scaled else 4)) * (ranks - 1)
    bytes_of_sum = 2 * 4 * rows * WIDTH * (ranks - 1) / ranks
    is_less = bytes_of_rows < bytes_of_sum
    assert collectives(replaced) == ({Op.ALL_GATHER: 2} if is_less else {Op.ALL_REDUCE: 1})
    leaves = [
        {index: index_of[rank], updates: updates_of[rank], share: shares_of[rank]}
        for rank in range(ranks)
    ]
    have_one_value(node, replaced, leaves)


@pytest.mark.parametrize("is_late", [False, True])
def test_a_weight_is_sent_before_the_rows_of_its_table(is_late: bool) -> None:
    """A table of 60 rows is the weight of the last layer too. `slope` is the derivative of that
    layer's results; the rows are computed from it, and so from all that its gradient needs. With
    `is_late` the gradient needs what the rows do not."""
    drawn, count, rows = np.random.default_rng(0), 4, 60
    arrays = [
        (indices(count, rows, 0), *(drawn.standard_normal(shape).astype(np.float32)
                                    for shape in ((count, rows), (rows, WIDTH), (count, WIDTH))))
        for _ in range(2)
    ]  # fmt: skip
    index, slope, table, hidden = (hole(number, one) for number, one in enumerate(arrays[0]))

    def product(a: Node, b: Node, axis: int) -> Node:
        return build.reduce(ADD, (axis,), a * b)

    box = (count, rows, WIDTH)
    slopes = build.expand(build.insert_axes(slope, (2,)), box)
    tables = build.expand(build.insert_axes(table, (0,)), box)
    hiddens = build.expand(build.insert_axes(hidden, (1,)), box)
    if is_late:
        total = build.reduce(ADD, (0, 1), hidden)
        hiddens = hiddens * build.expand(build.reshape(total, (1, 1, 1)), box)
    of_layer = product(slopes, hiddens, 0)
    updates = product(slopes, tables, 1)
    zeros = full((rows, WIDTH), 0.0, dtypes.float32)
    node = sum_of(of_layer + scattered(zeros, index, updates, 0), 2)
    (replaced,) = rewrite([node], (sums_as_rows,))
    gathered = {} if is_late else {Op.ALL_GATHER: 2}
    assert collectives(replaced) == {Op.ALL_REDUCE: 1} | gathered
    keys = index, slope, table, hidden
    have_one_value(node, replaced, [dict(zip(keys, one, strict=True)) for one in arrays])
