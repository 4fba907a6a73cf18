"""Stores that are done in the loops of a reduction, and those that must not be."""

from __future__ import annotations

from lamina.core.dtypes import float32
from lamina.graph import index as ix
from lamina.ir.kernel import Kernel, Parameter, Store
from lamina.ir.monoids import ADD
from lamina.ir.node import Node
from lamina.ir.ops import Load, LoopReduce, Op
from lamina.loops.nest import Nest
from lamina.targets.c.operations import CLanguage
from lamina.targets.c.printer import CPrinter

ROW, COLUMN = ix.axis(0, 8), ix.axis(1, 12, reduce=True)
ELEMENT = Node(Op.LOAD, (ix.row_major((ROW, COLUMN)),), Load(0, float32))
OF_ALL_ROWS = Node(Op.LOAD, (COLUMN,), Load(1, float32))


def printed(summand: Node, element: Node, result: int = 3, *, sum_first: bool = True) -> list[str]:
    """The lines of a kernel that stores the sum over columns of `summand` for each row, and then
    or before `element` for each row and column to parameter number `result`."""
    total = Node(Op.LOOP_REDUCE, (summand, COLUMN), LoopReduce(ADD))
    parameters = (
        Parameter(float32, 96, written=result == 0), Parameter(float32, 12),
        Parameter(float32, 8, written=True), Parameter(float32, 96, written=True),
    )  # fmt: skip
    stores = (
        Store(2, ROW, total, (ROW,)),
        Store(result, ix.row_major((ROW, COLUMN)), element, (ROW, COLUMN)),
    )
    stores = stores if sum_first else stores[::-1]
    nest = Nest(Kernel(parameters, stores, 1), (ROW, COLUMN), {})
    text, _ = CPrinter(nest, "f", CLanguage()).print()
    return [line.strip() for line in text.splitlines()]


def loops_over_columns(lines: list[str]) -> int:
    return sum(line.startswith("for (i64 column") for line in lines)


def test_a_store_rides_in_the_loop_of_a_sum_of_its_row() -> None:
    assert loops_over_columns(printed(ELEMENT, ELEMENT + OF_ALL_ROWS)) == 1


def test_a_sum_of_what_is_stored_before_it_takes_the_store_along() -> None:
    exponential = ELEMENT.apply(Op.EXP)
    lines = printed(exponential, exponential, sum_first=False)
    assert loops_over_columns(lines) == 1
    assert sum("exp_f32(" in line for line in lines) == 1


def test_a_sum_of_other_elements_does_not_take_a_store_along() -> None:
    assert loops_over_columns(printed(OF_ALL_ROWS, ELEMENT, sum_first=False)) == 2


def test_a_store_that_needs_the_sum_waits_for_it() -> None:
    total = Node(Op.LOOP_REDUCE, (ELEMENT, COLUMN), LoopReduce(ADD))
    assert loops_over_columns(printed(ELEMENT, ELEMENT * total)) == 2


def test_a_store_over_what_is_read_waits_for_the_sum() -> None:
    assert loops_over_columns(printed(ELEMENT, ELEMENT + OF_ALL_ROWS, result=0)) == 2


def test_a_store_does_not_ride_in_a_loop_outside_of_its_row() -> None:
    """The sum is the same for all rows, and computed once, before their loop."""
    lines = printed(OF_ALL_ROWS, ELEMENT)
    first_column, row, second_column = (
        number for number, line in enumerate(lines) if line.startswith("for (")
    )
    assert lines[row].startswith("for (i64 row")
    assert [line for line in lines[first_column:row] if line.startswith("p3[")] == []
    assert [line for line in lines[second_column:] if line.startswith("p3[")] != []
