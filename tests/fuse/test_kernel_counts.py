"""How many kernels well-known programs take: fusion is what a user pays for when it fails."""

from __future__ import annotations

import tracemalloc

import pytest

import lamina as lm
from lamina.core.dtypes import bfloat16, float32, int64
from lamina.core.options import current
from lamina.fuse.groups import MAX_TABLE
from lamina.fuse.kernel_group import SMALL_KERNEL
from lamina.fuse.program import Program
from lamina.fuse.target import FusionTarget
from lamina.fuse.values import choose_values
from lamina.ir import build
from lamina.ir.kernel import Kernel
from lamina.ir.monoids import ADD, ARGMAX, MAX
from lamina.ir.node import Node
from lamina.ir.ops import Op, Reduce
from lamina.pipeline import compile_source
from tests.fuse.graphs import PROGRAMS, X, elementwise, moved, rows_of_maxima
from tests.generators import leaf
from tests.programs import views_of

A_B = [(64, 96, 1), (1, 96, 48)]


def program(*values: Node) -> Program:
    return compile_source(values, current()).program


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("elementwise", 1),
        ("softmax", 1),
        ("layer_norm", 1),
        ("linear_relu", 1),
        ("column_sum", 1),
        ("scan", 1),
        ("scatter", 2),  # the base is filled first
        ("argsort", 2),  # the keys are computed first
    ],
)
def test_kernels_of(name: str, count: int) -> None:
    assert len(program(PROGRAMS[name]()).launches) == count


def test_rows_are_passed_over_again_where_few_elements_make_that_quick() -> None:
    """Of one row, whose passes threads cannot share; see `_passes_over_rows_pay`."""
    for columns, count in ((SMALL_KERNEL, 1), (SMALL_KERNEL + 1, 2)):
        x = leaf(0, (1, columns), float32)
        total = build.reduce(ADD, (1,), x)
        assert len(program(x * build.broadcast_over(total, (1,), x.shape)).launches) == count


def test_movement_adds_no_kernel_and_no_scratch() -> None:
    found = program(moved())
    assert len(found.launches) == 1
    assert found.arena == 0


def test_reductions_over_one_extent_share_a_kernel() -> None:
    assert len(program(rows_of_maxima()).launches) == 1


def test_axes_of_size_one_are_no_loops_that_keep_reductions_apart() -> None:
    """Also of slices."""
    x = leaf(0, (4, 5, 900), float32)
    part = build.slice_axis(x, 2, 0, 800)
    same = build.slice_axis(build.reshape(x, (4, 1, 5, 900)), 3, 0, 800)
    sinks = build.reduce(ADD, (2,), part), build.reduce(MAX, (3,), same)
    assert len(program(*sinks).launches) == 1


def test_scales_of_rows_and_of_images_make_no_product_of_a_sum() -> None:
    """No element of the array is used again, so that another reduction of it shares the kernel."""
    x = leaf(0, (4, 5, 900), float32)
    scales = [
        build.expand(leaf(number, shape, float32), x.shape)
        for number, shape in ((1, (4, 1, 1)), (2, (5, 1)))
    ]
    sinks = build.reduce(ADD, (2,), x * scales[0] * scales[1]), build.reduce(MAX, (2,), x)
    assert len(program(*sinks).launches) == 1


def test_results_that_read_one_array_share_a_kernel() -> None:
    found = program(X + 1.0, X * 2.0, X * X)
    assert len(found.launches) == 1
    kernel = found.launches[0].kernel
    assert isinstance(kernel, Kernel)
    assert len(kernel.stores) == 3


def test_small_tables_of_one_extent_share_a_kernel() -> None:
    """Tables are made of indices and numbers alone: places and weights, for two arrays."""
    data = leaf(0, (8, MAX_TABLE), float32)
    for size, count in ((16, 2), (MAX_TABLE, 2), (MAX_TABLE + 1, 3)):
        place = build.cast(build.iota(size, int64), float32)
        weight = (place * 0.25).apply(Op.SIN)
        index = build.cast((place * 0.5).apply(Op.SQRT), int64)
        shape = (8, size)
        gathered = Node(Op.GATHER, (data, build.broadcast_in_dim(index, 1, shape)), 1)
        result = gathered * build.broadcast_in_dim(weight, 1, shape)
        assert len(program(result).launches) == count


@pytest.mark.parametrize("axis", [0, 1])
def test_parts_of_a_scan_share_a_kernel(axis: int) -> None:
    shape = X.shape
    terms = X, build.broadcasted_iota(shape, axis)
    value, place = (Node(Op.SCAN, terms, Reduce(ARGMAX, (axis,), part)) for part in range(2))
    assert len(program(value, place).launches) == 1
    assert len(program(place, value.apply(Op.EXP), value).launches) == 2


def test_a_result_that_another_needs_is_stored_once() -> None:
    first = elementwise()
    assert len(program(first, first + 1.0).launches) == 1


def test_equal_kernels_are_compiled_once() -> None:
    other = leaf(1, X.shape, X.dtype)
    source = compile_source([X + 1.0, other + 1.0], current())
    assert len(source.program.launches) == 2
    assert len(source.plans) == 1


def test_a_sort_writes_over_what_its_keys_came_from() -> None:
    order = leaf(0, (64,), int64)
    source = compile_source([Node(Op.ASSIGN, (order, build.argsort(order + 1)))], current())
    assert len(source.program.launches) == 2


