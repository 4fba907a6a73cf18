"""Register tiles of short axes on GPUs: images with channels last, windows along short rows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import lamina as lm
from lamina import Tensor
from lamina.core.dtypes import DType
from lamina.frontend.lowered import Lowered
from lamina.graph import index as ix
from tests.cuda.on_host import run_on_host

Shape = tuple[int, ...]
Function = Callable[[Tensor], Tensor]


def lowered(function: Function, shape: Shape, dtype: DType = lm.float32) -> Lowered:
    spec = lm.TensorSpec(shape, dtype)
    return lm.jit(function).lower(spec, device="cuda:0", arch="sm_90a")


def channels_last(x: Tensor) -> Tensor:
    return lm.permute_dims(x, (0, 2, 1)) * 2.0


def windows(x: Tensor) -> Tensor:
    """The maxima of 3 neighbours."""
    last = x.shape[-1]
    first, second, third = (x[..., k : last - 2 + k] for k in range(3))
    return lm.maximum(lm.maximum(first, second), third)


def means(x: Tensor) -> Tensor:
    return lm.avg_pool1d(x, kernel_size=3, stride=1)


@pytest.mark.parametrize(
    ("shape", "dtype", "neighbours"),
    [
        ((64, 7, 16384), lm.float16, 2),
        ((64, 3, 50176), lm.float32, 2),
        ((64, 3, 50178), lm.float32, 2),
    ],
)
def test_a_thread_has_a_short_axis_and_an_access_of_neighbours(
    shape: Shape, dtype: DType, neighbours: int
) -> None:
    """Up to a sector, so that it stores words of a sector at once."""
    (kernel,) = lowered(channels_last, shape, dtype).kernels
    stores = [line for line in kernel.source.splitlines() if line.lstrip().startswith("p1[")]
    assert len(stores) == neighbours * shape[1]


@pytest.mark.parametrize("axis", [40, 2])
def test_axes_that_are_long_or_never_contiguous_have_no_such_tile(axis: int) -> None:
    """With the first two axes exchanged, the last stays contiguous for loads and stores."""
    (kernel,) = lowered(lambda x: lm.permute_dims(x, (1, 0, 2)) * 2.0, (axis, 512, 4096)).kernels
    assert kernel.schedule.count("unroll") == 1


@pytest.mark.parametrize(
    ("function", "shape"),
    [
        (channels_last, (9, 7, 6144)),
        (channels_last, (16, 3, 6154)),
        (channels_last, (4, 10000, 5)),
        (windows, (45000, 7)),
        (windows, (45001, 5)),
        (means, (45000, 7)),
        (means, (90002, 6)),
    ],
)
def test_results_are_those_of_numpy(function: Function, shape: Shape, tmp_path: Path) -> None:
    x = np.random.default_rng(5).standard_normal(shape, dtype=np.float32)
    neighbours = np.lib.stride_tricks.sliding_window_view(x, 3, axis=-1)
    expected = {
        channels_last: 2 * x.swapaxes(-1, -2),
        windows: neighbours.max(axis=-1),
        means: neighbours.mean(axis=-1),
    }
    planned = lowered(function, shape).planned
    (got,) = run_on_host(planned, [x], tmp_path)
    np.testing.assert_allclose(got, expected[function].reshape(-1), rtol=1e-5, atol=1e-6)


def chosen(x: Tensor) -> Tensor:
    """Of 5 results along the first axis each is a sum of those of 3 rows that are its own."""
    rows = lm.astype(lm.abs(x) * 5.0, lm.int32) % 5
    results = lm.reshape(lm.arange(5, dtype=lm.int32), (5, 1, 1))
    return lm.sum(lm.where(rows == results, x, 0.0), axis=1)


def test_results_that_read_the_same_elements_are_of_one_thread(tmp_path: Path) -> None:
    x = np.random.default_rng(7).standard_normal((3, 200_001), dtype=np.float32)
    low = lowered(chosen, x.shape)
    *_, kernel = low.kernels
    assert kernel.source.count("= p1[") == 3
    (got,) = run_on_host(low.planned, [x], tmp_path)
    rows = (np.abs(x) * np.float32(5)).astype(np.int32) % 5
    expected = [np.where(rows == number, x, 0).sum(axis=0) for number in range(5)]
    np.testing.assert_allclose(got, np.ravel(expected), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("terms", "constant", "elements"),
    [
        ({"block": 56, "i": 7, "c": 1}, 0, 8),
        ({"block": 8, "i": 1, "c": 16384}, 0, 8),
        ({"block": 8, "i": 1}, 2, 2),
        ({"block": 8, "i": -1}, 7, 8),
        ({"block": 7, "c": 1}, 0, 1),
        ({"block": 8, "i": 1, "c": 1}, 0, 8),  # a window
        ({"block": 8, "i": 3}, 0, 1),
    ],
)
def test_accesses_begin_at_multiples_of_their_elements(
    terms: dict[str, int], constant: int, elements: int
) -> None:
    sizes = {"block": 1000, "i": 8, "c": 7}
    axes = {name: ix.axis(number, size) for number, (name, size) in enumerate(sizes.items())}
    index = ix.affine({axes[name]: stride for name, stride in terms.items()}, constant)
    assert ix.neighbours_of_access(index, frozenset((axes["i"], axes["c"])), 8) == elements
