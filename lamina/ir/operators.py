"""Python's operators, for formulas over nodes and over the patterns of rules.

Both read alike, so that a rule looks like the code that builds what it matches.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from lamina.dtypes import Scalar
from lamina.ir.ops import Op

T = TypeVar("T")


class Operators(Generic[T]):
    """What makes a T of an operation and Ts; a Python scalar stands for a constant."""

    __slots__ = ()

    def lift(self, value: T | Scalar) -> T:
        """`value` as a T that fits this one."""
        raise NotImplementedError

    def _apply(self, op: Op, *src: Any) -> T:
        raise NotImplementedError

    def __add__(self, other: T | Scalar) -> T:
        return self._apply(Op.ADD, self, self.lift(other))

    def __radd__(self, other: Scalar) -> T:
        return self._apply(Op.ADD, self.lift(other), self)

    def __sub__(self, other: T | Scalar) -> T:
        return self._apply(Op.ADD, self, self._apply(Op.NEG, self.lift(other)))

    def __rsub__(self, other: Scalar) -> T:
        return self._apply(Op.ADD, self.lift(other), -self)

    def __mul__(self, other: T | Scalar) -> T:
        return self._apply(Op.MUL, self, self.lift(other))

    def __rmul__(self, other: Scalar) -> T:
        return self._apply(Op.MUL, self.lift(other), self)

    def __truediv__(self, other: T | Scalar) -> T:
        return self._apply(Op.DIV, self, self.lift(other))

    def __rtruediv__(self, other: Scalar) -> T:
        return self._apply(Op.DIV, self.lift(other), self)

    def __floordiv__(self, other: T | Scalar) -> T:
        return self._apply(Op.IDIV, self, self.lift(other))

    def __mod__(self, other: T | Scalar) -> T:
        return self._apply(Op.MOD, self, self.lift(other))

    def __pow__(self, other: T | Scalar) -> T:
        return self._apply(Op.POW, self, self.lift(other))

    def __and__(self, other: T | Scalar) -> T:
        return self._apply(Op.AND, self, self.lift(other))

    def __or__(self, other: T | Scalar) -> T:
        return self._apply(Op.OR, self, self.lift(other))

    def __xor__(self, other: T | Scalar) -> T:
        return self._apply(Op.XOR, self, self.lift(other))

    def __lshift__(self, other: T | Scalar) -> T:
        return self._apply(Op.SHL, self, self.lift(other))

    def __rshift__(self, other: T | Scalar) -> T:
        return self._apply(Op.SHR, self, self.lift(other))

    def __lt__(self, other: T | Scalar) -> T:
        return self._apply(Op.LT, self, self.lift(other))

    def __gt__(self, other: T | Scalar) -> T:
        return self._apply(Op.LT, self.lift(other), self)

    def eq(self, other: T | Scalar) -> T:
        """Elementwise equality; ``==`` compares programs."""
        return self._apply(Op.EQ, self, self.lift(other))

    def __neg__(self) -> T:
        return self._apply(Op.NEG, self)

    def __invert__(self) -> T:
        return self._apply(Op.NOT, self)
