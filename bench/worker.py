"""A measured program: a process that runs only while it computes an answer.

Between its answers the process and all that it started are stopped. Pools of threads spin on after
their work, those of OpenBLAS for a tenth of a second, and would take processors from the program
whose turn is next.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from bench.machine import ROOT

LIMIT_SECONDS = 400  # a program that says nothing for so long is killed
END_SECONDS = 30  # and so is one that does not end within that time when nobody asks any more
STOP_SECONDS = 10  # a thread in the middle of a transfer to a disk may be that late to stop
STOPPED_STATES = frozenset("TtZX")  # stopped, traced, ended: proc(5), /proc/pid/stat


class ProgramError(Exception):
    """A measured program ended without an answer."""


class ProgramTimeoutError(ProgramError):
    """A measured program was killed because it said nothing for too long."""


class Worker:
    """A running program, such as ``bench.programs.cases``.

    Its process leads a group of its own within this session. Signals to the group reach whatever
    the program started. When this process dies without closing it, a stopped group is orphaned:
    the system sends it SIGHUP and SIGCONT (POSIX, `_exit`), which end it. Ctrl-C on the terminal
    reaches this process only, which kills the worker. limit: seconds until an answer.
    """

    def __init__(
        self, module: str, *arguments: str, environment: Mapping[str, str],
        limit: float = LIMIT_SECONDS,
    ) -> None:  # fmt: skip
        self.name = module.rpartition(".")[2]
        self.limit = limit
        self.errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed with the process
        self.started = time.time()
        self.process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors,
            text=True, env=environment, cwd=ROOT, process_group=0,
        )  # fmt: skip
        self._stopped = False

    def read(self) -> dict[str, Any]:
        """Let it run until its next answer, and stop it again. Raises ProgramError when it ended,
        and ProgramTimeoutError when it takes too long."""
        assert self.process.stdout is not None
        late = threading.Event()

        def end() -> None:
            late.set()
            self._signal(signal.SIGKILL)

        guard = threading.Timer(self.limit, end)
        guard.start()
        try:
            self._continue()
            line = self.process.stdout.readline()
            if line:
                self._stop()
            else:
                self.process.wait()
        finally:
            guard.cancel()
        if not line and late.is_set():
            raise ProgramTimeoutError(f"{self.name} said nothing for {self.limit:.0f} s")
        if not line:
            self.errors.seek(0)
            last = (self.errors.read().strip() or "it said nothing").splitlines()[-1]
            raise ProgramError(f"{self.name} ended with {self.process.returncode}: {last[:300]}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def ask(self, name: str, count: int = 1) -> dict[str, Any]:
        """Run a step `count` times; see `bench.programs.protocol.serve`."""
        return self._say(f"{name} {count}")

    def tell(self, message: Sequence[object]) -> dict[str, Any]:
        """Send a JSON list to a program that reads such."""
        return self._say(json.dumps(message))

    def pin(self, cores: int) -> None:
        """Let it run on the last `cores` of the usable cores only."""
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(self.process.pid, sorted(os.sched_getaffinity(0))[-cores:])

    def close(self) -> None:
        """Let it end, and wait for that."""
        try:
            self._continue()
            self._hang_up()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(END_SECONDS)
        finally:
            self.kill()

    def kill(self) -> None:
        """End it at once, whether it is stopped or not, where it has not ended yet."""
        self._signal(signal.SIGKILL)
        self.process.wait()
        self._hang_up()
        assert self.process.stdout is not None
        self.process.stdout.close()
        self.errors.close()

    def _say(self, line: str) -> dict[str, Any]:
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it ended; read says why
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()
        return self.read()

    def _continue(self) -> None:
        if self._stopped:
            self._stopped = False
            self._signal(signal.SIGCONT)

    def _stop(self) -> None:
        """Stop the group, and wait until no thread of it runs. `waitpid` tells of the leader
        alone; a process that the leader started stops a moment later, on a busy machine after
        several milliseconds."""
        self._signal(signal.SIGSTOP)
        if self.process.poll() is not None:
            return
        _, status = os.waitpid(self.process.pid, os.WUNTRACED)
        if os.WIFSTOPPED(status):
            self._stopped = True
            self._wait_until_stopped()
        else:
            self.process.returncode = os.waitstatus_to_exitcode(status)

    def _wait_until_stopped(self) -> None:
        """Until no thread of the group runs."""
        ends = time.monotonic() + STOP_SECONDS
        while _runs(self.process.pid) and time.monotonic() < ends:
            time.sleep(0.001)

    def _signal(self, number: signal.Signals) -> None:
        """Send a signal to the group, unless its leader was waited for: its number may be another
        process's by now. macOS refuses where the leader has ended (EPERM)."""
        if self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, number)

    def _hang_up(self) -> None:
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()

    def __enter__(self) -> Worker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        if kind is None:
            self.close()
        else:
            self.kill()


def _runs(group: int) -> bool:
    """Whether a thread of a process group is not stopped. False where the system has no /proc."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if os.getpgid(int(process.name)) != group:
                continue
            states = [_state(task) for task in (process / "task").iterdir()]
        except OSError:  # it ended meanwhile
            continue
        if not STOPPED_STATES.issuperset(states):
            return True
    return False


def _state(task: Path) -> str:
    """The state letter of a thread: the field after its name, which stands in brackets and may
    contain any character, as in `7 (a) b) S 1 ...`."""
    text = (task / "stat").read_text()
    return text[text.rindex(")") + 2]
