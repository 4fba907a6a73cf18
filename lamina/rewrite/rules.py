"""Rules: equations whose two sides are data, and functions for what equations cannot say.

    x, c = Hole("x", Kinds.FLOAT), Const("c", Kinds.FLOAT)
    Rule("divide_by_power_of_two", x / c, x * (1 / c), has_exact_reciprocal(c, x))

Holes support operators, so that a rule reads like its formula. Every commuted form of the left
side is matched too. A rule is an equality of values, so the order of rules does not matter.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import NamedTuple

from lamina.dtypes import Scalar
from lamina.errors import RuleError
from lamina.ir.node import Node, Operators
from lamina.ir.ops import Group, Op
from lamina.ir.ops import Kinds as Kinds


class Pattern(Operators["Pattern"]):
    """A term of an equation; operators build larger terms, scalars become literals."""

    def lift(self, value: Pattern | Scalar) -> Pattern:
        return value if isinstance(value, Pattern) else Literal(value)

    def _apply(self, op: Op, *src: Pattern) -> Apply:
        return Apply(op, *src)


class Hole(Pattern):
    """A variable: a value whose dtype is one of `kinds`."""

    def __init__(self, name: str, kinds: tuple[str, ...] = Kinds.ANY) -> None:
        self.name = name
        self.kinds = kinds

    def __repr__(self) -> str:
        return self.name


class Const(Hole):
    """A constant, CONST or EXPAND of CONST. Arithmetic on constants is folded on right sides."""


class NotConst(Hole):
    """Anything but a constant."""


class DTypeHole(NamedTuple):
    """The dtype that a CAST or BITCAST makes."""

    name: str


class Literal(Pattern):
    """A constant of one value, typed by its sibling operand: an int literal stands for integers
    and floats, a float for floats, a bool for bools. 0 and 0.0 are not -0.0, so `texts` says how
    values that it stands for are written."""

    def __init__(self, value: Scalar) -> None:
        self.value = value
        self.texts = (str(value), str(float(value))) if type(value) is int else (str(value),)

    def __repr__(self) -> str:
        return repr(self.value)


class Apply(Pattern):
    """An operation on terms; `arg` is the dtype of CAST and BITCAST."""

    def __init__(self, op: Op, *src: Pattern | Scalar, arg: DTypeHole | None = None) -> None:
        self.op = op
        self.src = tuple(map(self.lift, src))
        self.arg = arg

    def __repr__(self) -> str:
        operands = [*map(repr, self.src), *([] if self.arg is None else [self.arg.name])]
        return f"{self.op.name.lower()}({', '.join(operands)})"


def terms(pattern: Pattern) -> Iterator[Pattern | DTypeHole]:
    """`pattern` and everything in it."""
    yield pattern
    if isinstance(pattern, Apply):
        for operand in pattern.src:
            yield from terms(operand)
        if pattern.arg is not None:
            yield pattern.arg


class Guard(NamedTuple):
    """A condition of a rule: `function` of holes."""

    function: Callable[..., bool]
    holes: tuple[Hole | DTypeHole, ...]

    def __repr__(self) -> str:
        return f"{self.function.__name__}({', '.join(one.name for one in self.holes)})"


def guard(function: Callable[..., bool]) -> Callable[..., Guard]:
    """Make `function` a condition of rules, to be called with holes. When a rule is tried, it gets
    the Python values of constants, dtypes, and the nodes that other holes match."""
    return lambda *holes: Guard(function, holes)


class Rule:
    """The equation `left` = `right`, used from left to right where all `guards` hold. `variants`
    are the forms of `left` that are matched, itself first; others only with `commute`. Raises
    RuleError when `left` is no operation or lacks a hole of `right`."""

    def __init__(
        self, name: str, left: Pattern, right: Pattern | Scalar, *guards: Guard,
        commute: bool = True,
    ) -> None:  # fmt: skip
        self.name = name
        self.left = left
        self.right = left.lift(right)
        self.guards = guards
        if not isinstance(left, Apply):
            raise RuleError(f"rule {name}: the left side {left!r} is not an operation")
        self.op = left.op
        if missing := _names(self.right) - _names(left):
            raise RuleError(f"rule {name}: the left side lacks {', '.join(sorted(missing))}")
        forms = {repr(one): one for one in _commuted(left)} if commute else {"": left}
        self.variants = tuple(forms.values())

    def __repr__(self) -> str:
        conditions = "".join(f", {one}" for one in self.guards)
        return f"{self.name}: {self.left} = {self.right}{conditions}"


def _names(pattern: Pattern) -> set[str]:
    return {one.name for one in terms(pattern) if isinstance(one, Hole | DTypeHole)}


def _commuted(pattern: Pattern) -> Iterator[Pattern]:
    """Every form of a term by the commutativity of operations in it."""
    if not isinstance(pattern, Apply):
        yield pattern
        return
    for src in itertools.product(*map(_commuted, pattern.src)):
        yield Apply(pattern.op, *src, arg=pattern.arg)
        if pattern.op in Group.COMMUTATIVE:
            yield Apply(pattern.op, *src[::-1], arg=pattern.arg)


class FunctionRule(NamedTuple):
    """A rule as a function from a node to an equal one; to None or itself means not to apply."""

    name: str
    ops: tuple[Op, ...]
    function: Callable[[Node], Node | None]


def on(*ops: Op) -> Callable[[Callable[[Node], Node | None]], FunctionRule]:
    """Make a FunctionRule for nodes of `ops`."""
    return lambda function: FunctionRule(function.__name__, ops, function)
