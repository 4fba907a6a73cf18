"""Sums of products whose left factors are computed from other sums of products.

All that is summed up are products with one exponential, of values less their maximum as a rule:
where that is not known before, the sums so far are scaled when it rises.
"""

from collections.abc import Sequence
from dataclasses import replace
from math import inf
from typing import NamedTuple

from lamina.core.dtypes import bfloat16, float16, float32, int64
from lamina.graph import index as ix
from lamina.ir.kernel import Kernel, bound_axes, free_axes
from lamina.ir.monoids import ADD, MAX
from lamina.ir.node import Node, const, toposort
from lamina.ir.ops import Op
from lamina.loops.nest import Axes, operands_of

MIN_SIDE = 16  # rows, columns and steps that are worth a tile
MAX_ROW_ELEMENTS = 128  # row of a tile
PASSING = 4  # products at most, whose tiles pass by: a block has barriers for so many
SUMS = range(97, 161)  # of a thread, beside which tiles of 128 fit; beside fewer, twice the rows
Array = tuple[Node, Axes, Axes]  # a value, the axes along which tiles are apart, and within them


class Weight(NamedTuple):
    """The factor ``exp(value - less)`` of everything that is summed up. `less` is computed from the
    maximum of the values, `top`, if there is one."""

    exp: Node
    value: Node
    less: Node
    top: Node | None


class Nested(NamedTuple):
    """Columns of the results; what is folded over, in tiles of `size` for `most` rows; and arrays:
    both factors of the inner products, that of the rows first, and the right ones of the outer."""

    column: Axes
    step: Axes
    size: int
    most: int
    arrays: tuple[Array, ...]
    weight: Weight

    def guarded(self, kernel: Kernel) -> Kernel:
        """`kernel` where beyond the end of what is folded over is -inf."""
        (step,), value, dead = self.step, self.weight.value, const(-inf, float32)
        end = Node(Op.LT, (step, const(step.arg.size, int64)))
        some = {value: Node(Op.WHERE, (end, value, dead))} if step.arg.size % self.size else {}
        stores = (replace(one, value=ix.replaced(one.value, some)) for one in kernel.stores)
        return replace(kernel, stores=tuple(stores))


