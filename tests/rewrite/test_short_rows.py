"""Which products of short rows get longer ones, what they store for that, and that values stay."""

from __future__ import annotations

import numpy as np
import pytest

from lamina.core.dtypes import float32, float64
from lamina.core.shape import squeezed
from lamina.graph.rewrite import rewrite
from lamina.graph.short_rows import LANES, MIN_ROW, MIN_STEPS, MIN_USES, short_rows
from lamina.ir import build
from lamina.ir.interpreter import evaluate
from lamina.ir.monoids import ADD
from lamina.ir.node import Node, toposort
from lamina.ir.ops import Op
from tests.generators import leaf
from tests.rewrite.agreement import same_values

Shape = tuple[int, ...]
ROWS, STEPS, SHORT = MIN_USES, MIN_STEPS, LANES // 2


def product(left: Node, right: Node, steps: int) -> Node:
    """The sum over the axis `steps` of two arrays that are expanded to one shape."""
    shape = tuple(map(max, left.shape, right.shape))
    return build.reduce(ADD, (steps,), build.expand(left, shape) * build.expand(right, shape))


def stored(node: Node) -> list[Shape]:
    """The shapes of what is stored, without axes of one element."""
    after = rewrite([node], (short_rows,))
    return [squeezed(one.shape) for one in toposort(after) if one.op is Op.CONTIGUOUS]


@pytest.mark.parametrize(
    ("many", "few", "steps", "expected"),
    [
        # x[m, k] * w[k, n] by k, of which w is stored as (n, k)
        ((ROWS, STEPS, 1), (1, STEPS, SHORT), 1, (SHORT, STEPS)),
        # w[o, k] * x[b, k, i, j], the pixels of two images
        ((1, ROWS, STEPS, 1, 1), (2, 1, STEPS, 2, 2), 2, (2, 2, 2, STEPS)),
        # w[k, m] * x[k, n], of which the result is stored as (n, m)
        ((STEPS, ROWS, 1), (STEPS, 1, SHORT), 0, (SHORT, ROWS)),
        ((STEPS, 1, ROWS // 8, 8, 1), (STEPS, 2, 1, 1, SHORT), 0, (2, SHORT, ROWS // 8, 8)),
    ],
)
def test_neighbours_of_the_larger_factor_are_neighbours_of_what_is_smaller(
    many: Shape, few: Shape, steps: int, expected: Shape
) -> None:
    left, right = leaf(0, many, float32), leaf(1, few, float32)
    before = product(left, right, steps)
    assert stored(before) == stored(product(right, left, steps)) == [expected]
    (after,) = rewrite([before], (short_rows,))
    assert after.shape == before.shape
    assert rewrite([after], (short_rows,)) == [after]
    random = np.random.default_rng(0)
    values = {one: random.integers(-3, 4, one.shape).astype(np.float32) for one in (left, right)}
    assert same_values(*evaluate([before, after], values))


def test_axes_of_one_element_may_be_taken_away_before_the_sum() -> None:
    many, few = leaf(0, (ROWS, STEPS, 1, 1), float32), leaf(1, (1, STEPS, 1, SHORT), float32)
    shape = (ROWS, STEPS, 1, SHORT)
    whole = build.expand(many, shape) * build.expand(few, shape)
    before = build.reduce(ADD, (1,), build.reshape(whole, (ROWS, STEPS, SHORT)))
    assert stored(before) == [(SHORT, STEPS)]
    (after,) = rewrite([before], (short_rows,))
    assert after.shape == (ROWS, SHORT)


@pytest.mark.parametrize(
    ("many", "few", "steps"),
    [
        ((ROWS, STEPS, 1), (1, STEPS, LANES), 1),  # rows have a whole vector
        ((ROWS, STEPS - 1, 1), (1, STEPS - 1, SHORT), 1),  # few steps
        ((MIN_USES - 1, STEPS, 1), (1, STEPS, SHORT), 1),  # few uses
        ((2, STEPS, MIN_ROW // 2 - 1, 1), (2, STEPS, 1, SHORT), 1),  # new rows would be short
    ],
)
def test_other_products_stay(many: Shape, few: Shape, steps: int) -> None:
    assert stored(product(leaf(0, many, float32), leaf(1, few, float32), steps)) == []


def test_products_of_other_numbers_stay() -> None:
    many, few = leaf(0, (ROWS, STEPS, 1), float64), leaf(1, (1, STEPS, SHORT), float64)
    assert stored(product(many, few, 1)) == []


def test_a_factor_that_has_its_steps_in_rows_stays() -> None:
    many = leaf(0, (ROWS, STEPS, 1), float32)
    few = build.reshape(build.permute(leaf(1, (SHORT, STEPS), float32), (1, 0)), (1, STEPS, SHORT))
    assert stored(product(many, few, 1)) == []


@pytest.mark.parametrize(("shape", "reduced"), [((0, SHORT), 0), ((1, SHORT), 0)])
def test_reductions_of_nothing_and_of_single_elements_stay(shape: Shape, reduced: int) -> None:
    array = build.reshape(leaf(0, (1, *shape), float32), shape)
    total = build.reduce(ADD, (reduced,), array)
    assert rewrite([total], (short_rows,)) == [total]
