"""The sweep: what is reached, what is shared, what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from lamina.core import dtypes
from lamina.errors import GradientError
from lamina.graph.autodiff import gradient
from lamina.ir.build import bitcast, cast, const, expand, reduce, reshape, select, unary
from lamina.ir.interpreter import evaluate
from lamina.ir.monoids import ADD
from lamina.ir.node import Node, toposort
from lamina.ir.ops import Op
from tests.autodiff.finite_differences import apart, buffer, gradients, total

DEPTH = 20_000


def test_symbolic_zeros() -> None:
    x, other = buffer("x", np.ones(())), buffer("other", np.ones(3))
    assert gradient(x * x, [other, x])[0] is None
    assert gradient(x, [x]) == [const(1.0, dtypes.float64)]
    assert gradient(x, []) == []


def test_inner_nodes_and_repetitions() -> None:
    x = buffer("x", np.ones(()))
    inner = x * x
    y = inner * inner + x
    d_inner, dx, again = gradient(y, [inner, x, x])
    assert dx is again
    assert d_inner is not None
    assert dx is not None
    assert evaluate([d_inner, dx], {x: np.array(3.0)}) == [18.0, 4 * 27.0 + 1]


def test_only_the_cone_gets_adjoints() -> None:
    x, y = buffer("x", np.ones(())), buffer("y", np.ones(()))
    (dx,) = gradient(x * unary(Op.SIN, y), [x])
    assert dx is not None
    assert Op.COS not in {node.op for node in toposort([dx])}


def test_a_seed_weighs_the_results() -> None:
    x = buffer("x", np.ones(3))
    seed = buffer("seed", np.ones(3))
    assert gradient(x, [x], seed) == [seed]
    with pytest.raises(GradientError, match=r"the seed is f64\[\] but y is f64\[3\]: sum it"):
        gradient(x, [x])
    with pytest.raises(GradientError, match=r"the seed is f32\[3\] but y is f64\[3\]"):
        gradient(x, [x], cast(seed, dtypes.float32))


def test_what_has_no_derivative_is_refused() -> None:
    x = buffer("x", np.ones(()))
    i = buffer("i", np.ones((), np.int64))
    with pytest.raises(GradientError, match="y is int64"):
        gradient(i, [x])
    with pytest.raises(GradientError, match=r"wrt\[1\] is int64"):
        gradient(x, [x, i])
    z = Node(Op.COMPLEX, (x, x))
    with pytest.raises(GradientError, match="not supported"):
        gradient(unary(Op.REAL, z * z), [x])
    with pytest.raises(GradientError, match="y is complex128"):
        gradient(z, [x])
    half = cast(x, dtypes.float16)
    with pytest.raises(GradientError, match="bitcast"):
        gradient(bitcast(half, dtypes.bfloat16), [x])


def test_what_is_not_on_the_way_is_not_refused() -> None:
    x = buffer("x", np.ones(()))
    stopped = unary(Op.DETACH, unary(Op.IMAG, Node(Op.COMPLEX, (x, x))))
    bits = cast(bitcast(x, dtypes.int64), dtypes.float64)
    assert gradient(x + stopped + bits, [x]) == [const(1.0, dtypes.float64)]


@pytest.mark.parametrize("kind", ["sin", "where", "shared"])
def test_deep_graphs(kind: str) -> None:
    x = y = buffer("x", np.ones(()))
    for _ in range(DEPTH):
        if kind == "sin":
            y = unary(Op.SIN, y)
        elif kind == "where":
            y = select(x < 2.0, unary(Op.SIN, y), y)
        else:
            y = (y + y) * 0.5
    (dx,) = gradient(y, [x])
    assert dx is not None
    (value,) = evaluate([dx], {x: np.array(1.0)})
    assert value == 1.0 if kind == "shared" else 0 < value < 1e-4


@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.bfloat16, dtypes.float32])
def test_adjoints_keep_the_dtype(dtype: dtypes.DType) -> None:
    x = cast(buffer("x", np.ones((2, 3))), dtype)
    y = unary(Op.EXP, x) / expand(reshape(reduce(ADD, (1,), x), (2, 1)), (2, 3))
    (dx,) = gradient(total(y), [x])
    assert dx is not None
    assert dx.dtype is dtype
    assert dx.shape == (2, 3)


def layer_norm(x: Node, weight: Node, bias: Node) -> Node:
    """`x` is used in the mean, in the variance and in the numerator."""
    rows, columns = x.shape
    column = (rows, 1)
    mean = reshape(reduce(ADD, (1,), x) * (1 / columns), column)
    away = x - expand(mean, x.shape)
    variance = reshape(reduce(ADD, (1,), away * away) * (1 / columns), column)
    scale = unary(Op.SQRT, variance + 1e-5)
    return away / expand(scale, x.shape) * expand(weight, x.shape) + expand(bias, x.shape)


def test_shared_subexpressions_against_torch() -> None:
    torch = pytest.importorskip("torch")
    arrays = [apart(1, (4, 5)), apart(2, (5,)), apart(3, (5,))]
    ours = gradients(lambda *args: unary(Op.SIN, layer_norm(*args)), *arrays)
    theirs = [torch.tensor(array, requires_grad=True) for array in arrays]
    x, weight, bias = theirs
    torch.nn.functional.layer_norm(x, (5,), weight, bias).sin().sum().backward()
    for mine, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(mine, other.grad.numpy(), rtol=1e-9, atol=1e-12)


def test_hessian_of_layer_norm_against_torch() -> None:
    torch = pytest.importorskip("torch")
    arrays = [apart(1, (2, 3)), apart(2, (3,)), apart(3, (3,))]
    leaves = [buffer(f"x{i}", array) for i, array in enumerate(arrays)]
    (dx,) = gradient(total(unary(Op.SIN, layer_norm(*leaves))), leaves[:1])
    assert dx is not None
    found = gradient(total(dx * dx), leaves)
    theirs = [torch.tensor(array, requires_grad=True) for array in arrays]
    y = torch.nn.functional.layer_norm(theirs[0], (3,), *theirs[1:]).sin().sum()
    (first,) = torch.autograd.grad(y, theirs[:1], create_graph=True)
    (first * first).sum().backward()
    for mine, other in zip(found, theirs, strict=True):
        assert mine is not None
        (value,) = evaluate([mine], dict(zip(leaves, arrays, strict=True)))
        np.testing.assert_allclose(value, other.grad.numpy(), rtol=1e-8, atol=1e-10)
