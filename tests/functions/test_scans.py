"""Running sums, products and maxima, and their derivatives, beside PyTorch's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lamina as lm
from lamina.runtime.profile import passes

SHAPES = [((3, 1), 1), ((40, 276), 1), ((276, 40), 0), ((2, 5000), 1), ((5000,), 0)]


def of_torch(torch: Any, name: str, x: Any, axis: int) -> Any:
    result = getattr(torch, name)(x, dim=axis)
    return result.values if name in ("cummax", "cummin") else result


def with_slope(name: str, x: Any, weight: Any, axis: int) -> tuple[Any, Any]:
    y = getattr(lm, name)(x, axis=axis)
    (slope,) = lm.gradient((y * weight).sum(), [x])
    return y, slope


@pytest.mark.parametrize("name", ["logcumsumexp", "cumprod", "cumsum", "cummax", "cummin"])
@pytest.mark.parametrize(("shape", "axis"), SHAPES)
def test_values_and_slopes_are_pytorchs(name: str, shape: tuple[int, ...], axis: int) -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(3)
    values = rng.normal(size=shape)
    values[rng.random(shape) < 0.01] = 0.0  # no quotient of products
    weight = rng.normal(size=shape)
    x = torch.tensor(values, requires_grad=True)
    wanted = of_torch(torch, name, x, axis)
    (slope_wanted,) = torch.autograd.grad((wanted * torch.tensor(weight)).sum(), [x])
    y, slope = with_slope(name, lm.asarray(values), lm.asarray(weight), axis)
    np.testing.assert_allclose(y.numpy(), wanted.detach().numpy(), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(slope.numpy(), slope_wanted.numpy(), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ["cummax", "cummin"])
def test_of_equal_extremes_the_last_is_pytorchs(name: str) -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(5)
    values = rng.integers(0, 8, (6, 40)).astype(np.float32)
    values[4, 20], values[5, 7], values[5, 30] = np.nan, np.nan, np.nan
    values[3, 0] = np.inf
    weight = rng.normal(size=values.shape).astype(np.float32)
    x = torch.tensor(values, requires_grad=True)
    wanted = getattr(torch, name)(x, 1)
    (slope_wanted,) = torch.autograd.grad(wanted.values, [x], torch.tensor(weight))
    _, slope = with_slope(name, lm.asarray(values), lm.asarray(weight), 1)
    places = getattr(lm, name)(lm.asarray(values), 1, return_indices=True).indices
    np.testing.assert_array_equal(places.numpy(), wanted.indices.numpy())
    np.testing.assert_allclose(slope.numpy(), slope_wanted.numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("spread", [1.0, 100.0, 1e4])
def test_slopes_of_running_sums_of_exponentials_neither_overflow_nor_vanish(spread: float) -> None:
    torch = pytest.importorskip("torch")
    values = np.random.default_rng(4).normal(size=(3, 300)).astype(np.float32) * spread
    exact = torch.tensor(values, dtype=torch.float64, requires_grad=True)
    wanted = torch.logcumsumexp(exact, 1)
    (slope_wanted,) = torch.autograd.grad(wanted.sum(), [exact])
    y, slope = with_slope("logcumsumexp", lm.asarray(values), lm.asarray(np.float32(1.0)), 1)
    np.testing.assert_allclose(y.numpy(), wanted.detach().numpy(), rtol=3e-6, atol=3e-6)
    np.testing.assert_allclose(slope.numpy(), slope_wanted.numpy(), rtol=1e-3, atol=1e-5)


def test_infinite_elements_leave_running_sums_of_exponentials_as_they_are_elsewhere() -> None:
    inf, nan = np.inf, np.nan
    rows = [[-inf, -inf, 1.0, 2.0], [1.0, -inf, 2.0, inf], [inf, 1.0, inf, 3.0],
            [-inf, inf, -inf, 1.0], [0.0, nan, 1.0, inf]]  # fmt: skip
    with np.errstate(invalid="ignore"):
        wanted = np.logaddexp.accumulate(np.array(rows), axis=1)
    np.testing.assert_allclose(lm.logcumsumexp(lm.asarray(rows), 1).numpy(), wanted)
    (slope,) = lm.gradient(lm.logcumsumexp(x := lm.asarray(rows[0]), 0)[2:].sum(), [x])
    np.testing.assert_allclose(slope.numpy(), [0.0, 0.0, 1 + 1 / (1 + np.e), np.e / (1 + np.e)])


@pytest.mark.parametrize("name", ["logcumsumexp", "cumprod"])
def test_third_derivatives_are_pytorchs(name: str) -> None:
    torch = pytest.importorskip("torch")
    values = np.random.default_rng(5).normal(size=(2, 5))
    x, other = lm.asarray(values), torch.tensor(values, requires_grad=True)
    y = getattr(lm, name)(x, axis=1)
    # PyTorch's own second derivative of logcumsumexp has NaN.
    plain = {"logcumsumexp": lambda x: x.exp().cumsum(1).log(), "cumprod": lambda x: x.cumprod(1)}
    wanted = plain[name](other)
    for _ in range(3):
        (y,) = lm.gradient(y.square().sum(), [x])
        (wanted,) = torch.autograd.grad(wanted.square().sum(), [other], create_graph=True)
        np.testing.assert_allclose(y.numpy(), wanted.detach().numpy(), rtol=1e-8)


@pytest.mark.parametrize("name", ["logcumsumexp", "cumprod", "cumsum", "cummax"])
def test_programs_do_not_grow_with_the_length(name: str) -> None:
    """Nor does what they keep: no array has a row for each element of a row."""

    def kernels(length: int) -> tuple[int, int]:
        spec = lm.TensorSpec((4, length), lm.float32)
        step = lm.jit(lambda x, weight: with_slope(name, x, weight, 1))
        with passes() as records:
            step.lower(spec, spec, device="cpu")
        (program,) = (record.after for record in records if record.pass_.name == "fuse")
        return len(program.launches), program.arena

    short, arena = kernels(16)
    long, large_arena = kernels(1024)
    assert long == short
    assert large_arena <= 64 * arena + 4096
