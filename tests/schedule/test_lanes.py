"""Which axes of drawn kernels have the lanes of vectors, and how many vectors lie side by side."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np
import pytest

import lamina as lm
from lamina import Tensor, backends, pipeline
from lamina.core.target import Target, cpu_target
from lamina.ir.ops import Op
from lamina.loops.nest import Nest


@pytest.fixture(params=[1, 2])
def cores(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """So many cores, with vectors of 64 bytes and a second-level cache of 1 MiB."""
    count: int = request.param

    def target_of(options: object) -> Target:
        return cpu_target(vector_bytes=64, cores=count, l2_bytes=1 << 20)

    for module in (pipeline, backends):
        monkeypatch.setattr(module, "target_of", target_of)
    return count


def nests_of(function: Callable[..., object], *shapes: tuple[int, ...]) -> list[Nest]:
    """The nests of a jitted function of arrays of these shapes."""
    lowered = lm.jit(function).lower(*map(lm.TensorSpec, shapes), device="cpu")
    nests = [plan.nest for plan in lowered.planned.plans.values()]
    return [nest for nest in nests if isinstance(nest, Nest)]


def elements(nest: Nest, binding: str) -> int:
    """The points of all axes with that binding together."""
    return prod(axis.arg.size for axis, to in nest.binding.items() if to == binding)


@pytest.mark.parametrize(
    ("columns", "vectors"),
    [
        (16, {1: 1, 2: 1}),
        (64, {1: 4, 2: 4}),  # 700 * 64 steps are for one thread
        (96, {1: 6, 2: 3}),
        (208, {1: 7, 2: 7}),  # of 13
        (288, {1: 6, 2: 5}),  # of 18
        (1008, {1: 8, 2: 8}),
    ],
)
def test_sums_down_columns_have_vectors_side_by_side(
    columns: int, vectors: dict[int, int], cores: int
) -> None:
    (nest,) = nests_of(lambda x: x.max(axis=0), (700, columns))
    assert elements(nest, "vector") == 16
    assert elements(nest, "unroll") == vectors[cores]


def slope_of_scan(x: Tensor, dy: Tensor) -> Tensor:
    """The derivative of running sums along rows, by what they are summed of."""
    (slope,) = lm.gradient(lm.tanh(lm.cumsum(x, axis=1)), [x], dy)
    return slope


@pytest.mark.parametrize(("columns", "lanes"), [(1061, 8), (2113, 8), (1024, 1), (4096, 1)])
def test_rows_are_lanes_unless_their_lines_compete(columns: int, lanes: int, cores: int) -> None:
    """Rows of 1024 elements are 4 KiB apart; those of 1061 lie in different places of a cache."""
    _, scan, _ = nests_of(slope_of_scan, (11, columns), (11, columns))
    assert elements(scan, "vector") == lanes


def slope_of_weights(images: Tensor, weights: Tensor, dy: Tensor) -> Tensor:
    """The derivative of a convolution by its weights."""
    (slope,) = lm.gradient(lm.conv2d(images, weights, None, 1, 1), [weights], dy)
    return slope


def test_short_windows_leave_the_vectors_to_channels(cores: int) -> None:
    shapes = (6, 3, 32, 32), (32, 3, 3, 3), (6, 32, 32, 32)
    vectors = [elements(nest, "vector") for nest in nests_of(slope_of_weights, *shapes)]
    assert min(vectors) == 16


@pytest.mark.parametrize("columns", [16, 40, 64, 72, 100, 208, 300])
@pytest.mark.parametrize("count", [1, 700])
def test_values_down_columns(columns: int, count: int, cores: int) -> None:
    x = np.random.default_rng(columns).standard_normal((count, columns), dtype=np.float32)
    largest, total = lm.jit(lambda x: (x.max(axis=0), x.sum(axis=0)))(Tensor(x))
    np.testing.assert_array_equal(largest.numpy(), x.max(axis=0))
    np.testing.assert_allclose(total.numpy(), x.astype(np.float64).sum(axis=0), atol=1e-4)


@pytest.mark.parametrize(("batch", "channels"), [(2, 32), (1, 24), (3, 5)])
def test_values_of_slopes_by_weights(batch: int, channels: int, cores: int) -> None:
    torch = pytest.importorskip("torch")
    random = np.random.default_rng(channels)
    shapes = (batch, 3, 17, 19), (channels, 3, 3, 3), (batch, channels, 17, 19)
    arrays = [random.standard_normal(shape, dtype=np.float32) for shape in shapes]
    ours = lm.jit(slope_of_weights)(*map(Tensor, arrays)).numpy()
    images, weights, dy = (torch.from_numpy(array).double() for array in arrays)
    weights.requires_grad_()
    torch.nn.functional.conv2d(images, weights, padding=1).backward(dy)
    assert weights.grad is not None
    np.testing.assert_allclose(ours, weights.grad.numpy(), rtol=1e-4, atol=1e-4)


def upsampled(images: Tensor, weights: Tensor) -> Tensor:
    """A transposed convolution of 2 x 2, whose results along rows lie in turns."""
    return lm.elu(lm.conv_transpose2d(images, weights, stride=2))


def test_results_in_turns_have_the_longer_vectors(cores: int) -> None:
    """Beside what is computed for each result, the few elements of an image do not count."""
    (nest,) = nests_of(upsampled, (1, 6, 2, 32), (6, 144, 2, 2))
    assert elements(nest, "vector") == 16


@pytest.mark.parametrize(("columns", "channels"), [(32, 144), (13, 9), (47, 5)])
def test_values_of_results_in_turns(columns: int, channels: int, cores: int) -> None:
    torch = pytest.importorskip("torch")
    random = np.random.default_rng(channels)
    x = random.standard_normal((1, 6, 2, columns), dtype=np.float32)
    w = random.standard_normal((6, channels, 2, 2), dtype=np.float32)
    images, weights = (torch.from_numpy(array).double() for array in (x, w))
    right = torch.nn.functional.elu(
        torch.nn.functional.conv_transpose2d(images, weights, stride=2)
    )
    ours = lm.jit(upsampled)(Tensor(x), Tensor(w)).numpy()
    np.testing.assert_allclose(ours, right.numpy(), rtol=1e-4, atol=1e-4)


def of_each_channel(images: Tensor, weights: Tensor) -> Tensor:
    """A transposed convolution of 3 x 3 with a filter for each channel, whose results lie in turns
    and add up several elements."""
    return lm.conv_transpose2d(images, weights, None, 2, 1, 1, images.shape[1])


def of_one_channel(images: Tensor, weights: Tensor) -> Tensor:
    """One channel convolved to several, which are rows for a register tile."""
    return lm.conv_transpose2d(images, weights, None, 2, 1, 1)


@pytest.mark.parametrize(
    ("function", "channels", "filters"),
    [(of_each_channel, 9, (9, 1, 3, 3)), (of_one_channel, 1, (1, 20, 3, 3))],
)
def test_sums_of_phases_have_whole_vectors(
    function: Callable[[Tensor, Tensor], Tensor],
    channels: int,
    filters: tuple[int, ...],
    cores: int,
) -> None:
    """And not one lane for each of the two phases."""
    shape = (2, channels, 14, 33)
    sums = [nest for nest in nests_of(function, shape, filters) if nest.kernel.of(Op.LOOP_REDUCE)]
    assert sums
    assert [elements(nest, "vector") for nest in sums] == [16] * len(sums)
    torch = pytest.importorskip("torch")
    random = np.random.default_rng(0)
    x = random.standard_normal(shape, dtype=np.float32)
    w = random.standard_normal(filters, dtype=np.float32)
    images, weights = (torch.from_numpy(array).double() for array in (x, w))
    groups = channels if function is of_each_channel else 1
    right = torch.nn.functional.conv_transpose2d(images, weights, None, 2, 1, 1, groups)
    ours = lm.jit(function)(Tensor(x), Tensor(w)).numpy()
    np.testing.assert_allclose(ours, right.numpy(), rtol=1e-4, atol=1e-4)
