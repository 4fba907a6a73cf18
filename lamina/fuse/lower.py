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
from dataclasses import dataclass
from functools import cache
from itertools import accumulate, pairwise
from operator import mul
from typing import Literal, Protocol

from lamina.core.dtypes import bool_, int64
from lamina.core.shape import Shape
from lamina.fuse.axes import AxisSplit, Index, LoopAxes
from lamina.graph import index as ix
from lamina.ir.build import cast
from lamina.ir.kernel import free_axes
from lamina.ir.node import Node, const
from lamina.ir.ops import Group, Load, LoopReduce, Op, Reduce


@dataclass(frozen=True)
class InMemory:
    """An element that a kernel reads: number of the parameter, and index in elements."""

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
        self.value = cache(self._value)  # the scalar of a node at an index
        self._sources = sources

    def _value(self, node: Node, index: Index, condition: Node = ix.TRUE) -> Node:
        """The scalar ``node[index]``; LOADs beneath happen only where `condition` holds.

        Recursion is as deep as the expression, so one level is one Python frame where possible.
        """
        op = node.op
        if op is Op.CONST:
            return node
        if 0 in node.shape or self.obstacle:
            return const(0, node.dtype)  # loops over nothing never run, and may be left out
        source = self._sources(node, index)
        if source is Source.OTHER_INDEX:
            self.obstacle = source
            return const(0, node.dtype)
        if isinstance(source, InMemory):
            return _load(node, source, condition)
        if op in Group.ELEMENTWISE:
            operands = []
            for operand in node.src:
                operands.append(self.value(operand, index, condition))
            return _elementwise(Node(op, tuple(operands), node.arg))
        if op is Op.PAD or op is Op.SHEAR:
            fill = const(node.arg.value if op is Op.PAD else 0, node.dtype)
            return self._guarded(node.src[0], operand_index(node, index), fill, condition)
        if op in Group.MOVEMENT:
            is_reshape = op is Op.RESHAPE
            moved = self._reshaped(node, index) if is_reshape else operand_index(node, index)
            return self.value(node.src[0], moved, condition)
        if op in Group.EFFECT:  # of an ASSIGN the new content, its last operand
            return self.value(node.src[-1], index, condition)
        if op is Op.ARGSORT:  # lowered only so that the reads of its kernel are known: the keys
            return self.value(node.src[0], index, condition)
        if op is Op.IOTA:
            return cast(index[0], node.dtype)
        if op is Op.GATHER:
            return self._gathered(node, index, condition)
        return self._reduced(node, index) if op is Op.REDUCE else self._scanned(node, index)

    def _guarded(self, node: Node, index: Index, fill: Node, condition: Node) -> Node:
        """``node[index]`` where `index` is inside the bounds of `node`, and `fill` elsewhere.

        ``pad(x)[i]`` with one zero before the 8 elements of x is ``load(i - 1)`` under the
        condition 0 <= i - 1 < 8: a LOAD is 0 where its condition does not hold. If `fill` is
        another number, or if arithmetic follows the load, a WHERE chooses.
        """
        is_inside = _inside(index, node.shape)
        if is_inside is ix.FALSE:
            return fill
        value = self.value(node, index, ix.both(condition, is_inside))
        if fill is ix.FALSE:  # of booleans: ``where(inside, value, False)``
            return ix.both(is_inside, value)
        if is_inside is ix.TRUE or _is_zero_outside(value, is_inside, fill):
            return value
        return Node(Op.WHERE, (is_inside, value, fill))

    def _gathered(self, node: Node, index: Index, condition: Node) -> Node:
        """An element at a place along one axis that data say; 0 where that is out of range."""
        data, places = node.src
        axis = node.arg
        place = ix.of_value(cast(self.value(places, index, condition), int64))
        moved = (*index[:axis], place, *index[axis + 1 :])
        return self._guarded(data, moved, const(0, node.dtype), condition)

    def _reduced(self, node: Node, index: Index) -> Node:
        """One part of a LOOP_REDUCE over loops along the reduced axes.

        Its loads happen where `index` is inside the bounds of the result, which padding around it
        may leave. Other conditions around it are not passed on, as the result would depend on their
        axes: where ``x - max(x, axis=1)`` is padded to 128 columns and summed up, the condition of
        a column holds or not, and the maximum would be computed for each of the 128.
        """
        arg: Reduce = node.arg
        loops = self.axes.reduce_loops(index, node.src[0].shape, arg.axes)
        parts = self._parts(node, loops.index, _inside(index, node.shape))
        if not loops.axes:
            return parts[arg.part]
        return Node(Op.LOOP_REDUCE, parts + loops.axes, LoopReduce(arg.monoid, arg.part))

    def _scanned(self, node: Node, index: Index) -> Node:
        """One part of a LOOP_SCAN along the loops that its store runs over the scanned axis: one,
        or several where that axis is in pieces. Conditions are those of `_reduced`."""
        arg: Reduce = node.arg
        (axis,) = arg.axes
        loops = tuple(ix.terms_of(index[axis])[0])
        parts = self._parts(node, index, _inside(index, node.shape))
        if not loops:
            return parts[arg.part]
        return Node(Op.LOOP_SCAN, parts + loops, LoopReduce(arg.monoid, arg.part))

    def _parts(self, node: Node, index: Index, condition: Node) -> tuple[Node, ...]:
        """All operands of a reduction or scan: the components of what its monoid combines."""
        return tuple(self.value(operand, index, condition) for operand in node.src)

    def _reshaped(self, node: Node, index: Index) -> Index:
        """Where an element of a RESHAPE lies in its operand.

        Only axes between two boundaries that both shapes have mix. From (6, 4) to (2, 3, 4), the
        boundaries lie before the 6, after it and after the 4. Result (i, j, k) is operand
        (3 * i + j, k); the other way, result (p, k) is operand (p // 3, p % 3, k).
        """
        source = node.src[0].shape
        # The products of sizes up to each axis, itself included: 6 and 24 for (6, 4), and 2, 6 and
        # 24 for (2, 3, 4). Boundaries are 1, 6 and 24.
        source_ends = list(accumulate(source, mul))
        target_ends = list(accumulate(node.shape, mul))
        boundaries = sorted({1, *source_ends} & {1, *target_ends})
        result = [ix.ZERO] * len(source)
        for start, end in pairwise(boundaries):
            # The place among the elements of the axes between two boundaries: 3 * i + j.
            # An axis of size 1 adds nothing, even where padding leaves its index outside of it.
            flat = ix.ZERO
            for position, axis_end, size in zip(index, target_ends, node.shape, strict=True):
                is_between = start < axis_end <= end
                if is_between and size != 1:
                    flat = ix.add(flat, ix.scale(position, end // axis_end))
            for axis, axis_end in enumerate(source_ends):
                is_between = start < axis_end <= end
                if is_between and source[axis] != 1:
                    result[axis], flat = self._divided(flat, end // axis_end)
        return tuple(result)

    def _divided(self, index: Node, divisor: int) -> tuple[Node, Node]:
        """Quotient and remainder of `index` by `divisor`. An axis whose split makes the division
        exact becomes the obstacle, and both are 0.

        (4 * i + j) // 8 for i < 6 and j < 4 asks for i in the pieces (3, 2), as 8 is 2 steps of i.
        With i = 2 * k + l the quotient is k and the remainder 4 * l + j.
        """
        if self.obstacle:  # of another axis of the same reshape
            return ix.ZERO, ix.ZERO
        for axis, stride in ix.terms_of(index)[0].items():
            if axis.op is not Op.AXIS or stride <= 0 or divisor % stride != 0:
                continue
            factor = divisor // stride  # steps of the axis to the divisor
            size = axis.arg.size
            # With a factor of 1, or of all steps, one of the two pieces would be of size 1.
            if 1 < factor < size and size % factor == 0:
                self.obstacle = AxisSplit(axis, factor)
                return ix.ZERO, ix.ZERO
        return ix.divided(index, divisor)


def _elementwise(node: Node) -> Node:
    """`node`, an operation on scalars. What compares indices is in normal form, however a program
    spells it: rows and the columns that they see are compared in one way."""
    if node.op is Op.LT:
        return _compared(*node.src) or node
    condition = node.src[0]
    if node.op is Op.NOT:
        if condition.op is Op.CONST and condition.dtype is bool_:
            return const(not condition.arg.value, bool_)
        return _negated(condition) or node
    if node.op is Op.WHERE:
        return _chosen(*node.src)
    return node


def _compared(left: Node, right: Node) -> Node | None:
    """``left < right`` of indices; None where data decide."""
    lower, higher = ix.of_integer(left), ix.of_integer(right)
    return None if lower is None or higher is None else ix.less(lower, higher)


def _negated(condition: Node) -> Node | None:
    """Where a comparison of indices does not hold: ``j < i + 1`` for ``i < j``. None for any other
    condition."""
    if condition.op is not Op.LT:
        return None
    left, right = map(ix.of_integer, condition.src)
    return None if left is None or right is None else ix.less(right, ix.scale(left, 1, 1))


def _chosen(condition: Node, yes: Node, no: Node) -> Node:
    """A choice by a condition. One that compares two axes, or its opposite, is the condition,
    whichever has the smaller constant: ``where(j < i + 1, x, y)`` is ``where(i < j, y, x)``."""
    if condition.op is Op.CONST:
        return yes if condition.arg.value else no
    opposite = _negated(condition) if len(free_axes(condition)) > 1 else None
    if opposite is not None and _offset(opposite) < _offset(condition):
        condition, yes, no = opposite, no, yes
    return Node(Op.WHERE, (condition, yes, no))


def _offset(comparison: Node) -> int:
    """The size of the constant in a comparison of indices: 3 for ``i + 3 < j``."""
    left, right = comparison.src
    _, constant = ix.terms_of(ix.add(right, ix.scale(left, -1)))
    return abs(constant)


def _load(node: Node, source: InMemory, condition: Node) -> Node:
    """A LOAD of an element of `node`, guarded unless it always happens."""
    is_scalar = not node.shape  # the one element of a scalar is always there
    if condition is ix.TRUE or is_scalar:
        operands: tuple[Node, ...] = (source.index,)
    else:
        operands = (source.index, condition)
    return Node(Op.LOAD, operands, Load(source.parameter, node.dtype))


def _inside(index: Index, shape: Shape) -> Node:
    """The condition that `index` is inside the bounds of an array of `shape`."""
    return ix.both(*map(ix.inside, index, shape))


def _is_zero_outside(value: Node, is_inside: Node, fill: Node) -> bool:
    """Whether `value` is `fill` by itself where `is_inside` is false.

    A LOAD is 0 where its condition does not hold, and so is a cast of it.
    """
    load = value.src[0] if value.op is Op.CAST else value
    is_guarded = load.op is Op.LOAD and len(load.src) == 2
    if not is_guarded or fill is not const(0, fill.dtype):
        return False
    guard = load.src[1]
    return ix.both(guard, is_inside) is guard  # the guard has all parts of `is_inside`


def operand_index(node: Node, index: Index) -> Index:
    """Where the element of a movement's result at `index` lies in its operand; not of RESHAPE.

    For a SHRINK that keeps every second element from the third on, (i,) gives (2 * i + 2,). For
    PAD and SHEAR the result may be outside the operand.
    """
    match node.op:
        case Op.EXPAND:
            return _expanded(node.src[0].shape, index)
        case Op.PERMUTE:
            order = node.arg
            return tuple(index[order.index(axis)] for axis in range(len(index)))
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
    """Along the axis of a SHEAR, the index less a multiple of that along another; see `Shear`.

    With axis 1, by 0 and 4 elements along axis 0, (k, i) gives (k, i - 2 * k) for step 2, and
    (k, i + 2 * k - 6) for step -2.
    """
    axis, by, step = node.arg
    offset = 0 if step > 0 else (node.shape[by] - 1) * step
    moved = ix.add(index[axis], ix.scale(index[by], -step, offset))
    return (*index[:axis], moved, *index[axis + 1 :])
