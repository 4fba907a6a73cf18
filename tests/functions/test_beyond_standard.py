"""What `test_beside_pytorch.py` leaves: answers that NumPy gives, whole numbers, and errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lamina as lm
from lamina.errors import ArgumentError, AxisError, DTypeError, LaminaError, ShapeError
from tests.functions.agreement import agree_with_differences, distinct, normals

X, ROW = normals(3, 4), normals(4, seed=1)
Z = X + 1j * normals(3, 4, seed=2)


def equal(got: Any, want: Any) -> None:
    np.testing.assert_allclose(got.numpy(), np.asarray(want), rtol=1e-13, atol=1e-15)


def test_running_sums_of_the_flattened_array() -> None:
    equal(lm.cumsum(X), np.cumsum(X))
    equal(lm.cumprod(X), np.cumprod(X))
    assert lm.cumsum(lm.asarray([True, True])).tolist() == [1, 2]


def test_running_extremes_and_where_they_came_last() -> None:
    x = lm.asarray([[2.0, 1.0, 3.0, 3.0, 2.0]])
    values, places = lm.cummax(x, 1, return_indices=True)
    assert values.tolist() == [[2, 2, 3, 3, 3]]
    assert places.tolist() == [[0, 0, 2, 3, 3]]
    values, places = lm.cummin(x, 1, return_indices=True)
    assert values.tolist() == [[2, 1, 1, 1, 1]]
    assert places.tolist() == [[0, 1, 1, 1, 1]]


def test_the_median_is_the_lower_of_two_and_quantiles_lie_between() -> None:
    x = lm.asarray([4.0, 1.0, 3.0, 2.0])
    assert lm.median(x).item() == 2.0
    assert lm.quantile(x, 0.5).item() == 2.5
    assert lm.median(x, 0).indices.item() == 3


@pytest.mark.parametrize("axis", [None, 0, (0, 2), -1])
def test_quantiles_over_several_axes_like_numpy(axis: Any) -> None:
    x, q = distinct(2, 3, 4), [0.0, 0.35, 1.0]
    equal(lm.quantile(x, q, axis), np.quantile(x, q, axis))
    equal(lm.quantile(x, 0.35, axis, True), np.quantile(x, 0.35, axis, keepdims=True))


def test_quantiles_of_many_halves() -> None:
    """Their ranks, up to 4000, are no numbers of these dtypes."""
    x = np.arange(4001.0)
    for dtype in (lm.float16, lm.bfloat16):
        half = lm.asarray(x, dtype=dtype)
        want = np.sort(half.cast(lm.float32).numpy())[1003]
        assert lm.quantile(half, 1003 / 4000, interpolation="nearest").item() == want


def test_whole_numbers_stay() -> None:
    x = lm.asarray([[3, 1], [2, 7]])
    assert lm.addmm(x, x, x).dtype is lm.int64
    assert lm.kron(x, x).tolist() == np.kron(x.numpy(), x.numpy()).tolist()
    assert lm.fmod(lm.asarray([-7, 7]), lm.asarray([3, -3])).tolist() == [-1, 1]
    assert lm.median(x).item() == 2
    assert lm.cross(lm.asarray([1, 0, 0]), lm.asarray([0, 1, 0])).tolist() == [0, 0, 1]
    assert lm.vander(lm.asarray([2, 3]), 3).tolist() == [[4, 2, 1], [9, 3, 1]]
    assert lm.mode(lm.asarray([1, 2, 2, 1])).values.item() == 1
    assert lm.lerp(lm.asarray([0, 10]), 20, 0.5).tolist() == [10.0, 15.0]


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "uint8"])
def test_remainders_at_the_limits_of_integers(dtype: str) -> None:
    """The smallest integer has no counterpart above 0."""
    least, greatest = np.iinfo(dtype).min, np.iinfo(dtype).max
    values = np.array([least, least + 1, -7 if least else 7, 3, 5, greatest - 1, greatest], dtype)
    x, y = values[:, None], values[values != 0]
    equal(lm.fmod(x, y), np.fmod(x, y))
    equal(lm.remainder(x, y), np.remainder(x, y))


def test_complex_numbers_and_their_parts() -> None:
    z = lm.asarray(Z)
    equal(lm.complex(X, 2.0), X + 2j)
    equal(lm.polar(np.abs(Z), np.angle(Z)), Z)
    equal(lm.angle(z), np.angle(Z))
    equal(lm.view_as_real(z), np.stack([Z.real, Z.imag], -1))
    equal(lm.view_as_complex(lm.view_as_real(z)), Z)
    equal(lm.vdot(z, 1j * z), np.vdot(Z, 1j * Z))
    equal(lm.cov(z), np.cov(Z))
    equal(lm.corrcoef(z), np.corrcoef(Z))


def test_comparison_of_whole_arrays() -> None:
    assert lm.allclose(X, X + 1e-10).item()
    assert not lm.allclose(X, X + 1e-3).item()
    assert lm.allclose(X, X + 1e-3, atol=0.01).item()
    assert lm.array_equal(X, X).item()
    assert not lm.array_equal(X, X[:2]).item()
    assert not lm.array_equal(X, -X).item()


def test_places_and_shapes() -> None:
    assert lm.broadcast_shapes((3, 1), 4, (2, 1, 1)) == (2, 3, 4)
    for offset in (-1, 0, 2):
        want = np.stack(np.tril_indices(3, offset, 4))
        assert np.array_equal(lm.tril_indices(3, 4, offset).numpy(), want)
        want = np.stack(np.triu_indices(3, offset, 4))
        assert np.array_equal(lm.triu_indices(3, 4, offset).numpy(), want)
    equal(lm.logspace(0, 3, 7, dtype="float64"), np.logspace(0, 3, 7))
    equal(lm.logspace(-1, 1, 3, 2.0, dtype="float64"), [0.5, 1.0, 2.0])


def test_histograms_of_one_value_and_of_nothing() -> None:
    one = lm.histogram(lm.asarray([2.0, 2.0, np.nan]), 2)
    want, edges = np.histogram([2.0, 2.0], 2)
    assert lm.histogram(lm.asarray([2.0, 2.0]), 2).hist.tolist() == want.tolist()
    assert lm.histogram(lm.asarray([2.0, 2.0]), 2).bin_edges.tolist() == edges.tolist()
    assert np.isnan(one.bin_edges.numpy()).all()
    empty = lm.histogram(lm.zeros(0), 3)
    assert empty.hist.tolist() == [0, 0, 0]
    assert lm.bincount(lm.asarray([], dtype=lm.int64), minlength=2).tolist() == [0, 0]


def test_counts_in_halves_go_beyond_their_integers() -> None:
    """float16 has no number between 2048 and 2050, so adding 1 to 2048 changes nothing there."""
    zeros = lm.zeros(5000, dtype=lm.int64)
    ones = lm.ones(5000, dtype=lm.float16)
    sums = lm.bincount(zeros, ones)
    assert sums.dtype is lm.float16
    assert sums.tolist() == [5000.0]
    assert lm.histc(ones, 2, 0, 2).tolist() == [0.0, 5000.0]
    assert lm.histogram(ones, 1, range=(0, 2), weight=ones).hist.tolist() == [5000.0]
    assert lm.histogram(ones, 2, range=(0, 2), density=True).hist.tolist() == [0.0, 1.0]


@pytest.mark.parametrize("kind", [np.int64, np.array, lm.asarray])
def test_counts_may_be_integers_of_numpy(kind: Callable[[int], Any]) -> None:
    two = kind(2)
    assert [len(part) for part in lm.tensor_split(lm.arange(5), two)] == [3, 2]
    assert [len(part) for part in lm.hsplit(lm.arange(4), two)] == [2, 2]
    with pytest.raises(ShapeError, match="not divisible by 2"):
        lm.hsplit(lm.arange(5), two)
    assert lm.histogram(lm.asarray([0.0, 1.0, 1.0]), two).hist.tolist() == [1.0, 2.0]
    split = lm.tensor_split(lm.arange(5), np.array([2]))  # places, though it has one element
    assert [len(part) for part in split] == [2, 3]


def test_powers_by_differences() -> None:
    agree_with_differences(lm.vander, ROW)
    agree_with_differences(lambda x: lm.vander(x, 3, True), np.array([0.0, 1.0, -2.0]))


def test_choices_by_differences() -> None:
    """Of functions that PyTorch differentiates otherwise, or not at all."""
    agree_with_differences(lm.heaviside, X, X[::-1].copy() + 3.0)
    values = distinct(3, 5)
    agree_with_differences(lambda x: lm.nanquantile(x, [0.2, 0.7], 0), values)
    agree_with_differences(lambda x: lm.nanmedian(x, 1).values, values)


def test_distances_of_equal_rows_have_a_slope_of_0() -> None:
    x = lm.asarray([[1.0, 2.0], [1.0, 2.0]])
    (slope,) = lm.gradient(lm.cdist(x, x).sum(), [x])
    assert not slope.numpy().any()


def test_running_sums_of_exponentials_do_not_underflow() -> None:
    x = np.array([0.0, 1.0, 1000.0, -1000.0])
    equal(lm.logcumsumexp(lm.asarray(x)), np.logaddexp.accumulate(x))


ERRORS: list[tuple[type[LaminaError], str, Callable[[], Any]]] = [
    (ShapeError, "addmm", lambda: lm.addmm(X, ROW, X)),
    (ShapeError, "addmv", lambda: lm.addmv(ROW, X, X)),
    (ShapeError, "baddbmm", lambda: lm.baddbmm(X, X, X)),
    (ShapeError, "addbmm", lambda: lm.addbmm(X, X, X)),
    (ShapeError, "cross: axis -1", lambda: lm.cross(X, X)),
    (ShapeError, "cdist", lambda: lm.cdist(X, ROW)),
    (ArgumentError, "cdist: p=-1", lambda: lm.cdist(X, X, -1)),
    (ArgumentError, "pdist: p=nan", lambda: lm.pdist(X, np.nan)),
    (ShapeError, "pdist", lambda: lm.pdist(ROW)),
    (ShapeError, "multi_dot: 1 arrays", lambda: lm.multi_dot([lm.asarray(X)])),
    (ShapeError, "multi_dot", lambda: lm.multi_dot([lm.asarray(a) for a in (X, ROW, X)])),
    (ArgumentError, "kthvalue: k=5", lambda: lm.kthvalue(X, 5)),
    (ArgumentError, "interpolation='cubic'", lambda: lm.quantile(X, 0.5, interpolation="cubic")),
    (ShapeError, "quantile: q", lambda: lm.quantile(X, X)),
    (ArgumentError, "quantile: q=50", lambda: lm.quantile(X, 50)),
    (ArgumentError, "quantile: q=nan", lambda: lm.quantile(X, np.nan)),
    (ArgumentError, "nanquantile: q=", lambda: lm.nanquantile(X, [0.5, -0.1])),
    (ArgumentError, "histogram: range", lambda: lm.histogram(X, range=(5, 2))),
    (ArgumentError, "histogram: range", lambda: lm.histogram(X, range=(0, np.inf))),
    (ArgumentError, "histogram: 0 is less than 1", lambda: lm.histogram(X, 0)),
    (ShapeError, "no elements", lambda: lm.median(lm.zeros((0, 3)), 0)),
    (DTypeError, "bincount: float64", lambda: lm.bincount(ROW)),
    (ArgumentError, "bincount: -1 is negative", lambda: lm.bincount(lm.asarray([0, -1]))),
    (ShapeError, "cov", lambda: lm.cov(np.zeros((2, 2, 2)))),
    (ArgumentError, "logit: eps=0.7", lambda: lm.logit(SHARE, 0.7)),
    (ArgumentError, "polygamma: -1", lambda: lm.polygamma(-1, SHARE)),
    (ArgumentError, "multigammaln: 0", lambda: lm.multigammaln(SHARE, 0)),
    (DTypeError, "view_as_real", lambda: lm.view_as_real(X)),
    (DTypeError, "complex: parts of float16", lambda: lm.complex(lm.zeros(2, dtype=lm.float16), 1)),
    (ShapeError, "hstack", lambda: lm.hstack([])),
    (ShapeError, "block_diag", lambda: lm.block_diag(np.zeros((1, 1, 1)))),
    (ShapeError, "combinations", lambda: lm.combinations(X)),
    (ShapeError, "not divisible", lambda: lm.hsplit(X, 3)),
    (ShapeError, "vsplit", lambda: lm.vsplit(ROW, 2)),
    (AxisError, "narrow", lambda: lm.narrow(X, 1, 2, 3)),
    (ShapeError, "diagonal_scatter", lambda: lm.diagonal_scatter(X, ROW)),
    (ShapeError, "unflatten", lambda: lm.unflatten(X, 1, (3, -1))),
    (ShapeError, "fliplr", lambda: lm.fliplr(ROW)),
    (ShapeError, "flipud", lambda: lm.flipud(1.0)),
    (ShapeError, "sum_to_size", lambda: lm.sum_to_size(X, 2, 4)),
    (ShapeError, "diag_embed", lambda: lm.diag_embed(1.0)),
]
SHARE = np.array([0.25])


@pytest.mark.parametrize(("kind", "message", "wrong"), ERRORS, ids=[row[1] for row in ERRORS])
def test_errors(kind: type[LaminaError], message: str, wrong: Callable[[], Any]) -> None:
    with pytest.raises(kind, match=message):
        wrong()
