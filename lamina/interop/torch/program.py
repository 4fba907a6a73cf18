"""A segment of a graph as one compiled program over PyTorch's memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import fx

from lamina.core.options import Options, current
from lamina.core.shape import prod
from lamina.errors import LaminaError
from lamina.frontend import realize as memory
from lamina.frontend.program import use_of
from lamina.frontend.session import during, tracers
from lamina.frontend.tensor import Tensor
from lamina.frontend.trace import NoMemory
from lamina.interop.torch.arrays import DTYPES, Layout, layout_of
from lamina.interop.torch.interpret import interpreted
from lamina.interop.torch.plan import Refusals, Segment
from lamina.ir.node import Node
from lamina.ir.ops import Op
from lamina.runtime.buffer import Buffer
from lamina.runtime.profile import counter, runs

if TYPE_CHECKING:
    from lamina.runtime.cpu import CpuProgram


@dataclass(frozen=True)
class _Output:
    """How an output's memory is made. copied: its strides are not dense, so that the program
    writes a dense tensor first."""

    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype
    copied: bool

    def empty(self) -> torch.Tensor:
        if self.copied:
            return torch.empty(self.sizes, dtype=self.dtype)
        return torch.empty_strided(self.sizes, self.strides, dtype=self.dtype)

    def finished(self, written: torch.Tensor) -> torch.Tensor:
        if not self.copied:
            return written
        result = torch.empty_strided(self.sizes, self.strides, dtype=self.dtype)
        # The elements along an axis of stride 0, as of x.expand(3, 4), are one, written once.
        single = tuple([slice(None) if stride else slice(1) for stride in self.strides])
        result[single].copy_(written[single])
        return result


class TensorProgram:
    """Reads and writes PyTorch's tensors where they are."""

    def __init__(self, segment: Segment, refused: Refusals) -> None:
        """An operation whose row does not take its arguments is added to `refused`; then there is
        no program."""
        # The memory is the CPU's in both cases.
        self._device = "interp" if current().device == "interp" else "cpu"
        self._copied: list[int] = []
        values: dict[fx.Node, Any] = {}
        self._numbers: dict[Buffer, int] = {}
        holes = []
        for place, node in enumerate(segment.inputs):
            fake = node.meta["val"]
            layout = _layout_in_memory(fake)
            if layout is None:
                self._copied.append(place)
                layout = _dense(fake.shape)
            hole = self._hole(layout, fake.dtype)
            values[node] = Tensor.of(layout.of_stored(hole), self._device)
            holes.append(hole)
        with during(tracers, set(holes)):
            for node in segment.nodes:
                try:
                    values[node] = interpreted(node, values)
                except LaminaError as error:
                    refused[node] = str(error).partition("\n")[0] or type(error).__name__
                    return
        self._compile(segment, values)

    def _hole(self, layout: Layout, dtype: torch.dtype) -> Node:
        ours = DTYPES[dtype]
        storage = NoMemory(prod(layout.sizes) * ours.itemsize, self._device)
        node = memory.buffer_node(storage, layout.stored_sizes, ours)
        memory.numbered(node, self._numbers)
        return node

    def _compile(self, segment: Segment, values: dict[fx.Node, Any]) -> None:
        self._outputs: list[_Output] = []
        targets: list[Node] = []
        stored: list[Node] = []
        for node in segment.outputs:
            fake = node.meta["val"]
            layout = layout_of(fake.shape, fake.stride())
            sizes, strides = tuple(fake.shape), tuple(fake.stride())
            self._outputs.append(_Output(sizes, strides, fake.dtype, layout is None))
            layout = layout or _dense(fake.shape)
            targets.append(self._hole(layout, fake.dtype))
            stored.append(layout.to_stored(values[node].node))
        count = len(self._numbers)
        cut = memory.cut(stored, self._numbers)
        sinks = [
            Node(Op.ASSIGN, (memory.numbered(target, self._numbers), value))
            for target, value in zip(targets, cut, strict=True)
        ]
        program, numbers = memory.lifted(tuple(sinks), len(self._numbers), self._device)
        constants = [*list(self._numbers)[count:], *numbers]
        self._run: _Interpreted | _Compiled
        if self._device == "interp":
            self._run = _Interpreted(program, constants)
            return
        options = replace(current(), device=self._device)
        self._run = _Compiled(program, constants, options, count)

    @property
    def kernels(self) -> int:
        """How many kernels a call runs; the interpreter has none."""
        return self._run.kernels if isinstance(self._run, _Compiled) else 0

    def __call__(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        read = tensors
        if self._copied:
            read = list(tensors)
            for place in self._copied:
                read[place] = read[place].resolve_conj().resolve_neg().contiguous()
        written = [output.empty() for output in self._outputs]
        self._run([*read, *written])
        if any(output.copied for output in self._outputs):
            pairs = zip(self._outputs, written, strict=True)
            return [output.finished(tensor) for output, tensor in pairs]
        return written


def _layout_in_memory(fake: torch.Tensor) -> Layout | None:
    """The layout of an input; None where memory does not hold its values, one after the other, so
    that it is copied first. A conjugate or a negative may be a mark beside the memory, for which
    PyTorch compiles again."""
    if fake.is_conj() or fake.is_neg():
        return None
    return layout_of(fake.shape, fake.stride())


@dataclass(frozen=True)
class _Interpreted:
    """A program for the reference interpreter. constants: inputs after the tensors."""

    sinks: tuple[Node, ...]
    constants: list[Buffer]

    def __call__(self, tensors: Sequence[torch.Tensor]) -> None:
        from lamina.pipeline import execute

        buffers = [Buffer.wrap(one.data_ptr(), one.nbytes, "interp", one) for one in tensors]
        execute(self.sinks, [*buffers, *self.constants], "interp")


class _Compiled:
    """A program for the CPU. A job is the list of addresses that its code reads; what no call uses
    now waits for the next one, so that a call only writes the addresses of its tensors."""

    def __init__(
        self, sinks: tuple[Node, ...], constants: list[Buffer], options: Options, count: int
    ) -> None:
        from lamina import pipeline

        self.sinks, self.constants, self.options, self.count = sinks, constants, options, count
        self.compiled = pipeline.compile_sinks(sinks, options)
        self.kernels = len(self.compiled.program.steps)
        self.code = cast("CpuProgram", self.compiled.code)
        self.is_watched = options.debug > 0 or options.check
        self._use = use_of(sinks, options)
        self._run = pipeline.run_compiled
        self._jobs: list[Any] = []

    def __call__(self, tensors: Sequence[torch.Tensor]) -> None:
        if self.is_watched or runs:
            buffers = [Buffer.wrap(one.data_ptr(), one.nbytes, "cpu", one) for one in tensors]
            self._run(self.compiled, [*buffers, *self.constants], self.options)
            return
        try:
            job = self._jobs.pop()
        except IndexError:
            job = self._job()
        arena = self.compiled.program.arena
        scratch = Buffer(arena) if arena else None
        if scratch is not None:
            job.words[job.arena] = scratch.pointer
        for place, tensor in zip(job.places, tensors, strict=True):
            for number in place:
                job.words[number] = tensor.data_ptr()
        counter.kernels += self.kernels
        self.code.call(job.words)
        self._jobs.append(job)

    def _job(self) -> _Job:
        """Addresses come in the order scratch memory, results, inputs. Each result is the memory of
        an input, to which it is assigned."""
        outputs = self.compiled.program.outputs
        nothing = Buffer(0)
        words = self.code.job([nothing] * (1 + len(outputs) + self.count) + self.constants)
        arena = len(words) - len(self.constants) - self.count - len(outputs) - 1
        first = arena + 1 + len(outputs)
        places = [[first + number] for number in range(self.count)]
        for number, slot in enumerate(outputs):
            places[slot.number].append(arena + 1 + number)
        return _Job(words, arena, [tuple(place) for place in places])


@dataclass(frozen=True)
class _Job:
    """words: the list. arena: where the address of scratch memory is. places: of each tensor, where
    its address is."""

    words: Any
    arena: int
    places: list[tuple[int, ...]]


def _dense(sizes: Sequence[int]) -> Layout:
    return Layout(tuple(sizes), tuple(range(len(sizes))))
