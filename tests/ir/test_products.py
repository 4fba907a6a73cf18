"""What is asked of sums of products."""

from __future__ import annotations

import pytest

from lamina.core.dtypes import DType, bfloat16, float32
from lamina.graph import index as ix
from lamina.ir import build
from lamina.ir.monoids import ADD, MAX
from lamina.ir.node import Node
from lamina.ir.ops import Group, Load, LoopReduce, Op
from lamina.ir.products import (
    READ_THROUGH,
    array_read,
    contraction,
    has_windows,
    product_of,
    reuses_both_factors,
    uncast_factors,
)
from tests.generators import leaf

ROWS, STEPS, COLUMNS = 5, 7, 3


def factors(dtype: DType = float32) -> tuple[Node, Node]:
    """Both factors of a matrix product, repeated for all of its products."""
    box = (ROWS, STEPS, COLUMNS)
    left = build.expand(build.reshape(leaf(0, (ROWS, STEPS), dtype), (ROWS, STEPS, 1)), box)
    right = build.expand(build.reshape(leaf(1, (STEPS, COLUMNS), dtype), (1, STEPS, COLUMNS)), box)
    return left, right


def loaded(parameter: int, *axes: Node) -> Node:
    index = axes[0]
    for axis in axes[1:]:
        index = ix.add(ix.scale(index, axis.arg.size), axis)
    return Node(Op.LOAD, (index,), Load(parameter, float32))


def test_a_contraction_uses_what_its_steps_change_again() -> None:
    row, column, step = ix.axis(0, ROWS), ix.axis(1, COLUMNS), ix.axis(2, STEPS, reduce=True)
    array, scale, other = loaded(0, row, column, step), loaded(1, row), loaded(2, column)
    vector = loaded(3, column, step)
    for products, is_contraction in (
        (loaded(4, row, step) * vector, True),
        (scale * vector, True),  # each element of the vector is used for all rows
        (array * scale * other, False),
        (array * vector, False),  # both vary along the columns
    ):
        total = Node(Op.LOOP_REDUCE, (products, step), LoopReduce(ADD))
        assert (contraction([total], [row, column]) is total) == is_contraction


def test_a_sum_adds_up_its_multiplication() -> None:
    left, right = factors()
    product = left * right
    assert product_of(build.reduce(ADD, (1,), product)) is product
    assert product_of(build.reduce(MAX, (1,), product)) is None
    assert product_of(build.reduce(ADD, (1,), left + right)) is None
    assert product_of(product) is None


def test_a_multiplication_lies_beneath_operations_that_are_named() -> None:
    left, right = factors()
    product = left * right
    total = build.reduce(ADD, (0,), build.permute(product, (1, 0, 2)))
    assert product_of(total) is None
    assert product_of(total, Group.MOVEMENT) is product


def test_a_matrix_product_uses_both_arrays_again_and_a_dot_product_neither() -> None:
    left, right = factors()
    assert reuses_both_factors(build.reduce(ADD, (1,), left * right))
    x, y = (leaf(number, (ROWS, STEPS), float32) for number in (0, 1))
    assert not reuses_both_factors(build.reduce(ADD, (1,), x * y))
    # Of a matrix and one vector, each number of the matrix is used once.
    vector = build.expand(build.reshape(leaf(2, (STEPS,), float32), (1, STEPS)), (ROWS, STEPS))
    assert not reuses_both_factors(build.reduce(ADD, (1,), x * vector))


def test_a_factor_reads_the_array_beneath_movement_and_casts() -> None:
    left, _ = factors(bfloat16)
    assert array_read(build.cast(left, float32)).op is Op.BUFFER


def test_windows_move_by_a_shear_among_what_is_looked_through() -> None:
    line = build.expand(build.reshape(leaf(0, (9,), bfloat16), (1, 9)), (3, 9))
    windows = build.cast(build.shear(line, 1, 0, 1), float32)
    assert has_windows(windows, READ_THROUGH)
    assert not has_windows(windows, Group.MOVEMENT)
    assert not has_windows(line, READ_THROUGH)


@pytest.mark.parametrize("is_cast", [False, True])
def test_casts_of_16_bits_are_left_out_of_the_factors_of_tiles(is_cast: bool) -> None:
    left, right = factors(bfloat16)
    product = left * right
    if is_cast:
        product = build.cast(left, float32) * build.cast(right, float32)
    assert uncast_factors(product) == (left, right)
    assert uncast_factors(left + right) == ()
