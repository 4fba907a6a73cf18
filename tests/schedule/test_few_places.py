"""Tiles of products whose results have few neighbours in memory, such as places of small images."""

from __future__ import annotations

import pytest

import lamina as lm
from lamina import Tensor
from lamina.core.recent import forget
from lamina.frontend.lowered import Lowered
from lamina.schedule.gpu import products


def convolved(side: int, dtype: lm.DType) -> Lowered:
    """A convolution of images of so many places each way, channels second."""

    def function(image: Tensor, weight: Tensor) -> Tensor:
        return lm.conv2d(image, weight, padding=1)

    image = lm.TensorSpec((128, 512, side, side), dtype)
    weight = lm.TensorSpec((512, 512, 3, 3), dtype)
    return lm.jit(function).lower(image, weight, device="cuda:0", arch="sm_90a")


@pytest.mark.parametrize("dtype", [lm.bfloat16, lm.float32], ids=str)
def test_tiles_have_places_of_several_images(
    dtype: lm.DType, monkeypatch: pytest.MonkeyPatch
) -> None:
    together = convolved(4, dtype).program_cost().seconds
    monkeypatch.setattr(products, "MIN_ROWS_OF_RESULTS", 0)
    forget()  # the schedules so far
    apart = convolved(4, dtype).program_cost().seconds
    assert together < 0.75 * apart


def test_larger_images_keep_their_neighbours_together(monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = [kernel.source for kernel in convolved(7, lm.bfloat16).kernels]
    monkeypatch.setattr(products, "MIN_ROWS_OF_RESULTS", 0)
    forget()
    assert [kernel.source for kernel in convolved(7, lm.bfloat16).kernels] == kernels
