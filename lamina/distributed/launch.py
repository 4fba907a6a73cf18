"""``lamina launch``: start a script in several processes."""

from __future__ import annotations

import os
import secrets
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from lamina.core.options import kind_of
from lamina.distributed.children import free_port, run_children
from lamina.distributed.launched import LAUNCHERS
from lamina.errors import DeviceError, MissingPackageError
from lamina.runtime import mpi
from lamina.runtime.cpu import usable_cores


def launch(count: int, device: str, program: Sequence[str]) -> int:
    """Run `program`, a script or ``-m`` and a module, with its arguments, in `count` processes on
    `device`, "cpu", "interp" or "cuda": each has a GPU of its own, the first "cuda:0". Returns the
    exit status. For CPUs this process becomes mpiexec.

    Raises DeviceError for other devices, MissingPackageError for CPUs without mpi4py or mpiexec,
    and FileNotFoundError for no script."""
    if device not in ("cpu", "interp", "cuda"):
        why = "each process has a GPU of its own" if kind_of(device) == "cuda" else "they do not"
        raise DeviceError(
            f"launch: processes on cpu, interp or cuda exchange arrays, not on {device}: {why}"
        )
    if program[0] != "-m" and not Path(program[0]).is_file():
        raise FileNotFoundError(f"launch: no file {program[0]}")
    sys.stdout.flush()
    if device == "cuda":
        command = [sys.executable, *program]
        return run_children(command, gpu_environments(count, free_port(), os.environ))
    return _become_mpiexec(count, device, program)


def _become_mpiexec(count: int, device: str, program: Sequence[str]) -> NoReturn:
    mpi.find()
    command = [_mpiexec(), *command_of(count, program)]
    os.execve(command[0], command, environment_of(count, device, os.environ))


def command_of(count: int, program: Sequence[str]) -> list[str]:
    """The arguments of mpiexec. It is not to end the other processes when one fails: they notice
    that themselves (`lamina/runtime/peers.py`), and say which rank it was. Where a signal killed
    one, mpiexec kills the others all the same, after the time that `child.py` leaves them."""
    python = [sys.executable, str(Path(__file__).with_name("child.py"))]
    return ["-disable-auto-cleanup", "-n", str(count), *python, *program]


def environment_of(count: int, device: str, environment: Mapping[str, str]) -> dict[str, str]:
    """The variables of each process. They share the cores, unless LAMINA_THREADS says otherwise."""
    threads = max(1, usable_cores() // count)
    return {"LAMINA_THREADS": str(threads), **environment, "LAMINA_DEVICE": device}


def gpu_environments(count: int, port: int, environment: Mapping[str, str]) -> list[dict[str, str]]:
    """The variables of each of `count` processes of this machine, which are those of torchrun.
    port: for their server. Those of other launchers, inside of which this one may run, go: a
    process would take itself for one of theirs."""
    inherited = dict(environment)
    for launcher in LAUNCHERS:
        for name in (launcher.rank, launcher.size, launcher.local_rank):
            inherited.pop(name, None)
    shared = {
        **environment_of(count, "cuda", inherited),
        "WORLD_SIZE": str(count),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port - 1),  # after which the server's comes
        "TORCHELASTIC_RUN_ID": secrets.token_hex(16),  # only who has it is let in
    }
    return [
        {**shared, "RANK": str(rank), "LOCAL_RANK": str(rank), "LAMINA_DEVICE": f"cuda:{rank}"}
        for rank in range(count)
    ]


def _mpiexec() -> str:
    """That of the package mpich beside this Python, or else the first one that the shell finds."""
    beside = Path(sys.executable).with_name("mpiexec")
    found = str(beside) if beside.exists() else shutil.which("mpiexec")
    if found is None:
        raise MissingPackageError("launch needs mpiexec: pip install 'lamina[mpi]'")
    return found
