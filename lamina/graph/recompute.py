"""Values that derivatives compute again, so that they need no memory from the forward pass on.

``RECOMPUTED(x, y)`` marks them: x is computed from y. A rule of the backward sweep that reads x, or
what is computed from x and constants alone, reads the same made of ``AGAIN(y)``. That is another
node, as AGAIN equals no value, so that it is computed when it is needed.

    weight = RECOMPUTED(all_gather(shard), shard)
    y = x @ weight                        dx = g @ all_gather(AGAIN(shard))
"""

from collections.abc import Iterable

from lamina.ir.node import Node
from lamina.ir.ops import Group, Op
from lamina.ir.substitute import substitute

# Operations on recomputed values that are computed again with them: what reads no more than it
# gives, and needs no memory of its own in most kernels.
WITH_OPERANDS = Group.ELEMENTWISE | Group.MOVEMENT | {Op.CONTIGUOUS, Op.DETACH}


class Recomputed:
    """What is computed again of the nodes of a graph, `order`, operands first."""

    def __init__(self, order: Iterable[Node]) -> None:
        self._again: dict[Node, Node] = {}
        self._recomputed: set[Node] = set()
        available: set[Node] = set()  # constants, and what is computed again
        for node in order:
            if node.op is Op.RECOMPUTED:
                self._again[node] = self._made_again(node)
                self._recomputed.add(node)
            elif node.op in WITH_OPERANDS and available.issuperset(node.src):
                if not self._recomputed.isdisjoint(node.src):
                    self._recomputed.add(node)
            elif node.op is not Op.CONST:
                continue
            available.add(node)

    def __call__(self, node: Node) -> Node:
        """What a derivative reads in place of `node`; that itself unless it is computed again."""
        if node not in self._recomputed:
            return node
        (again,) = substitute([node], self._again)
        return again

    def _made_again(self, node: Node) -> Node:
        value, source = node.src
        (again,) = substitute([value], {source: Node(Op.AGAIN, (source,))})
        return again
