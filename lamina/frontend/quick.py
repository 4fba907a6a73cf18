"""Calls of a compiled program in few steps: a short program takes less time than its call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import repeat
from sys import getrefcount
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

_MAX_KEPT = 2  # jobs of one program that wait for a call
# References to what a table alone has: from there, and from the argument of getrefcount. The node
# of a result has its memory as well.
_REFERENCES = 2
_REFERENCES_TO_MEMORY = 3


@dataclass(slots=True)
class _KeptJob:
    """What a quick call keeps for a later one.

    job: as the program's code takes it. nodes, buffers: the BUFFER node of each result, and its
        memory; empty where that is not kept. scratch: what the kernels need in between
    """

    job: Any
    nodes: list[Node]
    buffers: list[Buffer]
    scratch: Buffer | None

    def is_shared(self, number: int) -> bool:
        """Whether somebody has the result of that number, or has written over it."""
        # What is asked about is bound to no name: whether that counts depends on Python's version.
        return (
            getrefcount(self.nodes[number]) > _REFERENCES
            or getrefcount(self.buffers[number]) > _REFERENCES_TO_MEMORY
            or self.buffers[number].overwritten
        )


def has_quick_call(program: Program) -> bool:
    """Whether there is a quick call of `program`: where it does nothing but read, return new
    tensors and write to captured ones, nothing watches the runs, and the backend has quick calls
    of such programs."""
    from lamina.compiled import runner  # it loads when it is first needed

    planned, options = program.compiled, program.options
    quick = runner(options).quick
    has_collectives = planned.source is not None and bool(planned.source.exchanges)
    if quick is None or options.debug or options.check or has_collectives:
        return False
    results = planned.program.outputs[: len(program.likes)]
    has_own_results = all(view.kind != "input" for view in results)
    is_pure = program.is_pure or (quick.with_captured and program.only_computes)
    writes_captured = all(program.place_of(binding) >= 0 for binding in program.writes)
    return is_pure and has_own_results and writes_captured


def quick_call(
    program: Program, captured: Sequence[Buffer], lock: AbstractContextManager[Any] | None
) -> Callable[[Sequence[Tensor]], Any]:
    """`Program.call` for a program that has a quick call: of arguments alone, as `captured` is the
    memory of the captured tensors. lock: is held by a call that writes.

    Results go over those of the last call, if nobody has these any more and they are small.
    """
    call = _QuickCall(program, captured).call
    if not program.writes:
        return call
    assert lock is not None
    written = [captured[program.place_of(binding)] for binding in program.writes]

    def call_alone(tensors: Sequence[Tensor]) -> Any:
        with lock:
            _count_writes(written)
            try:
                return call(tensors)
            finally:  # again: who read meanwhile may have seen a part
                _count_writes(written)

    return call_alone


def _count_writes(buffers: Sequence[Buffer]) -> None:
    for buffer in buffers:
        buffer.writes += 1


class _QuickCall:
    """The quick call of a program for which there is one."""

    def __init__(self, program: Program, captured: Sequence[Buffer]) -> None:
        from lamina.compiled import runner

        planned = program.compiled
        outputs, arena = planned.program.outputs, planned.program.arena
        returned, assigned = outputs[: len(program.likes)], outputs[len(program.likes) :]
        quick = runner(program.options).quick
        assert quick is not None
        self.device, self.arena, self.kernels = program.device, arena, len(planned.program.steps)
        self.code = cast("CpuProgram | CudaProgram", planned.code)
        self.run_job: Callable[[Any], object] = self.code.call
        self.sizes = [view.nbytes for view in returned]
        # Whether results and scratch memory stay for the next call.
        self.is_kept = arena + sum(self.sizes) <= quick.max_kept_bytes
        self.kinds = [(shape, dtype) for shape, dtype, _ in program.likes]
        # Whether the only result is a tensor, not a tuple or the like.
        self.is_tensor = type(program.result) is Place and len(self.sizes) == 1
        self.rebuilt = _rebuilt(program)
        known = program.captured_buffers(captured)  # with the arrays in front that calls keep
        inputs = known[len(known) - len(program.inputs) :]
        # What is the same in each call, after the results: where the new values of captured tensors
        # go comes first.
        self.read = [*[inputs[view.number] for view in assigned], *known]
        # Where each buffer is in a job, from its end on: what is read, before it the results, and
        # before these the scratch memory.
        count = len(self.read)
        self.read_places = [
            (read.tensor, read.input - len(inputs)) for read in program.argument_reads
        ]
        self.result_numbers = range(len(self.sizes))
        self.result_places = range(-count - len(self.sizes), -count)
        self.scratch_place = -count - len(self.sizes) - 1
        # What no call has now, at most two, so that a caller who has the results of the last call
        # until the next one returns finds both again. Calls of other threads make their own.
        self.kept: list[_KeptJob] = []

    def _begin(self) -> _KeptJob:
        """A job without memory of its own."""
        unknown = [Buffer(0)] * (1 + len(self.sizes))  # the scratch memory, and results
        return _KeptJob(self.code.job([*unknown, *self.read]), [], [], None)

    def _allocate(self, kept: _KeptJob) -> None:
        """Give a job that has no results memory for them, and scratch memory."""
        if self.arena and kept.scratch is None:
            kept.scratch = Buffer(self.arena, self.device)
            kept.job[self.scratch_place] = kept.scratch.pointer
        kept.buffers = [Buffer(size, self.device) for size in self.sizes]
        kept.nodes = [*map(self._use_result, repeat(kept), self.result_numbers)]

    def _use_result(self, kept: _KeptJob, number: int) -> Node:
        """Let a job write the result of that number to its memory; the node of that."""
        buffer = kept.buffers[number]
        kept.job[self.result_places[number]] = buffer.pointer
        return Node.unique(buffer, *self.kinds[number], self.device)

    def _unshared(self, shared: _KeptJob) -> _KeptJob:
        """Keep `shared`, whose results a caller still has, and give another job with results that
        nobody has."""
        try:
            kept = self.kept.pop()
        except IndexError:
            kept = self._begin()
        self.kept.append(shared)
        if not kept.nodes:
            self._allocate(kept)
        for number in self.result_numbers:
            if kept.is_shared(number):
                kept.buffers[number] = Buffer(self.sizes[number], self.device)
                kept.nodes[number] = self._use_result(kept, number)
        return kept

    def call(self, tensors: Sequence[Tensor]) -> Any:
        """Run the program on the tensors of its arguments."""
        waiting = self.kept
        try:
            kept = waiting.pop()
        except IndexError:
            kept = self._begin()
        if not kept.nodes:
            self._allocate(kept)
        nodes, buffers = kept.nodes, kept.buffers
        for number in self.result_numbers:  # `_KeptJob.is_shared`, without a call
            if (
                getrefcount(nodes[number]) > _REFERENCES
                or getrefcount(buffers[number]) > _REFERENCES_TO_MEMORY
                or buffers[number].overwritten
            ):
                kept = self._unshared(kept)
                break
        job = kept.job
        for number, place in self.read_places:
            tensor = tensors[number]
            # Most are in memory of their own, which is found in fewer steps here.
            try:
                storage = tensor.node.arg.storage
            except AttributeError:
                storage = None
            if type(storage) is not Buffer or storage.overwritten or tensor.assigned:
                storage = memory.memory_of(tensor)
            job[place] = storage.pointer
        counter.kernels += self.kernels
        self.run_job(job)
        device = self.device
        if self.is_tensor:
            result: Any = Tensor.of(kept.nodes[0], device)
        else:
            values: list[Tensor] = []
            for node in kept.nodes:
                values.append(Tensor.of(node, device))
            result = self.rebuilt(values)
        if not self.is_kept:
            kept.nodes, kept.buffers, kept.scratch = [], [], None
        if len(waiting) < _MAX_KEPT:
            waiting.append(kept)
        return result


def _rebuilt(program: Program) -> Callable[[list[Tensor]], Any]:
    """What makes the result of a call of the tensors of all results, in the order of memory."""
    tree, numbers = program.result, program.results
    if program.repeated:
        return lambda values: map_tree(
            program.results_of([value.node for value in values]).__getitem__, tree, Place
        )
    if type(tree) is tuple and all(type(part) is Place for part in tree):
        places = [numbers[place] for place in tree]
        if places == [*range(len(set(numbers)))]:
            return tuple
        return lambda values: tuple([values[place] for place in places])
    return lambda values: map_tree(lambda place: values[numbers[place]], tree, Place)
