"""Calls of a compiled program in few steps: a short program takes less time than its call.

The call of each program is text of its own, which tracebacks show; it has no loops, and looks
nothing up that is known beforehand. For a program of one argument and one result, whose kernels
need no memory in between, it is::

    def run(arguments):
        try:
            a0, = arguments
            n0 = a0.node
            fits = (
                n0.shape == (8, ) and n0.dtype is dtype0 and a0.device == 'cpu'
                and a0._requires_grad is False and a0._grad is None
            )
        except (AttributeError, TypeError, ValueError):
            return MISS
        if not fits:
            return MISS
        try:
            m0 = n0.arg.storage
        except AttributeError:
            m0 = None
        if type(m0) is not Buffer or m0.overwritten or a0.assigned:
            m0 = memory_of(a0)
        try:
            kept = waiting.popleft()
        except IndexError:
            kept = begin()
        nodes, buffers, tensors = kept.nodes, kept.buffers, kept.tensors
        if (
            getrefcount(tensors[0]) > 2 or getweakrefcount(tensors[0]) > 1
            or tensors[0].node is not nodes[0] or tensors[0]._grad is not None
            or getrefcount(nodes[0]) > 3 or getrefcount(buffers[0]) > 3 or buffers[0].overwritten
        ):
            kept = unshared(kept)
            tensors = kept.tensors
        job = kept.job
        job[-1] = m0.pointer
        counter.kernels += 1
        run_job(job)
        tensors[0].serial = next(serials)
        result = tensors[0]
        waiting.append(kept)
        return result
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import combinations
from sys import getrefcount
from types import FunctionType
from typing import TYPE_CHECKING, Any, cast
from weakref import getweakrefcount

from lamina.core.text import Text
from lamina.frontend import realize as memory
from lamina.frontend.differentiate import map_tree
from lamina.frontend.tensor import SERIALS, Tensor
from lamina.frontend.trace import Place
from lamina.ir.node import Node
from lamina.runtime.buffer import Buffer
from lamina.runtime.profile import counter

if TYPE_CHECKING:
    from lamina.frontend.program import Program
    from lamina.runtime.cpu import CpuProgram
    from lamina.runtime.cuda import CudaProgram

QuickCall = Callable[[Sequence[Any]], Any]

MISS = object()  # what a quick call returns of arguments that it is not for

# Jobs of one program that wait for a call: so a caller who has the results of the last call until
# the next one returns finds both again.
_MAX_WAITING = 2
# Arguments that are compared with each other in less time than a set of them is made.
_FEW = 3
# What a text asks of a result of an earlier call before it gives it another value: whether somebody
# has the tensor, its node or its memory, or has changed one of these. What is asked about is bound
# to no name, as that counts in some versions of Python and not in others. The argument of
# getrefcount counts, and the list of `_KeptJob`; a node is the tensor's as well, memory the node's.
# The one weak reference is the session's.
_IS_SHARED = (
    "getrefcount(tensors[{0}]) > 2", "getweakrefcount(tensors[{0}]) > 1",
    "tensors[{0}].node is not nodes[{0}]", "tensors[{0}]._grad is not None",
    "getrefcount(nodes[{0}]) > 3", "getrefcount(buffers[{0}]) > 3", "buffers[{0}].overwritten",
)  # fmt: skip


@dataclass(slots=True)
class _KeptJob:
    """What a quick call keeps for a later one.

    job: as the program's code takes it. buffers, nodes, tensors: the memory of each result, its
        BUFFER node and its tensor; empty where they are not kept. scratch: what the kernels need
        in between
    """

    job: Any
    buffers: list[Buffer]
    nodes: list[Node]
    tensors: list[Tensor]
    scratch: Buffer | None

    def forget(self) -> None:
        """Keep no memory."""
        self.buffers, self.nodes, self.tensors, self.scratch = [], [], [], None


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


class QuickCode:
    """The text of the quick calls of a program that has these, which is made once."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.places = _Places(program)
        text = Text()
        text.add(*_lines_of_guards(text, program))
        if not program.is_pure:
            text.add("if not may_call(arguments):", "    return MISS")
        lines = _lines_of_run(text, program, self.places)
        if program.writes:
            text.add("with lock:", "    count_writes()", "    try:")
            text.add(*[f"        {line}" for line in lines])
            # Again: who read meanwhile may have seen a part.
            text.add("    finally:", "        count_writes()")
        else:
            text.add(*lines)
        self.names = text.names
        self.function = text.function("arguments", "quick call")

    def call(
        self,
        captured: Sequence[Buffer] = (),
        may_call: Callable[[Sequence[Tensor]], bool] | None = None,
        lock: AbstractContextManager[Any] | None = None,
    ) -> QuickCall:
        """The call, of the tensors of the arguments. It returns MISS of others.

        captured: the memory of the captured tensors. may_call: whether these are as they were.
        lock: is held by a call that writes to them. A pure program needs none of the three.
        Results go over those of an earlier call, if nobody has these any more and they are small.
        """
        program = self.program
        jobs = _Jobs(program, self.places, captured)
        written = [captured[program.place_of(binding)] for binding in program.writes]
        names = {
            "MISS": MISS, "Buffer": Buffer, "memory_of": memory.memory_of, "counter": counter,
            "getrefcount": getrefcount, "getweakrefcount": getweakrefcount, "serials": SERIALS,
            "may_call": may_call, "lock": lock, "count_writes": lambda: _count_writes(written),
            "waiting": jobs.waiting, "begin": jobs.begin, "unshared": jobs.unshared,
            "allocate": jobs.allocate, "run_job": jobs.code.call,
        }  # fmt: skip
        return FunctionType(self.function.__code__, {**self.names, **names})


