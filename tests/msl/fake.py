"""A strict stand-in for the Metal package of PyObjC, whose kernels run in the emulator.

It has the classes and the selectors that lamina sends, each with its number of arguments and the
results that PyObjC's metadata give it (version 12.2). Anything else raises: a selector that is not
there, a call out of its order, a size that is no MTLSize, memory that was not made resident.

What was committed runs when someone waits for it, not before, so that a host that looks too early
finds garbage. Commands of an indirect buffer that no barrier orders run in any order.

Between the two ends of `installed()`, `import Metal` and `import objc` find it.
"""

from __future__ import annotations

import contextlib
import ctypes
import random
import sys
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from lamina.runtime.buffer import _heaps
from tests.msl import emulator
from tests.msl.emulator import MslError

GUARD = 256  # bytes around each buffer that no kernel may change
LARGEST = 1 << 33  # bytes of one buffer
_GARBAGE, _FENCE = 0xCD, 0xA5
_DISPATCH = b"concurrentDispatchThreadgroups:threadsPerThreadgroup:"
_SIZE = b"{MTLSize=QQQ}"


class FakeError(Exception):
    """Metal would refuse this, or do what nobody wants; the text says which rule it breaks."""


class MTLSize(NamedTuple):
    """The size of a grid or of a threadgroup."""

    width: int
    height: int
    depth: int


class _Object:
    """Answers to the selectors below and to no other."""

    def __getattr__(self, name: str) -> Any:
        selector = name.replace("_", ":")
        raise AttributeError(f"MTL{type(self).__name__} does not answer to {selector!r}")


class Error(_Object):
    def __init__(self, text: str) -> None:
        self._text = text

    def localizedDescription(self) -> str:  # noqa: N802
        return self._text


class _Descriptor(_Object):
    """What `setX:` was given is what `X` answers; `_known` has the properties."""

    _known: tuple[str, ...] = ()

    @classmethod
    def alloc(cls) -> _Descriptor:
        made = cls()
        made._values: dict[str, Any] = {}
        return made

    def init(self) -> _Descriptor:
        return self

    def __getattr__(self, name: str) -> Any:
        property_ = name[3:-1] if name.startswith("set") and name.endswith("_") else ""
        if property_ not in self._known:
            return super().__getattr__(name)
        return lambda value: self._values.update({property_: value})


class CompileOptions(_Descriptor):
    _known = ("FastMathEnabled", "LanguageVersion")


class ComputePipelineDescriptor(_Descriptor):
    _known = ("ComputeFunction", "SupportIndirectCommandBuffers", "Label")


class IndirectCommandBufferDescriptor(_Descriptor):
    _known = ("CommandTypes", "InheritBuffers", "InheritPipelineState", "MaxKernelBufferBindCount")


class _VarList:
    """objc.varlist: memory of unknown length."""

    def __init__(self, memory: ctypes.Array[ctypes.c_char]) -> None:
        self._memory = memory

    def as_buffer(self, length: int) -> memoryview:
        if length > len(self._memory) - 2 * GUARD:
            raise FakeError(f"{length} bytes of a buffer of {len(self._memory) - 2 * GUARD}")
        return memoryview(self._memory).cast("B")[GUARD : GUARD + length]


class Buffer(_Object):
    def __init__(self, length: int) -> None:
        self._length = length
        self._whole = ctypes.create_string_buffer(length + 3 * GUARD)
        start = -ctypes.addressof(self._whole) % GUARD  # what Metal returns is aligned
        self._memory = (ctypes.c_char * (length + 2 * GUARD)).from_buffer(self._whole, start)
        ctypes.memset(self._memory, _FENCE, length + 2 * GUARD)
        ctypes.memset(self._address, _GARBAGE, length)

    @property
    def _address(self) -> int:
        return ctypes.addressof(self._memory) + GUARD

    def _check(self) -> None:
        for at in (0, GUARD + self._length):
            if self._memory[at : at + GUARD] != bytes([_FENCE]) * GUARD:
                raise MslError("a kernel wrote beside a buffer")

    def contents(self) -> _VarList:
        return _VarList(self._memory)

    def gpuAddress(self) -> int:  # noqa: N802
        return self._address


