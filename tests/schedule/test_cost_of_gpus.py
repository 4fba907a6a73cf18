"""Predictions for GPUs that are not there: beside recorded times, and what all of them keep."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

import lamina as lm
from lamina import backends, pipeline
from lamina.core.options import Options
from lamina.core.rates import GPUS
from lamina.core.recent import forget
from lamina.core.target import CUDA
from lamina.errors import ArgumentError
from lamina.graph.rewrite import on
from lamina.ir import build
from lamina.ir.monoids import ADD
from lamina.ir.node import Node
from lamina.ir.ops import Op, Scatter
from lamina.loops.hits import owners_of
from lamina.loops.nest import Nest
from lamina.runtime.source import KERNELS
from lamina.schedule.cost import ProgramCost, predict
from lamina.schedule.gpu import loops
from tests.cuda.test_compile import compiled
from tests.generators import leaf, random_graph

ARCH = "sm_90a"
LARGE = (16384, 8192)
HEADS = (4, 16, 4096, 128)
ATTENTION = lm.scaled_dot_product_attention
# Microseconds of an H200, by name: `bench/results/h200.md`, where the host does not decide.
RECORDED = {
    "softmax f32": (255, lambda x: lm.softmax(x, axis=-1), lm.float32, LARGE),
    "softmax bf16": (131, lambda x: lm.softmax(x, axis=-1), lm.bfloat16, LARGE),
    "gelu f32": (250, lambda x: lm.gelu(x * 1.25 + 0.125), lm.float32, LARGE),
    "gelu bf16": (130, lambda x: lm.gelu(x * 1.25 + 0.125), lm.bfloat16, LARGE),
    "sum f32": (121, lambda x: lm.sum(x), lm.float32, LARGE),
    "sum of rows bf16": (61.2, lambda x: lm.sum(x, axis=1), lm.bfloat16, LARGE),
    "sum of columns f32": (126, lambda x: lm.sum(x, axis=0), lm.float32, LARGE),
    "sum of columns bf16": (73.3, lambda x: lm.sum(x, axis=0), lm.bfloat16, LARGE),
    "transpose f32": (263, lambda x: x.T.contiguous(), lm.float32, LARGE),
    "2048 bf16": (25.5, lambda x, y: x @ y, lm.bfloat16, (2048, 2048), (2048, 2048)),
    "4096 bf16": (196, lambda x, y: x @ y, lm.bfloat16, (4096, 4096), (4096, 4096)),
    "8192 bf16": (1551, lambda x, y: x @ y, lm.bfloat16, (8192, 8192), (8192, 8192)),
    "16 x 4096 x 4096 bf16": (13.6, lambda x, y: x @ y, lm.bfloat16, (16, 4096), (4096, 4096)),
    "1024 f32": (56.2, lambda x, y: x @ y, lm.float32, (1024, 1024), (1024, 1024)),
    "4096 f32": (2693, lambda x, y: x @ y, lm.float32, (4096, 4096), (4096, 4096)),
    "attention": (923, lambda *qkv: ATTENTION(*qkv), lm.bfloat16, HEADS, HEADS, HEADS),
}


def cost_of(
    function: Callable[..., Any], *specs: lm.TensorSpec, schedule: str = ""
) -> ProgramCost:
    with lm.using(schedule=schedule, search=0, tf32=False):
        return lm.jit(function).lower(*specs, device="cuda:0", arch=ARCH).cost


@pytest.mark.parametrize("name", RECORDED)
def test_predictions_are_near_recorded_times(name: str) -> None:
    microseconds, function, dtype, *shapes = RECORDED[name]
    cost = cost_of(function, *(lm.TensorSpec(shape, dtype) for shape in shapes))
    ratio = cost.seconds * 1e6 / microseconds
    assert 1 / 1.5 < ratio < 1.5
    assert cost.bound * 1e6 < microseconds


SHORT_ROWS = lm.TensorSpec((63, 279629), lm.float16)
SQUARE_TILES = (
    "split(a0, 8) -> a2, a3; split(a1, 8) -> a4, a5; split(a2, 8) -> a6, a7; "
    "split(a4, 4) -> a8, a9; bind(a3, unroll); bind(a5, unroll); "
    "reorder(a6, a8, a7, a9, a3, a5); bind(a6, grid); bind(a7, grid); bind(a8, grid); "
    "bind(a9, grid)"
)
STRIPS = (
    "split(a0, {}) -> a2, a3; bind(a3, unroll); reorder(a2, a1, a3); bind(a2, grid); bind(a1, grid)"
)
ALONG_LOADS = "reorder(a1, a0); bind(a1, grid); bind(a0, grid)"


@pytest.mark.parametrize(
    ("schedule", "microseconds"),
    [
        (SQUARE_TILES, 87.1),
        ("bind(a0, grid); bind(a1, grid)", 70.5),
        (STRIPS.format(4), 44.3),
        (STRIPS.format(8), 43.5),
        (STRIPS.format(16), 42.0),
        (ALONG_LOADS, 237.6),
    ],
)
def test_stores_of_parts_of_sectors_take_their_time(schedule: str, microseconds: float) -> None:
    """Rows of 63 elements are transposed: an H200, whose rows begin anywhere in a sector, took so
    long with each of these schedules."""
    transposed = cost_of(lambda x: lm.relu(x.T) * 2.0, SHORT_ROWS, schedule=schedule)
    assert 1 / 1.5 < transposed.seconds * 1e6 / microseconds < 1.5


@pytest.mark.parametrize(
    ("shape", "is_aligned"), [((4096, 4096), True), ((4099, 4096), False), ((64, 4099), True)]
)
def test_a_transpose_with_unaligned_stores_is_in_strips(
    shape: tuple[int, int], is_aligned: bool
) -> None:
    """What is read may begin anywhere: the first level keeps its sectors until all of them was
    used."""
    x = lm.TensorSpec(shape, lm.float32)
    (kernel,) = lm.jit(lambda x: x.T.contiguous()).lower(x, device="cuda:0", arch=ARCH).kernels
    assert (kernel.schedule.count("unroll") == 2) is is_aligned


@pytest.mark.parametrize("first", range(0, 40, 20))
def test_no_prediction_is_below_the_bound(first: int) -> None:
    options = Options(device="cuda:0", arch=ARCH)
    for seed in range(first, first + 20):
        sinks, _ = random_graph(random.Random(seed))
        planned = pipeline.compile_source(sinks, options)
        for plan in planned.plans.values():
            if isinstance(plan.nest, Nest):
                cost = predict(plan.nest, CUDA[ARCH], GPUS[ARCH])
                assert 0 <= cost.bound <= cost.seconds


def test_more_bytes_and_longer_strides_are_never_faster() -> None:
    sizes = [1 << k for k in range(8, 30, 3)]
    times = [cost_of(lambda x: x + 1, lm.TensorSpec((size,))).seconds for size in sizes]
    assert times == sorted(times)
    strided = []
    for stride in (1, 2, 4, 8):
        spec = lm.TensorSpec((4096, 4096 * stride))
        strided.append(cost_of(lambda x, step=stride: x[:, ::step] + 1, spec).seconds)
    assert strided == sorted(strided)
    assert strided[-1] > 3 * strided[0]  # 8 of 9 bytes that are moved are not used


def test_a_small_tile_takes_longer() -> None:
    spec = lm.TensorSpec((4096, 4096), lm.bfloat16)
    small, large = (
        cost_of(lambda x, y: x @ y, spec, spec, schedule=f"tensorize(mma_bf16_{tile})")
        for tile in ("64x64", "128x256")
    )
    assert small.seconds > 1.5 * large.seconds
    assert small.bound == large.bound


def test_a_small_product_is_not_faster_than_an_addition() -> None:
    """It waits for its tiles to arrive and for its sums, where an addition waits once."""
    spec = lm.TensorSpec((64, 64), lm.bfloat16)
    (product,) = cost_of(lambda x, y: x @ y, spec, spec).steps
    (addition,) = cost_of(lambda x, y: x + y, spec, spec).steps
    assert product.seconds > addition.seconds


def test_a_device_that_nobody_has_measured_has_no_cost() -> None:
    lowered = lm.jit(lambda x: x + 1).lower(lm.TensorSpec((8,)), device="cuda:0", arch="sm_75")
    with pytest.raises(ArgumentError, match=r"how fast sm_75 is; .* rates of sm_90a"):
        lowered.cost  # noqa: B018


@pytest.mark.parametrize("name", ["bias", "mask"])
def test_what_is_added_to_a_product_leaves_it_on_tensor_cores(name: str) -> None:
    """A bias or mask of float32 beside factors of bfloat16 does not raise the bound of these."""
    factor = lm.TensorSpec((4096, 4096), lm.bfloat16)
    heads = [lm.TensorSpec(HEADS, lm.bfloat16)] * 3
    if name == "bias":
        without = cost_of(lambda x, y: (x @ y).cast(lm.float32), factor, factor)
        bias = lm.TensorSpec((4096,))
        added = cost_of(lambda x, y, b: (x @ y).cast(lm.float32) + b, factor, factor, bias)
    else:
        without = cost_of(lambda *qkv: ATTENTION(*qkv), *heads)
        mask = lm.TensorSpec((4096, 4096))
        added = cost_of(lambda *qkv_mask: ATTENTION(*qkv_mask), *heads, mask)
    assert without.bound <= added.bound < 1.1 * without.bound
    assert added.bound < added.seconds


def test_products_of_float32_take_instructions_whatever_is_added() -> None:
    factor, bias = lm.TensorSpec((4096, 4096)), lm.TensorSpec((4096,), lm.bfloat16)
    cost = cost_of(lambda x, y, b: x @ y + b.cast(lm.float32), factor, factor, bias)
    (kernel,) = cost.kernels.values()
    assert kernel.need.operations.tensor == 0
    # A warp multiplies and adds 32 at a time.
    assert kernel.need.operations.multiply >= 4096**3 / 32


def test_factors_that_are_computed_in_float32_are_multiplied_by_instructions() -> None:
    """Though they are loaded as bfloat16: tensor cores would round them to that."""
    spec = lm.TensorSpec((256, 4096), lm.bfloat16)
    (kernel,) = cost_of(lambda x: lm.sum(lm.exp(x.cast(lm.float32)) ** 2, axis=1), spec).steps
    assert kernel.need.operations.tensor == 0


# Microseconds of an H200, of drawn programs: the shapes of the base and the updates, and the axis.
SCATTERS = {
    "as many places as updates": (36, (743777, 2), (743777, 2), 0),
    "several blocks of a row": (215, (128, 65536), (128, 65536), 1),
    "columns by themselves": (105, (8707, 467), (8707, 467), 0),
    "columns side by side": (51, (416, 8192), (416, 8192), 0),
    "few updates": (21, (128, 6208), (128, 6208), 1),
}


@pytest.mark.parametrize("name", SCATTERS)
def test_predictions_of_scatters_are_near_recorded_times(name: str) -> None:
    microseconds, base, updates, axis = SCATTERS[name]
    cost = cost_of(
        lambda x, places, new: lm.scatter_add(x, axis, places, new),
        lm.TensorSpec(base), lm.TensorSpec(updates, lm.int64), lm.TensorSpec(updates),
    )  # fmt: skip
    assert 1 / 1.5 < cost.seconds * 1e6 / microseconds < 1.5


@on(Op.SCATTER)
def as_written(node: Node) -> None:
    """No scatter is anything else."""


def test_updates_in_order_wait_for_one_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scatter of float64 that is not sorted adds in order: 65,536 updates of 0.3 us, as were
    measured of float32 where a thread read one at a time."""
    monkeypatch.setattr(backends, "scatters", lambda target: as_written)
    monkeypatch.setattr(loops, "sent_scatters", lambda plan: [])
    specs = lm.TensorSpec((128, 65536), lm.float64), lm.TensorSpec((128, 65536), lm.int64)
    cost = cost_of(lambda x, places: lm.scatter_add(x, 1, places, x), *specs)
    assert 1 / 1.5 < cost.seconds * 1e6 / 20_785 < 1.5


