"""Other axes in place of neighbouring ones, everywhere in a kernel: what most moves do to it."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from lamina.graph import index as ix
from lamina.ir.kernel import Kernel, Store, bound_axes, free_axes
from lamina.ir.node import Node
from lamina.ir.ops import Op
from lamina.loops.nest import Axes, operands_of


@dataclass(frozen=True)
class Reindexing:
    """The axes `new` in place of those in `index_of`, the old ones, which are neighbours.

    index_of: each old axis as an index over the new ones. For a split of a0 by 4 into a1 and a2
        that is {a0: 4 * a1 + a2}; for a0 and a1, of 8 steps, fused to a2 {a0: a2 // 8, a1: a2 % 8}
    new: the new axes, outermost first
    guard: a condition over the new axes. Where it does not hold, no load that depended on an old
        axis happens, and no store if the first old axis is a row. So 10 rows may become 3 * 4, with
        the guard ``4 * a1 + a2 < 10``
    """

    index_of: Mapping[Node, Node]
    new: Axes
    guard: Node = ix.TRUE

    @cached_property
    def old(self) -> Axes:
        """The axes that are replaced, outermost first."""
        return tuple(self.index_of)

    def axes(self, axes: Axes) -> Axes:
        """`axes` with the new ones where the first old one is, and without the other old ones:
        (a3, a4, a2) for (a0, a1, a2) with (a3, a4) in place of (a0, a1)."""
        return substituted(axes, self.old, self.new)

    def kernel(self, kernel: Kernel) -> Kernel:
        """`kernel` with the new axes in all expressions, stores and reductions."""
        rebuilt = dict(self.index_of)
        for node in kernel.nodes:
            if node not in rebuilt:
                rebuilt[node] = self._rebuilt(node, rebuilt)
        is_row = self.old[0] in kernel.row_axes
        guard = self.guard if is_row else ix.TRUE
        stores = tuple(self._store(store, rebuilt, guard) for store in kernel.stores)
        rows = kernel.rows
        if is_row:
            rows += len(self.new) - len(self.old)
        return replace(kernel, stores=stores, rows=rows)

    def _rebuilt(self, node: Node, rebuilt: Mapping[Node, Node]) -> Node:
        """`node` over operands that are `rebuilt`. A reduction runs over the new axes in place of
        the old ones that it ran over, and a load of what depended on an old one has the guard."""
        operands = tuple(rebuilt[operand] for operand in operands_of(node))
        is_guarded = node.op is Op.LOAD and self.guard is not ix.TRUE
        if is_guarded and not free_axes(node).isdisjoint(self.old):
            index, *conditions = operands
            operands = (index, ix.both(*conditions, self.guard))
        return ix.rebuild(node, operands + self.axes(bound_axes(node)))

    def _store(self, store: Store, rebuilt: Mapping[Node, Node], guard: Node) -> Store:
        """`store` of expressions that are `rebuilt`, over the new axes and under `guard`."""
        store = replace(store, axes=self.axes(store.axes)).rebuilt(rebuilt)
        if guard is ix.TRUE:
            return store
        return replace(store, condition=ix.both(store.condition, guard))


def substituted(axes: Axes, old: Axes, new: Axes) -> Axes:
    """`axes` with `new` in place of the first of `old`, and without the others of `old`."""
    if set(old).isdisjoint(axes):
        return axes
    result: list[Node] = []
    for axis in axes:
        if axis is old[0]:
            result += new
        elif axis not in old:
            result.append(axis)
    return tuple(result)
