"""The reference of collectives among processes: the operands of all ranks, and NumPy."""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from lamina.core import dtypes
from lamina.core.exchange import place_of
from lamina.ir.interpreter import EVALUATE, Array, from_ranks
from lamina.ir.kernel import exchange_of
from lamina.ir.node import Node
from lamina.ir.ops import Group, Op
from lamina.runtime.collectives import engine_for, parts_of


def collective_value(op: Op, arg: Any, operand: Array) -> Array:
    """What the collective `op` gives this rank. The engine gathers the operands of all ranks."""
    exchange = exchange_of(op, arg, dtypes.BY_NAME[operand.dtype.name], operand.shape)
    engine = engine_for(exchange)
    operands = [
        np.frombuffer(content, operand.dtype).reshape(operand.shape)
        for content in engine.gather(exchange, operand.tobytes())
    ]
    place = place_of(engine.rank, exchange.ranks, exchange.stride)
    return from_ranks(op, arg, operands, place)


def rows_with_collectives(nodes: Iterable[Node]) -> dict[Op, Callable[..., Array]]:
    """The rows of the interpreter, for a graph of `nodes`, which may have collectives. Raises
    ProgramsDifferError unless all processes are about to evaluate the same ones."""
    exchanges = [
        exchange_of(node.op, node.arg, node.src[0].dtype, node.src[0].shape)
        for node in nodes
        if node.op in Group.COLLECTIVE
    ]
    if not exchanges:
        return EVALUATE
    engine_for(exchanges[0]).compare(parts_of(exchanges))

    def row(node: Node, operand: Array) -> Array:
        return collective_value(node.op, node.arg, operand)

    return EVALUATE | dict.fromkeys(Group.COLLECTIVE, row)
