"""Scatters into a number, such as zeros, in the order of axes in which they are read, on a CPU.

The gradient of an image that was read with its channels first is permuted back:

    permute(scatter(zeros, index, updates), axes)
        =   scatter(permute(zeros), permute(index), permute(updates)), along the axis that it was

Zeros have any order, and updates are few beside them where an image was made smaller: what is
written of the left side is read again, in another order, to be written once more.
"""

from collections.abc import Sequence

from lamina.fuse.users import Users, users_of
from lamina.ir.build import permute
from lamina.ir.node import Node, constant_of
from lamina.ir.ops import Op
from lamina.ir.substitute import with_operands


def scatters_as_read(sinks: Sequence[Node]) -> list[Node]:
    """The graph of `sinks` with scatters that a permutation alone reads made in its order."""
    users, results = users_of(sinks), set(sinks)
    done: dict[Node, Node] = {}
    for node in users:
        new = with_operands(node, tuple([done[operand] for operand in node.src]))
        is_permuted = node.op is Op.PERMUTE and _has_own_scatters(node, users, results)
        done[node] = _in_order(new.src[0], new.arg) if is_permuted else new
    return [done[sink] for sink in sinks]


def _has_own_scatters(user: Node, users: Users, results: set[Node]) -> bool:
    """Is the first operand of `user` a scatter, for it alone, into a number or such a scatter?"""
    scatter = user.src[0]
    if scatter.op is not Op.SCATTER or scatter in results or users[scatter] != [user]:
        return False
    is_number = constant_of(scatter.src[0]) is not None
    return is_number or _has_own_scatters(scatter, users, results)


def _in_order(base: Node, axes: Sequence[int]) -> Node:
    """Scatters into a number, or that number, with their axes in the order `axes`."""
    if base.op is not Op.SCATTER:
        return permute(base, axes)
    below, index, updates = base.src
    operands = _in_order(below, axes), permute(index, axes), permute(updates, axes)
    moved = base.arg._replace(axis=list(axes).index(base.arg.axis))
    return Node(Op.SCATTER, operands, moved)
