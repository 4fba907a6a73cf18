"""Crews side by side: one is measured while all others are stopped."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bench.cliffs.stage import SharedIterator, Stage, StagedWorker
from bench.process import Bench
from tests.bench.spinning import PARENT, PROCESSES, counter

SPINNING = "tests.bench.spinning"


@pytest.fixture
def stage() -> Stage:
    return Stage(1)


@pytest.fixture
def worker(stage: Stage, tmp_path: Path) -> Iterator[StagedWorker]:
    """One of the crew "other", which has answered once."""
    bench = Bench(tmp_path, seed=1, quick=True, clang=None)
    environment = bench.environment(bench.new_cache())
    words = SPINNING, str(tmp_path), PARENT
    with StagedWorker(stage, "other", *words, environment=environment) as worker:
        worker.read()
        yield worker


def test_a_worker_of_another_crew_is_stopped_in_the_middle_of_its_work(
    stage: Stage, worker: StagedWorker, tmp_path: Path
) -> None:
    ends = threading.Event()

    def ask() -> None:
        while not ends.is_set():
            worker.ask("turn")

    numbers = [counter(tmp_path, process) for process in PROCESSES]
    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(ask)
        for _ in range(3):
            with stage.alone("this"):
                before = [number[0] for number in numbers]
                time.sleep(0.05)
                assert [number[0] for number in numbers] == before
            while [number[0] for number in numbers] == before:  # it works on
                assert not asking.done()
        ends.set()
        asking.result()


def test_the_crew_that_is_alone_runs(stage: Stage, worker: StagedWorker) -> None:
    with stage.alone("other"):
        assert worker.ask("turn") == {"counted": True}


def test_threads_take_each_number_once() -> None:
    numbers = SharedIterator(range(1000))
    with ThreadPoolExecutor(4) as pool:
        taken = list(pool.map(lambda _: list(numbers), range(4)))
    assert sorted(number for some in taken for number in some) == list(range(1000))
