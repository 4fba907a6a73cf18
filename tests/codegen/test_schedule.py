"""Schedules as text, moves that do not fit, and schedules given from outside."""

from __future__ import annotations

import random
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lamina as lm
from lamina import backends, pipeline
from lamina.core.dtypes import float32, int64
from lamina.core.options import current, using
from lamina.core.target import cpu_target
from lamina.errors import FormatError
from lamina.explain.check import run_kernel
from lamina.frontend.lowered import LoweredKernel
from lamina.fuse.program import Launch
from lamina.graph import index as ix
from lamina.ir import build
from lamina.ir.kernel import Kernel, Parameter, Store, free_axes
from lamina.ir.monoids import ADD, MAX
from lamina.ir.node import Node
from lamina.ir.ops import Load, LoopReduce, Op, Scatter
from lamina.ir.verify_kernel import verify_kernel
from lamina.loops.moves import (
    Accumulate,
    Bind,
    Factor,
    Flatten,
    Fuse,
    Reorder,
    Rotate,
    Split,
    Stage,
    apply,
)
from lamina.loops.nest import BINDINGS, Nest, SubLoops
from lamina.loops.scatters import Atomic, Partition, Privatize, Speculate
from lamina.loops.text import parse, to_text
from lamina.loops.verify import verify_nest
from lamina.schedule.cpu.heuristic import schedule_for_cpu
from lamina.schedule.knobs import CpuKnobs
from tests.generators import leaf
from tests.programs import RandomProgram, disagreement, reference, run
from tests.schedules import random_schedule

NUMBER = st.integers(0, 99)
MOVES = st.one_of(
    st.builds(Split, NUMBER, st.integers(1, 999), NUMBER, NUMBER),
    st.builds(Fuse, NUMBER, NUMBER, NUMBER),
    st.builds(Flatten, NUMBER, NUMBER, NUMBER),
    st.builds(Reorder, st.lists(NUMBER, min_size=1).map(tuple)),
    st.builds(Bind, NUMBER, st.sampled_from(BINDINGS)),
    st.builds(Stage, NUMBER, NUMBER),
    st.builds(Accumulate, NUMBER),
    st.builds(Factor, NUMBER, NUMBER),
    st.builds(Partition, NUMBER, NUMBER),
    st.builds(Atomic, NUMBER),
    st.builds(Privatize, NUMBER, NUMBER),
    st.builds(Speculate, NUMBER),
    st.builds(Rotate, NUMBER, NUMBER, NUMBER),
)


@given(st.lists(MOVES).map(tuple))
def test_text_round_trips(schedule: tuple[object, ...]) -> None:
    assert parse(to_text(schedule))[""] == schedule  # type: ignore[arg-type]


def test_text_may_hold_comments_and_semicolons() -> None:
    text = "split(a0,4)->a1, a2; bind( a2, vector )  # lanes\n\n# nothing\nreorder(a1, a2)"
    assert parse(text)[""] == (Split(0, 4, 1, 2), Bind(2, "vector"), Reorder((1, 2)))


@pytest.mark.parametrize(
    "text",
    ["split(a0, 4)", "split(a0, x) -> a1, a2", "bind(a0)", "bind(0, vector)", "unroll(a0)",
     "bind(a0, vector", "fuse(a0) -> a1", "reorder()", "->", "split(a0, 4) -> a1, a2, a3",
     "stage(%x, a0)"],
)  # fmt: skip
def test_text_that_is_no_move(text: str) -> None:
    with pytest.raises(FormatError, match="line 2"):
        parse(f"bind(a0, serial)\n{text}")


A, B, C = leaf(0, (37, 50), float32), leaf(1, (50, 45), float32), leaf(2, (45,), float32)
SHAPE = (37, 50, 45)


def matmul(a: Node, b: Node) -> Node:
    left = build.expand(build.reshape(a, (37, 50, 1)), SHAPE)
    return build.reduce(ADD, [1], left * build.expand(build.reshape(b, (1, 50, 45)), SHAPE))


