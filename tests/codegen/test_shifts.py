"""Shifts of rows on the CPU, each by one amount or by one for every element, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from lamina.core import dtypes
from lamina.core.dtypes import DType
from lamina.ir import build
from lamina.ir.node import Node
from lamina.ir.ops import Op
from tests.codegen.running import leaf, run

INTEGERS = [one for one in dtypes.ALL if one.is_int]
COLUMNS = 77  # vectors, and a rest


@pytest.mark.parametrize("dtype", INTEGERS, ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("op", [Op.SHL, Op.SHR], ids=lambda op: op.name)
def test_any_amount(op: Op, dtype: DType) -> None:
    ends = (int(one.real) for one in (dtype.min, dtype.max))
    rng = np.random.default_rng(0)
    numbers = rng.integers(*ends, COLUMNS, dtype.numpy, endpoint=True)
    least = 0 if dtype.kind == "uint" else -2
    amounts = np.array([*range(least, dtype.bits + 3), int(dtype.max.real)], dtype.numpy)
    shape = len(amounts), COLUMNS
    rows, each = (build.expand(leaf(one), shape) for one in (numbers[None], amounts[:, None]))
    mixed = np.resize(amounts, shape)
    got = run([Node(op, (rows, each)), Node(op, (rows, leaf(mixed)))])
    shift = np.left_shift if op is Op.SHL else np.right_shift
    np.testing.assert_array_equal(got[0], shift(numbers, amounts[:, None]))
    np.testing.assert_array_equal(got[1], shift(numbers, mixed))
