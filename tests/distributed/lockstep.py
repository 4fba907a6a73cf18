"""All ranks of a run in one process: a graph is evaluated for each of them, node by node.

It needs neither MPI nor an engine, so that collectives and their derivatives can be compared with
NumPy in any number of ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from lamina import Tensor
from lamina.core import dtypes
from lamina.core.exchange import group_of, place_of
from lamina.graph.autodiff import gradient
from lamina.graph.open_calls import open_call
from lamina.ir.interpreter import EVALUATE, from_ranks
from lamina.ir.node import Node, toposort
from lamina.ir.ops import BufferRef, Group, Op
from lamina.ir.substitute import substitute

Function = Callable[[Tensor], Tensor]


def hole(number: int, like: np.ndarray) -> Node:
    dtype = dtypes.BY_NAME[like.dtype.name]
    return Node(Op.BUFFER, (), BufferRef(number, like.shape, dtype, "interp"))


def opened(x: Tensor) -> Node:
    """The graph of a tensor, with that of each call in it."""
    (node,) = substitute([x.node], {}, open_call)
    return node


def evaluate_ranks(
    sink: Node, leaves: Sequence[dict[Node, np.ndarray]]
) -> list[np.ndarray]:
    """The value of `sink` on each rank, from the values of its BUFFERs there."""
    ranks = range(len(leaves))
    values: dict[Node, list[np.ndarray]] = {}
    for node in toposort([sink]):
        if node in leaves[0]:
            values[node] = [held[node] for held in leaves]
        elif node.op in Group.COLLECTIVE:
            (operands,) = (values[operand] for operand in node.src)
            values[node] = [_collective(node, operands, rank) for rank in ranks]
        else:
            values[node] = [
                np.asarray(EVALUATE[node.op](node, *(values[one][rank] for one in node.src)))
                .astype(node.dtype.numpy, copy=False)
                for rank in ranks
            ]  # fmt: skip
    return values[sink]


def _collective(node: Node, operands: list[np.ndarray], rank: int) -> np.ndarray:
    ranks, stride = node.arg.ranks, node.arg.stride
    of_group = [operands[other] for other in group_of(rank, ranks, stride)]
    return from_ranks(node.op, node.arg, of_group, place_of(rank, ranks, stride))


def on_ranks(function: Function, operands: Sequence[np.ndarray]) -> list[np.ndarray]:
    """What `function`, of one tensor, gives on each rank, of which `operands` has one each."""
    x = hole(0, operands[0])
    result = opened(function(Tensor.of(x, "interp")))
    return evaluate_ranks(result, [{x: operand} for operand in operands])


def gradients_on_ranks(
    function: Function, operands: Sequence[np.ndarray], seeds: Sequence[np.ndarray]
) -> list[np.ndarray]:
    """On each rank the derivative by its operand of ``sum(seed * function(operand))``, added up
    over all ranks."""
    x, seed = hole(0, operands[0]), hole(1, seeds[0])
    result = opened(function(Tensor.of(x, "interp")))
    (adjoint,) = gradient(result, [x], seed)
    assert adjoint is not None
    pairs = zip(operands, seeds, strict=True)
    return evaluate_ranks(adjoint, [{x: operand, seed: weight} for operand, weight in pairs])
