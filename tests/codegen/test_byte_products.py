"""Matrix products of 8-bit integers with int32 sums, against NumPy, which is exact."""

from __future__ import annotations

import platform
import subprocess
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import lamina as lm
from lamina.core.options import current
from lamina.runtime.compiler import find
from lamina.targets.texts import helper_text

pytestmark = pytest.mark.usefixtures("on_cpu")
NARROW = st.sampled_from([np.uint8, np.int8])
SIZES = st.one_of(st.integers(1, 20), st.sampled_from([31, 48, 63, 64, 70, 100, 130]))
EXTREMES = (-128, -127, -1, 0, 1, 127, 128, 255)


def _bytes(dtype: type, shape: tuple[int, ...], seed: int) -> np.ndarray:
    """Random bytes, every other one an extreme."""
    rng = np.random.default_rng(seed)
    extremes = [value for value in EXTREMES if np.iinfo(dtype).min <= value <= np.iinfo(dtype).max]
    numbers = rng.integers(0, 256, shape, np.uint8).view(dtype)
    return np.where(rng.random(shape) < 0.5, numbers, rng.choice(extremes, shape)).astype(dtype)


def _wide(x: np.ndarray) -> np.ndarray:
    return x.astype(np.int32)


@settings(deadline=None, max_examples=30)
@given(NARROW, NARROW, SIZES, SIZES, SIZES, st.booleans(), st.booleans())
def test_products_are_exact(
    left: type, right: type, rows: int, columns: int, steps: int, flip_left: bool, flip_right: bool
) -> None:
    """Of factors that are transposed in memory or not."""
    a = _bytes(left, (steps, rows) if flip_left else (rows, steps), 1)
    b = _bytes(right, (columns, steps) if flip_right else (steps, columns), 2)
    x, y = lm.asarray(a), lm.asarray(b)
    x, y = (x.T if flip_left else x), (y.T if flip_right else y)
    got = (x.cast(lm.int32) @ y.cast(lm.int32)).numpy()
    want = _wide(a.T if flip_left else a) @ _wide(b.T if flip_right else b)
    np.testing.assert_array_equal(got, want)


@settings(deadline=None, max_examples=30)
@given(NARROW, NARROW, SIZES, SIZES, SIZES, st.booleans(), st.booleans())
@example(np.uint8, np.uint8, 8, 16, 9, False, True)
def test_products_of_a_constant_are_exact(
    left: type, right: type, rows: int, columns: int, steps: int, is_left: bool, flipped: bool
) -> None:
    """Of a factor that a function captures, whose bytes are kept in the order of the loops: the
    last word of 9 steps has one byte."""
    a = _bytes(left, (rows, steps), 1)
    b = _bytes(right, (columns, steps) if flipped else (steps, columns), 2)
    x, y = lm.asarray(a), lm.asarray(b)

    def product(x: lm.Tensor, y: lm.Tensor) -> lm.Tensor:
        return x.cast(lm.int32) @ (y.T if flipped else y).cast(lm.int32)

    of_argument = lm.jit((lambda y: product(x, y)) if is_left else (lambda x: product(x, y)))
    got = of_argument(y if is_left else x).numpy()
    np.testing.assert_array_equal(got, _wide(a) @ _wide(b.T if flipped else b))


@settings(deadline=None, max_examples=20)
@given(NARROW, NARROW, st.integers(1, 3), SIZES, SIZES, SIZES, st.booleans())
def test_batches_are_exact(
    left: type, right: type, count: int, rows: int, columns: int, steps: int, shared: bool
) -> None:
    """Where each of several products has a right factor of its own, or all share one."""
    a = _bytes(left, (count, rows, steps), 1)
    b = _bytes(right, (1 if shared else count, steps, columns), 2)
    got = (lm.asarray(a).cast(lm.int32) @ lm.asarray(b).cast(lm.int32)).numpy()
    np.testing.assert_array_equal(got, _wide(a) @ _wide(b))


