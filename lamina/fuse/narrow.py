"""Loops over what a store changes: an update of one row of a large array writes that row alone.

What a program updates in place is read where no new value is, and written back:

    a[i, j] = new if 0 <= i - start < 4 else a[i, j]
    a[i, j] = new if i == place else a[i, j]

The loop over i needs no other steps than those at which the condition holds. In the first case a
loop of 4 steps over k replaces it, and i is ``k + start``. In the second there is no loop, and i is
`place`, a number that data may say: where it is outside of the array, nothing is stored.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from lamina.core.dtypes import int64
from lamina.graph import index as ix
from lamina.ir.kernel import Kernel, Store, bound_axes, free_axes, roots_of
from lamina.ir.node import Node, const, toposort
from lamina.ir.ops import Op
from lamina.ir.substitute import rebuilt_in_order


@dataclass
class Narrowing:
    """What becomes of the loops of a kernel.

    For 10 rows, `start` 3 and an update ``new`` of 4 rows, and for one row at `place`:

        known        [-1 < i - 3, i - 3 < 4]    [i == place]
        indices      {i: k + 3}                 {i: min(max(place, 0), 9)}
        loops        {i: k}, with 4 steps       {i: None}
        condition    TRUE                       0 <= place < 10
    """

    known: list[Node]  # conditions that hold wherever the new loops store something
    indices: dict[Node, Node] = field(default_factory=dict)  # by old axis, the index in its place
    loops: dict[Node, Node | None] = field(default_factory=dict)  # by old axis, the new one, if any
    condition: Node = ix.TRUE  # of stores, in the new loops

    def replace_axis(self, axis: Node, index: Node, loop: Node | None) -> bool:
        """Let `axis` be `index`, which may depend on the new axis `loop`. False, with nothing
        changed, if it is replaced already: two conditions fix it, as ``i == a`` and ``i == b`` do.
        False too if `index` depends on the axis itself, as in ``i == data[i]``."""
        if axis in self.indices or axis in free_axes(index) - {loop}:
            return False
        self.indices[axis], self.loops[axis] = index, loop
        return True

    def is_acyclic(self) -> bool:
        """Whether no new index depends on an axis that is replaced, other than by its own new loop.
        ``i == j`` and ``j == data[i]`` would replace each by the other."""
        for axis, index in self.indices.items():
            others = free_axes(index) - {self.loops[axis]}
            if not others.isdisjoint(self.indices):
                return False
        return True

    def new_axes(self, axes: tuple[Node, ...]) -> tuple[Node, ...]:
        """The axes of the new loops in place of `axes`."""
        loops = (self.loops.get(axis, axis) for axis in axes)
        return tuple(loop for loop in loops if loop is not None)


def narrowed(kernel: Kernel, narrowing: Narrowing | None) -> Kernel:
    """`kernel` in the loops of `narrowing`, that of its stores; the same kernel if that is None.

    In the new loops the known conditions hold. So ``where(i == place, new, a[i])`` is ``new``; it
    is stored where `place` is inside of the array.
    """
    if narrowing is None:
        return kernel
    replacements = narrowing.indices | dict.fromkeys(narrowing.known, ix.TRUE)
    done = rebuilt_in_order(kernel.nodes, replacements, _simplified)
    stores = tuple(
        replace(
            store.rebuilt(done),
            axes=narrowing.new_axes(store.axes),
            condition=narrowing.condition,
        )
        for store in kernel.stores
    )
    return replace(kernel, stores=stores, rows=len(narrowing.new_axes(kernel.row_axes)))


def narrowing_of(stores: Sequence[Store]) -> Narrowing | None:
    """The loops in which `stores` change what is there. None if no loop would be shorter, if the
    stores have different conditions, or if a reduction runs along a loop that would be: a sum over
    a row is over all of it, however few of its elements are written."""
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
    """The axes that reductions and scans beneath `stores` run over."""
    nodes = toposort(root for store in stores for root in roots_of(store))
    return {axis for node in nodes for axis in bound_axes(node)}


def _change_condition(store: Store) -> Node:
    """The condition under which `store` changes what is there; TRUE if it may always do so.

    For ``a[i] = where(i == place, new, a[i])`` it is ``i == place``: elsewhere the store writes the
    element that it has just read from the same place. A store with a condition or a monoid, as a
    scatter's, counts as one that may always change something, as `narrowed` would replace its
    condition.
    """
    value = store.value
    is_plain = store.condition is ix.TRUE and store.monoid is None
    if value.op is not Op.WHERE or not is_plain:
        return ix.TRUE
    condition, _, old = value.src
    reads_target = old.op is Op.LOAD and old.arg.parameter == store.parameter
    # A LOAD under a condition has that as a second operand. It is 0 where the condition does not
    # hold, and so not what was there: the store would change it.
    is_unchanged = reads_target and old.src == (store.index,)
    return condition if is_unchanged else ix.TRUE


def _bounded_loops(axes: tuple[Node, ...], condition: Node) -> Narrowing | None:
    """The loops in place of `axes` that run where `condition` may hold.

    Each part of the condition must be an equation of an axis, as ``i == place``, or a bound of an
    index that varies along one of `axes`, as ``i - start < rows``. None if a part says anything
    else, if an axis cannot be replaced, or if the condition has no part.
    """
    narrowing = Narrowing(known=[*ix.conjuncts(condition)])
    bounds: list[Node] = []
    for part in narrowing.known:
        if part.op is not Op.EQ:
            bounds.append(part)
        elif not _fix_axis(part, axes, narrowing):
            return None
    size_of = ix.extents(ix.both(*bounds))  # {i - start: rows} for 0 <= i - start < rows
    if size_of is None:
        return None
    for index, size in size_of.items():
        if not _shorten_axis(index, size, axes, narrowing):
            return None
    return narrowing if narrowing.indices and narrowing.is_acyclic() else None


def _fix_axis(equation: Node, axes: tuple[Node, ...], narrowing: Narrowing) -> bool:
    """Replace one of `axes` by the value that `equation` says it equals; False, with `narrowing` as
    it was, if the equation has none of them, or if `Narrowing.replace_axis` cannot.

    For ``i == place`` and 10 rows no loop runs over i. Nothing is stored if `place` is not one of
    0 to 9. But loads at i happen in any case, as `narrowed` takes the equation as known. So that
    they stay inside their arrays, i is ``min(max(place, 0), 9)``.
    """
    for axis, value in (equation.src, equation.src[::-1]):
        if axis in axes:
            size = axis.arg.size
            not_negative = Node(Op.MAX, (value, ix.ZERO))
            limited = Node(Op.MIN, (not_negative, const(size - 1, int64)))
            if not narrowing.replace_axis(axis, limited, loop=None):
                return False
            narrowing.condition = ix.both(narrowing.condition, ix.inside(value, size))
            return True
    return False


def _shorten_axis(index: Node, size: int, axes: tuple[Node, ...], narrowing: Narrowing) -> bool:
    """Replace the loop over one of `axes` by one of `size` steps, over k for which `index` is k:
    ``0 <= i - 3 < 4`` for i < 10 becomes i = k + 3 for k < 4. False, with `narrowing` as it was, if
    that is not possible:

    - `index` must vary along one of `axes` alone, with the factor 1: along ``2 * i`` there would be
      a step for every second k only.
    - Every step must be one that the old loop has. ``0 <= i - 8 < 4`` would have the steps 8 to 11,
      and i ends at 9.
    """
    varied = [axis for axis in axes if axis in free_axes(index)]
    if len(varied) != 1:
        return False
    (axis,) = varied
    terms, _ = ix.terms_of(index)
    if terms.get(axis) != 1:
        return False
    loop = ix.axis(axis.arg.number, size) if size > 1 else None  # one step, k = 0, is no loop
    minus_rest = ix.add(axis, ix.scale(index, -1))  # i - (i - 3) is 3
    new_index = ix.add(loop or ix.ZERO, minus_rest)
    is_within_old_loop = ix.inside(new_index, axis.arg.size) is ix.TRUE
    if not is_within_old_loop:
        return False
    return narrowing.replace_axis(axis, new_index, loop)


def _simplified(node: Node, src: tuple[Node, ...]) -> Node:
    """`node` over new operands, without conditions that are known to hold."""
    if node.op is Op.WHERE and src[0] is ix.TRUE:
        return src[1]
    if node.op is Op.AND and ix.TRUE in src:
        return src[0] if src[1] is ix.TRUE else src[1]
    if node.op is Op.LOAD and src[-1] is ix.TRUE:  # its condition, which comes after its index
        src = src[:1]
    return ix.rebuild(node, src)