AFFINE = matmul(A, B) + build.expand(C, (37, 45))
PROGRAM = RandomProgram(
    [Node(Op.MAX, (AFFINE, build.full((37, 45), 0.0, float32)))],
    {
        one: np.random.default_rng(i).integers(-3, 4, one.shape).astype(np.float32)
        for i, one in enumerate((A, B, C))
    },
    frozenset(),
)


def program_kernel(program: RandomProgram) -> Launch:
    with using() as options:
        source = pipeline.compile_source([program.sinks[0]], options)
    (launch,) = source.program.launches
    return launch


KERNEL = program_kernel(PROGRAM).kernel
AXES = {axis.arg.size: axis.arg.number for axis in apply(KERNEL, ()).order}
ROW, COLUMN, SUM = AXES[37], AXES[45], AXES[50]
A_READ, B_READ, C_READ = (
    next(number for number, one in enumerate(KERNEL.values)
         if one.op is Op.LOAD and KERNEL.parameters[one.arg.parameter].size == size)
    for size in (37 * 50, 50 * 45, 45)
)  # fmt: skip
TOTAL = next(number for number, one in enumerate(KERNEL.values) if one.op is Op.LOOP_REDUCE)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("bind(a77, vector)", "no axis a77"),
        (f"bind(a{ROW}, warp)", "a binding is one of"),
        (f"stage(%{A_READ}, a{SUM})", "no loop over rows"),
        (f"bind(a{ROW}, unroll); stage(%{A_READ}, a{ROW})", "no loop over rows"),
        (f"stage(%99, a{ROW})", "no value %99"),
        (f"stage(%{TOTAL}, a{ROW})", "it is a reduction"),
        (f"stage(%{A_READ}, a{ROW}); split(a{ROW}, 4) -> a7, a8", "keep and stage come last"),
        (f"stage(%{B_READ}, a{ROW}); reorder(a{COLUMN}, a{ROW})", "keep and stage come last"),
        (f"split(a{ROW}, 0) -> a7, a8", "the factor is positive"),
        (f"split(a{ROW}, 4) -> a{COLUMN}, a8", "the new axes are new"),
        (f"split(a{ROW}, 4) -> a7, a7", "the new axes are new"),
        (f"bind(a{ROW}, unroll); split(a{ROW}, 4) -> a7, a8", "the axis is bound"),
        (f"split(a{ROW}, 10) -> a7, a8; split(a8, 4) -> a9, a10", "not split evenly"),
        (f"fuse(a{ROW}, a{COLUMN}) -> a7", "walk the two as one"),
        (f"flatten(a{COLUMN}, a{ROW}) -> a7", "they are not neighbours"),
        (f"rotate(a{ROW}, a{ROW}, 4)", "two rows, split evenly"),
        (f"rotate(a{ROW}, a{SUM}, 4)", "two rows, split evenly"),
        (f"split(a{ROW}, 4) -> a7, a8; rotate(a7, a{COLUMN}, 4)", "two rows, split evenly"),
        (f"reorder(a{ROW}, a{ROW})", "named twice"),
        (f"accumulate(a{SUM})", "no plain reduction"),
        (f"factor(%99, a{SUM})", "no value %99"),
        (f"factor(%{A_READ}, a{SUM})", "no sum of floats"),
        (f"factor(%{TOTAL}, a{SUM})", "no loop of .* is around"),
        ("partition(4) -> a7", "no store adds"),
        (f"bind(a{SUM}, parallel)", "no row axis"),
        (f"bind(a{COLUMN}, vector)", "45 lanes"),
    ],
)
def test_moves_that_do_not_fit(text: str, message: str) -> None:
    with using(schedule=text) as options, pytest.raises(FormatError, match=message):
        run(PROGRAM, options)


