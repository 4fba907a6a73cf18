"""Arithmetic on constants: what the interpreter computes, at compile time.

Transcendental functions are left out, since every target may round them in its own way.
"""

from __future__ import annotations

from typing import Any

from lamina.dtypes import Scalar
from lamina.ir.interpreter import evaluate
from lamina.ir.node import Node, full
from lamina.ir.ops import Op

FOLD = (
    Op.NEG, Op.NOT, Op.ADD, Op.MUL, Op.DIV, Op.IDIV, Op.MOD, Op.MAX, Op.MIN, Op.LT, Op.EQ, Op.AND,
    Op.OR, Op.XOR, Op.CAST,
)  # fmt: skip


def _scalar(node: Node) -> Node:
    return node.src[0] if node.op is Op.EXPAND else node


def constant_of(node: Node) -> Scalar | None:
    """The value of a constant, CONST or EXPAND of CONST, or None for any other node."""
    scalar = _scalar(node)
    return scalar.arg.value if scalar.op is Op.CONST else None


def fold(op: Op, operands: tuple[Node, ...], arg: Any = None) -> Node:
    """The constant that `op` makes of constants."""
    scalar = Node(op, tuple(map(_scalar, operands)), arg)
    (value,) = evaluate([scalar])
    return full(operands[0].shape, value.item(), scalar.dtype)