def test_lanes_look_at_updates_of_rows_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """16,384 rows of 768 columns, in order, took an H200 0.6 ms, as 32 are looked at at a time."""
    monkeypatch.setattr(backends, "scatters", lambda target: as_written)
    specs = (
        lm.TensorSpec((50304, 768)), lm.TensorSpec((16384,), lm.int64), lm.TensorSpec((16384, 768))
    )  # fmt: skip
    cost = cost_of(lambda x, rows, new: lm.index_add(x, 0, rows, new), *specs)
    assert 1 / 1.5 < cost.seconds * 1e6 / 600 < 1.5


def test_each_block_loads_what_all_of_them_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A block for each of 25 places reads all indices and updates of a row: a program that took an
    H200 104 us was predicted to take 37, as if the indices were read once."""
    monkeypatch.setattr(loops, "tiles_of_rows", lambda plan: [])
    half = lm.float16
    cost = cost_of(
        lambda x, places, new: lm.index_add(x, 1, places, lm.elu(new)),
        lm.TensorSpec((1153, 25), half), lm.TensorSpec((2160,), lm.int64),
        lm.TensorSpec((1153, 2160), half),
    )  # fmt: skip
    forget()  # that schedule
    assert 1 / 1.7 < cost.seconds * 1e6 / 104 < 1.7


def test_all_warps_of_a_block_exchange() -> None:
    """An argmax of 22 million took an H200 38.3 us, where 29.6 were predicted with the exchanges of
    one warp for each block."""
    cost = cost_of(lambda x: lm.argmax(x, axis=0), lm.TensorSpec((22_094_448,), lm.bfloat16))
    assert 1 / 1.2 < cost.seconds * 1e6 / 38.3 < 1.2


def test_a_batch_axis_of_the_places_is_no_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a scatter in order of 512 x 64 rows each has 8 owners, whatever its places depend on."""
    monkeypatch.setattr(loops, "sent_scatters", lambda plan: [])
    place = leaf(1, (512, 200, 1), lm.int64)
    operands = (
        leaf(0, (512, 5000, 64), lm.float64),
        build.expand(place, (512, 200, 64)),
        leaf(2, (512, 200, 64), lm.float64),
    )
    planned = compiled(Node(Op.SCATTER, operands, Scatter(1, ADD)))
    (nest,) = (plan.nest for plan in planned.plans.values() if plan.name.startswith("scatter"))
    assert "EACH_HIT(" in planned.text.partition(KERNELS)[2]
    assert owners_of(nest.kernel) == 8


