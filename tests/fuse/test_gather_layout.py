"""Inputs that gathers read far apart are copied in the order of the results on GPUs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import lamina as lm
from lamina.core.dtypes import float16, float32, int64
from lamina.fuse.gather_layout import gathered_in_order
from lamina.ir import build
from lamina.ir.interpreter import evaluate
from lamina.ir.node import Node, toposort
from lamina.ir.ops import Op
from tests.generators import leaf

IMAGES = (16, 56, 56, 64)  # with their channels last
FIRST = (0, 3, 1, 2)  # the order with the channels first


def resized(x: lm.Tensor, mode: str) -> lm.Tensor:
    return lm.interpolate(lm.permute_dims(x, FIRST), (112, 112), mode=mode)


def bilinear(x: lm.Tensor) -> lm.Tensor:
    return resized(x, "bilinear")


def bicubic(x: lm.Tensor) -> lm.Tensor:
    return resized(x, "bicubic")


def nearest(x: lm.Tensor) -> lm.Tensor:
    return lm.interpolate(lm.permute_dims(x, FIRST), (113, 113), mode="nearest")


def channels_last(x: lm.Tensor) -> lm.Tensor:
    return lm.permute_dims(bilinear(x), (0, 2, 3, 1))


def of_rows(x: lm.Tensor) -> lm.Tensor:
    return lm.interpolate(lm.permute_dims(x, (0, 2, 1, 3)), (112, 112), mode="bilinear")


@pytest.mark.parametrize(
    ("function", "shape", "is_copied"),
    [
        (bilinear, IMAGES, True),
        (bicubic, IMAGES, True),
        (nearest, IMAGES, False),  # one gather
        (bilinear, (1, 56, 56, 64), False),  # too small
        (bilinear, (341, 56, 56, 3), False),  # pixels in a line
        (channels_last, IMAGES, False),  # whose results have the order of the input
        (of_rows, IMAGES, False),  # along the last axis of both
    ],
)
def test_what_is_read_often_and_far_apart_is_copied(
    function: Callable[[lm.Tensor], lm.Tensor], shape: tuple[int, ...], is_copied: bool
) -> None:
    spec = lm.TensorSpec(shape, float16)
    kernels = lm.jit(function).lower(spec, device="cuda:0", arch="sm_90a").kernels
    images, height, width, channels = shape
    copy = f"{images}x{channels}x{height}x{width}"
    assert any(kernel.name.endswith(copy) for kernel in kernels) is is_copied


@pytest.mark.parametrize("is_cast", [False, True])
def test_gathers_of_a_copy_give_the_same(is_cast: bool) -> None:
    x = leaf(0, (80, 50, 32), float16)
    permuted = build.permute(x, (2, 0, 1))
    read = build.cast(permuted, float32) if is_cast else permuted
    indices = [leaf(number, (32, 3000, 50), int64) for number in (1, 2)]
    first, second = (Node(Op.GATHER, (read, index), 1) for index in indices)
    before = first * second
    (after,) = gathered_in_order([before])
    assert Op.CONTIGUOUS in {node.op for node in toposort([after])}
    random = np.random.default_rng(0)
    values = {x: random.integers(-9, 10, x.shape).astype(np.float16)}
    values |= {index: random.integers(-3, 90, index.shape) for index in indices}
    np.testing.assert_array_equal(*evaluate([before, after], values))


def is_copied_in(*sinks: Node) -> bool:
    return Op.CONTIGUOUS in {node.op for node in toposort(gathered_in_order(sinks))}


@pytest.mark.parametrize("is_index", [False, True])
def test_an_index_is_no_array_that_gathers_read(is_index: bool) -> None:
    """It is read once for each result, in the order of these."""
    permuted = build.permute(leaf(0, (800, 500, 32), int64), (2, 0, 1))
    others = [leaf(number, permuted.shape, int64) for number in range(1, 9)]
    pairs = [(other, permuted) if is_index else (permuted, other) for other in others]
    gathers = [Node(Op.GATHER, pair, 1) for pair in pairs]
    assert is_copied_in(*gathers) is not is_index


def gathers_of(read: Node) -> list[Node]:
    indices = [leaf(number, (32, 3000, 50), int64) for number in (1, 2)]
    return [Node(Op.GATHER, (read, index), 1) for index in indices]


@pytest.mark.parametrize("is_stored", [False, True])
def test_what_is_a_result_as_well_is_not_copied(is_stored: bool) -> None:
    """A cast that is stored reads the input in its own order."""
    cast = build.cast(build.permute(leaf(0, (80, 50, 32), float16), (2, 0, 1)), float32)
    results = [*gathers_of(cast), *([cast] if is_stored else [])]
    assert is_copied_in(*results) is not is_stored


@pytest.mark.parametrize("is_stored", [False, True])
def test_a_cast_that_is_stored_beside_gathers_is_a_reader(is_stored: bool) -> None:
    permuted = build.permute(leaf(0, (80, 50, 32), float16), (2, 0, 1))
    results = [*gathers_of(permuted), *([build.cast(permuted, float32)] if is_stored else [])]
    assert is_copied_in(*results) is not is_stored
