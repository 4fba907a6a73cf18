"""Running programs: those of an earlier process where they are on disk, and others compiled first.

`lamina.pipeline`, which has the passes, loads when something has to be compiled, checked or
explained.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace

from lamina.compiled import Planned, find, key_of
from lamina.core.options import Options, current
from lamina.core.recent import cached
from lamina.errors import CompilerNotFoundError
from lamina.ir.node import Node
from lamina.runtime.buffer import Buffer
from lamina.runtime.profile import counter, runs

__all__ = ["compile_sinks", "execute", "run_compiled", "run_once"]


def execute(sinks: Sequence[Node], inputs: Sequence[Buffer], device: str) -> list[Buffer]:
    """Run `sinks` on `device`; one buffer a sink, row-major.

    BUFFER leaves hold the number of one of `inputs` as their storage. An ASSIGN sink writes into
    its target and returns the target's own buffer; every other sink gets a new one. A machine
    without a C compiler runs the interpreter, with a warning; one that the user named must work.
    """
    options = current()
    if options.device != device:
        options = replace(options, device=device)
    try:
        if device != "interp":
            return run_compiled(compile_sinks(tuple(sinks), options), inputs, options)
    except CompilerNotFoundError as error:
        if options.cc:
            raise
        # One warning, whatever line of the user's comes.
        why = f"programs run in the slow reference interpreter: {error.message}"
        warnings.warn(why, stacklevel=2)
    from lamina.reference import interpret

    return interpret(sinks, inputs, device)


@cached(1024)
def compile_sinks(sinks: tuple[Node, ...], options: Options) -> Planned:
    """The program of a graph for the device of `options`: that of an equal graph and equal options
    which this process has, else one that an earlier process stored, else compiled by the passes."""
    key = key_of(sinks, options)
    found = find(key, sinks, options) if key else None
    if found is not None:
        return found
    from lamina.pipeline import compile_stored  # the compiler loads when it is first needed

    return compile_stored(sinks, options, key)


def run_once(planned: Planned, inputs: Sequence[Buffer], options: Options) -> list[Buffer]:
    """The arrays of constants that a program keeps from call to call, computed from the buffers of
    its inputs, of which only the constants are read. They are one block of memory: a large one has
    large pages, of which the processor looks up fewer."""
    if planned.once is None:
        return []
    sizes = [view.nbytes for view in planned.once.program.outputs]
    return run_compiled(planned.once, inputs, options, results=Buffer.parts(sizes, options.device))


def run_compiled(
    planned: Planned, inputs: Sequence[Buffer], options: Options, kept: Sequence[Buffer] = (),
    results: list[Buffer] | None = None,
) -> list[Buffer]:  # fmt: skip
    """Run a program on the buffers of its numbered inputs; one buffer an output. `kept`: what
    `run_once` returned for the same constants. `results`: memory for the outputs, if there is."""
    if planned.graph and (options.debug or options.check or runs):
        from lamina.pipeline import with_steps

        planned = with_steps(planned.graph, options)
    program, code, device = planned.program, planned.code, options.device
    assert code is not None
    if results is None:
        results = []
        for view in program.outputs:  # in a loop, because this is what every call waits for
            is_input = view.kind == "input"
            results.append(inputs[view.number] if is_input else Buffer(view.nbytes, device))
    # Steps that are checked are programs of their own, of which nobody agrees on a window.
    arena = Buffer(program.arena, device) if options.check else code.arena(program.arena)
    table = [arena, *results, *kept, *inputs]
    count = len(program.steps)
    counter.kernels += count
    timed = count if options.debug or runs else 0
    seconds = _checked(planned, table, options) if options.check else code.run(table, timed)
    if timed:
        runs.publish((planned, seconds, options))
        if options.debug:
            from lamina.pipeline import report

            report(planned, seconds, options)
    return results


def _checked(planned: Planned, table: Sequence[Buffer], options: Options) -> list[float]:
    from lamina.backends import backend  # the compiler loads when it is first needed
    from lamina.explain.check import run_checked

    return run_checked(planned, table, options, backend(options))
