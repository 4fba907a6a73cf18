"""C source to running code: compile once, load with ctypes, call with as little as possible.

A program exports `lamina_run`, which `lamina_call` in `pool.c` calls. It is one translation unit; a
long one is compiled as several at once.
"""

import contextlib
import ctypes
import functools
import os
import subprocess
from array import array
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from lamina.core.exchange import Exchange
from lamina.core.options import Options, cache_folder
from lamina.core.rates import COMMON_CPU
from lamina.errors import CompileError, DeviceError
from lamina.runtime import compiler as compilers
from lamina.runtime.buffer import NOTHING, Buffer
from lamina.runtime.cache import DiskCache, digest
from lamina.runtime.collectives import exchanges_of
from lamina.runtime.temporary import private_folder

POOL = Path(__file__).with_name("pool.c")
_L2_SIZE = "/sys/devices/system/cpu/cpu0/cache/index2/size"


def usable_cores() -> int:
    """The cores this process may use."""
    on_linux = hasattr(os, "sched_getaffinity")
    return len(os.sched_getaffinity(0)) if on_linux else os.cpu_count() or 1


@functools.cache
def l2_bytes() -> int:
    """The second-level cache of a core, as the system says; that of `COMMON_CPU`, 1 MiB, where it
    does not."""
    try:
        size = os.sysconf("SC_LEVEL2_CACHE_SIZE")
    except (ValueError, OSError):  # a name that only the C library of Linux has
        size = 0
    if size <= 0:
        with contextlib.suppress(OSError, ValueError):  # "1024K"
            text = Path(_L2_SIZE).read_text(encoding="ascii").strip()
            size = int(text.removesuffix("K")) << 10
    return size if size > 0 else int(COMMON_CPU.levels[1].size)


_cache = functools.cache(DiskCache)


def disk_cache(options: Options) -> DiskCache:
    """The cache of compiled programs: a folder inside the one the options name."""
    return _cache(cache_folder(options) / "cpu")


class CpuProgram:
    """One loaded program."""

    def __init__(
        self,
        source: str,
        options: Options,
        units: tuple[str, ...] = (),
        exchanges: tuple[Exchange, ...] = (),
    ) -> None:
        library = build(source, options, units)
        self.exchanges = exchanges_of(library, exchanges) if exchanges else None
        entry = ctypes.cast(library.lamina_run, ctypes.c_void_p).value
        self._head = entry or 0, options.threads or usable_cores(), usable_cores()
        self.call = build(POOL.read_text(encoding="utf-8"), options).lamina_call  # runs a job
        self.call.restype = None

    def arena(self, nbytes: int) -> Buffer:
        """Memory for the scratch arrays of a run, `nbytes` bytes."""
        return Buffer(nbytes) if nbytes else NOTHING

    def run(self, buffers: Sequence[Buffer], timed: int = 0) -> list[float]:
        """Run the program once; the seconds of each of its kernels, if `timed` is their number.
        Raises as `Exchanges` does where the program has collectives."""
        seconds = array("d", bytes(8 * timed)) if timed else None
        job = self.job(buffers, seconds.buffer_info()[0] if seconds else 0)
        if self.exchanges is None:
            self.call(job)
        else:
            self.exchanges.during(lambda: self.call(job))
        return seconds.tolist() if seconds else []

    def job(self, buffers: Sequence[Buffer], seconds: int = 0) -> ctypes.Array[ctypes.c_uint64]:
        """A `lamina_job`; its last words are the addresses of `buffers`."""
        words = array("Q", [*self._head, seconds, *[one.pointer for one in buffers]])
        return (ctypes.c_uint64 * len(words)).from_buffer_copy(words)


@functools.cache
def build(source: str, options: Options, units: tuple[str, ...] = ()) -> ctypes.CDLL:
    """The library of `source`, loaded, from the disk cache when it is there; `units`: the same
    program in several texts, which are compiled at once. Raises CompileError when the compiler
    refuses it, and CompilerNotFoundError when there is no compiler."""
    compiler = compilers.find(options)
    cache = disk_cache(options)
    key = digest(source, compiler.macros, *compiler.command("", ""))
    with contextlib.suppress(OSError):  # it is damaged: build it again
        if path := cache.load(f"{key}.so"):
            return ctypes.CDLL(str(path))
    source_file = cache.store(f"{key}.c", source.encode())
    path = cache.store(f"{key}.so", _compile(compiler, source_file, units))
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        raise CompileError(f"{compiler}: the library it built does not load: {error}") from None


def library_of(source: str, options: Options, units: tuple[str, ...] = ()) -> bytes:
    """The library of `source`, which is neither kept nor loaded. Raises as `build` does."""
    compiler = compilers.find(options)
    name = digest(source, compiler.macros, *compiler.command("", ""))
    source_file = disk_cache(options).store(f"{name}.c", source.encode())
    return _compile(compiler, source_file, units)


def _compile(compiler: compilers.Compiler, source_file: Path, units: Sequence[str]) -> bytes:
    """Run the compiler outside the cache, so that no half-written library is ever in it."""
    try:
        with private_folder() as folder:
            output = folder / "program.so"
            if len(units) > 1:
                objects = _compile_units(compiler, source_file, units, folder)
                command = compiler.link_command(objects, output)
            else:
                command = compiler.command(source_file, output)
            _check(compiler, _run(command, folder), source_file)
            return output.read_bytes()
    except OSError as error:
        raise DeviceError(f"{compiler} cannot compile: {error}") from error


def _compile_units(
    compiler: compilers.Compiler, source_file: Path, units: Sequence[str], folder: Path
) -> list[Path]:
    """The objects of `units`, as many compiled at once as there are cores."""
    objects, commands = list[Path](), list[list[str]]()
    for number, text in enumerate(units):
        unit, compiled = folder / f"unit{number}.c", folder / f"unit{number}.o"
        unit.write_text(text, encoding="utf-8")
        objects.append(compiled)
        commands.append(compiler.object_command(unit, compiled))
    with ThreadPoolExecutor(usable_cores()) as workers:
        results = workers.map(lambda command: _run(command, folder), commands)
        try:
            for result in results:
                _check(compiler, result, source_file)
        finally:  # where one fails, those that have not begun do not begin
            workers.shutdown(cancel_futures=True)
    return objects


def _run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a compiler, which keeps in `folder` what it needs for a while."""
    return compilers.run(command, TMPDIR=str(folder))


def _check(
    compiler: compilers.Compiler, result: subprocess.CompletedProcess[str], source_file: Path
) -> None:
    """Raise CompileError, at the user's line, where the compiler failed."""
    if result.returncode:
        end = subprocess.CalledProcessError(result.returncode, compiler.path)
        reason = compilers.complaint(result.stderr) or str(end)
        raise CompileError(f"{compiler}: {reason}\n  the source is kept in {source_file}")