@pytest.mark.parametrize(
    "text",
    [
        f"split(a{COLUMN}, 16) -> a7, a8; bind(a8, vector)",
        f"split(a{COLUMN}, 15) -> a7, a8; rotate(a7, a{ROW}, 4); rotate(a{ROW}, a8, 2); "
        "bind(a8, unroll)",
        f"split(a{ROW}, 6) -> a7, a8; bind(a7, parallel); bind(a8, unroll)",
        f"split(a{SUM}, 32) -> a7, a8; split(a8, 8) -> a9, a10; bind(a9, unroll); "
        "bind(a10, vector)",
        f"split(a{ROW}, 3) -> a7, a8; split(a{COLUMN}, 32) -> a9, a10; split(a10, 16) -> a11, a12; "
        f"reorder(a7, a9, a{SUM}, a8, a11, a12); "
        "bind(a8, unroll); bind(a11, unroll); bind(a12, vector); "
        f"stage(%{A_READ}, a7); stage(%{B_READ}, a9)",
        f"split(a{COLUMN}, 16) -> a7, a8; bind(a8, vector); reorder(a{ROW}, a7, a{SUM}, a8); "
        f"stage(%{B_READ}, a{ROW}); stage(%{C_READ}, a{ROW})",
    ],
)
def test_a_given_schedule_is_replayed(text: str) -> None:
    with using(schedule=text) as options:
        source = pipeline.compile_source([PROGRAM.sinks[0]], options)
        assert source.plans[KERNEL].moves == parse(text)[""]
        assert disagreement(PROGRAM, options) is None


@pytest.mark.parametrize("rest", [f"a{ROW}", f"a{ROW}, a10", ""])
def test_sums_accumulate_in_the_result(rest: str) -> None:
    """Outside of all rows, of some and of none, with lanes whose last vectors are shorter."""
    program = RandomProgram([matmul(A, B)], PROGRAM.leaves, frozenset())
    text = (
        f"split(a{SUM}, 5) -> a7, a8; bind(a8, unroll); split(a{COLUMN}, 16) -> a10, a11; "
        f"bind(a11, vector); reorder({f'{rest}, ' * bool(rest)}a7); accumulate(a7)"
    )
    with using(schedule=text) as options:
        if "a10" in rest:  # whose lanes, of a ragged end, would be torn from it
            with pytest.raises(FormatError, match="between the sub-loops"):
                run(program, options)
        else:
            assert disagreement(program, options) is None
    for axis in (SUM, ROW):
        text = f"accumulate(a{axis})"
        with using(schedule=text) as options, pytest.raises(FormatError, match="over"):
            run(program, options)


def test_each_sub_loop_of_an_even_split_has_an_uneven_end() -> None:
    """45 columns are 5 panels of 9, and each of these two vectors of 4 lanes and a scalar."""
    text = f"split(a{COLUMN}, 9) -> a7, a8; split(a8, 4) -> a9, a10; bind(a10, vector)"
    with using(schedule=text) as options:
        source = pipeline.compile_source([PROGRAM.sinks[0]], options)
        (nest,) = (plan.nest for plan in source.plans.values())
        assert isinstance(nest, Nest)
        verify_nest(nest)
        assert disagreement(PROGRAM, options) is None
        panels, outer, lanes = (nest.axis(number) for number in (7, 9, 10))
        assert nest.sub_loops(panels) == SubLoops((panels,), 5)
        assert nest.sub_loops(lanes) == SubLoops((outer, lanes), 9)
        assert [nest.is_head(axis) for axis in (panels, outer, lanes)] == [True, True, False]


def test_blocks_of_an_even_split_are_divided_apart_from_what_is_in_them() -> None:
    """45 columns are 9 blocks of 5, and these 2 chunks of 4 blocks and one of a single block."""
    text = (
        f"split(a{COLUMN}, 5) -> a7, a8; split(a7, 4) -> a9, a10; bind(a9, parallel); "
        "bind(a8, parallel)"
    )
    with using(schedule=text) as options:
        source = pipeline.compile_source([PROGRAM.sinks[0]], options)
        (nest,) = (plan.nest for plan in source.plans.values())
        assert isinstance(nest, Nest)
        assert disagreement(PROGRAM, options) is None
        outer, inner, columns = (nest.axis(number) for number in (9, 10, 8))
        assert nest.sub_loops(outer) == SubLoops((outer, inner), 9)
        assert nest.sub_loops(columns) == SubLoops((columns,), 5)
        assert [nest.is_head(axis) for axis in (outer, inner, columns)] == [True, False, True]


