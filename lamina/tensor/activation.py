"""Activation functions of neural networks, named as in PyTorch."""

from __future__ import annotations

import math
from typing import Any

from lamina.errors import ArgumentError
from lamina.ir.build import select
from lamina.ir.node import Node
from lamina.ir.ops import Op
from lamina.tensor import real_math as rm
from lamina.tensor.core import Tensor
from lamina.tensor.elementwise import FLOATS, REALS, WIDE

__all__ = [
    "elu", "gelu", "hardsigmoid", "hardswish", "leaky_relu", "logsigmoid", "mish", "relu",
    "relu6", "sigmoid", "silu", "softplus", "softsign",
]  # fmt: skip


def _relu(x: Node) -> Node:
    return select(x < 0, x.lift(0), select(x.eq(0), x.lift(0), x))


def _relu6(x: Node) -> Node:
    """Constant on both bounds too, where PyTorch has no slope."""
    low = select((x < 0) | x.eq(0), x.lift(0), x)
    return select((low > 6) | low.eq(6), x.lift(6), low)


def _decay(x: Node) -> Node:
    """exp(-|x|), with the derivative from the right at 0."""
    return Node(Op.EXP, (select(x < 0, x, -x),))


def _sigmoid(x: Node) -> Node:
    small = _decay(x)
    return select(x < 0, small, x.lift(1)) / (small + 1)


def _softplus(x: Node) -> Node:
    return select(x < 0, x.lift(0), x) + rm.log1p(_decay(x))


def _gelu(x: Node) -> Node:
    return x * 0.5 * (Node(Op.ERF, (x * math.sqrt(0.5),)) + 1)


def _gelu_tanh(x: Node) -> Node:
    inner = (x + x * x * x * 0.044715) * math.sqrt(2 / math.pi)
    return x * _sigmoid(inner * 2)


relu = REALS.unary("relu", "max(x, 0), whose derivative at 0 is 0; NaN stays.", _relu)
relu6 = FLOATS.unary("relu6", "x limited to 0..6.", _relu6)
sigmoid = WIDE.unary("sigmoid", "1 / (1 + exp(-x)), without overflow.", _sigmoid)
logsigmoid = WIDE.unary("logsigmoid", "The logarithm of the sigmoid, without overflow.",
                        lambda a: -_softplus(-a))  # fmt: skip
hardsigmoid = FLOATS.unary("hardsigmoid", "The sigmoid's approximation ``relu6(x + 3) / 6``.",
                           lambda a: _relu6(a + 3) / 6)  # fmt: skip
silu = WIDE.unary("silu", "x sigmoid(x), also called swish.", lambda a: a * _sigmoid(a))
hardswish = FLOATS.unary("hardswish", "The approximation ``x relu6(x + 3) / 6`` of silu.",
                         lambda a: a * _relu6(a + 3) / 6)  # fmt: skip
mish = WIDE.unary("mish", "x tanh(softplus(x)).", lambda a: a * rm.tanh(_softplus(a)))
softsign = FLOATS.unary("softsign", "x / (1 + |x|).", lambda a: a / (rm.absolute(a) + 1))


def leaky_relu(x: Any, negative_slope: float = 0.01) -> Tensor:
    """x, or `negative_slope` x below 0."""
    return FLOATS("leaky_relu", lambda a: select(a > 0, a, a * negative_slope), x)


def elu(x: Any, alpha: float = 1.0) -> Tensor:
    """x, or ``alpha (exp(x) - 1)`` below 0."""

    def rule(a: Node) -> Node:
        below = a < 0
        return select(below, rm.expm1(select(below, a, a.lift(0))) * alpha, a)

    return WIDE("elu", rule, x)


def gelu(x: Any, approximate: str = "none") -> Tensor:
    """x times the normal distribution function; ``approximate="tanh"`` for the older formula."""
    if approximate not in ("none", "tanh"):
        raise ArgumentError(f"gelu: approximate={approximate!r}; it is 'none' or 'tanh'")
    return WIDE("gelu", _gelu if approximate == "none" else _gelu_tanh, x)


def softplus(x: Any, beta: float = 1.0) -> Tensor:
    """log(1 + exp(beta x)) / beta, without overflow."""
    return WIDE("softplus", lambda a: _softplus(a * beta) * (1 / beta), x)
