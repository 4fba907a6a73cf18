"""Devices, memory, compilers and launches. This package knows bytes and source text, no IR."""

from __future__ import annotations

import contextlib

from lamina.errors import UnknownDeviceError
from lamina.runtime import cuda, metal
from lamina.runtime.buffer import HOST_DEVICES, KINDS, Buffer, empty_cache, memory_stats
from lamina.runtime.cache import CacheWarning, DiskCache, digest
from lamina.runtime.compiler import Compiler, find
from lamina.runtime.cpu import CpuProgram, disk_cache, thread_count

__all__ = [
    "Buffer", "CacheWarning", "Compiler", "CpuProgram", "DiskCache", "device_names",
    "digest", "disk_cache", "empty_cache", "find", "memory_stats", "thread_count",
]  # fmt: skip

KINDS.update(cuda=(cuda.names, cuda.Device), metal=(metal.names, metal.Device))


def device_names() -> list[str]:
    """The devices that a tensor can live on here."""
    names = list(HOST_DEVICES)
    for present, _ in KINDS.values():
        with contextlib.suppress(UnknownDeviceError):
            names += present()
    return names
