"""The emulated GPU gives what the CPU gives: every operation and dtype, and whole programs."""

from __future__ import annotations

import contextlib
import itertools
import random
import re
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

import lamina as lm
from lamina import Tensor, nn, pipeline
from lamina.core import dtypes, options
from lamina.core.dtypes import DType
from lamina.errors import DTypeError
from lamina.frontend.realize import realize
from lamina.ir import build
from lamina.ir.interpreter import evaluate
from lamina.ir.kernel import points
from lamina.ir.node import Node, toposort
from lamina.ir.ops import Group, Op
from lamina.schedule.gpu import loops, parts, row_tiles
from lamina.schedule.gpu.planner import GpuPlanner
from tests import scans, scatters
from tests.compiled import TOLERANCE, Sample, compare
from tests.generators import leaf, special_values
from tests.programs import RandomProgram, disagreement, merged, random_program
from tests.sums import BOUND, SUMS, Sum, error, shorten_blocks

DTYPES = [one for one in dtypes.ALL if not one.is_complex and one is not dtypes.float64]
SIZE = 70
APART = {Op.WHERE, Op.CAST, Op.BITCAST, Op.COMPLEX, Op.REAL, Op.IMAG}


def values(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape, dtype=np.float32)


def every_operation(dtype: DType) -> list[Node]:
    """Each elementwise operation that takes `dtype`, and its casts to every dtype."""
    x, y, flags = leaf(0, (SIZE,), dtype), leaf(1, (SIZE,), dtype), leaf(2, (SIZE,), dtypes.bool_)
    found = [build.select(flags, x, y)]
    for op in sorted(Group.ELEMENTWISE - APART, key=lambda op: op.name):
        with contextlib.suppress(DTypeError):  # where it does not take this one
            other = y & 7 if op is Op.POW and dtype.kind == "int" else y  # NumPy's from 0 on
            found.append(Node(op, (x,) if op in Group.UNARY else (x, other)))
    found += [build.cast(x, to) for to in DTYPES]
    found += [build.bitcast(x, to) for to in DTYPES if to.bits == dtype.bits and to.kind != "bool"]
    return found


def inputs_for(sinks: list[Node], dtype: DType) -> dict[Node, bytes]:
    """Corner cases for each leaf; what a cast out of range gives is not defined, so no such."""
    rng, arrays = random.Random(dtype.name), {}
    for node in toposort(sinks):
        if node.op is Op.BUFFER:
            array = special_values(rng, node.shape, node.dtype)
            if node.dtype.is_float:
                array = np.array([rng.uniform(0, 8) for _ in range(SIZE)], node.dtype.numpy)
            arrays[node] = array.tobytes()
    return arrays


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_operation(dtype: DType) -> None:
    sinks = every_operation(dtype)
    assert {one.op for one in sinks} >= {Op.WHERE, Op.CAST, Op.BITCAST, Op.EQ} - (
        {Op.BITCAST} if dtype.kind == "bool" else set()
    )
    sample = sampled(sinks, inputs_for(sinks, dtype))
    assert compare([sample], "metal") == []


def sampled(sinks: list[Node], inputs: dict[Node, bytes]) -> Sample:
    """`sinks` with what the interpreter gives for them."""
    leaves = {one: np.frombuffer(data, one.dtype.numpy).reshape(one.shape)
              for one, data in inputs.items()}  # fmt: skip
    return Sample("", sinks, inputs, evaluate(sinks, leaves))


def without_doubles(first_seed: int, count: int) -> RandomProgram:
    """Random programs of consecutive seeds in dtypes that Metal has, as one."""
    found: list[RandomProgram] = []
    for seed in itertools.count(first_seed):
        one = random_program(random.Random(seed), 18, 1000 * len(found))
        if all(node.dtype is not dtypes.float64 for node in toposort(one.sinks)):
            found.append(one)
            if len(found) == count:
                return merged(found)
    raise AssertionError


