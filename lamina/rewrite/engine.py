"""Sets of rules, and rewriting a graph by one to a fixed point, operands first, without recursion.

All rules of one operation are compiled to one Python function: each rule becomes a path of steps,
the lines that match its left side and build its right. Paths that begin alike share their
beginning, so that a test is made once for all rules that need it. The source goes into `linecache`:
tracebacks and debuggers show it.
"""

from __future__ import annotations

import linecache
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any, NoReturn

from lamina.errors import RuleError
from lamina.ir.interpreter import fold
from lamina.ir.node import Node, toposort
from lamina.ir.ops import Op
from lamina.rewrite import rules

# A compiled function returns the rule that applied and the new node, or None.
Matcher = Callable[[Node], tuple[str, Node] | None]
Trie = dict[str, "Trie"]


class RuleSet(dict[Op, Matcher | None]):
    """Rules that are used together: a compiled function an operation, made on first use, or None
    where no rule applies. Functions are tried after all equations. Raises RuleError when two rules
    have one name."""

    def __init__(self, name: str, content: Iterable[rules.Rule | rules.FunctionRule]) -> None:
        super().__init__()
        self.name = name
        self.rules = tuple(content)
        for rule_name, count in Counter(one.name for one in self.rules).items():
            if count > 1:
                raise RuleError(f"rules {name}: two rules are called {rule_name}")

    def __missing__(self, op: Op) -> Matcher | None:
        scope: dict[str, Any] = {one.name: one for one in Op}
        scope |= {"Node": Node, "fold": fold, "inf": inf}
        equations = [one for one in self.rules if isinstance(one, rules.Rule) and one.op is op]
        paths = [_Path(one, left, scope).steps for one in equations for left in one.variants]
        for one in self.rules:
            if isinstance(one, rules.FunctionRule) and op in one.ops:
                scope[f"on_{one.name}"] = one.function
                paths.append([f"r = on_{one.name}(n)", "if r is not None and r is not n:",
                              f"return {one.name!r}, r"])  # fmt: skip
        self[op] = _compile(f"{self.name}_{op.name.lower()}", paths, scope) if paths else None
        return self[op]


def _compile(name: str, paths: list[list[str]], scope: dict[str, Any]) -> Matcher:
    trie: Trie = {}
    for steps in paths:
        branch = trie
        for step in steps:
            branch = branch.setdefault(step, {})
    lines = ["def match(n):\n", *_emit(trie, "    ")]
    source = "".join(lines)
    filename = f"<lamina rules {name} {hash(source):x}>"
    linecache.cache[filename] = (len(source), None, lines, filename)
    exec(compile(source, filename, "exec"), scope)
    matcher: Matcher = scope["match"]
    return matcher


def _emit(trie: Trie, indent: str) -> Iterator[str]:
    for step, rest in trie.items():
        yield f"{indent}{step}\n"
        yield from _emit(rest, indent + "    " if step.startswith("if ") else indent)


class _Path:
    """The steps that match one form of a rule's left side and build its right side. Variables are
    named by their path from the root ``n``: ``n_0_1`` is operand 1 of operand 0."""

    def __init__(self, rule: rules.Rule, left: rules.Pattern, scope: dict[str, Any]) -> None:
        self.rule = rule
        self.scope = scope
        self.steps: list[str] = []
        self.bound: dict[str, str] = {}  # hole -> the expression it matches
        self.match(left, "n")
        for guard in rule.guards:
            self.guard(guard)
        self.steps.append(f"return {rule.name!r}, {self.build(rule.right)}")

    def match(self, pattern: rules.Pattern, path: str) -> None:
        """Tests from the root down; those of plain holes, which tell least, last."""
        if not isinstance(pattern, rules.Apply):
            return
        operands = [(one, f"{path}_{i}") for i, one in enumerate(pattern.src)]
        self.steps.append(f"{', '.join(name for _, name in operands)}, = {path}.src")
        for one, name in sorted(operands, key=lambda pair: type(pair[0]) is rules.Hole):
            self.test(one, name)
        if pattern.arg is not None:
            self.bind(pattern.arg, f"{path}.arg")
        for one, name in operands:
            self.match(one, name)

    def test(self, pattern: rules.Pattern, name: str) -> None:
        constant = f"{name}.op is CONST or {name}.op is EXPAND and {name}.src[0].op is CONST"
        scalar = f"({name}.src[0] if {name}.src else {name})"
        if isinstance(pattern, rules.Apply):
            self.steps.append(f"if {name}.op is {pattern.op.name}:")
        elif isinstance(pattern, rules.NotConst):
            self.steps.append(f"if not ({constant}):")
        elif isinstance(pattern, rules.Literal | rules.Const):
            self.steps += [f"if {constant}:", f"{name}_value = {scalar}.arg.value"]
        if isinstance(pattern, rules.Literal):
            value = f"{name}_value"
            self.steps.append(f"if {value} == {pattern} and str({value}) in {pattern.texts}:")
        elif isinstance(pattern, rules.Hole):
            if pattern.kinds != rules.Kinds.ANY and pattern.name not in self.bound:
                self.steps.append(f"if {name}.dtype.kind in {pattern.kinds}:")
            self.bind(pattern, name)

    def bind(self, hole: rules.Hole | rules.DTypeHole, text: str) -> None:
        """The first use of a hole sets it, others compare with it."""
        if self.bound.setdefault(hole.name, text) != text:
            self.steps.append(f"if {self.bound[hole.name]} is {text}:")

    def guard(self, guard: rules.Guard) -> None:
        name = f"guard_{guard.function.__name__}"
        if self.scope.setdefault(name, guard.function) is not guard.function:
            raise RuleError(f"rule {self.rule.name}: two guards are called {name}")
        values = [
            self.bound[one.name] + ("_value" if isinstance(one, rules.Const) else "")
            for one in guard.holes
        ]
        self.steps.append(f"if {name}({', '.join(values)}):")

    def build(self, term: rules.Pattern) -> str:
        """Add the steps that make `term`; the answer is its variable."""
        if isinstance(term, rules.Hole):
            return self.bound[term.name]
        if not isinstance(term, rules.Apply):
            return f"n.lift({term})"
        names = [None if isinstance(one, rules.Literal) else self.build(one) for one in term.src]
        # A literal is typed by its sibling, but not by the condition of a choice.
        typed = names[1:] if term.op is Op.WHERE else names
        like = next(filter(None, typed), None)
        if like is None:
            raise RuleError(f"rule {self.rule.name}: {term} does not say the dtype of its literals")
        pairs = zip(term.src, names, strict=True)
        operands = [name or f"{like}.lift({one})" for one, name in pairs]
        arg = term.arg and self.bound[term.arg.name]
        made = f"r{len(self.steps)}"
        holes = [one for one in rules.terms(term) if isinstance(one, rules.Hole)]
        make = "fold" if all(isinstance(one, rules.Const) for one in holes) else "Node"
        self.steps.append(f"{made} = {make}({term.op.name}, ({', '.join(operands)},), {arg})")
        return made


