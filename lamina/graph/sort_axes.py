"""Sorts as a device's kernels do them: of rows that lie in memory one behind the other, or whole.

A sort along any axis, of either direction, that asks for some ranks is a sort of rows that ascend,
with movement around it. For the two largest of 5, 7, 9:

    keys backwards   9, 7, 5      the order of which is   2, 1, 0
    that backwards   0, 1, 2      as places from the end: 2, 1, 0, of which the first two are asked
"""

from math import prod

from lamina.graph.rewrite import on
from lamina.ir import build
from lamina.ir.node import Node
from lamina.ir.ops import Op

# Keys of all rows that lie between each other, up to which a kernel of a CPU reads them where they
# are: 128 KiB of float32, which its caches hold. Each line is read once for each row in it.
MAX_STRIDED = 1 << 15


@on(Op.ARGSORT)
def sorts_of_rows(node: Node) -> Node | None:
    """A sort along an axis other than the last, of the transposed keys; None where these are few,
    or each row is alone."""
    (keys,) = node.src
    inner = keys.shape[node.arg.axis :]
    if prod(inner) <= MAX_STRIDED or prod(inner[1:]) == 1:
        return None
    return _along_last(node)


@on(Op.ARGSORT)
def whole_sorts(node: Node) -> Node | None:
    """Any sort as one of whole rows that ascend, each of neighbours in memory."""
    (keys,), (axis, descending, first, last) = node.src, node.arg
    end = len(keys.shape) - 1
    if axis != end:
        return _along_last(node)
    size = keys.shape[axis]
    if not descending and last - first == size:
        return None
    # Backwards twice: the second time puts equal elements into their own order again.
    flipped = (end,) if descending else ()
    order = build.flip(build.argsort(build.flip(keys, flipped)), flipped)
    ranks = build.slice_axis(order, axis, first, last)
    return -ranks + (size - 1) if descending else ranks


def _along_last(node: Node) -> Node:
    """The same order of keys whose last axis is the one along which they are sorted."""
    (keys,), axis = node.src, node.arg.axis
    end = len(keys.shape) - 1
    axes = list(range(end + 1))
    axes[axis], axes[end] = end, axis
    order = Node(Op.ARGSORT, (build.permute(keys, axes),), node.arg._replace(axis=end))
    return build.permute(order, axes)
