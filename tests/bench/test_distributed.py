"""The rows of several processes: their commands, what is made of what they print, and the table."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from bench import distributed
from bench.distributed import MARK, RUNS, Run, result_of, table


def test_each_row_is_a_case_and_starts_its_processes() -> None:
    from bench.ranks import CASES

    for run in RUNS:
        command = run.command("cuda", ["--tiny"])
        assert command[0] == sys.executable
        assert command[-1] == "--tiny"
        assert command[command.index("bench.ranks") + 1] == run.case in CASES
        assert (str(run.processes) in command) == (run.processes > 1)


def says(monkeypatch: pytest.MonkeyPatch, output: str) -> dict[str, Any]:
    """What is made of a process that prints `output`."""

    def ran(*arguments: object, **keywords: object) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess([], 0, output, "")

    monkeypatch.setattr(distributed.subprocess, "run", ran)
    return result_of(Run("decode", "one", "decode", "lamina", 1), "cpu", [])


def test_results_are_found_and_failures_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    line = '{"tokens_per_second": 200.0, "seconds": 0.005, "peak_bytes": 1073741824}'
    good = says(monkeypatch, f"a warning\n{MARK}{line}\nanother one\n")
    assert good["tokens_per_second"] == 200.0
    assert good["label"] == "one"
    bad = says(monkeypatch, "Traceback: no device")
    assert bad["error"] == "Traceback: no device"
    faster = {**good, "label": "two", "tokens_per_second": 340.0}
    rows = table([good, bad, faster]).splitlines()[2:]
    assert rows[0] == "| decode | one | 200.0 | 5.00 | 1.00 | 1.00 |"
    assert "failed" in rows[1]
    assert rows[2].endswith("| 1.70 |")
