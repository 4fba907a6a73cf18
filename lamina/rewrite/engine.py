"""Sets of rules, and rewriting a graph by one: to a fixed point, operands first, no recursion."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NoReturn

from lamina.errors import VerifyError
from lamina.ir.node import Node, toposort
from lamina.ir.ops import Op
from lamina.rewrite.rules import Rule


class RuleSet:
    """Rules that are used together, tried in the order given. Raises VerifyError when two have one
    name."""

    def __init__(self, name: str, content: Iterable[Rule]) -> None:
        self.name, self.rules = name, tuple(content)
        self.by_op = {op: [one for one in self.rules if op in one.ops] for op in Op}
        for rule_name, count in Counter(one.name for one in self.rules).items():
            if count > 1:
                raise VerifyError(f"rules {name}: two rules are called {rule_name}")


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
        for rule in rules.by_op[current.op]:
            found = rule.apply(current)
            if found is not None and found is not current:
                break
        else:
            done[node] = done[current] = current
            continue
        if found.dtype is not node.dtype or found.shape != node.shape:
            text = f"rule {rule.name} turned {current!r} into {found!r}"
            raise VerifyError(f"{text}: shape or dtype differ")
        trace.append((rule.name, current, found))
        if len(trace) > limit:
            _fail(rules, trace, f"did not come to an end in {limit} steps")
        waiting[node] = current, found
        stack += (node, found)
    return [done[sink] for sink in sinks]


def _fail(rules: RuleSet, trace: list[Applied], what: str) -> NoReturn:
    """Name the rules at work in the last steps."""
    names = Counter(name for name, _, _ in trace[-64:]).most_common(8)
    raise VerifyError(f"rewrite: rules {', '.join(dict(names))} of {rules.name} {what}")
