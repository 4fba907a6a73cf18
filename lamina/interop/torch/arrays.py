"""PyTorch's memory as lamina reads and writes it: dtypes, and strides as an order of axes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from lamina.core import dtypes
from lamina.core.dtypes import DType
from lamina.core.shape import Shape
from lamina.ir import build
from lamina.ir.node import Node

DTYPES: dict[torch.dtype, DType] = {
    torch.bool: dtypes.bool_,
    torch.uint8: dtypes.uint8, torch.uint16: dtypes.uint16,
    torch.uint32: dtypes.uint32, torch.uint64: dtypes.uint64,
    torch.int8: dtypes.int8, torch.int16: dtypes.int16,
    torch.int32: dtypes.int32, torch.int64: dtypes.int64,
    torch.float8_e4m3fn: dtypes.float8_e4m3fn, torch.float8_e5m2: dtypes.float8_e5m2,
    torch.bfloat16: dtypes.bfloat16, torch.float16: dtypes.float16,
    torch.float32: dtypes.float32, torch.float64: dtypes.float64,
    torch.complex64: dtypes.complex64, torch.complex128: dtypes.complex128,
}  # fmt: skip


@dataclass(frozen=True)
class Layout:
    """Where the elements of a dense tensor are: memory is row-major over the axes `order`.

    A channels-last image of sizes (N, C, H, W) has the order (0, 2, 3, 1)."""

    sizes: Shape
    order: tuple[int, ...]

    @property
    def stored_sizes(self) -> Shape:
        """The sizes of the row-major array that is in memory."""
        return tuple([self.sizes[axis] for axis in self.order])

    def of_stored(self, stored: Node) -> Node:
        """The tensor, of what is in memory."""
        places = [self.order.index(axis) for axis in range(len(self.order))]
        return build.permute(stored, places)

    def to_stored(self, value: Node) -> Node:
        """What has to be in memory, of the tensor."""
        return build.permute(value, self.order)


def layout_of(sizes: Sequence[int], strides: Sequence[int]) -> Layout | None:
    """The layout of a tensor; None where elements share memory or have gaps between them, as in
    ``x.expand(3, 4)`` and ``x[:, ::2]``. Strides are in elements; of axes of size 1 they mean
    nothing."""
    order = sorted(range(len(sizes)), key=lambda axis: (-strides[axis], axis))
    if 0 not in sizes:
        expected = 1
        for axis in reversed(order):
            if sizes[axis] != 1 and strides[axis] != expected:
                return None
            expected *= sizes[axis]
    return Layout(tuple(sizes), tuple(order))
