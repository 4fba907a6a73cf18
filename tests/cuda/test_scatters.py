"""Scatters as text for a GPU: who adds the updates, and where the results are meanwhile."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from lamina.core import dtypes
from lamina.core.dtypes import DType
from lamina.core.options import using
from lamina.core.target import CUDA
from lamina.errors import FormatError
from lamina.graph import index as ix
from lamina.ir import build
from lamina.ir.interpreter import evaluate
from lamina.ir.monoids import ADD, MAX, MIN, Monoid
from lamina.ir.node import Node, toposort
from lamina.ir.ops import Op, Scatter
from lamina.loops.nest import Nest, scatter_places
from lamina.runtime.nvrtc import compile_source
from lamina.runtime.source import KERNELS
from lamina.schedule.gpu import scatters as gpu_scatters
from lamina.schedule.gpu.atoms import RESERVED_BYTES
from tests import scatters
from tests.cuda.fibers import run_in_fibers
from tests.cuda.test_compile import ARCHITECTURES, compiled
from tests.generators import leaf


@pytest.mark.parametrize(("columns", "alike"), [(768, True), (50, False)])
def test_the_lanes_of_a_warp_scatter_alike(columns: int, alike: bool) -> None:
    """Of so few updates of so many places that they are added in their order."""
    table, places = leaf(0, (50_000, columns), dtypes.float64), leaf(1, (200, 1), dtypes.int64)
    where, new = build.expand(places, (200, columns)), leaf(2, (200, columns), dtypes.float64)
    planned = compiled(Node(Op.SCATTER, (table, where, new), Scatter(0, ADD)))
    assert [plan.name.startswith("scatter") for plan in planned.plans.values()].count(True) == 1
    assert ("EACH_HIT(" in planned.text.partition(KERNELS)[2]) is alike


@pytest.mark.usefixtures("nvrtc")
@pytest.mark.parametrize(("monoid", "name"), [(ADD, "sum"), (MAX, "max"), (MIN, "min")])
@pytest.mark.parametrize("dtype", [dtypes.int32, dtypes.int64])
@pytest.mark.parametrize(("places", "memory"), [(100, "shared"), (2_000_000, "atomic")])
def test_integers_are_scattered_by_atomic_operations(
    monoid: Monoid, name: str, dtype: DType, places: int, memory: str
) -> None:
    """In the memory of blocks, where these have room for all places of a row."""
    index = leaf(1, (5000, 60), dtypes.int64)
    operands = leaf(0, (places, 60), dtype), index, leaf(2, (5000, 60), dtype)
    text = compiled(Node(Op.SCATTER, operands, Scatter(0, monoid))).text.partition(KERNELS)[2]
    assert ("PRIVATE(" in text) is (memory == "shared")
    assert f"{memory}_{name}(&" in text
    whole = compiled(Node(Op.SCATTER, operands, Scatter(0, monoid))).text
    for arch in ARCHITECTURES:
        assert compile_source(whole, arch)


@pytest.mark.usefixtures("nvrtc")
@pytest.mark.parametrize(
    ("shape", "axis", "blocks"),
    [
        ((416, 8192), 0, 1),
        ((905, 2147), 0, 1),  # the last block has fewer columns
        ((48, 30_000), 1, 2),  # two blocks have the places of a row
    ],
)
def test_float32_is_added_in_memory_of_blocks(
    shape: tuple[int, int], axis: int, blocks: int
) -> None:
    base, updates = leaf(0, shape, dtypes.float32), leaf(2, shape, dtypes.float32)
    operands = base, leaf(1, shape, dtypes.int64), updates
    planned = compiled(Node(Op.SCATTER, operands, Scatter(axis, ADD)))
    (nest,) = [plan.nest for plan in planned.plans.values() if plan.name.startswith("scatter")]
    assert isinstance(nest, Nest)
    assert nest.private is not None
    assert nest.axis(nest.private.block).arg.size == blocks
    (launch,) = [each for each in planned.launches if each.name.startswith("scatter")]
    assert 0 < launch.shared <= CUDA["sm_90a"].shared_bytes - RESERVED_BYTES
    assert compile_source(planned.text, "sm_90a")


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.int32, dtypes.int64])
@pytest.mark.parametrize("columns", [2, 6])
@pytest.mark.parametrize("places", [4, scatters.TARGETS])  # of a block: one of several, or the row
@pytest.mark.parametrize("are_known", [False, True])
def test_windows_that_overlap_are_added_in_memory_of_blocks(
    dtype: DType,
    columns: int,
    places: int,
    are_known: bool,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """The place of an update is the start of its window and its number there."""
    monkeypatch.setattr(gpu_scatters, "_in_another_way", lambda node, target: None)
    node = scatters.windows(columns, dtype, are_known=are_known)
    name = f"scatter1_{columns}x{scatters.WINDOWS}x{scatters.WIDTH}"
    moves = f"privatize({places}) -> a3; reorder(a0, a3); bind(a2, thread)"
    with using(schedule=f"[{name}]; {moves}; bind(a0, grid); bind(a3, grid)"):
        planned = compiled(node)
    assert "combine_results<" in planned.text.partition(KERNELS)[2]
    sample = scatters.sample(scatters.Case(node, "", False))
    leaves = sorted(sample.inputs, key=lambda each: each.arg.storage)
    inputs = [np.frombuffer(sample.inputs[each], each.dtype.numpy) for each in leaves]
    (got,) = run_in_fibers(planned, inputs, tmp_path)
    (wanted,) = sample.results
    np.testing.assert_array_equal(got, wanted.reshape(-1))


@pytest.mark.parametrize("places", [30_000, 65_536])
def test_updates_of_blocks_are_read_without_their_index(places: int) -> None:
    """But what the index says where to read has a condition."""
    shape = (128, places)
    table, index = leaf(3, shape, dtypes.float32), leaf(1, shape, dtypes.int64)
    updates = leaf(2, shape, dtypes.float32) * Node(Op.GATHER, (table, index), 1)
    operands = leaf(0, shape, dtypes.float32), index, updates
    planned = compiled(Node(Op.SCATTER, operands, Scatter(1, ADD)))
    (nest,) = [plan.nest for plan in planned.plans.values() if plan.name.startswith("scatter")]
    assert isinstance(nest, Nest)
    assert nest.private is not None
    (store,) = nest.kernel.stores
    loads = [one for one in toposort([store.value]) if one.op is Op.LOAD]
    has_condition = {
        any(term.op is not Op.AXIS for term in ix.terms_of(load.src[0])[0]): len(load.src) > 1
        for load in loads
        if load.dtype is dtypes.float32
    }
    assert has_condition == {False: False, True: True}


def test_updates_of_blocks_keep_the_conditions_of_padding() -> None:
    """Padding behind a part of an array is 0, and not what lies there in memory."""
    array = leaf(2, (416, 9000), dtypes.int32)
    part = build.sliced(array, (range(208), range(9000)))
    updates = build.pad(part, (0, 0), (0, 40))
    operands = leaf(0, (300, 9040), dtypes.int32), leaf(1, (208, 9040), dtypes.int64), updates
    planned = compiled(Node(Op.SCATTER, operands, Scatter(0, ADD)))
    (nest,) = [plan.nest for plan in planned.plans.values() if plan.name.startswith("scatter")]
    assert isinstance(nest, Nest)
    assert nest.private is not None
    (load,) = [
        node for node in toposort([nest.kernel.stores[0].value])
        if node.op is Op.LOAD and node.dtype is dtypes.int32
    ]  # fmt: skip
    assert len(load.src) == 2


@pytest.mark.usefixtures("nvrtc")
def test_float16_is_added_by_one_exponent() -> None:
    """Updates are gone through once, in half as many blocks as those of float32 take."""
    shape = (48, 119_988)
    base, updates = (build.cast(leaf(at, shape, dtypes.float16), dtypes.float32) for at in (0, 2))
    operands = base, leaf(1, shape, dtypes.int64), updates
    planned = compiled(Node(Op.SCATTER, operands, Scatter(1, ADD)))
    text = planned.text.partition(KERNELS)[2]
    assert "MARKED_SUMS(" in text
    assert "exponent_of(" not in text
    assert "atomic_sum(" not in text
    (launch,) = [each for each in planned.launches if each.name.startswith("scatter")]
    assert launch.blocks == 48 * 5
    assert 0 < launch.shared <= CUDA["sm_90a"].shared_bytes - RESERVED_BYTES
    assert compile_source(planned.text, "sm_90a")


@pytest.mark.parametrize(
    ("dtype", "places", "is_turned"),
    [
        (dtypes.float32, 14_847, True),  # a block has room for one column, an eighth of a sector
        (dtypes.int64, 14_847, False),  # whose updates are gone through once
        (dtypes.float32, 3000, False),  # for 6 columns
    ],
)
def test_long_columns_are_copied_as_rows(dtype: DType, places: int, is_turned: bool) -> None:
    shape = (places, 433)
    operands = leaf(0, shape, dtype), leaf(1, shape, dtypes.int64), leaf(2, shape, dtype)
    planned = compiled(Node(Op.SCATTER, operands, Scatter(0, ADD)))
    (nest,) = [plan.nest for plan in planned.plans.values() if plan.name.startswith("scatter")]
    assert isinstance(nest, Nest)
    (place,) = scatter_places(nest.kernel)
    assert (place.stride == 1) is is_turned


@pytest.mark.usefixtures("nvrtc")
@pytest.mark.parametrize(
    ("updates", "columns", "in_order"),
    [
        (5000, 60, False),
        (10, 60, True),  # few updates: more kernels take longer
        (4000, 768, True),  # lanes ask for many at once, and there are many results
    ],
)
def test_float32_is_added_as_integers_where_that_takes_less_time(
    updates: int, columns: int, in_order: bool
) -> None:
    table, places = leaf(0, (50_000, columns), dtypes.float32), leaf(1, (updates, 1), dtypes.int64)
    where = build.expand(places, (updates, columns))
    new = leaf(2, (updates, columns), dtypes.float32)
    text = compiled(Node(Op.SCATTER, (table, where, new), Scatter(0, ADD))).text
    assert ("atomic_sum(&p" not in text) is in_order
    assert compile_source(text, "sm_90a")


@pytest.mark.usefixtures("nvrtc")
@pytest.mark.parametrize("name", scatters.CASES_OF_CUDA)
def test_lanes_ask_in_one_loop(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where scatters of so few places were no reductions."""
    monkeypatch.setattr(gpu_scatters, "scatter_of_sums", lambda node: None)
    case = scatters.CASES_OF_CUDA[name]
    with using(schedule=case.schedule):
        text = compiled(case.scatter).text
    assert text.partition(KERNELS)[2].count("EACH_HIT(") == case.asks
    assert compile_source(text, "sm_90a")


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64])
@pytest.mark.parametrize("count", [2, 5, 16, 37, 64])
def test_few_updates_are_sent_to_memory_in_their_order(
    dtype: DType, count: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Several updates have one place, whose sum depends on their order; others have none."""
    monkeypatch.setattr(gpu_scatters, "_in_another_way", lambda node, target: None)
    places, columns = 50_000, 70
    table, where = leaf(0, (places, columns), dtype), leaf(1, (count, 1), dtypes.int64)
    shape = (count, columns)
    operands = table, build.expand(where, shape), leaf(2, shape, dtype)
    node = Node(Op.SCATTER, operands, Scatter(0, ADD))
    planned = compiled(node)
    text = planned.text.partition(KERNELS)[2]
    assert text.count("send_sum(") == (count if count <= 32 else 16 + count % 16)
    random = np.random.default_rng(count)
    index = random.choice([-1, 3, 3, 7, places - 1, places], (count, 1))
    scales = 10.0 ** random.integers(-6, 7, shape)
    inputs = [
        random.standard_normal((places, columns)).astype(dtype.numpy),
        index,
        (random.standard_normal(shape) * scales).astype(dtype.numpy),
    ]
    (got,) = run_in_fibers(planned, inputs, tmp_path)
    (wanted,) = evaluate([node], dict(zip((table, where, operands[2]), inputs, strict=True)))
    np.testing.assert_array_equal(got, wanted.reshape(-1))


@pytest.mark.usefixtures("nvrtc")
@pytest.mark.parametrize(("columns", "count"), [(768, 4000), (70, 40)])
def test_updates_of_16_bits_are_sent_as_float32(columns: int, count: int) -> None:
    """Also where lanes ask for many."""
    where = leaf(1, (count, 1), dtypes.int64)
    shape = (count, columns)
    updates = build.cast(leaf(2, shape, dtypes.bfloat16), dtypes.float32)
    table = leaf(0, (50_000, columns), dtypes.float32)
    operands = table, build.expand(where, shape), updates
    planned = compiled(Node(Op.SCATTER, operands, Scatter(0, ADD)))
    assert "send_sum(&" in planned.text.partition(KERNELS)[2]
    assert compile_source(planned.text, "sm_90a")


def test_updates_of_two_loops_are_not_unrolled_with_a_remainder(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The last elements of all windows would be added after the first ones of the next window."""
    monkeypatch.setattr(gpu_scatters, "_in_another_way", lambda node, target: None)
    node = scatters.windows(128, dtypes.float64)
    name = f"scatter1_128x{scatters.WINDOWS}x{scatters.WIDTH}"
    moves = "split(a2, 4) -> a3, a4; bind(a4, unroll); bind(a0, grid)"
    message = "a3, a4 run in order, and are bound to serial, unroll"
    with using(schedule=f"[{name}]; {moves}"), pytest.raises(FormatError, match=message):
        compiled(node)


def test_updates_at_places_apart_are_not_sent() -> None:
    """Each of 8,192 columns has indices of its own, so that neighbours add in different sectors."""
    shape = (416, 8192)
    operands = leaf(0, shape, dtypes.float32), leaf(1, shape, dtypes.int64)
    node = Node(Op.SCATTER, (*operands, leaf(2, shape, dtypes.float32)), Scatter(0, ADD))
    assert "send_sum(&" not in compiled(node).text.partition(KERNELS)[2]
