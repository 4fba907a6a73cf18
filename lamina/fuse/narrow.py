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
from lamina.ir.substitute import rebuilt


@dataclass
class Narrowing:
    """What becomes of the loops of a kernel.

    For ``a[i, j] = new if i == place else a[i, j]`` and 10 rows, `known` is [i == place]; `indices`
    has min(max(place, 0), 9) for the axis i and `loops` has None; the `condition` of stores is
    0 <= place < 10. For ``0 <= i - start < 4`` in place of the equation, `indices` has k + start
    for i, `loops` has the axis k < 4, and the condition is TRUE.
    """

    known: list[Node]  # conditions that hold wherever the new loops store something
    indices: dict[Node, Node] = field(default_factory=dict)  # by old axis, the index in its place
    loops: dict[Node, Node | None] = field(default_factory=dict)  # by old axis, the new one, if any
    condition: Node = ix.TRUE  # of stores, in the new loops

    def replace_axis(self, axis: Node, index: Node, loop: Node | None) -> bool:
        """Let `axis` be `index`, which may depend on the new axis `loop`; False, with nothing
        changed, if it is replaced already or `index` depends on it."""
        if axis in self.indices or axis in free_axes(index) - {loop}:
            return False
        self.indices[axis], self.loops[axis] = index, loop
        return True


def narrowed(kernel: Kernel, narrowing: Narrowing | None) -> Kernel:
    """`kernel` without the steps of its loops at which every store writes what is there already, as
    `narrowing`, that of its stores, says.

    In the new loops the known conditions hold, so a store is of what its WHERE chose when they did,
    and happens where what is left of them holds: a place that data say is inside.
    """
    if narrowing is None:
        return kernel
    replacements = narrowing.indices | dict.fromkeys(narrowing.known, ix.TRUE)
    done = rebuilt(kernel.nodes, replacements, _simplified)
    stores = tuple(
        replace(
            store.rebuilt(done),
            axes=_new_axes(store.axes, narrowing),
            condition=narrowing.condition,
        )
        for store in kernel.stores
    )
    return replace(kernel, stores=stores, rows=len(_new_axes(kernel.row_axes, narrowing)))


def narrowing_of(stores: Sequence[Store]) -> Narrowing | None:
    """The loops in which `stores` change what is there; None if these are no shorter, or if a
    reduction runs along one of them: a sum over a row is over all of it, however few of its
    elements are written."""
    conditions = {_change_condition(store) for store in stores}
    if len(conditions) != 1:
        return None
    (condition,) = conditions
    # All stores have one condition, so each axis that it bounds is a loop of every store.
    narrowing = _bounded_loops(stores[0].axes, condition)
    if narrowing is None or not _reduced_axes(stores).isdisjoint(narrowing.indices):
        return None
    return narrowing


def _reduced_axes(stores: Sequence[Store]) -> set[Node]:
    """The axes that reductions and running values beneath `stores` run over."""
    nodes = toposort(root for store in stores for root in roots_of(store))
    return {axis for node in nodes for axis in bound_axes(node)}


def _change_condition(store: Store) -> Node:
    """The condition under which `store` changes what is there; TRUE if it may always do so.

    For ``a[i] = where(i == place, new, a[i])`` it is ``i == place``: else the store writes the
    element that it has just read from the same place, unconditionally. A store with a condition or
    a monoid, as a scatter's, counts as one that may always change something: `narrowed` puts a
    condition of its own in the place of that of the store.
    """
    value = store.value
    is_plain = store.condition is ix.TRUE and store.monoid is None
    if value.op is not Op.WHERE or not is_plain:
        return ix.TRUE
    condition, _, old = value.src
    reads_target = old.op is Op.LOAD and old.arg.parameter == store.parameter
    # A LOAD with a condition has that as a second operand, and is 0 where it does not hold.
    if reads_target and old.src == (store.index,):
        return condition
    return ix.TRUE


