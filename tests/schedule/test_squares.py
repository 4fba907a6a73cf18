"""Vectors whose lanes lie apart in a result are transposed in registers, and stored as rows."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterator
from math import prod
from typing import Any

import numpy as np
import pytest

import lamina as lm
from lamina import Tensor, backends, pipeline
from lamina.core.dtypes import DType
from lamina.core.target import cpu_target
from lamina.frontend.lowered import Lowered
from lamina.frontend.session import SESSION
from lamina.loops.nest import Nest
from lamina.schedule.cpu.squares import _block

DTYPES = [lm.float32, lm.float64, lm.int32, lm.int64, lm.uint8, lm.int16, lm.float16, lm.bfloat16]


@pytest.fixture(params=[16, 32, 64], autouse=True)
def vector_bytes(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[int]:
    target = cpu_target(vector_bytes=request.param, cores=2)
    for module in (pipeline, backends):
        monkeypatch.setattr(module, "target_of", lambda options: target)
    SESSION.forget()
    yield request.param
    SESSION.forget()


def lowered_of(function: Callable[..., Any], shape: tuple[int, ...]) -> Lowered:
    return lm.jit(function).lower(lm.TensorSpec(shape), device="cpu")


def elements(lowered: Lowered, binding: str) -> int:
    """The points of all axes of the last kernel with that binding together."""
    plan = list(lowered.planned.plans.values())[-1]
    assert isinstance(plan.nest, Nest)
    return prod(axis.arg.size for axis, to in plan.nest.binding.items() if to == binding)


def nearest(images: Tensor) -> Tensor:
    _, height, width, _ = images.shape
    first = lm.permute_dims(images, (0, 3, 1, 2))
    return lm.interpolate(first, (2 * height, 2 * width), mode="nearest")


def blended(images: Tensor) -> Tensor:
    """Neighbours of each row, with their channels first."""
    first = lm.permute_dims(images, (0, 3, 1, 2))
    return first[..., 1:] * 3 + first[..., :-1] * 2


def test_channels_are_lanes_and_places_are_unrolled(vector_bytes: int) -> None:
    lowered = lowered_of(blended, (1, 7, 9, 272))
    lanes = vector_bytes // lm.float32.itemsize
    assert elements(lowered, "vector") == lanes
    assert lanes <= elements(lowered, "unroll") <= 2 * lanes
    assert "TURNED(" in lowered.kernels[-1].source


def test_places_of_several_rows_are_one_run() -> None:
    """7 x 2 places of a row, twice: 28 neighbours of which some are the same."""
    lowered = lowered_of(nearest, (1, 7, 7, 272))
    if elements(lowered, "vector") == 16:
        assert elements(lowered, "unroll") == 28


def test_images_with_channels_first_are_read_as_they_lie() -> None:
    lowered = lowered_of(lambda x: x[..., 1:] * 3 + x[..., :-1] * 2, (1, 272, 7, 50))
    assert "TURNED(" not in lowered.kernels[-1].source


def padded(x: Tensor) -> Tensor:
    """A transpose with padding at both ends of its rows."""
    return lm.pad(lm.permute_dims(x, (0, 2, 1)), [(0, 0), (0, 0), (1, 1)])


@pytest.mark.parametrize("shape", [(2, 28, 689), (1, 100, 100), (3, 33, 40)])
def test_transposes_with_padding_load_whole_vectors(shape: tuple[int, ...]) -> None:
    """Padding leaves out lanes along the rows of the result: vectors are loaded along the other
    axis, and not lane by lane under a mask."""
    lowered = lowered_of(padded, shape)
    assert all("apart" not in kernel.source for kernel in lowered.kernels)
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    expected = np.pad(x.transpose(0, 2, 1), [(0, 0), (0, 0), (1, 1)])
    np.testing.assert_array_equal(padded(Tensor(x)).numpy(), expected)


def test_a_large_body_has_fewer_points(vector_bytes: int) -> None:
    """30 exponentials of each of 16 places are too much text."""

    def function(x: Tensor) -> Tensor:
        first = lm.permute_dims(x, (1, 0))
        shifted = [lm.exp(first[:, step : step + 48]) for step in range(30)]
        return functools.reduce(operator.add, shifted)

    assert elements(lowered_of(function, (96, 64)), "unroll") < 16


@pytest.mark.parametrize(
    ("size", "inside", "vector", "block"),
    [(28, 1, 16, 28), (32, 1, 16, 16), (33, 1, 16, 17), (7, 2, 8, 7), (3, 2, 8, 0), (12, 4, 16, 4)],
)
def test_blocks_leave_no_rest_that_is_shorter_than_a_vector(
    size: int, inside: int, vector: int, block: int
) -> None:
    assert _block(size, inside, vector) == block


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(1, 7, 7, 20), (2, 3, 33, 16), (2, 5, 20, 5), (1, 2, 4, 4)])
def test_values(shape: tuple[int, ...], dtype: DType) -> None:
    values = np.random.default_rng(0).integers(0, 9, shape)
    images = lm.asarray(values).cast(dtype).realize()
    first = values.transpose(0, 3, 1, 2)
    ours = lm.jit(nearest)(images).cast(lm.int64).numpy()
    np.testing.assert_array_equal(ours, first.repeat(2, 2).repeat(2, 3))
    ours = lm.jit(blended)(images).cast(lm.int64).numpy()
    np.testing.assert_array_equal(ours, first[..., 1:] * 3 + first[..., :-1] * 2)
