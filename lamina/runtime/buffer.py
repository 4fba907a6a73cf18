"""Host memory: aligned, uninitialised blocks that are reused instead of returned.

A fresh page costs more than the arithmetic most kernels do with it, so freed blocks wait in a
list by size and go to the next buffer of that size.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from lamina.errors import DeviceError, OutOfMemoryError, UnknownDeviceError

ALIGNMENT = 64  # one cache line, and one AVX-512 vector
HOST_DEVICES = ("cpu", "interp")
_STEPS = 8  # block sizes per power of two: at most 1/8 of a block is wasted
_LEAST_CACHE = 256 << 20
_libc = ctypes.CDLL(None)


@lru_cache(maxsize=4096)
def _block_size(nbytes: int) -> int:
    """The size of the block that holds `nbytes`: a multiple of 64, `_STEPS` an octave."""
    size = max(nbytes, ALIGNMENT)
    step = max(ALIGNMENT, 1 << max(0, (size - 1).bit_length() - _STEPS.bit_length()))
    return -(-size // step) * step


def _system_block(size: int) -> int:
    """A new block from the C library; 0 when it refuses."""
    pointer = ctypes.c_void_p()
    if size <= 1 << 62:  # above any address space; ctypes would cut larger numbers silently
        sizes = map(ctypes.c_size_t, (ALIGNMENT, size))
        _libc.posix_memalign(ctypes.byref(pointer), *sizes)
    return pointer.value or 0


class _Heap:
    """The blocks of this process, without a lock: the garbage collector may run a finaliser, and
    with it `give`, inside any call made here. So each change is one operation of a list or a
    counter, which CPython does not interrupt, and the list of a size stays for good."""

    def __init__(self) -> None:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        self.limit = max(_LEAST_CACHE, memory // 8)  # bytes kept for reuse
        self.allocated = self.cached = self.peak = 0
        self._free: dict[int, list[int]] = {}  # by size

    def take(self, size: int) -> int:
        """The address of a block of `size` bytes, or 0 when the machine has none left."""
        try:
            pointer = self._free[size].pop()
            self.cached -= size
        except LookupError:
            pointer = _system_block(size)
            if not pointer:
                self.empty()
                pointer = _system_block(size)
        if pointer:
            self.allocated += size
            if self.allocated > self.peak:
                self.peak = self.allocated
        return pointer

    def give(self, pointer: int, size: int) -> None:
        """Take a block back."""
        self._free.setdefault(size, []).append(pointer)
        self.allocated -= size
        self.cached += size
        if self.cached > self.limit:
            self.empty()

    def empty(self) -> None:
        """Return every cached block to the system."""
        for size, pointers in list(self._free.items()):
            while pointers:
                pointer = pointers.pop()
                self.cached -= size
                _libc.free(ctypes.c_void_p(pointer))


_heap = _Heap()
empty_cache = _heap.empty


def memory_stats() -> dict[str, int]:
    """Host memory in bytes: ``allocated`` by live buffers, ``cached`` for reuse, ``peak`` live."""
    return {"allocated": _heap.allocated, "cached": _heap.cached, "peak": _heap.peak}


class Buffer:
    """`nbytes` bytes on `device`, from the address `pointer`, a multiple of 64; the content is
    whatever was there before. `exported`: a consumer outside lamina keeps this memory. Raises
    OutOfMemoryError when the machine has no such block, even after the cache was emptied."""

    __slots__ = ("__weakref__", "_block", "device", "exported", "nbytes", "owner", "pointer")

    def __init__(self, nbytes: int, device: str = "cpu") -> None:
        self._block = 0  # first, so that the finaliser of a failed construction finds it
        if device not in HOST_DEVICES:
            names = ", ".join(HOST_DEVICES)
            raise UnknownDeviceError(f"Buffer: no device {device!r}; memory is on {names}")
        if nbytes < 0:
            raise ValueError(f"Buffer: nbytes is {nbytes}; it cannot be negative")
        size = _block_size(nbytes)
        pointer = _heap.take(size)
        if not pointer:
            raise OutOfMemoryError(
                f"{device}: no room for a buffer of {nbytes:,} bytes "
                f"({_heap.allocated:,} bytes are in live buffers); free some tensors"
            )
        self.device, self.nbytes, self.pointer = device, nbytes, pointer
        self._block = size
        self.owner: object = None
        self.exported = False

    @classmethod
    def wrap(cls, pointer: int, nbytes: int, device: str, owner: object) -> Buffer:
        """A buffer over memory that `owner`, kept alive, holds; it need not be aligned."""
        self = cls.__new__(cls)
        self.device, self.nbytes, self.pointer = device, nbytes, pointer
        self._block = 0
        self.owner = owner
        self.exported = False
        return self

    def __del__(self, _give: Callable[[int, int], None] = _heap.give) -> None:
        if self._block:
            _give(self.pointer, self._block)

    def __repr__(self) -> str:
        return f"Buffer({self.nbytes}, {self.device!r}, at {self.pointer:#x})"

    def view(self) -> memoryview:
        """The bytes themselves, writable; whatever is made from the view keeps this alive."""
        if self.device not in HOST_DEVICES:
            raise DeviceError(f"view: the memory of {self.device} cannot be read; copy it first")
        memory: Any = (ctypes.c_char * self.nbytes).from_address(self.pointer)
        memory.buffer = self  # the view holds `memory`, and `memory` holds this buffer
        return memoryview(memory).cast("B")
