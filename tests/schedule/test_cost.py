"""What the cost model counts, and what predictions keep, on random kernels and schedules."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from math import inf

import pytest

import lamina as lm
from lamina import backends, pipeline
from lamina.core.options import current
from lamina.core.rates import Memory, Rates
from lamina.graph import index as ix
from lamina.ir.kernel import Kernel, Parameter, Store, free_axes, points
from lamina.ir.monoids import ADD, ARGMAX, MAX
from lamina.ir.node import Node
from lamina.ir.ops import Load, LoopReduce, Op
from lamina.loops.moves import Bind, apply
from lamina.loops.nest import Nest
from lamina.schedule.cost import KernelCost, predict
from lamina.schedule.cost.body import Access, Work
from lamina.schedule.cost.footprint import Region, Walk, region
from lamina.schedule.cost.operations import demand_of, total
from lamina.schedule.cost.traffic import Traffic
from lamina.schedule.cost.walk import walk
from lamina.targets.c.dots import DotPrinter
from lamina.targets.c.operations import CLanguage
from tests.generators import random_graph
from tests.schedule.machines import RATES, TARGET, target_of
from tests.schedule.touched import is_affine, lines_of, touched
from tests.schedules import random_schedule

LINES = (64, 32)


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same device on every machine."""
    for module in (pipeline, backends):
        monkeypatch.setattr(module, "target_of", target_of)


def random_nests(first: int, last: int) -> Iterator[Nest]:
    """Nests of random kernels under the heuristic's schedule, and under random ones."""
    for seed in range(first, last):
        rng = random.Random(seed)
        sinks, _ = random_graph(rng)
        planned = pipeline.compile_source(sinks, current())
        for kernel, plan in planned.plans.items():
            if isinstance(plan.nest, Nest):
                yield plan.nest
                assert isinstance(kernel, Kernel)
                if not kernel.blocks:
                    yield apply(kernel, random_schedule(rng, kernel))


@pytest.mark.parametrize("first", range(0, 120, 20))
def test_elements_and_lines_are_those_that_the_loops_touch(first: int) -> None:
    compared = 0
    for nest in random_nests(first, first + 20):
        walks = [axis for axis in nest.order if axis.arg.size > 0]
        if len(walks) < len(nest.order):
            continue
        indices = [load.src[0] for load in nest.kernel.of(Op.LOAD)]
        indices += [store.index for store in nest.kernel.stores]
        for index in filter(is_affine, indices):
            for count in range(len(walks) + 1):
                walking = frozenset(walks[len(walks) - count :]) & free_axes(index)
                elements = touched(nest, index, walking)
                for itemsize in (1, 4, 8):
                    area = region(nest, index, itemsize, walking, 1 << 30)
                    assert area.elements() == len(elements)
                    for line in LINES:
                        assert area.lines(line) == lines_of(elements, itemsize, line)
                compared += 1
    assert compared > 50


@pytest.mark.parametrize("seed", range(300))
def test_sums_of_walks_are_counted_exactly(seed: int) -> None:
    rng = random.Random(seed)
    walks = []
    for _ in range(rng.randint(0, 4)):
        walks.append(Walk(rng.choice([1, 1, 2, 3, 5, 16, 17, 100, 1000]), rng.randint(1, 20)))
    offset, itemsize = rng.randint(0, 40), rng.choice([1, 2, 4, 8])
    elements = {offset}
    for stride, size in walks:
        elements = {element + stride * step for element in elements for step in range(size)}
    area = Region(offset, tuple(walks), itemsize)
    assert area.elements() == len(elements)
    for line in LINES:
        assert area.lines(line) == lines_of(elements, itemsize, line)


def test_an_index_from_data_touches_no_more_than_the_array_has() -> None:
    specs = lm.TensorSpec((50, 8)), lm.TensorSpec((400,), lm.int64)
    cost = lm.jit(lambda x, i: x[i]).lower(*specs).kernels[-1].cost
    (part,) = [line for line in cost.lines if line.reference.parameter == 1]
    assert 40 * 8 * 4 < part.used <= 50 * 8 * 4
    assert part.distinct <= 25


# Predictions.


@pytest.mark.parametrize("first", range(0, 60, 20))
def test_no_prediction_is_below_the_bound(first: int) -> None:
    for nest in random_nests(first, first + 20):
        cost = predict(nest, TARGET, RATES)
        assert 0 <= cost.bound <= cost.seconds * (1 + 1e-9)
        assert all(seconds >= 0 for seconds in cost.demands.values())


