"""What the user reads when CUDA's driver refuses something: the kernel, and the line of the
program. A fake driver fails on demand; no GPU is needed."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from lamina.core.options import current
from lamina.errors import CompileError, DeviceError
from lamina.runtime import cuda, nvrtc
from lamina.runtime.buffer import Launch
from lamina.runtime.source import Source

OPTIONS = replace(current(), device="cuda:0")
LAUNCHES = [Launch("map0_64", 1, 256, ((0, 0),)), Launch("reduce1_64", 2, 128, ((1, 0),), 2048)]
SOURCE = Source("", {"map0_64": "first", "reduce1_64": "second"})


class Code(int):
    """A result of the driver: 0 for success."""

    name = "CUDA_ERROR_ILLEGAL_ADDRESS"


class FakeDriver:
    """Every function of the driver, each of which succeeds but for the one named `fails`."""

    def __init__(self) -> None:
        self.fails = ""
        self.CUresult = SimpleNamespace(
            CUDA_ERROR_OUT_OF_MEMORY=Code(2), CUDA_ERROR_NOT_READY=Code(600)
        )

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("cu") or name == "cuuint64_t":
            return _Anything()
        if name == "cuGetErrorString":
            return lambda code: (Code(0), b"an illegal memory access was encountered")
        return lambda *arguments: (Code(700) if name == self.fails else Code(0), 1 << 20)


class _Anything:
    """An enumeration, a structure, or a function that makes one."""

    def __getattr__(self, name: str) -> Any:
        value = _Anything()
        object.__setattr__(self, name, value)
        return value

    def __call__(self, *arguments: Any) -> Any:
        return _Anything()


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> FakeDriver:
    fake = FakeDriver()
    monkeypatch.setitem(sys.modules, "cuda.bindings", SimpleNamespace(driver=fake))
    device = cuda.Device(0)
    monkeypatch.setattr(cuda, "heap_of", lambda name: device)
    monkeypatch.setattr(cuda, "build", lambda *_: dict.fromkeys(SOURCE.kernels, b"cubin"))
    return fake


def buffers() -> Sequence[Any]:
    return [SimpleNamespace(pointer=64), SimpleNamespace(pointer=128)]


def refused(run: Callable[[], object]) -> tuple[str, str]:
    """The message of the DeviceError that `run` raises, and the user's line."""
    with pytest.raises(DeviceError) as caught:
        run()
    what, _, where = str(caught.value).partition("\n  at ")
    return what, where


@pytest.mark.parametrize(
    ("function", "about"),
    [
        ("cuModuleLoadData", "kernel map0_64"),
        ("cuModuleGetFunction", "kernel map0_64"),
        ("cuFuncSetAttribute", "kernel reduce1_64, 2 blocks of 128 threads"),
    ],
)
def test_loading_names_the_kernel(driver: FakeDriver, function: str, about: str) -> None:
    driver.fails = function
    what, where = refused(lambda: cuda.CudaProgram(SOURCE, LAUNCHES, OPTIONS))
    assert what.startswith(f"cuda:0: {about}: {function}: CUDA_ERROR_ILLEGAL_ADDRESS: an illegal")
    assert where.startswith("test_cuda_errors.py:")
    assert "cuda.CudaProgram(SOURCE" in where


def test_a_launch_names_the_kernel_and_the_line(driver: FakeDriver) -> None:
    program = cuda.CudaProgram(SOURCE, LAUNCHES, OPTIONS)
    driver.fails = "cuLaunchKernelEx"
    what, where = refused(lambda: program.run(buffers()))
    assert "kernel map0_64, 1 blocks of 256 threads: cuLaunchKernelEx" in what
    assert "program.run(buffers())" in where


def test_a_job_launches_the_graph_of_its_places(
    driver: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    launched: list[tuple[Any, ...]] = []

    def launch(*arguments: Any) -> tuple[Code]:
        launched.append(arguments)
        return (Code(0),)

    monkeypatch.setattr(driver, "cuGraphLaunch", launch, raising=False)
    program = cuda.CudaProgram(SOURCE, LAUNCHES, OPTIONS)
    program.run(buffers())
    program.run(buffers())  # as a graph
    program.call(program.job(buffers()))
    assert len(launched) == 2
    assert launched[0] == launched[1]
    program.call([1 << 10, 1 << 11])  # other places
    assert len(launched) == 2


@pytest.mark.parametrize("function", ["cuGraphInstantiate", "cuGraphLaunch"])
def test_a_graph_names_the_last_kernels(driver: FakeDriver, function: str) -> None:
    program = cuda.CudaProgram(SOURCE, LAUNCHES, OPTIONS)
    program.run(buffers())
    driver.fails = function
    what, _ = refused(lambda: program.run(buffers()))
    assert "a program of 2 kernels that ends with kernel map0_64, 1 blocks" in what
    assert "kernel reduce1_64, 2 blocks of 128 threads" in what


def test_a_failure_that_shows_later_names_what_may_be_to_blame(driver: FakeDriver) -> None:
    program = cuda.CudaProgram(SOURCE, LAUNCHES, OPTIONS)
    program.run(buffers())
    driver.fails = "cuStreamSynchronize"
    what, where = refused(program.device.synchronize)
    assert "one of the last may be to blame: kernel map0_64, 1 blocks" in what
    assert "kernel reduce1_64, 2 blocks of 128 threads; with LAMINA_DEBUG=1 each run" in what
    assert "run()" in where  # where it was waited for


def test_a_timed_run_is_waited_for(driver: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    """So the line is that of the run, as the message promises."""
    memory = SimpleNamespace(pointer=256, nbytes=64)
    monkeypatch.setattr(cuda, "Buffer", lambda size, device: memory)
    program = cuda.CudaProgram(SOURCE, LAUNCHES, OPTIONS)
    driver.fails = "cuStreamSynchronize"
    _, where = refused(lambda: program.run(buffers(), timed=2))
    assert "program.run(buffers(), timed=2)" in where


def test_what_was_waited_for_is_not_to_blame(driver: FakeDriver) -> None:
    program = cuda.CudaProgram(SOURCE, LAUNCHES, OPTIONS)
    program.run(buffers())
    program.device.synchronize()
    driver.fails = "cuStreamSynchronize"
    what, _ = refused(program.device.synchronize)
    assert "to blame" not in what


def test_a_refused_source_names_its_kernel_and_the_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    """Kernels are compiled in other threads, which have no line of the user's."""

    def refuse(source: str, arch: str) -> bytes:
        if "second" in source:  # NVRTC says what the last #line says
            *_, about = re.findall('#line 1 "(.*)"', source)
            raise CompileError(f"NVRTC, for {arch}: {about}(1): expected a ';'")
        return b"cubin"

    monkeypatch.setattr(nvrtc, "compile_source", refuse)
    monkeypatch.setitem(
        sys.modules, "cuda.bindings", SimpleNamespace(nvrtc=SimpleNamespace(nvrtcVersion=tuple))
    )
    options = replace(OPTIONS, cache_dir=str(tmp_path))
    what, where = refused(lambda: nvrtc.build(SOURCE, "sm_90a", options))
    assert what == "NVRTC, for sm_90a: kernel reduce1_64(1): expected a ';'"
    assert "nvrtc.build(SOURCE" in where
