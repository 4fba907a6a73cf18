"""Compiled programs over the memory of PyTorch's tensors, on each kind of device.

A runner is called with the tensors of a program's numbered inputs, the ones it writes included.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import torch

from lamina.core.options import Options
from lamina.frontend.program import use_of
from lamina.interop.torch.direct import Job, Made, Run, direct
from lamina.ir.node import Node
from lamina.runtime.buffer import ALIGNMENT, Buffer, heap_of
from lamina.runtime.profile import counter, runs

if TYPE_CHECKING:
    from lamina.runtime.cpu import CpuProgram
    from lamina.runtime.cuda import CudaProgram, Device


@dataclass(frozen=True)
class Code:
    """What a runner runs. sinks: assignments to the memory of numbered inputs. count: of these
    inputs. constants: more inputs after them."""

    sinks: tuple[Node, ...]
    count: int
    constants: list[Buffer]


class Interpreted:
    """A program for the reference interpreter."""

    kernels = 0

    def __init__(self, code: Code) -> None:
        self._code = code

    def __call__(self, tensors: Sequence[torch.Tensor]) -> None:
        from lamina.pipeline import execute

        execute(self._code.sinks, [*_wrapped(tensors, "interp"), *self._code.constants], "interp")


def _wrapped(tensors: Sequence[torch.Tensor], device: str) -> list[Buffer]:
    return [Buffer.wrap(one.data_ptr(), one.nbytes, device, one) for one in tensors]


class _Compiled:
    """A program that was compiled for the device of `options`. kernels: how many a call runs."""

    def __init__(self, code: Code, options: Options) -> None:
        from lamina import pipeline

        self.options = options
        self._compiled = pipeline.compile_sinks(code.sinks, options)
        self.kernels = len(self._compiled.program.steps)
        self._code = code
        self._is_watched = options.debug > 0 or options.check
        self._use = use_of(pipeline.compile_sinks, code.sinks, options)
        self._run = pipeline.run_compiled

    def _run_watched(self, tensors: Sequence[torch.Tensor]) -> None:
        """With records, checks and lines on standard error, as the options ask."""
        buffers = _wrapped(tensors, self.options.device)
        self._run(self._compiled, [*buffers, *self._code.constants], self.options)


class OnCpu(_Compiled):
    """A program for the CPU, which reads its addresses in a list, a job."""

    def __call__(self, tensors: Sequence[torch.Tensor]) -> None:
        if self._is_watched or runs:
            self._run_watched(tensors)
            return
        job = self._job()
        arena = self._compiled.program.arena
        scratch = Buffer(arena) if arena else None
        if scratch is not None:
            job.words[job.arena] = scratch.pointer
        for place, tensor in zip(job.places, tensors, strict=True):
            for number in place:
                job.words[number] = tensor.data_ptr()
        counter.kernels += self.kernels
        self._cpu_program.call(job.words)

    def direct(self, results: Sequence[Made]) -> Run | None:
        """The same in the fewest steps, from the tensors that are read to `results`; None where the
        options ask for records of each call."""
        if self._is_watched:
            return None
        job = self._job()
        names = {"jobs": [job.words], "new_job": lambda: self._job().words,
                 "call": self._cpu_program.call,
                 "watched": lambda read: self._made(read, results)}  # fmt: skip
        arena, inputs = self._compiled.program.arena, self._code.count - len(results)
        return direct(job, arena, inputs, results, self.kernels, names)

    def _made(self, read: Sequence[torch.Tensor], results: Sequence[Made]) -> list[torch.Tensor]:
        written = [
            torch.empty_strided(one.sizes, one.strides, dtype=one.dtype) for one in results
        ]
        self([*read, *written])
        return written

    @property
    def _cpu_program(self) -> CpuProgram:
        return cast("CpuProgram", self._compiled.code)

    def _job(self) -> Job:
        """Addresses come in the order scratch memory, results, inputs. Each result is the memory of
        an input, to which it is assigned."""
        outputs, count = self._compiled.program.outputs, self._code.count
        nothing = Buffer(0)
        table = [nothing] * (1 + len(outputs) + count) + self._code.constants
        words = self._cpu_program.job(table)
        arena = len(words) - len(self._code.constants) - count - len(outputs) - 1
        first = arena + 1 + len(outputs)
        places = [[first + number] for number in range(count)]
        for number, slot in enumerate(outputs):
            places[slot.number].append(arena + 1 + number)
        return Job(words, arena, [tuple(place) for place in places])


class OnGpu(_Compiled):
    """A program for an NVIDIA GPU. It runs on PyTorch's current stream and takes its scratch memory
    from PyTorch's allocator, so that it is in order with PyTorch's own kernels, and is recorded
    where PyTorch records a graph."""

    def __init__(self, code: Code, options: Options, place: torch.device) -> None:
        super().__init__(code, options)
        self._place = place
        self._written = [slot.number for slot in self._compiled.program.outputs]
        self._constants = [buffer.pointer for buffer in code.constants]
        if self._constants:
            heap_of(options.device).synchronize()  # they are read on another stream than they came

    def __call__(self, tensors: Sequence[torch.Tensor]) -> None:
        index = self._place.index
        if torch.cuda.current_device() != index:
            with torch.cuda.device(index):
                self(tensors)
            return
        tensors = [_aligned(tensor) for tensor in tensors]
        stream = torch._C._cuda_getCurrentRawStream(index)
        if self._is_watched or runs:
            device = cast("Device", heap_of(self.options.device))
            device.follow(stream)
            self._run_watched(tensors)
            device.lead(stream)
            return
        scratch = torch.empty(self._compiled.program.arena, dtype=torch.uint8, device=self._place)
        inputs = [tensor.data_ptr() for tensor in tensors]
        results = [inputs[number] for number in self._written]
        counter.kernels += self.kernels
        cast("CudaProgram", self._compiled.code).run_on(
            stream, (scratch.data_ptr(), *results, *inputs, *self._constants),
            torch.cuda.is_current_stream_capturing(),
        )  # fmt: skip


def _aligned(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, or a copy if the first element is not at a multiple of 64 bytes, as it is in
    ``x[1:]``. What a program writes was made by PyTorch's allocator, whose multiples are 512."""
    return tensor.clone() if tensor.data_ptr() % ALIGNMENT else tensor
