"""Tiles whose lines threads gather, as no axis of theirs is long: convolutions of few channels.

Register tiles of windows, which are predicted to take less time, are left out here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import lamina as lm
from lamina import Tensor
from lamina.core import options
from lamina.frontend.session import SESSION
from lamina.runtime import cuda
from lamina.schedule.gpu import loops

IMAGES, FILTERS = (16, 3, 96, 90), (64, 3, 7, 7)


def convolved(x: Tensor, w: Tensor, dy: Tensor) -> tuple[Tensor, ...]:
    """A convolution with its derivatives."""
    y = lm.conv2d(x, w, stride=2, padding=3)
    return y, *lm.gradient(y, [x, w], dy)


def arrays() -> list[Any]:
    """Images, filters, and what the derivative of the results is, as integers, whose products and
    sums all dtypes of the test hold."""
    rng = np.random.default_rng(0)
    results = (IMAGES[0], FILTERS[0], 48, 45)
    return [rng.integers(-2, 3, shape).astype(np.float32) for shape in (IMAGES, FILTERS, results)]


@pytest.fixture
def without_windows(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing is kept of what was scheduled with windows before, or without them here."""
    monkeypatch.setattr(loops, "tiles_of_windows", lambda plan: iter(()))
    SESSION.forget()
    yield
    SESSION.forget()


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.usefixtures("without_windows")
def test_few_channels_are_products_in_tiles(dtype: str) -> None:
    """Of 3 x 7 x 7 steps forward, and of as many columns for the filters."""
    specs = [lm.TensorSpec(array.shape, dtype) for array in arrays()]
    lowered = lm.jit(convolved).lower(*specs, device="cuda:0", arch="sm_90a")
    tiled = [kernel.name for kernel in lowered.kernels if "tensorize" in kernel.schedule]
    for results in ("64x48x45", "64x3x7x7"):
        assert any(name.endswith(results) for name in tiled)


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.usefixtures("without_windows")
def test_few_channels_come_to_what_a_cpu_computes(device: cuda.Device, dtype: str) -> None:
    given = arrays()
    want = [one.numpy() for one in convolved(*[lm.asarray(one, device="cpu") for one in given])]
    with options.using(device="cuda:0"):
        on_gpu = [lm.asarray(one).cast(getattr(lm, dtype)) for one in given]
        got = [one.cast(lm.float32).numpy() for one in lm.jit(convolved)(*on_gpu)]
    for ours, exact in zip(got, want, strict=True):
        np.testing.assert_allclose(ours, exact, rtol=2**-7 if dtype == "bfloat16" else 1e-6)


@pytest.mark.parametrize("side", [8, 16])
def test_filters_of_small_images_come_to_what_a_cpu_computes(
    device: cuda.Device, side: int
) -> None:
    """The steps of their derivative are images, rows and columns: rows of 8 columns of 16 bits are
    chunks of the copy engine, but no lines of 64 steps."""
    rng = np.random.default_rng(1)
    shape = (2, 8, side, side)
    given = [rng.integers(-2, 3, one).astype(np.float32) for one in (shape, (8, 8, 3, 3), shape)]

    def derivative(x: Tensor, w: Tensor, dy: Tensor) -> Tensor:
        return lm.gradient(lm.conv2d(x, w, padding=1), [w], dy)[0]

    want = derivative(*[lm.asarray(one, device="cpu") for one in given]).numpy()
    with options.using(device="cuda:0"):
        on_gpu = [lm.asarray(one).cast(lm.float16) for one in given]
        got = lm.jit(derivative)(*on_gpu).cast(lm.float32).numpy()
    np.testing.assert_array_equal(got, want)
