"""Rewriting a graph to a fixed point, operands first, without recursion."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NoReturn

from lamina.errors import RuleError
from lamina.ir.node import Node, toposort
from lamina.rewrite.compiled import RuleSet

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
