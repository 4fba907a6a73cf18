"""Apple's GPUs through PyObjC: memory that the host shares, libraries, pipelines and commands.

A program is one command buffer, in which one kernel waits for the one before; the buffers of one
queue run in their order. Nothing waits for them until the host looks at memory, so a block that is
freed may serve the next program at once. For the memory that it runs on, a program is recorded in
an indirect command buffer, so that a run is one command.

Never run on a Mac so far: the tests emulate Apple's classes and its language.
"""

import ctypes
import functools
import shutil
from array import array
from collections import deque
from collections.abc import Sequence
from typing import Any

from lamina.core.options import Options
from lamina.errors import CompileError, CompilerNotFoundError, DeviceError, UnknownDeviceError
from lamina.runtime.buffer import NOTHING, Buffer, Heap, Launch, heap_of
from lamina.runtime.compiler import complaint
from lamina.runtime.source import Source

TABLE = 30  # the last buffer that a kernel can have, with the addresses of the arrays from there on
_IN_FLIGHT = 32  # command buffers that nobody has waited for; a queue holds 64
_LAYOUTS = 8  # sets of addresses for which a program is recorded
Recorded = tuple[Any, list[Any], list[Buffer]]  # commands, the blocks they use, their tables


def names() -> list[str]:
    """Raises UnknownDeviceError, with what to do, without PyObjC."""
    try:
        from Metal import MTLCreateSystemDefaultDevice
    except ImportError:
        emulator = "yes" if shutil.which("clang-19") else "no"
        raise UnknownDeviceError(
            f"emulator: {emulator}, hardware: no",
            operation="metal",
            remedy="on a Mac, pip install 'lamina[metal]'",
        ) from None
    return ["metal"] if MTLCreateSystemDefaultDevice() is not None else []


class Device(Heap):
    """The GPU: its queue, its memory and what was compiled for it."""

    dlpack = None

    def __init__(self, number: int) -> None:
        import Metal
        import objc

        self.metal, self.pool = Metal, objc.autorelease_pool
        size = {"type": b"{MTLSize=QQQ}"}  # PyObjC 12 has integers there
        objc.registerMetaDataForSelector(
            b"NSObject", b"concurrentDispatchThreadgroups:threadsPerThreadgroup:",
            {"arguments": {2: size, 3: size}},
        )  # fmt: skip
        self.gpu = Metal.MTLCreateSystemDefaultDevice()
        self.queue = self.gpu.newCommandQueue()
        self.blocks: dict[int, Any] = {}  # of memory, by address
        self.released = 0  # blocks, whose addresses others may have now
        # Command buffers, with the names of kernels, and what must stay until they have ended.
        self.running = deque[tuple[Any, list[str], object]]()
        limit = self.gpu.recommendedMaxWorkingSetSize() // 2
        super().__init__(limit, "metal")

    def __str__(self) -> str:
        return f"{self.gpu.name()}, {self.gpu.recommendedMaxWorkingSetSize() / 2**30:.0f} GiB"

    def reserve(self, size: int) -> int:
        block = self.gpu.newBufferWithLength_options_(size, self.metal.MTLResourceStorageModeShared)
        if block is None:
            return 0
        pointer = ctypes.addressof(ctypes.c_char.from_buffer(block.contents().as_buffer(size)))
        self.blocks[pointer] = block
        return pointer

    def release(self, pointer: int) -> None:
        self.released += 1
        del self.blocks[pointer]

    def synchronize(self, left: int = 0) -> None:
        while len(self.running) > left:
            commands, kernels, _ = self.running.popleft()
            commands.waitUntilCompleted()
            if (error := commands.error()) is not None:
                what = f"metal: {error.localizedDescription()}; it ran {', '.join(kernels)}"
                raise DeviceError(what)

    def library(self, source: Source) -> Any:
        options = self.metal.MTLCompileOptions.alloc().init()
        options.setFastMathEnabled_(False)  # which would take NaN and infinities away
        options.setLanguageVersion_(self.metal.MTLLanguageVersion3_1)
        library, error = self.gpu.newLibraryWithSource_options_error_(source.text, options, None)
        if library is None:
            log = str(error.localizedDescription())
            raise CompileError(f"metal: {complaint(log)}")
        return library

    def pipeline(self, library: Any, launch: Launch) -> Any:
        """What runs a kernel of a library, also from an indirect command buffer."""
        descriptor = self.metal.MTLComputePipelineDescriptor.alloc().init()
        descriptor.setComputeFunction_(library.newFunctionWithName_(launch.name))
        descriptor.setSupportIndirectCommandBuffers_(True)
        make = self.gpu.newComputePipelineStateWithDescriptor_options_reflection_error_
        pipeline, error = make(descriptor, 0, None, None)
        if pipeline is None:
            raise CompileError(f"metal: {launch}: {error.localizedDescription()}")
        return pipeline


