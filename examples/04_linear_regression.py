"""Fitting a line by functions alone: no classes, no hidden state."""

import numpy as np

import lamina as lm
from lamina import Tensor

# 200 noisy points of a plane with known coefficients.
TRUE_WEIGHTS, TRUE_BIAS = [2.0, -3.5], 0.7
x = lm.random.normal((200, 2), seed=0)
noise = lm.random.normal((200,), std=0.05, seed=1)
y = (x @ Tensor(TRUE_WEIGHTS) + TRUE_BIAS + noise).realize()


def loss_of(parameters: dict[str, Tensor]) -> Tensor:
    """The mean squared error of a prediction."""
    prediction = x @ parameters["weights"] + parameters["bias"]
    return ((prediction - y) ** 2).mean()


# The derivative of a function of a dict is a dict with the same keys.
loss_and_slopes = lm.value_and_grad(loss_of)
parameters = {"weights": lm.zeros((2,)), "bias": lm.zeros(())}
for step in range(100):
    loss, slopes = loss_and_slopes(parameters)
    parameters = {name: value - 0.1 * slopes[name] for name, value in parameters.items()}
    lm.realize(loss, *parameters.values())
    if step % 20 == 0:
        print(f"step {step:3}: loss {loss.item():.5f}")

print("weights", parameters["weights"].numpy(), "bias", parameters["bias"].item())
assert np.allclose(parameters["weights"].numpy(), TRUE_WEIGHTS, atol=0.02)
assert abs(parameters["bias"].item() - TRUE_BIAS) < 0.02

# The same coefficients in closed form, for comparison.
columns = np.concatenate([x.numpy(), np.ones((200, 1))], axis=1)
exact = np.linalg.lstsq(columns, y.numpy(), rcond=None)[0]
assert np.allclose([*parameters["weights"].tolist(), parameters["bias"].item()], exact, atol=1e-3)