def test_a_value_is_kept_as_narrow_as_it_is_computed() -> None:
    """Products of halves are added up in float32, but what lies in memory are halves."""
    a, b = leaf(0, (64, 96), float32), leaf(1, (96, 48), float32)
    halves = [build.cast(build.cast(one, bfloat16), float32) for one in (a * 0.5, b)]
    wide = [build.reshape(one, shape) for one, shape in zip(halves, A_B, strict=True)]
    left, right = (build.expand(one, (64, 96, 48)) for one in wide)
    found = program(build.reduce(ADD, [1], left * right))
    assert [view.dtype for view in views_of(found) if view.kind == "scratch"] == [bfloat16] * 2


def steps_in_time(length: int) -> list[Node]:
    """A state that each step multiplies with a matrix and adds a part of an array to."""
    given, weight = leaf(0, (length, 8, 32), float32), leaf(1, (1, 32, 32), float32)
    state, found = leaf(2, (1, 8, 32), float32), list[Node]()
    for step in range(length):
        wide = build.expand(build.reshape(state, (8, 32, 1)), (8, 32, 32))
        product = build.reduce(ADD, [1], wide * build.expand(weight, (8, 32, 32)))
        part = build.slice_axis(given, 0, step, step + 1)
        state = build.unary(Op.LOGISTIC, build.reshape(product, (1, 8, 32)) + part)
        found.append(state)
    return found


def test_steps_in_time_that_read_parts_of_one_array_share_a_kernel() -> None:
    source = compile_source(steps_in_time(8), current())
    assert len(source.program.launches) == 8
    assert len(source.plans) == 1
    read = {one for launch in source.program.launches for one in launch.arguments if one.offset}
    assert {view.number for view in read} == {0}
    assert {view.offset for view in read} == {4 * 8 * 32 * step for step in range(1, 8)}


def test_no_tile_of_products_repeats_much_other_work() -> None:
    product = build.reduce(ADD, [1], build.expand(leaf(0, (64, 96, 1), float32), (64, 96, 48))
                           * build.expand(leaf(1, (1, 96, 48), float32), (64, 96, 48)))  # fmt: skip
    values = [product]
    for number in range(6):
        values.append(build.unary(Op.EXP, values[-1] + leaf(2 + number, (64, 48), float32)))
    first, *others = program(*values).launches
    assert isinstance(first.kernel, Kernel)
    assert len(first.kernel.of(Op.EXP)) == 5
    assert others


def test_no_reduction_runs_for_each_element_of_a_tile_of_products() -> None:
    left = build.expand(leaf(0, (64, 96, 1), float32), (64, 96, 48))
    right = build.expand(leaf(1, (1, 96, 48), float32), (64, 96, 48))
    product = build.reduce(ADD, [1], left * right)
    repeated = build.expand(build.reshape(product, (64, 48, 1)), (64, 48, 8))
    numbers = build.expand(leaf(2, (8,), float32), (64, 48, 8))
    result = build.reduce(MAX, [2], build.unary(Op.EXP, repeated - numbers))
    assert len(program(result).launches) == 2


def matrix_product(x: Node, weight: Node) -> Node:
    """``x @ weight`` of bfloat16, added up in float32."""
    rows, inner, columns = *x.shape, weight.shape[1]
    left = build.reshape(build.cast(x, float32), (rows, inner, 1))
    right = build.reshape(build.cast(weight, float32), (1, inner, columns))
    factors = (build.expand(one, (rows, inner, columns)) for one in (left, right))
    return build.cast(build.reduce(ADD, [1], Node(Op.MUL, tuple(factors))), bfloat16)


def test_two_products_that_meet_have_a_kernel_each() -> None:
    """Of a gated layer, whose rows are the tokens of 8 sequences."""
    x = build.reshape(leaf(0, (8, 8, 96), bfloat16), (64, 96))
    weights = leaf(1, (96, 48), bfloat16), leaf(2, (96, 48), bfloat16)
    gate, value = (build.reshape(matrix_product(x, one), (8, 8, 48)) for one in weights)
    gated = build.reshape(gate * value, (64, 48))
    result = build.reshape(matrix_product(gated, leaf(3, (48, 96), bfloat16)), (8, 8, 96))
    kernels = [launch.kernel for launch in program(result).launches]
    assert [len(kernel.of(Op.LOOP_REDUCE)) for kernel in kernels] == [1, 1, 1]


def test_choosing_values_takes_memory_in_proportion_to_the_graph() -> None:
    peaks = []
    for length in (500, 4000):
        x = y = leaf(0, (64,), float32)
        for _ in range(length):
            y = y * x + x
        tracemalloc.start()
        assert choose_values([y], FusionTarget()).regions
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 2 * 8 * peaks[0]


@pytest.mark.parametrize(("rows", "kernels"), [(1, 2), (256, 1)])
def test_much_arithmetic_of_few_rows_is_no_part_of_what_a_gpu_reduces(
    rows: int, kernels: int
) -> None:
    """A block passes over each row; one row would keep a single multiprocessor busy."""

    def function(x: lm.Tensor) -> lm.Tensor:
        result = lm.softmax(x, axis=-1)
        for _ in range(8):
            result = lm.sin(result) / (lm.exp(result) + 1.0)
        return result

    lowered = lm.jit(function).lower(lm.TensorSpec((rows, 20000)), device="cuda:0", arch="sm_90a")
    assert len(lowered.kernels) == kernels
