"""The compiler's table of contents: from a graph to results in device buffers.

`PASSES` is the whole compiler, in order. Each pass takes what the one before it returns:

    graph     outputs wanted, as array nodes           lamina.ir
    kernels   a program of scalar kernels              lamina.fuse
    nests     the same with a schedule for each        lamina.kernel
    source    one translation unit                     lamina.codegen
"""

from __future__ import annotations

import functools
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from lamina.codegen.c import CPrinter, print_program, print_sort
from lamina.codegen.legalize import legalize
from lamina.errors import CompilerNotFoundError, FormatError, VerifyError
from lamina.fuse.program import Output, Program, build_program
from lamina.ir.interpreter import evaluate
from lamina.ir.kernel import AnyKernel, SortKernel, free_axes
from lamina.ir.kernel_interpreter import check_kernel
from lamina.ir.node import Node, toposort
from lamina.ir.ops import Group, Op
from lamina.ir.text import kernel_text
from lamina.ir.text import to_text as graph_text
from lamina.ir.verify import verify
from lamina.ir.verify_kernel import verify_kernel
from lamina.kernel.heuristic import Target, schedule_kernel
from lamina.kernel.schedule import Nest, Schedule, apply, parse_sections, to_text
from lamina.kernel.verify import verify_nest
from lamina.options import Options, current
from lamina.rewrite.engine import rewrite
from lamina.runtime import compiler
from lamina.runtime.buffer import Buffer
from lamina.runtime.cpu import CpuProgram
from lamina.runtime.profile import KernelRecord, counter, listening, profile, publish
from lamina.shape import prod
from lamina.simplify.algebra import DROP_DETACH, SIMPLIFY
from lamina.simplify.complex import split_complex
from lamina.simplify.widen import WIDEN

__all__ = [
    "PASSES", "Compiled", "compile_outputs", "compile_source", "counter", "execute", "pass_times",
    "profile",
]  # fmt: skip

VERIFY = False  # check every dialect's invariants after every pass; the tests switch it on


class Pass(NamedTuple):
    """One step of the compiler, and the dialects it reads and writes."""

    name: str
    function: Callable[[Any, Options], Any]
    reads: str
    writes: str


@dataclass(frozen=True)
class Scheduled:
    """A program whose kernels have nests; equal kernels have one."""

    program: Program
    nests: dict[AnyKernel, Nest | SortKernel]
    schedules: dict[AnyKernel, Schedule]


@dataclass(frozen=True)
class Source:
    """The text of a program, and what `run` and the debug lines need to know of it."""

    text: str
    scheduled: Scheduled
    names: tuple[str, ...]  # of each launch


def _rewritten(outputs: list[Output], rules: Any) -> list[Output]:
    values = rewrite([output.value for output in outputs], rules)
    return [replace(output, value=value) for output, value in zip(outputs, values, strict=True)]


def _split_complex(outputs: list[Output], options: Options) -> list[Output]:
    targets = [output.target for output in outputs if output.target is not None]
    split = split_complex([*(output.value for output in outputs), *targets])
    values, kept = split[: len(outputs)], iter(split[len(outputs) :])
    return [
        Output(value, None if output.target is None else next(kept))
        for output, value in zip(outputs, values, strict=True)
    ]


def _drop_detach(outputs: list[Output], options: Options) -> list[Output]:
    return _rewritten(outputs, DROP_DETACH)


def _simplify(outputs: list[Output], options: Options) -> list[Output]:
    return _rewritten(outputs, SIMPLIFY)


def _widen(outputs: list[Output], options: Options) -> list[Output]:
    return _rewritten(outputs, WIDEN)


def _fuse(outputs: list[Output], options: Options) -> Program:
    return build_program(outputs)


def _schedule(program: Program, options: Options) -> Scheduled:
    target = cpu_target(options)
    nests: dict[AnyKernel, Nest | SortKernel] = {}
    schedules: dict[AnyKernel, Schedule] = {}
    given = parse_sections(options.schedule) if options.schedule else {}
    for number, kernel in enumerate(dict.fromkeys(one.kernel for one in program.launches)):
        if isinstance(kernel, SortKernel):
            nests[kernel] = kernel
            continue
        moves = given.get(kernel_name(kernel, number), given.get(""))
        if moves is None:
            moves = schedule_kernel(kernel, target)
        nest = apply(kernel, moves)
        if given:
            _check_given(nest)
        schedules[kernel], nests[kernel] = moves, nest
    return Scheduled(program, nests, schedules)


