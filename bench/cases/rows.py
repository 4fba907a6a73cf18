"""What is done row by row: softmax, normalisation, cross-entropy."""

from __future__ import annotations

from typing import Any

import numpy as np

from bench.cases import Array, Case, Group
from bench.report import Target

ROWS, WIDTH = 4096, 1024
TOKENS, VOCABULARY = 2048, 50257
PEERS = ("torch", "torch.compile", "jax", "tinygrad")
COPY = ("copy", 8.0 * ROWS * WIDTH)


def _case(name: str, goal: float, lamina: Any, torch: Any, jax: Any, tinygrad: Any) -> Case:
    functions = {"lamina": lamina, "torch": torch, "jax": jax, "tinygrad": tinygrad}
    shapes = ((ROWS, WIDTH), (WIDTH,), (WIDTH,))
    targets = (Target(goal, "torch"), Target(1.0, "torch.compile"))
    return Case(name, shapes, functions, PEERS, COPY, targets, quick=name != "log_softmax")


def _jax_norm(jax: Any, x: Any, gain: Any, bias: Any) -> Any:
    mean = x.mean(-1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-5) * gain + bias


def _jax_rms(jax: Any, x: Any, gain: Any, _: Any) -> Any:
    return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5) * gain


def _logits(random: np.random.Generator) -> list[Array]:
    logits = random.standard_normal((TOKENS, VOCABULARY), dtype=np.float32)
    return [logits, random.integers(0, VOCABULARY, TOKENS)]


def _lamina_loss(lm: Any, x: Any, y: Any) -> Any:
    loss = lm.cross_entropy(x, y)
    return loss, *lm.gradient(loss, [x])


def _torch_loss(torch: Any, x: Any, y: Any) -> Any:
    x = x.detach().requires_grad_()
    loss = torch.nn.functional.cross_entropy(x, y)
    return loss.detach(), *torch.autograd.grad(loss, [x])


def _jax_loss(jax: Any, x: Any, y: Any) -> Any:
    def loss(x: Any) -> Any:
        picked = jax.numpy.take_along_axis(jax.nn.log_softmax(x), y[:, None], 1)
        return -picked.mean()

    return jax.value_and_grad(loss)(x)


GROUP = Group(
    f"Rows ({ROWS} x {WIDTH}, float32)",
    (
        _case(
            "softmax", 1.2,
            lambda lm, x, *_: lm.softmax(x, axis=-1),
            lambda torch, x, *_: torch.softmax(x, -1),
            lambda jax, x, *_: jax.nn.softmax(x),
            lambda _, x, *rest: x.softmax(),
        ),
        _case(
            "log_softmax", 1.2,
            lambda lm, x, *_: lm.log_softmax(x, axis=-1),
            lambda torch, x, *_: torch.log_softmax(x, -1),
            lambda jax, x, *_: jax.nn.log_softmax(x),
            lambda _, x, *rest: x.log_softmax(),
        ),
        _case(
            "layer_norm", 1.05,
            lambda lm, x, gain, bias: lm.layer_norm(x, (WIDTH,), gain, bias),
            lambda torch, x, *affine: torch.nn.functional.layer_norm(x, (WIDTH,), *affine),
            _jax_norm,
            lambda _, x, gain, bias: x.layernorm() * gain + bias,
        ),
        _case(
            "rms_norm", 1.05,
            lambda lm, x, gain, _: lm.rms_norm(x, (WIDTH,), gain, 1e-5),
            lambda torch, x, gain, _: torch.nn.functional.rms_norm(x, (WIDTH,), gain, 1e-5),
            _jax_rms,
            lambda _, x, gain, bias: x * (x.square().mean(-1, keepdim=True) + 1e-5).rsqrt() * gain,
        ),
        Case(
            f"cross-entropy {TOKENS} x {VOCABULARY} and its gradient", _logits,
            {"lamina": _lamina_loss, "torch": _torch_loss, "jax": _jax_loss},
            ("torch", "torch.compile", "jax"),
            ("copy", 8.0 * TOKENS * VOCABULARY),
            (Target(1.5, "torch"), Target(1.0, "torch.compile")),
        ),
    ),
    ("The share is of the time in which the machine copies the array.",),
)  # fmt: skip
