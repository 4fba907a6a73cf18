"""A GPU gives what the interpreter gives, and its errors say what to do."""

from __future__ import annotations

import gc
import random
import weakref
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import lamina as lm
from lamina import Tensor, backends, tuning
from lamina.cli import Row, doctor
from lamina.core import options
from lamina.errors import DeviceError, JitError, OutOfMemoryError, UnknownDeviceError
from lamina.explain.report import profile
from lamina.frontend.session import SESSION
from lamina.runtime import cuda, nvrtc
from lamina.runtime.buffer import Buffer, Launch
from lamina.runtime.cpu import disk_cache
from lamina.runtime.source import Source
from tests import scans, scatters
from tests.codegen.test_fuzz_compile import batch
from tests.compiled import compare
from tests.programs import disagreement
from tests.schedules import random_schedule

GPU = "cuda:0"


@pytest.fixture(autouse=True)
def on_gpu(device: cuda.Device) -> Iterator[None]:
    """New tensors live on the GPU."""
    with options.using(device=GPU):
        yield


def same(got: Tensor, want: np.ndarray, tolerance: float = 1e-5) -> None:
    assert got.device == GPU
    np.testing.assert_allclose(got.numpy(), want, tolerance, tolerance)


def values(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape, dtype=np.float32)


@pytest.mark.parametrize("number", range(12))
def test_random_programs(number: int) -> None:
    assert disagreement(batch(30_000 + 12 * number, 12, 18), options.current()) is None


@pytest.mark.parametrize("number", range(6))
def test_random_schedules(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(number)
    schedule = lambda kernel, *_: random_schedule(rng, kernel)  # noqa: E731
    monkeypatch.setattr(backends, "schedule_for_gpu", schedule)
    assert disagreement(batch(40_000 + 4 * number, 4, 12), options.current()) is None


def test_threads_share_running_values() -> None:
    assert compare([scans.sample()], GPU) == []


@pytest.mark.parametrize("name", scatters.CASES_OF_CUDA)
def test_lanes_ask_where_they_add(name: str) -> None:
    case = scatters.CASES_OF_CUDA[name]
    with options.using(schedule=case.schedule):
        assert compare([scatters.sample(case)], GPU) == []


@pytest.mark.parametrize("shape", [(1,), (31,), (1000, 33), (33, 1000), (7, 5, 300), (1 << 20,)])
def test_reductions_along_every_axis(shape: tuple[int, ...]) -> None:
    x = values(*shape)
    for axis in range(len(shape)):
        same(lm.sum(Tensor(x), axis=axis), x.sum(axis, dtype=np.float64), 1e-3)
        same(lm.argmax(Tensor(x), axis=axis), x.argmax(axis))
        same(lm.std(Tensor(x), axis=axis), x.std(axis, dtype=np.float64), 1e-3)


@pytest.mark.parametrize("shape", [(64, 96), (100, 4096), (33, 65), (3, 128, 256)])
@pytest.mark.parametrize("dtype", [lm.float32, lm.bfloat16, lm.uint8])
def test_transposes(shape: tuple[int, ...], dtype: lm.DType) -> None:
    x = np.arange(np.prod(shape)).reshape(shape) % 251
    order = (*range(len(shape) - 2), len(shape) - 1, len(shape) - 2)
    same(lm.permute_dims(Tensor(x).cast(dtype), order).contiguous(), x.transpose(order))


@pytest.mark.parametrize("length", [2, 33, 4096, 4097, 50257, 1_000_003])
@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.float64, np.float16, np.uint8])
def test_sorts_are_stable(length: int, dtype: Any) -> None:
    random = np.random.default_rng(length)
    large = 1 << (15 if dtype is np.float16 else 40)  # else most are infinite
    few, many = (random.integers(0, most, (3, length)).astype(dtype) for most in (7, large))
    for x in (few, many, np.sort(many, axis=1), np.sort(many, axis=1)[:, ::-1].copy()):
        if x.dtype.kind == "f":
            x[:, ::7] = np.nan
        same(lm.argsort(Tensor(x), axis=1), x.argsort(1, kind="stable"))


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_products_of_bytes_are_exact(dtype: str) -> None:
    """Random bytes, and rows of the largest ones, whose sums need every bit of a float32."""
    ends, rng = np.iinfo(dtype), np.random.default_rng(8)
    x, w = (rng.integers(ends.min, ends.max, (512, 2048), dtype, endpoint=True) for _ in range(2))
    x[:100], w[:100] = ends.min or ends.max, ends.min or ends.max
    x[:50, ::64] += np.array(1, dtype)
    got = lm.jit(lambda x, w: x.cast(lm.int32) @ w.T.cast(lm.int32))(Tensor(x), Tensor(w))
    np.testing.assert_array_equal(got.numpy(), x.astype(np.int64) @ w.astype(np.int64).T)


