"""Compile a program in the Metal Shading Language for this machine, and run its grids.

`Library` loads a program into this process, where a launch reads and writes memory by address.
`run_apart` runs one in a process of its own, under AddressSanitizer or ThreadSanitizer.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tests.msl.lint import lint

CLANG, CLANGXX = "clang-19", "clang++-19"
INSTALL = "apt-get install clang-19"
THREADGROUP_MEMORY = 32 << 10  # bytes, on every GPU of Apple
MOST_THREADS = 1024
MOST_BUFFERS = 31
TSAN_THREADS = 128

_HERE = Path(__file__).parent
_LANGUAGE = [
    "-x", "clcpp", "-cl-std=clc++2021", "-cl-no-stdinc", "-Xclang",
    "-cl-ext=+cl_khr_fp16,+cl_khr_fp64,-__opencl_c_fp64,-cl_khr_fp64",
    "--target=x86_64-linux-gnu", "-isystem", str(_HERE / "shim"), "-Wno-unknown-attributes",
    "-ffp-contract=off", "-fwrapv", "-Xclang", "-ffloat16-excess-precision=none", "-Xclang",
    "-fbfloat16-excess-precision=none", "-O1", "-fPIC",
]  # fmt: skip
_SANITIZERS = {
    "address": ["-fsanitize=address,bounds,shift,integer-divide-by-zero", "-g1"],
    "thread": ["-fsanitize=thread", "-DMSL_THREADS", "-g1"],
}
_FIELDS = {
    "thread_position_in_threadgroup": "c->thread[{0}]",
    "threadgroup_position_in_grid": "c->group[{0}]",
    "threads_per_threadgroup": "c->threads[{0}]",
    "threadgroups_per_grid": "c->groups[{0}]",
    "thread_position_in_grid": "c->group[{0}] * c->threads[{0}] + c->thread[{0}]",
    "thread_index_in_threadgroup": "c->number",
    "thread_index_in_simdgroup": "c->lane",
    "simdgroup_index_in_threadgroup": "c->simdgroup",
    "simdgroups_per_threadgroup": "c->simdgroups",
}
_CONTEXT = """
#line 1 "entry points"
struct msl_context {
    uint thread_[3], group[3], threads[3], groups[3], number, lane, simdgroup, simdgroups;
};
"""


class MslError(Exception):
    """What Metal would refuse to compile, or must not be run; the text says where."""


class Argument(NamedTuple):
    """One parameter of a kernel: a buffer at `index`, or the name of a builtin."""

    kind: str
    index: int
    declared: str  # its type


class Kernel(NamedTuple):
    """A kernel's parameters, and the most threads of a threadgroup that it may have."""

    name: str
    arguments: tuple[Argument, ...]
    most_threads: int

    @property
    def buffers(self) -> tuple[int, ...]:
        """The indices of its buffers."""
        return tuple(one.index for one in self.arguments if one.kind == "buffer")


def available() -> bool:
    """Whether this machine has the compiler."""
    return shutil.which(CLANG) is not None


@functools.cache
def _folder() -> Path:
    """A folder for what is compiled, gone with the process."""
    folder = tempfile.TemporaryDirectory(prefix="lamina-msl-")
    _KEPT.append(folder)
    return Path(folder.name)


_KEPT: list[tempfile.TemporaryDirectory[str]] = []


def preprocessed(source: str) -> str:
    """`source` without macros. Only Metal's own headers may be included; these stay outside."""
    for header in re.findall(r"^[ \t]*#[ \t]*include\s*(.*)", source, re.MULTILINE):
        if header.strip() != "<metal_stdlib>":
            raise MslError(f"#include {header}: the emulator has metal_stdlib alone")
    text = re.sub(r"^[ \t]*#[ \t]*include", "// include", source, flags=re.MULTILINE)
    flags = ["-E", "-x", "c++", "-nostdinc", "-undef", "-D__METAL_VERSION__=310", "-"]
    return _run([CLANG, *flags], f'#line 1 "program_source"\n{text}')


def kernels_of(text: str) -> dict[str, Kernel]:
    """The kernels of a preprocessed program by name."""
    found = {}
    for match in re.finditer(r"(\[\[[^;{}]*?\]\]\s*)?\bkernel\s+void\s+(\w+)\s*\(", text):
        attributes, name = match[1] or "", match[2]
        most = re.search(r"max_total_threads_per_threadgroup\((\d+)\)", attributes)
        parameters = _between_brackets(text, match.end())
        arguments = tuple(_argument(one, name) for one in _split(parameters))
        found[name] = Kernel(name, arguments, int(most[1]) if most else MOST_THREADS)
    return found


def _between_brackets(text: str, start: int) -> str:
    depth, at = 1, start
    while depth:
        depth += (text[at] == "(") - (text[at] == ")")
        at += 1
    return text[start : at - 1]


def _split(parameters: str) -> list[str]:
    """`parameters` at the commas outside of all brackets."""
    parts, depth = [""], 0
    for letter in parameters:
        depth += (letter in "(<[") - (letter in ")>]")
        if letter == "," and not depth:
            parts.append("")
        else:
            parts[-1] += letter
    return [one.strip() for one in parts if one.strip()]


