"""C source to running code: compile once, load with ctypes, call with as little as possible.

A program is one translation unit that exports

    void lamina_run(void **buffers, const int64_t *variables, lamina_parallel_fn parallel,
                    double *seconds);

`seconds` is null, or has room for the time of each kernel. `parallel(n, body, arg)` calls
``body(arg, i)`` for every i below n on the pool of `pool.c`; its type is
``void (*)(long n, void (*body)(void *arg, long i), void *arg)``.
"""

from __future__ import annotations

import ctypes
import functools
import os
import re
import signal
import struct
import subprocess
import tempfile
import threading
from array import array
from collections.abc import Callable, Sequence
from pathlib import Path

from lamina.errors import CompileError, CompilerNotFoundError, DeviceError
from lamina.options import Options, cache_folder
from lamina.runtime import compiler as compilers
from lamina.runtime.buffer import Buffer
from lamina.runtime.cache import DiskCache, digest
from lamina.runtime.compiler import Compiler, cpu_identity

_POOL_SOURCE = Path(__file__).with_name("pool.c")
_LIBRARY = ".so"
_SOURCE = ".c"


def usable_cores() -> int:
    """The cores this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on macOS
        return os.cpu_count() or 1


def thread_count(options: Options) -> int:
    """The threads of a parallel loop: `options.threads`, or one a usable core."""
    return options.threads if options.threads > 0 else usable_cores()


@functools.cache
def _cache(folder: Path) -> DiskCache:
    return DiskCache(folder)


def disk_cache(options: Options) -> DiskCache:
    """The cache of compiled programs: a folder inside the one the options name."""
    return _cache(cache_folder(options) / "cpu")


@functools.cache
def _packing(count: int, code: str) -> struct.Struct:
    return struct.Struct(f"{count}{code}")


class Launch:
    """A program with its arguments laid out, for calls without any packing.

    ``launch.pointers[i] = address`` and ``launch.variables[i] = value`` change one argument in
    place. Whoever holds a Launch keeps the memory alive; only one thread may call it at a time.
    """

    __slots__ = ("_run", "pointers", "variables")

    def __init__(
        self, call: Callable[..., None], pointers: Sequence[int], variables: Sequence[int]
    ) -> None:
        self.pointers = array("Q", pointers)
        self.variables = array("q", variables)
        addresses = self.pointers.buffer_info()[0], self.variables.buffer_info()[0]
        self._run = functools.partial(call, *addresses, None)

    def __call__(self) -> None:
        self._run()


class CpuProgram:
    """One loaded translation unit; `load` makes it."""

    __slots__ = ("_call", "_library", "path", "source")

    def __init__(self, source: str, path: Path, library: ctypes.CDLL, options: Options) -> None:
        self.source = source
        self.path = path
        self._library = library
        address = _address(library, "lamina_run", path)
        self._call = functools.partial(
            _pool_call(options), address, thread_count(options), usable_cores()
        )

    @staticmethod
    def load(source: str, options: Options) -> CpuProgram:
        """Compile `source`, or take what was compiled before, and load it.

        Raises CompileError when the compiler refuses the source, and CompilerNotFoundError when
        there is no compiler.
        """
        key = (source, options.cc, options.threads, options.cache_dir)
        program = _programs.get(key)
        if program is None:
            program = CpuProgram(source, *_build(source, options), options)
            program = _programs.setdefault(key, program)  # another thread may have been quicker
        return program

    def run(
        self,
        buffers: Sequence[Buffer],
        variables: Sequence[int] = (),
        kernels: int = 0,
        timed: bool = False,
    ) -> list[float] | None:
        """Run the program once; with `timed`, return the seconds of each of its `kernels`."""
        pointers = _packing(len(buffers), "P").pack(*[buffer.pointer for buffer in buffers])
        values = _packing(len(variables), "q").pack(*variables) if variables else None
        if not timed:
            self._call(pointers, values, None)
            return None
        seconds = array("d", bytes(8 * max(kernels, 1)))
        self._call(pointers, values, seconds.buffer_info()[0])
        return seconds[:kernels].tolist()

    def bind(self, pointers: Sequence[int], variables: Sequence[int] = ()) -> Launch:
        """The program with its arguments laid out once, for running it many times."""
        return Launch(self._call, pointers, variables)


_programs: dict[tuple[str, str, int, str], CpuProgram] = {}
_pool: ctypes.CDLL | None = None
_pool_lock = threading.Lock()


def _pool_call(options: Options) -> Callable[..., None]:
    """``lamina_call`` of this process's only pool."""
    global _pool
    with _pool_lock:
        if _pool is None:
            _pool = _build(_POOL_SOURCE.read_text(encoding="utf-8"), options)[1]
    call = _pool.lamina_call
    call.restype = None
    call.argtypes = (
        ctypes.c_void_p,
        ctypes.c_int,
        ctypes.c_int,
        *[ctypes.c_void_p] * 3,  # buffers, variables, seconds
    )
    return call