def test_scatters_combine_in_order() -> None:
    x, places = values(1000, 8), np.random.default_rng(0).integers(0, 50, 1000)
    want = np.zeros((50, 8), np.float32)
    np.add.at(want, places, x)
    weight = Tensor(np.zeros((50, 8), np.float32), requires_grad=True)
    picked = lm.embedding(Tensor(places), weight)
    (got,) = lm.gradient((picked * Tensor(x)).sum(), [weight])
    np.testing.assert_allclose(got.numpy(), want, 1e-5, 1e-5)


@pytest.mark.parametrize("width", [768, 50, 8])
def test_scatters_add_what_is_far_apart(width: int) -> None:
    places, x = np.random.default_rng(width).integers(0, 99, 5000), values(5000, width)
    want = np.zeros((99, width))
    np.add.at(want, places, x)
    table = Tensor(np.zeros((99, width), np.float32))
    looked_up = lm.embedding(Tensor(places), table) * Tensor(x)
    same(lm.gradient(looked_up.sum(), [table])[0], want, 1e-4)


@pytest.mark.parametrize(
    "name", ["exp", "tanh", "sigmoid", "silu", "gelu", "erf", "sqrt", "reciprocal"]
)
def test_functions_of_bfloat16_are_one_unit_off_at_most(name: str) -> None:
    x = lm.arange(-20.0, 20.0, 2.0**-7, device="cpu").cast(lm.bfloat16)
    x = lm.where(lm.equal(x, 0.0), 1.0, abs(x) if name == "sqrt" else x).cast(lm.bfloat16)
    want, got = (getattr(lm, name)(one).cast(lm.float32).numpy() for one in (x, x.to(GPU)))
    np.testing.assert_allclose(got, want, 2.0**-7, 1e-6)


def test_draws_are_those_of_the_cpu() -> None:
    for device in ("cpu", GPU):
        lm.random.uniform((1000,), seed=3, device=device)
    ours, theirs = (lm.random.uniform((1000,), seed=3, device=one) for one in (GPU, "cpu"))
    np.testing.assert_array_equal(ours.numpy(), theirs.numpy())


def test_copies_between_devices() -> None:
    x = values(100, 100)
    there = Tensor(x, device="cpu").to("cuda")
    same(there, x)
    np.testing.assert_array_equal(there.to("interp").numpy(), x)
    with pytest.raises(DeviceError, match="move one"):
        there + Tensor(x, device="cpu")


def test_a_traced_function_runs_on_the_device_of_its_tensors() -> None:
    x, w = values(64, 64), Tensor(values(64, 64))
    with options.using(device="cpu"):
        step = lm.jit(lambda: w @ w)
        same(step(), w.numpy() @ w.numpy(), 1e-3)
        mixed = Tensor(x, device="cpu")
        with pytest.raises((JitError, DeviceError)):
            lm.jit(lambda: (w + 1.0, mixed + 1.0))()


def test_every_kernel_is_compared_on_request() -> None:
    with options.using(check=True):
        same(lm.softmax(Tensor(values(50, 200)), -1).sum(axis=1), np.ones(50))


def test_memory_is_counted_reused_and_returned(device: cuda.Device) -> None:
    lm.empty_cache(GPU)
    before = lm.memory_stats(GPU)["allocated"]
    one = Buffer(1 << 20, GPU)
    address = one.pointer
    assert lm.memory_stats(GPU)["allocated"] - before >= 1 << 20
    del one
    assert lm.memory_stats(GPU)["cached"] >= 1 << 20
    assert Buffer(1 << 20, GPU).pointer == address
    with pytest.raises(OutOfMemoryError, match="cuda:0: no room"):
        Buffer(device.total * 2, GPU)
    assert lm.memory_stats(GPU)["cached"] == 0
    same(Tensor([1.0]) + 1.0, np.array([2.0]))


