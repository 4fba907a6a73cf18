"""Normalisation, dropout and lookups against NumPy formulas and PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lamina import random
from lamina.core import dtypes
from lamina.errors import ArgumentError, DTypeError, ShapeError
from lamina.frontend.differentiate import gradient
from lamina.frontend.functions import neural as norm
from lamina.frontend.tensor import Tensor
from tests.functions.agreement import (
    agree_with_differences,
    agree_with_torch,
    normals,
)

Array = np.ndarray


def standardized(x: Array, axes: Any) -> Array:
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + 1e-5)


def test_formulas() -> None:
    x, w, b = normals(2, 4, 3), normals(4, seed=1), normals(4, seed=2)
    rows = [Tensor(one) for one in (x, w, b)]
    column = (slice(None), None)
    by_channel = standardized(x, (0, 2)) * w[column] + b[column]
    np.testing.assert_allclose(norm.batch_norm(rows[0], None, None, *rows[1:]).output.numpy(),
                               by_channel)  # fmt: skip
    grouped = standardized(x.reshape(2, 2, 2, 3), (2, 3)).reshape(x.shape)
    np.testing.assert_allclose(norm.group_norm(rows[0], 2).numpy(), grouped)
    np.testing.assert_allclose(norm.instance_norm(rows[0]).numpy(), standardized(x, 2))
    np.testing.assert_allclose(norm.layer_norm(rows[0], (4, 3)).numpy(), standardized(x, (1, 2)))
    root = x / np.sqrt((x * x).mean(-1, keepdims=True) + 0.1)
    np.testing.assert_allclose(norm.rms_norm(rows[0], 3, eps=0.1).numpy(), root)


def test_halves_are_kept_from_zero_by_the_epsilon_of_float32() -> None:
    torch = pytest.importorskip("torch")
    for ours, theirs in ((dtypes.bfloat16, torch.bfloat16), (dtypes.float16, torch.float16)):
        x = torch.linspace(-0.02, 0.05, 8, dtype=theirs)
        expected = torch.nn.functional.rms_norm(x, (8,)).float().numpy()
        result = norm.rms_norm(Tensor(x.float().numpy()).cast(ours), 8)
        np.testing.assert_allclose(result.cast(dtypes.float32).numpy(), expected, rtol=1e-2)


def test_derivatives() -> None:
    x, w, b = normals(3, 4), normals(4, seed=1), normals(4, seed=2)
    agree_with_differences(lambda *a: norm.layer_norm(a[0], 4, *a[1:]), x, w, b)
    agree_with_differences(lambda *a: norm.rms_norm(a[0], 4, a[1]), x, w)
    agree_with_differences(
        lambda *a: norm.batch_norm(a[0], None, None, *a[1:], training=True).output, x, w, b
    )


def test_constant_input_has_finite_derivatives() -> None:
    x = Tensor(np.ones((2, 4), np.float32))
    for result in (norm.layer_norm(x, 4), norm.rms_norm(x * 0.0, 4)):
        assert np.all(np.isfinite(result.numpy()))
        (dx,) = gradient(result, [x], Tensor(np.ones((2, 4), np.float32)))
        assert np.all(np.isfinite(dx.numpy()))


def test_running_statistics_leave_their_arguments_alone() -> None:
    x = normals(4, 2, 3)
    mean, variance = Tensor(np.zeros(2)), Tensor(np.ones(2))
    result = norm.batch_norm(Tensor(x), mean, variance, training=True, momentum=0.25)
    assert mean.tolist() == [0.0, 0.0]
    np.testing.assert_allclose(result.running_mean.numpy(), 0.25 * x.mean((0, 2)))
    unbiased = x.var((0, 2), ddof=1)
    np.testing.assert_allclose(result.running_var.numpy(), 0.75 + 0.25 * unbiased)


@settings(max_examples=20)
@given(st.data())
def test_batch_norm_against_torch(data: Any) -> None:
    torch = pytest.importorskip("torch")
    rest = data.draw(st.lists(st.integers(1, 3), max_size=3))
    x = normals(3, data.draw(st.integers(1, 3)), *rest)
    channels = x.shape[1]
    mean, variance = normals(channels, seed=1), normals(channels, seed=2) ** 2 + 0.1
    affine = [normals(channels, seed=at) if data.draw(st.booleans()) else None for at in (3, 4)]
    training = data.draw(st.booleans())

    def theirs(a: Any, *w: Any) -> Any:
        statistics = torch.tensor(mean), torch.tensor(variance)
        return torch.nn.functional.batch_norm(a, *statistics, *w, training=training)

    agree_with_torch(
        lambda a, *w: norm.batch_norm(a, Tensor(mean), Tensor(variance), *w, training=training),
        theirs,
        x,
        *affine,
    )


@settings(max_examples=30)
@given(st.data())
def test_norms_against_torch(data: Any) -> None:
    torch = pytest.importorskip("torch")
    shape = tuple(data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=3)))
    last = shape[data.draw(st.integers(0, len(shape) - 1)) :]
    batch = (data.draw(st.integers(0, 3)),)
    x = normals(*batch, *shape)
    w = normals(*last, seed=1) if data.draw(st.booleans()) else None
    b = normals(*last, seed=2) if w is not None and data.draw(st.booleans()) else None
    f = torch.nn.functional
    agree_with_torch(
        lambda a, w, b: norm.layer_norm(a, last, w, b), lambda a, w, b: f.layer_norm(a, last, w, b),
        x, w, b, tolerance=1e-7,
    )  # fmt: skip
    agree_with_torch(
        lambda a, w: norm.rms_norm(a, last, w), lambda a, w: f.rms_norm(a, last, w), x, w
    )


@pytest.mark.parametrize(("channels", "groups", "rest"), [(4, 2, (3,)), (6, 3, (2, 3)), (2, 1, ())])
def test_group_norm_against_torch(channels: int, groups: int, rest: tuple[int, ...]) -> None:
    torch = pytest.importorskip("torch")
    x, w, b = normals(2, channels, *rest), normals(channels, seed=1), normals(channels, seed=2)
    agree_with_torch(
        lambda a, w, b: norm.group_norm(a, groups, w, b),
        lambda a, w, b: torch.nn.functional.group_norm(a, groups, w, b),
        x, w, b, tolerance=1e-7,
    )  # fmt: skip
    if rest:
        agree_with_torch(
            norm.instance_norm,
            lambda a, w, b: torch.nn.functional.instance_norm(a, None, None, w, b),
            x, w, b, tolerance=1e-7,
        )  # fmt: skip


def test_halves_have_statistics_in_float32() -> None:
    x = Tensor(np.full((1, 4096), 100.0) + np.arange(4096) % 2, dtypes.float16)
    result = norm.layer_norm(x, 4096)
    assert result.dtype is dtypes.float16
    assert abs(result.numpy()[0, 1] - 1.0) < 0.01


def test_dropout() -> None:
    x = Tensor(np.ones((100, 100), np.float32))
    result = norm.dropout(x, 0.25, seed=1)
    values = result.numpy()
    assert set(np.unique(values).tolist()) == {0.0, float(np.float32(1 / 0.75))}
    assert abs((values == 0).mean() - 0.25) < 0.02
    (dx,) = gradient(result, [x], Tensor(np.ones((100, 100), np.float32)))
    np.testing.assert_array_equal(dx.numpy(), values)
    for nothing in (norm.dropout(x, 0.25, training=False), norm.dropout(x, 0.0)):
        np.testing.assert_array_equal(nothing.numpy(), x.numpy())
    assert not norm.dropout(x, 1.0).numpy().any()
    assert not norm.dropout(x / 0.0, 1.0).numpy().any()
    random.manual_seed(1)
    first, second = norm.dropout(x).numpy(), norm.dropout(x).numpy()
    assert (first != second).mean() > 0.4


@pytest.mark.parametrize("use_input_stats", [True, False])
def test_running_statistics_of_instances_against_torch(use_input_stats: bool) -> None:
    torch = pytest.importorskip("torch")
    x, w, b = normals(2, 3, 4, 5), normals(3, seed=1), normals(3, seed=2)
    mean, variance = normals(3, seed=3), abs(normals(3, seed=4)) + 0.5
    moved = torch.tensor(mean), torch.tensor(variance)

    def mine(a: Tensor, w: Tensor, b: Tensor) -> norm.BatchNorm:
        return norm.instance_norm(
            a, w, b, running_mean=Tensor(mean), running_var=Tensor(variance),
            use_input_stats=use_input_stats, momentum=0.3,
        )  # fmt: skip

    agree_with_torch(
        lambda *arrays: mine(*arrays).output,
        lambda a, w, b: torch.nn.functional.instance_norm(
            a, *moved, w, b, use_input_stats=use_input_stats, momentum=0.3
        ),
        x, w, b, tolerance=1e-7,
    )  # fmt: skip
    result = mine(Tensor(x), Tensor(w), Tensor(b))
    for ours, theirs in zip(result[1:], moved, strict=True):
        assert ours is not None
        np.testing.assert_allclose(ours.numpy(), theirs.numpy())


def test_errors() -> None:
    x = Tensor(normals(2, 4))
    with pytest.raises(ShapeError, match="does not end"):
        norm.layer_norm(x, 3)
    with pytest.raises(ShapeError, match="weight or bias"):
        norm.layer_norm(x, 4, Tensor(normals(2)))
    with pytest.raises(ShapeError, match="groups"):
        norm.group_norm(x, 3)
    with pytest.raises(ShapeError, match="4 channels"):
        norm.batch_norm(x, weight=Tensor(normals(3)))
    with pytest.raises(ShapeError, match="two values"):
        norm.batch_norm(Tensor(normals(1, 4)), training=True)
    with pytest.raises(ShapeError, match="channels"):
        norm.instance_norm(Tensor(normals(4)))
    for alone in ({"use_input_stats": False}, {"running_mean": Tensor(normals(4))}):
        with pytest.raises(ArgumentError, match="both"):
            norm.instance_norm(x, **alone)
    both = {"running_mean": Tensor(normals(4)), "running_var": Tensor(normals(4))}
    with pytest.raises(ShapeError, match="two values"):
        norm.instance_norm(Tensor(normals(2, 4, 1)), **both)
    with pytest.raises(DTypeError, match="float dtype"):
        norm.layer_norm(Tensor([1, 2]), 2)
    with pytest.raises(ArgumentError, match="probability"):
        norm.dropout(x, 1.5)