@pytest.mark.parametrize("steps", [64, 66])
def test_no_prediction_of_bytes_is_below_the_bound(steps: int) -> None:
    specs = lm.TensorSpec((128, steps), lm.uint8), lm.TensorSpec((steps, 128), lm.int8)
    with lm.using(device="cpu", schedule="", search=0):
        planned = lm.jit(lambda x, y: x.cast(lm.int32) @ y.cast(lm.int32)).lower(*specs).planned
    (nest,) = [plan.nest for plan in planned.plans.values() if plan.nest.kernel.of(Op.LOOP_REDUCE)]
    cost = predict(nest, TARGET, RATES)
    assert 0 < cost.bound <= cost.seconds


def lowered(function: Callable[..., lm.Tensor], *specs: lm.TensorSpec) -> KernelCost:
    """The cost of a function of one kernel."""
    with lm.using(device="cpu", schedule="", search=0):
        (kernel,) = lm.jit(function).lower(*specs).kernels
    return kernel.cost


def test_the_host_of_a_cpu_takes_its_time_for_each_array(monkeypatch: pytest.MonkeyPatch) -> None:
    rates = replace(RATES, call=3e-6, array=4e-7)
    monkeypatch.setattr(pipeline, "rates_of", lambda options: rates)
    specs = [lm.TensorSpec((4,))] * 3
    cost = lm.jit(lambda x, y, z: (x + y, y * z)).lower(*specs).cost
    of_kernels = sum(step.seconds for step in cost.steps)
    assert cost.seconds == pytest.approx(3e-6 + 5 * 4e-7 + of_kernels)


def test_instructions_that_multiply_nothing_have_a_rate_of_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spec = lm.TensorSpec((64, 100))

    def seconds(function: Callable[..., lm.Tensor], rates: Rates) -> float:
        monkeypatch.setattr(pipeline, "rates_of", lambda options: rates)
        return lowered(function, spec).demands["instructions"]

    faster = replace(RATES, simple=2 * RATES.simple)
    cubed = lambda x: x * x * x  # noqa: E731
    assert seconds(cubed, faster) == pytest.approx(seconds(cubed, RATES), rel=0.01)
    assert seconds(lm.abs, faster) == pytest.approx(seconds(lm.abs, RATES) / 2, rel=0.1)


def test_the_step_of_an_argmax_takes_fewer_instructions_on_vectors() -> None:
    assert ARGMAX.in_order is not None
    step = Work(ARGMAX.in_order, lm.float32, times=1.0, lanes=16, copies=1)
    assert demand_of(step, 64, RATES).simple == 7
    assert demand_of(replace(step, lanes=1), 64, RATES).simple == 12


def test_workers_read_what_others_have_written_from_their_caches() -> None:
    specs = lm.TensorSpec((64, 64)), lm.TensorSpec((64, 2048))
    with lm.using(device="cpu", schedule="", search=0):
        cost = lm.jit(lambda x, w: lm.max(x @ w, axis=0)).lower(*specs).cost
    product, maxima = cost.steps
    assert "caches of others" not in product.demands  # its inputs are in the caches of all
    assert maxima.demands["fork"] > 0
    (part,) = [part for part in maxima.lines if not part.reference.is_store]
    nbytes = 64 * (part.distinct - part.moved[1])  # those that L2 has
    assert nbytes > 0.5 * 64 * 2048 * 4
    # Each of 2 workers gets half of its part from the other.
    rate = 2 * RATES.levels[2].read
    assert maxima.demands["caches of others"] == pytest.approx(nbytes / 2 / rate)


def never_faster(costs: list[KernelCost]) -> bool:
    seconds = [cost.seconds for cost in costs]
    return seconds == sorted(seconds)


@pytest.mark.parametrize("dtype", [lm.float32, lm.float64])
def test_more_bytes_are_never_faster(dtype: lm.DType) -> None:
    sizes = [1 << k for k in range(4, 27)]
    assert never_faster([lowered(lambda x: x + 1, lm.TensorSpec((n,), dtype)) for n in sizes])
    assert never_faster([lowered(lambda x: lm.sum(x), lm.TensorSpec((n,))) for n in sizes[:10]])
    narrow, wide = (
        lowered(lambda x: x * 2, lm.TensorSpec((1 << 22,), dtype))
        for dtype in (lm.float32, lm.float64)
    )
    assert narrow.seconds < wide.seconds
    assert narrow.bound < wide.bound


