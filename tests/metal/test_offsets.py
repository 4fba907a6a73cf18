"""On the emulated GPU too: numbers that change are read from memory, and updates are in place."""

from __future__ import annotations

import numpy as np

import lamina as lm


def test_slices_shifts_and_stores_that_change() -> None:
    values = np.random.default_rng(0).standard_normal((40, 48)).astype(np.float32)
    x, kept = lm.Tensor(values).realize(), lm.Tensor(values).realize()
    expected = values.copy()

    @lm.jit
    def step(new: lm.Tensor, i: int) -> tuple[lm.Tensor, lm.Tensor, lm.Tensor]:
        kept[i : i + 2] = new
        kept[:, i] += 1
        product = x[i : i + 16, :20] @ x[:20, i : i + 24]
        return product, lm.roll(x, i, axis=1), x[:, i].sum()

    for i in (3, 0, 17, 9):
        product, rolled, total = (result.numpy() for result in step(lm.Tensor(values[:2]), i))
        expected[i : i + 2] = values[:2]
        expected[:, i] += 1
        wanted = values[i : i + 16, :20] @ values[:20, i : i + 24]
        np.testing.assert_allclose(product, wanted, rtol=1e-4, atol=1e-4)
        np.testing.assert_array_equal(rolled, np.roll(values, i, 1))
        np.testing.assert_allclose(total, values[:, i].sum(), rtol=1e-5)
        np.testing.assert_allclose(kept.numpy(), expected, rtol=1e-6)
