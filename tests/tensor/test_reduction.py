"""Reductions, prefix sums and products against NumPy and PyTorch."""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import lamina as lm
from lamina.errors import ArgumentError, AxisError, ShapeError

shapes = hnp.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=4)
elements = st.floats(-100, 100, width=32)


@given(st.data(), shapes, st.booleans())
def test_reductions(data: st.DataObject, shape: tuple[int, ...], keepdims: bool) -> None:
    x = data.draw(hnp.arrays(np.float32, shape, elements=elements))
    t = lm.asarray(x)
    axis = data.draw(st.sampled_from([None, 0, -1, (), tuple(range(len(shape)))]))
    names = ["sum", "prod", "any", "all"]
    count = np.prod([shape[one] for one in np.arange(len(shape))[axis_key(axis)]])
    if count:
        names += ["max", "min", "mean", "var", "std"]
    for name in names:
        got = getattr(lm, name)(t, axis=axis, keepdims=keepdims).numpy()
        wide = x.astype(np.float64) if name in ("mean", "var", "std", "prod", "sum") else x
        want = getattr(np, name)(wide, axis=axis, keepdims=keepdims)
        assert got.shape == np.shape(want)
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=2e-3)


def axis_key(axis: object) -> object:
    return slice(None) if axis is None else list(axis) if isinstance(axis, tuple) else [axis]


def test_dtypes_of_totals() -> None:
    assert lm.ones(2, dtype=lm.int8).sum().dtype is lm.int64
    assert lm.ones(2, dtype=lm.uint8).prod().dtype is lm.uint64
    assert lm.ones(2, dtype=lm.bool).sum().item() == 2
    assert lm.ones(2, dtype=lm.float16).sum().dtype is lm.float16
    assert lm.ones(2, dtype=lm.int32).mean().dtype is lm.float32
    assert lm.ones(2, dtype=lm.int8).sum(dtype=lm.int8).dtype is lm.int8
    assert lm.ones(2, dtype=lm.int8).max().dtype is lm.int8


def test_low_precision_adds_up_in_float32() -> None:
    assert lm.ones(5000, dtype=lm.bfloat16).sum().item() == 4992  # rounded once
    small = lm.full((4096,), 0.125, dtype=lm.float16)
    assert small.sum().item() == 512
    product = lm.ones((1, 5000), dtype=lm.bfloat16) @ lm.ones((5000, 1), dtype=lm.bfloat16)
    assert product.item() == 4992


@given(st.data(), hnp.array_shapes(min_dims=1, max_dims=3, max_side=4))
def test_searching(data: st.DataObject, shape: tuple[int, ...]) -> None:
    values = st.sampled_from([-1.0, 0.0, 1.0, math.nan, math.inf])
    x = data.draw(hnp.arrays(np.float32, shape, elements=values))
    t = lm.asarray(x)
    for axis in (None, 0, -1):
        assert np.array_equal(lm.argmax(t, axis=axis).numpy(), np.argmax(x, axis))
        assert np.array_equal(lm.argmin(t, axis=axis).numpy(), np.argmin(x, axis))
        got = lm.count_nonzero(t, axis=axis)
        assert np.array_equal(got.numpy(), np.count_nonzero(x, axis))
    assert lm.argmax(t, keepdims=True).shape == (1,) * len(shape)


@given(st.data(), shapes)
def test_prefixes(data: st.DataObject, shape: tuple[int, ...]) -> None:
    x = data.draw(hnp.arrays(np.int64, shape, elements=st.integers(-3, 3)))
    t = lm.asarray(x)
    for axis in range(len(shape)):
        cases = [
            (lm.cumulative_sum(t, axis=axis), np.cumsum(x, axis)),
            (lm.cumulative_prod(t, axis=axis), np.cumprod(x, axis)),
            (lm.cummax(t, axis), np.maximum.accumulate(x, axis)),
            (lm.cummin(t, axis), np.minimum.accumulate(x, axis)),
        ]
        for got, want in cases:
            assert np.array_equal(got.numpy(), want)
    padded = lm.cumulative_sum(t, axis=0, include_initial=True)
    assert np.array_equal(padded.numpy()[1:], np.cumsum(x, 0))
    assert not padded.numpy()[0].any()
    least = lm.cummax(t, 0, include_initial=True, dtype=lm.int32)
    first = np.full((1, *shape[1:]), np.iinfo(np.int32).min)
    assert np.array_equal(least.numpy(), np.maximum.accumulate(np.concatenate([first, x]), 0))


