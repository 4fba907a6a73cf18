"""``lamina launch``: start a script in several processes."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from lamina.core.options import kind_of
from lamina.errors import DeviceError, MissingPackageError
from lamina.runtime import mpi
from lamina.runtime.cpu import usable_cores


def launch(count: int, device: str, script: Path, arguments: Sequence[str]) -> NoReturn:
    """Run `script` in `count` processes on `device`, "cpu" or "interp", in the place of this one,
    which becomes mpiexec. Raises DeviceError for other devices, MissingPackageError without
    mpi4py or mpiexec, and FileNotFoundError for no script."""
    if kind_of(device) not in ("cpu", "interp"):
        raise DeviceError(f"launch: collectives run on cpu and interp alone, not on {device}")
    if not script.is_file():
        raise FileNotFoundError(f"launch: no file {script}")
    mpi.find()
    command = [_mpiexec(), *command_of(count, script, arguments)]
    sys.stdout.flush()
    os.execve(command[0], command, environment_of(count, device, os.environ))


def command_of(count: int, script: Path, arguments: Sequence[str]) -> list[str]:
    """The arguments of mpiexec. It is not to end the other processes when one fails: they notice
    that themselves (`lamina/runtime/peers.py`), and say which rank it was. Where a signal killed
    one, mpiexec kills the others after half a second all the same."""
    return [
        "-disable-auto-cleanup", "-n", str(count), sys.executable, str(script), *arguments
    ]  # fmt: skip


def environment_of(count: int, device: str, environment: Mapping[str, str]) -> dict[str, str]:
    """The variables of each process. They share the cores, unless LAMINA_THREADS says otherwise."""
    threads = max(1, usable_cores() // count)
    return {"LAMINA_THREADS": str(threads), **environment, "LAMINA_DEVICE": device}


def _mpiexec() -> str:
    """That of the package mpich beside this Python, or else the first one that the shell finds."""
    beside = Path(sys.executable).with_name("mpiexec")
    found = str(beside) if beside.exists() else shutil.which("mpiexec")
    if found is None:
        raise MissingPackageError("launch needs mpiexec: pip install 'lamina[mpi]'")
    return found
