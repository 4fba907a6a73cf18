"""The memory of a GPU in DLPack's structures, whose streams wait for each other. A fake driver
gives the host's memory and notes what is asked of it, so that NumPy can read what is exported."""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import lamina as lm
from lamina import Tensor
from lamina.errors import ArgumentError, DTypeError
from lamina.frontend import gpu_dlpack
from lamina.frontend import realize as memory
from lamina.runtime import buffer as buffers
from lamina.runtime import cuda
from lamina.runtime.buffer import Buffer

GPU = "cuda:0"
CPU, CUDA = 1, 2
_libc = ctypes.CDLL(None)
_libc.aligned_alloc.restype = ctypes.c_void_p
_libc.aligned_alloc.argtypes = [ctypes.c_size_t] * 2


class Driver:
    """Memory and copies of the host. calls: each function that was called, with its arguments."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.CUresult = SimpleNamespace(CUDA_ERROR_OUT_OF_MEMORY=2)
        self.CUstream_flags = SimpleNamespace(CU_STREAM_NON_BLOCKING=1)
        self.CUevent_flags = SimpleNamespace(CU_EVENT_DISABLE_TIMING=2)
        self.CUdevice_attribute = _Names()
        self.CUlaunchAttributeID = _Names()
        self.CUlaunchAttribute = lambda: SimpleNamespace(value=SimpleNamespace())
        self.CUstream = int
        self._streams = iter((0xA0, 0xB0))

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any) -> tuple[int, Any]:
            self.calls.append((name, *arguments))
            return 0, self._result(name, arguments)

        return call

    def _result(self, name: str, arguments: tuple[Any, ...]) -> Any:
        if name == "cuMemAlloc":
            return _libc.aligned_alloc(64, arguments[0])
        if name == "cuMemcpyAsync":
            ctypes.memmove(*arguments[:3])
        return next(self._streams) if name == "cuStreamCreate" else 0xE0

    @property
    def names(self) -> list[str]:
        return [name for name, *_ in self.calls]


class _Names:
    def __getattr__(self, name: str) -> str:
        return name


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Driver]:
    fake = Driver()
    monkeypatch.setitem(sys.modules, "cuda.bindings", SimpleNamespace(driver=fake))
    monkeypatch.setattr(cuda, "names", lambda: [GPU])
    cuda.target_of.cache_clear()
    monkeypatch.setitem(buffers._heaps, GPU, cuda.Device(0))
    fake.calls.clear()
    yield fake
    gc.collect()
    cuda.target_of.cache_clear()


def on_gpu(array: np.ndarray) -> Tensor:
    """A tensor whose values are in the memory of the fake GPU."""
    buffer = Buffer(array.nbytes, GPU)
    ctypes.memmove(buffer.pointer, np.ascontiguousarray(array).ctypes.data, array.nbytes)
    dtype = getattr(lm, str(array.dtype))
    return Tensor.of(memory.buffer_node(buffer, array.shape, dtype), GPU)


class Producer:
    """Another library's array on the GPU: that of NumPy, whose capsule says so."""

    def __init__(self, array: np.ndarray, is_old: bool = False) -> None:
        self._array, self._is_old = array, is_old
        self.streams: list[Any] = []

    def __dlpack_device__(self) -> tuple[int, int]:
        return CUDA, 0

    def __dlpack__(self, **options: Any) -> Any:
        if self._is_old and "max_version" in options:
            raise TypeError("max_version is not known")
        self.streams.append(options.pop("stream"))
        capsule = self._array.__dlpack__(**options)
        structure(capsule).device_kind = CUDA
        return capsule


def structure(capsule: Any) -> Any:
    for name, form in gpu_dlpack._FORMS.items():
        if gpu_dlpack._is_valid(capsule, name):
            return form.from_address(gpu_dlpack._pointer(capsule, name)).array
    raise AssertionError("no capsule of DLPack's")


def read_by_numpy(capsule: Any) -> np.ndarray:
    """What NumPy reads in a capsule, which now says that its memory is the host's."""
    structure(capsule).device_kind = CPU
    return np.from_dlpack(SimpleNamespace(
        __dlpack__=lambda **options: capsule, __dlpack_device__=lambda: (CPU, 0)
    ))  # fmt: skip


ARRAYS = [
    np.arange(24, dtype=np.float32).reshape(2, 3, 4), np.array(5), np.zeros((0, 3), np.float16),
    np.array([True, False]), np.array([1 + 2j, 3j], np.complex64), np.arange(5, dtype=np.uint8),
]  # fmt: skip


@pytest.mark.usefixtures("driver")
@pytest.mark.parametrize("version", [None, (1, 0)])
@pytest.mark.parametrize("array", ARRAYS, ids=str)
def test_what_is_exported_is_what_numpy_reads(array: np.ndarray, version: Any) -> None:
    x = on_gpu(array)
    assert x.__dlpack_device__() == (CUDA, 0)
    capsule = x.__dlpack__(max_version=version)
    pointer = structure(capsule).data
    there = read_by_numpy(capsule)
    np.testing.assert_array_equal(there, array)
    assert (there.dtype, there.shape) == (array.dtype, array.shape)
    assert pointer == memory.memory_of(x).pointer  # no copy


@pytest.mark.parametrize(("stream", "waiting"), [(None, 1), (1, 1), (2, 2), (0xC0, 0xC0)])
def test_the_consumers_stream_waits_for_the_values(
    driver: Driver, stream: Any, waiting: int
) -> None:
    x = on_gpu(ARRAYS[0])
    driver.calls.clear()
    x.__dlpack__(stream=stream)
    waits = [call for call in driver.calls if call[0] in ("cuEventRecord", "cuStreamWaitEvent")]
    assert waits == [("cuEventRecord", 0xE0, 0xA0), ("cuStreamWaitEvent", waiting, 0xE0, 0)]


