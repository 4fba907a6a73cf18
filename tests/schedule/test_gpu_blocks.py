"""Which loops the threads of a GPU's block share."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

import lamina as lm
from lamina.core.target import DEFAULT_CUDA
from lamina.frontend.lowered import LoweredKernel
from lamina.graph import index as ix
from lamina.ir.kernel import Kernel, Parameter, Store
from lamina.ir.monoids import ADD
from lamina.ir.node import Node
from lamina.ir.ops import Load, LoopReduce, Op
from lamina.schedule.gpu.blocks import shared_axes
from lamina.schedule.gpu.loops import _best_rows
from lamina.schedule.gpu.planner import GpuPlanner
from lamina.schedule.knobs import GpuKnobs

ROW, COLUMN, STEP = ix.axis(0, 4), ix.axis(1, 64), ix.axis(2, 128, reduce=True)


def total(index: Node) -> Node:
    """The sum over the steps of what lies at `index`."""
    return Node(
        Op.LOOP_REDUCE, (Node(Op.LOAD, (index,), Load(0, lm.float32)), STEP), LoopReduce(ADD)
    )


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_no_threads_share_a_reduction_inside_a_column(order: tuple[int, int]) -> None:
    """Whichever of two reductions over the same axis comes last: the columns' loop is around one of
    them, and its iterations are what threads have to themselves."""
    of_rows = total(ix.row_major((ROW, STEP)))
    of_elements = total(ix.row_major((ROW, COLUMN, STEP)))
    both = of_rows, of_elements
    value = Node(Op.ADD, tuple(both[number] for number in order))
    parameters = Parameter(lm.float32, 4 * 64 * 128), Parameter(lm.float32, 4 * 64, written=True)
    store = Store(1, ix.row_major((ROW, COLUMN)), value, (ROW, COLUMN))
    plan = GpuPlanner(Kernel(parameters, (store,), rows=1), DEFAULT_CUDA, GpuKnobs())
    assert shared_axes(plan, DEFAULT_CUDA.warp) == [COLUMN]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_threads_lie_along_a_stride_before_places_of_data(order: tuple[int, int]) -> None:
    """Sums of ``x[p[i], k, 5 * j]``: neighbours along j are 5 elements apart, those along i are
    anywhere. What is stored, and p, are used once for 128 steps, and do not count."""
    data, column = ix.axis(0, 64), ix.axis(1, 64)
    place = Node(Op.LOAD, (data,), Load(2, lm.int64))
    element = ix.add(ix.scale(place, 128 * 320), ix.scale(STEP, 320), ix.scale(column, 5))
    rows = tuple((data, column)[number] for number in order)
    store = Store(1, ix.row_major((data, column)), total(element), rows)
    parameters = (
        Parameter(lm.float32, 9 * 128 * 320),
        Parameter(lm.float32, 64 * 64, written=True),
        Parameter(lm.int64, 64),
    )
    plan = GpuPlanner(Kernel(parameters, (store,), rows=2), DEFAULT_CUDA, GpuKnobs())
    assert _best_rows(plan) == [column]


def schedule_of(function: Callable[..., object], *shape: int) -> str:
    """That of the only kernel of a function of one array."""
    return kernel_of(function, lm.TensorSpec(shape, lm.bfloat16)).schedule


def source_of(function: Callable[..., object], *shape: int) -> str:
    """The same, of the kernel's text and of float32."""
    return kernel_of(function, lm.TensorSpec(shape)).source


def kernel_of(function: Callable[..., object], spec: lm.TensorSpec) -> LoweredKernel:
    (kernel,) = lm.jit(function).lower(spec, device="cuda:0", arch="sm_90a").kernels
    return kernel


@pytest.mark.parametrize(("columns", "shared"), [(29, True), (9, True), (8, False), (3, False)])
def test_threads_share_short_rows_that_they_store(columns: int, shared: bool) -> None:
    """A thread holds shorter ones, whose columns are unrolled."""
    schedule = schedule_of(lambda x: lm.softmax(x, axis=1), 96000, columns)
    assert ("thread" in schedule) is shared
    assert shared or "unroll" in schedule


def test_a_thread_reduces_a_short_row() -> None:
    assert "thread" not in schedule_of(lambda x: lm.argmax(x, axis=1), 96000, 29)


def test_steps_in_order_are_not_unrolled() -> None:
    assert "unroll" not in schedule_of(lambda x: lm.cumsum(x, axis=1), 96000, 5)


