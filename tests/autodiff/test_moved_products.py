"""Products of factors that are moved by themselves: their values, and which ones there are."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import lamina as lm
from lamina.core.dtypes import float32
from lamina.core.shape import prod
from lamina.frontend.lowered import Lowered
from lamina.graph.moved_products import product_of_moved
from lamina.ir.build import expand, pad, permute, reshape
from lamina.ir.interpreter import evaluate
from lamina.ir.kernel import Kernel
from lamina.ir.node import Node
from lamina.ir.ops import Op
from tests.generators import leaf

Shape = tuple[int, ...]
SHAPES = st.lists(st.integers(1, 4), max_size=4).map(tuple)


def moved(data: st.DataObject, node: Node) -> Node:
    """`node`, moved a few times."""
    for _ in range(data.draw(st.integers(1, 4))):
        match data.draw(st.sampled_from(("permute", "pad", "join", "split"))):
            case "permute":
                node = permute(node, data.draw(st.permutations(range(len(node.shape)))))
            case "pad":
                margins = st.tuples(*(st.integers(0, 1) for _ in node.shape))
                node = pad(node, data.draw(margins), data.draw(margins))
            case "join" | "split" if not node.shape:
                node = reshape(node, (1,))
            case "join":
                axis = data.draw(st.integers(0, len(node.shape) - 1))
                joined = prod(node.shape[axis : axis + 2])
                node = reshape(node, (*node.shape[:axis], joined, *node.shape[axis + 2 :]))
            case _:
                axis = data.draw(st.integers(0, len(node.shape) - 1))
                size = node.shape[axis]
                part = data.draw(st.sampled_from([n for n in range(1, size + 1) if size % n == 0]))
                parts = size // part, part
                node = reshape(node, (*node.shape[:axis], *parts, *node.shape[axis + 1 :]))
    return node


@given(SHAPES, st.data())
def test_values_are_those_of_the_moved_product(shape: Shape, data: st.DataObject) -> None:
    leaves: list[Node] = []
    for number in range(2):
        once = tuple(size if data.draw(st.booleans()) else 1 for size in shape)
        leaves.append(leaf(number, once, float32))
    left, right = (expand(one, shape) for one in leaves)
    before = moved(data, left * right)
    after = product_of_moved(before)
    assume(after is not None)
    assert after is not None
    assert after.op is Op.MUL
    random = np.random.default_rng(data.draw(st.integers(0, 100)))
    values = {one: random.integers(1, 9, one.shape).astype(np.float32) for one in leaves}
    want, got = evaluate([before, after], values)
    np.testing.assert_array_equal(got, want)


def test_the_factor_that_varies_along_an_axis_is_padded() -> None:
    """Windows of 5 elements in 2 phases of 3, beside 8 places."""
    weights, places = leaf(0, (5, 1), float32), leaf(1, (8,), float32)
    product = expand(weights, (5, 8)) * expand(places, (5, 8))
    phases = permute(reshape(pad(product, (0, 0), (1, 0)), (3, 2, 8)), (1, 0, 2))
    after = product_of_moved(phases)
    assert after is not None
    left, right = after.src
    assert (left.op, left.src[0].shape) == (Op.EXPAND, (2, 3, 1))
    assert (right.op, right.src[0].shape) == (Op.EXPAND, (1, 1, 8))


def test_scalars_get_axes_by_which_they_are_padded() -> None:
    a, b = leaf(0, (), float32), leaf(1, (), float32)
    after = product_of_moved(pad(reshape(a * b, (1,)), (1,), (0,)))
    assert after is not None
    (got,) = evaluate([after], {a: np.float32(2), b: np.float32(3)})
    np.testing.assert_array_equal(got, [0, 6])


def of_two(shape: Shape, *once: Shape) -> Node:
    left, right = (expand(leaf(i, each, float32), shape) for i, each in enumerate(once))
    return left * right


@pytest.mark.parametrize(
    "node",
    [
        of_two((2, 3), (2, 3), (1, 3)) + 1.0,
        pad(of_two((2, 3), (2, 1), (2, 1)), (0, 1), (0, 0)),  # the zeros have no factor
        pad(of_two((2, 3), (2, 1), (1, 3)), (0, 1), (0, 0), 1.0),
        reshape(of_two((2, 3), (2, 1), (1, 3)), (6,)),  # neither has 1 or 6 elements
    ],
    ids=["sum", "padding of what is repeated", "padding with ones", "joined axes"],
)
def test_other_nodes_have_none(node: Node) -> None:
    assert product_of_moved(node) is None


@pytest.mark.parametrize("stride", [2, 3])
@pytest.mark.parametrize("groups", [1, 4])
def test_sums_of_the_adjoint_of_windows_test_no_bounds(stride: int, groups: int) -> None:
    """Of convolutions with one result of each group of channels."""

    def slope(x: lm.Tensor, w: lm.Tensor, upstream: lm.Tensor) -> lm.Tensor:
        result = lm.conv2d(x, w, None, stride, 2, 1, groups)
        return lm.gradient(result, [x], upstream)[0]

    shapes = (2, 20, 11, 33), (groups, 20 // groups, 5, 5), (2, groups, *results(stride))
    lowered = lm.jit(slope).lower(*map(lm.TensorSpec, shapes))
    sums = [kernel for kernel in kernels_of(lowered) if kernel.of(Op.LOOP_REDUCE)]
    assert sums
    for kernel in sums:
        assert all(len(load.src) == 1 for load in kernel.of(Op.LOAD))


def test_an_infinite_adjoint_spoils_only_the_padding_of_its_window() -> None:
    """A window of 3 x 3 that moves by 2 is padded to 4 x 4: at the 7 places more, where PyTorch has
    what other windows send, 0 * inf may be NaN. All else is as there."""
    torch = pytest.importorskip("torch")
    random = np.random.default_rng(0)
    shapes = (1, 2, 9, 9), (1, 2, 3, 3), (1, 1, 4, 4)
    x, w, upstream = (random.standard_normal(shape, np.float32) for shape in shapes)
    upstream[0, 0, 1, 1] = np.inf
    image = torch.tensor(x, requires_grad=True)
    torch.nn.functional.conv2d(image, torch.tensor(w), None, 2).backward(torch.tensor(upstream))

    def slope(x: lm.Tensor, w: lm.Tensor, upstream: lm.Tensor) -> lm.Tensor:
        return lm.gradient(lm.conv2d(x, w, None, 2), [x], upstream)[0]

    found = lm.jit(slope)(*map(lm.asarray, (x, w, upstream))).numpy()
    expected = image.grad.numpy()
    is_padding = np.zeros(found.shape, bool)
    is_padding[:, :, 2:6, 2:6] = True
    is_padding[:, :, 2:5, 2:5] = False
    assert np.isinf(expected[:, :, 2:5, 2:5]).all()
    assert np.isfinite(expected[is_padding]).all()
    np.testing.assert_allclose(found[~is_padding], expected[~is_padding], 1e-4, 1e-4)


def results(stride: int) -> Shape:
    """The sizes of the results of windows of 5 x 5 in images of 11 x 33 with margins of 2."""
    return 10 // stride + 1, 32 // stride + 1


def kernels_of(lowered: Lowered) -> list[Kernel]:
    return [kernel for kernel in lowered.planned.plans if isinstance(kernel, Kernel)]
