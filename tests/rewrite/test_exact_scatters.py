"""Scatters of float32 as sums of integers, beside exact sums in Python and NumPy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from lamina.core.dtypes import DType, bfloat16, float16, float32, float64, int64
from lamina.graph.exact_scatters import Scale, scale_of, scatter_of_integers, update_bits
from lamina.ir import build
from lamina.ir.interpreter import evaluate
from lamina.ir.monoids import ADD, MAX
from lamina.ir.node import Node
from lamina.ir.ops import Op, Scatter
from tests.generators import leaf

Floats = np.ndarray[Any, np.dtype[np.float32]]
PLACES, COLUMNS = 7, 3


def _scatter(updates: int, columns: int = COLUMNS) -> Node:
    shape = (updates, columns)
    operands = leaf(0, (PLACES, columns), float32), leaf(1, shape, int64), leaf(2, shape, float32)
    return Node(Op.SCATTER, operands, Scatter(0, ADD))


def _run(scatter: Node, *arrays: Any) -> Floats:
    node = scatter_of_integers(scatter)
    assert node is not None
    leaves = dict(zip(scatter.src, arrays, strict=True))
    (result,) = evaluate([node], leaves)
    return np.asarray(result)


def _sums(base: Floats, index: Any, updates: Floats) -> Floats:
    """Each sum rounded once, by `math.fsum`; updates out of range are left out."""
    wanted = np.empty_like(base)
    for place, column in np.ndindex(*base.shape):
        chosen = updates[index[:, column] == place, column]
        wanted[place, column] = np.float32(math.fsum([base[place, column], *chosen.tolist()]))
    return wanted


def test_sums_of_numbers_of_all_sizes_are_rounded_once() -> None:
    random = np.random.default_rng(3)
    count = 500
    updates = random.standard_normal((count, COLUMNS)).astype(np.float32)
    updates *= np.float32(2.0) ** random.integers(-12, 12, updates.shape).astype(np.float32)
    index = random.integers(-1, PLACES + 1, updates.shape)
    base = random.standard_normal((PLACES, COLUMNS)).astype(np.float32)
    got = _run(_scatter(count), base, index, updates)
    np.testing.assert_array_max_ulp(got, _sums(base, index, updates), maxulp=1)


@pytest.mark.parametrize("scale", [1e-45, 1e-38, 1.0, 1e38])
def test_places_have_scales_of_their_own(scale: float) -> None:
    """Of updates near the ends of the range, beside others that are about 1."""
    random = np.random.default_rng(5)
    updates = random.uniform(-1, 1, (40, 1)).astype(np.float32)
    index = np.arange(40).reshape(40, 1) % PLACES
    updates[index == 2] *= np.float32(scale)
    base = np.zeros((PLACES, 1), np.float32)
    got = _run(_scatter(40, 1), base, index, updates)
    np.testing.assert_array_max_ulp(got, _sums(base, index, updates), maxulp=1)


def test_what_is_not_finite_is_as_in_a_sum() -> None:
    inf, nan = np.inf, np.nan
    updates = np.array([inf, 1, -inf, 2, inf, -inf, nan, 3, inf, 4, 5], np.float32)[:, None]
    index = np.array([0, 0, 1, 1, 2, 2, 3, 3, 4, 5, 9])[:, None]
    base = np.array([1, 1, 1, 1, -inf, inf, nan], np.float32)[:, None]
    got = _run(_scatter(len(updates), 1), base, index, updates)[:, 0]
    np.testing.assert_array_equal(got, [inf, -inf, nan, nan, nan, inf, nan])


def test_places_without_updates_keep_their_bits() -> None:
    base = np.full((PLACES, 1), -0.0, np.float32)
    got = _run(_scatter(2, 1), base, np.array([[3], [PLACES]]), np.ones((2, 1), np.float32))
    np.testing.assert_array_equal(np.signbit(got[:, 0]), np.arange(PLACES) != 3)


def test_updates_that_cancel_leave_what_is_below_them() -> None:
    updates = np.array([2.0**20, 2.0**-3, -(2.0**20), 2.0**-3], np.float32)[:, None]
    index = np.zeros((4, 1), np.int64)
    base = np.zeros((PLACES, 1), np.float32)
    assert _run(_scatter(4, 1), base, index, updates)[0, 0] == 0.25


def test_the_bits_of_an_update_leave_room_for_the_sum() -> None:
    for updates in (1, 2, 3, 1000, 1 << 20, (1 << 29) - 1):
        assert updates * 2 ** update_bits(updates) < 2**62
    assert update_bits(1) == 51  # what a float64 can round to a whole number


@pytest.mark.parametrize("other", ["float64", "a maximum", "too many updates"])
def test_other_scatters_stay(other: str) -> None:
    count = 1 << 31 if other == "too many updates" else 9
    dtype = float64 if other == "float64" else float32
    operands = leaf(0, (PLACES, 1), dtype), leaf(1, (count, 1), int64), leaf(2, (count, 1), dtype)
    monoid = MAX if other == "a maximum" else ADD
    assert scatter_of_integers(Node(Op.SCATTER, operands, Scatter(0, monoid))) is None


def test_one_exponent_serves_all_updates_that_were_float16() -> None:
    """The smallest one is a whole number by it, and a sum of the largest has room."""
    halves = build.cast(leaf(0, (PLACES, 9), float16), float32)
    scale = scale_of(build.permute(halves, (1, 0)), 9)
    assert scale is not None
    unit = 2.0 ** (126 + scale.bits - scale.top)  # of 1.0
    assert unit * float(np.finfo(np.float16).smallest_subnormal) == 1.0
    assert unit * float(np.finfo(np.float16).max) < 2**scale.bits
    assert scale.passes == 1
    assert scale.nbytes(9) == 9 * 8 + 8  # marks of 9 places are in two words
    assert scale_of(halves, 1 << 22) == Scale(update_bits(1 << 22))  # sums have too few bits


@pytest.mark.parametrize("dtype", [float32, bfloat16])
def test_places_of_other_floats_have_exponents_of_their_own(dtype: DType) -> None:
    scale = scale_of(build.cast(leaf(0, (PLACES, 9), dtype), float32), 9)
    assert scale == Scale(update_bits(9))
    assert (scale.passes, scale.nbytes(9)) == (2, 9 * 12)
