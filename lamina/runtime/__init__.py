"""Devices, memory, compilers and launches. This package knows bytes and source text, no IR."""

from __future__ import annotations

from lamina.runtime.buffer import HOST_DEVICES, Buffer, empty_cache, memory_stats
from lamina.runtime.cache import CacheWarning, DiskCache, digest
from lamina.runtime.compiler import Compiler, find
from lamina.runtime.cpu import CpuProgram, disk_cache, thread_count

__all__ = [
    "Buffer", "CacheWarning", "Compiler", "CpuProgram", "DiskCache", "device_names", "digest",
    "disk_cache", "empty_cache", "find", "memory_stats", "thread_count",
]  # fmt: skip

def device_names() -> tuple[str, ...]:
    """The devices a tensor can live on in this version."""
    return HOST_DEVICES
