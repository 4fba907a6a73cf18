"""Host memory: aligned, uninitialised blocks that are reused instead of returned.

A fresh page costs more than the arithmetic most kernels do with it, so freed blocks wait in a
list by size and go to the next buffer of that size.
"""

from __future__ import annotations

import ctypes
import functools
import os
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from lamina.errors import DeviceError, OutOfMemoryError, UnknownDeviceError

ALIGNMENT = 64  # one cache line, and one AVX-512 vector
HOST_DEVICES = ("cpu", "interp")
_STEPS = 8  # block sizes per power of two: at most 1/8 of a block is wasted
_LEAST_CACHE = 256 << 20


def _block_size(nbytes: int) -> int:
    """The size of the block that holds `nbytes`: a multiple of 64, `_STEPS` an octave."""
    size = max(nbytes, ALIGNMENT)
    step = max(ALIGNMENT, 1 << max(0, (size - 1).bit_length() - _STEPS.bit_length()))
    return -(-size // step) * step


def _cache_limit() -> int:
    """How many freed bytes are kept: an eighth of the machine's memory, at least 256 MiB."""
    return max(_LEAST_CACHE, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 8)


@functools.cache
def _libc() -> tuple[Callable[..., int], Callable[[int], None]]:
    """posix_memalign and free of the C library that Python itself uses."""
    library = ctypes.CDLL(None)
    allocate = library.posix_memalign
    allocate.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t)
    release = library.free
    release.argtypes = (ctypes.c_void_p,)
    release.restype = None
    return allocate, release


class _Heap:
    """The blocks of this process.

    `give` is called by finalisers, which the garbage collector may run inside any line of this
    class, on a thread that already holds the lock. It therefore never waits: a block goes to
    `pending`, whose append is atomic, and whoever gets the lock next files it.
    """

    def __init__(self) -> None:
        self.limit = _cache_limit()
        self.allocated = self.cached = self.peak = 0
        self._pending: deque[tuple[int, int]] = deque()
        self._free: dict[int, list[int]] = {}  # by size, the least recently used size first
        self._lock = threading.Lock()
        os.register_at_fork(after_in_child=self._forked)

    def _forked(self) -> None:
        """Another thread of the parent may have held the lock; here it does not exist."""
        self._lock = threading.Lock()

    def take(self, size: int) -> int:
        """The address of a block of `size` bytes, or 0 when the machine has none left."""
        with self._lock:
            self._file_pending()
            blocks = self._free.get(size)
            if blocks:
                pointer = blocks.pop()
                self.cached -= size
                if not blocks:
                    del self._free[size]
            else:
                pointer = self._fresh(size)
            if pointer:
                self.allocated += size
                self.peak = max(self.peak, self.allocated)
            return pointer

    def give(self, pointer: int, size: int) -> None:
        """Take a block back."""
        self._pending.append((pointer, size))
        if self._lock.acquire(blocking=False):
            try:
                self._file_pending()
            finally:
                self._lock.release()

    def empty(self) -> None:
        """Return every cached block to the system."""
        with self._lock:
            self._file_pending()
            self._shrink(0)

    def stats(self) -> dict[str, int]:
        """Bytes in live buffers, bytes cached, and the most that was ever live at once."""
        with self._lock:
            self._file_pending()
            return {"allocated": self.allocated, "cached": self.cached, "peak": self.peak}

    def _fresh(self, size: int) -> int:
        pointer = _system_block(size)
        if not pointer and self.cached:
            self._shrink(0)
            pointer = _system_block(size)
        return pointer

    def _file_pending(self) -> None:
        while self._pending:
            pointer, size = self._pending.popleft()
            self.allocated -= size
            self.cached += size
            blocks = self._free.pop(size, [])  # put back at the end: this size is in use
            blocks.append(pointer)
            self._free[size] = blocks
        self._shrink(self.limit)

    def _shrink(self, limit: int) -> None:
        release = _libc()[1]
        while self.cached > limit:
            size, blocks = next(iter(self._free.items()))
            release(blocks.pop())
            self.cached -= size
            if not blocks:
                del self._free[size]


def _system_block(size: int) -> int:
    """A new block from the C library; 0 when it refuses."""
    if size > 1 << 62:  # beyond any address space; ctypes would cut the number silently
        return 0
    pointer = ctypes.c_void_p()
    status = _libc()[0](ctypes.addressof(pointer), ALIGNMENT, size)
    return 0 if status else pointer.value or 0


_heap = _Heap()


def memory_stats() -> dict[str, int]:
    """Host memory in bytes: ``allocated`` by live buffers, ``cached`` for reuse, ``peak`` live."""
    return _heap.stats()


def empty_cache() -> None:
    """Give all cached host memory back to the operating system."""
    _heap.empty()


class Buffer:
    """`nbytes` bytes of memory on `device`, starting at the address `pointer`.

    The address is a multiple of 64 and the content is whatever was there before. Raises
    `OutOfMemoryError` when the machine has no such block, even after the cache was emptied.
    """

    __slots__ = ("__weakref__", "_block", "_owner", "device", "nbytes", "pointer")

    device: str
    nbytes: int
    pointer: int

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
        self.device = device
        self.nbytes = nbytes
        self.pointer = pointer
        self._block = size
        self._owner: Any = None

    @classmethod
    def wrap(cls, pointer: int, nbytes: int, device: str, owner: object) -> Buffer:
        """A buffer over memory that `owner` holds; `owner` lives at least as long.

        The address is used as it is: foreign memory need not be aligned.
        """
        self = cls.__new__(cls)
        self.device = device
        self.nbytes = nbytes
        self.pointer = pointer
        self._block = 0
        self._owner = owner
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
