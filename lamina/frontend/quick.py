"""Calls of a compiled program in few steps: a short program takes less time than its call."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Any, cast

from lamina.frontend import realize as memory
from lamina.frontend.differentiate import map_tree
from lamina.frontend.tensor import Tensor
from lamina.frontend.trace import Place
from lamina.ir.node import Node
from lamina.runtime.buffer import Buffer
from lamina.runtime.profile import counter

if TYPE_CHECKING:
    from lamina.frontend.program import Program
    from lamina.runtime.cpu import CpuProgram
    from lamina.runtime.cuda import CudaProgram

_REFERENCES = 2  # to what a table alone has: from there, and from the argument of getrefcount


@dataclass(slots=True)
class _Kept:
    """What a quick call keeps for the next one.

    job: as the program's code takes it. nodes: the BUFFER node of each result, or None where its
        memory is not kept. scratch: what the kernels need in between
    """

    job: Any
    nodes: list[Any]
    scratch: Buffer | None


def quick_call(
    program: Program, captured: Sequence[Buffer]
) -> Callable[[Sequence[Tensor]], Any] | None:
    """`Program.call` for a program that reads the tensors of its arguments, and captured ones in
    the memory `captured`, and returns new ones. None for every other program, where something
    watches the runs, and where the backend has no quick calls.

    Results go over those of the last call, if nobody has these any more and they are small.
    """
    from lamina.backends import backend  # the compiler loads when it is first needed

    planned, options = program.compiled, program.options
    outputs, arena = planned.program.outputs, planned.program.arena
    is_watched = program.draws or options.debug or options.check
    has_collectives = planned.source is not None and bool(planned.source.exchanges)
    has_own_results = not program.repeated and all(slot.kind != "input" for slot in outputs)
    quick = backend(options).quick
    if quick is None or is_watched or has_collectives:
        return None
    only_reads = program.only_reads if quick.with_captured else program.is_pure
    if not (only_reads and has_own_results):
        return None
    total = arena + sum(slot.nbytes for slot in outputs)
    return _QuickCall(program, captured, is_kept=total <= quick.max_kept_bytes).call


class _QuickCall:
    """The quick call of a program for which there is one.

    is_kept: results and scratch memory stay for the next call.
    """

    def __init__(self, program: Program, captured: Sequence[Buffer], *, is_kept: bool) -> None:
        planned = program.compiled
        self.device, self.is_kept = program.device, is_kept
        self.arena, self.kernels = planned.program.arena, len(planned.program.steps)
        self.code = cast("CpuProgram | CudaProgram", planned.code)
        self.sizes = [slot.nbytes for slot in planned.program.outputs]
        self.devices = [program.device for _ in self.sizes]
        self.kinds = [(shape, dtype) for shape, dtype, _ in program.likes]
        self.rebuilt = _rebuilt(program)
        self.read = program.captured_buffers(captured)  # with the arrays in front that calls keep
        # Where each buffer is in a job, from its end on: what is read, before it the results, and
        # before these the scratch memory.
        inputs, count = len(program.inputs), len(self.read)
        self.read_places = [(one.tensor, one.input - inputs) for one in program.argument_reads]
        self.result_places = list(enumerate(range(-count - len(self.sizes), -count)))
        self.scratch_place = -count - len(self.sizes) - 1
        # What no call has now, at most one. Calls of other threads that begin meanwhile make
        # their own.
        self.kept: list[_Kept] = []

    def _begin(self) -> _Kept:
        unknown = [Buffer(0)] * (1 + len(self.sizes))  # the scratch memory, and results
        return _Kept(self.code.job([*unknown, *self.read]), [None for _ in self.sizes], None)

    def _renew_result(self, own: _Kept, number: int) -> None:
        """Give the result of that number other memory."""
        buffer = Buffer(self.sizes[number], self.device)
        own.nodes[number] = Node.unique(buffer, *self.kinds[number], self.device)
        own.job[self.result_places[number][1]] = buffer.pointer

    def call(self, tensors: Sequence[Tensor]) -> Any:
        """Run the program on the tensors of its arguments."""
        try:
            own = self.kept.pop()
        except IndexError:
            own = self._begin()
        job, nodes, references = own.job, own.nodes, sys.getrefcount
        if self.arena and own.scratch is None:
            own.scratch = Buffer(self.arena, self.device)
            job[self.scratch_place] = own.scratch.pointer
        for number, _ in self.result_places:
            if (
                nodes[number] is None
                or references(nodes[number]) > _REFERENCES
                or references(nodes[number].arg.storage) > _REFERENCES
                or nodes[number].arg.storage.overwritten
            ):
                self._renew_result(own, number)
        for number, place in self.read_places:
            tensor = tensors[number]
            # Most are in memory of their own, which is found in fewer steps here.
            storage = getattr(tensor.node.arg, "storage", None)
            if type(storage) is not Buffer or storage.overwritten or tensor.assigned:
                storage = memory.memory_of(tensor)
            job[place] = storage.pointer
        counter.kernels += self.kernels
        self.code.call(job)
        values = [*map(Tensor.of, nodes, self.devices)]
        if not self.is_kept:
            own.nodes, own.scratch = [None for _ in self.sizes], None
        self.kept[:] = [own]
        return self.rebuilt(values)


def _rebuilt(program: Program) -> Callable[[list[Tensor]], Any]:
    """What makes the result of a call of the tensors of all results, in the order of memory."""
    tree, numbers = program.result, program.results
    if type(tree) is Place:
        return itemgetter(numbers[tree])
    if type(tree) is tuple and all(type(one) is Place for one in tree):
        places = [numbers[place] for place in tree]
        return lambda values: tuple([values[place] for place in places])
    return lambda values: map_tree(lambda place: values[numbers[place]], tree, Place)
