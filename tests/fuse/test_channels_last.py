"""Images of convolutions have their channels last in memory on CPUs, and hold the same values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lamina as lm
from lamina import Tensor
from lamina.core.shape import Shape
from lamina.frontend.realize import opened_as_computed
from lamina.fuse.channels_last import channels_last
from lamina.fuse.traced_axes import Axis, traced
from lamina.graph import index as ix
from lamina.graph.algebra import SIMPLIFY
from lamina.graph.rewrite import rewrite
from lamina.ir import build
from lamina.ir.interpreter import evaluate
from lamina.ir.kernel import Kernel, points
from lamina.ir.node import Node, toposort
from lamina.ir.ops import Op
from lamina.ir.products import contraction
from tests.generators import leaf

IMAGES = (2, 16, 9, 8)


def chain(x: Tensor, w: Tensor, v: Tensor, u: Tensor) -> Tensor:
    """A dense convolution, one of each channel, and one without windows."""
    x = lm.relu(lm.conv2d(x, w, padding=1))
    x = lm.relu(lm.conv2d(x, v, padding=1, groups=v.shape[0]))
    return lm.conv2d(x, u)


CHAIN = [IMAGES, (32, 16, 3, 3), (32, 1, 3, 3), (24, 32, 1, 1)]


def test_images_between_convolutions_have_their_channels_last() -> None:
    lowered = lm.jit(chain).lower(*map(lm.TensorSpec, CHAIN), device="cpu")
    images = [
        kernel for launch in lowered.planned.program.launches
        if isinstance(kernel := launch.kernel, Kernel) and kernel.stores[0].axes[0].arg.size == 2
    ]  # fmt: skip
    for kernel in images[1:-1]:  # the last one stores the result, in its own order
        steps, _ = ix.terms_of(kernel.stores[0].index)
        channels = [axis for axis, step in steps.items() if step == 1]
        assert [axis.arg.size for axis in channels] == [32]
    assert len(images) == 4  # with the first image, an input, in its padding


def test_a_gradient_has_the_channels_last_along_which_it_has_vectors() -> None:
    """(24, 32, 3, 3) is stored as (32, 3, 3, 24), which the kernel of the result transposes."""

    def slope(x: Tensor, w: Tensor, v: Tensor, u: Tensor) -> Tensor:
        y = lm.relu(lm.conv2d(lm.relu(lm.conv2d(x, w, padding=1)), v, padding=1))
        return lm.gradient((lm.conv2d(y, u) ** 2).sum(), v)

    shapes = (IMAGES, (32, 16, 3, 3), (24, 32, 3, 3), (16, 24, 3, 3))
    lowered = lm.jit(slope).lower(*map(lm.TensorSpec, shapes), device="cpu")
    stores = [
        launch.kernel.stores[0] for launch in lowered.planned.program.launches
        if isinstance(launch.kernel, Kernel) and contraction_of(launch.kernel)
    ]  # fmt: skip
    filters = [store for store in stores if (store.axes[0].arg.size, len(store.axes)) == (32, 4)]
    assert filters
    for store in filters:
        steps, _ = ix.terms_of(store.index)
        assert [axis.arg.size for axis, step in steps.items() if step == 1] == [24]


def test_what_the_derivative_of_a_maximum_repeats_has_its_channels_last() -> None:
    """The place of each maximum, and the derivative by it, which the kernel of the derivative by
    images reads once for each element of a window."""

    def slope(x: Tensor, w: Tensor, v: Tensor) -> Tensor:
        y = lm.conv2d(lm.max_pool2d(lm.relu(lm.conv2d(x, w, padding=1)), 2), v, padding=1)
        return lm.gradient((y * y).sum(), w)

    shapes = ((4, 16, 20, 20), (32, 16, 3, 3), (48, 32, 3, 3))
    lowered = lm.jit(slope).lower(*map(lm.TensorSpec, shapes), device="cpu")
    pooled = [
        store for launch in lowered.planned.program.launches
        if isinstance(launch.kernel, Kernel) for store in launch.kernel.stores
        if points(store.axes) == 4 * 32 * 10 * 10
    ]  # fmt: skip
    assert len(pooled) == 3  # the maximum, its place, and the derivative by it
    for store in pooled:
        steps, _ = ix.terms_of(store.index)
        assert [axis.arg.size for axis, step in steps.items() if step == 1] == [32]


def pooled(pool: Callable[..., Tensor], windows: tuple[int, int], of_slopes: bool) -> Any:
    """A pool of images that are in memory with their channels last."""

    def function(x: Tensor, seed: Tensor) -> Any:
        y = pool(lm.permute_dims(x, (0, 3, 1, 2)), windows)
        return [y, *lm.gradient(y, [x], seed)] if of_slopes else y

    return function


POOLS = [lm.adaptive_avg_pool2d, lm.adaptive_max_pool2d]


@pytest.mark.parametrize("pool", POOLS)
def test_steps_between_channels_last_have_whole_vectors_of_channels(pool: Any) -> None:
    """Windows along rows, whose sums or maxima are read by windows along columns."""
    shapes = (2, 9, 10, 48), (2, 48, 4, 3)
    function = pooled(pool, (4, 3), of_slopes=True)
    lowered = lm.jit(function).lower(*map(lm.TensorSpec, shapes), device="cpu")
    steps = [
        store for launch in lowered.planned.program.launches
        if isinstance(launch.kernel, Kernel) for store in launch.kernel.stores
        if points(store.axes) in (2 * 48 * 4 * 10, 2 * 48 * 9 * 3) and len(store.axes) > 1
    ]  # fmt: skip
    assert steps
    for store in steps:
        strides, _ = ix.terms_of(store.index)
        assert [axis.arg.size for axis, stride in strides.items() if stride == 1] == [48]


@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize("of_slopes", [False, True])
def test_pools_of_channels_last_hold_the_same_values(pool: Any, of_slopes: bool) -> None:
    shapes = (2, 7, 5, 16), (2, 16, 3, 2)
    leaves, sinks = graph_of(pooled(pool, (3, 2), of_slopes=of_slopes), shapes)
    sinks = rewrite(sinks, SIMPLIFY)  # without what has a derivative of its own
    laid = channels_last(sinks)
    assert laid != sinks
    rng = np.random.default_rng(0)
    arrays = {node: rng.integers(-2, 3, node.shape).astype(np.float32) for node in leaves}
    for before, after in zip(evaluate(sinks, arrays), evaluate(laid, arrays), strict=True):
        np.testing.assert_allclose(after, before, rtol=1e-6)


def test_others_read_a_result_in_the_order_that_it_was_given() -> None:
    """A maximum that is a result, too, is read as vectors of channels for its place."""
    shapes = (2, 9, 10, 48), (2, 48, 4, 3)
    function = pooled(lm.adaptive_max_pool2d, (4, 3), of_slopes=True)
    lowered = lm.jit(function).lower(*map(lm.TensorSpec, shapes), device="cpu")
    sums = [
        launch.kernel for launch in lowered.planned.program.launches
        if isinstance(launch.kernel, Kernel) and launch.kernel.of(Op.LOOP_REDUCE)
    ]  # fmt: skip
    assert sums
    for kernel in sums:
        for load in kernel.of(Op.LOAD):
            strides, _ = ix.terms_of(load.src[0])
            channels = [strides[axis] for axis in strides if axis.arg.size == 48]
            assert channels == [1]


def contraction_of(kernel: Kernel) -> Node | None:
    return contraction((store.value for store in kernel.stores), kernel.row_axes)


def graph_of(
    function: Callable[..., Any], shapes: Sequence[Shape]
) -> tuple[list[Node], list[Node]]:
    """The leaves and the sinks of a function, for the passes over graphs."""
    leaves = [leaf(number, shape, lm.float32) for number, shape in enumerate(shapes)]
    results = function(*(Tensor.of(node, "cpu") for node in leaves))
    several = results if isinstance(results, tuple | list) else (results,)
    return leaves, opened_as_computed([result.node for result in several], {})


def slopes(x: Tensor, *filters: Tensor) -> list[Tensor]:
    y = chain(x, *filters)
    return [y, *lm.gradient((y * y).sum(), [x, *filters])]


def test_the_graph_holds_the_same_values() -> None:
    leaves, sinks = graph_of(slopes, CHAIN)
    laid = channels_last(sinks)
    assert laid != sinks
    rng = np.random.default_rng(0)
    arrays = {node: rng.standard_normal(node.shape).astype(np.float32) for node in leaves}
    for before, after in zip(evaluate(sinks, arrays), evaluate(laid, arrays), strict=True):
        assert before.shape == after.shape
        np.testing.assert_allclose(before, after, rtol=1e-4, atol=1e-4)


def two(x: Tensor, w: Tensor, v: Tensor) -> Tensor:
    return lm.conv2d(lm.conv2d(x, w), v)


@pytest.mark.parametrize(
    ("function", "shapes"),
    [
        (lambda a, b: lm.relu(a @ b) @ b.T, [(70, 80), (80, 90)]),
        (two, [(4, 32, 9, 9), (32, 32, 1, 1), (48, 32, 1, 1)]),  # without windows
        (two, [(4, 32, 9, 9), (3, 32, 1, 1), (48, 3, 3, 3)]),  # of few channels
        (lambda x, w: lm.conv2d(x, w), [(4, 32, 9, 9), (48, 32, 3, 3)]),  # of an input
        (lambda x, w: lm.conv2d(lm.relu(x), w, padding=1), [(4, 32, 9, 9), (48, 32, 3, 3)]),
        (lambda x: lm.softmax(x, 1).sum(0), [(4, 32, 9, 9)]),
        # Windows of an input with its channels first.
        (lambda x: lm.adaptive_avg_pool2d(x, (4, 5)), [(4, 32, 9, 9)]),
        # Nothing but the result comes after the sum.
        (lambda x: lm.permute_dims(x, (0, 3, 1, 2)).sum(2), [(4, 9, 9, 32)]),
    ],
)  # fmt: skip
def test_other_graphs_stay_as_they_are(function: Any, shapes: list[Shape]) -> None:
    _, sinks = graph_of(function, shapes)
    assert channels_last(sinks) == sinks


X = leaf(0, (2, 16, 6, 7), lm.float32)


@pytest.mark.parametrize(
    ("node", "number", "beneath"),
    [
        (build.permute(X, (0, 2, 3, 1)), 3, 1),
        (build.reshape(X, (2, 1, 16, 1, 42)), 2, 1),
        (build.reshape(X, (2, 4, 4, 6, 7)), 1, None),  # a part of the axis
        (build.reshape(X, (16, 2, 6, 7)), 0, None),  # as long, but other elements
        (build.expand(X, (3, 2, 16, 6, 7)), 2, 1),
        (build.expand(X, (16, 2, 16, 6, 7)), 0, None),
        (build.slice_axis(X, 2, 1, 4), 1, 1),
        (build.slice_axis(X, 1, 0, 8), 1, None),
        (build.shear(X, 2, 3, 1), 1, 1),
        (build.shear(X, 2, 3, 1), 2, None),
        (build.shear(X, 2, 3, 1), 3, None),
        (Node(Op.GATHER, (X, leaf(1, (2, 16, 3, 7), lm.int64)), 2), 1, 1),
        (Node(Op.GATHER, (X, leaf(1, (2, 16, 3, 7), lm.int64)), 2), 2, None),
    ],
)
def test_an_axis_is_traced_through_movement(node: Node, number: int, beneath: int | None) -> None:
    assert traced(Axis(node, number)) == (None if beneath is None else Axis(X, beneath))


@dataclass(frozen=True)
class Layer:
    """What follows in a drawn network; `size` to `outputs` are of its windows and channels."""

    kind: str
    size: int
    stride: int
    padding: int
    outputs: int

    def apply(self, x: Tensor, filters: list[Tensor]) -> Tensor:
        channels = x.shape[1]
        fits = min(x.shape[2:]) + 2 * self.padding >= self.size
        if self.kind in ("dense", "each") and fits:
            groups = channels if self.kind == "each" else 1
            outputs = channels if self.kind == "each" else self.outputs
            shape = (outputs, channels // groups, self.size, self.size)
            filters.append(Tensor.of(leaf(len(filters) + 1, shape, lm.float32), "cpu"))
            return lm.conv2d(x, filters[-1], None, self.stride, self.padding, 1, groups)
        if self.kind == "pool" and min(x.shape[2:]) >= self.size:
            return lm.max_pool2d(x, self.size, self.stride, self.size // 2)
        if self.kind == "norm":
            return x - lm.mean(x, axis=(0, 2, 3), keepdims=True) * 0.5
        if self.kind == "scale":
            return x * lm.mean(x, axis=(2, 3), keepdims=True)
        if self.kind == "join":
            return lm.concat([x, x * 0.5], 1)
        if self.kind == "sum over channels":
            return x - lm.sum(x, axis=1, keepdims=True) * 0.1
        return lm.relu(x)


KINDS = ("dense", "dense", "each", "pool", "norm", "scale", "join", "sum over channels", "relu")
LAYERS = st.builds(
    Layer, st.sampled_from(KINDS), st.integers(1, 4), st.integers(1, 3), st.integers(0, 2),
    st.sampled_from((5, 16, 17, 24)),
)  # fmt: skip


@given(
    st.tuples(
        st.integers(1, 3), st.sampled_from((3, 16, 20)), st.integers(3, 7), st.integers(3, 7)
    ),
    st.lists(LAYERS, min_size=2, max_size=5), st.booleans(), st.integers(0, 1 << 30),
)  # fmt: skip
def test_drawn_networks_hold_the_same_values(
    shape: Shape, layers: list[Layer], with_slopes: bool, seed: int
) -> None:
    filters: list[Tensor] = []
    image = Tensor.of(leaf(0, shape, lm.float32), "cpu")
    first = Tensor.of(leaf(100, (shape[1], shape[1], 1, 1), lm.float32), "cpu")
    x = lm.conv2d(image, first)  # a sum, as images that are inputs keep their order
    for each in layers:
        x = each.apply(x, filters)
    results = [x, *lm.gradient((x * x).sum(), [image, *filters])] if with_slopes else [x]
    sinks = opened_as_computed([result.node for result in results], {})
    laid = channels_last(sinks)
    rng = np.random.default_rng(seed)
    leaves = [node for node in toposort(sinks) if node.op is Op.BUFFER]
    arrays = {node: rng.standard_normal(node.shape) for node in leaves}
    for before, after in zip(evaluate(sinks, arrays), evaluate(laid, arrays), strict=True):
        largest = float(np.abs(before).max(initial=1.0))
        np.testing.assert_allclose(after, before, rtol=0, atol=1e-4 * largest)


def test_a_network_and_its_gradients_are_those_of_pytorch() -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(1)
    arrays = [rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:])) for shape in CHAIN]

    def network(module: Any, x: Any, w: Any, v: Any, u: Any) -> Any:
        x = module.relu(module.conv2d(x, w, None, 2, 1))
        x = module.conv2d(x, v, None, 1, 2, 2, v.shape[0])
        return module.conv2d(x - x.mean((0, 2, 3)).reshape(1, -1, 1, 1), u)

    expected = [torch.tensor(array, requires_grad=True) for array in arrays]
    y = network(torch, *expected)
    (y * y).sum().backward()

    def slopes(*arguments: Tensor) -> list[Tensor]:
        y = network(lm, *arguments)
        return [y, *lm.gradient((y * y).sum(), arguments)]

    results = lm.jit(slopes)(*(lm.asarray(array.astype(np.float32)) for array in arrays))
    for result, right in zip(results, [y, *(one.grad for one in expected)], strict=True):
        wanted = right.detach().numpy()
        atol = 1e-5 * float(np.abs(wanted).max())
        np.testing.assert_allclose(result.numpy(), wanted, rtol=0, atol=atol)