def test_no_part_of_a_sum_is_added_before_the_maximum_of_all_parts() -> None:
    x = leaf(0, (32, 45), float32)
    highest = build.expand(build.reshape(build.reduce(MAX, [0], x), (1, 45)), x.shape)
    total = build.reduce(ADD, [0], Node(Op.EXP, (x - highest,)))
    (launch,) = pipeline.compile_source([total], current()).program.launches
    assert isinstance(launch.kernel, Kernel)
    (step,) = (axis.arg.number for axis in apply(launch.kernel, ()).order if axis.arg.reduce)
    moves = parse(f"split(a{step}, 8) -> a7, a8; accumulate(a7)")[""]
    with pytest.raises(FormatError, match="no plain reduction"):
        apply(launch.kernel, moves)


def scattering_sums() -> tuple[RandomProgram, Kernel]:
    """90 rows that are added to 40 others, at places that data say; and the kernel that adds."""
    rng = np.random.default_rng(0)
    base, place, update = (leaf(0, (40, 6), float32), leaf(1, (90,), int64),
                           leaf(2, (90, 6), float32))  # fmt: skip
    places = build.expand(build.reshape(place, (90, 1)), (90, 6))
    sums = Node(Op.SCATTER, (base, places, update), Scatter(0, ADD))
    leaves = {one: rng.standard_normal(one.shape, dtype=np.float32) for one in (base, update)}
    program = RandomProgram([sums], leaves | {place: rng.integers(0, 40, 90)}, frozenset())
    kernel = pipeline.compile_source([sums], current()).program.launches[-1].kernel
    assert isinstance(kernel, Kernel)
    return program, kernel


@pytest.mark.parametrize("workers", [1, 4, 64])
@pytest.mark.usefixtures("on_cpu")
def test_a_scatter_is_partitioned_by_owner(workers: int) -> None:
    program, kernel = scattering_sums()
    (sums,) = program.sinks
    name = pipeline.kernel_name(kernel, 1)
    with using(schedule=f"[{name}]; partition({workers}) -> a77") as options:
        plans = pipeline.compile_source([sums], options).plans
        assert plans[kernel].moves == (Partition(workers, 77),)
        assert disagreement(program, options) is None


@pytest.mark.parametrize(
    ("move", "message"),
    [
        ("partition(0) -> a77", "0 workers"),  # none would own anything
        ("partition(6) -> a77", "6 workers"),  # workers 2 and 3 would own nothing
        ("partition(4) -> a{row}", "the new axes are new"),
    ],
)
@pytest.mark.usefixtures("on_cpu")
def test_partitions_that_do_not_fit(move: str, message: str) -> None:
    _, kernel = scattering_sums()
    row = kernel.row_axes[0].arg.number
    with pytest.raises(FormatError, match=message):
        apply(kernel, parse(move.format(row=row))[""])


def _counts(*, of_rows: bool) -> Node:
    """Histograms of 6 columns of numbers; `of_rows`: of one column, whose counts all columns get,
    so that neighbours in memory are counted together."""
    counts, ones = leaf(0, (40, 6), int64), build.full((90, 6), 1, int64)
    places = leaf(1, (90, 1 if of_rows else 6), int64)
    return Node(Op.SCATTER, (counts, build.expand(places, (90, 6)), ones), Scatter(0, ADD))


def _counting(*, of_rows: bool = False) -> Kernel:
    """The kernel that computes `_counts`."""
    total = _counts(of_rows=of_rows)
    kernel = pipeline.compile_source([total], current()).program.launches[-1].kernel
    assert isinstance(kernel, Kernel)
    return kernel


@pytest.mark.usefixtures("on_cpu")
def test_updates_of_integers_run_in_any_order() -> None:
    kernel = _counting()
    row, column = (axis.arg.number for axis in kernel.stores[0].axes)
    nest = apply(kernel, parse(f"atomic(a{column})")[""])
    assert nest.kernel.rows == 2
    assert nest.kernel.stores[0].atomic
    verify_kernel(nest.kernel)
    for move, message in (
        (f"atomic(a{row})", "not the first column"),
        (f"atomic(a{column}); atomic(a{column})", "not the first column"),
    ):
        with pytest.raises(FormatError, match=message):
            apply(kernel, parse(move)[""])