def no_compiler(source: Source, arch: str, options: Options) -> dict[str, bytes]:
    """Refuse to compile without a GPU: Apple's compiler is reached through the GPU's driver."""
    raise CompilerNotFoundError("metal: the compiler is part of the driver; run on a Mac")


class MetalProgram:
    """The pipelines and the launches of a program. Raises CompileError, with the line and the
    kernel, when Metal refuses its source."""

    def __init__(self, source: Source, launches: Sequence[Launch], options: Options) -> None:
        device = heap_of(options.device)
        assert isinstance(device, Device)
        self.device, self.launches = device, launches
        with device.pool():
            library = device.library(source)
            get = functools.cache(functools.partial(device.pipeline, library))
            self._pipelines = [get(launch._replace(arguments=())) for launch in launches]
        size = device.metal.MTLSizeMake
        self._sizes = [(size(one.blocks, 1, 1), size(one.threads, 1, 1)) for one in launches]
        self._used = sorted({number for one in launches for number, _ in one.arguments})
        self._recorded = functools.lru_cache(_LAYOUTS)(self._record)

    def arena(self, nbytes: int) -> Buffer:
        """Memory for the scratch arrays of a run, `nbytes` bytes."""
        return Buffer(nbytes, self.device.name) if nbytes else NOTHING

    def run(self, buffers: Sequence[Buffer], timed: int = 0) -> list[float]:
        """Launch the program; the seconds of each of its kernels where `timed` is their number."""
        if not self.launches:
            return []
        device, seconds = self.device, list[float]()
        with device.pool():
            pointers = (buffers[number].pointer for number in self._used)
            recorded = self._recorded(device.released, *pointers)
            if not timed:
                self._submit(recorded, self.launches)
            for number in range(timed):
                commands = self._submit(recorded, self.launches[number : number + 1], number)
                device.synchronize()
                seconds.append(commands.GPUEndTime() - commands.GPUStartTime())
        return seconds

    def _submit(self, recorded: Recorded, launches: Sequence[Launch], first: int = 0) -> Any:
        """Start a command buffer with these launches, of which the `first` has that number."""
        device, (indirect, blocks, _) = self.device, recorded
        commands = device.queue.commandBuffer()
        encoder = commands.computeCommandEncoder()
        both = device.metal.MTLResourceUsageRead | device.metal.MTLResourceUsageWrite
        for block in blocks:
            encoder.useResource_usage_(block, both)
        encoder.executeCommandsInBuffer_withRange_(indirect, (first, len(launches)))
        encoder.endEncoding()
        commands.commit()
        device.running.append((commands, [one.name for one in launches], recorded))
        device.synchronize(_IN_FLIGHT)
        return commands

    def _record(self, released: int, *pointers: int) -> Recorded:
        """An indirect command buffer that runs the program on the blocks at these addresses. Once
        more were `released`, other blocks may be there."""
        device, tables = self.device, list[Buffer]()
        used = [device.blocks[one] for one in pointers]
        blocks = dict(zip(self._used, used, strict=True))
        descriptor = device.metal.MTLIndirectCommandBufferDescriptor.alloc().init()
        descriptor.setCommandTypes_(device.metal.MTLIndirectCommandTypeConcurrentDispatch)
        descriptor.setInheritBuffers_(False)
        descriptor.setInheritPipelineState_(False)
        descriptor.setMaxKernelBufferBindCount_(TABLE + 1)
        make = device.gpu.newIndirectCommandBufferWithDescriptor_maxCommandCount_options_
        indirect = make(descriptor, len(self.launches), device.metal.MTLResourceStorageModeShared)
        for number, launch in enumerate(self.launches):
            places = [(blocks[place], offset) for place, offset in launch.arguments]
            if len(places) > TABLE:
                addresses = [block.gpuAddress() + offset for block, offset in places[TABLE:]]
                tables.append(Buffer(8 * len(addresses), device.name))
                tables[-1].view()[:] = memoryview(array("Q", addresses)).cast("B")
                used.append(device.blocks[tables[-1].pointer])
                places[TABLE:] = [(used[-1], 0)]
            command = indirect.indirectComputeCommandAtIndex_(number)
            command.setComputePipelineState_(self._pipelines[number])
            for index, (block, offset) in enumerate(places):
                command.setKernelBuffer_offset_atIndex_(block, offset, index)
            command.setBarrier()  # it waits for the commands before it
            command.concurrentDispatchThreadgroups_threadsPerThreadgroup_(*self._sizes[number])
        return indirect, used, tables
