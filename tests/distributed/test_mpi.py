"""Two processes joined by MPI: every collective, training, and what happens when one fails."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

pytest.importorskip("mpi4py", reason="two processes need pip install mpi4py mpich")

from tests.distributed.launching import ROOT, ends_soon, launch


def test_every_collective() -> None:
    ran = launch("operations.py")
    assert ran.status == 0, ran.errors
    # The ends of lines of two processes may come after both lines.
    lines = re.findall(r"rank \d: all is well", ran.output)
    assert sorted(lines) == ["rank 0: all is well", "rank 1: all is well"]


def test_steps_are_compared_with_the_interpreter() -> None:
    """With LAMINA_CHECK=1, which runs each step as a program of its own."""
    ran = launch("operations.py", "few", LAMINA_CHECK="1")
    assert ran.status == 0, ran.errors
    assert ran.output.count("all is well") == 2


def test_the_interpreter_runs_collectives_too() -> None:
    ran = launch("operations.py", device="interp")
    assert ran.status == 0, ran.errors
    assert ran.output.count("all is well") == 2


@pytest.mark.parametrize("device", ["interp", pytest.param("cpu", marks=pytest.mark.exhaustive)])
def test_training_in_two_processes_is_that_in_one(device: str) -> None:
    """In the interpreter, which compiles nothing; C takes a minute for so many programs."""
    ran = launch("data_parallel.py", device=device)
    assert ran.status == 0, ran.errors
    assert ran.output.count("all is well") == 2


WAYS = ("tensor", "tensor-and-sequence", "ring", "sharded", "pipeline")


def test_ways_to_share_a_model_train_as_one_process() -> None:
    ran = launch("parallel.py", *WAYS, device="interp")
    assert ran.status == 0, ran.errors
    assert ran.output.count("all is well") == 2 * len(WAYS)


@pytest.mark.exhaustive
@pytest.mark.parametrize("way", WAYS)
def test_ways_to_share_a_model_compiled(way: str) -> None:
    """In C, a minute for each."""
    ran = launch("parallel.py", way)
    assert ran.status == 0, ran.errors


@pytest.mark.parametrize("mesh", [(2, 1), (1, 2)])
def test_an_annotated_model_trains_as_one_process(mesh: tuple[int, int]) -> None:
    ran = launch("sharded.py", *map(str, mesh), device="interp")
    assert ran.status == 0, ran.errors
    assert ran.output.count("all is well") == 2


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "command",
    [
        "data_parallel.py", *[f"parallel.py {way}" for way in WAYS],
        "sharded.py 4 1", "sharded.py 2 2", "sharded.py 1 4",
    ],
)  # fmt: skip
def test_four_processes_train_as_one(command: str) -> None:
    """In each of the ways; an annotated model along one axis of a mesh, and along two."""
    script, *arguments = command.split()
    ran = launch(script, *arguments, device="interp", count=4)
    assert ran.status == 0, ran.errors
    assert ran.output.count("all is well") == 4


# Rank 0 may wait for the end of the first collective, or before the second one.
WAITING = r"all_reduce ADD f32\[4\] among 2 ranks \(.*\)"
MESSAGES = {
    "raises": rf"RankError: {WAITING}: rank 1 failed: ValueError: a mistake in the data",
    # Before mpiexec kills rank 0, which need not have come to the collective yet.
    "is killed": rf"rank 0, (in|after) {WAITING}: rank 1 failed: its process ended",
    "ends": rf"RankError: {WAITING}: rank 1 has ended, and is waited for",
    "hangs": rf"RankError: {WAITING}: waited 3 s for others: "
    r"rank 1: after all_reduce ADD f32\[4\] among 2 ranks \(collective 1\)",
    "differs": r"ProgramsDifferError: collective 1 of the programs differs: rank 0: all_reduce ADD "
    r"f32\[4\] among 2 ranks; rank 1: all_gather f32\[4\] among 2 ranks",
    "uneven": r"ProgramsDifferError: .* rank 0: a part, float32 \(3, 5\), of a tensor cut along "
    r"\(data, None\); rank 1: a part, float32 \(2, 5\)",
}


@pytest.mark.parametrize("fault", MESSAGES)
def test_a_fault_ends_all_processes_and_is_named(fault: str) -> None:
    ran = launch("faults.py", fault, device="interp")
    assert ran.status != 0
    assert re.search(MESSAGES[fault], ran.errors), ran.errors
    processes = [int(number) for number in re.findall(r"process (\d+)", ran.output)]
    assert len(processes) == 2
    assert all(map(ends_soon, processes))


def test_a_process_that_fails_before_it_joins_ends_the_others() -> None:
    """Which wait for it as MPI starts."""
    ran = launch("faults.py", "raises at first", device="interp")
    assert ran.status != 0
    assert ran.seconds < 60
    assert "ValueError: a mistake in an import" in ran.errors


def test_torchrun_is_told_what_to_do() -> None:
    environment = os.environ | {"RANK": "0", "WORLD_SIZE": "2", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", "from lamina import distributed; distributed.init()"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "start them with `lamina launch -n 2 SCRIPT`" in done.stderr
