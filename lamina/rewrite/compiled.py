"""All rules of one operation as one Python function.

Each rule becomes a path of steps: bindings, tests, and a return. Paths that begin alike share
their beginning, so that a test is made once for all rules that need it. The source goes into
`linecache`: tracebacks and debuggers show it.
"""

from __future__ import annotations

import itertools
import linecache
from collections.abc import Callable, Iterator, Sequence
from math import inf, nan
from typing import TYPE_CHECKING, Any

from lamina.errors import RuleError
from lamina.ir.infer import KINDS
from lamina.ir.node import Node, full
from lamina.ir.ops import Op
from lamina.rewrite.fold import fold, same_scalar
from lamina.rewrite.patterns import (
    KINDS_OF_VALUES,
    Apply,
    Const,
    DTypeHole,
    Guard,
    Hole,
    Literal,
    NotConst,
    Pattern,
    dtypes_of,
    terms,
)

if TYPE_CHECKING:
    from lamina.rewrite.rules import FunctionRule, Rule

# What a compiled function returns: the rule that applied and the new node, or None.
Matcher = Callable[[Node], tuple[str, Node] | None]
Step = tuple[str, str]  # ("let" | "if" | "return", text)
Trie = dict[Step, "Trie"]

_serial = itertools.count()


def compile_op(
    set_name: str, op: Op, equations: Sequence[Rule], functions: Sequence[FunctionRule]
) -> Matcher | None:
    """One function that tries `equations`, then `functions`; None when there are none."""
    if not equations and not functions:
        return None
    scope: dict[str, Any] = {one.name: one for one in Op}
    scope |= {"Node": Node, "full": full, "fold": fold, "same_scalar": same_scalar}
    scope |= {"inf": inf, "nan": nan}
    trie: Trie = {}
    for equation in equations:
        for variant in equation.variants:
            branch = trie
            for step in _Variant(equation, variant, scope).steps():
                branch = branch.setdefault(step, {})
    name = f"{set_name}_{op.name.lower()}".replace("|", "_")
    lines = [f"def {name}(n):", *_emit(trie, 1)]
    for one in functions:
        scope[f"on_{one.name}"] = one.function
        lines.append(f"    r = on_{one.name}(n)")
        lines.append("    if r is not None and r is not n:")
        lines.append(f"        return {one.name!r}, r")
    lines.append("    return None")
    filename = f"<lamina rules {name} {next(_serial)}>"
    source = "\n".join(lines) + "\n"
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    exec(compile(source, filename, "exec"), scope)
    matcher: Matcher = scope[name]
    return matcher


def _emit(trie: Trie, depth: int) -> Iterator[str]:
    indent = "    " * depth
    for (kind, text), rest in trie.items():
        if kind == "if":
            yield f"{indent}if {text}:"
            yield from _emit(rest, depth + 1)
        else:
            yield indent + text
            if kind == "return":
                return
            yield from _emit(rest, depth)


