"""Vectors whose lanes shuffles pick from neighbours, beside NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import lamina as lm

COUNTS = (7, 8, 16, 31, 100)


@pytest.mark.parametrize("stride", [2, 3, 4, 5])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64", "int8", "bool"])
def test_rows_that_are_lanes(stride: int, dtype: str) -> None:
    for count in COUNTS:
        values = np.random.default_rng(count).integers(0, 9, (count, stride)).astype(dtype)
        found = lm.jit(lambda x: (lm.argmax(x, axis=1), lm.max(x, axis=1)))(lm.asarray(values))
        np.testing.assert_array_equal(found[0].numpy(), values.argmax(axis=1))
        np.testing.assert_array_equal(found[1].numpy(), values.max(axis=1))


@pytest.mark.parametrize("stride", [-1, -2, 2, 3, 4, 5])
def test_elements_apart(stride: int) -> None:
    """Nothing beyond the last of them is read."""
    for count in COUNTS:
        values = np.random.default_rng(count).random(count).astype(np.float32)
        found = lm.jit(lambda x: lm.exp(lm.sin(x[::stride])))(lm.asarray(values))
        np.testing.assert_allclose(found.numpy(), np.exp(np.sin(values[::stride])), rtol=1e-6)
