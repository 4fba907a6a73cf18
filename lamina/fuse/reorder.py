"""Building a graph anew, with another order of axes in memory for some of its nodes.

`layout.py` chooses for the tiles of GPUs which axis of a node is to be the last one, and
`channels_last.py` for the vectors of CPUs. Only the order changes: a node whose axis 1 of
(N, C, H, W) is to be the last one is computed as (N, H, W, C), and the rest of the graph sees it in
its own shape, as a permutation back.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence, Set

from lamina.ir.build import inverse, moved_last, permute
from lamina.ir.node import Node
from lamina.ir.ops import Op
from lamina.ir.substitute import with_operands

LastAxis = Mapping[Node, int]  # the axis of a node that is to be the last one in memory


class Rebuilder(ABC):
    """Builds the nodes of `last_axis` with that axis at the end; those that are `stored` are in
    memory so."""

    def __init__(self, last_axis: LastAxis, stored: Set[Node]) -> None:
        self.last_axis = last_axis
        self.stored = stored
        self.done: dict[Node, Node] = {}  # what every node has become, in its own shape
        self.permuted: dict[Node, Node] = {}  # the nodes of `last_axis` with that axis last

    def rebuilt(self, order: Iterable[Node], sinks: Sequence[Node]) -> list[Node]:
        """`sinks`, after all nodes of `order`, operands first, have been built anew."""
        for node in order:
            axis = self.last_axis.get(node)
            if axis is None:
                self.done[node] = self.in_own_order(node)
                continue
            permuted = self.in_order(node, axis)
            if node in self.stored:
                permuted = Node(Op.CONTIGUOUS, (permuted,))
            self.permuted[node] = permuted
            self.done[node] = permute(permuted, inverse(moved_last(axis, len(node.shape))))
        return [self.done[sink] for sink in sinks]

    @abstractmethod
    def in_order(self, node: Node, axis: int) -> Node:
        """`node` with `axis` at the end, over operands that are done."""

    def in_own_order(self, node: Node) -> Node:
        """`node` over operands that are done. The first operand of an ASSIGN is the buffer that it
        writes to, and stays that, even if kernels read the buffer in another order."""
        operands = [self.done[operand] for operand in node.src]
        if node.op is Op.ASSIGN:
            operands[0] = node.src[0]
        return with_operands(node, tuple(operands))

    def operand(self, operand: Node, axis: int) -> Node:
        """An operand with `axis` at the end: as it is where it is computed so; any other is
        permuted."""
        if self.last_axis.get(operand) == axis:
            return self.permuted[operand]
        return permute(self.done[operand], moved_last(axis, len(operand.shape)))
