"""Every expansion against float64, in NumPy's arithmetic and in C with and without contraction.

The exhaustive test takes all 2**32 float32 values, a few minutes a function:

    pytest -m exhaustive tests/transcendental
"""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lamina.dtypes import ALL, bfloat16, float16, float32
from lamina.ir.interpreter import evaluate
from lamina.ir.node import Node, toposort
from lamina.ir.ops import BufferRef, Group, Hole, Op
from lamina.simplify.transcendental import EXPANSIONS, MAX_ULP, expand
from tests.transcendental import c_check
from tests.transcendental.c_check import Vector

X, Y = (Node(Op.HOLE, (), Hole(name, float32)) for name in "xy")
ERF: Callable[[Vector], Vector] = np.frompyfunc(math.erf, 1, 1)
REFERENCE: dict[Op, Callable[..., Vector]] = {
    Op.EXP: np.exp, Op.EXP2: np.exp2, Op.LOG: np.log, Op.LOG2: np.log2, Op.SIN: np.sin,
    Op.COS: np.cos, Op.ATAN: np.arctan, Op.ERF: ERF,
}  # fmt: skip
# Where an expansion changes its method, or its function becomes infinite, zero or one.
CRITICAL = (
    0.0, 2.0**-126, 0.5, 0.70710677, 1.0, 1.4142135, 2.0, 3.84, 3.92, 88.72284, 87.33655,
    103.97208, 126.0, 128.0, 149.0, 150.0, 0.78539816, 1.57079633, 3.14159265, 2.0**32, 2.0**65,
    2.0**98, 16367173 * 2.0**72, 3.4e38,
)  # fmt: skip
C_AND_NUMPY = ["numpy", *(f"c-{one}" for one in c_check.CONTRACTION)]


def node_of(op: Op) -> Node:
    return expand(Node(op, (X,)))


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


@functools.cache
def arguments_and_exact(op: Op) -> tuple[tuple[Vector, ...], Vector]:
    arguments = (sample(),)
    with np.errstate(all="ignore"):
        exact = REFERENCE[op](*(one.astype(np.float64) for one in arguments))
    return arguments, exact.astype(np.float64)


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


def in_numpy(op: Op, arguments: tuple[Vector, ...], chunk: int = 1 << 17) -> Vector:
    node = node_of(op)
    parts = [
        evaluate([node], {h: a[i : i + chunk] for h, a in zip((X, Y), arguments, strict=False)})[0]
        for i in range(0, len(arguments[0]), chunk)
    ]
    return np.concatenate(parts)


def compiled(op: Op, contraction: str, folder: Path) -> Any:
    if c_check.COMPILER is None:
        pytest.skip("needs a C compiler")
    return c_check.compile_expansion(node_of(op), contraction, folder)


@pytest.mark.parametrize("arithmetic", C_AND_NUMPY)
@pytest.mark.parametrize("op", EXPANSIONS, ids=lambda op: op.name)
def test_error_of_a_sample(op: Op, arithmetic: str, tmp_path: Path) -> None:
    arguments, exact = arguments_and_exact(op)
    if arithmetic == "numpy":
        got = in_numpy(op, arguments)
    else:
        library = compiled(op, arithmetic.removeprefix("c-"), tmp_path)
        got = c_check.run(library, arguments[0], arguments[-1])
    far = distance(got, exact)
    worst = int(np.argmax(far))
    where = [float(one[worst]) for one in arguments]
    assert far[worst] <= MAX_ULP[op], f"{op.name}{where}: {got[worst]}, exactly {exact[worst]}"


