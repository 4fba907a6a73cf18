"""Rows that are reduced side by side: how many, and how far apart in memory."""

from __future__ import annotations

import re

import numpy as np
import pytest

import lamina as lm
from lamina import Tensor, backends, pipeline
from lamina.core.dtypes import int8
from lamina.fuse import values
from lamina.graph import index as ix
from lamina.ir.kernel import free_axes
from lamina.ir.node import Node
from lamina.ir.ops import Op
from lamina.loops.nest import Nest
from tests.schedule.machines import target_of

PAGE = 4096


def nest_of(rows: int, nbytes: int) -> Nest:
    """The nest of sums along `rows` rows of so many bytes."""
    function = lm.jit(lambda x: x.cast(lm.float32).sum(axis=1))
    lowered = function.lower(lm.TensorSpec((rows, nbytes), int8), device="cpu")
    ((_, plan),) = lowered.planned.plans.items()
    assert isinstance(plan.nest, Nest)
    return plan.nest


def distance(nest: Nest) -> int:
    """Bytes between the rows that are reduced side by side."""
    (axis,) = [one for one, to in nest.binding.items() if to == "unroll" and not one.arg.reduce]
    loads: list[Node] = [one for one in nest.kernel.of(Op.LOAD) if axis in free_axes(one)]
    return min(abs(ix.terms_of(load.src[0])[0][axis]) for load in loads)


@pytest.mark.parametrize("nbytes", [64, 300, 576, 2048, 4095])
def test_short_rows_lie_a_page_apart(nbytes: int) -> None:
    assert distance(nest_of(4096, nbytes)) >= PAGE


@pytest.mark.parametrize(("rows", "nbytes"), [(4096, 4096), (4096, 5000), (4094, 576)])
def test_others_are_neighbours(rows: int, nbytes: int) -> None:
    assert distance(nest_of(rows, nbytes)) == nbytes


def test_rows_side_by_side_have_results_that_are_neighbours() -> None:
    """Of 72 images, whose keys lie apart, and 64 keys of each, the keys are side by side."""
    heads, width = 24, 16
    scores = lm.jit(lambda queries, keys: lm.einsum("bihd,bjhd->bhij", queries, keys))
    specs = (lm.TensorSpec((72, count, heads, width)) for count in (1, 64))
    ((_, plan),) = scores.lower(*specs, device="cpu").planned.plans.items()
    assert isinstance(plan.nest, Nest)
    assert distance(plan.nest) == 4 * heads * width


@pytest.mark.parametrize(("rows", "side_by_side"), [(63, False), (64, True), (4096, True)])
def test_short_rows_of_several_passes_are_side_by_side(rows: int, side_by_side: bool) -> None:
    """From as many rows on as eight blocks of 8 have."""
    lowered = lm.jit(lm.softmax).lower(lm.TensorSpec((rows, 32)), device="cpu")
    ((_, plan),) = lowered.planned.plans.items()
    assert isinstance(plan.nest, Nest)
    assert ("unroll" in plan.nest.binding.values()) is side_by_side


