"""Search: measure schedules of a kernel on its device, and keep the fastest on disk.

The kernel runs as a program of its own on arrays of ones. What was found is kept by the machine and
by the source that the heuristic's own schedule gives, until a search for more is asked for.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from lamina.compiled import runner
from lamina.core.options import HOST_DEVICES, Options
from lamina.fuse.program import BufferView, Launch, Program
from lamina.ir.kernel import Kernel
from lamina.loops.moves import Schedule
from lamina.loops.text import to_text
from lamina.runtime import compiler
from lamina.runtime.buffer import Buffer, heap_of
from lamina.runtime.cache import digest
from lamina.runtime.cpu import disk_cache
from lamina.schedule.search import search

if TYPE_CHECKING:
    from lamina.backends import Backend
    from lamina.compiled import Code, Planned

MIN_RUNS = 4  # of a schedule, the fastest of which counts
MEASURED = 0.05  # seconds of further runs


def searched_schedule(
    kernel: Kernel, options: Options, backend: Backend,
    compile_program: Callable[[Program, Options], Planned],
) -> Schedule:  # fmt: skip
    """The fastest of as many schedules as `options.search` says. compile_program: the passes from
    kernels to source."""
    views = []
    for number, parameter in enumerate(kernel.parameters):
        views.append(BufferView("input", number, parameter.dtype, parameter.size))
    program = Program(((Launch(kernel, tuple(views)),),), (), 0, 0)
    arrays: list[Buffer] = []  # for the views

    def compiled(schedule: str) -> Planned:
        return compile_program(program, replace(options, schedule=schedule, search=0))

    def seconds(moves: Schedule) -> float:
        planned = compiled(_scheduled(moves))
        assert planned.source is not None
        code = runner(options).load(planned.source, planned.launches, options)
        kept = [_ones(view, options.device) for view in planned.program.kept_views]
        return _fastest(code, [Buffer(0), *kept, *arrays])  # no scratch memory

    on_host = options.device in HOST_DEVICES
    machine = compiler.find(options).macros if on_host else str(heap_of(options.device))
    disk = disk_cache(options)
    name = digest(compiled("").text, machine, str(options.threads))
    with contextlib.suppress(OSError, ValueError, LookupError):  # the file is damaged
        path = disk.load(name)
        found = path.read_text() if path else ""
        if int(found.split()[1]) >= options.search:
            (plan,) = compiled(found).plans.values()
            return plan.moves
    for view in views:
        arrays.append(_ones(view, options.device))
    schedule = partial(backend.schedule, kernel, options)
    best = search(backend.knobs, schedule, options.search, seconds)
    disk.store(name, f"# {options.search} schedules\n{to_text(best)}\n".encode())
    return best


def _fastest(code: Code, table: Sequence[Buffer]) -> float:
    """The seconds of the fastest run of a program of one kernel."""
    first = code.run(table, 1)[0]
    runs = MIN_RUNS + int(MEASURED / max(first, 1e-5))
    return min(code.run(table, 1)[0] for _ in range(runs))


def _scheduled(moves: Schedule) -> str:
    """Moves as the option `schedule`, where no moves at all are a comment."""
    return f"#\n{to_text(moves)}"


def _ones(view: BufferView, device: str) -> Buffer:
    """An array of ones on `device`."""
    staging = Buffer.staging(view.nbytes, device)
    np.frombuffer(staging.view(), view.dtype.numpy)[:] = 1
    return staging.sent(device)
