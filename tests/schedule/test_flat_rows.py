"""Rows of short lines on GPUs, as one loop that neighbouring threads share."""

from __future__ import annotations

from typing import Any

import pytest

import lamina as lm
from lamina import Tensor


def gradients_of_group_norm(x: Tensor, weight: Tensor, bias: Tensor, dy: Tensor) -> Any:
    def loss(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return lm.sum(lm.group_norm(x, 4, weight, bias) * dy)

    return lm.grad(loss, argnums=(0, 1, 2))(x, weight, bias)


@pytest.mark.parametrize(("places", "is_flat"), [((3, 5), True), ((16, 16), False)])
def test_lines_that_are_shorter_than_a_block_are_flat(
    places: tuple[int, int], is_flat: bool
) -> None:
    image = lm.TensorSpec((64, 1024, *places))
    channels = lm.TensorSpec((1024,))
    lowered = lm.jit(gradients_of_group_norm).lower(
        image, channels, channels, image, device="cuda:0", arch="sm_90a"
    )
    first = lowered.kernels[0]
    assert ("flatten(" in first.schedule) == is_flat


def test_windows_are_not_flat() -> None:
    """Their indices walk each axis by itself."""
    lowered = lm.jit(lambda x: lm.avg_pool2d(x, kernel_size=3, stride=2)).lower(
        lm.TensorSpec((8, 64, 65, 65)), device="cuda:0", arch="sm_90a"
    )
    assert "flatten(" not in str(lowered.stages["schedule"])
