"""Rows of ai.onnx.preview.training: derivatives, and steps of optimizers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import lamina as lm
from lamina.frontend.tensor import Tensor
from lamina.interop.onnx.errors import OnnxError
from lamina.interop.onnx.rows import Context, row
from lamina.interop.onnx.values import tensor

_DOMAIN = "ai.onnx.preview.training"


@row("Gradient", domain=_DOMAIN)
def gradient(
    context: Context, *inputs: Any, xs: Sequence[str], y: str, zs: Sequence[str] = ()
) -> Any:
    """The derivatives of the value named `y` by those named `xs`."""
    if context.named is None:
        raise OnnxError("Gradient needs the graph around it")
    variables = [tensor(context.named(name)) for name in xs]
    return tuple(lm.gradient(tensor(context.named(y)), variables))


def _for_each(
    tensors: Sequence[Any], kinds: int, step: Callable[..., Sequence[Tensor]]
) -> tuple[Tensor, ...]:
    """`step` of each parameter. tensors: all parameters, then all their derivatives, then all of
    each further kind of state, `kinds` in all; the results are in such an order too."""
    count, rest = divmod(len(tensors), kinds)
    if rest:
        raise OnnxError(f"{len(tensors)} tensors of {kinds} kinds")
    steps = [step(*(tensor(value) for value in tensors[at::count])) for at in range(count)]
    return tuple([result for results in zip(*steps, strict=True) for result in results])


@row("Adagrad", domain=_DOMAIN)
def adagrad(
    context: Context, rate: Any, time: Any, *tensors: Any, decay_factor: float = 0.0,
    epsilon: float = 1e-6, norm_coefficient: float = 0.0,
) -> Any:  # fmt: skip
    """Duchi, Hazan and Singer 2011."""
    adjusted = tensor(rate) / (1 + tensor(time).cast(lm.float32) * decay_factor)

    def step(x: Tensor, derivative: Tensor, squares: Tensor) -> Sequence[Tensor]:
        slope = derivative + norm_coefficient * x
        total = squares + slope * slope
        return (x - adjusted * slope / (lm.sqrt(total) + epsilon)).cast(x.dtype), total

    return _for_each(tensors, 3, step)


@row("Adam", domain=_DOMAIN)
def adam(
    context: Context, rate: Any, time: Any, *tensors: Any, alpha: float = 0.9, beta: float = 0.999,
    epsilon: float = 1e-6, norm_coefficient: float = 0.0, norm_coefficient_post: float = 0.0,
) -> Any:  # fmt: skip
    """Kingma and Ba 2015, with the bias corrections in the rate; at time 0 there are none."""
    steps = tensor(time).cast(lm.float32)
    correction = lm.sqrt(1 - lm.pow(beta, steps)) / (1 - lm.pow(alpha, steps))
    adjusted = tensor(rate) * lm.where(steps > 0, correction, 1)

    def step(
        x: Tensor, derivative: Tensor, mean: Tensor, squares: Tensor
    ) -> Sequence[Tensor]:
        slope = derivative + norm_coefficient * x
        new_mean = alpha * mean + (1 - alpha) * slope
        new_squares = beta * squares + (1 - beta) * slope * slope
        moved = x - adjusted * new_mean / (lm.sqrt(new_squares) + epsilon)
        return ((1 - norm_coefficient_post) * moved).cast(x.dtype), new_mean, new_squares

    return _for_each(tensors, 4, step)


@row("Momentum", domain=_DOMAIN)
def momentum(
    context: Context, rate: Any, time: Any, *tensors: Any, alpha: float, beta: float,
    mode: str, norm_coefficient: float,
) -> Any:  # fmt: skip
    """`mode` is "standard" or "nesterov" (Sutskever et al. 2013); the first step has beta 1."""
    share = lm.where(tensor(time) > 0, beta, 1.0).cast(lm.float32)

    def step(x: Tensor, derivative: Tensor, velocity: Tensor) -> Sequence[Tensor]:
        slope = derivative + norm_coefficient * x
        faster = alpha * velocity + share * slope
        direction = faster if mode == "standard" else slope + alpha * faster
        return (x - tensor(rate) * direction).cast(x.dtype), faster

    return _for_each(tensors, 3, step)
