"""What this machine has of what lamina needs."""

from __future__ import annotations

import os
import platform

from lamina.errors import UnknownDeviceError
from lamina.options import Options, current
from lamina.runtime.buffer import KINDS, heap_of
from lamina.runtime.compiler import REMEDY, Compiler, survey
from lamina.runtime.cpu import disk_cache, thread_count, usable_cores

Row = tuple[str, str, bool, str]


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
        *map(_kind_row, KINDS),
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
    size = f"{sum(file.stat().st_size for file in cache.folder.iterdir()) / 1e6:.1f} MB"
    if cache.folder == cache.wanted and os.access(cache.wanted, os.W_OK):
        return "cache", f"{cache.wanted}, {size}, writable", True, ""
    finding = f"{cache.wanted} cannot be used; this process keeps {size} in {cache.folder}"
    return "cache", finding, False, "export LAMINA_CACHE_DIR=/a/folder/of/your/own"


def _kind_row(kind: str) -> Row:
    try:
        found = [str(heap_of(name)) for name in KINDS[kind][0]()]
    except UnknownDeviceError as error:
        finding, _, remedy = str(error).splitlines()[0].partition(": ")[2].rpartition("; ")
        return kind, finding, False, remedy
    return kind, "; ".join(found) or "the driver finds none", bool(found), ""


def _package_row(name: str) -> Row:
    import importlib.metadata  # 15 ms that `import lamina` would pay

    try:
        return name, importlib.metadata.version(name), True, ""
    except importlib.metadata.PackageNotFoundError:
        return name, "not installed", False, f"pip install {name}"
