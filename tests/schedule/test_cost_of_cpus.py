"""What the cost model counts of instructions that CPUs have: masks, words of bytes, scalars."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import pytest

import lamina as lm
from lamina import backends, pipeline
from lamina.core.dtypes import DType, bool_, float32, float64, int8, int32, int64
from lamina.ir.monoids import Monoid
from lamina.ir.ops import Op
from lamina.loops.nest import Nest
from lamina.schedule.cost import predict
from lamina.schedule.cost.body import Access, Work
from lamina.schedule.cost.conditions import MASK, MASK_OF_ALL
from lamina.schedule.cost.operations import demand_of, operations_of
from lamina.schedule.cost.walk import walk
from tests.schedule.machines import RATES, TARGET, rates_of, target_of


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same device and rates on every machine."""
    for module in (pipeline, backends):
        monkeypatch.setattr(module, "target_of", target_of)
    monkeypatch.setattr(pipeline, "rates_of", rates_of)


def scheduled(
    function: Callable[..., object], *specs: lm.TensorSpec, schedule: str = ""
) -> tuple[Nest, str]:
    """The nest of a function of one kernel, and the text of that."""
    with lm.using(device="cpu", schedule=schedule, search=0):
        lowered = lm.jit(function).lower(*specs)
    (plan,) = lowered.planned.plans.values()
    assert isinstance(plan.nest, Nest)
    (kernel,) = lowered.kernels
    return plan.nest, kernel.source


def loads_of(nest: Nest) -> list[Access]:
    accesses = [access for loop in walk(nest).every() for access in loop.accesses]
    return [access for access in accesses if not access.is_store]


def work_of(nest: Nest) -> list[Work]:
    return [work for loop in walk(nest).every() for work in loop.work]


@pytest.mark.parametrize(("shape", "reads"), [((3, 64, 64), 1), ((64, 64, 3), 3)])
def test_masks_of_lanes_are_found_on_integers(shape: tuple[int, int, int], reads: int) -> None:
    """Lanes that are 3 elements apart are picked of 3 vectors."""

    def pool(x: lm.Tensor) -> lm.Tensor:
        images = x if shape[0] == 3 else lm.permute_dims(x, (2, 0, 1))
        return lm.avg_pool2d(images.reshape((1, 3, 64, 64)), 3, stride=1, padding=1)

    nest, text = scheduled(pool, lm.TensorSpec(shape))
    assert len(re.findall(r"\bmasked_", text)) > 0
    (load,) = loads_of(nest)
    assert (load.lanes, load.copies % reads) == (16, 0)
    tests = [work for work in work_of(nest) if work.dtype is bool_]
    assert tests
    assert {work.lanes for work in tests} == {1}


def test_masks_are_found_where_their_indices_change() -> None:
    """Whether a row is padding is asked once for it, and each vector is asked for its columns."""
    nest, text = scheduled(lambda x: lm.pad(x, ((2, 0), (3, 0))) * 2.0, lm.TensorSpec((64, 1000)))
    assert "masked_" in text
    tests = [work for work in work_of(nest) if work.op is Op.AND and work.lanes == 1]
    of_row, of_vector = sorted(tests, key=lambda work: work.times * work.copies)
    assert of_row.times == 66
    assert of_vector.times >= 66 * 1003 / 16
    assert of_row.copies == MASK_OF_ALL
    assert of_vector.copies % MASK == 0


@pytest.mark.parametrize("columns", [64, 120])
def test_words_of_four_rows_of_bytes_are_four_vectors(columns: int) -> None:
    def product(x: lm.Tensor, y: lm.Tensor) -> lm.Tensor:
        return x.cast(int32) @ y.cast(int32)

    schedule = (
        "split(a2, 4) -> a3, a4; split(a1, 16) -> a5, a6; reorder(a0, a5, a3, a6, a4)\n"
        "bind(a6, vector); bind(a4, dot)"
    )
    specs = lm.TensorSpec((17, 64), lm.uint8), lm.TensorSpec((64, columns), int8)
    nest, text = scheduled(product, *specs, schedule=schedule)
    assert text.count("in_turns_16(") >= 1
    columns_read = [load for load in loads_of(nest) if load.parameter == 1]
    assert [(load.lanes, load.copies) for load in columns_read] == [(16, 4)]


@pytest.mark.parametrize(
    ("dtype", "lanes", "unit"),
    [(int64, 1, "scalar"), (bool_, 1, "scalar"), (int32, 16, "simple"), (float32, 1, "simple")],
)
def test_single_integers_have_units_of_their_own(dtype: DType, lanes: int, unit: str) -> None:
    demand = demand_of(Work(Op.ADD, dtype, 10.0, lanes, 2), 64, RATES)
    assert {"scalar": demand.scalar, "simple": demand.simple} == {
        "scalar": 0.0, "simple": 0.0, unit: 20.0,
    }  # fmt: skip


