"""What the program that started this process says of it, in variables of the environment."""

import os
from collections.abc import Mapping
from dataclasses import dataclass

from lamina.errors import ArgumentError, DeviceError


@dataclass(frozen=True)
class Launcher:
    """A program that starts several processes, and the variables in which each finds its rank, how
    many there are, and its number among those of its machine."""

    name: str
    rank: str
    size: str
    local_rank: str
    has_mpi: bool = True  # are its processes those of one MPI?


# Those of MPI come first: their processes may run inside of what another one started. A batch
# script of SLURM is no step, and has no number of tasks.
LAUNCHERS = (
    Launcher("mpiexec", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"),
    Launcher(
        "Open MPI's mpirun",
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_RANK",
    ),
    Launcher("torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", has_mpi=False),
    Launcher("srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID"),
)


@dataclass(frozen=True)
class Launched:
    """This process is `rank` of `size`, and number `local_rank` of its machine, started by
    `launcher`, None if nothing started several."""

    rank: int = 0
    size: int = 1
    launcher: Launcher | None = None
    local_rank: int = 0


def launched(environment: Mapping[str, str] = os.environ) -> Launched:
    """What the first launcher of the table says that has left its variables. Raises ArgumentError
    for variables that make no sense."""
    for launcher in LAUNCHERS:
        rank, size = environment.get(launcher.rank), environment.get(launcher.size)
        if rank is None or size is None:
            continue
        local_rank = environment.get(launcher.local_rank, "0")
        are_numbers = rank.isdecimal() and size.isdecimal() and local_rank.isdecimal()
        if not (are_numbers and int(rank) < int(size)):
            found = f"{launcher.rank}={rank!r} and {launcher.size}={size!r}"
            raise ArgumentError(
                f"{launcher.name} left {found}, which are no rank and size", operation="init"
            )
        return Launched(int(rank), int(size), launcher, int(local_rank))
    return Launched()


@dataclass(frozen=True)
class Meeting:
    """Where processes meet that no MPI joins: a server on rank 0 has this address, and lets in who
    has the token."""

    host: str
    port: int
    token: str


def meeting(environment: Mapping[str, str] = os.environ) -> Meeting:
    """What the variables of torchrun say. Its own server has the port MASTER_PORT, so lamina's has
    the one after it. Raises DeviceError where a variable is missing, and ArgumentError for a port
    that is none."""
    host, port = environment.get("MASTER_ADDR"), environment.get("MASTER_PORT")
    if host is None or port is None:
        raise DeviceError(
            "init: processes with GPUs need the variables MASTER_ADDR, the machine of rank 0, and "
            "MASTER_PORT: `lamina launch --device cuda` and torchrun set them"
        )
    if not port.isdecimal() or not 0 < int(port) < 65535:
        raise ArgumentError(f"MASTER_PORT={port!r} is no port below 65535", operation="init")
    return Meeting(host, int(port) + 1, environment.get("TORCHELASTIC_RUN_ID", ""))
