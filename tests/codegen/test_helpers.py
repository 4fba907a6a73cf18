"""In front of kernels stands what they use, and no more: compilers say so."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

import lamina as lm
from lamina import TensorSpec
from lamina.runtime.source import KERNELS
from lamina.targets.helpers import HelperText, used_fragments

# Of a part that a macro makes, one function may be used and another one not.
OF_MACRO = re.compile(r"[A-Z][A-Z0-9_]*\(")


@dataclass(frozen=True)
class Program:
    """A function, and the shapes and dtype of its arguments."""

    function: Callable[..., Any]
    shapes: Sequence[tuple[int, ...]]
    dtype: str = "float32"

    def text(self, device: str) -> str:
        """The whole text for a device."""
        arguments = [TensorSpec(shape, self.dtype) for shape in self.shapes]
        return lm.jit(self.function).lower(*arguments, device=device).source


PROGRAMS = {
    "sum with a number": Program(lambda x: x + 1, [(1000,)]),
    "softmax": Program(lambda x: lm.softmax(x, axis=1), [(64, 100)]),
    "gelu": Program(lm.gelu, [(64, 100)], "bfloat16"),
    "layer norm": Program(lambda x: lm.layer_norm(x, (100,)), [(64, 100)]),
    "product": Program(lambda a, b: a @ b, [(60, 200), (200, 70)]),
    "product of bfloat16": Program(lambda a, b: a @ b, [(512, 512), (512, 512)], "bfloat16"),
    "order": Program(lm.argsort, [(8, 300)]),
    "waves of float64": Program(lambda x: lm.sin(x) * lm.atan(x), [(300,)], "float64"),
    "running sum": Program(lambda x: lm.cumsum(x, axis=1), [(8, 300)]),
    "integers": Program(lambda x: x // 7 + x % 5, [(300,)], "int32"),
    "attention": Program(
        lambda q, k, v: lm.scaled_dot_product_attention(q, k, v, is_causal=True),
        [(2, 256, 64)] * 3,
        "float16",
    ),
}


@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")
@pytest.mark.parametrize("name", PROGRAMS)
def test_gcc_finds_nothing_unused(name: str) -> None:
    """No function and no macro; of a part that a macro makes, one function may be used alone."""
    text = PROGRAMS[name].text("cpu").replace("#line", "// #line")
    # GCC says nothing of inline functions.
    flags = ["-Dinline=", "-Wunused-function", "-Wunused-macros", "-Wno-attributes", "-Wno-psabi"]
    command = ["gcc", "-fsyntax-only", "-march=native", *flags, "-x", "c", "-"]
    plain = {**os.environ, "LC_ALL": "C"}  # for quotes of ASCII
    done = subprocess.run(
        command, input=text, capture_output=True, text=True, check=False, env=plain
    )
    assert done.returncode == 0, done.stderr
    assert "implicit declaration" not in done.stderr
    pattern = r"<stdin>:(\d+):\d+: warning: (?:macro )?['\"](\w+)['\"] (?:defined but|is) not used"
    lines = text.splitlines()
    unused = [
        name for number, name in re.findall(pattern, done.stderr)
        if not OF_MACRO.match(lines[int(number) - 1])
    ]  # fmt: skip
    assert unused == []


@pytest.mark.parametrize("name", PROGRAMS)
def test_nvrtc_finds_nothing_unused_that_no_line_names(name: str) -> None:
    """Overloads of a function stay together, and other lines may need a function on other GPUs."""
    nvrtc = pytest.importorskip("cuda.bindings.nvrtc", reason="cuda-bindings is not installed")
    text = PROGRAMS[name].text("cuda:0")
    helpers = text.partition(KERNELS)[0]
    last = helpers.count("\n")
    _, program = nvrtc.nvrtcCreateProgram(text.replace("#line", "//").encode(), b"text", 0, [], [])
    flags = [b"--gpu-architecture=sm_90a", b"--std=c++17", b"-default-device", b"-dlto"]
    (code,) = nvrtc.nvrtcCompileProgram(program, len(flags), flags)
    log = bytes(nvrtc.nvrtcGetProgramLogSize(program)[1])
    nvrtc.nvrtcGetProgramLog(program, log)
    warnings = log.decode(errors="replace")
    assert not code, warnings
    pattern = r'text\((\d+)\): warning #177-D: \w+ "(\w+)[^"]*" was declared but never'
    found = [name for number, name in re.findall(pattern, warnings) if int(number) <= last]
    pasted = re.findall(r"##(\w+)", helpers)  # by a macro that other GPUs use
    for name, count in Counter(found).items():
        is_named = len(re.findall(rf"\b{name}\b", text)) > count
        assert is_named or name.endswith(tuple(pasted)), name


@pytest.mark.parametrize("device", ["cpu", "cuda:0", "metal"])
def test_a_short_program_has_short_helpers(device: str) -> None:
    text = PROGRAMS["sum with a number"].text(device)
    assert text.count("\n") < 120
    assert "exp" not in text
    assert "idiv" not in text


TEXT = HelperText("""\
/* Of one. */
#define ONE 1
#define EACH(F) F(i8) F(i32)
#define TWICE(T) \\
    INLINE T twice_##T(T x) { return x * 2; } \\
    INLINE T half_##T(T x) { return x / 2; }
