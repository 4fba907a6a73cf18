"""Layers of lamina and of PyTorch with equal weights: results, derivatives and state afterwards.

A module of its own, as a test file without PyTorch is skipped and cannot be imported.
"""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest

from lamina import Tensor, nn


def case(name: str, shape: tuple[int, ...], *args: Any, of: str = "", **kwargs: Any) -> Any:
    """The layer `name` of both libraries (`of`: PyTorch's name) on input of `shape`."""

    def ours() -> Any:
        return getattr(nn, name)(*args, **kwargs)

    def theirs() -> Any:
        return getattr(importlib.import_module("torch.nn"), of or name)(*args, **kwargs)

    words = [*map(str, args), *(f"{key}={value}" for key, value in kwargs.items())]
    return pytest.param(ours, theirs, shape, id=f"{of or name}({','.join(words)})")


def copied(theirs: Any) -> dict[str, Tensor]:
    """PyTorch's state with other values than the initial ones, in both libraries."""
    import torch

    generator = np.random.default_rng(3)
    state = {}
    for name, value in theirs.state_dict().items():
        if value.dtype.is_floating_point:
            value.copy_(torch.tensor(generator.uniform(0.1, 0.9, tuple(value.shape))))
        state[name] = Tensor(value.numpy())
    return state


def flat(result: Any) -> list[Any]:
    """The tensors of a nested result, in order."""
    if isinstance(result, tuple):
        return [one for part in result for one in flat(part)]
    return [] if result is None else [result]


def check_equal(ours: Any, theirs: Any, tolerance: float = 2e-5) -> None:
    np.testing.assert_allclose(
        ours.numpy(), theirs.detach().numpy(), rtol=tolerance, atol=tolerance
    )


def check_layers(ours: Any, theirs: Any, inputs: list[Any], **options: Any) -> None:
    """Equal names, results, derivatives of inputs and parameters, and state afterwards."""
    import torch

    nn.load_state_dict(ours, copied(theirs))
    theirs.zero_grad()
    mine = [Tensor(one, requires_grad=True) for one in inputs]
    other = [torch.tensor(one, requires_grad=True) for one in inputs]
    results, expected = flat(ours(*mine, **options)), flat(theirs(*other, **options))
    assert len(results) == len(expected)
    for one, wanted in zip(results, expected, strict=True):
        assert one.shape == tuple(wanted.shape)
        check_equal(one, wanted)
    sum(((one * one).sum() for one in results), Tensor(0.0)).backward()
    sum((one * one).sum() for one in expected).backward()
    for one, wanted in zip(mine, other, strict=True):
        check_equal(one.grad, wanted.grad, 1e-3)
    own = nn.state_dict(ours)
    for name, wanted in theirs.named_parameters():
        check_equal(own[name].grad, wanted.grad, 1e-3)
    for name, wanted in theirs.state_dict().items():
        check_equal(own[name], wanted)
