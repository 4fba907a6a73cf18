"""Factors that are the same in all steps of inner loops multiply the sums of these, once. With the
scale and the minimum of each block b of a quantised weight

    sum_b,j x[b, j] * (d[b] * n[b, j] + m[b])
    =  sum_b (d[b] * sum_j x[b, j] * n[b, j]  +  m[b] * sum_j x[b, j])
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass

from lamina.ir.kernel import bound_axes, free_axes, points
from lamina.ir.node import Node, const
from lamina.ir.ops import Op
from lamina.loops.nest import Axes


@dataclass(frozen=True)
class Term:
    """A part of what is added up: the product of `factor`, which is the same in all steps of inner
    loops, and of `varying`, which is not. None stands for 1."""

    factor: Node | None
    varying: Node | None

    def __mul__(self, other: Term) -> Term:
        return Term(_product(self.factor, other.factor), _product(self.varying, other.varying))


def terms_of(node: Node, inner: Set[Node]) -> list[Term]:
    """The terms whose sum is `node`, a float. Of a sum with a number, such as ``n - 8``, there is
    one: to add that takes no loads."""
    if inner.isdisjoint(free_axes(node)):
        return [Term(node, None)]
    if node.op is Op.MUL:
        first, second = (terms_of(operand, inner) for operand in node.src)
        return [a * b for a in first for b in second]
    if node.op is Op.ADD and not any(operand.op is Op.CONST for operand in node.src):
        return [term for operand in node.src for term in terms_of(operand, inner)]
    return [Term(None, node)]


def factored(reduction: Node, inner: Axes) -> Node:
    """The sum `reduction` as one over its outer axes, of its terms, of which each is a factor and a
    sum over the last axes, `inner`."""
    axes = bound_axes(reduction)
    outer = axes[: len(axes) - len(inner)]
    sums = [_summed(term, reduction, inner) for term in terms_of(reduction.src[0], {*inner})]
    body = sums[0]
    for each in sums[1:]:
        body = Node(Op.ADD, (body, each))
    return Node(Op.LOOP_REDUCE, (body, *outer), reduction.arg)


def _summed(term: Term, reduction: Node, inner: Axes) -> Node:
    if term.varying is None:
        total = const(float(points(inner)), reduction.dtype)
    else:
        total = Node(Op.LOOP_REDUCE, (term.varying, *inner), reduction.arg)
    product = _product(term.factor, total)
    assert product is not None
    return product


def _product(first: Node | None, second: Node | None) -> Node | None:
    if first is None or second is None:
        return first or second
    return Node(Op.MUL, (first, second))