class Function(_Object):
    def __init__(self, library: Library, name: str) -> None:
        self._library, self._name = library, name


class Library(_Object):
    def __init__(self, code: emulator.Library) -> None:
        self._code = code

    def newFunctionWithName_(self, name: str) -> Function | None:  # noqa: N802
        return Function(self, name) if name in self._code.kernels else None


class ComputePipelineState(_Object):
    def __init__(self, function: Function, indirect: bool) -> None:
        self._code, self._name, self._indirect = function._library._code, function._name, indirect


class _Bindings(_Object):
    """The state of an encoder, or of one indirect command."""

    def __init__(self) -> None:
        self._pipeline: ComputePipelineState | None = None
        self._bound: dict[int, tuple[Buffer, int]] = {}

    def _bind(self, buffer: Buffer, offset: int, index: int) -> None:
        if not isinstance(buffer, Buffer):
            raise FakeError(f"{buffer!r} is no buffer")
        if not 0 <= index < emulator.MOST_BUFFERS:
            raise FakeError(f"there is no buffer {index}")
        if not 0 <= offset < buffer._length or offset % 4:
            raise FakeError(f"offset {offset} into a buffer of {buffer._length} bytes")
        self._bound[index] = buffer, offset

    def _grid(self, groups: MTLSize, threads: MTLSize, seed: int) -> Callable[[], None]:
        """A function that runs what is bound now."""
        pipeline, bound = self._pipeline, dict(self._bound)
        if pipeline is None:
            raise FakeError("a dispatch without a pipeline")
        if not isinstance(groups, MTLSize) or not isinstance(threads, MTLSize):
            raise FakeError("a grid and a threadgroup are two MTLSizes")
        code, name = pipeline._code, pipeline._name
        emulator.check_launch(code.kernels[name], bound, groups, threads)
        addresses = {index: buffer._address + offset for index, (buffer, offset) in bound.items()}

        def run() -> None:
            code.launch(name, addresses, groups, threads, seed)
            for buffer, _ in bound.values():
                buffer._check()

        return run


class IndirectComputeCommand(_Bindings):
    def __init__(self, owner: IndirectCommandBuffer) -> None:
        super().__init__()
        self._owner, self._run, self._barrier = owner, None, False

    def _edit(self) -> None:
        if any(not one._done for one in self._owner._used_by):
            raise FakeError("an indirect command changes while the GPU may be running it")

    def setComputePipelineState_(self, pipeline: ComputePipelineState) -> None:  # noqa: N802
        self._edit()
        if not pipeline._indirect:
            raise FakeError("the pipeline does not support indirect command buffers")
        self._pipeline = pipeline

    def setKernelBuffer_offset_atIndex_(self, buffer: Buffer, offset: int, index: int) -> None:  # noqa: N802
        self._edit()
        if index >= self._owner._most_buffers:
            raise FakeError(f"the command buffer was made for {self._owner._most_buffers} buffers")
        self._bind(buffer, offset, index)

    def concurrentDispatchThreadgroups_threadsPerThreadgroup_(  # noqa: N802
        self, groups: MTLSize, threads: MTLSize
    ) -> None:
        self._edit()
        types = self._owner._device._metadata.get(_DISPATCH, {})
        if [types.get(number, {}).get("type") for number in (2, 3)] != [_SIZE, _SIZE]:
            raise FakeError("PyObjC's metadata has integers here; register that they are MTLSizes")
        self._run = self._grid(groups, threads, self._owner._device._seed())

    def setBarrier(self) -> None:  # noqa: N802
        self._barrier = True


class IndirectCommandBuffer(_Object):
    def __init__(self, device: Device, values: dict[str, Any], count: int) -> None:
        self._device, self._most_buffers = device, values["MaxKernelBufferBindCount"]
        self._commands = [IndirectComputeCommand(self) for _ in range(count)]
        self._used_by: list[CommandBuffer] = []

    def indirectComputeCommandAtIndex_(self, index: int) -> IndirectComputeCommand:  # noqa: N802
        return self._commands[index]

    def size(self) -> int:
        return len(self._commands)

    def _run(self, first: int, count: int) -> None:
        """Run commands, those between two barriers in any order."""
        together: list[Callable[[], None]] = []
        for number, command in enumerate(self._commands[first : first + count]):
            if command._barrier and number:
                self._device._random.shuffle(together)
                for run in together:
                    run()
                together = []
            assert command._run is not None
            together.append(command._run)
        for run in together:
            run()


