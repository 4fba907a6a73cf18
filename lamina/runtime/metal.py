"""Apple's GPUs through PyObjC: memory that the host shares, libraries, pipelines and commands.

A program is one command buffer, in which one kernel waits for the one before; the buffers of one
queue run in their order. Nothing waits for them until the host looks at memory, so a block that is
freed may serve the next program at once. When a program runs on the same memory again, its kernels
are recorded in an indirect command buffer, and later runs are one command each.

Never run on a Mac so far: the tests emulate Apple's classes and its language.
"""

from __future__ import annotations

import ctypes
import functools
import shutil
from array import array
from collections import deque
from collections.abc import Sequence
from typing import Any

from lamina.errors import CompileError, DeviceError, UnknownDeviceError
from lamina.options import Options
from lamina.runtime.buffer import Buffer, Heap, Launch, heap_of
from lamina.runtime.compiler import complaint

MOST_BUFFERS = 31  # that a kernel can have
TABLE = 30  # where a kernel has more arrays: the buffer with the addresses of those from here on
_IN_FLIGHT = 32  # command buffers that nobody has waited for; a queue holds 64
_LAYOUTS = 8  # sets of addresses for which a program is recorded
Blocks = dict[int, Any]  # of memory, by the number of a buffer of a program
Recorded = tuple[Any, list[Buffer]]


def names() -> list[str]:
    """Raises UnknownDeviceError, with what to do, without PyObjC."""
    try:
        from Metal import MTLCreateSystemDefaultDevice
    except ImportError:
        emulator = "yes" if shutil.which("clang-19") else "no"
        what = f"metal: emulator: {emulator}, hardware: no; on a Mac, pip install 'lamina[metal]'"
        raise UnknownDeviceError(what) from None
    return ["metal"] if MTLCreateSystemDefaultDevice() is not None else []


class Device(Heap):
    """The GPU: its queue, its memory and what was compiled for it."""

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
        self.running = deque[tuple[Any, list[str], object]]()  # with names of kernels
        self.library = functools.lru_cache(maxsize=256)(self._library)
        super().__init__(self.gpu.recommendedMaxWorkingSetSize() // 2, "metal")

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

    def submit(self, commands: Any, kernels: list[str], held: object) -> None:
        """Start a command buffer, and wait for old ones where there are many. What it uses is
        `held` until it has ended."""
        commands.commit()
        self.running.append((commands, kernels, held))
        self.synchronize(_IN_FLIGHT)

    def synchronize(self, left: int = 0) -> None:
        while len(self.running) > left:
            commands, kernels, _ = self.running.popleft()
            commands.waitUntilCompleted()
            if (error := commands.error()) is not None:
                what = f"metal: {error.localizedDescription()}; it ran {', '.join(kernels)}"
                raise DeviceError(what)

    def _library(self, source: str) -> Any:
        options = self.metal.MTLCompileOptions.alloc().init()
        options.setFastMathEnabled_(False)  # which would take NaN and infinities away
        options.setLanguageVersion_(self.metal.MTLLanguageVersion3_1)
        library, error = self.gpu.newLibraryWithSource_options_error_(source, options, None)
        if library is None:
            raise CompileError(f"metal: {complaint(str(error.localizedDescription()))}")
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


class MetalProgram:
    """The pipelines and the launches of a program. Raises CompileError, with the line, when
    Metal refuses its source."""

    def __init__(self, source: str, launches: Sequence[Launch], options: Options) -> None:
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
        # For each set of addresses nothing at first sight, and then what was recorded.
        self._seen = functools.lru_cache(_LAYOUTS)(lambda *addresses: list[Recorded | None]())

    def run(self, buffers: Sequence[Buffer], timed: int = 0) -> list[float]:
        """Launch the program; the seconds of each of its kernels where `timed` is their number."""
        device, every = self.device, range(len(self.launches))
        blocks = {number: device.blocks[buffers[number].pointer] for number in self._used}
        seconds: list[float] = []
        with device.pool():
            for number in every if timed else ():
                commands = self._submit(blocks, [number], None)
                device.synchronize()
                seconds.append(commands.GPUEndTime() - commands.GPUStartTime())
            if every and not timed:
                pointers = (buffers[number].pointer for number in self._used)
                seen = self._seen(device.released, *pointers)
                if len(seen) < 2:
                    seen.append(self._record(blocks) if seen else None)
                self._submit(blocks, every, seen[-1])
        return seconds

    def _submit(self, blocks: Blocks, numbers: Sequence[int], recorded: Recorded | None) -> Any:
        """Start a command buffer with the launches of these numbers, or with what was recorded."""
        device, (indirect, tables) = self.device, recorded or (None, [])
        commands = device.queue.commandBuffer()
        encoder = commands.computeCommandEncoder()
        both = device.metal.MTLResourceUsageRead | device.metal.MTLResourceUsageWrite
        for block in (*blocks.values(), *(device.blocks[one.pointer] for one in tables)):
            encoder.useResource_usage_(block, both)
        for number in numbers if indirect is None else ():
            encoder.setComputePipelineState_(self._pipelines[number])
            for index, (block, offset) in enumerate(self._arguments(blocks, number, tables)):
                encoder.setBuffer_offset_atIndex_(block, offset, index)
            encoder.dispatchThreadgroups_threadsPerThreadgroup_(*self._sizes[number])
        if indirect is not None:
            encoder.executeCommandsInBuffer_withRange_(indirect, (0, len(numbers)))
        encoder.endEncoding()
        device.submit(commands, [self.launches[one].name for one in numbers], (blocks, recorded))
        return commands

    def _arguments(self, blocks: Blocks, number: int, tables: list[Buffer]) -> list[Any]:
        """What a launch binds. A table of addresses is added to `tables`."""
        places = [(blocks[place], offset) for place, offset in self.launches[number].arguments]
        if len(places) > MOST_BUFFERS:
            addresses = [block.gpuAddress() + offset for block, offset in places[TABLE:]]
            table = Buffer(8 * len(addresses), self.device.name)
            table.view()[:] = memoryview(array("Q", addresses)).cast("B")
            tables.append(table)
            places[TABLE:] = [(self.device.blocks[table.pointer], 0)]
        return places

    def _record(self, blocks: Blocks) -> Recorded:
        """An indirect command buffer that runs the program on `blocks`, and its tables."""
        device, tables = self.device, list[Buffer]()
        descriptor = device.metal.MTLIndirectCommandBufferDescriptor.alloc().init()
        descriptor.setCommandTypes_(device.metal.MTLIndirectCommandTypeConcurrentDispatch)
        descriptor.setInheritBuffers_(False)
        descriptor.setInheritPipelineState_(False)
        descriptor.setMaxKernelBufferBindCount_(MOST_BUFFERS)
        make = device.gpu.newIndirectCommandBufferWithDescriptor_maxCommandCount_options_
        indirect = make(descriptor, len(self.launches), device.metal.MTLResourceStorageModeShared)
        for number, pipeline in enumerate(self._pipelines):
            command = indirect.indirectComputeCommandAtIndex_(number)
            command.setComputePipelineState_(pipeline)
            for index, (block, offset) in enumerate(self._arguments(blocks, number, tables)):
                command.setKernelBuffer_offset_atIndex_(block, offset, index)
            command.setBarrier()  # it waits for the commands before it
            command.concurrentDispatchThreadgroups_threadsPerThreadgroup_(*self._sizes[number])
        return indirect, tables
