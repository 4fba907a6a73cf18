"""Exchange of the memory of NVIDIA's GPUs with other libraries, by the structures of DLPack.

A capsule holds a DLManagedTensor or, from version 1 on, a DLManagedTensorVersioned (dlpack.h), with
a function that the consumer calls when it no longer needs the memory. Each library launches its
work on streams of its own: the producer makes the consumer's stream wait for the values. Memory is
let go of by the host, at once, while kernels that read it may still wait in a stream; so whoever
takes it back waits for the GPU first.
"""

from __future__ import annotations

import atexit
import ctypes
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from lamina.core import dtypes
from lamina.core.dtypes import DType
from lamina.core.shape import Shape, prod
from lamina.errors import ArgumentError, DTypeError
from lamina.frontend import realize as memory
from lamina.frontend.tensor import Tensor
from lamina.ir import build
from lamina.runtime.buffer import ALIGNMENT, Buffer, heap_of

if TYPE_CHECKING:
    from lamina.runtime.cuda import Device

CUDA = 2  # DLPack's number of this kind of device
_LEGACY_STREAM = 1  # in DLPack, and what None means there
_NO_SYNCHRONISATION = -1
_CODES = {"int": 0, "uint": 1, "float": 2, "complex": 5, "bool": 6}  # of kinds of numbers
_BFLOAT = 4
_VERSION = (1, 0)
_VERSIONED, _OLD = b"dltensor_versioned", b"dltensor"


class _Array(ctypes.Structure):
    """DLTensor."""

    _fields_ = (
        ("data", ctypes.c_void_p), ("device_kind", ctypes.c_int32), ("device_id", ctypes.c_int32),
        ("rank", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16), ("sizes", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)), ("offset", ctypes.c_uint64),
    )  # fmt: skip


class _Old(ctypes.Structure):
    """DLManagedTensor."""

    _fields_ = (
        ("array", _Array), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p),
    )  # fmt: skip


class _Versioned(ctypes.Structure):
    """DLManagedTensorVersioned."""

    _fields_ = (
        ("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p), ("flags", ctypes.c_uint64), ("array", _Array),
    )  # fmt: skip


_Managed = _Old | _Versioned
_FORMS: dict[bytes, type[_Old] | type[_Versioned]] = {_VERSIONED: _Versioned, _OLD: _Old}
_Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)

# PyCapsule's functions. Prototypes of their own: others may set those of ctypes.pythonapi. A
# destructor gets the address of a capsule that is going, which must not become an object again.
_api = ctypes.pythonapi
_Destructor = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)
_new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, _Destructor)(
    ("PyCapsule_New", _api)
)
_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_IsValid", _api)
)
_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", _api)
)
_rename = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_SetName", _api)
)
_is_valid_at = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_IsValid", _api)
)
_pointer_at = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", _api)
)


# From here to others.


@dataclass(frozen=True)
class _Export:
    """What a consumer's structure points to, kept until its deleter is called."""

    managed: _Managed
    sizes: Any
    strides: Any
    buffer: Buffer


_exports: dict[int, _Export] = {}  # by the address of the structure


def _let_go(address: int) -> None:
    """The consumer's host is done with the memory; its GPU, when everything launched has ended."""
    export = _exports[address]
    heap = cast("Device", heap_of(export.buffer.device))
    heap.enter()
    heap.call("cuCtxSynchronize")  # where it fails, the export stays: nothing may write there
    del _exports[address]


def _unused(capsule: int) -> None:
    """A capsule goes: where nobody took its structure, nobody else will call the deleter."""
    for name in _FORMS:
        if _is_valid_at(capsule, name):
            _exports.pop(_pointer_at(capsule, name), None)


_deleter, _destructor = _Deleter(_let_go), _Destructor(_unused)


@atexit.register
def _disarm() -> None:
    """Consumers may outlive Python, which no longer runs a deleter then: the memory goes with the
    process."""
    for export in _exports.values():
        export.managed.deleter = None


