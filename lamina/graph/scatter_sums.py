"""Scatters as reductions: each result goes through all updates of its row and takes its own.

    result[j] = sum_i of (update[i] if index[i] == j else 0)

That compares each update with each place, where a scatter goes through the updates once. But the
results are independent of each other, and what is computed from them, or added to them, shares the
kernel: four taps of an interpolation's derivative read their updates once.
"""

from lamina.core.dtypes import int64
from lamina.ir import build
from lamina.ir.monoids import ADD
from lamina.ir.node import Node
from lamina.ir.ops import Op


def scatter_of_sums(node: Node) -> Node | None:
    """A scatter as a reduction; None for any other node, and for a scatter that replaces."""
    if node.op is not Op.SCATTER or node.arg.monoid is None:
        return None
    base, index, updates = node.src
    axis, monoid = node.arg
    places, count = base.shape[axis], updates.shape[axis]
    box = (*updates.shape[:axis], places, count, *updates.shape[axis + 1 :])

    def for_each_place(x: Node) -> Node:
        return build.expand(build.insert_axes(x, (axis,)), box)

    is_own = for_each_place(build.cast(index, int64)).eq(build.broadcasted_iota(box, axis))
    copies = for_each_place(updates)
    (identity,) = monoid.identity((node.dtype,))
    taken = is_own.select(copies, copies.lift(identity))
    gained = build.reduce(monoid, (axis + 1,), taken)
    return with_gains(node, gained)


def with_gains(scatter: Node, gained: Node) -> Node:
    """The result of a scatter whose places gain `gained`, the reductions of their updates."""
    base, monoid = scatter.src[0], scatter.arg.monoid
    result: Node
    (result,) = monoid.combine((base,), (gained,))
    if monoid is ADD and base.dtype.is_float:
        # Without an update -0.0 stays what it is, and -0.0 + 0.0 is 0.0.
        return gained.eq(0.0).select(base, result)
    return result
