"""Which factors of products are stored with their steps side by side, and that values stay."""

from __future__ import annotations

import numpy as np
import pytest

from lamina.core.dtypes import DType, float32, float64
from lamina.graph.rewrite import rewrite
from lamina.graph.steps_in_rows import MIN_STEPS, MIN_USES, steps_in_rows
from lamina.ir import build
from lamina.ir.interpreter import evaluate
from lamina.ir.monoids import ADD
from lamina.ir.node import Node, toposort
from lamina.ir.ops import Op
from tests.generators import leaf
from tests.rewrite.agreement import same_values

STEPS = MIN_STEPS


def product(left: Node, right: Node, shape: tuple[int, ...], steps: tuple[int, ...]) -> Node:
    """The sum over the axes `steps` of two arrays that are expanded to `shape`."""
    return build.reduce(ADD, steps, build.expand(left, shape) * build.expand(right, shape))


def stored(node: Node) -> list[tuple[int, ...]]:
    """The shapes of what is stored."""
    after = rewrite([node], (steps_in_rows,))
    return [one.shape for one in toposort(after) if one.op is Op.CONTIGUOUS]


@pytest.mark.parametrize(
    ("rows", "steps"),
    [((STEPS, 5, 1), (0,)), ((8, STEPS // 8, 5, 1), (0, 1)), ((8, STEPS // 8, 1, 5, 1), (0, 1))],
)
def test_a_factor_whose_steps_lie_apart_is_transposed(
    rows: tuple[int, ...], steps: tuple[int, ...]
) -> None:
    columns = (*(rows[axis] for axis in steps), *[1] * (len(rows) - len(steps) - 1), MIN_USES)
    shape = tuple(map(max, rows, columns))
    left, right = leaf(0, rows, float32), leaf(1, columns, float32)
    before = product(left, right, shape, steps)
    assert stored(before) == [(5, *(rows[axis] for axis in steps))]
    assert stored(product(right, left, shape, steps)) == stored(before)
    (after,) = rewrite([before], (steps_in_rows,))
    assert rewrite([after], (steps_in_rows,)) == [after]
    random = np.random.default_rng(0)
    values = {one: random.integers(-3, 4, one.shape).astype(np.float32) for one in (left, right)}
    assert same_values(*evaluate([before, after], values))


@pytest.mark.parametrize(
    ("rows", "columns", "steps"),
    [
        ((5, STEPS, 1), (1, STEPS, MIN_USES), (1,)),  # steps are neighbours
        ((STEPS, 5, 1), (STEPS, 1, MIN_USES - 1), (0,)),  # few uses
        ((STEPS - 1, 5, 1), (STEPS - 1, 1, MIN_USES), (0,)),  # few steps
        ((2, STEPS, 5, 1), (2, STEPS, 1, MIN_USES), (1,)),  # both vary along the first axis
    ],
)
def test_other_factors_stay(
    rows: tuple[int, ...], columns: tuple[int, ...], steps: tuple[int, ...]
) -> None:
    left, right = leaf(0, rows, float32), leaf(1, columns, float32)
    assert stored(product(left, right, tuple(map(max, rows, columns)), steps)) == []


@pytest.mark.parametrize(("dtype", "count"), [(float32, 1), (float64, 0)])
def test_a_permutation_tells_where_steps_are(dtype: DType, count: int) -> None:
    """In memory an array has rows of steps, or a permutation of it does."""
    columns = leaf(1, (1, STEPS, MIN_USES), dtype)
    shape = (5, STEPS, MIN_USES)
    apart = build.reshape(build.permute(leaf(0, (STEPS, 5), dtype), (1, 0)), (5, STEPS, 1))
    assert len(stored(product(apart, columns, shape, (1,)))) == count
    permuted = build.permute(leaf(0, (5, STEPS), dtype), (1, 0))
    beside = build.reshape(permuted, (STEPS, 5, 1))
    shape = (STEPS, 5, MIN_USES)
    columns = leaf(1, (STEPS, 1, MIN_USES), dtype)
    assert stored(product(beside, columns, shape, (0,))) == []
