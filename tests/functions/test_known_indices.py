"""Indices that are known, in lists, arrays and numbers, are refused where they are out of range.
Those of tensors are not looked at, but for classes under the option `check`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lamina as lm
from lamina import nn
from lamina.core import options
from lamina.errors import AxisError

X = np.arange(12.0, dtype=np.float32).reshape(3, 4)
Use = Callable[[Any], lm.Tensor]
FORMS: list[Callable[[Any], Any]] = [list, tuple, np.array, lambda one: np.array(one, np.uint8)]


def written(key: Any) -> lm.Tensor:
    x = lm.asarray(X)
    x[key] = 1.0
    return x


# Each with the name that its error has, the axis and its size.
SIGNED: dict[str, tuple[Use, str, int, int]] = {
    "a key": (lambda i: lm.asarray(X)[np.asarray(i)], "getitem", 0, 3),
    "a key behind a slice": (lambda i: lm.asarray(X)[:, np.asarray(i)], "getitem", 1, 4),
    "a key beside another": (lambda i: lm.asarray(X)[[0], np.asarray(i)], "getitem", 1, 4),
    "a key that is written to": (lambda i: written(np.asarray(i)), "setitem", 0, 3),
    "take": (lambda i: lm.take(lm.asarray(X), i, axis=1), "take", 1, 4),
    "take_along_axis": (
        lambda i: lm.take_along_axis(lm.asarray(X), np.asarray(i)[None], axis=1),
        "take_along_axis", 1, 4),
    "gather": (lambda i: lm.gather(lm.asarray(X), 0, [i]), "gather", 0, 3),
    "scatter": (lambda i: lm.scatter(lm.asarray(X), 0, [i], 1.0), "scatter", 0, 3),
}  # fmt: skip
UNSIGNED: dict[str, tuple[Use, str, int, int]] = {
    "one_hot": (lambda i: lm.one_hot(i, 5), "one_hot", 1, 5),
    "embedding": (lambda i: lm.embedding(i, lm.asarray(X)), "embedding", 0, 3),
    "Embedding": (nn.Embedding(3, 4), "Embedding", 0, 3),
    "cross_entropy": (lambda i: lm.cross_entropy(lm.asarray(X[:2]), i), "cross_entropy", 1, 4),
    "nll_loss": (lambda i: lm.nll_loss(lm.asarray(X[:2]), i), "nll_loss", 1, 4),
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS, ids=["list", "tuple", "array", "uint8"])
@pytest.mark.parametrize("name", SIGNED | UNSIGNED)
def test_known_indices_out_of_range_are_refused(name: str, form: Callable[[Any], Any]) -> None:
    use, what, axis, size = (SIGNED | UNSIGNED)[name]
    use(form([0, size - 1])).realize()
    message = f"^{what}: index {size} is out of range for axis {axis} of size {size}"
    with pytest.raises(AxisError, match=message):
        use(form([0, size]))


@pytest.mark.parametrize("name", SIGNED)
def test_negative_indices_count_from_the_end(name: str) -> None:
    use, _, _, size = SIGNED[name]
    assert np.array_equal(use([0, -1]).numpy(), use([0, size - 1]).numpy())
    assert np.array_equal(use([0, -size]).numpy(), use([0, 0]).numpy())
    with pytest.raises(IndexError, match=f"index {-size - 1} is out of range"):
        use([0, -size - 1])


@pytest.mark.parametrize("name", UNSIGNED)
def test_rows_and_classes_are_not_negative(name: str) -> None:
    with pytest.raises(AxisError, match="index -1 is out of range"):
        UNSIGNED[name][0]([0, -1])


def test_one_index_may_be_a_number() -> None:
    with pytest.raises(AxisError, match="take: index 4"):
        lm.take(lm.asarray(X[0]), 4)
    with pytest.raises(AxisError, match="embedding: index 3"):
        lm.embedding(3, lm.asarray(X))
    with pytest.raises(AxisError, match="cross_entropy: index 4 is out of range for axis 0"):
        lm.cross_entropy(lm.asarray(X[0]), 4)
    assert lm.cross_entropy(lm.asarray(X[0]), 3).shape == ()


def test_no_indices_are_in_range() -> None:
    assert lm.asarray(X)[[]].shape == (0, 4)
    assert lm.take(lm.asarray(X), [], axis=1).shape == (3, 0)


@pytest.mark.parametrize("loss", [lm.cross_entropy, lm.nll_loss])
def test_an_ignored_class_need_not_exist(loss: Any) -> None:
    x = lm.asarray(X[:2])
    for ignored in (-100, 7):
        got = loss(x, [1, ignored], ignore_index=ignored).item()
        assert got == pytest.approx(loss(x[:1], [1]).item())


@pytest.mark.parametrize("loss", [lm.cross_entropy, lm.nll_loss])
def test_classes_of_tensors_are_checked_when_asked(loss: Any) -> None:
    x, beyond = lm.asarray(X[:2]), lm.asarray([1, 4])
    assert np.isfinite(loss(x, beyond).item())  # a class that does not exist has a logit of 0
    with options.using(check=True):
        with pytest.raises(AxisError, match=f"{loss.__name__}: index 4 is out of range for axis 1"):
            loss(x, beyond)
        loss(x, lm.asarray([1, -100])).item()
        loss(x, lm.softmax(x)).item() if loss is lm.cross_entropy else None
        traced = lm.jit(lambda x, y: loss(x, y))
        traced(x, lm.asarray([1, 2])).item()


def test_padding_rows_are_named() -> None:
    with pytest.raises(AxisError, match=r"^embedding: padding_idx=7 is out of range for 3 rows"):
        lm.embedding(lm.arange(2), lm.asarray(X), 7)
    with pytest.raises(AxisError, match=r"^Embedding: padding_idx=-4 is out of range for 3 rows"):
        nn.Embedding(3, 2, padding_idx=-4)
    rows = lm.embedding(lm.asarray([1, 2]), x := lm.asarray(X), padding_idx=-1)
    (slope,) = lm.gradient(lm.sum(rows), [x])
    assert slope.tolist() == [[0.0] * 4, [1.0] * 4, [0.0] * 4]
