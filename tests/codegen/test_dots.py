"""Sums of products of 8-bit integers: four a lane at once, against NumPy, which is exact."""

from __future__ import annotations

import platform
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lamina as lm
from lamina import pipeline
from lamina.core import dtypes
from lamina.core.dtypes import DType
from lamina.core.options import current, using
from lamina.errors import FormatError
from lamina.ir import build, monoids
from lamina.ir.node import Node
from lamina.ir.ops import Op, Reduce
from lamina.runtime.compiler import Compiler, survey
from lamina.runtime.compiler import run as compile_c
from tests.generators import leaf

pytestmark = pytest.mark.usefixtures("on_cpu")
NARROW = st.sampled_from([np.uint8, np.int8])


def _bytes(dtype: type, shape: tuple[int, ...], seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, shape, np.uint8).view(dtype)


@given(NARROW, NARROW, st.lists(st.integers(1, 40), max_size=3), st.data())
def test_sums_of_four_are_exact(
    left: type, right: type, shape: list[int], data: st.DataObject
) -> None:
    """Whichever axes are summed, and along whichever the right side is the same."""
    sizes = (*shape, 4)
    same = data.draw(st.lists(st.booleans(), min_size=len(shape), max_size=len(shape)))
    others = (*(1 if one else size for one, size in zip(same, shape, strict=True)), 4)
    summed = [axis for axis in range(len(shape)) if data.draw(st.booleans())]
    a, b = _bytes(left, sizes, len(shape)), _bytes(right, others, 7)
    product = lm.asarray(a).cast(lm.int32) * lm.asarray(b).cast(lm.int32)
    got = lm.sum(product, axis=(*summed, len(shape)), dtype=lm.int32).numpy()
    want = (a.astype(np.int32) * b).sum(axis=(*summed, len(shape)), dtype=np.int32)
    np.testing.assert_array_equal(got, want)


def test_the_largest_products() -> None:
    """255 * 128 four times over is more than 16 bits hold: nothing saturates."""
    a = np.full((16, 4), 255, np.uint8)
    b = np.full((16, 4), -128, np.int8)
    product = lm.asarray(a).cast(lm.int32) * lm.asarray(b).cast(lm.int32)
    assert set(lm.sum(product, axis=1, dtype=lm.int32).numpy()) == {-4 * 255 * 128}


def test_halves_of_bytes() -> None:
    """What is computed from bytes is, for the lanes of bytes."""
    packed, x = _bytes(np.uint8, (9, 16, 4), 1), _bytes(np.int8, (9, 2, 1, 4), 2)
    shifts = lm.asarray([0, 4], dtype=lm.uint8).reshape((2, 1, 1))
    numbers = (lm.asarray(packed)[:, None] >> shifts) & 15
    product = numbers.cast(lm.int32) * lm.asarray(x).cast(lm.int32)
    halves = np.stack([packed & 15, packed >> 4], 1).astype(np.int32)
    got = lm.sum(product, axis=(1, 3), dtype=lm.int32).numpy()
    np.testing.assert_array_equal(got, (halves * x).sum(axis=(1, 3)))


def _sum(right: DType = dtypes.int8, size: int = 4, dtype: DType = dtypes.int32) -> Node:
    a, b = leaf(0, (32, size), dtypes.uint8), leaf(1, (32, size), right)
    product = build.cast(a, dtype) * build.cast(b, dtype)
    return Node(Op.REDUCE, (product,), Reduce(monoids.ADD, (1,)))


@pytest.mark.parametrize(
    "other", [_sum(dtypes.int16), _sum(size=8), _sum(dtype=dtypes.float32)], ids=str
)
def test_other_sums_are_not(other: Node) -> None:
    with using(schedule="bind(a1, dot)") as options, pytest.raises(FormatError, match="of 8 bits"):
        pipeline.compile_source([other], options)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="other processors have other names")
@pytest.mark.parametrize("name", ["gcc", "clang-19"])
@pytest.mark.parametrize("lanes", [2, 8, 16])
def test_it_is_one_instruction(lanes: int, name: str, tmp_path: Path) -> None:
    if not isinstance(compiler := dict(survey(name))[name], Compiler):
        pytest.skip(f"{name} is not installed")
    schedule = f"split(a0, {lanes}) -> a2, a3; bind(a3, vector); bind(a1, dot)"
    text = pipeline.compile_source([_sum()], replace(current(), schedule=schedule)).text
    source, output = tmp_path / "a.c", tmp_path / "a.s"
    source.write_text(text, encoding="utf-8")
    done = compile_c([*compiler.command(source, output), "-S", "-march=icelake-server"])
    assert not done.returncode, done.stderr
    assert re.search(r"\tvpdpbusd\s", output.read_text(encoding="utf-8"))
