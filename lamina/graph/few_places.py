"""Sums over the elements of windows, of arrays with fewer places, as sums over the places.

The gradient of a convolution with windows that are all of an image, or almost, adds up products of
its upstream gradient, which has few places, and of the weights. t[j, k] is that of place j and of
element k. For an image of 8 and windows of 7, which have two places:

    dx[i]    sum over k < 7 of t[i - k, k], with zeros beside t[0] and t[1]
    dx[i]    sum over j < 2 of t[j, i - j], with zeros beside t[j, 0] to t[j, 6]

Both have the same terms but for zeros. With one place no sum is left.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from lamina.graph.rewrite import on
from lamina.ir import build
from lamina.ir.monoids import ADD
from lamina.ir.node import Node
from lamina.ir.ops import Op, Shear

# Elements of a window for each place, from which on places are added up. With 4 places and
# 7 elements it depends: of images (64, 10, 10) a sum over places took 0.7 times as long, and of
# (128, 4, 4), padded by 3, 1.4 times (measured).
MIN_ELEMENTS = 2
MOVES = frozenset({Op.PAD, Op.SHRINK, Op.SHEAR})


@on(Op.REDUCE)
def sums_over_places(node: Node) -> Node | None:
    """A sum over the elements of windows as a sum over the places of the array that they move over,
    where these are at most half as many."""
    if node.arg.monoid is not ADD:
        return None
    moves: list[Node] = []  # the last one first
    array = node.src[0]
    while array.op in MOVES:
        moves.append(array)
        (array,) = array.src
    axes = _axes_of(array, moves[::-1])
    turned = [axis for axis, moved in enumerate(axes) if _has_few_places(axis, moved, node)]
    if not turned:
        return None
    result = array
    for axis, size in enumerate(node.src[0].shape):
        result = _moved(result, axis, axes[axis], size, is_turned=axis in turned)
    return build.reduce(ADD, node.arg.axes, result)


@dataclass(frozen=True)
class _Axis:
    """An axis of a moved array: its index i is the place ``i + start`` of the array, and 0 stands
    where that is not one of `places`.

    windows: where windows move along it, the axis of their elements. The place of element k at i is
    ``i + start - step * k``. elements: of a window."""

    places: range
    start: int = 0
    windows: int | None = None
    step: int = 1
    elements: int = 1


def _axes_of(array: Node, moves: Sequence[Node]) -> list[_Axis]:
    """The axes of `array` after `moves`, the first one first; none where these are no windows that
    move by one element."""
    axes = [_Axis(range(size)) for size in array.shape]
    for move in moves:
        if move.op is Op.SHEAR:
            axes = _sheared(axes, move.arg, move.src[0].shape[move.arg.by])
        elif move.op is Op.PAD:
            axes = _padded(axes, move)
        else:
            axes = _shrunk(axes, move)
        if not axes:
            return []
    return axes


def _sheared(axes: Sequence[_Axis], shear: Shear, elements: int) -> list[_Axis]:
    """`axes` after a SHEAR; none if its axes have windows already, or by more than one place."""
    of_windows = {moved.windows for moved in axes}
    is_new = axes[shear.axis].windows is None and axes[shear.by].windows is None
    if not is_new or {shear.axis, shear.by} & of_windows or abs(shear.step) != 1:
        return []
    old = axes[shear.axis]
    start = old.start if shear.step > 0 else old.start - (elements - 1)
    new = _Axis(old.places, start, shear.by, shear.step, elements)
    return [new if axis == shear.axis else moved for axis, moved in enumerate(axes)]


def _padded(axes: Sequence[_Axis], pad: Node) -> list[_Axis]:
    """`axes` after a PAD; none if it adds more than zeros, or anything to windows."""
    of_windows = {moved.windows for moved in axes}
    before, after, value = pad.arg
    padded = list(axes)
    for axis, moved in enumerate(axes):
        if before[axis] == 0 and after[axis] == 0:
            continue
        if value != 0 or moved.windows is not None or axis in of_windows:
            return []
        padded[axis] = replace(moved, start=moved.start - before[axis])
    return padded


def _shrunk(axes: Sequence[_Axis], shrink: Node) -> list[_Axis]:
    """`axes` after a SHRINK; none if it chooses elements of windows, or every second place."""
    of_windows = {moved.windows for moved in axes}
    shrunk = list(axes)
    for axis, (moved, chosen) in enumerate(zip(axes, shrink.arg, strict=True)):
        if chosen == range(shrink.src[0].shape[axis]):
            continue
        if chosen.step != 1 or axis in of_windows:
            return []
        first, last = chosen.start + moved.start, chosen.stop + moved.start
        places = moved.places
        if moved.windows is None:
            places = range(max(places.start, first), min(places.stop, last))
        shrunk[axis] = replace(moved, places=places, start=first)
    return shrunk


def _has_few_places(axis: int, moved: _Axis, node: Node) -> bool:
    """Does the sum `node` add up windows of many more elements than there are places?"""
    reduced = node.arg.axes
    is_reduced = moved.windows in reduced and axis not in reduced
    return is_reduced and 0 < MIN_ELEMENTS * len(moved.places) <= moved.elements


def _moved(x: Node, axis: int, moved: _Axis, size: int, is_turned: bool) -> Node:
    """`x` with its `axis` moved, to `size` indices. If turned, the axis of the elements has the
    places in their stead: at (i, j) is element ``k = i + start - j`` for the place j."""
    at_places = build.slice_axis(x, axis, moved.places.start, moved.places.stop)
    start, step = moved.start - moved.places.start, moved.step
    if moved.windows is None:
        return _from(at_places, axis, start, size)
    if step < 0:
        start += moved.elements - 1
    if is_turned:
        order = [*range(len(x.shape))]
        order[axis], order[moved.windows] = moved.windows, axis
        at_places = build.permute(at_places, order)
        at_places = build.flip(at_places, [axis]) if step < 0 else at_places
        step = 1
    if at_places.shape[moved.windows] > 1:
        at_places = build.shear(at_places, axis, moved.windows, step)
    return _from(at_places, axis, start, size)


def _from(x: Node, axis: int, start: int, size: int) -> Node:
    """`size` elements of `x` along `axis` from `start` on, with zeros where it has none."""
    before, after = [0] * len(x.shape), [0] * len(x.shape)
    before[axis] = max(0, -start)
    after[axis] = max(0, start + size - x.shape[axis])
    first = max(0, start)
    return build.slice_axis(build.pad(x, before, after), axis, first, first + size)
