"""Programs that once went wrong between the graph and the C compiler."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import lamina as lm
from lamina.backends import OF_GPUS
from lamina.explain.report import profile
from lamina.fuse.costs import MAX_STATEMENTS
from lamina.fuse.program import build_program
from lamina.fuse.target import FusionTarget
from lamina.graph.algebra import SIMPLIFY
from lamina.graph.rewrite import rewrite
from lamina.ir import build
from lamina.ir.kernel import Kernel, free_axes
from lamina.ir.monoids import ADD, MAX, MUL, Monoid
from lamina.ir.node import Node, toposort
from lamina.ir.ops import Group, Op, Reduce
from tests.codegen.running import leaf, run
from tests.programs import views_of


def _written_one_by_one(count: int) -> Node:
    """A vector whose elements are overwritten one after another by position."""
    x = leaf(np.zeros(count, np.float32))
    places = build.iota(count, x.dtype)
    for number in range(count):
        low, high = (build.full(x.shape, number + shift, x.dtype) for shift in (-0.5, 0.5))
        here = Node(Op.LT, (low, places)) & Node(Op.LT, (places, high))
        x = build.select(here, build.full(x.shape, 2.0 * number, x.dtype), x)
    return x


def test_long_chains_become_several_kernels() -> None:
    program = build_program([_written_one_by_one(300)], FusionTarget())
    assert len(program.launches) > 2
    for launch in program.launches:
        assert isinstance(launch.kernel, Kernel)
        nodes = toposort(store.value for store in launch.kernel.stores)
        assert sum(node.op in Group.ELEMENTWISE for node in nodes) <= MAX_STATEMENTS + 8


def test_values_of_long_chains() -> None:
    chain = _written_one_by_one(80)
    (got,), (wanted,) = run([chain]), run([chain], "interp")
    np.testing.assert_array_equal(got, wanted)
    np.testing.assert_array_equal(wanted, 2.0 * np.arange(80, dtype=np.float32))


@pytest.mark.usefixtures("on_cpu")
@pytest.mark.parametrize(
    ("shape", "stored"),
    [
        ((43691, 3), [64, 1]), ((64 * 700, 3), [64, 1]), ((400, 400), [400, 1]),
        ((7, 7, 2688), [64, 1]),
    ],
)
def test_parts_of_a_reduction_are_large(shape: tuple[int, ...], stored: list[int]) -> None:
    x = np.random.default_rng(5).standard_normal(shape).astype(np.float32)
    with profile() as records:
        found = lm.asarray(x).max().item()
    assert found == x.max()
    assert [int(record.name.split("_")[1]) for record in records] == stored


@pytest.mark.parametrize(("monoid", "wanted"), [(ADD, np.cumsum), (MUL, np.cumprod),
                                                (MAX, np.maximum.accumulate)])  # fmt: skip
@pytest.mark.parametrize(("shape", "axis"), [((1 << 17,), 0), ((3, 1 << 16), 1), ((1 << 16, 2), 0)])
def test_long_running_values_are_taken_in_parts(
    monoid: Monoid, wanted: Callable[..., np.ndarray], shape: tuple[int, ...], axis: int
) -> None:
    x = np.random.default_rng(3).integers(-(2**62), 2**62, shape)
    scan = Node(Op.SCAN, (leaf(x),), Reduce(monoid, (axis,)))
    program = build_program(rewrite([scan], SIMPLIFY), FusionTarget())
    assert len(program.launches) >= 3  # sums of parts, those before each, and then all
    assert sum(view.size >= x.size for view in views_of(program)) == 2  # nothing passes by twice
    (got,) = run([scan])
    np.testing.assert_array_equal(got, wanted(x, axis=axis))


@pytest.mark.parametrize(
    ("device", "kernels"), [(FusionTarget(), 3), (OF_GPUS, 2)]
)
def test_running_values_along_two_axes_share_no_kernel(device: FusionTarget, kernels: int) -> None:
    x = leaf(np.random.default_rng(4).standard_normal((40, 50)).astype(np.float32))
    down, along = (Node(Op.SCAN, (x,), Reduce(ADD, (axis,))) for axis in (0, 1))
    wanted = Node(Op.MAX, (down + along, x))
    assert len(build_program([wanted], device).launches) == kernels
    np.testing.assert_allclose(*run([wanted]), *run([wanted], "interp"), rtol=1e-5, atol=1e-5)


def test_running_values_that_are_wanted_themselves_are_stored() -> None:
    x = np.random.default_rng(4).standard_normal((40, 50)).astype(np.float32)
    total = Node(Op.SCAN, (leaf(x),), Reduce(ADD, (1,)))
    sinks = [total, build.reshape(total * total, (2000,)), build.reduce(ADD, (1,), total)]
    for got, wanted in zip(run(sinks), run(sinks, "interp"), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)


def test_rows_that_change_forget_how_the_old_ones_were_split() -> None:
    x = np.random.default_rng(7).integers(0, 9, (3, 2, 4, 8)).astype(np.float32)
    wanted = x.transpose(1, 0, 2, 3).reshape(6, 4, 8) + 1
    whole = lm.asarray(x).permute_dims((1, 0, 2, 3)).reshape((6, 4, 8)) + 1
    total = whole.sum(axis=(0, 2))
    lm.realize(whole, total)
    np.testing.assert_array_equal(whole.numpy(), wanted)
    np.testing.assert_array_equal(total.numpy(), wanted.sum((0, 2)))


@pytest.mark.usefixtures("on_cpu")
@pytest.mark.parametrize("rows", [64, 500, 512])
def test_sums_down_columns_of_what_other_reductions_of_these_shift(rows: int) -> None:
    """Blocks of rows are added in memory only where a row needs nothing of later blocks."""
    x = np.random.default_rng(9).standard_normal((rows, 4096)).astype(np.float32)
    columns = lm.asarray(x)
    squares = lm.sum((columns - lm.mean(columns, axis=0)) ** 2, axis=0)
    exponentials = lm.sum(lm.exp(columns - lm.max(columns, axis=0)), axis=0)
    wide = x.astype(np.float64)
    np.testing.assert_allclose(squares.numpy(), ((wide - wide.mean(0)) ** 2).sum(0), rtol=1e-5)
    np.testing.assert_allclose(exponentials.numpy(), np.exp(wide - wide.max(0)).sum(0), rtol=1e-5)


def test_a_condition_on_columns_stays_outside_of_a_reduction_of_their_extent() -> None:
    x = leaf(np.random.default_rng(6).standard_normal((20, 8)).astype(np.float32))
    total = build.reshape(build.reduce(ADD, (1,), x), (20, 1))
    part = build.pad(build.expand(total, (20, 5)), (0, 1), (0, 2))
    (launch,) = build_program([part + x], FusionTarget()).launches
    assert isinstance(launch.kernel, Kernel)
    (reduction,) = (node for node in launch.kernel.nodes if node.op is Op.LOOP_REDUCE)
    assert free_axes(reduction) == {*launch.kernel.row_axes}  # it is computed once a row
    (got,), (wanted,) = run([part + x]), run([part + x], "interp")
    np.testing.assert_allclose(got, wanted, rtol=1e-5)


@pytest.mark.parametrize(("size", "filters"), [(2, 2), (3, 3)])
def test_the_derivative_of_a_convolution_whose_channels_are_as_many_as_its_stride(
    size: int, filters: int
) -> None:
    rng = np.random.default_rng(7)
    x, w = rng.standard_normal((1, 1, size)), rng.standard_normal((filters, 1, 1))
    results = []
    for device in ("cpu", "interp"):
        tensors = [lm.Tensor(one.astype(np.float32), device=device) for one in (x, w)]
        loss = (lm.conv1d(*tensors, stride=filters) ** 2).sum()
        results.append([one.numpy() for one in lm.gradient(loss, tensors)])
    for got, wanted in zip(*results, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-5)


@pytest.mark.parametrize("shape", [(12,), (300,), (5, 40)])
def test_what_a_later_pass_reads_is_not_overwritten_before(shape: tuple[int, ...]) -> None:
    state = lm.asarray(np.random.default_rng(1).standard_normal(shape).astype(np.float32))
    old = state.numpy().astype(float)
    state.assign(state * 0.5 + 1.0)
    size = lm.sum(state * state)
    lm.realize(state, size)
    new = old * 0.5 + 1.0
    np.testing.assert_allclose(state.numpy(), new, 1e-5)
    np.testing.assert_allclose(size.numpy(), (new * new).sum(), 1e-5)


@pytest.mark.parametrize(("size", "depth"), [(4, (4,)), (17, (17,)), (17, (2, 5))])
def test_a_reduction_in_a_loop_over_columns_has_no_lanes_beside_theirs(
    size: int, depth: tuple[int, ...]
) -> None:
    rng = np.random.default_rng(8)
    x, parts = rng.standard_normal((size, size)), rng.standard_normal((size, size, *depth))
    rows, blocks = (lm.asarray(one.astype(np.float32)) for one in (x, parts))
    axes, part = tuple(range(2, 2 + len(depth))), (..., slice(4))
    sums = lm.sum(blocks[part], axis=axes).T
    found = rows * rows - lm.mean(rows * rows, axis=1, keepdims=True) + sums
    wanted = x * x - np.mean(x * x, axis=1, keepdims=True) + parts[part].sum(axes).T
    np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-4, atol=1e-4)


def test_an_index_that_is_reduced_has_a_place_in_every_vector() -> None:
    x = np.random.default_rng(8).standard_normal((17, 13))

    def at_most(rows: lm.Tensor) -> lm.Tensor:
        padded = lm.pad(rows, [(1, 0), (1, 1)])
        places = lm.argmax(padded, axis=0, keepdims=True)
        return lm.sum(lm.sin(lm.take_along_axis(padded, places, axis=0)))

    wanted = np.where((x == x.max(0)) & (x > 0.0), np.cos(x), 0.0)
    np.testing.assert_allclose(lm.grad(at_most)(x).numpy(), wanted, rtol=1e-12)


@pytest.mark.usefixtures("on_cpu")
def test_many_arrays_are_joined_a_few_at_a_time() -> None:
    arrays = [lm.asarray(np.full(3, number, np.float32)) for number in range(1000)]
    with profile() as records:
        whole = lm.concat(arrays).numpy()
    np.testing.assert_array_equal(whole, np.repeat(np.arange(1000, dtype=np.float32), 3))
    assert len({record.name for record in records}) == 3  # equal ones are one


@pytest.mark.usefixtures("on_cpu")
def test_a_product_joins_no_kernel_that_would_compute_it_along_its_columns() -> None:
    rng = np.random.default_rng(9)
    x, a, b = rng.standard_normal((3, 8, 8))
    rows, left, right = (lm.asarray(one.astype(np.float32)) for one in (x, a, b))
    with profile() as records:
        found = rows * rows - lm.mean(rows * rows, axis=1, keepdims=True) + (left @ right.T).T
        wanted = x * x - np.mean(x * x, axis=1, keepdims=True) + (a @ b.T).T
        np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-4, atol=1e-4)
    assert len(records) == 2


def test_rows_along_which_no_operand_of_a_product_varies_are_no_rows_of_its_tile() -> None:
    rng = np.random.default_rng(10)
    x, w = rng.standard_normal((3, 1, 17)), rng.standard_normal((17, 17))
    rows, weights = (lm.asarray(one.astype(np.float32)) for one in (x, w))
    found = lm.broadcast_to(rows, (3, 33, 17)) @ weights
    wanted = np.broadcast_to(x, (3, 33, 17)) @ w
    np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-4, atol=1e-4)


def test_powers_with_exponents_beyond_those_of_int64() -> None:
    base, exponent = np.array([3, 5, 2], np.uint64), np.array([2**63 + 1, 2**64 - 1, 7], np.uint64)
    found = lm.pow(lm.asarray(base), lm.asarray(exponent)).numpy()
    np.testing.assert_array_equal(found, base**exponent)


@pytest.mark.parametrize("dtype", [np.int8, np.int64])
def test_negative_powers_of_integers_agree_with_the_interpreter(dtype: type) -> None:
    base, exponent = (one.reshape(-1) for one in np.meshgrid(*[np.arange(-4, 5, dtype=dtype)] * 2))
    found = [lm.pow(lm.asarray(base, device=at), lm.asarray(exponent, device=at)).numpy()
             for at in ("cpu", "interp")]  # fmt: skip
    np.testing.assert_array_equal(*found)


def test_lanes_are_as_wide_as_what_is_computed_between_load_and_store() -> None:
    x = np.random.default_rng(5).standard_normal(1000).astype(np.float32)
    found = lm.relu(lm.asarray(x).cast(lm.float64)).cast(lm.float32)
    np.testing.assert_array_equal(found.numpy(), np.maximum(x, 0))


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("function", ["sin", "cos", "exp", "tanh"])
def test_what_is_joined_is_computed_before_a_function_of_it(function: str, axis: int) -> None:
    array = np.random.default_rng(0).standard_normal((33, 17, 1), dtype=np.float32)
    x = lm.asarray(array).realize()
    found = getattr(lm, function)(lm.concat([x, x * 2.0], axis=axis)).numpy()
    right = getattr(np, function)(np.concatenate([array, array * 2.0], axis=axis))
    np.testing.assert_allclose(found, right, rtol=1e-5, atol=1e-6)
