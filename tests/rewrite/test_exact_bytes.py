"""Sums of products of bytes by floats of 16 bits, beside NumPy's sums of integers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lamina as lm
from lamina.core.dtypes import DType, int8, int32, uint8
from lamina.graph import exact_bytes
from lamina.graph.exact_bytes import bytes_as_floats
from lamina.ir import build
from lamina.ir.interpreter import evaluate
from lamina.ir.monoids import ADD
from lamina.ir.node import Node, toposort
from lamina.ir.ops import Op
from tests.generators import leaf

ROWS, COLUMNS = 17, 24


@pytest.fixture(autouse=True)
def small_products(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let sums be worth it that an interpreter adds up in no time."""
    monkeypatch.setattr(exact_bytes, "MIN_PRODUCTS", 1)


def _product(steps: int, left: DType, right: DType, rows: int = ROWS) -> Node:
    """``x @ w.T`` of integers, of x (rows, steps) and w (COLUMNS, steps)."""
    x, w = leaf(0, (rows, steps), left), leaf(1, (COLUMNS, steps), right)
    shape = (rows, steps, COLUMNS)
    by_row = build.reshape(build.cast(x, int32), (rows, steps, 1))
    by_column = build.reshape(build.cast(build.permute(w, (1, 0)), int32), (1, steps, COLUMNS))
    factors = build.expand(by_row, shape), build.expand(by_column, shape)
    return build.reduce(ADD, (1,), Node(Op.MUL, factors))


def _compared(steps: int, left: Any, right: Any) -> Node:
    """The rule's node, whose value must be NumPy's."""
    kinds = {"int8": int8, "uint8": uint8}
    node = _product(steps, kinds[left.dtype.name], kinds[right.dtype.name])
    floats = bytes_as_floats.apply(node)
    assert floats is not None
    leaves = {one: value for one in toposort([node]) if one.op is Op.BUFFER
              for value in [(left, right)[one.arg.storage]]}  # fmt: skip
    (result,) = evaluate([floats], leaves)
    np.testing.assert_array_equal(result, left.astype(np.int64) @ right.astype(np.int64).T)
    return floats


@pytest.mark.parametrize("steps", [64, 1000, 1024, 1031, 1984, 2042, 3072])
@pytest.mark.parametrize(("left", "right"), [("int8", "int8"), ("uint8", "int8")])
def test_sums_are_those_of_integers(steps: int, left: str, right: str) -> None:
    random = np.random.default_rng(steps)
    factors = []
    for dtype, rows in ((left, ROWS), (right, COLUMNS)):
        ends = np.iinfo(dtype)
        factors.append(random.integers(ends.min, ends.max, (rows, steps), dtype, endpoint=True))
    _compared(steps, *factors)


@pytest.mark.parametrize("adds_axis", [True, False])
def test_factors_that_movement_repeats_are_padded(adds_axis: bool) -> None:
    """Whether the axis along which one repeats is new, or had size 1."""
    steps = 1031
    x, w = leaf(0, (ROWS, steps), int8), leaf(1, (COLUMNS, steps), int8)
    shape = (ROWS, COLUMNS, steps)
    by_row = build.expand(build.reshape(build.cast(x, int32), (ROWS, 1, steps)), shape)
    columns = build.cast(w, int32)
    once = columns if adds_axis else build.reshape(columns, (1, COLUMNS, steps))
    node = build.reduce(ADD, (2,), Node(Op.MUL, (by_row, Node(Op.EXPAND, (once,), shape))))
    floats = bytes_as_floats.apply(node)
    assert floats is not None
    rng = np.random.default_rng(6)
    left, right = (rng.integers(-128, 128, (rows, steps), np.int8) for rows in (ROWS, COLUMNS))
    (result,) = evaluate([floats], {x: left, w: right})
    np.testing.assert_array_equal(result, left.astype(np.int64) @ right.astype(np.int64).T)


def test_a_factor_that_movement_joins_with_others_stays() -> None:
    """Steps that are two axes of the array have no end at which zeros could be."""
    steps = 1031
    x, w = leaf(0, (ROWS, steps), int8), leaf(1, (steps, 2, COLUMNS // 2), int8)
    shape = (ROWS, steps, COLUMNS)
    by_row = build.expand(build.reshape(build.cast(x, int32), (ROWS, steps, 1)), shape)
    mixed = build.reshape(build.permute(w, (1, 0, 2)), (steps, COLUMNS))
    by_column = build.expand(build.reshape(build.cast(mixed, int32), (1, steps, COLUMNS)), shape)
    node = build.reduce(ADD, (1,), Node(Op.MUL, (by_row, by_column)))
    assert bytes_as_floats.apply(node) is None


@pytest.mark.parametrize(("dtype", "value"), [("int8", -128), ("int8", 127), ("uint8", 255)])
@pytest.mark.parametrize("steps", [256, 1024, 2048])
def test_the_largest_sums_are_exact(steps: int, dtype: str, value: int) -> None:
    left, right = (np.full((rows, steps), value, dtype) for rows in (ROWS, COLUMNS))
    left[:, 0], right[:, 0] = 1, 3  # so that sums are odd, and need the last bit
    _compared(steps, left, right)


def test_parts_are_as_long_as_is_exact() -> None:
    def parts(steps: int, dtype: DType) -> int:
        node = bytes_as_floats.apply(_product(steps, dtype, dtype))
        assert node is not None
        return node.src[0].shape[0] if node.op is Op.REDUCE else 1

    assert [parts(steps, int8) for steps in (1024, 1032, 4096)] == [1, 2, 4]
    assert parts(1032, uint8) == 4  # of 258: 258 * 255**2 is below 2**24, 344 * 255**2 above
    assert parts(1031, int8) == 2  # of 520: a prime number is padded with zeros
    assert parts(1031, uint8) == 5  # of 208: of four, those of 264 would not be exact


def test_other_sums_stay() -> None:
    assert bytes_as_floats.apply(_product(64, int8, int8, rows=8)) is None  # few rows
    assert bytes_as_floats.apply(_product(32, int8, int8)) is None  # a block of quantised numbers
    assert bytes_as_floats.apply(_product(64, int32, int8)) is None


def test_tensor_cores_multiply_bytes() -> None:
    def scores(x: lm.Tensor, w: lm.Tensor) -> lm.Tensor:
        return (x.cast(lm.int32) @ w.T.cast(lm.int32)).cast(lm.float32) * 0.5

    specs = [lm.TensorSpec(shape, lm.int8) for shape in ((512, 2048), (1024, 2048))]
    kernels = lm.jit(scores).lower(*specs, device="cuda:0").kernels
    atoms = [kernel for kernel in kernels if "tensorize(mma_bf16" in str(kernel.schedule)]
    assert len(atoms) == 1
    assert len(kernels) == 4  # two copies, the parts, their sum