@settings(deadline=None, max_examples=20)
@given(st.integers(2, 12), st.sampled_from([2, 3, 4]), st.integers(0, 7))
def test_columns_that_are_repeated_are_exact(columns: int, repeats: int, left_out: int) -> None:
    """A column of the right factor for each `repeats` of the result, whose last vector of columns
    is shorter."""
    a, b = _bytes(np.int8, (128, 64), 1), _bytes(np.int8, (64, columns), 2)
    width = max(columns * repeats - left_out, 1)
    repeated = lm.broadcast_to(lm.asarray(b).reshape((64, columns, 1)), (64, columns, repeats))
    factor = repeated.reshape((64, columns * repeats))[:, :width]
    got = (lm.asarray(a).cast(lm.int32) @ factor.cast(lm.int32)).numpy()
    want = _wide(a) @ _wide(np.repeat(b, repeats, axis=1)[:, :width])
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(("left", "right"), [(np.int8, np.int8), (np.uint8, np.int8)])
@pytest.mark.parametrize("rows", [5, 70])
def test_what_follows_a_product(left: type, right: type, rows: int) -> None:
    """Scales of rows and columns, a bias, and rounding to bytes again."""
    a, b = _bytes(left, (rows, 150), 1), _bytes(right, (90, 150), 2)
    rng = np.random.default_rng(3)
    scale, of_column, bias = (rng.random(shape, np.float32) for shape in ((rows, 1), (90,), (90,)))

    @lm.jit
    def layer(x: lm.Tensor, w: lm.Tensor, *scales: lm.Tensor) -> tuple[lm.Tensor, lm.Tensor]:
        total = x.cast(lm.int32) @ w.T.cast(lm.int32)
        y = total.cast(lm.float32) * scales[0] * scales[1] + scales[2]
        return y, lm.clip(lm.round(y / 1024), -128, 127).cast(lm.int8)

    y, rounded = layer(*map(lm.asarray, (a, b, scale, of_column, bias)))
    want = (_wide(a) @ _wide(b.T)).astype(np.float32) * scale * of_column + bias
    np.testing.assert_allclose(y.numpy(), want, rtol=1e-6)
    assert np.abs(rounded.numpy() - np.clip(np.rint(want / 1024), -128, 127)).max() <= 1


def test_long_products_accumulate() -> None:
    """In blocks of steps, whose sums memory holds."""
    a, b = _bytes(np.int8, (70, 8192), 1), _bytes(np.int8, (256, 8192), 2)
    got = (lm.asarray(a).cast(lm.int32) @ lm.asarray(b).T.cast(lm.int32)).numpy()
    np.testing.assert_array_equal(got, _wide(a) @ _wide(b.T))


def test_sums_wrap_around() -> None:
    """2**18 products of -128 and -128 are 2**32, which int32 has as 0."""
    a = np.full((64, 1 << 18), -128, np.int8)
    got = (lm.asarray(a).cast(lm.int32) @ lm.asarray(a[:20]).T.cast(lm.int32)).numpy()
    np.testing.assert_array_equal(got, np.zeros((64, 20), np.int32))


@pytest.mark.parametrize("columns", [20, 40])
def test_long_products_of_columns_that_no_tile_divides(columns: int) -> None:
    """Memory adds up blocks of steps of whole tiles alone: all other sums are of all steps."""
    a, b = _bytes(np.uint8, (66, 1 << 17), 3), _bytes(np.int8, (columns, 1 << 17), 4)
    got = (lm.asarray(a).cast(lm.int32) @ lm.asarray(b).T.cast(lm.int32)).numpy()
    np.testing.assert_array_equal(got, _wide(a) @ _wide(b.T))


def test_computed_bytes() -> None:
    """Factors that are computed from what is read: rounded floats, and halves of bytes."""
    rng = np.random.default_rng(4)
    x, packed = rng.standard_normal((80, 99), np.float32), _bytes(np.uint8, (99, 64), 5)
    rounded = lm.clip(lm.round(lm.asarray(x) * 50), -128, 127).cast(lm.int8)
    halves = lm.asarray(packed) >> 4
    got = (rounded.cast(lm.int32) @ halves.cast(lm.int32)).numpy()
    bytes_ = np.clip(np.rint(x * 50), -128, 127).astype(np.int32)
    np.testing.assert_array_equal(got, bytes_ @ _wide(packed >> 4))


