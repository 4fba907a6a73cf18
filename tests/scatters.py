"""Scatters whose loops the lanes of a GPU's warp share in different ways."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lamina.core.dtypes import DType, float32, float64, int64
from lamina.ir import build
from lamina.ir.interpreter import evaluate
from lamina.ir.monoids import ADD
from lamina.ir.node import Node, toposort
from lamina.ir.ops import Op, Scatter
from tests.compiled import Sample
from tests.generators import leaf

ROWS, STEPS, TARGETS = 32, 40, 9
WINDOWS, WIDTH = 5, 7  # what is added at a place and those that follow


def windows(columns: int, dtype: DType, *, are_known: bool = False) -> Node:
    """Windows added where they overlap: places and updates depend on two loops. Where they start is
    data, or known: at 0, 1, 3, 4, 6."""
    shape = (WINDOWS, WIDTH)
    if are_known:
        threes = build.iota(WINDOWS, int64) * 3
        halves = Node(Op.IDIV, (threes, build.full((WINDOWS,), 2, int64)))
        first = build.reshape(halves, (WINDOWS, 1))
    else:
        first = leaf(2, (WINDOWS, 1), int64)
    starts = build.expand(first, shape)
    steps = build.expand(build.reshape(build.iota(WIDTH, int64), (1, WIDTH)), shape)
    places = build.reshape(starts + steps, (WINDOWS * WIDTH, 1))
    parts = build.expand(leaf(1, (WINDOWS, 1, columns), dtype), (*shape, columns))
    updates = build.reshape(parts, (WINDOWS * WIDTH, columns))
    target = leaf(0, (TARGETS, columns), dtype)
    return Node(Op.SCATTER, (target, build.expand(places, updates.shape), updates), Scatter(0, ADD))


def _rows(columns: int, dtype: DType) -> Node:
    """Each row adds at places of its own, of which many are out of range."""
    shape = (ROWS, STEPS, columns)
    places = build.expand(leaf(0, (ROWS, STEPS, 1), int64), shape)
    target = leaf(2, (ROWS, TARGETS, columns), dtype)
    return Node(Op.SCATTER, (target, places, leaf(1, shape, dtype)), Scatter(1, ADD))


class Case(NamedTuple):
    """A scatter; the schedule of its kernel, empty for the GPU's; whether the lanes of a warp ask
    for many iterations at once where they add."""

    scatter: Node
    schedule: str
    asks: bool


def _case(dtype: DType, columns: int, schedule: str, asks: bool) -> Case:
    """`_rows` with a schedule: a0 are the rows, a1 the columns, a2 the loop inside."""
    return Case(_rows(columns, dtype), f"[scatter1_{ROWS}x{columns}x{STEPS}]; {schedule}", asks)


def cases(dtype: DType) -> dict[str, Case]:
    """Scatters of `dtype` that add in the order of the updates, where the device does that."""
    return {
        "two loops": Case(windows(128, dtype), "", True),
        "two loops, no full warp": Case(windows(50, dtype), "", False),
        "rows": Case(_rows(64, dtype), "", True),
        "lanes of several rows": _case(
            dtype, 64, "reorder(a1, a0); bind(a1, grid); bind(a0, grid)", False
        ),
        "unrolled rows": _case(
            dtype, 64, "split(a0, 2) -> a3, a4; reorder(a3, a1, a4);"
            "bind(a3, grid); bind(a1, grid); bind(a4, unroll)", True,
        ),
        "threads with rows": _case(
            dtype, 64, "split(a0, 2) -> a3, a4; bind(a3, grid); bind(a1, grid);"
            "bind(a4, thread)", False,
        ),
        "an uneven loop around": _case(
            dtype, 95, "split(a1, 3) -> a3, a4; bind(a0, grid); bind(a3, grid)", False
        ),
        "an uneven tile": _case(
            dtype, 95, "split(a1, 3) -> a3, a4; bind(a0, grid); bind(a3, grid);"
            "bind(a4, unroll)", False,
        ),
        "places in scratch memory": _case(
            dtype, 64, "bind(a0, grid); bind(a1, grid); stage(%0, a0)", True
        ),
        "places in scratch memory of threads": _case(
            dtype, 64, "split(a1, 2) -> a3, a4; bind(a0, grid); bind(a3, grid); bind(a4, thread);"
            "stage(%0, a0)", False,
        ),
    }  # fmt: skip


CASES = cases(float32)
CASES_OF_CUDA = cases(float64)  # which adds float32 as integers, in any order


def sample(case: Case) -> Sample:
    """The case with what the interpreter gives."""
    rng, leaves = np.random.default_rng(0), dict[Node, np.ndarray]()
    for one in toposort([case.scatter]):
        if one.op is Op.BUFFER:
            low, high = (-3, TARGETS + 3) if one.dtype is int64 else (-9, 10)
            leaves[one] = rng.integers(low, high, one.shape).astype(one.dtype.numpy)
    inputs = {one: values.tobytes() for one, values in leaves.items()}
    return Sample("scatter", [case.scatter], inputs, evaluate([case.scatter], leaves))