def test_longer_strides_are_never_faster() -> None:
    costs = []
    for stride in (1, 2, 4, 8, 16, 32, 64):
        spec = lm.TensorSpec((1000, 64 * stride))
        costs.append(lowered(lambda x, step=stride: x[:, ::step] + 1, spec))
    assert never_faster(costs)
    assert costs[-1].seconds > 4 * costs[0].seconds


def test_fewer_lanes_are_never_faster() -> None:
    lanes_and_moves = {
        16: "split(a0, 16) -> a1, a2; bind(a2, vector)",
        8: "split(a0, 8) -> a1, a2; bind(a2, vector)",
        4: "split(a0, 4) -> a1, a2; bind(a2, vector)",
        2: "split(a0, 2) -> a1, a2; bind(a2, vector)",
        1: "bind(a0, serial)",
    }
    costs = []
    for moves in lanes_and_moves.values():
        with lm.using(device="cpu", schedule=moves):
            (kernel,) = lm.jit(lambda x: lm.exp(x) * 2).lower(lm.TensorSpec((4096,))).kernels
        costs.append(kernel.cost)
    assert never_faster(costs)
    assert costs[-1].demands["instructions"] == 16 * costs[0].demands["instructions"]


def test_long_bodies_wait_for_their_own_steps() -> None:
    """A processor has few runs of a long body under way, whose steps wait for one another; copies
    of a body do not."""

    def chain(count: int) -> Callable[[lm.Tensor], lm.Tensor]:
        def chained(x: lm.Tensor) -> lm.Tensor:
            for _ in range(count):
                x = lm.exp(-x)
            return x

        return chained

    def instructions(count: int, moves: str) -> float:
        with lm.using(device="cpu", schedule=moves):
            (kernel,) = lm.jit(chain(count)).lower(lm.TensorSpec((4096,))).kernels
        return kernel.cost.demands["instructions"]

    vectors = "split(a0, 16) -> a1, a2; bind(a2, vector)"
    copies = vectors + "; split(a1, 4) -> a3, a4; bind(a4, unroll)"
    one, eight = (instructions(count, vectors) for count in (1, 8))
    assert 1.2 * 8 * one < eight < 4 * 8 * one
    assert instructions(8, copies) < 0.8 * eight


def test_what_is_shared_by_no_loop_is_read_again_where_no_cache_holds_it() -> None:
    """Every row of a product reads all of a factor: from memory if it is larger than the caches."""
    rows_outermost = "bind(a0, serial); reorder(a0, a2, a1)"
    moved = []
    for size in (64, 512, 4096):
        with lm.using(device="cpu", schedule=rows_outermost):
            spec = lm.TensorSpec((size, size))
            cost = lm.jit(lambda a, b: a @ b).lower(spec, spec).kernels[0].cost
        (factor,) = [part for part in cost.lines if part.reference.parameter == 1]
        moved.append([lines / factor.distinct for lines in factor.moved])
    small, middle, large = moved
    assert max(small) <= 1  # found in the first cache
    assert middle[0] > 500  # once for each row, from the second one
    assert middle[2] == 0
    assert large[2] > 4000  # once for each row, from memory


@pytest.mark.parametrize("bound", [(0,), (1,), (0, 1)])
@pytest.mark.parametrize("chunks_of_each", [1, 2])
def test_each_worker_reads_what_its_chunks_touch(
    bound: tuple[int, ...], chunks_of_each: int
) -> None:
    """Of nested parallel loops too, workers read for themselves what several of them use."""
    schedule = "; ".join(f"bind(a{number}, parallel)" for number in bound)
    with lm.using(device="cpu", schedule=schedule, search=0):
        specs = lm.TensorSpec((2, 64)), lm.TensorSpec((4, 64))
        planned = lm.jit(lambda a, b: a @ b.T).lower(*specs).planned
    (plan,) = planned.plans.values()
    nest = plan.nest
    assert isinstance(nest, Nest)
    parallel = frozenset(axis for axis in nest.order if nest.bound(axis) == "parallel")
    assert len(parallel) == len(bound)
    chunks = points(parallel)
    # Caches keep all that a chunk touches, and nothing until the next run.
    private = Memory("L1", 1 << 20, False, 1e9, 1e9, 1e9, 1e9, 1e9)
    rates = replace(RATES, levels=(private, RATES.levels[-1]))
    workers = chunks // chunks_of_each
    traffic = Traffic(nest, walk(nest), rates, workers, parallel, around=inf)
    (store,) = nest.kernel.stores
    accesses = [(load.arg.parameter, load.src[0]) for load in nest.kernel.of(Op.LOAD)]
    for parameter, index in [*accesses, (store.parameter, store.index)]:
        (lines,) = [part for part in traffic.lines if part.reference.parameter == parameter]
        if lines.reference.is_store and chunks_of_each == 1:
            continue  # two chunks write one line: it is counted as if the last one wrote it alone
        of_chunk = touched(nest, index, set(nest.order) - parallel)
        by_all = chunks * lines_of(of_chunk, 4, rates.line)
        whole = lines_of(touched(nest, index, set(nest.order)), 4, rates.line)
        assert lines.distinct == whole
        if chunks_of_each == 1:
            assert lines.moved == (by_all,)
        else:  # which worker has which chunks is not known: at least one reads each line
            assert whole <= lines.moved[0] <= by_all