@pytest.mark.parametrize("number", range(3))
def test_random_programs(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    shorten_blocks(monkeypatch, 2 + 3 * number)
    assert disagreement(without_doubles(50_000 + 200 * number, 16), options.current()) is None


def test_threads_share_running_values() -> None:
    assert compare([scans.sample()], "metal") == []


@pytest.mark.parametrize("name", scatters.CASES)
def test_lanes_ask_where_they_add(name: str) -> None:
    case = scatters.CASES[name]
    with options.using(schedule=case.schedule):
        assert compare([scatters.sample(case)], "metal") == []


@pytest.mark.parametrize("block", [4, 32])
@pytest.mark.parametrize("case", SUMS, ids=lambda case: case.__name__)
def test_long_sums(
    case: Callable[[float, int], Sum], block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Short blocks give short sums the loops that very long ones have."""
    shorten_blocks(monkeypatch, block)
    assert error(*case(0.1, 1 << 18)) <= BOUND


def test_running_sums_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    shorten_blocks(monkeypatch, 8)
    for shape, axis in (((300, 999), 0), ((3000, 40), 1), ((2, 4100), 1)):
        x = values(*shape)
        same(lm.cumulative_sum(Tensor(x), axis=axis), np.cumsum(x, axis, dtype=np.float64), 1e-5)


def test_arrays_of_many_blocks_and_ragged_ends() -> None:
    pairs = []
    for shape in ((1000, 33), (33, 1000), (7, 5, 300), (1 << 14,)):
        x = values(*shape)
        for axis in range(len(shape)):
            pairs.append((lm.sum(Tensor(x), axis=axis), x.sum(axis, dtype=np.float64)))
            pairs.append((lm.argmin(Tensor(x), axis=axis), x.argmin(axis)))
    realize(*(got for got, _ in pairs))  # in one program
    for got, want in pairs:
        same(got, want, 1e-3)


@pytest.mark.parametrize("columns", [9, 77, 100, 1000])
def test_columns_that_divide_into_no_strips(columns: int) -> None:
    x, start = values(300, columns), values(columns)
    mine, total = Tensor(x), Tensor(start).realize()
    total.assign(total * 2.0 + lm.sum(mine, axis=0))  # in place
    spread = lm.var(mine, axis=0)
    realize(total, spread)
    same(total, start * 2.0 + x.sum(0, dtype=np.float64), 1e-3)
    same(spread, x.var(0, dtype=np.float64), 1e-4)


def same(got: Tensor, want: np.ndarray, tolerance: float = 1e-5) -> None:
    assert got.device == "metal"
    np.testing.assert_allclose(got.numpy(), want, tolerance, tolerance)


def on_both(function: Callable[..., list[Tensor]], *arrays: np.ndarray) -> None:
    """`function` of tensors on the GPU agrees with the same on the CPU."""
    got = function(*(Tensor(one, device="metal") for one in arrays))
    with options.using(device="cpu"):
        want = function(*(Tensor(one, device="cpu") for one in arrays))
    for ours, theirs in zip(got, want, strict=True):
        same(ours, theirs.numpy(), TOLERANCE["float32"] * 5)


def test_movement() -> None:
    on_both(
        lambda x: [
            lm.flip(x.permute_dims((2, 0, 1)), axis=0).reshape(9, -1)[2::3, 1:-1],
            lm.roll(x, 5, axis=2).reshape(-1)[::-7],
            lm.concat([x, x[:, 1:] * 2.0], axis=1),
            lm.take(x, Tensor([2, 0, 2], device=x.device), axis=0),
        ],
        values(4, 5, 9),
    )


def test_products_forward_and_backward() -> None:
    def run(a: Tensor, b: Tensor) -> list[Tensor]:
        product = a @ b
        return [product, *lm.gradient((product * product).sum(), [a, b])]

    on_both(run, values(40, 70), values(70, 33))


@pytest.mark.parametrize("is_last", [False, True], ids=["first", "last"])
@pytest.mark.parametrize(
    ("window", "stride", "dilation", "groups"),
    [(5, 1, 1, 8), (3, 2, 1, 8), (3, 1, 2, 8), (3, 1, 1, 2), (2, 1, 1, 4)],
)
def test_windows_in_register_tiles(
    window: int, stride: int, dilation: int, groups: int, is_last: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Forward and backward, of sums in parts, with the largest tile there is, whatever is predicted
    of it. Sides of 11 and 13 are no multiples of those of tiles."""
    monkeypatch.setattr(loops, "_predicted", lambda plan: -points(plan.register_tile))
    monkeypatch.setattr(parts, "MIN_PRODUCTS_IN_PARTS", 1)

    def run(x: Tensor, w: Tensor) -> list[Tensor]:
        images = lm.permute_dims(x, (0, 3, 1, 2)) if is_last else x
        reach = dilation * (window // 2)
        y = lm.conv2d(images, w, None, stride, reach, dilation, groups)
        return [y, *lm.gradient((y * y).sum(), [x, w])]

    shape = (4, 11, 13, 8) if is_last else (4, 8, 11, 13)
    on_both(run, values(*shape), values(8, 8 // groups, window, window))


@pytest.mark.parametrize("is_last", [False, True], ids=["first", "last"])
def test_pooling_in_register_tiles(is_last: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loops, "_predicted", lambda plan: -points(plan.register_tile))

    def run(x: Tensor) -> list[Tensor]:
        images = lm.permute_dims(x, (0, 3, 1, 2)) if is_last else x
        y = lm.max_pool2d(images, 3, 2, 1) + lm.avg_pool2d(images, 3, 2, 1)
        return [y, *lm.gradient((y * y).sum(), [x])]

    on_both(run, values(2, 5, 14, 18))


@pytest.mark.parametrize("rows", [2, 4])
def test_register_tiles_of_rows(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a matrix and one vector, and of keys that several heads of queries share. Each `rows` has
    shapes of its own: a program that was planned before would be taken from the cache."""
    monkeypatch.setattr(row_tiles, "ROWS", (rows,))
    tiles: list[int] = []

    def predicted(plan: GpuPlanner) -> float:
        tiles.append(points(plan.register_tile))
        return -tiles[-1]

    monkeypatch.setattr(loops, "_predicted", predicted)
    columns = 700 + rows
    on_both(lambda w, x: [(w * x).sum(1) + w[:, 0]], values(72, columns), values(columns))
    width = 64 + rows
    queries, keys = values(3, 4, width), values(3, 40, width)
    on_both(lambda q, k: [(q[:, :, None] * k[:, None]).sum(-1)], queries, keys)
    assert rows in tiles


@pytest.mark.parametrize(
    ("places", "shape"), [(5, (6, 700)), (25, (6, 700)), (37, (6, 700)), (41, (5000, 60))]
)
def test_register_tiles_of_places(
    places: int, shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sums for each place of what goes there, all of which read the same elements: tiles of all
    places, or of about half of 37 and 41. Rows of 60 are several in a warp."""
    tiles: list[int] = []

    def predicted(plan: GpuPlanner) -> float:
        tiles.append(points(plan.register_tile))
        return -tiles[-1]

    monkeypatch.setattr(loops, "_predicted", predicted)

    def run(x: Tensor) -> list[Tensor]:
        numbers = lm.arange(3 * x.shape[1], device=x.device)[: x.shape[1]]
        goes_to = numbers * numbers % places
        at_place = goes_to[None, None] == lm.arange(places, device=x.device)[None, :, None]
        return [lm.where(at_place, x[:, None], 0.0).sum(-1)]

    on_both(run, values(*shape))
    assert {5: 5, 25: 25, 37: 19, 41: 21}[places] in tiles


def test_cross_entropy_forward_and_backward() -> None:
    def run(x: Tensor) -> list[Tensor]:
        labels = Tensor(np.arange(20) % 6, device=x.device)
        loss = lm.cross_entropy(x, labels)
        return [loss, lm.softmax(x), *lm.gradient(loss, [x])]

    on_both(run, values(20, 6))


@pytest.mark.parametrize("length", [1, 31, 32, 33, 1000, 4096, 5000, 50_257])
def test_rows_of_any_length(length: int) -> None:
    pairs = []
    for dtype in (np.float32, np.float16):
        x, weight = values(3, length).astype(dtype), values(length).astype(dtype)
        exact = x.astype(np.float64)
        shares = np.exp(exact - exact.max(1, keepdims=True))
        shares /= shares.sum(1, keepdims=True)
        from_mean = exact - exact.mean(1, keepdims=True)
        norm = from_mean / np.sqrt(exact.var(1, keepdims=True) + 1e-5) * weight
        mine = Tensor(x)
        pairs += [
            (lm.softmax(mine), shares),
            (lm.log_softmax(mine), np.log(shares)),
            (lm.layer_norm(mine, length, Tensor(weight)), norm),
            (lm.var(mine, axis=1), exact.var(1)),
            (lm.argmax(mine, axis=1), exact.argmax(1)),
        ]
    realize(*(got for got, _ in pairs))  # in one program
    for got, want in pairs:
        same(got, want, 1e-2 if got.dtype is dtypes.float16 else 1e-4)


@pytest.mark.parametrize("length", [2, 3, 5, 7, 9, 15, 16, 27, 32, 45, 64, 100, 256])
def test_many_short_rows(length: int) -> None:
    """Their number is no multiple of the rows of a block, or of those that a thread has."""
    exact = values(2, 1337, length).astype(np.float64)
    x, weight = exact.astype(np.float32), np.float32([1.5, -2.0]).reshape(2, 1, 1)
    mine = Tensor(x)
    shares = np.exp(exact - exact.max(2, keepdims=True))
    shares /= shares.sum(2, keepdims=True)
    pairs = [
        (lm.softmax(mine, axis=2) * Tensor(weight), shares * weight),
        (lm.softmax(mine.reshape(-1, length), axis=1), shares.reshape(-1, length)),
        (lm.cumsum(mine, axis=2), exact.cumsum(2)),
        (lm.cumprod(mine, axis=2) * Tensor(weight), exact.cumprod(2) * weight),
        (mine - lm.max(mine, axis=2, keepdims=True), exact - exact.max(2, keepdims=True)),
        (lm.sum(mine, axis=2), exact.sum(2)),
        (lm.argmax(mine, axis=2), exact.argmax(2)),
    ]
    realize(*(got for got, _ in pairs))  # in one program
    for got, want in pairs:
        same(got, want, 1e-4)


def test_the_branch_not_taken_leaks_no_nan() -> None:
    def run(x: Tensor) -> list[Tensor]:
        root = lm.where(x > 0.0, lm.sqrt(x), x * 0.0)
        return [root, *lm.gradient(root.sum(), [x])]

    on_both(run, values(50))


def test_attention() -> None:
    def run(q: Tensor, k: Tensor, v: Tensor) -> list[Tensor]:
        out = lm.scaled_dot_product_attention(q, k, v, is_causal=True)
        return [out, *lm.gradient((out * out).sum(), [q, k, v])]

    on_both(run, *(values(2, 2, 20, 8 + i)[..., :8] for i in range(3)))


@pytest.mark.parametrize(
    ("dtype", "length"),
    [*itertools.product((dtypes.float32, dtypes.int64), (1, 2, 64, 65, 700, 4096)),
     *((one, 300) for one in (*DTYPES, dtypes.float64)), (dtypes.float32, 9000),
     (dtypes.int64, 4097), (dtypes.bfloat16, 5000), (dtypes.bool_, 5000)],
)  # fmt: skip
def test_sorts_are_stable(dtype: DType, length: int) -> None:
    random = np.random.default_rng(length)
    x = random.integers(0, 256, (3, length * dtype.itemsize), np.uint8)
    x = (x % 2 if dtype is dtypes.bool_ else x).view(dtype.numpy)
    x[:, ::3] = x[:, :1]
    if dtype.is_float:
        x[:, ::7], x[:, 1::7], x[:, 2::7], x[:, 3::7] = np.nan, 0.0, -0.0, -1.0
    comparable = x.astype(np.float32) if dtype.is_small else x
    same(lm.argsort(Tensor(x), axis=1), comparable.argsort(1, kind="stable"))


def test_draws_are_those_of_the_cpu() -> None:
    ours, theirs = (lm.random.normal((100,), seed=3, device=one) for one in ("metal", "cpu"))
    same(ours, theirs.numpy())


def test_memory_of_the_host_is_copied() -> None:
    x = values(100)
    shared = lm.from_dlpack(x[3:])
    same(shared[1:50] * 2 + shared[40:89], x[4:53] * 2 + x[43:92])
    with pytest.raises(BufferError, match="for metal"):
        lm.from_dlpack(x, copy=False)


def test_many_arrays_of_one_kernel() -> None:
    """Those beyond the buffers that a kernel can have are reached through a table."""
    arrays = [values(40) * number for number in range(50)]
    total = Tensor(arrays[0])
    for one in arrays[1:]:
        total = total + Tensor(one)
    same(total, sum(arrays), 1e-4)


def train(device: str) -> list[np.ndarray]:
    """Losses and weights of a few steps of a small network, traced."""
    with options.using(device=device):
        lm.random.manual_seed(1)
        x, labels = Tensor(values(16, 12)), Tensor(np.arange(16) % 4)
        model = nn.Sequential(nn.Linear(12, 10), lm.tanh, nn.Linear(10, 4))
        optimizer = nn.optim.Adam(nn.parameters(model), lr=0.02)

        @lm.jit
        def step(x: Tensor, labels: Tensor) -> Tensor:
            loss = lm.cross_entropy(model(x), labels)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            return loss

        losses = [step(x, labels).numpy() for _ in range(8)]
        return [*losses, *(one.numpy() for one in nn.parameters(model))]


def test_a_training_loop() -> None:
    got, want = train("metal"), train("cpu")
    assert got[7] < got[0] * 0.8
    for ours, theirs in zip(got, want, strict=True):
        np.testing.assert_allclose(ours, theirs, 1e-3, 1e-4)


def test_integers_pass_casts_to_float64_that_keep_them() -> None:
    x = np.array([-7, 0, 2**31 - 1], np.int32)
    same(Tensor(x).cast(lm.float64).cast(lm.int64), x.astype(np.int64))


@pytest.mark.parametrize("dtype", [lm.float64, lm.complex128])
def test_what_metal_does_not_have(dtype: DType) -> None:
    with pytest.raises(DTypeError, match=r"map0_\d: Metal has no float64; cast to float32"):
        (Tensor([1.0], dtype=dtype) + 1.0).numpy()


def test_every_kernel_is_compared_on_request() -> None:
    with options.using(check=True):
        same(lm.softmax(Tensor(values(5, 200)), -1).sum(axis=1), np.ones(5))


def test_indices_are_as_wide_as_they_must_be() -> None:
    for rows, word in ((1 << 10, "i32"), (1 << 20, "i64")):
        x = leaf(0, (rows, 1 << 12), dtypes.float32)
        settings = replace(options.current(), device="metal")
        text = pipeline.compile_source([x + 1.0], settings).text
        kernel = text[text.index("/* The kernels. */") :]
        assert re.search(rf"const {word} \w+ = worker", kernel), kernel


def test_indices_as_data_have_64_bits() -> None:
    square = lm.arange(60_000) * lm.arange(60_000)
    np.testing.assert_array_equal(square.numpy(), np.arange(60_000) ** 2)
