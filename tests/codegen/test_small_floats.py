"""16-bit and 8-bit floats on the CPU, against ml_dtypes and NumPy to the bit."""

from __future__ import annotations

import platform
import re
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from lamina.core import dtypes
from lamina.core.dtypes import DType
from lamina.core.options import current, using
from lamina.ir import build, monoids
from lamina.ir.build import select
from lamina.ir.interpreter import fold_constant
from lamina.ir.node import Node
from lamina.ir.ops import Op, Reduce, Scatter
from lamina.pipeline import compile_source
from lamina.runtime.compiler import Compiler, survey
from lamina.runtime.compiler import run as compile_c
from lamina.targets.legalize import carrier
from tests.codegen.running import leaf, run
from tests.generators import leaf as numbered

SMALL = (dtypes.float16, dtypes.bfloat16, dtypes.float8_e4m3fn, dtypes.float8_e5m2)
small_dtypes = pytest.mark.parametrize("dtype", SMALL, ids=lambda dtype: dtype.name)


def unsigned(dtype: DType) -> np.dtype:
    return np.dtype(np.uint8 if dtype.bits == 8 else np.uint16)


def patterns(dtype: DType) -> np.ndarray:
    """Every value of `dtype`, in the order of its bits."""
    return np.arange(1 << dtype.bits).astype(unsigned(dtype)).view(dtype.numpy)


def same(actual: np.ndarray, expected: np.ndarray) -> None:
    """Equal to the bit, but for which NaN it is."""
    assert actual.dtype == expected.dtype
    assert actual.shape == expected.shape
    word = np.dtype(f"u{actual.dtype.itemsize}")
    with np.errstate(invalid="ignore"):
        both_nan = (actual != actual) & (expected != expected)
    differ = (actual.view(word) != expected.view(word)) & ~both_nan
    where = np.flatnonzero(differ)[:5]
    assert not len(where), (where, actual.flat[where], expected.flat[where])


def cast_by_numpy(x: np.ndarray, dtype: DType) -> np.ndarray:
    with np.errstate(all="ignore"):
        return x.astype(dtype.numpy)


def sample(dtype: DType, count: int, seed: int) -> np.ndarray:
    """Random bits: every exponent, NaN and infinities too."""
    rng = np.random.default_rng(seed)
    return rng.integers(0, 1 << dtype.bits, count).astype(unsigned(dtype)).view(dtype.numpy)


def hard_floats(dtype: DType) -> np.ndarray:
    """float32 at and next to every value of `dtype` and every midpoint, beyond the ends too."""
    values = patterns(dtype).astype(np.float32)
    finite = np.unique(values[np.isfinite(values)]).astype(np.float64)
    ends = [finite[-1] + (finite[-1] - finite[-2]) * k for k in (0.5, 1, 2)]
    points = [*finite, *((a + b) / 2 for a, b in pairwise(finite)), *ends, -0.0]
    with np.errstate(over="ignore"):
        exact = np.array(points).astype(np.float32)
        near = [exact, np.nextafter(exact, np.float32(np.inf)),
                np.nextafter(exact, np.float32(-np.inf))]  # fmt: skip
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 1 << 32, 200_000, dtype=np.uint32)
    special = np.array([np.inf, -np.inf, np.nan, -np.nan, 3.4e38, 1e-45, -1e-45], np.float32)
    return np.concatenate([*near, bits.view(np.float32), special])


@small_dtypes
def test_every_pattern_decodes(dtype: DType) -> None:
    every = patterns(dtype)
    (wide,) = run([build.cast(leaf(every), dtypes.float32)])
    same(wide, every.astype(np.float32))


@small_dtypes
def test_every_pattern_encodes(dtype: DType) -> None:
    every = patterns(dtype)
    (back,) = run([build.cast(leaf(every.astype(np.float32)), dtype)])
    same(back, every)


@small_dtypes
def test_every_pattern_moves_unchanged(dtype: DType) -> None:
    every = patterns(dtype)
    x = leaf(every)
    back = build.flip(x, (0,))
    moved, negative, chosen = run([back, -build.flip(-x, (0,)), select(x.eq(x), back, x)])
    word = unsigned(dtype)
    assert np.array_equal(moved.view(word), every[::-1].view(word))
    assert np.array_equal(negative.view(word), every[::-1].view(word))
    with np.errstate(invalid="ignore"):
        expected = np.where(every == every, every[::-1].view(word), every.view(word))
    assert np.array_equal(chosen.view(word), expected)


