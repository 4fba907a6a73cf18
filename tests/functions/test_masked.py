"""Reductions with a mask: NumPy's `where`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lamina as lm
from lamina.errors import DTypeError, ShapeError
from tests.functions.agreement import agree_with_differences, normals

X = normals(3, 4)
MASK = np.array([[True, False, True, True], [False, False, True, False], [True, True, False, True]])
AXES = (None, 0, 1, (0, 1))


@pytest.mark.parametrize("axis", AXES)
@pytest.mark.parametrize("name", ["sum", "prod", "mean", "var", "std", "any", "all"])
def test_like_numpy(name: str, axis: Any) -> None:
    a = X > 0 if name in ("any", "all") else X
    want = getattr(np, name)(a, axis=axis, where=MASK, keepdims=True)
    got = getattr(lm, name)(lm.asarray(a), axis=axis, where=lm.asarray(MASK), keepdims=True)
    np.testing.assert_allclose(got.numpy(), want, rtol=1e-14)


@pytest.mark.parametrize("axis", AXES)
@pytest.mark.parametrize("name", ["max", "min"])
def test_extremes_like_numpy(name: str, axis: Any) -> None:
    """NumPy needs to be told what stands for the others."""
    nothing = -np.inf if name == "max" else np.inf
    want = getattr(np, name)(X, axis=axis, where=MASK, initial=nothing)
    assert np.array_equal(getattr(lm, name)(lm.asarray(X), axis=axis, where=MASK).numpy(), want)
    place = getattr(lm, f"arg{name}")(lm.asarray(X), axis=1, where=MASK).numpy()
    filled = np.where(MASK, X, nothing)
    assert np.array_equal(place, getattr(np, f"arg{name}")(filled, axis=1))


def test_a_mask_broadcasts_and_may_be_a_list() -> None:
    x = lm.asarray(X)
    row = [True, False, False, True]
    np.testing.assert_allclose(lm.mean(x, axis=1, where=row).numpy(), X[:, [0, 3]].mean(1))
    np.testing.assert_allclose(x.var(where=row, correction=1).item(), X[:, [0, 3]].var(ddof=1))
    assert lm.count_nonzero(x, where=row).item() == 6
    assert lm.sum(lm.asarray([1, 2, 3]), where=[True, False, True]).item() == 4
    assert lm.max(lm.asarray([1, -2], dtype=lm.int8), where=[False, False]).item() == -128


def test_softmax_of_what_a_mask_keeps() -> None:
    got = lm.softmax(lm.asarray(X), axis=1, where=MASK).numpy()
    powers = np.where(MASK, np.exp(X), 0.0)
    np.testing.assert_allclose(got, powers / powers.sum(1, keepdims=True), rtol=1e-12)
    total = lm.logsumexp(lm.asarray(X), axis=1, where=MASK).numpy()
    np.testing.assert_allclose(total, np.log(powers.sum(1)), rtol=1e-12)
    logs = lm.log_softmax(lm.asarray(X), axis=1, where=MASK).numpy()
    np.testing.assert_allclose(np.exp(logs), got, rtol=1e-12)


@pytest.mark.parametrize("name", ["sum", "prod", "mean", "var", "std", "max", "logsumexp"])
def test_derivatives(name: str) -> None:
    agree_with_differences(lambda x: getattr(lm, name)(x, axis=0, where=MASK), X)


def test_nothing_is_kept() -> None:
    none = np.zeros(4, bool)
    x = lm.asarray(X)
    assert np.isnan(lm.mean(x, where=none).item())
    assert lm.sum(x, where=none).item() == 0
    assert lm.max(x, where=none).item() == -np.inf


def test_large_sums_of_halves_do_not_overflow() -> None:
    x = lm.asarray(np.full(300, 1000.0), dtype=lm.float16)
    assert lm.mean(x, where=np.arange(300) % 3 < 2).item() == 1000.0


def test_errors() -> None:
    x = lm.asarray(X)
    with pytest.raises(DTypeError, match="mean: where=int64"):
        lm.mean(x, where=[1, 0, 1, 1])
    with pytest.raises(ShapeError, match="sum: where="):
        lm.sum(x, where=np.ones((2, 3, 4), bool))
    with pytest.raises(ShapeError, match="do not broadcast"):
        lm.sum(x, where=np.ones(3, bool))