def test_the_dominant_demand_has_a_name() -> None:
    spec = lm.TensorSpec((1 << 24,))
    assert lowered(lambda x: x + 1, spec).dominant == "DRAM"
    assert lowered(lambda x: lm.sin(x), lm.TensorSpec((1 << 16,))).dominant == "instructions"
    text = str(lowered(lambda x: x + 1, spec))
    assert text.startswith(tuple("123456789"))
    assert ": DRAM " in text


# The walk.

PLAIN = {
    "map": (lambda x, y: lm.exp(x) * y, (32, 64), (32, 64)),
    "rows": (lambda x: lm.sum(x * x, axis=1), (64, 256)),
    "columns": (lambda x: lm.max(x, axis=0), (64, 256)),
    "softmax": (lambda x: lm.softmax(x, axis=1), (64, 128)),
    "product": (lambda x, y: x @ y, (64, 64), (64, 64)),
    "shared loops": (lambda x: lm.sum(x, axis=1) * lm.max(x, axis=1), (64, 256)),
    "a store before its sum": (lambda x: (lm.exp(x), lm.sum(lm.exp(x), axis=1)), (64, 256)),
    "variance": (lambda x: lm.var(x, axis=1), (64, 256)),
    "normalised": (lambda x: x / lm.sqrt(lm.sum(x * x, axis=1, keepdims=True)), (64, 256)),
    "scan": (lambda x: lm.cumsum(x, axis=1), (64, 128)),
    "padded": (lambda x: lm.pad(x, ((0, 0), (1, 1))) * 2, (32, 62)),  # loads under a mask
    "stencil": (lambda x: lm.pad(x, ((0, 0), (1, 1)))[:, :-2] + x, (32, 64)),
    "choice": (lambda x, y: lm.where(x > 0, y, 0), (32, 64), (32, 64)),
    "transpose": (lambda x: x.T.contiguous(), (64, 64)),
}


@pytest.mark.parametrize("name", PLAIN)
def test_loads_are_as_many_as_the_kernel_has(name: str) -> None:
    """Each copy of a load that the walk counts is one definition in the text."""
    function, *shapes = PLAIN[name]
    with lm.using(device="cpu", schedule="", search=0):
        planned = lm.jit(function).lower(*map(lm.TensorSpec, shapes)).planned
    for plan in planned.plans.values():
        assert isinstance(plan.nest, Nest)
        text, _ = DotPrinter(plan.nest, "kernel", CLanguage()).print()
        loads, stores = accesses_of(plan.nest)
        printed = re.findall(r" load_\d+ = (?!columns)|TRANSPOSED\(\w+, \w+, (\d+)", text)
        assert sum(load.copies for load in loads) == sum(int(rows or 1) for rows in printed)
        assert sum(store.copies for store in stores) == len(re.findall(r"\bp\d+\b.* = .*;", text))


def accesses_of(nest: Nest) -> tuple[list[Access], list[Access]]:
    """The loads and the stores of the walk."""
    accesses = [access for loop in walk(nest).every() for access in loop.accesses]
    loads = [access for access in accesses if not access.is_store]
    return loads, [access for access in accesses if access.is_store]


def dot_product(x: lm.Tensor, y: lm.Tensor) -> lm.Tensor:
    return lm.sum(x.cast(lm.int32) * y.cast(lm.int32), axis=1, dtype=lm.int32)


