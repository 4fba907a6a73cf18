"""Row blocks: which kernels run so, and that they compute the same."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import lamina as lm
from lamina.core.options import current, using
from lamina.errors import FormatError
from lamina.frontend.execution import compile_sinks, run_compiled
from lamina.frontend.realize import cut
from lamina.fuse import row_block_limits, row_blocks
from lamina.fuse.program import Program
from lamina.fuse.row_block_members import RowBlocks
from lamina.graph import index as ix
from lamina.ir.kernel import AnyKernel, Kernel
from lamina.loops import nest as loop_nest
from lamina.loops.nest import Nest
from lamina.pipeline import compile_source
from lamina.runtime.buffer import Buffer
from tests.programs import disagreement, merged, random_program

RNG = np.random.default_rng(3)
# With these limits, small programs run in row blocks too.
SMALL = {
    "MIN_BYTES": 1,
    "ENOUGH_ROWS": 1,
    "MIN_BLOCK_ROWS": 1,
    "REREAD_LIMIT": 1 << 40,
    "MIN_PRODUCTS": 0,
    "MIN_PARALLEL": 1,
    "SLOWER_LIMIT": 1 << 40,
    "SLOWER_LIMIT_FOR_MEMORY": 1 << 40,
}


def tensor(*shape: int) -> lm.Tensor:
    return lm.Tensor(RNG.standard_normal(shape).astype(np.float32))


def program(*results: lm.Tensor) -> Program:
    nodes = tuple(cut([one.node for one in results], {}))
    return compile_sinks(nodes, current()).program


def carries(kernel: AnyKernel) -> bool:
    """Does memory add up what this kernel makes of one block after the other?"""
    return any(store.monoid for store in kernel.stores)


def names(found: Program) -> list[int]:
    return [len(one) for one in found.steps]


@pytest.mark.parametrize("causal", [False, True])
def test_weights_of_rows_never_exist_as_a_whole(causal: bool) -> None:
    query, key, value = (tensor(2, 2, 512, 32) for _ in range(3))
    result = lm.scaled_dot_product_attention(query, key, value, is_causal=causal)
    found = program(result)
    assert names(found).count(3) == (2 if causal else 1)  # of 512 rows, 256 see half of the keys
    assert found.arena < 4 * 2 * 2 * 512 * 512
    q, k, v = (one.numpy().astype(np.float64) for one in (query, key, value))
    scores = q @ np.swapaxes(k, -1, -2) / np.sqrt(32)
    if causal:
        scores = np.where(np.tri(512, dtype=bool), scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    np.testing.assert_allclose(result.numpy(), weights @ v, rtol=1e-4, atol=1e-5)


def test_memory_grows_with_the_length_alone() -> None:
    sizes = []
    for length in (1024, 4096):
        operands = (tensor(1, 2, length, 16) for _ in range(3))
        found = program(lm.scaled_dot_product_attention(*operands))
        sizes.append(found.arena + found.block)
    assert sizes[1] <= 4 * sizes[0] + (1 << 16)


@pytest.mark.parametrize("causal", [False, True])
def test_gradients_of_such_weights_are_summed_block_by_block(causal: bool) -> None:
    torch = pytest.importorskip("torch")
    arrays = [RNG.standard_normal((1, 4, 512, 16)).astype(np.float32) for _ in range(4)]
    query, key, value, slope = map(lm.Tensor, arrays)
    result = lm.scaled_dot_product_attention(query, key, value, is_causal=causal)
    found = [result, *lm.gradient(result, [query, key, value], slope)]
    assert program(*found).arena < 4 * 4 * 512 * 512
    assert any(carries(one.kernel) for one in program(*found).launches)
    lm.realize(*found)  # by this program, and not each by one of its own
    leaves = [torch.tensor(array, requires_grad=True) for array in arrays[:3]]
    right = torch.nn.functional.scaled_dot_product_attention(*leaves, is_causal=causal)
    wanted = [right.detach(), *torch.autograd.grad(right, leaves, torch.tensor(arrays[3]))]
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("causal", [False, True])
def test_a_block_of_all_rows_stores_their_sum(causal: bool) -> None:
    """128 rows are one block, whose sums are those of all rows: nothing is added to zeros."""
    torch = pytest.importorskip("torch")
    arrays = [RNG.standard_normal((1, 16, 128, 16)).astype(np.float32) for _ in range(4)]
    query, key, value, slope = map(lm.Tensor, arrays)
    result = lm.scaled_dot_product_attention(query, key, value, is_causal=causal)
    found = lm.gradient(result, [query, key, value], slope)
    made = program(*found)
    assert max(names(made)) > 3
    assert not any(carries(one.kernel) for one in made.launches)
    lm.realize(*found)
    leaves = [torch.tensor(array, requires_grad=True) for array in arrays[:3]]
    right = torch.nn.functional.scaled_dot_product_attention(*leaves, is_causal=causal)
    wanted = torch.autograd.grad(right, leaves, torch.tensor(arrays[3]))
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("causal", [False, True])
def test_weights_inside_a_net_are_computed_again_for_its_gradients(
    causal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch")
    arrays = [RNG.standard_normal((1, 4, 512, 16)).astype(np.float32) / 4 for _ in range(5)]

    def loss(functional: Any, *leaves: Any) -> Any:
        first = functional.scaled_dot_product_attention(*leaves[:3], is_causal=causal)
        second = functional.scaled_dot_product_attention(first, *leaves[3:], is_causal=causal)
        return (second * second).sum()

    leaves = [lm.Tensor(array) for array in arrays]
    found = lm.gradient(loss(lm, *leaves), leaves)
    plan = program(*found)
    sinks = cut([one.node for one in found], {})
    lm.realize(*found)  # by this program, and not each by one of its own
    monkeypatch.setattr(row_block_limits, "MIN_BYTES", 1 << 60)
    apart = compile_source(sinks, current()).program
    assert plan.arena < apart.arena / 2
    assert sum(carries(one.kernel) for one in plan.launches) >= 4
    others = [torch.tensor(array, requires_grad=True) for array in arrays]
    wanted = torch.autograd.grad(loss(torch.nn.functional, *others), others)
    for one, other in zip(found, wanted, strict=True):
        near = 2e-5 * float(other.abs().max())
        np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=0, atol=near)


@pytest.mark.parametrize("also", [False, True])
def test_a_sum_over_blocks_adds_to_what_was_added_before(
    also: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, small in SMALL.items():
        monkeypatch.setattr(row_block_limits, name, small)
    monkeypatch.setattr(row_block_limits, "CACHE_BYTES", 1 << 10)
    x, w, bias = tensor(3, 24, 8), tensor(8, 17), tensor(3, 17)
    rows = x @ w
    total = rows.sum(axis=1)
    results = [rows.softmax(-1) @ tensor(17, 4), total + bias, *([total] if also else [])]
    with using(check=True):
        assert any(carries(one.kernel) for one in program(*results).launches) is not also
        lm.realize(*results)
    wanted = (x.numpy() @ w.numpy()).sum(1)
    np.testing.assert_allclose(results[1].numpy(), wanted + bias.numpy(), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(total.numpy(), wanted, rtol=1e-4, atol=1e-4)


def test_a_kernel_is_copied_once_for_all_its_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """Row blocks compute the exponentials and the quotients again, of which the maximum needs all
    rows before: by one copy of the kernel that makes both."""
    for name, small in {**SMALL, "MIN_BYTES": 1 << 14}.items():
        monkeypatch.setattr(row_block_limits, name, small)
    grown: list[RowBlocks] = []
    grow = RowBlocks.grow

    def kept(blocks: RowBlocks, early: Any) -> None:
        grow(blocks, early)
        grown.append(blocks)

    monkeypatch.setattr(RowBlocks, "grow", kept)
    x, w = tensor(64, 8), tensor(8, 64)
    scores = x @ w
    exponentials = lm.exp(scores - scores.max(axis=1, keepdims=True))
    quotients = exponentials / exponentials.sum(axis=1, keepdims=True)
    top = (exponentials * quotients).sum(axis=0).max()
    result = (exponentials + quotients * top).sum(axis=1)
    assert names(program(result))[-1] == 3
    assert any(len(blocks.copy_of) == 2 for blocks in grown)
    for blocks in grown:
        originals = set(blocks.dataflow.maker_of.values())
        assert blocks.members - originals == set(blocks.copy_of.values())
    e = np.exp(x.numpy() @ w.numpy() - (x.numpy() @ w.numpy()).max(1, keepdims=True))
    q = e / e.sum(1, keepdims=True)
    np.testing.assert_allclose(result.numpy(), (e + q * (e * q).sum(0).max()).sum(1), rtol=1e-4)


@pytest.mark.parametrize("kind", ["the maximum first", "both at once", "both turned"])
def test_no_sum_over_blocks_is_added_up_where_the_maximum_of_all_is_needed(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, small in {**SMALL, "CACHE_BYTES": 1 << 10}.items():
        monkeypatch.setattr(row_block_limits, name, small)
    x, w, v = tensor(3, 24, 8), tensor(8, 17), tensor(17, 4)
    rows = x @ w
    expected_rows = x.numpy() @ w.numpy()
    if kind == "the maximum first":
        total = lm.exp(rows - rows.max(axis=1, keepdims=True)).sum(axis=1)
        expected = np.exp(expected_rows - expected_rows.max(1, keepdims=True)).sum(1)
    elif kind == "both at once":
        total = rows.sum(axis=1) + rows.max(axis=1)
        expected = expected_rows.sum(1) + expected_rows.max(1)
    else:
        total = lm.matrix_transpose(rows.sum(axis=1)) + lm.matrix_transpose(rows.max(axis=1))
        expected = (expected_rows.sum(1) + expected_rows.max(1)).T
    product = rows @ v
    lm.realize(product, total)
    np.testing.assert_allclose(total.numpy(), expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(product.numpy(), expected_rows @ v.numpy(), rtol=1e-4, atol=1e-4)


def test_what_reads_a_sum_over_blocks_runs_after_all_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, small in {**SMALL, "CACHE_BYTES": 1}.items():
        monkeypatch.setattr(row_block_limits, name, small)
    x, scores = tensor(3, 8, 3), tensor(3, 8, 8)
    weights, turned = lm.exp(scores), np.exp(scores.numpy()).swapaxes(1, 2)
    found = weights @ x + lm.matrix_transpose(weights) @ x
    wanted = turned.swapaxes(1, 2) @ x.numpy() + turned @ x.numpy()
    np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-4, atol=1e-4)


def test_no_row_blocks_wait_for_their_own_last_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, small in {**SMALL, "CACHE_BYTES": 1 << 10}.items():
        monkeypatch.setattr(row_block_limits, name, small)
    x, w, v = tensor(3, 24, 8), tensor(8, 17), tensor(17, 4)
    rows = x @ w
    first = rows @ v
    total = lm.cumulative_sum(first, axis=1)[:, -1]  # between two readers of `rows`
    second = rows @ (v * total.reshape((3, 1, 4)))
    lm.realize(second, first)
    expected_rows = x.numpy() @ w.numpy()
    expected_total = (expected_rows @ v.numpy()).sum(1)
    expected = expected_rows @ (v.numpy() * expected_total[:, None])
    np.testing.assert_allclose(second.numpy(), expected, rtol=1e-3, atol=1e-2)


def test_no_buffer_is_overwritten_before_what_row_blocks_read_of_it() -> None:
    w, k = (RNG.standard_normal((1024, 64)).astype(np.float32) / 8 for _ in range(2))
    weights, keys = lm.Tensor(w), lm.Tensor(k)
    new = lm.tanh(weights) + 1  # the last kernel of the step needs it, the first one the old value
    mixed = lm.softmax(weights @ lm.matrix_transpose(keys), axis=-1) @ new
    weights.assign(new)
    lm.realize(mixed, weights)
    e = np.exp(w @ k.T)
    want = np.tanh(w) + 1
    np.testing.assert_allclose(weights.numpy(), want, atol=1e-5)
    np.testing.assert_allclose(mixed.numpy(), e / e.sum(-1, keepdims=True) @ want, atol=1e-4)


def test_a_buffer_that_row_blocks_assign_is_read_before(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, small in {**SMALL, "CACHE_BYTES": 1 << 10}.items():
        monkeypatch.setattr(row_block_limits, name, small)
    x, w, v, buffer = tensor(3, 24, 8), tensor(8, 17), tensor(17, 4), tensor(3, 24, 4)
    before = buffer.numpy().copy()
    total = buffer.sum(axis=(0, 1))
    buffer.assign(lm.softmax(x @ w, axis=-1) @ v)
    lm.realize(buffer, total)
    np.testing.assert_allclose(total.numpy(), before.sum((0, 1)), rtol=1e-4, atol=1e-4)


def test_rows_in_pieces_are_numbered_by_no_block(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, small in {**SMALL, "CACHE_BYTES": 1}.items():
        monkeypatch.setattr(row_block_limits, name, small)
    x, w = tensor(5, 4, 6), tensor(6, 3)
    found = lm.softmax(lm.reshape(x[:, ::2], (10, 6)) @ w, axis=-1) @ w.T
    raised = np.exp(x.numpy()[:, ::2].reshape(10, 6) @ w.numpy())
    wanted = raised / raised.sum(-1, keepdims=True) @ w.numpy().T
    np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("columns", "causal"), [(16, False), (16, True), (128, False)])
def test_memory_of_gradients_grows_with_the_length_alone(columns: int, causal: bool) -> None:
    sizes = []
    for length in (2048, 4096):
        leaves = [tensor(1, 4, length, columns) for _ in range(4)]
        result = lm.scaled_dot_product_attention(*leaves[:3], is_causal=causal)
        nodes = [one.node for one in lm.gradient(result, leaves[:3], leaves[3])]
        sizes.append(compile_source(cut(nodes, {}), current()).program.arena)
    assert sizes[1] <= 2 * sizes[0] + (1 << 16)


def test_what_is_wanted_itself_stays_in_memory() -> None:
    a, b = tensor(512, 32), tensor(32, 512)
    scores = a @ b
    assert names(program(scores, lm.softmax(scores, axis=-1))) == [1, 1]


def test_small_arrays_and_large_operands_are_left_alone() -> None:
    small = lm.scaled_dot_product_attention(*(tensor(1, 64, 32) for _ in range(3)))
    assert max(names(program(small))) == 1
    x, first, second = tensor(512, 768), tensor(768, 2048), tensor(2048, 768)
    assert max(names(program((x @ first).relu() @ second))) == 1


def test_no_block_of_few_numbers_reads_whole_factors() -> None:
    # The products share their rows and their columns. Blocks numbered by both would be single rows.
    x, first, second = tensor(512, 512), tensor(512, 2048), tensor(512, 2048)
    assert names(program((x @ first) * (x @ second))) == [1, 1]
    shapes = lm.TensorSpec((4096, 128)), lm.TensorSpec((128, 1024)), lm.TensorSpec((128, 1024))
    lowered = lm.jit(lambda x, a, b: (x @ a) * (x @ b)).lower(*shapes, device="cpu")
    blocks = [kernel.name.partition("_")[2] for kernel in lowered.kernels]
    assert blocks == ["32x128x1024", "32x128x1024"]  # 32 blocks of 128 rows, and all columns


def test_checked_row_blocks_compare_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    one = tensor(1, 1, 512, 16)
    result = lm.scaled_dot_product_attention(one, one, one)
    monkeypatch.setattr(row_block_limits, "MIN_BYTES", 1 << 16)
    inputs: dict[Buffer, int] = {}
    nodes = tuple(cut([result.node], inputs))
    with using(check=True) as options:
        compiled = compile_sinks(nodes, options)
        assert names(compiled.program) == [3]
        run_compiled(compiled, list(inputs), options)


def test_row_blocks_that_are_predicted_to_be_slow_are_not_formed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A normalization reads whole rows, which lie apart in a block."""

    def layer(x: lm.Tensor, a: lm.Tensor, b: lm.Tensor) -> lm.Tensor:
        y = (x @ a).exp() @ b + x
        centred = y - y.mean(axis=-1, keepdims=True)
        return centred / ((centred * centred).mean(axis=-1, keepdims=True) + 1e-5).sqrt()

    shapes = lm.TensorSpec((8192, 128)), lm.TensorSpec((128, 256)), lm.TensorSpec((256, 128))

    def steps() -> list[int]:
        return names(lm.jit(layer).lower(*shapes, device="cpu").planned.program)

    assert steps() == [2, 1]
    monkeypatch.setattr(row_block_limits, "SLOWER_LIMIT", 1e9)
    assert steps() == [3]


