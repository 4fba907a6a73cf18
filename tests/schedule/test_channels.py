"""Channels as lanes of vectors: what lies apart in memory is packed once for all places."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import prod
from typing import Any

import numpy as np
import pytest

import lamina as lm
from lamina import Tensor, backends, pipeline
from lamina.core.target import cpu_target
from lamina.frontend.session import SESSION
from lamina.graph import index as ix
from lamina.ir.ops import Op
from lamina.loops.moves import Plan, Stage
from lamina.loops.nest import Nest

PLACES = 1456  # of each row, which are zeros but for one


@pytest.fixture(params=[1, 8], autouse=True)
def _cores(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """So many cores, with vectors of 64 bytes."""
    target = cpu_target(vector_bytes=64, cores=request.param)
    for module in (pipeline, backends):
        monkeypatch.setattr(module, "target_of", lambda options: target)
    SESSION.forget()
    yield
    SESSION.forget()


def plans_of(function: Callable[..., Any], *shapes: tuple[int, ...]) -> list[Plan]:
    lowered = lm.jit(function).lower(*map(lm.TensorSpec, shapes), device="cpu")
    return [plan for plan in lowered.planned.plans.values() if isinstance(plan.nest, Nest)]


def elements(plan: Plan, binding: str) -> int:
    """The points of all axes with that binding together."""
    return prod(axis.arg.size for axis, to in plan.nest.binding.items() if to == binding)


def is_packed(plan: Plan) -> bool:
    return any(isinstance(move, Stage) for move in plan.moves)


def depthwise(images: Tensor, filters: Tensor) -> Tensor:
    """Of images with their channels last in memory."""
    first = lm.permute_dims(images, (0, 3, 1, 2))
    return lm.conv2d(first, filters, padding=1, groups=filters.shape[0])


def slope_of_filters(images: Tensor, filters: Tensor, dy: Tensor) -> Tensor:
    (slope,) = lm.gradient(depthwise(images, filters), [filters], dy)
    return slope


def grouped(images: Tensor, filters: Tensor) -> Tensor:
    groups = images.shape[-1] // filters.shape[1]
    first = lm.permute_dims(images, (0, 3, 1, 2))
    return lm.silu(lm.conv2d(first, filters, stride=2, groups=groups))


def one_place_of_each_row(update: Tensor, place: Tensor) -> Tensor:
    """(rows, places, channels) zeros, but for the update, (channels, rows), at one place."""
    channels, rows = update.shape
    box = rows, PLACES, channels
    is_there = lm.arange(PLACES, dtype=lm.int32).reshape((1, PLACES, 1)) == place
    last = lm.permute_dims(update, (1, 0)).reshape((rows, 1, channels))
    return lm.where(lm.broadcast_to(is_there, box), lm.broadcast_to(last, box), 0.0)


def slope_of_nearest(images: Tensor, dy: Tensor) -> Tensor:
    first = lm.permute_dims(images, (0, 3, 1, 2))
    smaller = lm.interpolate(first, dy.shape[2:], mode="nearest")
    (slope,) = lm.gradient(smaller, [images], dy)
    return slope


def test_filters_of_each_channel_are_packed() -> None:
    (plan,) = plans_of(depthwise, (1, 36, 34, 47), (47, 1, 3, 3))
    assert is_packed(plan)
    assert elements(plan, "vector") == 16


def test_filters_whose_channels_are_neighbours_are_read_as_they_lie() -> None:
    def function(images: Tensor, filters: Tensor) -> Tensor:
        return depthwise(images, lm.permute_dims(filters, (3, 0, 1, 2)))

    (plan,) = plans_of(function, (1, 36, 34, 47), (1, 3, 3, 47))
    assert not is_packed(plan)


def test_windows_of_channels_are_reduced_together() -> None:
    """Nine sums of 16 channels each read what lies apart once."""
    plan = plans_of(slope_of_filters, (1, 36, 34, 47), (47, 1, 3, 3), (1, 47, 36, 34))[-1]
    assert elements(plan, "vector") == 16
    assert elements(plan, "unroll") == 9


def test_few_channels_of_a_group_have_the_vectors() -> None:
    """13 channels are two vectors of 8 lanes; windows of 3 columns are 2 lanes and one."""
    plan = plans_of(grouped, (5, 12, 11, 232), (104, 29, 3, 3))[-1]
    assert is_packed(plan)
    assert elements(plan, "vector") == 16


@pytest.mark.parametrize("rows", [5, 7])
def test_channels_of_a_row_are_packed_once_for_its_places(rows: int) -> None:
    """Each row, or blocks of its places if there are more cores, packs 180 channels."""
    specs = lm.TensorSpec((180, rows)), lm.TensorSpec((1,), lm.int32)
    lowered = lm.jit(one_place_of_each_row).lower(*specs, device="cpu")
    (plan,) = lowered.planned.plans.values()
    assert is_packed(plan)
    assert elements(plan, "vector") == 16
    cores = backends.target_of(lowered.options).multiprocessors
    assert elements(plan, "parallel") >= cores


def test_updates_that_few_places_read_are_not_packed() -> None:
    """Two places of each row read 180 channels lane by lane in fewer instructions."""

    def function(update: Tensor) -> Tensor:
        channels, rows = update.shape
        last = lm.permute_dims(update, (1, 0)).reshape((rows, 1, channels))
        return lm.broadcast_to(last, (rows, 1, channels)) + 1.0

    (plan,) = plans_of(function, (180, 7))
    assert not is_packed(plan)


def test_slopes_of_few_places_have_full_vectors() -> None:
    """Indices are of 32 bits, as many as float32 has: 16 lanes, not 8 of int64."""
    plan = plans_of(slope_of_nearest, (1, 7, 1456, 180), (1, 180, 2, 1))[-1]
    assert elements(plan, "vector") == 16


@pytest.mark.parametrize("rows", [1, 7])
@pytest.mark.parametrize("channels", [3, 16, 47])
def test_values_of_one_place_of_each_row(rows: int, channels: int) -> None:
    random = np.random.default_rng(channels)
    update = random.standard_normal((channels, rows), dtype=np.float32)
    right = np.zeros((rows, PLACES, channels), np.float32)
    right[:, 291] = update.T
    place = Tensor(np.array([291], np.int32))
    ours = lm.jit(one_place_of_each_row)(Tensor(update), place).numpy()
    np.testing.assert_array_equal(ours, right)


@pytest.mark.parametrize("channels", [5, 16, 47])
def test_values_of_each_channel(channels: int) -> None:
    torch = pytest.importorskip("torch")
    random = np.random.default_rng(channels)
    shapes = (2, 14, 11, channels), (channels, 1, 3, 3), (2, channels, 14, 11)
    x, w, dy = (random.standard_normal(shape, dtype=np.float32) for shape in shapes)
    images, filters, slope = (torch.from_numpy(array).double() for array in (x, w, dy))
    filters.requires_grad_()
    first = images.permute(0, 3, 1, 2)
    right = torch.nn.functional.conv2d(first, filters, padding=1, groups=channels)
    right.backward(slope)
    ours = lm.jit(depthwise)(Tensor(x), Tensor(w)).numpy()
    slopes = lm.jit(slope_of_filters)(Tensor(x), Tensor(w), Tensor(dy)).numpy()
    assert filters.grad is not None
    np.testing.assert_allclose(ours, right.detach().numpy(), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(slopes, filters.grad.numpy(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("groups", "inputs", "outputs"), [(8, 29, 13), (2, 7, 9), (1, 20, 15)])
def test_values_of_groups(groups: int, inputs: int, outputs: int) -> None:
    torch = pytest.importorskip("torch")
    random = np.random.default_rng(outputs)
    x = random.standard_normal((3, 12, 11, groups * inputs), dtype=np.float32)
    w = random.standard_normal((groups * outputs, inputs, 3, 3), dtype=np.float32)
    first = torch.from_numpy(x).double().permute(0, 3, 1, 2)
    filters = torch.from_numpy(w).double()
    right = torch.nn.functional.silu(
        torch.nn.functional.conv2d(first, filters, stride=2, groups=groups)
    )
    ours = lm.jit(grouped)(Tensor(x), Tensor(w)).numpy()
    np.testing.assert_allclose(ours, right.numpy(), rtol=1e-4, atol=1e-4)


def slope_of_grid(images: Tensor, dy: Tensor) -> Tensor:
    """Of maxima over windows of uneven lengths, of images with their channels last."""
    first = lm.permute_dims(images, (0, 3, 1, 2))
    (slope,) = lm.gradient(lm.adaptive_max_pool2d(first, dy.shape[2:]), [images], dy)
    return slope


def test_updates_that_lie_apart_are_added_to_channels_that_are_neighbours() -> None:
    """Each of 16 lanes reads its update from another line; the sums of one place are one vector."""
    plan = plans_of(slope_of_grid, (2, 32, 32, 64), (2, 64, 7, 7))[-1]
    assert plan.nest.kernel.stores[0].monoid is not None
    assert elements(plan, "vector") == 16


def test_updates_that_indices_leave_out_are_read_without_a_condition() -> None:
    """The last windows are shorter than the longest one: what is read for all of their elements is
    read once, and stored under a condition."""
    kernel = plans_of(slope_of_grid, (2, 32, 32, 64), (2, 64, 7, 7))[-1].nest.kernel
    assert kernel.stores[0].condition is not ix.TRUE
    assert all(len(load.src) == 1 for load in kernel.of(Op.LOAD))


def test_updates_that_data_leave_out_are_not_read() -> None:
    def function(index: Tensor, updates: Tensor) -> Tensor:
        return lm.scatter_add(lm.zeros((50, 64)), 0, index, updates)

    specs = lm.TensorSpec((9, 64), lm.int64), lm.TensorSpec((9, 64))
    lowered = lm.jit(function).lower(*specs, device="cpu")
    kernel = list(lowered.planned.plans.values())[-1].nest.kernel
    assert any(len(load.src) == 2 for load in kernel.of(Op.LOAD))


@pytest.mark.parametrize("channels", [3, 16, 40])
def test_values_of_slopes_of_grids(channels: int) -> None:
    torch = pytest.importorskip("torch")
    random = np.random.default_rng(channels)
    x = random.standard_normal((2, 17, 13, channels), dtype=np.float32)
    dy = random.standard_normal((2, channels, 7, 5), dtype=np.float32)
    images = torch.from_numpy(x).requires_grad_()
    maxima = torch.nn.functional.adaptive_max_pool2d(images.permute(0, 3, 1, 2), (7, 5))
    maxima.backward(torch.from_numpy(dy))
    ours = lm.jit(slope_of_grid)(Tensor(x), Tensor(dy)).numpy()
    assert images.grad is not None
    np.testing.assert_allclose(ours, images.grad.numpy(), rtol=1e-5, atol=1e-5)
