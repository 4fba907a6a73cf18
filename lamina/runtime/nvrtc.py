"""NVRTC, NVIDIA's compiler: the text of a kernel becomes a cubin, which the disk cache keeps.

Each kernel is compiled by itself, behind what it needs of the program's prelude, and under a name
without its number in the program (`symbol_of`). So programs that have a kernel in common share its
cubin: a forward pass, and that of a training step, often do.
"""

from __future__ import annotations

import re
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from lamina.core.options import Options
from lamina.errors import CompileError, CompilerNotFoundError
from lamina.runtime.cache import digest
from lamina.runtime.compiler import complaint
from lamina.runtime.cpu import disk_cache, usable_cores
from lamina.runtime.source import KERNELS, Source, located, symbol_of

PACKAGES = "pip install cuda-bindings nvidia-cuda-nvrtc"


def build(source: Source, arch: str, options: Options) -> dict[str, bytes]:
    """A cubin of each kernel of `source`, by its name, from the disk cache when it is there. Others
    are compiled beside each other, on all cores, the longest first, as none should begin when all
    others are done. Raises CompilerNotFoundError without NVIDIA's packages."""
    cache = disk_cache(options)
    version = str(_nvrtc().nvrtcVersion())

    def cubin(text: str) -> bytes:
        file = f"{digest(text, arch, version)}.cubin"
        path = cache.load(file)
        if path is None:
            path = cache.store(file, compile_source(text, arch))
        return path.read_bytes()

    texts = {name: text_alone(source, name) for name in source.kernels}
    futures: dict[str, Future[bytes]] = {}
    with ThreadPoolExecutor(usable_cores()) as threads:
        for text in sorted(set(texts.values()), key=lambda text: -len(text)):
            futures[text] = threads.submit(cubin, text)
        for name, text in texts.items():
            try:
                futures[text].result()
            except CompileError as error:  # raised again here, where the user's line can be seen
                threads.shutdown(cancel_futures=True)
                problem = error.problem.replace(f"kernel {symbol_of(name)}", f"kernel {name}")
                raise CompileError(problem) from None
    return {name: futures[text].result() for name, text in texts.items()}


def text_alone(source: Source, name: str) -> str:
    """The translation unit of one kernel, whose name there is `symbol_of` it."""
    symbol = symbol_of(name)
    kernel = re.sub(rf"\b{name}\b", symbol, source.kernels[name])
    return f"{source.prelude_of(name)}\n{KERNELS}\n{located(symbol, kernel)}"


def _nvrtc() -> Any:
    """NVIDIA's compiler. Raises CompilerNotFoundError where it is not installed."""
    try:
        from cuda.bindings import nvrtc

        nvrtc.nvrtcVersion()
    except (ImportError, RuntimeError):  # of the bindings, of the library
        raise CompilerNotFoundError(
            "NVRTC is not installed", operation="cuda", remedy=PACKAGES
        ) from None
    return nvrtc


def compile_source(source: str, arch: str) -> bytes:
    """NVRTC's cubin of `source`. Raises CompileError with its first complaint, and
    CompilerNotFoundError without NVIDIA's packages; needs no GPU."""
    nvrtc = _nvrtc()
    _, program = nvrtc.nvrtcCreateProgram(source.encode(), b"program.cu", 0, [], [])
    flags = [f"--gpu-architecture={arch}".encode(), b"--std=c++17", b"-default-device"]
    (code,) = nvrtc.nvrtcCompileProgram(program, len(flags), flags)
    getter = f"nvrtcGet{'ProgramLog' if code else 'CUBIN'}"
    result = bytes(getattr(nvrtc, f"{getter}Size")(program)[1])
    getattr(nvrtc, getter)(program, result)
    nvrtc.nvrtcDestroyProgram(program)
    if code:
        reason = complaint(result.decode(errors="replace")) or code.name
        supported = nvrtc.nvrtcGetSupportedArchs()[-1]
        if int("".join(filter(str.isdecimal, arch)) or 0) < min(supported):
            names = ", ".join(f"sm_{number}" for number in supported)
            reason = f"this NVRTC compiles for {names}; install nvidia-cuda-nvrtc of an older CUDA"
        raise CompileError(f"NVRTC, for {arch}: {reason}")
    return result
