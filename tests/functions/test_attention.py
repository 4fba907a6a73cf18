"""Attention against its definition and PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lamina.core import dtypes
from lamina.errors import DTypeError, ShapeError
from lamina.frontend.differentiate import gradient
from lamina.frontend.functions.attention import scaled_dot_product_attention as attention
from lamina.frontend.realize import opened_as_computed
from lamina.frontend.tensor import Tensor
from lamina.ir.node import toposort
from lamina.ir.products import product_of
from tests.functions.agreement import agree_with_differences, agree_with_torch, normals

Array = np.ndarray


def definition(q: Array, k: Array, v: Array, mask: Array | float = 0.0) -> Array:
    scores = np.exp(q @ np.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1]) + mask)
    return scores / scores.sum(-1, keepdims=True) @ v


def inputs(batch: tuple[int, ...] = (2,), length: int = 3, keys: int = 4) -> tuple[Array, ...]:
    return (
        normals(*batch, length, 5),
        normals(*batch, keys, 5, seed=1),
        normals(*batch, keys, 2, seed=2),
    )


def test_definition() -> None:
    q, k, v = inputs()
    got = attention(*map(Tensor, (q, k, v))).numpy()
    np.testing.assert_allclose(got, definition(q, k, v))
    causal = attention(*map(Tensor, (q, k, v)), is_causal=True).numpy()
    below = np.where(np.tri(3, 4) > 0, 0.0, -np.inf)
    np.testing.assert_allclose(causal, definition(q, k, v, below))


@pytest.mark.parametrize("keys", [5, 6, 40])
def test_keys_that_no_row_sees(keys: int) -> None:
    q, k, v = inputs(length=3, keys=keys)
    got = attention(*map(Tensor, (q, k, v)), is_causal=True).numpy()
    below = np.where(np.tri(3, keys) > 0, 0.0, -np.inf)
    np.testing.assert_allclose(got, definition(q, k, v, below))
    slopes = gradient(attention(*(x := [*map(Tensor, (q, k, v))]), is_causal=True).sum(), x)
    assert not slopes[2].numpy()[:, 3:].any()
    agree_with_differences(lambda *a: attention(*a, is_causal=True), *inputs((), 3, keys))


@pytest.mark.parametrize(
    ("length", "keys", "parts"), [(900, 600, 3), (1700, 283, 1), (600, 600, 2)]
)
def test_rows_that_see_all_keys_are_one_part(length: int, keys: int, parts: int) -> None:
    q, k, v = inputs((), length, keys)
    result = attention(*map(Tensor, (q, k, v)), is_causal=True)
    nodes = toposort(opened_as_computed([result.node], {}))
    assert sum(product_of(node) is not None for node in nodes) == 2 * parts
    below = np.where(np.tri(length, keys) > 0, 0.0, -np.inf)
    np.testing.assert_allclose(result.numpy(), definition(q, k, v, below))


def test_derivatives() -> None:
    agree_with_differences(lambda *a: attention(*a, is_causal=True), *inputs((), 2, 3))


@pytest.mark.parametrize(("length", "keys"), [(0, 4), (3, 0), (0, 0)])
@pytest.mark.parametrize("is_causal", [False, True])
def test_no_keys_or_no_rows(length: int, keys: int, is_causal: bool) -> None:
    x = [*map(Tensor, inputs(length=length, keys=keys))]
    result = attention(*x, is_causal=is_causal)
    np.testing.assert_array_equal(result.numpy(), np.zeros((2, length, 2)))
    for slope, one in zip(gradient(result.sum(), x), x, strict=True):
        np.testing.assert_array_equal(slope.numpy(), np.zeros(one.shape))


def test_rows_without_keys() -> None:
    q, k, v = (Tensor(one) for one in inputs())
    seen = np.ones((3, 4), bool)
    seen[1] = False
    for mask in (Tensor(seen), Tensor(np.where(seen, 0.0, -np.inf))):
        result = attention(q, k, v, mask)
        assert not result.numpy()[:, 1].any()
        whole = attention(q, k, v).numpy()
        np.testing.assert_allclose(result.numpy()[:, [0, 2]], whole[:, [0, 2]])
        derivatives = gradient(result, [q, k, v], Tensor(np.ones(result.shape)))
        for one in derivatives:
            assert np.all(np.isfinite(one.numpy()))
        assert not derivatives[0].numpy()[:, 1].any()


def test_large_scores_do_not_overflow() -> None:
    q, k, v = (one.astype(np.float32) for one in inputs())
    result = attention(Tensor(q * 1000), Tensor(k), Tensor(v)).numpy()
    assert np.all(np.isfinite(result))


def test_halves() -> None:
    q, k, v = inputs((2,), 8, 64)
    half = [Tensor(one, dtypes.bfloat16) for one in (q, k, v)]
    result = attention(*half)
    assert result.dtype is dtypes.bfloat16
    exact = definition(*(one.numpy().astype(np.float64) for one in half))
    np.testing.assert_allclose(result.numpy().astype(np.float64), exact, atol=0.01, rtol=0.02)


@pytest.mark.parametrize("dtype", [dtypes.bfloat16, dtypes.float16])
def test_derivatives_of_halves(dtype: dtypes.DType) -> None:
    """Also where what is small is divided by the sum of many weights."""
    epsilon = {"bfloat16": 2**-8, "float16": 2**-11}[dtype.name]
    for scale in (1.0, 2.0):
        q, k, v = (scale * one for one in inputs((), 40, 300))
        half = [Tensor(one, dtype) for one in (q, k, v / scale, normals(40, 2, seed=3) * 0.05)]
        wide = [Tensor(one.numpy().astype(np.float64)) for one in half]
        for got, want in zip(
            *([y, *gradient(y, ins, dy)] for *ins, dy in (half, wide) for y in [attention(*ins)]),
            strict=True,
        ):
            error = got.numpy().astype(np.float64) - want.numpy()
            assert np.linalg.norm(error) < 4 * epsilon * np.linalg.norm(want.numpy())


@pytest.mark.parametrize("dtype", [dtypes.bfloat16, dtypes.float16, dtypes.float32])
def test_a_key_of_infinite_distance_has_no_weight(dtype: dtypes.DType) -> None:
    q, k, v = inputs()
    far = k.copy()
    far[:, 1] = -np.inf
    left = [np.delete(one, 1, axis=1) for one in (k, v)]
    got, want = (
        attention(*(Tensor(one, dtype) for one in (np.abs(q), *rest))).numpy().astype(np.float64)
        for rest in ((far, v), left)
    )
    np.testing.assert_allclose(got, want, rtol=1e-2, atol=1e-2)


def test_dropout_drops_weights() -> None:
    q, k = Tensor(np.zeros((1, 50, 4))), Tensor(np.zeros((1, 40, 4)))
    v = Tensor(np.eye(40)[None])
    weights = attention(q, k, v, dropout_p=0.25).numpy() * 40
    assert abs((weights == 0).mean() - 0.25) < 0.05
    np.testing.assert_allclose(weights[weights > 0], 1 / 0.75)


@settings(max_examples=60)
@given(st.data())
def test_against_torch(data: Any) -> None:
    torch = pytest.importorskip("torch")
    groups = data.draw(st.sampled_from([None, 1, 2]))
    heads = data.draw(st.integers(1, 2))
    batch = data.draw(st.integers(0, 2))
    length, keys = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 4))
    q = normals(batch, heads * (groups or 1), length, 3)
    k, v = normals(batch, heads, keys, 3, seed=1), normals(batch, heads, keys, 2, seed=2)
    options: dict[str, Any] = {"enable_gqa": groups is not None}
    if data.draw(st.booleans()):
        options["scale"] = 0.7
    mask = None
    kind = data.draw(st.sampled_from(["none", "causal", "bool", "float"]))
    if kind == "causal":
        options["is_causal"] = True
    elif kind != "none":
        leading = data.draw(st.sampled_from([(), (1, 1), (batch, 1), (batch, q.shape[1])]))
        mask = normals(*leading, length, keys, seed=3)
        if kind == "bool":
            mask = mask > -0.5
            mask[..., 0] = True
    theirs = torch.nn.functional.scaled_dot_product_attention
    agree_with_torch(
        lambda *a: attention(*a, **options), lambda *a: theirs(*a, **options), q, k, v, mask,
    )  # fmt: skip


def test_errors() -> None:
    q, k, v = (Tensor(one) for one in inputs())
    with pytest.raises(ShapeError, match=r"query \(.* value \(.*last size"):
        attention(q, v, v)
    with pytest.raises(ShapeError, match="two axes"):
        attention(Tensor([1.0]), k, v)
    with pytest.raises(ShapeError, match="mask"):
        attention(q, k, v, Tensor(np.ones((4, 2, 3, 4), bool)))
    with pytest.raises(DTypeError, match="int64"):
        attention(Tensor([[1]]), k, v)
    with pytest.raises(ShapeError, match="heads"):
        attention(Tensor(normals(1, 3, 2, 5)), Tensor(normals(1, 2, 4, 5)),
                  Tensor(normals(1, 2, 4, 2)), enable_gqa=True)  # fmt: skip