TORCH_NAMES = {
    "max": "amax", "min": "amin", "cumulative_sum": "cumsum", "cumulative_prod": "cumprod",
    "norm": "linalg.vector_norm",
}  # fmt: skip


@pytest.mark.parametrize("axis", [0, -1])
@pytest.mark.parametrize("name", [
    "sum", "prod", "mean", "max", "min", "argmax", "argmin", "all", "any", "count_nonzero", "norm",
    "logsumexp", "softmax", "log_softmax", "sort", "argsort", "topk", "cumulative_sum",
    "cumulative_prod", "cummax", "cummin",
])  # fmt: skip
def test_an_array_without_axes_has_one_to_reduce(name: str, axis: int) -> None:
    torch = pytest.importorskip("torch")
    theirs = operator.attrgetter(TORCH_NAMES.get(name, name))(torch)
    count = (1,) if name == "topk" else ()
    for value in (2.5, np.nan, -np.inf):
        expected = theirs(torch.tensor(value), *count, dim=axis)
        result = getattr(lm, name)(lm.asarray(value), *count, axis=axis)
        if name in ("sort", "topk", "cummax", "cummin"):
            expected = expected.values
        if name == "topk":
            assert result.indices.tolist() == 0
            result = result.values
        np.testing.assert_array_equal(result.numpy(), expected.numpy())
        assert result.shape == ()


def test_other_forms_for_arrays_without_axes() -> None:
    x = lm.asarray(2.5)
    assert lm.var(x, axis=0).item() == 0.0
    assert lm.sum(x, axis=(-1,), keepdims=True).shape == ()
    assert lm.cumulative_sum(x, include_initial=True).tolist() == [0.0, 2.5]  # as in NumPy
    assert lm.topk(x, 0).values.shape == (0,)
    (slope,) = lm.gradient(lm.cumulative_prod(x, axis=0) * lm.sort(x), [x])
    assert slope.item() == 5.0
    compiled = lm.jit(lambda a: lm.softmax(lm.sort(a, axis=0), axis=-1) + lm.max(a, axis=0))
    assert compiled(x).item() == 3.5
    for wrong in (1, -2, (0, -1)):
        with pytest.raises(AxisError, match="rank 0"):
            lm.sum(x, axis=wrong)
    with pytest.raises(AxisError, match="rank 0"):
        lm.sort(x, axis=1)


@pytest.mark.parametrize("ord", ["fro", 1, -1, math.inf, -math.inf])
@pytest.mark.parametrize("keepdims", [True, False])
@pytest.mark.parametrize("axis", [(-2, -1), (2, 0), (0, 1)])
def test_norms_of_matrices(ord: Any, axis: tuple[int, int], keepdims: bool) -> None:
    x = np.random.default_rng(0).normal(size=(3, 4, 5))
    got = lm.matrix_norm(lm.asarray(x), ord, axis, keepdims)
    expected = np.linalg.norm(x, ord, axis, keepdims)
    np.testing.assert_allclose(got.numpy(), expected, 1e-12)


def test_norms_that_are_not_offered() -> None:
    x = lm.ones((2, 3))
    assert lm.norm(x, "fro").item() == lm.norm(x).item()
    with pytest.raises(ArgumentError, match="'nuc'"):
        lm.norm(x, "nuc")
    with pytest.raises(ArgumentError, match="ord=2"):
        lm.matrix_norm(x, 2)


