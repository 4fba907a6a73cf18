"""Into how many parts reductions are cut: gradients of convolutions' weights, and what few blocks
of a GPU would read."""

from __future__ import annotations

import pytest

import lamina as lm
from lamina.core.shape import Shape
from lamina.graph.split_reductions import columns_in_parts, gradients_in_parts
from lamina.ir import build
from lamina.ir.monoids import ADD
from lamina.ir.node import Node
from lamina.ir.ops import Op
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


@pytest.mark.parametrize(
    ("count", "columns", "dtype", "is_cut"),
    [
        (42437, 244, lm.float32, True),  # 40 bytes for each: an index, and a sector
        (5000, 244, lm.float32, False),  # which one block reads in the time of a launch or two
        (42437, 1, lm.float32, False),  # neighbours in memory
        (42437, 1, lm.float64, True),
        (70000, 1, lm.bfloat16, True),
    ],
)
def test_a_block_reads_few_elements_where_each_takes_many_bytes(
    count: int, columns: int, dtype: lm.DType, is_cut: bool
) -> None:
    """Sums of an element of each row, at places of data, by one block of a GPU or by many."""
    elements = leaf(0, (count,), dtype)
    if columns > 1:
        chosen = leaf(1, (count, 1), lm.int64)
        picked = Node(Op.GATHER, (leaf(0, (count, columns), dtype), chosen), 1)
        elements = build.reshape(picked, (count,))
    cut = columns_in_parts.apply(build.reduce(ADD, (0,), elements))
    assert (cut is not None) is is_cut


@pytest.mark.parametrize(
    ("rows", "columns", "is_cut"),
    [
        (16384, 128, True),
        (32768, 96, True),
        (4096, 128, False),  # few rows, which no block waits for
        (16384, 8192, False),  # so many columns that all multiprocessors have some
    ],
)
def test_few_long_columns_are_reduced_in_parts(rows: int, columns: int, is_cut: bool) -> None:
    cut = columns_in_parts.apply(build.reduce(ADD, (0,), leaf(0, (rows, columns), lm.float32)))
    assert (cut is not None) is is_cut


def test_axes_of_one_element_are_reduced_whole() -> None:
    assert columns_in_parts.apply(build.reduce(ADD, (1,), leaf(0, (8192, 1), lm.float32))) is None
