"""Sets of rules, and rewriting a graph by one to a fixed point, operands first, without recursion.

All rules of one operation are compiled to one Python function, a line for each form of a left side:
it tests a node and hands what the holes match to the rule. The source goes into `linecache`:
tracebacks and debuggers show it.
"""

from __future__ import annotations

import linecache
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from math import inf
from typing import Any, NoReturn

from lamina.errors import VerifyError
from lamina.ir.node import Node, constant_of, toposort
from lamina.ir.ops import Op
from lamina.rewrite.rules import Kinds, Rule

# A compiled function returns the rule that applied and the new node, or None.
Matcher = Callable[[Node], tuple[str, Node] | None]


class RuleSet(dict[Op, Matcher]):
    """Rules that are used together: a compiled function an operation, made on first use. Rules are
    tried in the order given. Raises VerifyError when two have one name."""

    def __init__(self, name: str, content: Iterable[Rule]) -> None:
        super().__init__()
        self.name = name
        self.rules = tuple(content)
        for rule_name, count in Counter(one.name for one in self.rules).items():
            if count > 1:
                raise VerifyError(f"rules {name}: two rules are called {rule_name}")

    def __missing__(self, op: Op) -> Matcher:
        found = [one for one in self.rules if op in one.ops]
        lines = [f"def match(n):  # {op.name}\n"]
        arity = max((len(left.src) for one in found for left in one.forms), default=0)
        lines += [f"    n{i} = n.src[{i}]; c{i} = constant_of(n{i})\n" for i in range(arity)]
        lines += [line for one in found for line in _lines(one)]
        lines.append("    return None\n")
        scope: dict[str, Any] = dict(Op.__members__, constant_of=constant_of, inf=inf)
        scope |= {f"rule_{one.name}": one.apply for one in found}
        source = "".join(lines)
        filename = f"<lamina rules {self.name} {hash(source):x}>"
        linecache.cache[filename] = (len(source), None, lines, filename)
        exec(compile(source, filename, "exec"), scope)
        self[op] = scope["match"]
        return self[op]


def _lines(rule: Rule) -> Iterator[str]:
    """One for each form of the left side: its tests, then the rule, given what holes match."""
    for left in rule.forms or [None]:
        holes: dict[str, str] = {}
        tests = [*_tests(left, "n", holes)][1:] if left else []  # the operation of n is known
        given = "".join(f", {hole}={path}" for hole, path in holes.items())
        tests.append(f"(r := rule_{rule.name}(n{given})) is not None and r is not n")
        yield f"    if {' and '.join(tests)}: return {rule.name!r}, r\n"


def _tests(term: Node, path: str, holes: dict[str, str]) -> Iterator[str]:
    """Conditions on the node at `path`; `holes` gets what it binds."""
    constant = f"c{path[1:]}" if path[1:].isdigit() else f"constant_of({path})"
    if term.op is Op.HOLE:
        name, _, kinds, is_constant = term.arg
        if is_constant:
            yield f"{constant} is not None"
        if holes.setdefault(name, path) != path:
            yield f"{path} is {holes[name]}"
        elif kinds != Kinds.ANY:
            yield f"{path}.dtype.kind in {kinds}"
    elif term.op is Op.CONST:
        value = term.arg.value  # 0 and 0.0 are not -0.0
        texts = (str(value), str(float(value))) if type(value) is int else (str(value),)
        yield f"{constant} == {value} and str({constant}) in {texts}"
    else:
        yield f"{path}.op is {term.op.name}"
        paths = [f"n{i}" if path == "n" else f"{path}.src[{i}]" for i in range(len(term.src))]
        # Plain holes tell least: they come last.
        plain = [one.op is Op.HOLE and not one.arg.constant for one in term.src]
        for _, inner, operand in sorted(zip(plain, paths, term.src, strict=True)):
            yield from _tests(operand, inner, holes)


# Rewriting.

Applied = tuple[str, Node, Node]  # the rule's name, the node before and after

# Rule applications allowed in any graph, and beyond them for each of its nodes.
_FREE_STEPS = 10_000
_STEPS_PER_NODE = 64


def rewrite(
    sinks: Sequence[Node], rules: RuleSet, trace: list[Applied] | None = None
) -> list[Node]:
    """`sinks` with `rules` applied until none applies anywhere; `trace` gets each step. A node that
    no rule touches stays the same object. Raises VerifyError, naming the rules, when they do not
    come to an end, or when a rule changes the shape or dtype of a node."""
    trace = [] if trace is None else trace
    limit = len(trace) + _FREE_STEPS + _STEPS_PER_NODE * len(toposort(sinks))
    done: dict[Node, Node] = {}  # node -> its final form
    waiting: dict[Node, tuple[Node, Node]] = {}  # the same over final operands, what this became
    stack = list(reversed(sinks))
    while stack:
        node = stack.pop()
        if node in done:
            continue
        if missing := [operand for operand in node.src if operand not in done]:
            stack += (node, *missing)
            continue
        if node in waiting:
            current, new = waiting.pop(node)
            if new not in done:
                _fail(rules, trace, f"lead from {node!r} back to itself")
            done[node] = done[current] = done[new]
            continue
        src = tuple([done[operand] for operand in node.src])
        current = node if src == node.src else Node(node.op, src, node.arg)
        match = rules[current.op](current)
        if match is None:
            done[node] = done[current] = current
            continue
        name, new = match
        if new.dtype is not node.dtype or new.shape != node.shape:
            raise VerifyError(f"rule {name} turned {current!r} into {new!r}: shape or dtype differ")
        trace.append((name, current, new))
        if len(trace) > limit:
            _fail(rules, trace, f"did not come to an end in {limit} steps")
        waiting[node] = current, new
        stack += (node, new)
    return [done[sink] for sink in sinks]


def _fail(rules: RuleSet, trace: list[Applied], what: str) -> NoReturn:
    """Name the rules at work in the last steps."""
    names = Counter(name for name, _, _ in trace[-64:]).most_common(8)
    raise VerifyError(f"rewrite: rules {', '.join(dict(names))} of {rules.name} {what}")
