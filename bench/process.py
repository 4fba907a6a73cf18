"""Starting the measured programs, and talking to them."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.cases import module_of
from bench.machine import ROOT, version
from bench.report import LAMINA
from bench.statistics import in_turns
from lamina.runtime.cpu import usable_cores

LIMIT_SECONDS = 400  # a program that says nothing for so long is ended
PEERS = ("numpy", "torch", "jax", "tinygrad", "onnxruntime")
_PAUSE_SECONDS = 0.03  # between turns: threads of the last one that still spin go to sleep


class ProgramError(Exception):
    """A measured program ended without an answer."""


def default_threads(quick: bool) -> list[int]:
    """All cores, and one."""
    cores = usable_cores()
    return [cores] if quick or cores == 1 else [cores, 1]


@dataclass
class Bench:
    """One run: the folder for everything temporary, the seed, what is installed, how thorough."""

    folder: Path
    seed: int
    quick: bool
    clang: str | None
    threads: Sequence[int] = (1,)  # targets are for the first of these numbers
    failures: list[str] = field(default_factory=list)

    def rounds(self, normal: int, quick: int) -> int:
        """How often to measure."""
        return quick if self.quick else normal

    def scaled(self, seconds: float) -> float:
        """How long to measure what usually takes `seconds`."""
        return seconds / 2 if self.quick else seconds

    def installed(self, *columns: str) -> list[str]:
        """Those of `columns` that can be measured here. A quick run compiles nothing of peers
        whose compilers take seconds."""
        slow = ("torch.compile", "tinygrad", "onnxruntime") if self.quick else ()
        return [
            column
            for column in columns
            if column not in slow and (module := module_of(column)) in self.frameworks(module)
        ]

    def frameworks(self, *names: str) -> list[str]:
        """Those of `names` that can be measured here, lamina first."""
        return [
            name
            for name in dict.fromkeys((LAMINA, *names))
            if name == LAMINA
            or (version(name) is not None and (name != "tinygrad" or self.clang is not None))
        ]

    def environment(self, cache: Path, threads: int = 0, **more: str) -> dict[str, str]:
        """The variables of a program whose compiled kernels are kept in `cache`, and of one that
        is to use so many threads (0: all)."""
        kept = {name: text for name, text in os.environ.items() if not name.startswith("LAMINA_")}
        kept.pop("PYTHONDONTWRITEBYTECODE", None)
        kept["PYTHONPATH"] = str(ROOT)
        kept["LAMINA_CACHE_DIR"] = str(cache / "lamina")
        kept["CACHEDB"] = str(cache / "tinygrad" / "cache.db")
        kept["TORCHINDUCTOR_CACHE_DIR"] = str(cache / "inductor")
        kept["JAX_PLATFORMS"] = "cpu"
        kept["CC"] = self.clang or ""
        if threads:
            for name in ("LAMINA_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "CPU_COUNT"):
                kept[name] = str(threads)
        return kept | more

    def new_cache(self) -> Path:
        """An empty folder."""
        return Path(tempfile.mkdtemp(dir=self.folder, prefix="cache-"))

    @contextlib.contextmanager
    def noting(self, what: str) -> Iterator[None]:
        """Turn a program's failure into a note of the report."""
        try:
            yield
        except ProgramError as error:
            self.failures.append(f"{what}: {error}")
            print(f"  {what}: {error}", file=sys.stderr)


class Worker:
    """A running program of `bench.programs`."""

    def __init__(self, program: str, *arguments: str, environment: Mapping[str, str]) -> None:
        self.errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed with the process
        command = [sys.executable, "-m", f"bench.programs.{program}", *arguments]
        self.name = program
        self.started = time.time()
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors,
            text=True, env=environment, cwd=ROOT,
        )  # fmt: skip

    def read(self) -> dict[str, Any]:
        """The next thing it says. Raises ProgramError when it ended or takes too long."""
        assert self.process.stdout is not None
        guard = threading.Timer(LIMIT_SECONDS, self.process.kill)
        guard.start()
        try:
            line = self.process.stdout.readline()
        finally:
            guard.cancel()
        if not line:
            self.process.wait()
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

    def _say(self, line: str) -> dict[str, Any]:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # read says why it ended
        return self.read()

    def close(self) -> None:
        """Let it end, and wait for that."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        try:
            self.process.wait(LIMIT_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()
        self.errors.close()

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def take_turns(
    bench: Bench, what: str, functions: Mapping[str, Callable[[], Any]], rounds: int
) -> dict[str, list[Any]]:
    """`in_turns` of programs that may fail; one that does is noted and left out."""
    working = dict(functions)
    failed: set[str] = set()

    def guarded(name: str) -> Callable[[], Any]:
        def call() -> Any:
            if name not in failed:
                time.sleep(_PAUSE_SECONDS)
                with bench.noting(f"{what}, {name}"):
                    return working[name]()
                failed.add(name)
            return None

        return call

    results = in_turns({name: guarded(name) for name in working}, rounds)
    return {name: values for name, values in results.items() if name not in failed}
