"""Scripts of this folder, in two processes started by `lamina launch`."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
SCRIPTS = Path(__file__).parent / "scripts"


@dataclass(frozen=True)
class Ran:
    """How a run ended."""

    status: int
    output: str
    errors: str
    seconds: float


def command_of(script: str, *arguments: str, device: str = "cpu", count: int = 2) -> list[str]:
    """What runs a script in `count` processes."""
    return [
        sys.executable, "-m", "lamina", "launch", "-n", str(count), "--device", device,
        str(SCRIPTS / script), *arguments,
    ]  # fmt: skip


def environment_of(**variables: str) -> dict[str, str]:
    """The environment of a run, with variables added to it."""
    return os.environ | {"PYTHONPATH": str(ROOT), "LAMINA_THREADS": "1"} | variables


def launch(
    script: str, *arguments: str, device: str = "cpu", count: int = 2, **variables: str
) -> Ran:
    """Run a script in `count` processes to its end, with variables added to the environment."""
    command = command_of(script, *arguments, device=device, count=count)
    environment = environment_of(**variables)
    started = time.monotonic()
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=110, check=False
    )
    return Ran(done.returncode, done.stdout, done.stderr, time.monotonic() - started)


def ends_soon(process: int) -> bool:
    """Whether a process is gone, or waits to be forgotten, within a few seconds."""
    for _ in range(200):
        try:
            status = Path(f"/proc/{process}/stat").read_text()
        except FileNotFoundError:
            return True
        if status.rpartition(")")[2].split()[0] == "Z":
            return True
        time.sleep(0.05)
    return False
