"""What rows do with values: lamina tensors, and NumPy arrays where a value is on the host."""

from __future__ import annotations

import os
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

import lamina as lm
from lamina.core.dtypes import BY_NAME, DType
from lamina.frontend.tensor import Tensor, default_device
from lamina.interop.onnx.errors import OnnxError
from lamina.io.mapped import tensor_over

# Shape arithmetic has a number an axis, or a few; larger arrays are computed on the device.
FOLDED_SIZE = 256


def _memory() -> int:
    """The machine's memory in bytes; 2**37 where Python cannot ask for it."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return 2**37


# Bytes of a value of a model: sizes are in files, and files may say anything.
LARGEST_VALUE = _memory()

# Elements of a table that a row computes on the host, such as a transform's matrix: 8,192 x 8,192
# is 1 GiB of complex float64.
LARGEST_TABLE = 2**26


def check_table(*sizes: int) -> None:
    """Raises OnnxError for the sizes of a table that is too large for the host."""
    if prod(sizes) > LARGEST_TABLE:
        shown = " x ".join(map(str, sizes))
        raise OnnxError(f"a table of {shown} elements is beyond {LARGEST_TABLE:,} elements")


def tensor(value: Any) -> Tensor:
    """`value` as a tensor: NumPy arrays are those that the host knows."""
    return value if isinstance(value, Tensor) else lm.asarray(np.asarray(value))


def maybe_tensor(value: Any) -> Tensor | None:
    """As `tensor`; an absent optional input stays None."""
    return None if value is None else tensor(value)


def is_folded(*values: Any) -> bool:
    """Whether the host knows all of `values` and they are small: computing with them on the host
    keeps sizes and axes known while a graph is traced."""
    return all(isinstance(value, np.ndarray) and value.size <= FOLDED_SIZE for value in values)


def numpy_dtype(number: int) -> np.dtype[Any]:
    """The NumPy dtype of ONNX's element type; of those that NumPy lacks, that of ml_dtypes. Raises
    OnnxError for a number that is no element type."""
    from onnx.helper import tensor_dtype_to_np_dtype

    try:
        dtype: np.dtype[Any] = np.dtype(tensor_dtype_to_np_dtype(number))
    except (KeyError, TypeError) as error:
        raise OnnxError(f"{number} is no element type of ONNX") from error
    return dtype


def lamina_dtype(dtype: Any) -> DType | None:
    """Lamina's dtype of a NumPy dtype; None for strings, 4 bits, and others that it lacks."""
    return BY_NAME.get(np.dtype(dtype).name)


def dtype_of(value: Any) -> np.dtype[Any]:
    """The NumPy dtype of a value."""
    dtype: np.dtype[Any] = value.dtype.numpy if isinstance(value, Tensor) else value.dtype
    return dtype


def check_size(value: Any) -> None:
    """Raises OnnxError for a value that is larger than the machine's memory. Parts of sequences
    were values of their own before."""
    if not isinstance(value, (Tensor, np.ndarray)):
        return
    size = prod(value.shape) * dtype_of(value).itemsize
    if size > LARGEST_VALUE:
        raise OnnxError(
            f"a result of shape {tuple(value.shape)} has {size:,} bytes, more than the "
            f"{LARGEST_VALUE:,} that lamina gives a value of a model"
        )


def check_padded(sizes: Sequence[int], padded: Sequence[int]) -> None:
    """Raises OnnxError for images of `sizes` that padding makes larger than the machine's memory,
    if they had a byte for each pixel."""
    if prod(padded) > LARGEST_VALUE:
        raise OnnxError(f"images of {list(sizes)} become ones of {list(padded)} by padding")


def space(*values: Any) -> Any:
    """The functions of the array API for `values`: NumPy's where all are on the host, otherwise
    lamina's. NumPy has strings and the dtypes that lamina lacks."""
    return lm if any(isinstance(value, Tensor) for value in values) else np


# Integers of constants are sizes, axes and such where there are few.
_HELD_ON_HOST = 1024


def held(array: np.ndarray[Any, Any]) -> Any:
    """A model's constant as calls use it: few integers stay on the host, where shape arithmetic
    needs them, as do dtypes that lamina lacks; anything else becomes a tensor once. That of a
    mapped file stays there, and is read when it is used."""
    dtype = lamina_dtype(array.dtype)
    is_small = array.dtype.kind in "biu" and array.size <= _HELD_ON_HOST
    if is_small or dtype is None:
        return array
    if isinstance(array, np.memmap):
        return tensor_over(array, dtype, default_device())
    return tensor(array)
