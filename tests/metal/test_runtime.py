"""How the runtime speaks to Apple's classes, and that the stand-in accepts nothing else."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import lamina as lm
from lamina import Tensor
from lamina.cli import Row, doctor
from lamina.core import options
from lamina.errors import (
    CompileError,
    DeviceError,
    OutOfMemoryError,
    UnknownDeviceError,
)
from lamina.explain.report import profile
from lamina.runtime import metal
from lamina.runtime.buffer import Buffer, Launch, heap_of
from lamina.runtime.source import KERNELS, Source
from tests.msl import fake
from tests.msl.emulator import MslError
from tests.msl.fake import FakeError


@pytest.fixture
def device() -> metal.Device:
    found = heap_of("metal")
    assert isinstance(found, metal.Device)
    return found


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of what is sent to encoders and command buffers."""
    names: list[str] = []

    def noted(owner: type, name: str) -> None:
        method = getattr(owner, name)

        def noting(self: Any, *arguments: Any) -> Any:
            names.append(name)
            return method(self, *arguments)

        monkeypatch.setattr(owner, name, noting)

    noted(fake.CommandBuffer, "commit")
    noted(fake.ComputeCommandEncoder, "executeCommandsInBuffer_withRange_")
    noted(fake.IndirectComputeCommand, "concurrentDispatchThreadgroups_threadsPerThreadgroup_")
    return names


def chain(x: Tensor) -> Tensor:
    """Three kernels."""
    return lm.cumulative_sum(lm.softmax(x, axis=1) + 1.0, axis=0).sum(axis=1)


def test_one_command_buffer_for_a_program(sent: list[str]) -> None:
    lm.empty_cache("metal")
    x = Tensor(np.ones((3, 4), np.float32)).realize()
    chain(x).realize()
    assert sent.count("commit") == 1
    assert sent.count("executeCommandsInBuffer_withRange_") == 1
    assert sent.count("concurrentDispatchThreadgroups_threadsPerThreadgroup_") >= 2


def test_what_runs_again_on_the_same_memory_is_recorded(sent: list[str]) -> None:
    step = lm.jit(chain)
    array = np.random.default_rng(0).random((3, 4), np.float32)
    x = Tensor(array).realize()
    want = chain(Tensor(array, device="cpu")).numpy()
    lm.empty_cache("metal")
    with options.using(device="metal"):
        for _ in range(5):
            np.testing.assert_allclose(step(x).numpy(), want, 1e-5)
    assert sent.count("executeCommandsInBuffer_withRange_") >= 5
    recorded = sent.count("concurrentDispatchThreadgroups_threadsPerThreadgroup_")
    assert 2 <= recorded <= 4 * 3  # once for each layout, whatever the number of calls
    sent.clear()
    lm.empty_cache("metal")  # the addresses may be other blocks' now
    np.testing.assert_allclose(step(x).numpy(), want, 1e-5)
    assert sent.count("concurrentDispatchThreadgroups_threadsPerThreadgroup_") >= 2


def test_a_recorded_program_with_more_arrays_than_buffers() -> None:
    arrays = [np.full(5, number, np.float32) for number in range(40)]
    tensors = [Tensor(one).realize() for one in arrays]

    @lm.jit
    def total() -> Tensor:
        result = tensors[0]
        for one in tensors[1:]:
            result = result + one
        return result

    for _ in range(4):
        np.testing.assert_allclose(total().numpy(), sum(arrays))


def test_nothing_waits_until_the_host_looks(device: metal.Device) -> None:
    device.synchronize()
    x = Tensor(np.ones(4, np.float32)).realize()
    y = (x + 1.0).realize()
    assert len(device.running) == 1
    np.testing.assert_array_equal(y.numpy(), np.full(4, 2.0))
    assert not device.running
    for _ in range(100):
        y = (y + 1.0).realize()
    assert len(device.running) < 64  # a queue has no more
    np.testing.assert_array_equal(y.numpy(), np.full(4, 102.0))


def test_memory_is_shared_with_the_host(device: metal.Device) -> None:
    buffer = Buffer(64, "metal")
    address, _ = np.frombuffer(buffer.view(), np.uint8).__array_interface__["data"]
    block = device.blocks[buffer.pointer]
    assert address == buffer.pointer == block._address
    assert buffer.on_host() is buffer
    assert Buffer.staging(64, "metal").device == "metal"
    there = Tensor([1.0, 2.0]).to("cpu")
    assert there.device == "cpu"
    np.testing.assert_array_equal(there.to("metal").numpy(), [1.0, 2.0])