def test_updates_of_floats_run_in_order() -> None:
    _, kernel = scattering_sums()
    column = kernel.stores[0].axes[-1].arg.number
    with pytest.raises(FormatError, match="no store adds integers"):
        apply(kernel, parse(f"atomic(a{column})")[""])


@pytest.mark.parametrize("of_rows", [False, True])
@pytest.mark.usefixtures("on_cpu")
def test_a_cpu_has_no_atomic_operations(of_rows: bool) -> None:
    total, kernel = _counts(of_rows=of_rows), _counting(of_rows=of_rows)
    row, column = (axis.arg.number for axis in kernel.stores[0].axes)
    moves = f"atomic(a{column})"
    if of_rows:
        moves += f"; split(a{row}, 2) -> a77, a78; bind(a78, vector)"
    text = f"[{pipeline.kernel_name(kernel, 1)}]; {moves}"
    with using(schedule=text) as options, pytest.raises(FormatError, match="no such operation"):
        pipeline.compile_source([total], options)


def test_a_sum_of_its_own_loop_is_accumulated() -> None:
    row, outer, inner = ix.axis(0, 3), ix.axis(1, 50, reduce=True), ix.axis(2, 4, reduce=True)
    total = Node(Op.LOOP_REDUCE, (outer, outer, inner), LoopReduce(ADD, 0))
    kernel = Kernel((Parameter(int64, 3, True),), (Store(0, row, total, (row,)),), 1)
    nest = apply(kernel, parse("accumulate(a1)")[""])
    verify_kernel(nest.kernel)
    sums = np.zeros(3, np.int64)
    run_kernel(nest.kernel, [sums])
    np.testing.assert_array_equal(sums, 4 * np.arange(50).sum())


def test_nothing_is_staged_inside_rows_for_a_reduction_outside_them() -> None:
    row, step = ix.axis(0, 31), ix.axis(1, 50, reduce=True)
    load = Node(Op.LOAD, (step,), Load(0, float32))
    total = Node(Op.LOOP_REDUCE, (load, step), LoopReduce(ADD, 0))
    parameters = Parameter(float32, 50), Parameter(float32, 31, True)
    kernel = Kernel(parameters, (Store(1, row, total, (row,)),), 1)
    with pytest.raises(FormatError, match="outside a0"):
        apply(kernel, parse("stage(%0, a0)")[""])


def test_a_section_of_a_schedule_is_for_the_kernel_it_names() -> None:
    moves = f"split(a{ROW}, 6) -> a7, a8; bind(a7, parallel)"
    name = pipeline.kernel_name(KERNEL, 0)
    for text, expected in ((f"[{name}]; {moves}", True), (f"[reduce9_1]; {moves}", False)):
        with using(schedule=text) as options:
            source = pipeline.compile_source([PROGRAM.sinks[0]], options)
        assert (source.plans[KERNEL].moves == parse(moves)[""]) is expected


