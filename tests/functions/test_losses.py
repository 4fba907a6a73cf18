"""Losses against closed forms and PyTorch."""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lamina as lm
from lamina.core import dtypes
from lamina.errors import ArgumentError, DTypeError, ShapeError
from lamina.frontend.differentiate import gradient
from lamina.frontend.functions import neural as losses
from lamina.frontend.tensor import Tensor
from tests.functions.agreement import agree_with_differences, agree_with_torch, normals

Array = np.ndarray
REDUCTIONS = ["none", "mean", "sum"]


def softmax(x: Array) -> Array:
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def test_cross_entropy_is_its_definition() -> None:
    x, target = normals(4, 3), np.array([0, 2, 1, 1])
    rows = -np.log(softmax(x)[np.arange(4), target])
    got = losses.cross_entropy(Tensor(x), Tensor(target), reduction="none")
    np.testing.assert_allclose(got.numpy(), rows)
    mean = losses.cross_entropy(Tensor(x), Tensor(target))
    np.testing.assert_allclose(mean.numpy(), rows.mean())
    leaf = Tensor(x)
    (dx,) = gradient(losses.cross_entropy(leaf, Tensor(target)), [leaf])
    np.testing.assert_allclose(dx.numpy(), (softmax(x) - np.eye(3)[target]) / 4)


def test_cross_entropy_keeps_small_losses_of_large_logits() -> None:
    x = Tensor(np.array([[1000.0, 990.0]], np.float32))
    loss = losses.cross_entropy(x, Tensor([0])).item()
    assert loss == pytest.approx(math.log1p(math.exp(-10.0)), rel=1e-2)


def test_cross_entropy_of_impossible_classes_is_finite_elsewhere() -> None:
    x = Tensor(np.array([[0.0, -np.inf, 1.0]]))
    loss = losses.cross_entropy(x, Tensor([0]))
    assert loss.item() == pytest.approx(math.log(1 + math.e))
    (dx,) = gradient(loss, [x])
    assert dx.numpy()[0, 1] == 0.0
    assert np.all(np.isfinite(dx.numpy()))


@settings(max_examples=60)
@given(st.data())
def test_cross_entropy_against_torch(data: Any) -> None:
    torch = pytest.importorskip("torch")
    classes = data.draw(st.integers(1, 4))
    rest = tuple(data.draw(st.lists(st.integers(1, 3), max_size=3)))
    shape = (classes,) if data.draw(st.booleans()) and not rest else (2, classes, *rest)
    without = shape[:-1] if len(shape) == 1 else (shape[0], *rest)
    rng = np.random.default_rng(data.draw(st.integers(0, 5)))
    options: dict[str, Any] = {
        "reduction": data.draw(st.sampled_from(REDUCTIONS)),
        "label_smoothing": data.draw(st.sampled_from([0.0, 0.0, 0.1, 1.0])),
    }
    weight = rng.uniform(0.5, 2.0, classes) if data.draw(st.booleans()) else None
    x = rng.normal(size=shape)
    if data.draw(st.booleans()):
        target = rng.uniform(size=shape)
    else:
        target = np.asarray(rng.integers(0, classes, without))
        options["ignore_index"] = data.draw(st.sampled_from([-100, classes - 1]))
        if np.all(target == options["ignore_index"]) and options["reduction"] == "mean":
            return  # 0 / 0; below
    if weight is not None and target.dtype.kind == "i":
        agree_weightless(torch, x, target, weight, options)
        return
    agree_with_torch(
        lambda a, t, w: losses.cross_entropy(a, t, w, **options),
        lambda a, t, w: torch.nn.functional.cross_entropy(a, t, w, **options),
        x, target, weight,
    )  # fmt: skip


def agree_weightless(
    torch: Any, x: Array, target: Array, weight: Array, options: dict[str, Any]
) -> None:
    """PyTorch has no derivative by the weights of integer classes."""
    agree_with_torch(
        lambda a, t: losses.cross_entropy(a, t, Tensor(weight), **options),
        lambda a, t: torch.nn.functional.cross_entropy(a, t, torch.tensor(weight), **options),
        x,
        target,
    )


def test_a_class_that_no_target_can_name_ignores_none() -> None:
    x, classes = lm.random.normal((3, 256), seed=0), lm.asarray([156, 0, 156])
    narrow = classes.cast(lm.uint8)  # where -100 would be 156
    for loss in (losses.cross_entropy, losses.nll_loss):
        assert loss(x, narrow).item() == pytest.approx(loss(x, classes).item(), rel=1e-6) != 0.0


