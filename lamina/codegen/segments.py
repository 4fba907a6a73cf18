"""How the pieces of a split axis run when the factors do not divide its size.

A chain of pieces covers `extent` iterations. Full blocks get a nest of their own with constant
inner sizes; what is left over gets another, so that vectors and unrolled tiles stay exact.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import NamedTuple

from lamina.ir.node import Node
from lamina.kernel.schedule import Nest

Extent = int | str  # a number, or C text for one known when the kernel runs


class Run(NamedTuple):
    """How one axis runs: "loop" or "unroll" over `extent`, "fixed" at `extent`, "vector", or
    "given" by the chunk number, as the text `extent`."""

    how: str
    extent: Extent = 0


Segment = dict[Node, Run]


def segments(nest: Nest, pieces: Sequence[Node], extent: Extent) -> list[Segment]:
    """The nests that together cover the chain `pieces`, outermost piece first."""
    axis, rest = pieces[0], pieces[1:]
    bound = nest.bound(axis)
    if not rest:
        if bound == "vector" and extent == axis.arg.size:
            return [{axis: Run("vector")}]
        if bound == "unroll" and isinstance(extent, int):
            return [{axis: Run("unroll", extent)}]
        return [{axis: Run("loop", extent)}]
    block = 1
    for piece in rest:
        block *= piece.arg.size
    assert isinstance(extent, int)
    count, tail = divmod(extent, block)
    result = []
    how = "unroll" if bound == "unroll" else "loop"
    if count:
        result += [{axis: Run(how, count)} | one for one in segments(nest, rest, block)]
    if tail:
        result += [{axis: Run("fixed", count)} | one for one in segments(nest, rest, tail)]
    return result


def combinations(nest: Nest, axes: Sequence[Node]) -> Iterator[Segment]:
    """Every combination of the segments of the chains that `axes` consist of."""
    heads = [axis for axis in axes if nest.is_head(axis)]
    choices = [segments(nest, *nest.chain(head)) for head in heads]
    for chosen in product(*choices):
        merged: Segment = {}
        for one in chosen:
            merged |= one
        yield merged
