"""Calls opened: the graph that was built once for many calls, in place of each.

A CALL holds a graph over numbered BUFFERs, its holes, and has an operand for each of them.
"""

from lamina.ir.node import Node, toposort
from lamina.ir.ops import Op
from lamina.ir.substitute import substitute, with_operands


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