@pytest.mark.parametrize(
    ("schedule", "lanes"),
    [("bind(a1, dot)", 4), ("split(a0, 16) -> a2, a3; bind(a3, vector); bind(a1, dot)", 64)],
)
def test_four_bytes_of_a_dot_product_are_lanes_of_one_load(schedule: str, lanes: int) -> None:
    with lm.using(device="cpu", schedule=schedule, search=0):
        specs = lm.TensorSpec((64, 4), lm.uint8), lm.TensorSpec((4,), lm.int8)
        (plan,) = lm.jit(dot_product).lower(*specs).planned.plans.values()
    assert isinstance(plan.nest, Nest)
    text, _ = DotPrinter(plan.nest, "kernel", CLanguage()).print()
    loads, _ = accesses_of(plan.nest)
    assert {load.parameter: load.lanes for load in loads} == {0: lanes, 1: 4}
    assert sum(load.copies for load in loads) == len(re.findall(r" load_\d+ = ", text)) == 2
    work = [work for loop in walk(plan.nest).every() for work in loop.work]
    assert [(each.op, each.lanes) for each in work] == [(Op.MUL, lanes // 4), (Op.ADD, lanes // 4)]
    assert text.count("DOT(") == 1


def test_an_instruction_may_add_a_dot_product_to_its_sum() -> None:
    schedule = "split(a0, 16) -> a2, a3; bind(a3, vector); bind(a1, dot)"
    with lm.using(device="cpu", schedule=schedule, search=0):
        specs = lm.TensorSpec((64, 4), lm.uint8), lm.TensorSpec((4,), lm.int8)
        (plan,) = lm.jit(dot_product).lower(*specs).planned.plans.values()
    assert isinstance(plan.nest, Nest)
    for adds_dots in (False, True):
        loops = walk(plan.nest, adds_dots=adds_dots).every()
        instructions = total([work for loop in loops for work in loop.work], 64, RATES).instructions
        assert instructions == 4 * (1 if adds_dots else 2)  # 64 rows are 4 vectors of 16


def test_reads_under_conditions_happen_where_these_hold() -> None:
    """A roll reads each element once, by two loads."""
    with lm.using(device="cpu", schedule="", search=0):
        lowered = lm.jit(lambda x: lm.roll(x, 36) + 1.0).lower(lm.TensorSpec((144,)))
    (plan,) = lowered.planned.plans.values()
    assert isinstance(plan.nest, Nest)
    loads, _ = accesses_of(plan.nest)
    assert sorted(load.share for load in loads) == [0.25, 0.75]
    traffic = Traffic(plan.nest, walk(plan.nest), RATES, 1, frozenset(), around=inf)
    used = sum(lines.used for lines in traffic.lines if not lines.reference.is_store)
    assert used == 144 * 4


def test_lanes_that_a_condition_leaves_out_are_no_block_to_transpose() -> None:
    """``y[i, j] = x[j, i]`` with 16 lanes j and 16 unrolled i is a block of x, of which padding
    along j leaves lanes out."""
    specs = lm.TensorSpec((160, 64))
    blocks = """split(a1, 16) -> a2, a3
split(a0, 16) -> a4, a5
reorder(a2, a4, a5, a3)
bind(a3, vector)
bind(a5, unroll)"""

    def read(*padding: tuple[int, int]) -> Access:
        def program(x: lm.Tensor) -> lm.Tensor:
            return lm.pad(x.T, padding) * 1.5

        with lm.using(device="cpu", schedule=blocks, search=0):
            (plan,) = lm.jit(program).lower(specs).planned.plans.values()
        assert isinstance(plan.nest, Nest)
        return accesses_of(plan.nest)[0][0]

    assert read((0, 0), (0, 0)).lanes == 16
    assert read((0, 0), (8, 8)).lanes == 1


def test_what_indices_of_lanes_apart_need_is_computed_for_each() -> None:
    """Of ``x[(i + 1) // 3]`` 16 lanes take 16 divisions, and loads that are put together."""
    row = ix.axis(0, 16)
    index, _ = ix.divided(ix.scale(row, 1, 1), 3)
    load = Node(Op.LOAD, (index,), Load(0, lm.float32))
    store = Store(1, row, load, (row,))
    parameters = Parameter(lm.float32, 6), Parameter(lm.float32, 16, written=True)
    nest = apply(Kernel(parameters, (store,), rows=1), (Bind(0, "vector"),))
    (read,), _ = accesses_of(nest)
    assert (read.lanes, read.copies) == (1, 16)
    work = [work for loop in walk(nest).every() for work in loop.work]
    assert sorted((each.op.name, each.lanes, each.copies) for each in work if each.op) == [
        ("BITCAST", 1, 16), ("IDIV", 1, 16),
    ]  # fmt: skip


def test_short_vectors_are_divided_faster() -> None:
    """By their length, down to 20 bytes."""
    divisions = [
        demand_of(Work(Op.DIV, lm.float32, 1.0, lanes, 1), 64, RATES).divide
        for lanes in (16, 8, 4, 1)
    ]
    assert divisions == [1, 0.5, 20 / 64, 20 / 64]


def test_a_store_under_a_condition_on_lanes_is_lane_by_lane() -> None:
    """As the printer has it; a load under such a condition reads one vector under a mask."""
    row = ix.axis(0, 16)
    condition = ix.inside(ix.scale(row, 1, -1), 14)
    load = Node(Op.LOAD, (row, condition), Load(0, lm.float32))
    store = Store(1, row, load, (row,), condition)
    parameters = Parameter(lm.float32, 16), Parameter(lm.float32, 16, written=True)
    nest = apply(Kernel(parameters, (store,), rows=1), (Bind(0, "vector"),))
    text, _ = DotPrinter(nest, "kernel", CLanguage()).print()
    loads, stores = accesses_of(nest)
    assert [(load.lanes, load.copies) for load in loads] == [(16, 1)]
    assert [(store.lanes, store.copies) for store in stores] == [(1, 16)]
    assert (text.count("masked_"), len(re.findall(r"\bp1\[.*\] = ", text))) == (1, 16)


def steps_of(nest: Nest) -> list[tuple[Op | None, float]]:
    """The operations of the walk that are steps of reductions, and how often each runs."""
    work = [work for loop in walk(nest).every() for work in loop.work]
    return [(each.op, each.times) for each in work if each.chained]


def loaded(*axes: Node) -> Node:
    return Node(Op.LOAD, (ix.row_major(axes, tuple(axis.arg.size for axis in axes)),),
                Load(0, lm.float32))  # fmt: skip


def rows_of(value: Node, row: Node, elements: int) -> Nest:
    """The nest of the kernel ``y[row] = value``, as it is without a schedule; it reads an array of
    `elements`."""
    parameters = Parameter(lm.float32, elements), Parameter(lm.float32, row.arg.size, written=True)
    return apply(Kernel(parameters, (Store(1, row, value, (row,)),), rows=1), ())


def test_sum_and_maximum_of_the_same_row_are_two_steps() -> None:
    row, column = ix.axis(0, 16), ix.axis(1, 256, reduce=True)
    element = loaded(row, column)
    total, largest = (
        Node(Op.LOOP_REDUCE, (element, column), LoopReduce(monoid, 0)) for monoid in (ADD, MAX)
    )
    nest = rows_of(Node(Op.ADD, (total, largest)), row, 16 * 256)
    assert sorted(steps_of(nest), key=str) == [(Op.ADD, 16 * 256), (Op.MAX, 16 * 256)]


def test_a_reduction_inside_another_runs_in_its_loop() -> None:
    row, outer, inner = ix.axis(0, 4), ix.axis(1, 8, reduce=True), ix.axis(2, 16, reduce=True)
    largest = Node(Op.LOOP_REDUCE, (loaded(row, outer, inner), inner), LoopReduce(MAX, 0))
    total = Node(Op.LOOP_REDUCE, (largest, outer), LoopReduce(ADD, 0))
    nest = rows_of(total, row, 4 * 8 * 16)
    assert sorted(steps_of(nest), key=str) == [(Op.ADD, 4 * 8), (Op.MAX, 4 * 8 * 16)]


@pytest.mark.parametrize(
    "schedule",
    ["bind(a1, vector)", "split(a1, 16) -> a2, a3; bind(a3, vector)"],
)
def test_a_loop_of_one_iteration_does_not_end_a_stretch(schedule: str) -> None:
    """Rows of 16 elements follow one another, with one vector a row or a loop over one vector."""
    with lm.using(device="cpu", schedule=schedule, search=0):
        planned = lm.jit(lambda x: x + 1.0).lower(lm.TensorSpec((64, 16))).planned
    (plan,) = planned.plans.values()
    assert isinstance(plan.nest, Nest)
    traffic = Traffic(plan.nest, walk(plan.nest), RATES, 1, frozenset(), around=inf)
    assert {lines.stretch for lines in traffic.lines} == {64 * 16 * 4}