def _bounded_loops(axes: tuple[Node, ...], condition: Node) -> Narrowing | None:
    """The loops in place of `axes` that run where `condition` may hold.

    Each part of the condition must be an equation of an axis, as ``i == place``, or a bound of an
    index that varies along one of `axes`, as ``i - start < rows``. None if a part says anything
    else, if an axis cannot be replaced, or if the condition has no part.
    """
    narrowing = Narrowing([*ix.conjuncts(condition)])
    ranges: list[Node] = []
    for part in narrowing.known:
        if part.op is not Op.EQ:
            ranges.append(part)
        elif not _fix_axis(part, axes, narrowing):
            return None
    extents = ix.extents(ix.both(*ranges))
    if extents is None:
        return None
    for index, size in extents.items():
        if not _shorten_axis(index, size, axes, narrowing):
            return None
    return narrowing if narrowing.indices and _is_acyclic(narrowing) else None


def _is_acyclic(narrowing: Narrowing) -> bool:
    """Whether no new index depends on an axis that is itself replaced, beside its own new loop."""
    return all(
        narrowing.indices.keys().isdisjoint(free_axes(index) - {narrowing.loops[axis]})
        for axis, index in narrowing.indices.items()
    )


def _fix_axis(equation: Node, axes: tuple[Node, ...], narrowing: Narrowing) -> bool:
    """Replace the one of `axes` that `equation` says equals a value; False, with `narrowing` as it
    was, if there is none, or if `Narrowing.replace_axis` cannot.

    No loop runs over the axis then: it is the value, limited to the steps that the loop had, as
    ``min(max(value, 0), 9)`` for 10 rows. Where the value is none of these, nothing is stored, but
    loads still happen, as `narrowed` drops conditions that the equation is part of: limited, they
    stay inside their arrays.
    """
    for axis, value in (equation.src, equation.src[::-1]):
        if axis in axes:
            size = axis.arg.size
            limited = Node(Op.MIN, (Node(Op.MAX, (value, ix.ZERO)), const(size - 1, int64)))
            if not narrowing.replace_axis(axis, limited, loop=None):
                return False
            narrowing.condition = ix.both(narrowing.condition, ix.inside(value, size))
            return True
    return False


def _shorten_axis(index: Node, size: int, axes: tuple[Node, ...], narrowing: Narrowing) -> bool:
    """Shorten the loop over the one of `axes` for which ``0 <= index < size`` holds in some steps
    only; False, with `narrowing` as it was, if there is no such axis, or if
    `Narrowing.replace_axis` cannot.

    `index` must be that axis, with the factor 1, plus a rest without any of `axes`. A loop of
    `size` steps over `index` replaces that over the axis, which is `index` minus the rest:
    ``0 <= i - 3 < 4`` for i < 10 becomes i = k + 3 for k < 4. That must be within the extent of the
    axis for all k, as 8 <= k + 8 < 12 is not.
    """
    varied = [axis for axis in axes if axis in free_axes(index)]
    if len(varied) != 1:
        return False
    (axis,) = varied
    terms, _ = ix.terms_of(index)
    if terms.get(axis) != 1:
        return False
    loop = ix.axis(axis.arg.number, size) if size > 1 else None  # one step, k = 0, is no loop
    minus_rest = ix.add(axis, ix.scale(index, -1))
    new_index = ix.add(loop or ix.ZERO, minus_rest)
    if ix.inside(new_index, axis.arg.size) is not ix.TRUE:
        return False
    return narrowing.replace_axis(axis, new_index, loop)


def _simplified(node: Node, src: tuple[Node, ...]) -> Node:
    """`node` over new operands, without conditions that are known to hold."""
    if node.op is Op.WHERE and src[0] is ix.TRUE:
        return src[1]
    if node.op is Op.AND and ix.TRUE in src:
        return src[0] if src[1] is ix.TRUE else src[1]
    if node.op is Op.LOAD and src[-1] is ix.TRUE:  # the condition of the load, after its index
        src = src[:1]
    return ix.rebuild(node, src)


def _new_axes(axes: tuple[Node, ...], narrowing: Narrowing) -> tuple[Node, ...]:
    """The axes of the new loops in place of `axes`."""
    loops = (narrowing.loops.get(axis, axis) for axis in axes)
    return tuple(loop for loop in loops if loop is not None)