def test_memory_is_counted_reused_and_returned(device: metal.Device) -> None:
    lm.empty_cache("metal")
    one = Buffer(1 << 20, "metal")
    address, blocks = one.pointer, len(device.blocks)
    del one
    assert lm.memory_stats("metal")["cached"] >= 1 << 20
    assert Buffer(1 << 20, "metal").pointer == address
    lm.empty_cache("metal")
    assert len(device.blocks) < blocks
    with pytest.raises(OutOfMemoryError, match="metal: no room"):
        Buffer(fake.LARGEST * 2, "metal")


def test_times_are_the_gpus() -> None:
    with profile() as records:
        chain(Tensor(np.ones((3, 4), np.float32))).realize()
    assert len(records) >= 2
    assert all(0 < one.seconds < 10 for one in records)


def test_each_source_is_compiled_once_and_as_it_must_be(device: metal.Device) -> None:
    built = device.gpu._built
    lm.exp(Tensor([1.0, 2.0, 3.0]) * 3.25).realize()
    count = len(built)
    lm.exp(Tensor([4.0, 5.0, 6.0]) * 3.25).realize()
    assert len(built) == count
    assert built[-1][1] == {"FastMathEnabled": False, "LanguageVersion": (3 << 16) + 1}


def test_a_complaint_of_the_compiler_says_where(device: metal.Device) -> None:
    (Tensor([1.0]) + 1.0).realize()
    prelude, _, body = device.gpu._built[-1][0].partition(f"\n{KERNELS}\n")
    broken = Source(prelude, {"map0_1": body.replace("EACH_THREAD(u32", "EACH_THREAD(u33")})
    with pytest.raises(CompileError, match=r"(?s)metal: kernel map0_1:\d+:.*u33.*\(u33\)\(B"):
        device.library(broken)
    broken = Source(prelude.replace("typedef float f32;", "typedef flat f32;"), {"map0_1": body})
    with pytest.raises(CompileError, match=r"(?s)metal: .*:\d+:.*flat"):
        device.library(broken)


def test_a_refused_command_buffer_names_its_kernels(device: metal.Device) -> None:
    x = Tensor([1.0]).realize()
    device.synchronize()
    device.gpu._refusal = "the GPU hangs"
    with pytest.raises(DeviceError, match="metal: the GPU hangs; it ran map0_1"):
        (x + 1.0).numpy()
    np.testing.assert_array_equal((x + 2.0).numpy(), [3.0])


def test_a_program_without_kernels() -> None:
    program = metal.MetalProgram(Source("#include <metal_stdlib>\n"), (), options.current())
    assert program.run([]) == program.run([], 0) == []


def test_the_survey(device: metal.Device) -> None:
    assert Row("metal", "an emulated GPU, 8 GiB") in doctor()
    assert "metal" in lm.__array_namespace_info__().devices()
    with pytest.raises(UnknownDeviceError, match="there are metal"):
        Tensor([1.0], device="metal:1")


# The stand-in.


@pytest.fixture
def apple() -> Iterator[SimpleNamespace]:
    """The module, a device of its own, and a kernel's pipeline and buffer."""
    with fake.installed() as modules:
        metal_ = modules.Metal
        gpu = metal_.MTLCreateSystemDefaultDevice()
        options_ = metal_.MTLCompileOptions.alloc().init()
        library, _ = gpu.newLibraryWithSource_options_error_(KERNEL, options_, None)
        descriptor = metal_.MTLComputePipelineDescriptor.alloc().init()
        descriptor.setComputeFunction_(library.newFunctionWithName_("fill"))
        make = gpu.newComputePipelineStateWithDescriptor_options_reflection_error_
        pipeline_, _ = make(descriptor, 0, None, None)
        yield SimpleNamespace(
            metal=metal_, gpu=gpu, queue=gpu.newCommandQueue(), pipeline=pipeline_,
            buffer=gpu.newBufferWithLength_options_(256, 0), library=library,
        )  # fmt: skip


KERNEL = """#include <metal_stdlib>
using namespace metal;
[[max_total_threads_per_threadgroup(64)]]
kernel void fill(device float *out [[buffer(0)]], uint i [[thread_position_in_grid]]) {
    out[i] = 1.0f;
}
"""


def encoded(apple: SimpleNamespace, groups: int = 1, bound: bool = True) -> Any:
    """A command buffer with one dispatch, whose encoder is still open."""
    commands = apple.queue.commandBuffer()
    encoder = commands.computeCommandEncoder()
    encoder.setComputePipelineState_(apple.pipeline)
    if bound:
        encoder.setBuffer_offset_atIndex_(apple.buffer, 0, 0)
    size = apple.metal.MTLSizeMake
    encoder.dispatchThreadgroups_threadsPerThreadgroup_(size(groups, 1, 1), size(64, 1, 1))
    return commands, encoder


