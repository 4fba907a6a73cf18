"""What NCCL does not combine as lamina does is computed of what it does: the same values, on every
rank, as the interpreter's rules give for the collective itself."""

from __future__ import annotations

import numpy as np
import pytest

from lamina.core import dtypes
from lamina.graph.nccl_types import as_nccl_combines
from lamina.graph.rewrite import rewrite
from lamina.ir.monoids import ADD, MAX, MIN, MUL, Monoid
from lamina.ir.node import Node, toposort
from lamina.ir.ops import BufferRef, Combine, Group, Op
from lamina.runtime.nccl_library import DTYPES
from tests.distributed.lockstep import evaluate_ranks

RANKS = 4
NAMES = ("float8_e4m3fn", "bfloat16", "float16", "float32", "float64", "int8", "int16", "uint16",
         "int32", "bool")  # fmt: skip


def collective(op: Op, monoid: Monoid, dtype: dtypes.DType, ranks: int) -> tuple[Node, Node]:
    x = Node(Op.BUFFER, (), BufferRef(0, (ranks, 5), dtype, "cuda:0"))
    return x, Node(op, (x,), Combine(monoid, ranks, 1))


def operands_of(dtype: dtypes.DType, ranks: int) -> list[np.ndarray]:
    generator = np.random.default_rng(0)
    drawn = generator.normal(size=(ranks, ranks, 5)) * 3
    if dtype.kind == "float" and dtype.itemsize > 1:
        drawn[1, 0, 2] = np.nan
    return [one.astype(dtype.numpy) for one in drawn]


@pytest.mark.parametrize("ranks", [2, RANKS])
@pytest.mark.parametrize("op", [Op.ALL_REDUCE, Op.REDUCE_SCATTER])
@pytest.mark.parametrize("monoid", [ADD, MUL, MAX, MIN], ids=lambda one: one.name)
@pytest.mark.parametrize("name", NAMES)
def test_values_stay_and_nccl_has_what_is_left(
    name: str, monoid: Monoid, op: Op, ranks: int
) -> None:
    dtype = dtypes.BY_NAME[name]
    if name == "bool" and monoid in (ADD, MUL):
        pytest.skip("bools have no sum and no product")
    x, node = collective(op, monoid, dtype, ranks)
    (replaced,) = rewrite([node], (as_nccl_combines,))
    operands = operands_of(dtype, ranks)
    wide = dtypes.float32 if dtype.is_small else dtype  # in which lamina combines
    wide_x, wide_node = collective(op, monoid, wide, ranks)
    wanted = evaluate_ranks(wide_node, [{wide_x: one.astype(wide.numpy)} for one in operands])
    with np.errstate(invalid="ignore"):  # of NaN, by NumPy
        found = evaluate_ranks(replaced, [{x: operand} for operand in operands])
    pairs = zip(wanted, found, strict=True)
    for want, got in pairs:
        rounded = want.astype(dtype.numpy).astype(np.float64)
        np.testing.assert_array_equal(got.astype(dtype.numpy).astype(np.float64), rounded)
    for one in toposort([replaced]):
        if one.op in Group.COLLECTIVE and isinstance(one.arg, Combine):
            operand = one.src[0].dtype
            assert operand.name in DTYPES or operand.kind == "bool"
            assert not (operand.kind == "float" and one.arg.monoid in (MAX, MIN))
            assert not (operand.is_small and ranks > 2)
