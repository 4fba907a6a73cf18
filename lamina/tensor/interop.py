"""Exchange with other libraries: NumPy's `__array__` and DLPack, both without copies.

The structures are those of DLPack 1.0 (dlpack.h); bfloat16 is included, which NumPy lacks.
"""

from __future__ import annotations

import ctypes
from typing import Any

from lamina import dtypes
from lamina.dtypes import DType
from lamina.errors import ArgumentError, DeviceError, DTypeError
from lamina.ir.node import Node
from lamina.ir.ops import BufferRef, Op
from lamina.runtime.buffer import HOST_DEVICES, Buffer
from lamina.shape import prod, strides_of
from lamina.tensor import realize as memory
from lamina.tensor.core import Tensor, check_device, default_device

__all__ = ["from_dlpack"]

_CPU = 1
_VERSION = (1, 0)
_READ_ONLY, _COPIED = 1, 2
# DLPack's type codes: 0 int, 1 unsigned, 2 float, 4 bfloat, 5 complex, 6 bool.
_CODES = {"int": 0, "uint": 1, "float": 2, "complex": 5, "bool": 6}
_BFLOAT = 4


class _Device(ctypes.Structure):
    _fields_ = (("kind", ctypes.c_int32), ("number", ctypes.c_int32))


class _DataType(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class _Array(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", _Device),
        ("rank", ctypes.c_int32),
        ("dtype", _DataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("offset", ctypes.c_uint64),
    )


_Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class _Managed(ctypes.Structure):
    """DLManagedTensor, the form before version 1."""

    _fields_ = (("array", _Array), ("context", ctypes.c_void_p), ("deleter", _Deleter))


class _Versioned(ctypes.Structure):
    """DLManagedTensorVersioned."""

    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", _Deleter),
        ("flags", ctypes.c_uint64),
        ("array", _Array),
    )


_FORMS: dict[bytes, type[ctypes.Structure]] = {
    b"dltensor_versioned": _Versioned,
    b"dltensor": _Managed,
}

_api = ctypes.pythonapi
_api.PyCapsule_New.restype = ctypes.py_object
_api.PyCapsule_New.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
_api.PyCapsule_GetPointer.restype = ctypes.c_void_p
_api.PyCapsule_GetPointer.argtypes = (ctypes.py_object, ctypes.c_char_p)
_api.PyCapsule_IsValid.restype = ctypes.c_int
_api.PyCapsule_IsValid.argtypes = (ctypes.py_object, ctypes.c_char_p)
_api.PyCapsule_SetName.restype = ctypes.c_int
_api.PyCapsule_SetName.argtypes = (ctypes.py_object, ctypes.c_void_p)

# What exported structures point to, by their address, until the consumer deletes them.
_lent: dict[int, tuple[Any, ...]] = {}


def _forget(address: int) -> None:
    _lent.pop(address, None)


_release = _Deleter(_forget)


# A capsule that is being destroyed is only named by its address, never referenced.
_is_valid_at = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_IsValid", _api)
)
_pointer_at = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", _api)
)


def _forget_unused(capsule: int) -> None:
    """A capsule that nobody consumed still owns its structure."""
    for name in _FORMS:
        if _is_valid_at(capsule, name):
            _forget(_pointer_at(capsule, name))


_drop_capsule = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(_forget_unused)


# Names that capsules refer to must live as long as they do.
_NAMES = {name: ctypes.create_string_buffer(name) for name in _FORMS}
_USED = {name: ctypes.create_string_buffer(b"used_" + name) for name in _FORMS}


def dlpack_device(x: Tensor) -> tuple[int, int]:
    """DLPack's numbers for the device of x."""
    if x.device not in HOST_DEVICES:
        raise DeviceError(f"dlpack: the memory of {x.device} cannot be shared; move it to cpu")
    return (_CPU, 0)


def _data_type(dtype: DType) -> _DataType:
    if dtype in dtypes.STORAGE_ONLY:
        raise DTypeError(f"dlpack: {dtype.name} cannot be exported; cast it first")
    code = _BFLOAT if dtype is dtypes.bfloat16 else _CODES[dtype.kind]
    return _DataType(code, dtype.bits, 1)