def _check_given(nest: Nest) -> None:
    """A schedule from outside must keep what the heuristic's keep."""
    try:
        verify_nest(nest)
    except VerifyError as error:
        raise FormatError(f"schedule: {str(error).splitlines()[0]}") from None


def _legalize(scheduled: Scheduled, options: Options) -> Scheduled:
    """After scheduling, which looks at memory alone and is quicker on short expressions."""
    nests = {
        kernel: replace(nest, kernel=legalize(nest.kernel)) if isinstance(nest, Nest) else nest
        for kernel, nest in scheduled.nests.items()
    }
    return replace(scheduled, nests=nests)


def _print(scheduled: Scheduled, options: Options) -> Source:
    used: set[str] = set()
    kernels: dict[object, tuple[str, str, int]] = {}
    for number, (kernel, nest) in enumerate(scheduled.nests.items()):
        name = kernel_name(kernel, number)
        if isinstance(nest, SortKernel):
            text, chunks = print_sort(nest, name)
        else:
            text, chunks = CPrinter(nest, name, used).print()
        kernels[kernel] = (name, text, chunks)
    text = print_program(scheduled.program, kernels, used)
    names = tuple(kernels[launch.kernel][0] for launch in scheduled.program.launches)
    return Source(text, scheduled, names)


PASSES: tuple[Pass, ...] = (
    Pass("split_complex", _split_complex, "graph", "graph"),
    Pass("drop_detach", _drop_detach, "graph", "graph"),
    Pass("simplify", _simplify, "graph", "graph"),
    Pass("widen", _widen, "graph", "graph"),
    Pass("fuse", _fuse, "graph", "kernels"),
    Pass("schedule", _schedule, "kernels", "nests"),
    Pass("legalize", _legalize, "nests", "nests"),
    Pass("print", _print, "nests", "source"),
)


def kernel_name(kernel: AnyKernel, number: int) -> str:
    """What a kernel does and on how many elements: ``fold3_64x10``."""
    if isinstance(kernel, SortKernel):
        return f"sort{number}_{kernel.rows}x{kernel.length}"
    store = kernel.stores[-1]
    ops = {node.op for one in kernel.stores for node in toposort([one.value])}
    kind = "fold" if Op.FOLD in ops else "scan" if Op.PREFIX in ops else "map"
    if store.monoid is not None:
        kind = "scatter"
    return f"{kind}{number}_{'x'.join(str(axis.arg.size) for axis in store.axes) or '1'}"


def cpu_target(options: Options) -> Target:
    """This machine, as the scheduler sees it."""
    width = compiler.vector_bytes()
    return Target("c", width, 32 if width == 64 else 16)


def compile_source(outputs: Sequence[Output], options: Options) -> Source:
    """Run every pass; BUFFER leaves hold the number of a program input as storage."""
    value: Any = list(outputs)
    for one in PASSES:
        before, started = value, time.perf_counter()
        value = one.function(value, options)
        for record in _pass_records:
            record.append((one.name, time.perf_counter() - started))
        if VERIFY or options.check:
            _verify(one, value)
        if options.debug >= 3:
            _show(one, before, value)
    assert isinstance(value, Source)
    return value


def _verify(one: Pass, value: Any) -> None:
    """Check the invariants of the dialect that a pass writes."""
    if one.writes == "graph":
        verify([output.value for output in value])
    elif one.writes == "kernels":
        for launch in value.launches:
            verify_kernel(launch.kernel)
    elif one.writes == "nests":
        for nest in value.nests.values():
            if isinstance(nest, Nest):
                verify_nest(nest)


