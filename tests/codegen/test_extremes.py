"""Places of extremes in compiled loops, beside NumPy: ties, infinities and NaN."""

from __future__ import annotations

import numpy as np
import pytest

import lamina as lm

# Rows and columns as vectors, parts that are left over, one vector, several reduced loops.
SHAPES = [((23, 89), 0), ((9, 1000), 1), ((7, 13, 5), 1), ((33,), 0), ((20, 3, 17), 2),
          ((64, 100), 0), ((5, 8), 1), ((3, 31), 1), ((20, 12), 1), ((4, 70, 3), 1)]  # fmt: skip


def _values(kind: str, shape: tuple[int, ...]) -> np.ndarray:
    random = np.random.default_rng(7)
    numbers = random.integers(0, 4, shape).astype(np.float32)
    if kind == "worst":
        return np.full(shape, -np.inf, np.float32)
    if kind == "best":
        return np.full(shape, np.inf, np.float32)
    if kind == "nan":
        return np.where(random.random(shape) < 0.1, np.nan, numbers).astype(np.float32)
    if kind == "infinite":
        return np.where(random.random(shape) < 0.9, -np.inf, np.inf).astype(np.float32)
    return numbers


@pytest.mark.parametrize("kind", ["ties", "worst", "best", "nan", "infinite"])
@pytest.mark.parametrize(("shape", "axis"), SHAPES)
def test_places_are_the_first_ones(shape: tuple[int, ...], axis: int, kind: str) -> None:
    values = _values(kind, shape)
    found = lm.jit(lambda x: (lm.argmax(x, axis=axis), lm.argmin(x, axis=axis)))(lm.asarray(values))
    np.testing.assert_array_equal(found[0].numpy(), values.argmax(axis))
    np.testing.assert_array_equal(found[1].numpy(), values.argmin(axis))


def test_places_along_all_axes() -> None:
    values = np.random.default_rng(0).integers(0, 9, (6, 11, 7)).astype(np.int32)
    found = lm.jit(lambda x: lm.argmax(x, axis=None))(lm.asarray(values))
    assert int(found) == values.argmax()