# Rewriting.

Applied = tuple[str, Node, Node]  # the rule's name, the node before and after

# Rule applications allowed before the graph is measured, and then for each of its nodes.
_FREE_STEPS = 10_000
_STEPS_PER_NODE = 64


def rewrite(
    sinks: Sequence[Node], rules: RuleSet, trace: list[Applied] | None = None
) -> list[Node]:
    """`sinks` with `rules` applied until none applies anywhere; `trace` gets each step. A node that
    no rule touches stays the same object. Raises RuleError, naming the rules, when they do not
    come to an end, or when a rule changes the shape or dtype of a node."""
    return _Rewriter(sinks, rules, trace).run()


@dataclass
class _Rewriter:
    """The state of one call to `rewrite`."""

    sinks: Sequence[Node]
    rules: RuleSet
    trace: list[Applied] | None
    done: dict[Node, Node] = field(default_factory=dict)  # node -> its final form
    # node -> itself over final operands, what a rule made of it, the rule
    waiting: dict[Node, tuple[Node, Node, str]] = field(default_factory=dict)
    steps: int = 0
    limit: int = _FREE_STEPS

    def run(self) -> list[Node]:
        done, waiting, rules = self.done, self.waiting, self.rules
        stack = list(reversed(self.sinks))
        while stack:
            node = stack.pop()
            if node in done:
                continue
            if missing := [operand for operand in node.src if operand not in done]:
                stack += (node, *missing)
                continue
            if node in waiting:
                self._settle(node)
                continue
            src = tuple([done[operand] for operand in node.src])
            current = node if src == node.src else Node(node.op, src, node.arg)
            matcher = rules[current.op]
            match = matcher(current) if matcher else None
            if match is None:
                done[node] = done[current] = current
            else:
                waiting[node] = (current, match[1], match[0])
                self._apply(current, *match)
                stack += (node, match[1])
        return [done[sink] for sink in self.sinks]

    def _settle(self, node: Node) -> None:
        """What a rule made of `node` is final, and so is `node`."""
        current, new, _ = self.waiting[node]
        if new not in self.done:
            chain = list(self.waiting)
            self._fail(chain[chain.index(node) :], f"lead from {node!r} back to itself")
        del self.waiting[node]
        self.done[node] = self.done[current] = self.done[new]

    def _apply(self, before: Node, name: str, after: Node) -> None:
        if after.dtype is not before.dtype or after.shape != before.shape:
            raise RuleError(f"rule {name} turned {before!r} into {after!r}: shape or dtype differ")
        if self.trace is not None:
            self.trace.append((name, before, after))
        self.steps += 1
        if self.steps > self.limit:
            measured = _FREE_STEPS + _STEPS_PER_NODE * len(toposort(self.sinks))
            if self.limit == measured:
                self._fail(self.waiting, f"did not come to an end in {measured} steps")
            self.limit = measured

    def _fail(self, nodes: Iterable[Node], what: str) -> NoReturn:
        """Name the rules most at work on `nodes`, which wait for each other."""
        names = Counter(self.waiting[one][2] for one in nodes).most_common(8)
        listed = ", ".join(name for name, _ in names)
        raise RuleError(f"rewrite: rules {listed} of {self.rules.name} {what}")
