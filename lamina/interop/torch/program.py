"""A segment of a graph as one compiled program over PyTorch's memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import fx

from lamina.core.options import current, using
from lamina.core.shape import prod
from lamina.core.text import Text
from lamina.errors import LaminaError
from lamina.frontend import realize as memory
from lamina.frontend.session import during, tracers
from lamina.frontend.tensor import Tensor
from lamina.frontend.trace import NoMemory
from lamina.interop.torch.arrays import DTYPES, Layout, layout_of
from lamina.interop.torch.broken import BrokenGraphError
from lamina.interop.torch.interpret import interpreted
from lamina.interop.torch.plan import Refusals, Segment, View
from lamina.interop.torch.runners import Code, Interpreted, OnCpu, OnGpu
from lamina.ir.node import Node
from lamina.ir.ops import Op
from lamina.runtime.buffer import Buffer


@dataclass(frozen=True)
class _Output:
    """How an output's memory is made. copied: its strides are not dense, so that the program
    writes a dense tensor first."""

    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device
    copied: bool

    def making(self, text: Text, view: View | None) -> str:
        """The expression of new memory; with the sizes and strides of a view of the whole, if
        there is one."""
        made = self if view is None else view
        sizes, strides = made.sizes, made.strides
        if self.copied:
            strides = tuple(torch.empty(sizes, device="meta").stride())
        if self.device.type == "cpu":
            return f"empty({sizes}, {strides}, {text.constant(self.dtype)})"
        dtype, device = text.constant(self.dtype), text.constant(self.device)
        return f"empty_strided({sizes}, {strides}, dtype={dtype}, device={device})"

    def finished(self, written: torch.Tensor) -> torch.Tensor:
        if not self.copied:
            return written
        result = torch.empty_strided(
            self.sizes, self.strides, dtype=self.dtype, device=self.device
        )
        # The elements along an axis of stride 0, as of x.expand(3, 4), are one, written once.
        single = tuple([slice(None) if stride else slice(1) for stride in self.strides])
        result[single].copy_(written[single])
        return result


class TensorProgram:
    """Reads and writes PyTorch's tensors where they are."""

    def __init__(self, segment: Segment, refused: Refusals) -> None:
        """An operation whose row does not take its arguments is added to `refused`; then there is
        no program."""
        self._place = segment.place
        # The interpreter reads the CPU's memory.
        self._device = "interp" if current().device == "interp" else str(segment.place)
        self._copied: list[int] = []
        values: dict[fx.Node, Any] = {}
        self._numbers: dict[Buffer, int] = {}
        holes: dict[fx.Node, Node] = {}
        for place, node in enumerate(segment.inputs):
            fake = node.meta["val"]
            layout = _layout_in_memory(fake)
            if layout is None or fake.device != self._place:
                self._copied.append(place)
                layout = _dense(fake.shape)
            hole = self._hole(layout, fake.dtype)
            values[node] = Tensor.of(layout.of_stored(hole), self._device)
            holes[node] = hole
        with during(tracers, set(holes.values())), using(device=self._device):
            for node in segment.nodes:
                try:
                    values[node] = interpreted(node, values)
                except BrokenGraphError:
                    raise
                except LaminaError as error:
                    refused[node] = error.message.partition("\n")[0] or type(error).__name__
                    return
        self._compile(segment, values, holes)

    def _hole(self, layout: Layout, dtype: torch.dtype) -> Node:
        ours = DTYPES[dtype]
        storage = NoMemory(prod(layout.sizes) * ours.itemsize, self._device)
        node = memory.buffer_node(storage, layout.stored_sizes, ours)
        memory.numbered(node, self._numbers)
        return node

    def _compile(
        self, segment: Segment, values: dict[fx.Node, Any], holes: dict[fx.Node, Node]
    ) -> None:
        self._outputs: list[_Output] = []
        targets: list[Node] = []
        stored: list[Node] = []
        for node in segment.outputs:
            fake = node.meta["val"]
            layout = layout_of(fake.shape, fake.stride())
            sizes, strides = tuple(fake.shape), tuple(fake.stride())
            self._outputs.append(
                _Output(sizes, strides, fake.dtype, self._place, copied=layout is None)
            )
            layout = layout or _dense(fake.shape)
            targets.append(self._hole(layout, fake.dtype))
            stored.append(layout.to_stored(values[node].node))
        for node, written in segment.written.items():
            fake = written.meta["val"]
            layout = layout_of(fake.shape, fake.stride())
            assert layout is not None
            targets.append(holes[written])
            stored.append(layout.to_stored(values[node].node))
        count = len(self._numbers)
        cut = memory.cut(stored, self._numbers)
        sinks = [
            Node(Op.ASSIGN, (memory.numbered(target, self._numbers), value))
            for target, value in zip(targets, cut, strict=True)
        ]
        program, numbers = memory.lifted(tuple(sinks), len(self._numbers), self._device)
        constants = [*list(self._numbers)[count:], *numbers]
        code = Code(program, count, constants)
        options = replace(current(), device=self._device)
        self._run: Interpreted | OnCpu | OnGpu
        if self._device == "interp":
            self._run = Interpreted(code)
        elif self._place.type == "cpu":
            self._run = OnCpu(code, options)
        else:
            self._run = OnGpu(code, options)

    @property
    def kernels(self) -> int:
        """How many kernels a call runs; the interpreter has none."""
        return self._run.kernels

    def write(
        self, text: Text, read: Sequence[str], results: Mapping[str, View | None]
    ) -> None:
        """The lines of a call on the tensors named in `read`, which give names to the results, each
        made as a view of it if there is one."""
        read = list(read)
        for place in self._copied:
            copied = f"copy{place}"
            function = text.name("readable", readable)
            text.add(f"{copied} = {function}({read[place]}, {text.constant(self._place)})")
            read[place] = copied
        for (name, view), output in zip(results.items(), self._outputs, strict=True):
            text.add(f"{name} = {output.making(text, view)}")
        tensors = [*read, *results]
        if isinstance(self._run, OnCpu):
            self._run.write(text, tensors)
        else:
            text.add(f"{text.name('program', self._run)}([{', '.join(tensors)}])")
        for name, output in zip(results, self._outputs, strict=True):
            if output.copied:
                text.add(f"{name} = {text.name('finished', output.finished)}({name})")


def readable(tensor: torch.Tensor, place: torch.device) -> torch.Tensor:
    """A dense copy of a tensor that a program on `place` cannot read."""
    return tensor.resolve_conj().resolve_neg().contiguous().to(place)


def _layout_in_memory(fake: torch.Tensor) -> Layout | None:
    """The layout of an input; None where memory does not hold its values, one after the other, so
    that it is copied first. A conjugate or a negative may be a mark beside the memory, for which
    PyTorch compiles again."""
    if fake.is_conj() or fake.is_neg():
        return None
    return layout_of(fake.shape, fake.stride())


def _dense(sizes: Sequence[int]) -> Layout:
    return Layout(tuple(sizes), tuple(range(len(sizes))))
