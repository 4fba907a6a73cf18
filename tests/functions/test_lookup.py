"""Lookups of rows against NumPy and PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lamina.core import dtypes
from lamina.errors import ArgumentError, DTypeError, ShapeError
from lamina.frontend.differentiate import gradient
from lamina.frontend.functions import lookup
from lamina.frontend.jit import jit
from lamina.frontend.tensor import Tensor
from tests.functions.agreement import agree_with_differences, agree_with_torch, normals


def test_one_hot() -> None:
    got = lookup.one_hot(Tensor([[0, 2], [1, 5]]), 3)
    assert got.dtype is dtypes.int64
    assert got.tolist() == [[[1, 0, 0], [0, 0, 1]], [[0, 1, 0], [0, 0, 0]]]
    assert lookup.one_hot(Tensor(1), 3).tolist() == [0, 1, 0]
    wide = lookup.one_hot(Tensor([10, -1], dtypes.int8), 300)  # more than int8 can name
    assert wide.sum(axis=1).tolist() == [1, 0]
    assert wide.argmax(axis=1).tolist() == [10, 0]


@pytest.mark.parametrize("padding", [None, 0, -1])
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 4)])
def test_embedding_against_torch(shape: tuple[int, ...], padding: int | None) -> None:
    torch = pytest.importorskip("torch")
    indices = np.random.default_rng(0).integers(0, 5, shape)
    agree_with_torch(
        lambda w: lookup.embedding(Tensor(indices), w, padding),
        lambda w: torch.nn.functional.embedding(torch.tensor(indices), w, padding),
        normals(5, 3),
    )


def test_embedding_is_a_lookup() -> None:
    w = normals(5, 3)
    indices = np.array([[1, 4], [4, 4]])
    got = lookup.embedding(Tensor(indices), Tensor(w))
    np.testing.assert_array_equal(got.numpy(), w[indices])
    agree_with_differences(lambda a: lookup.embedding(Tensor(indices), a), w)


def test_as_many_classes_as_indices_name() -> None:
    torch = pytest.importorskip("torch")
    index = np.array([[0, 3], [1, 0]])
    expected = torch.nn.functional.one_hot(torch.tensor(index)).numpy()
    np.testing.assert_array_equal(lookup.one_hot(Tensor(index)).numpy(), expected)


@pytest.mark.parametrize("options", [
    {"max_norm": 2.0}, {"max_norm": 2.0, "norm_type": 1.0, "padding_idx": 2},
    {"max_norm": 1.5, "norm_type": np.inf}, {"scale_grad_by_freq": True},
    {"scale_grad_by_freq": True, "max_norm": 1.0, "padding_idx": -1},
])  # fmt: skip
def test_options_of_embedding_against_torch(options: dict[str, Any]) -> None:
    """PyTorch scales the weight in place, so it gets a copy."""
    torch = pytest.importorskip("torch")
    indices = np.array([[0, 2, 2], [1, 4, 2]])
    agree_with_torch(
        lambda w: lookup.embedding(Tensor(indices), w, **options),
        lambda w: torch.nn.functional.embedding(torch.tensor(indices), w.clone(), **options),
        normals(5, 4) * 3.0,
    )


def test_rows_within_the_norm_and_the_weight_stay_as_they_are() -> None:
    weight = Tensor([[3.0, 4.0], [0.3, 0.4]])
    rows = lookup.embedding(Tensor([1, 0]), weight, max_norm=1.0)
    np.testing.assert_allclose(rows.numpy(), [[0.3, 0.4], [0.6, 0.8]], rtol=1e-6)
    assert rows.tolist()[0] == weight.tolist()[1]
    assert weight.tolist()[0] == [3.0, 4.0]


def test_indices_out_of_range_have_no_frequency() -> None:
    weight = Tensor([[1.0], [2.0]])
    rows = lookup.embedding(Tensor([1, 1, 7]), weight, scale_grad_by_freq=True)
    assert rows.tolist() == [[2.0], [2.0], [0.0]]
    (slope,) = gradient(rows.sum(), [weight])
    assert slope.tolist() == [[0.0], [1.0]]


def test_traced() -> None:
    weight, indices = Tensor(normals(5, 4) * 3.0), Tensor([[0, 2], [4, 2]])

    def slopes(w: Tensor, i: Tensor) -> tuple[Tensor, Tensor]:
        rows = lookup.embedding(i, w, max_norm=1.0, scale_grad_by_freq=True)
        return rows, *gradient((rows * rows).sum(), [w])

    for got, expected in zip(jit(slopes)(weight, indices), slopes(weight, indices), strict=True):
        np.testing.assert_allclose(got.numpy(), expected.numpy())


def test_errors() -> None:
    x = Tensor(normals(2, 4))
    with pytest.raises(DTypeError, match="integers"):
        lookup.embedding(x, x)
    with pytest.raises(DTypeError, match="integers"):
        lookup.one_hot(x, 3)
    with pytest.raises(ArgumentError, match="less than -1"):
        lookup.one_hot(Tensor([1]), -2)
    with pytest.raises(ShapeError, match="num_classes"):
        lookup.one_hot(Tensor(np.zeros(0, np.int64)))
    with pytest.raises(ShapeError, match=r"\(n, d\)"):
        lookup.embedding(Tensor([1]), Tensor([1.0]))
