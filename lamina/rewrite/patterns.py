"""The two sides of an equation as data: holes, literals and applied operations.

The names in annotations are classes whose instances support operators, so that a rule reads
like its formula and a type checker follows it. Nothing here looks at a graph; `compiled` turns
patterns into Python that does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar

from lamina.dtypes import ALL, DType, Scalar
from lamina.ir.operators import Operators
from lamina.ir.ops import Op

KINDS_OF_VALUES = ("bool", "int", "uint", "float", "complex")


class Pattern(Operators["Pattern"]):
    """A term of an equation; operators build larger terms, scalars become literals."""

    __slots__ = ()

    def lift(self, value: Term) -> Pattern:
        return value if isinstance(value, Pattern) else Literal(value)

    def _apply(self, op: Op, *src: Pattern) -> Apply:
        return Apply(op, src, None)


Term = Pattern | Scalar


class Hole(Pattern):
    """A variable of an equation. A subclass says which dtypes it stands for."""

    __slots__ = ("name",)
    kinds: ClassVar[tuple[str, ...]] = KINDS_OF_VALUES

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name


class AnyValue(Hole):
    """A value of any dtype."""


class Real(Hole):
    """An integer or float value."""

    kinds = ("int", "uint", "float")


class Int(Hole):
    """A signed or unsigned integer."""

    kinds = ("int", "uint")


class Float(Hole):
    """A float."""

    kinds = ("float",)


class Bool(Hole):
    """A bool."""

    kinds = ("bool",)


class Bits(Hole):
    """A bool or an integer: what AND, OR and XOR take."""

    kinds = ("bool", "int", "uint")


class Const(Hole):
    """A constant, CONST or EXPAND of CONST. A right side folds arithmetic on constants, and a
    guard gets the Python value."""


class IntConst(Const):
    """An integer constant."""

    kinds = ("int", "uint")


class FloatConst(Const):
    """A float constant."""

    kinds = ("float",)


class RealConst(Const):
    """An integer or float constant."""

    kinds = ("int", "uint", "float")


class NotConst(Hole):
    """Anything but a constant."""


class DTypeHole:
    """The dtype that a CAST or BITCAST makes; not a value."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name


class Literal(Pattern):
    """A constant of one value, typed by its sibling operand.

    An int literal stands for integers and floats, a float literal for floats, a bool literal for
    bools. 0 and 0.0 are not -0.0.
    """

    __slots__ = ("value",)

    def __init__(self, value: Scalar) -> None:
        self.value = value

    def __repr__(self) -> str:
        return repr(self.value)


class Apply(Pattern):
    """An operation applied to terms; `arg` is the dtype of CAST and BITCAST."""

    __slots__ = ("arg", "op", "src")

    def __init__(self, op: Op, src: tuple[Pattern, ...], arg: DTypeHole | None) -> None:
        self.op = op
        self.src = src
        self.arg = arg

    def __repr__(self) -> str:
        operands = [*map(repr, self.src), *([] if self.arg is None else [repr(self.arg)])]
        return f"{self.op.name.lower()}({', '.join(operands)})"


def apply(op: Op, *src: Term, arg: DTypeHole | None = None) -> Apply:
    """`op` of terms, for operations that have no operator."""
    return Apply(op, tuple(t if isinstance(t, Pattern) else Literal(t) for t in src), arg)


def where(condition: Term, yes: Term, no: Term) -> Apply:
    """Elementwise choice."""
    return apply(Op.WHERE, condition, yes, no)


def cast(x: Term, dtype: DTypeHole) -> Apply:
    """Conversion of values."""
    return apply(Op.CAST, x, arg=dtype)


def bitcast(x: Term, dtype: DTypeHole) -> Apply:
    """Reinterpretation of bits."""
    return apply(Op.BITCAST, x, arg=dtype)


class Guard:
    """A condition of a rule: `function` of holes. See `guard`."""

    __slots__ = ("args", "function", "name")

    def __init__(self, function: Callable[..., bool], args: tuple[Any, ...]) -> None:
        self.function = function
        self.name = function.__name__
        self.args = args

    def __repr__(self) -> str:
        return f"{self.name}({', '.join(map(repr, self.args))})"


def guard(function: Callable[..., bool]) -> Callable[..., Guard]:
    """Make `function` usable as a condition in rules.

    When a rule is tried it is called with the Python values of constant holes, the dtypes of
    dtype holes, and the nodes that other holes match.
    """
    return lambda *args: Guard(function, args)


def terms(pattern: Pattern) -> Iterator[Pattern]:
    """`pattern` and every term in it."""
    yield pattern
    if isinstance(pattern, Apply):
        for operand in pattern.src:
            yield from terms(operand)


def dtypes_of(kinds: tuple[str, ...]) -> frozenset[DType]:
    """Every dtype of `kinds`."""
    return frozenset(dtype for dtype in ALL if dtype.kind in kinds)
