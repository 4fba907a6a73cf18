"""Pooling against its definitions and against PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lamina.core.shape import prod
from lamina.errors import ArgumentError, DTypeError, LaminaError, ShapeError
from lamina.frontend.differentiate import gradient
from lamina.frontend.functions import pooling
from lamina.frontend.jit import jit
from lamina.frontend.realize import opened_as_computed
from lamina.frontend.tensor import Tensor
from lamina.graph.algebra import ALGEBRA
from lamina.graph.movement import MOVEMENT
from lamina.graph.rewrite import rewrite
from lamina.ir.node import Node, toposort
from lamina.ir.ops import Op
from tests.functions.agreement import agree_with_differences, agree_with_torch, distinct


def computed(result: Tensor) -> list[Node]:
    """The nodes that a result is computed from."""
    opened = opened_as_computed([result.node], {})
    return toposort(rewrite(opened, (*ALGEBRA, *MOVEMENT)))


def largest_size(result: Tensor) -> int:
    """Elements of the largest array that a result is computed from."""
    return max(prod(node.shape) for node in computed(result))


def test_max_pool_is_its_definition() -> None:
    x = distinct(2, 3, 6, 8)
    expected = x.reshape(2, 3, 3, 2, 4, 2).max((3, 5))
    np.testing.assert_array_equal(pooling.max_pool2d(Tensor(x), 2).numpy(), expected)
    lines = np.lib.stride_tricks.sliding_window_view(x[0, 0], 3, axis=1).max(-1)[:, ::2]
    np.testing.assert_array_equal(pooling.max_pool1d(Tensor(x[0, 0]), 3, 2).numpy(), lines)


def test_max_pool_of_integers_ignores_padding() -> None:
    x = Tensor(np.full((1, 1, 4), -5, np.int32))
    assert pooling.max_pool1d(x, 3, 2, 1).tolist() == [[[-5, -5]]]


def test_average_counts() -> None:
    x = Tensor(np.ones((1, 1, 4)))
    assert pooling.avg_pool1d(x, 2, 2, 1).tolist() == [[[0.5, 1.0, 0.5]]]
    ones = pooling.avg_pool1d(x, 2, 2, 1, count_include_pad=False)
    assert ones.tolist() == [[[1.0, 1.0, 1.0]]]
    assert pooling.avg_pool2d(Tensor(np.ones((1, 4, 4))), 2, divisor_override=1).tolist() == [
        [[4.0, 4.0], [4.0, 4.0]]
    ]
    with pytest.raises(ArgumentError, match="avg_pool1d: divisor_override is 0"):
        pooling.avg_pool1d(x, 2, divisor_override=0)


def test_adaptive_windows_overlap() -> None:
    x = Tensor(np.arange(5.0).reshape(1, 1, 5))
    assert pooling.adaptive_avg_pool1d(x, 3).tolist() == [[[0.5, 2.0, 3.5]]]
    assert pooling.adaptive_max_pool1d(x, 3).tolist() == [[[1.0, 3.0, 4.0]]]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 12])
@pytest.mark.parametrize("count", [1, 2, 5, 6, 12, 24])
def test_adaptive_windows_of_all_lengths(size: int, count: int) -> None:
    values = np.random.default_rng(size).standard_normal((1, 2, size))
    windows = [
        values[..., i * size // count : -(-(i + 1) * size // count)] for i in range(count)
    ]
    means = np.stack([window.mean(axis=2) for window in windows], axis=2)
    maxima = np.stack([window.max(axis=2) for window in windows], axis=2)
    x = Tensor(values)
    np.testing.assert_allclose(pooling.adaptive_avg_pool1d(x, count).numpy(), means, rtol=1e-12)
    np.testing.assert_array_equal(pooling.adaptive_max_pool1d(x, count).numpy(), maxima)
    assert pooling._Stretches(size, count).longest == max(one.shape[2] for one in windows)


def test_adaptive_windows_read_little_beside_them() -> None:
    for count in (7, 300, 999):
        result = pooling.adaptive_avg_pool1d(Tensor(np.ones((1, 1, 1000))), count)
        assert largest_size(result) <= 1000 + 2 * count


@pytest.mark.parametrize(("sizes", "wanted"), [((215, 7), (256, 1)), ((7, 215), (1, 256))])
def test_the_axis_that_shrinks_most_is_averaged_first(
    sizes: tuple[int, int], wanted: tuple[int, int]
) -> None:
    result = pooling.adaptive_avg_pool2d(Tensor(np.ones((1, 1, *sizes))), wanted)
    assert largest_size(result) == prod(sizes)


@pytest.mark.parametrize("count", [7, 999, 1100, 7001])
def test_the_derivative_of_an_adaptive_mean_has_no_scatter(count: int) -> None:
    """Each element has the sum over the windows that it is in."""
    x, dy = Tensor(np.ones((1, 1, 1000))), Tensor(np.ones((1, 1, count)))
    pooled = pooling.adaptive_avg_pool1d(x, count)
    slope = gradient(pooled, [x], dy)[0]
    assert Op.SCATTER not in {node.op for node in computed(slope)}
    assert largest_size(slope) <= 2 * (1000 + count)


def test_derivatives() -> None:
    x = distinct(1, 2, 5, 4)
    agree_with_differences(lambda a: pooling.max_pool2d(a, 2, 1, 1), x)
    agree_with_differences(lambda a: pooling.avg_pool2d(a, 3, 2, 1, True, False), x)
    agree_with_differences(lambda a: pooling.adaptive_avg_pool2d(a, (3, 2)), x)
    agree_with_differences(lambda a: pooling.adaptive_max_pool2d(a, (2, 3)), x)


def test_errors() -> None:
    x = Tensor(np.ones((1, 1, 4)))
    with pytest.raises(ShapeError, match="half"):
        pooling.max_pool1d(x, 2, padding=2)
    with pytest.raises(ShapeError, match="does not fit"):
        pooling.max_pool1d(x, 5)
    with pytest.raises(DTypeError, match="float dtype"):
        pooling.avg_pool1d(Tensor(np.ones((1, 1, 4), np.int32)), 2)
    with pytest.raises(ShapeError, match="output_size"):
        pooling.adaptive_avg_pool1d(x, 0)
    with pytest.raises(ShapeError, match="differ in shape"):
        pooling.max_unpool1d(x, Tensor(np.zeros((1, 1, 3), np.int64)), 2)
    with pytest.raises(ShapeError, match="spatial sizes"):
        pooling.max_unpool1d(x, Tensor(np.zeros((1, 1, 4), np.int64)), 2, padding=9)
    with pytest.raises(DTypeError, match="integers"):
        pooling.max_unpool1d(x, x, 2)


@settings(max_examples=60)
@given(st.data())
def test_windows_against_torch(data: Any) -> None:
    torch = pytest.importorskip("torch")
    rank = data.draw(st.sampled_from([1, 2, 2, 3]))
    size = lambda low, high: tuple(data.draw(st.integers(low, high)) for _ in range(rank))  # noqa: E731
    batch = data.draw(st.sampled_from([(), (1,), (2,)]))
    kernel, sizes = size(1, 3), size(1, 7)
    options: dict[str, Any] = {
        "stride": data.draw(st.one_of(st.none(), st.just(size(1, 3)))),
        "padding": tuple(data.draw(st.integers(0, k // 2)) for k in kernel),
        "ceil_mode": data.draw(st.booleans()),
    }
    if data.draw(st.booleans()):
        name = f"max_pool{rank}d"
        options["dilation"] = data.draw(st.integers(1, 2))
    else:
        name = f"avg_pool{rank}d"
        options["count_include_pad"] = data.draw(st.booleans())
    mine, other = getattr(pooling, name), getattr(torch.nn.functional, name)
    x = distinct(*batch, 2, *sizes)
    try:
        other(torch.tensor(x), kernel, **options)
    except RuntimeError as error:
        if "smaller than kernel" in str(error):  # some of its pools do not count the padding
            return
        with pytest.raises(LaminaError):
            mine(Tensor(x), kernel, **options)
        return
    agree_with_torch(lambda a: mine(a, kernel, **options),
                     lambda a: other(a, kernel, **options), x)  # fmt: skip
    if name.startswith("max"):
        ours = mine(Tensor(x), kernel, **options, return_indices=True)
        values, indices = other(torch.tensor(x), kernel, **options, return_indices=True)
        np.testing.assert_array_equal(ours.values.numpy(), values.numpy())
        np.testing.assert_array_equal(ours.indices.numpy(), indices.numpy())


@pytest.mark.parametrize(
    ("sizes", "kernel", "stride", "padding", "dilation", "ceil_mode"),
    [
        ((9,), 3, 1, 1, 1, False), ((10,), 3, 2, 1, 2, True), ((6, 8), 2, 2, 0, 1, False),
        ((7, 9), 3, 2, 1, 1, False), ((7, 8), (2, 3), (3, 2), (1, 0), 1, True),
        ((8, 7), 3, 1, 1, (1, 2), False), ((5, 4, 6), 2, (2, 1, 2), 1, 1, True),
    ],
)  # fmt: skip
def test_the_first_of_equal_elements_has_the_derivative(
    sizes: tuple[int, ...], kernel: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool
) -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    x = rng.integers(0, 3, (2, 3, *sizes)).astype(np.float64)
    x[1, 2] = -np.inf
    options = {"stride": stride, "padding": padding, "dilation": dilation, "ceil_mode": ceil_mode}
    name = f"max_pool{len(sizes)}d"
    leaf = torch.tensor(x, requires_grad=True)
    pooled = getattr(torch.nn.functional, name)(leaf, kernel, **options)
    seed = rng.standard_normal(tuple(pooled.shape))
    (expected,) = torch.autograd.grad(pooled, leaf, torch.tensor(seed))
    ours = Tensor(x)
    y = getattr(pooling, name)(ours, kernel, **options)
    (slope,) = gradient(y, [ours], Tensor(seed))
    np.testing.assert_allclose(slope.numpy(), expected.numpy(), rtol=1e-12)


@pytest.mark.parametrize("size", [(3, 3), (3, 7), (9, 2)])
def test_an_infinite_derivative_of_a_maximum_stays_at_one_place(size: tuple[int, int]) -> None:
    """Windows of 7 elements overlap: what one of them reads, but has not as its maximum, gets what
    its neighbour sends, and no 0 * inf."""
    torch = pytest.importorskip("torch")
    x, seed = distinct(1, 2, 7, 7), np.ones((1, 2, *size))
    seed[0, 1, 1, 1] = np.inf
    leaf = torch.tensor(x, requires_grad=True)
    torch.nn.functional.adaptive_max_pool2d(leaf, size).backward(torch.tensor(seed))
    ours = Tensor(x, requires_grad=True)
    (slope,) = gradient(pooling.adaptive_max_pool2d(ours, size), [ours], Tensor(seed))
    assert leaf.grad is not None
    np.testing.assert_array_equal(slope.numpy(), leaf.grad.numpy())


@pytest.mark.parametrize("size", [None, (7, None), (21, 14)])
def test_windows_of_one_element_divide_by_nothing(size: Any) -> None:
    x = Tensor(np.ones((1, 1, 7, 7)))
    means = pooling.adaptive_avg_pool2d(x, size)
    assert all(node.op is not Op.DIV for node in toposort([means.node]))
    np.testing.assert_array_equal(means.numpy(), 1.0)


def test_the_first_of_equal_elements_has_the_derivative_of_adaptive_windows() -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(1)
    x = rng.integers(0, 3, (2, 3, 7, 8)).astype(np.float64)
    leaf = torch.tensor(x, requires_grad=True)
    pooled = torch.nn.functional.adaptive_max_pool2d(leaf, (3, 2))
    seed = rng.standard_normal(tuple(pooled.shape))
    (expected,) = torch.autograd.grad(pooled, leaf, torch.tensor(seed))
    ours = Tensor(x)
    (slope,) = gradient(pooling.adaptive_max_pool2d(ours, (3, 2)), [ours], Tensor(seed))
    np.testing.assert_allclose(slope.numpy(), expected.numpy(), rtol=1e-12)


@settings(max_examples=30)
@given(st.data())
def test_adaptive_against_torch(data: Any) -> None:
    torch = pytest.importorskip("torch")
    rank = data.draw(st.sampled_from([1, 2, 3]))
    sizes = tuple(data.draw(st.integers(1, 6)) for _ in range(rank))
    wanted = tuple(data.draw(st.integers(1, 15)) for _ in range(rank))
    name = f"adaptive_{data.draw(st.sampled_from(['avg', 'max']))}_pool{rank}d"
    mine, other = getattr(pooling, name), getattr(torch.nn.functional, name)
    x = distinct(2, 2, *sizes)
    agree_with_torch(lambda a: mine(a, wanted), lambda a: other(a, wanted), x)
    if "max" in name:
        ours = mine(Tensor(x), wanted, return_indices=True)
        values, indices = other(torch.tensor(x), wanted, return_indices=True)
        np.testing.assert_array_equal(ours.values.numpy(), values.numpy())
        np.testing.assert_array_equal(ours.indices.numpy(), indices.numpy())


def test_the_first_of_equal_elements_has_the_index() -> None:
    x = Tensor(np.full((1, 1, 4, 4), -np.inf, np.float32))
    assert pooling.max_pool2d(x, 2, 2, 1, return_indices=True).indices.tolist() == [
        [[[0, 1, 3], [4, 5, 7], [12, 13, 15]]]
    ]
    lowest = Tensor(np.full((1, 1, 4), -128, np.int8))
    assert pooling.max_pool1d(lowest, 2, return_indices=True).indices.tolist() == [[[0, 2]]]


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("batch", [(), (2,)])
def test_unpooling_against_torch(batch: tuple[int, ...], rank: int) -> None:
    torch = pytest.importorskip("torch")
    pool = getattr(torch.nn.functional, f"max_pool{rank}d")
    mine = getattr(pooling, f"max_unpool{rank}d")
    other = getattr(torch.nn.functional, f"max_unpool{rank}d")
    for size, stride, sized in ((6, 2, False), (7, 2, True), (6, 3, True)):
        x = distinct(*batch, 2, *[size] * rank)
        values, indices = pool(torch.tensor(x), 2, stride, return_indices=True)
        options: dict[str, Any] = {"output_size": x.shape[-rank:]} if sized else {}
        agree_with_torch(
            lambda a, i=indices, s=stride, o=options: mine(a, Tensor(i.numpy()), 2, s, **o),
            lambda a, i=indices, s=stride, o=options: other(a, i, 2, s, **o),
            values.numpy(),
        )


def test_traced() -> None:
    x = Tensor(distinct(2, 2, 5, 6))

    @jit
    def there_and_back(a: Tensor) -> Tensor:
        pooled = pooling.max_pool2d(a, 2, return_indices=True)
        return pooling.max_unpool2d(pooled.values, pooled.indices, 2, output_size=a.shape)

    for _ in range(2):
        result = there_and_back(x).numpy()
        maxima = x.numpy()[:, :, :4].reshape(2, 2, 2, 2, 3, 2).max((3, 5))
        assert np.count_nonzero(result) == np.count_nonzero(maxima)
        assert sorted(result[result != 0]) == sorted(maxima[maxima != 0])