def nested(kernel: Kernel) -> Nested | None:
    """What is known of a kernel of nested reductions; None if it is none, or no tiles hold it."""
    reductions = [one for one in kernel.nodes if bound_axes(one)]
    inner = [one for one in reductions if {*reductions}.isdisjoint(toposort(operands_of(one)))]
    over = [one for one in reductions if one not in inner]
    near = frozenset[Node]().union(*map(free_axes, inner))
    beyond = frozenset[Node]().union(*map(free_axes, over)) - near
    axes = {axis for one in over for axis in bound_axes(one)}
    weight = weight_of(over)
    single = all(len(one.axes) == kernel.rows and one.monoid is None for one in kernel.stores)
    single &= all(one.dtype is float32 for one in reductions)
    if not (single and len(beyond) == len(axes) == 1 and axes < near and weight):
        return None
    (step,), (column,), tiles = axes, beyond, list[tuple[Node, Node]]()
    outer = [one for one in over if column in free_axes(one)]
    rows = frozenset(kernel.row_axes) - {column}
    for one in (*inner, *outer):
        passing, (last, *others) = (column, (column,)) if one in outer else (step, bound_axes(one))
        pair = sorted(factors_of(one.src[0]), key=lambda part: passing in free_axes(part))
        if len(pair) < 2 or others or not MIN_SIDE <= last.arg.size <= MAX_ROW_ELEMENTS:
            return None
        left, right = pair
        rows &= free_axes(left) - free_axes(right)
        cast = one in inner or (left.op is Op.CAST and left.src[0].dtype is float32)
        if not (cast and step in free_axes(right) and passing not in free_axes(left)):
            return None
        tiles += [(left, last), (right, last)] if one in inner else [(right, last)]
    (kind, *more), every = {one.dtype for one, _ in tiles}, toposort(one for one, _ in tiles)
    if not rows or more or kind is float32 or len(inner + outer) > PASSING:
        return None
    if {*reductions} & {*every}:
        return None
    row = max(rows, key=lambda axis: (axis.arg.size, axis.arg.number))
    size = column.arg.size  # of what may be one array with another one
    shared = {column: next(last for _, last in tiles if last.arg.size == size)}
    sums = 64 * len(inner) + -(-size // 64) * 32 * len(outer)
    sizes = 128 if sums in SUMS else 64, 256 if sums < SUMS.start else 128
    return Nested((column,), (step,), *sizes, tuple(
        (ix.replaced(value, shared), (row if row in free_axes(value) else step,),
         (shared.get(last, last),)) for value, last in tiles
    ), weight)  # fmt: skip


def factors_of(product: Node) -> Axes:
    """The factors of a product, of one dtype that tiles have, without casts of 16 bits; nothing if
    it is none of these."""
    parts = product.src if product.op is Op.MUL else ()
    casts = all(one.op is Op.CAST and one.dtype is float32 for one in parts)
    if casts and all(one.src[0].dtype.bits == 16 for one in parts):
        parts = tuple(one.src[0] for one in parts)
    return parts if {one.dtype for one in parts} in ({bfloat16}, {float16}, {float32}) else ()


def weight_of(reductions: Sequence[Node]) -> Weight | None:
    """That of reductions over one axis, none of which needs another one but for the maximum."""
    tops = [one for one in reductions if one.arg.monoid is MAX]
    terms = [one.src[0] for one in reductions if one.arg.monoid is ADD]
    exp, *others = {exponential(term) for term in terms} or {None}
    parts = exp.src[0].src if exp and exp.src[0].op is Op.ADD else ()
    less = [one.src[0] for one in parts if one.op is Op.NEG]
    if not exp or others or len(less) != 1 or len(tops) > 1 or len(tops + terms) < len(reductions):
        return None
    (value,) = (one for one in parts if one.op is not Op.NEG)
    free = toposort([value, *(ix.replaced(term, {exp: const(0.0, exp.dtype)}) for term in terms)])
    alone = {*reductions}.isdisjoint(free) and {*reductions} & {*toposort(less + terms)} == {*tops}
    alone &= {one.src[0] for one in tops} <= {value}
    return Weight(exp, value, less[0], tops[0] if tops else None) if alone else None


def masks_of(value: Node) -> dict[Node, tuple[bool, Node]]:
    """The conditions on axes that make a value -inf; of each whether it does so where it holds, not
    where it does not, and an index that is positive there."""
    condition, *values = value.src if value.op is Op.WHERE else (value,)
    dead = [one.op is Op.CONST and one.arg.value == -inf for one in values]
    if sum(dead) != 1 or condition.op is not Op.LT or condition.src[0].dtype is not int64:
        return {}
    sides = [ix.add(*(one.src if one.op is Op.ADD else (one,))) for one in condition.src]
    low, high = sides if dead[0] else sides[::-1]
    index, rest = ix.add(high, ix.scale(low, -1, 1 - dead[0])), masks_of(values[dead[0]])
    known = all(one.op is Op.AXIS for one in ix.terms_of(index)[0])
    return {condition: (dead[0], index)} | rest if known else rest


def exponential(term: Node) -> Node | None:
    """The EXP that a term is a product with; None if there is none."""
    zeros = (one.op is Op.CONST and one.arg.value == 0 for one in term.src[1:])
    through = term.op in (Op.CAST, Op.MUL) or (term.op is Op.WHERE and any(zeros))
    inner = filter(None, map(exponential, term.src if through else ()))
    return term if term.op is Op.EXP else next(inner, None)


def scaled(term: Node) -> tuple[float, Node]:
    """A positive constant factor of a term, and the rest; what is -inf instead stays that."""
    if term.op is Op.MUL and term.src[1].op is Op.CONST and term.src[1].arg.value > 0:
        return term.src[1].arg.value, term.src[0]
    kept = [one for one in term.src[1:] if one.op is not Op.CONST or one.arg.value != -inf]
    if term.op is not Op.WHERE or len(kept) > 1:
        return 1.0, term
    by, rest = scaled(kept[0])
    return by, Node(Op.WHERE, tuple(rest if one is kept[0] else one for one in term.src))
