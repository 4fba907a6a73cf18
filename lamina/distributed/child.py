"""Runs a script or a module as a process of `lamina launch`: ``python child.py SCRIPT ARGUMENTS``,
``python child.py -m MODULE ARGUMENTS``.

Processes of MPI wait for each other as it starts, without end. So one that fails before that, in an
import or in an argument, ends by a signal, upon which mpiexec ends the others too. Once the script
has called `lamina.distributed.init`, failures are told to the others there.

On Linux the script runs in a child of the process that mpiexec knows. Once a signal has killed one
of its processes, mpiexec kills the others within 0.2 s, and these may not have said yet which rank
it was. So the parent of a killed child waits for `LAST_SECONDS`, and then ends by the same signal.

This file is run by its path, and imports nothing of lamina: what the script does first, such as
setting variables of the environment, comes first.
"""

from __future__ import annotations

import ctypes
import os
import resource
import runpy
import signal
import sys
import time
import traceback
from contextlib import suppress
from pathlib import Path
from types import FrameType, ModuleType
from typing import NoReturn

LAST_SECONDS = 3.0  # for the others to say that this one was killed
DIES_WITH_PARENT = 1  # PR_SET_PDEATHSIG of Linux


def main() -> None:
    """Run the script, or the module, as `__main__`."""
    if sys.platform == "linux":
        parent = os.getpid()
        child = os.fork()
        if child:
            end_as(child)
        ctypes.CDLL(None).prctl(DIES_WITH_PARENT, signal.SIGKILL)
        if os.getppid() != parent:  # it has ended before that
            os._exit(1)
    run()


def end_as(child: int) -> NoReturn:
    """Wait until a child has ended, and end with its status, or by its signal. What asks this
    process to end asks the child; a terminal interrupts both. SIGUSR1 is how mpiexec tells
    processes that another one has ended, in order or not: MPI knows that, Python would end."""

    def pass_on(number: int, frame: FrameType | None) -> None:
        with suppress(ProcessLookupError):  # the child, of one group with this process, had it too
            os.kill(child, number)

    for number in (signal.SIGINT, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, pass_on)
    _, status = os.waitpid(child, 0)
    if not os.WIFSIGNALED(status):
        os._exit(os.WEXITSTATUS(status))
    killed_by = os.WTERMSIG(status)
    if killed_by != signal.SIGTERM:  # by which it ends on request, or before it has joined others
        time.sleep(LAST_SECONDS)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the child has left one, if any is to be left
    if killed_by != signal.SIGKILL:  # which has no handler
        signal.signal(killed_by, signal.SIG_DFL)
    os.kill(os.getpid(), killed_by)
    os._exit(128 + killed_by)


def run() -> None:
    """Run the script, or the module; one that fails before it has joined the others ends by a
    signal."""
    try:
        if sys.argv[1] == "-m":
            run_module(*sys.argv[2:])
        else:
            run_script(*sys.argv[1:])
    except BaseException as error:
        status = error.code if isinstance(error, SystemExit) else 1
        if has_joined() or not status:
            raise
        if not isinstance(error, SystemExit):
            traceback.print_exception(error)
        elif isinstance(error.code, str):
            print(error.code, file=sys.stderr)  # as Python does at the end
        sys.stdout.flush()
        sys.stderr.flush()
        os.kill(os.getpid(), signal.SIGTERM)


def run_script(script: str, *arguments: str) -> None:
    sys.argv = [script, *arguments]
    sys.path[0] = str(Path(script).resolve().parent)
    # A module of its own, so that the script's names do not replace those of this file.
    module = sys.modules["__main__"] = ModuleType("__main__")
    module.__file__ = script
    exec(compile(Path(script).read_bytes(), script, "exec"), vars(module))


def run_module(name: str, *arguments: str) -> None:
    sys.argv = [name, *arguments]
    sys.path[0] = os.getcwd()  # as Python has it for a module
    runpy.run_module(name, run_name="__main__", alter_sys=True)


def has_joined() -> bool:
    """Whether this process has joined the others."""
    setup = sys.modules.get("lamina.distributed.setup")
    return setup is not None and bool(setup._joined)


if __name__ == "__main__":
    main()
