"""Calls of a compiled program in few steps: a short program takes less time than its call.

The call of each program is a function of generated text, which tracebacks show. Shapes, dtypes and
places in a job are literals there, so that no call loops over arguments or results. For a program
of one argument and one result, whose kernels need no memory in between, it is::

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
            kept = idle.popleft()
        except IndexError:
            kept = begin()
        nodes, buffers = kept.nodes, kept.buffers
        if getrefcount(nodes[0]) > 2 or getrefcount(buffers[0]) > 3 or buffers[0].overwritten:
            kept = unshared(kept)
            nodes = kept.nodes
        job = kept.job
        job[-1] = m0.pointer
        counter.kernels += 1
        run_job(job)
        result = tensor_of(nodes[0], 'cpu')
        idle.append(kept)
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

from lamina.core.text import Text
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

QuickCall = Callable[[Sequence[Any]], Any]

MISS = object()  # what a quick call returns of arguments that it is not for

# Jobs of one program that no call has. A caller often has the results of the last call until
# the next one returns: two jobs in turns need no new memory then.
_MAX_IDLE = 2
# Arguments that are compared with each other in less time than a set of them is made.
_MAX_IN_PAIRS = 3
# The references to a node and to memory that only a job has: of a node the list and the argument of
# getrefcount, of memory the node as well. What is asked about is bound to no name, as that counts
# in some versions of Python and not in others.
_REFERENCES, _REFERENCES_TO_MEMORY = 2, 3
# Whether a result of an earlier call must not be written over: somebody has its tensor, and so its
# node, or a view of its memory, or has written there.
_IS_SHARED = (
    f"getrefcount(nodes[{{0}}]) > {_REFERENCES}",
    f"getrefcount(buffers[{{0}}]) > {_REFERENCES_TO_MEMORY}",
    "buffers[{0}].overwritten",
)


@dataclass(slots=True)
class _KeptJob:
    """What a quick call keeps for a later one.

    job: as the program's code takes it. buffers, nodes: the memory of each result, and its BUFFER
        node; empty where they are not kept. scratch: what the kernels need in between
    """

    job: Any
    buffers: list[Buffer]
    nodes: list[Node]
    scratch: Buffer | None

    def is_shared(self, number: int) -> bool:
        """`_IS_SHARED` of the result of that number."""
        return (
            getrefcount(self.nodes[number]) > _REFERENCES
            or getrefcount(self.buffers[number]) > _REFERENCES_TO_MEMORY
            or self.buffers[number].overwritten
        )

    def drop_memory(self) -> None:
        """Keep no memory."""
        self.buffers, self.nodes, self.scratch = [], [], None


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
    return is_pure and has_own_results and writes_captured and not program.has_graded_arguments


class QuickCode:
    """The text of the quick calls of a program that has these, which is made once. It does not keep
    the program alive."""

    def __init__(self, program: Program) -> None:
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

    def bind(
        self,
        program: Program,
        captured: Sequence[Buffer] = (),
        may_call: Callable[[Sequence[Tensor]], bool] | None = None,
        lock: AbstractContextManager[Any] | None = None,
    ) -> QuickCall:
        """The quick call of the program: of the tensors of the arguments. It returns MISS for other
        arguments.

        captured: the memory of the captured tensors. may_call: whether these are as they were.
        lock: is held by a call that writes to them. A pure program needs none of the three.
        Results go over those of an earlier call, if nobody has these any more and they are small.
        """
        jobs = _Jobs(program, self.places, captured)
        written = [captured[program.place_of(binding)] for binding in program.writes]
        names = {
            "MISS": MISS, "Buffer": Buffer, "memory_of": memory.memory_of, "counter": counter,
            "getrefcount": getrefcount, "tensor_of": Tensor.of, "may_call": may_call, "lock": lock,
            "count_writes": lambda: _count_writes(written), "idle": jobs.idle,
            "begin": jobs.begin, "unshared": jobs.unshared, "allocate": jobs.allocate,
            "run_job": jobs.code.call,
            # Tracebacks show its text as long as it is there.
            "written_as": self.function,
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
    if count <= _MAX_IN_PAIRS:
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
    lines += ["try:", "    kept = idle.popleft()", "except IndexError:", "    kept = begin()"]
    results = range(len(places.sizes))
    if not places.is_kept:
        lines.append("allocate(kept)")
    lines.append("nodes = kept.nodes")
    if places.is_kept and results:
        tests = [test.format(number) for number in results for test in _IS_SHARED]
        lines += [
            "buffers = kept.buffers",
            f"if {' or '.join(tests)}:",
            "    kept = unshared(kept)",
            "    nodes = kept.nodes",
        ]
    lines.append("job = kept.job")
    lines += [f"job[{place}] = m{number}.pointer" for number, place in places.reads]
    lines += [f"counter.kernels += {places.kernels}", "run_job(job)"]
    lines.append(f"result = {_result_of(text, program)}")
    if not places.is_kept:
        lines.append("kept.drop_memory()")
    return [*lines, "idle.append(kept)", "return result"]


def _result_of(text: Text, program: Program) -> str:
    """The result of a call, of `nodes`: those of all values, in the order of memory."""
    tree, numbers, device = program.result, program.results, program.device
    is_flat = type(tree) is tuple and all(type(part) is Place for part in tree)
    if not program.repeated and type(tree) is Place:
        return f"tensor_of(nodes[{numbers[tree]}], {device!r})"
    if not program.repeated and is_flat and len({*tree}) == len(tree):
        parts = [f"tensor_of(nodes[{numbers[place]}], {device!r}), " for place in tree]
        return f"({''.join(parts)})"
    repeated = program.repeated

    def rebuilt(nodes: Sequence[Node]) -> Any:
        values = results_of(nodes, numbers, repeated, device)
        return map_tree(values.__getitem__, tree, Place)

    return f"{text.name('rebuilt', rebuilt)}(nodes)"


def results_of(
    nodes: Sequence[Node], numbers: Sequence[int], repeated: Sequence[int], device: str
) -> list[Tensor]:
    """A tensor for each result of a program, of the nodes of all values. numbers: of the value of
    each result. repeated: the results whose value an earlier one has as well: such a one shares its
    memory, as a leaf of its own, by which derivatives tell them apart."""
    values = [Tensor.of(nodes[number], device) for number in numbers]
    for at in repeated:
        values[at].node = memory.stored_leaf(values[at].node, device)
    return values


class _Places:
    """Where each buffer is in a job of a program, counted from its end on, as devices have words of
    their own before: scratch memory, results, what assignments write to, the arrays that calls keep
    and the inputs.

    reads: of each argument that is read, its number and the place of its memory
    sizes: of the results, in bytes. arena: of the scratch memory
    assigned: where the values of assignments go. kernels: how many a call runs
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
        self.device, self.places = program.device, places
        self.code = cast("CpuProgram | CudaProgram", program.compiled.code)
        self.kinds = [(shape, dtype) for shape, dtype, _ in program.likes]
        inputs_and_arrays = program.captured_buffers(captured)
        inputs = inputs_and_arrays[len(inputs_and_arrays) - len(program.inputs) :]
        # What is the same in each call.
        self.fixed = [*[inputs[view.number] for view in places.assigned], *inputs_and_arrays]
        count = len(self.fixed)
        self.result_places = range(-count - len(places.sizes), -count)
        self.scratch_place = -count - len(places.sizes) - 1
        # What no call has now, the oldest first. Calls of other threads make their own.
        self.idle: deque[_KeptJob] = deque(maxlen=_MAX_IDLE)

    def begin(self) -> _KeptJob:
        """A new job, with memory if that is kept."""
        unknown = [Buffer(0)] * (1 + len(self.places.sizes))  # the scratch memory, and results
        kept = _KeptJob(self.code.job([*unknown, *self.fixed]), [], [], None)
        if self.places.is_kept:
            self.allocate(kept)
        return kept

    def allocate(self, kept: _KeptJob) -> None:
        """Give a job that has none memory for its results, and scratch memory."""
        if self.places.arena:
            kept.scratch = Buffer(self.places.arena, self.device)
            kept.job[self.scratch_place] = kept.scratch.pointer
        kept.buffers = [Buffer(size, self.device) for size in self.places.sizes]
        kept.nodes = [self._node_of(kept, number) for number in range(len(self.places.sizes))]

    def _node_of(self, kept: _KeptJob, number: int) -> Node:
        """Let a job write the result of that number to its memory; the node of that."""
        buffer = kept.buffers[number]
        kept.job[self.result_places[number]] = buffer.pointer
        return Node.unique(buffer, *self.kinds[number], self.device)

    def unshared(self, shared: _KeptJob) -> _KeptJob:
        """Another job than `shared`, of whose results somebody has some: the next one, or a second
        one, with new memory for those of its results that somebody has as well."""
        try:
            kept = self.idle.popleft()
        except IndexError:
            kept = self.begin()
        self.idle.append(shared)
        for number in range(len(self.places.sizes)):
            if kept.is_shared(number):
                kept.buffers[number] = Buffer(self.places.sizes[number], self.device)
                kept.nodes[number] = self._node_of(kept, number)
        return kept