def to_dlpack(
    x: Tensor,
    *,
    stream: Any = None,
    max_version: tuple[int, int] | None = None,
    dl_device: tuple[int, int] | None = None,
    copy: bool | None = None,
) -> Any:
    """A DLPack capsule over the memory of x, which is computed first."""
    if stream not in (None, -1):
        raise ArgumentError(f"__dlpack__: stream {stream!r} on {x.device}, which has none")
    if dl_device not in (None, dlpack_device(x)):
        raise BufferError(f"__dlpack__: {x.device} cannot export to device {dl_device}")
    source = x.clone() if copy else x
    buffer = memory.export(source)
    versioned = max_version is not None and max_version[0] >= 1
    name = b"dltensor_versioned" if versioned else b"dltensor"
    managed = _FORMS[name]()
    shape = (ctypes.c_int64 * max(1, x.ndim))(*x.shape)
    strides = (ctypes.c_int64 * max(1, x.ndim))(*strides_of(x.shape))
    managed.array = _Array(buffer.pointer, _Device(*dlpack_device(x)), x.ndim,
                           _data_type(x.dtype), shape, strides, 0)  # fmt: skip
    managed.deleter = _release
    if versioned:
        managed.major, managed.minor = _VERSION
        managed.flags = _COPIED if copy else 0
    address = ctypes.addressof(managed)
    _lent[address] = (managed, buffer, shape, strides)
    return _api.PyCapsule_New(address, ctypes.addressof(_NAMES[name]),
                              ctypes.cast(_drop_capsule, ctypes.c_void_p))  # fmt: skip


class _Borrowed:
    """Memory of another library, given back when the last buffer over it is gone."""

    def __init__(self, managed: Any) -> None:
        self.managed = managed

    def __del__(self) -> None:
        if self.managed.deleter:
            self.managed.deleter(ctypes.addressof(self.managed))


def from_dlpack(x: Any, /, *, device: str | None = None, copy: bool | None = None) -> Tensor:
    """A tensor over the memory of a DLPack producer, such as a NumPy or PyTorch array.

    Contiguous memory is shared unless `copy` says otherwise: whoever writes to it changes this
    tensor too. Raises BufferError when sharing is asked for and impossible.
    """
    where = check_device(default_device() if device is None else device)
    if isinstance(x, Tensor):
        moved = x if device is None else x.to(where)
        return moved.clone() if copy else moved
    kind, _ = x.__dlpack_device__()
    if kind != _CPU:
        raise DeviceError(f"from_dlpack: device kind {kind} cannot be read; move it to the CPU")
    capsule = _capsule(x)
    managed, borrowed = _consume(capsule)
    array = managed.array
    shape = tuple(array.shape[i] for i in range(array.rank))
    dtype = _dtype(array.dtype)
    pointer = (array.data or 0) + array.offset
    strides = tuple(array.strides[i] for i in range(array.rank)) if array.strides else None
    if strides is None or _row_major(shape, strides):
        buffer = Buffer.wrap(pointer, prod(shape) * dtype.itemsize, where, borrowed)
        node = Node(Op.BUFFER, (), BufferRef(buffer, shape, dtype, where))
        shared = Tensor.of(node, where)
        memory.export(shared)
        if not copy:
            return shared
        return shared.clone().realize()
    if copy is False:
        raise BufferError(f"from_dlpack: strides {strides} of {shape} need a copy")
    return _gathered(pointer, shape, strides, dtype, where, borrowed)


def _capsule(x: Any) -> Any:
    try:
        return x.__dlpack__(max_version=_VERSION)
    except TypeError:  # a producer older than version 1
        return x.__dlpack__()


def _consume(capsule: Any) -> tuple[Any, _Borrowed]:
    for name, form in _FORMS.items():
        if _api.PyCapsule_IsValid(capsule, name):
            managed = form.from_address(_api.PyCapsule_GetPointer(capsule, name))
            _api.PyCapsule_SetName(capsule, ctypes.addressof(_USED[name]))
            return managed, _Borrowed(managed)
    raise BufferError("from_dlpack: the capsule was consumed already")


def _dtype(given: _DataType) -> DType:
    for dtype in dtypes.ALL:
        if dtype in dtypes.STORAGE_ONLY:
            continue
        code = _BFLOAT if dtype is dtypes.bfloat16 else _CODES[dtype.kind]
        if (given.code, given.bits, given.lanes) == (code, dtype.bits, 1):
            return dtype
    raise DTypeError(f"from_dlpack: type code {given.code} with {given.bits} bits is unknown")


def _row_major(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    wanted = strides_of(shape)
    return 0 in shape or all(
        size == 1 or have == want
        for size, have, want in zip(shape, strides, wanted, strict=True)
    )


def _gathered(
    pointer: int,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    dtype: DType,
    device: str,
    owner: _Borrowed,
) -> Tensor:
    """A copy of strided foreign memory, which `owner` keeps alive meanwhile."""
    import numpy as np

    size = dtype.itemsize
    low = sum((n - 1) * step for n, step in zip(shape, strides, strict=True) if step < 0)
    high = sum((n - 1) * step for n, step in zip(shape, strides, strict=True) if step > 0)
    block: Any = (ctypes.c_char * ((high - low + 1) * size)).from_address(pointer + low * size)
    flat = np.frombuffer(block, dtype.numpy)
    steps = [step * size for step in strides]
    view = np.lib.stride_tricks.as_strided(flat[-low:], shape, steps)
    node = memory.upload(view, dtype, device)
    del owner
    return Tensor.of(node, device)


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