def test_what_is_kept_makes_room_for_what_is_no_array(
    device: cuda.Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    full, driver = device.driver.CUresult.CUDA_ERROR_OUT_OF_MEMORY, device.driver
    given = {"cuMemGetInfo": lambda: (full,) if device.cached else driver.cuMemGetInfo()}
    monkeypatch.setattr(device, "driver", SimpleNamespace(**{**vars(driver), **given}))
    Buffer(1 << 20, GPU)  # and it is dropped
    assert device.cached
    assert device.call("cuMemGetInfo") > 0
    monkeypatch.setattr(device.driver, "cuMemGetInfo", lambda: (full,))
    with pytest.raises(OutOfMemoryError, match="cuda:0: cuMemGetInfo"):
        device.call("cuMemGetInfo")


def test_a_launch_that_fails_names_its_kernel(device: cuda.Device) -> None:
    head = '#define KERNEL(threads) extern "C" __global__ void\n'
    text = "KERNEL(4096) broad(float *x) { x[threadIdx.x] = 1; }"
    launch = Launch("broad", 1, 4096, ((0, 0),))
    source = Source(head, {"broad": text})
    program = cuda.CudaProgram(source, (launch,), options.current())
    with pytest.raises(DeviceError, match="kernel broad, 1 blocks of 4096 threads"):
        program.run([Buffer(64, GPU)])
    same(Tensor([1.0]) + 1.0, np.array([2.0]))


def test_schedules_are_measured_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = values(300, 200), values(200, 400)
    x, y = Tensor(a), Tensor(b).cast(lm.bfloat16)

    def results() -> None:
        same(x @ y.cast(lm.float32), a @ b, 1e-1)
        same(lm.sum(x * 2, axis=1), (2 * a).sum(1), 1e-4)
        same(lm.permute_dims(x, (1, 0)) + 1, a.T + 1)

    with options.using(search=5, cache_dir=str(tmp_path)):
        results()
        kept = [one for one in disk_cache(options.current()).folder.iterdir()
                if one.read_bytes().startswith(b"# 5 ")]  # fmt: skip
        assert kept
        SESSION.forget()
        monkeypatch.setattr(tuning, "search", None)  # nothing is measured again
        results()


@pytest.mark.parametrize(
    ("base", "updates", "axis"),
    [
        ((300, 70), (5000, 70), 0),  # several columns side by side
        ((905, 2147), (905, 2147), 0),  # the last block has fewer of them
        ((3, 7, 40, 5), (3, 7, 9000, 5), 2),
        ((16, 30_000), (16, 20_001), 1),  # several blocks have the places of a row
        ((100_000,), (300_000,), 0),
    ],
)
def test_scatters_in_memory_of_blocks(
    base: tuple[int, ...], updates: tuple[int, ...], axis: int
) -> None:
    rng = np.random.default_rng(0)
    x, new = (rng.standard_normal(shape).astype(np.float32) for shape in (base, updates))
    new *= np.exp(rng.integers(-20, 20, updates)).astype(np.float32)
    places = rng.integers(-base[axis], base[axis], updates)
    scatter = lm.jit(lambda *arrays: lm.scatter_add(arrays[0], axis, *arrays[1:]))
    result = scatter(Tensor(x), Tensor(places), Tensor(new)).numpy()
    indices = [*np.indices(updates)]
    indices[axis] = places
    want, largest = x.astype(np.float64), np.abs(x).astype(np.float64)
    np.add.at(want, tuple(indices), new.astype(np.float64))
    np.add.at(largest, tuple(indices), np.abs(new).astype(np.float64))
    assert (np.abs(result - want) <= 1e-6 * largest).all()
    again = scatter(Tensor(x), Tensor(places), Tensor(new)).numpy()
    assert np.array_equal(result, again)
    numbers = rng.integers(-(1 << 40), 1 << 40, updates)
    counted = rng.integers(0, 9, base)
    result = scatter(Tensor(counted), Tensor(places), Tensor(numbers)).numpy()
    np.add.at(counted, tuple(indices), numbers)
    assert np.array_equal(result, counted)


@pytest.mark.parametrize(("shape", "axis"), [((905, 2147), 0), ((9001, 70), 0), ((9, 60_001), 1)])
def test_sums_of_float16_are_rounded_once(shape: tuple[int, int], axis: int) -> None:
    """To float32, and that to float16, in memory of blocks, whose sums are exact."""
    rng = np.random.default_rng(0)
    x, new = (rng.standard_normal(shape).astype(np.float16) for _ in range(2))
    new = np.ldexp(new, rng.integers(-20, 12, shape)).astype(np.float16)
    places = rng.integers(-shape[axis], shape[axis], shape)
    x[:, 0], places[:, 0] = -0.0, places[:, 0] % 7  # places without an update keep their bits
    indices = [*np.indices(shape)]
    indices[axis] = places
    want = x.astype(np.float64)
    np.add.at(want, tuple(indices), new.astype(np.float64))
    result = lm.scatter_add(Tensor(x), axis, Tensor(places), Tensor(new)).numpy()
    is_own = np.ones(shape, bool)
    is_own[tuple(indices)] = False
    assert np.array_equal(result, want.astype(np.float32).astype(np.float16))
    assert np.array_equal(np.signbit(result[is_own]), np.signbit(x[is_own]))


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_sums_in_memory_of_blocks_that_are_not_finite(dtype: Any) -> None:
    x = np.zeros((64, 4096), dtype)
    new = np.ones((256, 4096), dtype)
    places = np.zeros((256, 4096), np.int64)
    places[:, 1:] = np.arange(256)[:, None] % 64
    new[7, 0], new[8, 1], new[9, 2], new[73, 2] = np.inf, -np.inf, np.inf, -np.inf
    new[10, 3] = np.nan
    result = lm.scatter_add(Tensor(x), 0, Tensor(places), Tensor(new)).numpy()
    assert result[0, 0] == np.inf
    assert result[8, 1] == -np.inf
    assert np.isnan(result[9, 2])
    assert np.isnan(result[10, 3])
    assert np.isfinite(result).sum() == result.size - 4
    assert (result[1:, 4:] == 4.0).all()


def test_compiled_programs_are_kept_on_disk(device: cuda.Device) -> None:
    cache = disk_cache(options.current())
    head = '#define KERNEL(threads) extern "C" __global__ void\n'
    source = Source(head, {"kept": "KERNEL(32) kept() {}"})
    before = set(cache.folder.iterdir())
    first = nvrtc.build(source, device.arch, options.current())
    (added,) = {one for one in set(cache.folder.iterdir()) - before if one.suffix == ".cubin"}
    assert added.read_bytes() == first["kept"]
    assert first == nvrtc.build(source, device.arch, options.current())


def test_programs_that_run_again_in_the_same_places() -> None:
    @lm.jit
    def centred(x: Tensor) -> Tensor:
        for _ in range(4):
            x = (x - lm.mean(x, axis=0)).contiguous()
            x = (x - lm.mean(x, axis=1, keepdims=True)).contiguous()
        return x

    for _ in range(3):
        for seed in range(3):
            x = np.random.default_rng(seed).standard_normal((64, 96)).astype(np.float32)
            want = x - x.mean(0) - x.mean(1, keepdims=True) + x.mean()
            same(centred(Tensor(x)), want)


def test_more_places_than_graphs_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda, "_GRAPHS", 2)
    twice = lm.jit(lambda x: lm.sum(lm.sum(x, axis=0).contiguous() * 2.0))
    many = [Tensor(values(64, 64 + number)[:, :64]).realize() for number in range(5)]
    wanted = [2.0 * one.numpy().sum() for one in many]
    for _ in range(3):
        for one, want in zip(many, wanted, strict=True):
            same(twice(one), want, 1e-3)


