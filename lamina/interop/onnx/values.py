"""What rows do with values: lamina tensors, and NumPy arrays where a value is on the host."""

from __future__ import annotations

from typing import Any

import numpy as np

import lamina as lm
from lamina.core.dtypes import BY_NAME, DType
from lamina.frontend.tensor import Tensor

# Shape arithmetic has a number an axis, or a few; larger arrays are computed on the device.
FOLDED_SIZE = 256


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
    """The NumPy dtype of ONNX's element type; of those that NumPy lacks, that of ml_dtypes."""
    from onnx.helper import tensor_dtype_to_np_dtype

    dtype: np.dtype[Any] = np.dtype(tensor_dtype_to_np_dtype(number))
    return dtype


def lamina_dtype(dtype: Any) -> DType | None:
    """Lamina's dtype of a NumPy dtype; None for strings, 4 bits, and others that it lacks."""
    return BY_NAME.get(np.dtype(dtype).name)


def dtype_of(value: Any) -> np.dtype[Any]:
    """The NumPy dtype of a value."""
    dtype: np.dtype[Any] = value.dtype.numpy if isinstance(value, Tensor) else value.dtype
    return dtype


def space(*values: Any) -> Any:
    """The functions of the array API for `values`: NumPy's where all are on the host, otherwise
    lamina's. NumPy has strings and the dtypes that lamina lacks."""
    return lm if any(isinstance(value, Tensor) for value in values) else np


# Integers of constants are sizes, axes and such where there are few.
_HELD_ON_HOST = 1024


def held(array: np.ndarray[Any, Any]) -> Any:
    """A model's constant as calls use it: few integers stay on the host, where shape arithmetic
    needs them, as do dtypes that lamina lacks; anything else becomes a tensor once."""
    is_small = array.dtype.kind in "biu" and array.size <= _HELD_ON_HOST
    if is_small or lamina_dtype(array.dtype) is None:
        return array
    return tensor(array)