@pytest.mark.parametrize(("rows", "together"), [(30_336, True), (30_347, False)])
def test_lanes_look_at_updates_together_where_rows_fill_warps(
    rows: int, together: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A warp that lacks a lane casts no votes: of 30,347 rows of 276 columns, 8 threads for each of
    which went through its 32 updates, a kernel took an H200 39 us where 3 were predicted: the
    places of neighbours are in sectors of their own. Here neighbours are side by side."""
    monkeypatch.setattr(loops, "sent_scatters", lambda plan: [])
    monkeypatch.setattr(loops, "private_scatters", lambda plan: [])
    lowered = lm.jit(lambda x, places, new: lm.index_add(x, 0, places, new)).lower(
        lm.TensorSpec((276, rows)), lm.TensorSpec((32,), lm.int64), lm.TensorSpec((32, rows)),
        device="cuda:0",
    )  # fmt: skip
    assert ("EACH_HIT(" in lowered.source.partition(KERNELS)[2]) is together


def test_updates_at_places_apart_take_a_sector_each() -> None:
    """8 threads for each row, one update at a time, took an H200 39 us, and memory of blocks 36."""
    lowered = lm.jit(lambda x, places, new: lm.index_add(x, 1, places, new)).lower(
        lm.TensorSpec((30_347, 276)), lm.TensorSpec((32,), lm.int64),
        lm.TensorSpec((30_347, 32)), device="cuda:0",
    )  # fmt: skip
    name = next(name for name in lowered.cost.kernels if name.startswith("scatter"))
    assert 26e-6 < lowered.cost.kernels[name].seconds < 59e-6


def test_gradients_of_long_tables_are_sums_of_runs() -> None:
    """Neither do threads go through all updates in order, nor blocks through them once for each of
    many parts of the table: sums of runs write each row of the table once."""
    specs = (
        lm.TensorSpec((32000, 2048), lm.bfloat16), lm.TensorSpec((8192,), lm.int64),
        lm.TensorSpec((8192, 2048), lm.bfloat16),
    )  # fmt: skip

    def gradient(table: lm.Tensor, words: lm.Tensor, slopes: lm.Tensor) -> lm.Tensor:
        loss = lm.sum((lm.embedding(words, table) * slopes).cast(lm.float32))
        return lm.gradient(loss, [table])[0]

    cost = cost_of(gradient, *specs)
    writing_once = 32000 * 2048 * 2 / GPUS[ARCH].levels[-1].all_write
    assert cost.seconds < 6 * writing_once


def test_no_call_takes_less_than_the_host() -> None:
    cost = cost_of(lambda x: x + 1.0, lm.TensorSpec((4,)))
    rates = GPUS[ARCH]
    assert cost.seconds == rates.call + 2 * rates.array + rates.enqueue
    assert sum(step.seconds for step in cost.steps) < cost.seconds


def test_the_host_prepares_an_array_once_however_many_parts_are_read() -> None:
    def parts(x: lm.Tensor) -> tuple[lm.Tensor, ...]:
        return tuple(x[row] * (row + 2.0) for row in range(4))

    cost = cost_of(parts, lm.TensorSpec((4, 65)))
    rates = GPUS[ARCH]
    assert cost.seconds == pytest.approx(rates.call + 5 * rates.array + rates.enqueue)


def test_a_long_row_is_sorted_by_all_multiprocessors() -> None:
    """267 us on an H200."""
    cost = cost_of(lambda x: lm.sort(x, axis=0), lm.TensorSpec((8653860,), lm.float16))
    assert 1 / 2 < cost.seconds * 1e6 / 267 < 2


def test_short_rows_take_as_long_as_one_long_row() -> None:
    """Threads of a block lie along as many axes as they need."""

    def gelu(x: lm.Tensor, y: lm.Tensor) -> lm.Tensor:
        return lm.gelu(x + y)

    long = cost_of(gelu, lm.TensorSpec((1 << 20,)), lm.TensorSpec((1 << 20,))).seconds
    short = cost_of(gelu, lm.TensorSpec((1 << 17, 8)), lm.TensorSpec((1, 8))).seconds
    assert short < 1.5 * long


def cost_in_tiles(columns: int) -> ProgramCost:
    """The cost of a long product of two tiles, whose right factor has so many columns."""
    specs = lm.TensorSpec((128, 7488), lm.bfloat16), lm.TensorSpec((7488, columns), lm.bfloat16)
    moves = f"[reduce0_128x{columns}]\ntensorize(mma_bf16_64x64)\norder(whole, 2)"
    with lm.using(schedule=moves):
        return lm.jit(lambda x, y: x @ y).lower(*specs, device="cuda:0", arch=ARCH).cost


def test_rows_that_begin_within_a_chunk_take_longer_to_fill_tiles() -> None:
    """The threads of a block fill one after the other, however few blocks there are: a call with
    (69, 7488) by (7488, 3) took an H200 145 us."""

    def demands(columns: int) -> set[str]:
        (kernel,) = cost_in_tiles(columns).kernels.values()
        return {name for name, seconds in kernel.demands.items() if seconds}

    assert demands(3) - demands(8) == {"filling"}
    assert 1 / 1.5 < cost_in_tiles(3).seconds * 1e6 / 145 < 1.5


def test_threads_share_a_long_product_whose_tiles_they_would_fill() -> None:
    specs = lm.TensorSpec((69, 7488), lm.bfloat16), lm.TensorSpec((7488, 3), lm.bfloat16)
    (kernel,) = lm.jit(lambda x, y: x @ y).lower(*specs, device="cuda:0", arch=ARCH).kernels
    assert "tensorize" not in kernel.schedule


def test_what_threads_compute_of_sums_takes_their_time() -> None:
    """12,378 x 1,016 exponentials, of sums of 88 products on tensor cores: 35 us on an H200."""
    specs = lm.TensorSpec((12384, 88), lm.bfloat16), lm.TensorSpec((88, 1016), lm.bfloat16)
    cost = cost_of(lambda x, y: lm.elu(x @ y), *specs)
    (kernel,) = cost.kernels.values()
    assert kernel.dominant == "instructions"


# Microseconds of an H200, of the sort as seed 411700 of the drawn programs, 183.
IN_TURNS: dict[str, tuple[float, Callable[[lm.Tensor], object], lm.TensorSpec]] = {
    "exchanges of a scan": (
        58, lambda x: lm.cumsum(x, axis=1), lm.TensorSpec((8, 5000, 300))
    ),
    "kernels of a sort": (39, lambda x: lm.argsort(x, axis=0), lm.TensorSpec((162611,))),
}  # fmt: skip


@pytest.mark.parametrize("name", IN_TURNS)
def test_what_waits_takes_its_time(name: str) -> None:
    microseconds, function, spec = IN_TURNS[name]
    cost = cost_of(function, spec)
    assert 1 / 1.5 < cost.seconds * 1e6 / microseconds < 1.5


def test_threads_that_lie_far_apart_read_a_line_each() -> None:
    """Rows of 5 elements, one of each of 37 arrays after the other: 160 us on an H200, and 30 with
    the rows of an array one after the other."""

    def reading(order: str) -> float:
        def function(x: lm.Tensor, y: lm.Tensor) -> lm.Tensor:
            return lm.softmax(x + y, axis=2)

        specs = lm.TensorSpec((37, 53165, 5)), lm.TensorSpec((37, 1, 1))
        moves = f"reorder({order})\nbind(a2, unroll)\nbind(a0, grid)\nbind(a1, grid)"
        with lm.using(schedule=moves):
            cost = lm.jit(function).lower(*specs, device="cuda:0", arch=ARCH).cost
        (kernel,) = cost.kernels.values()
        return kernel.demands["L1"]

    assert reading("a1, a0") > 4 * reading("a0, a1")


def test_each_warp_of_short_rows_reads_its_lines() -> None:
    """A thread for each of 4608 x 76 x 11 results, whose warps have three rows of one array and 11
    of the other, each a line: 140 us on an H200."""
    schedule = """
        fuse(a0, a1) -> a5; reorder(a5, a2, a3); split(a4, 4) -> a6, a7; bind(a7, unroll)
        bind(a5, grid); bind(a2, grid); bind(a3, grid)
    """
    specs = lm.TensorSpec((48, 96, 76, 60)), lm.TensorSpec((48, 96, 11, 60))
    cost = cost_of(lambda x, y: lm.einsum("bhid,bhjd->bhij", x, y), *specs, schedule=schedule)
    assert 1 / 1.5 < cost.seconds * 1e6 / 140 < 1.5
    (kernel,) = cost.kernels.values()
    assert kernel.dominant == "L1"


def test_an_access_begins_at_a_multiple_of_what_it_has() -> None:
    """Four neighbours from element 4 * i + 2 on are two accesses of two each, from 4 * i + 3 on
    four of one."""
    schedule = "split(a0, 4) -> a1, a2; bind(a1, grid); bind(a2, unroll)"
    count = 1 << 22

    def instructions(first: int) -> float:
        x = lm.TensorSpec((count + 4,))
        cost = cost_of(lambda x: x[first : first + count] + 1.0, x, schedule=schedule)
        (kernel,) = cost.kernels.values()
        return kernel.demands["instructions"]

    of_access = instructions(2) - instructions(4)
    assert of_access > 0
    assert instructions(3) - instructions(4) == pytest.approx(3 * of_access)


def test_few_long_sums_of_float32_are_in_tiles() -> None:
    """Threads with some sums each would wait for memory at each of 472 steps."""
    specs = lm.TensorSpec((576, 1888)), lm.TensorSpec((64, 1888))
    with lm.using(tf32=False):
        lowered = lm.jit(lambda x, y: x @ y.T).lower(*specs, device="cuda:0", arch=ARCH)
    (kernel,) = lowered.kernels
    assert kernel.schedule.startswith("tensorize(fma_f32")


def test_elements_of_all_axes_are_reduced_as_one_row() -> None:
    """Rows of 195 would have a block each, whose loads are of 2 bytes."""
    lowered = lm.jit(lm.max).lower(
        lm.TensorSpec((76753, 195), lm.bfloat16), device="cuda:0", arch=ARCH
    )
    assert [kernel.name for kernel in lowered.kernels] == ["reduce0_1024", "reduce1_1"]








def test_parts_of_exact_sums_of_bytes_begin_at_whole_chunks() -> None:
    """Two parts of 868 bytes in bfloat16 are rows of 896, as 868 are 108.5 chunks."""
    specs = lm.TensorSpec((64, 1736), lm.int8), lm.TensorSpec((10888, 1736), lm.int8)
    cost = cost_of(lambda x, y: x.cast(lm.int32) @ y.cast(lm.int32).T, *specs)
    assert [kernel.demands.get("filling", 0.0) for kernel in cost.kernels.values()] == [0.0] * 4





def test_steps_of_a_scan_side_by_side_share_exchanges() -> None:
    """Threads exchange what they have at each step of the block, whatever each of them has."""
    x = lm.TensorSpec((1024, 8192), lm.float32)
    threads, rows = "bind(a3, thread); bind(a0, grid)", "bind(a4, thread); bind(a0, grid)"
    single = f"split(a1, 256) -> a2, a3; {threads}"
    several = f"split(a1, 1024) -> a2, a3; split(a3, 4) -> a4, a5; bind(a5, unroll); {rows}"
    costs = [cost_of(lambda x: lm.cummax(x, axis=1), x, schedule=one) for one in (single, several)]
    one, four = (next(iter(cost.kernels.values())).demands["instructions"] for cost in costs)
    assert one > 2 * four
