"""Activation functions of neural networks, named as in PyTorch."""

from __future__ import annotations

import math
from typing import Any

from lamina.errors import ArgumentError
from lamina.ir.build import select
from lamina.ir.build import unary as apply
from lamina.ir.node import Node
from lamina.ir.ops import Op
from lamina.tensor import real_math as rm
from lamina.tensor.core import Tensor, elementwise
from lamina.tensor.elementwise import float_function, wide_rule

__all__ = [
    "elu", "gelu", "hardsigmoid", "hardswish", "leaky_relu", "logsigmoid", "mish", "relu",
    "relu6", "sigmoid", "silu", "softplus", "softsign",
]  # fmt: skip


def relu(x: Any) -> Tensor:
    """max(x, 0), whose derivative at 0 is 0; NaN stays."""
    return elementwise("relu", lambda a: select(a < 0, a.lift(0), select(a.eq(0), a.lift(0), a)), x)


def relu6(x: Any) -> Tensor:
    """x limited to 0..6."""
    return float_function("relu6", _relu6, x)


def _relu6(x: Node) -> Node:
    """Constant on both bounds too, where PyTorch has no slope."""
    low = select((x < 0) | x.eq(0), x.lift(0), x)
    return select((low > 6) | low.eq(6), x.lift(6), low)


def leaky_relu(x: Any, negative_slope: float = 0.01) -> Tensor:
    """x, or `negative_slope` x below 0."""
    return float_function("leaky_relu", lambda a: select(a > 0, a, a * negative_slope), x)


def elu(x: Any, alpha: float = 1.0) -> Tensor:
    """x, or ``alpha (exp(x) - 1)`` below 0."""

    def rule(a: Node) -> Node:
        below = a < 0
        return select(below, rm.expm1(select(below, a, a.lift(0))) * alpha, a)

    return float_function("elu", wide_rule(rule), x)


def sigmoid(x: Any) -> Tensor:
    """1 / (1 + exp(-x)), without overflow."""
    return float_function("sigmoid", wide_rule(_sigmoid), x)


def _decay(x: Node) -> Node:
    """exp(-|x|), with the derivative from the right at 0."""
    return apply(Op.EXP, select(x < 0, x, -x))


def _sigmoid(x: Node) -> Node:
    small = _decay(x)
    return select(x < 0, small, x.lift(1)) / (small + 1)


def logsigmoid(x: Any) -> Tensor:
    """The logarithm of the sigmoid, without overflow."""
    return float_function("logsigmoid", wide_rule(lambda a: -_softplus(-a)), x)


def hardsigmoid(x: Any) -> Tensor:
    """The sigmoid's approximation ``relu6(x + 3) / 6``."""
    return float_function("hardsigmoid", lambda a: _relu6(a + 3) / 6, x)


def silu(x: Any) -> Tensor:
    """x sigmoid(x), also called swish."""
    return float_function("silu", wide_rule(lambda a: a * _sigmoid(a)), x)


def hardswish(x: Any) -> Tensor:
    """The approximation ``x relu6(x + 3) / 6`` of silu."""
    return float_function("hardswish", lambda a: a * _relu6(a + 3) / 6, x)


def gelu(x: Any, approximate: str = "none") -> Tensor:
    """x times the normal distribution function; ``approximate="tanh"`` for the older formula."""
    if approximate not in ("none", "tanh"):
        raise ArgumentError(f"gelu: approximate={approximate!r}; it is 'none' or 'tanh'")
    rule = _gelu if approximate == "none" else _gelu_tanh
    return float_function("gelu", wide_rule(rule), x)


def _gelu(x: Node) -> Node:
    return x * 0.5 * (apply(Op.ERF, x * math.sqrt(0.5)) + 1)


def _gelu_tanh(x: Node) -> Node:
    inner = (x + x * x * x * 0.044715) * math.sqrt(2 / math.pi)
    return x * _sigmoid(inner * 2)


def softplus(x: Any, beta: float = 1.0) -> Tensor:
    """log(1 + exp(beta x)) / beta, without overflow."""
    return float_function("softplus", wide_rule(lambda a: _softplus(a * beta) * (1 / beta)), x)


def _softplus(x: Node) -> Node:
    return select(x < 0, x.lift(0), x) + rm.log1p(_decay(x))


def mish(x: Any) -> Tensor:
    """x tanh(softplus(x))."""
    return float_function("mish", wide_rule(lambda a: a * rm.tanh(_softplus(a))), x)


def softsign(x: Any) -> Tensor:
    """x / (1 + |x|)."""
    return float_function("softsign", lambda a: a / (rm.absolute(a) + 1), x)