def test_all_classes_ignored() -> None:
    x, target = Tensor(normals(2, 3)), Tensor([1, 1])
    assert math.isnan(losses.cross_entropy(x, target, ignore_index=1).item())
    assert losses.cross_entropy(x, target, ignore_index=1, reduction="sum").item() == 0.0


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("shape", [(3,), (4, 3), (2, 3, 2, 2)])
def test_nll_loss_against_torch(shape: tuple[int, ...], weighted: bool, reduction: str) -> None:
    torch = pytest.importorskip("torch")
    target = np.random.default_rng(0).integers(0, 3, shape[:1] * (len(shape) > 1) + shape[2:])
    weight = np.array([0.5, 1.5, 2.0]) if weighted else None
    agree_with_torch(
        lambda a, t: losses.nll_loss(
            a, t, None if weight is None else Tensor(weight), 1, reduction
        ),
        lambda a, t: torch.nn.functional.nll_loss(
            a, t, None if weight is None else torch.tensor(weight), ignore_index=1,
            reduction=reduction,
        ),
        normals(*shape), np.asarray(target),
    )  # fmt: skip


REGRESSION: list[tuple[str, dict[str, Any]]] = [
    ("mse_loss", {}), ("l1_loss", {}), ("huber_loss", {}), ("huber_loss", {"delta": 0.3}),
    ("smooth_l1_loss", {}), ("smooth_l1_loss", {"beta": 0.4}), ("smooth_l1_loss", {"beta": 0.0}),
]  # fmt: skip


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("shape", [(), (3, 4), (1,)])
@pytest.mark.parametrize(("name", "options"), REGRESSION)
def test_regression_against_torch(
    name: str, options: dict[str, Any], shape: tuple[int, ...], reduction: str
) -> None:
    torch = pytest.importorskip("torch")
    mine, other = getattr(losses, name), getattr(torch.nn.functional, name)
    agree_with_torch(
        lambda a, b: mine(a, b, reduction=reduction, **options),
        lambda a, b: other(a, b, reduction=reduction, **options),
        normals(*shape), normals(*shape, seed=1),
    )  # fmt: skip


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("name", ["mse_loss", "l1_loss", "huber_loss"])
def test_weighted_regression_against_torch(name: str, reduction: str) -> None:
    torch = pytest.importorskip("torch")
    mine, other = getattr(losses, name), getattr(torch.nn.functional, name)
    agree_with_torch(
        lambda a, b, w: mine(a, b, reduction=reduction, weight=w),
        lambda a, b, w: other(a, b, reduction=reduction, weight=w),
        normals(3, 4), normals(3, 4, seed=1), abs(normals(3, 4, seed=2)),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("name", "value"),
    [("mse_loss", 2.5), ("l1_loss", 1.5), ("huber_loss", 1.0), ("smooth_l1_loss", 1.0)],
)
def test_regression_values(name: str, value: float) -> None:
    x, target = Tensor([1.0, 2.0]), Tensor([0.0, 0.0])
    assert getattr(losses, name)(x, target).item() == value
    agree_with_differences(getattr(losses, name), normals(3), normals(3, seed=1))


@pytest.mark.parametrize("name", ["huber_loss", "smooth_l1_loss"])
def test_small_distances_are_squared_at_0_too(name: str) -> None:
    x = Tensor([0.0, 0.5, -0.0])
    (slope,) = gradient(getattr(losses, name)(x, Tensor([0.0, 0.0, 0.0]), "sum"), [x])
    assert gradient(slope.sum(), [x])[0].tolist() == [1.0, 1.0, 1.0]


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("weighted", [True, False])
def test_binary_cross_entropy_against_torch(weighted: bool, reduction: str) -> None:
    torch = pytest.importorskip("torch")
    x, target = normals(3, 4) * 4, np.random.default_rng(1).uniform(size=(3, 4))
    x[0, 0], target[0, :2] = 0.0, (0.0, 1.0)
    weight = np.random.default_rng(2).uniform(size=(3, 1)) if weighted else None
    positive = np.random.default_rng(3).uniform(0.5, 2, size=4) if weighted else None
    f = torch.nn.functional
    # PyTorch has no derivatives by the factors.
    mine = [None if one is None else Tensor(one) for one in (weight, positive)]
    other = [None if one is None else torch.tensor(one) for one in (weight, positive)]
    agree_with_torch(
        lambda a, t: losses.binary_cross_entropy_with_logits(a, t, mine[0], reduction, mine[1]),
        lambda a, t: f.binary_cross_entropy_with_logits(
            a, t, other[0], reduction=reduction, pos_weight=other[1]
        ),
        x, target,
    )  # fmt: skip
    chances = 1 / (1 + np.exp(-x))
    agree_with_torch(
        lambda a: losses.binary_cross_entropy(a, Tensor(target), mine[0], reduction),
        lambda a: f.binary_cross_entropy(
            a, torch.tensor(target), other[0], reduction=reduction
        ),
        chances,
    )


def test_certain_answers_have_finite_losses() -> None:
    x, target = Tensor(np.array([0.0, 1.0, 0.0, 1.0])), Tensor(np.array([1.0, 0.0, 0.0, 1.0]))
    result = losses.binary_cross_entropy(x, target, reduction="none")
    assert result.tolist() == [100.0, 100.0, 0.0, 0.0]
    (dx,) = gradient(result, [x], Tensor(np.ones(4)))
    assert np.all(np.isfinite(dx.numpy()))
    faint = Tensor(np.array([1e-39], np.float32))
    (dx,) = gradient(losses.binary_cross_entropy(faint, Tensor([1.0])), [faint])
    assert np.all(np.isfinite(dx.numpy()))
    huge = Tensor(np.array([1000.0, -1000.0]))
    ones = Tensor(np.ones(2))
    logits = losses.binary_cross_entropy_with_logits(huge, ones, reduction="none")
    assert logits.tolist() == [0.0, 1000.0]
    (dx,) = gradient(logits, [huge], ones)
    assert dx.tolist() == [0.0, -1.0]


