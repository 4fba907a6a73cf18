"""Memory: aligned, uninitialised blocks that are reused instead of returned.

A fresh page costs more than the arithmetic most kernels do with it, so freed blocks wait in a
list by size and go to the next buffer of that size.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import Any, NamedTuple

from lamina.core.options import HOST_DEVICES as HOST_DEVICES
from lamina.core.shape import Shape
from lamina.errors import DeviceError, OutOfMemoryError, UnknownDeviceError

ALIGNMENT = 64  # one cache line, and one AVX-512 vector
# Block sizes per power of two: at most 1/8 of a short block is wasted, so that arrays of other
# sizes find it again. Long ones are few, and mostly of sizes that come again, such as a program's
# scratch memory: of 3090 MiB, 1/8 of an octave would be 3328, 1/64 is 3104.
_STEPS, _STEPS_OF_LONG = 8, 64
_LONG = 64 << 20  # bytes
_libc = ctypes.CDLL(None)
_libc.free.argtypes, _libc.aligned_alloc.restype = [ctypes.c_void_p], ctypes.c_void_p
_libc.aligned_alloc.argtypes = [ctypes.c_size_t] * 2
_libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


@lru_cache(maxsize=4096)
def _block_size(nbytes: int) -> int:
    """The size of the block that holds `nbytes`: a multiple of 64, one of `_STEPS` an octave, or of
    `_STEPS_OF_LONG`."""
    size = max(nbytes, ALIGNMENT)
    steps = _STEPS if size <= _LONG else _STEPS_OF_LONG
    step = max(ALIGNMENT, 1 << max(0, (size - 1).bit_length() - steps.bit_length()))
    return -(-size // step) * step


def _allocate(size: int) -> int:
    fits = size <= 1 << 62  # any address space; ctypes would cut larger numbers silently
    large = size >= 16 << 20  # and on large pages, of which the processor looks up fewer
    pointer: int = (_libc.aligned_alloc(2 << 20 if large else ALIGNMENT, size) if fits else 0) or 0
    if pointer and large:
        _libc.madvise(pointer, size, getattr(mmap, "MADV_HUGEPAGE", 0))
    return pointer


class Heap:
    """The blocks of this process on one device, without a lock: the garbage collector may run a
    finaliser, and with it `give`, inside any call made here. So each change is one operation of a
    list or a counter, which CPython does not interrupt, and the list of a size stays. The system
    gives a block of a size to `reserve`, or 0 when it refuses; to `release` goes its address."""

    visible = True  # to the host
    dlpack: tuple[int, int] | None = (1, 0)  # its kind and number there; None if it shares nothing
    reserve: Callable[[int], int] = staticmethod(_allocate)
    release: Callable[[int], None] = staticmethod(_libc.free)

    def __init__(self, limit: int, name: str) -> None:
        self.name = name  # of the device
        self.limit = limit  # of the bytes kept for reuse
        self.allocated = self.cached = self.peak = 0
        self._free: dict[int, list[int]] = {}  # by size
        self.staging = self  # host memory that is quick to copy from and to

    def take(self, size: int) -> int:
        """The address of a block of `size` bytes, or 0 when the machine has none left."""
        try:
            pointer = self._free[size].pop()
            self.cached -= size
        except LookupError:
            if not (pointer := self.reserve(size)):
                self.empty()
                pointer = self.reserve(size)
        if pointer:
            self.count(size)
        return pointer

    def count(self, size: int) -> None:
        """Count `size` bytes as taken; those of `take` are."""
        self.allocated += size
        self.peak = max(self.peak, self.allocated)

    def give(self, pointer: int, size: int) -> None:
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
                self.release(pointer)

    def synchronize(self) -> None:
        """Wait for everything that was launched."""

    def copy(self, source: Buffer, target: Buffer) -> None:
        """Copy between two buffers, one of them in this memory, and wait for it."""
        target.view()[:] = source.view()

    def send(self, source: Buffer, target: Buffer) -> None:
        """Copy a staging buffer, which nobody uses from now on, into this memory. The host need not
        wait: what is launched next finds the content."""
        self.copy(source, target)

    def fetch(self, source: Buffer) -> Callable[[], Buffer] | None:
        """Begin to copy a buffer of this memory to the host; what waits for that copy alone, and
        gives it. None where the host sees this memory."""
        return None


_limit = max(256 << 20, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 8)
_heaps = {name: Heap(_limit, name) for name in HOST_DEVICES}  # by the full name of the device
_opening = threading.Lock()


@dataclass(frozen=True)
class TensorMap:
    """How a GPU's copy engine (TMA) reads an array.

    parameter     the number of its argument
    element_kind  as the driver calls it, such as UINT16
    offset        of the first element, in bytes
    sizes         in elements, fastest axis first
    strides       of all axes but the fastest, in bytes
    box           elements that one copy has along each axis
    corners       in im2col mode, for each axis of an image: the first place of its first window,
                  that of its last one less the last element, and the elements from one to the next
    """

    parameter: int
    element_kind: str
    offset: int
    sizes: Shape
    strides: Shape
    box: Shape
    corners: tuple[Shape, ...]


class Launch(NamedTuple):
    """How such a device runs one kernel: for each argument the number of a buffer and an offset
    in bytes; the bytes that a block shares; and what the copy engine reads, as more arguments.

    exchange: of a collective, which is no kernel, its number among those of the program. after: the
    number of the last collective that has to be done before, -1 for none."""

    name: str
    blocks: int
    threads: int
    arguments: tuple[tuple[int, int], ...]
    shared: int = 0
    maps: tuple[TensorMap, ...] = ()
    exchange: int = -1
    after: int = -1

    def __str__(self) -> str:
        return f"kernel {self.name}, {self.blocks} blocks of {self.threads} threads"


@dataclass(frozen=True)
class DeviceKind:
    """How the devices of a kind are found.

    names: of those that are here; raises UnknownDeviceError, with what to do, when none can work.
    open: the one of a number, made ready.
    """

    names: Callable[[], list[str]]
    open: Callable[[int], Heap]


KINDS: dict[str, DeviceKind] = {}


def heap_of(device: str) -> Heap:
    """The memory of a device: by its name, or for a kind of its first. Raises
    UnknownDeviceError when there is no such one, and DeviceError, with what to do, when it does
    not work."""
    name = str(device)
    if name not in _heaps:
        kind = name.partition(":")[0]
        names = KINDS[kind].names() if kind in KINDS else [*HOST_DEVICES, *KINDS]
        name = names[0] if name in KINDS and names else name
        if kind not in KINDS or name not in names:
            raise UnknownDeviceError(f"no device {device!r}; there are {', '.join(names)}")
        with _opening:
            if name not in _heaps:
                _heaps[name] = KINDS[kind].open(names.index(name))
    return _heaps[name]


class Buffer:
    """`nbytes` bytes on `device`, from the address `pointer`, a multiple of 64; the content is
    whatever was there before. `exported`: a consumer outside lamina keeps this memory. Raises
    OutOfMemoryError when the machine has no such block, even after the cache was emptied."""

    owner: object = None  # of the memory, where that is wrapped
    exported = False
    writes = 0  # by programs, in place: who made something of the content compares it
    # Since it was made: a wrapper of the same memory has the new content. Buffers of programs have
    # their own, which quick calls find sooner than that of the class.
    overwritten = False
    _fetched: tuple[int, Callable[[], Buffer]] | None = None  # see `fetch`
    _block = 0  # until there is one, so that the finaliser of a failed construction finds it

    def __init__(self, nbytes: int, device: str = "cpu", heap: Heap | None = None) -> None:
        heap = heap or _heaps.get(device) or heap_of(device)
        size = _block_size(nbytes)
        pointer = heap.take(size)
        if not pointer:
            raise OutOfMemoryError(
                f"{device}: no room for a buffer of {nbytes:,} bytes "
                f"({heap.allocated:,} bytes are in live buffers); free some tensors"
            )
        self.device, self.nbytes, self.pointer = device, nbytes, pointer
        self._block, self._heap = size, heap
        self.overwritten = False

    @classmethod
    def wrap(cls, pointer: int, nbytes: int, device: str, owner: object) -> Buffer:
        """A buffer over memory that `owner`, kept alive, holds; it need not be aligned."""
        self = cls.__new__(cls)
        self.device, self.nbytes, self.pointer, self.owner = device, nbytes, pointer, owner
        self.overwritten = False
        return self

    @classmethod
    def parts(cls, sizes: Sequence[int], device: str) -> list[Buffer]:
        """Buffers of so many bytes each, one after the other in one block of memory, which lives as
        long as any of them. Raises OutOfMemoryError as the constructor does."""
        spans = [-(-size // ALIGNMENT) * ALIGNMENT for size in sizes]
        block, ends = cls(sum(spans), device), accumulate(spans)
        return [
            cls.wrap(block.pointer + end - span, size, device, block)
            for size, span, end in zip(sizes, spans, ends, strict=True)
        ]

    def export(self) -> None:
        """Note that another library has this memory from now on, and may write to it unseen."""
        self.exported = True
        self.writes += 1

    def __del__(self) -> None:
        if self._block:
            self._heap.give(self.pointer, self._block)

    @classmethod
    def staging(cls, nbytes: int, device: str) -> Buffer:
        """A buffer that the host fills, to be `sent` to `device`."""
        return cls(nbytes, device if heap_of(device).visible else "cpu", heap_of(device).staging)

    def sent(self, device: str) -> Buffer:
        """What this staging buffer, which is used no more, becomes on `device`: itself where the
        host sees that memory, or else a copy, for which the host does not wait."""
        if device == self.device:
            return self
        target = Buffer(self.nbytes, device)
        heap_of(device).send(self, target)
        return target

    def to(self, device: str) -> Buffer:
        """This buffer, or a copy if it is not on `device`."""
        if device == self.device:
            return self
        inward = device in HOST_DEVICES
        heap = heap_of(self.device if inward else device)
        target = Buffer(self.nbytes, device, heap.staging if inward else heap)
        heap.copy(self, target)
        return target

    def fetch(self) -> bool:
        """Begin to copy this buffer to the host, behind what was launched until now: `on_host` then
        waits for that alone, whatever is launched meanwhile. False where the host sees it."""
        wait = heap_of(self.device).fetch(self)
        self._fetched = None if wait is None else (self.writes, wait)
        return wait is not None

    def on_host(self) -> Buffer:
        """This buffer, or a copy where the host cannot see it."""
        if heap_of(self.device).visible:
            return self
        if self._fetched is not None:
            writes, wait = self._fetched
            if writes == self.writes:
                return wait()
        return self.to("cpu")

    def view(self) -> memoryview:
        """The bytes themselves, writable; whatever is made from the view keeps this alive."""
        heap = heap_of(self.device)
        if not heap.visible:
            raise DeviceError(f"view: the memory of {self.device} cannot be read; copy it first")
        heap.synchronize()
        memory: Any = (ctypes.c_char * self.nbytes).from_address(self.pointer)
        memory.buffer = self  # the view holds `memory`, and `memory` holds this buffer
        return memoryview(memory).cast("B")


NOTHING = Buffer(0)  # for programs without scratch arrays
