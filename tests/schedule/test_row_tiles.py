"""Rows that read elements in common, in register tiles of a GPU's threads."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

import lamina as lm
from lamina import Tensor
from lamina.core.recent import forget
from lamina.frontend.lowered import Lowered
from lamina.schedule.gpu import loops
from lamina.schedule.gpu.planner import GpuPlanner

SIZE = 4096


def by_vector(weights: Tensor, x: Tensor) -> Tensor:
    return (weights.cast(lm.float32) * x).sum(1)


def scores(queries: Tensor, keys: Tensor) -> Tensor:
    """Of the heads of queries that share each head of keys."""
    return (queries[:, :, None] * keys[:, None]).sum(-1)


def lowered(function: Callable[..., Tensor], *specs: lm.TensorSpec) -> Lowered:
    return lm.jit(function).lower(*specs, device="cuda:0", arch="sm_90a")


def of_matrix(rows: int = SIZE) -> Lowered:
    return lowered(by_vector, lm.TensorSpec((rows, SIZE), lm.bfloat16), lm.TensorSpec((SIZE,)))


def of_heads() -> Lowered:
    return lowered(scores, lm.TensorSpec((8, 4, 128)), lm.TensorSpec((8, 1024, 128)))


def test_a_vector_is_read_once_for_the_rows_of_a_thread() -> None:
    (kernel,) = of_matrix().kernels
    matrix, vector = (len(re.findall(rf"= p{number}\[", kernel.source)) for number in (0, 1))
    assert matrix >= 2 * vector > 0


def test_a_key_is_read_once_for_all_heads_that_share_it() -> None:
    (kernel,) = of_heads().kernels
    queries, keys = (len(re.findall(rf"= p{number}\[", kernel.source)) for number in (0, 1))
    assert queries == 4 * keys


def of_places(places: int = 25) -> Lowered:
    """Updates of each row that are added at one of a few places."""
    return lowered(
        lambda x, index, new: lm.index_add(x, 1, index, new),
        lm.TensorSpec((1153, places)),
        lm.TensorSpec((2160,), lm.int64),
        lm.TensorSpec((1153, 2160)),
    )


@pytest.mark.parametrize(("places", "tiles"), [(7, (7,)), (25, (25,)), (37, (19, 18))])
def test_updates_are_read_once_for_many_places(places: int, tiles: tuple[int, ...]) -> None:
    """An update is loaded once for all places of a tile, each of which compares its index."""
    *_, kernel = of_places(places).kernels
    updates = len(re.findall(r"= p1\[", kernel.source))
    comparisons = len(re.findall(r"load_\d+ == ", kernel.source))
    assert len(tiles) * comparisons == sum(tiles) * updates > 0


def test_few_threads_exchange_many_sums() -> None:
    *_, kernel = of_places().kernels
    assert re.search(r"KERNEL\(64\b", kernel.source)


def test_rows_of_a_tile_that_are_long_have_a_long_block() -> None:
    """One in steps: a thread for each few accesses of a row would be more than a block has."""
    rows, vector = lm.TensorSpec((SIZE, 1 << 19), lm.bfloat16), lm.TensorSpec((1 << 19,))
    (kernel,) = lowered(by_vector, rows, vector).kernels
    assert "KERNEL(512)" in kernel.source
    assert "split(a1, 4096)" in kernel.schedule  # 512 threads with 8 neighbours


@pytest.mark.parametrize("program", [of_matrix, of_heads, of_places])
def test_tiles_are_taken_where_they_are_predicted_to_be_faster(
    program: Callable[[], Lowered], monkeypatch: pytest.MonkeyPatch
) -> None:
    with_tiles = sum(kernel.cost.seconds for kernel in program().kernels)
    monkeypatch.setattr(loops, "tiles_of_rows", lambda plan: [])
    forget()  # the schedules so far
    without = sum(kernel.cost.seconds for kernel in program().kernels)
    forget()
    assert with_tiles < without


def test_rows_that_leave_some_over_have_no_tiles() -> None:
    (kernel,) = of_matrix(rows=SIZE + 1).kernels
    matrix, vector = (len(re.findall(rf"= p{number}\[", kernel.source)) for number in (0, 1))
    assert matrix == vector


def test_tiles_that_are_predicted_to_take_longer_are_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def seconds(plan: GpuPlanner) -> float:
        return 1.0 + len(plan.register_tile)

    monkeypatch.setattr(loops, "_predicted", seconds)
    forget()
    (kernel,) = of_matrix().kernels
    forget()
    matrix, vector = (len(re.findall(rf"= p{number}\[", kernel.source)) for number in (0, 1))
    assert matrix == vector
