"""Vectors of which conditions leave a run of lanes, as padding does, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lamina as lm
from lamina.core import dtypes
from lamina.core.options import current
from lamina.explain.report import profile
from lamina.runtime.devices import target_of

pytestmark = pytest.mark.usefixtures("on_cpu")
RNG = np.random.default_rng(11)
DTYPES = [one for one in dtypes.ALL if not one.is_complex and one not in dtypes.STORAGE_ONLY]
SIDES = st.tuples(st.integers(0, 40), st.integers(0, 40))


@given(st.sampled_from(DTYPES), st.integers(1, 100), SIDES, SIDES)
def test_padding_and_what_lies_beside(
    dtype: dtypes.DType, size: int, rows: tuple[int, int], columns: tuple[int, int]
) -> None:
    array = RNG.integers(0, 2 if dtype is dtypes.bool_ else 100, (3, size))
    x = lm.asarray(array).cast(dtype).realize()
    padded = lm.pad(x, (rows, columns))
    middle = padded[rows[0] : rows[0] + 3]
    beside = lm.concat([middle, x, middle], axis=1)
    found = [padded.cast(lm.int64), beside.cast(lm.int64)]
    lm.realize(*found)  # both by one program
    expected = np.pad(array, (rows, columns))
    expected_middle = expected[rows[0] : rows[0] + 3]
    expected_beside = np.concatenate([expected_middle, array, expected_middle], axis=1)
    np.testing.assert_array_equal(found[0].numpy(), expected)
    np.testing.assert_array_equal(found[1].numpy(), expected_beside)


@pytest.mark.parametrize("shape", [(2, 5, 56, 56), (1, 3, 7, 9), (1, 2, 16, 33)])
@pytest.mark.parametrize("window", [(3, 1), (3, 3)])
def test_windows_of_few_are_padded_where_they_are_read(
    shape: tuple[int, ...], window: tuple[int, int]
) -> None:
    """9 copies of each element are many where no instruction loads the lanes of a mask."""
    torch = pytest.importorskip("torch")
    x = RNG.standard_normal(shape, dtype=np.float32)
    filters = RNG.standard_normal((shape[1], 1, *window), dtype=np.float32)
    inputs = lm.asarray(x).realize(), lm.asarray(filters).realize()
    padding = [size // 2 for size in window]
    with profile() as records:
        result = lm.conv2d(*inputs, padding=padding, groups=shape[1]).realize()
    has_masks = target_of(current()).vector_bytes == 64
    assert len(records) == (1 if has_masks or window == (3, 1) else 2)
    expected = torch.conv2d(
        torch.from_numpy(x), torch.from_numpy(filters), padding=padding, groups=shape[1]
    )
    np.testing.assert_allclose(result.numpy(), expected.numpy(), atol=1e-5)


def test_what_is_not_zero_is_padded_once() -> None:
    x = lm.asarray(RNG.standard_normal((2, 3, 20, 20), dtype=np.float32)).realize()
    with profile() as records:
        lm.max_pool2d(x, 3, stride=1, padding=1).realize()
    assert len(records) == 2
