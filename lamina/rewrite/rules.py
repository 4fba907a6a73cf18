"""Rules as equations, functions for what equations cannot say, and sets of both.

    @rule
    def divide_by_power_of_two(x: Float, c: FloatConst) -> Equation:
        return x / c, x * (1 / c), has_exact_reciprocal(c, x)      # left, right, guards

The function runs once, with symbolic holes; what stays are the two sides as data. Every
commuted form of the left side is matched too. A rule is an equality of values, so the order of
equations in a set does not matter; functions made by `on` are tried after all equations.
"""

from __future__ import annotations

import inspect
import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lamina.errors import RuleError
from lamina.ir.ops import Group, Op
from lamina.rewrite.compiled import Matcher, compile_op
from lamina.rewrite.patterns import Apply, Guard, Hole, Literal, Pattern, Term, terms

if TYPE_CHECKING:
    from lamina.ir.node import Node

Equation = tuple[Term, Term] | tuple[Term, Term, Guard] | tuple[Term, Term, Guard, Guard]


@dataclass(frozen=True, eq=False)
class Rule:
    """The equation `left` = `right`, used from left to right where all `guards` hold.

    variants: the commuted forms of `left`, itself first.
    """

    name: str
    left: Apply
    right: Pattern
    guards: tuple[Guard, ...]
    variants: tuple[Apply, ...]

    def __repr__(self) -> str:
        conditions = "".join(f", {one}" for one in self.guards)
        return f"{self.name}: {self.left} = {self.right}{conditions}"


@dataclass(frozen=True, eq=False)
class FunctionRule:
    """A rule as a function from a node to an equal node, or None where it does not apply."""

    name: str
    ops: tuple[Op, ...]
    function: Callable[[Node], Node | None]


AnyRule = Rule | FunctionRule


def rule(definition: Callable[..., Equation]) -> Rule:
    """Make a Rule from a function that returns (left, right) or (left, right, guards ...).

    Parameters are holes, their annotations classes from `patterns`.
    """
    annotations = inspect.get_annotations(definition, eval_str=True)
    holes = {one: kind(one) for one, kind in annotations.items() if one != "return"}
    return equation(definition.__name__, *definition(**holes))


def equation(
    name: str, left: Term, right: Term, *guards: Guard, commute: bool = True
) -> Rule:
    """The Rule of two sides. ``commute=False`` matches the left side only as written."""
    if not isinstance(left, Apply):
        raise RuleError(f"rule {name}: the left side {left!r} is not an operation")
    right = right if isinstance(right, Pattern) else Literal(right)
    missing = set(_names(right)) - set(_names(left))
    if missing:
        raise RuleError(f"rule {name}: the left side lacks {', '.join(sorted(missing))}")
    variants = {repr(one): one for one in _commuted(left)} if commute else {"": left}
    return Rule(name, left, right, guards, tuple(variants.values()))


def _names(pattern: Pattern) -> Iterator[str]:
    for term in terms(pattern):
        if isinstance(term, Hole):
            yield term.name
        elif isinstance(term, Apply) and term.arg is not None:
            yield term.arg.name


def _commuted(pattern: Pattern) -> Iterator[Apply]:
    """Every form of an operation by the commutativity of operations in it."""
    assert isinstance(pattern, Apply)
    operands = [
        list(_commuted(one)) if isinstance(one, Apply) else [one] for one in pattern.src
    ]
    for src in itertools.product(*operands):
        yield Apply(pattern.op, src, pattern.arg)
        if pattern.op in Group.COMMUTATIVE:
            yield Apply(pattern.op, src[::-1], pattern.arg)


def on(*ops: Op) -> Callable[[Callable[[Node], Node | None]], FunctionRule]:
    """Make a FunctionRule for nodes of `ops`, for what no equation can say."""
    return lambda function: FunctionRule(function.__name__, ops, function)


def collect(namespace: Mapping[str, object]) -> list[AnyRule]:
    """The rules of a module (pass ``globals()``), in the order of their definition."""
    values = [
        one for value in namespace.values() for one in (value if type(value) is list else [value])
    ]
    return [one for one in values if isinstance(one, Rule | FunctionRule)]


class _Matchers(dict[Op, Matcher | None]):
    """The compiled function of each operation, made on first use; None where no rule applies."""

    def __init__(self, rules: RuleSet) -> None:
        self._rules = rules

    def __missing__(self, op: Op) -> Matcher | None:
        equations = [one for one in self._rules if isinstance(one, Rule) and one.left.op is op]
        functions = [one for one in self._rules if isinstance(one, FunctionRule) and op in one.ops]
        self[op] = compile_op(self._rules.name, op, equations, functions)
        return self[op]


class RuleSet:
    """Rules that are used together; `matchers` holds one compiled function an operation."""

    def __init__(self, name: str, rules: Iterable[AnyRule]) -> None:
        self.name = name
        self.rules = tuple(rules)
        self.matchers = _Matchers(self)
        for rule_name, count in Counter(one.name for one in self.rules).items():
            if count > 1:
                raise RuleError(f"rules {name}: two rules are called {rule_name}")

    def __iter__(self) -> Iterator[AnyRule]:
        return iter(self.rules)

    def __or__(self, other: RuleSet) -> RuleSet:
        return RuleSet(f"{self.name}|{other.name}", self.rules + other.rules)

    def __repr__(self) -> str:
        return f"<RuleSet {self.name}: {len(self.rules)} rules>"
