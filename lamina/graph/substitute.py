"""Substitution: a graph again, with other nodes in place of some."""

from collections.abc import Callable, Sequence

from lamina.ir.node import Node, toposort
from lamina.ir.ops import Op

Rebuild = Callable[[Node, tuple[Node, ...]], Node]


def with_operands(node: Node, operands: tuple[Node, ...]) -> Node:
    """The operation of `node` on `operands`."""
    return node if operands == node.src else Node(node.op, operands, node.arg)


def substitute(
    sinks: Sequence[Node], done: dict[Node, Node], rebuild: Rebuild = with_operands
) -> list[Node]:
    """`sinks` with each node of `done` replaced by its value there, and every other node by
    ``rebuild(node, new operands)``, which is added to `done`."""
    for node in toposort(sinks, lambda node: node not in done):
        operands = tuple([done[operand] for operand in node.src])
        done[node] = rebuild(node, operands)
    return [done[sink] for sink in sinks]


def holes_of(graph: Node) -> list[Node]:
    """The BUFFER leaves of `graph`, in the order of the operands of a CALL of it."""
    return [node for node in toposort([graph]) if node.op is Op.BUFFER]


def open_call(node: Node, operands: tuple[Node, ...]) -> Node:
    """`node` on `operands`; of a CALL the content, on these."""
    if node.op is not Op.CALL:
        return with_operands(node, operands)
    inner = dict(zip(holes_of(node.arg), operands, strict=True))
    (content,) = substitute([node.arg], inner, open_call)
    return content


def without_detach(node: Node, operands: tuple[Node, ...]) -> Node:
    """`node` on `operands`; of a DETACH its operand."""
    return operands[0] if node.op is Op.DETACH else with_operands(node, operands)
