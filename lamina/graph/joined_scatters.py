"""Sums with scatters into zeros as scatters into the other term.

A gradient adds up what each reader of an array gives: those of two lookups are two arrays of zeros
with a few sums each, and their sum. One that is scattered into the other needs no zeros and no sum:

    scatter(zeros, i, u) + scatter(zeros, j, v)   =   scatter(scatter(zeros, i, u), j, v)
"""

from lamina.graph.rewrite import on
from lamina.ir.monoids import ADD
from lamina.ir.node import Node, constant_of
from lamina.ir.ops import Op


@on(Op.ADD)
def joined_scatters(node: Node) -> Node | None:
    """``x + scatter(zeros, i, u)`` as ``scatter(x, i, u)``: for CPUs, as on GPUs a scatter may
    become a sum, which shares a kernel with the addition (`lamina/graph/scatter_sums.py`)."""
    for other, scatter in (node.src, node.src[::-1]):
        is_sum = scatter.op is Op.SCATTER and scatter.arg.monoid is ADD
        if is_sum and constant_of(scatter.src[0]) == 0:
            return Node(Op.SCATTER, (other, *scatter.src[1:]), scatter.arg)
    return None
