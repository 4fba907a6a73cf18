"""Every example runs on its own and keeps the promises it asserts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
# By name: what they need beside what the tests need. Each has a test that is skipped without it.
OTHERS = {"11_onnx", "10_pytorch"}


def test_the_lessons_are_numbered() -> None:
    assert [int(one.name[:2]) for one in EXAMPLES] == list(range(1, len(EXAMPLES) + 1))
    assert len(EXAMPLES) >= 7


@pytest.mark.parametrize(
    "path", [path for path in EXAMPLES if path.stem not in OTHERS], ids=lambda path: path.stem
)
def test_example_runs(path: Path) -> None:
    run(path)


def run(path: Path) -> None:
    """Run an example in a process of its own."""
    assert "assert " in path.read_text(encoding="utf-8")
    done = subprocess.run(
        [sys.executable, path],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout
    assert not done.stderr