class ComputeCommandEncoder(_Bindings):
    def __init__(self, owner: CommandBuffer) -> None:
        super().__init__()
        self._owner, self._resident = owner, set[Buffer]()

    def _open(self) -> None:
        if self._owner._encoder is not self:
            raise FakeError("the encoder has ended")

    def setComputePipelineState_(self, pipeline: ComputePipelineState) -> None:  # noqa: N802
        self._open()
        self._pipeline = pipeline

    def setBuffer_offset_atIndex_(self, buffer: Buffer, offset: int, index: int) -> None:  # noqa: N802
        self._open()
        self._bind(buffer, offset, index)

    def dispatchThreadgroups_threadsPerThreadgroup_(  # noqa: N802
        self, groups: MTLSize, threads: MTLSize
    ) -> None:
        self._open()
        self._owner._work.append(self._grid(groups, threads, self._owner._device._seed()))

    def useResource_usage_(self, resource: Buffer, usage: int) -> None:  # noqa: N802
        self._open()
        if usage != modules.Metal.MTLResourceUsageRead | modules.Metal.MTLResourceUsageWrite:
            raise FakeError("lamina's kernels read and write")
        self._resident.add(resource)

    def executeCommandsInBuffer_withRange_(  # noqa: N802
        self, commands: IndirectCommandBuffer, extent: tuple[int, int]
    ) -> None:
        self._open()
        first, count = extent
        if first < 0 or first + count > commands.size():
            raise FakeError(f"{extent} of {commands.size()} indirect commands")
        for command in commands._commands[first : first + count]:
            if command._run is None:
                raise FakeError("an indirect command that dispatches nothing")
            if not {buffer for buffer, _ in command._bound.values()} <= self._resident:
                raise FakeError("an indirect command uses a buffer that is not resident")
        commands._used_by.append(self._owner)
        self._owner._work.append(lambda: commands._run(first, count))

    def endEncoding(self) -> None:  # noqa: N802
        self._open()
        self._owner._encoder = None


class CommandBuffer(_Object):
    def __init__(self, device: Device) -> None:
        self._device = device
        self._work: list[Callable[[], None]] = []
        self._encoder: ComputeCommandEncoder | None = None
        self._committed = self._done = False
        self._times = 0.0, 0.0
        self._error: Error | None = None

    def computeCommandEncoder(self) -> ComputeCommandEncoder:  # noqa: N802
        if self._encoder or self._committed:
            raise FakeError("an encoder is open, or the command buffer was committed")
        self._encoder = ComputeCommandEncoder(self)
        return self._encoder

    def commit(self) -> None:
        if self._encoder or self._committed:
            raise FakeError("a commit with an open encoder, or a second one")
        self._committed = True
        self._device._pending.append(self)

    def waitUntilCompleted(self) -> None:  # noqa: N802
        if not self._committed:
            raise FakeError("waiting for what was not committed takes forever")
        while not self._done:
            self._device._pending.pop(0)._complete()

    def _complete(self) -> None:
        start = time.perf_counter()
        self._done = True
        if self._device._refusal:
            self._error, self._device._refusal = Error(self._device._refusal), ""
        else:
            for run in self._work:
                run()
        self._work.clear()
        self._times = start, time.perf_counter()

    def _finished(self) -> CommandBuffer:
        if not self._done:
            raise FakeError("the command buffer has not completed: wait for it")
        return self

    def error(self) -> Error | None:
        return self._finished()._error

    def GPUStartTime(self) -> float:  # noqa: N802
        return self._finished()._times[0]

    def GPUEndTime(self) -> float:  # noqa: N802
        return self._finished()._times[1]


class CommandQueue(_Object):
    def __init__(self, device: Device) -> None:
        self._device = device

    def commandBuffer(self) -> CommandBuffer:  # noqa: N802
        return CommandBuffer(self._device)


