"""Which windows of products are stored, in which order, and that values stay."""

from __future__ import annotations

import numpy as np
import pytest

import lamina as lm
from lamina.core.dtypes import DType, float32, float64
from lamina.frontend.differentiate import gradient
from lamina.frontend.tensor import Tensor
from lamina.frontend.tensor import leaf as differentiable
from lamina.graph.algebra import ALGEBRA
from lamina.graph.movement import MOVEMENT
from lamina.graph.open_calls import open_without_detach
from lamina.graph.rewrite import rewrite
from lamina.graph.windows_in_rows import windows_in_rows
from lamina.ir.interpreter import evaluate
from lamina.ir.node import Node, toposort
from lamina.ir.ops import Op
from lamina.ir.substitute import substitute
from tests.generators import leaf
from tests.rewrite.agreement import same_values

SIZE = 3  # of windows


def convolved(images: Node, weights: Node, groups: int = 1) -> Node:
    x, w = (Tensor.of(node, "interp") for node in (images, weights))
    result = lm.conv2d(x, w, None, padding=1, groups=groups)
    return simplified(result.node)


def gradient_of_weights(images: Node, slopes: Node) -> Node:
    channels, outputs = images.shape[1], slopes.shape[1]
    x, upstream = (Tensor.of(node, "interp") for node in (images, slopes))
    weights = differentiable(leaf(2, (outputs, channels, SIZE, SIZE), float32), "interp")
    (slope,) = gradient(lm.conv2d(x, weights, None, padding=1), [weights], upstream)
    return simplified(slope.node)


def simplified(node: Node) -> Node:
    return rewrite(substitute([node], {}, open_without_detach), (*ALGEBRA, *MOVEMENT))[0]


def stored(node: Node) -> list[tuple[int, ...]]:
    """The shapes of what is stored, without axes of one element."""
    after = rewrite([node], (windows_in_rows,))
    shapes = [one.shape for one in toposort(after) if one.op is Op.CONTIGUOUS]
    return [tuple(size for size in shape if size > 1) for shape in shapes]


def check_values(before: Node, leaves: tuple[Node, Node]) -> None:
    (after,) = rewrite([before], (windows_in_rows,))
    assert rewrite([after], (windows_in_rows,)) == [after]
    random = np.random.default_rng(0)
    values = {one: random.integers(-3, 4, one.shape).astype(np.float32) for one in leaves}
    assert same_values(*evaluate([before, after], values))


@pytest.mark.parametrize("pixels", [2, 3])
def test_windows_lie_as_weights_that_are_many_more(pixels: int) -> None:
    """(pixels, channels, window): as many outputs as make 4 weights for each element."""
    outputs = 4 * 2 * pixels**2
    images, weights = leaf(0, (2, 5, pixels, pixels), float32), leaf(1, (outputs, 5, 3, 3), float32)
    before = convolved(images, weights)
    assert stored(before) == [(2, pixels, pixels, 5, 3, 3)]
    check_values(before, (images, weights))
    fewer = leaf(1, (outputs - 1, 5, 3, 3), float32)
    assert stored(convolved(images, fewer)) == []


def test_windows_lie_as_the_gradient_of_many_weights() -> None:
    """From as many outputs on as there are pixels."""
    images, slopes = leaf(0, (2, 5, 2, 2), float32), leaf(1, (2, 8, 2, 2), float32)
    before = gradient_of_weights(images, slopes)
    assert stored(before) == [(2, 2, 2, 5, 3, 3)]
    check_values(before, (images, slopes))
    assert stored(gradient_of_weights(images, leaf(1, (2, 7, 2, 2), float32))) == []


def test_windows_of_an_image_stay_where_its_rows_are_neighbours_of_the_result() -> None:
    """The first convolution of a network has more outputs than elements in a window."""
    images, weights = leaf(0, (1, 1, 20, 20), float32), leaf(1, (64, 1, SIZE, SIZE), float32)
    assert stored(convolved(images, weights)) == []


@pytest.mark.parametrize(("dtype", "groups"), [(float32, 64), (float64, 1)])
def test_other_windows_stay(dtype: DType, groups: int) -> None:
    """Of convolutions in groups, which have few weights, and of other types of numbers."""
    weights = leaf(1, (64, 64 // groups, SIZE, SIZE), dtype)
    assert stored(convolved(leaf(0, (1, 64, 2, 2), dtype), weights, groups)) == []


def test_products_without_windows_stay() -> None:
    x = Tensor.of(leaf(0, (2, 9), float32), "interp")
    w = Tensor.of(leaf(1, (9, 64), float32), "interp")
    assert stored((x @ w).node) == []


def test_a_batch_of_no_images() -> None:
    images, weights = lm.ones((0, 16, 4, 4)), lm.ones((32, 16, 3, 3))
    result = lm.conv2d(images, weights, None, padding=1)
    assert result.numpy().shape == (0, 32, 4, 4)
