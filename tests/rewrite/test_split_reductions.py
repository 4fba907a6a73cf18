"""Into how many parts reductions are cut: gradients of convolutions' weights, and what few blocks
of a GPU would read."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lamina as lm
from lamina.core.shape import Shape
from lamina.graph import split_reductions
from lamina.graph.split_reductions import (
    PARTS,
    columns_in_parts,
    gradients_in_parts,
    long_columns_in_parts,
    short_lines_last,
    uneven_in_parts,
)
from lamina.ir import build
from lamina.ir.interpreter import evaluate
from lamina.ir.kernel import Kernel, divisor_of
from lamina.ir.monoids import ADD, ARGMAX, MAX, Monoid
from lamina.ir.node import Node, toposort
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


@pytest.mark.parametrize(
    ("rows", "columns", "parts"),
    [
        (743, 54105, 8),
        (1000, 100_000, 4),
        (1000, 400_000, 0),  # memory is busy
        (300, 54105, 0),  # a thread waits a few times
    ],
)
def test_columns_of_a_thread_each_are_reduced_in_parts_for_more_threads(
    rows: int, columns: int, parts: int
) -> None:
    total = build.reduce(ADD, (0,), leaf(0, (rows, columns), lm.float32))
    cut = columns_in_parts.apply(total)
    assert (cut is not None) is (parts > 0)
    if cut is not None:
        assert reduced_shapes(cut) == {(parts, columns), (columns,)}


def test_columns_of_few_numbers_that_are_repeated_stay_whole() -> None:
    """As do those of windows, caches give them."""
    repeated = build.expand(leaf(0, (1000, 1), lm.float32), (1000, 100_000))
    assert columns_in_parts.apply(build.reduce(ADD, (0,), repeated)) is None


@pytest.mark.parametrize(
    ("shape", "is_cut"),
    [
        ((743, 601, 3, 5), True),
        ((743, 601, 15, 1), True),
        ((16, 30_000, 3, 5), True),
        ((4, 100_000, 3, 5), False),  # a fourth of it would be written and read again
        ((743, 601, 8, 8), False),  # a line of 64 elements is long enough for a warp
        ((743, 601, 1, 1), False),  # neighbours are results
        ((43, 601, 3, 5), False),  # so little that another kernel takes longer
    ],
)
def test_short_lines_are_reduced_last(shape: Shape, is_cut: bool) -> None:
    total = build.reduce(ADD, (0, 2, 3), leaf(0, shape, lm.float32))
    cut = short_lines_last.apply(total)
    assert (cut is not None) is is_cut
    if cut is not None:
        assert reduced_shapes(cut) == {shape[1:], shape[1:2]}


@pytest.mark.parametrize("monoid", [ADD, MAX, ARGMAX])
def test_short_lines_reduced_last_give_the_same(
    monoid: Monoid, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(split_reductions, "LONG_OF_LINES", 1)
    monkeypatch.setattr(split_reductions, "MIN_BEFORE_LINES", 1)
    shape = (6, 4, 3, 5)
    x = leaf(0, shape, lm.float32)
    operands = [x]
    if monoid is ARGMAX:
        numbers = build.iota(6 * 4 * 3 * 5, lm.int64)
        operands.append(build.reshape(numbers, shape))
    for component in range(monoid.arity):
        total = build.reduce(monoid, (0, 2, 3), *operands, component=component)
        cut = short_lines_last.apply(total)
        assert cut is not None
        values = np.random.default_rng(1).integers(-9, 9, shape).astype(np.float32)
        wanted, got = evaluate([total, cut], {x: values})
        np.testing.assert_array_equal(got, wanted)


def test_lines_of_images_with_the_channels_last_are_columns() -> None:
    """Their neighbours are channels, results, whatever the order of axes in the program."""
    image = build.permute(leaf(0, (743, 3, 5, 601), lm.float32), (0, 3, 1, 2))
    assert short_lines_last.apply(build.reduce(ADD, (0, 2, 3), image)) is None


def test_axes_of_one_element_are_reduced_whole() -> None:
    assert columns_in_parts.apply(build.reduce(ADD, (1,), leaf(0, (8192, 1), lm.float32))) is None


ROWS, LENGTH = 7, 40_003  # no equal parts of 64


def scaled(repeated: Shape) -> Node:
    """Rows of an image, times scales that are repeated: of each row, or of each column."""
    scales = build.expand(leaf(1, repeated, lm.float32), (2, ROWS, LENGTH))
    return leaf(0, (2, ROWS, LENGTH), lm.float32) * scales


@pytest.mark.parametrize("monoid", [ADD, MAX])
@pytest.mark.parametrize(
    ("repeated", "is_cut"),
    [((2, ROWS, 1), True), ((LENGTH,), True), ((2, 1, 1), False), ((ROWS, LENGTH), False)],
)
def test_what_is_repeated_along_a_part_of_the_axes_is_not_divided_by(
    monoid: Monoid, repeated: Shape, is_cut: bool
) -> None:
    """Rows that each have a scale are reduced apart. What is the same for all rows and columns, or
    repeated for neither, makes them one axis."""
    total = build.reduce(monoid, [1, 2], scaled(repeated))
    parts = uneven_in_parts.apply(total)
    assert parts is not None
    if is_cut:
        assert (parts.op, parts.shape) == (Op.REDUCE, (2,))
        (rows,) = parts.src
        assert (rows.op, rows.shape, rows.arg.axes) == (Op.REDUCE, (2, ROWS), (2,))
        of_rows = uneven_in_parts.apply(rows)
        assert of_rows is not None
        assert (2, ROWS, PARTS) in reduced_shapes(of_rows)
    else:
        assert (2, PARTS) in reduced_shapes(parts)
        assert (2, ROWS) not in reduced_shapes(parts)
    rng = np.random.default_rng(0)
    leaves = [node for node in toposort([total]) if node.op is Op.BUFFER]
    arrays = {node: rng.standard_normal(node.shape).astype(np.float32) for node in leaves}
    left, right = evaluate([total, parts], arrays)
    np.testing.assert_allclose(left, right, rtol=1e-3, atol=1e-2)


def reduced_shapes(node: Node) -> set[Shape]:
    """The shapes of all results of reductions that `node` is computed from."""
    return {each.shape for each in toposort([node]) if each.op is Op.REDUCE}


def test_few_channels_are_not_added_up_apart() -> None:
    """Of 3 channels of 400,003 places each place would be a result in memory."""
    places = 400_003
    scales = build.expand(leaf(1, (3,), lm.float32), (2, places, 3))
    total = build.reduce(ADD, [1, 2], leaf(0, (2, places, 3), lm.float32) * scales)
    parts = uneven_in_parts.apply(total)
    assert parts is not None
    shapes = reduced_shapes(parts)
    assert (2, PARTS) in shapes
    assert (2, places) not in shapes


@pytest.mark.parametrize("repeated", [(29_717, 1), (11,)])
def test_short_rows_with_scales_are_not_cut_within(repeated: Shape) -> None:
    """Parts of 29,717 rows of 11 elements are of whole rows, whose scales are read once, where one
    axis of both would find each element's by a division."""
    shape = (29_717, 11)
    scales = build.expand(leaf(1, repeated, lm.float32), shape)
    total = build.reduce(MAX, [0, 1], leaf(0, shape, lm.float32) * scales)
    parts = uneven_in_parts.apply(total)
    assert parts is not None
    of_parts = [node for node in toposort([parts]) if node.op is Op.REDUCE and node.shape]
    assert [node.src[0].shape for node in of_parts] == [(PARTS, 29_717 // PARTS, 11)]
    rng = np.random.default_rng(0)
    leaves = [node for node in toposort([total]) if node.op is Op.BUFFER]
    arrays = {node: rng.standard_normal(node.shape).astype(np.float32) for node in leaves}
    assert np.array_equal(*evaluate([total, parts], arrays))


def test_columns_are_those_of_the_array_that_is_read() -> None:
    """Of (8192, 2, 600) over axis 0."""
    shape = (8192, 2, 600)
    repeated = build.expand(leaf(0, (1, 2, 600), lm.float32), shape)
    of_each_row = build.expand(leaf(0, (8192, 1, 1), lm.float32), shape)
    each_twice = build.expand(leaf(0, (8192, 1, 600), lm.float32), shape)
    turned = build.permute(leaf(0, (2, 600, 8192), lm.float32), (2, 0, 1))
    whole = [repeated, -repeated, -of_each_row, turned, -turned]
    assert not any(map(is_in_parts, whole))
    assert is_in_parts(each_twice)
    assert is_in_parts(-each_twice)
    assert is_in_parts(build.select(turned < turned.lift(0.0), each_twice, repeated))


def is_in_parts(x: Node) -> bool:
    """Is the sum of `x` over axis 0 taken in parts, as long columns are?"""
    return long_columns_in_parts.apply(build.reduce(ADD, (0,), x)) is not None


def test_no_kernel_of_a_group_norm_divides_indices() -> None:
    """Its gradients are sums over channels, of which each has a scale, and over places."""

    def slopes(x: lm.Tensor, gain: lm.Tensor, bias: lm.Tensor, seed: lm.Tensor) -> Any:
        return lm.gradient(lm.group_norm(x, 1, gain, bias), [x, gain, bias], seed)

    image = lm.TensorSpec((2, 7, 201, 203))
    lowered = lm.jit(slopes).lower(image, lm.TensorSpec((7,)), lm.TensorSpec((7,)), image)
    for launch in lowered.planned.program.launches:
        assert isinstance(launch.kernel, Kernel)
        assert not any(divisor_of(node) for node in launch.kernel.nodes)


@pytest.mark.parametrize(("functions", "is_cut"), [(0, False), (4, True)])
def test_many_instructions_of_an_element_are_parts_of_a_gpu(functions: int, is_cut: bool) -> None:
    """48,406 numbers take a block less time than another kernel, their sines more. A number that
    all have in common is computed once."""
    x = leaf(0, (1, 48406), lm.float32)
    common = leaf(1, (1, 1), lm.float32)
    for _ in range(9):
        common = Node(Op.SIN, (common,))
    x = x * build.expand(common, x.shape)
    for _ in range(functions):
        x = Node(Op.SIN, (x,))
    cut = columns_in_parts.apply(build.reduce(MAX, (1,), x))
    assert (cut is not None) is is_cut
