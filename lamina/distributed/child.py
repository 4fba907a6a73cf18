"""Runs a script or a module as a process of `lamina launch`: ``python child.py SCRIPT ARGUMENTS``,
``python child.py -m MODULE ARGUMENTS``.

Processes of MPI wait for each other as it starts, without end. So one that fails before that, in an
import or in an argument, ends by a signal, upon which mpiexec ends the others too. Once the script
has called `lamina.distributed.init`, failures are told to the others there.

This file is run by its path, and imports nothing of lamina: what the script does first, such as
setting variables of the environment, comes first.
"""

import os
import runpy
import signal
import sys
import traceback
from pathlib import Path
from types import ModuleType


def main() -> None:
    """Run the script, or the module, as `__main__`."""
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
