"""From array nodes to scalars over loop axes: movement becomes index arithmetic here.

``lowering.value(node, index)`` is the scalar that the array `node` holds at `index`. Take the row
maxima of a transposed array, ``reduce(MAX, [1], permute(x, [1, 0]) * 2)``, at the index (i,):

    value(reduce, (i,))             opens a loop over k and asks for its operand at (i, k)
    value(product, (i, k))          asks for both operands at the same index
    value(permute, (i, k))          asks for x at (k, i): movement only changes the index
    value(x, (k, i))                is in memory: LOAD at ``n * k + i`` for rows of n elements

The result is one expression, ``loop_reduce(MAX, load(n * k + i) * 2, k)``. Padding adds a condition
to the loads beneath it.

Two things can stop a lowering; `Lowering.obstacle` holds the first of them. A reshape may need a
division that goes away if an axis is split: the caller lowers everything again with the longer plan
(`AxisSplit`). Or a value that the kernel computes may be needed at another index than the one at
which it does (`Source.OTHER_INDEX`): the caller gives up on this kernel. After either, `value`
returns zeros at once, and whatever was lowered is thrown away.
"""

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate, pairwise
from operator import mul
from typing import Literal, Protocol

from lamina.core.dtypes import bool_, int64
from lamina.core.shape import Shape
from lamina.fuse.axes import AxisSplit, Index, LoopAxes
from lamina.graph import index as ix
from lamina.ir.build import cast, inverse
from lamina.ir.kernel import free_axes, loads_beneath
from lamina.ir.node import Node, const, peel
from lamina.ir.ops import Group, Load, LoopReduce, Op, Reduce


@dataclass(frozen=True)
class InMemory:
    """An element that a kernel reads: the number of the parameter, and where the element lies, in
    elements from the start of the parameter."""

    parameter: int
    index: Node


class Source(enum.Enum):
    """Where an element that is not read from memory comes from."""

    COMPUTED = enum.auto()  # from the operands of its node
    OTHER_INDEX = enum.auto()  # the kernel computes the value, but not at this index: an obstacle


# What stops a lowering: an axis to be split, or a value that the kernel lacks.
Obstacle = AxisSplit | Literal[Source.OTHER_INDEX]


class Sources(Protocol):
    """What a lowering asks of the kernel that it is for."""

    def __call__(self, node: Node, index: Index, /) -> InMemory | Source:
        """Where ``node[index]`` comes from."""