@pytest.mark.exhaustive
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("op", EXPANSIONS, ids=lambda op: op.name)
def test_error_of_every_argument(op: Op, tmp_path: Path) -> None:
    """All of float32."""
    libraries = [compiled(op, one, tmp_path) for one in c_check.CONTRACTION]
    measure = c_check.compile_errors(f"{op.name.lower()}((double)x[i])", tmp_path)
    step = 1 << 24
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        parts = threads.map(
            lambda first: c_check.errors(measure, libraries, first, first + step),
            range(0, 1 << 32, step),
        )
        for contraction, results in zip(c_check.CONTRACTION, zip(*parts, strict=True), strict=True):
            worst, bits = max(results)
            where = np.uint32(bits).view(np.float32)
            print(f"{op.name}, contraction {contraction}: {worst:.4f} at {where!r}")
            assert worst <= MAX_ULP[op], f"{op.name}({where!r}), contraction {contraction}"


@pytest.mark.parametrize("op", EXPANSIONS, ids=lambda op: op.name)
def test_special_values_bit_for_bit(op: Op) -> None:
    """At 0, infinities and NaN NumPy's own float32 functions are exact."""
    x = np.array([0.0, -0.0, math.inf, -math.inf, math.nan], np.float32)
    with np.errstate(all="ignore"):
        want = REFERENCE[op](x).astype(np.float64).astype(np.float32)
    got = in_numpy(op, (x,))
    nan = np.isnan(want)
    np.testing.assert_array_equal(nan, np.isnan(got))
    # pi / 2 of an infinity may round either way; everything else is exact.
    np.testing.assert_array_max_ulp(got[~nan], want[~nan], 1 if op is Op.ATAN else 0)
    np.testing.assert_array_equal(np.signbit(want[~nan]), np.signbit(got[~nan]))


@pytest.mark.parametrize("dtype", [float16, bfloat16], ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("op", EXPANSIONS, ids=lambda op: op.name)
def test_narrow_floats_for_every_argument(op: Op, dtype: Any) -> None:
    """Within one place of the rounded exact value: float32 rounds it a second time."""
    x = Node(Op.HOLE, (), Hole("x", dtype))
    values = np.arange(1 << 16, dtype=np.uint16).view(dtype.numpy)
    node = expand(Node(op, (x,)))
    assert node.dtype is dtype
    (got,) = evaluate([node], {x: values})
    with np.errstate(all="ignore"):
        want = REFERENCE[op](values.astype(np.float64)).astype(np.float64).astype(dtype.numpy)
    nan = np.isnan(want)
    np.testing.assert_array_equal(nan, np.isnan(got))
    places = np.abs(got.view(np.int16).astype(int) - want.view(np.int16).astype(int))
    assert places[~nan].max() <= 1


@pytest.mark.parametrize("op", EXPANSIONS, ids=lambda op: op.name)
def test_an_expansion_is_elementary_and_keeps_shape_and_dtype(op: Op) -> None:
    buffer = Node(Op.BUFFER, (), BufferRef(0, (3, 4), float32, "cpu"))
    node = expand(Node(op, (buffer,)))
    assert (node.shape, node.dtype) == ((3, 4), float32)
    used = {one.op for one in toposort([node])}
    assert not used & (Group.TRANSCENDENTAL | {Op.MOD})
    shifts = [one for one in toposort([node]) if one.op in (Op.SHL, Op.SHR)]
    assert all(one.src[1].op is Op.EXPAND and one.src[1].src[0].op is Op.CONST for one in shifts)
    rng = np.random.default_rng(2)
    values = rng.uniform(0.1, 3, (3, 4)).astype(np.float32)
    (got,) = evaluate([node], {buffer: values})
    want = REFERENCE[op](values.astype(np.float64))
    np.testing.assert_allclose(got, want.astype(np.float64), rtol=1e-6)


def test_what_has_no_expansion_stays() -> None:
    for dtype in ALL:
        if dtype.is_float and dtype not in (float16, bfloat16, float32):
            x = Node(Op.HOLE, (), Hole("x", dtype))
            assert all(expand(Node(op, (x,))) == Node(op, (x,)) for op in EXPANSIONS)
    for same in (Node(Op.POW, (X, Y)), X + Y, X % Y):
        assert expand(same) is same


def test_the_table_of_errors_is_complete() -> None:
    assert MAX_ULP.keys() == EXPANSIONS.keys()
