"""Tensors over the bytes of a mapped file."""

from __future__ import annotations

import os
from typing import Any

from lamina.core.dtypes import DType
from lamina.core.shape import Shape, prod
from lamina.frontend import realize as memory
from lamina.frontend.tensor import Tensor
from lamina.runtime.buffer import HOST_DEVICES, Buffer


def mapped_bytes(path: str | os.PathLike[str]) -> Any:
    """A file's bytes as a NumPy array of uint8: private, copy-on-write, read page by page when they
    are used. Empty for an empty file, which cannot be mapped."""
    import numpy as np

    if os.path.getsize(path) == 0:
        return np.empty(0, np.uint8)
    return np.memmap(path, np.uint8, "c")


def mapped_tensor(content: Any, start: int, shape: Shape, dtype: DType, device: str) -> Tensor:
    """The elements that begin at byte `start` of the mapped `content`, in row-major order.

    On host devices a view of the file, unless the elements are not aligned there; elsewhere a copy.
    """
    stop = start + prod(shape) * dtype.itemsize
    values: Any = content[start:stop].view(dtype.numpy).reshape(shape)
    return tensor_over(values, dtype, device)


def tensor_over(values: Any, dtype: DType, device: str) -> Tensor:
    """A tensor over the memory of `values`, a contiguous NumPy array of `dtype` that nobody else
    writes to. A copy where the device has other memory, or where elements are not aligned."""
    pointer = int(values.ctypes.data)
    if device not in HOST_DEVICES or pointer % dtype.itemsize or not values.size:
        return Tensor(values, dtype, device)
    buffer = Buffer.wrap(pointer, values.nbytes, device, owner=values)
    return Tensor.of(memory.buffer_node(buffer, values.shape, dtype), device)
