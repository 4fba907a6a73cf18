"""What moves keep of a nest, whatever their order:

1. The order holds every axis of the kernel once, and nothing else.
2. No axis is in two splits. The pieces inside the outermost one, together a block, fill the
   extent as the outermost counts it, and a store's index walks them as one.
3. Wherever a piece is an axis of a store or a reduction, all of them stand there, in their order.
4. What is staged is filled outside all loops that it is laid out along: in the body of the loop
   that it is staged in, or, if reductions come before it, in that of the last one over rows.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from itertools import pairwise

from lamina.errors import LaminaError, VerifyError
from lamina.ir.kernel import points
from lamina.ir.node import toposort
from lamina.ir.ops import Op
from lamina.kernel.schedule import Nest, axis_lists
from lamina.kernel.verify import names_of
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


def check_nest(nest: Nest) -> None:
    """Raise VerifyError, naming the axis, if a move broke what all of them keep."""
    for check in (_order, _splits, _places, _fills):
        check(nest)


def _order(nest: Nest) -> None:
    order, axes = set(nest.order), {one for some in axis_lists(nest.kernel) for one in some}
    require(len(order) == len(nest.order), "an axis is twice in the order")
    require(axes <= order, f"{names_of(axes - order)} is not in the order")
    require(order <= axes, f"{names_of(order - axes)} is in the order, and in no loop")


def _splits(nest: Nest) -> None:
    pieces = [axis for split in nest.splits for axis in split.axes]
    once = len(set(pieces)) == len(pieces) and set(pieces) <= set(nest.order)
    require(once, "a piece is in two splits, or in no loop")
    walks = [terms_of(one.index)[0] for one in nest.kernel.stores]
    for (head, *inner), extent in nest.splits:
        blocks, block = head.arg.size, points(inner)
        text = f"{names_of([head])} has {blocks} blocks of {block} for an extent of {extent}"
        require(blocks == -(-extent // block), text)
        for outer, inside in pairwise((head, *inner)):
            size, both = inside.arg.size, names_of((outer, inside))
            as_one = all(walk.get(outer, 0) == walk.get(inside, 0) * size for walk in walks)
            require(as_one, f"a store's index does not walk {both} as one")


def _places(nest: Nest) -> None:
    for axes in axis_lists(nest.kernel):
        for pieces, _ in nest.splits:
            start = axes.index(pieces[0]) if pieces[0] in axes else 0
            together = not set(pieces) & set(axes) or axes[start : start + len(pieces)] == pieces
            require(together, f"the pieces of {names_of(pieces[:1])} do not stand together")


def _fills(nest: Nest) -> None:
    for fill in nest.fills:
        reduced = any(one.op is Op.FOLD for one in toposort([fill.value]))
        require(reduced is (fill.at is None), f"parameter {fill.parameter} is filled elsewhere")
        outside = set(fill.axes).difference(nest.inside(fill.at or nest.row_loops[-1]))
        require(not outside, f"parameter {fill.parameter} is filled inside {names_of(outside)}")