def _count_writes(buffers: Sequence[Buffer]) -> None:
    for buffer in buffers:
        buffer.writes += 1


def _lines_of_guards(text: Text, program: Program) -> list[str]:
    """The lines that return MISS unless the arguments are tensors of the kinds that the program is
    for."""
    count = program.arguments
    if not count:
        return ["if arguments:", "    return MISS"]
    tests: list[str] = []
    for number, (shape, dtype, device, requires_grad) in enumerate(program.argument_kinds):
        tests.append(f"n{number}.shape == {text.constant(shape)}")
        tests.append(f"n{number}.dtype is {text.name('dtype', dtype)}")
        tests.append(f"a{number}.device == {device!r}")
        tests.append(f"a{number}._requires_grad is {requires_grad}")
        tests.append(f"a{number}._grad is None")
    # A tensor that is passed twice is another signature.
    if count <= _FEW:
        tests += [f"a{one} is not a{other}" for one, other in combinations(range(count), 2)]
    else:
        tests.append(f"len({{*arguments}}) == {count}")
    return [
        "try:",
        f"    {', '.join(f'a{number}' for number in range(count))}, = arguments",
        *[f"    n{number} = a{number}.node" for number in range(count)],
        f"    fits = {' and '.join(tests)}",
        "except (AttributeError, TypeError, ValueError):",
        "    return MISS",
        "if not fits:",
        "    return MISS",
    ]


def _lines_of_run(text: Text, program: Program, places: _Places) -> list[str]:
    """The lines that find the memory of the arguments and the results, run the program and return
    the results."""
    lines: list[str] = []
    for number in dict.fromkeys(number for number, _ in places.reads):
        # Most are in memory of their own, which is found in fewer steps here.
        lines += [
            "try:",
            f"    m{number} = n{number}.arg.storage",
            "except AttributeError:",
            f"    m{number} = None",
            f"if type(m{number}) is not Buffer or m{number}.overwritten or a{number}.assigned:",
            f"    m{number} = memory_of(a{number})",
        ]
    lines += ["try:", "    kept = waiting.popleft()", "except IndexError:", "    kept = begin()"]
    results = range(len(places.sizes))
    if places.is_kept and results:
        tests = [test.format(number) for number in results for test in _IS_SHARED]
        lines += [
            "nodes, buffers, tensors = kept.nodes, kept.buffers, kept.tensors",
            f"if {' or '.join(tests)}:",
            "    kept = unshared(kept)",
            "    tensors = kept.tensors",
        ]
    elif results:
        lines += ["allocate(kept)", "tensors = kept.tensors"]
    else:
        lines.append("tensors = kept.tensors")
    lines.append("job = kept.job")
    lines += [f"job[{place}] = m{number}.pointer" for number, place in places.reads]
    lines += [f"counter.kernels += {places.kernels}", "run_job(job)"]
    lines += [f"tensors[{number}].serial = next(serials)" for number in results]
    lines.append(f"result = {_result_of(text, program)}")
    if not places.is_kept:
        lines.append("kept.forget()")
    return [*lines, "waiting.append(kept)", "return result"]


