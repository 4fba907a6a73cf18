"""Without a GPU, what asks for one says what is missing and what to do."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

import lamina as lm
from lamina.cli import Row, doctor
from lamina.errors import DeviceError, UnknownDeviceError
from lamina.runtime import buffer, cuda
from lamina.runtime.buffer import KINDS, DeviceKind, heap_of


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> list[str]:
        raise UnknownDeviceError(
            "the driver does not work: it is not installed", operation="cuda", remedy="install it"
        )

    monkeypatch.setitem(KINDS, "cuda", DeviceKind(missing, cuda.Device))
    monkeypatch.setattr(buffer, "_heaps", {"cpu": heap_of("cpu")})


def test_a_tensor() -> None:
    for act in (
        lambda: lm.Tensor([1.0], device="cuda:0"),
        lambda: lm.ones(3, device="cuda"),
        lambda: lm.Tensor([1.0], device="cpu").to("cuda:0"),
        lambda: lm.memory_stats("cuda:0"),
    ):
        with pytest.raises(UnknownDeviceError, match=r"does not work.*; install it"):
            act()


def test_the_survey() -> None:
    finding = "the driver does not work: it is not installed"
    assert Row("cuda", finding, False, "install it") in doctor()
    assert lm.__array_namespace_info__().devices() == ["cpu", "interp"]


def test_a_launch_that_is_refused_ends_the_recording(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def refused(self: Any, *_: Any) -> Iterator[Any]:
        raise DeviceError("cuLaunchKernelEx: refused")

    def end(recorder: Any) -> tuple[int, None]:
        calls.append("cuStreamEndCapture")
        return 0, None

    modes = SimpleNamespace(CU_STREAM_CAPTURE_MODE_RELAXED=2)
    driver = SimpleNamespace(CUstreamCaptureMode=modes, cuStreamEndCapture=end)
    program: Any = object.__new__(cuda.CudaProgram)
    program.device = SimpleNamespace(
        driver=driver, recorder=1, call=lambda name, *_: calls.append(name)
    )
    program._graphs, program._modules = {(4096,): None}, {}
    program._ran_elsewhere = program._is_recorded = False
    monkeypatch.setattr(cuda.CudaProgram, "_launched", refused)
    with pytest.raises(DeviceError, match="refused"):
        program._graph((4096,))
    assert calls == ["cuStreamBeginCapture", "cuStreamEndCapture"]