def test_their_rate_shortens_what_tests_conditions() -> None:
    nest, _ = scheduled(lambda x: lm.pad(x, ((3, 4), (1, 2))) * 2.0, lm.TensorSpec((61, 5)))
    fast = replace(RATES, scalar=4 * RATES.scalar)
    assert predict(nest, TARGET, fast).seconds < predict(nest, TARGET, RATES).seconds


def test_divisions_of_float64_and_roots_take_longer() -> None:
    def divisions(op: Op, dtype: DType) -> float:
        return demand_of(Work(op, dtype, 1.0, 64 // dtype.itemsize, 1), 64, RATES).divide

    order = [(Op.DIV, float32), (Op.SQRT, float32), (Op.DIV, float64), (Op.SQRT, float64)]
    assert sorted(order, key=lambda each: divisions(*each)) == order
    assert divisions(Op.DIV, float32) == 1


def test_a_maximum_with_a_constant_is_an_instruction() -> None:
    work = Work(Op.MAX, float32, 1.0, 16, 1)
    assert demand_of(replace(work, by_constant=True), 64, RATES).simple == 1
    assert demand_of(work, 64, RATES).simple > 1


def test_sums_in_several_loops_overlap_as_sums_of_as_many_steps() -> None:
    """Of 5 x 5 elements three are under way at a time, as of 25; of 5 elements 16."""

    def chain(*shape: int) -> float:
        axes = tuple(range(1, len(shape)))
        nest, _ = scheduled(
            lambda x: x.sum(axis=axes), lm.TensorSpec(shape), schedule="reorder(a0)"
        )
        return predict(nest, TARGET, RATES).demands["chain"]

    assert chain(8192, 5, 5) == pytest.approx(chain(8192, 25))
    assert chain(8192, 25) > 10 * chain(8192, 5)


def test_short_vectors_take_the_time_that_is_measured_of_them() -> None:
    rates = replace(RATES, narrow=0.5)

    def instructions(lanes: int, dtype: DType) -> float:
        return demand_of(Work(Op.ADD, dtype, 1.0, lanes, 1), 64, rates).simple

    assert [instructions(lanes, float32) for lanes in (32, 16, 8, 1)] == [2, 1, 0.5, 0.5]
    assert instructions(8, float64) == 1
    assert instructions(16, bool_) == 1  # a mask of 16 lanes of float32


def test_elementary_functions_take_the_time_that_is_measured_of_them() -> None:
    rates = replace(RATES, functions={"EXP float32": 17.0, "EXP float64": 29.0})

    def instructions(op: Op, dtype: DType) -> float:
        return demand_of(Work(op, dtype, 1.0, 64 // dtype.itemsize, 1), 64, rates).simple

    assert instructions(Op.EXP, float32) == 17
    assert instructions(Op.EXP, float64) == 29
    assert instructions(Op.SIN, float32) == Op.SIN.value.instructions


@pytest.mark.parametrize(("shape", "operations"), [((64, 1000), 7), ((429824,), 14)])
def test_an_argmax_takes_the_operations_of_its_monoid(
    shape: tuple[int, ...], operations: int
) -> None:
    """A long row has parts, whose places begin anywhere, so that they are compared too."""
    with lm.using(device="cpu", search=0):
        lowered = lm.jit(lambda x: lm.argmax(x, axis=-1)).lower(lm.TensorSpec(shape))
    nest = next(iter(lowered.planned.plans.values())).nest
    assert isinstance(nest, Nest)
    steps = [work.op for work in work_of(nest) if isinstance(work.op, Monoid) and work.lanes > 1]
    assert {len(operations_of(step)) for step in steps} == {operations}


def test_keys_of_long_rows_take_longer_where_memory_is_further() -> None:
    """Entries of 200,000 keys are longer than the second level."""

    def memory(length: int) -> float:
        with lm.using(device="cpu", search=0):
            lowered = lm.jit(lambda x: lm.argsort(x)).lower(lm.TensorSpec((length,)))
        costs = lowered.program_cost().kernels
        (sort,) = (cost for name, cost in costs.items() if name.startswith("sort"))
        return sort.demands["memory"] / length

    assert memory(200_000) > 1.5 * memory(2_000)


def test_rows_of_few_keys_are_compared_with_each_other() -> None:
    def sort(length: int, dtype: DType) -> float:
        with lm.using(device="cpu", search=0):
            lowered = lm.jit(lambda x: lm.argsort(x)).lower(lm.TensorSpec((64, length), dtype))
        costs = lowered.program_cost().kernels
        return next(cost.demands["sort"] for name, cost in costs.items() if name.startswith("sort"))

    assert sort(100, float32) < sort(100, float64)  # twice as many vectors
    assert sort(136, float32) > 1.3 * sort(120, float32)  # which counts bytes
