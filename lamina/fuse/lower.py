"""From array nodes to scalars over axes: movement becomes index arithmetic here.

`Lowering.value(node, index, condition)` is the scalar that `node` holds at `index`. A movement
operation only changes the index; padding adds a condition; a reduction opens axes of its own.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache
from itertools import accumulate, pairwise
from operator import mul

from lamina.core.dtypes import int64
from lamina.core.shape import Shape
from lamina.graph import index as ix
from lamina.ir.build import cast
from lamina.ir.kernel import free_axes
from lamina.ir.node import Node, const
from lamina.ir.ops import Group, Load, LoopReduce, Op

Index = tuple[Node, ...]
PlaceOf = Callable[[Node, Index], tuple[int, Node] | None]
AxisPlan = Mapping[int, tuple[int, ...]]  # split logical axis, by creation -> sizes of its pieces


class SplitAxisError(Exception):
    """Raised with an axis and a factor: a reshape needs no division if the axis is in pieces."""


class NotFusableError(Exception):
    """Raised when a value of the kernel is needed at an index the kernel has not computed."""


class Lowering:
    """Lowers nodes for one kernel. ``place_of(node, index)`` is the parameter that holds `node` and
    the place in it, None to compute it, or raises NotFusableError."""

    def __init__(self, place_of: PlaceOf, plan: AxisPlan) -> None:
        self.place_of, self.plan = place_of, plan
        self.value = cache(self._value)
        self.given = -1  # the axis of a reduction, by number, that is a loop around the kernel
        self._places: dict[Node, tuple[int, int]] = {}  # axis -> (logical axis, position)
        self._logical = 0
        self._inner: dict[tuple[Shape, Index], tuple[Index, Index]] = {}

    def new_axes(self, shape: Sequence[int], *, reduce: bool = False) -> tuple[Index, Index]:
        """Loops over `shape`: its index, and the axes in order; a size of 1 needs none."""
        index, opened = [], []
        for logical, size in enumerate(shape, self._logical):
            total = ix.ZERO
            pieces = self.plan.get(logical, (size,)) if size != 1 else ()
            for position, piece in enumerate(pieces):
                given = len(self._places) == self.given
                axis = ix.axis(len(self._places), piece, reduce=reduce and not given)
                self._places[axis] = (logical, position)
                opened += [] if given else [axis]
                total = ix.add(ix.scale(total, piece), axis)
            index.append(total)
        self._logical += len(shape)
        return tuple(index), tuple(opened)

    def loops_in(self, index: Index, shape: Shape, axes: Collection[int]) -> tuple[Index, Index]:
        """Loops along `axes` of an array of `shape` whose other axes are at `index`: the index with
        those of the loops put in, and the loops. Reductions and columns of one extent share them,
        so that what two passes over a row compute is one node."""
        sizes = tuple(size for axis, size in enumerate(shape) if axis in axes)
        within = (one for one in index if any(axis.arg.reduce for axis in free_axes(one)))
        key = sizes, tuple(within)
        if key not in self._inner:
            self._inner[key] = self.new_axes(sizes, reduce=True)
        inner, opened = self._inner[key]
        kept, new = iter(index), iter(inner)
        return tuple(next(new if axis in axes else kept) for axis in range(len(shape))), opened

    def split(self, request: SplitAxisError) -> AxisPlan:
        """The plan to start over with."""
        axis, factor = request.args
        logical, position = self._places[axis]
        pieces, two = self.plan.get(logical, (axis.arg.size,)), (axis.arg.size // factor, factor)
        return {**self.plan, logical: (*pieces[:position], *two, *pieces[position + 1 :])}

    def _value(self, node: Node, index: Index, condition: Node = ix.TRUE) -> Node:
        """The scalar `node[index]`; LOADs beneath happen only where `condition` holds."""
        op = node.op
        if op is Op.CONST:
            return node
        if 0 in node.shape:
            return const(0, node.dtype)  # it stands in loops that never run, and may leave them
        if place := self.place_of(node, index):
            parameter, at = place
            safe = condition is ix.TRUE or not node.shape  # a scalar is always there
            guarded = (at,) if safe else (at, condition)
            return Node(Op.LOAD, guarded, Load(parameter, node.dtype))
        if op in Group.ELEMENTWISE:
            operands = tuple(self.value(one, index, condition) for one in node.src)
            return Node(op, operands, node.arg)
        if op in Group.MOVEMENT:
            inner = self._reshaped(node, index) if op is Op.RESHAPE else moved_index(node, index)
            if op is not Op.PAD and op is not Op.SHEAR:
                return self.value(node.src[0], inner, condition)
            fill = const(node.arg.value if op is Op.PAD else 0, node.dtype)
            return self._inside(node.src[0], inner, fill, condition)
        if op in Group.EFFECT or op is Op.ARGSORT:  # a sort has a kernel that reads its keys
            return self.value(node.src[-1], index, condition)
        if op is Op.IOTA:
            return cast(index[0], node.dtype)
        if op is Op.GATHER:
            data, places = node.src
            at = ix.of_value(cast(self.value(places, index, condition), int64))
            moved = (*index[: node.arg], at, *index[node.arg + 1 :])
            return self._inside(data, moved, const(0, node.dtype), condition)
        return self._reduced(node, index)

    def _inside(self, node: Node, index: Index, fill: Node, condition: Node) -> Node:
        """`node[index]` inside its bounds, `fill` outside."""
        holds = ix.both(*map(ix.inside, index, node.shape))
        if holds is ix.FALSE:
            return fill
        value = self.value(node, index, ix.both(condition, holds))
        if fill is ix.FALSE:
            return ix.both(holds, value)
        read = value.src[0] if value.op is Op.CAST else value
        guard = read.src[1] if read.op is Op.LOAD and len(read.src) > 1 else ix.TRUE
        if holds is ix.TRUE or (ix.both(guard, holds) is guard and fill is const(0, fill.dtype)):
            return value
        return Node(Op.WHERE, (holds, value, fill))

    def _reshaped(self, node: Node, index: Index) -> Index:
        """Indices mix only between two places at which an axis begins in both shapes."""
        source, target = node.src[0].shape, node.shape
        result = [ix.ZERO] * len(source)
        ends, target_ends = list(accumulate(source, mul)), list(accumulate(target, mul))
        parts = [part for part in zip(index, target_ends, target, strict=True) if part[2] != 1]
        for start, end in pairwise(sorted({1, *ends} & {1, *target_ends})):
            flat = ix.add(*(ix.scale(one, end // at) for one, at, _ in parts if start < at <= end))
            for axis, at in enumerate(ends):
                if start < at <= end and source[axis] != 1:
                    result[axis], flat = self._divided(flat, end // at)
        return tuple(result)

    def _divided(self, index: Node, divisor: int) -> tuple[Node, Node]:
        """Quotient and remainder; rather than divide, it would split an axis."""
        for axis, stride in ix.terms_of(index)[0].items():
            if axis.op is not Op.AXIS or stride <= 0 or divisor % stride:
                continue
            factor, size = divisor // stride, axis.arg.size
            if 1 < factor < size and size % factor == 0:
                raise SplitAxisError(axis, factor)
        return ix.divided(index, divisor)

    def _reduced(self, node: Node, index: Index) -> Node:
        """A LOOP_REDUCE over its own loops, or a LOOP_SCAN along those of its store. Of conditions
        only those matter that keep its index inside: it does not vary along the axes of others."""
        monoid, axes, part = node.arg
        condition = ix.both(*map(ix.inside, index, node.shape))
        if node.op is Op.REDUCE:
            index, along = self.loops_in(index, node.src[0].shape, axes)
        else:
            along = tuple(ix.terms_of(index[axes[0]])[0])
        parts = tuple(self.value(operand, index, condition) for operand in node.src)
        op = Op.LOOP_REDUCE if node.op is Op.REDUCE else Op.LOOP_SCAN
        return Node(op, parts + along, LoopReduce(monoid, part)) if along else parts[part]


def moved_index(node: Node, index: Index) -> Index:
    """Where the element of a movement's result at `index` lies in its operand."""
    arg, shape = node.arg, node.src[0].shape
    match node.op:
        case Op.EXPAND:
            aligned = zip(shape, index[len(index) - len(shape) :], strict=True)
            return tuple(ix.ZERO if size == 1 else one for size, one in aligned)
        case Op.PERMUTE:
            return tuple(index[arg.index(axis)] for axis in range(len(index)))
        case Op.PAD:
            return tuple(ix.scale(one, 1, -low) for one, low in zip(index, arg.before, strict=True))
        case Op.SHRINK:
            return tuple(ix.scale(i, by.step, by.start) for i, by in zip(index, arg, strict=True))
        case _:  # SHEAR
            axis, by, step = arg
            offset = 0 if step > 0 else (node.shape[by] - 1) * step
            moved = ix.add(index[axis], ix.scale(index[by], -step, offset))
            return (*index[:axis], moved, *index[axis + 1 :])