def test_predictions_grow_with_the_number_of_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Row blocks of all layers, of all but the last, ... would take the square of their number."""
    monkeypatch.setattr(row_block_limits, "SLOWER_LIMIT", 0.0)
    asked = 0
    is_predicted_slower = row_blocks._Former._is_predicted_slower

    def counted(*arguments: Any) -> bool:
        nonlocal asked
        asked += len(arguments[1].members)
        return is_predicted_slower(*arguments)

    monkeypatch.setattr(row_blocks._Former, "_is_predicted_slower", counted)

    def predicted(layers: int) -> int:
        nonlocal asked
        asked = 0
        specs = lm.TensorSpec((2048, 256)), *[lm.TensorSpec((256, 256))] * layers

        def net(x: lm.Tensor, *weights: lm.Tensor) -> lm.Tensor:
            for weight in weights:
                x = (x @ weight).exp()
            return x

        lm.jit(net).lower(*specs, device="cpu")
        return asked

    assert predicted(32) < 2.5 * predicted(16)


def test_kernels_of_row_blocks_are_functions_of_their_own() -> None:
    """All in one function, they would have too few registers for their sums."""
    shapes = lm.TensorSpec((2048, 64)), lm.TensorSpec((64, 256)), lm.TensorSpec((256, 64))
    lowered = lm.jit(lambda x, a, b: (x @ a).exp() @ b).lower(*shapes, device="cpu")
    assert names(lowered.planned.program) == [2]
    (library,) = lowered.compile().values()
    assert all(kernel.name.encode() in library for kernel in lowered.kernels)


def test_what_the_next_kernel_of_a_block_reads_stays_in_caches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Vectors of rows that run in blocks do not go past the caches, however large the array is."""
    monkeypatch.setattr(loop_nest, "UNCACHED_STORES", 64)
    q, k, v = (lm.TensorSpec((1, 4, 2048, 64)) for _ in range(3))
    lowered = lm.jit(lm.scaled_dot_product_attention).lower(q, k, v, device="cpu")
    kernels = lowered.planned.plans
    assert any(kernel.blocks for kernel in kernels if isinstance(kernel, Kernel))
    assert "STREAM(" not in lowered.stages["print"]
    doubled = lm.jit(lambda x: x * 2).lower(q, device="cpu")
    assert "STREAM(" in doubled.stages["print"]