def test_chances_that_are_no_numbers_have_no_loss() -> None:
    x, target = Tensor([math.nan, 0.5]), Tensor([1.0, 1.0])
    losses_of = losses.binary_cross_entropy(x, target, reduction="none").tolist()
    assert math.isnan(losses_of[0])
    assert losses_of[1] == pytest.approx(math.log(2.0))


@pytest.mark.parametrize("reduction", [*REDUCTIONS, "batchmean"])
@pytest.mark.parametrize("log_target", [True, False])
def test_kl_div_against_torch(log_target: bool, reduction: str) -> None:
    torch = pytest.importorskip("torch")
    x, target = np.log(softmax(normals(3, 4))), softmax(normals(3, 4, seed=1))
    other = functools.partial(
        torch.nn.functional.kl_div, reduction=reduction, log_target=log_target
    )
    with warnings.catch_warnings(action="ignore"):  # PyTorch advises against 'mean'
        agree_with_torch(
            lambda a, t: losses.kl_div(a, t, reduction, log_target),
            other,
            x,
            np.log(target) if log_target else target,
        )


def test_kl_div_of_zero_chance() -> None:
    x = Tensor(np.log([0.5, 0.5]))
    result = losses.kl_div(x, Tensor(np.array([1.0, 0.0])), "sum")
    assert result.item() == pytest.approx(math.log(2))
    (dx,) = gradient(result, [x])
    assert dx.tolist() == [-1.0, 0.0]


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_cosine_similarity_against_torch(axis: int) -> None:
    torch = pytest.importorskip("torch")
    agree_with_torch(
        lambda a, b: losses.cosine_similarity(a, b, axis),
        lambda a, b: torch.nn.functional.cosine_similarity(a, b, axis),
        normals(3, 4), normals(3, 4, seed=1), tolerance=1e-7,
    )  # fmt: skip


def test_cosine_similarity_of_what_broadcasts() -> None:
    torch = pytest.importorskip("torch")
    for axis, other in ((0, (1, 4)), (1, (3, 1)), (1, (4,)), (0, ())):
        agree_with_torch(
            lambda a, b, axis=axis: losses.cosine_similarity(a, b, axis),
            lambda a, b, axis=axis: torch.nn.functional.cosine_similarity(a, b, axis),
            normals(3, 4), normals(*other, seed=1), tolerance=1e-7,
        )  # fmt: skip


def test_cosine_similarity_of_zero() -> None:
    x, y = Tensor(np.zeros((1, 3))), Tensor(np.ones((1, 3)))
    result = losses.cosine_similarity(x, y)
    assert result.tolist() == [0.0]
    (dx,) = gradient(result, [x], Tensor(np.ones(1)))
    assert np.all(np.isfinite(dx.numpy()))


def test_halves_are_computed_in_float32() -> None:
    x = Tensor(np.zeros((2, 40000)), dtypes.float16)
    loss = losses.mse_loss(x, x + 0.5)
    assert loss.dtype is dtypes.float16
    assert loss.item() == 0.25
    assert losses.mse_loss(x, x + 2.0, "sum").item() == math.inf  # 320000 is no float16
    classes = losses.cross_entropy(x, Tensor([1, 2]))
    assert classes.item() == pytest.approx(math.log(40000), rel=1e-3)


CALLS: list[tuple[Callable[..., Tensor], tuple[Any, ...], type[Exception], str]] = [
    (losses.cross_entropy, (Tensor([[1.0, 2.0]]), Tensor([1, 1])), ShapeError, "classes of shape"),
    (losses.cross_entropy, (Tensor(1.0), Tensor(1)), ShapeError, "no classes"),
    (losses.cross_entropy, (Tensor([[1, 2]]), Tensor([1])), DTypeError, "float"),
    (losses.cross_entropy, (Tensor([[1.0, 2.0]]), Tensor([[0.5]])), ShapeError, "differ"),
    (losses.cross_entropy, (Tensor([[1.0]]), Tensor([0]), Tensor([1.0, 2.0])), ShapeError,
     "weight"),
    (losses.mse_loss, (Tensor([1.0]), Tensor([1.0]), "most"), ArgumentError, "most"),
    (losses.huber_loss, (Tensor([1.0]), Tensor([1.0]), "mean", 0.0), ArgumentError, "delta"),
    (losses.binary_cross_entropy, (Tensor([0.5]), Tensor([[1.0]])), ShapeError, "differ"),
]  # fmt: skip


@pytest.mark.parametrize(("function", "arguments", "error", "message"), CALLS)
def test_errors(
    function: Callable[..., Tensor], arguments: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        function(*arguments)
