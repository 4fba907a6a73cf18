"""The processes of a run that no mpiexec starts: children of this one, which end together."""

from __future__ import annotations

import ctypes
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from types import FrameType

# Until children are ended by a signal after one has failed: they notice that themselves, and say
# which rank it was.
PATIENCE_SECONDS = 35.0
POLL_SECONDS = 0.02
_DIES_WITH_PARENT = 1  # PR_SET_PDEATHSIG of Linux


def free_port() -> int:
    """A port of this machine that no program uses now."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    return port


def run_children(command: Sequence[str], environments: Sequence[Mapping[str, str]]) -> int:
    """Run `command` once for each environment, and wait until all have ended. Returns 0, or the
    status of the first that failed: 128 and the number of the signal, if one killed it."""
    on_linux = sys.platform == "linux"
    children = [
        subprocess.Popen(
            command, env=dict(environment), preexec_fn=_die_with_parent if on_linux else None
        )
        for environment in environments
    ]

    def stop(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        return _wait_for(children)
    finally:
        signal.signal(signal.SIGTERM, before)
        for child in children:
            if child.poll() is None:
                child.kill()
            child.wait()


def _wait_for(children: Sequence[subprocess.Popen[bytes]]) -> int:
    """Wait until all have ended, or until PATIENCE_SECONDS after one has failed."""
    failed_at: float | None = None
    status = 0
    running = list(children)
    while running:
        for child in [one for one in running if one.poll() is not None]:
            running.remove(child)
            if child.returncode and failed_at is None:
                failed_at = time.monotonic()
                status = child.returncode if child.returncode > 0 else 128 - child.returncode
        if failed_at is not None and time.monotonic() - failed_at > PATIENCE_SECONDS:
            return status
        time.sleep(POLL_SECONDS)
    return status


def _die_with_parent() -> None:
    """Let the system kill this child when its parent is gone, however that ended."""
    ctypes.CDLL(None).prctl(_DIES_WITH_PARENT, signal.SIGKILL)
