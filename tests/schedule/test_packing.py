"""Which products pack an operand whose steps are neighbours in memory, and which are dot products
along these."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import lamina as lm
from lamina import Tensor, backends
from lamina.core.dtypes import DType, float32, int8, int16, int32
from lamina.core.target import cpu_target
from lamina.graph import index as ix
from lamina.loops.moves import Plan, Stage
from lamina.loops.nest import Nest

COLUMNS = 96
Epilogue = Callable[[Tensor], Tensor]


def product(x: Tensor, w: Tensor, epilogue: Epilogue | None) -> Tensor:
    y = x @ w.T
    return y if epilogue is None else epilogue(y)


def plan_of(rows: int, steps: int, epilogue: Epilogue | None, dtype: DType = float32) -> Plan:
    """The plan of x @ w.T and what follows."""
    x, w = (lm.TensorSpec((size, steps), dtype) for size in (rows, COLUMNS))
    lowered = lm.jit(lambda x, w: product(x, w, epilogue)).lower(x, w, device="cpu")
    ((_, plan),) = lowered.planned.plans.items()
    return plan


def is_packed(plan: Plan) -> bool:
    """Whether a panel is filled."""
    return any(isinstance(move, Stage) for move in plan.moves)


@pytest.mark.parametrize(
    ("rows", "steps", "epilogue", "packed"),
    [
        (22, 128, None, False),  # whole vectors, and nothing follows the sums
        (22, 131, None, True),  # three steps are left over for each sum
        (22, 128, lm.silu, True),  # of single elements after dot products
        (4, 4096, lm.silu, False),  # four rows use each of 4096 packed elements of a column
        (40, 128, None, True),
    ],
)
def test_what_dot_products_cost_beside_their_vectors(
    rows: int, steps: int, epilogue: Epilogue | None, *, packed: bool
) -> None:
    assert is_packed(plan_of(rows, steps, epilogue)) == packed


@pytest.mark.parametrize("rows", [7, 22, 80])
def test_sums_without_a_register_tile_are_dot_products(rows: int) -> None:
    plan = plan_of(rows, 131, None, int16)
    assert isinstance(plan.nest, Nest)
    assert not is_packed(plan)
    (vector,) = [axis for axis, bound in plan.nest.binding.items() if bound == "vector"]
    assert vector.arg.reduce


@pytest.mark.parametrize("rows", [15, 22, 40])
@pytest.mark.parametrize("steps", [37, 128, 131])
def test_products_with_what_follows(rows: int, steps: int) -> None:
    random = np.random.default_rng(rows * steps)
    x, w = (random.standard_normal((size, steps), dtype=np.float32) for size in (rows, COLUMNS))
    ours = lm.jit(lambda x, w: product(x, w, lm.silu))(Tensor(x), Tensor(w)).numpy()
    y = x.astype(np.float64) @ w.T
    np.testing.assert_allclose(ours, y / (1 + np.exp(-y)), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("steps", [12288, 20480])
def test_products_of_few_columns_are_packed_however_long(steps: int) -> None:
    """Panels of all steps for 32 of 64 columns fit in scratch memory up to 16384 steps; of more
    steps, blocks are packed."""
    random = np.random.default_rng(steps)
    x, w = (random.standard_normal((size, steps), dtype=np.float32) for size in (72, 64))
    multiply = lm.jit(lambda x, w: x @ w.T)
    *_, plan = multiply.lower(Tensor(x), Tensor(w), device="cpu").planned.plans.values()
    assert is_packed(plan)
    y = x.astype(np.float64) @ w.T
    np.testing.assert_allclose(multiply(Tensor(x), Tensor(w)).numpy(), y, rtol=1e-3, atol=1e-2)


@pytest.mark.parametrize(
    ("rows", "columns", "packed"),
    [
        (300, 500, True),  # rows of 2000 bytes begin at any place of a line
        (300, 480, False),
        (300, 512, True),  # half a page
        (64, 500, False),  # each packed element is read by few rows
    ],
)
def test_rows_whose_lines_lie_badly_are_packed(
    rows: int, columns: int, *, packed: bool
) -> None:
    random = np.random.default_rng(columns)
    x = random.standard_normal((rows, 200), dtype=np.float32)
    w = random.standard_normal((200, columns), dtype=np.float32)
    function = lm.jit(lambda x, w: x @ w)
    lowered = function.lower(lm.TensorSpec(x.shape), lm.TensorSpec(w.shape), device="cpu")
    ((_, plan),) = lowered.planned.plans.items()
    assert is_packed(plan) == packed
    np.testing.assert_allclose(function(Tensor(x), Tensor(w)).numpy(), x @ w, atol=1e-3)


def product_of_bytes(x: Tensor, w: Tensor) -> Tensor:
    return x.cast(int32) @ w.cast(int32)


def plan_of_bytes(rows: int, steps: int, columns: int) -> Plan:
    """The plan of the product of two matrices of bytes."""
    x, w = lm.TensorSpec((rows, steps), int8), lm.TensorSpec((steps, columns), int8)
    lowered = lm.jit(product_of_bytes).lower(x, w, device="cpu")
    *_, plan = lowered.planned.plans.values()  # sums of rows may come first
    return plan


def bound_to(plan: Plan, how: str) -> list[int]:
    """The sizes of the axes that are bound so, outermost first."""
    nest = plan.nest
    assert isinstance(nest, Nest)
    return [axis.arg.size for axis in nest.order if nest.binding.get(axis) == how]


@pytest.mark.parametrize("columns", [4, 8, 12, 40])
def test_few_columns_of_bytes_are_words(columns: int) -> None:
    plan = plan_of_bytes(128, 512, columns)
    assert bound_to(plan, "dot") == [4]
    assert is_packed(plan)


@pytest.mark.parametrize(("columns", "shared"), [(24, [2, 1]), (96, [2, 3]), (64, [2])])
def test_an_odd_number_of_panels_is_shared_by_halves(
    columns: int, shared: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a CPU with a unit for products of bytes, which this one may lack."""
    target = cpu_target(vector_bytes=64, cores=2, engines=frozenset({"unsigned_by_signed"}))
    monkeypatch.setattr(backends, "target_of", lambda options: target)
    assert bound_to(plan_of_bytes(1321, 824, columns), "parallel") == shared


