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

_NO_SCRATCH = Buffer(0)


@dataclass(slots=True)
class _Kept:
    """What a quick call keeps for the next one: its results, its job and its scratch memory."""

    results: list[Buffer]
    job: Any
    scratch: Buffer


def quick_call(program: Program) -> Callable[[Sequence[Tensor]], Any] | None:
    """`Program.call` for a program that reads the tensors of its arguments, and captured ones where
    they are now, and returns new ones. None for every other program, where something watches the
    runs, and where the backend has no quick calls, or none with results as large: such calls take
    long anyway.

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
    is_kept = total <= quick.max_kept_bytes
    if quick.with_large_results or is_kept:
        return _quick_call(program, is_kept=is_kept)
    return None


def _quick_call(program: Program, *, is_kept: bool) -> Callable[[Sequence[Tensor]], Any]:
    """The quick call of a program for which there is one."""
    planned, device = program.compiled, program.device
    arena, kernels = planned.program.arena, len(planned.program.steps)
    sizes = [slot.nbytes for slot in planned.program.outputs]
    code = cast("CpuProgram | CudaProgram", planned.code)
    kinds = [(shape, dtype) for shape, dtype, _ in program.likes]
    memory_of, unique, of = memory.memory_of, Node.unique, Tensor.of
    rebuilt = _rebuilt(program)
    # Where each buffer is in a job, from its end on: what is read, before it the arrays that are
    # kept from call to call, and before these the results.
    read_places = [(one.tensor, one.input - len(program.inputs)) for one in program.argument_reads]
    read = program.captured_buffers()  # with these arrays in front
    result_places = list(enumerate(range(-len(read) - len(sizes), -len(read))))
    # What no call has now, at most one. Calls of other threads that begin meanwhile make their own.
    kept: list[_Kept] = []

    def begin() -> _Kept:
        scratch = Buffer(arena, device) if arena else _NO_SCRATCH
        results = [Buffer(size, device) for size in sizes]
        return _Kept(results, code.job([scratch, *results, *read]), scratch)

    def call(tensors: Sequence[Tensor]) -> Any:
        try:
            own = kept.pop()
        except IndexError:
            own = begin()
        job, results = own.job, own.results
        for number, place in result_places:
            if sys.getrefcount(results[number]) > 2:  # others have it besides the list
                results[number] = buffer = Buffer(sizes[number], device)
                job[place] = buffer.pointer
        for number, place in read_places:
            job[place] = memory_of(tensors[number]).pointer
        counter.kernels += kernels
        code.call(job)
        values = []  # in a loop, because this is what every call waits for
        for number, (shape, dtype) in enumerate(kinds):
            values.append(of(unique(results[number], shape, dtype, device), device))
        if is_kept:
            kept[:] = [own]
        return rebuilt(values)

    return call


def _rebuilt(program: Program) -> Callable[[list[Tensor]], Any]:
    """What makes the result of a call of the tensors of all results, in the order of memory."""
    tree, numbers = program.result, program.results
    if type(tree) is Place:
        return itemgetter(numbers[tree])
    if type(tree) is tuple and all(type(one) is Place for one in tree):
        places = [numbers[place] for place in tree]
        return lambda values: tuple([values[place] for place in places])
    return lambda values: map_tree(lambda place: values[numbers[place]], tree, Place)
