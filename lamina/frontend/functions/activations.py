"""Activation functions that are made of others; those of one formula are in `elementwise`.

Names and meanings are PyTorch's, with `axis` in place of `dim`.
"""

from typing import Any

from lamina import random
from lamina.errors import ArgumentError, ShapeError
from lamina.frontend.arguments import normalize_axis
from lamina.frontend.functions import movement
from lamina.frontend.functions import real_math as rm
from lamina.frontend.functions import reduction as over
from lamina.frontend.functions.creation import arange
from lamina.frontend.functions.elementwise import FLOATS, WIDE, log, negative, sigmoid, where
from lamina.frontend.functions.spatial import exact
from lamina.frontend.tensor import Tensor
from lamina.ir.build import select, unary
from lamina.ir.node import Node
from lamina.ir.ops import Op

__all__ = [
    "celu", "glu", "gumbel_softmax", "hardshrink", "hardtanh", "prelu", "rrelu", "selu", "softmin",
    "softshrink", "tanhshrink", "threshold",
]  # fmt: skip

# Klambauer et al. 2017, "Self-normalizing neural networks", equation 14: with these, a mean of 0
# and a variance of 1 are a fixed point.
SELU_ALPHA = 1.6732632423543772
SELU_SCALE = 1.0507009873554805


def hardtanh(x: Tensor, min_val: float = -1.0, max_val: float = 1.0) -> Tensor:
    """`x` limited to min_val..max_val; constant on both bounds too, as PyTorch has it."""
    if min_val > max_val:
        raise ArgumentError(f"min_val={min_val} is above max_val={max_val}", operation="hardtanh")

    def rule(a: Node) -> Node:
        low = select(a > min_val, a, select(rm.is_nan(a), a, a.lift(min_val)))
        return select(low < max_val, low, select(rm.is_nan(low), low, low.lift(max_val)))

    return FLOATS("hardtanh", rule, x)


def threshold(x: Tensor, threshold: float, value: float) -> Tensor:
    """`x` where it is above `threshold`, `value` elsewhere; NaN stays."""

    def rule(a: Node) -> Node:
        below = (a < threshold) | a.eq(threshold)
        return select(below, a.lift(value), a)

    return FLOATS("threshold", rule, x)


def hardshrink(x: Tensor, lambd: float = 0.5) -> Tensor:
    """`x`, or 0 where ``abs(x) <= lambd``."""

    def rule(a: Node) -> Node:
        size = rm.absolute(a)
        return select((size < lambd) | size.eq(lambd), a.lift(0), a)

    return FLOATS("hardshrink", rule, x)


def softshrink(x: Tensor, lambd: float = 0.5) -> Tensor:
    """`x` moved towards 0 by `lambd`, and 0 where ``abs(x) <= lambd``."""
    if lambd < 0.0:
        raise ArgumentError(f"lambd={lambd} must not be negative", operation="softshrink")

    def rule(a: Node) -> Node:
        size = rm.absolute(a)
        moved = select(a > 0, a - lambd, a + lambd)
        return select((size < lambd) | size.eq(lambd), a.lift(0), moved)

    return FLOATS("softshrink", rule, x)


def tanhshrink(x: Tensor) -> Tensor:
    """``x - tanh(x)``."""
    return WIDE("tanhshrink", lambda a: a - unary(Op.TANH, a), x)


def _expm1_below(a: Node) -> Node:
    """``exp(a) - 1`` for a below 0; elsewhere, where exp could overflow, 0."""
    return rm.expm1(select(a > 0, a.lift(0), a))


def selu(x: Tensor) -> Tensor:
    """``scale * elu(x, alpha)`` with the constants that keep mean 0 and variance 1
    (Klambauer et al. 2017, "Self-normalizing neural networks")."""

    def rule(a: Node) -> Node:
        return select(a > 0, a, _expm1_below(a) * SELU_ALPHA) * SELU_SCALE

    return WIDE("selu", rule, x)


