"""Every function of float32 on the CPU against float64, and of float64 against 80 bits, with and
without fused operations.

The exhaustive test takes all 2**32 float32 values, a few minutes a function:

    pytest -m exhaustive tests/transcendental
"""

from __future__ import annotations

import ctypes
import ctypes.util
import functools
import math
import os
import platform
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lamina as lm
from lamina import Tensor
from lamina.core.dtypes import bfloat16, float16
from lamina.core.options import using
from lamina.ir.interpreter import NUMPY
from lamina.ir.node import Node
from lamina.ir.ops import Op
from lamina.runtime.compiler import Compiler
from lamina.targets.c.operations import MAX_INLINED
from tests.codegen.running import leaf, run
from tests.elementwise_cases import CASES
from tests.transcendental import c_check
from tests.transcendental.c_check import Vector

# Where a method changes, or a function becomes infinite, zero or one.
CRITICAL = (
    0.0, 2.0**-126, 0.0625, 0.1875, 0.5, 0.70710677, 1.0, 1.125, 1.4142135, 2.0, 3.84, 3.92,
    88.72284, 87.33655, 103.97208, 126.0, 128.0, 149.0, 150.0, 0.78539816, 1.57079633, 3.14159265,
    2.0**32, 2.0**65, 2.0**98, 9.02, 16367173 * 2.0**72, 3.4e38,
)  # fmt: skip
# The same of float64: thresholds of `doubles.c`, and where its functions become infinite or zero.
CRITICAL_FLOAT64 = (
    2.0**-1022, 2.0**-28, 709.782712893384, 745.1332191019412, 1022.0, 1024.0, 1074.0, 1075.0,
    1.5, 5.95, 19.1, 200000.0, 1e22, 1.7e308,
)  # fmt: skip
SCALARS = "split(a0, 4096) -> a1, a2"  # a schedule without vectors
every_function = pytest.mark.parametrize("op", CASES, ids=lambda op: op.name)


