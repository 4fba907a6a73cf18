"""Sorting, searching and sets against NumPy and PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from lamina.core import dtypes
from lamina.core.dtypes import DType, int64
from lamina.errors import ArgumentError, AxisError, DTypeError, ShapeError
from lamina.frontend.functions import reduction as sorting
from lamina.frontend.functions import sets
from lamina.frontend.jit import jit
from lamina.frontend.lowered import TensorSpec
from lamina.frontend.tensor import Tensor
from tests.functions.agreement import agree_with_differences, agree_with_torch, distinct

Array = np.ndarray

shapes = hnp.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=5)
few_floats = st.sampled_from([-np.inf, -1.5, -0.0, 0.0, 1.0, 2.5, np.inf, np.nan])
arrays = st.one_of(
    hnp.arrays(np.float32, shapes, elements=few_floats),
    hnp.arrays(np.int16, shapes, elements=st.integers(-2, 2)),
    hnp.arrays(np.uint8, shapes),
    hnp.arrays(np.bool_, shapes),
)


@given(arrays, st.data())
def test_ascending_like_numpy(x: Array, data: Any) -> None:
    axis = data.draw(st.integers(-x.ndim, x.ndim - 1))
    np.testing.assert_array_equal(sorting.sort(Tensor(x), axis=axis).numpy(), np.sort(x, axis))
    order = sorting.argsort(Tensor(x), axis=axis)
    assert order.dtype is int64
    np.testing.assert_array_equal(order.numpy(), np.argsort(x, axis, stable=True))


@given(arrays, st.data())
def test_descending_is_stable(x: Array, data: Any) -> None:
    axis = data.draw(st.integers(-x.ndim, x.ndim - 1))
    order = sorting.argsort(Tensor(x), axis=axis, descending=True).numpy()
    values = np.take_along_axis(x, order, axis)
    np.testing.assert_array_equal(values, np.flip(np.sort(x, axis), axis))
    a, b = (np.moveaxis(one, axis, -1) for one in (values, order))
    same = (a[..., 1:] == a[..., :-1]) | ((a[..., 1:] != a[..., 1:]) & (a[..., :-1] != a[..., :-1]))
    assert np.all(b[..., 1:][same] > b[..., :-1][same])


@pytest.mark.parametrize("dtype", [one for one in dtypes.ALL if not one.is_complex])
def test_every_bit_of_a_key_counts(dtype: DType) -> None:
    for length in (1, 31, 300):  # few are compared, many counted
        x = np.random.default_rng(length).integers(0, 256, (3, length * dtype.itemsize), np.uint8)
        x = (x % 2 if dtype is dtypes.bool_ else x).view(dtype.numpy)
        x[:, ::3] = x[:, :1]
        if dtype.is_float:
            x[:, 1::9], x[:, 2::9], x[:, 3::9], x[:, 4::9] = np.nan, 0.0, -0.0, -np.inf
        order = sorting.argsort(Tensor(x), axis=1).numpy()
        comparable = x.astype(np.float32) if dtype.is_small else x
        np.testing.assert_array_equal(order, comparable.argsort(1, stable=True))


def test_sort_has_a_derivative() -> None:
    x = distinct(3, 5)
    agree_with_differences(lambda a: sorting.sort(a, axis=0), x)
    agree_with_differences(lambda a: sorting.topk(a, 2, largest=False).values, x)


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize(("k", "axis"), [(0, 0), (1, 0), (1, -1), (2, 1), (4, -1), (3, 0)])
def test_topk_against_torch(k: int, axis: int, largest: bool) -> None:
    torch = pytest.importorskip("torch")
    x = distinct(3, 4, 2).transpose(0, 2, 1).copy()
    mine = sorting.topk(Tensor(x), min(k, x.shape[axis]), axis, largest)
    other = torch.topk(torch.tensor(x), min(k, x.shape[axis]), axis, largest)
    np.testing.assert_array_equal(mine.indices.numpy(), other.indices.numpy())
    agree_with_torch(
        lambda a: sorting.topk(a, min(k, x.shape[axis]), axis, largest).values,
        lambda a: torch.topk(a, min(k, x.shape[axis]), axis, largest).values,
        x,
    )


@given(
    hnp.arrays(np.float64, st.integers(0, 9), elements=few_floats),
    hnp.arrays(np.float64, hnp.array_shapes(min_dims=0, max_dims=2), elements=few_floats),
    st.sampled_from(["left", "right"]),
    st.booleans(),
)
def test_searchsorted_like_numpy(x: Array, values: Array, side: Any, shuffled: bool) -> None:
    sorter = np.argsort(x) if shuffled else None
    x = x if shuffled else np.sort(x)
    got = sets.searchsorted(
        Tensor(x), Tensor(values), side=side, sorter=None if sorter is None else Tensor(sorter)
    )
    np.testing.assert_array_equal(got.numpy(), np.searchsorted(x, values, side, sorter))


def test_searchsorted_at_every_size() -> None:
    for n in range(18):
        x = np.arange(n)
        values = np.arange(-1, n + 1)
        for side in ("left", "right"):
            got = sets.searchsorted(Tensor(x), Tensor(values), side=side).numpy()
            np.testing.assert_array_equal(got, np.searchsorted(x, values, side))


@pytest.mark.parametrize("shuffled", [True, False])
@pytest.mark.parametrize("right", [True, False])
@pytest.mark.parametrize("lead", [(2,), (2, 3), (0,), (3, 1)])
def test_searchsorted_in_many_rows(lead: tuple[int, ...], right: bool, shuffled: bool) -> None:
    torch = pytest.importorskip("torch")
    draw = np.random.default_rng(0)
    x, values = (draw.integers(0, 6, (*lead, size)) / 2.0 for size in (7, 4))
    sorter = np.argsort(x) if shuffled else None
    x = x if shuffled else np.sort(x)
    got = sets.searchsorted(
        Tensor(x), Tensor(values), right=right, sorter=None if sorter is None else Tensor(sorter)
    )
    expected = torch.searchsorted(
        torch.tensor(x), torch.tensor(values), right=right,
        sorter=None if sorter is None else torch.tensor(sorter),
    )  # fmt: skip
    np.testing.assert_array_equal(got.numpy(), expected.numpy())
    side = "right" if right else "left"
    found = jit(lambda a, b: sets.searchsorted(a, b, side=side))(Tensor(np.sort(x)), Tensor(values))
    plain = torch.searchsorted(torch.tensor(np.sort(x)), torch.tensor(values), right=right)
    np.testing.assert_array_equal(found.numpy(), plain.numpy())


@pytest.mark.parametrize("axis", [None, 0, 1, -1])
def test_unique_along_an_axis(axis: int | None) -> None:
    torch = pytest.importorskip("torch")
    x = np.random.default_rng(0).integers(0, 2, (5, 3, 2))
    mine = sets.unique(Tensor(x), axis, return_inverse=True, return_counts=True)
    other = torch.unique(torch.tensor(x), return_inverse=True, return_counts=True, dim=axis)
    for ours, theirs in zip(mine, other, strict=True):
        np.testing.assert_array_equal(ours.numpy(), theirs.numpy())
    values, first = sets.unique(Tensor(x), axis, return_index=True)
    flat = x.reshape(-1) if axis is None else x
    np.testing.assert_array_equal(np.take(flat, first.numpy(), axis or 0), values.numpy())
    np.testing.assert_array_equal(sets.unique(Tensor(x), axis).numpy(), values.numpy())


def test_unique_keeps_dtypes_and_every_nan() -> None:
    halves = sets.unique(Tensor([2.0, 1.0, 2.0], dtypes.bfloat16))
    assert halves.dtype is dtypes.bfloat16
    assert halves.tolist() == [1.0, 2.0]
    assert sets.unique(Tensor([np.nan, 1.0, np.nan])).shape == (3,)


@given(arrays)
def test_sets_like_numpy(x: Array) -> None:
    mine = sets.unique_all(Tensor(x))
    other = np.unique_all(x)
    np.testing.assert_array_equal(mine.values.numpy(), other.values)
    np.testing.assert_array_equal(mine.indices.numpy(), other.indices)
    np.testing.assert_array_equal(mine.counts.numpy(), other.counts)
    np.testing.assert_array_equal(mine.inverse_indices.numpy(), other.inverse_indices)
    assert mine.inverse_indices.shape == x.shape


def test_forms_of_unique() -> None:
    x = Tensor([[3, 1], [3, 2]])
    assert sets.unique_values(x).tolist() == [1, 2, 3]
    assert sets.unique_counts(x).counts.tolist() == [1, 1, 2]
    assert sets.unique_inverse(x).inverse_indices.tolist() == [[2, 0], [2, 1]]


def test_unique_complex_numbers() -> None:
    x = np.array([1 + 2j, 1 + 1j, 0 + 5j, 1 + 2j], np.complex64)
    assert sets.unique_values(Tensor(x)).tolist() == [5j, 1 + 1j, 1 + 2j]


def test_errors() -> None:
    x = Tensor([1.0, 2.0])
    with pytest.raises(AxisError):
        sorting.sort(x, axis=1)
    with pytest.raises(DTypeError, match="order"):
        sorting.sort(Tensor([1j]))
    with pytest.raises(ShapeError, match="k=3"):
        sorting.topk(x, 3)
    with pytest.raises(ArgumentError, match="side"):
        sets.searchsorted(x, x, side="middle")
    with pytest.raises(ShapeError, match="all but the last"):
        sets.searchsorted(Tensor([[1.0]]), x)
    with pytest.raises(ShapeError, match="an axis"):
        sets.searchsorted(Tensor(1.0), x)
    with pytest.raises(ShapeError, match="sorter"):
        sets.searchsorted(x, x, sorter=Tensor([0]))
    with pytest.raises(AxisError):
        sets.unique(x, 1)


@pytest.mark.parametrize("dtype", [np.float32, np.int16, np.uint8, np.bool_])
@pytest.mark.parametrize(("shape", "axis", "k"), [((5000,), 0, 7), ((2, 4099), 1, 16),
                                                  ((4500, 2), 0, 1)])  # fmt: skip
def test_the_largest_of_long_lines_are_the_first_of_them(
    shape: tuple[int, ...], axis: int, k: int, dtype: Any
) -> None:
    """With many equal elements, infinities and NaN, whose order a stable sort tells."""
    rng = np.random.default_rng(k)
    x = rng.integers(0, 30, shape).astype(dtype)
    if dtype is np.float32:
        x[rng.random(shape) < 0.001] = np.nan
        x[rng.random(shape) < 0.001] = -np.inf
    turned = np.flip(x, axis)
    last = np.flip(np.argsort(turned, axis=axis, kind="stable"), axis)
    wanted = np.take(x.shape[axis] - 1 - last, np.arange(k), axis)
    values, indices = sorting.topk(Tensor(x), k, axis)
    np.testing.assert_array_equal(indices.numpy(), wanted)
    np.testing.assert_array_equal(values.numpy(), np.take_along_axis(x, wanted, axis))


@pytest.mark.parametrize("lowest", [-np.inf, 0.0])
def test_lines_of_the_lowest_numbers_have_the_first_of_them_on_top(lowest: float) -> None:
    x = np.full(4099, lowest, np.float32)
    x[4000:] = -np.inf
    values, indices = sorting.topk(Tensor(x), 9)
    np.testing.assert_array_equal(indices.numpy(), np.arange(9))
    np.testing.assert_array_equal(values.numpy(), x[:9])


def test_slopes_of_the_largest_of_long_lines_are_pytorchs() -> None:
    torch = pytest.importorskip("torch")
    x = np.random.default_rng(6).permutation(2 * 4200).reshape(2, 4200).astype(np.float64)
    agree_with_torch(
        lambda a: sorting.topk(a, 12).values, lambda a: torch.topk(a, 12).values, x
    )


@pytest.mark.parametrize("descending", [False, True])
def test_rows_of_one_element_are_not_sorted(descending: bool) -> None:
    def both(x: Tensor) -> tuple[Tensor, Tensor]:
        order = sorting.argsort(x, axis=1, descending=descending)
        return sorting.sort(x, axis=1, descending=descending), order

    x = np.array([[3.0], [np.nan], [-1.0]], np.float32)
    compiled = jit(both)
    kernels = compiled.lower(TensorSpec(x.shape), device="cpu").kernels
    assert not [kernel.name for kernel in kernels if kernel.name.startswith("sort")]
    values, order = compiled(Tensor(x))
    np.testing.assert_array_equal(values.numpy(), x)
    np.testing.assert_array_equal(order.numpy(), np.argsort(x, axis=1))
