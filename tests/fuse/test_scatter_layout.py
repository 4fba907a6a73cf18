"""Scatters that are read in another order of axes are made in that order on CPUs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lamina as lm
from lamina import Tensor
from lamina.core.dtypes import float32, int64
from lamina.fuse.scatter_layout import scatters_as_read
from lamina.ir import build
from lamina.ir.interpreter import evaluate
from lamina.ir.monoids import ADD, MAX, Monoid
from lamina.ir.node import Node, toposort
from lamina.ir.ops import Op, Scatter
from tests.generators import leaf

SHAPE = (2, 5, 7)


def scatter(base: Node, number: int, axis: int, monoid: Monoid = ADD) -> Node:
    """Three updates of each row along `axis`, some of them beyond its ends."""
    shape = (*SHAPE[:axis], 3, *SHAPE[axis + 1 :])
    index, updates = leaf(number, shape, int64), leaf(number + 1, shape, float32)
    return Node(Op.SCATTER, (base, index, updates), Scatter(axis, monoid))


def zeros() -> Node:
    return build.full(SHAPE, 0.0, float32)


def values_of(*sinks: Node) -> list[np.ndarray]:
    random = np.random.default_rng(0)
    leaves = [node for node in toposort(sinks) if node.op is Op.BUFFER]
    values = {
        node: random.integers(-1, 6, node.shape).astype(node.dtype.numpy) for node in leaves
    }
    return evaluate(list(sinks), values)


def scatters_beneath_a_permutation(*sinks: Node) -> int:
    permuted = [node.src[0] for node in toposort(sinks) if node.op is Op.PERMUTE]
    return sum(node.op is Op.SCATTER for node in permuted)


@given(
    axes=st.permutations(range(3)), along=st.lists(st.integers(0, 2), min_size=1, max_size=3),
    monoid=st.sampled_from([ADD, MAX]),
)  # fmt: skip
def test_scatters_are_made_in_the_order_in_which_they_are_read(
    axes: list[int], along: list[int], monoid: Monoid
) -> None:
    """Also one scatter into the other."""
    total = zeros()
    for number, axis in enumerate(along):
        total = scatter(total, 2 * number, axis, monoid)
    read = build.permute(total, axes)
    (after,) = scatters_as_read([read])
    assert scatters_beneath_a_permutation(after) == 0
    np.testing.assert_array_equal(values_of(after)[0], values_of(read)[0])


def test_one_that_something_else_reads_stays() -> None:
    total = scatter(zeros(), 0, 1)
    read = build.permute(total, (2, 0, 1)) * 2.0
    sinks = [read, build.permute(total, (1, 0, 2))]
    assert scatters_as_read(sinks) == sinks
    assert scatters_as_read([read, total]) == [read, total]


def test_one_into_an_array_stays() -> None:
    """The array would be transposed in its place."""
    read = build.permute(scatter(leaf(9, SHAPE, float32), 0, 1), (2, 0, 1))
    assert scatters_as_read([read]) == [read]


@pytest.mark.parametrize("mode", ["nearest", "bilinear"])
def test_no_kernel_transposes_the_gradient_of_images_with_channels_last(mode: str) -> None:
    """The largest arrays are the image, which is read, and its gradient."""

    def slope(images: Tensor, dy: Tensor) -> Tensor:
        first = lm.permute_dims(images, (0, 3, 1, 2))
        smaller = lm.interpolate(first, dy.shape[2:], mode=mode)
        (result,) = lm.gradient(smaller, [images], dy)
        return result

    shapes = (2, 33, 300, 24), (2, 24, 5, 3)
    lowered = lm.jit(slope).lower(*map(lm.TensorSpec, shapes), device="cpu")
    image = 2 * 33 * 300 * 24
    for launch in lowered.planned.program.launches:
        sizes = [parameter.size for parameter in launch.kernel.parameters]
        assert sizes.count(image) <= 1
