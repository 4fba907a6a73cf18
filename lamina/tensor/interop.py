"""Exchange with other libraries: NumPy's `__array__` and DLPack, both without copies.

NumPy reads and writes the structures of DLPack (dlpack.h, version 1.0). It lacks bfloat16, which
therefore passes through NumPy as uint16 with the type code of the structure changed.
"""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

from lamina import dtypes
from lamina.dtypes import as_dtype
from lamina.errors import ArgumentError, DeviceError, DTypeError
from lamina.ir.node import Node
from lamina.ir.ops import BufferRef, Op
from lamina.runtime.buffer import HOST_DEVICES, Buffer
from lamina.tensor import realize as memory
from lamina.tensor.core import Tensor, check_device

__all__ = ["from_dlpack"]

_CPU = 1
_VERSION = (1, 0)
_UINT, _BFLOAT = 1, 4  # type codes
# Where DLManagedTensorVersioned and DLManagedTensor, the form before version 1, have the code.
_OFFSETS = {b"dltensor_versioned": 52, b"dltensor": 20}


def _type_code(capsule: Any) -> ctypes.c_uint8:
    """The code of the dtype in the structure that `capsule` holds."""
    api = ctypes.pythonapi
    api.PyCapsule_GetPointer.restype = ctypes.c_void_p
    for name, offset in _OFFSETS.items():
        if api.PyCapsule_IsValid(ctypes.py_object(capsule), name):
            pointer = api.PyCapsule_GetPointer(ctypes.py_object(capsule), name)
            return ctypes.c_uint8.from_address(pointer + offset)
    raise BufferError("from_dlpack: the capsule was consumed already")


def dlpack_device(x: Tensor) -> tuple[int, int]:
    """DLPack's numbers for the device of x."""
    if x.device not in HOST_DEVICES:
        raise DeviceError(f"dlpack: the memory of {x.device} cannot be shared; move it to cpu")
    return (_CPU, 0)


def to_dlpack(
    x: Tensor, *, stream: Any = None, max_version: tuple[int, int] | None = None,
    dl_device: tuple[int, int] | None = None, copy: bool | None = None,
) -> Any:  # fmt: skip
    """A DLPack capsule over the memory of x, which is computed first."""
    if stream not in (None, -1):
        raise ArgumentError(f"__dlpack__: stream {stream!r} on {x.device}, which has none")
    if dl_device not in (None, dlpack_device(x)):
        raise BufferError(f"__dlpack__: {x.device} cannot export to device {dl_device}")
    if x.dtype in dtypes.STORAGE_ONLY:
        raise DTypeError(f"dlpack: {x.dtype.name} cannot be exported; cast it first")
    memory.export(x)
    array = memory.download(x)
    if x.dtype is not dtypes.bfloat16:
        return array.__dlpack__(max_version=max_version, copy=copy)
    capsule = array.view("uint16").__dlpack__(max_version=max_version, copy=copy)
    _type_code(capsule).value = _BFLOAT
    return capsule


class _Producer(NamedTuple):
    """A capsule for NumPy to consume."""

    capsule: Any

    def __dlpack__(self, **options: Any) -> Any:
        return self.capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return (_CPU, 0)


def from_dlpack(x: Any, /, *, device: str | None = None, copy: bool | None = None) -> Tensor:
    """A tensor over the memory of a DLPack producer, such as a NumPy or PyTorch array.

    Contiguous memory is shared unless `copy` says otherwise: whoever writes to it changes this
    tensor too. Raises BufferError when sharing is asked for and impossible.
    """
    where = check_device(device)
    if isinstance(x, Tensor):
        moved = x if device is None else x.to(where)
        return moved.clone() if copy else moved
    kind, _ = x.__dlpack_device__()
    if kind != _CPU:
        raise DeviceError(f"from_dlpack: device kind {kind} cannot be read; move it to the CPU")
    array = _borrowed(x)
    dtype = as_dtype(array.dtype)
    if copy or not array.flags.c_contiguous:
        if copy is False:
            raise BufferError(f"from_dlpack: strides {array.strides} of {array.shape} need a copy")
        return Tensor(array, dtype, where)
    buffer = Buffer.wrap(array.ctypes.data, array.nbytes, where, owner=array)
    shared = Tensor.of(Node(Op.BUFFER, (), BufferRef(buffer, array.shape, dtype, where)), where)
    memory.export(shared)
    return shared


def _borrowed(x: Any) -> Any:
    """A NumPy array over the memory of a producer."""
    import numpy as np

    try:
        capsule = x.__dlpack__(max_version=_VERSION)
    except TypeError:  # a producer older than version 1
        capsule = x.__dlpack__()
    code = _type_code(capsule)
    is_bfloat = code.value == _BFLOAT
    if is_bfloat:
        code.value = _UINT
    try:
        array = np.from_dlpack(_Producer(capsule))
    except (BufferError, RuntimeError) as error:
        raise DTypeError(f"from_dlpack: {error}") from None
    return array.view(dtypes.bfloat16.numpy) if is_bfloat else array


def to_numpy(x: Tensor, dtype: Any = None, copy: bool | None = None) -> Any:
    """The values as a NumPy array: of their memory, which is then never overwritten, or a copy."""
    import numpy as np

    memory.export(x)
    array = memory.download(x)
    if dtype is not None and np.dtype(dtype) != array.dtype:
        if copy is False:
            raise ArgumentError(f"__array__: {x.dtype.name} as {dtype} needs a copy")
        return array.astype(dtype)
    if copy:
        return array.copy()
    array.flags.writeable = False
    return array
