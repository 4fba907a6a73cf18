"""Finding a C compiler and knowing how to call it."""

import functools
import importlib.util
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from lamina.core.options import Options
from lamina.errors import CompilerNotFoundError
from lamina.runtime.tile_registers import may_use_tiles

REMEDY = "pip install ziglang (or install gcc or clang)"
_CANDIDATES = ("clang", "gcc", "cc", "ziglang")
_X86 = platform.machine().lower() in ("x86_64", "amd64")
_NATIVE = "-march=native" if _X86 else "-mcpu=native"  # all that this machine's CPU has


class Compiler(NamedTuple):
    """A C compiler that answered."""

    path: str
    kind: str  # "gcc", "clang" or "zig" (clang inside zig's driver)
    version: str
    macros: str = ""  # that it predefines: what it is, and what this machine's CPU has

    def __str__(self) -> str:
        return f"{self.kind} {self.version}"

    @property
    def vector_bytes(self) -> int:
        """The width of this CPU's vector registers in bytes."""
        widths = {"__AVX512F__": 64, "__AVX2__": 32}
        return next((width for name, width in widths.items() if name in self.macros), 16)

    @property
    def engines(self) -> frozenset[str]:
        """What this CPU has beside vectors: see `lamina.core.target.Target`."""
        of_dots = ("__AVX512VNNI__", "__AVXVNNI__")
        engines = set[str]()
        if any(name in self.macros for name in of_dots):
            engines.add("unsigned_by_signed")
        if "__AMX_INT8__" in self.macros and may_use_tiles():
            engines.add("byte_tiles")
        return frozenset(engines)

    def command(self, source: Path | str, output: Path | str) -> list[str]:
        """What turns a C file into a shared library. No fast-math: the rounding tricks of generated
        code need ordered arithmetic. Integers wrap, and memory changes its type, so both are made
        defined. GCC 12 loses products of vectors where it converts the branches of loops."""
        flags = [
            "-O2", _NATIVE, "-shared", "-fPIC", "-std=gnu11", "-w", "-pthread",
            "-fno-math-errno", "-fwrapv", "-fno-strict-aliasing",
        ]  # fmt: skip
        if self.kind == "gcc":  # which carries what neighbouring rows share, and then spills
            flags += ["-fno-predictive-commoning", "-fno-tree-loop-if-convert", "-fpeel-loops"]
            flags.append("--param=max-completely-peel-times=2")  # of two or three iterations
        elif "__x86_64__" in self.macros:
            flags.append("-mprefer-vector-width=512")
        if self.kind == "zig":
            flags = ["cc", *flags, "-g0", "-fomit-frame-pointer", "-fno-sanitize=undefined"]
        return [self.path, *flags, str(source), "-o", str(output), "-lm"]

    def object_command(self, source: Path, output: Path) -> list[str]:
        """What turns one of the C files of a library into an object, whose kernels are known inside
        the library alone."""
        of_library = self.command(source, output)
        flags = [part for part in of_library if part not in ("-shared", "-lm")]
        return [*flags, "-c", '-DLINKAGE=__attribute__((visibility("hidden")))']

    def link_command(self, objects: Sequence[Path], output: Path) -> list[str]:
        """What makes a shared library of `objects`."""
        command = self.command(objects[0], output)
        after_first = command.index("-o")
        others = [str(path) for path in objects[1:]]
        return [*command[:after_first], *others, *command[after_first:]]


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


def survey(named: str = "") -> Iterator[tuple[str, Compiler | str]]:
    """Every candidate with the compiler it is, or the reason why it cannot be used."""
    for name in [named] if named else _CANDIDATES:
        yield name, _probe(name)


@functools.cache  # what does not work is not asked again for every program
def _probe(name: str) -> Compiler | str:
    """Ask a program what it predefines; its own name proves nothing (cc, gcc on macOS)."""
    if name == "ziglang" and (package := importlib.util.find_spec(name)):
        # Calling the package's binary saves a start of Python.
        name = os.path.join(*(package.submodule_search_locations or ()), "zig")
    path = shutil.which(os.path.expanduser(name)) or name
    driver = ["cc"] if Path(path).stem == "zig" else []
    try:
        answer = run([path, *driver, _NATIVE, "-dM", "-E", "-x", "c", os.devnull])
    except OSError as error:
        return f"{path} does not run: {error.strerror}"
    macros = dict(re.findall(r'#define (\w+) "?([^"\n]*)', answer.stdout))
    if answer.returncode or "__VERSION__" not in macros:
        said = (answer.stderr or answer.stdout).strip().partition("\n")[0]
        return f"{path} ended with status {answer.returncode} and is no gcc or clang: {said}"
    kind = "zig" if driver else "clang" if "__clang_version__" in macros else "gcc"
    version = macros.get("__clang_version__") or macros["__VERSION__"]
    return Compiler(path, kind, version.strip(), answer.stdout)


def run(command: list[str], **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a compiler, with more environment `variables`, and keep what it says, in English whatever
    the user's language."""
    return subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8",
        errors="replace", env={**os.environ, "LC_ALL": "C", **variables}, check=False,
    )  # fmt: skip


def complaint(log: str) -> str:
    """The first error that a compiler's `log` has, and the lines that explain it."""
    lines = log.strip("\0\n ").splitlines()
    first = next((at for at, line in enumerate(lines) if "error" in line), 0)
    return "\n  ".join(lines[first : first + 3])
