"""Comparing a function and its derivatives with PyTorch's or with a NumPy formula."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from lamina.frontend.differentiate import gradient
from lamina.frontend.tensor import Tensor

Array = np.ndarray


def cotangent(shape: tuple[int, ...], dtype: Any) -> Array:
    """Weights of a result's elements, all different, so that no derivative cancels."""
    return np.random.default_rng(7).uniform(0.5, 1.5, shape).astype(dtype)


def first(result: Any) -> Any:
    return result if not isinstance(result, tuple) else result[0]


def close(ours: Array, theirs: Array, tolerance: float, what: str) -> None:
    assert ours.shape == theirs.shape, (what, ours.shape, theirs.shape)
    np.testing.assert_allclose(
        ours.astype(np.float64), theirs.astype(np.float64), tolerance, tolerance, err_msg=what
    )


def agree_with_torch(
    ours: Callable[..., Any],
    theirs: Callable[..., Any],
    *arrays: Array | None,
    tolerance: float = 1e-9,
    differentiate: bool = True,
) -> None:
    """`ours` of tensors equals `theirs` of PyTorch tensors, and so do all derivatives."""
    import torch

    mine: list[Any] = [None if one is None else Tensor(one) for one in arrays]
    other: list[Any] = [None if one is None else torch.tensor(one) for one in arrays]
    floats = [
        at for at, one in enumerate(arrays)
        if one is not None and np.issubdtype(one.dtype, np.floating)
    ]  # fmt: skip
    for at in floats:
        other[at].requires_grad_(differentiate)
    result, expected = first(ours(*mine)), first(theirs(*other))
    close(result.numpy(), expected.detach().numpy(), tolerance, "value")
    assert result.dtype.name == str(expected.dtype).removeprefix("torch.")
    if not differentiate:
        return
    weights = cotangent(result.shape, result.dtype.numpy)
    got = gradient(result, [mine[at] for at in floats], Tensor(weights))
    wanted = torch.autograd.grad(
        expected, [other[at] for at in floats], torch.tensor(weights), allow_unused=True
    )
    for at, one, reference in zip(floats, got, wanted, strict=True):
        against = np.zeros(one.shape) if reference is None else reference.numpy()
        close(one.numpy(), against, tolerance, f"derivative by argument {at}")


def agree_with_differences(
    ours: Callable[..., Tensor], *arrays: Array, step: float = 1e-5, tolerance: float = 1e-6
) -> None:
    """The derivatives of `ours` by float64 arrays equal central differences."""
    tensors = [Tensor(one) for one in arrays]
    result = ours(*tensors)
    weights = cotangent(result.shape, np.float64)
    derivatives = gradient(result, tensors, Tensor(weights))
    for at, derivative in enumerate(derivatives):
        expected = _differences(ours, arrays, at, weights, step)
        close(derivative.numpy(), expected, tolerance, f"derivative by argument {at}")


def _differences(
    ours: Callable[..., Tensor], arrays: Sequence[Array], at: int, weights: Array, step: float
) -> Array:
    slopes = np.zeros(arrays[at].shape)
    for place in np.ndindex(slopes.shape):
        values = []
        for sign in (1, -1):
            moved = [np.array(one) for one in arrays]
            moved[at][place] += sign * step
            values.append(np.sum(weights * ours(*map(Tensor, moved)).numpy()))
        slopes[place] = (values[0] - values[1]) / (2 * step)
    return slopes


def normals(*shape: int, seed: int = 0, dtype: Any = np.float64) -> Array:
    return np.asarray(np.random.default_rng(seed).normal(size=shape)).astype(dtype)


def distinct(*shape: int, seed: int = 0, dtype: Any = np.float64) -> Array:
    """Numbers without ties."""
    count = int(np.prod(shape))
    return np.random.default_rng(seed).permutation(count).reshape(shape).astype(dtype) - count / 2
