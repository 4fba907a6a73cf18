"""Which sums over windows are sums over places, and that values stay."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lamina as lm
from lamina.core.dtypes import float32
from lamina.core.shape import prod
from lamina.frontend.differentiate import gradient
from lamina.frontend.tensor import Tensor
from lamina.frontend.tensor import leaf as differentiable
from lamina.graph.algebra import ALGEBRA
from lamina.graph.few_places import sums_over_places
from lamina.graph.movement import MOVEMENT
from lamina.graph.open_calls import open_without_detach
from lamina.graph.rewrite import rewrite
from lamina.ir import build
from lamina.ir.interpreter import evaluate
from lamina.ir.monoids import ADD, MAX, Monoid
from lamina.ir.node import Node, toposort
from lamina.ir.ops import Op
from lamina.ir.substitute import substitute
from tests.generators import leaf
from tests.rewrite.agreement import same_values

Shape = tuple[int, ...]
RULES = (sums_over_places, *ALGEBRA, *MOVEMENT)


def gradient_of_image(image: Shape, filters: Shape, padding: int | tuple[int, int] = 0) -> Node:
    x = differentiable(leaf(0, image, float32), "interp")
    w = Tensor.of(leaf(1, filters, float32), "interp")
    result = lm.conv2d(x, w, None, padding=padding)
    upstream = Tensor.of(leaf(2, result.shape, float32), "interp")
    (slope,) = gradient(result, [x], upstream)
    return rewrite(substitute([slope.node], {}, open_without_detach), (*ALGEBRA, *MOVEMENT))[0]


def steps(node: Node) -> int:
    """The elements that all reductions add up."""
    reductions = [each for each in toposort([node]) if each.op is Op.REDUCE]
    return sum(prod(each.src[0].shape) for each in reductions)


def check_values(before: Node, after: Node) -> None:
    random = np.random.default_rng(0)
    leaves = [each for each in toposort([before]) if each.op is Op.BUFFER]
    values = {each: random.integers(-3, 4, each.shape).astype(np.float32) for each in leaves}
    assert same_values(*evaluate([before, after], values), zeros=False)


def test_a_window_of_the_whole_image_leaves_no_sum_over_its_elements() -> None:
    before = gradient_of_image((3, 4, 7, 7), (2, 4, 7, 7))
    (after,) = rewrite([before], RULES)
    assert steps(after) == 3 * 2 * 4 * 7 * 7
    check_values(before, after)


def test_two_places_take_the_stead_of_seven_elements() -> None:
    before = gradient_of_image((3, 4, 8, 8), (5, 4, 7, 7))
    products = 3 * 5 * 4 * 7 * 7 * 2 * 2
    assert steps(before) == products + 3 * 4 * 8 * 8 * 7 * 7
    (after,) = rewrite([before], RULES)
    assert steps(after) == products + 3 * 4 * 8 * 8 * 2 * 2
    check_values(before, after)


def test_one_axis_may_keep_its_elements() -> None:
    before = gradient_of_image((3, 4, 9, 8), (5, 4, 3, 7))
    (after,) = rewrite([before], RULES)
    assert steps(after) == 3 * 5 * 4 * 3 * 7 * 7 * 2 + 3 * 4 * 9 * 8 * 3 * 2
    check_values(before, after)


def windows_added_up(monoid: Monoid, value: float) -> Node:
    """Elements (2, 5) at places (2,) of each window of 5, with `value` beside the places."""
    x = leaf(0, (5, 2), float32)
    sheared = build.shear(build.pad(x, (0, 4), (0, 4), value), 1, 0, 1)
    return build.reduce(monoid, [0], build.slice_axis(sheared, 1, 4, 10))


def test_sums_of_windows_without_products() -> None:
    before = windows_added_up(ADD, 0.0)
    (after,) = rewrite([before], RULES)
    assert steps(after) == 6 * 2
    check_values(before, after)


@pytest.mark.parametrize(
    "before",
    [
        windows_added_up(MAX, 0.0),  # no sum
        windows_added_up(ADD, 1.0),  # the margins are added up too
        gradient_of_image((3, 4, 8, 8), (5, 4, 3, 3)),  # 6 places and 3 elements
        gradient_of_image((3, 4, 4, 4), (5, 4, 7, 7), padding=3),  # 4 and 7
    ],
)
def test_other_sums_stay(before: Node) -> None:
    assert rewrite([before], RULES) == [before]


@given(
    st.tuples(st.integers(1, 6), st.integers(1, 6)),
    st.tuples(st.integers(1, 3), st.integers(1, 3)),
    st.tuples(st.integers(0, 3), st.integers(0, 3)),
)
def test_gradients_keep_their_values(window: Shape, places: Shape, padding: Shape) -> None:
    sizes = zip(window, places, padding, strict=True)
    height, width = (max(1, size + count - 1 - 2 * zeros) for size, count, zeros in sizes)
    before = gradient_of_image((2, 2, height, width), (2, 2, *window), (padding[0], padding[1]))
    check_values(before, *rewrite([before], RULES))


@given(
    st.sampled_from([1, -1]),
    st.tuples(st.integers(0, 3), st.integers(0, 3)),
    st.integers(4, 9),
    st.data(),
)
def test_windows_anywhere_keep_their_values(
    step: int, margins: tuple[int, int], elements: int, data: st.DataObject
) -> None:
    """Windows in both directions, cut before and after they are moved."""
    x = build.slice_axis(leaf(0, (elements, 4), float32), 1, *data.draw(cuts(4)))
    padded = build.pad(x, (0, margins[0]), (0, margins[1]))
    sheared = build.shear(padded, 1, 0, step)
    chosen = build.slice_axis(sheared, 1, *data.draw(cuts(sheared.shape[1])))
    before = build.reduce(ADD, [0], chosen)
    check_values(before, *rewrite([before], RULES))


def cuts(size: int) -> st.SearchStrategy[tuple[int, int]]:
    """The ends of a range of `size` elements that is not empty."""
    return st.integers(0, size - 1).flatmap(
        lambda first: st.tuples(st.just(first), st.integers(first + 1, size))
    )
