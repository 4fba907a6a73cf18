"""Calls opened: the graph that was built once for many calls, in place of each.

A CALL holds a graph over numbered BUFFERs, its input leaves, and has an operand for each of them.
"""

from dataclasses import dataclass

from lamina.core.recent import memoized
from lamina.ir.node import Node, toposort
from lamina.ir.ops import Op
from lamina.ir.substitute import Rebuild, with_operands


@dataclass(frozen=True)
class _Content:
    """The nodes of a graph: its input leaves, in the order of the operands of a CALL of it, and all
    others after their operands."""

    input_leaves: list[Node]
    others: list[Node]


@memoized(2048)
def _content_of(graph: Node) -> _Content:
    order = toposort([graph])
    input_leaves = [node for node in order if node.op is Op.BUFFER]
    return _Content(input_leaves, [node for node in order if node.op is not Op.BUFFER])


def input_leaves_of(graph: Node) -> list[Node]:
    """The BUFFER leaves of `graph`, in the order of the operands of a CALL of it."""
    return _content_of(graph).input_leaves


def open_call(node: Node, operands: tuple[Node, ...], rebuild: Rebuild = with_operands) -> Node:
    """`rebuild` of `node` on `operands`; of a CALL its content, each node rebuilt on these."""
    if node.op is not Op.CALL:
        return rebuild(node, operands)
    content = _content_of(node.arg)
    done = dict(zip(content.input_leaves, operands, strict=True))
    for inner in content.others:
        below = tuple([done[operand] for operand in inner.src])
        done[inner] = open_call(inner, below, rebuild)
    return done[node.arg]


def without_detach(node: Node, operands: tuple[Node, ...]) -> Node:
    """`node` on `operands`; of a DETACH its operand."""
    return operands[0] if node.op is Op.DETACH else with_operands(node, operands)


def open_without_detach(node: Node, operands: tuple[Node, ...]) -> Node:
    """`open_call`, and no DETACH in what it gives."""
    return open_call(node, operands, without_detach)