def _result_of(text: Text, program: Program) -> str:
    """The result of a call, of `tensors`: those of all results, in the order of memory."""
    tree, numbers = program.result, program.results
    if program.repeated:
        return f"{text.name('rebuilt', lambda values: _with_repeated(program, values))}(tensors)"
    if type(tree) is Place:
        return f"tensors[{numbers[tree]}]"
    if type(tree) is tuple and all(type(part) is Place for part in tree):
        return f"({''.join(f'tensors[{numbers[place]}], ' for place in tree)})"
    rebuilt = text.name("rebuilt", lambda values: _in_tree(tree, numbers, values))
    return f"{rebuilt}(tensors)"


def _with_repeated(program: Program, values: Sequence[Tensor]) -> Any:
    """The result of a program of which several tensors share a value."""
    results = program.results_of([value.node for value in values])
    return map_tree(results.__getitem__, program.result, Place)


def _in_tree(tree: Any, numbers: Sequence[int], values: Sequence[Tensor]) -> Any:
    return map_tree(lambda place: values[numbers[place]], tree, Place)


class _Places:
    """Where each buffer is in a job of a program, counted from its end on: what is read, before it
    the results, and before these the scratch memory.

    reads: of each argument that is read, its number and the place of its memory
    sizes: of the results, in bytes. arena: of the scratch memory
    is_kept: whether results and scratch memory stay for the next call
    """

    def __init__(self, program: Program) -> None:
        from lamina.compiled import runner

        planned = program.compiled.program
        returned = planned.outputs[: len(program.likes)]
        self.assigned = planned.outputs[len(program.likes) :]
        quick = runner(program.options).quick
        assert quick is not None
        self.arena, self.kernels = planned.arena, len(planned.steps)
        self.sizes = [view.nbytes for view in returned]
        self.is_kept = self.arena + sum(self.sizes) <= quick.max_kept_bytes
        inputs = len(program.inputs)
        self.reads = [(read.tensor, read.input - inputs) for read in program.argument_reads]


class _Jobs:
    """What the calls of a program keep."""

    def __init__(self, program: Program, places: _Places, captured: Sequence[Buffer]) -> None:
        self.device, self.sizes, self.arena = program.device, places.sizes, places.arena
        self.is_kept = places.is_kept
        self.code = cast("CpuProgram | CudaProgram", program.compiled.code)
        self.kinds = [(shape, dtype) for shape, dtype, _ in program.likes]
        known = program.captured_buffers(captured)  # with the arrays in front that calls keep
        inputs = known[len(known) - len(program.inputs) :]
        # What is the same in each call, after the results: where the new values of captured tensors
        # go comes first.
        self.read = [*[inputs[view.number] for view in places.assigned], *known]
        count = len(self.read)
        self.result_places = range(-count - len(self.sizes), -count)
        self.scratch_place = -count - len(self.sizes) - 1
        # What no call has now, the oldest first. Calls of other threads make their own.
        self.waiting: deque[_KeptJob] = deque(maxlen=_MAX_WAITING)

    def begin(self) -> _KeptJob:
        """A new job, with memory if that is kept."""
        unknown = [Buffer(0)] * (1 + len(self.sizes))  # the scratch memory, and results
        kept = _KeptJob(self.code.job([*unknown, *self.read]), [], [], [], None)
        if self.is_kept:
            self.allocate(kept)
        return kept

    def allocate(self, kept: _KeptJob) -> None:
        """Give a job new memory for its results, and scratch memory where it has none."""
        if self.arena and kept.scratch is None:
            kept.scratch = Buffer(self.arena, self.device)
            kept.job[self.scratch_place] = kept.scratch.pointer
        kept.buffers = [Buffer(size, self.device) for size in self.sizes]
        for place, buffer in zip(self.result_places, kept.buffers, strict=True):
            kept.job[place] = buffer.pointer
        pairs = zip(kept.buffers, self.kinds, strict=True)
        kept.nodes = [Node.unique(buffer, *kind, self.device) for buffer, kind in pairs]
        kept.tensors = [Tensor.of(node, self.device) for node in kept.nodes]

    def unshared(self, shared: _KeptJob) -> _KeptJob:
        """A job with results that nobody has, in place of one with results that somebody has."""
        if self.waiting:
            self.allocate(shared)
            return shared
        self.waiting.append(shared)
        return self.begin()
