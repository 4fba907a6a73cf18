"""What the namespace can do: dtypes, their limits and conversions (array API, "inspection"), the
devices that there are, and their memory."""

import contextlib
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

from lamina.core import dtypes
from lamina.core.dtypes import DType
from lamina.errors import ArgumentError, DTypeError, UnknownDeviceError
from lamina.frontend.arguments import as_dtype, promote
from lamina.frontend.session import SESSION
from lamina.frontend.tensor import Data, Tensor, common_dtype, default_device, is_scalar
from lamina.runtime.buffer import HOST_DEVICES, KINDS, heap_of

__all__ = ["__array_namespace_info__", "astype", "can_cast", "empty_cache", "finfo", "iinfo",
           "isdtype", "memory_stats", "result_type"]  # fmt: skip

_KINDS = {
    "bool": "bool", "signed integer": "int", "unsigned integer": "uint", "integral": "int uint",
    "real floating": "float", "complex floating": "complex", "numeric": "int uint float complex",
}  # fmt: skip


def _dtype_of(type: Any) -> DType:
    return type.dtype if isinstance(type, Tensor) else as_dtype(type)


def finfo(type: Any) -> SimpleNamespace:
    """The limits of a float dtype, of the parts of a complex one, or of a tensor's dtype: `bits`,
    `eps`, `max`, `min`, `smallest_normal` and the `dtype`."""
    import ml_dtypes

    dtype = dtypes.real_of(_dtype_of(type))
    if not dtype.is_float:
        raise DTypeError(f"{dtype.name} is no float; iinfo is for integers", operation="finfo")
    info = ml_dtypes.finfo(dtype.numpy)  # type: ignore[no-untyped-call]
    eps, most, normal = map(float, (info.eps, info.max, info.smallest_normal))
    return SimpleNamespace(
        bits=dtype.bits, eps=eps, max=most, min=-most, smallest_normal=normal, dtype=dtype
    )


def iinfo(type: Any) -> SimpleNamespace:
    """The limits of an integer dtype or of a tensor's dtype: `bits`, `max`, `min`, the `dtype`."""
    dtype = _dtype_of(type)
    if not dtype.is_int:
        raise DTypeError(f"{dtype.name} is no integer; finfo is for floats", operation="iinfo")
    return SimpleNamespace(bits=dtype.bits, max=dtype.max, min=dtype.min, dtype=dtype)


def isdtype(dtype: Any, kind: Any) -> bool:
    """Whether `dtype` is of a kind: a name of the standard, a dtype, or a tuple of them."""
    if isinstance(kind, tuple):
        return any(isdtype(dtype, one) for one in kind)
    if isinstance(kind, str) and kind in _KINDS:
        return as_dtype(dtype).kind in _KINDS[kind].split()
    return as_dtype(dtype) is as_dtype(kind)


def result_type(*arrays_and_dtypes: Any) -> DType:
    """The dtype that an operation on tensors, dtypes and Python scalars has."""
    given = [one if is_scalar(one) else _dtype_of(one) for one in arrays_and_dtypes]
    return common_dtype("result_type", *given)


def can_cast(from_: Any, to: Any, /) -> bool:
    """Whether promotion leads from `from_` to `to`. Raises DTypeError for what is no dtype."""
    source, target = _dtype_of(from_), as_dtype(to)
    try:
        return promote("can_cast", source, target) is target
    except DTypeError:
        return False


def astype(x: Data, dtype: Any, /, *, copy: bool = True, device: str | None = None) -> Tensor:
    """The values converted to `dtype`; without `copy`, x itself when nothing changes."""
    wanted = as_dtype(dtype)
    moved: Tensor = x if device is None else x.to(device)
    return moved.cast(wanted) if copy or x.dtype is not wanted else moved


class NamespaceInfo:
    """What `__array_namespace_info__` returns; see the standard's inspection API."""

    def capabilities(self) -> dict[str, Any]:
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": None}

    default_device = staticmethod(default_device)

    def devices(self) -> list[str]:
        names = list(HOST_DEVICES)
        for kind in KINDS.values():
            with contextlib.suppress(UnknownDeviceError):
                names += kind.names()
        return names

    def default_dtypes(self, *, device: str | None = None) -> dict[str, DType]:
        return {"real floating": dtypes.default_float, "complex floating": dtypes.default_complex,
                "integral": dtypes.default_int, "indexing": dtypes.default_int}  # fmt: skip

    def dtypes(self, *, device: str | None = None, kind: Any = None) -> dict[str, DType]:
        """The standard's dtypes by name, those of one kind when asked."""
        extra = (*dtypes.STORAGE_ONLY, dtypes.float16, dtypes.bfloat16)
        return {
            one.name: one for one in dtypes.ALL
            if one not in extra and (kind is None or isdtype(one, kind))
        }  # fmt: skip


def __array_namespace_info__() -> NamespaceInfo:  # noqa: N807 (the standard's name)
    """Devices, dtypes and capabilities, as the standard asks."""
    return NamespaceInfo()


def array_namespace(x: Tensor, /, *, api_version: str | None = None) -> ModuleType:
    """The module with the functions for this tensor."""
    if api_version not in (None, "2021.12", "2022.12", "2023.12", "2024.12"):
        raise ArgumentError(
            f"version {api_version!r} is not supported", operation="__array_namespace__"
        )
    return sys.modules["lamina"]


def empty_cache(device: str = "cpu") -> None:
    """Return the memory that is kept for reuse to the system, pinned memory too, and programs that
    nobody has any more."""
    heap = heap_of(device)
    heap.synchronize()
    heap.staging.empty()
    heap.empty()


def memory_stats(device: str = "cpu") -> dict[str, int]:
    """Memory of a device in bytes: ``allocated`` by live buffers, ``cached`` for reuse, ``peak``
    live, and ``pinned``, of the host, which copies from and to the device go through, live or
    cached. And of the process, on all devices: how many ``tensors`` there are, how many of them are
    ``unfinished``, as their value is not in memory, how many computed values have memory
    (``places``), how many ``programs`` functions use, and how many ``results`` caches keep.
    Takes time in proportion to the number of tensors."""
    heap = heap_of(device)
    staging = heap.staging
    pinned = 0 if staging is heap else staging.allocated + staging.cached
    of_device = {
        "allocated": heap.allocated,
        "cached": heap.cached,
        "peak": heap.peak,
        "pinned": pinned,
    }
    return of_device | SESSION.counts()
