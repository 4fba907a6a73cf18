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
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.machine import ROOT, version
from bench.report import LAMINA
from bench.statistics import in_turns

LIMIT_SECONDS = 120  # a program that says nothing for so long is ended
PEERS = ("torch", "tinygrad")


class ProgramError(Exception):
    """A measured program ended without an answer."""


@dataclass
class Bench:
    """One run: the folder for everything temporary, the seed, what is installed, how thorough."""

    folder: Path
    seed: int
    quick: bool
    clang: str | None
    failures: list[str] = field(default_factory=list)

    def rounds(self, normal: int, quick: int) -> int:
        """How often to measure."""
        return quick if self.quick else normal

    def frameworks(self, *names: str) -> list[str]:
        """Those of `names` that can be measured here, lamina first."""
        return [
            name
            for name in (LAMINA, *names)
            if name == LAMINA
            or (version(name) is not None and (name != "tinygrad" or self.clang is not None))
        ]

    def environment(self, cache: Path, **more: str) -> dict[str, str]:
        """The variables of a program whose compiled kernels are kept in `cache`."""
        kept = {name: text for name, text in os.environ.items() if not name.startswith("LAMINA_")}
        kept.pop("PYTHONDONTWRITEBYTECODE", None)
        kept["PYTHONPATH"] = str(ROOT)
        kept["LAMINA_CACHE_DIR"] = str(cache / "lamina")
        kept["CACHEDB"] = str(cache / "tinygrad" / "cache.db")
        kept["CC"] = self.clang or ""
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
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(f"{name} {count}\n")
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
                with bench.noting(f"{what}, {name}"):
                    return working[name]()
                failed.add(name)
            return None

        return call

    results = in_turns({name: guarded(name) for name in working}, rounds)
    return {name: values for name, values in results.items() if name not in failed}
