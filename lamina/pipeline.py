"""The compiler's table of contents: from a graph to results in device buffers."""

from __future__ import annotations

from collections.abc import Sequence

from lamina.ir.interpreter import evaluate
from lamina.ir.node import Node, toposort
from lamina.ir.ops import Op
from lamina.options import Options, current
from lamina.runtime.buffer import Buffer
from lamina.shape import prod


def execute(
    sinks: Sequence[Node], device: str, options: Options | None = None
) -> list[Buffer]:
    """Run `sinks` on `device`; one buffer a sink, row-major.

    BUFFER leaves hold a runtime Buffer as their storage. An ASSIGN sink writes into its target
    and returns the target's own buffer; every other sink gets a new one.
    """
    options = options or current()
    return _interpret(sinks, device)


def _interpret(sinks: Sequence[Node], device: str) -> list[Buffer]:
    """The reference device: the interpreter in place of the compiler."""
    import numpy as np

    leaves = {
        node: np.frombuffer(node.arg.storage.view(), node.dtype.numpy).reshape(node.shape)
        for node in toposort(sinks)
        if node.op is Op.BUFFER
    }
    results = [np.array(value) for value in evaluate(sinks, leaves)]
    buffers = []
    for sink, value in zip(sinks, results, strict=True):
        if sink.op is Op.ASSIGN:
            buffer = sink.src[0].arg.storage
        else:
            buffer = Buffer(prod(sink.shape) * sink.dtype.itemsize, device)
        target = np.frombuffer(buffer.view(), sink.dtype.numpy)
        target[:] = value.reshape(-1)
        buffers.append(buffer)
    return buffers
