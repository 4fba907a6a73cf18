"""Sums with scatters into zeros are scatters into the other term, in its memory, on a CPU."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import lamina as lm
from lamina import Tensor

RNG = np.random.default_rng(2)
WEIGHT = RNG.standard_normal((50, 6)).astype(np.float32)
FIRST, SECOND = (RNG.integers(0, 50, 40) for _ in range(2))
GIVEN = RNG.standard_normal((40, 6)).astype(np.float32)


def two_lookups(weight: Tensor, first: Tensor, second: Tensor, given: Tensor) -> Tensor:
    found = lm.take(weight, first, axis=0) + lm.take(weight, second, axis=0) * 2.0
    return lm.gradient(found, [weight], given)[0]


def tied(weight: Tensor, first: Tensor, second: Tensor, given: Tensor) -> Tensor:
    """A lookup, and a product with the same weight."""
    found = lm.take(weight, first, axis=0)
    scores = given @ weight.T
    return lm.gradient(lm.sum(found * given) + lm.sum(scores * scores), [weight])[0]


def also_read(
    weight: Tensor, first: Tensor, second: Tensor, given: Tensor
) -> tuple[Tensor, Tensor]:
    """What the lookup's gradient is added to is a result as well."""
    base = lm.tanh(weight)
    found = lm.take(weight, first, axis=0)
    return base, base + lm.gradient(found, [weight], given)[0]


def _added(base: np.ndarray, index: np.ndarray, updates: np.ndarray) -> np.ndarray:
    result = base.copy()
    np.add.at(result, index, updates)
    return result


def _arguments() -> list[Tensor]:
    return [lm.asarray(one).realize() for one in (WEIGHT, FIRST, SECOND, GIVEN)]


def test_gradients_of_two_lookups() -> None:
    once = _added(np.zeros_like(WEIGHT), FIRST, GIVEN)
    wanted = _added(once, SECOND, 2 * GIVEN)
    np.testing.assert_allclose(lm.jit(two_lookups)(*_arguments()).numpy(), wanted, atol=1e-5)


def test_gradients_of_a_tied_weight() -> None:
    product = 2 * (GIVEN @ WEIGHT.T).T @ GIVEN
    wanted = _added(product, FIRST, GIVEN)
    np.testing.assert_allclose(lm.jit(tied)(*_arguments()).numpy(), wanted, atol=1e-3, rtol=1e-5)


def test_what_is_read_elsewhere_stays() -> None:
    base, total = lm.jit(also_read)(*_arguments())
    np.testing.assert_allclose(base.numpy(), np.tanh(WEIGHT), atol=1e-6)
    np.testing.assert_allclose(total.numpy(), _added(np.tanh(WEIGHT), FIRST, GIVEN), atol=1e-5)


@pytest.mark.parametrize("program", [two_lookups, tied])
def test_nothing_is_copied(program: Callable[..., Tensor]) -> None:
    """One kernel alone stores the whole array: zeros, or the gradient of the product."""
    specs = [lm.TensorSpec(x.shape, x.dtype.name) for x in (WEIGHT, FIRST, SECOND, GIVEN)]
    kernels = lm.jit(program).lower(*specs, device="cpu").kernels
    assert sum(kernel.name.endswith("_50x6") for kernel in kernels) == 1