EACH(TWICE)
typedef int i32; typedef signed char i8;
#define CALL(T, x) twice_##T(x)
#if N == 4
INLINE i32 four(void) { return ONE * 4; }
#else
INLINE i32 other(void) { return 0; } // four() is not called here
#endif
#undef ONE
struct Pair : Base { i32 first; };
INLINE Pair operator+(Pair a, i32 b) { return a; }
INLINE void lanes_xN(const char *text = "four(") {}
""")


@pytest.mark.parametrize(
    ("user", "wanted", "unwanted"),
    [
        (
            "twice_i8(3)",
            ["TWICE(i8)", "#define TWICE", "signed char i8"],
            ["TWICE(i32)", "ONE", "EACH"],
        ),
        ("CALL(i32, 3)", ["TWICE(i32)", "#define CALL"], ["TWICE(i8)"]),
        ("four()", ["/* Of one. */", "#define ONE", "#undef ONE", "#if N", "#endif"], ["other("]),
        ("Pair p;", ["struct Pair", "operator+", "int i32"], ["TWICE", "#if"]),
        ("lanes_xN()", ["lanes_xN"], ["INLINE i32 four"]),
        ("nothing()", [], ["i32"]),
    ],
)
def test_parts_are_kept_with_what_they_use(
    user: str, wanted: list[str], unwanted: list[str]
) -> None:
    printed = used_fragments([TEXT], [user])
    assert [text for text in wanted if text not in printed] == []
    assert [text for text in unwanted if text in printed] == []


def test_a_text_is_printed_for_each_number_of_lanes() -> None:
    texts = [TEXT._replace(lanes=lanes) for lanes in (4, 8)]
    printed = used_fragments(texts, ["lanes_x8()"])
    assert "lanes_x8(" in printed
    assert "lanes_x4(" not in printed


def test_a_name_that_stands_for_another_one_is_kept() -> None:
    text = HelperText("""\
#define sine_f sine
#define CALLED(name, suffix) INLINE f32 name(f32 x) { return name##_##suffix(x); }
CALLED(sine, f)
""")
    assert "#define sine_f sine" in used_fragments([text], ["sine(x)"])


@pytest.mark.parametrize("lanes", [4, 8])
def test_every_branch_counts(lanes: int) -> None:
    """Which one a processor takes is not known here."""
    text = HelperText("""\
#ifdef WIDE
#define LOAD(T) INLINE T load_##T(T *p) { return wide(p); }
#else
#define LOAD(T) INLINE T load_##T(T *p) { return narrow(p); }
#endif
LOAD(i32)
typedef int i32;
INLINE i32 wide(i32 *p);
INLINE i32 narrow(i32 *p);
""", lanes)  # fmt: skip
    printed = used_fragments([text], ["load_i32(p)"])
    assert printed.count("#define LOAD") == 2
    assert "i32 wide(" in printed
    assert "i32 narrow(" in printed
