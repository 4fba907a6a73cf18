"""Axes of nodes, and where they come from beneath movement.

Axis 1 of ``reshape(permute(x, (0, 2, 1)), (N, C, H, W))``, for x of (N, H * W, C), is axis 2 of x:
the passes that choose an order in memory follow channels in this way, from a reader to the array.
"""

from collections.abc import Sequence, Set
from dataclasses import dataclass

from lamina.core.shape import prod
from lamina.ir.build import moved_last
from lamina.ir.node import Node
from lamina.ir.ops import Group, Op, Reduce
from lamina.ir.products import product_of

# What changes indices and nothing else.
INDEXING = Group.MOVEMENT - {Op.PAD}


@dataclass(frozen=True)
class Axis:
    """An axis of a node, by its position in the shape."""

    node: Node
    number: int


def traced(axis: Axis, movement: Set[Op] = INDEXING) -> Axis | None:
    """The same axis of what lies beneath movement, and beneath gathers along other axes; None if it
    is moved along, cut, padded or repeated there, or is only a part of an axis."""
    node, number = axis.node, axis.number
    while node.op in movement or node.op is Op.GATHER:
        below = axis_below(node, number)
        if below is None:
            return None
        node, number = node.src[0], below
    return Axis(node, number)


def axis_below(node: Node, number: int) -> int | None:
    """Where the axis `number` of a movement's result is in its operand, whole and in order."""
    source = node.src[0].shape
    size = node.shape[number]
    match node.op:
        case Op.PERMUTE:
            return int(node.arg[number])
        case Op.RESHAPE:
            before = prod(node.shape[:number])
            places = (place for place, other in enumerate(source) if other == size)
            return next((place for place in places if prod(source[:place]) == before), None)
        case Op.EXPAND:
            place = number - (len(node.shape) - len(source))
            return place if place >= 0 and source[place] == size else None
        case Op.SHRINK:
            return number if node.arg[number] == range(source[number]) else None
        case Op.PAD:
            return None if node.arg.before[number] or node.arg.after[number] else number
        case Op.SHEAR:
            return None if number in (node.arg.axis, node.arg.by) else number
        case Op.GATHER:
            return None if number == node.arg else number
        case _:
            return None


def kept_axes(node: Node) -> list[int]:
    """The axes of its operand that a REDUCE keeps."""
    return [axis for axis in range(len(node.src[0].shape)) if axis not in node.arg.axes]


def moved_product_of(node: Node) -> Node | None:
    """The products that a sum adds up if their factors are read beneath movement, as those of a
    convolution or of matrices are; None for any other node."""
    product = product_of(node, INDEXING)
    is_moved = product is not None and any(factor.op in INDEXING for factor in product.src)
    return product if is_moved else None


def reduced_in_order(node: Node, operands: Sequence[Node], number: int) -> Node:
    """A REDUCE of operands whose axis `number` has been moved to the end."""
    order = moved_last(number, len(node.src[0].shape))
    axes = tuple(sorted(order.index(axis) for axis in node.arg.axes))
    return Node(Op.REDUCE, tuple(operands), Reduce(node.arg.monoid, axes, node.arg.component))