class _Variant:
    """The steps that match one form of a rule's left side and build its right side.

    A variable is named by its path from the root ``n``: ``n_0_1`` is operand 1 of operand 0.
    """

    def __init__(self, rule: Rule, left: Apply, scope: dict[str, Any]) -> None:
        self.rule = rule
        self.left = left
        self.scope = scope
        self.bound: dict[str, str] = {}  # hole -> variable
        self.constants: set[str] = set()  # holes that are constants
        self.temporaries = itertools.count()

    def steps(self) -> list[Step]:
        steps = [*self._match()]
        steps += [("if", self._guard(one)) for one in self.rule.guards]
        build: list[Step] = []
        result = self._build(self.rule.right, "n", build)
        return [*steps, *build, ("return", f"return {self.rule.name!r}, {result}")]

    def _match(self) -> Iterator[Step]:
        """Tests from the root down; within one operation, the cheap and telling ones first."""
        level: list[tuple[Apply, str]] = [(self.left, "n")]
        while level:
            deeper: list[tuple[Apply, str]] = []
            for pattern, path in level:
                children = [(one, f"{path}_{i}") for i, one in enumerate(pattern.src)]
                yield "let", f"{', '.join(name for _, name in children)}, = {path}.src"
                for child, name in children:
                    if isinstance(child, Apply):
                        deeper.append((child, name))
                    yield from self._test_operation(child, name)
                for i, (child, name) in enumerate(children):
                    yield from self._test_leaf(pattern, i, child, name)
                yield from self._test_argument(pattern, path)
            level = deeper

    def _test_operation(self, child: Pattern, name: str) -> Iterator[Step]:
        is_constant = f"{name}_op is CONST or {name}_op is EXPAND and {name}.src[0].op is CONST"
        if isinstance(child, Apply | Literal | Const | NotConst):
            yield "let", f"{name}_op = {name}.op"
        if isinstance(child, Apply):
            yield "if", f"{name}_op is {child.op.name}"
        elif isinstance(child, NotConst):
            yield "if", f"not ({is_constant})"
        elif isinstance(child, Literal | Const):
            yield "if", is_constant
            scalar = f"({name} if {name}_op is CONST else {name}.src[0])"
            yield "let", f"{name}_value = {scalar}.arg.value"

    def _test_leaf(self, parent: Apply, i: int, child: Pattern, name: str) -> Iterator[Step]:
        if isinstance(child, Literal):
            yield "if", f"same_scalar({name}_value, {child.value!r})"
        if not isinstance(child, Hole):
            return
        if isinstance(child, Const):
            self.constants.add(child.name)
        if child.name in self.bound:
            yield "if", f"{self.bound[child.name]} is {name}"
            return
        self.bound[child.name] = name
        choice = parent.op is Op.WHERE and i == 0
        possible = ("bool",) if choice else KINDS.get(parent.op, KINDS_OF_VALUES)
        if not set(possible) <= set(child.kinds):
            label = "_".join(child.kinds).upper() + "_DTYPES"
            self.scope[label] = dtypes_of(child.kinds)
            yield "if", f"{name}.dtype in {label}"

    def _test_argument(self, pattern: Apply, path: str) -> Iterator[Step]:
        if pattern.arg is not None:
            if pattern.arg.name in self.bound:
                yield "if", f"{path}.arg is {self.bound[pattern.arg.name]}"
            self.bound[pattern.arg.name] = f"{path}.arg"

    def _guard(self, guard: Guard) -> str:
        function = f"guard_{guard.name}"
        if self.scope.setdefault(function, guard.function) is not guard.function:
            raise RuleError(f"rule {self.rule.name}: two guards are called {guard.name}")
        return f"{function}({', '.join(map(self._guard_argument, guard.args))})"

    def _guard_argument(self, one: object) -> str:
        if isinstance(one, Hole | DTypeHole):
            return self.bound[one.name] + ("_value" if one.name in self.constants else "")
        return repr(one)

    def _build(self, term: Pattern, like: str, steps: list[Step]) -> str:
        """Add the steps that make `term`; the answer is an expression for its node."""
        if isinstance(term, Hole):
            return self.bound[term.name]
        if isinstance(term, Literal):
            return f"full({like}.shape, {term.value!r}, {like}.dtype)"
        assert isinstance(term, Apply)
        like = self._sibling(term, like)
        operands = [self._build(operand, like, steps) for operand in term.src]
        arg = term.arg and self.bound[term.arg.name]
        call = f"({term.op.name}, ({', '.join(operands)},), {arg})"
        if not self._is_constant(term):
            return f"Node{call}"
        folded = f"r{next(self.temporaries)}"
        steps += [("let", f"{folded} = fold{call}"), ("if", f"{folded} is not None")]
        return folded

    def _sibling(self, term: Apply, like: str) -> str:
        """The variable whose dtype and shape the literals among `term`'s operands take."""
        operands = term.src[1:] if term.op is Op.WHERE else term.src
        if not any(isinstance(one, Literal) for one in operands):
            return like
        for one in operands:
            if isinstance(one, Hole):
                return self.bound[one.name]
        raise RuleError(f"rule {self.rule.name}: {term} does not say the dtype of its literals")

    @staticmethod
    def _is_constant(term: Pattern) -> bool:
        leaves = [one for one in terms(term) if not isinstance(one, Apply)]
        return all(isinstance(one, Literal | Const) for one in leaves)