def _argument(text: str, kernel: str) -> Argument:
    match = re.fullmatch(r"(.*?)(\w+)\s*\[\[\s*(\w+)\s*(?:\(\s*(\d+)\s*\))?\s*\]\]", text, re.S)
    if match is None:
        raise MslError(f"kernel {kernel}: {text!r} has no attribute that says what it is")
    declared, _, kind, index = match.groups()
    if kind == "buffer" and not re.search(r"\b(device|constant)\b", declared):
        raise MslError(f"kernel {kernel}: the buffer {text!r} is neither device nor constant")
    if kind == "buffer" and int(index) >= MOST_BUFFERS:
        raise MslError(f"kernel {kernel}: {text!r}: buffers have indices up to {MOST_BUFFERS - 1}")
    if kind not in ("buffer", *_FIELDS):
        raise MslError(f"kernel {kernel}: {kind!r} is no attribute that the emulator knows")
    return Argument(kind, int(index or 0), declared.strip())


def _entry(kernel: Kernel) -> str:
    """A function that calls a kernel with its arguments from a table, and a thread's place."""
    values = []
    for kind, index, declared in kernel.arguments:
        if kind == "buffer":
            pointer = declared.removesuffix("&").strip() + ("*" if declared.endswith("&") else "")
            values.append(f"{'*' if declared.endswith('&') else ''}({pointer})b[{index}]")
            continue
        field = _FIELDS[kind].replace("c->thread[", "c->thread_[")
        size = int(re.sub(r"\D", "", declared) or 1)
        parts = ", ".join(field.format(side) for side in range(size))
        values.append(f"({declared})({parts})")
    head = f'extern "C" void msl_entry_{kernel.name}(thread ulong *b, thread msl_context *c)'
    return f"{head} {{ {kernel.name}({', '.join(values)}); }}\n"


def _run(command: Sequence[object], given: str = "") -> str:
    words = [*map(str, command)]
    done = subprocess.run(words, input=given, capture_output=True, text=True, check=False)
    if done.returncode:
        raise MslError(done.stderr.strip() or f"{command[0]}: exit code {done.returncode}")
    return done.stdout


@functools.cache
def _engine(kind: str) -> Path:
    """The engine as a library, or as an object with a main function for a sanitizer."""
    flags = ["-c", "-DMSL_MAIN", *_SANITIZERS[kind]] if kind else ["-shared"]
    target = _folder() / f"engine-{kind or 'plain'}.{'o' if kind else 'so'}"
    _run([CLANGXX, "-std=c++17", "-O2", "-fPIC", *flags, _HERE / "engine.cpp", "-o", target])
    return target


@functools.cache
def compile_source(source: str, kind: str = "") -> tuple[Path, dict[str, Kernel]]:
    """What `source` compiles to, a library or with a sanitizer's name a program, and its kernels.
    Raises MslError with the complaints of the lint, or of clang."""
    plain = preprocessed(source)
    if complaints := lint(plain):
        raise MslError("\n".join(f"program_source:{one.line}:1: error: {one.text}"
                                 for one in complaints))  # fmt: skip
    kernels = kernels_of(plain)
    engine, name = _engine(kind), hashlib.blake2b(source.encode(), digest_size=10).hexdigest()
    text = _folder() / f"{name}.metal"
    target, part = _folder() / f"{name}{kind and '-' + kind}.so", _folder() / f"{name}-{kind}.o"
    entries = "".join(map(_entry, kernels.values()))
    text.write_text(f"#include <metal_stdlib>\n{plain}\n{_CONTEXT}{entries}", encoding="utf-8")
    flags = _SANITIZERS.get(kind, ["-ftrivial-auto-var-init=pattern"])
    if kind:
        _run([CLANG, *_LANGUAGE, *flags, "-c", text, "-o", part])
        link = ["-rdynamic", part, engine, "-ldl", "-lpthread", "-lm"]
        _run([CLANGXX, flags[0], *link, "-o", target])
    else:
        _run([CLANG, *_LANGUAGE, *flags, "-shared", text, "-lm", "-o", target])
    for kernel in kernels.values():
        size = sum(size for _, size in _regions(target, kernel.name))
        if size > THREADGROUP_MEMORY and not kind:
            raise MslError(
                f"kernel {kernel.name}: {size} bytes of threadgroup memory; "
                f"there are {THREADGROUP_MEMORY}"
            )
    return target, kernels


@functools.cache
def _symbols(path: Path) -> list[tuple[int, int, str]]:
    rows = (line.split() for line in _run(["nm", "-S", path]).splitlines())
    full = (row for row in rows if len(row) == 4)
    return [(int(start, 16), int(size, 16), name) for start, size, _, name in full]


def _regions(path: Path, kernel: str) -> list[tuple[int, int]]:
    """Where the threadgroup variables of a kernel are, seen from its entry point, and how large."""
    base = next(start for start, _, name in _symbols(path) if name == f"msl_entry_{kernel}")
    return [(start - base, size) for start, size, name in _symbols(path)
            if name.startswith(f"_ZZ{len(kernel)}{kernel}E")]  # fmt: skip