def celu(x: Tensor, alpha: float = 1.0) -> Tensor:
    """`x`, or ``alpha * (exp(x / alpha) - 1)`` below 0 (Barron 2017, "Continuously differentiable
    exponential linear units")."""
    if alpha <= 0.0:
        raise ArgumentError(f"alpha={alpha} must be positive", operation="celu")

    def rule(a: Node) -> Node:
        return select(a > 0, a, _expm1_below(a / alpha) * alpha)

    return WIDE("celu", rule, x)


def prelu(x: Tensor, weight: Tensor) -> Tensor:
    """`x`, or ``weight * x`` where it is not above 0.

    x: (N, C, ...). weight: (C,), one factor a channel, or one element for all (He, Zhang, Ren and
    Sun 2015, "Delving deep into rectifiers")."""
    channels = x.shape[1] if x.ndim > 1 else 1
    if weight.size != 1 and weight.shape != (channels,):
        raise ShapeError(
            f"weight {weight.shape} for {channels} channels of {x.shape}", operation="prelu"
        )
    column = () if weight.size == 1 else (channels, *(1,) * (x.ndim - 2))
    return where(x > 0, x, x * movement.reshape(weight, column))


def rrelu(
    x: Tensor, lower: float = 1.0 / 8.0, upper: float = 1.0 / 3.0, training: bool = False, *,
    seed: int | None = None, key: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """`x`, or a multiple of it where it is not above 0: by a number from [lower, upper) drawn for
    each element while training, else by the mean of both. `seed` and `key` are as in
    `lamina.random` (Xu et al. 2015, "Empirical evaluation of rectified activations")."""
    if not lower <= upper:
        raise ArgumentError(f"lower={lower} is above upper={upper}", operation="rrelu")
    values = exact("rrelu", x)
    slope: float | Tensor = (lower + upper) / 2.0
    if training:
        slope = random.uniform(
            x.shape, lower, upper, seed=seed, key=key, dtype=values.dtype, device=x.device
        )
    return where(values > 0.0, values, values * slope).cast(x.dtype)


def glu(x: Tensor, axis: int = -1) -> Tensor:
    """``a * sigmoid(b)`` of the two halves of `x` along `axis` (Dauphin et al. 2017, "Language
    modeling with gated convolutional networks"). Raises ShapeError for an odd size."""
    along = normalize_axis("glu", axis, x.ndim)
    size = x.shape[along]
    if size % 2:
        raise ShapeError(
            f"{size} elements along axis {axis} of {x.shape} have no halves", operation="glu"
        )
    a, b = movement.split(x, [size // 2, size // 2], axis=along)
    return a * sigmoid(b)


def softmin(x: Tensor, axis: int = -1, *, dtype: Any = None) -> Tensor:
    """The softmax of ``-x`` along `axis`, computed in `dtype` where one is given."""
    return over.softmax(negative(x), axis=axis, dtype=dtype)


def gumbel_softmax(
    logits: Tensor, tau: float = 1.0, hard: bool = False, axis: int = -1, *,
    seed: int | None = None, key: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """A differentiable draw from the distribution with these unnormalised logarithms along `axis`.

    tau: the temperature; towards 0 results approach one-hot vectors. hard: one-hot results, with
    the derivative of the soft ones. `seed` and `key` are as in `lamina.random` (Jang, Gu and
    Poole 2017, "Categorical reparameterization with Gumbel-softmax", section 2)."""
    if tau <= 0.0:
        raise ArgumentError(f"tau={tau} must be positive", operation="gumbel_softmax")
    values = exact("gumbel_softmax", logits)
    smallest = 2.0**-24  # keeps both logarithms finite
    draws = random.uniform(
        logits.shape, smallest, 1.0 - smallest, seed=seed, key=key, dtype=values.dtype,
        device=logits.device,
    )  # fmt: skip
    noise = -log(-log(draws))
    soft = over.softmax((values + noise) / tau, axis=axis)
    if not hard:
        return soft.cast(logits.dtype)
    along = normalize_axis("gumbel_softmax", axis, logits.ndim)
    places = arange(logits.shape[along], device=logits.device)
    column = movement.reshape(places, (-1, *(1,) * (logits.ndim - 1 - along)))
    chosen = over.argmax(soft, axis=along, keepdims=True) == column
    return (chosen.cast(soft.dtype) - soft.detach() + soft).cast(logits.dtype)
