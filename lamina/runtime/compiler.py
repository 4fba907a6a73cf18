"""Finding a C compiler and knowing how to call it."""

from __future__ import annotations

import functools
import importlib.util
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from lamina.errors import CompilerNotFoundError
from lamina.options import Options

REMEDY = "pip install ziglang (or install gcc or clang)"
_CANDIDATES = ("clang", "gcc", "cc", "ziglang")
_ANSWER_SECONDS = 30  # a compiler on a cold network disk may take a while to say its version
_CPU_FIELDS = re.compile(  # of x86, then of Arm
    r"^(?:vendor_id|cpu family|model|model name|stepping|flags|CPU \w+|Features)\s*:.*$", re.M
)


class Compiler(NamedTuple):
    """A C compiler that answered."""

    path: str
    kind: str  # "gcc", "clang" or "zig" (clang inside zig's driver)
    version: str

    def __str__(self) -> str:
        return f"{self.kind} {self.version}"

    def command(self, source: Path | str, output: Path | str) -> list[str]:
        """What turns a C file into a shared library. No fast-math: the rounding tricks of generated
        code need ordered arithmetic. Integers wrap, and memory changes its type, so both are made
        defined."""
        x86 = platform.machine().lower() in ("x86_64", "amd64")
        flags = [
            "-O2", "-march=native" if x86 else "-mcpu=native", "-shared", "-fPIC", "-std=gnu11",
            "-w", "-pthread", "-fno-math-errno", "-fwrapv", "-fno-strict-aliasing",
        ]  # fmt: skip
        if self.kind == "gcc":  # which carries what neighbouring rows share, and then spills
            flags.append("-fno-predictive-commoning")
        elif x86:
            flags.append("-mprefer-vector-width=512")
        if self.kind == "zig":
            flags = ["cc", *flags, "-g0", "-fomit-frame-pointer", "-fno-sanitize=undefined"]
        return [self.path, *flags, str(source), "-o", str(output), "-lm"]


@functools.cache
def cpu_identity() -> str:
    """What ``-march=native`` depends on: the machine, the CPU's model and its features."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
        features = _CPU_FIELDS.findall(text.partition("\n\n")[0])
    except OSError:
        features = [platform.processor(), platform.version()]
    return "\n".join([platform.system(), platform.machine(), *features])


@functools.cache
def vector_bytes() -> int:
    """The width of this CPU's vector registers in bytes."""
    widths = {"avx512f": 64, "avx2": 32}
    return max(widths.get(flag, 16) for flag in cpu_identity().split())


@functools.cache
def find(options: Options) -> Compiler:
    """The compiler that `options.cc` names, or, where it names none, the first that works. Raises
    CompilerNotFoundError, saying what was tried, when that one does not work, or none does."""
    tried = []
    for name, result in survey(options.cc):
        if isinstance(result, Compiler):
            return result
        tried.append(f"  {name}: {result}")
    title = f"LAMINA_CC={options.cc} does not work" if options.cc else "no working C compiler"
    raise CompilerNotFoundError("\n".join([f"{title}; tried", *tried, f"to fix it: {REMEDY}"]))


forget = find.cache_clear  # for when compilers came or went


def survey(named: str = "") -> Iterator[tuple[str, Compiler | str]]:
    """Every candidate with the compiler it is, or the reason why it cannot be used."""
    for name in [named] if named else _CANDIDATES:
        yield name, _probe(name)


def _probe(name: str) -> Compiler | str:
    """Ask a program who it is; its own name proves nothing (cc, gcc on macOS)."""
    if name == "ziglang":  # calling the package's binary saves a start of Python
        package = importlib.util.find_spec(name)
        if package is None or not package.submodule_search_locations:
            return "the package is not installed"
        name = os.path.join(package.submodule_search_locations[0], "zig")
    path = shutil.which(os.path.expanduser(name))
    if path is None:
        if os.sep not in name:
            return "not on PATH"
        return f"{name} {'is not an executable file' if os.path.exists(name) else 'does not exist'}"
    driver = ["cc"] if Path(path).stem == "zig" else []
    try:
        answer = run([path, *driver, "--version"], timeout=_ANSWER_SECONDS)
    except OSError as error:
        return f"{path} does not run: {error.strerror}"
    except subprocess.TimeoutExpired as error:
        return str(error)
    if answer.returncode:
        complaint = (answer.stderr or answer.stdout).strip().partition("\n")[0]
        return f"{path} --version ended with status {answer.returncode}: {complaint}".rstrip(": ")
    if clang := re.search(r"clang version (\S+)", answer.stdout):
        return Compiler(path, "zig" if driver else "clang", clang[1])
    first = answer.stdout.partition("\n")[0]
    gcc = re.search(r"Free Software Foundation|gcc", answer.stdout, re.IGNORECASE)
    if gcc and (versions := re.findall(r"\d+\.\d+[.\d]*", first)):
        return Compiler(path, "gcc", versions[-1])
    return f"{path} is neither gcc nor clang: it says {first!r}"


def run(command: list[str], timeout: float | None = None) -> subprocess.CompletedProcess[str]:
    """Run a compiler and keep what it says, in English whatever the user's language."""
    return subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8",
        errors="replace", timeout=timeout, env={**os.environ, "LC_ALL": "C"}, check=False,
    )  # fmt: skip
