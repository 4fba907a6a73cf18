"""Sums over ranks of scattered rows: the rows are sent in place of the whole array.

The gradient of a table of which each rank has read few rows is zero nearly everywhere:

    all_reduce(scatter(zeros, index, rows))
    = scatter(zeros, all_gather(index), all_gather(rows))

A table that is a layer's weight as well has a second term, of which the sum is sent while the
backward pass computes the rows:

    all_reduce(x + scatter(zeros, index, rows))
    = scatter(all_reduce(x), all_gather(index), all_gather(rows))

All ranks scatter the same rows in the same order, so that they have the same result. What was cast
from fewer bits is sent in these, where to gather it moves fewer bytes than to sum it up.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import reduce

from lamina.core.dtypes import DType
from lamina.core.shape import Shape, prod
from lamina.graph.rewrite import on
from lamina.ir import build
from lamina.ir.monoids import ADD
from lamina.ir.node import Node, constant_of, full, peel, toposort
from lamina.ir.ops import Combine, Group, Op, Ranks, Scatter

# Where only one term is rows, the sum of the others is sent too, so that more bytes are sent in
# all. That pays if the rows have at most this share of the bytes of the sum, as only they are
# waited for after the last kernel. Chosen; no measurement tells which share is best.
SHARE_OF_ROWS = 0.5


def bytes_of_gathering(dtype: DType, ranks: int) -> float:
    """That each rank sends of an element, for all to have those of all."""
    return dtype.itemsize * (ranks - 1)


def bytes_of_summing(dtype: DType, ranks: int) -> float:
    """That each rank sends of an element, for all to have the sum."""
    return 2 * dtype.itemsize * (ranks - 1) / ranks


@dataclass(frozen=True)
class _Scattered:
    """A sum of terms, one of which is rows scattered along `axis`. rest: the sum of the others;
    None if there are none."""

    index: Node
    rows: Node
    axis: int
    rest: Node | None


@on(Op.ALL_REDUCE)
def sums_as_rows(node: Node) -> Node | None:
    """The same by sending rows, if that is less, or waited for less; None for other nodes."""
    (operand,) = node.src
    combine: Combine = node.arg
    scattered = None if combine.monoid is not ADD or node.dtype.is_small else _scattered(operand)
    if scattered is None:
        return None
    axis, rest = scattered.axis, scattered.rest
    index, rows = _unrepeated(scattered.index, axis), _before_widening(scattered.rows)
    sent_as_rows = sum(
        prod(sent.shape) * bytes_of_gathering(sent.dtype, combine.ranks) for sent in (index, rows)
    )
    sent_as_sum = prod(node.shape) * bytes_of_summing(node.dtype, combine.ranks)
    if rest is None:
        pays = sent_as_rows < sent_as_sum
    else:
        is_short = sent_as_rows <= SHARE_OF_ROWS * sent_as_sum
        pays = is_short and _is_earlier(rest, scattered.rows)
    if not pays:
        return None
    base = full(node.shape, 0, node.dtype) if rest is None else _sum_of_ranks(rest, combine)
    all_rows = build.cast(_rows_of_ranks(rows, combine, axis), node.dtype)
    all_indices = build.expand(_rows_of_ranks(index, combine, axis), all_rows.shape)
    return Node(Op.SCATTER, (base, all_indices, all_rows), Scatter(axis, ADD))


def _scattered(node: Node) -> _Scattered | None:
    """The node as such a sum; None if it has no scattered term, or several."""
    if node.op is Op.MUL:
        return _scaled(*node.src) or _scaled(*reversed(node.src))
    terms = list(_terms(node))
    scattered = [term for term in terms if term.op is Op.SCATTER and term.arg.monoid is ADD]
    if len(scattered) != 1:
        return None
    (term,) = scattered
    base, index, rows = term.src
    others = [other for other in (*terms, base) if other is not term and constant_of(other) != 0]
    rest = reduce(Node.__add__, others) if others else None
    return _Scattered(index, rows, term.arg.axis, rest)


def _terms(node: Node) -> Iterator[Node]:
    """What is added up, by any number of additions."""
    waiting = [node]
    while waiting:
        term = waiting.pop()
        if term.op is Op.ADD:
            waiting += reversed(term.src)
        else:
            yield term


def _scaled(node: Node, factor: Node) -> _Scattered | None:
    """``node * factor`` as such a sum, if all elements of the factor are one."""
    scalar = peel(factor, Group.MOVEMENT)
    if prod(scalar.shape) != 1:
        return None
    scattered = _scattered(node)
    if scattered is None:
        return None

    def scaled(x: Node) -> Node:
        return x * build.expand(build.reshape(scalar, (1,) * len(x.shape)), x.shape)

    rest = None if scattered.rest is None else scaled(scattered.rest)
    return replace(scattered, rows=scaled(scattered.rows), rest=rest)


def _unrepeated(index: Node, axis: int) -> Node:
    """An index from which `index` is expanded along other axes than `axis`."""
    if index.op is not Op.EXPAND:
        return index
    (source,) = index.src
    added = len(index.shape) - len(source.shape)  # axes that the EXPAND adds, in front
    source = build.reshape(source, (1,) * added + source.shape)
    has_all_rows = source.shape[axis] == index.shape[axis]
    return source if has_all_rows else index


def _before_widening(node: Node) -> Node:
    """The numbers in fewer bits, if they were cast from a narrower float, or else `node`."""
    if node.op is Op.CAST:
        (source,) = node.src
        is_wider = source.dtype.kind == "float" and source.dtype.itemsize < node.dtype.itemsize
        return source if is_wider else node
    if node.op in (Op.RESHAPE, Op.PERMUTE):
        (source,) = node.src
        return Node(node.op, (_before_widening(source),), node.arg)
    return node


def _is_earlier(rest: Node, rows: Node) -> bool:
    """Whether the rows need what `rest` is computed from, but for one reduction at most, so that
    the sum of `rest` is sent while the rows are computed."""
    needed = {*toposort([rows])}
    alone = toposort([rest], within=lambda node: node not in needed)
    quick = Group.ELEMENTWISE | Group.MOVEMENT | Group.LEAF
    slow = [node for node in alone if node.op not in quick]
    return len(slow) <= 1


def _sum_of_ranks(node: Node, combine: Combine) -> Node:
    """`node` of all ranks, added up."""
    narrow = _before_widening(node)
    gathering = bytes_of_gathering(narrow.dtype, combine.ranks)
    if narrow is node or gathering >= bytes_of_summing(node.dtype, combine.ranks):
        return Node(Op.ALL_REDUCE, (node,), combine)
    gathered = Node(Op.ALL_GATHER, (narrow,), Ranks(combine.ranks, combine.stride))
    return build.reduce(ADD, (0,), build.cast(gathered, node.dtype))


def _rows_of_ranks(node: Node, combine: Combine, axis: int) -> Node:
    """`node` of all ranks, one after the other along `axis`."""
    gathered = Node(Op.ALL_GATHER, (node,), Ranks(combine.ranks, combine.stride))
    rank = len(node.shape)
    order = (*range(1, axis + 1), 0, *range(axis + 1, rank + 1))  # (1, 0, 2) for axis 1 of 2
    together: Shape = (
        *node.shape[:axis], combine.ranks * node.shape[axis], *node.shape[axis + 1 :]
    )  # fmt: skip
    return build.reshape(build.permute(gathered, order), together)
