"""Runs a script as a process of `lamina launch`: ``python child.py SCRIPT ARGUMENTS``.

Processes of MPI wait for each other as it starts, without end. So one that fails before that, in an
import or in an argument, ends by a signal, upon which mpiexec ends the others too. Once the script
has called `lamina.distributed.init`, failures are told to the others there.

This file is run by its path, and imports nothing of lamina: what the script does first, such as
setting variables of the environment, comes first.
"""

import os
import signal
import sys
import traceback
from pathlib import Path
from types import ModuleType


def main() -> None:
    """Run the script as `__main__`."""
    script, *arguments = sys.argv[1:]
    sys.argv = [script, *arguments]
    sys.path[0] = str(Path(script).resolve().parent)
    # A module of its own, so that the script's names do not replace those of this file.
    module = sys.modules["__main__"] = ModuleType("__main__")
    module.__file__ = script
    try:
        exec(compile(Path(script).read_bytes(), script, "exec"), vars(module))
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


def has_joined() -> bool:
    """Whether this process has joined the others."""
    setup = sys.modules.get("lamina.distributed.setup")
    return setup is not None and bool(setup._joined)


if __name__ == "__main__":
    main()
