"""How many kernels programs of the public interface become."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import lamina as lm
from lamina import nn
from lamina.core.options import current
from lamina.frontend.tensor import Tensor
from lamina.nn import optim
from lamina.runtime.devices import target_of
from lamina.runtime.profile import counter

RNG = np.random.default_rng(3)


def array(*shape: int) -> Tensor:
    return lm.asarray(RNG.standard_normal(shape).astype(np.float32))


def kernels(run: Callable[[], object]) -> int:
    before = counter.kernels
    run()
    return counter.kernels - before


X, W, C = array(32, 48), array(48, 20), array(20)

ONE_KERNEL: dict[str, Callable[[], Tensor]] = {
    "an elementwise chain": lambda: lm.sqrt(lm.exp(X * 2.0 + 1.0) + X) - 3.0,
    "softmax": lambda: lm.softmax(X, axis=1),
    "log_softmax": lambda: lm.log_softmax(X, axis=-1),
    "layer_norm": lambda: lm.layer_norm(X, (48,), X[0], X[1]),
    "rms_norm": lambda: lm.rms_norm(X, (48,), X[0]),
    "matmul, bias and relu": lambda: lm.relu(X @ W + C),
    "the transpose of a product": lambda: (X @ W).T,
    "movement": lambda: lm.flip(lm.pad(X.T, ((1, 2), (0, 0))))[::2, 3:] * 2.0,
}


@pytest.mark.parametrize("name", ONE_KERNEL)
def test_one_kernel(name: str) -> None:
    assert kernels(lambda: ONE_KERNEL[name]().realize()) == 1


class Perceptron:
    """Two layers."""

    def __init__(self) -> None:
        self.first = nn.Linear(48, 64)
        self.second = nn.Linear(64, 10)

    def __call__(self, x: Tensor) -> Tensor:
        return self.second(lm.relu(self.first(x)))


def test_training_a_two_layer_perceptron() -> None:
    labels = lm.asarray(RNG.integers(0, 10, 32))
    model = Perceptron()
    adam = optim.Adam(nn.parameters(model))
    losses: list[float] = []

    def loss() -> Tensor:
        return lm.cross_entropy(model(X), labels)

    def step() -> None:
        value = loss()
        value.backward()
        adam.step()
        adam.zero_grad()
        losses.append(value.item())

    step()
    assert kernels(lambda: loss().item()) <= 4
    assert kernels(step) <= 14
    assert losses[1] < losses[0]


@pytest.mark.parametrize(("groups", "dilation"), [(1, 1), (2, 2), (6, 1)])
def test_the_adjoint_of_a_convolution_is_one_sum_over_its_padded_seed(
    groups: int, dilation: int
) -> None:
    torch = pytest.importorskip("torch")
    x, w, seed = array(2, 6, 9, 8), array(6, 6 // groups, 3, 3), array(2, 6, 9, 8)
    options = {"padding": dilation, "dilation": dilation, "groups": groups}
    (adjoint,) = lm.gradient(lm.conv2d(x, w, **options), [x], seed)
    # What few windows share is padded where they read it, if an instruction loads masked lanes.
    loads_masked = target_of(current()).vector_bytes == 64
    assert kernels(lambda: adjoint.numpy()) == (1 if groups == 6 and loads_masked else 2)
    given = (torch.from_numpy(one.numpy()) for one in (w, seed))
    right = torch.nn.grad.conv2d_input(x.shape, *given, **options)
    np.testing.assert_allclose(adjoint.numpy(), right.numpy(), rtol=1e-5, atol=1e-5)
