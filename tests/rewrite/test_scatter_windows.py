"""Scatters by known indices as windows, beside the scatter in the interpreter."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lamina as lm
from lamina.core.dtypes import DType, float32, float64, int32, int64, uint8
from lamina.core.target import DEFAULT_CUDA
from lamina.graph.scatter_runs import scatter_of_runs
from lamina.graph.scatter_windows import scatter_of_windows, windows_of
from lamina.ir import build
from lamina.ir.interpreter import evaluate
from lamina.ir.monoids import ADD, MAX, MUL, Monoid
from lamina.ir.node import Node, toposort
from lamina.ir.ops import Op, Scatter
from lamina.schedule.gpu.scatters import scatters
from tests.generators import leaf

IN_OTHER_WAYS = scatters(DEFAULT_CUDA)

ROWS = 3


def resized(count: int, ratio: float, offset: float = 0.0) -> Node:
    """``int((i + offset) * ratio)`` for i < count, as `lm.interpolate` takes elements."""
    place = build.cast(build.iota(count, int64), float32)
    return build.cast((place + offset) * ratio, int64)


def scatter(index: Node, places: int, dtype: DType, monoid: Monoid, axis: int) -> Node:
    """Updates of ROWS rows or columns at `index` along an axis."""
    (count,) = index.shape
    base, updates = ((ROWS, places), (ROWS, count)) if axis else ((places, ROWS), (count, ROWS))
    along = build.broadcast_in_dim(index, axis, updates)
    operands = leaf(0, base, dtype), along, leaf(1, updates, dtype)
    return Node(Op.SCATTER, operands, Scatter(axis, monoid))


def assert_same(node: Node, windows: Node) -> None:
    random = np.random.default_rng(0)
    base, _, updates = node.src
    values = {
        each: random.integers(-9, 10, each.shape).astype(each.dtype.numpy)
        for each in (base, updates)
    }
    before, after = evaluate([node, windows], values)
    np.testing.assert_array_equal(after, before)


@given(
    count=st.integers(1, 40), places=st.integers(1, 20), axis=st.integers(0, 1),
    ratio=st.floats(0.0, 4.0, width=32), offset=st.floats(-6.0, 6.0, width=32),
    dtype=st.sampled_from([float32, int32]), monoid=st.sampled_from([ADD, MAX, MUL]),
)  # fmt: skip
def test_windows_are_the_scatter(
    count: int, places: int, axis: int, ratio: float, offset: float, dtype: DType, monoid: Monoid
) -> None:
    """Also of updates that have no place, before the first one or behind the last."""
    node = scatter(resized(count, ratio, offset), places, dtype, monoid, axis)
    windows = scatter_of_windows(node)
    assert windows is not None
    assert Op.SCATTER not in {each.op for each in toposort([windows])}
    assert_same(node, windows)


@pytest.mark.parametrize(("count", "ratio", "longest"), [(6, 0.5, 2), (4, 1.75, 1), (7, 0.4, 3)])
def test_a_window_is_as_long_as_the_most_updates_of_a_place(
    count: int, ratio: float, longest: int
) -> None:
    windows = windows_of(scatter(resized(count, ratio), 7, float32, ADD, 1))
    assert windows is not None
    assert windows.longest == longest


@pytest.mark.parametrize(("count", "is_counted"), [(96, True), (9000, False)])
def test_many_updates_are_searched_for_where_windows_begin(count: int, is_counted: bool) -> None:
    """9000 updates and 4500 places are 40 million pairs, and 14 steps of a search."""
    node = scatter(resized(count, 0.5, 0.25), count // 2, float32, ADD, 1)
    windows = scatter_of_windows(node)
    assert windows is not None
    reductions = [each for each in toposort([windows]) if each.op is Op.REDUCE]
    sizes = [size for each in reductions for size in each.src[0].shape]
    assert (count in sizes) is is_counted
    assert_same(node, windows)


def test_a_place_beyond_int32_has_no_windows() -> None:
    index = build.iota(6, int64) * 2**40
    assert scatter_of_windows(scatter(index, 6, float32, ADD, 1)) is None


def test_a_negative_zero_that_nothing_is_added_to_stays_one() -> None:
    node = scatter(resized(4, 1.75), 7, float32, ADD, 1)
    windows = scatter_of_windows(node)
    assert windows is not None
    base, _, updates = node.src
    zeros = np.full(base.shape, -0.0, np.float32)
    (result,) = evaluate([windows], {base: zeros, updates: np.ones(updates.shape, np.float32)})
    assert np.signbit(result[:, 2]).all()  # the places are 0, 1, 3, 5


@given(
    count=st.integers(1, 40), places=st.integers(1, 20), axis=st.integers(0, 1),
    step=st.integers(-9, 9), first=st.integers(-5, 20), modulus=st.integers(1, 25),
    dtype=st.sampled_from([float32, int32]), monoid=st.sampled_from([ADD, MAX, MUL]),
)  # fmt: skip
def test_windows_of_an_index_that_does_not_ascend_are_the_scatter(
    count: int, places: int, axis: int, step: int, first: int, modulus: int, dtype: DType,
    monoid: Monoid,
) -> None:  # fmt: skip
    """``(first + step i) mod modulus - 2``: a fold, a shuffle, or one place for all."""
    along = build.iota(count, int64) * step + first
    index = Node(Op.MOD, (along, build.full((count,), modulus, int64))) + -2
    node = scatter(index, places, dtype, monoid, axis)
    windows = scatter_of_windows(node)
    assert windows is not None
    assert Op.SCATTER not in {each.op for each in toposort([windows])}
    assert_same(node, windows)


@pytest.mark.parametrize("is_reversed", [False, True])
def test_only_an_index_that_does_not_ascend_is_sorted(is_reversed: bool) -> None:
    index = build.iota(6, int64)
    if is_reversed:
        index = build.flip(index, (0,))
    windows = windows_of(scatter(index, 6, float32, ADD, 1))
    assert windows is not None
    assert windows.longest == 1
    assert (windows.order is not None) is is_reversed


def test_there_are_no_windows_if_data_decide_an_index_or_updates_replace() -> None:
    assert scatter_of_windows(scatter(leaf(2, (6,), int64), 6, float32, ADD, 1)) is None
    ascending = scatter(build.iota(6, int64), 6, float32, ADD, 1)
    replacing = Node(Op.SCATTER, ascending.src, Scatter(1, None))
    assert scatter_of_windows(ascending) is not None
    assert scatter_of_windows(replacing) is None


@pytest.mark.parametrize(("size", "count", "is_known"), [(3, 19, False), (3, 20, True)])
def test_an_index_that_depends_on_how_a_compiler_rounds_is_not_known(
    size: int, count: int, is_known: bool
) -> None:
    """Of 19 places of 3, ``(9 + 0.5) * (3 / 19) - 0.5`` is 1 if the product is rounded, and less
    as a fused multiply-add."""
    place = build.cast(build.iota(count, int64), float32)
    for index in (
        (place + 0.5) * (size / count) - 0.5,
        0.0 - (0.5 - (place + 0.5) * (size / count)),
    ):
        node = scatter(build.cast(index, int64), size, float32, ADD, 1)
        assert (scatter_of_windows(node) is not None) is is_known


@pytest.mark.parametrize("count", [4096, 800_000])
def test_a_gpu_adds_by_windows_where_their_index_is_known(count: int) -> None:
    known = scatter(resized(count, 0.5), count // 2, float32, ADD, 1)
    assert IN_OTHER_WAYS.apply(known) is scatter_of_windows(known)


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact", "bilinear", "bicubic"])
@pytest.mark.parametrize("sizes", [((7, 23), (4, 12)), ((7, 5), (16, 11))])
def test_derivatives_of_resizing_have_no_scatter(
    mode: str, sizes: tuple[tuple[int, int], tuple[int, int]]
) -> None:
    before, after = ((4, 100, *size) for size in sizes)

    def derivative(x: lm.Tensor, dy: lm.Tensor) -> object:
        return lm.gradient(lm.interpolate(x, sizes[1], mode=mode), [x], dy)

    specs = [lm.TensorSpec(shape, lm.float16) for shape in (before, after)]
    lowered = lm.jit(derivative).lower(*specs, device="cuda:0", arch="sm_90a")
    names = [kernel.name for kernel in lowered.kernels]
    assert not [name for name in names if name.startswith("scatter")]


def test_a_sum_of_float64_or_of_two_products_is_not_known() -> None:
    """Of 3 places of 1, ``(1 + 0.5) * (1 / 3) - 0.5`` is 0 if the product is rounded, and less as a
    fused multiply-add, which float64 has too."""
    place = build.cast(build.iota(3, int64), float64)
    twice = build.cast(place, float32)
    for index in ((place + 0.5) * (1 / 3) - 0.5, twice * 0.3 + twice * 0.7):
        assert scatter_of_windows(scatter(build.cast(index, int64), 3, float32, ADD, 1)) is None


@pytest.mark.parametrize("dtype", [int32, uint8])
def test_an_index_may_have_any_dtype_of_integers(dtype: DType) -> None:
    node = scatter(build.cast(build.iota(6, int64), dtype), 7, float32, ADD, 1)
    windows = scatter_of_windows(node)
    assert windows is not None
    assert_same(node, windows)


def test_an_index_may_be_one_number() -> None:
    """``x[[3, 3, ...]]``, whose index is a number that repeats, without axes of its own."""
    vectors = leaf(0, (7,), float32), build.full((300,), 3, int64), leaf(1, (300,), float32)
    node = Node(Op.SCATTER, vectors, Scatter(0, ADD))
    windows = scatter_of_windows(node)
    assert windows is not None
    assert_same(node, windows)
    runs = scatter_of_runs(node)
    assert runs is not None
    assert_same(node, runs)
