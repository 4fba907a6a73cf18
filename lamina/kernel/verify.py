"""The verifier of loop nests. Its invariants, in the order they are checked:

1.  The kernel is well formed (`lamina.ir.verify_kernel`); split axes may cover more than they run.
2.  The order holds every axis of the kernel once, and nothing else.
3.  A chain of pieces is filed under its outermost piece; no axis is in two chains. The pieces
    inside the outermost one, together a block, fill the extent as the outermost counts it, and a
    store's index walks them as one.
4.  Wherever a piece is an axis of a store or a reduction, its chain stands there, in its order.
5.  Bindings are among those of `lamina.kernel.schedule`, and of axes of the order.
6.  A vector axis is the innermost of its chain, with 2, 4, 8, ... lanes; no value depends on
    two of them.
7.  Axes whose iterations run one after another, those of a PREFIX and the columns of a store at
    indices from data or with a monoid, are whole, serial, and in the order of the store.
8.  A parallel axis is a row axis and the outermost of its chain.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from math import prod

from lamina.errors import VerifyError
from lamina.ir.kernel import Kernel, free_axes, roots_of
from lamina.ir.node import Node, toposort
from lamina.ir.ops import Op
from lamina.ir.verify_kernel import verify_kernel
from lamina.kernel.schedule import BINDINGS, Nest, axes_of, serial_axes
from lamina.simplify.index import terms_of


def verify_nest(nest: Nest) -> None:
    """Raise VerifyError, naming the axis, if an invariant fails."""
    verify_kernel(nest.kernel, exact=False)
    for check in (_order, _chains, _places, _bindings, _vectors, _serial, _parallel):
        for complaint in check(nest):
            raise VerifyError(f"verify: nest: {complaint}")


def _name(axis: Node) -> str:
    return f"a{axis.arg.number}"


def _order(nest: Nest) -> Iterator[str]:
    axes = axes_of(nest.kernel)
    if len(set(nest.order)) != len(nest.order):
        yield "an axis is twice in the order"
    if missing := set(axes) - set(nest.order):
        yield f"{_name(min(missing, key=_name))} is not in the order"
    if strange := set(nest.order) - set(axes):
        yield f"{_name(min(strange, key=_name))} is in the order, and in no loop of the kernel"


def _chains(nest: Nest) -> Iterator[str]:
    pieces = [axis for chain in nest.chains.values() for axis in chain]
    if len(set(pieces)) != len(pieces) or not set(pieces) <= set(nest.order):
        yield "a piece is in two chains, or in no loop"
    for head, chain in nest.chains.items():
        if chain[0] is not head:
            yield f"the chain of {_name(head)} begins with {_name(chain[0])}"
        block, extent = prod(axis.arg.size for axis in chain[1:]), nest.extent(head)
        if head.arg.size != -(-extent // block):
            yield f"{_name(head)} has {head.arg.size} blocks of {block} for an extent of {extent}"
    for store in nest.kernel.stores:
        strides, _ = terms_of(store.index)
        for chain in nest.chains.values():
            for outer, inner in pairwise(chain):
                if strides.get(outer, 0) != strides.get(inner, 0) * inner.arg.size:
                    yield f"a store's index does not walk {_name(outer)} and {_name(inner)} as one"


def _axis_lists(kernel: Kernel) -> Iterator[tuple[Node, ...]]:
    for store in kernel.stores:
        yield store.axes
        for node in toposort(roots_of(store)):
            if node.op in (Op.FOLD, Op.PREFIX):
                yield node.src[node.arg.monoid.arity :]


def _places(nest: Nest) -> Iterator[str]:
    for axes in _axis_lists(nest.kernel):
        for chain in nest.chains.values():
            if set(chain) & set(axes):
                start = axes.index(chain[0]) if chain[0] in axes else 0
                if axes[start : start + len(chain)] != chain:
                    yield f"the pieces of {_name(chain[0])} do not stand together"


def _bindings(nest: Nest) -> Iterator[str]:
    for axis, to in nest.binding.items():
        if axis not in nest.order:
            yield f"{_name(axis)} is bound, and not in the order"
        if to not in BINDINGS:
            yield f"{_name(axis)} is bound to {to!r}"


def _vectors(nest: Nest) -> Iterator[str]:
    vectors = frozenset(axis for axis in nest.order if nest.bound(axis) == "vector")
    for axis in vectors:
        if any(axis in chain[:-1] for chain in nest.chains.values()):
            yield f"the vector axis {_name(axis)} is not the innermost of its chain"
        if axis.arg.size.bit_count() != 1 or axis.arg.size == 1:
            yield f"the vector axis {_name(axis)} has {axis.arg.size} lanes, not 2, 4, 8, ..."
    for store in nest.kernel.stores:
        values = [free_axes(node) for node in toposort(roots_of(store))]
        for free in (frozenset(store.axes), *values):
            if len(both := free & vectors) > 1:
                yield f"a value has lanes along {' and '.join(sorted(map(_name, both)))}"


def _serial(nest: Nest) -> Iterator[str]:
    serial = serial_axes(nest.kernel)
    for axis in serial:
        if nest.bound(axis) != "serial":
            yield f"{_name(axis)} runs in order, and is bound to {nest.bound(axis)}"
        if any(axis in chain and len(chain) > 1 for chain in nest.chains.values()):
            yield f"{_name(axis)} runs in order, and is split"
    for store in nest.kernel.stores:
        ordered = [axis for axis in store.axes if axis in serial]
        if ordered != sorted(ordered, key=nest.order.index):
            yield f"{', '.join(map(_name, ordered))} run in this order, and the loops do not"


def _parallel(nest: Nest) -> Iterator[str]:
    rows = nest.kernel.stores[0].axes[: nest.kernel.rows]
    for axis in nest.order:
        if nest.bound(axis) != "parallel":
            continue
        if axis not in rows:
            yield f"the parallel axis {_name(axis)} is no row axis"
        if not nest.is_head(axis):
            yield f"the parallel axis {_name(axis)} is not the outermost of its chain"
