"""Running graphs over NumPy arrays on the compiled device and on the reference."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lamina.core.dtypes import BY_NAME
from lamina.ir.node import Node
from lamina.ir.ops import BufferRef, Op
from lamina.runtime.buffer import Buffer
from tests.programs import execute_on_buffers


def leaf(array: np.ndarray) -> Node:
    """A BUFFER node over a copy of `array`."""
    storage = Buffer(array.nbytes, "cpu")
    np.frombuffer(storage.view(), np.uint8)[:] = np.frombuffer(array.tobytes(), np.uint8)
    ref = BufferRef(storage, array.shape, BY_NAME[array.dtype.name], "cpu")
    return Node(Op.BUFFER, (), ref)


def run(sinks: Sequence[Node], device: str = "cpu") -> list[np.ndarray]:
    """The values of `sinks`, as NumPy arrays."""
    return [
        np.frombuffer(bytes(buffer.view()), sink.dtype.numpy).reshape(sink.shape)
        for buffer, sink in zip(execute_on_buffers(sinks, device), sinks, strict=True)
    ]
