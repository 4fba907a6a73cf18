"""Rules of movement operations: finite differences, for random arguments."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamina.core.dtypes import float32
from lamina.core.shape import prod
from lamina.errors import GradientError
from lamina.graph import autodiff
from lamina.graph.autodiff import gradient
from lamina.ir.build import expand, flip, full, pad, permute, reshape, shear, sliced
from lamina.ir.interpreter import evaluate
from lamina.ir.monoids import ADD, MAX, MIN, MUL, Monoid
from lamina.ir.node import Node, toposort
from lamina.ir.ops import Op, Scatter
from tests.autodiff.finite_differences import FILLED, SEEDS, SHAPES, apart, buffer, check, gradients
from tests.generators import leaf

Shape = tuple[int, ...]


def squared(x: Node) -> Node:
    """Not linear, so that the order of elements and second derivatives matter."""
    return x * x


@given(SHAPES, SEEDS)
def test_reshape(shape: Shape, seed: int) -> None:
    target = (1, prod(shape), 1)
    check(lambda x: squared(reshape(x, target)), apart(seed, shape), order=2, tolerance=1e-5)


@given(SHAPES, SHAPES, SEEDS, st.data())
def test_expand(shape: Shape, added: Shape, seed: int, data: st.DataObject) -> None:
    kept = tuple(size if data.draw(st.booleans()) else 1 for size in shape)
    check(lambda x: squared(expand(x, added + shape)), apart(seed, kept))


def test_expand_to_nothing() -> None:
    check(lambda x: expand(x, (0, 3)), 1.5)
    check(lambda x: expand(x, (0, 3)), [[1.5]])


@given(SHAPES, SEEDS, st.data())
def test_permute(shape: Shape, seed: int, data: st.DataObject) -> None:
    axes = data.draw(st.permutations(range(len(shape))))
    check(lambda x: squared(permute(x, axes)), apart(seed, shape))


@given(SHAPES, SEEDS, st.data())
def test_pad(shape: Shape, seed: int, data: st.DataObject) -> None:
    margin = st.tuples(*(st.integers(0, 2) for _ in shape))
    before, after = data.draw(margin), data.draw(margin)
    check(lambda x: squared(pad(x, before, after, 3.0)), apart(seed, shape))


@given(st.lists(st.integers(0, 6), max_size=2).map(tuple), SEEDS, st.data())
def test_shrink(shape: Shape, seed: int, data: st.DataObject) -> None:
    box = []
    for size in shape:
        start = data.draw(st.integers(0, size))
        box.append(range(start, data.draw(st.integers(start, size)), data.draw(st.integers(1, 3))))
    check(lambda x: squared(sliced(x, box)), apart(seed, shape))


@given(SHAPES, SEEDS, st.data())
def test_flip(shape: Shape, seed: int, data: st.DataObject) -> None:
    axes = [axis for axis in range(len(shape)) if data.draw(st.booleans())]
    check(lambda x: squared(flip(x, axes)), apart(seed, shape))


@given(st.lists(st.integers(0, 4), min_size=2, max_size=3).map(tuple), SEEDS, st.data())
def test_shear(shape: Shape, seed: int, data: st.DataObject) -> None:
    axis, by = data.draw(st.permutations(range(len(shape))))[:2]
    step = data.draw(st.sampled_from([-3, -2, -1, 1, 2]))
    check(lambda x: squared(shear(x, axis, by, step)), apart(seed, shape))


def indices(shape: Shape, axis: int, count: int, seed: int) -> np.ndarray:
    """Random, with repetitions and some out of range."""
    sizes = (*shape[:axis], count, *shape[axis + 1 :])
    return np.random.default_rng(seed).integers(-1, shape[axis] + 1, sizes)


ONE_AXIS_AT_LEAST = st.lists(st.integers(0, 3), min_size=1, max_size=2).map(tuple)


@given(ONE_AXIS_AT_LEAST, st.integers(0, 4), SEEDS, st.data())
def test_gather(shape: Shape, count: int, seed: int, data: st.DataObject) -> None:
    axis = data.draw(st.integers(0, len(shape) - 1))
    index = constant_array(indices(shape, axis, count, seed))
    check(lambda x: squared(Node(Op.GATHER, (x, index), axis)), apart(seed, shape), order=2,
          tolerance=1e-5)  # fmt: skip


@pytest.mark.parametrize("monoid", [ADD, None, MAX, MIN])
@given(ONE_AXIS_AT_LEAST, st.integers(0, 4), SEEDS, st.data())
def test_scatter(
    monoid: Monoid | None, shape: Shape, count: int, seed: int, data: st.DataObject
) -> None:
    axis = data.draw(st.integers(0, len(shape) - 1))
    index_values = indices(shape, axis, count, seed)
    index = constant_array(index_values)
    values = apart(seed, (prod(shape) + index_values.size,))
    base = values[: prod(shape)].reshape(shape)
    update = values[prod(shape) :].reshape(index.shape)

    def build(base: Node, update: Node) -> Node:
        return squared(Node(Op.SCATTER, (base, index, update), Scatter(axis, monoid)))

    check(build, base, update)


def test_scatter_extreme_splits_ties() -> None:
    index = constant_array(np.array([0, 0, 1]))
    base, update = np.array([2.0, 5.0]), np.array([2.0, 2.0, 1.0])
    d_base, d_update = gradients(
        lambda base, update: Node(Op.SCATTER, (base, index, update), Scatter(0, MAX)), base, update
    )
    np.testing.assert_allclose(d_base, [1 / 3, 1.0])
    np.testing.assert_allclose(d_update, [1 / 3, 1 / 3, 0.0])


def test_scatter_with_a_product_says_so() -> None:
    x = buffer("x", np.ones(3))
    y = Node(Op.SCATTER, (x, constant_array(np.zeros(3, np.int64)), x), Scatter(0, MUL))
    with pytest.raises(GradientError, match="scatter with MUL"):
        gradient(y, [x], x)


@given(FILLED)
def test_effects_pass_the_adjoint_through(shape: Shape) -> None:
    x, g = buffer("x", np.ones(shape)), buffer("g", np.ones(shape))
    target = buffer("target", np.ones(shape))
    assert gradient(Node(Op.CONTIGUOUS, (x,)), [x], g) == [g]
    assert gradient(Node(Op.ASSIGN, (target, x)), [x, target], g) == [g, None]


def test_copy_returns_to_the_device_of_its_operand() -> None:
    x, g = buffer("x", np.ones(2)), buffer("g", np.ones(2))
    y = Node(Op.COPY, (x * 2.0,), "cuda:0")
    (dx,) = gradient(y, [x], g)
    assert dx is Node(Op.COPY, (g,), "cpu") * 2.0
    z = full((2,), 1.0, x.dtype)
    assert gradient(Node(Op.COPY, (z,), "cuda:0"), [z], g) == [g]


def constant_array(array: np.ndarray) -> Node:
    """An integer array as a graph without buffers: constants padded into place and added."""
    flat = array.reshape(-1)
    node = full((flat.size,), 0, buffer("i", flat).dtype)
    for i, value in enumerate(flat):
        one = full((1,), int(value), node.dtype)
        node = node + pad(one, (i,), (flat.size - i - 1,))
    return reshape(node, array.shape)


def test_constant_array_is_the_array() -> None:
    array = np.arange(-3, 3).reshape(2, 3)
    np.testing.assert_array_equal(evaluate([constant_array(array)])[0], array)


def test_a_padded_condition_has_each_operation_once() -> None:
    """Not once for each way to it, of which 30 levels have 2**30."""
    x = leaf(0, (4,), float32)
    levels = x
    for _ in range(30):
        levels = levels * levels + levels
    padded = autodiff._among_anything(levels < 1, [range(1, 5)], (5,))
    assert padded.shape == (5,)
    assert len(toposort([padded])) < 100