def test_softmax_and_logsumexp_are_pytorchs() -> None:
    torch = pytest.importorskip("torch")
    x = np.array([[1.0, 2.0, 3.0], [1000.0, 0.0, -1000.0], [-np.inf, 0.0, 1.0]])
    t, tt = lm.asarray(x), torch.tensor(x)
    for got, want in [
        (t.softmax(), tt.softmax(-1)),
        (t.softmax(0), tt.softmax(0)),
        (t.log_softmax(), tt.log_softmax(-1)),
        (t.logsumexp(axis=1), tt.logsumexp(1)),
        (t[:2].norm(), torch.linalg.vector_norm(tt[:2])),
        (t[:2].norm(3, axis=1), torch.linalg.vector_norm(tt[:2], 3, 1)),
        (t[:2].norm(math.inf, axis=0), torch.linalg.vector_norm(tt[:2], math.inf, 0)),
        (t[:2].std(axis=1, correction=1), tt[:2].std(1)),
    ]:
        np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-12)
    assert lm.full((2,), -math.inf).logsumexp().item() == -math.inf
    assert lm.asarray([math.inf, 0.0]).logsumexp().item() == math.inf


@pytest.mark.parametrize("name", ["softmax", "log_softmax", "logsumexp", "var", "std", "norm"])
def test_derivatives(name: str) -> None:
    torch = pytest.importorskip("torch")
    x = np.random.default_rng(0).normal(size=(3, 4))
    weight = np.random.default_rng(1).normal(size=(3, 4))

    def mine(a: lm.Tensor) -> lm.Tensor:
        y = getattr(lm, name)(a, axis=1)
        return (y * (lm.asarray(weight) if y.ndim == 2 else lm.asarray(weight[:, 0]))).sum()

    t = torch.tensor(x, requires_grad=True)
    options = {"var": {"correction": 0}, "std": {"correction": 0}}.get(name, {})
    y = getattr(torch, name)(t, dim=1, **options)
    (y * torch.tensor(weight if y.ndim == 2 else weight[:, 0])).sum().backward()
    np.testing.assert_allclose(lm.grad(mine)(lm.asarray(x)).numpy(), t.grad.numpy(), rtol=1e-9)


@pytest.mark.parametrize(("left", "right"), [
    ((3,), (3,)), ((3,), (3, 4)), ((2, 3), (3,)), ((2, 3), (3, 4)), ((5, 2, 3), (3, 4)),
    ((3,), (5, 3, 4)), ((5, 2, 3), (3,)), ((5, 1, 2, 3), (4, 3, 2)), ((2, 0), (0, 3)),
    ((0, 3), (3, 2)),
])  # fmt: skip
def test_matmul(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    generator = np.random.default_rng(0)
    a, b = generator.integers(-5, 5, left), generator.integers(-5, 5, right)
    assert np.array_equal((lm.asarray(a) @ lm.asarray(b)).numpy(), a @ b)
    got = lm.asarray(a + 1j) @ lm.asarray(b * 1j)
    np.testing.assert_allclose(got.numpy(), (a + 1j) @ (b * 1j))


def test_matmul_errors() -> None:
    with pytest.raises(ShapeError) as caught:
        lm.ones((3, 4)) @ lm.ones((5, 6))
    first, second = str(caught.value).split("\n")
    assert first == "matmul: (3, 4) @ (5, 6): inner sizes 4 and 5 differ"
    assert "test_reduction.py" in second
    with pytest.raises(ShapeError, match="matmul"):
        lm.ones(()) @ lm.ones(2)


def test_other_products() -> None:
    generator = np.random.default_rng(0)
    a, b = generator.integers(-5, 5, (2, 3, 4)), generator.integers(-5, 5, (4, 3, 5))
    for axes in (1, 0, ([1, 2], [1, 0]), ([2], [0])):
        got = lm.tensordot(lm.asarray(a), lm.asarray(b), axes=axes)
        assert np.array_equal(got.numpy(), np.tensordot(a, b, axes))
    z = a + 1j * a[::-1]
    np.testing.assert_allclose(lm.vecdot(lm.asarray(z), lm.asarray(a)).numpy(), np.vecdot(z, a))
    with pytest.raises(ShapeError, match="tensordot"):
        lm.tensordot(lm.asarray(a), lm.asarray(b), axes=2)


def test_errors() -> None:
    with pytest.raises(AxisError, match="sum: axis 2"):
        lm.ones((2, 2)).sum(axis=2)
    with pytest.raises(AxisError, match="twice"):
        lm.ones((2, 2)).sum(axis=(0, -2))
    with pytest.raises(ShapeError, match="no elements"):
        lm.ones((2, 0)).max(axis=1)
    with pytest.raises(ShapeError, match="no elements"):
        lm.ones((0,)).argmax()
