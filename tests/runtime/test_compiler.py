"""Finding compilers among real and fake ones, and what a failing one says."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from lamina.cli import Row, doctor
from lamina.core.options import Options
from lamina.errors import CompileError, CompilerNotFoundError, DeviceError
from lamina.runtime import compiler, cpu
from lamina.runtime.buffer import Buffer
from lamina.runtime.compiler import Compiler, find
from lamina.runtime.cpu import CpuProgram, disk_cache
from tests.test_layers import ROOT

from .conftest import forget_compilers
from .sources import ADD_INDEX, HEADER, numbers

CLANG = """echo '#define __VERSION__ "Clang 14.0.6"'; echo '#define __clang_version__ "14.0.6 "'"""
GCC = """echo '#define __VERSION__ "12.2.0"'"""


@pytest.fixture
def bin_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder that is the whole PATH, and no ziglang package."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    return folder


def fake(folder: Path, name: str, body: str) -> Path:
    program = folder / name
    program.write_text(f"#!/bin/sh\n{body}\n")
    program.chmod(0o755)
    return program


def fake_zig(monkeypatch: pytest.MonkeyPatch, folder: Path, body: str) -> Path:
    folder.mkdir(exist_ok=True)
    program = fake(folder, "zig", body)
    spec = importlib.machinery.ModuleSpec("ziglang", None, is_package=True)
    spec.submodule_search_locations = [str(folder)]
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec)
    return program


def test_clang_comes_before_gcc(bin_folder: Path) -> None:
    gcc = fake(bin_folder, "gcc", GCC)
    assert find(Options())[:3] == (str(gcc), "gcc", "12.2.0")
    clang = fake(bin_folder, "clang", CLANG)
    assert find(Options()).kind == "gcc"  # remembered
    forget_compilers()
    assert find(Options())[:3] == (str(clang), "clang", "14.0.6")


def test_the_family_is_what_the_program_says(bin_folder: Path) -> None:
    fake(bin_folder, "gcc", CLANG)
    assert str(find(Options())) == "clang 14.0.6"


def test_cc_is_gcc_under_another_name(bin_folder: Path) -> None:
    cc = fake(bin_folder, "cc", GCC)
    assert find(Options())[:3] == (str(cc), "gcc", "12.2.0")


def test_a_broken_one_is_passed_over(bin_folder: Path) -> None:
    fake(bin_folder, "clang", 'echo "cannot find libLLVM.so" >&2; exit 127')
    gcc = fake(bin_folder, "gcc", GCC)
    assert find(Options()).path == str(gcc)


def test_nothing_found_says_what_was_tried_and_what_to_install(bin_folder: Path) -> None:
    fake(bin_folder, "clang", 'echo "cannot find libLLVM.so" >&2; exit 127')
    (bin_folder / "gcc").write_bytes(b"\x7fELF this is not a program")
    (bin_folder / "gcc").chmod(0o755)
    fake(bin_folder, "cc", 'echo "#define __TINYC__ 9"')
    with pytest.raises(CompilerNotFoundError) as caught:
        find(Options())
    message = str(caught.value)
    assert "status 127 and is no gcc or clang: cannot find libLLVM.so" in message
    assert "gcc does not run: Exec format error" in message
    assert "no gcc or clang: #define __TINYC__ 9" in message
    assert "ziglang does not run: No such file or directory" in message
    assert "pip install ziglang" in message


def test_empty_path(bin_folder: Path) -> None:
    with pytest.raises(CompilerNotFoundError, match="clang does not run: No such file"):
        find(Options())


def test_one_warning_tells_of_the_interpreter(bin_folder: Path) -> None:
    """What does not work is neither tried nor named again, on whatever lines programs run."""
    code = """
import importlib.util
import lamina as lm
from lamina.runtime import compiler
importlib.util.find_spec = lambda name: None
asked, run = [], compiler.run
compiler.run = lambda command: asked.append(command) or run(command)
for number in range(3):
    print(lm.full((2,), number).sum().item())
    print((lm.full((2,), number) * 2).sum().item())