class Device(_Object):
    """The GPU. `_refusal` is what the next command buffer fails with; `_built` are the sources
    that were compiled, with their options."""

    def __init__(self) -> None:
        self._pending: list[CommandBuffer] = []
        self._metadata: dict[bytes, dict[int, dict[str, bytes]]] = modules.metadata
        self._random = random.Random(0)
        self._refusal = ""
        self._built: list[tuple[str, dict[str, Any]]] = []

    def _seed(self) -> int:
        return self._random.randrange(1 << 31)

    def name(self) -> str:
        return "an emulated GPU"

    def recommendedMaxWorkingSetSize(self) -> int:  # noqa: N802
        return LARGEST

    def newCommandQueue(self) -> CommandQueue:  # noqa: N802
        return CommandQueue(self)

    def newBufferWithLength_options_(self, length: int, options: int) -> Buffer | None:  # noqa: N802
        if options != modules.Metal.MTLResourceStorageModeShared:
            raise FakeError("the host reads and writes every buffer of lamina")
        return Buffer(length) if 0 < length <= LARGEST else None

    def newLibraryWithSource_options_error_(  # noqa: N802
        self, source: str, options: CompileOptions, error: None
    ) -> tuple[Library | None, Error | None]:
        self._built.append((source, dict(options._values)))
        try:
            return Library(emulator.Library(source)), None
        except MslError as refusal:
            return None, Error(str(refusal))

    def newComputePipelineStateWithDescriptor_options_reflection_error_(  # noqa: N802
        self, descriptor: ComputePipelineDescriptor, options: int, reflection: None, error: None
    ) -> tuple[ComputePipelineState | None, Error | None]:
        values = descriptor._values
        indirect = bool(values.get("SupportIndirectCommandBuffers"))
        return ComputePipelineState(values["ComputeFunction"], indirect), None

    def newIndirectCommandBufferWithDescriptor_maxCommandCount_options_(  # noqa: N802
        self, descriptor: IndirectCommandBufferDescriptor, count: int, options: int
    ) -> IndirectCommandBuffer:
        values = descriptor._values
        if values.get("InheritBuffers") is not False or values["InheritPipelineState"] is not False:
            raise FakeError("each command has a pipeline and buffers of its own")
        if values["CommandTypes"] != modules.Metal.MTLIndirectCommandTypeConcurrentDispatch:
            raise FakeError("the commands are dispatches of threadgroups")
        return IndirectCommandBuffer(self, values, count)


class Modules:
    """The modules `Metal` and `objc`, with a state of their own."""

    def __init__(self) -> None:
        self.metadata: dict[bytes, dict[int, dict[str, bytes]]] = {}
        self.pools = 0
        self.objc = SimpleNamespace(
            autorelease_pool=self._pool, registerMetaDataForSelector=self._register
        )
        self.Metal = SimpleNamespace(
            MTLCompileOptions=CompileOptions,
            MTLComputePipelineDescriptor=ComputePipelineDescriptor,
            MTLCreateSystemDefaultDevice=lambda: Device(),
            MTLIndirectCommandBufferDescriptor=IndirectCommandBufferDescriptor,
            MTLIndirectCommandTypeConcurrentDispatch=32,
            MTLLanguageVersion3_1=(3 << 16) + 1,
            MTLResourceStorageModeShared=0,
            MTLResourceUsageRead=1,
            MTLResourceUsageWrite=2,
            MTLSizeMake=MTLSize,
        )

    @contextlib.contextmanager
    def _pool(self) -> Iterator[None]:
        self.pools += 1
        yield

    def _register(self, owner: bytes, selector: bytes, metadata: dict[str, Any]) -> None:
        self.metadata[selector] = metadata["arguments"]


modules = Modules()


@contextlib.contextmanager
def installed() -> Iterator[Modules]:
    """Let lamina find an emulated GPU, with nothing left of one before."""
    modules.__init__()  # type: ignore[misc]
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "Metal", modules.Metal)
        patch.setitem(sys.modules, "objc", modules.objc)
        _heaps.pop("metal", None)
        yield modules
        _heaps.pop("metal", None)
