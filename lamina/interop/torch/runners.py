"""Compiled programs over the memory of PyTorch's tensors, on each kind of device.

A runner is called with the tensors of a program's numbered inputs, the ones it writes included.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import torch

from lamina.core.options import Options, current
from lamina.core.text import Text
from lamina.frontend.program import use_of
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
        from lamina.frontend.execution import execute

        execute(self._code.sinks, [*_wrapped(tensors, "interp"), *self._code.constants], "interp")


def _wrapped(tensors: Sequence[torch.Tensor], device: str) -> list[Buffer]:
    return [Buffer.wrap(one.data_ptr(), one.nbytes, device, one) for one in tensors]


@dataclass(frozen=True)
class _Written:
    """A program as a file holds it. device: that it is for. count: of its inputs. constants: their
    bytes."""

    program: dict[str, Any]
    device: str
    count: int
    constants: list[bytes]


def _filled(content: bytes, device: str) -> Buffer:
    buffer = Buffer.staging(len(content), device)
    buffer.view()[:] = content
    return buffer.sent(device)


class _Compiled:
    """A program that was compiled for the device of `options`. kernels: how many a call runs."""

    def __init__(self, code: Code, options: Options) -> None:
        from lamina.frontend.execution import compile_sinks

        self.options = options
        self._compiled = compile_sinks(code.sinks, options)
        self._constants = code.constants
        self._is_watched = options.debug > 0 or options.check
        self._use = use_of(compile_sinks, code.sinks, options)
        self._prepare(code.count)

    def __getstate__(self) -> _Written:
        from lamina import stored
        from lamina.compiled import stored_of

        program = stored.parts_of(stored_of(self._compiled))
        constants = [bytes(buffer.on_host().view()) for buffer in self._constants]
        return _Written(program, self.options.device, self._count, constants)

    def __setstate__(self, written: _Written) -> None:
        """A program that a file has, with the options of now. Reports know nothing of its kernels
        but their number."""
        from lamina import stored
        from lamina.compiled import planned_of, with_code

        self.options = replace(current(), device=written.device)
        printed = planned_of(stored.read(written.program), None)
        self._compiled = with_code(printed, self.options)
        self._constants = [_filled(content, written.device) for content in written.constants]
        self._is_watched = False
        self._prepare(written.count)

    def _prepare(self, count: int) -> None:
        """Make what calls need of the compiled program. count: of its inputs."""
        self._count = count
        self.kernels = len(self._compiled.program.steps)

    def _run_watched(self, tensors: Sequence[torch.Tensor]) -> None:
        """With records, checks and lines on standard error, as the options ask."""
        from lamina.frontend.execution import run_compiled

        buffers = _wrapped(tensors, self.options.device)
        run_compiled(self._compiled, [*buffers, *self._constants], self.options)


@dataclass(frozen=True)
class _Job:
    """words: the addresses that code reads, kept from call to call. arena: where that of scratch
    memory is. places: of each tensor, where its address is, once or more often."""

    words: Any
    arena: int
    places: list[tuple[int, ...]]


class OnCpu(_Compiled):
    """A program for the CPU, which reads its addresses in a list, a job. jobs: lists that no call
    has. call: runs one."""

    def _prepare(self, count: int) -> None:
        super()._prepare(count)
        self._program = cast("CpuProgram", self._compiled.code)
        self.call = self._program.call
        self._job = self._made_job()
        self.jobs = [self._job.words]

    def __call__(self, tensors: Sequence[torch.Tensor]) -> None:
        self._run_watched(tensors)

    def new_job(self) -> Any:
        """One more list."""
        return self._made_job().words

    def write(self, text: Text, tensors: Sequence[str]) -> None:
        """The lines that run the program on named tensors in the fewest steps."""
        program = text.name("program", self)
        call = f"{program}([{', '.join(tensors)}])"
        if self._is_watched:
            text.add(call)
            return
        text.add(
            "if recorders:", f"    {call}", "else:", "    try:",
            f"        words = {program}.jobs.pop()", "    except IndexError:",
            f"        words = {program}.new_job()",
        )  # fmt: skip
        if arena := self._compiled.program.arena:
            text.add(f"    scratch = Buffer({arena})")
            text.add(f"    words[{self._job.arena}] = scratch.pointer")
        for name, places in zip(tensors, self._job.places, strict=True):
            targets = "".join(f"words[{place}] = " for place in places)
            if places:
                text.add(f"    {targets}{name}.data_ptr()")
        text.add(
            f"    counter.kernels += {self.kernels}", f"    {program}.call(words)",
            f"    {program}.jobs.append(words)",
        )  # fmt: skip

    def _made_job(self) -> _Job:
        """Addresses come in the order scratch memory, results, inputs. Each result is the memory of
        an input, to which it is assigned."""
        outputs, count = self._compiled.program.outputs, self._count
        nothing = Buffer(0)
        table = [nothing] * (1 + len(outputs) + count) + self._constants
        words = self._program.job(table)
        arena = len(words) - len(self._constants) - count - len(outputs) - 1
        first = arena + 1 + len(outputs)
        places = [[first + number] for number in range(count)]
        for number, slot in enumerate(outputs):
            places[slot.number].append(arena + 1 + number)
        return _Job(words, arena, [tuple(place) for place in places])


class OnGpu(_Compiled):
    """A program for an NVIDIA GPU. It runs on PyTorch's current stream and takes its scratch memory
    from PyTorch's allocator, so that it is in order with PyTorch's own kernels, and is recorded
    where PyTorch records a graph."""

    def _prepare(self, count: int) -> None:
        super()._prepare(count)
        self._place = torch.device(self.options.device)
        self._written = [slot.number for slot in self._compiled.program.outputs]
        self._addresses = [buffer.pointer for buffer in self._constants]
        if self._addresses:  # they are read on another stream than they came
            heap_of(self.options.device).synchronize()

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
            stream, (scratch.data_ptr(), *results, *inputs, *self._addresses),
            torch.cuda.is_current_stream_capturing(),
        )  # fmt: skip


def _aligned(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, or a copy if the first element is not at a multiple of 64 bytes, as it is in
    ``x[1:]``. What a program writes was made by PyTorch's allocator, whose multiples are 512."""
    return tensor.clone() if tensor.data_ptr() % ALIGNMENT else tensor
