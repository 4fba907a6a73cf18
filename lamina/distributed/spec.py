"""How an array lies on the processes of a mesh, and what that says about what is computed from it.

A `Spec` names for each dimension the axis of the mesh along which it is cut, or None, and the axes
over which the processes have terms of a sum, a *partial* value. Over all other axes a value is the
same on all processes. There are rules for kinds of graph nodes; a product of matrices has none of
its own, as it is an EXPAND of both factors, a multiplication and a sum:

| node | its result, from its operands |
|---|---|
| elementwise | cut as the first operand that is cut there; partial where it is linear |
| sum over a cut dimension | partial over that axis |
| EXPAND, PERMUTE, RESHAPE | dimensions go along; merged or split ones where they come first |
| SHRINK, PAD, SHEAR, GATHER, SCAN, ARGSORT | cut in the dimensions that they leave alone |
| anything else | whole |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from lamina.core.shape import Shape
from lamina.ir.monoids import ADD
from lamina.ir.node import Node
from lamina.ir.ops import Group, Op

Names = tuple[str | None, ...]
Sizes = Mapping[str, int]  # processes along each axis of the mesh


@dataclass(frozen=True)
class Spec:
    """names: for each dimension the axis along which it is cut, each at most once. partial: axes
    over which the processes have terms of a sum."""

    names: Names
    partial: frozenset[str] = frozenset()

    @property
    def cut(self) -> frozenset[str]:
        """The axes along which it is cut."""
        return frozenset(name for name in self.names if name is not None)

    @property
    def varying(self) -> frozenset[str]:
        """The axes along which processes have other values."""
        return self.cut | self.partial

    @property
    def summed(self) -> Spec:
        """The same, with no sum left to take."""
        return replace(self, partial=frozenset())

    def shape(self, whole: Shape, sizes: Sizes) -> Shape:
        """The shape of the part of each process."""
        return tuple(
            size // sizes[name] if name else size
            for size, name in zip(whole, self.names, strict=True)
        )

    def __str__(self) -> str:
        said = ", ".join(name or "None" for name in self.names)
        terms = f" partial over {', '.join(sorted(self.partial))}" if self.partial else ""
        return f"({said}){terms}"


def whole(rank: int) -> Spec:
    """Of an array of `rank` dimensions that all processes have."""
    return Spec((None,) * rank)


# Operations of which a sum of results is the result of a sum, as long as the other operands are the
# same everywhere: a casting too, as terms are rounded one by one.
LINEAR = frozenset({Op.NEG, Op.CAST, Op.CONTIGUOUS, Op.DETACH})
# Operations on one operand, in its shape.
UNARY = Group.UNARY | {Op.CONTIGUOUS, Op.DETACH}
POINTWISE = Group.ELEMENTWISE | UNARY | {Op.CUSTOM_DERIVATIVE}


def spec_of(node: Node, operands: Sequence[Spec], sizes: Sizes) -> Spec:
    """The spec of what `node` computes from operands with these."""
    if node.op in POINTWISE:
        return _pointwise(node, operands)
    if node.op is Op.REDUCE:
        return _reduced(node, operands)
    rule = _MOVED.get(node.op)
    return whole(len(node.shape)) if rule is None else rule(node, operands, sizes)


def operand_specs(node: Node, wanted: Spec, own: Sequence[Spec], sizes: Sizes) -> list[Spec]:
    """The specs that the operands of `node` need for its result to have `wanted`; their own specs
    are `own`. `wanted` is what `spec_of` gives, or, of pointwise nodes, EXPAND and PERMUTE, any."""
    if node.op in POINTWISE:
        return [Spec(wanted.names, wanted.partial & spec.partial) for spec in own]
    if node.op is Op.REDUCE:
        kept = iter(wanted.names)
        axes = node.arg.axes
        of_operand = tuple(
            (name if name in wanted.partial else None) if axis in axes else next(kept)
            for axis, name in enumerate(own[0].names)
        )
        partial = wanted.partial & own[0].partial
        return [Spec(of_operand, partial)] * len(node.src)
    if node.op is Op.EXPAND:
        return [Spec(_before_expand(node, wanted.names), wanted.partial)]
    if node.op is Op.PERMUTE:
        unpermuted = tuple(wanted.names[node.arg.index(axis)] for axis in range(len(node.arg)))
        return [Spec(unpermuted, wanted.partial)]
    if node.op is Op.RESHAPE:
        before = reshaped(node.shape, node.src[0].shape, wanted.names, sizes)
        return [Spec(before, wanted.partial)]
    if node.op is Op.GATHER:
        data = tuple(None if axis == node.arg else name for axis, name in enumerate(wanted.names))
        return [Spec(data), Spec(wanted.names)]
    if node.op in _MOVED:
        return [wanted] * len(node.src)
    return [whole(len(operand.shape)) for operand in node.src]


def _pointwise(node: Node, operands: Sequence[Spec]) -> Spec:
    """Each dimension is cut as the first operand that is cut there, by an axis that cuts no other.
    """
    names: list[str | None] = [None] * len(node.shape)
    for spec in operands:
        for axis, name in enumerate(spec.names):
            if name and names[axis] is None and name not in names:
                names[axis] = name
    cut = {name for name in names if name}
    return Spec(tuple(names), frozenset(_linear(node, operands) - cut))


def _linear(node: Node, operands: Sequence[Spec]) -> frozenset[str]:
    """The axes over which the result of a pointwise node is partial, as operands are."""
    first, *others = [spec.partial for spec in operands]
    if node.op in LINEAR:
        stays_float = node.src[0].dtype.is_float and node.dtype.is_float
        return first if node.op is not Op.CAST or stays_float else frozenset()
    if node.op is Op.ADD:
        return first.intersection(*others)
    if node.op is Op.MUL:
        return first ^ others[0]
    if node.op is Op.DIV and node.dtype.is_float:
        return first - others[0]
    return frozenset()


def _reduced(node: Node, operands: Sequence[Spec]) -> Spec:
    """A sum keeps what is cut along other dimensions, and is partial where it goes over a cut one.
    Other monoids need whole rows."""
    spec = operands[0]
    kept = tuple(name for axis, name in enumerate(spec.names) if axis not in node.arg.axes)
    if node.arg.monoid is not ADD:
        return Spec(kept)
    over = {spec.names[axis] for axis in node.arg.axes}
    return Spec(kept, spec.partial | frozenset(name for name in over if name))


def _expanded(node: Node, operands: Sequence[Spec], sizes: Sizes) -> Spec:
    before = node.src[0].shape
    new = len(node.shape) - len(before)
    names: list[str | None] = [None] * new
    for size, name, after in zip(before, operands[0].names, node.shape[new:], strict=True):
        names.append(name if size == after else None)
    return Spec(tuple(names), operands[0].partial)


def _before_expand(node: Node, names: Names) -> Names:
    """How the operand of an EXPAND is cut whose result is cut along `names`."""
    before = node.src[0].shape
    new = len(node.shape) - len(before)
    pairs = zip(before, node.shape[new:], names[new:], strict=True)
    return tuple(name if size == after else None for size, after, name in pairs)


def _permuted(node: Node, operands: Sequence[Spec], sizes: Sizes) -> Spec:
    names = tuple(operands[0].names[axis] for axis in node.arg)
    return Spec(names, operands[0].partial)


def _reshaped(node: Node, operands: Sequence[Spec], sizes: Sizes) -> Spec:
    names = reshaped(node.src[0].shape, node.shape, operands[0].names, sizes)
    return Spec(names, operands[0].partial)


def reshaped(before: Shape, after: Shape, names: Names, sizes: Sizes) -> Names:
    """How an array of shape `after` is cut that has the elements of one of shape `before`, cut
    along `names`. Of dimensions that are merged or split the first one may be cut:

        (8, 6) with 8 cut is (48,) cut, as is (4, 12) in 4;  (8, 6) with 6 cut is neither
    """
    found: list[str | None] = [None] * len(after)
    if prod(before) == 0:
        return tuple(found)
    for sources, targets in _groups(before, after):
        sources = [axis for axis in sources if before[axis] > 1]
        targets = [axis for axis in targets if after[axis] > 1]
        cut = [axis for axis in sources if names[axis]]
        if cut == sources[:1] and targets:
            (name,) = (names[axis] for axis in cut)
            if name and after[targets[0]] % sizes[name] == 0:
                found[targets[0]] = name
    return tuple(found)


def _groups(before: Shape, after: Shape) -> list[tuple[list[int], list[int]]]:
    """The shortest runs of axes of both shapes with as many elements."""
    groups: list[tuple[list[int], list[int]]] = []
    source = target = 0
    while source < len(before) or target < len(after):
        sources, targets = [], []
        left = right = 1
        while True:
            if left <= right and source < len(before):
                left *= before[source]
                sources.append(source)
                source += 1
            else:
                right *= after[target]
                targets.append(target)
                target += 1
            is_complete = (sources and targets) or source == len(before)
            if left == right and is_complete:
                break
        groups.append((sources, targets))
    return groups


def _left_alone(node: Node, operands: Sequence[Spec], sizes: Sizes) -> Spec:
    """Dimensions are cut as they were, but for those that the node changes."""
    changed = CHANGED[node.op](node)
    names = tuple(
        None if axis in changed else name for axis, name in enumerate(operands[-1].names)
    )
    adds_nothing = node.op is not Op.PAD or node.arg.value == 0
    keeps_sums = node.op in Group.MOVEMENT and adds_nothing
    return Spec(names, operands[0].partial if keeps_sums else frozenset())


def _gathered(node: Node, operands: Sequence[Spec], sizes: Sizes) -> Spec:
    """Each index is looked up where it is, in whole rows."""
    data, index = operands
    names = list(index.names)
    for axis, name in enumerate(data.names):
        if axis != node.arg and names[axis] is None and name not in names:
            names[axis] = name
    return Spec(tuple(names))


def _axes_of_shrink(node: Node) -> set[int]:
    sizes = node.src[0].shape
    return {axis for axis, size in enumerate(sizes) if node.arg[axis] != range(size)}


def _axes_of_pad(node: Node) -> set[int]:
    before, after, _ = node.arg
    return {axis for axis in range(len(before)) if before[axis] or after[axis]}


# The dimensions along which elements of several places of an operand come together.
CHANGED: dict[Op, Callable[[Node], set[int]]] = {
    Op.SHRINK: _axes_of_shrink,
    Op.PAD: _axes_of_pad,
    Op.SHEAR: lambda node: {node.arg.axis, node.arg.by},
    Op.SCAN: lambda node: set(node.arg.axes),
    Op.ARGSORT: lambda node: {node.arg.axis},
}
_MOVED: dict[Op, Callable[[Node, Sequence[Spec], Sizes], Spec]] = {
    Op.EXPAND: _expanded,
    Op.PERMUTE: _permuted,
    Op.RESHAPE: _reshaped,
    Op.GATHER: _gathered,
    **dict.fromkeys(CHANGED, _left_alone),
}


def local_node(node: Node, operands: tuple[Node, ...], wanted: Spec, sizes: Sizes) -> Node:
    """`node` on parts of its operands, for its own part that `wanted` says."""
    shape = wanted.shape(node.shape, sizes)
    if node.op in (Op.RESHAPE, Op.EXPAND):
        (operand,) = operands
        return operand if operand.shape == shape else Node(node.op, operands, shape)
    if node.op is Op.SHRINK:
        changed = _axes_of_shrink(node)
        ranges = tuple(
            places if axis in changed else range(shape[axis])
            for axis, places in enumerate(node.arg)
        )
        return Node(Op.SHRINK, operands, ranges)
    return Node(node.op, operands, node.arg)