def _address(library: ctypes.CDLL, name: str, path: Path) -> int:
    try:
        return ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0
    except AttributeError:
        raise CompileError(f"{path} does not export {name}") from None


def _build(source: str, options: Options) -> tuple[Path, ctypes.CDLL]:
    """The library of `source` and its file, from the disk cache when it is there."""
    compiler = compilers.find(options)
    cache = disk_cache(options)
    key = digest(source, compiler.path, str(compiler), *compiler.flags(), cpu_identity())
    path = cache.load(key, _LIBRARY)
    if path is not None:
        try:
            return path, ctypes.CDLL(str(path))
        except OSError:
            cache.remove(key, _LIBRARY)
    source_file = cache.store(key, _SOURCE, source.encode())
    path = cache.store(key, _LIBRARY, functools.partial(_compile, compiler, source_file))
    try:
        return path, ctypes.CDLL(str(path))
    except OSError as error:
        raise CompileError(f"{compiler}: the library it built does not load: {error}") from None


def _compile(compiler: Compiler, source_file: Path) -> bytes:
    """Run the compiler outside the cache, so that no half-written library is ever in it."""
    try:
        with tempfile.TemporaryDirectory(prefix="lamina-") as folder:
            output = Path(folder) / "program.so"
            result = _run_compiler(compiler, compiler.command(source_file, output))
            if result.returncode or not output.exists():
                raise CompileError(_complaint(compiler, result, source_file))
            return output.read_bytes()
    except OSError as error:
        raise DeviceError(f"no room for compiling: {error.strerror or error}") from error


def _run_compiler(compiler: Compiler, command: list[str]) -> subprocess.CompletedProcess[str]:
    try:
        return compilers.run(command)
    except OSError as error:
        compilers.forget()
        raise CompilerNotFoundError(
            f"{compiler.path} does not run any more: {error.strerror or error}; "
            f"to fix it: {compilers.remedy()}"
        ) from None


def _complaint(
    compiler: Compiler, result: subprocess.CompletedProcess[str], source_file: Path
) -> str:
    """What went wrong in three lines: the first error, the source line, the file."""
    kept = f"  the source is kept in {source_file}"
    place = re.escape(str(source_file))
    pattern = rf"^{place}:(\d+):(?:\d+:)? (?:\w+ )*error: (.*)$"
    error = re.search(pattern, result.stderr, re.MULTILINE)
    if error:
        number = int(error[1])
        line = source_file.read_text(encoding="utf-8").splitlines()[number - 1]
        return f"{compiler}: {error[2]}\n  line {number}: {line.strip()}\n{kept}"
    if result.returncode < 0:
        reason = f"it was killed by {signal.Signals(-result.returncode).name}"
    elif result.stderr.strip():
        reason = next(filter(None, map(str.strip, result.stderr.splitlines())))
    elif result.returncode:
        reason = f"it ended with status {result.returncode} and said nothing"
    else:
        reason = "it ended well but wrote no library"
    return f"{compiler}: {reason}\n{kept}"
