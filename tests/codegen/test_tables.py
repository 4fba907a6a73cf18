"""Functions of four bits, which vectors of 16 lanes look up in a register, against NumPy."""

from __future__ import annotations

import platform
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import lamina as lm
from lamina import Tensor, pipeline
from lamina.core import dtypes
from lamina.core.dtypes import DType
from lamina.core.options import current, using
from lamina.ir import build
from lamina.ir.node import Node, const
from lamina.ir.ops import Op
from lamina.runtime.compiler import Compiler, survey
from lamina.runtime.compiler import run as compile_c
from tests.generators import leaf

pytestmark = pytest.mark.usefixtures("on_cpu")
INTEGERS = [one for one in dtypes.ALL if one.is_int]
SCHEDULE = "split(a1, 16) -> a2, a3; bind(a3, vector)"  # and 13 elements that are left
FUNCTIONS: list[Callable[[Tensor], Tensor]] = [
    lambda x: x - 8.0,
    lambda x: 3.0 / (x + 0.5),
    lambda x: lm.where(x < 8.0, x, x - 16.0) * 0.25,  # is made of more than one
]


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("dtype", INTEGERS, ids=lambda dtype: dtype.name)
def test_digits_of_integers(dtype: DType, function: Callable[[Tensor], Tensor]) -> None:
    """After shifts by amounts that data say, those beyond the width too."""
    ends = (int(one.real) for one in (dtype.min, dtype.max))
    numbers = np.random.default_rng(0).integers(*ends, 77, dtype.numpy, endpoint=True)
    amounts = np.arange(dtype.bits + 3, dtype=dtype.numpy)[:, None]
    with using(schedule=SCHEDULE):
        digits = (lm.asarray(numbers)[None] >> lm.asarray(amounts)) & 15
        got = function(digits.cast(lm.float32)).numpy()
    want = np.right_shift(numbers, amounts) & 15
    with using(device="interp"):
        right = function(lm.asarray(want.astype(np.float32))).numpy()
    np.testing.assert_array_equal(got, right)


def _decoded() -> Node:
    shifted = Node(Op.SHR, (leaf(0, (64, 64), dtypes.uint8), leaf(1, (64, 64), dtypes.uint8)))
    fifteen = build.expand(const(15, dtypes.uint8), (64, 64))
    return build.cast(shifted & fifteen, dtypes.float32) + -8.0


@pytest.mark.skipif(platform.machine() != "x86_64", reason="other processors have other names")
@pytest.mark.parametrize("name", ["gcc", "clang-19"])
def test_they_take_one_instruction(name: str, tmp_path: Path) -> None:
    if not isinstance(compiler := dict(survey(name))[name], Compiler):
        pytest.skip(f"{name} is not installed")
    schedule = "fuse(a0, a1) -> a2; split(a2, 16) -> a3, a4; bind(a4, vector)"
    text = pipeline.compile_source([_decoded()], replace(current(), schedule=schedule)).text
    source, output = tmp_path / "a.c", tmp_path / "a.s"
    source.write_text(text, encoding="utf-8")
    done = compile_c([*compiler.command(source, output), "-S", "-march=icelake-server"])
    assert not done.returncode, done.stderr
    lines = output.read_text(encoding="utf-8")
    assert re.search(r"\tvperm(d|ps)\s", lines)
    assert not re.search(r"\tv(cvtdq2ps|addps|pand)\s", lines)
