"""Devices, memory, compilers and launches. This package knows bytes and source text, no IR."""

from __future__ import annotations

import os
import platform

from lamina.options import Options, current
from lamina.runtime.buffer import HOST_DEVICES, Buffer, empty_cache, memory_stats
from lamina.runtime.cache import CacheWarning, DiskCache, digest
from lamina.runtime.compiler import REMEDY, Compiler, find, survey
from lamina.runtime.cpu import CpuProgram, disk_cache, thread_count, usable_cores

__all__ = [
    "Buffer", "CacheWarning", "Compiler", "CpuProgram", "DiskCache", "device_names", "digest",
    "disk_cache", "doctor", "empty_cache", "find", "memory_stats", "thread_count",
]  # fmt: skip

Row = tuple[str, str, bool, str]


def device_names() -> tuple[str, ...]:
    """The devices a tensor can live on in this version."""
    return HOST_DEVICES


def doctor(options: Options | None = None) -> list[Row]:
    """What lamina finds on this machine: (item, finding, whether it is fine, a command that mends
    it if there is one)."""
    options = options or current()
    threads = f"{thread_count(options)} on {usable_cores()} usable cores"
    return [
        *_compiler_rows(options),
        _cache_row(options),
        ("threads", threads, True, ""),
        ("python", platform.python_version(), True, ""),
        *map(_package_row, ("numpy", "ml_dtypes")),
        *((device, "not built yet in this version", False, "") for device in ("cuda", "metal")),
    ]


def _compiler_rows(options: Options) -> list[Row]:
    """The compilers that work, the one in use first; or each candidate with its reason."""
    results = list(survey(options.cc))
    found = [result for _, result in results if isinstance(result, Compiler)]
    if found:
        return [("compiler", f"{compiler} at {compiler.path}", True, "") for compiler in found]
    return [("compiler", f"{name}: {reason}", False, REMEDY) for name, reason in results]


def _cache_row(options: Options) -> Row:
    cache = disk_cache(options)
    size = f"{cache.size() / 1e6:.1f} MB"
    if cache.folder == cache.wanted and os.access(cache.wanted, os.W_OK):
        return "cache", f"{cache.wanted}, {size}, writable", True, ""
    finding = f"{cache.wanted} cannot be used; this process keeps {size} in {cache.folder}"
    return "cache", finding, False, "export LAMINA_CACHE_DIR=/a/folder/of/your/own"


def _package_row(name: str) -> Row:
    import importlib.metadata  # 15 ms that `import lamina` would pay

    try:
        return name, importlib.metadata.version(name), True, ""
    except importlib.metadata.PackageNotFoundError:
        return name, "not installed", False, f"pip install {name}"
