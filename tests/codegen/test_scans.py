"""Running values on the CPU, along axes that vectors run along and across others."""

from __future__ import annotations

import numpy as np
import pytest

import lamina as lm
from lamina.core.options import using
from tests import scans
from tests.compiled import compare


def test_running_values_of_every_shape_and_kind() -> None:
    """Of pairs, too, one of which is the same in all lanes: a maximum of columns with its row."""
    assert compare([scans.sample()], "cpu") == []


@pytest.mark.parametrize("shape", [(5,), (16,), (47,), (3, 1000), (2, 3, 77)])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
def test_lanes_of_one_scan(shape: tuple[int, ...], dtype: str) -> None:
    """Steps are lanes of vectors, and of shorter ones where some are left over."""
    values = np.random.default_rng(1).integers(-4, 5, shape).astype(dtype)
    x = lm.asarray(values)
    found = lm.jit(lambda x: (lm.cumsum(x, axis=-1), lm.cummax(x, axis=-1)))(x)
    total = values.cumsum(axis=-1, dtype=found[0].numpy().dtype)
    np.testing.assert_array_equal(found[0].numpy(), total)
    np.testing.assert_array_equal(found[1].numpy(), np.maximum.accumulate(values, axis=-1))


@pytest.mark.parametrize("size", [8, 16, 40])
@pytest.mark.parametrize("dtype", ["float32", "int64"])
def test_rows_share_the_scan_of_a_number(size: int, dtype: str) -> None:
    """A scan of ones is the same in all rows; one vector of it is outside of their loop."""

    def offset_counts(offset: lm.Tensor) -> lm.Tensor:
        return lm.cumsum(lm.ones((3, size), dtype=dtype), axis=1) + offset

    offset = np.full((3, 1), 2, dtype)
    counts = lm.jit(offset_counts)(lm.asarray(offset)).numpy()
    np.testing.assert_array_equal(counts, np.cumsum(np.ones((3, size), dtype), axis=1) + offset)


def test_not_a_number_stays_in_all_lanes_behind() -> None:
    values = np.arange(100, dtype=np.float32)
    values[37] = np.nan
    for function in (lm.cumsum, lm.cummax):
        found = lm.jit(lambda x, function=function: function(x, axis=0))(lm.asarray(values))
        np.testing.assert_array_equal(np.isnan(found.numpy()), np.arange(100) >= 37)


def test_long_running_sums_of_lanes_have_blocks() -> None:
    """What follows the blocks, shorter vectors, goes on from their total."""
    count = (1 << 20) + 13
    x = lm.full((count,), 0.1, dtype="float32")
    with using(threads=1):
        found = lm.jit(lambda x: lm.cumsum(x, axis=0))(x).numpy()
    exact = np.float32(0.1) * np.arange(1, count + 1, dtype=np.float64)
    assert np.abs(found / exact - 1).max() <= 2**-13
    assert abs(found[-1] / exact[-1] - 1) <= 1e-6