@small_dtypes
def test_float32_rounds_to_nearest_even(dtype: DType) -> None:
    x = hard_floats(dtype)
    narrow, again = run([
        build.cast(leaf(x), dtype),
        build.cast(build.cast(leaf(x), dtype), dtypes.float32),
    ])  # fmt: skip
    expected = cast_by_numpy(x, dtype)
    same(narrow, expected)
    same(again, expected.astype(np.float32))


@pytest.mark.skipif(platform.machine() != "x86_64", reason="takes instructions of x86 away")
@pytest.mark.parametrize("lanes", [1, 4, 8, 16])
@pytest.mark.parametrize("without", [(), ("avx512f",), ("avx512f", "f16c")], ids="-".join)
def test_float16_with_and_without_the_processors_casts(
    without: tuple[str, ...], lanes: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    command, flags = Compiler.command, [f"-mno-{one}" for one in without]
    monkeypatch.setattr(Compiler, "command", lambda self, *files: command(self, *files) + flags)
    every, x = patterns(dtypes.float16), hard_floats(dtypes.float16)
    vectors = f"split(a0, {lanes}) -> a1, a2; bind(a2, vector)" if lanes > 1 else "bind(a0, serial)"
    with using(cache_dir=str(tmp_path), schedule=vectors):
        wide, narrow = run([
            build.cast(leaf(every), dtypes.float32),
            build.cast(leaf(x), dtypes.float16),
        ])  # fmt: skip
    same(wide, every.astype(np.float32))
    same(narrow, cast_by_numpy(x, dtypes.float16))


@pytest.mark.skipif(platform.machine() != "x86_64", reason="other processors have other names")
@pytest.mark.parametrize("name", ["gcc", "clang-19"])
@pytest.mark.parametrize("lanes", [1, 8, 16])
def test_halves_are_rounded_where_the_processor_computes_with_them(
    lanes: int, name: str, tmp_path: Path
) -> None:
    """Compilers know what is one instruction, and join it with the next, without the rounding."""
    if not isinstance(compiler := dict(survey(name))[name], Compiler):
        pytest.skip(f"{name} is not installed")
    vectors = f"split(a0, {lanes}) -> a1, a2; bind(a2, vector)" if lanes > 1 else "bind(a0, serial)"
    x, y = (numbered(number, (64,), dtypes.float16) for number in range(2))
    text = compile_source([x * y + x], replace(current(), schedule=vectors)).text
    source, output = tmp_path / "a.c", tmp_path / "a.s"
    source.write_text(text, encoding="utf-8")
    flags = ["-S", "-march=sapphirerapids"]
    done = compile_c([*compiler.command(source, output), *flags])
    if done.returncode:
        pytest.skip(f"{name} does not know that processor")
    arithmetic = r"\tv(mul|add|sub|div|fn?m(add|sub)\d+)[ps]h\b"
    assert not re.search(arithmetic, output.read_text(encoding="utf-8"))


@small_dtypes
def test_float64_rounds_once(dtype: DType) -> None:
    """Every midpoint, and the doubles next to it, which float32 cannot tell from it."""
    values = cast_by_numpy(patterns(dtype), dtypes.float64)
    finite = np.unique(values[np.isfinite(values)])
    index = np.arange(len(finite) - 1)
    middle = (finite[:-1] + finite[1:]) / 2
    above, below = np.nextafter(middle, np.inf), np.nextafter(middle, -np.inf)
    x = np.concatenate([above, below, finite, [np.inf, -np.inf, 1e308, -1e308, 5e-324, -0.0]])
    upper, lower = finite[index + 1], finite[index]
    (actual,) = run([build.cast(leaf(x), dtype)])
    count = len(middle)
    np.testing.assert_array_equal(actual[:count].astype(np.float64), upper)
    np.testing.assert_array_equal(actual[count : 2 * count].astype(np.float64), lower)
    same(actual[2 * count :], cast_by_numpy(x[2 * count :], dtype))


@small_dtypes
@pytest.mark.parametrize(
    "source", [one for one in dtypes.ALL if not one.is_complex and one.bits < 64],
    ids=lambda dtype: dtype.name,
)  # fmt: skip
def test_casts_from_every_dtype(source: DType, dtype: DType) -> None:
    if source in SMALL:
        x = patterns(source)
    elif source is dtypes.bool_:
        x = np.array([False, True])
    else:
        x = sample_of_integers(source) if source.is_int else hard_floats(dtype)
    same(run([build.cast(leaf(x), dtype)])[0], cast_by_numpy(x, dtype))


def sample_of_integers(dtype: DType) -> np.ndarray:
    rng = np.random.default_rng(1)
    shifts = rng.integers(0, dtype.bits, 2000)
    ends = [int(dtype.min.real), int(dtype.max.real), 0, 1]
    wide = rng.integers(ends[0], ends[1], 2000, dtype=np.int64) >> shifts
    return np.concatenate([wide, ends]).astype(dtype.numpy)


@small_dtypes
@pytest.mark.parametrize("to", [dtypes.int8, dtypes.int32, dtypes.uint8, dtypes.bool_])
def test_casts_to_integers(dtype: DType, to: DType) -> None:
    low = 0 if to.kind == "uint" else -100
    x = np.array([*np.linspace(low, 100, 77), 0.0, -0.0]).astype(dtype.numpy)
    assert np.array_equal(run([build.cast(leaf(x), to)])[0], x.astype(to.numpy))


@small_dtypes
@pytest.mark.parametrize("signed", [False, True])
def test_bitcasts(dtype: DType, signed: bool) -> None:
    word = dtypes.BY_NAME[f"{'' if signed else 'u'}int{dtype.bits}"]
    every = patterns(dtype)
    bits = every.view(word.numpy)
    there, back, wide = run([
        build.bitcast(leaf(every), word),
        build.bitcast(leaf(bits), dtype),
        build.cast(build.bitcast(leaf(bits), dtype), dtypes.float32),
    ])  # fmt: skip
    assert np.array_equal(there, bits)
    assert np.array_equal(back.view(word.numpy), bits)
    same(wide, every.astype(np.float32))


def test_a_bitcast_between_small_floats() -> None:
    every = patterns(dtypes.float16)
    x = build.bitcast(leaf(every), dtypes.bfloat16)
    (sums,) = run([x + x])
    with np.errstate(all="ignore"):
        same(sums, every.view(ml_dtypes.bfloat16) + every.view(ml_dtypes.bfloat16))


def test_a_bitcast_of_a_sum_sees_the_rounded_value() -> None:
    a, b = sample(dtypes.float16, 4096, 5), sample(dtypes.float16, 4096, 6)
    (bits,) = run([build.bitcast(leaf(a) + leaf(b), dtypes.uint16)])
    with np.errstate(all="ignore"):
        same(bits.view(np.float16), a + b)


OPERATIONS: dict[str, Callable[[Node, Node], Node]] = {
    "add": lambda x, y: x + y,
    "subtract": lambda x, y: x - y,
    "multiply": lambda x, y: x * y,
    "divide": lambda x, y: x / y,
    "maximum": lambda x, y: Node(Op.MAX, (x, y)),
    "minimum": lambda x, y: Node(Op.MIN, (x, y)),
    "less": lambda x, y: x < y,
    "equal": lambda x, y: x.eq(y),
    "negate": lambda x, y: -x,
    "truncate": lambda x, y: Node(Op.TRUNC, (x,)),
    "square root": lambda x, y: Node(Op.SQRT, (x,)),
    "choose": lambda x, y: select(x < y, x * y, -y),
    "three roundings": lambda x, y: (x * y + x) / y,
    "a constant": lambda x, y: x * 0.1 + y,
    "pad": lambda x, y: build.pad(x + y, (3,), (5,), -1.5),
    "move": lambda x, y: build.pad(build.flip(x, (0,)), (3,), (5,), 0.1),
}


@small_dtypes
@pytest.mark.parametrize("name", OPERATIONS)
def test_elementwise_agrees_with_the_interpreter_to_the_bit(name: str, dtype: DType) -> None:
    a, b = sample(dtype, 5003, 1), sample(dtype, 5003, 2)
    b[:500] = a[:500]
    sink = OPERATIONS[name](leaf(a), leaf(b))
    same(run([sink])[0], run([sink], "interp")[0])


@pytest.mark.parametrize("dtype", SMALL[:2], ids=lambda dtype: dtype.name)
@pytest.mark.parametrize(
    "op", [Op.EXP, Op.LOG2, Op.SIN, Op.ERF, Op.LOGISTIC], ids=lambda op: op.name
)
def test_transcendentals_are_within_a_rounding(op: Op, dtype: DType) -> None:
    x = np.linspace(0.1, 4, 1001).astype(dtype.numpy)
    sink = Node(op, (leaf(x),))
    actual, expected = run([sink])[0], run([sink], "interp")[0]
    steps = actual.view(np.int16).astype(int) - expected.view(np.int16)
    assert abs(steps).max() <= 1


@small_dtypes
def test_sums_are_rounded_once(dtype: DType) -> None:
    """Rounding after every addition would lose digits, half of them to float8."""
    a = (np.random.default_rng(3).integers(-3, 5, (5, 40)) / 4).astype(dtype.numpy)
    (total,) = run([build.reduce(monoids.ADD, (1,), leaf(a))])
    same(total, a.astype(np.float32).sum(1).astype(dtype.numpy))
    running, extreme = run([
        Node(Op.SCAN, (leaf(a),), Reduce(monoids.ADD, (1,))),
        build.reduce(monoids.MAX, (0,), leaf(a)),
    ])  # fmt: skip
    same(running, a.astype(np.float32).cumsum(1).astype(dtype.numpy))
    same(extreme, a.astype(np.float32).max(0).astype(dtype.numpy))


@pytest.mark.parametrize("dtype", SMALL[:2], ids=lambda dtype: dtype.name)
def test_a_matmul_accumulates_in_float32(dtype: DType) -> None:
    rng = np.random.default_rng(4)
    a, b = (rng.normal(size=size).astype(dtype.numpy) for size in ((33, 300), (300, 40)))
    x = build.expand(build.reshape(leaf(a), (33, 300, 1)), (33, 300, 40))
    y = build.expand(build.reshape(leaf(b), (1, 300, 40)), (33, 300, 40))
    (product,) = run([build.reduce(monoids.ADD, (1,), x * y)])
    exact = a.astype(np.float64) @ b.astype(np.float64)
    step = 2.0**-10 if dtype is dtypes.float16 else 2.0**-7
    assert (abs(product.astype(np.float64) - exact) <= step * abs(exact) + 1e-4).all()


@small_dtypes
@pytest.mark.parametrize("monoid", [None, monoids.ADD, monoids.MAX])
def test_scatters(dtype: DType, monoid: monoids.Monoid | None) -> None:
    base = np.array([1, 2, 3, 4], np.float32).astype(dtype.numpy)
    updates = np.array([0.5, 1, 8, 1, 2], np.float32).astype(dtype.numpy)
    places = leaf(np.array([1, 1, 3, 9, 1]))
    sink = Node(Op.SCATTER, (leaf(base), places, leaf(updates)), Scatter(0, monoid))
    same(run([sink])[0], run([sink], "interp")[0])


@pytest.mark.parametrize("dtype", [*SMALL, dtypes.bool_], ids=lambda dtype: dtype.name)
def test_sorts(dtype: DType) -> None:
    rng = np.random.default_rng(7)
    a = rng.integers(-5, 6, (3, 50)).astype(np.float32).astype(dtype.numpy)
    (order,) = run([build.argsort(leaf(a))])
    assert np.array_equal(order, np.argsort(a.astype(np.float32), axis=-1, kind="stable"))


@small_dtypes
def test_a_scalar_rounds_like_an_array(dtype: DType) -> None:
    x = hard_floats(dtype)[::37]
    expected = cast_by_numpy(x, dtype)
    constants = [build.const(float(one), dtype) for one in x]
    rounded = [fold_constant(Op.CAST, (one,), dtypes.float32).arg.value for one in constants]
    bits = [fold_constant(Op.BITCAST, (one,), carrier(dtype)).arg.value for one in constants]
    same(np.array(rounded, np.float32), expected.astype(np.float32))
    same(np.array(bits, unsigned(dtype)).view(dtype.numpy), expected)


@small_dtypes
@pytest.mark.parametrize("device", ["cpu", "interp"])
def test_extremes_begin_with_a_number_that_the_dtype_has(dtype: DType, device: str) -> None:
    a = (np.random.default_rng(4).integers(-9, 9, (5, 40)) * 0.5).astype(dtype.numpy)
    for monoid, extreme in ((monoids.MAX, np.max), (monoids.MIN, np.min)):
        (found,) = run([build.reduce(monoid, (1,), leaf(a))], device)
        same(found, extreme(a.astype(np.float32), 1).astype(dtype.numpy))


@small_dtypes
def test_extremes_down_the_columns_of_long_rows(dtype: DType) -> None:
    a = (np.random.default_rng(5).integers(-9, 9, (64, 4096)) * 0.5).astype(dtype.numpy)
    for monoid, extreme in ((monoids.MAX, np.max), (monoids.MIN, np.min)):
        (found,) = run([build.reduce(monoid, (0,), leaf(a))])
        same(found, extreme(a.astype(np.float32), 0).astype(dtype.numpy))