@pytest.mark.parametrize(
    ("length", "neighbours"),
    [
        (1024, 8),  # one access of bfloat16
        (835, 5),  # rows that begin within an access
        (2 * 499, 2),
        (499, 1),
    ],
)
def test_threads_of_a_scan_have_neighbours(length: int, neighbours: int) -> None:
    """Each exchange between threads serves all neighbours of a thread."""
    schedule = schedule_of(lambda x: lm.cummax(x, axis=1), 29509, length)
    lines = [line for line in schedule.splitlines() if line.startswith("split")]
    innermost = [int(line.split(",")[1].split(")")[0]) for line in lines][-1]
    assert (innermost if innermost <= 8 else 1) == neighbours


@pytest.mark.parametrize(
    ("columns", "dtype", "side"),
    [
        (512, lm.bfloat16, 4),  # 32 blocks of a sector each would leave multiprocessors idle
        (4096, lm.bfloat16, 16),  # a sector
        (16384, lm.bfloat16, 32),  # two, which leave enough blocks
        (16384, lm.float32, 16),
        (12, lm.bfloat16, 2),
    ],
)
def test_columns_of_a_scan_are_threads_side_by_side(
    columns: int, dtype: lm.DType, side: int
) -> None:
    """None has several, whose scans would come one after the other; each has 8 steps."""
    spec = lm.TensorSpec((1024, columns), dtype)
    (kernel,) = lm.jit(lambda x: lm.cummax(x, axis=0)).lower(spec, device="cuda:0").kernels
    assert f"split(a1, {side}) -> a2, a3\nbind(a3, thread)" in kernel.schedule
    assert "bind(a2, grid)" in kernel.schedule
    assert re.search(r"split\(a\d, 8\) -> a\d, (a\d)\nbind\(\1, unroll\)", kernel.schedule)


def test_short_rows_share_a_block_along_any_axis_that_allows_it() -> None:
    """99 rows of the last axis have no common divisor with a block, 64 of the first one have."""

    def scores(x: lm.Tensor, y: lm.Tensor) -> lm.Tensor:
        return lm.einsum("bihd,bjhd->bhij", x, y)

    specs = [lm.TensorSpec((64, count, 68, 58), lm.bfloat16) for count in (99, 1)]
    (kernel,) = lm.jit(scores).lower(*specs, device="cuda:0", arch="sm_90a").kernels
    assert "split(a0, 16)" in kernel.schedule


def test_a_warp_has_several_short_rows() -> None:
    """4 threads have four elements of a row of 15, and 32 rows are a block."""
    source = source_of(lambda x: lm.softmax(x, axis=1), 578536, 15)
    assert "THREAD % 4;" in source
    assert "THREAD / 4 % 32;" in source
    assert "REDUCE(4, 1)" in source


def test_a_warp_has_several_short_scans() -> None:
    """Though their number is no multiple of those in a block."""
    source = source_of(lambda x: lm.cumsum(x, axis=1), 189619, 32)
    assert "SCAN(8, 1)" in source
    assert "THREAD / 8 % 32;" in source


@pytest.mark.parametrize(("columns", "rows"), [(2, 4), (3, 1), (4, 2), (6, 1), (8, 1)])
def test_a_thread_has_rows_that_are_an_access_together(columns: int, rows: int) -> None:
    schedule = schedule_of(lambda x: lm.softmax(x, axis=1), 960000, columns)
    assert schedule.startswith(f"split(a0, {rows})") is (rows > 1)


@pytest.mark.parametrize(("steps", "shared"), [(5, False), (6, True), (8, True)])
def test_a_scan_of_more_than_a_few_steps_is_no_loop(steps: int, shared: bool) -> None:
    schedule = schedule_of(lambda x: lm.cumsum(x, axis=1), 960000, steps)
    assert ("thread" in schedule) is shared


def test_rows_that_begin_within_an_access_are_read_as_much_at_once() -> None:
    """256 threads with 8 elements each, and not 1024 with 2."""
    assert kernel_of(lambda x: lm.max(x, axis=1), lm.TensorSpec((11777, 1797))).schedule.startswith(
        "split(a1, 256)"
    )


