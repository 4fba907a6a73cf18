"""Programs run only while they are asked, and none is left behind."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bench.kernels import Fleet
from bench.machine import ROOT
from bench.process import Bench, take_turns
from bench.worker import ProgramError, ProgramTimeoutError, Worker
from tests.bench.spinning import CHILD, PARENT, PROCESSES, counter

SPINNING = "tests.bench.spinning"
PATIENCE = 60.0  # seconds, for what is to happen soon


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path, seed=1, quick=True, clang=None)


@pytest.fixture
def spinner(bench: Bench) -> Iterator[Worker]:
    environment = bench.environment(bench.new_cache())
    with Worker(SPINNING, str(bench.folder), PARENT, environment=environment) as worker:
        worker.read()
        yield worker


def _turns_of_the_loop(folder: Path) -> list[int]:
    return [counter(folder, process)[0] for process in PROCESSES]


def _wait_for(condition: Callable[[], bool]) -> None:
    ends = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < ends
        time.sleep(0.01)


def _has_ended(folder: Path, process: str) -> bool:
    """Whether a spinning process holds its lock no more."""
    with (folder / f"{process}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def _all_have_ended(folder: Path) -> bool:
    return all(_has_ended(folder, process) for process in PROCESSES)


def test_a_neighbour_that_spins_takes_nothing_from_a_turn(bench: Bench, spinner: Worker) -> None:
    """What a turn measures is how far the neighbour's loops get meanwhile: they have no part of
    the machine, and go on when it is their own turn."""

    def taken_in_a_turn() -> list[int]:
        before = _turns_of_the_loop(bench.folder)
        neighbour.ask("miss", 3)
        after = _turns_of_the_loop(bench.folder)
        return [now - then for now, then in zip(after, before, strict=True)]

    def spun_in_its_own_turn() -> bool:
        before = _turns_of_the_loop(bench.folder)
        spinner.ask("spin")
        after = _turns_of_the_loop(bench.folder)
        return all(now > then for now, then in zip(after, before, strict=True))

    environment = bench.environment(bench.new_cache())
    with Worker("bench.programs.nodes", "lamina", environment=environment) as neighbour:
        neighbour.read()
        turns = {"neighbour": taken_in_a_turn, "spinner": spun_in_its_own_turn}
        results = take_turns(bench, "spinning", turns, 5)
    assert results == {"neighbour": [[0, 0]] * 5, "spinner": [True] * 5}
    assert bench.failures == []


def test_a_stopped_program_ends_when_it_is_closed(bench: Bench, spinner: Worker) -> None:
    assert not _has_ended(bench.folder, PARENT)
    spinner.close()
    assert spinner.process.returncode == 0
    assert _all_have_ended(bench.folder)


def test_a_program_that_says_nothing_is_killed(bench: Bench) -> None:
    environment = bench.environment(bench.new_cache())
    worker = Worker(SPINNING, str(bench.folder), CHILD, environment=environment, limit=0.5)
    with pytest.raises(ProgramTimeoutError, match="spinning said nothing for 0 s"):
        worker.read()
    assert worker.process.returncode == -signal.SIGKILL
    worker.close()


def test_an_error_kills_a_stopped_program_and_what_it_started(bench: Bench) -> None:
    environment = bench.environment(bench.new_cache())
    worker = Worker(SPINNING, str(bench.folder), PARENT, environment=environment)
    worker.read()
    with pytest.raises(KeyboardInterrupt), worker:
        raise KeyboardInterrupt
    assert worker.process.returncode == -signal.SIGKILL
    _wait_for(lambda: _has_ended(bench.folder, CHILD))


def test_a_program_that_dies_while_it_is_stopped_is_noticed(bench: Bench, spinner: Worker) -> None:
    os.kill(spinner.process.pid, signal.SIGKILL)
    with pytest.raises(ProgramError, match="spinning ended with -9"):
        spinner.ask("spin")
    spinner.close()  # once more does no harm
    spinner.kill()


def test_a_program_that_dies_while_it_is_stopped_is_started_anew(bench: Bench) -> None:
    with Fleet(bench) as fleet:
        worker = fleet.worker("numpy", 1)
        os.kill(worker.process.pid, signal.SIGKILL)
        with pytest.raises(ProgramError):
            worker.tell(["drop"])
        assert fleet.worker("numpy", 1).tell(["drop"]) == {"dropped": True}
        assert worker.errors.closed


def test_a_fleet_that_is_interrupted_leaves_nobody_behind(bench: Bench) -> None:
    fleet = Fleet(bench)
    worker = fleet.worker("numpy", 1)
    with pytest.raises(KeyboardInterrupt), fleet:
        raise KeyboardInterrupt
    assert worker.process.returncode == -signal.SIGKILL


RUNNER = f"""
import os, signal, sys, time
from bench.worker import Worker

signal.signal(signal.SIGINT, signal.default_int_handler)
with Worker("{SPINNING}", sys.argv[1], "{PARENT}", environment=os.environ) as worker:
    worker.read()
    print("stopped", flush=True)
    time.sleep({PATIENCE})
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_stopped_programs_end_with_their_runner(bench: Bench, number: signal.Signals) -> None:
    """Nothing runs in a runner that is killed: the system ends stopped groups without a parent."""
    runner = subprocess.Popen(
        [sys.executable, "-c", RUNNER, str(bench.folder)], stdout=subprocess.PIPE, text=True,
        stderr=subprocess.DEVNULL, env=bench.environment(bench.new_cache()), cwd=ROOT,
        start_new_session=True,
    )  # fmt: skip
    with runner:
        assert runner.stdout is not None
        assert runner.stdout.readline() == "stopped\n"
        assert not _has_ended(bench.folder, PARENT)
        runner.send_signal(number)
    assert runner.returncode == -number
    _wait_for(lambda: _all_have_ended(bench.folder))
