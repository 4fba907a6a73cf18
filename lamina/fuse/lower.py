"""From array nodes to scalars over axes: movement becomes index arithmetic here.

`Lowering.value(node, index, condition)` is the scalar that `node` holds at `index`. A movement
operation only changes the index; padding adds a condition; a reduction opens axes of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lamina.dtypes import int64
from lamina.ir.build import cast
from lamina.ir.node import Node, const
from lamina.ir.ops import Fold, Group, Load, Op
from lamina.shape import Shape, prod, strides_of
from lamina.simplify import index as ix

Index = tuple[Node, ...]
AxisPlan = dict[int, list[int]]


class SplitAxisError(Exception):
    """Raised to start over with an axis in two pieces, so that a reshape needs no division."""

    def __init__(self, axis: Node, factor: int) -> None:
        super().__init__(axis, factor)
        self.axis = axis
        self.factor = factor


class NotFusableError(Exception):
    """Raised when a value of the kernel is needed at an index the kernel has not computed."""


class Lowering:
    """Lowers nodes for one kernel.

    parameter_of: the number of the kernel parameter that holds a node, or None to compute it.
    check: called with a member of the kernel and its index before it is computed in place.
    plan: for each logical axis, in order of creation, the sizes it is split into.
    """

    def __init__(
        self,
        parameter_of: Callable[[Node], int | None],
        check: Callable[[Node, Index], None],
        plan: AxisPlan,
    ) -> None:
        self.parameter_of = parameter_of
        self.check = check
        self.plan = plan
        self.places: dict[Node, tuple[int, int]] = {}  # axis -> (logical axis, position)
        self._logical = 0
        self._memo: dict[tuple[Node, Index, Node | None], Node] = {}
        self._fold_axes: dict[tuple[Shape, Index], tuple[Index, Index]] = {}

    def new_axis(self, size: int, *, reduce: bool = False) -> tuple[Node, Index]:
        """A logical axis as one index, and the axes it consists of; none for a size of 1."""
        logical = self._logical
        self._logical += 1
        if size == 1:
            return ix.ZERO, ()
        sizes = self.plan.get(logical, [size])
        axes = []
        total = ix.ZERO
        for position, one in enumerate(sizes):
            axis = ix.axis(len(self.places), one, reduce=reduce)
            self.places[axis] = (logical, position)
            axes.append(axis)
            total = ix.add(ix.scale(total, one), axis)
        return total, tuple(axes)

    def split(self, request: SplitAxisError) -> None:
        """Note in the plan that `request` was made; the caller starts over."""
        logical, position = self.places[request.axis]
        sizes = self.plan.setdefault(logical, [request.axis.arg.size])
        size = sizes[position]
        sizes[position : position + 1] = [size // request.factor, request.factor]

    def value(self, node: Node, index: Index, condition: Node | None = None) -> Node:
        """The scalar `node[index]`; LOADs beneath happen only where `condition` holds."""
        key = (node, index, condition)
        found = self._memo.get(key)
        if found is None:
            found = self._memo[key] = self._value(node, index, condition)
        return found

    def _value(self, node: Node, index: Index, condition: Node | None) -> Node:
        op = node.op
        if op is Op.CONST:
            return node
        parameter = self.parameter_of(node)
        if parameter is not None:
            return self._load(node, parameter, index, condition)
        self.check(node, index)
        if op in Group.ELEMENTWISE:
            operands = tuple(self.value(one, index, condition) for one in node.src)
            return Node(op, operands, node.arg)
        if op is Op.PAD or op is Op.SHEAR:
            return self._guarded(node, index, condition)
        if op in Group.MOVEMENT:
            return self.value(node.src[0], MOVE[op](self, node, index), condition)
        return VALUE[op](self, node, index, condition)

    def _load(self, node: Node, parameter: int, index: Index, condition: Node | None) -> Node:
        if 0 in node.shape:
            return const(0, node.dtype)  # it stands in loops that never run, and may leave them
        terms = map(ix.scale, index, strides_of(node.shape))
        flat = ix.add(*terms)
        operands = (flat,) if condition is None or condition is ix.TRUE else (flat, condition)
        return Node(Op.LOAD, operands, Load(parameter, node.dtype))

    def _guarded(self, node: Node, index: Index, condition: Node | None) -> Node:
        """PAD and SHEAR: the operand inside its bounds, the fill value outside."""
        inner, sizes = MOVE[node.op](self, node, index), node.src[0].shape
        fill = const(node.arg.value if node.op is Op.PAD else 0, node.dtype)
        return self._inside(node.src[0], inner, sizes, fill, condition)

    def _inside(
        self, node: Node, index: Index, sizes: Shape, fill: Node, condition: Node | None
    ) -> Node:
        holds = ix.both(*map(ix.inside, index, sizes))
        if holds is ix.FALSE:
            return fill
        if holds is ix.TRUE:
            return self.value(node, index, condition)
        value = self.value(node, index, ix.both(condition, holds))
        guarded = value.op is Op.LOAD and len(value.src) > 1 and ix.implies(value.src[1], holds)
        if guarded and fill is const(0, fill.dtype):
            return value
        return Node(Op.WHERE, (holds, value, fill))

    def _quotient(self, index: Node, divisor: int) -> Node:
        """Floor division that would rather split an axis than divide."""
        result = ix.floordiv(index, divisor)
        if any(term.op is Op.IDIV for term in ix.terms_of(result)[0]):
            self._request_split(index, divisor)
        return result

    def _request_split(self, index: Node, divisor: int) -> None:
        terms, _ = ix.terms_of(index)
        for axis, stride in terms.items():
            if axis.op is not Op.AXIS or stride <= 0 or divisor % stride:
                continue
            factor, size = divisor // stride, axis.arg.size
            if 1 < factor < size and size % factor == 0:
                raise SplitAxisError(axis, factor)

    def reshaped(self, node: Node, index: Index) -> Index:
        """Align the two shapes in blocks of equal size; only inside a block indices mix."""
        source, target = node.src[0].shape, node.shape
        if 0 in source:
            return (ix.ZERO,) * len(source)
        result: list[Node] = []
        i = j = 0
        while i < len(source) or j < len(target):
            start_i, start_j = i, j
            i, j = min(i + 1, len(source)), min(j + 1, len(target))
            while (have := prod(source[start_i:i])) != (want := prod(target[start_j:j])):
                if have < want:
                    i += 1
                else:
                    j += 1
            result += self._block(source[start_i:i], target[start_j:j], index[start_j:j])
        return tuple(result)

    def _block(self, source: Shape, target: Shape, index: Index) -> list[Node]:
        flat = ix.add(*map(ix.scale, index, strides_of(target)))
        parts = []
        for size, stride in zip(source, strides_of(source), strict=True):
            if size == 1:
                parts.append(ix.ZERO)
                continue
            quotient = self._quotient(flat, stride)
            parts.append(quotient)
            flat = ix.mod(flat, stride)
        return parts

    def fold_axes(self, sizes: Shape, at: Index) -> tuple[Index, Index]:
        """Axes to reduce over; reductions of one extent at one place share them."""
        key = (sizes, at)
        if key not in self._fold_axes:
            pairs = [self.new_axis(size, reduce=True) for size in sizes]
            self._fold_axes[key] = (
                tuple(index for index, _ in pairs),
                tuple(axis for _, axes in pairs for axis in axes),
            )
        return self._fold_axes[key]

    def _reduced(self, node: Node, index: Index, condition: Node | None) -> Node:
        monoid, axes, part = node.arg
        shape = node.src[0].shape
        inner, opened = self.fold_axes(tuple(shape[axis] for axis in axes), index)
        kept, reduced = iter(index), iter(inner)
        full = tuple(next(reduced if axis in axes else kept) for axis in range(len(shape)))
        parts = tuple(self.value(operand, full, condition) for operand in node.src)
        return Node(Op.FOLD, parts + opened, Fold(monoid, part)) if opened else parts[part]

    def _prefix(self, node: Node, index: Index, condition: Node | None) -> Node:
        monoid, (axis,), part = node.arg
        parts = tuple(self.value(operand, index, condition) for operand in node.src)
        along, _ = ix.terms_of(index[axis])
        if not along:
            return self.value(node.src[part], index, condition)
        return Node(Op.PREFIX, (*parts, *along), Fold(monoid, part))

    def _gathered(self, node: Node, index: Index, condition: Node | None) -> Node:
        data, places = node.src
        axis = node.arg
        place = cast(self.value(places, index, condition), int64)
        moved = (*index[:axis], place, *index[axis + 1 :])
        return self._inside(data, moved, data.shape, const(0, node.dtype), condition)


def _expand(lowering: Lowering, node: Node, index: Index) -> Index:
    shape = node.src[0].shape
    aligned = index[len(index) - len(shape) :]
    return tuple(
        ix.ZERO if size == 1 else one for size, one in zip(shape, aligned, strict=True)
    )


def _permute(lowering: Lowering, node: Node, index: Index) -> Index:
    moved = dict(zip(node.arg, index, strict=True))
    return tuple(moved[axis] for axis in range(len(index)))


def _pad(lowering: Lowering, node: Node, index: Index) -> Index:
    return tuple(
        ix.scale(one, 1, -before) for one, before in zip(index, node.arg.before, strict=True)
    )


def _shrink(lowering: Lowering, node: Node, index: Index) -> Index:
    return tuple(map(ix.scale, index, node.arg.step, node.arg.start))


def _flip(lowering: Lowering, node: Node, index: Index) -> Index:
    sizes = node.shape
    return tuple(
        ix.scale(one, -1, sizes[axis] - 1) if axis in node.arg else one
        for axis, one in enumerate(index)
    )


def _shear(lowering: Lowering, node: Node, index: Index) -> Index:
    axis, by, step = node.arg
    offset = 0 if step > 0 else (node.shape[by] - 1) * step
    moved = ix.add(index[axis], ix.scale(index[by], -step, offset))
    return (*index[:axis], moved, *index[axis + 1 :])


MOVE: dict[Op, Callable[[Lowering, Node, Index], Index]] = {
    Op.RESHAPE: Lowering.reshaped,
    Op.EXPAND: _expand,
    Op.PERMUTE: _permute,
    Op.PAD: _pad,
    Op.SHRINK: _shrink,
    Op.FLIP: _flip,
    Op.SHEAR: _shear,
}


def _same(lowering: Lowering, node: Node, index: Index, condition: Node | None) -> Node:
    return lowering.value(node.src[-1], index, condition)


VALUE: dict[Op, Callable[[Lowering, Node, Index, Node | None], Node]] = {
    Op.IOTA: lambda lowering, node, index, condition: cast(index[0], node.dtype),
    Op.VARIABLE: lambda lowering, node, index, condition: node,
    Op.REDUCE: Lowering._reduced,
    Op.SCAN: Lowering._prefix,
    Op.GATHER: Lowering._gathered,
    Op.ASSIGN: _same,
    Op.COPY: _same,
    Op.CONTIGUOUS: _same,
    Op.DETACH: _same,
}


def full_index(lowering: Lowering, shape: Sequence[int]) -> tuple[Index, Index]:
    """Fresh axes for an array of `shape`: its index, and the axes in order."""
    pairs = [lowering.new_axis(size) for size in shape]
    return tuple(index for index, _ in pairs), tuple(axis for _, axes in pairs for axis in axes)
