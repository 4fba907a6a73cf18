"""Into how many parts the gradient of a convolution's weights is cut."""

from __future__ import annotations

import pytest

import lamina as lm
from lamina.core.shape import Shape
from lamina.graph.split_reductions import gradients_in_parts
from lamina.ir import build
from lamina.ir.monoids import ADD
from lamina.ir.node import Node
from tests.generators import leaf


def sum_of_products(shape: Shape, axes: tuple[int, ...]) -> Node:
    """The sum along `axes` of products of two factors of `shape`, each repeated along one axis."""
    first, second = [*shape], [*shape]
    first[1], second[2] = 1, 1
    factors = [
        leaf(number, tuple(sizes), lm.float32) for number, sizes in enumerate((first, second))
    ]
    left, right = (build.expand(factor, shape) for factor in factors)
    return build.reduce(ADD, axes, left * right)


@pytest.mark.parametrize(
    ("images", "places", "parts"),
    [
        (8, (28, 28), 4),  # 8 * 784 products: parts of two images have more than 1024
        (6, (28, 28), 3),
        (8, (64, 64), 8),  # no part is smaller than an image
        (7, (28, 28), 7),  # of a prime number of images, each is a part
        (8, (14, 14), None),  # 196 products for each image
        (4, (28, 28), None),  # 3136 products in all
    ],
)
def test_gradients_of_filters_are_taken_in_parts(
    images: int, places: tuple[int, int], parts: int | None
) -> None:
    total = sum_of_products((images, 24, 16, *places), (0, 3, 4))
    cut = gradients_in_parts.apply(total)
    assert (None if cut is None else cut.src[0].shape) == (parts and (parts, 24, 16))


def test_a_convolution_itself_stays_whole() -> None:
    total = sum_of_products((512, 24, 64, 3, 3), (0, 3, 4))
    assert gradients_in_parts.apply(total) is None
