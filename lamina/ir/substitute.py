"""Replacing nodes of a graph: everything above them is built anew, everything else is shared."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from lamina.ir.node import Node, toposort

Rebuild = Callable[[Node, tuple[Node, ...]], Node]  # a node for another one, over new operands


def with_operands(node: Node, src: tuple[Node, ...]) -> Node:
    """`node` applied to operands `src`; the same object if these are its own."""
    return node if src == node.src else Node(node.op, src, node.arg)


def substitute(
    sinks: Sequence[Node], done: dict[Node, Node], rebuild: Rebuild = with_operands
) -> list[Node]:
    """`sinks` with other nodes in place of the keys of `done`: ``(x + y) * 2`` with z for x is
    ``(z + y) * 2``. A replacement is taken as it is; nothing is replaced beneath it.

    `rebuild` makes every other node from its new operands, operands first. It may return any node
    of the same dtype and shape, such as a simpler one. All of them are added to `done`, so that a
    second call with other sinks does nothing again."""
    for node in toposort(sinks, lambda node: node not in done):
        done[node] = rebuild(node, tuple([done[operand] for operand in node.src]))
    return [done[sink] for sink in sinks]


def rebuilt_in_order(
    order: Iterable[Node], replacements: Mapping[Node, Node], rebuild: Rebuild = with_operands
) -> dict[Node, Node]:
    """What each node of `order`, operands first, becomes by `replacements`, as in `substitute`."""
    done = dict(replacements)
    for node in order:
        if node not in done:
            done[node] = rebuild(node, tuple([done[operand] for operand in node.src]))
    return done