def test_random_schedules_of_one_kernel_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight schedules in one program: a factor of its own keeps each kernel apart."""
    rng = random.Random(5)
    sinks, leaves = [], {}
    for copy in range(8):
        moved = {one: leaf(3 * copy + i, one.shape, float32) for i, one in enumerate((A, B))}
        sinks.append(matmul(moved[A], moved[B]) * float(copy + 1))
        leaves |= {new: PROGRAM.leaves[old] for old, new in moved.items()}
    for name in ("schedule_for_cpu", "schedule_for_gpu"):
        monkeypatch.setattr(backends, name, lambda kernel, *_: random_schedule(rng, kernel, 20))
    program = RandomProgram(sinks, leaves, frozenset())
    assert disagreement(program, current()) is None


@pytest.mark.parametrize("width", [16, 32, 64])
def test_the_heuristic_tiles_a_matmul(width: int) -> None:
    """With 32 registers of 64 bytes and with 16 of 32: a column of scalars, a row of vectors."""
    nest = apply(KERNEL, schedule_for_cpu(KERNEL, cpu_target(width, cores=2), CpuKnobs()))
    bound = [(to, axis.arg.size) for axis, to in nest.binding.items() if to != "parallel"]
    lanes = width // 4
    wanted = {
        16: [("vector", lanes), ("unroll", 8)],
        32: [("unroll", 6), ("unroll", 2), ("vector", lanes)],
        64: [("unroll", 13), ("unroll", 2), ("vector", lanes)],
    }
    assert bound == wanted[width]


def batched_product(left: str, right: str) -> Kernel:
    """32 products of (24, 64) by (64, 16); of each factor the letters of its axes in memory."""
    sizes = {"b": 32, "m": 24, "k": 64, "n": 16}
    factors = []
    for number, letters in enumerate((left, right)):
        x = leaf(number, tuple(sizes[letter] for letter in letters), float32)
        x = build.permute(x, [letters.index(letter) for letter in sizes if letter in letters])
        shape = tuple(size if letter in letters else 1 for letter, size in sizes.items())
        factors.append(build.expand(build.reshape(x, shape), tuple(sizes.values())))
    (launch,) = pipeline.compile_source(
        [build.reduce(ADD, [2], factors[0] * factors[1])], current()
    ).program.launches
    return launch.kernel


@pytest.mark.parametrize("width", [16, 32, 64])
@pytest.mark.parametrize(
    ("left", "right"), [("bmk", "bkn"), ("bmk", "bnk"), ("bkm", "bkn"), ("bkm", "bnk")]
)
def test_the_heuristic_tiles_products_of_a_batch(left: str, right: str, width: int) -> None:
    """Vectors load neighbours, and each of a register tile's axes reuses a factor."""
    kernel = batched_product(left, right)
    nest = apply(kernel, schedule_for_cpu(kernel, cpu_target(width, cores=2), CpuKnobs()))
    bound = nest.binding
    assert "vector" in bound.values()
    unrolled = [axis for axis, to in bound.items() if to == "unroll"]
    loads = nest.kernel.of(Op.LOAD)
    assert len(unrolled) >= 1
    for axis in unrolled:
        assert any(axis not in free_axes(load) for load in loads)


def lowered_convolution(size: int, stride: int) -> LoweredKernel:
    """128 channels to as many by windows of 3 x 3, for results of `size` rows and columns."""
    padded = (size - 1) * stride + 3
    image, filters = lm.TensorSpec((1, 128, padded, padded)), lm.TensorSpec((128, 128, 3, 3))
    with using(device="cpu"):
        lowered = lm.jit(partial(lm.conv2d, stride=stride)).lower(image, filters)
    *_, kernel = lowered.kernels
    return kernel


@pytest.mark.parametrize(("size", "vectors"), [(16, "a2"), (10, "a0"), (7, "a0")])
def test_vectors_of_a_convolution_leave_few_lanes_empty(size: int, vectors: str) -> None:
    """Along the columns of images that fill them, and else along the channels of the result."""
    assert lowered_convolution(size, stride=1).schedule.startswith(f"split({vectors}, ")


def test_steps_that_share_elements_stay_apart() -> None:
    """Where windows move by one or two elements, and not where they share none."""
    texts = [lowered_convolution(10, stride).source for stride in (1, 2, 3)]
    assert ["NEXT_STEP" in text for text in texts] == [True, True, False]


def test_the_reference_of_the_program_is_exact() -> None:
    assert reference(PROGRAM)[1] == [True]


def test_flatten_needs_stores_that_walk_both_axes_as_one() -> None:
    """Of a softmax along the middle axis of (6, 500, 400), rows lie 200,000 and 1 apart."""
    spec = lm.TensorSpec((6, 500, 400))
    lowered = lm.jit(lambda x: lm.softmax(x, axis=1)).lower(spec, device="cuda:0")
    ((kernel, _),) = lowered.planned.plans.items()
    rows = [axis.arg.number for axis in kernel.row_axes]
    with pytest.raises(FormatError, match="a store does not walk"):
        apply(kernel, (Flatten(*rows, 90),))
