"""Rewriting a graph to a fixed point, operands first, without recursion."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import NoReturn

from lamina.errors import RuleError
from lamina.ir.node import Node, toposort
from lamina.rewrite.rules import RuleSet

Applied = tuple[str, Node, Node]  # the rule's name, the node before and after
Trace = list[Applied] | Callable[[str, Node, Node], object]

# Rule applications allowed before the graph is measured, and then for each of its nodes.
_FREE_STEPS = 10_000
_STEPS_PER_NODE = 64


def rewrite(sinks: Sequence[Node], rules: RuleSet, trace: Trace | None = None) -> list[Node]:
    """`sinks` with `rules` applied until none applies anywhere.

    A node is rewritten after its operands and then again until it is stable; equal nodes are
    rewritten once; a node that no rule touches stays the same object. `trace`, a list or a
    function, gets the name of each rule that applied with the node before and after.

    Raises RuleError, naming the rules, when they do not come to an end, or when a rule changes
    the shape or dtype of a node.
    """
    return _Rewriter(sinks, rules, trace).run()


class _Rewriter:
    """The state of one call to `rewrite`."""

    def __init__(self, sinks: Sequence[Node], rules: RuleSet, trace: Trace | None) -> None:
        self.sinks = sinks
        self.rules = rules
        self.record = trace
        self.done: dict[Node, Node] = {}  # node -> its final form
        # node -> (itself over final operands, what a rule made of it, the rule)
        self.waiting: dict[Node, tuple[Node, Node, str]] = {}
        self.recent: deque[str] = deque(maxlen=256)
        self.steps = 0
        self.limit = _FREE_STEPS

    def run(self) -> list[Node]:
        done, waiting, matchers = self.done, self.waiting, self.rules.matchers
        stack = list(reversed(self.sinks))
        while stack:
            node = stack.pop()
            if node in done:
                continue
            ready = same = True
            for operand in node.src:
                final = done.get(operand)
                if final is None:
                    if ready:
                        stack.append(node)
                        ready = False
                    stack.append(operand)
                elif final is not operand:
                    same = False
            if not ready:
                continue
            if waiting and node in waiting:
                self._settle(node)
                continue
            current = node if same else Node(node.op, tuple(done[x] for x in node.src), node.arg)
            matcher = matchers[current.op]
            match = None if matcher is None else matcher(current)
            if match is None:
                done[node] = current
                if not same:
                    done[current] = current
                continue
            self._apply(current, *match)
            waiting[node] = (current, match[1], match[0])
            stack.append(node)
            stack.append(match[1])
        return [done[sink] for sink in self.sinks]

    def _settle(self, node: Node) -> None:
        """What a rule made of `node` is final, and so is `node`."""
        current, new, _ = self.waiting[node]
        if new not in self.done:
            chain = list(self.waiting)
            names = [self.waiting[one][2] for one in chain[chain.index(node) :]]
            self._fail(names, f"lead from {node!r} back to itself")
        del self.waiting[node]
        self.done[node] = self.done[current] = self.done[new]

    def _apply(self, before: Node, name: str, after: Node) -> None:
        if after.dtype is not before.dtype or after.shape != before.shape:
            raise RuleError(f"rule {name} turned {before!r} into {after!r}: shape or dtype differ")
        if isinstance(self.record, list):
            self.record.append((name, before, after))
        elif self.record is not None:
            self.record(name, before, after)
        self.recent.append(name)
        self.steps += 1
        if self.steps > self.limit:
            measured = _FREE_STEPS + _STEPS_PER_NODE * len(toposort(self.sinks))
            if self.limit == measured:
                names = [one for one, _ in Counter(self.recent).most_common(8)]
                self._fail(names, f"did not come to an end in {self.limit} steps")
            self.limit = measured

    def _fail(self, names: Sequence[str], what: str) -> NoReturn:
        unique = ", ".join(dict.fromkeys(names))
        raise RuleError(f"rewrite: rules {unique} of {self.rules.name} {what}")