class Lowering:
    """Lowers array nodes for one kernel.

    `sources` says which elements are read from memory; `axes` makes the loops of reductions.
    """

    def __init__(self, sources: Sources, axes: LoopAxes) -> None:
        self.axes = axes
        self.obstacle: Obstacle | None = None  # the first one
        # The scalar of a node at an index, under a condition; each is lowered once.
        self.value = cache(self._value)
        self._sources = sources
        # Loads without a condition, of elements that are there wherever the loops stand.
        self._always_inside = set[Node]()

    def _value(self, node: Node, index: Index, condition: Node = ix.TRUE) -> Node:
        """The scalar ``node[index]``; LOADs beneath happen only where `condition` holds.

        Recursion is as deep as the expression, so one level is one Python frame where possible: no
        comprehension asks for operands, as that would be a frame of its own.
        """
        op = node.op
        if op is Op.CONST:
            return node
        if 0 in node.shape or self.obstacle:
            return const(0, node.dtype)  # no loop reaches an element, or the result is thrown away
        source = self._sources(node, index)
        if source is Source.OTHER_INDEX:
            self.obstacle = source
            return const(0, node.dtype)
        if isinstance(source, InMemory):
            return self._read(node, index, source, condition)
        if op in Group.ELEMENTWISE:
            operands = []
            for operand in node.src:
                operands.append(self.value(operand, index, condition))
            return _elementwise(Node(op, tuple(operands), node.arg))
        if op is Op.PAD or op is Op.SHEAR:  # beyond the bounds of the operand there is a fill
            fill = const(node.arg.value if op is Op.PAD else 0, node.dtype)
            return self._guarded(node.src[0], operand_index(node, index), fill, condition)
        if op is Op.RESHAPE:
            return self.value(node.src[0], self._reshaped(node, index), condition)
        if op in Group.MOVEMENT:
            return self.value(node.src[0], operand_index(node, index), condition)
        if op in Group.EFFECT:
            # A CONTIGUOUS or a COPY, or of an ASSIGN the new content. The others, which are for
            # derivatives, have been removed by "simplify".
            return self.value(node.src[-1], index, condition)
        if op is Op.ARGSORT:
            # A sort is no expression over axes, and `SortKernel` has none. This LOAD only records
            # that the kernel reads the keys.
            return self.value(node.src[0], index, condition)
        if op is Op.BIN_SUM:
            # Nor is a sum by bins, and `BinKernel` has none: these LOADs record what it reads.
            base, places, updates = map(self._first_element, node.src)
            return base + cast(places, node.dtype) + updates
        if op in Group.COLLECTIVE:
            # Nor is a collective, and `Collective` has none. This LOAD only records which array it
            # reads, which is in memory even if it is a constant.
            return self._first_element(*node.src)
        if op is Op.IOTA:
            return cast(index[0], node.dtype)
        if op is Op.GATHER:
            return self._gathered(node, index, condition)
        return self._reduced(node, index) if op is Op.REDUCE else self._scanned(node, index)

    def _read(self, node: Node, index: Index, source: InMemory, condition: Node) -> Node:
        """The LOAD of ``node[index]``, which is in memory; it is remembered if it has no condition
        and needs none."""
        load = _load(node, source, condition)
        if condition is ix.TRUE and _inside(index, node.shape) is ix.TRUE:
            self._always_inside.add(load)
        return load

    def _first_element(self, array: Node) -> Node:
        """A LOAD that records that the kernel reads an array, which is in memory."""
        source = self._sources(array, tuple(const(0, int64) for _ in array.shape))
        assert isinstance(source, InMemory)
        return _load(array, source, ix.TRUE)

    def _guarded(self, node: Node, index: Index, fill: Node, condition: Node) -> Node:
        """``node[index]`` where `index` is inside the bounds of `node`, and `fill` elsewhere.

        ``pad(x)[i]`` with one zero before the 8 elements of x is ``load(i - 1)`` under the
        condition 0 <= i - 1 < 8: a LOAD is 0 where its condition does not hold. If `fill` is
        another number, or if arithmetic follows the load, as for ``pad(exp(x))``, a WHERE chooses.
        """
        is_inside = _inside(index, node.shape)
        if is_inside is ix.FALSE:
            return fill
        value = self.value(node, index, ix.both(condition, is_inside))
        if fill is ix.FALSE:  # of booleans, ``where(inside, value, False)`` is ``inside and value``
            return ix.both(is_inside, value)
        if is_inside is ix.TRUE or _is_zero_outside(value, is_inside, fill):
            return value
        return Node(Op.WHERE, (is_inside, value, fill))

    def _gathered(self, node: Node, index: Index, condition: Node) -> Node:
        """An element of a GATHER: at (i, j) along axis 1, ``data[i, places[i, j]]``, and 0 where
        that place is out of range. No place is tested that the graph has clamped into the range,
        though memory may hold it."""
        data, places = node.src
        axis = node.arg
        place = ix.of_value(cast(self._place(places, index, condition), int64))
        moved = (*index[:axis], place, *index[axis + 1 :])
        lowest, highest = bounds_of(places)
        if condition is ix.TRUE and lowest >= 0 and highest < data.shape[axis]:
            return self.value(data, moved, condition)
        return self._guarded(data, moved, const(0, node.dtype), condition)

    def _place(self, places: Node, index: Index, condition: Node) -> Node:
        """The element of `places` that a GATHER reads where `condition` holds; elsewhere any number
        will do. So it is read without the condition if it is there in any case: where j < 128
        holds, as for ``data[places[i], j]`` in a concatenation, the place is ``places[i]`` for all
        j, and lanes along j have it in common."""
        anywhere = self.value(places, index)
        if self._always_inside.issuperset(loads_beneath([anywhere])):
            return anywhere
        return self.value(places, index, condition)

    def _reduced(self, node: Node, index: Index) -> Node:
        """One part of a LOOP_REDUCE over loops along the reduced axes.

        Its loads happen where `index` is inside the bounds of the result: with padding around the
        reduction it may be outside. No other condition around it is passed on, or else the result
        would depend on the axes of that condition. Take ``x - max(x, axis=1)``, padded to 128
        columns and summed up: the condition is that a column is not padding, and a maximum that
        depended on it would be computed for each of the 128 columns, not once.
        """
        arg: Reduce = node.arg
        loops = self.axes.reduce_loops(index, node.src[0].shape, arg.axes)
        parts = self._parts(node, loops.index, _inside(index, node.shape))
        if not loops.axes:  # all reduced axes have size 1: the only element is the result
            return parts[arg.component]
        return Node(Op.LOOP_REDUCE, parts + loops.axes, LoopReduce(arg.monoid, arg.component))

    def _scanned(self, node: Node, index: Index) -> Node:
        """One part of a LOOP_SCAN, along the loops that its store runs over the scanned axis.

        These are the terms of the index there: i for ``i``, and i and j for ``4 * i + j`` if that
        axis is in pieces. Conditions are those of `_reduced`.
        """
        arg: Reduce = node.arg
        (axis,) = arg.axes
        loops = tuple(ix.terms_of(index[axis])[0])
        parts = self._parts(node, index, _inside(index, node.shape))
        if not loops:  # an axis of size 1: its only element is the result
            return parts[arg.component]
        return Node(Op.LOOP_SCAN, parts + loops, LoopReduce(arg.monoid, arg.component))

    def _parts(self, node: Node, index: Index, condition: Node) -> tuple[Node, ...]:
        """All operands of a reduction or scan, at one index: one for a sum, two for ARGMAX, a value
        and its place."""
        return tuple(self.value(operand, index, condition) for operand in node.src)

    def _reshaped(self, node: Node, index: Index) -> Index:
        """Where the element at `index` of a RESHAPE lies in its operand.

        Both shapes have the same elements in the same order. They fall into groups of neighbouring
        axes with the same number of elements, and axes of different groups do not mix: from (6, 4)
        to (2, 3, 4), the axis of 6 becomes those of 2 and 3, and that of 4 stays. Result (i, j, k)
        is operand (3 * i + j, k); the other way, result (p, k) is operand (p // 3, p % 3, k).
        An axis of size 1 is at 0 in the operand. No axis has size 0: `_value` ends before.
        """
        source = node.src[0].shape
        # The products of sizes up to each axis, itself included: 6 and 24 for (6, 4), and 2, 6 and
        # 24 for (2, 3, 4). A group ends where both shapes have the same product: at 6, and at 24.
        source_ends = list(accumulate(source, mul))
        target_ends = list(accumulate(node.shape, mul))
        boundaries = sorted({1, *source_ends} & {1, *target_ends})
        result = [ix.ZERO] * len(source)
        for start, end in pairwise(boundaries):
            flat = self._flattened(index, node.shape, target_ends, start, end)
            for axis, axis_end in enumerate(source_ends):
                is_in_group = start < axis_end <= end
                if is_in_group and source[axis] != 1:
                    elements_after = end // axis_end  # of the group: 3 after the 2 of (2, 3)
                    result[axis], flat = self._divided(flat, elements_after)
        return tuple(result)

    def _flattened(
        self, index: Index, shape: Shape, ends: Sequence[int], start: int, end: int
    ) -> Node:
        """The row-major number of an element among those of one group of axes of `shape`: for the
        axes of 2 and 3, 3 * i + j. The group has the axes whose product `ends` is above `start` and
        up to `end`.

        An axis of size 1 adds nothing: padding around it may let its index be another than 0.
        """
        flat = ix.ZERO
        for position, axis_end, size in zip(index, ends, shape, strict=True):
            is_in_group = start < axis_end <= end
            if is_in_group and size != 1:
                flat = ix.add(flat, ix.scale(position, end // axis_end))
        return flat

    def _divided(self, index: Node, divisor: int) -> tuple[Node, Node]:
        """Quotient and remainder of `index` by `divisor`. If a split of an axis makes the division
        exact, that split becomes the obstacle, and both are 0.

        (4 * i + j) // 8 for i < 6 and j < 4 asks for i in the pieces (3, 2), as 8 is 2 steps of i.
        With i = 2 * k + l the quotient is k and the remainder 4 * l + j.
        """
        if self.obstacle:  # of another axis of the same reshape
            return ix.ZERO, ix.ZERO
        for axis, stride in ix.terms_of(index)[0].items():
            # Other terms than axes are data, or divisions of before; they have no loop to split.
            if axis.op is Op.AXIS and stride > 0 and divisor % stride == 0:
                factor = divisor // stride  # steps of the axis that make up the divisor
                size = axis.arg.size
                # A factor of 1 or of `size` would make a piece of size 1, which changes nothing.
                if 1 < factor < size and size % factor == 0:
                    self.obstacle = AxisSplit(axis, factor)
                    return ix.ZERO, ix.ZERO
        return ix.divided(index, divisor)


def bounds_of(values: Node) -> tuple[int, int]:
    """The lowest and highest value of an array of integers that minima and maxima with constants
    clamp, beneath movement that adds none; those of int64 where nothing says more."""
    node = peel(values, Group.MOVEMENT - {Op.PAD, Op.SHEAR})
    if node.op is Op.CONST:
        return node.arg.value, node.arg.value
    if node.op in (Op.MIN, Op.MAX) and node.dtype.is_int:
        lows, highs = zip(*map(bounds_of, node.src), strict=True)
        choose = min if node.op is Op.MIN else max
        return choose(lows), choose(highs)
    return -(1 << 63), (1 << 63) - 1


def _elementwise(node: Node) -> Node:
    """`node`, an operation on scalars, with comparisons of indices in normal form.

    The masks ``column <= row``, ``row - column >= 0`` and ``not column > row`` become the one
    comparison ``column < row + 1``: schedules see by it which columns a row needs, and equal masks
    get equal texts.
    """
    op = node.op
    if op is Op.LT:
        return _compared(*node.src) or node
    if op is Op.NOT:
        return _not(*node.src) or node
    if op is Op.WHERE:
        return _chosen(*node.src)
    return node


def _compared(left: Node, right: Node) -> Node | None:
    """``left < right`` of indices in normal form, or a constant; None where data decide."""
    lower, higher = ix.of_integer(left), ix.of_integer(right)
    return None if lower is None or higher is None else ix.less(lower, higher)


def _not(condition: Node) -> Node | None:
    """The negation of a boolean constant, or of a comparison of indices; None for any other."""
    if condition.op is Op.CONST and condition.dtype is bool_:
        return const(not condition.arg.value, bool_)
    return _opposite(condition)


def _opposite(condition: Node) -> Node | None:
    """The comparison of indices that holds where `condition` does not: ``j < i + 1`` for ``i < j``.
    None if that is no comparison of indices."""
    if condition.op is not Op.LT:
        return None
    left, right = map(ix.of_integer, condition.src)
    if left is None or right is None:
        return None
    return ix.less(right, ix.scale(left, 1, offset=1))  # not left < right: right < left + 1


def _chosen(condition: Node, yes: Node, no: Node) -> Node:
    """``where(condition, yes, no)`` in normal form.

    A comparison of two axes or its opposite is the condition, whichever has the smaller constant:
    ``where(j < i + 1, x, y)`` becomes ``where(i < j, y, x)``. A bound of one axis, as ``i < 5``,
    stays: `narrow` and the printers know bounds.
    """
    if condition.op is Op.CONST:
        return yes if condition.arg.value else no
    if len(free_axes(condition)) > 1:
        opposite = _opposite(condition)
        if opposite is not None and _constant_of(opposite) < _constant_of(condition):
            return Node(Op.WHERE, (opposite, no, yes))
    return Node(Op.WHERE, (condition, yes, no))


def _constant_of(comparison: Node) -> int:
    """The size of the constant in a comparison of indices: 3 for ``i + 3 < j``."""
    left, right = comparison.src
    difference = ix.add(right, ix.scale(left, -1))
    _, constant = ix.terms_of(difference)
    return abs(constant)


def _load(node: Node, source: InMemory, condition: Node) -> Node:
    """A LOAD of an element of `node`, guarded by `condition` unless that always holds. The one
    element of a scalar is read without a guard: it is there in any case, and can be read once."""
    is_scalar = not node.shape
    if condition is ix.TRUE or is_scalar:
        operands: tuple[Node, ...] = (source.index,)
    else:
        operands = (source.index, condition)
    return Node(Op.LOAD, operands, Load(source.parameter, node.dtype))


def _inside(index: Index, shape: Shape) -> Node:
    """The condition that `index` is inside the bounds of an array of `shape`."""
    return ix.both(*map(ix.inside, index, shape))


def _is_zero_outside(value: Node, is_inside: Node, fill: Node) -> bool:
    """Whether `value` is `fill` by itself where `is_inside` is false: if it is a LOAD under that
    condition, which is 0 where it does not hold, or a cast of such a LOAD."""
    load = value.src[0] if value.op is Op.CAST else value
    is_guarded = load.op is Op.LOAD and len(load.src) == 2  # an index and a condition
    if not is_guarded or fill is not const(0, fill.dtype):
        return False
    guard = load.src[1]
    return ix.both(guard, is_inside) is guard  # it has all parts of `is_inside`


def operand_index(node: Node, index: Index) -> Index:
    """Where the element at `index` of a movement's result lies in its operand. RESHAPE, which may
    need divisions, has `Lowering._reshaped` instead.

    EXPAND of (1, 5) to (3, 5):                  (i, j) -> (0, j)
    PERMUTE with the axes (1, 0):                (i, j) -> (j, i)
    PAD with 2 elements before:                  (i,)   -> (i - 2,), which may be outside
    SHRINK to every second element from 3 on:    (i,)   -> (2 * i + 3,)
    """
    match node.op:
        case Op.EXPAND:
            return _expanded(node.src[0].shape, index)
        case Op.PERMUTE:
            order = node.arg
            return tuple(index[place] for place in inverse(order))
        case Op.PAD:
            before = node.arg.before
            return tuple(ix.scale(part, 1, -low) for part, low in zip(index, before, strict=True))
        case Op.SHRINK:
            ranges = zip(index, node.arg, strict=True)
            return tuple(ix.scale(part, kept.step, kept.start) for part, kept in ranges)
        case _:
            return _sheared(node, index)


def _expanded(shape: Shape, index: Index) -> Index:
    """The index in an operand of `shape`, whose axes are the last ones of an EXPAND: (0, k) for the
    operand of (1, 5) at (i, j, k) of (2, 3, 5)."""
    aligned = zip(shape, index[len(index) - len(shape) :], strict=True)
    return tuple(ix.ZERO if size == 1 else position for size, position in aligned)


def _sheared(node: Node, index: Index) -> Index:
    """The index in the operand of a SHEAR, which shifts `axis` by `step` elements for each step
    along the axis `by`. It may be outside the operand.

    With axis 1, by 0 and 4 elements along axis 0: for step 2, row k is shifted to the right by
    2 * k, and (k, i) gives (k, i - 2 * k). For step -2 it is shifted by 2 * (3 - k), so that no
    shift is negative: (k, i + 2 * k - 6).
    """
    axis, by, step = node.arg
    offset = 0 if step > 0 else (node.shape[by] - 1) * step
    moved = ix.add(index[axis], ix.scale(index[by], -step, offset))
    return (*index[:axis], moved, *index[axis + 1 :])
