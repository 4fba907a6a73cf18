"""Scatters along the last axis, in place of another one.

    scatter(base, index, updates) along axis 0
        =   permute(scatter(permute(base), copy(permute(index)), copy(permute(updates))))

A block of a GPU that holds all places of few columns reads a part of each sector of memory that it
touches: with float32 and one column an eighth. Copies in another order read and write each element
once, and a copied index takes 1, 2 or 4 bytes. Each place is combined with the
same updates, in the same order.
"""

from collections.abc import Sequence

from lamina.core.dtypes import int32
from lamina.graph.scatter_runs import keys_of, own_index
from lamina.ir import build
from lamina.ir.node import Node
from lamina.ir.ops import Op


def scatter_along_last_axis(node: Node) -> Node | None:
    """A scatter along its last axis; None for any other node, and where it is along that already.
    """
    if node.op is not Op.SCATTER or node.arg.axis == len(node.shape) - 1:
        return None
    base, index, updates = node.src
    axis: int = node.arg.axis
    order = build.moved_last(axis, len(node.shape))
    keys = keys_of(own_index(index), base.shape[axis])
    where = build.cast(_stored(build.expand(keys, index.shape), order), int32)
    source = updates
    if updates.op is Op.CAST and updates.src[0].dtype.itemsize < updates.dtype.itemsize:
        source = updates.src[0]  # of 16 bits rather than of 32
    new = _stored(source, order)
    operands = build.permute(base, order), where, build.cast(new, updates.dtype)
    turned = Node(Op.SCATTER, operands, node.arg._replace(axis=len(order) - 1))
    return build.permute(turned, build.inverse(order))


def _stored(x: Node, order: Sequence[int]) -> Node:
    """The axes of `x` in another order, in memory: once where it repeats."""
    once = own_index(x)
    stored = Node(Op.CONTIGUOUS, (build.permute(once, order),))
    return build.expand(stored, build.permute(x, order).shape)
