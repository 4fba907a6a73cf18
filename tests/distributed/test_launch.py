"""What starts several processes, and what each of them finds in its environment."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lamina.cli import main
from lamina.distributed import children
from lamina.distributed.children import run_children
from lamina.distributed.launch import command_of, environment_of, gpu_environments
from lamina.distributed.launched import launched, meeting
from lamina.errors import ArgumentError, DeviceError
from tests.distributed.launching import ends_soon

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
    command = command_of(3, ["train.py", "--steps", "2"])
    assert command[1:4] == ["-n", "3", sys.executable]
    assert command[5:] == ["train.py", "--steps", "2"]


def test_one_gpu_for_all_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["launch", "--device", "cuda:0", __file__]) == 1
    assert "not on cuda:0: each process has a GPU of its own" in capsys.readouterr().err


@pytest.mark.parametrize("outer", [{}, *VARIABLES.values()], ids=["nothing", *VARIABLES])
def test_each_process_has_a_gpu_and_the_variables_of_torchrun(
    outer: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever has started `lamina launch` itself."""
    monkeypatch.setattr("lamina.distributed.launch.usable_cores", lambda: 8)
    first, second = gpu_environments(2, 5001, {"HOME": "/home/x", "RANK": "7"} | outer)
    assert first["HOME"] == "/home/x"
    assert (first["LAMINA_DEVICE"], first["LAMINA_THREADS"]) == ("cuda:0", "4")
    assert second["LAMINA_DEVICE"] == "cuda:1"
    for rank, environment in enumerate((first, second)):
        found = launched(environment)
        assert (found.rank, found.size, found.local_rank) == (rank, 2, rank)
    assert meeting(first) == meeting(second)
    assert (meeting(first).host, meeting(first).port) == ("127.0.0.1", 5001)
    assert len(meeting(first).token) == 32
    assert meeting(first).token != meeting(gpu_environments(1, 5001, {})[0]).token


def test_gpus_need_a_place_to_meet() -> None:
    with pytest.raises(DeviceError, match="need the variables MASTER_ADDR"):
        meeting({"MASTER_ADDR": "127.0.0.1"})
    with pytest.raises(ArgumentError, match="MASTER_PORT='65535' is no port"):
        meeting({"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "65535"})


def test_children_get_their_own_variables_and_all_end(tmp_path: Path) -> None:
    code = "import os, pathlib; pathlib.Path(os.environ['FILE']).write_text('done')"
    files = [tmp_path / name for name in ("a", "b")]
    environments = [os.environ | {"FILE": str(file)} for file in files]
    assert run_children([sys.executable, "-c", code], environments) == 0
    assert [file.read_text() for file in files] == ["done", "done"]


@pytest.mark.parametrize(("end", "status"), [("sys.exit(3)", 3), ("os.kill(os.getpid(), 9)", 137)])
def test_children_end_when_one_has_failed(
    end: str, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(children, "PATIENCE_SECONDS", 0.2)
    code = f"import os, sys, time\nif os.environ['RANK'] == '1': {end}\ntime.sleep(60)"
    started = time.monotonic()
    environments = [os.environ | {"RANK": rank} for rank in "01"]
    assert run_children([sys.executable, "-c", code], environments) == status
    assert time.monotonic() - started < 30


def test_children_do_not_outlive_what_launched_them() -> None:
    """That is killed, and can end nobody itself."""
    # One call of the system for each line: two processes write to one pipe.
    sleep = "import os, time; os.write(1, b'%d\\n' % os.getpid()); time.sleep(60)"
    code = (
        "import os, sys\n"
        "from lamina.distributed.children import run_children\n"
        f"run_children([sys.executable, '-c', {sleep!r}], [os.environ] * 2)"
    )
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        processes = [int(parent.stdout.readline()) for _ in range(2)]
        parent.kill()
    assert all(map(ends_soon, processes))


def test_a_script_that_is_not_there_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["launch", "no_such.py"]) == 1
    assert "no file no_such.py" in capsys.readouterr().err
