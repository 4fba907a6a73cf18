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


@given(
    st.sampled_from(DTYPES), st.integers(1, 60), st.integers(1, 5), st.integers(-60, 60), SIDES
)
def test_lanes_apart_of_which_conditions_leave_a_run(
    dtype: dtypes.DType, rows: int, columns: int, shift: int, sides: tuple[int, int]
) -> None:
    """Lanes along rows lie as many elements apart as there are columns."""
    array = RNG.integers(0, 2 if dtype is dtypes.bool_ else 100, (rows, columns))
    x = lm.asarray(array).cast(dtype).realize()
    rolled = lm.roll(lm.pad(x.T, ((0, 0), sides)), shift, axis=1)
    flipped = lm.pad(lm.flip(x.T, axis=1), ((0, 0), sides))
    found = [rolled.cast(lm.int64), flipped.cast(lm.int64)]
    lm.realize(*found)
    beside = ((0, 0), sides)
    expected = np.roll(np.pad(array.T, beside), shift, axis=1)
    np.testing.assert_array_equal(found[0].numpy(), expected)
    np.testing.assert_array_equal(found[1].numpy(), np.pad(array.T[:, ::-1], beside))


@pytest.mark.parametrize("step", [2, 3, 5, 7])
@pytest.mark.parametrize("size", [1, 20, 245, 733])
def test_windows_that_move_by_several_elements_are_padded(step: int, size: int) -> None:
    torch = pytest.importorskip("torch")
    x = RNG.standard_normal((2, 3, size), dtype=np.float32)
    window = 2 * step + 1
    found = lm.avg_pool1d(lm.asarray(x), window, stride=step, padding=step).numpy()
    expected = torch.nn.functional.avg_pool1d(torch.from_numpy(x), window, step, step)
    np.testing.assert_allclose(found, expected.numpy(), atol=1e-6)


def test_indices_are_compared_and_cast_as_int32_where_that_holds_them() -> None:
    """The lanes of float32 would fill two vectors of int64."""
    x = lm.asarray(RNG.standard_normal((40, 64), dtype=np.float32)).realize()
    function = lm.jit(lambda x: lm.tril(x * lm.arange(64).cast(lm.float32)))
    expected = np.tril(x.numpy() * np.arange(64, dtype=np.float32))
    np.testing.assert_array_equal(function(x).numpy(), expected)
    (kernel,) = function.lower(x, device="cpu").kernels
    assert "i32x" in kernel.source
    assert "i64x" not in kernel.source


def test_what_is_not_zero_is_padded_once() -> None:
    x = lm.asarray(RNG.standard_normal((2, 3, 20, 20), dtype=np.float32)).realize()
    with profile() as records:
        lm.max_pool2d(x, 3, stride=1, padding=1).realize()
    assert len(records) == 2