def exported(
    x: Tensor, device: tuple[int, int], stream: Any, max_version: tuple[int, int] | None,
    copy: bool | None,
) -> Any:  # fmt: skip
    """A capsule over the memory of x, on the GPU with DLPack's numbers `device`; x is computed
    first. `stream` of the consumer, which waits for that: its address, 1 or None for the legacy
    default stream, 2 for that of the thread, and -1 where nothing needs to wait. Raises
    ArgumentError for other streams."""
    is_number = stream is None or (isinstance(stream, int) and not isinstance(stream, bool))
    if not is_number or stream == 0 or (stream is not None and stream < _NO_SYNCHRONISATION):
        raise ArgumentError(
            f"stream {stream!r} on {x.device}; pass the address of a CUDA stream, 1 "
            "for the legacy default stream, 2 for that of the thread, or -1 for none",
            operation="__dlpack__",
        )
    buffer = memory.memory_of(x.clone() if copy else x)
    buffer.export()
    if stream != _NO_SYNCHRONISATION:
        cast("Device", heap_of(x.device)).lead(_LEGACY_STREAM if stream is None else stream)
    is_versioned = max_version is not None and max_version[0] >= _VERSION[0]
    return _capsule(x, device, buffer, _VERSIONED if is_versioned else _OLD)


def _capsule(x: Tensor, device: tuple[int, int], buffer: Buffer, name: bytes) -> Any:
    rank = x.ndim
    managed = _FORMS[name]()
    sizes = (ctypes.c_int64 * rank)(*x.shape)
    strides = (ctypes.c_int64 * rank)(*_row_major(x.shape))
    array = managed.array
    array.data, array.rank, array.lanes, array.bits = buffer.pointer, rank, 1, x.dtype.bits
    array.device_kind, array.device_id = device
    array.code = _BFLOAT if x.dtype is dtypes.bfloat16 else _CODES[x.dtype.kind]
    array.sizes = ctypes.cast(sizes, ctypes.POINTER(ctypes.c_int64))
    array.strides = ctypes.cast(strides, ctypes.POINTER(ctypes.c_int64))
    managed.deleter = ctypes.cast(_deleter, ctypes.c_void_p).value
    if isinstance(managed, _Versioned):
        managed.major, managed.minor = _VERSION
    address = ctypes.addressof(managed)
    _exports[address] = _Export(managed, sizes, strides, buffer)
    return _new(address, name, _destructor)


def _row_major(shape: Shape) -> list[int]:
    """Strides in elements: (12, 4, 1) of (2, 3, 4)."""
    return [prod(shape[axis + 1 :]) for axis in range(len(shape))]


# From others to here.


class _Borrowed:
    """A producer's structure, which goes when nothing here holds it and the GPU is done."""

    def __init__(self, managed: _Managed, device: str) -> None:
        self.managed, self._device = managed, device

    def __del__(self) -> None:
        heap_of(self._device).synchronize()
        if self.managed.deleter:
            _Deleter(self.managed.deleter)(ctypes.addressof(self.managed))


def borrowed(x: Any, number: int, may_copy: bool = True) -> Tensor:
    """A tensor over the memory of a producer on the GPU of that number. Axes in another order than
    row-major are turned without a copy. Memory with gaps, shared elements, or an address that is no
    multiple of 64, is copied. Raises DTypeError for numbers that lamina lacks, and BufferError if a
    copy is needed and not allowed."""
    device = f"cuda:{number}"
    heap = cast("Device", heap_of(device))
    own_stream = int(heap.stream)
    try:
        capsule = x.__dlpack__(stream=own_stream, max_version=_VERSION)
    except TypeError:  # a producer older than version 1
        capsule = x.__dlpack__(stream=own_stream)
    managed = _taken(capsule)
    owner = _Borrowed(managed, device)
    array = managed.array
    dtype = _dtype_of(array)
    sizes = tuple(array.sizes[axis] for axis in range(array.rank))
    strides = [array.strides[axis] for axis in range(array.rank)] if array.strides else []
    lies = _Strided(sizes, tuple(strides or _row_major(sizes)), dtype, device)
    pointer = (array.data or 0) + array.offset
    if lies.is_dense and pointer % ALIGNMENT == 0:
        return lies.shared(pointer, owner)
    if not may_copy:
        what = f"strides {lies.strides} of {sizes} at address {pointer:#x}"
        raise BufferError(f"from_dlpack: {what} need a copy for {device}")
    return lies.copied(pointer, owner)


