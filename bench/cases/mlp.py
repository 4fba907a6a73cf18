"""A small network's training step, and a program of many tiny kernels."""

from __future__ import annotations

from typing import Any

import numpy as np

from bench.cases import ANY, Array, Case, Group
from bench.report import VALUE, Target

BATCH, INPUTS, HIDDEN, CLASSES = 64, 784, 512, 10
LEARNING_RATE = 1e-3
TINY = 1000


def _data(random: np.random.Generator) -> list[Array]:
    shapes = (INPUTS, HIDDEN), (HIDDEN,), (HIDDEN, CLASSES), (CLASSES,)
    weights = [random.standard_normal(s, dtype=np.float32) * np.float32(0.05) for s in shapes]
    x = random.standard_normal((BATCH, INPUTS), dtype=np.float32)
    return [x, random.integers(0, CLASSES, BATCH), *weights]


def _lamina(lm: Any, x: Any, y: Any, *weights: Any) -> Any:
    from lamina import nn

    parameters = [lm.Tensor(one.numpy(), requires_grad=True) for one in weights]
    w1, b1, w2, b2 = parameters
    optimizer = nn.optim.Adam(parameters, lr=LEARNING_RATE)

    def step(x: Any, y: Any) -> Any:
        loss = lm.cross_entropy(lm.relu(x @ w1 + b1) @ w2 + b2, y)
        optimizer.step(lm.gradient(loss, parameters))
        return loss

    return step


def _torch(torch: Any, x: Any, y: Any, *weights: Any) -> Any:
    parameters = [one.clone().requires_grad_() for one in weights]
    w1, b1, w2, b2 = parameters
    optimizer = torch.optim.Adam(parameters, lr=LEARNING_RATE, fused=True)

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(torch.relu(x @ w1 + b1) @ w2 + b2, y)
        loss.backward()
        optimizer.step()
        return loss

    return step


def _jax(jax: Any, x: Any, y: Any, *weights: Any) -> Any:
    def loss(w1: Any, b1: Any, w2: Any, b2: Any, x: Any, y: Any) -> Any:
        logits = jax.nn.relu(x @ w1 + b1) @ w2 + b2
        return -jax.numpy.take_along_axis(jax.nn.log_softmax(logits), y[:, None], 1).mean()

    def update(x: Any, y: Any, count: Any, parameters: Any, means: Any, squares: Any) -> Any:
        value, slopes = jax.value_and_grad(loss, (0, 1, 2, 3))(*parameters, x, y)
        count = count + 1
        means = [0.9 * m + 0.1 * g for m, g in zip(means, slopes, strict=True)]
        squares = [0.999 * s + 0.001 * g * g for s, g in zip(squares, slopes, strict=True)]
        rate = LEARNING_RATE / (1 - 0.9**count)
        parameters = [
            p - rate * m / ((s / (1 - 0.999**count)) ** 0.5 + 1e-8)
            for p, m, s in zip(parameters, means, squares, strict=True)
        ]
        return value, (count, parameters, means, squares)

    jitted = jax.jit(update)
    zeros = [jax.numpy.zeros_like(one) for one in weights]
    state: Any = (jax.numpy.zeros(()), list(weights), zeros, zeros)

    def step(x: Any, y: Any) -> Any:
        nonlocal state
        value, state = jitted(x, y, *state)
        return value

    return step


def _tinygrad(tinygrad: Any, x: Any, y: Any, *weights: Any) -> Any:
    from tinygrad import nn
    from tinygrad.helpers import TRAINING

    TRAINING.value = 1
    parameters = [one.contiguous().realize().is_param_(True) for one in weights]
    w1, b1, w2, b2 = parameters
    optimizer = nn.optim.Adam(parameters, lr=LEARNING_RATE)

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = ((x @ w1 + b1).relu() @ w2 + b2).sparse_categorical_crossentropy(y).backward()
        return loss.realize(*optimizer.schedule_step())

    return step


def _turned(random: np.random.Generator) -> list[Array]:
    """A rotation, so that many products with it neither grow nor vanish."""
    return [np.linalg.qr(random.standard_normal((8, 8)))[0].astype(np.float32)]


def _tiny(_: Any, x: Any) -> Any:
    y = x
    for _ in range(TINY):
        y = y.T @ x
    return y


MLP = Case(
    f"MLP {INPUTS}-{HIDDEN}-{CLASSES}, batch {BATCH}, step with Adam", _data,
    {"lamina": _lamina, "torch": _torch, "jax": _jax, "tinygrad": _tinygrad},
    ("lamina unjitted", "torch", "torch.compile", "jax", "tinygrad"),
    targets=(
        Target(1.0, "torch"), Target(1.0, "torch.compile"), Target(1.0, "jax"),
        Target(3.0, "lamina unjitted", most=True),
    ),
    quick=True, tolerance=1e-4, makes_step=True, arguments=2,
)  # fmt: skip
GROUP = Group(
    "Small programs",
    (
        MLP,
        Case(
            f"{TINY} tiny kernels: products of 8 x 8", _turned, {ANY: _tiny}, ("torch",),
            targets=(Target(TINY * 0.5e-3, VALUE),), tolerance=1e-3,
        ),
    ),
    ("The losses of the third step are compared.",),
)  # fmt: skip
