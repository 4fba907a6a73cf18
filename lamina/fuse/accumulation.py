"""Sums that memory adds up, one part of an axis after the other, while kernels run in row blocks.

The gradient of v in attention, ``sum over i of weights[i, j] * g[i, k]``, runs over all rows of the
weights, of which only blocks exist. For each block of 16 rows its kernel adds the sum over these 16
to what memory holds. Memory begins with 0, or with what else is added: with b for ``sum + b``.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from lamina.fuse.epilogues import BIJECTIVE
from lamina.ir.kernel import bound_axes
from lamina.ir.monoids import ADD
from lamina.ir.node import Node, peel, toposort
from lamina.ir.ops import Op


@dataclass(frozen=True)
class Accumulation:
    """A value as the sum `total` plus `rest`. `total` runs along one loop, `axis`, which blocks can
    cut into parts; memory begins with `rest`, or with 0 if that is None."""

    total: Node
    rest: Node | None
    axis: Node


@dataclass(frozen=True)
class SumAndRest:
    """A value taken apart: a sum and what is added to it. For ``x @ w + b``, `total` is the product
    of matrices and `rest` is b."""

    total: Node
    rest: Node | None

    def moved_by(self, movement: Node) -> "SumAndRest":
        """Both parts after the RESHAPE or PERMUTE `movement`, whose operand they make up."""
        total = Node(movement.op, (self.total,), movement.arg)
        rest = Node(movement.op, (self.rest,), movement.arg) if self.rest else None
        return SumAndRest(total, rest)

    def plus(self, other: Node) -> "SumAndRest":
        """The same sum, with `other` added to the rest."""
        rest = Node(Op.ADD, (self.rest, other)) if self.rest else other
        return SumAndRest(self.total, rest)


def sum_and_rest(value: Node, is_in_memory: Callable[[Node], bool]) -> SumAndRest | None:
    """`value` as a sum plus the rest; None if it is anything else. What `is_in_memory` is read and
    never taken apart.

    ``reshape(sum(x) + a) + b`` becomes the total ``reshape(sum(x))`` and the rest
    ``reshape(a) + b``.
    """
    parts: dict[Node, SumAndRest] = {}  # of each node that is a sum plus a rest, operands first
    for node in toposort([value], lambda node: not is_in_memory(node), _operands_to_search):
        parts_of_node = _parts_of(node, parts)
        if parts_of_node is not None:
            parts[node] = parts_of_node
    return parts.get(value)


def _operands_to_search(node: Node) -> tuple[Node, ...]:
    """The operands of `node` that may be its sum, or have it within."""
    return node.src if node.op is Op.ADD or node.op in BIJECTIVE else ()


def _parts_of(node: Node, parts: Mapping[Node, SumAndRest]) -> SumAndRest | None:
    """`node` as a sum plus the rest, from the `parts` of its operands."""
    if node.op is Op.REDUCE and node.arg.monoid is ADD:
        return SumAndRest(node, None)
    if node.op in BIJECTIVE and node.src[0] in parts:
        return parts[node.src[0]].moved_by(node)
    if node.op is Op.ADD:
        left, right = node.src
        if left in parts:
            return parts[left].plus(right)
        if right in parts:
            return parts[right].plus(left)
    return None


def is_only_sum(parts: SumAndRest, value: Node, members: list[Node]) -> bool:
    """Whether a kernel has no `members` but `value` and the reduction in it. Any other one would
    have to be stored too, but a kernel that accumulates stores only the parts of its sum."""
    reduction = peel(parts.total, BIJECTIVE)  # `value` may reshape and permute it
    return all(member in (value, reduction) for member in members)


def summed_axis(total: Node, value: Node) -> Node | None:
    """The one loop along which the scalar `total` adds up in the scalar `value`, as which a kernel
    computes a member; None if blocks cannot cut it.

    It must be one loop, as one loop numbers the blocks. No other reduction in `value` may run along
    it: ``sum(exp(x - max(x)))`` needs the maximum of all parts before it can add up the first.
    """
    axes = bound_axes(total)
    if len(axes) != 1:
        return None
    (axis,) = axes
    others = [node for node in toposort([value]) if node is not total]
    if any(axis in bound_axes(node) for node in others):
        return None
    return axis
