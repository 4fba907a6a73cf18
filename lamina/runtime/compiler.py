"""Finding a C compiler and knowing how to call it."""

from __future__ import annotations

import functools
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from lamina.errors import CompilerNotFoundError
from lamina.options import Options

_ON_PATH = ("clang", "gcc", "cc")
_ANSWER_SECONDS = 30  # a compiler on a cold network disk may take a while to say its version
_CPU_FIELDS = {  # x86, then Arm
    "vendor_id", "cpu family", "model", "model name", "stepping", "flags",
    "CPU implementer", "CPU variant", "CPU part", "Features",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Compiler:
    """A C compiler that answered: its program, its family and its version.

    kind: "gcc", "clang" or "zig" (clang inside zig's driver).
    """

    path: str
    kind: str
    version: str

    def __str__(self) -> str:
        return f"{self.kind} {self.version}"

    def flags(self) -> tuple[str, ...]:
        """The options of every compilation.

        No fast-math: the rounding tricks of generated code need ordered arithmetic. Integers
        wrap, and memory changes its type from kernel to kernel, so both are made defined.
        """
        x86 = platform.machine().lower() in ("x86_64", "amd64")
        flags = [
            "-O2",
            "-march=native" if x86 else "-mcpu=native",
            *("-shared", "-fPIC", "-std=gnu11", "-w", "-pthread"),
            *("-fno-math-errno", "-fwrapv", "-fno-strict-aliasing"),
        ]
        if x86 and self.kind != "gcc":
            flags.append("-mprefer-vector-width=512")
        if self.kind == "zig":
            flags += ["-g0", "-fomit-frame-pointer", "-fno-sanitize=undefined"]
        return tuple(flags)

    def command(self, source: Path | str, output: Path | str) -> list[str]:
        """The command line that turns a C file into a shared library."""
        driver = [self.path, "cc"] if self.kind == "zig" else [self.path]
        return [*driver, *self.flags(), str(source), "-o", str(output), "-lm"]


@functools.cache
def cpu_identity() -> str:
    """What ``-march=native`` depends on: the machine, the CPU's model and its features."""
    lines = [platform.system(), platform.machine()]
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return "\n".join([*lines, platform.processor(), platform.version()])
    for line in text.split("\n\n")[0].splitlines():
        if line.partition(":")[0].strip() in _CPU_FIELDS:
            lines.append(line)
    return "\n".join(lines)


def find(options: Options) -> Compiler:
    """The compiler to use: the one `options.cc` names, or else the first of `survey` that works.

    Raises CompilerNotFoundError, saying what was tried, when there is none. A compiler that was
    named and does not work is an error: another one is not taken in its place.
    """
    return _find(options.cc)


def forget() -> None:
    """Look again at the next `find`, for when compilers came or went."""
    _find.cache_clear()


@functools.cache
def _find(named: str) -> Compiler:
    tried = []
    for name, result in survey(named):
        if isinstance(result, Compiler):
            return result
        tried.append(f"  {name}: {result}")
    title = f"LAMINA_CC={named} does not work" if named else "no working C compiler"
    raise CompilerNotFoundError("\n".join([f"{title}; tried", *tried, f"to fix it: {remedy()}"]))


def remedy() -> str:
    """The command that gives this machine a compiler."""
    command = "pip install ziglang"
    if sys.platform == "darwin":
        return f"{command} (or: xcode-select --install)"
    if shutil.which("apt-get"):
        return f"{command} (or: apt-get install gcc libc6-dev)"
    return f"{command} (or install gcc or clang)"


def survey(named: str = "") -> Iterator[tuple[str, Compiler | str]]:
    """Every candidate with the compiler it is, or the reason why it cannot be used."""
    if named:
        yield named, _probe(os.path.expanduser(named))
        return
    for name in _ON_PATH:
        yield name, _probe(name)
    zig = _zig_program()
    yield "ziglang", "the package is not installed" if zig is None else _probe(str(zig))


def _zig_program() -> Path | None:
    """The zig binary inside the ``ziglang`` package; calling it directly saves a Python start."""
    spec = importlib.util.find_spec("ziglang")
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(spec.submodule_search_locations[0]) / ("zig.exe" if os.name == "nt" else "zig")


def _probe(name: str) -> Compiler | str:
    """Ask a program who it is."""
    path = shutil.which(name)
    if path is None:
        if os.path.exists(name):
            return f"{name} is not an executable file"
        return f"{name} does not exist" if os.sep in name else "not on PATH"
    is_zig = Path(path).stem == "zig"
    question = [path, *(["cc"] if is_zig else []), "--version"]
    try:
        answer = run(question, timeout=_ANSWER_SECONDS)
    except (OSError, subprocess.SubprocessError) as error:
        return f"{path} does not run: {_reason(error)}"
    if answer.returncode:
        complaint = (answer.stderr or answer.stdout).strip().partition("\n")[0]
        return f"{path} --version ended with status {answer.returncode}: {complaint}".rstrip(": ")
    return _identify(path, answer.stdout, is_zig)


def _identify(path: str, text: str, is_zig: bool) -> Compiler | str:
    """Read the answer to ``--version``; the program's name proves nothing (cc, gcc on macOS)."""
    clang = re.search(r"clang version (\S+)", text)
    if clang:
        return Compiler(path, "zig" if is_zig else "clang", clang[1])
    if "Free Software Foundation" in text or "gcc" in text.lower():
        versions = re.findall(r"\d+\.\d+[.\d]*", text.partition("\n")[0])
        if versions:
            return Compiler(path, "gcc", versions[-1])
    return f"{path} is neither gcc nor clang: it says {text.partition(chr(10))[0]!r}"


def _reason(error: Exception) -> str:
    if isinstance(error, subprocess.TimeoutExpired):
        return f"no answer in {_ANSWER_SECONDS} seconds"
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)


def run(command: list[str], timeout: float | None = None) -> subprocess.CompletedProcess[str]:
    """Run a compiler and keep what it says, in English whatever the user's language."""
    return subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        timeout=timeout,
        env={**os.environ, "LC_ALL": "C"},
        check=False,
    )


@functools.cache
def vector_bytes() -> int:
    """The width of this CPU's vector registers in bytes."""
    flags = cpu_identity().split()
    if "avx512f" in flags:
        return 64
    return 32 if "avx2" in flags else 16