def test_programs_that_are_dropped_are_unloaded(
    device: cuda.Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[str] = []
    call = cuda.Device.call

    def watched(self: cuda.Device, function: str, *arguments: Any, about: object = "") -> Any:
        called.append(function)
        return call(self, function, *arguments, about=about)

    monkeypatch.setattr(cuda.Device, "call", watched)
    x = Tensor(values(64, 64)).realize()
    factors = 1.5, 2.5
    functions = [lm.jit(lambda x, n=n: (x * n).sum(axis=0).contiguous() + n) for n in factors]
    # NumPy's, as programs of eager calls are kept.
    sums = values(64, 64).sum(axis=0)
    wanted = [sums * factor + factor for factor in factors]
    for function, want in zip(functions, wanted, strict=True):
        for _ in range(4):  # the later ones are launched as a graph
            same(function(x), want, 1e-3)
    programs = [weakref.ref(one.compiled.code) for function in functions
                for one in function._programs.values()]  # fmt: skip
    assert len({ref() for ref in programs}) == 2
    kept, dropped = functions
    del functions, function, dropped
    gc.collect()
    assert [ref() is None for ref in programs] == [False, True]
    called.clear()
    device.synchronize()
    assert called.count("cuModuleUnload") >= 1
    assert called.count("cuGraphExecDestroy") >= 1
    same(kept(x), wanted[0], 1e-3)
    called.clear()
    device.synchronize()
    assert "cuModuleUnload" not in called


def test_pinned_memory_is_counted(device: cuda.Device) -> None:
    lm.empty_cache(GPU)
    assert lm.memory_stats(GPU)["pinned"] == 0
    x = Tensor(values(256, 1024))
    assert lm.memory_stats(GPU)["pinned"] >= x.nbytes  # that it was copied through
    lm.empty_cache(GPU)
    assert lm.memory_stats(GPU)["pinned"] == 0


def test_times_of_kernels() -> None:
    x = Tensor(values(1000, 1000))
    x.realize()
    with profile() as records:
        (x @ x).sum().realize()
    assert records
    assert all(0 < one.seconds < 1 for one in records)


def test_unknown_numbers(device: cuda.Device) -> None:
    with pytest.raises(UnknownDeviceError, match="there are cuda:0"):
        Tensor([1.0], device="cuda:99")
    with pytest.raises(UnknownDeviceError, match="there are cuda:0"):
        Tensor([1.0], device="cuda:first")
    assert Row("cuda", str(device)) in doctor()
    settings = replace(options.current(), device="cuda:99")
    with pytest.raises(UnknownDeviceError):
        cuda.CudaProgram(Source(), (), settings)