@pytest.mark.parametrize("rows", [64, 192, 200, 4096, 4097])
@pytest.mark.parametrize("columns", [32, 96, 576])
def test_products_of_signed_bytes_with_a_scale_for_each_block(rows: int, columns: int) -> None:
    random = np.random.default_rng(rows + columns)
    numbers = random.integers(-128, 128, (rows, columns), np.int8)
    scales = random.standard_normal((rows, columns // 32)).astype(np.float32)
    x = random.standard_normal(columns).astype(np.float32)

    @lm.jit
    def product(data: Tensor, scales: Tensor, x: Tensor) -> Tensor:
        weights = data.bitcast(int8).cast(lm.float32).reshape((rows, -1, 32))
        return (weights * scales.unsqueeze(-1) * x.reshape((-1, 32))).sum(axis=(1, 2))

    ours = product(Tensor(numbers.view(np.uint8)), Tensor(scales), Tensor(x)).numpy()
    weights = numbers.reshape(rows, -1, 32) * scales[..., None].astype(np.float64)
    terms = weights.reshape(rows, -1) * x
    error = np.abs(ours - terms.sum(axis=1)).max()
    assert error <= 1e-6 * np.abs(terms).sum(axis=1).max()


@pytest.mark.parametrize(("rows", "outer"), [(1024, 1), (4096, 0)])
def test_the_larger_part_of_a_factor_says_which_tiles_are_the_outer_loop(
    rows: int, outer: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The factor of the scalars is read once for all tiles of columns where no cache keeps it: that
    of 4096 x 64 elements, 1 MiB, where the second-level cache has as many bytes, though its scales
    are few."""
    for module in (pipeline, backends):
        monkeypatch.setattr(module, "target_of", target_of)
    monkeypatch.setattr(values, "MIN_COLUMNS_OF_STORED", 1 << 20)  # the factor stays in the product
    function = lm.jit(lambda x, scales, weights: (x * scales) @ weights)
    specs = [lm.TensorSpec(shape) for shape in ((rows, 64), (rows, 1), (64, 80))]
    (kernel,) = function.lower(*specs, device="cpu").kernels
    (order,) = re.findall(r"reorder\((\w+)", kernel.schedule)
    (split,) = re.findall(rf"split\(a(\d), \d+\) -> {order}, ", kernel.schedule)
    assert int(split) == outer


@pytest.mark.parametrize(("scales", "rows"), [(1, 8), (2, 4)])
def test_scales_and_sums_of_rows_have_half_of_the_registers(
    scales: int, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 32: a sum and a scale of 8 rows are 16, a sum and two scales of 4 rows are 12."""
    for module in (pipeline, backends):
        monkeypatch.setattr(module, "target_of", target_of)

    @lm.jit
    def product(data: Tensor, x: Tensor, *factors: Tensor) -> Tensor:
        weights = data.bitcast(int8).cast(lm.float32).reshape((64, 18, 32))
        weights = weights * factors[0].unsqueeze(-1)
        for each in factors[1:]:
            weights = weights + each.unsqueeze(-1)
        return (weights * x.reshape((18, 32))).sum(axis=(1, 2))

    specs = [lm.TensorSpec((64, 576), lm.uint8), lm.TensorSpec((576,))]
    specs += [lm.TensorSpec((64, 18))] * scales
    (plan,) = product.lower(*specs, device="cpu").planned.plans.values()
    assert isinstance(plan.nest, Nest)
    unrolled = [axis for axis, to in plan.nest.binding.items() if to == "unroll"]
    assert [axis.arg.size for axis in unrolled] == [rows]


@pytest.mark.parametrize("shape", [(5000, 3), (700, 2, 3), (50, 300)])
def test_a_short_reduced_axis_leaves_the_vectors_to_a_longer_one(shape: tuple[int, ...]) -> None:
    random = np.random.default_rng(3)
    x = random.standard_normal(shape, dtype=np.float32)
    w = random.standard_normal(shape[-1:], dtype=np.float32)
    function = lm.jit(lambda x, w: (lm.tanh(x) * w).max())
    arguments = Tensor(x), Tensor(w)
    ((_, plan),) = function.lower(*arguments, device="cpu").planned.plans.items()
    assert isinstance(plan.nest, Nest)
    (vector,) = [axis for axis, to in plan.nest.binding.items() if to == "vector"]
    assert vector.arg.size > 3
    np.testing.assert_allclose(function(*arguments).numpy(), (np.tanh(x) * w).max(), rtol=1e-6)


@pytest.mark.parametrize(("columns", "outer"), [(128, 1), (5000, 0)])
def test_long_rows_of_results_are_written_one_tile_after_the_other(
    columns: int, outer: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 300 x 5000 results, which no second-level cache of 1 MiB keeps; of 300 x 128 tiles of
    columns are the outer loop, whose part of the factor is read once."""
    for module in (pipeline, backends):
        monkeypatch.setattr(module, "target_of", target_of)
    function = lm.jit(lambda a, b: a @ b)
    specs = lm.TensorSpec((300, 20)), lm.TensorSpec((20, columns))
    (kernel,) = function.lower(*specs, device="cpu").kernels
    (order,) = re.findall(r"reorder\((\w+)", kernel.schedule)
    (split,) = re.findall(rf"split\(a(\d), \d+\) -> {order}, ", kernel.schedule)
    assert int(split) == outer
    random = np.random.default_rng(columns)
    a, b = random.standard_normal((300, 20)), random.standard_normal((20, columns))
    found = function(lm.asarray(a.astype(np.float32)), lm.asarray(b.astype(np.float32)))
    np.testing.assert_allclose(found.numpy(), a @ b, atol=1e-4)


def test_sums_by_a_one_hot_factor_have_a_register_tile(monkeypatch: pytest.MonkeyPatch) -> None:
    """The factor reads nothing along its rows."""
    for module in (pipeline, backends):
        monkeypatch.setattr(module, "target_of", target_of)
    random = np.random.default_rng(3)
    x = random.standard_normal((50, 70)).astype(np.float32)
    places = random.integers(0, 13, 50)

    @lm.jit
    def sums(places: Tensor, x: Tensor) -> Tensor:
        return lm.one_hot(places, 13).cast(lm.float32).T @ x

    inputs = lm.asarray(places).realize(), lm.asarray(x).realize()
    (kernel,) = sums.lower(*inputs, device="cpu").kernels
    assert kernel.schedule.count("unroll") == 2  # rows, and vectors of a row
    expected = np.zeros((13, 70))
    np.add.at(expected, places, x)
    np.testing.assert_allclose(sums(*inputs).numpy(), expected, atol=1e-5)


def test_a_row_that_is_unrolled_has_no_vectors() -> None:
    """The derivative of a convolution by its images has results of two kinds in turns along a row,
    which are unrolled, and short rows otherwise."""

    def derivative(images: Tensor, filters: Tensor, upstream: Tensor) -> Tensor:
        result = lm.conv2d(images, filters, None, stride=3, groups=4)
        (slope,) = lm.gradient(result, [images], upstream)
        return slope

    random = np.random.default_rng(0)
    shapes = (3, 32, 3, 8), (8, 8, 3, 3), (3, 8, 1, 2)
    images, filters, upstream = (random.integers(-3, 4, shape) for shape in shapes)
    tensors = [lm.asarray(one.astype(np.float32)) for one in (images, filters, upstream)]
    slope = lm.jit(derivative)(*tensors).numpy()
    expected = np.zeros(shapes[0])
    for group in range(4):
        channels, results = slice(8 * group, 8 * group + 8), slice(2 * group, 2 * group + 2)
        for place in range(2):
            window = np.einsum("nk,kcpq->ncpq", upstream[:, results, 0, place], filters[results])
            expected[:, channels, :, 3 * place : 3 * place + 3] += window
    np.testing.assert_array_equal(slope, expected)


def filter_gradient(images: Tensor, filters: Tensor, g: Tensor) -> Tensor:
    """That of a depthwise convolution."""
    result = lm.conv2d(images, filters, groups=images.shape[1])
    return lm.gradient(result, [filters], g)[0]


@pytest.mark.parametrize(
    ("window", "unrolled"), [((3, 3), {3}), ((1, 5), {5}), ((5, 7), {7}), ((2, 6), {6})]
)
def test_sums_of_a_window_are_side_by_side(window: tuple[int, int], unrolled: set[int]) -> None:
    """As many of a window as registers hold, whose rows read nearly the same elements."""
    (height, width), (images, channels) = window, (3, 10)
    random = np.random.default_rng(height)
    x = random.standard_normal((images, channels, 39 + height, 41 + width), dtype=np.float32)
    g = random.standard_normal((images, channels, 40, 42), dtype=np.float32)
    function = lm.jit(filter_gradient)
    shapes = (x.shape, (channels, 1, height, width), g.shape)
    lowered = function.lower(*map(lm.TensorSpec, shapes), device="cpu")
    nests = [plan.nest for plan in lowered.planned.plans.values() if isinstance(plan.nest, Nest)]
    of_windows = max(nests, key=lambda nest: sum(axis.arg.reduce for axis in nest.order))
    bound = of_windows.binding.items()
    rows = {axis.arg.size for axis, to in bound if to == "unroll" and not axis.arg.reduce}
    assert rows & unrolled

    filters = Tensor(np.zeros((channels, 1, height, width), np.float32))
    got = function(Tensor(x), filters, Tensor(g)).numpy()[:, 0]
    windows = np.lib.stride_tricks.sliding_window_view(x, (40, 42), (2, 3))
    want = np.einsum("ncijyx,ncyx->cij", windows, g, dtype=np.float64)
    np.testing.assert_allclose(got, want, atol=1e-3)
