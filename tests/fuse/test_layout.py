"""What sums of products read lies in memory as tiles can read it, and is the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lamina as lm
from lamina import Tensor
from lamina.core.shape import Shape
from lamina.frontend.realize import opened_as_computed
from lamina.fuse.layout import lay_out
from lamina.ir import build
from lamina.ir.interpreter import evaluate
from lamina.ir.monoids import ADD
from lamina.ir.node import Node, toposort
from lamina.ir.ops import Group, Op
from tests.generators import leaf

IMAGES, FILTERS, MORE = (2, 16, 6, 7), (24, 16, 3, 3), (32, 24, 3, 3)
LAST = (2, 5, 6, 16)


def two(x: Tensor, w: Tensor, v: Tensor) -> Tensor:
    return lm.conv2d(lm.relu(lm.conv2d(x, w, padding=1)), v, padding=1)


def channels_last(x: Tensor, w: Tensor) -> Tensor:
    return lm.conv2d(*(lm.permute_dims(one, (0, 3, 1, 2)) for one in (x, w)), padding=1)


def two_last(x: Tensor, w: Tensor, v: Tensor) -> Tensor:
    return channels_last(lm.permute_dims(lm.relu(channels_last(x, w)), (0, 2, 3, 1)), v)


def heads(x: Tensor, y: Tensor) -> Tensor:
    x, y = (lm.permute_dims(one.reshape((2, 80, 4, 16)), (0, 2, 1, 3)) for one in (x, y))
    return x @ lm.permute_dims(y, (0, 1, 3, 2))


def slopes(function: Callable[..., Tensor]) -> Callable[..., tuple[Tensor, ...]]:
    return lambda *given: tuple(lm.gradient(function(*given).cast(lm.float32).sum(), given))


# What is kept otherwise, and how often.
CASES: dict[str, tuple[Callable[..., Any], list[Shape], int]] = {
    "images": (lambda x, w: lm.conv2d(x, w, padding=1), [IMAGES, FILTERS], 2),
    "between": (two, [IMAGES, FILTERS, MORE], 4),
    "derivatives": (slopes(two), [IMAGES, FILTERS, MORE], 6),
    "channels last": (channels_last, [LAST, (24, 3, 3, 16)], 0),
    "matrices": (lambda a, b: a @ b, [(70, 80), (80, 90)], 0),
    "turned": (lambda a, b: a.T @ b.T, [(80, 70), (90, 80)], 0),
    "channels last, derivatives": (slopes(two_last), [LAST, (24, 3, 3, 16), (32, 3, 3, 24)], 3),
    "few channels": (lambda x, w: lm.conv2d(x, w), [(16, 3, 9, 9), (64, 3, 3, 3)], 0),
    "heads": (heads, [(2, 80, 64), (2, 80, 64)], 0),
    "every second": (lambda x, w: lm.conv2d(x, w, stride=2), [(2, 32, 40, 40), (256, 32, 1, 1)], 1),
    "few": (lambda x, w: lm.conv2d(x, w), [(1, 16, 4, 4), (3, 16, 3, 3)], 0),
}


@pytest.mark.parametrize("dtype", [lm.bfloat16, lm.float32])
@pytest.mark.parametrize("name", CASES)
def test_products_read_neighbours(name: str, dtype: lm.DType) -> None:
    function, shapes, kept = CASES[name]
    kept -= dtype is lm.float32 and "derivatives" in name  # a gradient of 16 bits is rounded first
    leaves = [leaf(number, one, dtype) for number, one in enumerate(shapes)]
    found = function(*(Tensor.of(one, "cpu") for one in leaves))
    results = found if isinstance(found, tuple) else (found,)
    sinks = opened_as_computed([one.node for one in results], {})
    laid = lay_out(sinks)
    assert sum(one.op is Op.CONTIGUOUS for one in toposort(laid)) == kept
    assert laid == sinks or kept
    arithmetic = {one for one in toposort(laid) if one.op in Group.ELEMENTWISE}
    between = {one.src[0] for node in arithmetic for one in node.src if one.op is Op.PERMUTE}
    assert between.isdisjoint(arithmetic)
    rng = np.random.default_rng(0)
    given: dict[Node, Any] = {
        one: rng.standard_normal(one.shape).astype(one.dtype.numpy) for one in leaves
    }
    for got, want in zip(evaluate(laid, given), evaluate(sinks, given), strict=True):
        np.testing.assert_array_equal(got, want)


def pooled(x: Tensor, w: Tensor, v: Tensor) -> Tensor:
    """A pool with padding between two convolutions, whose gradients need the places of maxima."""
    images = lm.max_pool2d(lm.relu(lm.conv2d(x, w, padding=1)), 3, stride=2, padding=1)
    return lm.conv2d(images, v, padding=1)


def test_pools_between_convolutions_have_the_order_of_their_images() -> None:
    """Extremes of windows, and what they choose from, are computed with the channels last, so that
    the places of maxima are stored so, where the kernels of gradients read them beside images."""
    shapes = [IMAGES, FILTERS, MORE]
    leaves = [leaf(number, shape, lm.bfloat16) for number, shape in enumerate(shapes)]
    results = slopes(pooled)(*(Tensor.of(one, "cpu") for one in leaves))
    sinks = opened_as_computed([one.node for one in results], {})
    laid = lay_out(sinks)

    extremes = [one for one in toposort(laid) if one.op is Op.REDUCE and one.arg.monoid is not ADD]
    assert extremes
    assert all(extreme.shape[-1] == FILTERS[0] for extreme in extremes)

    rng = np.random.default_rng(0)
    given: dict[Node, Any] = {
        one: rng.standard_normal(one.shape).astype(one.dtype.numpy) for one in leaves
    }
    for got, want in zip(evaluate(laid, given), evaluate(sinks, given), strict=True):
        np.testing.assert_array_equal(got, want)


def test_windows_of_a_product_of_arrays_keep_the_order_of_memory() -> None:
    """Of a gelu, which is x times what is costly to compute, both arrays vary along all axes."""
    x = Tensor.of(leaf(0, (10_453, 352, 3), lm.float32), "cpu")
    pooled = lm.avg_pool1d(lm.gelu(lm.permute_dims(x, (0, 2, 1))), 3, stride=2, padding=1)
    sinks = opened_as_computed([pooled.node], {})
    assert lay_out(sinks) == sinks


def test_pools_of_computed_images_keep_the_order_of_memory() -> None:
    """A mean of windows multiplies no factors, though what it reads is stored before."""
    images = Tensor.of(leaf(0, (8, 19, 40, 7), lm.float16), "cpu")
    sinks = opened_as_computed([lm.avg_pool2d(lm.gelu(images), 3, stride=1).node], {})
    assert lay_out(sinks) == sinks


def test_parts_of_columns_are_no_windows() -> None:
    """Four parts of 9363 rows, the last of them padded, have a step more than there are rows."""
    x = leaf(0, (65_541, 337), lm.float32)
    parts = build.reshape(hard_swish(x), (7, 9363, 337))
    padded = build.pad(parts, (0, 0, 0), (0, 1, 0), 0.0)
    total = build.reduce(ADD, [2], build.reshape(padded, (7, 4, 2341, 337)))
    sinks = opened_as_computed([total], {})
    assert lay_out(sinks) == sinks


def momentum_step(images: Tensor, filters: Tensor, momentum: Tensor) -> tuple[Tensor, ...]:
    """Filters are updated by the gradients of two convolutions, and then used by a third one."""

    def convolution(images: Tensor, filters: Tensor) -> Tensor:
        return lm.conv2d(images, filters.cast(lm.bfloat16), stride=2, padding=1)

    def loss(filters: Tensor) -> Tensor:
        first, second = (convolution(each, filters) for each in (images, lm.relu(images)))
        return lm.sum(lm.silu(first)) + lm.sum(lm.silu(second))

    (slope,) = lm.gradient(loss(filters), [filters])
    momentum = momentum * 0.9 + slope
    filters = filters - momentum * 0.1
    return filters, momentum, convolution(images, filters)


def test_products_have_no_order() -> None:
    """The filters have their channels last for the third convolution; sums of products stay what
    they are, and have tiles of their own."""
    specs = lm.TensorSpec((128, 64, 32, 32), lm.bfloat16), *[lm.TensorSpec((128, 64, 4, 4))] * 2
    lowered = lm.jit(momentum_step).lower(*specs, device="cuda:0", arch="sm_90a")
    sums = [each for each in lowered.kernels if "sum_k" in each.source]
    assert len(sums) == 3  # that of both gradients is one
    assert all("tensorize(" in each.schedule for each in sums)


def hard_swish(x: Node) -> Node:
    return lm.hardswish(Tensor.of(x, "cpu")).node


def product(left: Node, right: Node) -> Node:
    """A matrix product of two factors, of 16 bits or float32."""
    shape = (left.shape[0], *right.shape)
    a = build.expand(build.reshape(build.cast(left, lm.float32), (*left.shape, 1)), shape)
    b = build.expand(build.reshape(build.cast(right, lm.float32), (1, *right.shape)), shape)
    return build.reduce(ADD, [1], a * b)


@pytest.mark.parametrize(
    ("inner", "pitch", "stored"),
    [
        (1001, 128, 2),  # rows begin within a word
        (1001, 0, 0),
        (1000, 128, 1),  # only those of the right factor do
        (200, 128, 0),  # few products
    ],
)
def test_factors_with_ragged_rows_are_stored_with_longer_ones(
    inner: int, pitch: int, stored: int
) -> None:
    few = inner < 1000
    left = leaf(0, (100 if few else 512, inner), lm.bfloat16)
    right = leaf(1, (inner, 100 if few else 333), lm.bfloat16)
    (laid,) = lay_out([product(left, right)], pitch)
    assert sum(one.op is Op.CONTIGUOUS for one in toposort([laid])) == stored


@pytest.mark.parametrize(("columns", "stored"), [(31, 1), (32, 0)])
def test_factors_with_short_ragged_rows_are_stored(columns: int, stored: int) -> None:
    """Rows of 62 bytes, which no engine copies to tiles."""
    left, right = leaf(0, (4096, 512), lm.float16), leaf(1, (512, columns), lm.float16)
    (laid,) = lay_out([product(left, right)], 128)
    copies = [one.src[0] for one in toposort([laid]) if one.op is Op.CONTIGUOUS]
    assert copies == [right] * stored


def test_a_result_that_a_product_reads_is_stored_twice() -> None:
    """Results are packed, and a product computes no factor with ragged rows where it reads it."""
    x, right = leaf(0, (512, 1001), lm.bfloat16), leaf(1, (1001, 336), lm.bfloat16)
    factor = build.unary(Op.NEG, x)
    for sinks in ([product(factor, right)], [product(factor, right), factor]):
        laid = lay_out(sinks, 128)
        (copy,) = (one for one in toposort(laid) if one.op is Op.CONTIGUOUS)
        assert copy.src[0] is factor


@pytest.mark.parametrize(
    ("rows", "steps", "columns", "dtype", "stored"),
    [
        (4096, 320, 1024, lm.float32, 1),
        (4096, 320, 256, lm.float32, 0),  # each element has few products
        (4096, 128, 1024, lm.float32, 0),  # as in attention
        (1024, 320, 1024, lm.float32, 0),  # a kernel more takes longer than threads
        (1024, 320, 1024, lm.bfloat16, 1),  # tensor cores would wait for the threads
        (1024, 320, 256, lm.bfloat16, 0),
        (4096, 128, 1024, lm.bfloat16, 0),
    ],
)
def test_a_factor_that_threads_would_compute_is_stored(
    rows: int, steps: int, columns: int, dtype: lm.DType, stored: int
) -> None:
    x, right = leaf(0, (rows, steps), dtype), leaf(1, (steps, columns), dtype)
    factor = build.unary(Op.NEG, x)
    (laid,) = lay_out([product(factor, right)], 128)
    assert [one.src[0] for one in toposort([laid]) if one.op is Op.CONTIGUOUS] == [factor] * stored
