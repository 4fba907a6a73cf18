"""Rows that threads of a block share: of short lines, and of elements that lie apart."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lamina as lm
from lamina import Tensor

Array = np.ndarray[Any, Any]


def weighted_variances(x: Tensor, weights: Tensor) -> Tensor:
    """Of each image, with a weight for each channel: in two passes over rows of short lines."""
    centred = x - lm.mean(x, axis=(1, 2), keepdims=True)
    return lm.sum(weights[:, None] * centred * centred, axis=(1, 2))


def weighted_variances_of_numpy(x: Array, weights: Array) -> Array:
    centred = x - x.mean(axis=(1, 2), keepdims=True)
    return (weights[:, None] * centred * centred).sum(axis=(1, 2))


@pytest.mark.parametrize("shape", [(20, 300, 15), (17, 64, 9)])
def test_rows_of_short_lines_are_one_loop(shape: tuple[int, int, int]) -> None:
    x = np.random.default_rng(3).standard_normal(shape, dtype=np.float32)
    weights = np.random.default_rng(4).standard_normal(shape[1], dtype=np.float32)
    function = lm.jit(weighted_variances)
    specs = lm.TensorSpec(shape), lm.TensorSpec(weights.shape)
    (kernel,) = function.lower(*specs, device="metal").kernels
    assert "flatten(" in kernel.schedule
    got = function(Tensor(x), Tensor(weights)).numpy()
    wanted = weighted_variances_of_numpy(x.astype(np.float64), weights)
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-3)


def weighted(x: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Elements, with a weight for each place of a line, and their sums."""
    elements = lm.exp(x) * weights
    return elements, lm.sum(elements, axis=(1, 2))


def test_rows_of_lines_with_a_weight_for_each_place() -> None:
    x = np.random.default_rng(3).standard_normal((20, 71, 15), dtype=np.float32)
    weights = np.random.default_rng(4).standard_normal(15, dtype=np.float32)
    function = lm.jit(weighted)
    specs = lm.TensorSpec(x.shape), lm.TensorSpec(weights.shape)
    (kernel,) = function.lower(*specs, device="metal").kernels
    assert "flatten(" in kernel.schedule
    elements, sums = function(Tensor(x), Tensor(weights))
    wanted = np.exp(x.astype(np.float64)) * weights
    np.testing.assert_allclose(elements.numpy(), wanted, rtol=1e-5)
    np.testing.assert_allclose(sums.numpy(), wanted.sum(axis=(1, 2)), rtol=1e-4, atol=1e-3)


def test_long_rows_that_lie_apart() -> None:
    x = np.random.default_rng(5).standard_normal((300, 1024), dtype=np.float32)
    function = lm.jit(lambda x: lm.softmax(x, axis=0))
    (kernel,) = function.lower(lm.TensorSpec(x.shape), device="metal").kernels
    assert kernel.schedule.count("thread") == 2
    exponentials = np.exp(x.astype(np.float64))
    wanted = exponentials / exponentials.sum(axis=0)
    np.testing.assert_allclose(function(Tensor(x)).numpy(), wanted, rtol=1e-4)