CHECK = """
#include <stdio.h>
static unsigned seed = 1;
static i32 any(void) {
    seed = seed * 1664525 + 1013904223;
    return seed >> 30 ? (i32)(seed * 2654435761u) : seed & 1 ? (i32)0x80808080 : (i32)0x7fff7fff;
}
#define BYTE(T, x, at) ((i32)(T)((x) >> 8 * (at)))
#define TEST(A, B) { \\
    const LANES got = dot_##A##_##B##_i32xN(sum, a, b); \\
    for (int i = 0; i < N; i++) { \\
        i32 want = sum[i]; \\
        for (int at = 0; at < 4; at++) want += BYTE(A, a[i], at) * BYTE(B, b[i], at); \\
        if (got[i] != want) return printf(#A " " #B " %d: %d, not %d", i, got[i], want), 1; \\
    } \\
}
typedef i32xN LANES;
int main(void) {
    for (int times = 0; times < 1000; times++) {
        LANES sum, a, b;
        for (int i = 0; i < N; i++) sum[i] = any() >> 8, a[i] = any(), b[i] = any();
        TEST(u8, i8) TEST(i8, u8) TEST(i8, i8) TEST(u8, u8)
    }
    i8xN rows[4];
    for (int row = 0; row < 4; row++) for (int i = 0; i < N; i++) rows[row][i] = any() >> 24;
    const LANES turns = in_turns_N(rows[0], rows[1], rows[2], rows[3]);
    for (int i = 0; i < N; i++) for (int row = 0; row < 4; row++)
        if (BYTE(i8, turns[i], row) != rows[row][i]) return printf("in turns %d", i), 1;
    return 0;
}
"""


@pytest.mark.skipif(platform.machine() != "x86_64", reason="other processors have other names")
@pytest.mark.parametrize("lanes", [1, 2, 4, 8, 16])
@pytest.mark.parametrize(
    "arch", ["x86-64", "haswell", "skylake-avx512", "icelake-server", "native"]
)
def test_every_instruction(arch: str, lanes: int, tmp_path: Path) -> None:
    """The same sums with and without the instructions of newer processors."""
    compiler = find(current())
    if arch not in ("x86-64", "native") and "__AVX512VNNI__" not in compiler.macros:
        pytest.skip("this processor lacks the instructions")
    texts = [helper_text(f"c/{name}.c") for name in ("prelude", "arithmetic")]
    texts += [helper_text(f"c/{name}.c", lanes) for name in ("vectors", "transposes", "dots")]
    check = CHECK.replace("in_turns_N", f"in_turns_{lanes}").replace("xN", f"x{lanes}")
    source, program = tmp_path / "a.c", tmp_path / "a"
    source.write_text("\n".join([*texts, f"#define N {lanes}", check]), encoding="utf-8")
    flags = ["-O2", f"-march={arch}", "-std=gnu11", "-w", "-fwrapv", "-fno-strict-aliasing"]
    driver = ["cc"] if compiler.kind == "zig" else []
    subprocess.run(
        [compiler.path, *driver, *flags, str(source), "-o", str(program), "-lm"], check=True
    )
    done = subprocess.run([str(program)], capture_output=True, text=True, check=False)
    assert not done.returncode, done.stdout


@pytest.mark.parametrize("columns", [8, 12, 64, 66])
def test_sums_beside_the_elements_of_their_row(columns: int) -> None:
    """The loop over a row, of four steps inside, is of the sum and of the store."""
    a, b = _bytes(np.uint8, (64, columns), 1), _bytes(np.int8, (64, columns), 2)
    x, y = lm.asarray(a).cast(lm.int32), lm.asarray(b).cast(lm.int32)
    got = (x - lm.sum(x * y, axis=1, keepdims=True, dtype=lm.int32)).numpy()
    want = _wide(a) - (_wide(a) * _wide(b)).sum(axis=1, keepdims=True, dtype=np.int32)
    np.testing.assert_array_equal(got, want)
