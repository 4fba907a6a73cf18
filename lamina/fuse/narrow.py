"""Loops over what a store changes: an update of one row of a large array writes that row alone.

What a program updates in place is read where no new value is, and written back:

    a[i, j] = new if 0 <= i - start < rows else a[i, j]
    a[i, j] = new if i == place else a[i, j]

The loop over i needs no other steps than those at which the condition holds. In the first case a
shorter loop counts these, and i is ``k + start``; in the second there is none, and i is `place`,
which data may say: where it is out of range, nothing is stored.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from lamina.core.dtypes import int64
from lamina.graph import index as ix
from lamina.ir.kernel import Kernel, Store, bound_axes, free_axes, roots_of
from lamina.ir.node import Node, const, toposort
from lamina.ir.ops import Op


@dataclass
class Narrowing:
    """What becomes of the loops of a kernel."""

    known: list[Node]  # conditions that always hold there
    indices: dict[Node, Node] = field(default_factory=dict)  # of an axis, in the new loops
    loops: dict[Node, Node | None] = field(default_factory=dict)  # in place of that of an axis
    condition: Node = ix.TRUE  # of its stores

    def keep(self, axis: Node, index: Node, loop: Node | None) -> bool:
        """Let `axis` be `index`, which depends on `loop`; False if it cannot."""
        if axis in self.indices or axis in free_axes(index) - {loop}:
            return False
        self.indices[axis], self.loops[axis] = index, loop
        return True


def narrowed(kernel: Kernel) -> Kernel:
    """`kernel` without the steps of its loops at which every store writes what is there already."""
    narrowing = None if kernel.blocks else narrowing_of(kernel.stores)
    if narrowing is None:
        return kernel
    done = narrowing.indices | dict.fromkeys(narrowing.known, ix.TRUE)
    for node in kernel.nodes:
        if node not in done:
            done[node] = _rebuilt(node, tuple(done[operand] for operand in node.src))
    stores = tuple(_narrow(store.rebuilt(done), narrowing) for store in kernel.stores)
    return replace(kernel, stores=stores, rows=len(_loops(kernel.row_axes, narrowing)))


def narrowing_of(stores: Sequence[Store]) -> Narrowing | None:
    """The loops in which `stores` change what is there; None if these are no shorter, or if a
    reduction runs along one of them: a sum over a row is over all of it, however few of its
    elements are written."""
    conditions = {_change_of(store) for store in stores}
    if len(conditions) != 1:
        return None
    narrowing = _narrowing(stores[0].axes, *conditions)
    if narrowing is None or not _reduced_axes(stores).isdisjoint(narrowing.indices):
        return None
    return narrowing


def _reduced_axes(stores: Sequence[Store]) -> set[Node]:
    """The axes that reductions and running values beneath `stores` run over."""
    nodes = toposort(root for store in stores for root in roots_of(store))
    return {axis for node in nodes for axis in bound_axes(node)}


def _change_of(store: Store) -> Node:
    """The condition under which `store` changes what is there; TRUE if it may always do so."""
    value = store.value
    if value.op is Op.WHERE and store.condition is ix.TRUE and store.monoid is None:
        condition, _, kept = value.src
        reads_it = kept.op is Op.LOAD and kept.arg.parameter == store.parameter
        if reads_it and kept.src == (store.index,):
            return condition
    return ix.TRUE


def _narrowing(axes: tuple[Node, ...], condition: Node) -> Narrowing | None:
    """The loops over what `condition` bounds; None unless each part of it is about one axis."""
    narrowing, ranges = Narrowing([*ix.conjuncts(condition)]), list[Node]()
    for part in narrowing.known:
        if part.op is not Op.EQ:
            ranges.append(part)
        elif not _keep_place(part, axes, narrowing):
            return None
    extents = ix.extents(ix.both(*ranges))
    if extents is None or not all(
        _keep_range(index, size, axes, narrowing) for index, size in extents.items()
    ):
        return None
    return narrowing if narrowing.indices and _is_acyclic(narrowing) else None


def _is_acyclic(narrowing: Narrowing) -> bool:
    """Whether no new index depends on an axis that is itself replaced, beside its own new loop."""
    return all(
        narrowing.indices.keys().isdisjoint(free_axes(index) - {narrowing.loops[axis]})
        for axis, index in narrowing.indices.items()
    )


def _keep_place(part: Node, axes: tuple[Node, ...], narrowing: Narrowing) -> bool:
    """`part` says that an axis equals a place: it needs no loop then. The store is guarded by the
    place being inside; loads that no condition guards read at the place limited to the axis."""
    for axis, place in (part.src, part.src[::-1]):
        if axis in axes and place.dtype is int64:
            last = const(axis.arg.size - 1, int64)
            inside = Node(Op.MIN, (Node(Op.MAX, (place, ix.ZERO)), last))
            narrowing.condition = ix.both(narrowing.condition, ix.inside(place, axis.arg.size))
            return narrowing.keep(axis, inside, None)
    return False


def _keep_range(index: Node, size: int, axes: tuple[Node, ...], narrowing: Narrowing) -> bool:
    """`index` is an axis plus something else, and inside 0 : `size`. A loop of `size` steps over
    `index` replaces that over the axis, which is `index` minus the rest. That must be within the
    extent of the axis: ``0 <= i - 3 < 4`` for i < 10 becomes i = k + 3 for k < 4."""
    varied = [axis for axis in axes if axis in free_axes(index)]
    if len(varied) != 1 or ix.terms_of(index)[0].get(varied[0]) != 1:
        return False
    (axis,) = varied
    loop = ix.axis(axis.arg.number, size) if size > 1 else None
    place = ix.add(loop or ix.ZERO, axis, ix.scale(index, -1))
    return ix.inside(place, axis.arg.size) is ix.TRUE and narrowing.keep(axis, place, loop)


def _rebuilt(node: Node, src: tuple[Node, ...]) -> Node:
    """`node` over new operands, of which conditions may be known."""
    if node.op is Op.WHERE and src[0] is ix.TRUE:
        return src[1]
    if node.op is Op.AND and ix.TRUE in src:
        return src[0] if src[1] is ix.TRUE else src[1]
    if node.op is Op.LOAD and src[-1] is ix.TRUE:
        src = src[:1]
    return ix.rebuild(node, src)


def _loops(axes: tuple[Node, ...], narrowing: Narrowing) -> tuple[Node, ...]:
    loops = (narrowing.loops.get(axis, axis) for axis in axes)
    return tuple(loop for loop in loops if loop is not None)


def _narrow(store: Store, narrowing: Narrowing) -> Store:
    axes = _loops(store.axes, narrowing)
    return replace(store, axes=axes, condition=narrowing.condition)
