"""Running values along every axis of arrays that threads share in different ways."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from lamina.core import dtypes
from lamina.ir import build
from lamina.ir.interpreter import evaluate
from lamina.ir.monoids import (
    ADD,
    ARGMAX,
    COMPLEX_MUL,
    LINEAR_RECURRENCE,
    LOG_SUM_EXP,
    MAX,
    MIN,
    MUL,
)
from lamina.ir.node import Node, toposort
from lamina.ir.ops import Op, Reduce
from tests.compiled import Sample
from tests.generators import leaf

SHAPES = ((700,), (16411,), (3, 1501), (5, 90), (40, 64), (2, 4100), (600, 3), (2, 130, 36))
KINDS = (
    (ADD, dtypes.float32), (MAX, dtypes.float32), (MIN, dtypes.int8), (MUL, dtypes.int64),
    (ADD, dtypes.bfloat16), (MAX, dtypes.bool_), (ADD, dtypes.uint16), (ADD, dtypes.float16),
)  # fmt: skip


def running_values() -> Iterator[Node]:
    """One for each shape and axis, of kinds in turn, and of pairs."""
    number = 0
    for shape in SHAPES:
        for axis in range(len(shape)):
            monoid, dtype = KINDS[number % len(KINDS)]
            yield Node(Op.SCAN, (leaf(3 * number, shape, dtype),), Reduce(monoid, (axis,)))
            yield from _pairs(3 * number + 1, shape, axis)
            number += 1


def _pairs(number: int, shape: tuple[int, ...], axis: int) -> Iterator[Node]:
    x = leaf(number, shape, dtypes.float32)
    for part in range(2):
        yield Node(Op.SCAN, (x, build.broadcasted_iota(shape, axis)), Reduce(ARGMAX, (axis,), part))
    turn, zero = build.select(x < 0.0, x.lift(-1.0), x.lift(1.0)), x.lift(0.0)
    real = x < 1.0  # a product of units, along the axis of reals or the other
    parts = build.select(real, turn, zero), build.select(real, zero, turn)
    yield Node(Op.SCAN, parts, Reduce(COMPLEX_MUL, (axis,), 1))
    factor = build.select(x < 3.0, turn, zero)  # whole numbers stay small: a 0 begins anew
    yield Node(Op.SCAN, (factor, x), Reduce(LINEAR_RECURRENCE, (axis,), 1))
    # Exponentials of 0 and of -inf alone: the sums are of whole numbers. Both parts are in one
    # kernel, of one scan as their uses meet, of the other as results.
    exponent = build.select(x < 1.0, x.lift(-math.inf), x.lift(3.0))
    scale, total = _sums_of_exponentials(exponent, x, axis)
    yield Node(Op.MAX, (scale, scale.lift(-9.0))) + total
    yield from _sums_of_exponentials(exponent, turn, axis)


def _sums_of_exponentials(exponent: Node, factor: Node, axis: int) -> list[Node]:
    terms = exponent, factor
    return [Node(Op.SCAN, terms, Reduce(LOG_SUM_EXP, (axis,), part)) for part in range(2)]


def sample() -> Sample:
    """All of them, over whole numbers where they add up, with what the interpreter gives."""
    sinks, leaves = list(running_values()), dict[Node, np.ndarray]()
    for one in toposort(sinks):
        if one.op is Op.BUFFER:
            rng = np.random.default_rng(one.arg.storage)
            few = one.dtype.is_small or one.dtype.kind == "bool"
            values = rng.integers(0, 2 if few else 9, one.shape)
            leaves[one] = (values - 4 * (one.dtype.kind == "float")).astype(one.dtype.numpy)
    inputs = {one: values.tobytes() for one, values in leaves.items()}
    return Sample("scans", sinks, inputs, evaluate(sinks, leaves))
