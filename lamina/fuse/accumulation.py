"""Sums that memory adds up, one part of an axis after the other, while kernels run in row blocks.

The gradient of v in attention, ``sum over i of weights[i, j] * g[i, k]``, runs over all rows of the
weights, of which only blocks exist. For each block of 16 rows its kernel adds the sum over these 16
to what memory holds. Memory begins with 0, or with what else is added: with b for ``sum + b``.
"""

from collections.abc import Callable
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
    if is_in_memory(value):
        return None
    if value.op is Op.REDUCE and value.arg.monoid is ADD:
        return SumAndRest(value, None)
    if value.op in BIJECTIVE:
        parts = sum_and_rest(value.src[0], is_in_memory)
        return parts.moved_by(value) if parts else None
    if value.op is Op.ADD:
        left, right = value.src
        for addend, other in ((left, right), (right, left)):
            parts = sum_and_rest(addend, is_in_memory)
            if parts:
                return parts.plus(other)
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
