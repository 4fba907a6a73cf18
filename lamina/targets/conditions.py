"""Conditions of a GPU's kernel that are the same for a whole run of neighbours.

A thread that has 4 elements of a concatenation tests for each whether it is one of the first 128:
``4*i + j < 128``, which is ``i < 32`` for all j < 4. Said so it is one condition, and all that is
read under it is read by one access.

That takes every axis to be within its bounds. A CPU's last vector may begin before those, so that
it overlaps the one before.
"""

from dataclasses import replace
from itertools import chain

from lamina.core.dtypes import int64
from lamina.graph import index as ix
from lamina.ir.kernel import roots_of
from lamina.ir.node import Node, toposort
from lamina.ir.ops import Op
from lamina.loops.nest import Nest


def without_remainders(nest: Nest) -> Nest:
    """`nest` with comparisons of an index and a number that lack the terms which never decide them.
    Tiles of products, which ask for each element whether it is inside, stay as they are."""
    if nest.atom:
        return nest
    stores = list(chain(nest.kernel.stores, nest.fills))
    done: dict[Node, Node] = {}
    for node in toposort(root for store in stores for root in roots_of(store)):
        rebuilt = Node(node.op, tuple(done[operand] for operand in node.src), node.arg)
        if node.op is Op.LT and node.src[0].dtype is int64:
            rebuilt = ix.without_remainders(*rebuilt.src)
        done[node] = rebuilt
    return replace(
        nest,
        kernel=replace(
            nest.kernel, stores=tuple(store.rebuilt(done) for store in nest.kernel.stores)
        ),
        fills=tuple(fill.rebuilt(done) for fill in nest.fills),
    )
