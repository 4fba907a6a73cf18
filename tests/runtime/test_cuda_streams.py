"""Programs on streams of other libraries. A fake driver notes what it is asked."""

from __future__ import annotations

import gc
from typing import Any

import pytest

from lamina.runtime import cuda, transfers
from lamina.runtime.buffer import Buffer
from tests.runtime.test_cuda_errors import LAUNCHES, OPTIONS, SOURCE, FakeDriver, buffers, driver

__all__ = ["driver"]  # the fixture

PLACES = (64, 128)
STREAM = 77


@pytest.fixture
def calls(driver: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Any]]:
    """Each function of the driver that was called, with the stream that work was given to."""
    noted: list[tuple[str, Any]] = []
    call = cuda.Device.call

    def noting(self: cuda.Device, function: str, *arguments: Any, about: object = "") -> Any:
        streams = {"cuLaunchKernelEx": lambda: arguments[0].hStream,
                   "cuGraphLaunch": lambda: arguments[1]}  # fmt: skip
        noted.append((function, streams.get(function, lambda: None)()))
        return call(self, function, *arguments, about=about)

    monkeypatch.setattr(cuda.Device, "call", noting)
    monkeypatch.setattr(driver, "CUstream", lambda stream: ("stream", stream), raising=False)
    return noted


def program(calls: list[tuple[str, Any]]) -> cuda.CudaProgram:
    made = cuda.CudaProgram(SOURCE, LAUNCHES, OPTIONS)
    calls.clear()
    return made


def test_kernels_are_launched_on_the_stream_and_then_as_a_graph(
    calls: list[tuple[str, Any]],
) -> None:
    ours = program(calls)
    ours.run_on(STREAM, PLACES)
    assert calls == [("cuLaunchKernelEx", ("stream", STREAM))] * 2
    calls.clear()
    ours.run_on(STREAM, PLACES)
    assert calls[-1] == ("cuGraphLaunch", ("stream", STREAM))


def test_a_recorded_stream_gets_kernels_which_stay_loaded(calls: list[tuple[str, Any]]) -> None:
    ours = program(calls)
    device = ours.device
    for _ in range(3):
        ours.run_on(STREAM, PLACES, is_captured=True)
    assert [name for name, _ in calls] == ["cuLaunchKernelEx"] * 6
    del ours
    gc.collect()
    assert not device.retired


@pytest.mark.parametrize("is_elsewhere", [False, True])
def test_kernels_are_unloaded_when_every_stream_is_done(
    calls: list[tuple[str, Any]], is_elsewhere: bool
) -> None:
    ours = program(calls)
    device = ours.device
    if is_elsewhere:
        ours.run_on(STREAM, PLACES)
    else:
        ours.run(buffers())
    del ours
    gc.collect()
    names = [name for name, *_ in device.retired]
    waits = ["cuCtxSynchronize"] if is_elsewhere else []
    assert names == [*waits, "cuModuleUnload", "cuModuleUnload"]


def test_streams_wait_for_each_other(calls: list[tuple[str, Any]]) -> None:
    device = program(calls).device
    calls.clear()
    device.lead(STREAM)
    device.follow(STREAM)
    names = ["cuEventCreate", "cuEventRecord", "cuStreamWaitEvent", "cuEventDestroy"]
    assert [name for name, _ in calls] == names * 2


def host_buffer(nbytes: int) -> Buffer:
    return Buffer(nbytes, "cpu")


def test_the_host_waits_for_no_short_upload(
    calls: list[tuple[str, Any]], driver: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It keeps what is sent until that has been copied."""
    device = program(calls).device
    target = Buffer.wrap(1 << 20, 64, "cuda:0", None)
    is_copied = False

    def query(event: Any) -> tuple[Any]:
        return (0 if is_copied else driver.CUresult.CUDA_ERROR_NOT_READY,)

    monkeypatch.setattr(driver, "cuEventQuery", query, raising=False)
    for count in (1, 2):
        device.send(host_buffer(64), target)
        assert len(device.transfers.running) == count
    assert "cuStreamSynchronize" not in [name for name, _ in calls]
    is_copied = True
    device.send(host_buffer(64), target)
    assert len(device.transfers.running) == 1
    device.send(host_buffer(2 << 20), target)
    assert "cuStreamSynchronize" in [name for name, _ in calls]
    assert not device.transfers.running


def test_a_buffer_that_is_fetched_is_waited_for_alone(
    calls: list[tuple[str, Any]], driver: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever was launched since: the wait is for an event, not for the stream."""
    device = program(calls).device
    monkeypatch.setattr(device, "staging", device.staging.staging)
    monkeypatch.setattr(transfers, "Buffer", lambda nbytes, name, heap: host_buffer(nbytes))
    monkeypatch.setattr(driver, "cuEventQuery", lambda event: (0,), raising=False)
    waits: list[bool] = []
    device.guard = lambda is_done, is_all: waits.append(is_all and is_done())
    wait = device.fetch(Buffer.wrap(1 << 20, 64, "cuda:0", None))
    assert [name for name, _ in calls].count("cuMemcpyAsync") == 1
    calls.clear()
    assert wait().nbytes == 64
    assert [name for name, _ in calls] == ["cuEventSynchronize"]
    assert waits == [False]