def test_rows_that_begin_within_an_access_are_each_a_thread() -> None:
    """But neighbours in a grid are neighbours in memory."""

    def function(x: lm.Tensor) -> lm.Tensor:
        return lm.softmax(x + lm.mean(x, axis=(1, 2), keepdims=True), axis=2)

    spec = lm.TensorSpec((37, 53165, 5))
    *_, last = lm.jit(function).lower(spec, device="cuda:0", arch="sm_90a").kernels
    assert "reorder(a0, a1)" in last.schedule


@pytest.mark.parametrize(("side", "store_neighbours"), [(1, True), (2, True), (4, False)])
def test_threads_store_neighbours_unless_they_load_many_for_each(
    side: int, store_neighbours: bool
) -> None:
    """Maxima of windows of images with channels last, stored with channels first: with 16 loads
    for each store threads load neighbours, and lie along channels."""

    def pooled(x: lm.Tensor) -> lm.Tensor:
        images = lm.permute_dims(x, (0, 3, 1, 2))
        return lm.max_pool2d(images, side) if side > 1 else images * 2.0

    source = source_of(pooled, 32, 112, 112, 64)
    assert ("batch1 = worker % 64;" in source) is not store_neighbours


@pytest.mark.parametrize("scan", [lm.cumulative_sum, lm.cumulative_prod, lm.cummax])
@pytest.mark.parametrize("shape", [(64, 3, 64), (4096, 8, 512), (4099, 4, 513)])
def test_steps_of_a_scan_are_in_no_strip(
    scan: Callable[..., lm.Tensor], shape: tuple[int, int, int]
) -> None:
    """Along a short axis of an array whose other axes are stored in another order: unrolled, they
    could not be printed."""
    assert "grid" in schedule_of(lambda x: scan(lm.permute_dims(x, (2, 1, 0)), axis=1), *shape)


def test_registers_hold_a_long_row_of_a_sum_rather_than_both_addends() -> None:
    """The second pass of a norm of x + y needs the sum alone: 29,400 words of a row, and not
    58,800, which no block holds."""

    def normalized(x: lm.Tensor, y: lm.Tensor) -> lm.Tensor:
        both = x + y
        return both * lm.rsqrt(lm.mean(both * both, axis=1, keepdims=True))

    rows = lm.TensorSpec((752, 29400), lm.float32)
    (kernel,) = lm.jit(normalized).lower(rows, rows, device="cuda:0").kernels
    assert "split(a1, 2048) -> a2, a3\nbind(a2, unroll)" in kernel.schedule
    loads = re.findall(r"load_\d+ = p0\[", kernel.source)
    assert len(loads) == 4 * 15  # each element once


def test_rows_of_a_thread_are_along_the_axis_that_shares_most() -> None:
    """A thread has a pixel of each of 4 channels, all of which have its weights and read at its
    places: pixels above each other have only those of their column in common."""

    def function(x: lm.Tensor) -> lm.Tensor:
        return lm.interpolate(x, (112, 112), mode="bilinear")

    spec = lm.TensorSpec((16, 64, 56, 56), lm.float16)
    *_, last = lm.jit(function).lower(spec, device="cuda:0", arch="sm_90a").kernels
    channels, of_thread = "fuse(a0, a1) -> a4", "split(a4, 4) -> a5, a6"
    assert {channels, of_thread, "bind(a6, unroll)"} <= set(last.schedule.splitlines())


def test_threads_that_go_through_a_scan_have_a_single_element() -> None:
    """Neighbours of sums are an access together."""

    def schedule(function: Callable[[lm.Tensor], lm.Tensor]) -> str:
        spec = lm.TensorSpec((131072, 40, 8), lm.bfloat16)
        (kernel,) = lm.jit(function).lower(spec, device="cuda:0", arch="sm_90a").kernels
        return kernel.schedule

    assert "unroll" not in schedule(lambda x: lm.cumulative_sum(x, axis=1))
    assert "unroll" in schedule(lambda x: lm.sum(x, axis=1))


def test_threads_lie_along_what_is_stored_rather_than_along_small_arrays() -> None:
    """Places and weights of the rows are a fourteenth of what is stored."""

    def function(x: lm.Tensor) -> lm.Tensor:
        return lm.interpolate(x, (60000, 14), mode="bilinear")

    spec = lm.TensorSpec((1, 1, 30000, 7), lm.float32)
    *_, last = lm.jit(function).lower(spec, device="cuda:0", arch="sm_90a").kernels
    assert "column = worker % 14;" in last.source