def _show(one: Pass, before: Any, after: Any) -> None:
    """The IR after a pass that changed it; the source is for the next debug level."""
    if before == after:
        print(f"-- {one.name} (unchanged)", file=sys.stderr)
        return
    print(f"-- {one.name}", file=sys.stderr)
    if one.writes == "graph":
        print(graph_text([output.value for output in after]), file=sys.stderr)
    elif one.writes == "kernels":
        for launch in after.launches:
            print(kernel_text(launch.kernel), file=sys.stderr)
    elif one.writes == "nests":
        for kernel, nest in after.nests.items():
            moves = after.schedules.get(kernel)
            print(to_text(moves) if moves else "(no move)", file=sys.stderr)
            print(kernel_text(nest.kernel if isinstance(nest, Nest) else nest), file=sys.stderr)


_pass_records: list[list[tuple[str, float]]] = []


@contextmanager
def pass_times() -> Iterator[list[tuple[str, float]]]:
    """Collect (pass, seconds) of every compilation inside a ``with`` block."""
    record: list[tuple[str, float]] = []
    _pass_records.append(record)
    try:
        yield record
    finally:
        _pass_records.remove(record)


@dataclass(frozen=True)
class Compiled:
    """A program ready to run."""

    source: Source
    code: CpuProgram


@functools.lru_cache(maxsize=1024)
def compile_outputs(outputs: tuple[Output, ...], options: Options) -> Compiled:
    """Compile, or find what was compiled before for an equal graph and equal options."""
    source = compile_source(outputs, options)
    if options.debug >= 4:
        print(source.text, file=sys.stderr)
    return Compiled(source, CpuProgram.load(source.text, options))


# Running.


def execute(sinks: Sequence[Node], device: str, options: Options | None = None) -> list[Buffer]:
    """Run `sinks` on `device`; one buffer a sink, row-major.

    BUFFER leaves hold a runtime Buffer as their storage. An ASSIGN sink writes into its target
    and returns the target's own buffer; every other sink gets a new one.
    """
    options = options or current()
    if device == "interp":
        return _interpret(sinks, device)
    outputs, inputs = _normalized(sinks)
    compiled = _compile_or_warn(outputs, options)
    if compiled is None:
        return _interpret(sinks, device)
    return run_compiled(compiled, inputs, options, device)


def run_compiled(
    compiled: Compiled, inputs: Sequence[Buffer], options: Options, device: str = "cpu"
) -> list[Buffer]:
    """Run a program on the buffers of its numbered inputs; one buffer an output."""
    program = compiled.source.scheduled.program
    buffers: list[Buffer] = []
    for slot in program.slots:
        if slot.kind == "input":
            buffers.append(inputs[slot.number])
        elif slot.kind == "output":
            buffers.append(Buffer(slot.nbytes, device))
        else:
            buffers.append(_NOTHING)
    results = [buffers[slot] for slot in program.outputs]
    arena = Buffer(program.arena, device)
    _run(compiled, [*buffers, arena], options)
    return results


_NOTHING = Buffer(0)


def _compile_or_warn(outputs: tuple[Output, ...], options: Options) -> Compiled | None:
    """The compiled program, or None on a machine without a C compiler; a compiler that the user
    named must work."""
    try:
        return compile_outputs(outputs, options)
    except CompilerNotFoundError as error:
        if options.cc:
            raise
        warn_without_compiler(str(error))
        return None


@functools.cache
def warn_without_compiler(reason: str) -> None:
    """Say once that everything will be slow."""
    warnings.warn(f"programs run in the slow reference interpreter: {reason}", stacklevel=2)


def _run(compiled: Compiled, buffers: list[Buffer], options: Options) -> None:
    names = compiled.source.names
    counter.kernels += len(names)
    timed = bool(options.debug) or listening()
    seconds = (
        _run_checked(compiled, buffers, options)
        if options.check
        else compiled.code.run(buffers, (), len(names), timed)
    )
    if not timed or seconds is None:
        return
    scheduled = compiled.source.scheduled
    for launch, name, taken in zip(scheduled.program.launches, names, seconds, strict=True):
        record = KernelRecord(name, taken, _bytes(launch.kernel), _flops(launch.kernel))
        publish(record)
        if options.debug:
            print(record, file=sys.stderr)
        if options.debug >= 2 and (moves := scheduled.schedules.get(launch.kernel)):
            print("    " + to_text(moves).replace("\n", "\n    "), file=sys.stderr)


