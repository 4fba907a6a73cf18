"""Every invariant of the kernel dialect: a kernel that keeps it passes, one that breaks it not."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from lamina.core.dtypes import DType, bool_, float32, int32, int64
from lamina.errors import VerifyError
from lamina.graph import index as ix
from lamina.ir.kernel import AnyKernel, BinKernel, Kernel, Parameter, SortKernel, Store
from lamina.ir.monoids import ADD, ARGMAX
from lamina.ir.node import Node, const, full
from lamina.ir.ops import Affine, Load, LoopReduce, Op, Order
from lamina.ir.verify_kernel import verify_kernel

ROW, COLUMN, SUM = ix.axis(0, 4), ix.axis(1, 8), ix.axis(2, 8, reduce=True)
FLAT = ix.add(ix.scale(ROW, 8), COLUMN)
READ, WRITTEN = Parameter(float32, 32), Parameter(float32, 32, True)


def load(index: Node, *condition: Node, parameter: int = 0, dtype: DType = float32) -> Node:
    return Node(Op.LOAD, (index, *condition), Load(parameter, dtype))


def reduction(*src: Node, op: Op = Op.LOOP_REDUCE) -> Node:
    return Node(op, src, LoopReduce(ADD))


def kernel(**changes: object) -> Kernel:
    """``p1[row, column] = p0[row, column] - sum(p0[row, :])``, its store changed."""
    total = reduction(load(ix.add(ix.scale(ROW, 8), SUM)), SUM)
    store = Store(1, FLAT, load(FLAT) - total, (ROW, COLUMN))
    return Kernel((READ, WRITTEN), (replace(store, **changes),), 1)  # type: ignore[arg-type]


ORDER = Order(0, descending=False, first=0, last=4)
OF_SORT = (Parameter(float32, 8), *[Parameter(int64, 8, True)] * 2)
SORT = SortKernel(OF_SORT, 2, 4, 1, ORDER, 1, 0)
OF_BINS = (
    Parameter(float32, 8), Parameter(int32, 5), Parameter(float32, 5),
    Parameter(float32, 8, True), Parameter(int64, 99, True),
)  # fmt: skip
BINS = BinKernel(OF_BINS, (0, 1, 2), 3, 1)


def test_a_good_kernel_passes() -> None:
    verify_kernel(kernel())
    verify_kernel(kernel(value=reduction(load(FLAT), COLUMN, op=Op.LOOP_SCAN)))
    verify_kernel(kernel(value=load(FLAT, parameter=1)))
    verify_kernel(kernel(index=ix.scale(FLAT, 1, 1), condition=ix.inside(ix.scale(FLAT, 1, 1), 32)))
    verify_kernel(kernel(index=COLUMN, condition=ix.inside(ROW, 1)))
    verify_kernel(SORT)
    verify_kernel(BINS)
    verify_kernel(replace(BINS, left=0))


LONG = ix.axis(0, 99)
NARROW = Store(1, ROW, load(ROW), (ROW,))


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (replace(BINS, operands=(0, 2, 1)), "no base, places, updates, result and scratch"),
        (replace(BINS, operands=(2, 1, 0)), "no base, places, updates, result and scratch"),
        (replace(BINS, operands=(3, 1, 2)), "no base, places, updates, result and scratch"),
        (replace(BINS, parameters=OF_BINS[:4]), "no base, places, updates, result and scratch"),
        (replace(SORT, rows=3), "no 12 keys, 12 places and scratch"),
        (replace(SORT, parameters=SORT.parameters[:2]), "no 8 keys, 8 places and scratch"),
        (replace(SORT, parameters=(SORT.parameters[0],) * 3), "no 8 keys, 8 places and scratch"),
        (replace(kernel(), stores=()), "no store"),
        (
            replace(kernel(), parameters=(READ, READ)),
            "parameters [] are marked written, and it writes [1]",
        ),
        (
            replace(kernel(), parameters=(WRITTEN, WRITTEN)),
            "parameters [0, 1] are marked written, and it writes [1]",
        ),
        (kernel(parameter=2), "parameters [1] are marked written, and it writes [2]"),
        (replace(kernel(axes=(ROW, SUM)), rows=2), "its rows are reduced"),
        (kernel(axes=(ROW, COLUMN, ROW)), "an axis twice"),
        (replace(kernel(), rows=3), "3 rows"),
        (replace(kernel(), stores=(*kernel().stores, NARROW), rows=2), "2 rows"),
        (
            replace(kernel(), stores=(*kernel().stores, *kernel(axes=(COLUMN, ROW)).stores)),
            "same rows",
        ),
        (kernel(value=load(ix.axis(0, 3))), "two axes of one number"),
        (kernel(value=full((2,), 1.0, float32)), "does not belong in a kernel"),
        (
            kernel(index=Node(Op.AFFINE, (ROW, ROW), Affine((8, 1), 0))),
            "no int64 terms, each once",
        ),
        (kernel(index=Node(Op.AFFINE, (ROW, FLAT), Affine((8, 1), 0))), "no int64 terms"),
        (kernel(index=Node(Op.AFFINE, (ROW,), Affine((8, 1), 0))), "with a coefficient"),
        (kernel(value=load(FLAT, parameter=7)), "there is no parameter 7"),
        (kernel(value=load(FLAT, dtype=int32)), "parameter 0 holds float32"),
        (kernel(value=load(load(FLAT))), "load: its index is float32"),
        (kernel(value=load(FLAT, load(FLAT))), "its condition is not bool"),
        (kernel(value=load(ROW, parameter=1)), "where another row may write it"),
        (
            kernel(value=Node(Op.LOOP_REDUCE, (load(FLAT), SUM), LoopReduce(ADD, 1))),
            "component=1 is not",
        ),
        (
            kernel(value=Node(Op.LOOP_REDUCE, (const(True, bool_), SUM), LoopReduce(ADD))),
            "add: bool () and bool () do not fit",
        ),
        (kernel(value=reduction(load(FLAT))), "it runs over no axes"),
        (kernel(value=reduction(load(FLAT), COLUMN)), "binds an axis that is not reduced"),
        (
            kernel(value=reduction(load(FLAT), ROW, op=Op.LOOP_SCAN)),
            "along the last axes of its store",
        ),
        (kernel(value=load(ROW, dtype=float32).eq(0.0)), "parameter 1 holds float32, not bool"),
        (kernel(index=load(FLAT)), "its index is float32"),
        (kernel(condition=load(FLAT)), "its condition is not bool"),
        (kernel(axes=(ROW,)), "depends on a1"),
        (kernel(value=load(SUM)), "depends on a2"),
        (kernel(monoid=ARGMAX), "it combines with ARGMAX"),
        (kernel(index=COLUMN), "rows along a0 write one element"),
        (kernel(index=COLUMN, condition=ix.inside(ROW, 2)), "rows along a0 write one element"),
        (kernel(index=ix.scale(FLAT, 1, 1)), "indices 1 to 32 of parameter 1"),
        (kernel(value=load(ix.scale(FLAT, -1))), "indices -31 to 0 of parameter 0"),
    ],
)
def test_a_broken_kernel_is_caught(broken: AnyKernel, message: str) -> None:
    with pytest.raises(VerifyError, match=re.escape(message)):
        verify_kernel(broken)