print(len(asked))
"""
    script = bin_folder / "loops.py"
    script.write_text(code)
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True,
                          env=os.environ | {"PYTHONPATH": str(ROOT)})  # fmt: skip
    *_, asked = done.stdout.split()
    assert (asked, done.stderr.count("UserWarning")) == ("4", 1), done.stderr


def test_a_named_compiler_is_not_replaced(bin_folder: Path) -> None:
    fake(bin_folder, "gcc", GCC)
    mine = fake(bin_folder, "my-cc", GCC)
    assert find(Options(cc=str(mine))).path == str(mine)
    assert find(Options(cc="my-cc")).path == str(mine)
    with pytest.raises(
        CompilerNotFoundError, match=r"LAMINA_CC=icc does not work.*\n.*No such file"
    ):
        find(Options(cc="icc"))
    with pytest.raises(CompilerNotFoundError, match="/no/such/cc does not run: No such file"):
        find(Options(cc="/no/such/cc"))
    (bin_folder / "text").write_text("not a program")
    with pytest.raises(CompilerNotFoundError, match="text does not run: Permission denied"):
        find(Options(cc=str(bin_folder / "text")))


def test_zig_is_called_directly(
    bin_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = f'[ "$1" = cc ] && {CLANG}'
    zig = fake_zig(monkeypatch, tmp_path / "ziglang", body)
    found = find(Options())
    assert found[:3] == (str(zig), "zig", "14.0.6")
    command = found.command("a.c", "a.so")
    assert command[:2] == [str(zig), "cc"]
    assert {"-g0", "-fomit-frame-pointer"} <= set(command)
    assert command[-4:] == ["a.c", "-o", "a.so", "-lm"]


def test_a_ziglang_package_without_its_binary(
    bin_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_zig(monkeypatch, tmp_path / "ziglang", "exit 0").unlink()
    with pytest.raises(CompilerNotFoundError, match=r"ziglang: .*zig does not run"):
        find(Options())


def test_flags() -> None:
    x86, arm = "#define __x86_64__ 1", "#define __aarch64__ 1"
    kinds = (("clang", x86), ("gcc", x86), ("clang", arm))
    by_clang, by_gcc, on_arm = (
        Compiler("/c", kind, "14", macros).command("a.c", "a.so") for kind, macros in kinds
    )
    assert "-mprefer-vector-width=512" in by_clang
    assert "-mprefer-vector-width=512" not in (*by_gcc, *on_arm)
    assert {"-O2", "-shared", "-fPIC", "-std=gnu11", "-w"} <= set(by_gcc)
    assert not any("fast-math" in flag for flag in (*by_clang, *by_gcc))


def test_the_width_of_vectors_is_what_the_compiler_has() -> None:
    names = ("__AVX512F__", "__AVX2__", "__ARM_NEON")
    every = "\n".join(f"#define {name} 1" for name in names).splitlines()
    found = [Compiler("/c", "gcc", "", "\n".join(every[at:])).vector_bytes for at in range(3)]
    assert found == [64, 32, 16]


def test_the_cpu_is_part_of_the_key(options: Options, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = find(options)
    assert "__VERSION__" in compiler.macros
    CpuProgram(ADD_INDEX, options)
    before = set(disk_cache(options).folder.glob("*.so"))
    cpu.build.cache_clear()
    CpuProgram(ADD_INDEX, options)
    assert set(disk_cache(options).folder.glob("*.so")) == before
    cpu.build.cache_clear()
    another = compiler._replace(macros=f"{compiler.macros}#define __AVX1024__ 1\n")
    monkeypatch.setattr(cpu.compilers, "find", lambda options: another)
    CpuProgram(ADD_INDEX, options)
    assert len(set(disk_cache(options).folder.glob("*.so"))) == 2 * len(before)


def test_compile_error_shows_line_and_file(options: Options) -> None:
    lines = [*HEADER.strip().splitlines(), "RUN {", "    int x = 1 +;", "    int y = zz;", "}"]
    with pytest.raises(CompileError) as caught:
        CpuProgram("\n".join(lines), options)
    message = str(caught.value)
    number = lines.index("    int x = 1 +;") + 1
    assert f".c:{number}:" in message
    assert "int x = 1 +;" in message
    assert "expected expression" in message
    assert "zz" not in message
    kept = next(line for line in message.splitlines() if "kept in" in line).split(" in ")[1]
    assert Path(kept).read_text() == "\n".join(lines)


def test_undefined_symbols(options: Options) -> None:
    source = HEADER + "void no_such_function(void); RUN { no_such_function(); }"
    with pytest.raises(CompileError, match="no_such_function"):
        CpuProgram(source, options)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("kill -SEGV $$", "died with <Signals.SIGSEGV"),
        ("exit 3", "non-zero exit status 3"),
        ('echo "cc1: out of memory" >&2; exit 1', "cc1: out of memory"),
        ('printf garbage > "$out"', "does not load"),
    ],
)
def test_a_compiler_that_fails(tmp_path: Path, options: Options, body: str, message: str) -> None:
    find_output = 'for a in "$@"; do [ "$last" = -o ] && out=$a; last=$a; done'
    script = f'if [ "$2" = -dM ]; then {GCC}; exit; fi\n{find_output}\n{body}'
    program = fake(tmp_path, "bad-cc", script)
    chosen = Options(cache_dir=options.cache_dir, cc=str(program))
    with pytest.raises(CompileError, match=message):
        CpuProgram(ADD_INDEX, chosen)


def test_warnings_of_the_compiler_are_no_errors(tmp_path: Path, options: Options) -> None:
    real = find(options).path
    script = f'echo "warning: this CPU is old" >&2\nexec {real} "$@"'
    program = fake(tmp_path, Path(real).name, script)
    loaded = CpuProgram(ADD_INDEX, Options(cache_dir=options.cache_dir, cc=str(program)))
    memory = Buffer(80)
    memory.view()[:] = bytes(80)
    loaded.run([memory, numbers(10)])
    assert np.frombuffer(memory.view(), np.int64).tolist() == list(range(1, 11))


def test_a_compiler_that_goes_away(tmp_path: Path, options: Options) -> None:
    program = fake(tmp_path, "gcc", GCC)
    chosen = Options(cache_dir=options.cache_dir, cc=str(program))
    find(chosen)
    program.unlink()
    with pytest.raises(DeviceError, match=r"gcc 12.2.0 cannot compile: .*No such file"):
        CpuProgram(ADD_INDEX, chosen)


def test_doctor(options: Options, bin_folder: Path) -> None:
    rows = {row.item: row for row in doctor(options)}
    assert not rows["compiler"].is_fine
    assert rows["compiler"].remedy == compiler.REMEDY
    assert rows["cache"].is_fine
    assert options.cache_dir in rows["cache"].finding
    assert rows["threads"].finding.startswith("2 on ")
    assert rows["numpy"].finding == np.__version__
    metal = rows["metal"].finding
    assert metal in ("emulator: no, hardware: no", "emulator: yes, hardware: no")
    # It works, or what to do is said.
    assert rows["cuda"].is_fine is not bool(rows["cuda"].remedy)
    fake(bin_folder, "clang", CLANG)
    forget_compilers()
    first = doctor(options)[0]
    assert first == Row("compiler", f"clang 14.0.6 at {bin_folder}/clang")


def test_doctor_with_an_unusable_cache(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.warns(UserWarning, match="cannot be used"):
        rows = {row.item: row for row in doctor(Options(cache_dir=str(tmp_path / "file")))}
    assert not rows["cache"].is_fine
    assert "LAMINA_CACHE_DIR" in rows["cache"].remedy