def test_a_dispatch_runs_when_it_is_waited_for(apple: SimpleNamespace) -> None:
    commands, encoder = encoded(apple)
    encoder.endEncoding()
    commands.commit()
    memory = np.frombuffer(apple.buffer.contents().as_buffer(256), np.float32)
    assert (memory != 1.0).all()
    commands.waitUntilCompleted()
    assert (memory == 1.0).all()


def misuses() -> dict[str, Callable[[SimpleNamespace], object]]:
    def early(apple: SimpleNamespace) -> None:
        commands, _ = encoded(apple)
        commands.commit()

    def twice(apple: SimpleNamespace) -> None:
        commands, encoder = encoded(apple)
        encoder.endEncoding()
        commands.commit()
        commands.commit()

    def ended(apple: SimpleNamespace) -> None:
        _, encoder = encoded(apple)
        encoder.endEncoding()
        encoder.setComputePipelineState_(apple.pipeline)

    def outside(apple: SimpleNamespace) -> None:
        commands, encoder = encoded(apple, groups=2)
        encoder.endEncoding()
        commands.commit()
        commands.waitUntilCompleted()

    def command(apple: SimpleNamespace, register: bool = False) -> Any:
        make = apple.metal.MTLIndirectCommandBufferDescriptor
        descriptor = make.alloc().init()
        descriptor.setCommandTypes_(32)
        descriptor.setInheritBuffers_(False)
        descriptor.setInheritPipelineState_(False)
        descriptor.setMaxKernelBufferBindCount_(1)
        new = apple.gpu.newIndirectCommandBufferWithDescriptor_maxCommandCount_options_
        return new(descriptor, 1, 0).indirectComputeCommandAtIndex_(0)

    size = lambda apple: apple.metal.MTLSizeMake(1, 1, 1)  # noqa: E731
    commands = lambda apple: apple.queue.commandBuffer()  # noqa: E731
    return {
        "does not answer to 'newBuffer:'": lambda apple: apple.gpu.newBuffer_(4),
        "missing 1 required positional": lambda apple: apple.gpu.newBufferWithLength_options_(4),
        "does not answer to 'setFastMath:'": lambda apple: (
            apple.metal.MTLCompileOptions.alloc().init().setFastMath_(False)
        ),
        "the host reads and writes": lambda apple: apple.gpu.newBufferWithLength_options_(4, 16),
        "open encoder": early,
        "second one": twice,
        "the encoder has ended": ended,
        "wrote beside a buffer": outside,
        "no buffer is bound": lambda apple: encoded(apple, bound=False),
        "takes forever": lambda apple: commands(apple).waitUntilCompleted(),
        "has not completed": lambda apple: commands(apple).GPUStartTime(),
        "an encoder is open": lambda apple: [
            one.computeCommandEncoder() for one in [commands(apple)] * 2
        ],
        "two MTLSizes": lambda apple: encoded(apple)[1].dispatchThreadgroups_threadsPerThreadgroup_(
            (1, 1, 1), (1, 1, 1)
        ),
        "offset 512": lambda apple: encoded(apple)[1].setBuffer_offset_atIndex_(
            apple.buffer, 512, 0
        ),
        "no buffer 31": lambda apple: encoded(apple)[1].setBuffer_offset_atIndex_(
            apple.buffer, 0, 31
        ),
        "does not support indirect": lambda apple: command(apple).setComputePipelineState_(
            apple.pipeline
        ),
        "metadata has integers": lambda apple: command(
            apple
        ).concurrentDispatchThreadgroups_threadsPerThreadgroup_(size(apple), size(apple)),
        "made for 1 buffers": lambda apple: command(apple).setKernelBuffer_offset_atIndex_(
            apple.buffer, 0, 1
        ),
    }


@pytest.mark.parametrize("complaint", misuses())
def test_misuse_is_refused(apple: SimpleNamespace, complaint: str) -> None:
    with pytest.raises((FakeError, MslError, AttributeError, TypeError), match=complaint):
        misuses()[complaint](apple)


def test_a_launch_is_kept_as_it_is_given() -> None:
    launch = Launch("fill", 2, 64, ((0, 0),))
    program = metal.MetalProgram(Source(KERNEL), (launch,), options.current())
    buffer = Buffer(512, "metal")
    for _ in range(3):
        buffer.view()[:] = bytes(512)
        program.run([buffer])
        assert (np.frombuffer(buffer.view(), np.float32) == 1.0).all()


def test_without_a_mac(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "Metal", None)
    remedy = "on a Mac, pip install 'lamina[metal]'"
    assert Row("metal", "emulator: yes, hardware: no", False, remedy) in doctor()
