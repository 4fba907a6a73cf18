"""The verifier of loop nests. Its invariants, in the order they are checked:

1.  The kernel is well formed (`lamina.ir.verify`); split axes may cover more than they run.
2.  The order holds every axis of the kernel once, and nothing else.
3.  No axis is in two chains. The pieces inside the outermost one, together a block, fill the
    extent as the outermost counts it, and a store's index walks them as one.
4.  Wherever a piece is an axis of a store or a reduction, its chain stands there, in its order.
5.  Bindings are among those of `lamina.kernel.schedule`, and of axes of the order. A parallel
    axis is a row axis and the outermost of its chain; a vector axis is the innermost of its
    chain, with 2, 4, 8, ... lanes. In a chain of kernels exactly the axes that number blocks are
    parallel, so that all its kernels have the same chunks.
6.  No value depends on two vector axes.
7.  Axes whose iterations run one after another, those of a PREFIX and the columns of a store at
    indices from data or with a monoid, are whole, serial, and in the order of the store.
8.  What is staged is filled outside all loops that it is laid out along.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from lamina.errors import VerifyError
from lamina.ir.kernel import free_axes, points
from lamina.ir.node import Node
from lamina.ir.verify import verify_kernel
from lamina.kernel.schedule import BINDINGS, Nest, axes_of, axis_lists, serial_axes
from lamina.simplify.index import terms_of


def verify_nest(nest: Nest) -> None:
    """Raise VerifyError, naming the axis, if an invariant fails."""
    verify_kernel(nest.kernel, exact=False)
    for check in (_order, _chains, _places, _bindings, _vectors, _serial, _fills):
        for complaint in check(nest):
            raise VerifyError(f"verify: nest: {complaint}")


def _name(axis: Node) -> str:
    return f"a{axis.arg.number}"


def _order(nest: Nest) -> Iterator[str]:
    order, axes = set(nest.order), set(axes_of(nest.kernel))
    if len(order) != len(nest.order):
        yield "an axis is twice in the order"
    for missing in sorted(map(_name, axes - order)):
        yield f"{missing} is not in the order"
    for strange in sorted(map(_name, order - axes)):
        yield f"{strange} is in the order, and in no loop of the kernel"


def _chains(nest: Nest) -> Iterator[str]:
    pieces = [axis for chain in nest.chains for axis in chain.pieces]
    if len(set(pieces)) != len(pieces) or not set(pieces) <= set(nest.order):
        yield "a piece is in two chains, or in no loop"
    for (head, *inner), extent in nest.chains:
        if head.arg.size != -(-extent // (block := points(inner))):
            yield f"{_name(head)} has {head.arg.size} blocks of {block} for an extent of {extent}"
    kept = nest.kernel.scratch
    for store in (one for one in nest.kernel.stores if one.parameter not in kept):
        strides, _ = terms_of(store.index)
        for outer, inside in (pair for chain in nest.chains for pair in pairwise(chain.pieces)):
            if strides.get(outer, 0) != strides.get(inside, 0) * inside.arg.size:
                yield f"a store's index does not walk {_name(outer)} and {_name(inside)} as one"


def _places(nest: Nest) -> Iterator[str]:
    for axes in axis_lists(nest.kernel):
        for pieces, _ in nest.chains:
            start = axes.index(pieces[0]) if pieces[0] in axes else 0
            if set(pieces) & set(axes) and axes[start : start + len(pieces)] != pieces:
                yield f"the pieces of {_name(pieces[0])} do not stand together"


def _bindings(nest: Nest) -> Iterator[str]:
    rows, blocks = nest.kernel.row_axes, nest.kernel.block_axes
    parallel = {axis for axis, to in nest.binding.items() if to == "parallel"}
    if blocks and parallel != set(blocks):
        yield f"only {', '.join(map(_name, blocks))}, the blocks of a chain, are parallel there"
    for axis, to in nest.binding.items():
        if axis not in nest.order:
            yield f"{_name(axis)} is bound, and not in the order"
        if to not in BINDINGS:
            yield f"{_name(axis)} is bound to {to!r}"
        if to == "parallel" and axis not in rows:
            yield f"the parallel axis {_name(axis)} is no row axis"
        if to == "parallel" and not nest.is_head(axis):
            yield f"the parallel axis {_name(axis)} is not the outermost of its chain"
        if to == "vector" and nest.chain(axis).pieces[-1] is not axis:
            yield f"the vector axis {_name(axis)} is not the innermost of its chain"
        if to == "vector" and (axis.arg.size.bit_count() != 1 or axis.arg.size == 1):
            yield f"the vector axis {_name(axis)} has {axis.arg.size} lanes, not 2, 4, 8, ..."


def _vectors(nest: Nest) -> Iterator[str]:
    vectors = {axis for axis in nest.order if nest.bound(axis) == "vector"}
    loops = (frozenset(store.axes) for store in nest.kernel.stores)
    for free in (*loops, *map(free_axes, nest.kernel.nodes)):
        if len(both := free & vectors) > 1:
            yield f"a value has lanes along {' and '.join(sorted(map(_name, both)))}"


def _serial(nest: Nest) -> Iterator[str]:
    serial = serial_axes(nest.kernel)
    for axis in serial:
        if nest.bound(axis) != "serial":
            yield f"{_name(axis)} runs in order, and is bound to {nest.bound(axis)}"
        if len(nest.chain(axis).pieces) > 1:
            yield f"{_name(axis)} runs in order, and is split"
    for store in nest.kernel.stores:
        ordered = [axis for axis in store.axes if axis in serial]
        if ordered != sorted(ordered, key=nest.order.index):
            yield f"{', '.join(map(_name, ordered))} run in this order, and the loops do not"


def _fills(nest: Nest) -> Iterator[str]:
    for at, store in nest.fills:
        for axis in set(store.axes) - set(nest.inside(at)):
            yield f"parameter {store.parameter} is filled at {_name(at)}, inside {_name(axis)}"