@pytest.fixture(params=["-ffp-contract=off", "-ffp-contract=fast", "-U__AVX512F__"])
def flag(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[str]:
    """What to compile with: a product and a sum are two operations, or one; text for some
    processors alone is left out."""
    command = Compiler.command

    def with_flag(self: Compiler, source: Path | str, output: Path | str) -> list[str]:
        return [*command(self, source, output), request.param]

    with using(cache_dir=str(tmp_path)):
        monkeypatch.setattr(Compiler, "command", with_flag)
        yield request.param


@functools.cache
def sample() -> Vector:
    """Random fractions for every sign and exponent, and every value around the critical ones."""
    rng = np.random.default_rng(0)
    top = np.arange(512, dtype=np.uint32)[:, None] << 23
    bits = top | rng.integers(0, 1 << 23, (512, 1 << 12), dtype=np.uint32)
    near = np.array([*CRITICAL, math.inf], np.float32).view(np.uint32)[:, None]
    near = near + np.arange(-3000, 3000).astype(np.uint32)
    multiples = np.arange(1, 40000, dtype=np.float64) * (math.pi / 2)
    zeros = multiples.astype(np.float32).view(np.uint32)
    dense = np.concatenate([near.ravel(), zeros])
    whole = np.concatenate([bits.ravel(), dense, dense ^ np.uint32(1 << 31)])
    return whole.view(np.float32)


def compiled(op: Op, x: Vector) -> Vector:
    return run([Node(op, (leaf(x),))])[0]


def distance(got: Vector, exact: Vector) -> Vector:
    """Distance in units of the last place of the exact values; inf for a wrong special value."""
    with np.errstate(all="ignore"):
        rounded = exact.astype(np.float32)
        last_place = np.ldexp(1.0, np.maximum(np.frexp(exact)[1] - 24, -149))
        # One past the largest float is a legal rounding of a value just below it.
        finite = np.where(np.isinf(got), np.copysign(2.0**128, got), got.astype(np.float64))
        far: Vector = np.abs(finite - exact) / np.where(exact == 0, 2.0**-149, last_place)
    far[np.isnan(got) | np.isinf(exact) | (np.signbit(got) != np.signbit(exact))] = math.inf
    same = (got == rounded) & ~np.isfinite(got) & (np.signbit(got) == np.signbit(exact))
    far[same | (np.isnan(got) & np.isnan(exact))] = 0
    return far


@every_function
@pytest.mark.parametrize("schedule", ["", SCALARS], ids=["vectors", "scalars"])
def test_error_of_a_sample(op: Op, schedule: str, flag: str) -> None:
    x = sample()
    with np.errstate(all="ignore"):
        exact = NUMPY[op](x.astype(np.float64)).astype(np.float64)
    with using(schedule=schedule):
        got = compiled(op, x)
    far = distance(got, exact)
    worst = int(np.argmax(far))
    message = f"{op.name}({x[worst]}): {got[worst]}, exactly {exact[worst]}"
    assert far[worst] <= CASES[op].max_ulp, message


@functools.cache
def sample_of_float64() -> Vector:
    """Random fractions for every exponent, values around the critical ones and multiples of pi/2,
    and random ones where functions are used; all with both signs."""
    rng = np.random.default_rng(0)
    exponents = np.arange(2047, dtype=np.uint64)[:, None] << np.uint64(52)
    bits = exponents | rng.integers(0, 1 << 52, (2047, 8), dtype=np.uint64)
    near = np.array([*CRITICAL, *CRITICAL_FLOAT64, math.inf]).view(np.uint64)[:, None]
    near = near + np.arange(-30, 30).astype(np.uint64)
    multiples = np.arange(1, 140000, 23, dtype=np.float64) * (math.pi / 2)
    used = np.concatenate([rng.uniform(0, 6, 4000), rng.uniform(0, 750, 4000)])
    positive = np.concatenate([bits.view(np.float64).ravel(), near.view(np.float64).ravel()])
    whole = np.concatenate([positive, multiples, used])
    return np.concatenate([whole, -whole])


def in_80_bits(op: Op, x: Vector) -> Vector:
    """The exact values but for the 64 bits of their fractions, by a library of others."""
    if op is Op.ERF:
        mpmath = pytest.importorskip("mpmath")
        with mpmath.workprec(100):
            texts = [mpmath.nstr(mpmath.erf(mpmath.mpf(float(value))), 25) for value in x]
        return np.copysign(np.array(texts, np.longdouble), x)  # of -0 too
    result: Vector = NUMPY[op](x.astype(np.longdouble))
    assert result.dtype == np.longdouble, f"{op.name}: in_80_bits needs a formula for it"
    return result


@pytest.mark.skipif(np.finfo(np.longdouble).nmant < 63, reason="long double has no 64 bits here")
@every_function
def test_error_of_a_sample_of_float64(op: Op, flag: str) -> None:
    x = sample_of_float64()
    with np.errstate(all="ignore"):
        exact = in_80_bits(op, x)
        rounded = exact.astype(np.float64)
        got = compiled(op, x)
        far = np.abs(got - exact) / np.spacing(np.abs(rounded).clip(0, np.finfo(float).max))
    same = (got == rounded) & (np.signbit(got) == np.signbit(rounded))
    far[same | (np.isnan(got) & np.isnan(rounded))] = 0.0
    far[(np.signbit(got) != np.signbit(rounded)) & ~np.isnan(rounded)] = math.inf
    far[np.isnan(got) != np.isnan(rounded)] = math.inf
    worst = int(np.argmax(far))
    message = f"{op.name}({x[worst]}): {got[worst]}, exactly {exact[worst]}"
    assert far[worst] <= CASES[op].max_ulp_float64, message


@pytest.mark.exhaustive
@pytest.mark.timeout(3600)
@every_function
def test_error_of_every_argument(op: Op, flag: str, tmp_path: Path) -> None:
    """All of float32."""
    if c_check.COMPILER is None:
        pytest.skip("needs a C compiler")
    measure, step = c_check.compile_errors(op.name.lower(), tmp_path), 1 << 22

    def part(first: int) -> tuple[float, int]:
        x = np.arange(first, first + step, dtype=np.uint32).view(np.float32)
        return c_check.errors(measure, x, compiled(op, x))

    part(0)
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        worst, bits = max(threads.map(part, range(0, 1 << 32, step)))
    where = np.uint32(bits).view(np.float32)
    print(f"{op.name}, {flag}: {worst:.4f} at {where!r}")
    assert worst <= CASES[op].max_ulp, f"{op.name}({where!r}), {flag}"


@every_function
def test_special_values_bit_for_bit(op: Op) -> None:
    """At 0, infinities and NaN NumPy's own float32 functions are exact."""
    x = np.array([0.0, -0.0, math.inf, -math.inf, math.nan] * 9, np.float32)
    with np.errstate(all="ignore"):
        want = NUMPY[op](x).astype(np.float64).astype(np.float32)
    got = compiled(op, x)
    nan = np.isnan(want)
    np.testing.assert_array_equal(nan, np.isnan(got))
    # pi / 2 of an infinity may round either way; everything else is exact.
    np.testing.assert_array_max_ulp(got[~nan], want[~nan], 1 if op is Op.ATAN else 0)
    np.testing.assert_array_equal(np.signbit(want[~nan]), np.signbit(got[~nan]))


@pytest.mark.parametrize("dtype", [float16, bfloat16], ids=lambda dtype: dtype.name)
@every_function
def test_narrow_floats_for_every_argument(op: Op, dtype: Any) -> None:
    """Within one place of the rounded exact value: float32 rounds it a second time."""
    x = np.arange(1 << 16, dtype=np.uint16).view(dtype.numpy)
    got = compiled(op, x)
    with np.errstate(all="ignore"):
        want = NUMPY[op](x.astype(np.float64)).astype(np.float64).astype(dtype.numpy)
    nan = np.isnan(want)
    np.testing.assert_array_equal(nan, np.isnan(got))
    places = np.abs(got.view(np.int16).astype(int) - want.view(np.int16).astype(int))
    assert places[~nan].max() <= 1


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the number of a flag of x86")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("op", [Op.EXP, Op.EXP2], ids=lambda op: op.name)
def test_what_vanishes_does_not_underflow(op: Op, dtype: str) -> None:
    """As masked attention has many of it, and a product that underflows takes 100 clocks."""
    environment = ctypes.CDLL(ctypes.util.find_library("m"))
    underflow = 0x10
    x = np.full(64, -math.inf, dtype)
    x[::3] = -1e4
    with using(threads=1):
        compiled(op, x)  # which loads it
        environment.feclearexcept(underflow)
        got = compiled(op, x)
        assert not environment.fetestexcept(underflow)
        smallest = math.log2(np.finfo(dtype).smallest_subnormal)
        x[::3] = (smallest + 5.5) * (1.0 if op is Op.EXP2 else math.log(2))
        compiled(op, x)
        assert environment.fetestexcept(underflow)  # as these have few bits left
    assert not got.any()


@pytest.mark.parametrize("op", [Op.SIN, Op.COS], ids=lambda op: op.name)
def test_large_arguments_change_no_neighbours(op: Op) -> None:
    """A vector with a lane above the limit takes the rare path, which leaves other lanes alone."""
    small = np.linspace(-6000, 6000, 320, dtype=np.float32)
    mixed = small.copy()
    mixed[::7] = 1e30
    alone, beside = compiled(op, small), compiled(op, mixed)
    is_small = mixed == small
    np.testing.assert_array_equal(alone[is_small].view(np.int32), beside[is_small].view(np.int32))


def test_a_kernel_calls_functions_beyond_the_inlined_ones() -> None:
    """160 sines in long kernels: most of them are calls of one function."""
    x = np.linspace(0, 1, 100, dtype=np.float32)
    want = x.astype(np.float64)
    for number in range(160):
        want = np.sin(want * 0.5 + number % 4)

    def sines(value: Tensor) -> Tensor:
        for number in range(160):
            value = (value * 0.5 + number % 4).sin()
        return value

    argument = Tensor(x)
    text = lm.jit(sines).lower(argument, device="cpu").source
    uses = re.findall(r"= (\w*)sin_f32x", text)
    assert len(uses) > 160
    kernels = re.findall(r"^KERNEL\(map", text, re.MULTILINE)
    assert uses.count("") == MAX_INLINED * len(kernels)
    assert set(uses) == {"", "called_"}
    np.testing.assert_allclose(sines(argument).numpy(), want, atol=2e-6)
