"""Limits on gradients, before a step."""

from collections.abc import Iterable

from lamina.core.dtypes import accumulator
from lamina.frontend.functions.elementwise import clip, minimum
from lamina.frontend.functions.movement import stack
from lamina.frontend.functions.reduction import norm
from lamina.frontend.tensor import Tensor

__all__ = ["clip_grad_norm", "clip_grad_value"]


def clip_grad_norm(
    parameters: Iterable[Tensor] | Tensor, max_norm: float, ord: float = 2.0
) -> Tensor:
    """Scale the gradients down so that their norm, taken together, is at most `max_norm`.

    Returns the norm before, float32 of shape (). Parameters without a gradient are ignored."""
    parameters = [parameters] if isinstance(parameters, Tensor) else parameters
    with_gradients = [
        (parameter, parameter.grad) for parameter in parameters if parameter.grad is not None
    ]
    if not with_gradients:
        return Tensor(0.0)
    exact = (gradient.cast(accumulator(gradient.dtype)) for _, gradient in with_gradients)
    total = norm(stack([norm(x, ord).to(with_gradients[0][1].device) for x in exact]), ord)
    factor = minimum(max_norm / (total + 1e-6), 1.0)  # the term keeps a norm of 0 finite
    for parameter, gradient in with_gradients:
        parameter.grad = (gradient * factor.to(gradient.device)).cast(gradient.dtype)
    return total


def clip_grad_value(parameters: Iterable[Tensor] | Tensor, limit: float) -> None:
    """Bring every element of the gradients into [-limit, limit]."""
    for parameter in [parameters] if isinstance(parameters, Tensor) else parameters:
        if parameter.grad is not None:
            parameter.grad = clip(parameter.grad, -limit, limit)
