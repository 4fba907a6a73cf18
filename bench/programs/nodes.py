"""Microseconds of building a graph node, new or known. Argument: lamina or tinygrad."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from bench.programs.protocol import emit, serve

Step = Callable[[], Any]
COUNT = 2000  # constructions a step


def steps(make: Callable[[Any, Any], Any], left: Any, right: Any) -> dict[str, Step]:
    """`hit` asks for one node again and again; `miss` builds a chain nobody has seen."""
    known = make(left, right)
    kept: list[Any] = []

    def hit() -> None:
        for _ in range(COUNT):
            make(left, right)

    def miss() -> None:
        node = kept[-1] if kept else known
        for _ in range(COUNT):
            node = make(node, right)
            kept.append(node)

    return {"hit": hit, "miss": miss}


def lamina_steps() -> dict[str, Step]:
    """An ADD of two stored arrays."""
    from lamina.core.dtypes import float32
    from lamina.ir.node import Node
    from lamina.ir.ops import BufferRef, Op

    left, right = (Node(Op.BUFFER, (), BufferRef(i, (3,), float32, "cpu")) for i in range(2))
    add = Op.ADD
    return steps(lambda a, b: Node(add, (a, b)), left, right)


def tinygrad_steps() -> dict[str, Step]:
    """The same with UOp."""
    from tinygrad import Tensor
    from tinygrad.uop.ops import Ops, UOp

    left, right = Tensor.empty(3).uop, Tensor.empty(3).uop
    add = Ops.ADD
    return steps(lambda a, b: UOp(add, src=(a, b)), left, right)


emit(count=COUNT)
serve(lamina_steps() if sys.argv[1] == "lamina" else tinygrad_steps())
