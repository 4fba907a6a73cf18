"""The verifier of loop nests. Its invariants, in the order they are checked:

1. The order holds every axis of the kernel once, and nothing else.
2. No axis is in two chains. The pieces inside the outermost one, together a block, fill the
   extent as the outermost counts it, and a store's index walks them as one.
3. Wherever a piece is an axis of a store or a reduction, its chain stands there, in its order.
4. Bindings are among those of `lamina.kernel.schedule`, and of axes of the order. A parallel
   axis is a row axis and the outermost of its chain; an axis of the grid is a row axis; thread
   axes that are rows are 2, 4, 8, ... up to 32 of them, or those of shared tiles, in a chain
   without a remainder; a vector axis is the innermost of its chain, with 2, 4, 8, ... lanes. In a
   chain of kernels exactly the axes that number blocks are parallel, so that all its kernels have
   the same chunks.
5. No value depends on two vector axes, or on one and reduces another.
6. Axes whose iterations run one after another, those of a PREFIX and the columns of a store at
   indices from data or with a monoid, are whole, serial, and in the order of the store.
7. What is staged is filled outside all loops that it is laid out along.
8. No loop over a thread axis is inside another one: the columns of a store or a reduction have
   one at most, and a reduction that has one depends on rows alone.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from itertools import pairwise

from lamina.errors import LaminaError, VerifyError
from lamina.ir.kernel import bound_axes, free_axes, points
from lamina.ir.node import Node
from lamina.kernel.schedule import BINDINGS, WARP, Nest, axes_of, axis_lists, serial_axes
from lamina.simplify.index import terms_of


def require(holds: object, problem: str) -> None:
    """Raise VerifyError unless an invariant holds."""
    if not holds:
        raise VerifyError(problem)


@contextlib.contextmanager
def located(place: str) -> Iterator[None]:
    """Say where an invariant failed."""
    try:
        yield
    except LaminaError as error:
        raise VerifyError(f"{place}: {str(error).splitlines()[0]}") from None


def verify_nest(nest: Nest) -> None:
    """Raise VerifyError, naming the axis, if an invariant fails."""
    with located("verify: nest"):
        for check in (_order, _chains, _places, _bindings, _vectors, _serial, _fills, _threads):
            check(nest)


def _order(nest: Nest) -> None:
    order, axes = set(nest.order), set(axes_of(nest.kernel))
    require(len(order) == len(nest.order), "an axis is twice in the order")
    require(axes <= order, f"{names_of(axes - order)} is not in the order")
    require(order <= axes, f"{names_of(order - axes)} is in the order, and in no loop")


def _chains(nest: Nest) -> None:
    pieces = [axis for chain in nest.chains for axis in chain.pieces]
    once = len(set(pieces)) == len(pieces) and set(pieces) <= set(nest.order)
    require(once, "a piece is in two chains, or in no loop")
    walks = [terms_of(one.index)[0] for one in nest.kernel.stores]
    for (head, *inner), extent in nest.chains:
        blocks, block = head.arg.size, points(inner)
        text = f"{names_of([head])} has {blocks} blocks of {block} for an extent of {extent}"
        require(blocks == -(-extent // block), text)
        for outer, inside in pairwise((head, *inner)):
            size, both = inside.arg.size, names_of((outer, inside))
            as_one = all(walk.get(outer, 0) == walk.get(inside, 0) * size for walk in walks)
            require(as_one, f"a store's index does not walk {both} as one")


def _places(nest: Nest) -> None:
    for axes in axis_lists(nest.kernel):
        for pieces, _ in nest.chains:
            start = axes.index(pieces[0]) if pieces[0] in axes else 0
            together = not set(pieces) & set(axes) or axes[start : start + len(pieces)] == pieces
            require(together, f"the pieces of {names_of(pieces[:1])} do not stand together")


def _bindings(nest: Nest) -> None:
    rows, blocks = nest.kernel.row_axes, nest.kernel.block_axes
    parallel = {axis for axis, to in nest.binding.items() if to == "parallel"}
    alone = not blocks or parallel == set(blocks)
    require(alone, f"only {names_of(blocks)}, the blocks of a chain, are parallel there")
    for axis, to in nest.binding.items():
        name, lanes, innermost = names_of([axis]), axis.arg.size, nest.chain(axis).pieces[-1]
        require(axis in nest.order, f"{name} is bound, and not in the order")
        require(to in BINDINGS, f"{name} is bound to {to!r}")
        if to in ("parallel", "grid"):
            require(axis in rows, f"the {to} axis {name} is no row axis")
        if to == "parallel":
            require(nest.is_head(axis), f"the {to} axis {name} is not the outermost of its chain")
        if to == "vector":
            require(innermost is axis, f"the vector axis {name} is not the innermost of its chain")
            fits = lanes.bit_count() == 1 and lanes > 1
            require(fits, f"the vector axis {name} has {lanes} lanes, not 2, 4, 8, ...")


def _vectors(nest: Nest) -> None:
    vectors = {axis for axis in nest.order if nest.bound(axis) == "vector"}
    loops = (frozenset(store.axes) for store in nest.kernel.stores)
    walked = (free_axes(node).union(bound_axes(node)) for node in nest.kernel.nodes)
    for axes in (*loops, *walked):
        both = axes & vectors
        require(len(both) < 2, f"a value has lanes along {names_of(both)}")


def _serial(nest: Nest) -> None:
    serial = serial_axes(nest.kernel)
    for axis in serial:
        name, to = names_of([axis]), nest.bound(axis)
        require(to == "serial", f"{name} runs in order, and is bound to {to}")
        require(len(nest.chain(axis).pieces) == 1, f"{name} runs in order, and is split")
    for store in nest.kernel.stores:
        ordered = [axis for axis in store.axes if axis in serial]
        kept = ordered == sorted(ordered, key=nest.order.index)
        require(kept, f"{names_of(ordered)} run in this order, and the loops do not")


def _fills(nest: Nest) -> None:
    for fill in nest.fills:
        outside = set(fill.axes).difference(nest.inside(fill.at) if fill.at else ())
        require(not outside, f"parameter {fill.parameter} is filled inside {names_of(outside)}")


def _threads(nest: Nest) -> None:
    rows = set(nest.kernel.row_axes)
    threads = {axis for axis in nest.order if nest.bound(axis) == "thread"}
    for pieces, extent in map(nest.chain, threads & rows):
        whole = extent == points(pieces) and (nest.product or WARP % points(threads & rows) == 0)
        require(whole, f"the rows of {names_of(threads & rows)} divide no warp, or not their chain")
    for axes in axis_lists(nest.kernel):
        both = (threads - rows).intersection(axes)
        require(len(both) < 2, f"{names_of(both)} are thread axes, one inside the other")
    for node in nest.kernel.nodes:
        if shared := threads.intersection(bound_axes(node)):
            beside = free_axes(node) - rows
            text = f"the reduction over {names_of(shared)} depends on {names_of(beside)}, no rows"
            require(not beside, text)


def names_of(axes: Iterable[Node]) -> str:
    """Axes as schedules name them, to read."""
    return ", ".join(sorted(f"a{axis.arg.number}" for axis in axes))
