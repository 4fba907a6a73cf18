"""What starts several processes, and what each of them finds in its environment."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from lamina.cli import main
from lamina.distributed.launch import command_of, environment_of
from lamina.distributed.launched import launched
from lamina.errors import ArgumentError

VARIABLES = {
    "mpiexec": {"PMI_RANK": "1", "PMI_SIZE": "4"},
    "Open MPI's mpirun": {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "4"},
    "torchrun": {"RANK": "1", "WORLD_SIZE": "4", "MASTER_ADDR": "127.0.0.1"},
    "srun": {"SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "4"},
}


@pytest.mark.parametrize("name", VARIABLES)
def test_each_launcher_is_read(name: str) -> None:
    found = launched(VARIABLES[name])
    assert (found.rank, found.size) == (1, 4)
    assert found.launcher is not None
    assert found.launcher.name == name


def test_nothing_is_one_process() -> None:
    assert (launched({}).rank, launched({}).size) == (0, 1)


def test_a_batch_script_of_slurm_is_one_process() -> None:
    assert launched({"SLURM_PROCID": "0", "SLURM_NTASKS": "4"}).size == 1


def test_mpi_counts_inside_of_a_job_of_slurm() -> None:
    inside = VARIABLES["srun"] | {"PMI_RANK": "0", "PMI_SIZE": "2"}
    assert (launched(inside).rank, launched(inside).size) == (0, 2)


@pytest.mark.parametrize("rank", ["4", "-1", "one"])
def test_what_makes_no_sense_is_refused(rank: str) -> None:
    with pytest.raises(ArgumentError, match=f"PMI_RANK='{rank}' and PMI_SIZE='4'"):
        launched({"PMI_RANK": rank, "PMI_SIZE": "4"})


def test_processes_share_the_cores_and_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lamina.distributed.launch.usable_cores", lambda: 8)
    assert environment_of(4, "cpu", {})["LAMINA_THREADS"] == "2"
    assert environment_of(16, "cpu", {})["LAMINA_THREADS"] == "1"
    kept = environment_of(4, "interp", {"LAMINA_THREADS": "5", "LAMINA_DEVICE": "cpu"})
    assert kept == {"LAMINA_THREADS": "5", "LAMINA_DEVICE": "interp"}
    command = command_of(3, Path("train.py"), ["--steps", "2"])
    assert command[1:] == ["-n", "3", sys.executable, "train.py", "--steps", "2"]


def test_gpus_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["launch", "--device", "cuda:0", __file__]) == 1
    assert "collectives run on cpu and interp alone, not on cuda:0" in capsys.readouterr().err


def test_a_script_that_is_not_there_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["launch", "no_such.py"]) == 1
    assert "no file no_such.py" in capsys.readouterr().err
