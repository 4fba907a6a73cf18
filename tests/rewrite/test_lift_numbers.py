"""Which numbers of equal graphs become inputs; results with these are those with constants."""

from __future__ import annotations

import numpy as np
import pytest

from lamina.core.dtypes import float32
from lamina.graph.lift_numbers import (
    Constant,
    History,
    input_leaf,
    numbers_of,
    update_histories,
    with_inputs,
)
from lamina.ir.build import flip, pad, slice_axis
from lamina.ir.interpreter import evaluate
from lamina.ir.node import Node, const
from lamina.ir.ops import BufferRef, Op

X = Node(Op.BUFFER, (), BufferRef(0, (10,), float32, ""))
VALUES = np.arange(10, dtype=np.float32)


def after(*graphs: list[float]) -> list[History]:
    """The histories after graphs that have these numbers."""
    histories: list[History] = []
    for numbers in graphs:
        histories = update_histories(histories, [Constant(const(one, float32)) for one in numbers])
    return histories


def test_a_number_that_never_differed_keeps_its_value() -> None:
    values = [history.value for history in after([1, 5, 5], [2, 5, 5], [1, 5, 6])]
    assert values == [None, const(5, float32), None]


@pytest.mark.parametrize(
    ("graphs", "twins"),
    [
        ([[1, 1, 1]], [0, 0, 0]),
        ([[1, 1, 1], [2, 2, 1]], [0, 0, 2]),
        ([[1, 1, 1], [2, 3, 2], [4, 4, 4]], [0, 1, 0]),  # equal now, but not each time
        ([[1, 2, 2, 1], [3, 4, 4, 4]], [0, 1, 1, 3]),
    ],
)
def test_twins_were_equal_each_time(graphs: list[list[float]], twins: list[int]) -> None:
    assert [history.twin for history in after(*graphs)] == twins


@pytest.mark.parametrize(
    "graph",
    [
        slice_axis(X, 0, 2, 6),
        slice_axis(X, 0, 1, 8, 3),
        flip(slice_axis(X, 0, 3, 7), (0,)),
        pad(X, [3], [2]),
        X * 2.5 + 1.0,
    ],
)
def test_inputs_with_the_values_of_constants_change_nothing(graph: Node) -> None:
    numbers = numbers_of([graph])
    assert numbers
    lifted = with_inputs([graph], {number: at for at, number in enumerate(numbers, 1)}, "")
    arrays = {X: VALUES} | {
        input_leaf(at, number.value): np.array(number.value.arg.value, number.value.dtype.name)
        for at, number in enumerate(numbers, 1)
    }
    assert lifted != [graph]
    assert np.array_equal(*(evaluate([sink], arrays)[0] for sink in (graph, *lifted)))
