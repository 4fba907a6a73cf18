"""Rules: equations whose two sides are data, and functions for what equations cannot say.

    x, c = Hole("x", Kinds.FLOAT), Const("c", Kinds.FLOAT)
    Rule("divide_by_power_of_two", x / c, x * (1 / c), has_exact_reciprocal)

Holes support operators, so that a rule reads like its formula. Every commuted form of the left
side is matched too.
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

    def fill(self, holes: dict[str, Node], like: Node) -> Node:
        """The node that this term is of what `holes` match; a literal gets the type of `like`."""
        raise NotImplementedError


class Hole(Pattern):
    """A variable: a value whose dtype is one of `kinds`."""

    def __init__(self, name: str, kinds: tuple[str, ...] = Kinds.ANY) -> None:
        self.name = name
        self.kinds = kinds

    def __repr__(self) -> str:
        return self.name

    def fill(self, holes: dict[str, Node], like: Node) -> Node:
        return holes[self.name]


class Const(Hole):
    """A constant, CONST or EXPAND of CONST."""


class Literal(Pattern):
    """A constant of one value, typed by its sibling operand: an int literal stands for integers
    and floats, a float for floats, a bool for bools. 0 and 0.0 are not -0.0, so `texts` says how
    values that it stands for are written."""

    def __init__(self, value: Scalar) -> None:
        self.value = value
        self.texts = (str(value), str(float(value))) if type(value) is int else (str(value),)

    def __repr__(self) -> str:
        return repr(self.value)

    def fill(self, holes: dict[str, Node], like: Node) -> Node:
        return like.lift(self.value)


class Apply(Pattern):
    """An operation on terms; the last of them that is no literal types the literals."""

    def __init__(self, op: Op, *src: Pattern | Scalar) -> None:
        self.op = op
        self.src = tuple(map(self.lift, src))

    def __repr__(self) -> str:
        return f"{self.op.name.lower()}({', '.join(map(repr, self.src))})"

    def fill(self, holes: dict[str, Node], like: Node) -> Node:
        typed = [one for one in self.src if not isinstance(one, Literal)]
        sibling = typed[-1].fill(holes, like) if typed else like
        return Node(self.op, tuple(one.fill(holes, sibling) for one in self.src))


def terms(pattern: Pattern) -> Iterator[Pattern]:
    """`pattern` and everything in it."""
    yield pattern
    for operand in pattern.src if isinstance(pattern, Apply) else ():
        yield from terms(operand)


class Rule:
    """The equation `left` = `right`, used from left to right where `guard` holds: a function whose
    parameters are named as the holes, of the nodes that they match. `variants` are the forms of
    `left` that are matched, itself first. Raises RuleError when `left` is no operation or lacks a
    hole of `right`."""

    def __init__(
        self, name: str, left: Pattern, right: Pattern | Scalar,
        guard: Callable[..., bool] | None = None,
    ) -> None:  # fmt: skip
        if not isinstance(left, Apply):
            raise RuleError(f"rule {name}: the left side {left!r} is not an operation")
        self.name = name
        self.ops = (left.op,)
        self.left = left
        self.right = left.lift(right)
        self.guard = guard
        if missing := _names(self.right) - _names(left):
            raise RuleError(f"rule {name}: the left side lacks {', '.join(sorted(missing))}")
        self.variants = tuple({repr(one): one for one in _commuted(left)}.values())

    def __repr__(self) -> str:
        condition = f", {self.guard.__name__}" if self.guard else ""
        return f"{self.name}: {self.left} = {self.right}{condition}"

    def apply(self, node: Node, /, **holes: Node) -> Node | None:
        """The right side for a node that the left side matches; None where the guard fails."""
        return self.right.fill(holes, node) if not self.guard or self.guard(**holes) else None


def _names(pattern: Pattern) -> set[str]:
    return {one.name for one in terms(pattern) if isinstance(one, Hole)}


def _commuted(pattern: Pattern) -> Iterator[Pattern]:
    """Every form of a term by the commutativity of operations in it."""
    if not isinstance(pattern, Apply):
        yield pattern
        return
    for src in itertools.product(*map(_commuted, pattern.src)):
        yield Apply(pattern.op, *src)
        if pattern.op in Group.COMMUTATIVE:
            yield Apply(pattern.op, *src[::-1])


class FunctionRule(NamedTuple):
    """A rule as a function from a node to an equal one; to None or itself means not to apply."""

    name: str
    ops: tuple[Op, ...]
    apply: Callable[[Node], Node | None]


def on(*ops: Op) -> Callable[[Callable[[Node], Node | None]], FunctionRule]:
    """Make a FunctionRule for nodes of `ops`."""
    return lambda function: FunctionRule(function.__name__, ops, function)
