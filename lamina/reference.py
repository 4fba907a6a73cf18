"""The reference device: the interpreter of graphs, over buffers as compiled programs have them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lamina.errors import OutOfMemoryError
from lamina.explain.collectives import rows_with_collectives
from lamina.ir.interpreter import evaluate
from lamina.ir.node import Node, toposort
from lamina.ir.ops import Op
from lamina.ir.verify import verify
from lamina.runtime.buffer import Buffer
from lamina.runtime.profile import counter


def interpret(sinks: Sequence[Node], inputs: Sequence[Buffer], device: str) -> list[Buffer]:
    """The interpreter in place of the compiler: as `execution.execute`, for every graph.

    Raises VerifyError for a broken graph, and OutOfMemoryError if the values of all nodes together
    do not fit in memory."""
    verify(sinks)
    nodes = toposort(sinks)
    leaves = {
        node: np.frombuffer(inputs[node.arg.storage].view(), node.dtype.numpy).reshape(node.shape)
        for node in nodes
        if node.op is Op.BUFFER
    }
    rows = rows_with_collectives(nodes)
    try:
        # Copies: an ASSIGN changes leaves.
        results = [value.tobytes() for value in evaluate(sinks, leaves, rows)]
    except MemoryError as error:
        raise OutOfMemoryError(f"{device}: the interpreter stores each value: {error}") from error
    buffers = []
    for sink, result in zip(sinks, results, strict=True):
        is_assigned = sink.op is Op.ASSIGN
        buffer = inputs[sink.src[0].arg.storage] if is_assigned else Buffer(len(result), device)
        buffers.append(buffer)
    counter.kernels += len(results)  # from here on memory is written
    for buffer, result in zip(buffers, results, strict=True):  # once all have been computed
        buffer.view()[:] = result
    return buffers
