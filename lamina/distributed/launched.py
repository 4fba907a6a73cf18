"""What the program that started this process says of it, in variables of the environment."""

import os
from collections.abc import Mapping
from dataclasses import dataclass

from lamina.errors import ArgumentError


@dataclass(frozen=True)
class Launcher:
    """A program that starts several processes, and the variables in which each finds its rank and
    how many there are."""

    name: str
    rank: str
    size: str
    has_mpi: bool = True  # are its processes those of one MPI?


# Those of MPI come first: their processes may run inside of what another one started. A batch
# script of SLURM is no step, and has no number of tasks.
LAUNCHERS = (
    Launcher("mpiexec", "PMI_RANK", "PMI_SIZE"),
    Launcher("Open MPI's mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    Launcher("torchrun", "RANK", "WORLD_SIZE", has_mpi=False),
    Launcher("srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
)


@dataclass(frozen=True)
class Launched:
    """This process is `rank` of `size`, started by `launcher`, None if nothing started several."""

    rank: int = 0
    size: int = 1
    launcher: Launcher | None = None


def launched(environment: Mapping[str, str] = os.environ) -> Launched:
    """What the first launcher of the table says that has left its variables. Raises ArgumentError
    for variables that make no sense."""
    for launcher in LAUNCHERS:
        rank, size = environment.get(launcher.rank), environment.get(launcher.size)
        if rank is None or size is None:
            continue
        if not (rank.isdecimal() and size.isdecimal() and int(rank) < int(size)):
            found = f"{launcher.rank}={rank!r} and {launcher.size}={size!r}"
            raise ArgumentError(f"init: {launcher.name} left {found}, which are no rank and size")
        return Launched(int(rank), int(size), launcher)
    return Launched()
