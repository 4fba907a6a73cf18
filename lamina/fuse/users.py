"""Who uses the nodes of a graph."""

from collections.abc import Iterable

from lamina.ir.node import Node, toposort

Users = dict[Node, list[Node]]  # the nodes that have a node as an operand, each of them once


def users_of(sinks: Iterable[Node]) -> Users:
    """The users of every node that `sinks` need, operands before what uses them."""
    users: Users = {node: [] for node in toposort(sinks)}
    for node in users:
        for operand in dict.fromkeys(node.src):
            users[operand].append(node)
    return users