def test_rows_that_are_lanes_lie_side_by_side_in_scratch_memory() -> None:
    """The exponentials of a block of scores, which two passes over a row need."""
    shape = lm.TensorSpec((2, 512, 32))
    function = lm.jit(lambda q, k, v: lm.softmax(q @ k.transpose(-1, -2), axis=-1) @ v)
    attention = function.lower(shape, shape, shape, device="cpu")
    assert names(attention.planned.program) == [3]
    nests = [plan.nest for plan in attention.planned.plans.values()]
    fills = [(nest, fill) for nest in nests if isinstance(nest, Nest) for fill in nest.fills]
    assert fills
    for nest, fill in fills:
        strides, _ = ix.terms_of(fill.index)
        assert [strides[axis] for axis in fill.axes if nest.bound(axis) == "vector"] == [1]


def test_a_schedule_keeps_row_blocks() -> None:
    operands = [tensor(1, 2, 512, 32) for _ in range(3)]
    result = lm.scaled_dot_product_attention(*operands)
    with using(schedule="bind(a0, serial)"), pytest.raises(FormatError, match="row blocks"):
        result.numpy()


@pytest.mark.parametrize("number", range(4))
def test_random_programs_in_row_blocks(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, small in SMALL.items():
        monkeypatch.setattr(row_block_limits, name, small)
    monkeypatch.setattr(row_block_limits, "CACHE_BYTES", [1, 64, 1 << 10, 1 << 19][number])
    drawn = [random_program(random.Random(40 + 9 * number + i), 18, 1000 * i) for i in range(9)]
    with using(check=bool(number % 2)) as options:
        assert disagreement(merged(drawn), options) is None


def test_work_grows_with_the_number_of_steps_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every step reads a part of one array: looking at all steps from each of them would take the
    square of their number."""
    # More than a state has, less than all inputs have.
    monkeypatch.setattr(row_block_limits, "MIN_BYTES", 4096)
    looked_at = 0
    loops_along = RowBlocks._loops_along

    def counted(*arguments: Any) -> Any:
        nonlocal looked_at
        looked_at += 1
        return loops_along(*arguments)

    monkeypatch.setattr(RowBlocks, "_loops_along", counted)
    counts = []
    for length in (40, 80):
        looked_at = 0
        inputs = tensor(length, 8, 16) @ tensor(16, 16)
        weight, state = tensor(16, 16), tensor(8, 16)
        for step in range(length):
            state = (state @ weight + inputs[step]).tanh()
        program(state)
        counts.append(looked_at)
    assert counts[1] <= 3 * counts[0]


@pytest.mark.parametrize(("pieces", "forms"), [(1.0, True), (1e9, False)])
def test_blocks_of_few_channels_count_for_more(
    pieces: float, forms: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks of 16 of 192 channels, which images have last in memory, read pieces of 64 bytes."""
    monkeypatch.setattr(row_block_limits, "PIECES", pieces)

    def normed(y: Any) -> Any:
        centred = y - lm.mean(y, axis=(0, 2, 3), keepdims=True)
        variance = lm.mean(centred * centred, axis=(0, 2, 3), keepdims=True)
        return lm.hardtanh(centred / lm.sqrt(variance + 1e-5), 0.0, 6.0)

    def slopes(x: Any, expand: Any, each: Any, project: Any) -> Any:
        y = normed(lm.conv2d(x, expand))
        y = normed(lm.conv2d(y, each, padding=1, groups=each.shape[0]))
        y = normed(lm.conv2d(y, project)) + x
        return lm.gradient((y * y).sum(), [expand, each, project])

    shapes = ((8, 32, 28, 28), (192, 32, 1, 1), (192, 1, 3, 3), (32, 192, 1, 1))
    lowered = lm.jit(slopes).lower(*map(lm.TensorSpec, shapes), device="cpu")
    assert any(len(step) > 1 for step in lowered.planned.program.steps) == forms
