"""Python's operators, for formulas over nodes and over the patterns of rules.

Both read alike, so that a rule looks like the code that builds what it matches.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from lamina.dtypes import Scalar
from lamina.ir.ops import Op

T = TypeVar("T")


def _binary(op: Op) -> Callable[[Operators[T], T | Scalar], T]:
    def operator(self: Operators[T], other: T | Scalar) -> T:
        return self._apply(op, self, self.lift(other))

    return operator


def _reflected(op: Op) -> Callable[[Operators[T], T | Scalar], T]:
    def operator(self: Operators[T], other: T | Scalar) -> T:
        return self._apply(op, self.lift(other), self)

    return operator


class Operators(Generic[T]):
    """What makes a T of an operation and Ts; a Python scalar stands for a constant."""

    __slots__ = ()

    def lift(self, value: T | Scalar) -> T:
        """`value` as a T that fits this one."""
        raise NotImplementedError

    def _apply(self, op: Op, *src: Any) -> T:
        raise NotImplementedError

    __add__ = _binary(Op.ADD)
    __radd__ = _reflected(Op.ADD)
    __mul__ = _binary(Op.MUL)
    __rmul__ = _reflected(Op.MUL)
    __truediv__ = _binary(Op.DIV)
    __rtruediv__ = _reflected(Op.DIV)
    __floordiv__ = _binary(Op.IDIV)
    __mod__ = _binary(Op.MOD)
    __pow__ = _binary(Op.POW)
    __and__ = _binary(Op.AND)
    __or__ = _binary(Op.OR)
    __xor__ = _binary(Op.XOR)
    __lshift__ = _binary(Op.SHL)
    __rshift__ = _binary(Op.SHR)
    __lt__ = _binary(Op.LT)
    __gt__ = _reflected(Op.LT)
    eq = _binary(Op.EQ)  # elementwise; ``==`` compares programs

    def __sub__(self, other: T | Scalar) -> T:
        return self._apply(Op.ADD, self, self._apply(Op.NEG, self.lift(other)))

    def __rsub__(self, other: Scalar) -> T:
        return self._apply(Op.ADD, self.lift(other), -self)

    def __neg__(self) -> T:
        return self._apply(Op.NEG, self)

    def __invert__(self) -> T:
        return self._apply(Op.NOT, self)