def _run_checked(compiled: Compiled, buffers: list[Buffer], options: Options) -> list[float]:
    """Run each kernel as a program of its own, and compare what it wrote with the reference."""
    scheduled = compiled.source.scheduled
    program, seconds = scheduled.program, []
    for launch, name in zip(program.launches, compiled.source.names, strict=True):
        arrays = [_array(program, slot, buffers) for slot in launch.slots]
        before = [array.copy() for array in arrays]
        alone = replace(scheduled, program=replace(program, launches=(launch,)),
                        nests={launch.kernel: scheduled.nests[launch.kernel]})  # fmt: skip
        code = CpuProgram.load(_print(alone, options).text, options)
        seconds += code.run(buffers, (), 1, timed=True) or [0.0]
        wrong = check_kernel(launch.kernel, before, arrays)
        if wrong is not None:
            moves = to_text(scheduled.schedules.get(launch.kernel, ())) or "(no move)"
            raise VerifyError(f"check: kernel {name}: {wrong}\nits schedule:\n{moves}")
    return seconds


def _array(program: Program, number: int, buffers: list[Buffer]) -> Any:
    """The memory of a slot as a flat NumPy array."""
    import numpy as np

    slot = program.slots[number]
    scratch = slot.kind == "scratch"
    view = buffers[-1 if scratch else number].view()
    return np.frombuffer(view, slot.dtype.numpy, slot.size, slot.offset if scratch else 0)


def _bytes(kernel: AnyKernel) -> int:
    return sum(one.size * one.dtype.itemsize for one in kernel.parameters)


def _flops(kernel: AnyKernel) -> int:
    """Arithmetic of one run, each operation counted where its axes put it."""
    if isinstance(kernel, SortKernel):
        return 0
    total = 0
    counted = Group.ELEMENTWISE - {Op.CAST, Op.BITCAST}
    nodes = toposort(store.value for store in kernel.stores)
    for node in nodes:
        if node.op in counted and node.dtype.is_float:
            total += prod(axis.arg.size for axis in free_axes(node))
        elif node.op is Op.FOLD:
            axes = free_axes(node) | set(node.src[node.arg.monoid.arity :])
            total += prod(axis.arg.size for axis in axes)
    return total


def _normalized(sinks: Sequence[Node]) -> tuple[tuple[Output, ...], list[Buffer]]:
    """Outputs whose BUFFER leaves hold numbers in place of storage, so that equal graphs are one
    node; and the storage of each number."""
    inputs: list[Buffer] = []
    numbers: dict[int, int] = {}
    memo: dict[Node, Node] = {}
    for node in toposort(sinks):
        if node.op is Op.BUFFER:
            storage = node.arg.storage
            number = numbers.setdefault(id(storage), len(inputs))
            if number == len(inputs):
                inputs.append(storage)
            memo[node] = Node(Op.BUFFER, (), node.arg._replace(storage=number))
        else:
            src = tuple(memo[operand] for operand in node.src)
            memo[node] = node if src == node.src else Node(node.op, src, node.arg)
    outputs = []
    for sink in sinks:
        node = memo[sink]
        value, target = (node.src[1], node.src[0]) if node.op is Op.ASSIGN else (node, None)
        outputs.append(Output(value, target))
    return tuple(outputs), inputs


def _interpret(sinks: Sequence[Node], device: str) -> list[Buffer]:
    """The reference device: the interpreter in place of the compiler."""
    import numpy as np

    leaves = {
        node: np.frombuffer(node.arg.storage.view(), node.dtype.numpy).reshape(node.shape)
        for node in toposort(sinks)
        if node.op is Op.BUFFER
    }
    results = [np.array(value) for value in evaluate(sinks, leaves)]
    buffers = []
    for sink, value in zip(sinks, results, strict=True):
        if sink.op is Op.ASSIGN:
            buffer = sink.src[0].arg.storage
        else:
            buffer = Buffer(prod(sink.shape) * sink.dtype.itemsize, device)
        target = np.frombuffer(buffer.view(), sink.dtype.numpy)
        target[:] = value.reshape(-1)
        buffers.append(buffer)
    return buffers
