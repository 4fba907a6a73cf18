"""Sums of very many float32 numbers on the CPU are as exact as sums of a few: relative errors of up
to 1e-6, whatever the length."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import lamina as lm
from lamina import Tensor
from lamina.core.dtypes import float32
from lamina.ir import build
from lamina.ir.interpreter import evaluate
from lamina.ir.monoids import ADD
from lamina.ir.node import Node
from lamina.ir.ops import Axis, Op
from lamina.targets import blocks
from lamina.targets.blocks import Cut, Limits
from tests.generators import leaf
from tests.sums import BOUND, CONSTANTS, SUMS, Sum, error, last_axis, rounded, whole

MANY = 1 << 26


@pytest.mark.parametrize("case", SUMS, ids=lambda case: case.__name__)
def test_sums_of_one_number(case: Callable[[float, int], Sum]) -> None:
    for value in CONSTANTS[1:3]:
        assert error(*case(value, MANY)) <= BOUND, value


@pytest.mark.parametrize("value", CONSTANTS)
def test_sums_and_means_of_any_number(value: float) -> None:
    assert error(*whole(value, MANY)) <= BOUND
    assert error(*last_axis(value, MANY)) <= BOUND


@pytest.mark.exhaustive
@pytest.mark.parametrize("count", [1 << 28, 1 << 32])
@pytest.mark.parametrize("case", SUMS, ids=lambda case: case.__name__)
def test_sums_of_billions(case: Callable[[float, int], Sum], count: int) -> None:
    for value in CONSTANTS:
        assert error(*case(value, count)) <= BOUND, value


def test_ones_beyond_what_an_int32_counts() -> None:
    ones = lm.ones((1 << 34,))
    assert ones.sum().item() == 2.0**34
    assert ones.mean().item() == 1.0


@pytest.mark.exhaustive
def test_random_numbers_of_2_28() -> None:
    x = np.random.default_rng(0).random(1 << 28, dtype=np.float32)
    for shape in ((1 << 28,), (1 << 26, 4), (1 << 22, 64), (64, 1 << 22), (1 << 18, 1 << 10)):
        array, tensor = x.reshape(shape), Tensor(x.reshape(shape))
        for axis in range(len(shape)):
            exact = array.sum(axis=axis, dtype=np.float64)
            assert error(tensor.sum(axis=axis), exact) <= BOUND, (shape, axis)


@pytest.mark.parametrize(
    "shape",
    [(1 << 22,), (1 << 20, 4), (1 << 16, 64), (4, 1 << 20), (1 << 12, 1 << 10), (3, 99_991)],
)
def test_random_numbers(shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(1).random(shape, dtype=np.float32)
    for axis in range(len(shape)):
        assert error(Tensor(x).sum(axis=axis), x.sum(axis=axis, dtype=np.float64)) <= BOUND
    wide = x.astype(np.float64)
    assert error(lm.var(Tensor(x)), wide.var()) <= BOUND
    assert error(lm.norm(Tensor(x)), np.linalg.norm(wide)) <= BOUND
    assert error(lm.logsumexp(Tensor(x)), np.log(np.exp(wide).sum())) <= BOUND


@pytest.mark.parametrize("value", [0.1, 1.3, 1.9])
def test_wide_columns_that_memory_adds_up(value: float) -> None:
    for rows, bound in ((1 << 13, 2e-6), (1 << 10, (1 << 10) / 16 * 2.0**-24)):
        columns = Tensor(np.full((rows, 1 << 12), value, np.float32))
        assert error(columns.sum(axis=0), rows * rounded(value)) <= bound


@pytest.mark.parametrize("value", [0.1, 0.7, 1.3])
def test_a_vector_times_wide_columns(value: float) -> None:
    ones = Tensor(np.ones((1, 1 << 13), np.float32))
    columns = Tensor(np.full((1 << 13, 1 << 12), value, np.float32))
    assert error(ones @ columns, (1 << 13) * rounded(value)) <= 2e-6


@pytest.mark.parametrize("columns", [300, 400])
def test_wide_columns_of_a_slice(columns: int) -> None:
    """Rows of 1100 elements are far apart, however many of each are added up."""
    x = Tensor(np.full((2, 1 << 13, 1100), 0.1, np.float32))
    total = lm.jit(lambda x: x[:, :, :columns].sum(axis=1))
    assert error(total(x), (1 << 13) * rounded(0.1)) <= 2e-6


def test_wide_columns_over_two_axes() -> None:
    """As the derivative of a bias over batches and their steps."""
    columns = Tensor(np.full((4, 2048, 1 << 10), 0.1, np.float32))
    assert error(columns.sum(axis=(0, 1)), 4 * 2048 * rounded(0.1)) <= 2e-6


@pytest.mark.parametrize("dtype", [lm.float16, lm.bfloat16])
def test_small_floats_are_added_up_in_float32(dtype: lm.DType) -> None:
    ones = lm.full((MANY,), 2.0**-20, dtype=dtype)
    assert ones.sum().cast(lm.float32).item() == 64.0


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (1, 16), (16, 1), (4, 4), (2, 40), (16, 16)])
@pytest.mark.parametrize("value", [0.1, 1.3])
def test_long_skinny_products(rows: int, columns: int, value: float) -> None:
    length = 1 << 20 if rows * columns < 80 else 1 << 19
    left = Tensor(np.full((rows, length), value, np.float32))
    right = np.full((length, columns), 0.7, np.float32)
    exact = length * rounded(value) * rounded(0.7)
    assert error(left @ Tensor(right), exact) <= BOUND
    assert error(left @ Tensor(right.T.copy()).T, exact) <= BOUND


@pytest.mark.parametrize(("rows", "columns", "uses"), [(32, 32, 16), (64, 64, 32), (40, 96, 29)])
@pytest.mark.parametrize("turned", ["", "a", "b", "ab"])
def test_long_products_of_few_rows_and_columns(
    rows: int, columns: int, uses: int, turned: str
) -> None:
    """Of chains of 16 times as many products as uses of each number; constants err by half as much
    as such chains may."""
    length, value = 3 << 14, 1.3
    left = np.full((length, rows) if "a" in turned else (rows, length), value, np.float32)
    right = np.full((columns, length) if "b" in turned else (length, columns), 0.7, np.float32)
    a, b = Tensor(left), Tensor(right)
    product = (a.T if "a" in turned else a) @ (b.T if "b" in turned else b)
    assert error(product, length * rounded(value) * rounded(0.7)) <= uses * 2.0**-22


@pytest.mark.parametrize("turned", [False, True])
def test_products_that_reuse_factors_add_up_a_thousand_at_once(turned: bool) -> None:
    left, right = (np.full(shape, 1.3, np.float32) for shape in ((64, 1 << 15), (1 << 15, 64)))
    columns = Tensor(right.T.copy()).T if turned else Tensor(right)
    assert error(Tensor(left) @ columns, (1 << 15) * rounded(1.3) ** 2) <= 2.0**-15


@pytest.mark.parametrize(
    ("shape", "axis"), [((1 << 20,), 0), ((16, 1 << 14), 1), ((1 << 14, 16), 0)]
)
def test_running_sums(shape: tuple[int, ...], axis: int) -> None:
    x = np.full(shape, 0.1, np.float32)
    exact = np.cumsum(x, axis, dtype=np.float64)
    assert error(lm.cumulative_sum(Tensor(x), axis=axis), exact) <= 2e-5


def test_infinities_and_nan_come_through_blocks() -> None:
    for axis, shape in enumerate([(1 << 12, 40), (40, 1 << 17)]):
        x = np.ones(shape, np.float32)
        rows = x if axis else x.T  # of which each is one sum
        rows[1, 5], rows[2, -1], rows[3, 7], rows[3, 9] = np.inf, -np.inf, np.inf, -np.inf
        rows[4, 1000], rows[5, :4], rows[6, -3:] = np.nan, 3e38, 3e38
        with np.errstate(all="ignore"):
            exact = rows.sum(axis=1, dtype=np.float64).astype(np.float32)
        np.testing.assert_array_equal(Tensor(x).sum(axis=axis).numpy(), exact)


def test_running_sums_go_on_from_infinity() -> None:
    x = np.ones((2, 1 << 13), np.float32)
    x[0, 100], x[1, 5000] = np.inf, np.nan
    with np.errstate(all="ignore"):
        exact = np.cumsum(x, axis=1, dtype=np.float64).astype(np.float32)
    np.testing.assert_array_equal(lm.cumulative_sum(Tensor(x), axis=1).numpy(), exact)


def test_the_interpreter_is_as_exact() -> None:
    x = leaf(0, (1 << 14, 64), float32)
    array = np.full(x.shape, 0.1, np.float32)
    (found,) = evaluate([build.reduce(ADD, (0,), x)], {x: array})
    np.testing.assert_allclose(found, array.sum(axis=0, dtype=np.float64), 1e-7)


# Where loops are cut.


def loop(number: int) -> Node:
    return Node(Op.AXIS, (), Axis(number, 10))


OUTER, MIDDLE, INNER = map(loop, range(3))


@pytest.mark.parametrize(
    ("trips", "points", "cut"),
    [
        ({OUTER: 64}, 1, None),
        ({OUTER: 65}, 1, Cut(OUTER, 32)),
        ({OUTER: 2, INNER: 1 << 20}, 1, Cut(INNER, 32)),
        ({OUTER: 4096, MIDDLE: 3, INNER: 3}, 1, Cut(OUTER, 3)),
        ({OUTER: 4096}, 8, Cut(OUTER, 4)),
        ({OUTER: 4096}, 100, Cut(OUTER, 1)),
        ({OUTER: 3, INNER: 30}, 1, Cut(OUTER, 1)),
        ({OUTER: 8, INNER: 10}, 1, Cut(OUTER, 2)),
        ({OUTER: 3, MIDDLE: 3, INNER: 10}, 1, Cut(OUTER, 1)),
        ({OUTER: 9, INNER: 15}, 1, Cut(OUTER, 2)),
        ({}, 100, None),
    ],
)
def test_loops_are_cut_where_a_block_is_full(
    trips: dict[Node, int], points: int, cut: Cut | None
) -> None:
    assert blocks.find_cut({blocks.READING}, trips, points) == cut


def test_sums_that_share_a_loop_have_the_longest_blocks() -> None:
    both = {Limits(64, 32, 64), Limits(1024, 512, 1 << 20)}
    assert blocks.find_cut(both, {OUTER: 1000}, 1) is None
    assert blocks.find_cut(both, {OUTER: 2000}, 1) == Cut(OUTER, 512)
    assert blocks.find_cut(both, {OUTER: 1 << 21}, 1) == Cut(OUTER, 32)
    assert blocks.find_cut(set(), {OUTER: 1 << 21}, 1) is None
