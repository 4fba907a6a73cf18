"""Constants in bfloat16 that are folded at compile time, beside ml_dtypes."""

from __future__ import annotations

import math
import random
import subprocess
import sys

import numpy as np
import pytest

from lamina.core import dtypes
from lamina.core.dtypes import DType
from lamina.ir.interpreter import evaluate, fold_constant
from lamina.ir.node import Node, const
from lamina.ir.ops import Op

# Zeros, what is between two numbers of bfloat16, the largest, the smallest, and what is none.
EDGES = [0.0, -0.0, 1.00390625, 1.01171875, 1.0039063, 3.39e38, 3.4e38, 1e-40, 1e-45, math.inf,
         -math.inf, math.nan]  # fmt: skip
BINARY = (Op.ADD, Op.MUL, Op.DIV, Op.MOD, Op.MAX, Op.MIN, Op.LT, Op.EQ)


def numbers() -> list[float]:
    rng = random.Random(5)
    return EDGES + [rng.uniform(-10, 10) * 10.0 ** rng.randint(-30, 30) for _ in range(40)]


def check(op: Op, operands: tuple[Node, ...], arg: DType | None = None) -> None:
    """Equal to the last bit, but for which NaN it is."""
    with np.errstate(all="ignore"):
        (expected,) = evaluate([Node(op, operands, arg)])
        folded = fold_constant(op, operands, arg)
        (found,) = evaluate([folded])
        is_nan, finds_nan = (bool(np.isnan(one.astype(float))) for one in (expected, found))
    assert found.dtype == expected.dtype
    is_equal = found.tobytes() == expected.tobytes()
    is_right = finds_nan if is_nan else is_equal
    assert is_right, (op, [x.arg.value for x in operands], found, expected)


@pytest.mark.parametrize("op", BINARY)
def test_operations_on_two_numbers(op: Op) -> None:
    rng = random.Random(op.name)
    for _ in range(300):
        left, right = (const(rng.choice(numbers()), dtypes.bfloat16) for _ in range(2))
        check(op, (left, right))


@pytest.mark.parametrize("op", [Op.NEG, Op.TRUNC])
def test_operations_on_a_number(op: Op) -> None:
    for x in numbers():
        check(op, (const(x, dtypes.bfloat16),))


@pytest.mark.parametrize("other", [dtypes.float16, dtypes.float32, dtypes.float64])
def test_casts(other: DType) -> None:
    for x in numbers():
        check(Op.CAST, (const(x, dtypes.bfloat16),), other)
        check(Op.CAST, (const(x, other),), dtypes.bfloat16)


def test_bits() -> None:
    for x in numbers():
        check(Op.BITCAST, (const(x, dtypes.bfloat16),), dtypes.uint16)
    for bits in range(0, 1 << 16, 77):
        check(Op.BITCAST, (const(bits, dtypes.uint16),), dtypes.bfloat16)


_PROCESS = """
import sys
import lamina as lm
from lamina import TensorSpec

x, w = TensorSpec((64, 128), lm.bfloat16), TensorSpec((128, 64), lm.bfloat16)
lm.jit(lambda x, w: (lm.gelu(x @ w) * 0.7 / 3.0).sum()).lower(x, w, device="cuda:0")
print("ml_dtypes" in sys.modules)
"""


def test_compiling_does_not_import_ml_dtypes() -> None:
    """That takes 0.6 s."""
    command = [sys.executable, "-c", _PROCESS]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