def test_nothing_waits_for_minus_one(driver: Driver) -> None:
    x = on_gpu(ARRAYS[0])
    x.__dlpack__(stream=-1)
    assert "cuStreamWaitEvent" not in driver.names


@pytest.mark.usefixtures("driver")
@pytest.mark.parametrize("stream", [0, -2, "stream", 1.5, True])
def test_other_streams_are_refused(stream: Any) -> None:
    with pytest.raises(ArgumentError, match=r"stream .* on cuda:0"):
        on_gpu(ARRAYS[0]).__dlpack__(stream=stream)


@pytest.mark.usefixtures("driver")
def test_other_devices_and_dtypes_are_refused() -> None:
    x = on_gpu(ARRAYS[0])
    with pytest.raises(BufferError, match="cannot export"):
        x.__dlpack__(dl_device=(CPU, 0))
    small = Tensor.of(memory.buffer_node(Buffer(4, GPU), (4,), lm.float8_e5m2), GPU)
    with pytest.raises(DTypeError, match="cast it first"):
        small.__dlpack__()


def test_exported_memory_is_reused_only_when_the_gpu_is_done(driver: Driver) -> None:
    x = on_gpu(ARRAYS[0])
    heap = buffers._heaps[GPU]
    there = read_by_numpy(x.__dlpack__())
    del x
    gc.collect()
    driver.calls.clear()
    used = heap.allocated
    assert used > 0
    del there
    gc.collect()
    assert "cuCtxSynchronize" in driver.names
    assert heap.allocated < used


@pytest.mark.usefixtures("driver")
def test_a_capsule_that_nobody_took_lets_the_memory_go() -> None:
    heap = buffers._heaps[GPU]
    capsule = on_gpu(ARRAYS[0]).__dlpack__()
    used = heap.allocated
    del capsule
    gc.collect()
    assert heap.allocated < used


@pytest.mark.parametrize("is_old", [False, True])
@pytest.mark.parametrize("array", ARRAYS, ids=str)
def test_what_is_imported_is_the_producers_memory(
    driver: Driver, array: np.ndarray, is_old: bool
) -> None:
    base = aligned(array)  # NumPy's own memory may lie at any multiple of 16
    producer = Producer(base, is_old)
    x = lm.from_dlpack(producer)
    assert (x.device, x.shape, x.dtype.numpy) == (GPU, array.shape, array.dtype)
    assert producer.streams == [0xA0]  # lamina's: the producer makes it wait
    assert memory.memory_of(x).pointer == base.ctypes.data
    driver.calls.clear()
    del x
    gc.collect()
    assert "cuStreamSynchronize" in driver.names


@pytest.mark.usefixtures("driver")
def test_axes_in_another_order_are_turned_without_a_copy() -> None:
    base = aligned(ARRAYS[0])
    x = lm.from_dlpack(Producer(base.transpose(2, 0, 1)))
    assert x.shape == (4, 2, 3)
    (place,) = [one for one in memory.pending([x.node]).values() if one is not None]
    assert place.arg.storage.pointer == base.ctypes.data


@pytest.mark.usefixtures("driver")
@pytest.mark.parametrize("view", [
    lambda x: x[:, ::2], lambda x: x[::-1, 1:], lambda x: np.broadcast_to(x[:1], (3, 3, 4)),
    lambda x: x[1:],
])  # fmt: skip
def test_gaps_and_odd_addresses_are_copied(view: Any) -> None:
    array = np.arange(36, dtype=np.float32).reshape(3, 3, 4)
    base = aligned(array)
    want = np.array(view(array))
    with pytest.raises(BufferError, match="need a copy"):
        lm.from_dlpack(Producer(view(base)), copy=False)
    x = lm.from_dlpack(Producer(view(base)))
    base[...] = 0  # the copy keeps what was there
    assert values_of(x).tolist() == want.tolist()


def aligned(array: np.ndarray) -> np.ndarray:
    """A writable copy at a multiple of 64, which lives as long as the test run."""
    there = (ctypes.c_char * array.nbytes).from_address(_libc.aligned_alloc(64, 64 + array.nbytes))
    copied = np.frombuffer(there, array.dtype, array.size).reshape(array.shape)
    copied[...] = array
    return copied


def values_of(x: Tensor) -> np.ndarray:
    """The values by the interpreter, which reads the memory of the fake GPU as the host's."""
    from lamina.frontend.execution import execute

    inputs: dict[Buffer, int] = {}
    sinks = memory.cut([x.node], inputs)
    held = [Buffer.wrap(one.pointer, one.nbytes, "interp", one) for one in inputs]
    (result,) = execute(memory.on_device(sinks, "interp"), held, "interp")
    return np.frombuffer(result.view(), x.dtype.numpy).reshape(x.shape)


@pytest.mark.usefixtures("driver")
def test_a_capsule_is_taken_once() -> None:
    producer = Producer(np.arange(4.0))
    capsule = producer.__dlpack__(stream=1)
    again = SimpleNamespace(
        __dlpack__=lambda **options: capsule, __dlpack_device__=lambda: (CUDA, 0)
    )
    assert lm.from_dlpack(again).shape == (4,)
    with pytest.raises(BufferError, match="consumed already"):
        lm.from_dlpack(again)