def _taken(capsule: Any) -> _Managed:
    """The structure in a capsule, which is ours from now on."""
    for name, form in _FORMS.items():
        if _is_valid(capsule, name):
            managed = form.from_address(_pointer(capsule, name))
            _rename(capsule, _USED[name])
            return managed
    raise BufferError("from_dlpack: the capsule was consumed already")


_USED = {name: b"used_" + name for name in _FORMS}  # a capsule does not copy its name


def _dtype_of(array: _Array) -> DType:
    for dtype in dtypes.ALL:
        code = _BFLOAT if dtype is dtypes.bfloat16 else _CODES[dtype.kind]
        is_plain = dtype not in dtypes.STORAGE_ONLY and array.lanes == 1
        if is_plain and (code, dtype.bits) == (array.code, array.bits):
            return dtype
    raise DTypeError(
        f"numbers of type code {array.code} with {array.bits} bits and "
        f"{array.lanes} lanes are not taken; convert them first",
        operation="from_dlpack",
    )


@dataclass(frozen=True)
class _Strided:
    """How elements lie in memory. strides: in elements, as many as sizes."""

    sizes: Shape
    strides: tuple[int, ...]
    dtype: DType
    device: str

    @property
    def _order(self) -> list[int]:
        """The axes from the one of the largest stride to the one of the least."""
        return sorted(range(len(self.sizes)), key=lambda axis: (-self.strides[axis], axis))

    @property
    def is_dense(self) -> bool:
        """Whether the elements are neighbours in memory, in some order of the axes."""
        stored = tuple([self.sizes[axis] for axis in self._order])
        return 0 in stored or all(
            size == 1 or self.strides[axis] == step
            for axis, size, step in zip(self._order, stored, _row_major(stored), strict=True)
        )

    def shared(self, pointer: int, owner: object) -> Tensor:
        """The dense tensor at an address, whose memory `owner` holds."""
        order = self._order
        stored = tuple([self.sizes[axis] for axis in order])
        buffer = Buffer.wrap(pointer, prod(stored) * self.dtype.itemsize, self.device, owner)
        buffer.export()
        node = memory.buffer_node(buffer, stored, self.dtype)
        places = [order.index(axis) for axis in range(len(order))]
        return Tensor.of(build.permute(node, places), self.device)

    def copied(self, pointer: int, owner: object) -> Tensor:
        """The elements between the first and the last one are copied, and these taken of them."""
        if 0 in self.sizes:
            return Tensor.of(build.full(self.sizes, 0, self.dtype), self.device)
        pairs = list(zip(self.sizes, self.strides, strict=True))
        first = sum((size - 1) * min(stride, 0) for size, stride in pairs)
        last = sum((size - 1) * max(stride, 0) for size, stride in pairs)
        count = last - first + 1
        start = pointer + first * self.dtype.itemsize
        there = Buffer.wrap(start, count * self.dtype.itemsize, self.device, owner)
        here = Buffer(there.nbytes, self.device)
        heap_of(self.device).copy(there, here)
        flat = Tensor.of(memory.buffer_node(here, (count,), self.dtype), self.device)
        place = build.full(self.sizes, -first, dtypes.int64)
        for axis, stride in enumerate(self.strides):
            steps = build.cast(build.broadcasted_iota(self.sizes, axis), dtypes.int64)
            place = place + steps * build.full(self.sizes, stride, dtypes.int64)
        return flat[Tensor.of(place, self.device)]