class _Region(ctypes.Structure):
    _fields_ = (("start", ctypes.c_void_p), ("size", ctypes.c_uint64))


class _Launch(ctypes.Structure):
    _fields_ = (
        ("entry", ctypes.c_void_p), ("buffers", ctypes.c_void_p), ("groups", ctypes.c_uint32 * 3),
        ("threads", ctypes.c_uint32 * 3), ("regions", ctypes.c_void_p),
        ("region_count", ctypes.c_uint32), ("seed", ctypes.c_uint32),
    )  # fmt: skip


class Library:
    """A program in this process. Raises MslError if Metal would not compile it."""

    def __init__(self, source: str) -> None:
        path, self.kernels = compile_source(source)
        self._engine = ctypes.CDLL(str(_engine("")), mode=ctypes.RTLD_GLOBAL)
        self._engine.msl_run.restype = ctypes.c_char_p
        self._code = ctypes.CDLL(str(path))
        self._regions = {name: _regions(path, name) for name in self.kernels}

    def launch(
        self, name: str, buffers: Mapping[int, int], groups: Sequence[int],
        threads: Sequence[int], seed: int = 0,
    ) -> None:  # fmt: skip
        """Run a grid; `buffers` has an address for each index. Raises MslError for what must not
        happen in one."""
        kernel = self.kernels[name]
        check_launch(kernel, buffers, groups, threads)
        table = (ctypes.c_uint64 * MOST_BUFFERS)()
        for index, address in buffers.items():
            table[index] = address
        entry = ctypes.cast(getattr(self._code, f"msl_entry_{name}"), ctypes.c_void_p).value or 0
        regions = [_Region(entry + offset, size) for offset, size in self._regions[name]]
        launch = _Launch(
            entry, ctypes.addressof(table), tuple(groups), tuple(threads),
            ctypes.addressof(array := (_Region * len(regions))(*regions)), len(regions), seed,
        )  # fmt: skip
        failure = self._engine.msl_run(ctypes.byref(launch))
        del array
        if failure:
            raise MslError(f"kernel {name}: {failure.decode()}")


def check_launch(
    kernel: Kernel, buffers: Mapping[int, object], groups: Sequence[int], threads: Sequence[int]
) -> None:
    """Raise MslError unless the grid has threads, and the kernel all of its buffers."""
    count = int(np.prod(threads))
    if not 0 < count <= kernel.most_threads or min(groups) < 1:
        raise MslError(
            f"kernel {kernel.name}: {tuple(groups)} threadgroups of {tuple(threads)} threads; "
            f"it takes from 1 to {kernel.most_threads} threads"
        )
    if missing := set(kernel.buffers) - set(buffers):
        raise MslError(f"kernel {kernel.name}: no buffer is bound to {sorted(missing)}")


class Job(NamedTuple):
    """One launch of `run_apart`: for each argument the number of a buffer and an offset."""

    kernel: str
    groups: tuple[int, int, int]
    threads: tuple[int, int, int]
    arguments: tuple[tuple[int, int], ...]


def run_apart(
    source: str, buffers: Sequence[np.ndarray], jobs: Sequence[Job], sanitizer: str, seed: int = 0
) -> list[np.ndarray]:
    """Run `jobs` in a process of their own with a ``"thread"`` or ``"address"`` sanitizer: what
    the buffers hold then. Each buffer is an allocation of its own, of exactly its size. Raises
    MslError with the report. ThreadSanitizer knows few threads at a time, and misses races of
    more, so threadgroups must be small."""
    program, kernels = compile_source(source, sanitizer)
    with tempfile.TemporaryDirectory(dir=_folder()) as folder:
        files = [Path(folder) / str(number) for number in range(len(buffers))]
        lines = []
        for file, array in zip(files, buffers, strict=True):
            file.write_bytes(array.tobytes())
            lines.append(f"buffer {array.nbytes} {file}")
        for name in kernels:
            regions = _regions(program, name) if sanitizer != "address" else ()
            lines += [f"region {name} {offset} {size}" for offset, size in regions]
        for name, groups, threads, arguments in jobs:
            check_launch(kernels[name], dict(enumerate(arguments)), groups, threads)
            if sanitizer == "thread" and threads[0] > TSAN_THREADS:
                raise ValueError(f"{threads} threads are more than {TSAN_THREADS}")
            numbers = (*groups, *threads, seed, *(number for pair in arguments for number in pair))
            lines.append(f"launch {name} {' '.join(map(str, numbers))}")
        script = Path(folder) / "jobs"
        script.write_text("\n".join(lines), encoding="utf-8")
        # ASLR with more bits than TSan expects makes it fail now and then; setarch turns it off.
        _run(["setarch", "-R", program, script])
        return [np.frombuffer(file.read_bytes(), array.dtype).reshape(array.shape)
                for file, array in zip(files, buffers, strict=True)]  # fmt: skip
