"""Rates of this machine: measured once, positive, and kept on disk."""

from __future__ import annotations

import fcntl
import threading
import time
from dataclasses import replace
from math import inf
from pathlib import Path

import pytest

from lamina import calibrate
from lamina.core.options import Options, current
from lamina.core.rates import COMMON_CPU, Rates
from lamina.runtime.cache import CacheWarning, DiskCache
from lamina.schedule.cost.operations import INSTRUCTIONS_OF_FLOAT64
from lamina.schedule.cost.traffic import missing_share, size_of


def test_rates_are_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibrate, "_UNCACHED", 16 << 20)
    monkeypatch.setattr(calibrate, "_ROUNDS", 1)
    options = current()
    rates = calibrate.cpu_rates.__wrapped__(options)
    assert [level.name for level in rates.levels] == ["L1", "L2", "L3", "DRAM"]
    for level in rates.levels:
        assert min(level.read, level.write, level.all_read, level.scattered) > 1e6
    assert [level.size for level in rates.levels] == sorted(level.size for level in rates.levels)
    assert rates.levels[-1].size == inf
    assert min(rates.issue, rates.simple) > 1e6
    assert 0 < rates.latency < 1e-6
    assert rates.functions.keys() == {
        f"{op.name} {dtype}" for op in INSTRUCTIONS_OF_FLOAT64 for dtype in ("float32", "float64")
    }
    assert all(1 < instructions < 1000 for instructions in rates.functions.values())
    assert 0.5 <= rates.narrow <= 1
    assert 0 < rates.array < rates.call < 1e-3

    def refused(*arguments: object) -> None:
        pytest.fail("it measured again")

    monkeypatch.setattr(calibrate, "_Calibration", refused)
    assert calibrate.cpu_rates.__wrapped__(options) == rates


def test_processes_that_share_a_cache_measure_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Threads stand for processes: each opens the lock by itself.
    measured = list[int]()

    class Slow:
        def __init__(self, options: Options, threads: int) -> None:
            measured.append(threads)

        def rates(self) -> Rates:
            time.sleep(0.2)
            return COMMON_CPU

    monkeypatch.setattr(calibrate, "_Calibration", Slow)
    options = replace(current(), cache_dir=str(tmp_path))
    results = list[Rates]()

    def ask() -> None:
        results.append(calibrate.cpu_rates.__wrapped__(options))

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [COMMON_CPU] * 3
    assert len(measured) == 1


def test_a_process_with_a_folder_of_its_own_does_not_wait_for_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cache folder that cannot be used is replaced by a private one, which is locked."""
    flock = fcntl.flock

    def at_once(lock: int, operation: int) -> None:
        try:
            flock(lock, operation | fcntl.LOCK_NB)
        except BlockingIOError:
            pytest.fail("it would wait")

    monkeypatch.setattr(fcntl, "flock", at_once)
    no_folder = tmp_path / "file"
    no_folder.touch()
    with pytest.warns(CacheWarning):
        disk = DiskCache(no_folder)
    with calibrate._turn(disk.folder):
        assert disk.folder != no_folder


def test_rates_are_measured_where_a_folder_is_gone(tmp_path: Path) -> None:
    with calibrate._turn(tmp_path / "gone"):
        pass


def test_the_fastest_run_of_all_rounds_counts() -> None:
    seconds = iter([4.0, 3.0, 2.0, 5.0, 3.0, 9.0])
    measurement = calibrate._Measurement(lambda: next(seconds), amount=6.0, runs=2)
    for _ in range(3):
        measurement.take_turn()
    assert measurement.rate == 3.0
    assert next(seconds, None) is None


@pytest.mark.parametrize("missing", [0.1, 0.3, 0.9])
def test_the_size_of_a_cache_follows_from_what_an_array_misses(missing: float) -> None:
    """Of an array of 24 MB, which is read at the mean rate of a cache and of memory."""
    near, far = 100e9, 25e9
    rate = 1 / ((1 - missing) / near + missing / far)
    share = calibrate._share_from(rate, near, far)
    assert share == pytest.approx(missing)
    level = replace(COMMON_CPU.levels[2], size=size_of(24e6, share))
    assert missing_share(24e6, level) == pytest.approx(missing)


def test_memory_that_is_as_fast_as_a_cache_is_no_end_of_it() -> None:
    assert calibrate._share_from(50e9, 100e9, 100e9) == 0
