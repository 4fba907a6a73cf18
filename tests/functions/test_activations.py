"""Activations that are made of others, linear functions and kinds of dropout, against PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lamina as lm
from lamina import Tensor
from lamina.errors import ArgumentError, ShapeError
from tests.functions.agreement import agree_with_torch, normals

torch = pytest.importorskip("torch")
F = torch.nn.functional

# Corners of all of them, and NaN and the infinities.
KINKS = np.array([-3.0, -1.0, -0.5, -0.1, -0.0, 0.0, 0.1, 0.25, 0.5, 1.0, 3.0])
EXTREME = np.array([np.nan, np.inf, -np.inf, 800.0, -800.0])


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("celu", ()), ("celu", (0.3,)), ("hardshrink", ()), ("hardshrink", (0.1,)),
        ("hardtanh", ()), ("hardtanh", (-0.5, 0.25)), ("rrelu", ()), ("selu", ()),
        ("softshrink", ()), ("softshrink", (0.1,)), ("tanhshrink", ()), ("threshold", (0.1, 7.0)),
    ],
)  # fmt: skip
def test_activations_and_their_slopes_are_pytorchs(name: str, arguments: tuple[Any, ...]) -> None:
    def ours(x: Any) -> Any:
        return getattr(lm, name)(x, *arguments)

    def theirs(x: Any) -> Any:
        return getattr(F, name)(x, *arguments)

    agree_with_torch(ours, theirs, KINKS, tolerance=1e-6)  # its constants are float32
    agree_with_torch(ours, theirs, EXTREME, differentiate=False, tolerance=1e-6)


def test_glu_and_softmin_agree_along_every_axis() -> None:
    x = normals(4, 6)
    for axis in (0, 1, -1):
        agree_with_torch(
            lambda a, axis=axis: lm.glu(a, axis), lambda a, axis=axis: F.glu(a, axis), x
        )
        agree_with_torch(
            lambda a, axis=axis: lm.softmin(a, axis), lambda a, axis=axis: F.softmin(a, axis), x
        )
    assert lm.softmin(Tensor(x), 1, dtype=lm.float32).dtype is lm.float32


@pytest.mark.parametrize(
    ("shape", "channels"), [((2, 3, 4), 3), ((2, 3), 3), ((2, 3), 1), ((4,), 1), ((), 1)]
)
def test_prelu_has_a_slope_for_each_channel(shape: tuple[int, ...], channels: int) -> None:
    agree_with_torch(lm.prelu, F.prelu, normals(*shape), normals(channels, seed=1))


def test_rrelu_draws_slopes_from_its_range_while_training() -> None:
    x = -lm.ones((1000,))
    slopes = -lm.rrelu(x, 0.2, 0.4, training=True, seed=3).numpy()
    assert slopes.min() >= 0.2
    assert slopes.max() <= 0.4
    assert slopes.mean() == pytest.approx(0.3, abs=0.01)
    assert np.unique(slopes).size > 900


def test_gumbel_softmax_draws_classes_as_often_as_their_probabilities() -> None:
    chances = np.array([0.1, 0.2, 0.7])
    logits = Tensor(np.log(np.tile(chances, (4000, 1))))
    soft = lm.gumbel_softmax(logits, tau=0.5, seed=1)
    np.testing.assert_allclose(soft.numpy().sum(-1), 1.0)
    counts = np.bincount(soft.numpy().argmax(-1), minlength=3) / 4000
    np.testing.assert_allclose(counts, chances, atol=0.03)
    hard = lm.gumbel_softmax(logits, tau=0.5, hard=True, seed=1)
    np.testing.assert_allclose(hard.numpy(), np.eye(3)[soft.numpy().argmax(-1)], atol=1e-12)
    weights = Tensor(normals(3))
    slopes = [lm.gradient((one * weights).sum(), logits)[0].numpy() for one in (soft, hard)]
    np.testing.assert_allclose(*slopes)
    first = lm.gumbel_softmax(logits.T, hard=True, axis=0, seed=1)
    np.testing.assert_allclose(first.numpy().sum(0), 1.0)


def test_linear_functions_agree() -> None:
    weight = normals(5, 4, seed=1)
    agree_with_torch(lm.linear, F.linear, normals(2, 3, 4), weight, normals(5, seed=2))
    agree_with_torch(lm.linear, F.linear, normals(4), weight)
    agree_with_torch(lm.linear, F.linear, normals(3, 4), normals(4, seed=1))
    operands = normals(2, 3, 4), normals(2, 3, 5, seed=1), normals(6, 4, 5, seed=2)
    agree_with_torch(lm.bilinear, F.bilinear, *operands, normals(6, seed=3))


@pytest.mark.parametrize("p", [1.0, 2.0, 3.0])
def test_normalize_agrees(p: float) -> None:
    agree_with_torch(
        lambda x: lm.normalize(x, p, axis=-1), lambda x: F.normalize(x, p, dim=-1), normals(3, 4)
    )
    zeros = np.zeros((2, 3))
    agree_with_torch(lm.normalize, F.normalize, zeros, differentiate=False)


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_channels_are_dropped_as_a_whole(rank: int) -> None:
    drop = getattr(lm, f"dropout{rank}d")
    x = lm.ones((40, 50, *[2] * rank))
    result = drop(x, 0.3, seed=1).numpy().reshape(2000, -1)
    assert (result == result[:, :1]).all()
    np.testing.assert_allclose(np.unique(result), [0.0, 1.0 / 0.7], rtol=1e-6)
    assert (result[:, 0] == 0.0).mean() == pytest.approx(0.3, abs=0.03)
    np.testing.assert_array_equal(drop(x, 0.3, training=False).numpy(), 1.0)
    assert not drop(x[0], 1.0).numpy().any()


@pytest.mark.parametrize("name", ["alpha_dropout", "feature_alpha_dropout"])
def test_alpha_dropout_keeps_mean_and_variance(name: str) -> None:
    drop = getattr(lm, name)
    x = Tensor(normals(100, 100, 2))
    result = drop(x, 0.4, training=True, seed=2).numpy()
    assert result.mean() == pytest.approx(0.0, abs=0.03)
    assert result.std() == pytest.approx(1.0, abs=0.03)
    values, counts = np.unique(result, return_counts=True)
    dropped = result == values[counts.argmax()]
    assert dropped.mean() == pytest.approx(0.4, abs=0.03)
    whole = (dropped[..., 0] == dropped[..., 1]).all()
    assert whole == (name == "feature_alpha_dropout")
    np.testing.assert_array_equal(drop(x, 0.4).numpy(), x.numpy())
    assert drop(lm.asarray(2.0), 0.4).item() == 2.0
    torch.manual_seed(0)
    theirs = getattr(F, name)(torch.ones(50, 50), 0.4, training=True).unique()
    ours = np.unique(drop(lm.ones((50, 50)), 0.4, training=True).numpy())
    np.testing.assert_allclose(ours, theirs.numpy(), rtol=1e-5)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda x: lm.hardtanh(x, 1.0, -1.0), ArgumentError, "above"),
        (lambda x: lm.celu(x, 0.0), ArgumentError, "alpha=0.0"),
        (lambda x: lm.softshrink(x, -1.0), ArgumentError, "lambd=-1.0"),
        (lambda x: lm.glu(x, 0), ShapeError, r"3 elements along axis 0 of \(3, 4\)"),
        (lambda x: lm.prelu(x, lm.ones((3,))), ShapeError, r"\(3,\) for 4 channels"),
        (lambda x: lm.gumbel_softmax(x, 0.0), ArgumentError, "tau=0.0"),
        (lambda x: lm.rrelu(x, 0.5, 0.1), ArgumentError, "lower=0.5"),
        (lambda x: lm.linear(x, lm.ones((2, 3))), ShapeError, r"\(3, 4\) and weight \(2, 3\)"),
        (lambda x: lm.linear(x, lm.ones((2, 4)), lm.ones((3,))), ShapeError, r"\(3,\), not \(2,\)"),
        (lambda x: lm.bilinear(x, x, lm.ones((2, 4, 3))), ShapeError, r"weight \(2, 4, 3\)"),
        (lambda x: lm.dropout2d(x, 0.5), ShapeError, r"\(3, 4\), not"),
        (lambda x: lm.alpha_dropout(x, 2.0, True), ArgumentError, "p=2.0"),
        (lambda x: lm.feature_alpha_dropout(x[0], 0.5, True), ShapeError, "no channels"),
    ],
)  # fmt: skip
def test_misuse_is_named(
    call: Callable[[Tensor], Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        call(lm.ones((3, 4)))
