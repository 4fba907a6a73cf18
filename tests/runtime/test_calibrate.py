"""Rates of this machine: measured once, positive, and kept on disk."""

from __future__ import annotations

from math import inf

import pytest

from lamina.core.options import current
from lamina.runtime import calibrate


def test_rates_are_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibrate, "_UNCACHED", 16 << 20)
    monkeypatch.setattr(calibrate, "_RUNS", 1)
    options = current()
    rates = calibrate.cpu_rates.__wrapped__(options)
    assert [level.name for level in rates.levels] == ["L1", "L2", "L3", "DRAM"]
    for level in rates.levels:
        assert min(level.read, level.write, level.all_read, level.scattered) > 1e6
    assert [level.size for level in rates.levels] == sorted(level.size for level in rates.levels)
    assert rates.levels[-1].size == inf
    assert min(rates.issue, rates.simple) > 1e6
    assert 0 < rates.latency < 1e-6
    assert 0 < rates.array < rates.call < 1e-3

    def refused(*arguments: object) -> None:
        pytest.fail("it measured again")

    monkeypatch.setattr(calibrate, "_Calibration", refused)
    assert calibrate.cpu_rates.__wrapped__(options) == rates
