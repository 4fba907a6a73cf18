"""Reading and writing by index arrays against PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lamina as lm
from lamina.errors import ArgumentError, AxisError, DTypeError, ShapeError
from tests.functions.agreement import agree_with_torch, distinct, normals

REDUCTIONS = ("sum", "prod", "mean", "amax", "amin")


def draw(*shape: int, below: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, below, shape)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64, np.uint8])
@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("reduce", REDUCTIONS)
def test_reductions_are_pytorchs(reduce: str, include_self: bool, dtype: Any) -> None:
    torch = pytest.importorskip("torch")
    # No element equals an old value: PyTorch shares derivatives with values that take no part.
    x, source = abs(distinct(4, 5)).astype(dtype), abs(distinct(6, 5, seed=1) + 0.25).astype(dtype)
    index = draw(6, 5, below=3)  # nothing arrives at row 3
    different = np.issubdtype(dtype, np.floating) and reduce != "prod"
    tolerance = 1e-9 if dtype is np.float64 else 1e-5
    agree_with_torch(
        lambda a, b: lm.scatter_reduce(a, 0, lm.asarray(index), b, reduce, include_self),
        lambda a, b: torch.scatter_reduce(
            a, 0, torch.tensor(index), b, reduce, include_self=include_self
        ),
        x, source, differentiate=different, tolerance=tolerance,
    )  # fmt: skip


@pytest.mark.filterwarnings("ignore:index_reduce")
@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("reduce", REDUCTIONS[1:])
def test_slices_are_reduced_as_pytorch_does(reduce: str, include_self: bool) -> None:
    torch = pytest.importorskip("torch")
    index = draw(6, below=3)
    agree_with_torch(
        lambda a, b: lm.index_reduce(a, 1, lm.asarray(index), b, reduce, include_self),
        lambda a, b: torch.index_reduce(
            a, 1, torch.tensor(index), b, reduce, include_self=include_self
        ),
        distinct(3, 4), distinct(3, 6, seed=1) + 0.25, differentiate=reduce != "prod",
    )  # fmt: skip


def test_an_old_value_that_takes_no_part_has_no_share_of_ties() -> None:
    x, source = lm.asarray([2.0, 2.0]), lm.asarray([2.0, 1.0])
    result = lm.scatter(x, 0, [0, 0], source, "amax", include_self=False)
    assert [one.tolist() for one in lm.gradient(result.sum(), [x, source])] == [[0, 1], [1, 0]]


def test_means_of_many_small_integers_do_not_wrap_around() -> None:
    x, source = lm.zeros(1, dtype=lm.uint8), lm.full(600, 200, dtype=lm.uint8)
    result = lm.scatter(x, 0, lm.zeros(600, dtype=lm.int64), source, "mean", False)
    assert result.dtype is lm.uint8
    assert result.tolist() == [200]


def test_halves_have_means_from_float32() -> None:
    x = lm.zeros(1, dtype=lm.float16)
    result = lm.scatter(x, 0, lm.zeros(4096, dtype=lm.int64), 40.0, "mean", False)
    assert result.tolist() == [40.0]


def test_slices_are_pytorchs() -> None:
    torch = pytest.importorskip("torch")
    x, source, index = normals(4, 5), normals(4, 3, seed=1), [3, 0, 2]
    places = torch.tensor(index)
    agree_with_torch(
        lambda a, b: lm.index_add(a, 1, index, b, alpha=2.5),
        lambda a, b: torch.index_add(a, 1, places, b, alpha=2.5), x, source,
    )  # fmt: skip
    agree_with_torch(
        lambda a, b: lm.index_copy(a, -1, index, b),
        lambda a, b: torch.index_copy(a, -1, places, b), x, source,
    )  # fmt: skip
    agree_with_torch(
        lambda a: lm.index_fill(a, 0, index, 2.5), lambda a: torch.index_fill(a, 0, places, 2.5), x
    )
    agree_with_torch(
        lambda a: lm.index_select(a, 0, index), lambda a: torch.index_select(a, 0, places), x
    )
    index_twice = [3, 3, 0]
    agree_with_torch(
        lambda a, b: lm.index_add(a, 1, index_twice, b),
        lambda a, b: torch.index_add(a, 1, torch.tensor(index_twice), b), x, source,
    )  # fmt: skip


@pytest.mark.parametrize("accumulate", [True, False])
def test_put_is_pytorchs(accumulate: bool) -> None:
    torch = pytest.importorskip("torch")
    index = np.array([[3, 0], [-1, 7]])
    agree_with_torch(
        lambda a, b: lm.put(a, lm.asarray(index), b, accumulate),
        lambda a, b: torch.Tensor.put(a, torch.tensor(index), b, accumulate),
        normals(4, 5), normals(2, 2, seed=1),
    )  # fmt: skip


def test_take_without_an_axis_counts_all_elements() -> None:
    torch = pytest.importorskip("torch")
    index = np.array([[3, 0], [-1, 7]])
    agree_with_torch(
        lambda a: lm.take(a, index), lambda a: torch.take(a, torch.tensor(index)), normals(4, 5)
    )


def test_an_array_without_axes_is_a_line_of_one_element() -> None:
    torch = pytest.importorskip("torch")
    x, y = np.array(3.5), np.array(2.0)
    zero = torch.tensor(0)
    for axis in (0, -1):
        agree_with_torch(
            lambda a, axis=axis: lm.gather(a, axis, lm.asarray(0)),
            lambda a, axis=axis: torch.gather(a, axis, zero), x,
        )  # fmt: skip
        agree_with_torch(
            lambda a, b, axis=axis: lm.scatter_add(a, axis, lm.asarray(0), b),
            lambda a, b, axis=axis: torch.scatter_add(a, axis, zero, b), x, y,
        )  # fmt: skip
        agree_with_torch(
            lambda a, b, axis=axis: lm.index_add(a, axis, lm.asarray(0), b),
            lambda a, b, axis=axis: torch.index_add(a, axis, zero, b), x, y,
        )  # fmt: skip
        agree_with_torch(
            lambda a, axis=axis: lm.index_select(a, axis, lm.asarray([0])),
            lambda a, axis=axis: torch.index_select(a, axis, torch.tensor([0])), x,
        )  # fmt: skip


def test_out_of_range_is_dropped_and_negative_counts_from_the_end() -> None:
    x = lm.zeros(3)
    places = lm.asarray([0, -1, 5, -7])
    assert lm.scatter_add(x, 0, places, [1.0, 2.0, 4.0, 8.0]).tolist() == [1.0, 0.0, 2.0]
    means = lm.scatter(x, 0, lm.asarray([0, 5]), [1.0, 4.0], "mean", include_self=False)
    assert means.tolist() == [1.0, 0.0, 0.0]


def test_traced() -> None:
    index = lm.asarray(draw(6, 5, below=4))
    x, source = lm.asarray(normals(4, 5)), lm.asarray(normals(6, 5, seed=1))

    def mean(a: lm.Tensor, i: lm.Tensor, b: lm.Tensor) -> lm.Tensor:
        return lm.scatter(a, 0, i, b, "mean", False)

    expected, compiled = mean(x, index, source), lm.jit(mean)
    for _ in range(2):
        np.testing.assert_allclose(compiled(x, index, source).numpy(), expected.numpy())


def test_errors() -> None:
    x = lm.zeros((2, 3))
    with pytest.raises(ArgumentError, match="reduce='median'"):
        lm.scatter(x, 0, lm.zeros((2, 3), dtype=lm.int64), x, "median")
    with pytest.raises(ShapeError, match="differ in rank"):
        lm.scatter_add(x, 0, [0], x)
    with pytest.raises(ShapeError, match="does not fit"):
        lm.scatter_add(x, 0, lm.zeros((2, 4), dtype=lm.int64), lm.zeros((2, 4)))
    with pytest.raises(ShapeError, match="does not broadcast"):
        lm.index_add(x, 0, [0], lm.zeros((2, 3)))
    with pytest.raises(ShapeError, match="one axis"):
        lm.index_copy(x, 0, [[0]], x)
    with pytest.raises(ShapeError, match="one number"):
        lm.index_fill(x, 0, [0], [1.0, 2.0])
    with pytest.raises(ShapeError, match="2 indices for 3"):
        lm.put(x, [0, 1], [1.0, 2.0, 3.0])
    with pytest.raises(AxisError, match="rank 0"):
        lm.gather(lm.asarray(1.0), 1, lm.asarray(0))
    with pytest.raises(DTypeError, match="integers"):
        lm.index_add(x, 0, [0.5], 1.0)