@pytest.mark.parametrize(
    ("cores", "columns", "shared"),
    [(2, 1152, [2, 9]), (2, 1024, [8]), (8, 512, [2, 4]), (8, 1024, [8])],
)
def test_halves_of_rows_leave_the_busiest_thread_less_to_do(
    cores: int, columns: int, shared: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    target = cpu_target(vector_bytes=64, cores=cores)
    monkeypatch.setattr(backends, "target_of", lambda options: target)
    shapes = lm.TensorSpec((1024, 384)), lm.TensorSpec((columns, 384))
    plan = plan_of_last(lambda x, w: x @ w.T, *shapes)
    assert bound_to(plan, "parallel") == shared


@pytest.mark.parametrize("images", [8, 3, 1])
def test_rows_along_several_axes_are_shared_by_halves(
    images: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Heads lie apart in memory, so that images and rows stay two axes. There are 3 panels of 64
    columns, for either half of the images, or of the rows of each where images are odd."""

    def projected(heads: Tensor, w: Tensor) -> Tensor:
        return heads.transpose(1, 2).reshape((images, 197, 192)) @ w.T

    random = np.random.default_rng(images)
    heads = random.standard_normal((images, 3, 197, 64), dtype=np.float32)
    w = random.standard_normal((192, 192), dtype=np.float32)
    target = cpu_target(vector_bytes=64, cores=2)
    with monkeypatch.context() as patch:
        patch.setattr(backends, "target_of", lambda options: target)
        lowered = lm.jit(projected).lower(Tensor(heads), Tensor(w), device="cpu")
    *_, plan = lowered.planned.plans.values()
    assert bound_to(plan, "parallel") == [2, 3]
    found = lm.jit(projected)(Tensor(heads), Tensor(w)).numpy()
    rows = heads.astype(np.float64).transpose(0, 2, 1, 3).reshape(images, 197, 192)
    np.testing.assert_allclose(found, rows @ w.T, atol=1e-3)


def test_rows_of_fewer_than_a_half_are_not_halved(monkeypatch: pytest.MonkeyPatch) -> None:
    """The axis of 15 rows has no half of 24, though all 63 x 15 rows are many."""
    target = cpu_target(vector_bytes=64, cores=2)
    monkeypatch.setattr(backends, "target_of", lambda options: target)
    shapes = lm.TensorSpec((63, 512, 15)), lm.TensorSpec((192, 512))
    plan = plan_of_last(lambda a, b: lm.einsum("akb,nk->abn", a, b), *shapes)
    assert bound_to(plan, "parallel") == [3]


@pytest.mark.parametrize("rows", [20, 70, 200])
@pytest.mark.parametrize("columns", [4, 12, 24])
def test_products_of_bytes_are_exact(rows: int, columns: int) -> None:
    random = np.random.default_rng(rows * columns)
    x, w = (random.integers(-128, 128, shape, np.int8) for shape in ((rows, 62), (62, columns)))
    ours = lm.jit(product_of_bytes)(Tensor(x), Tensor(w)).numpy()
    np.testing.assert_array_equal(ours, x.astype(np.int32) @ w.astype(np.int32))


def plan_of_last(function: Callable[..., Tensor], *arguments: lm.TensorSpec) -> Plan:
    """The plan of the last kernel of a program."""
    *_, plan = lm.jit(function).lower(*arguments, device="cpu").planned.plans.values()
    return plan


def test_one_of_two_factors_in_one_array_is_packed() -> None:
    """Queries and keys are columns of one projection: keys are packed, for all queries."""

    def scores(both: Tensor) -> Tensor:
        return both[:, :64] @ both[:, 64:].T

    plan = plan_of_last(scores, lm.TensorSpec((96, 128)))
    assert [str(move).startswith("stage") for move in plan.moves].count(True) == 1
    both = np.random.default_rng(0).standard_normal((96, 128), dtype=np.float32)
    ours = lm.jit(scores)(Tensor(both)).numpy()
    np.testing.assert_allclose(ours, both[:, :64] @ both[:, 64:].T, atol=1e-4)


@pytest.mark.parametrize(
    ("channels", "side", "splits"),
    [(64, 12, False), (512, 7, True)],  # weights that the second-level cache holds, or does not
)
def test_kept_weights_are_walked_in_blocks_that_a_cache_holds(
    channels: int, side: int, *, splits: bool
) -> None:
    random = np.random.default_rng(0)
    shape = (channels, channels, 3, 3)
    weights = Tensor(random.standard_normal(shape, dtype=np.float32) / channels)
    images = random.standard_normal((4, channels, side, side), dtype=np.float32)
    convolve = lm.jit(lambda x: lm.conv2d(x, weights, None, 1, 1))
    plan = [*convolve.lower(Tensor(images), device="cpu").planned.plans.values()][-1]
    nest = plan.nest
    assert isinstance(nest, Nest)
    outermost = nest.sub_loops(nest.order[0])
    assert (outermost.extent == channels and outermost.axes[0].arg.size > 1) == splits
    exact = lm.conv2d(Tensor(images).cast(lm.float64), weights.cast(lm.float64), None, 1, 1)
    found = convolve(Tensor(images)).numpy()
    np.testing.assert_allclose(found, exact.numpy(), atol=1e-5)


def scheduled(function: Callable[..., Tensor], *shapes: tuple[int, ...]) -> list[Nest]:
    """The nests of a function on a CPU, in the order of the program."""
    lowered = lm.jit(function).lower(*map(lm.TensorSpec, shapes), device="cpu")
    return [plan.nest for plan in lowered.planned.plans.values() if isinstance(plan.nest, Nest)]


def loop_sizes(nest: Nest, binding: str) -> list[int]:
    return [axis.arg.size for axis, bound in nest.binding.items() if bound == binding]


def test_filters_are_packed_where_images_have_no_neighbours_along_the_steps() -> None:
    """Of every second place of (14, 14), rows of 7: results lie apart along channels, and there are
    no dot products, as channels of an image do."""
    (nest,) = scheduled(lambda x, w: lm.conv2d(x, w, stride=2), (8, 64, 14, 14), (128, 64, 1, 1))
    assert 16 in loop_sizes(nest, "vector")


def test_places_of_a_filter_are_walked_inside_its_tiles() -> None:
    """The gradient of (64, 48, 3, 3) has vectors along 64: its 9 places share cache lines."""

    def slope(x: Tensor, w: Tensor) -> Tensor:
        return lm.gradient(lm.sum(lm.conv2d(x, w) ** 2), w)

    *_, nest = scheduled(slope, (4, 48, 9, 9), (64, 48, 3, 3))
    assert [axis.arg.size for axis in nest.row_loops[-2:]] == [3, 3]


@pytest.mark.parametrize(("side", "is_along_channels"), [(60, True), (64, False)])
def test_images_with_ragged_rows_have_vectors_along_channels(
    side: int, *, is_along_channels: bool
) -> None:
    """Rows of 60 are 3 vectors of 16 lanes, one of 8 and one of 4; 64 channels are 4 vectors."""
    *_, nest = scheduled(
        lambda x, w: lm.conv2d(x, w, padding=1), (2, 64, side, side), (64, 64, 3, 3)
    )
    (vector,) = [axis for axis, to in nest.binding.items() if to == "vector"]
    strides, _ = ix.terms_of(nest.kernel.stores[0].index)
    assert (strides[vector] == side * side) == is_along_channels


@pytest.mark.parametrize(("steps", "packed"), [(85, False), (86, True)])
def test_constants_that_leave_the_nearest_cache_are_packed_once(steps: int, packed: bool) -> None:
    """Their lanes are neighbours already: 85 x 96 elements fit in 32 KiB, and 86 x 96 do not."""
    random = np.random.default_rng(5)
    x = random.standard_normal((8, steps), dtype=np.float32)
    w = random.standard_normal((steps, COLUMNS), dtype=np.float32)
    weights = Tensor(w)
    function = lm.jit(lambda x: x @ weights)
    assert ("keep(%" in function.lower(Tensor(x)).stages["schedule"]) == packed
    np.testing.assert_allclose(function(Tensor(x)).numpy(), x @ w, atol=1e-4)


@pytest.mark.parametrize(
    ("side", "stride", "tile"),
    [
        (56, 2, [14, 2]),  # 28 rows: 2 tiles of 14 have more sums than 4 of 6 and one of 4
        (48, 2, [6, 4]),  # 24 rows: 2 tiles of 12, as many sums as in 4 of 6
        (448, 16, [6, 4]),  # 28 rows that share no cache lines
    ],
)
def test_rows_that_share_lines_have_the_tile_of_more_sums(
    side: int, stride: int, tile: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """128 filters of (3, 3) are two panels of 64 columns, whole tiles of 2 and of 4 vectors."""
    target = cpu_target(vector_bytes=64, cores=2)
    monkeypatch.setattr(backends, "target_of", lambda options: target)
    images, filters = (2, 16, side, side), (128, 16, 3, 3)
    *_, nest = scheduled(lambda x, w: lm.conv2d(x, w, None, stride, 1), images, filters)
    assert loop_sizes(nest, "unroll") == tile


@pytest.mark.parametrize(
    ("channels", "results", "packs"), [(3, 24, False), (64, 64, True)]
)
def test_factors_of_small_tiles_are_not_packed(channels: int, results: int, packs: bool) -> None:
    """The gradient of a filter for 3 channels has tiles of 3 x 3 places at most."""

    def gradient(images: Tensor, filters: Tensor, slope: Tensor) -> Tensor:
        convolved = lm.conv2d(images, filters, padding=1)
        return lm.gradient((convolved * slope).sum(), [filters])[0]

    shapes = [(7, channels, 32, 32), (results, channels, 3, 3), (7, results, 32, 32)]
    lowered = lm.jit(gradient).lower(*map(lm.TensorSpec, shapes), device="cpu")
    longest = max(lowered.kernels, key=lambda kernel: len(kernel.source))
    assert ("stage(" in longest.schedule) == packs
